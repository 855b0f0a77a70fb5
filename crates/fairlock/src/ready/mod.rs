//! Waiting for the first of many sources, as epoll does for descriptors, in user space.
//!
//! Many threads signal *sources* (an [`Event`], a [`Counter`]); few threads [`wait`](RawPoll::wait)
//! for those that are ready. Between the two is a list, on which a source is at most once, however
//! often it is signalled.
//!
//! ```text
//!   producers                       list                        consumers, one at a time
//!   level of a source changes  ──▶  stack of sources that  ──▶  FIFO of sources: look at each
//!   then its item is put on         nobody has looked at        one's level, report it if it is
//!   the list, unless it is          since                       ready, keep it if it is to be
//!   there already                                               reported again
//! ```
//!
//! * `item.rs`: what a source is to a list: a state, a level, a link.
//! * [`ReadyList`]: the list to use. A producer that is preempted, at any instruction, delays nobody
//!   but itself.
//! * [`RwLockList`], [`SpinList`]: the lists of Linux's epoll before and after July 2025, to measure
//!   against. A preempted producer holds up everybody.
//! * `poll.rs`: the consumers' side over any of them; [`Poll`] is the one for users. `fifo.rs`: what the
//!   consumers have taken off the list. `request.rs`: whether those who sleep or watch were told.
//! * `event.rs`, `counter.rs`, `timer.rs`, `channel.rs`: sources. `alarms.rs`: what a poll knows about timers.
//! * `outside.rs`: the descriptor by which other event loops wait for a poll.
//!
//! Everything is generic over the list, and by it over the [platform](crate::platform); users name
//! neither.

mod alarms;
mod channel;
mod counter;
mod event;
mod fifo;
mod item;
mod list;
mod lock_free;
mod nesting;
mod outside;
mod poll;
mod request;
mod rwlock_list;
mod source;
mod spin_list;
mod timer;

pub use channel::{RawReceiver, RawSender, Receiver, Sender, channel, raw_channel};
pub use counter::{Counter, RawCounter};
pub use event::{Event, RawEvent};
#[doc(hidden)]
pub use item::Item;
pub use item::Readiness;
pub use list::List;
#[doc(hidden)]
pub use list::{Flaws, Watchers};
pub use lock_free::ReadyList;
#[doc(hidden)]
pub use nesting::{HasNesting, Nesting};
pub use poll::{Batch, Poll, PollError, RawPoll, Ready, Trigger};
pub use rwlock_list::RwLockList;
pub use source::{RawSource, Source};
pub use spin_list::SpinList;
pub use timer::{RawTimer, Timer};
