//! `ProcessSharedRwLock` under Loom: no race on what it protects and no lost wake-up in the
//! interleavings of two or three threads, with a bound on preemptions and on how many are tried.
//! Models without spins see the sleeps.

use std::sync::Arc;

use fairlock::platform::Platform;
use fairlock::unguarded::UnguardedRwLock;
use fairlock_check::loom_platform::{
    DeafHasty, Gullible, Hasty, Loom, Watched, Weakened, check, explore_most, failure, join, model,
    most_executions, spawn,
};
use fairlock_check::process_shared::{self, read, write, write_in_time};
use fairlock_check::scenario::{Scenario, Step, Subject};

type Protected<P> = process_shared::Protected<P, Watched>;

/// A flaw shows among the first hundred.
fn most() -> usize {
    most_executions(600)
}

macro_rules! models {
    ($($name:ident: $preemptions:literal, $scenario:ident;)*) => {$(
        #[test]
        fn $name() {
            check::<Protected<Loom>>("spinning", [process_shared::$scenario()], $preemptions, most());
            check::<Protected<Hasty>>("sleeping", [process_shared::$scenario()], $preemptions, most());
        }
    )*};
}

models! {
    two_writers_exclude_each_other: 3, two_writers;
    a_reader_and_a_writer_exclude_each_other: 3, a_reader_and_a_writer;
    a_writer_that_gives_up_races_with_an_unlock: 3, a_timed_writer_and_a_writer;
    a_writer_that_gives_up_races_with_readers: 2, a_timeout_before_two_readers;
    a_reader_that_gives_up_races_with_an_unlock: 3, a_timed_reader_and_a_writer;
    a_recursive_reader_passes_a_writer: 3, a_recursive_reader_and_a_writer;
    three_writers_exclude_each_other: 1, three_writers;
    a_try_excludes: 3, a_try_to_write_and_a_writer;
    two_readers_let_a_writer_in: 2, two_readers_and_a_writer;
    two_writers_let_a_reader_in: 2, a_reader_and_two_writers;
    those_that_give_up_stand_in_nobodys_way: 1, both_in_time_beside_a_writer;
}

fn started<P: Platform>(
    it: &Arc<Protected<P>>,
    step: Step<Protected<P>>,
) -> loom::thread::JoinHandle<()> {
    let it = Arc::clone(it);
    spawn(move || step(&it))
}

fn look<P: Platform>(it: &Protected<P>) {
    it.look();
}

/// Two readers are in, and leave in either order while a writer comes. Whoever hands the lock over
/// does so for both.
fn readers_leave<P: Platform>() {
    let it = Arc::new(Protected::<P>::new());
    assert_eq!((it.lock.read(None, false), it.lock.read(None, false)), (Ok(()), Ok(())));
    let threads = [started(&it, look), started(&it, write)];
    it.look();
    join(threads);
    assert_eq!(it.additions(), 1);
}

#[test]
fn a_writer_knows_of_all_readers_before_it() {
    explore_most("spinning", 3, most(), readers_leave::<Loom>);
    explore_most("sleeping", 3, most(), readers_leave::<Hasty>);
}

/// A reader stays in until another one has been in, too.
fn reader_comes<P: Platform>() {
    let it = Arc::new(Protected::<P>::new());
    assert_eq!(it.lock.read(None, false), Ok(()));
    let writer = started(&it, write_in_time);
    join([started(&it, read)]);
    it.look();
    join([writer]);
    assert!(it.additions() <= 1);
}

#[test]
fn a_writer_that_gives_up_lets_in_whoever_waits_for_it() {
    explore_most("spinning", 3, most(), reader_comes::<Loom>);
    explore_most("sleeping", 3, most(), reader_comes::<Hasty>);
}

fn report<P: Platform>(scenario: Scenario<Protected<P>>) -> String {
    failure("flawed", 2, model(scenario))
}

#[test]
fn the_checker_notices_relaxed_orderings() {
    let message = report::<Weakened>(process_shared::two_writers());
    assert!(message.contains("Causality violation"), "{message}");
}

#[test]
fn the_checker_notices_lost_wake_ups() {
    for scenario in [process_shared::a_reader_and_a_writer(), process_shared::two_writers()] {
        let message = report::<DeafHasty>(scenario);
        assert!(message.contains("deadlock"), "{message}");
    }
}

#[test]
fn the_checker_notices_two_owners() {
    let message = report::<Gullible>(process_shared::two_tries_to_write());
    assert!(message.contains("Causality violation"), "{message}");
}
