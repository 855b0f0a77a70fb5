//! Users check their own code with Loom: the locks are models then, and Loom finds what is wrong with the code around
//! them. Each structure below has a mistake that is found, and passes without it; then come the promises of the locks
//! that such code relies on.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p fairlock --test user_loom --target-dir target/loom
//! ```
#![cfg(loom)]

#[path = "../../fairlock-check/tests/loom/stacks.rs"]
mod stacks;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicUsize as StdAtomicUsize;
use std::sync::{Arc, Barrier, Mutex as StdMutex};
use std::time::Duration;

use fairlock::range::Extent;
use fairlock::{
    ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockUpgradableReadGuard, Condvar, Mutex, MutexGuard,
    ReentrantMutex, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard, RwSem,
    RwSemUpgradableReadGuard, RwSemWriteGuard,
};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
use loom::thread;

const SOON: Duration = Duration::from_millis(1);

/// All that a model can end with.
fn outcomes<T: Ord + Send + 'static>(model: impl Fn() -> T + Send + Sync + 'static) -> BTreeSet<T> {
    let all = Arc::new(StdMutex::new(BTreeSet::new()));
    let seen = Arc::clone(&all);
    loom::model(move || {
        let outcome = model();
        seen.lock().unwrap().insert(outcome);
    });
    std::mem::take(&mut all.lock().unwrap())
}

/// In how many executions Loom sees all of a model.
fn executions(model: impl Fn() + Send + Sync + 'static) -> usize {
    let count = Arc::new(StdAtomicUsize::new(0));
    let counted = Arc::clone(&count);
    loom::model(move || {
        counted.fetch_add(1, SeqCst);
        model();
    });
    count.load(SeqCst)
}

/// What Loom says is wrong with a model.
fn mistake(model: impl Fn() + Send + Sync + 'static) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| loom::model(model)))
        .expect_err("Loom should find a mistake");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or_default().into(),
    }
}

/// What users write.
mod users {
    use super::*;

    /// Computes each value once.
    #[derive(Default)]
    pub struct Memo {
        known: RwLock<BTreeMap<u32, u32>>,
        computed: Mutex<u32>,
    }

    impl Memo {
        fn compute(&self, key: u32) -> u32 {
            *self.computed.lock() += 1;
            key * key
        }

        pub fn computed(&self) -> u32 {
            *self.computed.lock()
        }

        /// Another thread may insert the value after the read lock is released.
        pub fn get_in_two_sections(&self, key: u32) -> u32 {
            let known = self.known.read().get(&key).copied();
            known.unwrap_or_else(|| {
                let value = self.compute(key);
                self.known.write().insert(key, value);
                value
            })
        }

        pub fn get(&self, key: u32) -> u32 {
            let known = self.known.upgradable_read();
            if let Some(&value) = known.get(&key) {
                return value;
            }
            let mut known = RwLockUpgradableReadGuard::upgrade(known);
            *known.entry(key).or_insert_with(|| self.compute(key))
        }
    }

    pub struct Accounts(pub [Mutex<i32>; 2]);

    impl Accounts {
        /// Two transfers in opposite directions wait for each other.
        pub fn transfer_in_any_order(&self, from: usize, to: usize) {
            let mut source = self.0[from].lock();
            let mut target = self.0[to].lock();
            *source -= 1;
            *target += 1;
        }

        pub fn transfer(&self, from: usize, to: usize) {
            let mut first = self.0[from.min(to)].lock();
            let mut second = self.0[from.max(to)].lock();
            let by = if from < to { 1 } else { -1 };
            *first -= by;
            *second += by;
        }
    }

    /// A value that is written once, and a flag that says so.
    pub struct Published {
        value: UnsafeCell<u32>,
        is_there: AtomicBool,
        lock: RwSem<()>,
    }

    // SAFETY: wrong in `publish_outside`, which Loom finds.
    unsafe impl Send for Published {}
    // SAFETY: as above.
    unsafe impl Sync for Published {}

    impl Published {
        pub fn new() -> Self {
            let is_there = AtomicBool::new(false);
            Published { value: UnsafeCell::new(0), is_there, lock: RwSem::new(()) }
        }

        /// The flag orders nothing, and the lock is released before the value is written.
        pub fn publish_outside(&self) {
            drop(self.lock.write());
            // SAFETY: there is none; Loom looks.
            self.value.with_mut(|value| unsafe { *value = 7 });
            self.is_there.store(true, Relaxed);
        }

        pub fn publish(&self) {
            let _writing = self.lock.write();
            // SAFETY: under the lock.
            self.value.with_mut(|value| unsafe { *value = 7 });
            self.is_there.store(true, Relaxed);
        }

        pub fn get(&self) -> Option<u32> {
            let _reading = self.lock.read();
            // SAFETY: under the lock.
            self.is_there.load(Relaxed).then(|| self.value.with(|value| unsafe { *value }))
        }
    }

    /// Hands jobs to those that wait for them.
    #[derive(Default)]
    pub struct Jobs {
        jobs: Mutex<Vec<u32>>,
        added: Condvar,
    }

    impl Jobs {
        pub fn add(&self, job: u32) {
            self.jobs.lock().push(job);
            self.added.notify_one();
        }

        /// A job that comes after the look and before the wait notifies nobody.
        pub fn take_after_a_look(&self) -> u32 {
            if self.jobs.lock().is_empty() {
                self.added.wait(&mut self.jobs.lock());
            }
            self.jobs.lock().pop().unwrap()
        }

        /// Another thread may take the job after the notification and before this thread has the mutex.
        pub fn take_without_a_second_look(&self) -> u32 {
            let mut jobs = self.jobs.lock();
            if jobs.is_empty() {
                self.added.wait(&mut jobs);
            }
            jobs.pop().unwrap()
        }

        pub fn take(&self) -> u32 {
            let mut jobs = self.jobs.lock();
            self.added.wait_while(&mut jobs, |jobs| jobs.is_empty());
            jobs.pop().unwrap()
        }
    }

    /// Lines that threads add, some of which belong together.
    #[derive(Default)]
    pub struct Log {
        lines: ReentrantMutex<RefCell<Vec<(usize, u32)>>>,
    }

    impl Log {
        pub fn add(&self, thread: usize, line: u32) {
            self.lines.lock().borrow_mut().push((thread, line));
        }

        /// Another thread's lines may come in between.
        pub fn add_two_one_by_one(&self, thread: usize) {
            self.add(thread, 1);
            self.add(thread, 2);
        }

        pub fn add_two(&self, thread: usize) {
            let _together = self.lines.lock();
            self.add_two_one_by_one(thread);
        }

        pub fn lines(&self) -> Vec<(usize, u32)> {
            self.lines.lock().take()
        }
    }
}

