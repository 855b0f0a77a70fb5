//! Guards of upgradable holds.

use core::marker::PhantomData;
use core::mem::{ManuallyDrop, forget};
use core::ops::Deref;
use core::ptr::NonNull;
use std::time::{Duration, Instant};

use super::{ExclusiveGuard, SharedGuard, WithoutHold, releases_its_lock, shows_its_data};
use crate::guarded::{ExclusiveHold, Guarded, Limit, UpgradableHold};

/// Shared access that can become exclusive without a release in between; one at a time, beside plain readers. Named
/// [`RwLockUpgradableReadGuard`](crate::RwLockUpgradableReadGuard),
/// [`RwSemUpgradableReadGuard`](crate::RwSemUpgradableReadGuard).
#[must_use = "the lock is released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct UpgradableGuard<'a, T: ?Sized, R: Guarded> {
    lock: &'a R,
    data: NonNull<T>,
    hold: ManuallyDrop<UpgradableHold<R>>,
    /// Invariant, as it can become exclusive access.
    borrow: PhantomData<&'a mut T>,
}

// SAFETY: it gives no more access than the `&T` and then `&mut T` that it stands for, and its hold says itself whether
// it may go to another thread.
unsafe impl<T: ?Sized + Send + Sync, R: Guarded + Sync> Send for UpgradableGuard<'_, T, R> where
    UpgradableHold<R>: Send
{
}
// SAFETY: a shared reference to it is a `&T`.
unsafe impl<T: ?Sized + Sync, R: Guarded + Sync> Sync for UpgradableGuard<'_, T, R> {}

impl<'a, T: ?Sized, R: Guarded> UpgradableGuard<'a, T, R> {
    /// # Safety
    /// `data` is what `lock` protects, and borrowed for `'a`. The caller has this hold of `lock`.
    #[inline(always)]
    pub(crate) unsafe fn new(lock: &'a R, data: *mut T, hold: UpgradableHold<R>) -> Self {
        // SAFETY: not null, as the caller promises.
        let data = unsafe { NonNull::new_unchecked(data) };
        UpgradableGuard { lock, data, hold: ManuallyDrop::new(hold), borrow: PhantomData }
    }

    /// Takes the guard apart without releasing.
    #[inline(always)]
    fn into_parts(self) -> (&'a R, NonNull<T>, UpgradableHold<R>) {
        let mut guard = ManuallyDrop::new(self);
        // SAFETY: taken once, as the guard is not dropped.
        let hold = unsafe { ManuallyDrop::take(&mut guard.hold) };
        (guard.lock, guard.data, hold)
    }

