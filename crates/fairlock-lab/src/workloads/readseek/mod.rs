//! `readseek`: workers that seek and read in one shared file, one iteration being both calls (the
//! benchmark behind FreeBSD's range locks on vnodes).
//!
//! Reads of a file have to be atomic: all of a write or nothing of it. What that costs readers that
//! have nothing to do with each other is the question. In "disjoint" runs each worker reads the
//! block at its own offset, so that nothing but the lock is shared.
//!
//! Four forms:
//!
//! * `readseek`: threads and a page cache in memory, under the lock under test: a range lock, any
//!   lock of the registry around the whole file (what a vnode or inode lock is), or none.
//! * `readseek-kernel`: `lseek` and `read` of a real file in a directory, each thread with its own
//!   file description. What the kernel does about atomicity is its own affair.
//! * `readseek-kernel-tmpfs`: the same in memory, on the kernel's own tmpfs.
//! * `readseek-processes`: a process for each worker, see `processes.rs` for its locks.
//!
//! The first one also runs on a simulated machine, where a copy takes time and the lock runs as it
//! is.
//!
//! What is checked: where somebody writes, each read has to consist of one write's stamp. A torn
//! read under a lock fails the run; where nobody promises atomic reads (`none`, the kernel), torn
//! reads are counted. Where nobody writes there is nothing to check, so that the rates of readers
//! are those of seek, lock and copy alone. One iteration in 64 is timed.

mod cache;
pub(super) mod kernel;
mod pages;
pub(super) mod processes;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use fairlock::range::Extent;
use serde::{Deserialize, Serialize};

use super::mix::jittered;
use super::{Body, Failure, Request, check_length, check_thread_count, run_threads};
use super::{HOLD_READ, HOLD_WRITE, NOTHING, WAIT_READ, WAIT_WRITE};
use crate::error::{LabError, Violation};
use crate::locks;
use crate::locks::ranges::{self, FileLock};
use crate::measure::statistics::XorShift;
use crate::measure::{Repetition, RoleRecorder, ThreadRecord};
use crate::plan::KERNEL;
use crate::units::Length;
use crate::world::World;

pub use cache::{CachedFile, PageCache};
pub use kernel::run as run_kernel;
pub use pages::PAGE_BYTES;
pub use processes::{
    LOCKS as PROCESS_LOCKS, SUBCOMMAND, run as run_processes, work as work_in_process,
};

/// The name that rows of the first form carry.
pub const NAME: &str = "readseek";

/// One iteration in so many is timed: three looks at the clock, 36 ns where this was measured, then
/// cost an iteration half a nanosecond on average.
const TIME_EVERY: u32 = 64;

/// Where the file is, and who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadseekForm {
    /// In this program's memory, under the lock under test.
    Cached,
    /// In a directory, by system calls.
    Kernel,
    /// In memory, by system calls.
    KernelTmpfs,
    /// In memory that processes share.
    Processes,
}

impl ReadseekForm {
    /// All of them.
    pub const ALL: [ReadseekForm; 4] = [
        ReadseekForm::Cached,
        ReadseekForm::Kernel,
        ReadseekForm::KernelTmpfs,
        ReadseekForm::Processes,
    ];

    /// The name that rows carry.
    pub fn name(self) -> &'static str {
        match self {
            ReadseekForm::Cached => NAME,
            ReadseekForm::Kernel => "readseek-kernel",
            ReadseekForm::KernelTmpfs => "readseek-kernel-tmpfs",
            ReadseekForm::Processes => "readseek-processes",
        }
    }

    /// The form of this name.
    pub fn named(name: &str) -> Option<ReadseekForm> {
        ReadseekForm::ALL.into_iter().find(|form| form.name() == name)
    }

    /// Names of the locks that `all` means.
    pub fn all_locks(self, on_simulated_machine: bool) -> Vec<&'static str> {
        match self {
            ReadseekForm::Cached if on_simulated_machine => {
                [ranges::names(), locks::all_simulated()].concat()
            }
            ReadseekForm::Cached => [ranges::names(), locks::all()].concat(),
            ReadseekForm::Kernel | ReadseekForm::KernelTmpfs => vec![KERNEL],
            ReadseekForm::Processes => PROCESS_LOCKS.map(|(name, _)| name).to_vec(),
        }
    }

    /// Whether the form runs under a lock of this name.
    ///
    /// # Errors
    /// An unknown lock, with the valid ones; a form that no machine simulates.
    pub fn check_lock(self, name: &str, on_simulated_machine: bool) -> Result<(), LabError> {
        if self == ReadseekForm::Cached {
            return ranges::check(name, on_simulated_machine);
        }
        if on_simulated_machine {
            let workload = self.name();
            return Err(LabError::KernelNotSimulated { workload, instead: NAME });
        }
        let known = self.all_locks(false);
        if known.contains(&name) {
            return Ok(());
        }
        Err(LabError::UnknownLock { name: name.to_string(), known })
    }
}

