//! The range lock that users get: holders in slots of their threads, waiters in one queue.
//!
//! # Guarantees
//! Those of [`Slotted`]: disjoint and shared ranges never wait for each other; an exclusive waiter is passed
//! at most once for each exclusive range that was before it; nothing of an acquisition that fails remains.
//!
//! # How it works
//! ```text
//!   thread 1: [ lock 7, 0..=4095, held shared ]        slots, `slots/range.rs`
//!   thread 2: [ lock 7, 8192.., waits exclusive ]
//!
//!   lock 7: filters ─ is there anything to look at?     `filters.rs`
//!           queue   ─ ► waiter ► waiter                 in the order of arrival, `waiting.rs`
//!                   ─ holders that found no free slot   `tree.rs`
//! ```
//!
//! 1. A newcomer writes its range into a slot of its own thread as *trying*. For exclusive access it also
//!    raises the filters of its range. After a full fence it looks at the filters: if nobody is listed
//!    there, it looks at the slots of all threads, where there are exclusive holders or it wants exclusive
//!    access itself. If it finds no conflict, it *holds* its range. So shared holders write nothing that
//!    others read, and exclusive ones nothing but the filters.
//! 2. Otherwise its slot says that it *waits*; it takes the queue's lock and is *listed* in the filters, so
//!    that from now on every newcomer comes to the queue's lock, too. It looks again, and waits out those
//!    that are still trying: they either get their range, or come to the queue's lock and queue behind it.
//!    If it still finds a conflict, it queues.
//! 3. A holder that releases its range, and sees that somebody waits, takes the queue's lock and hands over
//!    to every waiter whose conflicts are gone: their slots become held, and then each of them is woken, and
//!    nobody else. Shared holders do not look at the filters: a waiter that goes to sleep *marks* their slots.
//!
//! A waiter gets its range as soon as it conflicts with no holder and with no waiter before it; with one
//! exception. The release of an exclusive range admits those that wait to share some of it past all
//! exclusive waiters that waited for that range as well.
//!
//! # Why it is right
//! A newcomer that acquires by its slot alone first announces itself, then looks; a listed one first raises
//! the filters, then looks at the slots. With a full fence between on both sides, of two whose ranges
//! conflict at least one sees the other (Dekker).
//!
//! Invariants
//! 1. A slot becomes held only by its thread after it looked in step 1, or under the queue's lock. While
//!    the queue's lock is held, nobody that conflicts with a listed range passes step 1.
//! 2. The filters are raised for every listed range: from before its owner first looks, until it holds a
//!    slot or has given up; without a slot, until it has released. They are raised for every exclusive
//!    holder of a slot, until its slot is cleared.
//! 3. A waiter is on the ring from the moment it finds a conflict until it is granted its range or gives up,
//!    both under the queue's lock. It is taken off the ring and its slot becomes held in the same critical
//!    section. Storing `GRANTED` is the last access to it by others.
//! 4. While a waiter is on the ring, some thread that it conflicts with will serve it: a listed holder and
//!    an exclusive one look when they release; a shared one looks if its slot is marked, and it is marked
//!    unless the waiter is awake and watches the slot itself; a waiter before it looks when it releases
//!    its range (its slot is marked when it is granted while others wait) or when it gives up.
//! 5. What a waiter waits for was there before it, or was admitted by the exception.
//!
//! # What it costs
//! A shared range: one locked instruction, on the thread's own line. An exclusive one: a locked instruction
//! for each block to acquire and one to release, and a look at one or two lines of every thread. A waiter
//! that sleeps behind shared holders pays a barrier on all CPUs first.

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
/// same part if they lie in the same block of `2^GRAIN`. Ranges of more than four blocks are dearer.
///
/// # Guarantees
/// * Ranges that do not overlap, and those that are shared, never wait for each other, but for a few
///   instructions.
/// * No newcomer passes an exclusive waiter, with one exception: the release of an exclusive range that
///   overlaps its own admits those that wait for shared access at that moment. So it is passed at most
///   once for each exclusive range that was before it, and only by threads that wait then.
/// * A shared waiter waits for no exclusive range that was asked for later.
/// * A try fails only if somebody holds a range that conflicts with it, or waits for one.
/// * Only threads that got their range are woken; but threads that come to the queue at the same
///   moment may sleep on its own lock, for as long as another one searches the queue.
/// * Any number of ranges can be held. Once a million ranges of many blocks each were exclusive, waited
///   for or held without a slot at the same time, the lock stays correct, but later acquisitions check
///   slots and the queue that they could have skipped.
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
// SAFETY: a lock that is moved is borrowed by nobody, so nobody waits; ranges held apart are on the heap.
unsafe impl<P: Platform, const S: usize, const G: u32> Send for Slotted<P, S, G> {}

const _: () = assert!(size_of::<Slotted>() <= 1152);

impl<P: HasRecords, const STRIPES: usize, const GRAIN: u32> Slotted<P, STRIPES, GRAIN> {
    /// How many threads wait in the queue at this moment: for diagnosis.
    pub fn waiting(&self) -> usize {
        let locked = self.queue.lock();
        self.waiters.iter(&locked).count()
    }

    /// Step 1: acquires by a slot if no conflict is seen. If this fails, the slot stays as it is.
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
        if must_look && !self.sees_no_conflict(slot, claim, extent) {
            return false;
        }
        // Release as in `RangeSlot::set`.
        slot.set(claim, HELD);
        true
    }

    /// Whether no slot but the own one conflicts, not even one that is trying.
    fn sees_no_conflict(&self, own: &RangeSlot<P>, claim: Claim, extent: Extent) -> bool {
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
        // SAFETY: the hold, which ends here, kept it alive and on the tree.
        self.apart.remove(&locked, unsafe { apart.as_ref() });
        self.filters.lower(extent, Cause::Listed);
        let admitted = self.admit(&locked, extent, exclusive);
        drop(locked);
        free(apart);
        admitted.wake();
    }
}

// SAFETY: conflicting ranges are never held together by invariants 1 and 2, see "Why it is right" above. A
// release of a range is a Release on its slot or of the queue's lock; the next conflicting holder has done
// the Acquire there, or on the filters.
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
                // Marked before others can wait for a shared holder; a mark in vain does little harm.
                slot.mark();
                slot.set(Claim::new(self.filters.number(), false), HELD);
                self.filters.lower(extent, Cause::Exclusive);
                P::fence_after_update();
                if self.filters.look(extent).listed {
                    self.serve(extent, true);
                }
            }
            Known::Apart(apart) => {
                let locked = self.queue.lock();
                // SAFETY: the hold keeps it alive and on the tree.
                self.apart.set_shared(&locked, unsafe { apart.as_ref() });
                let admitted = self.admit(&locked, extent, true);
                drop(locked);
                admitted.wake();
            }
        }
    }

    #[inline(always)]
    unsafe fn release(&self, extent: Extent, access: Access, hold: SlottedHold<P>) {
        let exclusive = access == Access::Exclusive;
        let must_serve = match hold.0.known() {
            Known::InSlot(slot) if exclusive => {
                slot.clear_unseen();
                self.filters.lower(extent, Cause::Exclusive);
                // Pairs with the fence between being listed and looking at slots, in `wait`.
                P::fence_after_update();
                self.filters.look(extent).listed
            }
            Known::InSlot(slot) => slot.clear(),
            Known::Apart(apart) => return self.release_apart(apart, extent, exclusive),
        };
        if must_serve {
            self.serve(extent, exclusive);
        }
    }
}
