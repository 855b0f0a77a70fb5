//! `fairlock_cond_t`.

use core::ffi::c_int;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, fence};

use fairlock::condvar::RawCondvar;
use fairlock::unguarded::Refused;

use crate::clock::{Moment, after};
use crate::code::{Trouble, borrowed, number};
use crate::copies::served_by_first;
use crate::fairlock_mutex_t;
use crate::mutex::Lock;
use crate::owned::Wait;

/// A condition variable: threads wait for something that other threads change under a
/// fairlock_mutex_t. 32 bytes, anywhere in memory; one without waiters is all zero, so
/// FAIRLOCK_COND_INITIALIZER, static memory and calloc make one.
///
/// Threads are notified in the order in which they began to wait. A wait returns 0 only if its
/// thread was notified: there are no spurious wake-ups. But another thread may have changed the
/// data by the time this one has the mutex again, so look at them again. A signal or broadcast
/// that finds no waiter costs one load. It may come before or after the unlock of the mutex.
///
/// All threads that wait at the same time use the same mutex. The condition variable's memory may
/// be freed as soon as its last waiter was notified, whether or not that signal or broadcast has
/// returned. In the child of a fork, initialise it again if threads waited. Not for memory that
/// processes share.
#[repr(C)]
pub struct fairlock_cond_t {
    /// The library's.
    opaque: [u64; 4],
}

/// What lies there.
#[repr(C)]
struct Cond {
    raw: RawCondvar,
    /// 1 once it was destroyed.
    destroyed: AtomicU32,
}

const _: () = assert!(size_of::<Cond>() <= size_of::<fairlock_cond_t>());
const _: () = assert!(align_of::<Cond>() <= align_of::<fairlock_cond_t>());

impl Cond {
    /// # Safety
    /// Null, or a condition variable.
    unsafe fn at<'a>(cond: *mut fairlock_cond_t) -> Result<&'a Cond, Trouble> {
        // SAFETY: the caller passes null or a condition variable; zeros are one without waiters.
        let cond = unsafe { borrowed(cond.cast_const().cast::<Cond>()) }?;
        if cond.destroyed.load(Relaxed) != 0 { Err(Trouble::Invalid) } else { Ok(cond) }
    }

    fn destroy(&self) -> Result<(), Trouble> {
        if self.raw.has_waiters() {
            return Err(Trouble::Busy);
        }
        self.destroyed.store(1, Relaxed);
        Ok(())
    }

    fn wait(&self, mutex: &Lock, deadline: impl Fn() -> Option<u64>) -> Result<(), Trouble> {
        mutex.must_be_written()?;
        // It succeeds, as this thread writes.
        let release = || _ = mutex.unlock_write();
        // SAFETY: an unlock does not panic.
        let outcome = unsafe { self.raw.wait_with(mutex, release, deadline) };
        if outcome != Err(Refused::Busy) {
            mutex.write(Wait::ForEver)?;
        }
        outcome.map_err(Trouble::from)
    }

    /// As `wait`, but ends once the flag is set.
    ///
    /// No interruption is lost: either the thread that interrupts sees that this one has queued,
    /// and notifies it, or its look came before. Then the fences order its store to the flag
    /// before this thread's load, which comes after it has queued.
    fn wait_unless(
        &self,
        interrupted: &AtomicU32,
        mutex: &Lock,
        deadline: impl Fn() -> Option<u64>,
    ) -> Result<(), Trouble> {
        let is_interrupted = || interrupted.load(Relaxed) != 0;
        let end = || {
            // Pairs with the fence in `interrupt`.
            fence(SeqCst);
            if is_interrupted() { Some(0) } else { deadline() }
        };
        match self.wait(mutex, end) {
            Ok(()) | Err(Trouble::TimedOut) if is_interrupted() => Err(Trouble::Interrupted),
            outcome => outcome,
        }
    }

    fn interrupt(&self, interrupted: &AtomicU32) {
        interrupted.store(1, Relaxed);
        // Pairs with the fence in `wait_unless`.
        fence(SeqCst);
        self.raw.notify_all();
    }
}

/// # Safety
/// Null, or a flag that only the functions below touch.
unsafe fn flag<'a>(flag: *const u32) -> Result<&'a AtomicU32, Trouble> {
    // SAFETY: the caller passes null or a flag, which is touched by atomic operations alone.
    unsafe { borrowed(flag.cast()) }
}

/// Makes a condition variable without waiters, as FAIRLOCK_COND_INITIALIZER does, in memory that
/// is not zero. No thread may be using it.
///
/// Errors: EINVAL (null).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_cond_init(cond: *mut fairlock_cond_t) -> c_int {
    served_by_first!(fairlock_cond_init(cond));
    if cond.is_null() {
        return number(Err(Trouble::Invalid));
    }
    // SAFETY: not null, so memory that no thread uses, as the header asks.
    unsafe { cond.write_bytes(0, 1) };
    0
}

/// Ends the condition variable's use. It frees nothing: every use afterwards returns EINVAL until
/// it is initialised again. Optional.
///
/// Errors: EINVAL (null, or destroyed already), EBUSY (a thread waits: nothing is done).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_cond_destroy(cond: *mut fairlock_cond_t) -> c_int {
    served_by_first!(fairlock_cond_destroy(cond));
    // SAFETY: the header asks for null or a condition variable.
    number(unsafe { Cond::at(cond) }.and_then(Cond::destroy))
}

