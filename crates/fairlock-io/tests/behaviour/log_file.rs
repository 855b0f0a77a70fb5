//! A log as its users see it: on a real disk, from one process.

use std::fs::{self, File};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, SystemTime};

use fairlock_io::{
    LogError, LogErrorKind, LogFile, LogOptions, LogReader, Position, Prewrite, Prewriting,
    SyncPolicy,
};
use tempfile::TempDir;

use crate::long::depth;

const SEGMENT: u64 = 64 << 10;

/// On a disk: what is in memory may not take O_DIRECT.
fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room for a few megabytes")
}

fn options() -> LogOptions {
    LogOptions::new().segment_bytes(SEGMENT)
}

/// All records, from the first that is left.
fn records(path: &Path) -> Result<Vec<(Position, Vec<u8>)>, LogError> {
    let mut reader = LogReader::open(path)?;
    let mut all = Vec::new();
    while let Some(record) = reader.next()? {
        all.push((record.position, record.bytes.to_vec()));
    }
    Ok(all)
}

fn segments(path: &Path) -> usize {
    let names = fs::read_dir(path).expect("a directory").map(|entry| entry.expect("a name"));
    names.filter(|entry| entry.file_name().to_string_lossy().ends_with(".segment")).count()
}

#[test]
fn what_was_appended_is_read_back_after_it_was_opened_again() -> Result<(), LogError> {
    let directory = directory();
    let path = directory.path().join("log");
    let mut expected = Vec::new();
    for round in 0..5_u8 {
        let log = options().open(&path)?;
        assert_eq!(log.recovery().was_closed, round != 3, "round {round}");
        for size in [0, 1, 100, 4023, 4024, 4025, 30_000, 60_000] {
            let bytes = vec![round; size];
            let (head, tail) = bytes.split_at(size / 3);
            let position = log.append_vectored(&[IoSlice::new(head), IoSlice::new(tail)])?;
            expected.push((position, bytes));
        }
        if round == 2 {
            drop(log);
        } else {
            log.close()?;
        }
        assert_eq!(records(&path)?, expected);
    }
    assert!(expected.is_sorted_by(|one, next| one.0 < next.0), "positions grow");
    Ok(())
}

#[test]
fn a_log_that_was_closed_takes_no_more_room_than_its_records() -> Result<(), LogError> {
    let directory = directory();
    let path = directory.path().join("log");
    let log = LogOptions::new().segment_bytes(8 << 20).open(&path)?;
    log.append(b"hello")?;
    log.close()?;
    let bytes: u64 = fs::read_dir(&path)
        .expect("a directory")
        .map(|entry| entry.expect("a file"))
        .filter(|entry| entry.file_name() != "reserve")
        .map(|entry| entry.metadata().expect("a file").len())
        .sum();
    // The control page, the segment's header, the opening and a batch.
    assert_eq!(bytes, 4 * 4096);
    Ok(())
}

#[test]
fn threads_that_append_at_once_share_writes() -> Result<(), LogError> {
    const THREADS: usize = 8;
    const EACH: u32 = 60;
    let directory = directory();
    let path = directory.path().join("log");
    let log = options().open(&path)?;
    let begin = Barrier::new(THREADS);
    let (log_seen, begin) = (&log, &begin);
    thread::scope(|scope| {
        for thread in 0..THREADS as u32 {
            scope.spawn(move || {
                begin.wait();
                let mut last = Position::START;
                // Two at a time share a write even if the threads never meet.
                for number in (0..EACH).step_by(2) {
                    let submitted = [number, number + 1].map(|number| {
                        let record = [thread.to_le_bytes(), number.to_le_bytes()].concat();
                        log_seen.submit(&record).expect("there is room")
                    });
                    for submitted in submitted {
                        let position = log_seen.wait(submitted).expect("there is room");
                        assert!(position > last);
                        last = position;
                    }
                }
            });
        }
    });
    assert!(log.stats().commits < u64::from(EACH) * THREADS as u64, "{:?}", log.stats());
    log.close()?;
    let mut next = [0; THREADS];
    for (_, record) in records(&path)? {
        let (thread, number) = record.split_at(4);
        let thread = u32::from_le_bytes(thread.try_into().expect("four")) as usize;
        let number = u32::from_le_bytes(number.try_into().expect("four"));
        assert_eq!(number, next[thread], "thread {thread}");
        next[thread] += 1;
    }
    assert_eq!(next, [EACH; THREADS]);
    Ok(())
}

