//! What was done to which lock, for the report. Each thread counts in pages of its own, by plain stores.
//!
//! * Every acquisition is counted, and looks whether a thread waits. Most cost no more than that. If one
//!   waits, the acquisition is also counted in the lock, whose cache line the caller owns by then, so
//!   that waiters can tell how many passed them.
//! * Every release is counted, too, just before it happens: a lock that a thread has acquired more often
//!   than released is one that it holds.
//! * Waits are announced before the thread blocks, so that the file also shows a wait that never ends, and
//!   where. They are measured, and a sample of them is noted with the place of the call.
//! * One hold in 1024 on average is measured, after the lock was released again.
//!
//! Nothing of this is done between a request and a lock that could be had at once, and little
//! while the lock is held.

use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU32, fence};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::layout::{self, Details, Entry, Histogram, Misuse, READ, SITES, WRITE, bucket};
use crate::map::{self, monotonic_ns};
use crate::process::{self, ThisThread, map, switches};
use crate::recorder;
use crate::stacks::{self, Frames};

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
const LASTS_NS: u64 = 100_000_000;

/// Begins to count in a file in this directory, under locks of this name. False, with a message, if there can be none.
///
/// `own` is as in [`stacks::look_up`]. `thread_comes` is called for each thread that gets a place in the file, and has to
/// see to it that [`process::thread_ends`] is called when the thread ends; otherwise nobody else gets the place afterwards.
/// If threads call this at once, one of them decides.
pub fn begin(
    directory: &[u8],
    policy: &str,
    own: Option<*const ()>,
    thread_comes: fn(&ThisThread),
) -> bool {
    stacks::look_up(own);
    let path = Path::new(OsStr::from_bytes(directory));
    match process::begin(path, policy, HOLDS, thread_comes) {
        Ok(()) => true,
        // A program that was left behind by a run which is over: nobody would read its counts, and the
        // terminal is somebody else's by now.
        Err(error) if error.kind() == ErrorKind::NotFound && map::is_of_a_run(directory) => false,
        Err(_) => {
            process::say(&[
                b"fairlock: no counts of this process, as no file can be made in FAIRLOCK_COUNTS=",
                directory,
                b"\n",
            ]);
            false
        }
    }
}

/// What a lock has in itself for its counts. All zero in a lock that is new.
pub trait Lock {
    /// Threads that wait for it.
    fn waiters(&self) -> &AtomicU32;
    /// Acquisitions in this role while somebody waited.
    fn passed(&self, role: usize) -> &AtomicU32;
}

/// A thread and a lock: where what the one does to the other is counted.
#[derive(Clone, Copy)]
pub struct Counted {
    /// Where that is.
    pub entry: &'static Entry,
    /// The lock's.
    pub number: u32,
}

impl Counted {
    /// The lock was acquired.
    pub fn acquired(self, at: &impl Lock, thread: &ThisThread, role: usize) {
        if thread.acquired_uncounted(self.number, role) {
            return;
        }
        if self.is_more_than_a_count(at, role) {
            self.acquired_more(at, thread, role);
        }
    }

    /// Counts; what else is to be done then is rare. Not in a stretch of the thread that is not counted.
    #[inline(always)]
    pub fn is_more_than_a_count(self, at: &impl Lock, role: usize) -> bool {
        let entry = self.entry;
        let count = entry.acquired[role].load(Relaxed).wrapping_add(1);
        entry.acquired[role].store(count, Relaxed);
        // The latter always while a hold is measured.
        at.waiters().load(Relaxed) != 0 || count >= entry.next_measured[role].load(Relaxed)
    }

