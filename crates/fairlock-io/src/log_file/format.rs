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
//! 5. A payload is data. Of a batch's blocks the first alone begins with the magic number of batches, so
//!    that who looks for batches block by block finds none in a record's bytes. Of the later blocks,
//!
//!    * one that begins in a payload begins with four of its bytes, XORed with the record's `mask`, which is
//!      chosen such that no block of this payload begins with the magic number, and is 0 unless one would;
//!    * one that ends a payload with fewer bytes goes on with the zeros of padding, which the magic number
//!      does not end with;
//!    * one that begins with a record's header, or in the middle of one, begins with a length, which is
//!      smaller than the magic number or has its highest bit set, with a mask, which is smaller, too, or
//!      with an epoch; the header's place in its batch is then where a batch has its kind, and is none.
//!
//!    Nothing of the kind keeps headers of *records* out of payloads: a place where a record seems to begin
//!    is one only if the chain of headers from the batch's first record on comes to it.
//! 6. Every number in a header is checked before it is used, even if the checksum is right: who can write the
//!    files can make checksums. `decode` says which number is impossible.
//! 7. What is given up in the middle of a log is covered: records of one batch by a *hole*, which is a
//!    record's header that says so ([`RecordHeader::lost`]); whole batches, and what may have been some, by
//!    a batch that says where the log goes on ([`Kind::Gap`]). Who makes one writes it first, and then zeros
//!    over the rest of what it covers, so that no position in it is a record's. Over what is damaged the zeros
//!    come first: until the header is there, the place is damaged, and a repair finds it again.
//!
//! Version 1 has no masks, holes, gaps and keys. It is read as version 2, since what these use was zero; but
//! its payloads may begin blocks as they like, so for what was written by it invariant 5 does not hold.

use std::collections::HashSet;

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
/// The smallest segment.
const LEAST_SEGMENT: u64 = 64 << 10;
/// The largest segment.
const MOST_SEGMENT: u64 = 1 << 40;
/// The largest batch: what a reader or a writer holds in memory at most.
pub(crate) const MOST_BATCH: usize = 16 << 20;
/// The largest record: it fills the largest batch.
pub(crate) const MOST_RECORD: usize = MOST_BATCH - BATCH_HEADER - RECORD_HEADER;
/// All positions are below: far more than any log writes, and so little that sums of a position and a
/// segment's size fit.
pub(crate) const POSITIONS: u64 = 1 << 62;

const SEGMENT_MAGIC: [u8; 8] = *b"fairlogS";
const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"fBat");
/// In a batch's kind: there is a key.
const HAS_KEY: u32 = 1 << 8;
/// In a record's length: it is a hole.
const LOST: u32 = 1 << 31;
/// And that the next record was appended together with it.
const MORE: u32 = 1 << 30;
// See invariant 5.
const _: () = assert!((MOST_RECORD | MORE as usize) < BATCH_MAGIC as usize && BATCH_MAGIC < LOST);

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

impl Layout {
    /// None if no log has segments of this size.
    pub(crate) fn checked(identity: Identity, segment_bytes: u64) -> Option<Layout> {
        let is_size = (LEAST_SEGMENT..=MOST_SEGMENT).contains(&segment_bytes)
            && segment_bytes % (BLOCK as u64) == 0;
        is_size.then_some(Layout { identity, segment_bytes })
    }

    /// Whether a log can have a segment of this number.
    pub(crate) fn may_have(&self, segment: u64) -> bool {
        segment < POSITIONS / self.segment_bytes
    }

    /// Whether a batch can begin here.
    pub(crate) fn is_place_of_batch(&self, position: u64) -> bool {
        position < POSITIONS
            && position % (BLOCK as u64) == 0
            && self.offset(position) >= FIRST_BATCH
    }

    pub(crate) fn segment(&self, position: u64) -> u64 {
        position / self.segment_bytes
    }

    pub(crate) fn offset(&self, position: u64) -> u64 {
        position % self.segment_bytes
    }

    // What follows saturates, for numbers that are not known to be a log's.

    /// The segment of what ends here.
    pub(crate) fn segment_before(&self, end: u64) -> u64 {
        self.segment(end.saturating_sub(1))
    }

    /// Where the segment begins.
    pub(crate) fn start(&self, segment: u64) -> u64 {
        segment.saturating_mul(self.segment_bytes)
    }

