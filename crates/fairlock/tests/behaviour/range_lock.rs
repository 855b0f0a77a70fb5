//! What users of range locks rely on, for every lock under the front.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::platform::Os;
use fairlock::range::{
    ArcRangeReadGuard, ArcRangeWriteGuard, Extent, RangeLock, RangeReadGuard, RangeWriteGuard,
    RawRangeLock, Slotted,
};
use fairlock_check::range::{Subject, extent};
use fairlock_check::threads::watched;
use fairlock_reference::range::{Naive, SharedWord};

const SHORT: Duration = Duration::from_millis(2);

/// For waits that end sooner.
const LONG: Duration = Duration::from_secs(60);

fn is_free<R: RawRangeLock>(lock: &RangeLock<R>) -> bool {
    lock.try_write(Extent::ALL).is_some()
}

// ---- one thread ----

fn several_guards_of_one_thread<R: Subject>() {
    let lock = RangeLock::<R>::new_in();
    let pin = R::keep_ranges(&lock);
    let mut readers: Vec<_> = (0..40).map(|at| lock.read(extent(at * 10..at * 10 + 15))).collect();
    let mut writers: Vec<_> =
        (50..90).map(|at| lock.write(extent(at * 10..at * 10 + 10))).collect();
    assert!(lock.try_write(extent(0..1)).is_none());
    assert!(lock.try_read(extent(500..501)).is_none());
    assert!(lock.try_write(extent(405..500)).is_some(), "between them");
    // In another order than they came in.
    drop(readers.swap_remove(0));
    assert!(lock.try_write(extent(0..10)).is_some());
    assert!(lock.try_write(extent(10..15)).is_none(), "another one reads it");
    drop(writers.swap_remove(7));
    assert!(lock.try_read(extent(570..580)).is_some());
    drop((writers, readers, pin));
    assert!(is_free(&lock));
}

fn ranges_at_both_ends<R: Subject>() {
    let lock = RangeLock::<R>::new_in();
    let pin = R::keep_ranges(&lock);
    let last = lock.write(extent(u64::MAX..=u64::MAX));
    let before = lock.write(extent(u64::MAX - 1..u64::MAX));
    let first = lock.write(extent(..1));
    assert!(lock.try_read(extent(u64::MAX - 5..)).is_none());
    assert!(lock.try_read(extent(u64::MAX - 5..u64::MAX - 1)).is_some());
    assert!(lock.try_read(Extent::ALL).is_none());
    drop(last);
    assert!(lock.try_read(extent(u64::MAX..=u64::MAX)).is_some());
    drop((before, first));
    assert!(lock.try_read(Extent::ALL).is_some());
    drop(pin);
    let all = lock.write(Extent::ALL);
    for at in [0, 1, 4096, u64::MAX / 2, u64::MAX] {
        assert!(lock.try_read(extent(at..=at)).is_none());
    }
    drop(all);
    assert!(is_free(&lock));
}

fn guards_say_what_they_are<R: Subject>() {
    let lock = Arc::new(RangeLock::<R>::new_in());
    let pages = Extent::at(4096, 8192).unwrap();
    let guard = lock.write(pages);
    assert_eq!(RangeWriteGuard::extent(&guard), pages);
    assert_eq!(format!("{guard:?}"), format!("RangeWriteGuard({pages:?})"));
    let guard = RangeWriteGuard::downgrade(guard);
    assert_eq!(RangeReadGuard::extent(&guard), pages);
    let beside = lock.read_arc(pages);
    assert_eq!(ArcRangeReadGuard::extent(&beside), pages);
    drop((guard, beside));
    assert_eq!(ArcRangeWriteGuard::extent(&lock.write_arc(pages)), pages);
    assert_eq!(format!("{lock:?}"), "RangeLock { .. }");
    assert!(is_free(&lock));
}

