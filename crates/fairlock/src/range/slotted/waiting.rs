//! The queue of a range lock: steps 2 and 3 of the [module](super). Invariants are quoted by their numbers
//! there.

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

/// A thread that wants a range, on its own stack.
/// It starts a cache line, so that which of its words share one is not the caller's frame to decide.
#[repr(align(64))]
pub(super) struct Waiter<P: Platform> {
    links: Links<P>,
    claim: Claim,
    extent: Extent,
    access: Access,
    place: Place<P>,
    /// [`PENDING`] or [`GRANTED`].
    state: P::AtomicU32,
}

/// The waiter does not have its range.
const PENDING: u32 = 0;
/// It has.
const GRANTED: u32 = 1;

impl<P: Platform> OnRing<P> for Waiter<P> {
    fn links(&self) -> &Links<P> {
        &self.links
    }
}

/// What a waiter waits for.
enum Obstacle<P: Platform> {
    /// The holder of a slot, which had this tag.
    Slot(&'static RangeSlot<P>, u64),
    /// A holder or a waiter that will serve the queue.
    Other,
}

/// Waiters that were granted their ranges and are to be woken, once the queue's lock is released.
pub(super) struct Admitted<P: Platform> {
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

    pub(super) fn wake(self) {
        let mut next = self.first;
        // SAFETY: by invariant 3 a waiter on this chain stays on its stack until `GRANTED` is stored below.
        while let Some(waiter) = unsafe { next.as_ref() } {
            next = waiter.links.chained();
            let state: *const P::AtomicU32 = &raw const waiter.state;
            // Release pairs with the Acquire in `is_granted`: the waiter sees its slot held.
            waiter.state.store(GRANTED, Release);
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

    fn is_granted(&self) -> bool {
        // Acquire pairs with the Release in `Admitted::wake`.
        self.state.load(Acquire) == GRANTED
    }

    fn sleep(&self, deadline: Option<u64>) {
        P::park(&self.state, PENDING, deadline);
    }
}

impl<P: HasRecords, const STRIPES: usize, const GRAIN: u32> Slotted<P, STRIPES, GRAIN> {
    /// The holder of a slot that conflicts. Under the queue's lock only those can still acquire that are
    /// trying already (invariant 1).
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

    /// The slot's tag if its holder conflicts with the waiter. Waits out a slot that is trying: it is about
    /// to hold its range or to say that it waits.
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

    fn conflicts_apart(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>) -> bool {
        self.apart.any(locked, waiter.extent, waiter.access).is_some()
    }

    /// Whether a waiter before this one conflicts with it, but for those that wait for what was `released`.
    fn is_behind(
        &self,
        locked: &Locked<'_, P>,
        waiter: &Waiter<P>,
        released: Option<Extent>,
    ) -> bool {
        let before = self.waiters.iter(locked).take_while(|before| !ptr::eq(*before, waiter));
        let passes =
            |before: &Waiter<P>| released.is_some_and(|range| before.extent.overlaps(range));
        before.into_iter().any(|before| before.conflicts(waiter) && !passes(before))
    }

    fn obstacle(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>) -> Option<Obstacle<P>> {
        if self.is_behind(locked, waiter, None) || self.conflicts_apart(locked, waiter) {
            return Some(Obstacle::Other);
        }
        self.holder(waiter).map(|(slot, tag)| Obstacle::Slot(slot, tag))
    }

    /// Step 2. The waiter's slot is trying, or it has none.
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
            self.grant(&locked, waiter);
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
    fn grant(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>) {
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
                // SAFETY: it belongs to the waiter, which keeps it while it waits.
                self.apart.insert(locked, unsafe { apart.as_ref() });
            }
        }
    }

    /// If no conflict is left, takes the waiter off the ring and grants it its range.
    fn try_grant(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>) -> Option<Obstacle<P>> {
        let obstacle = self.obstacle(locked, waiter);
        if obstacle.is_none() {
            self.waiters.remove(locked, waiter);
            self.grant(locked, waiter);
        }
        obstacle
    }