/// Where readers read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overlap {
    /// Each at its own offset.
    Disjoint,
    /// All at the same one.
    Same,
    /// At one of all readers' offsets, drawn for each iteration.
    Random,
}

impl Overlap {
    /// All of them, in the order of the numbers that rows and studies give them.
    pub const ALL: [Overlap; 3] = [Overlap::Disjoint, Overlap::Same, Overlap::Random];

    /// The number that rows and studies have for it.
    pub fn number(self) -> u32 {
        self as u32
    }
}

/// Parameters of [`readseek`](self).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadseekParams {
    /// Where the file is.
    pub form: ReadseekForm,
    /// Workers that seek and read.
    pub readers: u32,
    /// Workers that overwrite some of the readers' blocks, back to back.
    pub writers: u32,
    /// Bytes of one read, whole pages.
    pub block_bytes: u32,
    /// Adjacent blocks that one write covers.
    pub write_blocks: u32,
    /// Where readers read.
    pub overlap: Overlap,
    /// How long a worker stays away after an iteration, ±25 %.
    pub think: Length,
    /// Where the file of `readseek-kernel` goes.
    pub directory: PathBuf,
    /// What `readseek-processes` starts for each worker: the `fairlock` command.
    pub program: PathBuf,
}

impl Default for ReadseekParams {
    /// Two readers of a page each.
    fn default() -> ReadseekParams {
        ReadseekParams {
            form: ReadseekForm::Cached,
            readers: 2,
            writers: 0,
            block_bytes: PAGE_BYTES,
            write_blocks: 1,
            overlap: Overlap::Disjoint,
            think: Length::Pauses(0),
            directory: PathBuf::from("."),
            program: PathBuf::from("/proc/self/exe"),
        }
    }
}

const LARGEST_FILE: u64 = 1 << 30;
/// A process is some thousand times what a thread is.
const MOST_PROCESSES: u32 = 256;

impl ReadseekParams {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// [`LabError::Parameter`] names the first one that does not.
    pub fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        let wrong = |name, value: u64, valid| {
            Err(LabError::Parameter { name, value: value.to_string(), valid })
        };
        let workers = u64::from(self.readers) + u64::from(self.writers);
        check_thread_count("readers + writers", workers)?;
        if self.readers == 0 {
            return wrong("readers", 0, "1 or more: the file has a block for each".to_string());
        }
        if self.form == ReadseekForm::Processes && workers > MOST_PROCESSES.into() {
            return wrong("readers + writers", workers, format!("1 to {MOST_PROCESSES} processes"));
        }
        if self.block_bytes == 0 || !self.block_bytes.is_multiple_of(PAGE_BYTES) {
            let valid = format!("a multiple of {PAGE_BYTES}");
            return wrong("block_bytes", self.block_bytes.into(), valid);
        }
        if self.write_blocks == 0 {
            return wrong("write_blocks", 0, "1 or more".to_string());
        }
        let bytes = u64::from(self.blocks()) * u64::from(self.block_bytes);
        if bytes > LARGEST_FILE {
            let valid = format!("at most {LARGEST_FILE} bytes for all blocks together");
            return wrong("block_bytes", self.block_bytes.into(), valid);
        }
        check_length("think", self.think, pause_ns)
    }

    /// Blocks of the file: one for each reader, and as many as a write needs.
    fn blocks(&self) -> u32 {
        self.readers.max(self.write_blocks)
    }

    /// The row's `params`.
    pub fn row_params(&self, pause_ns: f64) -> BTreeMap<String, f64> {
        [
            ("readers", self.readers.into()),
            ("writers", self.writers.into()),
            ("block_bytes", self.block_bytes.into()),
            ("write_blocks", self.write_blocks.into()),
            ("overlap", self.overlap.number().into()),
            ("think_pauses", self.think.pauses(pause_ns).into()),
            ("pause_ns", pause_ns),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into()
    }
}

