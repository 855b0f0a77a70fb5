//! The real storage: files opened with O_DIRECT, a page read and written by system calls, and locks.
//!
//! The directory is held open, and everything in it is found from there: a log that is moved, or whose
//! process changes its working directory, goes on where it is.
//!
//! **The lock.** The writer locks the file `lock`, which only users who may write the log can open. The lock
//! belongs to the open file description, so children inherit it. It is released when the log is closed, even if
//! another process still has the file open.
//!
//! Readers, who cannot open `lock`, test the lock on the file `writer`. Each writer creates that file anew, and
//! locks it before it gives it its name, so no reader can lock it first. Beside these the
//! writer locks the control page and every segment that it opens for writing, if nobody reads them with a
//! lock: so somebody who has removed `lock` and `writer` is still no second writer.

use std::error::Error;
use std::ffi::c_int;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{self, AtFlags, FallocateFlags, FcntlArg, OFlag};
use nix::sys::mman::{MapFlags, ProtFlags};
use nix::sys::stat::{self, FileStat, Mode, SFlag};
use nix::sys::statfs;
use nix::unistd::{self, UnlinkatFlags};

use super::format::BLOCK;
use super::process::Process;
use super::segments;
use super::storage::{
    Boot, Extent, FileSystem, Overwrites, SharedPage, Storage, StoredFile, WORDS, Words,
};

/// The bytes of the control page that are used.
const PAGE_BYTES: usize = WORDS * 8;

/// What a writer has locked for readers to see.
const WRITER: &str = "writer";
const WRITER_WHILE_NEW: &str = "writer.new";

/// Of the segments, a writer has at least one of so many open that are the last by their names.
const WRITTEN: usize = 4;

/// A directory.
pub(crate) struct Disk {
    path: PathBuf,
    directory: File,
    /// Of the files that are made; none for what the process makes otherwise.
    mode: Option<u32>,
}

