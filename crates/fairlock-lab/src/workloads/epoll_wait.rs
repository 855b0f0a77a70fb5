//! `epoll-wait`: threads that wait for one event at a time, and one that keeps all of their sources busy
//! (`perf bench epoll wait`).
//!
//! Each worker has a poller with sources of its own, unless all share one. The writer adds to every source of
//! every worker, sleeps for half a microsecond, and begins anew; it goes on until all workers have ended, so
//! that none waits for ever. The result is the rate of a worker, `roles.reader.thread_mean`, with those of the
//! slowest and the fastest beside it.
//!
//! The switches are those of the original (tools/perf/bench/epoll-wait.c), with differences where a worker
//! comes in vain: here it counts only if there was something to read, where the original reads until there is.
//! And one edge follows the other without the source being added to the poller again. Nesting is as
//! there: a chain of pollers without sources below each poller, of which nothing is ever reported; it lengthens what a registration
//! has to look at.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::epoll::{PATIENCE, Poller, STAMP_EVERY, Source, Trigger, sources};
use super::{Body, Request, broken, check_thread_count, run_threads};
use crate::error::{LabError, Violation};
use crate::measure::statistics::XorShift;
use crate::measure::{Repetition, RoleRecorder, ThreadRecord, WRITER};
use crate::world::World;

/// The name that rows carry.
pub const NAME: &str = "epoll-wait";

/// How long the writer sleeps between two sweeps.
const SLEEP_NS: u64 = 500;

/// Sources of one worker: as many as descriptors may be open on most systems, by far.
const MOST_SOURCES: u32 = 4096;

/// The original's bound, which is the kernel's.
const DEEPEST: u32 = 4;

/// Parameters of [`epoll-wait`](self).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EpollWaitParams {
    /// Threads that wait.
    pub workers: u32,
    /// Sources of each.
    pub sources: u32,
    /// All wait on one poller, with the sources of all.
    pub shared: bool,
    /// When a source is reported.
    pub trigger: Trigger,
    /// They ask and do not wait.
    pub polling: bool,
    /// Pollers in a chain below each poller.
    pub nested: u32,
    /// The writer takes workers and sources in a random order.
    pub random: bool,
}

impl Default for EpollWaitParams {
    /// One worker with 64 sources, level-triggered.
    fn default() -> EpollWaitParams {
        EpollWaitParams {
            workers: 1,
            sources: 64,
            shared: false,
            trigger: Trigger::Level,
            polling: false,
            nested: 0,
            random: false,
        }
    }
}

impl EpollWaitParams {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// [`LabError::Parameter`] names the first one that does not.
    pub fn validate(&self) -> Result<(), LabError> {
        check_thread_count("readers", self.workers.into())?;
        let wrong = |name, value: u32, valid| {
            Err(LabError::Parameter { name, value: value.to_string(), valid })
        };
        if !(1..=MOST_SOURCES).contains(&self.sources) {
            return wrong("sources", self.sources, format!("1 to {MOST_SOURCES}"));
        }
        if self.nested > DEEPEST {
            return wrong("nested", self.nested, format!("0 to {DEEPEST}"));
        }
        Ok(())
    }

    /// The row's `params`.
    pub fn row_params(&self) -> BTreeMap<String, f64> {
        [
            ("readers", self.workers),
            ("writers", 1),
            ("sources", self.sources),
            ("shared", self.shared.into()),
            ("trigger", self.trigger.number()),
            ("polling", self.polling.into()),
            ("nested", self.nested),
            ("random", self.random.into()),
        ]
        .map(|(name, value)| (name.to_string(), f64::from(value)))
        .into()
    }
}

/// Pollers, and the sources of each worker.
struct Setting<P: Poller> {
    /// One, or one for each worker.
    pollers: Vec<P>,
    /// Of each poller, without sources.
    _chains: Vec<Vec<P>>,
    /// By worker.
    sources: Vec<Vec<Source<P::Counter>>>,
}

impl<P: Poller> Setting<P> {
    fn new(params: &EpollWaitParams) -> Result<Self, LabError> {
        let pollers = if params.shared { 1 } else { params.workers };
        let pollers = (0..pollers).map(|_| P::new()).collect::<Result<Vec<P>, LabError>>()?;
        let chains = pollers.iter().map(|poller| chain(poller, params.nested));
        let chains = chains.collect::<Result<Vec<_>, _>>()?;
        let of_worker = |worker: u32| {
            let poller = if params.shared { 0 } else { worker };
            // Every token says whose it is, whoever gets it.
            let first = u64::from(worker) * u64::from(params.sources);
            sources::<P>(params.sources, &pollers[poller as usize], params.trigger, first)
        };
        let sources = (0..params.workers).map(of_worker).collect::<Result<Vec<_>, _>>()?;
        Ok(Setting { pollers, _chains: chains, sources })
    }

    fn poller_of(&self, worker: usize) -> &P {
        &self.pollers[worker % self.pollers.len()]
    }

    fn source_of(&self, token: u64) -> &Source<P::Counter> {
        let each = self.sources[0].len();
        &self.sources[token as usize / each][token as usize % each]
    }
}

/// So many pollers, each the only source of the one before, the first one's that of `outer`.
fn chain<P: Poller>(outer: &P, nested: u32) -> Result<Vec<P>, LabError> {
    let mut chain: Vec<P> = Vec::new();
    for _ in 0..nested {
        let inner = P::new()?;
        chain.last().unwrap_or(outer).enclose(&inner)?;
        chain.push(inner);
    }
    Ok(chain)
}

