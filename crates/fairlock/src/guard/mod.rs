//! Guards: access to what a lock protects, for as long as they live.
//!
//! Every lock has its guards under names of its own, such as [`RwLockReadGuard`](crate::RwLockReadGuard) and
//! [`MutexGuard`](crate::MutexGuard). All of them are one type, [`Guard`], which says how the lock is held and how the guard
//! knows it:
//!
//! | guard | borrows the lock | owns an [`Arc`] of it |
//! |---|---|---|
//! | shared | [`SharedGuard`], [`MappedSharedGuard`] | [`ArcSharedGuard`] |
//! | upgradable | [`UpgradableGuard`] | [`ArcUpgradableGuard`] |
//! | exclusive | [`ExclusiveGuard`], [`MappedExclusiveGuard`] | [`ArcExclusiveGuard`] |
//!
//! A guard releases its lock when it is dropped, including while a panic unwinds. One that is forgotten leaves the lock locked. The
//! functions below take the guard as an argument instead of as `self`, so that they hide no method of the data.
//!
//! # Which guards may change threads
//! None by default: a guard must be dropped by the thread that acquired the lock. The compiler refuses anything else
//! and names [`GuardStaysOnItsThread`]:
//! ```compile_fail,E0277
//! let lock = fairlock::RwLock::new(1);
//! let guard = lock.read();
//! std::thread::scope(|scope| {
//!     scope.spawn(move || drop(guard)); // error: … cannot be sent between threads safely
//! });
//! ```
//! With the Cargo feature `send_guard`, as parking_lot calls it, guards of [`RwSem`](crate::RwSem) may. Debug builds and
//! `deadlock_detection` then do not see deadlocks in which an `RwSem` takes part, as nobody knows whose its holds are.
#![cfg_attr(feature = "send_guard", doc = "```")]
#![cfg_attr(not(feature = "send_guard"), doc = "```compile_fail,E0277")]
//! let lock = fairlock::RwSem::new(1);
//! let guard = lock.read();
//! std::thread::scope(|scope| {
//!     scope.spawn(move || drop(guard));
//! });
//! assert!(lock.try_write().is_some());
//! ```
//!
//! What such a guard gives access to has to be `Send` and `Sync`, also if the guard is exclusive: it can become a shared one.
//! ```compile_fail,E0277
//! let lock = fairlock::RwSem::new(std::cell::Cell::new(1));
//! let guard = lock.write();
//! std::thread::scope(|scope| {
//!     scope.spawn(move || drop(fairlock::RwSemWriteGuard::downgrade(guard)));
//! });
//! ```
//!
//! # Variance
//! Shared guards are covariant, as references are: a guard of a long life is also one of a short life.
//! ```
//! use fairlock::RwLockReadGuard;
//! fn shorter<'short>(guard: RwLockReadGuard<'short, &'static str>) -> RwLockReadGuard<'short, &'short str> {
//!     guard
//! }
//! let lock = fairlock::RwLock::new("forever");
//! assert_eq!(*shorter(lock.read()), "forever");
//! ```

mod convert;
mod map;
mod place;

use core::fmt;
use core::mem::{ManuallyDrop, forget};
use core::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::hold::{Exclusive, Hold, Limit, Mode, Shared, Upgradable};
pub use crate::raw::{GuardMayChangeThreads, GuardStaysOnItsThread};
use crate::raw::{RawLock, ReadRecursive, Wait};
pub(crate) use place::{Borrowed, Borrows, Lock, Place, Reads, Through, Whole, Writes};

/// Access to what a lock protects; releases the lock when dropped.
///
/// `P` is how the guard knows the lock and the data, `R` the lock without its data, `M` how it is held.
#[must_use = "the lock is released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct Guard<P: Place<Raw = R>, R: RawLock, M: Mode<R>> {
    place: ManuallyDrop<P>,
    hold: ManuallyDrop<Hold<R, M>>,
}