#[test]
fn metrics_tell_what_was_appended_and_how_long_it_took() -> Result<(), LogError> {
    let directory = directory();
    let path = directory.path().join("log");
    for sync in [SyncPolicy::EveryCommit, SyncPolicy::Never] {
        let log = options().sync(sync).open(&path)?;
        let before = log.metrics();
        assert_eq!((before.records, before.batches, before.append.count()), (0, 0, 0));
        assert_eq!(before.segments.given_up, 0);

        let submitted = [10, 20, 30].map(|size| log.submit(&vec![7; size]));
        for submitted in submitted {
            log.wait(submitted?)?;
        }
        log.append(&[7; 5_000])?;
        log.sync()?;
        let metrics = log.metrics();
        assert_eq!((metrics.records, metrics.appended_bytes), (4, 5_060));
        assert_eq!((metrics.batches, metrics.records_per_batch()), (2, Some(2.0)));
        // The opening and a batch take a block each, the large record two.
        assert_eq!((metrics.written_bytes, metrics.write.count()), (4 * 4096, 3));
        assert_eq!(metrics.append.count(), 4);
        assert!(metrics.append.max() >= metrics.write.quantile(0.0), "{metrics:?}");
        assert!(metrics.append.mean() <= metrics.append.max(), "{metrics:?}");
        assert_eq!(metrics.sync.count() > 0, sync == SyncPolicy::Never, "{metrics:?}");

        for _ in 0..4 {
            log.append(&[7; 50_000])?;
        }
        log.truncate_before(log.committed())?;
        let segments = log.metrics().segments;
        assert!(segments.given_up >= 3 && segments.present >= 1, "{segments:?}");
        assert_eq!(segments.given_up_by_limit, 0);
        let failures = log.metrics().failures;
        assert_eq!((failures.storage_full, failures.commits, failures.syncs), (0, 0, 0));
        log.close()?;
    }
    Ok(())
}

#[test]
fn old_segments_are_given_up_by_the_times_of_their_files() -> Result<(), LogError> {
    let directory = directory();
    let path = directory.path().join("log");
    let log = options().open(&path)?;
    let positions: Vec<Position> =
        (0..6).map(|_| log.append(&[7; 50_000])).collect::<Result<_, _>>()?;
    log.close()?;
    let hour = Duration::from_secs(3600);
    for segment in [0, 1, 3] {
        let file = File::options().write(true).open(path.join(format!("{segment:016}.segment")));
        let old = SystemTime::now() - 5 * hour;
        file.and_then(|file| file.set_modified(old)).expect("the file is ours");
    }
    let log = options().retain_for(4 * hour).open(&path)?;
    assert_eq!(log.metrics().segments.given_up_by_limit, 2);
    assert!(log.metrics().failures.last_retention.is_none());
    let kept: Vec<Position> = records(&path)?.into_iter().map(|(position, _)| position).collect();
    assert_eq!(kept, positions[2..], "the third is not old, and keeps those behind it");
    assert_eq!(segments(&path), 4);
    let truncated = log.read(positions[1]).expect_err("it was given up");
    assert!(matches!(truncated.kind(), LogErrorKind::Truncated { .. }), "{truncated}");
    log.close()
}

