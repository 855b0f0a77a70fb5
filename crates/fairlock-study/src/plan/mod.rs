//! Runs many cells so that they can be compared: interleaved, checked, interruptible.
//!
//! Cells that differ only in their lock, or in their form of a workload under the kernel's lock, are a
//! group; so are a mix of readers and writers and each of its roles alone. A group runs the first repetition of every lock, then the second of every lock, and so on
//! (A B A B …), so that changes on the machine affect all of them alike. At the end it runs the counted
//! twins of its locks, each once and briefly, for the rows' lock events.
//!
//! On a simulated machine a repetition is a seed, and all of them run side by side.

#[cfg(test)]
mod kept;
mod simulated;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairlock_lab::error::LabError;
use fairlock_lab::locks::{self, Build};
use fairlock_lab::measure::{self, Repetition, RowLabel, row};
use fairlock_lab::workload::{AnyWorkload, Comparison, Need, Request, THIS_PROGRAM};
use fairlock_lab::world::{RealWorld, SimWorld, World, pause_ns};
use fairlock_report::params::{Params, Value};
use fairlock_report::row::{HERE, LockEvents, Row};
use fairlock_sim::profile::{Profile, Sheet};
use fairlock_sim::timed::Timeline;
use fairlock_sim::tuning::Tuning;

use crate::changes;
use crate::limit;

/// A machine that the rows of real threads on this one are not mixed up with: this machine,
/// simulated.
pub const HERE_SIMULATED: &str = "here-simulated";

/// What to run, and with what.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Every combination of workload, lock and machine, in any order.
    pub cells: Vec<Cell>,
    /// Where scratch files go.
    pub directory: PathBuf,
    /// The `fairlock` command, for workloads that start processes.
    pub program: PathBuf,
}

impl Plan {
    /// Cells to run by this program, with their files in the current directory.
    pub fn new(cells: Vec<Cell>) -> Plan {
        Plan { cells, directory: PathBuf::from("."), program: PathBuf::from(THIS_PROGRAM) }
    }
}

/// A simulated machine, and where its chances begin.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// The machine.
    pub profile: Arc<Profile>,
    /// The seed of a cell's first repetition; each further one takes the next.
    pub seed: u64,
    /// How much of the first repetition to keep as a timeline, ns; see [`Cell::timeline_ns`].
    pub timeline_ns: u64,
    /// What of the machine and of the locks' constants is not as usual, as [`changes`] spells it. The profile has
    /// its part of it already.
    pub changes: Params,
    /// The locks' part of it.
    pub tuning: Tuning,
}

impl Simulated {
    /// The machine of this name or file, without a timeline.
    ///
    /// # Errors
    /// An unknown name, with the valid ones; a file that is no machine.
    pub fn find(name_or_path: &str, seed: u64) -> Result<Simulated, String> {
        let profile = Profile::find(name_or_path).map_err(|error| error.to_string())?;
        Ok(Simulated::of(profile, seed))
    }

    /// This machine, without a timeline.
    pub fn of(profile: impl Into<Arc<Profile>>, seed: u64) -> Simulated {
        let (changes, tuning) = Default::default();
        Simulated { profile: profile.into(), seed, timeline_ns: 0, changes, tuning }
    }

