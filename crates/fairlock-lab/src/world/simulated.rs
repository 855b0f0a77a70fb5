//! A machine that need not exist: simulated threads on simulated CPUs, see `fairlock_sim`.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use fairlock_report::timeline::MEASURING_BEGINS;
use fairlock_sim::profile::Profile;
use fairlock_sim::timed::{self, Failure, Happening, Setup, Span, Thread};
use fairlock_sim::tuning::Tuning;

use super::{FAIR, Finished, Priority, Run, Usage, Window, Worker, World};
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
    tuning: Tuning,
    /// Workers see it, and nobody else meanwhile: all of them run on one real thread.
    stopped: AtomicBool,
    duration_ns: AtomicU64,
    measured_since: AtomicU64,
    /// Who said that measuring begins.
    begun_by: AtomicUsize,
}

/// For [`SimWorld::measured_since`]: measuring has not begun.
const NOT_YET: u64 = u64::MAX;

impl SimWorld {
    /// A machine that keeps the first `timeline_ns` of a run as a timeline; with `pinned`, each thread
    /// stays on the CPU where it begins.
    pub fn new(profile: Arc<Profile>, seed: u64, timeline_ns: u64, pinned: bool) -> SimWorld {
        SimWorld {
            profile,
            seed,
            timeline_ns,
            pinned,
            tuning: Tuning::default(),
            stopped: AtomicBool::new(true),
            duration_ns: AtomicU64::new(0),
            measured_since: AtomicU64::new(NOT_YET),
            begun_by: AtomicUsize::new(0),
        }
    }

    /// The same machine whose locks have other constants.
    pub fn tuned(self, tuning: Tuning) -> SimWorld {
        SimWorld { tuning, ..self }
    }

    /// Adds the moment at which measuring began, if the timeline reaches it.
    fn mark_the_beginning(&self, since: u64, timeline: &mut timed::Timeline) {
        if since >= self.timeline_ns {
            return;
        }
        let thread = self.begun_by.load(Ordering::Relaxed) as u32;
        let is_its = |span: &&Span| span.thread == thread && span.to_ns >= since;
        let cpu = timeline.iter().find(is_its).map_or(0, |span| span.cpu);
        let what = Happening::Mark(MEASURING_BEGINS);
        let place = timeline.partition_point(|span| span.to_ns < since);
        timeline.insert(place, Span { thread, cpu, from_ns: since, to_ns: since, what });
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
        window: Window,
        cancelled: &dyn Fn() -> bool,
        workers: Vec<(Priority, Worker<'_, T>)>,
    ) -> Result<Run<T>, LabError> {
        let duration_ns = window.duration_ns();
        self.duration_ns.store(duration_ns, Ordering::Relaxed);
        let since = match window {
            Window::FromTheStart(_) => 0,
            Window::OnceArrived(_) => NOT_YET,
        };
        self.measured_since.store(since, Ordering::Relaxed);
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
            tuning: (!self.tuning.is_empty()).then_some(&self.tuning),
        };
        let ended = timed::run(&setup, threads.collect(), cancelled, &|| self.stop());
        self.stop();
        let mut report = ended.map_err(|failure| match failure {
            Failure::Deadlock(waiting) => LabError::Deadlock { waiting },
            Failure::Panicked(message) => LabError::Panicked(message),
        })?;
        // A run that was stopped before has measured nothing.
        let since = self.measured_since().unwrap_or(report.elapsed_ns);
        if matches!(window, Window::OnceArrived(_)) {
            self.mark_the_beginning(since, &mut report.timeline);
        }
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
            elapsed_ns: duration_ns.min(report.elapsed_ns - since).max(1),
            counted_ns: report.counted_ns.max(1),
            cpus_ns: report.counted_ns * u64::from(report.cpus),
            workers: workers.collect(),
            simulated: Some(report),
        })
    }

    fn begin_measuring(&self) {
        self.measured_since.store(timed::now(), Ordering::Relaxed);
        timed::begin_counting();
        self.begun_by.store(timed::thread().unwrap_or(0), Ordering::Relaxed);
    }

    fn measured_since(&self) -> Option<u64> {
        Some(self.measured_since.load(Ordering::Relaxed)).filter(|&since| since != NOT_YET)
    }

    #[inline]
    fn running(&self) -> bool {
        let since = self.measured_since.load(Ordering::Relaxed);
        let until = since.saturating_add(self.duration_ns.load(Ordering::Relaxed));
        let running = !self.stopped.load(Ordering::Relaxed) && timed::now() < until;
        if !running {
            timed::end_counting();
        }
        running
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

    #[inline]
    fn work(&self, ns: u64) -> u64 {
        timed::work(ns);
        0
    }

    #[inline]
    fn clock(&self) -> Option<u64> {
        Some(timed::now())
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
