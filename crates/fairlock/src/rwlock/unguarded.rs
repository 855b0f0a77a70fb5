//! [`RwLock`](crate::RwLock) without guards: see [`crate::unguarded`].

use core::sync::atomic::Ordering::Relaxed;

use super::bias::{is_biased, number};
use super::{MOST_NESTED, RawRwLock};
use crate::platform::AtomicCell;
use crate::policy::BiasPolicy;
use crate::raw::{RawLock, RawUnguarded, Refused, Wait};
use crate::rwsem::HasQueuePool;
use crate::slots::{Record, with_record};

impl<P: HasQueuePool, B: BiasPolicy> RawRwLock<P, B> {
    /// After [`read_at_once`](Self::read_at_once) has failed.
    #[cold]
    fn read_unguarded_slow(&self, wait: Wait, past_waiters: bool) -> Result<(), Refused> {
        if let Some(nested) = self.read_within_slot() {
            return nested;
        }
        let by_slot = match wait {
            Wait::Not => self.read_by_any_slot(),
            _ => self.read_by_slot_soon(wait.deadline()),
        };
        if by_slot.is_none() {
            self.sem.read_unguarded(wait, past_waiters)?;
            self.counted();
        }
        Ok(())
    }

    /// Reads within a read of this thread by a slot. No writer holds the lock or acquires it before
    /// the first read ends, not even one that waits for just this slot. None if the thread reads by
    /// no slot.
    fn read_within_slot(&self) -> Option<Result<(), Refused>> {
        // Relaxed: if this thread reads by a slot, the number is the one that it saw then
        // (invariant 4).
        let bias = self.bias().load(Relaxed);
        if !is_biased(bias) {
            return None;
        }
        let nest = |own: &Record<P>| own.nest(|tag| number(tag) == number(bias), MOST_NESTED);
        // SAFETY: sets no tag that is 0: it adds a read to a slot with this lock's tag, if there is
        // one.
        let entered = unsafe { with_record(nest) }??;
        Some(if entered { Ok(()) } else { Err(Refused::Full) })
    }

    /// Ends a read by a slot. False if this thread reads by no slot.
    #[inline(always)]
    fn end_slot_read(&self) -> bool {
        // Relaxed: invariant 4, as in `read_within_slot`. If there is such a read, this is the last
        // access to the lock.
        let bias = self.bias().load(Relaxed);
        if !is_biased(bias) {
            return false;
        }
        let end = |own: &Record<P>| own.leave(|tag| number(tag) == number(bias));
        // SAFETY: sets no tag that is 0: it ends a read by a slot, if there is one.
        unsafe { with_record(end) }.unwrap_or(false)
    }
}

// SAFETY: a thread's reads by slots and by the semaphore are interchangeable (invariant 4 in
// `mod.rs`).
unsafe impl<P: HasQueuePool, B: BiasPolicy> RawUnguarded for RawRwLock<P, B> {
    const FREE: Self = Self::NEW;

    #[inline]
    fn read_unguarded(&self, wait: Wait, past_waiters: bool) -> Result<(), Refused> {
        match self.read_at_once() {
            Some(_) => Ok(()),
            None => self.read_unguarded_slow(wait, past_waiters),
        }
    }

    #[inline]
    fn read_at_once(&self) -> bool {
        self.read_unguarded(Wait::Not, false).is_ok()
    }

    #[inline]
    fn write_at_once(&self) -> bool {
        self.write(Wait::Not)
    }

    #[inline]
    unsafe fn unlock_unguarded(&self) {
        if !self.end_slot_read() {
            // SAFETY: held for reading, as the caller promises, and by no slot, so by the semaphore
            // (invariant 4).
            unsafe { self.sem.unlock_unguarded() };
        }
    }

    #[inline]
    unsafe fn try_unlock_unguarded(&self) -> bool {
        // SAFETY: the thread reads, or no thread holds the lock, as the caller promises; if the
        // thread reads by no slot, it reads by the semaphore (invariant 4).
        self.end_slot_read() || unsafe { self.sem.try_unlock_unguarded() }
    }
}
