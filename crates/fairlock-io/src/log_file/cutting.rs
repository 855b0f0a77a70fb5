//! Cuts off the end of a log: records that turned out not to be part of it.
//!
//! Positions never return, so nothing is appended where the records were. They are covered: the rest of a
//! batch by a hole, whole batches by gaps, one for each segment (invariant 7 of `format.rs`).
//!
//! That takes several writes, in blocks that hold other records. So the control page says first what is cut
//! off. From then on readers pass over it, whatever they would find there, and who opens the log after a crash
//! covers it again; when all of it is covered, the page forgets it.

use std::sync::Arc;

use super::ahead;
use super::blocks::Blocks;
use super::error::{LogError, LogErrorKind};
use super::format::{
    BATCH_HEADER, BLOCK, BatchHeader, Kind, Layout, MOST_BATCH, POSITIONS, RECORD_HEADER,
    RecordHeader, blocks,
};
use super::opening;
use super::position::Position;
use super::segments;
use super::storage::{Storage, StoredFile};

/// What is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The batch in which it begins, or with which.
    pub(crate) batch: u64,
    /// Of that batch: the bytes without padding, and the epoch.
    pub(crate) used: u32,
    pub(crate) epoch: u32,
    /// Where it begins: with the batch, or with one of its records.
    pub(crate) at: u64,
    /// Where the log ended.
    pub(crate) end: u64,
}

impl Cut {
    pub(crate) fn of(batch: &BatchHeader, at: u64, end: u64) -> Cut {
        // Without its first record nothing of it stays.
        let at = if at <= batch.position + BATCH_HEADER as u64 { batch.position } else { at };
        Cut { batch: batch.position, used: batch.used, epoch: batch.epoch, at, end }
    }

    pub(crate) fn to_words(self) -> [u64; 4] {
        let Cut { batch, used, epoch, at, end } = self;
        [batch, u64::from(used) | u64::from(epoch) << 32, at, end]
    }

    /// None for zeros, and for what nobody has cut.
    pub(crate) fn from_words([batch, of_batch, at, end]: [u64; 4]) -> Option<Cut> {
        let (used, epoch) = (of_batch as u32, (of_batch >> 32) as u32);
        let is_fine = batch < POSITIONS
            && batch.is_multiple_of(BLOCK as u64)
            && end.is_multiple_of(BLOCK as u64)
            && end < POSITIONS
            && (batch..batch + u64::from(used)).contains(&at)
            && at < end
            && (BATCH_HEADER..=MOST_BATCH).contains(&(used as usize));
        is_fine.then_some(Cut { batch, used, epoch, at, end })
    }

    /// Where the first batch begins that is covered as a whole.
    fn gap(&self) -> u64 {
        match self.at == self.batch {
            true => self.batch,
            false => self.batch + blocks(self.used as usize) as u64,
        }
    }
}

/// How often a log was cut, and where the last cuts began and ended, the latest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cuts(pub(crate) [u64; 1 + 2 * NOTED]);

/// Cuts whose places are noted.
const NOTED: usize = 3;

impl Cuts {
    /// With one more.
    pub(crate) fn and(self, cut: &Cut) -> Cuts {
        let mut words = self.0;
        words.copy_within(1..2 * NOTED - 1, 3);
        (words[0], words[1], words[2]) = (self.0[0].wrapping_add(1), cut.at, cut.end);
        Cuts(words)
    }

    /// What was cut off since, as one: where it begins, and where it ends. If more was than is noted, all may
    /// have been.
    pub(crate) fn since(self, before: Cuts) -> Option<(u64, u64)> {
        let count = self.0[0].wrapping_sub(before.0[0]);
        if count == 0 {
            return None;
        }
        let noted = self.0[1..].chunks_exact(2).take(usize::try_from(count).unwrap_or(NOTED));
        let end = noted.clone().map(|it| it[1]).max().unwrap_or(0);
        let begin = noted.map(|it| it[0]).min().unwrap_or(0);
        Some((if count > NOTED as u64 { 0 } else { begin }, end))
    }
}

/// A log's files, for who covers a part of them.
pub(crate) struct Cover<'a, S: Storage> {
    pub(crate) storage: &'a Arc<S>,
    pub(crate) layout: Layout,
    pub(crate) epoch: u32,
    /// Below that all is on the device.
    pub(crate) durable: u64,
    /// The segment that is being written, and its file; none if the last one is full, and perhaps shared by
    /// links.
    pub(crate) current: Option<(u64, &'a Arc<S::File>)>,
}