#[test]
fn positions_stay_what_they_are_when_segments_are_used_again() -> Result<(), LogError> {
    let directory = directory();
    let path = directory.path().join("log");
    let log = options().sync(SyncPolicy::Never).open(&path)?;
    let mut kept: Vec<(Position, Vec<u8>)> = Vec::new();
    for number in 0..400_u32 {
        let bytes = number.to_le_bytes().repeat(500);
        kept.push((log.append(&bytes)?, bytes));
        if number % 50 == 49 {
            kept.drain(..30);
            log.truncate_before(kept[0].0)?;
            assert_eq!(log.first(), kept[0].0);
        }
    }
    assert!(log.stats().recycled_segments > 0, "{:?}", log.stats());
    assert_eq!(records(&path)?, kept);
    let mut reader = log.reader()?;
    for (position, bytes) in kept.iter().rev() {
        reader.seek(*position)?;
        assert_eq!(reader.next()?.expect("a record").bytes, bytes);
    }
    let early = reader.seek(Position::new(4096 + 4096)).expect_err("it was given up");
    let first = kept[0].0;
    assert!(matches!(early.kind(), LogErrorKind::Truncated { first: left, .. } if *left == first));
    drop((log, reader));
    let log = options().open(&path)?;
    assert_eq!(records(&path)?, kept);
    log.truncate_before(log.committed())?;
    assert_eq!(records(&path)?, []);
    log.append(b"on")?;
    assert!(segments(&path) <= 2, "the last one, and one that was made ahead");
    Ok(())
}

#[test]
fn a_log_is_cut_only_where_a_record_begins() -> Result<(), LogError> {
    let directory = directory();
    let log = options().open(directory.path().join("log"))?;
    let position = log.append(b"one")?;
    for wrong in [position.get() + 8, position.get() + 4096 * 7] {
        let error = log.truncate_before(Position::new(wrong)).expect_err("no record is there");
        assert!(matches!(error.kind(), LogErrorKind::NoRecord(_)), "{error}");
        let end = format!("the log ends at position {} ", log.committed());
        let is_behind = wrong > log.committed().get();
        assert_eq!(error.to_string().contains(&end), is_behind, "{error}");
    }
    assert_eq!(log.reader()?.next()?.map(|record| record.position), Some(position));
    Ok(())
}

#[test]
fn a_log_has_one_writer() -> Result<(), LogError> {
    let directory = directory();
    let path = directory.path().join("log");
    let log = options().open(&path)?;
    let reader = log.reader()?;
    let second = options().open(&path).expect_err("there is a writer");
    let process = std::process::id();
    assert_eq!(*second.kind(), LogErrorKind::BusyWriter { process });
    assert!(second.to_string().starts_with("this process has it open already"), "{second}");
    drop(log);
    // Though the reader still uses the page.
    options().open(&path)?;
    drop(reader);
    Ok(())
}

