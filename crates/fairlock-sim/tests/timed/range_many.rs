//! What many holders of one `RangeLock` cost those that come later, in operations on memory, counted
//! exactly: on a machine where each takes a nanosecond and nothing else takes any time.

use std::cell::Cell;

use fairlock::range::{Extent, RangeLock, RangeReadGuard, Slotted};
use fairlock_sim::Sim;
use fairlock_sim::profile::{Costs, Lines, Profile};
use fairlock_sim::timed::{self, Setup, Thread};

use crate::range::chunks;

type Lock = RangeLock<Slotted<Sim>>;
type Body<'a> = Box<dyn FnOnce() + 'a>;

/// Of a thread.
const SLOTS: u64 = 4;

/// A nanosecond for each access to memory, wherever it is.
fn counting() -> Profile {
    let example = Profile::example();
    Profile {
        cost: Costs { load_ns: 1.0, store_ns: 1.0, rmw_ns: 1.0, clock_ns: 0.0, ..example.cost },
        line: Lines {
            smt_ns: 1.0,
            cluster_ns: 1.0,
            socket_ns: 1.0,
            cross_ns: vec![1.0],
            memory_ns: 1.0,
            invalidate_ns: 0.0,
            share_ns: 1.0,
            ..example.line
        },
        ..example
    }
}

fn range(number: u64) -> Extent {
    Extent::at(2 * number, 1).expect("not that many")
}

/// The operations of `act`, in a thread of its own, while other threads hold so many ranges each, in
/// one block, and after that of a release of one of them that has no slot, if there is one.
fn beside(threads: u64, each: u64, act: fn(&Lock)) -> (u64, u64) {
    let lock = Lock::new_in();
    let (acted, released) = (Cell::new(0), Cell::new(0));
    let done = Cell::new(false);
    let mut bodies: Vec<Body<'_>> = Vec::new();
    for thread in 0..threads {
        let (lock, done, released) = (&lock, &done, &released);
        bodies.push(Box::new(move || {
            let acquire = |at| lock.read(range(at * threads + thread));
            let mut guards: Vec<RangeReadGuard<'_, _>> = (0..each).map(acquire).collect();
            while !done.get() {
                timed::sleep(1_000_000_000);
            }
            let middle = each as usize / 2;
            if middle as u64 >= SLOTS {
                let guard = guards.swap_remove(middle);
                let began = timed::now();
                drop(guard);
                released.set(timed::now() - began);
            }
        }));
    }
    let (lock, done, acted) = (&lock, &done, &acted);
    bodies.push(Box::new(move || {
        act(lock); // The lock has its number, this thread its record.
        timed::sleep(500_000_000);
        let began = timed::now();
        act(lock);
        acted.set(timed::now() - began);
        done.set(true);
    }));
    let threads = bodies.into_iter().map(|body| Thread { body, priority: 0 }).collect();
    let setup =
        Setup { profile: &counting(), seed: 1, pinned: false, timeline_ns: 0, tuning: None };
    timed::run(&setup, threads, &|| false, &|| ()).expect("it ends");
    (acted.get(), released.get())
}

/// In another block than all of them, and another stripe.
fn read_elsewhere(lock: &Lock) {
    drop(lock.read(Extent::at(1 << 16, 1).expect("not that many")));
}

fn write_elsewhere(lock: &Lock) {
    drop(lock.write(Extent::at(1 << 16, 1).expect("not that many")));
}

/// Between two of them.
fn read_between(lock: &Lock) {
    drop(lock.read(Extent::at(4_001, 1).expect("not that many")));
}

fn write_between(lock: &Lock) {
    drop(lock.write(Extent::at(4_001, 1).expect("not that many")));
}

fn cost(threads: u64, each: u64, act: fn(&Lock)) -> u64 {
    beside(threads, each, act).0
}

#[test]
fn a_reader_of_another_part_pays_for_nobody() {
    for (threads, each) in [(1, 0), (1, 1), (1, 4), (1, 5), (1, 10_000), (100, 4), (100, 100)] {
        // A stripe, if one is raised at all: by those without a slot.
        let stripe = u64::from(each > SLOTS);
        assert_eq!(
            cost(threads, each, read_elsewhere),
            18 + stripe,
            "{threads} threads, {each} each"
        );
    }
}

#[test]
fn a_writer_of_another_part_looks_once_at_each_slot_that_was_used_and_at_nothing_else() {
    // And at how many there are, and its own: whether the next one was used, and how often it was itself.
    let alone = cost(1, 0, write_elsewhere) + 3;
    // Of a slot that was used: its tag, where the range begins and ends, and whether the next one was used.
    const EACH: u64 = 4;
    for (threads, each) in [(1, 1), (1, 4), (1, 5), (1, 10_000), (60, 4), (60, 100)] {
        let slots = threads * each.min(SLOTS) * EACH + chunks(1 + threads);
        let found = cost(threads, each, write_elsewhere);
        assert_eq!(found, alone + slots, "{threads} threads, {each} each");
    }
}

/// The most that a tree's height grows with ten times as many nodes.
const LEVELS_OF_TEN_TIMES: u64 = 5;

#[test]
fn who_comes_between_holders_without_slots_goes_down_one_tree() {
    const EACH_LEVEL: u64 = 6;
    for act in [read_between, write_between] {
        let costs = [100, 1_000, 10_000].map(|holders| cost(1, holders, act));
        println!("{costs:?}");
        for pair in costs.windows(2) {
            assert!(pair[1] <= pair[0] + LEVELS_OF_TEN_TIMES * EACH_LEVEL, "{costs:?}");
        }
    }
}

#[test]
fn a_holder_without_a_slot_leaves_by_one_way_up_the_tree() {
    const EACH_LEVEL: u64 = 20;
    let costs = [100, 1_000, 10_000].map(|holders| beside(1, holders, read_elsewhere).1);
    println!("{costs:?}");
    for pair in costs.windows(2) {
        assert!(pair[1] <= pair[0] + LEVELS_OF_TEN_TIMES * EACH_LEVEL, "{costs:?}");
    }
}
