//! What each thread says about itself while it goes on, for others to read at any time: what it does
//! and since when, and its last acquisitions, long waits, long holds and stops.
//!
//! A thread has a seat for as long as it lives; the one that is started in its place takes it over.
//! Everything is atomic, as a seat is read while its thread writes it, and zero at first.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, fence};

use super::clock::{MICROSECOND, now};

/// As many threads take part at once.
pub const SEATS: usize = 64;

/// Waits and holds at least this long are noted.
pub const LONG: u64 = 200 * MICROSECOND;

/// What an acquisition gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Shared,
    Exclusive,
    /// Shared, in the queue of writers.
    Upgradable,
}

/// Of what an acquisition was: its side, and which cells (all of them but under range locks).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct What {
    pub side: Side,
    pub first: u8,
    pub last: u8,
}

impl What {
    pub const fn all(side: Side) -> Self {
        What { side, first: 0, last: u8::MAX }
    }

    pub fn overlaps(self, other: What) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    fn pack(self) -> u64 {
        self.side as u64 | u64::from(self.first) << 8 | u64::from(self.last) << 16
    }

    fn unpack(packed: u64) -> Self {
        let side = match packed & 0xff {
            0 => Side::Shared,
            1 => Side::Exclusive,
            _ => Side::Upgradable,
        };
        What { side, first: (packed >> 8) as u8, last: (packed >> 16) as u8 }
    }
}

/// Two moments and what lies between.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub from: u64,
    pub to: u64,
    pub what: What,
}

impl Span {
    pub fn length(self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    pub fn meets(self, from: u64, to: u64) -> bool {
        self.from <= to && from <= self.to
    }
}

/// The last `N` spans; one thread writes.
pub struct Ring<const N: usize> {
    written: AtomicU64,
    entries: [[AtomicU64; 3]; N],
}

impl<const N: usize> Ring<N> {
    pub fn push(&self, span: Span) {
        let at = self.written.load(Relaxed);
        let entry = &self.entries[at as usize % N];
        for (cell, value) in entry.iter().zip([span.from, span.to, span.what.pack()]) {
            cell.store(value, Relaxed);
        }
        // Release pairs with the Acquire in `newest_first`.
        self.written.store(at + 1, Release);
    }

    /// Those that are still there, the last first.
    pub fn newest_first(&self) -> impl Iterator<Item = Span> {
        let written = self.written.load(Acquire);
        let oldest = written.saturating_sub(N as u64 - 1);
        (oldest..written).rev().map_while(move |at| {
            let [from, to, what] = &self.entries[at as usize % N];
            let [from, to, what] = [from, to, what].map(|cell| cell.load(Relaxed));
            // One that was overwritten meanwhile is no more; nor are those before it.
            fence(Acquire);
            let intact = self.written.load(Relaxed) < at + N as u64;
            intact.then_some(Span { from, to, what: What::unpack(what) })
        })
    }
}

/// What a thread is doing, in words, by number.
pub const DOINGS: [&str; 12] = [
    "rests",
    "thinks",
    "asks for shared access",
    "asks for exclusive access",
    "asks for upgradable access",
    "tries",
    "stays inside",
    "upgrades",
    "releases",
    "ends",
    "forks",
    "has ended",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Doing {
    Rests,
    Thinks,
    AsksShared,
    AsksExclusive,
    AsksUpgradable,
    Tries,
    Stays,
    Upgrades,
    Releases,
    Ends,
    Forks,
    HasEnded,
}

/// One thread's.
pub struct Seat {
    /// 0 before the first thread.
    pub thread: AtomicI32,
    /// Where its stack is: the address of something at the beginning of it.
    pub stack: AtomicU64,
    pub doing: AtomicU32,
    /// The number of the operation that it belongs to.
    pub operation: AtomicU32,
    pub since: AtomicU64,
    /// When what it waits for ends by itself; 0 if it does not.
    pub deadline: AtomicU64,
    /// Since when it holds the lock; 0 if it does not.
    pub holds_since: AtomicU64,
    /// What it asks for or holds.
    what: AtomicU64,
    /// Since when it has been stopped; 0 if it is not.
    pub stopped_since: AtomicU64,
    /// How long the next stop is to take, ns.
    pub next_stop: AtomicU64,
    pub operations: AtomicU64,
    /// By side: shared, exclusive.
    pub longest_wait: [AtomicU64; 2],
    /// A wait that began then was seen asleep, and so on the queue, at this later moment.
    pub slept: [AtomicU64; 2],
    pub stop_count: AtomicU64,
    /// For how long the last thread of this seat had no CPU, all its life.
    pub final_delay: AtomicU64,
    /// Asked, entered.
    pub entries: Ring<4096>,
    /// Long waits, whether they ended well or not.
    pub waits: Ring<8192>,
    pub holds: Ring<4096>,
    pub stops: Ring<4096>,
}

impl Seat {
    pub fn number(&self) -> usize {
        let offset = std::ptr::from_ref(self).addr() - all().as_ptr().addr();
        offset / size_of::<Seat>()
    }

    #[inline(always)]
    pub fn set(&self, doing: Doing, since: u64) {
        self.since.store(since, Release);
        self.doing.store(doing as u32, Release);
    }

    pub fn is_resting(&self) -> bool {
        let doing = self.doing.load(Relaxed);
        doing == Doing::Rests as u32 || doing == Doing::HasEnded as u32
    }

    pub fn set_what(&self, what: What) {
        self.what.store(what.pack(), Relaxed);
    }

    pub fn what(&self) -> What {
        What::unpack(self.what.load(Relaxed))
    }

    /// Since when its thread has waited, if it does.
    pub fn waits_since(&self) -> Option<u64> {
        let asks = [Doing::AsksShared, Doing::AsksExclusive, Doing::AsksUpgradable];
        let since = self.since.load(Acquire);
        let doing = self.doing.load(Acquire);
        asks.into_iter().any(|asks| asks as u32 == doing).then_some(since)
    }

    /// When a wait that began then was seen asleep.
    pub fn slept_by(&self, since: u64) -> Option<u64> {
        let [began, slept] = &self.slept;
        // Acquire pairs with the Release of the one who saw it.
        (began.load(Acquire) == since).then(|| slept.load(Relaxed))
    }

    pub fn note_stop(&self, from: u64) {
        self.stops.push(Span { from, to: now(), what: What::all(Side::Shared) });
        self.stop_count.fetch_add(1, Relaxed);
    }
}

/// All seats.
pub fn all() -> &'static [Seat; SEATS] {
    static ALL: OnceLock<&'static [Seat; SEATS]> = OnceLock::new();
    ALL.get_or_init(|| {
        let layout = Layout::new::<[Seat; SEATS]>();
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: as large and aligned as it must be, never freed, and atomics may be all zero.
        unsafe { &*memory.cast::<[Seat; SEATS]>() }
    })
}