    /// # Safety
    /// `upgraded` has used the guard's hold of its `lock`.
    unsafe fn upgraded(
        lock: &'a R,
        data: NonNull<T>,
        upgraded: Result<ExclusiveHold<R>, UpgradableHold<R>>,
    ) -> Result<ExclusiveGuard<'a, T, R>, Self> {
        // SAFETY: the data is what `lock` protects, and the hold is what the attempt has left.
        unsafe {
            match upgraded {
                Ok(hold) => Ok(ExclusiveGuard::new(lock, data.as_ptr(), hold)),
                Err(hold) => Err(Self::new(lock, data.as_ptr(), hold)),
            }
        }
    }

    #[track_caller]
    fn upgrade_within(guard: Self, limit: Limit) -> Result<ExclusiveGuard<'a, T, R>, Self> {
        UpgradableHold::check_upgrade_within(guard.lock, limit);
        let (lock, data, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        unsafe { Self::upgraded(lock, data, hold.upgrade_within(lock, limit)) }
    }

    /// Waits for the readers to leave, and becomes a write guard. Nobody writes in between.
    ///
    /// ```
    /// use fairlock::{RwLock, RwLockUpgradableReadGuard};
    /// let lock = RwLock::new(vec![1]);
    /// let guard = lock.upgradable_read();
    /// if guard.len() == 1 {
    ///     RwLockUpgradableReadGuard::upgrade(guard).push(2);
    /// }
    /// ```
    #[track_caller]
    pub fn upgrade(guard: Self) -> ExclusiveGuard<'a, T, R> {
        UpgradableHold::check_upgrade(guard.lock);
        let (lock, data, hold) = guard.into_parts();
        // SAFETY: the guard had this hold of `lock`, which protects the data.
        unsafe { ExclusiveGuard::new(lock, data.as_ptr(), hold.upgrade(lock)) }
    }

    /// Becomes a write guard if nobody reads.
    ///
    /// # Errors
    /// The guard, if somebody does.
    #[track_caller]
    pub fn try_upgrade(guard: Self) -> Result<ExclusiveGuard<'a, T, R>, Self> {
        let (lock, data, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        unsafe { Self::upgraded(lock, data, hold.try_upgrade(lock)) }
    }

    /// As [`upgrade`](Self::upgrade), but gives up after `timeout`.
    ///
    /// # Errors
    /// The guard, if the time is over.
    #[track_caller]
    pub fn try_upgrade_for(
        guard: Self,
        timeout: Duration,
    ) -> Result<ExclusiveGuard<'a, T, R>, Self> {
        Self::upgrade_within(guard, Limit::For(timeout))
    }

    /// As [`upgrade`](Self::upgrade), but gives up at `instant`.
    ///
    /// # Errors
    /// The guard, if the time is over.
    #[track_caller]
    pub fn try_upgrade_until(
        guard: Self,
        instant: Instant,
    ) -> Result<ExclusiveGuard<'a, T, R>, Self> {
        Self::upgrade_within(guard, Limit::Until(instant))
    }

    /// Upgrades while `change` runs, and is an upgradable guard again afterwards, also if `change` panics. A method,
    /// as in lock_api.
    #[track_caller]
    pub fn with_upgraded<U, F>(&mut self, change: F) -> U
    where
        F: FnOnce(&mut T) -> U,
    {
        UpgradableHold::check_upgrade(self.lock);
        // SAFETY: `changed` puts a hold back in its place.
        let hold = unsafe { ManuallyDrop::take(&mut self.hold) };
        let without_hold = WithoutHold;
        // SAFETY: the guard had this hold.
        let upgraded = unsafe { hold.upgrade(self.lock) };
        forget(without_hold);
        // SAFETY: the hold is what the upgrade has left.
        unsafe { self.changed(Ok(upgraded), change) }.expect("upgraded")
    }

    /// As [`with_upgraded`](Self::with_upgraded), if nobody reads; otherwise `change` does not run.
    pub fn try_with_upgraded<U, F>(&mut self, change: F) -> Option<U>
    where
        F: FnOnce(&mut T) -> U,
    {
        // SAFETY: `changed` puts a hold back in its place.
        let hold = unsafe { ManuallyDrop::take(&mut self.hold) };
        let without_hold = WithoutHold;
        // SAFETY: the guard had this hold.
        let upgraded = unsafe { hold.try_upgrade(self.lock) };
        forget(without_hold);
        // SAFETY: the hold is what the attempt has left.
        unsafe { self.changed(upgraded, change) }
    }

    /// As [`with_upgraded`](Self::with_upgraded), but gives up after `timeout`; then `change` does not run.
    #[track_caller]
    pub fn try_with_upgraded_for<U, F>(&mut self, timeout: Duration, change: F) -> Option<U>
    where
        F: FnOnce(&mut T) -> U,
    {
        self.upgraded_within(Limit::For(timeout), change)
    }

    /// As [`with_upgraded`](Self::with_upgraded), but gives up at `instant`; then `change` does not run.
    #[track_caller]
    pub fn try_with_upgraded_until<U, F>(&mut self, instant: Instant, change: F) -> Option<U>
    where
        F: FnOnce(&mut T) -> U,
    {
        self.upgraded_within(Limit::Until(instant), change)
    }

    #[track_caller]
    fn upgraded_within<U>(&mut self, limit: Limit, change: impl FnOnce(&mut T) -> U) -> Option<U> {
        UpgradableHold::check_upgrade_within(self.lock, limit);
        // SAFETY: `changed` puts a hold back in its place.
        let hold = unsafe { ManuallyDrop::take(&mut self.hold) };
        let without_hold = WithoutHold;
        // SAFETY: the guard had this hold.
        let upgraded = unsafe { hold.upgrade_within(self.lock, limit) };
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
        upgraded: Result<ExclusiveHold<R>, UpgradableHold<R>>,
        change: impl FnOnce(&mut T) -> U,
    ) -> Option<U> {
        struct Back<'g, 'a, T: ?Sized, R: Guarded> {
            guard: &'g mut UpgradableGuard<'a, T, R>,
            hold: ManuallyDrop<ExclusiveHold<R>>,
        }

        impl<T: ?Sized, R: Guarded> Drop for Back<'_, '_, T, R> {
            fn drop(&mut self) {
                // SAFETY: taken once, as nobody uses this after its destructor.
                let hold = unsafe { ManuallyDrop::take(&mut self.hold) };
                // SAFETY: this hold of the lock.
                let hold = unsafe { hold.downgrade_to_upgradable(self.guard.lock) };
                self.guard.hold = ManuallyDrop::new(hold);
            }
        }

        match upgraded {
            Ok(hold) => {
                let back = Back { guard: self, hold: ManuallyDrop::new(hold) };
                // SAFETY: the lock is held exclusively while `back` lives.
                Some(change(unsafe { back.guard.data.as_mut() }))
            }
            Err(hold) => {
                self.hold = ManuallyDrop::new(hold);
                None
            }
        }
    }

    /// Becomes a read guard, without releasing the lock in between.
    pub fn downgrade(guard: Self) -> SharedGuard<'a, T, R> {
        let (lock, data, hold) = guard.into_parts();
        // SAFETY: the guard had this hold of `lock`, which protects the data.
        unsafe { SharedGuard::new(lock, data.as_ptr(), hold.downgrade(lock)) }
    }
}

releases_its_lock!(['a, T: ?Sized, R: Guarded] UpgradableGuard<'a, T, R>, UpgradableHold<R>, |lock| lock);

impl<T: ?Sized, R: Guarded> Deref for UpgradableGuard<'_, T, R> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held upgradable, so nobody changes the data.
        unsafe { self.data.as_ref() }
    }
}

impl<T: ?Sized, R: Guarded> Drop for UpgradableGuard<'_, T, R> {
    fn drop(&mut self) {
        // SAFETY: taken once, as nobody uses a guard after its destructor, and this is its hold.
        unsafe { ManuallyDrop::take(&mut self.hold).release(self.lock) };
    }
}

shows_its_data!([T: ?Sized, R: Guarded] UpgradableGuard<'_, T, R>, T);
