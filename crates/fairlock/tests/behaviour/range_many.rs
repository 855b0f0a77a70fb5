//! Ten thousand ranges of one lock, held at once by one thread and by a hundred: others come in beside
//! them at once, and conflicting ones are waited for. What that costs is counted in the
//! simulator's `timed/range_many.rs`.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use fairlock::range::{Extent, RangeLock, RangeReadGuard, RangeWriteGuard};

const HOLDERS: u64 = 10_000;
const THREADS: u64 = 100;

#[allow(dead_code)] // held, not looked at
enum Guard<'a> {
    Read(RangeReadGuard<'a>),
    Write(RangeWriteGuard<'a>),
}

/// As long as they are short, and with so many positions between them as they have.
fn range(number: u64) -> Extent {
    Extent::at(number * 200, 100).expect("not that many")
}

/// Beside it.
fn gap(number: u64) -> Extent {
    Extent::at(number * 200 + 100, 100).expect("not that many")
}

fn is_shared(number: u64) -> bool {
    number % 3 == 0
}

fn acquire(lock: &RangeLock, number: u64) -> Guard<'_> {
    if is_shared(number) {
        Guard::Read(lock.read(range(number)))
    } else {
        Guard::Write(lock.write(range(number)))
    }
}

/// In an order that is always the same and looks like none.
fn shuffled<T>(mut things: Vec<T>) -> Vec<T> {
    let mut state = 1_u64;
    for last in (1..things.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        things.swap(last, (state >> 33) as usize % (last + 1));
    }
    things
}

/// Tries beside all that are held, and in their way.
fn try_around(lock: &RangeLock) {
    for number in 0..HOLDERS {
        assert!(lock.try_write(gap(number)).is_some(), "nobody is there");
        assert!(lock.try_write(range(number)).is_none(), "somebody is there");
        assert_eq!(lock.try_read(range(number)).is_some(), is_shared(number));
    }
    assert!(lock.try_write(Extent::of(HOLDERS * 200..).expect("not empty")).is_some());
    assert!(lock.try_read(Extent::ALL).is_none());
}

/// Everything is held as `guards` when this begins, and free when it ends.
fn try_wait_and_release(lock: &RangeLock, guards: Vec<Guard<'_>>) {
    try_around(lock);
    let left = AtomicUsize::new(guards.len());
    thread::scope(|scope| {
        scope.spawn(|| try_around(lock)).join().expect("no panic");
        for exclusive in [false, true] {
            let left = &left;
            scope.spawn(move || {
                if exclusive {
                    let _all = lock.write(Extent::ALL);
                    assert_eq!(left.load(SeqCst), 0, "it waits for all");
                } else {
                    let _some = lock.read(Extent::of(..range(9).first()).expect("not empty"));
                }
            });
        }
        while lock.raw().waiting() < 2 {
            thread::yield_now();
        }
        for guard in shuffled(guards) {
            left.fetch_sub(1, SeqCst);
            drop(guard);
        }
    });
    assert!(lock.try_write(Extent::ALL).is_some(), "nobody is left");
}

#[test]
fn ten_thousand_guards_of_one_thread() {
    let lock = RangeLock::new();
    let guards = (0..HOLDERS).map(|number| acquire(&lock, number)).collect();
    try_wait_and_release(&lock, guards);
}

#[test]
fn a_hundred_guards_of_a_hundred_threads_each() {
    let lock = RangeLock::new();
    let all_are_held = Barrier::new(THREADS as usize);
    let guards = thread::scope(|scope| {
        let acquire_some = |thread: u64| {
            let (lock, all_are_held) = (&lock, &all_are_held);
            // Neighbours are other threads'.
            let numbers = (0..HOLDERS / THREADS).map(move |at| at * THREADS + thread);
            scope.spawn(move || {
                let guards: Vec<_> = numbers.map(|number| acquire(lock, number)).collect();
                all_are_held.wait();
                guards
            })
        };
        let threads: Vec<_> = (0..THREADS).map(acquire_some).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    try_wait_and_release(&lock, guards);
}
