//! The range lock that users get: holders in slots of their threads, waiters in one queue.
//!
//! # Guarantees
//! Those of [`Slotted`]: disjoint and shared ranges never wait for each other; a waiter is passed
//! by threads that run already for a bounded time; nothing of an acquisition that fails remains.
//!
//! # How it works
//! ```text
//!   thread 1: [ lock 7, 0..=4095, held shared ]        slots, `slots/range.rs`
//!   thread 2: [ lock 7, 8192.., waits exclusive ]
//!
//!   lock 7: filters ─ is there anything to look at?     `filters.rs`
//!           gate    ─ may newcomers pass waiters?       `gate.rs`
//!           queue   ─ ► waiter ► waiter                 in the order of arrival, `waiting.rs`, `serving.rs`
//!                   ─ holders that found no free slot   `tree.rs`
//! ```
//!
//! 1. A newcomer writes its range into a slot of its own thread as *trying*. For exclusive access
//!    it also raises the filters of its range; for shared access it makes sure that the filters say
//!    that ranges are shared. After a full fence it looks at the filters: if a thread is listed
//!    there, the gate must be open. Then it looks at the slots of all threads, if an exclusive
//!    holder may overlap, or if it wants exclusive access itself and ranges are shared. If it finds
//!    no conflict, it *holds* its range. So shared holders write nothing that others read, and
//!    exclusive ones nothing but the filters. A newcomer that finds a conflict withdraws, and tries
//!    again when that seems gone, for as long as a wake-up takes.
//! 2. Then its slot says that it *waits*; it takes the queue's lock and is *listed* in the filters.
//!    It *looks* again: it closes the gate, so that newcomers that would see it listed withdraw,
//!    and waits out those that are still trying. If it still finds a conflict, it queues, *marks*
//!    the slots of shared holders, and sleeps.
//! 3. A holder that releases its range, and sees that somebody is listed or its slot marked, takes
//!    the queue's lock. As long as the gate is open it wakes the waiters whose conflicts are gone,
//!    and these *compete*: whoever runs takes the range. So it is not idle for as long as a wake-up
//!    takes. While all that wait for a range are awake already, or behind others, that is noted
//!    (`gate.rs`), and releases within it skip the queue.
//! 4. The first of those that conflict that has waited for `HANDOFF_AFTER_NS` gets a *reservation*,
//!    by a release that concerns it or by itself: it sleeps with that time as its alarm. While
//!    there is one, the gate is closed to newcomers that see somebody listed: they queue, and
//!    ranges are handed out in order. The release of a range hands over to every waiter that
//!    conflicts with no holder and with no waiter before it: their slots become held, and then each
//!    of them is woken; with one exception. The release of an exclusive range admits those that
//!    wait to share some of it past all exclusive waiters that waited for that range as well.
//!    Holders without a slot close the gate, too, as only the holder of the queue's lock can see
//!    them.
//!
//! # Why it is right
//! A newcomer that acquires by its slot alone first announces itself, then looks; a thread that
//! looks on behalf of the queue first raises the filters and closes the gate, then looks at the
//! slots. With a full fence between on both sides, of two whose ranges conflict at least one sees
//! the other (Dekker).
//!
//! Invariants
//! 1. A slot becomes held only by its thread after it looked in step 1, or during a look under the
//!    queue's lock. During a look, and while the gate is closed, nobody that conflicts with a
//!    listed range passes step 1.
//! 2. The filters are raised for every listed range: from before its owner first looks, until it
//!    holds a slot or has given up; without a slot, until it has released. They are raised for
//!    every exclusive holder of a slot, until its slot is cleared. They say that ranges are shared
//!    while any slot has a shared range, held, tried or waited for, whose thread has looked.
//! 3. A waiter is on the ring from the moment it finds a conflict until it is granted its range or
//!    gives up, both under the queue's lock. It is taken off the ring and its slot becomes held in
//!    the same critical section. If another thread does that, storing `GRANTED` is the last access
//!    to it by others.
//! 4. While a waiter on the ring sleeps, some thread will serve it, or wake it: an exclusive holder
//!    that it conflicts with, or one without a slot, looks when it releases. A shared one looks if
//!    its slot is marked: a waiter marks those it finds before it sleeps; one that comes later sees
//!    the waiter listed and marks its own, or is granted its range by the queue, which marks it. A
//!    waiter before it serves those behind it when it releases its range or gives up. Who is woken,
//!    or was never asleep, looks once more under the queue's lock before it sleeps.
//! 5. A release skips the queue only if nobody who sleeps waits for a holder there (`Quiet`).
//!    Whoever goes to sleep ends that first, and so does whoever leaves the ring.
//! 6. While a reservation exists the gate is closed. So whoever has one is passed by nobody who
//!    comes later, but for the exception.
//!
//! # What it costs
//! A shared range: one locked instruction, on the thread's own line. An exclusive one: a locked
//! instruction for each block to acquire and one to release. While ranges are shared as well, also
//! a look at one line of every thread, or two of those that have used several slots. A waiter that
//! sleeps behind shared holders pays a barrier on all CPUs first.

