//! `ReentrantMutex` on real threads. Single steps are tested beside the code.

use std::cell::{Cell, RefCell};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{
    ArcReentrantMutexGuard, MappedReentrantMutexGuard, ReentrantMutex, ReentrantMutexGuard,
};

#[test]
fn a_thread_acquires_it_as_often_as_it_likes_and_others_wait_for_all_its_guards() {
    let lock = ReentrantMutex::new(Cell::new(0));
    let first = lock.lock();
    let second = lock.try_lock().expect("held by this thread");
    let third = lock.try_lock_for(Duration::ZERO).expect("held by this thread");
    let fourth = lock.try_lock_until(Instant::now()).expect("held by this thread");
    assert!(lock.is_locked() && lock.is_owned_by_current_thread());
    let is_refused = || {
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                assert!(lock.is_locked() && !lock.is_owned_by_current_thread());
                lock.try_lock().is_none()
                    && lock.try_lock_for(Duration::from_millis(1)).is_none()
                    && lock.try_lock_until(Instant::now()).is_none()
            });
            other.join().unwrap()
        })
    };
    // In another order.
    for guard in [second, first, fourth] {
        guard.set(guard.get() + 1);
        drop(guard);
        assert!(is_refused());
    }
    assert_eq!(third.get(), 3);
    drop(third);
    assert!(!lock.is_locked() && !lock.is_owned_by_current_thread());
    thread::scope(|scope| _ = scope.spawn(|| assert!(lock.try_lock().is_some())));
}

#[test]
fn no_update_is_lost() {
    const THREADS: u32 = 6;
    const ROUNDS: u32 = 2_000;
    static TOTAL: ReentrantMutex<Cell<u32>> = ReentrantMutex::new(Cell::new(0));

    fn add() {
        let total = TOTAL.lock();
        total.set(total.get() + 1);
    }

    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let guard = TOTAL.lock();
                    let before = guard.get();
                    add();
                    if round % 64 == 0 {
                        thread::yield_now();
                    }
                    assert_eq!(guard.get(), before + 1, "somebody else was let in");
                    if (round + thread) % 3 == 0 {
                        ReentrantMutexGuard::unlock_fair(guard);
                    }
                }
            });
        }
    });
    assert_eq!(TOTAL.lock().get(), THREADS * ROUNDS);
}

#[test]
fn a_fair_unlock_of_one_guard_keeps_the_lock_for_the_others() {
    let lock = ReentrantMutex::new(());
    let (first, second) = (lock.lock(), lock.lock());
    ReentrantMutexGuard::unlock_fair(first);
    assert!(lock.is_owned_by_current_thread());
    ReentrantMutexGuard::unlock_fair(second);
    assert!(!lock.is_locked());
}

#[test]
fn a_guard_can_be_for_a_part_of_the_data() {
    let lock = ReentrantMutex::new((1, Some(String::from("x"))));
    let number = ReentrantMutexGuard::map(lock.lock(), |(number, _)| number);
    let name = ReentrantMutexGuard::try_map(lock.lock(), |(_, name)| name.as_deref());
    let name: MappedReentrantMutexGuard<'_, str> = name.expect("there is one");
    assert_eq!((*number, &*name), (1, "x"));
    let guard = ReentrantMutexGuard::try_map(lock.lock(), |_| None::<&u8>);
    let guard = guard.expect_err("there is none");
    assert_eq!(guard.0, 1);
    let name = MappedReentrantMutexGuard::try_map(name, |_| None::<&u8>);
    let name = MappedReentrantMutexGuard::map(name.expect_err("there is none"), str::as_bytes);
    assert_eq!(*name, *b"x");
    drop((number, guard));
    assert!(lock.is_owned_by_current_thread());
    MappedReentrantMutexGuard::unlock_fair(name);
    assert!(!lock.is_locked());
}

#[test]
fn a_guard_can_own_its_mutex() {
    let lock = Arc::new(ReentrantMutex::new(Cell::new(1)));
    let guard = lock.lock_arc();
    let again = lock.try_lock_arc().expect("held by this thread");
    assert!(lock.try_lock_arc_for(Duration::ZERO).is_some());
    assert!(lock.try_lock_arc_until(Instant::now()).is_some());
    assert!(Arc::ptr_eq(ArcReentrantMutexGuard::remutex(&guard), &lock));
    drop(lock);
    again.set(2);
    ArcReentrantMutexGuard::unlock_fair(again);
    let lock = ArcReentrantMutexGuard::into_arc(guard);
    assert!(!lock.is_locked());
    let data = Arc::into_inner(lock).expect("nobody else has it").into_inner();
    assert_eq!(data.get(), 2);
}

#[test]
fn the_data_are_at_hand_where_nobody_else_has_access() {
    let mut lock = ReentrantMutex::from(1);
    *lock.get_mut() += 1;
    assert_eq!(lock.into_inner(), 2);
    assert_eq!(*ReentrantMutex::<u8>::default().lock(), 0);
}