impl Disk {
    pub(crate) fn open(path: &Path) -> io::Result<Disk> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = File::from(fcntl::open(path, flags, Mode::empty())?);
        Ok(Disk { path: path.to_owned(), directory, mode: None })
    }

    /// Files that are made get this mode.
    pub(crate) fn with_mode(self, mode: Option<u32>) -> Disk {
        Disk { mode, ..self }
    }

    /// What the directory's files take on the device, in bytes.
    pub(crate) fn bytes(&self) -> io::Result<u64> {
        /// Of a device, in which the system counts.
        const SECTOR: u64 = 512;

        let mut bytes = 0;
        for name in self.names()? {
            match self.look_at(&name) {
                Ok(about) => bytes += about.st_blocks.unsigned_abs() * SECTOR,
                // Given up since it was listed.
                Err(Errno::ENOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(bytes)
    }

    /// The permissions of the directory.
    pub(crate) fn own_mode(&self) -> io::Result<u32> {
        Ok(self.directory.metadata()?.mode() & 0o777)
    }

    /// Whether this path, at which there need not be anything, is below the directory.
    pub(crate) fn is_around(&self, path: &Path) -> io::Result<bool> {
        let begin = match fs::canonicalize(path) {
            Ok(path) => path.parent().map(Path::to_owned),
            Err(_) => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                fs::canonicalize(parent.unwrap_or(Path::new("."))).ok()
            }
        };
        let own = self.directory.metadata()?;
        // By what they are: the log may have been opened by another path.
        Ok(begin.iter().flat_map(|begin| begin.ancestors()).any(|path| {
            path.metadata().is_ok_and(|it| (it.dev(), it.ino()) == (own.dev(), own.ino()))
        }))
    }

    /// The permissions of a file.
    pub(crate) fn mode_of(&self, name: &str) -> io::Result<u32> {
        Ok(self.look_at(name)?.st_mode & 0o777)
    }

    /// Gives a file of another directory a name here, the same; false where that cannot be done.
    pub(crate) fn link_from(&self, source: &Disk, name: &str) -> io::Result<bool> {
        match unistd::linkat(&source.directory, name, &self.directory, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            // On another file system, of another owner, with too many names; or it knows no links.
            Err(
                Errno::EXDEV
                | Errno::EPERM
                | Errno::EACCES
                | Errno::EMLINK
                | Errno::EOPNOTSUPP
                | Errno::ENOSYS,
            ) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn look_at(&self, name: &str) -> nix::Result<FileStat> {
        stat::fstatat(&self.directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    /// Opens a file that is one: what else may have its name would block, or is somewhere else.
    fn open_regular(&self, name: &str, flags: OFlag) -> io::Result<File> {
        refuse_others(&self.look_at(name)?)?;
        let always = OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = File::from(fcntl::openat(&self.directory, name, flags | always, Mode::empty())?);
        // It may have been replaced meanwhile.
        refuse_others(&stat::fstat(&file)?)?;
        Ok(file)
    }

    fn create_file(&self, name: &str, flags: OFlag, mode: Option<u32>) -> io::Result<File> {
        let always = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let usual = Mode::from_bits_truncate(mode.unwrap_or(0o666));
        let file = File::from(fcntl::openat(&self.directory, name, flags | always, usual)?);
        if let Some(mode) = mode {
            // Whatever the process leaves out otherwise.
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        Ok(file)
    }

    /// Opens the file `name` for locking, and makes it if there is none.
    fn open_lock(&self, name: &str, page: &Page) -> io::Result<File> {
        loop {
            match self.open_regular(name, OFlag::O_RDWR) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => return opened,
            }
            // Who may write the log may lock it, and nobody else may even open the file.
            let writers = page.file.metadata()?.mode() & 0o222;
            match self.create_file(name, OFlag::O_RDWR, Some(writers | writers << 1)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created,
            }
        }
    }

    /// Makes the file by which readers know that there is a writer: locked before anybody else can open it.
    fn make_mark(&self, page: &Page) -> io::Result<Locked> {
        match self.remove(WRITER_WHILE_NEW) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mark = Locked::new(self.create_file(WRITER_WHILE_NEW, OFlag::O_RDWR, Some(0o600))?);
        if !mark.take()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mode = page.file.metadata()?.mode() & 0o666;
        mark.file.set_permissions(fs::Permissions::from_mode(mode))?;
        self.rename(WRITER_WHILE_NEW, WRITER)?;
        Ok(mark)
    }

    fn is_named(&self, name: &str, file: &File) -> io::Result<bool> {
        let there = match self.look_at(name) {
            Err(Errno::ENOENT) => return Ok(false),
            there => there?,
        };
        let file = stat::fstat(file)?;
        Ok((there.st_dev, there.st_ino) == (file.st_dev, file.st_ino))
    }

    /// Whether somebody has one of the last segments locked for writing.
    fn is_written(&self) -> io::Result<bool> {
        let mut names = self.names()?;
        names.retain(|name| segments::is_segment(name));
        names.sort_unstable();
        for name in names.iter().rev().take(WRITTEN) {
            match self.open_regular(name, OFlag::O_RDONLY) {
                Ok(file) if is_locked(&file)? => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }
}

impl Storage for Disk {
    type File = DiskFile;
    type Page = Page;
    type Lock = Lock;

    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut directory = Dir::openat(&self.directory, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in directory.iter() {
            // What is not UTF-8 was not named by this code.
            if let Ok(name) = entry?.file_name().to_str() {
                if !matches!(name, "." | "..") {
                    names.push(name.to_owned());
                }
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<DiskFile> {
        let file = self.create_file(name, OFlag::O_RDWR | OFlag::O_DIRECT, self.mode);
        Ok(DiskFile::of(file.map_err(explained)?, true))
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<DiskFile> {
        let flags = if writable { OFlag::O_RDWR } else { OFlag::O_RDONLY } | OFlag::O_DIRECT;
        // When it was read is of no interest, and to note it would be a change of the inode.
        let file = match self.open_regular(name, flags | OFlag::O_NOATIME) {
            // Only the file's owner may say so.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                self.open_regular(name, flags)
            }
            opened => opened,
        };
        Ok(DiskFile::of(file.map_err(explained)?, writable))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(fcntl::renameat(&self.directory, from, &self.directory, to)?)
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        // A link, as not every file system can rename without replacing.
        unistd::linkat(&self.directory, from, &self.directory, to, AtFlags::empty())?;
        self.remove(from)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unistd::unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir)?)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn free_what_was_removed(&self) -> io::Result<()> {
        Ok(unistd::syncfs(&self.directory)?)
    }

    fn sync_own_name(&self) -> io::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        match fcntl::openat(&self.directory, "..", flags, Mode::empty()) {
            Ok(parent) => File::from(parent).sync_all(),
            // Who may not read the parent did not make the directory.
            Err(Errno::EACCES) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn page(&self, name: &str, writable: bool) -> io::Result<Page> {
        let flags = if writable { OFlag::O_RDWR } else { OFlag::O_RDONLY };
        let page = Page::of(self.open_regular(name, flags)?)?;
        // What is stored into one that is too short would make it longer, and not whole.
        if page.file.metadata()?.len() < BLOCK as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(page)
    }

    fn lock(&self, name: &str, page: &Page) -> io::Result<Option<Lock>> {
        let lock = loop {
            let lock = Locked::new(self.open_lock(name, page)?);
            if !lock.take()? {
                return Ok(None);
            }
            // Somebody may have removed it between the two, and made another.
            if !self.is_named(name, &lock.file)? {
                continue;
            }
            if self.has_writer(page)? {
                return Ok(None);
            }
            if lock.file.metadata()?.nlink() < 2 {
                break lock;
            }
            // A copy made by links is a log of its own.
            self.remove(name)?;
        };
        // A reader's lock may be in the way of this one.
        let locked_page = Locked::new(page.file.try_clone()?);
        let _ = locked_page.take();
        // A full disk may have no room for another name; then those who ask go by the other locks.
        let writer = self.make_mark(page).ok();
        Ok(Some(Lock { name: name.to_owned(), lock, _page: locked_page, _writer: writer }))
    }

    fn has_writer(&self, page: &Page) -> io::Result<bool> {
        if let Ok(mark) = self.open_regular(WRITER, OFlag::O_RDONLY) {
            if is_locked(&mark)? {
                return Ok(true);
            }
        }
        Ok(is_locked(&page.file)? || self.is_written()?)
    }

    fn is_in_place(&self, lock: &Lock, page_name: &str, page: &Page) -> io::Result<bool> {
        Ok(self.is_named(&lock.name, &lock.lock.file)?
            && self.has_page(page_name, page)?
            && page.is_whole()?)
    }

    fn has_page(&self, name: &str, page: &Page) -> io::Result<bool> {
        self.is_named(name, &page.file)
    }

    fn is_intact(&self, lock: &Lock, page: &Page) -> io::Result<bool> {
        Ok(size_if_named(&lock.lock.file)?.is_some() && page.is_whole()?)
    }

    fn modified(&self, name: &str) -> io::Result<SystemTime> {
        let about = self.look_at(name)?;
        let since = |seconds: i64| Duration::from_secs(seconds.unsigned_abs());
        let nanoseconds = Duration::from_nanos(about.st_mtime_nsec.unsigned_abs());
        let second = match about.st_mtime {
            before if before < 0 => SystemTime::UNIX_EPOCH.checked_sub(since(before)),
            after => SystemTime::UNIX_EPOCH.checked_add(since(after)),
        };
        let time = second.and_then(|second| second.checked_add(nanoseconds));
        time.ok_or_else(|| io::Error::other("its time is beyond all that there are"))
    }

    fn now(&self) -> SystemTime {
        SystemTime::now()
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
        let kind = statfs::fstatfs(&self.directory).map_or(0, |about| about.filesystem_type().0);
        let copies = Overwrites::Depends { usually: false };
        let (name, overwrites, shares_blocks) = match kind {
            // Shared since "ext4: start with shared i_rwsem in case of DIO instead of exclusive".
            0xEF53 if kernel_release().is_some_and(|release| release < (5, 6)) => {
                ("ext4", Overwrites::Alone, false)
            }
            0xEF53 => ("ext4", Overwrites::InPlace, false),
            0x5846_5342 => ("xfs", Overwrites::InPlace, true),
            0x9123_683E => ("btrfs", copies, true),
            0x2FC1_2FC1 => ("zfs", copies, true),
            0xCA45_1A4E => ("bcachefs", copies, true),
            0xF2F5_2010 => ("f2fs", copies, true),
            0x3434 => ("nilfs", copies, true),
            _ => ("this file system", Overwrites::Depends { usually: true }, true),
        };
        FileSystem { name: name.to_owned(), overwrites, shares_blocks }
    }
}

/// A name of the log's that something else has: a directory, a FIFO, a device, a link to elsewhere.
#[derive(Debug)]
pub(crate) struct NotAFile {
    is: &'static str,
}

impl fmt::Display for NotAFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is {}, not a file", self.is)
    }
}

impl Error for NotAFile {}

fn refuse_others(about: &FileStat) -> io::Result<()> {
    let is = match SFlag::from_bits_truncate(about.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => return Ok(()),
        SFlag::S_IFDIR => "a directory",
        SFlag::S_IFLNK => "a symbolic link",
        SFlag::S_IFIFO => "a FIFO",
        SFlag::S_IFSOCK => "a socket",
        _ => "a device",
    };
    Err(io::Error::other(NotAFile { is }))
}

/// The size of a file; none if it has no name any more.
///
/// Not `fstat`: who asks for a file's times makes the kernel note a new one at the next write, and that costs
/// more than the write.
fn size_if_named(file: &File) -> io::Result<Option<u64>> {
    let mut about = MaybeUninit::<libc::statx>::uninit();
    // SAFETY: an open file, an empty path that ends with a zero, and room for what the kernel answers.
    let answer = unsafe {
        let mask = libc::STATX_NLINK | libc::STATX_SIZE;
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, mask, about.as_mut_ptr())
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled in, as the call succeeded.
    let about = unsafe { about.assume_init() };
    Ok((about.stx_nlink > 0).then_some(about.stx_size))
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

/// Of the running kernel, the first two numbers.
fn kernel_release() -> Option<(u32, u32)> {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = text.split(|it: char| !it.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A request about a lock on a whole file.
fn whole_file(kind: c_int) -> libc::flock {
    // SAFETY: zeros are a valid value: from the file's beginning to its end.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock
}

/// Whether somebody has locked the file who may write it. Locks of those who only read do not count.
fn is_locked(file: &File) -> io::Result<bool> {
    let mut lock = whole_file(libc::F_RDLCK);
    while let Err(error) = fcntl::fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)) {
        if error != Errno::EINTR {
            return Err(error.into());
        }
    }
    Ok(c_int::from(lock.l_type) != libc::F_UNLCK)
}

/// A file that this process locks, for as long as this lives.
struct Locked {
    file: File,
    process: Process,
}

impl Locked {
    fn new(file: File) -> Locked {
        Locked { file, process: Process::current() }
    }

    /// False if somebody has it locked.
    fn take(&self) -> io::Result<bool> {
        loop {
            match fcntl::fcntl(&self.file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))) {
                Ok(_) => return Ok(true),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::EACCES) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // The file stays open, and the lock taken, in children that were forked meanwhile; those must not
        // end their parent's.
        if self.process.is_current() {
            let _ = fcntl::fcntl(&self.file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_UNLCK)));
        }
    }
}

/// What makes a process the one writer.
pub(crate) struct Lock {
    name: String,
    lock: Locked,
    _page: Locked,
    _writer: Option<Locked>,
}

/// A file without the page cache.
pub(crate) struct DiskFile(Locked);

impl DiskFile {
    fn of(file: File, writable: bool) -> DiskFile {
        let file = Locked::new(file);
        if writable {
            // See the head of this file.
            let _ = file.take();
        }
        DiskFile(file)
    }

    fn file(&self) -> &File {
        &self.0.file
    }

    /// Whether a writer has it open for writing.
    pub(crate) fn is_written(&self) -> io::Result<bool> {
        is_locked(self.file())
    }

    /// Makes this file one that shares all blocks of another, until one of them is changed; false where that
    /// cannot be done.
    pub(crate) fn share_blocks_of(&self, source: &DiskFile) -> bool {
        let (to, from) = (self.file().as_raw_fd(), source.file().as_raw_fd());
        // SAFETY: a request about two open files, which touches no memory.
        unsafe { libc::ioctl(to, libc::FICLONE, from) == 0 }
    }
}

impl StoredFile for DiskFile {
    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.file().read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // The end of the file is the only reason for half a block.
            if done % BLOCK != 0 {
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
            let at = (offset + done as u64) as i64;
            // SAFETY: one slice, from which the kernel only reads.
            let written = unsafe { libc::pwritev2(self.file().as_raw_fd(), &slice, 1, at, flags) };
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
        self.file().sync_data()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file().set_len(length)?;
        // The length itself, which `sync_data` brings along only where data depends on it.
        self.file().sync_all()
    }

    fn allocate(&self, length: u64) -> io::Result<bool> {
        loop {
            let length = length as i64;
            match fcntl::fallocate(self.file(), FallocateFlags::empty(), 0, length) {
                Ok(()) => return Ok(true),
                Err(Errno::EINTR) => {}
                Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn is_named(&self) -> io::Result<bool> {
        Ok(size_if_named(self.file())?.is_some())
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(self.file().metadata()?.nlink() > 1)
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
        let answer = unsafe { libc::ioctl(self.file().as_raw_fd(), EXTENTS_OF_FILE, &mut map) };
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

/// The control page: a file, and where its words are in memory, which is never looked at: only the kernel
/// uses the address, to know for what somebody waits.
pub(crate) struct Page {
    file: File,
    number: u64,
    address: NonNull<u32>,
}

// SAFETY: the address is only given to the kernel.
unsafe impl Send for Page {}
// SAFETY: the address is only given to the kernel.
unsafe impl Sync for Page {}

/// Keeps the times of files from meeting their numbers.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Page {
    fn of(file: File) -> io::Result<Page> {
        let size = NonZeroUsize::new(BLOCK).expect("not zero");
        let (access, flags) = (ProtFlags::PROT_READ, MapFlags::MAP_SHARED);
        // SAFETY: a new mapping, which overlaps no other.
        let mapped = unsafe { nix::sys::mman::mmap(None, size, access, flags, &file, 0) }?;
        let about = file.metadata()?;
        // Numbers of files are used again.
        let made = about.created().ok().and_then(|it| it.duration_since(UNIX_EPOCH).ok());
        let made = made.map_or(0, |it| it.as_nanos() as u64);
        let number = about.ino() ^ made.wrapping_mul(SPREAD);
        Ok(Page { file, number, address: mapped.cast() })
    }

    fn is_whole(&self) -> io::Result<bool> {
        Ok(size_if_named(&self.file)?.is_some_and(|size| size >= BLOCK as u64))
    }

    fn futex(&self, word: usize, operation: c_int, value: u32, timeout: *const libc::timespec) {
        // The lower half of a little-endian word; both halves start at multiples of four anyway.
        let address = self.address.as_ptr().wrapping_add(2 * word);
        // SAFETY: a system call that answers with an error if there is nothing at the address. Not a
        // private futex: other processes wait, too.
        unsafe { libc::syscall(libc::SYS_futex, address, operation, value, timeout) };
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped in `of`, and nobody borrows it.
        let unmapped = unsafe { nix::sys::mman::munmap(self.address.cast(), BLOCK) };
        debug_assert!(unmapped.is_ok());
    }
}

impl SharedPage for Page {
    fn load(&self) -> io::Result<Words> {
        let mut bytes = [0; PAGE_BYTES];
        self.file.read_exact_at(&mut bytes, 0)?;
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        Ok(words)
    }

    fn store(&self, word: usize, values: &[u64]) -> io::Result<()> {
        let mut bytes = [0; PAGE_BYTES];
        let bytes = &mut bytes[..values.len() * 8];
        for (bytes, value) in bytes.chunks_exact_mut(8).zip(values) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        self.file.write_all_at(bytes, word as u64 * 8)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() > 1)
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
