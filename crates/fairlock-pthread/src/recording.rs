//! What each thread did to locks, operation by operation, for a replay of the program elsewhere: when the functions record,
//! and what. [`recorder`] writes it.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;

use fairlock_counts::counting::Counted;
use fairlock_counts::layout::{PAIRS, READ};
use fairlock_counts::record::How;
use fairlock_counts::recorder::{self, Asked, OWN, Operation};
use libc::{EBUSY, ETIMEDOUT, c_int, pthread_rwlock_t};

use crate::counting::counted;
use crate::functions::{self, Patience};
use crate::lock::{Lock, PREFER_READER, PREFER_WRITER_NONRECURSIVE};
use crate::modes::{self, Choice, Mode};
use crate::thread::Thread;

/// An operation that is recorded, and has begun.
pub(crate) struct Recorded(Operation);

impl Recorded {
    /// None if it is not recorded. Called before anything is asked of the lock.
    pub(crate) fn begins(mode: Mode) -> Option<Recorded> {
        if !mode.records() {
            return None;
        }
        Thread::with(|thread| Operation::begins(&thread.counts)).map(Recorded)
    }

    /// The thread has asked for the lock, and got this answer.
    pub(crate) fn asked(self, at: &Lock, mode: Mode, role: usize, patience: Patience, code: c_int) {
        // What broke the lock's rules is not repeated.
        if !matches!(code, 0 | EBUSY | ETIMEDOUT) {
            return;
        }
        let how = match patience {
            Patience::Forever => How::Waits,
            Patience::None => How::Tries,
            Patience::Until(_) => How::Timed,
        };
        Thread::with(|thread| {
            let number = || counted(at, mode, thread).map(|counted| counted.number);
            let asked = Asked { role, how, is_granted: code == 0 };
            self.0.asked(&thread.counts, asked, number);
        });
    }

    /// The lock was released, and may be gone; or it was not, as the code says.
    pub(crate) fn released(self, counted: Counted, role: usize, code: c_int) {
        if code == 0 {
            Thread::with(|thread| self.0.released(&thread.counts, counted.number, role));
        }
    }
}

/// A lock of this library's own, by which it measures.
struct Own(UnsafeCell<pthread_rwlock_t>);
// SAFETY: a lock, which threads may use at once.
unsafe impl Sync for Own {}

/// Measures what recording costs, and opens the first window. The mode is decided.
pub(crate) fn begin(mode: Mode) {
    static LOCK: Own = Own(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));
    let prepare = || {
        // A checker would be told of a lock that the program does not have.
        if mode.announces() {
            return None;
        }
        let lock = LOCK.0.get();
        // Slots of readers would ask the kernel for barriers, which a program may forbid itself later; a lock of this
        // kind has none, and what recording adds is the same.
        let kind = match mode.choice() {
            Choice::RwLock => PREFER_WRITER_NONRECURSIVE,
            _ => PREFER_READER,
        };
        // SAFETY: only one thread comes here, and nobody uses the lock yet.
        unsafe {
            Lock::initialise(lock, kind, false);
            Lock::at(lock).number.store(OWN, Relaxed);
        }
        Some(move |role: usize| {
            for _ in 0..PAIRS {
                // SAFETY: the lock lives, and this thread alone uses it and holds it in between.
                unsafe {
                    match role {
                        READ => functions::pthread_rwlock_rdlock(lock),
                        _ => functions::pthread_rwlock_wrlock(lock),
                    };
                    functions::pthread_rwlock_unlock(lock);
                }
            }
        })
    };
    Thread::with(|thread| recorder::begin(&thread.counts, modes::record, prepare));
}
