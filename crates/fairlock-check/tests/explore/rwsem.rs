//! `RwSem` with every policy in every schedule within stated bounds: nobody is let in beside a
//! writer, nobody sleeps for ever, and policies keep their promises about who is passed.

use fairlock::lock_api::RwLock;
use fairlock::policy::{
    Competition, Discipline, Handoff, ImmediateHandoff, Linux3_10, Linux3_16, Linux5_1, Linux5_2,
    Linux5_3, Linux5_11, NoReaderSteal, PhaseFair, Policy, Shares, TimeFair, WriterSpin,
};
use fairlock::rwsem::{Inline, Pooled, QueueStorage, RawRwSem};
use fairlock_check::explored::program;
use fairlock_check::long;
use fairlock_check::read_write;
use fairlock_check::scenario::Scenario;
use fairlock_sim::explore::{
    self, Blind, Deaf, Explore, FailureKind, Flaw, Guarded, Program, Search, Sound, Torn,
};
use fairlock_sim::{Explored, On};

type Own<F = Sound> = Inline<On<Explore<F>>>;
type Pool<F = Sound> = Pooled<On<Explore<F>>>;
type Lock<Pol, F = Sound, L = Own<F>> = RwLock<RawRwSem<Pol, On<Explore<F>>, L>, Guarded<F>>;
type Scenarios<Pol, L> = Vec<Scenario<Lock<Pol, Sound, L>>>;

/// More executions than this of two threads, and preemptions are bounded.
fn most_of_two() -> u64 {
    long::depth(5_000, 20_000)
}

/// Without a bound on preemptions where that takes few executions, else with one; and with one jump
/// of the clock in each thread.
fn explore_two<Pol: Policy, L: QueueStorage<Explored>>(preemptions: u32) {
    let scenarios: Scenarios<Pol, L> = read_write::two_threads();
    for scenario in scenarios {
        let program = program(Pol::NAME, &scenario).clock_jumps(1);
        if !program.assert(&Search::exhaustive().at_most(most_of_two())).complete {
            assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
        }
    }
}

fn explore_more<Pol: Policy, L: QueueStorage<Explored>>(
    scenarios: Scenarios<Pol, L>,
    preemptions: u32,
) {
    for scenario in scenarios {
        let program = program(Pol::NAME, &scenario);
        assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
    }
}

/// Not complete: some thousand executions of eight threads.
fn explore_eight<Pol: Policy, L: QueueStorage<Explored>>() {
    let scenario: Scenario<Lock<Pol, Sound, L>> = read_write::eight_kinds();
    let program = program(Pol::NAME, &scenario).clock_jumps(1);
    for seed in 1..=3 {
        program.assert(&Search::pct(seed, 3, 700));
    }
    program.assert(&Search::random(4, 700));
}

/// Stores that arrive late, as on an x86.
fn explore_store_buffers<Pol: Policy, L: QueueStorage<Explored>>() {
    let two: Scenarios<Pol, L> = read_write::two_threads();
    for scenario in two {
        let program = program(Pol::NAME, &scenario).store_buffers();
        program.assert(&Search::exhaustive().at_most(5_000));
        program.assert(&Search::random(1, 1_000));
    }
    let three: Scenarios<Pol, L> = read_write::three_threads();
    for scenario in three {
        let program = program(Pol::NAME, &scenario).store_buffers();
        program.assert(&Search::random(2, 1_000));
    }
}

macro_rules! policies {
    ($($module:ident: $policy:ty, $storage:ty, $of_two:expr, $of_three:expr, $of_four:expr;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn two_threads_in_every_schedule() {
                explore_two::<$policy, $storage>($of_two);
            }
            #[test]
            fn three_threads_with_few_preemptions() {
                explore_more::<$policy, $storage>(read_write::three_threads(), $of_three);
            }
            #[test]
            fn four_threads_with_fewer() {
                explore_more::<$policy, $storage>(read_write::four_threads(), $of_four);
            }
            #[test]
            fn eight_threads_by_chance() {
                explore_eight::<$policy, $storage>();
            }
            #[test]
            fn with_store_buffers() {
                explore_store_buffers::<$policy, $storage>();
            }
        }
    )*};
}

