//! What users see of a file: opening, offsets, and errors with the file's path. Who waits for whom is
//! `exclusion.rs`.

mod error;
mod exclusion;
#[cfg(test)]
mod explored;
#[cfg(test)]
mod faulty;
mod handle;
mod raw_file;
mod transfer;

use std::fmt;
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use fairlock::RangeLock;
use fairlock::range::RawRangeLock;

use self::error::Failure;
use self::exclusion::Exclusive;

pub use self::error::{AtomicFileError, Operation};
pub use self::handle::Handle;

type Result<T> = std::result::Result<T, AtomicFileError>;

/// A file that many threads use at once, each operation as if it were alone.
///
/// # Guarantees
/// Operations are linearizable: each takes effect at once, in some moment between its call and its
/// return. A read sees all of a write that overlaps it or nothing, also of one that makes the file
/// longer or shorter, whatever number of bytes they have.
///
/// | operation | waits for |
/// |---|---|
/// | read | writes that begin below the end and overlap what it asks for, and cuts of that |
/// | read from the end on, length | nobody |
/// | write below the end | what overlaps it: reads, writes, cuts |
/// | append, write beyond the end, growth | the system calls of changes of the length before it |
/// | write across the end | what overlaps it; then as an append |
/// | cut | reads, writes and cuts beyond the new length; then as an append |
/// | sync | nobody |
///
/// So reads share with reads, an append and reads do not wait for each other even where the read
/// reaches across the end, and operations that overlap nothing share nothing that a read writes. Nor
/// does an append wait for a cut, or a write across the end, that waits for a slow reader: it is
/// before them. A write beyond the end, or a growth, that finds others to have made the file longer
/// meanwhile is one below or across the end, or a cut, and waits as such.
///
/// Nobody is passed without bound: ranges are granted as [`RangeLock`] says, changes of the length as
/// [`Mutex`](fairlock::Mutex) says; [`set_len`](Self::set_len) says what that comes to for a cut.
///
/// This holds among those who use this one `AtomicFile`. It does not exclude other processes, mappings
/// of the file, or a second `AtomicFile` on the same file: nobody else may change the file meanwhile.
/// The child of a `fork` is another process, too. There, operations that other threads had under way at
/// the `fork` never end, and whoever waits for them waits for ever: open the file anew.
/// It says nothing about what is on the device after a crash: that is what
/// [`sync_data`](Self::sync_data) is for.
///
/// # Errors
/// An [`AtomicFileError`] says how many bytes were done. Interrupted and short calls are no errors: the
/// rest follows before anybody else is let in. An operation that fails is as atomic as others:
///
/// * a write that fails half way, on a full device for instance, is one of its first
///   [`bytes_done`](AtomicFileError::bytes_done) bytes;
/// * an append that fails has appended nothing, unless what it had written could not be removed either,
///   which `bytes_done` says;
/// * a range that ends beyond [`i64::MAX`] is refused, but a read may reach beyond: it is short;
/// * reading or writing no bytes succeeds everywhere, without a look at the file.
pub struct AtomicFile<L = RangeLock> {
    /// For messages.
    path: Option<PathBuf>,
    exclusive: Exclusive<File, L>,
}

impl AtomicFile {
    /// Opens a file that exists, to be read only.
    ///
    /// # Errors
    /// Those of open(2); [`InvalidInput`](ErrorKind::InvalidInput) for anything but a regular file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, OpenOptions::new().read(true))
    }

    /// Creates a file to be read and written, or empties the one that is there.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let mut options = OpenOptions::new();
        Self::open_with(path, options.read(true).write(true).create(true).truncate(true))
    }

    /// Opens a file as the options say.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`InvalidInput`](ErrorKind::InvalidInput) for
    /// [`append(true)`](OpenOptions::append): Linux then ignores the offsets of all writes.
    ///
    /// # Example
    /// ```
    /// use fairlock_io::AtomicFile;
    /// use std::fs::OpenOptions;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("log");
    /// let log = AtomicFile::open_with(&path, OpenOptions::new().write(true).create_new(true))?;
    /// assert_eq!(log.append(b"begin\n")?, 0);
    /// assert_eq!(log.append(b"end\n")?, 6);
    ///
    /// let error = AtomicFile::open_with(&path, OpenOptions::new().append(true)).unwrap_err();
    /// assert!(error.to_string().contains("use write(true)"), "{error}");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let path = path.as_ref();
        let opened = refuse_unless_regular(path).and_then(|()| options.open(path));
        match opened {
            Ok(file) => Self::of(file, Some(path.to_owned())),
            Err(source) => Err(cannot_use(Some(path), source)),
        }
    }

    /// Makes an atomic file of an open one, whose position does not matter.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with), of what the file was opened as.
    pub fn from_file(file: File) -> Result<Self> {
        Self::from_file_in(file)
    }
}