    /// Where the segment's first batch is.
    pub(crate) fn first_batch(&self, segment: u64) -> u64 {
        self.start(segment).saturating_add(FIRST_BATCH)
    }

    /// One past the segment's last byte.
    pub(crate) fn end(&self, segment: u64) -> u64 {
        self.start(segment.saturating_add(1))
    }

    /// Where a batch that ends here is followed by the next: here, or past the next segment's header.
    pub(crate) fn next_batch(&self, end: u64) -> u64 {
        match self.offset(end) {
            0 => end.saturating_add(FIRST_BATCH),
            _ => end,
        }
    }

    /// Where what is followed by the batch here ends: here, or where the segment before ends, which is there
    /// even if this one was not yet begun.
    pub(crate) fn end_before(&self, batch: u64) -> u64 {
        match self.offset(batch) {
            FIRST_BATCH => self.start(self.segment(batch)),
            _ => batch,
        }
    }
}

/// What cannot be so in a header whose checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Impossible(pub(crate) &'static str);

/// The first block of every segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) layout: Layout,
    pub(crate) segment: u64,
    /// The epoch in which the file was made, or made ready again.
    pub(crate) epoch: u32,
}

/// The most bytes of the user's that a segment's first block holds.
pub(crate) const MOST_USER_HEADER: usize = BLOCK - USER_HEADER;
/// Where they are in the block.
const USER_HEADER: usize = 64;

/// Adds the user's bytes to the first block of a segment, which has its header.
pub(crate) fn put_user_header(block: &mut [u8], bytes: &[u8]) {
    put_u32(block, 52, bytes.len() as u32);
    block[USER_HEADER..][..bytes.len()].copy_from_slice(bytes);
    let checksum = user_header_checksum(block, bytes);
    put_u32(block, 56, checksum);
}

/// The user's bytes of a segment whose header is whole; none if they are not what was written.
pub(crate) fn user_header(block: &[u8]) -> Option<&[u8]> {
    let length = u32_at(block, 52) as usize;
    if length == 0 {
        return Some(&[]);
    }
    let bytes = block.get(USER_HEADER..)?.get(..length)?;
    (u32_at(block, 56) == user_header_checksum(block, bytes)).then_some(bytes)
}

fn user_header_checksum(block: &[u8], bytes: &[u8]) -> u32 {
    crc32c_append(crc32c(&block[..56]), bytes)
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
    /// Its checksum is right.
    Impossible(Impossible),
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
        // In every later version, too, so that damage is not taken for one.
        if u32_at(block, 48) != crc32c(&block[..48]) {
            return Err(BadSegment::Damaged);
        }
        match u32_at(block, 8) {
            1..=VERSION => {}
            0 => return Err(BadSegment::Damaged),
            found => return Err(BadSegment::Newer(found)),
        }
        let impossible = |what| BadSegment::Impossible(Impossible(what));
        let identity = block[32..48].try_into().expect("sixteen bytes");
        let layout = Layout::checked(identity, u64_at(block, 16))
            .ok_or(impossible("the segments' size in the segment's header"))?;
        let (segment, epoch) = (u64_at(block, 24), u32_at(block, 12));
        if !layout.may_have(segment) {
            return Err(impossible("the number in the segment's header"));
        }
        if epoch == 0 {
            return Err(impossible("the epoch in the segment's header"));
        }
        Ok(SegmentHeader { layout, segment, epoch })
    }
}

/// What a batch is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Records.
    Records,
    /// No records: the log was opened for writing.
    Opening,
    /// No records: the rest of the segment is not used.
    End,
    /// No records: from here on there is nothing.
    Gap {
        /// Where the next batch begins: in this segment, or the first of the next one.
        to: u64,
    },
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
    /// How many were written; holes may have taken some since.
    pub(crate) records: u32,
    /// A number that its user gave the first record.
    pub(crate) key: Option<u64>,
}

