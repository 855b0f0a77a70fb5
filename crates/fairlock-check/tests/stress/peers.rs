//! glibc's locks, those of Rust's standard library and parking_lot's, as `fairlock-reference` has them, on real threads:
//! writers are alone, readers see whole updates, and everybody comes back. And what they answer and whom they let in next is
//! what the originals do.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use fairlock::lock_api::{Mutex, RawMutex, RawRwLock, RwLock};
use fairlock_check::threads::watched;
use fairlock_check::{mutex, read_write, threads};
use fairlock_reference::parking_lot::mutex::RawParkingLotMutex;
use fairlock_reference::parking_lot::rwlock::RawParkingLotRwLock;
use fairlock_reference::parking_lot::{V0_12, V0_13};
use fairlock_reference::pthread::mutex::{Adaptive, Normal, RawPthreadMutex};
use fairlock_reference::pthread::rwlock::{
    PreferReader, PreferWriter, PreferWriterNonrecursive, RawPthreadRwLock,
};
use fairlock_reference::rust_std::mutex::RawStdMutex;
use fairlock_reference::rust_std::rwlock::RawStdRwLock;

/// Threads, and rounds of each.
const CROWDS: [(u64, u64); 3] = [(2, 10_000), (4, 3_000), (12, 500)];

/// How often each scenario of a few threads is run.
const TIMES: u32 = 200;

/// Two numbers, not atomic, that are equal whenever nobody is writing.
#[derive(Default)]
struct Pair(u64, u64);

impl Pair {
    fn add(&mut self) {
        self.check();
        self.0 += 1;
        (0..10).for_each(|_| core::hint::spin_loop());
        self.1 += 1;
    }

    fn check(&self) {
        let first = core::hint::black_box(self).0;
        (0..10).for_each(|_| core::hint::spin_loop());
        assert_eq!(first, core::hint::black_box(self).1, "somebody writes");
    }
}

/// Each thread takes its rounds, which answer how often the pair was added to.
fn crowd(threads: u64, rounds: u64, round: impl Fn(u64) -> u64 + Sync) -> u64 {
    let added = AtomicU64::new(0);
    watched(|| {
        thread::scope(|scope| {
            for thread in 0..threads {
                let (added, round) = (&added, &round);
                scope.spawn(move || {
                    let sum = (0..rounds).map(|number| round(number + thread)).sum();
                    added.fetch_add(sum, Relaxed);
                });
            }
        });
    });
    added.into_inner()
}

fn rwlock_excludes<R: RawRwLock + Send + Sync + 'static>() {
    let scenarios = [read_write::two_basic(), read_write::three_basic()].concat();
    threads::repeat::<RwLock<R, threads::Unprotected>>("rwlock", scenarios, TIMES);
    for (threads, rounds) in CROWDS {
        let lock = RwLock::<R, _>::new(Pair::default());
        let added = crowd(threads, rounds, |round| {
            let writer = match round % 8 {
                0..3 => {
                    lock.read().check();
                    None
                }
                3 => {
                    lock.try_read().inspect(|pair| pair.check());
                    None
                }
                4 => {
                    // Whoever comes meanwhile has to sleep.
                    let pair = lock.read();
                    thread::yield_now();
                    pair.check();
                    None
                }
                5 | 6 => Some(lock.write()),
                _ => lock.try_write(),
            };
            writer.map_or(0, |mut pair| {
                pair.add();
                1
            })
        });
        assert!(!lock.is_locked());
        let pair = lock.try_write().expect("free in the end");
        assert_eq!((pair.0, pair.1), (added, added));
    }
}

fn mutex_excludes<R: RawMutex + Send + Sync + 'static>() {
    let scenarios = [mutex::two_basic(), vec![mutex::three(), mutex::four_plain()]].concat();
    threads::repeat::<Mutex<R, threads::Unprotected>>("mutex", scenarios, TIMES);
    for (threads, rounds) in CROWDS {
        let lock = Mutex::<R, _>::new(Pair::default());
        let added = crowd(threads, rounds, |round| {
            let mut pair = lock.lock();
            if round % 8 == 0 {
                thread::yield_now();
            }
            pair.add();
            1
        });
        let pair = lock.try_lock().expect("free in the end");
        assert_eq!((pair.0, pair.1), (added, added));
    }
}

#[test]
fn the_rwlocks_of_glibc_exclude() {
    rwlock_excludes::<RawPthreadRwLock<PreferReader>>();
    rwlock_excludes::<RawPthreadRwLock<PreferWriter>>();
    rwlock_excludes::<RawPthreadRwLock<PreferWriterNonrecursive>>();
}

#[test]
fn the_rwlock_of_the_standard_library_excludes() {
    rwlock_excludes::<RawStdRwLock>();
}

#[test]
fn the_rwlock_of_parking_lot_excludes() {
    rwlock_excludes::<RawParkingLotRwLock<V0_12>>();
    rwlock_excludes::<RawParkingLotRwLock<V0_13>>();
}

#[test]
fn the_mutexes_exclude() {
    mutex_excludes::<RawPthreadMutex<Normal>>();
    mutex_excludes::<RawPthreadMutex<Adaptive>>();
    mutex_excludes::<RawStdMutex>();
    mutex_excludes::<RawParkingLotMutex<V0_12>>();
    mutex_excludes::<RawParkingLotMutex<V0_13>>();
}
