//! The real storage: files opened with O_DIRECT, and a mapped page.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Duration;

use super::format::BLOCK;
use super::storage::{
    Boot, Extent, FileSystem, Overwrites, Page, SharedMemory, Storage, StoredFile,
};

/// A directory.
pub(crate) struct Disk {
    path: PathBuf,
}

impl Disk {
    pub(crate) fn at(path: &Path) -> Disk {
        Disk { path: path.to_owned() }
    }
}

impl Storage for Disk {
    type File = DiskFile;
    type Memory = Mapping;

    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // What is not UTF-8 was not named by this code.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<DiskFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).custom_flags(libc::O_DIRECT);
        options.open(self.path.join(name)).map(DiskFile).map_err(explained)
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<DiskFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(writable);
        let path = self.path.join(name);
        // When it was read is of no interest, and to note it would be a change of the inode.
        match options.custom_flags(libc::O_DIRECT | libc::O_NOATIME).open(&path) {
            // Only the file's owner may say so.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                options.custom_flags(libc::O_DIRECT).open(&path)
            }
            opened => opened,
        }
        .map(DiskFile)
        .map_err(explained)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        // A link, as not every file system can rename without replacing.
        fs::hard_link(self.path.join(from), self.path.join(to))?;
        self.remove(from)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn map(&self, name: &str, writable: bool) -> io::Result<Mapping> {
        let file = OpenOptions::new().read(true).write(writable).open(self.path.join(name))?;
        Mapping::of(file, writable)
    }

    fn boot(&self) -> Boot {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let half = |range| {
            let digits: Option<&str> = digits.get(range);
            digits.and_then(|half| u64::from_str_radix(half, 16).ok()).unwrap_or(0)
        };
        [half(0..16), half(16..32)]
    }

    fn filesystem(&self) -> FileSystem {
        let kind = kind_of_filesystem(&self.path).unwrap_or(0);
        let copies = Overwrites::Depends { usually: false };
        let (name, overwrites) = match kind {
            // Shared since "ext4: start with shared i_rwsem in case of DIO instead of exclusive".
            0xEF53 if kernel_release().is_some_and(|release| release < (5, 6)) => {
                ("ext4", Overwrites::Alone)
            }
            0xEF53 => ("ext4", Overwrites::InPlace),
            0x5846_5342 => ("xfs", Overwrites::InPlace),
            0x9123_683E => ("btrfs", copies),
            0x2FC1_2FC1 => ("zfs", copies),
            0xCA45_1A4E => ("bcachefs", copies),
            0xF2F5_2010 => ("f2fs", copies),
            0x3434 => ("nilfs", copies),
            _ => ("this file system", Overwrites::Depends { usually: true }),
        };
        FileSystem { name: name.to_owned(), overwrites }
    }
}

/// The system says no more of a file that it cannot open for direct I/O than that something is invalid.
fn explained(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EINVAL) => {
            let message = "this file system takes no direct I/O (O_DIRECT): put the log on another";
            io::Error::new(io::ErrorKind::Unsupported, message)
        }
        _ => error,
    }
}

fn kind_of_filesystem(path: &Path) -> Option<i64> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut about = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path ends with a zero, and there is room for what the kernel answers.
    let answer = unsafe { libc::statfs(path.as_ptr(), about.as_mut_ptr()) };
    // SAFETY: filled in, as the call succeeded.
    (answer == 0).then(|| unsafe { about.assume_init() }.f_type)
}

