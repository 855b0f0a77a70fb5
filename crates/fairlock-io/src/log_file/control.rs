//! The page that a log's writer shares with its readers, in this process and in others: how far the log
//! is committed, and what the next writer should know.
//!
//! It is the file `control`. The writer stores the committed position together with the count of commits;
//! readers sleep on that count. A reader that reads both, and sleeps only while the count has not changed,
//! misses no commit.
//!
//! Every field is followed by a check, and both are stored together. A reader that looks meanwhile may see a
//! mixture of old and new, and looks again. A crash of the process loses nothing of the page, as the kernel has it; a
//! crash of the kernel may leave any earlier state of each field.
//!
//! In version 1 of the format the page was mapped, and its fields were stored one word at a time. Such a page
//! is read as it is, and replaced when the log is next opened for writing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::{Duration, Instant};

use crc32c::crc32c;
use fairlock::Mutex;

use super::blocks::Blocks;
use super::cutting::{Cut, Cuts};
use super::error::{LogError, LogErrorKind};
use super::format::{BLOCK, FIRST_BATCH, Identity, Layout, POSITIONS, RECORD_ALIGNMENT, VERSION};
use super::position::Position;
use super::storage::{Boot, SharedPage, Storage, StoredFile, WORDS, Words};

pub(crate) const NAME: &str = "control";
/// What the writer has locked.
pub(crate) const LOCK: &str = "lock";
/// While it is made; a number of its own is between: two processes may make a log at once.
const WHILE_NEW: [&str; 2] = ["control-", ".new"];

const MAGIC: u64 = u64::from_le_bytes(*b"fairlogC");
/// In the place of the magic while a checkpoint is made: until a page of the log's own replaces this one, what is
/// in the directory opens as nothing, whoever dies meanwhile.
const MAGIC_UNFINISHED: u64 = u64::from_le_bytes(*b"fairlogU");

// What never changes.
const WORD_MAGIC: usize = 0;
/// The version below, the check of this and the following words above.
const WORD_VERSION: usize = 1;
const WORD_SEGMENT_BYTES: usize = 2;
const WORD_IDENTITY: usize = 3;
/// What changes with each commit, stored together.
const WORD_COMMITTED: usize = 8;
/// The count of changes below, the check of both words above.
const WORD_COMMITS: usize = 9;

/// A field: where its words are, its check last.
#[derive(Debug, Clone, Copy)]
struct Field {
    word: usize,
}

/// With the commits.
const DURABLE: Field = Field { word: 10 };
/// Twice: a crash of the kernel may come while one of them is stored, and what was given up must not return.
const FIRST: [Field; 2] = [Field { word: 18 }, Field { word: 24 }];
const CLOSED: Field = Field { word: 20 };
const EPOCH: Field = Field { word: 22 };
const BOOT: Field = Field { word: 32 };
const PROCESS: Field = Field { word: 36 };
const PREWRITING: Field = Field { word: 40 };
/// Which of the logs that began alike.
const LINEAGE: Field = Field { word: 38 };
/// Whether readers may have seen what the loss of power takes.
const SHOWN: Field = Field { word: 42 };
/// Which file this was when the log was opened for writing: a copy is another.
const NUMBER: Field = Field { word: 44 };
/// In place of that for a page that is put in the place of a copy's.
const OF_ANOTHER: u64 = 0;

/// What was cut off.
const CUTS: Field = Field { word: 48 };

/// For a position that is not known: no batch ends there.
const NONE: u64 = u64::MAX;

/// How often a page is looked at that is being stored into.
const LOOKS: u32 = 100;

/// A log's control page, as those see it who do not write the log.
pub(crate) struct Control<P> {
    page: P,
    path: PathBuf,
    layout: Layout,
    version: u32,
}

