//! The page that a log's writer shares with its readers, in this process and in others: how far the log
//! is committed, and what the next writer should know.
//!
//! It is the file `control`, mapped. Readers map it read-only, so none of them can harm the log. The writer
//! stores the committed position with a single store, then counts the commit in a word on which
//! readers sleep: who reads the count, then the position, and sleeps only while the count is what it was,
//! misses nothing.
//!
//! What matters after a crash is stored together with a check, in one word where there is room: positions
//! of batches are multiples of 4096, so their lower bits are free. A crash of the process loses nothing of
//! the page, as the kernel has it; a crash of the kernel may leave any earlier state.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use crc32c::crc32c;

use super::blocks::Blocks;
use super::error::{LogError, LogErrorKind};
use super::format::{BLOCK, Identity, Layout, VERSION};
use super::storage::{Boot, SharedMemory, Storage, StoredFile};

pub(crate) const NAME: &str = "control";
/// While it is made; a number of its own is between: two processes may make a log at once.
const WHILE_NEW: [&str; 2] = ["control-", ".new"];

const MAGIC: u64 = u64::from_le_bytes(*b"fairlogC");
const CHECK_BITS: u64 = BLOCK as u64 - 1;

// What never changes.
const WORD_MAGIC: usize = 0;
/// The version below, the check of this and the following words above.
const WORD_VERSION: usize = 1;
const WORD_SEGMENT_BYTES: usize = 2;
const WORD_IDENTITY: usize = 3;
// A line of what changes with each commit.
const WORD_COMMITTED: usize = 8;
const WORD_COMMITS: usize = 9;
// The rest.
const WORD_DURABLE: usize = 16;
/// Twice, each with a check behind it: a crash may come between.
const WORDS_FIRST: [usize; 2] = [17, 24];
const WORD_CLOSED: usize = 19;
const WORD_EPOCH: usize = 20;
const WORD_BOOT: usize = 21;
const WORD_PROCESS: usize = 23;
const WORD_PREWRITING: usize = 26;

/// A log's control page.
pub(crate) struct Control<M> {
    memory: M,
    layout: Layout,
}

impl<M: SharedMemory> Control<M> {
    /// Makes the page of a log that begins empty.
    pub(crate) fn create<S: Storage<Memory = M>>(
        storage: &S,
        layout: Layout,
        first: u64,
    ) -> io::Result<()> {
        let mut page = Blocks::zeroed(BLOCK);
        let mut put = |word: usize, value: u64| {
            page[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
        };
        put(WORD_MAGIC, MAGIC);
        put(WORD_SEGMENT_BYTES, layout.segment_bytes);
        let [low, high] = halves(&layout.identity);
        put(WORD_IDENTITY, low);
        put(WORD_IDENTITY + 1, high);
        put(WORD_VERSION, version_word(&layout));
        for word in WORDS_FIRST {
            put(word, first);
            put(word + 1, check(&layout.identity, word, first));
        }
        let [begin, end] = WHILE_NEW;
        let name = format!("{begin}{low:016x}{end}");
        let file = storage.create(&name)?;
        file.write(&page, 0, true)?;
        file.sync()?;
        match storage.rename_new(&name, NAME) {
            // Another was faster, and may have removed this.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound
                ) => {}
            renamed => renamed?,
        }
        storage.sync_names()
    }

