//! `Condvar` on real threads. The protocol's single steps are tested beside the code, every schedule of a few threads in
//! `fairlock-check`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Condvar, Mutex, WaitTimeoutResult};

const THREADS: usize = 6;

/// Who waits, and who went on, each in their order.
#[derive(Default)]
struct Waiters {
    waiting: Vec<usize>,
    went_on: Vec<usize>,
}

/// Waits until so many are in the list: they have released the mutex by then, so they wait.
fn until_waiting(waiters: &Mutex<Waiters>, count: usize) {
    while waiters.lock().waiting.len() < count {
        thread::yield_now();
    }
}

/// Runs `notify` once all threads wait, each of which began to wait after the one before. In which
/// order they went on.
fn with_waiters(notify: impl FnOnce(&Mutex<Waiters>, &Condvar)) -> Vec<usize> {
    let (waiters, changed) = (Mutex::new(Waiters::default()), Condvar::new());
    thread::scope(|scope| {
        for who in 0..THREADS {
            let (waiters, changed) = (&waiters, &changed);
            scope.spawn(move || {
                let mut guard = waiters.lock();
                guard.waiting.push(who);
                changed.wait(&mut guard);
                guard.went_on.push(who);
            });
            until_waiting(waiters, who + 1);
        }
        notify(&waiters, &changed);
    });
    assert_eq!(changed.notify_all(), 0);
    waiters.into_inner().went_on
}

fn in_their_order() -> Vec<usize> {
    Vec::from_iter(0..THREADS)
}

#[test]
fn threads_are_notified_one_by_one_in_the_order_in_which_they_began_to_wait() {
    let went_on = with_waiters(|waiters, changed| {
        for notified in 1..=THREADS {
            assert!(changed.notify_one());
            while waiters.lock().went_on.len() < notified {
                thread::yield_now();
            }
        }
        assert!(!changed.notify_one());
    });
    assert_eq!(went_on, in_their_order());
}

#[test]
fn threads_that_are_notified_at_once_all_go_on() {
    let mut went_on = with_waiters(|_, changed| assert_eq!(changed.notify_all(), THREADS));
    went_on.sort_unstable();
    assert_eq!(went_on, in_their_order());
    let mut went_on = with_waiters(|waiters, changed| {
        let guard = waiters.lock();
        assert!(changed.notify_one());
        assert!(changed.notify_one());
        assert_eq!(changed.notify_all(), THREADS - 2);
        assert_eq!(guard.went_on, []);
    });
    went_on.sort_unstable();
    assert_eq!(went_on, in_their_order());
}

#[test]
fn a_notification_without_waiters_is_not_kept() {
    let (mutex, changed) = (Mutex::new(()), Condvar::new());
    assert!(!changed.notify_one());
    assert_eq!(changed.notify_all(), 0);
    assert!(changed.wait_for(&mut mutex.lock(), Duration::from_millis(1)).timed_out());
}

#[test]
fn a_wait_that_times_out_holds_the_mutex_again() {
    let (mutex, changed) = (Mutex::new(0), Condvar::new());
    let mut guard = mutex.lock();
    for timeout in [Duration::ZERO, Duration::from_millis(1)] {
        assert!(changed.wait_for(&mut guard, timeout).timed_out());
        assert!(changed.wait_until(&mut guard, Instant::now() + timeout).timed_out());
        assert!(mutex.try_lock().is_none());
    }
    *guard += 1;
    drop(guard);
    assert!(!changed.notify_one(), "nobody is left waiting");
    assert!(!mutex.is_locked());
}

#[test]
fn a_wait_that_is_notified_in_time_does_not_timeout() {
    let (mutex, changed) = (Mutex::new(0), Condvar::new());
    let hour = Duration::from_secs(3600);
    let waits: [fn(&Condvar, &mut _, _) -> WaitTimeoutResult; 2] = [
        |changed, guard, hour| changed.wait_for(guard, hour),
        |changed, guard, hour| changed.wait_until(guard, Instant::now() + hour),
    ];
    for wait in waits {
        thread::scope(|scope| {
            let mut guard = mutex.lock();
            scope.spawn(|| {
                *mutex.lock() += 1;
                assert!(changed.notify_one());
            });
            assert!(!wait(&changed, &mut guard, hour).timed_out());
        });
    }
    thread::scope(|scope| {
        let mut guard = mutex.lock();
        scope.spawn(|| {
            drop(mutex.lock());
            changed.notify_all();
        });
        // Too long for the clock.
        assert!(!changed.wait_for(&mut guard, Duration::MAX).timed_out());
    });
}

