//! In which order locks are acquired: an edge for each lock that a thread held when it asked for
//! another one.
//!
//! Edges are in buckets, by the two locks. They are made by the system's allocator and stay. An
//! edge that was seen before only learns of another thread. Beyond [`MOST`] edges no more are
//! noted; whether one was missed is known.
//!
//! Also noted is which locks somebody has wanted to write: only there can a reader wait behind a
//! writer for another reader.
//!
//! Invariant
//! 1. An edge is initialised before it can be found. From then on only its threads change.

use core::panic::Location;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};
use std::alloc::{GlobalAlloc, Layout, System};

use super::records::{self, Record, Seen};
use super::stack::{self, Frames};
use super::{Access, Lock, Wanted};

/// Edges that are noted, of about 1 KiB each. Chosen, not measured.
const MOST: usize = 1 << 14;

/// Chosen, not measured: a few edges for each at most.
const BUCKETS: usize = 1 << 12;

/// Places for locks that somebody has wanted to write. Chosen, not measured.
const PLACES: usize = 1 << 14;

/// Places that one lock may have. Chosen, not measured: few locks have to look beyond the first.
const NEIGHBOURS: usize = 32;

/// Locks that a thread holds when it asks for another one. Of a thread that holds more, no edges
/// are noted.
const MOST_HELD: usize = 9;

/// Threads of which an edge tells one from the other. Chosen, not measured; as many as most cycles
/// have edges.
const MOST_THREADS: usize = 4;

/// A lock that a thread has or wants, and where it asked for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) lock: Lock,
    pub(crate) access: Access,
    pub(crate) place: &'static Location<'static>,
    pub(crate) frames: Frames,
}

impl Point {
    fn of(held: &Seen) -> Self {
        Point { lock: held.lock, access: held.access(), place: held.place, frames: held.frames }
    }
}

/// All locks that the thread held, sorted; lock 0 behind the last one. Those of the edge are among
/// them: the one that was held, and also the other one if it was to be upgraded.
type Holds = [(usize, Option<Access>); MOST_HELD];

/// Some thread held one lock when it asked for another.
#[derive(Debug)]
pub(crate) struct Edge {
    next: Option<&'static Edge>,
    pub(crate) held: Point,
    pub(crate) asked: Point,
    wanted: Wanted,
    holds: Holds,
    /// The threads that did so, by their numbers; 0 behind the last one.
    threads: [AtomicU64; MOST_THREADS],
    /// Whether there were more.
    is_by_more: AtomicBool,
    /// The first of them, as the kernel calls it.
    pub(crate) tid: i32,
    pub(crate) thread_name: [u8; 16],
}

static EDGES: [AtomicPtr<Edge>; BUCKETS] = [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS];

/// How many there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Some edge could not be noted.
static IS_ONE_MISSING: AtomicBool = AtomicBool::new(false);

/// Locks that somebody has wanted to write.
struct Written {
    /// By number; 0 where there is none.
    locks: [AtomicUsize; PLACES],
    /// Some lock found no place. Then all count as written.
    is_full: AtomicBool,
}

static WRITTEN: Written = Written::NONE;

impl Written {
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    const NONE: Self =
        Written { locks: [const { AtomicUsize::new(0) }; PLACES], is_full: AtomicBool::new(false) };

    fn places(&self, lock: usize) -> impl Iterator<Item = &AtomicUsize> {
        let first = (mixed(lock, 0) >> (u64::BITS - PLACES.ilog2())) as usize;
        (0..NEIGHBOURS).map(move |at| &self.locks[(first + at) % PLACES])
    }

    fn add(&self, lock: usize) {
        for place in self.places(lock) {
            let known = match place.load(Relaxed) {
                0 => {
                    place.compare_exchange(0, lock, Relaxed, Relaxed).map_or_else(|it| it, |_| lock)
                }
                known => known,
            };
            if known == lock {
                return;
            }
        }
        self.is_full.store(true, Relaxed);
    }

    fn may_contain(&self, lock: usize) -> bool {
        self.places(lock).any(|place| place.load(Relaxed) == lock) || self.is_full.load(Relaxed)
    }
}

