//! What Cargo features add: `cargo test -p fairlock --test features --all-features`.

#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64"
))]
#[path = "features/recorded.rs"]
mod recorded;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use fairlock::{
    Condvar, Mutex, ReentrantMutex, ReentrantMutexGuard, RwLock, RwSem, RwSemReadGuard, deadlock,
};

const SOON: Duration = Duration::from_millis(1);

// ---- send_guard ----

#[test]
fn what_an_rwsem_gives_out_may_be_dropped_by_another_thread() {
    let lock = Arc::new(RwSem::new(1));
    let drops = |guard: Box<dyn Send + '_>| thread::scope(|scope| _ = scope.spawn(|| drop(guard)));
    drops(Box::new(lock.read()));
    drops(Box::new(lock.write()));
    drops(Box::new(lock.upgradable_read()));
    drops(Box::new(lock.write_arc()));
    drops(Box::new(RwSemReadGuard::map(lock.read(), |it| it)));
    assert!(!lock.is_locked());
}

#[test]
fn a_thread_may_wait_for_a_guard_that_it_has_sent_away() {
    let lock = RwSem::new(1);
    let guard = lock.write();
    thread::scope(|scope| {
        let sent = scope.spawn(move || {
            let mut guard = guard;
            *guard += 1;
        });
        assert_eq!(*lock.read(), 2);
        sent.join().expect("no panic");
    });
}

// ---- serde ----

#[test]
fn a_lock_is_serialized_as_what_it_protects() {
    let text = |json: serde_json::Result<String>| json.expect("it can be written");
    assert_eq!(text(serde_json::to_string(&RwLock::new(vec![1, 2]))), "[1,2]");
    assert_eq!(text(serde_json::to_string(&RwSem::new("a"))), "\"a\"");
    assert_eq!(text(serde_json::to_string(&Mutex::new(Some(3)))), "3");
    assert_eq!(text(serde_json::to_string(&ReentrantMutex::new(4))), "4");
    let lock: ReentrantMutex<u8> = serde_json::from_str("6").expect("it can be read");
    assert_eq!(*lock.lock(), 6);
    let lock: RwLock<Vec<u8>> = serde_json::from_str("[4]").expect("it can be read");
    assert_eq!(*lock.read(), [4]);
    let lock: Mutex<u8> = serde_json::from_str("5").expect("it can be read");
    assert_eq!(*lock.lock(), 5);
    assert!(serde_json::from_str::<RwSem<u8>>("\"no number\"").is_err());
}

// ---- lock_api ----

#[test]
fn a_lock_that_was_tried_by_lock_api_was_acquired_at_that_line() {
    let lock = fairlock::lock_api::Mutex::<fairlock::RawMutex, _>::new(1);
    let (line, guard) = (line!(), lock.try_lock());
    let again = || drop(lock.lock());
    let said = catch_unwind(AssertUnwindSafe(again)).expect_err("locked twice");
    let said = said.downcast_ref::<String>().expect("a message");
    assert!(said.contains(&format!("{}:{line}:", file!())), "{said}");
    drop(guard);
}

/// The same for both versions of lock_api, but for what only one has.
macro_rules! lock_api_locks_and_unlocks {
    ($($name:ident($api:ident, $raw:ty);)*) => {$(
        #[test]
        fn $name() {
            use fairlock::$api::{RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
            let lock = Arc::new(RwLock::<$raw, _>::new(0));
            // Often enough that readers use slots, where there are some.
            for _ in 0..1_000 {
                let first = lock.read();
                let second = lock.try_read().expect("nobody writes");
                assert!(lock.try_write().is_none() && lock.try_write_for(SOON).is_none());
                drop(first);
                assert!(lock.try_write().is_none(), "the second read");
                RwLockReadGuard::unlock_fair(second);
            }
            let guard = lock.write();
            assert!(lock.try_read().is_none() && lock.is_locked_exclusive());
            let upgradable = RwLockWriteGuard::downgrade_to_upgradable(guard);
            assert!(lock.try_read().is_some() && lock.try_upgradable_read().is_none());
            let mut guard = RwLockUpgradableReadGuard::upgrade(upgradable);
            *guard += 1;
            assert_eq!(*RwLockWriteGuard::downgrade(guard), 1);
            assert!(!lock.is_locked());
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..500).for_each(|_| {
                        *lock.write() += 1;
                        assert!(*lock.read() > 0);
                    }));
                }
            });
            assert_eq!(*lock.read_arc(), 2001);
        }
    )*};
}

