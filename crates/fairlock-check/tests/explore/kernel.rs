//! The kernel's own rwsem in every schedule within stated bounds: nobody is let in beside a writer, nobody
//! sleeps for ever, and no waiter on a stack is used once it is gone.

use std::cell::Cell;

use fairlock::lock_api::RwLock;
use fairlock_check::explored::program;
use fairlock_check::read_write;
use fairlock_check::scenario::Scenario;
use fairlock_reference::kernel::UserSpace;
use fairlock_reference::kernel::rwsem::{
    Linux5_1, Linux5_2, Linux5_11, NoReaderSteal, RawKernelRwSem, Version,
};
use fairlock_sim::On;
use fairlock_sim::explore::{
    self, Blind, Deaf, Explore, FailureKind, Flaw, Guarded, Program, Search, Sound, Torn,
};

type Lock<V, F = Sound> = RwLock<RawKernelRwSem<V, UserSpace<On<Explore<F>>>>, Guarded<F>>;

/// More executions than this of two threads, and preemptions are bounded.
const MOST_OF_TWO: u64 = 5_000;

fn name<V>() -> &'static str {
    std::any::type_name::<V>().rsplit("::").next().expect("a name")
}

/// Without a bound on preemptions where that takes few executions, else with one; and with one jump of the clock in
/// each thread, after which a waiter has waited for too long.
fn two<V: Version>() {
    let two: Vec<Scenario<Lock<V>>> = read_write::two_basic();
    for scenario in two {
        let program = program(name::<V>(), &scenario).clock_jumps(1);
        if !program.assert(&Search::exhaustive().at_most(MOST_OF_TWO)).complete {
            assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
        }
    }
}

fn more<V: Version>() {
    let four: Scenario<Lock<V>> = read_write::two_readers_and_two_writers();
    let three = read_write::three_basic().into_iter().map(|scenario| (scenario, 2));
    for (scenario, preemptions) in three.chain([(four, 1)]) {
        let program = program(name::<V>(), &scenario);
        assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
        let in_haste = program.clock_jumps(1).spurious_wakes(1);
        in_haste.assert(&Search::random(1, 1_000));
    }
}

fn eight<V: Version>() {
    let scenario: Scenario<Lock<V>> = read_write::eight_readers_and_writers();
    let program = program(name::<V>(), &scenario).clock_jumps(1);
    for seed in 1..=3 {
        program.assert(&Search::pct(seed, 3, 500));
    }
    program.assert(&Search::random(4, 500));
}

fn store_buffers<V: Version>() {
    let two: Vec<Scenario<Lock<V>>> = read_write::two_basic();
    for scenario in two.into_iter().chain(read_write::three_basic()) {
        let program = program(name::<V>(), &scenario).store_buffers();
        program.assert(&Search::random(1, 1_000));
    }
}

macro_rules! versions {
    ($($module:ident: $version:ty;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn two_threads_in_every_schedule() {
                two::<$version>();
            }
            #[test]
            fn three_and_four_threads_with_few_preemptions() {
                more::<$version>();
            }
            #[test]
            fn eight_threads_by_chance() {
                eight::<$version>();
            }
            #[test]
            fn with_store_buffers() {
                store_buffers::<$version>();
            }
        }
    )*};
}

versions! {
    linux_5_1: Linux5_1;
    linux_5_2: Linux5_2;
    linux_5_11: Linux5_11;
    no_reader_steal: NoReaderSteal;
}

/// A writer that has waited for longer than 4 ms, was up since, and went to sleep again: the lock is
/// reserved for it.
fn a_writer_that_is_due_is_not_passed<V: Version>() {
    type State<V> = (Lock<V>, Cell<bool>);
    let program = Program::new(format!("{}: a writer that is due", name::<V>()), || -> State<V> {
        (Lock::new(Guarded::new()), Cell::new(false))
    });
    let program = program
        .thread(|(lock, done): &State<V>| {
            let guard = lock.write();
            done.set(true);
            drop(guard);
        })
        .thread(|(lock, done)| {
            let guard = lock.read();
            let before = explore::sleeps_of(0);
            explore::pass_time(5_000_000);
            drop(guard);
            let mut reserved = false;
            for _ in 0..3 {
                let guard = lock.write();
                assert!(!reserved || done.get(), "passed a writer that is due");
                let sleeps = explore::sleeps_of(0);
                reserved |= before.asleep && sleeps.asleep && sleeps.count > before.count;
                drop(guard);
            }
        });
    assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
}

#[test]
fn a_writer_that_is_due_is_not_passed_any_more() {
    a_writer_that_is_due_is_not_passed::<Linux5_1>();
    a_writer_that_is_due_is_not_passed::<Linux5_2>();
    a_writer_that_is_due_is_not_passed::<Linux5_11>();
    a_writer_that_is_due_is_not_passed::<NoReaderSteal>();
}

fn with_a_flaw<V: Version, F: Flaw>(scenario: &Scenario<Lock<V, F>>) -> FailureKind {
    let program = program(name::<V>(), &scenario.clone().adding(0..=3));
    let found = program.check(&Search::exhaustive().preemptions(2).at_most(100_000));
    let failure = found.expect_err("the explorer must notice the flaw");
    let again = program.replay(&failure.schedule).expect_err("and again");
    assert_eq!((&again.kind, &again.trace), (&failure.kind, &failure.trace));
    failure.kind
}

fn flaws_are_noticed<V: Version>() {
    for kind in [
        with_a_flaw::<V, Deaf>(&read_write::a_reader_and_two_writers()),
        with_a_flaw::<V, Blind>(&read_write::a_reader_and_two_writers()),
    ] {
        let is_sleep =
            matches!(kind, FailureKind::Deadlock { .. } | FailureKind::LostWakeUp { .. });
        assert!(is_sleep, "{}: {kind}", name::<V>());
    }
    let kind = with_a_flaw::<V, Torn>(&read_write::two_writers());
    assert!(!matches!(kind, FailureKind::NotDeterministic), "{}: {kind}", name::<V>());
}

#[test]
fn the_explorer_notices_lost_wake_ups_and_torn_updates() {
    flaws_are_noticed::<Linux5_1>();
    flaws_are_noticed::<Linux5_2>();
    flaws_are_noticed::<Linux5_11>();
    flaws_are_noticed::<NoReaderSteal>();
}