    /// What is rare then.
    #[cold]
    pub fn acquired_more(self, at: &impl Lock, thread: &ThisThread, role: usize) {
        if at.waiters().load(Relaxed) != 0 {
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
    fn measure(self, thread: &ThisThread, role: usize) {
        recorder::looks_for_window();
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
    pub fn releases(self, thread: &ThisThread, role: usize) {
        if thread.releases_uncounted(self.number, role) {
            return;
        }
        let released = &self.entry.released[role];
        released.store(released.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// The lock was released, and may be gone; or it could not be.
    pub fn released(self, thread: &ThisThread, role: usize, is_released: bool) {
        if thread.released_uncounted(self.number, role, is_released) {
            return;
        }
        if !is_released {
            let released = &self.entry.released[role];
            released.store(released.load(Relaxed).wrapping_sub(1), Relaxed);
        } else if self.entry.since.load(Relaxed) != 0 {
            self.measured(thread, role);
            // Else the thread has it once more.
            if self.entry.since.load(Relaxed) == 0 {
                recorder::may_stop_counting(thread);
            }
        }
    }

    fn measured(self, thread: &ThisThread, role: usize) {
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
    pub fn refused(self, role: usize) {
        let refused = &self.entry.refused[role];
        refused.store(refused.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// A call broke the lock's rules. Keeps the place of the first one of this thread and kind.
    #[cold]
    #[inline(never)]
    pub fn misused(self, role: usize, how: Misuse) {
        let (Some(details), Some(map)) = (self.details(), map()) else { return };
        let misused = &details.misused[role][how as usize];
        if misused.calls.load(Relaxed) == 0 {
            let place = stacks::place(map, &Frames::here());
            // Release pairs with the Acquire of the snapshot: the stack is complete.
            misused.first_at.store(place.map_or(0, |place| place + 1), Release);
        }
        map::add(&misused.calls, 1);
    }

    /// Waits for a lock that could not be had at once, since this role held it.
    #[cold]
    pub fn wait<R: Ending>(
        self,
        at: &impl Lock,
        thread: &ThisThread,
        role: usize,
        by_writer: bool,
        wait: impl FnOnce() -> R,
    ) -> R {
        recorder::looks_for_window();
        at.waiters().fetch_add(1, Relaxed);
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
        thread.recording.waits();
        let is_announced = announce(thread, &waiting);
        let ending = wait();
        let stack = if is_announced { withdraw(thread) } else { stack };
        let ns = monotonic_ns() - began;
        // The caller borrows the lock still, whether it has got it or not.
        at.waiters().fetch_sub(1, Relaxed);
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

/// Where the thread with this page announces its waits; none if it has no page.
fn waiting(page: u32) -> Option<&'static layout::Waiting> {
    Some(&map()?.thread(page)?.waiting)
}

/// Writes in the file what the thread waits for. False if it could not, or if the thread waits already:
/// this is a signal's handler then.
fn announce(thread: &ThisThread, about: &layout::Waiting) -> bool {
    let Some(waiting) = waiting(thread.known_page()) else { return false };
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
fn withdraw(thread: &ThisThread) -> u32 {
    thread.place_wanted_at.set(0);
    let Some(waiting) = waiting(thread.known_page()) else { return 0 };
    let turn = waiting.turn.load(Relaxed);
    if turn % 2 == 1 {
        waiting.turn.store(turn.wrapping_add(1), Release);
    }
    waiting.stack.load(Relaxed)
}

/// Notes where the calling thread waits. Nothing comes later for that but by a wake-up in these
/// microseconds.
#[cold]
pub fn note_place_of_wait(thread: &ThisThread) {
    thread.place_wanted_at.set(0);
    let (Some(map), Some(waiting)) = (map(), waiting(thread.known_page())) else { return };
    if let Some(place) = stacks::place(map, &Frames::here()) {
        // Release pairs with the Acquire of the snapshot: the stack is complete.
        waiting.stack.store(place + 1, Release);
    }
}

/// What a wait can end with.
pub trait Ending {
    /// The lock was acquired.
    fn is_acquired(&self) -> bool;
}

impl<T> Ending for Option<T> {
    fn is_acquired(&self) -> bool {
        self.is_some()
    }
}

impl<T, E> Ending for Result<T, E> {
    fn is_acquired(&self) -> bool {
        self.is_ok()
    }
}

/// An error number.
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
