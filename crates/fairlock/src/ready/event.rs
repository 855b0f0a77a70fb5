//! A source whose readiness others set.

use core::sync::atomic::Ordering::{AcqRel, Acquire};

use super::item::Readiness;
use super::list::List;
use super::lock_free::ReadyList;
use super::source::{RawSource, Source};
use crate::platform::{AtomicCell, AtomicInt};

/// A set of [`Readiness`] that any thread sets and clears: for anything of your own that becomes
/// ready.
///
/// # Guarantees
/// * Setting never waits for another thread: a producer may be preempted anywhere, and neither a
///   [`Poll`](super::Poll) nor another producer notices.
/// * What a thread did before it set a bit happens before a wait reports it.
///
/// # Example
/// ```
/// use fairlock::ready::{Batch, Event, Poll, Readiness, Trigger};
///
/// let (poll, event) = (Poll::new(), Event::new());
/// poll.register(&event, 1, Readiness::READABLE, Trigger::Level)?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| event.set(Readiness::READABLE));
///     let mut batch = Batch::with_capacity(8);
///     poll.wait(&mut batch, None);
///     assert_eq!(batch.iter().map(|ready| ready.token).collect::<Vec<_>>(), [1]);
/// });
/// event.clear(Readiness::READABLE);
/// # Ok::<(), fairlock::ready::PollError>(())
/// ```
pub type Event = RawEvent<ReadyList>;

/// An [`Event`] for polls over any list.
pub struct RawEvent<L: List> {
    source: Box<RawSource<L>>,
}

fn readiness(level: u64) -> Readiness {
    Readiness::from_bits(level as u8)
}

impl<L: List> RawEvent<L> {
    /// Ready for nothing.
    pub fn new() -> Self {
        RawEvent { source: Box::new(RawSource::new(0, readiness)) }
    }

    /// Adds to what it is ready for, and tells the poll: an edge, even if it was ready already.
    #[inline]
    pub fn set(&self, ready: Readiness) {
        // Release pairs with the Acquire in `Item::readiness`.
        self.source.item.level.fetch_or(ready.bits().into(), AcqRel);
        self.source.signal();
    }

    /// Removes from what it is ready for; returns what it was ready for before.
    #[inline]
    pub fn clear(&self, ready: Readiness) -> Readiness {
        let cleared = !u64::from(ready.bits());
        readiness(self.source.item.level.fetch_and(cleared, AcqRel))
    }

    /// What it is ready for.
    #[inline]
    pub fn get(&self) -> Readiness {
        readiness(self.source.item.level.load(Acquire))
    }
}

impl<L: List> Default for RawEvent<L> {
    fn default() -> Self {
        RawEvent::new()
    }
}

impl<L: List> Source<L> for RawEvent<L> {
    fn source(&self) -> &RawSource<L> {
        &self.source
    }
}
