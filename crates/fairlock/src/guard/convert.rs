//! How a guard changes the way in which it holds its lock.

use core::mem::{ManuallyDrop, forget};
use std::time::{Duration, Instant};

use super::{Guard, Whole, WithoutHold};
use crate::hold::{Exclusive, Hold, Limit, Shared, Upgradable};
use crate::raw::{RawReadWriteLock, Wait};

/// Of write guards of a reader-writer lock, but mapped ones.
impl<P: Whole<Raw = R>, R: RawReadWriteLock> Guard<Exclusive, P, R> {
    /// Becomes a read guard, without releasing the lock in between. Readers that wait may be let
    /// in.
    ///
    /// ```
    /// use fairlock::{RwLock, RwLockWriteGuard};
    /// let lock = RwLock::new(1);
    /// let mut guard = lock.write();
    /// *guard += 1;
    /// let guard = RwLockWriteGuard::downgrade(guard);
    /// assert_eq!((*guard, *lock.try_read().unwrap()), (2, 2));
    /// ```
    pub fn downgrade(guard: Self) -> Guard<Shared, P::Reads, R> {
        let (place, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        unsafe {
            let hold = hold.downgrade(place.raw());
            Guard::new(place.into_reads(), hold)
        }
    }

    /// Becomes an upgradable guard, without releasing the lock in between.
    pub fn downgrade_to_upgradable(guard: Self) -> Guard<Upgradable, P, R> {
        let (place, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        unsafe {
            let hold = hold.downgrade_to_upgradable(place.raw());
            Guard::new(place, hold)
        }
    }
}

/// Of upgradable guards.
impl<P: Whole<Raw = R>, R: RawReadWriteLock> Guard<Upgradable, P, R> {
    /// Waits for the readers to leave, and becomes a write guard. No thread writes in between.
    ///
    /// # Panics
    /// In debug builds, if this thread also reads the lock: it would wait for itself for ever.
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
    pub fn upgrade(guard: Self) -> Guard<Exclusive, P, R> {
        match Self::upgrade_within(guard, Wait::ForEver) {
            Ok(guard) => guard,
            Err(_) => unreachable!("a wait for ever ends with the lock"),
        }
    }

    /// Becomes a write guard if no other thread reads.
    ///
    /// # Errors
    /// The guard, if another thread reads.
    #[track_caller]
    pub fn try_upgrade(guard: Self) -> Result<Guard<Exclusive, P, R>, Self> {
        Self::upgrade_within(guard, Wait::Not)
    }

    /// As [`upgrade`](Self::upgrade), but gives up after `timeout`.
    ///
    /// # Errors
    /// The guard, if the time is over.
    #[track_caller]
    pub fn try_upgrade_for(guard: Self, timeout: Duration) -> Result<Guard<Exclusive, P, R>, Self> {
        Self::upgrade_within(guard, Limit::For(timeout).wait::<R::Platform>())
    }

    /// As [`upgrade`](Self::upgrade), but gives up at `instant`.
    ///
    /// # Errors
    /// The guard, if the time is over.
    #[track_caller]
    pub fn try_upgrade_until(
        guard: Self,
        instant: Instant,
    ) -> Result<Guard<Exclusive, P, R>, Self> {
        Self::upgrade_within(guard, Limit::Until(instant).wait::<R::Platform>())
    }

    #[track_caller]
    fn upgrade_within(guard: Self, wait: Wait) -> Result<Guard<Exclusive, P, R>, Self> {
        Hold::check_upgrade(guard.place.raw(), wait);
        let (place, hold) = guard.into_parts();
        // SAFETY: the guard had this hold, and the next one has what the attempt has left of it.
        unsafe {
            match hold.upgrade(place.raw(), wait) {
                Ok(hold) => Ok(Guard::new(place, hold)),
                Err(hold) => Err(Guard::new(place, hold)),
            }
        }
    }

    /// Upgrades while `change` runs, and is an upgradable guard again afterwards, also if `change`
    /// panics. A method, as in lock_api.
    #[track_caller]
    pub fn with_upgraded<U, F>(&mut self, change: F) -> U
    where
        F: FnOnce(&mut P::Data) -> U,
    {
        self.upgraded_within(Wait::ForEver, change).expect("a wait for ever ends with the lock")
    }

    /// As [`with_upgraded`](Self::with_upgraded), if no other thread reads; otherwise `change` does
    /// not run.
    pub fn try_with_upgraded<U, F>(&mut self, change: F) -> Option<U>
    where
        F: FnOnce(&mut P::Data) -> U,
    {
        self.upgraded_within(Wait::Not, change)
    }

    /// As [`with_upgraded`](Self::with_upgraded), but gives up after `timeout`; then `change` does
    /// not run.
    #[track_caller]
    pub fn try_with_upgraded_for<U, F>(&mut self, timeout: Duration, change: F) -> Option<U>
    where
        F: FnOnce(&mut P::Data) -> U,
    {
        self.upgraded_within(Limit::For(timeout).wait::<R::Platform>(), change)
    }

    /// As [`with_upgraded`](Self::with_upgraded), but gives up at `instant`; then `change` does not
    /// run.
    #[track_caller]
    pub fn try_with_upgraded_until<U, F>(&mut self, instant: Instant, change: F) -> Option<U>
    where
        F: FnOnce(&mut P::Data) -> U,
    {
        self.upgraded_within(Limit::Until(instant).wait::<R::Platform>(), change)
    }

    #[track_caller]
    fn upgraded_within<U>(
        &mut self,
        wait: Wait,
        change: impl FnOnce(&mut P::Data) -> U,
    ) -> Option<U> {
        /// Puts an upgradable hold back into the guard.
        struct Back<'g, P: Whole<Raw = R>, R: RawReadWriteLock> {
            guard: &'g mut Guard<Upgradable, P, R>,
            hold: ManuallyDrop<Hold<R, Exclusive>>,
        }

        impl<P: Whole<Raw = R>, R: RawReadWriteLock> Drop for Back<'_, P, R> {
            fn drop(&mut self) {
                // SAFETY: taken once, as this is not used after its destructor; it is a hold of
                // this lock.
                let hold = unsafe {
                    ManuallyDrop::take(&mut self.hold)
                        .downgrade_to_upgradable(self.guard.place.raw())
                };
                self.guard.hold = ManuallyDrop::new(hold);
            }
        }

        Hold::check_upgrade(self.place.raw(), wait);
        // SAFETY: another hold comes into its place before the guard is used, which is borrowed
        // until then.
        let hold = unsafe { ManuallyDrop::take(&mut self.hold) };
        let without_hold = WithoutHold;
        // SAFETY: the guard had this hold.
        let upgraded = unsafe { hold.upgrade(self.place.raw(), wait) };
        forget(without_hold);
        match upgraded {
            Ok(hold) => {
                let back = Back { guard: self, hold: ManuallyDrop::new(hold) };
                // SAFETY: the lock is held exclusively while `back` lives.
                Some(change(unsafe { back.guard.place.data().as_mut() }))
            }
            Err(hold) => {
                self.hold = ManuallyDrop::new(hold);
                None
            }
        }
    }

    /// Becomes a read guard, without releasing the lock in between.
    pub fn downgrade(guard: Self) -> Guard<Shared, P::Reads, R> {
        let (place, hold) = guard.into_parts();
        // SAFETY: the guard had this hold.
        unsafe {
            let hold = hold.downgrade(place.raw());
            Guard::new(place.into_reads(), hold)
        }
    }
}
