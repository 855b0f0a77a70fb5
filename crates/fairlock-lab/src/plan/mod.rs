//! Runs many cells so that they can be compared: interleaved, checked, interruptible.
//!
//! Cells that differ only in their lock, or in their form of a workload under the kernel's lock, are a
//! group. A group runs the first repetition of every lock, then the second of every lock, and so on
//! (A B A B …), so that changes on the machine affect all of them alike. At the end it runs the counted
//! twins of its locks, each once and briefly, for the rows' lock events.
//!
//! On a simulated machine a repetition is a seed, and all of them run side by side.

mod simulated;

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlock_sim::profile::Profile;
use fairlock_sim::timed::Timeline;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::grid;
use crate::locks::ranges::{self, RangeDescriptor};
use crate::locks::{self, Runners};
use crate::measure::{self, Repetition, RowLabel, row};
use crate::row::{LockEvents, Row};
use crate::workloads::Request;
use crate::workloads::dio::{self, DioForm, DioParams};
use crate::workloads::epoll;
use crate::workloads::epoll_wait::{self, EpollWaitParams};
use crate::workloads::forkstorm::{self, ForkstormParams};
use crate::workloads::forkstorm_kernel::{self, ForkstormKernelParams};
use crate::workloads::inversion::{self, InversionForm, InversionParams};
use crate::workloads::log::{self, LogParams};
use crate::workloads::mix::{self, MixParams, Roles};
use crate::workloads::readseek::{self, ReadseekForm, ReadseekParams};
use crate::workloads::revocation::{self, RevocationParams};
use crate::workloads::rmapstorm::{self, RmapstormParams};
use crate::workloads::stress_epoll::{self, StressEpollParams};
use crate::workloads::turns::{self, TurnsParams};
use crate::workloads::uncontended::{self, Uncontended};
use crate::world::{HERE, RealWorld, SimWorld, World, pause_ns};

/// The lock name of cells that measure the kernel's own lock.
pub const KERNEL: &str = "kernel";

/// A machine that the rows of real threads on this one are not mixed up with: this machine,
/// simulated.
pub const HERE_SIMULATED: &str = "here-simulated";

/// What to run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Every combination of workload, lock and machine, in any order.
    pub cells: Vec<Cell>,
}

/// A simulated machine, and where its chances begin.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// The machine.
    pub profile: Arc<Profile>,
    /// The seed of a cell's first repetition; each further one takes the next.
    pub seed: u64,
    /// How much of the first repetition to keep as a timeline, ns.
    pub timeline_ns: u64,
}

impl Simulated {
    /// The machine of this name or file, without a timeline.
    ///
    /// # Errors
    /// An unknown name, with the valid ones; a file that is no machine.
    pub fn find(name_or_path: &str, seed: u64) -> Result<Simulated, String> {
        let profile = Profile::find(name_or_path).map_err(|error| error.to_string())?;
        Ok(Simulated { profile: Arc::new(profile), seed, timeline_ns: 0 })
    }

    /// The name that rows carry as their machine.
    pub fn machine(&self) -> &str {
        if self.profile.name == HERE { HERE_SIMULATED } else { &self.profile.name }
    }
}

/// One workload with one lock: becomes one row.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// What the threads do.
    pub workload: Workload,
    /// The lock's registry name, or [`KERNEL`] where the kernel's own lock is measured, or a log's.
    pub lock: String,
    /// How often to run it; on a simulated machine, the number of seeds.
    pub repetitions: u32,
    /// How long each time.
    pub seconds: f64,
    /// A simulated machine to run it on, instead of real threads.
    pub on: Option<Simulated>,
}

/// A workload with its parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Short sections, see [`mix`].
    Mix(MixParams),
    /// A lock held during I/O, see [`dio`].
    Dio(DioParams),
    /// Next to no sections, see [`turns`].
    Turns(TurnsParams),
    /// Nobody waits, see [`uncontended`].
    Uncontended(Uncontended),
    /// Writes after reads, see [`revocation`].
    Revocation(RevocationParams),
    /// Reads of one file, see [`readseek`].
    Readseek(ReadseekParams),
    /// A hog between two threads that share something, see [`inversion`].
    Inversion(InversionParams),
    /// Processes that fork and exit, see [`forkstorm`].
    Forkstorm(ForkstormParams),
    /// Walks from pages to who maps them, and changes of that, see [`rmapstorm`].
    Rmapstorm(RmapstormParams),
    /// Appends to a log, see [`log`]. In place of a lock's name stands a log's.
    Log(LogParams),
    /// Many add to counters, one waits for all, see [`stress_epoll`]. In place of a lock's name stands a
    /// poller's.
    StressEpoll(StressEpollParams),
    /// Many wait for one event at a time, see [`epoll_wait`]. In place of a lock's name stands a poller's.
    EpollWait(EpollWaitParams),
    /// Processes that fork, see [`forkstorm_kernel`].
    ForkstormKernel(ForkstormKernelParams),
}