/// Runs the workload once on fresh pollers.
///
/// # Errors
/// When an event is lost, the system has no more descriptors, or threads cannot be started.
pub fn run<W: World, P: Poller>(
    request: &Request<'_, W>,
    params: &EpollWaitParams,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let setting = &Setting::<P>::new(params)?;
    let left = &AtomicU32::new(params.workers);
    let mut bodies: Vec<Body<'_>> = Vec::new();
    for worker in 0..params.workers as usize {
        bodies.push(Box::new(move || {
            let _leaves = Leaves(left);
            world.stay(worker);
            let record = work(world, setting, params, worker)?;
            Ok(ThreadRecord { reader: Some(record), ..ThreadRecord::default() })
        }));
    }
    bodies.push(Box::new(move || {
        let record = write(world, setting, params, left)?;
        Ok(ThreadRecord { writer: Some(record), ..ThreadRecord::default() })
    }));
    let repetition = run_threads(request, NAME, bodies)?;
    let written = repetition.roles.get(WRITER).map_or(0, |writer| writer.executed);
    match read_all(setting, params)? {
        read if read == written => Ok(repetition),
        read => Err(broken(request.lock, NAME, Violation::LostEvents { written, read })),
    }
}

/// Counts a worker out when it ends, also by a panic: the writer goes on until all have.
struct Leaves<'a>(&'a AtomicU32);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for one event after the other.
fn work<W: World, P: Poller>(
    world: &W,
    setting: &Setting<P>,
    params: &EpollWaitParams,
    worker: usize,
) -> Result<RoleRecorder, LabError> {
    let mut reader = RoleRecorder::default();
    let poller = setting.poller_of(worker);
    let timeout = if params.polling { Duration::ZERO } else { PATIENCE };
    let mut batch = P::batch(1);
    let mut calls = 0;
    loop {
        let reported = poller.wait(&mut batch, timeout)?;
        calls += u64::from(world.running());
        if reported > 0 && deliver(world, setting, params, P::token(&batch, 0), &mut reader)? {
            reader.executed += 1;
            reader.ops += u64::from(world.running());
        }
        if !world.running() {
            reader.wait_calls = Some(calls);
            return Ok(reader);
        }
    }
}

/// Reads a source that was reported to a worker; false if somebody else has read it before.
fn deliver<W: World, P: Poller>(
    world: &W,
    setting: &Setting<P>,
    params: &EpollWaitParams,
    token: u64,
    reader: &mut RoleRecorder,
) -> Result<bool, LabError> {
    let source = setting.source_of(token);
    let count = P::read(&source.counter)?;
    if params.trigger == Trigger::Once {
        let worker = token as usize / params.sources as usize;
        setting.poller_of(worker).rearm(&source.counter, token)?;
    }
    let Some(count) = count else { return Ok(false) };
    if let Some(latency) = source.took(count, || world.now()) {
        reader.wait.record(latency);
        reader.latency.record(latency);
    }
    Ok(true)
}

/// Sweeps over all sources until the workers have ended.
fn write<W: World, P: Poller>(
    world: &W,
    setting: &Setting<P>,
    params: &EpollWaitParams,
    left: &AtomicU32,
) -> Result<RoleRecorder, LabError> {
    let mut writer = RoleRecorder::default();
    let mut random = XorShift::new(world.seed());
    let mut order: Vec<Vec<u32>> =
        (0..params.workers).map(|_| (0..params.sources).collect()).collect();
    let mut workers: Vec<usize> = (0..order.len()).collect();
    let mut sweeps = 0_u64;
    loop {
        sweeps += 1;
        if params.random {
            shuffle(&mut workers, &mut random);
            order.iter_mut().for_each(|order| shuffle(order, &mut random));
        }
        for &worker in &workers {
            for &index in &order[worker] {
                let source = &setting.sources[worker][index as usize];
                // Each source gets one addition in a sweep.
                if (sweeps + u64::from(index)).is_multiple_of(STAMP_EVERY.into()) {
                    source.stamp.leave(sweeps, || world.now());
                }
                P::add(&source.counter)?;
                writer.executed += 1;
                writer.ops += u64::from(world.running());
            }
        }
        // Relaxed: it says only that nobody waits any more.
        if left.load(Ordering::Relaxed) == 0 {
            return Ok(writer);
        }
        world.sleep(SLEEP_NS);
    }
}

fn shuffle<T>(items: &mut [T], random: &mut XorShift) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u32 + 1) as usize);
    }
}

/// Everybody has ended: reads what is still reported, and answers how much was read in all.
fn read_all<P: Poller>(setting: &Setting<P>, params: &EpollWaitParams) -> Result<u64, LabError> {
    let mut batch = P::batch(params.sources as usize);
    for poller in &setting.pollers {
        loop {
            let mut took = false;
            for place in 0..poller.wait(&mut batch, Duration::ZERO)? {
                let source = setting.source_of(P::token(&batch, place));
                if let Some(count) = P::read(&source.counter)? {
                    source.taken.fetch_add(count, Ordering::Relaxed);
                    took = true;
                }
            }
            if !took {
                break;
            }
        }
    }
    let sources = setting.sources.iter().flatten();
    Ok(sources.map(|source| source.taken.load(Ordering::Relaxed)).sum())
}
