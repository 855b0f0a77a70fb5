//! What was recorded of a running system: plain values, in order of time.
//!
//! Addresses have their names already, so that a recording can be read on another machine. Times are ns of the clock
//! that the kernel recorded with (`CLOCK_MONOTONIC`), which need not be this machine's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::facts::Frame;

/// The module of a [`Frame`] in the kernel.
pub const KERNEL: &str = "kernel";

/// The lock's kind and the waiter's role, as the kernel's `lock:contention_begin` says them.
pub mod flags {
    /// A spin lock, or a mutex whose waiter still spins.
    pub const SPIN: u32 = 1;
    /// A shared acquisition.
    pub const READ: u32 = 2;
    /// An exclusive one.
    pub const WRITE: u32 = 4;
    /// A lock with priority inheritance.
    pub const RT: u32 = 8;
    /// A per-CPU rwsem.
    pub const PERCPU: u32 = 16;
    /// A mutex.
    pub const MUTEX: u32 = 32;
}

/// What was recorded of a system.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// Where and when.
    pub system: System,
    /// Threads by their numbers, as the kernel has them.
    pub threads: BTreeMap<u32, Thread>,
    /// Files that threads read or wrote.
    pub files: Vec<FileSeen>,
    /// All calls of all stacks.
    pub frames: Vec<Frame>,
    /// Calls, innermost first, as places in `frames`; those of the kernel come before the program's.
    pub stacks: Vec<Vec<u32>>,
    /// When what was recorded; what lies outside of them is not known. In order of their beginning.
    pub windows: Vec<Window>,
    /// What happened, in order of time.
    pub events: Vec<Event>,
    /// Records that the kernel had no space for.
    pub lost: u64,
    /// What recording cost.
    pub cost: Cost,
    /// What could not be recorded, and why, in sentences.
    pub notes: Vec<String>,
}

/// Where and when was recorded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct System {
    /// When recording began, as text.
    pub date: String,
    /// `6.18.44`; empty: not known.
    pub kernel: String,
    /// CPUs; 0: not known.
    pub cpus: u32,
    /// First and last moment, ns.
    pub from_ns: u64,
    /// See [`from_ns`](Self::from_ns).
    pub to_ns: u64,
    /// The processes that the report is to be about; empty: all.
    pub pids: Vec<u32>,
    /// Threads and processes that began meanwhile; 0 also where that was not seen.
    pub begun: u64,
}

/// A thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its process; 0: not known.
    pub pid: u32,
    /// Its name, as last seen.
    pub name: String,
    /// The program's path; empty: not known.
    pub program: String,
    /// 1 to 99 for a real-time thread, 0 for others.
    pub realtime_priority: u8,
    /// −20 to 19.
    pub nice: i8,
}

impl Thread {
    /// Its program without the folder, or its own name where the program is not known.
    pub fn program_name(&self) -> &str {
        let program = self.program.rsplit('/').next().unwrap_or_default();
        if program.is_empty() { &self.name } else { program }
    }
}

/// A file that a thread read or wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSeen {
    /// Its path when it was seen.
    pub path: String,
    /// What tells it from others.
    pub device: u64,
    /// See [`device`](Self::device).
    pub inode: u64,
    /// `ext4`, `xfs`, `tmpfs`; empty: not known.
    pub file_system: String,
    /// Opened with O_DIRECT.
    pub is_direct: bool,
}

/// What can be recorded by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Waits for locks of the kernel.
    KernelWaits,
    /// Waits of programs at futexes.
    UserWaits,
    /// A close look: context switches, wake-ups, reads and writes of files.
    CloseLook,
    /// Calls of a C library's lock functions (`--trace-calls`).
    Calls,
}

/// A time in which something was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// What was.
    pub part: Part,
    /// From then, ns,
    pub from_ns: u64,
    /// to then.
    pub to_ns: u64,
}

/// What recording cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Records that the kernel wrote.
    pub records: u64,
    /// What one took, as measured when recording began, ns; 0: not measured.
    pub record_ns: f64,
    /// Calls of the kernel while some were traced, which makes all of them slower.
    pub traced_syscalls: u64,
    /// What that took for one, likewise, ns.
    pub syscall_ns: f64,
    /// CPU time of the recorder itself, ns.
    pub own_cpu_ns: u64,
}

impl Cost {
    /// The share of all CPUs' time that recording took; 0 to 1.
    pub fn share(&self, system: &System) -> f64 {
        let all = system.to_ns.saturating_sub(system.from_ns) as f64 * f64::from(system.cpus);
        let records = self.records as f64 * self.record_ns;
        let syscalls = self.traced_syscalls as f64 * self.syscall_ns;
        if all > 0.0 { (records + syscalls + self.own_cpu_ns as f64) / all } else { 0.0 }
    }
}

