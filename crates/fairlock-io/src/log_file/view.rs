//! Looks into the committed part of a log, each checked against what was given up.
//!
//! A segment that is given up is renamed, and later its file becomes another segment, while a reader may
//! still have it open. So whatever a look finds — no file, another segment's header, a file that is too
//! short, bytes that do not check — means nothing until it is known that the place is still part of the
//! log. The writer moves the first position on before it touches a segment; so who looks at the first
//! position after the bytes, and finds it no further, may believe them. Bytes that check are the log's in
//! any case (invariant 1 of `format.rs`).

use std::sync::Arc;

use crc32c::crc32c;

use super::error::{LogError, LogErrorKind};
use super::format::{
    BATCH_HEADER, BLOCK, BatchHeader, FIRST_BATCH, Kind, Layout, RECORD_HEADER, RecordHeader,
};
use super::position::Position;
use super::progress::Progress;
use super::segments::Inventory;
use super::storage::Storage;
use super::window::{Window, damaged};

/// Read at a time by who reads single records: about as fast as a block, and holds most records whole.
const SINGLE: usize = 16 << 10;

pub(crate) struct View<S: Storage> {
    storage: Arc<S>,
    progress: Progress<S::Page>,
    window: Window<S>,
}

impl<S: Storage> View<S> {
    /// Reads `size` bytes at a time.
    pub(crate) fn new(storage: Arc<S>, progress: Progress<S::Page>, size: usize) -> View<S> {
        let layout = progress.control().layout();
        let window = Window::new(Arc::clone(&storage), layout, size);
        View { storage, progress, window }
    }

    /// For records that are read by their positions.
    pub(crate) fn for_singles(storage: Arc<S>, progress: Progress<S::Page>) -> View<S> {
        View::new(storage, progress, SINGLE)
    }

    pub(crate) fn storage(&self) -> &Arc<S> {
        &self.storage
    }

    pub(crate) fn layout(&self) -> Layout {
        self.window.layout()
    }

    pub(crate) fn progress(&self) -> &Progress<S::Page> {
        &self.progress
    }

    /// Looks at the control page again.
    pub(crate) fn refresh(&mut self) -> Result<(), LogError> {
        self.progress.refresh()
    }

    /// Where the committed part ended at the last look.
    pub(crate) fn committed(&self) -> u64 {
        self.progress.committed()
    }

    /// Where it ends; at the last look, if another is impossible.
    pub(crate) fn committed_now(&self) -> u64 {
        match self.progress.look() {
            Ok(look) => self.progress.committed_in(&look),
            Err(_) => self.committed(),
        }
    }

    /// What was the first position at the last look.
    pub(crate) fn first(&self) -> u64 {
        self.progress.first().unwrap_or_else(|| self.first_segment())
    }

    /// The first position that was not given up; at the last look, if another is impossible.
    pub(crate) fn first_now(&self) -> u64 {
        let look = self.progress.look().ok();
        look.and_then(|look| look.first).unwrap_or_else(|| self.first())
    }

    /// All that is known once the control page has lost the first position.
    #[cold]
    fn first_segment(&self) -> u64 {
        let segments = Inventory::of(&*self.storage).map(|it| it.segments).unwrap_or_default();
        segments.first().map_or(FIRST_BATCH, |&segment| self.layout().first_batch(segment))
    }

    pub(crate) fn window(&mut self) -> &mut Window<S> {
        &mut self.window
    }

    /// The batch that begins here, if one does.
    pub(crate) fn batch_at(&mut self, position: u64) -> Result<Option<BatchHeader>, LogError> {
        let identity = self.layout().identity;
        self.decode(position, BATCH_HEADER, |bytes| BatchHeader::decode(&identity, position, bytes))
    }

    /// The record that begins here, if one seems to: its bytes are not looked at.
    pub(crate) fn record_at(&mut self, position: u64) -> Result<Option<RecordHeader>, LogError> {
        let identity = self.layout().identity;
        self.decode(position, RECORD_HEADER, |bytes| {
            RecordHeader::decode(&identity, position, bytes)
        })
    }

