//! Scenarios of `Mutex`; and of mutexes that can only be acquired, tried and released.

use std::time::Duration;

use fairlock::lock_api::{Mutex, MutexGuard, RawMutex, RawMutexFair, RawMutexTimed};

use crate::scenario::{Number, Subject, lists, scenarios};

/// A mutex that can be acquired, tried and released.
pub trait Basic: RawMutex + 'static {}

impl<R: RawMutex + 'static> Basic for R {}

/// A mutex that can do everything, by whatever clock.
pub trait Raw: RawMutexFair + RawMutexTimed<Duration = Duration> + 'static {}

impl<R: RawMutexFair + RawMutexTimed<Duration = Duration> + 'static> Raw for R {}

impl<R: Basic, N: Number> Subject for Mutex<R, N> {
    fn new() -> Self {
        Mutex::new(N::zero())
    }
    fn additions(&self) -> u32 {
        self.try_lock().expect("the lock is free when everybody is done").get()
    }
}

/// Locks and unlocks.
pub fn plain<R: Basic, N: Number>(lock: &Mutex<R, N>) {
    lock.lock().add();
}

/// Locks and unlocks, and again.
pub fn twice<R: Basic, N: Number>(lock: &Mutex<R, N>) {
    plain(lock);
    plain(lock);
}

/// Locks and hands the lock over.
pub fn fair<R: Raw, N: Number>(lock: &Mutex<R, N>) {
    let guard = lock.lock();
    guard.add();
    MutexGuard::unlock_fair(guard);
}

/// Locks if nobody is in the way.
pub fn without_waiting<R: Basic, N: Number>(lock: &Mutex<R, N>) {
    if let Some(guard) = lock.try_lock() {
        guard.add();
    }
}

/// Locks if it gets the lock in time.
pub fn in_time<R: Raw, N: Number>(lock: &Mutex<R, N>) {
    if let Some(guard) = lock.try_lock_for(Duration::from_micros(100)) {
        guard.add();
    }
}

scenarios! { Mutex<R, N> where R: Basic, N: Number;
    two "two": [plain, plain] => 2..=2;
    twice_each "twice each": [twice, twice] => 4..=4;
    a_try "a try": [without_waiting, plain] => 1..=2;
    three "three": [plain, plain, plain] => 3..=3;
    four_plain "four": [plain, plain, without_waiting, plain] => 3..=4;
    eight_plain "eight": [plain, twice, plain, twice, without_waiting, plain, twice, plain] => 10..=11;
}

lists! { Mutex<R, N> where R: Basic, N: Number;
    /// Two threads with a mutex that can do no more.
    two_basic: [two, twice_each, a_try];
}

scenarios! { Mutex<R, N> where R: Raw, N: Number;
    a_fair_unlock "a fair unlock": [fair, plain] => 2..=2;
    a_timeout_beside_an_unlock "a timeout beside an unlock": [in_time, plain] => 1..=2;
    a_timeout_beside_a_fair_unlock "a timeout beside a fair unlock": [in_time, fair] => 1..=2;

    a_timeout_before_others "a timeout before others": [in_time, plain, plain] => 2..=3;
    fair_and_plain_unlocks "fair and plain unlocks": [fair, plain, fair] => 3..=3;

    four "four": [plain, fair, in_time, plain] => 3..=4;
    eight "eight":
        [plain, fair, in_time, twice, plain, in_time, without_waiting, twice] => 7..=10;
}

lists! { Mutex<R, N> where R: Raw, N: Number;
    /// Every operation beside another thread.
    two_threads: [
        two,
        twice_each,
        a_fair_unlock,
        a_try,
        a_timeout_beside_an_unlock,
        a_timeout_beside_a_fair_unlock,
    ];
    /// Somebody behind somebody who waits.
    three_threads: [three, a_timeout_before_others, fair_and_plain_unlocks];
}
