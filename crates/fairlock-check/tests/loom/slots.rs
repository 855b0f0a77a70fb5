//! Readers that announce themselves in slots, and a writer that looks at them, under Loom: no race
//! on what they protect, and a writer that sleeps until a reader has left is woken. The protocol
//! alone, without a lock around it, in the interleavings of two or three threads with a bound on
//! preemptions. Each barrier that is left out must be noticed.

#[path = "../parts/slots.rs"]
mod parts;

use std::sync::Arc;

use fairlock_check::loom_platform::{
    DeafHasty, Flaw, Hasty, Model, NoHeavyHasty, NoLightHasty, SymmetricHasty,
    SymmetricNoFenceHasty, Watched, explore, failure, join, spawn,
};

use parts::{HasRecords, own_records};

type State<P> = parts::State<P, Watched>;

own_records!(Model<F> where F: Flaw);

/// Readers, each in its thread so many times, and a writer.
fn readers_and_a_writer<P: HasRecords>(readers: usize, times: usize) {
    let state = Arc::new(State::<P>::new(readers));
    let threads: Vec<_> = (0..readers)
        .map(|reader| {
            let state = Arc::clone(&state);
            spawn(move || (0..times).for_each(|_| state.read(reader)))
        })
        .collect();
    state.write();
    join(threads);
}

/// A reader that is there already leaves, and a writer waits for that.
fn a_reader_leaves<P: HasRecords>() {
    let state = Arc::new(State::<P>::with_a_reader_inside());
    let leaver = {
        let state = Arc::clone(&state);
        spawn(move || state.leave())
    };
    state.wait();
    join([leaver]);
}

/// A reader whose record is taken off the list, and a writer that looks at listed records only.
fn a_listed_reader_and_a_writer(times: usize) {
    let state = Arc::new(State::<Hasty>::new(1));
    let [reader, unlisting] = [Arc::clone(&state), Arc::clone(&state)];
    let threads = [
        spawn(move || (0..times).for_each(|_| reader.read_listed(0))),
        spawn(move || unlisting.threads.unlist_idle()),
    ];
    state.write_looking_at_listed();
    join(threads);
}

fn is_race(model: impl Fn() + Send + Sync + 'static) {
    let found = failure("flawed", 3, model);
    assert!(found.contains("Causality violation"), "{found}");
}

fn is_deadlock(model: impl Fn() + Send + Sync + 'static) {
    let found = failure("flawed", 3, model);
    assert!(found.contains("deadlock"), "{found}");
}

#[test]
fn a_reader_and_a_writer() {
    explore("a reader and a writer", 3, || readers_and_a_writer::<Hasty>(1, 1));
    explore("a reader that comes twice", 2, || readers_and_a_writer::<Hasty>(1, 2));
    explore("a reader leaves", 3, a_reader_leaves::<Hasty>);
}

#[test]
fn two_readers_and_a_writer() {
    explore("two readers", 2, || readers_and_a_writer::<Hasty>(2, 1));
}

#[test]
fn a_reader_that_is_taken_off_the_list_and_a_writer() {
    explore("a listed reader", 3, || a_listed_reader_and_a_writer(1));
    explore("a listed reader that comes twice", 2, || a_listed_reader_and_a_writer(2));
}

#[test]
fn without_an_asymmetric_barrier() {
    explore("symmetric", 3, || readers_and_a_writer::<SymmetricHasty>(1, 1));
    explore("symmetric, twice", 2, || readers_and_a_writer::<SymmetricHasty>(1, 2));
    explore("symmetric, leaves", 3, a_reader_leaves::<SymmetricHasty>);
}

#[test]
fn a_barrier_that_is_missing_lets_a_writer_in_beside_a_reader() {
    is_race(|| readers_and_a_writer::<NoLightHasty>(1, 1));
    is_race(|| readers_and_a_writer::<NoHeavyHasty>(1, 1));
    is_race(|| readers_and_a_writer::<SymmetricNoFenceHasty>(1, 1));
}

#[test]
fn a_barrier_that_is_missing_lets_a_writer_sleep_for_ever() {
    is_deadlock(a_reader_leaves::<NoLightHasty>);
    is_deadlock(a_reader_leaves::<NoHeavyHasty>);
    is_deadlock(a_reader_leaves::<SymmetricNoFenceHasty>);
}

#[test]
fn a_wake_up_that_is_lost_is_noticed() {
    is_deadlock(a_reader_leaves::<DeafHasty>);
}
