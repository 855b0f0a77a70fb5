//! Limits for what a log keeps: whole segments that no limit needs are given up, oldest first.
//!
//! This happens when the log is opened, when it begins a segment, in a thread of its own, and when somebody
//! asks. It goes the way of [`truncate_before`](crate::LogFile::truncate_before), so a crash in the middle
//! leaves what one in the middle of that leaves: the position from which the log is kept is on the device
//! before any file goes.
//!
//! Invariants
//! 1. The segment of the last committed batch stays, and whatever comes after it.
//! 2. What is kept begins with a segment's first batch, unless nothing is given up.
//! 3. A failure changes nothing for appends. It is kept in the log's figures, and what could not be given up
//!    is tried again at the next occasion.

use std::io;
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use super::error::LogError;
use super::format::Layout;
use super::options::LogOptions;
use super::segments;
use super::storage::Storage;

/// What a log keeps, at least. A segment that either limit does not need is given up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) bytes: Option<u64>,
    pub(crate) time: Option<Duration>,
}

/// What [`LogFile::retain`](crate::LogFile::retain) gave up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GivenUp {
    /// Segments whose files are gone, or kept to be used again.
    pub segments: u64,
    /// The size of these files, in bytes.
    pub bytes: u64,
}

impl Limits {
    pub(crate) fn of(options: &LogOptions) -> Limits {
        Limits { bytes: options.retain_bytes, time: options.retain_for }
    }

    pub(crate) fn is_none(&self) -> bool {
        *self == Limits::default()
    }

    /// The first segment that is kept, of those from `first` to `current`, which is being written. `committed`
    /// is the segment of the last batch.
    pub(crate) fn first_kept<S: Storage>(
        &self,
        storage: &S,
        layout: Layout,
        [first, committed, current]: [u64; 3],
    ) -> Result<u64, LogError> {
        let most = committed.min(current);
        let mut kept = first;
        if let Some(bytes) = self.bytes {
            kept = kept.max((current + 1).saturating_sub(segments_for(layout, bytes)).min(most));
        }
        if let Some(time) = self.time {
            let now = storage.now();
            while kept < most && has_expired(storage, kept, now, time)? {
                kept += 1;
            }
        }
        Ok(kept)
    }
}

/// Segments that hold so many bytes: the one that is being written, and at least another.
fn segments_for(layout: Layout, bytes: u64) -> u64 {
    bytes.div_ceil(layout.segment_bytes).max(2)
}

/// Whether a segment was left so long ago. One that was left in the future, as the clock has it, was not.
fn has_expired<S: Storage>(
    storage: &S,
    segment: u64,
    now: SystemTime,
    time: Duration,
) -> Result<bool, LogError> {
    let name = segments::name_of(segment);
    let left = storage.modified(&name).map_err(|error| {
        let path = storage.path().join(&name);
        LogError::system("look at the time of", &path, error).at(segment, 0)
    })?;
    Ok(now.duration_since(left).is_ok_and(|age| age > time))
}

/// What the thread is told that applies the limits.
pub(crate) enum Retaining {
    /// There may be something to give up.
    SegmentLeft,
    /// The log is closed.
    Ends,
}

