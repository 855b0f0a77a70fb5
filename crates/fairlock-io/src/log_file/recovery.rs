//! Finds where a log ends, and tells a write that was cut off from bytes that were changed later.
//!
//! A log is read from the last segment that begins with a whole batch, from batch to batch, up to the
//! first place where no whole batch follows: the gap. Segments before are known to be on the device
//! (invariant 4 of `format.rs`). What the gap means:
//!
//! * The control page knows that the log was committed, on the device, or closed beyond the gap: damage.
//!   While the kernel has not been restarted since, the page is exact to the last acknowledged batch.
//! * A whole batch of the same or a later epoch lies behind the gap. As batches are written one at a time
//!   (invariant 3), the gap was written whole once. If the kernel has not been restarted since, or if that
//!   batch says that all below a later position was on the device: damage.
//! * Otherwise the loss of power took what had not been brought to the device, and the log ends at the
//!   gap. If whole batches lie behind it, their number of bytes is reported.
//! * If nothing lies behind it, the log ends there. A batch that is there in part was being written.

use std::sync::Arc;

use super::control::Control;
use super::error::{LogError, LogErrorKind};
use super::format::{
    BATCH_HEADER, BLOCK, BatchHeader, FIRST_BATCH, Kind, Layout, RECORD_HEADER, RecordHeader,
    record_room,
};
use super::options::Recovery;
use super::position::Position;
use super::segments;
use super::storage::Storage;
use super::window::{Window, damaged};

/// Read at a time.
const WINDOW: usize = 1 << 20;

/// Where a log ends.
pub(crate) struct End {
    pub(crate) end: u64,
    /// The latest that was seen.
    pub(crate) epoch: u32,
    pub(crate) recovery: Recovery,
}

/// What is at a place where a batch may begin.
pub(crate) enum Place {
    /// A whole one.
    Whole(BatchHeader),
    /// One whose header is whole, but not what follows.
    Part,
    /// None.
    Nothing,
}

/// Reads all of a batch.
pub(crate) fn look_at<S: Storage>(
    window: &mut Window<S>,
    position: u64,
) -> Result<Place, LogError> {
    let Layout { identity, .. } = window.layout();
    let Some(bytes) = window.bytes(position, BATCH_HEADER, u64::MAX)? else {
        return Ok(Place::Nothing);
    };
    let Some(batch) = BatchHeader::decode(&identity, position, bytes) else {
        return Ok(Place::Nothing);
    };
    let mut at = position + BATCH_HEADER as u64;
    let end = position + u64::from(batch.used);
    for _ in 0..batch.records {
        let Some(bytes) = window.bytes(at, RECORD_HEADER, u64::MAX)? else {
            return Ok(Place::Part);
        };
        let record = RecordHeader::decode(&identity, at, bytes);
        let Some(record) = record.filter(|record| {
            record.epoch == batch.epoch
                && u64::from(record.in_batch) == at - position
                && at + record_room(record.length as usize) as u64 <= end
        }) else {
            return Ok(Place::Part);
        };
        let length = record.length as usize;
        let Some(bytes) = window.bytes(at + RECORD_HEADER as u64, length, u64::MAX)? else {
            return Ok(Place::Part);
        };
        if crc32c::crc32c(bytes) != record.payload {
            return Ok(Place::Part);
        }
        at += record_room(length) as u64;
    }
    // The padding's last block has no record: that it is there shows that the write was not cut off.
    match window.bytes(position, batch.size() as usize, u64::MAX)? {
        Some(_) if at == end => Ok(Place::Whole(batch)),
        _ => Ok(Place::Part),
    }
}