#[test]
fn as_many_waits_end_by_notifications_as_notifications_found_a_waiter() {
    let (mutex, changed) = (Mutex::new(()), Condvar::new());
    let (notified, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let found: u32 = thread::scope(|scope| {
        for thread in 0..3 {
            let (mutex, changed, notified, is_over) = (&mutex, &changed, &notified, &is_over);
            scope.spawn(move || {
                let mut guard = mutex.lock();
                for round in 0.. {
                    // Deadlines pass and notifications come at the same moments.
                    let timeout = Duration::from_micros((round * 7 + thread * 31) % 60);
                    let was_notified = !changed.wait_for(&mut guard, timeout).timed_out();
                    notified.fetch_add(u32::from(was_notified), Relaxed);
                    if is_over.load(Relaxed) {
                        return;
                    }
                }
            });
        }
        let mut found = 0;
        for round in 0..3_000_u32 {
            let guard = (round % 2 == 0).then(|| mutex.lock());
            found += u32::from(changed.notify_one());
            drop(guard);
            if round % 16 == 0 {
                found += u32::try_from(changed.notify_all()).unwrap();
            }
            thread::yield_now();
        }
        is_over.store(true, Relaxed);
        found
    });
    assert_eq!(notified.into_inner(), found);
}

#[test]
fn a_condition_is_looked_at_before_and_after_each_wait() {
    let (mutex, changed) = (Mutex::new(0), Condvar::new());
    let mut guard = mutex.lock();
    let mut looks = 0;
    changed.wait_while(&mut guard, |_| {
        looks += 1;
        false
    });
    assert_eq!(looks, 1);

    let mut answers = [true, false].into_iter();
    let in_time = |_: &mut i32| answers.next().unwrap();
    let result = changed.wait_while_for(&mut guard, in_time, Duration::ZERO);
    assert!(!result.timed_out(), "the condition has ceased to hold by the deadline");

    let always = |value: &mut i32| {
        *value += 1;
        true
    };
    assert!(changed.wait_while_until(&mut guard, always, Instant::now()).timed_out());
    assert_eq!(*guard, 2);
}

#[test]
fn a_condition_that_panics_leaves_the_mutex_to_its_guard() {
    let (mutex, changed) = (Mutex::new(1), Condvar::new());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        changed.wait_while(&mut mutex.lock(), |_| panic!("on purpose"));
    }));
    assert!(panicked.is_err());
    assert_eq!(*mutex.try_lock().expect("released"), 1);
}

#[test]
fn a_second_mutex_is_refused_while_a_thread_waits_with_the_first() {
    let (first, second, changed) = (Mutex::new(false), Mutex::new(()), Condvar::new());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut waits = first.lock();
            *waits = true;
            changed.wait(&mut waits);
        });
        while !*first.lock() {
            thread::yield_now();
        }
        let mut guard = second.lock();
        let refused = catch_unwind(AssertUnwindSafe(|| changed.wait(&mut guard)));
        let refused = refused.expect_err("it is refused");
        let message = refused.downcast_ref::<&str>().expect("a message");
        assert!(message.contains("with another Mutex"), "{message}");
        assert!(second.is_locked());
        assert!(changed.notify_one(), "the other one waits as before");
        waiter.join().unwrap();
        // One after the other is fine.
        assert!(changed.wait_for(&mut guard, Duration::ZERO).timed_out());
    });
}

#[test]
fn it_may_be_a_static_goes_to_other_threads_and_is_small() {
    fn shareable<T: Send + Sync>(_: &T) {}
    static CHANGED: Condvar = Condvar::new();
    shareable(&CHANGED);
    assert!(size_of::<Condvar>() <= 24);
    assert!(!Condvar::default().notify_one());
    assert_eq!(format!("{CHANGED:?}"), "Condvar { .. }");
}

#[test]
fn data_of_any_size_can_be_waited_for() {
    let (mutex, changed) = (Mutex::new([1, 2]), Condvar::new());
    let mutex: &Mutex<[i32]> = &mutex;
    let mut guard = mutex.lock();
    assert!(changed.wait_for(&mut guard, Duration::ZERO).timed_out());
    changed.wait_while(&mut guard, |numbers| numbers.len() != 2);
}

#[test]
fn threads_take_turns() {
    const ROUNDS: u32 = 2_000;
    let place = Arc::new((Mutex::new(0), Condvar::new()));
    let threads: Vec<_> = (0..2)
        .map(|me| {
            let place = Arc::clone(&place);
            thread::spawn(move || {
                let (turn, changed) = &*place;
                for _ in 0..ROUNDS {
                    let mut turn = turn.lock();
                    changed.wait_while(&mut turn, |turn| *turn % 2 != me);
                    *turn += 1;
                    changed.notify_one();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*place.0.lock(), 2 * ROUNDS);
}
