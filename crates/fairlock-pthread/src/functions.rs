//! Every `pthread_rwlock_*` and `pthread_rwlockattr_*` function of glibc, under its name.
//!
//! The default mode's uncontended paths stand in the functions themselves; everything else goes
//! through [`read`], [`write()`] and [`unlock`].

// What a caller has to see to is what POSIX says about the function of that name.
#![allow(clippy::missing_safety_doc)]

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use fairlock::platform::Platform;
use fairlock::unguarded::{Refused, UnguardedRwLock};
use fairlock_counts::counting::Counted;
use fairlock_counts::layout::{Misuse, READ, WRITE};
use fairlock_reference::linux;
use libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, EAGAIN, EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT, c_int,
    clockid_t, pthread_rwlock_t, pthread_rwlockattr_t, timespec,
};

use crate::clock::Deadline;
use crate::counting;
use crate::glibc;
use crate::lock::{Lock, PREFER_READER, PREFER_WRITER, PREFER_WRITER_NONRECURSIVE};
use crate::modes::{Choice, Linux, Mode, PhaseFair, RwLock, RwSem};
use crate::platform::Preloaded;
use crate::recording::Recorded;
use crate::standstill::{Answer, CLOSED_NS, is_owned};
use crate::thread::Thread;
use crate::watched::{self, Announced};

/// How long a caller waits.
#[derive(Clone, Copy)]
pub(crate) enum Patience {
    None,
    Forever,
    Until(Deadline),
}

/// While an `rwlock` is left to its readers, a writer looks every so many ns whether they have left.
const LOOK_FOR_READERS: u64 = 2_000_000;

/// A writer of `rwlock` looks whether somebody was refused after so many ns at most, at the cost of its
/// place among the writers.
const LONGEST_PAUSE: u64 = 4 * CLOSED_NS;

/// The body, with the lock that this mode has there.
macro_rules! with_lock {
    ($mode:expr, $at:expr, $lock:ident => $body:expr) => {
        with_lock! { $mode, $at, $lock => $body;
            RwLock: RwLock,
            PhaseFair: PhaseFair,
            Linux3_10: Linux<linux::Linux3_10>,
            Linux3_16: Linux<linux::Linux3_16>,
            Linux5_1: Linux<linux::Linux5_1>,
            Linux5_2: Linux<linux::Linux5_2>,
            Linux5_3: Linux<linux::Linux5_3>,
            Linux5_11: Linux<linux::Linux5_11>,
            NoReaderSteal: Linux<linux::NoReaderSteal>,
        }
    };
    ($mode:expr, $at:expr, $lock:ident => $body:expr; $($choice:ident: $type:ty,)*) => {
        match choice($mode, $at) {
            _ if $at.is_shared() => {
                let $lock = $at.process_shared();
                $body
            }
            $(Choice::$choice => {
                let $lock = $at.of::<$type>();
                $body
            })*
            Choice::RwSem | Choice::Glibc => {
                let $lock = $at.of::<RwSem>();
                $body
            }
        }
    };
}

// ---- what the functions do ----

// In the first three every rare case is a function of its own that is called last, so that the common case
// needs no stack frame.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller passes an initialised lock.
    let at = unsafe { Lock::at(lock) };
    let mode = Mode::at_a_glance();
    if mode == Mode::RWSEM && at.of::<RwSem>().read_at_once() {
        Thread::with(Thread::now_reads);
        return 0;
    }
    if mode == Mode::RWSEM_COUNTED && at.of::<RwSem>().read_at_once() {
        return Thread::with(|thread| {
            thread.now_reads();
            counting::acquired_at_once(at, thread, READ)
        });
    }
    // SAFETY: the caller passes an initialised lock.
    unsafe { rdlock_otherwise(lock) }
}