/// The end of a log that has no segments: it was just created, or they are missing.
pub(crate) fn end_of_new<S: Storage>(
    storage: &S,
    control: &Control<S::Memory>,
) -> Result<End, LogError> {
    let known = [control.closed(), control.durable(), control.committed(), control.first()];
    let known = known.into_iter().flatten().max().unwrap_or(FIRST_BATCH);
    if known > FIRST_BATCH {
        let segment = control.layout().segment(control.first().unwrap_or(known));
        let path = storage.path().join(segments::name_of(segment));
        return Err(LogError::new(LogErrorKind::MissingSegment, &path).at(segment, 0));
    }
    let recovery =
        Recovery { was_closed: true, end: Position::new(FIRST_BATCH), ..Recovery::default() };
    Ok(End { end: FIRST_BATCH, epoch: 0, recovery })
}

/// Finds the end of a log whose segments are these, in order, at least one.
pub(crate) fn find_end<S: Storage>(
    storage: &Arc<S>,
    control: &Control<S::Memory>,
    segments: &[u64],
) -> Result<End, LogError> {
    let layout = control.layout();
    if let Some(missing) = (segments.windows(2)).find(|pair| pair[0] + 1 != pair[1]) {
        let segment = missing[0] + 1;
        let path = storage.path().join(segments::name_of(segment));
        return Err(LogError::new(LogErrorKind::MissingSegment, &path).at(segment, 0));
    }
    let mut window = Window::new(Arc::clone(storage), layout, WINDOW);
    let last = *segments.last().expect("a log has a segment");

    let mut begin = segments[0];
    for &segment in segments.iter().rev() {
        if let Place::Whole(_) = look_at(&mut window, layout.first_batch(segment))? {
            begin = segment;
            break;
        }
    }

    let mut gap = layout.first_batch(begin);
    let mut epoch = 0;
    let torn = loop {
        if layout.segment(gap) > last {
            break None;
        }
        match look_at(&mut window, gap)? {
            Place::Whole(batch) if batch.epoch >= epoch => {
                epoch = batch.epoch;
                gap = match batch.kind {
                    Kind::End => layout.first_batch(layout.segment(gap) + 1),
                    Kind::Records | Kind::Opening => layout.next_batch(gap + batch.size()),
                };
            }
            Place::Part => break Some(gap),
            Place::Whole(_) | Place::Nothing => break None,
        }
    };

    let same_boot = control.boot() == storage.boot();
    let closed = control.closed();
    let known = [closed, control.durable(), control.committed().filter(|_| same_boot)];
    // Ends are compared as the place of what follows them.
    let known = known.into_iter().flatten().map(|end| layout.next_batch(end)).max();
    if known.is_some_and(|known| gap < known) {
        return Err(damaged(&**storage, layout, gap, "a batch"));
    }
    let lost_bytes = behind(&mut window, gap, last, epoch, |batch| {
        if same_boot || batch.durable > gap {
            return Err(damaged(&**storage, layout, gap, "a batch"));
        }
        Ok(())
    })?;

    let recovery = Recovery {
        was_closed: closed.is_some(),
        end: Position::new(gap),
        scanned_bytes: window.bytes_read,
        torn: torn.map(Position::new),
        lost_bytes,
    };
    Ok(End { end: gap, epoch: epoch.max(control.epoch()), recovery })
}

/// Looks at all headers of batches behind a gap that can belong to the log; their bytes.
pub(crate) fn behind<S: Storage>(
    window: &mut Window<S>,
    gap: u64,
    last: u64,
    epoch: u32,
    mut look: impl FnMut(&BatchHeader) -> Result<(), LogError>,
) -> Result<u64, LogError> {
    let layout = window.layout();
    let mut bytes_found = 0;
    let mut position = gap + BLOCK as u64;
    while layout.segment(position) <= last {
        if layout.offset(position) == 0 {
            position = layout.next_batch(position);
        }
        let Some(bytes) = window.bytes(position, BATCH_HEADER, u64::MAX)? else {
            // The file ends: on with the next.
            position = layout.first_batch(layout.segment(position) + 1);
            continue;
        };
        match BatchHeader::decode(&layout.identity, position, bytes) {
            Some(batch) if batch.epoch >= epoch => {
                look(&batch)?;
                bytes_found += batch.size();
                position += batch.size();
            }
            _ => position += BLOCK as u64,
        }
    }
    Ok(bytes_found)
}
