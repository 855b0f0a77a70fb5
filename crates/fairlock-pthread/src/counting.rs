//! What was done to which lock, for the report. Each thread counts in pages of its own, by plain stores.
//!
//! * Every acquisition is counted, and looks whether a thread waits. Most cost no more than that. If one
//!   waits, the acquisition is also counted in the lock, whose cache line the caller owns by then, so
//!   that waiters can tell how many passed them.
//! * Every release is counted, too, just before it happens: a lock that a thread has acquired more often
//!   than released is one that it holds.
//! * Waits are announced before the thread blocks, so that the file also shows a wait that never ends, and
//!   where. They are measured, and a sample of them is noted with the place of the call.
//! * One hold in [`HOLDS`] on average is measured, after the lock was released again.
//!
//! Other processes may have the same file in their memory: children that were forked off, which may have
//! given up their rights since, or run what somebody else wants. So no number that is read from it is
//! believed: pages are looked up by [`Map`], which checks them, and sums may wrap.
//!
//! Nothing of this is done between a request and a lock that could be had at once, and little
//! while the lock is held.

use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use fairlock_counts::layout::{
    self, Details, ENTRIES, Entry, Histogram, LOCKS, LOCKS_AT, Misuse, OTHERS, READ, SITES,
    THREADS, THREADS_AT, WRITE, bucket,
};
use fairlock_counts::map::{self, Map, monotonic_ns};
use libc::c_int;

use crate::lock::Lock;
use crate::modes::{Choice, Mode};
use crate::platform::keeping_errno;
use crate::recording;
use crate::stacks::{self, Frames};
use crate::standstill::is_owned;
use crate::start;
use crate::thread::Thread;

/// Of so many acquisitions of a lock by a thread, one has its hold measured, on average: reading the
/// clock twice takes ten times as long as locking and unlocking.
const HOLDS: u32 = 1024;
/// While there were not that many yet it is one of so many.
const HOLDS_AT_FIRST: u32 = 16;
/// Of so many measured holds of a role one is looked at for context switches, which takes two
/// system calls, and for where it began.
const LOOKS: u64 = 8;
/// Of so many waits at one lock one is noted with its place, which takes microseconds; and the
/// first ones.
const PLACES: u32 = 16;

/// A wait that is longer has its place noted meanwhile, which takes microseconds and a wake-up.
pub(crate) const LASTS_NS: u64 = 100_000_000;

/// The file; null before, and where nothing is counted.
static MAP: AtomicPtr<Map> = AtomicPtr::new(ptr::null_mut());

/// Begins to count in a file there; false, with a message, if there can be none.
pub(crate) fn begin(directory: &[u8], policy: &str) -> bool {
    if !MAP.load(Acquire).is_null() {
        return true; // Another thread was faster.
    }
    let map = match Map::create(Path::new(OsStr::from_bytes(directory)), policy) {
        Ok(map) => map,
        // A program that was left behind by a run which is over: nobody would read its counts, and the
        // terminal is somebody else's by now.
        Err(error) if error.kind() == ErrorKind::NotFound && map::is_of_a_run(directory) => {
            return false;
        }
        Err(_) => {
            start::say(&[
                b"fairlock: no counts of this process, as no file can be made in FAIRLOCK_COUNTS=",
                directory,
                b"\n",
            ]);
            return false;
        }
    };
    map.header().holds_sampled.store(HOLDS, Relaxed);
    stacks::look_up();
    publish(map);
    true
}

/// Puts the map where it stays, without an allocation.
fn publish(map: Map) {
    /// Threads that begin at once each may have one; more than two are not expected, and lose theirs.
    static PLACES: [Place; 2] = [const { Place(MaybeUninit::uninit(), AtomicU32::new(0)) }; 2];
    struct Place(MaybeUninit<Map>, AtomicU32);
    // SAFETY: written once, by the thread that took the place.
    unsafe impl Sync for Place {}
    let Some(place) = PLACES.iter().find(|place| place.1.swap(1, Relaxed) == 0) else { return };
    let place = place.0.as_ptr().cast_mut();
    // SAFETY: this thread's alone, until it is published.
    unsafe { place.write(map) };
    // Release pairs with the Acquire in `map`. Who is late keeps an empty file.
    let _ = MAP.compare_exchange(ptr::null_mut(), place, Release, Relaxed);
}

