//! glibc's own functions, which this library replaces. The mode `glibc` counts the calls and passes them on.
//! The functions are looked up once, at the start.

use core::ffi::{CStr, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

use crate::watched;
use libc::{c_int, clockid_t, pthread_rwlock_t, pthread_rwlockattr_t, timespec};

/// One of them.
struct Function {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Function {
    const fn named(name: &'static CStr) -> Function {
        Function { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    fn look_up(&self, place: *mut c_void) -> bool {
        // SAFETY: a plain call; the name ends with a 0.
        let address = unsafe { libc::dlsym(place, self.name.as_ptr()) };
        // Release pairs with the Acquire in `address`.
        self.address.store(address, Release);
        !address.is_null()
    }

    #[inline]
    fn address(&self) -> *mut c_void {
        self.address.load(Acquire)
    }
}

macro_rules! functions {
    ($($name:ident, $function:ident($($argument:ident: $type:ty),*), $c:literal;)*) => {
        $(static $name: Function = Function::named($c);

        /// # Safety
        /// As the function of this name; and [`look_up`] has found all.
        #[inline]
        pub(crate) unsafe fn $function($($argument: $type),*) -> c_int {
            // SAFETY: not null, as all were found; the C library's function of this name has these
            // parameters.
            let function = unsafe {
                transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>($name.address())
            };
            // SAFETY: what the function asks, the caller promises.
            unsafe { function($($argument),*) }
        })*

        /// Whether all are there. For the start.
        pub(crate) fn look_up() -> bool {
            let place = place();
            [$(&$name),*].into_iter().all(|function| function.look_up(place))
        }
    };
}

/// Where they are looked up: what comes after this library, or the C library itself (`watched.rs`).
fn place() -> *mut c_void {
    let mut place = libc::RTLD_NEXT;
    if watched::has_to_tell(true) {
        // SAFETY: a string; it is loaded already.
        let library =
            unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !library.is_null() {
            place = library;
        }
    }
    place
}

type Lock = *mut pthread_rwlock_t;

functions! {
    INIT, init(lock: Lock, attributes: *const pthread_rwlockattr_t), c"pthread_rwlock_init";
    DESTROY, destroy(lock: Lock), c"pthread_rwlock_destroy";
    RDLOCK, rdlock(lock: Lock), c"pthread_rwlock_rdlock";
    WRLOCK, wrlock(lock: Lock), c"pthread_rwlock_wrlock";
    TRYRDLOCK, tryrdlock(lock: Lock), c"pthread_rwlock_tryrdlock";
    TRYWRLOCK, trywrlock(lock: Lock), c"pthread_rwlock_trywrlock";
    CLOCKRDLOCK, clockrdlock(lock: Lock, clock: clockid_t, until: *const timespec),
        c"pthread_rwlock_clockrdlock";
    CLOCKWRLOCK, clockwrlock(lock: Lock, clock: clockid_t, until: *const timespec),
        c"pthread_rwlock_clockwrlock";
    UNLOCK, unlock(lock: Lock), c"pthread_rwlock_unlock";
}
