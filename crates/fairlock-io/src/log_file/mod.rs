//! A log file: appends that no reader can stall, followed live by readers in any process.
//!
//! This file is what users see. One idea per file below it:
//!
//! | | |
//! |---|---|
//! | `format.rs` | the bytes on disk, and the invariants that make a log readable after any crash |
//! | `opening.rs`, `log.rs` | opening; appending, syncing, giving up, closing |
//! | `appending.rs`, `completion.rs` | how records are appended; what becomes of them, told later |
//! | `cutting.rs` | the end of a log is cut off |
//! | `group/`, `batch.rs` | what many threads submit becomes one write |
//! | `ahead.rs` | segments are made, and their blocks written, before they are needed |
//! | `prewriting.rs` | whether that helps on this file system |
//! | `unsynced.rs` | files that a thread syncs behind the appends |
//! | `retention.rs` | which segments a log need not keep |
//! | `metrics.rs` | what a log did, and how long that took |
//! | `control.rs` | the page through which readers follow |
//! | `reader.rs`, `progress.rs`, `view.rs`, `window.rs` | reading |
//! | `readiness.rs` | what an event loop waits for |
//! | `recovery.rs` | where a log ends after a crash; what is torn and what is damaged |
//! | `checkpoint.rs`, `copies.rs` | copies of a log that is appended to: made here, and made by others |
//! | `verify.rs`, `summary.rs` | all that is damaged; a log's figures |
//! | `repair.rs`, `mending.rs` | covers what is damaged; the single changes that this takes |
//! | `storage.rs`, `disk.rs` | what is asked of the system, and the system |
//! | `process.rs` | whose all this is after a fork |

mod ahead;
mod appending;
mod batch;
mod blocks;
mod checkpoint;
mod completion;
mod control;
mod copies;
#[cfg(test)]
mod crafted_tests;
#[cfg(test)]
mod crash_tests;
mod cutting;
#[cfg(test)]
mod damage_tests;
mod disk;
mod error;
mod format;
mod group;
mod log;
mod mending;
mod metrics;
mod opening;
mod options;
mod position;
mod prewriting;
mod process;
mod progress;
mod reader;
mod readiness;
mod recovery;
mod repair;
#[cfg(test)]
mod repair_tests;
mod retention;
mod segments;
#[cfg(test)]
mod simulated_disk;
mod storage;
mod summary;
mod unsynced;
mod verify;
mod view;
mod window;

use std::fmt;
use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use self::checkpoint::Until;
use self::disk::Disk;
use self::log::Log;
use self::reader::Reader;

pub use self::appending::{AppendOptions, SubmittedAll};
pub use self::checkpoint::Checkpoint;
pub use self::completion::Completion;
pub use self::error::{LogError, LogErrorKind};
pub use self::log::{LogStats, Submitted};
pub use self::metrics::{FailureMetrics, Latency, LogMetrics, SegmentMetrics};
pub use self::options::{LogOptions, OpenMode, Prewrite, Prewriting, Recovery, SyncPolicy};
pub use self::position::Position;
pub use self::reader::{Followed, LogWriter, Record};
pub use self::repair::{RepairOptions, RepairReport};
pub use self::retention::GivenUp;
pub use self::summary::LogSummary;
pub use self::verify::{Damage, Damaged, Verified};

type Result<T> = std::result::Result<T, LogError>;

