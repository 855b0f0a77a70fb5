//! `fairlock bench`: from options to a batch of cells.

use std::convert::Infallible;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use fairlock_lab::error::LabError;
use fairlock_lab::former_names;
use fairlock_lab::grid::{self, Params};
use fairlock_lab::locks;
use fairlock_lab::plan::{KERNEL, Simulated, Workload};
use fairlock_lab::study::{Batch, CellSpec};
use fairlock_lab::units::{self, Length};
use fairlock_lab::workloads::dio::DioForm;
use fairlock_lab::workloads::epoll;
use fairlock_lab::workloads::inversion::InversionForm;
use fairlock_lab::workloads::log::{self, BLOCK_RECORD_BYTES, Syncing};
use fairlock_lab::workloads::readseek::{Overlap, PAGE_BYTES, ReadseekForm};
use fairlock_lab::workloads::{epoll_wait, forkstorm, forkstorm_kernel, stress_epoll};
use fairlock_lab::workloads::{revocation, rmapstorm, turns, uncontended};
use fairlock_lab::world::pause_ns;

/// What to bench.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Readers and writers on one lock with short sections
    #[command(after_help = "Example:\n  \
        fairlock bench mix --lock rwsem,std,usync --threads 2,8,32 --section 10p --think 200ns\n  \
        fairlock bench mix --lock all --threads 8 --read-percent 99 --out mix.jsonl\n  \
        fairlock bench mix --on ivybridge-ex-8s --lock linux-5.1,linux-5.2 --threads 8,64,240\n  \
        fairlock bench mix --on ivybridge-ex-8s --threads 8 --timeline mix.json")]
    Mix(Mix),
    /// Direct I/O: one file appended and tailed, or the same shape with sleeping holders
    #[command(after_help = "Example:\n  \
        fairlock bench dio --form kernel --readers 0,1,4 --read-bytes 4k,64k,1m\n  \
        fairlock bench dio --form log --readers 0,1,4        the same on a LogFile\n  \
        fairlock bench dio --form sleep --lock rwsem,std --readers 1,2,4 --read-hold 300us")]
    Dio(Dio),
    /// Threads that read and write by turns: what a lock itself costs, sections empty
    #[command(after_help = "Example:\n  \
        fairlock bench turns --threads 1,2,8 --read-percent 100,99.9,99,90,50\n  \
        fairlock bench turns --lock rwlock,parking_lot --threads 2 --read-percent 100 --pinned\n  \
        fairlock bench turns --read-percent 99 --time-every 1          every wait, slower\n  \
        fairlock bench turns --on ivybridge-ex-8s --threads 2,240 --think 100p --seconds 0.001")]
    Turns(Turns),
    /// One thread that locks and unlocks; the rate is that of pairs
    #[command(after_help = "Example:\n  \
        fairlock bench uncontended --lock rwlock,std,parking_lot --seconds 0.02 --repetitions 15\n  \
        fairlock bench uncontended --lock rwlock,sharded --readers 1,2")]
    Uncontended(Uncontended),
    /// A write right after many reads by threads that still run; see its wait and hold
    #[command(after_help = "Example:\n  \
        fairlock bench revocation --lock rwlock,sharded,std --readers 1,3 --reads-between 0,50000")]
    Revocation(Revocation),
    /// Workers that seek and read in one shared file: under range locks, or under a lock around it
    #[command(after_help = "Example:\n  \
        fairlock bench readseek --lock none,naive,range,rwsem --workers 1,2,10\n  \
        fairlock bench readseek --workers 2 --writers 1 --offsets same      torn reads under none\n  \
        fairlock bench readseek --form kernel --workers 1,2,10              what your kernel does\n  \
        fairlock bench readseek --processes --workers 2,10 --writers 0,1\n  \
        fairlock bench readseek --on skylake-sp-2s --workers 10 --seconds 0.001")]
    Readseek(Readseek),
    /// Real-time threads on one CPU: how long the high one waits for the low one that a hog has stopped
    #[command(after_help = "Example:\n  \
        fairlock bench inversion                      lists of ready sources, epoll and locks\n  \
        fairlock bench inversion --lock mutex,pthread-mutex,pthread-inherit --work 200us\n  \
        fairlock bench inversion --lock rwlock,rwsem --low reads,writes --high reads,writes\n  \
        fairlock bench inversion --on x86-12          needs no permission\n\n\
        Real threads get the priorities 1 to 4 of SCHED_FIFO, which root may give, and others up to\n\
        `ulimit -r`.")]
    Inversion(Inversion),
    /// A mail server's processes that fork and exit: sixteen locks, all taken exclusively, in convoys
    #[command(after_help = "Example:\n  \
        fairlock bench forkstorm --threads 1,2,8\n  \
        fairlock bench forkstorm --lock linux-3.10,linux-5.11,rwsem,mutex,std-mutex --threads 8\n  \
        fairlock bench forkstorm --insert-percent 10 --wait-every 300us --wait 50us\n  \
        fairlock bench forkstorm --on westmere-ex-4s --threads 40,80 --seeds 3")]
    Forkstorm(Forkstorm),
    /// Walks from a page to all who map it, beside those who change that: the fork storm's locks, also shared
    #[command(after_help = "Example:\n  \
        fairlock bench rmapstorm --threads 1,2,8\n  \
        fairlock bench rmapstorm --lock all --threads 8 --read-percent 90 --think 2us\n  \
        fairlock bench rmapstorm --on westmere-ex-4s --threads 40 --seeds 3")]
    Rmapstorm(Rmapstorm),
    /// Threads that append to a log: LogFile, plain files, another crate's log, equally durable
    #[command(after_help = "Example:\n  \
        fairlock bench log --dir /mnt/nvme\n  \
        fairlock bench log --sync every --threads 1,4,16              threads commit together\n  \
        fairlock bench log --sync never --readers 0,1,4 --read-bytes 4k,1m\n  \
        fairlock bench log --log logfile,okaywal --record-bytes 100 --threads 8")]
    Log(Log),
    /// Threads that add to a counter each, and one that waits for all of them: epoll and its lists
    #[command(after_help = "Example:\n  \
        fairlock bench stress-epoll\n  \
        fairlock bench stress-epoll --poller kernel,ready --threads 8,128 --trigger edge\n  \
        fairlock bench stress-epoll --poller spin-list-mcs --threads 1       it only spins\n  \
        fairlock bench stress-epoll --on x86-12 --poller ready,rwlock-list-queued,spin-list-mcs --think 300ns")]
    StressEpoll(StressEpoll),
    /// Threads that wait for one event at a time, and one that keeps them busy: perf bench epoll wait
    #[command(after_help = "Example:\n  \
        fairlock bench epoll-wait\n  \
        fairlock bench epoll-wait --threads 2,8 --shared --trigger once\n  \
        fairlock bench epoll-wait --poller kernel --nonblocking --nested 3 --random\n  \
        fairlock bench epoll-wait --on riscv-4 --poller ready,rwlock-list-queued,spin-list-mcs")]
    EpollWait(EpollWait),
    /// Chains of processes really forked, as a mail server has them, against this machine's kernel
    #[command(after_help = "Example:\n  \
        fairlock bench forkstorm-kernel\n  \
        fairlock bench forkstorm-kernel --threads 8 --vmas 1,16,64       what mappings cost\n  \
        fairlock bench forkstorm-kernel --threads 4 --touch 0,4 --compute 100us\n\n\
        A message is two forks, and a connection's first one has one more; up to three processes of\n\
        each client are there at once. Under `wait` stand the calls of fork(), under `hold` the\n\
        innermost processes, under `latency` the messages. Of the CPU shares only idle is right where\n\
        the kernel tells user from system at its clock's ticks: it takes shorter processes for user.")]
    ForkstormKernel(ForkstormKernel),
}

