//! A slot for a range: which positions of which [`RangeLock`](crate::RangeLock) somebody holds, or
//! is about to hold.
//!
//! Slots of readers belong to guards that stay on their thread. A slot for a range may be cleared
//! by any thread, as the guard of a range may be sent to another.
//!
//! Invariants
//! 1. Only the record's thread sets a tag that is 0, and with it the positions, which stay until
//!    the tag is 0 again.
//! 2. A slot changes from `TRYING` to `HELD` or `WAITING` after a few instructions of its thread,
//!    during which the thread waits for nobody.
//! 3. A slot changes from `WAITING` to `HELD` or 0 only under the lock of the range lock's queue.
//! 4. Except for [`FENCED`], `awaited` is 0 when a tag that was 0 is set. So a mark is meant for
//!    the slot's holder, or for an earlier one, and then costs at most a wake-up in vain.
//! 5. A release frees the slot only after it has looked for a mark, as the slot's thread may reuse
//!    a free slot at once.
//! 6. Each use of a slot changes `uses` before it changes the positions. So who reads the same
//!    `uses` before the tag and after the positions has read a range that was held, or about to be,
//!    as a whole.
//! 7. `NEXT_WAS_USED` is set before the next slot is used for the first time, and so before the
//!    fence after which its thread looks for conflicts. Whoever would see that slot's range sees
//!    this, too. It stays set: most threads use their first slot only, and others look at nothing
//!    but that.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{FENCED, HasRecords};
use crate::platform::{AtomicCell, AtomicInt, Platform};

/// What a slot says about its range; part of the tag.
const STATE: u64 = 0b11;
/// The slot's thread is finding out whether it may hold the range.
const TRYING: u64 = 0b01;
/// Somebody holds the range.
pub(crate) const HELD: u64 = 0b10;
/// The slot's thread does not hold the range; it waits for the queue's lock or in the queue.
pub(crate) const WAITING: u64 = 0b11;
/// A tag that names no lock: the range has been released, and its last holder is looking for a
/// mark.
const LEFT: u64 = 0b11;
/// In the tag: the range is held exclusively.
const EXCLUSIVE: u64 = 0b100;
/// In the tag of an exclusive range: its cells in the lock's filters.
const CELLS_SHIFT: u32 = 3;
const CELLS: u64 = 0xfff << CELLS_SHIFT;
/// In the tag: the lock's number. 49 bits number a lock each 100 ns for a year and a half.
const NUMBER_SHIFT: u32 = 15;

/// In `awaited`: somebody sleeps until the range is released.
const MARKED: u32 = 1;

/// Which lock, and whether exclusively: a tag without its state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim(u64);

impl Claim {
    #[inline(always)]
    pub(crate) fn new(number: u64, exclusive: bool) -> Claim {
        Claim(number << NUMBER_SHIFT | if exclusive { EXCLUSIVE } else { 0 })
    }

    /// The same, with these cells.
    #[inline(always)]
    pub(crate) fn with_cells(self, cells: u32) -> Claim {
        Claim(self.0 | u64::from(cells) << CELLS_SHIFT)
    }

    #[inline(always)]
    fn is_of_same_lock(self, tag: u64) -> bool {
        (self.0 ^ tag) >> NUMBER_SHIFT == 0
    }

    /// Whether the tag is that of a range of the same lock that is shared, or that a thread waits
    /// to share.
    #[inline(always)]
    pub(crate) fn is_shared_by(self, tag: u64) -> bool {
        self.is_of_same_lock(tag) && is_shared(tag)
    }

    /// Whether the tag names the same lock, and not both are shared.
    #[inline(always)]
    fn conflicts(self, tag: u64) -> bool {
        self.is_of_same_lock(tag) && (self.0 | tag) & EXCLUSIVE != 0
    }
}

/// Whether a tag's thread is finding out whether it may hold the range.
pub(crate) fn is_trying(tag: u64) -> bool {
    tag & STATE == TRYING
}

/// The cells of an exclusive range that has this tag.
#[inline(always)]
pub(crate) fn cells(tag: u64) -> u32 {
    ((tag & CELLS) >> CELLS_SHIFT) as u32
}

/// Whether a tag is that of a range held shared.
pub(crate) fn is_shared(tag: u64) -> bool {
    tag & EXCLUSIVE == 0
}

/// In `uses`: the record's next slot has been used (invariant 7).
const NEXT_WAS_USED: u32 = 1;
/// In `uses`: one use.
const USE: u32 = 2;

/// One range.
#[repr(C)]
pub struct RangeSlot<P: Platform> {
    tag: P::AtomicU64,
    first: P::AtomicU64,
    last: P::AtomicU64,
    /// [`MARKED`] and [`FENCED`].
    awaited: P::AtomicU32,
    /// [`NEXT_WAS_USED`], and how often the slot was used, in units of [`USE`]; wraps. Written by
    /// the record's thread only.
    uses: P::AtomicU32,
}

impl<P: HasRecords> RangeSlot<P> {
    pub(super) const NEW: Self = RangeSlot {
        tag: P::AtomicU64::ZERO,
        first: P::AtomicU64::ZERO,
        last: P::AtomicU64::ZERO,
        awaited: P::AtomicU32::ZERO,
        uses: P::AtomicU32::ZERO,
    };

    /// The second of two neighbours, which is about to be used.
    pub(super) fn next(pair: &[Self]) -> &Self {
        let [before, next] = pair else { unreachable!("two neighbours") };
        let uses = before.uses.load(Relaxed);
        if uses & NEXT_WAS_USED == 0 {
            before.uses.store(uses | NEXT_WAS_USED, Relaxed);
        }
        next
    }

