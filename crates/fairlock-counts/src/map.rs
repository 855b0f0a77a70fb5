//! The file in the memory of the process that writes to it.
//!
//! Making one allocates nothing: the lock may be in use inside the program's own allocator, which may also
//! not be usable yet in the child of a `fork`.

use std::ffi::{CStr, OsStr};
use std::fmt::Write;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use crate::layout::{
    Details, ENTRIES, Entry, FIRST_PAGE, Header, LOCKS, LOCKS_AT, Lock, MAGIC, MODULES, MODULES_AT,
    Module, OTHERS, PAGE, PAGES, Plain, RECORD_PAGES, Records, SIZE, STACKS, STACKS_AT, Stack,
    THREADS, THREADS_AT, Thread, is_page,
};

/// How the names of such files end.
pub const EXTENSION: &str = "counts";

/// How the names of the directories begin that `fairlock run` makes for its run, and takes away after
/// it.
pub const RUN_PREFIX: &str = "fairlock-counts-";

/// Whether this is such a directory, or in one.
///
/// ```
/// use fairlock_counts::map::is_of_a_run;
/// assert!(is_of_a_run(b"/dev/shm/fairlock-counts-x8u3/4c1f"));
/// assert!(!is_of_a_run(b"/var/counts"));
/// ```
pub fn is_of_a_run(directory: &[u8]) -> bool {
    let mut names = directory.split(|byte| *byte == b'/');
    names.any(|name| name.starts_with(RUN_PREFIX.as_bytes()))
}

/// A counts file in memory, to write to. Stays mapped as long as this lives.
pub struct Map {
    start: NonNull<u8>,
    path: Text,
    /// The program's path. Not read from the file, where somebody else may have changed it.
    program: Text,
    /// A bit for each page that is known to have memory behind it. Not in the file, either.
    present: [AtomicU64; PAGES as usize / 64],
}

// SAFETY: the mapping belongs to the process, not to a thread, and consists of atomics.
unsafe impl Send for Map {}
// SAFETY: the mapping consists of atomics, which any number of threads may use at once.
unsafe impl Sync for Map {}

impl Map {
    /// A new file in this directory for the calling process, named after it. Only its owner may read
    /// it.
    ///
    /// # Errors
    /// Those of open(2), ftruncate(2) and mmap(2).
    pub fn create(directory: &Path, policy: &str) -> io::Result<Map> {
        // SAFETY: plain calls.
        let (pid, parent) = unsafe { (libc::getpid() as u32, libc::getppid() as u32) };
        let (file, path) = create_new(directory, pid)?;
        // SAFETY: the file is this process's own and new.
        if unsafe { libc::ftruncate(file.0, SIZE as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, of a file of this size.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), SIZE, protection, libc::MAP_SHARED, file.0, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at 0 unasked");
        let present = [const { AtomicU64::new(0) }; PAGES as usize / 64];
        let map = Map { start, path, program: this_program(), present };
        if !map.has_room_at(0) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let header = map.header();
        write_text(&header.policy, policy.as_bytes());
        write_text(&header.program, map.program.bytes());
        header.pid.store(pid, Relaxed);
        header.parent.store(parent, Relaxed);
        header.began.store(monotonic_ns(), Relaxed);
        header.next_page.store(FIRST_PAGE, Relaxed);
        header.locks.store(OTHERS + 1, Relaxed);
        // Last, so that nobody takes a file for complete that is not.
        header.magic.store(MAGIC, Release);
        Ok(map)
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(self.path.bytes()))
    }

    /// The path of the program that the process ran when this was made.
    pub fn program(&self) -> &CStr {
        self.program.c_str()
    }

