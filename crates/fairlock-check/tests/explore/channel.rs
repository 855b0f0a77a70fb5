//! The bounded channel in every schedule within stated bounds: each sender's messages in their order,
//! each once; readable exactly while something can be received; and no wait that nobody ends.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{TryRecvError, TrySendError};

use fairlock::ready::{
    Batch, RawPoll, RawReceiver, RawSender, Readiness, ReadyList, Trigger, raw_channel,
};
use fairlock_sim::Explored;
use fairlock_sim::explore::{Program, Search};

type List = ReadyList<Explored>;
type Poll = RawPoll<List>;

/// Counted while it exists.
type Message = (usize, u32, Rc<()>);

/// Each end is one thread's, which takes it.
struct State {
    count: Rc<()>,
    senders: RefCell<Vec<RawSender<Message, List>>>,
    receiver: RefCell<Option<RawReceiver<Message, List>>>,
    received: RefCell<Vec<(usize, u32)>>,
    sent: RefCell<Vec<(usize, u32)>>,
    /// Not dropped, like the ends, beside a thread that stops: that waits for a signal under way.
    poll: Poll,
}

impl State {
    fn new(capacity: usize, senders: usize) -> Self {
        let (sender, receiver) = raw_channel(capacity);
        State {
            count: Rc::new(()),
            senders: RefCell::new(
                (1..senders).map(|_| sender.clone()).chain([sender.clone()]).collect(),
            ),
            receiver: RefCell::new(Some(receiver)),
            received: RefCell::default(),
            sent: RefCell::default(),
            poll: Poll::new(),
        }
    }

    fn sender(&self) -> RawSender<Message, List> {
        self.senders.borrow_mut().pop().expect("one for each sending thread")
    }

    fn receiver(&self) -> RawReceiver<Message, List> {
        self.receiver.take().expect("one thread receives")
    }

    fn try_send(
        &self,
        sender: &RawSender<Message, List>,
        thread: usize,
        number: u32,
    ) -> Result<(), TrySendError<Message>> {
        sender.try_send((thread, number, Rc::clone(&self.count)))?;
        self.sent.borrow_mut().push((thread, number));
        Ok(())
    }

    fn try_recv(&self, receiver: &mut RawReceiver<Message, List>) -> Result<(), TryRecvError> {
        let (thread, number, _) = receiver.try_recv()?;
        let mut received = self.received.borrow_mut();
        let last = received.iter().rev().find(|message| message.0 == thread);
        assert!(last.is_none_or(|last| last.1 < number), "a sender's messages in their order");
        received.push((thread, number));
        Ok(())
    }

    /// Everything that was sent was received once, and nothing else is left.
    fn is_over(&self) {
        let (mut sent, mut received) = (self.sent.borrow_mut(), self.received.borrow_mut());
        sent.sort_unstable();
        received.sort_unstable();
        assert_eq!(*sent, *received);
        assert_eq!(Rc::strong_count(&self.count), 1);
    }
}

fn register(poll: &Poll, receiver: &RawReceiver<Message, List>, trigger: Trigger) {
    poll.register(receiver, 1, Readiness::READABLE, trigger).expect("it is new");
}

/// So many senders try to send so many messages each; one thread receives until all have gone,
/// sleeping in a poll.
fn to_the_end(capacity: usize, senders: usize, messages: u32, trigger: Trigger) -> Program<State> {
    let name = format!("{senders} senders, {messages} messages, room for {capacity}, {trigger:?}");
    let mut program = Program::new(name, move || State::new(capacity, senders));
    for thread in 0..senders {
        program = program.thread(move |state: &State| {
            let sender = state.sender();
            for number in 0..messages {
                // Without room it is lost, and not expected.
                let _ = state.try_send(&sender, thread, number);
            }
        });
    }
    program
        .thread(move |state| {
            let mut receiver = state.receiver();
            let (poll, mut batch) = (Poll::new(), Batch::with_capacity(1));
            register(&poll, &receiver, trigger);
            loop {
                poll.wait(&mut batch, None);
                let mut wait_found_any = false;
                let end = loop {
                    match state.try_recv(&mut receiver) {
                        Ok(()) => wait_found_any = true,
                        Err(end) => break end,
                    }
                };
                if end == TryRecvError::Disconnected {
                    break;
                }
                // An edge may come for a message that was received with the one before.
                assert!(wait_found_any || trigger == Trigger::Edge, "readable without a message");
            }
        })
        .finally(State::is_over)
}