/// What the page says at some moment. What is none is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// How often something was committed, or became durable.
    pub(crate) commits: u32,
    /// Where the committed part ends.
    pub(crate) committed: Option<u64>,
    /// All below this was on the device at some time.
    pub(crate) durable: Option<u64>,
    /// The first position that was not given up.
    pub(crate) first: Option<u64>,
    /// Where the log was closed, if it was and was not opened since.
    pub(crate) closed: Option<u64>,
    /// Of the latest opening for writing.
    pub(crate) epoch: Option<u32>,
    /// The run of the kernel in which it was last opened for writing.
    pub(crate) boot: Option<Boot>,
    /// The process that has it open for writing, or had.
    pub(crate) process: Option<u32>,
    /// What the latest writer found about prewriting, as a number of `prewriting.rs`.
    pub(crate) prewriting: u64,
    /// Which of the logs that began alike this is: a number that a copy gets when it is first opened for writing;
    /// 0 for one that was not copied.
    pub(crate) lineage: u64,
    /// Whether the latest writer let readers see what was not yet on the device.
    pub(crate) shown: Option<bool>,
    /// Whether this is a copy of the page that the latest writer had.
    pub(crate) is_copy: bool,
    /// What was cut off.
    pub(crate) cuts: Option<Cuts>,
}

impl Look {
    /// What no writer has stored, though its check is right.
    fn impossible(&self) -> Option<&'static str> {
        let is_place = |place: Option<u64>, alignment: usize| {
            place.is_none_or(|place| place < POSITIONS && place % (alignment as u64) == 0)
        };
        let wrong = [
            (self.committed, BLOCK, IMPOSSIBLE_COMMITTED),
            (self.durable, BLOCK, IMPOSSIBLE_DURABLE),
            (self.closed, BLOCK, IMPOSSIBLE_CLOSED),
            (self.first, RECORD_ALIGNMENT, IMPOSSIBLE_FIRST),
        ]
        .into_iter()
        .find(|&(place, alignment, _)| !is_place(place, alignment));
        let is_cut = self.cut().is_none_or(|cut| cut.is_possible());
        wrong.map(|(.., what)| what).or((!is_cut).then_some(IMPOSSIBLE_CUT))
    }

    /// What is no part of the log any more, though it may not yet be covered.
    pub(crate) fn cut(&self) -> Option<Cut> {
        self.cuts.and_then(|cuts| cuts.pending())
    }

    /// Without what is impossible.
    fn forget(&mut self, impossible: &'static str) {
        match impossible {
            IMPOSSIBLE_COMMITTED => self.committed = None,
            IMPOSSIBLE_DURABLE => self.durable = None,
            IMPOSSIBLE_CLOSED => self.closed = None,
            IMPOSSIBLE_CUT => self.cuts = None,
            _ => self.first = None,
        }
    }
}

const IMPOSSIBLE_COMMITTED: &str = "the committed position in the control page";
const IMPOSSIBLE_DURABLE: &str = "the durable position in the control page";
const IMPOSSIBLE_CLOSED: &str = "the position of the close in the control page";
const IMPOSSIBLE_FIRST: &str = "the first position in the control page";
pub(crate) const IMPOSSIBLE_CUT: &str = "the cut in the control page";

