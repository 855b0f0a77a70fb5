//! A slot for a range: which positions of which [`RangeLock`](crate::RangeLock) somebody holds, or is
//! about to.
//!
//! Unlike the slots beside it, which belong to guards that stay on their thread, it may be cleared
//! by any thread, as range guards move.
//!
//! Invariants
//! 1. The record's thread alone sets a tag that is 0, and with it the positions, which stay until the
//!    tag is 0 again.
//! 2. From `TRYING` a slot goes on to `HELD` or `WAITING` after a few instructions of its thread, in
//!    which it waits for nobody.
//! 3. From `WAITING` it goes to `HELD` or 0 only under the lock of the range lock's queue.
//! 4. `awaited` is 0 whenever a tag is set that was 0, but for [`FENCED`]. So a mark belongs to
//!    whoever is in the slot, or to one who was there before and for whom it can only be too much.
//! 5. Whoever leaves frees the slot only after the look for a mark: its thread may use it at once.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{FENCED, HasRecords};
use crate::platform::{AtomicCell, AtomicInt, Platform};

/// What a slot says about its range; part of the tag.
const STATE: u64 = 0b11;
/// Its thread is looking whether it may have the range.
pub(crate) const TRYING: u64 = 0b01;
/// Somebody has it.
pub(crate) const HELD: u64 = 0b10;
/// Its thread does not have it, and waits for the queue's lock or in the queue.
pub(crate) const WAITING: u64 = 0b11;
/// A tag of no lock: nobody has the range any more, and whoever had it looks for a mark.
const LEFT: u64 = 0b11;
/// In the tag: alone.
const EXCLUSIVE: u64 = 0b100;
/// In the tag: the lock's number.
const NUMBER_SHIFT: u32 = 3;

/// In `awaited`: somebody waits for the range and sleeps.
const MARKED: u32 = 1;

/// Which lock, and whether exclusively: a tag but for its state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim(u64);

impl Claim {
    #[inline(always)]
    pub(crate) fn new(number: u64, exclusive: bool) -> Claim {
        Claim(number << NUMBER_SHIFT | if exclusive { EXCLUSIVE } else { 0 })
    }

    /// Of the same lock, and not both shared.
    #[inline(always)]
    fn conflicts(self, tag: u64) -> bool {
        let differs = (self.0 ^ tag) & !(STATE | EXCLUSIVE) != 0;
        !differs && (self.0 | tag) & EXCLUSIVE != 0
    }
}

/// Whether a tag is that of a range that others may share.
pub(crate) fn is_shared(tag: u64) -> bool {
    tag & EXCLUSIVE == 0
}

/// One range.
#[repr(C)]
pub struct RangeSlot<P: Platform> {
    tag: P::AtomicU64,
    first: P::AtomicU64,
    last: P::AtomicU64,
    /// [`MARKED`] and [`FENCED`].
    awaited: P::AtomicU32,
}

impl<P: HasRecords> RangeSlot<P> {
    pub(super) const NEW: Self = RangeSlot {
        tag: P::AtomicU64::ZERO,
        first: P::AtomicU64::ZERO,
        last: P::AtomicU64::ZERO,
        awaited: P::AtomicU32::ZERO,
    };

    #[inline(always)]
    pub(super) fn is_free(&self) -> bool {
        // Acquire pairs with the Release in `clear`, on whatever thread that was.
        self.tag.load(Acquire) == 0
    }

    /// A writer may be about to look at marks without an asymmetric barrier.
    pub(super) fn fence_always(&self) {
        self.awaited.fetch_or(FENCED, Relaxed);
    }

    /// In the child of a `fork`, which whoever was leaving did not survive, nor perhaps this slot's
    /// thread: they will not go on.
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
        // Release pairs with the Acquire in `keeps_away`: whoever finds these beside the tag of the
        // range before, and so takes that for another one, comes after its holder all the same.
        self.first.store(first, Release);
        self.last.store(last, Release);
    }

    /// Says that this thread is about to take a range.
    #[inline(always)]
    pub(crate) fn announce(&self, claim: Claim, first: u64, last: u64) {
        self.fill(first, last);
        // Release pairs with the Acquire in `tag`: on from whoever cleared the slot.
        self.tag.store(claim.0 | TRYING, Release);
    }

    /// The same, with a full fence after it.
    #[inline(always)]
    pub(crate) fn announce_fenced(&self, claim: Claim, first: u64, last: u64) {
        self.fill(first, last);
        P::store_and_fence(&self.tag, claim.0 | TRYING);
    }

    /// Goes on to another state, or to another access.
    #[inline(always)]
    pub(crate) fn set(&self, claim: Claim, state: u64) {
        // Release pairs with the Acquire in `tag`: who sees the state sees the positions.
        self.tag.store(claim.0 | state, Release);
    }

    /// What the slot says now, for [`says`](Self::says).
    #[inline(always)]
    pub(crate) fn tag(&self) -> u64 {
        // Acquire pairs with the Releases in `set` and `clear`.
        self.tag.load(Acquire)
    }

    /// The state if it keeps this claim on these positions away; waiting ones do not.
    #[inline(always)]
    pub(crate) fn keeps_away(&self, claim: Claim, first: u64, last: u64) -> Option<u64> {
        let tag = self.tag();
        if !claim.conflicts(tag) || tag & STATE == WAITING {
            return None;
        }
        // If the slot's range changes in between, its thread has left, and sees this one now.
        // Acquire pairs with the Releases in `fill`: what the slot's holder did before that is seen.
        let overlaps = self.first.load(Acquire) <= last && first <= self.last.load(Acquire);
        overlaps.then_some(tag & STATE)
    }

    /// Nobody has the range any more. Touches nothing but the record. True if somebody sleeps until
    /// then and is to be told.
    #[inline(always)]
    #[must_use]
    pub(crate) fn clear(&self) -> bool {
        self.tag.store(LEFT, Release);
        P::asymmetric_light();
        let is_marked = self.awaited.load(Relaxed) != 0 && self.is_marked();
        // Release pairs with the Acquire in `is_free`: the next one takes a mark away after this look.
        self.tag.store(0, Release);
        is_marked
    }

    /// The same where nobody can be waiting for it, or the caller sees to them.
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

    /// Whoever clears the slot is to tell. Before sleeping, a barrier must follow, and another look
    /// at the tag; unless the slot is not held yet.
    pub(crate) fn mark(&self) {
        self.awaited.fetch_or(MARKED, Relaxed);
    }
}