/// Exhaustively with few preemptions, and by chance with more.
fn explore<S>(program: &Program<S>, preemptions: u32, most: u64) {
    program.assert(&Search::exhaustive().preemptions(preemptions).at_most(most));
    program.assert(&Search::pct(1, 4, most / 4));
    program.assert(&Search::random(2, most / 4));
}

#[test]
fn a_receiver_sleeps_until_the_senders_have_gone() {
    for trigger in [Trigger::Level, Trigger::Edge] {
        explore(&to_the_end(1, 1, 2, trigger), 3, 4_000);
        explore(&to_the_end(2, 2, 1, trigger), 2, 4_000);
        explore(&to_the_end(2, 2, 2, trigger), 1, 4_000);
    }
}

#[test]
fn a_sender_sleeps_until_there_is_room() {
    let program = Program::new("room for one", || State::new(1, 1))
        .thread(|state: &State| {
            let sender = state.sender();
            let (poll, mut batch) = (Poll::new(), Batch::with_capacity(1));
            poll.register(&sender, 1, Readiness::WRITABLE, Trigger::Edge).expect("it is new");
            for number in 0..3 {
                while state.try_send(&sender, 0, number).is_err() {
                    poll.wait(&mut batch, None);
                }
            }
        })
        .thread(|state| {
            let mut receiver = state.receiver();
            let (poll, mut batch) = (Poll::new(), Batch::with_capacity(1));
            register(&poll, &receiver, Trigger::Level);
            while state.try_recv(&mut receiver) != Err(TryRecvError::Disconnected) {
                poll.wait(&mut batch, None);
            }
        })
        .finally(|state| {
            assert_eq!(state.received.borrow().len(), 3);
            state.is_over();
        });
    explore(&program, 2, 8_000);
}

/// Where free nodes are taken and given back at once, one of them may come back meanwhile.
#[test]
fn free_nodes_change_hands() {
    let program = Program::new("free nodes", || State::new(2, 2))
        .threads(2, |state: &State| {
            let sender = state.sender();
            let thread = state.senders.borrow().len();
            for number in 0..2 {
                let _ = state.try_send(&sender, thread, number);
            }
        })
        .thread(|state| {
            let mut receiver = state.receiver();
            for _ in 0..3 {
                let _ = state.try_recv(&mut receiver);
            }
            *state.receiver.borrow_mut() = Some(receiver);
        })
        .finally(|state| {
            let mut receiver = state.receiver();
            while state.try_recv(&mut receiver).is_ok() {}
            state.is_over();
        });
    explore(&program, 3, 20_000);
}

#[test]
fn a_message_to_a_receiver_that_goes_is_dropped() {
    let program = Program::new("the receiver goes", || State::new(2, 2))
        .threads(2, |state: &State| {
            let sender = state.sender();
            let _ = state.try_send(&sender, 0, 0);
            state.senders.borrow_mut().push(sender);
        })
        .thread(|state| drop(state.receiver()))
        // Although the senders are still there.
        .finally(|state| assert_eq!(Rc::strong_count(&state.count), 1));
    explore(&program, 3, 20_000);
}

// ---- who stops for good ----

/// The thread that stops is the first; its messages may be lost, and hold one place at most.
fn frozen(program: Program<State>) {
    let report = program.assert_frozen_anywhere(0, &Search::exhaustive().preemptions(1));
    assert!(report.complete && report.frozen > 0, "{report}");
}

/// Receives what a wait has reported, until it has so much of the second sender.
fn receive_from_the_other(state: &State, trigger: Trigger, messages: usize) {
    let mut receiver = state.receiver();
    let (poll, mut batch) = (&state.poll, Batch::with_capacity(1));
    register(poll, &receiver, trigger);
    let of_the_other = || state.received.borrow().iter().filter(|message| message.0 == 1).count();
    while of_the_other() < messages {
        poll.wait(&mut batch, None);
        let mut wait_found_any = false;
        while state.try_recv(&mut receiver).is_ok() {
            wait_found_any = true;
        }
        assert!(wait_found_any || trigger == Trigger::Edge, "readable without a message");
    }
    *state.receiver.borrow_mut() = Some(receiver);
}

