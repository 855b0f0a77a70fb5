//! `fairlock_range_lock_t`, and the memory that these come from.
//!
//! An unlock may still be about to lower a filter, or to wake a waiter, when another thread has acquired the
//! range and frees the lock. So a lock's memory stays a range lock for ever: a lock that is freed goes to a
//! pool as it is, and the next new lock is the one that was freed last. Such a late unlock does no harm to
//! the new lock: filters count, and any thread may grant a range that is free.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;
use std::alloc::{Layout, alloc};

use fairlock::Mutex;
use fairlock::platform::Os;
use fairlock::range::{Access, Extent, Patience, RawRangeLock, Slotted, SlottedHold};
use fairlock::unguarded::Refused;

use crate::clock::Moment;
use crate::code::{Trouble, borrowed, caught, guarded};
use crate::copies::served_by_first;
use crate::owned::Wait;

/// As a length: all from the offset on.
pub const FAIRLOCK_TO_END: u64 = u64::MAX;

/// A lock over ranges of positions, say bytes of a file or elements of an array: readers share, writers
/// are alone, and only those wait for each other whose ranges overlap.
///
/// Ranges that are disjoint, and those that are shared, write no cache line in common. A thread may hold
/// many ranges; one that asks for a range that its own keep from it waits for ever.
pub struct fairlock_range_lock_t {
    lock: Slotted<Os>,
    /// The next in the pool; the pool's alone.
    next: *mut fairlock_range_lock_t,
}

/// A held range: what its unlock needs. It may be anywhere in memory and need not be initialised.
#[repr(C)]
pub struct fairlock_range_hold_t {
    /// The library's.
    opaque: [u64; 6],
}

/// What is in a `fairlock_range_hold_t`.
#[repr(C)]
struct Hold {
    /// Null if nothing is held.
    lock: *const fairlock_range_lock_t,
    extent: Extent,
    exclusive: bool,
    hold: MaybeUninit<SlottedHold<Os>>,
}

const _: () = assert!(size_of::<Hold>() <= size_of::<fairlock_range_hold_t>());
const _: () = assert!(align_of::<Hold>() <= align_of::<fairlock_range_hold_t>());

/// Locks that were freed, the last one first.
struct Pool(*mut fairlock_range_lock_t);

// SAFETY: the locks in the pool belong to it alone.
unsafe impl Send for Pool {}

static POOL: Mutex<Pool> = Mutex::new(Pool(ptr::null_mut()));

impl Pool {
    fn take(&mut self) -> Option<*mut fairlock_range_lock_t> {
        // SAFETY: a lock in the pool was built, and is never deallocated.
        let first = unsafe { self.0.as_mut() }?;
        self.0 = first.next;
        Some(first)
    }
}

/// None if there is no memory.
fn build() -> *mut fairlock_range_lock_t {
    // SAFETY: the layout is not empty.
    let memory: *mut fairlock_range_lock_t =
        unsafe { alloc(Layout::new::<fairlock_range_lock_t>()) }.cast();
    if !memory.is_null() {
        let new = fairlock_range_lock_t { lock: Slotted::NEW, next: ptr::null_mut() };
        // SAFETY: just allocated for one.
        unsafe { memory.write(new) };
    }
    memory
}

/// A new lock of which no range is held; null if there is no memory for it (about 1200 bytes).
#[unsafe(no_mangle)]
pub extern "C" fn fairlock_range_lock_new() -> *mut fairlock_range_lock_t {
    served_by_first!(fairlock_range_lock_new());
    caught(|| {
        let pooled = POOL.lock().take();
        pooled.unwrap_or_else(build)
    })
    .unwrap_or(ptr::null_mut())
}

/// Frees a lock. Its memory is kept for later range locks, so it may be freed as soon as the last unlock has
/// allowed another thread to acquire a range, whether or not that unlock has returned.
///
/// Errors: EINVAL (null), EBUSY (a range of it is held or waited for: nothing is done).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_range_lock_free(lock: *mut fairlock_range_lock_t) -> c_int {
    served_by_first!(fairlock_range_lock_free(lock));
    guarded(|| {
        // SAFETY: the header asks for null or a lock.
        let raw = &unsafe { borrowed(lock) }?.lock;
        let everything = raw.acquire(Extent::ALL, Access::Exclusive, Patience::None);
        let hold = everything.ok_or(Trouble::Busy)?;
        // SAFETY: just acquired.
        unsafe { raw.release(Extent::ALL, Access::Exclusive, hold) };
        let mut pool = POOL.lock();
        // SAFETY: alive, and now the pool's. Late unlocks look at `lock` alone.
        unsafe { (&raw mut (*lock).next).write(pool.0) };
        pool.0 = lock;
        Ok(())
    })
}

