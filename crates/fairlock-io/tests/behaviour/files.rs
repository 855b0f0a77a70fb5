//! `AtomicFile` and `Handle` on real files: opening, what is refused, errors, and places in a file.

use std::error::Error;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use fairlock_io::{AtomicFile, AtomicFileError, Handle, Operation};
use tempfile::TempDir;

fn directory() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a writable target directory")
}

fn file_of(bytes: &[u8]) -> (TempDir, AtomicFile) {
    let directory = directory();
    let file = AtomicFile::create(directory.path().join("file")).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    (directory, file)
}

#[track_caller]
fn assert_refused(opened: Result<AtomicFile, AtomicFileError>, reason: &str) {
    let error = opened.unwrap_err();
    assert_eq!((error.operation(), error.kind()), (Operation::Open, ErrorKind::InvalidInput));
    assert!(error.to_string().contains(reason), "{error}");
}

fn make_pipe(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends with a zero and outlives the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting_for_it() {
    let directory = directory();
    assert_refused(AtomicFile::open(directory.path()), "a directory");
    assert_refused(AtomicFile::open("/dev/null"), "a character device");
    let pipe = directory.path().join("pipe");
    make_pipe(&pipe);
    assert_refused(AtomicFile::open(&pipe), "a pipe"); // Nobody has its other end.
    assert_refused(AtomicFile::create(&pipe), "a pipe");
}

#[test]
fn open_files_that_are_not_regular_are_refused() {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    for end in ends {
        // SAFETY: the descriptor is new and nobody else's.
        let end = unsafe { OwnedFd::from_raw_fd(end) };
        assert_refused(AtomicFile::from_file(File::from(end)), "a pipe");
    }
    assert_refused(AtomicFile::from_file(File::open("/").unwrap()), "a directory");
}

#[test]
fn append_mode_is_refused() {
    let directory = directory();
    let path = directory.path().join("file");
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    assert_refused(AtomicFile::open_with(&path, &options), "AtomicFile::append");
    assert_refused(AtomicFile::from_file(options.open(&path).unwrap()), "AtomicFile::append");
}

#[test]
fn a_file_that_was_made_elsewhere_keeps_its_contents_and_has_a_path() {
    let directory = directory();
    let path = directory.path().join("file");
    fs::write(&path, "12345").unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let file = AtomicFile::from_file(file).unwrap();
    assert_eq!((file.len(), file.path()), (5, Some(&*path)));
    assert_eq!(file.append(b"67").unwrap(), 5);
    let mut file = file.into_file();
    let mut contents = String::new();
    file.read_to_string(&mut contents).unwrap();
    assert_eq!(contents, "1234567");
}

#[test]
fn a_file_without_a_name_has_no_path() {
    let directory = directory();
    let path = directory.path().join("file");
    let file = File::create_new(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(AtomicFile::from_file(file).unwrap().path(), None);
    let nameless = tempfile::tempfile_in(directory.path()).unwrap();
    let error = AtomicFile::from_file(nameless).unwrap().set_len(u64::MAX).unwrap_err();
    assert_eq!(error.path(), None);
    assert!(error.to_string().contains("of a file without a path"), "{error}");
}

#[test]
fn options_are_those_of_std() {
    let directory = directory();
    let path = directory.path().join("file");
    let file = AtomicFile::create(&path).unwrap();
    file.append(b"12345").unwrap();
    assert_eq!(AtomicFile::open(&path).unwrap().len(), 5);
    let new = AtomicFile::open_with(&path, OpenOptions::new().write(true).create_new(true));
    assert_eq!(new.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(AtomicFile::create(&path).unwrap().len(), 0);
    assert_eq!(
        AtomicFile::open(directory.path().join("no")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn errors_say_what_was_wrong_where_and_become_errors_of_std() {
    let directory = directory();
    let path = directory.path().join("file");
    fs::write(&path, "12345").unwrap();
    let file = AtomicFile::open(&path).unwrap();
    let error = file.write_all_at(b"abc", 1).unwrap_err();
    let facts = (error.operation(), error.offset(), error.length(), error.bytes_done());
    assert_eq!(facts, (Operation::Write, 1, 3, 0));
    assert_eq!((error.path(), error.raw_os_error()), (Some(&*path), Some(libc::EBADF)));
    let message = format!("cannot write 3 bytes at 1 of {}: Bad file descriptor", path.display());
    assert!(error.to_string().starts_with(&message), "{error}");
    assert!(error.source().is_some());

    let error = file.read_exact_at(&mut [0; 4], 3).unwrap_err();
    assert_eq!((error.kind(), error.bytes_done()), (ErrorKind::UnexpectedEof, 2));
    let error = io::Error::from(error);
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    let inside = error.get_ref().unwrap().downcast_ref::<AtomicFileError>().unwrap();
    assert_eq!(inside.operation(), Operation::Read);

    let error = file.set_len(u64::MAX).unwrap_err();
    assert_eq!((error.offset(), error.kind()), (u64::MAX, ErrorKind::InvalidInput));
}

#[test]
fn a_length_that_the_file_system_refuses_is_an_error_with_the_file_as_it_was() {
    let (_directory, file) = file_of(b"12345");
    if file.file().set_len(i64::MAX as u64).is_ok() {
        return eprintln!("skipped: this file system has files of any length");
    }
    let error = file.write_all_at(b"x", i64::MAX as u64 - 1).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG), "{error}");
    let error = file.set_len(i64::MAX as u64).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG), "{error}");
    assert_eq!((file.len(), file.file().metadata().unwrap().len()), (5, 5));
}

#[test]
fn vectored_forms_do_what_the_others_do() {
    let (_directory, file) = file_of(b"0123456789");
    let slices = [IoSlice::new(b"ab"), IoSlice::new(b"cde")];
    file.write_all_vectored_at(&slices, 3).unwrap();
    assert_eq!(file.append_vectored(&slices).unwrap(), 10);
    let (mut first, mut second) = ([0; 3], [0; 20]);
    let buffers = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    assert_eq!(file.read_vectored_at(buffers, 2).unwrap(), 13);
    assert_eq!((&first, &second[..10]), (b"2ab", &b"cde89abcde"[..]));
}

#[test]
fn exact_reads_into_several_buffers_fill_all_or_fail() {
    let (_directory, file) = file_of(b"0123456789");
    let (mut first, mut second) = ([0; 3], [0; 4]);
    let buffers = &mut [
        IoSliceMut::new(&mut []),
        IoSliceMut::new(&mut first),
        IoSliceMut::new(&mut []),
        IoSliceMut::new(&mut second),
    ];
    let error = file.read_exact_vectored_at(buffers, 4).unwrap_err();
    assert_eq!((error.kind(), error.raw_os_error()), (ErrorKind::UnexpectedEof, None));
    let facts = (error.operation(), error.offset(), error.length(), error.bytes_done());
    assert_eq!(facts, (Operation::Read, 4, 7, 6));
    let error = file.read_exact_vectored_at(buffers, 99).unwrap_err();
    assert_eq!((error.kind(), error.bytes_done()), (ErrorKind::UnexpectedEof, 0));
    file.read_exact_vectored_at(buffers, 3).unwrap();
    assert_eq!((&first, &second), (b"345", b"6789"));

    // Nothing is there everywhere.
    file.read_exact_vectored_at(&mut [], u64::MAX).unwrap();
    file.read_exact_vectored_at(&mut [IoSliceMut::new(&mut [])], u64::MAX).unwrap();
}

#[test]
fn exact_reads_take_more_buffers_than_a_system_call_does() {
    const BUFFERS: usize = 2 * libc::UIO_MAXIOV as usize + 1;
    let contents: Vec<u8> = (0..BUFFERS * 3).map(|byte| byte as u8).collect();
    let (_directory, file) = file_of(&contents);
    let mut buffers = vec![[0; 3]; BUFFERS];
    let mut slices: Vec<_> = buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
    file.read_exact_vectored_at(&mut slices, 0).unwrap();
    assert_eq!(
        file.read_exact_vectored_at(&mut slices, 1).unwrap_err().bytes_done(),
        BUFFERS * 3 - 1
    );
    file.handle().read_exact_vectored(&mut slices).unwrap();
    assert_eq!(buffers.concat(), contents);
}

/// A file in memory: its file system has files of all lengths.
fn file_in_memory() -> AtomicFile {
    // SAFETY: the name ends with a zero and outlives the call.
    let descriptor = unsafe { libc::memfd_create(c"file".as_ptr(), 0) };
    assert_ne!(descriptor, -1, "{}", io::Error::last_os_error());
    // SAFETY: the descriptor is new and nobody else's.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
    AtomicFile::from_file(file).unwrap()
}

#[test]
fn reads_may_reach_beyond_the_longest_file_there_can_be() {
    let file = file_in_memory();
    let last = i64::MAX as u64;
    file.set_len(last).unwrap();
    file.write_all_at(b"end", last - 3).unwrap();
    let mut buffer = [7; 16];
    assert_eq!(file.read_at(&mut buffer, last - 3).unwrap(), 3);
    assert_eq!(buffer[..3], *b"end");
    assert_eq!(file.read_at(&mut buffer, last).unwrap(), 0);
    let error = file.read_exact_at(&mut buffer, last - 3).unwrap_err();
    assert_eq!((error.kind(), error.bytes_done()), (ErrorKind::UnexpectedEof, 3));

    let (mut first, mut second) = ([0; 2], [0; 20]);
    let buffers =
        &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second), IoSliceMut::new(&mut [])];
    assert_eq!(file.read_vectored_at(buffers, last - 3).unwrap(), 3);
    assert_eq!((&first, second[0]), (b"en", b'd'));
    assert_eq!(file.append(b"!").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(file.len(), last);
}

#[test]
fn a_gap_before_a_write_is_zeros_also_where_something_was_cut() {
    let (_directory, file) = file_of(&[7; 10_000]);
    file.set_len(100).unwrap();
    file.write_all_at(&[8; 10], 9000).unwrap();
    let mut contents = vec![1; 20_000];
    assert_eq!(file.read_at(&mut contents, 0).unwrap(), 9010);
    assert_eq!(contents[..9010], [&[7; 100][..], &[0; 8900], &[8; 10]].concat());
    file.sync_data().unwrap();
    file.sync_all().unwrap();
}

#[test]
fn handles_share_the_file_and_not_their_places() {
    let (_directory, file) = file_of(b"0123456789");
    let (mut one, mut other) = (file.handle(), file.handle());
    let mut buffer = [0; 4];
    one.read_exact(&mut buffer).unwrap();
    assert_eq!((&buffer, one.position(), other.position()), (b"0123", 4, 0));
    other.seek(SeekFrom::End(-3)).unwrap();
    other.write_all(b"abcdef").unwrap();
    let mut rest = String::new();
    one.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "456abcdef");
    assert_eq!(one.read(&mut buffer).unwrap(), 0);
    one.seek(SeekFrom::Current(-2)).unwrap();
    assert_eq!(one.read_vectored(&mut [IoSliceMut::new(&mut buffer)]).unwrap(), 2);
    assert_eq!(one.clone().position(), 13);
    let error = one.seek(SeekFrom::Current(-99)).unwrap_err();
    assert_eq!((error.kind(), one.position()), (ErrorKind::InvalidInput, 13));
}

