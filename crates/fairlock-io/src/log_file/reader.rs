//! Reads a log from any record on, and follows it as it grows.
//!
//! A reader asks the control page how far the log is committed, never the file system, and reads whole
//! blocks below that with O_DIRECT. What it read stays valid: no block is written again that is
//! committed, until its segment is given up. It holds nothing that a writer waits for.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::blocks::Blocks;
use super::control::{self, Control, Look};
use super::cutting::Cuts;
use super::error::{LogError, LogErrorKind};
use super::format::{
    self, BATCH_HEADER, BLOCK, BatchHeader, FIRST_BATCH, Kind, Layout, MOST_BATCH,
    RECORD_ALIGNMENT, RECORD_HEADER, RecordHeader,
};
use super::opening;
use super::position::Position;
use super::progress::{Found, Idle, Progress};
use super::readiness::Readiness;
use super::recovery;
use super::segments::{self, Inventory};
use super::storage::{Storage, StoredFile};
use super::verify::{self, Damage, Damaged};
use super::view::View;
use super::window::{damaged, open_segment};

/// Read at a time, unless somebody wants another size.
const WINDOW: usize = 256 << 10;

/// A record, as a reader gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it is.
    pub position: Position,
    /// What was appended.
    pub bytes: &'a [u8],
    /// Of the opening in which it was appended: [`LogFile::epoch`](crate::LogFile::epoch).
    pub epoch: u32,
    /// The next record was appended together with it ([`LogFile::append_all`](crate::LogFile::append_all)): a
    /// group ends with a record for which this is false. A hole that a repair leaves inside a group may make the
    /// rest look like a complete group. If the last record of a group is lost or cut off, the rest looks as if it
    /// went on with the next group.
    pub continues: bool,
}

/// What a reader that follows a log is told: [`LogReader::follow`](crate::LogReader::follow).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Followed<'a> {
    /// The next record.
    Record(Record<'a>),
    /// The time is over, and nothing more is committed.
    TimedOut,
    /// All is read, but for what a [durable-only](crate::LogReader::durable_only) reader does not see, and nobody
    /// has the log open for writing.
    Ended(LogWriter),
}

/// Who writes a log: [`LogReader::writer`](crate::LogReader::writer).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogWriter {
    /// A process has it open for writing.
    Open {
        /// Its number, in its own process namespace; 0 if the log does not say.
        process: u32,
    },
    /// Nobody, and the last one closed it: all that was acknowledged is on the device.
    Closed,
    /// Nobody, and the last one died, or dropped the log without closing it. A write that was under way may still
    /// become part of the log when it is next opened: records that you have not seen may appear before the next
    /// writer's.
    Died,
}

/// How often a reader that follows a log looks whether somebody still writes it, at least: who dies tells
/// nobody.
const LOOK_FOR_WRITER: Duration = Duration::from_millis(500);

pub(crate) struct Reader<S: Storage> {
    view: View<S>,
    /// For an event loop.
    readiness: Option<Readiness<S::Page>>,
    /// For records that are read by their positions.
    singles: Option<View<S>>,
    /// What the caller knows to have been cut off.
    cuts: Cuts,
    /// Where the record ends that was given last, or where the caller went after that.
    given: u64,
    /// Of the next record, or where the next batch may begin.
    at: u64,
    /// The batch that `at` is in; none if `at` is where a batch begins, or if that is not known yet.
    batch: Option<BatchHeader>,
    /// Of the batch that it came to last; 0 if it came to none since it was sent elsewhere.
    epoch: u32,
    /// What it passed in the batch, if it came there from the batch's beginning.
    passed: Option<Passed>,
    /// What was passed over, if damage is.
    skipping: Option<Skipping>,
}

/// For a reader that passes damage over.
#[derive(Debug, Default)]
struct Skipping {
    damages: Vec<Damage>,
    /// Where the reader is, if it is where headers of batches are damaged.
    loose: Option<Loose>,
}

/// A batch whose header is damaged, and whose end is not known.
#[derive(Debug, Clone, Copy)]
struct Loose {
    batch: u64,
    /// Where the next batch begins whose header is whole: what is before that is looked through once.
    next: u64,
}

/// To be compared with what the batch says it has.
#[derive(Debug, Clone, Copy, Default)]
struct Passed {
    records: u32,
    holes: u32,
}

impl<S: Storage> Reader<S> {
    /// Of a log in another process, or in none.
    pub(crate) fn open(storage: S) -> Result<Reader<S>, LogError> {
        Self::open_with(storage, find_end)
    }

    /// As above, also where damage hides the end.
    pub(crate) fn open_damaged(storage: S) -> Result<Reader<S>, LogError> {
        Self::open_with(storage, find_end_behind_damage)
    }

    fn open_with(
        storage: S,
        find_end: fn(&Arc<S>, Layout, &Look) -> Result<u64, LogError>,
    ) -> Result<Reader<S>, LogError> {
        let storage = Arc::new(storage);
        let control = Control::open(&*storage, false)?;
        let is_known = |look: &Look| {
            // What a copy of the page says need not be true of the copies of the segments.
            let was_closed = look.closed.is_some() && !look.is_copy;
            (opening::is_same_boot(&*storage, look) || was_closed) && look.committed.is_some()
        };
        let look = control.look()?;
        let found_end = match is_known(&look) {
            true => None,
            // If a writer opened it meanwhile, nothing of what was found counts.
            false => match find_end(&storage, control.layout(), &look) {
                _ if is_known(&control.look()?) => None,
                found => {
                    let (end, boot, commits) = (found?, storage.boot(), look.commits);
                    Some(Found { end, boot, commits })
                }
            },
        };
        let progress = Progress::new(Arc::new(control), found_end)?;
        Self::with(storage, progress)
    }

