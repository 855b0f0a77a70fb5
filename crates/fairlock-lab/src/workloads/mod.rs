//! The workloads, each written once against [`Machine`](crate::workload::Machine): a module with one struct of
//! parameters and one [`Workload`](crate::workload::Workload).
//!
//! Every workload whose threads can hold the lock at the same time checks its own invariant while it runs: a
//! lock that does not exclude a thread fails the run instead of winning it.
//!
//! Adding a workload is a module here and a line in [`REGISTRY`].

pub(crate) mod anon_vma;
mod arrival;
mod client;
pub mod dio;
pub mod epoll_wait;
pub mod forkstorm;
pub mod forkstorm_kernel;
pub mod inversion;
pub mod log;
pub mod mix;
pub mod mmapstorm;
pub mod patterns;
pub mod readseek;
pub mod replay;
pub mod revocation;
pub mod rmapstorm;
pub mod shards;
pub mod stress_epoll;
pub mod turns;
pub mod uncontended;

use client::NOTHING;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::error::{Failure, LabError, Violation};
use crate::locks::ranges::Whole;
use crate::locks::{NewLock, Protected};
use crate::measure::{Repetition, ThreadRecord, WRITER, merge_threads};
use crate::workload::{AnyWorkload, Entry, Request, UnderFileLock, UnderLock};
use crate::world::{FAIR, Priority, RealWorld, Window, Worker, World};

/// Lists the workloads. One that implements `UnderLock` or `UnderFileLock` says so: it also runs under the locks of a
/// [`Suite`](https://docs.rs/fairlock-study).
macro_rules! registry {
    ($($workload:ty $(as $under:ident)?),* $(,)?) => {
        /// Every workload, in listing order.
        pub const REGISTRY: &[Entry] = &[$(Entry::of::<$workload>()),*];

        /// Runs a workload that is for locks under a lock that the registry does not have; none for others.
        pub fn run_under<L: NewLock>(
            workload: &AnyWorkload,
            request: &Request<'_, RealWorld>,
        ) -> Option<Result<Repetition, LabError>> {
            $($(if let Some(known) = workload.downcast::<$workload>() {
                return Some(registry!(@run known, request, L, $under));
            })?)*
            None
        }

        #[cfg(test)]
        const UNDER_LOCKS: &[&str] = &[$($(registry!(@name $workload, $under),)?)*];
    };
    (@name $workload:ty, $under:ident) => { <$workload as crate::workload::Workload>::NAME };
    (@run $workload:ident, $request:ident, $lock:ty, UnderLock) => {
        UnderLock::run_under::<RealWorld, $lock>($workload, $request, NewLock::new)
    };
    (@run $workload:ident, $request:ident, $lock:ty, UnderFileLock) => {
        UnderFileLock::run_under($workload, $request, Whole(<$lock>::new(Protected::new())))
    };
}

registry! {
    mix::Mix as UnderLock,
    turns::Turns as UnderLock,
    uncontended::Uncontended as UnderLock,
    shards::Shards as UnderLock,
    patterns::Patterns,
    revocation::Revocation as UnderLock,
    dio::DioKernel,
    dio::DioKernelApart,
    dio::DioLog,
    dio::DioLogApart,
    dio::DioLock as UnderLock,
    dio::DioSleep as UnderLock,
    log::Log,
    readseek::Readseek as UnderFileLock,
    readseek::ReadseekKernel,
    readseek::ReadseekKernelTmpfs,
    readseek::ReadseekProcesses,
    stress_epoll::StressEpoll,
    epoll_wait::EpollWait,
    forkstorm::Forkstorm as UnderLock,
    rmapstorm::Rmapstorm as UnderLock,
    forkstorm_kernel::ForkstormKernel,
    mmapstorm::Mmapstorm,
    inversion::InversionLock as UnderLock,
    inversion::InversionList,
    replay::Replay as UnderLock,
}

/// Workloads that are not Fairlock's to know: the sections of a [`Suite`](https://docs.rs/fairlock-study).
static ADDED: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Adds a workload to those that are found by their names.
///
/// # Errors
/// If there is one of this name.
pub fn add(entry: Entry) -> Result<(), String> {
    if find(entry.name).is_some() {
        return Err(format!("there is a workload `{}` already; give another name", entry.name));
    }
    ADDED.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    Ok(())
}

/// Every workload, those added first.
pub fn all() -> Vec<Entry> {
    let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    added.iter().chain(REGISTRY).copied().collect()
}

/// The workload of this name.
pub fn find(name: &str) -> Option<Entry> {
    all().into_iter().find(|entry| entry.name == name)
}

/// The workload of this name.
///
/// # Errors
/// If there is none, with the valid names.
pub fn named(name: &str) -> Result<Entry, String> {
    find(name).ok_or_else(|| {
        let names: Vec<&str> = all().iter().map(|entry| entry.name).collect();
        format!("unknown workload \"{name}\"; the workloads are: {}", names.join(", "))
    })
}

type Body<'a> = Box<dyn FnOnce() -> Result<ThreadRecord, Failure> + Send + 'a>;

/// What each of these threads does, by its number. Workloads are compiled for every lock; this is compiled once.
fn bodies<'a>(threads: u32, body: &dyn Fn(u32) -> Body<'a>) -> Vec<Body<'a>> {
    (0..threads).map(body).collect()
}

/// Adds what a lock has counted to what others have.
fn add_events(repetition: &mut Repetition, events: BTreeMap<String, u64>) {
    for (event, count) in events {
        *repetition.events.entry(event).or_default() += count;
    }
}

/// Runs the threads and merges their records. The first one that fails stops the others.
fn run_threads<W: World>(
    request: &Request<'_, W>,
    workload: &'static str,
    bodies: Vec<Body<'_>>,
) -> Result<Repetition, LabError> {
    run_threads_within(request, workload, Window::FromTheStart(request.duration_ns), bodies)
}

/// As [`run_threads`], where not all of the run need be measured.
fn run_threads_within<W: World>(
    request: &Request<'_, W>,
    workload: &'static str,
    window: Window,
    bodies: Vec<Body<'_>>,
) -> Result<Repetition, LabError> {
    let fair = bodies.into_iter().map(|body| (FAIR, body));
    run_workers(request, workload, window, fair.collect())
}

/// As [`run_threads`], with a priority for each thread.
fn run_threads_by_priority<W: World>(
    request: &Request<'_, W>,
    workload: &'static str,
    bodies: Vec<(Priority, Body<'_>)>,
) -> Result<Repetition, LabError> {
    run_workers(request, workload, Window::FromTheStart(request.duration_ns), bodies)
}

fn run_workers<W: World>(
    request: &Request<'_, W>,
    workload: &'static str,
    window: Window,
    bodies: Vec<(Priority, Body<'_>)>,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let workers = bodies.into_iter().map(|(priority, body)| {
        let worker: Worker<'_, Result<ThreadRecord, Failure>> =
            Box::new(move || body().inspect_err(|_| world.stop()));
        (priority, worker)
    });
    let run = world.run_by_priority(window, request.cancelled, workers.collect())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_that_is_for_locks_says_so_in_the_registry() {
        for entry in REGISTRY {
            let takes_locks = (entry.subjects.check)("parking_lot", false).is_ok();
            assert_eq!(takes_locks, UNDER_LOCKS.contains(&entry.name), "{}", entry.name);
        }
    }
}
