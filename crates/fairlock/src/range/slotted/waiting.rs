//! How a thread gets a range that it could not enter: step 2 of the [module](super), where
//! invariants have their numbers.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::Slotted;
use super::place::{Known, Place};
use crate::platform::{AtomicCell, PlainCell, Platform};
use crate::policy::HANDOFF_AFTER_NS;
use crate::range::filters::Cells;
use crate::range::{Access, Extent, Patience};
use crate::slots::HasRecords;
use crate::slots::range::{Claim, HELD, RangeSlot, is_shared, is_trying};
use crate::spin_budget::SpinBudget;
use crate::wait_queue::{Links, Locked, OnRing};

/// A thread that wants a range, on its own stack. It starts a cache line, so that which of its
/// words share one is not the caller's frame to decide.
#[repr(align(64))]
pub(super) struct Waiter<P: Platform> {
    pub(super) links: Links<P>,
    pub(super) claim: Claim,
    pub(super) extent: Extent,
    pub(super) access: Access,
    pub(super) place: Place<P>,
    /// [`AWAKE`], [`ASLEEP`] or [`GRANTED`].
    pub(super) state: P::AtomicU32,
    /// 1: newcomers that conflict queue behind it.
    reserved: P::Cell<u32>,
    /// When it began to wait, ns.
    pub(super) since: u64,
}

/// The waiter looks for itself, once more at least before it sleeps.
pub(super) const AWAKE: u32 = 0;
/// It sleeps, or is about to, and is to be woken when it can have its range.
pub(super) const ASLEEP: u32 = 1;
/// It has its range, and is off the ring.
pub(super) const GRANTED: u32 = 2;

impl<P: Platform> OnRing<P> for Waiter<P> {
    fn links(&self) -> &Links<P> {
        &self.links
    }
}

/// What a waiter waits for.
pub(super) enum Obstacle<P: Platform> {
    /// The holder of a slot.
    Slot(&'static RangeSlot<P>),
    /// A holder or a waiter that will serve the queue.
    Other,
}

/// Turns of a spin until the spinner looks again: 1, 2, 4, and so on. Each look takes the line with
/// the slot from its thread, which pays for that if its sections are short.
struct Pauses(u32);

impl Pauses {
    /// The most. With 32 two to eight threads that want one range for an instant complete 1.5 to 4
    /// times as much as with one, on two CPUs; 32 PAUSEs took 0.8 µs there, which a range may be
    /// idle for.
    const MOST: u32 = 32;

    /// False once the budget is spent.
    fn pass<P: Platform>(&mut self, budget: &mut SpinBudget) -> bool {
        // A platform that has to know what a turn waits for looks after each.
        let turns = if P::TURNS_BEFORE_CLOCK == 0 { 1 } else { self.0 };
        self.0 = (2 * self.0).min(Self::MOST);
        (0..turns).all(|_| budget.relax::<P>())
    }
}

impl<P: HasRecords> Waiter<P> {
    pub(super) fn new(claim: Claim, extent: Extent, access: Access, place: Place<P>) -> Self {
        Waiter {
            links: Links::NEW,
            claim,
            extent,
            access,
            place,
            state: P::AtomicU32::ZERO,
            reserved: P::Cell::ZERO,
            since: P::now(),
        }
    }

    pub(super) fn conflicts(&self, other: &Self) -> bool {
        self.access.conflicts(other.access) && self.extent.overlaps(other.extent)
    }

    fn is_granted(&self) -> bool {
        // Acquire pairs with the Release in `Admitted::wake`.
        self.state.load(Acquire) == GRANTED
    }

    /// Another thread has granted its range and is about to say so.
    fn await_grant(&self) {
        // Acquire as in `is_granted`.
        loop {
            match self.state.load(Acquire) {
                GRANTED => return,
                state => P::park(&self.state, state, None),
            }
        }
    }

    fn is_kept_away_by(&self, slot: &RangeSlot<P>) -> bool {
        slot.keeps_away(self.claim, self.extent.first(), self.extent.last()).is_some()
    }
}

impl<P: HasRecords, const STRIPES: usize, const GRAIN: u32> Slotted<P, STRIPES, GRAIN> {
    // ---- looking ----

