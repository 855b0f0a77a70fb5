//! Groups in every schedule within stated bounds, and by chance beyond; and groups with a mistake, which has
//! to be found.

use fairlock_sim::On;
use fairlock_sim::explore::{Explore, FailureKind, Program, Search, Sound};

use super::checked::{
    CallsNobody, Checked, Forgets, Forgives, InvitesNobody, LeadsBeside, Mistake, Nothing, Refuses,
    ReservesNothing, SettlesEarly,
};
use crate::long::depth;

type P = On<Explore<Sound>>;

/// What a thread does with a number.
#[derive(Debug, Clone, Copy)]
enum Step {
    Submit,
    Append,
    /// Flushes, and takes no number.
    Flush,
    /// As that, and tells nobody.
    FlushUnheard,
}
use Step::{Append, Flush, FlushUnheard, Submit};

fn never(_write: u32) -> bool {
    false
}

fn the_first(write: u32) -> bool {
    write == 0
}

fn the_first_two(write: u32) -> bool {
    write < 2
}

fn every_other(write: u32) -> bool {
    write % 2 == 0
}

/// A thread for each list of steps; batches hold `most` numbers.
fn program<M: Mistake>(
    threads: &'static [&'static [Step]],
    most: usize,
    refuses: Refuses,
) -> Program<Checked<P, M>> {
    let count = threads.len();
    let program = Program::new(format!("{threads:?} by {most}"), move || {
        Checked::<P, M>::new(count, most, refuses)
    });
    let run = |program: Program<_>, (thread, steps): (usize, &'static [Step])| {
        program.thread(move |checked: &Checked<P, M>| {
            for (at, step) in steps.iter().enumerate() {
                let number = (thread * 10 + at) as u32;
                let failed = match step {
                    Submit => {
                        checked.submit_only(number);
                        false
                    }
                    Append => checked.append(number).is_err(),
                    Flush => checked.flush().is_err(),
                    FlushUnheard => {
                        checked.flush_unheard();
                        false
                    }
                };
                assert!(!failed || (0..checked.writes()).any(refuses), "nothing was refused");
            }
        })
    };
    let takes_number = |step: &&Step| matches!(step, Submit | Append);
    let numbers = threads.iter().copied().flatten().filter(takes_number).count();
    let never_fails = (0..10).all(|write| !refuses(write));
    threads.iter().copied().enumerate().fold(program, run).finally(move |checked| {
        let there = checked.finish(numbers);
        assert!(!never_fails || there == numbers, "{there} of {numbers} are there");
    })
}

#[test]
fn two_threads_in_every_schedule() {
    let jobs: [(&[&[Step]], usize, Refuses); 10] = [
        (&[&[Append], &[Append]], 1, never),
        (&[&[Append], &[Append]], 2, the_first),
        (&[&[Submit, Append], &[Submit]], 1, never),
        (&[&[Submit, Append], &[Submit]], 1, the_first),
        (&[&[Submit, Submit, Submit], &[Submit, Append]], 1, never),
        (&[&[Submit, Submit, Submit], &[Submit, Append]], 2, never),
        (&[&[Append, Append], &[Append, Append]], 1, the_first_two),
        (&[&[Append, Append], &[Submit, Flush]], 2, every_other),
        (&[&[Submit, Flush], &[Submit, Flush]], 2, the_first),
        (&[&[Submit, FlushUnheard, Append], &[Append, Submit]], 2, every_other),
    ];
    for (threads, most, refuses) in jobs {
        let program = program::<Nothing>(threads, most, refuses);
        assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
    }
    let program = program::<Nothing>(&[&[Append], &[Append]], 2, never).spurious_wakes(1);
    assert!(program.assert(&Search::exhaustive().preemptions(3)).complete);
}

#[test]
fn three_threads_with_one_preemption() {
    let jobs: [(&[&[Step]], usize, Refuses); 3] = [
        (&[&[Append], &[Append], &[Append]], 1, the_first),
        (&[&[Append], &[Append], &[Append]], 2, never),
        (&[&[Submit, Submit], &[Submit, Append], &[Submit]], 1, never),
    ];
    for (threads, most, refuses) in jobs {
        let program = program::<Nothing>(threads, most, refuses);
        assert!(program.assert(&Search::exhaustive().preemptions(1)).complete);
    }
}

