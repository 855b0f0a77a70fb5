//! Guards that own an [`Arc`] of their lock, and so live as long as they like.

use core::marker::PhantomData;
use core::mem::{ManuallyDrop, forget};
use core::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{WithoutHold, releases_its_lock, shows_its_data};
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

            /// Releases the lock and returns the `Arc`.
            pub fn into_arc(guard: Self) -> Arc<L> {
                let (lock, hold) = guard.into_parts();
                // SAFETY: the guard had this hold.
                unsafe { hold.release(lock.raw()) };
                lock
            }

            /// As [`into_arc`](Self::into_arc), by a [fair unlock](Self::unlock_fair).
            pub fn into_arc_fair(guard: Self) -> Arc<L> {
                let (lock, hold) = guard.into_parts();
                // SAFETY: the guard had this hold.
                unsafe { hold.release_fair(lock.raw()) };
                lock
            }
        }

        releases_its_lock!(
            [L: Lock<Raw: $raw> + ?Sized] $guard<L>, $hold<L::Raw>, |lock| lock.raw()
        );

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
    #[track_caller]
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

    /// Upgrades while `change` runs, and is an upgradable guard again afterwards, also if `change` panics. A method,
    /// as in lock_api.
    #[track_caller]
    pub fn with_upgraded<U, F>(&mut self, change: F) -> U
    where
        F: FnOnce(&mut L::Data) -> U,
    {
        UpgradableHold::check_upgrade(self.lock.raw());
        // SAFETY: `changed` puts a hold back in its place.
        let hold = unsafe { ManuallyDrop::take(&mut self.hold) };
        let without_hold = WithoutHold;
        // SAFETY: the guard had this hold.
        let upgraded = unsafe { hold.upgrade(self.lock.raw()) };
        forget(without_hold);
        // SAFETY: the hold is what the upgrade has left.
        unsafe { self.changed(Ok(upgraded), change) }.expect("upgraded")
    }

    /// As [`with_upgraded`](Self::with_upgraded), if nobody reads; otherwise `change` does not run.
    pub fn try_with_upgraded<U, F>(&mut self, change: F) -> Option<U>
    where
        F: FnOnce(&mut L::Data) -> U,
    {
        // SAFETY: `changed` puts a hold back in its place.
        let hold = unsafe { ManuallyDrop::take(&mut self.hold) };
        let without_hold = WithoutHold;
        // SAFETY: the guard had this hold.
        let upgraded = unsafe { hold.try_upgrade(self.lock.raw()) };
        forget(without_hold);
        // SAFETY: the hold is what the attempt has left.
        unsafe { self.changed(upgraded, change) }
    }

    /// As [`with_upgraded`](Self::with_upgraded), but gives up after `timeout`; then `change` does not run.
    #[track_caller]
    pub fn try_with_upgraded_for<U, F>(&mut self, timeout: Duration, change: F) -> Option<U>
    where
        F: FnOnce(&mut L::Data) -> U,
    {
        self.upgraded_within(Limit::For(timeout), change)
    }

    /// As [`with_upgraded`](Self::with_upgraded), but gives up at `instant`; then `change` does not run.
    #[track_caller]
    pub fn try_with_upgraded_until<U, F>(&mut self, instant: Instant, change: F) -> Option<U>
    where
        F: FnOnce(&mut L::Data) -> U,
    {
        self.upgraded_within(Limit::Until(instant), change)
    }

    #[track_caller]
    fn upgraded_within<U>(
        &mut self,
        limit: Limit,
        change: impl FnOnce(&mut L::Data) -> U,
    ) -> Option<U> {
        UpgradableHold::check_upgrade_within(self.lock.raw(), limit);
        // SAFETY: `changed` puts a hold back in its place.
        let hold = unsafe { ManuallyDrop::take(&mut self.hold) };
        let without_hold = WithoutHold;
        // SAFETY: the guard had this hold.
        let upgraded = unsafe { hold.upgrade_within(self.lock.raw(), limit) };
        forget(without_hold);
        // SAFETY: the hold is what the attempt has left.
        unsafe { self.changed(upgraded, change) }
    }

    /// Runs `change` if the guard's hold was upgraded, and puts a hold back in its place.
    ///
    /// # Safety
    /// The guard's hold was taken from it, and `upgraded` is what an attempt to upgrade has left of it.
    unsafe fn changed<U>(
        &mut self,
        upgraded: Result<ExclusiveHold<L::Raw>, UpgradableHold<L::Raw>>,
        change: impl FnOnce(&mut L::Data) -> U,
    ) -> Option<U> {
        struct Back<'g, L: Lock<Raw: Guarded> + ?Sized> {
            guard: &'g mut ArcUpgradableGuard<L>,
            hold: ManuallyDrop<ExclusiveHold<L::Raw>>,
        }

        impl<L: Lock<Raw: Guarded> + ?Sized> Drop for Back<'_, L> {
            fn drop(&mut self) {
                // SAFETY: taken once, as nobody uses this after its destructor.
                let hold = unsafe { ManuallyDrop::take(&mut self.hold) };
                // SAFETY: this hold of the lock.
                let hold = unsafe { hold.downgrade_to_upgradable(self.guard.lock.raw()) };
                self.guard.hold = ManuallyDrop::new(hold);
            }
        }

        match upgraded {
            Ok(hold) => {
                let back = Back { guard: self, hold: ManuallyDrop::new(hold) };
                // SAFETY: the lock is held exclusively while `back` lives.
                Some(change(unsafe { &mut *back.guard.lock.data() }))
            }
            Err(hold) => {
                self.hold = ManuallyDrop::new(hold);
                None
            }
        }
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
        UpgradableHold::check_upgrade_within(guard.lock.raw(), limit);
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
