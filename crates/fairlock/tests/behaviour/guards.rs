//! The guards of all locks: parts of data, owned locks, changes of a hold, guards that were forgotten, and which of
//! them may change threads.

use std::fmt::Debug;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::policy::{PhaseFair, Policy, TimeFair};
use fairlock::{
    ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockUpgradableReadGuard, ArcRwLockWriteGuard,
    MappedMutexGuard, MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, MutexGuard, RwLock,
    RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard, RwSem, RwSemReadGuard,
    RwSemUpgradableReadGuard, RwSemWriteGuard,
};

const SOON: Duration = Duration::from_millis(1);

/// The same tests for both reader-writer locks.
macro_rules! of_both {
    ($($name:ident($lock:ident, $Read:ident, $Write:ident, $Upgradable:ident) $body:block)*) => {
        mod rwlock {
            use super::*;
            $(#[test] fn $name() {
                #[allow(unused_imports)]
                use {RwLock as $lock, RwLockReadGuard as $Read, RwLockWriteGuard as $Write};
                #[allow(unused_imports)]
                use RwLockUpgradableReadGuard as $Upgradable;
                $body
            })*
        }
        mod rwsem {
            use super::*;
            $(#[test] fn $name() {
                #[allow(unused_imports)]
                use {RwSem as $lock, RwSemReadGuard as $Read, RwSemWriteGuard as $Write};
                #[allow(unused_imports)]
                use RwSemUpgradableReadGuard as $Upgradable;
                $body
            })*
        }
    };
}