pub(crate) fn map() -> Option<&'static Map> {
    // SAFETY: null, or complete, and stays.
    unsafe { MAP.load(Acquire).as_ref() }
}

/// Where a thread found the entries of the locks that it used last. The very last stands apart: with
/// that the processor need not wait for the lock's number to know where to count.
pub(crate) struct Recent {
    last: Cell<Option<&'static Entry>>,
    last_number: Cell<u32>,
    numbers: [Cell<u32>; RECENT],
    entries: [Cell<Option<&'static Entry>>; RECENT],
}

/// A power of two. A thread of a large library has dozens of locks in hand; more would not leave room in the words of a
/// thread for a library that is loaded later.
const RECENT: usize = 64;

impl Recent {
    #[inline(always)]
    fn last(&self, number: u32) -> Option<&'static Entry> {
        if self.last_number.get() == number { self.last.get() } else { None }
    }

    #[inline(always)]
    fn last_or_recent(&self, number: u32) -> Option<&'static Entry> {
        self.last(number).or_else(|| self.find(number))
    }

    #[inline]
    fn find(&self, number: u32) -> Option<&'static Entry> {
        let at = number as usize % RECENT;
        let found = if self.numbers[at].get() == number { self.entries[at].get() } else { None };
        self.last_number.set(number);
        self.last.set(found);
        found
    }

    pub(crate) fn keep(&self, number: u32, entry: &'static Entry) {
        let at = number as usize % RECENT;
        self.numbers[at].set(number);
        self.entries[at].set(Some(entry));
    }

    pub(crate) fn forget(&self) {
        // A lock that has no number yet has 0, too: it must not find anything under that.
        self.last_number.set(0);
        self.last.set(None);
        self.numbers.iter().for_each(|number| number.set(0));
        self.entries.iter().for_each(|entry| entry.set(None));
    }
}

/// A thread and a lock: where what the one does to the other is counted.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    entry: &'static Entry,
    /// The lock's.
    pub(crate) number: u32,
}

impl Counted {
    /// None if there is no room. The process counts.
    pub(crate) fn of(at: &Lock, mode: Mode, thread: &Thread) -> Option<Counted> {
        // A process-shared lock has no number in itself.
        let number = at.number.load(Relaxed);
        match thread.recent.find(number) {
            Some(entry) => Some(Counted { entry, number }),
            None => Self::find(at, mode, thread),
        }
    }

    #[cold]
    #[inline(never)]
    fn find(at: &Lock, mode: Mode, thread: &Thread) -> Option<Counted> {
        let map = map()?;
        let is_shared = is_shared(at, mode);
        let number = match at.number.load(Relaxed) {
            number if number != 0 && !is_shared => number,
            _ => number_of(map, at, mode, Origin::Used),
        };
        let entry = entry(map, thread, number)?;
        if !is_shared {
            thread.recent.keep(number, entry);
        }
        Some(Counted { entry, number })
    }

    /// The lock was acquired.
    pub(crate) fn acquired(self, at: &Lock, thread: &Thread, role: usize) {
        if self.is_more_than_a_count(at, role) {
            self.acquired_more(at, thread, role);
        }
    }

    /// Counts; what else is to be done then is rare.
    #[inline(always)]
    fn is_more_than_a_count(self, at: &Lock, role: usize) -> bool {
        let entry = self.entry;
        let count = entry.acquired[role].load(Relaxed).wrapping_add(1);
        entry.acquired[role].store(count, Relaxed);
        // The latter always while a hold is measured.
        at.waiters.load(Relaxed) != 0 || count >= entry.next_measured[role].load(Relaxed)
    }

    #[cold]
    fn acquired_more(self, at: &Lock, thread: &Thread, role: usize) {
        if at.waiters.load(Relaxed) != 0 {
            at.passed(role).fetch_add(1, Relaxed);
            // Once more, where a report finds it that knows a waiter's number at the beginning only.
            if let Some(details) = self.details() {
                map::add(&details.passed[role], 1);
            }
        }
        let entry = self.entry;
        if entry.acquired[role].load(Relaxed) >= entry.next_measured[role].load(Relaxed) {
            self.measure(thread, role);
        }
    }

