//! Who is next when a range is released: step 3 of the [module](super), where invariants have their
//! numbers.

use core::ptr;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::Slotted;
use super::waiting::{AWAKE, GRANTED, Waiter};
use crate::platform::{AtomicCell, Platform};
use crate::range::{Access, Extent};
use crate::slots::HasRecords;
use crate::wait_queue::Locked;

/// Waiters that were granted their ranges and are to be woken, once the queue's lock is released.
struct Admitted<P: Platform> {
    first: *const Waiter<P>,
    last: *const Waiter<P>,
}

impl<P: HasRecords> Admitted<P> {
    const NONE: Self = Admitted { first: ptr::null(), last: ptr::null() };

    fn add(&mut self, waiter: &Waiter<P>) {
        // SAFETY: null, or on this chain, and so not told `GRANTED` and alive (invariant 3).
        match unsafe { self.last.as_ref() } {
            Some(last) => last.links.chain(waiter),
            None => self.first = waiter,
        }
        self.last = waiter;
    }

    fn wake(self) {
        let mut next = self.first;
        // SAFETY: by invariant 3 a waiter on this chain stays on its stack until `GRANTED` is
        // stored below.
        while let Some(waiter) = unsafe { next.as_ref() } {
            next = waiter.links.chained();
            let state: *const P::AtomicU32 = &raw const waiter.state;
            // Release pairs with the Acquire in `is_granted`: the waiter sees its slot held.
            waiter.state.store(GRANTED, Release);
            P::unpark(state);
        }
    }
}

/// Waiters that are to be woken to compete, as many as a stack frame has room for: more are woken
/// in several rounds.
const AT_ONCE: usize = 8;

/// By their addresses alone: they are on the ring, and may be gone once the queue's lock is
/// released.
struct Called<P: Platform> {
    states: [*const P::AtomicU32; AT_ONCE],
    count: usize,
}

impl<P: Platform> Called<P> {
    const NONE: Self = Called { states: [ptr::null(); AT_ONCE], count: 0 };

    fn is_full(&self) -> bool {
        self.count == AT_ONCE
    }

    fn add(&mut self, waiter: &Waiter<P>) {
        // Relaxed: the waiter looks at everything else under the queue's lock.
        waiter.state.store(AWAKE, Relaxed);
        self.states[self.count] = &raw const waiter.state;
        self.count += 1;
    }

    fn wake(&self) {
        self.states[..self.count].iter().for_each(|&state| P::unpark(state));
    }
}

impl<P: HasRecords, const STRIPES: usize, const GRAIN: u32> Slotted<P, STRIPES, GRAIN> {
    /// Whether ranges are handed out in order now.
    pub(super) fn is_in_order(&self, locked: &Locked<'_, P>) -> bool {
        self.gate.is_reserved(locked) || !self.apart.is_empty(locked)
    }

    /// Nobody is let in by the queue any more at the moment.
    pub(super) fn end_look(&self, locked: &Locked<'_, P>) {
        self.gate.end_look(locked, self.is_in_order(locked));
    }

    /// Step 3: serves those that wait for this range, which is released or shared now.
    #[cold]
    pub(super) fn serve(&self, released: Extent, exclusive: bool) {
        if !exclusive {
            // The end of sharing needs none so far. Pairs with the one below, so that `quiet` is
            // read as whoever finds the range held left it.
            P::fence();
        }
        while !self.quiet.contains(released) {
            let locked = self.queue.lock();
            P::fence_after_update();
            if self.is_in_order(&locked) || self.has_overdue(&locked, released) {
                let admitted = self.admit(&locked, released, exclusive);
                drop(locked);
                return admitted.wake();
            }
            let called = self.call(&locked, released);
            drop(locked);
            called.wake();
            if !called.is_full() {
                return;
            }
        }
    }

    fn concerned<'l>(
        &'l self,
        locked: &'l Locked<'_, P>,
        released: Extent,
    ) -> impl Iterator<Item = &'l Waiter<P>> {
        self.waiters.iter(locked).filter(move |waiter| waiter.extent.overlaps(released))
    }

    fn has_overdue(&self, locked: &Locked<'_, P>, released: Extent) -> bool {
        let oldest = self.concerned(locked, released).next();
        oldest.is_some_and(|waiter| self.gate.is_overdue(locked, waiter.since, P::now()))
    }

    // ---- in order ----

    /// Grants their ranges to those that waited for what was `released` and conflict with nobody
    /// now; if it was `exclusive`, first to those that share. Reserves their ranges for those of
    /// them that have waited for too long.
    fn admit(&self, locked: &Locked<'_, P>, released: Extent, exclusive: bool) -> Admitted<P> {
        let mut admitted = Admitted::NONE;
        let now = P::now();
        for waiter in self.concerned(locked, released) {
            self.reserve_if_overdue(locked, waiter, now);
        }
        self.gate.begin_look(locked);
        if exclusive {
            self.admit_some(locked, released, Some(released), &mut admitted);
        }
        self.admit_some(locked, released, None, &mut admitted);
        self.end_look(locked);
        admitted
    }

    /// Those that wait for what was `released`; only those that share if they pass others.
    fn admit_some(
        &self,
        locked: &Locked<'_, P>,
        released: Extent,
        passing: Option<Extent>,
        admitted: &mut Admitted<P>,
    ) {
        let mut next = self.waiters.oldest(locked);
        while let Some(waiter) = next {
            next = self.waiters.younger(locked, waiter);
            let concerned = waiter.extent.overlaps(released)
                && (passing.is_none() || waiter.access == Access::Shared);
            if !concerned {
                continue;
            }
            let must_wait = self.is_behind(locked, waiter, passing)
                || self.conflicts_apart(locked, waiter)
                || self.holder(waiter).is_some();
            if !must_wait {
                self.take_off(locked, waiter);
                self.grant(locked, waiter);
                admitted.add(waiter);
            }
            if Self::hides_the_rest(waiter, released) {
                return;
            }
        }
    }

    /// Every concerned waiter behind it waits for it now.
    fn hides_the_rest(waiter: &Waiter<P>, released: Extent) -> bool {
        waiter.access == Access::Exclusive && waiter.extent.contains(released)
    }

    // ---- past each other ----

    /// Wakes those that wait for what was `released` and could have their ranges now, to compete
    /// with newcomers. Nobody who is behind another waiter, or would find a holder: that one will
    /// serve the queue.
    fn call(&self, locked: &Locked<'_, P>, released: Extent) -> Called<P> {
        let mut called = Called::NONE;
        let (mut first, mut last, mut all_called) = (0, u64::MAX, true);
        for waiter in self.waiters.iter(locked) {
            // Relaxed: changes between these two under the queue's lock only.
            if waiter.state.load(Relaxed) == AWAKE || self.is_behind(locked, waiter, None) {
                continue;
            }
            if waiter.extent.last() < released.first() {
                first = first.max(waiter.extent.last() + 1);
            } else if waiter.extent.first() > released.last() {
                last = last.min(waiter.extent.first() - 1);
            } else if self.holder(waiter).is_some() {
                all_called = false;
            } else {
                called.add(waiter);
                if called.is_full() {
                    return called;
                }
            }
        }
        if all_called {
            self.quiet.set(locked, first, last);
        }
        called
    }
}
