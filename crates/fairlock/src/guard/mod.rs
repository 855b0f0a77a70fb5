//! Guards: access to what a lock protects, for as long as they live.
//!
//! Every lock has its guards under names of its own, such as
//! [`RwLockReadGuard`](crate::RwLockReadGuard) and [`MutexGuard`](crate::MutexGuard). All of them
//! are aliases of one type, [`Guard`]. Its parameters say in which mode the lock is held and
//! whether the guard borrows the lock or owns an `Arc` of it:
//!
//! | mode | borrows the lock | owns an [`Arc`] of it | can be |
//! |---|---|---|---|
//! | [`Shared`] | [`SharedGuard`], [`MappedSharedGuard`] | [`ArcSharedGuard`] | mapped |
//! | [`Upgradable`] | [`UpgradableGuard`] | [`ArcUpgradableGuard`] | upgraded, downgraded |
//! | [`Exclusive`] | [`ExclusiveGuard`], [`MappedExclusiveGuard`] | [`ArcExclusiveGuard`] | mapped; downgraded, but for a mutex's |
//! | [`Reentrant`] | [`ReentrantMutexGuard`](crate::ReentrantMutexGuard), [`MappedReentrantMutexGuard`](crate::MappedReentrantMutexGuard) | [`ArcReentrantMutexGuard`](crate::ArcReentrantMutexGuard) | mapped |
//!
//! Guards that own an `Arc` cannot be mapped, and mapped guards can do nothing but release the lock
//! and be mapped again.
//!
//! A guard releases its lock when it is dropped, including while a panic unwinds. One that is
//! forgotten leaves the lock locked. The functions of guards take the guard as an argument instead
//! of as `self`, so that they hide no method of the data; only `with_upgraded` and its like are
//! methods, as in lock_api. A guard is `Sync` if the data is.
//!
//! # Which guards may change threads
//! None by default: a guard must be dropped by the thread that acquired the lock. The compiler
//! refuses anything else and names [`GuardStaysOnItsThread`]:
//! ```compile_fail,E0277
//! let lock = fairlock::RwLock::new(1);
//! let guard = lock.read();
//! std::thread::scope(|scope| {
//!     scope.spawn(move || drop(guard)); // error: … cannot be sent between threads safely
//! });
//! ```
//! With the Cargo feature `send_guard`, as parking_lot calls it, guards of [`RwSem`](crate::RwSem)
//! may. Debug builds and `deadlock_detection` then do not see deadlocks in which an `RwSem` takes
//! part, as nobody knows whose its holds are.
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
//! To send such a guard the data must be `Sync`, and for a write guard `Send` as well: a write guard can be downgraded to a read guard.
//! ```compile_fail,E0277
//! let lock = fairlock::RwSem::new(std::cell::Cell::new(1));
//! let guard = lock.write();
//! std::thread::scope(|scope| {
//!     scope.spawn(move || drop(fairlock::RwSemWriteGuard::downgrade(guard)));
//! });
//! ```
//!
//! # Variance
//! Shared guards are covariant, as references are: a guard of a long life is also one of a short life. Upgradable guards are not, as
//! they can become exclusive.
//! ```
//! use fairlock::RwLockReadGuard; fn shorter<'short>(guard: RwLockReadGuard<'short, &'static str>)
//! -> RwLockReadGuard<'short, &'short str> {
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

pub use crate::hold::{Exclusive, Reentrant, Shared, Upgradable};
use crate::hold::{Hold, Limit, Mode};
pub use crate::raw::{GuardMayChangeThreads, GuardStaysOnItsThread};
use crate::raw::{RawLock, ReadRecursive, Wait};
pub use place::{Borrowed, Part, Reading, Through, Writing};
pub(crate) use place::{Borrows, Lock, Place, Whole};

/// How a guard that owns an [`Arc`] of its lock refers to it.
pub type Owned<L> = Through<Arc<L>, <L as Lock>::Data>;

