//! A child process whose system calls fail (`preloaded/faults.c`), and a parent that reads what it leaves.
//!
//! The child writes down what it does in a ledger, one line with one write(2) each, so that the ledger
//! outlives a kill. The parent knows from the ledger what must be in the log, what may be, and what must not.

use std::collections::{HashMap, HashSet};
use std::env;
use std::error::Error;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_io::{
    LogError, LogErrorKind, LogFile, LogOptions, LogReader, Position, Prewrite, SyncPolicy,
};
use fastrand::Rng;

use crate::numbered_records::{record, source_of};
use crate::preloaded;

const DIRECTORY: &str = "FAIRLOCK_LOG_FAULTS";
const SEED: &str = "FAIRLOCK_LOG_FAULTS_SEED";

const THREADS: u64 = 3;
const SEGMENT_BYTES: u64 = 256 << 10;
/// What a child keeps behind the end, bytes: the rest is given up.
const KEPT: u64 = 3 * SEGMENT_BYTES;
/// So many processes in a row use the same log.
const ROUNDS_OF_A_LOG: u64 = 8;
/// Nothing here takes as long, but what hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// The kinds of faults, in the order of `faults.c`.
const KINDS: [&str; 14] = [
    "reads",
    "writes",
    "short reads, writes",
    "torn writes",
    "disk full",
    "syncs",
    "lengths",
    "room made",
    "opens",
    "renames",
    "links",
    "unlinks",
    "locks",
    "interrupted",
];

type Source = (u64, u64);

/// What happened, in numbers. Whatever is lost, doubled or changed is an error at once.
#[derive(Debug, Default)]
pub struct Figures {
    rounds: u64,
    killed: u64,
    openings: u64,
    closed: u64,
    acknowledged: u64,
    failed: u64,
    failed_and_there: u64,
    read_back: u64,
    faults: [u64; KINDS.len()],
}

impl Figures {
    /// How many calls were made to fail.
    pub fn faults(&self) -> u64 {
        self.faults.iter().sum()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "processes                  {:>9}", self.rounds)?;
        writeln!(f, "  killed                   {:>9}", self.killed)?;
        writeln!(f, "openings                   {:>9}", self.openings)?;
        writeln!(f, "  and closed               {:>9}", self.closed)?;
        writeln!(f, "records acknowledged       {:>9}", self.acknowledged)?;
        writeln!(f, "  or failed                {:>9}", self.failed)?;
        writeln!(f, "  failed, there after all  {:>9}", self.failed_and_there)?;
        writeln!(f, "records read back          {:>9}", self.read_back)?;
        writeln!(f, "acknowledged and lost      {:>9}", 0)?;
        writeln!(f, "read twice                 {:>9}", 0)?;
        write!(f, "faults                     {:>9}", self.faults())?;
        for (kind, count) in KINDS.iter().zip(self.faults) {
            write!(f, "\n  {kind:<24} {count:>9}")?;
        }
        Ok(())
    }
}

/// Where a child writes down what it does.
struct Ledger(File);

impl Ledger {
    fn of(directory: &Path) -> std::io::Result<Ledger> {
        OpenOptions::new().append(true).create(true).open(directory.join("ledger")).map(Ledger)
    }

    fn note(&self, line: fmt::Arguments<'_>) {
        (&self.0).write_all(format!("{line}\n").as_bytes()).expect("a ledger that can be written");
    }
}

pub fn is_child() -> bool {
    env::var_os(DIRECTORY).is_some()
}

/// The child: opens the log some times, and each time appends, truncates, reads, and closes or drops it.
pub fn live() -> Result<(), Box<dyn Error>> {
    // A panic of the log's own threads is to be seen, too.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        process::abort();
    }));
    let directory = PathBuf::from(env::var_os(DIRECTORY).ok_or("no directory")?);
    let mut random = Rng::with_seed(env::var(SEED)?.parse()?);
    let known = Known::read(&directory)?;
    let numbers = [const { AtomicU64::new(0) }; THREADS as usize];
    for &(thread, number) in known.records.keys() {
        numbers[thread as usize].fetch_max(number, Ordering::Relaxed);
    }
    let ledger = Ledger::of(&directory)?;
    for _ in 0..random.u32(1..4) {
        let Some(log) = open_despite_faults(&directory.join("log"), &mut random, &ledger) else {
            return Ok(());
        };
        use_once(&log, &numbers, &mut random, &ledger);
        match random.u32(..3) {
            0 => ledger.note(format_args!("left")),
            _ => match log.close() {
                Ok(()) => ledger.note(format_args!("closed")),
                Err(error) => {
                    assert_explained(&error);
                    ledger.note(format_args!("left"));
                }
            },
        }
    }
    Ok(())
}

