//! A bounded channel whose ends are sources: many senders, one receiver.
//!
//! Messages are in nodes that are made with the channel. A node is free, or a sender's, or sent, or the
//! receiver's. Both the free and the sent ones are stacks, by their index:
//!
//! ```text
//!   room:      │ version │ top of the free nodes │ CLOSED       │   level of the senders' source
//!   messages:  │         │ top of the sent nodes │ CLOSED LOCAL │   level of the receiver's source
//!                63    32  31                  8                0
//! ```
//!
//! A sender takes a free node, writes its message into it, and puts it on the sent ones. The receiver
//! takes all sent ones at once, reverses them, and gives them out one by one: its local FIFO. So the
//! word of each stack says exactly whether there is room, or something to receive, and is the level
//! that a poll looks at. There are no slots that are filled in order, so a sender that is preempted
//! anywhere has at most one node with it; others send past it, and the receiver does not hear of its
//! message before it can be had.
//!
//! Invariants
//! 1. A node is in one place. Who takes it off a stack owns its value and link, until he puts it on the
//!    other one.
//! 2. A free node has no value, a sent one has.
//! 3. `LOCAL` is set while the receiver's local FIFO is not empty and it is not about to take from it.
//! 4. Only the receiver takes sent nodes while it is there, and all at once, so a push that finds the
//!    top unchanged links to what is the top. Senders take free nodes one by one: each push of a free
//!    node has a new version, so a taker that finds the word unchanged has read the link of the top.
//!    (2^32 pushes while one sender is between two instructions would deceive it.)
//! 5. When the receiver is gone, a sender that has sent sees it, or the receiver sees the message:
//!    one of both drops it.

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, TrySendError};

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::item::Readiness;
use super::list::List;
use super::lock_free::ReadyList;
use super::source::{RawSource, Source};
use crate::platform::{AtomicCell, AtomicInt, Platform};

/// The receiver has messages that are not on the stack any more.
const LOCAL: u64 = 1;
/// The other side is gone.
const CLOSED: u64 = 2;
const TOP: u64 = 1 << 8;
const TOP_MASK: u64 = VERSION - TOP;
const VERSION: u64 = 1 << 32;
const MOST: usize = (TOP_MASK / TOP) as usize;

/// The index of a node, plus one; zero for none.
type Link = u32;

fn top(word: u64) -> Link {
    ((word & TOP_MASK) / TOP) as Link
}

fn with_top(word: u64, link: Link) -> u64 {
    (word & !TOP_MASK) | (u64::from(link) * TOP)
}

fn is_closed(word: u64) -> bool {
    word & CLOSED != 0
}

fn room_readiness(word: u64) -> Readiness {
    if is_closed(word) {
        Readiness::CLOSED
    } else if top(word) != 0 {
        Readiness::WRITABLE
    } else {
        Readiness::NONE
    }
}

fn message_readiness(word: u64) -> Readiness {
    let has_some = top(word) != 0 || word & LOCAL != 0;
    let readable = if has_some { Readiness::READABLE } else { Readiness::NONE };
    readable | if is_closed(word) { Readiness::CLOSED } else { Readiness::NONE }
}

struct Node<T, P: Platform> {
    value: UnsafeCell<Option<T>>,
    next: P::AtomicU32,
}

/// What both sides share.
struct Channel<T, L: List> {
    nodes: Box<[Node<T, L::Platform>]>,
    room: RawSource<L>,
    messages: RawSource<L>,
    senders: <L::Platform as Platform>::AtomicU64,
}

// SAFETY: values go from one thread to another, and are touched only by the owner of their node
// (invariant 1).
unsafe impl<T: Send, L: List> Sync for Channel<T, L> {}
// SAFETY: as above.
unsafe impl<T: Send, L: List> Send for Channel<T, L> {}

