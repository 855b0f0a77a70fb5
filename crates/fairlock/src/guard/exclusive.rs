//! Guards of exclusive holds.

use core::marker::PhantomData;
use core::mem::{ManuallyDrop, forget};
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use super::{SharedGuard, UpgradableGuard, WithoutHold, shows_its_data};
use crate::guarded::{Exclusive, ExclusiveHold, Guarded};

/// Exclusive access to what a lock protects; releases when dropped. Named
/// [`RwLockWriteGuard`](crate::RwLockWriteGuard), [`RwSemWriteGuard`](crate::RwSemWriteGuard) and
/// [`MutexGuard`](crate::MutexGuard).
#[must_use = "the lock is released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct ExclusiveGuard<'a, T: ?Sized, R: Exclusive> {
    lock: &'a R,
    data: NonNull<T>,
    hold: ManuallyDrop<ExclusiveHold<R>>,
    borrow: PhantomData<&'a mut T>,
}

// SAFETY: it gives no more access than the `&mut T` that it stands for, and its hold says itself whether it may go to
// another thread.
unsafe impl<T: ?Sized + Send, R: Exclusive + Sync> Send for ExclusiveGuard<'_, T, R> where
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

    /// Access to a part of the data.
    ///
    /// ```
    /// use fairlock::{Mutex, MutexGuard};
    /// let lock = Mutex::new((1, "one"));
    /// let mut number = MutexGuard::map(lock.lock(), |it| &mut it.0);
    /// *number = 2;
    /// ```
    #[inline]
    pub fn map<U: ?Sized, F>(mut guard: Self, part: F) -> MappedExclusiveGuard<'a, U, R>
    where
        F: FnOnce(&mut T) -> &mut U,
    {
        let part = NonNull::from(part(&mut guard));
        let (lock, _, hold) = guard.into_parts();
        MappedExclusiveGuard {
            lock,
            data: part,
            hold: ManuallyDrop::new(hold),
            borrow: PhantomData,
        }
    }

    /// Access to a part of the data, if there is one.
    ///
    /// # Errors
    /// The guard, if there is none.
    #[inline]
    pub fn try_map<U: ?Sized, F>(
        guard: Self,
        part: F,
    ) -> Result<MappedExclusiveGuard<'a, U, R>, Self>
    where
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        Self::try_map_or_err(guard, |data| part(data).ok_or(())).map_err(|(guard, ())| guard)
    }

    /// As [`try_map`](Self::try_map), and says why there is no such part.
    ///
    /// # Errors
    /// The guard, and what `part` says.
    #[inline]
    pub fn try_map_or_err<U: ?Sized, F, E>(
        mut guard: Self,
        part: F,
    ) -> Result<MappedExclusiveGuard<'a, U, R>, (Self, E)>
    where
        F: FnOnce(&mut T) -> Result<&mut U, E>,
    {
        let part = match part(&mut guard) {
            Ok(part) => NonNull::from(part),
            Err(error) => return Err((guard, error)),
        };
        let (lock, _, hold) = guard.into_parts();
        let hold = ManuallyDrop::new(hold);
        Ok(MappedExclusiveGuard { lock, data: part, hold, borrow: PhantomData })
    }

    /// The data, locked for as long as the lock lives.
    #[inline]
    pub fn leak(guard: Self) -> &'a mut T {
        let (_, mut data, _) = guard.into_parts();
        // SAFETY: the hold is forgotten, so nobody else ever gets access while the lock is borrowed.
        unsafe { data.as_mut() }
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
    /// is meant for the middle of long sections.
    #[track_caller]
    pub fn bump(guard: &mut Self) {
        Self::unlocked_fair(guard, || ());
    }

    #[track_caller]
    fn release_during<U>(
        guard: &mut Self,
        release: impl FnOnce(ExclusiveHold<R>, &R),
        act: impl FnOnce() -> U,
    ) -> U {
        struct Again<'g, 'a, T: ?Sized, R: Exclusive>(&'g mut ExclusiveGuard<'a, T, R>);

        impl<T: ?Sized, R: Exclusive> Drop for Again<'_, '_, T, R> {
            #[track_caller]
            fn drop(&mut self) {
                let without_hold = WithoutHold;
                self.0.hold = ManuallyDrop::new(ExclusiveHold::acquire(self.0.lock));
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

// SAFETY: as for `ExclusiveGuard`.
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

    /// Access to a part of the part.
    #[inline]
    pub fn map<U: ?Sized, F>(mut guard: Self, part: F) -> MappedExclusiveGuard<'a, U, R>
    where
        F: FnOnce(&mut T) -> &mut U,
    {
        let part = NonNull::from(part(&mut guard));
        let (lock, hold) = guard.into_parts();
        MappedExclusiveGuard {
            lock,
            data: part,
            hold: ManuallyDrop::new(hold),
            borrow: PhantomData,
        }
    }

    /// Access to a part of the part, if there is one.
    ///
    /// # Errors
    /// The guard, if there is none.
    #[inline]
    pub fn try_map<U: ?Sized, F>(
        guard: Self,
        part: F,
    ) -> Result<MappedExclusiveGuard<'a, U, R>, Self>
    where
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        Self::try_map_or_err(guard, |data| part(data).ok_or(())).map_err(|(guard, ())| guard)
    }

    /// As [`try_map`](Self::try_map), and says why there is no such part.
    ///
    /// # Errors
    /// The guard, and what `part` says.
    #[inline]
    pub fn try_map_or_err<U: ?Sized, F, E>(
        mut guard: Self,
        part: F,
    ) -> Result<MappedExclusiveGuard<'a, U, R>, (Self, E)>
    where
        F: FnOnce(&mut T) -> Result<&mut U, E>,
    {
        let part = match part(&mut guard) {
            Ok(part) => NonNull::from(part),
            Err(error) => return Err((guard, error)),
        };
        let (lock, hold) = guard.into_parts();
        let hold = ManuallyDrop::new(hold);
        Ok(MappedExclusiveGuard { lock, data: part, hold, borrow: PhantomData })
    }

    /// As [`ExclusiveGuard::unlock_fair`].
    #[inline]
    pub fn unlock_fair(guard: Self) {
        let (lock, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        unsafe { hold.release_fair(lock) };
    }
}

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