    /// Begins to measure a hold; or notes that the thread has the lock once more, in the one that is
    /// measured.
    fn measure(self, thread: &Thread, role: usize) {
        recording::looks_for_window();
        let entry = self.entry;
        if entry.since.load(Relaxed) != 0 {
            entry.held.store(entry.held.load(Relaxed).wrapping_add(1), Relaxed);
            return;
        }
        entry.next_measured.iter().for_each(|next| next.store(0, Relaxed));
        thread.measured.set(thread.measured.get().wrapping_add(1));
        let looks = |details: &&Details| details.hold[role].count.load(Relaxed) % LOOKS == 0;
        if let Some(details) = self.details().filter(looks) {
            if !self.is_place_known(details, role) {
                let place = map().and_then(|map| stacks::place(map, &Frames::here()));
                self.note_place(details, role, place.map_or(0, |place| place + 1));
            }
            details.switches.store(switches().wrapping_add(1), Relaxed);
        }
        entry.since.store(monotonic_ns(), Relaxed);
    }

    /// Whether it is known where the latest acquisition was made.
    fn is_place_known(self, details: &Details, role: usize) -> bool {
        let acquired = self.entry.acquired[role].load(Relaxed);
        details.acquired_at_count[role].load(Relaxed) == acquired
    }

    /// Notes where the latest acquisition was made.
    fn note_place(self, details: &Details, role: usize, stack: u32) {
        details.acquired_at[role].store(stack, Relaxed);
        let acquired = self.entry.acquired[role].load(Relaxed);
        details.acquired_at_count[role].store(acquired, Relaxed);
    }