    /// Whether `ask` is true of all of a record's slots that were ever used; stops at the first of
    /// which it is not.
    #[inline(always)]
    pub(super) fn all_used<'a>(slots: &'a [Self], mut ask: impl FnMut(&'a Self) -> bool) -> bool {
        for slot in slots {
            if !ask(slot) {
                return false;
            }
            if slot.uses.load(Relaxed) & NEXT_WAS_USED == 0 {
                break;
            }
        }
        true
    }

    #[inline(always)]
    pub(super) fn is_free(&self) -> bool {
        // Acquire pairs with the Release in `clear`, on whatever thread that was.
        self.tag.load(Acquire) == 0
    }

    /// From now on a release uses a full fence, as there is no asymmetric barrier.
    pub(super) fn fence_always(&self) {
        self.awaited.fetch_or(FENCED, Relaxed);
    }

    /// In the child of a `fork`, where a thread in the middle of a release does not exist, nor this
    /// slot's thread if it `is_gone`: ends what they will not finish.
    pub(super) fn forked(&self, is_gone: bool) {
        let tag = self.tag.load(Relaxed);
        if tag == LEFT || is_gone && tag & STATE != HELD {
            self.tag.store(0, Relaxed);
        }
    }

    #[inline(always)]
    fn fill(&self, first: u64, last: u64) {
        let awaited = self.awaited.load(Relaxed);
        if awaited & MARKED != 0 {
            self.awaited.store(awaited & !MARKED, Relaxed); // Invariant 4.
        }
        // All Releases pair with the Acquires in `keeps_away`: a thread that reads these positions
        // together with the tag of the slot's previous range, and so overlooks that range, still
        // comes after its holder, and sees that the slot is in use again.
        self.uses.store(self.uses.load(Relaxed).wrapping_add(USE), Release);
        self.first.store(first, Release);
        self.last.store(last, Release);
    }

    /// Says that this thread is about to acquire a range.
    #[inline(always)]
    pub(crate) fn announce(&self, claim: Claim, first: u64, last: u64) {
        self.fill(first, last);
        // Release pairs with the Acquire in `tag`: passes on what the thread that cleared the slot
        // did.
        self.tag.store(claim.0 | TRYING, Release);
    }

    /// The same, with a full fence after it.
    #[inline(always)]
    pub(crate) fn announce_fenced(&self, claim: Claim, first: u64, last: u64) {
        self.fill(first, last);
        P::store_and_fence(&self.tag, claim.0 | TRYING);
    }

    /// Says that this thread waits for a range.
    pub(crate) fn announce_waiting(&self, claim: Claim, first: u64, last: u64) {
        self.fill(first, last);
        self.set(claim, WAITING);
    }

    /// Changes to another state, or between shared and exclusive.
    #[inline(always)]
    pub(crate) fn set(&self, claim: Claim, state: u64) {
        // Release pairs with the Acquire in `tag`: a thread that sees the state sees the positions.
        self.tag.store(claim.0 | state, Release);
    }

    /// The tag as it is now.
    #[inline(always)]
    pub(crate) fn tag(&self) -> u64 {
        // Acquire pairs with the Releases in `set` and `clear`.
        self.tag.load(Acquire)
    }

    /// The slot's tag, if the slot prevents this claim on these positions. A waiting slot prevents
    /// none.
    pub(crate) fn keeps_away(&self, claim: Claim, first: u64, last: u64) -> Option<u64> {
        loop {
            // Acquire pairs with the Release in `fill`: what is read after it is of this use or a
            // later one.
            let uses = self.uses.load(Acquire);
            let tag = self.tag();
            if !self.seems_to_keep_away(tag, claim, first, last) {
                return None;
            }
            if self.uses.load(Relaxed) / USE == uses / USE {
                return Some(tag);
            }
        }
    }

    /// False if the slot, which has this tag, does not keep the claim away. Else it may not either:
    /// what is in the way may be one range's first position and the next one's last.
    #[inline(always)]
    pub(crate) fn seems_to_keep_away(&self, tag: u64, claim: Claim, first: u64, last: u64) -> bool {
        // If the slot's range changes in between, its holder has released it, and the slot's thread
        // sees the caller's claim now. Acquire pairs with the Releases in `fill`: what the holder
        // did before is seen.
        claim.conflicts(tag)
            && tag & STATE != WAITING
            && self.first.load(Acquire) <= last
            && first <= self.last.load(Acquire)
    }

    /// True of one in `every` uses of the slot, a power of two. For the slot's thread to ask.
    #[inline(always)]
    pub(crate) fn is_use_in(&self, every: u32) -> bool {
        (self.uses.load(Relaxed) / USE) & (every - 1) == 0
    }

    /// Releases the range. Touches nothing but the record. True if the caller has to wake somebody
    /// who sleeps until then.
    #[inline(always)]
    #[must_use]
    pub(crate) fn clear(&self) -> bool {
        self.tag.store(LEFT, Release);
        P::asymmetric_light();
        let is_marked = self.awaited.load(Relaxed) != 0 && self.is_marked();
        // Release pairs with the Acquire in `is_free`: the slot's next user removes a mark after
        // this look.
        self.tag.store(0, Release);
        is_marked
    }

    /// The same if nobody can be waiting for it, or the caller wakes them in another way.
    #[inline(always)]
    pub(crate) fn clear_unseen(&self) {
        self.tag.store(0, Release);
    }

    #[cold]
    fn is_marked(&self) -> bool {
        if self.awaited.load(Relaxed) & FENCED != 0 {
            P::fence();
        }
        self.awaited.load(Relaxed) & MARKED != 0
    }

    /// Asks the thread that clears the slot to wake the caller. Before it sleeps, the caller must
    /// raise a barrier and look at the tag again, unless the slot is not held yet.
    pub(crate) fn mark(&self) {
        self.awaited.fetch_or(MARKED, Relaxed);
    }
}