impl<R: RawRangeLock> AtomicFile<RangeLock<R>> {
    /// As [`from_file`](AtomicFile::from_file), with a lock of any kind.
    ///
    /// # Errors
    /// As there.
    pub fn from_file_in(file: File) -> Result<Self> {
        let path = path_of(&file);
        Self::of(file, path)
    }

    fn of(file: File, path: Option<PathBuf>) -> Result<Self> {
        let usable = file.metadata().and_then(|metadata| refuse_kind(metadata.file_type()));
        let usable = usable.and_then(|()| refuse_append_mode(&file));
        match usable.and_then(|()| Exclusive::new(file)) {
            Ok(exclusive) => Ok(AtomicFile { path, exclusive }),
            Err(source) => Err(cannot_use(path.as_deref(), source)),
        }
    }

    /// Reads what is there from `offset` on; how many bytes that was. Fewer than fit only if the file
    /// ends there.
    ///
    /// What follows them in the buffer may have changed.
    ///
    /// # Errors
    /// Those of pread(2).
    #[inline]
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let size = buffer.len();
        self.exclusive
            .read(buffer, offset)
            .map_err(|failure| self.error(Operation::Read, failure, size))
    }

    /// Fills the buffer. After an error nothing is promised of what is in it.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at), and [`UnexpectedEof`](ErrorKind::UnexpectedEof) if the file ends
    /// before.
    #[inline]
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        match self.read_at(buffer, offset)? {
            done if done == buffer.len() => Ok(()),
            done => Err(self.ends_before(offset, done, buffer.len())),
        }
    }

    /// As [`read_at`](Self::read_at), filling one buffer after the other; any number of them.
    ///
    /// # Errors
    /// As there.
    pub fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        self.exclusive
            .read(buffers, offset)
            .map_err(|failure| self.error(Operation::Read, failure, size_of_all(buffers)))
    }

    /// Fills one buffer after the other, any number of them, by one read. After an error nothing is
    /// promised of what is in any of them.
    ///
    /// # Errors
    /// As [`read_exact_at`](Self::read_exact_at).
    ///
    /// # Example
    /// ```
    /// use fairlock_io::AtomicFile;
    /// use std::io::{ErrorKind, IoSliceMut};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("record");
    /// let file = AtomicFile::create(path)?;
    /// file.append(b"headbody")?;
    ///
    /// let (mut head, mut body) = ([0; 4], [0; 4]);
    /// let mut buffers = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut body)];
    /// file.read_exact_vectored_at(&mut buffers, 0)?;
    /// let error = file.read_exact_vectored_at(&mut buffers, 1).unwrap_err();
    /// assert_eq!((error.kind(), error.bytes_done()), (ErrorKind::UnexpectedEof, 7));
    ///
    /// file.read_exact_vectored_at(&mut buffers, 0)?;
    /// assert_eq!((&head, &body), (b"head", b"body"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_exact_vectored_at(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> Result<()> {
        let size = size_of_all(buffers);
        match self.read_vectored_at(buffers, offset)? {
            done if done == size => Ok(()),
            done => Err(self.ends_before(offset, done, size)),
        }
    }

    /// Writes all bytes, beginning at `offset`. A gap between the end and `offset` is filled with zeros.
    ///
    /// # Errors
    /// Those of pwrite(2); [type](Self#errors) says what the file is then.
    #[inline]
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.exclusive
            .write(bytes, offset)
            .map_err(|failure| self.error(Operation::Write, failure, bytes.len()))
    }

    /// As [`write_all_at`](Self::write_all_at), one slice after the other; any number of them, as one
    /// write.
    ///
    /// # Errors
    /// As there.
    pub fn write_all_vectored_at(&self, slices: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.exclusive
            .write(slices, offset)
            .map_err(|failure| self.error(Operation::Write, failure, size_of_all(slices)))
    }

    /// Writes all bytes at the end and says where that was. Appends of several threads follow each
    /// other without a gap.
    ///
    /// It waits for the system calls of other changes of the length, as it goes where they leave the end,
    /// and for nothing that those wait for. What is appended while a [cut](Self::set_len) waits for
    /// readers comes before the cut, which removes it.
    ///
    /// # Errors
    /// Those of pwrite(2). Then nothing was appended: see the [type](Self#errors).
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.exclusive
            .append(bytes)
            .map_err(|failure| self.error(Operation::Append, failure, bytes.len()))
    }

    /// As [`append`](Self::append), one slice after the other; any number of them, as one append.
    ///
    /// # Errors
    /// As there.
    pub fn append_vectored(&self, slices: &[IoSlice<'_>]) -> Result<u64> {
        self.exclusive
            .append(slices)
            .map_err(|failure| self.error(Operation::Append, failure, size_of_all(slices)))
    }

    /// Cuts the file, or lets it grow by zeros.
    ///
    /// A cut waits for the reads, writes and cuts beyond the new length that were there before it. Later ones
    /// pass it until it has waited for 4 ms, as [`RangeLock`] says. From then on they wait behind it, and it is
    /// passed at most once for each of the writes and cuts before it, by reads that wait then. Appends go on
    /// meanwhile: they come before the cut, which removes what they append. Then it takes its place among the
    /// changes of the length: it waits for those that came there first; later ones pass it only until it has
    /// waited for 4 ms, as [`Mutex`](fairlock::Mutex) says, however many appends there are. Last comes its own
    /// system call. Appends have to wait for that one: they go where the file ends, which it decides.
    ///
    /// # Errors
    /// Those of ftruncate(2).
    pub fn set_len(&self, length: u64) -> Result<()> {
        self.exclusive.set_len(length).map_err(|failure| self.error(Operation::SetLen, failure, 0))
    }

    /// How many bytes the file has: one load.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "files have none in std either")]
    pub fn len(&self) -> u64 {
        self.exclusive.len()
    }

    /// Brings to the device what operations that have returned wrote, and all that is known about the
    /// file.
    ///
    /// # Errors
    /// Those of fsync(2). Linux reports a failed write to the device once, and may have dropped what
    /// was to be written: a later success does not mean that it is there.
    pub fn sync_all(&self) -> Result<()> {
        self.file().sync_all().map_err(|source| self.cannot_sync(source))
    }

    /// Brings to the device what operations that have returned wrote, and its length.
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all), of fdatasync(2).
    pub fn sync_data(&self) -> Result<()> {
        self.file().sync_data().map_err(|source| self.cannot_sync(source))
    }

    /// A place in this file, at its beginning: reads and writes move it.
    ///
    /// For one that owns its part of the file see [`Handle::new`].
    pub fn handle(&self) -> Handle<&Self> {
        Handle::new(self)
    }

    #[cold]
    fn ends_before(&self, offset: u64, done: usize, size: usize) -> AtomicFileError {
        let source = io::Error::new(ErrorKind::UnexpectedEof, "the file ends before");
        self.error(Operation::Read, Failure { offset, done, source }, size)
    }

    #[cold]
    fn cannot_sync(&self, source: io::Error) -> AtomicFileError {
        self.error(Operation::Sync, Failure { offset: 0, done: 0, source }, 0)
    }

    #[cold]
    fn error(&self, operation: Operation, failure: Failure, size: usize) -> AtomicFileError {
        AtomicFileError::new(operation, self.path(), failure, size as u64)
    }
}

