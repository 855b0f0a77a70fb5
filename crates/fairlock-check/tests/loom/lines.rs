//! A line under Loom: what a front does comes before what the next one does.

#[path = "../parts/lines.rs"]
mod parts;

use std::sync::Arc;

use fairlock::platform::Platform;
use fairlock_check::loom_platform::{Loom, Watched, Weakened, explore, failure, join, spawn};

type State<P> = parts::State<P, Watched>;

/// So many stay until they have been the front, and so many give up first and come again.
fn stand<P: Platform>(patient: usize, others: usize) {
    let threads = patient + others;
    let state = Arc::new(State::<P>::new(threads));
    let stand = move |state: &State<P>, thread| match thread < patient {
        true => state.add_once(thread),
        false => state.give_up_and_come_again(thread),
    };
    let handles: Vec<_> = (1..threads)
        .map(|thread| {
            let state = Arc::clone(&state);
            spawn(move || stand(&state, thread))
        })
        .collect();
    stand(&state, 0);
    join(handles);
    state.data.get();
}

#[test]
fn one_after_the_other() {
    explore("two", 3, || stand::<Loom>(2, 0));
    explore("one gives up", 3, || stand::<Loom>(1, 1));
    explore("three", 2, || stand::<Loom>(3, 0));
    explore("three, one gives up", 2, || stand::<Loom>(2, 1));
}

#[test]
fn not_with_relaxed_orderings() {
    let found = failure("flawed", 3, || stand::<Weakened>(2, 0));
    assert!(found.contains("Causality violation"), "{found}");
}