    /// The batch of a record, if it is in one. What was read stays: who asks will read the record.
    pub(crate) fn batch_of(
        &mut self,
        at: u64,
        record: &RecordHeader,
    ) -> Result<Option<BatchHeader>, LogError> {
        let identity = self.layout().identity;
        let Some(begin) = at.checked_sub(record.in_batch.into()) else { return Ok(None) };
        if !begin.is_multiple_of(BLOCK as u64)
            || self.layout().segment(begin) != self.layout().segment(at)
        {
            return Ok(None);
        }
        let committed = self.committed();
        let header = self.window.bytes_aside(begin, BATCH_HEADER, committed);
        let header =
            header.map(|it| it.and_then(|bytes| BatchHeader::decode(&identity, begin, bytes)));
        let batch = self.unless_given_up(begin, header)?;
        Ok(batch.filter(|batch| {
            let records = begin..begin + u64::from(batch.used);
            batch.kind == Kind::Records && batch.epoch == record.epoch && records.contains(&at)
        }))
    }

    /// Whether a record's bytes are what its header says.
    pub(crate) fn is_whole(&mut self, at: u64, record: &RecordHeader) -> Result<bool, LogError> {
        let payload = at + RECORD_HEADER as u64;
        let checksum = self.decode(payload, record.length as usize, |it| Some(crc32c(it)))?;
        Ok(checksum == Some(record.payload))
    }

    /// The bytes of a record that is whole.
    pub(crate) fn payload(&mut self, at: u64, length: usize) -> Result<&[u8], LogError> {
        let committed = self.committed();
        let payload = at + RECORD_HEADER as u64;
        let bytes = self.window.bytes(payload, length, committed)?;
        Ok(bytes.expect("it was looked at before"))
    }

    /// The record at `position`, which is checked alone: its batch is not looked at.
    pub(crate) fn read(&mut self, position: Position) -> Result<Vec<u8>, LogError> {
        let at = position.get();
        self.refresh()?;
        if at < self.first() {
            return Err(self.truncated(at));
        }
        let record = match at < self.committed() {
            true => self.record_at(at)?,
            false => None,
        };
        // What was read may be of a segment that is no longer.
        if record.is_none() {
            self.refresh()?;
            if at < self.first() {
                return Err(self.damaged(at, "a record"));
            }
        }
        let Some(record) = record else { return Err(self.no_record(position)) };
        if !self.is_whole(at, &record)? {
            return Err(self.damaged(at, "a record"));
        }
        self.payload(at, record.length as usize).map(<[u8]>::to_vec)
    }

    /// What the committed bytes here are, if they are anything.
    pub(crate) fn decode<T>(
        &mut self,
        position: u64,
        size: usize,
        decode: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, LogError> {
        let committed = self.committed();
        let bytes = self.window.bytes(position, size, committed);
        let decoded = bytes.map(|it| it.and_then(decode));
        self.unless_given_up(position, decoded)
    }

    /// An error may come from what became of a segment that was given up meanwhile.
    fn unless_given_up<T>(
        &mut self,
        position: u64,
        found: Result<T, LogError>,
    ) -> Result<T, LogError> {
        let Err(error) = found else { return found };
        self.refresh()?;
        if position < self.first() { Err(self.truncated(position)) } else { Err(error) }
    }

    #[cold]
    pub(crate) fn no_record(&self, position: Position) -> LogError {
        LogError::new(LogErrorKind::NoRecord(position), self.storage.path())
    }

    #[cold]
    pub(crate) fn truncated(&self, position: u64) -> LogError {
        let first = Position::new(self.first());
        let truncated = LogErrorKind::Truncated { position: Position::new(position), first };
        LogError::new(truncated, self.storage.path())
    }

    /// What is here is not what was written; unless it was given up meanwhile.
    #[cold]
    pub(crate) fn damaged(&mut self, position: u64, what: &'static str) -> LogError {
        // What was read may be what the segment's file became.
        self.window.forget();
        if let Err(error) = self.refresh() {
            return error;
        }
        if position < self.first() {
            return self.truncated(position);
        }
        damaged(&*self.storage, self.layout(), position, what)
    }
}