lock_api_locks_and_unlocks! {
    rwlock_behind_0_5(lock_api, fairlock::rwlock::RawRwLock);
    rwsem_behind_0_5(lock_api, fairlock::rwsem::RawRwSem<fairlock::policy::TimeFair>);
    rwlock_behind_0_4(lock_api_04, fairlock::rwlock::RawRwLock);
    rwsem_behind_0_4(lock_api_04, fairlock::rwsem::RawRwSem<fairlock::policy::TimeFair>);
}

#[test]
fn behind_lock_api_0_4_both_locks_are_read_within_a_read_past_a_writer() {
    fn within<R: fairlock::lock_api_04::RawRwLockRecursive + Send + Sync>() {
        let lock = fairlock::lock_api_04::RwLock::<R, _>::new(0);
        for reads in [1, 1_000] {
            (0..reads).for_each(|_| drop(lock.read()));
            let outer = lock.read();
            thread::scope(|scope| {
                let writer = scope.spawn(|| *lock.write() += 1);
                // Asked by another thread, as one that reads in a slot reads again in any case.
                while scope.spawn(|| lock.try_read().is_some()).join().expect("no panic") {
                    thread::yield_now();
                }
                let inner = lock.read_recursive();
                drop(outer);
                assert!(lock.try_write().is_none(), "the inner one still reads");
                drop(inner);
                writer.join().expect("it got its turn");
            });
        }
        assert_eq!(*lock.read(), 2);
    }
    within::<fairlock::rwlock::RawRwLock>();
    within::<fairlock::rwsem::RawRwSem<fairlock::policy::TimeFair>>();
}

#[test]
fn a_mutex_works_behind_both_versions() {
    type Raw = fairlock::mutex::RawMutex;
    let (new, old) = (
        fairlock::lock_api::Mutex::<Raw, _>::new(1),
        fairlock::lock_api_04::Mutex::<Raw, _>::new(1),
    );
    let (one, other) = (new.lock(), old.lock());
    assert!(new.try_lock().is_none() && old.try_lock().is_none());
    assert!(new.try_lock_for(SOON).is_none() && old.try_lock_for(SOON).is_none());
    drop((one, other));
    assert!(new.try_lock().is_some() && old.try_lock().is_some());
}

// ---- deadlock_detection ----

#[test]
fn threads_that_wait_for_each_other_are_found_with_what_they_hold() {
    static ACCOUNTS: RwLock<u32> = RwLock::new(0);
    static JOURNAL: Mutex<u32> = Mutex::new(0);
    static BOTH_HOLD_ONE: Barrier = Barrier::new(2);
    let spawn = |name: &str, body: fn()| {
        thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread")
    };
    spawn("transfer", || {
        let _accounts = ACCOUNTS.write();
        BOTH_HOLD_ONE.wait();
        drop(JOURNAL.lock());
    });
    spawn("audit", || {
        let _journal = JOURNAL.lock();
        BOTH_HOLD_ONE.wait();
        drop(ACCOUNTS.read());
    });
    let threads = loop {
        let found = deadlock::check_deadlock();
        let ours =
            found.into_iter().find(|cycle| cycle.iter().any(|it| it.name() == Some("audit")));
        if let Some(threads) = ours {
            break threads;
        }
        thread::yield_now();
    };
    assert_eq!(threads.len(), 2);
    for thread in &threads {
        assert_eq!(thread.holds().len(), 1);
        assert!(thread.waits_for().location().file().ends_with("features.rs"));
        assert!(thread.holds()[0].location().file().ends_with("features.rs"));
    }
    let cycles = deadlock::lock_order_cycles();
    assert!(!cycles.is_empty(), "the orders are opposite, too");
}

