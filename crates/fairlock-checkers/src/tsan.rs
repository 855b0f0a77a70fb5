//! ThreadSanitizer's functions. Programs that are built with it have them, whether its runtime is a library (GCC) or
//! in the program (Clang). They are those of `<sanitizer/tsan_interface.h>`.

use core::ffi::{CStr, c_int, c_uint, c_void};
use core::mem::transmute;
use std::sync::OnceLock;

use crate::{Hold, Name, Wait};

const READ_LOCK: c_uint = 1 << 3;
const TRY_LOCK: c_uint = 1 << 4;
const TRY_LOCK_FAILED: c_uint = 1 << 5;

type OfName = unsafe extern "C" fn(Name);
type OfMutex = unsafe extern "C" fn(Name, c_uint);
type PostLock = unsafe extern "C" fn(Name, c_uint, c_int);
type PreUnlock = unsafe extern "C" fn(Name, c_uint) -> c_int;
type OfPlace = unsafe extern "C" fn(*const c_void);
type Exit = unsafe extern "C" fn();

macro_rules! functions {
    ($($(#[$about:meta])* $function:ident: $type:ty = $name:literal;)*) => {
        /// See the module.
        pub(crate) struct Tsan {
            $($(#[$about])* $function: $type,)*
        }

        impl Tsan {
            fn look_up() -> Option<Tsan> {
                $(
                    let found = address($name)?;
                    // SAFETY: what has this name in a process has this type: it is part of ThreadSanitizer's
                    // interface.
                    let $function = unsafe { transmute::<*mut c_void, $type>(found) };
                )*
                Some(Tsan { $($function),* })
            }
        }
    };
}

functions! {
    pre_lock: OfMutex = c"__tsan_mutex_pre_lock";
    post_lock: PostLock = c"__tsan_mutex_post_lock";
    pre_unlock: PreUnlock = c"__tsan_mutex_pre_unlock";
    post_unlock: OfMutex = c"__tsan_mutex_post_unlock";
    destroy: OfMutex = c"__tsan_mutex_destroy";
    acquire: OfName = c"__tsan_acquire";
    release: OfName = c"__tsan_release";
    /// This and the next say only that what is in between is the library's business. (Clang does not export
    /// `__tsan_ignore_thread_begin`.)
    pre_signal: OfMutex = c"__tsan_mutex_pre_signal";
    post_signal: OfMutex = c"__tsan_mutex_post_signal";
    /// A function that was called at this place of the program, and its end.
    func_entry: OfPlace = c"__tsan_func_entry";
    func_exit: Exit = c"__tsan_func_exit";
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

impl Tsan {
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
