//! Fairlock's polls, over any of their lists.

use std::time::Duration;

use fairlock::ready::{Batch, List, PollError, RawCounter, RawPoll, Readiness};

use super::{Poller, Trigger};
use crate::error::LabError;

/// A [`RawPoll`] over the list `L`.
pub struct UserSpace<L: List>(RawPoll<L>);

/// Counters and polls are registered once, with one poll.
fn registered(result: Result<(), PollError>) -> Result<(), LabError> {
    result.map_err(|error| LabError::io("register a source", std::io::Error::other(error)))
}

impl<L: List> Poller for UserSpace<L> {
    type Counter = RawCounter<L>;
    type Batch = (Batch, Vec<u64>);

    fn new() -> Result<Self, LabError> {
        Ok(UserSpace(RawPoll::new()))
    }

    fn counter() -> Result<RawCounter<L>, LabError> {
        Ok(RawCounter::new(0))
    }

    fn register(
        &self,
        counter: &RawCounter<L>,
        token: u64,
        trigger: Trigger,
    ) -> Result<(), LabError> {
        registered(self.0.register(counter, token, Readiness::READABLE, trigger.into()))
    }

    fn rearm(&self, counter: &RawCounter<L>, token: u64) -> Result<(), LabError> {
        registered(self.0.modify(counter, token, Readiness::READABLE, Trigger::Once.into()))
    }

    fn enclose(&self, inner: &Self) -> Result<(), LabError> {
        // A poll is never closed: it is a source of which there is nothing to report.
        let nothing = Readiness::CLOSED;
        registered(self.0.register(&inner.0, u64::MAX, nothing, Trigger::Level.into()))
    }

    fn batch(most: usize) -> Self::Batch {
        (Batch::with_capacity(most), Vec::with_capacity(most))
    }

    #[inline]
    fn wait(
        &self,
        (batch, tokens): &mut Self::Batch,
        timeout: Duration,
    ) -> Result<usize, LabError> {
        let count = self.0.wait(batch, Some(timeout));
        tokens.clear();
        tokens.extend(batch.iter().map(|ready| ready.token));
        Ok(count)
    }

    #[inline]
    fn token((_, tokens): &Self::Batch, place: usize) -> u64 {
        tokens[place]
    }

    #[inline]
    fn add(counter: &RawCounter<L>) -> Result<(), LabError> {
        // It would take centuries to fill.
        counter.add(1);
        Ok(())
    }

    #[inline]
    fn read(counter: &RawCounter<L>) -> Result<Option<u64>, LabError> {
        Ok(counter.read())
    }
}