#[test]
fn a_read_that_is_to_be_exact_leaves_the_place_when_it_is_not() {
    let (_directory, file) = file_of(b"0123");
    let mut handle = file.handle();
    assert_eq!(handle.read_exact(&mut [0; 9]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(handle.position(), 0);
}

#[test]
fn handles_read_and_write_all_of_several_buffers_at_once() {
    let (_directory, file) = file_of(b"0123");
    let slices = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"c")];
    let mut handle = file.handle();
    handle.write_all_vectored(&slices).unwrap();
    let mut appending = Handle::appending(&file);
    appending.write_all_vectored(&slices).unwrap();
    assert_eq!((handle.position(), appending.position()), (3, 7));

    let (mut first, mut second) = ([0; 1], [0; 3]);
    let buffers = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    handle.read_exact_vectored(buffers).unwrap();
    assert_eq!((&first, &second, handle.position()), (b"3", b"abc", 7));
    handle.seek(SeekFrom::Start(4)).unwrap();
    let buffers = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    let error = handle.read_exact_vectored(buffers).unwrap_err();
    assert_eq!((error.kind(), handle.position()), (ErrorKind::UnexpectedEof, 4));
}

#[test]
fn to_write_nothing_leaves_the_place() {
    let (_directory, file) = file_of(b"0123");
    let mut handle = Handle::appending(&file);
    assert_eq!(handle.write(b"").unwrap(), 0);
    assert_eq!(handle.write_vectored(&[IoSlice::new(b"")]).unwrap(), 0);
    assert_eq!(handle.position(), 0);
}

