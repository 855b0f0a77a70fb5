//! What was done to which lock, for the report: when the functions count, and what. [`Counted`] does it.
//!
//! As there, no number that stands in the file is believed.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::ptr;

use fairlock_counts::counting::{self, Counted, note_place_of_wait};
use fairlock_counts::layout::{Entry, Misuse, OTHERS, READ, WRITE};
use fairlock_counts::map::Map;
use fairlock_counts::process::{self, Origin, ThisThread, map};
use libc::c_int;

use crate::lock::Lock;
use crate::modes::{Choice, Mode};
use crate::standstill::is_owned;
use crate::start;
use crate::thread::Thread;

/// Begins to count in a file there; false, with a message, if there can be none.
pub(crate) fn begin(directory: &[u8], policy: &str) -> bool {
    // Without a word at its end a thread's place is not used again, no more.
    let comes = |thread: &ThisThread| _ = start::will_tell_its_end(thread);
    counting::begin(directory, policy, Some(begin as *const ()), comes)
}

/// Where the thread counts what it does to this lock. None if there is no room. The process counts.
pub(crate) fn counted(at: &Lock, mode: Mode, thread: &Thread) -> Option<Counted> {
    // A process-shared lock has no number in itself.
    let number = at.number.load(Relaxed);
    match thread.counts.recent.find(number) {
        Some(entry) => Some(Counted { entry, number }),
        None => find(at, mode, thread),
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
    let entry = thread.counts.entry(map, number)?;
    if !is_shared {
        thread.counts.recent.keep(number, entry);
    }
    Some(Counted { entry, number })
}

impl fairlock_counts::counting::Lock for Lock {
    #[inline(always)]
    fn waiters(&self) -> &AtomicU32 {
        &self.waiters
    }
    #[inline(always)]
    fn passed(&self, role: usize) -> &AtomicU32 {
        Lock::passed(self, role)
    }
}

/// A lock was acquired without waiting. Returns 0, for a caller that does the same.
#[inline(always)]
pub(crate) fn acquired_at_once(at: &Lock, thread: &Thread, role: usize) -> c_int {
    let number = at.number.load(Relaxed);
    if thread.counts.acquired_uncounted(number, role) {
        return 0;
    }
    match thread.counts.recent.last_or_recent(number) {
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
    let number = at.number.load(Relaxed);
    if thread.counts.releases_uncounted(number, role) {
        return true;
    }
    if thread.counts.is_measuring() {
        return false;
    }
    let Some(entry) = thread.counts.recent.last_or_recent(number) else { return false };
    // Who does not hold it may get an error.
    let is_held = entry.acquired[role].load(Relaxed) as u32 != entry.released[role].load(Relaxed);
    if is_held {
        Counted { entry, number }.releases(&thread.counts, role);
    }
    is_held
}

/// A release that [`releases_at_once`] counted was refused: another thread had released what this one
/// acquired.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn was_not_held(at: &Lock, role: usize) {
    Thread::with(|thread| {
        if let Some(counted) = counted(at, Mode::get(), thread) {
            counted.released(&thread.counts, role, false);
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
    Counted { entry, number: at.number.load(Relaxed) }.acquired_more(at, &thread.counts, role);
    0
}

#[inline(never)]
extern "C" fn acquired_anew(at: &Lock, thread: &Thread, role: usize) -> c_int {
    if let Some(counted) = counted(at, Mode::get(), thread) {
        counted.acquired(at, &thread.counts, role);
    }
    0
}

// ---- waits under way ----

/// Waits in two parts, the first of which ends with `ETIMEDOUT` at a time of CLOCK_MONOTONIC: in between
/// the thread notes where it waits, if nobody knows.
pub(crate) fn in_two_parts(
    first: impl FnOnce(&libc::timespec) -> c_int,
    rest: impl FnOnce() -> c_int,
) -> c_int {
    if let Some(lasts) = Thread::with(|thread| thread.counts.place_wanted_at()) {
        const SECOND: u64 = 1_000_000_000;
        let until = libc::timespec {
            tv_sec: (lasts / SECOND) as libc::time_t,
            tv_nsec: (lasts % SECOND) as libc::c_long,
        };
        match first(&until) {
            libc::ETIMEDOUT => Thread::with(|thread| note_place_of_wait(&thread.counts)),
            code => return code,
        }
    }
    rest()
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
    process::lock_ends(map, number);
}

/// Its number, given to it now if it has none. Process-shared locks have one in each process, so
/// that does not stand in the lock.
#[cold]
fn number_of(map: &Map, at: &Lock, mode: Mode, origin: Origin) -> u32 {
    if is_shared(at, mode) {
        return shared_number(map, at, origin);
    }
    process::keep_number(map, &at.number, new_number(map, at, origin, false))
}

fn new_number(map: &Map, at: &Lock, origin: Origin, is_shared: bool) -> u32 {
    let (address, kind) = (ptr::from_ref(at).cast(), at.kind() as u32);
    Thread::with(|thread| process::new_lock(map, &thread.counts, address, origin, kind, is_shared))
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
