//! Makes segments ready before they are needed: a thread that writes zeros ahead of the appends.
//!
//! An append that extends its file, or that meets blocks that were never written, takes the inode's lock
//! exclusively, or changes the file's map, and then it and the readers wait for each other. So each file
//! first gets all its room, then zeros, chunk by chunk, and appends only overwrite. The frontier moves on
//! twice as fast as the log, until it is a segment ahead: from then on it is in a file that nobody else
//! uses. Segments that were given up are used again and need no zeros.
//!
//! Invariants:
//!
//! 1. Below the frontier (`ready`), every segment is in `segments` or was taken from it, is on the device
//!    under its name with its header, and, if prewriting is on, consists of written blocks.
//! 2. Nothing is written at or beyond the frontier but by this thread, and nothing below it by this
//!    thread.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::blocks::Blocks;
use super::error::{LogError, LogErrorKind};
use super::format::{BLOCK, FIRST_BATCH, Layout, SegmentHeader, put_user_header};
use super::options::Prewriting;
use super::segments::{self, NAME_WHILE_NEW};
use super::storage::{Storage, StoredFile};

/// Zeros written at a time: large enough for a disk's full speed, small enough that an append or a read
/// that comes meanwhile hardly waits.
pub(crate) const CHUNK: usize = 1 << 20;

/// What all segments have in common that one opening of a log makes.
pub(crate) struct Making {
    pub(crate) layout: Layout,
    pub(crate) epoch: u32,
    pub(crate) prewriting: Prewriting,
    /// The user's, for each of them.
    pub(crate) header: Vec<u8>,
}

pub(crate) struct Ahead<S: Storage> {
    shared: Arc<Shared<S>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared<S: Storage> {
    storage: Arc<S>,
    making: Making,
    state: Mutex<State<S>>,
    changed: Condvar,
}

struct State<S: Storage> {
    /// The frontier: appends may go up to here.
    ready: u64,
    /// Where the frontier is to be.
    wanted: u64,
    /// Files that the log has not come to yet, in order.
    segments: VecDeque<(u64, Arc<S::File>)>,
    spares: Vec<String>,
    /// Why the frontier does not move.
    failure: Option<LogError>,
    ending: bool,
    counts: Counts,
}

/// What was done ahead, and what there is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Zeros written, bytes.
    pub(crate) prewritten: u64,
    /// Segments used again.
    pub(crate) recycled: u64,
    /// Segments made new.
    pub(crate) made: u64,
    /// Segments that the log has not come to yet.
    pub(crate) waiting: u64,
    /// Files kept to be used again.
    pub(crate) spares: u64,
    /// How often an append waited for the frontier.
    pub(crate) stalls: u64,
}

