//! Errors as C has them: numbers of `errno.h`. And the boundary that no panic crosses.

use core::ffi::c_int;

use std::panic::{AssertUnwindSafe, catch_unwind};

use fairlock::platform::cold_path;
use fairlock::ready::PollError;
use fairlock::unguarded::Refused;

/// Why a function did not do what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A pointer is null, or a value is none of those that are valid; or the lock was destroyed.
    Invalid,
    /// Somebody has it, or is to get it first.
    Busy,
    /// The deadline passed.
    TimedOut,
    /// Another thread has ended the wait.
    Interrupted,
    /// As many as can be counted are there already.
    Full,
    /// The thread would wait for itself.
    Deadlock,
    /// The thread does not hold what it gives back.
    NotHeld,
    /// The source is in a poll.
    Registered,
    /// The source is not in the poll.
    NotRegistered,
    /// What the system said.
    System(c_int),
}

impl Trouble {
    fn number(self) -> c_int {
        match self {
            Trouble::Invalid => libc::EINVAL,
            Trouble::Busy => libc::EBUSY,
            Trouble::TimedOut => libc::ETIMEDOUT,
            Trouble::Interrupted => libc::ECANCELED,
            Trouble::Full => libc::EAGAIN,
            Trouble::Deadlock => libc::EDEADLK,
            Trouble::NotHeld => libc::EPERM,
            Trouble::Registered => libc::EEXIST,
            Trouble::NotRegistered => libc::ENOENT,
            Trouble::System(number) => number,
        }
    }
}

impl From<Refused> for Trouble {
    fn from(refused: Refused) -> Trouble {
        match refused {
            Refused::Busy => Trouble::Busy,
            Refused::TimedOut => Trouble::TimedOut,
            Refused::Full => Trouble::Full,
        }
    }
}

impl From<PollError> for Trouble {
    fn from(error: PollError) -> Trouble {
        match error {
            PollError::Registered => Trouble::Registered,
            PollError::NotRegistered => Trouble::NotRegistered,
            _ => Trouble::Invalid,
        }
    }
}

/// What came of it, as a number. For code that cannot panic.
#[inline(always)]
pub(crate) fn number(outcome: Result<(), Trouble>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(trouble) => {
            cold_path();
            trouble.number()
        }
    }
}

/// The same for code that panics where Fairlock itself is wrong, or has reached a limit that nobody
/// reaches: the message has been printed, and the object is not to be used again.
pub(crate) fn guarded(action: impl FnOnce() -> Result<(), Trouble>) -> c_int {
    number(caught(action).unwrap_or(Err(Trouble::System(libc::ENOTRECOVERABLE))))
}

/// None if it panicked.
pub(crate) fn caught<T>(action: impl FnOnce() -> T) -> Option<T> {
    // What is unwound is not used again, as the pages say.
    catch_unwind(AssertUnwindSafe(action)).ok()
}

/// What C code points to, unless it is null.
///
/// # Safety
/// Null, or a `T` that nobody borrows exclusively.
#[inline(always)]
pub(crate) unsafe fn borrowed<'a, T>(pointer: *const T) -> Result<&'a T, Trouble> {
    // SAFETY: the caller passes null or a `T` that may be shared.
    unsafe { pointer.as_ref() }.ok_or(Trouble::Invalid)
}
