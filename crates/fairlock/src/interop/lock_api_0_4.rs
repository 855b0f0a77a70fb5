//! The traits of lock_api 0.4, for [`RawMutex`], [`RawRwLock`] and [`RawRwSem`]: for crates that have not moved to 0.5,
//! and for compilers older than it needs.
//!
//! Its guards remember nothing, so each unlock finds out what the thread holds (`unguarded.rs`), which makes a read of
//! [`RawRwLock`] a little slower; and a lock may be used either by this version or by guards that remember, never both.
//! The checks for deadlocks see nothing of what is acquired here. There are no fair unlocks of upgradable holds.

use std::time::{Duration, Instant};

use lock_api_04 as lock_api;

use crate::guarded::{Exclusive, Guarded, Limit};
use crate::mutex::RawMutex;
use crate::platform::Platform;
use crate::policy::{BiasPolicy, Policy};
use crate::rwlock::RawRwLock;
use crate::rwsem::{HasQueuePool, QueueStorage, RawRwSem};
use crate::unguarded::{Refused, UnguardedRwLock};

/// As guards panic.
fn acquired(result: Result<(), Refused>) -> bool {
    match result {
        Ok(()) => true,
        Err(Refused::Busy | Refused::TimedOut) => false,
        Err(Refused::Full) => {
            panic!("too many readers hold this lock at once: are guards being leaked?")
        }
    }
}

// SAFETY: `Exclusive` promises that there is one owner at a time.
unsafe impl<P: Platform> lock_api::RawMutex for RawMutex<P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = Self::NEW;
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        self.write_without_deadline();
    }
    #[inline]
    fn try_lock(&self) -> bool {
        self.try_write()
    }
    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the lock is held, as the caller promises.
        unsafe { self.unlock_write() };
    }
    fn is_locked(&self) -> bool {
        Exclusive::is_locked(self)
    }
}

// SAFETY: `Exclusive` promises of a fair unlock, too, that there is one owner at a time.
unsafe impl<P: Platform> lock_api::RawMutexFair for RawMutex<P> {
    #[inline]
    unsafe fn unlock_fair(&self) {
        // SAFETY: the lock is held, as the caller promises.
        unsafe { self.unlock_write_fair() };
    }
}

// SAFETY: `Exclusive` promises that an acquisition that fails leaves nothing held and nobody queued.
unsafe impl<P: Platform> lock_api::RawMutexTimed for RawMutex<P> {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        Exclusive::write(self, Limit::For(timeout).deadline::<P>())
    }
    fn try_lock_until(&self, instant: Instant) -> bool {
        Exclusive::write(self, Limit::Until(instant).deadline::<P>())
    }
}