#[test]
fn of_all_who_make_a_log_at_once_one_becomes_its_writer() {
    for _ in 0..depth(8, 20) {
        let directory = directory();
        let path = directory.path().join("log");
        let begin = Barrier::new(4);
        let opened = thread::scope(|scope| {
            let open = || {
                begin.wait();
                options().open(&path)
            };
            let threads = [(); 4].map(|()| scope.spawn(open));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        assert_eq!(opened.iter().filter(|log| log.is_ok()).count(), 1, "{opened:?}");
        for error in opened.iter().filter_map(|log| log.as_ref().err()) {
            assert!(matches!(error.kind(), LogErrorKind::BusyWriter { .. }), "{error}");
        }
    }
}

#[test]
fn prewriting_can_be_switched_off() -> Result<(), LogError> {
    let directory = directory();
    let path = directory.path().join("log");
    let log = options().prewrite(Prewrite::Never).open(&path)?;
    assert_eq!(*log.prewriting(), Prewriting::Disabled);
    for _ in 0..100 {
        log.append(&[1; 3000])?;
    }
    assert_eq!(log.stats().prewritten_bytes, 0);
    log.close()?;
    assert_eq!(records(&path)?.len(), 100);
    Ok(())
}

#[test]
fn a_record_that_does_not_fit_is_refused_with_the_limit() -> Result<(), LogError> {
    let directory = directory();
    let log = options().open(directory.path().join("log"))?;
    let most = SEGMENT as usize - 4096 - 48 - 24;
    log.append(&vec![1; most])?;
    let error = log.append(&vec![1; most + 1]).expect_err("too large");
    assert_eq!(*error.kind(), LogErrorKind::TooLarge { bytes: most + 1, most });
    log.append(b"small")?;
    Ok(())
}

#[test]
fn options_that_make_no_sense_are_refused_by_name() {
    let directory = directory();
    let path = directory.path().join("log");
    let cases = [
        (LogOptions::new().segment_bytes(1000), "segment_bytes"),
        (LogOptions::new().segment_bytes(4096), "segment_bytes"),
        (LogOptions::new().batch_bytes(1), "batch_bytes"),
        (LogOptions::new().sync(SyncPolicy::Interval(Duration::ZERO)), "the sync interval"),
        (
            LogOptions::new().segment_header(vec![0; 4033]),
            "segment_header must be at most 4032 bytes",
        ),
        (LogOptions::new().retain_bytes(0), "retain_bytes must be greater than 0"),
        (LogOptions::new().retain_for(Duration::ZERO), "retain_for must be greater than 0"),
        (LogOptions::new().mode(0o400), "mode must be at most 0o777"),
    ];
    for (options, name) in cases {
        let error = options.open(&path).expect_err(name);
        assert!(error.to_string().contains(name), "{error}");
    }
    assert!(!path.exists());
}

#[test]
fn what_the_system_refuses_is_told_in_one_clause_with_the_path() {
    let directory = directory();
    let path = directory.path().join("no/such");
    let error = LogFile::open(&path).expect_err("there is nothing to make it in");
    assert_eq!(*error.kind(), LogErrorKind::System("create"));
    let expected = format!("cannot create {}: ", path.display());
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[test]
fn no_log_is_made_among_other_files_or_where_none_is_to_be() -> Result<(), LogError> {
    let directory = directory();
    fs::write(directory.path().join("letter"), "dear").expect("a file");
    let error = LogFile::open(directory.path()).expect_err("the letter is in the way");
    assert_eq!(*error.kind(), LogErrorKind::OthersFiles);
    let path = directory.path().join("log");
    fs::create_dir(&path).expect("a directory");
    let error = options().create(false).open(&path).expect_err("there is none");
    assert_eq!(*error.kind(), LogErrorKind::NotALog);
    assert_eq!(*LogReader::open(&path).expect_err("there is none").kind(), LogErrorKind::NotALog);
    options().create_new(true).open(&path)?.close()?;
    let error = options().create_new(true).open(&path).expect_err("there is one");
    assert_eq!(*error.kind(), LogErrorKind::Exists);
    Ok(())
}

#[test]
fn segments_begin_with_what_the_user_gave_the_opening_that_made_them() {
    let directory = directory();
    let path = directory.path().join("log");
    let options = LogOptions::new().segment_bytes(64 << 10);
    let mut expected = Vec::new();
    for (opening, header) in [&b"first"[..], b"", &[7; 4032]].into_iter().enumerate() {
        let log = options.clone().segment_header(header).open(&path).unwrap();
        let before = LogReader::summary(&path).unwrap().segments;
        for number in 0..40_u8 {
            let position = log.append(&[number; 4000]).unwrap();
            let segment = position.get() / (64 << 10);
            if segment as usize >= expected.len() {
                expected.push(header.to_vec());
            }
            let mut reader = log.reader().unwrap();
            reader.seek(position).unwrap();
            assert_eq!(reader.segment_header().unwrap(), expected[segment as usize]);
        }
        assert!(expected.len() > opening && before as usize <= expected.len() + 1);
        log.truncate_before(log.committed()).unwrap();
        log.close().unwrap();
    }
    let refused = LogOptions::new().segment_header(vec![0; 4033]).open(&path).unwrap_err();
    assert!(matches!(refused.kind(), LogErrorKind::Option { .. }), "{refused}");
}
