//! What can go wrong in the lab, said so that a user knows what to change.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why a plan could not run, or was stopped.
#[derive(Debug)]
pub enum LabError {
    /// A parameter is out of its range.
    Parameter {
        /// The parameter, as it is spelled in plans: `readers`, `seconds`, ….
        name: &'static str,
        /// The value that was given.
        value: String,
        /// What would be valid.
        valid: String,
    },
    /// No lock of this name is registered.
    UnknownLock {
        /// The name that was asked for.
        name: String,
        /// The names that exist.
        known: Vec<&'static str>,
    },
    /// No log of this name is registered.
    UnknownLog {
        /// The name that was asked for.
        name: String,
        /// The names that exist.
        known: Vec<&'static str>,
    },
    /// No poller of this name is registered.
    UnknownPoller {
        /// The name that was asked for.
        name: String,
        /// The names that exist.
        known: Vec<&'static str>,
    },
    /// The poller exists, but not on a simulated machine.
    PollerNotSimulated {
        /// The name that was asked for.
        name: String,
        /// The pollers that run there.
        known: Vec<&'static str>,
    },
    /// The lock exists, but its source does not run on a simulated machine.
    NotSimulated {
        /// The name that was asked for.
        name: String,
        /// The locks that run there.
        known: Vec<&'static str>,
    },
    /// The lock has no condition variable, or none that runs on a simulated machine.
    NoCondvar {
        /// The name that was asked for.
        name: String,
        /// Whether it was to run on a simulated machine.
        simulated: bool,
        /// The mutexes that have one there.
        known: Vec<&'static str>,
    },
    /// The lock does not have the constant that is to be changed.
    NotTuned {
        /// The parameter.
        name: String,
        /// The lock.
        lock: String,
        /// Those that have it.
        valid: Vec<&'static str>,
    },
    /// The workload is about the real kernel.
    KernelNotSimulated {
        /// Its name.
        workload: &'static str,
        /// What of its kind runs on a simulated machine.
        instead: &'static str,
    },
    /// The workload is somebody's own sections.
    OwnNotSimulated {
        /// Its name.
        workload: &'static str,
    },
    /// On a simulated machine: threads wait, and nothing will ever happen.
    Deadlock {
        /// What each thread waits for.
        waiting: Vec<String>,
    },
    /// A workload's invariant did not hold: the lock (or the kernel) did not exclude a thread that had to wait.
    Broken {
        /// What stood where the lock is: `lock`, `log`, `poller`.
        subject: &'static str,
        /// Its registry name.
        lock: String,
        /// The workload that noticed.
        workload: &'static str,
        /// What was seen.
        violation: Violation,
    },
    /// The filesystem refuses O_DIRECT.
    NoDirectIo {
        /// The directory the file was to live in.
        directory: PathBuf,
        /// What kind of file system that is; empty if nobody knows.
        filesystem: String,
    },
    /// Real-time threads (SCHED_FIFO) are not permitted.
    NoRealTime {
        /// The system's answer.
        source: io::Error,
    },
    /// Real-time threads took so much of their CPU that the kernel may have stopped them for that.
    HeldUp {
        /// The part of the CPU that they took.
        used: f64,
        /// The part that the kernel leaves to them.
        limit: f64,
    },
    /// The lock may spin for ever.
    Spins {
        /// Its registry name.
        name: String,
        /// The workload that it is not for.
        workload: &'static str,
    },
    /// A system call failed.
    Io {
        /// What was being done, and to what.
        action: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A worker thread panicked; the message is its panic's.
    Panicked(String),
    /// A process ended, or did not when it was to.
    Process {
        /// What one is called.
        name: &'static str,
        /// Which one, from 1.
        number: usize,
        /// How many there are.
        count: usize,
        /// What it did.
        how: String,
    },
}

/// Why a worker gave up.
#[derive(Debug)]
pub enum Failure {
    /// The workload's invariant did not hold.
    Violation(Violation),
    /// Something else went wrong.
    Error(LabError),
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Failure {
        Failure::Violation(violation)
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Failure {
        Failure::Error(error)
    }
}

/// How an invariant was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A reader met a write under way.
    TornRead {
        /// Writes begun.
        begun: u64,
        /// Writes ended.
        ended: u64,
    },
    /// The data changed under a reader.
    ChangedRead {
        /// Writes counted when its section began.
        before: u64,
        /// Writes counted when it ended.
        after: u64,
    },
    /// A writer saw somebody else's update inside its own section.
    OverlappingWrites {
        /// What the writer had left there.
        expected: u64,
        /// What it found.
        found: u64,
    },
    /// The data counts fewer (or more) writes than were done.
    LostUpdate {
        /// Writes done.
        writes: u64,
        /// Writes the data counts.
        counted: u64,
    },
    /// A read got parts of several writes.
    TornBlock {
        /// The stamp it begins with.
        one: u64,
        /// Another one in it.
        other: u64,
    },
    /// More or less was read of all sources than was written to them, or the rest was not reported.
    LostEvents {
        /// What was written, by those that have ended.
        written: u64,
        /// What was read.
        read: u64,
    },
    /// A walk from a page to who maps it went wrong.
    Walk {
        /// How.
        what: &'static str,
    },
    /// A tree of intervals has a path that no such tree has.
    Tangled,
    /// When all was over, something was left that had to be gone, or the other way round.
    Leak {
        /// What.
        what: &'static str,
    },
    /// A forked process ended in another way than it was to.
    ForkedProcess {
        /// Its status, as `wait` has it.
        status: i32,
    },
    /// A process found in its memory what another one wrote, or not what it inherited.
    CopyOnWrite {
        /// What had to be there.
        expected: u64,
        /// What was there.
        found: u64,
    },
    /// A connection did not take as many forks as its messages need.
    ForkCount {
        /// The forks that were counted.
        forks: u64,
        /// The forks that its messages need.
        expected: u64,
    },
    /// A page of memory does not have what its thread left there.
    StalePage {
        /// The stamp the page had to carry; 0 if it is new or was given up.
        expected: u64,
        /// The stamp it carries.
        found: u64,
    },
    /// What threads agree on with a mutex and condition variables is not what it has to be.
    Agreement {
        /// What it is.
        what: &'static str,
        /// What it had to be.
        expected: u64,
        /// What it was.
        found: u64,
    },
    /// A block read from the file is not the one last written there.
    StaleBlock {
        /// The stamp the block had to carry.
        expected: u64,
        /// The stamp it carries.
        found: u64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::TornRead { begun, ended } => write!(
                f,
                "torn read: a reader met a write under way ({begun} begun, {ended} ended)"
            ),
            Violation::ChangedRead { before, after } => write!(
                f,
                "torn read: the data changed from write {before} to {after} under a reader"
            ),
            Violation::OverlappingWrites { expected, found } => write!(
                f,
                "overlapping writes: a writer left {expected} in its section and found {found}"
            ),
            Violation::LostUpdate { writes, counted } => {
                write!(f, "lost update: {writes} writes were done, the data counts {counted}")
            }
            Violation::TornBlock { one, other } => {
                write!(f, "torn read: one read got parts of the writes {one} and {other}")
            }
            Violation::Tangled => {
                write!(f, "tangled tree: somebody changed it beside the holder of its lock")
            }
            Violation::Walk { what } => write!(f, "wrong walk from a page: {what}"),
            Violation::Leak { what } => write!(f, "wrong at the end: {what}"),
            Violation::LostEvents { written, read } => {
                write!(f, "lost events: {written} were written, {read} were reported and read")
            }
            Violation::ForkedProcess { status } => {
                write!(f, "a forked process did not end well ({})", ExitStatus::from_raw(*status))
            }
            Violation::CopyOnWrite { expected, found } => write!(
                f,
                "copy on write: a process found {found:#x} where its memory had to have {expected:#x}"
            ),
            Violation::ForkCount { forks, expected } => {
                write!(f, "a connection took {forks} forks, its messages need {expected}")
            }
            Violation::StalePage { expected, found } => {
                write!(
                    f,
                    "stale page: a thread found stamp {found} in memory where {expected} had to be"
                )
            }
            Violation::Agreement { what, expected, found } => {
                write!(f, "wrong {what}: {found} where {expected} had to be")
            }
            Violation::StaleBlock { expected, found } => {
                write!(f, "stale block: read stamp {found} where {expected} was written")
            }
        }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Parameter { name, value, valid } => {
                write!(f, "`{name}` is {value}; valid: {valid}")
            }
            LabError::UnknownLock { name, known } => {
                write!(f, "there is no lock `{name}`; valid: {}", known.join(", "))
            }
            LabError::UnknownLog { name, known } => {
                write!(f, "there is no log `{name}`; valid: {}", known.join(", "))
            }
            LabError::UnknownPoller { name, known } => {
                write!(f, "there is no poller `{name}`; valid: {}", known.join(", "))
            }
            LabError::PollerNotSimulated { name, known } => write!(
                f,
                "poller `{name}` runs on real threads only; on a simulated machine: {}",
                known.join(", ")
            ),
            LabError::NotSimulated { name, known } => write!(
                f,
                "lock `{name}` runs on real threads only; on a simulated machine: {}",
                known.join(", ")
            ),
            LabError::NoCondvar { name, simulated, known } => write!(
                f,
                "lock `{name}` has no condition variable{}; valid: {}",
                if *simulated { " on a simulated machine" } else { "" },
                known.join(", ")
            ),
            LabError::NotTuned { name, lock, valid } => write!(
                f,
                "{name} changes nothing of lock `{lock}`; locks that have such constants: {}",
                valid.join(", ")
            ),
            LabError::KernelNotSimulated { workload, instead } => write!(
                f,
                "`{workload}` measures the real kernel, and a simulated machine has none; \
                 there {instead} runs"
            ),
            LabError::OwnNotSimulated { workload } => write!(
                f,
                "`{workload}` runs on real threads only: a simulated machine does not know how long \
                 its sections take"
            ),
            LabError::Deadlock { waiting } => {
                write!(f, "deadlock: {}", waiting.join("; "))
            }
            LabError::Broken { subject, lock, workload, violation } => {
                write!(f, "{subject} `{lock}` broke `{workload}`: {violation}")
            }
            LabError::NoDirectIo { directory, filesystem } => write!(
                f,
                "the filesystem of `{}` ({}) refuses O_DIRECT, which this workload needs; \
                 name a directory on ext4, xfs or another disk filesystem with `--dir`",
                directory.display(),
                match filesystem.as_str() {
                    "" => "unknown type",
                    name => name,
                }
            ),
            LabError::NoRealTime { source } => write!(
                f,
                "real-time threads (SCHED_FIFO) are not permitted here: {source}; run as root, allow \
                 priorities with `ulimit -r 10`, or run on a simulated machine, which asks nobody"
            ),
            LabError::HeldUp { used, limit } => write!(
                f,
                "the real-time threads took {:.0} % of their CPU, and the kernel stops them at \
                 {:.0} % (sched_rt_runtime_us), so waits may be its doing; give them less to do",
                used * 100.0,
                limit * 100.0
            ),
            LabError::Spins { name, workload } => write!(
                f,
                "lock `{name}` spins until it is free: under `{workload}` a real-time thread would \
                 keep the holder from the only CPU for ever"
            ),
            LabError::Io { action, source } => write!(f, "cannot {action}: {source}"),
            LabError::Panicked(message) => write!(f, "a worker thread panicked: {message}"),
            LabError::Process { name, count: 1, how, .. } => write!(f, "the {name} {how}"),
            LabError::Process { name, number, count, how } => {
                write!(f, "{name} {number} of {count} {how}")
            }
        }
    }
}

impl std::error::Error for LabError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LabError::Io { source, .. } | LabError::NoRealTime { source } => Some(source),
            _ => None,
        }
    }
}

impl LabError {
    /// An I/O error with what was being done when it happened.
    pub(crate) fn io(action: impl Into<String>, source: io::Error) -> LabError {
        LabError::Io { action: action.into(), source }
    }
}
