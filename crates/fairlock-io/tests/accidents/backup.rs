//! Copies of a log that is appended to: checkpoints, from this process and from another, and copies that other
//! programs make.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_io::{
    Checkpoint, LogErrorKind, LogFile, LogOptions, LogReader, Position, Prewrite, SyncPolicy,
};

use crate::long::depth;
use crate::mounted::{FileSystem, Mounted, run};
use crate::part::{Part, Parts};
use crate::plain_records::{append, place, read, record};

/// Long enough that only what hangs takes as long.
const PATIENCE: Duration = Duration::from_secs(120);

fn options(sync: SyncPolicy) -> LogOptions {
    LogOptions::new().segment_bytes(64 << 10).batch_bytes(16 << 10).sync(sync)
}

fn assert_in_sequence(found: &BTreeMap<u64, Position>) {
    let numbers: Vec<u64> = found.keys().copied().collect();
    let gap = numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]);
    assert_eq!(gap, None, "records are missing between those");
}

fn assert_undamaged(path: &Path) {
    let found = LogReader::verify(path, |damage| panic!("{damage:?}")).unwrap();
    assert_eq!(found.damages, 0);
}

/// What a checkpoint has, which must be all that it says, and all of `acknowledged` that is in that range.
fn check(
    path: &Path,
    checkpoint: Checkpoint,
    acknowledged: &BTreeMap<u64, Position>,
) -> BTreeMap<u64, Position> {
    let summary = LogReader::summary(path).unwrap();
    assert!(summary.closed && summary.writer.is_none());
    assert_eq!(summary.committed, Some(checkpoint.end));
    assert_eq!(summary.first, checkpoint.first);
    assert_undamaged(path);
    let found = read(LogReader::open(path).unwrap());
    assert_in_sequence(&found);
    let range = checkpoint.first..checkpoint.end;
    for (number, position) in acknowledged.iter().filter(|(_, it)| range.contains(it)) {
        assert_eq!(found.get(number), Some(position), "record {number} of {range:?}");
    }
    found
}

#[test]
fn a_checkpoint_beside_appends_truncations_and_others_has_all_that_was_acknowledged() {
    let checkpoints = depth(3, 5);
    for sync in [SyncPolicy::EveryCommit, SyncPolicy::Never] {
        let (directory, path) = place();
        let log = options(sync).open(&path).unwrap();
        let acknowledged = Mutex::new(append(&log, 0..100));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 100.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let position = log.append(&record(number)).unwrap();
                    let mut acknowledged = acknowledged.lock().unwrap();
                    acknowledged.insert(number, position);
                    if number % 60 == 0 {
                        log.truncate_before(acknowledged[&(number - 50)]).unwrap();
                    }
                }
            });
            let checkpointing: Vec<_> = (0..2)
                .map(|who| {
                    let (log, acknowledged) = (&log, &acknowledged);
                    let place = directory.path().join(format!("copies-{who}"));
                    fs::create_dir(&place).unwrap();
                    scope.spawn(move || {
                        for number in 0..checkpoints {
                            let copy = place.join(number.to_string());
                            let before = acknowledged.lock().unwrap().clone();
                            let checkpoint = match who {
                                0 => log.checkpoint(&copy).unwrap(),
                                _ => LogReader::checkpoint(log.path(), &copy).unwrap(),
                            };
                            let found = check(&copy, checkpoint, &before);
                            let last = before.last_key_value().unwrap();
                            assert!(checkpoint.end > *last.1, "{checkpoint:?} without {last:?}");
                            // It goes on, while the log does.
                            let opened = options(sync).open(&copy).unwrap();
                            assert!(opened.recovery().was_closed);
                            let next = found.last_key_value().map_or(0, |last| last.0 + 1);
                            append(&opened, next..next + 3);
                            assert_in_sequence(&read(opened.reader().unwrap()));
                            opened.close().unwrap();
                        }
                    })
                })
                .collect();
            let outcomes: Vec<_> = checkpointing.into_iter().map(|it| it.join()).collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(outcomes.iter().all(Result::is_ok));
        });
        assert_in_sequence(&read(log.reader().unwrap()));
        log.close().unwrap();
        assert_undamaged(&path);
    }
}

