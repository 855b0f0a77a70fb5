//! Finds where a log ends, and tells a write that was cut off from bytes that were changed later.
//!
//! A log that was closed ends where the control page says. Otherwise:
//!
//! A log is read from batch to batch up to the first place where no whole batch follows: the gap. It is
//! read from the segment on that was not yet wholly on the device when the last segment was begun; the first
//! batch of that says which (invariant 4 of `format.rs`). What the gap means:
//!
//! * The control page knows that the log was committed, on the device, or closed beyond the gap: damage.
//!   While the kernel has not been restarted since, the page is exact to the last acknowledged batch.
//! * A whole batch of the same or a later epoch lies behind the gap. As batches are written one at a time
//!   (invariant 3), the gap was written whole once. If that batch says that all below a later position was
//!   on the device, or if nothing else is known and the kernel has not been restarted since: damage. So it is if
//!   the page does not say in which run of the kernel the log was open, as one that was lost and made anew: then
//!   nothing speaks for a loss of power.
//! * Otherwise the loss of power took what had not been brought to the device, and the log ends at the
//!   gap. If whole batches lie behind it, their number of bytes is reported.
//! * If nothing lies behind it, the log ends there. A batch that is there in part was being written.
//!
//! What cannot be told: after the loss of power, when the page knows of an earlier end, a last batch whose
//! bytes were changed is taken for one that was being written. `Recovery::torn` says so, unless the batch's
//! header is among these bytes, as then nothing says that there was a batch.

use std::sync::Arc;

use super::control::{self, Look};
use super::cutting::Cut;
use super::error::{LogError, LogErrorKind};
use super::format::{
    BATCH_HEADER, BLOCK, BatchHeader, FIRST_BATCH, Impossible, Kind, Layout, RECORD_HEADER,
    RecordHeader,
};
use super::options::Recovery;
use super::position::Position;
use super::segments;
use super::storage::Storage;
use super::window::{Window, damaged, open_segment};

/// Read at a time.
const WINDOW: usize = 1 << 20;

/// Where a log ends.
pub(crate) struct End {
    pub(crate) end: u64,
    /// The first segment that was read: those before are on the device.
    pub(crate) begin: u64,
    /// The latest that was seen.
    pub(crate) epoch: u32,
    pub(crate) recovery: Recovery,
}