    /// Whether another thread granted its range, and may not have woken it yet.
    fn was_granted(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>) -> bool {
        !waiter.links.is_linked(locked)
    }

    /// Spins for as long as a wake-up takes: that never costs more than twice the better of spinning and
    /// sleeping. True if the waiter has its range.
    fn spin(&self, waiter: &Waiter<P>, found: Obstacle<P>, deadline: Option<u64>) -> bool {
        let mut obstacle = found;
        let mut budget = SpinBudget::new::<P>(P::wake_latency().into(), deadline);
        loop {
            if waiter.is_granted() {
                return true;
            }
            if let Obstacle::Slot(slot, tag) = obstacle
                && slot.tag() != tag
            {
                let locked = self.queue.lock();
                if self.was_granted(&locked, waiter) {
                    return false; // and is woken soon
                }
                match self.try_grant(&locked, waiter) {
                    Some(next) => obstacle = next,
                    None => return true,
                }
            } else if !budget.relax::<P>() {
                return false;
            }
        }
    }

    /// True if the waiter has its range, false if the deadline passed.
    fn sleep(&self, waiter: &Waiter<P>, deadline: Option<u64>) -> bool {
        if self.prepare_to_sleep(waiter) {
            return true;
        }
        loop {
            if waiter.is_granted() {
                return true;
            }
            if deadline.is_some_and(|deadline| P::now() >= deadline) {
                return !self.give_up(waiter);
            }
            waiter.sleep(deadline);
        }
    }

    /// Makes sure that those it conflicts with will serve it (invariant 4). True if the waiter has its range.
    fn prepare_to_sleep(&self, waiter: &Waiter<P>) -> bool {
        let locked = self.queue.lock();
        if self.was_granted(&locked, waiter) {
            return false;
        }
        // Marked first: a holder that releases in between no longer conflicts.
        let marked = waiter.access == Access::Exclusive && Self::mark_sharing_holders(waiter);
        if self.try_grant(&locked, waiter).is_none() {
            return true;
        }
        if !marked {
            return false;
        }
        drop(locked);
        // Pairs with the barrier in `RangeSlot::clear`: a holder that does not see the mark has released
        // its range already.
        if P::is_asymmetric() {
            P::asymmetric_heavy();
        } else {
            P::fence();
        }
        let locked = self.queue.lock();
        !self.was_granted(&locked, waiter) && self.try_grant(&locked, waiter).is_none()
    }

    /// Marks the slots of shared holders that conflict. True if there are any.
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

    /// False if the waiter was granted its range meanwhile.
    fn give_up(&self, waiter: &Waiter<P>) -> bool {
        let locked = self.queue.lock();
        if self.was_granted(&locked, waiter) {
            drop(locked);
            while !waiter.is_granted() {
                waiter.sleep(None);
            }
            return false;
        }
        self.waiters.remove(&locked, waiter);
        self.filters.lower(waiter.extent, Cause::Listed);
        let admitted = self.admit(&locked, waiter.extent, false);
        drop(locked);
        admitted.wake();
        true
    }

    /// Step 3: grants their ranges to those that waited for what was `released` and conflict with nobody
    /// now; if it was `exclusive`, first to those that share.
    pub(super) fn admit(
        &self,
        locked: &Locked<'_, P>,
        released: Extent,
        exclusive: bool,
    ) -> Admitted<P> {
        let mut admitted = Admitted::NONE;
        if exclusive {
            self.admit_some(locked, released, Some(released), &mut admitted);
        }
        self.admit_some(locked, released, None, &mut admitted);
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
                self.waiters.remove(locked, waiter);
                self.grant(locked, waiter);
                admitted.add(waiter);
            }
            // Every concerned waiter behind it waits for it now.
            if waiter.access == Access::Exclusive && waiter.extent.contains(released) {
                return;
            }
        }
    }

    /// Serves those that wait for this range, which is released or shared now.
    #[cold]
    pub(super) fn serve(&self, released: Extent, exclusive: bool) {
        let locked = self.queue.lock();
        let admitted = self.admit(&locked, released, exclusive);
        drop(locked);
        admitted.wake();
    }
}
