//! The pollers under test, how a source's counter is stamped, and how it is known that nothing was lost.
//!
//! A *poller* is what threads wait on, with counters as its sources: the kernel's epoll with an eventfd each,
//! by system calls, or one of Fairlock's lists in user space. They are in [`registry`], and stand where other
//! workloads have a lock. Roles: a thread that adds to counters is a `writer`, one that waits is a `reader`. An operation of
//! a reader is a *delivery*: a source was reported, its counter read, and there was something in it. Its
//! `wait` and `latency` are the time from an addition to the read that brought it, of one addition in
//! [`STAMP_EVERY`].
//!
//! What is checked: the sum of what was read is the sum of what was written, and a wait that begins after all
//! additions have returned reports something as long as anything is left.
//!
//! The lists that wait in a spin lock are those of a kernel, where nobody is preempted in one. Real threads
//! are. On a simulated machine they are not: see [`Unpreempted`](fairlock_sim::timed::Unpreempted).

mod broken;
mod kernel;
mod registry;
mod user_space;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use crossbeam_utils::CachePadded;
use fairlock::ready;
use serde::{Deserialize, Serialize};

use crate::error::{LabError, Violation};

pub use registry::{HasPollers, PollerDescriptor, UsePoller, check, find, names, registry};

/// One addition in so many is stamped, unless the last stamp is still there: a look at the clock, 12 ns
/// where this was measured, then costs an addition a fifth of a nanosecond.
pub const STAMP_EVERY: u32 = 64;

/// How long a wait lasts that nothing ends. Only a lost event lets it pass.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// When a source is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// As long as there is something to read
    #[serde(alias = "0")]
    Level,
    /// Once for what was added since
    #[serde(alias = "1")]
    Edge,
    /// Once, until it is modified, which its reader does after each read
    #[serde(alias = "2")]
    Once,
}

impl Trigger {
    /// In words, for titles.
    pub fn words(self) -> &'static str {
        match self {
            Trigger::Level => "level-triggered",
            Trigger::Edge => "edge-triggered",
            Trigger::Once => "oneshot",
        }
    }
}

impl From<Trigger> for ready::Trigger {
    fn from(trigger: Trigger) -> ready::Trigger {
        match trigger {
            Trigger::Level => ready::Trigger::Level,
            Trigger::Edge => ready::Trigger::Edge,
            Trigger::Once => ready::Trigger::Once,
        }
    }
}

/// What threads wait on. All functions may be called by many threads.
pub trait Poller: Sized + Send + Sync {
    /// A source: a count that is added to and taken as a whole.
    type Counter: Send + Sync;
    /// Room for what one wait reports.
    type Batch: Send;

    /// One without sources.
    ///
    /// # Errors
    /// Those of the system, as below.
    fn new() -> Result<Self, LabError>;

    /// A counter at zero.
    ///
    /// # Errors
    /// As above.
    fn counter() -> Result<Self::Counter, LabError>;

    /// Waits for the counter from now on, and reports it as `token`.
    ///
    /// # Errors
    /// As above.
    fn register(
        &self,
        counter: &Self::Counter,
        token: u64,
        trigger: Trigger,
    ) -> Result<(), LabError>;

    /// Reports a oneshot counter once more.
    ///
    /// # Errors
    /// As above.
    fn rearm(&self, counter: &Self::Counter, token: u64) -> Result<(), LabError>;

    /// Makes a poller a source of this one. Nothing is ever reported of it here.
    ///
    /// # Errors
    /// As above.
    fn enclose(&self, inner: &Self) -> Result<(), LabError>;

    /// Room for so many.
    fn batch(most: usize) -> Self::Batch;

    /// Waits until a counter is ready or the time is over; answers how many are.
    ///
    /// # Errors
    /// As above.
    fn wait(&self, batch: &mut Self::Batch, timeout: Duration) -> Result<usize, LabError>;

    /// What was reported in this place.
    fn token(batch: &Self::Batch, place: usize) -> u64;

    /// Adds one.
    ///
    /// # Errors
    /// As above.
    fn add(counter: &Self::Counter) -> Result<(), LabError>;

    /// Takes the count; none if it is zero.
    ///
    /// # Errors
    /// As above.
    fn read(counter: &Self::Counter) -> Result<Option<u64>, LabError>;
}

/// When an addition was made, until a reader has seen it. One thread stamps.
#[derive(Debug, Default)]
pub(crate) struct Stamp {
    /// Which addition it was, counted from 1.
    number: AtomicU64,
    /// ns, and 1 more, so that 0 is "none".
    at: AtomicU64,
}

