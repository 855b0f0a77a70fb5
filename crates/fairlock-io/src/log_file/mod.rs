//! A log file: appends that no reader can stall, followed live by readers in any process.
//!
//! This file is what users see. One idea per file below it:
//!
//! | | |
//! |---|---|
//! | `format.rs` | the bytes on disk, and the invariants that make a log readable after any crash |
//! | `log.rs` | opening, appending, giving up, closing |
//! | `group.rs`, `batch.rs` | what many threads submit becomes one write |
//! | `ahead.rs` | segments are made, and their blocks written, before they are needed |
//! | `control.rs` | the page through which readers follow |
//! | `reader.rs`, `window.rs` | reading |
//! | `recovery.rs` | where a log ends after a crash; what is torn and what is damaged |
//! | `storage.rs`, `disk.rs` | what is asked of the system, and the system |

mod ahead;
mod batch;
mod blocks;
mod control;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
mod disk;
mod error;
mod format;
mod group;
mod log;
mod options;
mod position;
mod reader;
mod recovery;
mod segments;
#[cfg(test)]
mod simulated_disk;
mod storage;
mod window;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::disk::Disk;
use self::log::Log;
use self::reader::Reader;

pub use self::error::{LogError, LogErrorKind};
pub use self::log::{LogStats, Submitted};
pub use self::options::{LogOptions, Prewrite, Prewriting, Recovery, SyncPolicy};
pub use self::position::Position;
pub use self::reader::Record;

type Result<T> = std::result::Result<T, LogError>;

/// A log in a directory of its own: one process appends records, any number of readers follow.
///
/// On Linux's ext4 a reader holds the inode's lock while it reads with O_DIRECT, and a write that makes the
/// file longer needs that lock alone: a single tail reader takes most of an appender's throughput. This log
/// writes its blocks before they are needed, so that an append overwrites blocks that are there, for which
/// the kernel lets readers stay.
///
/// # Guarantees
/// * An acknowledged record is read back by every reader, whole, once, in the order of positions; with
///   [`SyncPolicy::EveryCommit`] after any crash, otherwise after any crash of the process.
/// * A record whose append failed is not read, but by who opens the log after a crash, or after it was
///   dropped without [`close`](Self::close): then it may have arrived, and be read, once.
/// * Readers never make an append wait, nor each other; they need no write access to the log.
/// * A crash while a batch is written loses only what was not acknowledged. Bytes that were
///   acknowledged and are no longer what was written are an error with their place, never the end of
///   the log.
/// * A full disk fails appends, and loses nothing; they go on when there is room.
///
/// Threads may append at once: what comes while a write is under way is written together after it. Each
/// waits for at most the write that is under way and the one that it is in.
///
/// A log that is dropped without [`close`](Self::close) writes what was submitted, syncs nothing, and keeps
/// the room that was made ahead; the next opening is as after a crash of the process.
///
/// # Example
/// ```
/// use fairlock_io::LogFile;
/// use std::thread;
/// use std::time::Duration;
///
/// # let directory = tempfile::tempdir_in(".")?;
/// # let path = directory.path().join("journal");
/// let log = LogFile::open(&path)?;
/// let mut reader = log.reader()?;
/// thread::scope(|scope| {
///     scope.spawn(|| log.append(b"first").and_then(|_| log.append(b"second")));
///     let record = reader.next_within(Some(Duration::from_secs(5)))?.expect("soon there");
///     assert_eq!(record.bytes, b"first");
///     Ok::<(), fairlock_io::LogError>(())
/// })?;
/// log.close()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct LogFile {
    log: Log<Disk>,
}

