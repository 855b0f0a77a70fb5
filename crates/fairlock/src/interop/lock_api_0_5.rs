//! The traits of lock_api 0.5, for [`RawMutex`], [`RawRwLock`] and [`RawRwSem`].

use std::time::{Duration, Instant};

use crate::guarded::{ExclusiveHold, Limit, SharedHold, UpgradableHold};
use crate::mutex::RawMutex;
use crate::platform::Platform;
use crate::policy::{BiasPolicy, Policy};
use crate::rwlock::RawRwLock;
use crate::rwsem::{HasQueuePool, RawRwSem, ReaderBias};

// SAFETY: `Exclusive` promises that there is one owner at a time, and that forgetting a hold is harmless.
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
        ExclusiveHold::try_acquire(self)
    }
    #[inline]
    unsafe fn unlock(&self, guard: Self::Guard) {
        // SAFETY: the lock is held, as the caller promises.
        unsafe { guard.release(self) };
    }
    fn is_locked(&self) -> bool {
        crate::guarded::Exclusive::is_locked(self)
    }
}

// SAFETY: `Exclusive` promises of a fair unlock, too, that there is one owner at a time.
unsafe impl<P: Platform> lock_api::RawMutexFair for RawMutex<P> {
    #[inline]
    unsafe fn unlock_fair(&self, guard: Self::Guard) {
        // SAFETY: the lock is held, as the caller promises.
        unsafe { guard.release_fair(self) };
    }
}

// SAFETY: `Exclusive` promises that an acquisition that fails leaves nothing held and nobody queued.
unsafe impl<P: Platform> lock_api::RawMutexTimed for RawMutex<P> {
    type Duration = Duration;
    type Instant = Instant;

    #[track_caller]
    fn try_lock_for(&self, timeout: Duration) -> Option<Self::Guard> {
        ExclusiveHold::acquire_within(self, Limit::For(timeout))
    }
    #[track_caller]
    fn try_lock_until(&self, instant: Instant) -> Option<Self::Guard> {
        ExclusiveHold::acquire_within(self, Limit::Until(instant))
    }
}