/// Fails on an error that no fault explains.
fn assert_explained(error: &LogError) {
    let source = Error::source(error).and_then(|it| it.downcast_ref::<std::io::Error>());
    let number = source.and_then(std::io::Error::raw_os_error);
    match error.kind() {
        LogErrorKind::StorageFull => {
            assert_eq!(number, Some(libc::ENOSPC), "{error:?}");
        }
        LogErrorKind::System(_) => {
            let injected = [libc::EIO, libc::EMFILE, libc::ENOLCK];
            assert!(number.is_some_and(|it| injected.contains(&it)), "{error:?}");
        }
        LogErrorKind::SyncFailed => {}
        _ => panic!("{error:?}"),
    }
}

/// Tries until it can be opened, or it was tried often enough.
fn open_despite_faults(path: &Path, random: &mut Rng, ledger: &Ledger) -> Option<LogFile> {
    let policies = [
        SyncPolicy::EveryCommit,
        SyncPolicy::EveryCommit,
        SyncPolicy::Interval(Duration::from_millis(1)),
        SyncPolicy::Never,
    ];
    let options = LogOptions::new()
        .segment_bytes(SEGMENT_BYTES)
        .batch_bytes([4096, 65536, 1 << 20][random.usize(..3)])
        .sync(policies[random.usize(..policies.len())])
        .prewrite([Prewrite::Always, Prewrite::Auto, Prewrite::Never][random.usize(..3)]);
    for _ in 0..50 {
        match options.open(path) {
            Ok(log) => {
                ledger.note(format_args!("opened"));
                return Some(log);
            }
            Err(error) => assert_explained(&error),
        }
    }
    None
}

/// One opening of the log, and what its threads share.
struct Life<'a> {
    log: &'a LogFile,
    ledger: &'a Ledger,
    /// Each thread appends so many records at most.
    appends: u64,
    /// No thread appends more.
    stops: AtomicBool,
    /// What became of the records: where they are, or none if their append failed.
    outcomes: Mutex<HashMap<Source, Option<Position>>>,
}

fn use_once(log: &LogFile, numbers: &[AtomicU64], random: &mut Rng, ledger: &Ledger) {
    let life = &Life {
        log,
        ledger,
        appends: random.u64(1..60),
        stops: AtomicBool::new(false),
        outcomes: Mutex::default(),
    };
    let ends = &AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let reads = scope.spawn(move || follow(log, ends));
        let appending: Vec<_> = (0..THREADS)
            .map(|thread| {
                let mut random = random.fork();
                let number = &numbers[thread as usize];
                scope.spawn(move || life.append(thread, number, &mut random))
            })
            .collect();
        for thread in appending {
            thread.join().expect("a panic aborts");
        }
        ends.store(true, Ordering::Release);
        reads.join().expect("a panic aborts")
    });
    let outcomes = life.outcomes.lock().expect("a panic aborts");
    for (source, position) in seen {
        // What an earlier opening appended is looked at by the parent.
        if let Some(outcome) = outcomes.get(&source) {
            assert_eq!(*outcome, Some(position), "{source:?} was read at {position}");
        }
    }
}