/// Options of all workloads.
#[derive(Debug, Args)]
pub struct Common {
    /// Seconds to measure in each repetition [default: 0.5, with --on 0.02]
    #[arg(long, value_name = "S", value_parser = units::parse_seconds)]
    pub seconds: Option<f64>,
    /// Interleaved repetitions of each cell
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    pub repetitions: u32,
    /// Simulated machines to run on instead of this one: names (see `fairlock list`) or files
    #[arg(long, value_name = "MACHINE", value_delimiter = ',', conflicts_with = "repetitions")]
    on: Vec<String>,
    /// Repetitions of each cell on a simulated machine, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = at_least_one, requires = "on")]
    seeds: u32,
    /// The first of these seeds; the same seeds give the same rows
    #[arg(long, value_name = "SEED", default_value_t = 1, requires = "on")]
    seed: u64,
    /// Write how the first seed's runs begin to this file, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE.json", requires = "on")]
    pub timeline: Option<std::path::PathBuf>,
    /// How much of a run the timeline shows
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = timeline_length, requires = "timeline")]
    timeline_length: u64,
    /// Also write the rows to this file, for `fairlock report`
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: Option<std::path::PathBuf>,
    /// Directory for scratch files of direct I/O
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: std::path::PathBuf,
    /// Seconds that a run may take too long before its lock counts as hung
    #[arg(long, value_name = "S", default_value = DEFAULT_PATIENCE, value_parser = units::parse_wait)]
    pub patience: Duration,
}

const DEFAULT_SECONDS: f64 = 0.5;
const DEFAULT_SIMULATED_SECONDS: f64 = 0.02;
/// A longer timeline is more than a viewer takes.
const LONGEST_TIMELINE_NS: u64 = 100_000_000;

impl Common {
    /// The simulated machines; none means real threads.
    fn machines(&self) -> Result<Vec<Simulated>, String> {
        let timeline_ns = if self.timeline.is_some() { self.timeline_length } else { 0 };
        let mut machines: Vec<Simulated> = Vec::new();
        for name in &self.on {
            let machine = Simulated { timeline_ns, ..Simulated::find(name, self.seed)? };
            // Rows tell machines apart by their names.
            if machines.iter().any(|known| known.machine() == machine.machine()) {
                return Err(format!("--on names the machine \"{}\" twice", machine.machine()));
            }
            machines.push(machine);
        }
        Ok(machines)
    }
}

fn timeline_length(text: &str) -> Result<u64, String> {
    match units::parse_time_ns(text)? {
        ns @ 1..=LONGEST_TIMELINE_NS => Ok(ns),
        _ => Err(format!("\"{text}\" is not a length of a timeline; give 1ns to 100ms (2ms)")),
    }
}

/// Longer than any disk takes to sync a scratch file, and than a starved thread its last turn.
pub const DEFAULT_PATIENCE: &str = "60";

#[derive(Debug, Args)]
pub struct Mix {
    /// Locks to compare, or all but the reference locks: `all` (see `fairlock list`)
    ///
    /// [default: rwsem,std,parking_lot,usync, with --on rwsem,phase-fair,linux-5.11,mutex]
    #[arg(long, value_name = "LOCK", value_delimiter = ',', value_parser = lock_name)]
    lock: Vec<String>,
    /// Thread counts, half of them readers; with --read-percent every thread does both
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2,8", value_parser = at_least_one)]
    threads: Vec<u32>,
    /// Dedicated readers, instead of --threads
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with_all = ["threads", "read_percent"])]
    readers: Vec<u32>,
    /// Dedicated writers, instead of --threads
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with_all = ["threads", "read_percent"])]
    writers: Vec<u32>,
    /// Share of operations that read; the rest write
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = percent)]
    read_percent: Vec<f64>,
    /// Time inside the lock: pauses (10p) or time (200ns)
    #[arg(long, value_name = "LENGTH", default_value = "10p")]
    section: Length,
    /// Time between two operations: pauses (10p) or time (200ns)
    #[arg(long, value_name = "LENGTH", default_value = "10p")]
    think: Length,
    #[command(flatten)]
    pub common: Common,
}

/// Where the lock of the direct I/O comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// The kernel's inode lock: appends beside tail reads
    Kernel,
    /// The same I/O with the readers on another file: the device without the lock
    KernelApart,
    /// Appends to a LogFile beside reads of its tail: the kernel's lock, shared by both
    Log,
    /// The same with the readers on another LogFile
    LogApart,
    /// A lock of this program around the same I/O on preallocated blocks
    Lock,
    /// A lock of this program whose holders sleep instead
    Sleep,
}

