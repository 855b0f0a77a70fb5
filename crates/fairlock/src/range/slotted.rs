//! The range lock users get: holders in slots of their threads, waiters in one queue.
//!
//! ```text
//!   thread 1: [ lock 7, 0..=4095, held shared ]        slots, `slots/range.rs`
//!   thread 2: [ lock 7, 8192.., waits exclusive ]
//!
//!   lock 7: filters ─ is there anything to look at?     `filters.rs`
//!           queue   ─ ► waiter ► waiter                 in the order of arrival
//!                   ─ those that found no free slot     `tree.rs`
//! ```
//!
//! 1. A newcomer writes its range into a slot of its own thread as *trying*. If it wants to be
//!    alone, it also raises the filters of its range. After a full fence it looks at the filters: if
//!    nobody is listed there it looks, if there are exclusive holders or it wants to be alone, at the
//!    slots of all threads. If nobody is in its way it *holds* its range. So shared holders write
//!    nothing that others read, and exclusive ones nothing but the filters.
//! 2. Otherwise it says that it *waits*, takes the queue's lock, and is *listed* in the filters, so
//!    that from now on every newcomer comes to the queue's lock, too. It looks again, waiting out
//!    those that are still trying: they have either got their range, or they come to the queue's
//!    lock and are behind. If somebody is in its way it queues.
//! 3. Whoever leaves, and sees that somebody waits, takes the queue's lock and lets in whoever can
//!    come in now: their slots become held, and then each of them is woken, and nobody else. Shared
//!    holders do not look at the filters: a waiter that goes to sleep *marks* their slots.
//!
//! Why it is right: whoever comes in by its slot alone first announces, then looks; whoever is listed
//! first raises the filters, then looks at the slots. With a full fence between on both sides, of two
//! whose ranges conflict at least one sees the other (Dekker).
//!
//! Who is next: a waiter comes in as soon as no holder and no waiter before it is in its way; with
//! one exception. When an exclusive range is given up, those that wait to share come in past all
//! exclusive waiters that waited for that range as well.
//!
//! Invariants
//! 1. A slot becomes held only by its thread after it looked in step 1, or under the queue's lock.
//!    Under the queue's lock, nobody who is listed comes in past step 1 unseen.
//! 2. The filters are raised for everybody listed: from before it first looks, until it holds a slot
//!    or has given up; without a slot until it has left. They are raised for every exclusive holder
//!    of a slot, until its slot is cleared.
//! 3. A waiter is on the ring from the moment it finds somebody in its way until it is let in or
//!    gives up, both under the queue's lock. It is let in with its slot becoming held in the same
//!    critical section. `IN` is the last access to it by others.
//! 4. While somebody is on the ring, somebody who is in its way will come by: a listed holder and
//!    an exclusive one look when they leave; a shared one looks if its slot is marked, and is
//!    marked unless the waiter is awake and looks at it itself; a waiter before it looks when it
//!    leaves, as a holder (marked when it is let in while others wait) or giving up.
//! 5. What a waiter waits for was there before it, or came in by the exception.

use core::hint::cold_path;
use core::marker::PhantomData;
use core::num::NonZero;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{Acquire, Release};

use super::filters::{Cause, Filters};
use super::tree::{Interval, OnTree, Tree};
use super::{Access, Extent, Patience, RawRangeLock};
use crate::platform::{AtomicCell, Os, Platform};
use crate::slots::HasRecords;
use crate::slots::range::{Claim, HELD, RangeSlot, TRYING, WAITING, is_shared};
use crate::spin_budget::SpinBudget;
use crate::wait_queue::{Links, Locked, OnRing, QueueLock, Ring};

/// The lock under [`RangeLock`](super::RangeLock).
///
/// `STRIPES` cache lines keep exclusive holders of different parts apart; positions belong to the
/// same part if they lie in the same block of `2^GRAIN`. Ranges of more than a few blocks are dearer.
///
/// # Guarantees
/// * Ranges that do not overlap, and those that are shared, never wait for each other, but for a few
///   instructions.
/// * An exclusive waiter is passed by nobody who came later, with one exception: when a range that
///   was exclusive and overlaps its own is given up, by those that wait to share at that moment. So
///   it is passed at most once for each exclusive range that was before it, by whoever waits then.
/// * A shared waiter waits for no exclusive range that was asked for later.
/// * A try fails only if somebody holds a range that is in its way, or waits for one.
/// * Only those are woken that have their range; but threads that come to the queue at the same
///   moment may sleep on its own lock, for as long as somebody looks through it.
/// * Any number of ranges can be held. Once a million of many blocks each were exclusive, waited for or
///   held without a slot at the same time, those that come later look at what they could leave out.
///
/// # Memory
/// 1152 bytes with 16 stripes, or two cache lines and one for each stripe. A thread has slots for four
/// ranges, of all locks together, in two cache lines of its record. Each range that it holds beyond
/// that is a node of 80 bytes on the heap; otherwise nothing is allocated.
#[repr(C)]
pub struct Slotted<P: Platform = Os, const STRIPES: usize = 16, const GRAIN: u32 = 16> {
    filters: Filters<P, STRIPES, GRAIN>,
    queue: QueueLock<P>,
    waiters: Ring<P, Waiter<P>>,
    apart: Tree<P, Apart<P>>,
}