impl Workload {
    /// The name that rows carry.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Mix(_) => mix::NAME,
            Workload::Dio(params) => params.form.name(),
            Workload::Turns(_) => turns::NAME,
            Workload::Uncontended(_) => uncontended::NAME,
            Workload::Revocation(_) => revocation::NAME,
            Workload::Readseek(params) => params.form.name(),
            Workload::Inversion(params) => params.form.name(),
            Workload::Forkstorm(_) => forkstorm::NAME,
            Workload::Rmapstorm(_) => rmapstorm::NAME,
            Workload::Log(_) => log::NAME,
            Workload::StressEpoll(_) => stress_epoll::NAME,
            Workload::EpollWait(_) => epoll_wait::NAME,
            Workload::ForkstormKernel(_) => forkstorm_kernel::NAME,
        }
    }

    /// Threads that take part, or processes.
    pub fn threads(&self) -> u64 {
        match self {
            Workload::Mix(params) => params.roles.threads(),
            Workload::Dio(params) => u64::from(params.readers) + u64::from(params.writers),
            Workload::Turns(params) => params.threads.into(),
            Workload::Uncontended(Uncontended::Reads(readers)) => (*readers).into(),
            Workload::Uncontended(Uncontended::Writes) => 1,
            Workload::Revocation(params) => u64::from(params.readers) + 1,
            Workload::Readseek(params) => u64::from(params.readers) + u64::from(params.writers),
            Workload::Inversion(_) => 3,
            Workload::Forkstorm(params) => params.clients.into(),
            Workload::Rmapstorm(params) => params.threads.into(),
            Workload::Log(params) => u64::from(params.readers) + u64::from(params.writers),
            Workload::StressEpoll(params) => u64::from(params.producers) + 1,
            Workload::EpollWait(params) => u64::from(params.workers) + 1,
            Workload::ForkstormKernel(params) => params.processes(),
        }
    }

    /// Whether cells with the two take turns: those with the same parameters, and those of the kernel's forms
    /// that differ in nothing else.
    fn is_compared_with(&self, other: &Workload) -> bool {
        match (self, other) {
            (Workload::Dio(one), Workload::Dio(other))
                if one.form.is_kernels() && other.form.is_kernels() =>
            {
                *one == DioParams { form: one.form, ..other.clone() }
            }
            _ => self == other,
        }
    }

    /// Whether its threads are to be pinned to CPUs.
    fn is_pinned(&self) -> bool {
        matches!(self, Workload::Turns(TurnsParams { pinned: true, .. }) | Workload::Uncontended(_))
    }

    /// Their names, in the order of the workers: `reader 1`.
    pub fn thread_names(&self) -> Vec<String> {
        let count =
            |name: &'static str, count: u32| (1..=count).map(move |i| format!("{name} {i}"));
        let (readers, writers) = match self {
            Workload::Dio(params) => (params.readers, params.writers),
            Workload::Mix(MixParams { roles: Roles::Dedicated { readers, writers }, .. }) => {
                (*readers, *writers)
            }
            Workload::Uncontended(Uncontended::Reads(readers)) => (*readers, 0),
            Workload::Uncontended(Uncontended::Writes) => (0, 1),
            Workload::Revocation(params) => (params.readers, 1),
            Workload::Readseek(params) => (params.readers, params.writers),
            Workload::Log(params) => (params.readers, params.writers),
            Workload::StressEpoll(params) => (1, params.producers),
            Workload::EpollWait(params) => (params.workers, 1),
            Workload::ForkstormKernel(params) => (0, params.clients),
            Workload::Inversion(_) => {
                return [inversion::LOW, "hog", inversion::HIGH].map(str::to_owned).into();
            }
            Workload::Forkstorm(params) => return count("client", params.clients).collect(),
            Workload::Mix(MixParams { roles: Roles::Mixed { threads, .. }, .. })
            | Workload::Turns(TurnsParams { threads, .. })
            | Workload::Rmapstorm(RmapstormParams { threads, .. }) => {
                return count("thread", *threads).collect();
            }
        };
        count("reader", readers).chain(count("writer", writers)).collect()
    }
}

