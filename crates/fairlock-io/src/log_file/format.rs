//! What a log looks like on disk: the bytes, and what makes them valid. No files here.
//!
//! A log is a directory of segment files of one size and a file `control` (see `control.rs`). A position
//! is a byte's place in all segments put together, those that are gone included: `segment ×
//! segment_bytes + offset`. All numbers are little endian.
//!
//! ```text
//! segment   0        4096           8192 …
//!           ┌────────┬──────────────┬──────────────────────┬───┬───────┐
//!           │ header │ batch        │ batch                │ … │ zeros │
//!           └────────┴──────────────┴──────────────────────┴───┴───────┘
//! batch     ┌──────────────┬──────────────────────┬──────────────────────┬─────────┐
//!           │ batch header │ record header, bytes │ record header, bytes │ padding │
//!           └──────────────┴──────────────────────┴──────────────────────┴─────────┘
//!           a multiple of 4096; records begin at multiples of 8
//! ```
//!
//! A batch is what one write brings to the disk: all records that were submitted while the one before was
//! written. No block is written twice while it holds a record, so a write that is torn can damage nothing
//! that was acknowledged before.
//!
//! Invariants:
//!
//! 1. The checksum of every header covers the log's identity, its own position and its *epoch*, and the
//!    record header's covers the checksum of the record's bytes. A position never returns, so whatever a
//!    recycled segment still holds of its earlier life does not check.
//! 2. The epoch counts how often the log was opened for writing. Each opening first writes a batch without
//!    records ([`Kind::Opening`]), which is on the device before anything follows. Along a log epochs never
//!    fall, and a segment's batches are not older than its header, so what an earlier opening left behind
//!    the place where its log ended is not taken for a continuation.
//! 3. A batch is written when the one before has been written whole, in full to the device if that is the
//!    policy. It says below which position all is known to be on the device (`durable`). A batch that takes
//!    the place of one whose write failed is on the device before anything follows: what failed may have
//!    arrived, and has the same position and epoch.
//! 4. What remains of a segment when a batch does not fit is begun by a batch without records
//!    ([`Kind::End`]), unless nothing remains. Segments come to the device in their order; below the
//!    `durable` of a segment's first batch all of them are.

use crc32c::{crc32c, crc32c_append};

/// What everything is aligned to and padded to: what O_DIRECT asks for on any disk of today, and the
/// least that devices replace as a whole.
pub(crate) const BLOCK: usize = 4096;
/// The version of the format that this code writes; it reads all earlier ones.
pub(crate) const VERSION: u32 = 2;
/// The first batch of a segment.
pub(crate) const FIRST_BATCH: u64 = BLOCK as u64;
/// Of a batch's header.
pub(crate) const BATCH_HEADER: usize = 48;
/// Of a record's header.
pub(crate) const RECORD_HEADER: usize = 24;
/// Records begin at multiples of this.
pub(crate) const RECORD_ALIGNMENT: usize = 8;

const SEGMENT_MAGIC: [u8; 8] = *b"fairlogS";
const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"fBat");

/// Which log, drawn at random when it is created: what another log wrote does not check.
pub(crate) type Identity = [u8; 16];

/// `size` up to the next multiple of [`BLOCK`].
pub(crate) const fn blocks(size: usize) -> usize {
    size.next_multiple_of(BLOCK)
}

/// The room that a record of `length` bytes takes in a batch.
pub(crate) const fn record_room(length: usize) -> usize {
    (RECORD_HEADER + length).next_multiple_of(RECORD_ALIGNMENT)
}

/// The shape of a log's segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) identity: Identity,
    pub(crate) segment_bytes: u64,
}

/// The smallest segment, in bytes.
pub(crate) const LEAST_SEGMENT: u64 = 64 << 10;
/// The largest.
pub(crate) const MOST_SEGMENT: u64 = 1 << 40;

impl Layout {
    /// None for a size that no segments have.
    pub(crate) fn checked(identity: Identity, segment_bytes: u64) -> Option<Layout> {
        let is_fine = segment_bytes.is_multiple_of(BLOCK as u64)
            && (LEAST_SEGMENT..=MOST_SEGMENT).contains(&segment_bytes);
        is_fine.then_some(Layout { identity, segment_bytes })
    }

    pub(crate) fn segment(&self, position: u64) -> u64 {
        position / self.segment_bytes
    }

    pub(crate) fn offset(&self, position: u64) -> u64 {
        position % self.segment_bytes
    }

    /// The segment of what ends here.
    pub(crate) fn segment_before(&self, end: u64) -> u64 {
        self.segment(end - 1)
    }

    /// Where the segment's first batch is.
    pub(crate) fn first_batch(&self, segment: u64) -> u64 {
        segment * self.segment_bytes + FIRST_BATCH
    }

    /// One past the segment's last byte.
    pub(crate) fn end(&self, segment: u64) -> u64 {
        (segment + 1) * self.segment_bytes
    }