/// What a worker does to the file, in its own way. `granted` is called when the worker has the lock,
/// or where it cannot see that, when it is done.
trait Access {
    /// Seeks and reads a block.
    fn read(&mut self, block: u32, granted: impl FnOnce()) -> Result<(), LabError>;
    /// Overwrites blocks with a stamp.
    fn write(
        &mut self,
        blocks: Range<u32>,
        stamp: u64,
        granted: impl FnOnce(),
    ) -> Result<(), LabError>;
    /// Two stamps of the block that was read, if it has several.
    fn torn(&self) -> Option<(u64, u64)>;
}

/// One worker: where it goes next, and what it makes of what it reads.
struct Worker<A> {
    access: A,
    duty: Duty,
    random: XorShift,
    think: u32,
}

/// What a worker's iterations are.
enum Duty {
    Read { own: u32, blocks: u32, overlap: Overlap, check: Check, torn: u64 },
    Write { blocks: u32, span: u32, overlap: Overlap, stamp: u64 },
}

/// What becomes of a torn read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// Nobody writes.
    Nothing,
    /// It is counted.
    Count,
    /// It fails the run.
    Fail,
}

impl<A: Access> Worker<A> {
    /// The worker of this number; the writers come after the readers.
    fn new(
        access: A,
        params: &ReadseekParams,
        number: u32,
        atomic: bool,
        seed: u64,
        think: u32,
    ) -> Self {
        let (blocks, overlap) = (params.blocks(), params.overlap);
        let duty = if number < params.readers {
            let check = match (params.writers, atomic) {
                (0, _) => Check::Nothing,
                (_, false) => Check::Count,
                (_, true) => Check::Fail,
            };
            Duty::Read { own: number, blocks, overlap, check, torn: 0 }
        } else {
            // No two writers and no two writes have the same stamp.
            let stamp = u64::from(number) << 40;
            Duty::Write { blocks, span: params.write_blocks, overlap, stamp }
        };
        let random = XorShift::new(seed.wrapping_mul(1 << 32).wrapping_add(number.into()));
        Worker { access, duty, random, think }
    }

    fn reads(&self) -> bool {
        matches!(self.duty, Duty::Read { .. })
    }

    /// One iteration.
    #[inline]
    fn go(&mut self, granted: impl FnOnce()) -> Result<(), Failure> {
        match &mut self.duty {
            Duty::Read { own, blocks, overlap, check, torn } => {
                let block = match overlap {
                    Overlap::Disjoint => *own,
                    Overlap::Same => 0,
                    Overlap::Random => self.random.below(*blocks),
                };
                self.access.read(block, granted)?;
                if *check != Check::Nothing
                    && let Some((one, other)) = self.access.torn()
                {
                    if *check == Check::Fail {
                        return Err(Violation::TornBlock { one, other }.into());
                    }
                    *torn += 1;
                }
            }
            Duty::Write { blocks, span, overlap, stamp } => {
                let first = match overlap {
                    Overlap::Same => 0,
                    Overlap::Disjoint | Overlap::Random => self.random.below(*blocks - *span + 1),
                };
                *stamp += 1;
                self.access.write(first..first + *span, *stamp, granted)?;
            }
        }
        Ok(())
    }

    /// Torn reads, if they are counted.
    fn torn(&self) -> Option<u64> {
        match self.duty {
            Duty::Read { check: Check::Count | Check::Fail, torn, .. } => Some(torn),
            _ => None,
        }
    }

