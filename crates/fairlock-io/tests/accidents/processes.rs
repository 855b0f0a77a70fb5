//! A `LogFile` and its readers in processes of their own.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlock_io::{LogErrorKind, LogFile, LogReader, Position, SyncPolicy};
use tempfile::TempDir;

use crate::part::{Part, Parts};

/// Long enough that only a reader that was never woken waits as long.
const PATIENCE: Duration = Duration::from_secs(300);

/// The records that the writer appends.
const RECORDS: u64 = 1_500;
/// Behind its end, the writer keeps so many bytes: too few for a reader that is slow.
const KEPT: u64 = 256 << 10;
/// So many records are given up at once.
const TOGETHER: usize = 100;

fn place() -> (TempDir, PathBuf) {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a writable target");
    let path = directory.path().join("log");
    (directory, path)
}

pub const PARTS: &Parts = &[
    ("writes", write),
    ("waits", |path| read(LogReader::open(path).unwrap(), next_by_waiting)),
    ("polls", |path| read(LogReader::open(path).unwrap(), next_by_polling)),
    ("reads little", |path| read(LogReader::open(path).unwrap().read_bytes(4096), next_twice)),
    ("measures memory", write_and_read_much),
];

/// A number that follows from another, as random as it needs to be.
fn mixed(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 16
}

/// Its number, then up to 16 KiB that follow from it; sometimes more than a batch.
fn record(number: u64) -> Vec<u8> {
    let length = match number % 101 {
        0 => 100_000,
        _ => mixed(number) % (16 << 10),
    };
    let bytes = (0..length).map(|at| (number ^ (at * 7)) as u8);
    number.to_le_bytes().into_iter().chain(bytes).collect()
}

/// Appends all records, some of them together, and gives up what is far behind.
fn write(path: &Path) {
    let options = LogFile::options().sync(SyncPolicy::Never).batch_bytes(64 << 10).clone();
    let log = options.open(path).unwrap();
    let mut number = 0;
    let mut positions = Vec::new();
    while number < RECORDS {
        let together = 1 + mixed(number) % 4;
        let end = RECORDS.min(number + together);
        let submitted: Vec<_> = (number..end).map(|it| log.submit(&record(it)).unwrap()).collect();
        positions.extend(submitted.into_iter().map(|it| log.wait(it).unwrap()));
        number = end;
        let far = Position::new(log.committed().get().saturating_sub(KEPT));
        let left = positions.partition_point(|&it| it < far).min(positions.len() - 1);
        if left >= TOGETHER {
            log.truncate_before(positions[left]).unwrap();
            positions.drain(..left);
        }
    }
    assert!(log.stats().recycled_segments > 0);
    log.close().unwrap();
}

/// Reads until the last record: each once, in order, whole, unless it was given up meanwhile.
fn read(mut reader: LogReader, next: fn(&mut LogReader) -> Result<Vec<u8>, fairlock_io::LogError>) {
    // A process that starts late finds less.
    let mut expected = go_on(&mut reader, 0);
    while expected < RECORDS {
        let before = reader.position();
        match next(&mut reader) {
            Ok(bytes) => {
                let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                assert_eq!(number, expected);
                assert!(bytes == record(number), "record {number} is not what was appended");
                expected += 1;
            }
            Err(error) => {
                let LogErrorKind::Truncated { position, first } = *error.kind() else {
                    panic!("{error}");
                };
                assert!(before <= position && position < first, "{error}");
                expected = go_on(&mut reader, expected);
            }
        }
    }
    assert!(reader.next().unwrap().is_none());
}

/// Goes to the first record that is left; its number.
fn go_on(reader: &mut LogReader, expected: u64) -> u64 {
    loop {
        reader.seek(Position::START).unwrap();
        let position = reader.position();
        match reader.next_within(Some(PATIENCE)) {
            Ok(record) => {
                let number = u64::from_le_bytes(record.unwrap().bytes[..8].try_into().unwrap());
                // The same, if only padding before it was given up.
                assert!(number >= expected, "{number} comes again");
                match reader.seek(position) {
                    Ok(()) => return number,
                    Err(error) => assert_truncated(&error),
                }
            }
            Err(error) => assert_truncated(&error),
        }
    }
}

