//! The single changes that mend a log: what each covers, and how it is written so that the next repair can
//! finish it after a crash.
//!
//! A change replaces the bytes that it covers with zeros and a header that stands for them. The zeros are
//! written first: until the header is there, the place is as damaged as before, and the next repair finds it.
//! The header is written together with the intact bytes of its blocks, which do not change, so they stay intact
//! if the write is torn.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::ahead;
use super::blocks::Blocks;
use super::error::LogError;
use super::format::{
    BATCH_HEADER, BLOCK, BatchHeader, FIRST_BATCH, Kind, Layout, RECORD_HEADER, RecordHeader,
    SegmentHeader,
};
use super::opening;
use super::segments::{self, NAME_WHILE_NEW};
use super::storage::{Storage, StoredFile};

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mend {
    /// The first block of a segment.
    Header { segment: u64, epoch: u32 },
    /// Files that are missing. What was in them is covered, up to where the next batch begins, if it was a part
    /// of the log.
    Missing { segments: Range<u64>, epoch: u32, to: Option<u64> },
    /// The header of a batch.
    Batch(BatchHeader),
    /// Records of a batch are covered.
    Hole { batch: BatchHeader, from: u64, to: u64 },
    /// Batches are covered, up to where the next one begins.
    Gap { from: u64, to: u64, epoch: u32, durable: u64 },
    /// The rest of a batch's last block, behind all records.
    Tail { from: u64, to: u64 },
    /// A block behind the end of the log.
    Blank { at: u64 },
}

impl Mend {
    /// Where the bytes that it changes begin.
    pub(crate) fn begin(&self, layout: &Layout) -> u64 {
        match *self {
            Mend::Header { segment, .. } => layout.start(segment),
            Mend::Missing { ref segments, .. } => layout.first_batch(segments.start),
            Mend::Batch(batch) => batch.position,
            Mend::Hole { from, .. } | Mend::Gap { from, .. } | Mend::Tail { from, .. } => from,
            Mend::Blank { at } => at,
        }
    }

    /// One past the last.
    pub(crate) fn end(&self, layout: &Layout) -> u64 {
        match *self {
            Mend::Header { segment, .. } => layout.first_batch(segment),
            Mend::Missing { ref segments, .. } => layout.start(segments.end),
            // Of what it concerns.
            Mend::Batch(batch) => batch.end_of_records(),
            Mend::Hole { to, .. } | Mend::Tail { to, .. } => to,
            Mend::Gap { from, to, .. } => to.min(layout.end(layout.segment(from))),
            Mend::Blank { at } => at + BLOCK as u64,
        }
    }

    /// What is lost of the bytes that are there, to be saved.
    pub(crate) fn changes(&self, layout: &Layout) -> Option<Range<u64>> {
        match self {
            Mend::Missing { .. } => None,
            Mend::Batch(batch) => Some(batch.position..batch.position + BATCH_HEADER as u64),
            _ => Some(self.begin(layout)..self.end(layout)),
        }
    }
}

/// Makes the changes.
pub(crate) struct Mending<'a, S: Storage> {
    storage: &'a Arc<S>,
    layout: Layout,
    /// Files that were opened to be changed.
    files: BTreeMap<u64, S::File>,
}

