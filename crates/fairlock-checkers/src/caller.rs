//! Where in a program a function of the library was called: ThreadSanitizer notes that as code runs that it was
//! compiled into, which the library's is not.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
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

/// The first frame that is searched for.
#[derive(Clone, Copy)]
enum Frame {
    /// The one after this function's.
    After(usize),
    /// The first that is not of what was loaded at this address.
    Outside(*mut c_void),
}

struct Search {
    frame: Frame,
    is_next: bool,
    left: u32,
    found: *const c_void,
}

/// Where `function`, which is being called, returns to; null if that is unknown.
pub(crate) fn of(function: Name) -> *const c_void {
    search(Frame::After(function.addr()))
}

/// Where what calls this library returns to; null if that is unknown. For a shared library.
pub(crate) fn of_library() -> *const c_void {
    search(Frame::Outside(this_library()))
}

/// Where what contains this code was loaded.
pub(crate) fn this_library() -> *mut c_void {
    static HERE: u8 = 0;
    loaded_at((&raw const HERE).cast())
}

/// Where what contains this address was loaded. Null if nothing is there.
pub(crate) fn loaded_at(address: *const c_void) -> *mut c_void {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `found` lives; zeros are valid, too.
    unsafe {
        libc::dladdr(address, found.as_mut_ptr());
        found.assume_init().dli_fbase
    }
}

fn search(frame: Frame) -> *const c_void {
    let mut search = Search { frame, is_next: false, left: DEEPEST, found: ptr::null() };
    // SAFETY: `look_at` gets a pointer to `search`, which lives.
    unsafe { _Unwind_Backtrace(look_at, (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn look_at(context: *mut Context, search: *mut c_void) -> c_int {
    // SAFETY: what `search` passes, and the unwinder's context.
    let (search, place, function) = unsafe {
        (
            &mut *search.cast::<Search>(),
            ptr::without_provenance(_Unwind_GetIP(context)),
            _Unwind_GetRegionStart(context),
        )
    };
    let is_it = match search.frame {
        Frame::After(sought) => core::mem::replace(&mut search.is_next, function == sought),
        Frame::Outside(library) => loaded_at(place) != library,
    };
    if is_it {
        search.found = place;
    }
    search.left -= 1;
    if is_it || search.left == 0 { END_OF_STACK } else { NO_REASON }
}