macro_rules! reader_writer {
    ([$($generics:tt)*] $lock:ty) => {
        // SAFETY: `Guarded` promises that a writer holds the lock alone, and that forgetting a hold is harmless.
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
                SharedHold::try_acquire(self)
            }
            #[inline]
            unsafe fn unlock_shared(&self, guard: Self::SharedGuard) {
                // SAFETY: held shared, as the caller promises.
                unsafe { guard.release(self) };
            }
            #[inline]
            #[track_caller]
            fn lock_exclusive(&self) -> Self::ExclusiveGuard {
                ExclusiveHold::acquire(self)
            }
            #[inline]
            #[track_caller]
            fn try_lock_exclusive(&self) -> Option<Self::ExclusiveGuard> {
                ExclusiveHold::try_acquire(self)
            }
            #[inline]
            unsafe fn unlock_exclusive(&self, guard: Self::ExclusiveGuard) {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { guard.release(self) };
            }
            fn is_locked(&self) -> bool {
                crate::guarded::Exclusive::is_locked(self)
            }
            fn is_locked_exclusive(&self) -> bool {
                crate::guarded::Guarded::is_locked_exclusive(self)
            }
        }

        // SAFETY: `Exclusive` promises of a fair unlock, too, that it only releases what the caller holds.
        unsafe impl<$($generics)*> lock_api::RawRwLockFair for $lock {
            #[inline]
            unsafe fn unlock_shared_fair(&self, guard: Self::SharedGuard) {
                // SAFETY: held shared, as the caller promises.
                unsafe { guard.release_fair(self) };
            }
            #[inline]
            unsafe fn unlock_exclusive_fair(&self, guard: Self::ExclusiveGuard) {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { guard.release_fair(self) };
            }
        }

        // SAFETY: `Guarded` promises that a downgrade is one atomic step, a Release.
        unsafe impl<$($generics)*> lock_api::RawRwLockDowngrade for $lock {
            unsafe fn downgrade(&self, guard: Self::ExclusiveGuard) -> Self::SharedGuard {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { guard.downgrade(self) }
            }
        }

        // SAFETY: `Exclusive` promises that an acquisition that fails leaves nothing held and nobody queued.
        unsafe impl<$($generics)*> lock_api::RawRwLockTimed for $lock {
            type Duration = Duration;
            type Instant = Instant;

            #[track_caller]
            fn try_lock_shared_for(&self, timeout: Duration) -> Option<Self::SharedGuard> {
                SharedHold::acquire_within(self, Limit::For(timeout))
            }
            #[track_caller]
            fn try_lock_shared_until(&self, instant: Instant) -> Option<Self::SharedGuard> {
                SharedHold::acquire_within(self, Limit::Until(instant))
            }
            #[track_caller]
            fn try_lock_exclusive_for(&self, timeout: Duration) -> Option<Self::ExclusiveGuard> {
                ExclusiveHold::acquire_within(self, Limit::For(timeout))
            }
            #[track_caller]
            fn try_lock_exclusive_until(&self, instant: Instant) -> Option<Self::ExclusiveGuard> {
                ExclusiveHold::acquire_within(self, Limit::Until(instant))
            }
        }

        // SAFETY: `Guarded` promises that there is at most one upgradable holder, beside plain readers only.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgrade for $lock {
            type UpgradableGuard = UpgradableHold<Self>;

            #[track_caller]
            fn lock_upgradable(&self) -> Self::UpgradableGuard {
                UpgradableHold::acquire(self)
            }
            #[track_caller]
            fn try_lock_upgradable(&self) -> Option<Self::UpgradableGuard> {
                UpgradableHold::try_acquire(self)
            }
            unsafe fn unlock_upgradable(&self, guard: Self::UpgradableGuard) {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { guard.release(self) };
            }
            #[track_caller]
            unsafe fn upgrade(&self, guard: Self::UpgradableGuard) -> Self::ExclusiveGuard {
                UpgradableHold::check_upgrade(self);
                // SAFETY: held upgradable, as the caller promises.
                unsafe { guard.upgrade(self) }
            }
            #[track_caller]
            unsafe fn try_upgrade(
                &self,
                guard: Self::UpgradableGuard,
            ) -> Result<Self::ExclusiveGuard, Self::UpgradableGuard> {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { guard.try_upgrade(self) }
            }
        }

        // SAFETY: `Guarded` promises of a fair unlock, too, that it only releases what the caller holds.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgradeFair for $lock {
            unsafe fn unlock_upgradable_fair(&self, guard: Self::UpgradableGuard) {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { guard.release_fair(self) };
            }
        }

        // SAFETY: `Guarded` promises that each downgrade is one atomic step, a Release.
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

        // SAFETY: `Guarded` promises that the lock is still held upgradable after an upgrade that failed.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgradeTimed for $lock {
            #[track_caller]
            fn try_lock_upgradable_for(&self, timeout: Duration) -> Option<Self::UpgradableGuard> {
                UpgradableHold::acquire_within(self, Limit::For(timeout))
            }
            #[track_caller]
            fn try_lock_upgradable_until(&self, instant: Instant) -> Option<Self::UpgradableGuard> {
                UpgradableHold::acquire_within(self, Limit::Until(instant))
            }
            #[track_caller]
            unsafe fn try_upgrade_for(
                &self,
                guard: Self::UpgradableGuard,
                timeout: Duration,
            ) -> Result<Self::ExclusiveGuard, Self::UpgradableGuard> {
                UpgradableHold::check_upgrade_within(self, Limit::For(timeout));
                // SAFETY: held upgradable, as the caller promises.
                unsafe { guard.upgrade_within(self, Limit::For(timeout)) }
            }
            #[track_caller]
            unsafe fn try_upgrade_until(
                &self,
                guard: Self::UpgradableGuard,
                instant: Instant,
            ) -> Result<Self::ExclusiveGuard, Self::UpgradableGuard> {
                UpgradableHold::check_upgrade_within(self, Limit::Until(instant));
                // SAFETY: held upgradable, as the caller promises.
                unsafe { guard.upgrade_within(self, Limit::Until(instant)) }
            }
        }
    };
}

reader_writer!([P: HasQueuePool, B: BiasPolicy] RawRwLock<P, B>);
reader_writer!([Pol: Policy, P: HasQueuePool, B: ReaderBias] RawRwSem<Pol, P, B>);
