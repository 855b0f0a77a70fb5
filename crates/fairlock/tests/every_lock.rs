//! Every lock in a few hundred steps of three threads: little enough for Miri, which looks at each access to memory,
//! under many seeds (`.ci/miri`). There is no `unsafe` here but to release what was forgotten, so what Miri complains of
//! is the locks'. What the locks promise is tested elsewhere, with more threads.

use std::cell::{Cell, RefCell};
use std::mem::{forget, replace};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::TrySendError;
use std::thread;
use std::time::Duration;

use fairlock::platform::Os;
use fairlock::policy::{PhaseFair, Policy, TimeFair};
use fairlock::range::{Extent, RangeLock};
use fairlock::ready::{Batch, Counter, Poll, Readiness, Timer, Trigger, channel};
use fairlock::{
    ArcMutexGuard, ArcRwLockWriteGuard, Condvar, MappedRwLockWriteGuard, Mutex, MutexGuard,
    RangeVec, ReentrantMutex, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
    RwSem, RwSemUpgradableReadGuard, RwSemWriteGuard,
};

const THREADS: usize = 3;
const SOON: Duration = Duration::from_millis(1);

/// Runs `act` in each of the threads, which it gets the number of.
fn in_threads(act: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let act = &act;
            scope.spawn(move || act(thread));
        }
    });
}

/// Two numbers that are equal unless somebody writes, in memory of their own.
type Pair = Box<(usize, usize)>;

fn check(pair: &Pair) -> usize {
    assert_eq!(pair.0, pair.1);
    pair.0
}

fn increment(pair: &mut Pair) {
    let next = check(pair) + 1;
    // Elsewhere in memory: whoever still reads the old numbers reads what is freed.
    drop(replace(pair, Box::new((next, next))));
}

#[test]
fn readers_in_slots_and_a_writer() {
    for _ in 0..3 {
        let lock = RwLock::new(Pair::default());
        // So many reads without a write that the next ones use slots.
        (0..150).for_each(|_| _ = check(&lock.read()));
        in_threads(|thread| match thread {
            0 => increment(&mut lock.write()),
            _ => (0..5).for_each(|_| _ = check(&lock.read())),
        });
        assert_eq!(check(&lock.into_inner()), 1);
    }
}

#[test]
fn an_rw_lock_in_all_modes() {
    let lock = RwLock::new(Pair::default());
    in_threads(|thread| {
        for round in 0..8 {
            match (round + thread) % 4 {
                0 => {
                    let mut pair = lock.write();
                    increment(&mut pair);
                    check(&RwLockWriteGuard::downgrade(pair));
                }
                1 => {
                    let pair = lock.upgradable_read();
                    let before = check(&pair);
                    let mut pair = RwLockUpgradableReadGuard::upgrade(pair);
                    assert_eq!(check(&pair), before);
                    increment(&mut pair);
                    check(&RwLockWriteGuard::downgrade_to_upgradable(pair));
                }
                2 => {
                    let mut pair = lock.read();
                    RwLockReadGuard::unlocked(&mut pair, || increment(&mut lock.write()));
                    check(&pair);
                    RwLockReadGuard::bump(&mut pair);
                    RwLockReadGuard::unlock_fair(pair);
                }
                _ => {
                    if let Some(pair) = lock.try_read_for(SOON) {
                        check(&pair);
                    }
                    if let Some(mut pair) = lock.try_write_for(SOON) {
                        increment(&mut pair);
                    }
                }
            }
        }
    });
    check(&lock.read());
}

fn rw_sem<Pol: Policy>() {
    let lock: RwSem<Pair, Pol, Os> = RwSem::with_policy(Pair::default());
    in_threads(|thread| {
        for round in 0..6 {
            increment(&mut lock.write());
            check(&lock.read());
            match (round + thread) % 3 {
                0 => {
                    let mut pair = RwSemUpgradableReadGuard::upgrade(lock.upgradable_read());
                    increment(&mut pair);
                    check(&RwSemWriteGuard::downgrade(pair));
                }
                1 => _ = lock.try_write_for(SOON).map(|mut pair| increment(&mut pair)),
                _ => _ = lock.try_read_for(SOON).map(|pair| check(&pair)),
            }
        }
    });
    assert!(check(&lock.into_inner()) >= 8 * THREADS);
}

