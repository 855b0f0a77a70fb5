//! Registrations that change while others signal and wait: nothing is reported of a source that has
//! left, and nobody touches what is gone.

use std::cell::RefCell;
use std::sync::Arc;

use fairlock::ready::{List, RawCounter, RawPoll, Trigger};
use fairlock_sim::explore::{Program, Search};

use super::world::{
    NOW, READABLE, TRIGGERS, World, explore, name, over_each_list, program, tokens,
};

over_each_list! {
    nothing_is_reported_of_a_source_that_has_left
    a_source_moves_to_another_poll
    a_source_is_dropped_by_its_last_user
    a_poll_is_dropped_while_its_source_is_signalled
    two_sources_leave_and_come_at_once
}

fn nothing_is_reported_of_a_source_that_has_left<L: List>() {
    for trigger in TRIGGERS {
        let program = program::<L>("a source leaves", 1, trigger)
            .thread(|world: &World<L>| assert!(world.counters[0].add(1)))
            .thread(|world| _ = world.wait(1, NOW))
            .thread(|world| {
                world.poll.deregister(&world.counters[0]).expect("registered");
                assert_eq!(world.wait(1, NOW), []);
            })
            .finally(move |world| {
                assert_eq!(world.wait(1, NOW), []);
                world.poll.register(&world.counters[0], 7, READABLE, trigger).expect("free");
                assert_eq!(world.wait(1, NOW), [7]);
            });
        assert!(program.assert(&Search::exhaustive().preemptions(1)).complete);
        program.store_buffers().assert(&Search::pct(1, 3, 300));
    }
}

struct Two<L: List> {
    polls: [RawPoll<L>; 2],
    counter: RawCounter<L>,
}

fn a_source_moves_to_another_poll<L: List>() {
    let two = || {
        let two = Two { polls: [RawPoll::<L>::new(), RawPoll::new()], counter: RawCounter::new(0) };
        two.polls[0].register(&two.counter, 1, READABLE, Trigger::Level).expect("a new source");
        two
    };
    let program = Program::new(name::<L>("a source moves", Trigger::Level), two)
        .thread(|two| assert!(two.counter.add(1)))
        .thread(|two| {
            two.polls[0].deregister(&two.counter).expect("registered");
            two.polls[1].register(&two.counter, 2, READABLE, Trigger::Level).expect("free");
            assert_eq!(tokens(&two.polls[0], 1, NOW), []);
            assert_eq!(tokens(&two.polls[1], 1, None), [2]);
        })
        .finally(|two| {
            assert_eq!(tokens(&two.polls[0], 1, NOW), []);
            assert_eq!(tokens(&two.polls[1], 1, NOW), [2]);
        });
    explore(&program, 1_000, 2);
}

/// Each thread drops its own.
struct Shares<T>([RefCell<Option<Arc<T>>>; 2]);

impl<T> Shares<T> {
    fn new(value: T) -> Self {
        let value = Arc::new(value);
        Shares([RefCell::new(Some(Arc::clone(&value))), RefCell::new(Some(value))])
    }

    fn take(&self, share: usize) -> Arc<T> {
        self.0[share].take().expect("taken once")
    }
}

fn a_source_is_dropped_by_its_last_user<L: List>() {
    for trigger in TRIGGERS {
        let make = move || {
            let (poll, counter) = (RawPoll::<L>::new(), RawCounter::new(0));
            poll.register(&counter, 1, READABLE, trigger).expect("a new source");
            (poll, Shares::new(counter))
        };
        let program = Program::new(name::<L>("a source is dropped", trigger), make)
            .thread(|(_, counters)| assert!(counters.take(0).add(1)))
            .thread(|(poll, counters)| {
                counters.take(1).add(1);
                tokens(poll, 1, NOW);
            })
            .finally(|(poll, _)| assert_eq!(tokens(poll, 1, NOW), []));
        explore(&program, 1_000, 2);
    }
}

fn a_poll_is_dropped_while_its_source_is_signalled<L: List>() {
    let make = || {
        let (poll, counter) = (RawPoll::<L>::new(), RawCounter::new(0));
        poll.register(&counter, 1, READABLE, Trigger::Level).expect("a new source");
        (RefCell::new(Some(poll)), counter)
    };
    let program = Program::new(name::<L>("a poll is dropped", Trigger::Level), make)
        .thread(|(_, counter)| (0..2).for_each(|_| assert!(counter.add(1))))
        .thread(|(poll, _)| {
            let poll = poll.take();
            drop(poll);
        })
        .finally(|(_, counter)| {
            let poll = RawPoll::<L>::new();
            poll.register(counter, 2, READABLE, Trigger::Level).expect("its poll is gone");
            assert_eq!(tokens(&poll, 1, NOW), [2]);
        });
    explore(&program, 1_000, 2);
}

fn two_sources_leave_and_come_at_once<L: List>() {
    let leave_and_come = |world: &World<L>, token: usize| {
        let counter = &world.counters[token];
        world.poll.deregister(counter).expect("registered");
        world.poll.register(counter, token as u64, READABLE, Trigger::Level).expect("free");
    };
    let program = program::<L>("two leave and come", 2, Trigger::Level)
        .thread(move |world: &World<L>| leave_and_come(world, 0))
        .thread(move |world| leave_and_come(world, 1))
        .thread(|world| assert!(world.counters[0].add(1)))
        .finally(|world| {
            assert_eq!(world.wait(2, NOW), [0]);
            world.counters[1].add(1);
            assert_eq!(world.wait(2, NOW).len(), 2);
        });
    assert!(program.assert(&Search::exhaustive().preemptions(1)).complete);
}