    /// The machine of a file, and the locks on it, with these changes: those of `changes` that are parameters of a
    /// workload are left alone.
    ///
    /// # Errors
    /// A change that there is not, or a value that it cannot have.
    pub fn changed(sheet: &Sheet, changes: &Params, seed: u64) -> Result<Simulated, String> {
        let (mut sheet, mut tuned) = (sheet.clone(), Vec::new());
        for (name, value) in changes {
            let number = || {
                let number = value.number().filter(|_| !matches!(value, Value::Text(_)));
                number.ok_or_else(|| format!("{name} = {value}: give a number"))
            };
            if let Some(key) = name.strip_prefix(changes::MACHINE) {
                let changed = sheet.changed(key, number()?, "changed for this run");
                sheet = changed.map_err(|error| format!("{name} = {value}: {}", error.reason))?;
            } else if let Some(constant) = name.strip_prefix(changes::TUNE) {
                let number = number()?;
                if number.fract() != 0.0 || !(0.0..=u32::MAX.into()).contains(&number) {
                    return Err(format!("{name} = {value}: give a whole number"));
                }
                tuned.push((constant.to_owned(), number as u32));
            }
        }
        let profile = sheet.profile().map_err(|error| error.to_string())?;
        let (_, changes) = changes::split(changes);
        Ok(Simulated { changes, tuning: Tuning::new(tuned)?, ..Simulated::of(profile, seed) })
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
    pub workload: AnyWorkload,
    /// The registry name of the lock, or of whatever else the workload compares.
    pub lock: String,
    /// How often to run it; on a simulated machine, the number of seeds.
    pub repetitions: u32,
    /// How long each time.
    pub seconds: f64,
    /// A simulated machine to run it on, instead of real threads.
    pub on: Option<Simulated>,
    /// Whether it is a role alone that nobody asked for but the [limit] of a mix.
    pub for_limit: bool,
}

/// Cells that belong together; the locks of one grid point run interleaved.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// What it measures.
    pub title: String,
    /// The cells.
    pub cells: Vec<Cell>,
}

impl Batch {
    /// The workloads of its cells.
    pub fn workloads(&self) -> Vec<&'static str> {
        let mut workloads = Vec::new();
        for cell in &self.cells {
            if !workloads.contains(&cell.workload.name()) {
                workloads.push(cell.workload.name());
            }
        }
        workloads
    }

    /// The simulated machine, if it runs on one.
    pub fn machine(&self) -> Option<&str> {
        self.cells.first()?.on.as_ref().map(Simulated::machine)
    }

    /// Whether it needs this of the machine that it really runs on.
    pub fn needs(&self, need: Need) -> bool {
        self.machine().is_none() && self.cells.iter().any(|cell| cell.workload.needs(need))
    }

    /// About how long it takes, in seconds.
    pub fn estimate_s(&self) -> f64 {
        self.cells.iter().map(Cell::estimate_s).sum()
    }
}

/// A run shorter than this measures the start of its threads.
const SHORTEST_SECONDS: f64 = 0.001;
const LONGEST_SECONDS: f64 = 3600.0;
pub(crate) const MOST_REPETITIONS: u32 = 1000;
/// A longer timeline is more than a viewer takes.
pub(crate) const LONGEST_TIMELINE_NS: u64 = 100_000_000;
/// On a simulated machine threads start at once, and a second takes minutes.
const SHORTEST_SIMULATED_SECONDS: f64 = 1e-5;
const LONGEST_SIMULATED_SECONDS: f64 = 10.0;
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
/// What each thread adds to a run's time: starting and joining it, measured on two busy CPUs.
const THREAD_OVERHEAD_SECONDS: f64 = 0.001;

/// The locks that have the constants which `tune.` changes: those of the policy `TimeFair`.
const TUNED: [&str; 2] = ["rwsem", "rwlock"];

/// Whether the lock has this constant: `rwlock` has more of them than the semaphore below it.
fn has_constant(lock: &str, constant: &str) -> bool {
    TUNED.contains(&lock) && (lock == "rwlock" || !constant.starts_with("bias_"))
}

fn warm_up_seconds(seconds: f64) -> f64 {
    (seconds * WARM_UP_SHARE).min(LONGEST_WARM_UP_SECONDS)
}

fn was_interrupted(run: &Repetition, seconds: f64) -> bool {
    run.elapsed_ns as f64 / 1e9 > seconds * OVERRUN + OVERRUN_SECONDS
}

fn counting_seconds(seconds: f64) -> f64 {
    seconds.min(LONGEST_COUNTING_SECONDS)
}

impl Cell {
    /// Whether the cell can run.
    ///
    /// # Errors
    /// Names the first value that is wrong, and what would be valid.
    pub fn validate(&self) -> Result<(), LabError> {
        self.validate_amount()?;
        self.workload.validate(self.pause_ns())?;
        self.workload.check_subject(&self.lock, self.on.is_some())
    }

