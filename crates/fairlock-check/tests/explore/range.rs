//! `RangeLock` in every schedule within stated bounds: ranges that conflict exclude each other, on CPUs
//! with store buffers too; nobody sleeps for ever; who waits is woken once, when it has its range; a
//! writer that waits is passed by nobody but those that share with it what a writer before it leaves;
//! tries fail only for a reason. Platforms that lack a barrier or wake-ups are noticed.

use std::cell::Cell;
use std::time::Duration;

use fairlock::range::{Extent, RangeLock, RangeReadGuard, RangeWriteGuard, RawRangeLock, Slotted};
use fairlock_sim::On;
use fairlock_sim::explore::{
    self, Deaf, Explore, FailureKind, Flaw, Guarded, NoBarrier, NoFence, Program, Search, Sound,
    Symmetric, SymmetricNoFence, Torn,
};

/// Positions that the threads fight over.
const POSITIONS: usize = 6;

/// Each position is a block. With two stripes, 0 and 1 lie in different ones; ranges of five are wide.
type Striped<F> = Slotted<On<Explore<F>>, 2, 0>;
/// The same with one for all.
type Single<F> = Slotted<On<Explore<F>>, 1, 0>;

struct State<R: RawRangeLock, F: Flaw> {
    lock: RangeLock<R>,
    data: [Guarded<F>; POSITIONS],
    /// For checks: what threads tell each other.
    said: [Cell<bool>; 4],
}

type Step<R, F> = fn(&State<R, F>);

impl<R: RawRangeLock, F: Flaw> State<R, F> {
    fn new() -> Self {
        State {
            lock: RangeLock::new_in(),
            data: [(); POSITIONS].map(|()| Guarded::new_on()),
            said: Default::default(),
        }
    }

    fn write(&self, from: u64, to: u64) {
        let guard = self.lock.write(extent(from, to));
        self.alone(&guard);
    }

    fn read(&self, from: u64, to: u64) {
        let guard = self.lock.read(extent(from, to));
        self.shared(&guard);
    }

    fn alone(&self, guard: &RangeWriteGuard<'_, R>) {
        self.of(RangeWriteGuard::extent(guard)).for_each(Guarded::add);
    }

    fn shared(&self, guard: &RangeReadGuard<'_, R>) {
        self.of(RangeReadGuard::extent(guard)).for_each(|data| _ = data.get());
    }

    fn of(&self, extent: Extent) -> impl Iterator<Item = &Guarded<F>> {
        let last = extent.last().min(POSITIONS as u64 - 1);
        self.data[extent.first() as usize..=last as usize].iter()
    }

    fn say(&self, what: usize) {
        self.said[what].set(true);
    }

    fn said(&self, what: usize) -> bool {
        self.said[what].get()
    }
}

fn extent(from: u64, to: u64) -> Extent {
    Extent::of(from..to).expect("not empty")
}

// ---- steps ----

fn write_0<R: RawRangeLock, F: Flaw>(state: &State<R, F>) {
    state.write(0, 1);
}

fn write_1<R: RawRangeLock, F: Flaw>(state: &State<R, F>) {
    state.write(1, 2);
}

fn write_01<R: RawRangeLock, F: Flaw>(state: &State<R, F>) {
    state.write(0, 2);
}

fn write_all<R: RawRangeLock, F: Flaw>(state: &State<R, F>) {
    let guard = state.lock.write(Extent::ALL);
    state.alone(&guard);
}

fn write_wide<R: RawRangeLock, F: Flaw>(state: &State<R, F>) {
    state.write(1, 6);
}

fn read_0<R: RawRangeLock, F: Flaw>(state: &State<R, F>) {
    state.read(0, 1);
}

fn read_0_twice<R: RawRangeLock, F: Flaw>(state: &State<R, F>) {
    state.read(0, 1);
    state.read(0, 1);
}

fn read_01<R: RawRangeLock, F: Flaw>(state: &State<R, F>) {
    state.read(0, 2);
}

