//! A correct program that uses every lock, for checkers of races; with the argument `race`, one that has a race.
//! [The book](../../../docs/src/use/checkers.md) says how to run it.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fairlock::ready::{Batch, Counter, Poll, Readiness, Timer, Trigger, channel};
use fairlock::{Mutex, RangeVec, RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard, RwSem};

const THREADS: usize = 3;
const ROUNDS: usize = 2000;

fn main() {
    if std::env::args().nth(1).is_some_and(|argument| argument == "race") {
        return race();
    }
    read_mostly();
    read_and_write();
    exclude();
    lock_ranges();
    wait_for_sources();
    println!("done");
}

/// Long times in which everybody reads, so that readers use slots and then no fences; each ends with a write.
fn read_mostly() {
    let lock = RwLock::new((0_u64, 0_u64));
    for _ in 0..10 {
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..10 * ROUNDS {
                        let pair = lock.read();
                        assert_eq!(pair.0, pair.1);
                    }
                    let mut pair = lock.write();
                    pair.0 += 1;
                    pair.1 += 1;
                });
            }
        });
    }
}

/// Readers and writers that come by turns.
fn read_and_write() {
    let (lock, sem) = (RwLock::new((0_u64, 0_u64)), RwSem::new((0_u64, 0_u64)));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    for _ in 0..20 {
                        let pair = lock.read();
                        assert_eq!(pair.0, pair.1);
                    }
                    if round % 10 == 0 {
                        let mut pair = lock.write();
                        pair.0 += 1;
                        pair.1 += 1;
                        let pair = RwLockWriteGuard::downgrade(pair);
                        assert_eq!(pair.0, pair.1);
                    }
                    if round % 100 == 50 {
                        let pair = lock.upgradable_read();
                        let before = pair.0;
                        let mut pair = RwLockUpgradableReadGuard::upgrade(pair);
                        assert_eq!(pair.0, before);
                        *pair = (before + 1, before + 1);
                    }
                    let mut pair = sem.write();
                    pair.0 += 1;
                    pair.1 += 1;
                    drop(pair);
                    let pair = sem.read();
                    assert_eq!(pair.0, pair.1);
                }
            });
        }
    });
    assert_eq!(sem.read().0 as usize, THREADS * ROUNDS);
}

fn exclude() {
    let mutex = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..ROUNDS).for_each(|_| *mutex.lock() += 1));
        }
    });
    assert_eq!(*mutex.lock(), THREADS * ROUNDS);
}

fn lock_ranges() {
    let cells = RangeVec::from(vec![0_u64; 64]);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let cells = &cells;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let first = (round * 7 + thread * 13) % 56;
                    let range = first..first + 8;
                    match round % 4 {
                        0 => {
                            assert!(cells.read(range).unwrap().iter().all(|cell| *cell < u64::MAX))
                        }
                        _ => cells.write(range).unwrap().iter_mut().for_each(|cell| *cell += 1),
                    }
                }
            });
        }
    });
}

fn wait_for_sources() {
    let (poll, counter, timer) = (Poll::new(), Arc::new(Counter::new(0)), Timer::new());
    let (sender, mut receiver) = channel(8);
    poll.register(&*counter, 1, Readiness::READABLE, Trigger::Edge).unwrap();
    poll.register(&receiver, 2, Readiness::READABLE, Trigger::Level).unwrap();
    poll.register(&timer, 3, Readiness::READABLE, Trigger::Level).unwrap();
    timer.set_after(Duration::from_millis(1));
    let (mut counted, mut received, mut ticks) = (0, 0, 0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (sender, counter) = (sender.clone(), &counter);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    counter.add(1);
                    let mut message = Box::new(round);
                    while let Err(refused) = sender.try_send(message) {
                        message = match refused {
                            std::sync::mpsc::TrySendError::Full(message) => message,
                            other => panic!("{other:?}"),
                        };
                        thread::yield_now();
                    }
                }
            });
        }
        let mut batch = Batch::with_capacity(8);
        while counted < (THREADS * ROUNDS) as u64 || received < THREADS * ROUNDS || ticks == 0 {
            poll.wait(&mut batch, None);
            for ready in &batch {
                match ready.token {
                    1 => counted += counter.read().unwrap_or(0),
                    2 => received += usize::from(receiver.try_recv().is_ok()),
                    _ => ticks += timer.read().unwrap_or(0),
                }
            }
        }
    });
}

/// Two threads write the same variable, each under a lock of its own.
fn race() {
    struct Shared(UnsafeCell<u64>);
    // SAFETY: not sound, on purpose: this is the race that checkers have to find.
    unsafe impl Sync for Shared {}
    impl Shared {
        fn increment(&self) {
            // SAFETY: as above.
            unsafe { *self.0.get() += 1 };
        }
    }
    let shared = Shared(UnsafeCell::new(0));
    let locks = [RwLock::new(()), RwLock::new(())];
    thread::scope(|scope| {
        for lock in &locks {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let _held = lock.write();
                    shared.increment();
                }
            });
        }
    });
    println!("done");
}
