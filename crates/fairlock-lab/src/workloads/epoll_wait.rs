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

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clap::Args;
use fairlock_report::random::{XorShift, shuffle};
use fairlock_report::units::{at_least_one, count, counted};
use serde::{Deserialize, Serialize};

use super::{Body, run_threads};
use crate::error::{LabError, Violation};
use crate::measure::{Repetition, RoleRecorder, ThreadRecord, WRITER};
use crate::pollers::{PATIENCE, Poller, STAMP_EVERY, Source, Trigger, sources};
use crate::workload::{
    DEFAULT_POLLERS, DefaultSubjects, Machine, POLLERS, Request, Role, Subjects, WithPoller,
    Workload, check_thread_count, defaults, roles, run_with_poller, running, wrong,
};
use crate::world::World;

/// How long the writer sleeps between two sweeps.
const SLEEP_NS: u64 = 500;

/// Sources of one worker: as many as descriptors may be open on most systems, by far.
const MOST_SOURCES: u32 = 4096;

/// The original's bound, which is the kernel's.
const DEEPEST: u32 = 4;

/// Host seconds for one simulated second of each thread that runs.
const SIMULATION_COST: f64 = 3.2;

/// Parameters of [`epoll-wait`](self).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct EpollWait {
    /// Threads that wait; one more adds
    #[arg(long = "threads", value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub readers: u32,
    /// The thread that adds; there is one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count, hide = true)]
    pub writers: u32,
    /// Sources of each thread that waits
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one)]
    pub sources: u32,
    /// All wait on one poller, with the sources of all, instead of one each
    #[arg(long)]
    pub shared: bool,
    /// When a source is reported
    #[arg(long, value_enum, default_value = "level")]
    pub trigger: Trigger,
    /// Poll without waiting
    #[arg(long = "nonblocking")]
    pub polling: bool,
    /// Pollers in a chain below each one, up to 4
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count)]
    pub nested: u32,
    /// Add to the threads' sources in a random order
    #[arg(long)]
    pub random: bool,
}

impl Default for EpollWait {
    fn default() -> EpollWait {
        defaults()
    }
}

impl Workload for EpollWait {
    const NAME: &'static str = "epoll-wait";
    const ABOUT: &'static str = "threads that wait for one event at a time, and one that keeps them busy (perf bench epoll wait)";
    const EXAMPLES: &'static [&'static str] = &[
        "",
        "--threads 2,8 --shared --trigger once",
        "--poller kernel --nonblocking --nested 3 --random",
        "--on riscv-4 --poller ready,rwlock-list-queued,spin-list-mcs",
    ];
    const SUBJECTS: Subjects = POLLERS;
    const DEFAULT_SUBJECTS: DefaultSubjects = DEFAULT_POLLERS;

    fn roles(&self) -> Vec<Role> {
        roles(&[("reader", self.readers), ("writer", self.writers)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        let mut words =
            vec![("sources", format!("{} each", counted(self.sources.into(), "source")))];
        words.extend(self.shared.then(|| ("shared", "one poller for all".to_owned())));
        words.push(("trigger", self.trigger.words().to_owned()));
        words.extend(self.polling.then(|| ("polling", "polling".to_owned())));
        words.extend((self.nested != 0).then(|| ("nested", format!("{} nested", self.nested))));
        words.extend(self.random.then(|| ("random", "in random order".to_owned())));
        words
    }

    fn validate(&self, _pause_ns: f64) -> Result<(), LabError> {
        check_thread_count("readers", self.readers.into())?;
        if self.writers != 1 {
            return wrong("writers", self.writers, "1: one thread adds".to_string());
        }
        if !(1..=MOST_SOURCES).contains(&self.sources) {
            return wrong("sources", self.sources, format!("1 to {MOST_SOURCES}"));
        }
        if self.nested > DEEPEST {
            return wrong("nested", self.nested, format!("0 to {DEEPEST}"));
        }
        Ok(())
    }

    fn simulation_cost(&self, _lock: &str, cpus: u32) -> f64 {
        running(self.readers + self.writers, cpus) * SIMULATION_COST
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_with_poller(self, request)
    }
}

impl WithPoller for EpollWait {
    fn run_with<W: Machine, P: Poller>(
        &self,
        request: &Request<'_, W>,
    ) -> Result<Repetition, LabError> {
        let world = request.world;
        let setting = &Setting::<P>::new(self)?;
        let left = &AtomicU32::new(self.readers);
        let mut bodies: Vec<Body<'_>> = Vec::new();
        for worker in 0..self.readers as usize {
            bodies.push(Box::new(move || {
                let _leaves = Leaves(left);
                world.stay(worker);
                let record = work(world, setting, self, worker)?;
                Ok(ThreadRecord { reader: Some(record), ..ThreadRecord::default() })
            }));
        }
        bodies.push(Box::new(move || {
            let record = write(world, setting, self, left)?;
            Ok(ThreadRecord { writer: Some(record), ..ThreadRecord::default() })
        }));
        let repetition = run_threads(request, EpollWait::NAME, bodies)?;
        let written = repetition.roles.get(WRITER).map_or(0, |writer| writer.executed);
        match read_all(setting, self)? {
            read if read == written => Ok(repetition),
            read => Err(request.broken(EpollWait::NAME, Violation::LostEvents { written, read })),
        }
    }
}

impl EpollWait {
    /// The workers, and the sources of each of them, in the order in which the writer adds to them.
    fn order(&self) -> (Vec<usize>, Vec<Vec<u32>>) {
        let sources: Vec<u32> = (0..self.sources).collect();
        ((0..self.readers as usize).collect(), vec![sources; self.readers as usize])
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
    fn new(params: &EpollWait) -> Result<Self, LabError> {
        let mut setting = Setting { pollers: Vec::new(), _chains: Vec::new(), sources: Vec::new() };
        for worker in 0..params.readers {
            if worker == 0 || !params.shared {
                let poller = P::new()?;
                setting._chains.push(chain(&poller, params.nested)?);
                setting.pollers.push(poller);
            }
            let poller = setting.poller_of(worker as usize);
            // Every token says whose it is, whoever gets it.
            let first = u64::from(worker) * u64::from(params.sources);
            let sources = sources::<P>(params.sources, poller, params.trigger, first)?;
            setting.sources.push(sources);
        }
        Ok(setting)
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
    params: &EpollWait,
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
    params: &EpollWait,
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
    params: &EpollWait,
    left: &AtomicU32,
) -> Result<RoleRecorder, LabError> {
    let mut writer = RoleRecorder::default();
    let mut random = XorShift::new(world.seed());
    let (mut workers, mut order) = params.order();
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

/// Everybody has ended: reads what is still reported, and answers how much was read in all.
fn read_all<P: Poller>(setting: &Setting<P>, params: &EpollWait) -> Result<u64, LabError> {
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
    let mut all = 0;
    for source in setting.sources.iter().flatten() {
        all += source.taken.load(Ordering::Relaxed);
    }
    Ok(all)
}
