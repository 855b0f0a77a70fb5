//! Readers of a `LogFile`: where they go, what they give, and what they say when a record was given up
//! under them.

use std::fs::{self, File, Permissions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use fairlock_io::{LogErrorKind, LogFile, LogOptions, LogReader, Position, SyncPolicy};
use tempfile::TempDir;

/// Nothing takes as long, unless it hangs.
const PATIENCE_MS: libc::c_int = 300_000;

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
    assert!(positions[1].get() % 4096 == 0);
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
    for nowhere in [1, 4095, positions[0].get() + 8, end - 8, end + 8, end + 4096, u64::MAX - 4095]
    {
        if nowhere < log.first().get() {
            continue;
        }
        let error = reader.seek(Position::new(nowhere)).unwrap_err();
        assert_eq!(*error.kind(), LogErrorKind::NoRecord(Position::new(nowhere)));
    }
    assert_eq!(next(&mut reader), Some((positions[1], b"second".to_vec())));
}

/// Whether a descriptor is readable now.
fn is_readable(descriptor: RawFd) -> bool {
    let mut event = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which the call fills in.
    unsafe { libc::poll(&mut event, 1, 0) == 1 }
}

/// Waits until it is.
fn wait_readable(descriptor: RawFd) {
    let mut event = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which the call fills in.
    assert_eq!(unsafe { libc::poll(&mut event, 1, PATIENCE_MS) }, 1, "it hangs");
}

#[test]
fn the_event_descriptor_is_readable_while_something_is_behind_the_reader() {
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    let first = log.append(b"first").unwrap();
    let mut reader = LogReader::open(&path).unwrap();
    let event = reader.event_fd().unwrap().as_raw_fd();
    assert!(is_readable(event));
    next(&mut reader).unwrap();
    // Whether there is more is known when it was asked for.
    assert_eq!(next(&mut reader), None);
    assert!(!is_readable(event));
    assert_eq!(next(&mut reader), None);
    assert!(!is_readable(event));

    let second = log.append(b"second").unwrap();
    wait_readable(event);
    assert!(is_readable(event), "until the reader has come to the end");
    reader.seek(log.committed()).unwrap();
    assert!(!is_readable(event));
    reader.seek(second).unwrap();
    assert!(is_readable(event));
    assert_eq!(next(&mut reader).unwrap().0, second);
    assert_eq!(next(&mut reader), None);
    assert!(!is_readable(event));
    reader.seek(first).unwrap();
    assert!(is_readable(event));
    assert_eq!(reader.event_fd().unwrap().as_raw_fd(), event);
}

#[test]
fn a_reader_that_comes_to_the_end_without_a_look_at_it_is_ready_again() {
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    let mut reader = LogReader::open(&path).unwrap();
    let event = reader.event_fd().unwrap().as_raw_fd();
    for number in 0..500 {
        // The reader may be at the end before the thread has seen the commit, or after.
        log.append(&record(number, 100)).unwrap();
        while next(&mut reader).is_some() {}
        assert!(!is_readable(event));
    }
    log.append(b"more").unwrap();
    wait_readable(event);
}

#[test]
fn readers_with_event_descriptors_end_whatever_they_wait_for() {
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    for number in 0..200 {
        let mut reader = LogReader::open(&path).unwrap();
        reader.event_fd().unwrap();
        if number % 2 == 0 {
            assert_eq!(next(&mut reader).is_some(), number > 0);
            while next(&mut reader).is_some() {}
        }
        if number % 3 == 0 {
            log.append(b"one").unwrap();
        }
    }
}

#[test]
fn an_event_loop_follows_two_logs_at_once() {
    const RECORDS: u64 = 200;
    let places = [place(), place()];
    let logs = places.each_ref().map(|(_, path)| small().open(path).unwrap());
    let mut readers = places.each_ref().map(|(_, path)| LogReader::open(path).unwrap());
    // SAFETY: a new descriptor, nobody else's.
    let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
    for (number, reader) in readers.iter_mut().enumerate() {
        let event = reader.event_fd().unwrap().as_raw_fd();
        // One learns of each change, the other of the state.
        let edge = if number == 0 { libc::EPOLLET } else { 0 };
        let events = (libc::EPOLLIN | edge) as u32;
        let mut interest = libc::epoll_event { events, u64: number as u64 };
        // SAFETY: both are open, and the entry is only read.
        let added = unsafe {
            libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, event, &mut interest)
        };
        assert_eq!(added, 0);
    }
    thread::scope(|scope| {
        for log in &logs {
            scope.spawn(|| {
                for number in 0..RECORDS {
                    log.append(&record(number, 50)).unwrap();
                }
            });
        }
        let mut seen = [0, 0];
        while seen != [RECORDS, RECORDS] {
            let mut ready = [libc::epoll_event { events: 0, u64: 0 }; 2];
            // SAFETY: room for two.
            let count =
                unsafe { libc::epoll_wait(epoll.as_raw_fd(), ready.as_mut_ptr(), 2, PATIENCE_MS) };
            assert!(count > 0, "it hangs");
            for ready in &ready[..count as usize] {
                let number = ready.u64 as usize;
                while let Some((_, bytes)) = next(&mut readers[number]) {
                    assert_eq!(bytes, record(seen[number], 50));
                    seen[number] += 1;
                }
            }
        }
    });
}

