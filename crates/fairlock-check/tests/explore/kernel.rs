//! The kernel's own rwsem and mutex in every schedule within stated bounds: nobody is let in beside a writer, nobody
//! sleeps for ever, and no waiter on a stack is used once it is gone.

use std::cell::Cell;

use fairlock::lock_api::{Mutex, RwLock};
use fairlock_check::explored::program;
use fairlock_check::long;
use fairlock_check::scenario::{Scenario, Subject};
use fairlock_check::{mutex, read_write};
use fairlock_reference::kernel::UserSpace;
use fairlock_reference::kernel::mutex::RawKernelMutex;
use fairlock_reference::kernel::rwsem::{
    Linux5_1, Linux5_2, Linux5_11, NoReaderSteal, RawKernelRwSem, Version,
};
use fairlock_reference::kernel::xadd_rwsem::{
    Linux3_10, Linux3_10Both, Linux3_10FastFail, Linux3_10Spin, Linux3_16, RawXaddRwSem,
};
use fairlock_sim::On;
use fairlock_sim::explore::{
    self, Blind, Deaf, Explore, FailureKind, Guarded, Program, Search, Sound, Torn,
};

type User<F = Sound> = UserSpace<On<Explore<F>>>;
type Lock<V> = RwLock<RawKernelRwSem<V, User>, Guarded>;
type RawMutex<F = Sound> = RawKernelMutex<User<F>>;

/// More executions than this of two threads, and preemptions are bounded.
const MOST_OF_TWO: u64 = 5_000;

/// Without a bound on preemptions where that takes few executions, else with one; and with one jump of the clock in
/// each thread, after which a waiter has waited for too long.
pub fn two<S: Subject>(name: &str, scenarios: Vec<Scenario<S>>) {
    for scenario in scenarios {
        let program = program(name, &scenario).clock_jumps(1);
        if !program.assert(&Search::exhaustive().at_most(MOST_OF_TWO)).complete {
            assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
        }
    }
}

/// The suite tries the first 5,000 schedules of each.
pub fn more<S: Subject>(name: &str, three: Vec<Scenario<S>>, four: Scenario<S>) {
    let three = three.into_iter().map(|scenario| (scenario, 2));
    for (scenario, preemptions) in three.chain([(four, 1)]) {
        let program = program(name, &scenario);
        let search = Search::exhaustive().preemptions(preemptions);
        program.assert(&search.at_most(long::depth(5_000, u64::MAX)));
        let in_haste = program.clock_jumps(1).spurious_wakes(1);
        in_haste.assert(&Search::random(1, 1_000));
    }
}

pub fn eight<S: Subject>(name: &str, scenario: &Scenario<S>) {
    let program = program(name, scenario).clock_jumps(1);
    for seed in 1..=3 {
        program.assert(&Search::pct(seed, 3, 500));
    }
    program.assert(&Search::random(4, 500));
}

pub fn store_buffers<S: Subject>(name: &str, scenarios: Vec<Scenario<S>>) {
    for scenario in scenarios {
        let program = program(name, &scenario).store_buffers();
        program.assert(&Search::random(1, 1_000));
    }
}

macro_rules! locks {
    ($($module:ident: $raw:ty;)*) => {$(
        mod $module {
            use super::*;
            type Lock = RwLock<$raw, Guarded>;
            const NAME: &str = stringify!($module);
            #[test]
            fn two_threads_in_every_schedule() {
                two::<Lock>(NAME, read_write::two_basic());
            }
            #[test]
            fn three_and_four_threads_with_few_preemptions() {
                let four = read_write::two_readers_and_two_writers();
                more::<Lock>(NAME, read_write::three_basic(), four);
            }
            #[test]
            fn eight_threads_by_chance() {
                eight::<Lock>(NAME, &read_write::eight_readers_and_writers());
            }
            #[test]
            fn with_store_buffers() {
                let (two, three) = (read_write::two_basic(), read_write::three_basic());
                store_buffers::<Lock>(NAME, [two, three].concat());
            }
        }
    )*};
}

pub(crate) use locks;