#[test]
fn a_check_and_an_act_in_two_sections_are_found() {
    fn computed_by_two_threads(get: fn(&users::Memo, u32) -> u32) -> BTreeSet<u32> {
        outcomes(move || {
            let memo = Arc::new(users::Memo::default());
            let other = Arc::clone(&memo);
            let thread = thread::spawn(move || get(&other, 3));
            assert_eq!(get(&memo, 3), 9);
            assert_eq!(thread.join().unwrap(), 9);
            memo.computed()
        })
    }
    assert_eq!(computed_by_two_threads(users::Memo::get_in_two_sections), [1, 2].into());
    assert_eq!(computed_by_two_threads(users::Memo::get), [1].into());
}

#[test]
fn locks_in_opposite_orders_are_found() {
    fn transfers(transfer: fn(&users::Accounts, usize, usize)) {
        let accounts = Arc::new(users::Accounts([Mutex::new(5), Mutex::new(5)]));
        let other = Arc::clone(&accounts);
        let thread = thread::spawn(move || transfer(&other, 0, 1));
        transfer(&accounts, 1, 0);
        thread.join().unwrap();
        assert_eq!(accounts.0.each_ref().map(Mutex::get_cloned), [5, 5]);
    }
    let found = mistake(|| transfers(users::Accounts::transfer_in_any_order));
    assert!(found.contains("deadlock"), "{found}");
    loom::model(|| transfers(users::Accounts::transfer));
}

#[test]
fn data_that_are_published_outside_the_lock_are_found() {
    fn published(publish: fn(&users::Published)) {
        let it = Arc::new(users::Published::new());
        let other = Arc::clone(&it);
        let thread = thread::spawn(move || publish(&other));
        assert!(it.get().is_none_or(|value| value == 7));
        thread.join().unwrap();
    }
    let found = mistake(|| published(users::Published::publish_outside));
    assert!(found.contains("Causality violation"), "{found}");
    loom::model(|| published(users::Published::publish));
}

#[test]
fn a_lost_wake_up_is_found() {
    fn one_job(take: fn(&users::Jobs) -> u32) {
        let jobs = Arc::new(users::Jobs::default());
        let other = Arc::clone(&jobs);
        let thread = thread::spawn(move || other.add(7));
        assert_eq!(take(&jobs), 7);
        thread.join().unwrap();
    }
    let found = mistake(|| one_job(users::Jobs::take_after_a_look));
    assert!(found.contains("deadlock"), "{found}");
    // Nobody else takes jobs here.
    loom::model(|| one_job(users::Jobs::take_without_a_second_look));
    loom::model(|| one_job(users::Jobs::take));
}

#[test]
fn a_missing_second_look_after_a_wake_up_is_found() {
    fn two_jobs(take: fn(&users::Jobs) -> u32) {
        let jobs = Arc::new(users::Jobs::default());
        let (a, b) = (Arc::clone(&jobs), Arc::clone(&jobs));
        let threads = [thread::spawn(move || take(&a)), thread::spawn(move || take(&b))];
        jobs.add(1);
        jobs.add(2);
        assert_eq!(threads.map(|thread| thread.join().unwrap()).into_iter().sum::<u32>(), 3);
    }
    let found = mistake(|| two_jobs(users::Jobs::take_without_a_second_look));
    assert!(found.contains("None"), "{found}");
    loom::model(|| two_jobs(users::Jobs::take));
}

#[test]
fn lines_that_should_be_together_are_found_apart() {
    fn lines(add_two: fn(&users::Log, usize)) -> BTreeSet<Vec<(usize, u32)>> {
        outcomes(move || {
            let log = Arc::new(users::Log::default());
            let other = Arc::clone(&log);
            let thread = thread::spawn(move || add_two(&other, 1));
            add_two(&log, 0);
            thread.join().unwrap();
            log.lines()
        })
    }
    let together = [vec![(0, 1), (0, 2), (1, 1), (1, 2)], vec![(1, 1), (1, 2), (0, 1), (0, 2)]];
    assert_eq!(lines(users::Log::add_two), together.into());
    assert_eq!(lines(users::Log::add_two_one_by_one).len(), 6);
}

/// A counter that Loom watches, protected by a lock.
struct Watched<L> {
    lock: L,
    value: UnsafeCell<u32>,
}

// SAFETY: Loom finds races.
unsafe impl<L> Send for Watched<L> {}
// SAFETY: as above.
unsafe impl<L> Sync for Watched<L> {}

impl<L: Default> Watched<L> {
    fn new() -> Arc<Self> {
        Arc::new(Watched { lock: L::default(), value: UnsafeCell::new(0) })
    }
}

impl<L> Watched<L> {
    fn get(&self) -> u32 {
        // SAFETY: Loom finds races.
        self.value.with(|value| unsafe { *value })
    }

