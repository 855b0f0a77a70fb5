//! What a poll reports, and when, over each of the lists.

use std::time::Duration;

use fairlock::ready::{
    Batch, List, PollError, RawCounter, RawEvent, RawPoll, Readiness, ReadyList, Trigger,
};
use fairlock_reference::ready::{RwLockList, SpinList};

const READABLE: Readiness = Readiness::READABLE;
const NOW: Option<Duration> = Some(Duration::ZERO);

fn tokens<L: List>(poll: &RawPoll<L>, most: usize) -> Vec<u64> {
    let mut batch = Batch::with_capacity(most);
    poll.wait(&mut batch, NOW);
    batch.iter().map(|ready| ready.token).collect()
}

macro_rules! over_each_list {
    ($($test:ident)*) => {
        mod ready_list { $(#[test] fn $test() { super::$test::<super::ReadyList>(); })* }
        mod rwlock_list { $(#[test] fn $test() { super::$test::<super::RwLockList>(); })* }
        mod spin_list { $(#[test] fn $test() { super::$test::<super::SpinList>(); })* }
    };
}

over_each_list! {
    level_is_reported_until_it_is_over
    an_edge_is_reported_once
    once_is_reported_until_modified_once
    sources_come_in_the_order_in_which_they_became_ready
    each_of_many_is_served_within_as_many_waits
    what_is_ready_when_it_is_registered_is_reported
    a_source_leaves_while_it_is_queued
    a_source_is_dropped_by_another_thread
    a_source_is_in_one_poll_at_a_time
    a_source_outlives_its_poll
    a_poll_is_a_source
    a_wait_ends_at_a_signal
    only_what_was_asked_for_is_reported
}

fn level_is_reported_until_it_is_over<L: List>() {
    let (poll, counter) = (RawPoll::<L>::new(), RawCounter::new(0));
    poll.register(&counter, 5, READABLE, Trigger::Level).unwrap();
    assert_eq!(tokens(&poll, 4), []);
    counter.add(1);
    assert_eq!(tokens(&poll, 4), [5]);
    assert_eq!(tokens(&poll, 4), [5]);
    counter.read();
    assert_eq!(tokens(&poll, 4), []);
    counter.add(1);
    assert_eq!(tokens(&poll, 4), [5]);
}

fn an_edge_is_reported_once<L: List>() {
    let (poll, counter) = (RawPoll::<L>::new(), RawCounter::new(0));
    poll.register(&counter, 5, READABLE, Trigger::Edge).unwrap();
    counter.add(1);
    counter.add(1);
    assert_eq!(tokens(&poll, 4), [5]);
    assert_eq!(tokens(&poll, 4), []);
    counter.add(1);
    assert_eq!(tokens(&poll, 4), [5]);
}

fn once_is_reported_until_modified_once<L: List>() {
    let (poll, event) = (RawPoll::<L>::new(), RawEvent::new());
    poll.register(&event, 5, READABLE, Trigger::Once).unwrap();
    event.set(READABLE);
    assert_eq!(tokens(&poll, 4), [5]);
    event.set(READABLE);
    assert_eq!(tokens(&poll, 4), []);
    poll.modify(&event, 6, READABLE, Trigger::Once).unwrap();
    assert_eq!(tokens(&poll, 4), [6]);
    event.set(READABLE);
    assert_eq!(tokens(&poll, 4), []);
}

fn sources_come_in_the_order_in_which_they_became_ready<L: List>() {
    let poll = RawPoll::<L>::new();
    let counters: Vec<_> = (0..5).map(|_| RawCounter::new(0)).collect();
    for (token, counter) in counters.iter().enumerate() {
        poll.register(counter, token as u64, READABLE, Trigger::Edge).unwrap();
    }
    for token in [3, 1, 4, 0, 2] {
        counters[token].add(1);
    }
    assert_eq!(tokens(&poll, 3), [3, 1, 4]);
    counters[3].add(1);
    assert_eq!(tokens(&poll, 3), [0, 2, 3]);
}

fn each_of_many_is_served_within_as_many_waits<L: List>() {
    let poll = RawPoll::<L>::new();
    let counters: Vec<_> = (0..7).map(|_| RawCounter::new(0)).collect();
    for (token, counter) in counters.iter().enumerate() {
        poll.register(counter, token as u64, READABLE, Trigger::Level).unwrap();
        counter.add(1);
    }
    for _ in 0..3 {
        let mut served: Vec<u64> = (0..7).flat_map(|_| tokens(&poll, 1)).collect();
        served.sort_unstable();
        assert_eq!(served, [0, 1, 2, 3, 4, 5, 6]);
    }
}

fn what_is_ready_when_it_is_registered_is_reported<L: List>() {
    let (poll, counter) = (RawPoll::<L>::new(), RawCounter::new(1));
    poll.register(&counter, 5, READABLE, Trigger::Edge).unwrap();
    assert_eq!(tokens(&poll, 4), [5]);
    assert_eq!(tokens(&poll, 4), []);
}

fn a_source_leaves_while_it_is_queued<L: List>() {
    let poll = RawPoll::<L>::new();
    let counters: Vec<_> = (0..3).map(|_| RawCounter::new(0)).collect();
    for (token, counter) in counters.iter().enumerate() {
        poll.register(counter, token as u64, READABLE, Trigger::Level).unwrap();
        counter.add(1);
    }
    poll.deregister(&counters[1]).unwrap();
    counters[1].add(1);
    assert_eq!(tokens(&poll, 4), [0, 2]);
    poll.deregister(&counters[0]).unwrap();
    assert_eq!(tokens(&poll, 4), [2]);
    poll.register(&counters[1], 7, READABLE, Trigger::Level).unwrap();
    assert_eq!(tokens(&poll, 4), [2, 7]);
}

fn a_source_is_dropped_by_another_thread<L: List>() {
    let (poll, counter) = (RawPoll::<L>::new(), RawCounter::new(0));
    poll.register(&counter, 5, READABLE, Trigger::Level).unwrap();
    counter.add(1);
    std::thread::spawn(move || drop(counter)).join().unwrap();
    assert_eq!(tokens(&poll, 4), []);
}

fn a_source_is_in_one_poll_at_a_time<L: List>() {
    let (one, other) = (RawPoll::<L>::new(), RawPoll::<L>::new());
    let counter = RawCounter::new(0);
    one.register(&counter, 1, READABLE, Trigger::Level).unwrap();
    let error = other.register(&counter, 1, READABLE, Trigger::Level).unwrap_err();
    assert_eq!(error, PollError::Registered);
    assert_eq!(other.deregister(&counter), Err(PollError::NotRegistered));
    one.deregister(&counter).unwrap();
    other.register(&counter, 1, READABLE, Trigger::Level).unwrap();
    assert_eq!(other.register(&other, 1, READABLE, Trigger::Level), Err(PollError::Cycle));
}

fn a_source_outlives_its_poll<L: List>() {
    let (poll, counter) = (RawPoll::<L>::new(), RawCounter::new(0));
    poll.register(&counter, 1, READABLE, Trigger::Level).unwrap();
    counter.add(1);
    drop(poll);
    counter.add(1);
    let poll = RawPoll::<L>::new();
    poll.register(&counter, 2, READABLE, Trigger::Level).unwrap();
    assert_eq!(tokens(&poll, 4), [2]);
    assert_eq!(counter.read(), Some(2));
}

fn a_poll_is_a_source<L: List>() {
    let (inner, outer) = (RawPoll::<L>::new(), RawPoll::<L>::new());
    let counter = RawCounter::new(0);
    inner.register(&counter, 1, READABLE, Trigger::Level).unwrap();
    outer.register(&inner, 2, READABLE, Trigger::Level).unwrap();
    assert_eq!(tokens(&inner, 4), []);
    assert_eq!(tokens(&outer, 4), []);
    counter.add(1);
    assert_eq!(tokens(&outer, 4), [2]);
    assert_eq!(tokens(&inner, 4), [1]);
    counter.read();
    assert_eq!(tokens(&inner, 4), []);
    assert_eq!(tokens(&outer, 4), []);
}

fn a_wait_ends_at_a_signal<L: List>() {
    let (poll, counter) = (RawPoll::<L>::new(), RawCounter::new(0));
    poll.register(&counter, 1, READABLE, Trigger::Edge).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| poll.wait(&mut Batch::with_capacity(1), None));
        counter.add(1);
        assert_eq!(waiter.join().unwrap(), 1);
    });
}

fn only_what_was_asked_for_is_reported<L: List>() {
    let (poll, event) = (RawPoll::<L>::new(), RawEvent::new());
    poll.register(&event, 1, READABLE, Trigger::Level).unwrap();
    event.set(Readiness::WRITABLE);
    assert_eq!(tokens(&poll, 4), []);
    event.set(Readiness::CLOSED);
    assert_eq!(tokens(&poll, 4), [1]);
}