impl<P: SharedPage> Control<P> {
    /// Makes the page of a log that has none.
    pub(crate) fn create<S: Storage<Page = P>>(
        storage: &S,
        layout: Layout,
        first: u64,
        lineage: u64,
    ) -> io::Result<()> {
        let mut words = new_page(&layout);
        LINEAGE.put(&layout.identity, &mut words, &[lineage]);
        for field in FIRST {
            field.put(&layout.identity, &mut words, &[first]);
        }
        let name = write_new(storage, &layout, &words)?;
        match storage.rename_new(&name, NAME) {
            // Another was faster, and may have removed this.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound
                ) => {}
            renamed => renamed?,
        }
        storage.sync_names()?;
        storage.sync_own_name()
    }

    /// Puts a page of this version in the place of an earlier one, which says this. Only for the writer.
    pub(crate) fn replace<S: Storage<Page = P>>(
        storage: &S,
        layout: Layout,
        look: &Look,
    ) -> io::Result<()> {
        let mut words = new_page(&layout);
        let identity = &layout.identity;
        let mut put = |field: Field, value: Option<&[u64]>| {
            if let Some(value) = value {
                field.put(identity, &mut words, value);
            }
        };
        put(DURABLE, look.durable.as_ref().map(std::slice::from_ref));
        put(CLOSED, look.closed.as_ref().map(std::slice::from_ref));
        put(BOOT, look.boot.as_ref().map(<[u64; 2]>::as_slice));
        put(LINEAGE, Some(&[look.lineage]));
        if look.is_copy {
            put(NUMBER, Some(&[OF_ANOTHER]));
        }
        put(CUTS, Some(&look.cuts.unwrap_or_default().to_words()));
        put(EPOCH, look.epoch.map(u64::from).as_ref().map(std::slice::from_ref));
        for field in FIRST {
            put(field, look.first.as_ref().map(std::slice::from_ref));
        }
        if let Some(committed) = look.committed {
            let commit = commit_words(identity, committed, look.commits);
            words[WORD_COMMITTED..][..2].copy_from_slice(&commit);
        }
        let name = write_new(storage, &layout, &words)?;
        storage.rename(&name, NAME)?;
        storage.sync_names()
    }

    /// Makes the page of a checkpoint that is being made. [`replace`](Self::replace) finishes it.
    pub(crate) fn begin_checkpoint<S: Storage<Page = P>>(
        storage: &S,
        layout: &Layout,
    ) -> io::Result<()> {
        let mut words = [0; WORDS];
        words[WORD_MAGIC] = MAGIC_UNFINISHED;
        let name = write_new(storage, layout, &words)?;
        storage.rename_new(&name, NAME).inspect_err(|_| {
            // It would be in the way of who was faster.
            let _ = storage.remove(&name);
        })?;
        // Before any segment: segments alone are a log that has lost its page.
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

    pub(crate) fn open<S: Storage<Page = P>>(
        storage: &S,
        writable: bool,
    ) -> Result<Control<P>, LogError> {
        let path = storage.path().join(NAME);
        let page = match storage.page(NAME, writable) {
            Ok(page) => page,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(LogError::new(LogErrorKind::NotALog, storage.path()));
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(damaged(&path, "the control page"));
            }
            Err(error) => return Err(LogError::system("open", &path, error)),
        };
        let words = match page.load() {
            Ok(words) => words,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(damaged(&path, "the control page"));
            }
            Err(error) => return Err(LogError::system("read", &path, error)),
        };
        if words[WORD_MAGIC] == MAGIC_UNFINISHED {
            return Err(LogError::new(LogErrorKind::UnfinishedCheckpoint, storage.path()));
        }
        if words[WORD_MAGIC] != MAGIC {
            return Err(damaged(&path, "the control page"));
        }
        let version = words[WORD_VERSION] as u32;
        let mut identity = Identity::default();
        identity[..8].copy_from_slice(&words[WORD_IDENTITY].to_le_bytes());
        identity[8..].copy_from_slice(&words[WORD_IDENTITY + 1].to_le_bytes());
        let segment_bytes = words[WORD_SEGMENT_BYTES];
        let word = version_word(version, &Layout { identity, segment_bytes });
        if version == 0 || words[WORD_VERSION] != word {
            return Err(damaged(&path, "the control page"));
        }
        if version > VERSION {
            let newer = LogErrorKind::NewerVersion { found: version, supported: VERSION };
            return Err(LogError::new(newer, &path));
        }
        let Some(layout) = Layout::checked(identity, segment_bytes) else {
            return Err(damaged(&path, "the size of segments in the control page"));
        };
        Ok(Control { page, path, layout, version })
    }

    /// What a page that is damaged still says of a log with this layout: its fields check each by itself.
    pub(crate) fn salvage<S: Storage<Page = P>>(storage: &S, layout: Layout) -> Look {
        let Ok(page) = storage.page(NAME, false) else { return Look::default() };
        let Ok(words) = page.load() else { return Look::default() };
        let path = storage.path().join(NAME);
        let mut look = Control { page, path, layout, version: VERSION }.decode(&words);
        while let Some(what) = look.impossible() {
            look.forget(what);
        }
        look
    }

    /// Makes a page of no log's under a name of its own, for who wants to be the writer of a log that lost its
    /// own page; that name.
    pub(crate) fn make_stand_in<S: Storage<Page = P>>(
        storage: &S,
        layout: &Layout,
    ) -> io::Result<String> {
        let name = name_while_new(layout);
        match storage.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => write_new(storage, layout, &new_page(layout)),
        }
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    pub(crate) fn page(&self) -> &P {
        &self.page
    }

    /// Whether there is a writer, in this process or in another.
    pub(crate) fn has_writer<S: Storage<Page = P>>(&self, storage: &S) -> Result<bool, LogError> {
        storage
            .has_writer(&self.page)
            .map_err(|error| LogError::system("learn who writes", &self.path, error))
    }

    /// What it says now.
    ///
    /// # Errors
    /// If the file is no longer what it was, or cannot be read.
    pub(crate) fn look(&self) -> Result<Look, LogError> {
        let mut last = None;
        for _ in 0..LOOKS {
            let words = self.page.load().map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => damaged(&self.path, "the control page"),
                _ => LogError::system("read", &self.path, error),
            })?;
            if words[WORD_MAGIC] != MAGIC {
                return Err(damaged(&self.path, "the control page"));
            }
            let look = match self.version {
                1 => version_1::look(&self.layout, &words),
                _ => self.decode(&words),
            };
            if let Some(what) = look.impossible() {
                return Err(damaged(&self.path, what));
            }
            // What does not check may be about to be stored; what does not change is not known.
            let is_whole = look.committed.is_some() && look.first.is_some() && look.cuts.is_some();
            if is_whole || last.as_ref() == Some(&look) {
                return Ok(look);
            }
            last = Some(look);
            thread::yield_now();
        }
        Ok(last.expect("looked at"))
    }

    fn decode(&self, words: &Words) -> Look {
        let identity = &self.layout.identity;
        let one = |field: Field| field.get::<1>(identity, words).map(|[value]| value);
        let number = one(NUMBER);
        let committed = words[WORD_COMMITTED];
        let commits = words[WORD_COMMITS] as u32;
        let is_whole = commit_words(identity, committed, commits)[1] == words[WORD_COMMITS];
        Look {
            commits,
            committed: Some(committed).filter(|_| is_whole),
            durable: one(DURABLE),
            first: FIRST.into_iter().filter_map(one).max(),
            closed: one(CLOSED).filter(|&end| end != NONE),
            epoch: one(EPOCH).and_then(|epoch| epoch.try_into().ok()),
            boot: BOOT.get::<2>(identity, words),
            process: one(PROCESS).and_then(|process| process.try_into().ok()),
            prewriting: one(PREWRITING).unwrap_or(0),
            lineage: one(LINEAGE).unwrap_or(0),
            shown: one(SHOWN).map(|shown| shown != 0),
            is_copy: number.is_some_and(|number| number != self.page.number()),
            cuts: CUTS.get(identity, words).map(Cuts::from_words),
        }
    }

    /// Sleeps until more is committed than when `commits` was looked at, or until the deadline. May return
    /// early for no reason.
    pub(crate) fn wait(&self, commits: u32, deadline: Option<Instant>) {
        let timeout: Option<Duration> =
            deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.page.wait(WORD_COMMITS, commits, timeout);
    }

    /// Wakes all who wait though nothing was committed. Readers may: it changes nothing.
    pub(crate) fn wake(&self) {
        self.page.wake(WORD_COMMITS);
    }
}

