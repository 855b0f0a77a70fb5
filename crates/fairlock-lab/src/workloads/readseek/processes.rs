//! `readseek-processes`: a process for each worker, on a file in memory that all of them map.
//!
//! Fairlock's locks live in one process, as their holders stand in records of its threads. What
//! processes can share is one of [`LOCKS`].
//!
//! The parent makes the file, gives it to each child as standard input, and starts the children
//! anew from the program instead of forking, which a process with threads must not do. In front of
//! the file's blocks are the parent's order and a slot for what each child has done:
//!
//! ```text
//!   Control │ Slot, Slot, … │ blocks        each part begins with a page
//! ```
//!
//! Invariants
//! 1. The mapping is shared, lasts as long as its `Mapping`, and consists of atomics, of which all
//!    zeros are valid values, but for the lock. That is initialised before a child is started, and
//!    used only by calls of the C library.
//! 2. A child ends when it is told to, by `STOP`, or when its parent does, whatever it waits for.
//! 3. The parent returns only after all children have ended: those that do not in time it ends.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use serde::{Deserialize, Serialize};

use super::kernel::{MEMORY, SystemCalls, in_memory};
use super::{Access, Failure, LabError, Reads, ReadseekProcesses, Request, Violation, Worker};
use crate::measure::{Repetition, RoleRecorder, ThreadRecord, merge_threads};
use crate::workload::Workload;
use crate::world::pages::{Aligned, PAGE_BYTES, WORD_BYTES, copy_out, fill, torn, words};
use crate::world::{Finished, Run, Usage, World, of_all_cpus, thread_usage};

/// What processes can lock a shared file with.
pub const LOCKS: [(&str, &str); 4] = [
    ("none", "no lock: reads can be torn, which is counted"),
    ("pthread", "a process-shared pthread_rwlock_t around the whole file"),
    (
        "fcntl",
        "the kernel's byte-range locks (F_OFD_SETLKW), each process with its own description",
    ),
    ("kernel", "lseek and read of the file, on the kernel's tmpfs"),
];

/// How often the parent looks after its children.
const POLL: Duration = Duration::from_millis(2);
/// How long children may take to start, and to end when they are told to.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a child sleeps between two looks whether all are there.
const START_POLL: Duration = Duration::from_micros(50);

/// The parent's orders.
const WAIT: u32 = 0;
const GO: u32 = 1;
const STOP: u32 = 2;

/// How far a child has come.
const STARTS: u32 = 0;
const READY: u32 = 1;
const DONE: u32 = 2;
const BROKEN: u32 = 3;

/// What all share beside the blocks.
#[repr(C)]
struct Control {
    order: CachePadded<AtomicU32>,
    lock: CachePadded<UnsafeCell<libc::pthread_rwlock_t>>,
}

/// What a child has done. Written by it alone, all but `state` at its end.
#[repr(C, align(128))]
struct Slot {
    state: AtomicU32,
    ops: AtomicU64,
    executed: AtomicU64,
    torn: AtomicU64,
    voluntary: AtomicU64,
    involuntary: AtomicU64,
    user_ns: AtomicU64,
    system_ns: AtomicU64,
    /// Two stamps of one read, where the lock let them be.
    stamps: [AtomicU64; 2],
}

/// What a child is to do.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    lock: String,
    params: Reads,
    /// Which worker it is.
    number: u32,
    /// A think in PAUSEs, as only the parent has measured one.
    think_pauses: u32,
    /// The parent, without which there is nothing to do.
    parent: u32,
}

/// The file, mapped.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
    workers: usize,
}

/// A length in whole pages.
fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES as usize)
}

impl Mapping {
    /// Where the slots begin.
    const SLOTS_AT: usize = size_of::<Control>().next_multiple_of(PAGE_BYTES as usize);

    /// Where the blocks begin.
    fn blocks_at(workers: usize) -> usize {
        Self::SLOTS_AT + whole_pages(workers * size_of::<Slot>())
    }

    fn length(params: &Reads) -> usize {
        let blocks = params.blocks() as usize * params.block_bytes as usize;
        Self::blocks_at(Self::workers(params)) + blocks
    }

    fn workers(params: &Reads) -> usize {
        params.workers() as usize
    }

