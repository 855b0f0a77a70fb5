//! Guards of shared holds.

use core::marker::PhantomData;
use core::mem::{ManuallyDrop, forget};
use core::ops::Deref;
use core::ptr::NonNull;

use super::{WithoutHold, shows_its_data};
use crate::guarded::{Guarded, SharedHold};

/// Shared access to what a reader-writer lock protects; releases when dropped. Named
/// [`RwLockReadGuard`](crate::RwLockReadGuard), [`RwSemReadGuard`](crate::RwSemReadGuard).
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

    /// Access to a part of the data.
    ///
    /// ```
    /// use fairlock::{RwLock, RwLockReadGuard};
    /// let lock = RwLock::new((1, "one"));
    /// let name = RwLockReadGuard::map(lock.read(), |it| &it.1);
    /// assert_eq!(*name, "one");
    /// ```
    #[inline]
    pub fn map<U: ?Sized, F>(guard: Self, part: F) -> MappedSharedGuard<'a, U, R>
    where
        F: FnOnce(&T) -> &U,
    {
        let part = NonNull::from(part(&guard));
        let (lock, _, hold) = guard.into_parts();
        MappedSharedGuard { lock, data: part, hold: ManuallyDrop::new(hold), borrow: PhantomData }
    }

    /// Access to a part of the data, if there is one.
    ///
    /// # Errors
    /// The guard, if there is none.
    #[inline]
    pub fn try_map<U: ?Sized, F>(guard: Self, part: F) -> Result<MappedSharedGuard<'a, U, R>, Self>
    where
        F: FnOnce(&T) -> Option<&U>,
    {
        Self::try_map_or_err(guard, |data| part(data).ok_or(())).map_err(|(guard, ())| guard)
    }

    /// As [`try_map`](Self::try_map), and says why there is no such part.
    ///
    /// # Errors
    /// The guard, and what `part` says.
    #[inline]
    pub fn try_map_or_err<U: ?Sized, F, E>(
        guard: Self,
        part: F,
    ) -> Result<MappedSharedGuard<'a, U, R>, (Self, E)>
    where
        F: FnOnce(&T) -> Result<&U, E>,
    {
        let part = match part(&guard) {
            Ok(part) => NonNull::from(part),
            Err(error) => return Err((guard, error)),
        };
        let (lock, _, hold) = guard.into_parts();
        let hold = ManuallyDrop::new(hold);
        Ok(MappedSharedGuard { lock, data: part, hold, borrow: PhantomData })
    }

    /// Releases the lock and hands it to those that have waited for longest, instead of leaving it to whoever comes
    /// first. They are served in any case; this makes it now.
    #[inline]
    pub fn unlock_fair(guard: Self) {
        let (lock, _, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        unsafe { hold.release_fair(lock) };
    }

    /// Releases the lock while `act` runs, and acquires it again afterwards, also if `act` panics. The data may
    /// have changed by then.
    #[track_caller]
    pub fn unlocked<F, U>(guard: &mut Self, act: F) -> U
    where
        F: FnOnce() -> U,
    {
        Self::release_during(
            guard,
            |hold, lock| {
                // SAFETY: the guard had this hold.
                unsafe { hold.release(lock) }
            },
            act,
        )
    }

    /// As [`unlocked`](Self::unlocked), after a [fair unlock](Self::unlock_fair).
    #[track_caller]
    pub fn unlocked_fair<F, U>(guard: &mut Self, act: F) -> U
    where
        F: FnOnce() -> U,
    {
        Self::release_during(
            guard,
            |hold, lock| {
                // SAFETY: the guard had this hold.
                unsafe { hold.release_fair(lock) }
            },
            act,
        )
    }

    /// Lets those that wait have their turn: releases the lock fairly, and acquires it again. Does nothing else, and
    /// is meant for the middle of long reads.
    #[track_caller]
    pub fn bump(guard: &mut Self) {
        Self::unlocked_fair(guard, || ());
    }

    #[track_caller]
    fn release_during<U>(
        guard: &mut Self,
        release: impl FnOnce(SharedHold<R>, &R),
        act: impl FnOnce() -> U,
    ) -> U {
        struct Again<'g, 'a, T: ?Sized, R: Guarded>(&'g mut SharedGuard<'a, T, R>);

        impl<T: ?Sized, R: Guarded> Drop for Again<'_, '_, T, R> {
            #[track_caller]
            fn drop(&mut self) {
                let without_hold = WithoutHold;
                self.0.hold = ManuallyDrop::new(SharedHold::acquire(self.0.lock));
                forget(without_hold);
            }
        }

        // SAFETY: `again` puts another hold in its place before anybody uses the guard, which is borrowed until then.
        let hold = unsafe { ManuallyDrop::take(&mut guard.hold) };
        let again = Again(guard);
        release(hold, again.0.lock);
        act()
    }
}

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

    /// Access to a part of the part.
    #[inline]
    pub fn map<U: ?Sized, F>(guard: Self, part: F) -> MappedSharedGuard<'a, U, R>
    where
        F: FnOnce(&T) -> &U,
    {
        let part = NonNull::from(part(&guard));
        let (lock, hold) = guard.into_parts();
        MappedSharedGuard { lock, data: part, hold: ManuallyDrop::new(hold), borrow: PhantomData }
    }

    /// Access to a part of the part, if there is one.
    ///
    /// # Errors
    /// The guard, if there is none.
    #[inline]
    pub fn try_map<U: ?Sized, F>(guard: Self, part: F) -> Result<MappedSharedGuard<'a, U, R>, Self>
    where
        F: FnOnce(&T) -> Option<&U>,
    {
        Self::try_map_or_err(guard, |data| part(data).ok_or(())).map_err(|(guard, ())| guard)
    }

    /// As [`try_map`](Self::try_map), and says why there is no such part.
    ///
    /// # Errors
    /// The guard, and what `part` says.
    #[inline]
    pub fn try_map_or_err<U: ?Sized, F, E>(
        guard: Self,
        part: F,
    ) -> Result<MappedSharedGuard<'a, U, R>, (Self, E)>
    where
        F: FnOnce(&T) -> Result<&U, E>,
    {
        let part = match part(&guard) {
            Ok(part) => NonNull::from(part),
            Err(error) => return Err((guard, error)),
        };
        let (lock, hold) = guard.into_parts();
        let hold = ManuallyDrop::new(hold);
        Ok(MappedSharedGuard { lock, data: part, hold, borrow: PhantomData })
    }

    /// As [`SharedGuard::unlock_fair`].
    #[inline]
    pub fn unlock_fair(guard: Self) {
        let (lock, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        unsafe { hold.release_fair(lock) };
    }
}

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