/// The page of a log that this process writes. It alone stores into it, and knows what it has stored.
pub(crate) struct Written<P> {
    control: Control<P>,
    /// Who tells readers of something does so alone: the count of what was told.
    told: Mutex<u32>,
    committed: AtomicU64,
    durable: AtomicU64,
    first: AtomicU64,
    cuts: Mutex<Cuts>,
}

impl<P: SharedPage> Written<P> {
    /// The caller is the one writer, and has looked at the page.
    pub(crate) fn new(control: Control<P>, look: &Look) -> Written<P> {
        Written {
            control,
            told: Mutex::new(look.commits),
            committed: AtomicU64::new(look.committed.unwrap_or(0)),
            durable: AtomicU64::new(look.durable.unwrap_or(0)),
            first: AtomicU64::new(look.first.unwrap_or(FIRST_BATCH)),
            cuts: Mutex::new(look.cuts.unwrap_or_default()),
        }
    }

    pub(crate) fn control(&self) -> &Control<P> {
        &self.control
    }

    pub(crate) fn layout(&self) -> Layout {
        self.control.layout
    }

    /// Where the committed part ends, for who may have heard of it from a reader: the page is stored first.
    pub(crate) fn committed_for_all(&self) -> u64 {
        let _told = self.told.lock();
        self.committed()
    }