macro_rules! reader_writer {
    ([$($generics:tt)*] $lock:ty, $residence:ty) => {
        // SAFETY: `UnguardedRwLock` promises that a writer holds the lock alone.
        unsafe impl<$($generics)*> lock_api::RawRwLock for $lock {
            #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
            const INIT: Self = Self::NEW;
            type GuardMarker = $residence;

            #[inline]
            fn lock_shared(&self) {
                acquired(UnguardedRwLock::read(self, None, false));
            }
            #[inline]
            fn try_lock_shared(&self) -> bool {
                acquired(UnguardedRwLock::try_read(self, false))
            }
            #[inline]
            unsafe fn unlock_shared(&self) {
                // SAFETY: held shared, as the caller promises.
                unsafe { UnguardedRwLock::unlock_read(self) };
            }
            #[inline]
            fn lock_exclusive(&self) {
                self.write_without_deadline();
            }
            #[inline]
            fn try_lock_exclusive(&self) -> bool {
                acquired(UnguardedRwLock::try_write(self))
            }
            #[inline]
            unsafe fn unlock_exclusive(&self) {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { UnguardedRwLock::unlock_write(self) };
            }
            fn is_locked(&self) -> bool {
                UnguardedRwLock::is_locked(self)
            }
            fn is_locked_exclusive(&self) -> bool {
                Guarded::is_locked_exclusive(self)
            }
        }

        // SAFETY: a fair unlock only releases what the caller holds. Readers are not handed over: the next to be served
        // gets the lock with the last of them in any case.
        unsafe impl<$($generics)*> lock_api::RawRwLockFair for $lock {
            #[inline]
            unsafe fn unlock_shared_fair(&self) {
                // SAFETY: held shared, as the caller promises.
                unsafe { UnguardedRwLock::unlock_read(self) };
            }
            #[inline]
            unsafe fn unlock_exclusive_fair(&self) {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { self.unlock_write_fair() };
            }
        }

        // SAFETY: `Guarded` promises that a downgrade is one atomic step. The reader holds the semaphore's word, which is
        // what an unlock without a guard releases if the thread reads by no slot.
        unsafe impl<$($generics)*> lock_api::RawRwLockDowngrade for $lock {
            unsafe fn downgrade(&self) {
                // SAFETY: held exclusively, as the caller promises.
                let _ = unsafe { self.downgrade_to_read() };
            }
        }

        // SAFETY: `UnguardedRwLock` promises that an acquisition that fails leaves nothing held.
        unsafe impl<$($generics)*> lock_api::RawRwLockTimed for $lock {
            type Duration = Duration;
            type Instant = Instant;

            fn try_lock_shared_for(&self, timeout: Duration) -> bool {
                acquired(UnguardedRwLock::read(self, Limit::For(timeout).deadline::<P>(), false))
            }
            fn try_lock_shared_until(&self, instant: Instant) -> bool {
                acquired(UnguardedRwLock::read(self, Limit::Until(instant).deadline::<P>(), false))
            }
            fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
                acquired(UnguardedRwLock::write(self, Limit::For(timeout).deadline::<P>()))
            }
            fn try_lock_exclusive_until(&self, instant: Instant) -> bool {
                acquired(UnguardedRwLock::write(self, Limit::Until(instant).deadline::<P>()))
            }
        }

        // SAFETY: a read within a read of the same thread succeeds at once.
        unsafe impl<$($generics)*> lock_api::RawRwLockRecursive for $lock {
            fn lock_shared_recursive(&self) {
                acquired(UnguardedRwLock::read(self, None, true));
            }
            fn try_lock_shared_recursive(&self) -> bool {
                acquired(UnguardedRwLock::try_read(self, true))
            }
        }

        // SAFETY: as above.
        unsafe impl<$($generics)*> lock_api::RawRwLockRecursiveTimed for $lock {
            fn try_lock_shared_recursive_for(&self, timeout: Duration) -> bool {
                acquired(UnguardedRwLock::read(self, Limit::For(timeout).deadline::<P>(), true))
            }
            fn try_lock_shared_recursive_until(&self, instant: Instant) -> bool {
                acquired(UnguardedRwLock::read(self, Limit::Until(instant).deadline::<P>(), true))
            }
        }

        // SAFETY: `Guarded` promises that there is at most one upgradable holder, beside plain readers only.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgrade for $lock {
            fn lock_upgradable(&self) {
                let acquired = self.upgradable(None);
                assert!(acquired, "without a deadline a wait ends with the lock");
            }
            fn try_lock_upgradable(&self) -> bool {
                self.try_upgradable()
            }
            unsafe fn unlock_upgradable(&self) {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { Guarded::unlock_upgradable(self) };
            }
            unsafe fn upgrade(&self) {
                // SAFETY: held upgradable, as the caller promises.
                let upgraded = unsafe { Guarded::upgrade(self, None) };
                assert!(upgraded, "without a deadline an upgrade ends with the lock");
            }
            unsafe fn try_upgrade(&self) -> bool {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { Guarded::try_upgrade(self) }
            }
        }

        // SAFETY: `Guarded` promises that each downgrade is one atomic step.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgradeDowngrade for $lock {
            unsafe fn downgrade_upgradable(&self) {
                // SAFETY: held upgradable, as the caller promises.
                let _ = unsafe { Guarded::downgrade_upgradable(self) };
            }
            unsafe fn downgrade_to_upgradable(&self) {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { Guarded::downgrade_to_upgradable(self) };
            }
        }

        // SAFETY: `Guarded` promises that the lock is still held upgradable after an upgrade that failed.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgradeTimed for $lock {
            fn try_lock_upgradable_for(&self, timeout: Duration) -> bool {
                self.upgradable(Limit::For(timeout).deadline::<P>())
            }
            fn try_lock_upgradable_until(&self, instant: Instant) -> bool {
                self.upgradable(Limit::Until(instant).deadline::<P>())
            }
            unsafe fn try_upgrade_for(&self, timeout: Duration) -> bool {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { Guarded::upgrade(self, Limit::For(timeout).deadline::<P>()) }
            }
            unsafe fn try_upgrade_until(&self, instant: Instant) -> bool {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { Guarded::upgrade(self, Limit::Until(instant).deadline::<P>()) }
            }
        }
    };
}

reader_writer!([P: HasQueuePool, B: BiasPolicy] RawRwLock<P, B>, lock_api::GuardNoSend);
reader_writer!([Pol: Policy, P: Platform, L: QueueStorage<P>] RawRwSem<Pol, P, L>, lock_api::GuardSend);