/// Access to what a lock protects; releases the lock when dropped.
///
/// `M` is the mode in which the lock is held, `P` how the guard refers to the lock and the data,
/// `R` the lock without its data. You never need to write these: use the names that each lock gives
/// to its guards.
#[must_use = "the lock is released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct Guard<M: Mode<R>, P: Place<Raw = R>, R: RawLock> {
    place: ManuallyDrop<P>,
    hold: ManuallyDrop<Hold<R, M>>,
}

/// Shared access to what a reader-writer lock protects. Named
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
pub type SharedGuard<'a, T, R> = Guard<Shared, Borrowed<'a, T, R, Reading<'a, T>>, R>;

/// Shared access to a part of what a reader-writer lock protects. Made by [`SharedGuard::map`].
pub type MappedSharedGuard<'a, T, R> = Guard<Shared, Borrowed<'a, T, R, Part<&'a T>>, R>;

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
pub type ExclusiveGuard<'a, T, R> = Guard<Exclusive, Borrowed<'a, T, R, Writing<'a, T>>, R>;

/// Exclusive access to a part of what a lock protects. Made by
/// [`map`](Guard#method.map-2).
pub type MappedExclusiveGuard<'a, T, R> = Guard<Exclusive, Borrowed<'a, T, R, Part<&'a mut T>>, R>;

/// Shared access that can become exclusive without a release in between; one at a time, next to
/// plain readers. Named [`RwLockUpgradableReadGuard`](crate::RwLockUpgradableReadGuard),
/// [`RwSemUpgradableReadGuard`](crate::RwSemUpgradableReadGuard).
pub type UpgradableGuard<'a, T, R> = Guard<Upgradable, Borrowed<'a, T, R, Writing<'a, T>>, R>;

/// Shared access to what a reader-writer lock protects, with an [`Arc`] of the lock. Named
/// [`ArcRwLockReadGuard`](crate::ArcRwLockReadGuard),
/// [`ArcRwSemReadGuard`](crate::ArcRwSemReadGuard).
pub type ArcSharedGuard<L> = Guard<Shared, Owned<L>, <L as Lock>::Raw>;

/// Shared access that can become exclusive, with an [`Arc`] of the lock. Named
/// [`ArcRwLockUpgradableReadGuard`](crate::ArcRwLockUpgradableReadGuard),
/// [`ArcRwSemUpgradableReadGuard`](crate::ArcRwSemUpgradableReadGuard).
pub type ArcUpgradableGuard<L> = Guard<Upgradable, Owned<L>, <L as Lock>::Raw>;

/// Exclusive access to what a lock protects, with an [`Arc`] of the lock. Named
/// [`ArcRwLockWriteGuard`](crate::ArcRwLockWriteGuard),
/// [`ArcRwSemWriteGuard`](crate::ArcRwSemWriteGuard) and [`ArcMutexGuard`](crate::ArcMutexGuard).
pub type ArcExclusiveGuard<L> = Guard<Exclusive, Owned<L>, <L as Lock>::Raw>;

/// Of all guards.
impl<P: Place<Raw = R>, R: RawLock, M: Mode<R>> Guard<M, P, R> {
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
    /// The caller has forgotten such a guard of the lock, on this thread unless it may change
    /// threads, and uses this as that one.
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

    /// Releases the lock and hands it to waiting threads, if there are any, before another can take
    /// it. A mutex goes to the thread that has waited longest; a write guard hands the lock to
    /// waiting readers, and the last read guard to a waiting writer, whichever asked first. Waiting
    /// threads would get the lock in any case; this gives it to them now.
    #[inline]
    pub fn unlock_fair(guard: Self) {
        guard.release(true);
    }

    pub(crate) fn place(&self) -> &P {
        &self.place
    }
}