/// What is at a place where a batch may begin.
pub(crate) enum Place {
    /// A whole one.
    Whole(BatchHeader),
    /// One whose header is whole, but not what follows: what is wrong, and where.
    Part(&'static str, u64),
    /// None.
    Nothing,
    /// What no writer wrote.
    Impossible(Impossible),
}

/// Reads all of a batch.
pub(crate) fn look_at<S: Storage>(
    window: &mut Window<S>,
    position: u64,
) -> Result<Place, LogError> {
    let layout = window.layout();
    let Some(bytes) = window.bytes(position, BATCH_HEADER, u64::MAX)? else {
        return Ok(Place::Nothing);
    };
    let batch = match BatchHeader::decode(&layout, position, bytes) {
        None => return Ok(Place::Nothing),
        Some(Err(impossible)) => return Ok(Place::Impossible(impossible)),
        Some(Ok(batch)) => batch,
    };
    let mut at = position + BATCH_HEADER as u64;
    let end = batch.end_of_records();
    let (mut records, mut holes) = (0, 0);
    while at < end {
        let Some(bytes) = window.bytes(at, RECORD_HEADER, u64::MAX)? else {
            return Ok(Place::Part("a record's header", at));
        };
        let Some(record) = RecordHeader::decode(&layout.identity, at, bytes) else {
            return Ok(Place::Part("a record's header", at));
        };
        if let Some(Impossible(what)) = record.impossible_in(&batch, at) {
            return Ok(Place::Part(what, at));
        }
        if record.lost {
            holes += 1;
        } else {
            records += 1;
            let payload = at + RECORD_HEADER as u64;
            let bytes = window.bytes(payload, record.length as usize, u64::MAX)?;
            if !bytes.is_some_and(|bytes| record.is_of(at, bytes)) {
                return Ok(Place::Part("a record", at));
            }
        }
        at = record.end(at);
    }
    if !batch.may_have(records, holes) {
        return Ok(Place::Part("the number of records in a batch's header", position));
    }
    // The padding's last block has no record: that it is there shows that the write was not cut off.
    match window.bytes(position, batch.size() as usize, u64::MAX)? {
        Some(_) => Ok(Place::Whole(batch)),
        None => Ok(Place::Part("a batch", position)),
    }
}

/// Whether a page that says where the log was closed is of before the log was opened again. What a failed opening
/// has left behind that place is not newer than the page: that says which opening is to come before anything of
/// it is written.
pub(crate) fn is_older<S: Storage>(page: &Look, window: &mut Window<S>) -> Result<bool, LogError> {
    let (Some(closed), Some(epoch)) = (page.closed, page.epoch) else { return Ok(false) };
    let behind = window.layout().next_batch(closed);
    Ok(match look_at(window, behind)? {
        Place::Whole(batch) => epoch < batch.epoch,
        _ => false,
    })
}

/// The segments that were given up, though a crash has left them, and the others. Numbers that no segment
/// can have are of neither.
pub(crate) fn without_given_up(
    layout: Layout,
    page: &Look,
    segments: Vec<u64>,
) -> (Vec<u64>, Vec<u64>) {
    let first = page.first.map_or(0, |first| layout.segment_before(first));
    let segments = segments.into_iter().filter(|&segment| layout.may_have(segment));
    segments.partition(|&segment| segment < first)
}

/// The end of a log that has no segments: it was just created, or they are missing.
fn end_of_new<S: Storage>(storage: &S, layout: Layout, page: &Look) -> Result<End, LogError> {
    let known = [page.closed, page.durable, page.committed].into_iter().flatten().max();
    if let (Some(first), Some(known)) = (page.first, known) {
        if first > layout.next_batch(known) {
            return Err(damaged_first(storage));
        }
    }
    let known = known.max(page.first).unwrap_or(FIRST_BATCH);
    if known > FIRST_BATCH {
        return Err(missing(storage, layout.segment_before(page.first.unwrap_or(known))));
    }
    let recovery =
        Recovery { was_closed: true, end: Position::new(FIRST_BATCH), ..Recovery::default() };
    Ok(End { end: FIRST_BATCH, begin: 0, epoch: 0, recovery })
}

/// What was cut off ended where the log did: in a segment that is there, or was once, as the page knows.
pub(crate) fn check_cut<S: Storage>(
    storage: &S,
    layout: Layout,
    page: &Look,
    segments: &[u64],
) -> Result<(), LogError> {
    let known = [page.closed, page.durable, page.committed].into_iter().flatten().max();
    let is_beyond = |end: u64| {
        known.is_none_or(|known| end > known)
            && segments.last().is_none_or(|&last| layout.segment_before(end) > last)
    };
    match page.cut().is_some_and(|cut| is_beyond(cut.end)) {
        true => {
            let path = storage.path().join(control::NAME);
            Err(control::damaged(&path, control::IMPOSSIBLE_CUT))
        }
        false => Ok(()),
    }
}

/// For a page by which the log begins behind its end.
#[cold]
fn damaged_first<S: Storage>(storage: &S) -> LogError {
    let path = storage.path().join(control::NAME);
    control::damaged(&path, "the first position in the control page")
}

#[cold]
fn missing<S: Storage>(storage: &S, segment: u64) -> LogError {
    let path = storage.path().join(segments::name_of(segment));
    LogError::new(LogErrorKind::MissingSegment, &path).at(segment, 0)
}

/// Finds the end of a log whose segments, without those that were given up, are these, in order, and whose
/// control page says this. `same_boot`: it is what the kernel was last told to store there.
pub(crate) fn find_end<S: Storage>(
    storage: &Arc<S>,
    layout: Layout,
    page: &Look,
    same_boot: bool,
    segments: &[u64],
) -> Result<End, LogError> {
    check_cut(&**storage, layout, page, segments)?;
    let (Some(&there), Some(&last)) = (segments.first(), segments.last()) else {
        return end_of_new(&**storage, layout, page);
    };
    let first = page.first.map_or(there, |first| layout.segment_before(first));
    let expected = (first..).zip(segments);
    if let Some((segment, _)) = { expected }.find(|(expected, segment)| expected != *segment) {
        return Err(missing(&**storage, segment));
    }
    let mut search = Search {
        storage,
        layout,
        page,
        same_boot,
        there,
        last,
        closed: page.closed.map(|end| layout.next_batch(end)),
        window: Window::new(Arc::clone(storage), layout, WINDOW),
    };
    let begin = search.find_begin(segments)?;
    let chain = search.follow_chain(begin)?;
    search.check_known(&chain)?;
    let (lost_bytes, latest) = search.look_behind(&chain)?;
    let recovery = Recovery {
        was_closed: search.closed.is_some(),
        end: Position::new(chain.gap),
        scanned_bytes: search.window.bytes_read,
        torn: chain.torn.map(Position::new),
        lost_bytes,
        ..Recovery::default()
    };
    Ok(End { end: chain.gap, begin, epoch: latest, recovery })
}

/// What the steps of [`find_end`] share.
struct Search<'a, S: Storage> {
    storage: &'a Arc<S>,
    layout: Layout,
    page: &'a Look,
    same_boot: bool,
    /// The first segment that is there, and the last.
    there: u64,
    last: u64,
    /// Where the log was closed, as the place of the next batch.
    closed: Option<u64>,
    window: Window<S>,
}