impl<L> AtomicFile<L> {
    /// The path that it was opened by, or that the file it was made of had then; none if that had none.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The file below, for its metadata, its permissions, or advice to the kernel. What reads or writes
    /// by it is not atomic, and what changes its length breaks this one.
    pub fn file(&self) -> &File {
        self.exclusive.file()
    }

    /// The file below.
    pub fn into_file(self) -> File {
        self.exclusive.into_file()
    }
}

impl<L> fmt::Debug for AtomicFile<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicFile")
            .field("path", &self.path)
            .field("len", &self.exclusive.len())
            .finish_non_exhaustive()
    }
}

/// Of what was written, or for a message: what is no number does not matter there.
pub(crate) fn size_of_all<S: std::ops::Deref<Target = [u8]>>(slices: &[S]) -> usize {
    slices.iter().fold(0, |size: usize, slice| size.saturating_add(slice.len()))
}

#[cold]
fn cannot_use(path: Option<&Path>, source: io::Error) -> AtomicFileError {
    AtomicFileError::new(Operation::Open, path, Failure { offset: 0, done: 0, source }, 0)
}

/// None of a file that has no name any more, or never had one: the kernel makes one up.
fn path_of(file: &File) -> Option<PathBuf> {
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let (named, opened) = (fs::metadata(&path).ok()?, file.metadata().ok()?);
    ((named.dev(), named.ino()) == (opened.dev(), opened.ino())).then_some(path)
}

/// Before it is opened: a pipe would wait for its other end, a terminal might become ours.
fn refuse_unless_regular(path: &Path) -> io::Result<()> {
    // Whatever else is wrong with the path, opening it says so.
    fs::metadata(path).map_or(Ok(()), |metadata| refuse_kind(metadata.file_type()))
}

fn refuse_kind(kind: FileType) -> io::Result<()> {
    let name = match kind {
        _ if kind.is_file() => return Ok(()),
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_socket() => "a socket",
        _ if kind.is_char_device() => "a character device, as terminals are",
        _ if kind.is_block_device() => "a block device",
        _ => "of an unknown kind",
    };
    let message = format!("it is {name}: only regular files have offsets and a length to set");
    Err(io::Error::new(ErrorKind::InvalidInput, message))
}

fn refuse_append_mode(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open, and this call takes no pointer.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    if flags == -1 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::O_APPEND == 0 {
        return Ok(());
    }
    let message = "it is open for appending, where Linux ignores the offsets of writes: use write(true) \
                   instead of append(true), and AtomicFile::append";
    Err(io::Error::new(ErrorKind::InvalidInput, message))
}