policies! {
    // A third preemption of two threads multiplies the executions by some fifteen.
    time_fair: TimeFair, Own, 2, 1, long::depth(0, 1);
    time_fair_asleep: TimeFairAsleep, Own, long::depth(2, 3), long::depth(1, 2), 1;
    time_fair_asleep_with_a_pooled_queue: TimeFairAsleep, Pool, 2, 1, 1;
    time_fair_with_a_pooled_queue: TimeFair, Pool, 2, 1, long::depth(0, 1);
    phase_fair: PhaseFair, Own, long::depth(2, 3), 2, 1;
    phase_fair_with_a_pooled_queue: PhaseFair, Pool, long::depth(2, 3), long::depth(1, 2), 1;
    // Those that users do not get.
    linux_3_10: Linux3_10, Own, long::depth(2, 3), long::depth(1, 2), long::depth(0, 1);
    linux_5_1: Linux5_1, Own, long::depth(2, 3), long::depth(1, 2), long::depth(0, 1);
    linux_5_2: Linux5_2, Own, long::depth(2, 3), long::depth(1, 2), long::depth(0, 1);
    linux_5_3: Linux5_3, Own, long::depth(2, 3), long::depth(1, 2), long::depth(0, 1);
    linux_5_11: Linux5_11, Own, long::depth(2, 3), long::depth(1, 2), long::depth(0, 1);
    no_reader_steal: NoReaderSteal, Own, long::depth(2, 3), long::depth(1, 2), long::depth(0, 1);
    immediate_handoff: ImmediateHandoff, Own, long::depth(2, 3), long::depth(1, 2), long::depth(0, 1);
}

#[test]
fn upgrades_beside_both() {
    fn explore<L: QueueStorage<Explored>>() {
        let scenario: Scenario<Lock<TimeFair, Sound, L>> = read_write::upgrades_beside_both();
        let program = program(TimeFair::NAME, &scenario).clock_jumps(1);
        for seed in 1..=3 {
            program.assert(&Search::pct(seed, 3, 2_000));
        }
        program.assert(&Search::random(4, 2_000));
    }
    explore::<Own>();
    explore::<Pool>();
}

/// [`TimeFair`] without its spins, each of which multiplies the executions.
struct TimeFairAsleep;

impl Policy for TimeFairAsleep {
    const NAME: &'static str = "timefair-asleep";
    const DISCIPLINE: Discipline = Discipline::Shares(Shares { spin: 0, ..Shares::TIME_FAIR });
}

// ---- spinning in the queue, and before it without a handoff ----

/// [`Linux3_10`] whose writers spin in the queue.
struct SpinningInQueue;

impl Policy for SpinningInQueue {
    const NAME: &'static str = "spinning-in-queue";
    const DISCIPLINE: Discipline = Discipline::Compete(Competition {
        writer_spins: WriterSpin::InQueue,
        ..Competition::LINUX_3_10
    });
}

/// The same without a bias in vain, and where the head alone may take the lock: those behind it
/// spin in vain.
struct SpinningInOrder;

impl Policy for SpinningInOrder {
    const NAME: &'static str = "spinning-in-order";
    const DISCIPLINE: Discipline = Discipline::Compete(Competition {
        writer_spins: WriterSpin::InQueue,
        writer_steals: false,
        writer_fast_fail: true,
        handoff: Handoff::After(4_000_000),
        ..Competition::LINUX_3_10
    });
}

