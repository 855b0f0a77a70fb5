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

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::client::record_whole;
use super::scratch::BLOCK_BYTES;
use super::{Body, Failure, Request, check_thread_count, run_threads};
use crate::error::LabError;
use crate::measure::{Acquisitions, Repetition, RoleRecorder, ThreadRecord};
use crate::world::World;

pub(super) use log_file::TailedLog;
pub use registry::{LogDescriptor, check, find, names, registry};

/// The name that rows carry.
pub const NAME: &str = "log";

/// When what was appended is brought to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Syncing {
    /// Before an append is acknowledged.
    EveryCommit,
    /// Every [`SYNC_INTERVAL`], beside the appends.
    Interval,
    /// Not at all while it is measured.
    Never,
}

/// Of [`Syncing::Interval`].
pub const SYNC_INTERVAL: Duration = Duration::from_millis(100);

impl Syncing {
    /// All, in the order of their numbers.
    pub const ALL: [Syncing; 3] = [Syncing::EveryCommit, Syncing::Interval, Syncing::Never];

    /// The number that stands for it in a row's parameters.
    pub fn number(self) -> u32 {
        self as u32
    }

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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogParams {
    /// Threads that append.
    pub writers: u32,
    /// Threads that read the tail.
    pub readers: u32,
    /// Bytes of a record.
    pub record_bytes: u32,
    /// Bytes of one read, a multiple of 4096.
    pub read_bytes: u32,
    /// When records are brought to the device.
    pub sync: Syncing,
    /// Where the log goes.
    pub directory: PathBuf,
}

impl Default for LogParams {
    /// One writer of records that fill a block in a `LogFile`, every commit synced, no reader.
    fn default() -> LogParams {
        LogParams {
            writers: 1,
            readers: 0,
            record_bytes: BLOCK_RECORD_BYTES,
            read_bytes: 64 * 1024,
            sync: Syncing::EveryCommit,
            directory: PathBuf::from("."),
        }
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

impl LogParams {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// [`LabError::Parameter`] names the first one that does not.
    pub fn validate(&self) -> Result<(), LabError> {
        check_thread_count("readers + writers", u64::from(self.readers) + u64::from(self.writers))?;
        let wrong = |name, value: u32, valid| {
            Err(LabError::Parameter { name, value: value.to_string(), valid })
        };
        if self.writers == 0 {
            return wrong("writers", 0, "at least 1".to_string());
        }
        if !(1..=LARGEST_RECORD).contains(&self.record_bytes) {
            return wrong("record_bytes", self.record_bytes, format!("1 to {LARGEST_RECORD}"));
        }
        let aligned = self.read_bytes.is_multiple_of(BLOCK_BYTES as u32);
        if !aligned || self.read_bytes == 0 || self.read_bytes > LARGEST_READ {
            let valid = format!("a multiple of {BLOCK_BYTES} up to {LARGEST_READ}");
            return wrong("read_bytes", self.read_bytes, valid);
        }
        Ok(())
    }

    /// The row's `params`.
    pub fn row_params(&self) -> BTreeMap<String, f64> {
        let params = [
            ("readers", self.readers),
            ("writers", self.writers),
            ("record_bytes", self.record_bytes),
            ("read_bytes", self.read_bytes),
            ("sync", self.sync.number()),
        ];
        params.map(|(name, value)| (name.to_string(), f64::from(value))).into()
    }
}

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

    /// A new log in `params.directory`, ready to be appended to at the speed that it then keeps, with a
    /// tail to be read.
    fn create(params: &LogParams) -> Result<Self, LabError>;

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
    params: &LogParams,
) -> Result<Repetition, LabError> {
    let log = &L::create(params)?;
    let append_bytes = params.record_bytes.into();
    contest(request, &Contest { workload: NAME, appended: log, read: log, append_bytes }, params)
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
    params: &LogParams,
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