#[test]
fn a_log_and_its_checkpoint_go_on_without_each_others_records() {
    for prewrite in [Prewrite::Always, Prewrite::Never] {
        let (directory, path) = place();
        let options = options(SyncPolicy::EveryCommit).prewrite(prewrite);
        let log = options.open(&path).unwrap();
        let mut original = append(&log, 0..80);
        let copy_path = directory.path().join("copy");
        let checkpoint = log.checkpoint(&copy_path).unwrap();
        assert!(checkpoint.linked_bytes > 0, "{checkpoint:?}");
        assert!(checkpoint.copied_bytes <= log.segment_bytes(), "{checkpoint:?}");
        let mut copied = check(&copy_path, checkpoint, &original);
        assert_eq!(copied, original);

        // Both are open at once. All segments of the first are given up, and would be used again.
        let copy = options.open(&copy_path).unwrap();
        for step in 1..4 {
            original.extend(append(&log, 1000 * step..1000 * step + 60));
            copied.extend(append(&copy, 5000 * step..5000 * step + 60));
            assert_eq!(read(copy.reader().unwrap()), copied);
            log.truncate_before(original[&(1000 * step + 50)]).unwrap();
            original = original.split_off(&(1000 * step + 50));
            assert_eq!(read(log.reader().unwrap()), original);
        }
        copy.truncate_before(copied[&70]).unwrap();
        let copied = copied.split_off(&70);
        copy.close().unwrap();
        log.close().unwrap();
        for (path, expected) in [(&path, &original), (&copy_path, &copied)] {
            assert_undamaged(path);
            assert_eq!(read(LogReader::open(path).unwrap()), *expected);
            let log = options.open(path).unwrap();
            assert!(log.recovery().was_closed);
            assert_eq!(read(log.reader().unwrap()), *expected);
        }
    }
}

#[test]
fn a_log_that_ends_where_a_segment_ends_has_a_checkpoint() {
    let (directory, path) = place();
    let log = options(SyncPolicy::Never).open(&path).unwrap();
    let mut ends = 0;
    // Each takes a block.
    for number in (0..40_u64).step_by(2) {
        let appended = append(&log, number * 4..number * 4 + 1).len();
        assert_eq!(appended, 1);
        let copy = directory.path().join(format!("copy-{number}"));
        let checkpoint = LogReader::checkpoint(&path, &copy).unwrap();
        ends += u64::from(checkpoint.end.get() % log.segment_bytes() == 0);
        let count = read(LogReader::open(&copy).unwrap()).len();
        let opened = options(SyncPolicy::Never).open(&copy).unwrap();
        append(&opened, 1000..1001);
        assert_eq!(read(opened.reader().unwrap()).len(), count + 1);
        opened.close().unwrap();
        assert_undamaged(&copy);
    }
    assert!(ends > 0);
}

#[test]
fn a_log_of_no_records_and_one_that_gave_up_all_have_checkpoints() {
    let (directory, path) = place();
    let log = options(SyncPolicy::EveryCommit).open(&path).unwrap();
    let copy = directory.path().join("empty");
    let checkpoint = log.checkpoint(&copy).unwrap();
    assert!(check(&copy, checkpoint, &BTreeMap::new()).is_empty());
    append(&log, 0..100);
    log.truncate_before(log.committed()).unwrap();
    let copy = directory.path().join("given up");
    let checkpoint = log.checkpoint(&copy).unwrap();
    assert_eq!((checkpoint.first, checkpoint.end), (log.committed(), log.committed()));
    assert!(check(&copy, checkpoint, &BTreeMap::new()).is_empty());
    let opened = options(SyncPolicy::EveryCommit).open(&copy).unwrap();
    let position = opened.append(b"next").unwrap();
    assert!(position > checkpoint.end);
}

#[test]
fn a_log_that_was_not_closed_has_a_checkpoint() {
    let (directory, path) = place();
    let log = options(SyncPolicy::EveryCommit).open(&path).unwrap();
    let acknowledged = append(&log, 0..100);
    drop(log);
    let copy = directory.path().join("copy");
    let checkpoint = LogReader::checkpoint(&path, &copy).unwrap();
    assert_eq!(check(&copy, checkpoint, &acknowledged), acknowledged);
}

