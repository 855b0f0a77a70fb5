//! What a log asks of the system: a directory of files that take whole blocks, a page that all processes
//! see, and a lock.
//!
//! Traits, so that tests can put a disk under a log that fills up, fails, and loses power. The real one
//! is `disk.rs`.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The words of the control page, all that are used.
pub(crate) const WORDS: usize = 64;
pub(crate) type Words = [u64; WORDS];

/// Which run of the system's kernel this is.
pub(crate) type Boot = [u64; 2];

/// A log's directory, wherever it is moved. Names have no separators.
pub(crate) trait Storage: Send + Sync + 'static {
    type File: StoredFile;
    type Page: SharedPage;
    /// Held by the one writer. It ends when this is dropped.
    type Lock: Send + Sync;

    /// Where it was when it was opened, for messages.
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
    /// Waits until the room of files that were removed can be used again.
    fn free_what_was_removed(&self) -> io::Result<()>;
    /// Brings the directory's own name to the device.
    fn sync_own_name(&self) -> io::Result<()>;
    fn page(&self, name: &str, writable: bool) -> io::Result<Self::Page>;
    /// Makes the caller the one writer of the log that has this page; none if there is one.
    fn lock(&self, name: &str, page: &Self::Page) -> io::Result<Option<Self::Lock>>;
    /// Whether a writer has the log open that has this page. To ask disturbs nobody who wants to become the
    /// writer.
    fn has_writer(&self, page: &Self::Page) -> io::Result<bool>;
    /// Whether the files that were locked, and the page, are still what is found under their names.
    fn is_in_place(
        &self,
        lock: &Self::Lock,
        page_name: &str,
        page: &Self::Page,
    ) -> io::Result<bool>;
    /// Whether a page is still what is found under this name.
    fn has_page(&self, name: &str, page: &Self::Page) -> io::Result<bool>;
    /// Whether they are still files of some directory, and the page whole: less than the question before, but
    /// quick enough to be asked at every append.
    fn is_intact(&self, lock: &Self::Lock, page: &Self::Page) -> io::Result<bool>;
    /// When a file was last written, or made longer or shorter.
    fn modified(&self, name: &str) -> io::Result<SystemTime>;
    /// The time, as files have it.
    fn now(&self) -> SystemTime;
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
    /// Files may share blocks, so that to overwrite one can need a new one.
    pub(crate) shares_blocks: bool,
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
    /// Whether it still has a name.
    fn is_named(&self) -> io::Result<bool>;
    /// Whether it has other names, as in a copy that was made by links: then it must not be changed.
    fn is_linked(&self) -> io::Result<bool>;
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

/// The first words of a file, which all processes see.
///
/// They are read and written by system calls, not through memory: a page that was cut off by others, or for
/// which a file system has no room, is an error then, not a signal.
pub(crate) trait SharedPage: Send + Sync + 'static {
    /// All words as they are now. A file that is too short is an unexpected end.
    fn load(&self) -> io::Result<Words>;
    /// Stores words that follow each other, all or none. Who reads some of them meanwhile may see a part.
    fn store(&self, word: usize, values: &[u64]) -> io::Result<()>;
    /// Brings it to the device.
    fn sync(&self) -> io::Result<()>;
    /// Which file it is: a copy is another one.
    fn number(&self) -> u64;
    /// Whether it has other names, as in a copy that was made by links.
    fn is_linked(&self) -> io::Result<bool>;
    /// Wakes all who wait for the lower half of this word to change.
    fn wake(&self, word: usize);
    /// Sleeps while the lower half of this word is `expected`. May return early for no reason.
    fn wait(&self, word: usize, expected: u32, timeout: Option<Duration>);
}
