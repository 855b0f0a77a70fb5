//! The workloads, each written once against [`Machine`](crate::workload::Machine): a module with one struct of
//! parameters and one [`Workload`](crate::workload::Workload).
//!
//! Every workload whose threads can hold the lock at the same time checks its own invariant while it runs: a
//! lock that does not exclude a thread fails the run instead of winning it.
//!
//! Adding a workload is a module here and a line in [`REGISTRY`].

pub(crate) mod anon_vma;
mod client;
pub mod dio;
pub mod epoll_wait;
pub mod forkstorm;
pub mod forkstorm_kernel;
pub mod inversion;
pub mod log;
pub mod mix;
pub mod readseek;
pub mod revocation;
pub mod rmapstorm;
pub mod stress_epoll;
pub mod turns;
pub mod uncontended;

use client::NOTHING;

use crate::error::{Failure, LabError, Violation};
use crate::measure::{Repetition, ThreadRecord, WRITER, merge_threads};
use crate::workload::{Entry, Request};
use crate::world::{FAIR, Priority, Worker, World};

/// Every workload, in listing order.
pub const REGISTRY: &[Entry] = &[
    Entry::of::<mix::Mix>(),
    Entry::of::<turns::Turns>(),
    Entry::of::<uncontended::Uncontended>(),
    Entry::of::<revocation::Revocation>(),
    Entry::of::<dio::DioKernel>(),
    Entry::of::<dio::DioKernelApart>(),
    Entry::of::<dio::DioLog>(),
    Entry::of::<dio::DioLogApart>(),
    Entry::of::<dio::DioLock>(),
    Entry::of::<dio::DioSleep>(),
    Entry::of::<log::Log>(),
    Entry::of::<readseek::Readseek>(),
    Entry::of::<readseek::ReadseekKernel>(),
    Entry::of::<readseek::ReadseekKernelTmpfs>(),
    Entry::of::<readseek::ReadseekProcesses>(),
    Entry::of::<stress_epoll::StressEpoll>(),
    Entry::of::<epoll_wait::EpollWait>(),
    Entry::of::<forkstorm::Forkstorm>(),
    Entry::of::<rmapstorm::Rmapstorm>(),
    Entry::of::<forkstorm_kernel::ForkstormKernel>(),
    Entry::of::<inversion::InversionLock>(),
    Entry::of::<inversion::InversionList>(),
];

/// The workload of this name.
pub fn find(name: &str) -> Option<Entry> {
    REGISTRY.iter().find(|entry| entry.name == name).copied()
}

/// The workload of this name.
///
/// # Errors
/// If there is none, with the valid names.
pub fn named(name: &str) -> Result<Entry, String> {
    find(name).ok_or_else(|| {
        let names: Vec<&str> = REGISTRY.iter().map(|entry| entry.name).collect();
        format!("unknown workload \"{name}\"; the workloads are: {}", names.join(", "))
    })
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
    let run = run.transpose().map_err(|failure| request.failed(workload, failure))?;
    Ok(merge_threads(run))
}

/// Every write must be counted, the ones that ended after the run included.
fn check_no_update_was_lost<W>(
    request: &Request<'_, W>,
    workload: &'static str,
    repetition: &Repetition,
    value: Result<u64, Violation>,
) -> Result<(), LabError> {
    let writes = repetition.roles.get(WRITER).map_or(0, |writer| writer.executed);
    match value {
        Ok(counted) if counted == writes => Ok(()),
        Ok(counted) => Err(request.broken(workload, Violation::LostUpdate { writes, counted })),
        Err(violation) => Err(request.broken(workload, violation)),
    }
}
