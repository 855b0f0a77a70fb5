//! `Mutex` on real threads. The protocol's single steps are tested beside the code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::events::Event;
use fairlock::platform::Counting;
use fairlock::{Mutex, MutexGuard};

/// A mutex that counts its events, so that a test can wait until somebody sleeps.
type CountingMutex<T> = Mutex<T, Counting>;

const THREADS: u32 = 6;
const ROUNDS: u32 = 4_000;

fn wait_for_sleepers<T>(lock: &CountingMutex<T>, sleepers: u64) {
    while fairlock::mutex::events(lock).get(Event::MutexSleep) < sleepers {
        thread::yield_now();
    }
}

/// Every way to take the lock, by turns; `None` if this one was in vain.
fn lock_somehow(lock: &Mutex<u64>, turn: u32) -> Option<MutexGuard<'_, u64>> {
    match turn % 5 {
        0 => lock.try_lock(),
        1 => lock.try_lock_for(Duration::ZERO),
        2 => lock.try_lock_for(Duration::from_micros(u64::from(turn % 97))),
        3 => lock.try_lock_until(Instant::now() + Duration::from_micros(50)),
        _ => Some(lock.lock()),
    }
}

#[test]
fn no_update_is_lost_and_nobody_enters_twice_whatever_way_it_is_locked() {
    let lock = Mutex::new(0);
    let inside = AtomicU32::new(0);
    let entered = |thread: u32| {
        let mut entered = 0u64;
        for round in 0..ROUNDS {
            let Some(mut guard) = lock_somehow(&lock, round + thread) else {
                continue;
            };
            assert_eq!(inside.fetch_add(1, Relaxed), 0, "alone inside");
            *guard += 1;
            entered += 1;
            if round % 64 == 0 {
                thread::yield_now(); // Others find the lock held and its owner off the CPU.
            }
            inside.fetch_sub(1, Relaxed);
            if round % 3 == 0 {
                MutexGuard::unlock_fair(guard);
            }
        }
        entered
    };
    let entered: u64 = thread::scope(|scope| {
        let entered = &entered;
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || entered(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(*lock.try_lock().expect("free in the end"), entered);
}

#[test]
fn bumping_keeps_the_lock_and_lets_others_in() {
    let lock = Mutex::new(0u32);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut guard = lock.lock();
                for _ in 0..ROUNDS / 10 {
                    *guard += 1;
                    MutexGuard::bump(&mut guard);
                }
            });
        }
    });
    assert_eq!(lock.into_inner(), THREADS * (ROUNDS / 10));
}

#[test]
fn waiters_that_timeout_leave_the_others_in_the_queue() {
    let lock = CountingMutex::new_in(0u32);
    let timed_out = AtomicU32::new(0);
    thread::scope(|scope| {
        let guard = lock.lock();
        for thread in 0..2 * THREADS {
            let (lock, timed_out) = (&lock, &timed_out);
            scope.spawn(move || {
                if thread % 2 == 0 {
                    *lock.lock() += 1;
                } else {
                    let timeout = Duration::from_micros(u64::from(thread) * 100);
                    assert!(lock.try_lock_for(timeout).is_none());
                    timed_out.fetch_add(1, Relaxed);
                }
            });
        }
        while timed_out.load(Relaxed) < THREADS {
            thread::yield_now();
        }
        drop(guard);
    });
    assert_eq!(*lock.try_lock().expect("free in the end"), THREADS);
}

#[test]
fn a_timed_waiter_gets_a_lock_that_is_released_in_time() {
    let lock = CountingMutex::new_in(());
    thread::scope(|scope| {
        let guard = lock.lock();
        scope.spawn(|| assert!(lock.try_lock_for(Duration::MAX).is_some()));
        scope.spawn(|| assert!(lock.try_lock_for(Duration::from_secs(3600)).is_some()));
        wait_for_sleepers(&lock, 2);
        drop(guard);
    });
}

#[test]
fn a_fair_unlock_hands_the_lock_to_the_sleeper() {
    let lock = CountingMutex::new_in(());
    let (release, released) = mpsc::channel();
    thread::scope(|scope| {
        let guard = lock.lock();
        let waiter = &lock;
        scope.spawn(move || {
            let _guard = waiter.lock();
            released.recv().unwrap();
        });
        wait_for_sleepers(&lock, 1);
        MutexGuard::unlock_fair(guard);
        assert!(lock.try_lock().is_none());
        assert_eq!(fairlock::mutex::events(&lock).get(Event::MutexHandoff), 1);
        release.send(()).unwrap();
    });
    assert!(!lock.is_locked());
}

#[test]
fn a_thread_that_takes_the_lock_again_and_again_cannot_keep_others_out() {
    let lock = Mutex::new(());
    let got_it = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !got_it.load(Relaxed) {
                    let _guard = lock.lock();
                    (0..100).for_each(|_| std::hint::spin_loop());
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..10 {
                drop(lock.lock());
            }
            got_it.store(true, Relaxed);
        });
    });
}

#[test]
fn a_panic_while_holding_releases_without_poison() {
    let lock = Mutex::new(1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = lock.lock();
        *guard = 2;
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(*lock.try_lock().expect("released"), 2);
}

#[test]
fn a_guard_can_own_its_lock() {
    let lock = Arc::new(Mutex::new(String::new()));
    let mut guard = lock.lock_arc();
    guard.push('x');
    assert!(lock.try_lock_arc().is_none());
    assert!(lock.try_lock_arc_for(Duration::ZERO).is_none());
    drop(guard);
    assert_eq!(*lock.lock(), "x");
}

#[test]
fn a_lock_may_be_a_static_and_may_go_to_other_threads() {
    fn shareable<T: Send + Sync>(_: &T) {}
    static LOCK: Mutex<u32> = Mutex::new(3);
    shareable(&LOCK);
    assert_eq!(*LOCK.lock(), 3);
    assert!(!LOCK.is_locked());
}

#[test]
fn an_uncontended_lock_counts_nothing() {
    let lock = CountingMutex::new_in(());
    drop(lock.lock());
    MutexGuard::unlock_fair(lock.lock());
    drop(lock.try_lock_for(Duration::from_secs(1)));
    assert!(fairlock::mutex::events(&lock).iter().all(|(_, count)| count == 0));
}
