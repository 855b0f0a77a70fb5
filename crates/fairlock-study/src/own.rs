//! Your own locks, and your own critical sections, in the lab.
//!
//! A program of a few lines puts them beside the locks that the lab knows: the same options, rows and page as
//! `fairlock bench`. In a crate of yours it is a bench of its own (`harness = false`), so that `cargo bench` runs it:
//!
//! ```toml
//! [[bench]]
//! name = "locks"
//! harness = false
//!
//! [dev-dependencies]
//! fairlock-study = { path = "../fairlock/crates/fairlock-study" }
//! ```
//!
//! ```no_run
//! use std::collections::HashMap;
//! use std::process::ExitCode;
//!
//! use fairlock_study::own::{Sections, Suite, XorShift};
//!
//! /// Lookups and updates of a map: what readers and writers do with the lock held.
//! struct Cache;
//!
//! impl Sections for Cache {
//!     const NAME: &'static str = "cache";
//!     const ABOUT: &'static str = "lookups and updates of a map of 1000 entries";
//!     type Data = HashMap<u32, u64>;
//!
//!     fn new() -> Self::Data {
//!         (0..1000).map(|key| (key, 0)).collect()
//!     }
//!
//!     fn read(data: &Self::Data, random: &mut XorShift) {
//!         std::hint::black_box(data.get(&random.below(1000)));
//!     }
//!
//!     fn write(data: &mut Self::Data, random: &mut XorShift) {
//!         *data.entry(random.below(1000)).or_default() += 1;
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     Suite::new()
//!         // Any `RawRwLock` of lock_api 0.5, which is `own::lock_api`; `mutex` takes any `RawMutex`.
//!         .rwlock::<parking_lot::RawRwLock>("mine", "our own lock")
//!         .sections::<Cache>()
//!         .main()
//! }
//! ```
//!
//! Then `cargo bench --bench locks` runs every own section under every own lock and the usual ones, and
//! `cargo bench --bench locks -- cache --threads 2,8 --read-percent 90 --lock mine,rwlock,std`, or
//! `… -- mix --lock mine,rwlock`, one workload with options; `-- --help` lists them. Rows and a page are left in
//! `target/fairlock`.
//!
//! The lab's own check runs around each of your sections: a lock that lets a writer in beside somebody fails the
//! run.

use std::cell::UnsafeCell;
use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, BufWriter};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::{ArgMatches, Args, Command, FromArgMatches};
use fairlock_lab::error::LabError;
use fairlock_lab::locks::{
    self, ApiMutex, ApiRwLock, Descriptor, Kind, LabLock, New, NewLock, UseLock,
};
use fairlock_lab::machine;
use fairlock_lab::measure::Repetition;
use fairlock_lab::workload::{
    self, AnyWorkload, DEFAULT_LOCKS, DefaultPoints, DefaultSubjects, Entry, LOCKS, Machine,
    Request, Role, Runner, Subjects, UnderLock, Workload, defaults, run_under_lock,
};
use fairlock_lab::workloads;
use fairlock_lab::workloads::mix::{Inside, Mix};
use fairlock_lab::world::RealWorld;
use fairlock_report::former_names;
pub use fairlock_report::random::XorShift;
use fairlock_report::recording::{Header, Recording, Writer, check_rows_name};
use fairlock_report::screen::{columns, complain, print, say};
use fairlock_report::units::{Length, at_least_one, count, format_minutes, parse_percent};
pub use lock_api;
use lock_api::{RawMutex, RawRwLock};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::harness::bench::Bench;
use crate::harness::progress;
use crate::harness::quiet::Quiet;
use crate::harness::runner::{self, Job};
use crate::plan::Batch;
use crate::report::{self, terminal, timeline_file};

/// What readers and writers do with a lock held: a workload of yours.
pub trait Sections: 'static {
    /// The name on the command line and in rows.
    const NAME: &'static str;
    /// One line about it.
    const ABOUT: &'static str;
    /// What the lock protects.
    type Data: Send + Sync;

    /// The data before a run.
    fn new() -> Self::Data;

    /// What a reader does, with the lock held shared.
    fn read(data: &Self::Data, random: &mut XorShift);

    /// What a writer does, with the lock held exclusively.
    fn write(data: &mut Self::Data, random: &mut XorShift);
}

