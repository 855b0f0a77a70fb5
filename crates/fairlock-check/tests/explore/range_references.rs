//! The reference range locks in every schedule within stated bounds: nobody gets a range beside a
//! writer of the same cell, nobody sleeps for ever, and those that wait are passed by nobody.

use std::cell::Cell;
use std::time::Duration;

use fairlock::platform::{AtomicCell, Platform};
use fairlock::range::{
    Access, Extent, Patience, RangeLock, RangeReadGuard, RangeWriteGuard, RawRangeLock,
};
use fairlock_reference::range::{Naive, SharedWord};
use fairlock_sim::explore::{
    self, Blind, Deaf, Explore, FailureKind, Flaw, Guarded, Program, Search, Sound, Torn,
};
use fairlock_sim::{Explored, On};

type OfNaive<F = Sound> = Naive<On<Explore<F>>>;
type OfWord<F = Sound> = SharedWord<On<Explore<F>>>;

/// A lock under test.
trait Subject: RawRangeLock + 'static {
    /// Whether nothing but its being free is left of what was done to it.
    fn is_as_new(&self) -> bool;
}

impl<F: Flaw> Subject for OfNaive<F> {
    fn is_as_new(&self) -> bool {
        true
    }
}

impl<F: Flaw> Subject for OfWord<F> {
    fn is_as_new(&self) -> bool {
        self.ignores_ranges()
    }
}

/// A lock over two positions with a number each.
struct Pair<R, F: Flaw = Sound> {
    lock: RangeLock<R>,
    cells: [Guarded<F>; 2],
}

impl<R: RawRangeLock, F: Flaw> Pair<R, F> {
    fn new() -> Self {
        Pair { lock: RangeLock::new_in(), cells: [Guarded::new_on(), Guarded::new_on()] }
    }

    fn at(&self, extent: Extent) -> impl Iterator<Item = &Guarded<F>> {
        let is_in = move |at: usize| extent.overlaps(one(at as u64));
        self.cells.iter().enumerate().filter(move |&(at, _)| is_in(at)).map(|(_, cell)| cell)
    }

    fn look(&self, guard: &RangeReadGuard<'_, R>) {
        self.at(RangeReadGuard::extent(guard)).for_each(|cell| _ = cell.get());
    }

    fn add(&self, guard: &RangeWriteGuard<'_, R>) {
        self.at(RangeWriteGuard::extent(guard)).for_each(Guarded::add);
    }

    fn sum(&self) -> u32 {
        self.cells.iter().map(Guarded::get).sum()
    }
}

fn one(at: u64) -> Extent {
    Extent::of(at..=at).expect("one position")
}

const FIRST: u64 = 0;
const SECOND: u64 = 1;
const A_WHILE: Duration = Duration::from_micros(100);

type Step<R, F = Sound> = fn(&Pair<R, F>);

fn read_first<R: RawRangeLock, F: Flaw>(pair: &Pair<R, F>) {
    pair.look(&pair.lock.read(one(FIRST)));
}

fn write_first<R: RawRangeLock, F: Flaw>(pair: &Pair<R, F>) {
    pair.add(&pair.lock.write(one(FIRST)));
}

fn write_second<R: RawRangeLock, F: Flaw>(pair: &Pair<R, F>) {
    pair.add(&pair.lock.write(one(SECOND)));
}

fn read_both<R: RawRangeLock, F: Flaw>(pair: &Pair<R, F>) {
    pair.look(&pair.lock.read(Extent::ALL));
}

fn write_both<R: RawRangeLock, F: Flaw>(pair: &Pair<R, F>) {
    pair.add(&pair.lock.write(Extent::ALL));
}

fn try_both_kinds<R: RawRangeLock, F: Flaw>(pair: &Pair<R, F>) {
    if let Some(guard) = pair.lock.try_read(one(SECOND)) {
        pair.look(&guard);
    }
    if let Some(guard) = pair.lock.try_write(one(FIRST)) {
        pair.add(&guard);
    }
}

fn downgrade<R: RawRangeLock, F: Flaw>(pair: &Pair<R, F>) {
    let guard = pair.lock.write(one(FIRST));
    pair.add(&guard);
    let before = pair.cells[0].get();
    let guard = RangeWriteGuard::downgrade(guard);
    pair.look(&guard);
    assert_eq!(pair.cells[0].get(), before, "nobody writes in between");
}

fn read_first_in_time<R: RawRangeLock, F: Flaw>(pair: &Pair<R, F>) {
    if let Some(guard) = pair.lock.try_read_for(one(FIRST), A_WHILE) {
        pair.look(&guard);
    }
}

fn write_both_in_time<R: RawRangeLock, F: Flaw>(pair: &Pair<R, F>) {
    if let Some(guard) = pair.lock.try_write_for(Extent::ALL, A_WHILE) {
        pair.add(&guard);
    }
}

