//! How `RwLock` and `RwSem` divide a lock's time between sides whose sections take different times.

use std::cell::Cell;

use fairlock::policy::{ReadMostly, TimeFair};
use fairlock::{RwLock, RwSem};
use fairlock_sim::Sim;
use fairlock_sim::profile::Profile;
use fairlock_sim::timed::{self, Setup, Thread};

/// As in a static of its own: no line is shared with anything else.
#[repr(align(128))]
struct Alone<L>(L);

trait ReadWrite {
    fn new() -> Self;
    fn read(&self, section: Hold);
    fn write(&self, section: Hold);
}

impl ReadWrite for RwLock<(), ReadMostly, Sim> {
    fn new() -> Self {
        RwLock::with_policy(())
    }
    fn read(&self, section: Hold) {
        let _guard = RwLock::read(self);
        section.pass();
    }
    fn write(&self, section: Hold) {
        let _guard = RwLock::write(self);
        section.pass();
    }
}

impl ReadWrite for RwSem<(), TimeFair, Sim> {
    fn new() -> Self {
        RwSem::with_policy(())
    }
    fn read(&self, section: Hold) {
        let _guard = RwSem::read(self);
        section.pass();
    }
    fn write(&self, section: Hold) {
        let _guard = RwSem::write(self);
        section.pass();
    }
}

/// How long a section takes.
#[derive(Clone, Copy)]
enum Hold {
    Computes(u64),
    Sleeps(u64),
}

impl Hold {
    fn pass(self) {
        match self {
            Hold::Computes(ns) => timed::work(ns),
            Hold::Sleeps(ns) => timed::sleep(ns),
        }
    }
}

/// Readers and writers, which come back at once: how many, and how long their sections take, ns.
#[derive(Clone, Copy)]
struct Mix {
    threads: [u32; 2],
    holds: [Hold; 2],
}

/// Sections of readers and of writers in 20 ms.
fn sections<L: ReadWrite>(mix: Mix) -> [u64; 2] {
    let lock = Alone(L::new());
    let counts = [const { Cell::new(0) }; 2];
    let body = |index: u32| {
        let (lock, counts) = (&lock.0, &counts);
        let role = usize::from(index >= mix.threads[0]);
        let body = move || {
            while timed::now() < 20_000_000 {
                match role {
                    0 => lock.read(mix.holds[role]),
                    _ => lock.write(mix.holds[role]),
                }
                counts[role].set(counts[role].get() + 1);
            }
        };
        Thread { body: Box::new(body), priority: 0 }
    };
    let profile = Profile::find("x86-12").expect("built in");
    let setup = Setup { profile: &profile, seed: 1, pinned: false, timeline_ns: 0, tuning: None };
    let threads = (0..mix.threads.iter().sum()).map(body).collect();
    timed::run(&setup, threads, &|| false, &|| ()).expect("it ends");
    counts.map(|count| count.get())
}

/// What part of its rate alone each side keeps.
fn kept<L: ReadWrite>(mix: Mix) -> [f64; 2] {
    let [readers, writers] = mix.threads;
    let both = sections::<L>(mix);
    let alone = [
        sections::<L>(Mix { threads: [readers, 0], ..mix })[0],
        sections::<L>(Mix { threads: [0, writers], ..mix })[1],
    ];
    [0, 1].map(|role| both[role] as f64 / alone[role] as f64)
}

fn check<L: ReadWrite>() {
    use Hold::{Computes, Sleeps};
    for (threads, holds) in [
        ([1, 1], [Computes(100_000), Computes(1_000)]),
        ([1, 1], [Computes(1_000), Computes(100_000)]),
        ([1, 1], [Computes(1_000), Computes(1_000)]),
        ([1, 1], [Sleeps(300_000), Computes(1_000)]),
        ([4, 1], [Computes(1_000), Sleeps(100_000)]),
        ([4, 4], [Computes(30_000), Computes(1_000)]),
        ([4, 1], [Sleeps(300_000), Sleeps(20_000)]),
    ] {
        let kept = kept::<L>(Mix { threads, holds });
        let [readers, writers] = threads;
        assert!(
            kept.iter().all(|kept| *kept >= 0.4),
            "{readers} readers, {writers} writers: {kept:.2?}"
        );
    }
}

#[test]
fn each_side_keeps_half_of_its_rate_whatever_sections_take() {
    check::<RwSem<(), TimeFair, Sim>>();
    check::<RwLock<(), ReadMostly, Sim>>();
}
