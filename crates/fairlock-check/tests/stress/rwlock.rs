//! `RwLock` on real threads: everything at once, threads that come and go, more locks than a thread
//! has slots, guards in odd places, locks that end with their last user; and a broken platform
//! that the checker catches.

use std::cell::{Cell, RefCell};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use fairlock::events::{Event, NoCounters, Snapshot};
use fairlock::lock_api::{RwLock, RwLockReadGuard};
use fairlock::platform::{Counting, Os, Platform, Zeroed};
use fairlock::policy::{Bias, BiasPolicy, ReadMostly};
use fairlock::process::{Host, Process};
use fairlock::rwlock::RawRwLock;
use fairlock::slots::Record;
use fairlock_check::read_write;
use fairlock_check::real_threads_but;
use fairlock_check::scenario::{Number, Scenario};
use fairlock_check::threads::platforms::{Symmetric, Unseen};
use fairlock_check::threads::{
    Dice, Protected, Unprotected, assert_intact, crowd, operate, repeat, watched,
    withstands_a_mix_of_everything,
};

/// Slots from the second read on.
struct AtOnce;

impl BiasPolicy for AtOnce {
    const BIAS: Bias = Bias { reads: 0, ..Bias::READ_MOSTLY };
}

/// Changes between the ways in which readers come in as often as it can.
struct Restless;

impl BiasPolicy for Restless {
    const BIAS: Bias = Bias { reads: 0, writes: 2, reads_per_look: 1, patience: 0 };
}

type Lock<T, B = AtOnce, P = Os> = RwLock<RawRwLock<P, B>, T>;
type ReadGuard<'a, T> = RwLockReadGuard<'a, RawRwLock<Os, AtOnce>, T>;

fn events<T, B: BiasPolicy>(lock: &Lock<T, B, Counting>) -> Snapshot {
    // SAFETY: reading the counters touches neither the lock's state nor its data.
    unsafe { lock.raw() }.events()
}

/// A lock whose readers use slots from now on.
fn lock_with_slots<T>(value: T) -> Lock<T> {
    let lock = Lock::new(value);
    drop(lock.read());
    lock
}

// ---- everything at once ----

const STEPS: u64 = 1_500;

macro_rules! locks_withstand {
    ($($name:ident $policy:ty, $platform:ty, $reads:literal;)*) => {$(
        #[test]
        fn $name() {
            withstands_a_mix_of_everything::<RawRwLock<$platform, $policy>>(STEPS, $reads);
        }
    )*};
}

locks_withstand! {
    the_default_withstands_a_mix_of_everything ReadMostly, Os, 0;
    the_default_withstands_a_mix_of_mostly_reads ReadMostly, Os, 60;
    a_lock_that_changes_all_the_time_withstands_a_mix_of_everything Restless, Os, 0;
    a_lock_that_changes_all_the_time_withstands_a_mix_of_mostly_reads Restless, Os, 10;
    without_an_asymmetric_barrier_it_withstands_a_mix_of_everything AtOnce, Symmetric, 0;
    without_an_asymmetric_barrier_it_withstands_a_mix_of_mostly_reads ReadMostly, Symmetric, 60;
}

/// What Loom and the explorer see every schedule of.
fn a_few_threads<B: BiasPolicy, P: Host>(name: &str) {
    type Scenarios<P, B> = Vec<Scenario<RwLock<RawRwLock<P, B>, Unprotected>>>;
    let scenarios: [Scenarios<P, B>; 4] = [
        read_write::a_reader_and_another(),
        read_write::two_who_write(),
        read_write::three_threads_and_tries(),
        read_write::four_threads_and_tries(),
    ];
    let with_slots = || {
        let lock = RwLock::new(Unprotected::zero());
        read_write::read_twice(&lock);
        lock
    };
    let scenarios = scenarios.into_iter().flatten();
    repeat(name, scenarios.map(|scenario| scenario.beginning_with(with_slots)), 10);
}

#[test]
fn a_few_threads_however_readers_come_in() {
    a_few_threads::<AtOnce, Os>("slots at once");
    a_few_threads::<Restless, Os>("restless");
    a_few_threads::<Fenced, Os>("slots with fences");
    a_few_threads::<AtOnce, Symmetric>("without an asymmetric barrier");
}

/// Never without fences, or never with them.
struct Fenced;
struct Light;

impl BiasPolicy for Fenced {
    const BIAS: Bias = Bias { reads: 0, patience: u32::MAX, ..Bias::READ_MOSTLY };
}