/// A log in a directory of its own: one process appends records, any number of readers follow.
///
/// On Linux's ext4 a reader holds the inode's lock while it reads with O_DIRECT, and a write that makes the
/// file longer needs that lock exclusively: a single tail reader takes most of an appender's throughput. This log
/// writes its blocks before they are needed, so that an append overwrites blocks that are there, for which
/// the kernel lets readers stay.
///
/// # Guarantees
/// * An acknowledged record is read back by every reader, whole, once, in the order of positions; with
///   [`SyncPolicy::EveryCommit`] after any crash, otherwise after any crash of the process.
/// * A record whose append failed is not read, except by a process that opens the log after a crash, or after
///   it was dropped without [`close`](Self::close): then it may have arrived, and be read, once.
/// * Readers never block the writer, nor each other; they need no write access to the log.
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

    /// Mends a damaged log in place, so that it opens, and all records that are whole are read at their
    /// positions. The bytes that it changes are saved first. A log without damage stays as it is.
    ///
    /// ```
    /// use fairlock_io::{LogFile, LogReader, RepairOptions};
    /// # use std::os::unix::fs::FileExt;
    ///
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let path = directory.path().join("journal");
    /// let log = LogFile::open(&path)?;
    /// for record in ["one", "two", "three"] {
    ///     log.append(record.as_bytes())?;
    /// }
    /// log.close()?;
    /// // Something overwrites the second record.
    /// # let segment = path.join("0000000000000000.segment");
    /// # let file = std::fs::File::options().write(true).open(segment)?;
    /// # file.write_all_at(b"!", 3 * 4096 + 48 + 24)?;
    ///
    /// let report = LogFile::repair(&path, &RepairOptions::new())?;
    /// assert_eq!((report.found.damages, report.found.lost_records), (1, 1));
    /// let log = LogFile::open(&path)?;
    /// let read: Vec<_> = log.reader()?.records().collect::<Result<_, _>>()?;
    /// assert_eq!(read.len(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// If it is cut off at any moment, it can be called again: the log is then a damaged one, or one that is
    /// mended.
    ///
    /// # Errors
    /// [`LogErrorKind::BusyWriter`] while the log is open for writing, [`LogErrorKind::NewerVersion`],
    /// [`LogErrorKind::NotALog`] and [`LogErrorKind::Damaged`] if neither the control page nor the header of
    /// any segment is left, [`LogErrorKind::StorageFull`] if there is no room for what is saved, and what the
    /// system says.
    pub fn repair(path: impl AsRef<Path>, options: &RepairOptions) -> Result<RepairReport> {
        repair::repair(Arc::new(open_directory(path.as_ref())?), options)
    }

    /// Options to open a log with.
    pub fn options() -> LogOptions {
        LogOptions::new()
    }

    pub(crate) fn open_with(path: &Path, options: LogOptions) -> Result<LogFile> {
        if options.create || options.create_new {
            let created = create_directory(path, options.mode);
            created.map_err(|error| LogError::system("create", path, error))?;
        }
        let disk = open_directory(path)?.with_mode(options.mode);
        Ok(LogFile { log: Log::open(disk, options)? })
    }

    /// Appends a record and waits until it is committed; its position.
    ///
    /// # Errors
    /// [`LogErrorKind::TooLarge`], [`LogErrorKind::StorageFull`], [`LogErrorKind::NotAFile`],
    /// [`LogErrorKind::OtherProcess`], and [`LogErrorKind::System`] for what else the system says of the write.
    /// The record is then not in the log, and the next may be appended.
    ///
    /// [`LogErrorKind::Displaced`] and [`LogErrorKind::SyncFailed`]. The log then refuses all appends until it is
    /// opened again, and the record may be in it.
    pub fn append(&self, bytes: &[u8]) -> Result<Position> {
        self.wait(self.submit(bytes)?)
    }

    /// As [`append`](Self::append), with options for this record: a key, or whether it is on the device when
    /// this returns.
    ///
    /// ```
    /// use fairlock_io::{AppendOptions, LogOptions, SyncPolicy};
    ///
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let path = directory.path().join("journal");
    /// let log = LogOptions::new().sync(SyncPolicy::Never).open(&path)?;
    /// log.append(b"debit 7")?;
    /// let commit = log.append_with(b"commit", &AppendOptions::new().durable(true))?;
    /// assert!(log.durable() > commit); // With all before it.
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_with(&self, bytes: &[u8], options: &AppendOptions) -> Result<Position> {
        self.wait(self.submit_with(bytes, options)?)
    }

    /// As [`append`](Self::append), for a record in pieces.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_vectored(&self, slices: &[IoSlice<'_>]) -> Result<Position> {
        self.wait(self.submit_vectored(slices)?)
    }

    /// Gives a record to the log without waiting for it to be committed; it is written with the next batch that
    /// somebody waits for, or when there is enough for one. A thread that submits more than fits into a batch
    /// ([`LogOptions::batch_bytes`]) waits for room, or writes the batch.
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

    /// As [`submit`](Self::submit), with options for this record: see [`append_with`](Self::append_with).
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_with(&self, bytes: &[u8], options: &AppendOptions) -> Result<Submitted> {
        self.log.submit_with(&[IoSlice::new(bytes)], options)
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
    /// As [`append`](Self::append); [`LogErrorKind::OtherLog`] for a record that was submitted to another log, or
    /// to another opening of this one. Asked again, it says the same again; of a failure that this has said,
    /// [`sync`](Self::sync) and [`close`](Self::close) say nothing.
    pub fn wait(&self, submitted: Submitted) -> Result<Position> {
        self.log.wait(submitted)
    }

    /// Appends records that arrive together or not at all, whatever crashes, and waits until they are committed;
    /// their positions. Without any record it does nothing, whatever the options say.
    ///
    /// ```
    /// # use fairlock_io::{AppendOptions, LogFile};
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let log = LogFile::open(directory.path().join("journal"))?;
    /// let places = log.append_all(&[b"begin", b"change", b"end"], &AppendOptions::new())?;
    /// assert_eq!(places.len(), 3);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`append`](Self::append); [`LogErrorKind::TooLargeTogether`] in place of [`LogErrorKind::TooLarge`], if
    /// they are larger together than a record may be, with 24 bytes and padding to multiples of 8 for each.
    pub fn append_all(&self, records: &[&[u8]], options: &AppendOptions) -> Result<Vec<Position>> {
        self.wait_all(self.submit_all(records, options)?)
    }

    /// Gives records to the log, to arrive together, without waiting.
    ///
    /// # Errors
    /// As [`append_all`](Self::append_all), but for what the writing will say.
    pub fn submit_all(&self, records: &[&[u8]], options: &AppendOptions) -> Result<SubmittedAll> {
        self.log.submit_all(records, options)
    }

    /// Waits until records that were submitted together are committed; their positions.
    ///
    /// # Errors
    /// As [`append_all`](Self::append_all).
    pub fn wait_all(&self, submitted: SubmittedAll) -> Result<Vec<Position>> {
        if let Some(last) = submitted.last {
            self.log.wait(last)?;
        }
        Ok(submitted.positions)
    }

    /// Calls `done` when a submitted record is committed, or has failed, with what [`wait`](Self::wait) would
    /// say.
    ///
    /// All calls come from one thread of the log, in the order of `notify`, so a call that takes long delays
    /// those after it. [`close`](Self::close) and dropping the log wait for them.
    ///
    /// ```
    /// # use fairlock_io::LogFile;
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let log = LogFile::open(directory.path().join("journal"))?;
    /// use std::sync::mpsc;
    ///
    /// let (sender, receiver) = mpsc::channel();
    /// let submitted = log.submit(b"hello")?;
    /// log.notify(submitted, move |outcome| {
    ///     let _ = sender.send(outcome);
    /// })?;
    /// assert_eq!(log.read(receiver.recv().unwrap()?)?, b"hello");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the system has no more threads: the first call starts one.
    pub fn notify(
        &self,
        submitted: Submitted,
        done: impl FnOnce(Result<Position>) + Send + 'static,
    ) -> Result<()> {
        self.log.notify(submitted, Box::new(done))
    }

    /// A future of what becomes of a submitted record, for any executor: as [`notify`](Self::notify).
    ///
    /// # Errors
    /// As [`notify`](Self::notify).
    pub fn completion(&self, submitted: Submitted) -> Result<Completion> {
        self.log.completion(submitted)
    }

    /// Commits all that was submitted before, and brings all that is committed to the device.
    ///
    /// # Errors
    /// Why a record that was submitted before could not be committed, if nobody has been told: whatever was
    /// appended since, the failure of a record that nobody waited for is an error of the next `sync` or
    /// [`close`](Self::close), once, as that of a write to a file is of the next `fsync`. All that could be committed is
    /// on the device all the same.
    ///
    /// ```
    /// # use fairlock_io::LogFile;
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let log = LogFile::open(directory.path().join("journal"))?;
    /// for number in 0..1000_u32 {
    ///     let _ = log.submit(&number.to_le_bytes())?;
    /// }
    /// log.sync()?; // All of them are on the device.
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// Otherwise what the system says. If it cannot sync what was acknowledged, the log refuses further appends:
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

    /// The record at `position`. Threads may read at once, and beside appends.
    ///
    /// It is checked alone, wherever it lies in its batch: a read of 16 KiB or less, and another for what
    /// of the record lies behind. To read records one after the other, a [`reader`](Self::reader) is
    /// faster. Only ask for what was acknowledged: a crash may leave another record so that it is found
    /// here, though no reader comes to it, and the bytes of a record may look like another. A position
    /// from a stranger is one to [`seek`](LogReader::seek), which makes sure that a record begins there.
    ///
    /// ```
    /// # use fairlock_io::LogFile;
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let log = LogFile::open(directory.path().join("journal"))?;
    /// let position = log.append(b"value")?;
    /// assert_eq!(log.read(position)?, b"value");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`LogErrorKind::Truncated`], [`LogErrorKind::NoRecord`] also for one that is not committed yet,
    /// [`LogErrorKind::Damaged`], and what the system says.
    pub fn read(&self, position: Position) -> Result<Vec<u8>> {
        self.log.read(position)
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

    /// Cuts off all records behind the one at `position`, which stays; all records, for
    /// [`Position::START`]. For a replica whose last records turned out not to be the group's.
    ///
    /// Positions do not return: the next record comes behind the place where the log ended. When this returns,
    /// the records are gone on the device, too. A crash meanwhile, or an error, leaves some of them, without a
    /// gap.
    ///
    /// A reader that has given one of them gets [`LogErrorKind::CutOff`] once, before anything that was appended
    /// later, and goes on where the cut began; what it holds in memory it may give before. A
    /// reader that is opened later hears nothing of it. A durable-only reader may have read them, too: what a
    /// group has not agreed on is not safe because it is on one device.
    ///
    /// Records that were appended together ([`append_all`](Self::append_all)) are cut where you say, also in the
    /// middle.
    ///
    /// ```
    /// # use fairlock_io::LogFile;
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let log = LogFile::open(directory.path().join("journal"))?;
    /// let agreed = log.append(b"agreed")?;
    /// let diverged = log.append(b"diverged")?;
    /// log.truncate_after(agreed)?;
    /// assert!(log.read(diverged).is_err());
    /// let next = log.append(b"what the leader says")?;
    /// assert!(next > diverged);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`LogErrorKind::NoRecord`], [`LogErrorKind::Truncated`], [`LogErrorKind::Damaged`], and what the system
    /// says.
    pub fn truncate_after(&self, position: Position) -> Result<()> {
        self.log.truncate_after(position)
    }

    /// How often the log was opened for writing, this time included: a number that is larger than that of
    /// every earlier writer of this log, for fencing; of a copy, see [`lineage`](Self::lineage). Each record carries that of its writer ([`Record::epoch`]).
    pub fn epoch(&self) -> u32 {
        self.log.epoch()
    }

    /// Gives up, now, the segments that [`LogOptions::retain_bytes`] and [`LogOptions::retain_for`] do not
    /// need; how much that was. Without these options it is nothing.
    ///
    /// This happens by itself when the log is opened and whenever it begins a segment. To call it is of use
    /// with `retain_for`, for a log that is rarely appended to.
    ///
    /// A reader that stands in what was given up gets [`LogErrorKind::Truncated`].
    ///
    /// ```
    /// # use fairlock_io::LogOptions;
    /// # use std::time::Duration;
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let path = directory.path().join("journal");
    /// let log = LogOptions::new().retain_for(Duration::from_secs(86_400)).open(&path)?;
    /// log.append(b"today's")?;
    /// let given_up = log.retain()?;
    /// assert_eq!((given_up.segments, given_up.bytes), (0, 0));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// What the system says; what could not be given up is tried again the next time.
    /// [`LogErrorKind::Damaged`] or [`LogErrorKind::NoRecord`] if the segment that is to be the first cannot
    /// be read.
    pub fn retain(&self) -> Result<GivenUp> {
        self.log.retain()
    }

    /// Which of the logs that began alike this is; 0 for a log that was never copied.
    ///
    /// A checkpoint gets a number of its own when it is made. A copy that other programs made gets one when it is
    /// first opened for writing. From then on a position, and an epoch, can mean one record in the copy and another in the
    /// log that it was copied from.
    ///
    /// A follower that stores a position stores this with it, and begins anew if it has changed.
    pub fn lineage(&self) -> u64 {
        self.log.lineage()
    }

    /// The first position that was not given up: of the first record, or before it.
    pub fn first(&self) -> Position {
        self.log.first()
    }

    /// Where the committed part ends: what is committed is visible to readers. What is
    /// [`durable`](Self::durable) is also on the device.
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

    /// All that is known of what it did since it was opened: how long appends, writes and syncs took, how much
    /// was appended, what failed. No append waits for this, nor this for an append.
    ///
    /// ```
    /// # use fairlock_io::LogFile;
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let log = LogFile::open(directory.path().join("journal"))?;
    /// log.append(b"hello")?;
    /// let metrics = log.metrics();
    /// assert_eq!((metrics.records, metrics.appended_bytes), (1, 5));
    /// println!("99 of 100 appends took no longer than {:?}", metrics.append.p99());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn metrics(&self) -> LogMetrics {
        self.log.metrics()
    }

    /// A few figures of what it did since it was opened, without those that [`metrics`](Self::metrics) has to
    /// gather.
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
    /// Why a record that was submitted could not be committed, if nobody has been told, as [`sync`](Self::sync)
    /// says: the rest is closed all the same. Otherwise what the system says: then the log is left as after a crash of
    /// the process.
    pub fn close(self) -> Result<()> {
        self.log.close()
    }
}

