//! Condition variables under Loom: no race on what their mutex protects, none on the nodes that go from one queue to
//! the other, and no lost notification, in the interleavings of two or three threads. A wait with a deadline always
//! reaches it here. Each scenario runs where nobody knows a CPU, so those that want the mutex spin, and where all share
//! one, so they sleep at once.

use fairlock::platform::Platform;
use fairlock_check::condvar::{self, Queue};
use fairlock_check::loom_platform::{
    DeafOneCpu, Loom, OneCpu, Watched, Weakened, check, failure, model, most_executions,
};

fn check_each<P: Platform>(of: &str) {
    check(of, condvar::two_threads::<P, Watched>(), 3, most_executions(2_500));
    check(of, condvar::three_threads::<P, Watched>(), 2, most_executions(2_500));
}

#[test]
fn where_threads_spin_for_the_mutex_no_notification_is_lost() {
    check_each::<Loom>("spinning");
}

#[test]
fn where_threads_sleep_for_the_mutex_no_notification_is_lost() {
    check_each::<OneCpu>("sleeping");
}

/// What Loom says of two threads on a flawed platform.
fn report<P: Platform>() -> String {
    failure("flawed", 2, model::<Queue<P, Watched>>(condvar::a_notification_outside()))
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
