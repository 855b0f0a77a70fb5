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

pub(super) mod kernel;
pub(super) mod processes;

use std::ops::Range;

use clap::{Args, ValueEnum};
use crossbeam_utils::CachePadded;
use fairlock::range::Extent;
use fairlock_report::random::{XorShift, jittered};
use fairlock_report::timeline::{HOLD_READ, HOLD_WRITE, WAIT_READ, WAIT_WRITE};
use fairlock_report::units::{
    Length, at_least_one, count, deserialize_bytes, format_bytes, parse_blocks,
};
use serde::{Deserialize, Serialize};

use super::{Failure, NOTHING, bodies, run_threads};
use crate::error::{LabError, Violation};
use crate::locks::KERNEL;
use crate::locks::ranges::{self, FileLock};
use crate::measure::{Repetition, RoleRecorder, ThreadRecord};
use crate::workload::{
    DefaultPoints, DefaultSubjects, KERNEL_ALONE, LOCKS, Machine, Need, Request, Role, Subjects,
    UnderFileLock, Workload, check_kernel, check_length, check_thread_count, defaults, points,
    roles, run_under_file_lock, wrong,
};
use crate::world::{CachedFile, World};

pub use self::processes::{LOCKS as PROCESS_LOCKS, SUBCOMMAND, work as work_in_process};
pub use crate::world::pages::PAGE_BYTES;

/// One iteration in so many is timed: three looks at the clock, 36 ns where this was measured, then
/// cost an iteration half a nanosecond on average.
const TIME_EVERY: u32 = 64;

/// Where readers read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overlap {
    /// Each at its own offset
    #[serde(alias = "0")]
    Disjoint,
    /// All at the same one
    #[serde(alias = "1")]
    Same,
    /// At one of all readers' offsets, drawn for each iteration
    #[serde(alias = "2")]
    Random,
}

/// Parameters of all forms.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Reads {
    /// Workers that seek and read
    #[arg(long = "workers", visible_alias = "readers", value_name = "N", default_value_t = 2, value_parser = at_least_one)]
    pub readers: u32,
    /// Workers that overwrite some of the readers' blocks, back to back
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count)]
    pub writers: u32,
    /// Bytes of one read, whole pages
    #[arg(long = "block", value_name = "SIZE", default_value_t = PAGE_BYTES, value_parser = parse_blocks)]
    #[serde(deserialize_with = "deserialize_bytes")]
    pub block_bytes: u32,
    /// Adjacent blocks that one write covers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub write_blocks: u32,
    /// Give each worker that writes blocks of its own, behind those of the readers: nobody wants another one's then
    #[arg(long)]
    pub own_blocks: bool,
    /// Where the workers read
    #[arg(long = "offsets", value_enum, value_name = "WHERE", default_value = "disjoint")]
    pub overlap: Overlap,
    /// Time between two iterations: pauses (10p) or time (200ns), ±25 %
    #[arg(long, value_name = "LENGTH", default_value = "0p")]
    pub think: Length,
}

impl Default for Reads {
    fn default() -> Reads {
        defaults()
    }
}

const LARGEST_FILE: u64 = 1 << 30;

impl Reads {
    fn roles(&self) -> Vec<Role> {
        roles(&[("reader", self.readers), ("writer", self.writers)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        let overlap = match self.overlap {
            Overlap::Disjoint => "disjoint offsets",
            Overlap::Same => "one offset",
            Overlap::Random => "random offsets",
        };
        let mut words = vec![("overlap", overlap.to_owned())];
        if self.block_bytes != PAGE_BYTES {
            let blocks = format!("blocks of {}", format_bytes(self.block_bytes.into()));
            words.push(("block_bytes", blocks));
        }
        if self.write_blocks != 1 {
            words.push(("write_blocks", format!("writes of {} blocks", self.write_blocks)));
        }
        words.extend(self.own_blocks.then(|| ("own_blocks", "writers apart".to_owned())));
        words.push(("think", format!("think {}", self.think.words())));
        words
    }

    fn workers(&self) -> u32 {
        self.readers + self.writers
    }

    fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        let workers = u64::from(self.readers) + u64::from(self.writers);
        check_thread_count("readers + writers", workers)?;
        if self.readers == 0 {
            return wrong("readers", 0, "1 or more: the file has a block for each".to_string());
        }
        if self.block_bytes == 0 || !self.block_bytes.is_multiple_of(PAGE_BYTES) {
            return wrong("block_bytes", self.block_bytes, format!("a multiple of {PAGE_BYTES}"));
        }
        if self.write_blocks == 0 {
            return wrong("write_blocks", 0, "1 or more".to_string());
        }
        let bytes = u64::from(self.blocks()) * u64::from(self.block_bytes);
        if bytes > LARGEST_FILE {
            let valid = format!("at most {LARGEST_FILE} bytes for all blocks together");
            return wrong("block_bytes", self.block_bytes, valid);
        }
        check_length("think", self.think, pause_ns)
    }

    /// Blocks of the file: one for each reader, and at least as many as a write covers. With blocks of their own, that
    /// many more for each writer.
    fn blocks(&self) -> u32 {
        match self.own_blocks {
            false => self.readers.max(self.write_blocks),
            // So many blocks would be more than any file has.
            true => self.readers.saturating_add(self.writers.saturating_mul(self.write_blocks)),
        }
    }

    /// The block where a writer begins, if it has its own.
    fn own_block(&self, number: u32) -> Option<u32> {
        let writer = number - self.readers;
        self.own_blocks.then(|| self.readers + writer * self.write_blocks)
    }
}

/// `readseek`: a page cache in this program's memory, under the lock under test.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Readseek {
    /// Its parameters.
    #[command(flatten)]
    pub reads: Reads,
}