    /// The holder of a slot that conflicts. During a look those that are trying get no further
    /// (invariant 1).
    pub(super) fn holder(&self, waiter: &Waiter<P>) -> Option<&'static RangeSlot<P>> {
        if waiter.access == Access::Shared
            && !self.filters.look(waiter.extent, Cells::NONE).exclusive
        {
            return None;
        }
        let mut holder = None;
        P::threads().all_ranges(|slot| {
            holder = Self::settled(slot, waiter).map(|_| slot);
            holder.is_none()
        });
        holder
    }

    /// The slot's tag if its holder conflicts with the waiter. Waits out a slot that is trying: it
    /// is about to hold its range, or to withdraw.
    fn settled(slot: &RangeSlot<P>, waiter: &Waiter<P>) -> Option<u64> {
        let (first, last) = (waiter.extent.first(), waiter.extent.last());
        let mut budget = None;
        let mut attempt = 0;
        loop {
            let tag = slot.keeps_away(waiter.claim, first, last)?;
            if !is_trying(tag) {
                return Some(tag);
            }
            let budget =
                budget.get_or_insert_with(|| SpinBudget::new::<P>(P::wake_latency().into(), None));
            if attempt > 0 || !budget.relax::<P>() {
                P::give_way(attempt);
                attempt += 1;
            }
        }
    }

    pub(super) fn conflicts_apart(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>) -> bool {
        self.apart.any(locked, waiter.extent, waiter.access).is_some()
    }

    /// Whether a waiter before this one conflicts with it, but for those that wait for what was
    /// `released`.
    pub(super) fn is_behind(
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

    /// What keeps a waiter from its range. Only during a look. Newcomers that `may_pass` wait for
    /// holders only.
    fn obstacle(
        &self,
        locked: &Locked<'_, P>,
        waiter: &Waiter<P>,
        may_pass: bool,
    ) -> Option<Obstacle<P>> {
        let is_behind = !may_pass && self.is_behind(locked, waiter, None);
        if is_behind || self.conflicts_apart(locked, waiter) {
            return Some(Obstacle::Other);
        }
        self.holder(waiter).map(Obstacle::Slot)
    }

    // ---- before the queue ----

    /// Spins for a range that others hold, past those that sleep, for as long as a wake-up takes:
    /// that never costs more than twice the better of spinning and sleeping. True if it has
    /// entered. The slot is free.
    pub(super) fn spin_to_enter(
        &self,
        slot: &'static RangeSlot<P>,
        waiter: &Waiter<P>,
        deadline: Option<u64>,
    ) -> bool {
        /// Two that try at once may see each other and both withdraw. The queue's lock decides
        /// between those that do so again. Chosen, not measured.
        const COLLISIONS: u32 = 4;
        let mut collisions = 0;
        let mut pauses = Pauses(1);
        let mut obstacle = None;
        let mut budget = SpinBudget::new::<P>(P::wake_latency().into(), deadline);
        while !self.gate.is_in_order() {
            if !obstacle.is_some_and(|slot| waiter.is_kept_away_by(slot)) {
                obstacle = Self::any_in_the_way(waiter);
                if obstacle.is_none() && self.gate.is_open() {
                    if self.enter(slot, waiter.claim, waiter.extent, waiter.access) {
                        return true;
                    }
                    collisions += 1;
                    if collisions == COLLISIONS {
                        return false;
                    }
                }
            }
            if !pauses.pass::<P>(&mut budget) {
                return false;
            }
        }
        false
    }

    /// A slot that keeps the waiter away at this moment.
    fn any_in_the_way(waiter: &Waiter<P>) -> Option<&'static RangeSlot<P>> {
        let mut found = None;
        P::threads().all_ranges(|slot| {
            found = waiter.is_kept_away_by(slot).then_some(slot);
            found.is_none()
        });
        found
    }

    // ---- on the queue ----