impl<'a, S: Storage> Mending<'a, S> {
    pub(crate) fn new(storage: &'a Arc<S>, layout: Layout) -> Mending<'a, S> {
        Mending { storage, layout, files: BTreeMap::new() }
    }

    pub(crate) fn make(&mut self, mend: &Mend) -> Result<(), LogError> {
        let layout = self.layout;
        if let Mend::Missing { segments, epoch, to } = mend {
            // The last first: what is missing is then still one piece.
            for segment in segments.clone().rev() {
                self.make_segment(segment, *epoch, *to)?;
            }
            return Ok(());
        }
        let begin = mend.begin(&layout);
        let segment = layout.segment(begin);
        // One file at a time: mends come in the order of positions, but for few.
        if !self.files.contains_key(&segment) {
            self.files.clear();
            let file = opening::open_own(&**self.storage, segment, u64::MAX)?;
            self.files.insert(segment, file);
        }
        let file = &self.files[&segment];
        self.change(file, mend).map_err(|error| {
            let path = self.storage.path().join(segments::name_of(segment));
            LogError::system("repair", &path, error).at(segment, layout.offset(begin))
        })
    }

    fn change(&self, file: &S::File, mend: &Mend) -> io::Result<()> {
        let layout = &self.layout;
        let identity = &layout.identity;
        match *mend {
            Mend::Missing { .. } => Ok(()),
            Mend::Header { segment, epoch } => {
                let mut block = Blocks::zeroed(BLOCK);
                SegmentHeader { layout: *layout, segment, epoch }.encode(&mut block);
                file.write(&block, 0, true)
            }
            Mend::Batch(batch) => {
                let begin = layout.offset(batch.position);
                overwrite(file, begin, begin + BATCH_HEADER as u64, |bytes| {
                    batch.encode(identity, bytes);
                })
            }
            Mend::Hole { batch, from, to } => {
                let offset = layout.offset(from);
                let end = offset + (to - from);
                let end_of_header = (offset + RECORD_HEADER as u64).next_multiple_of(BLOCK as u64);
                write_zeros(file, end_of_header, end)?;
                let used = (to - batch.position) as u32;
                let hole = RecordHeader::hole((from - batch.position) as u32, used, batch.epoch);
                overwrite(file, offset, end.min(end_of_header), |bytes| {
                    bytes.fill(0);
                    hole.encode(identity, from, bytes);
                })
            }
            Mend::Gap { from, to, epoch, durable } => {
                let offset = layout.offset(from);
                let rest = offset + BLOCK as u64;
                match layout.segment(to) == layout.segment(from) {
                    true => write_zeros(file, rest, layout.offset(to))?,
                    false => file.set_len(rest)?,
                }
                file.write(&gap(layout, from, to, epoch, durable), offset, true)
            }
            Mend::Tail { from, to } => {
                let offset = layout.offset(from);
                overwrite(file, offset, offset + (to - from), |bytes| bytes.fill(0))
            }
            Mend::Blank { at } => file.write(&Blocks::zeroed(BLOCK), layout.offset(at), true),
        }
    }

    fn make_segment(&self, segment: u64, epoch: u32, to: Option<u64>) -> Result<(), LogError> {
        let layout = self.layout;
        let make = || {
            match self.storage.remove(NAME_WHILE_NEW) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let file = self.storage.create(NAME_WHILE_NEW)?;
            let mut block = Blocks::zeroed(BLOCK);
            SegmentHeader { layout, segment, epoch }.encode(&mut block);
            file.write(&block, 0, true)?;
            if let Some(to) = to {
                let from = layout.first_batch(segment);
                let to = to.min(layout.first_batch(segment + 1));
                file.write(&gap(&layout, from, to, epoch, 0), FIRST_BATCH, true)?;
            }
            file.sync()?;
            self.storage.rename_new(NAME_WHILE_NEW, &segments::name_of(segment))?;
            self.storage.sync_names()
        };
        make().map_err(|error| {
            let path = self.storage.path().join(segments::name_of(segment));
            LogError::system("make", &path, error).at(segment, 0)
        })
    }
}

fn gap(layout: &Layout, from: u64, to: u64, epoch: u32, durable: u64) -> Blocks {
    let mut block = Blocks::zeroed(BLOCK);
    let kind = Kind::Gap { to };
    let used = BATCH_HEADER as u32;
    BatchHeader { kind, position: from, epoch, durable, used, records: 0, key: None }
        .encode(&layout.identity, &mut block);
    block
}

/// Changes bytes in blocks that hold others, which stay as they are. What cannot be read, or is behind the end
/// of the file, becomes zeros.
fn overwrite<F: StoredFile>(
    file: &F,
    from: u64,
    to: u64,
    change: impl FnOnce(&mut [u8]),
) -> io::Result<()> {
    let begin = from - from % BLOCK as u64;
    let mut bytes = Blocks::zeroed((to.next_multiple_of(BLOCK as u64) - begin) as usize);
    for (number, block) in bytes.chunks_mut(BLOCK).enumerate() {
        read_block(file, begin + (number * BLOCK) as u64, block)?;
    }
    change(&mut bytes[(from - begin) as usize..(to - begin) as usize]);
    file.write(&bytes, begin, true)
}

/// What there is of a block; zeros, and false, if the device cannot read it.
pub(crate) fn read_block<F: StoredFile>(
    file: &F,
    offset: u64,
    block: &mut [u8],
) -> io::Result<bool> {
    // The address is to be that of a block.
    let mut read = Blocks::zeroed(BLOCK);
    match file.read(&mut read, offset) {
        Ok(size) => {
            block.fill(0);
            block[..size].copy_from_slice(&read[..size]);
            Ok(true)
        }
        Err(error) if error.raw_os_error() == Some(libc::EIO) => {
            block.fill(0);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Overwrites from the beginning of a block to any byte.
fn write_zeros<F: StoredFile>(file: &F, from: u64, to: u64) -> io::Result<()> {
    if from >= to {
        return Ok(());
    }
    let last = to - to % BLOCK as u64;
    let zeros =
        Blocks::zeroed(ahead::CHUNK.min((to - from).next_multiple_of(BLOCK as u64) as usize));
    let mut at = from;
    while at < last {
        let size = zeros.len().min((last - at) as usize);
        file.write(&zeros[..size], at, false)?;
        at += size as u64;
    }
    if last < to {
        overwrite(file, last, to, |bytes| bytes.fill(0))?;
    }
    file.sync()
}
