//! Looks into the committed part of a log, each checked against what was given up.
//!
//! A segment that is given up is renamed, and later its file becomes another segment, while a reader may
//! still have it open. So whatever a look finds — no file, another segment's header, a file that is too
//! short, bytes that do not check — means nothing until it is known that the place is still part of the
//! log. The writer moves the first position on before it touches a segment; so who looks at the first
//! position after the bytes, and finds it no further, may believe them. Bytes that check are the log's in
//! any case (invariant 1 of `format.rs`).

use std::sync::Arc;

use super::cutting::Cut;
use super::error::{LogError, LogErrorKind};
use super::format::{
    BATCH_HEADER, BLOCK, BatchHeader, FIRST_BATCH, Impossible, Kind, Layout, MOST_BATCH,
    RECORD_ALIGNMENT, RECORD_HEADER, RecordHeader,
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
    /// A record whose bytes had a mask.
    unmasked: Vec<u8>,
}

impl<S: Storage> View<S> {
    /// Reads `size` bytes at a time.
    pub(crate) fn new(storage: Arc<S>, progress: Progress<S::Page>, size: usize) -> View<S> {
        let layout = progress.control().layout();
        let window = Window::new(Arc::clone(&storage), layout, size);
        View { storage, progress, window, unmasked: Vec::new() }
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

    pub(crate) fn set_durable_only(&self, durable_only: bool) {
        self.progress.set_durable_only(durable_only);
    }

    /// Has seen what another view has seen.
    pub(crate) fn see(&mut self, progress: &Progress<S::Page>) {
        if progress.seen().cuts != self.progress.seen().cuts {
            self.window.clear();
        }
        self.progress.clone_from(progress);
    }

    /// What this place is cut off with, though it may not yet be covered.
    pub(crate) fn cut_at(&self, at: u64) -> Option<Cut> {
        self.progress.seen().cut().filter(|cut| (cut.at..cut.end).contains(&at))
    }

    /// Looks at the control page again. What was read before a cut, or before it was covered, counts no more.
    pub(crate) fn refresh(&mut self) -> Result<(), LogError> {
        let cuts = self.progress.seen().cuts;
        self.progress.refresh()?;
        if self.progress.seen().cuts != cuts {
            self.window.clear();
        }
        Ok(())
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
        Ok(self.header_at(position)?.and_then(Result::ok))
    }

    /// As [`batch_at`](Self::batch_at), where the log goes on with a batch or with a record: what no
    /// writer wrote is damage there.
    pub(crate) fn next_batch_at(&mut self, position: u64) -> Result<Option<BatchHeader>, LogError> {
        self.header_at(position)?
            .transpose()
            .map_err(|Impossible(what)| self.damaged(position, what))
    }

    fn header_at(
        &mut self,
        position: u64,
    ) -> Result<Option<Result<BatchHeader, Impossible>>, LogError> {
        let layout = self.layout();
        self.decode(position, BATCH_HEADER, |bytes| BatchHeader::decode(&layout, position, bytes))
    }

    /// The record that begins here, if one seems to: neither its bytes nor its batch are looked at.
    pub(crate) fn record_at(&mut self, position: u64) -> Result<Option<RecordHeader>, LogError> {
        let identity = self.layout().identity;
        self.decode(position, RECORD_HEADER, |bytes| {
            RecordHeader::decode(&identity, position, bytes)
        })
    }

    /// The batch that what seems to be a record says it is in, if there is one at that place. What was
    /// read stays: who asks will read the record.
    pub(crate) fn batch_of(
        &mut self,
        at: u64,
        record: &RecordHeader,
    ) -> Result<Option<BatchHeader>, LogError> {
        let layout = self.layout();
        let Some(begin) = at.checked_sub(record.in_batch.into()) else { return Ok(None) };
        if begin % (BLOCK as u64) != 0 || self.layout().segment(begin) != self.layout().segment(at)
        {
            return Ok(None);
        }
        let committed = self.committed();
        let header = self.window.bytes_aside(begin, BATCH_HEADER, committed);
        let header =
            header.map(|it| it.and_then(|bytes| BatchHeader::decode(&layout, begin, bytes)));
        let batch = self.unless_given_up(begin, header)?.and_then(Result::ok);
        Ok(batch.filter(|batch| {
            batch.kind == Kind::Records && record.impossible_in(batch, at).is_none()
        }))
    }

    /// The batch that this place is in, whatever is there. Reads up to the largest batch's bytes.
    pub(crate) fn batch_around(&mut self, at: u64) -> Result<Option<BatchHeader>, LogError> {
        let layout = self.layout();
        let block = at - at % BLOCK as u64;
        let mut here = layout.first_batch(layout.segment(at));
        here = here.max(block.saturating_sub(MOST_BATCH as u64));
        let mut last = None;
        while here <= block {
            last = self.batch_at(here)?.or(last);
            here += match last {
                Some(batch) if batch.position == here => batch.size(),
                _ => BLOCK as u64,
            };
        }
        Ok(last.filter(|batch| at < batch.position + batch.size()))
    }

    /// Whether a gap covers this place, of those that begin in its segment.
    pub(crate) fn batch_covering(&mut self, at: u64) -> Result<bool, LogError> {
        let layout = self.layout();
        let mut here = layout.first_batch(layout.segment(at)).max(self.first());
        if here % (BLOCK as u64) != 0 {
            here = layout.first_batch(layout.segment(at));
        }
        while here < at {
            let Some(batch) = self.batch_at(here)? else { return Ok(false) };
            let next = batch.next(&layout);
            if at < next {
                return Ok(matches!(batch.kind, Kind::Gap { .. } | Kind::End));
            }
            here = next;
        }
        Ok(false)
    }

    /// The first record of a batch that begins at `from` or behind it. The headers of those before it
    /// are read: what merely looks like a record, in another's bytes, is not among them. Behind a header
    /// before `from` that is damaged, the chain goes on with the next thing that looks like one.
    ///
    /// # Errors
    /// Damage, if a header from `from` on is not what was written.
    pub(crate) fn record_in(
        &mut self,
        batch: &BatchHeader,
        from: u64,
    ) -> Result<Option<u64>, LogError> {
        let mut at = batch.position + BATCH_HEADER as u64;
        let end = batch.end_of_records();
        // Nobody needs those that were given up.
        let first = self.first();
        if (at..end).contains(&first) {
            at = first;
        }
        let mut is_astray = false;
        while at < end {
            let record = match self.record_at(at)? {
                Some(record) if record.impossible_in(batch, at).is_none() => record,
                _ if at < from || is_astray => {
                    is_astray = true;
                    at += RECORD_ALIGNMENT as u64;
                    continue;
                }
                _ => self.record_of(batch, at)?,
            };
            if at >= from && !record.lost {
                return Ok(Some(at));
            }
            is_astray = false;
            at = record.end(at);
        }
        Ok(None)
    }

    /// The record of a batch that begins here.
    ///
    /// # Errors
    /// Damage, if none does.
    pub(crate) fn record_of(
        &mut self,
        batch: &BatchHeader,
        at: u64,
    ) -> Result<RecordHeader, LogError> {
        let Some(record) = self.record_at(at)? else {
            return Err(self.damaged(at, "a record's header"));
        };
        match record.impossible_in(batch, at) {
            Some(Impossible(what)) => Err(self.damaged(at, what)),
            None => Ok(record),
        }
    }

    /// Whether a record's bytes are what its header says.
    pub(crate) fn is_whole(&mut self, at: u64, record: &RecordHeader) -> Result<bool, LogError> {
        let payload = at + RECORD_HEADER as u64;
        let is_whole =
            self.decode(payload, record.length as usize, |stored| Some(record.is_of(at, stored)))?;
        Ok(is_whole == Some(true))
    }

    /// The bytes of a record that is whole, as they were appended.
    pub(crate) fn payload(&mut self, at: u64, record: &RecordHeader) -> Result<&[u8], LogError> {
        let committed = self.committed();
        let payload = at + RECORD_HEADER as u64;
        let bytes = self.window.bytes(payload, record.length as usize, committed)?;
        let bytes = bytes.expect("it was looked at before");
        if record.mask == 0 {
            return Ok(bytes);
        }
        self.unmasked.clear();
        self.unmasked.extend_from_slice(bytes);
        record.unmask(at, &mut self.unmasked);
        Ok(&self.unmasked)
    }

    /// The record at `position`, which is checked alone: its batch is not looked at.
    pub(crate) fn read(&mut self, position: Position) -> Result<Vec<u8>, LogError> {
        let at = position.get();
        self.refresh()?;
        if at < self.first() {
            return Err(self.truncated(at));
        }
        let record = match at < self.committed() && self.cut_at(at).is_none() {
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
        let Some(record) = record.filter(|record| !record.lost) else {
            return Err(self.no_record(position));
        };
        if let Some(Impossible(what)) = record.impossible(&self.layout(), at) {
            return Err(self.damaged(at, what));
        }
        if !self.is_whole(at, &record)? {
            return Err(self.damaged(at, "a record"));
        }
        self.payload(at, &record).map(<[u8]>::to_vec)
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
        let end = Position::new(self.committed());
        match position > end {
            true => LogError::behind_end(position, end, self.storage.path()),
            false => LogError::new(LogErrorKind::NoRecord(position), self.storage.path()),
        }
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