#[test]
fn locks_are_shown_under_the_names_that_users_write() {
    let (lock, mutex, reentrant) = (RwLock::new(1), Mutex::new(1), ReentrantMutex::new(1));
    let forth = || {
        let _lock = lock.write();
        let _mutex = mutex.lock();
        drop(reentrant.lock());
    };
    let back = || {
        let _reentrant = reentrant.lock();
        drop(mutex.lock());
        drop(lock.write());
    };
    for (name, body) in [("shows forth", &forth as &(dyn Fn() + Sync)), ("shows back", &back)] {
        thread::scope(|scope| {
            let thread = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, body);
            thread.expect("a thread").join().expect("no panic");
        });
    }
    let cycles = deadlock::lock_order_cycles();
    let steps = cycles.iter().flat_map(|cycle| cycle.steps());
    let forth = steps.filter(|step| step.thread_name() == "shows forth");
    let text = |it: &deadlock::Acquisition| it.to_string();
    let held_and_asked: Vec<_> =
        forth.map(|step| [text(step.held()), text(step.asked())]).collect();
    let is_shown = |held: &str, asked: &str| {
        held_and_asked.iter().any(|it| it[0].starts_with(held) && it[1].starts_with(asked))
    };
    assert_eq!(held_and_asked.len(), 2, "{held_and_asked:?}");
    assert!(is_shown("RwLock 0x", "Mutex 0x"), "{held_and_asked:?}");
    assert!(is_shown("Mutex 0x", "Mutex 0x"), "{held_and_asked:?}");
}

/// Runs this test again, in a process of its own, in which this is true.
fn is_in_own_process(test: &str) -> bool {
    const IS_CHILD: &str = "FAIRLOCK_TEST_IS_IN_OWN_PROCESS";
    if std::env::var_os(IS_CHILD).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("this program");
    let mut child = std::process::Command::new(program);
    let output = child.args(["--exact", test]).env(IS_CHILD, "1").output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    false
}

/// In a process of its own, because other tests would search among these cycles as well.
#[test]
fn short_cycles_are_found_beside_more_long_ones_than_can_be_searched() {
    if !is_in_own_process("short_cycles_are_found_beside_more_long_ones_than_can_be_searched") {
        return;
    }
    const LOCKS: usize = 40;
    let locks = [const { Mutex::new(()) }; LOCKS];
    let pairs = || {
        for (at, one) in locks.iter().enumerate() {
            for other in &locks[at + 1..] {
                let _one = one.lock();
                drop(other.lock());
            }
        }
    };
    // With the last one before the first, any locks between are in a cycle with these.
    let back = || {
        let _last = locks[LOCKS - 1].lock();
        drop(locks[0].lock());
    };
    for _ in 0..8 {
        thread::scope(|scope| _ = scope.spawn(pairs));
    }
    assert!(deadlock::lock_order_cycles().is_empty());
    thread::scope(|scope| _ = scope.spawn(back));
    let found = deadlock::lock_order_cycles();
    let of_length = |length| found.iter().filter(|it| it.steps().len() == length).count();
    assert_eq!(found[0].steps().len(), 2, "the shortest comes first");
    assert_eq!([2, 3, 4].map(of_length), [1, LOCKS - 2, (LOCKS - 2) * (LOCKS - 3) / 2]);
    assert_eq!([5, 6, 7, 8].map(of_length), [1_000; 4], "there are more");
}

/// In a process of its own, because no other test would find anything afterwards.
#[test]
fn orders_beyond_those_that_are_noted_are_admitted() {
    if !is_in_own_process("orders_beyond_those_that_are_noted_are_admitted") {
        return;
    }
    let one = Mutex::new(0);
    let again = |count| {
        for _ in 0..count {
            let other = Mutex::new(0);
            let _one = one.lock();
            drop(other.lock());
        }
    };
    again(1 << 14);
    assert!(deadlock::knows_all_lock_orders());
    again(1);
    assert!(!deadlock::knows_all_lock_orders());
}

#[test]
fn a_deadlock_does_not_hide_another_one() {
    static LOCKS: [Mutex<u32>; 3] = [const { Mutex::new(0) }; 3];
    static READ: RwLock<u32> = RwLock::new(0);
    static ALL_HOLD: Barrier = Barrier::new(4);
    let spawn = |name: &str, body: fn()| {
        thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread")
    };
    spawn("one", || {
        let _held = (READ.read(), LOCKS[0].lock());
        ALL_HOLD.wait();
        drop(LOCKS[1].lock());
    });
    spawn("other", || {
        let _held = LOCKS[1].lock();
        ALL_HOLD.wait();
        drop(LOCKS[0].lock());
    });
    spawn("reader", || {
        let _held = READ.read();
        ALL_HOLD.wait();
        drop(LOCKS[2].lock());
    });
    // It waits for both readers, of which only one waits for it.
    spawn("writer", || {
        let _held = LOCKS[2].lock();
        ALL_HOLD.wait();
        drop(READ.write());
    });
    let is_found = |names: [&str; 2]| {
        let is_it =
            |it: &deadlock::DeadlockedThread| names.iter().any(|name| it.name() == Some(name));
        deadlock::check_deadlock().iter().any(|cycle| cycle.len() == 2 && cycle.iter().all(is_it))
    };
    while !(is_found(["one", "other"]) && is_found(["reader", "writer"])) {
        thread::yield_now();
    }
}