fn read_wide<R: RawRangeLock, F: Flaw>(state: &State<R, F>) {
    state.read(0, 6);
}

fn try_both<R: RawRangeLock, F: Flaw>(state: &State<R, F>) {
    if let Some(guard) = state.lock.try_read(extent(0, 1)) {
        state.shared(&guard);
    }
    if let Some(guard) = state.lock.try_write(extent(0, 2)) {
        state.alone(&guard);
    }
}

fn write_in_time<R: RawRangeLock, F: Flaw>(state: &State<R, F>) {
    if let Some(guard) = state.lock.try_write_for(extent(0, 2), Duration::from_micros(100)) {
        state.alone(&guard);
    }
}

fn read_in_time<R: RawRangeLock, F: Flaw>(state: &State<R, F>) {
    if let Some(guard) = state.lock.try_read_for(extent(0, 2), Duration::from_micros(100)) {
        state.shared(&guard);
    }
}

fn downgrade<R: RawRangeLock, F: Flaw>(state: &State<R, F>) {
    let guard = state.lock.write(extent(0, 2));
    state.alone(&guard);
    let before = state.data[0].get();
    let guard = RangeWriteGuard::downgrade(guard);
    state.shared(&guard);
    assert_eq!(state.data[0].get(), before, "nobody writes in between");
}

/// Holds so many disjoint ranges that the last are in no slot.
fn hold_five<R: RawRangeLock, F: Flaw>(state: &State<R, F>) {
    let [_a, _b] = [state.lock.read(extent(2, 3)), state.lock.read(extent(3, 4))];
    let [_c, _d] = [state.lock.read(extent(4, 5)), state.lock.read(extent(5, 6))];
    let apart = state.lock.write(extent(0, 1));
    state.alone(&apart);
}

// ---- exclusion and progress ----

fn program<R: RawRangeLock + 'static, F: Flaw>(
    name: &str,
    steps: &[Step<R, F>],
) -> Program<State<R, F>> {
    let program = Program::new(name, State::new).early_time_outs(2).spurious_wakes(1);
    let free = |state: &State<R, F>| {
        assert!(state.lock.try_write(Extent::ALL).is_some(), "free when all are done");
    };
    steps.iter().fold(program, |program, &step| program.thread(step)).finally(free)
}

/// Every schedule with so many preemptions, at once and with store buffers.
fn check<R: RawRangeLock + 'static>(name: &str, preemptions: u32, steps: &[Step<R, Sound>]) {
    let search = Search::exhaustive().preemptions(preemptions);
    let report = program(name, steps).assert(&search);
    println!("{report}");
    assert!(report.complete, "{report}");
    let report = program(name, steps).store_buffers().assert(&Search::random(1, 3_000));
    println!("{report}");
    println!("{}", program(name, steps).assert(&Search::pct(2, 4, 3_000)));
}

macro_rules! schedules {
    ($($name:ident $lock:ident [$($step:ident)*] at most $preemptions:literal;)*) => {$(
        #[test]
        fn $name() {
            check::<$lock<Sound>>(stringify!($name), $preemptions, &[$($step),*]);
        }
    )*};
}

schedules! {
    a_reader_and_a_writer Striped [read_0 write_0] at most 3;
    two_writers Striped [write_0 write_0] at most 3;
    writers_of_overlapping_ranges Striped [write_0 write_01] at most 3;
    a_writer_of_both_and_one_of_each Striped [write_01 write_0 write_1] at most 1;
    two_reads_and_a_writer Single [read_0_twice write_01] at most 3;
    two_readers_and_a_writer Striped [read_0 read_01 write_01] at most 1;
    a_reader_and_two_writers Single [read_0 write_0 write_01] at most 1;
    a_wide_reader_and_writers Striped [read_wide write_0 write_1] at most 1;
    a_wide_writer_and_readers Striped [write_all read_0 read_0] at most 1;
    wide_writers Striped [write_all write_wide] at most 3;
    a_wide_writer_above_a_narrow_one Striped [write_wide write_0 write_01] at most 1;
    tries_and_a_writer Striped [try_both write_0] at most 3;
    tries_and_tries Single [try_both try_both] at most 3;
    a_writer_in_time_and_a_reader Striped [write_in_time read_0] at most 3;
    a_reader_in_time_and_a_writer Striped [read_in_time write_0] at most 3;
    a_writer_in_time_between_others Single [write_0 write_in_time read_0] at most 1;
    a_downgrade_a_reader_and_a_writer Striped [downgrade read_0 write_0] at most 1;
    a_holder_without_a_slot_and_a_writer Striped [hold_five write_01] at most 2;
    a_holder_without_a_slot_and_a_reader Striped [hold_five read_01] at most 2;
}

