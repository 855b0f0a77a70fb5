//! `readseek-processes`: a process for each worker, on a file in memory that all of them map.
//!
//! Fairlock's locks live in one process, as their holders stand in records of its threads. What
//! processes can share is one of [`LOCKS`].
//!
//! The run's processes map one file: the lock, what each process has done, and the blocks.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use serde::{Deserialize, Serialize};

use super::kernel::{MEMORY, SystemCalls};
use super::{Access, Failure, LabError, Reads, ReadseekProcesses, Request, Violation, Worker};
use crate::measure::{Repetition, RoleRecorder, ThreadRecord, merge_threads};
use crate::workload::Workload;
use crate::world::pages::{Aligned, copy_out, fill, torn, words};
use crate::world::processes::{Crew, Mapping, Member, PATIENCE, Shape, SharedMemory, Start};
use crate::world::{Finished, Run, World, of_all_cpus};

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

/// A lock between processes. Initialised before one of them is started.
#[repr(transparent)]
struct Lock(CachePadded<UnsafeCell<libc::pthread_rwlock_t>>);

// SAFETY: used only by calls of the C library, for which it is one that processes share; zeros are a value of it.
unsafe impl SharedMemory for Lock {}

/// What a process has done. Written by it alone, at its end.
#[repr(C, align(128))]
struct Slot {
    ops: AtomicU64,
    executed: AtomicU64,
    torn: AtomicU64,
    /// Two stamps of one read, where the lock let them be; else both are 0.
    stamps: [AtomicU64; 2],
}

// SAFETY: atomics, of which zeros are values.
unsafe impl SharedMemory for Slot {}

type Shared = Mapping<Lock, Slot>;

/// What each process is to do.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    lock: String,
    params: Reads,
    /// A think in PAUSEs, as only the run has measured one.
    think_pauses: u32,
}

impl Lock {
    /// Makes it one that processes may share. Before any of them is started.
    fn initialise(&self) {
        let mut attributes = MaybeUninit::<libc::pthread_rwlockattr_t>::uninit();
        // SAFETY: `attributes` is valid for writes and initialised by the first call; nobody else
        // uses the lock yet.
        unsafe {
            let attributes = attributes.as_mut_ptr();
            assert_eq!(libc::pthread_rwlockattr_init(attributes), 0);
            let shared = libc::PTHREAD_PROCESS_SHARED;
            assert_eq!(libc::pthread_rwlockattr_setpshared(attributes, shared), 0);
            assert_eq!(libc::pthread_rwlock_init(self.0.get(), attributes), 0);
            libc::pthread_rwlockattr_destroy(attributes);
        }
    }
}

fn shape(params: &Reads) -> Shape {
    let workers = params.workers() as usize;
    let words = params.blocks() as usize * words(params.block_bytes);
    Shape { processes: workers, slots: workers, words }
}

/// Runs `readseek-processes` once.
///
/// # Errors
/// When a read under a lock is torn, or processes cannot be started or end before their time.
pub fn run<W: World>(request: &Request<'_, W>, params: &Reads) -> Result<Repetition, LabError> {
    let shared = Shared::create(MEMORY, shape(params))?;
    let (_, mapping) = &shared;
    mapping.common().initialise();
    fill(mapping.words(), 0);
    let job = Job {
        lock: request.lock.to_string(),
        params: params.clone(),
        think_pauses: params.think.pauses(request.world.pause_ns()),
    };
    let start = Start {
        program: request.program,
        subcommand: SUBCOMMAND,
        name: "worker process",
        patience: PATIENCE,
    };
    let crew = Crew::start(start, &shared, &job)?;
    let times = crew.work(Duration::from_nanos(request.duration_ns), request.cancelled)?;
    for slot in mapping.slots() {
        let [one, other] = slot.stamps.each_ref().map(|stamp| stamp.load(Relaxed));
        if one != other {
            let violation = Violation::TornBlock { one, other };
            return Err(request.broken(ReadseekProcesses::NAME, violation));
        }
    }
    let finished = mapping.slots().iter().zip(mapping.usages()).zip(0..);
    let workers = finished.map(|((slot, usage), number)| {
        let reads = number < params.readers;
        let recorder = RoleRecorder {
            ops: slot.ops.load(Relaxed),
            executed: slot.executed.load(Relaxed),
            torn: (reads && params.writers > 0).then(|| slot.torn.load(Relaxed)),
            ..RoleRecorder::default()
        };
        let (reader, writer) = if reads { (Some(recorder), None) } else { (None, Some(recorder)) };
        Finished { output: ThreadRecord { reader, writer, excluded_ns: 0 }, usage }
    });
    Ok(merge_threads(Run {
        elapsed_ns: times.elapsed_ns,
        counted_ns: times.ended_ns,
        cpus_ns: of_all_cpus(times.ended_ns),
        workers: workers.collect(),
        simulated: None,
    }))
}