#[test]
fn a_directory_that_is_not_empty_is_refused_and_stays_as_it_is() {
    let (directory, path) = place();
    let log = options(SyncPolicy::EveryCommit).open(&path).unwrap();
    append(&log, 0..10);
    let others = directory.path().join("others");
    fs::create_dir(&others).unwrap();
    fs::write(others.join("precious"), b"bytes").unwrap();
    let refused = log.checkpoint(&others).unwrap_err();
    assert_eq!(*refused.kind(), LogErrorKind::OthersFiles, "{refused}");
    assert_eq!(names(&others), ["precious"]);
    let refused = log.checkpoint(&path).unwrap_err();
    assert_eq!(*refused.kind(), LogErrorKind::Exists, "{refused}");
    assert_eq!(read(log.reader().unwrap()).len(), 10);
    let missing = log.checkpoint(directory.path().join("no/such")).unwrap_err();
    assert_eq!(*missing.kind(), LogErrorKind::System("create"), "{missing}");
    // An empty one is what may be there.
    fs::remove_file(others.join("precious")).unwrap();
    log.checkpoint(&others).unwrap();
}

#[test]
fn a_copy_into_the_logs_own_directory_is_refused_by_whatever_path() {
    let (directory, path) = place();
    let log = options(SyncPolicy::EveryCommit).open(&path).unwrap();
    append(&log, 0..10);
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for inside in [path.join("copy"), link.join("copy"), path.join("../log/copy"), path.join(".")] {
        let errors = [log.checkpoint(&inside), LogReader::checkpoint(&path, &inside)];
        for error in errors.map(Result::unwrap_err) {
            let expected = match inside.ends_with("copy") {
                true => LogErrorKind::InsideLog,
                // The log itself.
                false => LogErrorKind::Exists,
            };
            assert_eq!(*error.kind(), expected, "{error}");
        }
    }
    // Meanwhile the log prepares segments, and renames them.
    let is_the_logs = |name: &str| {
        is_segment(name) || ["control", "lock", "segment.new", "writer"].contains(&name)
    };
    let others: Vec<_> = names(&path).into_iter().filter(|it| !is_the_logs(it)).collect();
    assert!(others.is_empty(), "{others:?}");
    fs::create_dir(path.join("empty")).unwrap();
    let refused = log.checkpoint(path.join("empty")).unwrap_err();
    assert_eq!(*refused.kind(), LogErrorKind::InsideLog, "{refused}");
    // What only begins with the same name is elsewhere.
    log.checkpoint(directory.path().join("log-copy")).unwrap();
}

#[test]
fn a_copy_that_is_in_the_way_of_another_can_be_removed_and_that_is_said() {
    let (directory, path) = place();
    let log = options(SyncPolicy::EveryCommit).open(&path).unwrap();
    let copy = directory.path().join("copy");
    log.checkpoint(&copy).unwrap();
    let refused = log.checkpoint(&copy).unwrap_err();
    assert!(refused.to_string().contains("or remove it"), "{refused}");
}

#[test]
fn a_checkpoint_has_the_permissions_of_the_log() {
    let (directory, path) = place();
    let log = options(SyncPolicy::EveryCommit).mode(0o640).open(&path).unwrap();
    append(&log, 0..100);
    let copy = directory.path().join("copy");
    log.checkpoint(&copy).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&copy), mode(&path));
    for name in names(&copy) {
        assert_eq!(mode(&copy.join(&name)), 0o640, "{name}");
    }
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<_> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub const PARTS: &Parts = &[
    ("appends until it is killed", append_until_killed),
    ("copies", |place| _ = LogReader::checkpoint(place.join("log"), place.join("copy")).unwrap()),
];

/// Says when there are a hundred records.
fn append_until_killed(place: &Path) {
    let log = options(SyncPolicy::Never).open(place.join("log")).unwrap();
    for number in 0.. {
        let position = log.append(&record(number)).unwrap();
        if number == 100 {
            fs::write(place.join("ready"), b"").unwrap();
        }
        if number % 1000 == 999 {
            log.truncate_before(position).unwrap();
        }
    }
}

/// Looks all the time without a `pause`, for what lasts only for a moment.
fn wait_until(what: &str, pause: Duration, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        match pause.is_zero() {
            true => thread::yield_now(),
            false => thread::sleep(pause),
        }
    }
}

