//! What a log asks of the system: a directory of files that take whole blocks, and a page of memory
//! that all processes share.
//!
//! Traits, so that tests can put a disk under a log that fills up, fails, and loses power. The real one
//! is `disk.rs`.

use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The words of a page.
pub(crate) type Page = [AtomicU64; 512];

/// Which run of the system's kernel this is.
pub(crate) type Boot = [u64; 2];

/// A log's directory. Names have no separators.
pub(crate) trait Storage: Send + Sync + 'static {
    type File: StoredFile;
    type Memory: SharedMemory;

    /// For messages.
    fn path(&self) -> &Path;
    /// The names of all files, in any order.
    fn names(&self) -> io::Result<Vec<String>>;
    /// A new empty file.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    fn open(&self, name: &str, writable: bool) -> io::Result<Self::File>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Unless there is one of that name.
    fn rename_new(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Brings names to the device: what was created, renamed and removed.
    fn sync_names(&self) -> io::Result<()>;
    /// Maps a file that is as long as a page.
    fn map(&self, name: &str, writable: bool) -> io::Result<Self::Memory>;
    /// Which run of the kernel this is: what it was told to write is not lost before the next.
    fn boot(&self) -> Boot;
    /// What is known about the file system without trying.
    fn filesystem(&self) -> FileSystem;
}

/// A file system, and what it is known to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSystem {
    pub(crate) name: String,
    pub(crate) overwrites: Overwrites,
}

/// What happens to blocks that are written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overwrites {
    /// They stay where they are, and others may read the file meanwhile.
    InPlace,
    /// The running kernel lets nobody use the file meanwhile.
    Alone,
    /// To be tried; what to believe where that says nothing.
    Depends { usually: bool },
}

/// A file of whole blocks. Offsets and lengths are multiples of a block, and so are the addresses.
pub(crate) trait StoredFile: Send + Sync + 'static {
    /// Less than asked for only at the end of the file.
    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    /// All or an error; `durable`: on the device when it returns.
    fn write(&self, bytes: &[u8], offset: u64, durable: bool) -> io::Result<()>;
    /// Brings to the device what was written.
    fn sync(&self) -> io::Result<()>;
    fn set_len(&self, length: u64) -> io::Result<()>;
    /// Makes room for so many bytes, and the file as long. False where that cannot be done ahead.
    fn allocate(&self, length: u64) -> io::Result<bool>;
    /// What holds the byte at this offset; none where the system does not say.
    fn extent(&self, offset: u64) -> io::Result<Option<Extent>>;
}

/// A piece of a file, from some offset on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The first offset that is no longer the same piece.
    pub(crate) end: u64,
    /// Whether blocks are there that were written, as opposed to a hole or to mere room.
    pub(crate) written: bool,
    /// Where on the device it is.
    pub(crate) physical: u64,
}

/// A page that all processes share that map it.
pub(crate) trait SharedMemory: Deref<Target = Page> + Send + Sync + 'static {
    /// Makes the caller the one writer, until this is dropped; false if there is one.
    fn lock(&self) -> io::Result<bool>;
    /// Whether somebody is the writer. Asking disturbs nobody who wants to become it.
    fn is_locked(&self) -> io::Result<bool>;
    /// Brings it to the device.
    fn sync(&self) -> io::Result<()>;
    /// Wakes all who wait for the lower half of this word to change.
    fn wake(&self, word: usize);
    /// Sleeps while the lower half of this word is `expected`. May return early for no reason.
    fn wait(&self, word: usize, expected: u32, timeout: Option<Duration>);
}