    /// The lock is about to be released. Before it is, so that nobody is seen to hold it beside the
    /// next one.
    #[inline(always)]
    pub(crate) fn releases(self, role: usize) {
        let released = &self.entry.released[role];
        released.store(released.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// The lock was released, and may be gone; or it could not be.
    pub(crate) fn released(self, thread: &Thread, role: usize, is_released: bool) {
        if !is_released {
            let released = &self.entry.released[role];
            released.store(released.load(Relaxed).wrapping_sub(1), Relaxed);
        } else if self.entry.since.load(Relaxed) != 0 {
            self.measured(thread, role);
        }
    }

    fn measured(self, thread: &Thread, role: usize) {
        let entry = self.entry;
        let held = entry.held.load(Relaxed);
        if held != 0 {
            return entry.held.store(held - 1, Relaxed);
        }
        let ns = monotonic_ns().saturating_sub(entry.since.load(Relaxed));
        entry.since.store(0, Relaxed);
        thread.measured.set(thread.measured.get().saturating_sub(1));
        for (next, acquired) in entry.next_measured.iter().zip(&entry.acquired) {
            let acquired = acquired.load(Relaxed);
            let average = acquired.clamp(HOLDS_AT_FIRST.into(), HOLDS.into());
            let distance = 1 + u64::from(random()) % (2 * average - 1);
            next.store(acquired.saturating_add(distance), Relaxed);
        }
        let (Some(details), Some(map)) = (self.details(), map()) else { return };
        let before = details.switches.load(Relaxed);
        details.switches.store(0, Relaxed);
        let longest = details.hold[role].max.load(Relaxed);
        if ns > longest.saturating_add(longest / 4) {
            let place = stacks::place(map, &Frames::here());
            details.longest_hold_at[role].store(place.map_or(0, |place| place + 1), Relaxed);
        }
        record(&details.hold[role], ns);
        if before != 0 {
            let (before, now) = (before - 1, switches());
            let holders = &details.holders[role];
            map::add(&holders.looked_at, 1);
            map::add(&holders.preempted, u64::from(now >> 32 != before >> 32));
            map::add(&holders.slept, u64::from(now as u32 != before as u32));
        }
    }

    /// An attempt came to nothing.
    pub(crate) fn refused(self, role: usize) {
        let refused = &self.entry.refused[role];
        refused.store(refused.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// A call broke the lock's rules. Keeps the place of the first one of this thread and kind.
    #[cold]
    #[inline(never)]
    pub(crate) fn misused(self, role: usize, how: Misuse) {
        let (Some(details), Some(map)) = (self.details(), map()) else { return };
        let misused = &details.misused[role][how as usize];
        if misused.calls.load(Relaxed) == 0 {
            let place = stacks::place(map, &Frames::here());
            // Release pairs with the Acquire of the snapshot: the stack is complete.
            misused.first_at.store(place.map_or(0, |place| place + 1), Release);
        }
        map::add(&misused.calls, 1);
    }

    /// Waits for a lock that could not be had at once.
    #[cold]
    pub(crate) fn wait<R: Ending>(
        self,
        at: &Lock,
        role: usize,
        by_writer: bool,
        wait: impl FnOnce() -> R,
    ) -> R {
        recording::looks_for_window();
        at.waiters.fetch_add(1, Relaxed);
        let passed = [READ, WRITE].map(|role| at.passed(role).load(Relaxed));
        let details = self.details();
        let waited = details.map_or(0, |details| details.wait[role].count.load(Relaxed));
        let place = || map().and_then(|map| stacks::place(map, &Frames::here()));
        let is_noted = waited < 4 || random() % PLACES == 0;
        let stack = is_noted.then(place).flatten().map_or(0, |place| place + 1);
        let before = details.map_or(0, |details| details.waited_at[role].load(Relaxed));
        let began = monotonic_ns();
        let waiting = layout::Waiting {
            lock: self.number.into(),
            role: (role as u32).into(),
            holder: (if by_writer { WRITE } else { READ } as u32).into(),
            stack: stack.into(),
            stack_before: before.into(),
            passed: passed.map(AtomicU32::new),
            since: began.into(),
            ..layout::Waiting::default()
        };
        let is_announced = Thread::with(|thread| {
            thread.recording.waits();
            announce(thread, &waiting)
        });
        let ending = wait();
        let stack = match is_announced {
            true => Thread::with(withdraw),
            false => stack,
        };
        let ns = monotonic_ns() - began;
        // The caller borrows the lock still, whether it has got it or not.
        at.waiters.fetch_sub(1, Relaxed);
        let Some(details) = details else {
            if let Some(map) = map() {
                map.header().uncounted_waits.fetch_add(1, Relaxed);
            }
            return ending;
        };
        if stack != 0 {
            details.waited_at[role].store(stack, Relaxed);
        }
        let passed = [READ, WRITE]
            .map(|role| u64::from(at.passed(role).load(Relaxed).wrapping_sub(passed[role])));
        record(&details.wait[role], ns);
        let waited_for = &details.waited_for[role][if by_writer { WRITE } else { READ }];
        map::add(&waited_for.count, 1);
        map::add(&waited_for.ns, ns);
        let bypass = &details.bypass[role];
        let (others, same) = (passed[1 - role], passed[role]);
        if others > bypass.others.load(Relaxed) {
            bypass.others.store(others, Relaxed);
            bypass.ns.store(ns, Relaxed);
        }
        bypass.same.store(same.max(bypass.same.load(Relaxed)), Relaxed);
        map::add(&bypass.others_sum, others);
        if stack != 0 && is_noted {
            note_site(details, stack, role, ns);
        }
        if !ending.is_acquired() {
            map::add(&details.timed_out[role], 1);
        } else if stack != 0 {
            // The acquisition is counted when this returns.
            details.acquired_at[role].store(stack, Relaxed);
            let acquired = self.entry.acquired[role].load(Relaxed);
            details.acquired_at_count[role].store(acquired.wrapping_add(1), Relaxed);
        }
        ending
    }

    fn details(self) -> Option<&'static Details> {
        let map = map()?;
        let page = match self.entry.details.load(Relaxed) {
            0 => {
                let page = map.new_page()?;
                // Release pairs with the Acquire of the snapshot.
                self.entry.details.store(page, Release);
                page
            }
            page => page,
        };
        map.details(page)
    }
}

/// A lock was acquired without waiting. Returns 0, for a caller that does the same.
#[inline(always)]
pub(crate) fn acquired_at_once(at: &Lock, thread: &Thread, role: usize) -> c_int {
    let number = at.number.load(Relaxed);
    match thread.recent.last_or_recent(number) {
        Some(entry) => match (Counted { entry, number }).is_more_than_a_count(at, role) {
            false => 0,
            true => acquired_more(at, thread, entry, role),
        },
        None => acquired_anew(at, thread, role),
    }
}

/// Counts a release that is about to be made, if that is all there is to do. If not, nothing is
/// counted yet.
#[inline(always)]
pub(crate) fn releases_at_once(at: &Lock, thread: &Thread) -> bool {
    let role = if is_owned(at.owner().load(Relaxed)) { WRITE } else { READ };
    releases_at_once_as(at, thread, role)
}

/// The same for a caller that knows the role.
#[inline(always)]
pub(crate) fn releases_at_once_as(at: &Lock, thread: &Thread, role: usize) -> bool {
    if thread.is_measuring() {
        return false;
    }
    let number = at.number.load(Relaxed);
    let Some(entry) = thread.recent.last_or_recent(number) else { return false };
    // Who does not hold it may get an error.
    let is_held = entry.acquired[role].load(Relaxed) as u32 != entry.released[role].load(Relaxed);
    if is_held {
        Counted { entry, number }.releases(role);
    }
    is_held
}

/// A release that [`releases_at_once`] counted was refused: another thread had released what this one
/// acquired.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn was_not_held(at: &Lock, role: usize) {
    Thread::with(|thread| {
        if let Some(counted) = Counted::of(at, Mode::get(), thread) {
            counted.released(thread, role, false);
            counted.misused(role, Misuse::NotHeld);
        }
    });
}

#[cold]
#[inline(never)]
extern "C" fn acquired_more(
    at: &Lock,
    thread: &Thread,
    entry: &'static Entry,
    role: usize,
) -> c_int {
    Counted { entry, number: at.number.load(Relaxed) }.acquired_more(at, thread, role);
    0
}

#[inline(never)]
extern "C" fn acquired_anew(at: &Lock, thread: &Thread, role: usize) -> c_int {
    if let Some(counted) = Counted::of(at, Mode::get(), thread) {
        counted.acquired(at, thread, role);
    }
    0
}

// ---- waits under way ----

/// Where the thread with this page announces its waits; none if it has no page.
fn waiting(page: u32) -> Option<&'static layout::Waiting> {
    Some(&map()?.thread(page)?.waiting)
}

/// Writes in the file what the thread waits for. False if it could not, or if the thread waits already:
/// this is a signal's handler then.
fn announce(thread: &Thread, about: &layout::Waiting) -> bool {
    let Some(waiting) = waiting(thread.page.get()) else { return false };
    let turn = waiting.turn.load(Relaxed);
    if turn % 2 == 1 {
        return false;
    }
    // Whoever reads what follows, and not the turn behind it, sees that the last wait is over.
    fence(Release);
    waiting.lock.store(about.lock.load(Relaxed), Relaxed);
    waiting.role.store(about.role.load(Relaxed), Relaxed);
    waiting.holder.store(about.holder.load(Relaxed), Relaxed);
    waiting.since.store(about.since.load(Relaxed), Relaxed);
    let stack = about.stack.load(Relaxed);
    waiting.stack.store(stack, Relaxed);
    waiting.stack_before.store(about.stack_before.load(Relaxed), Relaxed);
    for (to, from) in waiting.passed.iter().zip(&about.passed) {
        to.store(from.load(Relaxed), Relaxed);
    }
    // Release pairs with the Acquire of the snapshot.
    waiting.turn.store(turn.wrapping_add(1), Release);
    let lasts = about.since.load(Relaxed) + LASTS_NS;
    thread.place_wanted_at.set(if stack == 0 { lasts } else { 0 });
    true
}

/// The wait is over. Returns the place that it was at, 0 if nobody looked.
fn withdraw(thread: &Thread) -> u32 {
    thread.place_wanted_at.set(0);
    let Some(waiting) = waiting(thread.page.get()) else { return 0 };
    let turn = waiting.turn.load(Relaxed);
    if turn % 2 == 1 {
        waiting.turn.store(turn.wrapping_add(1), Release);
    }
    waiting.stack.load(Relaxed)
}

/// When the thread is to look where it waits, CLOCK_MONOTONIC, ns; none if it does not wait, or if that
/// is known.
#[inline]
pub(crate) fn place_wanted_at() -> Option<u64> {
    Some(Thread::with(|thread| thread.place_wanted_at.get())).filter(|at| *at != 0)
}

/// Waits in two parts, the first of which ends with `ETIMEDOUT` at a time of CLOCK_MONOTONIC: in between
/// the thread notes where it waits, if nobody knows.
pub(crate) fn in_two_parts(
    first: impl FnOnce(&libc::timespec) -> c_int,
    rest: impl FnOnce() -> c_int,
) -> c_int {
    if let Some(lasts) = place_wanted_at() {
        const SECOND: u64 = 1_000_000_000;
        let until = libc::timespec {
            tv_sec: (lasts / SECOND) as libc::time_t,
            tv_nsec: (lasts % SECOND) as libc::c_long,
        };
        match first(&until) {
            libc::ETIMEDOUT => note_place_of_wait(),
            code => return code,
        }
    }
    rest()
}

/// Notes where the thread waits. Nothing comes later for that but by a wake-up in these
/// microseconds.
#[cold]
pub(crate) fn note_place_of_wait() {
    let page = Thread::with(|thread| {
        thread.place_wanted_at.set(0);
        thread.page.get()
    });
    let (Some(map), Some(waiting)) = (map(), waiting(page)) else { return };
    if let Some(place) = stacks::place(map, &Frames::here()) {
        // Release pairs with the Acquire of the snapshot: the stack is complete.
        waiting.stack.store(place + 1, Release);
    }
}

/// What a wait can end with.
pub(crate) trait Ending {
    fn is_acquired(&self) -> bool;
}

impl<T, E> Ending for Result<T, E> {
    fn is_acquired(&self) -> bool {
        self.is_ok()
    }
}

impl Ending for libc::c_int {
    fn is_acquired(&self) -> bool {
        *self == 0
    }
}

/// Of one thread's histogram.
fn record(histogram: &Histogram, ns: u64) {
    map::add(&histogram.count, 1);
    map::add(&histogram.sum, ns);
    histogram.max.store(ns.max(histogram.max.load(Relaxed)), Relaxed);
    let bucket = &histogram.buckets[bucket(ns)];
    bucket.store(bucket.load(Relaxed).wrapping_add(1), Relaxed);
}

fn note_site(details: &Details, stack: u32, role: usize, ns: u64) {
    let is_it = |site: &&layout::Site| {
        let found = site.stack.load(Relaxed);
        found == 0 || found == stack && site.role.load(Relaxed) as usize == role
    };
    let site = details.sites.iter().find(is_it).unwrap_or(&details.sites[SITES - 1]);
    if site.stack.load(Relaxed) == 0 {
        site.role.store(role as u32, Relaxed);
        // Release pairs with the Acquire of the snapshot.
        site.stack.store(stack, Release);
    }
    map::add(&site.waits.count, 1);
    map::add(&site.waits.ns, ns);
}

// ---- locks ----

fn is_shared(at: &Lock, mode: Mode) -> bool {
    if mode.choice() == Choice::Glibc { at.glibcs_is_shared() } else { at.is_shared() }
}

/// The lock has been initialised by this thread.
pub(crate) fn initialised(at: &Lock, mode: Mode) {
    let Some(map) = map() else { return };
    if is_shared(at, mode) {
        forget_shared(at);
    }
    number_of(map, at, mode, Origin::Initialised);
}

/// The lock is about to be destroyed.
pub(crate) fn destroyed(at: &Lock, mode: Mode) {
    let Some(map) = map() else { return };
    let number = match is_shared(at, mode) {
        true => forget_shared(at),
        false => at.number.load(Relaxed),
    };
    if number > OTHERS && number < LOCKS as u32 {
        map.locks()[number as usize].destroyed.store(monotonic_ns(), Relaxed);
    }
}

/// Its number, given to it now if it has none. Process-shared locks have one in each process, so
/// that does not stand in the lock.
#[cold]
fn number_of(map: &Map, at: &Lock, mode: Mode, origin: Origin) -> u32 {
    if is_shared(at, mode) {
        return shared_number(map, at, origin);
    }
    let number = new_number(map, at, origin, false);
    match at.number.compare_exchange(0, number, Relaxed, Relaxed) {
        Ok(_) => number,
        Err(found) => {
            // Another thread was faster; the place stays empty.
            map.locks()[number as usize].address.store(0, Relaxed);
            found
        }
    }
}

/// How a lock came to be known.
#[derive(Clone, Copy)]
enum Origin {
    Initialised,
    /// For the first time; so it was initialised statically.
    Used,
}

fn new_number(map: &Map, at: &Lock, origin: Origin, is_shared: bool) -> u32 {
    let locks = &map.header().locks;
    let Some(number) = map.new_place::<layout::Lock>(locks, LOCKS_AT, LOCKS) else {
        return OTHERS;
    };
    let lock = &map.locks()[number as usize];
    lock.since.store(monotonic_ns(), Relaxed);
    lock.kind.store(at.kind() as u32, Relaxed);
    lock.is_shared.store(is_shared.into(), Relaxed);
    // SAFETY: a plain call.
    lock.made_by[0].store(unsafe { libc::getpid() } as u32, Relaxed);
    lock.made_by[1].store(Thread::with(Thread::tid), Relaxed);
    let place = stacks::place(map, &Frames::here()).map_or(0, |place| place + 1);
    match origin {
        Origin::Initialised => lock.initialised_at.store(place, Relaxed),
        Origin::Used => lock.first_used_at.store(place, Relaxed),
    }
    // Release pairs with the Acquire of the snapshot.
    lock.address.store(ptr::from_ref(at).addr() as u64, Release);
    number
}

/// Process-shared locks by address; the number in the upper sixteen bits, which no address has.
static SHARED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
const ADDRESS: u64 = (1 << 48) - 1;

fn shared_number(map: &Map, at: &Lock, origin: Origin) -> u32 {
    let address = ptr::from_ref(at).addr() as u64 & ADDRESS;
    for place in &SHARED {
        match place.load(Relaxed) {
            0 => {
                let number = new_number(map, at, origin, true);
                let entry = u64::from(number) << 48 | address;
                if place.compare_exchange(0, entry, Relaxed, Relaxed).is_ok() {
                    return number;
                }
            }
            entry if entry & ADDRESS == address => return (entry >> 48) as u32,
            _ => {}
        }
    }
    OTHERS
}

/// The number that the lock at this address had, 0 if none.
fn forget_shared(at: &Lock) -> u32 {
    let address = ptr::from_ref(at).addr() as u64 & ADDRESS;
    for place in &SHARED {
        let entry = place.load(Relaxed);
        if entry & ADDRESS == address && entry != 0 {
            // An address that no lock has keeps the place, so that those behind are found.
            let _ = place.compare_exchange(entry, 1, Relaxed, Relaxed);
            return (entry >> 48) as u32;
        }
    }
    0
}

// ---- threads ----

#[inline]
fn entry(map: &'static Map, thread: &Thread, number: u32) -> Option<&'static Entry> {
    let counts = map.known_thread(page_of(map, thread)?);
    let number = number as usize;
    let slot = counts.pages.get(number / ENTRIES)?;
    let page = match slot.load(Relaxed) {
        0 => {
            let page = map.new_page()?;
            // Release pairs with the Acquire of the snapshot.
            slot.store(page, Release);
            page
        }
        page => page,
    };
    map.entries(page)?.get(number % ENTRIES)
}

/// The thread's page; none if there is no room.
#[inline]
pub(crate) fn page_of(map: &Map, thread: &Thread) -> Option<u32> {
    match thread.page.get() {
        0 => new_thread(map, thread),
        page => Some(page),
    }
}

#[cold]
fn new_thread(map: &Map, thread: &Thread) -> Option<u32> {
    let page = ended_thread(map).or_else(|| {
        let place = map.new_place::<u32>(&map.header().threads, THREADS_AT, THREADS)?;
        let page = map.new_page()?;
        map.threads()[place as usize].store(page, Release);
        Some(page)
    });
    let Some(page) = page else {
        if !thread.has_ended.get() {
            map.header().uncounted_threads.fetch_add(1, Relaxed);
        }
        return None;
    };
    let counts = map.thread(page)?;
    store_name(&counts.name);
    counts.tid.store(thread.tid(), Relaxed);
    // SAFETY: a plain call.
    let pid = unsafe { libc::getpid() } as u32;
    counts.pid.store(pid, Relaxed);
    if pid != map.header().pid.load(Relaxed) {
        map.header().is_shared_by_fork.store(1, Relaxed);
    }
    counts.lives.store(counts.lives.load(Relaxed).wrapping_add(1), Relaxed);
    thread.page.set(page);
    // Without that the place is not used again, no more.
    let _ = start::will_tell_its_end(thread);
    Some(page)
}

/// The calling thread's.
pub(crate) fn store_name(places: &[AtomicU64; 2]) {
    let mut name = [0u8; 16];
    // SAFETY: sixteen bytes, as many as the call writes.
    keeping_errno(|| unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) });
    for (place, half) in places.iter().zip(name.chunks_exact(8)) {
        place.store(u64::from_ne_bytes(half.try_into().expect("eight bytes")), Relaxed);
    }
}

