//! Calls of the C library's lock functions, for a few ms at a time: also those that find their lock free.
//!
//! The kernel puts a breakpoint at the beginning and at the end of each function. A call then takes many times as long. So
//! this part is recorded only on demand, only in the processes that were named, and for a few ms of each second.
//!
//! Invariants
//! 1. Each event of a breakpoint is open for a thread. An event that were open for all threads of a CPU would make the kernel
//!    set the breakpoint in every process that uses the library.
//! 2. For each breakpoint, this process holds an event of its own. While a breakpoint has any, its last event in another
//!    process is closed in less than a ms; without one, the kernel would wait for all CPUs, 10 to 100 ms for each breakpoint,
//!    while others are still set.
//! 3. The time from opening the first event to having closed the last one is what counts.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fairlock_counts::regular;
use object::{Object, ObjectSegment, ObjectSymbol, ReadCache};
use perf_event::Counter;
use perf_event::data::{Sample, SampleRegsAbi};

use super::super::recorded::{LockCall, Part, What};
use super::budget::{Budget, Limits};
use super::census::{processes, threads};
use super::clock::now_ns;
use super::closing::Closing;
use super::kept::{Kept, Seen, Sight};
use super::rings::{Kind, Opened, Rings, Wanted};
use super::tracepoint::{Breakpoints, Tracefs};
use super::unwinding::Registers;
use super::windows::Windows;

/// What it may cost: ns of each CPU. 1 % of its time.
const LIMITS: Limits = Limits { per_second: 1e7, most: 2e7, worthwhile: 5e6 };
/// What a breakpoint takes beyond its record where that cannot be measured, ns: the kernel is entered twice, and the
/// instruction is run elsewhere.
const BREAKPOINT_NS: f64 = 3000.0;
/// A window is over after so long, ns.
const LONGEST_NS: u64 = 8_000_000;
/// The pause after breakpoints were there is so many times as long, so that they are there for 20 ms of each second.
const PAUSE: u64 = 49;
/// Threads whose calls are traced: each one needs an event for each breakpoint.
const MOST_THREADS: usize = 128;
/// Files of C libraries: containers have their own.
const MOST_FILES: usize = 8;
/// What is copied of the caller's stack.
const STACK_BYTES: u32 = 1024;

/// Functions and what they are.
const FUNCTIONS: [(&str, LockCall); 14] = [
    ("pthread_rwlock_rdlock", LockCall::ReadLock),
    ("pthread_rwlock_timedrdlock", LockCall::ReadLock),
    ("pthread_rwlock_clockrdlock", LockCall::ReadLock),
    ("pthread_rwlock_wrlock", LockCall::WriteLock),
    ("pthread_rwlock_timedwrlock", LockCall::WriteLock),
    ("pthread_rwlock_clockwrlock", LockCall::WriteLock),
    ("pthread_rwlock_tryrdlock", LockCall::TryReadLock),
    ("pthread_rwlock_trywrlock", LockCall::TryWriteLock),
    ("pthread_rwlock_unlock", LockCall::Unlock),
    ("pthread_mutex_lock", LockCall::MutexLock),
    ("pthread_mutex_timedlock", LockCall::MutexLock),
    ("pthread_mutex_clocklock", LockCall::MutexLock),
    ("pthread_mutex_trylock", LockCall::MutexTryLock),
    ("pthread_mutex_unlock", LockCall::MutexUnlock),
];

/// The first function's calls begin; its calls end; the second function's calls begin, and so on to the
/// highest numbers.
pub const FIRST: Kind = 10;
/// The argument's register, and those that calls are followed with.
#[cfg(target_arch = "x86_64")]
const AT_BEGIN: u64 = 1 << 5 | Registers::WANTED;
/// The argument's register, and those that calls are followed with.
#[cfg(target_arch = "aarch64")]
const AT_BEGIN: u64 = 1 | Registers::WANTED;
/// The result's register.
const AT_END: u64 = 1;

/// This part of the recording.
pub struct LockCalls {
    probes: Vec<Probe>,
    opened: Vec<Opened>,
    /// Of this process, one for each probe.
    held: Vec<Counter>,
    /// What the probes are made of, removed last.
    breakpoints: Option<Breakpoints>,
    /// What it may still cost.
    pub budget: Budget,
    /// What a breakpoint takes beyond its record, ns.
    pub breakpoint_ns: f64,
    /// Records of this window,
    hits: u64,
    /// and what breakpoints took the programs in all of them, ns.
    taken_ns: f64,
    /// The first breakpoint was there from then on,
    began_ns: u64,
    /// and all from then on.
    opened_ns: u64,
    /// Breakpoints were there until then.
    removed_ns: u64,
}

