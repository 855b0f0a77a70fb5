//! `fairlock_rwlock_t`.

use core::ffi::c_int;

use fairlock_checkers::Hold;

use crate::clock::Moment;
use crate::code::number;
use crate::copies::served_by_first;
use crate::owned::{Owned, ReadWrite, Wait};

/// A reader-writer lock: any number of readers, or one writer. 64 bytes, anywhere in memory; a free
/// one is all zero, so FAIRLOCK_RWLOCK_INITIALIZER, static memory and calloc make one.
///
/// Beside the readers one thread may hold it upgradable: it looks first, and becomes the writer, if it has to,
/// without letting go; nobody writes in between. And a writer may become a reader or the upgradable holder.
///
/// While both readers and writers want it, each side has it for about as long as the other. Threads that come
/// later pass a waiting thread until its side is owed 16 wake-ups, or for as long as it has been ahead, at most
/// 16 ms; for 6 ms more if many readers came at the same moment. Waiting threads sleep.
/// The lock's memory may be freed as soon as its last unlock has allowed another thread to acquire it,
/// whether or not that unlock has returned. Not for memory that processes share: see fairlock_process_shared_t.
///
/// A thread that reads, or holds it upgradable, and asks to read again may wait for ever, if a writer has queued in between: see
/// fairlock_rwlock_read_recursive.
#[repr(C)]
pub struct fairlock_rwlock_t {
    /// The library's.
    opaque: [u64; 8],
}

type Lock = Owned<ReadWrite>;

/// How the calling thread holds it, if it does.
///
/// # Safety
/// Null, or a lock.
pub(crate) unsafe fn held_by_caller(lock: *const fairlock_rwlock_t) -> Hold {
    // SAFETY: the caller passes null or a lock.
    unsafe { Lock::at(lock.cast_mut()) }.map_or(Hold::Read, Lock::held_by_caller)
}

/// Makes the lock free, as FAIRLOCK_RWLOCK_INITIALIZER does, in memory that is not zero. No thread may be
/// using it.
///
/// Errors: EINVAL (null).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_init(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_init(lock));
    // SAFETY: the header asks for null or memory that nobody uses.
    number(unsafe { Lock::create(lock) })
}

/// Ends the lock's use. It frees nothing: every use of the lock afterwards returns EINVAL until it is
/// initialised again. Optional.
///
/// Errors: EINVAL (null, or destroyed already), EBUSY (a thread holds it or waits: nothing is done).
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

/// Acquires the lock for reading, and waits for as long as necessary.
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
/// Errors: EBUSY (a thread writes, is to write first, or tries to write at this moment), EINVAL, EAGAIN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_try_read(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_try_read(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { read(lock, Wait::Not) }
}

/// Acquires the lock for reading, waiting for at most so many nanoseconds.
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
/// CLOCK_MONOTONIC or CLOCK_REALTIME. If it is set back meanwhile the wait becomes longer; if it is set
/// forward the wait does not become shorter. A free lock is acquired even if the deadline is over.
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

/// As fairlock_rwlock_read, for a thread that already reads: it passes waiting writers, which would
/// otherwise wait for this thread while it waits for them. It makes writers wait longer, so other threads
/// should not use it. Unlock each of the acquisitions.
///
/// Errors: as fairlock_rwlock_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_read_recursive(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_read_recursive(lock));
    // SAFETY: the header asks for null or a lock.
    number(unsafe { Lock::at(lock) }.and_then(|lock| lock.read(Wait::ForEver, true)))
}

/// Acquires the lock for writing, and waits for as long as necessary.
///
/// Errors: EINVAL (null, or destroyed), EDEADLK (the calling thread writes already, or holds it upgradable: see
/// fairlock_rwlock_upgrade). A thread that reads and asks to write waits for itself for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_write(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_write(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { write(lock, Wait::ForEver) }
}

/// Acquires the lock for writing if that is possible without waiting. If one thread tries to read and
/// another tries to write at the same moment, both may fail.
///
/// Errors: EBUSY (a thread holds it, is to get it first, or tries to at this moment), EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_try_write(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_try_write(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { write(lock, Wait::Not) }
}

/// Acquires the lock for writing, waiting for at most so many nanoseconds.
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

/// Releases the lock, which the calling thread holds for reading, upgradable or for writing; if it reads
/// and holds it upgradable, too, then the latter. The lock may be gone when this returns, since another
/// thread may have freed it.
///
/// Errors: EPERM (nobody holds it, or another thread writes), EINVAL (null, or destroyed). To unlock a lock
/// that only other threads read is not detected, and breaks the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_unlock(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_unlock(lock));
    // SAFETY: the header asks for null or a lock, of which a thread unlocks what it holds itself.
    number(unsafe { Lock::at(lock).and_then(|lock| lock.unlock()) })
}

/// Releases the lock, which the calling thread holds for reading.
///
/// Errors: EPERM (nobody reads), EINVAL (null, or destroyed). As with fairlock_rwlock_unlock, the lock does
/// not know which threads read.
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

/// # Safety
/// Null, or a lock.
#[inline(always)]
unsafe fn upgradable(lock: *mut fairlock_rwlock_t, wait: Wait) -> c_int {
    // SAFETY: the caller passes null or a lock.
    number(unsafe { Lock::at(lock) }.and_then(|lock| lock.upgradable(wait)))
}

/// # Safety
/// Null, or a lock.
#[inline(always)]
unsafe fn upgrade(lock: *mut fairlock_rwlock_t, wait: Wait) -> c_int {
    // SAFETY: the caller passes null or a lock.
    number(unsafe { Lock::at(lock) }.and_then(|lock| lock.upgrade(wait)))
}

