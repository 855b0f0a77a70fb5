//! How `RwLock` and `RwSem` divide a lock's time between sides whose sections take different times.

use std::cell::Cell;

use fairlock::policy::{PhaseFair, Policy, ReadMostly, TimeFair};
use fairlock::{RwLock, RwLockUpgradableReadGuard, RwSem, RwSemUpgradableReadGuard};
use fairlock_sim::Sim;
use fairlock_sim::profile::{Profile, Topology};
use fairlock_sim::timed::{self, Setup, Thread};

const MACHINE: &str = "x86-12";

/// As in a static of its own: no line is shared with anything else.
#[repr(align(128))]
struct Alone<L>(L);

trait ReadWrite {
    fn new() -> Self;
    fn read_and(&self, section: impl FnOnce());
    fn write_and(&self, section: impl FnOnce());
    fn read(&self, section: Hold) {
        self.read_and(|| section.pass());
    }
    fn write(&self, section: Hold) {
        self.write_and(|| section.pass());
    }
    /// Half of the section may upgrade, and half has.
    fn upgrade(&self, half: Hold);
    fn upgradable(&self, section: Hold);
}

impl ReadWrite for RwLock<(), ReadMostly, Sim> {
    fn new() -> Self {
        RwLock::with_policy(())
    }
    fn read_and(&self, section: impl FnOnce()) {
        let _guard = RwLock::read(self);
        section();
    }
    fn write_and(&self, section: impl FnOnce()) {
        let _guard = RwLock::write(self);
        section();
    }
    fn upgrade(&self, half: Hold) {
        let guard = RwLock::upgradable_read(self);
        half.pass();
        let _guard = RwLockUpgradableReadGuard::upgrade(guard);
        half.pass();
    }
    fn upgradable(&self, section: Hold) {
        let _guard = RwLock::upgradable_read(self);
        section.pass();
    }
}

impl<Pol: Policy> ReadWrite for RwSem<(), Pol, Sim> {
    fn new() -> Self {
        RwSem::with_policy(())
    }
    fn read_and(&self, section: impl FnOnce()) {
        let _guard = RwSem::read(self);
        section();
    }
    fn write_and(&self, section: impl FnOnce()) {
        let _guard = RwSem::write(self);
        section();
    }
    fn upgrade(&self, half: Hold) {
        let guard = RwSem::upgradable_read(self);
        half.pass();
        let _guard = RwSemUpgradableReadGuard::upgrade(guard);
        half.pass();
    }
    fn upgradable(&self, section: Hold) {
        let _guard = RwSem::upgradable_read(self);
        section.pass();
    }
}

/// How long a section takes.
#[derive(Debug, Clone, Copy)]
enum Hold {
    Computes(u64),
    Sleeps(u64),
}

impl Hold {
    fn ns(self) -> u64 {
        let (Hold::Computes(ns) | Hold::Sleeps(ns)) = self;
        ns
    }

    fn pass(self) {
        match self {
            Hold::Computes(ns) => timed::work(ns),
            Hold::Sleeps(ns) => timed::sleep(ns),
        }
    }
}

/// Readers and writers; writers come back at once: how many, and how long their sections take, ns.
#[derive(Debug, Clone, Copy)]
struct Mix {
    machine: &'static str,
    threads: [u32; 2],
    holds: [Hold; 2],
    /// What a reader does between two sections, ns.
    think: u64,
}

#[derive(Clone, Copy)]
enum Role {
    Read,
    Write,
    Upgrade,
    Upgradable,
}

/// How many sections each of these threads, which come back at once, completes in 20 ms.
fn each<L: ReadWrite>(machine: &str, threads: &[(Role, Hold)]) -> Vec<u64> {
    let lock = Alone(L::new());
    let counts: Vec<Cell<u64>> = threads.iter().map(|_| Cell::new(0)).collect();
    let body = |(&(role, hold), count)| {
        let (lock, count): (_, &Cell<u64>) = (&lock.0, count);
        let body = move || {
            while timed::now() < 20_000_000 {
                match role {
                    Role::Read => lock.read(hold),
                    Role::Write => lock.write(hold),
                    Role::Upgrade => lock.upgrade(hold),
                    Role::Upgradable => lock.upgradable(hold),
                }
                count.set(count.get() + 1);
            }
        };
        Thread { body: Box::new(body), priority: 0 }
    };
    let profile = Profile::find(machine).expect("built in");
    let setup = Setup { profile: &profile, seed: 1, pinned: false, timeline_ns: 0, tuning: None };
    let bodies = threads.iter().zip(&counts).map(body).collect();
    timed::run(&setup, bodies, &|| false, &|| ()).expect("it ends");
    counts.iter().map(Cell::get).collect()
}