    /// Whether it can be measured for so long and so often.
    pub(crate) fn validate_amount(&self) -> Result<(), LabError> {
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
        let changed = self.on.iter().flat_map(|on| on.changes.keys());
        let mut tuned = changed.filter_map(|name| Some((name, name.strip_prefix(changes::TUNE)?)));
        let missing = tuned.find(|(_, constant)| !has_constant(&self.lock, constant));
        match missing {
            Some((name, constant)) => Err(LabError::NotTuned {
                name: name.clone(),
                lock: self.lock.clone(),
                valid: TUNED.into_iter().filter(|lock| has_constant(lock, constant)).collect(),
            }),
            None => Ok(()),
        }
    }

    /// How long one PAUSE takes where the cell runs.
    fn pause_ns(&self) -> f64 {
        self.on.as_ref().map_or_else(pause_ns, |on| on.profile.cost.pause_ns)
    }

    /// Seconds of all threads together, one repetition.
    fn thread_seconds(&self) -> f64 {
        self.workload.threads() as f64 * (self.arrival_s() + self.seconds)
    }

    /// The threads' names, in the order of their start; in the first repetition, if that makes a difference.
    pub fn thread_names(&self) -> Vec<String> {
        self.workload.thread_names(self.on.as_ref().map_or(0, |on| on.seed))
    }

