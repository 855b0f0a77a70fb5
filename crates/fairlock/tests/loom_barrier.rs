//! The sharing of barriers under Loom: whoever returns comes after a barrier that began after its
//! call, in the interleavings of two and three threads with a bound on preemptions. A caller that
//! goes by an earlier look at the numbers, and so accepts a barrier that began before its call, must
//! be noticed, and so must a platform whose atomics order nothing.

#[path = "../src/barrier.rs"]
#[allow(dead_code)] // what a `fork` needs
mod barrier;
mod loom_platform;
#[path = "../src/spin_budget.rs"]
mod spin_budget;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use barrier::SharedBarrier;
use fairlock::platform::{self, Platform};
use loom_platform::{Loom, Weakened, barriers, explore};

/// How a thread comes to pass a barrier.
type Pass<P> = fn(&SharedBarrier<P>);

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

fn together<P: Platform>(calls: &[Pass<P>]) {
    let shared = Arc::new(SharedBarrier::<P>::NEW);
    let (mine, others) = calls.split_last().expect("at least one");
    let others: Vec<_> = others
        .iter()
        .map(|&call| {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || call(&shared))
        })
        .collect();
    mine(&shared);
    for other in others {
        other.join().expect("a panic ends the model");
    }
}

fn report(model: impl Fn() + Send + Sync + 'static) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| explore("flawed", 3, model)));
    let panic = panic.expect_err("Loom must notice the flaw");
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default().to_owned()
}

#[test]
fn two_callers() {
    explore("two callers", 3, || together::<Loom>(&[call, call]));
}

#[test]
fn one_calls_twice() {
    explore("one calls twice", 3, || together::<Loom>(&[call_twice, call]));
}

#[test]
fn three_callers() {
    explore("three callers", 2, || together::<Loom>(&[call, call, call]));
}

#[test]
fn a_barrier_that_began_before_the_call_is_not_enough() {
    let found = report(|| together::<Loom>(&[call, call_hastily]));
    assert!(found.contains("too early"), "{found}");
}

#[test]
fn a_barrier_that_nothing_orders_is_noticed() {
    let found = report(|| together::<Weakened>(&[call, call]));
    assert!(found.contains("Causality"), "{found}");
}