/// The thread of this record is the calling one, and asks for the lock at this place.
pub(super) fn note(record: &Record, lock: Lock, wanted: Wanted, place: &'static Location<'static>) {
    if matches!(wanted, Wanted::Write | Wanted::Upgrade) {
        WRITTEN.add(lock.id);
    }
    let mut held = [const { None }; records::MOST];
    for (place, hold) in held.iter_mut().zip(record.holds()) {
        if hold.lock.id == lock.id && wanted == Wanted::RecursiveRead {
            // The thread reads already, so it does not wait.
            return;
        }
        *place = Some(hold);
    }
    let holds = all_of(&held);
    if holds.is_none() || held.iter().all(Option::is_some) {
        // The thread holds too many, or may go on to hold one that its record has no place for.
        IS_ONE_MISSING.store(true, Relaxed);
    }
    let Some(holds) = holds else { return };
    // Taken when there is something new to say.
    let mut frames = None;
    for from in held.iter().flatten().filter(|from| from.lock.id != lock.id) {
        let is_it = |edge: &Edge| {
            edge.held.lock.id == from.lock.id
                && edge.asked.lock.id == lock.id
                && edge.held.access == from.access()
                && edge.wanted == wanted
                && edge.holds == holds
        };
        let bucket = &EDGES[bucket(from.lock.id, lock.id)];
        // SAFETY: null or an edge that is initialised and never freed.
        let of_bucket = || unsafe { bucket.load(Acquire).as_ref() };
        if let Some(edge) = chain(of_bucket()).find(|edge| is_it(edge)) {
            edge.note_thread(record.thread());
            continue;
        }
        if COUNT.load(Relaxed) >= MOST {
            IS_ONE_MISSING.store(true, Relaxed);
            continue;
        }
        let frames = *frames.get_or_insert_with(stack::capture);
        let asked = Point { lock, access: wanted.access(), place, frames };
        let new = Edge {
            next: None,
            held: Point::of(from),
            asked,
            wanted,
            holds,
            threads: core::array::from_fn(|at| {
                AtomicU64::new(if at == 0 { record.thread() } else { 0 })
            }),
            is_by_more: AtomicBool::new(false),
            tid: record.tid(),
            thread_name: own_name(),
        };
        add(bucket, new);
    }
}

/// Adds an edge, unless there is no memory. Of two threads that note the same edge at once, each
/// adds one, which is the same as one by two threads.
fn add(bucket: &AtomicPtr<Edge>, edge: Edge) {
    // SAFETY: an edge is not zero-sized.
    let new = unsafe { System.alloc(Layout::new::<Edge>()) }.cast::<Edge>();
    if new.is_null() {
        IS_ONE_MISSING.store(true, Relaxed);
        return;
    }
    // SAFETY: memory for an edge, which nobody else knows yet.
    unsafe { new.write(edge) };
    // Acquire and Release pair with each other and with the Acquire of those who look for edges
    // (invariant 1).
    let mut last = bucket.load(Acquire);
    loop {
        // SAFETY: nobody else knows the new edge yet. `last` is null or an edge that is initialised
        // and never freed.
        unsafe { (*new).next = last.as_ref() };
        match bucket.compare_exchange(last, new, AcqRel, Acquire) {
            Ok(_) => break,
            Err(others) => last = others,
        }
    }
    COUNT.fetch_add(1, Relaxed);
}

fn bucket(from: usize, to: usize) -> usize {
    (mixed(from, to) >> (u64::BITS - BUCKETS.ilog2())) as usize
}

/// A number of which the upper bits are those of no pair in particular.
fn mixed(one: usize, other: usize) -> u64 {
    // Fibonacci hashing: the upper bits of a product with 2^64 divided by the golden ratio.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (one as u64).wrapping_mul(FACTOR).rotate_left(32) ^ other as u64;
    mixed.wrapping_mul(FACTOR)
}

fn chain(first: Option<&'static Edge>) -> impl Iterator<Item = &'static Edge> {
    core::iter::successors(first, |edge| edge.next)
}

/// None if these are too many.
fn all_of(held: &[Option<Seen>]) -> Option<Holds> {
    let mut all = [(0, None); MOST_HELD];
    let mut count = 0;
    for hold in held.iter().flatten() {
        let hold = (hold.lock.id, Some(hold.access()));
        if !all[..count].contains(&hold) {
            *all.get_mut(count)? = hold;
            count += 1;
        }
    }
    all[..count].sort_unstable_by_key(|(lock, access)| (*lock, access.map(|it| it as u8)));
    Some(all)
}

/// The calling thread's name, as Linux knows it; elsewhere none, as std's could need an allocation.
fn own_name() -> [u8; 16] {
    #[allow(unused_mut)]
    let mut name = [0; 16];
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: the kernel writes 16 bytes at most.
    unsafe {
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr())
    };
    name
}

