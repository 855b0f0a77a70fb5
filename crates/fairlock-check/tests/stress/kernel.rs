//! Linux's rwsem and mutex on real threads, in the kernel's form and in that for user space: writers are alone, readers see whole updates, and everybody
//! comes back. In the kernel's form nothing is known of the scheduler there, so a spin lasts until it comes round to the thread that is waited for;
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
use fairlock_reference::linux::{
    self, HasTable, ImmediateHandoff, InTable, Linux5_3, RawLinuxRwSem, Table,
};

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

#[test]
fn the_locks_for_user_space_exclude() {
    excludes::<RawLinuxRwSem<linux::Linux3_10>>();
    excludes::<RawLinuxRwSem<linux::Linux3_10Spin>>();
    excludes::<RawLinuxRwSem<linux::Linux3_16>>();
    excludes::<RawLinuxRwSem<linux::Linux5_1>>();
    excludes::<RawLinuxRwSem<linux::Linux5_2>>();
    excludes::<RawLinuxRwSem<Linux5_3>>();
    excludes::<RawLinuxRwSem<linux::Linux5_11>>();
    excludes::<RawLinuxRwSem<linux::NoReaderSteal>>();
    excludes::<RawLinuxRwSem<ImmediateHandoff>>();
    excludes::<RawLinuxRwSem<linux::Linux5_11, Os, InTable<Waiting>>>();
    excludes::<RawLinuxRwSem<linux::Linux3_10, Os, InTable<Waiting>>>();
}

/// Those that wait for locks of Linux's.
struct Waiting;

impl HasTable<Os> for Waiting {
    fn table() -> &'static Table<Os> {
        static TABLE: Table<Os> = Table::NEW;
        &TABLE
    }
}

/// Each lock goes while the thread that has released it before may still be on its way out.
#[test]
fn a_lock_whose_waiters_are_in_a_table_can_be_freed_by_its_last_user() {
    type Lock = RwLock<RawLinuxRwSem<linux::Linux5_11, Os, InTable<Waiting>>, u64>;
    const THREADS: u64 = 4;
    let locks: Vec<AtomicPtr<Lock>> =
        (0..1_000).map(|_| AtomicPtr::new(Box::into_raw(Box::new(Lock::new(0))))).collect();
    let work = || {
        for lock in &locks {
            let pointer = lock.load(Relaxed);
            // SAFETY: freed by the last of `THREADS` users only, each of whom is here once.
            let mut users = unsafe { (*pointer).write() };
            *users += 1;
            let is_last = *users == THREADS;
            (0..100).for_each(|_| core::hint::spin_loop());
            drop(users);
            if is_last {
                // SAFETY: all others have released it, and it is freed once.
                drop(unsafe { Box::from_raw(pointer) });
            }
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
}