    /// Step 2. The waiter's slot is free, or it has none.
    #[cold]
    pub(super) fn wait(&self, waiter: &Waiter<P>, patience: Patience) -> bool {
        if let Known::InSlot(slot) = waiter.place.known() {
            let before = self.filters.sharing();
            slot.announce_waiting(waiter.claim, waiter.extent.first(), waiter.extent.last());
            if waiter.access == Access::Shared {
                P::fence();
                self.filters.share(before);
            }
        }
        let locked = self.queue.lock();
        self.filters.list(waiter.extent);
        self.gate.begin_look(&locked);
        let in_order = self.is_in_order(&locked);
        let Some(obstacle) = self.obstacle(&locked, waiter, !in_order) else {
            self.grant(&locked, waiter);
            self.end_look(&locked);
            return true;
        };
        let Patience::Until(deadline) = patience else {
            self.filters.unlist(waiter.extent);
            self.end_look(&locked);
            return false;
        };
        self.waiters.push(&locked, waiter);
        self.quiet.end(&locked);
        self.end_look(&locked);
        drop(locked);
        // In order, it has not spun yet.
        in_order && self.compete(waiter, Some(obstacle), deadline) || self.sleep(waiter, deadline)
    }

    /// Makes the waiter, which is not on the ring, the holder of its range.
    pub(super) fn grant(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>) {
        match waiter.place.known() {
            Known::InSlot(slot) => {
                if self.waiters.oldest(locked).is_some() {
                    slot.mark(); // Invariant 4.
                }
                let mut cells = Cells::NONE;
                if waiter.access == Access::Exclusive {
                    cells = self.filters.add_exclusive(waiter.extent);
                }
                slot.set(waiter.claim.with_cells(cells.0), HELD);
                self.filters.unlist(waiter.extent);
            }
            Known::Apart(apart) => {
                // SAFETY: it belongs to the waiter, which keeps it while it waits.
                self.apart.insert(locked, unsafe { apart.as_ref() });
            }
        }
    }

    /// Takes the waiter off the ring.
    pub(super) fn take_off(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>) {
        self.waiters.remove(locked, waiter);
        self.quiet.end(locked);
        if waiter.reserved.get() != 0 {
            self.gate.end_reservation(locked);
        }
    }

    /// From now on newcomers that conflict queue behind it, if it has been passed for long enough.
    /// Not if it is behind another waiter: whoever is the first of those that conflict is next.
    pub(super) fn reserve_if_overdue(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>, now: u64) {
        if waiter.reserved.get() == 0
            && self.gate.is_overdue(locked, waiter.since, now)
            && !self.is_behind(locked, waiter, None)
        {
            waiter.reserved.set(1);
            self.gate.reserve(locked);
        }
    }

    /// If no conflict is left, takes the waiter off the ring and grants it its range. Ends the
    /// look.
    fn try_grant(
        &self,
        locked: &Locked<'_, P>,
        waiter: &Waiter<P>,
        is_first: bool,
    ) -> Option<Obstacle<P>> {
        let obstacle = self.obstacle(locked, waiter, is_first);
        if obstacle.is_none() {
            self.take_off(locked, waiter);
            self.grant(locked, waiter);
        }
        self.end_look(locked);
        obstacle
    }

    /// Whether another thread granted its range, and may not have woken it yet.
    fn was_granted(&self, locked: &Locked<'_, P>, waiter: &Waiter<P>) -> bool {
        !waiter.links.is_linked(locked)
    }

