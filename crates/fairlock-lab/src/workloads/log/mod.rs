//! `log`: threads append records to a log on disk, and others read its tail, back to back.
//!
//! What is compared is in [`registry`]: `LogFile`, plain files as programs write them that have no log,
//! and logs of others. All are opened by `O_DIRECT` but those of others, which write as they do.
//! Comparable are rows with the same [`Syncing`], since bringing a commit to the device takes far longer
//! than writing it.
//!
//! An operation is an append until it is acknowledged, or one read of the newest bytes. As there is no
//! lock to be seen, `wait` and `latency` are the whole operation and `hold` is empty. A writer's bytes are
//! those of its records, a reader's those that it read from the file.

mod log_file;
mod peers;
mod plain;
mod registry;

use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fairlock_report::units::{
    at_least_one, count, deserialize_bytes, format_bytes, parse_blocks, parse_bytes,
};
use serde::{Deserialize, Serialize};

pub(crate) use self::log_file::TailedLog;
pub use self::registry::{LogDescriptor, check, find, names, registry};
use super::client::record_whole;
use super::{Body, Failure, run_threads};
use crate::error::LabError;
use crate::measure::{Acquisitions, Repetition, RoleRecorder, ThreadRecord};
use crate::workload::{
    DefaultPoints, DefaultSubjects, Machine, Need, Request, Role, Subjects, Workload,
    check_thread_count, defaults, points, roles, wrong,
};
use crate::world::World;
use crate::world::scratch::BLOCK_BYTES;

/// When what was appended is brought to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Syncing {
    /// Before each append is acknowledged
    #[value(name = "every")]
    #[serde(rename = "every", alias = "every-commit", alias = "0")]
    EveryCommit,
    /// Every 100 ms, beside the appends
    #[serde(alias = "1")]
    Interval,
    /// Not while it is measured
    #[serde(alias = "2")]
    Never,
}

/// How long [`Syncing::Interval`] is.
pub const SYNC_INTERVAL: Duration = Duration::from_millis(100);

impl Syncing {
    /// All of them.
    pub const ALL: [Syncing; 3] = [Syncing::EveryCommit, Syncing::Interval, Syncing::Never];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Syncing::EveryCommit => "every",
            Syncing::Interval => "interval",
            Syncing::Never => "never",
        }
    }

    /// In words, for titles.
    pub fn words(self) -> &'static str {
        match self {
            Syncing::EveryCommit => "every commit synced",
            Syncing::Interval => "synced every 100 ms",
            Syncing::Never => "not synced",
        }
    }
}

/// Parameters of [`log`](self).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Log {
    /// Threads that append
    #[arg(long = "threads", value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub writers: u32,
    /// Threads that read the tail
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count)]
    pub readers: u32,
    /// Bytes of a record; plain files write whole blocks
    #[arg(long, value_name = "SIZE", default_value_t = BLOCK_RECORD_BYTES, value_parser = parse_bytes)]
    #[serde(deserialize_with = "deserialize_bytes")]
    pub record_bytes: u32,
    /// Bytes of a read
    #[arg(long, value_name = "SIZE", default_value = "64k", value_parser = parse_blocks)]
    #[serde(deserialize_with = "deserialize_bytes")]
    pub read_bytes: u32,
    /// When records are brought to the device; logs are compared only with the same
    #[arg(long, value_enum, value_name = "WHEN", default_value = "every")]
    pub sync: Syncing,
}

impl Default for Log {
    fn default() -> Log {
        defaults()
    }
}

/// A record that fills a block of a `LogFile` together with its header and its batch's.
pub const BLOCK_RECORD_BYTES: u32 = BLOCK_BYTES as u32 - 72;
const LARGEST_RECORD: u32 = 1 << 20;
const LARGEST_READ: u32 = 64 << 20;
/// What a log may take before it starts over or gives up its beginning, at most four times. Small enough to
/// be written anew for each run. A `LogFile` has four times as much where nothing is said: with 8 MiB, whether
/// a repetition of a quarter of a second met the syncs at a segment's end made a fifth of its rate.
const SEGMENT_BYTES: u64 = 16 << 20;

/// A segment that holds several reads.
fn segment_bytes(read_bytes: u32) -> u64 {
    SEGMENT_BYTES.max(4 * u64::from(read_bytes))
}

