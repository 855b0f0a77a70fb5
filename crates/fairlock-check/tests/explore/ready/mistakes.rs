//! Polls with a mistake, on platforms with a flaw: each has to be found, by programs in which nothing
//! is found without it.

use fairlock::ready::{Flaws, List, RawCounter, RawPoll, ReadyList, Trigger};
use fairlock_reference::flawed::{Flawed, Mistake, Mistakes};
use fairlock_reference::ready::{RwLockList, SpinList};
use fairlock_sim::explore::{
    Blind, Deaf, Explore, Failure, FailureKind, Program, Report, Search, Torn,
};
use fairlock_sim::{Explored, On};

use super::world::{NOW, READABLE, World, name, program, tokens};

/// The list to use, with a mistake.
pub type With<F> = Flawed<ReadyList<Explored>, F>;

macro_rules! mistakes {
    ($($name:ident { $($mistakes:tt)* })*) => {$(
        pub struct $name;
        // SAFETY: the explorer ends what goes wrong, in memory that is not used again (`Quarantine`).
        unsafe impl Mistake for $name {
            const MISTAKES: Mistakes = Mistakes { $($mistakes)* ..Mistakes::NONE };
        }
    )*};
}

mistakes! {
    Nothing {}
    LooksTooEarly { of_poll: Flaws { looks_too_early: true, ..Flaws::NONE }, }
    ReleasesInTwoSteps { of_poll: Flaws { releases_in_two_steps: true, ..Flaws::NONE }, }
    CallsNobody { of_poll: Flaws { calls_nobody: true, ..Flaws::NONE }, }
    ForgetsSleepers { of_poll: Flaws { forgets_sleepers: true, ..Flaws::NONE }, }
    LeavesAtOnce { of_poll: Flaws { leaves_at_once: true, ..Flaws::NONE }, }
    TakesYoungestFirst { takes_youngest_first: true, }
    SurveysNothing { surveys_nothing: true, }
}

type Found = Result<Report, Box<Failure>>;

fn search() -> Search {
    Search::exhaustive().preemptions(2)
}

// ---- programs that one of the mistakes breaks ----

/// The last signal comes while the consumer looks at a source that is queued, and not ready.
fn signals_one_after_the_other<L: List>() -> Found {
    let program = program::<L>("a signal that is taken back, and another", 1, Trigger::Edge)
        .thread(|world: &World<L>| {
            assert!(world.counters[0].add(1));
            world.counters[0].read();
            assert!(world.counters[0].add(1));
        })
        .thread(|world| assert_eq!(world.wait(1, None), [0]));
    program.early_spins(0).check(&search())
}

/// A producer leaves while the consumer lets go of its source.
fn a_source_leaves_at_the_end<L: List>() -> Found {
    let program = program::<L>("a source leaves at the end", 1, Trigger::Edge)
        .thread(|world: &World<L>| assert!(world.counters[0].add(1)))
        .thread(|world| {
            world.wait(1, None);
            world.poll.deregister(&world.counters[0]).expect("registered");
        });
    program.check(&search())
}

fn batches_of_one<L: List>() -> Found {
    let program = program::<L>("batches of one", 2, Trigger::Edge)
        .thread(|world: &World<L>| {
            world.counters.iter().for_each(|counter| assert!(counter.add(1)));
        })
        .threads(2, |world| assert_eq!(world.wait(1, None).len(), 1));
    program.early_spins(1).check(&Search::exhaustive().preemptions(1))
}

fn in_order<L: List>() -> Found {
    let program = program::<L>("in order", 2, Trigger::Edge)
        .thread(|world: &World<L>| {
            world.counters.iter().for_each(|counter| assert!(counter.add(1)));
        })
        .thread(|world| world.receive(Trigger::Edge, 1, &[1, 1]))
        .finally(|world| assert_eq!(*world.reported.borrow(), [0, 1]));
    program.check(&search())
}

fn a_frozen_producer<L: List>() -> Found {
    let program = program::<L>("a frozen producer", 1, Trigger::Edge)
        .thread(|world: &World<L>| _ = world.counters[0].add(1))
        .thread(|world| assert!(world.counters[0].add(16)))
        .thread(|world| world.receive(Trigger::Edge, 1, &[16]));
    program.early_spins(0).check_frozen_anywhere(0, &Search::exhaustive().preemptions(1))
}