impl LogFile {
    /// Copies the log, as it is now, into the new directory `directory`, while appends go on: a backup, or the
    /// beginning of another machine's copy.
    ///
    /// The copy is a log of its own that was closed where this one was committed when this was called, or later:
    /// it has all records that were acknowledged before. They are on the device then, in the copy and in this
    /// log. [`Checkpoint::first`] and [`Checkpoint::end`] say what it holds, each record at its position; what is
    /// given up meanwhile may be missing.
    ///
    /// Segments that are full are linked where that can be done, so that they take no room and no time; neither
    /// this log nor the copy changes them any more. Elsewhere their blocks are shared or copied. The last segment
    /// is always copied. Appends and [`truncate_before`](Self::truncate_before) wait for nothing; what they share
    /// with the copying is the device.
    ///
    /// Links are no second copy of the bytes: a device that breaks takes both. Checkpoint to another file system,
    /// or copy the checkpoint, which nobody changes, to another place by any means.
    ///
    /// The directory must not exist, or be empty, in a file system that takes O_DIRECT. It gets the permissions
    /// of this log's, and so do its files. If the copy cannot be finished, what was made of it is removed; should
    /// the process die before that, what is left is refused by all who open it
    /// ([`LogErrorKind::UnfinishedCheckpoint`]).
    ///
    /// ```
    /// # use fairlock_io::{LogFile, LogReader};
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let (path, backup) = (directory.path().join("journal"), directory.path().join("backup"));
    /// let log = LogFile::open(&path)?;
    /// let position = log.append(b"kept")?;
    /// let checkpoint = log.checkpoint(&backup)?;
    /// log.append(b"later")?;
    ///
    /// let mut copy = LogReader::open(&backup)?;
    /// assert_eq!(copy.next()?.expect("it is in the copy").position, position);
    /// assert!(copy.next()?.is_none());
    /// assert_eq!(copy.committed(), checkpoint.end);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`LogErrorKind::Exists`] and [`LogErrorKind::OthersFiles`] for a directory that is not empty,
    /// [`LogErrorKind::InsideLog`] for one within the log's own, [`LogErrorKind::StorageFull`], [`LogErrorKind::SyncFailed`], and what the system says.
    pub fn checkpoint(&self, directory: impl AsRef<Path>) -> Result<Checkpoint> {
        self.log.checkpoint(directory.as_ref())
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
        Ok(LogReader { reader: Reader::open(open_directory(path.as_ref())?)? })
    }