/// One thread for each step; afterwards the lock is free, and so many additions were made.
fn program<R: Subject, F: Flaw>(
    name: &str,
    steps: &[Step<R, F>],
    added: std::ops::RangeInclusive<u32>,
) -> Program<Pair<R, F>> {
    let program = Program::new(name, Pair::<R, F>::new);
    let program = steps.iter().fold(program, |program, &step| program.thread(step));
    program.finally(move |pair| {
        assert!(pair.lock.try_write(Extent::ALL).is_some(), "free when everybody is done");
        assert!(pair.lock.raw().is_as_new(), "something is left");
        let sum = pair.sum();
        assert!(added.contains(&sum), "{sum} additions");
    })
}

type Job<R> = (&'static str, Vec<Step<R>>, std::ops::RangeInclusive<u32>);

fn two_threads<R: RawRangeLock>() -> Vec<Job<R>> {
    vec![
        ("two writers", vec![write_first, write_first], 2..=2),
        ("two disjoint writers", vec![write_first, write_second], 2..=2),
        ("a reader of both and a writer", vec![read_both, write_second], 1..=1),
        ("two readers", vec![read_both, read_first], 0..=0),
        ("tries and a writer", vec![try_both_kinds, write_second], 1..=2),
        ("a downgrade and a writer", vec![downgrade, write_both], 3..=3),
        ("a downgrade and a reader", vec![downgrade, read_both], 1..=1),
        ("a timed writer and a writer", vec![write_both_in_time, write_first], 1..=3),
        ("a timed reader and a writer", vec![read_first_in_time, write_both], 2..=2),
        ("a downgrade whose waiter gives up", vec![downgrade, read_first_in_time], 1..=1),
    ]
}

fn three_threads<R: RawRangeLock>() -> Vec<Job<R>> {
    vec![
        ("three writers, two disjoint", vec![write_first, write_second, write_both], 4..=4),
        ("two readers and a writer", vec![read_first, read_both, write_both], 2..=2),
        ("a reader, a writer and a downgrade", vec![read_both, write_second, downgrade], 2..=2),
        ("a timeout before both", vec![write_both_in_time, read_first, write_second], 1..=3),
        ("a timeout beside a downgrade", vec![downgrade, write_both_in_time, read_both], 1..=3),
        ("tries among others", vec![try_both_kinds, write_second, read_both], 1..=2),
    ]
}

fn explore_two<R: Subject>() {
    for (name, steps, added) in two_threads::<R>() {
        let program = program(name, &steps, added);
        if !program.assert(&Search::exhaustive().at_most(10_000)).complete {
            assert!(program.assert(&Search::exhaustive().preemptions(3)).complete);
        }
    }
}

fn explore_three<R: Subject>() {
    for (name, steps, added) in three_threads::<R>() {
        let program = program(name, &steps, added);
        assert!(program.assert(&Search::exhaustive().preemptions(1)).complete);
        program.assert(&Search::random(1, 500));
    }
}

/// Not complete: some hundred executions of eight threads.
fn explore_eight<R: Subject>() {
    let twice: Step<R> = |pair| {
        write_second(pair);
        read_both(pair);
    };
    let steps = [
        twice,
        write_both,
        read_first,
        write_both_in_time,
        downgrade,
        read_first_in_time,
        try_both_kinds,
        twice,
    ];
    let program = program("eight threads", &steps, 5..=8).clock_jumps(1).spurious_wakes(1);
    program.assert(&Search::pct(1, 3, 500));
    program.assert(&Search::random(2, 500));
}

fn explore_store_buffers<R: Subject>() {
    for (name, steps, added) in two_threads::<R>() {
        let program = program(name, &steps, added).store_buffers();
        program.assert(&Search::exhaustive().at_most(1_500));
    }
}

/// Whoever waits for it to be released waits for ever.
fn explore_kept_downgrade<R: Subject>() {
    let program = Program::new("a downgrade that is kept", Pair::<R>::new)
        .thread(|pair| std::mem::forget(RangeWriteGuard::downgrade(pair.lock.write(one(FIRST)))))
        .thread(|pair| drop(pair.lock.read(one(FIRST))))
        .thread(|pair| drop(pair.lock.read(Extent::ALL)));
    assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
}

macro_rules! locks {
    ($($lock:ident: $raw:ty;)*) => {$(
        mod $lock {
            use super::*;
            #[test]
            fn two_threads_in_every_schedule() {
                explore_two::<$raw>();
            }
            #[test]
            fn three_threads_with_few_preemptions() {
                explore_three::<$raw>();
            }
            #[test]
            fn eight_threads_by_chance() {
                explore_eight::<$raw>();
            }
            #[test]
            fn with_store_buffers() {
                explore_store_buffers::<$raw>();
            }
            #[test]
            fn a_downgrade_that_is_kept_lets_readers_in() {
                explore_kept_downgrade::<$raw>();
            }
            #[test]
            fn a_sleeping_writer_is_passed_by_nobody() {
                for extent in [one(FIRST), Extent::ALL] {
                    assert!(passed_asleep::<$raw>(extent).assert(&who_passes()).complete);
                }
            }
        }
    )*};
}

locks! {
    naive: OfNaive;
    shared_word: OfWord;
}

// ---- who is passed ----

fn who_passes() -> Search {
    Search::exhaustive().preemptions(3)
}

/// A writer of the first position, somebody who keeps it away, and a reader of this and more that
/// comes again and again: if the writer slept before it came, the reader does not get in before it.
fn passed_asleep<R: RawRangeLock + 'static>(extent: Extent) -> Program<(Pair<R>, Cell<bool>)> {
    Program::new("a sleeping writer is passed", || (Pair::<R>::new(), Cell::new(false)))
        .thread(|(pair, done)| {
            let guard = pair.lock.write(one(FIRST));
            done.set(true);
            drop(guard);
        })
        .thread(|(pair, _)| drop(pair.lock.write(one(FIRST))))
        .thread(move |(pair, done)| {
            for _ in 0..2 {
                let waits = explore::sleeps_of(0).asleep;
                let guard = pair.lock.read(extent);
                assert!(!waits || done.get(), "the writer was passed");
                drop(guard);
            }
        })
        // So that nobody sleeps for the list's lock: who sleeps is on the list.
        .early_spins(0)
}