/// Shared access to what a reader-writer lock protects. Named [`RwLockReadGuard`](crate::RwLockReadGuard),
/// [`RwSemReadGuard`](crate::RwSemReadGuard).
///
/// # Examples
/// It can become access to a part of the data:
/// ```
/// use fairlock::{RwLock, RwLockReadGuard};
/// let lock = RwLock::new((1, "one"));
/// let name = RwLockReadGuard::map(lock.read(), |it| &it.1);
/// assert_eq!(*name, "one");
/// ```
pub type SharedGuard<'a, T, R> = Guard<Borrowed<'a, T, R, Reads<'a, T>>, R, Shared>;

/// Shared access to a part of what a reader-writer lock protects. Made by [`SharedGuard::map`].
pub type MappedSharedGuard<'a, T, R> = Guard<Borrowed<'a, T, R, &'a T>, R, Shared>;

/// Exclusive access to what a lock protects. Named [`RwLockWriteGuard`](crate::RwLockWriteGuard),
/// [`RwSemWriteGuard`](crate::RwSemWriteGuard) and [`MutexGuard`](crate::MutexGuard).
///
/// # Examples
/// It can become access to a part of the data:
/// ```
/// use fairlock::{Mutex, MutexGuard};
/// let lock = Mutex::new((1, "one"));
/// let mut number = MutexGuard::map(lock.lock(), |it| &mut it.0);
/// *number = 2;
/// ```
pub type ExclusiveGuard<'a, T, R> = Guard<Borrowed<'a, T, R, Writes<'a, T>>, R, Exclusive>;

/// Exclusive access to a part of what a lock protects. Made by [`ExclusiveGuard::map`].
pub type MappedExclusiveGuard<'a, T, R> = Guard<Borrowed<'a, T, R, &'a mut T>, R, Exclusive>;

/// Shared access that can become exclusive without a release in between; one at a time, next to plain readers. Named
/// [`RwLockUpgradableReadGuard`](crate::RwLockUpgradableReadGuard),
/// [`RwSemUpgradableReadGuard`](crate::RwSemUpgradableReadGuard).
pub type UpgradableGuard<'a, T, R> = Guard<Borrowed<'a, T, R, Writes<'a, T>>, R, Upgradable>;

/// Shared access to what a reader-writer lock protects, with an [`Arc`] of the lock. Named
/// [`ArcRwLockReadGuard`](crate::ArcRwLockReadGuard), [`ArcRwSemReadGuard`](crate::ArcRwSemReadGuard).
pub type ArcSharedGuard<L> = Guard<Through<Arc<L>, <L as Lock>::Data>, <L as Lock>::Raw, Shared>;

/// Shared access that can become exclusive, with an [`Arc`] of the lock. Named
/// [`ArcRwLockUpgradableReadGuard`](crate::ArcRwLockUpgradableReadGuard),
/// [`ArcRwSemUpgradableReadGuard`](crate::ArcRwSemUpgradableReadGuard).
pub type ArcUpgradableGuard<L> =
    Guard<Through<Arc<L>, <L as Lock>::Data>, <L as Lock>::Raw, Upgradable>;

/// Exclusive access to what a lock protects, with an [`Arc`] of the lock. Named
/// [`ArcRwLockWriteGuard`](crate::ArcRwLockWriteGuard), [`ArcRwSemWriteGuard`](crate::ArcRwSemWriteGuard) and
/// [`ArcMutexGuard`](crate::ArcMutexGuard).
pub type ArcExclusiveGuard<L> =
    Guard<Through<Arc<L>, <L as Lock>::Data>, <L as Lock>::Raw, Exclusive>;

impl<P: Place<Raw = R>, R: RawLock, M: Mode<R>> Guard<P, R, M> {
    /// # Safety
    /// The caller has this hold of the lock.
    #[inline(always)]
    unsafe fn new(place: P, hold: Hold<R, M>) -> Self {
        Guard { place: ManuallyDrop::new(place), hold: ManuallyDrop::new(hold) }
    }

