//! Guards of exclusive holds.

use core::convert::Infallible;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use super::{
    SharedGuard, UpgradableGuard, WithoutHold, maps_its_data, releases_its_lock, shows_its_data,
};
use crate::guarded::{Exclusive, ExclusiveHold, Guarded};

/// Exclusive access to what a lock protects; releases when dropped. Named
/// [`RwLockWriteGuard`](crate::RwLockWriteGuard), [`RwSemWriteGuard`](crate::RwSemWriteGuard) and
/// [`MutexGuard`](crate::MutexGuard).
///
/// # Examples
/// It can become access to a part of the data:
/// ```
/// use fairlock::{Mutex, MutexGuard};
/// let lock = Mutex::new((1, "one"));
/// let mut number = MutexGuard::map(lock.lock(), |it| &mut it.0);
/// *number = 2;
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct ExclusiveGuard<'a, T: ?Sized, R: Exclusive> {
    lock: &'a R,
    data: NonNull<T>,
    hold: ManuallyDrop<ExclusiveHold<R>>,
    borrow: PhantomData<&'a mut T>,
}

// SAFETY: it gives no more access than the `&mut T` that it stands for, and the `&T` that it may become by a downgrade, beside
// those of other threads: hence `Sync`. Its hold says itself whether it may go to another thread.
unsafe impl<T: ?Sized + Send + Sync, R: Exclusive + Sync> Send for ExclusiveGuard<'_, T, R> where
    ExclusiveHold<R>: Send
{
}
// SAFETY: a shared reference to it is a `&T`.
unsafe impl<T: ?Sized + Sync, R: Exclusive + Sync> Sync for ExclusiveGuard<'_, T, R> {}

impl<'a, T: ?Sized, R: Exclusive> ExclusiveGuard<'a, T, R> {
    /// # Safety
    /// `data` is what `lock` protects, and borrowed for `'a`. The caller has this hold of `lock`.
    #[inline(always)]
    pub(crate) unsafe fn new(lock: &'a R, data: *mut T, hold: ExclusiveHold<R>) -> Self {
        // SAFETY: not null, as the caller promises.
        let data = unsafe { NonNull::new_unchecked(data) };
        ExclusiveGuard { lock, data, hold: ManuallyDrop::new(hold), borrow: PhantomData }
    }

    /// Takes the guard apart without releasing.
    #[inline(always)]
    fn into_parts(self) -> (&'a R, NonNull<T>, ExclusiveHold<R>) {
        let mut guard = ManuallyDrop::new(self);
        // SAFETY: taken once, as the guard is not dropped.
        let hold = unsafe { ManuallyDrop::take(&mut guard.hold) };
        (guard.lock, guard.data, hold)
    }

    /// The lock without its data.
    #[inline(always)]
    pub(crate) fn raw(&self) -> &'a R {
        self.lock
    }

    /// The data, locked for as long as the lock lives.
    #[inline]
    pub fn leak(guard: Self) -> &'a mut T {
        let (_, mut data, _) = guard.into_parts();
        // SAFETY: the hold is forgotten, so nobody else ever gets access while the lock is borrowed.
        unsafe { data.as_mut() }
    }
}

