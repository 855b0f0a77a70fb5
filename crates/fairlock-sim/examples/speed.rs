//! How fast the simulator is, and how much memory it takes: equal readers and writers on the
//! 8-socket machine.
//!
//! `cargo run --release -p fairlock-sim --example speed`

use std::time::Instant;

use fairlock::RwSem;
use fairlock::policy::{PhaseFair, Policy, TimeFair};
use fairlock_sim::Sim;
use fairlock_sim::profile::Profile;
use fairlock_sim::timed::{self, Report, Setup, Thread};

const SIMULATED_NS: u64 = 50_000_000;

fn run<Pol: Policy>(profile: &Profile, threads: u32) -> Report {
    let lock: RwSem<(), Pol, Sim> = RwSem::with_policy(());
    let body = |index: u32| {
        let lock = &lock;
        let body = move || {
            while timed::now() < SIMULATED_NS {
                if index.is_multiple_of(2) {
                    let _guard = RwSem::read(lock);
                    timed::compute(10);
                } else {
                    let _guard = RwSem::write(lock);
                    timed::compute(10);
                }
                timed::compute(10);
            }
        };
        Thread { body: Box::new(body), priority: 0 }
    };
    let setup = Setup { profile, seed: 1, pinned: false, timeline_ns: 0, tuning: None };
    timed::run(&setup, (0..threads).map(body).collect(), &|| false, &|| ()).expect("it ends")
}

/// The most memory this process has used so far, MiB.
fn peak_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kib| kib / 1024.0)
}

fn main() {
    let profile = Profile::find("ivybridge-ex-8s").expect("built in");
    println!("{:<12} {:>7} {:>12} {:>8} {:>12}", "lock", "threads", "events", "s", "M events/s");
    for threads in [2, 4, 16, 64, 240] {
        for (name, run) in [
            (TimeFair::NAME, run::<TimeFair> as fn(&Profile, u32) -> Report),
            (PhaseFair::NAME, run::<PhaseFair>),
        ] {
            let started = Instant::now();
            let events = run(&profile, threads).counts.events;
            let seconds = started.elapsed().as_secs_f64();
            let speed = events as f64 / seconds / 1e6;
            println!("{name:<12} {threads:>7} {events:>12} {seconds:>8.3} {speed:>12.1}");
        }
    }
    if let Some(peak) = peak_mib() {
        println!("peak memory: {peak:.0} MiB");
    }
}