/// A place in [`Recording::stacks`].
pub type StackId = u32;
/// A place in [`Recording::files`].
pub type FileId = u32;

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, ns.
    pub at_ns: u64,
    /// Where.
    pub cpu: u32,
    /// Whose doing: a place in [`Recording::threads`].
    pub thread: u32,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// The thread found a lock of the kernel taken. A mutex's waiter may begin twice, first spinning. A wait that outlasts a
    /// window begins again at the very beginning of the next one.
    KernelWaitBegins {
        /// Its address.
        lock: u64,
        /// See [`flags`].
        flags: u32,
        /// The kernel's calls, and the program's as far as they are known.
        stack: StackId,
    },
    /// It acquired it, or gave up.
    KernelWaitEnds {
        /// Its address; 0 for a wait that was found under way and whose end nobody saw: it lasted until then at least.
        lock: u64,
        /// It gave up: interrupted, or out of time.
        gave_up: bool,
    },
    /// A thread began to wait at a futex.
    UserWaitBegins {
        /// The futex's address.
        address: u64,
        /// The program's calls.
        stack: StackId,
    },
    /// It went on.
    UserWaitEnds {
        /// What the kernel returned: 0, or an error below 0 (−11 EAGAIN: the value had changed, nobody waited; −110
        /// ETIMEDOUT; −4 EINTR).
        result: i32,
    },
    /// A wait at a futex that was found under way: when recording began, or when a window did. Since when is not known,
    /// unless the thread's last event at a futex was that a wait there began: then it is that wait, which has lasted since.
    ///
    /// It lasts until the thread's [`UserWaitEnds`](What::UserWaitEnds), or until the recording's end, whatever windows say.
    /// Where the recorder did not see the end, that event is of the last moment at which the wait was known to last.
    UserWaitUnderWay {
        /// The futex's address.
        address: u64,
        /// The program's calls.
        stack: StackId,
    },
    /// A wait for a lock of the kernel that was found under way, likewise. The lock's address is not known.
    KernelWaitUnderWay {
        /// The kernel's calls.
        stack: StackId,
    },
    /// The CPU went from this thread to another one.
    Switch {
        /// This thread sleeps; else it was preempted.
        sleeps: bool,
        /// The next thread.
        to: u32,
        /// Priorities as the kernel has them, of this thread and of the next: below 100 real-time, the smaller the
        /// more urgent.
        priority: i32,
        /// See [`priority`](Self::Switch::priority).
        to_priority: i32,
    },
    /// This thread woke another one.
    Wakes {
        /// Which.
        thread: u32,
    },
    /// A call that reads or writes a file began.
    FileCallBegins {
        /// Which.
        call: FileCall,
        /// Of this file.
        file: FileId,
        /// From there, where it is known.
        offset: Option<u64>,
        /// So many bytes.
        bytes: u64,
    },
    /// It ended.
    FileCallEnds {
        /// Bytes, or an error below 0.
        result: i64,
    },
    /// A call of a lock function of the C library began.
    CallBegins {
        /// Which.
        function: LockCall,
        /// The lock's address.
        lock: u64,
        /// From where.
        stack: StackId,
    },
    /// It returned.
    CallEnds {
        /// Which.
        function: LockCall,
        /// What it returned: 0, or an error number.
        result: i32,
    },
}

/// What a call does with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileCall {
    /// `read`, `pread64`, `readv` and the like.
    Read,
    /// `write`, `pwrite64` and the like.
    Write,
}

/// A lock function of the C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockCall {
    /// `pthread_rwlock_rdlock` and its timed forms.
    ReadLock,
    /// `pthread_rwlock_wrlock` and its timed forms.
    WriteLock,
    /// `pthread_rwlock_tryrdlock`.
    TryReadLock,
    /// `pthread_rwlock_trywrlock`.
    TryWriteLock,
    /// `pthread_rwlock_unlock`.
    Unlock,
    /// `pthread_mutex_lock` and its timed forms.
    MutexLock,
    /// `pthread_mutex_trylock`.
    MutexTryLock,
    /// `pthread_mutex_unlock`.
    MutexUnlock,
}

impl Recording {
    /// How long this was recorded, ns.
    pub fn recorded_ns(&self, part: Part) -> u64 {
        let of_part = self.windows.iter().filter(|window| window.part == part);
        of_part.map(|window| window.to_ns.saturating_sub(window.from_ns)).sum()
    }

    /// The calls of a stack, innermost first.
    pub fn calls(&self, stack: StackId) -> impl DoubleEndedIterator<Item = &Frame> + Clone {
        let places = self.stacks.get(stack as usize).map_or(&[][..], |places| places);
        places.iter().filter_map(|&place| self.frames.get(place as usize))
    }
}