impl<S: Storage> Ahead<S> {
    /// The frontier is at `ready`, in the segment that `current` is the file of, or at its end.
    pub(crate) fn start(
        storage: Arc<S>,
        making: Making,
        current: Arc<S::File>,
        ready: u64,
        spares: Vec<String>,
    ) -> io::Result<Ahead<S>> {
        let state = State {
            ready,
            wanted: ready,
            segments: VecDeque::new(),
            spares,
            failure: None,
            ending: false,
            counts: Counts::default(),
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { storage, making, state, changed });
        let thread = {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .name("fairlock-log".to_owned())
                .spawn(move || shared.run(current))?
        };
        Ok(Ahead { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Lets the frontier move on to here.
    pub(crate) fn want(&self, position: u64) {
        let mut state = self.shared.lock();
        if state.wanted < position {
            state.wanted = position;
            self.shared.changed.notify_all();
        }
    }

    /// Waits until the frontier has come to here.
    ///
    /// # Errors
    /// Why it cannot. Each call tries anew.
    pub(crate) fn wait_for(&self, end: u64) -> Result<(), LogError> {
        let mut state = self.shared.lock();
        if state.ready >= end {
            return Ok(());
        }
        state.counts.stalls += 1;
        state.failure = None;
        state.wanted = state.wanted.max(end);
        self.shared.changed.notify_all();
        loop {
            state = self.shared.wait(state);
            if state.ready >= end {
                return Ok(());
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
        }
    }

    /// Waits until the thread has nothing to do, so that a test knows whose the next operation is.
    #[cfg(test)]
    pub(crate) fn settle(&self) {
        let mut state = self.shared.lock();
        while state.failure.is_none() && state.ready < state.wanted {
            state = self.shared.wait(state);
        }
    }

    /// The file of a segment that is below the frontier, and was not taken yet.
    pub(crate) fn take(&self, segment: u64) -> Arc<S::File> {
        let mut state = self.shared.lock();
        let (number, file) =
            state.segments.pop_front().expect("made before the frontier passed it");
        assert_eq!(number, segment, "segments are taken in order");
        file
    }

    /// Has one more file to use again.
    pub(crate) fn add_spare(&self, name: String) {
        self.shared.lock().spares.push(name);
    }

    /// How many there are.
    pub(crate) fn spares(&self) -> usize {
        self.shared.lock().spares.len()
    }

    pub(crate) fn counts(&self) -> Counts {
        let state = self.shared.lock();
        let (waiting, spares) = (state.segments.len() as u64, state.spares.len() as u64);
        Counts { waiting, spares, ..state.counts }
    }

    /// Ends the thread; the segments that were made and not taken, and the files kept to be used again.
    pub(crate) fn end(&self) -> (Vec<u64>, Vec<String>) {
        self.shared.lock().ending = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It does not panic; if it did, there would be nothing to add.
            let _ = thread.join();
        }
        let mut state = self.shared.lock();
        let segments = mem::take(&mut state.segments).into_iter().map(|(number, _)| number);
        (segments.collect(), mem::take(&mut state.spares))
    }
}

impl<S: Storage> Drop for Ahead<S> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<S: Storage> Shared<S> {
    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State<S>>) -> MutexGuard<'a, State<S>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, current: Arc<S::File>) {
        let most = usize::try_from(self.making.layout.segment_bytes).unwrap_or(CHUNK);
        let zeros = Blocks::zeroed(CHUNK.min(most));
        let mut file = current;
        let mut state = self.lock();
        loop {
            if state.ending {
                return;
            }
            if state.failure.is_some() || state.ready >= state.wanted {
                state = self.wait(state);
                continue;
            }
            let ready = state.ready;
            if self.making.layout.offset(ready) == 0 {
                let segment = self.making.layout.segment(ready);
                let spare = state.spares.pop();
                drop(state);
                let made = match spare {
                    Some(spare) => match self.use_again(segment, &spare) {
                        Ok(made) => Ok((made, true)),
                        Err(failure) => {
                            // Without room it is as it was, and used when there is some.
                            if *failure.kind() == LogErrorKind::StorageFull {
                                self.lock().spares.insert(0, spare);
                            }
                            Err(failure)
                        }
                    },
                    None => {
                        let made = make_segment(&*self.storage, &self.making, segment);
                        made.map(|made| (made, false))
                    }
                };
                state = self.lock();
                match made {
                    Ok(((made, ready), again)) => {
                        file = Arc::new(made);
                        state.segments.push_back((segment, Arc::clone(&file)));
                        state.ready = ready;
                        state.counts.recycled += u64::from(again);
                        state.counts.made += u64::from(!again);
                    }
                    Err(failure) => state.failure = Some(failure),
                }
            } else {
                drop(state);
                let end = self.making.layout.end(self.making.layout.segment(ready));
                let size = CHUNK.min(usize::try_from(end - ready).unwrap_or(CHUNK));
                let offset = self.making.layout.offset(ready);
                let written = file.write(&zeros[..size], offset, false);
                state = self.lock();
                match written {
                    Ok(()) => {
                        state.ready = ready + size as u64;
                        state.counts.prewritten += size as u64;
                    }
                    Err(error) => {
                        let segment = self.making.layout.segment(ready);
                        let path = self.storage.path().join(segments::name_of(segment));
                        let failure = LogError::system("write ahead to", &path, error);
                        state.failure = Some(failure.at(segment, offset));
                    }
                }
            }
            self.changed.notify_all();
        }
    }

    /// A segment's file out of one that was given up, and the frontier in it.
    fn use_again(&self, segment: u64, spare: &str) -> Result<(S::File, u64), LogError> {
        let storage = &*self.storage;
        let path = storage.path().join(spare);
        let failed = |tried| {
            let path = path.clone();
            move |error| LogError::system(tried, &path, error).at(segment, 0)
        };
        // For reading: to open it for writing would lock it, and it may be part of a copy that has a writer.
        let file = storage.open(spare, false).map_err(failed("use again"))?;
        if file.is_linked().map_err(failed("look at"))? {
            // Somebody keeps what it holds.
            storage.remove(spare).map_err(failed("remove"))?;
            return make_segment(storage, &self.making, segment);
        }
        let file = storage.open(spare, true).map_err(failed("use again"))?;
        begin(&file, &self.making, segment).map_err(failed("make room for"))?;
        let written = written_until(&file, FIRST_BATCH, self.making.layout.segment_bytes)
            .map_err(failed("look at the blocks of"))?;
        storage.rename(spare, &segments::name_of(segment)).map_err(failed("rename"))?;
        storage.sync_names().map_err(failed("rename"))?;
        let ready = match self.making.prewriting {
            Prewriting::On => segment * self.making.layout.segment_bytes + written,
            _ => self.making.layout.end(segment),
        };
        Ok((file, ready))
    }
}

/// A segment's file that did not exist before, and the frontier in it.
pub(crate) fn make_segment<S: Storage>(
    storage: &S,
    making: &Making,
    segment: u64,
) -> Result<(S::File, u64), LogError> {
    let path = storage.path().join(segments::name_of(segment));
    let failed = |tried| {
        let path = path.clone();
        move |error| LogError::system(tried, &path, error).at(segment, 0)
    };
    match storage.remove(NAME_WHILE_NEW) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let left = storage.path().join(NAME_WHILE_NEW);
            return Err(LogError::system("remove", &left, error).at(segment, 0));
        }
        _ => {}
    }
    let file = storage.create(NAME_WHILE_NEW).map_err(failed("create"))?;
    let made = begin(&file, making, segment).and_then(|()| {
        storage.rename(NAME_WHILE_NEW, &segments::name_of(segment))?;
        storage.sync_names()
    });
    if let Err(error) = made {
        // Its room, which others may need.
        let _ = storage.remove(NAME_WHILE_NEW);
        return Err(failed("make room for")(error));
    }
    let ready = match making.prewriting {
        Prewriting::On => making.layout.first_batch(segment),
        _ => making.layout.end(segment),
    };
    Ok((file, ready))
}

/// Gives a file its room and the segment's header.
fn begin<F: StoredFile>(
    file: &F,
    Making { layout, epoch, prewriting, header }: &Making,
    segment: u64,
) -> io::Result<()> {
    if *prewriting == Prewriting::On {
        // All the room at once: a full disk shows now, and writing zeros into it needs no lock alone.
        file.allocate(layout.segment_bytes)?;
    }
    let mut block = Blocks::zeroed(BLOCK);
    SegmentHeader { layout: *layout, segment, epoch: *epoch }.encode(&mut block);
    if !header.is_empty() {
        put_user_header(&mut block, header);
    }
    file.write(&block, 0, true)?;
    file.sync()
}

/// Up to which offset a file consists of written blocks, from `offset` on.
pub(crate) fn written_until<F: StoredFile>(file: &F, offset: u64, end: u64) -> io::Result<u64> {
    let mut written = offset;
    while written < end {
        match file.extent(written)? {
            Some(extent) if extent.written => written = extent.end.min(end),
            _ => break,
        }
    }
    Ok(written - written % BLOCK as u64)
}
