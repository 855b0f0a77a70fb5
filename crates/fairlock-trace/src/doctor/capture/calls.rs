//! Calls of the C library's lock functions, for a few ms at a time: also those that find their lock free.
//!
//! The kernel puts a breakpoint at the beginning and at the end of each function. A call then takes some µs longer, in every
//! process that uses the library. So this part is recorded only on demand.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fairlock_counts::regular;
use object::{Object, ObjectSegment, ObjectSymbol, ReadCache};
use perf_event::data::{Sample, SampleRegsAbi};

use super::super::recorded::{LockCall, Part, What};
use super::budget::{Budget, Limits};
use super::census::processes;
use super::kept::{Kept, Seen, Sight};
use super::now_ns;
use super::rings::{Kind, Opened, Rings, Source, Wanted};
use super::unwinding::Registers;
use super::windows::Windows;

/// What it may cost: ns of each CPU. 1 % of its time.
const LIMITS: Limits = Limits { per_second: 1e7, most: 2e7, worthwhile: 5e6 };
/// What a breakpoint takes beyond its record, ns: the kernel is entered twice, and the instruction is run elsewhere.
pub const BREAKPOINT_NS: f64 = 2000.0;
/// A window is over after so long, ns,
const LONGEST_NS: u64 = 50_000_000;
/// and the next one begins no earlier than so long after it has begun.
const EVERY_NS: u64 = 1_000_000_000;
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

/// The first function's calls begin; its calls end; the second function's calls begin, and so on.
pub const FIRST: Kind = 100;
/// The last of these kinds.
pub const LAST: Kind = FIRST + 2 * FUNCTIONS.len() as Kind - 1;

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
    /// The number that the kernel gives to events that are breakpoints in programs.
    kind: u32,
    probes: Vec<Probe>,
    opened: Vec<Opened>,
    /// What it may still cost.
    pub budget: Budget,
    began_ns: u64,
}

/// A function in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Probe {
    /// As a place in [`FUNCTIONS`].
    function: usize,
    file: PathBuf,
    offset: u64,
}

impl Probe {
    fn source(&self, kind: u32, at_end: bool) -> io::Result<Source> {
        let file = CString::new(self.file.as_os_str().as_bytes())?;
        Ok(Source::Probe { kind, file, offset: self.offset, at_end })
    }
}

impl LockCalls {
    /// Looks for C libraries; opens nothing yet.
    ///
    /// # Errors
    /// The kernel has no breakpoints in programs.
    pub fn new(kept: &mut Kept, cpus: usize) -> io::Result<LockCalls> {
        let kind = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
        let kind = kind.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let mut seen = HashSet::new();
        let mut probes = Vec::new();
        for pid in processes(kept) {
            for path in libraries(pid) {
                if seen.len() < MOST_FILES
                    && let Ok(metadata) = fs::metadata(&path)
                    && seen.insert((metadata.dev(), metadata.ino()))
                {
                    probes.extend(self::probes(&path).unwrap_or_default());
                }
            }
        }
        if probes.is_empty() {
            kept.note(
                "Calls of lock functions were not traced: none of the processes uses a C library that has them.".to_owned(),
            );
        }
        let budget = Budget::new(LIMITS, cpus, now_ns());
        Ok(LockCalls { kind, probes, opened: Vec::new(), budget, began_ns: 0 })
    }

    /// Whether a window is to begin now.
    pub fn is_time(&self, now_ns: u64) -> bool {
        let is_time = self.began_ns == 0 || now_ns >= self.began_ns + EVERY_NS;
        is_time && self.budget.allows_a_window() && !self.probes.is_empty()
    }

    /// Whether the window is to end now.
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.began_ns + LONGEST_NS || self.budget.is_spent()
    }

    /// Begins a window.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn open(&mut self, rings: &mut Rings, windows: &mut Windows) -> io::Result<()> {
        let at_begin =
            Wanted { registers: AT_BEGIN, stack_bytes: STACK_BYTES, ..Wanted::default() };
        let at_end = Wanted { registers: AT_END, ..Wanted::default() };
        for probe in &self.probes {
            let kind = FIRST + 2 * probe.function as Kind;
            // How long it takes to unlock does not matter, so nobody looks when that ends.
            if !matches!(FUNCTIONS[probe.function].1, LockCall::Unlock | LockCall::MutexUnlock) {
                self.opened.push(rings.open(
                    kind + 1,
                    &probe.source(self.kind, true)?,
                    at_end,
                    None,
                )?);
            }
            self.opened.push(rings.open(kind, &probe.source(self.kind, false)?, at_begin, None)?);
        }
        self.opened.iter_mut().try_for_each(Opened::enable)?;
        self.began_ns = now_ns();
        windows.open(Part::Calls, self.began_ns);
        Ok(())
    }

    /// Ends the window. What was recorded is in the rings.
    pub fn stop(&mut self, windows: &mut Windows) {
        windows.close(Part::Calls, now_ns());
        self.opened.iter_mut().for_each(Opened::disable);
    }

    /// Closes the events, after their records were read.
    pub fn close(&mut self, rings: &mut Rings) {
        self.opened.drain(..).for_each(|opened| rings.close(opened));
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
        let what = if place % 2 == 0 {
            let stack = kept.user_stack(sample, Registers::of(registers.regs.get(1..)?));
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
fn probes(path: &Path) -> Option<Vec<Probe>> {
    let cache = ReadCache::new(regular::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let segments: Vec<(u64, u64, u64)> = file
        .segments()
        .map(|segment| (segment.address(), segment.size(), segment.file_range().0))
        .collect();
    let mut probes: Vec<Probe> = Vec::new();
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
        if !probes.iter().any(|probe| probe.offset == offset) {
            probes.push(Probe { function, file: path.to_owned(), offset });
        }
    }
    Some(probes)
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
        let found: Vec<Probe> = libraries(std::process::id())
            .iter()
            .filter_map(|path| probes(path))
            .flatten()
            .collect();
        for name in ["pthread_rwlock_wrlock", "pthread_mutex_unlock"] {
            assert!(
                found.iter().any(|probe| FUNCTIONS[probe.function].0 == name),
                "{name}: {found:?}"
            );
        }
    }
}