/// Appends numbered records, one to a batch, until segments that were given up are used again.
fn append_until_recycled(log: &LogFile, mut number: u64, length: usize) {
    let before = log.stats().recycled_segments;
    while log.stats().recycled_segments < before + 2 {
        log.append(&record(number, length)).unwrap();
        number += 1;
    }
    // And over what they held.
    for number in number..number + 100 {
        log.append(&record(number, length)).unwrap();
    }
}

#[test]
fn wherever_a_reader_stands_when_its_segment_is_used_again_it_hears_that_it_was_given_up() {
    // Records that are smaller than what is read at a time, and larger.
    for (length, count) in [(700, 60), (9_000, 30)] {
        let (_directory, path) = place();
        let log = small().open(&path).unwrap();
        let all: Vec<_> = (0..count)
            .map(|number| (log.append(&record(number, length)).unwrap(), record(number, length)))
            .collect();
        let mut readers: Vec<_> = (0..count as usize)
            .map(|read| {
                let mut reader = LogReader::open(&path).unwrap().read_bytes(4096);
                // Some have looked for the next record, some have not.
                all[..read].iter().for_each(|it| assert_eq!(next(&mut reader).as_ref(), Some(it)));
                reader
            })
            .collect();
        let at: Vec<_> = readers.iter().map(LogReader::position).collect();
        let first = log.append(b"the first that is left").unwrap();
        log.truncate_before(first).unwrap();
        append_until_recycled(&log, count, length);

        for (read, reader) in readers.iter_mut().enumerate() {
            let mut read = read;
            let error = loop {
                match reader.next() {
                    Ok(Some(record)) if record.position == first => break None,
                    Ok(Some(record)) => {
                        // What it has in memory, or what is not used again yet.
                        assert_eq!((record.position, record.bytes.to_vec()), all[read]);
                        read += 1;
                    }
                    Ok(None) => panic!("the log ends before {first}"),
                    Err(error) => break Some(error),
                }
            };
            let Some(error) = error else { continue };
            let LogErrorKind::Truncated { position, first: left } = *error.kind() else {
                panic!("{error}");
            };
            assert_eq!(left, first);
            assert!(at[0] <= position && position < first, "{position}");
            // It says so again, and goes on where it is told to.
            assert!(matches!(reader.next().unwrap_err().kind(), LogErrorKind::Truncated { .. }));
            reader.seek(left).unwrap();
            assert_eq!(next(reader).unwrap().1, b"the first that is left");
            assert_eq!(next(reader).unwrap().1, record(count, length));
        }
        let reader = &mut readers[0];
        for (position, _) in all {
            let expected = LogErrorKind::Truncated { position, first };
            assert_eq!(*log.read(position).unwrap_err().kind(), expected);
            assert_eq!(*reader.read_at(position).unwrap_err().kind(), expected);
            assert_eq!(*reader.seek(position).unwrap_err().kind(), expected);
        }
    }
}

/// Opens a log for writing beside a reader that stands at its end, which must follow.
fn assert_follows(reader: &mut LogReader, path: &Path) {
    assert_eq!(next(reader), None);
    let event = reader.event_fd().unwrap().as_raw_fd();
    assert!(!is_readable(event));
    let log = small().open(path).unwrap();
    for number in 0..100 {
        let position = log.append(&record(number, 2_000)).unwrap();
        wait_readable(event);
        let next = reader.next_within(Some(Duration::from_secs(60))).unwrap().unwrap();
        assert_eq!((next.position, next.bytes), (position, &*record(number, 2_000)));
    }
    assert_eq!(next(reader), None);
    log.close().unwrap();
    assert_eq!(next(reader), None);
}

#[test]
fn a_closed_log_is_read_and_followed_when_a_writer_comes() {
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    let position = log.append(b"kept").unwrap();
    log.close().unwrap();
    let mut reader = LogReader::open(&path).unwrap();
    assert_eq!(next(&mut reader), Some((position, b"kept".to_vec())));
    assert_follows(&mut reader, &path);
    assert_follows(&mut reader, &path);
}

#[test]
fn a_log_whose_writer_crashed_is_read_and_followed() {
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    let all: Vec<_> = (0..50)
        .map(|number| (log.append(&record(number, 3_000)).unwrap(), record(number, 3_000)))
        .collect();
    drop(log); // Without closing it, which is as if it had crashed.
    let mut reader = LogReader::open(&path).unwrap();
    assert!(all.iter().all(|it| next(&mut reader).as_ref() == Some(it)));
    assert_follows(&mut reader, &path);
}

