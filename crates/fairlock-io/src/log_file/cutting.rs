//! Cuts off the end of a log: records that turned out not to be part of it.
//!
//! Positions never return, so nothing is appended where the records were. They are covered: the rest of a
//! batch by a hole, whole batches by gaps, one for each segment (invariant 7 of `format.rs`).
//!
//! That takes several writes, in blocks that hold other records. So the control page says first what is cut
//! off. From then on readers skip that range, whatever is in it, and the next opening after a crash covers it
//! again. When all of it is covered, the page keeps only where the cut began.
//!
//! A reader that has given records behind that place says so to its caller, once, and goes on there: what was
//! appended since, and is still part of the log, comes next, however often the log was cut meanwhile.

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
use super::segments::{self, Inventory};
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

    /// Whether anybody can have cut this.
    pub(crate) fn is_possible(&self) -> bool {
        let &Cut { batch, used, epoch: _, at, end } = self;
        batch < POSITIONS
            && batch % (BLOCK as u64) == 0
            && end % (BLOCK as u64) == 0
            && end < POSITIONS
            && (batch..batch + u64::from(used)).contains(&at)
            && at < end
            && (BATCH_HEADER..=MOST_BATCH).contains(&(used as usize))
    }

    /// Where the first batch begins that is covered as a whole.
    fn gap(&self) -> u64 {
        match self.at == self.batch {
            true => self.batch,
            false => self.batch + blocks(self.used as usize) as u64,
        }
    }
}

/// How often a log was cut, where, and what of it is not yet covered. Readers see all of a change or nothing: a
/// cut that they hear of is one that they pass over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cuts {
    count: u64,
    /// Where the last ones began, the latest first.
    begun: [u64; NOTED],
    /// The latest, until it is covered.
    pending: Option<Cut>,
}

/// Cuts whose places are noted.
const NOTED: usize = 10;

impl Cuts {
    pub(crate) const WORDS: usize = 1 + NOTED + 4;

    /// With one more.
    pub(crate) fn and(self, cut: &Cut) -> Cuts {
        Cuts { pending: Some(*cut), ..self.and_from(cut.at) }
    }

    /// With one more, of which nothing has to be covered.
    pub(crate) fn and_from(self, at: u64) -> Cuts {
        let mut begun = self.begun;
        begun.rotate_right(1);
        begun[0] = at;
        Cuts { count: self.count.wrapping_add(1), begun, pending: None }
    }

    /// All of it is covered.
    pub(crate) fn covered(self) -> Cuts {
        Cuts { pending: None, ..self }
    }

    pub(crate) fn pending(&self) -> Option<Cut> {
        self.pending
    }

    /// Where the first of the places begins that were cut off since; 0 if more was than is noted.
    pub(crate) fn since(self, before: Cuts) -> Option<u64> {
        match self.count.wrapping_sub(before.count) {
            0 => None,
            count @ 1..=MOST_NOTED => self.begun[..count as usize].iter().min().copied(),
            _ => Some(0),
        }
    }

    pub(crate) fn to_words(self) -> [u64; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        words[0] = self.count;
        words[1..][..NOTED].copy_from_slice(&self.begun);
        if let Some(Cut { batch, used, epoch, at, end }) = self.pending {
            let of_batch = u64::from(used) | u64::from(epoch) << 32;
            words[1 + NOTED..].copy_from_slice(&[batch, of_batch, at, end]);
        }
        words
    }

    pub(crate) fn from_words(words: [u64; Self::WORDS]) -> Cuts {
        let begun = words[1..][..NOTED].try_into().expect("so many");
        let [batch, of_batch, at, end] = words[1 + NOTED..] else { unreachable!("so many") };
        let (used, epoch) = (of_batch as u32, (of_batch >> 32) as u32);
        let pending = (end != 0).then_some(Cut { batch, used, epoch, at, end });
        Cuts { count: words[0], begun, pending }
    }
}

const MOST_NOTED: u64 = NOTED as u64;

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
        let last = layout.segment_before(cut.end);
        let inventory = Inventory::of(&**self.storage);
        let inventory =
            inventory.map_err(|error| LogError::system("list", self.storage.path(), error))?;
        let is_later = |segment: &&u64| (layout.segment_before(gap) + 1..=last).contains(*segment);
        for &segment in inventory.segments.iter().filter(is_later) {
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
        if let Some((current, file)) = self.current {
            if current == segment {
                return Ok(Some(Arc::clone(file)));
            }
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
