//! ThreadSanitizer's functions. Programs that are built with it have them, whether its runtime is a library (GCC) or
//! in the program (Clang). They are those of `<sanitizer/tsan_interface.h>`.

use core::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::{Hold, Name, Wait};

const READ_LOCK: c_uint = 1 << 3;
const TRY_LOCK: c_uint = 1 << 4;
const TRY_LOCK_FAILED: c_uint = 1 << 5;

type OfMutex = unsafe extern "C" fn(Name, c_uint);

/// See the module.
pub(crate) struct Tsan {
    pre_lock: OfMutex,
    post_lock: unsafe extern "C" fn(Name, c_uint, c_int),
    pre_unlock: unsafe extern "C" fn(Name, c_uint) -> c_int,
    post_unlock: OfMutex,
    destroy: OfMutex,
    acquire: unsafe extern "C" fn(Name),
    release: unsafe extern "C" fn(Name),
    /// These two only say that what is in between is the library's business. (Clang does not export
    /// `__tsan_ignore_thread_begin`.)
    pre_signal: OfMutex,
    post_signal: OfMutex,
    /// A function that was called at this place of the program, and its end.
    func_entry: unsafe extern "C" fn(*const c_void),
    func_exit: unsafe extern "C" fn(),
}

/// None if the process is not watched.
pub(crate) fn find() -> Option<&'static Tsan> {
    static FOUND: OnceLock<Option<Tsan>> = OnceLock::new();
    FOUND.get_or_init(Tsan::look_up).as_ref()
}

fn address(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The function of this name, as the type of the field says.
macro_rules! function {
    ($name:literal) => {
        // SAFETY: what has this name in a process has this type: it is part of ThreadSanitizer's interface.
        unsafe { core::mem::transmute(address($name)?) }
    };
}

impl Tsan {
    fn look_up() -> Option<Tsan> {
        Some(Tsan {
            pre_lock: function!(c"__tsan_mutex_pre_lock"),
            post_lock: function!(c"__tsan_mutex_post_lock"),
            pre_unlock: function!(c"__tsan_mutex_pre_unlock"),
            post_unlock: function!(c"__tsan_mutex_post_unlock"),
            destroy: function!(c"__tsan_mutex_destroy"),
            acquire: function!(c"__tsan_acquire"),
            release: function!(c"__tsan_release"),
            pre_signal: function!(c"__tsan_mutex_pre_signal"),
            post_signal: function!(c"__tsan_mutex_post_signal"),
            func_entry: function!(c"__tsan_func_entry"),
            func_exit: function!(c"__tsan_func_exit"),
        })
    }

    pub(crate) fn is_called_at(&self, place: *const c_void) {
        // SAFETY: callers call `returns` afterwards. It is only shown.
        unsafe { (self.func_entry)(place) }
    }

    pub(crate) fn returns(&self) {
        // SAFETY: after `is_called_at`.
        unsafe { (self.func_exit)() }
    }

    pub(crate) fn acquiring(&self, lock: Name, hold: Hold, wait: Wait) {
        // SAFETY: an address is all that it needs, here and below.
        unsafe { (self.pre_lock)(lock, flags(hold) | tries(wait)) }
    }

    pub(crate) fn acquired(&self, lock: Name, hold: Hold, wait: Wait, succeeded: bool) {
        let outcome = if succeeded { tries(wait) } else { TRY_LOCK | TRY_LOCK_FAILED };
        // SAFETY: as above.
        unsafe { (self.post_lock)(lock, flags(hold) | outcome, 1) }
    }

    pub(crate) fn releasing(&self, lock: Name, hold: Hold) {
        // SAFETY: as above.
        unsafe { (self.pre_unlock)(lock, flags(hold)) };
    }

    pub(crate) fn released(&self, lock: Name, hold: Hold) {
        // SAFETY: as above.
        unsafe { (self.post_unlock)(lock, flags(hold)) }
    }

    pub(crate) fn ends(&self, lock: Name) {
        // SAFETY: as above.
        unsafe { (self.destroy)(lock, 0) }
    }

    pub(crate) fn sends(&self, name: Name) {
        // SAFETY: as above.
        unsafe { (self.release)(name) }
    }

    pub(crate) fn receives(&self, name: Name) {
        // SAFETY: as above.
        unsafe { (self.acquire)(name) }
    }

    pub(crate) fn enters(&self) {
        // SAFETY: callers call `leaves` afterwards.
        unsafe { (self.pre_signal)(core::ptr::null(), 0) }
    }

    pub(crate) fn leaves(&self) {
        // SAFETY: after `enters`.
        unsafe { (self.post_signal)(core::ptr::null(), 0) }
    }
}

fn flags(hold: Hold) -> c_uint {
    if hold == Hold::Write { 0 } else { READ_LOCK }
}

fn tries(wait: Wait) -> c_uint {
    if wait == Wait::Tries { TRY_LOCK } else { 0 }
}
