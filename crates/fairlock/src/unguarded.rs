//! Reader-writer locks for callers that cannot keep a guard: C and C++, and a `pthread_rwlock_t`.
//! Nothing but the lock's address says what is unlocked, refusals are values, and nothing panics.
//!
//! In Rust use [`RwLock`](crate::RwLock) or [`RwSem`](crate::RwSem), whose guards know.

use crate::platform::Platform;
use crate::policy::Policy;
use crate::rwsem::{Lodging, RawRwSem};

/// Why a lock was not acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Somebody holds it, or is to get it first.
    Busy,
    /// The deadline passed.
    TimedOut,
    /// As many readers hold it as can be counted.
    Full,
}

/// A reader-writer lock that is used without guards.
///
/// Deadlines are moments of [`Platform::now`], ns; without one a wait ends with the lock.
///
/// # Recursion
/// A thread that holds a lock for reading and asks for it again waits for a writer that came in between,
/// which waits for the first hold: a deadlock. `past_waiters` is for those: such a reader enters as
/// soon as no writer is in. It is on the caller to ask for it only then, as it makes writers wait.
///
/// # Examples
/// ```
/// use fairlock::platform::Os;
/// use fairlock::policy::TimeFair;
/// use fairlock::rwsem::{RawRwSem, Rented};
/// use fairlock::unguarded::{Refused, UnguardedRwLock};
///
/// static LOCK: RawRwSem<TimeFair, Os, Rented<Os>> = RawRwSem::NEW;
///
/// assert_eq!(LOCK.read(None, false), Ok(()));
/// assert_eq!(LOCK.try_write(), Err(Refused::Busy));
/// // SAFETY: locked above.
/// unsafe { LOCK.unlock_read() };
/// ```
pub trait UnguardedRwLock: Send + Sync {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    const FREE: Self;

    /// Acquires it for reading.
    ///
    /// # Errors
    /// [`Refused::TimedOut`], [`Refused::Full`].
    fn read(&self, deadline: Option<u64>, past_waiters: bool) -> Result<(), Refused>;

    /// Acquires it for reading, without waiting.
    ///
    /// # Errors
    /// [`Refused::Busy`], [`Refused::Full`].
    fn try_read(&self, past_waiters: bool) -> Result<(), Refused>;

    /// Acquires it for writing.
    ///
    /// # Errors
    /// [`Refused::TimedOut`].
    fn write(&self, deadline: Option<u64>) -> Result<(), Refused>;

    /// As `try_read(false)`, in a few instructions; may say no where that would be let in.
    #[inline]
    fn read_at_once(&self) -> bool {
        self.try_read(false).is_ok()
    }

    /// As [`try_write`](Self::try_write), likewise.
    #[inline]
    fn write_at_once(&self) -> bool {
        self.try_write().is_ok()
    }

    /// Acquires it for writing, without waiting.
    ///
    /// # Errors
    /// [`Refused::Busy`].
    fn try_write(&self) -> Result<(), Refused>;

    /// Releases it. The lock may be gone when this returns, as somebody else may have freed it.
    ///
    /// # Safety
    /// The calling thread holds it for reading.
    unsafe fn unlock_read(&self);

    /// Releases it, likewise.
    ///
    /// # Safety
    /// The calling thread holds it for writing.
    unsafe fn unlock_write(&self);

    /// A writer holds it, or is about to.
    fn has_writer(&self) -> bool;

    /// Somebody holds it, or is about to.
    fn is_locked(&self) -> bool;
}

impl<Pol: Policy, P: Platform, L: Lodging<P>> UnguardedRwLock for RawRwSem<Pol, P, L> {
    const FREE: Self = Self::NEW;

    #[inline]
    fn read(&self, deadline: Option<u64>, past_waiters: bool) -> Result<(), Refused> {
        match self.try_read_once() {
            true => Ok(()),
            false => self.read_unguarded(deadline, past_waiters),
        }
    }

    #[inline]
    fn try_read(&self, past_waiters: bool) -> Result<(), Refused> {
        match self.try_read_once() {
            true => Ok(()),
            false => self.try_read_unguarded(past_waiters),
        }
    }

    #[inline]
    fn read_at_once(&self) -> bool {
        self.try_read_once()
    }

    #[inline]
    fn write_at_once(&self) -> bool {
        // Not by the bias that some policies add first, and would have to take away.
        !Self::ADDS_BIAS_FIRST && RawRwSem::write_at_once(self)
    }

    #[inline]
    fn write(&self, deadline: Option<u64>) -> Result<(), Refused> {
        match RawRwSem::write_at_once(self) || self.write_slow(deadline) {
            true => Ok(()),
            false => Err(Refused::TimedOut),
        }
    }

    #[inline]
    fn try_write(&self) -> Result<(), Refused> {
        match RawRwSem::try_write(self) {
            true => Ok(()),
            false => Err(Refused::Busy),
        }
    }

    #[inline]
    unsafe fn unlock_read(&self) {
        // SAFETY: the caller's.
        unsafe { RawRwSem::unlock_read(self) }
    }

    #[inline]
    unsafe fn unlock_write(&self) {
        // SAFETY: the caller's.
        unsafe { RawRwSem::unlock_write(self) }
    }

    fn has_writer(&self) -> bool {
        RawRwSem::has_writer(self)
    }

    fn is_locked(&self) -> bool {
        RawRwSem::is_locked(self)
    }
}