locks! {
    linux_3_10: RawXaddRwSem<Linux3_10, User>;
    linux_3_10_spin: RawXaddRwSem<Linux3_10Spin, User>;
    linux_3_10_fast_fail: RawXaddRwSem<Linux3_10FastFail, User>;
    linux_3_10_both: RawXaddRwSem<Linux3_10Both, User>;
    linux_3_16: RawXaddRwSem<Linux3_16, User>;
    linux_5_1: RawKernelRwSem<Linux5_1, User>;
    linux_5_2: RawKernelRwSem<Linux5_2, User>;
    linux_5_11: RawKernelRwSem<Linux5_11, User>;
    no_reader_steal: RawKernelRwSem<NoReaderSteal, User>;
}

mod mutex_3_10 {
    use super::*;
    type Lock = Mutex<RawMutex, Guarded>;
    const NAME: &str = "mutex_3_10";
    #[test]
    fn two_threads_in_every_schedule() {
        two::<Lock>(NAME, mutex::two_basic());
    }
    #[test]
    fn three_and_four_threads_with_few_preemptions() {
        more::<Lock>(NAME, vec![mutex::three()], mutex::four_plain());
    }
    #[test]
    fn eight_threads_by_chance() {
        eight::<Lock>(NAME, &mutex::eight_plain());
    }
    #[test]
    fn with_store_buffers() {
        store_buffers::<Lock>(NAME, [mutex::two_basic(), vec![mutex::three()]].concat());
    }
}

/// A writer that has waited for longer than 4 ms, was up since, and went to sleep again: the lock is
/// reserved for it.
fn a_writer_that_is_due_is_not_passed<V: Version>() {
    type State<V> = (Lock<V>, Cell<bool>);
    let name = std::any::type_name::<V>();
    let program = Program::new(format!("{name}: a writer that is due"), || -> State<V> {
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

pub fn with_a_flaw<S: Subject>(name: &str, scenario: Scenario<S>) -> FailureKind {
    let program = program(name, &scenario.adding(0..=3));
    let found = program.check(&Search::exhaustive().preemptions(2).at_most(100_000));
    let failure = found.expect_err("the explorer must notice the flaw");
    let again = program.replay(&failure.schedule).expect_err("and again");
    assert_eq!((&again.kind, &again.trace), (&failure.kind, &failure.trace));
    failure.kind
}

pub fn assert_sleeps(name: &str, kind: &FailureKind) {
    let is_sleep = matches!(kind, FailureKind::Deadlock { .. } | FailureKind::LostWakeUp { .. });
    assert!(is_sleep, "{name}: {kind}");
}

pub fn assert_found(name: &str, kind: &FailureKind) {
    assert!(!matches!(kind, FailureKind::NotDeterministic), "{name}: {kind}");
}

macro_rules! flaws_are_noticed {
    ($($raw:ident<$version:ty>),*) => {$({
        let name = stringify!($version);
        type Flawed<F> = RwLock<$raw<$version, User<F>>, Guarded<F>>;
        assert_sleeps(name, &with_a_flaw::<Flawed<Deaf>>(name, read_write::a_reader_and_two_writers()));
        assert_sleeps(name, &with_a_flaw::<Flawed<Blind>>(name, read_write::a_reader_and_two_writers()));
        assert_found(name, &with_a_flaw::<Flawed<Torn>>(name, read_write::two_writers()));
    })*};
}

#[test]
fn the_explorer_notices_lost_wake_ups_and_torn_updates() {
    flaws_are_noticed!(
        RawKernelRwSem<Linux5_1>,
        RawKernelRwSem<Linux5_2>,
        RawKernelRwSem<Linux5_11>,
        RawKernelRwSem<NoReaderSteal>,
        RawXaddRwSem<Linux3_10>,
        RawXaddRwSem<Linux3_10FastFail>
    );
}

#[test]
fn the_explorer_notices_a_torn_update_where_writers_spin() {
    fn check<S: Subject>(name: &str, two: Scenario<S>) {
        assert_found(name, &with_a_flaw(name, two));
    }
    type Flawed<V> = RwLock<RawXaddRwSem<V, User<Torn>>, Guarded<Torn>>;
    check::<Flawed<Linux3_10Both>>("both", read_write::two_writers());
    check::<Flawed<Linux3_16>>("3.16", read_write::two_writers());
    check::<Mutex<RawMutex<Torn>, Guarded<Torn>>>("mutex", mutex::two());
}
