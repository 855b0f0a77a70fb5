//! A producer that stops for good, after any of its steps: over [`ReadyList`] every wait still
//! ends, and reports every signal that has returned. Over the lists with a lock it does not, and the
//! explorer says so.

use std::sync::atomic::Ordering::SeqCst;

use fairlock::platform::AtomicCell;
use fairlock::ready::{List, RawPoll, ReadyList, Trigger};
use fairlock_reference::ready::{RwLockList, SpinList};
use fairlock_sim::Explored;
use fairlock_sim::explore::{Failure, FailureKind, Program, Report, Search};

use super::world::{A_WHILE, NOW, READABLE, TRIGGERS, World, name, program, tokens};

type Lists = ReadyList<Explored>;

/// The first thread is the one that stops.
fn frozen<S>(program: Program<S>, preemptions: u32) -> Report {
    let report = program.assert_frozen_anywhere(0, &Search::exhaustive().preemptions(preemptions));
    assert!(report.complete && report.frozen > 0, "{report}");
    report
}

/// Signals of the two are told apart by what they add.
const FROZEN: u64 = 1;
const OTHER: u64 = 16;

fn same_source<L: List>(trigger: Trigger) -> Program<World<L>> {
    program::<L>("two producers of one source", 1, trigger)
        .thread(|world: &World<L>| _ = world.counters[0].add(FROZEN))
        .thread(|world| assert!(world.counters[0].add(OTHER)))
        .thread(move |world| world.receive(trigger, 1, &[OTHER]))
}

fn two_sources<L: List>(trigger: Trigger) -> Program<World<L>> {
    program::<L>("two producers of two sources", 2, trigger)
        .thread(|world: &World<L>| {
            world.counters.iter().for_each(|counter| _ = counter.add(FROZEN));
        })
        .thread(|world| assert!(world.counters[1].add(OTHER)))
        .thread(move |world| world.receive(trigger, 1, &[0, OTHER]))
}

#[test]
fn another_producer_of_the_same_source_is_heard() {
    for trigger in TRIGGERS {
        frozen(same_source::<Lists>(trigger), 1);
    }
}

#[test]
fn a_producer_of_another_source_is_heard() {
    for trigger in TRIGGERS {
        frozen(two_sources::<Lists>(trigger), 1);
    }
}

/// One that has taken the watchers' bit and tells nobody.
#[test]
fn whoever_comes_after_one_that_is_about_to_wake_a_consumer_wakes_it() {
    let program = program::<Lists>("another source", 2, Trigger::Edge)
        .thread(|world: &World<Lists>| _ = world.counters[0].add(FROZEN))
        .thread(|world| assert!(world.counters[1].add(OTHER)))
        .thread(|world| world.receive(Trigger::Edge, 2, &[0, OTHER]));
    frozen(program, 1);
}

#[test]
fn two_consumers_share_what_another_producer_signals() {
    let program = program::<Lists>("two consumers", 3, Trigger::Edge)
        .thread(|world: &World<Lists>| _ = world.counters[0].add(FROZEN))
        .thread(|world| (1..3).for_each(|token| assert!(world.counters[token].add(OTHER))))
        .threads(2, |world| assert_eq!(world.wait(1, None).len(), 1))
        .finally(|world| {
            let mut all = world.reported.borrow().clone();
            all.extend(world.wait(3, NOW));
            assert!(all.contains(&1) && all.contains(&2), "{all:?}");
        });
    frozen(program, 0);
}

/// The level is not read, so each wait that begins after the signal has returned reports it.
#[test]
fn a_wait_of_zero_reports_what_another_producer_has_signalled() {
    for trigger in TRIGGERS {
        let program = program::<Lists>("a wait of zero", 1, trigger)
            .thread(|world: &World<Lists>| (0..2).for_each(|_| _ = world.counters[0].add(FROZEN)))
            .thread(|world| {
                assert!(world.counters[0].add(OTHER));
                world.flag.store(1, SeqCst);
            })
            .thread(move |world| {
                if trigger == Trigger::Level {
                    world.wait(1, NOW);
                    world.counters[0].read();
                }
                let signalled = world.flag.load(SeqCst) == 1;
                let level = world.counters[0].get() >= OTHER;
                let reported = world.times_reported(0) > 0;
                let now = !world.wait(1, NOW).is_empty();
                if signalled && level {
                    assert!(now || trigger != Trigger::Level && reported);
                }
            })
            .finally(move |world| {
                let level = world.counters[0].get() >= OTHER;
                let now = !world.wait(1, NOW).is_empty();
                if trigger == Trigger::Level {
                    assert!(now || !level, "it is still ready");
                    assert!(!world.wait(1, NOW).is_empty() || !level, "it still is");
                } else {
                    assert!(world.times_reported(0) > 0);
                }
            });
        frozen(program, 1);
    }
}