/// Options of own sections.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
struct Shape {
    /// Threads, half of them readers; with --read-percent every thread does both
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    threads: Option<u32>,
    /// Threads that only read, instead of --threads
    #[arg(long, value_name = "N", value_parser = count, conflicts_with_all = ["threads", "read_percent"])]
    readers: Option<u32>,
    /// Threads that only write, instead of --threads
    #[arg(long, value_name = "N", value_parser = count, conflicts_with_all = ["threads", "read_percent"])]
    writers: Option<u32>,
    /// Share of operations that read; the rest write
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    read_percent: Option<f64>,
    /// Time between two operations: pauses (10p) or time (200ns), ±25 %
    #[arg(long, value_name = "LENGTH", default_value = "0p")]
    think: Length,
}

impl Default for Shape {
    fn default() -> Shape {
        defaults()
    }
}

/// Own sections as a workload.
struct Own<S> {
    shape: Shape,
    sections: PhantomData<fn() -> S>,
}

impl<S> Own<S> {
    fn of(shape: Shape) -> Own<S> {
        Own { shape, sections: PhantomData }
    }

    /// The same threads with sections of the lab.
    fn mix(&self) -> Mix {
        let Shape { threads, readers, writers, read_percent, think } = self.shape.clone();
        let section = Length::Pauses(0);
        Mix { threads, readers, writers, read_percent, think, section, ..Mix::default() }
    }
}

impl<S> Clone for Own<S> {
    fn clone(&self) -> Own<S> {
        Own::of(self.shape.clone())
    }
}

impl<S> Default for Own<S> {
    fn default() -> Own<S> {
        Own::of(Shape::default())
    }
}

impl<S> fmt::Debug for Own<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shape.fmt(f)
    }
}

impl<S> Serialize for Own<S> {
    fn serialize<T: Serializer>(&self, to: T) -> Result<T::Ok, T::Error> {
        self.shape.serialize(to)
    }
}

impl<'de, S> Deserialize<'de> for Own<S> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Own<S>, D::Error> {
        Shape::deserialize(from).map(Own::of)
    }
}

impl<S> FromArgMatches for Own<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Own<S>, clap::Error> {
        Shape::from_arg_matches(matches).map(Own::of)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.shape.update_from_arg_matches(matches)
    }
}

impl<S> Args for Own<S> {
    fn augment_args(command: Command) -> Command {
        Shape::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Shape::augment_args_for_update(command)
    }
}

impl<S: Sections> Workload for Own<S> {
    const NAME: &'static str = S::NAME;
    const ABOUT: &'static str = S::ABOUT;
    const EXAMPLES: &'static [&'static str] = &["--threads 2,8 --read-percent 50,99"];
    const SUBJECTS: Subjects = Subjects {
        check: |name, simulated| match simulated {
            true => Err(LabError::OwnNotSimulated { workload: S::NAME }),
            // It would let two threads at the data at once.
            false if locks::find(name).is_ok_and(|lock| lock.kind == Kind::Broken) => {
                Err(LabError::UnknownLock { name: name.to_string(), known: locks::names() })
            }
            false => (LOCKS.check)(name, simulated),
        },
        ..LOCKS
    };
    const DEFAULT_SUBJECTS: DefaultSubjects = DefaultSubjects { simulated: &[], ..DEFAULT_LOCKS };
    const DEFAULT_POINTS: &'static [DefaultPoints] = Mix::DEFAULT_POINTS;
    const SITUATION: Option<&'static str> = Some(S::NAME);

    fn roles(&self) -> Vec<Role> {
        self.mix().roles()
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        let words = self.mix().words().into_iter();
        words.filter(|(name, _)| ["read_percent", "think"].contains(name)).collect()
    }

    fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        self.mix().validate(pause_ns)
    }

    fn settled(self) -> Own<S> {
        let Mix { threads, readers, writers, read_percent, think, .. } = self.mix().settled();
        Own::of(Shape { threads, readers, writers, read_percent, think })
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_lock(self, request)
    }
}

impl<S: Sections> UnderLock for Own<S> {
    fn run_under<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
        new: New<L>,
    ) -> Result<Repetition, LabError> {
        let inside = Guarded::<S>(UnsafeCell::new(S::new()));
        self.mix().run_inside(request, new, S::NAME, &inside)
    }
}

/// The data of a run, used with the lock held and in no other way.
struct Guarded<S: Sections>(UnsafeCell<S::Data>);

