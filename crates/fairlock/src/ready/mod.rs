//! Waiting for the first of many sources, as epoll does for descriptors, in user space.
//!
//! Many threads signal *sources* (an [`Event`], a [`Counter`]); few threads [`wait`](RawPoll::wait)
//! for those that are ready. Between them is a list, on which a source is at most once, however
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
//! * `item.rs`: the item of a source: a state, a level, a link.
//! * [`ReadyList`]: the list. A producer that is preempted, at any instruction, delays only itself.
//! * `poll.rs`: [`Poll`], as its users see it. `consumers.rs`: what the threads that wait share.
//!   `fifo.rs`: the items that they have taken off the list. `request.rs`: whether sleepers and
//!   watchers were told. `batch.rs`: what a wait reports. `nesting.rs`: no poll is in itself.
//! * `event.rs`, `counter.rs`, `timer.rs`, `channel.rs`: sources. `alarms.rs`: the moments of a
//!   poll's timers.
//! * `outside/`: the descriptor by which another event loop waits for a poll, on Linux.
//!
//! Everything is generic over the list, and by it over the [platform](crate::platform); users name
//! neither.

mod alarms;
mod batch;
mod channel;
mod consumers;
mod counter;
mod event;
mod fifo;
pub(crate) mod item;
pub(crate) mod list;
mod lock_free;
mod nesting;
mod outside;
mod poll;
mod request;
mod source;
mod timer;

pub use batch::{Batch, Ready, Trigger};
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
pub use poll::{Poll, PollError, RawPoll};
pub use source::{RawSource, Source};
pub use timer::{RawTimer, Timer};