    /// Maps a file of [`length`](Self::length), zeros at first.
    fn of(descriptor: RawFd, params: &Reads) -> Result<Mapping, LabError> {
        let length = Self::length(params);
        // SAFETY: a new mapping touches no memory that is in use.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, descriptor, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(LabError::io("map a file in memory", io::Error::last_os_error()));
        }
        let start = NonNull::new(start.cast()).expect("no mapping begins at 0");
        Ok(Mapping { start, length, workers: Self::workers(params) })
    }

    fn control(&self) -> &Control {
        // SAFETY: invariant 1; the mapping begins with it, on a page.
        unsafe { self.start.cast().as_ref() }
    }

    fn slots(&self) -> &[Slot] {
        // SAFETY: invariant 1; there is room for all workers' slots, on pages.
        unsafe {
            let slots = self.start.add(Self::SLOTS_AT).cast();
            std::slice::from_raw_parts(slots.as_ptr(), self.workers)
        }
    }

    fn blocks(&self) -> &[AtomicU64] {
        let at = Self::blocks_at(self.workers);
        let count = (self.length - at) / WORD_BYTES as usize;
        // SAFETY: invariant 1; the rest of the mapping, which begins on a page.
        unsafe { std::slice::from_raw_parts(self.start.add(at).cast().as_ptr(), count) }
    }

    /// Makes the lock one that processes may share. Before any child is started.
    fn initialise_lock(&self) {
        let mut attributes = MaybeUninit::<libc::pthread_rwlockattr_t>::uninit();
        // SAFETY: `attributes` is valid for writes and initialised by the first call; nobody else
        // uses the lock yet.
        unsafe {
            let attributes = attributes.as_mut_ptr();
            assert_eq!(libc::pthread_rwlockattr_init(attributes), 0);
            let shared = libc::PTHREAD_PROCESS_SHARED;
            assert_eq!(libc::pthread_rwlockattr_setpshared(attributes, shared), 0);
            assert_eq!(libc::pthread_rwlock_init(self.control().lock.get(), attributes), 0);
            libc::pthread_rwlockattr_destroy(attributes);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this length; whatever borrows from it has ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

// ---- the parent ----

/// Children, none of which outlives it (invariant 3).
struct Crew {
    children: Vec<Child>,
}

impl Drop for Crew {
    fn drop(&mut self) {
        for child in &mut self.children {
            // One that has ended is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Crew {
    fn start<W: World>(
        request: &Request<'_, W>,
        params: &Reads,
        file: &File,
    ) -> Result<Crew, LabError> {
        let mut crew = Crew { children: Vec::new() };
        for number in 0..params.workers() {
            let job = Job {
                lock: request.lock.to_string(),
                params: params.clone(),
                number,
                think_pauses: params.think.pauses(request.world.pause_ns()),
                parent: std::process::id(),
            };
            let job = serde_json::to_string(&job).expect("a job is made of numbers and text");
            let failed = |source| LabError::io("start a worker process", source);
            let child = Command::new(request.program)
                .arg0("fairlock")
                .args([SUBCOMMAND, &job])
                .stdin(Stdio::from(file.try_clone().map_err(failed)?))
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn();
            crew.children.push(child.map_err(failed)?);
        }
        Ok(crew)
    }

    /// The first child that has ended without having done its work.
    fn lost(&mut self, mapping: &Mapping) -> Result<(), LabError> {
        let count = self.children.len();
        for (index, (child, slot)) in self.children.iter_mut().zip(mapping.slots()).enumerate() {
            let ended =
                child.try_wait().map_err(|source| LabError::io("wait for a process", source))?;
            if let Some(status) = ended
                && !is_done(slot)
            {
                return Err(LabError::WorkerProcess {
                    number: index + 1,
                    count,
                    how: how(status, child),
                });
            }
        }
        Ok(())
    }

    /// Waits until the condition holds for all, for so long; nobody may be lost meanwhile.
    fn wait_for(
        &mut self,
        mapping: &Mapping,
        cancelled: &dyn Fn() -> bool,
        so_far: fn(&mut Child, &Slot) -> bool,
    ) -> Result<(), LabError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.lost(mapping)?;
            let count = self.children.len();
            let mut both = self.children.iter_mut().zip(mapping.slots());
            let Some(late) = both.position(|(child, slot)| !so_far(child, slot)) else {
                return Ok(());
            };
            if cancelled() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let how = format!("did not answer for {} s and was ended", PATIENCE.as_secs());
                return Err(LabError::WorkerProcess { number: late + 1, count, how });
            }
            thread::sleep(POLL);
        }
    }
}

fn is_done(slot: &Slot) -> bool {
    // Acquire: pairs with the store at the end of `work`.
    matches!(slot.state.load(Acquire), DONE | BROKEN)
}

/// What became of a child, with its last words.
pub(in crate::workloads) fn how(status: ExitStatus, child: &mut Child) -> String {
    let mut words = String::new();
    if let Some(stderr) = &mut child.stderr {
        // Whatever it said is better than nothing.
        let _ = stderr.read_to_string(&mut words);
    }
    let words = words.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
    format!("ended before its time ({status}){words}")
}

/// Runs `readseek-processes` once.
///
/// # Errors
/// When a read under a lock is torn, or processes cannot be started or end before their time.
pub fn run<W: World>(request: &Request<'_, W>, params: &Reads) -> Result<Repetition, LabError> {
    let file = in_memory(MEMORY)?;
    let length = Mapping::length(params) as u64;
    file.set_len(length).map_err(|source| LabError::io("size a file in memory", source))?;
    let mapping = Mapping::of(file.as_raw_fd(), params)?;
    mapping.initialise_lock();
    fill(mapping.blocks(), 0);
    let order = &mapping.control().order;
    let mut crew = Crew::start(request, params, &file)?;
    crew.wait_for(&mapping, request.cancelled, |_, slot| slot.state.load(Acquire) != STARTS)?;

    let started = Instant::now();
    let duration = Duration::from_nanos(request.duration_ns);
    // Relaxed, as all orders: they publish nothing.
    order.store(GO, Relaxed);
    while order.load(Relaxed) == GO && !(request.cancelled)() {
        let left = duration.saturating_sub(started.elapsed());
        if left.is_zero() {
            break;
        }
        thread::sleep(POLL.min(left));
        crew.lost(&mapping)?;
    }
    order.store(STOP, Relaxed);
    let elapsed_ns = (started.elapsed().as_nanos() as u64).max(1);
    crew.wait_for(&mapping, &|| false, |child, slot| {
        is_done(slot) && matches!(child.try_wait(), Ok(Some(_)))
    })?;
    let cpus_ns = of_all_cpus((started.elapsed().as_nanos() as u64).max(1));

    for slot in mapping.slots() {
        if slot.state.load(Acquire) == BROKEN {
            let [one, other] = slot.stamps.each_ref().map(|stamp| stamp.load(Relaxed));
            let violation = Violation::TornBlock { one, other };
            return Err(request.broken(ReadseekProcesses::NAME, violation));
        }
    }
    let workers = mapping.slots().iter().zip(0..).map(|(slot, number)| {
        let reads = number < params.readers;
        let recorder = RoleRecorder {
            ops: slot.ops.load(Relaxed),
            executed: slot.executed.load(Relaxed),
            torn: (reads && params.writers > 0).then(|| slot.torn.load(Relaxed)),
            ..RoleRecorder::default()
        };
        let (reader, writer) = if reads { (Some(recorder), None) } else { (None, Some(recorder)) };
        Finished {
            output: ThreadRecord { reader, writer, excluded_ns: 0 },
            usage: Usage {
                voluntary_switches: slot.voluntary.load(Relaxed),
                involuntary_switches: slot.involuntary.load(Relaxed),
                user_ns: slot.user_ns.load(Relaxed),
                system_ns: slot.system_ns.load(Relaxed),
            },
        }
    });
    let workers = workers.collect();
    Ok(merge_threads(Run { elapsed_ns, cpus_ns, workers, simulated: None }))
}

// ---- a child ----

/// What the command calls [`work`] for.
pub const SUBCOMMAND: &str = "readseek-worker";

/// Does a worker's job, in a process of its own whose standard input is the file.
///
/// # Errors
/// When the job or the file is not what the parent makes, or the file cannot be read.
pub fn work(job: &str) -> Result<(), LabError> {
    let job: Job = serde_json::from_str(job)
        .map_err(|error| LabError::io("read a worker's job", io::Error::other(error)))?;
    stay_with(job.parent)?;
    let input = io::stdin().as_raw_fd();
    let Job { params, number, think_pauses: think, .. } = &job;
    let mapping = Mapping::of(input, params)?;
    let slot = &mapping.slots()[*number as usize];
    let base = Mapping::blocks_at(Mapping::workers(params)) as u64;
    let shared = Blocks::new(mapping.blocks(), params);
    let seed = 0;
    match job.lock.as_str() {
        "none" => {
            let access = Shared { lock: Nothing, blocks: shared };
            iterate(Worker::new(access, params, *number, false, seed, *think), &mapping, slot)
        }
        "pthread" => {
            let access = Shared { lock: Pthread(&mapping), blocks: shared };
            iterate(Worker::new(access, params, *number, true, seed, *think), &mapping, slot)
        }
        "fcntl" => {
            let lock = ByteRanges { calls: SystemCalls::open(input, base, params)? };
            let access = Shared { lock, blocks: shared };
            iterate(Worker::new(access, params, *number, true, seed, *think), &mapping, slot)
        }
        "kernel" => {
            let access = SystemCalls::open(input, base, params)?;
            iterate(Worker::new(access, params, *number, false, seed, *think), &mapping, slot)
        }
        name => {
            let known = LOCKS.map(|(name, _)| name).to_vec();
            Err(LabError::UnknownLock { name: name.to_string(), known })
        }
    }
}

/// Ends this process with its parent, and not before it (invariant 2): an interrupt from a terminal
/// goes to all of them, and what becomes of the run is the parent's affair.
pub(in crate::workloads) fn stay_with(parent: u32) -> Result<(), LabError> {
    // SAFETY: the calls take integers and touch no memory of this program.
    let grandparent = unsafe {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
        libc::getppid()
    };
    // It may have ended before this one asked to be told.
    if grandparent as u32 == parent {
        return Ok(());
    }
    Err(LabError::io(
        "start a worker",
        io::Error::other("its parent is gone; it works for `bench`"),
    ))
}

/// Iterates until it is told to stop.
fn iterate<A: Access>(
    mut worker: Worker<A>,
    mapping: &Mapping,
    slot: &Slot,
) -> Result<(), LabError> {
    let order = &mapping.control().order;
    slot.state.store(READY, Release);
    while order.load(Relaxed) == WAIT {
        thread::sleep(START_POLL);
    }
    let before = thread_usage();
    let (mut ops, mut executed) = (0, 0);
    let mut state = DONE;
    while order.load(Relaxed) == GO {
        match worker.go(|| ()) {
            Ok(()) => {}
            Err(Failure::Violation(Violation::TornBlock { one, other })) => {
                slot.stamps[0].store(one, Relaxed);
                slot.stamps[1].store(other, Relaxed);
                state = BROKEN;
                order.store(STOP, Relaxed);
                break;
            }
            Err(Failure::Violation(violation)) => unreachable!("readseek finds no {violation}"),
            Err(Failure::Error(error)) => return Err(error),
        }
        executed += 1;
        if order.load(Relaxed) == GO {
            ops += 1;
            if worker.think > 0 {
                (0..worker.stay_away()).for_each(|_| std::hint::spin_loop());
            }
        }
    }
    let usage = thread_usage() - before;
    for (figure, value) in [
        (&slot.ops, ops),
        (&slot.executed, executed),
        (&slot.torn, worker.torn().unwrap_or(0)),
        (&slot.voluntary, usage.voluntary_switches),
        (&slot.involuntary, usage.involuntary_switches),
        (&slot.user_ns, usage.user_ns),
        (&slot.system_ns, usage.system_ns),
    ] {
        figure.store(value, Relaxed);
    }
    // Release: pairs with the loads of the parent, which reads the slot then.
    slot.state.store(state, Release);
    Ok(())
}

/// A lock over a shared file's bytes.
trait ProcessLock {
    fn lock(&mut self, exclusive: bool, blocks: &Range<u32>) -> Result<(), LabError>;
    fn unlock(&mut self, blocks: &Range<u32>) -> Result<(), LabError>;
}

struct Nothing;

impl ProcessLock for Nothing {
    #[inline]
    fn lock(&mut self, _exclusive: bool, _blocks: &Range<u32>) -> Result<(), LabError> {
        Ok(())
    }

    #[inline]
    fn unlock(&mut self, _blocks: &Range<u32>) -> Result<(), LabError> {
        Ok(())
    }
}

struct Pthread<'a>(&'a Mapping);

