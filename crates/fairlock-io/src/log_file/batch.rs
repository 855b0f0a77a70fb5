//! Records gathered for one write.

use std::io::IoSlice;

use crc32c::crc32c_append;

use super::blocks::Blocks;
use super::format::{
    self, BATCH_HEADER, BLOCK, BatchHeader, Kind, Layout, RECORD_HEADER, RecordHeader, blocks,
    record_room,
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
    key: Option<u64>,
    durable: bool,
    /// Bytes of its records, without headers and padding.
    payload: u64,
    bytes: Blocks,
}

/// A record to be added.
pub(crate) struct Measured<'a> {
    slices: &'a [IoSlice<'a>],
    length: usize,
    /// Its checksum.
    payload: u32,
}

impl<'a> Measured<'a> {
    pub(crate) fn of(slices: &'a [IoSlice<'a>]) -> Measured<'a> {
        let (length, payload) = slices.iter().fold((0_usize, 0), |(length, checksum), slice| {
            (length.saturating_add(slice.len()), crc32c_append(checksum, slice))
        });
        Measured { slices, length, payload }
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

/// How records are appended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Append {
    pub(crate) key: Option<u64>,
    pub(crate) durable: bool,
}

impl Batch {
    /// An empty one that continues a log whose last batch ends at `end`.
    pub(crate) fn new(layout: Layout, epoch: u32, most: usize, end: u64) -> Batch {
        let most = blocks(most);
        let start = layout.next_batch(end);
        let bytes = Blocks::zeroed(most);
        Batch {
            layout,
            epoch,
            most,
            start,
            used: BATCH_HEADER,
            records: 0,
            key: None,
            durable: false,
            payload: 0,
            bytes,
        }
    }

    /// Adds records that are to arrive together; the position of the first, and the others follow it. None if
    /// they must wait for the next batch.
    pub(crate) fn add(&mut self, records: &[Measured<'_>], append: Append) -> Option<u64> {
        let room: usize = records.iter().map(|record| record_room(record.length)).sum();
        let size = blocks(self.used + room);
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
        let first = self.start + self.used as u64;
        for (number, record) in (1..).zip(records) {
            self.push(record, number < records.len());
        }
        self.key = self.key.or(append.key);
        self.durable |= append.durable;
        Some(first)
    }

    fn push(&mut self, Measured { slices, length, payload }: &Measured<'_>, more: bool) {
        let at = self.used;
        let position = self.start + at as u64;
        let begin = at + RECORD_HEADER;
        let mut end = begin;
        for slice in *slices {
            self.bytes[end..end + slice.len()].copy_from_slice(slice);
            end += slice.len();
        }
        // The batch begins with a block.
        let mask = format::mask_for(begin as u64, &self.bytes[begin..end]);
        if mask != 0 {
            format::apply_mask(begin as u64, &mut self.bytes[begin..end], mask);
        }
        let header = RecordHeader {
            length: *length as u32,
            lost: false,
            more,
            payload: *payload,
            epoch: self.epoch,
            in_batch: at as u32,
            mask,
        };
        header.encode(&self.layout.identity, position, &mut self.bytes[at..begin]);
        self.used = at + record_room(*length);
        self.bytes[end..self.used].fill(0);
        self.records += 1;
        self.payload += *length as u64;
    }

    /// Whether somebody wants it on the device before it is acknowledged.
    pub(crate) fn is_durable(&self) -> bool {
        self.durable
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
            key: self.key,
        };
        header.encode(&self.layout.identity, &mut self.bytes[..BATCH_HEADER]);
        let size = blocks(self.used);
        self.bytes[self.used..size].fill(0);
        // Invariant 5 of `format.rs`.
        debug_assert!(!self.bytes[BLOCK..size].chunks(BLOCK).any(format::looks_like_batch));
        &self.bytes[..size]
    }

    fn begin(&mut self, start: u64) {
        self.start = start;
        self.used = BATCH_HEADER;
        self.records = 0;
        self.key = None;
        self.durable = false;
        self.payload = 0;
        if self.bytes.len() > self.most {
            // A larger record was the exception.
            self.bytes = Blocks::zeroed(self.most);
        }
    }
}

