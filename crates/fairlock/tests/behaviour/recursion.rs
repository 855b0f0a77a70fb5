//! Debug builds say that a thread reads within a read, where it would deadlock if a writer came in between, or
//! writes within a read, and where; and say so of no lock that the thread does not hold.

use std::hint::black_box;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use fairlock::events::Event;
use fairlock::platform::Counting;
use fairlock::{Mutex, RwLock, RwLockUpgradableReadGuard, RwSem};

/// Whether a read is refused as one within another.
fn is_reported<T>(lock: &RwLock<T>) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(lock.read()))).is_err()
}

#[test]
fn a_read_within_a_read_is_reported() {
    let (lock, other) = (RwLock::new(1), RwLock::new(2));
    for times in [1, 300] {
        // By the semaphore, and by slots.
        (0..times).for_each(|_| drop(lock.read()));
        let guard = lock.read();
        assert_eq!(is_reported(&lock), cfg!(debug_assertions));
        assert!(!is_reported(&other));
        drop(guard);
        assert!(!is_reported(&lock), "it has left");
    }
    let guard = lock.upgradable_read();
    assert_eq!(is_reported(&lock), cfg!(debug_assertions));
    drop(guard);
}

#[test]
fn a_lock_that_is_moved_with_a_forgotten_guard_is_still_known() {
    let lock = RwLock::new(1);
    forget(lock.read());
    let elsewhere = black_box(Box::new(lock));
    assert_eq!(is_reported(&elsewhere), cfg!(debug_assertions));
}

#[test]
fn a_new_lock_where_one_was_dropped_whose_guard_was_forgotten_is_another() {
    let mut place = Some(RwLock::new(1));
    for value in 2..10 {
        forget(place.as_ref().expect("filled").read());
        place = Some(RwLock::new(value));
        assert_eq!(*black_box(&place).as_ref().expect("filled").read(), value);
    }
}

#[test]
fn a_new_lock_where_one_was_moved_away_is_another_also_while_others_read() {
    let mut place = Some(Arc::new(RwLock::new(1)));
    let mut moved = Vec::new();
    for value in 2..10 {
        // The lock itself moves out of its memory, and a new one in.
        let lock = place.as_mut().expect("filled");
        forget(lock.read());
        let old = std::mem::replace(Arc::get_mut(lock).expect("alone"), RwLock::new(value));
        moved.push(old);
        let (there, over) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let guard = lock.read();
                there.wait();
                over.wait();
                drop(guard);
            });
            there.wait();
            let again = !is_reported(lock);
            over.wait();
            assert!(again, "another thread reads it, this one does not");
        });
    }
    assert!(moved.iter().all(|lock| lock.try_write().is_none()), "forgotten guards");
}

#[test]
fn a_new_semaphore_where_one_was_dropped_whose_guard_was_forgotten_is_another() {
    let mut place = Some(RwSem::new(1));
    for value in 2..10 {
        forget(place.as_ref().expect("filled").read());
        place = Some(RwSem::new(value));
        assert_eq!(*black_box(&place).as_ref().expect("filled").read(), value);
    }
}

#[test]
fn a_new_semaphore_where_one_was_dropped_is_another_also_while_others_read() {
    let mut place = Some(RwSem::new(1));
    forget(place.as_ref().expect("filled").read());
    place = Some(RwSem::new(2));
    let lock = black_box(&place).as_ref().expect("filled");
    let (there, over) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = lock.read();
            there.wait();
            over.wait();
            drop(guard);
        });
        there.wait();
        let read = catch_unwind(AssertUnwindSafe(|| *lock.read()));
        over.wait();
        assert_eq!(read.expect("this thread does not hold it"), 2);
    });
}

#[test]
fn a_new_mutex_where_one_was_dropped_is_another_also_while_others_hold_it() {
    // On a platform that counts how often threads sleep.
    let new = |value| Some(Mutex::<u8, Counting>::new_in(value));
    let mut place = new(1);
    forget(place.as_ref().expect("filled").lock());
    place = new(2);
    let lock = black_box(&place).as_ref().expect("filled");
    let (there, over) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = lock.lock();
            there.wait();
            let waits = || fairlock::mutex::events(lock).get(Event::MutexSleep) > 0;
            while !waits() && !over.load(SeqCst) {
                thread::yield_now();
            }
            drop(guard);
        });
        there.wait();
        let locked = catch_unwind(AssertUnwindSafe(|| *lock.lock()));
        over.store(true, SeqCst);
        assert_eq!(locked.expect("this thread does not hold it"), 2);
    });
}

#[test]
fn a_write_within_a_read_is_reported() {
    if !cfg!(debug_assertions) {
        return; // It never ends.
    }
    let is_reported = |write: &dyn Fn()| -> bool { catch_unwind(AssertUnwindSafe(write)).is_err() };
    let (lock, semaphore) = (RwLock::new(1), RwSem::new(1));
    let guards = (lock.read(), semaphore.read());
    assert!(is_reported(&|| drop(lock.write())));
    assert!(is_reported(&|| drop(semaphore.write())));
    assert!(lock.try_write().is_none() && semaphore.try_write().is_none());
    drop(guards);
    assert!(!is_reported(&|| drop(lock.write())));
    assert!(!is_reported(&|| drop(semaphore.write())));
    let guards = (lock.upgradable_read(), semaphore.upgradable_read());
    assert!(is_reported(&|| drop(lock.write())));
    assert!(is_reported(&|| drop(semaphore.write())));
    drop(guards);
}

