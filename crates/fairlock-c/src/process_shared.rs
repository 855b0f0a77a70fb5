//! `fairlock_process_shared_t`.

use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use fairlock::process_shared::ProcessSharedRwLock;
use fairlock::unguarded::UnguardedRwLock;

use crate::clock::Moment;
use crate::code::{Trouble, borrowed, number};
use crate::copies::served_by_first;
use crate::owned::Wait;

/// A reader-writer lock for memory that several processes map, at whatever address: 32 bytes. All zero it is
/// free, so FAIRLOCK_PROCESS_SHARED_INITIALIZER, new pages of shm_open or mmap, and static memory are free locks.
///
/// Readers and writers take turns: a reader that waits for a writer is next, and no other thread writes more than
/// twice before a writer that waits. At most 262143 readers, over all processes. Waiting threads sleep. Threads of
/// one process may use it, too, but a fairlock_rwlock_t is faster for them.
///
/// The lock's memory may be freed as soon as its last unlock has allowed another thread to acquire it, whether or
/// not that unlock has returned. All processes must use the same version of Fairlock, built for the same
/// architecture. Not robust: if a process ends while a thread of it holds the lock or waits, others may wait for
/// ever.
///
/// The lock knows neither which threads read nor which thread writes.
#[repr(C)]
pub struct fairlock_process_shared_t {
    /// The library's.
    opaque: [u64; 4],
}

/// What lies there.
#[repr(C)]
struct Shared {
    lock: ProcessSharedRwLock,
    /// 1 once it was destroyed: then it is locked for writing.
    destroyed: AtomicU32,
}

const _: () = assert!(size_of::<Shared>() <= size_of::<fairlock_process_shared_t>());
const _: () = assert!(align_of::<Shared>() <= align_of::<fairlock_process_shared_t>());

impl Shared {
    /// # Safety
    /// Null, or a lock.
    #[inline(always)]
    unsafe fn at<'a>(lock: *mut fairlock_process_shared_t) -> Result<&'a Shared, Trouble> {
        // SAFETY: the caller passes null or a lock; memory that is still zero is a free one.
        unsafe { borrowed(lock.cast_const().cast()) }
    }

    fn is_destroyed(&self) -> bool {
        self.destroyed.load(Relaxed) != 0
    }

    fn must_exist(&self) -> Result<(), Trouble> {
        if self.is_destroyed() { Err(Trouble::Invalid) } else { Ok(()) }
    }

    fn destroy(&self) -> Result<(), Trouble> {
        self.must_exist()?;
        self.lock.try_write()?;
        self.destroyed.store(1, Relaxed);
        Ok(())
    }

    fn read(&self, wait: Wait, past_waiters: bool) -> Result<(), Trouble> {
        self.must_exist()?;
        let read = |deadline| self.lock.read(deadline, past_waiters);
        wait.with(|| self.lock.try_read(past_waiters), read)
    }

    fn write(&self, wait: Wait) -> Result<(), Trouble> {
        self.must_exist()?;
        wait.with(|| self.lock.try_write(), |deadline| self.lock.write(deadline))
    }

    /// # Safety
    /// The calling thread reads; or nobody does, and nobody has just begun to write.
    unsafe fn unlock_read(&self) -> Result<(), Trouble> {
        self.must_exist()?;
        if self.lock.readers() == 0 {
            return Err(Trouble::NotHeld);
        }
        // SAFETY: somebody reads, and then the calling thread does, as the caller promises.
        unsafe { self.lock.unlock_read() };
        Ok(())
    }

    /// # Safety
    /// The calling thread writes, or nobody does.
    unsafe fn unlock_write(&self) -> Result<(), Trouble> {
        self.must_exist()?;
        if !self.lock.has_writer() {
            return Err(Trouble::NotHeld);
        }
        // SAFETY: somebody writes, and then the calling thread does, as the caller promises.
        unsafe { self.lock.unlock_write() };
        Ok(())
    }
}

/// # Safety
/// Null, or a lock.
unsafe fn read(lock: *mut fairlock_process_shared_t, wait: Wait, past_waiters: bool) -> c_int {
    // SAFETY: the caller passes null or a lock.
    number(unsafe { Shared::at(lock) }.and_then(|lock| lock.read(wait, past_waiters)))
}

/// # Safety
/// Null, or a lock.
unsafe fn write(lock: *mut fairlock_process_shared_t, wait: Wait) -> c_int {
    // SAFETY: the caller passes null or a lock.
    number(unsafe { Shared::at(lock) }.and_then(|lock| lock.write(wait)))
}

/// Makes the lock free, in memory that is not zero. No thread of any process may be using it.
///
/// Errors: EINVAL (null).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_process_shared_init(
    lock: *mut fairlock_process_shared_t,
) -> c_int {
    served_by_first!(fairlock_process_shared_init(lock));
    if lock.is_null() {
        return number(Err(Trouble::Invalid));
    }
    // SAFETY: not null, so memory that nobody uses, as the header asks; zeros are a free lock.
    unsafe { lock.write_bytes(0, 1) };
    0
}

/// Ends the lock's use, for all processes. It frees nothing: every use of the lock afterwards returns EINVAL until
/// it is initialised again. Optional.
///
/// Errors: EINVAL (null, or destroyed already), EBUSY (a thread holds it or waits: nothing is done).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_process_shared_destroy(
    lock: *mut fairlock_process_shared_t,
) -> c_int {
    served_by_first!(fairlock_process_shared_destroy(lock));
    // SAFETY: the header asks for null or a lock.
    number(unsafe { Shared::at(lock) }.and_then(Shared::destroy))
}