mod gate;
mod place;
mod serving;
mod waiting;

use core::ptr::{self, NonNull};

pub use place::SlottedHold;

use super::filters::{Cells, Filters, Seen};
use super::tree::{Interval, Tree};
use super::{Access, Extent, Patience, RawRangeLock};
use crate::platform::{Os, Platform, cold_path};
use crate::slots::HasRecords;
use crate::slots::range::{self, Claim, HELD, RangeSlot};
use crate::wait_queue::{QueueLock, Ring};
use gate::{Gate, Quiet};
use place::{Apart, Known, Place, free};
use waiting::Waiter;

/// The lock under [`RangeLock`](super::RangeLock).
///
/// `STRIPES` cache lines keep exclusive holders of different parts apart; positions belong to the
/// same part if they lie in the same block of `2^GRAIN`, which is 4,096. Longer ranges have blocks
/// of 16 times that, and ranges of more than four of these are dearer.
///
/// # Guarantees
/// * Ranges that do not overlap, and those that are shared, never wait for each other, but for a
///   few instructions.
/// * Threads that run may take a range past those that sleep for it: the lock is in use during
///   wake-ups, and a thread that comes right back pays for none. But they pass a waiter only for a
///   bounded time. Of those that conflict with each other the first is passed until it has waited
///   for [`HANDOFF_AFTER_NS`](crate::policy::HANDOFF_AFTER_NS), 4 ms, or for 0.5 ms since the last
///   range was handed over like that, whichever is later. Then newcomers that conflict queue behind
///   it, as soon as it runs, or a range is released for which it waits. So a wide range is not kept
///   away by narrow ones that come and go.
/// * From then on nobody who comes later passes it, with one exception: the release of an exclusive
///   range that overlaps its own admits those that wait for shared access at that moment. So it is
///   passed at most once for each exclusive range that was before it, and only by threads that wait
///   then.
/// * A shared waiter waits for no exclusive waiter that came later.
/// * A try fails only if somebody holds a range that conflicts with it, or waits for one.
/// * Only threads that could have their range are woken. They may find that another was faster, and
///   threads that come to the queue at the same moment may sleep on its own lock, for as long as
///   another one searches the queue.
/// * Any number of ranges can be held. Those without a slot (see below) are handed out in order
///   while any exists: the lock then costs waiters a wake-up for each range. Once a million ranges
///   of many blocks each were exclusive, waited for or held without a slot at the same time, the
///   lock stays correct, but later acquisitions check slots and the queue that they could have
///   skipped.
///
/// # Memory
/// 1152 bytes with 16 stripes: 18 cache lines.
///
/// | lines | what | why |
/// |---|---|---|
/// | 1 | the lock's number, how many wide ranges there are, and whether ranges are shared (40 bytes) | all newcomers read it; no line that waiters write may contain it |
/// | 16 | a stripe each: the exclusive and listed ranges of some blocks (64 bytes) | exclusive holders of different blocks write different lines |
/// | 1 | the queue, its lock, the tree's root, the gate (64 bytes) | waiters write it, disjoint holders never touch it |
///
/// With fewer stripes exclusive holders of different blocks share one more often. For many locks of
/// which each has few users, `Slotted<Os, 2>` takes 256 bytes.
///
/// A thread has slots for four ranges, of all locks together, in two cache lines of its own. Each
/// range that it holds beyond that is a node of 80 bytes on the heap; otherwise nothing is
/// allocated.
#[repr(C)]
pub struct Slotted<P: Platform = Os, const STRIPES: usize = 16, const GRAIN: u32 = 12> {
    filters: Filters<P, STRIPES, GRAIN>,
    queue: QueueLock<P>,
    waiters: Ring<P, Waiter<P>>,
    apart: Tree<P, Apart<P>>,
    gate: Gate<P>,
    quiet: Quiet<P>,
}