    /// Waits for as long as it takes.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn acquire(place: P) -> Self {
        let hold = Hold::acquire(place.raw());
        // SAFETY: acquired.
        unsafe { Self::new(place, hold) }
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn try_acquire(place: P) -> Option<Self> {
        let hold = Hold::acquire_within(place.raw(), Wait::Not)?;
        // SAFETY: acquired.
        Some(unsafe { Self::new(place, hold) })
    }

    #[track_caller]
    pub(crate) fn acquire_within(place: P, limit: Limit) -> Option<Self> {
        let hold = Hold::acquire_within(place.raw(), limit.wait::<R::Platform>())?;
        // SAFETY: acquired.
        Some(unsafe { Self::new(place, hold) })
    }

    /// A guard in place of one that was forgotten.
    ///
    /// # Safety
    /// The caller has forgotten such a guard of the lock, on this thread unless it may change threads, and uses this as that one.
    pub(crate) unsafe fn recover(place: P) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            let hold = Hold::recover(place.raw());
            Self::new(place, hold)
        }
    }

    /// Takes the guard apart without releasing.
    #[inline(always)]
    fn into_parts(self) -> (P, Hold<R, M>) {
        let mut guard = ManuallyDrop::new(self);
        // SAFETY: taken once, as the guard is not dropped.
        unsafe { (ManuallyDrop::take(&mut guard.place), ManuallyDrop::take(&mut guard.hold)) }
    }

    /// Releases the lock.
    #[inline(always)]
    pub(crate) fn release(self, fair: bool) -> P {
        let (place, hold) = self.into_parts();
        // SAFETY: the guard had this hold.
        unsafe { hold.release(place.raw(), fair) };
        place
    }

    /// Releases the lock and hands it to waiting threads, if there are any, before another can take it: a mutex to the one that
    /// has waited longest, a reader-writer lock to readers after a writer and to a writer after readers, whichever asked first.
    /// Waiting threads get the lock in any case; a fair unlock gives it to them now.
    #[inline]
    pub fn unlock_fair(guard: Self) {
        guard.release(true);
    }

    pub(crate) fn place(&self) -> &P {
        &self.place
    }
}

impl<P: Place<Raw = R>, R: ReadRecursive> Guard<P, R, Shared> {
    #[track_caller]
    pub(crate) fn acquire_recursively(place: P) -> Self {
        Self::enter_recursively(place, Wait::ForEver).expect("a wait for ever ends with the lock")
    }

    #[track_caller]
    pub(crate) fn try_acquire_recursively(place: P) -> Option<Self> {
        Self::enter_recursively(place, Wait::Not)
    }

    #[track_caller]
    pub(crate) fn acquire_recursively_within(place: P, limit: Limit) -> Option<Self> {
        Self::enter_recursively(place, limit.wait::<R::Platform>())
    }

    #[track_caller]
    fn enter_recursively(place: P, wait: Wait) -> Option<Self> {
        let hold = Hold::acquire_recursively(place.raw(), wait)?;
        // SAFETY: acquired.
        Some(unsafe { Self::new(place, hold) })
    }
}

impl<P: Whole<Raw = R>, R: RawLock, M: Mode<R>> Guard<P, R, M> {
    /// Releases the lock while `act` runs, and acquires it again afterwards, also if `act` panics. Others may
    /// have changed the data by then.
    ///
    /// # Panics
    /// If `act` does, and as a first acquisition does. Debug builds also panic, before anything is released, if the
    /// thread has another guard of the lock with which the second acquisition would be a deadlock. If the second acquisition
    /// panics for any other reason, the process ends after the message, as the guard would be one of a lock that it does not hold.
    #[track_caller]
    pub fn unlocked<F, U>(guard: &mut Self, act: F) -> U
    where
        F: FnOnce() -> U,
    {
        guard.release_during(false, act)
    }

