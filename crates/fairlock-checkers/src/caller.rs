//! Where in a program a function of the library was called: ThreadSanitizer notes that as code runs that it was
//! compiled into, which the library's is not.

use core::ffi::{c_int, c_void};
use core::ptr;

use crate::Name;

/// So many calls lie between a function of the library and what announces it, at most.
const DEEPEST: u32 = 64;

/// The unwinder's, whose functions the standard library needs, too.
#[repr(C)]
struct Context {
    _private: [u8; 0],
}

const NO_REASON: c_int = 0;
const END_OF_STACK: c_int = 5;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: unsafe extern "C" fn(*mut Context, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
    fn _Unwind_GetRegionStart(context: *mut Context) -> usize;
}

struct Search {
    function: usize,
    is_next: bool,
    left: u32,
    found: *const c_void,
}

/// Where `function`, which is being called, returns to; null if that is unknown.
pub(crate) fn of(function: Name) -> *const c_void {
    let mut search =
        Search { function: function.addr(), is_next: false, left: DEEPEST, found: ptr::null() };
    // SAFETY: `look_at` gets a pointer to `search`, which lives.
    unsafe { _Unwind_Backtrace(look_at, (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn look_at(context: *mut Context, search: *mut c_void) -> c_int {
    // SAFETY: what `of` passes.
    let search = unsafe { &mut *search.cast::<Search>() };
    if search.is_next {
        // SAFETY: the unwinder's context, here and below.
        search.found = ptr::without_provenance(unsafe { _Unwind_GetIP(context) });
        return END_OF_STACK;
    }
    // SAFETY: as above.
    search.is_next = unsafe { _Unwind_GetRegionStart(context) } == search.function;
    search.left -= 1;
    if search.left == 0 { END_OF_STACK } else { NO_REASON }
}