#[derive(Debug, Args)]
pub struct Dio {
    /// Locks to compare, or all but the reference locks: `all`; not for the kernel's form
    #[arg(long, value_name = "LOCK", value_delimiter = ',', value_parser = lock_name)]
    lock: Vec<String>,
    /// Where the lock comes from
    #[arg(long, value_enum, default_value = "sleep")]
    form: Form,
    /// Reading threads
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0,1,2,4")]
    readers: Vec<u32>,
    /// Writing threads
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    writers: Vec<u32>,
    /// Bytes of a read; writes have 4 KiB
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "64k", value_parser = block)]
    read_bytes: Vec<u32>,
    /// How long a sleeping reader holds the lock
    #[arg(long, value_name = "TIME", default_value = "300us", value_parser = units::parse_time_ns)]
    read_hold: u64,
    /// How long a sleeping writer holds the lock
    #[arg(long, value_name = "TIME", default_value = "20us", value_parser = units::parse_time_ns)]
    write_hold: u64,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Debug, Args)]
pub struct Turns {
    /// Locks to compare, or all but the reference locks: `all` (see `fairlock list`)
    ///
    /// [default: rwlock,rwsem,std,parking_lot, with --on rwlock,rwsem,linux-5.11,mutex]
    #[arg(long, value_name = "LOCK", value_delimiter = ',', value_parser = lock_name)]
    lock: Vec<String>,
    /// Thread counts
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,8", value_parser = at_least_one)]
    threads: Vec<u32>,
    /// Share of operations that read; the rest write
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "99", value_parser = percent)]
    read_percent: Vec<f64>,
    /// Time inside the lock: pauses (10p) or time (200ns)
    #[arg(long, value_name = "LENGTH", default_value = "0p")]
    section: Length,
    /// Time between two operations: pauses (10p) or time (200ns)
    #[arg(long, value_name = "LENGTH", default_value = "0p")]
    think: Length,
    /// Keep each thread on a CPU of its own
    #[arg(long)]
    pinned: bool,
    /// Time one of every N bursts of 64 operations; 1 times all of them, which slows short operations down
    #[arg(long, value_name = "N", default_value_t = turns::DEFAULT_TIME_EVERY, value_parser = at_least_one)]
    time_every: u32,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Debug, Args)]
pub struct Forkstorm {
    /// Locks to compare, or all but the reference locks: `all` (see `fairlock list`)
    ///
    /// [default: mutex,linux-3.10,linux-5.11,rwsem, here also std and parking_lot]
    #[arg(long, value_name = "LOCK", value_delimiter = ',', value_parser = lock_name)]
    lock: Vec<String>,
    /// Numbers of clients, a thread each
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,8", value_parser = at_least_one)]
    threads: Vec<u32>,
    /// Vmas of each process, and as many locks
    #[arg(long, value_name = "N", default_value = "16", value_parser = at_least_one)]
    vmas: u32,
    /// Inserts into trees, in percent of the time of one thread alone: sets how long processes compute
    #[arg(long, value_name = "PERCENT", default_value = "3.5", value_parser = percent)]
    insert_percent: f64,
    /// Part of the computing that lies between the vmas of a fork
    #[arg(long, value_name = "PERCENT", default_value = "25", value_parser = percent)]
    copy_percent: f64,
    /// How long a client computes before it sleeps; 0: it never sleeps
    #[arg(long, value_name = "TIME", default_value = "0ns", value_parser = units::parse_time_ns)]
    wait_every: u64,
    /// How long it then sleeps
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = units::parse_time_ns)]
    wait: u64,
    /// Use unused anon_vmas of ancestors again, as Linux does since 3.19
    #[arg(long)]
    reuse: bool,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Debug, Args)]
pub struct Rmapstorm {
    /// Locks to compare, or all but the reference locks: `all` (see `fairlock list`)
    ///
    /// [default: mutex,linux-3.10,linux-5.11,rwsem, here also std and parking_lot]
    #[arg(long, value_name = "LOCK", value_delimiter = ',', value_parser = lock_name)]
    lock: Vec<String>,
    /// Thread counts
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,8", value_parser = at_least_one)]
    threads: Vec<u32>,
    /// Share of operations that walk; the rest copy and unmap a vma
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0,50,90,99", value_parser = percent)]
    read_percent: Vec<f64>,
    /// Vmas of each process, and as many locks
    #[arg(long, value_name = "N", default_value = "16", value_parser = at_least_one)]
    vmas: u32,
    /// Time between two operations: pauses (10p) or time (200ns)
    #[arg(long, value_name = "LENGTH", default_value_t = Length::Pauses(rmapstorm::DEFAULT_THINK_PAUSES))]
    think: Length,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Debug, Args)]
pub struct Uncontended {
    /// Locks to compare, or all but the reference locks: `all` (see `fairlock list`)
    ///
    /// [default: rwlock,rwsem,std,parking_lot, with --on rwlock,rwsem,linux-5.11,mutex]
    #[arg(long, value_name = "LOCK", value_delimiter = ',', value_parser = lock_name)]
    lock: Vec<String>,
    /// Numbers of readers, each on a CPU of its own; one writer alone is measured besides
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = at_least_one)]
    readers: Vec<u32>,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Debug, Args)]
pub struct Revocation {
    /// Locks to compare, or all but the reference locks: `all` (see `fairlock list`)
    ///
    /// [default: rwlock,rwsem,std,parking_lot, with --on rwlock,rwsem,linux-5.11,mutex]
    #[arg(long, value_name = "LOCK", value_delimiter = ',', value_parser = lock_name)]
    lock: Vec<String>,
    /// Threads that read
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = at_least_one)]
    readers: Vec<u32>,
    /// Reads of each of them between two writes; 0 for the cost of a write after a write
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0,50000")]
    reads_between: Vec<u32>,
    #[command(flatten)]
    pub common: Common,
}

/// Where the file that is read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FileForm {
    /// In this program's memory, under a lock of this program
    Memory,
    /// In a directory (--dir), by system calls
    Kernel,
    /// On the kernel's tmpfs, by system calls
    KernelTmpfs,
}

/// Where the workers read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Offsets {
    /// Each at its own
    Disjoint,
    /// All at the same one
    Same,
    /// At a random worker's, drawn anew for each iteration
    Random,
}