    /// As [`open`](Self::open), also where the end of the log is hidden by damage, as in a copy that `cp` made and
    /// that is damaged: then the log ends behind the last batch that is whole, as
    /// [`verify`](Self::verify) finds it. That reads all of the log once.
    ///
    /// Damage is met as elsewhere: choose [`skip_damage`](Self::skip_damage) to pass it over.
    ///
    /// # Errors
    /// As for [`open`](Self::open), if the control page is damaged.
    pub fn open_damaged(path: impl AsRef<Path>) -> Result<LogReader> {
        Ok(LogReader { reader: Reader::open_damaged(open_directory(path.as_ref())?)? })
    }

    /// Reads all of the log in the directory `path`, calls `report` for every damage, and goes on behind it:
    /// what is not reported, and not given up, is what was appended.
    ///
    /// It needs only read access. While a writer has the log open, everything that is committed when it is
    /// called is looked at. Otherwise everything is, up to where the next opening would find the end.
    ///
    /// ```
    /// use fairlock_io::{LogFile, LogReader};
    ///
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let path = directory.path().join("journal");
    /// let log = LogFile::open(&path)?;
    /// log.append(b"one")?;
    /// log.close()?;
    ///
    /// let found = LogReader::verify(&path, |damage| {
    ///     eprintln!("{} at position {}", damage.what, damage.position);
    /// })?;
    /// assert_eq!((found.records, found.damages), (1, 0));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`LogErrorKind::NotALog`], [`LogErrorKind::NewerVersion`], and what the system says. Blocks that the
    /// device cannot read are damage.
    pub fn verify(path: impl AsRef<Path>, mut report: impl FnMut(Damage)) -> Result<Verified> {
        verify::verify(open_directory(path.as_ref())?, &mut report)
    }