impl Gather for Batch {
    fn begin_after(&mut self, previous: &Batch) {
        self.begin(self.layout.next_batch(previous.end()));
    }

    fn begin_instead_of(&mut self, failed: &Batch) {
        self.begin(failed.start);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::format::{FIRST_BATCH, MOST_RECORD, looks_like_batch};
    use super::super::options::largest_record;
    use super::*;

    const LAYOUT: Layout = Layout { identity: [7; 16], segment_bytes: 32 << 20 };
    const MAGIC: [u8; 4] = *b"fBat";

    /// The records of a sealed batch, as they were appended.
    fn records(batch: &mut Batch) -> Vec<Vec<u8>> {
        let start = batch.start();
        let bytes = batch.seal(Kind::Records, 0).to_vec();
        assert!(looks_like_batch(&bytes));
        for block in bytes[BLOCK..].chunks(BLOCK) {
            assert!(!looks_like_batch(block), "a block looks like a batch");
        }
        let header = BatchHeader::decode(&LAYOUT, start, &bytes).expect("a header");
        let header = header.expect("a possible one");
        let mut found = Vec::new();
        let mut at = start + BATCH_HEADER as u64;
        while at < header.end_of_records() {
            let from = (at - start) as usize;
            let record = RecordHeader::decode(&LAYOUT.identity, at, &bytes[from..]).expect("one");
            assert_eq!(record.impossible_in(&header, at), None);
            let stored = &bytes[from + RECORD_HEADER..][..record.length as usize];
            assert!(record.is_of(at, stored));
            let mut payload = stored.to_vec();
            record.unmask(at, &mut payload);
            found.push(payload);
            at = record.end(at);
        }
        found
    }

    fn add(batch: &mut Batch, payload: &[u8]) {
        let slices = [IoSlice::new(payload)];
        batch.add(&[Measured::of(&slices)], Append::default()).expect("there is room");
    }

    #[test]
    fn the_largest_record_fills_the_largest_batch() {
        assert_eq!(largest_record(LAYOUT.segment_bytes), MOST_RECORD);
        let mut batch = Batch::new(LAYOUT, 1, BLOCK, FIRST_BATCH);
        // Each of its blocks would be a batch, with any of the first masks but the last.
        let mut payload = vec![0; MOST_RECORD];
        for (number, at) in (0..MOST_RECORD).skip(BLOCK - 72).step_by(BLOCK).enumerate() {
            let word = u32::from_le_bytes(MAGIC) ^ number as u32;
            payload[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        add(&mut batch, &payload);
        assert!(records(&mut batch) == [payload], "not what was appended");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Wherever payloads begin and end, and headers lie across blocks, and whatever they hold.
        #[test]
        fn no_block_of_a_batch_but_the_first_looks_like_a_batch(
            epoch in prop_oneof![Just(1), Just(u32::from_le_bytes(MAGIC))],
            lengths in prop::collection::vec((0..3_usize, 0..40_usize, 0..9_usize, 0..5_u8), 1..8),
        ) {
            let mut batch = Batch::new(LAYOUT, epoch, 1 << 20, FIRST_BATCH);
            let mut all = Vec::new();
            for (blocks, words, bytes, variant) in lengths {
                let length = (blocks * BLOCK + words * 8 + bytes).saturating_sub(160);
                let payload: Vec<u8> = match variant {
                    // At every place, as magic numbers, and as what the first masks make of others.
                    0..4 => MAGIC.iter().enumerate()
                        .map(|(at, byte)| if at == 0 { byte ^ variant } else { *byte })
                        .chain(MAGIC).cycle().take(length).collect(),
                    _ => vec![0; length],
                };
                add(&mut batch, &payload);
                all.push(payload);
            }
            if epoch == 1 {
                prop_assert!(records(&mut batch) == all);
            } else {
                // The epoch alone is no header.
                let start = batch.start();
                let bytes = batch.bytes[..blocks(batch.used)].to_vec();
                for (number, block) in bytes.chunks(BLOCK).enumerate().skip(1) {
                    let at = start + (number * BLOCK) as u64;
                    prop_assert_eq!(BatchHeader::decode(&LAYOUT, at, block), None);
                }
            }
        }
    }
}
