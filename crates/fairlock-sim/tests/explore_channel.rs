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
