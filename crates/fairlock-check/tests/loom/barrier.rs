//! The sharing of barriers under Loom: whoever returns comes after a barrier that began after its
//! call, in the interleavings of two and three threads with a bound on preemptions. A caller that
//! goes by an earlier look at the numbers, and so accepts a barrier that began before its call, must
//! be noticed, and so must a platform whose atomics order nothing.

#[path = "../../../fairlock/src/barrier.rs"]
#[allow(dead_code)] // what a `fork` needs
mod shared_barrier;

use std::sync::Arc;

use fairlock::platform::Platform;
use fairlock_check::loom_platform::{Loom, Weakened, barriers, explore, failure, together};
use fairlock_check::scenario::Step;
use shared_barrier::SharedBarrier;

fn call<P: Platform>(shared: &SharedBarrier<P>) {
    let before = barriers().begun();
    shared.pass();
    assert!(barriers().has_passed_one_after(before), "too early");
}

/// Looks at the numbers before its call.
fn call_hastily<P: Platform>(shared: &SharedBarrier<P>) {
    let number = shared.next();
    let before = barriers().begun();
    shared.wait_for(number);
    assert!(barriers().has_passed_one_after(before), "too early");
}

fn call_twice<P: Platform>(shared: &SharedBarrier<P>) {
    call(shared);
    call(shared);
}

fn all<P: Platform>(calls: &[Step<SharedBarrier<P>>]) {
    together(&Arc::new(SharedBarrier::NEW), calls);
}

#[test]
fn two_callers() {
    explore("two callers", 3, || all::<Loom>(&[call, call]));
}

#[test]
fn one_calls_twice() {
    explore("one calls twice", 3, || all::<Loom>(&[call_twice, call]));
}

#[test]
fn three_callers() {
    explore("three callers", 2, || all::<Loom>(&[call, call, call]));
}

#[test]
fn a_barrier_that_began_before_the_call_is_not_enough() {
    let found = failure("flawed", 3, || all::<Loom>(&[call, call_hastily]));
    assert!(found.contains("too early"), "{found}");
}

#[test]
fn a_barrier_that_nothing_orders_is_noticed() {
    let found = failure("flawed", 3, || all::<Weakened>(&[call, call]));
    assert!(found.contains("Causality"), "{found}");
}
