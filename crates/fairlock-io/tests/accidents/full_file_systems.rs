//! A log on file systems without any room: in place (ext4), with extents that a copy shares (XFS), and
//! copying on every write (btrfs).
//!
//! Where what is overwritten is put elsewhere, even the log's own control page needs room to be changed. A full
//! disk must fail appends, never end the process; and it must be possible to make room by giving up a part of
//! the log.
//!
//! It needs root and `mkfs`; without, it says so and tests nothing.

use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use fairlock_io::{LogErrorKind, LogFile, LogOptions, LogReader, Position, Submitted, SyncPolicy};

use crate::mounted::{FileSystem, Mounted};
use crate::part::{Part, Parts};

const EXT4: FileSystem =
    FileSystem { name: "ext4", mkfs: &["mkfs.ext4", "-q", "-F", "-m", "0"], megabytes: 64 };
/// As small as its mkfs makes it.
const XFS: FileSystem =
    FileSystem { name: "XFS", mkfs: &["mkfs.xfs", "-q", "-f", "-m", "reflink=1"], megabytes: 300 };
const BTRFS: FileSystem =
    FileSystem { name: "btrfs", mkfs: &["mkfs.btrfs", "-q", "-f"], megabytes: 256 };

const SEGMENT_BYTES: u64 = 1 << 20;

pub const PARTS: &Parts = &[
    ("appends at every commit", |place| append_without_room(place, SyncPolicy::EveryCommit)),
    ("appends without syncs", |place| append_without_room(place, SyncPolicy::Never)),
    ("appends and closes", append_and_close),
    ("opens without room", open_without_room),
    ("reads without room", read_without_room),
];

fn options() -> LogOptions {
    LogOptions::new().segment_bytes(SEGMENT_BYTES)
}

fn record(number: u64) -> Vec<u8> {
    let length = [30, 5_000, 100_000][number as usize % 3];
    let mut bytes = vec![number as u8; length];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn assert_there(mut reader: LogReader, records: &[(Position, u64)]) {
    for &(position, number) in records {
        let found = reader.next().unwrap();
        let found = found.unwrap_or_else(|| panic!("record {number} at {position} is lost"));
        assert_eq!(found.position, position);
        assert!(found.bytes == record(number), "record {number} at {position} is another");
    }
    assert!(reader.next().unwrap().is_none());
}

/// Leaves no room at all.
fn fill(place: &Path) {
    // What was given back only now is found at the second time, and what was taken meanwhile at the third.
    for round in 0..3 {
        let Ok(file) = File::create(place.join(format!("filler{round}"))) else { return };
        let mut length = 0;
        let mut step: i64 = 64 << 20;
        while step >= 4096 {
            // SAFETY: a system call on an open file.
            match unsafe { libc::fallocate(file.as_raw_fd(), 0, length, step) } {
                0 => length += step,
                _ => step /= 2,
            }
        }
        sync(place);
    }
}

fn make_room(place: &Path) -> io::Result<()> {
    for entry in fs::read_dir(place)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|it| it.as_encoded_bytes().starts_with(b"filler")) {
            fs::remove_file(path)?;
        }
    }
    sync(place);
    Ok(())
}

/// Brings all that is written to the device, as the kernel does every some seconds: what is changed then is
/// put elsewhere.
fn sync(place: &Path) {
    let root = File::open(place).unwrap();
    // A full file system may say so here, too. SAFETY: a system call on an open file.
    let _ = unsafe { libc::syncfs(root.as_raw_fd()) };
}

/// A copy that shares its blocks with the log, where the file system has such copies.
fn copy(log: &Path, to: &Path) {
    let copy = Command::new("cp").args(["-r", "--reflink=always"]).args([log, to]).output();
    let _ = copy.expect("cp can be started");
    // What shares the room that is kept for a full disk takes it away; a copy is whole without.
    for copied in ["reserve", "log/reserve"] {
        let _ = fs::remove_file(to.join(copied));
    }
}

/// Appends until the file system is full, and beyond; then makes room.
fn append_without_room(place: &Path, policy: SyncPolicy) {
    let path = place.join("log");
    let log = options().sync(policy).open(&path).unwrap();
    let mut acknowledged = Vec::new();
    let mut number = 0;
    let mut append = |log: &LogFile, acknowledged: &mut Vec<(Position, u64)>| {
        number += 1;
        log.append(&record(number)).map(|position| acknowledged.push((position, number)))
    };
    for _ in 0..50 {
        append(&log, &mut acknowledged).unwrap();
    }
    // All of it, or only the page that its writer and readers share: then there are blocks for the records
    // that follow, and none for the page.
    match policy {
        SyncPolicy::EveryCommit => copy(&path, &place.join("copy")),
        _ => copy(&path.join("control"), &place.join("copy")),
    }
    fill(place);
    let mut refused = 0;
    for round in 0..200 {
        sync(place);
        if let Err(error) = append(&log, &mut acknowledged) {
            assert_eq!(*error.kind(), LogErrorKind::StorageFull, "{error}");
            refused += 1;
            if refused == 20 {
                break;
            }
        }
        assert!(round < 199, "it never fills up");
    }
    assert_there(log.reader().unwrap(), &acknowledged);
    assert_there(LogReader::open(&path).unwrap(), &acknowledged);
    // To give up something needs no room.
    sync(place);
    acknowledged.drain(..acknowledged.len() / 2);
    log.truncate_before(acknowledged[0].0).unwrap();
    assert_there(log.reader().unwrap(), &acknowledged);
    for _ in 0..10 {
        sync(place);
        if let Err(error) = append(&log, &mut acknowledged) {
            assert_eq!(*error.kind(), LogErrorKind::StorageFull, "{error}");
        }
    }
    make_room(place).unwrap();
    for _ in 0..30 {
        append(&log, &mut acknowledged).unwrap();
    }
    assert_there(log.reader().unwrap(), &acknowledged);
    log.close().unwrap();
    assert_there(LogReader::open(&path).unwrap(), &acknowledged);
}

