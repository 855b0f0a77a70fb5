//! MCS: a queue of waiters, each of which spins on a line of its own.
//!
//! A thread that finds the lock held swaps its node into `tail` and links itself to the one
//! before, which grants it the lock by a store to its node. A handover so costs the same however
//! many wait. Nodes live on the waiters' stacks, and only while they wait (K42's variant): a new
//! holder moves what its node says, who comes next, into the lock's `head`.
//!
//! ```text
//!   tail ─────────────────────────┐   free: tail null
//!   head ──► node ──next──► node ◄┘   held, nobody waits: tail HELD, head null
//! ```
//!
//! After Mellor-Crummey and Scott (ACM TOCS 1991) and Auslander et al. (US patent application
//! 2003/0200457, the K42 kernel). It wastes a CPU while waiting and stalls while the holder, or
//! the thread whose turn it is, is preempted: not for production.
//!
//! Invariants
//! 1. `tail` is null while the lock is free, else the youngest waiter's node, or `HELD`, or the
//!    holder's node between its acquisition and the end of `leave_queue`.
//! 2. A node lives until its thread has been granted the lock and has left the queue, which it
//!    does when `tail` is not the node and the successor, if any, has linked itself.
//! 3. Who swaps its node into `tail` links it exactly once: to the node, or `head`, that it found.
//! 4. `head` is null while the lock is free. It is written by the holder as it leaves the queue,
//!    and after that by the first to find `HELD`; it is read by the holder alone.
//! 5. Only the holder grants the lock, to one node, as its last access to it.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use fairlock::lock_api::GuardNoSend;
use fairlock::platform::{AtomicCell, Os, Platform};

/// An MCS queue spin lock, for comparison only.
///
/// # Guarantees
/// First come, first served: with n threads, nobody waits for more than n - 1 others' turns. An
/// attempt ([`try_lock`](fairlock::lock_api::Mutex::try_lock)) succeeds only if nobody holds the lock or
/// waits for it. Waiting allocates nothing.
///
/// # Example
/// ```
/// use fairlock_reference::spin::McsLock;
///
/// static COUNT: McsLock<u32> = McsLock::new(0);
///
/// *COUNT.lock() += 1;
/// let count = COUNT.lock();
/// assert!(COUNT.try_lock().is_none());
/// assert_eq!(*count, 1);
/// ```
pub type McsLock<T> = fairlock::lock_api::Mutex<RawMcs<Os>, T>;

const WAITING: u32 = 0;
const GRANTED: u32 = 1;

/// One waiter, on its own stack.
/// It starts a cache line, so that which of its words share one is not the caller's frame to decide.
#[repr(align(64))]
struct Node<P: Platform> {
    state: P::AtomicU32,
    /// Who comes next, null until it has linked itself.
    next: P::AtomicPtr<Node<P>>,
}

impl<P: Platform> Node<P> {
    fn new() -> Self {
        Node { state: P::AtomicU32::new(WAITING), next: P::AtomicPtr::new(ptr::null_mut()) }
    }

    fn is_granted(&self) -> bool {
        // Acquire pairs with the Release in `RawMcs::unlock`.
        self.state.load(Acquire) == GRANTED
    }
}

/// The `tail` of a lock that is held and has no waiters. No node has this address.
fn held<P: Platform>() -> *mut Node<P> {
    ptr::without_provenance_mut(1)
}

/// The lock without its data: what [`McsLock`] is made of. Use it through `lock_api`.
#[repr(C)]
pub struct RawMcs<P: Platform = Os> {
    tail: P::AtomicPtr<Node<P>>,
    /// Who comes next after a holder that has left the queue.
    head: P::AtomicPtr<Node<P>>,
}

impl<P: Platform> RawMcs<P> {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    pub(super) const NEW: Self = RawMcs { tail: P::AtomicPtr::ZERO, head: P::AtomicPtr::ZERO };