fn assert_truncated(error: &fairlock_io::LogError) {
    assert!(matches!(error.kind(), LogErrorKind::Truncated { .. }), "{error}");
}

fn next_by_waiting(reader: &mut LogReader) -> Result<Vec<u8>, fairlock_io::LogError> {
    let record = reader.next_within(Some(PATIENCE))?;
    Ok(record.expect("woken in time").bytes.to_vec())
}

fn next_by_polling(reader: &mut LogReader) -> Result<Vec<u8>, fairlock_io::LogError> {
    loop {
        if let Some(record) = reader.next()? {
            return Ok(record.bytes.to_vec());
        }
        let event = reader.event_fd()?.as_raw_fd();
        let mut event = libc::pollfd { fd: event, events: libc::POLLIN, revents: 0 };
        let timeout = PATIENCE.as_millis() as libc::c_int;
        // SAFETY: one entry, which the call fills in.
        assert_eq!(unsafe { libc::poll(&mut event, 1, timeout) }, 1, "woken in time");
    }
}

/// Reads it once more by its position, and from the last bytes on.
fn next_twice(reader: &mut LogReader) -> Result<Vec<u8>, fairlock_io::LogError> {
    let record = reader.next_within(Some(PATIENCE))?.expect("woken in time");
    let (position, bytes) = (record.position, record.bytes.to_vec());
    match reader.read_at(position) {
        Ok(again) => assert!(again == bytes, "another record at {position}"),
        Err(error) => assert_truncated(&error),
    }
    Ok(bytes)
}

#[test]
fn readers_in_other_processes_see_each_record_once_or_hear_that_it_was_given_up() {
    for segment_bytes in [256 << 10, 1 << 20] {
        let (_directory, path) = place();
        let options = LogFile::options().segment_bytes(segment_bytes).clone();
        options.open(&path).unwrap().close().unwrap();
        let parts = ["writes", "waits", "polls", "reads little"];
        for part in parts.map(|name| Part::start(name, &path, &[])) {
            part.ends_well_within(2 * PATIENCE).unwrap();
        }
    }
}

/// What goes through the log whose memory is measured, bytes.
const MUCH: u64 = 64 << 20;
/// The memory that the last seven eighths may take beyond what the first has taken, KiB.
const MORE_KIB: u64 = 8 << 10;

/// The most memory that this process has had, KiB.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

fn write_and_read_much(path: &Path) {
    let log = LogFile::options().segment_bytes(4 << 20).sync(SyncPolicy::Never).open(path);
    let log = log.unwrap();
    let mut readers = [log.reader().unwrap(), LogReader::open(path).unwrap()];
    let bytes = vec![7; 100_000];
    let mut early = None;
    while log.committed().get() < MUCH {
        for _ in 0..100 {
            // Waited for together, further down.
            let _ = log.submit(&bytes).unwrap();
        }
        log.sync().unwrap();
        for reader in &mut readers {
            while let Some(record) = reader.next().unwrap() {
                assert_eq!(record.bytes.len(), bytes.len());
            }
        }
        log.truncate_before(log.committed()).unwrap();
        if early.is_none() && log.committed().get() >= MUCH / 8 {
            early = Some(peak_kib());
        }
    }
    let (early, end) = (early.unwrap(), peak_kib());
    assert!(end <= early + MORE_KIB, "{early} KiB after an eighth, {end} KiB at the end");
}

#[test]
fn a_log_and_its_readers_take_little_memory_whatever_goes_through_it() {
    let (_directory, path) = place();
    Part::start("measures memory", &path, &[]).ends_well_within(PATIENCE).unwrap();
}
