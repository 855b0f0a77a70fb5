//! Random programs of one thread that never waits: every range lock answers what the oracle does.

use std::time::Duration;

use fairlock::platform::Os;
use fairlock::range::{
    Access, Extent, RangeLock, RangeReadGuard, RangeWriteGuard, RawRangeLock, Slotted,
};
use fairlock_check::range::oracle::Oracle;
use fairlock_check::range::{PIN, Subject, broken, extent};
use fairlock_reference::range::{Naive, SharedWord};
use proptest::prelude::*;

/// What a program does next. Guards are counted from the oldest, modulo how many there are.
#[derive(Debug, Clone, Copy)]
enum Step {
    Try(Extent, Access),
    /// With a deadline that has passed.
    Timed(Extent, Access),
    Downgrade(usize),
    Release(usize),
}

enum Guard<'a, R: RawRangeLock> {
    Read(RangeReadGuard<'a, R>),
    Write(RangeWriteGuard<'a, R>),
}

impl<R: RawRangeLock> Guard<'_, R> {
    fn holds(&self) -> (Extent, Access) {
        match self {
            Guard::Read(guard) => (RangeReadGuard::extent(guard), Access::Shared),
            Guard::Write(guard) => (RangeWriteGuard::extent(guard), Access::Exclusive),
        }
    }
}

fn acquire<R: RawRangeLock>(
    lock: &RangeLock<R>,
    extent: Extent,
    access: Access,
    timed: bool,
) -> Option<Guard<'_, R>> {
    let none = Duration::ZERO;
    match (access, timed) {
        (Access::Shared, false) => lock.try_read(extent).map(Guard::Read),
        (Access::Shared, true) => lock.try_read_for(extent, none).map(Guard::Read),
        (Access::Exclusive, false) => lock.try_write(extent).map(Guard::Write),
        (Access::Exclusive, true) => lock.try_write_for(extent, none).map(Guard::Write),
    }
}

/// Runs a program on a lock and on the oracle, and gives everything back.
fn agree<R: RawRangeLock>(
    lock: &RangeLock<R>,
    oracle: &mut Oracle,
    program: &[Step],
) -> Result<(), TestCaseError> {
    let mut guards: Vec<Guard<'_, R>> = Vec::new();
    for (at, &step) in program.iter().enumerate() {
        match step {
            Step::Try(extent, access) | Step::Timed(extent, access) => {
                let guard = acquire(lock, extent, access, matches!(step, Step::Timed(..)));
                let expected = oracle.is_free(extent, access);
                prop_assert_eq!(guard.is_some(), expected, "step {}: {:?}", at, step);
                if let Some(guard) = guard {
                    oracle.acquire(extent, access);
                    guards.push(guard);
                }
            }
            Step::Downgrade(number) if !guards.is_empty() => {
                let guard = guards.remove(number % guards.len());
                guards.push(match guard {
                    Guard::Write(guard) => {
                        oracle.downgrade(RangeWriteGuard::extent(&guard));
                        Guard::Read(RangeWriteGuard::downgrade(guard))
                    }
                    guard => guard,
                });
            }
            Step::Release(number) if !guards.is_empty() => {
                let guard = guards.remove(number % guards.len());
                let (extent, access) = guard.holds();
                drop(guard);
                oracle.release(extent, access);
            }
            Step::Downgrade(_) | Step::Release(_) => {}
        }
    }
    Ok(())
}

/// Afterwards the lock is as it was.
fn agree_and_leave_nothing<R: Subject>(program: &[Step]) -> Result<(), TestCaseError> {
    let lock = RangeLock::<R>::new_in();
    let pin = R::keep_ranges(&lock);
    let held = pin.iter().map(|_| (extent(PIN..=PIN), Access::Shared)).collect();
    agree(&lock, &mut Oracle::new(held), program)?;
    drop(pin);
    prop_assert!(lock.try_write(Extent::ALL).is_some(), "free when everything is given back");
    Ok(())
}

// ---- programs ----