/// Acquires the lock upgradable, beside readers, and waits for as long as necessary: while another thread writes
/// or holds it upgradable. A try_read of other threads succeeds meanwhile.
///
/// Errors: EINVAL (null, or destroyed), EDEADLK (the calling thread writes, or holds it upgradable already).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_upgradable(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_upgradable(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { upgradable(lock, Wait::ForEver) }
}

/// Acquires the lock upgradable if that is possible without waiting.
///
/// Errors: EBUSY (a thread writes or holds it upgradable, or is to get it first), EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_try_upgradable(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_try_upgradable(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { upgradable(lock, Wait::Not) }
}

/// Acquires the lock upgradable, waiting for at most so many nanoseconds.
///
/// Errors: ETIMEDOUT; otherwise as fairlock_rwlock_upgradable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_try_upgradable_for(
    lock: *mut fairlock_rwlock_t,
    nanoseconds: u64,
) -> c_int {
    served_by_first!(fairlock_rwlock_try_upgradable_for(lock, nanoseconds));
    // SAFETY: the header asks for null or a lock.
    unsafe { upgradable(lock, Wait::For(nanoseconds)) }
}

/// Acquires the lock upgradable, waiting until the clock shows the deadline, as
/// fairlock_rwlock_try_read_until does.
///
/// Errors: ETIMEDOUT, EINVAL as there; otherwise as fairlock_rwlock_upgradable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_try_upgradable_until(
    lock: *mut fairlock_rwlock_t,
    clock: c_int,
    deadline: *const libc::timespec,
) -> c_int {
    served_by_first!(fairlock_rwlock_try_upgradable_until(lock, clock, deadline));
    // SAFETY: the header asks for null or a time.
    match unsafe { Moment::of(clock, deadline) } {
        // SAFETY: the header asks for null or a lock.
        Ok(moment) => unsafe { upgradable(lock, Wait::Until(moment)) },
        Err(trouble) => number(Err(trouble)),
    }
}

/// Releases the lock, which the calling thread holds upgradable.
///
/// Errors: EPERM (the calling thread does not hold it upgradable), EINVAL (null, or destroyed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_unlock_upgradable(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_unlock_upgradable(lock));
    // SAFETY: the header asks for null or a lock.
    number(unsafe { Lock::at(lock) }.and_then(Lock::unlock_upgradable))
}

/// Makes the calling thread, which holds the lock upgradable, its writer. Waits until the readers have left;
/// from now on none enters. Nobody writes in between. If the thread reads, too, it waits for itself for ever.
///
/// Errors: EPERM (the calling thread does not hold it upgradable), EINVAL (null, or destroyed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_upgrade(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_upgrade(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { upgrade(lock, Wait::ForEver) }
}

/// The same, if no thread reads. Otherwise the calling thread still holds the lock upgradable.
///
/// Errors: EBUSY (a thread reads, or tries to at this moment); otherwise as fairlock_rwlock_upgrade.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_try_upgrade(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_try_upgrade(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { upgrade(lock, Wait::Not) }
}

/// The same, waiting for at most so many nanoseconds. If they are over, the calling thread still holds the lock
/// upgradable, and readers enter again.
///
/// Errors: ETIMEDOUT; otherwise as fairlock_rwlock_upgrade.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_try_upgrade_for(
    lock: *mut fairlock_rwlock_t,
    nanoseconds: u64,
) -> c_int {
    served_by_first!(fairlock_rwlock_try_upgrade_for(lock, nanoseconds));
    // SAFETY: the header asks for null or a lock.
    unsafe { upgrade(lock, Wait::For(nanoseconds)) }
}

/// The same, waiting until the clock shows the deadline, as fairlock_rwlock_try_read_until does.
///
/// Errors: ETIMEDOUT, EINVAL as there; otherwise as fairlock_rwlock_upgrade.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_try_upgrade_until(
    lock: *mut fairlock_rwlock_t,
    clock: c_int,
    deadline: *const libc::timespec,
) -> c_int {
    served_by_first!(fairlock_rwlock_try_upgrade_until(lock, clock, deadline));
    // SAFETY: the header asks for null or a time.
    match unsafe { Moment::of(clock, deadline) } {
        // SAFETY: the header asks for null or a lock.
        Ok(moment) => unsafe { upgrade(lock, Wait::Until(moment)) },
        Err(trouble) => number(Err(trouble)),
    }
}

/// Makes the calling thread, which holds the lock for writing or upgradable, a reader: unlock it as one. Readers
/// that wait may enter at once. Nobody writes in between. Never waits.
///
/// Errors: EPERM (the calling thread holds it neither for writing nor upgradable), EINVAL (null, or destroyed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_downgrade(lock: *mut fairlock_rwlock_t) -> c_int {
    served_by_first!(fairlock_rwlock_downgrade(lock));
    // SAFETY: the header asks for null or a lock.
    number(unsafe { Lock::at(lock) }.and_then(Lock::downgrade))
}

/// Makes the calling thread, which holds the lock for writing, its upgradable holder. Readers that wait may
/// enter at once. Nobody writes in between. Never waits.
///
/// Errors: EPERM (the calling thread does not write), EINVAL (null, or destroyed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_rwlock_downgrade_to_upgradable(
    lock: *mut fairlock_rwlock_t,
) -> c_int {
    served_by_first!(fairlock_rwlock_downgrade_to_upgradable(lock));
    // SAFETY: the header asks for null or a lock.
    number(unsafe { Lock::at(lock) }.and_then(Lock::downgrade_to_upgradable))
}
