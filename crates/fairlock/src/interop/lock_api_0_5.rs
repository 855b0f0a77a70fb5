//! The traits of lock_api 0.5, for [`RawMutex`], [`RawRwLock`] and [`RawRwSem`].

use std::time::{Duration, Instant};

use crate::hold::{ExclusiveHold, Limit, SharedHold, UpgradableHold};
use crate::mutex::RawMutex;
use crate::platform::Platform;
use crate::policy::{BiasPolicy, Policy};
use crate::raw::{RawLock, RawReadWriteLock, Wait};
use crate::rwlock::RawRwLock;
use crate::rwsem::{HasQueuePool, RawRwSem, ReaderBias};

// SAFETY: `RawLock` promises that there is one owner at a time, and that forgetting a hold is
// harmless.
unsafe impl<P: Platform> lock_api::RawMutex for RawMutex<P> {
    const INIT: Self = Self::NEW;
    type Guard = ExclusiveHold<Self>;

    #[inline]
    #[track_caller]
    fn lock(&self) -> Self::Guard {
        ExclusiveHold::acquire(self)
    }
    #[inline]
    #[track_caller]
    fn try_lock(&self) -> Option<Self::Guard> {
        ExclusiveHold::acquire_within(self, Wait::Not)
    }
    #[inline]
    unsafe fn unlock(&self, guard: Self::Guard) {
        // SAFETY: the lock is held, as the caller promises.
        unsafe { guard.release(self, false) };
    }
    fn is_locked(&self) -> bool {
        RawLock::is_locked(self)
    }
}

// SAFETY: `RawLock` promises of a fair unlock, too, that there is one owner at a time.
unsafe impl<P: Platform> lock_api::RawMutexFair for RawMutex<P> {
    #[inline]
    unsafe fn unlock_fair(&self, guard: Self::Guard) {
        // SAFETY: the lock is held, as the caller promises.
        unsafe { guard.release(self, true) };
    }
}

// SAFETY: `RawLock` promises that an acquisition that fails leaves nothing held and no waiter
// queued.
unsafe impl<P: Platform> lock_api::RawMutexTimed for RawMutex<P> {
    type Duration = Duration;
    type Instant = Instant;

    #[track_caller]
    fn try_lock_for(&self, timeout: Duration) -> Option<Self::Guard> {
        ExclusiveHold::acquire_within(self, Limit::For(timeout).wait::<P>())
    }
    #[track_caller]
    fn try_lock_until(&self, instant: Instant) -> Option<Self::Guard> {
        ExclusiveHold::acquire_within(self, Limit::Until(instant).wait::<P>())
    }
}