impl Stamp {
    /// Stamps the addition of this number, which is about to be made, unless an earlier stamp is there.
    pub(crate) fn leave(&self, number: u64, now: impl FnOnce() -> u64) {
        if self.at.load(Ordering::Relaxed) == 0 {
            self.number.store(number, Ordering::Relaxed);
            // Release pairs with the Acquire in `take`.
            self.at.store(now() + 1, Ordering::Release);
        }
    }

    /// How long ago the stamped addition was made, if it is among the first `taken` ones.
    fn take(&self, taken: u64, now: impl FnOnce() -> u64) -> Option<u64> {
        let at = self.at.load(Ordering::Acquire);
        if at == 0 || self.number.load(Ordering::Relaxed) > taken {
            return None;
        }
        // Another reader may have been faster, and what is there now the stamp of a later addition.
        self.at.compare_exchange(at, 0, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        Some(now().saturating_sub(at - 1))
    }
}

/// A counter with what the lab keeps beside it.
pub(crate) struct Source<C> {
    pub(crate) counter: C,
    pub(crate) stamp: CachePadded<Stamp>,
    /// What was read of it. Changed by those who read.
    pub(crate) taken: CachePadded<AtomicU64>,
}

impl<C> Source<C> {
    fn new(counter: C) -> Source<C> {
        Source { counter, stamp: CachePadded::default(), taken: CachePadded::default() }
    }

    /// A reader has read so much; answers the latency of a stamped addition among that.
    pub(crate) fn took(&self, count: u64, now: impl FnOnce() -> u64) -> Option<u64> {
        let taken = self.taken.fetch_add(count, Ordering::Relaxed) + count;
        self.stamp.take(taken, now)
    }
}

/// Counters under the tokens 0, 1, ….
pub(crate) fn sources<P: Poller>(
    count: u32,
    poller: &P,
    trigger: Trigger,
    first_token: u64,
) -> Result<Vec<Source<P::Counter>>, LabError> {
    let mut sources = Vec::with_capacity(count as usize);
    for token in first_token..first_token + u64::from(count) {
        let counter = P::counter()?;
        poller.register(&counter, token, trigger)?;
        sources.push(Source::new(counter));
    }
    Ok(sources)
}

/// What all writers have done, for those who have to know that they read it all.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Additions, of writers that have said so: each before its last one.
    total: AtomicU64,
    /// Writers that have said so.
    told: AtomicU64,
    /// Writers whose last addition has returned.
    ended: AtomicU64,
}

/// One writer at work, until this is dropped: also by a panic, so that nobody waits for it for ever.
pub(crate) struct Writing<'a> {
    written: &'a Written,
    has_told: bool,
}

impl Writing<'_> {
    /// It is about to make the last of so many additions.
    pub(crate) fn tell(&mut self, additions: u64) {
        self.has_told = true;
        self.written.total.fetch_add(additions, Ordering::Relaxed);
        // Release pairs with the Acquire in `are_all_read`.
        self.written.told.fetch_add(1, Ordering::Release);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.has_told {
            // How many those of a panicked one were makes no difference any more.
            self.tell(0);
        }
        // Release pairs with the Acquire in `have_ended`.
        self.written.ended.fetch_add(1, Ordering::Release);
    }
}

impl Written {
    /// A writer begins.
    pub(crate) fn begin(&self) -> Writing<'_> {
        Writing { written: self, has_told: false }
    }

    pub(crate) fn have_ended(&self, writers: u32) -> bool {
        self.ended.load(Ordering::Acquire) == u64::from(writers)
    }

    pub(crate) fn are_all_read(&self, writers: u32, read: u64) -> bool {
        self.told.load(Ordering::Acquire) == u64::from(writers) && self.total() == read
    }

    fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    pub(crate) fn lost(&self, read: u64) -> Violation {
        Violation::LostEvents { written: self.total(), read }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_counts_for_the_read_that_brings_its_addition() {
        let stamp = Stamp::default();
        assert_eq!(stamp.take(5, || 9), None);
        stamp.leave(3, || 100);
        stamp.leave(4, || 110);
        // The read that overtook the stamped addition is not its delivery.
        assert_eq!(stamp.take(2, || 120), None);
        assert_eq!(stamp.take(3, || 130), Some(30));
        assert_eq!(stamp.take(4, || 140), None);
        stamp.leave(5, || 0);
        assert_eq!(stamp.take(7, || 20), Some(20));
    }
}