fn extent(offset: u64, length: u64) -> Result<Extent, Trouble> {
    let extent = match length {
        FAIRLOCK_TO_END => Extent::of(offset..),
        length => Extent::at(offset, length),
    };
    extent.map_err(|_| Trouble::Invalid)
}

/// Acquires a range into `room`, and waits as `wait` says.
///
/// # Safety
/// `lock` is null, or a lock; `room` is null, or has room for a hold.
unsafe fn acquire(
    lock: *mut fairlock_range_lock_t,
    offset: u64,
    length: u64,
    access: Access,
    wait: Result<Wait, Trouble>,
    room: *mut fairlock_range_hold_t,
) -> c_int {
    guarded(|| {
        let wait = wait?;
        // SAFETY: the caller passes null or a lock.
        let lock = unsafe { borrowed(lock) }?;
        let extent = extent(offset, length)?;
        if room.is_null() {
            return Err(Trouble::Invalid);
        }
        let acquire = |patience| lock.lock.acquire(extent, access, patience);
        let hold = wait.with(
            || acquire(Patience::None).ok_or(Refused::Busy),
            |deadline| acquire(Patience::Until(deadline)).ok_or(Refused::TimedOut),
        )?;
        let exclusive = access == Access::Exclusive;
        let hold = Hold { lock, extent, exclusive, hold: MaybeUninit::new(hold) };
        // SAFETY: not null, so the caller's room for a hold, which is large enough, as asserted above.
        unsafe { room.cast::<Hold>().write(hold) };
        Ok(())
    })
}

/// Acquires a range shared: `length` positions from `offset` on. Waits for as long as necessary.
/// FAIRLOCK_TO_END is a length, too.
///
/// Errors: EINVAL (null, a length of 0, or an end beyond UINT64_MAX).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_range_read(
    lock: *mut fairlock_range_lock_t,
    offset: u64,
    length: u64,
    hold: *mut fairlock_range_hold_t,
) -> c_int {
    served_by_first!(fairlock_range_read(lock, offset, length, hold));
    // SAFETY: the header asks for null or a lock, and null or room for a hold.
    unsafe { acquire(lock, offset, length, Access::Shared, Ok(Wait::ForEver), hold) }
}

/// Acquires a range shared if that is possible without waiting.
///
/// Errors: EBUSY (another thread holds some of it exclusively, or waited for it earlier), EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_range_try_read(
    lock: *mut fairlock_range_lock_t,
    offset: u64,
    length: u64,
    hold: *mut fairlock_range_hold_t,
) -> c_int {
    served_by_first!(fairlock_range_try_read(lock, offset, length, hold));
    // SAFETY: the header asks for null or a lock, and null or room for a hold.
    unsafe { acquire(lock, offset, length, Access::Shared, Ok(Wait::Not), hold) }
}

/// Acquires a range shared, waiting for at most so many nanoseconds. A wait that runs out of time leaves no
/// trace.
///
/// Errors: ETIMEDOUT, EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_range_try_read_for(
    lock: *mut fairlock_range_lock_t,
    offset: u64,
    length: u64,
    nanoseconds: u64,
    hold: *mut fairlock_range_hold_t,
) -> c_int {
    served_by_first!(fairlock_range_try_read_for(lock, offset, length, nanoseconds, hold));
    // SAFETY: the header asks for null or a lock, and null or room for a hold.
    unsafe { acquire(lock, offset, length, Access::Shared, Ok(Wait::For(nanoseconds)), hold) }
}

/// Acquires a range shared, waiting until the clock shows the deadline, as
/// fairlock_rwlock_try_read_until does.
///
/// Errors: ETIMEDOUT, EINVAL (also as there).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_range_try_read_until(
    lock: *mut fairlock_range_lock_t,
    offset: u64,
    length: u64,
    clock: c_int,
    deadline: *const libc::timespec,
    hold: *mut fairlock_range_hold_t,
) -> c_int {
    served_by_first!(fairlock_range_try_read_until(lock, offset, length, clock, deadline, hold));
    // SAFETY: the header asks for null or a time.
    let until = unsafe { Moment::of(clock, deadline) }.map(Wait::Until);
    // SAFETY: the header asks for null or a lock, and null or room for a hold.
    unsafe { acquire(lock, offset, length, Access::Shared, until, hold) }
}