impl BatchHeader {
    pub(crate) fn encode(&self, identity: &Identity, bytes: &mut [u8]) {
        let (kind, more) = match (self.kind, self.key) {
            (Kind::Records, Some(key)) => (1 | HAS_KEY, key),
            (Kind::Records, None) => (1, 0),
            (Kind::Opening, _) => (2, 0),
            (Kind::End, _) => (3, 0),
            (Kind::Gap { to }, _) => (4, to),
        };
        put_u32(bytes, 0, BATCH_MAGIC);
        put_u32(bytes, 4, kind);
        put_u64(bytes, 8, self.position);
        put_u64(bytes, 16, self.durable);
        put_u32(bytes, 24, self.epoch);
        put_u32(bytes, 28, self.used);
        put_u32(bytes, 32, self.records);
        put_u64(bytes, 36, more);
        let checksum = Self::checksum(identity, bytes);
        put_u32(bytes, 44, checksum);
    }

    /// The header at `position`, if these bytes are one.
    pub(crate) fn decode(
        layout: &Layout,
        position: u64,
        bytes: &[u8],
    ) -> Option<Result<BatchHeader, Impossible>> {
        if bytes.len() < BATCH_HEADER
            || u32_at(bytes, 0) != BATCH_MAGIC
            || u64_at(bytes, 8) != position
            || u32_at(bytes, 44) != Self::checksum(&layout.identity, bytes)
        {
            return None;
        }
        let more = u64_at(bytes, 36);
        let (kind, key) = match u32_at(bytes, 4) {
            1 => (Kind::Records, None),
            2 => (Kind::Opening, None),
            3 => (Kind::End, None),
            4 => (Kind::Gap { to: more }, None),
            with_key if with_key == 1 | HAS_KEY => (Kind::Records, Some(more)),
            _ => return Some(Err(Impossible("the kind in a batch's header"))),
        };
        let header = BatchHeader {
            kind,
            position,
            durable: u64_at(bytes, 16),
            epoch: u32_at(bytes, 24),
            used: u32_at(bytes, 28),
            records: u32_at(bytes, 32),
            key,
        };
        Some(match header.impossible(layout) {
            Some(impossible) => Err(impossible),
            None => Ok(header),
        })
    }

    fn impossible(&self, layout: &Layout) -> Option<Impossible> {
        let used = self.used as usize;
        let most_records = used.saturating_sub(BATCH_HEADER) / RECORD_HEADER;
        let is_size = match self.kind {
            Kind::Records => {
                (BATCH_HEADER..=MOST_BATCH).contains(&used)
                    && used % RECORD_ALIGNMENT == 0
                    && layout.offset(self.position) + self.size() <= layout.segment_bytes
            }
            _ => used == BATCH_HEADER,
        };
        let what = if !layout.is_place_of_batch(self.position) {
            "the position in a batch's header"
        } else if !is_size {
            "the size in a batch's header"
        } else if self.records as usize > most_records {
            "the number of records in a batch's header"
        } else if self.epoch == 0 {
            "the epoch in a batch's header"
        } else if self.durable > self.position {
            "the durable position in a batch's header"
        } else if matches!(self.kind, Kind::Gap { to } if !self.is_end_of_gap(layout, to)) {
            "the end of a gap"
        } else {
            return None;
        };
        Some(Impossible(what))
    }

    fn is_end_of_gap(&self, layout: &Layout, to: u64) -> bool {
        let segment = layout.segment(self.position);
        let is_next = to == layout.first_batch(segment + 1);
        to > self.position
            && layout.is_place_of_batch(to)
            && (is_next || layout.segment(to) == segment)
    }

    /// The bytes it takes in its segment.
    pub(crate) fn size(&self) -> u64 {
        blocks(self.used as usize) as u64
    }

    /// One past its last record.
    pub(crate) fn end_of_records(&self) -> u64 {
        self.position + u64::from(self.used)
    }

    /// Where the next batch begins.
    pub(crate) fn next(&self, layout: &Layout) -> u64 {
        match self.kind {
            Kind::Records | Kind::Opening => layout.next_batch(self.position + self.size()),
            Kind::End => layout.first_batch(layout.segment(self.position) + 1),
            Kind::Gap { to } => to,
        }
    }

    /// Whether it may have so many records that are not holes.
    pub(crate) fn may_have(&self, records: u32, holes: u32) -> bool {
        records == self.records || holes > 0 && records < self.records
    }

    fn checksum(identity: &Identity, bytes: &[u8]) -> u32 {
        crc32c_append(crc32c(identity), &bytes[..44])
    }
}

