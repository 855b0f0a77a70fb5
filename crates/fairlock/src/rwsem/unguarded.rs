//! The semaphore without guards: see [`crate::unguarded`].

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::lock::RawRwSem;
use super::queue_pool::HasQueuePool;
use super::reader_bias::ReaderBias;
use super::wait_queue::Kind;
use super::word::*;
use crate::policy::Policy;
use crate::raw::{RawReadWriteLock, RawUnguarded, Refused, Wait};

/// A reader that may enter past waiters but found a writer looks for another way in after this many
/// ns, at the cost of its place in the queue: longer than any phase, so only threads that wait in a
/// cycle reach it. Chosen for that, not measured.
const LOOK_PAST_WAITERS: u64 = 100_000_000;

impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> RawRwSem<Pol, P, B> {
    /// After [`try_read_once`](Self::try_read_once) has failed, for callers without guards.
    ///
    /// One that may enter past waiters and has to wait, as a writer is in, looks again now and
    /// then: readers may have come in past it meanwhile, which wait for what its thread holds.
    #[cold]
    pub(super) fn read_unguarded_slow(
        &self,
        wait: Wait,
        past_waiters: bool,
    ) -> Result<(), Refused> {
        loop {
            match self.try_read_unguarded(past_waiters) {
                Err(Refused::Busy) if wait != Wait::Not => {}
                entered_or_refused => return entered_or_refused,
            }
            let deadline = wait.deadline();
            let look = past_waiters.then(|| P::now().saturating_add(LOOK_PAST_WAITERS));
            let ends = match (look, deadline) {
                (Some(look), Some(deadline)) => Some(look.min(deadline)),
                (look, deadline) => look.or(deadline),
            };
            if self.acquire_slow(Kind::Read, ends) {
                return Ok(());
            }
            if ends == deadline {
                return Err(Refused::TimedOut);
            }
        }
    }

    /// The same without waiting.
    fn try_read_unguarded(&self, past_waiters: bool) -> Result<(), Refused> {
        let mut word = self.word.load(Relaxed);
        loop {
            if readers(word) >= UNGUARDED_READERS {
                return Err(Refused::Full);
            }
            if !past_waiters || !admits_past_waiters(word) {
                break;
            }
            // A woken writer finds the lock taken and waits on: it clears `WRITER_WOKEN` as it
            // queues again and serves the queue if this reader has left by then. Acquire pairs with
            // the Release of `unlock_write`.
            match self.word.compare_exchange_weak(word, plus_reader(word), Acquire, Relaxed) {
                Ok(_) => return Ok(()),
                Err(found) => word = found,
            }
        }
        self.try_enter(Kind::Read).then_some(()).ok_or(Refused::Busy)
    }
}

// SAFETY: all readers are counted in one number.
unsafe impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> RawUnguarded for RawRwSem<Pol, P, B> {
    const FREE: Self = Self::NEW;

    #[inline]
    fn read_unguarded(&self, wait: Wait, past_waiters: bool) -> Result<(), Refused> {
        match self.try_read_once() {
            true => Ok(()),
            false => self.read_unguarded_slow(wait, past_waiters),
        }
    }

    #[inline]
    fn read_at_once(&self) -> bool {
        self.try_read_once()
    }

    #[inline]
    fn write_at_once(&self) -> bool {
        RawRwSem::write_at_once(self)
    }

    #[inline]
    fn end_read_phase(&self) {
        self.end_reading();
    }

    #[inline]
    unsafe fn unlock_unguarded(&self) {
        // SAFETY: as the caller promises.
        unsafe { self.unlock_read((), false) };
    }

    #[inline]
    unsafe fn try_unlock_unguarded(&self) -> bool {
        let word = self.word.load(Relaxed);
        // An upgradable holder is counted, but does not read.
        let has_readers = readers(word) > u64::from(word & UPGRADABLE != 0);
        if has_readers {
            // SAFETY: a thread reads, and then the calling thread does, as the caller promises.
            unsafe { self.unlock_read((), false) };
        }
        has_readers
    }
}