    pub(crate) fn with(
        storage: Arc<S>,
        progress: Progress<S::Page>,
    ) -> Result<Reader<S>, LogError> {
        let view = View::new(storage, progress, WINDOW);
        let mut reader = Reader {
            cuts: view.progress().seen().cuts.unwrap_or_default(),
            view,
            given: 0,
            readiness: None,
            singles: None,
            at: 0,
            batch: None,
            epoch: 0,
            passed: None,
            skipping: None,
        };
        reader.seek(Position::START)?;
        Ok(reader)
    }

    /// What it looks through.
    pub(crate) fn into_view(self) -> View<S> {
        self.view
    }

    pub(crate) fn set_read_bytes(&mut self, bytes: usize) {
        self.view.window().resize(bytes);
    }

    /// Where the committed part ends.
    pub(crate) fn committed_now(&self) -> u64 {
        self.view.committed_now()
    }

    /// The first position that was not given up.
    pub(crate) fn first_now(&self) -> u64 {
        self.view.first_now()
    }

    /// Where the committed part ended at the last look.
    fn committed(&self) -> u64 {
        self.view.committed()
    }

    /// What was the first position at the last look.
    fn first(&self) -> u64 {
        self.view.first()
    }

    pub(crate) fn position(&self) -> Position {
        match self.batch {
            // Behind its last record there is padding.
            Some(batch) if self.at >= batch.end_of_records() => {
                Position::new(batch.position + batch.size())
            }
            _ => Position::new(self.at),
        }
    }

    pub(crate) fn seek(&mut self, position: Position) -> Result<(), LogError> {
        self.view.refresh()?;
        if position == Position::START {
            // What is wrong there shows when it is read.
            self.jump_to(self.first(), None);
            return Ok(());
        }
        let layout = self.view.layout();
        let committed = self.committed();
        if position.get() > layout.next_batch(committed) {
            return Err(self.view.no_record(position));
        }
        // What was the end may have become where a segment begins.
        let at = layout.next_batch(position.get());
        if at < self.first() {
            return Err(self.view.truncated(at));
        }
        if at == layout.next_batch(committed) {
            self.jump_to(at, None);
            return Ok(());
        }
        if self.view.cut_at(at).is_some() {
            return Err(self.view.no_record(position));
        }
        let batch = match at < committed {
            true if self.batch_at(at)?.is_some() => Some(None),
            true => self.batch_with_record(at)?.map(Some),
            false => None,
        };
        // What was read may be of a segment that is no longer.
        self.view.refresh()?;
        if at < self.first() {
            return Err(self.view.damaged(at, "a record"));
        }
        let Some(batch) = batch else { return Err(self.view.no_record(position)) };
        self.jump_to(at, batch);
        Ok(())
    }

    /// Goes to the first record that begins within the last `bytes` of the committed part, and reads that
    /// part anew.
    pub(crate) fn seek_last(&mut self, bytes: u64) -> Result<(), LogError> {
        self.view.window().clear();
        loop {
            self.view.refresh()?;
            let (first, committed) = (self.first(), self.committed());
            let begin = committed.saturating_sub(bytes);
            if begin <= first {
                return self.seek(Position::START);
            }
            let found = self.first_record(begin, committed);
            self.view.refresh()?;
            match found {
                // Given up meanwhile: less is left.
                _ if begin < self.first() => {}
                found => {
                    let (at, batch) = found?.unwrap_or((committed, None));
                    self.jump_to(at, batch);
                    return Ok(());
                }
            }
        }
    }

    /// The first record that begins in this part of the log, with its batch.
    ///
    /// What seems to be a record's header leads to a batch, in which the first record is looked for from
    /// its beginning on: a record's bytes can hold anything, and headers, too.
    fn first_record(
        &mut self,
        begin: u64,
        committed: u64,
    ) -> Result<Option<(u64, Option<BatchHeader>)>, LogError> {
        let layout = self.view.layout();
        let mut at = begin.next_multiple_of(RECORD_ALIGNMENT as u64);
        while at < committed {
            if layout.offset(at) < FIRST_BATCH {
                at = layout.first_batch(layout.segment(at));
                continue;
            }
            if let Some(cut) = self.view.cut_at(at) {
                at = cut.end;
                continue;
            }
            let batch = match self.batch_at(at)? {
                Some(batch) => Some(batch),
                None => match self.candidate(at)? {
                    Some(candidate) => {
                        let batch = self.batch_of_candidate(candidate)?;
                        if batch.is_none() {
                            at = candidate + RECORD_ALIGNMENT as u64;
                        }
                        batch
                    }
                    None if self.view.window().file_ends_by(at) => {
                        at = layout.end(layout.segment(at));
                        None
                    }
                    None => {
                        at = (at + 1).next_multiple_of(BLOCK as u64);
                        None
                    }
                },
            };
            let Some(batch) = batch else { continue };
            if let Some(record) = self.record_in(&batch, at)? {
                return Ok(Some((record, Some(batch))));
            }
            at = batch.next(&layout);
        }
        Ok(None)
    }

    /// The batch that a place is in where a record seems to begin; none if that has no header, after all.
    fn batch_of_candidate(&mut self, at: u64) -> Result<Option<BatchHeader>, LogError> {
        let Some(record) = self.view.record_at(at)? else { return Ok(None) };
        if let Some(batch) = self.view.batch_of(at, &record)? {
            return Ok(Some(batch));
        }
        // Not one that was written as a record, or the batch's header is damaged.
        match self.singles().batch_around(at)? {
            Some(batch) => Ok(Some(batch)),
            None => Err(self.view.damaged(at, "a batch's header")),
        }
    }

    /// The first place from `at` on, in its block, where the header of a record may begin: batches begin at
    /// blocks, so most bytes of records cannot be one.
    fn candidate(&mut self, at: u64) -> Result<Option<u64>, LogError> {
        let in_block = at as usize % BLOCK;
        let from = self.view.decode(at, BLOCK - in_block, |bytes| {
            (0..bytes.len()).step_by(RECORD_ALIGNMENT).find(|&from| {
                // None: it may go on in the next block.
                RecordHeader::in_batch_of(&bytes[from..])
                    .is_none_or(|in_batch| in_batch as usize % BLOCK == in_block + from)
            })
        })?;
        Ok(from.map(|from| at + from as u64))
    }