    fn add(&self) {
        // SAFETY: Loom finds races.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }
}

/// What both reader-writer locks promise.
macro_rules! reader_writer {
    ($module:ident, $Lock:ident, $Upgradable:ident, $Write:ident) => {
        mod $module {
            use super::*;

            type It = Watched<$Lock<()>>;

            #[test]
            fn a_writer_is_alone() {
                loom::model(|| {
                    let it = It::new();
                    let (a, b) = (Arc::clone(&it), Arc::clone(&it));
                    let writer = thread::spawn(move || {
                        let _writing = a.lock.write();
                        a.add();
                    });
                    let reader = thread::spawn(move || {
                        let _reading = b.lock.read();
                        b.get()
                    });
                    {
                        let _writing = it.lock.write();
                        it.add();
                    }
                    assert!(reader.join().unwrap() <= 2);
                    writer.join().unwrap();
                    let _reading = it.lock.read();
                    assert_eq!(it.get(), 2);
                });
            }

            #[test]
            fn readers_are_together_and_a_try_says_who_is_inside() {
                let seen = outcomes(|| {
                    let it = It::new();
                    let other = Arc::clone(&it);
                    let thread = thread::spawn(move || drop(other.lock.read()));
                    let reading = it.lock.try_read().is_some();
                    let writing = it.lock.try_write().is_some();
                    thread.join().unwrap();
                    (reading, writing)
                });
                assert_eq!(seen, [(true, false), (true, true)].into());
                let seen = outcomes(|| {
                    let it = It::new();
                    let other = Arc::clone(&it);
                    let thread = thread::spawn(move || drop(other.lock.write()));
                    let reading = it.lock.try_read().is_some();
                    let exclusive = it.lock.is_locked_exclusive();
                    thread.join().unwrap();
                    assert!(!it.lock.is_locked());
                    (reading, exclusive)
                });
                let all = [(false, false), (false, true), (true, false), (true, true)];
                assert_eq!(seen, all.into());
            }

            #[test]
            fn time_may_be_over_and_may_be_enough() {
                let seen = outcomes(|| {
                    let it = It::new();
                    let other = Arc::clone(&it);
                    let thread = thread::spawn(move || {
                        let _writing = other.lock.write();
                        other.add();
                    });
                    let reading = it.lock.try_read_for(SOON).map(|_reading| it.get());
                    thread.join().unwrap();
                    reading
                });
                assert_eq!(seen, [None, Some(0), Some(1)].into());
                let seen = outcomes(|| {
                    let it = It::new();
                    let other = Arc::clone(&it);
                    let thread = thread::spawn(move || drop(other.lock.read()));
                    let writing = it.lock.try_write_for(SOON).is_some();
                    let upgradable = it.lock.try_upgradable_read_for(SOON).is_some();
                    thread.join().unwrap();
                    (writing, upgradable)
                });
                assert_eq!(seen, [(false, true), (true, true)].into());
            }

            #[test]
            fn readers_do_not_order_each_other() {
                // The second reader comes after the first, as it has seen the flag, which orders nothing.
                let found = mistake(|| {
                    let it = Arc::new((It::new(), AtomicBool::new(false)));
                    let other = Arc::clone(&it);
                    let thread = thread::spawn(move || {
                        let reading = other.0.lock.read();
                        other.0.add();
                        drop(reading);
                        other.1.store(true, Relaxed);
                    });
                    if it.1.load(Relaxed) {
                        let _reading = it.0.lock.read();
                        it.0.get();
                    }
                    thread.join().unwrap();
                });
                assert!(found.contains("Causality violation"), "{found}");
            }

            #[test]
            fn an_upgrade_lets_nobody_write_in_between() {
                let seen = outcomes(|| {
                    let it = It::new();
                    let (a, b) = (Arc::clone(&it), Arc::clone(&it));
                    let upgrade = move |it: &It| {
                        let reading = it.lock.upgradable_read();
                        let before = it.get();
                        let _writing = $Upgradable::upgrade(reading);
                        assert_eq!(it.get(), before);
                        it.add();
                    };
                    let upgrader = thread::spawn(move || upgrade(&a));
                    let reader = thread::spawn(move || {
                        let _reading = b.lock.read();
                        b.get()
                    });
                    upgrade(&it);
                    upgrader.join().unwrap();
                    reader.join().unwrap()
                });
                assert_eq!(seen, [0, 1, 2].into());
            }

            #[test]
            fn an_upgrade_that_does_not_wait_fails_beside_readers() {
                for upgrade in [
                    |it: &It| $Upgradable::try_upgrade(it.lock.upgradable_read()).is_ok(),
                    |it: &It| $Upgradable::try_upgrade_for(it.lock.upgradable_read(), SOON).is_ok(),
                ] {
                    let seen = outcomes(move || {
                        let it = It::new();
                        let other = Arc::clone(&it);
                        let thread = thread::spawn(move || drop(other.lock.read()));
                        let upgraded = upgrade(&it);
                        thread.join().unwrap();
                        assert!(!it.lock.is_locked());
                        upgraded
                    });
                    assert_eq!(seen, [false, true].into());
                }
            }

            #[test]
            fn a_downgrade_lets_nobody_write_in_between() {
                let seen = outcomes(|| {
                    let it = It::new();
                    let (a, b) = (Arc::clone(&it), Arc::clone(&it));
                    let writer = thread::spawn(move || {
                        let _writing = a.lock.write();
                        a.add();
                    });
                    let reader = thread::spawn(move || b.lock.try_read().map(|_reading| b.get()));
                    let writing = it.lock.write();
                    it.add();
                    let mine = it.get();
                    let reading = $Write::downgrade(writing);
                    assert_eq!(it.get(), mine);
                    drop(reading);
                    writer.join().unwrap();
                    reader.join().unwrap()
                });
                assert_eq!(seen, [None, Some(0), Some(1), Some(2)].into());
            }

            #[test]
            fn all_conversions_release_in_the_end() {
                loom::model(|| {
                    let it = It::new();
                    let other = Arc::clone(&it);
                    let thread = thread::spawn(move || {
                        let _writing = other.lock.write();
                        other.add();
                    });
                    let writing = it.lock.write();
                    it.add();
                    let upgradable = $Write::downgrade_to_upgradable(writing);
                    assert!(it.lock.try_upgradable_read().is_none());
                    let reading = $Upgradable::downgrade(upgradable);
                    let before = it.get();
                    assert!(it.lock.try_write().is_none());
                    assert_eq!(it.get(), before);
                    drop(reading);
                    thread.join().unwrap();
                    assert_eq!((it.get(), it.lock.is_locked()), (2, false));
                });
            }

            #[test]
            fn a_read_within_a_read_may_wait_for_ever() {
                let found = mistake(|| {
                    let it = It::new();
                    let other = Arc::clone(&it);
                    let thread = thread::spawn(move || drop(other.lock.write()));
                    let _outer = it.lock.read();
                    drop(it.lock.read());
                    drop(_outer);
                    thread.join().unwrap();
                });
                assert!(found.contains("deadlock"), "{found}");
            }

            #[test]
            fn a_forgotten_guard_keeps_its_lock() {
                loom::model(|| {
                    let it = It::new();
                    std::mem::forget(it.lock.read());
                    let other = Arc::clone(&it);
                    let thread = thread::spawn(move || other.lock.try_write().is_some());
                    assert!(!thread.join().unwrap());
                    // SAFETY: forgotten above.
                    unsafe { it.lock.force_unlock_read() };
                    std::mem::forget(it.lock.write());
                    assert!(it.lock.try_read().is_none());
                });
            }

            #[test]
            fn a_model_takes_no_more_executions_than_one_of_looms_own_lock() {
                let ours = executions(|| {
                    let it = It::new();
                    let (a, b) = (Arc::clone(&it), Arc::clone(&it));
                    let threads = [
                        thread::spawn(move || drop(a.lock.read())),
                        thread::spawn(move || drop(b.lock.read())),
                    ];
                    drop(it.lock.write());
                    drop(it.lock.read());
                    threads.into_iter().for_each(|thread| thread.join().unwrap());
                });
                let looms = executions(|| {
                    let it = Arc::new(loom::sync::RwLock::new(()));
                    let (a, b) = (Arc::clone(&it), Arc::clone(&it));
                    let threads = [
                        thread::spawn(move || drop(a.read().unwrap())),
                        thread::spawn(move || drop(b.read().unwrap())),
                    ];
                    drop(it.write().unwrap());
                    drop(it.read().unwrap());
                    threads.into_iter().for_each(|thread| thread.join().unwrap());
                });
                println!("{ours} executions, {looms} of loom's own lock");
                assert!(ours <= looms, "{ours} executions, {looms} of loom's own lock");
            }
        }
    };
}

reader_writer!(rwlock, RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard);
reader_writer!(rwsem, RwSem, RwSemUpgradableReadGuard, RwSemWriteGuard);

mod mutex {
    use super::*;

    type It = Watched<Mutex<()>>;

