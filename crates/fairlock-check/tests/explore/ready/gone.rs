//! Sources and polls are dropped while others signal and wait: nobody touches them afterwards. What
//! is freed is kept until the execution's end, so whoever does is found.

use std::cell::RefCell;

use fairlock::ready::{List, RawCounter, RawPoll, RawTimer, Trigger};
use fairlock_sim::explore::{FailureKind, Program, Search};

use super::mistakes::{LeavesAtOnce, Nothing, With};
use super::world::{NOW, READABLE, TRIGGERS, explore, name, over_each_list, tokens};

over_each_list! {
    a_source_is_dropped_while_two_consumers_wait
    a_timer_is_dropped_while_a_consumer_wakes_up_for_it
    a_poll_is_dropped_after_its_source_has_left
    a_poll_in_a_poll_is_dropped
    an_outer_poll_is_dropped
}

/// What one thread takes and drops.
type Own<T> = RefCell<Option<T>>;

fn own<T>(value: T) -> Own<T> {
    RefCell::new(Some(value))
}

fn take<T>(own: &Own<T>) -> T {
    own.take().expect("one thread takes it")
}

fn a_source_is_dropped_while_two_consumers_wait<L: List>() {
    for trigger in TRIGGERS {
        let make = move || {
            let (poll, counter) = (RawPoll::<L>::new(), RawCounter::new(0));
            poll.register(&counter, 1, READABLE, trigger).expect("a new source");
            (poll, own(counter))
        };
        let program = Program::new(name::<L>("a source is dropped", trigger), make)
            .thread(|(poll, counter)| {
                let counter = take(counter);
                assert!(counter.add(1));
                drop(counter);
                assert_eq!(tokens(poll, 1, NOW), []);
            })
            .threads(2, |(poll, _)| _ = tokens(poll, 1, NOW))
            .finally(|(poll, _)| assert_eq!(tokens(poll, 1, NOW), []));
        assert!(program.assert(&Search::exhaustive().preemptions(1)).complete);
        program.store_buffers().assert(&Search::pct(1, 3, 300));
    }
}

fn a_timer_is_dropped_while_a_consumer_wakes_up_for_it<L: List>() {
    let make = || {
        let (poll, timer) = (RawPoll::<L>::new(), RawTimer::new());
        poll.register(&timer, 1, READABLE, Trigger::Level).expect("a new source");
        (poll, own(timer))
    };
    let program = Program::new(name::<L>("a timer is dropped", Trigger::Level), make)
        .thread(|(_, timer)| {
            let timer = take(timer);
            timer.set_at(1);
            drop(timer);
        })
        .thread(|(poll, _)| _ = tokens(poll, 1, super::world::A_WHILE))
        .finally(|(poll, _)| assert_eq!(tokens(poll, 1, NOW), []));
    explore(&program, 1_000, 2);
}

/// The signal may be in the middle of touching the poll.
fn leaves_and_is_dropped<L: List>() -> Program<(Own<RawPoll<L>>, RawCounter<L>)> {
    let make = || {
        let (poll, counter) = (RawPoll::<L>::new(), RawCounter::new(0));
        poll.register(&counter, 1, READABLE, Trigger::Edge).expect("a new source");
        (own(poll), counter)
    };
    Program::new(name::<L>("a poll is left and dropped", Trigger::Edge), make)
        .thread(|(_, counter)| assert!(counter.add(1)))
        .thread(|(poll, counter)| {
            let poll = take(poll);
            poll.deregister(counter).expect("registered");
        })
        .finally(|(_, counter)| {
            let poll = RawPoll::<L>::new();
            poll.register(counter, 2, READABLE, Trigger::Level).expect("it has left");
            assert_eq!(tokens(&poll, 1, NOW), [2]);
        })
}

fn a_poll_is_dropped_after_its_source_has_left<L: List>() {
    explore(&leaves_and_is_dropped::<L>(), 1_000, 2);
}

struct Nested<L: List> {
    outer: Own<RawPoll<L>>,
    inner: Own<RawPoll<L>>,
    counter: RawCounter<L>,
}

impl<L: List> Nested<L> {
    fn new() -> Self {
        let (outer, inner, counter) = (RawPoll::<L>::new(), RawPoll::new(), RawCounter::new(0));
        outer.register(&inner, 9, READABLE, Trigger::Level).expect("a new source");
        inner.register(&counter, 1, READABLE, Trigger::Level).expect("a new source");
        // Nobody was told yet of what comes.
        assert_eq!(tokens(&inner, 1, NOW), []);
        Nested { outer: own(outer), inner: own(inner), counter }
    }
}

fn a_poll_in_a_poll_is_dropped<L: List>() {
    let program =
        Program::new(name::<L>("an inner poll is dropped", Trigger::Level), Nested::<L>::new)
            .thread(|nested| assert!(nested.counter.add(1)))
            .thread(|nested| drop(take(&nested.inner)))
            .thread(|nested| {
                let outer = take(&nested.outer);
                tokens(&outer, 1, NOW);
                *nested.outer.borrow_mut() = Some(outer);
            })
            .finally(|nested| assert_eq!(tokens(&take(&nested.outer), 1, NOW), []));
    assert!(program.assert(&Search::exhaustive().preemptions(1)).complete);
}

fn an_outer_poll_is_dropped<L: List>() {
    let program =
        Program::new(name::<L>("an outer poll is dropped", Trigger::Level), Nested::<L>::new)
            .thread(|nested| assert!(nested.counter.add(1)))
            .thread(|nested| drop(take(&nested.outer)))
            .thread(|nested| {
                let inner = take(&nested.inner);
                tokens(&inner, 1, NOW);
                *nested.inner.borrow_mut() = Some(inner);
            })
            .finally(|nested| assert_eq!(tokens(&take(&nested.inner), 1, NOW), [1]));
    assert!(program.assert(&Search::exhaustive().preemptions(1)).complete);
}

#[test]
fn who_leaves_in_the_middle_of_a_signal_is_touched_when_it_is_gone() {
    let search = Search::exhaustive().preemptions(2);
    leaves_and_is_dropped::<With<Nothing>>().assert(&search);
    let found = leaves_and_is_dropped::<With<LeavesAtOnce>>().check(&search);
    let failure = found.expect_err("the signal goes on");
    assert!(matches!(failure.kind, FailureKind::Gone { .. }), "{failure}");
}