/// Precedes a record's bytes, or stands for records that were given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) length: u32,
    /// It is no record, but a hole of as many bytes: readers pass over it.
    pub(crate) lost: bool,
    /// The next record was appended together with it.
    pub(crate) more: bool,
    /// CRC32C of the bytes as they were appended.
    pub(crate) payload: u32,
    pub(crate) epoch: u32,
    /// From the batch's beginning to this header: who knows a record's position finds its batch.
    pub(crate) in_batch: u32,
    /// What the first four bytes of each block of the payload are XORed with.
    pub(crate) mask: u32,
}

impl RecordHeader {
    /// For the bytes of a batch from `in_batch` to `end`, where it ends or another record begins.
    pub(crate) fn hole(in_batch: u32, end: u32, epoch: u32) -> RecordHeader {
        debug_assert!((in_batch + RECORD_HEADER as u32..=MOST_BATCH as u32).contains(&end));
        let length = end - in_batch - RECORD_HEADER as u32;
        RecordHeader { length, lost: true, more: false, payload: 0, epoch, in_batch, mask: 0 }
    }

    pub(crate) fn encode(&self, identity: &Identity, position: u64, bytes: &mut [u8]) {
        debug_assert!(self.length < MORE);
        let lost = if self.lost { LOST } else { 0 };
        let more = if self.more { MORE } else { 0 };
        put_u32(bytes, 0, self.length | lost | more);
        put_u32(bytes, 4, self.payload);
        put_u32(bytes, 8, self.epoch);
        put_u32(bytes, 12, self.in_batch);
        put_u32(bytes, 16, self.mask);
        let checksum = Self::checksum(identity, position, bytes);
        put_u32(bytes, 20, checksum);
    }

    /// The header at `position`, if these bytes are one. The record's bytes are not looked at, nor is
    /// whether what it says is [possible](Self::impossible).
    pub(crate) fn decode(identity: &Identity, position: u64, bytes: &[u8]) -> Option<RecordHeader> {
        if bytes.len() < RECORD_HEADER
            || u32_at(bytes, 20) != Self::checksum(identity, position, bytes)
        {
            return None;
        }
        Some(RecordHeader {
            length: u32_at(bytes, 0) & !(LOST | MORE),
            lost: u32_at(bytes, 0) & LOST != 0,
            more: u32_at(bytes, 0) & MORE != 0,
            payload: u32_at(bytes, 4),
            epoch: u32_at(bytes, 8),
            in_batch: u32_at(bytes, 12),
            mask: u32_at(bytes, 16),
        })
    }

    /// What cannot be so of a record at `position` in this batch.
    pub(crate) fn impossible_in(&self, batch: &BatchHeader, position: u64) -> Option<Impossible> {
        let what = if self.epoch != batch.epoch {
            "the epoch in a record's header"
        } else if batch.position.checked_add(self.in_batch.into()) != Some(position) {
            "the place in its batch in a record's header"
        } else if self.end(position) > batch.end_of_records() {
            "the length in a record's header"
        } else {
            return None;
        };
        Some(Impossible(what))
    }

    /// What cannot be so of a record at `position`, whatever batch it is in.
    pub(crate) fn impossible(&self, layout: &Layout, position: u64) -> Option<Impossible> {
        let what = if self.length as usize > MOST_RECORD
            || self.end(position) > layout.end(layout.segment(position))
        {
            "the length in a record's header"
        } else if self.epoch == 0 {
            "the epoch in a record's header"
        } else {
            return None;
        };
        Some(Impossible(what))
    }

    /// Where what follows begins, of a record at `position`.
    pub(crate) fn end(&self, position: u64) -> u64 {
        position + record_room(self.length as usize) as u64
    }

    /// Whether these are the bytes of the record at `position`, as they are stored.
    pub(crate) fn is_of(&self, position: u64, stored: &[u8]) -> bool {
        let checksum = match self.mask {
            0 => crc32c(stored),
            mask => checksum_unmasked(position + RECORD_HEADER as u64, stored, mask),
        };
        checksum == self.payload
    }