#[test]
fn an_rw_sem() {
    rw_sem::<TimeFair>();
    rw_sem::<PhaseFair>();
}

#[test]
fn a_lock_that_is_freed_right_after_its_last_unlock() {
    for _ in 0..4 {
        let lock: Arc<RwSem<Pair, TimeFair, Os>> = Arc::new(RwSem::with_policy(Pair::default()));
        let mutex = Arc::new(Mutex::new(Pair::default()));
        let threads = [(); THREADS].map(|()| {
            let (lock, mutex) = (lock.clone(), mutex.clone());
            thread::spawn(move || {
                increment(&mut lock.write());
                check(&lock.read());
                increment(&mut mutex.lock());
            })
        });
        drop((lock, mutex));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn a_mutex_and_a_condition() {
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    in_threads(|thread| {
        for _ in 0..5 {
            let mut turn = turn.lock();
            changed.wait_while(&mut turn, |turn| *turn % THREADS != thread);
            *turn += 1;
            changed.notify_all();
        }
        let mut turn = turn.lock();
        assert!(changed.wait_for(&mut turn, SOON).timed_out() || *turn > 0);
        changed.notify_one();
    });
    assert_eq!(turn.into_inner(), 5 * THREADS);
}

#[test]
fn a_reentrant_mutex() {
    let lock = ReentrantMutex::new(RefCell::new(Pair::default()));
    in_threads(|_| {
        for _ in 0..10 {
            let outer = lock.lock();
            increment(&mut lock.lock().borrow_mut());
            check(&outer.borrow());
        }
    });
    assert_eq!(check(&lock.into_inner().into_inner()), 10 * THREADS);
}

#[test]
fn ranges() {
    let cells = RangeVec::from(vec![Pair::default(); 12]);
    in_threads(|thread| {
        for round in 0..8 {
            let first = (round * 5 + thread * 3) % 9;
            match round % 4 {
                0 => cells.read(first..first + 4).unwrap().iter().for_each(|pair| _ = check(pair)),
                1 => {
                    if let Some(mut part) = cells.try_write(first..first + 4).unwrap() {
                        part.iter_mut().for_each(increment);
                    }
                }
                _ => cells.write(first..first + 3).unwrap().iter_mut().for_each(increment),
            }
        }
    });
    let lock = RangeLock::new();
    in_threads(|thread| {
        for round in 0..8 {
            let extent = Extent::at((round * thread as u64) % 5, 3).unwrap();
            match round % 3 {
                0 => drop(lock.read(extent)),
                1 => drop(lock.write(extent)),
                _ => drop(lock.try_write_for(extent, SOON)),
            }
        }
    });
}

#[test]
fn a_poll_and_its_sources() {
    const ROUNDS: usize = 10;
    let (poll, counter, timer) = (Poll::new(), Arc::new(Counter::new(0)), Timer::new());
    let (sender, mut receiver) = channel(4);
    poll.register(&*counter, 1, Readiness::READABLE, Trigger::Edge).unwrap();
    poll.register(&receiver, 2, Readiness::READABLE, Trigger::Level).unwrap();
    poll.register(&timer, 3, Readiness::READABLE, Trigger::Level).unwrap();
    timer.set_after(SOON);
    let (mut counted, mut received, mut ticks) = (0, 0, 0);
    thread::scope(|scope| {
        for _ in 1..THREADS {
            let (sender, counter) = (sender.clone(), &counter);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    counter.add(1);
                    let mut message = Box::new(round);
                    while let Err(TrySendError::Full(refused)) = sender.try_send(message) {
                        message = refused;
                        thread::yield_now();
                    }
                }
            });
        }
        let mut batch = Batch::with_capacity(4);
        let all = (THREADS - 1) * ROUNDS;
        while counted < all as u64 || received < all || ticks == 0 {
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

#[test]
fn parts_of_data_and_guards_that_own_their_lock() {
    let lock = Arc::new(RwLock::new((Pair::default(), vec![1_u8, 2])));
    let mutex = Arc::new(Mutex::new(Pair::default()));
    in_threads(|_| {
        for _ in 0..4 {
            let mut part = RwLockWriteGuard::map(lock.write(), |it| &mut it.0);
            increment(&mut part);
            MappedRwLockWriteGuard::unlock_fair(part);
            let part = RwLockReadGuard::map(lock.read(), |it| &it.1[..]);
            assert_eq!(*part, [1, 2]);
            drop(part);
            let mut owned = lock.write_arc();
            increment(&mut owned.0);
            check(&ArcRwLockWriteGuard::downgrade(owned).0);
            let mut owned = mutex.lock_arc();
            ArcMutexGuard::unlocked(&mut owned, || increment(&mut mutex.lock()));
            increment(&mut owned);
            drop(owned);
            let mut number = MutexGuard::map(mutex.lock(), |pair| &mut pair.0);
            *number += 1;
            *number -= 1;
        }
    });
    assert_eq!(check(&lock.read().0), 8 * THREADS);
    assert_eq!(check(&mutex.lock()), 8 * THREADS);
}

#[test]
fn guards_that_were_forgotten_and_sections_that_panicked() {
    let (lock, mutex) = (RwLock::new(Pair::default()), Mutex::new(Pair::default()));
    in_threads(|_| {
        for _ in 0..4 {
            forget(lock.read());
            // SAFETY: the read was forgotten above.
            let pair = unsafe { lock.make_read_guard_unchecked() };
            check(&pair);
            drop(pair);
            increment(&mut lock.write());
            forget(lock.write());
            // SAFETY: the write was forgotten above.
            unsafe { lock.force_unlock_write() };
            forget(mutex.lock());
            // SAFETY: forgotten above.
            unsafe { mutex.force_unlock_fair() };
        }
        catch_unwind(AssertUnwindSafe(|| {
            let _held = (lock.write(), mutex.lock());
            std::panic::resume_unwind(Box::new("in a section"));
        }))
        .unwrap_err();
    });
    assert_eq!(check(&lock.into_inner()), 4 * THREADS);
}

#[test]
fn destructors_of_thread_local_variables() {
    static LOCK: RwLock<Option<Pair>> = RwLock::new(None);
    static SEM: RwSem<usize> = RwSem::new(0);
    static LOG: ReentrantMutex<Cell<usize>> = ReentrantMutex::new(Cell::new(0));
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            increment(LOCK.write().get_or_insert_default());
            check(LOCK.read().as_ref().unwrap());
            *SEM.write() += 1;
            let log = LOG.lock();
            log.set(log.get() + 1);
        }
    }
    thread_local! {
        static BEFORE: Late = const { Late };
        static AFTER: Late = const { Late };
    }
    in_threads(|thread| {
        BEFORE.with(|_| ());
        if thread > 0 {
            drop((LOCK.read(), LOG.lock()));
        }
        AFTER.with(|_| ());
    });
    // A scope does not wait for destructors.
    while *SEM.read() < 2 * THREADS || LOG.lock().get() < 2 * THREADS {
        thread::yield_now();
    }
    assert_eq!(check(&LOCK.write().take().unwrap()), 2 * THREADS);
}

#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
#[test]
fn a_lock_for_memory_that_processes_share() {
    use fairlock::process_shared::ProcessSharedRwLock;
    use fairlock::unguarded::UnguardedRwLock;

    struct Shared(ProcessSharedRwLock, std::cell::UnsafeCell<Pair>);
    // SAFETY: the pair is accessed under the lock alone.
    unsafe impl Sync for Shared {}
    let shared = Shared(ProcessSharedRwLock::NEW, Pair::default().into());
    in_threads(|_| {
        let Shared(lock, pair) = &shared;
        for _ in 0..6 {
            lock.write(None).unwrap();
            // SAFETY: under the lock.
            increment(unsafe { &mut *pair.get() });
            // SAFETY: acquired above.
            unsafe { lock.unlock_write() };
            lock.read(None, false).unwrap();
            // SAFETY: under the lock, which this thread holds.
            check(unsafe { &*pair.get() });
            // SAFETY: acquired above.
            unsafe { lock.unlock_read() };
        }
    });
    assert_eq!(check(&shared.1.into_inner()), 6 * THREADS);
}
