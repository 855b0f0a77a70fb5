//! Guards: access to what a lock protects, for as long as they live.
//!
//! Every lock has its guards under names of its own, such as [`RwLockReadGuard`](crate::RwLockReadGuard) and
//! [`MutexGuard`](crate::MutexGuard). Those names stand for the types here, which are the same for all locks:
//!
//! | guard | borrows the lock | owns an [`Arc`](std::sync::Arc) of it |
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

mod exclusive;
mod owned;
mod shared;
mod upgradable;

pub use crate::guarded::{GuardMayChangeThreads, GuardStaysOnItsThread};
pub use exclusive::{ExclusiveGuard, MappedExclusiveGuard};
pub(crate) use owned::Lock;
pub use owned::{ArcExclusiveGuard, ArcSharedGuard, ArcUpgradableGuard};
pub use shared::{MappedSharedGuard, SharedGuard};
pub use upgradable::UpgradableGuard;

/// Formats a guard as what it protects.
macro_rules! shows_its_data {
    ([$($generics:tt)*] $guard:ty, $data:ty) => {
        impl<$($generics)*> core::fmt::Debug for $guard
        where
            $data: core::fmt::Debug,
        {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Debug::fmt(&**self, f)
            }
        }

        impl<$($generics)*> core::fmt::Display for $guard
        where
            $data: core::fmt::Display,
        {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(&**self, f)
            }
        }
    };
}
use shows_its_data;

/// Lets a guard release its lock for a while, or fairly. `$raw` is the lock without its data, `$lock` a reference to the
/// guard's field of that name; `$hold` is what `into_parts` returns last.
macro_rules! releases_its_lock {
    ([$($generics:tt)*] $guard:ty, $hold:ident<$rawtype:ty>, |$lock:ident| $raw:expr) => {
        impl<$($generics)*> $guard {
            /// Releases the lock and hands it to those that have waited for longest, instead of leaving it to whoever
            /// comes first. They are served in any case; this makes it now.
            #[inline]
            pub fn unlock_fair(guard: Self) {
                let (lock, .., hold) = guard.into_parts();
                let $lock = &lock;
                // SAFETY: the guard had this hold.
                unsafe { hold.release_fair($raw) };
            }

            /// Releases the lock while `act` runs, and acquires it again afterwards, also if `act` panics. Others may
            /// have changed the data by then.
            ///
            /// # Panics
            /// If `act` does, and as a first acquisition does. Debug builds also panic, before anything is released, if the
            /// thread has another guard of the lock with which the second acquisition would be a deadlock. If it is one
            /// for another reason, the process ends after the message, as there is nothing that the guard could give access to.
            #[track_caller]
            pub fn unlocked<F, U>(guard: &mut Self, act: F) -> U
            where
                F: FnOnce() -> U,
            {
                let release = |hold: $hold<$rawtype>, lock: &$rawtype| {
                    // SAFETY: the guard had this hold.
                    unsafe { hold.release(lock) }
                };
                Self::release_during(guard, release, act)
            }

            /// As [`unlocked`](Self::unlocked), after a [fair unlock](Self::unlock_fair).
            #[track_caller]
            pub fn unlocked_fair<F, U>(guard: &mut Self, act: F) -> U
            where
                F: FnOnce() -> U,
            {
                let release = |hold: $hold<$rawtype>, lock: &$rawtype| {
                    // SAFETY: the guard had this hold.
                    unsafe { hold.release_fair(lock) }
                };
                Self::release_during(guard, release, act)
            }

            /// Lets those that wait have their turn: releases the lock fairly, and acquires it again. Meant for the middle
            /// of long sections. Panics as [`unlocked`](Self::unlocked) does.
            #[track_caller]
            pub fn bump(guard: &mut Self) {
                Self::unlocked_fair(guard, || ());
            }

            #[track_caller]
            fn release_during<U>(
                guard: &mut Self,
                release: impl FnOnce($hold<$rawtype>, &$rawtype),
                act: impl FnOnce() -> U,
            ) -> U {
                let $lock = &guard.lock;
                guard.hold.check_return($raw);
                // SAFETY: another hold comes into its place before anybody uses the guard, which is borrowed until then.
                let hold = unsafe { core::mem::ManuallyDrop::take(&mut guard.hold) };
                release(hold, $raw);
                // The panic is caught, not left to a destructor, as the caller of a destructor is no line of the program.
                let result = std::panic::catch_unwind(core::panic::AssertUnwindSafe(act));
                let without_hold = WithoutHold;
                guard.hold = core::mem::ManuallyDrop::new($hold::acquire($raw));
                core::mem::forget(without_hold);
                result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
        }
    };
}
use releases_its_lock;

/// Lets a guard become one of a part of its data, which is `&$mut T`.
macro_rules! maps_its_data {
    ($guard:ident<$raw:ident> => $mapped:ident [$($mut:tt)?]) => {
        impl<'a, T: ?Sized, R: $raw> $guard<'a, T, R> {
            /// Access to a part of the data.
            #[inline]
            pub fn map<U: ?Sized, F>(guard: Self, part: F) -> $mapped<'a, U, R>
            where
                F: FnOnce(&$($mut)? T) -> &$($mut)? U,
            {
                let mapped = Self::try_map_or_err(guard, |data| Ok::<_, Infallible>(part(data)));
                let Ok(mapped) = mapped;
                mapped
            }

            /// Access to a part of the data, if there is one.
            ///
            /// # Errors
            /// The guard, if there is none.
            #[inline]
            pub fn try_map<U: ?Sized, F>(guard: Self, part: F) -> Result<$mapped<'a, U, R>, Self>
            where
                F: FnOnce(&$($mut)? T) -> Option<&$($mut)? U>,
            {
                let mapped = Self::try_map_or_err(guard, |data| part(data).ok_or(()));
                mapped.map_err(|(guard, ())| guard)
            }

            /// As [`try_map`](Self::try_map), and says why there is no such part.
            ///
            /// # Errors
            /// The guard, and what `part` says.
            #[inline]
            pub fn try_map_or_err<U: ?Sized, F, E>(
                $($mut)? guard: Self,
                part: F,
            ) -> Result<$mapped<'a, U, R>, (Self, E)>
            where
                F: FnOnce(&$($mut)? T) -> Result<&$($mut)? U, E>,
            {
                let part = match part(&$($mut)? guard) {
                    Ok(part) => NonNull::from(part),
                    Err(error) => return Err((guard, error)),
                };
                let (lock, .., hold) = guard.into_parts();
                let hold = ManuallyDrop::new(hold);
                Ok($mapped { lock, data: part, hold, borrow: PhantomData })
            }
        }
    };
}
use maps_its_data;

/// While a guard has no hold that its destructor could release. If the lock cannot be acquired again, which panics, the
/// process ends, after the panic's message.
pub(crate) struct WithoutHold;

impl Drop for WithoutHold {
    fn drop(&mut self) {
        std::process::abort();
    }
}
