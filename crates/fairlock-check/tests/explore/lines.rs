//! A line in every schedule: one at a time, nobody is forgotten, and who has gone is in nobody's way.

#[path = "../parts/lines.rs"]
mod parts;

use fairlock_check::long;
use fairlock_sim::Explored;
use fairlock_sim::explore::{Guarded, Program, Search, Sound};

type State = parts::State<Explored, Guarded<Sound>>;

/// So many stay until they have been the front, and so many give up first and come again.
fn program(patient: usize, others: usize) -> Program<State> {
    let threads = patient + others;
    let program = Program::new("line", move || State::new(threads));
    let stay = |program: Program<State>, thread| {
        program.thread(move |state: &State| state.add_once(thread))
    };
    let give_up = |program: Program<State>, thread| {
        program.thread(move |state: &State| state.give_up_and_come_again(thread))
    };
    let program = (0..patient).fold(program, stay);
    (patient..threads).fold(program, give_up).finally(move |state| {
        assert_eq!(state.data.get(), threads as u32, "everybody was the front once");
        assert!(state.add(0, Some(0)), "nobody is left behind");
    })
}

#[test]
fn two_in_every_schedule() {
    assert!(program(2, 0).assert(&Search::exhaustive()).complete);
    assert!(program(1, 1).assert(&Search::exhaustive()).complete);
}

#[test]
fn several() {
    for (patient, others) in [(3, 0), (2, 1), (1, 2), (2, 2)] {
        let program = program(patient, others);
        let preemptions = if patient + others > 3 { long::depth(1, 2) } else { 2 };
        program.assert(&Search::exhaustive().preemptions(preemptions));
        program.assert(&Search::random(1, 5_000));
        program.assert(&Search::pct(1, 4, 5_000));
    }
}
