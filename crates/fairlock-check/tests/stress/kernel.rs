//! The kernel's own rwsem on real threads: writers are alone, readers see whole updates, and everybody
//! comes back. Rounds are few: nothing is known of the scheduler there, so a spin lasts until it comes round to the
//! thread that is waited for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use fairlock::lock_api::RwLock;
use fairlock_reference::kernel::UserSpace;
use fairlock_reference::kernel::rwsem::{
    Linux5_1, Linux5_2, Linux5_11, NoReaderSteal, RawKernelRwSem, Version,
};

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

fn excludes<V: Version>() {
    for (threads, rounds) in CROWDS {
        let lock = RwLock::<RawKernelRwSem<V, UserSpace>, _>::new(Pair::default());
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

#[test]
fn linux_5_1_excludes() {
    excludes::<Linux5_1>();
}

#[test]
fn linux_5_2_excludes() {
    excludes::<Linux5_2>();
}

#[test]
fn linux_5_11_excludes() {
    excludes::<Linux5_11>();
}

#[test]
fn no_reader_steal_excludes() {
    excludes::<NoReaderSteal>();
}