/// Acquires the lock for reading, and waits for as long as necessary. A thread that reads and asks to read again
/// may wait for ever, if a writer waits: see fairlock_process_shared_read_recursive.
///
/// Errors: EINVAL (null, or destroyed), EAGAIN (as many readers as there can be hold it, or wait).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_process_shared_read(
    lock: *mut fairlock_process_shared_t,
) -> c_int {
    served_by_first!(fairlock_process_shared_read(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { read(lock, Wait::ForEver, false) }
}

/// Acquires the lock for reading if that is possible without waiting.
///
/// Errors: EBUSY (a thread writes, or waits to), EINVAL, EAGAIN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_process_shared_try_read(
    lock: *mut fairlock_process_shared_t,
) -> c_int {
    served_by_first!(fairlock_process_shared_try_read(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { read(lock, Wait::Not, false) }
}

/// Acquires the lock for reading, waiting for at most so many nanoseconds.
///
/// Errors: ETIMEDOUT; otherwise as fairlock_process_shared_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_process_shared_try_read_for(
    lock: *mut fairlock_process_shared_t,
    nanoseconds: u64,
) -> c_int {
    served_by_first!(fairlock_process_shared_try_read_for(lock, nanoseconds));
    // SAFETY: the header asks for null or a lock.
    unsafe { read(lock, Wait::For(nanoseconds), false) }
}

/// Acquires the lock for reading, waiting until the clock shows the deadline, as fairlock_rwlock_try_read_until
/// does.
///
/// Errors: ETIMEDOUT, EINVAL as there; otherwise as fairlock_process_shared_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_process_shared_try_read_until(
    lock: *mut fairlock_process_shared_t,
    clock: c_int,
    deadline: *const libc::timespec,
) -> c_int {
    served_by_first!(fairlock_process_shared_try_read_until(lock, clock, deadline));
    // SAFETY: the header asks for null or a time.
    match unsafe { Moment::of(clock, deadline) } {
        // SAFETY: the header asks for null or a lock.
        Ok(moment) => unsafe { read(lock, Wait::Until(moment), false) },
        Err(trouble) => number(Err(trouble)),
    }
}

/// As fairlock_process_shared_read, for a thread that already reads: it passes waiting writers. Unlock each of the
/// acquisitions.
///
/// Errors: as fairlock_process_shared_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_process_shared_read_recursive(
    lock: *mut fairlock_process_shared_t,
) -> c_int {
    served_by_first!(fairlock_process_shared_read_recursive(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { read(lock, Wait::ForEver, true) }
}

/// Acquires the lock for writing, and waits for as long as necessary. A thread that holds it waits for itself for
/// ever.
///
/// Errors: EINVAL (null, or destroyed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_process_shared_write(
    lock: *mut fairlock_process_shared_t,
) -> c_int {
    served_by_first!(fairlock_process_shared_write(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { write(lock, Wait::ForEver) }
}

/// Acquires the lock for writing if that is possible without waiting.
///
/// Errors: EBUSY (a thread holds it), EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_process_shared_try_write(
    lock: *mut fairlock_process_shared_t,
) -> c_int {
    served_by_first!(fairlock_process_shared_try_write(lock));
    // SAFETY: the header asks for null or a lock.
    unsafe { write(lock, Wait::Not) }
}

/// Acquires the lock for writing, waiting for at most so many nanoseconds.
///
/// Errors: ETIMEDOUT, EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_process_shared_try_write_for(
    lock: *mut fairlock_process_shared_t,
    nanoseconds: u64,
) -> c_int {
    served_by_first!(fairlock_process_shared_try_write_for(lock, nanoseconds));
    // SAFETY: the header asks for null or a lock.
    unsafe { write(lock, Wait::For(nanoseconds)) }
}

/// Acquires the lock for writing, waiting until the clock shows the deadline, as fairlock_rwlock_try_read_until
/// does.
///
/// Errors: ETIMEDOUT, EINVAL (also as there).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_process_shared_try_write_until(
    lock: *mut fairlock_process_shared_t,
    clock: c_int,
    deadline: *const libc::timespec,
) -> c_int {
    served_by_first!(fairlock_process_shared_try_write_until(lock, clock, deadline));
    // SAFETY: the header asks for null or a time.
    match unsafe { Moment::of(clock, deadline) } {
        // SAFETY: the header asks for null or a lock.
        Ok(moment) => unsafe { write(lock, Wait::Until(moment)) },
        Err(trouble) => number(Err(trouble)),
    }
}

/// Releases the lock, which the calling thread holds for reading. The lock may be gone when this returns.
///
/// Errors: EPERM (nobody reads), EINVAL (null, or destroyed). To unlock a lock that only others read is not
/// detected, and breaks the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_process_shared_unlock_read(
    lock: *mut fairlock_process_shared_t,
) -> c_int {
    served_by_first!(fairlock_process_shared_unlock_read(lock));
    // SAFETY: the header asks for null or a lock, of which a thread unlocks what it holds itself.
    number(unsafe { Shared::at(lock).and_then(|lock| lock.unlock_read()) })
}

/// Releases the lock, which the calling thread holds for writing. The lock may be gone when this returns.
///
/// Errors: EPERM (nobody writes), EINVAL (null, or destroyed). To unlock a lock that another thread writes is
/// not detected, and breaks the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_process_shared_unlock_write(
    lock: *mut fairlock_process_shared_t,
) -> c_int {
    served_by_first!(fairlock_process_shared_unlock_write(lock));
    // SAFETY: the header asks for null or a lock, of which a thread unlocks what it holds itself.
    number(unsafe { Shared::at(lock).and_then(|lock| lock.unlock_write()) })
}