// SAFETY: `Inside` says how its methods are called: with the lock held shared or exclusively. The locks that own
// sections run under exclude: those of the registry that do not are refused by `check` above, and an own one is a
// `RawRwLock` or `RawMutex`, which are unsafe to implement for that reason. So there are several references from
// several threads, for which the data is `Sync`, or one, for which it is `Send`.
unsafe impl<S: Sections> Sync for Guarded<S> {}

impl<S: Sections> Inside for Guarded<S> {
    #[inline]
    fn read(&self, random: &mut XorShift) {
        // SAFETY: the lock is held shared, so nobody has an exclusive reference.
        S::read(unsafe { &*self.0.get() }, random);
    }

    #[inline]
    fn write(&self, random: &mut XorShift) {
        // SAFETY: the lock is held exclusively, so nobody else has a reference.
        S::write(unsafe { &mut *self.0.get() }, random);
    }
}

/// Own locks, the last one first. Their names are in `NAMES`, in the order in which they were added.
pub trait OwnLocks {
    /// How many there are.
    #[doc(hidden)]
    const COUNT: usize;

    /// Does something with the lock of this number.
    #[doc(hidden)]
    fn with<V: UseLock>(number: usize, what: V) -> Option<V::Output>;
}

static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

impl OwnLocks for () {
    const COUNT: usize = 0;

    fn with<V: UseLock>(_number: usize, _what: V) -> Option<V::Output> {
        None
    }
}

impl<L: NewLock, Before: OwnLocks> OwnLocks for (L, Before) {
    const COUNT: usize = Before::COUNT + 1;

    fn with<V: UseLock>(number: usize, what: V) -> Option<V::Output> {
        if number == Before::COUNT {
            Some(what.with::<L>(NewLock::new))
        } else {
            Before::with(number, what)
        }
    }
}

