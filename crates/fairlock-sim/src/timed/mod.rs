//! The machine on which operations take time.

use std::sync::atomic::Ordering;

use fairlock::events::NoCounters;

use crate::platform::{Backend, Word};

use crate::profile::Profile;

/// The scheduler that runs whoever is due next.
#[derive(Debug, Clone, Copy)]
pub struct Timed;

/// How to run.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    /// The machine.
    pub profile: &'a Profile,
    /// Decides everything that is random.
    pub seed: u64,
    /// Whether thread *i* stays on the *i*-th CPU, round robin over sockets, then cores, then
    /// hardware threads. Threads begin there in any case.
    pub pinned: bool,
    /// Keep the first so many nanoseconds as a [`Timeline`].
    pub timeline_ns: u64,
}

/// One simulated thread.
pub struct Thread<'a> {
    /// What it does.
    pub body: Box<dyn FnOnce() + 'a>,
    /// A real-time priority (1 to 99, SCHED_FIFO), or 0 for the fair class.
    pub priority: u8,
}

/// What a thread does, for the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Uses its CPU.
    Runs,
    /// Uses its CPU to wait for a word to change.
    Spins,
    /// Sleeps until it is woken or for a time.
    Sleeps,
    /// Would run, and has no CPU.
    Ready,
}

/// Something that happened at a moment or over a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// A thread's activity.
    Activity(Activity),
    /// It was woken by another thread.
    Woken {
        /// By whom.
        by: u32,
    },
    /// What the workload said about itself: `wait write`, `hold read`.
    Mark(&'static str),
}

/// One entry of a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The thread.
    pub thread: u32,
    /// Its CPU.
    pub cpu: u32,
    /// Since when, ns from the start.
    pub from_ns: u64,
    /// Until when; the same for a moment.
    pub to_ns: u64,
    /// What.
    pub what: Happening,
}

/// Who did what when, in the order of their ends.
pub type Timeline = Vec<Span>;

/// One thread's part of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadReport {
    /// It went to sleep or yielded.
    pub voluntary_switches: u64,
    /// It was preempted.
    pub involuntary_switches: u64,
    /// It continued on another CPU.
    pub migrations: u64,
}

/// Exact counts over all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines that moved between CPUs, or came from memory.
    pub transfers: u64,
    /// Writes to a line that was not this CPU's alone.
    pub shared_writes: u64,
    /// Copies that a write invalidated.
    pub invalidations: u64,
    /// Wake-ups of a sleeping thread.
    pub wakeups: u64,
    /// Context switches.
    pub switches: u64,
    /// Steps that the simulator took.
    pub events: u64,
}

/// What a run left behind.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// When the last thread ended, ns.
    pub elapsed_ns: u64,
    /// In the order of the threads.
    pub threads: Vec<ThreadReport>,
    /// Over all threads.
    pub counts: Counts,
    /// Empty unless asked for.
    pub timeline: Timeline,
}

/// Why a run has no report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Threads remain and nothing will ever happen: what each waits for.
    Deadlock(Vec<String>),
    /// A thread panicked with this message.
    Panicked(String),
}

/// Runs threads on a simulated machine until all have ended. `interrupted` is asked now and then,
/// in real time; true calls `stop`, once.
///
/// # Errors
/// A deadlock, or a thread that panicked.
pub fn run(
    _setup: &Setup<'_>,
    _threads: Vec<Thread<'_>>,
    _interrupted: &dyn Fn() -> bool,
    _stop: &dyn Fn(),
) -> Result<Report, Failure> {
    todo!("the engine")
}

/// Nanoseconds since the start of the run; free of cost. Outside a run 0.
pub fn now() -> u64 {
    todo!("the engine")
}

/// As [`now`], at the cost of a look at the clock by the lab (`observe_ns`).
pub fn observe() -> u64 {
    todo!("the engine")
}

/// Keeps this thread's CPU for so many PAUSEs.
pub fn compute(_pauses: u32) {
    todo!("the engine")
}

/// Gives the CPU away for `ns`.
pub fn sleep(_ns: u64) {
    todo!("the engine")
}

/// Sleeps for as long as the disk takes.
pub fn transfer(_write: bool, _bytes: u64) {
    todo!("the engine")
}

/// Says what this thread does from now on; an empty text ends it. Shows in the timeline.
pub fn mark(_what: &'static str) {
    todo!("the engine")
}

impl Backend for Timed {
    type Counters = NoCounters;
    fn load<W: Word>(word: &W, _order: Ordering) -> u64 {
        word.get()
    }
    fn store<W: Word>(word: &W, bits: u64, _order: Ordering) {
        word.set(bits);
    }
    fn update<W: Word>(word: &W, change: impl FnOnce(u64) -> Option<u64>) -> u64 {
        let old = word.get();
        if let Some(new) = change(old) {
            word.set(new);
        }
        old
    }
    fn park<W: Word>(_word: &W, _expected: u64, _deadline: Option<u64>) {
        todo!()
    }
    fn unpark(_address: usize) {
        todo!()
    }
    fn relax(_until: Option<u64>) -> bool {
        todo!()
    }
    fn relax_turns(_left: u32) -> u32 {
        todo!()
    }
    fn give_way(_attempt: u32) {
        todo!()
    }
    fn turn() -> u32 {
        todo!()
    }
    fn now() -> u64 {
        todo!()
    }
    fn wake_latency() -> u32 {
        todo!()
    }
    fn note_wake_latency(_ns: u32) {
        todo!()
    }
    fn cpu() -> u32 {
        todo!()
    }
}