/// Sections of readers and of writers.
fn sections<L: ReadWrite>(mix: Mix) -> [u64; 2] {
    let [readers, writers] = mix.threads.map(|threads| threads as usize);
    let mut threads = vec![(Role::Read, mix.holds[0]); readers];
    threads.extend(vec![(Role::Write, mix.holds[1]); writers]);
    let each = each::<L>(mix.machine, &threads);
    let (reads, writes) = each.split_at(readers);
    [reads, writes].map(|counts| counts.iter().sum())
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
    for (machine, threads, holds) in [
        (MACHINE, [1, 1], [Computes(100_000), Computes(1_000)]),
        (MACHINE, [1, 1], [Computes(1_000), Computes(100_000)]),
        (MACHINE, [1, 1], [Computes(1_000), Computes(1_000)]),
        (MACHINE, [1, 1], [Sleeps(300_000), Computes(1_000)]),
        (MACHINE, [4, 1], [Computes(1_000), Sleeps(100_000)]),
        (MACHINE, [4, 4], [Computes(30_000), Computes(1_000)]),
        (MACHINE, [4, 1], [Sleeps(300_000), Sleeps(20_000)]),
        (MACHINE, [1, 4], [Computes(300_000), Computes(1_000)]),
        (MACHINE, [1, 8], [Computes(30_000), Computes(1_000)]),
        ("graviton3", [16, 1], [Computes(1_000), Computes(10_000)]),
    ] {
        let kept = kept::<L>(Mix { machine, threads, holds, think: 0 });
        let [readers, writers] = threads;
        assert!(
            kept.iter().all(|kept| *kept >= 0.4),
            "{machine}, {readers} readers, {writers} writers: {kept:.2?}"
        );
    }
}

#[test]
fn each_side_keeps_half_of_its_rate_whatever_sections_take() {
    check::<RwSem<(), TimeFair, Sim>>();
    check::<RwLock<(), ReadMostly, Sim>>();
}

/// Of a time in which all threads come back at once, for how much of it readers held the lock, and for how much a writer.
fn held<L: ReadWrite>(mix: Mix) -> [f64; 2] {
    let Mix { machine, threads: [readers, writers], holds, think } = mix;
    let profile = &Profile::find(machine).expect("built in");
    let [read, write] = holds.map(Hold::ns);
    let time = 20_000_000.max(200 * read.max(write));
    let lock = Alone(L::new());
    let times = [const { Cell::new(0) }; 2];
    // How many read, and since when.
    let reading = Cell::new((0_u32, 0));
    let body = |index| {
        let (lock, times, reading) = (&lock.0, &times, &reading);
        let body = move || {
            while timed::now() < time {
                if index < readers {
                    lock.read_and(|| {
                        let (count, since) = reading.get();
                        reading.set((count + 1, if count == 0 { timed::now() } else { since }));
                        holds[0].pass();
                        let (count, since) = reading.get();
                        reading.set((count - 1, since));
                        if count == 1 {
                            times[0].set(times[0].get() + timed::now() - since);
                        }
                    });
                    timed::work(think);
                } else {
                    lock.write_and(|| {
                        let since = timed::now();
                        holds[1].pass();
                        times[1].set(times[1].get() + timed::now() - since);
                    });
                }
            }
        };
        Thread { body: Box::new(body), priority: 0 }
    };
    let setup = Setup { profile, seed: 1, pinned: false, timeline_ns: 0, tuning: None };
    let bodies = (0..readers + writers).map(body).collect();
    timed::run(&setup, bodies, &|| false, &|| ()).expect("it ends");
    times.map(|held| held.get() as f64 / time as f64)
}