#[test]
fn a_log_whose_system_crashed_is_read_to_the_end_that_is_found_and_followed() {
    // Words of the control page, by their bytes: how far it is committed, and the run of the kernel.
    const COMMITTED: u64 = 8 * 8;
    const BOOT: u64 = 21 * 8;
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    let stale = fs::read(path.join("control")).unwrap();
    let all: Vec<_> = (0..50)
        .map(|number| (log.append(&record(number, 3_000)).unwrap(), record(number, 3_000)))
        .collect();
    let end = log.committed();
    drop(log);
    let control = File::options().write(true).open(path.join("control")).unwrap();
    let committed = COMMITTED as usize..COMMITTED as usize + 8;
    control.write_all_at(&stale[committed], COMMITTED).unwrap();
    control.write_all_at(&[7; 16], BOOT).unwrap();

    let mut reader = LogReader::open(&path).unwrap();
    assert_eq!(reader.committed(), end);
    assert!(all.iter().all(|it| next(&mut reader).as_ref() == Some(it)));
    assert_follows(&mut reader, &path);
}

#[test]
fn a_log_that_has_lost_its_first_position_is_read_from_its_first_segment() {
    // Words of the control page, by their bytes: the first position, before its check.
    const FIRST: u64 = 17 * 8;
    let (_directory, path) = place();
    let log = small().open(&path).unwrap();
    let all: Vec<_> = (0..50)
        .map(|number| (log.append(&record(number, 3_000)).unwrap(), record(number, 3_000)))
        .collect();
    log.truncate_before(all[30].0).unwrap();
    log.close().unwrap();
    // As if the writer had been killed between the two.
    let control = File::options().write(true).open(path.join("control")).unwrap();
    control.write_all_at(&all[40].0.get().to_le_bytes(), FIRST).unwrap();
    let mut reader = LogReader::open(&path).unwrap();
    let read: Vec<_> = reader.records().map(Result::unwrap).collect();
    assert!(read.len() >= 20 && all.ends_with(&read), "{} records", read.len());
}

#[test]
fn readers_move_between_threads() {
    fn can_move<T: Send>() {}
    can_move::<LogReader>();
}

#[test]
fn a_log_without_a_record_is_followed_from_its_first() {
    let (_directory, path) = place();
    assert_eq!(*LogReader::open(&path).unwrap_err().kind(), LogErrorKind::NotALog);
    small().open(&path).unwrap().close().unwrap();
    let mut reader = LogReader::open(&path).unwrap();
    assert_follows(&mut reader, &path);
}

/// Lets the calling thread alone go on as a user without any rights; false if that is not allowed.
fn drop_privileges() -> bool {
    const NOBODY: libc::uid_t = 65534;
    // SAFETY: system calls without pointers. Not the C library's, which would change all threads.
    unsafe {
        libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY) == 0
            && libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0
    }
}

#[test]
fn a_reader_needs_only_to_be_allowed_to_read() {
    let (directory, path) = place();
    let log = LogOptions::new().mode(0o644).open(&path).unwrap();
    log.append(b"before").unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            if drop_privileges() {
                if fs::metadata(&path).is_err() {
                    println!("skipped: a user without rights cannot reach the target directory");
                    return;
                }
                assert!(File::options().write(true).open(path.join("control")).is_err());
            }
            let mut reader = LogReader::open(&path).unwrap();
            let event = reader.event_fd().unwrap().as_raw_fd();
            let mut read = Vec::new();
            while read != [b"before".to_vec(), b"after".to_vec()] {
                wait_readable(event);
                read.extend(reader.records().map(|it| it.unwrap().1));
            }
        });
        log.append(b"after").unwrap();
        reading.join().unwrap();
    });
}

#[test]
fn a_damaged_copy_is_read_to_its_last_whole_batch_by_who_asks_for_that() {
    let (directory, path) = place();
    let log = small().open(&path).unwrap();
    let positions: Vec<Position> =
        (0..200).map(|number| log.append(&record(number, 1000)).unwrap()).collect();
    log.close().unwrap();
    let copy = directory.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for file in path.read_dir().unwrap().map(|file| file.unwrap()) {
        fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    // A batch with one record, in the first segment: its header, and the record's.
    let lost = 5;
    let file = copy.join(format!("{:016}.segment", 0));
    let file = File::options().write(true).open(file).unwrap();
    let batch = positions[lost].get() - 48;
    file.write_all_at(&[0xaa; 200], batch).unwrap();

    let refused = LogReader::open(&copy).expect_err("its end is not known");
    assert!(matches!(refused.kind(), LogErrorKind::IncompleteCopy { .. }), "{refused}");
    let mut reader = LogReader::open_damaged(&copy).unwrap().skip_damage(true);
    let mut found = Vec::new();
    while let Some((position, _)) = next(&mut reader) {
        found.push(position);
    }
    let mut whole = positions;
    whole.remove(lost);
    assert_eq!(found, whole);
    let damages: Vec<Position> = reader.damages().iter().map(|damage| damage.position).collect();
    assert_eq!(damages, [Position::new(batch)]);

    // What an error says of a place is about a file of the log.
    let mut reader = LogReader::open_damaged(&copy).unwrap();
    reader.seek(whole[lost - 1]).unwrap();
    assert!(reader.next().unwrap().is_some());
    let said = reader.next().unwrap_err().to_string();
    let place = format!("0000000000000000.segment, byte {batch})");
    assert!(said.contains(&format!("at position {batch}:")) && said.ends_with(&place), "{said}");
}
