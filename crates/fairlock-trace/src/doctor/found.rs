//! What is said about a running system: the diseases it has, the locks that threads waited for, and who waited for whom.
//!
//! Every presentation is made from these values, so a report that is read from its lines says the same as when they
//! were written.

use serde::{Deserialize, Serialize};

use crate::facts::{Frame, Times, Weight};

use super::recorded::{Cost, System};

/// The version of the format of reports; readers refuse others.
pub const FORMAT: u32 = 1;

/// Everything there is to tell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// What was looked at, and how closely.
    pub looked: Looked,
    /// What is wrong, the worst first; one that says that nothing is, if nothing is.
    pub diagnoses: Vec<Diagnosis>,
    /// Locks that somebody waited for, the longest waits first.
    pub locks: Vec<Lock>,
}

/// What was looked at, and how closely.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Looked {
    /// Version of the format.
    pub format: u32,
    /// Where and when.
    pub system: System,
    /// The names of the processes that the report is about, by number; empty: all.
    pub processes: Vec<(u32, String)>,
    /// Threads that were seen.
    pub threads: u64,
    /// How long waits in the kernel, waits of programs, and who ran were recorded, ns. Counts of waits are of that time.
    pub kernel_ns: u64,
    /// See [`kernel_ns`](Self::kernel_ns).
    pub user_ns: u64,
    /// See [`kernel_ns`](Self::kernel_ns).
    pub close_ns: u64,
    /// How long calls of lock functions were traced, ns; 0 without `--trace-calls`.
    #[serde(default)]
    pub calls_ns: u64,
    /// Records lost for lack of space.
    pub lost: u64,
    /// What recording cost.
    pub cost: Cost,
    /// What could not be seen, and why, in sentences.
    pub notes: Vec<String>,
}

/// One of the five diseases, or something else that is wrong with a lock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The rule: `readers-starve-appender`.
    pub rule: String,
    /// Which of the five diseases: 0 to 4, as in the book; none: none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disease: Option<u8>,
    /// How much it asks for.
    pub weight: Weight,
    /// In a sentence: what is wrong.
    pub text: String,
    /// What was seen, in sentences with figures.
    pub evidence: Vec<String>,
    /// What to do, in sentences, the best first.
    pub cure: Vec<String>,
    /// The locks that it is about, by [`Lock::lock`].
    pub locks: Vec<usize>,
    /// CPUs' or threads' time that it costs: waiting, over the time it was recorded in; 1 is one thread that does nothing
    /// but wait.
    pub waiting: f64,
}

/// What kind of lock it is.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A spin lock of the kernel.
    #[default]
    Spin,
    /// A reader-writer spin lock of the kernel.
    RwSpin,
    /// A mutex of the kernel.
    Mutex,
    /// An rwsem of the kernel.
    Rwsem,
    /// A per-CPU rwsem of the kernel.
    PercpuRwsem,
    /// A mutex of the kernel with priority inheritance.
    RtMutex,
    /// A reader-writer lock of a program.
    UserRwlock,
    /// A mutex of a program.
    UserMutex,
}

/// A lock, or several that the same calls use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    /// Its place in the report, from 1.
    pub lock: usize,
    /// What kind.
    pub kind: Kind,
    /// What people call it: `inode lock of log/0001`, `mmap lock of server`, `pthread_rwlock in Cache::get`.
    pub name: String,
    /// Its address, hexadecimal; of several that of the one waited for most.
    pub address: String,
    /// So many locks with the same name and calls are shown together.
    pub locks: u64,
    /// The process, of a lock in a program; none: the kernel's.
    pub pid: Option<u32>,
    /// What each role waited; only roles that waited: `read`, `write`, `lock`.
    pub roles: Vec<Role>,
    /// Waits for which it is known who had the lock.
    pub waited_for: Vec<WaitedFor>,
    /// Where threads waited, the most time first.
    pub sites: Vec<Site>,
    /// Threads that waited, the most time first.
    pub threads: Vec<Waiter>,
    /// Acquisitions one after the other that each found somebody waiting and handed the lock to a sleeping thread: the
    /// most in a row.
    pub longest_convoy: u64,
    /// The share of contended acquisitions that were in such a row of at least 10; 0 to 1.
    pub convoy_share: f64,
    /// Of its waits that were looked at closely, the share of their time between being woken and running; 0 to 1.
    pub wake_up_share: Option<f64>,
    /// Of its waits that were looked at closely and whose holder is known, the share of their time in which the holder had
    /// no CPU although it could have run; 0 to 1.
    #[serde(default)]
    pub preempted_share: Option<f64>,
    /// Of a real-time waiter that waited while less urgent threads ran: the longest such wait.
    pub inversion: Option<Inversion>,
    /// Waits that were under way at the end, or all the time.
    pub under_way: Vec<UnderWay>,
    /// What is to be said about it, as places in [`Found::diagnoses`].
    pub diagnoses: Vec<usize>,
}

/// What one role waited.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Role {
    /// `read`, `write` or `lock`.
    pub role: String,
    /// Waits that ended, and those that the end of a window cut off. Together they are what was recorded of them; a wait
    /// that went on in the next window is longer than that.
    pub wait: Times,
    /// Threads that waited.
    pub threads: u64,
    /// How long it held the lock, where calls were traced.
    pub hold: Option<Times>,
    /// Acquisitions without a wait, where calls were traced.
    pub uncontended: Option<u64>,
    /// Acquisitions by the other role, as far as they were seen, that ended inside one wait of this one: the most.
    pub longest_bypass: u64,
    /// How long that wait was, ns.
    pub longest_bypass_wait_ns: u64,
}

/// Who had the lock while somebody waited.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitedFor {
    /// The waiting role and thread.
    pub waiter_role: String,
    /// Its name and number.
    pub waiter: String,
    /// Who had it: likewise.
    pub holder_role: String,
    /// Its name and number.
    pub holder: String,
    /// So many waits.
    pub count: u64,
    /// Together, ns.
    pub wait_ns: u64,
}

/// A place that waited.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// `read`, `write` or `lock`.
    pub role: String,
    /// Innermost first.
    pub calls: Vec<Frame>,
    /// How many waits.
    pub waits: u64,
    /// Together, ns.
    pub wait_ns: u64,
}

/// A thread that waited.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Waiter {
    /// Its name.
    pub name: String,
    /// Its number.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// `read`, `write` or `lock`.
    pub role: String,
    /// 1 to 99 for a real-time thread, else 0.
    pub realtime_priority: u8,
    /// How many waits.
    pub waits: u64,
    /// Together, ns.
    pub wait_ns: u64,
    /// The longest, ns.
    pub longest_ns: u64,
}

/// A real-time thread waited while less urgent ones ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Inversion {
    /// Who waited.
    pub waiter: String,
    /// With this priority.
    pub priority: u8,
    /// So long, ns.
    pub wait_ns: u64,
    /// Less urgent threads that ran meanwhile, on any CPU, the longest first: name and ns.
    pub ran: Vec<(String, u64)>,
}

/// A wait under way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UnderWay {
    /// The thread's name.
    pub name: String,
    /// Its number.
    pub tid: u32,
    /// `read`, `write` or `lock`.
    pub role: String,
    /// For at least so long, ns.
    pub wait_ns: u64,
    /// It began before recording did.
    pub began_before: bool,
    /// Where it waits.
    pub calls: Vec<Frame>,
}