    /// As `committed_for_all`, of what is on the device.
    pub(crate) fn durable_for_all(&self) -> u64 {
        let _told = self.told.lock();
        self.durable()
    }

    /// Where the committed part ends.
    pub(crate) fn committed(&self) -> u64 {
        // Acquire pairs with the Release in `tell`: who sees the position sees what was written before.
        self.committed.load(Acquire)
    }

    /// All below is on the device.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Acquire)
    }

    /// The first position that was not given up.
    pub(crate) fn first(&self) -> u64 {
        self.first.load(Acquire)
    }

    /// What is being cut off.
    pub(crate) fn cut(&self) -> Option<Cut> {
        self.cuts.lock().pending()
    }

    /// From now on this is no part of the log.
    pub(crate) fn begin_cut(&self, cut: &Cut) -> Result<(), LogError> {
        self.change_cuts(|cuts| cuts.and(cut))
    }

    /// All of it is covered.
    pub(crate) fn end_cut(&self) -> Result<(), LogError> {
        self.change_cuts(Cuts::covered)
    }

    /// What is there from here on is given up otherwise: readers are to hear of it first.
    pub(crate) fn tell_of_cut(&self, at: u64) -> Result<(), LogError> {
        self.change_cuts(|cuts| cuts.and_from(at))
    }

    fn change_cuts(&self, change: impl FnOnce(Cuts) -> Cuts) -> Result<(), LogError> {
        let mut now = self.cuts.lock();
        let cuts = change(*now);
        self.put(CUTS, &cuts.to_words())?;
        *now = cuts;
        self.sync()
    }

    /// What readers need to know, without a look at the page.
    pub(crate) fn look(&self) -> Look {
        Look {
            committed: Some(self.committed()),
            durable: Some(self.durable()),
            first: Some(self.first()),
            cuts: Some(*self.cuts.lock()),
            ..Look::default()
        }
    }

    /// Lets everybody see that the log is committed up to here, and how much of that is durable.
    pub(crate) fn commit(&self, end: u64, is_durable: bool) -> Result<(), LogError> {
        let mut told = self.told.lock();
        let durable = if is_durable { end } else { self.durable() };
        self.tell(&mut told, end, durable)
    }

    /// All below is on the device: lets everybody see it.
    pub(crate) fn note_durable(&self, durable: u64) -> Result<(), LogError> {
        let mut told = self.told.lock();
        match self.durable() < durable {
            true => self.tell(&mut told, self.committed(), durable),
            false => Ok(()),
        }
    }

    fn tell(&self, told: &mut u32, committed: u64, durable: u64) -> Result<(), LogError> {
        let identity = &self.layout().identity;
        let count = told.wrapping_add(1);
        let mut words = [0; WORDS];
        words[WORD_COMMITTED..][..2].copy_from_slice(&commit_words(identity, committed, count));
        DURABLE.put(identity, &mut words, &[durable]);
        self.store(WORD_COMMITTED, &words[WORD_COMMITTED..DURABLE.word + 2])?;
        *told = count;
        self.durable.store(durable, Release);
        self.committed.store(committed, Release);
        self.control.wake();
        Ok(())
    }

    pub(crate) fn set_closed(&self, end: Option<u64>) -> Result<(), LogError> {
        self.put(CLOSED, &[end.unwrap_or(NONE)])
    }

    /// From now on readers may see what is not on the device.
    pub(crate) fn set_shown(&self) -> Result<(), LogError> {
        self.put(SHOWN, &[1])
    }

    pub(crate) fn set_first(&self, first: u64) -> Result<(), LogError> {
        for field in FIRST {
            self.put(field, &[first])?;
            // Readers believe the one that is further on, even if the other cannot be stored.
            self.first.store(first, Release);
        }
        Ok(())
    }

    /// Notes who opened it for writing, and how.
    pub(crate) fn set_opening(&self, opening: &Opening) -> Result<(), LogError> {
        self.put(EPOCH, &[opening.epoch.into()])?;
        self.put(PROCESS, &[opening.process.into()])?;
        self.put(PREWRITING, &[opening.prewriting])?;
        self.put(LINEAGE, &[opening.lineage])?;
        self.put(SHOWN, &[opening.shown.into()])?;
        self.put(NUMBER, &[self.control.page.number()])?;
        // The last: with it readers believe the rest.
        self.put(BOOT, &opening.boot)
    }

    /// From now on copies of this page are known as such.
    pub(crate) fn set_number(&self) -> Result<(), LogError> {
        self.put(NUMBER, &[self.control.page.number()])?;
        self.sync()
    }

    pub(crate) fn sync(&self) -> Result<(), LogError> {
        self.control
            .page
            .sync()
            .map_err(|error| LogError::system("sync", &self.control.path, error))
    }

    fn put(&self, field: Field, values: &[u64]) -> Result<(), LogError> {
        let mut words = [0; WORDS];
        field.put(&self.layout().identity, &mut words, values);
        self.store(field.word, &words[field.word..=field.word + values.len()])
    }

    fn store(&self, word: usize, values: &[u64]) -> Result<(), LogError> {
        self.control
            .page
            .store(word, values)
            .map_err(|error| LogError::system("write", &self.control.path, error))
    }
}

