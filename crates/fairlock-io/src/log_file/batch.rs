//! Records gathered for one write.

use std::io::IoSlice;

use crc32c::crc32c_append;

use super::blocks::Blocks;
use super::format::{
    BATCH_HEADER, BatchHeader, Kind, Layout, RECORD_HEADER, RecordHeader, blocks, record_room,
};
use super::group::Gather;

/// A batch in memory, laid out as it is written.
///
/// Its place is known from the beginning, so that every record's position is known when it is added.
pub(crate) struct Batch {
    layout: Layout,
    epoch: u32,
    /// The most it gathers, in bytes, but for a single record that is larger.
    most: usize,
    start: u64,
    used: usize,
    records: u32,
    /// Bytes of its records, without headers and padding.
    payload: u64,
    bytes: Blocks,
}

impl Batch {
    /// An empty one that continues a log whose last batch ends at `end`.
    pub(crate) fn new(layout: Layout, epoch: u32, most: usize, end: u64) -> Batch {
        let most = blocks(most);
        let start = layout.next_batch(end);
        let bytes = Blocks::zeroed(most);
        Batch { layout, epoch, most, start, used: BATCH_HEADER, records: 0, payload: 0, bytes }
    }

    /// Adds a record of `length` bytes whose checksum is `payload`; its position. None if it must wait for
    /// the next batch.
    pub(crate) fn add(
        &mut self,
        slices: &[IoSlice<'_>],
        length: usize,
        payload: u32,
    ) -> Option<u64> {
        let size = blocks(self.used + record_room(length));
        let fits_segment =
            self.layout.offset(self.start) + size as u64 <= self.layout.segment_bytes;
        if self.records > 0 {
            if size > self.most || !fits_segment {
                return None;
            }
        } else if !fits_segment {
            self.start = self.layout.first_batch(self.layout.segment(self.start) + 1);
        }
        self.bytes.grow(size);
        let at = self.used;
        let position = self.start + at as u64;
        let header =
            RecordHeader { length: length as u32, payload, epoch: self.epoch, in_batch: at as u32 };
        header.encode(&self.layout.identity, position, &mut self.bytes[at..at + RECORD_HEADER]);
        let mut end = at + RECORD_HEADER;
        for slice in slices {
            self.bytes[end..end + slice.len()].copy_from_slice(slice);
            end += slice.len();
        }
        self.used = at + record_room(length);
        self.bytes[end..self.used].fill(0);
        self.records += 1;
        self.payload += length as u64;
        Some(position)
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// One past its last byte, padding included.
    pub(crate) fn end(&self) -> u64 {
        self.start + blocks(self.used) as u64
    }

    pub(crate) fn records(&self) -> u32 {
        self.records
    }

    /// Bytes of its records, without headers and padding.
    pub(crate) fn payload(&self) -> u64 {
        self.payload
    }

    pub(crate) fn segment(&self) -> u64 {
        self.layout.segment(self.start)
    }

    /// Completes it with its header and padding: what is to be written.
    pub(crate) fn seal(&mut self, kind: Kind, durable: u64) -> &[u8] {
        let header = BatchHeader {
            kind,
            position: self.start,
            epoch: self.epoch,
            durable,
            used: self.used as u32,
            records: self.records,
        };
        header.encode(&self.layout.identity, &mut self.bytes[..BATCH_HEADER]);
        let size = blocks(self.used);
        self.bytes[self.used..size].fill(0);
        &self.bytes[..size]
    }

    fn begin(&mut self, start: u64) {
        self.start = start;
        self.used = BATCH_HEADER;
        self.records = 0;
        self.payload = 0;
        if self.bytes.len() > self.most {
            // A larger record was the exception.
            self.bytes = Blocks::zeroed(self.most);
        }
    }
}

impl Gather for Batch {
    fn is_empty(&self) -> bool {
        self.records == 0
    }

    fn begin_after(&mut self, previous: &Batch) {
        self.begin(self.layout.next_batch(previous.end()));
    }

    fn begin_instead_of(&mut self, failed: &Batch) {
        self.begin(failed.start);
    }
}

/// The bytes in all slices, and their checksum.
pub(crate) fn measure(slices: &[IoSlice<'_>]) -> (usize, u32) {
    slices.iter().fold((0, 0), |(length, checksum), slice| {
        (length.saturating_add(slice.len()), crc32c_append(checksum, slice))
    })
}