/// # Safety
/// Each is null, or what its type says.
unsafe fn wait(
    cond: *mut fairlock_cond_t,
    mutex: *mut fairlock_mutex_t,
    deadline: impl Fn() -> Option<u64>,
) -> c_int {
    // SAFETY: the caller passes null or a condition variable, and null or a mutex.
    let both = unsafe { Cond::at(cond).and_then(|cond| Ok((cond, Lock::at(mutex)?))) };
    number(both.and_then(|(cond, mutex)| cond.wait(mutex, deadline)))
}

/// Releases the mutex, which the calling thread holds, waits until the thread is notified, and
/// acquires the mutex again.
///
/// Errors: EPERM (the calling thread does not hold the mutex), EBUSY (threads wait with another
/// mutex), EINVAL (null, or destroyed; if the mutex was destroyed during the wait, it is not
/// held).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_cond_wait(
    cond: *mut fairlock_cond_t,
    mutex: *mut fairlock_mutex_t,
) -> c_int {
    served_by_first!(fairlock_cond_wait(cond, mutex));
    // SAFETY: the header asks for null or a condition variable, and null or a mutex.
    unsafe { wait(cond, mutex, || None) }
}

/// As fairlock_cond_wait, waiting for a notification for at most this many nanoseconds. Acquiring
/// the mutex again takes as long as necessary.
///
/// Errors: ETIMEDOUT (the mutex is held again); otherwise as fairlock_cond_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_cond_wait_for(
    cond: *mut fairlock_cond_t,
    mutex: *mut fairlock_mutex_t,
    nanoseconds: u64,
) -> c_int {
    served_by_first!(fairlock_cond_wait_for(cond, mutex, nanoseconds));
    let deadline = after(nanoseconds);
    // SAFETY: the header asks for null or a condition variable, and null or a mutex.
    unsafe { wait(cond, mutex, || deadline) }
}

/// As fairlock_cond_wait, waiting for a notification until the clock shows the deadline, as
/// fairlock_rwlock_try_read_until does. Acquiring the mutex again takes as long as necessary.
///
/// Errors: ETIMEDOUT (the mutex is held again), EINVAL as there; otherwise as fairlock_cond_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_cond_wait_until(
    cond: *mut fairlock_cond_t,
    mutex: *mut fairlock_mutex_t,
    clock: c_int,
    deadline: *const libc::timespec,
) -> c_int {
    served_by_first!(fairlock_cond_wait_until(cond, mutex, clock, deadline));
    // SAFETY: the header asks for null or a time.
    match unsafe { Moment::of(clock, deadline) } {
        // SAFETY: the header asks for null or a condition variable, and null or a mutex.
        Ok(moment) => unsafe { wait(cond, mutex, || moment.deadline()) },
        Err(trouble) => number(Err(trouble)),
    }
}

/// As fairlock_cond_wait_for, but the wait also ends when fairlock_cond_interrupt has set
/// `*interrupted`, before the wait or during it. The flag is 0 at first. Only these two functions
/// may touch it while threads wait.
///
/// Errors: ECANCELED (it was interrupted: the mutex is held again, and the thread may have been
/// notified, too); otherwise as fairlock_cond_wait_for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_cond_wait_for_unless(
    cond: *mut fairlock_cond_t,
    mutex: *mut fairlock_mutex_t,
    nanoseconds: u64,
    interrupted: *const u32,
) -> c_int {
    served_by_first!(fairlock_cond_wait_for_unless(cond, mutex, nanoseconds, interrupted));
    let deadline = after(nanoseconds);
    // SAFETY: the header asks for null or a condition variable, a mutex and a flag.
    let all =
        unsafe { Cond::at(cond).and_then(|cond| Ok((cond, Lock::at(mutex)?, flag(interrupted)?))) };
    number(
        all.and_then(|(cond, mutex, interrupted)| {
            cond.wait_unless(interrupted, mutex, || deadline)
        }),
    )
}

/// Notifies the thread that has waited longest, if a thread waits.
///
/// Errors: EINVAL (null, or destroyed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_cond_signal(cond: *mut fairlock_cond_t) -> c_int {
    served_by_first!(fairlock_cond_signal(cond));
    // SAFETY: the header asks for null or a condition variable.
    number(unsafe { Cond::at(cond) }.map(|cond| _ = cond.raw.notify_one()))
}

/// Notifies all threads that wait at this moment.
///
/// Errors: EINVAL (null, or destroyed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_cond_broadcast(cond: *mut fairlock_cond_t) -> c_int {
    served_by_first!(fairlock_cond_broadcast(cond));
    // SAFETY: the header asks for null or a condition variable.
    number(unsafe { Cond::at(cond) }.map(|cond| _ = cond.raw.notify_all()))
}

/// Sets `*interrupted` to 1, which ends the waits of fairlock_cond_wait_for_unless with that
/// flag, and notifies all threads that wait at this moment. Never waits for the mutex, and no
/// wait misses it: the caller need not hold the mutex. The condition variable must exist until
/// this returns.
///
/// Errors: EINVAL (null, or destroyed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_cond_interrupt(
    cond: *mut fairlock_cond_t,
    interrupted: *mut u32,
) -> c_int {
    served_by_first!(fairlock_cond_interrupt(cond, interrupted));
    // SAFETY: the header asks for null or a condition variable, and for null or a flag.
    let both = unsafe { Cond::at(cond).and_then(|cond| Ok((cond, flag(interrupted)?))) };
    number(both.map(|(cond, interrupted)| cond.interrupt(interrupted)))
}
