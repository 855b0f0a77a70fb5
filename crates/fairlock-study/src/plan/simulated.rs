//! Runs a group of cells on a simulated machine: all seeds of all locks, as many at a time as the host
//! has CPUs. Other load on the host cannot change the results of a simulated machine, so nothing is warmed
//! up, interleaved or repeated.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use fairlock_lab::error::LabError;
use fairlock_lab::measure::Repetition;

use super::{Cell, Observer, Step};

/// How often to look whether the plan was cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(20);
/// Host seconds that one simulated second of one thread takes at most, by far: beyond that a run is
/// called hung.
const SLOWEST: f64 = 200.0;

/// Runs one repetition of a cell; asks now and then whether to stop.
pub(super) type RunOnce<'a> =
    &'a (dyn Fn(&Cell, u32, &dyn Fn() -> bool) -> Result<Repetition, LabError> + Sync);

/// What a worker has to tell.
enum News {
    Started { job: usize },
    Ended { job: usize, result: Box<Result<Repetition, LabError>> },
}

/// Runs the group. Answers the repetitions of each cell, in the
/// order of their seeds. If the observer cancels, those before the first one that did not end.
pub(super) fn run_group(
    group: &[&Cell],
    observer: &mut dyn Observer,
    run_once: RunOnce<'_>,
) -> Result<Vec<Vec<Repetition>>, LabError> {
    // Seed by seed, so that a cancelled group has about as many of each lock.
    let repetitions = group[0].repetitions;
    let jobs: Vec<(usize, u32)> =
        (0..repetitions).flat_map(|seed| (0..group.len()).map(move |cell| (cell, seed))).collect();
    let (stop, next) = (AtomicBool::new(observer.cancelled()), AtomicUsize::new(0));
    let (sender, news) = mpsc::channel();
    let mut done: Vec<Option<Repetition>> = vec![None; jobs.len()];
    let mut failure: Option<(usize, LabError)> = None;
    let workers = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    thread::scope(|scope| {
        for _ in 0..workers {
            let (jobs, stop, next, sender) = (&jobs, &stop, &next, sender.clone());
            scope.spawn(move || {
                // Relaxed: the channel publishes what a job leaves.
                while !stop.load(Ordering::Relaxed) {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(cell, seed)) = jobs.get(job) else { break };
                    // The receiver lives as long as the scope.
                    let _ = sender.send(News::Started { job });
                    let result = run_once(group[cell], seed, &|| stop.load(Ordering::Relaxed));
                    // A run that was stopped counts for nothing.
                    if result.is_err() || !stop.load(Ordering::Relaxed) {
                        let _ = sender.send(News::Ended { job, result: Box::new(result) });
                    }
                }
            });
        }
        drop(sender);
        loop {
            let step = |job: usize| {
                let (cell, repetition) = jobs[job];
                Step { cell: group[cell], repetition }
            };
            match news.recv_timeout(CANCEL_POLL) {
                Ok(News::Started { job }) => {
                    let step = step(job);
                    observer.started(&step);
                    observer.run_begins(step.cell, step.cell.thread_seconds() * SLOWEST);
                }
                Ok(News::Ended { job, result }) => match *result {
                    Ok(repetition) => {
                        done[job] = Some(repetition);
                        observer.finished(&step(job));
                    }
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        if failure.as_ref().is_none_or(|(first, _)| job < *first) {
                            failure = Some((job, error));
                        }
                    }
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if observer.cancelled() {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    observer.run_ended();
    if let Some((_, error)) = failure {
        return Err(error);
    }
    let mut by_cell: Vec<Vec<Option<Repetition>>> = vec![Vec::new(); group.len()];
    for ((cell, _), repetition) in jobs.into_iter().zip(done) {
        by_cell[cell].push(repetition);
    }
    Ok(by_cell
        .into_iter()
        .map(|seeds| seeds.into_iter().map_while(|seed| seed).collect())
        .collect())
}
