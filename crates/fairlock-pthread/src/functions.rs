//! Every `pthread_rwlock_*` and `pthread_rwlockattr_*` function of glibc, under its name.
//!
//! The default mode's uncontended paths stand in the functions themselves; everything else goes
//! through [`read`], [`write()`] and [`unlock`].

// What a caller has to see to is what POSIX says about the function of that name.
#![allow(clippy::missing_safety_doc)]

use core::sync::atomic::Ordering::Relaxed;

use fairlock::platform::Platform;
use fairlock::policy;
use fairlock::unguarded::{Refused, UnguardedRwLock};
use fairlock_counts::layout::{READ, WRITE};
use libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, EAGAIN, EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT, c_int,
    clockid_t, pthread_rwlock_t, pthread_rwlockattr_t, timespec,
};

use crate::clock::Deadline;
use crate::counting::{self, Counted};
use crate::glibc;
use crate::lock::{Lock, PREFER_READER, PREFER_WRITER, PREFER_WRITER_NONRECURSIVE};
use crate::modes::{Biased, Choice, Linux, Mode, PhaseFair, TimeFair};
use crate::platform::Preloaded;
use crate::thread::Thread;

/// How long a caller waits.
#[derive(Clone, Copy)]
enum Patience {
    None,
    Forever,
    Until(Deadline),
}

/// So long readers that may be recursive wait behind a writer that only waits itself, ns. Then
/// nobody may be able to go on but by letting them in.
const STANDSTILL: u64 = 1_000_000_000;

/// The body, with the lock that this mode has there.
macro_rules! with_lock {
    ($mode:expr, $at:expr, $lock:ident => $body:expr) => {
        with_lock! { $mode, $at, $lock => $body;
            Biased: Biased,
            PhaseFair: PhaseFair,
            Linux3_10: Linux<policy::Linux3_10>,
            Linux3_16: Linux<policy::Linux3_16>,
            Linux5_1: Linux<policy::Linux5_1>,
            Linux5_2: Linux<policy::Linux5_2>,
            Linux5_3: Linux<policy::Linux5_3>,
            Linux5_11: Linux<policy::Linux5_11>,
            NoReaderSteal: Linux<policy::NoReaderSteal>,
        }
    };
    ($mode:expr, $at:expr, $lock:ident => $body:expr; $($choice:ident: $type:ty,)*) => {
        match $mode.choice() {
            _ if $at.is_shared() => {
                let $lock = $at.process_shared();
                $body
            }
            $(Choice::$choice => {
                let $lock = $at.of::<$type>();
                $body
            })*
            Choice::TimeFair | Choice::Glibc => {
                let $lock = $at.of::<TimeFair>();
                $body
            }
        }
    };
}

// ---- what the functions do ----

// In the first three everything that is rare is a function of its own at the very end, so that the rest
// does without a stack frame.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's, as for all that follow.
    let at = unsafe { Lock::at(lock) };
    let mode = Mode::at_a_glance();
    if mode == Mode::TIME_FAIR && at.of::<TimeFair>().read_at_once() {
        Thread::with(Thread::now_reads);
        return 0;
    }
    if mode == Mode::TIME_FAIR_COUNTED && at.of::<TimeFair>().read_at_once() {
        return Thread::with(|thread| {
            thread.now_reads();
            counting::acquired_at_once(at, thread, READ)
        });
    }
    // SAFETY: as above.
    unsafe { rdlock_otherwise(lock) }
}

#[inline(never)]
unsafe extern "C" fn rdlock_otherwise(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: as above.
    let at = unsafe { Lock::at(lock) };
    let mode = Mode::get();
    if mode == Mode::GLIBC {
        // SAFETY: as above.
        return unsafe { glibc::rdlock(lock) };
    }
    if is_biased(at, mode) && at.of::<Biased>().read_at_once() {
        return Thread::with(|thread| {
            thread.now_reads();
            if mode.counts() { counting::acquired_at_once(at, thread, READ) } else { 0 }
        });
    }
    // SAFETY: as above.
    unsafe { rdlock_in_any_mode(lock) }
}

/// Reads by slots do not tell a process-shared lock by its first word.
#[inline(always)]
fn is_biased(at: &Lock, mode: Mode) -> bool {
    matches!(mode, Mode::BIASED | Mode::BIASED_COUNTED) && !at.is_shared()
}