const ONE_TAKEN: u64 = 1 << 32;

/// The place of a thread that has ended.
fn ended_thread(map: &Map) -> Option<u32> {
    let list = &map.header().ended_threads;
    // Acquire pairs with the Release in `thread_ends`.
    let mut head = list.load(Acquire);
    loop {
        let page = head as u32;
        // None at 0, the end of the list.
        let next = map.thread(page)?.next_ended.load(Relaxed);
        let rest = (head & !(ONE_TAKEN - 1)).wrapping_add(ONE_TAKEN) | u64::from(next);
        match list.compare_exchange_weak(head, rest, Acquire, Acquire) {
            Ok(_) => return Some(page),
            Err(found) => head = found,
        }
    }
}

/// The thread has come to its end: another may go on in its place, unless it holds a lock, which
/// nobody could tell from what the other holds then.
pub(crate) fn thread_ends(thread: &Thread) {
    let page = thread.page.replace(0);
    thread.recent.forget();
    thread.measured.set(0);
    let Some(map) = map() else { return };
    let Some(counts) = map.thread(page) else { return };
    let turn = counts.waiting.turn.load(Relaxed);
    // It left a wait without coming back from it.
    counts.waiting.turn.store(turn.wrapping_add(turn % 2), Relaxed);
    if holds_any(map, counts) {
        return counts.left_holds.store(1, Relaxed);
    }
    counts.tid.store(0, Relaxed);
    let list = &map.header().ended_threads;
    let mut head = list.load(Relaxed);
    loop {
        counts.next_ended.store(head as u32, Relaxed);
        let first = head & !(ONE_TAKEN - 1) | u64::from(page);
        // Release pairs with the Acquire in `ended_thread`: what this thread counted.
        match list.compare_exchange_weak(head, first, Release, Relaxed) {
            Ok(_) => return,
            Err(found) => head = found,
        }
    }
}

