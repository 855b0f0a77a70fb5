//! What people build of `Mutex` and `Condvar`, under Loom: no race on what each pattern protects,
//! and no lost notification. Each scenario runs where threads spin for the mutex, and where they
//! sleep for it.

use fairlock::platform::Platform;
use fairlock_check::loom_platform::{Loom, OneCpu, Watched, check, most_executions};
use fairlock_check::patterns::{
    Barrier, Jobs, Pattern, Semaphore, Slot, Turns, in_each_way, shards,
};

fn check_pattern<P: Platform, T: Pattern>() {
    for (of, scenario) in in_each_way::<P, Watched, T>(T::two_threads) {
        check(&of, [scenario], 2, most_executions(200));
    }
    for (of, scenario) in in_each_way::<P, Watched, T>(T::more_threads) {
        check(&of, [scenario], 1, most_executions(200));
    }
}

fn check_each<P: Platform>() {
    check_pattern::<P, Slot>();
    check_pattern::<P, Barrier>();
    check_pattern::<P, Semaphore>();
    check_pattern::<P, Jobs>();
    check_pattern::<P, Turns>();
    check("shards", shards::<P, Watched>(), 2, most_executions(200));
}

#[test]
fn where_threads_spin_for_the_mutex_patterns_keep_their_promises() {
    check_each::<Loom>();
}

#[test]
fn where_threads_sleep_for_the_mutex_patterns_keep_their_promises() {
    check_each::<OneCpu>();
}
