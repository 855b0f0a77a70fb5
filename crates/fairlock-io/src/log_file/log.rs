//! The log itself, over any storage: appending, syncing, giving up, closing.

use std::io::{self, IoSlice};
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fairlock::{Mutex, MutexGuard};

use super::ahead::{self, Ahead};
use super::appending::{AppendOptions, SubmittedAll};
use super::batch::{Append, Batch, Measured};
use super::blocks::Blocks;
use super::checkpoint::{self, Checkpoint, Until};
use super::completion::{Completer, Completion};
use super::control::{self, Control, Written};
use super::cutting::{Cover, Cut, no_record};
use super::disk::Disk;
use super::error::{LogError, LogErrorKind};
use super::format::{BLOCK, FIRST_BATCH, Kind, Layout, RECORD_HEADER, record_room};
use super::group::{Group, Ticket};
use super::metrics::{Began, LogMetrics, Recording};
use super::opening::{self, Opened, Place, SPARES};
use super::options::{LogOptions, Prewriting, Recovery, SyncPolicy, largest_record};
use super::position::Position;
use super::process::Process;
use super::progress::Progress;
use super::reader::Reader;
use super::repair;
use super::retention::{self, GivenUp, Limits, Retaining};
use super::segments;
use super::storage::{Storage, StoredFile};
use super::unsynced::{Left, Oldest, Unsynced};
use super::view::View;

/// What threads that read single records leave for the next ones, at most: each has a segment open.
const SINGLES: usize = 16;

/// How many logs this process has opened.
static OPENINGS: AtomicU64 = AtomicU64::new(0);

/// A log that is open for appending.
pub(crate) struct Log<S: Storage> {
    inner: Arc<Inner<S>>,
    /// Used by nobody now.
    singles: Mutex<Vec<View<S>>>,
    completer: Completer,
    syncing: Option<JoinHandle<()>>,
    retaining: Option<JoinHandle<()>>,
    recovery: Recovery,
    closed: bool,
}

struct Inner<S: Storage> {
    /// The first that is dropped: its thread has ended before the lock lets in another writer.
    ahead: Ahead<S>,
    storage: Arc<S>,
    control: Arc<Written<S::Page>>,
    layout: Layout,
    epoch: u32,
    lineage: u64,
    options: LogOptions,
    prewriting: Prewriting,
    group: Group<Batch, LogError>,
    /// What the leader of the group uses.
    tail: Mutex<Tail<S>>,
    /// Changed before anything in a segment is committed.
    unsynced: Unsynced<S::File>,
    to_syncing: Sender<Syncing>,
    /// Held while files are synced: the system tells of a failure once, and everybody has to hear of it.
    /// Who holds it does not wait for `tail`.
    syncs: Mutex<()>,
    /// The system could not sync what had been acknowledged.
    sync_failed: AtomicBool,
    /// Others have removed or replaced files of the log: another writer may have been let in.
    displaced: AtomicBool,
    /// Where this opening began.
    opened_at: u64,
    commits: AtomicU64,
    /// The control page says where the log was closed before this opening.
    says_closed: AtomicBool,
    /// The control page says that readers may have seen what is not on the device. Used with `tail`.
    says_shown: AtomicBool,
    recording: Recording,
    /// The segment that is being written, for those who do not hold `tail`.
    current: AtomicU64,
    limits: Limits,
    to_retaining: Sender<Retaining>,
    /// Held by who gives up segments.
    giving_up: Mutex<GivingUp>,
    /// The process that opened it.
    process: Process,
    /// Which opening this is, of all in this process.
    number: u64,
    /// The last that is dropped.
    lock: S::Lock,
}

/// What is known to who gives up segments.
struct GivingUp {
    /// The number of the next spare.
    next_spare: u64,
    /// All segments before are gone.
    oldest: u64,
    /// Where the log begins, as the device has it.
    first: u64,
    /// The file that only takes room was given up.
    reserve_used: bool,
}

/// What the thread is told that syncs.
enum Syncing {
    /// There is a file to be synced.
    SegmentLeft,
    /// The log is closed.
    Ends,
}

/// Where the next batch goes.
struct Tail<S: Storage> {
    segment: u64,
    file: Arc<S::File>,
    /// Of the last batch, or where the rest of its segment was ended.
    end: u64,
    /// Begins what this opening appends: written before anything else, when something is appended. A full
    /// disk does not keep the log from being opened.
    opening: Option<Batch>,
    /// Where the frontier was last asked to go.
    wanted: u64,
    /// The last write failed, and may have arrived: the next one must replace it on the device, before
    /// anything behind it makes what failed a part of the log.
    has_failed: bool,
    block: Blocks,
}