/// Runs own sections under an own lock; none for another workload.
fn run_sections<S: Sections, Locks: OwnLocks>(
    workload: &AnyWorkload,
    request: &Request<'_, RealWorld>,
) -> Option<Result<Repetition, LabError>> {
    struct Use<'a, 'b, S>(&'a Own<S>, &'a Request<'b, RealWorld>);

    impl<S: Sections> UseLock for Use<'_, '_, S> {
        type Output = Result<Repetition, LabError>;

        fn with<L: LabLock>(self, new: New<L>) -> Self::Output {
            self.0.run_under(self.1, new)
        }
    }

    let own = workload.downcast::<Own<S>>()?;
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let number = names.iter().position(|name| *name == request.lock)?;
    Locks::with(number, Use(own, request))
}

/// An own lock that has yet to be registered.
struct OwnLock {
    name: &'static str,
    about: &'static str,
    bytes: usize,
    run: Runner,
}

/// Own locks and sections, to be run beside those of the lab. Locks come first.
pub struct Suite<Locks = ()> {
    locks: Vec<OwnLock>,
    sections: Vec<(Entry, Runner)>,
    types: PhantomData<fn() -> Locks>,
}

impl Default for Suite {
    fn default() -> Suite {
        Suite::new()
    }
}

impl Suite {
    /// One without anything of its own.
    pub fn new() -> Suite {
        Suite { locks: Vec::new(), sections: Vec::new(), types: PhantomData }
    }
}

impl<Locks: OwnLocks> Suite<Locks> {
    /// Adds a reader-writer lock.
    ///
    /// # Panics
    /// If sections were added before: they would not run under it.
    pub fn rwlock<R: RawRwLock + Send + Sync + 'static>(
        self,
        name: &'static str,
        about: &'static str,
    ) -> Suite<(ApiRwLock<R>, Locks)> {
        self.lock(name, about)
    }

    /// Adds a mutex; readers acquire it exclusively.
    ///
    /// # Panics
    /// As [`rwlock`](Suite::rwlock).
    pub fn mutex<R: RawMutex + Send + Sync + 'static>(
        self,
        name: &'static str,
        about: &'static str,
    ) -> Suite<(ApiMutex<R>, Locks)> {
        self.lock(name, about)
    }

    fn lock<L: NewLock>(mut self, name: &'static str, about: &'static str) -> Suite<(L, Locks)> {
        assert!(
            self.sections.is_empty(),
            "add locks before sections, which run under each of them"
        );
        let run = workloads::run_under::<L>;
        self.locks.push(OwnLock { name, about, bytes: L::BYTES, run });
        Suite { locks: self.locks, sections: self.sections, types: PhantomData }
    }

    /// Adds a workload of your own.
    pub fn sections<S: Sections>(mut self) -> Suite<Locks> {
        self.sections.push((Entry::of::<Own<S>>(), run_sections::<S, Locks>));
        self
    }

    /// Runs what the command line asks for: a workload with its options, or everything that is yours.
    pub fn main(self) -> ExitCode {
        match self.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(Failure::Cancelled) => ExitCode::from(130),
            Err(Failure::Said(code)) => ExitCode::from(code),
            Err(Failure::Error(error)) => {
                complain(&format!("error: {error}"));
                ExitCode::from(1)
            }
        }
    }

    /// Makes everything known by its name.
    fn register(&self) -> Result<(), String> {
        self.sections.iter().try_for_each(|(entry, _)| check_name("sections", entry.name))?;
        for lock in &self.locks {
            check_name("a lock", lock.name)?;
            locks::add(Descriptor {
                name: lock.name,
                about: lock.about,
                kind: Kind::Peer,
                bytes: lock.bytes,
                has_twin: false,
                is_simulated: false,
            })?;
            NAMES.lock().unwrap_or_else(PoisonError::into_inner).push(lock.name);
            workload::add_runner(lock.name, lock.run);
            for (_, run) in &self.sections {
                workload::add_runner(lock.name, *run);
            }
        }
        self.sections.iter().try_for_each(|(entry, _)| workloads::add(*entry))
    }

    /// The benches that the command line asks for.
    fn benches(&self) -> Result<Vec<(Bench, Quiet)>, Failure> {
        let mut given: Vec<OsString> = std::env::args_os().collect();
        let program = if given.is_empty() { OsString::new() } else { given.remove(0) };
        // `cargo bench` says that this is a bench.
        let is_bench = given.iter().any(|argument| argument == "--bench");
        given.retain(|argument| argument != "--bench");
        let called = called(Path::new(&program), is_bench);
        let parse = |given: &[OsString]| {
            let command = Command::new("bench").bin_name(&called).no_binary_name(true);
            // The last word: a struct's own documentation stands for it otherwise.
            let command = Quiet::augment_args(Bench::commands(command, &called)).about(
                "Your locks and sections beside the lab's; without a workload, all of yours",
            );
            let command = command.after_help(format!(
                "Example:\n  {called} {}",
                self.sections.first().map_or(Mix::NAME, |(entry, _)| entry.name)
            ));
            let matches = command.try_get_matches_from(given)?;
            Ok((Bench::from_arg_matches(&matches)?, Quiet::from_arg_matches(&matches)?))
        };
        let parsed: Result<Vec<_>, clap::Error> = match given.is_empty() {
            false => parse(&given).map(|bench| vec![bench]),
            true => self.everything().iter().map(|line| parse(line)).collect(),
        };
        parsed.map_err(|error| {
            // Help, or what is wrong; nothing is left to do if nobody reads it.
            let _ = error.print();
            Failure::Said(if error.use_stderr() { 2 } else { 0 })
        })
    }

    /// A line for each workload that is yours, or for `mix` if none is.
    fn everything(&self) -> Vec<Vec<OsString>> {
        match self.sections.is_empty() {
            true => vec![vec![Mix::NAME.into()]],
            false => self.sections.iter().map(|(entry, _)| vec![entry.name.into()]).collect(),
        }
    }

    fn run(&self) -> Result<(), Failure> {
        self.register().map_err(Failure::Error)?;
        let benches = self.benches()?;
        let mut batches: Vec<Batch> = Vec::new();
        for (bench, _) in &benches {
            batches.extend(bench.batches().map_err(Failure::Error)?);
        }
        runner::check(&batches).map_err(Failure::Error)?;
        let Some((bench, quiet)) = benches.first() else { return Ok(()) };
        run_batches(bench, quiet, &batches)
    }
}

/// Refuses a name that the command line could not say, or that says something else there.
fn check_name(what: &str, name: &str) -> Result<(), String> {
    const TAKEN: [&str; 3] = ["all", "core", "help"];
    let is_odd = |c: char| c == ',' || c.is_whitespace() || c.is_control();
    let reason = if name.is_empty() {
        "a name has at least one character"
    } else if name.starts_with('-') || name.contains(is_odd) {
        "a name has no commas or spaces and does not begin with a dash"
    } else if TAKEN.contains(&name) || former_names::lock(name) != name {
        "it means something else on the command line"
    } else {
        return Ok(());
    };
    Err(format!("{what} cannot be called `{name}`: {reason}"))
}

