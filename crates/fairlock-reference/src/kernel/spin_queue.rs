//! The queue of spinners: an MCS lock whose holder spins on the owner of a semaphore or mutex.
//!
//! After `kernel/locking/osq_lock.c`, and, where it says so, after `mspin_lock` in `kernel/mutex.c` of Linux 3.10,
//! which looks for a successor before it leaves. There is one difference to the former: there, a member that should yield its CPU leaves
//! from the middle. Here nodes live on stacks, where a neighbour that leaves at the same time could look at
//! one that is gone; so each stays until it is the front, which leaves at once if it should yield. Where there
//! are no more threads than CPUs, nobody has to yield.
//!
//! Invariants
//! 1. `tail` is the youngest member, null if there is none.
//! 2. A member's node lives until its `leave` returns, which waits for a successor that has swapped `tail`
//!    to link itself.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use fairlock::platform::{AtomicCell, Platform};

/// `LOOKS_FIRST`: as `mspin_lock`.
pub(super) struct SpinQueue<P: Platform, const LOOKS_FIRST: bool = false> {
    tail: P::AtomicPtr<Member<P>>,
}

/// One spinner, on its own stack and on a line of its own, as the kernel's are, one for each CPU.
#[repr(align(64))]
struct Member<P: Platform> {
    next: P::AtomicPtr<Member<P>>,
    is_front: P::AtomicU32,
}

impl<P: Platform, const LOOKS_FIRST: bool> SpinQueue<P, LOOKS_FIRST> {
    #[allow(clippy::declare_interior_mutable_const)] // part of the lock's own constant
    pub(super) const NEW: Self = SpinQueue { tail: P::AtomicPtr::ZERO };

    /// Runs `spin` at the front of the queue.
    pub(super) fn at_front<R>(&self, spin: impl FnOnce() -> R) -> R {
        let me =
            Member { next: P::AtomicPtr::new(ptr::null_mut()), is_front: P::AtomicU32::new(0) };
        self.enter(&me);
        let result = spin();
        self.leave(&me);
        result
    }

    fn enter(&self, me: &Member<P>) {
        let mine = ptr::from_ref(me).cast_mut();
        // AcqRel: Release publishes the node to the successor, Acquire sees the predecessor's.
        let before = self.tail.swap(mine, AcqRel);
        if before.is_null() {
            return;
        }
        // SAFETY: invariant 2: the predecessor waits for this store. Release pairs with `leave`.
        unsafe { (*before).next.store(mine, Release) };
        while me.is_front.load(Acquire) == 0 {
            P::relax(None);
        }
    }

    fn leave(&self, me: &Member<P>) {
        let mine = ptr::from_ref(me).cast_mut();
        // Acquire pairs with the Release in `enter`.
        let next = if LOOKS_FIRST { me.next.load(Acquire) } else { ptr::null_mut() };
        if !next.is_null() {
            return Self::pass_on(next);
        }
        // Release pairs with the swap in `enter`.
        if self.tail.compare_exchange(mine, ptr::null_mut(), Release, Relaxed).is_ok() {
            return;
        }
        let mut attempt = 0;
        let next = loop {
            // An exchange, as in `osq_lock.c`. Acquire pairs with the Release in `enter`.
            let next = if LOOKS_FIRST {
                me.next.load(Acquire)
            } else {
                me.next.swap(ptr::null_mut(), Acquire)
            };
            if !next.is_null() {
                break next;
            }
            P::give_way(attempt);
            attempt += 1;
        };
        Self::pass_on(next);
    }

    fn pass_on(successor: *const Member<P>) {
        // SAFETY: invariant 2: the successor waits for this store, the last access to it.
        unsafe { (*successor).is_front.store(1, Release) };
    }
}