/// A run shorter than this measures the start of its threads.
const SHORTEST_SECONDS: f64 = 0.001;
const LONGEST_SECONDS: f64 = 3600.0;
const MOST_REPETITIONS: u32 = 1000;
/// On a simulated machine threads start at once, and a second takes minutes.
const SHORTEST_SIMULATED_SECONDS: f64 = 1e-5;
const LONGEST_SIMULATED_SECONDS: f64 = 10.0;
/// Host seconds for one simulated second of a contended lock. More threads make no more steps: they
/// wait.
const SIMULATION_COST: f64 = 4.0;
/// The same for each thread of a lock whose readers do not wait for each other, with 100 PAUSEs
/// between the operations.
const SCALING_SIMULATION_COST: f64 = 1.6;
/// The lock that is so.
const SCALING_LOCK: &str = "rwlock";
/// The same for each thread that runs, where threads add to sources: with a think, or under a lock.
const ADDING_SIMULATION_COST: f64 = 1.6;
/// The same back to back, where no thread waits for another one.
const ADDING_BACK_TO_BACK_SIMULATION_COST: f64 = 37.0;
/// The list that is so.
const LOCK_FREE_LIST: &str = "ready";
/// The same where threads wait for one event at a time.
const WAITING_SIMULATION_COST: f64 = 3.2;
/// The same where processes fork, under any lock.
const FORKING_SIMULATION_COST: f64 = 0.25;
/// The same where holders sleep, or compute for long.
const SLEEPING_SIMULATION_COST: f64 = 0.1;
/// Share of a cell's time spent on the unmeasured run before its first repetition.
const WARM_UP_SHARE: f64 = 0.1;
const LONGEST_WARM_UP_SECONDS: f64 = 0.2;
/// A run that takes this much longer than it was to, and 50 ms more, was interrupted by something
/// that is no matter of the lock: only a sleeping thread keeps its time. Virtual machines are
/// stopped for seconds now and then.
const OVERRUN: f64 = 1.25;
const OVERRUN_SECONDS: f64 = 0.05;
/// How often one repetition is made anew for that reason.
const MOST_RETRIES: u32 = 2;
/// How long a counted twin runs at most: counts need no repetitions, only enough operations.
const LONGEST_COUNTING_SECONDS: f64 = 0.1;
/// What a run costs beside its measured time, and what each thread adds: starting and joining them,
/// measured on two busy CPUs.
const RUN_OVERHEAD_SECONDS: f64 = 0.005;
const THREAD_OVERHEAD_SECONDS: f64 = 0.001;
/// What a run with a file costs, which is created and synced first.
const FILE_OVERHEAD_SECONDS: f64 = 0.06;
/// What a run with a log costs, whose first segments are written before.
const LOG_OVERHEAD_SECONDS: f64 = 0.15;

fn warm_up_seconds(seconds: f64) -> f64 {
    (seconds * WARM_UP_SHARE).min(LONGEST_WARM_UP_SECONDS)
}

fn was_interrupted(run: &Repetition, seconds: f64) -> bool {
    run.elapsed_ns as f64 / 1e9 > seconds * OVERRUN + OVERRUN_SECONDS
}

fn counting_seconds(seconds: f64) -> f64 {
    seconds.min(LONGEST_COUNTING_SECONDS)
}

/// About how long a cell takes: its warm-up, its repetitions and the run of its counted twin.
pub fn estimate_seconds(
    workload: &str,
    lock: &str,
    threads: f64,
    repetitions: u32,
    seconds: f64,
) -> f64 {
    let once = match DioForm::named(workload) {
        Some(DioForm::Log | DioForm::LogApart) => LOG_OVERHEAD_SECONDS,
        None if workload == log::NAME => LOG_OVERHEAD_SECONDS,
        _ if grid::needs_direct_io(workload) => FILE_OVERHEAD_SECONDS,
        _ => RUN_OVERHEAD_SECONDS,
    };
    let overhead = once + threads * THREAD_OVERHEAD_SECONDS;
    let has_twin = locks::find(lock).is_ok_and(|lock| lock.counted.is_some());
    let counting = if has_twin { counting_seconds(seconds) + overhead } else { 0.0 };
    f64::from(repetitions) * (seconds + overhead) + warm_up_seconds(seconds) + overhead + counting
}

/// About how long a cell takes on a simulated machine with so many CPUs.
pub fn estimate_simulated_seconds(
    workload: &str,
    lock: &str,
    (threads, simulated_cpus): (f64, u32),
    think_pauses: f64,
    repetitions: u32,
    seconds: f64,
) -> f64 {
    let cpus = std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
    let running = threads.min(simulated_cpus.into());
    let cost = match workload {
        stress_epoll::NAME if lock == LOCK_FREE_LIST && think_pauses == 0.0 => {
            running * ADDING_BACK_TO_BACK_SIMULATION_COST
        }
        stress_epoll::NAME => running * ADDING_SIMULATION_COST,
        epoll_wait::NAME => running * WAITING_SIMULATION_COST,
        forkstorm::NAME | rmapstorm::NAME => running * FORKING_SIMULATION_COST,
        turns::NAME if lock == SCALING_LOCK => SIMULATION_COST + threads * SCALING_SIMULATION_COST,
        workload if workload.starts_with("dio") => SLEEPING_SIMULATION_COST,
        workload if workload == InversionForm::Lock.name() => SLEEPING_SIMULATION_COST,
        _ => SIMULATION_COST,
    };
    f64::from(repetitions) * seconds * cost / cpus
}