#[derive(Debug, Args)]
pub struct Readseek {
    /// Range locks and other locks to compare, or `all` (see `fairlock list`); not for the kernel's forms
    ///
    /// [default: none,range,naive,rwsem,std, with --on none,range,naive,rwsem,linux-5.11,
    /// with --processes all: none,pthread,fcntl,kernel]
    #[arg(long, value_name = "LOCK", value_delimiter = ',', value_parser = lock_name)]
    lock: Vec<String>,
    /// Where the file is
    #[arg(long, value_enum, default_value = "memory")]
    form: FileForm,
    /// A process for each worker instead of a thread; the file is in memory that they share
    #[arg(long, conflicts_with_all = ["form", "on"])]
    processes: bool,
    /// Workers that seek and read
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,10", value_parser = at_least_one)]
    workers: Vec<u32>,
    /// Workers that overwrite blocks of the others
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    writers: Vec<u32>,
    /// Where the workers read
    #[arg(long, value_enum, default_value = "disjoint")]
    offsets: Offsets,
    /// Bytes of one read, whole pages
    #[arg(long, value_name = "SIZE", default_value_t = PAGE_BYTES, value_parser = block)]
    block: u32,
    /// Adjacent blocks that one write covers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    write_blocks: u32,
    /// Time between two iterations: pauses (10p) or time (200ns)
    #[arg(long, value_name = "LENGTH", default_value = "0p")]
    think: Length,
    #[command(flatten)]
    pub common: Common,
}

/// How a thread acquires the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Access {
    /// Shared
    Reads,
    /// Exclusively
    Writes,
}

#[derive(Debug, Args)]
pub struct Inversion {
    /// Lists and locks to compare, or `all`
    ///
    /// [default: ready,rwlock-list,spin-list,kernel,rwlock,rwsem,mutex,std,std-mutex,parking_lot,pthread,
    /// pthread-writer,pthread-mutex,pthread-inherit; with --on those of them that run there]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = lock_name)]
    lock: Vec<String>,
    /// How long the low thread works between two short sleeps: while it holds the lock, or signalling
    #[arg(long, value_name = "TIME", value_delimiter = ',', default_value = "50us", value_parser = units::parse_time_ns)]
    work: Vec<u64>,
    /// How long the hog computes each time
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = units::parse_time_ns)]
    hog: u64,
    /// How long the hog sleeps in between: from half of this to one and a half times this
    #[arg(long, value_name = "TIME", default_value = "15ms", value_parser = units::parse_time_ns)]
    hog_every: u64,
    /// How long the high thread sleeps between two operations: from half of this to one and a half times this
    #[arg(long, value_name = "TIME", default_value = "500us", value_parser = units::parse_time_ns)]
    high_every: u64,
    /// How the low thread acquires a lock
    #[arg(long, value_enum, value_delimiter = ',', default_value = "writes")]
    low: Vec<Access>,
    /// How the high thread acquires a lock
    #[arg(long, value_enum, value_delimiter = ',', default_value = "writes")]
    high: Vec<Access>,
    #[command(flatten)]
    pub common: Common,
}

/// When records are brought to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sync {
    /// Before each append is acknowledged
    Every,
    /// Every 100 ms, beside the appends
    Interval,
    /// Not while it is measured
    Never,
}

#[derive(Debug, Args)]
pub struct Log {
    /// Logs to compare, or `all` (see `fairlock list`); each where it can do what is asked
    #[arg(long, value_name = "LOG", value_delimiter = ',', default_value = "all")]
    log: Vec<String>,
    /// When records are brought to the device; logs are compared only with the same
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        value_delimiter = ',',
        default_value = "every,interval,never"
    )]
    sync: Vec<Sync>,
    /// Threads that append
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4", value_parser = at_least_one)]
    threads: Vec<u32>,
    /// Bytes of a record; plain files write whole blocks
    #[arg(long, value_name = "SIZE", default_value_t = BLOCK_RECORD_BYTES, value_parser = units::parse_bytes)]
    record_bytes: u32,
    /// Threads that read the tail
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    readers: Vec<u32>,
    /// Bytes of a read
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "64k", value_parser = block)]
    read_bytes: Vec<u32>,
    #[command(flatten)]
    pub common: Common,
}

/// When a source is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Trigger {
    /// As long as there is something to read
    Level,
    /// Once for what was added since
    Edge,
    /// Once, until it is modified, which its reader does after each read
    Once,
}

impl Trigger {
    fn number(self) -> f64 {
        let trigger = match self {
            Trigger::Level => epoll::Trigger::Level,
            Trigger::Edge => epoll::Trigger::Edge,
            Trigger::Once => epoll::Trigger::Once,
        };
        trigger.number().into()
    }
}

#[derive(Debug, Args)]
pub struct StressEpoll {
    /// Pollers to compare, or all but those that only spin: `all` (see `fairlock list`)
    #[arg(long, value_name = "POLLER", value_delimiter = ',', default_value = "all")]
    poller: Vec<String>,
    /// Threads that add; one more waits
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8,16,32,64,128", value_parser = at_least_one)]
    threads: Vec<u32>,
    /// When a source is reported
    #[arg(long, value_enum, default_value = "level")]
    trigger: Trigger,
    /// Time between two additions of a thread: pauses (10p) or time (200ns)
    #[arg(long, value_name = "LENGTH", default_value = "0p")]
    think: Length,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Debug, Args)]
pub struct EpollWait {
    /// Pollers to compare, or all but those that only spin: `all` (see `fairlock list`)
    #[arg(long, value_name = "POLLER", value_delimiter = ',', default_value = "all")]
    poller: Vec<String>,
    /// Threads that wait; one more adds [default: one less than there are CPUs]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = at_least_one)]
    threads: Vec<u32>,
    /// Sources of each thread that waits
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one)]
    sources: u32,
    /// All wait on one poller, instead of one each
    #[arg(long)]
    shared: bool,
    /// When a source is reported
    #[arg(long, value_enum, default_value = "level")]
    trigger: Trigger,
    /// Poll without waiting
    #[arg(long)]
    nonblocking: bool,
    /// Pollers in a chain below each one, up to 4
    #[arg(long, value_name = "N", default_value_t = 0)]
    nested: u32,
    /// Add to the sources in a random order
    #[arg(long)]
    random: bool,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Debug, Args)]