/// Grants the range to whichever waiter looks again first.
struct Barging {
    lock: OfNaive,
    nothing: <Explored as Platform>::AtomicU32,
}

// SAFETY: as the lock in it.
unsafe impl RawRangeLock for Barging {
    type Platform = Explored;
    type Hold = <OfNaive as RawRangeLock>::Hold;
    const NEW: Self = Barging { lock: Naive::NEW, nothing: AtomicCell::ZERO };

    fn acquire(&self, extent: Extent, access: Access, patience: Patience) -> Option<Self::Hold> {
        loop {
            let hold = self.lock.acquire(extent, access, Patience::None);
            if hold.is_some() || patience == Patience::None {
                return hold;
            }
            Explored::park(&self.nothing, 0, Some(Explored::now() + 1));
        }
    }
    unsafe fn downgrade(&self, extent: Extent, hold: &mut Self::Hold) {
        // SAFETY: `hold` came from this lock for this extent, as the caller promises.
        unsafe { self.lock.downgrade(extent, hold) };
    }
    unsafe fn release(&self, extent: Extent, access: Access, hold: Self::Hold) {
        // SAFETY: `hold` came from this lock for this extent, as the caller promises.
        unsafe { self.lock.release(extent, access, hold) };
    }
}

#[test]
fn the_explorer_notices_who_passes() {
    let failure = passed_asleep::<Barging>(one(FIRST)).check(&who_passes());
    let failure = failure.expect_err("whoever comes first gets in");
    assert!(matches!(failure.kind, FailureKind::Panicked { thread: 3, .. }), "{failure}");
}

// ---- flaws ----

fn with_a_flaw<R: Subject, F: Flaw>(steps: &[Step<R, F>]) -> FailureKind {
    let program = program("with a flaw", steps, 0..=6);
    let found = program.check(&Search::exhaustive().preemptions(2).at_most(100_000));
    let failure = found.expect_err("the flaw must be noticed");
    let again = program.replay(&failure.schedule).expect_err("and again");
    assert_eq!((&again.kind, &again.trace), (&failure.kind, &failure.trace));
    failure.kind
}

#[test]
fn the_explorer_notices_flaws() {
    let lost =
        |kind: FailureKind| assert!(matches!(kind, FailureKind::LostWakeUp { .. }), "{kind}");
    lost(with_a_flaw::<OfNaive<Deaf>, Deaf>(&[write_first, write_both]));
    lost(with_a_flaw::<OfWord<Deaf>, Deaf>(&[write_first, write_both]));
    lost(with_a_flaw::<OfWord<Deaf>, Deaf>(&[downgrade, read_both]));
    lost(with_a_flaw::<OfNaive<Blind>, Blind>(&[write_first, write_both]));
    lost(with_a_flaw::<OfWord<Blind>, Blind>(&[write_first, write_both]));
    for kind in [
        with_a_flaw::<OfNaive<Torn>, Torn>(&[write_first, write_both]),
        with_a_flaw::<OfWord<Torn>, Torn>(&[write_first, write_both]),
    ] {
        assert!(!matches!(kind, FailureKind::NotDeterministic), "{kind}");
    }
}