/// Whether a thread has acquired some lock more often than it released it.
fn holds_any(map: &Map, thread: &layout::Thread) -> bool {
    let pages = thread.pages.iter().filter_map(|page| map.entries(page.load(Relaxed)));
    let holds = |entry: &Entry| {
        let acquired = entry.acquired.iter().map(|count| count.load(Relaxed) as u32);
        let released = entry.released.iter().map(|count| count.load(Relaxed));
        acquired.zip(released).any(|(acquired, released)| acquired != released)
    };
    pages.flatten().any(holds)
}

/// The process exits in order. The thread that does so stays in the file as it is: it may hold what
/// others wait for. A process that was forked off has no file of its own, and leaves its place.
pub(crate) fn process_ends(thread: &Thread) {
    let Some(header) = map().map(Map::header) else { return };
    // SAFETY: a plain call.
    if header.pid.load(Relaxed) == unsafe { libc::getpid() } as u32 {
        header.ended.store(monotonic_ns(), Relaxed);
    } else {
        thread_ends(thread);
    }
}

/// The calling thread's context switches, involuntary ones in the upper half.
pub(crate) fn switches() -> u64 {
    // SAFETY: zero is a value of it.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: `usage` lives.
    keeping_errno(|| unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) });
    (usage.ru_nivcsw as u64) << 32 | usage.ru_nvcsw as u64 & 0xffff_ffff
}

/// Good enough to choose samples by: a program's period does not hide from it.
fn random() -> u32 {
    static STATE: AtomicU32 = AtomicU32::new(0x9e37_79b9);
    // Threads that read the same number sample alike, no more. xorshift (Marsaglia, 2003).
    let mut state = STATE.load(Relaxed);
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    STATE.store(state, Relaxed);
    state
}

/// In the child of a `fork`, where the calling thread is another one.
pub(crate) fn forked(thread: &Thread) {
    thread.page.set(0);
    thread.place_wanted_at.set(0);
    thread.recent.forget();
    thread.measured.set(0);
}
