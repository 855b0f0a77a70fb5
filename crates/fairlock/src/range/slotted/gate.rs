//! What newcomers and releases ask before they come to the queue: may they pass those that wait,
//! and need a release wake anybody? Both answers are given under the queue's lock, and read without
//! it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::platform::{AtomicCell, AtomicInt, PlainCell, Platform};
use crate::policy::HANDOFF_AFTER_NS;
use crate::range::Extent;
use crate::wait_queue::Locked;

/// For how long newcomers may pass waiters again after the last range that was reserved had been
/// handed over, ns: so that a queue in which everybody has waited for too long is not served by one
/// wake-up after another. Longer: waiters are passed for longer. Chosen, not measured: ten wake-ups
/// or more.
pub(super) const OPEN_FOR_NS: u64 = 500_000;

/// Somebody looks for conflicts under the queue's lock, to hand out a range: newcomers wait for a
/// few instructions.
const LOOKING: u32 = 0b01;
/// Ranges are handed out in order: newcomers queue.
const IN_ORDER: u32 = 0b10;

/// Whether a newcomer may pass those that wait for its range.
pub(super) struct Gate<P: Platform> {
    /// [`LOOKING`] and [`IN_ORDER`].
    word: P::AtomicU32,
    /// Waiters for whom their ranges are reserved.
    reserved: P::Cell<u32>,
    /// When the last of them had its range.
    opened: P::Cell<u64>,
}

impl<P: Platform> Gate<P> {
    pub(super) const NEW: Self =
        Gate { word: P::AtomicU32::ZERO, reserved: P::Cell::ZERO, opened: P::Cell::ZERO };

    /// Whether a newcomer may pass waiters, as far as this instant is concerned.
    pub(super) fn is_open(&self) -> bool {
        // Acquire pairs with the Release in `end_look`: a newcomer that passes sees who was let in.
        self.word.load(Acquire) == 0
    }

    /// Whether newcomers must queue.
    pub(super) fn is_in_order(&self) -> bool {
        self.word.load(Relaxed) & IN_ORDER != 0
    }

    /// From now on, and until [`end_look`](Self::end_look), no newcomer that sees somebody listed
    /// passes. A newcomer that did not see that is seen by the caller as trying.
    pub(super) fn begin_look(&self, _locked: &Locked<'_, P>) {
        // Pairs with the fence of a newcomer between saying that it tries and looking at the
        // filters and here.
        self.word.fetch_or(LOOKING, AcqRel);
        P::fence_after_update();
    }

    /// The look is over. Newcomers may pass unless ranges are handed out `in_order`.
    pub(super) fn end_look(&self, _locked: &Locked<'_, P>, in_order: bool) {
        self.word.store(if in_order { IN_ORDER } else { 0 }, Release);
    }

    /// Whether a waiter that began to wait at `since` has been passed for long enough.
    pub(super) fn is_overdue(&self, _locked: &Locked<'_, P>, since: u64, now: u64) -> bool {
        now > since.saturating_add(HANDOFF_AFTER_NS)
            && now > self.opened.get().saturating_add(OPEN_FOR_NS)
    }

    pub(super) fn is_reserved(&self, _locked: &Locked<'_, P>) -> bool {
        self.reserved.get() != 0
    }

    pub(super) fn reserve(&self, _locked: &Locked<'_, P>) {
        self.reserved.set(self.reserved.get() + 1);
    }

    /// A waiter for whom its range was reserved has it or has given up.
    pub(super) fn end_reservation(&self, _locked: &Locked<'_, P>) {
        self.reserved.set(self.reserved.get() - 1);
        if self.reserved.get() == 0 {
            self.opened.set(P::now());
        }
    }
}

/// An extent within which a release wakes nobody: all that wait there are awake, or behind others
/// on the queue. Odd versions say that there is such an extent.
pub(super) struct Quiet<P: Platform> {
    version: P::AtomicU64,
    first: P::AtomicU64,
    last: P::AtomicU64,
}

impl<P: Platform> Quiet<P> {
    pub(super) const NEW: Self =
        Quiet { version: P::AtomicU64::ZERO, first: P::AtomicU64::ZERO, last: P::AtomicU64::ZERO };

    /// Whether a release of this range may skip the queue. After a barrier that follows the
    /// release.
    pub(super) fn contains(&self, released: Extent) -> bool {
        let version = self.version.load(Acquire);
        if version % 2 == 0 {
            return false;
        }
        // Acquire pairs with the Releases in `set`: whoever reads a later extent sees a later
        // version, too.
        let within = self.first.load(Acquire) <= released.first()
            && released.last() <= self.last.load(Acquire);
        within && self.version.load(Relaxed) == version
    }

    pub(super) fn set(&self, locked: &Locked<'_, P>, first: u64, last: u64) {
        self.end(locked);
        self.first.store(first, Release);
        self.last.store(last, Release);
        self.version.store(self.version.load(Relaxed) + 1, Release);
    }

    /// From now on releases come to the queue. Before the caller looks at slots, a full fence must
    /// follow.
    pub(super) fn end(&self, _locked: &Locked<'_, P>) {
        let version = self.version.load(Relaxed);
        if version % 2 == 1 {
            self.version.store(version + 1, Relaxed);
        }
    }
}