impl Life<'_> {
    /// Appends records of `thread` behind the number `last`, alone and together, and gives up what is far behind.
    fn append(&self, thread: u64, last: &AtomicU64, random: &mut Rng) {
        let Life { log, ledger, .. } = self;
        let mut acknowledged = Vec::new();
        let mut failed_in_a_row = 0;
        let mut count = 0;
        while count < self.appends && failed_in_a_row < 40 && !self.stops.load(Ordering::Relaxed) {
            let together = [1, 1, 1, 1 + random.u64(..5)][random.usize(..4)];
            let numbers: Vec<_> =
                (0..together).map(|_| last.fetch_add(1, Ordering::Relaxed) + 1).collect();
            count += together;
            for &number in &numbers {
                ledger.note(format_args!("begun {thread} {number}"));
            }
            let submitted: Vec<_> =
                numbers.iter().map(|&number| log.submit(&record(thread, number))).collect();
            for (number, submitted) in numbers.into_iter().zip(submitted) {
                let appended = submitted.and_then(|submitted| log.wait(submitted));
                match &appended {
                    Ok(position) => {
                        ledger.note(format_args!("acked {thread} {number} {position}"));
                        acknowledged.push(*position);
                        failed_in_a_row = 0;
                    }
                    Err(error) => {
                        assert_explained(error);
                        ledger.note(format_args!("failed {thread} {number}"));
                        failed_in_a_row += 1;
                        // Now and then nothing comes over what has failed before the log is closed.
                        if random.u32(..6) == 0 {
                            self.stops.store(true, Ordering::Relaxed);
                        }
                    }
                }
                let mut outcomes = self.outcomes.lock().expect("a panic aborts");
                outcomes.insert((thread, number), appended.ok());
            }
            if random.u32(..20) == 0 {
                let _ = log.sync().inspect_err(assert_explained);
            }
            if thread == 0 && random.u32(..8) == 0 {
                let far = Position::new(log.committed().get().saturating_sub(KEPT));
                if let Some(&position) = acknowledged.iter().rev().find(|&&it| it < far) {
                    // What may be given up is told before.
                    ledger.note(format_args!("given {position}"));
                    let _ = log.truncate_before(position).inspect_err(assert_explained);
                }
            }
        }
    }
}

/// Reads all that comes until `ends`; what it has read.
fn follow(log: &LogFile, ends: &AtomicBool) -> Vec<(Source, Position)> {
    let mut seen: Vec<(Source, Position)> = Vec::new();
    let mut reader = None;
    loop {
        let ends = ends.load(Ordering::Acquire);
        if reader.is_none() {
            match log.reader() {
                Ok(mut made) => match seen.last() {
                    None => reader = Some(made),
                    Some(&(_, position)) => match made.seek(position) {
                        // It was read already.
                        Ok(()) => match made.next() {
                            Ok(again) => {
                                assert_eq!(again.map(|it| it.position), Some(position));
                                reader = Some(made);
                            }
                            Err(error) => assert_readable(&error),
                        },
                        Err(error) if is_truncated(&error) => reader = Some(made),
                        Err(error) => assert_readable(&error),
                    },
                },
                Err(error) => assert_readable(&error),
            }
        }
        if let Some(reader) = &mut reader {
            match reader.next_within(Some(Duration::from_millis(1))) {
                Ok(Some(record)) => {
                    let position = record.position;
                    let source = source_of(record.bytes);
                    let source =
                        source.unwrap_or_else(|| panic!("what is at {position} is not a record"));
                    assert!(seen.last().is_none_or(|&(_, last)| last < position), "{position}");
                    seen.push((source, position));
                    continue;
                }
                Ok(None) => {}
                Err(error) if is_truncated(&error) => {
                    let _ = reader.seek(Position::START).inspect_err(assert_readable);
                }
                Err(error) => assert_readable(&error),
            }
        }
        if ends {
            return seen;
        }
    }
}

fn is_truncated(error: &LogError) -> bool {
    matches!(error.kind(), LogErrorKind::Truncated { .. })
}

fn assert_readable(error: &LogError) {
    if !is_truncated(error) {
        assert_explained(error);
    }
}

/// What is known of a record that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It must be there, at this position.
    Acknowledged(u64),
    /// It may be there: its append failed, and the log was not closed after that; or its process was
    /// killed.
    Open,
    /// It must not be there: its append failed, and then the log was closed.
    Failed,
}

/// What the ledger says.
#[derive(Default)]
struct Known {
    records: HashMap<Source, Outcome>,
    given_up: u64,
    openings: u64,
    closed: u64,
    failed: u64,
}