#[test]
fn a_checkpoint_of_another_processs_log_is_whole_though_that_is_killed() {
    let (directory, path) = place();
    let appending = Part::start("appends until it is killed", directory.path(), &[]);
    let pause = Duration::from_micros(200);
    wait_until("the other process appends", pause, || directory.path().join("ready").exists());
    let mut copies = Vec::new();
    for number in 0..depth(4, 10) {
        let copy = directory.path().join(format!("copy-{number}"));
        let checkpoint = LogReader::checkpoint(&path, &copy).unwrap();
        let found = check(&copy, checkpoint, &BTreeMap::new());
        copies.push((copy, checkpoint, found));
    }
    drop(appending);
    for (copy, checkpoint, found) in copies {
        assert_eq!(check(&copy, checkpoint, &found), found);
    }
    let copy = directory.path().join("after");
    let checkpoint = LogReader::checkpoint(&path, &copy).unwrap();
    check(&copy, checkpoint, &BTreeMap::new());
}

#[test]
fn a_checkpoint_that_is_killed_leaves_nothing_that_opens_as_a_log() {
    let (directory, path) = place();
    let log = options(SyncPolicy::Never).open(&path).unwrap();
    let submitted: Vec<_> = (0..1200).map(|it| log.submit(&record(it)).unwrap()).collect();
    for submitted in submitted {
        log.wait(submitted).unwrap();
    }
    log.close().unwrap();
    let copy = directory.path().join("copy");
    let mut killed = 0;
    // On a busy machine a copy may be finished before the kill, again and again.
    for round in 0..64 {
        if round >= 8 && killed > 0 {
            break;
        }
        let mut copying = Part::start("copies", directory.path(), &[]);
        // Killed as soon as this many files are there.
        wait_until("the copy is begun", Duration::ZERO, || {
            fs::read_dir(&copy).is_ok_and(|names| names.count() > round % 8 * 4)
        });
        copying.process.kill().unwrap();
        let was_killed = copying.process.wait().unwrap().signal().is_some();
        match LogReader::open(&copy) {
            // It was finished.
            Ok(reader) => assert_eq!(read(reader).len(), 1200),
            Err(error) => {
                assert!(was_killed, "{error}");
                let is_refused = |kind: &LogErrorKind| {
                    matches!(kind, LogErrorKind::UnfinishedCheckpoint | LogErrorKind::NotALog)
                };
                let before = names(&copy);
                assert!(is_refused(error.kind()), "{error}");
                if *error.kind() == LogErrorKind::UnfinishedCheckpoint {
                    killed += 1;
                    let opened = LogFile::open(&copy).unwrap_err();
                    assert!(is_refused(opened.kind()), "{opened}");
                    let verified = LogReader::verify(&copy, |_| {}).unwrap_err();
                    assert!(is_refused(verified.kind()), "{verified}");
                    assert_eq!(names(&copy), before);
                } else {
                    assert!(!before.iter().any(|name| name.ends_with(".segment")), "{before:?}");
                }
            }
        }
        fs::remove_dir_all(&copy).unwrap();
    }
    assert!(killed > 0, "never killed in the middle");
    assert_undamaged(&path);
}

/// A copy of single files, made in this order.
struct Copied<'a> {
    from: &'a Path,
    to: PathBuf,
}

