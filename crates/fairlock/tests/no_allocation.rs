//! A waiting thread never calls the program's allocator, nor does a thread that reads or writes under
//! a lock with slots: rooms and records come from the system's allocator. Nor does one that holds no
//! more ranges than it has slots for, nor a signal of a source, nor a wait for it, once it is
//! registered.
//!
//! Not where threads sleep in `parking_lot_core`, whose table grows with the number of threads.

#![cfg(any(windows, all(target_os = "linux", not(fairlock_elsewhere))))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fairlock::events::Event;
use fairlock::platform::Counting;
use fairlock::policy::{PhaseFair, Policy, ReadMostly, TimeFair};
use fairlock::range::{Extent, RangeLock, RangeWriteGuard};
use fairlock::ready::{Batch, List, RawCounter, RawEvent, RawPoll, Readiness, ReadyList, Trigger};
use fairlock::{Condvar, Mutex, RwLock, RwSem};
use fairlock_reference::ready::{RwLockList, SpinList};

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Watching;

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if WATCHED.try_with(Cell::get).unwrap_or(false) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: of this layout, as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: of this layout, as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

fn watched(wait: impl FnOnce()) {
    WATCHED.set(true);
    wait();
    WATCHED.set(false);
}

/// A reader and a writer wait for a writer until both have gone to sleep.
fn waiters_of<Pol: Policy>() {
    let lock: RwSem<(), Pol, Counting> = RwSem::with_policy(());
    let held = lock.write();
    thread::scope(|scope| {
        scope.spawn(|| watched(|| drop(lock.read())));
        scope.spawn(|| watched(|| drop(lock.write())));
        scope.spawn(|| watched(|| drop(lock.try_write_for(Duration::from_millis(1)))));
        let count = |event| fairlock::rwsem::events(&lock).get(event);
        while count(Event::SleepReader) == 0
            || count(Event::SleepWriter) == 0
            || count(Event::WlockFail) == 0
        {
            thread::yield_now();
        }
        drop(held);
    });
}

type Counted = RwLock<(), ReadMostly, Counting>;

/// Reads by slots and without, writes, and waits of both, in threads that have read before.
fn users_of_slots() {
    let locks: [Counted; 6] = std::array::from_fn(|_| Counted::with_policy(()));
    let read_all = || {
        // More than a thread has slots.
        let guards: [_; 6] = std::array::from_fn(|at| locks[at].read());
        drop(guards);
    };
    // So often that all of them use slots.
    (0..1_000).for_each(|_| read_all());
    let lock = &locks[0];
    let count = |event| fairlock::rwlock::events(lock).get(event);
    assert!(count(Event::BiasBegin) > 0);

    // A writer waits for a slot, first in vain.
    let held = lock.read();
    thread::scope(|scope| {
        scope.spawn(|| {
            read_all();
            watched(|| {
                (0..100).for_each(|_| read_all());
                assert!(lock.try_write_for(Duration::from_millis(1)).is_none());
                drop(lock.write());
            });
        });
        while count(Event::BiasRevoke) < 2 {
            thread::yield_now();
        }
        drop(held);
    });

    // A reader and a writer wait for a writer.
    let together = Barrier::new(3);
    thread::scope(|scope| {
        let waits = |wait: fn(&Counted)| {
            let (read_all, together) = (&read_all, &together);
            move || {
                read_all();
                together.wait();
                together.wait();
                watched(|| wait(lock));
            }
        };
        scope.spawn(waits(|lock| drop(lock.read())));
        scope.spawn(waits(|lock| drop(lock.write())));
        together.wait();
        let held = lock.write();
        together.wait();
        while count(Event::SleepReader) == 0 || count(Event::SleepWriter) == 0 {
            thread::yield_now();
        }
        drop(held);
    });
}

fn block(number: u64) -> Extent {
    Extent::at(number << 16, 1 << 16).expect("not that many")
}