    /// How long to stay away now, in pauses.
    fn stay_away(&mut self) -> u32 {
        jittered(self.think, &mut self.random)
    }

    /// Iterates until the run is over.
    fn work<W: World>(mut self, world: &W) -> Result<ThreadRecord, Failure> {
        let mut recorder = RoleRecorder::default();
        for iteration in 0_u32.. {
            if iteration.is_multiple_of(TIME_EVERY) {
                self.timed(world, &mut recorder)?;
            } else {
                self.go(|| ())?;
            }
            recorder.executed += 1;
            if !world.running() {
                break;
            }
            recorder.ops += 1;
            if self.think > 0 {
                world.compute(self.stay_away());
            }
        }
        recorder.torn = self.torn();
        let (reader, writer) = match self.reads() {
            true => (Some(recorder), None),
            false => (None, Some(recorder)),
        };
        Ok(ThreadRecord { reader, writer, excluded_ns: 0 })
    }

    #[cold]
    fn timed<W: World>(&mut self, world: &W, recorder: &mut RoleRecorder) -> Result<(), Failure> {
        let asked = world.now();
        let mut got = asked;
        self.go(|| got = world.now())?;
        recorder.time(asked, got, world.now());
        Ok(())
    }
}

/// A thread's access to a file in memory under a lock.
struct Locked<'a, W, F: CachedFile, L> {
    world: &'a W,
    lock: &'a L,
    file: &'a F,
    block_bytes: u32,
    buffer: F::Buffer,
}

impl<W, F: CachedFile, L> Locked<'_, W, F, L> {
    /// The bytes of some blocks.
    #[inline]
    fn extent(&self, blocks: Range<u32>) -> Extent {
        let [start, end] =
            [blocks.start, blocks.end].map(|it| u64::from(it) * u64::from(self.block_bytes));
        Extent::at(start, end - start).expect("blocks have bytes, and a file ends before 2⁶⁴")
    }
}

impl<W: World, F: CachedFile, L: FileLock> Access for Locked<'_, W, F, L> {
    #[inline]
    fn read(&mut self, block: u32, granted: impl FnOnce()) -> Result<(), LabError> {
        self.file.enter(&mut self.buffer);
        let extent = self.extent(block..block + 1);
        self.world.mark(WAIT_READ);
        self.lock.read(extent, || {
            self.world.mark(HOLD_READ);
            granted();
            self.file.read(block, &mut self.buffer);
            self.world.mark(NOTHING);
        });
        Ok(())
    }

    #[inline]
    fn write(
        &mut self,
        blocks: Range<u32>,
        stamp: u64,
        granted: impl FnOnce(),
    ) -> Result<(), LabError> {
        self.file.enter(&mut self.buffer);
        let extent = self.extent(blocks.clone());
        self.world.mark(WAIT_WRITE);
        self.lock.write(extent, || {
            self.world.mark(HOLD_WRITE);
            granted();
            self.file.write(blocks, stamp, &mut self.buffer);
            self.world.mark(NOTHING);
        });
        Ok(())
    }

    #[inline]
    fn torn(&self) -> Option<(u64, u64)> {
        F::torn(&self.buffer)
    }
}

/// Runs `readseek` once on a fresh lock and a fresh file.
///
/// # Errors
/// When a read under a lock is torn, or threads cannot be started.
pub fn run<W: PageCache, L: FileLock>(
    request: &Request<'_, W>,
    params: &ReadseekParams,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let lock = L::new();
    let file = world.cached_file(params.blocks(), params.block_bytes);
    let think = params.think.pauses(world.pause_ns());
    let bodies = (0..params.readers + params.writers).map(|number| {
        let (lock, file, buffer) = (&lock, &file, file.buffer(number));
        let access = Locked { world, lock, file, block_bytes: params.block_bytes, buffer };
        let worker = Worker::new(access, params, number, L::IS_ATOMIC, world.seed(), think);
        Box::new(move || worker.work(world)) as Body<'_>
    });
    let mut repetition = run_threads(request, NAME, bodies.collect())?;
    repetition.events = lock.events();
    Ok(repetition)
}