impl<T, L: List> Channel<T, L> {
    fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a channel needs room for one message at least");
        assert!(capacity <= MOST, "a channel has room for {MOST} messages at most, not {capacity}");
        // Each free node leads to the one after it, the last one to none.
        let next = |index: usize| if index + 1 < capacity { index as Link + 2 } else { 0 };
        Channel {
            nodes: (0..capacity)
                .map(|index| Node {
                    value: UnsafeCell::new(None),
                    next: AtomicCell::new(next(index)),
                })
                .collect(),
            room: RawSource::new(with_top(0, 1), room_readiness),
            messages: RawSource::new(0, message_readiness),
            senders: AtomicCell::new(1),
        }
    }

    fn node(&self, link: Link) -> &Node<T, L::Platform> {
        &self.nodes[link as usize - 1]
    }

    /// Takes a free node.
    fn take_free(&self) -> Result<Link, Refusal> {
        let room = &self.room.item.level;
        // Acquire pairs with the Release in `give_back`, here and below.
        let mut word = room.load(Acquire);
        loop {
            if is_closed(word) {
                return Err(Refusal::Disconnected);
            }
            let free = top(word);
            if free == 0 {
                return Err(Refusal::Full);
            }
            // If it is not free any more, this is anything, and the exchange fails (invariant 4).
            let next = self.node(free).next.load(Relaxed);
            match room.compare_exchange_weak(word, with_top(word, next), Acquire, Acquire) {
                Ok(_) => return Ok(free),
                Err(found) => word = found,
            }
        }
    }

    /// Puts a node of the receiver's on the free ones.
    fn give_back(&self, link: Link) {
        let room = &self.room.item.level;
        let mut word = room.load(Relaxed);
        loop {
            self.node(link).next.store(top(word), Relaxed);
            let freed = with_top(word, link).wrapping_add(VERSION);
            // Release pairs with the Acquire in `take_free`.
            match room.compare_exchange_weak(word, freed, Release, Relaxed) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        if top(word) == 0 {
            self.room.signal();
        }
    }

    /// Puts a node with a message on the sent ones.
    fn push(&self, link: Link) {
        let messages = &self.messages.item.level;
        let mut word = messages.load(Relaxed);
        loop {
            self.node(link).next.store(top(word), Relaxed);
            // Release pairs with the Acquire in `take_sent`.
            match messages.compare_exchange_weak(word, with_top(word, link), Release, Relaxed) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        self.messages.signal();
        // Relaxed: there is a full fence in `signal`, and one in `Receiver::drop`.
        if is_closed(self.room.item.level.load(Relaxed)) {
            self.discard();
        }
    }

    /// Takes all sent nodes, the oldest first. With none the error says whether there will be any.
    fn take_sent(&self) -> Result<Link, TryRecvError> {
        let messages = &self.messages.item.level;
        // Acquire pairs with the Release in `push`, of all senders, since there are only
        // read-modify-writes in between; here and below, as the link of the youngest is read first.
        let mut word = messages.load(Acquire);
        loop {
            let youngest = top(word);
            if youngest == 0 {
                let closed = is_closed(word);
                return Err(if closed { TryRecvError::Disconnected } else { TryRecvError::Empty });
            }
            // It is the only one if it leads to none: then none stays with the receiver. Only that the
            // exchange succeeds makes the link true.
            let is_one = self.node(youngest).next.load(Relaxed) == 0;
            let taken = with_top(word, 0) | if is_one { 0 } else { LOCAL };
            match messages.compare_exchange_weak(word, taken, Acquire, Acquire) {
                Ok(_) => return Ok(self.reverse(youngest)),
                Err(found) => word = found,
            }
        }
    }

    fn reverse(&self, youngest: Link) -> Link {
        let (mut oldest, mut link) = (0, youngest);
        while link != 0 {
            let next = self.node(link).next.load(Relaxed);
            self.node(link).next.store(oldest, Relaxed);
            (oldest, link) = (link, next);
        }
        oldest
    }

    /// Drops what was sent: the receiver is gone. A value whose drop panics leaves the others to the
    /// drop of the nodes.
    #[cold]
    fn discard(&self) {
        let mut link = self.take_sent().unwrap_or(0);
        while link != 0 {
            let node = self.node(link);
            link = node.next.load(Relaxed);
            // SAFETY: taken (invariant 1).
            drop(unsafe { &mut *node.value.get() }.take());
        }
    }
}

/// Why there is no free node.
enum Refusal {
    Full,
    Disconnected,
}

/// The end of a channel that sends; clone it for each thread that does.
///
/// As a source it is writable while there is room, and closed when the receiver is gone. All clones are
/// one source: it can be in one poll, and an edge is that there is room again. It leaves the poll when
/// the last one is dropped.
pub type Sender<T> = RawSender<T, ReadyList>;

/// The end of a channel that receives.
///
/// As a source it is readable while there is a message, and closed when all senders are gone; then
/// there may still be messages.
pub type Receiver<T> = RawReceiver<T, ReadyList>;

/// A [`Sender`] for polls over any list.
pub struct RawSender<T, L: List> {
    channel: Arc<Channel<T, L>>,
}

/// A [`Receiver`] for polls over any list.
pub struct RawReceiver<T, L: List> {
    channel: Arc<Channel<T, L>>,
    /// The oldest message that is on the stack no more.
    local: Link,
}

/// A channel with room for so many messages.
///
/// # Guarantees
/// * Neither side waits for the other, or a sender for another: each may be preempted anywhere. A sender
///   that is preempted has room for one message with it, and nothing more.
/// * The receiver is readable exactly while it can receive something: every message whose sending has
///   returned, and none that is not there yet.
/// * Messages of one sender come in their order, and so do those of two if one was sent when the other's
///   sending had returned.
/// * No allocation but here.
/// * Messages that nobody receives are dropped once, at the latest by the last who has to do with the
///   channel; when the receiver is gone, also by senders that did not know it yet.
///
/// # Panics
/// If the capacity is zero, as a message needs a place to be in; or more than 2^24 − 1.
///
/// # Example
/// ```
/// use fairlock::ready::{Batch, Poll, Readiness, Trigger, channel};
/// use std::sync::mpsc::{TryRecvError, TrySendError};
///
/// let poll = Poll::new();
/// let (sender, mut receiver) = channel(2);
/// poll.register(&receiver, 3, Readiness::READABLE, Trigger::Level)?;
/// assert_eq!(sender.try_send("a"), Ok(()));
/// assert_eq!(sender.try_send("b"), Ok(()));
/// assert_eq!(sender.try_send("c"), Err(TrySendError::Full("c")));
/// let mut batch = Batch::with_capacity(8);
/// assert_eq!(poll.wait(&mut batch, None), 1);
/// assert_eq!(receiver.try_recv(), Ok("a"));
/// drop(sender);
/// assert_eq!(receiver.try_recv(), Ok("b"));
/// assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
/// # Ok::<(), fairlock::ready::PollError>(())
/// ```
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    raw_channel(capacity)
}

