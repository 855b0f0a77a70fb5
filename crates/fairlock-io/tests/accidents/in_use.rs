//! What operators and other programs do to a log that is in use: its directory is moved or copied, its files are
//! removed, cut, replaced by things that are no files, its lock is taken by who may only read, its writer forks or
//! is killed.
//!
//! Nothing of that may lose what was acknowledged, let in a second writer, end a process by a signal, or make it
//! hang. What might runs in a process of its own.

use std::env;
use std::ffi::CStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_io::{
    Damaged, Followed, LogError, LogErrorKind, LogFile, LogOptions, LogReader, LogWriter, Position,
    Prewrite, RepairOptions, SyncPolicy,
};
use tempfile::TempDir;

use crate::part::{Part, Parts};
use crate::preloaded;

const SEGMENT_BYTES: u64 = 64 << 10;
/// Less than the space of four records is left in a segment behind these.
const RECORDS_OF_A_SEGMENT: u64 = 12;
/// Of a user who owns nothing.
const NOBODY: libc::uid_t = 65_534;

pub const PARTS: &Parts = &[
    ("changes its directory", append_by_a_relative_path),
    ("forks", close_beside_a_child),
    ("forks into a pid namespace", append_in_a_child_with_its_parent_s_number),
    ("appends and stays", append_and_stay),
    ("locks what it may read", lock_what_may_be_read),
    ("reads without rights", read_without_rights),
    ("appends over a cut control page", append_over_a_cut_control_page),
    ("reads over a cut control page", read_over_a_cut_control_page),
    ("appends among strange files", append_among_strange_files),
    ("reads among strange files", read_among_strange_files),
    ("gives up twice", give_up_twice),
    ("opens copies", open_copies),
    ("forks and asks to be told", ask_to_be_told_in_a_child),
];

fn directory() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a writable target")
}

fn options() -> LogOptions {
    LogOptions::new().segment_bytes(SEGMENT_BYTES)
}

fn never() -> LogOptions {
    options().sync(SyncPolicy::Never)
}

/// The environment's word for what is to be done to what.
const WHAT: &str = "FAIRLOCK_LOG_WHAT";

fn what() -> String {
    env::var(WHAT).expect("it is said")
}

/// A record that takes a block alone.
fn record(number: u64) -> Vec<u8> {
    let mut bytes = vec![number as u8; 4000];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn append(log: &LogFile, numbers: std::ops::Range<u64>) -> Vec<Position> {
    numbers.map(|number| log.append(&record(number)).unwrap()).collect()
}

fn number_of(bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == record(number), "record {number} is another");
    number
}

/// The numbers of all records that are left.
fn numbers(mut reader: LogReader) -> Result<Vec<u64>, LogError> {
    let mut found = Vec::new();
    while let Some(read) = reader.next()? {
        found.push(number_of(read.bytes));
    }
    Ok(found)
}

fn numbers_at(path: &Path) -> Vec<u64> {
    numbers(LogReader::open(path).unwrap()).unwrap()
}