maps_its_data!(ExclusiveGuard<Exclusive> => MappedExclusiveGuard [mut]);
releases_its_lock!(['a, T: ?Sized, R: Exclusive] ExclusiveGuard<'a, T, R>, ExclusiveHold<R>, |lock| lock);

impl<'a, T: ?Sized, R: Guarded> ExclusiveGuard<'a, T, R> {
    /// Becomes a read guard, without releasing the lock in between. Readers that wait may be let in.
    ///
    /// ```
    /// use fairlock::{RwLock, RwLockWriteGuard};
    /// let lock = RwLock::new(1);
    /// let mut guard = lock.write();
    /// *guard += 1;
    /// let guard = RwLockWriteGuard::downgrade(guard);
    /// assert_eq!((*guard, *lock.try_read().unwrap()), (2, 2));
    /// ```
    pub fn downgrade(guard: Self) -> SharedGuard<'a, T, R> {
        let (lock, data, hold) = guard.into_parts();
        // SAFETY: the guard had this hold of `lock`, which protects the data.
        unsafe { SharedGuard::new(lock, data.as_ptr(), hold.downgrade(lock)) }
    }

    /// Becomes an upgradable guard, without releasing the lock in between.
    pub fn downgrade_to_upgradable(guard: Self) -> UpgradableGuard<'a, T, R> {
        let (lock, data, hold) = guard.into_parts();
        // SAFETY: the guard had this hold of `lock`, which protects the data.
        unsafe { UpgradableGuard::new(lock, data.as_ptr(), hold.downgrade_to_upgradable(lock)) }
    }
}

impl<T: ?Sized, R: Exclusive> Deref for ExclusiveGuard<'_, T, R> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held exclusively, so only this guard gives access.
        unsafe { self.data.as_ref() }
    }
}

impl<T: ?Sized, R: Exclusive> DerefMut for ExclusiveGuard<'_, T, R> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { self.data.as_mut() }
    }
}

impl<T: ?Sized, R: Exclusive> Drop for ExclusiveGuard<'_, T, R> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: taken once, as nobody uses a guard after its destructor, and this is its hold.
        unsafe { ManuallyDrop::take(&mut self.hold).release(self.lock) };
    }
}

shows_its_data!([T: ?Sized, R: Exclusive] ExclusiveGuard<'_, T, R>, T);

/// Exclusive access to a part of what a lock protects; releases the lock when dropped. Made by
/// [`ExclusiveGuard::map`].
#[must_use = "the lock is released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct MappedExclusiveGuard<'a, T: ?Sized, R: Exclusive> {
    lock: &'a R,
    data: NonNull<T>,
    hold: ManuallyDrop<ExclusiveHold<R>>,
    borrow: PhantomData<&'a mut T>,
}

// SAFETY: as for `ExclusiveGuard`, but it becomes nothing else.
unsafe impl<T: ?Sized + Send, R: Exclusive + Sync> Send for MappedExclusiveGuard<'_, T, R> where
    ExclusiveHold<R>: Send
{
}
// SAFETY: a shared reference to it is a `&T`.
unsafe impl<T: ?Sized + Sync, R: Exclusive + Sync> Sync for MappedExclusiveGuard<'_, T, R> {}

impl<'a, T: ?Sized, R: Exclusive> MappedExclusiveGuard<'a, T, R> {
    #[inline(always)]
    fn into_parts(self) -> (&'a R, ExclusiveHold<R>) {
        let mut guard = ManuallyDrop::new(self);
        // SAFETY: taken once, as the guard is not dropped.
        let hold = unsafe { ManuallyDrop::take(&mut guard.hold) };
        (guard.lock, hold)
    }

    /// As [`ExclusiveGuard::unlock_fair`].
    #[inline]
    pub fn unlock_fair(guard: Self) {
        let (lock, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        unsafe { hold.release_fair(lock) };
    }
}

maps_its_data!(MappedExclusiveGuard<Exclusive> => MappedExclusiveGuard [mut]);

impl<T: ?Sized, R: Exclusive> Deref for MappedExclusiveGuard<'_, T, R> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held exclusively, so only this guard gives access to this part.
        unsafe { self.data.as_ref() }
    }
}

impl<T: ?Sized, R: Exclusive> DerefMut for MappedExclusiveGuard<'_, T, R> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { self.data.as_mut() }
    }
}

impl<T: ?Sized, R: Exclusive> Drop for MappedExclusiveGuard<'_, T, R> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: taken once, as nobody uses a guard after its destructor, and this is its hold.
        unsafe { ManuallyDrop::take(&mut self.hold).release(self.lock) };
    }
}

shows_its_data!([T: ?Sized, R: Exclusive] MappedExclusiveGuard<'_, T, R>, T);
