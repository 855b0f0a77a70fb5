//! Calls of the C library's lock functions, for a few ms at a time: also those that find their lock free.
//!
//! The kernel puts a breakpoint at the beginning and at the end of each function. A call then takes some µs longer, in every
//! process that uses the library. So this part is recorded only on demand.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fairlock_counts::regular;
use object::{Object, ObjectSegment, ObjectSymbol, ReadCache};
use perf_event::data::{Sample, SampleRegsAbi};

use super::super::recorded::{LockCall, Part, What};
use super::budget::{Budget, Limits};
use super::census::processes;
use super::clock::now_ns;
use super::closing::Closing;
use super::kept::{Kept, Seen, Sight};
use super::rings::{Kind, Opened, Rings, Wanted};
use super::tracepoint::{Breakpoints, Tracefs};
use super::unwinding::Registers;
use super::windows::Windows;

/// What it may cost: ns of each CPU. 1 % of its time.
const LIMITS: Limits = Limits { per_second: 1e7, most: 2e7, worthwhile: 5e6 };
/// What a breakpoint takes beyond its record, ns: the kernel is entered twice, and the instruction is run elsewhere.
pub const BREAKPOINT_NS: f64 = 2000.0;
/// A window is over after so long, ns.
const LONGEST_NS: u64 = 300_000_000;
/// The pause after breakpoints were there is so many times as long. The kernel takes up to 100 ms to remove each of them.
const PAUSE: u64 = 5;
/// It is at least so long, ns.
const SHORTEST_PAUSE_NS: u64 = 1_000_000_000;
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
    /// What the probes are made of, removed last.
    breakpoints: Option<Breakpoints>,
    /// What it may still cost.
    pub budget: Budget,
    /// The first breakpoint was there from then on,
    began_ns: u64,
    /// and all from then on.
    opened_ns: u64,
    /// Breakpoints were there until then; none: they are.
    removed_ns: Option<u64>,
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
        // Ends first, so that each call that is seen to begin can be seen to end.
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
        Ok(LockCalls {
            probes,
            opened: Vec::new(),
            breakpoints: Some(breakpoints),
            budget: Budget::new(LIMITS, cpus, now_ns()),
            began_ns: 0,
            opened_ns: 0,
            removed_ns: Some(0),
        })
    }

    /// Removes all breakpoints and their definitions, after their records were read.
    pub fn end(mut self, rings: &mut Rings, closing: &Closing) {
        self.close(rings, closing);
        closing.close(self.breakpoints.take());
    }

    /// Whether a window is to begin now, where no event is being closed any more.
    pub fn is_time(&mut self, now_ns: u64) -> bool {
        let removed_ns = *self.removed_ns.get_or_insert(now_ns);
        let pause_ns = ((removed_ns - self.began_ns) * PAUSE).max(SHORTEST_PAUSE_NS);
        let is_time = self.began_ns == 0 || now_ns >= removed_ns + pause_ns;
        is_time && self.budget.allows_a_window() && !self.probes.is_empty()
    }

    /// Whether the window is to end now.
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.opened_ns + LONGEST_NS || self.budget.is_spent()
    }

    /// Begins a window.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn open(&mut self, rings: &mut Rings, windows: &mut Windows) -> io::Result<()> {
        let at_begin =
            Wanted { registers: AT_BEGIN, stack_bytes: STACK_BYTES, ..Wanted::default() };
        let at_end = Wanted { registers: AT_END, ..Wanted::default() };
        self.began_ns = now_ns();
        self.removed_ns = None;
        for probe in &self.probes {
            let wanted = if (probe.kind - FIRST).is_multiple_of(2) { at_begin } else { at_end };
            self.opened.push(rings.open(probe.kind, probe.tracepoint, wanted, None)?);
        }
        self.opened.iter_mut().try_for_each(|opened| rings.enable(opened))?;
        self.opened_ns = now_ns();
        windows.open(Part::Calls, self.opened_ns);
        Ok(())
    }

    /// Ends the window. What was recorded is in the rings.
    pub fn stop(&mut self, windows: &mut Windows) {
        windows.close(Part::Calls, now_ns());
        self.opened.iter_mut().for_each(Opened::disable);
    }

    /// Closes the events, after their records were read.
    pub fn close(&mut self, rings: &mut Rings, closing: &Closing) {
        let opened = std::mem::take(&mut self.opened);
        opened.iter().for_each(|opened| rings.forget(opened));
        closing.close(opened);
    }

    /// Its events.
    pub fn events(&self) -> impl Iterator<Item = &Opened> {
        self.opened.iter()
    }

    /// What a record says; none if the report is not about its process.
    pub fn seen(&self, kind: Kind, sample: &Sample, kept: &mut Kept) -> Option<Seen> {
        if !kept.is_about(sample.pid()?) {
            return None;
        }
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
