//! CLH: a queue of waiters, each of which spins on its predecessor's node.
//!
//! A thread swaps its node into `tail` and waits until the node that it found there says
//! `RELEASED`. Unlocking is one store to the thread's own node, which from then on belongs to the
//! successor, and the thread takes over the node of its predecessor instead.
//!
//! ```text
//!   [RELEASED] ◄── [HELD] ◄── [HELD] ◄── tail
//!    holder's       its        waits on the node before
//! ```
//!
//! Nodes are on the heap: a node outlives the acquisition that it was made for, and a thread has
//! no place to keep one. The one last taken over stays in the lock as a `spare` for whoever comes
//! next. So a thread alone allocates twice and no more; under contention some acquisitions allocate.
//!
//! After Craig (University of Washington TR 93-02-02, 1993) and Magnusson, Landin and Hagersten
//! (IPPS 1994); the attempt after Scott's CLH with timeouts (PODC 2002). It wastes a CPU while
//! waiting and stalls while the holder, or the thread whose turn it is, is preempted: not for
//! production.
//!
//! Invariants
//! 1. A node belongs to one thread, or to `spare`, or is queued. A queued node belongs to the
//!    thread that queued it until that stores `RELEASED` or `ABANDONED`, its last access; then
//!    to the thread behind it, or to `tail` if there is none.
//! 2. `tail` is the last queued node, null before the first. Whoever swaps it out is the thread
//!    behind it, and nobody else reads it, until that thread has put it back.
//! 3. A thread holds the lock when there was no node before its own, or that is `RELEASED`.
//! 4. An `ABANDONED` node names the node before it, which is then the one to wait on.

use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use fairlock::platform::{AtomicCell, Os, PlainCell, Platform};

use crate::heap::HeapBox;

/// A CLH queue spin lock, for comparison only.
///
/// # Guarantees
/// First come, first served: with n threads, nobody waits for more than n - 1 others' turns. An
/// attempt ([`try_lock`](fairlock::lock_api::Mutex::try_lock)) fails only if somebody holds the lock or
/// stands in the queue, be it for another attempt. It stands there itself for a moment, and if
/// it is preempted just then, those behind it wait for it.
///
/// [`is_locked`](fairlock::lock_api::Mutex::is_locked) is such an attempt. Locking may allocate 128 bytes,
/// and a guard that is forgotten leaks as many.
///
/// # Example
/// ```
/// use fairlock_reference::spin::ClhLock;
///
/// static COUNT: ClhLock<u32> = ClhLock::new(0);
///
/// *COUNT.lock() += 1;
/// let count = COUNT.lock();
/// assert!(COUNT.try_lock().is_none());
/// assert_eq!(*count, 1);
/// ```
pub type ClhLock<T> = fairlock::lock_api::Mutex<RawClh<Os>, T>;

/// The node's thread holds the lock or waits for it.
const HELD: u32 = 0;
/// The node's thread has held the lock.
const RELEASED: u32 = 1;
/// The node's thread has not waited for the lock.
const ABANDONED: u32 = 2;

/// A line of its own, and the neighbour that some CPUs fetch with it.
#[repr(align(128))]
struct Node<P: Platform> {
    state: P::AtomicU32,
    /// The node before this one, once this is abandoned.
    before: P::Cell<*const ()>,
}

/// The lock without its data: what [`ClhLock`] is made of. Use it through `lock_api`.
#[repr(C)]
pub struct RawClh<P: Platform = Os> {
    tail: P::AtomicPtr<Node<P>>,
    /// A node that nobody uses, or null.
    spare: P::AtomicPtr<Node<P>>,
}

/// One acquisition of a [`ClhLock`]: state of its guard.
pub struct ClhTurn<P: Platform> {
    /// The holder's node: queued.
    mine: *mut Node<P>,
    /// The node before, which belongs to the holder; null if there was none.
    before: *mut Node<P>,
}

// SAFETY: a shared turn gives access to nothing.
unsafe impl<P: Platform> Sync for ClhTurn<P> {}