    #[test]
    fn an_owner_is_alone() {
        loom::model(|| {
            let it = It::new();
            let (a, b) = (Arc::clone(&it), Arc::clone(&it));
            let threads = [
                thread::spawn(move || {
                    let _held = a.lock.lock();
                    a.add();
                }),
                thread::spawn(move || {
                    if let Some(_held) = b.lock.try_lock() {
                        b.add();
                    }
                }),
            ];
            {
                let _held = it.lock.lock();
                it.add();
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert!([2, 3].contains(&it.get()));
        });
    }

    #[test]
    fn a_try_may_find_a_lock_that_is_released_right_after() {
        // Within the section comes an operation that tells the other thread that it may try.
        let seen = outcomes(|| {
            let it = Arc::new((Mutex::new(()), AtomicBool::new(false)));
            let other = Arc::clone(&it);
            let thread = thread::spawn(move || {
                let _held = other.0.lock();
                other.1.store(true, SeqCst);
            });
            let tried = it.1.load(SeqCst).then(|| it.0.try_lock().is_some());
            thread.join().unwrap();
            tried
        });
        assert_eq!(seen, [None, Some(false), Some(true)].into());
    }

    #[test]
    fn time_may_be_over_and_may_be_enough() {
        let seen = outcomes(|| {
            let it = It::new();
            let other = Arc::clone(&it);
            let thread = thread::spawn(move || {
                let _held = other.lock.lock();
                other.add();
            });
            let held = it.lock.try_lock_for(SOON).map(|_held| it.get());
            thread.join().unwrap();
            held
        });
        assert_eq!(seen, [None, Some(0), Some(1)].into());
    }

    #[test]
    fn a_lock_within_itself_is_found() {
        let found = mistake(|| {
            let it = Mutex::new(1);
            let _held = it.lock();
            drop(it.lock());
        });
        assert!(found.contains("deadlock"), "{found}");
    }

    #[test]
    fn data_may_change_while_a_guard_is_unlocked() {
        let seen = outcomes(|| {
            let it = Arc::new(Mutex::new(0));
            let other = Arc::clone(&it);
            let thread = thread::spawn(move || *other.lock() += 1);
            let mut guard = it.lock();
            let before = *guard;
            MutexGuard::bump(&mut guard);
            let after = *guard;
            drop(guard);
            thread.join().unwrap();
            (before, after)
        });
        assert_eq!(seen, [(0, 0), (0, 1), (1, 1)].into());
    }

    #[test]
    fn a_model_takes_no_more_executions_than_one_of_looms_own_lock() {
        let ours = executions(|| {
            let it = It::new();
            let (a, b) = (Arc::clone(&it), Arc::clone(&it));
            let threads = [
                thread::spawn(move || drop(a.lock.lock())),
                thread::spawn(move || drop(b.lock.lock())),
            ];
            drop(it.lock.lock());
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        let looms = executions(|| {
            let it = Arc::new(loom::sync::Mutex::new(()));
            let (a, b) = (Arc::clone(&it), Arc::clone(&it));
            let threads = [
                thread::spawn(move || drop(a.lock().unwrap())),
                thread::spawn(move || drop(b.lock().unwrap())),
            ];
            drop(it.lock().unwrap());
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        println!("{ours} executions, {looms} of loom's own lock");
        assert!(ours <= looms, "{ours} executions, {looms} of loom's own lock");
    }
}

mod condvar {
    use super::*;

    /// Numbers that a mutex protects, and what tells of their changes.
    #[derive(Default)]
    struct It {
        value: Mutex<Vec<u32>>,
        changed: Condvar,
    }

    #[test]
    fn the_mutex_is_released_during_a_wait_and_held_after_it() {
        loom::model(|| {
            let it = Arc::new((Watched::<Mutex<bool>>::new(), Condvar::new()));
            let other = Arc::clone(&it);
            let thread = thread::spawn(move || {
                let mut is_there = other.0.lock.lock();
                *is_there = true;
                other.1.notify_all();
                other.0.add();
            });
            let mut is_there = it.0.lock.lock();
            it.1.wait_while(&mut is_there, |is_there| !*is_there);
            it.0.add();
            assert_eq!(it.0.get(), 2);
            drop(is_there);
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_notification_wakes_one_and_tells_whether_somebody_waited() {
        let seen = outcomes(|| {
            let it = Arc::new(It::default());
            let other = Arc::clone(&it);
            let thread = thread::spawn(move || {
                let mut value = other.value.lock();
                if value.is_empty() {
                    other.changed.wait(&mut value);
                }
                value.len()
            });
            it.value.lock().push(1);
            let notified = it.changed.notify_one();
            (notified, it.changed.notify_all(), thread.join().unwrap())
        });
        assert_eq!(seen, [(false, 0, 1), (true, 0, 1)].into());
    }

    #[test]
    fn who_began_to_wait_first_is_notified_first() {
        let seen = outcomes(|| {
            let it = Arc::new((It::default(), Condvar::new()));
            let wait = |number| {
                let it = Arc::clone(&it);
                move || {
                    let (It { value, changed }, arrived) = &*it;
                    let mut value = value.lock();
                    value.push(number);
                    arrived.notify_one();
                    changed.wait(&mut value);
                    value.push(number + 10);
                    // The second one waits for this.
                    changed.notify_one();
                }
            };
            let threads = [thread::spawn(wait(1)), thread::spawn(wait(2))];
            let (It { value, changed }, arrived) = &*it;
            arrived.wait_while(&mut value.lock(), |value| value.len() < 2);
            changed.notify_one();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            value.get_cloned()
        });
        assert_eq!(seen, [vec![1, 2, 11, 12], vec![2, 1, 12, 11]].into());
    }

    #[test]
    fn time_may_be_over_and_may_be_enough() {
        let seen = outcomes(|| {
            let it = Arc::new(It::default());
            let other = Arc::clone(&it);
            let thread = thread::spawn(move || {
                other.value.lock().push(1);
                other.changed.notify_one()
            });
            let mut value = it.value.lock();
            let before = value.len();
            let timed_out = it.changed.wait_for(&mut value, SOON).timed_out();
            let after = value.len();
            drop(value);
            (before, timed_out, after, thread.join().unwrap())
        });
        let in_time = (0, false, 1, true);
        // Before the change, between the change and the notification, and when both have been.
        let late = [(0, true, 0, false), (0, true, 1, false), (1, true, 1, false)];
        // The notification came after the change that this thread has seen already.
        let of_what_was_known = (1, false, 1, true);
        assert_eq!(seen, late.into_iter().chain([in_time, of_what_was_known]).collect());
    }

    #[test]
    fn a_loop_of_waits_that_timeout_ends() {
        loom::model(|| {
            let it = Arc::new(It::default());
            let other = Arc::clone(&it);
            let thread = thread::spawn(move || {
                other.value.lock().push(1);
                other.changed.notify_one();
            });
            let mut value = it.value.lock();
            while value.is_empty() {
                it.changed.wait_for(&mut value, SOON);
            }
            drop(value);
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_second_mutex_is_refused_while_somebody_waits() {
        let found = mistake(|| {
            let it = Arc::new((Mutex::new(()), Mutex::new(()), Condvar::new()));
            let other = Arc::clone(&it);
            let thread = thread::spawn(move || other.2.wait(&mut other.0.lock()));
            it.2.wait(&mut it.1.lock());
            thread.join().unwrap();
        });
        assert!(found.contains("a Condvar of its own"), "{found}");
    }

    #[test]
    fn a_static_condvar_is_new_in_every_execution() {
        static IT: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
        // The thread that waits is left behind in each execution.
        let found = mistake(|| IT.1.wait(&mut IT.0.lock()));
        assert!(found.contains("deadlock"), "{found}");
        loom::model(|| {
            assert_eq!(IT.1.notify_all(), 0);
            drop(IT.0.lock());
        });
    }
}

mod reentrant {
    use super::*;

    type It = Watched<ReentrantMutex<()>>;

    #[test]
    fn its_thread_enters_again_and_others_wait_for_the_last_guard() {
        loom::model(|| {
            let it = It::new();
            let other = Arc::clone(&it);
            let thread = thread::spawn(move || {
                let outer = other.lock.lock();
                other.add();
                let inner = other.lock.try_lock().unwrap();
                drop(outer);
                other.add();
                drop(inner);
            });
            {
                let _held = it.lock.lock();
                assert!(it.lock.is_owned_by_current_thread());
                assert_eq!(it.get() % 2, 0);
            }
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_try_of_another_thread_fails() {
        let seen = outcomes(|| {
            let it = It::new();
            let other = Arc::clone(&it);
            let held = it.lock.lock();
            let thread = thread::spawn(move || other.lock.try_lock().is_some());
            drop(held);
            thread.join().unwrap()
        });
        assert_eq!(seen, [false, true].into());
    }

    #[test]
    fn two_in_opposite_orders_are_found() {
        let found = mistake(|| {
            let it = Arc::new([ReentrantMutex::new(()), ReentrantMutex::new(())]);
            let other = Arc::clone(&it);
            let thread = thread::spawn(move || {
                let _first = other[0].lock();
                drop(other[1].lock());
            });
            let _first = it[1].lock();
            drop(it[0].lock());
            thread.join().unwrap();
        });
        assert!(found.contains("deadlock"), "{found}");
    }

    #[test]
    fn a_static_lock_is_new_in_every_execution() {
        static LOCK: ReentrantMutex<()> = ReentrantMutex::new(());
        loom::model(|| {
            let thread = thread::spawn(|| drop(LOCK.lock()));
            drop(LOCK.lock());
            thread.join().unwrap();
            std::mem::forget(LOCK.lock());
        });
    }
}

#[test]
fn a_recursive_read_passes_an_upgrade_that_waits() {
    loom::model(|| {
        let it = Arc::new(RwSem::new(0));
        let other = Arc::clone(&it);
        let thread =
            thread::spawn(move || other.upgradable_read().with_upgraded(|value| *value += 1));
        let outer = it.read();
        let inner = it.read_recursive();
        assert_eq!(*outer, *inner);
        drop((outer, inner));
        thread.join().unwrap();
        assert_eq!(*it.read(), 1);
    });
}

#[test]
fn a_recursive_read_passes_a_writer_that_waits() {
    loom::model(|| {
        let it = Watched::<RwSem<()>>::new();
        let other = Arc::clone(&it);
        let thread = thread::spawn(move || {
            let _writing = other.lock.write();
            other.add();
        });
        let outer = it.lock.read();
        let before = it.get();
        let inner = it.lock.read_recursive();
        drop(outer);
        assert_eq!(it.get(), before);
        drop(inner);
        thread.join().unwrap();
    });
}

#[cfg(feature = "send_guard")]
#[test]
fn a_guard_of_rwsem_may_end_on_another_thread() {
    loom::model(|| {
        let it = Watched::<Arc<RwSem<()>>>::new();
        let guard = it.lock.write_arc();
        it.add();
        let other = Arc::clone(&it);
        let thread = thread::spawn(move || {
            other.add();
            drop(fairlock::ArcRwSemWriteGuard::downgrade(guard));
        });
        {
            let _writing = it.lock.write();
            assert_eq!(it.get(), 2);
        }
        thread.join().unwrap();
    });
}

#[test]
fn arc_guards_hold_as_others_do() {
    let seen = outcomes(|| {
        let lock = Arc::new(RwLock::new(0));
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || {
            let upgradable = other.upgradable_read_arc();
            let mut writing = ArcRwLockUpgradableReadGuard::upgrade(upgradable);
            *writing += 1;
        });
        let reading = lock.try_read_arc().map(|guard| {
            let value = *guard;
            ArcRwLockReadGuard::unlock_fair(guard);
            value
        });
        thread.join().unwrap();
        reading
    });
    assert_eq!(seen, [None, Some(0), Some(1)].into());

    let seen = outcomes(|| {
        let lock = Arc::new(Mutex::new(0));
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || *other.lock_arc() += 1);
        let value = lock.try_lock_arc_for(SOON).map(|guard| *ArcMutexGuard::into_arc(guard).lock());
        thread.join().unwrap();
        value
    });
    assert_eq!(seen, [None, Some(0), Some(1)].into());
}

#[test]
fn a_mapped_guard_holds_the_whole_lock() {
    loom::model(|| {
        let lock = Arc::new(RwLock::new((1, 2)));
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || {
            let mut second = RwLockWriteGuard::map(other.write(), |pair| &mut pair.1);
            *second += 1;
        });
        let first = RwLockReadGuard::map(lock.read(), |pair| &pair.0);
        assert_eq!(*first, 1);
        drop(first);
        thread.join().unwrap();
        assert_eq!(lock.get_cloned(), (1, 3));
    });
}

#[test]
fn a_static_lock_is_new_in_every_execution() {
    static LOCK: RwLock<()> = RwLock::new(());
    loom::model(|| {
        let thread = thread::spawn(|| drop(LOCK.write()));
        drop(LOCK.read());
        thread.join().unwrap();
        std::mem::forget(LOCK.write());
    });
}

/// Runs a model on another thread of the system, and `act` while it is at `pause`, once. Says what is wrong with the
/// model.
fn beside<R>(
    model: impl Fn(&dyn Fn()) + Send + Sync + 'static,
    act: impl FnOnce() -> R,
) -> (std::thread::Result<()>, R) {
    let meeting = Arc::new((Barrier::new(2), Barrier::new(2)));
    let theirs = Arc::clone(&meeting);
    let pause = move || _ = (theirs.0.wait(), theirs.1.wait());
    let first = std::thread::spawn(move || loom::model(move || model(&pause)));
    meeting.0.wait();
    let result = act();
    meeting.1.wait();
    (first.join(), result)
}

#[test]
fn two_models_at_once_may_not_share_a_lock() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    static MEANWHILE: Condvar = Condvar::new();
    let (first, found) = beside(
        |pause| {
            MEANWHILE.notify_all();
            let mut value = LOCK.lock();
            pause();
            *value += 1;
        },
        || [mistake(|| drop(LOCK.lock())), mistake(|| _ = MEANWHILE.notify_one())],
    );
    for found in found {
        assert!(found.contains("two models use this lock at once"), "{found}");
    }
    assert!(first.is_ok(), "the other one goes on");
    loom::model(|| assert_eq!(*LOCK.lock(), 1));
}

#[test]
fn models_may_share_a_lock_one_after_the_other_on_whichever_thread() {
    static LOCK: RwLock<u32> = RwLock::new(0);
    let use_lock = || {
        loom::model(|| {
            let thread = thread::spawn(|| drop(LOCK.write()));
            drop(LOCK.read());
            thread.join().unwrap();
            std::mem::forget(LOCK.read());
        });
    };
    let over = Arc::new((Barrier::new(2), Barrier::new(2)));
    let theirs = Arc::clone(&over);
    let first = std::thread::spawn(move || {
        use_lock();
        theirs.0.wait();
        // The model is over, but not the thread.
        theirs.1.wait();
    });
    over.0.wait();
    use_lock();
    over.1.wait();
    first.join().unwrap();
}

#[test]
fn a_lock_is_in_use_for_as_long_as_a_thread_that_has_used_it() {
    static LOCK: Mutex<()> = Mutex::new(());
    let (first, found) = beside(
        |pause| {
            let held = LOCK.lock();
            drop(held);
            pause();
        },
        || mistake(|| drop(LOCK.lock())),
    );
    assert!(found.contains("two models use this lock at once"), "{found}");
    assert!(first.is_ok());
}

#[test]
fn what_is_no_model_says_so_instead_of_waiting_for_ever() {
    let found = mistake(|| {
        let lock = Arc::new(fairlock::RangeLock::new());
        let other = Arc::clone(&lock);
        let held = lock.write(Extent::ALL);
        let thread = thread::spawn(move || drop(other.write(Extent::ALL)));
        thread::yield_now();
        drop(held);
        thread.join().unwrap();
    });
    assert!(found.contains("use only RwLock, RwSem, Mutex"), "{found}");
}

/// Programs at random, each in every schedule: what Loom sees by the models is what the definition of a lock allows.
mod every_schedule {
    use super::*;
    use loom::sync::atomic::AtomicUsize;

    /// What a thread does with the lock; each notes what it finds.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Act {
        Read,
        Write,
        TryRead,
        TryWrite,
        TimedUpgradable,
        Upgrade,
        TryUpgrade,
        Downgrade,
        /// Writes, and says so within the section by an atomic operation.
        WriteAndSignal,
        /// Looks whether somebody has said so.
        Look,
    }

    const ACTS: [Act; 10] = [
        Act::Read,
        Act::Write,
        Act::TryRead,
        Act::TryWrite,
        Act::TimedUpgradable,
        Act::Upgrade,
        Act::TryUpgrade,
        Act::Downgrade,
        Act::WriteAndSignal,
        Act::Look,
    ];

    type Program = Vec<Vec<Act>>;
    /// For each thread what each act has found: the value that is protected, or nothing.
    type Found = Vec<Vec<Option<usize>>>;

    struct Shared {
        lock: RwLock<usize>,
        signals: AtomicUsize,
    }

    fn act(it: &Shared, act: Act, found: &mut Vec<Option<usize>>) {
        let write = |value: &mut usize| {
            *value += 1;
            Some(*value)
        };
        match act {
            Act::Read => found.push(Some(*it.lock.read())),
            Act::Write => found.push(write(&mut it.lock.write())),
            Act::TryRead => found.push(it.lock.try_read().map(|value| *value)),
            Act::TryWrite => {
                found.push(it.lock.try_write().and_then(|mut value| write(&mut value)))
            }
            Act::TimedUpgradable => {
                found.push(it.lock.try_upgradable_read_for(SOON).map(|value| *value))
            }
            Act::Upgrade => {
                let reading = it.lock.upgradable_read();
                found.push(Some(*reading));
                found.push(write(&mut RwLockUpgradableReadGuard::upgrade(reading)));
            }
            Act::TryUpgrade => {
                let upgraded = RwLockUpgradableReadGuard::try_upgrade(it.lock.upgradable_read());
                found.push(upgraded.ok().and_then(|mut value| write(&mut value)));
            }
            Act::Downgrade => {
                let mut writing = it.lock.write();
                found.push(write(&mut writing));
                found.push(Some(*RwLockWriteGuard::downgrade(writing)));
            }
            Act::WriteAndSignal => {
                let mut writing = it.lock.write();
                found.push(write(&mut writing));
                it.signals.fetch_add(1, SeqCst);
            }
            Act::Look => found.push(Some(it.signals.fetch_add(0, SeqCst))),
        }
    }

    fn seen_by_loom(program: &Program) -> BTreeSet<Found> {
        let program = program.clone();
        outcomes(move || {
            let it = Shared { lock: RwLock::new(0), signals: AtomicUsize::new(0) };
            let it = Arc::new(it);
            let run = |acts: Vec<Act>| {
                let it = Arc::clone(&it);
                move || {
                    let mut found = Vec::new();
                    acts.into_iter().for_each(|next| act(&it, next, &mut found));
                    found
                }
            };
            let threads: Vec<_> =
                program[1..].iter().map(|acts| thread::spawn(run(acts.clone()))).collect();
            let mut found = vec![run(program[0].clone())()];
            found.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
            found
        })
    }

    /// A lock by definition, and threads that take steps with it.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct World {
        readers: usize,
        upgradable: bool,
        writer: bool,
        value: usize,
        signals: usize,
        /// For each thread how many acts it has completed, and how many steps of the next one.
        places: Vec<(usize, usize)>,
        found: Found,
    }

    impl World {
        fn write(&mut self) -> Option<usize> {
            self.value += 1;
            Some(self.value)
        }

        /// The worlds after one more step of a thread; none if it waits. `tries_fail`: also without a reason.
        fn after(&self, thread: usize, act: Act, tries_fail: bool) -> Vec<World> {
            let mut next = self.clone();
            let step = self.places[thread].1;
            let is_free = self.readers == 0 && !self.upgradable && !self.writer;
            next.places[thread].1 += 1;
            let done = |world: &mut World| world.places[thread] = (self.places[thread].0 + 1, 0);
            let mut failed = next.clone();
            failed.found[thread].push(None);
            done(&mut failed);
            let tried = |may: bool, next: World, failed: World| match (may, tries_fail) {
                (true, true) => vec![next, failed],
                (true, false) => vec![next],
                (false, _) => vec![failed],
            };
            let (may, is_try) = match (act, step) {
                (Act::Read | Act::TryRead, 0) => {
                    next.readers += 1;
                    next.found[thread].push(Some(self.value));
                    (!self.writer, act == Act::TryRead)
                }
                (Act::Read | Act::TryRead, _) => {
                    next.readers -= 1;
                    done(&mut next);
                    (true, false)
                }
                (Act::Write | Act::TryWrite | Act::WriteAndSignal | Act::Downgrade, 0) => {
                    next.writer = true;
                    let found = next.write();
                    next.found[thread].push(found);
                    (is_free, act == Act::TryWrite)
                }
                (Act::WriteAndSignal, 1) => {
                    next.signals += 1;
                    (true, false)
                }
                (Act::Downgrade, 1) => {
                    next.writer = false;
                    next.readers += 1;
                    next.found[thread].push(Some(self.value));
                    (true, false)
                }
                (Act::Downgrade, _) => {
                    next.readers -= 1;
                    done(&mut next);
                    (true, false)
                }
                (Act::Write | Act::TryWrite | Act::WriteAndSignal, _) => {
                    next.writer = false;
                    done(&mut next);
                    (true, false)
                }
                (Act::TimedUpgradable | Act::Upgrade | Act::TryUpgrade, 0) => {
                    next.upgradable = true;
                    if act != Act::TryUpgrade {
                        next.found[thread].push(Some(self.value));
                    }
                    (!self.writer && !self.upgradable, act == Act::TimedUpgradable)
                }
                (Act::Upgrade | Act::TryUpgrade, 1) => {
                    next.upgradable = false;
                    next.writer = true;
                    let found = next.write();
                    next.found[thread].push(found);
                    // The guard that is left releases in a step of its own.
                    failed.places[thread] = (self.places[thread].0, 3);
                    (self.readers == 0, act == Act::TryUpgrade)
                }
                (Act::Upgrade | Act::TryUpgrade, 2) => {
                    next.writer = false;
                    done(&mut next);
                    (true, false)
                }
                (Act::TimedUpgradable | Act::Upgrade | Act::TryUpgrade, _) => {
                    next.upgradable = false;
                    done(&mut next);
                    (true, false)
                }
                (Act::Look, _) => {
                    next.found[thread].push(Some(self.signals));
                    done(&mut next);
                    (true, false)
                }
            };
            match (may, is_try) {
                (_, true) => tried(may, next, failed),
                (true, false) => vec![next],
                (false, false) => Vec::new(),
            }
        }
    }

    fn allowed(program: &Program, tries_fail: bool) -> BTreeSet<Found> {
        let start = World {
            readers: 0,
            upgradable: false,
            writer: false,
            value: 0,
            signals: 0,
            places: vec![(0, 0); program.len()],
            found: vec![Vec::new(); program.len()],
        };
        let (mut open, mut known) = (vec![start], BTreeSet::new());
        let mut ends = BTreeSet::new();
        while let Some(world) = open.pop() {
            if !known.insert(world.clone()) {
                continue;
            }
            let mut is_over = true;
            for (thread, acts) in program.iter().enumerate() {
                if let Some(&act) = acts.get(world.places[thread].0) {
                    is_over = false;
                    open.extend(world.after(thread, act, tries_fail));
                }
            }
            if is_over {
                ends.insert(world.found);
            }
        }
        ends
    }

    fn check(threads: usize, acts: usize, programs: usize) {
        let mut random = 1u64;
        let mut any = || {
            // Knuth's MMIX generator.
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ACTS[(random >> 33) as usize % ACTS.len()]
        };
        for _ in 0..programs {
            let program: Program =
                (0..threads).map(|_| (0..acts).map(|_| any()).collect()).collect();
            let seen = seen_by_loom(&program);
            let least = allowed(&program, false);
            let most = allowed(&program, true);
            let missing: Vec<_> = least.difference(&seen).collect();
            let wrong: Vec<_> = seen.difference(&most).collect();
            assert!(missing.is_empty(), "{program:?}: Loom does not see {missing:?}");
            assert!(wrong.is_empty(), "{program:?}: Loom sees {wrong:?}");
        }
    }

    #[test]
    fn two_threads_find_all_that_they_may_and_nothing_else() {
        check(2, 2, 100);
    }

    #[test]
    fn three_threads_find_all_that_they_may_and_nothing_else() {
        check(3, 1, 10);
    }
}

/// Panics that are caught in the model, and what destructors do meanwhile.
mod panics {
    use super::*;

    /// Runs `act` to its panic.
    fn caught(act: impl FnOnce()) {
        assert!(catch_unwind(AssertUnwindSafe(act)).is_err());
    }

    /// Without a message.
    fn boom() -> ! {
        resume_unwind(Box::new(()))
    }

    struct WhenDropped<F: FnMut()>(F);

    impl<F: FnMut()> Drop for WhenDropped<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }

    #[test]
    fn a_destructor_enters_again_what_its_thread_holds() {
        loom::model(|| {
            let mut it = ReentrantMutex::new(RefCell::new(0));
            caught(|| {
                let _held = it.lock();
                let _adds = WhenDropped(|| {
                    assert!(it.is_owned_by_current_thread());
                    *it.lock().borrow_mut() += 1;
                });
                boom()
            });
            assert!(!it.is_owned_by_current_thread());
            assert_eq!(it.get_mut().take(), 1);
        });
    }

    #[test]
    fn a_destructor_may_be_the_first_to_use_a_static_in_an_execution() {
        static SHARED: Mutex<u32> = Mutex::new(0);
        static REENTERED: ReentrantMutex<()> = ReentrantMutex::new(());
        let model = || {
            let act = || {
                caught(|| {
                    let _acts = WhenDropped(|| {
                        let _held = REENTERED.lock();
                        *SHARED.lock() += 1;
                    });
                    boom()
                });
            };
            let thread = thread::spawn(act);
            act();
            thread.join().unwrap();
            assert!(!SHARED.is_locked());
        };
        assert!(executions(model) > 1);
        loom::model(model);
    }

    #[test]
    fn destructors_of_two_threads_wait_for_each_other() {
        loom::model(|| {
            let it = Arc::new(Mutex::new(0));
            let add = |it: &Mutex<u32>| {
                caught(|| {
                    let _adds = WhenDropped(|| *it.lock() += 1);
                    boom()
                });
            };
            let other = Arc::clone(&it);
            let thread = thread::spawn(move || add(&other));
            add(&it);
            thread.join().unwrap();
            assert_eq!(*it.lock(), 2);
        });
    }

    #[test]
    fn a_deadlock_is_still_reported_while_locks_are_held() {
        let found = mistake(|| {
            let it = Arc::new((ReentrantMutex::new(()), RwLock::new(()), Mutex::new(())));
            let _entered = it.0.lock();
            let _read = it.1.read();
            let _held = it.2.lock();
            let other = Arc::clone(&it);
            thread::spawn(move || {
                let _write = other.1.write();
            });
            drop(it.2.lock());
        });
        assert!(found.contains("deadlock"), "{found}");
    }

    #[test]
    fn a_model_may_follow_one_that_ended_within_a_destructor() {
        static SHARED: Mutex<u32> = Mutex::new(0);
        let found = mistake(|| {
            let it = Arc::new(Mutex::new(()));
            let other = Arc::clone(&it);
            let _held = it.lock();
            let mut thread = Some(thread::spawn(move || {
                let _shared = SHARED.lock();
                drop(other.lock());
            }));
            caught(|| {
                let _joins = WhenDropped(|| thread.take().unwrap().join().unwrap());
                boom()
            });
        });
        assert!(found.contains("deadlock"), "{found}");
        loom::model(|| {
            let thread = thread::spawn(|| *SHARED.lock() += 1);
            *SHARED.lock() += 1;
            thread.join().unwrap();
        });
    }
}

/// The same for condition variables. No wait lasts until a notification: one that never comes ends a model.
mod every_notification {
    use super::*;

    /// What a thread does; each notes what it finds.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Act {
        /// Notes the value before and after, and whether it was notified.
        TimedWait,
        /// Adds to the value and notifies one, with the mutex held.
        Add,
        NotifyOne,
        NotifyAll,
    }

    const ACTS: [Act; 4] = [Act::TimedWait, Act::Add, Act::NotifyOne, Act::NotifyAll];

    type Program = Vec<Vec<Act>>;
    /// For each thread.
    type Found = Vec<Vec<usize>>;

    fn act((value, changed): &(Mutex<usize>, Condvar), act: Act, found: &mut Vec<usize>) {
        match act {
            Act::TimedWait => {
                let mut value = value.lock();
                found.push(*value);
                let wait = changed.wait_for(&mut value, SOON);
                found.extend([usize::from(!wait.timed_out()), *value]);
            }
            Act::Add => {
                let mut value = value.lock();
                *value += 1;
                found.extend([*value, usize::from(changed.notify_one())]);
            }
            Act::NotifyOne => found.push(changed.notify_one().into()),
            Act::NotifyAll => found.push(changed.notify_all()),
        }
    }

    fn seen_by_loom(program: &Program) -> BTreeSet<Found> {
        let program = program.clone();
        outcomes(move || {
            let it = Arc::new((Mutex::new(0), Condvar::new()));
            let run = |acts: Vec<Act>| {
                let it = Arc::clone(&it);
                move || {
                    let mut found = Vec::new();
                    acts.into_iter().for_each(|next| act(&it, next, &mut found));
                    found
                }
            };
            let threads: Vec<_> =
                program[1..].iter().map(|acts| thread::spawn(run(acts.clone()))).collect();
            let mut found = vec![run(program[0].clone())()];
            found.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
            found
        })
    }

    /// A mutex and a condition variable by definition.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct World {
        is_held: bool,
        value: usize,
        /// The threads that wait, the oldest first.
        waiters: Vec<usize>,
        /// For each thread how many acts it has completed, and how many steps of the next one.
        places: Vec<(usize, usize)>,
        found: Found,
    }

    impl World {
        fn notify(&mut self, most: usize) -> usize {
            self.waiters.drain(..most.min(self.waiters.len())).count()
        }

        /// The world after one more step of a thread, unless it has to wait.
        fn after(&self, thread: usize, act: Act) -> Option<World> {
            let mut next = self.clone();
            let (acts, step) = self.places[thread];
            let steps = match (act, step) {
                (Act::TimedWait, 0 | 3) | (Act::Add, 0) if self.is_held => return None,
                (Act::TimedWait, 0 | 3) => {
                    next.is_held = true;
                    next.found[thread].push(self.value);
                    5
                }
                (Act::TimedWait, 1) => {
                    next.waiters.push(thread);
                    next.is_held = false;
                    5
                }
                (Act::TimedWait, 2) => {
                    next.waiters.retain(|&waiter| waiter != thread);
                    next.found[thread].push((next.waiters == self.waiters).into());
                    5
                }
                (Act::TimedWait, _) => {
                    next.is_held = false;
                    5
                }
                (Act::Add, 0) => {
                    next.is_held = true;
                    next.value += 1;
                    next.found[thread].push(next.value);
                    3
                }
                (Act::Add, 1) => {
                    let notified = next.notify(1);
                    next.found[thread].push(notified);
                    3
                }
                (Act::Add, _) => {
                    next.is_held = false;
                    3
                }
                (Act::NotifyOne | Act::NotifyAll, _) => {
                    let notified = next.notify(if act == Act::NotifyOne { 1 } else { usize::MAX });
                    next.found[thread].push(notified);
                    1
                }
            };
            next.places[thread] = if step + 1 == steps { (acts + 1, 0) } else { (acts, step + 1) };
            Some(next)
        }
    }

    fn allowed(program: &Program) -> BTreeSet<Found> {
        let start = World {
            is_held: false,
            value: 0,
            waiters: Vec::new(),
            places: vec![(0, 0); program.len()],
            found: vec![Vec::new(); program.len()],
        };
        let (mut open, mut known) = (vec![start], BTreeSet::new());
        let mut ends = BTreeSet::new();
        while let Some(world) = open.pop() {
            if !known.insert(world.clone()) {
                continue;
            }
            let next = |(thread, acts): (usize, &Vec<Act>)| {
                acts.get(world.places[thread].0).map(|&act| world.after(thread, act))
            };
            let next: Vec<_> = program.iter().enumerate().filter_map(next).collect();
            if next.is_empty() {
                ends.insert(world.found);
            }
            open.extend(next.into_iter().flatten());
        }
        ends
    }

    fn check(programs: impl Iterator<Item = Program>) {
        for program in programs {
            let (seen, allowed) = (seen_by_loom(&program), allowed(&program));
            let missing: Vec<_> = allowed.difference(&seen).collect();
            let wrong: Vec<_> = seen.difference(&allowed).collect();
            assert!(missing.is_empty(), "{program:?}: Loom does not see {missing:?}");
            assert!(wrong.is_empty(), "{program:?}: Loom sees {wrong:?}");
        }
    }

    #[test]
    fn two_threads_find_all_that_they_may_and_nothing_else() {
        let pairs = || ACTS.into_iter().flat_map(|first| ACTS.map(|second| vec![first, second]));
        // Which of the two threads does what makes no difference.
        let programs = pairs().enumerate().flat_map(|(number, first)| {
            pairs().skip(number).map(move |second| vec![first.clone(), second])
        });
        check(programs);
    }

    #[test]
    fn three_threads_find_all_that_they_may_and_nothing_else() {
        let pairs = ACTS.into_iter().flat_map(|first| ACTS.map(|second| (first, second)));
        check(pairs.map(|(first, second)| vec![vec![Act::TimedWait], vec![first], vec![second]]));
    }
}
