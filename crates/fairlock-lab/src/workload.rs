//! What a workload is: one struct of parameters, and one trait that says the rest.
//!
//! The struct's fields are the options of `fairlock bench`, the parameters in study files and rows, and what a run
//! reads. Each workload is a module of [`workloads`](crate::workloads) and one line of its registry.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use clap::{ArgMatches, Args, Command};
use fairlock_report::former_names;
use fairlock_report::params::{self, Params, Value};
use fairlock_report::units::{self, Length};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Failure, LabError, Violation};
use crate::locks::monitors::{self, Monitor, UseMonitor};
use crate::locks::ranges::UseFileLock;
use crate::locks::{self, Build, HasLocks, KERNEL, LabLock, New, UseLock};
use crate::measure::Repetition;
use crate::pollers::{self, HasPollers, Poller, UsePoller};
use crate::world::{Disk, PageCache, RealWorld, SimWorld};

/// A machine that workloads run on, with what there is to compare on it.
pub trait Machine: Disk + PageCache + HasLocks + HasPollers {}

impl<W: Disk + PageCache + HasLocks + HasPollers> Machine for W {}

/// One run of one workload: where, how long, and for whom.
pub struct Request<'a, W> {
    /// The machine.
    pub world: &'a W,
    /// What is compared, see [`Subjects::word`].
    pub subject: &'static str,
    /// The name of the lock, or of whatever else is compared.
    pub lock: &'a str,
    /// Which build of the lock.
    pub build: Build,
    /// How long to run, ns.
    pub duration_ns: u64,
    /// Asked now and then: true ends the run early.
    pub cancelled: &'a dyn Fn() -> bool,
    /// Where scratch files go.
    pub directory: &'a Path,
    /// The `fairlock` command, for workloads that start processes.
    pub program: &'a Path,
}

impl<'a, W> Request<'a, W> {
    /// A run of a lock that nobody ends early, with its files in the current directory.
    pub fn new(world: &'a W, lock: &'a str, duration_ns: u64) -> Request<'a, W> {
        Request {
            world,
            subject: LOCKS.word,
            lock,
            build: Build::Plain,
            duration_ns,
            cancelled: &|| false,
            directory: Path::new("."),
            program: Path::new(THIS_PROGRAM),
        }
    }

    /// The error that what is compared broke the workload's invariant.
    pub fn broken(&self, workload: &'static str, violation: Violation) -> LabError {
        LabError::Broken { subject: self.subject, lock: self.lock.to_string(), workload, violation }
    }

    /// The error of a worker that gave up.
    pub fn failed(&self, workload: &'static str, failure: Failure) -> LabError {
        match failure {
            Failure::Violation(violation) => self.broken(workload, violation),
            Failure::Error(error) => error,
        }
    }
}

/// The program that runs now.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// Threads that do the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    /// What one is called: `reader`.
    pub name: &'static str,
    /// How many there are.
    pub threads: u32,
}

/// Threads of these roles; those without a thread are left out.
pub fn roles(list: &[(&'static str, u32)]) -> Vec<Role> {
    let roles = list.iter().map(|&(name, threads)| Role { name, threads });
    roles.filter(|role| role.threads > 0).collect()
}

/// The threads' names, role by role: `reader 1`.
pub fn numbered(roles: &[Role]) -> Vec<String> {
    let names =
        |role: &Role| (1..=role.threads).map(|number| format!("{} {number}", role.name)).collect();
    roles.iter().flat_map::<Vec<String>, _>(names).collect()
}

/// What is compared under a workload: what may stand in the `lock` of its rows.
#[derive(Clone, Copy)]
pub struct Subjects {
    /// What one is called: `lock`, `log`, `poller`.
    pub word: &'static str,
    /// What `all` means, on real threads or on a simulated machine.
    pub all: fn(simulated: bool) -> Vec<&'static str>,
    /// Whether there is one of this name that runs there; an error with the valid choices.
    pub check: fn(name: &str, simulated: bool) -> Result<(), LabError>,
}

/// What is compared where nothing is said.
#[derive(Debug, Clone, Copy)]
pub struct DefaultSubjects {
    /// On real threads.
    pub here: &'static [&'static str],
    /// On a simulated machine; empty where none runs.
    pub simulated: &'static [&'static str],
}

/// The default lock first, beside those that people use today, or beside the kernel's on a simulated machine.
pub const DEFAULT_LOCKS: DefaultSubjects = DefaultSubjects {
    here: &["rwlock", "rwsem", "std", "parking_lot"],
    simulated: &["rwlock", "rwsem", "linux-5.11", "mutex"],
};

