//! Plain files under the workload: what a program does that has no log.
//!
//! One thread at a time writes its record, in whole blocks by O_DIRECT, and then syncs the file on its own if
//! every commit is to be synced. When the file is full, writing starts over at its beginning.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};

use crossbeam_utils::CachePadded;
use fairlock::Mutex;

use super::{Log, SYNC_INTERVAL, SharedLog, Syncing, failed, segment_bytes};
use crate::error::{LabError, Violation};
use crate::workloads::Failure;
use crate::world::scratch::{AlignedBuffer, BLOCK_BYTES, Scratch, set_stamp, stamp};

/// Zeros written at a time.
const FILL_BYTES: usize = 1 << 20;

/// What is done to a file before it is appended to.
pub(super) trait Preparation: Send + Sync + 'static {
    /// Whether all its space is allocated from the beginning.
    const ALLOCATES: bool;
    /// Whether all of that has been written, so that it is overwritten from then on.
    const WRITES: bool;
}

/// The file grows.
pub(super) struct Growing;
/// The file is as long as it will be, and its blocks are marked as never written.
pub(super) struct Allocated;
/// Its blocks were written, too.
pub(super) struct Prewritten;

impl Preparation for Growing {
    const ALLOCATES: bool = false;
    const WRITES: bool = false;
}

impl Preparation for Allocated {
    const ALLOCATES: bool = true;
    const WRITES: bool = false;
}

impl Preparation for Prewritten {
    const ALLOCATES: bool = true;
    const WRITES: bool = true;
}

/// A file of records, each in blocks of its own and stamped with its number.
pub(super) struct Plain<P> {
    scratch: Arc<Scratch>,
    params: Log,
    directory: PathBuf,
    /// Bytes in the file for each record.
    record_room: u64,
    /// Records in the file before it starts over.
    lap: u64,
    /// The next record's number; held while it is written. A fair lock, so that no thread's longest append is
    /// a matter of luck.
    next: Mutex<u64>,
    /// How often it started over.
    rounds: CachePadded<AtomicU64>,
    /// Records written.
    written: CachePadded<AtomicU64>,
    _syncing: Option<SyncingThread>,
    preparation: std::marker::PhantomData<P>,
}

impl<P: Preparation> Plain<P> {
    fn allocate(&self) -> Result<(), LabError> {
        use std::os::fd::AsRawFd;
        let length = (self.lap * self.record_room).cast_signed();
        // SAFETY: a system call on an open file.
        let answer = unsafe { libc::fallocate(self.scratch.file.as_raw_fd(), 0, 0, length) };
        if answer == 0 {
            return Ok(());
        }
        Err(failed("allocate space for", &self.directory, io::Error::last_os_error()))
    }

    fn prepare(&self) -> Result<(), LabError> {
        if P::ALLOCATES {
            self.allocate()?;
        }
        if P::WRITES {
            let mut zeros = AlignedBuffer::new(FILL_BYTES);
            let length = self.lap * self.record_room;
            for offset in (0..length).step_by(FILL_BYTES) {
                let size = (length - offset).min(FILL_BYTES as u64) as usize;
                self.scratch.write(&zeros.bytes()[..size], offset)?;
            }
        }
        let synced = self.scratch.file.sync_all();
        synced.map_err(|error| failed("sync", &self.directory, error))
    }

    /// Gives all blocks back, where they were not written for good.
    #[cold]
    fn start_over(&self) -> Result<(), LabError> {
        // Release: pairs with the loads in `read_tail`, which then expects nothing.
        self.rounds.fetch_add(1, Ordering::Release);
        if P::WRITES {
            return Ok(());
        }
        let shortened = self.scratch.file.set_len(0);
        shortened.map_err(|error| failed("start over", &self.directory, error))?;
        if P::ALLOCATES { self.allocate() } else { Ok(()) }
    }

    fn offset(&self, number: u64) -> u64 {
        number % self.lap * self.record_room
    }
}

impl<P: Preparation> SharedLog for Plain<P> {
    type Appender = AlignedBuffer;
    type Tail = AlignedBuffer;
    const SYNCS: &'static [Syncing] = &Syncing::ALL;