macro_rules! reader_writer {
    ([$($generics:tt)*] $lock:ty) => {
        // SAFETY: `RawReadWriteLock` promises that a writer holds the lock alone, and that
        // forgetting a hold is harmless.
        unsafe impl<$($generics)*> lock_api::RawRwLock for $lock {
            const INIT: Self = Self::NEW;
            type SharedGuard = SharedHold<Self>;
            type ExclusiveGuard = ExclusiveHold<Self>;

            #[inline]
            #[track_caller]
            fn lock_shared(&self) -> Self::SharedGuard {
                SharedHold::acquire(self)
            }
            #[inline]
            #[track_caller]
            fn try_lock_shared(&self) -> Option<Self::SharedGuard> {
                SharedHold::acquire_within(self, Wait::Not)
            }
            #[inline]
            unsafe fn unlock_shared(&self, guard: Self::SharedGuard) {
                // SAFETY: held shared, as the caller promises.
                unsafe { guard.release(self, false) };
            }
            #[inline]
            #[track_caller]
            fn lock_exclusive(&self) -> Self::ExclusiveGuard {
                ExclusiveHold::acquire(self)
            }
            #[inline]
            #[track_caller]
            fn try_lock_exclusive(&self) -> Option<Self::ExclusiveGuard> {
                ExclusiveHold::acquire_within(self, Wait::Not)
            }
            #[inline]
            unsafe fn unlock_exclusive(&self, guard: Self::ExclusiveGuard) {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { guard.release(self, false) };
            }
            fn is_locked(&self) -> bool {
                RawLock::is_locked(self)
            }
            fn is_locked_exclusive(&self) -> bool {
                RawReadWriteLock::is_locked_exclusive(self)
            }
        }

        // SAFETY: `RawLock` promises of a fair unlock, too, that it only releases what the caller
        // holds.
        unsafe impl<$($generics)*> lock_api::RawRwLockFair for $lock {
            #[inline]
            unsafe fn unlock_shared_fair(&self, guard: Self::SharedGuard) {
                // SAFETY: held shared, as the caller promises.
                unsafe { guard.release(self, true) };
            }
            #[inline]
            unsafe fn unlock_exclusive_fair(&self, guard: Self::ExclusiveGuard) {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { guard.release(self, true) };
            }
        }

        // SAFETY: `RawReadWriteLock` promises that a downgrade is one atomic step, a Release.
        unsafe impl<$($generics)*> lock_api::RawRwLockDowngrade for $lock {
            unsafe fn downgrade(&self, guard: Self::ExclusiveGuard) -> Self::SharedGuard {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { guard.downgrade(self) }
            }
        }

        // SAFETY: `RawLock` promises that an acquisition that fails leaves nothing held and no
        // waiter queued.
        unsafe impl<$($generics)*> lock_api::RawRwLockTimed for $lock {
            type Duration = Duration;
            type Instant = Instant;

            #[track_caller]
            fn try_lock_shared_for(&self, timeout: Duration) -> Option<Self::SharedGuard> {
                SharedHold::acquire_within(self, Limit::For(timeout).wait::<P>())
            }
            #[track_caller]
            fn try_lock_shared_until(&self, instant: Instant) -> Option<Self::SharedGuard> {
                SharedHold::acquire_within(self, Limit::Until(instant).wait::<P>())
            }
            #[track_caller]
            fn try_lock_exclusive_for(&self, timeout: Duration) -> Option<Self::ExclusiveGuard> {
                ExclusiveHold::acquire_within(self, Limit::For(timeout).wait::<P>())
            }
            #[track_caller]
            fn try_lock_exclusive_until(&self, instant: Instant) -> Option<Self::ExclusiveGuard> {
                ExclusiveHold::acquire_within(self, Limit::Until(instant).wait::<P>())
            }
        }

        // SAFETY: `RawReadWriteLock` promises that there is at most one upgradable holder, next to
        // plain readers only.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgrade for $lock {
            type UpgradableGuard = UpgradableHold<Self>;

            #[track_caller]
            fn lock_upgradable(&self) -> Self::UpgradableGuard {
                UpgradableHold::acquire(self)
            }
            #[track_caller]
            fn try_lock_upgradable(&self) -> Option<Self::UpgradableGuard> {
                UpgradableHold::acquire_within(self, Wait::Not)
            }
            unsafe fn unlock_upgradable(&self, guard: Self::UpgradableGuard) {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { guard.release(self, false) };
            }
            #[track_caller]
            unsafe fn upgrade(&self, guard: Self::UpgradableGuard) -> Self::ExclusiveGuard {
                UpgradableHold::check_upgrade(self, Wait::ForEver);
                // SAFETY: held upgradable, as the caller promises.
                let upgraded = unsafe { guard.upgrade(self, Wait::ForEver) };
                upgraded.unwrap_or_else(|_| unreachable!("a wait for ever ends with the lock"))
            }
            #[track_caller]
            unsafe fn try_upgrade(
                &self,
                guard: Self::UpgradableGuard,
            ) -> Result<Self::ExclusiveGuard, Self::UpgradableGuard> {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { guard.upgrade(self, Wait::Not) }
            }
        }

        // SAFETY: `RawReadWriteLock` promises of a fair unlock, too, that it only releases what the
        // caller holds.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgradeFair for $lock {
            unsafe fn unlock_upgradable_fair(&self, guard: Self::UpgradableGuard) {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { guard.release(self, true) };
            }
        }

        // SAFETY: `RawReadWriteLock` promises that each downgrade is one atomic step, a Release.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgradeDowngrade for $lock {
            unsafe fn downgrade_upgradable(&self, guard: Self::UpgradableGuard) -> Self::SharedGuard {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { guard.downgrade(self) }
            }
            unsafe fn downgrade_to_upgradable(
                &self,
                guard: Self::ExclusiveGuard,
            ) -> Self::UpgradableGuard {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { guard.downgrade_to_upgradable(self) }
            }
        }

        // SAFETY: `RawReadWriteLock` promises that the lock is still held upgradable after an
        // upgrade that failed.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgradeTimed for $lock {
            #[track_caller]
            fn try_lock_upgradable_for(&self, timeout: Duration) -> Option<Self::UpgradableGuard> {
                UpgradableHold::acquire_within(self, Limit::For(timeout).wait::<P>())
            }
            #[track_caller]
            fn try_lock_upgradable_until(&self, instant: Instant) -> Option<Self::UpgradableGuard> {
                UpgradableHold::acquire_within(self, Limit::Until(instant).wait::<P>())
            }
            #[track_caller]
            unsafe fn try_upgrade_for(
                &self,
                guard: Self::UpgradableGuard,
                timeout: Duration,
            ) -> Result<Self::ExclusiveGuard, Self::UpgradableGuard> {
                let wait = Limit::For(timeout).wait::<P>();
                UpgradableHold::check_upgrade(self, wait);
                // SAFETY: held upgradable, as the caller promises.
                unsafe { guard.upgrade(self, wait) }
            }
            #[track_caller]
            unsafe fn try_upgrade_until(
                &self,
                guard: Self::UpgradableGuard,
                instant: Instant,
            ) -> Result<Self::ExclusiveGuard, Self::UpgradableGuard> {
                let wait = Limit::Until(instant).wait::<P>();
                UpgradableHold::check_upgrade(self, wait);
                // SAFETY: held upgradable, as the caller promises.
                unsafe { guard.upgrade(self, wait) }
            }
        }
    };
}

reader_writer!([P: HasQueuePool, B: BiasPolicy] RawRwLock<P, B>);
reader_writer!([Pol: Policy, P: HasQueuePool, B: ReaderBias] RawRwSem<Pol, P, B>);