/// A [`channel`] for polls over any list.
///
/// # Panics
/// As there.
pub fn raw_channel<T, L: List>(capacity: usize) -> (RawSender<T, L>, RawReceiver<T, L>) {
    let channel = Arc::new(Channel::new(capacity));
    (RawSender { channel: Arc::clone(&channel) }, RawReceiver { channel, local: 0 })
}

impl<T, L: List> RawSender<T, L> {
    /// Sends, and tells the poll: an edge.
    ///
    /// # Errors
    /// The message comes back if there is no room, or the receiver is gone.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let channel = &*self.channel;
        match channel.take_free() {
            Ok(link) => {
                // SAFETY: taken (invariant 1). There was none (invariant 2), so nothing is dropped.
                unsafe { *channel.node(link).value.get() = Some(message) };
                channel.push(link);
                Ok(())
            }
            Err(Refusal::Full) => Err(TrySendError::Full(message)),
            Err(Refusal::Disconnected) => Err(TrySendError::Disconnected(message)),
        }
    }

    /// What it has room for in all.
    pub fn capacity(&self) -> usize {
        self.channel.nodes.len()
    }
}

impl<T, L: List> Clone for RawSender<T, L> {
    fn clone(&self) -> Self {
        // Relaxed: this one is there meanwhile.
        self.channel.senders.fetch_add(1, Relaxed);
        RawSender { channel: Arc::clone(&self.channel) }
    }
}

impl<T, L: List> Drop for RawSender<T, L> {
    fn drop(&mut self) {
        let channel = &*self.channel;
        // AcqRel: what all senders did comes before the last one closes it.
        if channel.senders.fetch_sub(1, AcqRel) == 1 {
            channel.room.unregister();
            channel.messages.item.level.fetch_or(CLOSED, AcqRel);
            channel.messages.signal();
        }
    }
}

impl<T, L: List> RawReceiver<T, L> {
    /// Receives the oldest message.
    ///
    /// # Errors
    /// If there is none, and whether there is still a sender.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        let channel = &*self.channel;
        let is_local = self.local != 0;
        let link = if is_local { self.local } else { channel.take_sent()? };
        let node = channel.node(link);
        self.local = node.next.load(Relaxed);
        // SAFETY: taken (invariant 1).
        let message = unsafe { &mut *node.value.get() }.take();
        if is_local && self.local == 0 {
            // Relaxed: it only says that there is less.
            channel.messages.item.level.fetch_and(!LOCAL, Relaxed);
        }
        channel.give_back(link);
        Ok(message.expect("invariant 2: a sent node has a message"))
    }

    /// What it has room for in all.
    pub fn capacity(&self) -> usize {
        self.channel.nodes.len()
    }
}

impl<T, L: List> Drop for RawReceiver<T, L> {
    fn drop(&mut self) {
        let channel = &*self.channel;
        channel.messages.unregister();
        // Invariant 5: closed first, then a fence in `signal`, looked then.
        channel.room.item.level.fetch_or(CLOSED, AcqRel);
        channel.room.signal();
        while let Ok(message) = self.try_recv() {
            drop(message);
        }
    }
}

impl<T, L: List> Source<L> for RawSender<T, L> {
    fn source(&self) -> &RawSource<L> {
        &self.channel.room
    }
}

impl<T, L: List> Source<L> for RawReceiver<T, L> {
    fn source(&self) -> &RawSource<L> {
        &self.channel.messages
    }
}

impl<T, L: List> fmt::Debug for RawSender<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

impl<T, L: List> fmt::Debug for RawReceiver<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}
