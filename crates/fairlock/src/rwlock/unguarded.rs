//! [`RwLock`](crate::RwLock) without guards: see [`crate::unguarded`].

use core::sync::atomic::Ordering::Relaxed;

use super::bias::{is_biased, number};
use super::{MOST_NESTED, RawRwLock};
use crate::platform::AtomicCell;
use crate::policy::BiasPolicy;
use crate::rwsem::HasQueuePool;
use crate::slots::{Record, with_record};
use crate::unguarded::{Refused, UnguardedRwLock, UnguardedUpgrade};

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
        self.counted();
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
        self.counted();
        Ok(())
    }

    /// Reads within a read of this thread by a slot. No writer holds the lock or acquires it before the
    /// first read ends, not even one that waits for just this slot. None if the thread reads by no slot.
    fn read_within_slot(&self) -> Option<Result<(), Refused>> {
        // Relaxed: if this thread reads by a slot, the number is the one that it saw then (invariant 4).
        let bias = self.bias().load(Relaxed);
        if !is_biased(bias) {
            return None;
        }
        let nest = |own: &Record<P>| own.nest(|tag| number(tag) == number(bias), MOST_NESTED);
        // SAFETY: sets no tag that is 0: it adds a read to a slot with this lock's tag, if there is one.
        let entered = unsafe { with_record(nest) }??;
        Some(if entered { Ok(()) } else { Err(Refused::Full) })
    }

    /// Ends a read by a slot. False if this thread reads by no slot.
    #[inline(always)]
    fn end_slot_read(&self) -> bool {
        // Relaxed: invariant 4, as in `read_within_slot`. If there is such a read, this is the last access
        // to the lock.
        let bias = self.bias().load(Relaxed);
        if !is_biased(bias) {
            return false;
        }
        let end = |own: &Record<P>| own.leave(|tag| number(tag) == number(bias));
        // SAFETY: sets no tag that is 0: it ends a read by a slot, if there is one.
        unsafe { with_record(end) }.unwrap_or(false)
    }
}

// SAFETY: a writer is alone in the semaphore and in the slots (invariants 1 and 2 in `mod.rs`);
// acquisitions are Acquire, releases Release.
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
        if !self.end_slot_read() {
            // SAFETY: held for reading, as the caller promises, and by no slot, so by the semaphore
            // (invariant 4).
            unsafe { self.sem.unlock_read() };
        }
    }

    #[inline]
    unsafe fn try_unlock_read(&self) -> bool {
        // SAFETY: the thread reads, or nobody holds the lock, as the caller promises; if the thread reads
        // by no slot, it reads by the semaphore (invariant 4).
        self.end_slot_read() || unsafe { self.sem.try_unlock_read() }
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

// SAFETY: the semaphore admits one upgradable holder, which becomes the writer once it is alone in the
// semaphore and then in the slots; downgrades are Release.
unsafe impl<P: HasQueuePool, B: BiasPolicy> UnguardedUpgrade for RawRwLock<P, B> {
    fn upgradable(&self, deadline: Option<u64>) -> Result<(), Refused> {
        self.sem.upgradable(deadline).then_some(()).ok_or(Refused::TimedOut)
    }

    fn try_upgradable(&self) -> Result<(), Refused> {
        self.sem.try_upgradable().then_some(()).ok_or(Refused::Busy)
    }

    unsafe fn unlock_upgradable(&self) {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { self.sem.unlock_upgradable() };
    }

    unsafe fn upgrade(&self, deadline: Option<u64>) -> Result<(), Refused> {
        // SAFETY: held upgradable, as the caller promises.
        let upgraded = unsafe { RawRwLock::upgrade(self, deadline) };
        upgraded.then_some(()).ok_or(Refused::TimedOut)
    }

    unsafe fn try_upgrade(&self) -> Result<(), Refused> {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { RawRwLock::try_upgrade(self) }.then_some(()).ok_or(Refused::Busy)
    }

    unsafe fn downgrade_upgradable(&self) {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { self.sem.downgrade_upgradable() };
    }

    unsafe fn downgrade_to_read(&self) {
        // SAFETY: held for writing, as the caller promises.
        unsafe { self.sem.downgrade_to_read() };
    }

    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: held for writing, as the caller promises.
        unsafe { self.sem.downgrade_to_upgradable() };
    }
}