impl LogFile {
    /// Opens the log in the directory `path`, with [`LogOptions::new`]: creates it if there is none.
    ///
    /// # Errors
    /// As [`LogOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<LogFile> {
        LogOptions::new().open(path)
    }

    /// Options to open a log with.
    pub fn options() -> LogOptions {
        LogOptions::new()
    }

    pub(crate) fn open_with(path: &Path, options: LogOptions) -> Result<LogFile> {
        if options.create || options.create_new {
            create_directory(path).map_err(|error| LogError::system("create", path, error))?;
        }
        Ok(LogFile { log: Log::open(Disk::at(path), options)? })
    }

    /// Appends a record and waits until it is committed; its position.
    ///
    /// # Errors
    /// If it returns an error, the record is not in the log, and the next may be appended:
    /// [`LogErrorKind::StorageFull`], [`LogErrorKind::TooLarge`], [`LogErrorKind::SyncFailed`], what the
    /// system says of the write.
    pub fn append(&self, bytes: &[u8]) -> Result<Position> {
        self.wait(self.submit(bytes)?)
    }

    /// As [`append`](Self::append), for a record in pieces.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_vectored(&self, slices: &[IoSlice<'_>]) -> Result<Position> {
        self.wait(self.submit_vectored(slices)?)
    }

    /// Gives a record to the log without waiting; it is written with the next batch that somebody waits
    /// for, or when there is enough for one.
    ///
    /// ```
    /// # use fairlock_io::LogFile;
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let log = LogFile::open(directory.path().join("journal"))?;
    /// let submitted: Vec<_> = (0..100_u8).map(|it| log.submit(&[it])).collect::<Result<_, _>>()?;
    /// for submitted in submitted {
    ///     log.wait(submitted)?; // The first wait writes all.
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`append`](Self::append), but for what the writing will say.
    pub fn submit(&self, bytes: &[u8]) -> Result<Submitted> {
        self.log.submit(&[IoSlice::new(bytes)])
    }

    /// As [`submit`](Self::submit), for a record in pieces.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_vectored(&self, slices: &[IoSlice<'_>]) -> Result<Submitted> {
        self.log.submit(slices)
    }

    /// Waits until a submitted record is committed; its position.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn wait(&self, submitted: Submitted) -> Result<Position> {
        self.log.wait(submitted)
    }

    /// Commits all that was submitted before, and brings all that is committed to the device.
    ///
    /// # Errors
    /// What the system says. If it cannot sync what was acknowledged, the log refuses further appends:
    /// [`LogErrorKind::SyncFailed`].
    pub fn sync(&self) -> Result<()> {
        self.log.sync()
    }

    /// A reader of this log, at its first record.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn reader(&self) -> Result<LogReader> {
        Ok(LogReader { reader: self.log.reader()? })
    }

    /// Gives up all records before `position`, which is a record's or [`committed`](Self::committed).
    /// Segments without any record that is left are used again, or removed.
    ///
    /// A reader that stands before gets [`LogErrorKind::Truncated`].
    ///
    /// # Errors
    /// [`LogErrorKind::NoRecord`] for a position beyond the end, and what the system says.
    pub fn truncate_before(&self, position: Position) -> Result<()> {
        self.log.truncate_before(position)
    }

    /// The first position that was not given up: of the first record, or before it.
    pub fn first(&self) -> Position {
        self.log.first()
    }

    /// Where the committed part ends: what readers may see.
    pub fn committed(&self) -> Position {
        self.log.committed()
    }

    /// All before this is on the device.
    pub fn durable(&self) -> Position {
        self.log.durable()
    }

    /// Whether blocks are written ahead here, or why not.
    pub fn prewriting(&self) -> &Prewriting {
        self.log.prewriting()
    }

    /// How the log was found when it was opened.
    pub fn recovery(&self) -> &Recovery {
        self.log.recovery()
    }

    /// What it did since it was opened.
    pub fn stats(&self) -> LogStats {
        self.log.stats()
    }

    /// The size of its segments, in bytes.
    pub fn segment_bytes(&self) -> u64 {
        self.log.segment_bytes()
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        self.log.path()
    }

    /// Commits and syncs everything, and gives back the room that was made ahead.
    ///
    /// # Errors
    /// What the system says. The log is closed all the same, as after a crash of the process.
    pub fn close(self) -> Result<()> {
        self.log.close()
    }
}

impl fmt::Debug for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogFile")
            .field("path", &self.path())
            .field("first", &self.first())
            .field("committed", &self.committed())
            .field("sync", &self.log.options().sync)
            .finish_non_exhaustive()
    }
}

/// Reads a log's records in order, from any of them on, and follows the log as it grows.
///
/// It needs only read access, and works beside a writer in this process or in another, or without one.
///
/// # Example
/// ```
/// use fairlock_io::{LogFile, LogReader};
///
/// # let directory = tempfile::tempdir_in(".")?;
/// # let path = directory.path().join("journal");
/// let log = LogFile::open(&path)?;
/// log.append(b"one")?;
/// let second = log.append(b"two")?;
///
/// let mut reader = LogReader::open(&path)?; // Usually in another process.
/// reader.seek(second)?;
/// assert_eq!(reader.next()?.expect("it is committed").bytes, b"two");
/// assert!(reader.next()?.is_none(), "not yet");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct LogReader {
    reader: Reader<Disk>,
}

impl LogReader {
    /// Opens the log in the directory `path`, at its first record.
    ///
    /// # Errors
    /// [`LogErrorKind::NotALog`], [`LogErrorKind::NewerVersion`], [`LogErrorKind::Damaged`] where its end
    /// had to be found, and what the system says.
    pub fn open(path: impl AsRef<Path>) -> Result<LogReader> {
        Ok(LogReader { reader: Reader::open(Disk::at(path.as_ref()))? })
    }

    /// Reads so many bytes at a time, up to multiples of 4096. Default: 256 KiB.
    pub fn read_bytes(mut self, bytes: usize) -> LogReader {
        self.reader.set_read_bytes(bytes.max(1));
        self
    }

    /// Goes to the record at `position`; to the first that is left for [`Position::START`], and to the end
    /// for [`committed`](Self::committed).
    ///
    /// # Errors
    /// [`LogErrorKind::Truncated`], [`LogErrorKind::NoRecord`], [`LogErrorKind::Damaged`], and what the
    /// system says. The reader stays where it was.
    pub fn seek(&mut self, position: Position) -> Result<()> {
        self.reader.seek(position)
    }

    /// The next record; none if no more is committed yet.
    ///
    /// # Errors
    /// [`LogErrorKind::Truncated`], [`LogErrorKind::Damaged`], and what the system says. The reader stays
    /// where it was.
    #[allow(clippy::should_implement_trait)] // Records are borrowed from the reader.
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        self.reader.next()
    }

    /// The next record, as soon as there is one; none if the time is over. Without a timeout it waits
    /// for ever.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn next_within(&mut self, timeout: Option<Duration>) -> Result<Option<Record<'_>>> {
        self.reader.next_within(timeout)
    }

    /// Sleeps until more is committed than was read; false if the time is over. There may be no record in
    /// it yet.
    pub fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.reader.wait(timeout)
    }

    /// Where it stands: of the next record, or before it.
    pub fn position(&self) -> Position {
        self.reader.position()
    }

    /// Where the committed part ends.
    pub fn committed(&self) -> Position {
        Position::new(self.reader.committed())
    }

    /// The first position that was not given up.
    pub fn first(&self) -> Position {
        Position::new(self.reader.first())
    }
}

impl fmt::Debug for LogReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReader").field("position", &self.position()).finish_non_exhaustive()
    }
}

/// Makes the directory if there is none, so that it is there after a crash.
fn create_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(error),
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    File::open(parent)?.sync_all()
}
