//! `fairlock_mutex_t`.

use core::ffi::c_int;

use crate::clock::Moment;
use crate::code::number;
use crate::copies::served_by_first;
use crate::owned::{Exclusive, Owned, Wait};

/// A mutex: one thread at a time. 40 bytes, anywhere in memory; a free one is all zero, so
/// FAIRLOCK_MUTEX_INITIALIZER, static memory and calloc make one.
///
/// A thread that finds it taken spins for a while, then sleeps in the order of arrival. Whenever the
/// mutex is left free the one that has waited longest is woken, and competes with those that come,
/// which pass it for 4 ms at most. Its memory may be freed as soon as the last unlock has let somebody
/// else in, whether or not that unlock has returned. Not for memory that processes share.
#[repr(C)]
pub struct fairlock_mutex_t {
    /// The library's.
    opaque: [u64; 5],
}

type Lock = Owned<Exclusive>;

/// # Safety
/// Null, or a mutex.
#[inline(always)]
unsafe fn acquire(mutex: *mut fairlock_mutex_t, wait: Wait) -> c_int {
    // SAFETY: the caller passes null or a mutex.
    number(unsafe { Lock::at(mutex) }.and_then(|lock| lock.write(wait)))
}

/// Makes the mutex free, as FAIRLOCK_MUTEX_INITIALIZER does: for memory that is not zero. Nobody may be
/// using it.
///
/// Errors: EINVAL (null).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_mutex_init(mutex: *mut fairlock_mutex_t) -> c_int {
    served_by_first!(fairlock_mutex_init(mutex));
    // SAFETY: the header asks for null or memory that nobody uses.
    number(unsafe { Lock::create(mutex) })
}

/// Ends the mutex's use: it frees nothing, and whoever uses the mutex afterwards gets EINVAL until it is
/// initialised again. May be left out.
///
/// Errors: EINVAL (null, or destroyed already), EBUSY (somebody holds it or waits: nothing is done).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_mutex_destroy(mutex: *mut fairlock_mutex_t) -> c_int {
    served_by_first!(fairlock_mutex_destroy(mutex));
    // SAFETY: the header asks for null or a mutex.
    number(unsafe { Lock::at(mutex) }.and_then(Lock::destroy))
}

/// Acquires the mutex, and waits as long as that takes.
///
/// Errors: EINVAL (null, or destroyed), EDEADLK (the calling thread holds it).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_mutex_lock(mutex: *mut fairlock_mutex_t) -> c_int {
    served_by_first!(fairlock_mutex_lock(mutex));
    // SAFETY: the header asks for null or a mutex.
    unsafe { acquire(mutex, Wait::ForEver) }
}

/// Acquires the mutex if that is possible without waiting.
///
/// Errors: EBUSY (somebody holds it, or is to get it first), EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_mutex_try_lock(mutex: *mut fairlock_mutex_t) -> c_int {
    served_by_first!(fairlock_mutex_try_lock(mutex));
    // SAFETY: the header asks for null or a mutex.
    unsafe { acquire(mutex, Wait::Not) }
}

/// Acquires the mutex, waiting so many nanoseconds at most.
///
/// Errors: ETIMEDOUT; otherwise as fairlock_mutex_lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_mutex_try_lock_for(
    mutex: *mut fairlock_mutex_t,
    nanoseconds: u64,
) -> c_int {
    served_by_first!(fairlock_mutex_try_lock_for(mutex, nanoseconds));
    // SAFETY: the header asks for null or a mutex.
    unsafe { acquire(mutex, Wait::For(nanoseconds)) }
}

/// Acquires the mutex, waiting until the clock shows the deadline, as fairlock_rwlock_try_read_until does.
///
/// Errors: ETIMEDOUT, EINVAL as there; otherwise as fairlock_mutex_lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_mutex_try_lock_until(
    mutex: *mut fairlock_mutex_t,
    clock: c_int,
    deadline: *const libc::timespec,
) -> c_int {
    served_by_first!(fairlock_mutex_try_lock_until(mutex, clock, deadline));
    // SAFETY: the header asks for null or a time.
    match unsafe { Moment::of(clock, deadline) } {
        // SAFETY: the header asks for null or a mutex.
        Ok(moment) => unsafe { acquire(mutex, Wait::Until(moment)) },
        Err(trouble) => number(Err(trouble)),
    }
}

/// Releases the mutex. It may be gone when this returns, as somebody else may have freed it.
///
/// Errors: EPERM (the calling thread does not hold it), EINVAL (null, or destroyed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_mutex_unlock(mutex: *mut fairlock_mutex_t) -> c_int {
    served_by_first!(fairlock_mutex_unlock(mutex));
    // SAFETY: the header asks for null or a mutex.
    number(unsafe { Lock::at(mutex) }.and_then(Lock::unlock_write))
}
