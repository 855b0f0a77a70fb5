//! A disk in memory that fills up, fails, and forgets: what a log's promises are tested against.
//!
//! Two images are kept of everything: what the kernel was told, and what is on the device. A crash of the
//! process leaves the first, but for the write that was under way, of which any sectors arrive. The loss
//! of power leaves the second, and any sectors of what was written since it was synced, any part of the
//! changes of names in their order, and any earlier state of the shared page.
//!
//! Each call that changes something is an operation, and has a number. Crashes and failures are asked for
//! by number. Behind the number of a crash every call of the process fails, and what its threads
//! store into the page is not seen by the next process.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use fastrand::Rng;

use super::format::BLOCK;
use super::storage::{
    Boot, Extent, FileSystem, Overwrites, SharedPage, Storage, StoredFile, WORDS, Words,
};

/// What a device writes whole.
const SECTOR: usize = 512;

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crash {
    Process,
    Power,
}

/// An operation that fails, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing happens.
    Nothing,
    /// A write arrives in part.
    Part,
    /// A write arrives as a whole, and is called a failure all the same.
    Whole,
}

/// Wrong on purpose, so that tests can show that they would see it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Mischief {
    #[default]
    None,
    /// `sync` of a file does nothing.
    NoSync,
    /// A write that is to be durable is not.
    NoDurableWrites,
    /// `sync_names` does nothing.
    NoSyncOfNames,
    /// `sync` of the page does nothing.
    NoSyncOfPage,
}

/// The machine, which outlives its processes.
#[derive(Clone)]
pub(super) struct Machine(Arc<Mutex<State>>);

/// What one process sees of it.
pub(super) struct SimulatedDisk {
    machine: Machine,
    process: u64,
    path: PathBuf,
}

type Inode = usize;

struct State {
    files: Vec<FileState>,
    names: BTreeMap<String, Inode>,
    names_on_device: BTreeMap<String, Inode>,
    names_changed: Vec<NameChange>,
    pages: BTreeMap<Inode, PageState>,
    /// The writer's process.
    locked_by: Option<u64>,
    /// The running process; calls of others fail.
    process: u64,
    is_dead: bool,
    boot: u64,
    operations: u64,
    crash_at: Option<u64>,
    failures: BTreeMap<u64, Failure>,
    /// Blocks that there are.
    capacity: usize,
    mischief: Mischief,
    /// Since the epoch.
    now: Duration,
    random: Rng,
}

#[derive(Clone, Default)]
struct Image {
    /// Shared by copies, until one of them changes.
    bytes: Arc<Vec<u8>>,
    /// Of each block, whether it has room, and whether it was written.
    blocks: Vec<(bool, bool)>,
}

#[derive(Default)]
struct FileState {
    now: Image,
    on_device: Image,
    /// Since all was on the device.
    changes: Vec<Change>,
    /// Since the epoch.
    modified: Duration,
}

enum Change {
    Write { offset: usize, bytes: Vec<u8>, durable: bool },
    Room(usize),
}

enum NameChange {
    Create(String, Inode),
    Rename(String, String),
    Remove(String),
}

/// A page that was opened. A crash of the process finds it in the file as it is.
struct PageState {
    /// As it was before each change since it was synced.
    earlier: Vec<Words>,
}

