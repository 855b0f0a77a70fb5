//! Reads a log from any record on, and follows it as it grows.
//!
//! A reader asks the control page how far the log is committed, never the file system, and reads whole
//! blocks below that with O_DIRECT. What it read stays valid: no block is written again that is
//! committed, until its segment is given up. It holds nothing that a writer waits for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crc32c::crc32c;

use super::control::Control;
use super::error::{LogError, LogErrorKind};
use super::format::{
    BATCH_HEADER, BLOCK, BatchHeader, FIRST_BATCH, Kind, RECORD_HEADER, RecordHeader, record_room,
};
use super::position::Position;
use super::recovery;
use super::segments::Inventory;
use super::storage::Storage;
use super::window::{Window, damaged};

/// Read at a time, unless somebody wants another size.
const WINDOW: usize = 256 << 10;

/// A record, as a reader gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it is.
    pub position: Position,
    /// What was appended.
    pub bytes: &'a [u8],
}

pub(crate) struct Reader<S: Storage> {
    storage: Arc<S>,
    control: Arc<Control<S::Memory>>,
    window: Window<S>,
    /// The end that was found when the control page did not know it.
    found_end: Option<u64>,
    /// Of the next record, or where the next batch may begin.
    at: u64,
    /// The batch that `at` is in.
    batch: Option<BatchHeader>,
}

impl<S: Storage> Reader<S> {
    /// Of a log in another process, or in none.
    pub(crate) fn open(storage: S) -> Result<Reader<S>, LogError> {
        let storage = Arc::new(storage);
        let control = Control::open(&*storage, false)?;
        let is_known = control.boot() == storage.boot() || control.closed().is_some();
        let found_end = match is_known && control.committed().is_some() {
            true => None,
            false => {
                let list = |error| LogError::system("list", storage.path(), error);
                let Inventory { segments, .. } = Inventory::of(&*storage).map_err(list)?;
                let (_, segments) = recovery::without_given_up(&control, segments);
                Some(recovery::find_end(&storage, &control, &segments)?.end)
            }
        };
        Self::of(storage, Arc::new(control), found_end)
    }

    pub(crate) fn of(
        storage: Arc<S>,
        control: Arc<Control<S::Memory>>,
        found_end: Option<u64>,
    ) -> Result<Reader<S>, LogError> {
        let window = Window::new(Arc::clone(&storage), control.layout(), WINDOW);
        let mut reader = Reader { storage, control, window, found_end, at: 0, batch: None };
        reader.seek(Position::START)?;
        Ok(reader)
    }

    pub(crate) fn set_read_bytes(&mut self, bytes: usize) {
        self.window.resize(bytes);
    }

    /// Where the committed part ends.
    pub(crate) fn committed(&self) -> u64 {
        match self.found_end {
            // Until a writer opens it.
            Some(end) if self.control.boot() != self.storage.boot() => end,
            found => self.control.committed().or(found).unwrap_or(FIRST_BATCH),
        }
    }

    /// The first position that was not given up.
    pub(crate) fn first(&self) -> u64 {
        self.control.first().unwrap_or(FIRST_BATCH)
    }

    pub(crate) fn position(&self) -> Position {
        Position::new(self.at)
    }

    pub(crate) fn seek(&mut self, position: Position) -> Result<(), LogError> {
        let committed = self.committed();
        let first = self.first();
        let at = if position == Position::START { first } else { position.get() };
        let layout = self.window.layout();
        // What was given up may end where a segment ends.
        let at = layout.next_batch(at);
        if at < first {
            return Err(self.truncated(at));
        }
        let none = |reader: &Self| {
            Err(LogError::new(LogErrorKind::NoRecord(position), reader.storage.path()))
        };
        if at > layout.next_batch(committed) {
            return none(self);
        }
        let begins_batch = at.is_multiple_of(BLOCK as u64) && self.batch_at(at)?.is_some();
        if at >= committed || begins_batch {
            self.at = at;
            self.batch = None;
            return Ok(());
        }
        let Some(record) = self.record_at(at)? else {
            return match position {
                Position::START => Err(self.damaged(at, "the first record")),
                _ => none(self),
            };
        };
        let Some(batch) = self.batch_at(at - u64::from(record.in_batch))? else {
            return Err(self.damaged(at - u64::from(record.in_batch), "a batch's header"));
        };
        self.at = at;
        self.batch = Some(batch);
        Ok(())
    }