    /// What is known of the log in the directory `path` without reading all of it.
    ///
    /// ```
    /// use fairlock_io::{LogFile, LogReader};
    ///
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let path = directory.path().join("journal");
    /// let log = LogFile::open(&path)?;
    /// let summary = LogReader::summary(&path)?;
    /// assert_eq!(summary.writer, Some(std::process::id()));
    /// assert_eq!(summary.committed, Some(log.committed()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`LogErrorKind::NotALog`], [`LogErrorKind::NewerVersion`], [`LogErrorKind::Damaged`] for the control
    /// page, and what the system says.
    pub fn summary(path: impl AsRef<Path>) -> Result<LogSummary> {
        summary::of(path.as_ref())
    }

    /// Reads so many bytes at a time, up to multiples of 4096. Default: 256 KiB.
    pub fn read_bytes(mut self, bytes: usize) -> LogReader {
        self.reader.set_read_bytes(bytes.max(1));
        self
    }

    /// Whether only what is on the device is read and waited for. Default: no, all that is committed is.
    ///
    /// Then [`committed`](Self::committed) is what is on the device, too, and [`follow`](Self::follow) has read
    /// all when it has read that: what a writer that died had committed and not synced comes when the log
    /// is next opened for writing.
    ///
    /// What is committed and not on the device may be lost with the power: a follower that has acted on it
    /// then knows more than the log. It matters if the log is not synced at every commit.
    pub fn durable_only(mut self, durable_only: bool) -> LogReader {
        self.reader.set_durable_only(durable_only);
        self
    }

