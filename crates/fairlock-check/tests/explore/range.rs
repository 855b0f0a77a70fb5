//! `RangeLock` in every schedule within stated bounds: ranges that conflict exclude each other, on CPUs
//! with store buffers too; nobody sleeps for ever; who waits is woken when it can have its range; a
//! writer that has waited for long is passed by nobody but those that share with it what a writer before it leaves;
//! tries fail only for a reason. Platforms that lack a barrier or wake-ups are noticed.

use std::cell::Cell;
use std::rc::Rc;

use fairlock::platform::Platform;
use fairlock::policy::HANDOFF_AFTER_NS;
use fairlock::range::{Extent, Slotted};
use fairlock_check::explored;
use fairlock_check::long;
use fairlock_check::range::scenarios::{self, Positions, Raw, extent};
use fairlock_check::scenario::{Scenario, Subject};
use fairlock_sim::On;
use fairlock_sim::explore::{
    self, Deaf, Explore, FailureKind, Flaw, Guarded, NoBarrier, NoFence, Program, Search, Sound,
    Symmetric, SymmetricNoFence, Torn,
};

/// Each position is a block. With two stripes, 0 and 1 lie in different ones.
type Striped<F> = Slotted<On<Explore<F>>, 2, 0>;
/// The same with one for all.
type Single<F> = Slotted<On<Explore<F>>, 1, 0>;

type State<R, F> = Positions<R, Guarded<F>>;

/// For checks: what threads tell each other.
#[derive(Default)]
struct Said([Cell<bool>; 4]);

impl Said {
    fn say(&self, what: usize) {
        self.0[what].set(true);
    }
    fn said(&self, what: usize) -> bool {
        self.0[what].get()
    }
}

type Telling = (State<Striped<Sound>, Sound>, Said);

fn telling() -> Telling {
    (State::new(), Said::default())
}

// ---- exclusion and progress ----

fn program<R: Raw, F: Flaw>(scenario: &Scenario<State<R, F>>) -> Program<State<R, F>> {
    explored::program("range", scenario).early_timeouts(2).spurious_wakes(1)
}

/// Every schedule with so many preemptions, at once and with store buffers.
fn check<R: Raw>(scenario: &Scenario<State<R, Sound>>, preemptions: u32) {
    let search = Search::exhaustive().preemptions(preemptions);
    let report = program(scenario).assert(&search);
    println!("{report}");
    assert!(report.complete, "{report}");
    let report = program(scenario).store_buffers().assert(&Search::random(1, 3_000));
    println!("{report}");
    println!("{}", program(scenario).assert(&Search::pct(2, 4, 3_000)));
}

macro_rules! schedules {
    ($($name:ident $lock:ident $scenario:ident at most $preemptions:expr;)*) => {$(
        #[test]
        fn $name() {
            check::<$lock<Sound>>(&scenarios::$scenario(), $preemptions);
        }
    )*};
}

schedules! {
    a_reader_and_a_writer Striped a_reader_and_a_writer at most 3;
    two_writers Striped two_writers at most long::depth(2, 3);
    writers_of_overlapping_ranges Striped a_writer_and_one_of_more at most long::depth(2, 3);
    a_writer_of_both_and_one_of_each Striped a_writer_of_both_and_one_of_each at most 1;
    two_reads_and_a_writer Single two_reads_and_a_writer at most long::depth(2, 3);
    two_readers_and_a_writer Striped two_readers_and_a_writer_of_both at most 1;
    a_reader_and_two_writers Single a_reader_and_two_writers at most 1;
    a_wide_reader_and_writers Striped a_wide_reader_and_writers at most 1;
    a_wide_writer_and_readers Striped a_wide_writer_and_readers at most 1;
    a_coarse_reader_and_a_writer Striped a_coarse_reader_and_a_writer at most long::depth(2, 3);
    coarse_writers Striped coarse_writers at most long::depth(2, 3);
    a_coarse_writer_and_a_fine_one Single a_coarse_writer_and_a_fine_one at most long::depth(2, 3);
    wide_writers Striped wide_writers_apart_at_0 at most long::depth(2, 3);
    a_wide_writer_above_a_narrow_one Striped a_wide_writer_above_a_narrow_one at most 1;
    a_try_to_read_and_writes Striped a_try_to_read_and_writes at most long::depth(1, 4);
    tries_and_a_writer Striped tries_and_a_writer at most long::depth(2, 3);
    tries_and_tries Single tries_and_tries at most long::depth(2, 3);
    a_writer_in_time_and_a_reader Striped a_writer_in_time_and_a_reader at most long::depth(2, 3);
    a_reader_in_time_and_a_writer Striped a_reader_in_time_and_a_writer at most long::depth(2, 3);
    a_writer_in_time_between_others Single a_writer_in_time_between_others at most 1;
    a_downgrade_a_reader_and_a_writer Striped a_downgrade_a_reader_and_a_writer at most 1;
    a_holder_without_a_slot_and_a_writer Striped a_holder_without_a_slot_and_a_writer at most 2;
    a_holder_without_a_slot_and_a_reader Striped a_holder_without_a_slot_and_a_reader at most 2;
}

