//! Runs tasks here: those on simulated machines on all CPUs at once, since nothing changes their results, and those
//! with real threads one after the other when nothing else of the sweep runs.

use std::collections::BTreeSet;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_lab::machine;
use fairlock_lab::measure::Kept;
use fairlock_lab::workload::THIS_PROGRAM;
use fairlock_report::row::Row;

use super::merge;
use super::plan::{Plan, Task, Work, version};
use super::results::{CellOutcome, Outcome, Results};
use crate::plan::{Cell, Engine, Observer};
use crate::timeline;

/// How often to look whether the run was cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(20);

/// Watches tasks run, and may end that. All methods are called on one thread.
pub trait Watch {
    /// Some tasks are to run, of which all together should take one CPU so many seconds.
    fn begins(&mut self, _tasks: usize, _estimate_s: f64) {}
    /// A task has begun.
    fn started(&mut self, _task: &Task<'_>) {}
    /// Called several times a second while tasks run.
    fn waits(&mut self) {}
    /// A task has its result.
    fn finished(&mut self, _task: &Task<'_>) {}
    /// A task failed.
    fn failed(&mut self, _task: &Task<'_>, _reason: &str) {}
    /// All tasks of some cells have their results: their rows.
    fn rows(&mut self, _rows: &[Row]) {}
    /// Asked several times a second; true ends the run.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Watches nothing.
impl Watch for () {}

/// What a run of tasks came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// How many have their results now that had not before.
    pub finished: usize,
    /// How many had their results before.
    pub there: usize,
    /// Which failed, and why.
    pub failed: Vec<(String, String)>,
    /// Whether the run was ended early.
    pub cancelled: bool,
}

/// Where and how tasks run.
#[derive(Debug, Clone, Copy)]
pub struct Means<'a> {
    /// The results.
    pub results: &'a Results,
    /// How many at a time.
    pub workers: usize,
    /// Where scratch files go.
    pub scratch: &'a Path,
}

/// Runs those tasks of a plan that `wanted` names and whose results are not there.
///
/// # Errors
/// A result that cannot be written.
pub fn run(
    plan: &Plan,
    wanted: &dyn Fn(usize, &Task<'_>) -> bool,
    means: Means<'_>,
    watch: &mut dyn Watch,
) -> Result<Ran, String> {
    let results = means.results;
    results.create().map_err(|error| format!("cannot make room for results: {error}"))?;
    // Of those that are looked at, not of all that may be there.
    let is_there = |task: &Task<'_>| results.has(task.name);
    let there = plan.tasks().filter(is_there).map(|task| task.name.to_owned());
    let mut there: BTreeSet<String> = there.collect();
    let (mut ran, mut jobs) = (Ran::default(), Vec::new());
    let groups = plan.groups.iter().enumerate();
    let all = groups.flat_map(|(group, it)| it.tasks().map(move |task| Job { group, task }));
    for (place, job) in all.enumerate() {
        let task = &job.task;
        match wanted(place, task) {
            true if there.contains(task.name) => ran.there += 1,
            true => jobs.push(job),
            false => {}
        }
    }
    watch.begins(jobs.len(), jobs.iter().map(|job| job.task.estimate_s()).sum());
    let (real, simulated): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.task.is_real());
    for (jobs, workers) in [(simulated, means.workers), (real, 1)] {
        let mut done = |watch: &mut dyn Watch, job: &Job<'_>| {
            there.insert(job.task.name.to_owned());
            let group = &plan.groups[job.group];
            if group.tasks().all(|task| there.contains(task.name)) {
                // A result that another program has damaged meanwhile is told of when rows are made of all.
                watch.rows(
                    &merge::rows_of(group, std::slice::from_ref(results)).unwrap_or_default(),
                );
            }
        };
        run_all(&jobs, workers, means, watch, &mut ran, &mut done)?;
    }
    Ok(ran)
}

/// A task to run, and its group's place in the plan.
struct Job<'a> {
    group: usize,
    task: Task<'a>,
}

/// What a worker has to tell.
enum News {
    Started(usize),
    Ended(usize, Result<(), Trouble>),
}

/// Why a task has no result.
enum Trouble {
    /// The run was ended.
    Cancelled,
    /// The task failed.
    Failed(String),
    /// The result cannot be kept.
    Unwritten(String),
}