/// A record that was submitted, and is not yet known to be committed: see
/// [`LogFile::submit`](crate::LogFile::submit).
#[derive(Debug, Clone, Copy)]
#[must_use = "whether it was committed is known when it is waited for"]
pub struct Submitted {
    position: Position,
    ticket: Ticket,
    began: Began,
    /// Of the opening that it was given to.
    opening: u64,
}

impl Submitted {
    /// Where the record is, if it is committed.
    pub fn position(&self) -> Position {
        self.position
    }
}

/// A few figures of an open log, which are cheap enough to be looked at often; all are in
/// [`LogMetrics`](crate::LogMetrics).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStats {
    /// Writes of batches since it was opened, that which begins the opening included.
    pub commits: u64,
    /// Zeros written ahead since then, bytes.
    pub prewritten_bytes: u64,
    /// Segments that were used again since then.
    pub recycled_segments: u64,
    /// How often an append waited until blocks were written ahead.
    pub stalls: u64,
}

impl<S: Storage> Log<S> {
    pub(crate) fn open(storage: S, options: LogOptions) -> Result<Log<S>, LogError> {
        let storage = Arc::new(storage);
        let path = storage.path().to_owned();
        let cannot = |tried: &'static str| {
            let path = path.clone();
            move |error: io::Error| LogError::system(tried, &path, error)
        };
        let repaired = match options.create_new {
            true => None,
            false => repair::before_opening(&storage, options.open_mode)?,
        };
        let opened = opening::open(&storage, &options)?;
        let Opened { lock, control, making, lineage, end, place, mut recovery, .. } = opened;
        if let Some(repaired) = repaired {
            recovery.damages = repaired.damages;
            recovery.cut_at = repaired.cut_at;
            recovery.saved = repaired.saved;
        }
        let (epoch, prewriting) = (making.epoch, making.prewriting.clone());
        let Place { segment, file, ready } = place;
        let layout = control.layout();
        let file = Arc::new(file);