impl Cell {
    /// Whether the cell can run.
    ///
    /// # Errors
    /// Names the first value that is wrong, and what would be valid.
    pub fn validate(&self) -> Result<(), LabError> {
        let (shortest, longest) = match self.on {
            None => (SHORTEST_SECONDS, LONGEST_SECONDS),
            Some(_) => (SHORTEST_SIMULATED_SECONDS, LONGEST_SIMULATED_SECONDS),
        };
        if !(shortest..=longest).contains(&self.seconds) {
            return Err(LabError::Parameter {
                name: "seconds",
                value: self.seconds.to_string(),
                valid: format!("{shortest} to {longest}"),
            });
        }
        if !(1..=MOST_REPETITIONS).contains(&self.repetitions) {
            return Err(LabError::Parameter {
                name: "repetitions",
                value: self.repetitions.to_string(),
                valid: format!("1 to {MOST_REPETITIONS}"),
            });
        }
        match &self.workload {
            Workload::Mix(params) => params.validate(self.pause_ns())?,
            Workload::Dio(params) => params.validate()?,
            Workload::Turns(params) => params.validate(self.pause_ns())?,
            Workload::Uncontended(_) => {}
            Workload::Revocation(params) => params.validate()?,
            Workload::Readseek(params) => params.validate(self.pause_ns())?,
            Workload::Inversion(params) => params.validate()?,
            Workload::Forkstorm(params) => params.validate()?,
            Workload::Rmapstorm(params) => params.validate(self.pause_ns())?,
            Workload::Log(params) => params.validate()?,
            Workload::StressEpoll(params) => params.validate(self.pause_ns())?,
            Workload::EpollWait(params) => params.validate()?,
            Workload::ForkstormKernel(params) => params.validate(self.pause_ns())?,
        }
        self.check_lock()
    }

    fn check_lock(&self) -> Result<(), LabError> {
        match &self.workload {
            Workload::Dio(params) if params.form.is_kernels() && self.on.is_some() => {
                let instead = "dio-lock and dio-sleep";
                Err(LabError::KernelNotSimulated { workload: params.form.name(), instead })
            }
            Workload::Log(_) if self.on.is_some() => {
                let instead = "dio-lock";
                Err(LabError::KernelNotSimulated { workload: log::NAME, instead })
            }
            Workload::Log(params) => log::check(&self.lock)?.check(params),
            Workload::ForkstormKernel(_) => {
                ForkstormKernelParams::check_lock(&self.lock, self.on.is_some())
            }
            Workload::StressEpoll(_) | Workload::EpollWait(_) => {
                epoll::check(&self.lock, self.on.is_some()).map(drop)
            }
            Workload::Dio(params) if params.form.is_kernels() && self.lock == KERNEL => Ok(()),
            Workload::Dio(params) if params.form.is_kernels() => {
                Err(LabError::UnknownLock { name: self.lock.clone(), known: vec![KERNEL] })
            }
            Workload::Readseek(params) => params.form.check_lock(&self.lock, self.on.is_some()),
            Workload::Inversion(params) => params.form.check_lock(&self.lock, self.on.is_some()),
            _ if self.on.is_some() => locks::find_simulated(&self.lock).map(drop),
            _ => locks::find(&self.lock).map(drop),
        }
    }

    /// How long one PAUSE takes where the cell runs.
    fn pause_ns(&self) -> f64 {
        self.on.as_ref().map_or_else(pause_ns, |on| on.profile.cost.pause_ns)
    }

    /// Seconds of all threads together, one repetition.
    fn thread_seconds(&self) -> f64 {
        self.workload.threads() as f64 * self.seconds
    }

    /// Cells of one group are compared with each other.
    fn same_group(&self, other: &Cell) -> bool {
        self.workload.is_compared_with(&other.workload)
            && self.repetitions == other.repetitions
            && self.seconds == other.seconds
            && self.on == other.on
    }