/// A breakpoint's tracepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Probe {
    tracepoint: u64,
    kind: Kind,
}

/// A function in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// As a place in [`FUNCTIONS`].
    function: usize,
    file: PathBuf,
    offset: u64,
}

impl Place {
    /// Defines the function's breakpoints.
    fn define(&self, tracefs: &Tracefs, breakpoints: &mut Breakpoints) -> io::Result<Vec<Probe>> {
        let kind = FIRST + 2 * self.function as Kind;
        // How long it takes to unlock does not matter, so nobody looks when that ends.
        let unlocks =
            matches!(FUNCTIONS[self.function].1, LockCall::Unlock | LockCall::MutexUnlock);
        let ends: &[(Kind, bool)] =
            if unlocks { &[(kind, false)] } else { &[(kind + 1, true), (kind, false)] };
        let probe = |&(kind, at_end): &(Kind, bool)| {
            let name = breakpoints.define(&self.file, self.offset, at_end)?;
            Ok(Probe { tracepoint: tracefs.tracepoint(&name)?.id, kind })
        };
        ends.iter().map(probe).collect()
    }
}

impl LockCalls {
    /// Looks for C libraries and defines breakpoints; none is set yet.
    ///
    /// # Errors
    /// The kernel has no breakpoints in programs, or this process may not define any.
    pub fn new(tracefs: &Tracefs, kept: &mut Kept, cpus: usize) -> io::Result<LockCalls> {
        let mut breakpoints = tracefs.breakpoints()?;
        let mut seen = HashSet::new();
        let mut probes = Vec::new();
        for pid in processes(kept) {
            for path in libraries(pid) {
                if seen.len() < MOST_FILES
                    && let Ok(metadata) = fs::metadata(&path)
                    && seen.insert((metadata.dev(), metadata.ino()))
                {
                    for place in places(&path).unwrap_or_default() {
                        probes.extend(place.define(tracefs, &mut breakpoints)?);
                    }
                }
            }
        }
        if probes.is_empty() {
            kept.note(
                "Calls of lock functions were not traced: none of the processes uses a C library that has them.".to_owned(),
            );
        }
        let plain_ns = call_ns();
        let held: io::Result<Vec<Counter>> =
            probes.iter().map(|probe| Rings::hold(probe.tracepoint)).collect();
        Ok(LockCalls {
            breakpoint_ns: breakpoint_ns(plain_ns, call_ns()),
            probes,
            opened: Vec::new(),
            held: held?,
            hits: 0,
            taken_ns: 0.0,
            breakpoints: Some(breakpoints),
            budget: Budget::new(LIMITS, cpus, now_ns()),
            began_ns: 0,
            opened_ns: 0,
            removed_ns: 0,
        })
    }

    /// Removes all breakpoints and their definitions, after their records were read.
    pub fn end(mut self, rings: &mut Rings, closing: &Closing) {
        self.close(rings);
        closing.close(std::mem::take(&mut self.held));
        closing.close(self.breakpoints.take());
    }

    /// Whether a window is to begin now.
    pub fn is_time(&self, now_ns: u64) -> bool {
        now_ns >= next_ns(self.began_ns, self.removed_ns)
            && self.budget.allows_a_window()
            && !self.probes.is_empty()
    }