pub struct ForkstormKernel {
    /// Numbers of clients, a chain of processes each, with one connection of 10 messages after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8", value_parser = at_least_one)]
    threads: Vec<u32>,
    /// Anonymous mappings that every process inherits
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "16", value_parser = at_least_one)]
    vmas: Vec<u32>,
    /// Pages of each mapping
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = at_least_one)]
    pages: u32,
    /// Pages of each mapping that every process writes to
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    touch: Vec<u32>,
    /// How long every process computes: pauses (10p) or time (200ns)
    #[arg(long, value_name = "LENGTH", default_value = "10us")]
    compute: Length,
    #[command(flatten)]
    pub common: Common,
}

/// The chosen pollers, each known to the registry and able to run there.
fn chosen_pollers(names: &[String], simulated: bool) -> Result<Vec<String>, String> {
    let mut chosen: Vec<String> = Vec::new();
    for name in names {
        let all = if name == "all" { epoll::names(simulated) } else { vec![name.as_str()] };
        for name in all {
            epoll::check(name, simulated).map_err(|error| error.to_string())?;
            if !chosen.iter().any(|known| known == name) {
                chosen.push(name.to_owned());
            }
        }
    }
    Ok(chosen)
}

/// A whole number from 1 up.
pub fn at_least_one(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(number) if number >= 1 => Ok(number),
        _ => {
            Err(format!("\"{text}\" is not a whole number of at least 1 and at most {}", u32::MAX))
        }
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
        _ => Err(format!("\"{text}\" is not a percentage; give a number from 0 to 100")),
    }
}

/// Direct I/O moves whole blocks, and page caches whole pages.
fn block(text: &str) -> Result<u32, String> {
    let bytes = units::parse_bytes(text)?;
    if bytes.is_multiple_of(PAGE_BYTES) {
        Ok(bytes)
    } else {
        Err(format!("\"{text}\" is not a multiple of 4 KiB, which reads here have (4k, 64k, 1m)"))
    }
}

/// What to compare where nothing is said.
const DEFAULT_LOCKS: [&str; 4] = ["rwsem", "std", "parking_lot", "usync"];
/// The same on a simulated machine.
const DEFAULT_SIMULATED_LOCKS: [&str; 4] = ["rwsem", "phase-fair", "linux-5.11", "mutex"];

/// What to compare where nothing is said and a file is read.
const DEFAULT_FILE_LOCKS: [&str; 5] = ["none", "range", "naive", "rwsem", "std"];
/// The same on a simulated machine.
const DEFAULT_SIMULATED_FILE_LOCKS: [&str; 5] = ["none", "range", "naive", "rwsem", "linux-5.11"];

/// What to compare where nothing is said and a hog comes between.
const DEFAULT_SUBJECTS: [&str; 14] = [
    "ready",
    "rwlock-list",
    "spin-list",
    KERNEL,
    "rwlock",
    "rwsem",
    "mutex",
    "std",
    "std-mutex",
    "parking_lot",
    "pthread",
    "pthread-writer",
    "pthread-mutex",
    "pthread-inherit",
];

/// What the storms compare where nothing is said: their source's two, and ours.
const DEFAULT_STORM_LOCKS: [&str; 6] =
    ["mutex", "linux-3.10", "linux-5.11", "rwsem", "std", "parking_lot"];
/// Those of them that run on a simulated machine.
const DEFAULT_SIMULATED_STORM_LOCKS: [&str; 4] = ["mutex", "linux-3.10", "linux-5.11", "rwsem"];
/// What to compare where nothing is said and the default lock is the subject.
const DEFAULT_RWLOCKS: [&str; 4] = ["rwlock", "rwsem", "std", "parking_lot"];
/// The same on a simulated machine.
const DEFAULT_SIMULATED_RWLOCKS: [&str; 4] = ["rwlock", "rwsem", "linux-5.11", "mutex"];

/// As [`chosen`], with the default lock first where nothing is said.
fn chosen_beside_rwlock(names: &[String], simulated: bool) -> Result<Vec<String>, String> {
    let default = if simulated { DEFAULT_SIMULATED_RWLOCKS } else { DEFAULT_RWLOCKS };
    let default = default.map(str::to_owned);
    chosen(if names.is_empty() { &default } else { names }, simulated)
}

/// As [`chosen`], with those that the storms are about where nothing is said.
fn chosen_for_storms(names: &[String], simulated: bool) -> Result<Vec<String>, String> {
    let default: &[&str] =
        if simulated { &DEFAULT_SIMULATED_STORM_LOCKS } else { &DEFAULT_STORM_LOCKS };
    let default: Vec<String> = default.iter().map(|&name| name.to_owned()).collect();
    chosen(if names.is_empty() { &default } else { names }, simulated)
}

/// A lock as it is called now; whether there is such a lock depends on the workload.
fn lock_name(text: &str) -> Result<String, Infallible> {
    Ok(former_names::lock(text).to_owned())
}

/// The chosen locks, each known to the registry and able to run there.
fn chosen(names: &[String], simulated: bool) -> Result<Vec<String>, String> {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    if names.is_empty() {
        return Ok(owned(if simulated { &DEFAULT_SIMULATED_LOCKS } else { &DEFAULT_LOCKS }));
    }
    let mut chosen: Vec<String> = Vec::new();
    for name in names {
        let more = if name == "all" {
            owned(&if simulated { locks::all_simulated() } else { locks::all() })
        } else {
            let found = if simulated { locks::find_simulated(name) } else { locks::find(name) };
            found.map_err(|error| error.to_string())?;
            vec![name.clone()]
        };
        for name in more {
            if !chosen.contains(&name) {
                chosen.push(name);
            }
        }
    }
    Ok(chosen)
}