    /// The cell's lock, if it is a range lock.
    fn range_lock(&self) -> Option<&'static RangeDescriptor> {
        ranges::find(&self.lock)
    }

    /// The workloads compiled for the cell's lock or its counted twin, if it has one and the
    /// workload runs under it.
    fn runners(&self, variant: Variant) -> Option<&'static Runners<RealWorld>> {
        match &self.workload {
            Workload::Readseek(it) if it.form != ReadseekForm::Cached => return None,
            Workload::Inversion(it) if it.form == InversionForm::List => return None,
            Workload::Log(_) | Workload::StressEpoll(_) | Workload::EpollWait(_) => return None,
            Workload::ForkstormKernel(_) => return None,
            _ => {}
        }
        let lock = locks::find(&self.lock).ok()?;
        match variant {
            Variant::Plain => Some(&lock.plain),
            Variant::Counted => lock.counted.as_ref(),
        }
    }

    fn run_once(
        &self,
        world: &RealWorld,
        Run { variant, seconds }: Run,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Repetition, LabError> {
        let duration_ns = (seconds * 1e9) as u64;
        let request = Request { world, lock: &self.lock, duration_ns, cancelled };
        if let Workload::Dio(params) = &self.workload
            && params.form.is_kernels()
        {
            return dio::run_kernel(&request, params);
        }
        if let Workload::Log(params) = &self.workload {
            return (log::check(&self.lock)?.run)(&request, params);
        }
        match &self.workload {
            Workload::StressEpoll(params) => {
                return (epoll::check(&self.lock, false)?.real.stress)(&request, params);
            }
            Workload::EpollWait(params) => {
                return (epoll::check(&self.lock, false)?.real.wait)(&request, params);
            }
            Workload::ForkstormKernel(params) => return forkstorm_kernel::run(&request, params),
            _ => {}
        }
        if let Workload::Inversion(params) = &self.workload
            && params.form == InversionForm::List
        {
            return (inversion::list(&self.lock).real)(&request, params);
        }
        if let Workload::Readseek(params) = &self.workload {
            match (params.form, self.range_lock()) {
                (ReadseekForm::Cached, Some(lock)) => return (lock.real)(&request, params),
                (ReadseekForm::Cached, None) => {}
                (ReadseekForm::Kernel | ReadseekForm::KernelTmpfs, _) => {
                    return readseek::run_kernel(&request, params);
                }
                (ReadseekForm::Processes, _) => return readseek::run_processes(&request, params),
            }
        }
        let runners = self.runners(variant).expect("the lock was checked, a twin asked for");
        runners.run(&request, &self.workload)
    }

    /// Runs one repetition on the cell's simulated machine.
    fn simulate(
        &self,
        repetition: u32,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Repetition, LabError> {
        let on = self.on.as_ref().expect("only simulated cells are simulated");
        let seed = on.seed.wrapping_add(repetition.into());
        let timeline_ns = if repetition == 0 { on.timeline_ns } else { 0 };
        let pinned = self.workload.is_pinned();
        let world = &SimWorld::new(on.profile.clone(), seed, timeline_ns, pinned);
        let duration_ns = (self.seconds * 1e9) as u64;
        let request = Request { world, lock: &self.lock, duration_ns, cancelled };
        if let (Workload::Readseek(params), Some(lock)) = (&self.workload, self.range_lock()) {
            return (lock.simulated)(&request, params);
        }
        if let Workload::StressEpoll(_) | Workload::EpollWait(_) = &self.workload {
            let poller = epoll::check(&self.lock, true)?.simulated.as_ref();
            let poller = poller.expect("checked as one that runs there");
            return match &self.workload {
                Workload::EpollWait(params) => (poller.wait)(&request, params),
                Workload::StressEpoll(params) => (poller.stress)(&request, params),
                _ => unreachable!("one of the two"),
            };
        }
        if let Workload::Inversion(params) = &self.workload
            && params.form == InversionForm::List
        {
            let run = inversion::list(&self.lock).simulated.expect("the list was checked");
            return run(&request, params);
        }
        let runners = locks::find_simulated(&self.lock)?.simulated.as_ref();
        let runners = runners.expect("found as one that runs there");
        runners.run(&request, &self.workload)
    }

    /// The `params` of its row.
    pub fn row_params(&self) -> BTreeMap<String, f64> {
        match &self.workload {
            Workload::Mix(params) => params.row_params(self.pause_ns()),
            Workload::Dio(params) => params.row_params(),
            Workload::Turns(params) => params.row_params(self.pause_ns()),
            Workload::Uncontended(what) => what.row_params(),
            Workload::Revocation(params) => params.row_params(),
            Workload::Readseek(params) => params.row_params(self.pause_ns()),
            Workload::Inversion(params) => params.row_params(),
            Workload::Forkstorm(params) => params.row_params(self.pause_ns()),
            Workload::Rmapstorm(params) => params.row_params(self.pause_ns()),
            Workload::Log(params) => params.row_params(),
            Workload::StressEpoll(params) => params.row_params(self.pause_ns()),
            Workload::EpollWait(params) => params.row_params(),
            Workload::ForkstormKernel(params) => params.row_params(self.pause_ns()),
        }
    }

    fn row(&self, repetitions: &[Repetition], events: Option<LockEvents>) -> Option<Row> {
        let machine = self.on.as_ref().map_or(HERE, Simulated::machine);
        let label = RowLabel {
            workload: self.workload.name().to_string(),
            lock: self.lock.clone(),
            machine: machine.to_string(),
            params: self.row_params(),
            seconds: self.seconds,
        };
        let row = row(label, repetitions, events)?;
        let seed = self.on.as_ref().map(|on| on.seed);
        let simulated = seed.map(|seed| measure::simulated_counts(seed, repetitions));
        Some(Row { simulated, ..row })
    }
}

/// Which build of a lock runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Plain,
    Counted,
}

/// One run of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    variant: Variant,
    seconds: f64,
}

impl Run {
    fn plain(seconds: f64) -> Run {
        Run { variant: Variant::Plain, seconds }
    }

    fn counted(seconds: f64) -> Run {
        Run { variant: Variant::Counted, seconds }
    }
}

/// One repetition of one cell, as an observer sees it.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// What is run.
    pub cell: &'a Cell,
    /// Counts the cell's repetitions from 0.
    pub repetition: u32,
}