// SAFETY: the ring and the tree are touched only by the holder of the queue's lock.
unsafe impl<P: Platform, const S: usize, const G: u32> Sync for Slotted<P, S, G> {}
// SAFETY: what can be moved is borrowed by nobody, so nobody waits; what is held apart is on the heap.
unsafe impl<P: Platform, const S: usize, const G: u32> Send for Slotted<P, S, G> {}

const _: () = assert!(size_of::<Slotted>() <= 1152);
const _: () = assert!(size_of::<Apart<Os>>() <= 80);

/// A range that is held, or about to be, without a slot.
struct Apart<P: Platform>(Interval<P>);

impl<P: Platform> OnTree<P> for Apart<P> {
    fn interval(&self) -> &Interval<P> {
        &self.0
    }
}

/// Where a holder is known: a slot, or what is on the tree of those apart, then with the address's
/// lowest bit set. One word, so that guards are as small as they can be.
struct Place<P: Platform>(NonNull<()>, PhantomData<*const RangeSlot<P>>);

enum Known<P: Platform> {
    InSlot(&'static RangeSlot<P>),
    Apart(NonNull<Apart<P>>),
}

impl<P: Platform> Clone for Place<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Platform> Copy for Place<P> {}

impl<P: HasRecords> Place<P> {
    #[inline(always)]
    fn slot(slot: &'static RangeSlot<P>) -> Self {
        Place(NonNull::from(slot).cast(), PhantomData)
    }

    fn apart(apart: NonNull<Apart<P>>) -> Self {
        Place(apart.cast().map_addr(|address| address | 1), PhantomData)
    }

    #[inline(always)]
    fn known(self) -> Known<P> {
        if self.0.addr().get() & 1 == 0 {
            // SAFETY: made by `slot`, as all slots are aligned.
            return Known::InSlot(unsafe { self.0.cast().as_ref() });
        }
        cold_path();
        let address = |tagged: NonZero<usize>| NonZero::new(tagged.get() & !1).expect("aligned");
        Known::Apart(self.0.map_addr(address).cast())
    }
}

/// What a guard remembers.
pub struct SlottedHold<P: Platform>(Place<P>);

// SAFETY: slots are atomics, and what is apart is touched under the queue's lock only.
unsafe impl<P: Platform> Send for SlottedHold<P> {}
// SAFETY: a shared reference to it gives access to nothing.
unsafe impl<P: Platform> Sync for SlottedHold<P> {}

/// Somebody who wants a range, on its own stack.
struct Waiter<P: Platform> {
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
struct Admitted<P: Platform> {
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