impl Known {
    fn read(directory: &Path) -> Result<Known, Box<dyn Error>> {
        let mut known = Known::default();
        let mut failed = Vec::new();
        let text = match fs::read_to_string(directory.join("ledger")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        for line in text.lines() {
            let mut words = line.split(' ');
            let event = words.next().unwrap_or_default();
            let numbers: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>()?;
            match (event, &numbers[..]) {
                ("opened", []) => {
                    known.openings += 1;
                    failed.clear();
                }
                ("begun", &[thread, number]) => {
                    known.records.insert((thread, number), Outcome::Open);
                }
                ("acked", &[thread, number, position]) => {
                    known.records.insert((thread, number), Outcome::Acknowledged(position));
                }
                ("failed", &[thread, number]) => {
                    known.failed += 1;
                    failed.push((thread, number));
                }
                ("given", &[position]) => known.given_up = known.given_up.max(position),
                ("closed", []) => {
                    known.closed += 1;
                    for source in failed.drain(..) {
                        known.records.insert(source, Outcome::Failed);
                    }
                }
                ("left", []) => {}
                // The last line of a process that was killed.
                _ => return Err(format!("the ledger says {line:?}").into()),
            }
        }
        Ok(known)
    }
}

/// Lets this many processes live and end, in directories in `place`; fails if a record was lost,
/// doubled or changed, or if a process has panicked or hangs. Nothing, if there is no C compiler.
pub fn torment(
    place: &Path,
    rounds: u64,
    seed: u64,
    arguments: &[&str],
) -> Result<Option<Figures>, Box<dyn Error>> {
    let mut figures = Figures::default();
    let library = tempfile::tempdir_in(place)?;
    let Some(faults) = preloaded::build("faults.c", library.path()) else {
        return Ok(None);
    };
    let mut round = 0;
    while round < rounds {
        let directory = tempfile::tempdir_in(place)?;
        let mut log = TormentedLog::new(directory.path())?;
        let outcome = (0..ROUNDS_OF_A_LOG.min(rounds - round)).try_for_each(|_| {
            round += 1;
            let seed = seed << 32 | round;
            log.round(&faults, seed, arguments, &mut figures)
                .map_err(|error| format!("round {round} (seed {seed}): {error}"))
        });
        if let Err(error) = outcome {
            let left = directory.keep();
            return Err(format!("{error}; the log is left in {}", left.display()).into());
        }
        log.add_to(&mut figures)?;
    }
    Ok(Some(figures))
}

/// A log, and what was found in it so far.
struct TormentedLog {
    directory: PathBuf,
    /// What must stay as it is, as the log was opened and closed since it was begun: records that are
    /// there although nobody was told so, and those that are not there.
    settled: HashMap<Source, Option<u64>>,
}

impl TormentedLog {
    fn new(directory: &Path) -> Result<TormentedLog, Box<dyn Error>> {
        let directory = directory.canonicalize()?;
        File::create(directory.join("counts"))?.set_len(4096)?;
        Ok(TormentedLog { directory, settled: HashMap::new() })
    }

    fn round(
        &mut self,
        faults: &Path,
        seed: u64,
        arguments: &[&str],
        figures: &mut Figures,
    ) -> Result<(), Box<dyn Error>> {
        let mut random = Rng::with_seed(seed);
        let one_in = [10, 40, 200][random.usize(..3)];
        let mut child = Command::new(env::current_exe()?)
            .args(arguments)
            .env(DIRECTORY, &self.directory)
            .env(SEED, seed.to_string())
            .env("LD_PRELOAD", faults)
            .env("FAULTS_UNDER", self.directory.join("log"))
            .env("FAULTS_SEED", seed.to_string())
            .env("FAULTS_ONE_IN", one_in.to_string())
            .env("FAULTS_COUNTS", self.directory.join("counts"))
            .stdout(Stdio::null())
            .spawn()?;
        // From before it opens the log until it has filled some segments.
        let most = [5_000, 20_000, 80_000][random.usize(..3)];
        let lives = match random.u32(..3) {
            0 => Some(Duration::from_micros(random.u64(..most))),
            _ => None,
        };
        let (status, killed) = end(&mut child, lives)?;
        figures.rounds += 1;
        figures.killed += u64::from(killed);
        if !killed && !status.success() {
            return Err(format!("the process: {status}").into());
        }
        let reopens = random.bool();
        self.check(reopens, figures)
    }