    /// Spins for its range, like a newcomer. True if the waiter has it.
    fn compete(
        &self,
        waiter: &Waiter<P>,
        found: Option<Obstacle<P>>,
        deadline: Option<u64>,
    ) -> bool {
        let mut obstacle = found;
        let mut pauses = Pauses(1);
        let mut budget = SpinBudget::new::<P>(P::wake_latency().into(), deadline);
        while !waiter.is_granted() {
            let waits = match obstacle {
                Some(Obstacle::Slot(slot)) => waiter.is_kept_away_by(slot),
                Some(Obstacle::Other) => true,
                None => false,
            };
            if !waits {
                obstacle = Self::any_in_the_way(waiter).map(Obstacle::Slot);
                let locked = if obstacle.is_none() { self.queue.try_lock() } else { None };
                if let Some(locked) = locked {
                    if self.was_granted(&locked, waiter) {
                        drop(locked);
                        waiter.await_grant();
                        return true;
                    }
                    self.gate.begin_look(&locked);
                    // It was called, or has found a holder only: nobody before it conflicts, and
                    // nobody gets before it.
                    obstacle = self.try_grant(&locked, waiter, true);
                    if obstacle.is_none() {
                        return true;
                    }
                }
            }
            if !pauses.pass::<P>(&mut budget) {
                return false;
            }
        }
        true
    }

    /// True if the waiter has its range, false if the deadline passed.
    fn sleep(&self, waiter: &Waiter<P>, deadline: Option<u64>) -> bool {
        // When it looks whether it has been passed for long enough, as perhaps nobody leaves who
        // would. Once more in case somebody was handed a range just before; from then on, whoever
        // lets it be the first looks.
        let mut looks =
            [HANDOFF_AFTER_NS, 2 * HANDOFF_AFTER_NS].map(|after| waiter.since + after).into_iter();
        let mut look = looks.next();
        loop {
            if self.prepare_to_sleep(waiter) {
                return true;
            }
            loop {
                // Acquire pairs with the Release in `Admitted::wake`.
                match waiter.state.load(Acquire) {
                    GRANTED => return true,
                    AWAKE => break,
                    _ => {}
                }
                let now = P::now();
                if deadline.is_some_and(|deadline| now >= deadline) {
                    return !self.give_up(waiter);
                }
                if look.is_some_and(|look| now > look) {
                    look = looks.next();
                    self.look_whether_overdue(waiter);
                    continue;
                }
                let alarm = [deadline, look.map(|look| look + 1)].into_iter().flatten().min();
                P::park(&waiter.state, ASLEEP, alarm);
            }
            if self.compete(waiter, None, deadline) {
                return true;
            }
        }
    }

    fn look_whether_overdue(&self, waiter: &Waiter<P>) {
        let locked = self.queue.lock();
        if !self.was_granted(&locked, waiter) {
            self.reserve_if_overdue(&locked, waiter, P::now());
            self.end_look(&locked);
        }
    }

    /// Makes sure that those it conflicts with will serve it (invariant 4). True if the waiter has
    /// its range.
    fn prepare_to_sleep(&self, waiter: &Waiter<P>) -> bool {
        let locked = self.queue.lock();
        if self.was_granted(&locked, waiter) {
            drop(locked);
            waiter.await_grant();
            return true;
        }
        // Relaxed: others read it under the queue's lock.
        waiter.state.store(ASLEEP, Relaxed);
        self.quiet.end(&locked);
        self.reserve_if_overdue(&locked, waiter, P::now());
        self.gate.begin_look(&locked);
        // Marked first: a holder that releases in between no longer conflicts.
        let marked = waiter.access == Access::Exclusive && Self::mark_sharing_holders(waiter);
        if self.try_grant(&locked, waiter, false).is_none() {
            return true;
        }
        if !marked {
            return false;
        }
        drop(locked);
        // Pairs with the barrier in `RangeSlot::clear`: a holder that does not see the mark has
        // released its range already.
        if P::is_asymmetric() {
            P::asymmetric_heavy();
        } else {
            P::fence();
        }
        // Those that have come since then see the waiter, and mark themselves.
        if self.holder(waiter).is_some() {
            return false;
        }
        let locked = self.queue.lock();
        if self.was_granted(&locked, waiter) {
            return false;
        }
        self.gate.begin_look(&locked);
        self.try_grant(&locked, waiter, false).is_none()
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
            waiter.await_grant();
            return false;
        }
        self.take_off(&locked, waiter);
        self.filters.unlist(waiter.extent);
        self.end_look(&locked);
        drop(locked);
        self.serve(waiter.extent, false);
        true
    }
}