// ---- who waits for whom ----

/// Both shared, or apart: neither ever waits, however they meet.
fn nobody_sleeps(name: &str, steps: [Step<Striped<Sound>, Sound>; 2]) {
    let program = steps.into_iter().enumerate().fold(
        Program::new(name, State::new),
        |program, (thread, step)| {
            program.thread(move |state| {
                step(state);
                assert_eq!(explore::sleeps_of(thread).count, 0);
            })
        },
    );
    assert!(program.assert(&Search::exhaustive().preemptions(3)).complete);
}

#[test]
fn ranges_that_do_not_conflict_never_wait_for_each_other() {
    nobody_sleeps("readers", [read_0, read_01]);
    nobody_sleeps("apart", [write_0, write_1]);
    nobody_sleeps("apart, one wide", [write_0, write_wide]);
    nobody_sleeps("apart, one wide and shared", [write_0, |state| state.read(1, 6)]);
}

#[test]
fn of_two_tries_one_succeeds() {
    fn attempt(state: &State<Striped<Sound>, Sound>, mine: usize) {
        if let Some(guard) = state.lock.try_write(extent(0, 1)) {
            state.alone(&guard);
            state.say(mine);
        }
    }
    let program = Program::new("two tries", State::new)
        .thread(|state| attempt(state, 0))
        .thread(|state| attempt(state, 1))
        .finally(|state| assert!(state.said(0) || state.said(1), "both failed"));
    assert!(program.assert(&Search::exhaustive().preemptions(4)).complete);
}

#[test]
fn a_try_beside_one_that_is_apart_succeeds() {
    let program = Program::new("apart", State::<Single<Sound>, Sound>::new)
        .thread(|state| state.alone(&state.lock.try_write(extent(0, 1)).expect("nobody there")))
        .thread(|state| state.alone(&state.lock.try_write(extent(1, 2)).expect("nobody there")))
        .thread(|state| state.shared(&state.lock.try_read(extent(2, 4)).expect("nobody there")));
    assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
}

/// Thread 0 waits to write past the holders of threads 1 and 2, who leave when it sleeps.
#[test]
fn a_writer_sleeps_once_for_all_it_waits_for() {
    fn hold(state: &State<Striped<Sound>, Sound>, range: Extent, mine: usize) {
        let guard = state.lock.read(range);
        state.say(mine);
        while !explore::sleeps_of(0).asleep && explore::sleeps_of(0).count == 0 {
            explore::pass_time(1_000);
        }
        drop(guard);
    }
    let program = Program::new("a writer and two readers", State::new)
        .thread(|state| {
            while !(state.said(0) && state.said(1)) {
                explore::pass_time(1_000);
            }
            state.write(0, 2);
            assert_eq!(explore::sleeps_of(0).count, 1);
        })
        .thread(|state| hold(state, extent(0, 1), 0))
        .thread(|state| hold(state, extent(0, 2), 1));
    println!("{}", program.assert(&Search::random(1, 3_000)));
}