/// Of the running kernel, the first two numbers.
fn kernel_release() -> Option<(u32, u32)> {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = text.split(|it: char| !it.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A file without the page cache.
pub(crate) struct DiskFile(File);

impl StoredFile for DiskFile {
    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.0.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // The end of the file is the only reason for half a block.
            if !done.is_multiple_of(BLOCK) {
                break;
            }
        }
        Ok(done)
    }

    fn write(&self, bytes: &[u8], offset: u64, durable: bool) -> io::Result<()> {
        let flags = if durable { libc::RWF_DSYNC } else { 0 };
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            let slice =
                libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
            let at = (offset + done as u64).cast_signed();
            // SAFETY: one slice, from which the kernel only reads.
            let written = unsafe { libc::pwritev2(self.0.as_raw_fd(), &slice, 1, at, flags) };
            match usize::try_from(written) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => done += more,
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)?;
        // The length itself, which `sync_data` brings along only where data depends on it.
        self.0.sync_all()
    }

    fn allocate(&self, length: u64) -> io::Result<bool> {
        loop {
            // SAFETY: a system call on an open file.
            let answer = unsafe { libc::fallocate(self.0.as_raw_fd(), 0, 0, length.cast_signed()) };
            if answer == 0 {
                return Ok(true);
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => return Ok(false),
                _ => return Err(error),
            }
        }
    }

    fn extent(&self, offset: u64) -> io::Result<Option<Extent>> {
        let mut map = ExtentMap {
            start: offset,
            length: u64::MAX - offset,
            flags: EXTENTS_SYNC,
            room: 1,
            ..ExtentMap::default()
        };
        // SAFETY: `map` is what this request reads and fills in, with room for as many extents as
        // it says.
        let answer = unsafe { libc::ioctl(self.0.as_raw_fd(), EXTENTS_OF_FILE, &mut map) };
        if answer != 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EBADR) => Ok(None),
                _ => Err(error),
            };
        }
        let extent = &map.extent;
        if map.mapped == 0 {
            return Ok(Some(Extent { end: u64::MAX, written: false, physical: 0 }));
        }
        if extent.logical > offset {
            return Ok(Some(Extent { end: extent.logical, written: false, physical: 0 }));
        }
        Ok(Some(Extent {
            end: extent.logical + extent.length,
            written: extent.flags & (EXTENT_UNKNOWN | EXTENT_DELAYED | EXTENT_UNWRITTEN) == 0,
            physical: extent.physical + (offset - extent.logical),
        }))
    }
}

/// `FS_IOC_FIEMAP` of the kernel, with one extent.
#[repr(C)]
#[derive(Default)]
struct ExtentMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    _reserved: u32,
    extent: MappedExtent,
}

#[repr(C)]
#[derive(Default)]
struct MappedExtent {
    logical: u64,
    physical: u64,
    length: u64,
    _reserved: [u64; 2],
    flags: u32,
    _reserved_too: [u32; 3],
}

const EXTENTS_OF_FILE: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;
const EXTENTS_SYNC: u32 = 1;
const EXTENT_UNKNOWN: u32 = 2;
const EXTENT_DELAYED: u32 = 4;
const EXTENT_UNWRITTEN: u32 = 0x800;

/// A mapped page, and the file that it is of.
pub(crate) struct Mapping {
    page: *const Page,
    file: File,
}

// SAFETY: the page consists of atomic words and is mapped as long as this value lives.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(file: File, writable: bool) -> io::Result<Mapping> {
        if file.metadata()?.len() < size_of::<Page>() as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let access = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping, of a file that is long enough.
        let page = unsafe {
            let size = size_of::<Page>();
            libc::mmap(ptr::null_mut(), size, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { page: page.cast(), file })
    }

    /// A request for a lock on the whole file, which belongs to this opening of it and not to the process;
    /// the kind of lock that the system answers with.
    fn ask_for_lock(&self, request: libc::c_int, kind: libc::c_int) -> io::Result<libc::c_int> {
        // SAFETY: zeros are a valid value: from the file's beginning to its end.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        // SAFETY: a system call on an open file, with what this request reads and fills in.
        let answer = unsafe { libc::fcntl(self.file.as_raw_fd(), request, &mut lock) };
        match answer {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(lock.l_type.into()),
        }
    }

    fn futex(
        &self,
        word: usize,
        operation: libc::c_int,
        value: u32,
        timeout: *const libc::timespec,
    ) {
        // The lower half of a little-endian word; both halves start at multiples of four anyway.
        let address = (&raw const self[word]).cast::<u32>();
        // SAFETY: the address lies in the mapping. Not a private futex: other processes wait, too.
        unsafe { libc::syscall(libc::SYS_futex, address, operation, value, timeout) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `of`, and nobody borrows it any more.
        unsafe { libc::munmap(self.page.cast_mut().cast(), size_of::<Page>()) };
    }
}

impl Deref for Mapping {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: mapped for as long as `self` lives; pages are aligned to more than words.
        unsafe { &*self.page }
    }
}

impl SharedMemory for Mapping {
    fn lock(&self) -> io::Result<bool> {
        match self.ask_for_lock(libc::F_OFD_SETLK, libc::F_WRLCK) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn is_locked(&self) -> io::Result<bool> {
        // What would be in the way of a lock, which is not taken.
        let in_the_way = self.ask_for_lock(libc::F_OFD_GETLK, libc::F_WRLCK)?;
        Ok(in_the_way != libc::F_UNLCK)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn wake(&self, word: usize) {
        self.futex(word, libc::FUTEX_WAKE, i32::MAX as u32, ptr::null());
    }

    fn wait(&self, word: usize, expected: u32, timeout: Option<Duration>) {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        self.futex(word, libc::FUTEX_WAIT, expected, timeout);
    }
}