fn all(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

/// A closed log of some segments at `path`.
fn make_log(path: &Path, records: u64) {
    make_log_with(never(), path, records);
}

fn make_log_with(options: LogOptions, path: &Path, records: u64) {
    let log = options.open(path).unwrap();
    append(&log, 0..records);
    log.close().unwrap();
}

fn segment_numbers(path: &Path) -> Vec<u64> {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    let number = |name: std::ffi::OsString| name.to_str()?.strip_suffix(".segment")?.parse().ok();
    names.filter_map(number).collect()
}

// Moved, or never where it seemed to be.

#[test]
fn a_log_whose_directory_is_moved_goes_on_there_and_leaves_a_new_log_alone() {
    let directory = directory();
    let (path, moved) = (directory.path().join("log"), directory.path().join("log.old"));
    let old = options().open(&path).unwrap();
    let mut at = append(&old, 0..40);
    let mut follower = LogReader::open(&path).unwrap();
    // As an operator does to start a new one.
    fs::rename(&path, &moved).unwrap();
    let new = options().open(&path).unwrap();
    append(&new, 1000..1040);

    at.extend(append(&old, 40..80));
    old.truncate_before(at[30]).unwrap();
    at.extend(append(&old, 80..120));
    assert_eq!(old.read(at[110]).unwrap(), record(110));
    assert_eq!(numbers(old.reader().unwrap()).unwrap(), all(30..120));
    follower.seek(at[30]).unwrap();
    assert_eq!(numbers(follower).unwrap(), all(30..120));
    append(&new, 1040..1080);
    old.close().unwrap();
    new.close().unwrap();

    assert_eq!(numbers_at(&path), all(1000..1080));
    assert_eq!(numbers_at(&moved), all(30..120));
    for path in [&path, &moved] {
        LogReader::verify(path, |damage| panic!("{damage:?}")).unwrap();
        options().open(path).unwrap().close().unwrap();
    }
}

#[test]
fn a_log_in_a_directory_that_a_link_leads_to_is_like_any_other() {
    let directory = directory();
    let (real, path) = (directory.path().join("real"), directory.path().join("log"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &path).unwrap();
    let log = options().open(&path).unwrap();
    append(&log, 0..40);
    // To another directory, for the next log.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    append(&log, 40..80);
    log.close().unwrap();
    assert_eq!(numbers_at(&real), all(0..80));
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

fn append_by_a_relative_path(place: &Path) {
    env::set_current_dir(place).unwrap();
    let log = options().open("log").unwrap();
    let mut at = append(&log, 0..5);
    let follower = LogReader::open("log").unwrap();
    // As daemons do.
    env::set_current_dir("/").unwrap();
    at.extend(append(&log, 5..60));
    assert_eq!(numbers(follower).unwrap(), all(0..60));
    assert_eq!(numbers(log.reader().unwrap()).unwrap(), all(0..60));
    log.truncate_before(at[30]).unwrap();
    append(&log, 60..100);
    log.close().unwrap();
}

#[test]
fn a_log_with_a_relative_path_outlives_a_change_of_the_working_directory() {
    let directory = directory();
    Part::start("changes its directory", directory.path(), &[]).ends_well().unwrap();
    assert_eq!(numbers_at(&directory.path().join("log")), all(30..100));
}

// Locked by others.

fn close_beside_a_child(place: &Path) {
    let path = place.join("log");
    let log = options().open(&path).unwrap();
    append(&log, 0..5);
    // One that lives on, with all that it inherited, and one that ends at once.
    let children = [false, true].map(|ends| {
        // SAFETY: the child calls nothing but what a signal handler may call.
        let child = unsafe { libc::fork() };
        if child > 0 {
            return Child(child);
        }
        assert_eq!(child, 0, "{}", io::Error::last_os_error());
        // SAFETY: what a signal handler may call; the request takes a number. It lives no longer than its parent.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if ends {
                libc::_exit(0);
            }
            loop {
                libc::pause();
            }
        }
    });
    children[1].wait();
    assert!(is_busy(options().open(&path)), "the end of a child lets in a second writer");
    log.close().unwrap();
    assert_eq!(LogReader::summary(&path).unwrap().writer, None);
    let log = options().open(&path).expect("it was closed");
    append(&log, 5..10);
    // Forgotten by its owner instead of closed; another child lives.
    drop(log);
    let log = options().open(&path).expect("it was dropped");
    assert!(is_busy(options().open(&path)));
    assert_eq!(numbers(log.reader().unwrap()).unwrap(), all(0..10));
    log.close().unwrap();
}

/// A process that is killed when this is dropped.
struct Child(libc::pid_t);

impl Child {
    fn wait(&self) {
        // SAFETY: a system call that stores nothing.
        assert_eq!(unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) }, self.0);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: system calls that store nothing. It has ended, and is gone, if it was waited for.
        unsafe {
            if libc::waitpid(self.0, std::ptr::null_mut(), libc::WNOHANG) == 0 {
                libc::kill(self.0, libc::SIGKILL);
                libc::waitpid(self.0, std::ptr::null_mut(), 0);
            }
        }
    }
}

fn is_busy(opened: Result<LogFile, LogError>) -> bool {
    matches!(opened, Err(error) if matches!(error.kind(), LogErrorKind::BusyWriter { .. }))
}

#[test]
fn a_closed_log_can_be_opened_whatever_children_live() {
    let directory = directory();
    Part::start("forks", directory.path(), &[]).ends_well().unwrap();
}