#[test]
fn what_is_reported_names_the_line_that_asked() {
    if !cfg!(debug_assertions) {
        return;
    }
    static PLACES: std::sync::Mutex<Vec<(String, u32)>> = std::sync::Mutex::new(Vec::new());
    let hook = take_hook();
    set_hook(Box::new(move |panic| {
        let place = panic.location().map(|it| (it.file().to_owned(), it.line()));
        if thread::current().name() == Some("asks") {
            PLACES.lock().expect("no panic").extend(place);
        } else {
            hook(panic);
        }
    }));
    let asks = || {
        let (lock, semaphore) = (RwLock::new(1), RwSem::new(1));
        let _guards = (lock.read(), semaphore.read());
        let mut lines = Vec::new();
        let mut ask = |line, ask: &dyn Fn()| {
            lines.push(line);
            assert!(catch_unwind(AssertUnwindSafe(ask)).is_err());
        };
        ask(line!(), &|| drop(lock.read()));
        ask(line!(), &|| drop(lock.write()));
        ask(line!(), &|| drop(lock.upgradable_read()));
        let mutex = Mutex::new(1);
        let _guard = mutex.lock();
        ask(line!(), &|| drop(mutex.lock()));
        ask(line!(), &|| drop(semaphore.read()));
        ask(line!(), &|| drop(semaphore.write()));
        ask(line!(), &|| drop(semaphore.upgradable_read()));
        lines
    };
    let thread = thread::Builder::new().name("asks".to_owned()).spawn(asks).expect("a thread");
    let lines = thread.join().expect("all are reported");
    let expected: Vec<_> = lines.into_iter().map(|line| (file!().to_owned(), line)).collect();
    assert_eq!(*PLACES.lock().expect("no panic"), expected);
}

#[test]
fn what_ends_by_itself_is_not_reported() {
    let soon = std::time::Duration::from_millis(1);
    let (lock, semaphore, mutex) = (RwLock::new(1), RwSem::new(1), Mutex::new(1));
    let _guards = (lock.read(), semaphore.write(), mutex.lock());
    assert!(lock.try_read_for(soon).is_some() && lock.try_write_for(soon).is_none());
    assert!(semaphore.try_read_for(soon).is_none() && semaphore.try_write().is_none());
    assert!(mutex.try_lock_for(soon).is_none());
}

#[test]
fn a_write_or_a_lock_within_one_is_reported() {
    if !cfg!(debug_assertions) {
        return; // It never ends.
    }
    let message = |acquire: &dyn Fn()| {
        let payload = catch_unwind(AssertUnwindSafe(acquire)).expect_err("it is reported");
        payload.downcast_ref::<String>().expect("a message").clone()
    };
    let (lock, semaphore, mutex) = (RwLock::new(1), RwSem::new(1), Mutex::new(1));
    let guards = (lock.write(), semaphore.write(), mutex.lock());
    assert!(message(&|| drop(lock.write())).contains("a write within a write"));
    assert!(message(&|| drop(lock.read())).contains("a read within a write"));
    assert!(message(&|| drop(semaphore.upgradable_read())).contains("within a write"));
    assert!(message(&|| drop(mutex.lock())).contains("a mutex locked twice"));
    drop(guards);
    drop((lock.write(), semaphore.write(), mutex.lock()));
}

#[test]
fn a_guard_that_was_forgotten_and_made_again_is_not_held_any_more() {
    let (lock, mutex) = (RwLock::new(1), Mutex::new(1));
    forget((lock.write(), mutex.lock()));
    // SAFETY: forgotten above.
    unsafe {
        lock.force_unlock_write();
        mutex.force_unlock();
    }
    drop((lock.write(), mutex.lock()));
    forget(lock.read());
    // SAFETY: as above.
    unsafe { lock.force_unlock_read() };
    drop(lock.write());
}

#[test]
fn a_request_that_may_take_for_ever_is_checked_although_it_has_a_timeout() {
    if !cfg!(debug_assertions) {
        return; // It takes for ever.
    }
    let for_ever = Duration::MAX;
    let is_reported = |act: &dyn Fn()| catch_unwind(AssertUnwindSafe(act)).is_err();
    let (mutex, lock) = (Mutex::new(1), RwLock::new(1));
    let guards = (mutex.lock(), lock.write());
    assert!(is_reported(&|| drop(mutex.try_lock_for(for_ever))));
    assert!(is_reported(&|| drop(lock.try_read_for(for_ever))));
    assert!(is_reported(&|| drop(lock.try_write_for(for_ever))));
    assert!(is_reported(&|| drop(lock.try_upgradable_read_for(for_ever))));
    drop(guards);
    let (upgradable, reader) = (lock.upgradable_read(), lock.try_read().expect("beside it"));
    let upgrade = || drop(RwLockUpgradableReadGuard::try_upgrade_for(upgradable, for_ever));
    assert!(catch_unwind(AssertUnwindSafe(upgrade)).is_err());
    drop(reader);
    assert!(lock.try_write().is_some(), "the guard that was to be upgraded has gone");
}
