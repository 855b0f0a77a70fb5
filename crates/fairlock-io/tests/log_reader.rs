//! Readers of a `LogFile`: where they go, what they give, and what they say when a record was given up
//! under them.

use std::path::PathBuf;

use fairlock_io::{LogErrorKind, LogFile, LogOptions, LogReader, Position, SyncPolicy};
use tempfile::TempDir;

/// A directory on a disk, and where a log in it is to be.
fn place() -> (TempDir, PathBuf) {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a writable target");
    let path = directory.path().join("log");
    (directory, path)
}

/// With segments as small as they can be.
fn small() -> LogOptions {
    LogFile::options().segment_bytes(64 << 10).sync(SyncPolicy::Never)
}

/// Appends all in one batch; their positions.
fn append_together(log: &LogFile, records: &[&[u8]]) -> Vec<Position> {
    let submitted: Vec<_> = records.iter().map(|it| log.submit(it).unwrap()).collect();
    submitted.into_iter().map(|it| log.wait(it).unwrap()).collect()
}

fn next(reader: &mut LogReader) -> Option<(Position, Vec<u8>)> {
    reader.next().unwrap().map(|record| (record.position, record.bytes.to_vec()))
}

/// Bytes that differ from record to record.
fn record(number: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (number.wrapping_mul(31) + at * 7) as u8).collect()
}

#[test]
fn the_last_records_are_found_from_any_distance() {
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    let mut all = Vec::new();
    for number in 0..24 {
        // Batches of one record and of many, in blocks and across them, and segments that end early.
        let lengths = [0, 1, 500, 4_024, 30_000, 8];
        let length = lengths[number as usize % lengths.len()];
        let bytes = record(number, length);
        let records: Vec<&[u8]> = vec![&bytes; 1 + number as usize % 7 % 3];
        for position in append_together(&log, &records) {
            all.push((position, bytes.clone()));
        }
    }
    let committed = log.committed().get();
    let mut reader = LogReader::open(&path).unwrap().read_bytes(4096);
    for bytes in (0..committed + 5_000).step_by(3_210).chain([1, 4095, 4096, 4097, u64::MAX]) {
        reader.seek_last(bytes).unwrap();
        let begin = committed.saturating_sub(bytes);
        for expected in all.iter().filter(|(position, _)| position.get() >= begin) {
            assert_eq!(next(&mut reader).as_ref(), Some(expected), "the last {bytes}");
        }
        assert_eq!(next(&mut reader), None, "the last {bytes}");
    }
}

#[test]
fn the_last_records_begin_with_the_first_that_is_left() {
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    let positions = append_together(&log, &[b"gone", b"left", b"last"]);
    log.truncate_before(positions[1]).unwrap();
    let mut reader = log.reader().unwrap();
    for bytes in [10_000, u64::MAX] {
        reader.seek_last(bytes).unwrap();
        assert_eq!(next(&mut reader), Some((positions[1], b"left".to_vec())));
    }
    log.truncate_before(log.committed()).unwrap();
    reader.seek_last(u64::MAX).unwrap();
    assert_eq!(next(&mut reader), None);
    let position = log.append(b"new").unwrap();
    assert_eq!(next(&mut reader), Some((position, b"new".to_vec())));
}

#[test]
fn records_are_read_by_their_positions_in_any_order() {
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    let records: Vec<_> = (0..40).map(|number| record(number, 1 + number as usize * 500)).collect();
    let mut positions = Vec::new();
    for together in records.chunks(3) {
        let together: Vec<&[u8]> = together.iter().map(Vec::as_slice).collect();
        positions.extend(append_together(&log, &together));
    }
    let mut reader = LogReader::open(&path).unwrap();
    for number in (0..40).map(|it| it * 17 % 40) {
        assert_eq!(log.read(positions[number]).unwrap(), records[number]);
        assert_eq!(reader.read_at(positions[number]).unwrap(), records[number]);
    }
    assert_eq!(next(&mut reader).unwrap().0, positions[0], "it stayed where it was");
    log.truncate_before(positions[20]).unwrap();
    for (number, &position) in positions.iter().enumerate() {
        match log.read(position) {
            Ok(bytes) => assert_eq!((bytes, number >= 20), (records[number].clone(), true)),
            Err(error) => {
                let truncated = LogErrorKind::Truncated { position, first: positions[20] };
                assert_eq!((error.kind(), number < 20), (&truncated, true));
            }
        }
    }
}

