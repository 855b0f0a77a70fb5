//! A bounded channel whose ends are sources: many senders, one receiver.
//!
//! # How it works
//! Messages are in nodes, which are allocated with the channel. A node is free, with a sender,
//! sent, or with the receiver. The free nodes form one stack and the sent ones another, linked by
//! index:
//!
//! ```text
//!   room:      │ version │ top of the free nodes │ CLOSED       │   level of the senders' source
//!   messages:  │         │ top of the sent nodes │ CLOSED LOCAL │   level of the receiver's source
//!                63    32  31                  8                0
//! ```
//!
//! A sender takes a free node, writes its message into it, and pushes it on the sent ones. The
//! receiver takes all sent nodes at once, reverses them into its local FIFO, and receives from
//! there one by one. So the word of each stack says exactly whether there is room, or something to
//! receive, and it is the level that a poll looks at. There are no slots that are filled in order,
//! so a preempted sender keeps at most one node; others send past it, and the receiver does not
//! hear of its message before it can receive it.
//!
//! # Why it is right
//! 1. A node is in one place. The thread that takes it off a stack owns its value and link until it
//!    pushes it on the other stack.
//! 2. A free node has no value, a sent one has.
//! 3. `LOCAL` is set while the receiver's local FIFO is not empty, except in the middle of a
//!    receive.
//! 4. While the receiver exists only it takes sent nodes, and all at once, so a push that finds the
//!    top unchanged links to the top. Senders take free nodes one by one: each push of a free node
//!    has a new version, so a sender that finds the word unchanged has read the link of the top.
//!    (2^32 pushes while one sender is between two instructions would break this.)
//! 5. When the receiver goes away while a sender sends, the sender sees that the receiver is gone
//!    or the receiver sees the message: one of the two drops it.

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

/// The receiver has messages in its local FIFO.
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

// SAFETY: values go from one thread to another, and only the owner of a node uses its value
// (invariant 1).
unsafe impl<T: Send, L: List> Sync for Channel<T, L> {}
// SAFETY: values and sources may move to other threads, and nothing else in it is bound to one.
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
            // If it is no longer free this link is worthless, and the exchange fails (invariant 4).
            let next = self.node(free).next.load(Relaxed);
            match room.compare_exchange_weak(word, with_top(word, next), Acquire, Acquire) {
                Ok(_) => return Ok(free),
                Err(found) => word = found,
            }
        }
    }

    /// Pushes a node of the receiver's on the free ones.
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

    /// Pushes a node with a message on the sent ones.
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

    /// Takes all sent nodes, the oldest first. Without any, the error says whether there may be
    /// more later.
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
            // If the youngest leads to none it is the only one, and none stays with the receiver.
            // The link is valid only if the exchange succeeds.
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

    /// Drops what was sent after the receiver was gone. If a value's drop panics, the drop of the
    /// nodes drops the others.
    #[cold]
    fn discard(&self) {
        let mut link = self.take_sent().unwrap_or(0);
        while link != 0 {
            let node = self.node(link);
            link = node.next.load(Relaxed);
            // SAFETY: this thread took the node, and owns its value (invariant 1).
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
/// As a source it is writable while there is room, and closed when the receiver is gone. All clones
/// are one source: it can be in one poll, and has an edge when there is room again. The drop of the
/// last clone removes it from the poll.
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
    /// The oldest node of the local FIFO.
    local: Link,
}

/// A channel with room for `capacity` messages.
///
/// # Guarantees
/// * The two sides do not wait for each other, and no sender waits for another: each may be
///   preempted anywhere. A preempted sender keeps room for one message from the others, and nothing
///   more.
/// * The receiver is readable exactly while it can receive something. It can receive every message
///   whose `try_send` has returned.
/// * The messages of one sender arrive in their order. So do those of two senders if one `try_send`
///   began after the other had returned.
/// * Only this function allocates.
/// * Messages that nobody receives are dropped once: when the last end of the channel is dropped,
///   or earlier by the receiver's drop or by a sender that finds the receiver gone.
///
/// # Panics
/// If the capacity is zero, as a message needs a node; or more than 2^24 − 1.
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
                // SAFETY: this thread took the node, and owns its value (invariant 1). It had none
                // (invariant 2), so nothing is dropped.
                unsafe { *channel.node(link).value.get() = Some(message) };
                channel.push(link);
                Ok(())
            }
            Err(Refusal::Full) => Err(TrySendError::Full(message)),
            Err(Refusal::Disconnected) => Err(TrySendError::Disconnected(message)),
        }
    }

    /// For how many messages the channel has room in all.
    pub fn capacity(&self) -> usize {
        self.channel.nodes.len()
    }
}

impl<T, L: List> Clone for RawSender<T, L> {
    fn clone(&self) -> Self {
        // Relaxed: this sender keeps the count above zero.
        self.channel.senders.fetch_add(1, Relaxed);
        RawSender { channel: Arc::clone(&self.channel) }
    }
}

impl<T, L: List> Drop for RawSender<T, L> {
    fn drop(&mut self) {
        let channel = &*self.channel;
        // AcqRel: what all senders did happens before the last one closes the channel.
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
        // SAFETY: this thread took the node, and owns its value (invariant 1).
        let message = unsafe { &mut *node.value.get() }.take();
        if is_local && self.local == 0 {
            // Relaxed: clearing it publishes nothing.
            channel.messages.item.level.fetch_and(!LOCAL, Relaxed);
        }
        channel.give_back(link);
        Ok(message.expect("invariant 2: a sent node has a message"))
    }

    /// For how many messages the channel has room in all.
    pub fn capacity(&self) -> usize {
        self.channel.nodes.len()
    }
}

impl<T, L: List> Drop for RawReceiver<T, L> {
    fn drop(&mut self) {
        let channel = &*self.channel;
        channel.messages.unregister();
        // Invariant 5: it closes the channel, then `signal` has a fence, then it looks for
        // messages.
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
