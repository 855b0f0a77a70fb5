//! The reference range locks under Loom: no race on what they protect and no lost wake-up in the
//! interleavings of two or three threads, with a bound on preemptions and on how many are tried.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fairlock::platform::Platform;
use fairlock::range::{Extent, RangeLock, RangeReadGuard, RangeWriteGuard, RawRangeLock};
use fairlock_check::loom_platform::{
    DeafHasty, GullibleHalves, Hasty, Loom, Watched, Weakened, explore,
};
use fairlock_reference::range::{Naive, SharedWord};

/// A lock over two positions with a number each.
struct Pair<R> {
    lock: RangeLock<R>,
    cells: [Watched; 2],
}

fn one(at: u64) -> Extent {
    Extent::of(at..=at).expect("one position")
}

impl<R: RawRangeLock> Pair<R> {
    fn new() -> Self {
        Pair { lock: RangeLock::new_in(), cells: [Watched::new(), Watched::new()] }
    }

    fn at(&self, extent: Extent) -> impl Iterator<Item = &Watched> {
        let is_in = move |at: usize| extent.overlaps(one(at as u64));
        self.cells.iter().enumerate().filter(move |&(at, _)| is_in(at)).map(|(_, cell)| cell)
    }

    fn look(&self, guard: &RangeReadGuard<'_, R>) {
        self.at(RangeReadGuard::extent(guard)).for_each(|cell| _ = cell.get());
    }

    fn add(&self, guard: &RangeWriteGuard<'_, R>) {
        self.at(RangeWriteGuard::extent(guard)).for_each(Watched::add);
    }
}

type Step<R> = fn(&Pair<R>);

/// Runs one step in each thread, the last in the first thread, and checks that the lock is free
/// afterwards.
fn together<R: RawRangeLock + 'static>(steps: &[Step<R>]) {
    let pair = Arc::new(Pair::<R>::new());
    let (mine, others) = steps.split_last().expect("at least one");
    let threads: Vec<_> = others
        .iter()
        .map(|&step| {
            let pair = Arc::clone(&pair);
            loom::thread::spawn(move || step(&pair))
        })
        .collect();
    mine(&pair);
    for thread in threads {
        thread.join().expect("a panic ends the model");
    }
    let guard = pair.lock.try_write(Extent::ALL).expect("free when everybody is done");
    pair.add(&guard);
}

fn read_first<R: RawRangeLock>(pair: &Pair<R>) {
    pair.look(&pair.lock.read(one(0)));
}

fn write_first<R: RawRangeLock>(pair: &Pair<R>) {
    pair.add(&pair.lock.write(one(0)));
}

fn write_second<R: RawRangeLock>(pair: &Pair<R>) {
    pair.add(&pair.lock.write(one(1)));
}

fn read_both<R: RawRangeLock>(pair: &Pair<R>) {
    pair.look(&pair.lock.read(Extent::ALL));
}

fn write_both<R: RawRangeLock>(pair: &Pair<R>) {
    pair.add(&pair.lock.write(Extent::ALL));
}

fn without_waiting<R: RawRangeLock>(pair: &Pair<R>) {
    if let Some(guard) = pair.lock.try_read(one(1)) {
        pair.look(&guard);
    }
    if let Some(guard) = pair.lock.try_write(one(0)) {
        pair.add(&guard);
    }
}

fn downgrade<R: RawRangeLock>(pair: &Pair<R>) {
    let guard = pair.lock.write(one(0));
    pair.add(&guard);
    let before = pair.cells[0].get();
    let guard = RangeWriteGuard::downgrade(guard);
    pair.look(&guard);
    assert_eq!(pair.cells[0].get(), before, "nobody writes in between");
}

fn write_both_in_time<R: RawRangeLock>(pair: &Pair<R>) {
    if let Some(guard) = pair.lock.try_write_for(Extent::ALL, Duration::from_micros(100)) {
        pair.add(&guard);
    }
}

macro_rules! models {
    ($($name:ident: $preemptions:literal, [$($step:ident),*];)*) => {
        models! { @ naive: Naive, $($name: $preemptions, [$($step),*];)* }
        models! { @ shared_word: SharedWord, $($name: $preemptions, [$($step),*];)* }
    };
    (@ $lock:ident: $raw:ident, $($name:ident: $preemptions:literal, [$($step:ident),*];)*) => {
        mod $lock {
            use super::*;
            $(#[test]
            fn $name() {
                let name = concat!(stringify!($lock), "::", stringify!($name));
                explore(name, $preemptions, || together::<$raw<Hasty>>(&[$($step),*]));
            })*
        }
    };
}

models! {
    two_writers_exclude_each_other: 4, [write_first, write_both];
    disjoint_writers_get_by: 4, [write_first, write_second];
    a_writer_excludes_a_reader: 4, [read_both, write_second];
    trying_excludes: 4, [without_waiting, write_second];
    a_downgraded_writer_reads_beside_a_reader: 4, [downgrade, read_both];
    a_downgraded_writer_keeps_a_writer_away: 4, [downgrade, write_both];
    a_timeout_meets_a_release: 4, [write_both_in_time, write_first];
    three_writers_two_of_them_disjoint: 2, [write_first, write_second, write_both];
    two_readers_and_a_writer: 2, [read_first, read_both, write_both];
    a_downgrade_beside_both: 2, [downgrade, read_both, write_second];
    a_timeout_lets_others_in: 2, [write_both_in_time, read_first, write_second];
}

/// With the spins for the list's lock, which the others do without.
#[test]
fn spinning_for_the_list_is_no_harm() {
    explore("naive", 2, || together::<Naive<Loom>>(&[write_first, write_both]));
    explore("shared word", 2, || together::<SharedWord<Loom>>(&[write_first, write_both]));
}

fn report<P: Platform, R: RawRangeLock<Platform = P> + 'static>(
    steps: &'static [Step<R>],
) -> String {
    let failure = catch_unwind(AssertUnwindSafe(|| {
        explore("flawed", 2, || together(steps));
    }));
    let failure = failure.expect_err("the checker must notice the flaw");
    match failure.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => (*other.downcast_ref::<&str>().unwrap_or(&"not a message")).to_owned(),
    }
}

#[test]
fn the_checker_notices_relaxed_orderings() {
    let message = report::<Weakened, Naive<_>>(&[write_first, write_both]);
    assert!(message.contains("Causality violation"), "{message}");
    let message = report::<Weakened, SharedWord<_>>(&[write_first, write_both]);
    assert!(message.contains("Causality violation"), "{message}");
}

#[test]
fn the_checker_notices_lost_wake_ups() {
    let message = report::<DeafHasty, Naive<_>>(&[write_first, write_both]);
    assert!(message.contains("deadlock"), "{message}");
    let message = report::<DeafHasty, SharedWord<_>>(&[write_first, write_both]);
    assert!(message.contains("deadlock"), "{message}");
}

#[test]
fn the_checker_notices_two_writers() {
    let message = report::<GullibleHalves, Naive<_>>(&[write_first, write_both]);
    assert!(message.contains("Causality violation"), "{message}");
    // Whoever leaves a word with a share too few waits for it to be empty.
    let message = report::<GullibleHalves, SharedWord<_>>(&[write_first, write_both]);
    assert!(message.contains("Causality violation") || message.contains("deadlock"), "{message}");
}
