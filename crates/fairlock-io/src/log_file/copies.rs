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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::disk::Disk;
    use super::super::segments::Inventory;
    use super::*;
    use crate::test_directory::test_directory;
    use crate::{LogFile, LogOptions, SyncPolicy};

    /// The end that is found if the page says this, and says that of another machine's kernel.
    fn end_elsewhere(path: &Path, page: Look) -> Result<u64, LogErrorKind> {
        let disk = Arc::new(Disk::open(path).unwrap());
        let segments = Inventory::of(&*disk).unwrap().segments;
        let layout = super::super::control::Control::open(&*disk, false).unwrap().layout();
        let page = Look { boot: Some([1, 2]), is_copy: true, ..page };
        let found = find_end(&disk, layout, &page, &segments);
        found.map(|found| found.end).map_err(|error| error.kind().clone())
    }

    #[test]
    fn on_another_machine_what_was_durable_is_missed_and_what_was_committed_may_be_lost() {
        let directory = test_directory();
        let path = directory.path().join("log");
        let options = LogOptions::new().segment_bytes(64 << 10).sync(SyncPolicy::Never);
        let log: LogFile = options.open(&path).unwrap();
        for _ in 0..40 {
            log.append(&[7; 3_000]).unwrap();
        }
        let end = log.committed().get();
        let later = Some(end + 8192);
        let unknown = Look::default();
        let incomplete = Err(LogErrorKind::IncompleteCopy { position: Position::new(end) });
        assert_eq!(end_elsewhere(&path, unknown.clone()), Ok(end));
        assert_eq!(end_elsewhere(&path, Look { committed: later, ..unknown.clone() }), Ok(end));
        for page in
            [Look { durable: later, ..unknown.clone() }, Look { closed: later, ..unknown.clone() }]
        {
            assert_eq!(end_elsewhere(&path, page), incomplete);
        }
        // It begins behind its end.
        let first = Position::new(end + (64 << 10));
        let behind = Look { first: Some(first.get()), ..unknown };
        let found = end_elsewhere(&path, behind);
        assert_eq!(found, Err(LogErrorKind::IncompleteCopy { position: first }));
    }
}