fn run_all(
    jobs: &[Job<'_>],
    workers: usize,
    means: Means<'_>,
    watch: &mut dyn Watch,
    ran: &mut Ran,
    done: &mut dyn FnMut(&mut dyn Watch, &Job<'_>),
) -> Result<(), String> {
    let (stop, next) = (AtomicBool::new(watch.cancelled()), AtomicUsize::new(0));
    let (sender, news) = mpsc::channel();
    let mut unwritten = None;
    thread::scope(|scope| {
        for _ in 0..workers.min(jobs.len()) {
            let (stop, next, sender) = (&stop, &next, sender.clone());
            scope.spawn(move || {
                // Relaxed: the channel publishes what a job leaves.
                while !stop.load(Ordering::Relaxed) {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    let Some(Job { task, .. }) = jobs.get(job) else { break };
                    // The receiver lives as long as the scope.
                    let _ = sender.send(News::Started(job));
                    let cancelled = || stop.load(Ordering::Relaxed);
                    let _ = sender.send(News::Ended(job, run_task(task, means, &cancelled)));
                }
            });
        }
        drop(sender);
        loop {
            match news.recv_timeout(CANCEL_POLL) {
                Ok(News::Started(job)) => watch.started(&jobs[job].task),
                Ok(News::Ended(job, Ok(()))) => {
                    ran.finished += 1;
                    watch.finished(&jobs[job].task);
                    done(watch, &jobs[job]);
                }
                Ok(News::Ended(_, Err(Trouble::Cancelled))) => {}
                Ok(News::Ended(job, Err(Trouble::Failed(reason)))) => {
                    let task = &jobs[job].task;
                    watch.failed(task, &reason);
                    // Where it cannot be kept it is told at the end.
                    let _ = means.results.put_failure(task.name, &reason);
                    ran.failed.push((task.name.to_owned(), reason));
                }
                Ok(News::Ended(_, Err(Trouble::Unwritten(reason)))) => {
                    stop.store(true, Ordering::Relaxed);
                    unwritten.get_or_insert(reason);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            watch.waits();
            if watch.cancelled() {
                ran.cancelled = true;
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    unwritten.map_or(Ok(()), Err)
}

/// Runs one task and keeps its result.
fn run_task(
    task: &Task<'_>,
    means: Means<'_>,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<(), Trouble> {
    let started = Instant::now();
    // A defect in a lock or in a workload is the matter of this task alone.
    let caught = panic::catch_unwind(AssertUnwindSafe(|| cells(task, means, cancelled)));
    let cells = match caught {
        Ok(cells) => cells?,
        Err(payload) => {
            let said = payload.downcast_ref::<&str>().map(|it| (*it).to_owned());
            let said = said.or_else(|| payload.downcast_ref::<String>().cloned());
            return Err(Trouble::Failed(format!("panicked: {}", said.unwrap_or_default())));
        }
    };
    if cancelled() {
        return Err(Trouble::Cancelled);
    }
    let took_s = started.elapsed().as_secs_f64();
    let machine = task.is_real().then(|| machine::here(Some(means.scratch)));
    let outcome =
        Outcome { task: task.name.to_owned(), version: version(), took_s, machine, cells };
    means.results.put(&outcome).map_err(|error: io::Error| {
        Trouble::Unwritten(format!("cannot write the result of task {}: {error}", task.name))
    })
}

fn cells(
    task: &Task<'_>,
    means: Means<'_>,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<CellOutcome>, Trouble> {
    match task.work {
        Work::Seed { cell, repetition } => seed(cell, repetition, cancelled).map(|it| vec![it]),
        Work::Threads(cells) => {
            let mut engine = Engine::new(means.scratch, Path::new(THIS_PROGRAM)).keeping();
            let ended = engine.run(cells, &mut Until(cancelled));
            ended.map_err(|error| Trouble::Failed(error.to_string()))?;
            if cancelled() {
                return Err(Trouble::Cancelled);
            }
            Ok(engine.into_made().into_iter().map(CellOutcome::of).collect())
        }
    }
}

fn seed(
    cell: &Cell,
    repetition: u32,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<CellOutcome, Trouble> {
    let simulated = cell.simulate(repetition, cancelled);
    let mut simulated = simulated.map_err(|error| Trouble::Failed(error.to_string()))?;
    let recorded = simulated.simulated.as_mut().map(|report| std::mem::take(&mut report.timeline));
    let recorded = recorded.filter(|timeline| !timeline.is_empty());
    let timeline = recorded.map(|recorded| timeline::beginning(cell, &recorded));
    let repetitions = vec![Kept::of(simulated)];
    Ok(CellOutcome { repetitions, events: None, discarded: 0, timeline })
}

/// Ends a run when it is asked to.
struct Until<'a>(&'a (dyn Fn() -> bool + Sync));

impl Observer for Until<'_> {
    fn cancelled(&self) -> bool {
        (self.0)()
    }
}

/// The names of tasks that have no result yet.
pub fn missing<'a>(plan: &'a Plan, results: &Results) -> Vec<Task<'a>> {
    let there: BTreeSet<String> = results.names();
    plan.tasks().filter(|task| !there.contains(task.name)).collect()
}