#[inline(never)]
unsafe extern "C" fn rdlock_otherwise(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller passes an initialised lock.
    let at = unsafe { Lock::at(lock) };
    let mode = Mode::get();
    if mode == Mode::GLIBC {
        // SAFETY: the caller passes an initialised lock; in this mode all locks are glibc's.
        return unsafe { glibc::rdlock(lock) };
    }
    // SAFETY: as above.
    if mode == Mode::GLIBC_COUNTED && unsafe { glibc::tryrdlock(lock) } == 0 {
        return Thread::with(|thread| counting::acquired_at_once(at, thread, READ));
    }
    if mode.is_plain() && is_rwlock(at, mode) && at.of::<RwLock>().read_at_once() {
        return Thread::with(|thread| {
            thread.now_reads();
            if mode.counts() { counting::acquired_at_once(at, thread, READ) } else { 0 }
        });
    }
    // SAFETY: the caller passes an initialised lock.
    unsafe { rdlock_in_any_mode(lock) }
}

/// Reads by slots do not tell a process-shared lock by its first word.
#[inline(always)]
fn is_rwlock(at: &Lock, mode: Mode) -> bool {
    mode.choice() == Choice::RwLock && at.may_have_slots()
}

/// What this lock is, unless it is process-shared. Where the kind does not let readers pass a writer that
/// waits it is the nearest policy that can do so.
fn choice(mode: Mode, at: &Lock) -> Choice {
    match mode.choice() {
        choice if at.is_recursive() => choice,
        Choice::RwLock => Choice::RwSem,
        Choice::Linux5_3 | Choice::Linux5_11 => Choice::NoReaderSteal,
        choice => choice,
    }
}

