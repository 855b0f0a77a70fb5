//! The sharing of barriers in every schedule, on CPUs with store buffers: a reader that announced
//! itself by the light side and saw no writer is seen by the writer, whoever ran the barrier that
//! the writer passed. Mistakes that have to be found: a caller that goes by an earlier look at the
//! numbers, so that it accepts a barrier that began before its call; a platform without full
//! fences; one whose barrier comes to the caller's CPU only.

#[path = "../../../fairlock/src/barrier.rs"]
#[allow(dead_code)] // what a `fork` needs
mod shared_barrier;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use fairlock::platform::{AtomicCell, Platform};
use fairlock_sim::On;
use fairlock_sim::explore::{
    Explore, FailureKind, Flaw, NoBarrier, NoFence, OwnBarrier, Program, Search, Sound,
};
use shared_barrier::SharedBarrier;

type P<F> = On<Explore<F>>;
type Word<F> = <P<F> as Platform>::AtomicU32;

struct State<F: Flaw> {
    shared: SharedBarrier<P<F>>,
    slot: Word<F>,
    state: Word<F>,
    /// What the reader and the writer found, plus one.
    found: [Word<F>; 2],
}

fn pass<F: Flaw>(state: &State<F>) {
    state.state.store(1, Relaxed);
    state.shared.pass();
}

fn pass_hastily<F: Flaw>(state: &State<F>) {
    let number = state.shared.next();
    state.state.store(1, Relaxed);
    state.shared.wait_for(number);
}

/// A reader and a writer of one lock, and so many writers of others.
fn program<F: Flaw>(others: usize, pass: fn(&State<F>)) -> Program<State<F>> {
    let state = || State {
        shared: SharedBarrier::NEW,
        slot: Word::<F>::new(0),
        state: Word::<F>::new(0),
        found: [Word::<F>::new(0), Word::<F>::new(0)],
    };
    Program::new("a shared barrier", state)
        .thread(|state: &State<F>| {
            state.slot.store(1, Relaxed);
            P::<F>::asymmetric_light();
            state.found[0].store(state.state.load(Relaxed) + 1, SeqCst);
        })
        .thread(move |state| {
            pass(state);
            state.found[1].store(state.slot.load(Relaxed) + 1, SeqCst);
        })
        .threads(others, |state| state.shared.pass())
        .finally(|state| {
            let found = state.found.each_ref().map(|found| found.load(Relaxed));
            assert_ne!(found, [1, 1], "the reader saw no writer, and the writer no reader");
        })
        .store_buffers()
        .early_spins(0)
}

fn searches() -> [Search; 3] {
    [Search::exhaustive().preemptions(2), Search::random(1, 20_000), Search::pct(1, 4, 20_000)]
}

fn is_found<F: Flaw>(others: usize, pass: fn(&State<F>)) {
    // In few random walks does a store stay in its buffer for as long as these need.
    let [exhaustive, _, pct] = searches();
    for search in [exhaustive, pct] {
        let failure = program::<F>(others, pass).check(&search).expect_err("a mistake is found");
        assert!(matches!(failure.kind, FailureKind::FinalCheck { .. }), "{failure}");
    }
}

#[test]
fn the_writer_or_the_reader_sees_the_other() {
    assert!(program::<Sound>(0, pass).assert(&Search::exhaustive()).complete);
    for search in searches() {
        program::<Sound>(1, pass).assert(&search);
        program::<Sound>(2, pass).assert(&search.at_most(20_000));
    }
}

#[test]
fn a_caller_may_tire_of_waiting() {
    let program = program::<Sound>(1, pass).early_spins(1);
    program.assert(&Search::exhaustive().preemptions(2));
}

#[test]
fn a_barrier_that_began_before_the_call_is_not_enough() {
    is_found::<Sound>(1, pass_hastily);
}

#[test]
fn a_borrowed_barrier_without_a_fence_of_ones_own_is_not_enough() {
    is_found::<NoFence>(1, pass);
}

#[test]
fn a_barrier_that_is_none_is_noticed() {
    is_found::<NoBarrier>(0, pass);
    is_found::<OwnBarrier>(0, pass);
}