    #[inline]
    fn take_free(&self) -> bool {
        // Acquire pairs with the Release in `unlock`.
        self.tail.compare_exchange(ptr::null_mut(), held(), Acquire, Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self) {
        let node = Node::new();
        if self.join(&node) {
            while !node.is_granted() {
                P::relax(None);
            }
        }
        self.leave_queue(&node);
    }

    /// False if the lock was free and is the caller's now.
    fn join(&self, node: &Node<P>) -> bool {
        let mine = ptr::from_ref(node).cast_mut();
        // AcqRel: Release publishes the node to its successor, Acquire sees the predecessor's;
        // or the null in `head`, see `leave_queue`; or what was done under the lock, see `unlock`.
        let found = self.tail.swap(mine, AcqRel);
        if found.is_null() {
            return false;
        }
        let link = if found == held() {
            &self.head
        } else {
            // SAFETY: invariant 2, it cannot leave before this link.
            unsafe { &(*found).next }
        };
        // Release pairs with the Acquire loads of `next` and `head`.
        link.store(mine, Release);
        true
    }

    /// The holder's node is about to go: the lock itself remembers who comes next.
    fn leave_queue(&self, node: &Node<P>) {
        let mine = ptr::from_ref(node).cast_mut();
        let mut next = node.next.load(Acquire);
        if next.is_null() {
            // It may still name this node.
            self.head.store(ptr::null_mut(), Relaxed);
            // Release pairs with the swap in `join`: who finds `HELD` writes `head` after this.
            if self.tail.compare_exchange(mine, held(), Release, Relaxed).is_ok() {
                return;
            }
            next = Self::linked(&node.next);
        }
        // Relaxed: for `unlock`, by the same thread.
        self.head.store(next, Relaxed);
    }

    /// Waits for a thread that is between its swap and its link.
    fn linked(link: &P::AtomicPtr<Node<P>>) -> *mut Node<P> {
        let mut attempt = 0;
        loop {
            let next = link.load(Acquire);
            if !next.is_null() {
                return next;
            }
            P::give_way(attempt);
            attempt += 1;
        }
    }
}

// SAFETY: invariants 1 and 5; every way to acquire is Acquire, both ways to release are Release.
// Guards are inert. A lock that is moved or dropped while held has no waiters, since they borrow
// it; then its pointers lead to no node, and `HELD` is not an address.
unsafe impl<P: Platform> fairlock::lock_api::RawMutex for RawMcs<P> {
    const INIT: Self = Self::NEW;
    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        if !self.take_free() {
            self.lock_slow();
        }
        GuardNoSend::new()
    }
    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        self.take_free().then(GuardNoSend::new)
    }
    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        let mut next = self.head.load(Acquire);
        if next.is_null() {
            // Release pairs with the Acquire in `take_free` and `join`.
            if self.tail.compare_exchange(held(), ptr::null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            next = Self::linked(&self.head);
        }
        // SAFETY: invariant 2, it waits for this store, which is the last access (invariant 5).
        // Release pairs with the Acquire in `is_granted`.
        unsafe { (*next).state.store(GRANTED, Release) };
    }
    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

/// The protocol step by step: the nodes stand in for waiting threads.
#[cfg(test)]
mod tests {
    use super::super::tests::unlock;
    use super::*;
    use fairlock::lock_api::RawMutex;

    type Raw = RawMcs<Os>;

    fn pointers(lock: &Raw) -> (*const Node<Os>, *const Node<Os>) {
        (lock.head.load(Relaxed), lock.tail.load(Relaxed))
    }

    #[test]
    fn uncontended_no_node_is_in_the_lock() {
        let lock = Raw::NEW;
        assert!(lock.try_lock().is_some());
        assert_eq!(pointers(&lock), (ptr::null(), held::<Os>().cast_const()));
        assert!(lock.try_lock().is_none());
        unlock(&lock);
        assert_eq!(pointers(&lock), (ptr::null(), ptr::null()));
        assert!(!lock.is_locked());
    }

    #[test]
    fn waiters_are_granted_the_lock_in_the_order_in_which_they_joined() {
        let (lock, nodes) = (Raw::NEW, [(); 3].map(|()| Node::new()));
        assert!(lock.try_lock().is_some());
        for node in &nodes {
            assert!(lock.join(node));
        }
        for (turn, node) in nodes.iter().enumerate() {
            unlock(&lock);
            let granted = nodes.each_ref().map(Node::is_granted);
            assert_eq!(granted, [0, 1, 2].map(|other| other <= turn));
            lock.leave_queue(node);
            assert!(lock.try_lock().is_none());
        }
        unlock(&lock);
        assert_eq!(pointers(&lock), (ptr::null(), ptr::null()));
    }

    #[test]
    fn one_that_joins_after_the_holder_has_left_the_queue_is_found_through_the_lock() {
        let (lock, first, second) = (Raw::NEW, Node::new(), Node::new());
        assert!(!lock.join(&first));
        lock.leave_queue(&first);
        assert_eq!(pointers(&lock), (ptr::null(), held::<Os>().cast_const()));
        assert!(lock.join(&second));
        assert_eq!(pointers(&lock), (ptr::from_ref(&second), ptr::from_ref(&second)));
        unlock(&lock);
        assert!(second.is_granted());
        lock.leave_queue(&second);
        assert_eq!(pointers(&lock), (ptr::null(), held::<Os>().cast_const()));
        unlock(&lock);
        assert!(!lock.is_locked());
    }

    #[test]
    fn a_held_lock_can_be_moved() {
        let lock = McsLock::new(1);
        core::mem::forget(lock.lock());
        let lock = Box::new(lock);
        assert!(lock.is_locked());
        // SAFETY: held, its guard was forgotten.
        unsafe { lock.force_unlock(GuardNoSend::new()) };
        assert_eq!(*lock.try_lock().expect("free"), 1);
    }
}