impl<P: Platform> RawClh<P> {
    /// A node that belongs to the caller, ready to be queued.
    #[inline]
    fn take_node(&self) -> *mut Node<P> {
        // Acquire pairs with the AcqRel in `keep`.
        let spare = self.spare.swap(ptr::null_mut(), Acquire);
        if spare.is_null() {
            let (state, before) = (P::AtomicU32::new(HELD), P::Cell::ZERO);
            return HeapBox::<P, _>::new(Node { state, before }).into_raw().as_ptr();
        }
        // SAFETY: invariant 1, it was the spare. Relaxed: the swap into `tail` publishes it.
        unsafe { (*spare).state.store(HELD, Relaxed) };
        spare
    }

    /// Makes a node that belongs to the caller the spare one.
    #[inline]
    fn keep(&self, node: *mut Node<P>) {
        // AcqRel: Release pairs with the Acquire in `take_node` and here, Acquire with the Release
        // of whoever kept the node that is freed below.
        let surplus = self.spare.swap(node, AcqRel);
        if let Some(surplus) = NonNull::new(surplus) {
            // SAFETY: invariant 1, it was the spare; `take_node` has it from a box.
            drop(unsafe { HeapBox::<P, _>::from_raw(surplus) });
        }
    }

    /// Takes a place in the queue.
    #[inline]
    fn join(&self) -> ClhTurn<P> {
        let mine = self.take_node();
        // AcqRel: Release publishes this node, Acquire sees the one before.
        let before = self.tail.swap(mine, AcqRel);
        ClhTurn { mine, before }
    }

    /// Looks once whether the turn has come.
    #[inline]
    fn has_come(&self, turn: &mut ClhTurn<P>) -> bool {
        loop {
            if turn.before.is_null() {
                return true;
            }
            // SAFETY: invariant 2, this thread is behind it. Acquire pairs with the Release of
            // `RELEASED` in `unlock` and of `ABANDONED` in `give_up`.
            match unsafe { (*turn.before).state.load(Acquire) } {
                HELD => return false,
                RELEASED => return true,
                _ => {
                    let abandoned = turn.before;
                    // SAFETY: invariants 1 and 4.
                    turn.before = unsafe { (*abandoned).before.get() }.cast_mut().cast();
                    self.keep(abandoned);
                }
            }
        }
    }

    /// Leaves the queue before the turn has come.
    #[cold]
    fn give_up(&self, turn: ClhTurn<P>) {
        // Release pairs with the swap in `join`: this thread has looked at the node before, and
        // whoever finds that in `tail` may free it.
        if self.tail.compare_exchange(turn.mine, turn.before, Release, Relaxed).is_ok() {
            // Nobody has come since `join`, or those that have put it back: invariant 2.
            self.keep(turn.mine);
            return;
        }
        // SAFETY: invariant 1, this thread's still. Release pairs with the Acquire in `has_come`.
        unsafe {
            (*turn.mine).before.set(turn.before.cast_const().cast());
            (*turn.mine).state.store(ABANDONED, Release);
        }
    }
}

// SAFETY: invariant 3; a turn comes with Acquire, unlocking is Release. Forgetting a turn leaks
// its node before and no more. Nodes stay where they are when the lock is moved; `Drop` says why
// it may be dropped while held.
unsafe impl<P: Platform> fairlock::lock_api::RawMutex for RawClh<P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = RawClh { tail: P::AtomicPtr::ZERO, spare: P::AtomicPtr::ZERO };
    type Guard = ClhTurn<P>;

    #[inline]
    fn lock(&self) -> ClhTurn<P> {
        let mut turn = self.join();
        while !self.has_come(&mut turn) {
            P::relax(None);
        }
        turn
    }
    #[inline]
    fn try_lock(&self) -> Option<ClhTurn<P>> {
        let mut turn = self.join();
        if self.has_come(&mut turn) {
            return Some(turn);
        }
        self.give_up(turn);
        None
    }
    #[inline]
    unsafe fn unlock(&self, turn: ClhTurn<P>) {
        // SAFETY: invariant 1, queued by this turn, and this is the last access. Release pairs
        // with the Acquire in `has_come`.
        unsafe { (*turn.mine).state.store(RELEASED, Release) };
        if !turn.before.is_null() {
            self.keep(turn.before);
        }
    }
    fn is_locked(&self) -> bool {
        match self.try_lock() {
            None => true,
            Some(turn) => {
                // SAFETY: just acquired.
                unsafe { self.unlock(turn) };
                false
            }
        }
    }
}

