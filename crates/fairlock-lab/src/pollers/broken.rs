//! A poller that is wrong on purpose.

use std::time::Duration;

use super::{Poller, Trigger};
use crate::error::LabError;

/// Reports what another one does, but never the source with the token 0. A workload that does not fail with it
/// checks nothing.
pub struct Deaf<P>(P);

/// What was heard of a batch.
pub struct Heard<B> {
    batch: B,
    places: Vec<usize>,
}

impl<P: Poller> Poller for Deaf<P> {
    type Counter = P::Counter;
    type Batch = Heard<P::Batch>;

    fn new() -> Result<Self, LabError> {
        P::new().map(Deaf)
    }

    fn counter() -> Result<P::Counter, LabError> {
        P::counter()
    }

    fn register(&self, counter: &P::Counter, token: u64, trigger: Trigger) -> Result<(), LabError> {
        self.0.register(counter, token, trigger)
    }

    fn rearm(&self, counter: &P::Counter, token: u64) -> Result<(), LabError> {
        self.0.rearm(counter, token)
    }

    fn enclose(&self, inner: &Self) -> Result<(), LabError> {
        self.0.enclose(&inner.0)
    }

    fn batch(most: usize) -> Self::Batch {
        Heard { batch: P::batch(most), places: Vec::new() }
    }

    fn wait(&self, heard: &mut Self::Batch, timeout: Duration) -> Result<usize, LabError> {
        let count = self.0.wait(&mut heard.batch, timeout)?;
        heard.places.clear();
        let batch = &heard.batch;
        heard.places.extend((0..count).filter(|&place| P::token(batch, place) != 0));
        Ok(heard.places.len())
    }

    fn token(heard: &Self::Batch, place: usize) -> u64 {
        P::token(&heard.batch, heard.places[place])
    }

    fn add(counter: &P::Counter) -> Result<(), LabError> {
        P::add(counter)
    }

    fn read(counter: &P::Counter) -> Result<Option<u64>, LabError> {
        P::read(counter)
    }
}
