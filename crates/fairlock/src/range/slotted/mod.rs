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

mod place;
mod waiting;

use core::hint::cold_path;
use core::ptr::{self, NonNull};

pub use place::SlottedHold;

use super::filters::{Cause, Filters};
use super::tree::{Interval, Tree};
use super::{Access, Extent, Patience, RawRangeLock};
use crate::platform::{Os, Platform};
use crate::slots::HasRecords;
use crate::slots::range::{Claim, HELD, RangeSlot};
use crate::wait_queue::{QueueLock, Ring};
use place::{Apart, Known, Place, free};
use waiting::Waiter;

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