    /// Where a batch that ends here is followed by the next: here, or past the next segment's header.
    pub(crate) fn next_batch(&self, end: u64) -> u64 {
        match self.offset(end) {
            0 => end + FIRST_BATCH,
            _ => end,
        }
    }
}

/// The first block of every segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) layout: Layout,
    pub(crate) segment: u64,
    /// The epoch in which the file was made, or made ready again.
    pub(crate) epoch: u32,
}

/// Why a segment's first block is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadSegment {
    /// It does not begin as one.
    NotALog,
    /// By a later version of this library.
    Newer(u32),
    /// It begins as one, but its checksum is wrong.
    Damaged,
}

impl SegmentHeader {
    pub(crate) fn encode(&self, block: &mut [u8]) {
        block[..BLOCK].fill(0);
        block[..8].copy_from_slice(&SEGMENT_MAGIC);
        put_u32(block, 8, VERSION);
        put_u32(block, 12, self.epoch);
        put_u64(block, 16, self.layout.segment_bytes);
        put_u64(block, 24, self.segment);
        block[32..48].copy_from_slice(&self.layout.identity);
        let checksum = crc32c(&block[..48]);
        put_u32(block, 48, checksum);
    }

    pub(crate) fn decode(block: &[u8]) -> Result<SegmentHeader, BadSegment> {
        if block.len() < BLOCK || block[..8] != SEGMENT_MAGIC {
            return Err(BadSegment::NotALog);
        }
        // Before the checksum: what a later version's covers is not known.
        match u32_at(block, 8) {
            1..=VERSION => {}
            found if found > VERSION => return Err(BadSegment::Newer(found)),
            _ => return Err(BadSegment::Damaged),
        }
        if u32_at(block, 48) != crc32c(&block[..48]) {
            return Err(BadSegment::Damaged);
        }
        let identity = block[32..48].try_into().expect("sixteen bytes");
        Ok(SegmentHeader {
            layout: Layout { identity, segment_bytes: u64_at(block, 16) },
            segment: u64_at(block, 24),
            epoch: u32_at(block, 12),
        })
    }
}

/// What a batch is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Records.
    Records = 1,
    /// No records: the log was opened for writing.
    Opening = 2,
    /// No records: the rest of the segment is not used.
    End = 3,
}

/// Begins a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) kind: Kind,
    pub(crate) position: u64,
    pub(crate) epoch: u32,
    /// All below this was on the device when the batch was written.
    pub(crate) durable: u64,
    /// Bytes of the batch, without padding; [`BATCH_HEADER`] if it has no records.
    pub(crate) used: u32,
    pub(crate) records: u32,
}

impl BatchHeader {
    pub(crate) fn encode(&self, identity: &Identity, bytes: &mut [u8]) {
        put_u32(bytes, 0, BATCH_MAGIC);
        put_u32(bytes, 4, self.kind as u32);
        put_u64(bytes, 8, self.position);
        put_u64(bytes, 16, self.durable);
        put_u32(bytes, 24, self.epoch);
        put_u32(bytes, 28, self.used);
        put_u32(bytes, 32, self.records);
        put_u32(bytes, 36, 0);
        put_u32(bytes, 40, 0);
        let checksum = Self::checksum(identity, bytes);
        put_u32(bytes, 44, checksum);
    }

    /// The header at `position`, if these bytes are one.
    pub(crate) fn decode(identity: &Identity, position: u64, bytes: &[u8]) -> Option<BatchHeader> {
        if bytes.len() < BATCH_HEADER
            || u32_at(bytes, 0) != BATCH_MAGIC
            || u64_at(bytes, 8) != position
            || u32_at(bytes, 44) != Self::checksum(identity, bytes)
        {
            return None;
        }
        let kind = match u32_at(bytes, 4) {
            1 => Kind::Records,
            2 => Kind::Opening,
            3 => Kind::End,
            _ => return None,
        };
        Some(BatchHeader {
            kind,
            position,
            durable: u64_at(bytes, 16),
            epoch: u32_at(bytes, 24),
            used: u32_at(bytes, 28),
            records: u32_at(bytes, 32),
        })
    }

    /// The bytes it takes in its segment.
    pub(crate) fn size(&self) -> u64 {
        blocks(self.used as usize) as u64
    }

    fn checksum(identity: &Identity, bytes: &[u8]) -> u32 {
        crc32c_append(crc32c(identity), &bytes[..44])
    }
}

/// Precedes a record's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) length: u32,
    /// CRC32C of the bytes.
    pub(crate) payload: u32,
    pub(crate) epoch: u32,
    /// From the batch's beginning to this header: who knows a record's position finds its batch.
    pub(crate) in_batch: u32,
}