    /// Goes there at somebody's wish.
    fn jump_to(&mut self, at: u64, batch: Option<BatchHeader>) {
        // What was cut off before is not of interest to who comes from elsewhere.
        self.cuts = self.view.progress().seen().cuts.unwrap_or(self.cuts);
        self.given = at;
        self.go_to(at, batch);
        self.epoch = batch.map_or(0, |batch| batch.epoch);
        self.tell_readiness();
    }

    fn go_to(&mut self, at: u64, batch: Option<BatchHeader>) {
        self.at = at;
        self.batch = batch;
        let is_at_beginning = batch.is_some_and(|batch| at == batch.position + BATCH_HEADER as u64);
        self.passed = is_at_beginning.then(Passed::default);
    }

    fn batch_at(&mut self, at: u64) -> Result<Option<BatchHeader>, LogError> {
        if at % (BLOCK as u64) == 0 { self.view.batch_at(at) } else { Ok(None) }
    }

    /// The batch of the record that begins here, if one does.
    fn batch_with_record(&mut self, at: u64) -> Result<Option<BatchHeader>, LogError> {
        let Some(batch) = self.batch_of_record(at)? else { return Ok(None) };
        let record = self.record_in(&batch, at)?;
        Ok(record.filter(|&record| record == at).map(|_| batch))
    }

    /// The first record of a batch from here on: read beside what was read, of which more is needed soon.
    fn record_in(&mut self, batch: &BatchHeader, from: u64) -> Result<Option<u64>, LogError> {
        if batch.position + BATCH_HEADER as u64 >= from {
            return self.view.record_in(batch, from);
        }
        self.singles().record_in(batch, from)
    }

    /// The batch that the record here says it is in, if there is one.
    fn batch_of_record(&mut self, at: u64) -> Result<Option<BatchHeader>, LogError> {
        match self.view.record_at(at)? {
            Some(record) => self.view.batch_of(at, &record),
            None => Ok(None),
        }
    }

    /// The record at `position`; the reader stays where it is.
    pub(crate) fn read(&mut self, position: Position) -> Result<Vec<u8>, LogError> {
        self.singles().read(position)
    }

    fn singles(&mut self) -> &mut View<S> {
        let view = &self.view;
        let singles = self.singles.get_or_insert_with(|| {
            View::for_singles(Arc::clone(view.storage()), view.progress().clone())
        });
        singles.see(view.progress());
        singles
    }

    /// The next record that is committed; none if there is none yet. After an error the reader stands where
    /// it stood.
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>, LogError> {
        match self.find_next()? {
            Some((at, record)) => self.give(at, &record).map(Some),
            None => Ok(None),
        }
    }

