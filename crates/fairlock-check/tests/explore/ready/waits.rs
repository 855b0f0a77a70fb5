//! Never is something ready while everybody sleeps and no wake-up is on its way: every wait ends
//! that should, and reports what it should.

use std::sync::atomic::Ordering::SeqCst;

use fairlock::platform::AtomicCell;
use fairlock::ready::{List, RawPoll, Trigger};
use fairlock_sim::explore::{Program, Search};

use super::world::{
    A_WHILE, NOW, READABLE, TRIGGERS, World, explore, name, over_each_list, program, tokens,
};

over_each_list! {
    a_wait_ends_at_a_signal
    two_producers_of_one_source_are_both_heard
    batches_of_one_wake_one_consumer_after_the_other
    a_level_wakes_both_consumers
    a_timeout_loses_nothing
    a_wait_of_zero_reports_what_was_signalled
    sources_come_in_the_order_of_their_signals
    a_busy_source_keeps_no_other_from_being_served
    once_is_reported_once_for_each_time_it_is_armed
    once_is_armed_while_another_consumer_waits
    an_outer_poll_wakes_up
}

/// Such programs have many executions: the lists' own locks and the consumer lock are contended.
fn two_consumers<L: List>(program: Program<World<L>>) {
    let program = program.early_spins(0);
    assert!(program.assert(&Search::exhaustive().preemptions(1)).complete);
    let program = program.early_spins(1).clock_jumps(1);
    program.assert(&Search::pct(2, 4, 400));
    program.store_buffers().assert(&Search::random(3, 200));
}

fn a_wait_ends_at_a_signal<L: List>() {
    for trigger in TRIGGERS {
        let program = program::<L>("a signal and a wait", 1, trigger)
            .thread(|world| assert!(world.counters[0].add(1)))
            .thread(|world: &World<L>| assert_eq!(world.wait(1, None), [0]))
            .finally(move |world| {
                let again: &[u64] = if trigger == Trigger::Level { &[0] } else { &[] };
                assert_eq!(world.wait(1, NOW), again);
            });
        explore(&program, 500, 2);
        program.store_buffers().assert(&Search::random(1, 300));
    }
}

fn two_producers_of_one_source_are_both_heard<L: List>() {
    for trigger in TRIGGERS {
        let program = program::<L>("two producers of one source", 1, trigger)
            .threads(2, |world: &World<L>| assert!(world.counters[0].add(1)))
            .thread(move |world| world.receive(trigger, 1, &[2]))
            .finally(|world| assert_eq!(world.counters[0].get(), 0));
        assert!(program.assert(&Search::exhaustive().preemptions(1)).complete);
        program.store_buffers().assert(&Search::pct(1, 3, 300));
    }
}

/// Whoever leaves something behind calls the next.
fn batches_of_one_wake_one_consumer_after_the_other<L: List>() {
    let program = program::<L>("batches of one", 2, Trigger::Edge)
        .thread(|world: &World<L>| {
            world.counters.iter().for_each(|counter| assert!(counter.add(1)));
        })
        .threads(2, |world| assert_eq!(world.wait(1, None).len(), 1))
        .finally(|world| {
            world.reported.borrow_mut().sort_unstable();
            assert_eq!(*world.reported.borrow(), [0, 1]);
            assert_eq!(world.wait(2, NOW), []);
        });
    two_consumers(program.spurious_wakes(1));
}

fn a_level_wakes_both_consumers<L: List>() {
    let program = program::<L>("two consumers", 1, Trigger::Level)
        .thread(|world| assert!(world.counters[0].add(1)))
        .threads(2, |world: &World<L>| assert_eq!(world.wait(1, None), [0]));
    two_consumers(program);
}

/// A consumer whose time is over may have been called.
fn a_timeout_loses_nothing<L: List>() {
    let program = program::<L>("a consumer in a hurry", 1, Trigger::Edge)
        .thread(|world| assert!(world.counters[0].add(1)))
        .thread(|world: &World<L>| {
            if !world.wait(1, A_WHILE).is_empty() {
                // Passed on.
                world.counters[0].add(1);
            }
        })
        .thread(|world| assert_eq!(world.wait(1, None), [0]));
    two_consumers(program);
}

fn a_wait_of_zero_reports_what_was_signalled<L: List>() {
    for trigger in TRIGGERS {
        let program = program::<L>("a wait of zero", 1, trigger)
            .thread(|world: &World<L>| {
                world.counters[0].add(1);
                world.flag.store(1, SeqCst);
            })
            // In the middle of it, perhaps.
            .thread(|world| assert!(world.counters[0].add(1)))
            .thread(|world| {
                if world.flag.load(SeqCst) == 1 {
                    assert_eq!(world.wait(1, NOW), [0]);
                }
            });
        assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
    }
}

