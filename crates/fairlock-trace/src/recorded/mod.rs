//! What each thread of a program did to its locks, one by one: recorded by the drop-in, cleaned of what the recording
//! itself took, in nanoseconds.
//!
//! | | |
//! |---|---|
//! | [`Windows`] | opens the times in which running programs record, and reads what they recorded |
//! | `cleaning` | from records, in ticks, to the steps of a thread |
//!
//! A program is started with [`DropIn::records`](super::process::DropIn::records), records from its beginning until
//! it has written 65,000 operations or so, and after that in the windows that [`Windows::tick`] opens. How long these are,
//! and how far apart, bounds what recording costs a program, and how much it writes, however long it runs.
//!
//! Not for: what the steps mean, which a replay says.
//!
//! # Example
//! ```
//! use fairlock_trace::counts::Counts;
//! use fairlock_trace::recorded::Windows;
//!
//! let counts = Counts::create()?;
//! let mut windows = Windows::new(&counts);
//! // A program runs, and this is called every 50 ms or so.
//! windows.tick();
//! // When it has ended:
//! let recorded = windows.read()?;
//! assert!(recorded.processes.is_empty());
//! # Ok::<(), std::io::Error>(())
//! ```

mod cleaning;
#[cfg(test)]
mod programs_tests;
mod windows;

use std::path::PathBuf;

use fairlock_counts::record;
pub use fairlock_counts::recording::Lock;

pub use windows::{Run, Windows};

/// What one process recorded, with those that it forked off and that are the same program still.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// The process.
    pub pid: u32,
    /// The program's path.
    pub program: PathBuf,
    /// The lock by name that it ran under.
    pub lock_policy: String,
    /// CLOCK_MONOTONIC when it began, ns.
    pub began_ns: u64,
    /// How long it ran, or has run up to now, ns.
    pub elapsed_ns: u64,
    /// What the recording cost it.
    pub cost: Cost,
    /// How late a thread wakes up that slept for a moment on an idle CPU, ns: the median of some sleeps of the
    /// command's.
    pub wake_up_ns: Option<u64>,
    /// Threads that recorded something. A thread's number of the kernel may have been another one's before.
    pub threads: Vec<Thread>,
    /// Locks that were used or initialised, with the numbers that they have in the snapshot of the same file.
    pub locks: Vec<Lock>,
    /// Time during which some thread recorded, ns.
    pub windows_ns: u64,
    /// How many windows there are.
    pub windows: usize,
    /// When windows were opened from outside: their numbers, as threads have them, and CLOCK_MONOTONIC, ns; in order of
    /// time. The first window, which the process opens itself when it begins, is not among them.
    pub opened: Vec<(u32, u64)>,
    /// Pages of records that were left out, as there were too many for one reading.
    pub left_out: usize,
}

/// What recording an operation costs on a lock that nobody else uses; ns, by role: [reading, writing].
///
/// The times between calls are not 0 although the program did nothing then, and were taken from what the
/// threads did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// Of an empty hold, from the end of the acquisition to the beginning of the release.
    pub hold: [f64; 2],
    /// From the end of a release to the beginning of the next acquisition.
    pub gap: [f64; 2],
    /// Inside an acquisition.
    pub acquire: [f64; 2],
    /// Inside a release.
    pub release: [f64; 2],
    /// A pair of both, while it is not recorded.
    pub pair: [f64; 2],
    /// The same while it is.
    pub recorded_pair: [f64; 2],
}

/// What one thread did while it recorded.
#[derive(Debug, Clone, Default)]
pub struct Thread {
    /// Its process: that of the file, or one that was forked off, whose locks are copies.
    pub pid: u32,
    /// The kernel's number of it.
    pub tid: u32,
    /// Its name when it began to record.
    pub name: String,
    /// In order of time.
    pub windows: Vec<Window>,
    /// Time inside of calls that asked for a lock or released one, ns.
    pub in_calls_ns: u64,
    /// Of that, in those that had to wait.
    pub waited_ns: u64,
}

/// What a thread did without an interruption of the recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Window {
    /// The same for what threads of a process recorded at the same time. Odd; begins again at 1 after 16383.
    pub number: u32,
    /// CLOCK_MONOTONIC, ns.
    pub began_ns: u64,
    /// What the thread did since its window before while it was neither counted nor recorded; none in its first, nor if it
    /// locks seldom.
    pub before: Option<Unrecorded>,
    /// It did not go to sleep from the last look in its window before to the first in this one; false if that is not known.
    pub stayed: bool,
    /// Nor was it without a CPU.
    pub kept_cpu: bool,
    /// Until the thread's last operation in it, ns. Not the sum of its steps: recording took time, too.
    pub lasted_ns: u64,
    /// Time between calls in which it could have run and had no CPU, ns. It is in no step.
    pub without_cpu_ns: u64,
    /// In order. Every lock that is acquired is released, and nothing else is. A thread does not ask for a lock that
    /// it holds, but to read what it reads.
    pub steps: Vec<Step>,
}

/// What a thread did while it was neither counted nor recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unrecorded {
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Acquisitions.
    pub acquired: u64,
}

/// See [`Window::steps`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It asked for a lock.
    Acquire {
        /// Its number.
        lock: u32,
        /// For writing.
        write: bool,
        /// How long it would have waited.
        how: How,
        /// It got it.
        granted: bool,
        /// It could not have it at once, and waited.
        waited: bool,
        /// Inside the call, ns; with what recording takes there.
        took_ns: u64,
    },
    /// It released a lock, as it had acquired it.
    Release {
        /// Its number.
        lock: u32,
        /// Likewise.
        took_ns: u64,
    },
    /// It computed.
    Compute {
        /// So long.
        ns: u64,
    },
    /// It left the CPU by itself: for a sleep, for I/O, or for a condition.
    Away {
        /// So long.
        ns: u64,
    },
}

const _: () = assert!(size_of::<Step>() <= 24, "there may be eight million: two for each record");

/// How long a thread would wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// As long as it takes.
    Waits,
    /// Not at all.
    Tries,
    /// Until some time.
    Timed,
}

impl From<record::How> for How {
    fn from(how: record::How) -> How {
        match how {
            record::How::Waits => How::Waits,
            record::How::Tries => How::Tries,
            record::How::Timed => How::Timed,
        }
    }
}