fn timed_acquisitions_that_fail_leave_nothing<R: Subject>() {
    let lock = RangeLock::<R>::new_in();
    let pin = R::keep_ranges(&lock);
    let writer = lock.write(extent(10..20));
    let soon = || Instant::now() + SHORT;
    assert!(lock.try_read_for(extent(15..30), SHORT).is_none());
    assert!(lock.try_write_for(extent(0..11), SHORT).is_none());
    assert!(lock.try_read_until(extent(19..20), soon()).is_none());
    assert!(lock.try_write_until(Extent::ALL, soon()).is_none());
    assert!(lock.try_read_for(extent(10..11), Duration::ZERO).is_none());
    assert!(lock.try_write(extent(20..30)).is_some(), "nobody waits for it any more");
    drop(writer);
    assert!(lock.try_read_for(extent(15..30), LONG).is_some());
    assert!(lock.try_write_until(extent(15..30), Instant::now() + LONG).is_some());
    // Later than the clock can say.
    assert!(lock.try_write_for(extent(15..30), Duration::MAX).is_some());
    drop(pin);
    assert!(is_free(&lock));
}

fn a_panic_releases<R: Subject>() {
    let lock = RangeLock::<R>::new_in();
    let pin = R::keep_ranges(&lock);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _writer = lock.write(extent(0..4));
        let _reader = lock.read(extent(4..8));
        // Unlike `panic!` this calls no hook, which would print.
        std::panic::resume_unwind(Box::new("while holding"));
    }));
    assert!(panicked.is_err());
    drop(pin);
    assert!(is_free(&lock));
}

fn a_forgotten_guard_keeps_its_range<R: Subject>() {
    let lock = RangeLock::<R>::new_in();
    let mut forgotten = ManuallyDrop::new(lock.write(extent(0..4)));
    assert!(lock.try_read(extent(3..4)).is_none());
    assert!(!is_free(&lock));
    // Some locks have allocated what is on their list.
    // SAFETY: dropped once, and not used again.
    unsafe { ManuallyDrop::drop(&mut forgotten) };
    assert!(is_free(&lock));
}

// ---- several threads ----

/// Another thread is about to wait when `meanwhile` runs, and most likely waits. What the tests
/// check holds either way.
fn while_another_waits<T: Send>(wait: impl FnOnce() -> T + Send, meanwhile: impl FnOnce()) -> T {
    watched(|| {
        thread::scope(|scope| {
            let (begun, begins) = mpsc::channel();
            let waiter = scope.spawn(move || {
                begun.send(()).expect("received below");
                wait()
            });
            begins.recv().expect("sent above");
            (0..50).for_each(|_| thread::yield_now());
            meanwhile();
            waiter.join().unwrap()
        })
    })
}

fn guards_go_to_other_threads<R: Subject>() {
    let lock = Arc::new(RangeLock::<R>::new_in());
    let pin = R::keep_ranges(&lock);
    watched(|| {
        thread::scope(|scope| {
            let writer = lock.write(extent(0..8));
            let reader = lock.read(extent(8..9));
            scope.spawn(move || drop((writer, reader)));
            drop(lock.write(extent(0..9)));
            // And from a thread that has ended.
            let left = scope.spawn(|| lock.write(extent(3..5))).join().unwrap();
            assert!(lock.try_read(extent(4..6)).is_none());
            scope.spawn(move || drop(RangeWriteGuard::downgrade(left)));
            drop(lock.write(extent(0..9)));
        });
    });
    drop(pin);
    assert!(is_free(&lock));
}

fn guards_that_own_the_lock_outlive_it<R: Subject>() {
    let lock = Arc::new(RangeLock::<R>::new_in());
    let alive = Arc::downgrade(&lock);
    let writer = lock.write_arc(extent(0..8));
    drop(lock);
    let reader = ArcRangeWriteGuard::downgrade(writer);
    assert!(alive.upgrade().expect("by its guard").try_write(extent(7..9)).is_none());
    watched(|| thread::spawn(move || drop(reader)).join().unwrap());
    assert!(alive.upgrade().is_none());
}