impl<'a> Copied<'a> {
    fn begin(from: &'a Path, name: &str) -> Copied<'a> {
        let to = from.with_extension(name);
        fs::create_dir(&to).unwrap();
        Copied { from, to }
    }

    fn take(&self, is_wanted: impl Fn(&str) -> bool) {
        for name in names(self.from).iter().filter(|name| is_wanted(name)) {
            fs::copy(self.from.join(name), self.to.join(name)).unwrap();
        }
    }

    /// What reading and opening it find, which must be the same.
    fn opened(&self) -> Result<BTreeMap<u64, Position>, LogErrorKind> {
        let read_only = LogReader::open(&self.to).map(read).map_err(|it| it.kind().clone());
        let opened = options(SyncPolicy::EveryCommit).open(&self.to);
        let opened = opened.map(|log| read(log.reader().unwrap()));
        let opened = opened.map_err(|error| error.kind().clone());
        assert_eq!(read_only, opened);
        opened
    }
}

fn is_control(name: &str) -> bool {
    name == "control"
}

fn is_segment(name: &str) -> bool {
    name.ends_with(".segment")
}

#[test]
fn a_plain_copy_of_a_log_that_nobody_appends_to_is_whole() {
    let (_directory, path) = place();
    let log = options(SyncPolicy::EveryCommit).open(&path).unwrap();
    let mut appended = append(&log, 0..100);
    let copied = Copied::begin(&path, "open");
    copied.take(|name| is_control(name) || is_segment(name));
    assert_eq!(copied.opened(), Ok(appended.clone()));
    log.truncate_before(appended[&50]).unwrap();
    appended = appended.split_off(&50);
    log.close().unwrap();
    let copied = Copied::begin(&path, "closed");
    copied.take(|name| is_control(name) || is_segment(name));
    let recovery = LogFile::open(&copied.to).unwrap().recovery().clone();
    assert!(recovery.was_closed, "{recovery:?}");
    assert_eq!(copied.opened(), Ok(appended));
}

#[test]
fn a_plain_copy_whose_control_page_is_older_has_all_records_that_are_there() {
    for sync in [SyncPolicy::EveryCommit, SyncPolicy::Never] {
        let (_directory, path) = place();
        let log = options(sync).open(&path).unwrap();
        let mut appended = append(&log, 0..50);
        let copied = Copied::begin(&path, "copy");
        copied.take(is_control);
        appended.extend(append(&log, 50..80));
        copied.take(is_segment);
        assert_eq!(copied.opened(), Ok(appended));
    }
}

#[test]
fn a_plain_copy_whose_control_page_was_closed_before_more_was_appended_has_that_too() {
    let (_directory, path) = place();
    let log = options(SyncPolicy::Never).open(&path).unwrap();
    let mut appended = append(&log, 0..50);
    log.close().unwrap();
    let copied = Copied::begin(&path, "copy");
    copied.take(is_control);
    let log = options(SyncPolicy::Never).open(&path).unwrap();
    appended.extend(append(&log, 50..80));
    copied.take(is_segment);
    assert_eq!(copied.opened(), Ok(appended));
}

#[test]
fn a_plain_copy_whose_control_page_is_newer_says_up_to_where_it_is_whole() {
    for sync in [SyncPolicy::EveryCommit, SyncPolicy::Never] {
        let (_directory, path) = place();
        let log = options(sync).open(&path).unwrap();
        append(&log, 0..50);
        let position = log.committed();
        let copied = Copied::begin(&path, "copy");
        copied.take(is_segment);
        append(&log, 50..80);
        copied.take(is_control);
        assert_eq!(copied.opened(), Err(LogErrorKind::IncompleteCopy { position }));
        let said = LogFile::open(&copied.to).unwrap_err().to_string();
        for word in ["whole up to", "fairlock log backup", "fairlock log repair"] {
            assert!(said.contains(word), "lacks {word}: {said}");
        }
    }
}

#[test]
fn a_plain_copy_with_a_hole_is_refused_whatever_the_control_page_says() {
    for sync in [SyncPolicy::EveryCommit, SyncPolicy::Never] {
        for control_first in [true, false] {
            let (_directory, path) = place();
            let log = options(sync).prewrite(Prewrite::Never).open(&path).unwrap();
            append(&log, 0..30);
            let position = log.committed();
            let copied = Copied::begin(&path, "copy");
            if control_first {
                copied.take(is_control);
            }
            // The last segment as it is now, the others when it is full.
            copied.take(is_segment);
            let there = names(&copied.to);
            append(&log, 30..80);
            copied.take(|name| is_segment(name) && !there.iter().any(|it| it == name));
            if !control_first {
                copied.take(is_control);
            }
            assert_eq!(copied.opened(), Err(LogErrorKind::IncompleteCopy { position }));
            let mut damages = 0;
            LogReader::verify(&copied.to, |_| damages += 1).unwrap();
            assert!(damages > 0, "verify finds nothing");
        }
    }
}

#[test]
fn a_plain_copy_without_one_of_its_segments_is_refused() {
    let (_directory, path) = place();
    let log = options(SyncPolicy::Never).open(&path).unwrap();
    let appended = append(&log, 0..80);
    log.close().unwrap();
    let segments: Vec<_> = names(&path).into_iter().filter(|name| is_segment(name)).collect();
    assert!(segments.len() > 4);
    for (missing, name_of_it) in segments.iter().enumerate() {
        let copied = Copied::begin(&path, &format!("without-{missing}"));
        copied.take(|name| name != name_of_it);
        let Err(LogErrorKind::IncompleteCopy { position }) = copied.opened() else {
            panic!("segment {missing} is not missed");
        };
        let begin = missing as u64 * (64 << 10);
        assert_eq!(position.get(), begin + 4096);
        assert!(appended.values().any(|it| *it > position));
    }
}

#[test]
fn plain_copies_of_a_log_that_is_appended_to_are_whole_or_say_what_is() {
    let (_directory, path) = place();
    for round in 0..8 {
        let sync = [SyncPolicy::EveryCommit, SyncPolicy::Never][round / 4 % 2];
        let log = options(sync).open(&path).unwrap();
        append(&log, 0..50);
        let is_over = AtomicBool::new(false);
        let copied = thread::scope(|scope| {
            scope.spawn(|| {
                for number in (50..10_000).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    log.append(&record(number)).unwrap();
                }
            });
            let copied = copy(&path, round);
            is_over.store(true, Ordering::Relaxed);
            copied
        });
        // A file that is renamed meanwhile makes a program fail, as somebody would notice.
        match copied.map(|copied| copied.opened()) {
            None => {}
            Some(Ok(found)) => {
                assert_eq!(found.first_key_value().unwrap().0, &0);
                assert!(found.len() >= 50);
                assert_in_sequence(&found);
            }
            Some(Err(LogErrorKind::IncompleteCopy { position })) => {
                assert!(position > Position::START);
            }
            Some(Err(other)) => panic!("{round}: {other:?}"),
        }
        drop(log);
        fs::remove_dir_all(&path).unwrap();
    }
}

