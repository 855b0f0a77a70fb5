//! The kernel's own rwsem and mutex on real threads: writers are alone, readers see whole updates, and everybody
//! comes back. Nothing is known of the scheduler there, so a spin lasts until it comes round to the thread that is waited for;
//! here it is asked to, now and then.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread;

use fairlock::events::NoCounters;
use fairlock::lock_api::{Mutex, RawRwLock, RwLock};
use fairlock::platform::{Os, Platform, Zeroed};
use fairlock::process::Process;
use fairlock::slots::Record;
use fairlock_check::real_threads_but;
use fairlock_reference::kernel::UserSpace;
use fairlock_reference::kernel::mutex::RawKernelMutex;
use fairlock_reference::kernel::rwsem::{
    Linux5_1, Linux5_2, Linux5_11, NoReaderSteal, RawKernelRwSem,
};
use fairlock_reference::kernel::xadd_rwsem::{Linux3_10, Linux3_10Both, Linux3_16, RawXaddRwSem};

real_threads_but! {
    /// Spins give way to other threads.
    Yielding { asymmetric: Os::is_asymmetric(), records: own, relax: relax };
}

fn relax(until: Option<u64>) -> bool {
    if Os::turn() % 64 == 0 {
        thread::yield_now();
    }
    Os::relax(until)
}

/// Threads, and rounds of each.
const CROWDS: [(u64, u64); 3] = [(2, 3_000), (4, 400), (12, 40)];

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

fn excludes<R: RawRwLock + Send + Sync>() {
    for (threads, rounds) in CROWDS {
        let lock = RwLock::<R, _>::new(Pair::default());
        let entered = AtomicU64::new(0);
        let work = |thread| {
            for round in 0..rounds {
                let writer = match (round + thread) % 8 {
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
                if let Some(mut pair) = writer {
                    pair.add();
                    entered.fetch_add(1, Relaxed);
                }
            }
        };
        thread::scope(|scope| {
            let work = &work;
            (0..threads).for_each(|thread| drop(scope.spawn(move || work(thread))));
        });
        assert!(!lock.is_locked());
        let pair = lock.try_write().expect("free in the end");
        assert_eq!((pair.0, pair.1), (entered.load(Relaxed), entered.load(Relaxed)));
    }
}

/// The same among threads that only lock.
fn mutex_excludes() {
    for (threads, rounds) in CROWDS {
        let lock = Mutex::<RawKernelMutex<UserSpace<Yielding>>, _>::new(Pair::default());
        let work = || {
            for round in 0..rounds {
                let mut pair = lock.lock();
                if round % 8 == 0 {
                    thread::yield_now();
                }
                pair.add();
            }
        };
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        let pair = lock.try_lock().expect("free in the end");
        assert_eq!((pair.0, pair.1), (threads * rounds, threads * rounds));
    }
}

#[test]
fn linux_3_10_excludes() {
    excludes::<RawXaddRwSem<Linux3_10, UserSpace<Yielding>>>();
}

#[test]
fn linux_3_10_with_both_attempts_excludes() {
    excludes::<RawXaddRwSem<Linux3_10Both, UserSpace<Yielding>>>();
}

#[test]
fn linux_3_16_excludes() {
    excludes::<RawXaddRwSem<Linux3_16, UserSpace<Yielding>>>();
}

#[test]
fn the_mutex_of_linux_3_10_excludes() {
    mutex_excludes();
}

#[test]
fn linux_5_1_excludes() {
    excludes::<RawKernelRwSem<Linux5_1, UserSpace<Yielding>>>();
}

#[test]
fn linux_5_2_excludes() {
    excludes::<RawKernelRwSem<Linux5_2, UserSpace<Yielding>>>();
}

#[test]
fn linux_5_11_excludes() {
    excludes::<RawKernelRwSem<Linux5_11, UserSpace<Yielding>>>();
}

#[test]
fn no_reader_steal_excludes() {
    excludes::<RawKernelRwSem<NoReaderSteal, UserSpace<Yielding>>>();
}
