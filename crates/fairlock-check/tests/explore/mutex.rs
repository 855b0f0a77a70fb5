//! `Mutex` in every schedule within stated bounds, with its queue of spinners and with its queue
//! of sleepers.

use std::time::Duration;

use fairlock::lock_api::{self, MutexGuard};
use fairlock::mutex::RawMutex;
use fairlock_sim::On;
use fairlock_sim::explore::{
    self, Blind, Cpus, Deaf, Explore, FailureKind, Flaw, Guarded, Program, Search, Sound, Torn,
};

type Lock<F = Sound> = lock_api::Mutex<RawMutex<On<Explore<F>>>, Guarded<F>>;
type Step<F = Sound> = fn(&Lock<F>);

fn plain<F: Flaw>(lock: &Lock<F>) {
    lock.lock().add();
}

fn twice<F: Flaw>(lock: &Lock<F>) {
    plain(lock);
    plain(lock);
}

fn fair<F: Flaw>(lock: &Lock<F>) {
    let guard = lock.lock();
    guard.add();
    MutexGuard::unlock_fair(guard);
}

fn without_waiting<F: Flaw>(lock: &Lock<F>) {
    if let Some(guard) = lock.try_lock() {
        guard.add();
    }
}

fn in_time<F: Flaw>(lock: &Lock<F>) {
    if let Some(guard) = lock.try_lock_for(Duration::from_micros(100)) {
        guard.add();
    }
}

/// One thread for each step; afterwards the lock is free, and so many additions were made.
fn program<F: Flaw>(
    name: &str,
    cpus: Cpus,
    steps: &[Step<F>],
    added: std::ops::RangeInclusive<u32>,
) -> Program<Lock<F>> {
    let name = format!("{name}, CPUs: {cpus:?}");
    let program = Program::new(name, || Lock::<F>::new(Guarded::new_on())).cpus(cpus);
    let program = steps.iter().fold(program, |program, &step| program.thread(step));
    program.finally(move |lock| {
        let value = lock.try_lock().expect("the lock is free when everybody is done").get();
        assert!(added.contains(&value), "{value} additions");
    })
}

/// Where waiters spin first, and where they sleep at once because the owner cannot be running.
const BOTH: [Cpus; 2] = [Cpus::OneEach, Cpus::One];

#[test]
fn two_threads_in_every_schedule() {
    let jobs: [(&str, [Step; 2], _); 6] = [
        ("two", [plain, plain], 2..=2),
        ("twice each", [twice, twice], 4..=4),
        ("a fair unlock", [fair, plain], 2..=2),
        ("a try", [without_waiting, plain], 1..=2),
        ("a time-out beside an unlock", [in_time, plain], 1..=2),
        ("a time-out beside a fair unlock", [in_time, fair], 1..=2),
    ];
    for cpus in BOTH {
        for (name, steps, added) in jobs.clone() {
            let program = program(name, cpus, &steps, added).clock_jumps(1);
            if !program.assert(&Search::exhaustive().at_most(100_000)).complete {
                assert!(program.assert(&Search::exhaustive().preemptions(3)).complete);
            }
        }
    }
}

#[test]
fn three_and_four_threads_with_few_preemptions() {
    let jobs: [(&str, &[Step], _, u32); 4] = [
        ("three", &[plain, plain, plain], 3..=3, 2),
        ("a time-out before others", &[in_time, plain, plain], 2..=3, 2),
        ("fair and plain unlocks", &[fair, plain, fair], 3..=3, 2),
        ("four", &[plain, fair, in_time, plain], 3..=4, 1),
    ];
    for cpus in BOTH {
        for (name, steps, added, preemptions) in jobs.clone() {
            let program = program(name, cpus, steps, added);
            assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
        }
    }
}

#[test]
fn eight_threads_by_chance() {
    let steps: [Step; 8] = [plain, fair, in_time, twice, plain, in_time, without_waiting, twice];
    for cpus in BOTH {
        let program = program("eight", cpus, &steps, 7..=10).clock_jumps(1).spurious_wakes(1);
        for seed in 1..=3 {
            program.assert(&Search::pct(seed, 3, 2_000));
        }
        program.assert(&Search::random(4, 2_000));
    }
}

#[test]
fn two_threads_with_store_buffers() {
    for cpus in BOTH {
        let jobs: [[Step; 2]; 3] = [[plain, plain], [fair, plain], [in_time, fair]];
        for steps in jobs {
            let program = program("store buffers", cpus, &steps, 1..=2).store_buffers();
            program.assert(&Search::exhaustive().at_most(50_000));
        }
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
        })
        .cpus(Cpus::One);
    assert!(program.assert(&Search::exhaustive().preemptions(3)).complete);
}

fn with_a_flaw<F: Flaw>(steps: &[Step<F>]) -> FailureKind {
    let program = program("with a flaw", Cpus::One, steps, 2..=2);
    let failure = program.check(&Search::exhaustive()).expect_err("the flaw must be noticed");
    let again = program.replay(&failure.schedule).expect_err("and again");
    assert_eq!((&again.kind, &again.trace), (&failure.kind, &failure.trace));
    failure.kind
}

#[test]
fn the_explorer_notices_flaws() {
    let kind = with_a_flaw::<Deaf>(&[plain, plain]);
    assert!(matches!(kind, FailureKind::LostWakeUp { .. }), "{kind}");
    let kind = with_a_flaw::<Blind>(&[plain, plain]);
    assert!(matches!(kind, FailureKind::LostWakeUp { .. }), "{kind}");
    let kind = with_a_flaw::<Torn>(&[plain, plain]);
    assert!(!matches!(kind, FailureKind::NotDeterministic), "{kind}");
}