    /// About how long it takes, in seconds: its warm-up, its repetitions and the run of its counted twin.
    pub fn estimate_s(&self) -> f64 {
        self.estimate_with(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// The same where simulations share this many CPUs.
    pub(crate) fn estimate_with(&self, cpus: usize) -> f64 {
        let repetitions = f64::from(self.repetitions);
        if self.on.is_some() {
            return repetitions * self.seed_s() / cpus as f64;
        }
        let threads = self.workload.threads() as f64;
        let overhead =
            self.workload.start_seconds() + self.arrival_s() + threads * THREAD_OVERHEAD_SECONDS;
        let counting =
            if self.has_twin() { counting_seconds(self.seconds) + overhead } else { 0.0 };
        let warm_up = warm_up_seconds(self.seconds) + overhead;
        repetitions * (self.seconds + overhead) + warm_up + counting
    }

    /// About how long one CPU takes for one repetition on a simulated machine, seconds.
    pub fn seed_s(&self) -> f64 {
        let cpus = self.on.as_ref().map_or(1, |on| on.profile.topology.cpus());
        // While threads arrive most of them sleep, which costs nothing to simulate.
        self.seconds * self.workload.simulation_cost(&self.lock, cpus)
    }

    /// About how long one more repetition takes, seconds.
    pub fn again_s(&self) -> f64 {
        let threads = self.workload.threads() as f64;
        self.seconds
            + self.workload.start_seconds()
            + self.arrival_s()
            + threads * THREAD_OVERHEAD_SECONDS
    }

    fn arrival_s(&self) -> f64 {
        self.workload.arrival_ns(self.pause_ns()) as f64 / 1e9
    }

    /// How much of its first repetition is kept as a timeline, ns: what was asked for from the beginning of
    /// measuring, and what comes before.
    pub fn timeline_ns(&self) -> u64 {
        match self.on.as_ref().map_or(0, |on| on.timeline_ns) {
            0 => 0,
            ns => (self.workload.arrival_ns(self.pause_ns()) + ns).min(LONGEST_TIMELINE_NS),
        }
    }

    /// Whether the row is this cell's.
    pub fn is_of(&self, row: &Row) -> bool {
        let machine = self.on.as_ref().map_or(HERE, Simulated::machine);
        row.workload == self.workload.name()
            && row.lock == self.lock
            && row.machine == machine
            && row.params == self.row_params()
    }

    /// What tells it from all others of a plan: its lock, its workload with its parameters, and where it runs.
    pub(crate) fn identity(&self) -> String {
        let (place, changes) = match &self.on {
            None => (HERE, None),
            Some(on) => (on.machine(), Some(&on.changes)),
        };
        let (name, fields) = (self.workload.name(), self.workload.fields());
        format!("{place}\n{}\n{name}\n{fields:?}\n{changes:?}", self.lock)
    }

    /// How it is repeated, and on which machine: only cells for which this is the same take turns.
    fn runs_as(&self) -> String {
        let (repetitions, seconds) = (self.repetitions, self.seconds);
        match &self.on {
            None => format!("{repetitions} {seconds}"),
            Some(on) => {
                let Simulated { profile, seed, changes, .. } = on;
                format!("{repetitions} {seconds} {} {seed} {changes:?}", profile.name)
            }
        }
    }

    /// Whether the lock events of the cell are counted, by a twin of its lock.
    fn has_twin(&self) -> bool {
        let is_lock = self.workload.entry().subjects.word == fairlock_lab::workload::LOCKS.word;
        is_lock && !self.for_limit && locks::find(&self.lock).is_ok_and(|lock| lock.has_twin)
    }

    fn run_once(
        &self,
        world: &RealWorld,
        Run { build, seconds }: Run,
        (directory, program): (&Path, &Path),
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Repetition, LabError> {
        let request = Request {
            subject: self.workload.entry().subjects.word,
            build,
            cancelled,
            directory,
            program,
            ..Request::new(world, &self.lock, (seconds * 1e9) as u64)
        };
        self.workload.run_real(&request)
    }

    /// Runs one repetition on the cell's simulated machine.
    pub(crate) fn simulate(
        &self,
        repetition: u32,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Repetition, LabError> {
        let on = self.on.as_ref().expect("only simulated cells are simulated");
        let seed = on.seed.wrapping_add(repetition.into());
        let timeline_ns = if repetition == 0 { self.timeline_ns() } else { 0 };
        let pinned = self.workload.is_pinned();
        let world = SimWorld::new(on.profile.clone(), seed, timeline_ns, pinned);
        let world = &world.tuned(on.tuning.clone());
        let request = Request {
            subject: self.workload.entry().subjects.word,
            cancelled,
            ..Request::new(world, &self.lock, (self.seconds * 1e9) as u64)
        };
        self.workload.run_simulated(&request)
    }

    /// The `params` of its row.
    pub fn row_params(&self) -> Params {
        let mut params = self.workload.params(self.pause_ns());
        params.extend(self.on.iter().flat_map(|on| on.changes.clone()));
        params
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
        Some(Row { simulated, for_limit: self.for_limit, ..row })
    }
}

/// One run of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    build: Build,
    seconds: f64,
}

impl Run {
    fn plain(seconds: f64) -> Run {
        Run { build: Build::Plain, seconds }
    }

    fn counted(seconds: f64) -> Run {
        Run { build: Build::Counted, seconds }
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
/// inbuild, a file that cannot be used, threads that cannot be started. Rows finished
/// before an error were handed to [`Observer::row`].
pub fn run(plan: &Plan, observer: &mut dyn Observer) -> Result<Vec<Row>, LabError> {
    Engine::new(&plan.directory, &plan.program).run(&plan.cells, observer)
}

type RunOnce<'a> = &'a mut dyn FnMut(&Cell, Run, &dyn Fn() -> bool) -> Result<Repetition, LabError>;

/// What a cell has come to so far.
pub(crate) struct Made {
    pub(crate) cell: Cell,
    /// The first one may have the distributions of all.
    pub(crate) repetitions: Vec<Repetition>,
    pub(crate) events: Option<LockEvents>,
    pub(crate) discarded: u32,
}

impl Made {
    pub(crate) fn row(&self) -> Option<Row> {
        let row = self.cell.row(&self.repetitions, self.events.clone())?;
        Some(Row { discarded: self.discarded, ..row })
    }
}

/// Runs cells, and more repetitions of those that it was to keep.
pub struct Engine {
    world: RealWorld,
    pinned_world: RealWorld,
    directory: PathBuf,
    program: PathBuf,
    keeps: bool,
    made: Vec<Made>,
    /// Repetitions so far, of all cells.
    order: u32,
}

impl Engine {
    /// One whose scratch files go to `directory`; `program` is the `fairlock` command.
    pub fn new(directory: &Path, program: &Path) -> Engine {
        let world = RealWorld::new(false);
        // Measured now, not while the first workload's threads wait for it.
        world.pause_ns();
        Engine {
            world,
            pinned_world: RealWorld::new(true),
            directory: directory.to_owned(),
            program: program.to_owned(),
            keeps: false,
            made: Vec::new(),
            order: 0,
        }
    }

    /// The same, keeping what [`again`](Engine::again) needs.
    pub fn keeping(self) -> Engine {
        Engine { keeps: true, ..self }
    }

    /// Runs the cells; as [`run`].
    ///
    /// # Errors
    /// As there.
    pub fn run(
        &mut self,
        cells: &[Cell],
        observer: &mut dyn Observer,
    ) -> Result<Vec<Row>, LabError> {
        cells.iter().try_for_each(Cell::validate)?;
        let Engine { world, pinned_world, directory, program, keeps, made, order } = self;
        let mut real = |cell: &Cell, run: Run, cancelled: &dyn Fn() -> bool| {
            let world = if cell.workload.is_pinned() { &*pinned_world } else { &*world };
            cell.run_once(world, run, (directory, program), cancelled)
        };
        let mut keep = |of_group: Made| {
            if *keeps {
                made.push(of_group);
            }
        };
        execute(cells, observer, &mut real, &Cell::simulate, order, &mut keep)
    }

    /// What was run and [kept](Engine::keeping).
    pub(crate) fn into_made(self) -> Vec<Made> {
        self.made
    }

    /// Makes one more repetition of a cell that was run and kept; answers its new row. None if it was not, or if
    /// the observer ended the repetition early.
    ///
    /// # Errors
    /// As [`run`](Engine::run).
    pub fn again(
        &mut self,
        cell: &Cell,
        observer: &mut dyn Observer,
    ) -> Result<Option<Row>, LabError> {
        let Engine { world, pinned_world, directory, program, made, order, .. } = self;
        let Some(made) = made.iter_mut().find(|made| made.cell == *cell) else { return Ok(None) };
        let world = if cell.workload.is_pinned() { &*pinned_world } else { &*world };
        let number = made.repetitions.len() as u32;
        observer.started(&Step { cell, repetition: number });
        let mut real = |cell: &Cell, run: Run, cancelled: &dyn Fn() -> bool| match cell.on {
            None => cell.run_once(world, run, (directory, program), cancelled),
            Some(_) => cell.simulate(number, cancelled),
        };
        let measured = measure_once(cell, observer, &mut real, &mut made.discarded)?;
        let Some(repetition) = measured else { return Ok(None) };
        made.repetitions.push(Repetition { order: *order, ..repetition });
        *order += 1;
        measure::compact(&mut made.repetitions);
        observer.finished(&Step { cell, repetition: number });
        Ok(made.row())
    }
}

/// A run of a cell that the observer hears of.
fn watched(
    cell: &Cell,
    run: Run,
    observer: &mut dyn Observer,
    run_once: RunOnce<'_>,
) -> Result<Repetition, LabError> {
    observer.run_begins(cell, run.seconds);
    let result = run_once(cell, run, &|| observer.cancelled());
    observer.run_ended();
    result.map_err(|error| match error {
        LabError::Panicked(said) => {
            let workload = cell.workload.name();
            LabError::Panicked(format!("{said} (`{}` under {workload})", cell.lock))
        }
        other => other,
    })
}

/// One repetition that the machine did not interrupt; none if the observer ended it early.
fn measure_once(
    cell: &Cell,
    observer: &mut dyn Observer,
    run_once: RunOnce<'_>,
    discarded: &mut u32,
) -> Result<Option<Repetition>, LabError> {
    let mut measured = watched(cell, Run::plain(cell.seconds), observer, run_once)?;
    for _ in 0..MOST_RETRIES {
        let is_simulated = cell.on.is_some();
        if is_simulated || observer.cancelled() || !was_interrupted(&measured, cell.seconds) {
            break;
        }
        *discarded += 1;
        measured = watched(cell, Run::plain(cell.seconds), observer, run_once)?;
    }
    Ok((!observer.cancelled()).then_some(measured))
}

fn execute(
    cells: &[Cell],
    observer: &mut dyn Observer,
    run_once: RunOnce<'_>,
    simulate_once: simulated::RunOnce<'_>,
    order: &mut u32,
    keep: &mut dyn FnMut(Made),
) -> Result<Vec<Row>, LabError> {
    let mut rows = Vec::new();
    for group in groups(cells) {
        if observer.cancelled() {
            break;
        }
        let of_group = match group[0].on {
            Some(_) => run_simulated_group(&group, observer, simulate_once, order)?,
            None => run_group(&group, observer, run_once, order)?,
        };
        let mut of_group_rows = Vec::new();
        for mut made in of_group {
            measure::compact(&mut made.repetitions);
            if let Some(row) = made.row() {
                of_group_rows.push(row);
                keep(made);
            }
        }
        limit::fill(&mut of_group_rows);
        of_group_rows.iter().for_each(|row| observer.row(row));
        rows.append(&mut of_group_rows);
    }
    Ok(rows)
}

/// Runs a group on a simulated machine.
fn run_simulated_group(
    group: &[&Cell],
    observer: &mut dyn Observer,
    simulate_once: simulated::RunOnce<'_>,
    order: &mut u32,
) -> Result<Vec<Made>, LabError> {
    let done = simulated::run_group(group, observer, simulate_once)?;
    let made = group.iter().zip(done).map(|(&cell, mut repetitions)| {
        let report = repetitions.first().and_then(|first| first.simulated.as_ref());
        if let Some(report) = report.filter(|report| !report.timeline.is_empty()) {
            observer.timeline(cell, &report.timeline);
        }
        // Nothing happens there in an order: seeds of the same number belong together.
        for (repetition, place) in repetitions.iter_mut().zip(*order..) {
            repetition.order = place;
        }
        let events = measure::lock_events(&repetitions);
        Made { cell: cell.clone(), repetitions, events, discarded: 0 }
    });
    let made: Vec<Made> = made.collect();
    *order += group[0].repetitions;
    Ok(made)
}

/// Runs a group with real threads.
fn run_group(
    group: &[&Cell],
    observer: &mut dyn Observer,
    run_once: RunOnce<'_>,
    order: &mut u32,
) -> Result<Vec<Made>, LabError> {
    let new = |cell: &&Cell| Made {
        cell: (*cell).clone(),
        repetitions: Vec::new(),
        events: None,
        discarded: 0,
    };
    let mut all: Vec<Made> = group.iter().map(new).collect();
    'group: for repetition in 0..group[0].repetitions {
        for (made, &cell) in all.iter_mut().zip(group) {
            if observer.cancelled() {
                break 'group;
            }
            let step = Step { cell, repetition };
            observer.started(&step);
            if repetition == 0 {
                watched(cell, Run::plain(warm_up_seconds(cell.seconds)), observer, run_once)?;
            }
            let measured = measure_once(cell, observer, run_once, &mut made.discarded)?;
            let Some(measured) = measured else { break 'group };
            made.repetitions.push(Repetition { order: *order, ..measured });
            *order += 1;
            observer.finished(&step);
        }
    }
    for (made, &cell) in all.iter_mut().zip(group) {
        if cell.has_twin() && !observer.cancelled() {
            let run = Run::counted(counting_seconds(cell.seconds));
            let counted = watched(cell, run, observer, run_once)?;
            // Cut short it would count less than its time says.
            let complete = !observer.cancelled();
            made.events = complete.then(|| measure::lock_events(&[counted])).flatten();
        }
    }
    Ok(all)
}

pub(crate) fn groups(cells: &[Cell]) -> Vec<Vec<&Cell>> {
    together(cells.iter().map(|cell| (cell.runs_as(), cell.workload.comparison(), cell)))
}

/// Things that are [compared](Comparison) with each other, be it through others, in one list each; in the order of
/// their first ones. Things whose texts differ are never compared.
pub(crate) fn together<T>(
    things: impl IntoIterator<Item = (String, Comparison, T)>,
) -> Vec<Vec<T>> {
    let mut lists = Lists::default();
    let (mut by_fields, mut alone) = (HashMap::new(), HashMap::<String, Vec<usize>>::new());
    let mut mixes = Vec::new();
    let mut all = Vec::new();
    for (place, (apart, comparison, thing)) in things.into_iter().enumerate() {
        lists.add();
        all.push(thing);
        let first = *by_fields.entry(format!("{apart}\n{}", comparison.key())).or_insert(place);
        lists.join(first, place);
        let roles: Vec<String> =
            comparison.role_keys().map(|role| format!("{apart}\n{role}")).collect();
        match roles.as_slice() {
            [role] => alone.entry(role.clone()).or_default().push(place),
            _ => mixes.extend(roles.into_iter().map(|role| (role, place))),
        }
    }
    for (role, mix) in mixes {
        for &place in alone.get(&role).into_iter().flatten() {
            lists.join(mix, place);
        }
    }
    let mut found: BTreeMap<usize, Vec<T>> = BTreeMap::new();
    for (place, thing) in all.into_iter().enumerate() {
        found.entry(lists.first(place)).or_default().push(thing);
    }
    found.into_values().collect()
}

/// Which things stand in one list: each knows one before it, the first of a list itself.
#[derive(Default)]
struct Lists(Vec<usize>);

impl Lists {
    fn add(&mut self) {
        self.0.push(self.0.len());
    }

    fn first(&mut self, mut place: usize) -> usize {
        while self.0[place] != place {
            self.0[place] = self.0[self.0[place]];
            place = self.0[place];
        }
        place
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first(one), self.first(other));
        self.0[one.max(other)] = one.min(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_lab::locks::KERNEL;
    use fairlock_lab::workloads::dio::{DioKernel, DioLock, DioLog, Io};
    use fairlock_lab::workloads::mix::Mix;
    use std::cell::RefCell;

    fn cell(lock: &str, readers: u32) -> Cell {
        Cell {
            workload: Mix::dedicated(readers, 1).into(),
            lock: lock.to_string(),
            repetitions: 2,
            seconds: 1.0,
            on: None,
            for_limit: false,
        }
    }

    fn plan(cells: Vec<Cell>) -> Plan {
        Plan::new(cells)
    }

    fn execute(
        plan: &Plan,
        observer: &mut dyn Observer,
        run_once: RunOnce<'_>,
        simulate_once: simulated::RunOnce<'_>,
    ) -> Result<Vec<Row>, LabError> {
        let mut order = 0;
        super::execute(&plan.cells, observer, run_once, simulate_once, &mut order, &mut |_| ())
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

    #[test]
    fn a_panic_is_told_with_the_lock_and_the_workload() {
        let panics =
            |_: &Cell, _: Run, _: &dyn Fn() -> bool| Err(LabError::Panicked("oh".to_owned()));
        let done = execute(
            &plan(vec![cell("std", 1)]),
            &mut Diary::default(),
            &mut { panics },
            &pretend_simulated,
        );
        let said = done.unwrap_err().to_string();
        assert!(said.contains("oh (`std` under mix)"), "{said}");
    }

    fn pretend(_: &Cell, run: Run, _: &dyn Fn() -> bool) -> Result<Repetition, LabError> {
        let mut repetition = Repetition { elapsed_ns: 1, ..Repetition::default() };
        if run.build == Build::Counted {
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
    fn a_mix_takes_turns_with_its_roles_alone() {
        let of = |lock: &str, readers, writers| Cell {
            workload: Mix::dedicated(readers, writers).into(),
            ..cell(lock, 1)
        };
        let cells = vec![
            of("std", 2, 2),
            of("std", 2, 0),
            of("std", 3, 0),
            of("usync", 2, 2),
            // A role of two mixes.
            of("std", 0, 2),
            of("std", 1, 2),
        ];
        let found: Vec<Vec<String>> = groups(&cells)
            .into_iter()
            .map(|group| {
                let threads = |cell: &&Cell| cell.workload.describe_threads();
                group.iter().map(threads).collect()
            })
            .collect();
        let mix = "2 readers + 2 writers";
        let first = [mix, "2 readers", mix, "2 writers", "1 reader + 2 writers"];
        assert_eq!(found, [first.map(str::to_owned).to_vec(), vec!["3 readers".to_owned()]]);
    }

    #[test]
    fn forms_of_the_kernels_take_turns_at_each_point() {
        let io = |read_bytes| Io { read_bytes, ..Io::default() };
        let of = |workload| Cell {
            workload,
            lock: KERNEL.to_string(),
            repetitions: 2,
            seconds: 1.0,
            on: None,
            for_limit: false,
        };
        let plain = |read_bytes| of(DioKernel::from(io(read_bytes)).into());
        let log = |read_bytes| of(DioLog::from(io(read_bytes)).into());
        let cells = vec![plain(4096), plain(8192), log(4096), log(8192)];
        let mut runs = Vec::new();
        let mut run_once = |cell: &Cell, run: Run, cancelled: &dyn Fn() -> bool| {
            if run.seconds == 1.0 {
                let read_bytes = cell.workload.fields()["read_bytes"].number();
                runs.push((cell.workload.name(), read_bytes));
            }
            pretend(cell, run, cancelled)
        };
        execute(&plan(cells), &mut (), &mut run_once, &pretend_simulated).unwrap();
        let names = ["dio-kernel", "dio-log", "dio-kernel", "dio-log"];
        let turns = |read_bytes| names.map(|name| (name, Some(read_bytes)));
        assert_eq!(runs, [turns(4096.0), turns(8192.0)].concat());
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
            runs.borrow_mut().push((cell.lock.clone(), run.build));
            pretend(cell, run, cancelled)
        };
        let once = |lock| Cell { repetitions: 1, ..cell(lock, 1) };
        let cells = vec![once("rwsem"), once("std")];
        let rows = execute(&plan(cells), &mut (), &mut run_once, &pretend_simulated).unwrap();
        let counted: Vec<bool> =
            runs.borrow().iter().map(|(_, build)| *build == Build::Counted).collect();
        assert_eq!(counted, [false, false, false, false, true]);
        assert_eq!(runs.borrow()[4].0, "rwsem");
        let alone = Cell { for_limit: true, ..once("rwsem") };
        let rows_alone = execute(&plan(vec![alone]), &mut (), &mut pretend, &pretend_simulated);
        assert!(rows_alone.unwrap()[0].events.is_none());
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
        let profile = Profile::example();
        let on = Some(Simulated::of(profile, 7));
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
        let mixed = |threads, read_percent| Mix::mixed(threads, read_percent).into();
        let io = |read_bytes| Io { read_bytes, ..Io::default() };
        let with = |workload| Cell { workload, ..cell("std", 1) };
        let untimed = Mix { time_reads_every: 0, ..Mix::default() }.into();
        let cases = [
            (with(untimed), ["time_reads_every", "0", "1 (all)"]),
            (with(mixed(0, 50.0)), ["threads", "0", "1 to 4096"]),
            (with(mixed(2, 101.0)), ["read_percent", "101", "0 to 100"]),
            (with(mixed(2, f64::NAN)), ["read_percent", "NaN", "0 to 100"]),
            (Cell { seconds: 0.0, ..cell("std", 1) }, ["seconds", "0", "0.001 to 3600"]),
            (Cell { repetitions: 0, ..cell("std", 1) }, ["repetitions", "0", "1 to 1000"]),
            (cell("no-such-lock", 1), ["no-such-lock", "std", "parking_lot"]),
            (with(DioKernel::from(io(4096)).into()), ["std", "valid", KERNEL]),
            (with(DioLock { io: io(1000) }.into()), ["read_bytes", "1000", "4096"]),
        ];
        for (cell, parts) in cases {
            let error = run(&plan(vec![cell]), &mut ()).unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "`{error}` lacks `{part}`");
            }
        }
    }
}
