//! A machine with 240 CPUs, and what threads cost on it.

use fairlock_sim::profile::{Profile, Topology};
use fairlock_sim::timed::{self, Counts, Setup, Thread};

/// What a thread does.
pub type Body<'a> = Box<dyn FnOnce() + 'a>;

/// 240 CPUs in eight sockets; figures as round as in the example.
pub fn large() -> Profile {
    let hops = (0..8).map(|from| (0..8).map(|to| u32::from(from != to)).collect()).collect();
    let topology = Topology {
        sockets: 8,
        cores_per_socket: 15,
        threads_per_core: 2,
        cores_per_cluster: 15,
        hops,
    };
    Profile { topology, ..Profile::example() }
}

/// Each thread on a CPU of its own.
pub fn run(bodies: Vec<Body<'_>>) -> Counts {
    let threads = bodies.into_iter().map(|body| Thread { body, priority: 0 }).collect();
    let setup = Setup { profile: &large(), seed: 1, pinned: true, timeline_ns: 0, tuning: None };
    timed::run(&setup, threads, &|| false, &|| ()).unwrap().counts
}