impl BiasPolicy for Light {
    const BIAS: Bias = Bias { reads: 0, patience: 0, ..Bias::READ_MOSTLY };
}

/// Reads again and again past a writer that waits, until it is refused or for far too long.
fn is_refused_in_the_end<B: BiasPolicy>() {
    let lock = &Lock::<u64, B, Counting>::new(0);
    drop(lock.read());
    watched(|| {
        // Keeps writers at the semaphore, and readers by slots do not see it.
        let keeper = lock.upgradable_read();
        thread::scope(|scope| {
            scope.spawn(|| *lock.write() += 1);
            while events(lock).get(Event::SleepWriter) == 0 {
                thread::yield_now();
            }
            while lock.try_read().is_some() {}
            drop(keeper);
        });
    });
    assert_eq!(*lock.read(), 1);
}

#[test]
fn readers_in_slots_do_not_pass_a_waiting_writer_for_ever() {
    is_refused_in_the_end::<ReadMostly>();
    is_refused_in_the_end::<Fenced>();
    is_refused_in_the_end::<Light>();
}

#[test]
fn these_mixes_see_every_change_of_how_readers_come_in() {
    let restless = withstands_a_mix_of_everything::<RawRwLock<Counting, Restless>>(STEPS, 10);
    let of_restless = events(&restless);
    let default = withstands_a_mix_of_everything::<RawRwLock<Counting>>(STEPS, 60);
    let of_default = events(&default);
    for (event, times) in of_restless.iter().filter(|(event, _)| event.name().starts_with("slots"))
    {
        eprintln!("{}: {times}, by default {}", event.name(), of_default.get(event));
        let needs_barrier = matches!(event, Event::BiasBarrier | Event::BiasUnfenced);
        assert!(times > 0 || needs_barrier && !Counting::is_asymmetric(), "no {event:?}");
    }
    assert!(of_default.get(Event::BiasRevoke) > 0, "the default uses slots, too");
}

#[test]
fn the_checker_notices_readers_whom_writers_do_not_see() {
    let lock = Arc::new(Lock::<_, AtOnce, Unseen>::new(Protected::default()));
    assert!(Unseen::thread().is_some());
    crowd(|dice| {
        let step = |_| {
            lock.read().read();
            operate(&lock, dice)
        };
        (0..STEPS).map(step).sum()
    });
    assert!(lock.write().violated.load(Relaxed), "the checker counts who is inside");
}

real_threads_but! {
    /// Only one test's, which looks at what it has mapped.
    Mapping { asymmetric: false, records: own };
}

#[test]
fn what_locks_share_is_in_memory_of_the_platform_s() {
    let lock = Lock::<_, AtOnce, Mapping>::new(Protected::default());
    (0..3).for_each(|_| lock.read().glance());
    // Room for eight records, of two lines each.
    assert!(Mapping::mapped().load(Relaxed) >= 8 * 128);
    let held = lock.write();
    assert!(lock.try_read_for(Duration::from_nanos(1)).is_none());
    drop(held);
    // There are pooled queues now, too.
    assert!(Mapping::mapped().load(Relaxed) >= 8 * (128 + 64));
}

// ---- threads that come and go ----

#[test]
fn threads_that_come_and_go_are_seen_by_writers() {
    const SPAWNERS: u64 = 2;
    const LIVES: u64 = 400;
    fn check<B: BiasPolicy, P: Host>() {
        let lock = Lock::<_, B, P>::new(Protected::default());
        let spawners = AtomicU32::new(SPAWNERS as u32);
        let live = |dice: &mut Dice| {
            for _ in 0..=dice.roll(4) {
                lock.read().read();
                lock.read().glance();
            }
        };
        let writes = watched(|| {
            thread::scope(|scope| {
                for spawner in 0..SPAWNERS {
                    let (live, spawners) = (&live, &spawners);
                    scope.spawn(move || {
                        for life in (0..LIVES).step_by(2) {
                            // Two at once, so that records change hands in both orders.
                            thread::scope(|scope| {
                                for seed in [life, life + 1] {
                                    scope.spawn(move || live(&mut Dice::new(2 * seed + spawner)));
                                }
                            });
                        }
                        spawners.fetch_sub(1, Relaxed);
                    });
                }
                let writer = || {
                    let mut writes = 0;
                    while spawners.load(Relaxed) > 0 {
                        lock.write().write();
                        writes += 1;
                        thread::yield_now();
                    }
                    writes
                };
                let writers = [scope.spawn(writer), scope.spawn(writer)];
                writers.into_iter().map(|writer| writer.join().unwrap()).sum()
            })
        });
        assert_intact(&lock, writes);
    }
    check::<Restless, Os>();
    check::<AtOnce, Os>();
    check::<AtOnce, Symmetric>();
}