impl Workload for Readseek {
    const NAME: &'static str = "readseek";
    const ABOUT: &'static str =
        "seek and read of one shared file in memory, under a range lock or a lock around all of it";
    const EXAMPLES: &'static [&'static str] = &[
        "--lock none,naive,range,rwsem --workers 1,2,10",
        "--workers 2 --writers 1 --offsets same      torn reads under none",
        "--on skylake-sp-2s --workers 10 --seconds 0.001",
    ];
    const SUBJECTS: Subjects = Subjects { all: ranges::all, check: ranges::check, ..LOCKS };
    const DEFAULT_SUBJECTS: DefaultSubjects = DefaultSubjects {
        here: &["none", "range", "naive", "rwlock", "rwsem", "std"],
        simulated: &["none", "range", "naive", "rwlock", "rwsem", "linux-5.11"],
    };
    const DEFAULT_POINTS: &'static [DefaultPoints] = &[points("readers", "1,2,10")];

    fn roles(&self) -> Vec<Role> {
        self.reads.roles()
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        self.reads.words()
    }

    fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        self.reads.validate(pause_ns)
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_file_lock(self, request)
    }
}

impl UnderFileLock for Readseek {
    fn run_under<W: Machine, L: FileLock>(
        &self,
        request: &Request<'_, W>,
        lock: L,
    ) -> Result<Repetition, LabError> {
        let (world, params) = (request.world, &self.reads);
        let lock = CachePadded::new(lock);
        let lock: &L = &lock;
        let file = world.cached_file(params.blocks(), params.block_bytes);
        let think = params.think.pauses(world.pause_ns());
        let bodies = bodies(params.workers(), &|number| {
            let (lock, file, buffer) = (lock, &file, file.buffer(number));
            let access = Locked { world, lock, file, block_bytes: params.block_bytes, buffer };
            let worker = Worker::new(access, params, number, L::IS_ATOMIC, world.seed(), think);
            Box::new(move || worker.work(world))
        });
        let mut repetition = run_threads(request, Readseek::NAME, bodies)?;
        repetition.events = lock.events();
        Ok(repetition)
    }
}

/// The forms by the kernel's own system calls: one [`Workload`] each.
macro_rules! kernels_forms {
    ($($(#[doc = $doc:literal])* $form:ident $name:literal: $about:literal, $needs:expr, $place:ident;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $form {
            /// Its parameters.
            #[command(flatten)]
            pub reads: Reads,
        }

        impl Workload for $form {
            const NAME: &'static str = $name;
            const ABOUT: &'static str = $about;
            const EXAMPLES: &'static [&'static str] = &["--workers 1,2,10"];
            const SUBJECTS: Subjects = Subjects {
                all: |simulated| if simulated { Vec::new() } else { vec![KERNEL] },
                check: |name, simulated| check_kernel($name, Readseek::NAME, name, simulated),
                ..LOCKS
            };
            const DEFAULT_SUBJECTS: DefaultSubjects = KERNEL_ALONE;
            const NEEDS: &'static [Need] = $needs;
    const DEFAULT_POINTS: &'static [DefaultPoints] = &[points("readers", "1,2,10")];

    fn roles(&self) -> Vec<Role> {
                self.reads.roles()
            }

            fn words(&self) -> Vec<(&'static str, String)> {
                self.reads.words()
            }

            fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
                self.reads.validate(pause_ns)
            }

            fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
                kernel::run(request, $name, &self.reads, kernel::Place::$place)
            }
        }
    )*};
}

