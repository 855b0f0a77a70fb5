//! Guards that own an [`Arc`] of their lock, and so live as long as they like.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shows_its_data;
use crate::guarded::{Exclusive, ExclusiveHold, Guarded, Limit, SharedHold, UpgradableHold};

/// A lock with its data.
///
/// # Safety
/// `raw` and `data` always return the same lock, and the data that it protects.
pub unsafe trait Lock {
    /// The lock without its data.
    type Raw: Exclusive;
    /// What it protects.
    type Data: ?Sized;
    /// The lock without its data.
    fn raw(&self) -> &Self::Raw;
    /// What it protects.
    fn data(&self) -> *mut Self::Data;
}

macro_rules! owned_guard {
    ($(#[$doc:meta])* $guard:ident, $hold:ident, $raw:ident) => {
        $(#[$doc])*
        #[must_use = "the lock is released as soon as the guard is dropped"]
        #[clippy::has_significant_drop]
        pub struct $guard<L: Lock<Raw: $raw> + ?Sized> {
            lock: ManuallyDrop<Arc<L>>,
            hold: ManuallyDrop<$hold<L::Raw>>,
            data: PhantomData<L::Data>,
        }

        impl<L: Lock<Raw: $raw> + ?Sized> $guard<L> {
            /// # Safety
            /// The caller has this hold of the lock.
            pub(crate) unsafe fn new(lock: Arc<L>, hold: $hold<L::Raw>) -> Self {
                $guard {
                    lock: ManuallyDrop::new(lock),
                    hold: ManuallyDrop::new(hold),
                    data: PhantomData,
                }
            }

            /// The lock.
            pub fn lock(guard: &Self) -> &Arc<L> {
                &guard.lock
            }

            /// Takes the guard apart without releasing.
            fn into_parts(self) -> (Arc<L>, $hold<L::Raw>) {
                let mut guard = ManuallyDrop::new(self);
                // SAFETY: both are taken once, as the guard is not dropped.
                unsafe { (ManuallyDrop::take(&mut guard.lock), ManuallyDrop::take(&mut guard.hold)) }
            }

            /// Releases the lock and hands it to those that have waited for longest, instead of leaving it to
            /// whoever comes first.
            pub fn unlock_fair(guard: Self) {
                let (lock, hold) = guard.into_parts();
                // SAFETY: the guard had this hold.
                unsafe { hold.release_fair(lock.raw()) };
            }

            /// Releases the lock and returns the `Arc`.
            pub fn into_arc(guard: Self) -> Arc<L> {
                let (lock, hold) = guard.into_parts();
                // SAFETY: the guard had this hold.
                unsafe { hold.release(lock.raw()) };
                lock
            }
        }

        impl<L: Lock<Raw: $raw> + ?Sized> Deref for $guard<L> {
            type Target = L::Data;

            #[inline]
            fn deref(&self) -> &L::Data {
                // SAFETY: the lock is held, so nobody else changes the data, which lives as long as the lock.
                unsafe { &*self.lock.data() }
            }
        }

        impl<L: Lock<Raw: $raw> + ?Sized> Drop for $guard<L> {
            fn drop(&mut self) {
                // SAFETY: both are taken once, as nobody uses a guard after its destructor; this is its hold.
                unsafe {
                    ManuallyDrop::take(&mut self.hold).release(self.lock.raw());
                    ManuallyDrop::drop(&mut self.lock);
                }
            }
        }

        shows_its_data!([L: Lock<Raw: $raw> + ?Sized] $guard<L>, L::Data);
    };
}

owned_guard! {
    /// Shared access to what a reader-writer lock protects, with an [`Arc`] of the lock; releases when dropped. Named
    /// [`ArcRwLockReadGuard`](crate::ArcRwLockReadGuard), [`ArcRwSemReadGuard`](crate::ArcRwSemReadGuard).
    ArcSharedGuard, SharedHold, Guarded
}
owned_guard! {
    /// Shared access that can become exclusive, with an [`Arc`] of the lock; releases when dropped. Named
    /// [`ArcRwLockUpgradableReadGuard`](crate::ArcRwLockUpgradableReadGuard),
    /// [`ArcRwSemUpgradableReadGuard`](crate::ArcRwSemUpgradableReadGuard).
    ArcUpgradableGuard, UpgradableHold, Guarded
}
owned_guard! {
    /// Exclusive access to what a lock protects, with an [`Arc`] of the lock; releases when dropped. Named
    /// [`ArcRwLockWriteGuard`](crate::ArcRwLockWriteGuard), [`ArcRwSemWriteGuard`](crate::ArcRwSemWriteGuard) and
    /// [`ArcMutexGuard`](crate::ArcMutexGuard).
    ArcExclusiveGuard, ExclusiveHold, Exclusive
}

impl<L: Lock + ?Sized> DerefMut for ArcExclusiveGuard<L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut L::Data {
        // SAFETY: the lock is held exclusively, so only this guard gives access to the data.
        unsafe { &mut *self.lock.data() }
    }
}

impl<L: Lock<Raw: Guarded> + ?Sized> ArcExclusiveGuard<L> {
    /// Becomes a read guard, without releasing the lock in between.
    pub fn downgrade(guard: Self) -> ArcSharedGuard<L> {
        let (lock, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        let hold = unsafe { hold.downgrade(lock.raw()) };
        // SAFETY: this hold of the same lock.
        unsafe { ArcSharedGuard::new(lock, hold) }
    }

    /// Becomes an upgradable guard, without releasing the lock in between.
    pub fn downgrade_to_upgradable(guard: Self) -> ArcUpgradableGuard<L> {
        let (lock, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        let hold = unsafe { hold.downgrade_to_upgradable(lock.raw()) };
        // SAFETY: this hold of the same lock.
        unsafe { ArcUpgradableGuard::new(lock, hold) }
    }
}

impl<L: Lock<Raw: Guarded> + ?Sized> ArcUpgradableGuard<L> {
    /// Waits for the readers to leave, and becomes a write guard. Nobody writes in between.
    #[track_caller]
    pub fn upgrade(guard: Self) -> ArcExclusiveGuard<L> {
        UpgradableHold::check_upgrade(guard.lock.raw());
        let (lock, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        let hold = unsafe { hold.upgrade(lock.raw()) };
        // SAFETY: this hold of the same lock.
        unsafe { ArcExclusiveGuard::new(lock, hold) }
    }

    /// Becomes a write guard if nobody reads.
    ///
    /// # Errors
    /// The guard, if somebody does.
    pub fn try_upgrade(guard: Self) -> Result<ArcExclusiveGuard<L>, Self> {
        let (lock, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        let upgraded = unsafe { hold.try_upgrade(lock.raw()) };
        Self::upgraded(lock, upgraded)
    }

    /// As [`upgrade`](Self::upgrade), but gives up after `timeout`.
    ///
    /// # Errors
    /// The guard, if the time is over.
    #[track_caller]
    pub fn try_upgrade_for(guard: Self, timeout: Duration) -> Result<ArcExclusiveGuard<L>, Self> {
        Self::upgrade_within(guard, Limit::For(timeout))
    }

    /// As [`upgrade`](Self::upgrade), but gives up at `instant`.
    ///
    /// # Errors
    /// The guard, if the time is over.
    #[track_caller]
    pub fn try_upgrade_until(guard: Self, instant: Instant) -> Result<ArcExclusiveGuard<L>, Self> {
        Self::upgrade_within(guard, Limit::Until(instant))
    }

    /// Becomes a read guard, without releasing the lock in between.
    pub fn downgrade(guard: Self) -> ArcSharedGuard<L> {
        let (lock, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        let hold = unsafe { hold.downgrade(lock.raw()) };
        // SAFETY: this hold of the same lock.
        unsafe { ArcSharedGuard::new(lock, hold) }
    }

    #[track_caller]
    fn upgrade_within(guard: Self, limit: Limit) -> Result<ArcExclusiveGuard<L>, Self> {
        let (lock, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        let upgraded = unsafe { hold.upgrade_within(lock.raw(), limit) };
        Self::upgraded(lock, upgraded)
    }

    fn upgraded(
        lock: Arc<L>,
        upgraded: Result<ExclusiveHold<L::Raw>, UpgradableHold<L::Raw>>,
    ) -> Result<ArcExclusiveGuard<L>, Self> {
        // SAFETY: the hold is what the attempt has left.
        unsafe {
            match upgraded {
                Ok(hold) => Ok(ArcExclusiveGuard::new(lock, hold)),
                Err(hold) => Err(Self::new(lock, hold)),
            }
        }
    }
}
