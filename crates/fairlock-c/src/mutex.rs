//! `fairlock_mutex_t`.

use core::ffi::c_int;

use crate::clock::Moment;
use crate::code::number;
use crate::copies::served_by_first;
use crate::owned::{Exclusive, Owned, Wait};

/// A mutex: one thread at a time. 40 bytes, anywhere in memory; a free one is all zero, so
/// FAIRLOCK_MUTEX_INITIALIZER, static memory and calloc make one.
///
/// A thread that finds it held spins for a while, then sleeps in the order of arrival. An unlock wakes the
/// thread that has waited longest. That thread competes with newcomers, which pass it for at most 4 ms. The
/// mutex's memory may be freed as soon as its last unlock has allowed another thread to acquire it, whether
/// or not that unlock has returned. Not for memory that processes share.
#[repr(C)]
pub struct fairlock_mutex_t {
    /// The library's.
    opaque: [u64; 5],
}

pub(crate) type Lock = Owned<Exclusive>;

/// Whether the calling thread holds it.
///
/// # Safety
/// Null, or a mutex.
pub(crate) unsafe fn is_held_by_caller(mutex: *const fairlock_mutex_t) -> bool {
    // SAFETY: the caller passes null or a mutex.
    unsafe { Lock::at(mutex.cast_mut()) }.is_ok_and(|lock| lock.must_be_written().is_ok())
}

/// # Safety
/// Null, or a mutex.
#[inline(always)]
unsafe fn acquire(mutex: *mut fairlock_mutex_t, wait: Wait) -> c_int {
    // SAFETY: the caller passes null or a mutex.
    number(unsafe { Lock::at(mutex) }.and_then(|lock| lock.write(wait)))
}

/// Makes the mutex free, as FAIRLOCK_MUTEX_INITIALIZER does, in memory that is not zero. No thread may be
/// using it.
///
/// Errors: EINVAL (null).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_mutex_init(mutex: *mut fairlock_mutex_t) -> c_int {
    served_by_first!(fairlock_mutex_init(mutex));
    // SAFETY: the header asks for null or memory that nobody uses.
    number(unsafe { Lock::create(mutex) })
}

/// Ends the mutex's use. It frees nothing: every use of the mutex afterwards returns EINVAL until it is
/// initialised again. Optional.
///
/// Errors: EINVAL (null, or destroyed already), EBUSY (a thread holds it or waits: nothing is done).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_mutex_destroy(mutex: *mut fairlock_mutex_t) -> c_int {
    served_by_first!(fairlock_mutex_destroy(mutex));
    // SAFETY: the header asks for null or a mutex.
    number(unsafe { Lock::at(mutex) }.and_then(Lock::destroy))
}

/// Acquires the mutex, and waits for as long as necessary.
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
/// Errors: EBUSY (a thread holds it, or is to get it first), EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_mutex_try_lock(mutex: *mut fairlock_mutex_t) -> c_int {
    served_by_first!(fairlock_mutex_try_lock(mutex));
    // SAFETY: the header asks for null or a mutex.
    unsafe { acquire(mutex, Wait::Not) }
}

/// Acquires the mutex, waiting for at most so many nanoseconds.
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

/// Releases the mutex. It may be gone when this returns, since another thread may have freed it.
///
/// Errors: EPERM (the calling thread does not hold it), EINVAL (null, or destroyed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_mutex_unlock(mutex: *mut fairlock_mutex_t) -> c_int {
    served_by_first!(fairlock_mutex_unlock(mutex));
    // SAFETY: the header asks for null or a mutex.
    number(unsafe { Lock::at(mutex) }.and_then(Lock::unlock_write))
}