    /// The record that was found.
    fn give(&mut self, at: u64, record: &RecordHeader) -> Result<Record<'_>, LogError> {
        let bytes = self.view.payload(at, record)?;
        self.at = record.end(at);
        self.given = self.at;
        if let Some(passed) = &mut self.passed {
            passed.records += 1;
        }
        let position = Position::new(at);
        Ok(Record { position, bytes, epoch: record.epoch, continues: record.more })
    }

    /// The batch that the next record is in, or that begins next, and where in it: what is behind all that
    /// was read. None at the end.
    pub(crate) fn next_batch(&mut self) -> Result<Option<(BatchHeader, u64)>, LogError> {
        match (self.batch, self.find_next()?) {
            // The rest of this one.
            (Some(batch), _) if self.batch == Some(batch) => Ok(Some((batch, self.at))),
            // All of the next, if there is a record.
            (_, Some(_)) => Ok(self.batch.map(|batch| (batch, batch.position))),
            _ => Ok(None),
        }
    }

    /// Goes to the next record; its position and header, if it is whole. Passes damage over if that is wanted.
    fn find_next(&mut self) -> Result<Option<(u64, RecordHeader)>, LogError> {
        loop {
            match self.find_next_unless_cut() {
                Err(error) if self.skipping.is_some() => self.skip(error)?,
                found => return found,
            }
        }
    }

    fn find_next_unless_cut(&mut self) -> Result<Option<(u64, RecordHeader)>, LogError> {
        loop {
            match self.find_next_unless_damaged() {
                // Unless it was cut off since.
                Err(error)
                    if matches!(
                        error.kind(),
                        LogErrorKind::Damaged { .. }
                            | LogErrorKind::NoRecord(_)
                            | LogErrorKind::Truncated { .. }
                    ) =>
                {
                    self.view.refresh()?;
                    if !self.see_cuts()? {
                        return Err(error);
                    }
                }
                found => return found,
            }
        }
    }

    /// Whether something was cut off since this was asked last, before the place that the reader had come to: it
    /// goes back to where that began.
    ///
    /// # Errors
    /// Once, if a part of that was given to the caller.
    fn see_cuts(&mut self) -> Result<bool, LogError> {
        // What is not known has not changed.
        let cuts = self.view.progress().seen().cuts.unwrap_or(self.cuts);
        let Some(begin) = cuts.since(self.cuts) else { return Ok(false) };
        self.cuts = cuts;
        let was_given = self.given > begin;
        if was_given || self.at > begin {
            self.jump_to(begin.max(self.first()), None);
        }
        match was_given {
            true => {
                let cut_off = LogErrorKind::CutOff { from: Position::new(begin) };
                Err(LogError::new(cut_off, self.view.storage().path()))
            }
            false => Ok(true),
        }
    }

    fn find_next_unless_damaged(&mut self) -> Result<Option<(u64, RecordHeader)>, LogError> {
        let layout = self.view.layout();
        loop {
            let here = match self.batch {
                Some(_) => self.at,
                None => layout.next_batch(self.at),
            };
            if let Some(cut) = self.view.cut_at(here) {
                let is_elsewhere = self.see_cuts()?;
                if !is_elsewhere && here == cut.at {
                    self.go_to(cut.end, None);
                } else if !is_elsewhere {
                    return Err(self.view.no_record(self.position()));
                }
                continue;
            }
            let Some(batch) = self.batch else {
                let at = layout.next_batch(self.at);
                if at >= self.committed() {
                    self.view.refresh()?;
                    if self.see_cuts()? {
                        continue;
                    }
                }
                if at >= self.committed() {
                    if let Some(readiness) = &self.readiness {
                        // Even if more is committed by now: the caller will be told once more.
                        readiness.at_end(at);
                    }
                    return Ok(None);
                }
                self.enter(at)?;
                continue;
            };
            if self.at >= batch.end_of_records() {
                let passed = self.passed;
                if passed.is_some_and(|passed| !batch.may_have(passed.records, passed.holes)) {
                    let what = "the number of records in a batch's header";
                    return Err(self.view.damaged(batch.position, what));
                }
                self.go_to(batch.position + batch.size(), None);
                continue;
            }
            let at = self.at;
            let record = match self.loose(&batch) {
                Some(loose) => match self.record_in_loose(&batch, at)? {
                    Some(record) => record,
                    None => {
                        self.skip_in_loose(&batch, loose)?;
                        continue;
                    }
                },
                None => self.view.record_of(&batch, at)?,
            };
            if record.lost {
                self.at = record.end(at);
                if let Some(passed) = &mut self.passed {
                    passed.holes += 1;
                }
                continue;
            }
            if !self.view.is_whole(at, &record)? {
                return Err(self.view.damaged(at, "a record"));
            }
            return Ok(Some((at, record)));
        }
    }

    pub(crate) fn set_skip_damage(&mut self, skip_damage: bool) {
        self.skipping = skip_damage.then(Skipping::default);
    }

    /// What was passed over since this was last asked.
    pub(crate) fn damages(&mut self) -> Vec<Damage> {
        self.skipping.as_mut().map(|it| std::mem::take(&mut it.damages)).unwrap_or_default()
    }

    fn passed_over(&mut self, what: Damaged, position: u64, bytes: u64) {
        let damage =
            Damage::new(&**self.view.storage(), &self.view.layout(), what, position, bytes);
        if let Some(skipping) = &mut self.skipping {
            skipping.damages.push(damage);
        }
    }

    /// Goes past what an error is about, if that is damage, to the next thing that is whole.
    fn skip(&mut self, error: LogError) -> Result<(), LogError> {
        let layout = self.view.layout();
        match (error.kind(), error.segment(), error.offset()) {
            (LogErrorKind::MissingSegment, Some(segment), _) => self.skip_missing(segment),
            // The page named a first position at which nothing can begin.
            (LogErrorKind::Damaged { .. }, Some(segment), _)
                if self.batch.is_none()
                    && layout.offset(layout.next_batch(self.at)) < FIRST_BATCH =>
            {
                self.go_to(layout.first_batch(segment), None);
                Ok(())
            }
            (LogErrorKind::Damaged { .. }, Some(segment), Some(offset)) if offset < FIRST_BATCH => {
                self.passed_over(Damaged::SegmentHeader, layout.start(segment), FIRST_BATCH);
                // What it holds says itself where it belongs.
                self.view.window().read_any_header();
                self.singles().window().read_any_header();
                Ok(())
            }
            (LogErrorKind::Damaged { .. }, Some(_), _) => match self.batch {
                Some(batch) => self.skip_in_batch(&batch),
                None => self.skip_to_batch(layout.next_batch(self.at)),
            },
            _ => Err(error),
        }
    }

    fn skip_missing(&mut self, segment: u64) -> Result<(), LogError> {
        let layout = self.view.layout();
        let storage = self.view.storage();
        let list = |error| LogError::system("list", storage.path(), error);
        let there = Inventory::of(&**storage).map_err(list)?.segments;
        let end = layout.next_batch(self.committed());
        let next = there.into_iter().find(|&it| it > segment).map(|it| layout.first_batch(it));
        let next = next.map_or(end, |next| next.min(end));
        self.passed_over(Damaged::Segment, layout.start(segment), next - layout.start(segment));
        self.go_to(next, None);
        Ok(())
    }

    /// Goes from a damaged record to the next one of its batch.
    fn skip_in_batch(&mut self, batch: &BatchHeader) -> Result<(), LogError> {
        let (at, end) = (self.at, batch.end_of_records());
        if at >= end {
            self.passed_over(Damaged::BatchHeader, batch.position, BATCH_HEADER as u64);
            self.go_to(batch.position + batch.size(), None);
            return Ok(());
        }
        if let Some(record) = self.view.record_at(at)? {
            if record.impossible_in(batch, at).is_none() {
                self.passed_over(
                    Damaged::Record,
                    at,
                    RECORD_HEADER as u64 + u64::from(record.length),
                );
                self.go_on(record.end(at), *batch);
                return Ok(());
            }
        }
        let mut here = at + RECORD_HEADER as u64;
        while here + RECORD_HEADER as u64 <= end {
            let record = self.view.record_at(here)?;
            if record.is_none() && self.view.window().file_ends_by(here) {
                break;
            }
            if record.is_some_and(|record| record.impossible_in(batch, here).is_none()) {
                self.passed_over(Damaged::RecordHeader, at, here - at);
                self.go_on(here, *batch);
                return Ok(());
            }
            here += RECORD_ALIGNMENT as u64;
        }
        self.passed_over(Damaged::RecordHeader, at, end - at);
        self.go_to(batch.position + batch.size(), None);
        Ok(())
    }

    /// Goes on in a batch in which something was passed over.
    fn go_on(&mut self, at: u64, batch: BatchHeader) {
        self.go_to(at, Some(batch));
        self.passed = None;
    }

    /// Goes from a place where a batch should begin to the first record behind it, or to the next batch. If the
    /// reader was sent there, it may be in the middle of a batch.
    fn skip_to_batch(&mut self, at: u64) -> Result<(), LogError> {
        let layout = self.view.layout();
        if self.epoch > 0 {
            let loose = self.skipping.as_ref().and_then(|it| it.loose);
            let next = match loose.filter(|loose| (loose.batch..loose.next).contains(&at)) {
                Some(loose) => loose.next,
                None => self.find_batch(at)?,
            };
            return self.skip_region(at, at, next);
        }
        // From header to header, as who looks for damage does it.
        let mut here = layout.first_batch(layout.segment(at));
        loop {
            let batch = self.view.batch_at(here)?.filter(|batch| batch.epoch >= self.epoch);
            let Some(batch) = batch.filter(|_| here < at) else {
                let next = self.find_batch(here)?;
                if next > at {
                    return self.skip_region(here, at, next);
                }
                here = next;
                continue;
            };
            self.epoch = batch.epoch;
            if at < batch.end_of_records() {
                self.go_on(at, batch);
                return Ok(());
            }
            here = batch.next(&layout);
            if at < here {
                self.go_to(here, None);
                return Ok(());
            }
        }
    }

    /// Where the next batch begins, behind a place in the same segment where none does; or where the segment
    /// ends, or what is committed of it.
    fn find_batch(&mut self, from: u64) -> Result<u64, LogError> {
        let layout = self.view.layout();
        let end = layout.end(layout.segment(from)).min(self.committed());
        let mut here = from - from % BLOCK as u64 + BLOCK as u64;
        while here < end && self.view.batch_at(here)?.is_none_or(|batch| batch.epoch < self.epoch) {
            if self.view.window().file_ends_by(here) {
                return Ok(end);
            }
            here += BLOCK as u64;
        }
        Ok(here.min(end))
    }

    /// Goes to the first record from `at` on, or to `next`, where the next batch begins. Between `start` and that
    /// there is no batch whose header is whole.
    fn skip_region(&mut self, start: u64, at: u64, next: u64) -> Result<(), LogError> {
        let from = at.max(start + BATCH_HEADER as u64);
        match self.find_loose(from, next, None, start)? {
            Some((here, record)) => {
                let begin = here - u64::from(record.in_batch);
                if begin > at {
                    self.passed_over(Damaged::Batch, at, begin - at);
                }
                self.enter_loose(here, &record, at, next);
            }
            None => {
                self.passed_over(Damaged::Batch, at, next - at);
                self.go_to(next, None);
            }
        }
        Ok(())
    }

    /// Goes to a record in a batch whose header is damaged, from a place in that batch or before it.
    fn enter_loose(&mut self, here: u64, record: &RecordHeader, from: u64, next: u64) {
        let begin = here - u64::from(record.in_batch);
        self.passed_over(Damaged::BatchHeader, begin, BATCH_HEADER as u64);
        let first = from.max(begin + BATCH_HEADER as u64);
        if here > first {
            self.passed_over(Damaged::RecordHeader, first, here - first);
        }
        let batch = BatchHeader {
            kind: Kind::Records,
            position: begin,
            epoch: record.epoch,
            durable: 0,
            used: (next - begin).min(MOST_BATCH as u64) as u32,
            records: 0,
            key: None,
        };
        if let Some(skipping) = &mut self.skipping {
            skipping.loose = Some(Loose { batch: begin, next });
        }
        self.epoch = record.epoch;
        self.go_on(here, batch);
    }

    /// If this is a batch whose header is damaged.
    fn loose(&self, batch: &BatchHeader) -> Option<Loose> {
        let loose = self.skipping.as_ref()?.loose?;
        (loose.batch == batch.position && batch.records == 0).then_some(loose)
    }

    /// The record here of a batch whose header is damaged, if one begins here.
    fn record_in_loose(
        &mut self,
        batch: &BatchHeader,
        at: u64,
    ) -> Result<Option<RecordHeader>, LogError> {
        let record = self.view.record_at(at)?;
        Ok(record.filter(|record| record.impossible_in(batch, at).is_none()))
    }

    /// Goes from a place in a batch whose header is damaged to the next record, which may be of another such
    /// batch, or to the next batch.
    fn skip_in_loose(&mut self, batch: &BatchHeader, loose: Loose) -> Result<(), LogError> {
        let at = self.at;
        // What is there may be of a segment that was given up meanwhile, or was cut off.
        self.view.refresh()?;
        if at < self.first() {
            return Err(self.view.truncated(at));
        }
        if self.see_cuts()? {
            return Ok(());
        }
        let found = self.find_loose(at, loose.next, Some(batch), at)?;
        let begin = match &found {
            Some((here, record)) => here - u64::from(record.in_batch),
            None => loose.next,
        };
        match found {
            Some((here, _)) if begin == batch.position => {
                self.passed_over(Damaged::RecordHeader, at, here - at);
                self.go_on(here, *batch);
                return Ok(());
            }
            _ => {}
        }
        // Where the batch ended is not known: what follows its last record may be padding.
        let rest = at.next_multiple_of(BLOCK as u64);
        if !self.is_blank(at, rest)? {
            self.passed_over(Damaged::RecordHeader, at, begin - at);
        } else if rest < begin {
            self.passed_over(Damaged::Batch, rest, begin - rest);
        }
        match found {
            Some((here, record)) => self.enter_loose(here, &record, begin, loose.next),
            None => self.go_to(loose.next, None),
        }
        Ok(())
    }

    /// Whether all is zero from `at` to `end`, in one block.
    fn is_blank(&mut self, at: u64, end: u64) -> Result<bool, LogError> {
        let is_zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0).then_some(());
        Ok(at == end || self.view.decode(at, (end - at) as usize, is_zero)?.is_some())
    }

    /// The next record from `at` on that ends by `end`: of this batch, or of any that begins from `least` on.
    /// Between it and `at` there is nothing, or room for the header of a hole: what a repair would keep.
    fn find_loose(
        &mut self,
        at: u64,
        end: u64,
        batch: Option<&BatchHeader>,
        least: u64,
    ) -> Result<Option<(u64, RecordHeader)>, LogError> {
        let layout = self.view.layout();
        let mut here = at;
        while here + RECORD_HEADER as u64 <= end {
            let record = self.view.record_at(here)?;
            if record.is_none() && self.view.window().file_ends_by(here) {
                return Ok(None);
            }
            if let Some(record) = record {
                if let Some(begin) = here.checked_sub(record.in_batch.into()) {
                    if begin % (BLOCK as u64) == 0
                        && record.impossible(&layout, here).is_none()
                        && record.end(here) <= end.min(begin + MOST_BATCH as u64)
                    {
                        let first = at.max(begin + BATCH_HEADER as u64);
                        let is_same = batch.is_some_and(|batch| {
                            batch.position == begin && batch.epoch == record.epoch
                        });
                        if (here == first || here >= first + RECORD_HEADER as u64)
                            && (is_same || begin >= least && record.epoch >= self.epoch)
                        {
                            return Ok(Some((here, record)));
                        }
                    }
                }
            }
            here += RECORD_ALIGNMENT as u64;
        }
        Ok(None)
    }

    /// Goes into the batch that begins at `at`, or past it, or into the one in which a record begins there.
    fn enter(&mut self, at: u64) -> Result<(), LogError> {
        let header = match at % (BLOCK as u64) == 0 {
            true => self.view.next_batch_at(at)?,
            false => None,
        };
        let Some(batch) = header else {
            let Some(batch) = self.batch_of_record(at)? else {
                return Err(self.nothing_at(at)?);
            };
            self.go_to(at, Some(batch));
            return Ok(());
        };
        if batch.epoch < self.epoch {
            return Err(self.view.damaged(at, "the epoch in a batch's header"));
        }
        let layout = self.view.layout();
        match batch.kind {
            Kind::End => self.go_to(layout.end(layout.segment(at)), None),
            Kind::Opening => self.go_to(at + batch.size(), None),
            Kind::Records => self.go_to(at + BATCH_HEADER as u64, Some(batch)),
            Kind::Gap { to } => {
                // It may be newer than the last look.
                self.view.refresh()?;
                if self.see_cuts()? {
                    return Ok(());
                }
                // Nobody gives up what is not committed.
                if to > layout.next_batch(self.committed()) {
                    return Err(self.view.damaged(at, "the end of a gap"));
                }
                self.go_to(to, None);
            }
        }
        self.epoch = batch.epoch;
        Ok(())
    }

    /// For a place where something should be: unless it was given up in the middle of the log.
    fn nothing_at(&mut self, at: u64) -> Result<LogError, LogError> {
        // What cannot be read decides nothing.
        let covered = self.singles().batch_covering(at).unwrap_or(false);
        Ok(match covered {
            true => self.view.no_record(Position::new(at)),
            false => self.view.damaged(at, "a header"),
        })
    }

    /// Where a batch is to be found next, or the record that comes before that.
    fn rest(&self) -> u64 {
        match self.batch {
            Some(batch) if self.at >= batch.end_of_records() => {
                self.view.layout().next_batch(batch.position + batch.size())
            }
            _ => self.view.layout().next_batch(self.at),
        }
    }

    /// A descriptor that is readable while something is committed behind the reader.
    pub(crate) fn event(&mut self) -> Result<BorrowedFd<'_>, LogError> {
        if self.readiness.is_none() {
            let readiness = Readiness::new(self.view.progress().clone()).map_err(|error| {
                LogError::system("make an eventfd for", self.view.storage().path(), error)
            })?;
            self.readiness = Some(readiness);
            self.tell_readiness();
        }
        Ok(self.readiness.as_ref().expect("just made").event())
    }

    /// Keeps what an event loop sees in step with where the reader went.
    fn tell_readiness(&self) {
        let Some(readiness) = &self.readiness else { return };
        let rest = self.rest();
        match rest < self.committed() {
            true => readiness.behind(),
            // What is committed from now on, the other thread sees.
            false => readiness.at_end(rest),
        }
    }

    /// Waits until there is something to read behind the reader; false if there is nothing yet at the
    /// deadline.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let rest = self.rest();
        let mut idle = Idle::default();
        loop {
            // What is wrong shows when it is read.
            if self.view.refresh().is_err() || rest < self.committed() {
                return true;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            idle.wait(self.view.progress(), deadline);
        }
    }

    /// Who has the log open for writing.
    pub(crate) fn writer(&self) -> Result<LogWriter, LogError> {
        let progress = self.view.progress();
        // In this order: a log is closed before its lock ends.
        let is_open = progress.control().has_writer(&**self.view.storage())?;
        let look = progress.look()?;
        Ok(match look.closed {
            _ if is_open => LogWriter::Open { process: look.process.unwrap_or(0) },
            None if look.epoch.is_some() => LogWriter::Died,
            // Or nobody ever had it open.
            _ => LogWriter::Closed,
        })
    }

    /// The next record, as soon as there is one; or that there will be none, as nobody writes the log.
    pub(crate) fn follow(&mut self, timeout: Option<Duration>) -> Result<Followed<'_>, LogError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (mut idle, mut looked) = (Idle::default(), Instant::now());
        loop {
            if let Some((at, record)) = self.find_next()? {
                return self.give(at, &record).map(Followed::Record);
            }
            let writer = self.writer()?;
            if !matches!(writer, LogWriter::Open { .. }) {
                // What it committed before it ended is read first.
                return match self.find_next()? {
                    Some((at, record)) => self.give(at, &record).map(Followed::Record),
                    None => self.check_in_place().map(|()| Followed::Ended(writer)),
                };
            }
            let now = Instant::now();
            // Not each time: to ask for a file's times makes the next write to it slower.
            if now.duration_since(looked) >= LOOK_FOR_WRITER {
                self.check_in_place()?;
                looked = now;
            }
            let rest = deadline.map(|deadline| deadline.saturating_duration_since(now));
            if rest.is_some_and(|rest| rest.is_zero()) {
                return Ok(Followed::TimedOut);
            }
            let nap = rest.unwrap_or(LOOK_FOR_WRITER).min(LOOK_FOR_WRITER);
            idle.wait(self.view.progress(), now.checked_add(nap));
        }
    }

    /// The user's bytes at the beginning of the segment that the reader is in.
    pub(crate) fn segment_header(&mut self) -> Result<Vec<u8>, LogError> {
        let layout = self.view.layout();
        let segment = layout.segment(layout.next_batch(self.at));
        let storage = Arc::clone(self.view.storage());
        let read = open_segment(&*storage, layout, segment, false).and_then(|(file, _)| {
            let path = storage.path().join(segments::name_of(segment));
            let mut block = Blocks::zeroed(BLOCK);
            file.read(&mut block, 0)
                .map_err(|error| LogError::system("read", &path, error).at(segment, 0))?;
            format::user_header(&block).map(<[u8]>::to_vec).ok_or_else(|| {
                damaged(&*storage, layout, layout.start(segment), "the user's segment header")
            })
        });
        read.or_else(|error| {
            // The file may have become another segment.
            self.view.refresh()?;
            let given_up = segment < layout.segment(self.first());
            Err(if given_up { self.view.truncated(self.at) } else { error })
        })
    }

    pub(crate) fn set_durable_only(&mut self, durable_only: bool) {
        self.view.set_durable_only(durable_only);
        // What is waited for is elsewhere.
        self.tell_readiness();
        self.view.progress().control().wake();
    }

    /// All before is on the device; none if that is not known.
    pub(crate) fn durable(&self) -> Option<u64> {
        self.view.progress().look().ok().and_then(|look| look.durable)
    }

    /// Which of the logs that began alike.
    pub(crate) fn lineage(&self) -> Result<u64, LogError> {
        Ok(self.view.progress().look()?.lineage)
    }

    /// Of the latest opening for writing.
    pub(crate) fn epoch(&self) -> Result<u32, LogError> {
        Ok(self.view.progress().look()?.epoch.unwrap_or(0))
    }

    /// Goes to the last batch whose key is not larger; to the first record if there is none.
    pub(crate) fn seek_key(&mut self, key: u64) -> Result<(), LogError> {
        self.view.refresh()?;
        let layout = self.view.layout();
        let (first, committed) = (self.first(), self.committed());
        if first >= committed {
            return self.seek(Position::START);
        }
        let (mut low, mut high) = (layout.segment(first), layout.segment_before(committed));
        // The last segment whose first key is not larger: keys never fall.
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            // Some have none.
            let (mut segment, mut found) = (middle, None);
            while found.is_none() && segment <= high {
                let end = layout.end(segment).min(committed);
                found = self.first_key(layout.first_batch(segment), end)?.map(|(_, found)| found);
                segment += 1;
            }
            match found {
                Some(found) if found <= key => low = segment - 1,
                _ => high = middle - 1,
            }
        }
        let mut best = None;
        let mut from = layout.first_batch(low).max(first);
        let end = layout.end(low).min(committed);
        if from == first {
            // It may be in the middle of a batch, whose key it shares.
            from = match self.batch_at(from)? {
                Some(batch) => batch.position,
                None => match self.batch_of_record(from)? {
                    Some(batch) => batch.next(&layout),
                    None => from,
                },
            };
        }
        while from < end {
            let Some((position, found)) = self.first_key(from, end)? else { break };
            if found > key {
                break;
            }
            best = Some(position);
            let Some(batch) = self.batch_at(position)? else { break };
            from = batch.next(&layout);
        }
        self.view.refresh()?;
        match best {
            Some(position) if position >= self.first() => {
                self.jump_to(position, None);
                Ok(())
            }
            _ => self.seek(Position::START),
        }
    }

    /// The first batch from here on that has a key.
    fn first_key(&mut self, from: u64, end: u64) -> Result<Option<(u64, u64)>, LogError> {
        let layout = self.view.layout();
        let mut at = from;
        while at < end {
            if let Some(cut) = self.view.cut_at(at) {
                at = layout.next_batch(cut.end);
                continue;
            }
            let Some(batch) = self.view.batch_at(at)? else {
                return Err(self.view.damaged(at, "a header"));
            };
            if let Some(key) = batch.key {
                return Ok(Some((at, key)));
            }
            at = batch.next(&layout);
        }
        Ok(None)
    }

    /// The next record, as soon as there is one; none at the deadline.
    pub(crate) fn next_within(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Option<Record<'_>>, LogError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some((at, record)) = self.find_next()? {
                return self.give(at, &record).map(Some);
            }
            let rest = deadline.map(|it| it.saturating_duration_since(Instant::now()));
            if rest.is_some_and(|rest| rest.is_zero()) {
                return Ok(None);
            }
            if !self.wait(Some(rest.unwrap_or(LOOK_FOR_WRITER).min(LOOK_FOR_WRITER))) {
                self.check_in_place()?;
            }
        }
    }

    /// Whether the log that it reads is still the one in the directory. One that was removed, or whose control page
    /// was replaced, says nothing more.
    fn check_in_place(&self) -> Result<(), LogError> {
        let storage = self.view.storage();
        let page = self.view.progress().control().page();
        match storage.has_page(control::NAME, page) {
            Ok(true) => Ok(()),
            Ok(false) => Err(LogError::new(LogErrorKind::Displaced, storage.path())),
            Err(error) => Err(LogError::system("look at the files of", storage.path(), error)),
        }
    }
}