    /// The thing at this offset.
    fn at<T: Plain>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= SIZE && offset % align_of::<T>() == 0);
        // SAFETY: inside the mapping and aligned; any bytes are a `T`, which is made of atomics.
        unsafe { self.start.add(offset).cast().as_ref() }
    }

    fn table<T: Plain>(&self, offset: usize, length: usize) -> &[T] {
        assert!(offset + length * size_of::<T>() <= SIZE && offset % align_of::<T>() == 0);
        // SAFETY: inside the mapping and aligned, as `at` checks; any bytes are a `T`, which is made of atomics.
        unsafe { std::slice::from_raw_parts(self.start.add(offset).cast().as_ptr(), length) }
    }

    /// The first page.
    pub fn header(&self) -> &Header {
        self.at(0)
    }

    /// The table of modules.
    pub fn modules(&self) -> &[Module] {
        self.table(MODULES_AT, MODULES)
    }

    /// The table of stacks.
    pub fn stacks(&self) -> &[Stack] {
        self.table(STACKS_AT, STACKS)
    }

    /// The table of locks.
    pub fn locks(&self) -> &[Lock] {
        self.table(LOCKS_AT, LOCKS)
    }

    /// The pages of the threads; 0: not complete yet.
    pub fn threads(&self) -> &[AtomicU32] {
        self.table(THREADS_AT, THREADS)
    }

    /// The thread on this page; none if there is no such page.
    #[inline]
    pub fn thread(&self, page: u32) -> Option<&Thread> {
        self.is_present(page).then(|| self.at(page as usize * PAGE))
    }

    /// As [`thread`](Self::thread), of a page that it has found before: a number that the caller has kept to
    /// itself.
    #[inline]
    pub fn known_thread(&self, page: u32) -> &Thread {
        self.at(page as usize * PAGE)
    }

    /// The entries on this page; as [`thread`](Self::thread).
    #[inline]
    pub fn entries(&self, page: u32) -> Option<&[Entry]> {
        self.is_present(page).then(|| self.table(page as usize * PAGE, ENTRIES))
    }

    /// The details on this page; as [`thread`](Self::thread).
    #[inline]
    pub fn details(&self, page: u32) -> Option<&Details> {
        self.is_present(page).then(|| self.at(page as usize * PAGE))
    }

    /// The records on this page; as [`thread`](Self::thread).
    pub fn records(&self, page: u32) -> Option<&Records> {
        self.is_present(page).then(|| self.at(page as usize * PAGE))
    }

    /// Whether this is the number of a page that can be written to. Such numbers come from the file, where
    /// anything may stand.
    #[inline]
    fn is_present(&self, page: u32) -> bool {
        let bit = 1 << (page % 64);
        match self.present.get(page as usize / 64) {
            Some(word) if word.load(Relaxed) & bit != 0 => true,
            _ => self.becomes_present(page),
        }
    }

    #[cold]
    fn becomes_present(&self, page: u32) -> bool {
        let is_present = is_page(page) && self.has_room_at(page as usize * PAGE);
        if is_present {
            self.present[page as usize / 64].fetch_or(1 << (page % 64), Relaxed);
        }
        is_present
    }

    /// Hands out a page, all zero; none if the file is full, or the file system. In a process that records, the end of
    /// the file is for the records: counts of many locks by many threads would leave no room for them.
    pub fn new_page(&self) -> Option<u32> {
        let header = self.header();
        let records = header.recording.until.load(Relaxed) != 0;
        let most = if records { PAGES - RECORD_PAGES } else { PAGES };
        let page = take_place(&header.next_page, most)?;
        self.is_present(page).then_some(page)
    }

    /// Hands out a page for [`Records`]; none if the window of the recording has no more, or if there
    /// is none.
    pub fn new_record_page(&self) -> Option<u32> {
        let header = self.header();
        let most = header.recording.until.load(Relaxed).min(RECORD_PAGES);
        let page = PAGES - 1 - take_place(&header.record_pages, most)?;
        self.is_present(page).then_some(page)
    }

    /// A place in a table of `T`s at this offset, all zero, that nobody else gets; likewise.
    pub fn new_place<T>(&self, used: &AtomicU32, table: usize, length: usize) -> Option<u32> {
        let place = take_place(used, length as u32)?;
        self.has_room_at(table + place as usize * size_of::<T>()).then_some(place)
    }

    /// Whether the page there can be written to. To write where the file system has no room left
    /// would end the program (SIGBUS).
    pub fn has_room_at(&self, offset: usize) -> bool {
        assert!(offset < SIZE);
        let page = offset / PAGE * PAGE;
        // SAFETY: of this mapping; what is there already stays. Kernels before 5.14 do not know it.
        // The caller's `errno` is not this one's to change.
        unsafe {
            let (start, errno) = (self.start.as_ptr().add(page), libc::__errno_location());
            let before = *errno;
            let is_there = libc::madvise(start.cast(), PAGE, libc::MADV_POPULATE_WRITE) == 0
                || *errno == libc::EINVAL;
            *errno = before;
            is_there
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `create`, and everything that was lent borrows `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), SIZE) };
    }
}

/// A number that nobody else gets; none if all are taken.
fn take_place(used: &AtomicU32, most: u32) -> Option<u32> {
    let mut found = used.load(Relaxed);
    while found < most {
        match used.compare_exchange_weak(found, found.wrapping_add(1), Relaxed, Relaxed) {
            Ok(_) => return Some(found),
            Err(newer) => found = newer,
        }
    }
    None
}

/// Adds to a word that one thread writes.
#[inline(always)]
pub fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Relaxed).wrapping_add(more), Relaxed);
}

fn create_new(directory: &Path, pid: u32) -> io::Result<(Descriptor, Text)> {
    /// The process may have been other programs before, or another process had its number: no more often
    /// than that.
    const MOST: u32 = 1 << 16;
    for number in 0..MOST {
        let mut path = Text::new();
        path.push(directory.as_os_str().as_bytes())?;
        write!(path, "/{pid}-{number}.{EXTENSION}")
            .map_err(|_| io::Error::from_raw_os_error(libc::ENAMETOOLONG))?;
        match create_at(path.c_str()) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// An open file, closed at the end.
struct Descriptor(libc::c_int);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: open, and nobody else's.
        unsafe { libc::close(self.0) };
    }
}

fn create_at(path: &CStr) -> io::Result<Descriptor> {
    const OWNERS: libc::c_uint = 0o600;
    // O_EXCL follows no link either.
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: the path ends with a 0.
    match unsafe { libc::open(path.as_ptr(), flags, OWNERS) } {
        -1 => Err(io::Error::last_os_error()),
        file => Ok(Descriptor(file)),
    }
}

/// A path without an allocation; a 0 stands behind it.
struct Text {
    bytes: [u8; 512],
    length: usize,
}

impl Text {
    fn new() -> Text {
        Text { bytes: [0; 512], length: 0 }
    }

    fn push(&mut self, more: &[u8]) -> io::Result<()> {
        let end = self.length + more.len();
        if end >= self.bytes.len() || more.contains(&0) {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        self.bytes[self.length..end].copy_from_slice(more);
        self.length = end;
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).expect("the last byte is always 0")
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text.as_bytes()).map_err(|_| std::fmt::Error)
    }
}

/// The path of the running program, empty if it is not known.
fn this_program() -> Text {
    let mut program = Text::new();
    let room = program.bytes.len() - 1;
    let into = program.bytes.as_mut_ptr().cast();
    // SAFETY: as much room as it is told; the byte behind stays 0.
    let length = unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), into, room) };
    program.length = usize::try_from(length).unwrap_or(0);
    program
}

/// As much as fits, with a 0 behind it.
pub fn write_text(place: &[AtomicU8], text: &[u8]) {
    let Some((_, room)) = place.split_last() else { return };
    let length = text.len().min(room.len());
    room.iter().zip(text).for_each(|(to, from)| to.store(*from, Relaxed));
    place[length].store(0, Relaxed);
}

/// CLOCK_MONOTONIC, ns.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