/// Starts a thread that applies the limits whenever a segment was left.
pub(crate) fn start(
    told: Receiver<Retaining>,
    apply: impl Fn() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("fairlock-retain".to_owned()).spawn(move || {
        while let Ok(Retaining::SegmentLeft) = told.recv() {
            apply();
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::time::Instant;

    use super::super::crash_tests::{read_all, record};
    use super::super::error::LogErrorKind;
    use super::super::log::Log;
    use super::super::options::{Prewrite, SyncPolicy};
    use super::super::position::Position;
    use super::super::simulated_disk::{Failure, Machine, SimulatedDisk};
    use super::*;
    use crate::test_directory::test_directory;

    const SEGMENT: u64 = 64 << 10;
    const HOUR: Duration = Duration::from_secs(3600);

    type TestLog = Log<SimulatedDisk>;

    fn options() -> LogOptions {
        LogOptions::new().segment_bytes(SEGMENT).prewrite(Prewrite::Never)
    }

    fn open(machine: &Machine, options: LogOptions) -> TestLog {
        Log::open(machine.disk(), options).expect("opened")
    }

    /// Appends a record that leaves no room for another in its segment.
    fn fill(log: &TestLog, number: u64) -> u64 {
        let bytes = record(number, 50_000);
        let submitted = log.submit(&[IoSlice::new(&bytes)]).expect("submitted");
        log.wait(submitted).expect("written").get()
    }

    fn numbers(log: &TestLog) -> Vec<u64> {
        let found = read_all(&mut log.reader().expect("opened")).expect("read");
        found.into_iter().map(|(_, number)| number).collect()
    }

    fn first_segment(log: &TestLog) -> u64 {
        log.first().get() / SEGMENT
    }

    /// Until the thread in the background has come to the last segment that was begun.
    fn await_given_up(log: &TestLog, segments: u64) {
        let begin = Instant::now();
        while log.metrics().segments.given_up_by_limit < segments {
            assert!(begin.elapsed() < Duration::from_secs(120), "it hangs: {:?}", log.metrics());
            thread::yield_now();
        }
    }

    #[test]
    fn the_newest_segments_that_come_to_the_limit_are_kept() {
        for (bytes, kept) in [
            (1, 2),
            (SEGMENT, 2),
            (2 * SEGMENT, 2),
            (2 * SEGMENT + 1, 3),
            (4 * SEGMENT, 4),
            (u64::MAX, 10),
        ] {
            for sync in [SyncPolicy::EveryCommit, SyncPolicy::Never] {
                let log = open(&Machine::new(0), options().sync(sync).retain_bytes(bytes));
                for number in 0..10 {
                    fill(&log, number);
                }
                await_given_up(&log, 10 - kept);
                assert_eq!(log.retain().expect("nothing is left to do"), GivenUp::default());
                assert_eq!(first_segment(&log), 10 - kept, "{bytes}");
                assert_eq!(numbers(&log), (10 - kept..10).collect::<Vec<_>>(), "{bytes}");
                let segments = log.metrics().segments;
                assert_eq!(segments.given_up, 10 - kept);
                assert!((kept..=kept + 2).contains(&segments.present), "{segments:?}");
            }
        }
    }

    #[test]
    fn segments_that_were_left_longer_ago_than_the_limit_are_given_up() {
        let machine = Machine::new(0);
        let log = open(&machine, options().retain_for(2 * HOUR));
        for number in 0..6 {
            fill(&log, number);
            machine.advance(HOUR);
        }
        log.retain().expect("nothing fails");
        assert_eq!(numbers(&log), [3, 4, 5], "they were left 2 hours ago, 1 hour ago, and not yet");
        machine.advance(Duration::from_secs(1));
        let given_up = log.retain().expect("nothing fails");
        assert_eq!(given_up, GivenUp { segments: 1, bytes: SEGMENT });
        machine.advance(1_000 * HOUR);
        let given_up = log.retain().expect("nothing fails");
        assert_eq!(given_up, GivenUp { segments: 1, bytes: SEGMENT });
        assert_eq!(numbers(&log), [5], "the segment that is being written stays, however old");
        assert_eq!(log.retain().expect("nothing fails"), GivenUp::default());
    }

    #[test]
    fn a_segment_goes_when_either_limit_says_so() {
        for (bytes, time, kept) in [(3, 100, 3), (9, 1, 1), (2, 1, 1), (9, 100, 8)] {
            let machine = Machine::new(0);
            let log = open(&machine, options());
            for number in 0..8 {
                fill(&log, number);
            }
            log.close().expect("closed");
            machine.advance(2 * HOUR);
            let both = options().retain_bytes(bytes * SEGMENT).retain_for(time * HOUR);
            let log = open(&machine, both);
            assert_eq!(numbers(&log), (8 - kept..8).collect::<Vec<_>>(), "{bytes}, {time}");
            assert_eq!(log.metrics().segments.given_up_by_limit, 8 - kept);
        }
    }

    #[test]
    fn without_limits_nothing_is_given_up() {
        let machine = Machine::new(0);
        let log = open(&machine, options());
        (0..8).for_each(|number| _ = fill(&log, number));
        machine.advance(1_000_000 * HOUR);
        assert_eq!(log.retain().expect("nothing fails"), GivenUp::default());
        assert_eq!(numbers(&log), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn the_segment_of_the_last_record_stays_while_the_next_one_is_empty() {
        let machine = Machine::new(0);
        let log = open(&machine, options());
        (0..4).for_each(|number| _ = fill(&log, number));
        machine.advance(2 * HOUR);
        let layout = Layout::checked([0; 16], SEGMENT).expect("a size that segments may have");
        for limits in [
            Limits { bytes: Some(1), time: Some(HOUR) },
            Limits { bytes: None, time: Some(HOUR) },
            Limits { bytes: Some(1), time: None },
        ] {
            // The third holds the last record; the fourth was begun.
            let kept = limits.first_kept(&machine.disk(), layout, [0, 2, 3]);
            assert_eq!(kept.expect("nothing fails"), 2, "{limits:?}");
        }
    }

    #[test]
    fn a_reader_in_what_a_limit_gives_up_is_told_so() {
        let log = open(&Machine::new(0), options().retain_bytes(2 * SEGMENT));
        let first = fill(&log, 0);
        let mut reader = log.reader().expect("opened");
        (1..5).for_each(|number| _ = fill(&log, number));
        await_given_up(&log, 3);
        let error = reader.next().expect_err("it was given up");
        let truncated =
            LogErrorKind::Truncated { position: Position::new(4096), first: log.first() };
        assert_eq!(*error.kind(), truncated);
        let error = log.read(Position::new(first)).expect_err("it was given up");
        assert!(matches!(error.kind(), LogErrorKind::Truncated { .. }), "{error}");
        reader.seek(Position::START).expect("the first that is left");
        assert_eq!(read_all(&mut reader).expect("read").len(), 2);
    }

    #[test]
    fn a_failure_is_told_in_the_figures_and_what_was_left_over_goes_the_next_time() {
        let mut failures = 0;
        for later in 0..16 {
            let machine = Machine::new(later);
            let log = open(&machine, options().retain_for(HOUR));
            (0..6).for_each(|number| _ = fill(&log, number));
            machine.advance(2 * HOUR);
            log.settle();
            machine.fail_at(machine.operations() + later, Failure::Nothing);
            let failed = log.retain().is_err();
            let told = log.metrics().failures;
            // The log's own thread may have come to it first.
            assert!(told.retention >= u64::from(failed), "{told:?}");
            assert!(!failed || told.last_retention.is_some(), "{told:?}");
            failures += u64::from(told.retention > 0);
            machine.fail_no_more();
            fill(&log, 6);
            log.retain().expect("nothing fails any more");
            assert_eq!(numbers(&log).last(), Some(&6));
            assert!(numbers(&log).len() <= 2, "{:?}", numbers(&log));
            let metrics = log.metrics();
            assert!(metrics.segments.given_up_by_limit >= 5, "{metrics:?}");
            assert!(metrics.failures.last_retention.is_none(), "{metrics:?}");
            let present = |name: &String| name.ends_with(".segment");
            assert!(machine.names().iter().filter(|it| present(it)).count() <= 4);
        }
        assert!(failures > 0);
    }

    #[test]
    fn limits_that_keep_nothing_are_refused() {
        let directory = test_directory();
        for options in [options().retain_bytes(0), options().retain_for(Duration::ZERO)] {
            let error = options.open(directory.path()).expect_err("it makes no sense");
            assert!(matches!(error.kind(), LogErrorKind::Option { .. }), "{error}");
        }
    }
}