#[test]
fn a_reentrant_mutex_takes_part_in_deadlocks_however_often_its_thread_holds_it() {
    static AGAIN: ReentrantMutex<()> = ReentrantMutex::new(());
    static PLAIN: Mutex<()> = Mutex::new(());
    static BOTH_HOLD_ONE: Barrier = Barrier::new(2);
    let spawn = |name: &str, body: fn()| {
        thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread")
    };
    spawn("enters", || {
        let _held = (AGAIN.lock(), AGAIN.lock());
        drop(AGAIN.lock());
        BOTH_HOLD_ONE.wait();
        drop(PLAIN.lock());
    });
    spawn("plain", || {
        let _held = PLAIN.lock();
        BOTH_HOLD_ONE.wait();
        drop(AGAIN.lock());
    });
    let threads = loop {
        let found = deadlock::check_deadlock();
        let ours =
            found.into_iter().find(|threads| threads.iter().any(|it| it.name() == Some("enters")));
        if let Some(threads) = ours {
            break threads;
        }
        thread::yield_now();
    };
    assert_eq!(threads.len(), 2);
    for thread in &threads {
        assert_eq!(thread.holds().len(), 1);
        assert!(thread.waits_for().location().file().ends_with("features.rs"));
        assert!(thread.holds()[0].location().file().ends_with("features.rs"));
    }
}

#[test]
fn a_thread_that_enters_a_reentrant_mutex_again_makes_no_lock_order() {
    let (again, plain) = (ReentrantMutex::new(()), Mutex::new(()));
    let run = |name: &str, body: &(dyn Fn() + Sync)| {
        thread::scope(|scope| {
            let thread = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, body);
            thread.expect("a thread").join().expect("no panic");
        });
    };
    let cycles = || {
        let of_test =
            |step: &deadlock::OrderStep| ["re-enters", "in turn"].contains(&step.thread_name());
        let found = deadlock::lock_order_cycles().into_iter();
        found.filter(|cycle| cycle.steps().iter().any(of_test)).count()
    };
    let in_turn = || {
        let (first, second) = (again.lock(), again.lock());
        drop((first, second));
        ReentrantMutexGuard::unlock_fair(again.lock());
        drop(plain.lock());
    };
    let back = || {
        let _plain = plain.lock();
        drop(again.lock());
    };
    run("in turn", &in_turn);
    run("back", &back);
    assert_eq!(cycles(), 0, "it did not hold the one when it asked for the other");
    let (other, behind) = (ReentrantMutex::new(()), Mutex::new(()));
    let re_enters = || {
        let _first = other.lock();
        let _behind = behind.lock();
        drop(other.lock());
    };
    run("re-enters", &re_enters);
    run("re-enters", &re_enters);
    assert_eq!(cycles(), 0, "the second time it does not wait");
    run("back", &|| {
        let _behind = behind.lock();
        drop(other.lock());
    });
    assert_eq!(cycles(), 1);
}

#[test]
fn a_thread_that_waits_for_a_condition_is_no_part_of_a_deadlock() {
    let (mutex, changed) = (Mutex::new(false), Condvar::new());
    let again = ReentrantMutex::new(());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut is_done = mutex.lock();
            let _held = again.lock();
            changed.wait_while(&mut is_done, |is_done| !*is_done);
        });
        while again.try_lock().is_some() {
            thread::yield_now();
        }
        let mut is_done = mutex.lock();
        let waiting = deadlock::check_deadlock();
        let of_this = |it: &deadlock::DeadlockedThread| it.name().is_none();
        assert!(!waiting.iter().flatten().any(of_this), "{waiting:?}");
        *is_done = true;
        drop(is_done);
        changed.notify_all();
    });
}