    /// The next record that is committed; none if there is none yet. After an error the reader stands where
    /// it stood.
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>, LogError> {
        let Some((position, length)) = self.find_next()? else { return Ok(None) };
        let committed = self.committed();
        let layout = self.window.layout();
        let bytes = self.window.bytes(position + RECORD_HEADER as u64, length, committed)?;
        let Some(bytes) = bytes else {
            return Err(damaged(&*self.storage, layout, position, "a record"));
        };
        self.at = position + record_room(length) as u64;
        Ok(Some(Record { position: Position::new(position), bytes }))
    }

    /// Goes to the next record; its position and length, if it is whole.
    fn find_next(&mut self) -> Result<Option<(u64, usize)>, LogError> {
        let committed = self.committed();
        let layout = self.window.layout();
        loop {
            let Some(batch) = self.batch else {
                let at = layout.next_batch(self.at);
                if at >= committed {
                    return Ok(None);
                }
                let Some(batch) = self.batch_at(at)? else {
                    return Err(self.damaged(at, "a batch's header"));
                };
                match batch.kind {
                    Kind::End => self.at = layout.end(layout.segment(at)),
                    Kind::Opening => self.at = at + batch.size(),
                    Kind::Records => {
                        self.at = at + BATCH_HEADER as u64;
                        self.batch = Some(batch);
                    }
                }
                continue;
            };
            if self.at >= batch.position + u64::from(batch.used) {
                self.at = batch.position + batch.size();
                self.batch = None;
                continue;
            }
            let at = self.at;
            let Some(record) = self.record_at(at)?.filter(|record| {
                record.epoch == batch.epoch && u64::from(record.in_batch) == at - batch.position
            }) else {
                return Err(self.damaged(at, "a record's header"));
            };
            let length = record.length as usize;
            let payload = at + RECORD_HEADER as u64;
            if self.decode(payload, length, |it| Some(crc32c(it)))? != Some(record.payload) {
                return Err(self.damaged(at, "a record"));
            }
            return Ok(Some((at, length)));
        }
    }

    fn batch_at(&mut self, position: u64) -> Result<Option<BatchHeader>, LogError> {
        let identity = self.window.layout().identity;
        self.decode(position, BATCH_HEADER, |bytes| BatchHeader::decode(&identity, position, bytes))
    }

    fn record_at(&mut self, position: u64) -> Result<Option<RecordHeader>, LogError> {
        let identity = self.window.layout().identity;
        self.decode(position, RECORD_HEADER, |bytes| {
            RecordHeader::decode(&identity, position, bytes)
        })
    }

    /// What the committed bytes here are, if they are anything.
    fn decode<T>(
        &mut self,
        position: u64,
        size: usize,
        decode: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, LogError> {
        let committed = self.committed();
        let decoded = self.window.bytes(position, size, committed).map(|it| it.and_then(decode));
        match decoded {
            // The file of a segment that was given up meanwhile.
            Err(_) if position < self.first() => Err(self.truncated(position)),
            decoded => decoded,
        }
    }

    /// Waits until there is something to read behind the reader; false if there is nothing yet at the
    /// deadline.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            // In this order: see `control.rs`.
            let commits = self.control.commits();
            if self.batch.is_some() || self.window.layout().next_batch(self.at) < self.committed() {
                return true;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            self.control.wait(commits, deadline);
        }
    }

    /// The next record, as soon as there is one; none at the deadline.
    pub(crate) fn next_within(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Option<Record<'_>>, LogError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        while self.find_next()?.is_none() {
            let rest = deadline.map(|it| it.saturating_duration_since(Instant::now()));
            if !self.wait(rest) {
                return Ok(None);
            }
        }
        self.next()
    }

    #[cold]
    fn truncated(&self, position: u64) -> LogError {
        let first = Position::new(self.first());
        let truncated = LogErrorKind::Truncated { position: Position::new(position), first };
        LogError::new(truncated, self.storage.path())
    }

    /// What is here is not what was written; unless it was given up meanwhile.
    #[cold]
    fn damaged(&mut self, position: u64, what: &'static str) -> LogError {
        // What was read may be what the segment's file became.
        self.window.forget();
        if position < self.first() {
            return self.truncated(position);
        }
        damaged(&*self.storage, self.window.layout(), position, what)
    }
}
