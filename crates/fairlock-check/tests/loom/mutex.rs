//! The mutex under Loom: no race on what it protects and no lost wake-up in the interleavings of two
//! or three threads, with a bound on preemptions and on how many are tried. Each scenario runs twice:
//! where nobody knows a CPU, so waiters spin, and where all share one, so they sleep at once.

use fairlock::lock_api;
use fairlock::mutex::RawMutex;
use fairlock::platform::Platform;
use fairlock_check::loom_platform::{
    DeafOneCpu, GullibleHalves, Loom, MOST_EXECUTIONS, OneCpu, Watched, Weakened, check, failure,
    model,
};
use fairlock_check::mutex;
use fairlock_check::scenario::Scenario;

type Lock<P> = lock_api::Mutex<RawMutex<P>, Watched>;

fn check_each<P: Platform>(of: &str, scenarios: [Vec<Scenario<Lock<P>>>; 2]) {
    let [two, three] = scenarios;
    check(of, two, 3, MOST_EXECUTIONS);
    check(of, three, 1, MOST_EXECUTIONS);
}

#[test]
fn those_that_spin_exclude_each_other_and_nobody_waits_for_ever() {
    check_each::<Loom>("spinning", [mutex::two_threads(), mutex::three_threads()]);
}

#[test]
fn those_that_sleep_exclude_each_other_and_nobody_waits_for_ever() {
    check_each::<OneCpu>("sleeping", [mutex::two_threads(), mutex::three_threads()]);
}

/// What Loom says of two threads on a flawed platform.
fn report<P: Platform>() -> String {
    failure("flawed", 2, model::<Lock<P>>(mutex::two()))
}

#[test]
fn the_checker_notices_relaxed_orderings() {
    let message = report::<Weakened>();
    assert!(message.contains("Causality violation"), "{message}");
}

#[test]
fn the_checker_notices_lost_wake_ups() {
    let message = report::<DeafOneCpu>();
    assert!(message.contains("deadlock"), "{message}");
}

#[test]
fn the_checker_notices_two_owners() {
    let message = report::<GullibleHalves>();
    assert!(message.contains("Causality violation"), "{message}");
}
