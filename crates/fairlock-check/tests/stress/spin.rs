//! The spin locks on real threads: no update of what they protect is lost, and nobody sees half of
//! one. Rounds are few: where threads outnumber the CPUs, a lock that hands itself to a thread
//! which does not run waits for the scheduler.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::lock_api::{Mutex, RawMutex, RawRwLock, RwLock};
use fairlock::platform::Os;
use fairlock_reference::spin::{RawClh, RawMcs, RawQueuedRwLock, RawTas, RawTicket, RawTtas};

/// Threads, and rounds of each.
const CROWDS: [(u64, u64); 2] = [(2, 3_000), (4, 60)];

/// Where threads outnumber the CPUs by far, each handover takes a time slice.
const LONG_ENOUGH: Duration = Duration::from_secs(2);

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

fn crowd(threads: u64, body: impl Fn(u64) + Sync) {
    thread::scope(|scope| {
        let body = &body;
        (0..threads).for_each(|thread| drop(scope.spawn(move || body(thread))));
    });
}

fn excludes<R: RawMutex + Send + Sync>() {
    for (threads, rounds) in CROWDS {
        let lock = Mutex::<R, _>::new(Pair::default());
        let entered = AtomicU64::new(0);
        let ends = Instant::now() + LONG_ENOUGH;
        crowd(threads, |thread| {
            for round in (0..rounds).take_while(|_| Instant::now() < ends) {
                let guard =
                    if (round + thread) % 4 == 0 { lock.try_lock() } else { Some(lock.lock()) };
                if let Some(mut pair) = guard {
                    pair.add();
                    entered.fetch_add(1, Relaxed);
                }
            }
        });
        assert!(!lock.is_locked());
        let pair = lock.try_lock().expect("free in the end");
        assert_eq!((pair.0, pair.1), (entered.load(Relaxed), entered.load(Relaxed)));
    }
}

macro_rules! all_exclude {
    ($($name:ident $raw:ident;)*) => {$(
        #[test]
        fn $name() {
            excludes::<$raw<Os>>();
        }
    )*};
}

all_exclude! {
    test_and_set_excludes RawTas;
    test_and_test_and_set_excludes RawTtas;
    tickets_exclude RawTicket;
    mcs_excludes RawMcs;
    clh_excludes RawClh;
}

#[test]
fn writers_of_the_queued_rwlock_are_alone_and_readers_see_whole_updates() {
    for (threads, rounds) in CROWDS {
        let lock = RwLock::<RawQueuedRwLock<Os>, _>::new(Pair::default());
        let entered = AtomicU64::new(0);
        let ends = Instant::now() + LONG_ENOUGH;
        crowd(threads, |thread| {
            for round in (0..rounds).take_while(|_| Instant::now() < ends) {
                let writer = match (round + thread) % 8 {
                    0..4 => {
                        lock.read().check();
                        None
                    }
                    4 | 5 => {
                        lock.try_read().inspect(|pair| pair.check());
                        None
                    }
                    6 => Some(lock.write()),
                    _ => lock.try_write(),
                };
                if let Some(mut pair) = writer {
                    pair.add();
                    entered.fetch_add(1, Relaxed);
                }
            }
        });
        assert!(!lock.is_locked());
        let pair = lock.try_write().expect("free in the end");
        assert_eq!((pair.0, pair.1), (entered.load(Relaxed), entered.load(Relaxed)));
    }
}

#[test]
fn they_may_be_statics_and_their_raw_locks_may_go_to_other_threads() {
    static TICKET: fairlock_reference::spin::TicketLock<u32> =
        fairlock_reference::spin::TicketLock::new(1);
    static QUEUED: fairlock_reference::spin::QueuedRwLock<u32> =
        fairlock_reference::spin::QueuedRwLock::new(2);
    fn shareable<R: Send + Sync>(_: R) {}
    shareable(RawTas::<Os>::INIT);
    shareable(RawTtas::<Os>::INIT);
    shareable(RawTicket::<Os>::INIT);
    shareable(RawMcs::<Os>::INIT);
    shareable(RawClh::<Os>::INIT);
    shareable(RawQueuedRwLock::<Os>::INIT);
    assert_eq!(*TICKET.lock() + *QUEUED.read(), 3);
}