/// Fairlock's mutex and those that people use today.
pub const DEFAULT_MONITORS: DefaultSubjects = DefaultSubjects {
    here: &["mutex", "std-mutex", "parking_lot-mutex", "pthread-mutex"],
    simulated: &["mutex", "std-mutex", "parking_lot-mutex"],
};

/// All but those that only spin.
pub const DEFAULT_POLLERS: DefaultSubjects = DefaultSubjects {
    here: &["kernel", "ready", "rwlock-list", "spin-list"],
    simulated: &["ready", "rwlock-list", "spin-list"],
};

/// What the kernel's workloads measure.
pub const KERNEL_ALONE: DefaultSubjects = DefaultSubjects { here: &[KERNEL], simulated: &[] };

/// Every lock of the [registry](crate::locks::registry).
pub const LOCKS: Subjects = Subjects {
    word: "lock",
    all: |simulated| if simulated { locks::all_simulated() } else { locks::all() },
    check: |name, simulated| {
        let found = if simulated { locks::find_simulated(name) } else { locks::find(name) };
        found.map(drop)
    },
};

/// Every mutex of the registry that has condition variables.
pub const MONITORS: Subjects = Subjects { all: monitors::names, check: monitors::check, ..LOCKS };

/// Every poller of the [registry](crate::pollers::registry).
pub const POLLERS: Subjects = Subjects {
    word: "poller",
    all: pollers::names,
    check: |name, simulated| pollers::check(name, simulated).map(drop),
};

/// Whether `name` is the kernel, for a workload that measures nothing else. A simulated machine has no kernel:
/// `instead` is what runs there.
///
/// # Errors
/// If not, or on a simulated machine.
pub fn check_kernel(
    workload: &'static str,
    instead: &'static str,
    name: &str,
    simulated: bool,
) -> Result<(), LabError> {
    if simulated {
        return Err(LabError::KernelNotSimulated { workload, instead });
    }
    if name == KERNEL {
        return Ok(());
    }
    Err(LabError::UnknownLock { name: name.to_string(), known: vec![KERNEL] })
}

/// The values of an option in a bench that does not name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultPoints {
    /// The option's field.
    pub option: &'static str,
    /// Its values: `1,2,8`.
    pub values: &'static str,
    /// Not if one of these options is given.
    pub unless: &'static [&'static str],
}

/// So many values of an option, whatever else is given.
pub const fn points(option: &'static str, values: &'static str) -> DefaultPoints {
    DefaultPoints { option, values, unless: &[] }
}

/// What a workload needs of this machine that not every one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A directory for scratch files.
    Directory,
    /// A directory on a file system that takes O_DIRECT.
    DirectIo,
    /// Real-time threads, which not everybody may start.
    RealTime,
}

/// Host seconds for one simulated second of a contended lock. More threads make no more steps: they wait.
pub const SIMULATION_COST: f64 = 4.0;
/// The same where holders sleep, or compute for long.
pub const SLEEPING_SIMULATION_COST: f64 = 0.1;

