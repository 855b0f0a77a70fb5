//! The rwsem under Loom: no race on what it protects and no lost wake-up in the interleavings of
//! two or three threads, with a bound on preemptions and on how many are tried; and the checker
//! itself is checked, by platforms with a flaw each.

mod loom_platform;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fairlock::lock_api::{RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
use fairlock::platform::Platform;
use fairlock::policy::{
    Discipline, Linux3_10, Linux5_3, Linux5_11, NoReaderSteal, PhaseFair, Phases, Policy, TimeFair,
};
use fairlock::rwsem::{Inline, Pooled, QueueStorage, RawRwSem};
use loom_platform::{
    Deaf, Gullible, Loom, Watched, Weakened, WithoutRecords, explore, explore_most, most_executions,
};

/// Switches away from a thread that could go on, at most this many in one execution of two
/// threads; switches at parks and yields are free. Models of three threads get one or two, each
/// more of which multiplies the executions by ten.
const PREEMPTIONS_OF_TWO: usize = 3;

type Lock<Pol, P, L = Inline<P>> = RwLock<RawRwSem<Pol, P, L>, Watched>;
type Step<Pol, P, L = Inline<P>> = fn(&Lock<Pol, P, L>);

/// Runs one step in each thread, the last in the first thread, and checks that the lock is free
/// afterwards. Returns what the steps have added.
fn together<Pol: Policy, P: Platform, L: QueueStorage<P>>(steps: &[Step<Pol, P, L>]) -> u32 {
    let lock = Arc::new(Lock::<Pol, P, L>::new(Watched::new()));
    let (mine, others) = steps.split_last().expect("at least one");
    let threads: Vec<_> = others
        .iter()
        .map(|&step| {
            let lock = Arc::clone(&lock);
            loom::thread::spawn(move || step(&lock))
        })
        .collect();
    mine(&lock);
    for thread in threads {
        thread.join().expect("a panic ends the model");
    }
    lock.try_write().expect("the lock is free when everybody is done").get()
}

fn write<Pol: Policy, P: Platform, L: QueueStorage<P>>(lock: &Lock<Pol, P, L>) {
    lock.write().add();
}

fn write_fair<Pol: Policy, P: Platform, L: QueueStorage<P>>(lock: &Lock<Pol, P, L>) {
    let guard = lock.write();
    guard.add();
    RwLockWriteGuard::unlock_fair(guard);
}

fn read<Pol: Policy, P: Platform, L: QueueStorage<P>>(lock: &Lock<Pol, P, L>) {
    lock.read().get();
}

fn read_fair<Pol: Policy, P: Platform, L: QueueStorage<P>>(lock: &Lock<Pol, P, L>) {
    let guard = lock.read();
    guard.get();
    RwLockReadGuard::unlock_fair(guard);
}

fn try_both<Pol: Policy, P: Platform, L: QueueStorage<P>>(lock: &Lock<Pol, P, L>) {
    if let Some(guard) = lock.try_read() {
        guard.get();
    }
    if let Some(guard) = lock.try_write() {
        guard.add();
    }
}

fn downgrade<Pol: Policy, P: Platform, L: QueueStorage<P>>(lock: &Lock<Pol, P, L>) {
    let guard = lock.write();
    guard.add();
    let before = guard.get();
    let guard = RwLockWriteGuard::downgrade(guard);
    assert_eq!(guard.get(), before, "nobody writes in between");
}

fn upgrade<Pol: Policy, P: Platform, L: QueueStorage<P>>(lock: &Lock<Pol, P, L>) {
    let guard = lock.upgradable_read();
    let before = guard.get();
    let guard = RwLockUpgradableReadGuard::upgrade(guard);
    assert_eq!(guard.get(), before, "nobody writes in between");
    guard.add();
}

fn upgrade_and_back<Pol: Policy, P: Platform, L: QueueStorage<P>>(lock: &Lock<Pol, P, L>) {
    let guard = lock.upgradable_read();
    let guard = match RwLockUpgradableReadGuard::try_upgrade(guard) {
        Ok(guard) => {
            guard.add();
            RwLockWriteGuard::downgrade_to_upgradable(guard)
        }
        Err(guard) => guard,
    };
    RwLockUpgradableReadGuard::downgrade(guard).get();
}

fn upgrade_in_time<Pol: Policy, P: Platform, L: QueueStorage<P>>(lock: &Lock<Pol, P, L>) {
    let guard = lock.upgradable_read();
    match RwLockUpgradableReadGuard::try_upgrade_for(guard, Duration::from_micros(100)) {
        Ok(guard) => guard.add(),
        Err(guard) => _ = guard.get(),
    }
}

fn read_in_time<Pol: Policy, P: Platform, L: QueueStorage<P>>(lock: &Lock<Pol, P, L>) {
    if let Some(guard) = lock.try_read_for(Duration::from_micros(100)) {
        guard.get();
    }
}

fn write_in_time<Pol: Policy, P: Platform, L: QueueStorage<P>>(lock: &Lock<Pol, P, L>) {
    if let Some(guard) = lock.try_write_for(Duration::from_micros(100)) {
        guard.add();
    }
}

/// [`TimeFair`] without its spins, each turn of which would multiply the executions, and with a
/// budget of one look at the clock.
struct TimeFairAsleep;

impl Policy for TimeFairAsleep {
    const NAME: &'static str = "timefair-asleep";
    const DISCIPLINE: Discipline = Discipline::Phases(Phases {
        shortest_budget: 1,
        budget_per_wakeup: 1,
        longest_budget: 4_000_000,
        spin: 0,
    });
}

/// Of the weakened orderings that these models were seen to find, each was found among the first 1,500
/// executions of one of them.
fn explore_many(name: &str, preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    explore_most(name, preemptions, most_executions(2_500), model);
}

/// One test for each line: the threads' steps, and how many additions they may make together.
macro_rules! under_loom {
    ($policy:ty, $platform:ty, $lodging:ty, $preemptions:expr; $($name:ident: $steps:expr => $added:expr;)*) => {$(
        #[test]
        fn $name() {
            explore_many(concat!(module_path!(), "::", stringify!($name)), $preemptions, || {
                let added = together::<$policy, $platform, $lodging>(&$steps);
                assert!($added.contains(&added), "{added} additions");
            });
        }
    )*};
}

macro_rules! two_threads {
    ($policy:ty, $platform:ty, $lodging:ty) => {
        under_loom! { $policy, $platform, $lodging, PREEMPTIONS_OF_TWO;
            two_writers_exclude_each_other: [write, write] => 2..=2;
            a_writer_excludes_a_reader: [read, write] => 1..=1;
            trying_never_waits: [try_both, write] => 1..=2;
            a_downgraded_writer_reads_on: [downgrade, write] => 2..=2;
            a_downgraded_writer_reads_beside_a_reader: [downgrade, read] => 1..=1;
            an_upgrade_excludes_a_writer: [upgrade, write] => 2..=2;
            an_upgrade_waits_for_a_reader: [upgrade, read] => 1..=1;
            two_upgrades_take_turns: [upgrade, upgrade] => 2..=2;
            an_upgrade_and_back_excludes_a_writer: [upgrade_and_back, write] => 1..=2;
            a_timed_upgrade_meets_the_last_reader: [upgrade_in_time, read] => 0..=1;
            a_fair_unlock_hands_over: [write_fair, write] => 2..=2;
            a_time_out_meets_a_hand_over_to_a_writer: [write_in_time, write] => 1..=2;
            a_time_out_meets_a_hand_over_to_a_reader: [read_in_time, write] => 1..=1;
        }
    };
}

macro_rules! three_threads {
    ($policy:ty, $platform:ty, $lodging:ty, $preemptions:expr) => {
        under_loom! { $policy, $platform, $lodging, $preemptions;
            a_reader_and_two_writers: [read, write, write] => 2..=2;
            two_readers_and_a_writer: [read, read, write] => 1..=1;
            a_downgrade_lets_a_waiting_reader_in: [read, write, downgrade] => 2..=2;
            an_upgrade_beside_a_reader_and_a_writer: [upgrade, read, write] => 2..=2;
            an_upgrade_and_back_beside_both: [upgrade_and_back, read, write] => 1..=2;
            a_timed_upgrade_beside_both: [upgrade_in_time, read, write] => 1..=2;
            fair_unlocks_among_all: [read_fair, write_fair, write] => 2..=2;
            a_time_out_uncovers_the_next_waiter: [write_in_time, read, write] => 1..=2;
            a_time_out_lets_readers_join_an_upgrader: [write_in_time, read, upgrade_and_back] => 0..=2;
        }
    };
}

macro_rules! policies_under_loom {
    ($($module:ident: $policy:ty, $three_threads:ty, $preemptions:expr;)*) => {$(
        mod $module {
            use super::*;
            two_threads!($policy, Loom, Inline<Loom>);
            three_threads!($three_threads, Loom, Inline<Loom>, $preemptions);
        }
    )*};
}

policies_under_loom! {
    time_fair: TimeFair, TimeFairAsleep, 1;
    phase_fair: PhaseFair, PhaseFair, 2;
    linux_5_11: Linux5_11, Linux5_11, 1;
    linux_5_3: Linux5_3, Linux5_3, 1;
    linux_3_10: Linux3_10, Linux3_10, 1;
    no_reader_steal: NoReaderSteal, NoReaderSteal, 1;
}

/// Locks that rent the room in which their threads wait.
mod rented {
    use super::*;
    type Rents = Pooled<WithoutRecords>;

