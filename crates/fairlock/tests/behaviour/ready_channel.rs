//! What a channel's ends report and receive; that every message is dropped once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{TryRecvError, TrySendError};
use std::thread;
use std::time::Duration;

use fairlock::ready::{
    Batch, List, RawPoll, RawReceiver, RawSender, Readiness, ReadyList, Trigger, channel,
    raw_channel,
};
use fairlock_reference::ready::{RwLockList, SpinList};

const NOW: Option<Duration> = Some(Duration::ZERO);

fn all() -> Readiness {
    Readiness::READABLE | Readiness::WRITABLE
}

fn ready<L: List>(poll: &RawPoll<L>) -> Vec<(u64, Readiness)> {
    let mut batch = Batch::with_capacity(8);
    poll.wait(&mut batch, NOW);
    batch.iter().map(|ready| (ready.token, ready.readiness)).collect()
}

macro_rules! over_each_list {
    ($($test:ident)*) => {
        mod ready_list { $(#[test] fn $test() { super::$test::<super::ReadyList>(); })* }
        mod rwlock_list { $(#[test] fn $test() { super::$test::<super::RwLockList>(); })* }
        mod spin_list { $(#[test] fn $test() { super::$test::<super::SpinList>(); })* }
    };
}

over_each_list! {
    readable_while_there_is_a_message
    writable_while_there_is_room
    each_side_learns_that_the_other_is_gone
    many_senders_and_a_poll
}

fn pair<L: List>(capacity: usize) -> (RawSender<u64, L>, RawReceiver<u64, L>) {
    raw_channel(capacity)
}

fn readable_while_there_is_a_message<L: List>() {
    let (poll, (sender, mut receiver)) = (RawPoll::<L>::new(), pair(4));
    poll.register(&receiver, 1, all(), Trigger::Level).unwrap();
    assert_eq!(ready(&poll), []);
    for count in [1, 2, 4] {
        for message in 0..count {
            sender.try_send(message).unwrap();
        }
        for message in 0..count {
            assert_eq!(ready(&poll), [(1, Readiness::READABLE)]);
            assert_eq!(receiver.try_recv(), Ok(message));
        }
        assert_eq!(ready(&poll), []);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    }
}

fn writable_while_there_is_room<L: List>() {
    let (poll, (sender, mut receiver)) = (RawPoll::<L>::new(), pair(2));
    let other = sender.clone();
    poll.register(&other, 1, all(), Trigger::Edge).unwrap();
    assert_eq!(ready(&poll), [(1, Readiness::WRITABLE)]);
    sender.try_send(1).unwrap();
    other.try_send(2).unwrap();
    assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
    assert_eq!(ready(&poll), []);
    assert_eq!(receiver.try_recv(), Ok(1));
    assert_eq!(ready(&poll), [(1, Readiness::WRITABLE)]);
    assert_eq!(receiver.try_recv(), Ok(2));
    assert_eq!(ready(&poll), []);
    poll.modify(&sender, 2, all(), Trigger::Level).unwrap();
    assert_eq!(ready(&poll), [(2, Readiness::WRITABLE)]);
    drop(other);
    assert_eq!(ready(&poll), [(2, Readiness::WRITABLE)]);
}

fn each_side_learns_that_the_other_is_gone<L: List>() {
    let (poll, (sender, receiver)) = (RawPoll::<L>::new(), pair(2));
    poll.register(&sender, 1, Readiness::NONE, Trigger::Level).unwrap();
    assert_eq!(ready(&poll), []);
    drop(receiver);
    assert_eq!(ready(&poll), [(1, Readiness::CLOSED)]);
    assert_eq!(sender.try_send(5), Err(TrySendError::Disconnected(5)));
    drop(sender);
    assert_eq!(ready(&poll), []);

    let (sender, mut receiver) = pair(2);
    poll.register(&receiver, 2, Readiness::READABLE, Trigger::Edge).unwrap();
    let other = sender.clone();
    other.try_send(7).unwrap();
    drop(sender);
    assert_eq!(ready(&poll), [(2, Readiness::READABLE)]);
    drop(other);
    assert_eq!(ready(&poll), [(2, Readiness::READABLE | Readiness::CLOSED)]);
    assert_eq!(receiver.try_recv(), Ok(7));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
}

fn many_senders_and_a_poll<L: List>() {
    const SENDERS: u64 = 4;
    const MESSAGES: u64 = 3_000;
    let (poll, (sender, mut receiver)) = (RawPoll::<L>::new(), pair(5));
    poll.register(&receiver, 1, Readiness::READABLE, Trigger::Edge).unwrap();
    thread::scope(|scope| {
        for number in 0..SENDERS {
            let sender = sender.clone();
            scope.spawn(move || {
                for message in 0..MESSAGES {
                    while sender.try_send(number * MESSAGES + message).is_err() {
                        thread::yield_now();
                    }
                }
            });
        }
        drop(sender);
        let mut next = [0; SENDERS as usize];
        let mut batch = Batch::with_capacity(1);
        'waits: loop {
            assert_eq!(poll.wait(&mut batch, None), 1);
            loop {
                match receiver.try_recv() {
                    Ok(message) => {
                        let next = &mut next[(message / MESSAGES) as usize];
                        assert_eq!(message % MESSAGES, *next, "a sender's messages in their order");
                        *next += 1;
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => break 'waits,
                }
            }
        }
        assert_eq!(next, [MESSAGES; SENDERS as usize]);
    });
}

#[test]
fn two_threads_wait_for_each_others_end() {
    const MESSAGES: u32 = 3_000;
    let (sender, mut receiver) = channel(1);
    thread::scope(|scope| {
        scope.spawn(move || {
            let (poll, mut batch) = (fairlock::ready::Poll::new(), Batch::with_capacity(1));
            poll.register(&sender, 1, Readiness::WRITABLE, Trigger::Edge).unwrap();
            for message in 0..MESSAGES {
                while let Err(error) = sender.try_send(message) {
                    assert_eq!(error, TrySendError::Full(message));
                    poll.wait(&mut batch, None);
                }
            }
        });
        let (poll, mut batch) = (fairlock::ready::Poll::new(), Batch::with_capacity(1));
        poll.register(&receiver, 1, Readiness::READABLE, Trigger::Level).unwrap();
        for message in 0..MESSAGES {
            poll.wait(&mut batch, None);
            assert_eq!(receiver.try_recv(), Ok(message));
        }
    });
}

#[test]
#[should_panic(expected = "room for one message at least")]
fn a_channel_without_room_is_refused() {
    channel::<()>(0);
}

/// Counts its drops; may panic then.
struct Counted<'a> {
    drops: &'a AtomicUsize,
    panics: bool,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Relaxed);
        if self.panics {
            panic!("the message's drop");
        }
    }
}

#[test]
fn messages_that_nobody_receives_are_dropped_once() {
    let drops = AtomicUsize::new(0);
    let message = || Counted { drops: &drops, panics: false };
    for receiver_first in [true, false] {
        drops.store(0, Relaxed);
        let (sender, mut receiver) = channel(8);
        for _ in 0..5 {
            assert!(sender.try_send(message()).is_ok());
        }
        // Some are in the local list then.
        drop(receiver.try_recv());
        assert!(sender.try_send(message()).is_ok());
        assert_eq!(drops.load(Relaxed), 1);
        if receiver_first {
            drop(receiver);
            assert_eq!(drops.load(Relaxed), 6);
            drop(sender);
        } else {
            drop(sender);
            assert_eq!(drops.load(Relaxed), 1);
            drop(receiver);
        }
        assert_eq!(drops.load(Relaxed), 6);
    }
}

#[test]
fn a_message_whose_drop_panics_leaves_the_others_to_be_dropped_once() {
    let drops = AtomicUsize::new(0);
    for bad in 0..4 {
        drops.store(0, Relaxed);
        let (sender, receiver) = channel(4);
        for number in 0..4 {
            assert!(sender.try_send(Counted { drops: &drops, panics: number == bad }).is_ok());
        }
        assert!(catch_unwind(AssertUnwindSafe(|| drop(receiver))).is_err());
        drop(sender);
        assert_eq!(drops.load(Relaxed), 4);
    }
}

#[test]
fn a_receiver_that_goes_meanwhile_leaves_nothing_behind() {
    for _ in 0..300 {
        let (sent, drops) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (sender, mut receiver) = channel(3);
        thread::scope(|scope| {
            let (sent, drops) = (&sent, &drops);
            let senders = [sender.clone(), sender.clone()].map(|sender| {
                scope.spawn(move || {
                    loop {
                        sent.fetch_add(1, Relaxed);
                        let message = Counted { drops, panics: false };
                        if let Err(TrySendError::Disconnected(_)) = sender.try_send(message) {
                            break;
                        }
                    }
                    sender
                })
            });
            drop(receiver.try_recv());
            drop(receiver);
            let senders = senders.map(|sender| sender.join().unwrap());
            // Although there are still senders.
            assert_eq!(sent.load(Relaxed), drops.load(Relaxed));
            drop(senders);
        });
        drop(sender);
        assert_eq!(sent.load(Relaxed), drops.load(Relaxed));
    }
}