fn a_writer_waits_for_all_that_overlap<R: Subject>() {
    let lock = RangeLock::<R>::new_in();
    let pin = R::keep_ranges(&lock);
    let left = AtomicBool::new(false);
    let guards = Cell::new(Some((lock.read(extent(0..5)), lock.write(extent(9..12)))));
    let had_left = while_another_waits(
        || {
            let _guard = lock.write(extent(4..10));
            left.load(Relaxed)
        },
        || {
            let (reader, writer) = guards.take().expect("once");
            drop(reader);
            left.store(true, Relaxed);
            drop(writer);
        },
    );
    assert!(had_left);
    drop(pin);
    assert!(is_free(&lock));
}

fn a_downgrade_lets_in_those_that_wait_to_share<R: Subject>() {
    let lock = RangeLock::<R>::new_in();
    let writer = Cell::new(Some(lock.write(extent(0..5))));
    let reader = Cell::new(None);
    while_another_waits(
        || drop(lock.read(extent(4..10))),
        || {
            let guard = writer.take().expect("once");
            reader.set(Some(RangeWriteGuard::downgrade(guard)));
        },
    );
    assert!(lock.try_write(extent(4..5)).is_none(), "it is kept");
    drop(reader.take());
    assert!(is_free(&lock));
}

fn a_timeout_lets_in_those_that_it_kept_away<R: Subject>() {
    let lock = RangeLock::<R>::new_in();
    let pin = R::keep_ranges(&lock);
    let reader = lock.read(extent(0..5));
    let timed_out = while_another_waits(
        || lock.try_write_for(extent(4..6), SHORT).is_none(),
        // Beside the first reader, behind the writer if that waits by now.
        || drop(lock.read(extent(4..9))),
    );
    assert!(timed_out);
    drop((reader, pin));
    assert!(is_free(&lock));
}

fn disjoint_threads_do_not_wait<R: Subject>() {
    let lock = RangeLock::<R>::new_in();
    let pin = R::keep_ranges(&lock);
    watched(|| {
        thread::scope(|scope| {
            let all: Vec<_> =
                (0..8).map(|at| lock.write(extent(at << 12..(at + 1) << 12))).collect();
            for at in 8..12 {
                let lock = &lock;
                let visit =
                    move || (0..50).for_each(|_| drop(lock.write(extent(at << 12..=at << 12))));
                scope.spawn(visit).join().unwrap();
            }
            drop(all);
        });
    });
    drop(pin);
    assert!(is_free(&lock));
}

macro_rules! every_lock {
    ([$($lock:ident: $subject:ty;)*] $behaviours:tt) => {$(
        mod $lock {
            use super::*;
            every_lock!(@ $subject, $behaviours);
        }
    )*};
    (@ $subject:ty, [$($behaviour:ident)*]) => {$(
        #[test]
        fn $behaviour() {
            super::$behaviour::<$subject>();
        }
    )*};
}

every_lock! {
    [
        slotted: Slotted<Os>;
        slotted_with_one_stripe: Slotted<Os, 1, 0>;
        naive: Naive<Os>;
        shared_word: SharedWord<Os>;
    ]
    [
        several_guards_of_one_thread
        ranges_at_both_ends
        guards_say_what_they_are
        timed_acquisitions_that_fail_leave_nothing
        a_panic_releases
        a_forgotten_guard_keeps_its_range
        guards_go_to_other_threads
        guards_that_own_the_lock_outlive_it
        a_writer_waits_for_all_that_overlap
        a_downgrade_lets_in_those_that_wait_to_share
        a_timeout_lets_in_those_that_it_kept_away
        disjoint_threads_do_not_wait
    ]
}

#[test]
fn guards_and_locks_go_where_they_may() {
    fn goes_anywhere<T: Send + Sync>() {}
    fn for_each_lock<R: RawRangeLock + 'static>() {
        goes_anywhere::<RangeLock<R>>();
        goes_anywhere::<RangeReadGuard<'static, R>>();
        goes_anywhere::<RangeWriteGuard<'static, R>>();
        goes_anywhere::<ArcRangeReadGuard<R>>();
        goes_anywhere::<ArcRangeWriteGuard<R>>();
    }
    for_each_lock::<Naive<Os>>();
    for_each_lock::<SharedWord<Os>>();
}
