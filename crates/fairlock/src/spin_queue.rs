//! The queue of spinners: an MCS queue (Mellor-Crummey and Scott, 1991). Only its front spins on the
//! lock itself; each other member waits on a cache line of its own.
//!
//! Linux lets its spinners leave this queue when they must yield the CPU, which needs nodes that
//! are never freed. Here the nodes live on stacks, so no member leaves from the middle. Instead, a
//! member sleeps after a short spin, and the front stays only for as long as its own budget lasts.
//!
//! Invariants
//! 1. `tail` is the youngest member, or null if there are no members.
//! 2. A member's node lives until its `leave` returns. `leave` does not return while a successor that has
//!    swapped `tail` has yet to link itself.
//! 3. At most one member is the front; `leave` makes the successor the front.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::platform::{AtomicCell, Platform};
use crate::spin_budget::SpinBudget;

/// State of a member: it spins on its own state, behind the front.
const BEHIND: u32 = 0;
/// It is the front, and spins on the lock.
const FRONT: u32 = 1;
/// It sleeps until it is the front.
const ASLEEP: u32 = 2;

pub struct SpinQueue<P: Platform> {
    tail: P::AtomicPtr<Member<P>>,
}

/// One thread in the queue, on its own stack.
/// It starts a cache line, so that whether it lies on one or two is not the caller's frame to decide.
#[repr(align(64))]
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

    /// Empties it in the child of a `fork`, where its members do not exist.
    pub(crate) fn forked(&self) {
        self.tail.store(ptr::null_mut(), Relaxed);
    }

    /// Runs `spin` alone, once all earlier members have left.
    pub(crate) fn at_front<R>(&self, spin: impl FnOnce() -> R) -> R {
        let me = Member::new();
        self.enter(&me);
        // Leaves on unwinding, too: nothing in `spin` panics, but a checker's assertions may.
        let _leave = Leave { queue: self, me: &me };
        spin()
    }

    /// Runs `spin` if nobody else is in the queue. For waiters with a deadline, which must not queue here:
    /// waiting to become the front has no deadline.
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
        // SAFETY: the predecessor's node is alive: its `leave` waits for this store (invariant 2).
        // Release pairs with the Acquire loads of `next` in `leave`.
        unsafe { (*predecessor).next.store(my_pointer, Release) };
        // A spin that lasts as long as a wake-up never costs more than twice the better choice.
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
        // SAFETY: the successor's node is alive, as it waits to become the front (invariant 2). Its frame
        // may be gone right after the swap, so the wake-up uses the address alone.
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