fn a_source_moves<L: List>() -> Found {
    let make = || {
        let (polls, counter) = ([RawPoll::<L>::new(), RawPoll::new()], RawCounter::new(0));
        polls[0].register(&counter, 1, READABLE, Trigger::Level).expect("a new source");
        (polls, counter)
    };
    let program = Program::new(name::<L>("a source moves", Trigger::Level), make)
        .thread(|(_, counter)| assert!(counter.add(1)))
        .thread(|(polls, counter)| {
            polls[0].deregister(counter).expect("registered");
            polls[1].register(counter, 2, READABLE, Trigger::Level).expect("free");
        })
        .finally(|(polls, _)| {
            assert_eq!(tokens(&polls[0], 1, NOW), []);
            assert_eq!(tokens(&polls[1], 1, NOW), [2]);
        });
    program.check(&search())
}

fn everybody_sleeps(found: Found) {
    let failure = found.expect_err("a mistake is found");
    eprintln!("{}: {}, execution {}", failure.program, failure.kind, failure.execution);
    let sleeps =
        matches!(failure.kind, FailureKind::Deadlock { .. } | FailureKind::LostWakeUp { .. });
    assert!(sleeps, "{failure}");
}

fn is_found(found: Found) {
    let failure = found.expect_err("a mistake is found");
    eprintln!("{}: {}, execution {}", failure.program, failure.kind, failure.execution);
    assert_ne!(failure.kind, FailureKind::NotDeterministic, "{failure}");
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let programs: [fn() -> Found; 6] = [
        signals_one_after_the_other::<With<Nothing>>,
        a_source_leaves_at_the_end::<With<Nothing>>,
        batches_of_one::<With<Nothing>>,
        in_order::<With<Nothing>>,
        a_frozen_producer::<With<Nothing>>,
        a_source_moves::<With<Nothing>>,
    ];
    for program in programs {
        let report = program().unwrap_or_else(|failure| panic!("{failure}"));
        eprintln!("{report}");
        assert!(report.complete);
    }
}

#[test]
fn a_look_before_the_item_is_let_go_of_misses_a_signal() {
    everybody_sleeps(signals_one_after_the_other::<With<LooksTooEarly>>());
}

#[test]
fn an_item_let_go_of_in_two_steps_is_never_left() {
    is_found(a_source_leaves_at_the_end::<With<ReleasesInTwoSteps>>());
}

#[test]
fn who_leaves_something_behind_and_calls_nobody_is_found() {
    everybody_sleeps(batches_of_one::<With<CallsNobody>>());
}

#[test]
fn who_does_not_ask_again_for_those_who_sleep_is_found() {
    everybody_sleeps(batches_of_one::<With<ForgetsSleepers>>());
}

#[test]
fn a_list_that_gives_the_youngest_first_is_found() {
    let failure = in_order::<With<TakesYoungestFirst>>().expect_err("not in order");
    assert!(matches!(failure.kind, FailureKind::FinalCheck { .. }), "{failure}");
}

#[test]
fn without_a_survey_a_frozen_producer_hides_another() {
    everybody_sleeps(a_frozen_producer::<With<SurveysNothing>>());
}

#[test]
fn a_source_that_leaves_in_the_middle_of_a_signal_is_in_two_places() {
    is_found(a_source_moves::<With<LeavesAtOnce>>());
}

#[test]
fn flaws_of_the_platform_are_found() {
    everybody_sleeps(batches_of_one::<ReadyList<On<Explore<Deaf>>>>());
    everybody_sleeps(batches_of_one::<RwLockList<On<Explore<Deaf>>>>());
    everybody_sleeps(batches_of_one::<SpinList<On<Explore<Deaf>>>>());
    is_found(batches_of_one::<ReadyList<On<Explore<Blind>>>>());
    is_found(batches_of_one::<ReadyList<On<Explore<Torn>>>>());
    is_found(a_source_leaves_at_the_end::<ReadyList<On<Explore<Torn>>>>());
}