fn params<const N: usize>(list: [(&str, f64); N]) -> Params {
    list.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

impl Mix {
    fn points(&self, pause_ns: f64) -> Result<Vec<Params>, String> {
        let lengths = params([
            ("section_pauses", f64::from(self.section.pauses(pause_ns))),
            ("think_pauses", f64::from(self.think.pauses(pause_ns))),
        ]);
        let mut points = Vec::new();
        if !self.readers.is_empty() || !self.writers.is_empty() {
            let or_none = |list: &[u32]| {
                if list.is_empty() { vec![0] } else { list.to_vec() }
            };
            for &readers in &or_none(&self.readers) {
                for &writers in &or_none(&self.writers) {
                    points.push(params([
                        ("readers", f64::from(readers)),
                        ("writers", f64::from(writers)),
                    ]));
                }
            }
        } else if self.read_percent.is_empty() {
            for &threads in &self.threads {
                if threads < 2 {
                    return Err(format!(
                        "--threads {threads} cannot be half readers, half writers; give at least 2, \
                         or --read-percent, or --readers and --writers"
                    ));
                }
                points.push(params([
                    ("readers", f64::from(threads - threads / 2)),
                    ("writers", f64::from(threads / 2)),
                ]));
            }
        } else {
            for &threads in &self.threads {
                for &percent in &self.read_percent {
                    points
                        .push(params([("threads", f64::from(threads)), ("read_percent", percent)]));
                }
            }
        }
        for point in &mut points {
            point.extend(lengths.clone());
        }
        Ok(points)
    }
}

impl Turns {
    fn points(&self, pause_ns: f64) -> Vec<Params> {
        let point = |threads: u32, percent: f64| {
            params([
                ("threads", f64::from(threads)),
                ("read_percent", percent),
                ("section_pauses", f64::from(self.section.pauses(pause_ns))),
                ("think_pauses", f64::from(self.think.pauses(pause_ns))),
                ("pinned", f64::from(u8::from(self.pinned))),
                ("time_every", f64::from(self.time_every)),
            ])
        };
        let of = |&percent| self.threads.iter().map(move |&threads| point(threads, percent));
        self.read_percent.iter().flat_map(of).collect()
    }
}

impl Rmapstorm {
    fn points(&self, pause_ns: f64) -> Vec<Params> {
        let point = |threads: u32, percent: f64| {
            params([
                ("threads", f64::from(threads)),
                ("read_percent", percent),
                ("vmas", f64::from(self.vmas)),
                ("think_pauses", f64::from(self.think.pauses(pause_ns))),
            ])
        };
        let of = |&percent| self.threads.iter().map(move |&threads| point(threads, percent));
        self.read_percent.iter().flat_map(of).collect()
    }
}

impl Forkstorm {
    fn points(&self) -> Vec<Params> {
        let point = |&threads: &u32| {
            params([
                ("threads", f64::from(threads)),
                ("vmas", f64::from(self.vmas)),
                ("reuse", f64::from(u8::from(self.reuse))),
                ("insert_percent", self.insert_percent),
                ("copy_percent", self.copy_percent),
                ("wait_every_ns", self.wait_every as f64),
                ("wait_ns", if self.wait_every == 0 { 0.0 } else { self.wait as f64 }),
            ])
        };
        self.threads.iter().map(point).collect()
    }
}

impl Uncontended {
    fn points(&self) -> Vec<Params> {
        let readers = |count: &u32| params([("readers", f64::from(*count))]);
        self.readers.iter().map(readers).chain([params([("writers", 1.0)])]).collect()
    }
}

impl Revocation {
    fn points(&self) -> Vec<Params> {
        let point = |readers: u32, reads: u32| {
            params([("readers", f64::from(readers)), ("reads_between", f64::from(reads))])
        };
        let of = |&readers| self.reads_between.iter().map(move |&reads| point(readers, reads));
        self.readers.iter().flat_map(of).collect()
    }
}

impl Dio {
    fn form(&self) -> DioForm {
        match self.form {
            Form::Kernel => DioForm::Kernel,
            Form::KernelApart => DioForm::KernelApart,
            Form::Log => DioForm::Log,
            Form::LogApart => DioForm::LogApart,
            Form::Lock => DioForm::Lock,
            Form::Sleep => DioForm::Sleep,
        }
    }

    fn workload(&self) -> &'static str {
        self.form().name()
    }

    fn locks(&self, simulated: bool) -> Result<Vec<String>, String> {
        match (self.form().is_kernels(), self.lock.as_slice()) {
            (true, _) if simulated => Err(format!(
                "{} measures the real kernel, and a simulated machine has none; choose --form lock \
                 or --form sleep with --on",
                self.workload()
            )),
            (true, []) => Ok(vec!["kernel".to_owned()]),
            (true, [only]) if only == "kernel" => Ok(vec!["kernel".to_owned()]),
            (true, [first, ..]) => Err(format!(
                "this form measures the kernel's own lock, not \"{first}\"; leave --lock out, or \
                 choose --form lock or --form sleep"
            )),
            (false, names) => chosen(names, simulated),
        }
    }

    fn points(&self) -> Vec<Params> {
        let mut points = Vec::new();
        for &writers in &self.writers {
            for &readers in &self.readers {
                for &read_bytes in &self.read_bytes {
                    let mut point =
                        params([("readers", f64::from(readers)), ("writers", f64::from(writers))]);
                    if self.form == Form::Sleep {
                        point.extend(params([
                            ("read_hold_ns", self.read_hold as f64),
                            ("write_hold_ns", self.write_hold as f64),
                        ]));
                    } else {
                        point.extend(params([("read_bytes", f64::from(read_bytes))]));
                    }
                    // Without readers the size of a read makes no difference.
                    let repeats = |known: &Params| {
                        readers == 0
                            && known.get("readers") == Some(&0.0)
                            && known.get("writers") == point.get("writers")
                    };
                    if !points.contains(&point) && !points.iter().any(repeats) {
                        points.push(point);
                    }
                }
            }
        }
        points
    }
}

impl Readseek {
    fn form(&self) -> ReadseekForm {
        match self.form {
            _ if self.processes => ReadseekForm::Processes,
            FileForm::Memory => ReadseekForm::Cached,
            FileForm::Kernel => ReadseekForm::Kernel,
            FileForm::KernelTmpfs => ReadseekForm::KernelTmpfs,
        }
    }

    fn locks(&self, simulated: bool) -> Result<Vec<String>, String> {
        let form = self.form();
        let all = form.all_locks(simulated);
        let default = match form {
            ReadseekForm::Cached if simulated => DEFAULT_SIMULATED_FILE_LOCKS.to_vec(),
            ReadseekForm::Cached => DEFAULT_FILE_LOCKS.to_vec(),
            _ => all.clone(),
        };
        let asked: Vec<&str> = match self.lock.as_slice() {
            [] => default,
            names => names.iter().map(String::as_str).collect(),
        };
        let mut chosen: Vec<String> = Vec::new();
        for name in asked {
            let names = if name == "all" { all.as_slice() } else { &[name] };
            for &name in names {
                form.check_lock(name, simulated).map_err(|error| error.to_string())?;
                if !chosen.iter().any(|known| known == name) {
                    chosen.push(name.to_owned());
                }
            }
        }
        Ok(chosen)
    }

