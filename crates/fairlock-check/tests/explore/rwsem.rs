//! `RwSem` with every policy in every schedule within stated bounds: nobody is let in beside a
//! writer, nobody sleeps for ever, and policies keep their promises about who is passed.

use std::sync::atomic::Ordering::SeqCst;

use fairlock::lock_api::RwLock;
use fairlock::platform::{AtomicCell, Platform};
use fairlock::policy::{PhaseFair, Policy, Shares, TimeFair};
use fairlock::rwsem::RawRwSem;
use fairlock_check::explored::program;
use fairlock_check::long;
use fairlock_check::read_write;
use fairlock_check::scenario::Scenario;
use fairlock_sim::explore::{
    self, Deaf, Explore, FailureKind, Flaw, Guarded, Program, Search, Sound, Torn,
};
use fairlock_sim::{Explored, On};

type Lock<Pol, F = Sound> = RwLock<RawRwSem<Pol, On<Explore<F>>>, Guarded<F>>;
type Met = <Explored as Platform>::AtomicU32;
type Scenarios<Pol> = Vec<Scenario<Lock<Pol>>>;

/// More executions than this of two threads, and preemptions are bounded.
fn most_of_two() -> u64 {
    long::depth(2_000, 20_000)
}

/// Without a bound on preemptions where that takes few executions, else with one; and with one jump
/// of the clock in each thread.
fn explore_two<Pol: Policy>(preemptions: u32) {
    let scenarios: Scenarios<Pol> = read_write::two_threads();
    for scenario in scenarios {
        let program = program(Pol::NAME, &scenario).clock_jumps(1);
        if !program.assert(&Search::exhaustive().at_most(most_of_two())).complete {
            assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
        }
    }
}

fn explore_more<Pol: Policy>(scenarios: Scenarios<Pol>, preemptions: u32) {
    for scenario in scenarios {
        let program = program(Pol::NAME, &scenario);
        assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
    }
}

/// Not complete: some thousand executions of eight threads.
fn explore_eight<Pol: Policy>() {
    let scenario: Scenario<Lock<Pol>> = read_write::eight_kinds();
    let program = program(Pol::NAME, &scenario).clock_jumps(1);
    for seed in 1..=3 {
        program.assert(&Search::pct(seed, 3, 700));
    }
    program.assert(&Search::random(4, 700));
}

/// Stores that arrive late, as on an x86.
fn explore_store_buffers<Pol: Policy>() {
    let two: Scenarios<Pol> = read_write::two_threads();
    for scenario in two {
        let program = program(Pol::NAME, &scenario).store_buffers();
        program.assert(&Search::exhaustive().at_most(long::depth(2_000, 5_000)));
        program.assert(&Search::random(1, 1_000));
    }
    let three: Scenarios<Pol> = read_write::three_threads();
    for scenario in three {
        let program = program(Pol::NAME, &scenario).store_buffers();
        program.assert(&Search::random(2, 1_000));
    }
}

macro_rules! policies {
    ($($module:ident: $policy:ty, $of_two:expr, $of_three:expr, $of_four:expr;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn two_threads_in_every_schedule() {
                explore_two::<$policy>($of_two);
            }
            #[test]
            fn three_threads_with_few_preemptions() {
                explore_more::<$policy>(read_write::three_threads(), $of_three);
            }
            #[test]
            fn four_threads_with_fewer() {
                explore_more::<$policy>(read_write::four_threads(), $of_four);
            }
            #[test]
            fn eight_threads_by_chance() {
                explore_eight::<$policy>();
            }
            #[test]
            fn with_store_buffers() {
                explore_store_buffers::<$policy>();
            }
        }
    )*};
}

policies! {
    // A third preemption of two threads multiplies the executions by some fifteen.
    time_fair: TimeFair, 2, 1, long::depth(0, 1);
    time_fair_asleep: TimeFairAsleep, long::depth(2, 3), long::depth(1, 2), long::depth(0, 1);
    phase_fair: PhaseFair, long::depth(2, 3), long::depth(1, 2), long::depth(0, 1);
}