/// Copies a log with the programs that somebody may take; none if they fail.
fn copy(path: &Path, round: usize) -> Option<Copied<'_>> {
    let script = match round % 4 {
        0 => "cp -r \"$0\"/. \"$1\"",
        1 => "cp \"$0\"/*.segment \"$1\" && cp \"$0\"/control \"$1\"",
        2 => "cp \"$0\"/control \"$1\" && cp \"$0\"/*.segment \"$1\"",
        _ => "tar -C \"$0\" -cf - . 2>/dev/null | tar -C \"$1\" -xf -",
    };
    let copied = Copied::begin(path, &format!("copy-{round}"));
    let mut copying = Command::new("sh");
    copying.args(["-c", script]).arg(path).arg(&copied.to).stderr(Stdio::null());
    copying.status().unwrap().success().then_some(copied)
}

#[test]
fn a_copy_made_by_links_does_not_change_with_the_log() {
    for sync in [SyncPolicy::EveryCommit, SyncPolicy::Never] {
        let (_directory, path) = place();
        let log = options(sync).open(&path).unwrap();
        let appended = append(&log, 0..50);
        log.close().unwrap();
        let copied = Copied::begin(&path, "copy");
        for name in names(&path).iter().filter(|name| is_segment(name)) {
            fs::hard_link(path.join(name), copied.to.join(name)).unwrap();
        }
        copied.take(is_control);
        let bytes = |path: &Path| {
            let names = names(path).into_iter().filter(|name| is_segment(name));
            names.map(|name| fs::read(path.join(name)).unwrap()).collect::<Vec<_>>()
        };
        let before = bytes(&copied.to);
        let log = options(sync).open(&path).unwrap();
        append(&log, 50..80);
        log.truncate_before(log.committed()).unwrap();
        append(&log, 80..130);
        log.close().unwrap();
        assert!(bytes(&copied.to) == before, "the copy changed with the log");
        assert_eq!(copied.opened(), Ok(appended));
    }
}

