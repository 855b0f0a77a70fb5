//! The re-entrant mutex under Loom: no race on what it protects nor on its count, in the interleavings of two or three
//! threads.

use fairlock_check::loom_platform::{
    OneCpu, Watched, Weakened, check, failure, model, most_executions,
};
use fairlock_check::reentrant;

#[test]
fn threads_exclude_each_other_however_often_they_acquire() {
    check("two", reentrant::two_threads::<OneCpu, Watched>(), 2, most_executions(5_000));
    check("three", reentrant::three_threads::<OneCpu, Watched>(), 1, most_executions(5_000));
}

#[test]
fn the_checker_notices_relaxed_orderings() {
    let two = reentrant::two_threads::<Weakened, Watched>().swap_remove(0);
    let message = failure("flawed", 2, model(two));
    assert!(message.contains("Causality violation"), "{message}");
}
