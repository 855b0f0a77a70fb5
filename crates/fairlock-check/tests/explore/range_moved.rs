//! `RangeLock` where guards end on other threads than they began on: their slot's thread may use it
//! again while they are still being left.

use std::cell::Cell;
use std::sync::Arc;

use fairlock::range::{ArcRangeReadGuard, ArcRangeWriteGuard, Extent, RangeLock, Slotted};
use fairlock_check::long;
use fairlock_sim::On;
use fairlock_sim::explore::{self, Explore, Program, Search, Sound};

/// Each position is a block.
type Raw = Slotted<On<Explore<Sound>>, 2, 0>;

enum Guard {
    Read(#[allow(dead_code)] ArcRangeReadGuard<Raw>),
    Write(#[allow(dead_code)] ArcRangeWriteGuard<Raw>),
}

struct State {
    lock: Arc<RangeLock<Raw>>,
    passed_on: Cell<Option<Guard>>,
    is_passed_on: Cell<bool>,
}

impl State {
    fn new() -> Self {
        State {
            lock: Arc::new(RangeLock::new_in()),
            passed_on: Cell::new(None),
            is_passed_on: Cell::new(false),
        }
    }

    fn pass_on(&self, guard: Guard) {
        self.passed_on.set(Some(guard));
        self.is_passed_on.set(true);
    }
}

fn one(at: u64) -> Extent {
    Extent::at(at, 1).expect("not that many")
}

fn wait_until(is_true: impl Fn() -> bool) {
    while !is_true() {
        explore::pass_time(1_000);
    }
}

/// Thread 2, or it is awake again.
fn the_waiter_sleeps() -> bool {
    let sleeps = explore::sleeps_of(2);
    sleeps.asleep || sleeps.count > 0
}

/// Thread 2 sleeps for a range that thread 0 has and thread 1 leaves, while thread 0 goes on to others.
fn is_told(begin: fn(&State) -> Guard, wait: fn(&State), go_on: fn(&State)) {
    let program = Program::new("a slot that is used again", State::new)
        .thread(move |state| {
            state.pass_on(begin(state));
            wait_until(the_waiter_sleeps);
            go_on(state);
            go_on(state);
        })
        .thread(|state| {
            wait_until(the_waiter_sleeps);
            drop(state.passed_on.take());
        })
        .thread(move |state| {
            wait_until(|| state.is_passed_on.get());
            wait(state);
        });
    println!("{}", program.assert(&Search::random(1, long::depth(1_000, 3_000))));
    program.store_buffers().assert(&Search::random(2, long::depth(1_000, 3_000)));
}

#[test]
fn a_waiter_is_told_by_who_leaves_a_slot_that_is_used_again() {
    for go_on in [
        |state: &State| drop(state.lock.read(one(1))),
        |state: &State| drop(state.lock.write(one(1))),
    ] {
        let read: fn(&State) -> Guard = |state| Guard::Read(state.lock.read_arc(one(0)));
        let write: fn(&State) -> Guard = |state| Guard::Write(state.lock.write_arc(one(0)));
        is_told(read, |state| drop(state.lock.write(one(0))), go_on);
        is_told(write, |state| drop(state.lock.write(one(0))), go_on);
        is_told(write, |state| drop(state.lock.read(one(0))), go_on);
    }
}