// ---- a process ----

/// What the command calls [`work`] for.
pub const SUBCOMMAND: &str = "readseek-worker";

/// Does a worker's job, in a process of its own.
///
/// # Errors
/// When the job is not what the run makes, or the file cannot be read.
pub fn work(job: &str) -> Result<(), LabError> {
    let (job, member): (Job, Member<Lock, Slot>) = Member::join(job)?;
    let Job { params, think_pauses: think, .. } = &job;
    let (shared, number) = (member.shared(), member.number as u32);
    if shared.slots().len() != params.workers() as usize {
        let error = io::Error::other("the job is for another number of workers");
        return Err(LabError::io("read a worker's job", error));
    }
    let blocks = || Blocks::new(shared.words(), params);
    let calls = || SystemCalls::open(io::stdin().as_raw_fd(), shared.words_at(), params);
    let seed = 0;
    match job.lock.as_str() {
        "none" => {
            let access = Locked { lock: Nothing, blocks: blocks() };
            iterate(Worker::new(access, params, number, false, seed, *think), &member)
        }
        "pthread" => {
            let access = Locked { lock: Pthread(shared.common()), blocks: blocks() };
            iterate(Worker::new(access, params, number, true, seed, *think), &member)
        }
        "fcntl" => {
            let access = Locked { lock: ByteRanges { calls: calls()? }, blocks: blocks() };
            iterate(Worker::new(access, params, number, true, seed, *think), &member)
        }
        "kernel" => iterate(Worker::new(calls()?, params, number, false, seed, *think), &member),
        name => {
            let known = LOCKS.map(|(name, _)| name).to_vec();
            Err(LabError::UnknownLock { name: name.to_string(), known })
        }
    }
}

/// Iterates until it is told to stop.
fn iterate<A: Access>(mut worker: Worker<A>, member: &Member<Lock, Slot>) -> Result<(), LabError> {
    let shared = member.shared();
    let slot = &shared.slots()[member.number];
    member.work(|| {
        let (mut ops, mut executed) = (0, 0);
        while shared.goes() {
            match worker.go(|| ()) {
                Ok(()) => {}
                Err(Failure::Violation(Violation::TornBlock { one, other })) => {
                    slot.stamps[0].store(one, Relaxed);
                    slot.stamps[1].store(other, Relaxed);
                    shared.stop();
                    break;
                }
                Err(Failure::Violation(violation)) => unreachable!("readseek finds no {violation}"),
                Err(Failure::Error(error)) => return Err(error),
            }
            executed += 1;
            if shared.goes() {
                ops += 1;
                if worker.think > 0 {
                    (0..worker.stay_away()).for_each(|_| std::hint::spin_loop());
                }
            }
        }
        slot.ops.store(ops, Relaxed);
        slot.executed.store(executed, Relaxed);
        slot.torn.store(worker.torn().unwrap_or(0), Relaxed);
        Ok(())
    })
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

struct Pthread<'a>(&'a Lock);

impl ProcessLock for Pthread<'_> {
    #[inline]
    fn lock(&mut self, exclusive: bool, _blocks: &Range<u32>) -> Result<(), LabError> {
        let lock = self.0.0.get();
        // SAFETY: initialised before this process was started, and mapped for as long as the borrow.
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
        // SAFETY: as above; this process has held the lock since `lock`.
        let result = unsafe { libc::pthread_rwlock_unlock(self.0.0.get()) };
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
struct Locked<'a, K> {
    lock: K,
    blocks: Blocks<'a>,
}

impl<K: ProcessLock> Access for Locked<'_, K> {
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