/// An opening for writing, as the page tells of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) epoch: u32,
    pub(crate) boot: Boot,
    pub(crate) process: u32,
    pub(crate) prewriting: u64,
    pub(crate) lineage: u64,
    pub(crate) shown: bool,
}

impl Field {
    fn put(self, identity: &Identity, words: &mut Words, values: &[u64]) {
        words[self.word..][..values.len()].copy_from_slice(values);
        words[self.word + values.len()] = check(identity, self.word, values);
    }

    fn get<const N: usize>(self, identity: &Identity, words: &Words) -> Option<[u64; N]> {
        let values: [u64; N] = words[self.word..][..N].try_into().expect("so many");
        (check(identity, self.word, &values) == words[self.word + N]).then_some(values)
    }
}

fn new_page(layout: &Layout) -> Words {
    let mut words = [0; WORDS];
    words[WORD_MAGIC] = MAGIC;
    words[WORD_SEGMENT_BYTES] = layout.segment_bytes;
    let [low, high] = halves(&layout.identity);
    words[WORD_IDENTITY] = low;
    words[WORD_IDENTITY + 1] = high;
    words[WORD_VERSION] = version_word(VERSION, layout);
    CUTS.put(&layout.identity, &mut words, &Cuts::default().to_words());
    words
}

/// Makes a page under a name of its own, and brings it to the device; its name.
fn write_new<S: Storage>(storage: &S, layout: &Layout, words: &Words) -> io::Result<String> {
    let mut page = Blocks::zeroed(BLOCK);
    for (bytes, word) in page.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let name = name_while_new(layout);
    let file = storage.create(&name)?;
    file.write(&page, 0, true)?;
    file.sync()?;
    Ok(name)
}

fn name_while_new(layout: &Layout) -> String {
    let [begin, end] = WHILE_NEW;
    let [low, _] = halves(&layout.identity);
    format!("{begin}{low:016x}{end}")
}

#[cold]
pub(crate) fn damaged(path: &Path, what: &'static str) -> LogError {
    LogError::new(LogErrorKind::Damaged { position: Position::START, what }, path)
}

fn halves(identity: &Identity) -> [u64; 2] {
    let half = |at: usize| u64::from_le_bytes(identity[at..at + 8].try_into().expect("eight"));
    [half(0), half(8)]
}

/// In every later version, too, so that damage is not taken for one. The first two did not check themselves.
fn version_word(version: u32, layout: &Layout) -> u64 {
    let values = [layout.segment_bytes, version.into()];
    let checked = if version > 2 { &values[..] } else { &values[..1] };
    u64::from(version) | check(&layout.identity, WORD_VERSION, checked) << 32
}