/// What a child says, whose number is 1 and so is that of each child that does this in turn. It may not, if there
/// is none.
fn in_new_pid_namespace(holds: impl FnOnce()) -> Result<(), io::Error> {
    // SAFETY: system calls without memory.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWPID) == 0
            || libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) == 0
    };
    if !done {
        return Err(io::Error::last_os_error());
    }
    assert!(said_by_child(|| {
        assert_eq!(std::process::id(), 1);
        holds();
    }));
    Ok(())
}

/// Whether a child has done it without a panic.
fn said_by_child(act: impl FnOnce()) -> bool {
    // SAFETY: glibc's fork leaves the heap in order; the child takes no lock but the log's, and ends by itself.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the request takes a number. The child lives no longer than its parent.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let done = panic::catch_unwind(AssertUnwindSafe(act));
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    assert!(child > 0, "{}", io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: fills in the status of a child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status == 0
}

fn append_in_a_child_with_its_parent_s_number(place: &Path) {
    let path = &place.join("log");
    let first = || {
        let log = options().open(path).unwrap();
        append(&log, 0..5);
        // No thread is in the middle of it when the child is forked.
        let (sender, told) = mpsc::channel();
        log.notify(log.submit(&record(5)).unwrap(), move |_| _ = sender.send(())).unwrap();
        told.recv_timeout(Duration::from_secs(60)).unwrap();
        let mut reader = log.reader().unwrap();
        reader.event_fd().unwrap();
        let mut inherited = Some((log, reader));
        let tested = in_new_pid_namespace(|| {
            let (log, reader) = inherited.take().unwrap();
            for done in [log.append(b"of the child").map(|_| ()), log.sync()] {
                assert_eq!(*done.unwrap_err().kind(), LogErrorKind::OtherProcess);
            }
            // Neither waits for the threads of the parent, nor ends its lock.
            drop((reader, log));
        });
        if let Err(error) = tested {
            eprintln!("not tested, as this may make no more pid namespaces: {error}");
            return;
        }
        let (log, _reader) = inherited.unwrap();
        assert!(is_busy(options().open(path)), "the child lets in a second writer");
        append(&log, 6..10);
        assert_eq!(numbers(log.reader().unwrap()).unwrap(), all(0..10));
        log.close().unwrap();
    };
    assert!(said_by_child(|| {
        if let Err(error) = in_new_pid_namespace(first) {
            eprintln!("not tested, as this may make no pid namespaces: {error}");
        }
    }));
}

#[test]
fn a_child_with_the_number_of_its_parent_is_no_second_writer() {
    let directory = directory();
    Part::start("forks into a pid namespace", directory.path(), &[]).ends_well().unwrap();
}

fn ask_to_be_told_in_a_child(place: &Path) {
    let log = options().open(place.join("log")).unwrap();
    log.notify(log.submit(b"of the parent").unwrap(), |_| ()).unwrap();
    assert!(
        said_by_child(|| {
            let (sender, told) = mpsc::channel();
            let asked = log
                .submit(b"of the child")
                .and_then(|it| log.notify(it, move |outcome| _ = sender.send(outcome.is_err())));
            assert!(asked.is_err() || told.recv_timeout(Duration::from_secs(60)) == Ok(true));
        }),
        "neither refused nor told"
    );
    log.close().unwrap();
}

#[test]
fn a_child_of_a_fork_that_asks_to_be_told_is_refused() {
    let directory = directory();
    Part::start("forks and asks to be told", directory.path(), &[]).ends_well().unwrap();
}

/// Becomes a user who may write nothing here.
fn give_up_rights() {
    // SAFETY: system calls without memory; the C library does the last two for all threads.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setgid(NOBODY) == 0
            && libc::setuid(NOBODY) == 0
    };
    assert!(done, "{}", io::Error::last_os_error());
}

/// Takes every lock that it can get on all that it can open, says so, and waits to be killed.
fn lock_what_may_be_read(place: &Path) {
    let mut ready = File::create(place.join("ready")).unwrap();
    // Others may not come here by the path.
    env::set_current_dir(place).unwrap();
    give_up_rights();
    let mut paths: Vec<_> =
        fs::read_dir("log").unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.push("log".into());
    let files: Vec<_> = paths.iter().filter_map(|path| File::open(path).ok()).collect();
    for file in &files {
        // SAFETY: zeros are a valid value: from the file's beginning to its end.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_RDLCK as libc::c_short;
        // SAFETY: system calls on an open file; those with a lock read it. Some fail on a directory.
        unsafe {
            libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &mut lock);
            libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &mut lock);
            libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB);
        }
    }
    writeln!(ready, "{}", files.len()).unwrap();
    thread::sleep(Duration::from_secs(3600));
}

