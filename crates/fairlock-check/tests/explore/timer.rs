//! Timers in polls in every schedule within stated bounds: nobody oversleeps one that is set, by whom
//! and when ever, in whatever poll; and one that goes is not reported.

use std::time::Duration;

use fairlock::platform::Platform;
use fairlock::ready::{
    Batch, RawCounter, RawPoll, RawTimer, Readiness, ReadyList, Source, Trigger,
};
use fairlock_sim::Explored;
use fairlock_sim::explore::{Program, Search, pass_time};

type List = ReadyList<Explored>;
type Poll = RawPoll<List>;
type Timer = RawTimer<List>;

const SOON: Duration = Duration::from_micros(300);
const LATER: Duration = Duration::from_secs(1);

fn register(poll: &Poll, source: &impl Source<List>, token: u64, trigger: Trigger) {
    poll.register(source, token, Readiness::READABLE, trigger).expect("it is new");
}

/// Waits for one source, without end.
fn wait(poll: &Poll) -> u64 {
    let mut batch = Batch::with_capacity(1);
    assert_eq!(poll.wait(&mut batch, None), 1);
    batch.iter().next().expect("one").token
}

/// What is left when all is over.
fn rest(poll: &Poll) -> usize {
    poll.wait(&mut Batch::with_capacity(8), Some(Duration::ZERO))
}

/// Exhaustively with few preemptions, and by chance with more.
fn explore<S>(program: &Program<S>, preemptions: u32, most: u64) {
    program.assert(&Search::exhaustive().preemptions(preemptions).at_most(most));
    program.assert(&Search::pct(1, 4, most / 4));
    program.assert(&Search::random(2, most / 4));
}

struct State {
    outer: Poll,
    poll: Poll,
    timer: Timer,
    counter: RawCounter<List>,
}

impl State {
    /// A poll with a timer and a counter.
    fn new(trigger: Trigger) -> State {
        let (poll, timer, counter) = (Poll::new(), Timer::new(), RawCounter::new(0));
        register(&poll, &timer, 1, trigger);
        register(&poll, &counter, 2, Trigger::Edge);
        State { outer: Poll::new(), poll, timer, counter }
    }

    /// The same in another poll.
    fn nested(trigger: Trigger) -> State {
        let state = State::new(Trigger::Level);
        register(&state.outer, &state.poll, 3, trigger);
        state
    }
}

#[test]
fn a_sleeper_is_woken_by_a_timer_that_is_set_meanwhile() {
    for trigger in [Trigger::Level, Trigger::Edge, Trigger::Once] {
        let program = Program::new(format!("set, {trigger:?}"), move || State::new(trigger))
            .thread(|state: &State| {
                state.timer.set_after(LATER);
                state.timer.set_after(SOON);
            })
            .thread(|state| {
                assert_eq!(wait(&state.poll), 1);
                // Less if it was set again after its time had come.
                assert!(state.timer.read().is_none_or(|times| times == 1));
            });
        explore(&program, 2, 4_000);
    }
}

#[test]
fn of_two_sleepers_one_takes_over_when_the_other_leaves() {
    let program = Program::new("two sleepers", || State::new(Trigger::Edge))
        .thread(|state: &State| {
            state.timer.set_after(SOON);
            state.counter.add(1);
        })
        .threads(2, |state| {
            wait(&state.poll);
        })
        .finally(|state| assert_eq!(rest(&state.poll), 0));
    explore(&program, 2, 6_000);
}

#[test]
fn a_timer_in_an_inner_poll_ends_the_wait_of_the_outer_one() {
    for trigger in [Trigger::Level, Trigger::Edge] {
        let program = Program::new(format!("nested, {trigger:?}"), move || State::nested(trigger))
            .thread(|state: &State| state.timer.set_after(SOON))
            .thread(|state| {
                while rest(&state.poll) == 0 {
                    assert_eq!(wait(&state.outer), 3);
                }
                assert_eq!(state.timer.read(), Some(1));
            });
        explore(&program, 2, 4_000);
    }
}

#[test]
fn a_timer_that_goes_is_not_reported_afterwards() {
    let program = Program::new("deregistered", || State::nested(Trigger::Level))
        .thread(|state: &State| {
            state.timer.set_every(SOON, SOON);
            state.poll.deregister(&state.timer).expect("it was registered");
            state.timer.cancel();
            assert_eq!(rest(&state.poll), 0);
        })
        .thread(|state| {
            let mut batch = Batch::with_capacity(4);
            state.outer.wait(&mut batch, Some(SOON));
            state.poll.wait(&mut batch, Some(SOON));
        });
    explore(&program, 2, 4_000);
}

#[test]
fn two_polls_that_want_to_be_in_each_other_do_not_both_succeed() {
    let add = |inner: &Poll, outer: &Poll, results: &std::cell::Cell<u32>| {
        let added = outer.register(inner, 0, Readiness::READABLE, Trigger::Level);
        results.set(results.get() + u32::from(added.is_ok()));
    };
    let make = || (Poll::new(), Poll::new(), std::cell::Cell::new(0));
    let program = Program::new("each other", make)
        .thread(move |(one, other, results)| add(one, other, results))
        .thread(move |(one, other, results)| add(other, one, results))
        .finally(|(_, _, results)| assert_eq!(results.get(), 1));
    explore(&program, 3, 4_000);
}

/// However the inner poll is signalled meanwhile: its alarm was due before.
#[test]
fn a_wait_of_zero_reports_a_poll_whose_timer_is_due() {
    let make = || {
        let state = State::nested(Trigger::Edge);
        state.timer.set_at(Explored::now() + 10);
        // Nobody was told yet of what comes.
        assert_eq!((rest(&state.outer), rest(&state.poll)), (1, 0));
        state
    };
    let program = Program::new("due in a poll in a poll", make)
        .thread(|state: &State| assert!(state.counter.add(1)))
        .thread(|state| {
            pass_time(10);
            assert_eq!(rest(&state.outer), 1);
        });
    explore(&program, 2, 4_000);
}

#[test]
fn a_timer_two_polls_further_in_ends_a_wait() {
    let make = || {
        let state = State::nested(Trigger::Level);
        let outermost = Poll::new();
        register(&outermost, &state.outer, 4, Trigger::Edge);
        rest(&state.poll);
        rest(&state.outer);
        (outermost, state)
    };
    let program = Program::new("two polls further in", make)
        .thread(|(_, state)| {
            state.timer.set_after(LATER);
            state.timer.set_after(SOON);
        })
        .thread(|(outermost, state)| {
            while rest(&state.poll) == 0 {
                if rest(&state.outer) == 0 {
                    assert_eq!(wait(outermost), 4);
                }
            }
            // None if it was set again after its time had come.
            assert!(state.timer.read().is_none_or(|times| times == 1));
        });
    explore(&program, 1, 4_000);
}