/// The words of a commit: what is committed, and how often that was done, with the check of both.
fn commit_words(identity: &Identity, committed: u64, commits: u32) -> [u64; 2] {
    let check = check(identity, WORD_COMMITTED, &[committed, commits.into()]);
    [committed, u64::from(commits) | check << 32]
}

fn check(identity: &Identity, word: usize, values: &[u64]) -> u64 {
    let checksum = crc32c::crc32c_append(crc32c(identity), &(word as u64).to_le_bytes());
    let checksum = values
        .iter()
        .fold(checksum, |checksum, value| crc32c::crc32c_append(checksum, &value.to_le_bytes()));
    u64::from(checksum)
}

/// The page as version 1 had it.
mod version_1 {
    use super::*;

    const CHECK_BITS: u64 = BLOCK as u64 - 1;
    const WORD_DURABLE: usize = 16;
    const WORDS_FIRST: [usize; 2] = [17, 24];
    const WORD_CLOSED: usize = 19;
    const WORD_EPOCH: usize = 20;
    const WORD_BOOT: usize = 21;
    const WORD_PROCESS: usize = 23;
    const WORD_PREWRITING: usize = 26;

    pub(super) fn look(layout: &Layout, words: &Words) -> Look {
        let identity = &layout.identity;
        // Positions of batches are multiples of a block: the lower bits had a check.
        let sealed = |word: usize| {
            let position = words[word] & !CHECK_BITS;
            let check = check(identity, word, &[position]) & CHECK_BITS | 1;
            (words[word] == position | check).then_some(position)
        };
        let first = |word: usize| {
            let first = words[word];
            (words[word + 1] == check(identity, word, &[first])).then_some(first)
        };
        let boot: Boot = [words[WORD_BOOT], words[WORD_BOOT + 1]];
        Look {
            commits: words[WORD_COMMITS] as u32,
            committed: sealed(WORD_COMMITTED),
            durable: sealed(WORD_DURABLE),
            first: WORDS_FIRST.into_iter().filter_map(first).max(),
            closed: sealed(WORD_CLOSED),
            epoch: Some(words[WORD_EPOCH] as u32),
            boot: Some(boot),
            process: Some(words[WORD_PROCESS] as u32),
            prewriting: words[WORD_PREWRITING],
            lineage: 0,
            shown: None,
            is_copy: false,
            cuts: Some(Cuts::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::FileExt;

    use super::super::disk::Disk;
    use super::*;
    use crate::test_directory::test_directory;
    use crate::{LogFile, LogOptions, LogReader, RepairOptions, SyncPolicy};

    /// A log with some records, which was closed, and its page with one field changed; what opening it says.
    fn changed(field: Field, value: u64) -> [Result<(), LogErrorKind>; 2] {
        let directory = test_directory();
        let path = directory.path().join("log");
        let log = LogOptions::new().segment_bytes(64 << 10).sync(SyncPolicy::Never).open(&path);
        let log = log.unwrap();
        for _ in 0..20 {
            log.append(&[7; 4000]).unwrap();
        }
        log.close().unwrap();
        let control = Control::open(&Disk::open(&path).unwrap(), false).unwrap();
        let mut words = control.page.load().unwrap();
        field.put(&control.layout.identity, &mut words, &[value]);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let file = OpenOptions::new().write(true).open(path.join(NAME)).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        let segments = || fs::read_dir(&path).unwrap().count();
        let before = segments();
        let read = LogReader::open(&path).and_then(|mut reader| reader.next().map(|_| ()));
        let opened = LogFile::open(&path).map(|_| ());
        if opened.is_err() {
            assert!(segments() >= before, "a refused log was changed");
        }
        [read, opened].map(|result| result.map_err(|error| error.kind().clone()))
    }

    fn is_damage_of(kind: &LogErrorKind, expected: &str) -> bool {
        matches!(kind, LogErrorKind::Damaged { what, .. } if *what == expected)
    }

    #[test]
    fn a_first_position_behind_the_end_is_damage_and_gives_nothing_up() {
        for first in [1 << 30, u64::MAX, 1 << 20] {
            for field in FIRST {
                let [_, opened] = changed(field, first);
                let kind = opened.expect_err("refused");
                assert!(is_damage_of(&kind, "the first position in the control page"), "{kind:?}");
            }
        }
    }

    #[test]
    fn a_cut_that_ends_where_no_log_did_is_damage_and_takes_nothing_away() {
        let directory = test_directory();
        let path = directory.path().join("log");
        let log = LogOptions::new().segment_bytes(64 << 10).open(&path).unwrap();
        let places: Vec<_> = (0..20).map(|_| log.append(&[7; 4000]).unwrap()).collect();
        log.close().unwrap();
        let batch = places[2].get() - places[2].get() % BLOCK as u64;
        for end in [1 << 61, 1 << 36, batch + BLOCK as u64 - 1, batch] {
            let control = Control::open(&Disk::open(&path).unwrap(), false).unwrap();
            let mut words = control.page.load().unwrap();
            let cut = Cut { batch, used: 4072, epoch: 1, at: batch, end };
            let cuts = Cuts::default().and(&cut).to_words();
            CUTS.put(&control.layout.identity, &mut words, &cuts);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let file = OpenOptions::new().write(true).open(path.join(NAME)).unwrap();
            file.write_all_at(&bytes, 0).unwrap();

            let kind = LogFile::open(&path).unwrap_err().kind().clone();
            assert!(is_damage_of(&kind, IMPOSSIBLE_CUT), "{end}: {kind:?}");
            assert_eq!(LogReader::verify(&path, |_| ()).unwrap().damages, 1, "{end}");
            LogFile::repair(&path, &RepairOptions::new()).unwrap();
            let log = LogFile::open(&path).unwrap();
            let found = log.reader().unwrap().records().map(|it| it.unwrap().0).collect::<Vec<_>>();
            assert_eq!(found, places, "{end}");
            log.close().unwrap();
        }
    }

    #[test]
    fn a_count_of_openings_that_cannot_grow_is_damage() {
        let [read, opened] = changed(EPOCH, u32::MAX.into());
        assert_eq!(read, Ok(()));
        assert!(is_damage_of(&opened.unwrap_err(), "the count of openings"));
    }

    #[test]
    fn a_field_that_does_not_check_is_not_believed() {
        let layout = Layout::checked([3; 16], 1 << 20).unwrap();
        let mut words = new_page(&layout);
        for field in [DURABLE, FIRST[0], FIRST[1], CLOSED, EPOCH, PROCESS, PREWRITING, SHOWN] {
            field.put(&layout.identity, &mut words, &[77]);
            assert_eq!(field.get::<1>(&layout.identity, &words), Some([77]));
            for bit in 0..64 {
                for word in [field.word, field.word + 1] {
                    words[word] ^= 1 << bit;
                    assert_eq!(field.get::<1>(&layout.identity, &words), None, "{field:?} {bit}");
                    words[word] ^= 1 << bit;
                }
            }
        }
    }

    #[test]
    fn a_later_version_is_told_from_damage() {
        let directory = test_directory();
        let path = directory.path().join("log");
        LogFile::open(&path).unwrap().close().unwrap();
        let control = Control::open(&Disk::open(&path).unwrap(), false).unwrap();
        let store = |word: u64| {
            let file = OpenOptions::new().write(true).open(path.join(NAME)).unwrap();
            file.write_all_at(&word.to_le_bytes(), WORD_VERSION as u64 * 8).unwrap();
            LogFile::open(&path).unwrap_err().kind().clone()
        };
        let newer = |found| LogErrorKind::NewerVersion { found, supported: VERSION };
        assert_eq!(store(version_word(VERSION + 1, &control.layout)), newer(VERSION + 1));
        assert_eq!(store(version_word(u32::MAX, &control.layout)), newer(u32::MAX));
        for bit in 0..32 {
            let damaged = store(version_word(VERSION, &control.layout) ^ 1 << bit);
            assert!(matches!(damaged, LogErrorKind::Damaged { .. }), "{bit}: {damaged:?}");
        }
    }
}
