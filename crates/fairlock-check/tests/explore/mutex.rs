//! `Mutex` in every schedule within stated bounds.

use fairlock::lock_api;
use fairlock::mutex::RawMutex;
use fairlock_check::scenario::Scenario;
use fairlock_check::{explored, long, mutex};
use fairlock_sim::On;
use fairlock_sim::explore::{
    self, Blind, Cpus, Deaf, Explore, FailureKind, Flaw, Guarded, Program, Search, Sound, Torn,
};

type Lock<F = Sound> = lock_api::Mutex<RawMutex<On<Explore<F>>>, Guarded<F>>;

fn program<F: Flaw>(scenario: &Scenario<Lock<F>>) -> Program<Lock<F>> {
    explored::program("", scenario)
}

#[test]
fn two_threads_in_every_schedule() {
    for scenario in mutex::two_threads() {
        let program = program::<Sound>(&scenario).clock_jumps(1);
        if !program.assert(&Search::exhaustive().at_most(long::depth(20_000, 100_000))).complete {
            assert!(program.assert(&Search::exhaustive().preemptions(3)).complete);
        }
    }
}

#[test]
fn three_and_four_threads_with_few_preemptions() {
    let of_three = long::depth(1, 2);
    let three = mutex::three_threads().into_iter().map(|scenario| (scenario, of_three));
    for (scenario, preemptions) in three.clone().chain([(mutex::four(), 1)]) {
        let program = program::<Sound>(&scenario).cpus(Cpus::One);
        assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
    }
}

#[test]
fn eight_threads_by_chance() {
    let program = program::<Sound>(&mutex::eight()).clock_jumps(1).spurious_wakes(1);
    for seed in 1..=3 {
        program.assert(&Search::pct(seed, 3, 2_000));
    }
    program.assert(&Search::random(4, 2_000));
}

#[test]
fn two_threads_with_store_buffers() {
    for scenario in [mutex::two(), mutex::a_fair_unlock(), mutex::a_timeout_beside_a_fair_unlock()]
    {
        let program = program::<Sound>(&scenario).store_buffers();
        program.assert(&Search::exhaustive().at_most(50_000));
    }
}

/// The oldest waiter has waited for longer than 4 ms, was up since, and went to sleep again: the
/// lock is reserved for it.
#[test]
fn a_waiter_that_is_due_is_not_passed_any_more() {
    type State = (Lock, std::cell::Cell<bool>);
    let program = Program::new("a waiter that is due", || -> State {
        (Lock::new(Guarded::new()), std::cell::Cell::new(false))
    });
    let program = program
        .thread(|(lock, done)| {
            let guard = lock.lock();
            done.set(true);
            drop(guard);
        })
        .thread(|(lock, done)| {
            let guard = lock.lock();
            let before = explore::sleeps_of(0);
            explore::pass_time(5_000_000);
            drop(guard);
            let mut reserved = false;
            for _ in 0..3 {
                let guard = lock.lock();
                assert!(!reserved || done.get(), "passed a waiter that is due");
                let sleeps = explore::sleeps_of(0);
                reserved |= before.asleep && sleeps.asleep && sleeps.count > before.count;
                drop(guard);
            }
        });
    assert!(program.assert(&Search::exhaustive().preemptions(3)).complete);
}

fn with_a_flaw<F: Flaw>() -> FailureKind {
    let program = program::<F>(&mutex::two());
    let failure = program.check(&Search::exhaustive()).expect_err("the flaw must be noticed");
    let again = program.replay(&failure.schedule).expect_err("and again");
    assert_eq!((&again.kind, &again.trace), (&failure.kind, &failure.trace));
    failure.kind
}

#[test]
fn the_explorer_notices_flaws() {
    let kind = with_a_flaw::<Deaf>();
    assert!(matches!(kind, FailureKind::LostWakeUp { .. }), "{kind}");
    let kind = with_a_flaw::<Blind>();
    assert!(matches!(kind, FailureKind::LostWakeUp { .. }), "{kind}");
    let kind = with_a_flaw::<Torn>();
    assert!(!matches!(kind, FailureKind::NotDeterministic), "{kind}");
}