impl Machine {
    pub(super) fn new(seed: u64) -> Machine {
        Machine(Arc::new(Mutex::new(State {
            files: Vec::new(),
            names: BTreeMap::new(),
            names_on_device: BTreeMap::new(),
            names_changed: Vec::new(),
            pages: BTreeMap::new(),
            locked_by: None,
            process: 1,
            is_dead: false,
            boot: 1,
            operations: 0,
            crash_at: None,
            failures: BTreeMap::new(),
            capacity: usize::MAX,
            mischief: Mischief::None,
            now: Duration::ZERO,
            random: Rng::with_seed(seed),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the process that runs now.
    pub(super) fn disk(&self) -> SimulatedDisk {
        let process = self.lock().process;
        SimulatedDisk { machine: self.clone(), process, path: PathBuf::from("/simulated") }
    }

    /// Operations so far.
    pub(super) fn operations(&self) -> u64 {
        self.lock().operations
    }

    pub(super) fn crash_at(&self, operation: u64) {
        self.lock().crash_at = Some(operation);
    }

    pub(super) fn fail_at(&self, operation: u64, failure: Failure) {
        self.lock().failures.insert(operation, failure);
    }

    pub(super) fn fail_no_more(&self) {
        self.lock().failures.clear();
    }

    pub(super) fn describe(&self) -> String {
        let state = self.lock();
        let Some(control) = state.names.get("control") else { return "no control".to_owned() };
        let words = words_of(&state.files[*control].now.bytes);
        format!(
            "committed {}, durable {}, first {}, closed {}, epoch {}, boot {} in {}, cut {:?}; {:?}",
            words[8],
            words[10],
            words[18],
            words[20] as i64,
            words[22],
            words[32],
            state.boot,
            &words[48..52],
            state.names.keys()
        )
    }

    pub(super) fn is_dead(&self) -> bool {
        self.lock().is_dead
    }

    /// Kills the process between two operations.
    pub(super) fn kill(&self) {
        self.lock().die();
    }

    pub(super) fn set_mischief(&self, mischief: Mischief) {
        self.lock().mischief = mischief;
    }

    /// Time goes by.
    pub(super) fn advance(&self, time: Duration) {
        self.lock().now += time;
    }

    /// So many blocks from now on.
    pub(super) fn set_capacity(&self, blocks: usize) {
        self.lock().capacity = blocks;
    }

    pub(super) fn blocks_used(&self) -> usize {
        self.lock().blocks_used()
    }

    /// Ends the process, if it did not die already; the next one sees what is left.
    pub(super) fn restart(&self, crash: Crash) {
        let state = &mut *self.lock();
        if !state.is_dead {
            state.die();
        }
        state.crash_at = None;
        state.failures.clear();
        if crash == Crash::Power {
            state.lose_power();
        }
        state.pages.clear();
        state.locked_by = None;
        state.process += 1;
        state.is_dead = false;
    }

    /// The names of all files.
    pub(super) fn names(&self) -> Vec<String> {
        self.lock().names.keys().cloned().collect()
    }

    /// What a file holds, to be looked at and put back changed while nothing runs.
    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.lock();
        state.files[state.names[name]].now.bytes.to_vec()
    }

    pub(super) fn set_bytes(&self, name: &str, bytes: Vec<u8>) {
        let state = &mut *self.lock();
        let image = &mut state.files[state.names[name]].now;
        image.blocks.resize(bytes.len().div_ceil(BLOCK), (true, true));
        image.bytes = Arc::new(bytes);
    }

    pub(super) fn remove(&self, name: &str) {
        self.lock().names.remove(name).expect("it is there");
    }

    /// An independent copy, as it is now, for one more process.
    pub(super) fn copy(&self) -> Machine {
        let state = self.lock();
        let copy = Machine::new(0);
        {
            let mut new = copy.lock();
            new.names.clone_from(&state.names);
            new.names_on_device.clone_from(&state.names);
            let copied = |file: &FileState| FileState {
                now: file.now.clone(),
                on_device: file.now.clone(),
                changes: Vec::new(),
                modified: file.modified,
            };
            new.files = state.files.iter().map(copied).collect();
            new.process = state.process;
            new.now = state.now;
            new.boot = state.boot;
            new.capacity = state.capacity;
        }
        copy
    }

    /// As the loss of power does, but nothing else is lost.
    pub(super) fn change_boot(&self) {
        self.lock().boot += 1;
    }
}

impl State {
    /// Counts an operation of a process; whether it fails, and how.
    fn begin(&mut self, process: u64) -> io::Result<Option<Failure>> {
        self.check(process)?;
        let number = self.operations;
        self.operations += 1;
        if self.crash_at == Some(number) {
            self.die();
            return Ok(Some(Failure::Part));
        }
        Ok(self.failures.remove(&number))
    }

    /// As `begin`, for what is done or not done.
    fn begin_whole(&mut self, process: u64) -> io::Result<()> {
        match self.begin(process)? {
            None => Ok(()),
            Some(_) => Err(failed()),
        }
    }

    fn check(&self, process: u64) -> io::Result<()> {
        match self.is_dead || process != self.process {
            true => Err(io::Error::other("the process is dead")),
            false => Ok(()),
        }
    }

    fn die(&mut self) {
        self.is_dead = true;
    }

    fn blocks_used(&self) -> usize {
        let room = |inode: &Inode| {
            let blocks = &self.files[*inode].now.blocks;
            blocks.iter().filter(|(has_room, _)| *has_room).count()
        };
        self.names.values().map(room).sum()
    }

    fn blocks_free(&self) -> usize {
        match self.capacity {
            // Without a limit there is no need to count.
            usize::MAX => usize::MAX,
            capacity => capacity.saturating_sub(self.blocks_used()),
        }
    }

    fn lose_power(&mut self) {
        let random = &mut self.random;
        self.boot += 1;
        let kept = random.usize(..=self.names_changed.len());
        let mut names = std::mem::take(&mut self.names_on_device);
        for change in self.names_changed.drain(..).take(kept) {
            change.apply(&mut names);
        }
        self.names.clone_from(&names);
        self.names_on_device = names;
        let words = |inode: &Inode| (*inode, words_of(&self.files[*inode].now.bytes));
        let pages_before: BTreeMap<Inode, Words> = self.pages.keys().map(words).collect();
        for file in &mut self.files {
            let likely = [0.0, 0.5, 0.9, 1.0][random.usize(..4)];
            file.lose(likely, random);
        }
        for (inode, page) in &mut self.pages {
            let file = &mut self.files[*inode];
            page.earlier.push(pages_before[inode]);
            let chosen = random.usize(..page.earlier.len());
            let mut words = page.earlier[chosen];
            if let Some(next) = page.earlier.get(chosen + 1) {
                // While something is stored, any of the lines, which a device reads whole.
                for (line, next) in words.chunks_mut(8).zip(next.chunks(8)) {
                    if random.bool() {
                        line.copy_from_slice(next);
                    }
                }
            }
            file.now.write(0, &bytes_of(&words));
            file.on_device = file.now.clone();
        }
    }
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<String, Inode>) {
        match self {
            NameChange::Create(name, inode) => {
                names.insert(name, inode);
            }
            NameChange::Rename(from, to) => {
                if let Some(inode) = names.remove(&from) {
                    names.insert(to, inode);
                }
            }
            NameChange::Remove(name) => {
                names.remove(&name);
            }
        }
    }
}

impl Image {
    fn grow(&mut self, length: usize) {
        if self.bytes.len() < length {
            self.set_length(length);
        }
    }

    fn set_length(&mut self, length: usize) {
        Arc::make_mut(&mut self.bytes).resize(length, 0);
        self.blocks.resize(length.div_ceil(BLOCK), (false, false));
    }

    fn make_room(&mut self, length: usize) {
        self.grow(length);
        for block in &mut self.blocks[..length / BLOCK] {
            block.0 = true;
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.grow((offset + bytes.len()).next_multiple_of(BLOCK));
        Arc::make_mut(&mut self.bytes)[offset..offset + bytes.len()].copy_from_slice(bytes);
        for block in &mut self.blocks[offset / BLOCK..(offset + bytes.len()).div_ceil(BLOCK)] {
            *block = (true, true);
        }
    }
}

impl FileState {
    /// Loses power: what is on the device, and some of what came later.
    fn lose(&mut self, likely: f64, random: &mut Rng) {
        for change in self.changes.drain(..) {
            let image = &mut self.on_device;
            match change {
                Change::Write { offset, bytes, durable: true } => image.write(offset, &bytes),
                Change::Write { offset, bytes, durable: false } => {
                    for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                        if random.f64() < likely {
                            image.write(offset + number * SECTOR, sector);
                        }
                    }
                }
                Change::Room(length) if random.f64() < likely => image.make_room(length),
                Change::Room(_) => {}
            }
        }
        self.now = self.on_device.clone();
    }

    fn write(&mut self, offset: usize, bytes: &[u8], durable: bool) {
        self.now.write(offset, bytes);
        if durable && self.changes.is_empty() {
            self.on_device.write(offset, bytes);
        } else {
            self.changes.push(Change::Write { offset, bytes: bytes.to_owned(), durable });
        }
    }
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words_of(bytes: &[u8]) -> Words {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    words
}

fn failed() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

impl SimulatedDisk {
    fn file(&self, inode: Inode) -> SimulatedFile {
        SimulatedFile { machine: self.machine.clone(), process: self.process, inode }
    }
}

impl Storage for SimulatedDisk {
    type File = SimulatedFile;
    type Page = SimulatedPage;
    type Lock = SimulatedLock;

    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let state = self.machine.lock();
        state.check(self.process)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<SimulatedFile> {
        let state = &mut *self.machine.lock();
        state.begin_whole(self.process)?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.files.len();
        state.files.push(FileState::default());
        state.names.insert(name.to_owned(), inode);
        state.names_changed.push(NameChange::Create(name.to_owned(), inode));
        Ok(self.file(inode))
    }

    fn open(&self, name: &str, _writable: bool) -> io::Result<SimulatedFile> {
        let state = self.machine.lock();
        state.check(self.process)?;
        let inode = state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.file(*inode))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let state = &mut *self.machine.lock();
        state.begin_whole(self.process)?;
        let inode = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), inode);
        state.names_changed.push(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        let is_there = self.machine.lock().names.contains_key(to);
        match is_there {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => self.rename(from, to),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let state = &mut *self.machine.lock();
        state.begin_whole(self.process)?;
        state.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        state.names_changed.push(NameChange::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let state = &mut *self.machine.lock();
        state.begin_whole(self.process)?;
        if state.mischief != Mischief::NoSyncOfNames {
            state.names_on_device.clone_from(&state.names);
            state.names_changed.clear();
        }
        Ok(())
    }

    fn sync_own_name(&self) -> io::Result<()> {
        self.machine.lock().check(self.process)
    }

    fn page(&self, name: &str, _writable: bool) -> io::Result<SimulatedPage> {
        let state = &mut *self.machine.lock();
        state.check(self.process)?;
        let inode = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let on_device = words_of(&state.files[inode].on_device.bytes);
        state.pages.entry(inode).or_insert_with(|| PageState { earlier: vec![on_device] });
        let (machine, process) = (self.machine.clone(), self.process);
        Ok(SimulatedPage { machine, process, inode })
    }

    fn lock(&self, _name: &str, _page: &SimulatedPage) -> io::Result<Option<SimulatedLock>> {
        let state = &mut *self.machine.lock();
        state.check(self.process)?;
        if state.locked_by.is_some() {
            return Ok(None);
        }
        state.locked_by = Some(self.process);
        Ok(Some(SimulatedLock { machine: self.machine.clone(), process: self.process }))
    }

    fn has_writer(&self, _page: &SimulatedPage) -> io::Result<bool> {
        Ok(self.machine.lock().locked_by.is_some())
    }

    fn free_what_was_removed(&self) -> io::Result<()> {
        Ok(())
    }

    fn is_in_place(
        &self,
        _lock: &SimulatedLock,
        page_name: &str,
        page: &SimulatedPage,
    ) -> io::Result<bool> {
        self.has_page(page_name, page)
    }

    fn has_page(&self, name: &str, page: &SimulatedPage) -> io::Result<bool> {
        let state = self.machine.lock();
        state.check(self.process)?;
        Ok(state.names.get(name) == Some(&page.inode))
    }

    fn is_intact(&self, _lock: &SimulatedLock, _page: &SimulatedPage) -> io::Result<bool> {
        Ok(true)
    }

    fn modified(&self, name: &str) -> io::Result<SystemTime> {
        let state = self.machine.lock();
        state.check(self.process)?;
        let inode = state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(SystemTime::UNIX_EPOCH + state.files[*inode].modified)
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.machine.lock().now
    }

    fn boot(&self) -> Boot {
        [self.machine.lock().boot, 7]
    }

    fn filesystem(&self) -> FileSystem {
        let name = "simulated".to_owned();
        FileSystem { name, overwrites: Overwrites::InPlace, shares_blocks: false }
    }
}

pub(super) struct SimulatedFile {
    machine: Machine,
    process: u64,
    inode: Inode,
}

impl StoredFile for SimulatedFile {
    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.machine.lock();
        state.check(self.process)?;
        let there = &state.files[self.inode].now.bytes;
        let there = there.get(offset as usize..).unwrap_or_default();
        let size = bytes.len().min(there.len());
        bytes[..size].copy_from_slice(&there[..size]);
        Ok(size)
    }

    fn write(&self, bytes: &[u8], offset: u64, durable: bool) -> io::Result<()> {
        assert!(bytes.len() % BLOCK == 0 && offset % (BLOCK as u64) == 0);
        let state = &mut *self.machine.lock();
        let failure = state.begin(self.process)?;
        let now = state.now;
        let offset = offset as usize;
        let durable = durable && state.mischief != Mischief::NoDurableWrites;
        let free = state.blocks_free();
        let file = &mut state.files[self.inode];
        file.modified = now;
        match failure {
            None => {}
            Some(Failure::Nothing) => return Err(failed()),
            Some(Failure::Whole) => {
                file.write(offset, bytes, false);
                return Err(failed());
            }
            Some(Failure::Part) => {
                let likely = [0.1, 0.5, 0.9, 1.0][state.random.usize(..4)];
                for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                    if state.random.f64() < likely {
                        file.write(offset + number * SECTOR, sector, false);
                    }
                }
                return Err(failed());
            }
        }
        let mut needed = 0;
        for (number, block) in bytes.chunks(BLOCK).enumerate() {
            let at = offset / BLOCK + number;
            let has_room = file.now.blocks.get(at).is_some_and(|(has_room, _)| *has_room);
            needed += usize::from(!has_room);
            if needed > free {
                return Err(io::ErrorKind::StorageFull.into());
            }
            file.write(at * BLOCK, block, durable);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.machine.lock();
        if let Err(error) = state.begin_whole(self.process) {
            if !state.is_dead {
                drop(state);
                // A device takes its time to fail: other threads come to wait for this sync.
                (0..50).for_each(|_| thread::yield_now());
            }
            return Err(error);
        }
        let state = &mut *state;
        if state.mischief != Mischief::NoSync {
            let file = &mut state.files[self.inode];
            file.on_device = file.now.clone();
            file.changes.clear();
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let state = &mut *self.machine.lock();
        state.begin_whole(self.process)?;
        let now = state.now;
        let file = &mut state.files[self.inode];
        file.modified = now;
        file.now.set_length(length as usize);
        // It is on the device when it returns, as all of the file then is.
        file.on_device = file.now.clone();
        file.changes.clear();
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<bool> {
        let state = &mut *self.machine.lock();
        state.begin_whole(self.process)?;
        let length = length as usize;
        let free = state.blocks_free();
        let file = &mut state.files[self.inode];
        let there = file.now.blocks.iter().take(length / BLOCK).filter(|block| block.0).count();
        if length / BLOCK - there > free {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.now.make_room(length);
        file.changes.push(Change::Room(length));
        file.modified = state.now;
        Ok(true)
    }

    fn is_named(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(false)
    }

    fn extent(&self, offset: u64) -> io::Result<Option<Extent>> {
        let state = self.machine.lock();
        state.check(self.process)?;
        let blocks = &state.files[self.inode].now.blocks;
        let at = offset as usize / BLOCK;
        let Some(&(_, written)) = blocks.get(at) else {
            return Ok(Some(Extent { end: u64::MAX, written: false, physical: 0 }));
        };
        let alike = blocks[at..].iter().take_while(|block| block.1 == written).count();
        Ok(Some(Extent { end: ((at + alike) * BLOCK) as u64, written, physical: offset }))
    }
}

pub(super) struct SimulatedLock {
    machine: Machine,
    process: u64,
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let state = &mut *self.machine.lock();
        if state.locked_by == Some(self.process) {
            state.locked_by = None;
        }
    }
}

pub(super) struct SimulatedPage {
    machine: Machine,
    process: u64,
    inode: Inode,
}

impl SharedPage for SimulatedPage {
    fn load(&self) -> io::Result<Words> {
        let state = self.machine.lock();
        state.check(self.process)?;
        let bytes = &state.files[self.inode].now.bytes;
        if bytes.len() < WORDS * 8 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(words_of(bytes))
    }

    fn store(&self, word: usize, values: &[u64]) -> io::Result<()> {
        let state = &mut *self.machine.lock();
        state.begin_whole(self.process)?;
        let file = &mut state.files[self.inode];
        if let Some(page) = state.pages.get_mut(&self.inode) {
            page.earlier.push(words_of(&file.now.bytes));
        }
        file.now.write(word * 8, &bytes_of(values));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let state = &mut *self.machine.lock();
        state.begin_whole(self.process)?;
        if state.mischief != Mischief::NoSyncOfPage {
            let file = &mut state.files[self.inode];
            file.on_device = file.now.clone();
            let page = state.pages.get_mut(&self.inode).expect("opened");
            page.earlier = vec![words_of(&file.now.bytes)];
        }
        Ok(())
    }

    fn number(&self) -> u64 {
        self.inode as u64 + 1
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(false)
    }

    fn wake(&self, _word: usize) {}

    fn wait(&self, _word: usize, _expected: u32, _timeout: Option<Duration>) {
        thread::yield_now();
    }
}