fn sources_come_in_the_order_of_their_signals<L: List>() {
    for most in [1, 2] {
        let program = program::<L>("one after the other", 2, Trigger::Edge)
            .thread(|world: &World<L>| {
                world.counters.iter().for_each(|counter| assert!(counter.add(1)));
            })
            .thread(move |world| world.receive(Trigger::Edge, most, &[1, 1]))
            .finally(|world| assert_eq!(*world.reported.borrow(), [0, 1]));
        explore(&program, 1_000, 2);
    }
}

fn a_busy_source_keeps_no_other_from_being_served<L: List>() {
    let program = program::<L>("three sources, one of them busy", 3, Trigger::Level)
        .thread(|world: &World<L>| {
            world.counters.iter().for_each(|counter| assert!(counter.add(1)));
            world.flag.store(1, SeqCst);
            (0..3).for_each(|_| assert!(world.counters[0].add(1)));
        })
        .thread(|world| {
            if world.flag.load(SeqCst) == 1 {
                let mut served: Vec<u64> = (0..3).flat_map(|_| world.wait(1, NOW)).collect();
                served.sort_unstable();
                assert_eq!(served, [0, 1, 2]);
            }
        });
    explore(&program, 1_000, 2);
}

/// The level stays, so each arm gives one report, whatever the producers do.
fn once_is_reported_once_for_each_time_it_is_armed<L: List>() {
    let program = program::<L>("arms", 1, Trigger::Once)
        .thread(|world: &World<L>| (0..2).for_each(|_| assert!(world.counters[0].add(1))))
        .thread(|world| {
            assert_eq!(world.wait(1, None), [0]);
            assert_eq!(world.wait(1, NOW), []);
            world.poll.modify(&world.counters[0], 5, READABLE, Trigger::Once).expect("registered");
            assert_eq!(world.wait(1, NOW), [5]);
            assert_eq!(world.wait(1, NOW), []);
        })
        .finally(|world| assert_eq!(world.wait(1, NOW), []));
    explore(&program, 1_000, 2);
    program.store_buffers().assert(&Search::random(1, 300));
}

/// The level stays; each arm has its own token.
fn once_is_armed_while_another_consumer_waits<L: List>() {
    const ARMS: [u64; 3] = [0, 5, 6];
    let program = program::<L>("armed by another", 1, Trigger::Once)
        .thread(|world: &World<L>| assert!(world.counters[0].add(1)))
        .thread(|world| (0..2).for_each(|_| _ = world.wait(1, NOW)))
        .thread(|world| {
            for arm in &ARMS[1..] {
                world
                    .poll
                    .modify(&world.counters[0], *arm, READABLE, Trigger::Once)
                    .expect("in it");
                let reported = world.wait(1, NOW);
                assert!(reported.is_empty() || reported == [*arm], "{reported:?}");
            }
        })
        .finally(|world| {
            world.wait(1, NOW);
            let most = ARMS.iter().map(|&arm| world.times_reported(arm)).max();
            assert_eq!((most, world.times_reported(ARMS[2])), (Some(1), 1));
            assert_eq!(world.wait(1, NOW), []);
        });
    two_consumers(program);
}

struct Nested<L: List> {
    inner: World<L>,
    outer: RawPoll<L>,
}

fn an_outer_poll_wakes_up<L: List>() {
    for trigger in [Trigger::Level, Trigger::Edge] {
        let nested = move || {
            let (inner, outer) = (World::<L>::new(1, trigger), RawPoll::new());
            outer.register(&inner.poll, 9, READABLE, Trigger::Level).expect("a new source");
            assert_eq!(inner.wait(1, NOW), []);
            Nested { inner, outer }
        };
        let program = Program::new(name::<L>("in a poll in a poll", trigger), nested)
            .thread(|nested| assert!(nested.inner.counters[0].add(1)))
            .thread(|nested| {
                // Perhaps once in vain: one that was told may say so late.
                while nested.inner.times_reported(0) == 0 {
                    assert_eq!(tokens(&nested.outer, 1, None), [9]);
                    nested.inner.wait(1, NOW);
                }
                nested.inner.counters[0].read();
            })
            .finally(|nested| {
                assert_eq!(nested.inner.wait(1, NOW), []);
                assert_eq!(tokens(&nested.outer, 1, NOW), []);
            });
        explore(&program, 1_000, 2);
    }
}
