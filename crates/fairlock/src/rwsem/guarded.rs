//! What guards need of the lock: see [`crate::guarded`].

use super::lock::RawRwSem;
use super::queue_pool::HasQueuePool;
use super::reader_bias::ReaderBias;
#[cfg(feature = "send_guard")]
use crate::guarded::GuardMayChangeThreads;
#[cfg(not(feature = "send_guard"))]
use crate::guarded::GuardStaysOnItsThread;
use crate::guarded::{Exclusive, Guarded, ReadRecursive};
use crate::held::{Identity, Wanted};
use crate::policy::Policy;
use crate::recorded::CountedLock;
use crate::unguarded::{Refused, UnguardedRwLock};

// SAFETY: invariant 1 of `lock.rs`; acquisitions are Acquire, releases Release. A waiter that gives up is off the queue.
// The lock does not know who holds it, so any thread may release it.
unsafe impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> Exclusive for RawRwSem<Pol, P, B> {
    type Platform = P;
    #[cfg(feature = "send_guard")]
    type Residence = GuardMayChangeThreads;
    #[cfg(not(feature = "send_guard"))]
    type Residence = GuardStaysOnItsThread;
    const WANTED: Wanted = Wanted::Write;

    #[inline]
    fn write(&self, deadline: Option<u64>) -> bool {
        RawRwSem::write(self, deadline)
    }
    #[inline]
    fn write_without_deadline(&self) {
        RawRwSem::write_without_deadline(self);
    }
    #[inline]
    fn try_write(&self) -> bool {
        RawRwSem::try_write(self)
    }
    #[inline]
    unsafe fn unlock_write(&self) {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { RawRwSem::unlock_write(self) };
    }
    #[inline]
    unsafe fn unlock_write_fair(&self) {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { RawRwSem::unlock_write_fair(self) };
    }

    fn is_locked(&self) -> bool {
        RawRwSem::is_locked(self)
    }

    fn id(&self) -> *const () {
        self.identity.of(core::ptr::from_ref(self).cast())
    }

    #[inline(always)]
    fn counted(&self) -> Option<&CountedLock> {
        self.identity.counted()
    }

    fn has_writer(&self) -> bool {
        RawRwSem::is_locked_exclusive(self)
    }
}

// SAFETY: as for `Exclusive`; `UPGRADABLE` admits one such holder, which becomes the writer once it is the only holder left.
unsafe impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> Guarded for RawRwSem<Pol, P, B> {
    type Shared = ();

    #[inline]
    fn read(&self, deadline: Option<u64>) -> Option<()> {
        RawRwSem::read(self, deadline).then_some(())
    }
    #[inline]
    fn read_without_deadline(&self) {
        RawRwSem::read_without_deadline(self);
    }
    #[inline]
    fn try_read(&self) -> Option<()> {
        RawRwSem::try_read(self).then_some(())
    }
    #[inline]
    unsafe fn unlock_read(&self, (): ()) {
        // SAFETY: held shared, as the caller promises.
        unsafe { RawRwSem::unlock_read(self) };
    }
    #[inline]
    unsafe fn unlock_read_fair(&self, (): ()) {
        // SAFETY: held shared, as the caller promises.
        unsafe { RawRwSem::unlock_read_fair(self) };
    }

    unsafe fn recover_shared(&self) {}

    unsafe fn downgrade_to_read(&self) {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { RawRwSem::downgrade_to_read(self) };
    }
    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { RawRwSem::downgrade_to_upgradable(self) };
    }

    fn upgradable(&self, deadline: Option<u64>) -> bool {
        RawRwSem::upgradable(self, deadline)
    }
    fn try_upgradable(&self) -> bool {
        RawRwSem::try_upgradable(self)
    }
    unsafe fn unlock_upgradable(&self) {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { RawRwSem::unlock_upgradable(self) };
    }
    unsafe fn unlock_upgradable_fair(&self) {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { RawRwSem::unlock_upgradable_fair(self) };
    }
    unsafe fn downgrade_upgradable(&self) {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { RawRwSem::downgrade_upgradable(self) };
    }
    unsafe fn upgrade(&self, deadline: Option<u64>) -> bool {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { RawRwSem::upgrade(self, deadline) }
    }
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { RawRwSem::try_upgrade(self) }
    }

    fn is_locked_exclusive(&self) -> bool {
        RawRwSem::is_locked_exclusive(self)
    }
}

// SAFETY: a read past waiters needs only that no thread writes, and none does while the thread reads.
unsafe impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> ReadRecursive for RawRwSem<Pol, P, B> {
    fn read_recursive(&self, deadline: Option<u64>) -> Option<()> {
        acquired(UnguardedRwLock::read(self, deadline, true))
    }
    fn try_read_recursive(&self) -> Option<()> {
        acquired(UnguardedRwLock::try_read(self, true))
    }
}

/// A guard cannot say that there are too many readers, so it panics as other reads do.
fn acquired(read: Result<(), Refused>) -> Option<()> {
    match read {
        Ok(()) => Some(()),
        Err(Refused::Busy | Refused::TimedOut) => None,
        Err(Refused::Full) => super::word::too_many_readers(),
    }
}
