//! Profiles: what a simulated machine costs.
//!
//! Every time is in nanoseconds unless its name says otherwise. A profile comes from a file of
//! `machines/` or one like it, in which every figure has a source or says why it is assumed: a
//! [`Sheet`].

mod find;
mod machine;
mod schema;
mod sheet;
#[cfg(test)]
mod tests;

pub use find::{HERE, HERE_FILE, names};
pub use schema::{KEYS, Key, Kind};
pub use sheet::{Figure, Origin, ProfileError, Sheet};

/// A machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its name on the command line and in rows: `ivybridge-ex-8s`.
    pub name: String,
    /// What it is, in words.
    pub title: String,
    /// Sockets, cores, threads.
    pub topology: Topology,
    /// Instructions that stay within a CPU.
    pub cost: Costs,
    /// Cache lines that move between CPUs.
    pub line: Lines,
    /// The scheduler.
    pub schedule: Schedule,
    /// Sleeping and waking.
    pub wake: Wake,
    /// The disk.
    pub device: Device,
}

/// Sockets, cores, threads. CPUs are numbered thread by thread within a core, core by core within
/// a socket.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Sockets (or nodes).
    pub sockets: u32,
    /// Cores of one socket.
    pub cores_per_socket: u32,
    /// Hardware threads of one core.
    pub threads_per_core: u32,
    /// Cores that share the last-level cache, if that is not the whole socket.
    pub cores_per_cluster: u32,
    /// Links between sockets on the way from one to another: `hops[from][to]`, 0 on the diagonal.
    pub hops: Vec<Vec<u32>>,
}

/// Instructions that stay within a CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// A load that hits the first cache.
    pub load_ns: f64,
    /// A store to a line that this CPU owns.
    pub store_ns: f64,
    /// A locked instruction on a line that this CPU owns.
    pub rmw_ns: f64,
    /// One PAUSE.
    pub pause_ns: f64,
    /// Reading the clock.
    pub clock_ns: f64,
    /// What the lab's own look at the clock costs: its cost where predictions are held against runs
    /// that pay for it, 0 where a perfect observer watches.
    pub observe_ns: f64,
    /// How much slower a hardware thread runs while its sibling is busy, as a factor from 1 up.
    pub smt_slowdown: f64,
}

/// Which of the requests for a busy line is served next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arbitration {
    /// The first to come.
    Fifo,
    /// The one nearest to the present owner.
    Nearest,
    /// Any.
    Random,
}

/// Cache lines that move between CPUs. Transfers are one way, by compare-exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// Between the threads of one core.
    pub smt_ns: f64,
    /// Between cores that share the last-level cache.
    pub cluster_ns: f64,
    /// Between cores of one socket that do not.
    pub socket_ns: f64,
    /// Between sockets, by hops: the first is for one hop.
    pub cross_ns: Vec<f64>,
    /// From memory, when no cache holds the line.
    pub memory_ns: f64,
    /// For each further sharer that a write has to invalidate.
    pub invalidate_ns: f64,
    /// How long a line is busy with handing out one shared copy; the copy takes as long as a
    /// transfer to arrive.
    pub share_ns: f64,
    /// Who is served next.
    pub arbitration: Arbitration,
}

/// The scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Ticks per second.
    pub hz: f64,
    /// How long a thread of the fair class runs while others wait for its CPU.
    pub slice_ns: f64,
    /// A context switch.
    pub switch_ns: f64,
    /// What a thread pays when it continues on another CPU: cold caches.
    pub migration_ns: f64,
    /// A thread that wakes takes the CPU from one that has run for this much longer.
    pub wakeup_granularity_ns: f64,
}

/// How long a woken thread takes to run on an idle CPU, by how long that CPU has been idle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wakening {
    /// For CPUs idle at least this long.
    pub idle_ns: f64,
    /// Median of the time from the call to running.
    pub p50_ns: f64,
    /// 99th percentile (a lognormal distribution between the two).
    pub p99_ns: f64,
}

/// Sleeping and waking.
#[derive(Debug, Clone, PartialEq)]
pub struct Wake {
    /// What the waker pays to wake somebody.
    pub call_ns: f64,
    /// What it pays when nobody sleeps there.
    pub nobody_ns: f64,
    /// What a thread pays to go to sleep, beside the context switch.
    pub sleep_ns: f64,
    /// Idle CPUs, ascending by `idle_ns`; the first is for 0.
    pub idle: Vec<Wakening>,
}

/// One kind of request to the disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Service {
    /// Median of its time without its bytes.
    pub base_ns: f64,
    /// For each KiB.
    pub kib_ns: f64,
    /// Spread: the standard deviation of the logarithm.
    pub sigma: f64,
}

/// The disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// Requests served at once.
    pub servers: u32,
    /// Requests that may wait beside those; more wait for a place in the queue.
    pub queue: u32,
    /// A read.
    pub read: Service,
    /// A write.
    pub write: Service,
}

impl Topology {
    /// All hardware threads.
    pub fn cpus(&self) -> u32 {
        self.sockets * self.cores_per_socket * self.threads_per_core
    }
}