    /// Makes stored bytes of the record at `position` those that were appended.
    pub(crate) fn unmask(&self, position: u64, bytes: &mut [u8]) {
        if self.mask != 0 {
            apply_mask(position + RECORD_HEADER as u64, bytes, self.mask);
        }
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

/// The mask of a payload that begins here, of which the place in its block matters: 0 unless one of its
/// blocks begins as a batch.
pub(crate) fn mask_for(position: u64, payload: &[u8]) -> u32 {
    match block_starts(position, payload.len()).any(|at| u32_at(payload, at) == BATCH_MAGIC) {
        true => some_mask(position, payload),
        false => 0,
    }
}

#[cold]
fn some_mask(position: u64, payload: &[u8]) -> u32 {
    let starts = block_starts(position, payload.len());
    let wrong: HashSet<u32> = starts.map(|at| u32_at(payload, at) ^ BATCH_MAGIC).collect();
    // There are fewer blocks than values, so it is small, as invariant 5 asks for.
    (1..BATCH_MAGIC).find(|mask| !wrong.contains(mask)).expect("fewer blocks than values")
}

/// Masks a payload, or takes its mask away.
pub(crate) fn apply_mask(position: u64, payload: &mut [u8], mask: u32) {
    for at in block_starts(position, payload.len()) {
        let word = u32_at(payload, at) ^ mask;
        put_u32(payload, at, word);
    }
}

/// CRC32C of a payload without its mask.
#[cold]
fn checksum_unmasked(position: u64, stored: &[u8], mask: u32) -> u32 {
    let mut checksum = 0;
    let mut from = 0;
    for at in block_starts(position, stored.len()) {
        checksum = crc32c_append(checksum, &stored[from..at]);
        checksum = crc32c_append(checksum, &(u32_at(stored, at) ^ mask).to_le_bytes());
        from = at + 4;
    }
    crc32c_append(checksum, &stored[from..])
}

/// Where in a payload that begins here blocks begin with four of its bytes.
fn block_starts(position: u64, length: usize) -> impl Iterator<Item = usize> {
    let first = (BLOCK - position as usize % BLOCK) % BLOCK;
    (first..length.saturating_sub(3)).step_by(BLOCK)
}

/// Whether a block of a batch begins as another batch.
pub(crate) fn looks_like_batch(block: &[u8]) -> bool {
    u32_at(block, 0) == BATCH_MAGIC
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
    const LAYOUT: Layout = Layout { identity: IDENTITY, segment_bytes: 1 << 20 };
    const RECORD: RecordHeader = RecordHeader {
        length: 0,
        lost: false,
        more: false,
        payload: 0,
        epoch: 1,
        in_batch: 48,
        mask: 0,
    };

    #[test]
    fn headers_come_back_as_they_were() {
        let mut block = vec![0xAA; BLOCK];
        let segment = SegmentHeader { layout: LAYOUT, segment: 5, epoch: 3 };
        segment.encode(&mut block);
        assert_eq!(SegmentHeader::decode(&block), Ok(segment));

        let batch = BatchHeader {
            kind: Kind::Records,
            position: 8192,
            epoch: 3,
            durable: 4096,
            used: 104,
            records: 2,
            key: None,
        };
        batch.encode(&IDENTITY, &mut block);
        assert_eq!(BatchHeader::decode(&LAYOUT, 8192, &block), Some(Ok(batch)));

        for kind in
            [Kind::Opening, Kind::End, Kind::Gap { to: 16384 }, Kind::Gap { to: (1 << 20) + 4096 }]
        {
            let batch = BatchHeader { kind, used: 48, records: 0, ..batch };
            batch.encode(&IDENTITY, &mut block);
            assert_eq!(BatchHeader::decode(&LAYOUT, 8192, &block), Some(Ok(batch)));
        }
        for key in [0, u64::MAX] {
            let batch = BatchHeader { key: Some(key), ..batch };
            batch.encode(&IDENTITY, &mut block);
            assert_eq!(BatchHeader::decode(&LAYOUT, 8192, &block), Some(Ok(batch)));
        }

        let record = RecordHeader { length: 9, payload: 1234, epoch: 3, ..RECORD };
        let hole = RecordHeader::hole(48, 120, 3);
        for record in [record, RecordHeader { mask: 77, more: true, ..record }, hole] {
            record.encode(&IDENTITY, 8240, &mut block);
            assert_eq!(RecordHeader::decode(&IDENTITY, 8240, &block), Some(record));
        }
        assert_eq!(hole.end(8240), 8192 + 120);
    }

    /// Writes a number into a header and makes its checksum right.
    fn set(header: &mut [u8], at: usize, value: u64, size: usize) {
        header[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }

    #[test]
    fn what_no_header_can_say_is_told_by_name() {
        let mut block = vec![0; BLOCK];
        let good = SegmentHeader { layout: LAYOUT, segment: 5, epoch: 3 };
        for (at, size, what, values) in [
            (12, 4, "the epoch in the segment's header", vec![0]),
            (
                16,
                8,
                "the segments' size in the segment's header",
                vec![0, 1, 4096, 60 << 10, (64 << 10) + 512, (1 << 40) + 4096, 1 << 41, u64::MAX],
            ),
            (24, 8, "the number in the segment's header", vec![1 << 42, 1 << 44, u64::MAX]),
        ] {
            for value in values {
                good.encode(&mut block);
                set(&mut block, at, value, size);
                let checksum = crc32c(&block[..48]);
                put_u32(&mut block, 48, checksum);
                let expected = BadSegment::Impossible(Impossible(what));
                assert_eq!(SegmentHeader::decode(&block), Err(expected), "{value}");
            }
        }

        let records = BatchHeader {
            kind: Kind::Records,
            position: 8192,
            epoch: 3,
            durable: 4096,
            used: 104,
            records: 2,
            key: None,
        };
        let empty = BatchHeader { kind: Kind::Opening, used: 48, records: 0, ..records };
        let gap = BatchHeader { kind: Kind::Gap { to: 16384 }, ..empty };
        let (kind, size) = ("the kind in a batch's header", "the size in a batch's header");
        let number = "the number of records in a batch's header";
        for (good, at, bytes, what, values) in [
            (records, 4, 4, kind, vec![0, 5, 0x102, 0x104, 0x201, 0x8000_0001]),
            (records, 28, 4, size, vec![0, 47, 50, 1 << 20, (16 << 20) + 8, u64::from(u32::MAX)]),
            (empty, 28, 4, size, vec![0, 40, 56, u64::from(u32::MAX)]),
            (records, 32, 4, number, vec![3, u64::from(u32::MAX)]),
            (empty, 32, 4, number, vec![1]),
            (records, 24, 4, "the epoch in a batch's header", vec![0]),
            (records, 16, 8, "the durable position in a batch's header", vec![8193, u64::MAX]),
            (
                gap,
                36,
                8,
                "the end of a gap",
                vec![0, 4096, 8192, 12289, 1 << 20, (1 << 20) + 8192, (2 << 20) + 4096, u64::MAX],
            ),
        ] {
            for value in values {
                good.encode(&IDENTITY, &mut block);
                set(&mut block, at, value, bytes);
                let checksum = BatchHeader::checksum(&IDENTITY, &block);
                put_u32(&mut block, 44, checksum);
                let decoded = BatchHeader::decode(&LAYOUT, 8192, &block);
                assert_eq!(decoded, Some(Err(Impossible(what))), "{value}");
            }
        }

        let record = RecordHeader { length: 10, epoch: 3, ..RECORD };
        assert_eq!(record.impossible_in(&records, 8240), None);
        for (wrong, what) in [
            (RecordHeader { epoch: 4, ..record }, "the epoch in a record's header"),
            (
                RecordHeader { in_batch: 56, ..record },
                "the place in its batch in a record's header",
            ),
            (
                RecordHeader { in_batch: u32::MAX, ..record },
                "the place in its batch in a record's header",
            ),
            (RecordHeader { length: 33, ..record }, "the length in a record's header"),
            (RecordHeader { length: MORE - 1, ..record }, "the length in a record's header"),
        ] {
            assert_eq!(wrong.impossible_in(&records, 8240), Some(Impossible(what)), "{wrong:?}");
        }
        let large = Layout { segment_bytes: MOST_SEGMENT, ..LAYOUT };
        let largest = RecordHeader { length: MOST_RECORD as u32, ..record };
        assert_eq!(largest.impossible(&large, 8240), None);
        let larger = RecordHeader { length: MOST_RECORD as u32 + 1, ..record };
        assert!(larger.impossible(&large, 8240).is_some());
        for length in [(1 << 20) - 8192, MORE - 1] {
            let what = "the length in a record's header";
            let wrong = RecordHeader { length, ..record };
            assert_eq!(wrong.impossible(&LAYOUT, 8240), Some(Impossible(what)));
        }
    }

    #[test]
    fn places_do_not_wrap_whatever_the_numbers() {
        for size in [LEAST_SEGMENT, MOST_SEGMENT] {
            let layout = Layout::checked(IDENTITY, size).unwrap();
            for number in [0, 1, 4096, size, POSITIONS - 1, POSITIONS, u64::MAX - 4095, u64::MAX] {
                let _ = layout.segment_before(number);
                let next = layout.next_batch(number);
                assert!(next >= number);
                assert!(layout.end(number) >= layout.start(number));
                assert!(layout.first_batch(number) > 0);
                assert_eq!(layout.may_have(number), number < POSITIONS / size);
                let is_place = layout.is_place_of_batch(number);
                assert_eq!(is_place, number == 4096, "{number}");
            }
        }
        for size in [0, 1, 4096, LEAST_SEGMENT + 1, MOST_SEGMENT + 4096, u64::MAX] {
            assert_eq!(Layout::checked(IDENTITY, size), None);
        }
    }

    #[test]
    fn a_segment_of_version_1_is_read() {
        let mut block = vec![0; BLOCK];
        let segment = SegmentHeader { layout: LAYOUT, segment: 0, epoch: 1 };
        segment.encode(&mut block);
        put_u32(&mut block, 8, 1);
        let checksum = crc32c(&block[..48]);
        put_u32(&mut block, 48, checksum);
        assert_eq!(SegmentHeader::decode(&block), Ok(segment));
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
            key: None,
        };
        batch.encode(&IDENTITY, &mut bytes);
        let other = Layout { identity: [8; 16], ..LAYOUT };
        assert_eq!(BatchHeader::decode(&LAYOUT, 12288, &bytes), None);
        assert_eq!(BatchHeader::decode(&other, 8192, &bytes), None);

        let record = RecordHeader { length: 9, payload: 1234, epoch: 3, ..RECORD };
        record.encode(&IDENTITY, 8240, &mut bytes);
        assert_eq!(RecordHeader::decode(&IDENTITY, 8248, &bytes), None);
        assert_eq!(RecordHeader::decode(&[8; 16], 8240, &bytes), None);
    }

    #[test]
    fn what_a_user_gives_a_segment_comes_back_or_is_known_to_be_damaged() {
        let layout = Layout { identity: IDENTITY, segment_bytes: 1 << 20 };
        let mut block = vec![0; BLOCK];
        for length in [0, 1, 100, MOST_USER_HEADER] {
            SegmentHeader { layout, segment: 5, epoch: 3 }.encode(&mut block);
            let bytes: Vec<u8> = (0..length).map(|it| it as u8).collect();
            if length > 0 {
                put_user_header(&mut block, &bytes);
            }
            assert!(SegmentHeader::decode(&block).is_ok());
            assert_eq!(user_header(&block), Some(&bytes[..]));
            // Nothing is said of the checksum of no bytes, nor of the room before the bytes.
            let said = |at: &usize| !(60..64).contains(at) && (length > 0 || *at < 56);
            for at in (52..64 + length).step_by(3).filter(said) {
                block[at] ^= 0x20;
                assert_eq!(user_header(&block), None, "{length} bytes, the one at {at}");
                block[at] ^= 0x20;
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_a_header_shows() {
        let mut block = vec![0; BLOCK];
        SegmentHeader { layout: LAYOUT, segment: 5, epoch: 3 }.encode(&mut block);
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
            key: None,
        };
        batch.encode(&IDENTITY, &mut block);
        for bit in 0..BATCH_HEADER * 8 {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BatchHeader::decode(&LAYOUT, 8192, &flipped), None, "bit {bit}");
        }
        let record = RecordHeader { length: 9, payload: 1234, epoch: 3, ..RECORD };
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
        SegmentHeader { layout: LAYOUT, segment: 0, epoch: 1 }.encode(&mut block);
        put_u32(&mut block, 8, VERSION + 1);
        assert_eq!(SegmentHeader::decode(&block), Err(BadSegment::Damaged));
        let checksum = crc32c(&block[..48]);
        put_u32(&mut block, 48, checksum);
        assert_eq!(SegmentHeader::decode(&block), Err(BadSegment::Newer(VERSION + 1)));
        assert_eq!(SegmentHeader::decode(&[0; BLOCK]), Err(BadSegment::NotALog));
    }
}
