//! Readers that announce themselves in slots, and a writer that looks at them, on real threads.

#[path = "../parts/slots.rs"]
mod parts;

use std::thread;

use fairlock::platform::Os;
use fairlock_check::scenario::Number;
use fairlock_check::threads::platforms::Symmetric;
use fairlock_check::threads::{Unprotected, watched};
use parts::{HasRecords, State, own_records};

own_records!(Os);
own_records!(Symmetric);

fn readers_and_a_writer<P: HasRecords>() {
    const ROUNDS: u32 = 3_000;
    let state = State::<P, Unprotected>::new(2);
    watched(|| {
        thread::scope(|scope| {
            for reader in 0..2 {
                let state = &state;
                scope.spawn(move || (0..ROUNDS).for_each(|_| state.read(reader)));
            }
            (0..ROUNDS / 10).for_each(|_| state.write());
        });
    });
    assert_eq!(state.data.get(), ROUNDS / 10, "an update was lost");
}

#[test]
fn readers_and_a_writer_exclude_each_other() {
    readers_and_a_writer::<Os>();
    readers_and_a_writer::<Symmetric>();
}

#[test]
fn readers_whose_records_are_taken_off_the_list_exclude_a_writer() {
    const ROUNDS: u32 = 3_000;
    let state = State::<Os, Unprotected>::new(2);
    watched(|| {
        thread::scope(|scope| {
            for reader in 0..2 {
                let state = &state;
                scope.spawn(move || (0..ROUNDS).for_each(|_| state.read_listed(reader)));
            }
            for _ in 0..ROUNDS / 10 {
                state.threads.unlist_idle();
                state.write_looking_at_listed();
            }
        });
    });
    assert_eq!(state.data.get(), ROUNDS / 10, "an update was lost");
}

#[test]
fn a_writer_is_woken_when_a_reader_leaves() {
    for _ in 0..300 {
        let state = State::<Os, Unprotected>::with_a_reader_inside();
        watched(|| {
            thread::scope(|scope| {
                scope.spawn(|| state.leave());
                state.wait();
            });
        });
    }
}