#[inline(never)]
unsafe extern "C" fn rdlock_in_any_mode(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: as above.
    unsafe { read(lock, Patience::Forever) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: as above.
    let at = unsafe { Lock::at(lock) };
    let mode = Mode::at_a_glance();
    if mode == Mode::TIME_FAIR && at.of::<TimeFair>().write_at_once() {
        at.owner().store(Thread::with(Thread::tid), Relaxed);
        return 0;
    }
    if mode == Mode::TIME_FAIR_COUNTED && at.of::<TimeFair>().write_at_once() {
        return Thread::with(|thread| {
            at.owner().store(thread.tid(), Relaxed);
            counting::acquired_at_once(at, thread, WRITE)
        });
    }
    // SAFETY: as above.
    unsafe { wrlock_otherwise(lock) }
}

#[inline(never)]
unsafe extern "C" fn wrlock_otherwise(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: as above.
    let at = unsafe { Lock::at(lock) };
    let mode = Mode::get();
    if mode == Mode::GLIBC {
        // SAFETY: as above.
        return unsafe { glibc::wrlock(lock) };
    }
    if is_biased(at, mode) && at.of::<Biased>().write_at_once() {
        return Thread::with(|thread| {
            at.owner().store(thread.tid(), Relaxed);
            if mode.counts() { counting::acquired_at_once(at, thread, WRITE) } else { 0 }
        });
    }
    // SAFETY: as above.
    unsafe { wrlock_in_any_mode(lock) }
}

#[inline(never)]
unsafe extern "C" fn wrlock_in_any_mode(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: as above.
    unsafe { write(lock, Patience::Forever) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: as above.
    let at = unsafe { Lock::at(lock) };
    let mode = Mode::at_a_glance();
    if mode == Mode::TIME_FAIR && !at.is_shared() {
        // SAFETY: as above.
        return unsafe { unlock_with(at.of::<TimeFair>(), at) };
    }
    let is_counted = mode == Mode::TIME_FAIR_COUNTED && !at.is_shared();
    if is_counted && Thread::with(|thread| counting::releases_at_once(at, thread)) {
        // SAFETY: as above.
        return unsafe { unlock_with(at.of::<TimeFair>(), at) };
    }
    // SAFETY: as above.
    unsafe { unlock_otherwise(lock) }
}

#[inline(never)]
unsafe extern "C" fn unlock_otherwise(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: as above.
    let at = unsafe { Lock::at(lock) };
    let mode = Mode::get();
    if mode == Mode::GLIBC {
        // SAFETY: as above.
        return unsafe { glibc::unlock(lock) };
    }
    let is_uncounted = !mode.counts();
    if is_biased(at, mode)
        && (is_uncounted || Thread::with(|thread| counting::releases_at_once(at, thread)))
    {
        // SAFETY: as above.
        return unsafe { unlock_with(at.of::<Biased>(), at) };
    }
    // SAFETY: as above.
    unsafe { unlock(lock) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: as above.
    unsafe { read(lock, Patience::None) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: as above.
    unsafe { write(lock, Patience::None) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_timedrdlock(
    lock: *mut pthread_rwlock_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: as above.
    unsafe { pthread_rwlock_clockrdlock(lock, CLOCK_REALTIME, until) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_timedwrlock(
    lock: *mut pthread_rwlock_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: as above.
    unsafe { pthread_rwlock_clockwrlock(lock, CLOCK_REALTIME, until) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_clockrdlock(
    lock: *mut pthread_rwlock_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: as above.
    match unsafe { Deadline::new(clock, until) } {
        // SAFETY: as above.
        Ok(deadline) => unsafe { read(lock, Patience::Until(deadline)) },
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_clockwrlock(
    lock: *mut pthread_rwlock_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: as above.
    match unsafe { Deadline::new(clock, until) } {
        // SAFETY: as above.
        Ok(deadline) => unsafe { write(lock, Patience::Until(deadline)) },
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_init(
    lock: *mut pthread_rwlock_t,
    attributes: *const pthread_rwlockattr_t,
) -> c_int {
    // SAFETY: null or the caller's.
    let attributes = unsafe { attributes.cast::<Attributes>().as_ref() };
    let mode = Mode::get();
    if mode.choice() == Choice::Glibc {
        // SAFETY: the caller's. The structure is glibc's.
        let code = unsafe {
            glibc::init(
                lock,
                attributes.map_or(core::ptr::null(), |it| core::ptr::from_ref(it).cast()),
            )
        };
        if code != 0 {
            return code;
        }
    } else {
        let (kind, sharing) =
            attributes.map_or((PREFER_READER, PRIVATE), |it| (it.kind, it.sharing));
        // SAFETY: the caller's.
        unsafe { Lock::initialise(lock, kind, sharing != PRIVATE) };
    }
    if mode.counts() {
        // SAFETY: initialised above.
        counting::initialised(unsafe { Lock::at(lock) }, mode);
    }
    0
}

/// As glibc it does not look whether somebody holds the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_destroy(lock: *mut pthread_rwlock_t) -> c_int {
    let mode = Mode::get();
    if mode.counts() {
        // SAFETY: the caller's.
        counting::destroyed(unsafe { Lock::at(lock) }, mode);
    }
    match mode.choice() {
        // SAFETY: the caller's.
        Choice::Glibc => unsafe { glibc::destroy(lock) },
        _ => 0,
    }
}

/// By any mode.
///
/// # Safety
/// It is a lock.
#[inline(never)]
unsafe fn read(lock: *mut pthread_rwlock_t, patience: Patience) -> c_int {
    let mode = Mode::get();
    // SAFETY: the caller's.
    let at = unsafe { Lock::at(lock) };
    if mode.choice() == Choice::Glibc {
        // SAFETY: the caller's.
        return unsafe { read_glibcs(lock, mode, patience) };
    }
    with_lock!(mode, at, lock => read_with(lock, at, mode, patience))
}

/// By any mode.
///
/// # Safety
/// It is a lock.
#[inline(never)]
unsafe fn write(lock: *mut pthread_rwlock_t, patience: Patience) -> c_int {
    let mode = Mode::get();
    // SAFETY: the caller's.
    let at = unsafe { Lock::at(lock) };
    if mode.choice() == Choice::Glibc {
        // SAFETY: the caller's.
        return unsafe { write_glibcs(lock, mode, patience) };
    }
    with_lock!(mode, at, lock => write_with(lock, at, mode, patience))
}

/// By any mode.
///
/// # Safety
/// It is a lock, which this thread holds.
#[inline(never)]
unsafe extern "C" fn unlock(lock: *mut pthread_rwlock_t) -> c_int {
    let mode = Mode::get();
    // SAFETY: the caller's.
    let at = unsafe { Lock::at(lock) };
    Thread::with(|thread| {
        let is_glibcs = mode.choice() == Choice::Glibc;
        let role = match is_glibcs {
            true if at.glibcs_owner() == thread.tid() => WRITE,
            false if at.owner().load(Relaxed) != 0 => WRITE,
            _ => READ,
        };
        // The lock may be gone afterwards.
        let counted = counted(at, mode, thread);
        if let Some(counted) = counted {
            counted.releases(role);
        }
        // SAFETY: the caller's.
        let code = unsafe {
            match is_glibcs {
                true => glibc::unlock(lock),
                false => with_lock!(mode, at, lock => unlock_with(lock, at)),
            }
        };
        if let Some(counted) = counted {
            counted.released(thread, role, code == 0);
        }
        code
    })
}

fn counted(at: &Lock, mode: Mode, thread: &Thread) -> Option<Counted> {
    if mode.counts() { Counted::of(at, mode, thread) } else { None }
}

fn code(refused: Refused) -> c_int {
    match refused {
        Refused::Busy => EBUSY,
        Refused::TimedOut => ETIMEDOUT,
        Refused::Full => EAGAIN,
    }
}

#[inline]
fn read_with<L: UnguardedRwLock>(lock: &L, at: &Lock, mode: Mode, patience: Patience) -> c_int {
    Thread::with(|thread| {
        let counted = counted(at, mode, thread);
        let past_waiters = at.is_recursive() && thread.reads.get() > 0;
        let mut result = lock.try_read(past_waiters);
        if result == Err(Refused::Busy) && !matches!(patience, Patience::None) {
            if at.owner().load(Relaxed) == thread.tid() {
                return EDEADLK;
            }
            let wait = || wait_to_read(lock, at.is_recursive(), past_waiters, patience);
            result = match counted {
                Some(counted) => counted.wait(at, READ, lock.has_writer(), wait),
                None => wait(),
            };
        }
        if result.is_ok() {
            thread.now_reads();
        }
        finish(result, counted, at, READ)
    })
}

#[inline]
fn write_with<L: UnguardedRwLock>(lock: &L, at: &Lock, mode: Mode, patience: Patience) -> c_int {
    Thread::with(|thread| {
        let counted = counted(at, mode, thread);
        let mut result = match lock.write_at_once() {
            true => Ok(()),
            false => lock.try_write(),
        };
        if result == Err(Refused::Busy) && !matches!(patience, Patience::None) {
            if at.owner().load(Relaxed) == thread.tid() {
                return EDEADLK;
            }
            let wait = || wait_to_write(lock, patience);
            result = match counted {
                Some(counted) => counted.wait(at, WRITE, lock.has_writer(), wait),
                None => wait(),
            };
        }
        if result.is_ok() {
            at.owner().store(thread.tid(), Relaxed);
        }
        finish(result, counted, at, WRITE)
    })
}

fn finish(result: Result<(), Refused>, counted: Option<Counted>, at: &Lock, role: usize) -> c_int {
    if let Some(counted) = counted {
        match result {
            Ok(()) => Thread::with(|thread| counted.acquired(at, thread, role)),
            Err(_) => counted.refused(role),
        }
    }
    result.map_or_else(code, |()| 0)
}

fn wait_to_read<L: UnguardedRwLock>(
    lock: &L,
    is_recursive: bool,
    past_waiters: bool,
    patience: Patience,
) -> Result<(), Refused> {
    loop {
        let mut end = monotonic(patience);
        if is_recursive {
            let standstill = Preloaded::now() + STANDSTILL;
            end = Some(end.map_or(standstill, |end| end.min(standstill)));
        }
        match lock.read(end, past_waiters) {
            Err(Refused::TimedOut) if !has_passed(patience) => {
                if is_recursive && lock.try_read(true).is_ok() {
                    return Ok(());
                }
            }
            result => return result,
        }
    }
}

fn wait_to_write<L: UnguardedRwLock>(lock: &L, patience: Patience) -> Result<(), Refused> {
    loop {
        match lock.write(monotonic(patience)) {
            Err(Refused::TimedOut) if !has_passed(patience) => {}
            result => return result,
        }
    }
}

fn monotonic(patience: Patience) -> Option<u64> {
    match patience {
        Patience::Until(deadline) => Some(deadline.monotonic()),
        _ => None,
    }
}

/// By the deadline's own clock, which may have been set back.
fn has_passed(patience: Patience) -> bool {
    matches!(patience, Patience::Until(deadline) if deadline.has_passed())
}

/// # Safety
/// The calling thread holds the lock.
#[inline(always)]
unsafe fn unlock_with<L: UnguardedRwLock>(lock: &L, at: &Lock) -> c_int {
    // Whoever holds it for reading sees that nobody writes; so this need not be the thread that
    // locked it, nor have the number it had then: it may be the child of a fork.
    if at.owner().load(Relaxed) != 0 {
        at.owner().store(0, Relaxed);
        // SAFETY: the caller's.
        unsafe { lock.unlock_write() };
        return 0;
    }
    // SAFETY: the caller's.
    if !unsafe { lock.try_unlock_read() } {
        return EPERM;
    }
    Thread::with(Thread::no_longer_reads);
    0
}

// ---- glibc's own, counted ----

/// # Safety
/// It is a lock of glibc's.
unsafe fn read_glibcs(lock: *mut pthread_rwlock_t, mode: Mode, patience: Patience) -> c_int {
    // SAFETY: the caller's.
    let (try_it, wait) = unsafe {
        (
            || glibc::tryrdlock(lock),
            || match patience {
                Patience::Until(deadline) => {
                    deadline.with(|clock, until| glibc::clockrdlock(lock, clock, until))
                }
                _ => counting::in_two_parts(
                    |until| glibc::clockrdlock(lock, CLOCK_MONOTONIC, until),
                    || glibc::rdlock(lock),
                ),
            },
        )
    };
    // SAFETY: the caller's.
    unsafe { pass_on(lock, mode, patience, READ, try_it, wait) }
}

/// # Safety
/// It is a lock of glibc's.
unsafe fn write_glibcs(lock: *mut pthread_rwlock_t, mode: Mode, patience: Patience) -> c_int {
    // SAFETY: the caller's.
    let (try_it, wait) = unsafe {
        (
            || glibc::trywrlock(lock),
            || match patience {
                Patience::Until(deadline) => {
                    deadline.with(|clock, until| glibc::clockwrlock(lock, clock, until))
                }
                _ => counting::in_two_parts(
                    |until| glibc::clockwrlock(lock, CLOCK_MONOTONIC, until),
                    || glibc::wrlock(lock),
                ),
            },
        )
    };
    // SAFETY: the caller's.
    unsafe { pass_on(lock, mode, patience, WRITE, try_it, wait) }
}

/// # Safety
/// It is a lock of glibc's.
unsafe fn pass_on(
    lock: *mut pthread_rwlock_t,
    mode: Mode,
    patience: Patience,
    role: usize,
    try_it: impl FnOnce() -> c_int,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's.
    let at = unsafe { Lock::at(lock) };
    if !mode.counts() {
        return if matches!(patience, Patience::None) { try_it() } else { wait() };
    }
    Thread::with(|thread| {
        let counted = counted(at, mode, thread);
        let mut code = try_it();
        if code == EBUSY && !matches!(patience, Patience::None) {
            let by_writer = at.glibcs_owner() != 0;
            code = match counted {
                Some(counted) => counted.wait(at, role, by_writer, wait),
                None => wait(),
            };
        }
        match (code, counted) {
            (0, Some(counted)) => counted.acquired(at, thread, role),
            (EDEADLK | EINVAL, _) | (_, None) => {}
            (_, Some(counted)) => counted.refused(role),
        }
        code
    })
}

// ---- attributes ----

/// `pthread_rwlockattr_t`, as glibc has it.
#[repr(C)]
struct Attributes {
    kind: c_int,
    sharing: c_int,
}

const _: () = {
    assert!(size_of::<Attributes>() == size_of::<pthread_rwlockattr_t>());
    assert!(align_of::<Attributes>() <= align_of::<pthread_rwlockattr_t>());
};

const PRIVATE: c_int = libc::PTHREAD_PROCESS_PRIVATE;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlockattr_init(attributes: *mut pthread_rwlockattr_t) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        attributes.cast::<Attributes>().write(Attributes { kind: PREFER_READER, sharing: PRIVATE })
    };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlockattr_destroy(_: *mut pthread_rwlockattr_t) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlockattr_getpshared(
    attributes: *const pthread_rwlockattr_t,
    sharing: *mut c_int,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { *sharing = (*attributes.cast::<Attributes>()).sharing };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlockattr_setpshared(
    attributes: *mut pthread_rwlockattr_t,
    sharing: c_int,
) -> c_int {
    if !matches!(sharing, PRIVATE | libc::PTHREAD_PROCESS_SHARED) {
        return EINVAL;
    }
    // SAFETY: the caller's.
    unsafe { (*attributes.cast::<Attributes>()).sharing = sharing };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlockattr_getkind_np(
    attributes: *const pthread_rwlockattr_t,
    kind: *mut c_int,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { *kind = (*attributes.cast::<Attributes>()).kind };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlockattr_setkind_np(
    attributes: *mut pthread_rwlockattr_t,
    kind: c_int,
) -> c_int {
    if !matches!(kind, PREFER_READER | PREFER_WRITER | PREFER_WRITER_NONRECURSIVE) {
        return EINVAL;
    }
    // SAFETY: the caller's.
    unsafe { (*attributes.cast::<Attributes>()).kind = kind };
    0
}

// ---- the names under which glibc has some of them once more ----

macro_rules! also {
    ($($name:ident = $function:ident($($argument:ident: $type:ty),*);)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the caller's.
            unsafe { $function($($argument),*) }
        })*
    };
}

also! {
    __pthread_rwlock_init = pthread_rwlock_init(
        lock: *mut pthread_rwlock_t, attributes: *const pthread_rwlockattr_t);
    __pthread_rwlock_destroy = pthread_rwlock_destroy(lock: *mut pthread_rwlock_t);
    __pthread_rwlock_rdlock = pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t);
    __pthread_rwlock_wrlock = pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t);
    __pthread_rwlock_tryrdlock = pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t);
    __pthread_rwlock_trywrlock = pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t);
    __pthread_rwlock_unlock = pthread_rwlock_unlock(lock: *mut pthread_rwlock_t);
}