#[test]
fn a_sender_that_stops_hides_no_other_message() {
    for trigger in [Trigger::Level, Trigger::Edge] {
        let program = Program::new(format!("a sender stops, {trigger:?}"), || State::new(3, 2))
            .thread(|state: &State| _ = state.try_send(&state.sender(), 0, 0))
            .thread(|state| {
                let sender = state.sender();
                for number in 0..2 {
                    assert!(state.try_send(&sender, 1, number).is_ok(), "there is room for both");
                }
                state.senders.borrow_mut().push(sender);
            })
            .thread(move |state| receive_from_the_other(state, trigger, 2))
            .finally(|state| {
                let mut receiver = state.receiver();
                while state.try_recv(&mut receiver).is_ok() {}
                *state.receiver.borrow_mut() = Some(receiver);
                let (sent, received) = (state.sent.borrow(), state.received.borrow());
                assert!(sent.iter().all(|message| received.contains(message)), "{sent:?}");
            });
        frozen(program);
    }
}

/// Without a push that is under way, a wait that does not sleep says exactly whether something can
/// be received; a message that is not sent yet is not reported.
#[test]
fn beside_a_sender_that_stops_a_receiver_is_ready_if_it_can_receive() {
    for trigger in [Trigger::Level, Trigger::Edge] {
        let program = Program::new(format!("readable, {trigger:?}"), || State::new(2, 2))
            .thread(|state: &State| _ = state.try_send(&state.sender(), 0, 0))
            .thread(move |state| {
                let (sender, mut receiver) = (state.sender(), state.receiver());
                let (poll, mut batch) = (&state.poll, Batch::with_capacity(1));
                register(poll, &receiver, trigger);
                let now = Some(std::time::Duration::ZERO);
                for number in 0..2 {
                    assert!(state.try_send(&sender, 1, number).is_ok(), "one place is the other's");
                    assert_eq!(poll.wait(&mut batch, now), 1, "its sending has returned");
                    while state.try_recv(&mut receiver).is_ok() {}
                    if poll.wait(&mut batch, now) > 0 && trigger == Trigger::Level {
                        assert_eq!(state.try_recv(&mut receiver), Ok(()));
                    }
                }
                state.senders.borrow_mut().push(sender);
                *state.receiver.borrow_mut() = Some(receiver);
            });
        frozen(program);
    }
}

/// It may have all messages with it, as those on the stack are taken at once; but the room for each
/// that it has received is there.
#[test]
fn a_receiver_that_stops_keeps_no_more_room_than_what_it_has_not_received() {
    const ROOM: usize = 2;
    let send = |state: &State, sender: &RawSender<Message, List>| {
        let number = state.sent.borrow().len() as u32;
        state.try_send(sender, 0, number).is_ok()
    };
    let program = Program::new("a receiver stops", || State::new(ROOM, 1))
        .thread(|state: &State| {
            let mut receiver = state.receiver();
            for _ in 0..3 {
                let _ = state.try_recv(&mut receiver);
            }
            *state.receiver.borrow_mut() = Some(receiver);
        })
        .thread(move |state| {
            let sender = state.sender();
            let (poll, mut batch) = (&state.poll, Batch::with_capacity(1));
            poll.register(&sender, 1, Readiness::WRITABLE, Trigger::Level).expect("it is new");
            for _ in 0..2 {
                assert!(send(state, &sender), "there was room for both");
            }
            if poll.wait(&mut batch, Some(std::time::Duration::ZERO)) > 0 {
                assert!(send(state, &sender), "writable without room");
            }
            state.senders.borrow_mut().push(sender);
        })
        .finally(move |state| {
            let sender = state.sender();
            while send(state, &sender) {}
            state.senders.borrow_mut().push(sender);
            let (sent, received) = (state.sent.borrow().len(), state.received.borrow().len());
            let room = ROOM + received;
            // What it was about to return may have been given back.
            assert!(sent == room || sent == room + 1, "{sent} sent, {received} received");
        });
    frozen(program);
}