/// Holds as many ranges as a thread has slots for, narrow and wide, of both kinds, and waits.
fn holders_of_ranges() {
    let lock = RangeLock::new();
    let above = Extent::of(100 << 16..).expect("not empty");
    watched(|| {
        let _three = (
            lock.read(block(1)),
            lock.read(above),
            RangeWriteGuard::downgrade(lock.write(block(2))),
        );
        assert!(lock.try_write(block(200)).is_none(), "in the way of the second");
        drop(lock.write(block(3)));
        let _fourth = lock.try_write(block(4)).expect("nobody else is there");
    });
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0);
    // The fifth has no slot.
    let four = [1, 2, 3, 4].map(|number| lock.read(block(number)));
    watched(|| drop(lock.read(block(5))));
    assert_eq!(ALLOCATIONS.swap(0, Ordering::Relaxed), 1);
    drop(four);

    let held = lock.write(block(0));
    thread::scope(|scope| {
        let spawn = |act: fn(&RangeLock)| {
            let lock = &lock;
            scope.spawn(move || watched(|| act(lock)))
        };
        let gives_up = spawn(|lock| {
            assert!(lock.try_write_for(block(0), Duration::from_millis(1)).is_none());
            assert!(lock.try_read_for(block(0), Duration::from_millis(1)).is_none());
        });
        gives_up.join().expect("no panic");
        spawn(|lock| {
            // It has one slot left, for all locks together.
            let other = RangeLock::new();
            let _three = [1, 2, 3].map(|number| other.write(block(number)));
            drop(lock.read(block(0)));
        });
        spawn(|lock| drop(lock.write(block(0))));
        spawn(|lock| drop(lock.write(Extent::ALL)));
        while lock.raw().waiting() < 3 {
            thread::yield_now();
        }
        drop(held);
    });
}

/// Signals of registered sources, and waits for them: of those that are there, in vain, and asleep.
fn users_of_a_poll<L: List>() {
    let (poll, outer) = (RawPoll::<L>::new(), RawPoll::<L>::new());
    let counters: [_; 8] = std::array::from_fn(|_| RawCounter::new(0));
    let event = RawEvent::new();
    for (counter, token) in counters.iter().zip(0..) {
        let trigger = if token % 2 == 0 { Trigger::Level } else { Trigger::Edge };
        poll.register(counter, token, Readiness::READABLE, trigger).expect("new");
    }
    poll.register(&event, 8, Readiness::READABLE, Trigger::Once).expect("new");
    outer.register(&poll, 0, Readiness::READABLE, Trigger::Level).expect("new");
    // A copy has room for as much.
    let mut batch = Batch::with_capacity(16).clone();
    watched(|| {
        for _ in 0..3 {
            counters.iter().for_each(|counter| _ = counter.add(1));
            event.set(Readiness::READABLE);
            assert_eq!(outer.wait(&mut batch, None), 1);
            assert_eq!(poll.wait(&mut batch, None), 9);
            counters.iter().for_each(|counter| _ = counter.read());
            event.clear(Readiness::READABLE);
            poll.modify(&event, 8, Readiness::READABLE, Trigger::Once).expect("registered");
            assert_eq!(poll.wait(&mut batch, Some(Duration::ZERO)), 0);
            assert_eq!(poll.wait(&mut batch, Some(Duration::from_millis(1))), 0);
        }
    });
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut batch = Batch::with_capacity(1);
            watched(|| _ = poll.wait(&mut batch, None));
        });
        while !waiter.is_finished() {
            thread::yield_now();
            watched(|| event.set(Readiness::READABLE));
        }
    });
}

/// Waits in vain and for a notification, and notifications.
fn users_of_a_condition_variable() {
    let (waits, changed) = (Mutex::new(false), Condvar::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            watched(|| {
                let mut waits = waits.lock();
                assert!(changed.wait_for(&mut waits, Duration::from_millis(1)).timed_out());
                *waits = true;
                changed.wait_while(&mut waits, |waits| *waits);
            });
        });
        while !*waits.lock() {
            thread::yield_now();
        }
        watched(|| {
            assert!(changed.notify_one(), "in vain, as nothing has changed");
            *waits.lock() = false;
            changed.notify_all();
        });
    });
}

#[test]
fn a_thread_that_waits_or_reads_in_a_slot_allocates_nothing() {
    // The watch itself works.
    watched(|| drop(std::hint::black_box(Box::new(1))));
    assert_eq!(ALLOCATIONS.swap(0, Ordering::Relaxed), 1);

    waiters_of::<TimeFair>();
    waiters_of::<PhaseFair>();
    users_of_slots();
    holders_of_ranges();
    users_of_a_poll::<ReadyList>();
    users_of_a_poll::<RwLockList>();
    users_of_a_poll::<SpinList>();
    let mutex = Mutex::new(());
    let held = mutex.lock();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| watched(|| drop(mutex.try_lock_for(Duration::from_millis(5)))));
        waiter.join().expect("it does not panic");
    });
    drop(held);
    users_of_a_condition_variable();
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0);
}