    fn points(&self, pause_ns: f64) -> Vec<Params> {
        let overlap = match self.offsets {
            Offsets::Disjoint => Overlap::Disjoint,
            Offsets::Same => Overlap::Same,
            Offsets::Random => Overlap::Random,
        };
        let point = |workers: u32, writers: u32| {
            params([
                ("readers", f64::from(workers)),
                ("writers", f64::from(writers)),
                ("overlap", f64::from(overlap.number())),
                ("block_bytes", f64::from(self.block)),
                ("write_blocks", f64::from(self.write_blocks)),
                ("think_pauses", f64::from(self.think.pauses(pause_ns))),
            ])
        };
        let of = |&writers| self.workers.iter().map(move |&workers| point(workers, writers));
        self.writers.iter().flat_map(of).collect()
    }
}

/// A point of one form of `inversion`, and what runs there.
struct InversionPoint {
    form: InversionForm,
    params: Params,
    names: Vec<String>,
}

impl Inversion {
    /// For each form the lists or locks that are asked for, if there are any.
    fn points(&self, simulated: bool) -> Result<Vec<InversionPoint>, String> {
        let mut points = Vec::new();
        for form in InversionForm::ALL {
            let names = self.names(form, simulated)?;
            if names.is_empty() {
                continue;
            }
            for &work in &self.work {
                let mut point = params([
                    ("work_ns", work as f64),
                    ("hog_ns", self.hog as f64),
                    ("hog_every_ns", self.hog_every as f64),
                    ("high_every_ns", self.high_every as f64),
                ]);
                if form == InversionForm::List {
                    points.push(InversionPoint { form, params: point, names: names.clone() });
                    continue;
                }
                for &low in &self.low {
                    for &high in &self.high {
                        let reads = |access| f64::from(u8::from(access == Access::Reads));
                        point.insert("low_reads".to_owned(), reads(low));
                        point.insert("high_reads".to_owned(), reads(high));
                        let (params, names) = (point.clone(), names.clone());
                        points.push(InversionPoint { form, params, names });
                    }
                }
            }
        }
        Ok(points)
    }

    /// The lists, or locks, that are asked for.
    fn names(&self, form: InversionForm, simulated: bool) -> Result<Vec<String>, String> {
        let other = InversionForm::ALL.into_iter().find(|it| *it != form).expect("there are two");
        let all = form.all_locks(simulated);
        let asked: Vec<&str> = match self.lock.as_slice() {
            [] => DEFAULT_SUBJECTS.into_iter().filter(|name| all.contains(name)).collect(),
            names => names.iter().map(String::as_str).collect(),
        };
        let mut chosen: Vec<String> = Vec::new();
        for name in asked {
            let names = if name == "all" { all.as_slice() } else { &[name] };
            for &name in names {
                match form.check_lock(name, simulated) {
                    Ok(()) if chosen.iter().any(|known| known == name) => {}
                    Ok(()) => chosen.push(name.to_owned()),
                    Err(_) if other.check_lock(name, simulated).is_ok() => {}
                    Err(error) => return Err(self.refusal(name, simulated, &error.to_string())),
                }
            }
        }
        Ok(chosen)
    }

    /// What is wrong with a name that neither form takes.
    fn refusal(&self, name: &str, simulated: bool, otherwise: &str) -> String {
        match InversionForm::Lock.check_lock(name, simulated) {
            Err(LabError::UnknownLock { .. }) if name == KERNEL => otherwise.to_owned(),
            Err(LabError::UnknownLock { .. }) | Ok(()) => {
                let known = InversionForm::ALL.map(|form| form.all_locks(simulated).join(", "));
                format!("there is no list and no lock \"{name}\"; valid: {}", known.join(", "))
            }
            Err(error) => error.to_string(),
        }
    }
}

impl Log {
    /// The logs that are asked for, each known to the registry.
    fn logs(&self) -> Result<Vec<String>, String> {
        let mut chosen: Vec<String> = Vec::new();
        for name in &self.log {
            let names = if name == "all" { log::names() } else { vec![name.as_str()] };
            for name in names {
                log::check(name).map_err(|error| error.to_string())?;
                if !chosen.iter().any(|known| known == name) {
                    chosen.push(name.to_owned());
                }
            }
        }
        Ok(chosen)
    }

    fn points(&self) -> Vec<Params> {
        let mut points = Vec::new();
        for &sync in &self.sync {
            let sync = match sync {
                Sync::Every => Syncing::EveryCommit,
                Sync::Interval => Syncing::Interval,
                Sync::Never => Syncing::Never,
            };
            for &writers in &self.threads {
                for &readers in &self.readers {
                    // Without readers the size of a read makes no difference.
                    let sizes = if readers == 0 { &self.read_bytes[..1] } else { &self.read_bytes };
                    for &read_bytes in sizes {
                        points.push(params([
                            ("writers", f64::from(writers)),
                            ("readers", f64::from(readers)),
                            ("record_bytes", f64::from(self.record_bytes)),
                            ("read_bytes", f64::from(read_bytes)),
                            ("sync", f64::from(sync.number())),
                        ]));
                    }
                }
            }
        }
        points
    }
}

impl StressEpoll {
    fn points(&self, pause_ns: f64) -> Vec<Params> {
        let point = |&threads: &u32| {
            params([
                ("readers", 1.0),
                ("writers", f64::from(threads)),
                ("trigger", self.trigger.number()),
                ("think_pauses", f64::from(self.think.pauses(pause_ns))),
            ])
        };
        self.threads.iter().map(point).collect()
    }
}

impl EpollWait {
    fn points(&self, cpus: u32) -> Vec<Params> {
        let default = [cpus.saturating_sub(1).max(1)];
        let threads = if self.threads.is_empty() { &default[..] } else { &self.threads };
        let point = |&threads: &u32| {
            params([
                ("readers", f64::from(threads)),
                ("writers", 1.0),
                ("sources", f64::from(self.sources)),
                ("shared", f64::from(u8::from(self.shared))),
                ("trigger", self.trigger.number()),
                ("polling", f64::from(u8::from(self.nonblocking))),
                ("nested", f64::from(self.nested)),
                ("random", f64::from(u8::from(self.random))),
            ])
        };
        threads.iter().map(point).collect()
    }
}