// ---- many locks, and one lock many times ----

#[test]
fn one_thread_reads_under_more_locks_than_it_has_slots() {
    const LOCKS: usize = 12;
    let locks: [_; LOCKS] =
        std::array::from_fn(|_| Arc::new(lock_with_slots(Protected::default())));
    let writes: [_; LOCKS] = std::array::from_fn(|_| AtomicU32::new(0));
    crowd(|dice| {
        for _ in 0..STEPS / 2 {
            if dice.roll(8) == 0 {
                let at = dice.roll(LOCKS as u64) as usize;
                writes[at].fetch_add(operate(&locks[at], dice) as u32, Relaxed);
            }
            // One thread waits for another in this order only.
            let mut guards: Vec<_> =
                locks.iter().filter(|_| dice.roll(2) == 0).map(|lock| lock.read()).collect();
            let again = locks.iter().filter(|_| dice.roll(4) == 0);
            guards.extend(again.filter_map(|lock| lock.try_read()));
            while !guards.is_empty() {
                guards.swap_remove(dice.roll(guards.len() as u64) as usize).glance();
            }
        }
        0
    });
    for (lock, writes) in locks.iter().zip(writes) {
        assert_intact(lock, writes.into_inner().into());
    }
}

#[test]
fn a_thread_reads_again_within_a_read_and_does_not_wait() {
    let lock = lock_with_slots(Protected::default());
    watched(|| {
        thread::scope(|scope| {
            let outer = lock.read();
            let again = |times| -> Vec<_> {
                (0..times).map(|_| lock.try_read().expect("nobody writes")).collect()
            };
            // First more often than it has slots.
            again(7).into_iter().for_each(|guard| guard.glance());
            let again = again(2);
            scope.spawn(|| lock.write().write());
            while !lock.is_locked_exclusive() {
                thread::yield_now();
            }
            // The writer waits for this thread, so this one must not wait for it.
            lock.try_read().inspect(|guard| guard.glance());
            again.into_iter().for_each(|guard| guard.glance());
            lock.try_read().inspect(|guard| guard.glance());
            drop(outer);
        });
    });
    assert_intact(&lock, 1);
}

// ---- guards in odd places ----

/// Keeps one lock locked until its thread's variables are destroyed, and then reads another.
struct Last {
    kept: Cell<Option<ReadGuard<'static, Protected>>>,
    other: &'static Lock<Protected>,
}

impl Drop for Last {
    fn drop(&mut self) {
        self.other.read().glance();
        self.kept.take().inspect(|kept| kept.read());
        self.other.read().read();
    }
}

#[test]
fn guards_are_taken_and_dropped_by_destructors_of_thread_local_variables() {
    thread_local! {
        // One is registered before the thread has a record and one after, so that whatever the
        // order of destruction, one of them comes after the record was given back.
        static BEFORE: RefCell<Option<Last>> = const { RefCell::new(None) };
        static AFTER: RefCell<Option<Last>> = const { RefCell::new(None) };
    }
    let kept: [&'static Lock<Protected>; 2] =
        std::array::from_fn(|_| &*Box::leak(Box::new(lock_with_slots(Protected::default()))));
    let other: &'static _ = Box::leak(Box::new(lock_with_slots(Protected::default())));
    let live = move || {
        BEFORE.set(Some(Last { kept: Cell::new(None), other }));
        let [first, second] = kept.map(|lock| lock.read());
        BEFORE.with_borrow(|last| last.as_ref().unwrap().kept.set(Some(first)));
        AFTER.set(Some(Last { kept: Cell::new(Some(second)), other }));
    };
    let ended = AtomicBool::new(false);
    let writes: Vec<u64> = watched(|| {
        thread::scope(|scope| {
            let writer = |lock: &'static Lock<Protected>| {
                let ended = &ended;
                scope.spawn(move || {
                    let mut writes = 0;
                    while !ended.load(Relaxed) {
                        lock.write().write();
                        writes += 1;
                        thread::yield_now();
                    }
                    writes
                })
            };
            let writers = [kept[0], kept[1], other].map(writer);
            for _ in 0..100 {
                let pair = [thread::spawn(live), thread::spawn(live)];
                pair.into_iter().for_each(|thread| thread.join().unwrap());
            }
            ended.store(true, Relaxed);
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        })
    });
    for (lock, writes) in [kept[0], kept[1], other].into_iter().zip(writes) {
        assert_intact(lock, writes);
    }
}