    /// As [`unlocked`](Self::unlocked), after a [fair unlock](Self::unlock_fair).
    #[track_caller]
    pub fn unlocked_fair<F, U>(guard: &mut Self, act: F) -> U
    where
        F: FnOnce() -> U,
    {
        guard.release_during(true, act)
    }

    /// Lets those that wait have their turn: releases the lock fairly, and acquires it again. Meant for the middle
    /// of long sections. Panics as [`unlocked`](Self::unlocked) does.
    #[track_caller]
    pub fn bump(guard: &mut Self) {
        guard.release_during(true, || ());
    }

    #[track_caller]
    fn release_during<U>(&mut self, fair: bool, act: impl FnOnce() -> U) -> U {
        let lock = self.place.raw();
        self.hold.check_return(lock);
        // SAFETY: another hold comes into its place before the guard is used, which is borrowed until then.
        let hold = unsafe { ManuallyDrop::take(&mut self.hold) };
        // SAFETY: the guard had this hold.
        unsafe { hold.release(lock, fair) };
        // The panic is caught, not left to a destructor, as the caller of a destructor is no line of the program.
        let result = catch_unwind(AssertUnwindSafe(act));
        let without_hold = WithoutHold;
        self.hold = ManuallyDrop::new(Hold::acquire(lock));
        forget(without_hold);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// While a guard has no hold that its destructor could release. If the lock cannot be acquired again, which panics, the
/// process ends, after the panic's message.
struct WithoutHold;

impl Drop for WithoutHold {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl<'a, T: ?Sized, R: RawLock> ExclusiveGuard<'a, T, R> {
    /// The data, locked for as long as the lock lives.
    #[inline]
    pub fn leak(guard: Self) -> &'a mut T {
        let (place, _) = guard.into_parts();
        // SAFETY: the hold is forgotten, so no other thread ever gets access while the lock is borrowed.
        unsafe { place.data().as_mut() }
    }
}

impl<L: Lock<Raw = R> + ?Sized, R: RawLock, M: Mode<R>> Guard<Through<Arc<L>, L::Data>, R, M> {
    /// The lock.
    pub fn lock(guard: &Self) -> &Arc<L> {
        guard.place.lock()
    }

    /// Releases the lock and returns the `Arc`.
    pub fn into_arc(guard: Self) -> Arc<L> {
        guard.release(false).into_lock()
    }

    /// As [`into_arc`](Self::into_arc), by a [fair unlock](Self::unlock_fair).
    pub fn into_arc_fair(guard: Self) -> Arc<L> {
        guard.release(true).into_lock()
    }
}

impl<P: Place<Raw = R>, R: RawLock, M: Mode<R>> Deref for Guard<P, R, M> {
    type Target = P::Data;

    #[inline(always)]
    fn deref(&self) -> &P::Data {
        // SAFETY: the lock is held, so no other thread changes the data.
        unsafe { self.place.data().as_ref() }
    }
}

impl<P: Place<Raw = R>, R: RawLock> DerefMut for Guard<P, R, Exclusive> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut P::Data {
        // SAFETY: the lock is held exclusively, so only this guard gives access to this data.
        unsafe { self.place.data().as_mut() }
    }
}

impl<P: Place<Raw = R>, R: RawLock, M: Mode<R>> Drop for Guard<P, R, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: both are taken once, as a guard is not used after its destructor; this is its hold.
        unsafe {
            ManuallyDrop::take(&mut self.hold).release(self.place.raw(), false);
            ManuallyDrop::drop(&mut self.place);
        }
    }
}

impl<P, R: RawLock, M: Mode<R>> fmt::Debug for Guard<P, R, M>
where
    P: Place<Raw = R, Data: fmt::Debug>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<P, R: RawLock, M: Mode<R>> fmt::Display for Guard<P, R, M>
where
    P: Place<Raw = R, Data: fmt::Display>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
