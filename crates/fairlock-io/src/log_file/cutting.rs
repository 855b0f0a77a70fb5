//! Cuts off the end of a log: records that turned out not to be part of it.
//!
//! Positions never return, so nothing is appended where the records were. They are covered: the rest of a
//! batch by a hole, whole batches by gaps, one for each segment (invariant 7 of `format.rs`).
//!
//! The last segment is covered first. Each step is one write of a block, which covers all that is left of one
//! segment, so a crash in between leaves a log that has lost some records at its end, and no others.

use std::sync::Arc;

use super::ahead;
use super::blocks::Blocks;
use super::error::{LogError, LogErrorKind};
use super::format::{BATCH_HEADER, BLOCK, BatchHeader, Kind, Layout, RECORD_HEADER, RecordHeader};
use super::position::Position;
use super::segments;
use super::storage::{Storage, StoredFile};

/// Where a log is cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// The batch that is cut, or of which nothing stays.
    pub(crate) batch: BatchHeader,
    /// What begins here, or behind, goes.
    pub(crate) at: u64,
    /// Where the log ends.
    pub(crate) end: u64,
}

/// A log's files, for who covers a part of them.
pub(crate) struct Cover<'a, S: Storage> {
    pub(crate) storage: &'a Arc<S>,
    pub(crate) layout: Layout,
    pub(crate) epoch: u32,
    /// Below that all is on the device.
    pub(crate) durable: u64,
    /// The segment that is being written, and its file.
    pub(crate) current: (u64, &'a Arc<S::File>),
}

impl<S: Storage> Cover<'_, S> {
    pub(crate) fn cut(&self, Cut { batch, at, end }: Cut) -> Result<(), LogError> {
        let layout = &self.layout;
        let gap = match at > batch.position + BATCH_HEADER as u64 {
            true => batch.position + batch.size(),
            // Nothing of it stays.
            false => batch.position,
        };
        let last = layout.segment_before(end);
        for segment in (layout.segment_before(gap) + 1..=last).rev() {
            self.cover(layout.first_batch(segment), end)?;
        }
        if gap < end && layout.offset(gap) != 0 {
            self.cover(gap, end)?;
        }
        if gap > at && at < batch.end_of_records() {
            self.cover_records(&batch, at)?;
        }
        Ok(())
    }

    /// Covers batches from `from` to the end of the segment, or to `end` if that comes first.
    fn cover(&self, from: u64, end: u64) -> Result<(), LogError> {
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
        let file = self.file(segment)?;
        let cannot = |error| self.cannot(segment, offset, error);
        file.write(&block, offset, true).map_err(cannot)?;
        let rest = offset + BLOCK as u64;
        if segment != self.current.0 && layout.segment(to) != segment {
            return file.set_len(rest).map_err(cannot);
        }
        let covered = end.min(layout.end(segment)) - layout.start(segment);
        write_zeros::<S>(&file, rest, covered).map_err(cannot)
    }

    /// Covers the records of a batch from `from` on.
    fn cover_records(&self, batch: &BatchHeader, from: u64) -> Result<(), LogError> {
        let layout = &self.layout;
        let segment = layout.segment(from);
        let offset = layout.offset(from);
        let file = self.file(segment)?;
        let cannot = |error| self.cannot(segment, offset, error);
        // The header, and what of the records is in its blocks.
        let begin = offset - offset % BLOCK as u64;
        let end_of_header = (offset + RECORD_HEADER as u64).next_multiple_of(BLOCK as u64);
        let mut blocks = Blocks::zeroed((end_of_header - begin) as usize);
        let read = file.read(&mut blocks, begin).map_err(cannot)?;
        debug_assert_eq!(read, blocks.len());
        let in_batch = (from - batch.position) as u32;
        let hole = RecordHeader::hole(in_batch, batch.used, batch.epoch);
        let in_block = (offset - begin) as usize;
        blocks[in_block..].fill(0);
        hole.encode(&layout.identity, from, &mut blocks[in_block..]);
        file.write(&blocks, begin, true).map_err(cannot)?;
        let end = layout.offset(batch.position) + batch.size();
        write_zeros::<S>(&file, end_of_header, end).map_err(cannot)
    }

    /// A segment's file that may be changed.
    fn file(&self, segment: u64) -> Result<Arc<S::File>, LogError> {
        match self.current {
            (current, file) if current == segment => Ok(Arc::clone(file)),
            _ => ahead::own_segment(&**self.storage, segment).map(Arc::new),
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