    mod time_fair {
        use super::*;
        two_threads!(TimeFairAsleep, WithoutRecords, Rents);
    }
    mod phase_fair {
        use super::*;
        two_threads!(PhaseFair, WithoutRecords, Rents);
    }
    mod three_threads {
        use super::*;
        three_threads!(PhaseFair, WithoutRecords, Rents, 1);
    }
    mod a_room_in_each_record {
        use super::*;
        under_loom! { PhaseFair, Loom, Pooled<Loom>, 2;
            two_writers_exclude_each_other: [write, write] => 2..=2;
            an_upgrade_waits_for_a_reader: [upgrade, read] => 1..=1;
            a_reader_and_two_writers: [read, write, write] => 2..=2;
        }
    }
}

/// A reader that waits only for a writer is let in beside an upgradable reader when that writer
/// gives up, at the moment in which the upgradable reader becomes a writer.
fn a_time_out_meets_an_upgrade<Pol: Policy>() {
    explore(Pol::NAME, 2, || {
        let lock = Arc::new(Lock::<Pol, Loom>::new(Watched::new()));
        let upgradable = lock.upgradable_read();
        let threads = [write_in_time, read].map(|step: Step<Pol, Loom>| {
            let lock = Arc::clone(&lock);
            loom::thread::spawn(move || step(&lock))
        });
        // To after the writer has queued, and the reader behind it: then one preemption is enough.
        for _ in 0..3 {
            loom::thread::yield_now();
        }
        match RwLockUpgradableReadGuard::try_upgrade(upgradable) {
            Ok(guard) => {
                guard.add();
                loom::thread::yield_now();
                guard.add();
            }
            Err(guard) => _ = guard.get(),
        }
        for thread in threads {
            thread.join().expect("a panic ends the model");
        }
        assert!(lock.try_write().is_some());
    });
}

#[test]
fn a_time_out_that_lets_a_reader_in_and_an_upgrade_exclude_each_other() {
    a_time_out_meets_an_upgrade::<PhaseFair>();
    a_time_out_meets_an_upgrade::<Linux5_11>();
}

/// What the checker says about a lock on a flawed platform.
fn report<Pol: Policy, P: Platform, L: QueueStorage<P>>(
    steps: &'static [Step<Pol, P, L>],
) -> String {
    let failure = catch_unwind(AssertUnwindSafe(|| {
        explore("flawed", 2, || _ = together(steps));
    }));
    let failure = failure.expect_err("the checker must notice the flaw");
    match failure.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => (*other.downcast_ref::<&str>().unwrap_or(&"not a message")).to_owned(),
    }
}

#[test]
fn the_checker_notices_relaxed_orderings() {
    let message = report::<TimeFair, Weakened, Inline<_>>(&[write, write]);
    assert!(message.contains("Causality violation"), "{message}");
    let message = report::<TimeFair, Weakened, Pooled<_>>(&[write, write]);
    assert!(message.contains("Causality violation"), "{message}");
    let message = report::<Linux5_11, Weakened, Inline<_>>(&[read, write]);
    assert!(message.contains("Causality violation"), "{message}");
}

#[test]
fn the_checker_notices_lost_wake_ups() {
    let message = report::<TimeFair, Deaf, Inline<_>>(&[write, write, write]);
    assert!(message.contains("deadlock"), "{message}");
    let message = report::<PhaseFair, Deaf, Pooled<Deaf>>(&[write, write]);
    assert!(message.contains("deadlock"), "{message}");
    let message = report::<Linux5_11, Deaf, Inline<_>>(&[read, write]);
    assert!(message.contains("deadlock"), "{message}");
}

#[test]
fn the_checker_notices_two_writers() {
    let message = report::<TimeFair, Gullible, Inline<_>>(&[write, write]);
    assert!(message.contains("Causality violation"), "{message}");
}
