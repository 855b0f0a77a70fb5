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
//! A guard releases its lock when it is dropped, also by a panic. One that is forgotten leaves the lock locked. The
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

/// While a guard has no hold that its destructor could release. If the lock cannot be acquired again, which panics, the
/// process ends, after the panic's message.
struct WithoutHold;

impl Drop for WithoutHold {
    fn drop(&mut self) {
        std::process::abort();
    }
}