fn read_without_rights(place: &Path) {
    env::set_current_dir(place).unwrap();
    give_up_rights();
    assert!(LogFile::open("log").is_err());
    assert_eq!(numbers_at("log".as_ref()), all(0..20));
    LogReader::verify("log", |damage| panic!("{damage:?}")).unwrap();
    assert!(LogReader::summary("log").unwrap().writer.is_some());
}

#[test]
fn who_may_only_read_cannot_keep_a_writer_out() {
    let directory = directory();
    // SAFETY: it cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    // Root can, but not in a user namespace without that user.
    if !is_root || chown(directory.path(), None, Some(NOBODY)).is_err() {
        println!("skipped: only root can become a user who may only read");
        return;
    }
    let (place, path) = (directory.path(), directory.path().join("log"));
    // Whatever the umask.
    let options = never().mode(0o644);
    make_log_with(options.clone(), &path, 5);
    for path in [place, &path] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let mut locks = Part::start("locks what it may read", place, &[]);
    let began = Instant::now();
    while fs::read(place.join("ready")).map_or(true, |it| it.is_empty()) {
        let ended = locks.process.try_wait().unwrap();
        assert!(ended.is_none() && began.elapsed() < Duration::from_secs(120), "{ended:?}");
        thread::sleep(Duration::from_millis(1));
    }
    let log = options.open(&path).expect("nobody who may write has it open");
    let writer = LogReader::open(&path).unwrap().writer().unwrap();
    assert!(matches!(writer, LogWriter::Open { .. }), "{writer:?}");
    append(&log, 5..20);
    // What was made since then is locked, too.
    let again = Part::start("reads without rights", place, &[]);
    again.ends_well().unwrap();
    log.close().unwrap();
    drop(locks);
}

// Its writer, killed.

/// Longer than anything takes that does not hang.
const LONG: Duration = Duration::from_secs(120);

/// Appends, says so, and goes on living until it is killed.
fn append_and_stay(place: &Path) {
    let log = never().open(place.join("log")).unwrap();
    append(&log, 0..3);
    println!("\nappended");
    thread::sleep(Duration::from_secs(3600));
}

