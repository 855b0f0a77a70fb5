//! The item of a source: one word of state, a level, a link, and what its poll keeps about it.
//!
//! ```text
//!   state: 63        32 31         8      2         1          0
//!          │  INSIDE   │  LINKING  │  QUEUED  ENABLED  ATTACHED │
//! ```
//!
//! Invariants
//! 1. One thread at a time sets `QUEUED`; it owns the item's links and puts the item on the list. A
//!    consumer that takes the item off the list owns it in turn, and clears `QUEUED` when it
//!    releases the item. So an item is in at most one place: being linked, on the list, or with the
//!    consumers.
//! 2. While an item is queued and nobody is `LINKING`, it is on the list or with the consumers, who
//!    look at its level after they have cleared `QUEUED`, or keep it.
//! 3. A producer changes the level, then looks at the state, with a full fence between. A consumer
//!    clears `QUEUED`, then looks at the level, with a full fence between. So they cannot both miss
//!    what the other did: either the producer queues the item, or the consumer sees the level.
//! 4. A producer touches the poll only while it is counted in `INSIDE`, and it is counted only if
//!    `ATTACHED` was set in the same step. So once a poll has cleared `ATTACHED` and then finds
//!    nobody inside, no producer touches it.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::platform::{AtomicCell, AtomicInt, PlainCell, Platform};

/// The item belongs to a poll.
pub(super) const ATTACHED: u64 = 1 << 0;
/// Signals matter. Clear for a source that was to be reported once, and was.
pub(super) const ENABLED: u64 = 1 << 1;
/// The item is being linked, on the list, or with the consumers.
pub const QUEUED: u64 = 1 << 2;
/// Counts threads that have set `QUEUED` and have not yet said that the item is on the list.
pub(super) const LINKING: u64 = 1 << 8;
const LINKING_MASK: u64 = INSIDE - LINKING;
/// Counts threads that may touch the poll.
pub const INSIDE: u64 = 1 << 32;
const INSIDE_MASK: u64 = !0 << 32;

/// What a source is ready for, or what a poll is to report of it: a set.
///
/// ```
/// use fairlock::ready::Readiness;
/// let both = Readiness::READABLE | Readiness::WRITABLE;
/// assert!(both.contains(Readiness::READABLE));
/// assert!(!Readiness::READABLE.contains(both));
/// assert_eq!(both & Readiness::WRITABLE, Readiness::WRITABLE);
/// assert!(Readiness::NONE.is_empty());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Readiness(u8);

impl Readiness {
    /// Nothing.
    pub const NONE: Readiness = Readiness(0);
    /// There is something to read or to receive.
    pub const READABLE: Readiness = Readiness(1);
    /// There is room to write or to send.
    pub const WRITABLE: Readiness = Readiness(2);
    /// The other side is gone. Always reported, whether asked for or not.
    pub const CLOSED: Readiness = Readiness(4);

    /// Whether all of `other` is in it.
    #[inline]
    pub const fn contains(self, other: Readiness) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is in it.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// As the bits of a level, for sources whose level is what they are ready for.
    pub(super) const fn bits(self) -> u8 {
        self.0
    }

    pub(super) const fn from_bits(bits: u8) -> Readiness {
        Readiness(bits)
    }
}

impl core::ops::BitOr for Readiness {
    type Output = Readiness;
    #[inline]
    fn bitor(self, other: Readiness) -> Readiness {
        Readiness(self.0 | other.0)
    }
}

impl core::ops::BitAnd for Readiness {
    type Output = Readiness;
    #[inline]
    fn bitand(self, other: Readiness) -> Readiness {
        Readiness(self.0 & other.0)
    }
}

/// Where an item is, from the consumers' point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Not with them.
    Elsewhere,
    /// In the FIFO, taken off the list: the consumers clear `QUEUED`.
    Held,
    /// In the FIFO although a producer is still linking it, or has just done so: they do not clear
    /// `QUEUED`.
    Surveyed,
}

const ELSEWHERE: u8 = 0;
const HELD: u8 = 1;
const SURVEYED: u8 = 2;

/// See the module. In a [`RawSource`](super::RawSource) all behind `keep` is on the producers'
/// cache line, and `keep` on another one.
#[repr(C)]
pub struct Item<P: Platform> {
    pub(super) keep: Keep<P>,
    /// See the drawing above.
    pub state: P::AtomicU64,
    /// What the source counts or contains; `readiness` says what it is ready for then.
    pub(super) level: P::AtomicU64,
    /// The next item on the list, written by the item's owner (invariant 1).
    pub next: P::AtomicPtr<()>,
    /// The poll, null if none. Read only by threads that are counted inside.
    pub(super) home: P::AtomicPtr<()>,
    /// What the source is ready for at a level.
    readiness: fn(u64) -> Readiness,
    /// When it becomes ready by itself, in ns of the platform's clock; 0 if it does not. The
    /// consumer lock protects this; if it has no poll, the lock of its registration does. Changes
    /// with the level only.
    pub(super) deadline: P::Cell<u64>,
    /// After that it becomes ready again every so many ns; 0 if once. Protected as `deadline` is.
    pub(super) period: P::Cell<u64>,
}

/// What the poll keeps about an item, used under the consumer lock only.
#[repr(C)]
pub(super) struct Keep<P: Platform> {
    /// Neighbours in the FIFO.
    pub(super) younger: P::Cell<*const ()>,
    pub(super) older: P::Cell<*const ()>,
    pub(super) token: P::Cell<u64>,
    /// Its index in the poll's table of items.
    pub(super) index: P::Cell<u32>,
    place: P::Cell<u8>,
    /// What to report, as bits.
    pub(super) interest: P::Cell<u8>,
    pub(super) trigger: P::Cell<u8>,
}