    /// Whether what is damaged is passed over. Default: no, it is an error.
    ///
    /// With it [`next`](Self::next) and all that goes on from record to record gives every record that is whole, and
    /// [`damages`](Self::damages) says what was passed over. The log stays as it is. Damage of the control page, and blocks
    /// that the device cannot read, are errors all the same; so is damage that keeps the end of a log that nobody
    /// has open from being found, for which there is [`LogFile::repair`].
    ///
    /// ```
    /// use fairlock_io::{LogFile, LogReader};
    ///
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let path = directory.path().join("journal");
    /// # LogFile::open(&path)?.close()?;
    /// let mut reader = LogReader::open(&path)?.skip_damage(true);
    /// while let Some(record) = reader.next()? {
    ///     println!("{}: {} bytes", record.position, record.bytes.len());
    /// }
    /// for damage in reader.damages() {
    ///     eprintln!("{} at position {} is lost", damage.what, damage.position);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn skip_damage(mut self, skip_damage: bool) -> LogReader {
        self.reader.set_skip_damage(skip_damage);
        self
    }

    /// What was passed over since this was last asked; nothing unless
    /// [`skip_damage`](Self::skip_damage) is chosen.
    pub fn damages(&mut self) -> Vec<Damage> {
        self.reader.damages()
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

    /// Goes to the first record that begins within the last `bytes` bytes of the committed log, or to its
    /// first record if it is not longer, or to its end if no record begins so late. Headers and padding
    /// count, too.
    ///
    /// What was read before is read again: if the reader reads at least as many bytes at a time, it reads
    /// this part at once, and at most a block before it. If that begins in the middle of a batch, the headers
    /// of the batch's records are read, too, from its beginning on (16 MiB at most), so that no bytes in a
    /// record are taken for one, whatever they look like.
    ///
    /// ```
    /// # use fairlock_io::LogFile;
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let log = LogFile::open(directory.path().join("journal"))?;
    /// for line in ["long ago", "lately", "just now"] {
    ///     log.append(line.as_bytes())?; // A block each, as each is waited for.
    /// }
    /// let mut reader = log.reader()?;
    /// reader.seek_last(8192)?;
    /// assert_eq!(reader.next()?.expect("it is committed").bytes, b"lately");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`LogErrorKind::Damaged`], and what the system says. The reader stays where it was.
    pub fn seek_last(&mut self, bytes: u64) -> Result<()> {
        self.reader.seek_last(bytes)
    }

    /// Goes to the first record of the last batch whose key is not larger than this one
    /// ([`AppendOptions::key`]), or to the first record of the log. A batch has one key for all its records, so
    /// it may begin with others: the caller passes over those. Of several batches with this key it goes to the
    /// last.
    ///
    /// Keys are not checked. If they do not rise along the log, this may stop anywhere.
    ///
    /// It reads a block of some segments, and the headers of the batches in one.
    ///
    /// ```
    /// # use fairlock_io::{AppendOptions, LogFile};
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let log = LogFile::open(directory.path().join("journal"))?;
    /// for (time, record) in [(100, b"a"), (200, b"b"), (300, b"c")] {
    ///     log.append_all(&[record], &AppendOptions::new().key(time))?;
    /// }
    /// let mut reader = log.reader()?;
    /// reader.seek_key(250)?;
    /// assert_eq!(reader.next()?.expect("it is committed").bytes, b"b");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`LogErrorKind::Damaged`], and what the system says. The reader stays where it was.
    pub fn seek_key(&mut self, key: u64) -> Result<()> {
        self.reader.seek_key(key)
    }

    /// The next record; none if no more is committed yet.
    ///
    /// # Errors
    /// [`LogErrorKind::CutOff`], once, for records that it has given and that are no longer part of the log;
    /// [`LogErrorKind::Truncated`], [`LogErrorKind::Damaged`], and what the system says: then the reader stays
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

    /// The next record, as soon as there is one; or that there will be none, since nobody has the log open for
    /// writing and all is read. Without a timeout it waits for one of both.
    ///
    /// If the writer died, a write that was under way may still become part of the log when it is next opened:
    /// records that you have not seen may appear before the next writer's.
    ///
    /// Whether a writer has died is looked at twice in a second. After the end it says so at once each time; to
    /// wait for the next writer's records, use [`next_within`](Self::next_within).
    ///
    /// ```
    /// use fairlock_io::{Followed, LogFile, LogReader, LogWriter};
    ///
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let path = directory.path().join("journal");
    /// let log = LogFile::open(&path)?;
    /// log.append(b"last")?;
    /// let mut reader = LogReader::open(&path)?;
    /// log.close()?;
    /// assert!(matches!(reader.follow(None)?, Followed::Record(_)));
    /// assert_eq!(reader.follow(None)?, Followed::Ended(LogWriter::Closed));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn follow(&mut self, timeout: Option<Duration>) -> Result<Followed<'_>> {
        self.reader.follow(timeout)
    }

    /// Who has the log open for writing now.
    ///
    /// # Errors
    /// If the control page cannot be read.
    pub fn writer(&self) -> Result<LogWriter> {
        self.reader.writer()
    }

    /// The bytes that the writer gave the segment in which the reader stands
    /// ([`LogOptions::segment_header`]); none if it gave none.
    ///
    /// ```
    /// # use fairlock_io::LogOptions;
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let path = directory.path().join("journal");
    /// let log = LogOptions::new().segment_header(b"orders, format 3").open(&path)?;
    /// assert_eq!(log.reader()?.segment_header()?, b"orders, format 3");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`LogErrorKind::MissingSegment`] at the end of a log whose next segment is not yet made,
    /// [`LogErrorKind::Truncated`], [`LogErrorKind::Damaged`], and what the system says.
    pub fn segment_header(&mut self) -> Result<Vec<u8>> {
        self.reader.segment_header()
    }

    /// The number of the latest opening for writing: as [`LogFile::epoch`] says there.
    ///
    /// # Errors
    /// If the control page cannot be read.
    pub fn epoch(&self) -> Result<u32> {
        self.reader.epoch()
    }

    /// Which of the logs that began alike this is: as [`LogFile::lineage`].
    ///
    /// # Errors
    /// If the control page cannot be read.
    pub fn lineage(&self) -> Result<u64> {
        self.reader.lineage()
    }

    /// All before this is on the device; none if that is not known.
    pub fn durable(&self) -> Option<Position> {
        self.reader.durable().map(Position::new)
    }

    /// All records from here to where the log is committed when the iterator comes there, in memory of their
    /// own. The reader moves on with them.
    ///
    /// It ends after an error. At the end, it may be asked again later: it goes on with what was committed
    /// since.
    ///
    /// ```
    /// # use fairlock_io::{LogFile, LogReader};
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let path = directory.path().join("journal");
    /// # let log = LogFile::open(&path)?;
    /// log.append(b"one")?;
    /// log.append(b"two")?;
    /// let mut reader = LogReader::open(&path)?;
    /// for record in reader.records() {
    ///     let (position, bytes) = record?;
    ///     println!("{position}: {}", String::from_utf8_lossy(&bytes));
    /// }
    /// assert_eq!(reader.position(), reader.committed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn records(&mut self) -> Records<'_> {
        Records { reader: self, failed: false }
    }

    /// The record at `position`; the reader stays where it is. As [`LogFile::read`].
    ///
    /// # Errors
    /// As [`LogFile::read`].
    pub fn read_at(&mut self, position: Position) -> Result<Vec<u8>> {
        self.reader.read(position)
    }

    /// Sleeps until more is committed than was read; false if the time is over. There may be no record in
    /// it yet.
    pub fn wait(&mut self, timeout: Option<Duration>) -> bool {
        self.reader.wait(timeout)
    }

    /// A descriptor for an event loop (poll, epoll, mio, tokio): readable while something is committed behind
    /// the reader, as level-triggered readiness. There may be no record in it yet.
    ///
    /// It becomes unreadable when [`next`](Self::next) finds nothing more, or the reader goes to the end;
    /// so when it is readable, call `next` until there is none. For edge-triggered readiness the same is
    /// enough. It remains the same one for as long as the reader lives: a copy
    /// ([`try_clone_to_owned`](BorrowedFd::try_clone_to_owned)) can be given to a loop that wants its own.
    /// Only wait for it: a reader whose descriptor was read or written by others is waited for in vain.
    ///
    /// The first call starts a thread, which ends with the reader. It sleeps; the writer wakes it at most
    /// once each time the reader has come to the end.
    ///
    /// ```
    /// # use fairlock_io::{LogFile, LogReader};
    /// use std::os::fd::AsRawFd;
    ///
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let path = directory.path().join("journal");
    /// # let log = LogFile::open(&path)?;
    /// let mut reader = LogReader::open(&path)?;
    /// let event = reader.event_fd()?.as_raw_fd();
    /// let mut events = [libc::pollfd { fd: event, events: libc::POLLIN, revents: 0 }];
    /// # std::thread::scope(|scope| {
    /// # scope.spawn(|| log.append(b"hello"));
    ///
    /// 'wait: loop {
    ///     // SAFETY: one entry, which the call fills in.
    ///     unsafe { libc::poll(events.as_mut_ptr(), 1, -1) };
    ///     while let Some(record) = reader.next()? {
    ///         println!("{}: {} bytes", record.position, record.bytes.len());
    ///         break 'wait; // For this example.
    ///     }
    /// }
    /// # Ok::<(), fairlock_io::LogError>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the system has no more descriptors or threads.
    pub fn event_fd(&mut self) -> Result<BorrowedFd<'_>> {
        self.reader.event()
    }

    /// Where it stands: of the next record, or before it.
    pub fn position(&self) -> Position {
        self.reader.position()
    }

    /// Where the committed part ends.
    pub fn committed(&self) -> Position {
        Position::new(self.reader.committed_now())
    }

    /// The first position that was not given up.
    pub fn first(&self) -> Position {
        Position::new(self.reader.first_now())
    }
}