// SAFETY: the ring and the tree are touched only by the holder of the queue's lock.
unsafe impl<P: Platform, const S: usize, const G: u32> Sync for Slotted<P, S, G> {}
// SAFETY: a lock that is moved is borrowed by nobody, so nobody waits; ranges held apart are on the
// heap.
unsafe impl<P: Platform, const S: usize, const G: u32> Send for Slotted<P, S, G> {}

const _: () = assert!(size_of::<Slotted>() <= 1152);

/// How often a slot is used until its thread, which has to search all slots anyway, looks whether
/// any range is still shared. More: exclusive holders search all slots in vain. Fewer: the line that all newcomers
/// read is written more often where shared and exclusive ranges come by turns. Chosen, not
/// measured.
const fn searches_until_sharing_ends<P: Platform>() -> u32 {
    // A checker, which has few rounds, has few searches.
    if P::ROUNDS_BEFORE_SLEEP > 1 { 64 } else { 1 }
}

impl<P: HasRecords, const STRIPES: usize, const GRAIN: u32> Slotted<P, STRIPES, GRAIN> {
    /// How many threads wait in the queue at this moment: for diagnosis.
    pub fn waiting(&self) -> usize {
        let locked = self.queue.lock();
        self.waiters.iter(&locked).count()
    }

    /// Whether ranges are handed out in order at this moment, as somebody has been passed for long
    /// enough: for diagnosis.
    pub fn hands_out_in_order(&self) -> bool {
        self.gate.is_in_order()
    }

    /// Step 1: acquires by a slot if no conflict is seen. If this fails, the slot is free.
    #[inline(always)]
    fn enter(&self, slot: &RangeSlot<P>, claim: Claim, extent: Extent, access: Access) -> bool {
        let (first, last) = (extent.first(), extent.last());
        let mut cells = Cells::NONE;
        if access == Access::Exclusive {
            slot.announce(claim, first, last);
            cells = self.filters.add_exclusive(extent);
            P::fence_after_update();
        } else {
            let before = self.filters.sharing();
            slot.announce_fenced(claim, first, last);
            self.filters.share(before);
        }
        if !self.is_free(slot, claim, extent, access, cells) {
            self.withdraw(slot, extent, access, cells);
            return false;
        }
        // Release as in `RangeSlot::set`.
        slot.set(claim.with_cells(cells.0), HELD);
        true
    }

    /// Whether a newcomer that has announced itself conflicts with no holder, and may pass those
    /// that wait.
    #[inline(always)]
    fn is_free(
        &self,
        slot: &RangeSlot<P>,
        claim: Claim,
        extent: Extent,
        access: Access,
        cells: Cells,
    ) -> bool {
        let mut seen = self.filters.look(extent, cells);
        if seen.listed {
            match self.look_past_waiters(slot, extent, access, cells) {
                Some(again) => seen = again,
                None => return false,
            }
        }
        // After the look: a range that became shared meanwhile says so before it is no longer
        // exclusive.
        let must_look = seen.exclusive || access == Access::Exclusive && self.filters.is_shared();
        !must_look || self.sees_no_conflict(slot, claim, extent)
    }

