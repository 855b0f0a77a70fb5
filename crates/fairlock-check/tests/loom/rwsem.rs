//! The rwsem under Loom: no race on what it protects and no lost wake-up in the interleavings of
//! two or three threads, with a bound on preemptions and on how many are tried; and the checker
//! itself is checked, by platforms with a flaw each.

use std::sync::Arc;

use fairlock::lock_api::{RwLock, RwLockUpgradableReadGuard};
use fairlock::policy::{PhaseFair, Policy, Shares, TimeFair};
use fairlock::rwsem::{HasQueuePool, RawRwSem};
use fairlock_check::loom_platform::{
    Deaf, Gullible, Loom, Watched, Weakened, WithoutRecords, check, explore_most, failure, join,
    model, most_executions, spawn,
};
use fairlock_check::read_write::{self, read, write_in_time};
use fairlock_check::scenario::{Scenario, Step};

/// Switches away from a thread that could go on, at most this many in one execution of two
/// threads; switches at parks and yields are free. Models of three threads get one or two, each
/// more of which multiplies the executions by ten.
const PREEMPTIONS_OF_TWO: usize = 3;

type Lock<Pol, P> = RwLock<RawRwSem<Pol, P>, Watched>;

/// [`TimeFair`] without its spins, each turn of which would multiply the executions, and with a
/// budget of one look at the clock.
struct TimeFairAsleep;

impl Policy for TimeFairAsleep {
    const NAME: &'static str = "timefair-asleep";
    const SHARES: Shares = Shares { slack: 1, spin: 0 };
}

/// Of the weakened orderings that these models were seen to find, each was found among the first 1,500
/// executions of one of them.
fn check_many<Pol: Policy, P: HasQueuePool>(
    scenarios: Vec<Scenario<Lock<Pol, P>>>,
    preemptions: usize,
) {
    check(Pol::NAME, scenarios, preemptions, most_executions(1_600));
}

macro_rules! policies_under_loom {
    ($($module:ident: $policy:ty, $three_threads:ty, $preemptions:expr;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn two_threads() {
                check_many::<$policy, WithoutRecords>(read_write::two_threads(), PREEMPTIONS_OF_TWO);
            }
            #[test]
            fn three_threads() {
                check_many::<$three_threads, WithoutRecords>(read_write::three_threads(), $preemptions);
            }
        }
    )*};
}

policies_under_loom! {
    time_fair: TimeFair, TimeFairAsleep, 1;
    phase_fair: PhaseFair, PhaseFair, 2;
}

/// The others do without records, which would multiply the executions.
#[test]
fn a_queue_in_each_record() {
    let scenarios = vec![
        read_write::two_writers(),
        read_write::an_upgrade_and_a_reader(),
        read_write::a_reader_and_two_writers(),
    ];
    check_many::<PhaseFair, Loom>(scenarios, 2);
    let scenarios = vec![read_write::two_writers(), read_write::a_reader_and_a_writer()];
    check_many::<TimeFair, Loom>(scenarios, 2);
}

/// A reader that waits only for a writer is let in beside an upgradable reader when that writer
/// gives up, at the moment in which the upgradable reader becomes a writer.
fn a_timeout_meets_an_upgrade<Pol: Policy>() {
    explore_most(Pol::NAME, 2, most_executions(5_000), || {
        let lock = Arc::new(Lock::<Pol, Loom>::new(Watched::new()));
        let upgradable = lock.upgradable_read();
        let threads = [write_in_time, read].map(|step: Step<Lock<Pol, Loom>>| {
            let lock = Arc::clone(&lock);
            spawn(move || step(&lock))
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
        join(threads);
        assert!(lock.try_write().is_some());
    });
}

#[test]
fn a_timeout_that_lets_a_reader_in_and_an_upgrade_exclude_each_other() {
    a_timeout_meets_an_upgrade::<PhaseFair>();
}

/// What the checker says about a lock on a flawed platform.
fn report<Pol: Policy, P: HasQueuePool>(scenario: Scenario<Lock<Pol, P>>) -> String {
    failure("flawed", 2, model(scenario))
}

#[test]
fn the_checker_notices_relaxed_orderings() {
    let message = report::<TimeFair, Weakened>(read_write::two_writers());
    assert!(message.contains("Causality violation"), "{message}");
}

#[test]
fn the_checker_notices_lost_wake_ups() {
    let message = report::<TimeFair, Deaf>(read_write::three_writers());
    assert!(message.contains("deadlock"), "{message}");
    let message = report::<PhaseFair, Deaf>(read_write::two_writers());
    assert!(message.contains("deadlock"), "{message}");
}

#[test]
fn the_checker_notices_two_writers() {
    let message = report::<TimeFair, Gullible>(read_write::two_writers());
    assert!(message.contains("Causality violation"), "{message}");
}
