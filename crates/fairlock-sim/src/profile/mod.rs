//! Profiles: what a simulated machine costs.
//!
//! Every time is in nanoseconds unless its name says otherwise. A profile comes from a file of
//! `machines/` or one like it, in which every figure has a source or says why it is assumed: a
//! [`Sheet`].

mod change;
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
    /// Barriers on all CPUs.
    pub barrier: Barrier,
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
    /// The instructions that go with each operation on a word: the rest of a lock's code.
    pub step_ns: f64,
    /// One PAUSE.
    pub pause_ns: f64,
    /// Reading the clock.
    pub clock_ns: f64,
    /// What the lab's own look at the clock costs: its cost where predictions are held against runs
    /// that pay for it, 0 where a perfect observer watches.
    pub observe_ns: f64,
    /// How much slower a hardware thread runs while its sibling is busy, as a factor from 1 up.
    pub smt_slowdown: f64,
    /// The same while its sibling spins; between 1 and `smt_slowdown`.
    pub smt_spin: f64,
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

/// The CPUs that threads begin on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// One socket after the other: over all cores first, then over their other threads, as Linux
    /// numbers CPUs. What tests do that bind thread *i* to CPU *i*.
    Fill,
    /// Each on another socket, then on another core, then on another thread, as Linux spreads
    /// threads that it starts.
    Spread,
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
    /// How much single transfers differ from those times: by up to this fraction, either way.
    pub spread: f64,
    /// How long an owner can use a line that another CPU already waited for when it came: this fraction of
    /// the transfer to that one.
    pub keep: f64,
    /// How much longer a transfer between sockets takes if it had to wait for another, as a factor from 1
    /// up.
    pub contended: f64,
    /// Who is served next.
    pub arbitration: Arbitration,
}

/// The scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Where threads begin.
    pub placement: Placement,
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
    /// What the waker pays to wake a thread that runs next on its own CPU.
    pub call_ns: f64,
    /// What it pays more to reach another CPU.
    pub remote_ns: f64,
    /// Lines of the woken thread and of its run queue that the waker fetches from the CPU where the
    /// thread ran, at that distance.
    pub lines: u32,
    /// What it pays when nobody sleeps there.
    pub nobody_ns: f64,
    /// What a thread pays to go to sleep, beside the context switch.
    pub sleep_ns: f64,
    /// Idle CPUs, ascending by `idle_ns`; the first is for 0.
    pub idle: Vec<Wakening>,
}

/// Barriers on all CPUs, membarrier(2): the kernel interrupts those that run another thread of the
/// process, all at once, and waits for them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Barrier {
    /// What the caller pays where there are none of those.
    pub call_ns: f64,
    /// What it pays more where there are some.
    pub wait_ns: f64,
    /// And for each.
    pub each_ns: f64,
    /// What each of those loses.
    pub interrupt_ns: f64,
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

/// Where a CPU is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    socket: u32,
    cluster: u32,
    core: u32,
}

impl Topology {
    fn place(&self, cpu: u32) -> Place {
        let core = cpu / self.threads_per_core;
        let socket = core / self.cores_per_socket;
        let cluster = core % self.cores_per_socket / self.cores_per_cluster;
        Place { socket, cluster, core }
    }

    /// The socket of a CPU.
    pub fn socket(&self, cpu: u32) -> u32 {
        self.place(cpu).socket
    }

    /// The CPUs that share the last-level cache with this one.
    pub fn cluster(&self, cpu: u32) -> std::ops::Range<u32> {
        let Place { socket, cluster, .. } = self.place(cpu);
        let first = cluster * self.cores_per_cluster;
        let end = (first + self.cores_per_cluster).min(self.cores_per_socket);
        let cpu_of = |core| (socket * self.cores_per_socket + core) * self.threads_per_core;
        cpu_of(first)..cpu_of(end)
    }

    /// The CPUs of this one's core.
    pub fn core(&self, cpu: u32) -> std::ops::Range<u32> {
        let first = cpu / self.threads_per_core * self.threads_per_core;
        first..first + self.threads_per_core
    }

