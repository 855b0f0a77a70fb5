//! The queue of a range lock: steps 2 and 3 of the [module](super), whose invariants these are.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Release};

use super::Slotted;
use super::place::{Known, Place};
use crate::platform::{AtomicCell, Platform};
use crate::range::filters::Cause;
use crate::range::{Access, Extent, Patience};
use crate::slots::HasRecords;
use crate::slots::range::{Claim, HELD, RangeSlot, TRYING, WAITING, is_shared};
use crate::spin_budget::SpinBudget;
use crate::wait_queue::{Links, Locked, OnRing};

/// Somebody who wants a range, on its own stack.
pub(super) struct Waiter<P: Platform> {
    links: Links<P>,
    claim: Claim,
    extent: Extent,
    access: Access,
    place: Place<P>,
    /// [`OUT`] or [`IN`].
    state: P::AtomicU32,
}

const OUT: u32 = 0;
const IN: u32 = 1;

impl<P: Platform> OnRing<P> for Waiter<P> {
    fn links(&self) -> &Links<P> {
        &self.links
    }
}

/// Who keeps a waiter away.
enum Obstacle<P: Platform> {
    /// The holder of a slot, which said this.
    Slot(&'static RangeSlot<P>, u64),
    /// Somebody who will tell.
    Other,
}

/// Waiters that were let in and are to be told, once the queue's lock is released.
pub(super) struct Admitted<P: Platform> {
    first: *const Waiter<P>,
    last: *const Waiter<P>,
}

impl<P: HasRecords> Admitted<P> {
    const NONE: Self = Admitted { first: ptr::null(), last: ptr::null() };

    fn add(&mut self, waiter: &Waiter<P>) {
        // SAFETY: null, or on this chain, and so not told and alive (invariant 3).
        match unsafe { self.last.as_ref() } {
            Some(last) => last.links.chain(waiter),
            None => self.first = waiter,
        }
        self.last = waiter;
    }

    pub(super) fn tell(self) {
        let mut next = self.first;
        // SAFETY: a waiter stays until it is told.
        while let Some(waiter) = unsafe { next.as_ref() } {
            next = waiter.links.chained();
            let state: *const P::AtomicU32 = &raw const waiter.state;
            // Release pairs with the Acquire in `is_in`: with the slot.
            waiter.state.store(IN, Release);
            P::unpark(state);
        }
    }
}

impl<P: HasRecords> Waiter<P> {
    pub(super) fn new(claim: Claim, extent: Extent, access: Access, place: Place<P>) -> Self {
        Waiter { links: Links::NEW, claim, extent, access, place, state: P::AtomicU32::ZERO }
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.access.conflicts(other.access) && self.extent.overlaps(other.extent)
    }

    fn is_in(&self) -> bool {
        // Acquire pairs with the Release in `Admitted::tell`.
        self.state.load(Acquire) == IN
    }

    fn sleep(&self, deadline: Option<u64>) {
        P::park(&self.state, OUT, deadline);
    }
}

impl<P: HasRecords, const STRIPES: usize, const GRAIN: u32> Slotted<P, STRIPES, GRAIN> {
    /// The holder of a slot that is in the way, under the queue's lock, which keeps all but those
    /// from coming in that are trying already (invariant 1).
    fn holder(&self, waiter: &Waiter<P>) -> Option<(&'static RangeSlot<P>, u64)> {
        if waiter.access == Access::Shared && !self.filters.look(waiter.extent).exclusive {
            return None;
        }
        let mut holder = None;
        P::threads().all_ranges(|slot| {
            holder = Self::settled(slot, waiter).map(|tag| (slot, tag));
            holder.is_none()
        });
        holder
    }

    /// The slot's tag if its holder is in the waiter's way. One that is trying is about to hold its
    /// range or to say that it waits.
    fn settled(slot: &RangeSlot<P>, waiter: &Waiter<P>) -> Option<u64> {
        let (first, last) = (waiter.extent.first(), waiter.extent.last());
        let mut budget = None;
        let mut attempt = 0;
        loop {
            let tag = slot.tag();
            match slot.keeps_away(waiter.claim, first, last)? {
                TRYING => {}
                _ => return Some(tag),
            }
            let budget =
                budget.get_or_insert_with(|| SpinBudget::new::<P>(P::wake_latency().into(), None));
            if attempt > 0 || !budget.relax::<P>() {
                P::give_way(attempt);
                attempt += 1;
            }
        }
    }