/// A workload, with its parameters as fields.
///
/// `Default` is what a study file or a command gets that says nothing; [`defaults`] takes it from the options'
/// default values. Serialized, the fields are what rows carry.
pub trait Workload:
    Args + Serialize + DeserializeOwned + Default + Clone + fmt::Debug + Send + Sync + 'static
{
    /// The name on the command line, in study files and in rows.
    const NAME: &'static str;
    /// One line about it.
    const ABOUT: &'static str;
    /// Commands to try, for `--help`; after `fairlock bench NAME`.
    const EXAMPLES: &'static [&'static str];
    /// More for `--help`.
    const NOTE: &'static str = "";
    /// What is compared.
    const SUBJECTS: Subjects = LOCKS;
    /// What is compared where nothing is said.
    const DEFAULT_SUBJECTS: DefaultSubjects = DEFAULT_LOCKS;
    /// Where a lock is chosen under the workload, as for a program: what a newcomer calls that. None where a kernel, a
    /// file, or a part of a lock is measured.
    const SITUATION: Option<&'static str> = None;
    /// Workloads of one group are compared with each other if their parameters are the same.
    const GROUP: &'static str = Self::NAME;
    /// Options that have several values in a bench that does not name them.
    const DEFAULT_POINTS: &'static [DefaultPoints] = &[];
    /// What it needs of this machine.
    const NEEDS: &'static [Need] = &[];
    /// What a run takes beside its measured time and its threads' start, seconds.
    const START_SECONDS: f64 = 0.005;

    /// The threads, or processes, by role.
    fn roles(&self) -> Vec<Role>;

    /// The workload with the threads of one role alone, for each role of a mix whose roles have threads of their own;
    /// what the other role does makes no difference to it. Empty where a role alone says nothing.
    fn alone(&self) -> Vec<Self> {
        Vec::new()
    }

    /// The threads' names in the order of their start, which the seed of a simulation may decide: `reader 1`.
    fn thread_names(&self, _seed: u64) -> Vec<String> {
        numbered(&self.roles())
    }

    /// How long threads arrive before measuring begins, ns.
    fn arrival_ns(&self, _pause_ns: f64) -> u64 {
        0
    }

    /// Parameters in words, by name, in the order in which a title has them; not the numbers of threads.
    fn words(&self) -> Vec<(&'static str, String)>;

    /// Whether the parameters make sense where one PAUSE takes so long.
    ///
    /// # Errors
    /// [`LabError::Parameter`] names the first one that does not.
    fn validate(&self, pause_ns: f64) -> Result<(), LabError>;

    /// The parameters in the one way in which rows have them, where they can be given in several.
    fn settled(self) -> Self {
        self
    }

    /// Whether it can run under a lock of this name with these parameters.
    ///
    /// # Errors
    /// What is wrong, with the valid choices.
    fn check_subject(&self, name: &str, simulated: bool) -> Result<(), LabError> {
        (Self::SUBJECTS.check)(name, simulated)
    }

    /// What rows have beside the parameters.
    fn facts(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// Whether the threads are to be pinned to CPUs.
    fn is_pinned(&self) -> bool {
        false
    }

    /// Processes or threads that are there at once.
    fn threads(&self) -> u64 {
        self.roles().iter().map(|role| u64::from(role.threads)).sum()
    }

    /// Host seconds for one simulated second under this lock on so many CPUs.
    fn simulation_cost(&self, _lock: &str, _cpus: u32) -> f64 {
        SIMULATION_COST
    }

    /// Runs it once.
    ///
    /// # Errors
    /// When an invariant is broken, a file cannot be used, or threads cannot be started.
    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError>;
}

/// Threads that run at once, of those of a workload on so many CPUs.
pub fn running(threads: u32, cpus: u32) -> f64 {
    threads.min(cpus).into()
}

/// The default values of the options.
pub fn defaults<A: Args + Clone + Send + Sync + 'static>() -> A {
    /// By type: to take them from the options takes a while, and every parameter that is read asks for them.
    static KNOWN: Mutex<BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>> = Mutex::new(BTreeMap::new());
    let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(&TypeId::of::<A>()) {
        return known.downcast_ref::<A>().expect("kept by its type").clone();
    }
    let command = A::augment_args(Command::new("defaults").no_binary_name(true));
    let none = command.get_matches_from(std::iter::empty::<&str>());
    let defaults = A::from_arg_matches(&none).expect("every option has a default value");
    lock().insert(TypeId::of::<A>(), Arc::new(defaults.clone()));
    defaults
}

/// A workload that runs under any lock of the registry.
pub trait UnderLock {
    /// Runs once on fresh locks.
    ///
    /// # Errors
    /// As [`Workload::run`].
    fn run_under<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
        new: New<L>,
    ) -> Result<Repetition, LabError>;
}