/// Positions at which something may begin or end: in memory's units, and at both ends of all.
fn edge() -> impl Strategy<Value = u64> {
    let unit = prop::sample::select(vec![1_u64, 8, 4 << 10, 64 << 10, 1 << 20, 1 << 33]);
    prop_oneof![
        4 => (unit, 0_u64..40).prop_map(|(unit, count)| unit * count),
        1 => (0_u64..3, any::<bool>(), prop::sample::select(vec![4_u64 << 10, 64 << 10, PIN])).prop_map(
            |(distance, below, at)| if below { at - distance } else { at + distance }
        ),
        1 => (0_u64..3).prop_map(|distance| u64::MAX - distance),
        1 => any::<u64>(),
    ]
}

fn an_extent() -> impl Strategy<Value = Extent> {
    prop_oneof![
        1 => Just(Extent::ALL),
        4 => edge().prop_map(|at| extent(at..=at)),
        // A page, or part of one.
        6 => (0_u64..40, 1_u64..=4096).prop_map(|(page, length)| {
            Extent::at(page << 12, length).expect("within bounds")
        }),
        6 => (0_u64..64, 1_u64..5).prop_map(|(at, length)| extent(at..at + length)),
        6 => (edge(), edge()).prop_map(|(a, b)| extent(a.min(b)..=a.max(b))),
    ]
}

fn an_access() -> impl Strategy<Value = Access> {
    prop_oneof![2 => Just(Access::Shared), 1 => Just(Access::Exclusive)]
}

/// Most acquire, so that dozens of ranges are held at once.
fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (an_extent(), an_access()).prop_map(|(extent, access)| Step::Try(extent, access)),
        2 => (an_extent(), an_access()).prop_map(|(extent, access)| Step::Timed(extent, access)),
        1 => any::<usize>().prop_map(Step::Downgrade),
        4 => any::<usize>().prop_map(Step::Release),
    ]
}

fn a_program() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(a_step(), 1..200)
}

/// Ranges of one page each by dozens, which no others keep away; then anything.
fn a_crowded_program() -> impl Strategy<Value = Vec<Step>> {
    let pages = prop::collection::vec((0_u64..200, an_access()), 30..120).prop_map(|pages| {
        let step = |(page, access)| Step::Try(extent(page << 12..(page + 1) << 12), access);
        pages.into_iter().map(step).collect::<Vec<_>>()
    });
    (pages, prop::collection::vec(a_step(), 0..60)).prop_map(|(pages, rest)| [pages, rest].concat())
}

macro_rules! locks_agree {
    ($($lock:ident: $subject:ty;)*) => {$(
        mod $lock {
            use super::*;
            proptest! {
                #[test]
                fn agrees_with_the_oracle(program in a_program()) {
                    agree_and_leave_nothing::<$subject>(&program)?;
                }
                #[test]
                fn agrees_with_the_oracle_on_dozens_of_guards(program in a_crowded_program()) {
                    agree_and_leave_nothing::<$subject>(&program)?;
                }
            }
        }
    )*};
}

locks_agree! {
    slotted: Slotted<Os>;
    slotted_with_two_stripes: Slotted<Os, 2, 4>;
    naive: Naive<Os>;
    shared_word_with_ranges_kept: SharedWord<Os>;
}

proptest! {
    /// Nobody waits, so nobody turns the word off.
    #[test]
    fn shared_word_agrees_with_an_oracle_that_ignores_ranges(program in a_program()) {
        let lock = RangeLock::<SharedWord<Os>>::new_in();
        agree(&lock, &mut Oracle::ignoring_ranges(), &program)?;
        prop_assert!(lock.raw().ignores_ranges());
        prop_assert!(lock.try_write(Extent::ALL).is_some());
    }
}

// ---- flaws ----

/// Whether some of many programs shows that the lock does not do what the oracle does.
fn is_caught<R: RawRangeLock>() -> bool {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let agrees =
        |program: Vec<Step>| agree(&RangeLock::<R>::new_in(), &mut Oracle::default(), &program);
    runner.run(&a_program(), agrees).is_err()
}

#[test]
fn programs_show_flaws() {
    assert!(is_caught::<broken::Open>(), "lets everybody in");
    assert!(is_caught::<broken::Short<Naive<Os>>>(), "ignores the last position of each range");
    assert!(is_caught::<broken::Timid>(), "fails every try");
    assert!(is_caught::<SharedWord<Os>>(), "ignores ranges until somebody waits");
    assert!(!is_caught::<Naive<Os>>());
}