impl LogReader {
    /// Copies the log in the directory `path` into the new directory `directory`, as
    /// [`LogFile::checkpoint`] does, without being its writer: that may go on appending, in this process or in
    /// another. A log that was not closed is copied up to where the next opening would find its end.
    ///
    /// It needs only read access to the log. Who does not own its files and may not write them cannot link them,
    /// either, on most systems: then all is copied.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`LogFile::checkpoint`].
    pub fn checkpoint(path: impl AsRef<Path>, directory: impl AsRef<Path>) -> Result<Checkpoint> {
        let reader = Reader::open(open_directory(path.as_ref())?)?;
        checkpoint::make(reader.into_view(), Until::Committed, directory.as_ref())
    }
}

impl fmt::Debug for LogReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReader").field("position", &self.position()).finish_non_exhaustive()
    }
}

/// The records that a [`LogReader`] comes to, each with its position:
/// [`records`](LogReader::records).
pub struct Records<'a> {
    reader: &'a mut LogReader,
    failed: bool,
}

impl Iterator for Records<'_> {
    type Item = Result<(Position, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.reader.next().transpose()?;
        self.failed = next.is_err();
        Some(next.map(|record| (record.position, record.bytes.to_vec())))
    }
}

impl fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("reader", self.reader).finish_non_exhaustive()
    }
}

/// Makes the directory if there is none. That it is there after a crash is seen to when the log is made in it.
fn create_directory(path: &Path, mode: Option<u32>) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        created => created?,
    }
    match mode {
        Some(mode) => {
            // Who may read the files may find them.
            let mode = mode | (mode & 0o444) >> 2;
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
        }
        None => Ok(()),
    }
}

fn open_directory(path: &Path) -> Result<Disk> {
    Disk::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => LogError::new(LogErrorKind::NotALog, path),
        _ => LogError::system("open", path, error),
    })
}