#[inline(never)]
unsafe extern "C" fn rdlock_in_any_mode(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller passes an initialised lock.
    unsafe { read(lock, Patience::Forever) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller passes an initialised lock.
    let at = unsafe { Lock::at(lock) };
    let mode = Mode::at_a_glance();
    if mode == Mode::RWSEM && at.of::<RwSem>().write_at_once() {
        at.owner().store(Thread::with(Thread::tid), Relaxed);
        return 0;
    }
    if mode == Mode::RWSEM_COUNTED && at.of::<RwSem>().write_at_once() {
        return Thread::with(|thread| {
            at.owner().store(thread.tid(), Relaxed);
            counting::acquired_at_once(at, thread, WRITE)
        });
    }
    // SAFETY: the caller passes an initialised lock.
    unsafe { wrlock_otherwise(lock) }
}

#[inline(never)]
unsafe extern "C" fn wrlock_otherwise(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller passes an initialised lock.
    let at = unsafe { Lock::at(lock) };
    let mode = Mode::get();
    if mode == Mode::GLIBC {
        // SAFETY: the caller passes an initialised lock; in this mode all locks are glibc's.
        return unsafe { glibc::wrlock(lock) };
    }
    // SAFETY: as above.
    if mode == Mode::GLIBC_COUNTED && unsafe { glibc::trywrlock(lock) } == 0 {
        return Thread::with(|thread| counting::acquired_at_once(at, thread, WRITE));
    }
    if mode.is_plain() && is_rwlock(at, mode) && at.of::<RwLock>().write_at_once() {
        return Thread::with(|thread| {
            at.owner().store(thread.tid(), Relaxed);
            if mode.counts() { counting::acquired_at_once(at, thread, WRITE) } else { 0 }
        });
    }
    // SAFETY: the caller passes an initialised lock.
    unsafe { wrlock_in_any_mode(lock) }
}

#[inline(never)]
unsafe extern "C" fn wrlock_in_any_mode(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller passes an initialised lock.
    unsafe { write(lock, Patience::Forever) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller passes an initialised lock.
    let at = unsafe { Lock::at(lock) };
    let mode = Mode::at_a_glance();
    if mode == Mode::RWSEM && !at.is_shared() {
        // SAFETY: the caller passes an initialised lock, which this thread holds.
        return unsafe { unlock_with(at.of::<RwSem>(), at) };
    }
    let is_counted = mode == Mode::RWSEM_COUNTED && !at.is_shared();
    if is_counted && Thread::with(|thread| counting::releases_at_once(at, thread)) {
        // SAFETY: the caller passes an initialised lock, which this thread holds.
        return match unsafe { unlock_with(at.of::<RwSem>(), at) } {
            0 => 0,
            code => refused_unlock(at, code),
        };
    }
    // SAFETY: the caller passes an initialised lock, which this thread holds.
    unsafe { unlock_otherwise(lock) }
}

/// The lock still exists, as this thread has not released it.
#[cold]
#[inline(never)]
extern "C" fn refused_unlock(at: &Lock, code: c_int) -> c_int {
    // What a writer holds is always released.
    counting::was_not_held(at, READ);
    code
}

#[inline(never)]
unsafe extern "C" fn unlock_otherwise(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller passes an initialised lock.
    let at = unsafe { Lock::at(lock) };
    let mode = Mode::get();
    if mode == Mode::GLIBC {
        // SAFETY: the caller passes an initialised lock, which this thread holds.
        return unsafe { glibc::unlock(lock) };
    }
    if mode == Mode::GLIBC_COUNTED && !at.glibcs_is_shared() {
        let is_counted = Thread::with(|thread| {
            let role = released_role(at, mode, thread);
            counting::releases_at_once_as(at, thread, role)
        });
        if is_counted {
            // SAFETY: as above.
            return match unsafe { glibc::unlock(lock) } {
                0 => 0,
                code => refused_unlock(at, code),
            };
        }
    }
    let is_uncounted = !mode.counts();
    if mode.is_plain()
        && is_rwlock(at, mode)
        && (is_uncounted || Thread::with(|thread| counting::releases_at_once(at, thread)))
    {
        // SAFETY: the caller passes an initialised lock, which this thread holds.
        return match unsafe { unlock_with(at.of::<RwLock>(), at) } {
            0 => 0,
            _ if is_uncounted => EPERM,
            code => refused_unlock(at, code),
        };
    }
    // SAFETY: the caller passes an initialised lock, which this thread holds.
    unsafe { unlock(lock) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller passes an initialised lock.
    unsafe { read(lock, Patience::None) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller passes an initialised lock.
    unsafe { write(lock, Patience::None) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_timedrdlock(
    lock: *mut pthread_rwlock_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller passes an initialised lock and a `timespec`.
    unsafe { pthread_rwlock_clockrdlock(lock, CLOCK_REALTIME, until) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_timedwrlock(
    lock: *mut pthread_rwlock_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller passes an initialised lock and a `timespec`.
    unsafe { pthread_rwlock_clockwrlock(lock, CLOCK_REALTIME, until) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_clockrdlock(
    lock: *mut pthread_rwlock_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller passes a `timespec`.
    match unsafe { Deadline::new(clock, until) } {
        // SAFETY: the caller passes an initialised lock.
        Ok(deadline) => unsafe { read(lock, Patience::Until(deadline)) },
        // SAFETY: the caller passes an initialised lock.
        Err(code) => refused(unsafe { Lock::at(lock) }, READ, code),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_clockwrlock(
    lock: *mut pthread_rwlock_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller passes a `timespec`.
    match unsafe { Deadline::new(clock, until) } {
        // SAFETY: the caller passes an initialised lock.
        Ok(deadline) => unsafe { write(lock, Patience::Until(deadline)) },
        // SAFETY: the caller passes an initialised lock.
        Err(code) => refused(unsafe { Lock::at(lock) }, WRITE, code),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_init(
    lock: *mut pthread_rwlock_t,
    attributes: *const pthread_rwlockattr_t,
) -> c_int {
    // SAFETY: the caller passes null or attributes that were initialised.
    let attributes = unsafe { attributes.cast::<Attributes>().as_ref() };
    let mode = Mode::get();
    if mode.choice() == Choice::Glibc {
        // SAFETY: the caller passes memory that nobody uses, and null or attributes; their structure is
        // glibc's.
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
        // SAFETY: the caller passes memory that nobody uses.
        unsafe { Lock::initialise(lock, kind, sharing != PRIVATE) };
    }
    watched::has_ended(lock, mode);
    if mode.counts() {
        // SAFETY: initialised above.
        counting::initialised(unsafe { Lock::at(lock) }, mode);
    }
    0
}

/// Like glibc's, it does not check whether a thread holds the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlock_destroy(lock: *mut pthread_rwlock_t) -> c_int {
    let mode = Mode::get();
    if mode.counts() {
        // SAFETY: the caller passes an initialised lock.
        counting::destroyed(unsafe { Lock::at(lock) }, mode);
    }
    watched::has_ended(lock, mode);
    match mode.choice() {
        // SAFETY: the caller passes an initialised lock.
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
    // SAFETY: the caller passes an initialised lock.
    unsafe {
        match mode.is_plain() {
            true => read_by(lock, mode, patience),
            false => read_noted(lock, mode, patience),
        }
    }
}

/// # Safety
/// It is a lock.
#[inline(never)]
unsafe fn read_noted(lock: *mut pthread_rwlock_t, mode: Mode, patience: Patience) -> c_int {
    // SAFETY: the caller passes an initialised lock.
    let at = unsafe { Lock::at(lock) };
    // SAFETY: the caller passes an initialised lock.
    noted(at, mode, READ, patience, || unsafe { read_by(lock, mode, patience) })
}

/// What is noted beside it stands apart, so that modes that are plain have no trace of that.
///
/// # Safety
/// It is a lock.
#[inline(always)]
unsafe fn read_by(lock: *mut pthread_rwlock_t, mode: Mode, patience: Patience) -> c_int {
    if mode.choice() == Choice::Glibc {
        // SAFETY: the caller passes an initialised lock; in this mode all locks are glibc's.
        return unsafe { read_glibcs(lock, mode, patience) };
    }
    // SAFETY: the caller passes an initialised lock.
    let at = unsafe { Lock::at(lock) };
    with_lock!(mode, at, lock => read_with(lock, at, mode, patience))
}

/// By any mode.
///
/// # Safety
/// It is a lock.
#[inline(never)]
unsafe fn write(lock: *mut pthread_rwlock_t, patience: Patience) -> c_int {
    let mode = Mode::get();
    // SAFETY: the caller passes an initialised lock.
    unsafe {
        match mode.is_plain() {
            true => write_by(lock, mode, patience),
            false => write_noted(lock, mode, patience),
        }
    }
}

/// # Safety
/// It is a lock.
#[inline(never)]
unsafe fn write_noted(lock: *mut pthread_rwlock_t, mode: Mode, patience: Patience) -> c_int {
    // SAFETY: the caller passes an initialised lock.
    let at = unsafe { Lock::at(lock) };
    // SAFETY: the caller passes an initialised lock.
    noted(at, mode, WRITE, patience, || unsafe { write_by(lock, mode, patience) })
}

/// What is noted beside it stands apart, so that modes that are plain have no trace of that.
///
/// # Safety
/// It is a lock.
#[inline(always)]
unsafe fn write_by(lock: *mut pthread_rwlock_t, mode: Mode, patience: Patience) -> c_int {
    if mode.choice() == Choice::Glibc {
        // SAFETY: the caller passes an initialised lock; in this mode all locks are glibc's.
        return unsafe { write_glibcs(lock, mode, patience) };
    }
    // SAFETY: the caller passes an initialised lock.
    let at = unsafe { Lock::at(lock) };
    with_lock!(mode, at, lock => write_with(lock, at, mode, patience))
}

/// Acquires a lock by a mode that is not plain: a checker is told of it, or it is recorded.
#[inline(always)]
fn noted(
    at: &Lock,
    mode: Mode,
    role: usize,
    patience: Patience,
    acquire: impl FnOnce() -> c_int,
) -> c_int {
    let announced = Announced::acquisition(at, mode, role, patience);
    let recorded = Recorded::begins(mode);
    let code = acquire();
    if let Some(recorded) = recorded {
        recorded.asked(at, mode, role, patience, code);
    }
    Announced::end(announced, code);
    code
}

/// By any mode.
///
/// # Safety
/// It is a lock, which this thread holds.
#[inline(never)]
unsafe extern "C" fn unlock(lock: *mut pthread_rwlock_t) -> c_int {
    let mode = Mode::get();
    // SAFETY: the caller passes an initialised lock, which this thread holds.
    unsafe {
        match mode.is_plain() {
            true => unlock_by(lock, mode),
            false => unlock_noted(lock, mode),
        }
    }
}

/// # Safety
/// It is a lock, which this thread holds.
#[inline(never)]
unsafe fn unlock_noted(lock: *mut pthread_rwlock_t, mode: Mode) -> c_int {
    // SAFETY: the caller passes an initialised lock.
    let at = unsafe { Lock::at(lock) };
    Thread::with(|thread| {
        let role = released_role(at, mode, thread);
        let announced = Announced::release(at, mode, role);
        // The lock may be gone afterwards.
        let counted = counted(at, mode, thread);
        let recorded = Recorded::begins(mode);
        // SAFETY: the caller passes an initialised lock, which this thread holds.
        let code = unsafe { unlock_by(lock, mode) };
        if let (Some(recorded), Some(counted)) = (recorded, counted) {
            recorded.released(counted, role, code);
        }
        Announced::end(announced, code);
        code
    })
}

/// # Safety
/// It is a lock, which this thread holds.
#[inline(always)]
unsafe fn unlock_by(lock: *mut pthread_rwlock_t, mode: Mode) -> c_int {
    // SAFETY: the caller passes an initialised lock.
    let at = unsafe { Lock::at(lock) };
    Thread::with(|thread| {
        let role = released_role(at, mode, thread);
        // The lock may be gone afterwards.
        let counted = counted(at, mode, thread);
        if let Some(counted) = counted {
            counted.releases(&thread.counts, role);
        }
        // SAFETY: the caller passes an initialised lock, which this thread holds.
        let code = unsafe {
            match mode.choice() {
                Choice::Glibc => glibc::unlock(lock),
                _ => with_lock!(mode, at, lock => unlock_with(lock, at)),
            }
        };
        if let Some(counted) = counted {
            counted.released(&thread.counts, role, code == 0);
            note_misuse(counted, role, code);
        }
        code
    })
}

/// The role in which the calling thread holds this lock, if it holds it.
#[inline(always)]
fn released_role(at: &Lock, mode: Mode, thread: &Thread) -> usize {
    match mode.choice() == Choice::Glibc {
        true if at.glibcs_owner() == thread.tid() => WRITE,
        false if is_owned(at.owner().load(Relaxed)) => WRITE,
        _ => READ,
    }
}

fn counted(at: &Lock, mode: Mode, thread: &Thread) -> Option<Counted> {
    if mode.counts() { counting::counted(at, mode, thread) } else { None }
}

/// A call that came to nothing before it asked the lock. Returns its code.
#[cold]
fn refused(at: &Lock, role: usize, code: c_int) -> c_int {
    let mode = Mode::get();
    Thread::with(|thread| {
        if let Some(counted) = counted(at, mode, thread) {
            note_misuse(counted, role, code);
        }
    });
    code
}

/// Counts a code that the caller should not have got. Whether it was one.
fn note_misuse(counted: Counted, role: usize, code: c_int) -> bool {
    let how = match code {
        EDEADLK => Misuse::Deadlock,
        EPERM => Misuse::NotHeld,
        EINVAL => Misuse::Invalid,
        EAGAIN => Misuse::TooManyReaders,
        _ => return false,
    };
    counted.misused(role, how);
    true
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
        let reader = Reader { is_nested: thread.reads.get() > 0, is_rwlock: is_rwlock(at, mode) };
        let is_poll = matches!(patience, Patience::None);
        if !at.is_recursive() {
            lock.end_read_phase();
        }
        let mut result = lock.try_read(false);
        let mut asks_again = None;
        if result == Err(Refused::Busy) && at.is_recursive() && (is_poll || reader.asks_first(at)) {
            (result, asks_again) = reader.past_waiters(lock, at, is_poll);
        }
        if result == Err(Refused::Busy) && !is_poll {
            if at.owner().load(Relaxed) == thread.tid() {
                if let Some(counted) = counted {
                    counted.misused(READ, Misuse::Deadlock);
                }
                return EDEADLK;
            }
            let wait = || match at.is_recursive() {
                true => reader.wait(lock, at, asks_again, patience),
                false => wait(patience, |end| lock.read(end, false)),
            };
            result = match counted {
                Some(counted) => Thread::with(|thread| {
                    counted.wait(at, &thread.counts, READ, lock.has_writer(), wait)
                }),
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
                if let Some(counted) = counted {
                    counted.misused(WRITE, Misuse::Deadlock);
                }
                return EDEADLK;
            }
            let wait = || match is_rwlock(at, mode) {
                true => wait_to_write_where_readers_are_in_slots(lock, at, patience),
                false => wait(patience, |end| lock.write(end)),
            };
            result = match counted {
                Some(counted) => Thread::with(|thread| {
                    counted.wait(at, &thread.counts, WRITE, lock.has_writer(), wait)
                }),
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
            Ok(()) => Thread::with(|thread| counted.acquired(at, &thread.counts, role)),
            Err(Refused::Full) => counted.misused(role, Misuse::TooManyReaders),
            Err(_) => counted.refused(role),
        }
    }
    result.map_or_else(code, |()| 0)
}

/// One that the policy refused, of a lock that prefers readers.
#[derive(Clone, Copy)]
struct Reader {
    /// Its thread reads already.
    is_nested: bool,
    /// A writer that has the semaphore and waits for readers in slots cannot be passed: it has to know
    /// that somebody waits, and gives way itself.
    is_rwlock: bool,
}

impl Reader {
    /// Before it has waited at all.
    fn asks_first(self, at: &Lock) -> bool {
        self.is_nested || self.is_rwlock || at.standstill().is_known()
    }

    /// Enters past those that wait, if it may (`standstill.rs`). If not, it may ask again at this moment,
    /// in ns, as far as that is known.
    #[cold]
    fn past_waiters<L: UnguardedRwLock>(
        self,
        lock: &L,
        at: &Lock,
        is_poll: bool,
    ) -> (Result<(), Refused>, Option<u64>) {
        let standstill = at.standstill();
        if standstill.is_written() {
            return (Err(Refused::Busy), None);
        }
        let now = Preloaded::now();
        let mark = match standstill.ask(now, self.is_nested, is_poll) {
            Answer::Wait(until) => return (Err(Refused::Busy), until),
            Answer::Enter(mark) => mark,
        };
        let result = lock.try_read(true);
        if result.is_ok() {
            standstill.entered(mark, is_poll);
        } else if self.is_rwlock && self.is_nested {
            standstill.refused(now);
        } else if self.is_rwlock {
            // The writer may give up before it would give way by itself, and the next one as well.
            standstill.give_way(now);
        }
        (result, None)
    }

    /// Waits as the policy says, and asks now and then whether it may pass those that wait, at the cost of
    /// its place in the queue: at times that double, so that it keeps its place where others come and go.
    fn wait<L: UnguardedRwLock>(
        self,
        lock: &L,
        at: &Lock,
        mut asks_again: Option<u64>,
        patience: Patience,
    ) -> Result<(), Refused> {
        let mut pause = CLOSED_NS;
        loop {
            let look = asks_again.unwrap_or_else(|| {
                let look = Preloaded::now().saturating_add(pause);
                pause = pause.saturating_mul(2);
                look
            });
            let end = monotonic(patience).map_or(look, |end| end.min(look));
            match lock.read(Some(end), false) {
                Err(Refused::TimedOut) => {}
                result => return result,
            }
            let is_last = has_passed(patience);
            match self.past_waiters(lock, at, is_last) {
                (Err(Refused::Busy), _) if is_last => return Err(Refused::TimedOut),
                (Err(Refused::Busy), again) => asks_again = again,
                (result, _) => return result,
            }
        }
    }
}

/// Those that have the lock for the moment may be readers in slots, for whom a writer waits with
/// the semaphore, where nobody can pass it: so it gives that back now and then, for those that were
/// refused, if there are any.
fn wait_to_write_where_readers_are_in_slots<L: UnguardedRwLock>(
    lock: &L,
    at: &Lock,
    patience: Patience,
) -> Result<(), Refused> {
    let mut pause = CLOSED_NS;
    loop {
        while at.standstill().is_open(Preloaded::now()) {
            match lock.try_write() {
                Err(Refused::Busy) if has_passed(patience) => return Err(Refused::TimedOut),
                Err(Refused::Busy) => {
                    let look = Preloaded::now() + LOOK_FOR_READERS;
                    Preloaded::park(&AtomicU32::new(0), 0, Some(look));
                }
                result => return result,
            }
        }
        let look = Preloaded::now() + pause;
        let end = monotonic(patience).map_or(look, |end| end.min(look));
        match lock.write(Some(end)) {
            Err(Refused::TimedOut) if has_passed(patience) => return Err(Refused::TimedOut),
            Err(Refused::TimedOut) => {}
            result => return result,
        }
        pause = match at.standstill().give_way(Preloaded::now()) {
            Some(closed) => closed,
            None => (2 * pause).min(LONGEST_PAUSE),
        };
    }
}

/// Until the deadline has passed by its own clock.
fn wait(
    patience: Patience,
    mut acquire: impl FnMut(Option<u64>) -> Result<(), Refused>,
) -> Result<(), Refused> {
    loop {
        match acquire(monotonic(patience)) {
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
    if is_owned(at.owner().load(Relaxed)) {
        at.owner().store(0, Relaxed);
        // SAFETY: the caller promises that this thread holds the lock: for writing, as the owner says.
        unsafe { lock.unlock_write() };
        return 0;
    }
    // SAFETY: the caller promises that this thread holds the lock.
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
    // SAFETY: the caller passes an initialised lock of glibc's.
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
    // SAFETY: the caller passes an initialised lock of glibc's.
    unsafe { pass_on(lock, mode, patience, READ, try_it, wait) }
}

/// # Safety
/// It is a lock of glibc's.
unsafe fn write_glibcs(lock: *mut pthread_rwlock_t, mode: Mode, patience: Patience) -> c_int {
    // SAFETY: the caller passes an initialised lock of glibc's.
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
    // SAFETY: the caller passes an initialised lock of glibc's.
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
    // SAFETY: the caller passes an initialised lock of glibc's.
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
                Some(counted) => {
                    Thread::with(|thread| counted.wait(at, &thread.counts, role, by_writer, wait))
                }
                None => wait(),
            };
        }
        match (code, counted) {
            (0, Some(counted)) => counted.acquired(at, &thread.counts, role),
            (_, None) => {}
            (code, Some(counted)) if note_misuse(counted, role, code) => {}
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
    // SAFETY: the caller passes room for attributes.
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
    // SAFETY: the caller passes attributes that were initialised, and room for a number.
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
    // SAFETY: the caller passes attributes that were initialised.
    unsafe { (*attributes.cast::<Attributes>()).sharing = sharing };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_rwlockattr_getkind_np(
    attributes: *const pthread_rwlockattr_t,
    kind: *mut c_int,
) -> c_int {
    // SAFETY: the caller passes attributes that were initialised, and room for a number.
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
    // SAFETY: the caller passes attributes that were initialised.
    unsafe { (*attributes.cast::<Attributes>()).kind = kind };
    0
}

// ---- the names under which glibc has some of them once more ----

macro_rules! also {
    ($($name:ident = $function:ident($($argument:ident: $type:ty),*);)*) => {
        $(#[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the same function, with what the caller promises to it.
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