impl<P: Place<Raw = R>, R: ReadRecursive> Guard<Shared, P, R> {
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

/// Of all guards but mapped ones.
impl<P: Whole<Raw = R>, R: RawLock, M: Mode<R>> Guard<M, P, R> {
    /// Releases the lock while `act` runs, and acquires it again afterwards, also if `act` panics.
    /// Other threads may have changed the data by then. A [`ReentrantMutex`](crate::ReentrantMutex)
    /// is released only if this is its thread's only guard.
    ///
    /// # Panics
    /// If `act` does, or for the same reasons as the first acquisition. Debug builds also panic,
    /// before anything is released, if the thread has another guard of the lock with which the
    /// second acquisition would be a deadlock. If the second acquisition panics for any other
    /// reason, the process aborts, as the guard would otherwise exist without holding the lock.
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

    /// Lets those that wait have their turn: releases the lock fairly, and acquires it again. Meant
    /// for the middle of long sections. Panics as [`unlocked`](Self::unlocked) does.
    #[track_caller]
    pub fn bump(guard: &mut Self) {
        guard.release_during(true, || ());
    }

    #[track_caller]
    fn release_during<U>(&mut self, fair: bool, act: impl FnOnce() -> U) -> U {
        let lock = self.place.raw();
        self.hold.check_return(lock);
        // SAFETY: another hold comes into its place before the guard is used, which is borrowed
        // until then.
        let hold = unsafe { ManuallyDrop::take(&mut self.hold) };
        // SAFETY: the guard had this hold.
        unsafe { hold.release(lock, fair) };
        // The panic is caught, not left to a destructor, as the caller of a destructor is no line
        // of the program.
        let result = catch_unwind(AssertUnwindSafe(act));
        let without_hold = WithoutHold;
        self.hold = ManuallyDrop::new(Hold::acquire(lock));
        forget(without_hold);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// While a guard has no hold that its destructor could release. If the lock cannot be acquired
/// again, which panics, the process ends, after the panic's message.
struct WithoutHold;

impl Drop for WithoutHold {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Of write guards and of guards of a [`Mutex`](crate::Mutex) that borrow the lock.
impl<'a, T: ?Sized, R: RawLock> ExclusiveGuard<'a, T, R> {
    /// The data, locked for as long as the lock lives.
    #[inline]
    pub fn leak(guard: Self) -> &'a mut T {
        let (place, _) = guard.into_parts();
        // SAFETY: the hold is forgotten, so no other thread ever gets access while the lock is
        // borrowed.
        unsafe { place.data().as_mut() }
    }
}

/// Of guards that own an [`Arc`] of the lock.
impl<L: Lock<Raw = R> + ?Sized, R: RawLock, M: Mode<R>> Guard<M, Owned<L>, R> {
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

impl<P: Place<Raw = R>, R: RawLock, M: Mode<R>> Deref for Guard<M, P, R> {
    type Target = P::Data;

    #[inline(always)]
    fn deref(&self) -> &P::Data {
        // SAFETY: the lock is held, so no other thread changes the data.
        unsafe { self.place.data().as_ref() }
    }
}

impl<P: Place<Raw = R>, R: RawLock> DerefMut for Guard<Exclusive, P, R> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut P::Data {
        // SAFETY: the lock is held exclusively, so only this guard gives access to this data.
        unsafe { self.place.data().as_mut() }
    }
}

impl<P: Place<Raw = R>, R: RawLock, M: Mode<R>> Drop for Guard<M, P, R> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: both are taken once, as a guard is not used after its destructor; this is its
        // hold.
        unsafe {
            ManuallyDrop::take(&mut self.hold).release(self.place.raw(), false);
            ManuallyDrop::drop(&mut self.place);
        }
    }
}

impl<P, R: RawLock, M: Mode<R>> fmt::Debug for Guard<M, P, R>
where
    P: Place<Raw = R, Data: fmt::Debug>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<P, R: RawLock, M: Mode<R>> fmt::Display for Guard<M, P, R>
where
    P: Place<Raw = R, Data: fmt::Display>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