struct Under<'a, 'b, T, W>(&'a T, &'a Request<'b, W>);

impl<T: UnderLock, W: Machine> UseLock for Under<'_, '_, T, W> {
    type Output = Result<Repetition, LabError>;

    // By itself: all of them in one function take the compiler minutes.
    #[inline(never)]
    fn with<L: LabLock>(self, new: New<L>) -> Self::Output {
        self.0.run_under(self.1, new)
    }
}

/// Runs under the lock that the request names. Compiled for each lock: for workloads that measure what a few nanoseconds
/// change.
///
/// # Errors
/// As [`Workload::run`]; also for a lock that does not run there.
pub fn run_under_lock<W: Machine>(
    workload: &impl UnderLock,
    request: &Request<'_, W>,
) -> Result<Repetition, LabError> {
    let done = W::with_lock(request.lock, request.build, Under(workload, request));
    done.unwrap_or_else(|| Err(unknown(request.lock)))
}

/// As [`run_under_lock`], compiled once for all locks: for workloads whose sections, or the waits that they are about, take
/// far longer than a call.
///
/// # Errors
/// As [`run_under_lock`].
pub fn run_under_erased_lock<W: Machine>(
    workload: &impl UnderLock,
    request: &Request<'_, W>,
) -> Result<Repetition, LabError> {
    let done = W::with_erased(request.lock, request.build, Under(workload, request));
    done.unwrap_or_else(|| Err(unknown(request.lock)))
}

/// A workload over a file that runs under any range lock, or under any other around all of it.
pub trait UnderFileLock {
    /// Runs once under a lock over which nothing is held.
    ///
    /// # Errors
    /// As [`Workload::run`].
    fn run_under<W: Machine, L: locks::ranges::FileLock>(
        &self,
        request: &Request<'_, W>,
        lock: L,
    ) -> Result<Repetition, LabError>;
}

/// Runs under the lock that the request names.
///
/// # Errors
/// As [`run_under_lock`].
pub fn run_under_file_lock<W: Machine>(
    workload: &impl UnderFileLock,
    request: &Request<'_, W>,
) -> Result<Repetition, LabError> {
    struct Use<'a, 'b, T, W>(&'a T, &'a Request<'b, W>);

    impl<T: UnderFileLock, W: Machine> UseFileLock for Use<'_, '_, T, W> {
        type Output = Result<Repetition, LabError>;

        // By itself: all of them in one function take the compiler minutes.
        #[inline(never)]
        fn with<L: locks::ranges::FileLock>(self, lock: L) -> Self::Output {
            self.0.run_under(self.1, lock)
        }
    }

    let done = W::with_file_lock(request.lock, request.build, Use(workload, request));
    done.unwrap_or_else(|| Err(unknown(request.lock)))
}

/// A workload that runs under any mutex with condition variables.
pub trait UnderMonitor {
    /// Runs once under a free mutex.
    ///
    /// # Errors
    /// As [`Workload::run`].
    fn run_under<W: Machine, M: Monitor>(
        &self,
        request: &Request<'_, W>,
        new: New<M>,
    ) -> Result<Repetition, LabError>;
}

/// Runs under the mutex that the request names.
///
/// # Errors
/// As [`run_under_lock`].
pub fn run_under_monitor<W: Machine>(
    workload: &impl UnderMonitor,
    request: &Request<'_, W>,
) -> Result<Repetition, LabError> {
    struct Use<'a, 'b, T, W>(&'a T, &'a Request<'b, W>);

    impl<T: UnderMonitor, W: Machine> UseMonitor for Use<'_, '_, T, W> {
        type Output = Result<Repetition, LabError>;

        // By itself: all of them in one function take the compiler minutes.
        #[inline(never)]
        fn with<M: Monitor>(self, new: New<M>) -> Self::Output {
            self.0.run_under(self.1, new)
        }
    }

    let done = W::with_monitor(request.lock, request.build, Use(workload, request));
    done.unwrap_or_else(|| Err(unknown(request.lock)))
}

/// A workload that runs with any poller of the registry.
pub trait WithPoller {
    /// Runs once on fresh pollers.
    ///
    /// # Errors
    /// As [`Workload::run`].
    fn run_with<W: Machine, P: Poller>(
        &self,
        request: &Request<'_, W>,
    ) -> Result<Repetition, LabError>;
}

/// Runs with the poller that the request names.
///
/// # Errors
/// As [`run_under_lock`].
pub fn run_with_poller<W: Machine>(
    workload: &impl WithPoller,
    request: &Request<'_, W>,
) -> Result<Repetition, LabError> {
    struct Use<'a, 'b, T, W>(&'a T, &'a Request<'b, W>);

    impl<T: WithPoller, W: Machine> UsePoller for Use<'_, '_, T, W> {
        type Output = Result<Repetition, LabError>;

        // By itself: all of them in one function take the compiler minutes.
        #[inline(never)]
        fn with<P: Poller>(self) -> Self::Output {
            self.0.run_with::<W, P>(self.1)
        }
    }

    let done = W::with_poller(request.lock, Use(workload, request));
    done.unwrap_or_else(|| Err(unknown(request.lock)))
}

fn unknown(lock: &str) -> LabError {
    LabError::UnknownLock { name: lock.to_string(), known: locks::names() }
}

/// Runs a workload under a lock whose type the registry does not have; none if the workload is not for locks.
pub type Runner = fn(&AnyWorkload, &Request<'_, RealWorld>) -> Option<Result<Repetition, LabError>>;

/// The locks of a [`Suite`](https://docs.rs/fairlock-study), by name.
static RUNNERS: Mutex<BTreeMap<&'static str, Vec<Runner>>> = Mutex::new(BTreeMap::new());

/// Says how workloads are run under a lock that was [added](locks::add).
pub fn add_runner(lock: &'static str, run: Runner) {
    let mut runners = RUNNERS.lock().unwrap_or_else(PoisonError::into_inner);
    runners.entry(lock).or_default().push(run);
}

fn runners(lock: &str) -> Option<Vec<Runner>> {
    RUNNERS.lock().unwrap_or_else(PoisonError::into_inner).get(lock).cloned()
}

/// A registered workload: what is known of it without parameters.
#[derive(Clone, Copy)]
pub struct Entry {
    /// [`Workload::NAME`].
    pub name: &'static str,
    /// [`Workload::ABOUT`].
    pub about: &'static str,
    /// [`Workload::EXAMPLES`].
    pub examples: &'static [&'static str],
    /// [`Workload::NOTE`].
    pub note: &'static str,
    /// [`Workload::SUBJECTS`].
    pub subjects: Subjects,
    /// [`Workload::DEFAULT_SUBJECTS`].
    pub default_subjects: DefaultSubjects,
    /// [`Workload::DEFAULT_POINTS`].
    pub default_points: &'static [DefaultPoints],
    /// [`Workload::NEEDS`].
    pub needs: &'static [Need],
    /// [`Workload::SITUATION`].
    pub situation: Option<&'static str>,
    parse: fn(&Params) -> Result<AnyWorkload, String>,
    canonical: fn(&str, &Value) -> Result<Value, String>,
    defaults: fn() -> Json,
    augment: fn(Command) -> Command,
    from_arguments: fn(&ArgMatches) -> Result<AnyWorkload, clap::Error>,
}

impl Entry {
    /// The entry of a workload.
    pub const fn of<T: Workload>() -> Entry {
        Entry {
            name: T::NAME,
            about: T::ABOUT,
            examples: T::EXAMPLES,
            note: T::NOTE,
            subjects: T::SUBJECTS,
            default_subjects: T::DEFAULT_SUBJECTS,
            default_points: T::DEFAULT_POINTS,
            needs: T::NEEDS,
            situation: T::SITUATION,
            parse: |params| parse::<T>(params).map(AnyWorkload::new),
            canonical: canonical::<T>,
            defaults: || fields(&T::default()),
            augment: T::augment_args,
            from_arguments: |matches| T::from_arg_matches(matches).map(AnyWorkload::new),
        }
    }

    /// The workload with these parameters.
    ///
    /// # Errors
    /// An unknown parameter, with the valid ones; a value that it cannot have.
    pub fn parse(&self, params: &Params) -> Result<AnyWorkload, String> {
        (self.parse)(params)
    }

    /// A command with the parameters as its options.
    pub fn augment(&self, command: Command) -> Command {
        (self.augment)(command)
    }

    /// The workload that such a command's options ask for.
    ///
    /// # Errors
    /// A value that it cannot have.
    pub fn from_arguments(&self, matches: &ArgMatches) -> Result<AnyWorkload, clap::Error> {
        (self.from_arguments)(matches)
    }

    /// Some parameters as rows have them: with their current names, values in the form of the workload's fields.
    ///
    /// # Errors
    /// As [`parse`](Entry::parse).
    pub fn canonical(&self, some: &Params) -> Result<Params, String> {
        let mut canonical = Params::new();
        for (name, value) in some {
            let name = former_names::param(name);
            let value = match ((self.canonical)(name, value), value) {
                (Ok(value), _) => value,
                // A claim may ask for a number of threads that follows from the roles.
                (Err(_), Value::Number(_)) if ["threads", "readers", "writers"].contains(&name) => {
                    value.clone()
                }
                (Err(error), _) => return Err(error),
            };
            canonical.insert(name.to_owned(), value);
        }
        Ok(canonical)
    }
}

/// One parameter's value as rows have it.
fn canonical<T: Workload>(name: &str, value: &Value) -> Result<Value, String> {
    let parsed = parse::<T>(&[(name.to_owned(), value.clone())].into())?;
    Ok(fields(&parsed).get(name).and_then(Value::from_json).unwrap_or_else(|| value.clone()))
}

type Json = serde_json::Map<String, serde_json::Value>;

/// The fields as JSON, those without a value included.
fn fields<T: Serialize>(workload: &T) -> Json {
    match serde_json::to_value(workload) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => unreachable!("a struct of numbers and names is an object"),
    }
}

/// Those fields that have a value.
fn with_values(fields: Json) -> Params {
    let values = fields.into_iter();
    values.filter_map(|(name, json)| Some((name, Value::from_json(&json)?))).collect()
}

fn parse<T: Workload>(params: &Params) -> Result<T, String> {
    let mut parsed = T::default();
    read_fields(T::NAME, params, &fields(&parsed), &mut |fields| {
        parsed = serde_json::from_value(serde_json::Value::Object(fields))?;
        Ok(())
    })?;
    Ok(parsed)
}

/// Has the parameters read: all of them, and after an error one after the other, to name the one that it is about.
fn read_fields(
    workload: &str,
    params: &Params,
    known: &Json,
    read: &mut dyn FnMut(Json) -> Result<(), serde_json::Error>,
) -> Result<(), String> {
    let mut given = serde_json::Map::new();
    for (name, value) in params {
        let name = former_names::param(name);
        let Some(default) = known.get(name) else {
            let names: BTreeSet<&str> = known.keys().map(String::as_str).collect();
            let names: Vec<&str> = names.into_iter().collect();
            return Err(format!(
                "unknown parameter \"{name}\" of {workload}; the parameters are: {}",
                names.join(", ")
            ));
        };
        let value = former_names::param_value(value, default);
        if given.insert(name.to_owned(), value).is_some() {
            return Err(format!("{name} is given twice, once by its former name"));
        }
    }
    let Err(error) = read(given.clone()) else { return Ok(()) };
    let mut one_by_one = serde_json::Map::new();
    for (name, value) in given {
        one_by_one.insert(name.clone(), value.clone());
        read(one_by_one.clone()).map_err(|error| format!("{name} = {value}: {error}"))?;
    }
    Err(error.to_string())
}

/// Any workload with its parameters.
#[derive(Clone)]
pub struct AnyWorkload {
    workload: Arc<dyn Dynamic>,
    /// Of the workload; computed once, since studies compare each claim with all cells.
    fields: Arc<Params>,
}

/// What [`AnyWorkload`] needs of one, without its type.
trait Dynamic: fmt::Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn entry(&self) -> Entry;
    fn group(&self) -> &'static str;
    fn start_seconds(&self) -> f64;
    fn fields(&self) -> Params;
    fn facts(&self) -> Vec<(&'static str, Value)>;
    fn roles(&self) -> Vec<Role>;
    fn alone(&self) -> Vec<AnyWorkload>;
    fn thread_names(&self, seed: u64) -> Vec<String>;
    fn arrival_ns(&self, pause_ns: f64) -> u64;
    fn threads(&self) -> u64;
    fn words(&self) -> Vec<(&'static str, String)>;
    fn validate(&self, pause_ns: f64) -> Result<(), LabError>;
    fn check_subject(&self, name: &str, simulated: bool) -> Result<(), LabError>;
    fn is_pinned(&self) -> bool;
    fn simulation_cost(&self, lock: &str, cpus: u32) -> f64;
    fn run_real(&self, request: &Request<'_, RealWorld>) -> Result<Repetition, LabError>;
    fn run_simulated(&self, request: &Request<'_, SimWorld>) -> Result<Repetition, LabError>;
}

impl<T: Workload> Dynamic for T {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn entry(&self) -> Entry {
        Entry::of::<T>()
    }

    fn group(&self) -> &'static str {
        T::GROUP
    }

    fn start_seconds(&self) -> f64 {
        T::START_SECONDS
    }

    fn fields(&self) -> Params {
        with_values(fields(self))
    }

    fn facts(&self) -> Vec<(&'static str, Value)> {
        T::facts(self)
    }

    fn roles(&self) -> Vec<Role> {
        T::roles(self)
    }

    fn alone(&self) -> Vec<AnyWorkload> {
        T::alone(self).into_iter().map(AnyWorkload::new).collect()
    }

    fn thread_names(&self, seed: u64) -> Vec<String> {
        T::thread_names(self, seed)
    }

    fn arrival_ns(&self, pause_ns: f64) -> u64 {
        T::arrival_ns(self, pause_ns)
    }

    fn threads(&self) -> u64 {
        T::threads(self)
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        T::words(self)
    }

    fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        T::validate(self, pause_ns)
    }

    fn check_subject(&self, name: &str, simulated: bool) -> Result<(), LabError> {
        T::check_subject(self, name, simulated)
    }

    fn is_pinned(&self) -> bool {
        T::is_pinned(self)
    }

    fn simulation_cost(&self, lock: &str, cpus: u32) -> f64 {
        T::simulation_cost(self, lock, cpus)
    }

    fn run_real(&self, request: &Request<'_, RealWorld>) -> Result<Repetition, LabError> {
        self.run(request)
    }

    fn run_simulated(&self, request: &Request<'_, SimWorld>) -> Result<Repetition, LabError> {
        self.run(request)
    }
}

impl fmt::Debug for AnyWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.workload.fmt(f)
    }
}

/// The same workload with the same parameters.
impl PartialEq for AnyWorkload {
    fn eq(&self, other: &AnyWorkload) -> bool {
        self.name() == other.name() && self.fields() == other.fields()
    }
}

impl<T: Workload> From<T> for AnyWorkload {
    fn from(workload: T) -> AnyWorkload {
        AnyWorkload::new(workload)
    }
}

/// What a workload is compared with; computed once, since plans compare each cell with all others.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    group: &'static str,
    fields: Params,
    /// One for a role alone, several for a mix: see [`Workload::alone`].
    roles: Vec<Params>,
}

/// Cells with two of them take turns: those with the same parameters, of one workload or of one group; and a mix with
/// each of its roles alone.
impl Comparison {
    /// The same for those with the same parameters.
    pub fn key(&self) -> String {
        format!("{} {:?}", self.group, self.fields)
    }

    /// One for each role; that of a role alone is also its mix's.
    pub fn role_keys(&self) -> impl Iterator<Item = String> {
        self.roles.iter().map(|role| format!("{} {role:?}", self.group))
    }
}

impl AnyWorkload {
    /// One with its parameters.
    pub fn new<T: Workload>(workload: T) -> AnyWorkload {
        let workload = workload.settled();
        let fields = Dynamic::fields(&workload).into();
        AnyWorkload { workload: Arc::new(workload), fields }
    }

    /// What is known of it without parameters.
    pub fn entry(&self) -> Entry {
        self.workload.entry()
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.entry().name
    }

    /// What it needs of this machine.
    pub fn needs(&self, need: Need) -> bool {
        self.entry().needs.contains(&need)
    }

    /// The parameters that have a value, without what rows have besides.
    pub fn fields(&self) -> &Params {
        &self.fields
    }

    /// The parameters that rows have, where one PAUSE takes so long.
    pub fn params(&self, pause_ns: f64) -> Params {
        let mut params = self.fields().clone();
        params.extend(
            self.workload.facts().into_iter().map(|(name, value)| (name.to_owned(), value)),
        );
        params.insert("pause_ns".to_owned(), pause_ns.into());
        params
    }

    /// See [`Workload::roles`].
    pub fn roles(&self) -> Vec<Role> {
        self.workload.roles()
    }

    /// See [`Workload::alone`].
    pub fn alone(&self) -> Vec<AnyWorkload> {
        self.workload.alone()
    }

    /// See [`Workload::threads`].
    pub fn threads(&self) -> u64 {
        self.workload.threads()
    }

    /// See [`Workload::thread_names`].
    pub fn thread_names(&self, seed: u64) -> Vec<String> {
        self.workload.thread_names(seed)
    }

    /// See [`Workload::arrival_ns`].
    pub fn arrival_ns(&self, pause_ns: f64) -> u64 {
        self.workload.arrival_ns(pause_ns)
    }

    /// The threads in words: `2 readers + 1 writer`.
    pub fn describe_threads(&self) -> String {
        describe_threads(self.fields())
    }

    /// Everything in words, threads first: the title of a group of rows.
    pub fn describe(&self) -> String {
        self.describe_some(self.fields())
    }

    /// Those of the parameters in words that are among `some`.
    fn describe_some(&self, some: &Params) -> String {
        let count = |role: &str| params::number(some, role);
        let words = self
            .workload
            .words()
            .into_iter()
            .filter(|(name, _)| some.contains_key(*name) && !params::is_idle(name, count));
        let parts = [describe_threads(some)].into_iter().chain(words.map(|(_, words)| words));
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
    }

    /// One parameter in words; none for one that needs none, or that there is not.
    fn describe_one(&self, name: &str) -> Option<String> {
        self.workload.words().into_iter().find(|(known, _)| *known == name).map(|(_, words)| words)
    }

    /// What decides whose repetitions take turns with its own.
    pub fn comparison(&self) -> Comparison {
        let roles = self.alone().iter().map(|role| role.fields().clone()).collect();
        Comparison { group: self.workload.group(), fields: self.fields().clone(), roles }
    }

    /// See [`Workload::validate`].
    ///
    /// # Errors
    /// As there.
    pub fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        self.workload.validate(pause_ns)
    }

    /// See [`Workload::check_subject`].
    ///
    /// # Errors
    /// As there.
    pub fn check_subject(&self, name: &str, simulated: bool) -> Result<(), LabError> {
        self.workload.check_subject(name, simulated)
    }

    /// See [`Workload::is_pinned`].
    pub fn is_pinned(&self) -> bool {
        self.workload.is_pinned()
    }

    /// See [`Workload::START_SECONDS`].
    pub fn start_seconds(&self) -> f64 {
        self.workload.start_seconds()
    }

    /// See [`Workload::simulation_cost`].
    pub fn simulation_cost(&self, lock: &str, cpus: u32) -> f64 {
        self.workload.simulation_cost(lock, cpus)
    }

    /// The workload itself, if it is one of this type.
    pub fn downcast<T: Workload>(&self) -> Option<&T> {
        self.workload.as_any().downcast_ref()
    }

    /// Runs it once on real threads.
    ///
    /// # Errors
    /// As [`Workload::run`].
    pub fn run_real(&self, request: &Request<'_, RealWorld>) -> Result<Repetition, LabError> {
        let Some(runners) = runners(request.lock) else { return self.workload.run_real(request) };
        let done = runners.into_iter().find_map(|run| run(self, request));
        done.unwrap_or_else(|| Err(unknown(request.lock)))
    }

    /// Runs it once on a simulated machine.
    ///
    /// # Errors
    /// As [`Workload::run`].
    pub fn run_simulated(&self, request: &Request<'_, SimWorld>) -> Result<Repetition, LabError> {
        self.workload.run_simulated(request)
    }
}

