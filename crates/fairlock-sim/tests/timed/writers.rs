//! Writers alone under `TimeFair` on the timed machine: a lock that stands free is not kept for anybody,
//! and nobody sleeps while it does.

use std::cell::Cell;

use fairlock::lock_api;
use fairlock::mutex::RawMutex;
use fairlock::policy::TimeFair;
use fairlock::rwsem::RawRwSem;
use fairlock_sim::Sim;
use fairlock_sim::profile::Profile;
use fairlock_sim::timed::{self, Setup, Thread};

/// As in a static of its own: no line is shared with anything else.
#[repr(align(128))]
struct Alone<L>(L);

/// Any lock, taken exclusively.
trait Exclusive {
    const NEW: Self;
    fn with(&self, section: impl FnOnce());
}

impl Exclusive for lock_api::RwLock<RawRwSem<TimeFair, Sim>, ()> {
    const NEW: Self = lock_api::RwLock::from_raw(lock_api::RawRwLock::INIT, ());
    fn with(&self, section: impl FnOnce()) {
        let _held = self.write();
        section();
    }
}

impl Exclusive for lock_api::Mutex<RawMutex<Sim>, ()> {
    const NEW: Self = lock_api::Mutex::from_raw(lock_api::RawMutex::INIT, ());
    fn with(&self, section: impl FnOnce()) {
        let _held = self.lock();
        section();
    }
}

#[derive(Debug, Default)]
struct Seen {
    sections: u64,
    longest_wait_ns: u64,
    sleeps: u64,
}

/// Threads on CPUs of their own that hold the lock for `hold` PAUSEs and stay away for `think`, for 20 ms.
fn storm<L: Exclusive>(threads: u32, hold: u32, think: u32) -> Seen {
    let lock = Alone(L::NEW);
    let (sections, longest) = (Cell::new(0), Cell::new(0));
    let bodies = (0..threads).map(|index| {
        let (lock, sections, longest) = (&lock, &sections, &longest);
        let body = Box::new(move || {
            // Not in step: up to twice as long away, or next to nothing.
            let mut chance = index + 1;
            while timed::now() < 20_000_000 {
                let asked = timed::now();
                lock.0.with(|| {
                    longest.set(longest.get().max(timed::now() - asked));
                    timed::compute(hold);
                });
                sections.set(sections.get() + 1);
                chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                timed::compute(((u64::from(think) * u64::from(chance >> 16)) >> 15) as u32);
            }
        }) as Box<dyn FnOnce() + '_>;
        Thread { body, priority: 0 }
    });
    let profile = Profile::example();
    assert!(threads <= profile.topology.cpus(), "each has a CPU");
    let setup = Setup { profile: &profile, seed: 1, pinned: true, timeline_ns: 0, tuning: None };
    let report = timed::run(&setup, bodies.collect(), &|| false, &|| ()).unwrap();
    Seen {
        sections: sections.get(),
        longest_wait_ns: longest.get(),
        sleeps: report.threads.iter().map(|thread| thread.voluntary_switches).sum(),
    }
}

type Sem = lock_api::RwLock<RawRwSem<TimeFair, Sim>, ()>;
type Mutex = lock_api::Mutex<RawMutex<Sim>, ()>;

/// PAUSEs of the example machine for so many ns.
fn pauses(ns: f64) -> u32 {
    (ns / Profile::example().cost.pause_ns) as u32
}

#[test]
fn a_writer_that_sleeps_is_called_when_the_lock_is_left_not_when_a_budget_ends() {
    // Longer than a spin, so that the others sleep; half of the time the lock would be free.
    let hold = 60_000.0;
    let seen = storm::<Sem>(4, pauses(hold), pauses(3.0 * hold));
    assert!(seen.sleeps > 10, "no thread slept: {seen:?}");
    // Each of the other three is before it once, and passes it once when it was woken and lost; a section's time is more than
    // the wake-ups take. A budget would be milliseconds.
    assert!(seen.longest_wait_ns < (3 * 2 + 1) * hold as u64, "{seen:?}");
}

#[test]
fn writers_that_meet_for_short_sections_spin_while_the_lock_changes_hands() {
    let seen = storm::<Sem>(4, pauses(2_000.0), pauses(4_000.0));
    assert!(seen.sleeps <= seen.sections / 100, "{seen:?}");
}

#[test]
fn writers_alone_get_as_much_done_as_under_a_mutex_and_sleep_no_more() {
    for (hold, think) in [(300.0, 900.0), (1_000.0, 10_000.0), (20_000.0, 80_000.0)] {
        let [sem, mutex] = [
            storm::<Sem>(4, pauses(hold), pauses(think)),
            storm::<Mutex>(4, pauses(hold), pauses(think)),
        ];
        assert!(sem.sections * 100 >= mutex.sections * 97, "{hold}: {sem:?}, mutex {mutex:?}");
        assert!(
            sem.sleeps <= mutex.sleeps + sem.sections / 100,
            "{hold}: {sem:?}, mutex {mutex:?}"
        );
    }
}

#[test]
fn a_writer_that_sleeps_is_woken_though_others_come_and_go_faster_than_one_of_them_serves_it() {
    for threads in 4..=8 {
        let seen = storm::<Sem>(threads, pauses(300.0), 0);
        assert!(seen.sleeps > 0, "no thread slept: {seen:?}");
        assert!(seen.longest_wait_ns < 1_000_000, "{seen:?}");
    }
}