/// Thread 1 waits to write what thread 0 reads; thread 2 reads when it waits.
#[test]
fn a_writer_that_waits_is_not_passed_by_readers() {
    let program = Program::new("a writer that waits", State::<Striped<Sound>, Sound>::new)
        .thread(|state| {
            let guard = state.lock.read(extent(0, 2));
            state.shared(&guard);
        })
        .thread(|state| {
            let guard = state.lock.write(extent(0, 1));
            state.alone(&guard);
            state.say(0);
        })
        .thread(|state| {
            for _ in 0..2 {
                let waits = state.lock.raw().waiting() > 0;
                let guard = state.lock.read(extent(0, 2));
                assert!(!waits || state.said(0), "the writer was passed");
                state.shared(&guard);
            }
        });
    assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
    program.store_buffers().assert(&Search::random(1, 3_000));
}

/// Thread 0 writes; thread 1 waits to write, then thread 2 to read: it comes in before thread 1, as
/// both waited for the same writer. But not past a writer that did not.
#[test]
fn readers_pass_only_writers_that_waited_for_the_same_writer() {
    fn program(
        waiting_writer: (u64, u64),
        check: fn(&State<Striped<Sound>, Sound>),
    ) -> Program<State<Striped<Sound>, Sound>> {
        Program::new("a phase of readers", State::<Striped<Sound>, Sound>::new)
            .thread(|state| {
                let other = state.lock.read(extent(3, 4));
                let guard = state.lock.write(extent(0, 1));
                state.say(1);
                while state.lock.raw().waiting() < 2 {
                    explore::pass_time(1_000);
                }
                drop(guard);
                drop(other);
            })
            .thread(move |state| {
                while !state.said(1) {
                    explore::pass_time(1_000);
                }
                let guard = state.lock.write(extent(waiting_writer.0, waiting_writer.1));
                state.say(0);
                state.alone(&guard);
            })
            .thread(move |state| {
                while state.lock.raw().waiting() < 1 {
                    explore::pass_time(1_000);
                }
                let guard = state.lock.read(extent(0, 4));
                check(state);
                state.shared(&guard);
            })
    }
    // Waits for the writer, and for the reader of 3.
    let passed = program((0, 4), |state| assert!(!state.said(0), "the reader had its turn"));
    println!("{}", passed.assert(&Search::random(1, 2_000)));
    // Waits for the reader of 3 alone.
    let kept = program((3, 4), |state| assert!(state.said(0), "the writer was passed"));
    println!("{}", kept.assert(&Search::random(1, 2_000)));
}

// ---- flaws ----

fn failure<F: Flaw>(name: &str, steps: &[Step<Striped<F>, F>], search: &Search) -> FailureKind {
    let program = program(name, steps).store_buffers();
    program.check(search).expect_err("the flaw is noticed").kind
}

fn is_asleep_for_ever(kind: &FailureKind) -> bool {
    matches!(kind, FailureKind::Deadlock { .. } | FailureKind::LostWakeUp { .. })
}

#[test]
fn a_missing_fence_is_noticed() {
    let search = Search::pct(1, 3, 100_000);
    failure::<NoFence>("no fence", &[read_0, write_0], &search);
    failure::<SymmetricNoFence>("no fence, no barrier", &[read_0, write_0], &search);
}

#[test]
fn without_an_asymmetric_barrier_full_fences_do() {
    let steps: [Step<Striped<Symmetric>, Symmetric>; 2] = [read_0_twice, write_01];
    program("symmetric", &steps).store_buffers().assert(&Search::random(1, 5_000));
}

#[test]
fn a_missing_barrier_before_a_sleep_is_noticed() {
    let search = Search::exhaustive().preemptions(3);
    let kind = failure::<NoBarrier>("no barrier", &[read_0, write_0], &search);
    assert!(is_asleep_for_ever(&kind), "{kind:?}");
}

#[test]
fn a_lost_wake_up_is_noticed() {
    let kind = failure::<Deaf>("deaf", &[write_0, write_0], &Search::random(1, 10_000));
    assert!(is_asleep_for_ever(&kind), "{kind:?}");
}

#[test]
fn torn_updates_are_noticed() {
    failure::<Torn>("torn", &[write_0, write_01, write_0], &Search::random(1, 100_000));
}