    fn create(params: &Log, directory: &Path) -> Result<Plain<P>, LabError> {
        let scratch = Arc::new(Scratch::create(directory)?);
        let record_room = u64::from(params.record_bytes).next_multiple_of(BLOCK_BYTES as u64);
        let syncing = match params.sync {
            Syncing::Interval => {
                let started = SyncingThread::start(Arc::clone(&scratch));
                Some(started.map_err(|error| failed("sync", directory, error))?)
            }
            _ => None,
        };
        let log = Plain {
            scratch,
            params: params.clone(),
            directory: directory.to_owned(),
            record_room,
            lap: segment_bytes(params.read_bytes) / record_room,
            next: Mutex::new(0),
            rounds: CachePadded::new(AtomicU64::new(0)),
            written: CachePadded::new(AtomicU64::new(0)),
            _syncing: syncing,
            preparation: std::marker::PhantomData,
        };
        log.prepare()?;
        let mut appender = log.appender();
        let tail = if params.readers > 0 { u64::from(params.read_bytes) } else { 0 };
        for _ in 0..tail.div_ceil(record_room) {
            log.write(&mut appender)?;
        }
        Ok(log)
    }

    fn appender(&self) -> AlignedBuffer {
        AlignedBuffer::new(self.record_room as usize)
    }

    fn append(&self, appender: &mut AlignedBuffer) -> Result<(), Failure> {
        self.write(appender)?;
        if self.params.sync == Syncing::EveryCommit {
            let synced = self.scratch.file.sync_data();
            synced.map_err(|error| failed("sync", &self.directory, error))?;
        }
        Ok(())
    }

    fn tail(&self) -> Result<AlignedBuffer, LabError> {
        let most = u64::from(self.params.read_bytes).max(self.record_room);
        Ok(AlignedBuffer::new(most as usize))
    }

    fn read_tail(&self, tail: &mut AlignedBuffer) -> Result<Option<u64>, Failure> {
        let rounds = self.rounds.load(Ordering::Acquire);
        // Acquire: pairs with the store in `write`.
        let newest = self.written.load(Ordering::Acquire) - 1;
        let position = self.offset(newest);
        let end = position + self.record_room;
        let bytes = tail.bytes();
        // Just after it has started over there is less.
        let offset = end.saturating_sub(bytes.len() as u64);
        let length = (end - offset) as usize;
        let Some(()) = self.scratch.read_or_end(&mut bytes[..length], offset)? else {
            return Ok(None);
        };
        let found = stamp(&bytes[(position - offset) as usize..]);
        if self.rounds.load(Ordering::Acquire) != rounds {
            return Ok(None);
        }
        if found != newest {
            return Err(Violation::StaleBlock { expected: newest, found }.into());
        }
        Ok(Some(length as u64))
    }
}

impl<P: Preparation> Plain<P> {
    fn write(&self, appender: &mut AlignedBuffer) -> Result<(), LabError> {
        let mut next = self.next.lock();
        let number = *next;
        if number > 0 && number.is_multiple_of(self.lap) {
            self.start_over()?;
        }
        set_stamp(appender.bytes(), number);
        self.scratch.write(appender.bytes(), self.offset(number))?;
        *next = number + 1;
        // Release: pairs with the load in `read_tail`, which may read this record from now on.
        self.written.store(number + 1, Ordering::Release);
        Ok(())
    }
}

/// Syncs a file now and then, until it is dropped.
struct SyncingThread {
    ending: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SyncingThread {
    fn start(scratch: Arc<Scratch>) -> io::Result<SyncingThread> {
        let (ending, ended) = mpsc::channel::<()>();
        let thread = thread::Builder::new().spawn(move || {
            while ended.recv_timeout(SYNC_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // A disk that fails also fails the appends.
                let _ = scratch.file.sync_data();
            }
        })?;
        Ok(SyncingThread { ending: Some(ending), thread: Some(thread) })
    }
}

impl Drop for SyncingThread {
    fn drop(&mut self) {
        drop(self.ending.take());
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, there would be nothing to add.
            let _ = thread.join();
        }
    }
}