// SAFETY: the plain cells are used under the consumer lock of the item's poll, or without a poll
// under the lock of its registration; everything else is atomic.
unsafe impl<P: Platform> Sync for Item<P> {}
// SAFETY: nothing in it is bound to a thread: cells and atomics are used as said above.
unsafe impl<P: Platform> Send for Item<P> {}

impl<P: Platform> Item<P> {
    /// An item of no poll.
    pub(super) fn new(level: u64, readiness: fn(u64) -> Readiness) -> Self {
        Item {
            keep: Keep {
                younger: P::Cell::ZERO,
                older: P::Cell::ZERO,
                token: P::Cell::ZERO,
                index: P::Cell::ZERO,
                place: P::Cell::ZERO,
                interest: P::Cell::ZERO,
                trigger: P::Cell::ZERO,
            },
            state: P::AtomicU64::ZERO,
            level: P::AtomicU64::new(level),
            next: P::AtomicPtr::ZERO,
            home: P::AtomicPtr::ZERO,
            readiness,
            deadline: P::Cell::ZERO,
            period: P::Cell::ZERO,
        }
    }

    /// What the source is ready for now. Acquire pairs with the Release of whoever changed the
    /// level.
    pub(super) fn readiness(&self) -> Readiness {
        (self.readiness)(self.level.load(Acquire))
    }

    /// What leads to it: in its neighbour's `next`, or in the list's ends.
    pub fn as_link(&self) -> *mut () {
        ptr::from_ref(self).cast_mut().cast()
    }

    // ---- producers ----

    /// Counts a thread in, if the item has a poll and signals matter.
    pub fn enter(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        while matters(state) {
            // Acquire pairs with the Release in `attach`.
            match self.state.compare_exchange_weak(state, state + INSIDE, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(found) => state = found,
            }
        }
        false
    }

    /// Takes back what was added to the state. Release pairs with the Acquire in `is_left`.
    #[inline]
    pub fn leave(&self, counts: u64) {
        self.state.fetch_sub(counts, Release);
    }

    // ---- the poll ----

    /// Attaches the item to the poll at `home`.
    pub(super) fn attach(&self, home: *const ()) {
        self.home.store(home.cast_mut(), Relaxed);
        // Release pairs with the Acquire of those who enter.
        self.state.fetch_or(ATTACHED | ENABLED, Release);
    }

    /// Detaches the item: from now on nobody enters.
    pub(super) fn detach(&self) {
        self.state.fetch_and(!(ATTACHED | ENABLED), Relaxed);
    }

    /// Nobody is inside. If the item was detached before, nobody will touch the poll again.
    pub(super) fn is_left(&self) -> bool {
        // Acquire pairs with the Release in `leave`.
        !is_inside(self.state.load(Acquire))
    }

    /// Signals matter, again.
    pub(super) fn enable(&self) {
        self.state.fetch_or(ENABLED, Relaxed);
    }

    /// Whether the item is still the poll's, and signals matter.
    pub(super) fn is_live(&self) -> bool {
        matters(self.state.load(Relaxed))
    }

    /// Signals do not matter until [`enable`](Self::enable).
    pub(super) fn disable(&self) {
        self.state.fetch_and(!ENABLED, Relaxed);
    }

    /// Releases a held item: the next signal queues it. The caller looks at the level afterwards
    /// (invariant 3).
    pub(super) fn release(&self) {
        // Release: whoever claims the item next, by an Acquire, owns its links.
        let state = self.state.fetch_and(!QUEUED, AcqRel);
        debug_assert!(is_queued(state), "in two places, or released twice");
        P::fence_after_update();
    }

    /// The same with a [flaw](super::list::Flaws): not in one step.
    pub(super) fn release_in_two_steps(&self) {
        self.state.store(self.state.load(Relaxed) & !QUEUED, Release);
    }

    /// Claims an item that is not queued. False only if it is queued, or if signals do not matter;
    /// it does not fail because a producer enters or leaves at the same time, which may rely on
    /// others to see the level.
    pub(super) fn claim(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        while matters(state) && !is_queued(state) {
            // Acquire pairs with the Release in `release`.
            match self.state.compare_exchange_weak(state, state | QUEUED, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(found) => state = found,
            }
        }
        false
    }

    /// A producer has claimed the item and has not put it on the list yet.
    pub(super) fn is_being_linked(&self) -> bool {
        let state = self.state.load(Relaxed);
        is_queued(state) && is_linking(state)
    }

    /// The item is being linked, on the list, or with the consumers.
    pub(super) fn is_claimed(&self) -> bool {
        is_queued(self.state.load(Relaxed))
    }

    pub(super) fn place(&self) -> Place {
        match self.keep.place.get() {
            ELSEWHERE => Place::Elsewhere,
            HELD => Place::Held,
            _ => Place::Surveyed,
        }
    }

    pub(super) fn set_place(&self, place: Place) {
        self.keep.place.set(match place {
            Place::Elsewhere => ELSEWHERE,
            Place::Held => HELD,
            Place::Surveyed => SURVEYED,
        });
    }
}

/// Whether a signal of an item in this state matters.
#[inline]
pub(super) fn matters(state: u64) -> bool {
    state & (ATTACHED | ENABLED) == ATTACHED | ENABLED
}

/// The item is being linked, on the list, or with the consumers, in this state.
#[inline]
pub fn is_queued(state: u64) -> bool {
    state & QUEUED != 0
}

#[inline]
pub(super) fn is_inside(state: u64) -> bool {
    state & INSIDE_MASK != 0
}

#[inline]
pub(super) fn is_linking(state: u64) -> bool {
    state & LINKING_MASK != 0
}