/// xorshift64*: the same mixes everywhere.
fn among<T: Copy>(state: &mut u64, all: &[T]) -> T {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    all[(state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % all.len()]
}

/// Found from outside: one reader of 300 µs and four writers of 1 µs, who held the lock for 2 % of the time.
#[test]
fn each_side_holds_the_lock_for_a_third_of_the_time_in_any_mix_of_sections() {
    fn check<L: ReadWrite>() {
        let mut state = 1;
        for _ in 0..40 {
            let mut side = || {
                let ns = among(&mut state, &[3_000, 10_000, 30_000, 100_000, 300_000]);
                let sleeps = ns >= 10_000 && among(&mut state, &[true, false, false, false]);
                let hold = if sleeps { Hold::Sleeps(ns) } else { Hold::Computes(ns) };
                (among(&mut state, &[1, 2, 4, 8]), hold)
            };
            let [(readers, read), (writers, write)] = [side(), side()];
            let machine = among(&mut state, &["x86-12", "skylake-sp-2s", "epyc-milan-2s"]);
            let mix = Mix { machine, threads: [readers, writers], holds: [read, write], think: 0 };
            let held = held::<L>(mix);
            assert!(held.iter().all(|&held| held >= 1.0 / 3.0), "{mix:?}: {held:.2?}");
        }
    }
    check::<RwSem<(), TimeFair, Sim>>();
    check::<RwLock<(), ReadMostly, Sim>>();
}

/// A reader that thinks wants less than half of the time, so it should have nearly all of that; and writers what it leaves.
#[test]
fn what_a_side_that_thinks_leaves_is_not_lost_and_not_taken_from_it() {
    fn check<L: ReadWrite>() {
        for (machine, writers, [hold, think, write], least) in [
            ("epyc-milan-2s", 1, [30_000, 60_000, 3_000], [0.3, 0.55]),
            ("epyc-milan-2s", 4, [30_000, 60_000, 3_000], [0.23, 0.5]),
            ("skylake-sp-2s", 16, [10_000, 10_000, 300_000], [0.2, 0.45]),
            ("skylake-sp-2s", 1, [300_000, 300_000, 100], [0.35, 0.3]),
        ] {
            let holds = [Hold::Computes(hold), Hold::Computes(write)];
            let mix = Mix { machine, threads: [1, writers], holds, think };
            let held = held::<L>(mix);
            let is_enough = held.iter().zip(least).all(|(&held, least)| held >= least);
            assert!(is_enough, "{mix:?}: {held:.2?} and not {least:?}");
        }
    }
    check::<RwSem<(), TimeFair, Sim>>();
    check::<RwLock<(), ReadMostly, Sim>>();
}

/// Each time a reader was about to queue, the writer had just changed the lock's word: for ever.
#[test]
fn a_writer_that_comes_right_back_lets_a_reader_into_the_queue() {
    let holds = [Hold::Computes(10_000), Hold::Computes(100)];
    let mix = Mix { machine: "skylake-sp-2s", threads: [1, 1], holds, think: 30_000 };
    let [reads, writes] = held::<RwSem<(), PhaseFair, Sim>>(mix);
    assert!(reads > 0.1 && writes > 0.1, "{reads:.2} and {writes:.2} of the time");
}

/// Found from outside: one of three got the lock once in 400 ms.
#[test]
fn upgradable_readers_that_come_right_back_pass_a_waiting_one_for_a_while_only() {
    fn check<L: ReadWrite>() {
        for role in [Role::Upgradable, Role::Upgrade] {
            let each = each::<L>(MACHINE, &[(role, Hold::Computes(1_000)); 3]);
            let (least, most) = (each.iter().min().unwrap(), each.iter().max().unwrap());
            assert!(least * 2 > *most, "upgradable: {each:?}");
        }
    }
    check::<RwSem<(), TimeFair, Sim>>();
    check::<RwLock<(), ReadMostly, Sim>>();
}

/// Found from outside: each upgrade in a phase of readers counted as time of the writers, which kept 4 %.
#[test]
fn a_writer_keeps_its_share_among_readers_of_which_one_upgrades() {
    fn check<L: ReadWrite>() {
        let long = Hold::Computes(20_000);
        let [read, write] = [(Role::Read, long), (Role::Write, long)];
        let alone = each::<L>(MACHINE, &[write])[0];
        let kept =
            each::<L>(MACHINE, &[(Role::Upgrade, Hold::Computes(1_000)), read, read, write])[3];
        assert!(kept as f64 >= 0.4 * alone as f64, "upgrades: {kept} of {alone} writes");
    }
    check::<RwSem<(), TimeFair, Sim>>();
    check::<RwLock<(), ReadMostly, Sim>>();
}

/// Operations of 16 threads on two CPUs in 60 ms, one in a hundred of them a write.
fn mostly_reads<L: ReadWrite>() -> u64 {
    let mut profile = Profile::find(MACHINE).expect("built in");
    profile.topology = Topology {
        sockets: 1,
        cores_per_socket: 2,
        threads_per_core: 1,
        cores_per_cluster: 2,
        hops: vec![vec![0]],
    };
    let (lock, count) = (Alone(L::new()), Cell::new(0));
    let body = |index: u32| {
        let (lock, count) = (&lock.0, &count);
        let body = move || {
            let mut state = u64::from(index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            while timed::now() < 60_000_000 {
                among(&mut state, &[()]);
                match state % 100 {
                    0 => lock.write_and(|| ()),
                    _ => lock.read_and(|| ()),
                }
                count.set(count.get() + 1);
            }
        };
        Thread { body: Box::new(body), priority: 0 }
    };
    let setup = Setup { profile: &profile, seed: 1, pinned: false, timeline_ns: 0, tuning: None };
    let bodies = (0..16).map(body).collect();
    timed::run(&setup, bodies, &|| false, &|| ()).expect("it ends");
    count.get()
}

/// A newcomer that takes the lock's word whenever it stands free would stop all readers in slots.
#[test]
fn readers_in_slots_are_not_stopped_by_newcomers_that_find_the_word_free() {
    let slots = mostly_reads::<RwLock<(), ReadMostly, Sim>>();
    let word = mostly_reads::<RwSem<(), TimeFair, Sim>>();
    assert!(slots > 2 * word, "{slots} with slots and {word} without");
}