/// Where a log ends whose control page does not know it.
fn find_end<S: Storage>(storage: &Arc<S>, layout: Layout, look: &Look) -> Result<u64, LogError> {
    let list = |error| LogError::system("list", storage.path(), error);
    let Inventory { segments, .. } = Inventory::of(&**storage).map_err(list)?;
    let (_, segments) = recovery::without_given_up(layout, look, segments);
    Ok(opening::find_end(storage, layout, look, &segments)?.end)
}

/// As above. If damage hides the end, it is where the last batch ends that is whole and part of the log: all of
/// the log is read for that.
fn find_end_behind_damage<S: Storage>(
    storage: &Arc<S>,
    layout: Layout,
    look: &Look,
) -> Result<u64, LogError> {
    match find_end(storage, layout, look) {
        Err(error)
            if matches!(
                error.kind(),
                LogErrorKind::Damaged { .. }
                    | LogErrorKind::MissingSegment
                    | LogErrorKind::IncompleteCopy { .. }
            ) =>
        {
            let survey = verify::survey(Arc::clone(storage), false, &mut |_| ())?;
            Ok(survey.found.end.get())
        }
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use tempfile::TempDir;

    use super::super::disk::Disk;
    use super::super::options::{LogOptions, SyncPolicy};
    use super::*;
    use crate::LogFile;
    use crate::test_directory::test_directory;

    fn log() -> (TempDir, LogFile) {
        let directory = test_directory();
        let options = LogOptions::new().segment_bytes(1 << 20).sync(SyncPolicy::Never);
        let log = options.open(directory.path().join("log")).unwrap();
        (directory, log)
    }

    fn reader(path: &Path, read_bytes: usize) -> Reader<Disk> {
        let mut reader = Reader::open(Disk::open(path).unwrap()).unwrap();
        reader.set_read_bytes(read_bytes);
        reader
    }

    fn bytes_read(reader: &mut Reader<Disk>) -> u64 {
        reader.view.window().bytes_read
    }

    #[test]
    fn a_reader_at_the_end_reads_what_was_appended_and_no_more() {
        let (_directory, log) = log();
        let mut reader = reader(log.path(), 64 << 10);
        while reader.next().unwrap().is_some() {}
        let before = (bytes_read(&mut reader), log.committed().get());
        for _ in 0..200 {
            log.append(&[7; 4_000]).unwrap();
            assert!(reader.next().unwrap().is_some());
            assert!(reader.next().unwrap().is_none());
        }
        let appended = log.committed().get() - before.1;
        assert_eq!(bytes_read(&mut reader) - before.0, appended);
    }

    #[test]
    fn records_across_windows_are_read_once() {
        let (_directory, log) = log();
        let submitted: Vec<_> = (0..200).map(|_| log.submit(&[7; 3_000]).unwrap()).collect();
        for submitted in submitted {
            log.wait(submitted).unwrap();
        }
        for size in [4096, 16 << 10, 64 << 10] {
            let mut reader = reader(log.path(), size);
            while reader.next().unwrap().is_some() {}
            assert_eq!(bytes_read(&mut reader), log.committed().get() - FIRST_BATCH, "{size}");
        }
    }

    #[test]
    fn the_last_bytes_are_read_at_once_with_at_most_a_block_more() {
        let (_directory, log) = log();
        for lengths in [[100, 3_000, 4_000], [40_000, 1, 9_000]] {
            let submitted = lengths.map(|length| log.submit(&vec![7; length]).unwrap());
            for submitted in submitted {
                log.wait(submitted).unwrap();
            }
        }
        let mut reader = reader(log.path(), 64 << 10);
        for last in [4096, 8192, 16 << 10, 32 << 10, 48 << 10] {
            for _ in 0..2 {
                let before = bytes_read(&mut reader);
                reader.seek_last(last).unwrap();
                while reader.next().unwrap().is_some() {}
                let read = bytes_read(&mut reader) - before;
                assert!((last..=last + BLOCK as u64).contains(&read), "{read} of {last}");
            }
        }
    }

    #[test]
    fn damaged_headers_of_batches_are_passed_over_in_one_pass() {
        const SEGMENT: u64 = 2 << 20;
        for length in [10, 100_000] {
            let directory = test_directory();
            let options = LogOptions::new().segment_bytes(SEGMENT).sync(SyncPolicy::Never);
            let log = options.open(directory.path().join("log")).unwrap();
            let mut positions = Vec::new();
            while log.committed().get() < SEGMENT - 110_000 {
                positions.push(log.append(&vec![7; length]).unwrap());
            }
            let path = log.path().to_owned();
            log.close().unwrap();
            let name = path.join(segments::name_of(0));
            let file = fs::File::options().write(true).open(name).unwrap();
            for position in &positions {
                let batch = position.get() - BATCH_HEADER as u64;
                file.write_all_at(&[0; BATCH_HEADER], batch).unwrap();
            }
            let mut reader = reader(&path, BLOCK);
            reader.set_skip_damage(true);
            let mut found = Vec::new();
            while let Some(record) = reader.next().unwrap() {
                found.push(record.position);
            }
            assert_eq!(found, positions);
            let read = reader.view.window().bytes_read;
            assert!(read < 8 * SEGMENT, "{read} bytes for {length}");
        }
    }

    #[test]
    fn the_room_for_a_large_record_is_given_back() {
        let directory = test_directory();
        let options = LogOptions::new().segment_bytes(16 << 20).sync(SyncPolicy::Never);
        let log = options.open(directory.path().join("log")).unwrap();
        let mut reader = reader(log.path(), 4096);
        for (length, room) in [(10, 4096), (8 << 20, 8 << 20), (10, 4096), (10, 4096)] {
            log.append(&vec![7; length]).unwrap();
            assert_eq!(reader.next().unwrap().unwrap().bytes.len(), length);
            let held = reader.view.window().room();
            assert!((room..room + 2 * BLOCK).contains(&held), "{held} for {length}");
        }
    }
}