#[test]
fn a_checkpoint_to_a_disk_that_is_full_leaves_nothing_and_one_with_room_is_copied()
-> Result<(), Box<dyn Error>> {
    let (directory, path) = place();
    let kind =
        FileSystem { name: "ext4", mkfs: &["mkfs.ext4", "-q", "-F", "-m", "0"], megabytes: 8 };
    let Some(mounted) = Mounted::make(directory.path(), &kind) else {
        return Ok(());
    };
    let log = options(SyncPolicy::Never).segment_bytes(512 << 10).open(&path)?;
    let submitted: Vec<_> = (0..3000).map(|it| log.submit(&record(it))).collect();
    for submitted in submitted {
        log.wait(submitted?)?;
    }
    let copy = mounted.place().join("copy");
    let full = log.checkpoint(&copy).unwrap_err();
    assert_eq!(*full.kind(), LogErrorKind::StorageFull, "{full}");
    assert!(full.to_string().contains("the unfinished copy was removed"), "{full}");
    assert!(full.path().starts_with(&copy), "{full}");
    assert!(!copy.exists(), "{:?}", names(&copy));
    // In a directory that was there, nothing is left.
    fs::create_dir(&copy)?;
    assert_eq!(*log.checkpoint(&copy).unwrap_err().kind(), LogErrorKind::StorageFull);
    assert!(names(&copy).is_empty(), "{:?}", names(&copy));
    let records = read(log.reader()?);
    log.truncate_before(records[&2900])?;
    let checkpoint = log.checkpoint(&copy)?;
    assert_eq!(checkpoint.linked_bytes, 0);
    assert_eq!(check(&copy, checkpoint, &BTreeMap::new()).len(), 100);
    Ok(())
}

#[test]
fn copies_that_share_blocks_are_whole_where_the_file_system_makes_them()
-> Result<(), Box<dyn Error>> {
    let (directory, _) = place();
    let kind = FileSystem { name: "btrfs", mkfs: &["mkfs.btrfs", "-q", "-f"], megabytes: 256 };
    let Some(mounted) = Mounted::make(directory.path(), &kind) else {
        return Ok(());
    };
    let path = mounted.place().join("log");
    let log = options(SyncPolicy::Never).open(&path)?;
    let appended = append(&log, 0..200);
    let copied = Copied::begin(&path, "copy");
    let mut copying = Command::new("sh");
    copying.args(["-c", "cp --reflink=always \"$0\"/*.segment \"$0\"/control \"$1\""]);
    run(copying.arg(&path).arg(&copied.to))?;
    assert_eq!(copied.opened(), Ok(appended.clone()));
    // Between subvolumes there are no links.
    let other = mounted.place().join("other");
    if let Err(error) = run(Command::new("btrfs").args(["subvolume", "create"]).arg(&other)) {
        println!("skipped in part: {error}");
        return Ok(());
    }
    let copy = other.join("copy");
    let checkpoint = log.checkpoint(&copy)?;
    assert!(checkpoint.linked_bytes > 0, "{checkpoint:?}");
    assert_eq!(check(&copy, checkpoint, &appended), appended);
    Ok(())
}

#[test]
fn a_copy_that_goes_on_is_told_from_the_log_that_it_was_copied_from() {
    let (directory, path) = place();
    let log = LogFile::open(&path).unwrap();
    log.append(b"of both").unwrap();
    let checkpoint = directory.path().join("checkpoint");
    log.checkpoint(&checkpoint).unwrap();
    log.close().unwrap();
    let copy = directory.path().join("copy");
    assert!(Command::new("cp").arg("-r").args([&path, &copy]).status().unwrap().success());
    let mut seen = Vec::new();
    for path in [&path, &checkpoint, &copy] {
        for _ in 0..2 {
            let log = LogFile::open(path).unwrap();
            let lineage = log.lineage();
            assert_eq!(LogReader::open(path).unwrap().lineage().unwrap(), lineage);
            log.append(b"of one").unwrap();
            log.close().unwrap();
            seen.push(lineage);
        }
    }
    let [first, other, copied] = [seen[0], seen[2], seen[4]];
    assert_eq!(seen, [first, first, other, other, copied, copied]);
    assert!(first == 0 && other != 0 && copied != 0 && other != copied, "{seen:?}");
}

