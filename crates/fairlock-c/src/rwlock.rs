//! `fairlock_rwlock_t`.

use core::ffi::c_int;

use crate::clock::Moment;
use crate::code::number;
use crate::copies::served_by_first;
use crate::owned::{Owned, ReadWrite, Wait};

/// A reader-writer lock: any number of readers, or one writer. 64 bytes, anywhere in memory; a free
/// one is all zero, so FAIRLOCK_RWLOCK_INITIALIZER, static memory and calloc make one.
///
/// While readers and writers both want it, phases of either side alternate and share its time: those
/// that come later pass a waiting thread for two phases at most, of at most 4 ms each, or four if it was
/// woken in vain. Waiting threads sleep. Its memory may be
/// freed as soon as the last unlock that concerns it has let somebody else in, whether or not that
/// unlock has returned. Not for memory that processes share.
///
/// A thread that reads and asks to read again may wait for ever, if a writer came in between: see
/// fairlock_rwlock_read_recursive.
#[repr(C)]
pub struct fairlock_rwlock_t {
    /// The library's.
    opaque: [u64; 8],
}

type Lock = Owned<ReadWrite>;

/// Makes the lock free, as FAIRLOCK_RWLOCK_INITIALIZER does: for memory that is not zero. Nobody may
/// be using it.
///
/// Errors: EINVAL (null).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_init(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_init(lock));
    // SAFETY: the header asks for null or memory that nobody uses.
    number(unsafe { Lock::create(lock) })
}

/// Ends the lock's use: it frees nothing, and whoever uses the lock afterwards gets EINVAL until it is
/// initialised again. May be left out.
///
/// Errors: EINVAL (null, or destroyed already), EBUSY (somebody holds it or waits: nothing is done).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_destroy(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_destroy(lock));
    // SAFETY: the header asks for null or a lock.
    number(unsafe { Lock::at(lock) }.and_then(Lock::destroy))
}

/// # Safety
/// Null, or a lock.
#[inline(always)]
unsafe fn read(lock: *mut fairlock_rwlock_t, wait: Wait) -> c_int {
    // SAFETY: the caller passes null or a lock.
    number(unsafe { Lock::at(lock) }.and_then(|lock| lock.read(wait, false)))
}

/// # Safety
/// Null, or a lock.
#[inline(always)]
unsafe fn write(lock: *mut fairlock_rwlock_t, wait: Wait) -> c_int {
    // SAFETY: the caller passes null or a lock.
    number(unsafe { Lock::at(lock) }.and_then(|lock| lock.write(wait)))
}

/// Acquires the lock for reading, and waits as long as that takes.
///
/// Errors: EINVAL (null, or destroyed), EDEADLK (the calling thread writes), EAGAIN (more than four
/// million readers hold it).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_read(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_read(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { read(lock, Wait::ForEver) }
}

/// Acquires the lock for reading if that is possible without waiting.
///
/// Errors: EBUSY (somebody writes, is to write first, or tries to at this moment), EINVAL, EAGAIN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_try_read(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_try_read(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { read(lock, Wait::Not) }
}

/// Acquires the lock for reading, waiting so many nanoseconds at most.
///
/// Errors: ETIMEDOUT; otherwise as fairlock_rwlock_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_try_read_for(
    lock: *mut fairlock_rwlock_t,
    nanoseconds: u64,
) -> c_int {
    served_by_first!(fairlock_rwlock_try_read_for(lock, nanoseconds));
    // SAFETY: the header asks for null or a lock.
    unsafe { read(lock, Wait::For(nanoseconds)) }
}

/// Acquires the lock for reading, waiting until the clock shows the deadline. The clock is
/// CLOCK_MONOTONIC or CLOCK_REALTIME, and may be set meanwhile: one that is set back prolongs the wait,
/// one that is set forward does not shorten it. A lock that is free is taken although the deadline is
/// over.
///
/// Errors: ETIMEDOUT, EINVAL (also another clock, no deadline, or tv_nsec not below a billion);
/// otherwise as fairlock_rwlock_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_try_read_until(
    lock: *mut fairlock_rwlock_t,
    clock: c_int,
    deadline: *const libc::timespec,
) -> c_int {
    served_by_first!(fairlock_rwlock_try_read_until(lock, clock, deadline));
    // SAFETY: the header asks for null or a time.
    match unsafe { Moment::of(clock, deadline) } {
        // SAFETY: the header asks for null or a lock.
        Ok(moment) => unsafe { read(lock, Wait::Until(moment)) },
        Err(trouble) => number(Err(trouble)),
    }
}

