//! What people build of `Mutex` and `Condvar`, in every schedule within stated bounds: each pattern
//! keeps its promise, and no notification is lost.

use fairlock_check::explored;
use fairlock_check::long::depth;
use fairlock_check::patterns::{self, Barrier, Jobs, Pattern, Semaphore, Slot, Turns, in_each_way};
use fairlock_check::scenario::{Scenario, Subject};
use fairlock_sim::Explored;
use fairlock_sim::explore::{Cpus, Guarded, Search};

/// With fewer preemptions the more threads there are; and by chance with any number.
fn search<S: Subject>(of: &str, scenario: &Scenario<S>) {
    let program = || explored::program(of, scenario);
    let threads = scenario.steps.len() as u32;
    let cpus = if threads == 2 { Cpus::Unknown } else { Cpus::One };
    let few = Search::exhaustive().preemptions(depth(4, 5) - threads);
    assert!(program().cpus(cpus).assert(&few).complete);
    let program = program().clock_jumps(1).spurious_wakes(1);
    program.assert(&Search::pct(1, 3, depth(500, 20_000)));
    program.assert(&Search::random(2, depth(500, 20_000)));
}

fn search_each<T: Pattern>() {
    let two = in_each_way::<Explored, Guarded, T>(T::two_threads);
    for (of, scenario) in two.chain(in_each_way(T::more_threads)) {
        search(&of, &scenario);
    }
}

#[test]
fn a_queue_of_one_slot_delivers_each_message_once() {
    search_each::<Slot>();
}

#[test]
fn no_thread_at_a_barrier_is_two_generations_ahead() {
    search_each::<Barrier>();
}

#[test]
fn a_semaphore_lets_in_as_many_as_it_has_permits() {
    search_each::<Semaphore>();
}

#[test]
fn a_pool_does_all_jobs() {
    search_each::<Jobs>();
}

#[test]
fn each_thread_gets_its_turn() {
    search_each::<Turns>();
}

#[test]
fn shards_are_added_to_by_one_thread_at_a_time() {
    for scenario in patterns::shards::<Explored, Guarded>() {
        search("shards", &scenario);
    }
}