/// As `cp -al` does.
fn copy_by_links(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::hard_link(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_copy_by_links_and_its_original_go_on_each_by_itself() {
    for copy_first in [false, true] {
        let (directory, path) = place();
        let copy = directory.path().join("copy");
        let options = LogOptions::new().segment_bytes(64 << 10);
        let log = options.clone().open(&path).unwrap();
        let all = append(&log, 0..40);
        log.close().unwrap();
        copy_by_links(&path, &copy);

        let (first, second) = if copy_first { (&copy, &path) } else { (&path, &copy) };
        let [first_log, second_log] = [first, second].map(|it| options.clone().open(it).unwrap());
        assert_ne!(first_log.lineage(), second_log.lineage());
        append(&first_log, 100..140);
        append(&second_log, 200..240);
        // What one gives up the other keeps.
        first_log.truncate_before(all[&20]).unwrap();
        first_log.close().unwrap();
        append(&second_log, 240..250);
        second_log.close().unwrap();
        for (path, numbers) in [
            (first, (20..40).chain(100..140).collect::<Vec<u64>>()),
            (second, (0..40).chain(200..250).collect()),
        ] {
            let verified = LogReader::verify(path, |damage| panic!("{damage:?}")).unwrap();
            assert_eq!(verified.damages, 0);
            let found = read(LogReader::open(path).unwrap());
            assert_eq!(found.into_keys().collect::<Vec<_>>(), numbers, "{copy_first}");
        }
    }
}

#[test]
fn a_follower_hears_that_the_log_in_its_directory_is_another_or_is_gone() {
    let (directory, path) = place();
    let log = LogFile::open(&path).unwrap();
    append(&log, 0..3);
    log.close().unwrap();
    let displaced = |mut reader: LogReader| {
        let error = loop {
            match reader.next_within(None) {
                Ok(record) => assert!(record.is_some()),
                Err(error) => break error,
            }
        };
        assert_eq!(*error.kind(), LogErrorKind::Displaced);
        let error = reader.follow(None).map(|_| ()).unwrap_err();
        assert_eq!(*error.kind(), LogErrorKind::Displaced);
    };
    let reader = LogReader::open(&path).unwrap();
    copy_by_links(&path, &directory.path().join("copy"));
    LogFile::open(&path).unwrap().close().unwrap();
    displaced(reader);

    let mut reader = LogReader::open(&path).unwrap();
    while reader.next().unwrap().is_some() {}
    fs::remove_dir_all(&path).unwrap();
    let log = LogFile::open(&path).unwrap();
    append(&log, 0..3);
    displaced(reader);
}

#[test]
fn a_copy_that_is_put_back_in_the_place_of_its_original_has_another_lineage() {
    let (directory, path) = place();
    let copy = directory.path().join("copy");
    let log = LogFile::open(&path).unwrap();
    append(&log, 0..3);
    let lineage = log.lineage();
    log.close().unwrap();
    let status = Command::new("cp").arg("-a").args([&path, &copy]).status().unwrap();
    assert!(status.success());
    // Not a copy of its own yet, and the original is no other either.
    let log = LogFile::open(&path).unwrap();
    assert_eq!(log.lineage(), lineage);
    append(&log, 3..6);
    log.close().unwrap();
    for _ in 0..3 {
        // Its files may get the numbers of those that are removed.
        fs::remove_dir_all(&path).unwrap();
        let status = Command::new("cp").arg("-a").args([&copy, &path]).status().unwrap();
        assert!(status.success());
        let log = LogFile::open(&path).unwrap();
        assert_ne!(log.lineage(), lineage);
        log.close().unwrap();
    }
}

#[test]
fn copies_of_a_backup_have_lineages_of_their_own() {
    let (directory, path) = place();
    let log = LogFile::open(&path).unwrap();
    append(&log, 0..3);
    let backup = directory.path().join("backup");
    log.checkpoint(&backup).unwrap();
    let lineages = ["one", "two"].map(|name| {
        let copy = directory.path().join(name);
        let status = Command::new("cp").arg("-a").args([&backup, &copy]).status().unwrap();
        assert!(status.success());
        LogFile::open(copy).unwrap().lineage()
    });
    let kept = LogFile::open(backup).unwrap().lineage();
    assert!(lineages[0] != lineages[1] && !lineages.contains(&kept) && kept != log.lineage());
}

#[test]
fn a_log_that_lost_its_control_page_is_another_and_says_so() {
    let (_directory, path) = place();
    let log = LogOptions::new().segment_bytes(64 << 10).open(&path).unwrap();
    assert!(log.recovery().was_created && !log.recovery().control_was_missing);
    let places = append(&log, 0..4);
    log.truncate_before(places[&2]).unwrap();
    let lineage = log.lineage();
    log.close().unwrap();
    fs::remove_file(path.join("control")).unwrap();
    let log = LogFile::open(&path).unwrap();
    assert!(log.recovery().control_was_missing && !log.recovery().was_created);
    assert_ne!(log.lineage(), lineage);
    log.close().unwrap();
    assert!(!LogFile::open(&path).unwrap().recovery().control_was_missing);
}