    /// Reads the log as it was left; and opens it, reads it again, and closes it.
    fn check(&mut self, reopens: bool, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
        let known = Known::read(&self.directory)?;
        let path = self.directory.join("log");
        let mut reader = match LogReader::open(&path) {
            Err(error) if *error.kind() == LogErrorKind::NotALog && known.openings == 0 => {
                return Ok(());
            }
            reader => reader?,
        };
        let left = self.read_all(&mut reader, &known)?;
        drop(reader);
        figures.read_back += left.len() as u64;
        let mut damages = Vec::new();
        LogReader::verify(&path, |damage| damages.push(format!("{damage:?}")))?;
        if !damages.is_empty() {
            return Err(format!("verify: {}", damages.join(", ")).into());
        }
        if !reopens {
            return Ok(());
        }
        let log = LogFile::open(&path)?;
        let found = self.read_all(&mut log.reader()?, &known)?;
        log.close()?;
        // A record that was written, and not yet committed when its process was killed, may come.
        if !found.starts_with(&left) {
            return Err("opening it for appending changed what is in it".into());
        }
        let found: HashMap<Source, u64> = found.into_iter().collect();
        for (&source, outcome) in &known.records {
            if *outcome == Outcome::Open {
                self.settled.insert(source, found.get(&source).copied());
            }
        }
        Ok(())
    }

    /// All records with their positions, each of which may be where it is, and none of which is missing.
    fn read_all(
        &self,
        reader: &mut LogReader,
        known: &Known,
    ) -> Result<Vec<(Source, u64)>, Box<dyn Error>> {
        if reader.first().get() > known.given_up.max(4096) {
            let given_up = known.given_up;
            return Err(format!("begins at {}, given up: {given_up}", reader.first()).into());
        }
        let mut found: Vec<(Source, u64)> = Vec::new();
        let mut last_of = [0; THREADS as usize];
        while let Some(record) = reader.next()? {
            let position = record.position.get();
            let Some(source @ (thread, number)) = source_of(record.bytes) else {
                return Err(format!("what is at {position} was never appended").into());
            };
            let wrong = |what: &str| {
                Err(format!("record {number} of thread {thread} at {position} {what}").into())
            };
            if found.last().is_some_and(|&(_, last)| last >= position) {
                return wrong("comes behind a later position");
            }
            if number <= std::mem::replace(&mut last_of[thread as usize], number) {
                return wrong("is there twice, or comes behind a later one");
            }
            match known.records.get(&source) {
                Some(&Outcome::Acknowledged(at)) if at != position => {
                    return wrong(&format!("was acknowledged at {at}"));
                }
                Some(Outcome::Failed) => return wrong("failed, and then the log was closed"),
                None => return wrong("was not begun"),
                Some(Outcome::Acknowledged(_) | Outcome::Open) => {}
            }
            if self.settled.get(&source).is_some_and(|&before| before != Some(position)) {
                return wrong("was not there when the log was closed");
            }
            found.push((source, position));
        }
        let sources: HashSet<Source> = found.iter().map(|&(source, _)| source).collect();
        let acknowledged = known.records.iter().filter_map(|(source, outcome)| match outcome {
            Outcome::Acknowledged(position) => Some((*source, *position)),
            _ => None,
        });
        let settled =
            self.settled.iter().filter_map(|(source, position)| Some((*source, (*position)?)));
        let mut lost: Vec<_> = acknowledged
            .chain(settled)
            .filter(|(source, position)| *position >= known.given_up && !sources.contains(source))
            .map(|((thread, number), position)| (position, thread, number))
            .collect();
        lost.sort_unstable();
        match lost.first() {
            Some((position, thread, number)) => Err(format!(
                "lost {} records, first {number} of thread {thread} at {position}",
                lost.len()
            )
            .into()),
            None => Ok(found),
        }
    }

    fn add_to(&self, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
        let known = Known::read(&self.directory)?;
        let outcomes = known.records.values();
        figures.acknowledged +=
            outcomes.filter(|it| matches!(it, Outcome::Acknowledged(_))).count() as u64;
        figures.openings += known.openings;
        figures.closed += known.closed;
        figures.failed += known.failed;
        figures.failed_and_there += self.settled.values().flatten().count() as u64;
        let counts = fs::read(self.directory.join("counts"))?;
        for (count, bytes) in figures.faults.iter_mut().zip(counts.chunks_exact(8)) {
            *count += u64::from_ne_bytes(bytes.try_into()?);
        }
        Ok(())
    }
}

/// Waits until a process ends, or kills it when it has lived so long; whether it was killed.
fn end(child: &mut Child, lives: Option<Duration>) -> Result<(ExitStatus, bool), Box<dyn Error>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, false));
        }
        if lives.is_some_and(|lives| began.elapsed() >= lives) {
            child.kill()?;
            return Ok((child.wait()?, true));
        }
        if began.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Err(format!("the process hangs: killed after {PATIENCE:?}").into());
        }
        thread::sleep(Duration::from_micros(500));
    }
}