/// Watches a plan run, and may end it. All methods are called on the thread that runs the plan.
pub trait Observer {
    /// A repetition is about to run.
    fn started(&mut self, _step: &Step<'_>) {}
    /// A repetition has ended and counts.
    fn finished(&mut self, _step: &Step<'_>) {}
    /// A cell runs from now on for so many seconds: to warm up, to be measured or to count events.
    fn run_begins(&mut self, _cell: &Cell, _seconds: f64) {}
    /// That run has ended.
    fn run_ended(&mut self) {}
    /// A row is complete.
    fn row(&mut self, _row: &Row) {}
    /// What a cell's first repetition on a simulated machine looked like, if it was asked for.
    fn timeline(&mut self, _cell: &Cell, _timeline: &Timeline) {}
    /// Asked between and several times a second during repetitions; true ends the plan.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Watches nothing.
impl Observer for () {}

/// Runs the plan; answers its rows, group by group in the order of their first cells.
///
/// A cancelled plan answers what it has: finished groups, and of the group under way the
/// repetitions that ended (each row says how many it holds).
///
/// # Errors
/// Before anything runs: the first cell that is not valid. Later: a lock that breaks an
/// invariant, a file that cannot be used, threads that cannot be started. Rows finished
/// before an error were handed to [`Observer::row`].
pub fn run(plan: &Plan, observer: &mut dyn Observer) -> Result<Vec<Row>, LabError> {
    plan.cells.iter().try_for_each(Cell::validate)?;
    let world = RealWorld::new(false);
    let pinned_world = RealWorld::new(true);
    // Measured now, not while the first workload's threads wait for it.
    world.pause_ns();
    execute(
        plan,
        observer,
        &mut |cell, run, cancelled| {
            let world = if cell.workload.is_pinned() { &pinned_world } else { &world };
            cell.run_once(world, run, cancelled)
        },
        &Cell::simulate,
    )
}

type RunOnce<'a> = &'a mut dyn FnMut(&Cell, Run, &dyn Fn() -> bool) -> Result<Repetition, LabError>;

fn execute(
    plan: &Plan,
    observer: &mut dyn Observer,
    run_once: RunOnce<'_>,
    simulate_once: simulated::RunOnce<'_>,
) -> Result<Vec<Row>, LabError> {
    let mut watched = |observer: &mut dyn Observer, cell: &Cell, run: Run| {
        observer.run_begins(cell, run.seconds);
        let result = run_once(cell, run, &|| observer.cancelled());
        observer.run_ended();
        result
    };
    let mut rows = Vec::new();
    for group in groups(&plan.cells) {
        if observer.cancelled() {
            break;
        }
        if group[0].on.is_some() {
            let done = simulated::run_group(&group, observer, simulate_once)?;
            for (cell, repetitions) in group.iter().zip(&done) {
                let report = repetitions.first().and_then(|first| first.simulated.as_ref());
                if let Some(report) = report.filter(|report| !report.timeline.is_empty()) {
                    observer.timeline(cell, &report.timeline);
                }
                if let Some(row) = cell.row(repetitions, measure::lock_events(repetitions)) {
                    observer.row(&row);
                    rows.push(row);
                }
            }
            continue;
        }
        let mut done: Vec<Vec<Repetition>> = vec![Vec::new(); group.len()];
        let mut discarded = vec![0; group.len()];
        'group: for repetition in 0..group[0].repetitions {
            for ((cell, done), discarded) in group.iter().zip(&mut done).zip(&mut discarded) {
                let step = Step { cell, repetition };
                if observer.cancelled() {
                    break 'group;
                }
                observer.started(&step);
                if repetition == 0 {
                    watched(observer, cell, Run::plain(warm_up_seconds(cell.seconds)))?;
                }
                let mut measured = watched(observer, cell, Run::plain(cell.seconds))?;
                for _ in 0..MOST_RETRIES {
                    if observer.cancelled() || !was_interrupted(&measured, cell.seconds) {
                        break;
                    }
                    *discarded += 1;
                    measured = watched(observer, cell, Run::plain(cell.seconds))?;
                }
                if observer.cancelled() {
                    break 'group;
                }
                done.push(measured);
                observer.finished(&step);
            }
        }
        for ((cell, repetitions), discarded) in group.iter().zip(&done).zip(discarded) {
            let mut counted = None;
            if cell.runners(Variant::Counted).is_some() && !observer.cancelled() {
                let run = watched(observer, cell, Run::counted(counting_seconds(cell.seconds)))?;
                // Cut short it would count less than its time says.
                let complete = !observer.cancelled();
                counted = complete.then(|| measure::lock_events(&[run])).flatten();
            }
            if let Some(row) = cell.row(repetitions, counted) {
                let row = Row { discarded, ..row };
                observer.row(&row);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

fn groups(cells: &[Cell]) -> Vec<Vec<&Cell>> {
    let mut groups: Vec<Vec<&Cell>> = Vec::new();
    for cell in cells {
        match groups.iter_mut().find(|group| group[0].same_group(cell)) {
            Some(group) => group.push(cell),
            None => groups.push(vec![cell]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn cell(lock: &str, readers: u32) -> Cell {
        let roles = Roles::Dedicated { readers, writers: 1 };
        Cell {
            workload: Workload::Mix(MixParams { roles, ..MixParams::default() }),
            lock: lock.to_string(),
            repetitions: 2,
            seconds: 1.0,
            on: None,
        }
    }

    fn plan(cells: Vec<Cell>) -> Plan {
        Plan { cells }
    }

    /// Writes down what it is told and cancels after some steps.
    #[derive(Default)]
    struct Diary {
        steps: Vec<String>,
        rows: usize,
        cancel_after: Option<usize>,
    }

    impl Observer for Diary {
        fn finished(&mut self, step: &Step<'_>) {
            self.steps.push(format!("{}{}", step.cell.lock, step.repetition));
        }

        fn row(&mut self, _row: &Row) {
            self.rows += 1;
        }

        fn cancelled(&self) -> bool {
            self.cancel_after.is_some_and(|steps| self.steps.len() >= steps)
        }
    }

    fn pretend(_: &Cell, run: Run, _: &dyn Fn() -> bool) -> Result<Repetition, LabError> {
        let mut repetition = Repetition { elapsed_ns: 1, ..Repetition::default() };
        if run.variant == Variant::Counted {
            repetition.events.insert("counted".to_string(), 1);
        }
        Ok(repetition)
    }

    fn pretend_simulated(_: &Cell, _: u32, _: &dyn Fn() -> bool) -> Result<Repetition, LabError> {
        unreachable!("no cell of these tests is simulated")
    }

    #[test]
    fn locks_of_a_group_take_turns() {
        let cells = vec![cell("std", 1), cell("usync", 2), cell("pthread", 1), cell("std", 2)];
        let mut diary = Diary::default();
        let rows = execute(&plan(cells), &mut diary, &mut pretend, &pretend_simulated).unwrap();
        assert_eq!(
            diary.steps,
            ["std0", "pthread0", "std1", "pthread1", "usync0", "std0", "usync1", "std1"]
        );
        let locks: Vec<&str> = rows.iter().map(|row| row.lock.as_str()).collect();
        assert_eq!(locks, ["std", "pthread", "usync", "std"]);
        assert_eq!(diary.rows, 4);
    }

    #[test]
    fn forms_of_the_kernels_take_turns_at_each_point() {
        let of = |form, read_bytes| Cell {
            workload: Workload::Dio(DioParams { form, read_bytes, ..DioParams::default() }),
            lock: KERNEL.to_string(),
            repetitions: 2,
            seconds: 1.0,
            on: None,
        };
        let (plain, log) = (DioForm::Kernel, DioForm::Log);
        let cells = vec![of(plain, 4096), of(plain, 8192), of(log, 4096), of(log, 8192)];
        let mut runs = Vec::new();
        let mut run_once = |cell: &Cell, run: Run, cancelled: &dyn Fn() -> bool| {
            let Workload::Dio(params) = &cell.workload else { unreachable!() };
            if run.seconds == 1.0 {
                runs.push((params.form, params.read_bytes));
            }
            pretend(cell, run, cancelled)
        };
        execute(&plan(cells), &mut (), &mut run_once, &pretend_simulated).unwrap();
        let turns = |read_bytes| [plain, log, plain, log].map(|form| (form, read_bytes));
        assert_eq!(runs, [turns(4096), turns(8192)].concat());
    }

    #[test]
    fn every_cell_is_warmed_up_once() {
        let runs = RefCell::new(Vec::new());
        let mut run_once = |cell: &Cell, run: Run, cancelled: &dyn Fn() -> bool| {
            runs.borrow_mut().push(run);
            pretend(cell, run, cancelled)
        };
        execute(&plan(vec![cell("std", 1)]), &mut (), &mut run_once, &pretend_simulated).unwrap();
        assert_eq!(*runs.borrow(), [0.1, 1.0, 1.0].map(Run::plain));
    }

    #[test]
    fn a_repetition_during_which_the_machine_stood_still_is_made_anew() {
        let runs = RefCell::new(0);
        let mut run_once = |cell: &Cell, run: Run, cancelled: &dyn Fn() -> bool| {
            *runs.borrow_mut() += 1;
            // The warm-up is the first.
            let elapsed_ns = if *runs.borrow() == 2 { 1_500_000_000 } else { 1_000_000_000 };
            Ok(Repetition { elapsed_ns, ..pretend(cell, run, cancelled)? })
        };
        let rows = execute(&plan(vec![cell("std", 1)]), &mut (), &mut run_once, &pretend_simulated)
            .unwrap();
        assert_eq!((rows[0].repetitions, rows[0].discarded, *runs.borrow()), (2, 1, 4));
        let mut always = |cell: &Cell, run: Run, cancelled: &dyn Fn() -> bool| {
            Ok(Repetition { elapsed_ns: 9_000_000_000, ..pretend(cell, run, cancelled)? })
        };
        let rows =
            execute(&plan(vec![cell("std", 1)]), &mut (), &mut always, &pretend_simulated).unwrap();
        assert_eq!((rows[0].repetitions, rows[0].discarded), (2, 2 * MOST_RETRIES));
    }

    #[test]
    fn counted_twins_run_once_after_their_group() {
        let runs = RefCell::new(Vec::new());
        let mut run_once = |cell: &Cell, run: Run, cancelled: &dyn Fn() -> bool| {
            runs.borrow_mut().push((cell.lock.clone(), run.variant));
            pretend(cell, run, cancelled)
        };
        let once = |lock| Cell { repetitions: 1, ..cell(lock, 1) };
        let cells = vec![once("rwsem"), once("std")];
        let rows = execute(&plan(cells), &mut (), &mut run_once, &pretend_simulated).unwrap();
        let counted: Vec<bool> =
            runs.borrow().iter().map(|(_, variant)| *variant == Variant::Counted).collect();
        assert_eq!(counted, [false, false, false, false, true]);
        assert_eq!(runs.borrow()[4].0, "rwsem");
        assert_eq!(rows[0].events.as_ref().unwrap().counts["counted"], 1);
        assert_eq!(rows[1].events, None);
    }

    #[test]
    fn a_cancelled_plan_keeps_what_ended() {
        let cells = vec![cell("std", 1), cell("usync", 1), cell("std", 2)];
        let mut diary = Diary { cancel_after: Some(3), ..Diary::default() };
        let rows = execute(&plan(cells), &mut diary, &mut pretend, &pretend_simulated).unwrap();
        let counts: Vec<(&str, u32)> =
            rows.iter().map(|row| (row.lock.as_str(), row.repetitions)).collect();
        assert_eq!(counts, [("std", 2), ("usync", 1)]);
    }

    #[test]
    fn a_cancelled_simulation_keeps_the_first_seeds() {
        let profile = Arc::new(Profile::example());
        let on = Some(Simulated { profile, seed: 7, timeline_ns: 0 });
        let simulated = |lock| Cell { repetitions: 50, on: on.clone(), ..cell(lock, 1) };
        let cells = vec![simulated("rwsem"), simulated("phase-fair"), cell("std", 1)];
        let simulate = |_: &Cell, _, cancelled: &dyn Fn() -> bool| {
            assert!(!cancelled());
            Ok(Repetition::default())
        };
        let all = execute(&plan(cells.clone()), &mut (), &mut pretend, &simulate).unwrap();
        let shape = |rows: &[Row]| -> Vec<(String, u32)> {
            rows.iter().map(|row| (row.machine.clone(), row.repetitions)).collect()
        };
        let of = |machine: &str, repetitions| (machine.to_string(), repetitions);
        assert_eq!(shape(&all), [of("example", 50), of("example", 50), of("here", 2)]);
        assert_eq!(all[0].simulated.unwrap().seed, 7);
        let cancelled_runs = |_: &Cell, seed, cancelled: &dyn Fn() -> bool| {
            while seed >= 3 && !cancelled() {
                std::thread::yield_now();
            }
            Ok(Repetition::default())
        };
        let mut observer = CancelAfter { finished: 0, after: 6 };
        let kept = execute(&plan(cells), &mut observer, &mut pretend, &cancelled_runs).unwrap();
        assert_eq!(shape(&kept), [of("example", 3), of("example", 3)]);
    }

    /// Cancels when so many steps have ended, in whatever order.
    struct CancelAfter {
        finished: usize,
        after: usize,
    }

    impl Observer for CancelAfter {
        fn finished(&mut self, _step: &Step<'_>) {
            self.finished += 1;
        }

        fn cancelled(&self) -> bool {
            self.finished >= self.after
        }
    }

    #[test]
    fn invalid_cells_say_what_is_wrong_and_what_would_be_right() {
        let mixed = |threads, read_percent| {
            let roles = Roles::Mixed { threads, read_percent };
            Workload::Mix(MixParams { roles, ..MixParams::default() })
        };
        let dio = |form, read_bytes| {
            Workload::Dio(DioParams { form, read_bytes, ..DioParams::default() })
        };
        let with = |workload| Cell { workload, ..cell("std", 1) };
        let untimed = Workload::Mix(MixParams { time_reads_every: 0, ..MixParams::default() });
        let cases = [
            (with(untimed), ["time_reads_every", "0", "1 (all)"]),
            (with(mixed(0, 50.0)), ["threads", "0", "1 to 4096"]),
            (with(mixed(2, 101.0)), ["read_percent", "101", "0 to 100"]),
            (with(mixed(2, f64::NAN)), ["read_percent", "NaN", "0 to 100"]),
            (Cell { seconds: 0.0, ..cell("std", 1) }, ["seconds", "0", "0.001 to 3600"]),
            (Cell { repetitions: 0, ..cell("std", 1) }, ["repetitions", "0", "1 to 1000"]),
            (cell("no-such-lock", 1), ["no-such-lock", "std", "parking_lot"]),
            (with(dio(DioForm::Kernel, 4096)), ["std", "valid", KERNEL]),
            (with(dio(DioForm::Lock, 1000)), ["read_bytes", "1000", "4096"]),
        ];
        for (cell, parts) in cases {
            let error = run(&plan(vec![cell]), &mut ()).unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "`{error}` lacks `{part}`");
            }
        }
    }
}