/// Pairs with a jump of the clock in each thread, and threes.
fn explore_briefly<Pol: Policy>() {
    let scenarios: Scenarios<Pol, Own> = read_write::two_threads();
    for scenario in scenarios {
        let program = program(Pol::NAME, &scenario).clock_jumps(1);
        assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
    }
    explore_more::<Pol, Own>(read_write::three_threads(), 1);
}

#[test]
fn linux_3_16_with_few_preemptions() {
    explore_briefly::<Linux3_16>();
}

#[test]
fn spinning_in_the_queue_with_few_preemptions() {
    explore_briefly::<SpinningInQueue>();
    explore_briefly::<SpinningInOrder>();
}

#[test]
fn writers_spinning_in_the_queue_leave_it_as_they_enter_and_sleep_unless_called() {
    let scenarios: Scenarios<SpinningInQueue, Own> = read_write::several_writers();
    for scenario in scenarios {
        let program = program(SpinningInQueue::NAME, &scenario).clock_jumps(1);
        let report = program.assert(&Search::exhaustive().preemptions(1));
        assert!(report.complete);
        program.assert(&Search::random(1, 1_000));
    }
    explore_more::<SpinningInOrder, Own>(read_write::several_writers(), 1);
    explore_eight::<SpinningInQueue, Own>();
}

// ---- who is passed ----

/// A writer, another one that comes and goes, and readers that each come again and again. No
/// reader that comes while the first writer sleeps enters before it more often than `most` times.
fn a_sleeping_writer_is_passed<Pol: Policy>(most: u32) -> Program<(Lock<Pol>, Done)> {
    let name = format!("{}: a sleeping writer is passed", Pol::NAME);
    Program::new(name, || (Lock::new(Guarded::new()), Done::default()))
        .thread(|(lock, done)| {
            let guard = lock.write();
            done.set();
            drop(guard);
        })
        .thread(|(lock, _)| drop(lock.write()))
        .thread(move |(lock, done)| {
            let mut passed = 0;
            for _ in 0..3 {
                let waits = explore::sleeps_of(0).asleep;
                let guard = lock.read();
                passed += u32::from(waits && !done.get());
                drop(guard);
            }
            assert!(passed <= most, "the writer was passed {passed} times");
        })
        // So that nobody sleeps for the queue's lock: who sleeps is in the queue.
        .early_spins(0)
}

/// [`Linux5_11`] without spins.
struct Stealing;

impl Policy for Stealing {
    const NAME: &'static str = "stealing";
    const DISCIPLINE: Discipline = Discipline::Compete(Competition {
        writer_spins: WriterSpin::Never,
        ..Competition::LINUX_5_11
    });
}

/// Set once, under a lock.
#[derive(Default)]
struct Done(std::cell::Cell<bool>);

impl Done {
    fn set(&self) {
        self.0.set(true);
    }
    fn get(&self) -> bool {
        self.0.get()
    }
}

#[test]
fn under_phase_fair_each_reader_passes_a_sleeping_writer_once_at_most() {
    let search = Search::exhaustive().preemptions(3);
    let report = a_sleeping_writer_is_passed::<PhaseFair>(1).assert(&search);
    assert!(report.complete);
    let failure = a_sleeping_writer_is_passed::<Stealing>(1).check(&search);
    let failure = failure.expect_err("readers that steal pass as often as they like");
    assert!(matches!(failure.kind, FailureKind::Panicked { thread: 3, .. }), "{failure}");
}

/// [`Linux5_11`] without a handoff.
struct NoHandoff;

impl Policy for NoHandoff {
    const NAME: &'static str = "no-handoff";
    const DISCIPLINE: Discipline =
        Discipline::Compete(Competition { handoff: Handoff::Never, ..Competition::LINUX_5_11 });
}

