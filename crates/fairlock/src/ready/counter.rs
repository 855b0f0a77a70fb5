//! A source that counts: eventfd without descriptor and system calls.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::item::Readiness;
use super::list::List;
use super::lock_free::ReadyList;
use super::source::{RawSource, Source};
use crate::platform::AtomicCell;

/// A count that any thread adds to, and that a read takes as a whole: what eventfd is, in user
/// space.
///
/// Readable while it is not zero, writable while one can be added.
///
/// # Guarantees
/// * Adding never waits for another thread: a producer may be preempted anywhere, and neither a
///   [`Poll`](super::Poll) nor another producer notices.
/// * While the counter is on the poll's list already, adding takes one atomic operation, on the
///   counter's own cache line.
/// * What a thread did before it added happens before a read returns the sum.
///
/// # Example
/// ```
/// use fairlock::ready::{Batch, Counter, Poll, Readiness, Trigger};
///
/// let (poll, requests) = (Poll::new(), Counter::new(0));
/// poll.register(&requests, 1, Readiness::READABLE, Trigger::Edge)?;
/// requests.add(2);
/// requests.add(3);
/// let mut batch = Batch::with_capacity(8);
/// assert_eq!(poll.wait(&mut batch, None), 1);
/// assert_eq!(requests.read(), Some(5));
/// assert_eq!(requests.read(), None);
/// # Ok::<(), fairlock::ready::PollError>(())
/// ```
pub type Counter = RawCounter<ReadyList>;

/// A [`Counter`] for polls over any list.
pub struct RawCounter<L: List> {
    source: Box<RawSource<L>>,
}

fn readiness(level: u64) -> Readiness {
    let readable = if level > 0 { Readiness::READABLE } else { Readiness::NONE };
    readable | if level < u64::MAX { Readiness::WRITABLE } else { Readiness::NONE }
}

impl<L: List> RawCounter<L> {
    /// A counter at `count`.
    pub fn new(count: u64) -> Self {
        RawCounter { source: Box::new(RawSource::new(count, readiness)) }
    }

    /// Adds, and tells the poll: an edge. If the sum would overflow, adds nothing and returns
    /// false.
    #[inline]
    pub fn add(&self, count: u64) -> bool {
        let level = &self.source.item.level;
        let mut old = level.load(Relaxed);
        loop {
            let Some(new) = old.checked_add(count) else { return false };
            // Release pairs with the Acquire in `Item::readiness` and `read`.
            match level.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(found) => old = found,
            }
        }
        self.source.signal();
        true
    }

    /// Takes the count; `None` if it is zero.
    #[inline]
    pub fn read(&self) -> Option<u64> {
        let level = &self.source.item.level;
        if level.load(Relaxed) == 0 {
            return None;
        }
        // Acquire pairs with the Release in `add`.
        let count = level.swap(0, AcqRel);
        if count == u64::MAX {
            // There is room again.
            self.source.signal();
        }
        (count > 0).then_some(count)
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.source.item.level.load(Acquire)
    }
}

impl<L: List> Source<L> for RawCounter<L> {
    fn source(&self) -> &RawSource<L> {
        &self.source
    }
}