/// How somebody calls this program, for its help: Cargo adds 16 digits to the name of a bench.
fn called(program: &Path, is_bench: bool) -> String {
    let stem = program.file_stem().map_or("bench".into(), |stem| stem.to_string_lossy());
    let is_hash = |end: &str| end.len() == 16 && end.bytes().all(|it| it.is_ascii_hexdigit());
    let name = match stem.rsplit_once('-') {
        Some((name, end)) if is_hash(end) => name,
        _ => &stem,
    };
    if is_bench { format!("cargo bench --bench {name} --") } else { name.to_owned() }
}

/// Why nothing came of it.
enum Failure {
    /// The command line was answered, with this exit code.
    Said(u8),
    /// Ctrl-C.
    Cancelled,
    /// What is wrong.
    Error(String),
}

/// Where rows and page go where nothing else is said, from where `cargo bench` is run.
const FOLDER: &str = "target/fairlock";

/// Runs the batches with the options of the first bench; leaves rows and a page, or prints the rows.
fn run_batches(bench: &Bench, quiet: &Quiet, batches: &[Batch]) -> Result<(), Failure> {
    let failed = |what: &Path, error: io::Error| {
        Failure::Error(format!("cannot write {}: {error}", what.display()))
    };
    let stdout = Path::new("standard output");
    let common = &bench.common;
    let default = Path::new(FOLDER).join("rows.jsonl");
    let rows = common.out.as_deref().unwrap_or(&default);
    check_rows_name(rows).map_err(|error| Failure::Error(format!("--out {error}")))?;
    let mut header = Header::now(Vec::new(), false, machine::here(None));
    header.others_busy_cpus = quiet.look();
    let mut writer = match common.json {
        true => Writer::to_stdout(&header).map_err(|error| failed(stdout, error))?,
        false => {
            if let Some(folder) = rows.parent() {
                std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
            }
            Writer::create(rows, &header).map_err(|error| failed(rows, error))?
        }
    };
    let estimate_s: f64 = batches.iter().map(Batch::estimate_s).sum();
    say(&format!("{}\nabout {}", terminal::machine(&header), format_minutes(estimate_s)));
    progress::handle_interrupts("finished repetitions are kept");
    let mut recording = Recording::new(header);
    let job = Job { dir: &common.dir, ..Job::new(batches, common.patience) };
    let outcome = runner::run(&job, &mut recording, Some(&mut writer));
    let mut text = String::new();
    if !common.json {
        let cpus = recording.header.machine.cpus;
        text += &terminal::tables(&recording.rows, cpus, true, columns(&io::stdout()));
        text += &left(rows, &writer, &recording).map_err(|(path, error)| failed(&path, error))?;
    }
    if let Some(path) = &common.timeline {
        let file = File::create(path);
        let write = |file| timeline_file::write(BufWriter::new(file), &outcome.full_timelines);
        file.and_then(write).map_err(|error| failed(path, error))?;
        let _ = writeln!(text, "timeline: {}", path.display());
    }
    match common.json {
        true if text.is_empty() => {}
        true => say(text.trim_end()),
        false => print(&text).map_err(|error| failed(stdout, error))?,
    }
    let failures: Vec<String> = outcome.failed.into_iter().chain(outcome.write_error).collect();
    match failures.is_empty() {
        false => Err(Failure::Error(failures.join("; "))),
        true if recording.cancelled => Err(Failure::Cancelled),
        true => Ok(()),
    }
}

/// Writes the page beside the rows, and says where both are.
fn left(
    rows: &Path,
    writer: &Writer,
    recording: &Recording,
) -> Result<String, (PathBuf, io::Error)> {
    if writer.left_the_older() {
        return Ok(format!("no results; {} is of an earlier run\n", rows.display()));
    }
    let page = rows.with_extension("html");
    match std::fs::write(&page, report::page(recording)) {
        Ok(()) => Ok(format!("page: {}\nrows: {}\n", page.display(), rows.display())),
        Err(error) => Err((page, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_said_on_the_command_line_and_means_one_thing_there() {
        for name in ["", "a b", "a,b", "-a", "all", "core", "help", "timefair", "biased"] {
            assert!(check_name("a lock", name).unwrap_err().contains("cannot be called"), "{name}");
        }
        for name in ["sketch", "my-lock_2", "Schloß"] {
            assert_eq!(check_name("a lock", name), Ok(()));
        }
    }
}
