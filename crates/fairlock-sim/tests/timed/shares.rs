//! How `RwLock` and `RwSem` divide a lock's time between sides whose sections take different times.

use std::cell::Cell;

use fairlock::policy::{ReadMostly, TimeFair};
use fairlock::{RwLock, RwLockUpgradableReadGuard, RwSem, RwSemUpgradableReadGuard};
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
    /// Half of the section may upgrade, and half has.
    fn upgrade(&self, half: Hold);
    fn upgradable(&self, section: Hold);
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

#[derive(Clone, Copy)]
enum Role {
    Read,
    Write,
    Upgrade,
    Upgradable,
}

/// How many sections each of these threads, which come back at once, completes in 20 ms.
fn each<L: ReadWrite>(threads: &[(Role, Hold)]) -> Vec<u64> {
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
    let profile = Profile::find("x86-12").expect("built in");
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
    let each = each::<L>(&threads);
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

/// Found from outside: one of three got the lock once in 400 ms.
#[test]
fn upgradable_readers_that_come_right_back_pass_a_waiting_one_for_a_while_only() {
    fn check<L: ReadWrite>() {
        for role in [Role::Upgradable, Role::Upgrade] {
            let each = each::<L>(&[(role, Hold::Computes(1_000)); 3]);
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
        let alone = each::<L>(&[write])[0];
        let kept = each::<L>(&[(Role::Upgrade, Hold::Computes(1_000)), read, read, write])[3];
        assert!(kept as f64 >= 0.4 * alone as f64, "upgrades: {kept} of {alone} writes");
    }
    check::<RwSem<(), TimeFair, Sim>>();
    check::<RwLock<(), ReadMostly, Sim>>();
}