/// Whether no edge is missing.
pub(crate) fn are_all_noted() -> bool {
    !IS_ONE_MISSING.load(Relaxed)
}

/// All edges that have been noted.
pub(crate) fn edges() -> Vec<&'static Edge> {
    // SAFETY: null or an edge that is initialised and never freed.
    let buckets = EDGES.iter().map(|bucket| unsafe { bucket.load(Acquire).as_ref() });
    buckets.flat_map(chain).collect()
}

impl Edge {
    fn note_thread(&self, thread: u64) {
        for place in &self.threads {
            let known = match place.load(Relaxed) {
                0 => place
                    .compare_exchange(0, thread, Relaxed, Relaxed)
                    .map_or_else(|it| it, |_| thread),
                known => known,
            };
            if known == thread {
                return;
            }
        }
        if !self.is_by_more.load(Relaxed) {
            self.is_by_more.store(true, Relaxed);
        }
    }

    /// Whether a thread that asks as this edge did would wait for one that holds the lock as the
    /// next edge did, if need be because a writer has queued in between.
    pub(crate) fn may_wait_for(&self, next: &Edge) -> bool {
        let may_be_behind_writer =
            || self.wanted.stands_behind_writers() && WRITTEN.may_contain(self.asked.lock.id);
        self.waits_for(next) || may_be_behind_writer()
    }

    /// The same, whether or not a writer has queued.
    pub(crate) fn waits_for(&self, next: &Edge) -> bool {
        self.wanted.waits_for(next.held.access)
    }

    /// What the thread held: each lock, and how.
    fn holds(&self) -> impl Iterator<Item = (usize, Access)> {
        self.holds.iter().filter_map(|&(lock, access)| Some((lock, access?)))
    }

    /// Whether two threads cannot be at these two edges at once: both held the same lock, which
    /// they cannot share.
    pub(crate) fn excludes(&self, other: &Edge) -> bool {
        use Access::{Exclusive, Upgradable};
        let mut holds = self.holds();
        holds.any(|(lock, one)| {
            let of_lock = other.holds().filter(|(of_other, _)| *of_other == lock);
            let mut pairs = of_lock.map(|(_, other)| (one, other));
            pairs.any(|pair| {
                matches!(pair, (Exclusive, _) | (_, Exclusive) | (Upgradable, Upgradable))
            })
        })
    }

    /// The numbers of the threads that did so; none if there were too many to tell one from the
    /// other.
    fn threads(&self) -> Option<Vec<u64>> {
        let known = self.threads.iter().map(|it| it.load(Relaxed)).filter(|it| *it != 0);
        (!self.is_by_more.load(Relaxed)).then(|| known.collect())
    }
}

/// Whether there is a different thread for each edge. An edge that many threads took is no
/// obstacle.
pub(crate) fn by_different_threads(edges: &[&Edge]) -> bool {
    fn assign(left: &[Vec<u64>], taken: &mut Vec<u64>) -> bool {
        let Some((first, rest)) = left.split_first() else { return true };
        first.iter().any(|thread| {
            if taken.contains(thread) {
                return false;
            }
            taken.push(*thread);
            let works = assign(rest, taken);
            taken.pop();
            works
        })
    }
    let mut threads: Vec<_> = edges.iter().filter_map(|edge| edge.threads()).collect();
    threads.sort_by_key(Vec::len);
    assign(&threads, &mut Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_locks_are_known_until_there_is_no_place_for_one_more() {
        static WRITTEN: Written = Written::NONE;
        for lock in 1..=1_000 {
            assert!(!WRITTEN.may_contain(lock));
            WRITTEN.add(lock);
            WRITTEN.add(lock);
            assert!(WRITTEN.may_contain(lock));
        }
        let places = || WRITTEN.locks.iter().filter(|it| it.load(Relaxed) != 0);
        assert_eq!(places().count(), 1_000, "one for each");
        let mut lock = 1_000;
        while !WRITTEN.is_full.load(Relaxed) {
            lock += 1;
            WRITTEN.add(lock);
        }
        assert!(places().count() > PLACES / 2);
        assert!((1..=2 * PLACES).all(|lock| WRITTEN.may_contain(lock)), "none is left out");
    }
}