#[test]
fn three_and_four_threads_by_chance() {
    let jobs: [(&[&[Step]], usize, Refuses); 5] = [
        (&[&[Append, Append], &[Append, Append], &[Append, Append]], 2, never),
        (
            &[&[Submit, Submit, Append], &[Submit, Append, Submit], &[Submit, Submit]],
            1,
            every_other,
        ),
        (
            &[&[Submit, Submit, Submit], &[Submit, Submit], &[Append, Append], &[Append, Flush]],
            1,
            never,
        ),
        (
            &[&[Submit, Submit, Submit], &[Submit, Submit], &[Append, Append], &[Append, Flush]],
            2,
            every_other,
        ),
        (&[&HOGS, &HOGS, &[Submit], &[Append, Append]], 1, never),
    ];
    for (threads, most, refuses) in jobs {
        let program = program::<Nothing>(threads, most, refuses).spurious_wakes(1);
        program.assert(&Search::pct(1, 3, depth(1_500, 5_000)));
        program.assert(&Search::random(2, depth(600, 2_000)));
    }
}

#[test]
fn two_threads_with_store_buffers() {
    let jobs: [(&[&[Step]], usize, Refuses); 2] = [
        (&[&[Append], &[Append, Append]], 2, the_first),
        (&[&[Submit, Submit], &[Submit, Append]], 1, never),
    ];
    for (threads, most, refuses) in jobs {
        let program = program::<Nothing>(threads, most, refuses).store_buffers();
        program.assert(&Search::exhaustive().preemptions(2).at_most(depth(4_000, 10_000)));
        program.assert(&Search::pct(3, 3, depth(1_500, 5_000)));
    }
}

/// Fill each batch between them.
const HOGS: [Step; 6] = [Append; 6];

/// What is found of the mistake, by each search.
fn found<M: Mistake>(
    threads: &'static [&'static [Step]],
    most: usize,
    refuses: Refuses,
) -> Vec<FailureKind> {
    let program = program::<M>(threads, most, refuses);
    let few_threads = (threads.len() == 2).then(|| Search::exhaustive().preemptions(2));
    let searches = few_threads.into_iter().chain([Search::pct(1, 3, 100_000)]);
    let found = |search| program.check(&search).expect_err("a mistake is found").kind;
    searches.map(found).collect()
}

fn somebody_sleeps_for_ever(found: Vec<FailureKind>) {
    for kind in found {
        assert!(matches!(kind, FailureKind::Deadlock { .. }), "{kind}");
    }
}

/// A check says one of these.
fn notices(found: Vec<FailureKind>, messages: &[&str]) {
    for kind in found {
        let text = kind.to_string();
        assert!(messages.iter().any(|it| text.contains(it)), "{text}");
    }
}

#[test]
fn without_a_call_the_next_batch_is_not_written() {
    somebody_sleeps_for_ever(found::<CallsNobody>(&[&[Append], &[Append]], 2, never));
    somebody_sleeps_for_ever(found::<CallsNobody>(&[&[Append], &[Append], &[Append]], 1, never));
}

#[test]
fn without_an_invitation_nobody_finds_room() {
    somebody_sleeps_for_ever(found::<InvitesNobody>(&[&[Submit, Append], &[Submit]], 1, never));
}

#[test]
fn without_a_reservation_others_are_always_faster() {
    let found = found::<ReservesNothing>(&[&HOGS, &HOGS, &[Submit]], 1, never);
    notices(found, &["passed by more than came before it"]);
}

#[test]
fn what_is_settled_before_it_is_written_is_acknowledged_too_early() {
    let found = found::<SettlesEarly>(&[&[Append], &[Append]], 2, never);
    notices(found, &["acknowledged before it was written"]);
}

#[test]
fn two_leaders_meet() {
    let found = found::<LeadsBeside>(&[&[Append], &[Append]], 2, never);
    notices(found, &["two write at once", "a gap, or something overwritten"]);
}

#[test]
fn what_is_kept_after_a_failure_has_a_gap_before_it() {
    let found = found::<Forgives>(&[&[Append], &[Append]], 2, the_first);
    notices(found, &["a gap, or something overwritten", "acknowledged before it was written"]);
}

#[test]
fn what_is_forgotten_at_the_next_success_is_told_to_nobody() {
    let found = found::<Forgets>(&[&[Submit, FlushUnheard, Append], &[Append]], 1, the_first);
    notices(found, &["a failure was forgotten"]);
}