/// Acquires a range exclusively, and waits for as long as necessary.
///
/// Errors: EINVAL as with fairlock_range_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_range_write(
    lock: *mut fairlock_range_lock_t,
    offset: u64,
    length: u64,
    hold: *mut fairlock_range_hold_t,
) -> c_int {
    served_by_first!(fairlock_range_write(lock, offset, length, hold));
    // SAFETY: the header asks for null or a lock, and null or room for a hold.
    unsafe { acquire(lock, offset, length, Access::Exclusive, Ok(Wait::ForEver), hold) }
}

/// Acquires a range exclusively if that is possible without waiting.
///
/// Errors: EBUSY (another thread holds some of it, or waited for it earlier), EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_range_try_write(
    lock: *mut fairlock_range_lock_t,
    offset: u64,
    length: u64,
    hold: *mut fairlock_range_hold_t,
) -> c_int {
    served_by_first!(fairlock_range_try_write(lock, offset, length, hold));
    // SAFETY: the header asks for null or a lock, and null or room for a hold.
    unsafe { acquire(lock, offset, length, Access::Exclusive, Ok(Wait::Not), hold) }
}

/// Acquires a range exclusively, waiting for at most so many nanoseconds. A wait that runs out of time
/// leaves no trace.
///
/// Errors: ETIMEDOUT, EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_range_try_write_for(
    lock: *mut fairlock_range_lock_t,
    offset: u64,
    length: u64,
    nanoseconds: u64,
    hold: *mut fairlock_range_hold_t,
) -> c_int {
    served_by_first!(fairlock_range_try_write_for(lock, offset, length, nanoseconds, hold));
    // SAFETY: the header asks for null or a lock, and null or room for a hold.
    unsafe { acquire(lock, offset, length, Access::Exclusive, Ok(Wait::For(nanoseconds)), hold) }
}

/// Acquires a range exclusively, waiting until the clock shows the deadline, as
/// fairlock_rwlock_try_read_until does.
///
/// Errors: ETIMEDOUT, EINVAL (also as there).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_range_try_write_until(
    lock: *mut fairlock_range_lock_t,
    offset: u64,
    length: u64,
    clock: c_int,
    deadline: *const libc::timespec,
    hold: *mut fairlock_range_hold_t,
) -> c_int {
    served_by_first!(fairlock_range_try_write_until(lock, offset, length, clock, deadline, hold));
    // SAFETY: the header asks for null or a time.
    let until = unsafe { Moment::of(clock, deadline) }.map(Wait::Until);
    // SAFETY: the header asks for null or a lock, and null or room for a hold.
    unsafe { acquire(lock, offset, length, Access::Exclusive, until, hold) }
}

/// # Safety
/// Null, or a hold that was acquired, and that nobody else uses meanwhile.
unsafe fn held<'a>(hold: *mut fairlock_range_hold_t) -> Result<&'a mut Hold, Trouble> {
    // SAFETY: the caller passes null or a hold that nobody else uses.
    let hold = unsafe { hold.cast::<Hold>().as_mut() }.ok_or(Trouble::Invalid)?;
    if hold.lock.is_null() { Err(Trouble::NotHeld) } else { Ok(hold) }
}

/// Releases a range, on any thread. The lock may be gone when this returns, since another thread may have
/// freed it.
///
/// Errors: EPERM (it was released already), EINVAL (null). The hold must come from an acquisition; if it was
/// copied, release only one of the copies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_range_unlock(hold: *mut fairlock_range_hold_t) -> c_int {
    served_by_first!(fairlock_range_unlock(hold));
    guarded(|| {
        // SAFETY: the header asks for null or a hold that was acquired.
        let held = unsafe { held(hold) }?;
        let lock = core::mem::replace(&mut held.lock, ptr::null());
        // SAFETY: the lock is one for ever; the hold came from it, and is not used again.
        unsafe {
            let hold = held.hold.assume_init_read();
            let access = if held.exclusive { Access::Exclusive } else { Access::Shared };
            (*lock).lock.release(held.extent, access, hold);
        }
        Ok(())
    })
}

/// Turns an exclusive range into a shared one. Threads that wait to share it acquire it, and nobody acquires it
/// exclusively in between.
///
/// Errors: EPERM (it is not held, or not held exclusively), EINVAL (null).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fairlock_range_downgrade(hold: *mut fairlock_range_hold_t) -> c_int {
    served_by_first!(fairlock_range_downgrade(hold));
    guarded(|| {
        // SAFETY: the header asks for null or a hold that was acquired.
        let held = unsafe { held(hold) }?;
        if !held.exclusive {
            return Err(Trouble::NotHeld);
        }
        held.exclusive = false;
        // SAFETY: the lock is one for ever; the hold came from it with exclusive access, and was not released.
        unsafe { (*held.lock).lock.downgrade(held.extent, held.hold.assume_init_mut()) };
        Ok(())
    })
}