impl<P: Platform> Drop for RawClh<P> {
    fn drop(&mut self) {
        let free = |node: *mut Node<P>| {
            // SAFETY: `take_node` has it from a box, and below each node is freed once: those that the lock owns.
            NonNull::new(node).map(|node| unsafe { HeapBox::<P, _>::from_raw(node) })
        };
        // Those in the queue and their guards borrow the lock, so none is left, and what is
        // queued belongs to the lock: the last node, and those abandoned up to it. (The last
        // may be that of a guard that was forgotten.) Acquire pairs with the Release of each.
        let mut last = free(self.tail.load(Acquire));
        while let Some(node) = last {
            let abandoned = node.state.load(Acquire) == ABANDONED;
            last = if abandoned { free(node.before.get().cast_mut().cast()) } else { None };
        }
        drop(free(self.spare.load(Acquire)));
    }
}

/// The protocol step by step: turns stand in for threads.
#[cfg(test)]
mod tests {
    use super::*;
    use fairlock::lock_api::RawMutex;

    type Raw = RawClh<Os>;

    fn unlock(lock: &Raw, turn: ClhTurn<Os>) {
        // SAFETY: every test below unlocks what it holds.
        unsafe { lock.unlock(turn) };
    }

    #[test]
    fn turns_come_in_the_order_of_arrival() {
        let lock = Raw::INIT;
        let mut first = lock.join();
        let mut second = lock.join();
        let mut third = lock.join();
        assert!(lock.has_come(&mut first));
        assert!(!lock.has_come(&mut second));
        unlock(&lock, first);
        assert!(lock.has_come(&mut second));
        assert!(!lock.has_come(&mut third));
        unlock(&lock, second);
        assert!(lock.has_come(&mut third));
        assert!(lock.is_locked());
        unlock(&lock, third);
        assert!(!lock.is_locked());
    }

    #[test]
    fn alone_a_thread_uses_two_nodes_by_turns() {
        let lock = Raw::INIT;
        let turns: Vec<_> = (0..6)
            .map(|_| {
                let turn = lock.try_lock().expect("free");
                let node = turn.mine;
                unlock(&lock, turn);
                node
            })
            .collect();
        assert_ne!(turns[0], turns[1]);
        assert_eq!(turns[2..4], turns[..2]);
        assert_eq!(turns[4..], turns[..2]);
    }

    #[test]
    fn an_attempt_with_nobody_behind_it_leaves_no_trace() {
        let lock = Raw::INIT;
        let holder = lock.join();
        assert!(lock.try_lock().is_none());
        assert_eq!(lock.tail.load(Relaxed), holder.mine);
        unlock(&lock, holder);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_waiter_behind_abandoned_nodes_waits_on_the_one_before_them() {
        let lock = Raw::INIT;
        let holder = lock.join();
        let (first, second) = (lock.join(), lock.join());
        let mut waiter = lock.join();
        lock.give_up(second);
        lock.give_up(first);
        assert!(!lock.has_come(&mut waiter));
        assert_eq!(waiter.before, holder.mine);
        unlock(&lock, holder);
        assert!(lock.has_come(&mut waiter));
        unlock(&lock, waiter);
        assert!(!lock.is_locked());
    }

    #[test]
    fn an_abandoned_node_that_ends_up_last_is_passed_over_or_freed() {
        for arrives in [true, false] {
            let lock = Raw::INIT;
            let holder = lock.join();
            let attempt = lock.join();
            let mut behind = lock.join();
            assert!(!lock.has_come(&mut behind));
            let abandoned = attempt.mine;
            // The one behind looks, the attempt is too late to leave without a trace, and then
            // the one behind puts the attempt's node back.
            // SAFETY: the attempt's own node still (invariant 1). This is `give_up` whose exchange fails.
            unsafe {
                (*abandoned).before.set(attempt.before.cast_const().cast());
                (*abandoned).state.store(ABANDONED, Release);
            }
            lock.give_up(behind);
            assert_eq!(lock.tail.load(Relaxed), abandoned);
            unlock(&lock, holder);
            if arrives {
                assert!(lock.try_lock().is_some());
            }
        }
    }

    #[test]
    fn a_held_lock_can_be_moved_and_dropped() {
        let lock = ClhLock::new(1);
        drop(lock.lock());
        core::mem::forget(lock.lock());
        let lock = Box::new(lock);
        assert!(lock.is_locked());
        drop(lock);
    }
}