#[test]
fn a_follower_learns_that_the_writer_lives_dies_and_comes_back() {
    let directory = directory();
    let path = directory.path().join("log");
    options().open(&path).unwrap().close().unwrap();
    let mut reader = LogReader::open(&path).unwrap();
    assert_eq!(reader.writer().unwrap(), LogWriter::Closed);
    assert_eq!(reader.follow(None).unwrap(), Followed::Ended(LogWriter::Closed));

    let part = "appends and stays";
    let mut writer = Part::start_with_output(part, directory.path(), &[], Stdio::piped());
    let mut lines = BufReader::new(writer.process.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "appended"));
    assert_eq!(reader.writer().unwrap(), LogWriter::Open { process: writer.process.id() });
    for expected in 0..3 {
        match reader.follow(None).unwrap() {
            Followed::Record(found) => assert_eq!(number_of(found.bytes), expected),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(reader.follow(Some(Duration::ZERO)).unwrap(), Followed::TimedOut);
    thread::scope(|scope| {
        let waiting = scope
            .spawn(|| reader.follow(Some(LONG)).map(|it| it == Followed::Ended(LogWriter::Died)));
        writer.process.kill().unwrap();
        writer.process.wait().unwrap();
        assert!(waiting.join().unwrap().unwrap(), "it hears of the death");
    });
    assert_eq!(reader.writer().unwrap(), LogWriter::Died);

    let log = never().open(&path).unwrap();
    assert_eq!(reader.writer().unwrap(), LogWriter::Open { process: std::process::id() });
    append(&log, 3..4);
    match reader.follow(None).unwrap() {
        Followed::Record(found) => assert_eq!(number_of(found.bytes), 3),
        other => panic!("{other:?}"),
    }
    thread::scope(|scope| {
        let waiting =
            scope.spawn(|| reader.follow(None).map(|it| it == Followed::Ended(LogWriter::Closed)));
        log.close().unwrap();
        assert!(waiting.join().unwrap().unwrap(), "it hears of the close");
    });
    // What was forgotten was not closed.
    let log = never().open(&path).unwrap();
    append(&log, 4..5);
    drop(log);
    assert!(matches!(reader.follow(None).unwrap(), Followed::Record(_)));
    assert_eq!(reader.follow(None).unwrap(), Followed::Ended(LogWriter::Died));
}

// The control page, removed, replaced, or cut.

/// The first writer lives; the control page is no longer what it was.
fn assert_one_writer(spoil: impl Fn(&Path)) {
    let directory = directory();
    let path = directory.path().join("log");
    let first = options().open(&path).unwrap();
    let mut acknowledged = append(&first, 0..5).len() as u64;
    spoil(&path);
    let segment = |position: Position| position.get() / SEGMENT_BYTES;
    let spoiled_in = segment(first.committed());
    let second = options().open(&path).map(|_| "a second writer is let in");
    second.expect_err("there is a writer");
    let error = loop {
        match first.append(&record(acknowledged)) {
            Ok(position) => {
                acknowledged += 1;
                assert!(segment(position) <= spoiled_in + 1, "it goes on and on");
            }
            Err(error) => break error,
        }
    };
    assert!(!error.to_string().is_empty());
    // It says again why it cannot be closed, or has nothing to do.
    let _ = first.close();
    let next = options().open(&path).unwrap();
    let found = numbers(next.reader().unwrap()).unwrap();
    assert!(found.starts_with(&all(0..acknowledged)), "{found:?} of {acknowledged}");
    next.close().unwrap();
}

#[test]
fn a_removed_control_page_lets_in_no_second_writer() {
    // As somebody does who takes it for a stale lock.
    assert_one_writer(|path| fs::remove_file(path.join("control")).unwrap());
}

#[test]
fn a_replaced_control_page_lets_in_no_second_writer() {
    // As a backup does that is restored, or an editor that saves.
    assert_one_writer(|path| {
        fs::copy(path.join("control"), path.join("control.new")).unwrap();
        fs::rename(path.join("control.new"), path.join("control")).unwrap();
    });
}

fn cut_control_page(path: &Path) {
    let control = OpenOptions::new().write(true).open(path.join("control")).unwrap();
    control.set_len(what().parse().unwrap()).unwrap();
}

fn append_over_a_cut_control_page(place: &Path) {
    let path = place.join("log");
    let log = options().open(&path).unwrap();
    let at = append(&log, 0..5);
    cut_control_page(&path);
    let refused = (5..5 + 3 * RECORDS_OF_A_SEGMENT).find_map(|it| log.append(&record(it)).err());
    assert!(refused.is_some(), "it goes on and on");
    // None of these may end the process, whatever it says.
    let _ = log.truncate_before(at[3]);
    let _ = log.sync();
    let _ = (log.first(), log.committed(), log.durable(), log.stats());
    let _ = log.read(at[4]);
    let _ = log.reader().and_then(numbers);
    let _ = log.close();
    let _ = options().open(&path).and_then(LogFile::close);
}

fn read_over_a_cut_control_page(place: &Path) {
    let path = place.join("log");
    let mut reader = LogReader::open(&path).unwrap();
    let mut waiting = LogReader::open(&path).unwrap();
    waiting.event_fd().unwrap();
    assert!(reader.next().unwrap().is_some());
    cut_control_page(&path);
    let refused = (0..100).find_map(|_| reader.next().err());
    assert!(refused.is_some(), "it goes on and on");
    let _ = reader.next_within(Some(Duration::from_millis(10)));
    let _ = reader.wait(Some(Duration::from_millis(10)));
    let _ = reader.seek(Position::START);
    let _ = reader.seek_last(10_000);
    let _ = (reader.first(), reader.committed(), reader.position());
    let _ = waiting.next_within(Some(Duration::from_millis(10)));
    drop(waiting);
    assert!(LogReader::open(&path).is_err());
    assert!(LogReader::summary(&path).is_err());
    // All else is read without the page.
    let mut damages = Vec::new();
    let verified = LogReader::verify(&path, |damage| damages.push(damage.what));
    assert!(verified.is_err() || damages == [Damaged::ControlPage], "{damages:?}");
}

#[test]
fn a_control_page_that_is_cut_under_a_writer_is_an_error() {
    for length in ["0", "1", "4095"] {
        let directory = directory();
        let environment = [(WHAT, length.to_owned())];
        let part = "appends over a cut control page";
        Part::start(part, directory.path(), &environment).ends_well().unwrap();
    }
}

#[test]
fn a_control_page_that_is_cut_under_a_reader_is_an_error() {
    // Behind its first sector there is nothing that readers need.
    for length in ["0", "1", "511"] {
        let directory = directory();
        make_log(&directory.path().join("log"), 5);
        let environment = [(WHAT, length.to_owned())];
        let part = "reads over a cut control page";
        Part::start(part, directory.path(), &environment).ends_well().unwrap();
    }
}

// What is no file, under a file's name.

const FIRST: &str = "0000000000000000.segment";
const LAST: &str = "0000000000000002.segment";
const NEXT: &str = "0000000000000003.segment";
const SPARE: &str = "0000000000000000.spare";
const WHILE_NEW: &str = "segment.new";

fn make_fifo(path: &Path) {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

fn make_socket(path: &Path) {
    // A socket's whole path must be short.
    let directory = File::open(path.parent().unwrap()).unwrap();
    let name = path.file_name().unwrap();
    let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    UnixListener::bind(path).unwrap();
}

/// Puts in turn each thing that is no file in the place of each file of a log of three segments, and runs a
/// part with it; what a link leads to must stay as it is.
fn among_strange_files(part: &str) {
    let mut failures = Vec::new();
    for name in ["control", FIRST, LAST, NEXT, SPARE, WHILE_NEW] {
        for kind in ["fifo", "socket", "directory", "full directory", "link", "link to nothing"] {
            let directory = directory();
            let place = directory.path();
            make_log(&place.join("log"), 2 * RECORDS_OF_A_SEGMENT + 10);
            let strange = place.join("log").join(name);
            let elsewhere = place.join("elsewhere");
            if fs::rename(&strange, &elsewhere).is_err() {
                fs::write(&elsewhere, vec![7; SEGMENT_BYTES as usize]).unwrap();
            }
            let before = fs::read(&elsewhere).unwrap();
            match kind {
                "fifo" => make_fifo(&strange),
                "socket" => make_socket(&strange),
                "directory" => fs::create_dir(&strange).unwrap(),
                "full directory" => {
                    fs::create_dir(&strange).unwrap();
                    fs::write(strange.join("precious"), "precious").unwrap();
                }
                "link" => symlink(&elsewhere, &strange).unwrap(),
                _ => symlink(place.join("nothing"), &strange).unwrap(),
            }
            let what = format!("{kind} as {name}");
            if let Err(error) = Part::start(part, place, &[(WHAT, what.clone())]).ends_well() {
                failures.push(format!("{what}: {error}"));
            }
            if fs::read(&elsewhere).unwrap() != before {
                failures.push(format!("{what}: the file that it leads to was changed"));
            }
            if place.join("nothing").exists() {
                failures.push(format!("{what}: a file was made where it leads to"));
            }
            // It may have been given up, and be called a spare.
            let entries = fs::read_dir(place.join("log")).unwrap();
            let mut entries = entries.map(|entry| entry.unwrap().path().join("precious"));
            if kind == "full directory" && !entries.any(|it| it.exists()) {
                failures.push(format!("{what}: what is in it was removed"));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

fn assert_names(error: &LogError, name: &str) {
    let said = error.to_string();
    assert!(said.contains(name), "{}: {said}", what());
}

fn append_among_strange_files(place: &Path) {
    let what = what();
    let (kind, name) = what.split_once(" as ").unwrap();
    let log = match options().prewrite(Prewrite::Always).open(place.join("log")) {
        Ok(log) => log,
        Err(error) => return assert_names(&error, name),
    };
    // An opening looks at these. The others' places are for what comes, or were read long ago.
    assert!(!["control", LAST].contains(&name), "{what}: it is opened");
    if name == FIRST && kind != "link" {
        let read = log.reader().and_then(numbers);
        assert_names(&read.expect_err("it cannot be read"), name);
    }
    for _ in 0..2 {
        let end = 4 * RECORDS_OF_A_SEGMENT;
        let refused = (0..end).find_map(|it| log.append(&record(it)).err());
        // Files that are given up are used again, whatever they are.
        let given_up = log.truncate_before(log.committed()).err();
        for error in refused.iter().chain(&given_up) {
            let said = error.to_string();
            assert!(said.contains(name) || said.contains(".spare"), "{what}: {said}");
        }
    }
    if let Err(error) = log.close() {
        let said = error.to_string();
        assert!(said.contains(name) || said.contains(".spare"), "{what}: {said}");
    }
}

fn read_among_strange_files(place: &Path) {
    let what = what();
    let (kind, name) = what.split_once(" as ").unwrap();
    let path = place.join("log");
    let read = LogReader::open(&path).and_then(numbers);
    let verified = LogReader::verify(&path, |_| {});
    let summary = LogReader::summary(&path);
    match &read {
        Err(error) => assert_names(error, name),
        // What a link leads to can be read, and the others are not looked at.
        Ok(read) => {
            assert!(
                kind == "link" || ![FIRST, LAST, "control"].contains(&name),
                "{what}: it is read"
            );
            assert_eq!(*read, all(0..2 * RECORDS_OF_A_SEGMENT + 10), "{what}");
        }
    }
    if name == "control" && kind != "link" {
        assert!(verified.is_err() && summary.is_err(), "{what}");
    }
}

#[test]
fn a_writer_among_things_that_are_no_files_says_so() {
    among_strange_files("appends among strange files");
}

#[test]
fn a_reader_among_things_that_are_no_files_says_so() {
    among_strange_files("reads among strange files");
}

// A system that fails once.

/// A number of the preloaded library.
fn fault_word(name: &CStr) -> *mut libc::c_uint {
    // SAFETY: a name that ends with a zero.
    let word = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!word.is_null(), "the library is not preloaded");
    word.cast()
}

fn set_faults(one_in: u32, only: u32) {
    // SAFETY: words of the library, which stays; it reads them at any time.
    unsafe {
        fault_word(c"faults_only").write_volatile(only);
        fault_word(c"faults_one_in").write_volatile(one_in);
    }
}

fn give_up_twice(place: &Path) {
    /// Bits of `faults.c`.
    const RENAMES: u32 = 1 << 9;
    const UNLINKS: u32 = 1 << 11;
    let path = place.join("log");
    let log = options().open(&path).unwrap();
    let mut next = 0;
    let mut failed = 0;
    // All of them fail, then some.
    for one_in in [1, 2, 5] {
        append(&log, next..next + 100);
        next += 100;
        let end = log.committed();
        set_faults(one_in, RENAMES | UNLINKS);
        let given_up = log.truncate_before(end);
        set_faults(0, 0);
        failed += u32::from(given_up.is_err());
        assert!(given_up.is_err() || one_in > 1);
        log.truncate_before(end).unwrap();
        let last = (end.get() - 1) / SEGMENT_BYTES;
        let left = segment_numbers(&path);
        assert!(left.iter().all(|&it| it >= last), "segments {left:?} are left, given up: {last}");
    }
    assert!(failed > 0);
    append(&log, next..next + 10);
    log.close().unwrap();
    assert_eq!(numbers_at(&path), all(next..next + 10));
}

#[test]
fn what_could_not_be_given_up_is_given_up_by_the_next_call() {
    let directory = directory();
    let place = directory.path();
    let Some(library) = preloaded::build("faults.c", place) else {
        return;
    };
    let environment = [
        ("LD_PRELOAD", library.display().to_string()),
        ("FAULTS_UNDER", place.canonicalize().unwrap().join("log").display().to_string()),
    ];
    Part::start("gives up twice", place, &environment).ends_well().unwrap();
}

// Copied while it is appended to.

/// Copies a log file by file, and appends between; gives up the first half behind the first file, too, if asked.
fn copy_in_use(to: &Path, policy: SyncPolicy, control_first: bool, gives_up: bool) {
    let directory = directory();
    let path = directory.path().join("log");
    let log = options().sync(policy).open(&path).unwrap();
    let mut next = 3 * RECORDS_OF_A_SEGMENT + 4;
    let at = append(&log, 0..next);
    fs::create_dir_all(to.join("log")).unwrap();
    fs::write(to.join("expected"), next.to_string()).unwrap();
    let mut names: Vec<PathBuf> =
        fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort_by_key(|it| (it.ends_with("control") != control_first, it.clone()));
    for (copied, from) in names.iter().enumerate() {
        // What is given up meanwhile cannot be copied.
        let _ = fs::copy(from, to.join("log").join(from.file_name().unwrap()));
        append(&log, next..next + 5);
        next += 5;
        if gives_up && copied == 0 {
            log.truncate_before(at[at.len() / 2]).unwrap();
        }
    }
}

/// Opens all copies: each has all that was there when the copying began, or is refused.
fn open_copies(place: &Path) {
    for entry in fs::read_dir(place.join("copies")).unwrap() {
        let copy = entry.unwrap().path();
        let expected: u64 = fs::read_to_string(copy.join("expected")).unwrap().parse().unwrap();
        let log = match options().open(copy.join("log")) {
            Ok(log) => log,
            Err(error) => {
                let is_told = matches!(error.kind(), LogErrorKind::IncompleteCopy { .. });
                assert!(is_told, "{}: {error}", copy.display());
                continue;
            }
        };
        let found = numbers(log.reader().unwrap()).unwrap();
        let (Some(&first), Some(&last)) = (found.first(), found.last()) else {
            panic!("{}: nothing is there", copy.display());
        };
        assert!(last + 1 >= expected, "{}: {last} of {expected}", copy.display());
        assert_eq!(found, all(first..last + 1), "{}", copy.display());
        assert!(first == 0 || log.first() > Position::START, "{}", copy.display());
    }
}

#[test]
fn a_copy_of_a_log_in_use_has_all_that_was_there_or_is_refused() {
    for another_boot in [false, true] {
        let directory = directory();
        let place = directory.path();
        let mut number = 0;
        for policy in [SyncPolicy::EveryCommit, SyncPolicy::Never] {
            for control_first in [false, true] {
                for gives_up in [false, true] {
                    number += 1;
                    let to = place.join("copies").join(number.to_string());
                    copy_in_use(&to, policy, control_first, gives_up);
                }
            }
        }
        let mut environment = Vec::new();
        if another_boot {
            // As on another machine.
            let boot = place.join("boot");
            fs::write(&boot, "00000000-0000-4000-8000-000000000001\n").unwrap();
            let Some(library) = preloaded::build("another_boot.c", place) else {
                continue;
            };
            environment.push(("LD_PRELOAD", library.display().to_string()));
            environment.push(("ANOTHER_BOOT", boot.display().to_string()));
        }
        Part::start("opens copies", place, &environment).ends_well().unwrap();
    }
}

// A page, or a segment, that is not the log's any more.

#[test]
fn an_old_control_page_put_back_in_place_hides_no_records() {
    let directory = directory();
    let path = directory.path().join("log");
    make_log(&path, 5);
    let old = fs::read(path.join("control")).unwrap();
    let log = options().open(&path).unwrap();
    append(&log, 5..9);
    log.close().unwrap();
    // Into the same file, as `cp` does.
    fs::write(path.join("control"), old).unwrap();
    let error = LogFile::open(&path).expect_err("it does not know of what is there");
    assert!(matches!(error.kind(), LogErrorKind::Damaged { .. }), "{error}");
    LogFile::repair(&path, &RepairOptions::new()).unwrap();
    let log = options().open(&path).unwrap();
    assert_eq!(numbers(log.reader().unwrap()).unwrap(), all(0..9));
}

#[test]
fn a_segment_that_is_removed_under_its_writer_takes_no_more() {
    let directory = directory();
    let path = directory.path().join("log");
    let log = options().open(&path).unwrap();
    append(&log, 0..2);
    fs::remove_file(path.join("0000000000000000.segment")).unwrap();
    let error = log.append(&record(2)).expect_err("nobody would find it");
    assert_eq!(*error.kind(), LogErrorKind::Displaced, "{error}");
}

#[test]
fn a_log_whose_last_segment_was_cut_has_no_backup() {
    let directory = directory();
    let path = directory.path().join("log");
    make_log(&path, 5);
    let segment = File::options().write(true).open(path.join("0000000000000000.segment")).unwrap();
    segment.set_len(8192).unwrap();
    let copy = directory.path().join("copy");
    let error = LogReader::checkpoint(&path, &copy).expect_err("records are missing");
    assert!(matches!(error.kind(), LogErrorKind::Damaged { .. }), "{error}");
    assert!(!copy.exists());
}