const CLOSED_RECORDS: u64 = 200;

fn append_and_close(place: &Path) {
    let log = options().open(place.join("log")).unwrap();
    let submitted: Vec<Submitted> =
        (0..CLOSED_RECORDS).map(|it| log.submit(&record(it)).unwrap()).collect();
    for submitted in submitted {
        log.wait(submitted).unwrap();
    }
    log.close().unwrap();
}

/// All records, as they were appended from `from` on.
fn read(mut reader: LogReader, from: u64) -> Vec<(Position, u64)> {
    let mut found = Vec::new();
    while let Some(read) = reader.next().unwrap() {
        let number = from + found.len() as u64;
        assert!(read.bytes == record(number), "record {number} is another");
        found.push((read.position, number));
    }
    found
}

fn read_without_room(place: &Path) {
    let path = place.join("log");
    let there = read(LogReader::open(&path).unwrap(), 0);
    assert_eq!(there.len() as u64, CLOSED_RECORDS);
    let verified = LogReader::verify(&path, |damage| panic!("{damage:?}")).unwrap();
    assert_eq!(verified.records, CLOSED_RECORDS);
    assert!(LogReader::summary(&path).is_ok());
}

fn segments(path: &Path) -> usize {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.as_encoded_bytes().ends_with(b".segment")).count()
}

/// Opens it, gives up most of it, and goes on when there is room.
fn open_without_room(place: &Path) {
    let path = place.join("log");
    let before = segments(&path);
    let log = options().open(&path).unwrap();
    let there = read(log.reader().unwrap(), 0);
    assert_eq!(there.len() as u64, CLOSED_RECORDS);
    let (kept, first) = there[there.len() - 20];
    log.truncate_before(kept).unwrap();
    assert_eq!(log.first(), kept);
    assert!(segments(&path) < before, "no segment of {before} was given up");
    assert_eq!(read(log.reader().unwrap(), first).len(), 20);
    // There may be room again, as segments were given up.
    let appended = log.append(&record(CLOSED_RECORDS));
    if let Err(error) = &appended {
        assert_eq!(*error.kind(), LogErrorKind::StorageFull, "{error}");
    }
    make_room(place).unwrap();
    let next = CLOSED_RECORDS + u64::from(appended.is_ok());
    log.append(&record(next)).unwrap();
    assert_eq!(read(log.reader().unwrap(), first).last().map(|it| it.1), Some(next));
    log.close().unwrap();
    assert_eq!(read(LogReader::open(&path).unwrap(), first).last().map(|it| it.1), Some(next));
}

/// Runs `parts` in a new file system; all but the first of some without any room.
fn run_on(
    kind: &FileSystem,
    parts: &[&str],
    prepare: impl Fn(&Path),
) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let Some(mounted) = Mounted::make(directory.path(), kind) else {
        return Ok(());
    };
    let place = PathBuf::from(mounted.place());
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            prepare(&place);
        }
        Part::start(part, &place, &[]).ends_well()?;
    }
    mounted.mount_again()?;
    let verified = LogReader::verify(place.join("log"), |damage| panic!("{damage:?}"))?;
    assert!(verified.records > 0);
    Ok(())
}

fn appends_fail_until_there_is_room(kind: &FileSystem) -> Result<(), Box<dyn Error>> {
    for part in ["appends at every commit", "appends without syncs"] {
        run_on(kind, &[part], |_| {})?;
    }
    Ok(())
}

fn a_closed_log_can_be_given_up_in_part(kind: &FileSystem) -> Result<(), Box<dyn Error>> {
    run_on(kind, &["appends and closes", "reads without room", "opens without room"], |place| {
        copy(&place.join("log"), &place.join("copy"));
        fill(place);
    })
}

#[test]
fn appends_fail_on_a_full_ext4_until_there_is_room() -> Result<(), Box<dyn Error>> {
    appends_fail_until_there_is_room(&EXT4)
}

#[test]
fn appends_fail_on_a_full_xfs_with_a_copy_until_there_is_room() -> Result<(), Box<dyn Error>> {
    appends_fail_until_there_is_room(&XFS)
}

#[test]
fn appends_fail_on_a_full_btrfs_until_there_is_room() -> Result<(), Box<dyn Error>> {
    appends_fail_until_there_is_room(&BTRFS)
}

#[test]
fn a_closed_log_can_be_given_up_in_part_on_a_full_ext4() -> Result<(), Box<dyn Error>> {
    a_closed_log_can_be_given_up_in_part(&EXT4)
}

#[test]
fn a_closed_log_can_be_given_up_in_part_on_a_full_xfs() -> Result<(), Box<dyn Error>> {
    a_closed_log_can_be_given_up_in_part(&XFS)
}

#[test]
fn a_closed_log_can_be_given_up_in_part_on_a_full_btrfs() -> Result<(), Box<dyn Error>> {
    a_closed_log_can_be_given_up_in_part(&BTRFS)
}
