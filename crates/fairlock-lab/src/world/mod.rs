//! What a workload may do to the machine it runs on.
//!
//! A workload is written once against [`World`] and never touches `std::thread`, clocks or
//! the scheduler itself, so that the same code runs on real threads ([`RealWorld`]) and on a
//! simulated machine ([`SimWorld`]). A [`Disk`] and a [`PageCache`] are parts of both.

mod clock;
mod direct_io;
mod disk;
mod page_cache;
pub(crate) mod pages;
pub(crate) mod processes;
mod real;
mod real_time;
pub(crate) mod scratch;
mod simulated;

use std::ops::{AddAssign, Sub};

use fairlock_sim::timed::Report;
use serde::{Deserialize, Serialize};

pub(crate) use direct_io::Log;
pub use disk::{Disk, DiskLog};
pub use page_cache::{CachedFile, PageCache};
pub use real::{RealWorld, pause_ns};
pub(crate) use real::{
    allowed_cpus, of_all_cpus, pin_to, set_timer_slack_to_minimum, thread_usage,
};
pub use real_time::probe_real_time;
pub use scratch::{filesystem_of, probe_direct_io, remove_scratch_files};
pub use simulated::SimWorld;

use crate::error::LabError;

/// One thread of a run: does its role's work while [`World::running`] and returns its records.
pub type Worker<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;

/// From 1 up: real-time threads, the higher ones first.
pub type Priority = u8;
/// The priority of a thread that is not a real-time one.
pub const FAIR: Priority = 0;

/// Which part of a run is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// So many nanoseconds from releasing the workers.
    FromTheStart(u64),
    /// So many nanoseconds from [`World::begin_measuring`], which one of the workers has to call.
    OnceArrived(u64),
}

impl Window {
    /// How long is measured, ns.
    pub fn duration_ns(self) -> u64 {
        let (Window::FromTheStart(ns) | Window::OnceArrived(ns)) = self;
        ns
    }
}

/// What a run left behind.
#[derive(Debug)]
pub struct Run<T> {
    /// From the beginning of measuring to telling the workers to stop, ns.
    pub elapsed_ns: u64,
    /// For how long workers' usage is counted, ns: on real threads from releasing them to the return of the last one,
    /// on a simulated machine, whose own counts are of that time, too, as long as is measured.
    pub counted_ns: u64,
    /// That time of all CPUs together, ns: of those that this process may use, or of the one that real-time
    /// workers share, or of a simulated machine's.
    pub cpus_ns: u64,
    /// In the order the workers were given.
    pub workers: Vec<Finished<T>>,
    /// What a simulated machine counted and saw; `None` on real threads.
    pub simulated: Option<Report>,
}

impl<T, E> Run<Result<T, E>> {
    /// The run if every worker succeeded, else the first failure.
    pub(crate) fn transpose(self) -> Result<Run<T>, E> {
        let workers = self
            .workers
            .into_iter()
            .map(|worker| worker.output.map(|output| Finished { output, usage: worker.usage }));
        Ok(Run {
            elapsed_ns: self.elapsed_ns,
            counted_ns: self.counted_ns,
            cpus_ns: self.cpus_ns,
            workers: workers.collect::<Result<_, E>>()?,
            simulated: self.simulated,
        })
    }
}

/// One worker that came back.
#[derive(Debug)]
pub struct Finished<T> {
    /// What the worker returned.
    pub output: T,
    /// What it used while it worked.
    pub usage: Usage,
}

/// What a thread or a process used of its CPUs, or several of them together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Context switches because it went to sleep or yielded.
    pub voluntary_switches: u64,
    /// Context switches because it was preempted.
    pub involuntary_switches: u64,
    /// CPU time of its own, ns, spinning included.
    pub user_ns: u64,
    /// CPU time of the kernel for it, ns.
    pub system_ns: u64,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
    }
}

/// What was used since `before`. Times are not below 0: the kernel now and then moves a little from the
/// one kind to the other.
impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage {
            voluntary_switches: self.voluntary_switches - before.voluntary_switches,
            involuntary_switches: self.involuntary_switches - before.involuntary_switches,
            user_ns: self.user_ns.saturating_sub(before.user_ns),
            system_ns: self.system_ns.saturating_sub(before.system_ns),
        }
    }
}

/// A machine with threads, a clock and a scheduler. Durations are nanoseconds.
pub trait World: Sync {
    /// The name that rows carry as their `machine`.
    fn name(&self) -> &str;

    /// Starts all workers at the same moment, tells them to stop after `duration_ns` (or as
    /// soon as `cancelled` says so or somebody calls [`World::stop`]) and waits for them.
    ///
    /// # Errors
    /// When a thread cannot be started, or a worker panics.
    fn run<T: Send>(
        &self,
        duration_ns: u64,
        cancelled: &dyn Fn() -> bool,
        workers: Vec<Worker<'_, T>>,
    ) -> Result<Run<T>, LabError> {
        let fair = workers.into_iter().map(|worker| (FAIR, worker));
        self.run_by_priority(Window::FromTheStart(duration_ns), cancelled, fair.collect())
    }

    /// As [`World::run`], with a priority for each worker: [`FAIR`], or that of a real-time thread,
    /// which runs before all of lower priority until it sleeps (SCHED_FIFO). Real-time workers share
    /// one CPU. When they are told to stop they become fair, so that every run ends.
    ///
    /// A run that is measured once its workers have arrived ends only after one of them has said so, unless it is
    /// stopped or cancelled.
    ///
    /// # Errors
    /// Also when real-time threads are not permitted, or were held up by the kernel because they
    /// took almost all of the CPU.
    fn run_by_priority<T: Send>(
        &self,
        window: Window,
        cancelled: &dyn Fn() -> bool,
        workers: Vec<(Priority, Worker<'_, T>)>,
    ) -> Result<Run<T>, LabError>;

    /// Says that all workers of a [`Window::OnceArrived`] have arrived: what is measured begins now. One worker calls
    /// it, once.
    fn begin_measuring(&self);

    /// When measuring began, on the clock of [`World::now`], which costs nothing to ask; none before.
    fn measured_since(&self) -> Option<u64>;

    /// False once the current run is over: workers return at the end of their operation.
    fn running(&self) -> bool;

    /// Ends the current run early.
    fn stop(&self);

    /// A monotonic clock, ns; cheap enough to time every operation.
    fn now(&self) -> u64;

    /// Keeps the CPU for this many PAUSE instructions.
    fn compute(&self, pauses: u32);

    /// Keeps the CPU for so many nanoseconds, as far as that can be done in whole PAUSEs; answers what is left.
    fn work(&self, ns: u64) -> u64;

    /// As [`World::now`] where it costs nothing to ask: on a simulated machine.
    fn clock(&self) -> Option<u64> {
        None
    }

    /// Gives the CPU away for `ns`.
    fn sleep(&self, ns: u64);

    /// Keeps the calling worker on one CPU from now on: on real threads the `index`-th that this process
    /// may use, round robin, on a simulated machine the one where it began.
    fn stay(&self, index: usize);

    /// How many CPUs fair workers can run on.
    fn cpus(&self) -> usize;

    /// How long one PAUSE of [`World::compute`] takes, ns.
    fn pause_ns(&self) -> f64;

    /// What workloads draw their random numbers from, beside the number of the thread. Real
    /// threads differ between runs anyway.
    fn seed(&self) -> u64 {
        0
    }

    /// Says what this thread does from now on, for a timeline; an empty text ends it. Nothing
    /// where nobody draws one.
    #[inline(always)]
    fn mark(&self, _what: &'static str) {}
}