    fn is_kept_away_apart(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>) -> bool {
        self.apart.any(locked, waiter.extent, waiter.access).is_some()
    }

    /// Whether a waiter before this one is in its way, but for those that wait for what was `left`.
    fn is_behind(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>, left: Option<Extent>) -> bool {
        let before = self.waiters.iter(locked).take_while(|before| !ptr::eq(*before, waiter));
        let passes = |before: &Waiter<P>| left.is_some_and(|left| before.extent.overlaps(left));
        before.into_iter().any(|before| before.conflicts(waiter) && !passes(before))
    }

    fn obstacle(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>) -> Option<Obstacle<P>> {
        if self.is_behind(locked, waiter, None) || self.is_kept_away_apart(locked, waiter) {
            return Some(Obstacle::Other);
        }
        self.holder(waiter).map(|(slot, tag)| Obstacle::Slot(slot, tag))
    }

    /// Step 2. The slot says that it is trying, or there is none.
    #[cold]
    pub(super) fn wait(&self, waiter: &Waiter<P>, patience: Patience) -> bool {
        let known = waiter.place.known();
        if let Known::InSlot(slot) = known {
            slot.set(waiter.claim, WAITING);
        }
        let locked = self.queue.lock();
        self.filters.raise(waiter.extent, Cause::Listed);
        P::fence_after_update();
        if let (Known::InSlot(_), Access::Exclusive) = (known, waiter.access) {
            self.filters.lower(waiter.extent, Cause::Exclusive);
        }
        let Some(obstacle) = self.obstacle(&locked, waiter) else {
            self.let_in(&locked, waiter);
            return true;
        };
        let Patience::Until(deadline) = patience else {
            self.filters.lower(waiter.extent, Cause::Listed);
            return false;
        };
        self.waiters.push(&locked, waiter);
        drop(locked);
        self.spin(waiter, obstacle, deadline) || self.sleep(waiter, deadline)
    }

    /// Makes the waiter, which is not on the ring, the holder of its range.
    fn let_in(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>) {
        match waiter.place.known() {
            Known::InSlot(slot) => {
                if self.waiters.oldest(locked).is_some() {
                    slot.mark(); // Invariant 4.
                }
                slot.set(waiter.claim, HELD);
                if waiter.access == Access::Exclusive {
                    self.filters.raise(waiter.extent, Cause::Exclusive);
                }
                self.filters.lower(waiter.extent, Cause::Listed);
            }
            Known::Apart(apart) => {
                // SAFETY: it is the waiter's, who waits.
                self.apart.insert(locked, unsafe { apart.as_ref() });
            }
        }
    }

    /// If nobody is in the way any more, takes the waiter from the ring and lets it in.
    fn try_let_in(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>) -> Option<Obstacle<P>> {
        let obstacle = self.obstacle(locked, waiter);
        if obstacle.is_none() {
            self.waiters.remove(locked, waiter);
            self.let_in(locked, waiter);
        }
        obstacle
    }

    /// Whether it was let in by another thread, which may still be about to tell.
    fn was_let_in(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>) -> bool {
        !waiter.links.is_linked(locked)
    }

    /// For as long as a wake-up takes: that never costs more than twice the better choice. True if
    /// the waiter is in.
    fn spin(&self, waiter: &Waiter<P>, found: Obstacle<P>, deadline: Option<u64>) -> bool {
        let mut obstacle = found;
        let mut budget = SpinBudget::new::<P>(P::wake_latency().into(), deadline);
        loop {
            if waiter.is_in() {
                return true;
            }
            if let Obstacle::Slot(slot, tag) = obstacle
                && slot.tag() != tag
            {
                let locked = self.queue.lock();
                if self.was_let_in(&locked, waiter) {
                    return false; // and is told soon
                }
                match self.try_let_in(&locked, waiter) {
                    Some(next) => obstacle = next,
                    None => return true,
                }
            } else if !budget.relax::<P>() {
                return false;
            }
        }
    }