/// Parameters of a point in words. `entry` is the workload, if it is known.
pub fn describe(entry: Option<Entry>, params: &Params) -> String {
    match entry.and_then(|entry| entry.parse(&known(entry, params)).ok()) {
        Some(workload) => workload.describe_some(params),
        None => {
            let threads = describe_threads(params);
            let others = params.iter().filter(|(name, _)| {
                !["threads", "readers", "writers", "pause_ns"].contains(&name.as_str())
            });
            let others = others.map(|(name, value)| format!("{name} {value}"));
            let parts = [threads].into_iter().chain(others);
            parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
        }
    }
}

/// One parameter in words.
pub fn describe_one(entry: Option<Entry>, name: &str, value: &Value) -> Option<String> {
    let params: Params = [(name.to_owned(), value.clone())].into();
    match entry {
        Some(entry) => entry.parse(&params).ok()?.describe_one(name),
        None => Some(format!("{name} {value}")),
    }
}

/// The parameters that the workload's struct has; rows have more.
pub fn known(entry: Entry, params: &Params) -> Params {
    let fields = (entry.defaults)();
    let known = params.iter().filter(|(name, _)| fields.contains_key(former_names::param(name)));
    known.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The threads of a row in words: `2 readers + 1 writer`.
pub fn describe_threads(params: &Params) -> String {
    let number = |name: &str| params::number(params, name);
    let roles = [("readers", "reader"), ("writers", "writer")];
    let parts: Vec<String> = roles
        .into_iter()
        .filter_map(|(key, role)| Some(units::several(number(key).filter(|it| *it > 0.0)?, role)))
        .collect();
    match number("threads") {
        Some(threads) if parts.is_empty() => units::several(threads, "thread"),
        _ => parts.join(" + "),
    }
}

/// Thread counts are bounded so that a slip of the finger is an error and not a dead machine.
const MOST_THREADS: u32 = 4096;

/// Whether so many threads can be.
///
/// # Errors
/// [`LabError::Parameter`], if not.
pub fn check_thread_count(name: &'static str, threads: u64) -> Result<(), LabError> {
    if (1..=u64::from(MOST_THREADS)).contains(&threads) {
        return Ok(());
    }
    wrong(name, threads, format!("1 to {MOST_THREADS}"))
}

/// A section or think longer than this would make a run's end late and its rate meaningless.
pub const LONGEST_LENGTH_NS: f64 = 1e9;

/// Whether a section or think can be so long.
///
/// # Errors
/// [`LabError::Parameter`], if not.
pub fn check_length(name: &'static str, length: Length, pause_ns: f64) -> Result<(), LabError> {
    let ns = match length {
        Length::Pauses(pauses) => f64::from(pauses) * pause_ns,
        Length::Nanoseconds(ns) => ns as f64,
    };
    if ns <= LONGEST_LENGTH_NS {
        return Ok(());
    }
    wrong(name, length, "at most one second".to_string())
}

/// Whether this is a share of reads.
///
/// # Errors
/// [`LabError::Parameter`], if not.
pub fn check_share(read_percent: f64) -> Result<(), LabError> {
    if (0.0..=100.0).contains(&read_percent) {
        return Ok(());
    }
    wrong("read_percent", read_percent, "0 to 100".to_string())
}

/// A share in words, with all its digits: 99.99 is not 100.
pub fn percent_of_reads(percent: f64) -> String {
    format!("{percent} % reads")
}

/// Says that a parameter cannot have this value.
///
/// # Errors
/// Always.
pub fn wrong(name: &'static str, value: impl ToString, valid: String) -> Result<(), LabError> {
    Err(LabError::Parameter { name, value: value.to_string(), valid })
}
