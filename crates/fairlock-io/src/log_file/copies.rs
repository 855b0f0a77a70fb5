//! Finds where a log ends in a copy that other programs made: `cp`, `rsync`, `tar`.
//!
//! While a log is appended to, such a program reads each file at another time, and the control page at yet
//! another. So nothing that the page says of the end is exact, nor is what batches say of the device that the
//! original is on. Everything is read, from the first segment on, up to the gap: the first place where no
//! whole batch follows. What that means:
//!
//! * A batch lies behind the gap, or a segment does whose predecessor is missing: the files were read at
//!   different times, and there are records that nobody would find.
//! * The page says that the log was longer: the page was read later than the segments, and records that had
//!   been acknowledged are not in the copy.
//! * Otherwise the log ends at the gap. Its records are a prefix of the original's, and nothing says that
//!   there were others.
//!
//! In the first two cases the copy is refused with the position up to which it is whole
//! ([`LogErrorKind::IncompleteCopy`]). Damage of a copy cannot be told from them, and is refused alike.

use std::sync::Arc;

use super::control::Look;
use super::error::{LogError, LogErrorKind};
use super::format::{FIRST_BATCH, Layout};
use super::options::Recovery;
use super::position::Position;
use super::recovery::{self, End};
use super::storage::Storage;

/// The end of a copy whose segments, without those that were given up, are these, in order, and whose
/// control page says this.
pub(crate) fn find_end<S: Storage>(
    storage: &Arc<S>,
    layout: Layout,
    page: &Look,
    segments: &[u64],
) -> Result<End, LogError> {
    debug_assert!(page.is_copy);
    let whole_until = |position| {
        let position = Position::new(position);
        LogError::new(LogErrorKind::IncompleteCopy { position }, storage.path())
    };
    let there = segments.first().copied().unwrap_or(0);
    let first = page.first.unwrap_or_else(|| layout.first_batch(there));
    // While this kernel runs, the original's was not lost, either.
    let committed = page.committed.filter(|_| page.boot == Some(storage.boot()));
    let known = [page.closed, page.durable, committed];
    let known = known.into_iter().flatten().map(|end| layout.next_batch(end)).max();

    let expected = layout.segment_before(first)..;
    let in_sequence = expected.zip(segments).take_while(|(expected, it)| expected == *it).count();
    let (segments, beyond) = segments.split_at(in_sequence);
    let is_new = first.max(known.unwrap_or(0)) <= FIRST_BATCH && beyond.is_empty();
    if segments.is_empty() && !is_new {
        return Err(whole_until(first));
    }
    let unknown = Look { closed: None, durable: None, committed: None, ..page.clone() };
    let found = recovery::find_end(storage, layout, &unknown, false, segments);
    let found = found.map_err(|error| match *error.kind() {
        LogErrorKind::Damaged { position, .. } => match error.segment() {
            // Its header is before all of its batches.
            Some(segment) => whole_until(position.get().max(layout.first_batch(segment))),
            // The log begins behind the end of what is there.
            None => whole_until(first),
        },
        _ => error,
    })?;
    let is_less = known.is_some_and(|known| found.end < known);
    if is_less || !beyond.is_empty() || found.recovery.lost_bytes > 0 {
        return Err(whole_until(found.end));
    }
    let was_closed = page.closed.map(|end| layout.next_batch(end)) == Some(found.end);
    Ok(End { recovery: Recovery { was_closed, ..found.recovery }, ..found })
}
