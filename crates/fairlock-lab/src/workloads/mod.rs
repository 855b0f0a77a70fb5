//! The workloads, each written once against [`World`].
//!
//! Every workload whose threads can hold the lock at the same time checks its own invariant while it runs: a
//! lock that does not exclude a thread fails the run instead of winning it.

pub(crate) mod anon_vma;
mod client;
pub mod dio;
pub mod epoll;
pub mod epoll_wait;
pub mod forkstorm;
pub mod forkstorm_kernel;
pub mod inversion;
pub mod log;
pub mod mix;
pub mod readseek;
pub mod revocation;
pub mod rmapstorm;
mod scratch;
pub mod stress_epoll;
pub mod turns;
pub mod uncontended;

use client::NOTHING;
pub use client::{HOLD_READ, HOLD_WRITE, WAIT_READ, WAIT_WRITE};

use crate::error::{LabError, Violation};
use crate::measure::{Repetition, ThreadRecord, WRITER, merge_threads};
use crate::units::Length;
use crate::world::{FAIR, Priority, Worker, World};

/// One run of one workload: where, how long, and for whom.
pub struct Request<'a, W> {
    /// The machine.
    pub world: &'a W,
    /// The lock's registry name, for errors.
    pub lock: &'a str,
    /// How long to run, ns.
    pub duration_ns: u64,
    /// Asked now and then: true ends the run early.
    pub cancelled: &'a dyn Fn() -> bool,
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

type Body<'a> = Box<dyn FnOnce() -> Result<ThreadRecord, Failure> + Send + 'a>;

/// Runs the threads and merges their records. The first one that fails stops the others.
fn run_threads<W: World>(
    request: &Request<'_, W>,
    workload: &'static str,
    bodies: Vec<Body<'_>>,
) -> Result<Repetition, LabError> {
    let fair = bodies.into_iter().map(|body| (FAIR, body));
    run_threads_by_priority(request, workload, fair.collect())
}

/// As [`run_threads`], with a priority for each thread.
fn run_threads_by_priority<W: World>(
    request: &Request<'_, W>,
    workload: &'static str,
    bodies: Vec<(Priority, Body<'_>)>,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let workers = bodies.into_iter().map(|(priority, body)| {
        let worker: Worker<'_, Result<ThreadRecord, Failure>> =
            Box::new(move || body().inspect_err(|_| world.stop()));
        (priority, worker)
    });
    let (duration_ns, cancelled) = (request.duration_ns, request.cancelled);
    let run = world.run_by_priority(duration_ns, cancelled, workers.collect())?;
    let run = run.transpose().map_err(|failure| failed(request.lock, workload, failure))?;
    Ok(merge_threads(run))
}

fn failed(lock: &str, workload: &'static str, failure: Failure) -> LabError {
    match failure {
        Failure::Violation(violation) => broken(lock, workload, violation),
        Failure::Error(error) => error,
    }
}

fn broken(lock: &str, workload: &'static str, violation: Violation) -> LabError {
    LabError::Broken { lock: lock.to_string(), workload, violation }
}

/// Every write must be counted, the ones that ended after the run included.
fn check_no_update_was_lost<W>(
    request: &Request<'_, W>,
    workload: &'static str,
    repetition: &Repetition,
    value: Result<u64, Violation>,
) -> Result<(), LabError> {
    let writes = repetition.roles.get(WRITER).map_or(0, |writer| writer.executed);
    let lost = |counted| Violation::LostUpdate { writes, counted };
    match value {
        Ok(counted) if counted == writes => Ok(()),
        Ok(counted) => Err(broken(request.lock, workload, lost(counted))),
        Err(violation) => Err(broken(request.lock, workload, violation)),
    }
}

/// Thread counts are bounded so that a slip of the finger is an error and not a dead machine.
const MOST_THREADS: u32 = 4096;

fn check_thread_count(name: &'static str, threads: u64) -> Result<(), LabError> {
    if (1..=u64::from(MOST_THREADS)).contains(&threads) {
        return Ok(());
    }
    let valid = format!("1 to {MOST_THREADS}");
    Err(LabError::Parameter { name, value: threads.to_string(), valid })
}

/// A section or think longer than this would make a run's end late and its rate meaningless.
const LONGEST_LENGTH_NS: f64 = 1e9;

fn check_length(name: &'static str, length: Length, pause_ns: f64) -> Result<(), LabError> {
    let ns = match length {
        Length::Pauses(pauses) => f64::from(pauses) * pause_ns,
        Length::Nanoseconds(ns) => ns as f64,
    };
    if ns <= LONGEST_LENGTH_NS {
        return Ok(());
    }
    let valid = "at most one second".to_string();
    Err(LabError::Parameter { name, value: length.to_string(), valid })
}

fn check_share(read_percent: f64) -> Result<(), LabError> {
    if (0.0..=100.0).contains(&read_percent) {
        return Ok(());
    }
    let valid = "0 to 100".to_string();
    Err(LabError::Parameter { name: "read_percent", value: read_percent.to_string(), valid })
}