    /// Whether the window is to end now.
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.opened_ns + LONGEST_NS || self.budget.is_spent()
    }

    /// Begins a window.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn open(
        &mut self,
        rings: &mut Rings,
        windows: &mut Windows,
        kept: &mut Kept,
    ) -> io::Result<()> {
        let at_begin =
            Wanted { registers: AT_BEGIN, stack_bytes: STACK_BYTES, ..Wanted::default() };
        let at_end = Wanted { registers: AT_END, ..Wanted::default() };
        let mut threads: Vec<u32> = processes(kept).into_iter().flat_map(threads).collect();
        if threads.len() > MOST_THREADS {
            kept.note(format!(
                "Calls of lock functions were traced in {MOST_THREADS} threads only, of the {} that the processes have.",
                threads.len()
            ));
            threads.truncate(MOST_THREADS);
        }
        // Rings first, while there is no breakpoint yet.
        threads = unless_ended(threads, |tid| rings.add_thread(tid).map(|()| tid))?;
        self.began_ns = now_ns();
        // Beginnings first: where a call's end has a breakpoint, its caller is hidden, and only the record of its beginning
        // has it.
        let (begins, ends): (Vec<&Probe>, Vec<&Probe>) =
            self.probes.iter().partition(|probe| (probe.kind - FIRST).is_multiple_of(2));
        for probe in begins.into_iter().chain(ends) {
            let wanted = if (probe.kind - FIRST).is_multiple_of(2) { at_begin } else { at_end };
            let open = |&tid: &u32| rings.open_in_thread(probe.kind, probe.tracepoint, wanted, tid);
            self.opened.extend(unless_ended(threads.iter(), open)?);
        }
        // Ends first, so that each call that is seen to begin can be seen to end.
        self.opened.iter_mut().rev().try_for_each(|opened| rings.enable(opened))?;
        self.opened_ns = now_ns();
        windows.open(Part::Calls, self.opened_ns);
        Ok(())
    }

    /// Ends the window and removes the breakpoints. What was recorded is in the rings.
    pub fn stop(&mut self, windows: &mut Windows) {
        windows.close(Part::Calls, now_ns());
        self.opened.iter_mut().for_each(Opened::disable);
        self.opened.iter_mut().rev().for_each(Opened::release);
        self.removed_ns = now_ns();
    }

    /// Forgets the window's events, after their records were read up to then.
    pub fn close(&mut self, rings: &mut Rings) {
        self.opened.iter_mut().for_each(Opened::release);
        self.removed_ns = self.removed_ns.max(self.began_ns);
        let stopped_ns = self.opened.iter().filter_map(|opened| rings.stopped_ns(opened)).min();
        let hits = std::mem::take(&mut self.hits);
        self.taken_ns += self.breakpoint_ns
            * hits_in_all(
                hits,
                self.opened_ns..stopped_ns.unwrap_or(self.opened_ns + LONGEST_NS),
                self.began_ns..self.removed_ns,
            );
        std::mem::take(&mut self.opened).iter().for_each(|opened| rings.forget(opened));
        rings.close_threads();
    }

    /// What breakpoints took the programs beyond the records since the last call, ns.
    pub fn take_taken_ns(&mut self) -> u64 {
        std::mem::take(&mut self.taken_ns) as u64
    }

    /// Its events.
    pub fn events(&self) -> impl Iterator<Item = &Opened> {
        self.opened.iter()
    }

    /// What a record says; none if the report is not about its process.
    pub fn seen(&mut self, kind: Kind, sample: &Sample, kept: &mut Kept) -> Option<Seen> {
        if !kept.is_about(sample.pid()?) {
            return None;
        }
        self.hits += 1;
        let place = kind - FIRST;
        let (_, function) = *FUNCTIONS.get(place as usize / 2)?;
        let registers = sample.regs_user().filter(|it| it.abi == SampleRegsAbi::ABI_64)?;
        // The argument's register comes first on x86-64 and on Arm, and so does the result's.
        let &first = registers.regs.first()?;
        let what = if place.is_multiple_of(2) {
            // The innermost call is the function itself.
            let stack = kept.user_stack(sample, Registers::of(registers.regs.get(1..)?), 1);
            What::CallBegins { function, lock: first, stack }
        } else {
            What::CallEnds { function, result: first as i32 }
        };
        kept.seen(sample, Sight::Event(what))
    }
}

/// When the next window may begin after breakpoints were there in this time.
fn next_ns(began_ns: u64, removed_ns: u64) -> u64 {
    removed_ns + removed_ns.saturating_sub(began_ns) * PAUSE
}

/// How often breakpoints were hit while they were there, from the hits that were recorded for a part of that time.
fn hits_in_all(hits: u64, recorded: Range<u64>, there: Range<u64>) -> f64 {
    let length = |range: &Range<u64>| range.end.saturating_sub(range.start) as f64;
    let recorded = recorded.start..recorded.end.min(there.end);
    match length(&recorded) {
        0.0 => hits as f64,
        recorded => hits as f64 * (length(&there) / recorded).max(1.0),
    }
}

/// What a pair of calls takes this thread now, ns.
fn call_ns() -> f64 {
    let mut lock = libc::PTHREAD_MUTEX_INITIALIZER;
    super::cost::fastest(&mut || {
        // SAFETY: the lock is initialized, does not move meanwhile and is this thread's alone.
        unsafe {
            libc::pthread_mutex_lock(&raw mut lock);
            libc::pthread_mutex_unlock(&raw mut lock);
        }
    })
}

/// What one breakpoint takes, from what a pair of calls took before they were set in this process and what it takes now. Such
/// a pair hits three.
fn breakpoint_ns(before_ns: f64, now_ns: f64) -> f64 {
    let measured = (now_ns - before_ns) / 3.0;
    // This process may have another C library than those that are traced.
    if measured > 100.0 { measured } else { BREAKPOINT_NS }
}