    /// The CPU that the *i*-th thread begins on; after the last CPU all over again.
    pub fn place_thread(&self, placement: Placement, index: u32) -> u32 {
        let index = index % self.cpus();
        let cores = self.sockets * self.cores_per_socket;
        let (nth, thread) = (index % cores, index / cores);
        let core = match placement {
            Placement::Fill => nth,
            Placement::Spread => nth % self.sockets * self.cores_per_socket + nth / self.sockets,
        };
        core * self.threads_per_core + thread
    }
}

impl Profile {
    /// A machine of round figures, for examples and tests: two sockets of two cores with two
    /// threads each.
    pub fn example() -> Profile {
        Profile {
            name: "example".into(),
            title: "two sockets of two cores with two threads each, round figures".into(),
            topology: Topology {
                sockets: 2,
                cores_per_socket: 2,
                threads_per_core: 2,
                cores_per_cluster: 2,
                hops: vec![vec![0, 1], vec![1, 0]],
            },
            cost: Costs {
                load_ns: 0.5,
                store_ns: 1.0,
                rmw_ns: 5.0,
                step_ns: 0.0,
                pause_ns: 10.0,
                clock_ns: 20.0,
                observe_ns: 0.0,
                smt_slowdown: 1.0,
                smt_spin: 1.0,
            },
            line: Lines {
                smt_ns: 10.0,
                cluster_ns: 40.0,
                socket_ns: 40.0,
                cross_ns: vec![100.0],
                memory_ns: 90.0,
                invalidate_ns: 1.0,
                share_ns: 10.0,
                spread: 0.0,
                keep: 0.5,
                contended: 1.0,
                arbitration: Arbitration::Fifo,
            },
            schedule: Schedule {
                placement: Placement::Spread,
                hz: 1000.0,
                slice_ns: 3e6,
                switch_ns: 1_000.0,
                migration_ns: 2_000.0,
                wakeup_granularity_ns: 1e6,
            },
            wake: Wake {
                call_ns: 1_500.0,
                remote_ns: 0.0,
                lines: 0,
                nobody_ns: 100.0,
                sleep_ns: 500.0,
                idle: vec![Wakening { idle_ns: 0.0, p50_ns: 4_000.0, p99_ns: 10_000.0 }],
            },
            barrier: Barrier {
                call_ns: 400.0,
                wait_ns: 1_500.0,
                each_ns: 100.0,
                interrupt_ns: 1_000.0,
            },
            device: Device {
                servers: 4,
                queue: 32,
                read: Service { base_ns: 20_000.0, kib_ns: 300.0, sigma: 0.2 },
                write: Service { base_ns: 15_000.0, kib_ns: 400.0, sigma: 0.2 },
            },
        }
    }

    /// The same machine with one CPU: what happens on it when threads may not leave theirs.
    ///
    /// ```
    /// use fairlock_sim::profile::Profile;
    /// assert_eq!(Profile::example().with_one_cpu().topology.cpus(), 1);
    /// ```
    pub fn with_one_cpu(&self) -> Profile {
        let topology = Topology {
            sockets: 1,
            cores_per_socket: 1,
            threads_per_core: 1,
            cores_per_cluster: 1,
            hops: vec![vec![0]],
        };
        Profile { topology, ..self.clone() }
    }

    /// How long a line takes from one CPU to another, one way.
    pub fn transfer_ns(&self, from: u32, to: u32) -> f64 {
        let (a, b) = (self.topology.place(from), self.topology.place(to));
        if from == to {
            self.cost.rmw_ns
        } else if a.core == b.core {
            self.line.smt_ns
        } else if a.socket != b.socket {
            let hops = self.topology.hops[a.socket as usize][b.socket as usize];
            self.line.cross_ns[hops as usize - 1]
        } else if a.cluster == b.cluster {
            self.line.cluster_ns
        } else {
            self.line.socket_ns
        }
    }
}