/// The batches that follow each other, to the place where none does.
struct Chain {
    gap: u64,
    /// Of the last batch before the gap.
    epoch: u32,
    /// Where a batch was being written, if one was.
    torn: Option<u64>,
    /// What is not as it should be behind the gap, if there should be something, and where that is.
    what: &'static str,
    wrong: u64,
}

impl<S: Storage> Search<'_, S> {
    /// What is older than its segment's header is of the file's earlier life.
    fn made_in(&self, segment: u64) -> Result<u32, LogError> {
        open_segment(&**self.storage, self.layout, segment, false).map(|(_, epoch)| epoch)
    }

    /// What is being cut off, if that is in a segment that is there.
    fn cut(&self) -> Option<Cut> {
        self.page.cut().filter(|cut| self.layout.segment(cut.batch) >= self.there)
    }

    /// The segment before which all is on the device.
    fn find_begin(&mut self, segments: &[u64]) -> Result<u64, LogError> {
        let layout = self.layout;
        let mut begin = self.there;
        // What was on the original's device says nothing of a copy, all of which is read.
        for &segment in segments.iter().rev().filter(|_| !self.page.is_copy) {
            let epoch = self.made_in(segment)?;
            if self.closed.is_some_and(|closed| layout.segment(closed) < segment) {
                continue;
            }
            if let Place::Whole(batch) = look_at(&mut self.window, layout.first_batch(segment))? {
                if batch.epoch >= epoch {
                    // Below that all was on the device when this segment was begun.
                    begin = layout.segment(batch.durable).clamp(self.there, segment);
                    break;
                }
            }
        }
        // Whatever is there of what is being cut off.
        Ok(begin.min(self.cut().map_or(begin, |cut| layout.segment(cut.batch))))
    }

    /// Goes from batch to batch, to the first place where none follows.
    fn follow_chain(&mut self, begin: u64) -> Result<Chain, LogError> {
        let layout = self.layout;
        let cut = self.cut();
        let mut gap = layout.first_batch(begin);
        let mut epoch = 0;
        let (torn, what, wrong) = loop {
            // What may be there was not acknowledged.
            if self.closed == Some(gap) || layout.segment(gap) > self.last {
                break (None, "a batch", gap);
            }
            if let Some(cut) = cut.filter(|cut| cut.batch == gap) {
                (gap, epoch) = (layout.next_batch(cut.end), epoch.max(cut.epoch));
                continue;
            }
            if gap == layout.first_batch(layout.segment(gap)) {
                epoch = epoch.max(self.made_in(layout.segment(gap))?);
            }
            match look_at(&mut self.window, gap)? {
                Place::Whole(batch) if batch.epoch >= epoch => {
                    epoch = batch.epoch;
                    gap = batch.next(&layout);
                }
                Place::Part(what, at) => break (Some(gap), what, at),
                Place::Whole(_) | Place::Nothing => break (None, "a batch", gap),
                Place::Impossible(Impossible(what)) => {
                    return Err(damaged(&**self.storage, layout, gap, what));
                }
            }
        };
        Ok(Chain { gap, epoch, torn, what, wrong })
    }

    /// Compares where the batches end with what the control page knows.
    fn check_known(&mut self, chain: &Chain) -> Result<(), LogError> {
        let (layout, page, gap) = (self.layout, self.page, chain.gap);
        let was_closed_here = self.closed == Some(gap);
        if was_closed_here && layout.segment(gap) <= self.last && is_older(page, &mut self.window)?
        {
            let path = self.storage.path().join(control::NAME);
            let what = "the control page, which is older than the segments,";
            return Err(control::damaged(&path, what));
        }
        let known = [self.closed, page.durable, page.committed.filter(|_| self.same_boot)];
        // Ends are compared as the place of what follows them.
        let known = known.into_iter().flatten().map(|end| layout.next_batch(end)).max();
        // Behind the place where it was closed there can be an opening that failed.
        if !was_closed_here && known.is_some_and(|known| gap < known) {
            return Err(damaged(&**self.storage, layout, chain.wrong, chain.what));
        }
        if page.first.is_some_and(|first| first > layout.next_batch(gap)) {
            return Err(damaged_first(&**self.storage));
        }
        Ok(())
    }

    /// How much of what was written did not come to the device, behind the gap, and the latest epoch of all. If some
    /// of it shows that the gap was written, the log is damaged there.
    fn look_behind(&mut self, chain: &Chain) -> Result<(u64, u32), LogError> {
        let (layout, page) = (self.layout, self.page);
        let mut latest = chain.epoch.max(page.epoch.unwrap_or(0));
        if self.closed.is_some() {
            return Ok((0, latest));
        }
        let (storage, same_boot, gap) = (&**self.storage, self.same_boot, chain.gap);
        let look = |position, found: Result<BatchHeader, Impossible>| {
            let batch =
                found.map_err(|Impossible(what)| damaged(storage, layout, position, what))?;
            // If the page says how far the log was committed, what lies behind is older than the page.
            let was_written = page.boot.is_none() || same_boot && page.committed.is_none();
            if was_written || batch.durable > gap {
                return Err(damaged(storage, layout, chain.wrong, chain.what));
            }
            latest = latest.max(batch.epoch);
            Ok(())
        };
        let lost_bytes = behind(&mut self.window, gap, self.last, chain.epoch, look)?;
        Ok((lost_bytes, latest))
    }
}

/// Looks at all headers of batches behind a gap that can belong to the log, with their places, and at those
/// that no writer wrote; the bytes of the former.
pub(crate) fn behind<S: Storage>(
    window: &mut Window<S>,
    gap: u64,
    last: u64,
    epoch: u32,
    mut look: impl FnMut(u64, Result<BatchHeader, Impossible>) -> Result<(), LogError>,
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
        match BatchHeader::decode(&layout, position, bytes) {
            Some(Ok(batch)) if batch.epoch >= epoch => {
                look(position, Ok(batch))?;
                bytes_found += batch.size();
                position = match batch.kind {
                    Kind::Gap { to } => to,
                    // Behind the end of a segment there can be what an earlier opening has left.
                    _ => position + batch.size(),
                };
            }
            Some(Err(impossible)) => {
                look(position, Err(impossible))?;
                position += BLOCK as u64;
            }
            _ => position += BLOCK as u64,
        }
    }
    Ok(bytes_found)
}