/// A reader steals from a writer that has waited for longer than 4 ms. Once the writer has been up
/// since then, and went to sleep again, it has the lock reserved.
fn a_writer_that_is_due_is_passed<Pol: Policy>() -> Program<(Lock<Pol>, Done)> {
    let name = format!("{}: a writer that is due is passed", Pol::NAME);
    Program::new(name, || (Lock::new(Guarded::new()), Done::default()))
        .thread(|(lock, done)| {
            let guard = lock.write();
            done.set();
            drop(guard);
        })
        .thread(|(lock, done)| {
            let guard = lock.read();
            let before = explore::sleeps_of(0);
            explore::pass_time(5_000_000);
            drop(guard);
            let mut reserved = false;
            for _ in 0..3 {
                let guard = lock.read();
                assert!(!reserved || done.get(), "passed a writer that is due");
                // The first sleep may have begun before the writer knew what time it is.
                let sleeps = explore::sleeps_of(0);
                reserved |= before.asleep && sleeps.asleep && sleeps.count > before.count;
                drop(guard);
            }
        })
}

#[test]
fn a_writer_that_is_due_is_not_passed_any_more() {
    let search = Search::exhaustive().preemptions(3);
    for report in [
        a_writer_that_is_due_is_passed::<Linux5_11>().assert(&search),
        a_writer_that_is_due_is_passed::<Linux5_3>().assert(&search),
        a_writer_that_is_due_is_passed::<NoReaderSteal>().assert(&search),
    ] {
        assert!(report.complete, "{report}");
    }
    let failure = a_writer_that_is_due_is_passed::<NoHandoff>().check(&search);
    let failure = failure.expect_err("nothing is ever reserved");
    assert!(matches!(failure.kind, FailureKind::Panicked { thread: 2, .. }), "{failure}");
}

// ---- flaws ----

fn with_a_flaw<Pol: Policy, F: Flaw, L: QueueStorage<On<Explore<F>>>>(
    scenario: Scenario<Lock<Pol, F, L>>,
) -> FailureKind {
    let added = scenario.steps.len() as u32;
    let program = program(Pol::NAME, &scenario.adding(0..=added));
    let found = program.check(&Search::exhaustive().preemptions(2).at_most(100_000));
    let failure = found.expect_err("the explorer must notice the flaw");
    let again = program.replay(&failure.schedule).expect_err("and again");
    assert_eq!((&again.kind, &again.trace), (&failure.kind, &failure.trace));
    failure.kind
}

/// `park` that does not look is a writer that goes to sleep although it was called while it spun.
#[test]
fn the_explorer_notices_a_call_that_a_spinning_writer_misses() {
    let kind = with_a_flaw::<SpinningInQueue, Blind, Own<Blind>>(read_write::two_writers());
    assert!(
        matches!(kind, FailureKind::Deadlock { .. } | FailureKind::LostWakeUp { .. }),
        "{kind}"
    );
}

fn flaws_are_noticed<Pol: Policy, L: QueueStorage<On<Explore<Deaf>>>>() {
    let kind = with_a_flaw::<Pol, Deaf, L>(read_write::three_writers());
    assert!(
        matches!(kind, FailureKind::Deadlock { .. } | FailureKind::LostWakeUp { .. }),
        "{}: {kind}",
        Pol::NAME
    );
    let kind = with_a_flaw::<Pol, Torn, Own<Torn>>(read_write::two_writers());
    assert!(!matches!(kind, FailureKind::NotDeterministic), "{}: {kind}", Pol::NAME);
}

#[test]
fn the_explorer_notices_lost_wake_ups_and_torn_updates() {
    flaws_are_noticed::<TimeFair, Own<Deaf>>();
    flaws_are_noticed::<PhaseFair, Own<Deaf>>();
    flaws_are_noticed::<PhaseFair, Pool<Deaf>>();
    flaws_are_noticed::<Linux3_10, Own<Deaf>>();
    flaws_are_noticed::<SpinningInQueue, Own<Deaf>>();
    flaws_are_noticed::<Linux5_3, Own<Deaf>>();
    flaws_are_noticed::<Linux5_11, Own<Deaf>>();
}
