//! [`RwLock`](crate::RwLock) without guards: see [`crate::unguarded`].

use core::sync::atomic::Ordering::Relaxed;

use super::bias::{is_biased, number};
use super::{MOST_NESTED, RawRwLock};
use crate::platform::AtomicCell;
use crate::policy::BiasPolicy;
use crate::rwsem::HasQueuePool;
use crate::slots::{Record, with_record};
use crate::unguarded::{Refused, UnguardedRwLock};

impl<P: HasQueuePool, B: BiasPolicy> RawRwLock<P, B> {
    /// After [`read_at_once`](Self::read_at_once) has failed.
    #[cold]
    fn read_unguarded(&self, deadline: Option<u64>, past_waiters: bool) -> Result<(), Refused> {
        if let Some(nested) = self.read_within_slot() {
            return nested;
        }
        if self.read_by_slot_soon(deadline).is_some() {
            return Ok(());
        }
        if !self.sem.try_read_once() {
            self.sem.read_unguarded(deadline, past_waiters)?;
        }
        self.count_read(self.bias().load(Relaxed));
        Ok(())
    }

    /// The same without waiting.
    #[cold]
    fn try_read_unguarded(&self, past_waiters: bool) -> Result<(), Refused> {
        if let Some(nested) = self.read_within_slot() {
            return nested;
        }
        if self.read_by_any_slot().is_some() {
            return Ok(());
        }
        if !self.sem.try_read_once() {
            self.sem.try_read_unguarded(past_waiters)?;
        }
        self.count_read(self.bias().load(Relaxed));
        Ok(())
    }

    /// By a slot by which this thread reads already: no writer holds the lock or gets it before that read
    /// ends, also not one that waits for just this slot. None if there is no such slot.
    fn read_within_slot(&self) -> Option<Result<(), Refused>> {
        // Relaxed: invariant 4; what this thread itself has seen.
        let bias = self.bias().load(Relaxed);
        if !is_biased(bias) {
            return None;
        }
        let nest = |own: &Record<P>| own.nest(|tag| number(tag) == number(bias), MOST_NESTED);
        // SAFETY: adds a read to a slot's, if there is one.
        let entered = unsafe { with_record(nest) }??;
        Some(if entered { Ok(()) } else { Err(Refused::Full) })
    }

    /// False if this thread is in by no slot.
    #[inline(always)]
    fn leave_slot(&self) -> bool {
        // As in `read_within_slot`. The last look at the lock.
        let bias = self.bias().load(Relaxed);
        if !is_biased(bias) {
            return false;
        }
        let leave = |own: &Record<P>| own.leave(|tag| number(tag) == number(bias));
        // SAFETY: ends a read, if there is one.
        unsafe { with_record(leave) }.unwrap_or(false)
    }
}

// SAFETY: as for its guards (`mod.rs`).
unsafe impl<P: HasQueuePool, B: BiasPolicy> UnguardedRwLock for RawRwLock<P, B> {
    const FREE: Self = Self::NEW;

    #[inline]
    fn read(&self, deadline: Option<u64>, past_waiters: bool) -> Result<(), Refused> {
        match self.read_at_once() {
            Some(_) => Ok(()),
            None => self.read_unguarded(deadline, past_waiters),
        }
    }

    #[inline]
    fn try_read(&self, past_waiters: bool) -> Result<(), Refused> {
        match self.read_at_once() {
            Some(_) => Ok(()),
            None => self.try_read_unguarded(past_waiters),
        }
    }

    #[inline]
    fn write(&self, deadline: Option<u64>) -> Result<(), Refused> {
        match RawRwLock::write(self, deadline) {
            true => Ok(()),
            false => Err(Refused::TimedOut),
        }
    }

    #[inline]
    fn try_write(&self) -> Result<(), Refused> {
        match RawRwLock::try_write(self) {
            true => Ok(()),
            false => Err(Refused::Busy),
        }
    }

    #[inline]
    unsafe fn unlock_read(&self) {
        if !self.leave_slot() {
            // SAFETY: the caller holds the lock for reading, and invariant 4: not by a slot.
            unsafe { self.sem.unlock_read() };
        }
    }

    #[inline]
    unsafe fn try_unlock_read(&self) -> bool {
        // SAFETY: the thread reads, or nobody does, as the caller promises; if not by a slot, then by the
        // semaphore.
        self.leave_slot() || unsafe { self.sem.try_unlock_read() }
    }

    #[inline]
    unsafe fn unlock_write(&self) {
        // SAFETY: held for writing, as the caller promises.
        unsafe { self.sem.unlock_write() };
    }

    fn has_writer(&self) -> bool {
        self.sem.has_writer()
    }

    fn is_locked(&self) -> bool {
        self.sem.is_locked() || self.has_reader_in_slot()
    }
}
