//! The queue of those that spin: an MCS queue (Mellor-Crummey and Scott, 1991) in which only the
//! front spins on the lock itself and the others wait on a line of their own.
//!
//! Linux lets its spinners leave this queue when they must yield the CPU, which needs nodes that
//! are never freed. Here the nodes live on stacks, so nobody leaves from the middle; instead a
//! member sleeps after a short spin, and the front never stays longer than its own budget.
//!
//! Invariants
//! 1. `tail` is the youngest member, null without members.
//! 2. A member's node lives until `leave` returns.
//! 3. Exactly one member is the front; `leave` passes that on.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::platform::{AtomicCell, Platform};
use crate::spin_budget::SpinBudget;

const BEHIND: u32 = 0;
const FRONT: u32 = 1;
const ASLEEP: u32 = 2;

pub struct SpinQueue<P: Platform> {
    tail: P::AtomicPtr<Member<P>>,
}

struct Member<P: Platform> {
    next: P::AtomicPtr<Member<P>>,
    state: P::AtomicU32,
}

impl<P: Platform> Member<P> {
    fn new() -> Self {
        Member { next: P::AtomicPtr::new(ptr::null_mut()), state: P::AtomicU32::new(BEHIND) }
    }
}

impl<P: Platform> SpinQueue<P> {
    pub(crate) const NEW: Self = SpinQueue { tail: P::AtomicPtr::ZERO };

    /// Empties it: in the child of a `fork`, where its members do not exist.
    pub(crate) fn forked(&self) {
        self.tail.store(ptr::null_mut(), Relaxed);
    }

    /// Runs `spin` as the only one to do so, after all that came before.
    pub(crate) fn at_front<R>(&self, spin: impl FnOnce() -> R) -> R {
        let me = Member::new();
        self.enter(&me);
        // Leaves on unwinding too: nothing in `spin` panics, but a checker's assertions may.
        let _leave = Leave { queue: self, me: &me };
        spin()
    }

    /// Runs `spin` if nobody else is in the queue, for those that must not stand in it: the wait
    /// for the front has no deadline.
    pub(crate) fn alone<R>(&self, spin: impl FnOnce() -> R) -> Option<R> {
        let me = Member::new();
        let my_pointer = ptr::from_ref(&me).cast_mut();
        // Release publishes the node to a successor, which pairs with the AcqRel in `enter`.
        self.tail.compare_exchange(ptr::null_mut(), my_pointer, Release, Relaxed).ok()?;
        let _leave = Leave { queue: self, me: &me };
        Some(spin())
    }

    fn enter(&self, me: &Member<P>) {
        let my_pointer = ptr::from_ref(me).cast_mut();
        // AcqRel: Release publishes the node to the successor, Acquire sees the predecessor's.
        let predecessor = self.tail.swap(my_pointer, AcqRel);
        if predecessor.is_null() {
            return;
        }
        // SAFETY: invariant 2; the predecessor cannot leave before it sees this store.
        // Release pairs with the Acquire loads of `next` in `leave`.
        unsafe { (*predecessor).next.store(my_pointer, Release) };
        // Spinning for as long as a wake-up takes never costs more than twice the better choice.
        let mut budget = SpinBudget::new::<P>(P::wake_latency().into(), None);
        loop {
            if me.state.load(Acquire) == FRONT {
                return;
            }
            if !budget.relax::<P>() {
                break;
            }
        }
        if me.state.compare_exchange(BEHIND, ASLEEP, Acquire, Acquire).is_ok() {
            // Acquire pairs with the swap in `leave`.
            while me.state.load(Acquire) != FRONT {
                P::park(&me.state, ASLEEP, None);
            }
        }
    }

    fn leave(&self, me: &Member<P>) {
        let my_pointer = ptr::from_ref(me).cast_mut();
        let mut next = me.next.load(Acquire);
        if next.is_null() {
            // Release pairs with the swap in `enter`.
            if self.tail.compare_exchange(my_pointer, ptr::null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            // A successor is between its swap and its store.
            let mut attempt = 0;
            while next.is_null() {
                P::give_way(attempt);
                attempt += 1;
                next = me.next.load(Acquire);
            }
        }
        // SAFETY: invariant 2, the successor waits for this; its frame may be gone right after
        // the swap, so the wake-up uses the address alone.
        unsafe {
            let state = &raw const (*next).state;
            if (*state).swap(FRONT, Release) == ASLEEP {
                P::unpark(state);
            }
        }
    }
}

struct Leave<'a, P: Platform> {
    queue: &'a SpinQueue<P>,
    me: &'a Member<P>,
}

impl<P: Platform> Drop for Leave<'_, P> {
    fn drop(&mut self) {
        self.queue.leave(self.me);
    }
}