#[test]
fn it_works_in_destructors_of_thread_local_variables() {
    static LOG: ReentrantMutex<RefCell<Vec<u32>>> = ReentrantMutex::new(RefCell::new(Vec::new()));
    struct Late(u32);
    impl Drop for Late {
        fn drop(&mut self) {
            let log = LOG.lock();
            assert!(LOG.is_owned_by_current_thread());
            LOG.lock().borrow_mut().push(self.0);
            drop(log);
        }
    }
    thread_local! {
        static EARLIER: Late = const { Late(1) };
        static LATER: Late = const { Late(2) };
    }
    for use_it_before in [false, true] {
        thread::spawn(move || {
            EARLIER.with(|_| ());
            if use_it_before {
                drop(LOG.lock());
            }
            LATER.with(|_| ());
        })
        .join()
        .unwrap();
    }
    assert!(!LOG.is_locked());
    let log = LOG.lock();
    let mut log = log.borrow_mut();
    log.sort_unstable();
    assert_eq!(*log, [1, 1, 2, 2]);
}

#[test]
fn what_an_ended_thread_has_not_released_stays_locked() {
    let lock = ReentrantMutex::new(());
    thread::scope(|scope| _ = scope.spawn(|| mem::forget(lock.lock())));
    // A new thread gets the memory of the ended one.
    for _ in 0..8 {
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(!lock.is_owned_by_current_thread());
                assert!(lock.try_lock().is_none());
            });
        });
    }
    assert!(lock.is_locked());
}

#[test]
fn what_is_shown_is_the_data_unless_another_thread_holds_it() {
    let lock = ReentrantMutex::new(7);
    let guard = lock.lock();
    assert_eq!(format!("{lock:?} {guard:?} {guard}"), "ReentrantMutex { data: 7 } 7 7");
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(format!("{lock:?}"), "ReentrantMutex { data: <locked> }"));
    });
}

#[test]
fn the_data_need_to_be_send_and_a_guard_to_be_shared_sync() {
    fn shareable<T: Sync>() {}
    fn sendable<T: Send>() {}
    shareable::<ReentrantMutex<Cell<u8>>>();
    sendable::<ReentrantMutex<Cell<u8>>>();
    shareable::<ReentrantMutexGuard<'_, u8>>();
    shareable::<MappedReentrantMutexGuard<'_, u8>>();
    shareable::<ArcReentrantMutexGuard<u8>>();
}

/// Whether another thread finds the lock free.
fn is_free<T: Send>(lock: &ReentrantMutex<T>) -> bool {
    thread::scope(|scope| scope.spawn(|| lock.try_lock().is_some()).join().expect("it ends"))
}

#[test]
fn others_have_the_lock_while_its_only_guard_is_unlocked() {
    let lock = Arc::new(ReentrantMutex::new(1));
    let mut only = lock.lock();
    assert!(ReentrantMutexGuard::unlocked(&mut only, || is_free(&lock)));
    assert!(!is_free(&lock));
    let panics = AssertUnwindSafe(|| {
        ReentrantMutexGuard::unlocked_fair(&mut only, || assert!(!is_free(&lock), "on purpose"));
    });
    assert!(catch_unwind(panics).is_err());
    assert!(!is_free(&lock), "acquired again after the panic");
    ReentrantMutexGuard::bump(&mut only);
    let mut second = lock.lock_arc();
    assert!(!ReentrantMutexGuard::unlocked(&mut only, || is_free(&lock)), "the second has it");
    assert!(!ArcReentrantMutexGuard::unlocked_fair(&mut second, || is_free(&lock)));
    drop(only);
    assert!(ArcReentrantMutexGuard::unlocked(&mut second, || is_free(&lock)));
    ArcReentrantMutexGuard::bump(&mut second);
    assert!(Arc::ptr_eq(&ArcReentrantMutexGuard::into_arc_fair(second), &lock));
    assert!(is_free(&lock));
}

#[test]
fn forgotten_guards_are_released_or_made_again() {
    let lock = Arc::new(ReentrantMutex::new(1));
    (0..4).for_each(|_| mem::forget(lock.lock()));
    // SAFETY: four guards were forgotten above, and each is used once.
    unsafe {
        lock.force_unlock();
        lock.force_unlock_fair();
        assert_eq!(*lock.make_guard_unchecked(), 1);
        assert!(!is_free(&lock));
        drop(lock.make_arc_guard_unchecked());
    }
    assert!(is_free(&lock));
}

#[test]
fn why_there_is_no_such_part_is_said() {
    let lock = ReentrantMutex::new((1, "x"));
    let no_part = ReentrantMutexGuard::try_map_or_err::<u32, _, _>(lock.lock(), |_| Err("none"));
    let (guard, said) = no_part.expect_err("there is none");
    assert_eq!((said, guard.0, is_free(&lock)), ("none", 1, false));
    let part = ReentrantMutexGuard::try_map_or_err(guard, |it| Ok::<_, ()>(&it.1));
    let part = part.expect("there is one");
    let no_part = MappedReentrantMutexGuard::try_map_or_err::<u32, _, _>(part, |_| Err("none"));
    let (part, said) = no_part.expect_err("there is none");
    assert_eq!((said, *part, is_free(&lock)), ("none", "x", false));
    drop(part);
    assert!(is_free(&lock));
}