/// Other ranges were held exclusively at once before, in cells of the stripe.
fn written<R: Raw>() -> State<R, Sound> {
    let state = State::new();
    let guards = [1, 2, 3, 4].map(|at| state.lock.write(extent(at, at + 1)));
    drop(guards);
    state
}

#[test]
fn two_writers_after_others_elsewhere() {
    let scenario = scenarios::two_writers().beginning_with(written);
    let program = program::<Single<Sound>, Sound>(&scenario).store_buffers();
    println!("{}", program.assert(&Search::random(1, 5_000)));
}

// ---- who waits for whom ----

/// Both shared, or apart: neither ever waits, however they meet.
fn nobody_sleeps(scenario: Scenario<State<Striped<Sound>, Sound>>) {
    let program = scenario.steps.into_iter().enumerate().fold(
        Program::new(scenario.name, scenario.new),
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
    nobody_sleeps(scenarios::readers());
    nobody_sleeps(scenarios::writers_apart());
    nobody_sleeps(scenarios::a_writer_and_a_wide_one_apart());
    nobody_sleeps(scenarios::a_writer_and_a_coarse_one_apart());
    nobody_sleeps(scenarios::a_writer_and_a_coarse_reader_apart());
}

#[test]
fn of_two_tries_one_succeeds() {
    fn attempt((state, said): &Telling, mine: usize) {
        if let Some(guard) = state.lock.try_write(extent(0, 1)) {
            state.add(&guard);
            said.say(mine);
        }
    }
    let program = Program::new("two tries", telling)
        .thread(|state| attempt(state, 0))
        .thread(|state| attempt(state, 1))
        .finally(|(_, said)| assert!(said.said(0) || said.said(1), "both failed"));
    assert!(program.assert(&Search::exhaustive().preemptions(long::depth(3, 4))).complete);
}

#[test]
fn a_try_beside_one_that_is_apart_succeeds() {
    let program = Program::new("apart", State::<Single<Sound>, Sound>::new)
        .thread(|state| state.add(&state.lock.try_write(extent(0, 1)).expect("nobody there")))
        .thread(|state| state.add(&state.lock.try_write(extent(1, 2)).expect("nobody there")))
        .thread(|state| state.look(&state.lock.try_read(extent(2, 4)).expect("nobody there")));
    assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
}

/// So long that whoever waits must not be passed any more.
const OVERDUE: u64 = 2 * HANDOFF_AFTER_NS;

/// Thread 0 waits to write past the holders of threads 1 and 2, who leave when it sleeps, `later`.
fn a_writer_and_two_readers(later: u64, check: fn(&Telling, usize)) -> Program<Telling> {
    let hold = move |telling: &Telling, range: Extent, mine: usize| {
        let (state, said) = telling;
        let guard = state.lock.read(range);
        said.say(mine);
        while !explore::sleeps_of(0).asleep && explore::sleeps_of(0).count == 0 {
            explore::pass_time(1_000);
        }
        explore::pass_time(later);
        said.say(2 + mine);
        drop(guard);
        check(telling, mine);
    };
    Program::new("a writer and two readers", telling)
        .thread(move |(state, said)| {
            while !(said.said(0) && said.said(1)) {
                explore::pass_time(1_000);
            }
            state.write(0, 2);
            // It is handed its range, and looks twice by then whether it has been passed for long enough. Each of the others
            // holds the queue's lock once when it leaves, on which this thread may sleep, too.
            assert!(later == 0 || (1..=5).contains(&explore::sleeps_of(0).count));
        })
        .thread(move |state| hold(state, extent(0, 1), 0))
        .thread(move |state| hold(state, extent(0, 2), 1))
}

#[test]
fn a_writer_sleeps_once_for_all_it_waits_for() {
    let program = a_writer_and_two_readers(OVERDUE, |_, _| ());
    println!("{}", program.assert(&Search::random(1, 3_000)));
}

#[test]
fn a_writer_is_not_woken_while_somebody_holds_its_range() {
    let program = a_writer_and_two_readers(0, |(_, said), mine| {
        let asleep = explore::sleeps_of(0).asleep;
        let other_leaves = said.said(3 - mine);
        // When it has waited for this long it wakes up by itself.
        let is_overdue = On::<Explore<Sound>>::now() > HANDOFF_AFTER_NS;
        assert!(asleep || other_leaves || is_overdue, "woken in vain");
    });
    println!("{}", program.assert(&Search::random(1, 6_000)));
}

/// Thread 1 waits to write what thread 0 reads by two guards. When it has waited for long, one of them goes, and thread 2
/// comes to read.
#[test]
fn a_writer_that_has_waited_for_long_is_not_passed_by_readers() {
    let program = Program::new("a writer that has waited for long", telling)
        .thread(|(state, said)| {
            let [last, first] = [state.lock.read(extent(0, 2)), state.lock.read(extent(1, 2))];
            // Before that, thread 1 could keep this one from its second range.
            said.say(3);
            // And nobody else has come, for whom thread 1 could wait at the queue's lock.
            let waits = explore::sleeps_of(1).asleep && !said.said(2);
            explore::pass_time(OVERDUE);
            drop(first);
            if waits {
                said.say(1);
            }
            drop(last);
        })
        .thread(|(state, said)| {
            if !said.said(3) {
                return;
            }
            let guard = state.lock.write(extent(0, 2));
            state.add(&guard);
            said.say(0);
        })
        .thread(|(state, said)| {
            said.say(2);
            for _ in 0..2 {
                let must_not_pass = said.said(1);
                let guard = state.lock.read(extent(0, 1));
                assert!(!must_not_pass || said.said(0), "the writer was passed");
                state.look(&guard);
            }
        });
    assert!(program.assert(&Search::exhaustive().preemptions(long::depth(1, 2))).complete);
    program.assert(&Search::pct(1, 3, 3_000));
    program.store_buffers().assert(&Search::random(1, 3_000));
}

#[test]
fn a_writer_is_next_once_it_has_waited_for_long_though_nobody_leaves() {
    let program = Program::new("nobody leaves", telling)
        .thread(|(state, said)| {
            let guard = state.lock.read(extent(0, 2));
            said.say(1);
            while explore::sleeps_of(1).count == 0 {
                explore::pass_time(100);
            }
            // Without an end if thread 1 did not look by itself.
            while !state.lock.raw().hands_out_in_order() {
                explore::pass_time(HANDOFF_AFTER_NS);
            }
            assert!(state.lock.try_read(extent(0, 1)).is_none(), "the writer was passed");
            drop(guard);
        })
        .thread(|(state, said)| {
            while !said.said(1) {
                explore::pass_time(1_000);
            }
            state.write(0, 2);
        });
    println!("{}", program.assert(&Search::random(1, 2_000)));
}

/// Thread 1 waits to write what thread 0 writes; thread 2 `comes` when thread 0 has left, or is about to.
fn beside_a_writer_that_sleeps(comes: impl Fn(&Telling) + 'static) -> Program<Telling> {
    Program::new("beside a writer that sleeps", telling)
        .thread(|(state, said)| {
            let guard = state.lock.write(extent(0, 1));
            said.say(1);
            while !explore::sleeps_of(1).asleep {
                explore::pass_time(1_000);
            }
            said.say(2);
            drop(guard);
        })
        .thread(|(state, said)| {
            while !said.said(1) {
                explore::pass_time(1_000);
            }
            state.write(0, 1);
            said.say(0);
        })
        .thread(move |telling| {
            while !telling.1.said(2) {
                explore::pass_time(1_000);
            }
            comes(telling);
        })
}

#[test]
fn a_thread_that_runs_may_pass_one_that_sleeps() {
    let passed = Rc::new(Cell::new(false));
    let seen = Rc::clone(&passed);
    let program = beside_a_writer_that_sleeps(move |(state, said)| {
        state.write(0, 1);
        seen.set(seen.get() || !said.said(0) && explore::sleeps_of(2).count == 0);
    });
    program.assert(&Search::random(1, 1_000));
    assert!(passed.get());
}

/// The writer may be let in between the reader's look at the filters and its look at the gate.
#[test]
fn a_reader_that_comes_as_a_waiter_is_let_in_does_not_read_beside_it() {
    let program = beside_a_writer_that_sleeps(|(state, _)| state.read(0, 1));
    println!("{}", program.assert(&Search::random(1, 3_000)));
}

/// Thread 0 writes; thread 1 waits to write, then thread 2 to read, both for long: it gets its range before thread 1, as
/// both waited for the same writer. But not past a writer that did not.
#[test]
fn readers_pass_only_writers_that_waited_for_the_same_writer() {
    fn program(waiting_writer: (u64, u64), check: fn(&Said)) -> Program<Telling> {
        Program::new("a phase of readers", telling)
            .thread(|(state, said)| {
                let other = state.lock.read(extent(3, 4));
                let guard = state.lock.write(extent(0, 1));
                said.say(1);
                while state.lock.raw().waiting() < 2 {
                    explore::pass_time(1_000);
                }
                explore::pass_time(OVERDUE);
                drop(guard);
                drop(other);
            })
            .thread(move |(state, said)| {
                while !said.said(1) {
                    explore::pass_time(1_000);
                }
                let guard = state.lock.write(extent(waiting_writer.0, waiting_writer.1));
                said.say(0);
                state.add(&guard);
            })
            .thread(move |(state, said)| {
                while state.lock.raw().waiting() < 1 {
                    explore::pass_time(1_000);
                }
                let guard = state.lock.read(extent(0, 4));
                check(said);
                state.look(&guard);
            })
    }
    // Waits for the writer, and for the reader of 3.
    let passed = program((0, 4), |said| assert!(!said.said(0), "the reader had its turn"));
    println!("{}", passed.assert(&Search::random(1, 2_000)));
    // Waits for the reader of 3 alone.
    let kept = program((3, 4), |said| assert!(said.said(0), "the writer was passed"));
    println!("{}", kept.assert(&Search::random(1, 2_000)));
}

// ---- flaws ----

fn failure<F: Flaw>(scenario: Scenario<State<Striped<F>, F>>, search: &Search) -> FailureKind {
    let program = program(&scenario).store_buffers();
    program.check(search).expect_err("the flaw is noticed").kind
}

fn is_asleep_for_ever(kind: &FailureKind) -> bool {
    matches!(kind, FailureKind::Deadlock { .. } | FailureKind::LostWakeUp { .. })
}

#[test]
fn a_missing_fence_is_noticed() {
    let search = Search::pct(1, 3, 100_000);
    // The first read fences as well when it says that ranges are shared.
    failure::<NoFence>(scenarios::two_reads_and_a_writer(), &search);
    failure::<SymmetricNoFence>(scenarios::two_reads_and_a_writer(), &search);
}

#[test]
fn without_an_asymmetric_barrier_full_fences_do() {
    let scenario = scenarios::two_reads_and_a_writer();
    program::<Striped<Symmetric>, Symmetric>(&scenario)
        .store_buffers()
        .assert(&Search::random(1, 5_000));
}

#[test]
fn a_missing_barrier_before_a_sleep_is_noticed() {
    let search = Search::exhaustive().preemptions(3);
    let kind = failure::<NoBarrier>(scenarios::a_reader_and_a_writer(), &search);
    assert!(is_asleep_for_ever(&kind), "{kind:?}");
}

#[test]
fn a_lost_wake_up_is_noticed() {
    let kind = failure::<Deaf>(scenarios::two_writers(), &Search::random(1, 10_000));
    assert!(is_asleep_for_ever(&kind), "{kind:?}");
}

#[test]
fn torn_updates_are_noticed() {
    failure::<Torn>(scenarios::three_writers(), &Search::random(1, 100_000));
}