        let ahead =
            Ahead::start(Arc::clone(&storage), making, Arc::clone(&file), ready, opened.spares)
                .map_err(cannot("start a thread for"))?;
        let opening = Batch::new(layout, epoch, BLOCK, end);
        let batch = |end| Batch::new(layout, epoch, options.batch_bytes, end);
        let after = opening.end();
        let tail = Tail {
            segment,
            file: Arc::clone(&file),
            end: end.min(layout.end(segment)),
            opening: Some(opening),
            wanted: ready,
            has_failed: false,
            block: Blocks::zeroed(BLOCK),
        };
        let first = control.first();
        let (to_syncing, told) = mpsc::channel();
        let (to_retaining, left) = mpsc::channel();
        let inner = Arc::new(Inner {
            storage,
            control: Arc::new(control),
            layout,
            epoch,
            lineage,
            prewriting,
            group: Group::new(batch(after), batch(after)),
            tail: Mutex::new(tail),
            unsynced: Unsynced::new(file),
            to_syncing,
            ahead,
            syncs: Mutex::new(()),
            sync_failed: AtomicBool::new(false),
            displaced: AtomicBool::new(false),
            opened_at: end,
            commits: AtomicU64::new(0),
            says_closed: AtomicBool::new(true),
            says_shown: AtomicBool::new(options.sync != SyncPolicy::EveryCommit),
            recording: Recording::new(),
            current: AtomicU64::new(segment),
            limits: Limits::of(&options),
            to_retaining,
            giving_up: Mutex::new(GivingUp {
                next_spare: opened.next_spare,
                oldest: layout.segment_before(first),
                first,
                reserve_used: false,
            }),
            options,
            process: Process::current(),
            number: OPENINGS.fetch_add(1, Ordering::Relaxed),
            lock,
        });
        let syncing = match inner.options.sync {
            SyncPolicy::EveryCommit => None,
            SyncPolicy::Interval(interval) => Some(inner.start_syncing(told, Some(interval))),
            SyncPolicy::Never => Some(inner.start_syncing(told, None)),
        };
        let syncing = syncing.transpose().map_err(cannot("start a thread for"))?;
        let mut log = Log {
            inner,
            singles: Mutex::new(Vec::new()),
            completer: Completer::default(),
            syncing,
            retaining: None,
            recovery,
            closed: false,
        };
        if !log.inner.limits.is_none() {
            // A failure is in the figures, and no reason not to append.
            let _ = log.inner.retain();
            let inner = Arc::clone(&log.inner);
            let apply = move || _ = inner.retain();
            log.retaining =
                Some(retention::start(left, apply).map_err(cannot("start a thread for"))?);
        }
        Ok(log)
    }

    pub(crate) fn submit(&self, slices: &[IoSlice<'_>]) -> Result<Submitted, LogError> {
        self.submit_with(slices, &AppendOptions::new())
    }

    pub(crate) fn submit_with(
        &self,
        slices: &[IoSlice<'_>],
        options: &AppendOptions,
    ) -> Result<Submitted, LogError> {
        let inner = &self.inner;
        let record = Measured::of(slices);
        let most = largest_record(inner.layout.segment_bytes);
        if record.length() > most {
            return Err(inner.too_large(record.length(), most));
        }
        inner.submit(&[record], inner.append(options))
    }

    pub(crate) fn submit_all(
        &self,
        records: &[&[u8]],
        options: &AppendOptions,
    ) -> Result<SubmittedAll, LogError> {
        let inner = &self.inner;
        if records.is_empty() {
            return Ok(SubmittedAll { last: None, positions: Vec::new() });
        }
        let slices: Vec<_> = records.iter().map(|record| [IoSlice::new(record)]).collect();
        let measured: Vec<_> = slices.iter().map(|slices| Measured::of(slices)).collect();
        // Together they take no more than the largest record does.
        let bytes = measured.iter().map(|record| record_room(record.length())).sum();
        let most = largest_record(inner.layout.segment_bytes);
        let most_together = most + RECORD_HEADER;
        if bytes > most_together {
            let too_large = LogErrorKind::TooLargeTogether { bytes, most: most_together };
            return Err(LogError::new(too_large, inner.storage.path()));
        }
        let first = inner.submit(&measured, inner.append(options))?;
        let mut next = first.position.get();
        let mut positions = Vec::with_capacity(records.len());
        for record in &measured {
            positions.push(Position::new(next));
            next += record_room(record.length()) as u64;
        }
        let last = positions.last().map(|&position| Submitted { position, ..first });
        Ok(SubmittedAll { last, positions })
    }

    /// What became of the record is told by a call.
    pub(crate) fn notify(
        &self,
        submitted: Submitted,
        done: Box<dyn FnOnce(Result<Position, LogError>) + Send>,
    ) -> Result<(), LogError> {
        self.inner.check_process()?;
        let inner = Arc::downgrade(&self.inner);
        let path = self.path().to_owned();
        let wait = move |submitted| match inner.upgrade() {
            Some(inner) => inner.wait(submitted),
            // The log waits for all calls before it ends.
            None => Err(LogError::new(LogErrorKind::OtherLog, &path)),
        };
        self.completer
            .hand_over(submitted, done, wait)
            .map_err(|error| LogError::system("start a thread for", self.path(), error))
    }

    pub(crate) fn completion(&self, submitted: Submitted) -> Result<Completion, LogError> {
        let (completion, done) = Completion::new();
        self.notify(submitted, done)?;
        Ok(completion)
    }

    pub(crate) fn wait(&self, submitted: Submitted) -> Result<Position, LogError> {
        self.inner.check_process()?;
        self.inner.wait(submitted)
    }

    pub(crate) fn sync(&self) -> Result<(), LogError> {
        let inner = &self.inner;
        inner.check_process()?;
        let submitted = inner.group.flush_and_tell(|batch| inner.write(batch));
        // What could not be written does not keep the rest from the device.
        inner.sync()?;
        submitted
    }

    pub(crate) fn committed(&self) -> Position {
        Position::new(self.inner.control.committed_for_all())
    }

    pub(crate) fn durable(&self) -> Position {
        Position::new(self.inner.control.durable_for_all())
    }

    pub(crate) fn first(&self) -> Position {
        Position::new(self.inner.control.first())
    }

    pub(crate) fn reader(&self) -> Result<Reader<S>, LogError> {
        // Its own: it may outlive the log.
        let control = Control::open(&*self.inner.storage, false)?;
        let progress = Progress::new(Arc::new(control), None)?;
        Reader::with(Arc::clone(&self.inner.storage), progress)
    }

    /// The record at `position`.
    pub(crate) fn read(&self, position: Position) -> Result<Vec<u8>, LogError> {
        let kept = self.singles.lock().pop();
        let mut view = kept.unwrap_or_else(|| {
            let progress = Progress::of_writer(Arc::clone(&self.inner.control));
            View::for_singles(Arc::clone(&self.inner.storage), progress)
        });
        let read = view.read(position);
        let mut singles = self.singles.lock();
        if singles.len() < SINGLES {
            singles.push(view);
        }
        read
    }

    pub(crate) fn truncate_before(&self, position: Position) -> Result<(), LogError> {
        self.inner.check_process()?;
        self.inner.truncate_before(position)
    }

    pub(crate) fn truncate_after(&self, position: Position) -> Result<(), LogError> {
        self.inner.check_process()?;
        self.inner.truncate_after(position)?;
        // They may have read what is no longer there.
        self.singles.lock().clear();
        Ok(())
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.inner.epoch
    }

    pub(crate) fn lineage(&self) -> u64 {
        self.inner.lineage
    }

    pub(crate) fn retain(&self) -> Result<GivenUp, LogError> {
        self.inner.check_process()?;
        self.inner.retain()
    }

    pub(crate) fn prewriting(&self) -> &Prewriting {
        &self.inner.prewriting
    }

    pub(crate) fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    pub(crate) fn options(&self) -> &LogOptions {
        &self.inner.options
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.inner.layout.segment_bytes
    }

    pub(crate) fn path(&self) -> &Path {
        self.inner.storage.path()
    }

    /// Waits until the thread that makes segments has nothing to do.
    #[cfg(test)]
    pub(crate) fn settle(&self) {
        self.inner.ahead.settle();
    }

    pub(crate) fn stats(&self) -> LogStats {
        let counts = self.inner.ahead.counts();
        LogStats {
            commits: self.inner.commits.load(Ordering::Relaxed),
            prewritten_bytes: counts.prewritten,
            recycled_segments: counts.recycled,
            stalls: counts.stalls,
        }
    }

    pub(crate) fn metrics(&self) -> LogMetrics {
        let inner = &self.inner;
        let mut metrics = inner.recording.snapshot();
        let counts = inner.ahead.counts();
        metrics.prewritten_bytes = counts.prewritten;
        metrics.stalls = counts.stalls;
        let segments = &mut metrics.segments;
        let first = inner.layout.segment_before(inner.control.first());
        let current = inner.current.load(Ordering::Acquire);
        segments.present = (current + 1).saturating_sub(first) + counts.waiting;
        segments.spares = counts.spares;
        segments.made = counts.made;
        segments.used_again = counts.recycled;
        metrics
    }

    /// Commits and syncs everything, and gives back what was made ahead.
    pub(crate) fn close(mut self) -> Result<(), LogError> {
        self.inner.check_process()?;
        self.closed = true;
        self.completer.end();
        self.end_threads();
        let inner = &self.inner;
        // What could not be written is said at the end: it is no reason not to close the rest.
        let submitted = inner.group.flush_and_tell(|batch| inner.write(batch));
        inner.sync()?;
        inner.check_in_place()?;
        let path = inner.storage.path().to_owned();
        let cannot = |tried: &'static str| {
            let path = path.clone();
            move |error: io::Error| LogError::system(tried, &path, error)
        };
        let (segments, spares) = inner.ahead.end();
        for name in segments.into_iter().map(segments::name_of).chain(spares) {
            segments::remove(&*inner.storage, &name).map_err(cannot("remove a file of"))?;
        }
        inner.storage.sync_names().map_err(cannot("sync"))?;
        let tail = inner.tail.lock();
        inner.cover_cut(&tail)?;
        let end = inner.control.committed();
        // What ends where a segment ends does not end in the one that was begun.
        if inner.layout.segment(end) == tail.segment {
            let length = inner.layout.offset(end).max(FIRST_BATCH);
            tail.file.set_len(length).map_err(cannot("trim"))?;
        }
        opening::with_reserve(&*inner.storage, || {
            inner.control.set_closed(Some(end))?;
            inner.control.sync()
        })?;
        drop(tail);
        let control = Arc::clone(&inner.control);
        drop(self);
        // Who follows the log learns now that nobody has it open.
        control.control().wake();
        submitted
    }

    /// Ends the threads that sync and that give up segments.
    fn end_threads(&mut self) {
        if let Some(thread) = self.retaining.take() {
            // As for the other.
            let _ = self.inner.to_retaining.send(Retaining::Ends);
            let _ = thread.join();
        }
        if let Some(thread) = self.syncing.take() {
            // It listens until it is told so.
            let _ = self.inner.to_syncing.send(Syncing::Ends);
            // It does not panic; if it did, there would be nothing to add.
            let _ = thread.join();
        }
    }
}