impl ProcessLock for Pthread<'_> {
    #[inline]
    fn lock(&mut self, exclusive: bool, _blocks: &Range<u32>) -> Result<(), LabError> {
        let lock = self.0.control().lock.get();
        // SAFETY: invariant 1: initialised and mapped for as long as the borrow.
        let result = unsafe {
            if exclusive {
                libc::pthread_rwlock_wrlock(lock)
            } else {
                libc::pthread_rwlock_rdlock(lock)
            }
        };
        assert_eq!(result, 0, "pthread_rwlock");
        Ok(())
    }

    #[inline]
    fn unlock(&mut self, _blocks: &Range<u32>) -> Result<(), LabError> {
        // SAFETY: invariant 1: initialised and mapped for as long as the borrow; this process has held the
        // lock since `lock`.
        let result = unsafe { libc::pthread_rwlock_unlock(self.0.control().lock.get()) };
        assert_eq!(result, 0, "pthread_rwlock_unlock");
        Ok(())
    }
}

/// Locks of a file description, not of the process: closing another one does not end them.
struct ByteRanges {
    calls: SystemCalls,
}

impl ByteRanges {
    fn set(&self, kind: libc::c_int, blocks: &Range<u32>) -> Result<(), LabError> {
        let [start, end] = [blocks.start, blocks.end].map(|it| self.calls.offset(it));
        // SAFETY: all zeros are a valid `flock`.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        range.l_type = kind as libc::c_short;
        range.l_whence = libc::SEEK_SET as libc::c_short;
        range.l_start = start as libc::off_t;
        range.l_len = (end - start) as libc::off_t;
        loop {
            let descriptor = self.calls.descriptor();
            // SAFETY: `range` is a valid `flock` for the call, which only reads it.
            if unsafe { libc::fcntl(descriptor, libc::F_OFD_SETLKW, &range) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(LabError::io("lock a range of a file", error));
            }
        }
    }
}