    /// Removes what crashes have left of pages that were to be made.
    pub(crate) fn remove_unfinished<S: Storage>(storage: &S) -> io::Result<()> {
        let [begin, end] = WHILE_NEW;
        for name in storage.names()? {
            if name.starts_with(begin) && name.ends_with(end) {
                match storage.remove(&name) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    pub(crate) fn open<S: Storage<Memory = M>>(
        storage: &S,
        writable: bool,
    ) -> Result<Control<M>, LogError> {
        let path = storage.path().join(NAME);
        let memory = match storage.map(NAME, writable) {
            Ok(memory) => memory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(LogError::new(LogErrorKind::NotALog, storage.path()));
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(LogError::new(LogErrorKind::NotALog, &path));
            }
            Err(error) => return Err(LogError::system("map its control page", &path, error)),
        };
        let word = |at: usize| memory[at].load(Relaxed);
        if word(WORD_MAGIC) != MAGIC {
            return Err(LogError::new(LogErrorKind::NotALog, &path));
        }
        let found = word(WORD_VERSION) as u32;
        if found > VERSION {
            let newer = LogErrorKind::NewerVersion { found, supported: VERSION };
            return Err(LogError::new(newer, &path));
        }
        let mut identity = Identity::default();
        identity[..8].copy_from_slice(&word(WORD_IDENTITY).to_le_bytes());
        identity[8..].copy_from_slice(&word(WORD_IDENTITY + 1).to_le_bytes());
        let layout = Layout { identity, segment_bytes: word(WORD_SEGMENT_BYTES) };
        if word(WORD_VERSION) != version_word(&layout) {
            let position = super::position::Position::START;
            let damaged = LogErrorKind::Damaged { position, what: "the control page" };
            return Err(LogError::new(damaged, &path));
        }
        Ok(Control { memory, layout })
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Makes the caller the one writer; false if there is one.
    pub(crate) fn lock(&self) -> io::Result<bool> {
        self.memory.lock()
    }

    /// Whether there is a writer, in this process or in another.
    pub(crate) fn is_locked(&self) -> io::Result<bool> {
        self.memory.is_locked()
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.memory.sync()
    }

    /// Where the committed part ends; none if that is not known.
    pub(crate) fn committed(&self) -> Option<u64> {
        // Acquire pairs with the Release in `commit`.
        self.checked(WORD_COMMITTED, self.memory[WORD_COMMITTED].load(Acquire))
    }

    /// Lets everybody see that the log is committed up to here.
    pub(crate) fn commit(&self, end: u64) {
        // Release: who sees the position sees what was written before.
        self.memory[WORD_COMMITTED].store(self.sealed(WORD_COMMITTED, end), Release);
        let commits = self.memory[WORD_COMMITS].load(Relaxed) as u32;
        // Release pairs with the Acquire in `commits`: who sees this count sees the position.
        self.memory[WORD_COMMITS].store(u64::from(commits.wrapping_add(1)), Release);
        self.memory.wake(WORD_COMMITS);
    }

    /// How often something was committed: to be read before [`committed`](Self::committed) by who then
    /// [waits](Self::wait).
    pub(crate) fn commits(&self) -> u32 {
        self.memory[WORD_COMMITS].load(Acquire) as u32
    }

    /// Sleeps until more is committed than when `commits` was read, or until the deadline. May return
    /// early for no reason.
    pub(crate) fn wait(&self, commits: u32, deadline: Option<Instant>) {
        let timeout: Option<Duration> =
            deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.memory.wait(WORD_COMMITS, commits, timeout);
    }

    /// Wakes all who wait though nothing was committed. Readers may: it changes nothing.
    pub(crate) fn wake(&self) {
        self.memory.wake(WORD_COMMITS);
    }

    /// All below this was on the device at some time; none if nothing is known.
    pub(crate) fn durable(&self) -> Option<u64> {
        self.checked(WORD_DURABLE, self.memory[WORD_DURABLE].load(Acquire))
    }

    pub(crate) fn set_durable(&self, end: u64) {
        self.memory[WORD_DURABLE].store(self.sealed(WORD_DURABLE, end), Release);
    }

    /// Where the log was closed, if it was and was not opened since.
    pub(crate) fn closed(&self) -> Option<u64> {
        self.checked(WORD_CLOSED, self.memory[WORD_CLOSED].load(Acquire))
    }

    pub(crate) fn set_closed(&self, end: Option<u64>) {
        let word = end.map_or(0, |end| self.sealed(WORD_CLOSED, end));
        self.memory[WORD_CLOSED].store(word, Release);
    }

    /// The first position that was not given up; none if the page is damaged.
    pub(crate) fn first(&self) -> Option<u64> {
        let at = |word: usize| {
            let first = self.memory[word].load(Acquire);
            let expected = check(&self.layout.identity, word, first);
            (self.memory[word + 1].load(Acquire) == expected).then_some(first)
        };
        // At any moment one of them is whole, but a writer may be faster than this.
        (0..4).find_map(|_| WORDS_FIRST.into_iter().filter_map(at).max())
    }

    pub(crate) fn set_first(&self, first: u64) {
        for word in WORDS_FIRST {
            self.memory[word].store(first, Release);
            self.memory[word + 1].store(check(&self.layout.identity, word, first), Release);
        }
    }

    /// Of the latest opening for writing.
    pub(crate) fn epoch(&self) -> u32 {
        self.memory[WORD_EPOCH].load(Acquire) as u32
    }

    /// The run of the kernel in which it was last opened for writing.
    pub(crate) fn boot(&self) -> Boot {
        [self.memory[WORD_BOOT].load(Acquire), self.memory[WORD_BOOT + 1].load(Acquire)]
    }

    /// The process that has it open for writing, or had.
    pub(crate) fn process(&self) -> u32 {
        self.memory[WORD_PROCESS].load(Acquire) as u32
    }

    /// Notes who opened it for writing.
    pub(crate) fn set_opening(&self, epoch: u32, boot: Boot, process: u32) {
        self.memory[WORD_EPOCH].store(u64::from(epoch), Release);
        self.memory[WORD_BOOT].store(boot[0], Release);
        self.memory[WORD_BOOT + 1].store(boot[1], Release);
        self.memory[WORD_PROCESS].store(u64::from(process), Release);
    }

    /// What the latest writer found about prewriting, as a number of `prewriting.rs`.
    pub(crate) fn prewriting(&self) -> u64 {
        self.memory[WORD_PREWRITING].load(Acquire)
    }

    pub(crate) fn set_prewriting(&self, number: u64) {
        self.memory[WORD_PREWRITING].store(number, Release);
    }

    fn sealed(&self, word: usize, position: u64) -> u64 {
        debug_assert_eq!(position & CHECK_BITS, 0);
        position | (check(&self.layout.identity, word, position) & CHECK_BITS) | 1
    }

    fn checked(&self, word: usize, value: u64) -> Option<u64> {
        let position = value & !CHECK_BITS;
        (self.sealed(word, position) == value).then_some(position)
    }
}

fn halves(identity: &Identity) -> [u64; 2] {
    let half = |at: usize| u64::from_le_bytes(identity[at..at + 8].try_into().expect("eight"));
    [half(0), half(8)]
}

fn version_word(layout: &Layout) -> u64 {
    let check = check(&layout.identity, WORD_VERSION, layout.segment_bytes);
    u64::from(VERSION) | check << 32
}

fn check(identity: &Identity, word: usize, value: u64) -> u64 {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(identity);
    bytes[16..24].copy_from_slice(&(word as u64).to_le_bytes());
    bytes[24..].copy_from_slice(&value.to_le_bytes());
    u64::from(crc32c(&bytes))
}