    /// True if the waiter is in, false if the deadline passed.
    fn sleep(&self, waiter: &Waiter<P>, deadline: Option<u64>) -> bool {
        if self.prepare_to_sleep(waiter) {
            return true;
        }
        loop {
            if waiter.is_in() {
                return true;
            }
            if deadline.is_some_and(|deadline| P::now() >= deadline) {
                return !self.give_up(waiter);
            }
            waiter.sleep(deadline);
        }
    }

    /// Sees to it that whoever is in the way will tell (invariant 4). True if the waiter is in.
    fn prepare_to_sleep(&self, waiter: &Waiter<P>) -> bool {
        let locked = self.queue.lock();
        if self.was_let_in(&locked, waiter) {
            return false;
        }
        // First: one that leaves in between is not in the way any more.
        let marked = waiter.access == Access::Exclusive && Self::mark_sharing_holders(waiter);
        if self.try_let_in(&locked, waiter).is_none() {
            return true;
        }
        if !marked {
            return false;
        }
        drop(locked);
        // Pairs with the barrier in `RangeSlot::clear`: who does not see the mark has left already.
        if P::is_asymmetric() {
            P::asymmetric_heavy();
        } else {
            P::fence();
        }
        let locked = self.queue.lock();
        !self.was_let_in(&locked, waiter) && self.try_let_in(&locked, waiter).is_none()
    }

    /// True if there are any.
    fn mark_sharing_holders(waiter: &Waiter<P>) -> bool {
        let mut any = false;
        P::threads().all_ranges(|slot| {
            if Self::settled(slot, waiter).is_some_and(is_shared) {
                slot.mark();
                any = true;
            }
            true
        });
        any
    }

    /// False if the waiter has been let in.
    fn give_up(&self, waiter: &Waiter<P>) -> bool {
        let locked = self.queue.lock();
        if self.was_let_in(&locked, waiter) {
            drop(locked);
            while !waiter.is_in() {
                waiter.sleep(None);
            }
            return false;
        }
        self.waiters.remove(&locked, waiter);
        self.filters.lower(waiter.extent, Cause::Listed);
        let admitted = self.admit(&locked, waiter.extent, false);
        drop(locked);
        admitted.tell();
        true
    }

    /// Step 3: lets in who waited for this range and can come in now; if it was `exclusive`, those
    /// first that share.
    pub(super) fn admit(
        &self,
        locked: &Locked<'_, P>,
        left: Extent,
        exclusive: bool,
    ) -> Admitted<P> {
        let mut admitted = Admitted::NONE;
        if exclusive {
            self.admit_some(locked, left, Some(left), &mut admitted);
        }
        self.admit_some(locked, left, None, &mut admitted);
        admitted
    }

    /// Those that wait for what was `left`; only those that share if they pass others.
    fn admit_some(
        &self,
        locked: &Locked<'_, P>,
        left: Extent,
        passing: Option<Extent>,
        admitted: &mut Admitted<P>,
    ) {
        let mut next = self.waiters.oldest(locked);
        while let Some(waiter) = next {
            next = self.waiters.younger(locked, waiter);
            let concerned = waiter.extent.overlaps(left)
                && (passing.is_none() || waiter.access == Access::Shared);
            if !concerned {
                continue;
            }
            let kept_away = self.is_behind(locked, waiter, passing)
                || self.is_kept_away_apart(locked, waiter)
                || self.holder(waiter).is_some();
            if !kept_away {
                self.waiters.remove(locked, waiter);
                self.let_in(locked, waiter);
                admitted.add(waiter);
            }
            // Whoever is behind it and concerned waits for it now.
            if waiter.access == Access::Exclusive && waiter.extent.contains(left) {
                return;
            }
        }
    }

    /// Somebody may wait for this range, which is left or shared now.
    #[cold]
    pub(super) fn tell(&self, left: Extent, exclusive: bool) {
        let locked = self.queue.lock();
        let admitted = self.admit(&locked, left, exclusive);
        drop(locked);
        admitted.tell();
    }
}