    /// What a newcomer that finds somebody listed may go by; none if it must not pass.
    #[cold]
    fn look_past_waiters(
        &self,
        slot: &RangeSlot<P>,
        extent: Extent,
        access: Access,
        cells: Cells,
    ) -> Option<Seen> {
        if !self.gate.is_open() {
            return None;
        }
        if access == Access::Shared {
            slot.mark(); // Invariant 4.
        }
        // Again, as somebody may have been let in before the gate opened.
        Some(self.filters.look(extent, cells))
    }

    /// Takes back an attempt to [`enter`](Self::enter) that failed.
    #[cold]
    fn withdraw(&self, slot: &RangeSlot<P>, extent: Extent, access: Access, cells: Cells) {
        slot.clear_unseen();
        if access == Access::Exclusive {
            self.filters.remove_exclusive(extent, cells);
        }
    }

    /// Whether no slot but the own one conflicts, not even one that is trying.
    #[inline(always)]
    fn sees_no_conflict(&self, own: &RangeSlot<P>, claim: Claim, extent: Extent) -> bool {
        let (first, last) = (extent.first(), extent.last());
        let seems_free = P::threads().all_ranges(|slot| {
            ptr::eq(slot, own) || !slot.seems_to_keep_away(slot.tag(), claim, first, last)
        });
        if own.is_use_in(searches_until_sharing_ends::<P>()) {
            self.filters
                .end_sharing(|| P::threads().all_ranges(|slot| !claim.is_shared_by(slot.tag())));
        }
        seems_free || Self::is_free_of_others(own, claim, extent)
    }

    /// The same in every case, but slower.
    #[cold]
    fn is_free_of_others(own: &RangeSlot<P>, claim: Claim, extent: Extent) -> bool {
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
        let waiter = Waiter::new(claim, extent, access, place);
        if let Patience::Until(deadline) = patience {
            if self.spin_to_enter(slot, &waiter, deadline) {
                return Some(SlottedHold(place));
            }
        }
        if self.wait(&waiter, patience) {
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
        self.filters.unlist(extent);
        self.end_look(&locked);
        drop(locked);
        free(apart);
        self.serve(extent, exclusive);
    }
}

// SAFETY: conflicting ranges are never held together by invariants 1 and 2, see "Why it is right"
// above. A release of a range is a Release on its slot or of the queue's lock; the next conflicting
// holder has done the Acquire there, or on the filters.
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
        gate: Gate::NEW,
        quiet: Quiet::NEW,
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
                // Marked before others can wait for a shared holder; a mark in vain does little
                // harm.
                slot.mark();
                let cells = Cells(range::cells(slot.tag()));
                let before = self.filters.sharing();
                slot.set(Claim::new(self.filters.number(), false), HELD);
                P::fence();
                self.filters.share(before);
                self.filters.remove_exclusive(extent, cells);
                P::fence_after_update();
                if self.filters.look(extent, Cells::NONE).listed {
                    self.serve(extent, true);
                }
            }
            Known::Apart(apart) => {
                let locked = self.queue.lock();
                // SAFETY: the hold keeps it alive and on the tree.
                self.apart.set_shared(&locked, unsafe { apart.as_ref() });
                drop(locked);
                self.serve(extent, true);
            }
        }
    }

    #[inline(always)]
    unsafe fn release(&self, extent: Extent, access: Access, hold: SlottedHold<P>) {
        let exclusive = access == Access::Exclusive;
        let must_serve = match hold.0.known() {
            Known::InSlot(slot) if exclusive => {
                let cells = Cells(range::cells(slot.tag()));
                slot.clear_unseen();
                self.filters.remove_exclusive(extent, cells);
                // Pairs with the fence between being listed and looking at slots, in `wait`.
                P::fence_after_update();
                self.filters.look(extent, Cells::NONE).listed
            }
            Known::InSlot(slot) => slot.clear(),
            Known::Apart(apart) => return self.release_apart(apart, extent, exclusive),
        };
        if must_serve {
            self.serve(extent, exclusive);
        }
    }
}