impl ForkstormKernel {
    fn points(&self, pause_ns: f64) -> Vec<Params> {
        let mut points = Vec::new();
        for &threads in &self.threads {
            for &vmas in &self.vmas {
                for &touch in &self.touch {
                    points.push(params([
                        ("threads", f64::from(threads)),
                        ("vmas", f64::from(vmas)),
                        ("pages", f64::from(self.pages)),
                        ("touch", f64::from(touch)),
                        ("compute_pauses", f64::from(self.compute.pauses(pause_ns))),
                    ]));
                }
            }
        }
        points
    }
}

/// The logs that can do what a point asks for.
fn able(logs: &[String], workload: &Workload) -> Result<Vec<String>, String> {
    let Workload::Log(params) = workload else { return Ok(logs.to_vec()) };
    let mut refusal = None;
    let mut able = Vec::new();
    for name in logs {
        match log::check(name).and_then(|log| log.check(params)) {
            Ok(()) => able.push(name.clone()),
            Err(error) => refusal = Some(error.to_string()),
        }
    }
    match refusal {
        Some(refusal) if able.is_empty() => Err(refusal),
        _ => Ok(able),
    }
}

impl Bench {
    /// The options that all workloads have.
    pub fn common(&self) -> &Common {
        match self {
            Bench::Mix(mix) => &mix.common,
            Bench::Dio(dio) => &dio.common,
            Bench::Turns(turns) => &turns.common,
            Bench::Forkstorm(it) => &it.common,
            Bench::Rmapstorm(it) => &it.common,
            Bench::Uncontended(uncontended) => &uncontended.common,
            Bench::Revocation(revocation) => &revocation.common,
            Bench::Readseek(readseek) => &readseek.common,
            Bench::Inversion(inversion) => &inversion.common,
            Bench::Log(log) => &log.common,
            Bench::StressEpoll(it) => &it.common,
            Bench::EpollWait(it) => &it.common,
            Bench::ForkstormKernel(it) => &it.common,
        }
    }

    /// One batch per grid point, so that the locks are compared interleaved and finished points
    /// survive Ctrl-C.
    ///
    /// # Errors
    /// A bad choice, in one line with the valid ones.
    pub fn batches(&self) -> Result<Vec<Batch>, String> {
        let machines = self.common().machines()?;
        if machines.is_empty() {
            return self.batches_on(None);
        }
        let batches = machines.into_iter().map(|machine| self.batches_on(Some(machine)));
        Ok(batches.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn batches_on(&self, on: Option<Simulated>) -> Result<Vec<Batch>, String> {
        let pause_ns = on.as_ref().map_or_else(pause_ns, |on| on.profile.cost.pause_ns);
        let simulated = on.is_some();
        if let Bench::Inversion(it) = self {
            let points = it.points(simulated)?;
            let batches =
                points.iter().map(|it| self.batch(&on, it.form.name(), &it.names, &it.params));
            return batches.collect();
        }
        let (workload, locks, points) = match self {
            Bench::Mix(mix) => ("mix", chosen(&mix.lock, simulated)?, mix.points(pause_ns)?),
            Bench::Dio(dio) => (dio.workload(), dio.locks(simulated)?, dio.points()),
            Bench::Turns(turns) => {
                let locks = chosen_beside_rwlock(&turns.lock, simulated)?;
                (turns::NAME, locks, turns.points(pause_ns))
            }
            Bench::Forkstorm(it) => {
                (forkstorm::NAME, chosen_for_storms(&it.lock, simulated)?, it.points())
            }
            Bench::Rmapstorm(it) => {
                let locks = chosen_for_storms(&it.lock, simulated)?;
                (rmapstorm::NAME, locks, it.points(pause_ns))
            }
            Bench::Uncontended(it) => {
                let locks = chosen_beside_rwlock(&it.lock, simulated)?;
                (uncontended::NAME, locks, it.points())
            }
            Bench::Revocation(it) => {
                let locks = chosen_beside_rwlock(&it.lock, simulated)?;
                (revocation::NAME, locks, it.points())
            }
            Bench::Readseek(it) => (it.form().name(), it.locks(simulated)?, it.points(pause_ns)),
            Bench::Inversion(_) => unreachable!("returned above"),
            Bench::Log(_) if simulated => {
                return Err("log measures real files, and a simulated machine has none".to_owned());
            }
            Bench::Log(it) => (log::NAME, it.logs()?, it.points()),
            Bench::StressEpoll(it) => {
                let pollers = chosen_pollers(&it.poller, simulated)?;
                (stress_epoll::NAME, pollers, it.points(pause_ns))
            }
            Bench::EpollWait(it) => {
                let here = || std::thread::available_parallelism().map_or(1, usize::from) as u32;
                let cpus = on.as_ref().map_or_else(here, |on| on.profile.topology.cpus());
                let pollers = chosen_pollers(&it.poller, simulated)?;
                (epoll_wait::NAME, pollers, it.points(cpus))
            }
            Bench::ForkstormKernel(it) => {
                grid::check_lock(forkstorm_kernel::NAME, KERNEL, simulated)?;
                (forkstorm_kernel::NAME, vec![KERNEL.to_owned()], it.points(pause_ns))
            }
        };
        points.iter().map(|params| self.batch(&on, workload, &locks, params)).collect()
    }

    /// The batch of one grid point.
    fn batch(
        &self,
        on: &Option<Simulated>,
        workload: &str,
        locks: &[String],
        params: &Params,
    ) -> Result<Batch, String> {
        let common = self.common();
        let (repetitions, seconds) = match on {
            Some(_) => (common.seeds, common.seconds.unwrap_or(DEFAULT_SIMULATED_SECONDS)),
            None => (common.repetitions, common.seconds.unwrap_or(DEFAULT_SECONDS)),
        };
        // The point must be one that the engine takes.
        let what = grid::workload(workload, params, &common.dir)?;
        let cell = |lock: &String| CellSpec {
            workload: workload.to_owned(),
            lock: lock.clone(),
            params: params.clone(),
            repetitions,
            seconds,
            on: on.clone(),
        };
        Ok(Batch {
            title: grid::describe(workload, params),
            cells: able(locks, &what)?.iter().map(cell).collect(),
        })
    }
}
