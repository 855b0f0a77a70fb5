//! The file in memory. Making one allocates nothing: a program's own allocator may be what takes a
//! lock, and in the child of a `fork` it may be unusable still.

use std::ffi::{CStr, OsStr};
use std::fmt::Write;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::layout::{
    Details, ENTRIES, Entry, FIRST_PAGE, Header, LOCKS, LOCKS_AT, Lock, MAGIC, MODULES, MODULES_AT,
    Module, OTHERS, PAGE, PAGES, SIZE, STACKS, STACKS_AT, Stack, THREADS, THREADS_AT, Thread,
};

/// How the names of such files end.
pub const EXTENSION: &str = "counts";

/// A counts file in memory. Stays mapped as long as this lives.
pub struct Map {
    start: NonNull<u8>,
    path: Text,
}

// SAFETY: what is mapped consists of atomics, and of bytes that are written before the file is
// complete (`create`).
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// A new file in this directory for the calling process, named after it. Everybody may read it.
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
        let map = Map::of(&file, path, libc::PROT_READ | libc::PROT_WRITE)?;
        if !map.has_room_at(0) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // SAFETY: nobody reads or writes the file before `MAGIC` is there.
        let header = unsafe { &mut *map.start.as_ptr().cast::<Header>() };
        write_text(&mut header.policy, policy.as_bytes());
        let room = header.program.len() - 1;
        // SAFETY: as much room as it is told; the byte behind stays 0.
        unsafe {
            libc::readlink(c"/proc/self/exe".as_ptr(), header.program.as_mut_ptr().cast(), room);
        }
        *header.pid.get_mut() = pid;
        *header.parent.get_mut() = parent;
        *header.began.get_mut() = monotonic_ns();
        *header.next_page.get_mut() = FIRST_PAGE;
        *header.locks.get_mut() = OTHERS + 1;
        // Release pairs with the Acquire in `open`.
        map.header().magic.store(MAGIC, Release);
        Ok(map)
    }

    /// The file of any process, to read.
    ///
    /// # Errors
    /// Those of open(2) and mmap(2), and one that says so if it is no such file, is not complete
    /// yet, or is another version's.
    pub fn open(path: &Path) -> io::Result<Map> {
        let path = Text::of(format_args!("{}", path.display()))?;
        let file = open(path.c_str()?, libc::O_RDONLY)?;
        let wrong =
            || io::Error::new(io::ErrorKind::InvalidData, "not a counts file of this version");
        // SAFETY: asks for the length of a file that is open.
        if unsafe { libc::lseek(file.0, 0, libc::SEEK_END) } != SIZE as libc::off_t {
            return Err(wrong());
        }
        let map = Map::of(&file, path, libc::PROT_READ)?;
        match map.header().magic.load(Acquire) {
            MAGIC => Ok(map),
            _ => Err(wrong()),
        }
    }

    fn of(file: &Descriptor, path: Text, protection: i32) -> io::Result<Map> {
        // SAFETY: a new mapping, of a file of this size.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), SIZE, protection, libc::MAP_SHARED, file.0, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at 0 unasked");
        Ok(Map { start, path })
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(self.path.bytes()))
    }

    /// The thing at this offset.
    ///
    /// # Safety
    /// There is a `T`, which consists of atomics but for bytes that do not change any more.
    unsafe fn at<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= SIZE && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: inside the mapping and aligned; the rest is the caller's.
        unsafe { self.start.add(offset).cast().as_ref() }
    }

    /// # Safety
    /// As [`at`](Self::at), for each of them.
    unsafe fn table<T>(&self, offset: usize, length: usize) -> &[T] {
        assert!(offset + length * size_of::<T>() <= SIZE);
        // SAFETY: as in `at`.
        unsafe { std::slice::from_raw_parts(self.start.add(offset).cast().as_ptr(), length) }
    }

    /// The first page.
    pub fn header(&self) -> &Header {
        // SAFETY: it is there from the beginning.
        unsafe { self.at(0) }
    }

    /// The table of modules.
    pub fn modules(&self) -> &[Module] {
        // SAFETY: a table's place; paths are written before anybody reads them (invariant 2).
        unsafe { self.table(MODULES_AT, MODULES) }
    }

    /// The table of stacks.
    pub fn stacks(&self) -> &[Stack] {
        // SAFETY: a table's place.
        unsafe { self.table(STACKS_AT, STACKS) }
    }

    /// The table of locks.
    pub fn locks(&self) -> &[Lock] {
        // SAFETY: a table's place.
        unsafe { self.table(LOCKS_AT, LOCKS) }
    }

    /// The pages of the threads; 0: not complete yet.
    pub fn threads(&self) -> &[AtomicU32] {
        // SAFETY: a table's place.
        unsafe { self.table(THREADS_AT, THREADS) }
    }

    /// The thread on this page, which comes from [`threads`](Self::threads).
    pub fn thread(&self, page: u32) -> &Thread {
        // SAFETY: atomics throughout; any page of the file can be read as such.
        unsafe { self.at(page as usize * PAGE) }
    }

    /// The entries on this page, which comes from [`Thread::pages`].
    pub fn entries(&self, page: u32) -> &[Entry] {
        // SAFETY: as in `thread`.
        unsafe { self.table(page as usize * PAGE, ENTRIES) }
    }

    /// The details on this page, which comes from [`Entry::details`].
    pub fn details(&self, page: u32) -> &Details {
        // SAFETY: as in `thread`.
        unsafe { self.at(page as usize * PAGE) }
    }

    /// Hands out a page, all zero; none if the file is full, or the file system.
    pub fn new_page(&self) -> Option<u32> {
        let page = take_place(&self.header().next_page, PAGES)?;
        self.has_room_at(page as usize * PAGE).then_some(page)
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

    /// Writes a module's path, at a place that this thread was just handed out.
    ///
    /// # Safety
    /// Nobody else reads or writes that path yet.
    pub unsafe fn write_module(&self, place: u32, base: u64, path: &OsStr) {
        let module = ptr::from_ref(&self.modules()[place as usize]).cast_mut();
        // SAFETY: the caller's.
        write_text(unsafe { &mut (*module).path }, path.as_bytes());
        self.modules()[place as usize].base.store(base, Relaxed);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and everything that was lent borrows `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), SIZE) };
    }
}

/// A number that nobody else gets; none if all are taken.
fn take_place(used: &AtomicU32, most: u32) -> Option<u32> {
    let mut found = used.load(Relaxed);
    while found < most {
        match used.compare_exchange_weak(found, found + 1, Relaxed, Relaxed) {
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
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    let mut number = 0;
    loop {
        let path = Text::of(format_args!("{}/{pid}-{number}.{EXTENSION}", directory.display()))?;
        match open(path.c_str()?, flags) {
            Ok(file) => return Ok((file, path)),
            // The process was another program before.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// An open file, closed at the end.
struct Descriptor(libc::c_int);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: open, and nobody else's.
        unsafe { libc::close(self.0) };
    }
}

fn open(path: &CStr, flags: libc::c_int) -> io::Result<Descriptor> {
    const READABLE: libc::c_uint = 0o644;
    // SAFETY: the path ends with a 0.
    match unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, READABLE) } {
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
    fn of(text: std::fmt::Arguments<'_>) -> io::Result<Text> {
        let mut written = Text { bytes: [0; 512], length: 0 };
        match written.write_fmt(text) {
            Ok(()) => Ok(written),
            Err(_) => Err(io::ErrorKind::InvalidFilename.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn c_str(&self) -> io::Result<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).map_err(|_| io::ErrorKind::InvalidFilename.into())
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        if end >= self.bytes.len() {
            return Err(std::fmt::Error);
        }
        self.bytes[self.length..end].copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// As much as fits, with a 0 behind it.
fn write_text(place: &mut [u8], text: &[u8]) {
    let length = text.len().min(place.len() - 1);
    place[..length].copy_from_slice(&text[..length]);
    place[length] = 0;
}

/// CLOCK_MONOTONIC, ns.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
