//! A machine that need not exist: simulated threads on simulated CPUs, see `fairlock_sim`.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fairlock_sim::profile::Profile;
use fairlock_sim::timed::{self, Failure, Setup, Thread};

use super::{FAIR, Finished, Priority, Run, Usage, Worker, World};
use crate::error::LabError;

/// A machine with a profile. The same seed gives the same run.
///
/// Locks and data have to be on its platform, [`fairlock_sim::Sim`]. The lab's own instruments are
/// not, so that looking costs nothing but the clock (`observe_ns` of the profile).
pub struct SimWorld {
    profile: Arc<Profile>,
    seed: u64,
    timeline_ns: u64,
    pinned: bool,
    /// Workers see it, and nobody else meanwhile: all of them run on one real thread.
    stopped: AtomicBool,
    duration_ns: AtomicU64,
}

impl SimWorld {
    /// A machine that keeps the first `timeline_ns` of a run as a timeline; with `pinned`, each thread
    /// stays on the CPU where it begins.
    pub fn new(profile: Arc<Profile>, seed: u64, timeline_ns: u64, pinned: bool) -> SimWorld {
        SimWorld {
            profile,
            seed,
            timeline_ns,
            pinned,
            stopped: AtomicBool::new(true),
            duration_ns: AtomicU64::new(0),
        }
    }
}

impl World for SimWorld {
    fn name(&self) -> &str {
        &self.profile.name
    }

    /// Where there are real-time workers, the machine has one CPU.
    ///
    /// # Errors
    /// When the threads wait for each other for ever, or one panics.
    fn run_by_priority<T: Send>(
        &self,
        duration_ns: u64,
        cancelled: &dyn Fn() -> bool,
        workers: Vec<(Priority, Worker<'_, T>)>,
    ) -> Result<Run<T>, LabError> {
        self.duration_ns.store(duration_ns, Ordering::Relaxed);
        self.stopped.store(false, Ordering::Relaxed);
        let outputs: Vec<Cell<Option<T>>> = workers.iter().map(|_| Cell::new(None)).collect();
        let shares_a_cpu = workers.iter().any(|(priority, _)| *priority != FAIR);
        let one_cpu = shares_a_cpu.then(|| self.profile.with_one_cpu());
        let threads = workers.into_iter().zip(&outputs).map(|((priority, worker), output)| {
            let body = Box::new(|| output.set(Some(worker())));
            Thread { body, priority }
        });
        let setup = Setup {
            profile: one_cpu.as_ref().unwrap_or(&self.profile),
            seed: self.seed,
            pinned: self.pinned,
            timeline_ns: self.timeline_ns,
        };
        let ended = timed::run(&setup, threads.collect(), cancelled, &|| self.stop());
        self.stop();
        let report = ended.map_err(|failure| match failure {
            Failure::Deadlock(waiting) => LabError::Deadlock { waiting },
            Failure::Panicked(message) => LabError::Panicked(message),
        })?;
        let workers = outputs.into_iter().zip(&report.threads).map(|(output, thread)| Finished {
            output: output.into_inner().expect("a run ends when all threads have"),
            usage: Usage {
                voluntary_switches: thread.voluntary_switches,
                involuntary_switches: thread.involuntary_switches,
                user_ns: thread.user_ns,
                system_ns: thread.system_ns,
            },
        });
        Ok(Run {
            // Operations that end later do not count; a run that was stopped is shorter.
            elapsed_ns: duration_ns.min(report.elapsed_ns).max(1),
            cpus_ns: report.elapsed_ns * u64::from(report.cpus),
            workers: workers.collect(),
            simulated: Some(report),
        })
    }

    #[inline]
    fn running(&self) -> bool {
        !self.stopped.load(Ordering::Relaxed)
            && timed::now() < self.duration_ns.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn now(&self) -> u64 {
        timed::observe()
    }

    #[inline]
    fn compute(&self, pauses: u32) {
        timed::compute(pauses);
    }

    fn sleep(&self, ns: u64) {
        timed::sleep(ns);
    }

    fn stay(&self, _index: usize) {
        timed::stay();
    }

    fn cpus(&self) -> usize {
        self.profile.topology.cpus() as usize
    }

    fn pause_ns(&self) -> f64 {
        self.profile.cost.pause_ns
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn mark(&self, what: &'static str) {
        timed::mark(what);
    }
}