/// Checkpoints, which links between two directories of the real storage make.
impl Log<Disk> {
    pub(crate) fn checkpoint(&self, directory: &Path) -> Result<Checkpoint, LogError> {
        let inner = &self.inner;
        inner.check_process()?;
        // Here, where a failure is heard of by all who have to.
        inner.sync()?;
        checkpoint::make(self.reader()?.into_view(), Until::Durable, directory)
    }
}

impl<S: Storage> Drop for Log<S> {
    fn drop(&mut self) {
        if self.inner.check_process().is_err() {
            // In the child of a fork there are no threads to be ended, and the lock is the parent's.
            mem::forget((self.syncing.take(), self.retaining.take()));
            mem::forget(Arc::clone(&self.inner));
            return;
        }
        self.completer.end();
        self.end_threads();
        let inner = &self.inner;
        if !self.closed && !inner.group.is_broken() {
            // Who wants to know calls `close`.
            inner.group.flush(|batch| inner.write(batch));
        }
        // Before the lock ends.
        self.inner.ahead.end();
    }
}

impl<S: Storage> Inner<S> {
    fn submit(&self, records: &[Measured<'_>], append: Append) -> Result<Submitted, LogError> {
        self.check()?;
        let began = self.recording.now();
        let (position, ticket) =
            self.group.submit(|batch| batch.add(records, append), |batch| self.write(batch));
        let position = Position::new(position);
        Ok(Submitted { position, ticket, began, opening: self.number })
    }

    fn append(&self, options: &AppendOptions) -> Append {
        let durable = options.durable.unwrap_or(self.options.sync == SyncPolicy::EveryCommit);
        Append { key: options.key, durable }
    }

    fn wait(&self, submitted: Submitted) -> Result<Position, LogError> {
        if submitted.opening != self.number {
            return Err(LogError::new(LogErrorKind::OtherLog, self.storage.path()));
        }
        let was_committed = self.control.committed() > submitted.position.get();
        self.group.wait(submitted.ticket, |batch| self.write(batch))?;
        self.recording.appended(submitted.began, was_committed);
        Ok(submitted.position)
    }

    #[cold]
    fn too_large(&self, bytes: usize, most: usize) -> LogError {
        LogError::new(LogErrorKind::TooLarge { bytes, most }, self.storage.path())
    }

    /// Writes a batch and lets everybody see it. Called by one thread at a time.
    fn write(&self, batch: &mut Batch) -> Result<(), LogError> {
        self.write_batch(batch).inspect_err(|error| self.recording.commit_failed(error))
    }

    fn write_batch(&self, batch: &mut Batch) -> Result<(), LogError> {
        self.check_process()?;
        self.check()?;
        let tail = &mut *self.tail.lock();
        if let Some(mut opening) = tail.opening.take() {
            if let Err(error) = self.write_next(tail, &mut opening, Kind::Opening) {
                tail.opening = Some(opening);
                return Err(error);
            }
        }
        self.forget_close()?;
        self.write_next(tail, batch, Kind::Records)
    }

    /// Once the opening is written. Not before: what a failed append has left behind the place where the log was
    /// closed is no part of it, and is overwritten by that.
    fn forget_close(&self) -> Result<(), LogError> {
        if self.says_closed.load(Ordering::Relaxed) {
            self.control.set_closed(None)?;
            self.control.sync()?;
            self.says_closed.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn write_next(
        &self,
        tail: &mut Tail<S>,
        batch: &mut Batch,
        kind: Kind,
    ) -> Result<(), LogError> {
        if batch.segment() != tail.segment {
            self.leave_segment(tail, batch.segment())?;
        }
        let end = batch.end();
        let target = self.ahead_of(end);
        if target >= tail.wanted + ahead::CHUNK as u64 || end > tail.wanted {
            tail.wanted = target;
            self.ahead.want(target);
        }
        self.ahead.wait_for(end)?;
        let offset = self.layout.offset(batch.start());
        // What is behind an opening is believed because that is there.
        let durable = batch.is_durable() || kind == Kind::Opening;
        if !durable && !self.says_shown.load(Ordering::Relaxed) {
            // Before somebody sees what the loss of power may take: see `opening.rs`.
            self.control.set_shown()?;
            self.control.sync()?;
            self.says_shown.store(true, Ordering::Relaxed);
        }
        // A write that is durable says nothing of those before it.
        let alone = durable && self.control.durable() >= self.control.committed();
        let bytes = batch.seal(kind, self.control.durable());
        let has_failed = mem::replace(&mut tail.has_failed, true);
        let began = self.recording.now();
        let written = tail.file.write(bytes, offset, alone || has_failed);
        self.recording.wrote(began, bytes.len(), written.is_ok());
        written.map_err(|error| self.cannot("append to", tail.segment, offset, error))?;
        if durable && !alone {
            let turn = self.syncs.lock();
            while self.sync_oldest_left(&turn)? {}
            self.sync_file(&turn, &tail.file, tail.segment)?;
        }
        let page = self.control.control().page();
        self.must_be_in_place(self.storage.is_intact(&self.lock, page))?;
        self.must_be_in_place(tail.file.is_named())?;
        self.control.commit(end, durable)?;
        tail.has_failed = false;
        tail.end = end;
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.recording.committed(batch);
        Ok(())
    }

    /// How far blocks are to be written when the log ends at `end`: twice as far as was appended since the
    /// log was opened, at most a segment.
    fn ahead_of(&self, end: u64) -> u64 {
        let appended = end - self.opened_at.min(end);
        end + (2 * appended).max(ahead::CHUNK as u64).min(self.layout.segment_bytes)
    }

    /// Ends the segment that was written so far, and goes on to the next.
    fn leave_segment(&self, tail: &mut Tail<S>, next: u64) -> Result<(), LogError> {
        debug_assert_eq!(next, tail.segment + 1);
        self.check_in_place()?;
        // Then the end of the segment is, too, and nothing of it waits to be synced: what is durable by itself in
        // the next segment has no gap before it.
        let durable = self.control.durable() >= self.control.committed();
        let offset = self.layout.offset(tail.end);
        if offset != 0 {
            // Or zeros that are written ahead come later than this.
            self.ahead.wait_for(tail.end + BLOCK as u64)?;
            let mut end = Batch::new(self.layout, self.epoch, BLOCK, tail.end);
            tail.block[..BLOCK].copy_from_slice(end.seal(Kind::End, self.control.durable()));
            let began = self.recording.now();
            let written = tail.file.write(&tail.block, offset, durable || tail.has_failed);
            self.recording.wrote(began, BLOCK, written.is_ok());
            written.map_err(|error| self.cannot("append to", tail.segment, offset, error))?;
            tail.has_failed = false;
            tail.end = self.layout.end(tail.segment);
        }
        let mut left = None;
        if !durable {
            if self.unsynced.is_full() {
                self.sync_oldest_left(&self.syncs.lock())?;
            }
            let (committed, file) = (self.control.committed(), Arc::clone(&tail.file));
            left = Some(Left { segment: tail.segment, committed, file });
        }
        let first = self.layout.first_batch(next) + BLOCK as u64;
        tail.wanted = tail.wanted.max(first);
        self.ahead.wait_for(first)?;
        tail.file = self.ahead.take(next);
        tail.segment = next;
        self.current.store(next, Ordering::Release);
        self.unsynced.go_on(left, Arc::clone(&tail.file));
        // If nobody listens any more, the log is being closed, and syncs all.
        let _ = self.to_syncing.send(Syncing::SegmentLeft);
        if !self.limits.is_none() {
            let _ = self.to_retaining.send(Retaining::SegmentLeft);
        }
        Ok(())
    }

    /// Syncs all that is committed.
    fn sync(&self) -> Result<(), LogError> {
        self.check()?;
        // In this order: if a segment is left meanwhile, what was committed in it is in a file that is
        // synced here.
        let committed = self.control.committed();
        if self.control.durable() >= committed {
            return Ok(());
        }
        let turn = self.syncs.lock();
        // Who was before may have failed, or have done all of it.
        self.check()?;
        while self.control.durable() < committed {
            if self.sync_oldest_left(&turn)? {
                continue;
            }
            let Oldest::Current(file) = self.unsynced.oldest() else { continue };
            self.sync_file(&turn, &file, self.layout.segment(committed))?;
            self.control.note_durable(committed)?;
        }
        Ok(())
    }

    /// Syncs the segments that were left.
    fn sync_left(&self) -> Result<(), LogError> {
        let turn = self.syncs.lock();
        self.check()?;
        while self.sync_oldest_left(&turn)? {}
        Ok(())
    }

    /// Syncs the segment that was left first; false if there is none.
    fn sync_oldest_left(&self, turn: &MutexGuard<'_, ()>) -> Result<bool, LogError> {
        let Oldest::Left(Left { segment, committed, file }) = self.unsynced.oldest() else {
            return Ok(false);
        };
        self.sync_file(turn, &file, segment)?;
        self.unsynced.forget(segment);
        self.control.note_durable(committed)?;
        Ok(true)
    }

    fn sync_file(
        &self,
        _turn: &MutexGuard<'_, ()>,
        file: &S::File,
        segment: u64,
    ) -> Result<(), LogError> {
        let began = self.recording.now();
        let synced = file.sync();
        self.recording.synced(began, synced.is_ok());
        synced.map_err(|error| {
            // Unless nothing that was acknowledged waits for this.
            if self.control.durable() < self.control.committed() {
                self.sync_failed.store(true, Ordering::Release);
            }
            self.cannot("sync", segment, 0, error)
        })
    }

    /// Whether the log can still be changed.
    fn check(&self) -> Result<(), LogError> {
        if self.sync_failed.load(Ordering::Acquire) {
            return Err(LogError::new(LogErrorKind::SyncFailed, self.storage.path()));
        }
        if self.displaced.load(Ordering::Acquire) {
            return Err(LogError::new(LogErrorKind::Displaced, self.storage.path()));
        }
        Ok(())
    }

    /// Looks whether the files that keep others from writing are there.
    fn check_in_place(&self) -> Result<(), LogError> {
        let page = self.control.control().page();
        self.must_be_in_place(self.storage.is_in_place(&self.lock, control::NAME, page))
    }

    /// If they are not, the log takes no more.
    fn must_be_in_place(&self, in_place: io::Result<bool>) -> Result<(), LogError> {
        let in_place = in_place.map_err(|error| {
            LogError::system("look at the files of", self.storage.path(), error)
        })?;
        if !in_place {
            self.displaced.store(true, Ordering::Release);
        }
        self.check()
    }

    /// Starts a thread that syncs segments that were left, and everything at intervals.
    fn start_syncing(
        self: &Arc<Self>,
        told: Receiver<Syncing>,
        interval: Option<Duration>,
    ) -> io::Result<JoinHandle<()>> {
        let inner = Arc::clone(self);
        thread::Builder::new().name("fairlock-sync".to_owned()).spawn(move || {
            // None: so far away that it never comes.
            let after = || interval.and_then(|interval| Instant::now().checked_add(interval));
            let mut next = after();
            loop {
                let heard = match next {
                    Some(next) => told.recv_timeout(next.saturating_duration_since(Instant::now())),
                    None => told.recv().map_err(RecvTimeoutError::from),
                };
                // Failures to sync are kept for the next append, those to write for who waits, syncs or closes.
                match heard {
                    Ok(Syncing::SegmentLeft) => {
                        let _ = inner.sync_left();
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        next = after();
                        inner.group.flush(|batch| inner.write(batch));
                        let _ = inner.sync();
                    }
                    Ok(Syncing::Ends) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        })
    }

    fn truncate_before(&self, position: Position) -> Result<(), LogError> {
        let giving_up = &mut *self.giving_up.lock();
        self.check()?;
        let position = position.get();
        let end = self.control.committed_for_all();
        if position > end {
            let (position, end) = (Position::new(position), Position::new(end));
            return Err(LogError::behind_end(position, end, self.storage.path()));
        }
        if position > self.control.first() {
            self.move_first(giving_up, position)?;
        }
        // Also what an earlier call could not give up.
        self.give_up_segments(giving_up)
    }

    /// Gives up the segments that the limits do not need.
    fn retain(&self) -> Result<GivenUp, LogError> {
        if self.limits.is_none() {
            return Ok(GivenUp::default());
        }
        let giving_up = &mut *self.giving_up.lock();
        let before = giving_up.oldest;
        let retained = self.apply_limits(giving_up);
        let segments = giving_up.oldest - before;
        self.recording.retained(segments, retained.as_ref().err().cloned());
        retained.map(|()| GivenUp { segments, bytes: segments * self.layout.segment_bytes })
    }

    fn apply_limits(&self, giving_up: &mut GivingUp) -> Result<(), LogError> {
        self.check()?;
        let layout = self.layout;
        let first = layout.segment_before(self.control.first());
        let committed = layout.segment_before(self.control.committed());
        let current = self.current.load(Ordering::Acquire);
        let kept = self.limits.first_kept(&*self.storage, layout, [first, committed, current])?;
        if kept > first {
            self.move_first(giving_up, layout.first_batch(kept))?;
        }
        // Also what an earlier call could not give up.
        self.give_up_segments(giving_up)
    }

    /// What is before the position is no part of the log any more.
    fn move_first(&self, giving_up: &mut GivingUp, position: u64) -> Result<(), LogError> {
        // Anything but a record's position would leave a log that begins with no record.
        let progress = Progress::of_writer(Arc::clone(&self.control));
        let mut reader = Reader::with(Arc::clone(&self.storage), progress)?;
        reader.set_read_bytes(BLOCK);
        reader.seek(Position::new(position))?;
        drop(reader);
        if self.control.durable() < position {
            // The loss of power must not leave a log that ends before it begins.
            self.sync()?;
        }
        if position > self.opened_at {
            // The log begins behind the place where it was closed: it does not end there any more.
            self.forget_close()?;
        }
        self.check_in_place()?;
        self.store_first(giving_up, position)
    }

    /// Brings to the device where the log begins.
    fn store_first(&self, giving_up: &mut GivingUp, position: u64) -> Result<(), LogError> {
        let mut tries = 0;
        opening::with_reserve(&*self.storage, || {
            tries += 1;
            self.control.set_first(position)?;
            self.control.sync()
        })?;
        giving_up.first = position;
        giving_up.reserve_used |= tries > 1;
        Ok(())
    }

    fn truncate_after(self: &Arc<Self>, position: Position) -> Result<(), LogError> {
        if position == Position::START {
            self.group.flush(|batch| self.write(batch));
            self.check_in_place()?;
            let first = self.control.first();
            opening::with_reserve(&*self.storage, || self.control.tell_of_cut(first))?;
            return self.truncate_before(Position::new(self.control.committed()));
        }
        // Segments stay where they are meanwhile, and so does the end.
        let giving_up = self.giving_up.lock();
        self.check()?;
        // What failed is not there to be cut off.
        self.group.flush(|batch| self.write(batch));
        let tail = self.tail.lock();
        self.check_in_place()?;
        // What an earlier call could not cover.
        self.cover_cut(&tail)?;
        // The page, once it is on the device, is believed: what stays must be there before.
        self.sync()?;
        let progress = Progress::of_writer(Arc::clone(&self.control));
        let mut reader = Reader::with(Arc::clone(&self.storage), progress)?;
        reader.seek(position)?;
        // The record itself stays.
        if reader.next()?.is_none_or(|record| record.position != position) {
            return Err(no_record(&*self.storage, position.get()));
        }
        let Some((batch, at)) = reader.next_batch()? else { return Ok(()) };
        let cut = Cut::of(&batch, at, self.control.committed());
        opening::with_reserve(&*self.storage, || self.control.begin_cut(&cut))?;
        self.cover_cut(&tail)?;
        drop((tail, giving_up));
        // Who waits at what was the end looks again.
        self.control.control().wake();
        Ok(())
    }

    /// Covers what was cut off, if that was not yet done.
    fn cover_cut(&self, tail: &Tail<S>) -> Result<(), LogError> {
        let Some(cut) = self.control.cut() else { return Ok(()) };
        let cover = Cover {
            storage: &self.storage,
            layout: self.layout,
            epoch: self.epoch,
            durable: self.control.durable(),
            current: (tail.end < self.layout.end(tail.segment))
                .then_some((tail.segment, &tail.file)),
        };
        cover.cover(&cut)?;
        self.control.end_cut()
    }

    /// Removes the segments that hold nothing any more, or keeps them to be used again.
    fn give_up_segments(&self, giving_up: &mut GivingUp) -> Result<(), LogError> {
        // Before the segments go: a log whose first segment is missing is damaged. An earlier call may have
        // stored this, and have failed to sync it.
        let first = self.control.first();
        if giving_up.first < first {
            self.check_in_place()?;
            self.store_first(giving_up, first)?;
        }
        // The segment of the last batch stays, even if it is full and given up.
        let first = self.layout.segment_before(first);
        while giving_up.oldest < first {
            let name = segments::name_of(giving_up.oldest);
            let gone = match self.ahead.spares() < SPARES {
                true => {
                    // A name of its own: that of the segment may be that of a spare that is being used.
                    let spare = segments::spare_name(giving_up.next_spare);
                    giving_up.next_spare += 1;
                    let renamed = self.storage.rename(&name, &spare);
                    if renamed.is_ok() {
                        self.ahead.add_spare(spare);
                    }
                    renamed
                }
                false => self.storage.remove(&name),
            };
            match gone {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                gone => gone.map_err(|error| {
                    LogError::system("give up a segment of", self.storage.path(), error)
                })?,
            }
            giving_up.oldest += 1;
            self.recording.gave_up();
        }
        if giving_up.reserve_used {
            giving_up.reserve_used = !opening::make_reserve(&*self.storage);
        }
        Ok(())
    }

    /// A log is used by the process that opened it.
    fn check_process(&self) -> Result<(), LogError> {
        match self.process.is_current() {
            true => Ok(()),
            false => Err(LogError::new(LogErrorKind::OtherProcess, self.storage.path())),
        }
    }

    fn cannot(&self, tried: &'static str, segment: u64, offset: u64, error: io::Error) -> LogError {
        let path = self.storage.path().join(segments::name_of(segment));
        LogError::system(tried, &path, error).at(segment, offset)
    }
}