/// A wait with an end does end, and not empty once there is something to report.
#[test]
fn waits_with_an_end_report_what_another_producer_has_signalled() {
    for trigger in TRIGGERS {
        let program = program::<Lists>("timed waits", 1, trigger)
            .thread(|world: &World<Lists>| _ = world.counters[0].add(FROZEN))
            .thread(|world| {
                assert!(world.counters[0].add(OTHER));
                world.flag.store(1, SeqCst);
            })
            .thread(move |world| {
                let mut received = 0;
                while received < OTHER {
                    let signalled = world.flag.load(SeqCst) == 1;
                    let reported = world.wait(1, A_WHILE);
                    assert!(!signalled || !reported.is_empty(), "over, though something is ready");
                    received += world.counters[0].read().unwrap_or(0);
                    if trigger == Trigger::Once && !reported.is_empty() {
                        world.poll.modify(&world.counters[0], 0, READABLE, trigger).expect("in it");
                    }
                }
            });
        frozen(program, 1);
    }
}

#[test]
fn an_outer_poll_is_told() {
    let nested = || {
        let (inner, outer) = (World::<Lists>::new(2, Trigger::Level), RawPoll::new());
        outer.register(&inner.poll, 9, READABLE, Trigger::Level).expect("a new source");
        assert_eq!(inner.wait(1, NOW), []);
        (inner, outer)
    };
    let program = Program::new(name::<Lists>("a poll in a poll", Trigger::Level), nested)
        .thread(|(inner, _)| _ = inner.counters[0].add(FROZEN))
        .thread(|(inner, _)| assert!(inner.counters[1].add(OTHER)))
        .thread(|(inner, outer)| {
            while inner.times_reported(1) == 0 {
                assert_eq!(tokens(outer, 1, None), [9]);
                inner.wait(1, NOW);
                inner.counters[0].read();
            }
        });
    frozen(program, 1);
}

/// Of a poll from which others go, too.
#[test]
fn one_that_leaves_the_poll_takes_no_wake_up_along() {
    let program = program::<Lists>("another leaves", 3, Trigger::Edge)
        .thread(|world: &World<Lists>| _ = world.counters[0].add(FROZEN))
        .thread(|world| {
            world.poll.deregister(&world.counters[2]).expect("registered");
            assert!(world.counters[1].add(OTHER));
        })
        .thread(|world| world.receive(Trigger::Edge, 2, &[0, OTHER, 0]));
    frozen(program, 1);
}

#[test]
fn nothing_is_hidden_with_store_buffers() {
    for trigger in TRIGGERS {
        let program = same_source::<Lists>(trigger).store_buffers();
        program.assert_frozen_anywhere(0, &Search::pct(1, 3, 100));
        let program = two_sources::<Lists>(trigger).store_buffers();
        program.assert_frozen_anywhere(0, &Search::random(1, 100));
    }
}

// ---- the inversion ----

fn is_blocked(failure: Box<Failure>) {
    let (FailureKind::Deadlock { waits } | FailureKind::LostWakeUp { waits }) = &failure.kind
    else {
        panic!("{failure}")
    };
    assert!(waits.iter().any(|wait| wait.contains("t1 is frozen")), "{failure}");
    assert!(waits.iter().any(|wait| wait.starts_with("t3")), "{failure}");
}

fn a_frozen_producer_blocks_the_consumer<L: List>() {
    for trigger in TRIGGERS {
        let search = Search::exhaustive().preemptions(1);
        let found = same_source::<L>(trigger).check_frozen_anywhere(0, &search);
        is_blocked(found.expect_err("frozen inside the lock"));
        let found = two_sources::<L>(trigger).check_frozen_anywhere(0, &search);
        is_blocked(found.expect_err("frozen inside the lock"));
    }
}

#[test]
fn under_a_reader_writer_lock_the_consumer_is_blocked() {
    a_frozen_producer_blocks_the_consumer::<RwLockList<Explored>>();
}

#[test]
fn under_a_spinning_lock_the_consumer_is_blocked() {
    a_frozen_producer_blocks_the_consumer::<SpinList<Explored>>();
}
