//! Damaged logs on the system's disk, repaired: copies that are incomplete, segments that others have, too, and
//! what is saved of the bytes that a repair overwrites.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use fairlock_io::{
    Damaged, LogErrorKind, LogFile, LogOptions, LogReader, OpenMode, Position, RepairOptions,
    RepairReport, SyncPolicy,
};

use crate::plain_records::{append, place, read};

const SEGMENT: u64 = 64 << 10;

fn options() -> LogOptions {
    LogOptions::new().segment_bytes(SEGMENT).sync(SyncPolicy::Never)
}

/// What a log has that opens without complaint, in which nothing is wrong, and that takes one more record.
fn sound(path: &Path) -> BTreeMap<u64, Position> {
    let found = LogReader::verify(path, |damage| panic!("{damage:?}")).unwrap();
    let read_alone = read(LogReader::open(path).unwrap());
    assert_eq!(found.records, read_alone.len() as u64);
    let log = options().open(path).unwrap();
    assert_eq!(read(log.reader().unwrap()), read_alone);
    let (number, position) = append(&log, 1_000..1_001).pop_first().unwrap();
    assert!(read_alone.values().all(|&before| before < position), "a position has returned");
    log.close().unwrap();
    let mut again = read(LogReader::open(path).unwrap());
    assert_eq!(again.remove(&number), Some(position));
    assert_eq!(again, read_alone);
    read_alone
}

fn segment_file(path: &Path, segment: u64) -> PathBuf {
    path.join(format!("{segment:016}.segment"))
}

fn flip(path: &Path, position: u64) {
    let file = File::options().read(true).write(true).open(segment_file(path, position / SEGMENT));
    let file = file.unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position % SEGMENT).unwrap();
    file.write_all_at(&[!byte[0]], position % SEGMENT).unwrap();
}

/// All files with what is in them.
fn files(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    names.map(|name| (name.clone(), fs::read(&name).unwrap())).collect()
}

/// Repairs a log, and looks at what a dry run says first.
fn repair(path: &Path, options: &RepairOptions) -> RepairReport {
    let before = files(path);
    let planned = LogFile::repair(path, &options.clone().dry_run(true)).unwrap();
    assert!(files(path) == before, "a dry run has changed something");
    let mut damages = Vec::new();
    let found = LogReader::verify(path, |damage| damages.push(damage)).unwrap();
    let report = LogFile::repair(path, options).unwrap();
    assert_eq!((report.found, &report.damages), (found, &damages));
    let mut said = report.clone();
    said.saved.clear();
    assert_eq!(said, planned);
    assert!(!LogFile::repair(path, options).unwrap().is_needed);
    report
}

#[test]
fn every_record_that_is_whole_stays_and_what_was_overwritten_is_in_files() {
    let (_directory, path) = place();
    let log = options().open(&path).unwrap();
    let mut records = append(&log, 0..80);
    log.close().unwrap();
    let lost = [7, 22, 41];
    for number in lost {
        flip(&path, records[&number].get() + 25);
    }
    flip(&path, SEGMENT + 17);
    fs::remove_file(segment_file(&path, 2)).unwrap();
    let before = files(&path);
    assert!(LogFile::open(&path).is_err());

    let report = repair(&path, &RepairOptions::new());
    records.retain(|number, at| !lost.contains(number) && at.get() / SEGMENT != 2);
    assert_eq!(sound(&path), records);
    let is_of = |what: Damaged| report.damages.iter().any(|damage| damage.what == what);
    assert!(is_of(Damaged::Record) && is_of(Damaged::SegmentHeader) && is_of(Damaged::Segment));
    assert!(!report.saved.is_empty());
    for saved in &report.saved {
        let name = saved.file_name().unwrap().to_str().unwrap();
        let position: u64 = name.split('-').nth(1).unwrap().parse().unwrap();
        let bytes = fs::read(saved).unwrap();
        let original = &before[&segment_file(&path, position / SEGMENT)];
        let at = (position % SEGMENT) as usize;
        assert!(bytes == original[at..at + bytes.len()], "{name}");
        fs::remove_file(saved).unwrap();
    }
    assert_eq!(read(LogReader::open(&path).unwrap()).len(), records.len() + 1);
}

