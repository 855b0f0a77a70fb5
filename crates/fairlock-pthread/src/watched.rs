//! Programs under a checker of races: ThreadSanitizer, Helgrind or DRD.
//!
//! ThreadSanitizer stands in for `pthread_rwlock_*`, too, and passes calls on. Where it comes before this library (Clang
//! links it into the program) it sees the locks itself, and calls this library's in their place. Where it comes after (GCC
//! has it as a library), the program calls this library and nobody else. Helgrind and DRD look for glibc's functions only.
//! So in these cases, this library tells them. In the mode `glibc` it then calls glibc's functions themselves, not those
//! that ThreadSanitizer has in their place, which are not all there.

use core::ffi::c_void;

use fairlock_checkers::{Hold, Wait};
use fairlock_counts::layout::WRITE;
use libc::{c_int, pthread_rwlock_t};

use crate::functions::Patience;
use crate::lock::Lock;
use crate::modes::Mode;

/// Whether a checker is there and does not see by itself that these are locks. Helgrind and DRD see those of glibc.
pub(crate) fn has_to_tell(are_glibcs: bool) -> bool {
    fairlock_checkers::is_called(c"pthread_rwlock_rdlock")
        && match are_glibcs {
            true => fairlock_checkers::is_thread_sanitizer_present(),
            false => fairlock_checkers::are_present(),
        }
}

/// A lock ends, or begins where another one was.
pub(crate) fn has_ended(lock: *const pthread_rwlock_t, mode: Mode) {
    if mode.announces() {
        fairlock_checkers::ended(lock.cast());
    }
}

/// What a function does, which has been announced and has not ended.
pub(crate) struct Announced {
    /// Only its address: the lock may be gone.
    lock: *const c_void,
    hold: Hold,
    /// None if it releases.
    acquires: Option<Wait>,
}

impl Announced {
    /// None if nobody has to be told.
    #[inline(always)]
    pub(crate) fn acquisition(
        at: &Lock,
        mode: Mode,
        role: usize,
        patience: Patience,
    ) -> Option<Announced> {
        let wait = match patience {
            Patience::Forever => Wait::ForEver,
            _ => Wait::Tries,
        };
        mode.announces().then(|| Announced::begin(at, role, Some(wait)))
    }

    /// None if nobody has to be told.
    #[inline(always)]
    pub(crate) fn release(at: &Lock, mode: Mode, role: usize) -> Option<Announced> {
        mode.announces().then(|| Announced::begin(at, role, None))
    }

    #[cold]
    fn begin(at: &Lock, role: usize, acquires: Option<Wait>) -> Announced {
        let lock = core::ptr::from_ref(at).cast();
        let hold = if role == WRITE { Hold::Write } else { Hold::Read };
        fairlock_checkers::library_is_called();
        match acquires {
            Some(wait) => {
                fairlock_checkers::acquiring(lock, size_of::<pthread_rwlock_t>(), hold, wait);
            }
            None => fairlock_checkers::releasing(lock, hold),
        }
        Announced { lock, hold, acquires }
    }

    /// The function has come to this.
    #[inline(always)]
    pub(crate) fn end(announced: Option<Announced>, code: c_int) {
        if let Some(announced) = announced {
            announced.finish(code);
        }
    }

    #[cold]
    fn finish(self, code: c_int) {
        match self.acquires {
            Some(wait) => fairlock_checkers::acquired(self.lock, self.hold, wait, code == 0),
            None => fairlock_checkers::released(self.lock, self.hold),
        }
        fairlock_checkers::returns();
    }
}
