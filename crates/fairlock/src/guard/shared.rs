//! Guards of shared holds.

use core::convert::Infallible;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;

use super::{WithoutHold, maps_its_data, releases_its_lock, shows_its_data};
use crate::guarded::{Guarded, SharedHold};

/// Shared access to what a reader-writer lock protects; releases when dropped. Named
/// [`RwLockReadGuard`](crate::RwLockReadGuard), [`RwSemReadGuard`](crate::RwSemReadGuard).
///
/// # Examples
/// It can become access to a part of the data:
/// ```
/// use fairlock::{RwLock, RwLockReadGuard};
/// let lock = RwLock::new((1, "one"));
/// let name = RwLockReadGuard::map(lock.read(), |it| &it.1);
/// assert_eq!(*name, "one");
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct SharedGuard<'a, T: ?Sized, R: Guarded> {
    lock: &'a R,
    data: NonNull<T>,
    hold: ManuallyDrop<SharedHold<R>>,
    borrow: PhantomData<&'a T>,
}

// SAFETY: it gives no more access than the `&T` that it stands for, and its hold says itself whether it may go to
// another thread.
unsafe impl<T: ?Sized + Sync, R: Guarded + Sync> Send for SharedGuard<'_, T, R> where
    SharedHold<R>: Send
{
}
// SAFETY: a shared reference to it is a `&T`.
unsafe impl<T: ?Sized + Sync, R: Guarded + Sync> Sync for SharedGuard<'_, T, R> {}

impl<'a, T: ?Sized, R: Guarded> SharedGuard<'a, T, R> {
    /// # Safety
    /// `data` is what `lock` protects, and borrowed for `'a`. The caller has this hold of `lock`.
    #[inline(always)]
    pub(crate) unsafe fn new(lock: &'a R, data: *mut T, hold: SharedHold<R>) -> Self {
        // SAFETY: not null, as the caller promises.
        let data = unsafe { NonNull::new_unchecked(data) };
        SharedGuard { lock, data, hold: ManuallyDrop::new(hold), borrow: PhantomData }
    }

    /// Takes the guard apart without releasing.
    #[inline(always)]
    fn into_parts(self) -> (&'a R, NonNull<T>, SharedHold<R>) {
        let mut guard = ManuallyDrop::new(self);
        // SAFETY: taken once, as the guard is not dropped.
        let hold = unsafe { ManuallyDrop::take(&mut guard.hold) };
        (guard.lock, guard.data, hold)
    }
}

maps_its_data!(SharedGuard<Guarded> => MappedSharedGuard []);
releases_its_lock!(['a, T: ?Sized, R: Guarded] SharedGuard<'a, T, R>, SharedHold<R>, |lock| lock);

impl<T: ?Sized, R: Guarded> Deref for SharedGuard<'_, T, R> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held shared, so nobody changes the data.
        unsafe { self.data.as_ref() }
    }
}

impl<T: ?Sized, R: Guarded> Drop for SharedGuard<'_, T, R> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: taken once, as nobody uses a guard after its destructor, and this is its hold.
        unsafe { ManuallyDrop::take(&mut self.hold).release(self.lock) };
    }
}

shows_its_data!([T: ?Sized, R: Guarded] SharedGuard<'_, T, R>, T);

/// Shared access to a part of what a reader-writer lock protects; releases the lock when dropped. Made by
/// [`SharedGuard::map`].
#[must_use = "the lock is released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct MappedSharedGuard<'a, T: ?Sized, R: Guarded> {
    lock: &'a R,
    data: NonNull<T>,
    hold: ManuallyDrop<SharedHold<R>>,
    borrow: PhantomData<&'a T>,
}

// SAFETY: as for `SharedGuard`.
unsafe impl<T: ?Sized + Sync, R: Guarded + Sync> Send for MappedSharedGuard<'_, T, R> where
    SharedHold<R>: Send
{
}
// SAFETY: a shared reference to it is a `&T`.
unsafe impl<T: ?Sized + Sync, R: Guarded + Sync> Sync for MappedSharedGuard<'_, T, R> {}

impl<'a, T: ?Sized, R: Guarded> MappedSharedGuard<'a, T, R> {
    #[inline(always)]
    fn into_parts(self) -> (&'a R, SharedHold<R>) {
        let mut guard = ManuallyDrop::new(self);
        // SAFETY: taken once, as the guard is not dropped.
        let hold = unsafe { ManuallyDrop::take(&mut guard.hold) };
        (guard.lock, hold)
    }

    /// As [`SharedGuard::unlock_fair`].
    #[inline]
    pub fn unlock_fair(guard: Self) {
        let (lock, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        unsafe { hold.release_fair(lock) };
    }
}

maps_its_data!(MappedSharedGuard<Guarded> => MappedSharedGuard []);

impl<T: ?Sized, R: Guarded> Deref for MappedSharedGuard<'_, T, R> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held shared, so nobody changes the data.
        unsafe { self.data.as_ref() }
    }
}

impl<T: ?Sized, R: Guarded> Drop for MappedSharedGuard<'_, T, R> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: taken once, as nobody uses a guard after its destructor, and this is its hold.
        unsafe { ManuallyDrop::take(&mut self.hold).release(self.lock) };
    }
}

shows_its_data!([T: ?Sized, R: Guarded] MappedSharedGuard<'_, T, R>, T);