#[test]
fn segments_that_another_log_has_too_are_replaced() {
    let (directory, path) = place();
    let log = options().open(&path).unwrap();
    let mut records = append(&log, 0..80);
    let other = directory.path().join("other");
    log.checkpoint(&other).unwrap();
    log.close().unwrap();
    let (&lost, &at) = records.iter().nth(5).unwrap();
    flip(&path, at.get() + 25);
    let shared = segment_file(&path, 0);
    assert!(fs::metadata(&shared).unwrap().nlink() > 1, "the checkpoint shares it");
    let before = files(&other);

    repair(&path, &RepairOptions::new());
    assert!(files(&other) == before);
    assert_eq!(fs::metadata(&shared).unwrap().nlink(), 1);
    records.remove(&lost);
    assert_eq!(sound(&path), records);
    repair(&other, &RepairOptions::new());
    assert_eq!(sound(&other), records);
}

/// A copy whose control page says more than its segments hold.
fn incomplete_copy(path: &Path, copy: &Path) -> (BTreeMap<u64, Position>, LogFile) {
    let log = options().open(path).unwrap();
    let records = append(&log, 0..60);
    fs::create_dir(copy).unwrap();
    let copy_all = |is_wanted: &dyn Fn(&str) -> bool| {
        for entry in fs::read_dir(path).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if is_wanted(&name) {
                fs::copy(path.join(&name), copy.join(&name)).unwrap();
            }
        }
    };
    copy_all(&|name| name.ends_with(".segment"));
    append(&log, 60..120);
    copy_all(&|name| name == "control");
    (records, log)
}

#[test]
fn an_incomplete_copy_opens_with_all_that_is_whole() {
    for mode in [OpenMode::UpToDamage, OpenMode::SkipDamage] {
        let (directory, path) = place();
        let copy = directory.path().join("copy");
        let (records, log) = incomplete_copy(&path, &copy);
        let refused = options().open(&copy).unwrap_err();
        let LogErrorKind::IncompleteCopy { position } = *refused.kind() else {
            panic!("{refused}")
        };

        let opened = options().open_mode(mode).open(&copy).unwrap();
        assert!(!opened.recovery().damages.is_empty());
        assert!(opened.recovery().cut_at.is_none_or(|cut| cut >= position));
        assert_eq!(read(opened.reader().unwrap()), records);
        // The original may have given those positions to others.
        assert!(opened.committed() >= log.committed());
        opened.close().unwrap();
        assert_eq!(sound(&copy), records);
    }
}

#[test]
fn a_log_that_is_open_is_not_repaired_and_one_that_is_none_stays_as_it_is() {
    let (directory, path) = place();
    let log = options().open(&path).unwrap();
    let refused = LogFile::repair(&path, &RepairOptions::new()).unwrap_err();
    assert_eq!(*refused.kind(), LogErrorKind::BusyWriter { process: std::process::id() });
    assert!(LogFile::repair(&path, &RepairOptions::new().dry_run(true)).is_ok());
    drop(log);
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for dry_run in [true, false] {
        let refused = LogFile::repair(&empty, &RepairOptions::new().dry_run(dry_run)).unwrap_err();
        assert_eq!(*refused.kind(), LogErrorKind::NotALog);
        assert!(files(&empty).is_empty());
    }
}

#[test]
fn what_says_of_damage_says_what_to_do() {
    let (_directory, path) = place();
    let log = options().open(&path).unwrap();
    let records = append(&log, 0..80);
    log.close().unwrap();
    let at = records[&79];
    flip(&path, at.get() + 25);
    let read = LogReader::open(&path).and_then(|mut reader| reader.read_at(at)).unwrap_err();
    fs::remove_file(segment_file(&path, 1)).unwrap();
    let missing = LogFile::open(&path).unwrap_err();
    fs::write(path.join("control"), [7; 4096]).unwrap();
    let control = LogFile::open(&path).unwrap_err();
    fs::write(path.join("control"), []).unwrap();
    let short = LogFile::open(&path).unwrap_err();
    for error in [read, missing, control, short] {
        let said = error.to_string();
        assert!(said.contains("`fairlock log verify`"), "{said}");
        assert!(said.contains("`fairlock log repair`"), "{said}");
    }
}