#[test]
fn places_that_no_file_has_are_refused() {
    let (_directory, file) = file_of(b"0123");
    let mut handle = file.handle();
    let last = i64::MAX as u64;
    assert_eq!(handle.seek(SeekFrom::Start(last)).unwrap(), last);
    assert_eq!(handle.seek(SeekFrom::Current(1)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(handle.seek(SeekFrom::End(i64::MAX)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(handle.seek(SeekFrom::Start(u64::MAX)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(handle.position(), last);
}

#[test]
fn appending_handles_write_at_the_end_wherever_they_are() {
    let (_directory, file) = file_of(b"0123");
    let file = Arc::new(file);
    let (mut one, mut other) = (Handle::appending(file.clone()), Handle::appending(file.clone()));
    one.write_all(b"a").unwrap();
    assert_eq!(other.write_vectored(&[IoSlice::new(b"b"), IoSlice::new(b"c")]).unwrap(), 2);
    one.seek(SeekFrom::Start(0)).unwrap();
    one.write_all(b"d").unwrap();
    assert_eq!((one.position(), other.position()), (8, 7));
    one.rewind().unwrap();
    let mut contents = String::new();
    one.read_to_string(&mut contents).unwrap();
    assert_eq!(contents, "0123abcd");
}

#[test]
fn concurrent_appends_follow_each_other_and_readers_see_whole_ones() {
    const THREADS: u8 = 4;
    const APPENDS: usize = 150;
    /// Odd, and not the same for any two neighbours.
    fn record(thread: u8, turn: usize) -> Vec<u8> {
        vec![thread + 1; 1 + (turn * 977 + usize::from(thread) * 131) % 9000]
    }
    /// Every record follows the one before it, and the file ends with one.
    fn assert_whole(contents: &[u8]) {
        let mut turns = [0; THREADS as usize];
        let mut rest = contents;
        while let Some(first) = rest.first() {
            let turn = &mut turns[usize::from(first - 1)];
            let expected = record(first - 1, *turn);
            assert!(rest.starts_with(&expected), "{first}'s turn {turn} is broken");
            rest = &rest[expected.len()..];
            *turn += 1;
        }
    }
    let (_directory, file) = file_of(b"");
    let append = |thread| {
        for turn in 0..APPENDS {
            let record = record(thread, turn);
            let offset = file.append(&record).unwrap();
            let mut back = vec![0; record.len()];
            file.read_exact_at(&mut back, offset).unwrap();
            assert!(back == record, "not where it was said to be");
        }
    };
    thread::scope(|scope| {
        let append = &append;
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || append(thread))).collect();
        let mut contents = vec![0; usize::from(THREADS) * APPENDS * 9000];
        while !threads.iter().all(|thread| thread.is_finished()) {
            let size = file.read_at(&mut contents, 0).unwrap();
            assert_whole(&contents[..size]);
        }
    });
    let mut contents = vec![0; file.len() as usize];
    file.read_exact_at(&mut contents, 0).unwrap();
    assert_whole(&contents);
    let expected =
        (0..THREADS).flat_map(|thread| (0..APPENDS).map(move |turn| record(thread, turn)));
    assert_eq!(file.len(), expected.map(|record| record.len() as u64).sum::<u64>());
}
