//! The locks behind lock_api 0.4, whose guards remember nothing: each release finds out how the thread holds the lock.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::lock_api_04::{
    Mutex, RawRwLock, RawRwLockUpgradeTimed, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard,
    RwLockWriteGuard,
};

const SOON: Duration = Duration::from_millis(1);

/// The default locks, whose names need no policy and no platform.
type Biased<T> = RwLock<fairlock::rwlock::RawRwLock, T>;
type Sem<T> = RwLock<fairlock::rwsem::RawRwSem, T>;
type Exclusive<T> = Mutex<fairlock::mutex::RawMutex, T>;

/// By the semaphore, and then by slots where there are any.
fn read_often<R: RawRwLock, T>(lock: &RwLock<R, T>) {
    (0..300).for_each(|_| drop(lock.read()));
}

fn is_free<R: RawRwLock, T>(lock: &RwLock<R, T>) -> bool {
    !lock.is_locked() && lock.try_write().is_some()
}

fn reads_within_reads_end_one_by_one<R>()
where
    R: RawRwLock + fairlock::lock_api_04::RawRwLockRecursive,
{
    let lock = RwLock::<R, _>::new(1);
    for _ in 0..2 {
        let outer = lock.read();
        let inner = lock.read_recursive();
        assert_eq!(lock.try_read_recursive().map(|it| *it), Some(1));
        drop(outer);
        assert!(lock.try_write().is_none(), "the inner one is still there");
        drop(inner);
        assert!(is_free(&lock));
        read_often(&lock);
    }
}

fn a_hold_changes_without_a_gap<R>()
where
    R: RawRwLockUpgradeTimed<Duration = Duration, Instant = Instant>
        + fairlock::lock_api_04::RawRwLockDowngrade
        + fairlock::lock_api_04::RawRwLockUpgradeDowngrade,
{
    let lock = RwLock::<R, _>::new(vec![1]);
    for _ in 0..2 {
        let mut writing = lock.write();
        writing.push(2);
        let reading = RwLockWriteGuard::downgrade(writing);
        assert!(lock.try_read().is_some() && lock.try_write().is_none());
        let beside = lock.try_upgradable_read().expect("readers only");
        let beside = RwLockUpgradableReadGuard::try_upgrade_for(beside, SOON).unwrap_err();
        drop(reading);
        let mut writing = RwLockUpgradableReadGuard::upgrade(beside);
        writing.pop();
        let upgradable = RwLockWriteGuard::downgrade_to_upgradable(writing);
        assert!(lock.try_upgradable_read().is_none());
        let reading = RwLockUpgradableReadGuard::downgrade(upgradable);
        assert_eq!(*reading, [1]);
        drop(reading);
        assert!(is_free(&lock));
        read_often(&lock);
    }
}

fn an_attempt_that_gives_up_leaves_nothing_held<R>()
where
    R: fairlock::lock_api_04::RawRwLockTimed<Duration = Duration, Instant = Instant> + Sync,
{
    let lock = RwLock::<R, _>::new(1);
    read_often(&lock);
    let reading = lock.read();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lock.try_write_for(SOON).is_none());
            assert!(lock.try_write_until(Instant::now()).is_none());
            assert!(lock.try_read_for(SOON).is_some());
        });
    });
    drop(reading);
    let writing = lock.write();
    assert!(lock.try_read_for(SOON).is_none() && lock.try_write().is_none());
    drop(writing);
    assert!(is_free(&lock));
}

fn writers_are_alone_among_readers<R: RawRwLock + Send + Sync>() {
    const ROUNDS: u64 = 2_000;
    let lock = RwLock::<R, _>::new([0_u64; 2]);
    thread::scope(|scope| {
        for writes in [1, 16, 256] {
            let lock = &lock;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    if round % writes == 0 {
                        let mut both = lock.write();
                        both[0] += 1;
                        both[1] += 1;
                    } else {
                        let both = lock.read();
                        assert_eq!(both[0], both[1]);
                    }
                }
            });
        }
    });
    let writes = [1, 16, 256].map(|writes| ROUNDS.div_ceil(writes));
    assert_eq!(*lock.read(), [writes.iter().sum(); 2]);
    assert!(is_free(&lock));
}

macro_rules! of_both {
    ($($name:ident)*) => {
        mod rwlock {
            $(#[test] fn $name() { super::$name::<fairlock::rwlock::RawRwLock>() })*
        }
        mod rwsem {
            $(#[test] fn $name() { super::$name::<fairlock::rwsem::RawRwSem>() })*
        }
    };
}

of_both! {
    reads_within_reads_end_one_by_one
    a_hold_changes_without_a_gap
    an_attempt_that_gives_up_leaves_nothing_held
    writers_are_alone_among_readers
}

/// More reads at once than a thread has slots, released in another order.
#[test]
fn a_thread_reads_many_locks_at_once() {
    let locks: Vec<_> = (0..9).map(Biased::new).collect();
    locks.iter().for_each(read_often);
    let mut reads: Vec<_> = locks.iter().map(RwLock::read).collect();
    while !reads.is_empty() {
        let read = reads.swap_remove(reads.len() / 2);
        let lock = &locks[*read];
        assert!(lock.try_write().is_none());
        drop(read);
        assert!(is_free(lock));
    }
}

/// As maps do whose entries are `Send`, with `unsafe` of their own where a guard is not.
#[test]
fn guards_of_an_rwsem_are_released_by_whichever_thread_is_the_last() {
    fn is_send<T: Send>(guard: T) -> T {
        guard
    }
    let lock = Sem::new(1);
    let shared = Arc::new(is_send(lock.read()));
    let writing = Sem::new(2);
    let guard = is_send(writing.write());
    thread::scope(|scope| {
        scope.spawn({
            let shared: Arc<RwLockReadGuard<'_, _, _>> = shared.clone();
            move || assert_eq!(**shared, 1)
        });
        scope.spawn(move || drop(guard));
    });
    drop(shared);
    assert!(is_free(&lock) && is_free(&writing));
}

#[test]
fn a_mutex_is_locked_unlocked_and_timed() {
    static LOCK: Exclusive<Vec<u32>> = Mutex::new(Vec::new());
    let guard = LOCK.lock();
    thread::scope(|scope| {
        scope.spawn(|| assert!(LOCK.try_lock().is_none() && LOCK.try_lock_for(SOON).is_none()));
    });
    fairlock::lock_api_04::MutexGuard::unlock_fair(guard);
    LOCK.try_lock_for(SOON).expect("free").push(1);
    assert_eq!(*LOCK.lock(), [1]);
}