kernels_forms! {
    /// `readseek-kernel`: a file in a directory, by system calls.
    ReadseekKernel "readseek-kernel":
        "lseek and read of a file on disk, as your kernel does them", &[Need::Directory], Directory;
    /// `readseek-kernel-tmpfs`: a file in the kernel's memory, by system calls.
    ReadseekKernelTmpfs "readseek-kernel-tmpfs":
        "lseek and read of a file in memory, on the kernel's tmpfs", &[], Tmpfs;
}

/// `readseek-processes`: a process for each worker, and a file in memory that they share.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReadseekProcesses {
    /// Its parameters.
    #[command(flatten)]
    pub reads: Reads,
}

/// A process is some thousand times what a thread is.
const MOST_PROCESSES: u32 = 256;

impl Workload for ReadseekProcesses {
    const NAME: &'static str = "readseek-processes";
    const ABOUT: &'static str = "seek and read of shared memory, a process for each worker: none, pthread, fcntl or kernel as lock";
    const EXAMPLES: &'static [&'static str] = &["--workers 2,10 --writers 0,1"];
    const SUBJECTS: Subjects = Subjects {
        all: |simulated| match simulated {
            true => Vec::new(),
            false => PROCESS_LOCKS.map(|(name, _)| name).to_vec(),
        },
        check: |name, simulated| {
            let known = PROCESS_LOCKS.map(|(name, _)| name).to_vec();
            match (simulated, known.contains(&name)) {
                (true, _) => check_kernel(Self::NAME, Readseek::NAME, name, simulated),
                (false, true) => Ok(()),
                (false, false) => Err(LabError::UnknownLock { name: name.to_string(), known }),
            }
        },
        ..LOCKS
    };
    const DEFAULT_SUBJECTS: DefaultSubjects =
        DefaultSubjects { here: &["none", "pthread", "fcntl", "kernel"], simulated: &[] };
    const DEFAULT_POINTS: &'static [DefaultPoints] = &[points("readers", "1,2,10")];

    fn roles(&self) -> Vec<Role> {
        self.reads.roles()
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        self.reads.words()
    }

    fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        self.reads.validate(pause_ns)?;
        match self.reads.workers() {
            0..=MOST_PROCESSES => Ok(()),
            more => wrong("readers + writers", more, format!("1 to {MOST_PROCESSES} processes")),
        }
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        processes::run(request, &self.reads)
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
    Read { own: u32, workers: u32, overlap: Overlap, check: Check, torn: u64 },
    Write { first: First, span: u32, stamp: u64 },
}

/// Where a write begins.
enum First {
    /// Always at this block.
    At(u32),
    /// At one of so many blocks, drawn for each write.
    Below(u32),
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
    fn new(access: A, params: &Reads, number: u32, atomic: bool, seed: u64, think: u32) -> Self {
        let overlap = params.overlap;
        let duty = if number < params.readers {
            let check = match (params.writers, atomic) {
                (0, _) => Check::Nothing,
                (_, false) => Check::Count,
                (_, true) => Check::Fail,
            };
            Duty::Read { own: number, workers: params.readers, overlap, check, torn: 0 }
        } else {
            // No two writers and no two writes have the same stamp.
            let stamp = u64::from(number) << 40;
            let span = params.write_blocks;
            let first = match (params.own_block(number), overlap) {
                (Some(own), _) => First::At(own),
                (None, Overlap::Same) => First::At(0),
                (None, Overlap::Disjoint | Overlap::Random) => {
                    First::Below(params.blocks() - span + 1)
                }
            };
            Duty::Write { first, span, stamp }
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
            Duty::Read { own, workers, overlap, check, torn } => {
                let block = match overlap {
                    Overlap::Disjoint => *own,
                    Overlap::Same => 0,
                    Overlap::Random => self.random.below(*workers),
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
            Duty::Write { first, span, stamp } => {
                let first = match *first {
                    First::At(block) => block,
                    First::Below(blocks) => self.random.below(blocks),
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
        let bytes = |blocks: u32| u64::from(blocks) * u64::from(self.block_bytes);
        let (start, end) = (bytes(blocks.start), bytes(blocks.end));
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