    fn tell(self) {
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
    fn new(claim: Claim, extent: Extent, access: Access, place: Place<P>) -> Self {
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
    /// How many threads are in the queue at this moment: for diagnosis.
    pub fn waiting(&self) -> usize {
        let locked = self.queue.lock();
        self.waiters.iter(&locked).count()
    }

    /// Step 1: by a slot, seeing nobody. The slot is left as it is if this fails.
    #[inline(always)]
    fn enter(&self, slot: &RangeSlot<P>, claim: Claim, extent: Extent, access: Access) -> bool {
        let (first, last) = (extent.first(), extent.last());
        if access == Access::Exclusive {
            slot.announce(claim, first, last);
            self.filters.raise(extent, Cause::Exclusive);
            P::fence_after_update();
        } else {
            slot.announce_fenced(claim, first, last);
        }
        let seen = self.filters.look(extent);
        if seen.listed {
            return false;
        }
        let must_look = access == Access::Exclusive || seen.exclusive;
        if must_look && !self.sees_nobody(slot, claim, extent) {
            return false;
        }
        // Release as in `RangeSlot::set`.
        slot.set(claim, HELD);
        true
    }

    /// Whether no slot but the own one is in the way, not even one that is trying.
    fn sees_nobody(&self, own: &RangeSlot<P>, claim: Claim, extent: Extent) -> bool {
        P::threads().all_ranges(|slot| {
            ptr::eq(slot, own) || slot.keeps_away(claim, extent.first(), extent.last()).is_none()
        })
    }

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
    fn wait(&self, waiter: &Waiter<P>, patience: Patience) -> bool {
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
    fn admit(&self, locked: &Locked<'_, P>, left: Extent, exclusive: bool) -> Admitted<P> {
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
    fn tell(&self, left: Extent, exclusive: bool) {
        let locked = self.queue.lock();
        let admitted = self.admit(&locked, left, exclusive);
        drop(locked);
        admitted.tell();
    }

    #[cold]
    fn acquire_apart(
        &self,
        claim: Claim,
        extent: Extent,
        access: Access,
        patience: Patience,
    ) -> Option<SlottedHold<P>> {
        let apart = NonNull::from(Box::leak(Box::new(Apart(Interval::new(extent, access)))));
        let place = Place::apart(apart);
        if self.wait(&Waiter::new(claim, extent, access, place), patience) {
            return Some(SlottedHold(place));
        }
        free(apart);
        None
    }

    #[cold]
    fn acquire_by_slot(
        &self,
        slot: &'static RangeSlot<P>,
        claim: Claim,
        extent: Extent,
        access: Access,
        patience: Patience,
    ) -> Option<SlottedHold<P>> {
        let place = Place::slot(slot);
        if self.wait(&Waiter::new(claim, extent, access, place), patience) {
            return Some(SlottedHold(place));
        }
        slot.clear_unseen();
        None
    }

    #[cold]
    fn release_apart(&self, apart: NonNull<Apart<P>>, extent: Extent, exclusive: bool) {
        let locked = self.queue.lock();
        // SAFETY: the hold, which ends here, kept it.
        self.apart.remove(&locked, unsafe { apart.as_ref() });
        self.filters.lower(extent, Cause::Listed);
        let admitted = self.admit(&locked, extent, exclusive);
        drop(locked);
        free(apart);
        admitted.tell();
    }
}

/// It is not on the tree any more.
fn free<P: Platform>(apart: NonNull<Apart<P>>) {
    // SAFETY: it came from a box, and the only one who knows it is done with it.
    drop(unsafe { Box::from_raw(apart.as_ptr()) });
}

// SAFETY: see the module's "why it is right"; a release is a Release on the slot or of the queue's
// lock, whoever comes in later has acquired it there or by the filters.
unsafe impl<P: HasRecords, const STRIPES: usize, const GRAIN: u32> RawRangeLock
    for Slotted<P, STRIPES, GRAIN>
{
    type Platform = P;
    type Hold = SlottedHold<P>;
    const NEW: Self = Slotted {
        filters: Filters::NEW,
        queue: QueueLock::NEW,
        waiters: Ring::EMPTY,
        apart: Tree::EMPTY,
    };

    #[inline(always)]
    fn acquire(
        &self,
        extent: Extent,
        access: Access,
        patience: Patience,
    ) -> Option<SlottedHold<P>> {
        let claim = Claim::new(self.filters.number(), access == Access::Exclusive);
        let Some(slot) = P::thread().and_then(|thread| thread.free_range()) else {
            return self.acquire_apart(claim, extent, access, patience);
        };
        if self.enter(slot, claim, extent, access) {
            return Some(SlottedHold(Place::slot(slot)));
        }
        cold_path();
        self.acquire_by_slot(slot, claim, extent, access, patience)
    }

    unsafe fn downgrade(&self, extent: Extent, hold: &mut SlottedHold<P>) {
        match hold.0.known() {
            Known::InSlot(slot) => {
                // Before others can wait for a shared holder; to be marked in vain does little harm.
                slot.mark();
                slot.set(Claim::new(self.filters.number(), false), HELD);
                self.filters.lower(extent, Cause::Exclusive);
                P::fence_after_update();
                if self.filters.look(extent).listed {
                    self.tell(extent, true);
                }
            }
            Known::Apart(apart) => {
                let locked = self.queue.lock();
                // SAFETY: the hold keeps it.
                self.apart.set_shared(&locked, unsafe { apart.as_ref() });
                let admitted = self.admit(&locked, extent, true);
                drop(locked);
                admitted.tell();
            }
        }
    }

    #[inline(always)]
    unsafe fn release(&self, extent: Extent, access: Access, hold: SlottedHold<P>) {
        let exclusive = access == Access::Exclusive;
        let must_tell = match hold.0.known() {
            Known::InSlot(slot) if exclusive => {
                slot.clear_unseen();
                self.filters.lower(extent, Cause::Exclusive);
                // Pairs with the fence of those that are listed before they look at slots.
                P::fence_after_update();
                self.filters.look(extent).listed
            }
            Known::InSlot(slot) => slot.clear(),
            Known::Apart(apart) => return self.release_apart(apart, extent, exclusive),
        };
        if must_tell {
            self.tell(extent, exclusive);
        }
    }
}