impl Workload for Log {
    const NAME: &'static str = "log";
    const ABOUT: &'static str = "threads that append records to a log: LogFile, plain files, another crate's log, equally durable";
    const EXAMPLES: &'static [&'static str] = &[
        "--dir /mnt/nvme --sync every,interval,never",
        "--sync every --threads 1,4,16              threads commit together",
        "--sync never --readers 0,1,4 --read-bytes 4k,1m",
        "--log logfile,okaywal --record-bytes 100 --threads 8",
    ];
    const SUBJECTS: Subjects = Subjects {
        word: "log",
        all: |simulated| if simulated { Vec::new() } else { names() },
        check: |name, simulated| match simulated {
            true => Err(LabError::KernelNotSimulated { workload: Log::NAME, instead: "dio-lock" }),
            false => check(name).map(drop),
        },
    };
    const DEFAULT_SUBJECTS: DefaultSubjects = DefaultSubjects {
        here: &["logfile", "prewritten", "fallocated", "growing", "okaywal"],
        simulated: &[],
    };
    const NEEDS: &'static [Need] = &[Need::Directory, Need::DirectIo];
    const START_SECONDS: f64 = START_SECONDS;
    const DEFAULT_POINTS: &'static [DefaultPoints] =
        &[points("writers", "1,4"), points("sync", "every,interval,never")];

    fn roles(&self) -> Vec<Role> {
        roles(&[("reader", self.readers), ("writer", self.writers)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        vec![
            // With all its digits: 4024 bytes are not 3.93 KiB.
            ("record_bytes", format!("records of {} B", self.record_bytes)),
            ("read_bytes", format!("reads of {}", format_bytes(self.read_bytes.into()))),
            ("sync", self.sync.words().to_owned()),
        ]
    }

    fn validate(&self, _pause_ns: f64) -> Result<(), LabError> {
        check_thread_count("readers + writers", self.threads())?;
        if self.writers == 0 {
            return wrong("writers", 0, "at least 1".to_string());
        }
        if !(1..=LARGEST_RECORD).contains(&self.record_bytes) {
            return wrong("record_bytes", self.record_bytes, format!("1 to {LARGEST_RECORD}"));
        }
        check_read_bytes(self.read_bytes)
    }

    fn check_subject(&self, name: &str, simulated: bool) -> Result<(), LabError> {
        (Self::SUBJECTS.check)(name, simulated)?;
        check(name)?.check(self)
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        registry::run(request, self)
    }
}

/// Whether direct I/O can read so much at a time.
///
/// # Errors
/// [`LabError::Parameter`], if not.
pub(super) fn check_read_bytes(read_bytes: u32) -> Result<(), LabError> {
    let aligned = read_bytes.is_multiple_of(BLOCK_BYTES as u32);
    if aligned && (1..=LARGEST_READ).contains(&read_bytes) {
        return Ok(());
    }
    wrong("read_bytes", read_bytes, format!("a multiple of {BLOCK_BYTES} up to {LARGEST_READ}"))
}

/// What a run with a log takes besides, whose first segments are written before.
pub(super) const START_SECONDS: f64 = 0.15;

/// A log that threads append to and read.
pub(super) trait SharedLog: Sync + Sized {
    /// What an appending thread keeps.
    type Appender: Send;
    /// What a reading thread keeps.
    type Tail: Send;
    /// What it can be asked for.
    const SYNCS: &'static [Syncing];
    /// Whether its newest records can be read while it is appended to.
    const IS_READ: bool = true;

    /// A new log in `directory`, ready to be appended to at the speed that it then keeps, with a
    /// tail to be read.
    fn create(params: &Log, directory: &Path) -> Result<Self, LabError>;

    fn appender(&self) -> Self::Appender;

    /// Appends a record and returns when it is acknowledged.
    fn append(&self, appender: &mut Self::Appender) -> Result<(), Failure>;

    fn tail(&self) -> Result<Self::Tail, LabError>;

    /// Reads the newest bytes from the file, checks them and answers how many; none if the appenders have
    /// given them up meanwhile, which happens to a reader that was put to sleep.
    fn read_tail(&self, tail: &mut Self::Tail) -> Result<Option<u64>, Failure>;
}

fn run<W: World, L: SharedLog>(
    request: &Request<'_, W>,
    params: &Log,
) -> Result<Repetition, LabError> {
    let log = &L::create(params, request.directory)?;
    let append_bytes = params.record_bytes.into();
    let logs = Contest { workload: Log::NAME, appended: log, read: log, append_bytes };
    contest(request, &logs, params)
}

/// Who meets: on one log, or on two.
pub(super) struct Contest<'a, L> {
    /// The name that rows carry.
    pub(super) workload: &'static str,
    pub(super) appended: &'a L,
    pub(super) read: &'a L,
    /// What an append counts as.
    pub(super) append_bytes: u64,
}

/// Appenders and readers go on back to back, readers first in the order of threads.
pub(super) fn contest<W: World, L: SharedLog>(
    request: &Request<'_, W>,
    logs: &Contest<'_, L>,
    params: &Log,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let &Contest { workload, appended, read, append_bytes } = logs;
    let reads_done = &Acquisitions::new(params.readers as usize);
    let mut bodies: Vec<Body<'_>> = Vec::new();
    for index in 0..params.readers as usize {
        let mut tail = read.tail()?;
        bodies.push(Box::new(move || {
            let mut recorder = RoleRecorder::default();
            loop {
                let started = world.now();
                let running = match read.read_tail(&mut tail)? {
                    Some(bytes) => {
                        reads_done.count(index);
                        record_whole(world, &mut recorder, started, bytes)
                    }
                    None => world.running(),
                };
                if !running {
                    return Ok(ThreadRecord { reader: Some(recorder), ..ThreadRecord::default() });
                }
            }
        }));
    }
    for _ in 0..params.writers {
        let mut appender = appended.appender();
        bodies.push(Box::new(move || {
            let mut recorder = RoleRecorder::default();
            loop {
                let before = reads_done.total();
                let started = world.now();
                appended.append(&mut appender)?;
                recorder.bypassed_by(reads_done.total() - before);
                if !record_whole(world, &mut recorder, started, append_bytes) {
                    return Ok(ThreadRecord { writer: Some(recorder), ..ThreadRecord::default() });
                }
            }
        }));
    }
    run_threads(request, workload, bodies)
}

/// What the system said of a file or log in `directory`.
fn failed(action: &str, directory: &Path, source: impl Into<std::io::Error>) -> LabError {
    LabError::io(format!("{action} a log in `{}`", directory.display()), source.into())
}