/// Readers get in, without waiting, and nobody else.
fn is_locked_shared<T>(lock: &Lock<T>) -> bool {
    lock.is_locked()
        && !lock.is_locked_exclusive()
        && lock.try_write().is_none()
        && lock.try_write_for(Duration::from_micros(100)).is_none()
        && lock.try_read().is_some()
}

fn forgets_a_guard(lock: &Lock<u32>) {
    mem::forget(lock.read());
}

#[test]
fn a_lock_whose_guard_was_forgotten_stays_locked_wherever_it_moves() {
    for here in [true, false] {
        let lock = lock_with_slots(1);
        if here {
            forgets_a_guard(&lock);
        } else {
            thread::scope(|scope| _ = scope.spawn(|| forgets_a_guard(&lock)));
        }
        assert!(is_locked_shared(&lock));
        let mut moved = Box::new(lock);
        assert!(is_locked_shared(&moved));

        // Another lock in the same place knows nothing of it.
        *moved = Lock::new(2);
        assert!(!moved.is_locked());
        thread::scope(|scope| {
            scope.spawn(|| (0..3).for_each(|_| assert_eq!(*moved.read(), 2)));
        });
        *moved.try_write().expect("a new lock is free") += 1;
        assert!(!moved.is_locked());
        assert_eq!(moved.into_inner(), 3);
    }
}

#[test]
fn slots_that_were_forgotten_are_missed_by_nobody() {
    // More than a thread has slots, and more threads than one.
    let forgotten: Vec<_> = (0..10).map(lock_with_slots).collect();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| forgotten.iter().for_each(forgets_a_guard));
        }
    });
    withstands_a_mix_of_everything::<RawRwLock<Os, Restless>>(STEPS / 4, 10);
    assert!(forgotten.iter().all(is_locked_shared));
}

// ---- the end of a lock ----

#[test]
fn the_last_guard_frees_the_lock() {
    let together = Barrier::new(3);
    for _ in 0..300 {
        let lock = Arc::new(lock_with_slots(Protected::default()));
        let end = Arc::downgrade(&lock);
        let handles = [Arc::clone(&lock), Arc::clone(&lock), lock];
        thread::scope(|scope| {
            for (thread, lock) in handles.into_iter().enumerate() {
                let together = &together;
                scope.spawn(move || {
                    together.wait();
                    if thread == 0 {
                        let guard = lock.write_arc();
                        drop(lock);
                        guard.write();
                    } else {
                        let guard = lock.read_arc();
                        drop(lock);
                        guard.glance();
                    }
                });
            }
        });
        assert!(end.upgrade().is_none());
    }
}

/// A lock in pages of its own, which are unmapped by its last user: whoever touches it then gets no
/// further.
struct Mapped {
    lock: Lock<Protected>,
    users: AtomicU32,
}

impl Mapped {
    fn new(users: u32) -> *mut Mapped {
        // SAFETY: new pages, large and aligned enough for what is written there.
        unsafe {
            let place = libc::mmap(
                ptr::null_mut(),
                size_of::<Mapped>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(place, libc::MAP_FAILED);
            let lock = lock_with_slots(Protected::default());
            place.cast::<Mapped>().write(Mapped { lock, users: AtomicU32::new(users) });
            place.cast()
        }
    }

    /// # Safety
    /// Once for each user.
    unsafe fn read_and_leave(mapped: *mut Mapped) {
        // SAFETY: the last user unmaps it, after it was alone in the lock: nobody else comes back.
        unsafe {
            let guard = (*mapped).lock.read();
            guard.glance();
            let is_last = (*mapped).users.fetch_sub(1, Relaxed) == 1;
            drop(guard);
            if is_last {
                drop((*mapped).lock.write());
                assert_eq!(libc::munmap(mapped.cast(), size_of::<Mapped>()), 0);
            }
        }
    }
}

#[test]
fn readers_do_not_touch_a_lock_that_they_have_left() {
    const USERS: u32 = 4;
    const ROUNDS: usize = 1_000;
    let locks: Vec<usize> = (0..ROUNDS).map(|_| Mapped::new(USERS).expose_provenance()).collect();
    let together = Barrier::new(USERS as usize);
    thread::scope(|scope| {
        for _ in 0..USERS {
            scope.spawn(|| {
                for &lock in &locks {
                    together.wait();
                    // SAFETY: each thread once.
                    unsafe { Mapped::read_and_leave(ptr::with_exposed_provenance_mut(lock)) };
                }
            });
        }
    });
}