impl<S: Storage> Cover<'_, S> {
    pub(crate) fn cover(&self, cut: &Cut) -> Result<(), LogError> {
        let layout = &self.layout;
        let gap = cut.gap();
        if gap > cut.at && cut.at < cut.batch + u64::from(cut.used) {
            self.cover_records(cut)?;
        }
        if gap < cut.end && layout.offset(gap) != 0 {
            self.cover_batches(gap, cut.end)?;
        }
        for segment in layout.segment_before(gap) + 1..=layout.segment_before(cut.end) {
            self.cover_batches(layout.first_batch(segment), cut.end)?;
        }
        Ok(())
    }

    /// Covers batches from `from` to the end of the segment, or to `end` if that comes first.
    fn cover_batches(&self, from: u64, end: u64) -> Result<(), LogError> {
        let layout = &self.layout;
        let segment = layout.segment(from);
        let to = layout.next_batch(end.min(layout.end(segment)));
        if to <= from {
            return Ok(());
        }
        let header = BatchHeader {
            kind: Kind::Gap { to },
            position: from,
            epoch: self.epoch,
            durable: self.durable.min(from),
            used: BATCH_HEADER as u32,
            records: 0,
            key: None,
        };
        let mut block = Blocks::zeroed(BLOCK);
        header.encode(&layout.identity, &mut block);
        let offset = layout.offset(from);
        let Some(file) = self.file(segment)? else { return Ok(()) };
        let cannot = |error| self.cannot(segment, offset, error);
        file.write(&block, offset, true).map_err(cannot)?;
        let rest = offset + BLOCK as u64;
        let is_current = self.current.is_some_and(|(current, _)| current == segment);
        if !is_current && layout.segment(to) != segment {
            return file.set_len(rest).map_err(cannot);
        }
        let covered = end.min(layout.end(segment)) - layout.start(segment);
        write_zeros::<S>(&file, rest, covered).map_err(cannot)
    }

    /// Covers the records of a batch that are cut off.
    fn cover_records(&self, cut: &Cut) -> Result<(), LogError> {
        let layout = &self.layout;
        let segment = layout.segment(cut.at);
        let offset = layout.offset(cut.at);
        let Some(file) = self.file(segment)? else { return Ok(()) };
        let cannot = |error| self.cannot(segment, offset, error);
        // The header, and what of the records is in its blocks.
        let begin = offset - offset % BLOCK as u64;
        let end_of_header = (offset + RECORD_HEADER as u64).next_multiple_of(BLOCK as u64);
        let mut bytes = Blocks::zeroed((end_of_header - begin) as usize);
        file.read(&mut bytes, begin).map_err(cannot)?;
        let in_batch = (cut.at - cut.batch) as u32;
        let in_block = (offset - begin) as usize;
        bytes[in_block..].fill(0);
        let hole = RecordHeader::hole(in_batch, cut.used, cut.epoch);
        hole.encode(&layout.identity, cut.at, &mut bytes[in_block..]);
        file.write(&bytes, begin, true).map_err(cannot)?;
        write_zeros::<S>(&file, end_of_header, layout.offset(cut.gap() - 1) + 1).map_err(cannot)
    }

    /// A segment's file that may be changed; none if it was given up meanwhile.
    fn file(&self, segment: u64) -> Result<Option<Arc<S::File>>, LogError> {
        if let Some((current, file)) = self.current
            && current == segment
        {
            return Ok(Some(Arc::clone(file)));
        }
        match opening::open_own(&**self.storage, segment, u64::MAX) {
            Err(error) if *error.kind() == LogErrorKind::MissingSegment => Ok(None),
            file => file.map(|file| Some(Arc::new(file))),
        }
    }

    fn cannot(&self, segment: u64, offset: u64, error: std::io::Error) -> LogError {
        let path = self.storage.path().join(segments::name_of(segment));
        LogError::system("cut off the end of", &path, error).at(segment, offset)
    }
}

fn write_zeros<S: Storage>(file: &S::File, from: u64, to: u64) -> std::io::Result<()> {
    if from >= to {
        return Ok(());
    }
    let zeros = Blocks::zeroed(ahead::CHUNK.min((to - from) as usize));
    let mut at = from;
    while at < to {
        let size = zeros.len().min((to - at) as usize);
        file.write(&zeros[..size], at, false)?;
        at += size as u64;
    }
    file.sync()
}

/// For a position that no record of the log has.
#[cold]
pub(crate) fn no_record<S: Storage>(storage: &S, position: u64) -> LogError {
    LogError::new(LogErrorKind::NoRecord(Position::new(position)), storage.path())
}
