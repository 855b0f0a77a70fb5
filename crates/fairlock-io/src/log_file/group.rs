//! Group commit: what many threads submit while one write is under way goes into the next.
//!
//! One batch is open. A thread that waits for its batch leads if nobody does: it takes the open batch,
//! writes it without holding the lock, and settles it. Others wait for that.
//!
//! Invariants:
//!
//! 1. At most one thread leads, so batches are written one at a time, in order.
//! 2. A batch is settled once, after the call that wrote it has returned, and all before it are settled.
//! 3. If one fails, so does all that was submitted since, and the next batch takes its place: whatever is
//!    acknowledged has no gap before it.
//! 4. While something is submitted and waited for, somebody leads.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What is gathered and written at once.
pub(crate) trait Gather {
    fn is_empty(&self) -> bool;
    /// Empties it, to be what follows `previous`.
    fn begin_after(&mut self, previous: &Self);
    /// Empties it, to take the place of one that could not be written.
    fn begin_instead_of(&mut self, failed: &Self);
}

/// Says which batch something is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

pub(crate) struct Group<B, E> {
    state: Mutex<State<B, E>>,
    settled: Condvar,
}

struct State<B, E> {
    open: B,
    /// None while it is being written.
    other: Option<B>,
    /// Of the open batch.
    number: u64,
    /// All batches below are written, or have failed.
    settled: u64,
    failures: Vec<Failures<E>>,
}

/// Batches that failed one after the other, and why the last of them did.
struct Failures<E> {
    first: u64,
    end: u64,
    error: E,
}

impl<B: Gather, E: Clone> Group<B, E> {
    /// `open` and `other` take turns.
    pub(crate) fn new(open: B, other: B) -> Self {
        let state = State { open, other: Some(other), number: 0, settled: 0, failures: Vec::new() };
        Group { state: Mutex::new(state), settled: Condvar::new() }
    }

    /// Adds to the open batch. If it is full, `add` says so with none, and this waits for the next, or
    /// writes this one.
    pub(crate) fn submit<R>(
        &self,
        mut add: impl FnMut(&mut B) -> Option<R>,
        write: impl Fn(&mut B) -> Result<(), E>,
    ) -> (R, Ticket) {
        let mut state = self.lock();
        loop {
            if let Some(added) = add(&mut state.open) {
                return (added, Ticket(state.number));
            }
            state = self.lead_or_wait(state, &write);
        }
    }

    /// Until the batch is written, or has failed.
    pub(crate) fn wait(
        &self,
        ticket: Ticket,
        write: impl Fn(&mut B) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = self.lock();
        while ticket.0 >= state.settled {
            state = self.lead_or_wait(state, &write);
        }
        state.outcome(ticket)
    }

    /// Until all is written that was submitted before.
    pub(crate) fn flush(&self, write: impl Fn(&mut B) -> Result<(), E>) -> Result<(), E> {
        let state = self.lock();
        let last =
            if state.open.is_empty() { state.number.checked_sub(1) } else { Some(state.number) };
        drop(state);
        last.map_or(Ok(()), |last| self.wait(Ticket(last), write))
    }

    fn lead_or_wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<B, E>>,
        write: &impl Fn(&mut B) -> Result<(), E>,
    ) -> MutexGuard<'a, State<B, E>> {
        let Some(mut next) = state.other.take() else {
            return self.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        next.begin_after(&state.open);
        let mut batch = std::mem::replace(&mut state.open, next);
        let number = state.number;
        state.number += 1;
        drop(state);
        let written = write(&mut batch);
        let mut state = self.lock();
        state.settle(number, &batch, written);
        state.other = Some(batch);
        self.settled.notify_all();
        state
    }

    fn lock(&self) -> MutexGuard<'_, State<B, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Gather, E: Clone> State<B, E> {
    fn settle(&mut self, number: u64, batch: &B, written: Result<(), E>) {
        let Err(error) = written else {
            self.settled = number + 1;
            return;
        };
        if !self.open.is_empty() {
            self.number += 1;
        }
        self.open.begin_instead_of(batch);
        self.settled = self.number;
        match self.failures.last_mut() {
            Some(last) if last.end == number => {
                last.end = self.settled;
                last.error = error;
            }
            _ => self.failures.push(Failures { first: number, end: self.settled, error }),
        }
    }

    fn outcome(&self, ticket: Ticket) -> Result<(), E> {
        let failed = self.failures.iter().find(|it| (it.first..it.end).contains(&ticket.0));
        failed.map_or(Ok(()), |failures| Err(failures.error.clone()))
    }
}
