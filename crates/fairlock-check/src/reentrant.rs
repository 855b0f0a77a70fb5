//! Scenarios of `ReentrantMutex`, without guards: a platform's threads are not told apart by the system.

use fairlock::platform::Platform;
use fairlock::reentrant::RawReentrantMutex;

use crate::scenario::{Number, Scenario, Subject};

/// A re-entrant mutex, and a number under it.
pub struct Nested<P: Platform, N> {
    lock: RawReentrantMutex<P>,
    number: N,
}

// SAFETY: the number is touched by the holder of the lock, and when all threads have ended.
unsafe impl<P: Platform, N: Send> Sync for Nested<P, N> {}

impl<P: Platform, N: Number> Subject for Nested<P, N> {
    fn new() -> Self {
        Nested { lock: RawReentrantMutex::NEW, number: N::zero() }
    }
    fn additions(&self) -> u32 {
        assert!(!self.lock.is_locked(), "the lock is free when everybody is done");
        self.number.get()
    }
}

/// How a thread acquires the lock, and how it releases it for the last time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    Fair,
    Try,
    InTime,
}

/// Adds one with the lock held once, twice, and once again.
fn visit<P: Platform, N: Number>(nested: &Nested<P, N>, me: u64, way: Way) {
    let Nested { lock, number } = nested;
    // SAFETY: each thread of a scenario has a number of its own, and releases what it has acquired.
    unsafe {
        let acquired = match way {
            Way::Try => lock.try_acquire(me),
            Way::InTime => lock.acquire(me, Some(P::now() + 100_000)),
            _ => lock.acquire(me, None),
        };
        assert_eq!(lock.is_owned_by(me), acquired);
        if !acquired {
            return;
        }
        number.add();
        assert!(lock.try_acquire(me), "a thread does not wait for itself");
        number.add();
        lock.release(me);
        assert!(lock.is_owned_by(me), "still held once");
        number.add();
        if way == Way::Fair {
            lock.release_fair(me)
        } else {
            lock.release(me)
        }
        assert!(!lock.is_owned_by(me));
    }
}

/// What two threads do.
pub fn two_threads<P: Platform, N: Number>() -> Vec<Scenario<Nested<P, N>>> {
    vec![
        Scenario::new("two", [|it| visit(it, 1, Way::Plain), |it| visit(it, 2, Way::Plain)], 6..=6),
        Scenario::new("a try", [|it| visit(it, 1, Way::Try), |it| visit(it, 2, Way::Plain)], 3..=6),
        Scenario::new(
            "a fair release beside a timeout",
            [|it| visit(it, 1, Way::Fair), |it| visit(it, 2, Way::InTime)],
            3..=6,
        ),
    ]
}

/// What three threads do.
pub fn three_threads<P: Platform, N: Number>() -> Vec<Scenario<Nested<P, N>>> {
    vec![Scenario::new(
        "three",
        [
            |it| visit(it, 1, Way::Plain),
            |it| visit(it, 2, Way::Fair),
            |it| visit(it, 3, Way::Plain),
        ],
        9..=9,
    )]
}