impl ProcessLock for ByteRanges {
    fn lock(&mut self, exclusive: bool, blocks: &Range<u32>) -> Result<(), LabError> {
        self.set(if exclusive { libc::F_WRLCK } else { libc::F_RDLCK }, blocks)
    }

    fn unlock(&mut self, blocks: &Range<u32>) -> Result<(), LabError> {
        self.set(libc::F_UNLCK, blocks)
    }
}

/// The blocks in shared memory, and room for one of them.
struct Blocks<'a> {
    all: &'a [AtomicU64],
    block_words: usize,
    buffer: Aligned<u64>,
}

impl<'a> Blocks<'a> {
    fn new(all: &'a [AtomicU64], params: &Reads) -> Blocks<'a> {
        let block_words = words(params.block_bytes);
        Blocks { all, block_words, buffer: Aligned::new(block_words) }
    }

    fn of(&self, blocks: &Range<u32>) -> &'a [AtomicU64] {
        let [start, end] = [blocks.start, blocks.end].map(|it| it as usize * self.block_words);
        &self.all[start..end]
    }
}

/// A process's access to a file in shared memory under a lock.
struct Shared<'a, K> {
    lock: K,
    blocks: Blocks<'a>,
}

impl<K: ProcessLock> Access for Shared<'_, K> {
    #[inline]
    fn read(&mut self, block: u32, granted: impl FnOnce()) -> Result<(), LabError> {
        let range = block..block + 1;
        self.lock.lock(false, &range)?;
        granted();
        copy_out(self.blocks.of(&range), self.blocks.buffer.words_mut());
        self.lock.unlock(&range)
    }

    #[inline]
    fn write(
        &mut self,
        blocks: Range<u32>,
        stamp: u64,
        granted: impl FnOnce(),
    ) -> Result<(), LabError> {
        self.lock.lock(true, &blocks)?;
        granted();
        fill(self.blocks.of(&blocks), stamp);
        self.lock.unlock(&blocks)
    }

    #[inline]
    fn torn(&self) -> Option<(u64, u64)> {
        torn(self.blocks.buffer.words())
    }
}