#[test]
fn what_is_no_record_of_the_committed_part_is_not_read() {
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    let position = log.append(b"here").unwrap();
    let submitted = log.submit(b"not yet").unwrap();
    let reader = &mut log.reader().unwrap();
    let nowhere = [position.get() + 8, position.get() - 48, submitted.position().get(), u64::MAX];
    for nowhere in nowhere.map(Position::new) {
        let expected = LogErrorKind::NoRecord(nowhere);
        assert_eq!(*log.read(nowhere).unwrap_err().kind(), expected);
        assert_eq!(*reader.read_at(nowhere).unwrap_err().kind(), expected);
    }
    let position = log.wait(submitted).unwrap();
    assert_eq!(log.read(position).unwrap(), b"not yet");
}

#[test]
fn an_iterator_goes_on_with_what_came_since() {
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    let mut reader = LogReader::open(&path).unwrap();
    let mut records = reader.records();
    assert!(records.next().is_none());
    let position = log.append(b"one").unwrap();
    assert_eq!(records.next().unwrap().unwrap(), (position, b"one".to_vec()));
    assert!(records.next().is_none());
    let first = log.append(b"two").unwrap();
    log.truncate_before(first).unwrap();
    assert_eq!(records.map(|it| it.unwrap().1).collect::<Vec<_>>(), [b"two"]);
}

#[test]
fn a_record_can_begin_where_a_block_does() {
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    // 48 bytes of the batch's header, 24 of the record's.
    let filler = record(0, 4096 - 48 - 24);
    let positions = append_together(&log, &[&filler, b"aligned", b"behind"]);
    assert!(positions[1].get().is_multiple_of(4096));
    let mut reader = LogReader::open(&path).unwrap();
    reader.seek(positions[1]).unwrap();
    assert_eq!(next(&mut reader), Some((positions[1], b"aligned".to_vec())));
    assert_eq!(next(&mut reader), Some((positions[2], b"behind".to_vec())));
    log.truncate_before(positions[1]).unwrap();
    reader.seek(Position::START).unwrap();
    assert_eq!(next(&mut reader), Some((positions[1], b"aligned".to_vec())));
}

#[test]
fn an_empty_record_can_end_a_segment() {
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    // Behind the segment's header and the batch that says that the log was opened.
    let rest = (64 << 10) - 2 * 4096;
    let filler = record(0, rest - 48 - 24 - 24);
    let positions = append_together(&log, &[&filler, b""]);
    assert_eq!(log.committed().get(), 64 << 10);
    let mut reader = LogReader::open(&path).unwrap();
    assert_eq!(next(&mut reader), Some((positions[0], filler)));
    assert_eq!(next(&mut reader), Some((positions[1], Vec::new())));
    assert_eq!(next(&mut reader), None);
    reader.seek(log.committed()).unwrap();
    let end = log.committed();
    log.append(b"behind").unwrap();
    for _ in 0..2 {
        assert_eq!(next(&mut reader).unwrap().1, b"behind");
        // What was the end is now where a segment begins.
        reader.seek(end).unwrap();
    }
}

#[test]
fn where_no_record_begins_is_refused_and_the_reader_stays() {
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    let positions = append_together(&log, &[&[7; 100], b"second"]);
    let mut reader = log.reader().unwrap();
    next(&mut reader);
    let end = log.committed().get();
    for nowhere in [1, 4095, positions[0].get() + 8, end - 8, end + 8, end + 4096, u64::MAX] {
        if nowhere < log.first().get() {
            continue;
        }
        let error = reader.seek(Position::new(nowhere)).unwrap_err();
        assert_eq!(*error.kind(), LogErrorKind::NoRecord(Position::new(nowhere)));
    }
    assert_eq!(next(&mut reader), Some((positions[1], b"second".to_vec())));
}