#[test]
fn upgrades_beside_both() {
    let scenario: Scenario<Lock<TimeFair>> = read_write::upgrades_beside_both();
    let program = program(TimeFair::NAME, &scenario).clock_jumps(1);
    for seed in 1..=3 {
        program.assert(&Search::pct(seed, 3, 2_000));
    }
    program.assert(&Search::random(4, 2_000));
}

/// [`TimeFair`] without its spins, each of which multiplies the executions.
struct TimeFairAsleep;

impl Policy for TimeFairAsleep {
    const NAME: &'static str = "timefair-asleep";
    const SHARES: Shares = Shares { spin: 0, ..Shares::TIME_FAIR };
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
    let search = Search::exhaustive().preemptions(long::depth(2, 3));
    let report = a_sleeping_writer_is_passed::<PhaseFair>(1).assert(&search);
    assert!(report.complete);
    // The search goes as far as the one pass that is allowed.
    a_sleeping_writer_is_passed::<PhaseFair>(0).check(&search).expect_err("it is passed once");
    let failure = a_sleeping_writer_is_passed::<TimeFairAsleep>(1).check(&search);
    let failure = failure.expect_err("it is passed until its side is owed enough");
    assert!(matches!(failure.kind, FailureKind::Panicked { thread: 3, .. }), "{failure}");
}

/// One thread holds the lock upgradable until another has read, and a third asks for it upgradable meanwhile. That request
/// conflicts with the upgradable holder alone, so the reader enters. (`RwLock`'s semaphore is the same lock.)
fn a_reader_enters_past_one_that_waits_to_be_upgradable<Pol: Policy>() {
    type State<Pol> = (Lock<Pol>, Met);
    let name = format!("{}: a reader past one that waits to be upgradable", Pol::NAME);
    let program = Program::new(name, || -> State<Pol> { (Lock::new(Guarded::new()), Met::new(0)) })
        .thread(|(lock, met): &State<Pol>| {
            let guard = lock.upgradable_read();
            while met.load(SeqCst) == 0 {
                Explored::relax(None);
            }
            drop(guard);
        })
        .thread(|(lock, _)| drop(lock.upgradable_read()))
        .thread(|(lock, met)| {
            let guard = lock.read();
            met.store(1, SeqCst);
            drop(guard);
        });
    program.assert(&Search::exhaustive().preemptions(2).at_most(20_000));
    program.assert(&Search::random(1, 2_000));
    program.assert(&Search::pct(1, 3, 2_000));
}

#[test]
fn one_that_waits_to_be_upgradable_keeps_no_reader_out() {
    a_reader_enters_past_one_that_waits_to_be_upgradable::<TimeFair>();
    a_reader_enters_past_one_that_waits_to_be_upgradable::<TimeFairAsleep>();
    a_reader_enters_past_one_that_waits_to_be_upgradable::<PhaseFair>();
}

// ---- flaws ----

fn with_a_flaw<Pol: Policy, F: Flaw>(scenario: Scenario<Lock<Pol, F>>) -> FailureKind {
    let added = scenario.steps.len() as u32;
    let program = program(Pol::NAME, &scenario.adding(0..=added));
    let found = program.check(&Search::exhaustive().preemptions(2).at_most(100_000));
    let failure = found.expect_err("the explorer must notice the flaw");
    let again = program.replay(&failure.schedule).expect_err("and again");
    assert_eq!((&again.kind, &again.trace), (&failure.kind, &failure.trace));
    failure.kind
}

fn flaws_are_noticed<Pol: Policy>() {
    let kind = with_a_flaw::<Pol, Deaf>(read_write::three_writers());
    assert!(
        matches!(kind, FailureKind::Deadlock { .. } | FailureKind::LostWakeUp { .. }),
        "{}: {kind}",
        Pol::NAME
    );
    let kind = with_a_flaw::<Pol, Torn>(read_write::two_writers());
    assert!(!matches!(kind, FailureKind::NotDeterministic), "{}: {kind}", Pol::NAME);
}

#[test]
fn the_explorer_notices_lost_wake_ups_and_torn_updates() {
    flaws_are_noticed::<TimeFair>();
    flaws_are_noticed::<PhaseFair>();
}