/// What `open` gives for each of these, without those threads that have ended meanwhile.
fn unless_ended<T, U>(
    threads: impl IntoIterator<Item = T>,
    mut open: impl FnMut(T) -> io::Result<U>,
) -> io::Result<Vec<U>> {
    let has_ended = |opened: &io::Result<U>| matches!(opened, Err(error) if error.raw_os_error() == Some(libc::ESRCH));
    threads.into_iter().map(&mut open).filter(|opened| !has_ended(opened)).collect()
}

/// The files of C libraries that a process has mapped, as this process can reach them.
fn libraries(pid: u32) -> Vec<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut found: Vec<PathBuf> = Vec::new();
    for line in maps.lines() {
        let Some(path) = line.find('/').map(|begin| &line[begin..]) else { continue };
        let name = path.rsplit('/').next().unwrap_or_default();
        if is_library(name) {
            let reached = PathBuf::from(format!("/proc/{pid}/root{path}"));
            if !found.contains(&reached) {
                found.push(reached);
            }
        }
    }
    found
}

/// Whether a file of this name is a C library, or the part of an older one that has its locks.
fn is_library(name: &str) -> bool {
    ["libc.so", "libc-2.", "libpthread.so", "libpthread-2.", "ld-musl-"]
        .iter()
        .any(|it| name.starts_with(it))
}

/// Where the functions are in this file.
fn places(path: &Path) -> Option<Vec<Place>> {
    let cache = ReadCache::new(regular::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let segments: Vec<(u64, u64, u64)> = file
        .segments()
        .map(|segment| (segment.address(), segment.size(), segment.file_range().0))
        .collect();
    let mut places: Vec<Place> = Vec::new();
    for symbol in file.dynamic_symbols().filter(|symbol| symbol.is_definition()) {
        let Some(function) =
            symbol.name().ok().and_then(|name| FUNCTIONS.iter().position(|(it, _)| *it == name))
        else {
            continue;
        };
        let address = symbol.address();
        let inside = |&&(start, size, _): &&(u64, u64, u64)| address.wrapping_sub(start) < size;
        let Some((start, _, in_file)) = segments.iter().find(inside) else { continue };
        let offset = address - start + in_file;
        // One function has several versions of its name.
        if !places.iter().any(|place| place.offset == offset) {
            places.push(Place { function, file: path.to_owned(), offset });
        }
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpoints_are_there_for_20_ms_of_each_second() {
        const MS: u64 = 1_000_000;
        assert_eq!(next_ns(0, 0), 0);
        assert_eq!(next_ns(1000 * MS, 1020 * MS), 2000 * MS);
        // Those that were slow to go are paid for.
        assert_eq!(next_ns(1000 * MS, 1100 * MS), 6000 * MS);
    }

    #[test]
    fn hits_outside_of_the_recorded_time_are_estimated() {
        assert_eq!(hits_in_all(100, 20..30, 10..40), 300.0);
        assert_eq!(hits_in_all(100, 20..90, 10..40), 150.0);
        assert_eq!(hits_in_all(100, 20..20, 10..40), 100.0);
    }

    #[test]
    fn the_price_is_measured_where_this_process_has_the_breakpoints() {
        assert_eq!(breakpoint_ns(20.0, 9020.0), 3000.0);
        assert_eq!(breakpoint_ns(20.0, 21.0), BREAKPOINT_NS);
    }

    #[test]
    fn threads_that_have_ended_are_left_out() {
        let open = |tid: u32| match tid {
            1 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            2 => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            _ => Ok(tid),
        };
        assert_eq!(unless_ended([0, 1, 3], open).unwrap(), [0, 3]);
        assert_eq!(unless_ended([0, 1, 2], open).unwrap_err().raw_os_error(), Some(libc::EMFILE));
    }

    #[test]
    fn c_libraries_are_known_by_their_names() {
        for name in ["libc.so.6", "libc-2.31.so", "libpthread-2.31.so", "ld-musl-x86_64.so.1"] {
            assert!(is_library(name), "{name}");
        }
        for name in ["libcrypto.so.3", "libc++.so.1", "libcap.so.2", "ld-linux-x86-64.so.2"] {
            assert!(!is_library(name), "{name}");
        }
    }

    #[test]
    fn this_processes_own_lock_functions_are_found() {
        let found: Vec<Place> = libraries(std::process::id())
            .iter()
            .filter_map(|path| places(path))
            .flatten()
            .collect();
        for name in ["pthread_rwlock_wrlock", "pthread_mutex_unlock"] {
            assert!(
                found.iter().any(|place| FUNCTIONS[place.function].0 == name),
                "{name}: {found:?}"
            );
        }
    }
}