of_both! {
    a_part_of_the_data_keeps_the_whole_lock(Lock, Read, Write, Upgradable) {
        let lock = Lock::new((1, vec![2, 3]));
        let part = Read::map(lock.read(), |it| &it.1);
        assert!(lock.try_write().is_none() && lock.try_read().is_some());
        let first = fairlock::guard::MappedSharedGuard::map(part, |it| &it[0]);
        assert_eq!((*first, lock.try_write().is_none()), (2, true));
        drop(first);
        let mut part = Write::map(lock.write(), |it| &mut it.1);
        part.push(4);
        assert!(lock.try_read().is_none());
        fairlock::guard::MappedExclusiveGuard::unlock_fair(part);
        assert_eq!(lock.read().1.len(), 3);
    }

    a_part_that_is_not_there_gives_the_guard_back(Lock, Read, Write, Upgradable) {
        let lock = Lock::new(vec![1]);
        let whole = Read::try_map(lock.read(), |it| it.get(7)).expect_err("there is no eighth");
        assert_eq!(whole.len(), 1);
        drop(whole);
        let mut whole = Write::try_map(lock.write(), |it| it.get_mut(7)).expect_err("nor here");
        whole.push(2);
        let second = Write::try_map(whole, |it| it.get_mut(1)).expect("now there is a second");
        assert_eq!(*second, 2);
        drop(second);
        assert!(lock.try_write().is_some());
    }

    why_a_part_is_not_there_comes_with_the_guard(Lock, Read, Write, Upgradable) {
        let lock = Lock::new("7".to_owned());
        let part = Read::try_map_or_err(lock.read(), |it| it.get(..1).ok_or("short"));
        let part = part.expect("one byte");
        let (part, why) = fairlock::guard::MappedSharedGuard::try_map_or_err(part, |it| {
            it.get(1..2).ok_or("no digit")
        }).expect_err("that byte has no second");
        assert_eq!((&*part, why), ("7", "no digit"));
        drop(part);
        let (mut whole, why) = Write::try_map_or_err(lock.write(), |it| match it.len() {
            2 => Ok(it),
            length => Err(length),
        }).expect_err("of another length");
        assert_eq!(why, 1);
        whole.push('8');
        let part = Write::try_map_or_err(whole, |it| it.get_mut(..2).ok_or(())).expect("now");
        let (part, ()) = fairlock::guard::MappedExclusiveGuard::try_map_or_err(part, |it| {
            it.get_mut(3..).ok_or(())
        }).expect_err("beyond its end");
        assert_eq!(&*part, "78");
        assert!(lock.try_read().is_none());
        drop(part);
        assert!(lock.try_write().is_some());
    }

    guards_that_own_their_lock_outlive_its_other_owners(Lock, Read, Write, Upgradable) {
        let lock = Arc::new(Lock::new(String::new()));
        let mut writing = lock.write_arc();
        writing.push('a');
        assert!(lock.try_read_arc().is_none());
        assert!(lock.try_read_arc_for(SOON).is_none() && lock.try_write_arc_for(SOON).is_none());
        let reading = fairlock::guard::ArcExclusiveGuard::downgrade(writing);
        assert_eq!(*lock.try_read_arc_until(Instant::now()).expect("beside a reader"), "a");
        drop(reading);
        let upgradable = lock.upgradable_read_arc();
        assert!(lock.try_upgradable_read_arc().is_none());
        let mut writing = fairlock::guard::ArcUpgradableGuard::upgrade(upgradable);
        drop(lock);
        writing.push('b');
        let lock = fairlock::guard::ArcExclusiveGuard::into_arc(writing);
        assert_eq!(Arc::try_unwrap(lock).expect("the last owner").into_inner(), "ab");
    }

    an_upgrade_waits_for_readers_and_may_give_up(Lock, Read, Write, Upgradable) {
        let lock = Lock::new(1);
        let (upgradable, reader) = (lock.upgradable_read(), lock.try_read().expect("beside it"));
        let upgradable = Upgradable::try_upgrade(upgradable).expect_err("somebody reads");
        let upgradable = Upgradable::try_upgrade_for(upgradable, SOON).expect_err("still");
        let mut upgradable =
            Upgradable::try_upgrade_until(upgradable, Instant::now()).expect_err("still");
        drop(reader);
        upgradable.with_upgraded(|it| *it += 1);
        assert_eq!((*upgradable, *lock.try_read().expect("upgradable again")), (2, 2));
        let writer = Upgradable::try_upgrade(upgradable).expect("nobody reads");
        let upgradable = Write::downgrade_to_upgradable(writer);
        let reader = Upgradable::downgrade(upgradable);
        assert!(lock.try_upgradable_read().is_some());
        Read::unlock_fair(reader);
    }

    a_change_by_an_upgrade_happens_only_if_the_upgrade_succeeds(Lock, Read, Write, Upgradable) {
        let lock = Arc::new(Lock::new(1));
        let (mut guard, reader) = (lock.upgradable_read(), lock.try_read().expect("beside it"));
        assert!(guard.try_with_upgraded(|it| *it = 9).is_none());
        assert!(guard.try_with_upgraded_for(SOON, |it| *it = 9).is_none());
        assert!(guard.try_with_upgraded_until(Instant::now(), |it| *it = 9).is_none());
        drop(reader);
        assert_eq!((*guard, guard.try_with_upgraded(|it| *it += 1)), (1, Some(())));
        assert!(guard.try_with_upgraded_for(SOON, |it| *it += 1).is_some());
        let panics = || guard.try_with_upgraded(|_| panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(lock.try_read().is_some() && lock.try_upgradable_read().is_none());
        drop(guard);

        let (mut guard, reader) = (lock.upgradable_read_arc(), lock.try_read().expect("beside it"));
        assert!(guard.try_with_upgraded(|it| *it = 9).is_none());
        assert!(guard.try_with_upgraded_for(SOON, |it| *it = 9).is_none());
        drop(reader);
        guard.with_upgraded(|it| *it += 1);
        assert!(guard.try_with_upgraded_until(Instant::now(), |it| *it += 1).is_some());
        assert!(lock.try_read().is_some() && lock.try_upgradable_read().is_none());
        assert_eq!(*guard, 5);
    }

    a_panic_within_an_upgrade_leaves_an_upgradable_guard(Lock, Read, Write, Upgradable) {
        let lock = Lock::new(1);
        let mut guard = lock.upgradable_read();
        let panics = || guard.with_upgraded(|_| panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(lock.try_read().is_some() && lock.try_upgradable_read().is_none());
        drop(guard);
        assert!(lock.try_write().is_some());
    }

    others_come_in_while_a_guard_is_unlocked_also_if_that_panics(Lock, Read, Write, Upgradable) {
        let lock = Lock::new(1);
        let mut writer = lock.write();
        Write::unlocked(&mut writer, || *lock.write() += 1);
        Write::unlocked_fair(&mut writer, || *lock.write() += 1);
        let panics = || Write::unlocked(&mut writer, || panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(*writer, 3);
        assert!(lock.try_read().is_none(), "locked again");
        Write::bump(&mut writer);
        let mut reader = Write::downgrade(writer);
        Read::unlocked(&mut reader, || *lock.write() += 1);
        Read::bump(&mut reader);
        assert_eq!(*reader, 4);
        assert!(lock.try_write().is_none(), "locked again");
        drop(reader);
        let mut upgradable = lock.upgradable_read();
        Upgradable::unlocked(&mut upgradable, || *lock.write() += 1);
        Upgradable::unlocked_fair(&mut upgradable, || *lock.write() += 1);
        Upgradable::bump(&mut upgradable);
        assert_eq!(*upgradable, 6);
        assert!(lock.try_upgradable_read().is_none(), "locked again");
        assert!(lock.try_read().is_some(), "as before");
    }

    guards_that_own_their_lock_are_unlocked_for_a_while(Lock, Read, Write, Upgradable) {
        use fairlock::guard::{ArcExclusiveGuard, ArcSharedGuard, ArcUpgradableGuard};
        let lock = Arc::new(Lock::new(1));
        let mut writer = lock.write_arc();
        ArcExclusiveGuard::unlocked(&mut writer, || *lock.write() += 1);
        let panics = || ArcExclusiveGuard::unlocked_fair(&mut writer, || panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        ArcExclusiveGuard::bump(&mut writer);
        assert!(lock.try_read().is_none(), "locked again");
        assert!(Arc::ptr_eq(&ArcExclusiveGuard::into_arc_fair(writer), &lock));
        let mut reader = lock.read_arc();
        ArcSharedGuard::unlocked(&mut reader, || *lock.write() += 1);
        assert!(lock.try_write().is_none(), "locked again");
        assert!(Arc::ptr_eq(&ArcSharedGuard::into_arc_fair(reader), &lock));
        let mut upgradable = lock.upgradable_read_arc();
        ArcUpgradableGuard::unlocked(&mut upgradable, || *lock.write() += 1);
        assert_eq!(*upgradable, 4);
        assert!(lock.try_upgradable_read().is_none(), "locked again");
        assert!(Arc::ptr_eq(&ArcUpgradableGuard::into_arc_fair(upgradable), &lock));
        assert!(!lock.is_locked());
    }

    a_guard_that_was_forgotten_can_be_made_again(Lock, Read, Write, Upgradable) {
        let lock = Lock::new(1);
        for times in [1, 1000] {
            // By the semaphore, and where there are slots, by them.
            (0..times).for_each(|_| drop(lock.read()));
            forget(lock.read());
            forget(lock.try_read().expect("beside the first"));
            assert!(lock.try_write().is_none());
            // SAFETY: two reads were forgotten above.
            unsafe {
                assert_eq!(*lock.make_read_guard_unchecked(), 1);
                assert!(lock.try_write().is_none(), "one is left");
                lock.force_unlock_read();
            }
            forget(lock.write());
            assert!(lock.try_read().is_none());
            // SAFETY: the write was forgotten above.
            unsafe { lock.force_unlock_write() };
            forget(lock.read());
            // SAFETY: the read was forgotten above.
            unsafe { lock.force_unlock_read_fair() };
            forget(lock.write());
            // SAFETY: the write was forgotten above.
            unsafe { lock.force_unlock_write_fair() };
            forget(lock.upgradable_read());
            // SAFETY: the upgradable read was forgotten above.
            drop(Upgradable::upgrade(unsafe { lock.make_upgradable_guard_unchecked() }));
            assert!(!lock.is_locked());
        }
    }

    values_are_copied_and_replaced_as_in_std(Lock, Read, Write, Upgradable) {
        let mut lock = Lock::from(vec![1]);
        assert_eq!(lock.replace(vec![2]), [1]);
        lock.set(vec![3]);
        assert_eq!(lock.get_cloned(), [3]);
        lock.get_mut().push(4);
        assert_eq!(lock.into_inner(), [3, 4]);
        assert_eq!(*Lock::<u32>::default().read(), 0);
    }

    a_lock_shows_its_data_unless_somebody_writes(Lock, Read, Write, Upgradable) {
        let lock = Lock::new(7);
        let shown = |what: &dyn Debug| format!("{what:?}");
        assert!(shown(&lock).ends_with("{ data: 7 }"));
        let guard = lock.write();
        assert!(shown(&lock).ends_with("{ data: <locked> }"));
        assert_eq!((shown(&guard), guard.to_string()), ("7".to_owned(), "7".to_owned()));
    }

    data_without_a_size_can_be_locked(Lock, Read, Write, Upgradable) {
        let lock: Arc<Lock<[u8]>> = Arc::new(Lock::new([1, 2]));
        lock.write_arc()[1] = 3;
        let shown: Box<Lock<dyn Debug + Send>> = Box::new(Lock::new(5));
        assert_eq!((lock.read()[1], format!("{:?}", &*shown.read())), (3, "5".to_owned()));
    }
}

#[test]
fn a_mutex_has_parts_owners_and_forgotten_guards_too() {
    let lock = Arc::new(Mutex::new((1, 2)));
    let mut part: MappedMutexGuard<'_, _> = MutexGuard::map(lock.lock(), |it| &mut it.0);
    *part = 5;
    assert!(lock.try_lock().is_none());
    drop(part);
    let owned: ArcMutexGuard<_> = lock.lock_arc();
    assert!(lock.try_lock_arc().is_none() && lock.try_lock_arc_for(SOON).is_none());
    forget(owned);
    // SAFETY: forgotten above, and with it an `Arc`, which is dropped here.
    unsafe {
        lock.force_unlock();
        Arc::decrement_strong_count(Arc::as_ptr(&lock));
    }
    forget(lock.lock());
    // SAFETY: forgotten above.
    unsafe { lock.force_unlock_fair() };
    assert_eq!(lock.get_cloned(), (5, 2));
    let mut owned = lock.lock_arc();
    ArcMutexGuard::unlocked(&mut owned, || lock.set((5, 3)));
    assert_eq!((*owned, lock.is_locked()), ((5, 3), true));
    assert!(Arc::ptr_eq(&ArcMutexGuard::into_arc_fair(owned), &lock));
    let mut guard = lock.lock();
    MutexGuard::unlocked(&mut guard, || lock.set((6, 6)));
    assert_eq!((*guard, lock.is_locked()), ((6, 6), true));
    MutexGuard::bump(&mut guard);
    *MutexGuard::leak(guard) = (7, 7);
    assert!(lock.try_lock().is_none());
}

#[test]
fn an_rwsem_is_read_within_a_read_past_a_writer_that_waits() {
    let lock = RwSem::new(1);
    let outer = lock.read();
    thread::scope(|scope| {
        let writer = scope.spawn(|| *lock.write() += 1);
        while lock.try_read().is_some() {
            thread::yield_now();
        }
        let inner = lock.read_recursive();
        let third = lock.try_read_recursive().expect("this thread reads it");
        assert!(lock.try_read_recursive_for(SOON).is_some());
        drop(outer);
        assert!(lock.try_write().is_none());
        assert_eq!((*inner, *third), (1, 1));
        drop((inner, third));
        writer.join().expect("it got its turn");
    });
    assert_eq!(*lock.read(), 2);
    let writer = lock.write();
    assert!(lock.try_read_recursive().is_none());
    assert!(lock.try_read_recursive_until(Instant::now()).is_none());
    drop(writer);
}

#[test]
fn an_rwsem_is_read_within_a_read_past_an_upgrade_that_waits() {
    fn check<Pol: Policy + Send + Sync>() {
        let lock: RwSem<u32, Pol> = RwSem::with_policy(1);
        let outer = lock.read();
        thread::scope(|scope| {
            let upgrader = scope.spawn(|| lock.upgradable_read().with_upgraded(|it| *it += 1));
            while lock.try_read().is_some() {
                thread::yield_now();
            }
            let inner = lock.read_recursive();
            let third = lock.try_read_recursive().expect("this thread reads it");
            drop(outer);
            assert_eq!((*inner, *third), (1, 1));
            drop((inner, third));
            upgrader.join().expect("it got its turn");
        });
        assert_eq!(*lock.read(), 2);
    }
    check::<TimeFair>();
    check::<PhaseFair>();
}

#[test]
fn a_guard_that_owns_an_rwsem_reads_it_within_a_read() {
    let lock = Arc::new(RwSem::new(1));
    let outer = lock.read_arc();
    let inner = lock.read_arc_recursive();
    let more = [
        lock.try_read_arc_recursive(),
        lock.try_read_arc_recursive_for(SOON),
        lock.try_read_arc_recursive_until(Instant::now()),
    ];
    drop(outer);
    assert!(
        more.iter().flatten().chain([&inner]).all(|it| **it == 1)
            && more.iter().all(Option::is_some)
    );
    assert!(lock.try_write_arc().is_none());
    drop((inner, more));
    assert!(lock.try_write_arc().is_some());
}

#[test]
fn forgotten_guards_that_own_their_lock_are_made_again() {
    let (lock, mutex) = (Arc::new(RwLock::new(1)), Arc::new(Mutex::new(1)));
    // SAFETY: a guard of the same kind is forgotten each time, by this thread.
    unsafe {
        forget(lock.read());
        drop(lock.make_arc_read_guard_unchecked());
        forget(lock.write());
        *lock.make_arc_write_guard_unchecked() += 1;
        forget(lock.upgradable_read());
        drop(lock.make_upgradable_arc_guard_unchecked());
        forget(mutex.lock());
        *mutex.make_arc_guard_unchecked() += 1;
    }
    assert_eq!((*lock.try_write().expect("free"), *mutex.try_lock().expect("free")), (2, 2));
}

#[test]
fn a_read_guard_beside_another_of_its_thread_keeps_its_hold() {
    if !cfg!(debug_assertions) || cfg!(feature = "send_guard") {
        return; // Nobody looks.
    }
    let lock = RwSem::new(1);
    let outer = lock.read();
    let mut inner = lock.read_recursive();
    let bump = || RwSemReadGuard::bump(&mut inner);
    let said = catch_unwind(AssertUnwindSafe(bump)).expect_err("a writer could come in between");
    let said = said.downcast_ref::<String>().expect("a message");
    assert!(said.contains("a read within a read"), "{said}");
    assert!(lock.try_write().is_none());
    drop(outer);
    RwSemReadGuard::bump(&mut inner);
    assert!(lock.try_write().is_none());
    drop(inner);
    assert!(lock.try_write().is_some());
}

#[test]
fn a_lock_that_a_guard_has_acquired_again_was_acquired_at_that_line() {
    if !cfg!(debug_assertions) {
        return; // Nobody remembers.
    }
    let lock = Mutex::new(1);
    let mut guard = lock.lock();
    for panics in [false, true] {
        let line = line!() + 2;
        let unlocked = || {
            MutexGuard::unlocked(&mut guard, || assert!(!panics, "on purpose"));
        };
        assert_eq!(catch_unwind(AssertUnwindSafe(unlocked)).is_err(), panics);
        let said = catch_unwind(AssertUnwindSafe(|| drop(lock.lock()))).expect_err("locked twice");
        let said = said.downcast_ref::<String>().expect("a message");
        assert!(said.contains(&format!("{}:{line}:", file!())), "{said}");
    }
}

#[test]
fn a_guard_that_cannot_have_its_lock_back_ends_the_process() {
    const HERE: &str = "FAIRLOCK_TEST_ENDS_HERE";
    if !cfg!(debug_assertions) {
        return; // It waits for itself for ever.
    }
    if std::env::var_os(HERE).is_some() {
        let lock = RwSem::new(());
        let mut guard = lock.read();
        RwSemReadGuard::unlocked(&mut guard, || forget(lock.write()));
        return;
    }
    // A process of its own, as that ends.
    let name = "guards::a_guard_that_cannot_have_its_lock_back_ends_the_process";
    let program = std::env::current_exe().expect("this program has a name");
    let ended = std::process::Command::new(program)
        .args(["--exact", name, "--nocapture"])
        .env(HERE, "yes")
        .output()
        .expect("it can be started");
    assert!(!ended.status.success());
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("a read within a write"), "{said}");
}

/// Accepted only if type arguments are those of lock_api, in its order.
fn _type_arguments_are_written_as_for_lock_api(lock: &RwLock<String>, mutex: &Mutex<String>) {
    let text: MappedRwLockReadGuard<'_, str> = RwLockReadGuard::map::<str, _>(lock.read(), |it| it);
    drop(text);
    let mut guard = mutex.lock();
    MutexGuard::unlocked::<_, ()>(&mut guard, || ());
    let _: Result<MappedMutexGuard<'_, str>, _> = MutexGuard::try_map::<str, _>(guard, |_| None);
}

/// Accepted only if guards are covariant where they give shared access.
fn _shared_guards_are_covariant<'short>(
    plain: RwLockReadGuard<'short, &'static str>,
    part: MappedRwLockReadGuard<'short, &'static str>,
    sem: RwSemReadGuard<'static, &'static str>,
) -> (
    RwLockReadGuard<'short, &'short str>,
    MappedRwLockReadGuard<'short, &'short str>,
    RwSemReadGuard<'short, &'short str>,
) {
    (plain, part, sem)
}

fn _guards_can_be_shared() {
    fn is_sync<T: Sync>() {}
    is_sync::<RwLockReadGuard<'_, u8>>();
    is_sync::<RwLockWriteGuard<'_, u8>>();
    is_sync::<RwLockUpgradableReadGuard<'_, u8>>();
    is_sync::<MappedRwLockWriteGuard<'_, u8>>();
    is_sync::<MutexGuard<'_, u8>>();
    is_sync::<ArcMutexGuard<u8>>();
    is_sync::<ArcRwLockReadGuard<u8>>();
    is_sync::<ArcRwLockWriteGuard<u8>>();
    is_sync::<ArcRwLockUpgradableReadGuard<u8>>();
}

#[test]
fn an_upgradable_reader_reads_beside_readers_and_alone_of_its_kind() {
    fn alone<Pol: Policy>() {
        let lock = RwSem::<(), Pol>::with_policy(());
        let reader = lock.read();
        let upgradable = lock.try_upgradable_read().expect("readers do not mind");
        assert!(lock.try_upgradable_read().is_none());
        assert!(lock.try_write().is_none());
        drop(reader);
        drop(upgradable);
        assert!(lock.try_write().is_some());
    }
    alone::<PhaseFair>();
    alone::<TimeFair>();
}

#[test]
#[cfg(debug_assertions)]
fn a_recursive_read_is_reported_in_debug_builds() {
    let lock = RwSem::new(());
    let _guard = lock.read();
    let second = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lock.read())));
    let message = second.expect_err("reported before it can deadlock");
    let message = message.downcast_ref::<String>().expect("a message");
    assert!(message.contains("a read within a read"), "{message}");
    assert!(lock.try_read().is_some(), "try_read is allowed");
}

#[test]
fn a_lock_is_no_larger_than_a_cache_line() {
    // For the checks for deadlocks it has a number, too.
    let is_checked = cfg!(any(debug_assertions, feature = "deadlock_detection"));
    let number = if is_checked { size_of::<usize>() } else { 0 };
    assert!(size_of::<RwSem<()>>() <= 64 + number);
}