/// As fairlock_rwlock_read, for a thread that reads already: it enters past writers that wait, which
/// would otherwise wait for this thread while it waits for them. It makes writers wait longer, so not
/// for others. Each of the acquisitions is unlocked.
///
/// Errors: as fairlock_rwlock_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_read_recursive(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_read_recursive(lock));
    // SAFETY: the header asks for null or a lock.
    number(unsafe { Lock::at(lock) }.and_then(|lock| lock.read(Wait::ForEver, true)))
}

/// Acquires the lock for writing, and waits as long as that takes.
///
/// Errors: EINVAL (null, or destroyed), EDEADLK (the calling thread writes already).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_write(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_write(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { write(lock, Wait::ForEver) }
}

/// Acquires the lock for writing if that is possible without waiting. Of a thread that tries to read and one
/// that tries to write at the same moment neither may get in.
///
/// Errors: EBUSY (somebody holds it, is to get it first, or tries to at this moment), EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_try_write(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_try_write(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { write(lock, Wait::Not) }
}

/// Acquires the lock for writing, waiting so many nanoseconds at most.
///
/// Errors: ETIMEDOUT; otherwise as fairlock_rwlock_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_try_write_for(
    lock: *mut fairlock_rwlock_t,
    nanoseconds: u64,
) -> c_int {
    served_by_first!(fairlock_rwlock_try_write_for(lock, nanoseconds));
    // SAFETY: the header asks for null or a lock.
    unsafe { write(lock, Wait::For(nanoseconds)) }
}

/// Acquires the lock for writing, waiting until the clock shows the deadline, as
/// fairlock_rwlock_try_read_until does.
///
/// Errors: ETIMEDOUT, EINVAL as there; otherwise as fairlock_rwlock_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_try_write_until(
    lock: *mut fairlock_rwlock_t,
    clock: c_int,
    deadline: *const libc::timespec,
) -> c_int {
    served_by_first!(fairlock_rwlock_try_write_until(lock, clock, deadline));
    // SAFETY: the header asks for null or a time.
    match unsafe { Moment::of(clock, deadline) } {
        // SAFETY: the header asks for null or a lock.
        Ok(moment) => unsafe { write(lock, Wait::Until(moment)) },
        Err(trouble) => number(Err(trouble)),
    }
}

/// Releases the lock, in whichever way the calling thread holds it. The lock may be gone when this
/// returns, as somebody else may have freed it.
///
/// Errors: EPERM (nobody holds it, or another thread writes), EINVAL (null, or destroyed). A thread that
/// unlocks what other threads read is not noticed, and spoils the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_unlock(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_unlock(lock));
    // SAFETY: the header asks for null or a lock, of which a thread unlocks what it holds itself.
    number(unsafe { Lock::at(lock).and_then(|lock| lock.unlock()) })
}

/// Releases the lock, which the calling thread holds for reading.
///
/// Errors: EPERM (nobody reads), EINVAL (null, or destroyed). As with fairlock_rwlock_unlock, whose
/// read it is is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_unlock_read(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_unlock_read(lock));
    // SAFETY: the header asks for null or a lock, of which a thread unlocks what it holds itself.
    number(unsafe { Lock::at(lock).and_then(|lock| lock.unlock_read()) })
}

/// Releases the lock, which the calling thread holds for writing.
///
/// Errors: EPERM (the calling thread does not write), EINVAL (null, or destroyed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_unlock_write(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_unlock_write(lock));
    // SAFETY: the header asks for null or a lock.
    number(unsafe { Lock::at(lock) }.and_then(Lock::unlock_write))
}