impl RecordHeader {
    pub(crate) fn encode(&self, identity: &Identity, position: u64, bytes: &mut [u8]) {
        put_u32(bytes, 0, self.length);
        put_u32(bytes, 4, self.payload);
        put_u32(bytes, 8, self.epoch);
        put_u32(bytes, 12, self.in_batch);
        put_u32(bytes, 16, 0);
        let checksum = Self::checksum(identity, position, bytes);
        put_u32(bytes, 20, checksum);
    }

    /// The header at `position`, if these bytes are one. The record's bytes are not looked at.
    pub(crate) fn decode(identity: &Identity, position: u64, bytes: &[u8]) -> Option<RecordHeader> {
        if bytes.len() < RECORD_HEADER
            || u32_at(bytes, 20) != Self::checksum(identity, position, bytes)
        {
            return None;
        }
        Some(RecordHeader {
            length: u32_at(bytes, 0),
            payload: u32_at(bytes, 4),
            epoch: u32_at(bytes, 8),
            in_batch: u32_at(bytes, 12),
        })
    }

    /// What a header would say of its place in its batch, before its checksum is looked at; none if there
    /// are too few bytes.
    pub(crate) fn in_batch_of(bytes: &[u8]) -> Option<u32> {
        (bytes.len() >= 16).then(|| u32_at(bytes, 12))
    }

    fn checksum(identity: &Identity, position: u64, bytes: &[u8]) -> u32 {
        let checksum = crc32c_append(crc32c(identity), &position.to_le_bytes());
        crc32c_append(checksum, &bytes[..20])
    }
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = [7; 16];

    #[test]
    fn headers_come_back_as_they_were() {
        let mut block = vec![0xAA; BLOCK];
        let layout = Layout { identity: IDENTITY, segment_bytes: 1 << 20 };
        let segment = SegmentHeader { layout, segment: 5, epoch: 3 };
        segment.encode(&mut block);
        assert_eq!(SegmentHeader::decode(&block), Ok(segment));

        let batch = BatchHeader {
            kind: Kind::Records,
            position: 8192,
            epoch: 3,
            durable: 4096,
            used: 100,
            records: 2,
        };
        batch.encode(&IDENTITY, &mut block);
        assert_eq!(BatchHeader::decode(&IDENTITY, 8192, &block), Some(batch));

        let record = RecordHeader { length: 9, payload: 1234, epoch: 3, in_batch: 48 };
        record.encode(&IDENTITY, 8240, &mut block);
        assert_eq!(RecordHeader::decode(&IDENTITY, 8240, &block), Some(record));
    }

    #[test]
    fn a_header_at_another_position_or_of_another_log_is_none() {
        let mut bytes = vec![0; BLOCK];
        let batch = BatchHeader {
            kind: Kind::Records,
            position: 8192,
            epoch: 3,
            durable: 0,
            used: 48,
            records: 0,
        };
        batch.encode(&IDENTITY, &mut bytes);
        assert_eq!(BatchHeader::decode(&IDENTITY, 12288, &bytes), None);
        assert_eq!(BatchHeader::decode(&[8; 16], 8192, &bytes), None);

        let record = RecordHeader { length: 9, payload: 1234, epoch: 3, in_batch: 48 };
        record.encode(&IDENTITY, 8240, &mut bytes);
        assert_eq!(RecordHeader::decode(&IDENTITY, 8248, &bytes), None);
        assert_eq!(RecordHeader::decode(&[8; 16], 8240, &bytes), None);
    }

    #[test]
    fn every_flipped_bit_of_a_header_shows() {
        let mut block = vec![0; BLOCK];
        let layout = Layout { identity: IDENTITY, segment_bytes: 1 << 20 };
        SegmentHeader { layout, segment: 5, epoch: 3 }.encode(&mut block);
        for bit in 0..52 * 8 {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&flipped).is_err(), "bit {bit}");
        }
        let batch = BatchHeader {
            kind: Kind::End,
            position: 8192,
            epoch: 3,
            durable: 77,
            used: 48,
            records: 0,
        };
        batch.encode(&IDENTITY, &mut block);
        for bit in 0..BATCH_HEADER * 8 {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BatchHeader::decode(&IDENTITY, 8192, &flipped), None, "bit {bit}");
        }
        let record = RecordHeader { length: 9, payload: 1234, epoch: 3, in_batch: 48 };
        record.encode(&IDENTITY, 8240, &mut block);
        for bit in 0..RECORD_HEADER * 8 {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&IDENTITY, 8240, &flipped), None, "bit {bit}");
        }
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let mut block = vec![0; BLOCK];
        let layout = Layout { identity: IDENTITY, segment_bytes: 1 << 20 };
        SegmentHeader { layout, segment: 0, epoch: 1 }.encode(&mut block);
        put_u32(&mut block, 8, VERSION + 1);
        assert_eq!(SegmentHeader::decode(&block), Err(BadSegment::Newer(VERSION + 1)));
        assert_eq!(SegmentHeader::decode(&[0; BLOCK]), Err(BadSegment::NotALog));
    }
}
