//! `LogFile` under the workload: given up behind and read at its end.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam_utils::CachePadded;
use fairlock_io::{LogError, LogErrorKind, LogFile, LogReader, Position, SyncPolicy};

use super::{Log, SYNC_INTERVAL, SharedLog, Syncing, failed, segment_bytes};
use crate::error::{LabError, Violation};
use crate::workloads::Failure;
use crate::world::scratch::{BLOCK_BYTES, ScratchDirectory, set_stamp};

/// Records are given to the log in such portions where speed is not measured.
const FILL_BYTES: usize = 1 << 20;
/// The third segment is usually one that was used before.
const MOST_SEGMENTS_TO_RECYCLE: u64 = 8;

/// A `LogFile` of which the last two segments are kept.
pub(crate) struct TailedLog {
    log: LogFile,
    record_bytes: usize,
    read_bytes: usize,
    /// The position of the newest record that was acknowledged.
    newest: CachePadded<AtomicU64>,
    /// The segment that it is in.
    segment: AtomicU64,
    /// A record in that segment: what is before the one of the segment before is given up.
    kept: Mutex<Kept>,
    asked_for: PathBuf,
    // Last, as it is removed after the log has ended.
    _directory: ScratchDirectory,
}

#[derive(Default)]
struct Kept {
    segment: u64,
    position: Position,
}

impl TailedLog {
    /// A log that is new: blocks are written ahead of its first appends, and its segments were not used
    /// before.
    pub(crate) fn fresh(params: &Log, asked_for: &Path) -> Result<TailedLog, LabError> {
        let sync = match params.sync {
            Syncing::EveryCommit => SyncPolicy::EveryCommit,
            Syncing::Interval => SyncPolicy::Interval(SYNC_INTERVAL),
            Syncing::Never => SyncPolicy::Never,
        };
        let directory = ScratchDirectory::create(asked_for)?;
        let log = LogFile::options()
            .segment_bytes(segment_bytes(params.read_bytes))
            .sync(sync)
            .open(directory.path())
            .map_err(|error| failed("create", asked_for, error))?;
        Ok(TailedLog {
            log,
            record_bytes: params.record_bytes as usize,
            read_bytes: params.read_bytes as usize,
            newest: CachePadded::new(AtomicU64::new(0)),
            segment: AtomicU64::new(0),
            kept: Mutex::default(),
            asked_for: asked_for.to_owned(),
            _directory: directory,
        })
    }

    /// Appends until segments are used again: from then on nothing is written ahead. The next one is made
    /// ready when one has been entered, so there is almost a whole segment before its end.
    pub(crate) fn recycle(&self) -> Result<(), LabError> {
        let record = self.record();
        let portion = (FILL_BYTES / self.record_bytes).max(1);
        while self.log.stats().recycled_segments == 0
            && self.segment.load(Ordering::Relaxed) < MOST_SEGMENTS_TO_RECYCLE
        {
            let submitted = (1..portion).try_for_each(|_| self.log.submit(&record).map(drop));
            let position = submitted
                .and_then(|()| self.log.append(&record))
                .map_err(|error| self.failed("append to", error))?;
            self.acknowledged(position)?;
        }
        Ok(())
    }

    /// Appends as many blocks as one read has, a batch for each, so that every block of the tail begins
    /// one.
    pub(crate) fn fill_tail(&self) -> Result<(), LabError> {
        let record = self.record();
        for _ in 0..self.read_bytes / BLOCK_BYTES {
            let position =
                self.log.append(&record).map_err(|error| self.failed("append to", error))?;
            self.acknowledged(position)?;
        }
        Ok(())
    }

    fn record(&self) -> Vec<u8> {
        vec![0; self.record_bytes]
    }

    /// Lets readers look for the record, and gives up what is behind.
    fn acknowledged(&self, position: Position) -> Result<(), LabError> {
        // Release: pairs with the load in `read_tail`, which looks for this record from now on.
        self.newest.fetch_max(position.get(), Ordering::Release);
        let segment = position.get() / self.log.segment_bytes();
        // Relaxed: a hint; the mutex orders the rest.
        if segment > self.segment.load(Ordering::Relaxed) {
            self.give_up(segment, position)?;
        }
        Ok(())
    }

    #[cold]
    fn give_up(&self, segment: u64, position: Position) -> Result<(), LabError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if segment <= kept.segment {
            return Ok(());
        }
        let before = mem::replace(&mut *kept, Kept { segment, position });
        self.segment.store(segment, Ordering::Relaxed);
        self.log.truncate_before(before.position).map_err(|error| self.failed("truncate", error))
    }

    fn failed(&self, action: &str, error: LogError) -> LabError {
        failed(action, &self.asked_for, error)
    }

    /// Reads the tail up to the record at `newest`, or beyond.
    fn read_to(&self, reader: &mut LogReader, newest: u64) -> Result<Option<Violation>, LogError> {
        // This reads from the device, whatever was read before.
        reader.seek_last(self.read_bytes as u64)?;
        let mut found = None;
        while let Some(record) = reader.next()? {
            let position = record.position.get();
            // More may have been committed than was acknowledged.
            if position == newest || (position > newest && found.is_none()) {
                return Ok(None);
            }
            found = Some(position);
            if position > newest {
                break;
            }
        }
        Ok(found.map(|found| Violation::StaleBlock { expected: newest, found }))
    }
}

/// A thread's record.
pub(crate) struct Appender {
    record: Vec<u8>,
    number: u64,
}

impl SharedLog for TailedLog {
    type Appender = Appender;
    type Tail = LogReader;
    const SYNCS: &'static [Syncing] = &Syncing::ALL;

    fn create(params: &Log, directory: &Path) -> Result<TailedLog, LabError> {
        let log = TailedLog::fresh(params, directory)?;
        log.recycle()?;
        if params.readers > 0 {
            log.fill_tail()?;
        }
        Ok(log)
    }

    fn appender(&self) -> Appender {
        Appender { record: self.record(), number: 0 }
    }

    fn append(&self, appender: &mut Appender) -> Result<(), Failure> {
        if let Some(start) = appender.record.get_mut(..8) {
            set_stamp(start, appender.number);
        }
        appender.number += 1;
        let appended = self.log.append(&appender.record);
        let position = appended.map_err(|error| self.failed("append to", error))?;
        Ok(self.acknowledged(position)?)
    }

    fn tail(&self) -> Result<LogReader, LabError> {
        let reader = self.log.reader().map_err(|error| self.failed("read", error))?;
        Ok(reader.read_bytes(self.read_bytes))
    }

    fn read_tail(&self, tail: &mut LogReader) -> Result<Option<u64>, Failure> {
        let newest = self.newest.load(Ordering::Acquire);
        match self.read_to(tail, newest) {
            Ok(None) => Ok(Some(self.read_bytes as u64)),
            Ok(Some(violation)) => Err(violation.into()),
            Err(error) if matches!(error.kind(), LogErrorKind::Truncated { .. }) => Ok(None),
            Err(error) => Err(self.failed("read", error).into()),
        }
    }
}
