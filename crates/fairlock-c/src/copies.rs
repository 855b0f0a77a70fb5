//! Several copies of this library in one process: the first one serves all.
//!
//! A program and a library that it loads may each contain the static library, and hand each other locks.
//! Each copy has slots of its own, a queue pool of its own, a pool of range locks of its own, so a writer would
//! look for readers in the wrong slots. Therefore one copy does everything, for all of them: the first one
//! that the dynamic linker has loaded, the program's own if it has one. A function that is called in
//! another copy passes the call on to the same function of the first.
//!
//! How copies find each other: each has an ELF note (`.note.fairlock`) that leads to its [`CopyFacts`], and
//! dl_iterate_phdr(3) shows the notes of all that is loaded. Symbols would not do: those of a program
//! are not visible to what it loads, unless it was linked with `-rdynamic`, nor are those that were
//! loaded with `RTLD_LOCAL`.
//!
//! Invariants
//! 1. All copies agree on the first, at whichever moment each looks: what is loaded later comes later in
//!    the dynamic linker's list, and a copy that was found to be the first is never unloaded from then on.
//! 2. A copy looks before it does anything for a caller, when it is loaded or, where constructors of
//!    others run before its own, at its first call.
//! 3. A copy whose functions are not those that another one expects is not used by it: the process ends,
//!    with a message.
//!
//! What it costs is a load and a jump that is not taken in each call, in the first copy. The same jump leads to what
//! is announced to checkers of races (`watched.rs`), so that costs nothing where there are none.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::io::Write;

use crate::watched::{Announced, Outcome};
use crate::{
    fairlock_cond_t, fairlock_mutex_t, fairlock_poll_t, fairlock_process_shared_t,
    fairlock_range_hold_t, fairlock_range_lock_t, fairlock_ready_t, fairlock_rwlock_t,
    fairlock_source_t,
};

/// The number in the library's soname (`build.rs`): other types, or functions that do something else.
const ABI: u32 = 0;

/// What others know of a copy. What comes with a later version of the library comes after what is there;
/// what is there does not change, not even with another [`ABI`].
#[repr(C)]
pub struct CopyFacts {
    abi: u32,
    /// Bytes of [`Functions`].
    size: u32,
    /// Of the library, for messages: a string of C's.
    version: *const c_char,
    functions: *const Functions,
}

// SAFETY: constants.
unsafe impl Sync for CopyFacts {}

macro_rules! functions {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// Those of a copy. New ones come last.
        #[repr(C)]
        pub struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        pub(crate) static FUNCTIONS: Functions = Functions { $($name: crate::$name,)* };
    };
}

functions! {
    fairlock_rwlock_init(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_destroy(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_read(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_try_read(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_try_read_for(*mut fairlock_rwlock_t, u64) -> c_int;
    fairlock_rwlock_try_read_until(*mut fairlock_rwlock_t, c_int, *const libc::timespec) -> c_int;
    fairlock_rwlock_read_recursive(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_write(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_try_write(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_try_write_for(*mut fairlock_rwlock_t, u64) -> c_int;
    fairlock_rwlock_try_write_until(*mut fairlock_rwlock_t, c_int, *const libc::timespec) -> c_int;
    fairlock_rwlock_unlock(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_unlock_read(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_unlock_write(*mut fairlock_rwlock_t) -> c_int;
    fairlock_mutex_init(*mut fairlock_mutex_t) -> c_int;
    fairlock_mutex_destroy(*mut fairlock_mutex_t) -> c_int;
    fairlock_mutex_lock(*mut fairlock_mutex_t) -> c_int;
    fairlock_mutex_try_lock(*mut fairlock_mutex_t) -> c_int;
    fairlock_mutex_try_lock_for(*mut fairlock_mutex_t, u64) -> c_int;
    fairlock_mutex_try_lock_until(*mut fairlock_mutex_t, c_int, *const libc::timespec) -> c_int;
    fairlock_mutex_unlock(*mut fairlock_mutex_t) -> c_int;
    fairlock_range_lock_new() -> *mut fairlock_range_lock_t;
    fairlock_range_lock_free(*mut fairlock_range_lock_t) -> c_int;
    fairlock_range_read(*mut fairlock_range_lock_t, u64, u64, *mut fairlock_range_hold_t) -> c_int;
    fairlock_range_try_read(*mut fairlock_range_lock_t, u64, u64, *mut fairlock_range_hold_t) -> c_int;
    fairlock_range_try_read_for(*mut fairlock_range_lock_t, u64, u64, u64, *mut fairlock_range_hold_t) -> c_int;
    fairlock_range_try_read_until(*mut fairlock_range_lock_t, u64, u64, c_int, *const libc::timespec, *mut fairlock_range_hold_t) -> c_int;
    fairlock_range_write(*mut fairlock_range_lock_t, u64, u64, *mut fairlock_range_hold_t) -> c_int;
    fairlock_range_try_write(*mut fairlock_range_lock_t, u64, u64, *mut fairlock_range_hold_t) -> c_int;
    fairlock_range_try_write_for(*mut fairlock_range_lock_t, u64, u64, u64, *mut fairlock_range_hold_t) -> c_int;
    fairlock_range_try_write_until(*mut fairlock_range_lock_t, u64, u64, c_int, *const libc::timespec, *mut fairlock_range_hold_t) -> c_int;
    fairlock_range_unlock(*mut fairlock_range_hold_t) -> c_int;
    fairlock_range_downgrade(*mut fairlock_range_hold_t) -> c_int;
    fairlock_counter_new(u64) -> *mut fairlock_source_t;
    fairlock_event_new() -> *mut fairlock_source_t;
    fairlock_source_free(*mut fairlock_source_t) -> c_int;
    fairlock_counter_add(*mut fairlock_source_t, u64) -> c_int;
    fairlock_counter_take(*mut fairlock_source_t, *mut u64) -> c_int;
    fairlock_event_set(*mut fairlock_source_t, u32) -> c_int;
    fairlock_event_clear(*mut fairlock_source_t, u32) -> c_int;
    fairlock_poll_new() -> *mut fairlock_poll_t;
    fairlock_poll_free(*mut fairlock_poll_t) -> c_int;
    fairlock_poll_add(*mut fairlock_poll_t, *mut fairlock_source_t, u64, u32, u32) -> c_int;
    fairlock_poll_modify(*mut fairlock_poll_t, *mut fairlock_source_t, u64, u32, u32) -> c_int;
    fairlock_poll_remove(*mut fairlock_poll_t, *mut fairlock_source_t) -> c_int;
    fairlock_poll_wait(*mut fairlock_poll_t, *mut fairlock_ready_t, usize, i64, *mut usize) -> c_int;
    fairlock_poll_descriptor(*mut fairlock_poll_t, *mut c_int) -> c_int;
    fairlock_rwlock_upgradable(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_try_upgradable(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_try_upgradable_for(*mut fairlock_rwlock_t, u64) -> c_int;
    fairlock_rwlock_try_upgradable_until(*mut fairlock_rwlock_t, c_int, *const libc::timespec) -> c_int;
    fairlock_rwlock_unlock_upgradable(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_upgrade(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_try_upgrade(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_try_upgrade_for(*mut fairlock_rwlock_t, u64) -> c_int;
    fairlock_rwlock_try_upgrade_until(*mut fairlock_rwlock_t, c_int, *const libc::timespec) -> c_int;
    fairlock_rwlock_downgrade(*mut fairlock_rwlock_t) -> c_int;
    fairlock_rwlock_downgrade_to_upgradable(*mut fairlock_rwlock_t) -> c_int;
    fairlock_process_shared_init(*mut fairlock_process_shared_t) -> c_int;
    fairlock_process_shared_destroy(*mut fairlock_process_shared_t) -> c_int;
    fairlock_process_shared_read(*mut fairlock_process_shared_t) -> c_int;
    fairlock_process_shared_try_read(*mut fairlock_process_shared_t) -> c_int;
    fairlock_process_shared_try_read_for(*mut fairlock_process_shared_t, u64) -> c_int;
    fairlock_process_shared_try_read_until(*mut fairlock_process_shared_t, c_int, *const libc::timespec) -> c_int;
    fairlock_process_shared_read_recursive(*mut fairlock_process_shared_t) -> c_int;
    fairlock_process_shared_write(*mut fairlock_process_shared_t) -> c_int;
    fairlock_process_shared_try_write(*mut fairlock_process_shared_t) -> c_int;
    fairlock_process_shared_try_write_for(*mut fairlock_process_shared_t, u64) -> c_int;
    fairlock_process_shared_try_write_until(*mut fairlock_process_shared_t, c_int, *const libc::timespec) -> c_int;
    fairlock_process_shared_unlock_read(*mut fairlock_process_shared_t) -> c_int;
    fairlock_process_shared_unlock_write(*mut fairlock_process_shared_t) -> c_int;
    fairlock_timer_new() -> *mut fairlock_source_t;
    fairlock_timer_set_after(*mut fairlock_source_t, u64) -> c_int;
    fairlock_timer_set_at(*mut fairlock_source_t, *const libc::timespec) -> c_int;
    fairlock_timer_set_every(*mut fairlock_source_t, u64, u64) -> c_int;
    fairlock_timer_cancel(*mut fairlock_source_t) -> c_int;
    fairlock_timer_take(*mut fairlock_source_t, *mut u64) -> c_int;
    fairlock_channel_new(usize, *mut *mut fairlock_source_t, *mut *mut fairlock_source_t) -> c_int;
    fairlock_channel_send(*mut fairlock_source_t, *mut c_void) -> c_int;
    fairlock_channel_receive(*mut fairlock_source_t, *mut *mut c_void) -> c_int;
    fairlock_lock_ends(*const c_void) -> c_int;
    fairlock_cond_init(*mut fairlock_cond_t) -> c_int;
    fairlock_cond_destroy(*mut fairlock_cond_t) -> c_int;
    fairlock_cond_wait(*mut fairlock_cond_t, *mut fairlock_mutex_t) -> c_int;
    fairlock_cond_wait_for(*mut fairlock_cond_t, *mut fairlock_mutex_t, u64) -> c_int;
    fairlock_cond_wait_until(*mut fairlock_cond_t, *mut fairlock_mutex_t, c_int, *const libc::timespec) -> c_int;
    fairlock_cond_wait_for_unless(*mut fairlock_cond_t, *mut fairlock_mutex_t, u64, *const u32) -> c_int;
    fairlock_cond_signal(*mut fairlock_cond_t) -> c_int;
    fairlock_cond_broadcast(*mut fairlock_cond_t) -> c_int;
    fairlock_cond_interrupt(*mut fairlock_cond_t, *mut u32) -> c_int;
}

/// What this copy shows of itself.
static THIS: CopyFacts = CopyFacts {
    abi: ABI,
    size: size_of::<Functions>() as u32,
    version: concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast(),
    functions: &raw const FUNCTIONS,
};

/// Of the note: its name, and its type.
const NAME: &[u8; 9] = b"Fairlock\0";
const KIND: u32 = 1;

/// How the assembler is told of a pointer to `THIS`.
#[cfg(target_pointer_width = "64")]
macro_rules! pointer {
    () => {
        ".quad {this}"
    };
}
#[cfg(target_pointer_width = "32")]
macro_rules! pointer {
    () => {
        ".long {this}"
    };
}

// The distance to a pointer to `THIS`. The note itself needs no relocation, so it is read only.
core::arch::global_asm!(
    ".pushsection .note.fairlock, \"a\", %note",
    ".p2align 2",
    ".long {name_size}",
    ".long 4",
    ".long {kind}",
    ".asciz \"Fairlock\"",
    ".p2align 2",
    ".long .Lfairlock_this - .",
    ".popsection",
    ".pushsection .data.rel.ro.fairlock, \"aw\"",
    ".p2align 3",
    ".Lfairlock_this:",
    pointer!(),
    ".popsection",
    name_size = const NAME.len(),
    kind = const KIND,
    this = sym THIS,
);

/// Where the first copy is: [`unknown`], or null if that is this one, or [`watched`] if it is and a checker of races
/// watches.
static FIRST: AtomicPtr<Functions> = AtomicPtr::new(unknown());

/// Nobody's address.
const fn unknown() -> *mut Functions {
    ptr::without_provenance_mut(1)
}

/// Nobody's address.
const fn watched() -> *mut Functions {
    ptr::without_provenance_mut(2)
}

/// Passes a call on to the same function of the first copy, if this is another one; and announces it to checkers of
/// races, if there are any, around what the function does.
macro_rules! served_by_first {
    ($name:ident($($argument:expr),*)) => {
        if !$crate::copies::is_first() {
            let null = core::ptr::null();
            let [subject, second, ..] =
                [$($crate::watched::Subject::address(&$argument),)* null, null];
            // SAFETY: the same function with the same arguments, so the caller's promises hold there, too.
            let call = move |served: &$crate::copies::Functions| unsafe { (served.$name)($($argument),*) };
            let function = $crate::copies::Function {
                name: stringify!($name),
                address: $crate::copies::FUNCTIONS.$name as *const core::ffi::c_void,
                subject,
                second,
            };
            if let Some(outcome) = $crate::copies::passed_on(function, call) {
                return outcome;
            }
        }
    };
}
pub(crate) use served_by_first;

/// A function that was called.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) address: *const c_void,
    /// What it is about: its first argument, if that is a pointer.
    pub(crate) subject: *const c_void,
    /// Its second argument, if that is a pointer.
    pub(crate) second: *const c_void,
}

/// This copy is known to be the first, and nobody watches.
#[inline(always)]
pub(crate) fn is_first() -> bool {
    FIRST.load(Relaxed).is_null()
}

/// Calls the function where it is served. None if that turns out to be the caller itself.
#[cold]
#[inline(never)]
pub(crate) fn passed_on<R: Outcome>(
    function: Function,
    call: impl FnOnce(&Functions) -> R,
) -> Option<R> {
    // Acquire pairs with the Release in `look`.
    let mut found = FIRST.load(Acquire);
    if found == unknown() {
        found = look();
    }
    if found == watched() {
        // It comes here once more, and goes on.
        let announced = Announced::begin(&function)?;
        let outcome = call(&FUNCTIONS);
        announced.end(outcome.is_success());
        return Some(outcome);
    }
    // SAFETY: null, or what a copy shows of itself that is not unloaded any more.
    unsafe { found.as_ref() }.map(call)
}

/// Runs when what contains this copy is loaded, before the constructors that have no priority.
#[used]
#[unsafe(link_section = ".init_array.00100")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    if FIRST.load(Relaxed) == unknown() {
        look();
    }
}

/// Finds the first copy, and keeps it loaded. Threads that come here at once find the same.
fn look() -> *mut Functions {
    let mut first = Found::first();
    // It may be unloaded between being found and being kept.
    while first.as_ref().is_some_and(|found| !found.keep_loaded()) {
        let again = Found::first();
        if first.as_ref().map(|found| found.copy) == again.as_ref().map(|found| found.copy) {
            break; // What cannot be kept so is not unloaded so either.
        }
        first = again;
    }
    let functions = match first {
        // SAFETY: loaded.
        Some(found) if !ptr::eq(found.copy, &raw const THIS) => unsafe { found.functions() },
        _ if fairlock_checkers::are_present() => watched(),
        _ => ptr::null_mut(),
    };
    // Release pairs with the Acquire in `passed_on`.
    FIRST.store(functions, Release);
    functions
}

/// A name is cut off here; so long ones are not kept loaded.
const LONGEST_NAME: usize = 1024;

/// A copy, and the name of what contains it.
struct Found {
    copy: *const CopyFacts,
    /// Ends with a 0; empty for the program.
    name: [u8; LONGEST_NAME],
}

impl Found {
    /// The first copy of those that are loaded. None if this one's note was lost, say to a tool that
    /// strips notes.
    fn first() -> Option<Found> {
        let mut found: Option<Found> = None;
        // SAFETY: the callback gets a pointer to `found`, which lives.
        unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut found).cast()) };
        found
    }

    /// False if that failed.
    fn keep_loaded(&self) -> bool {
        if self.name[0] == 0 {
            return true; // The program.
        }
        let how = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: a string. Nothing is loaded, so no code runs.
        unsafe { !libc::dlopen(self.name.as_ptr().cast(), how).is_null() }
    }

    /// # Safety
    /// It is loaded.
    unsafe fn functions(&self) -> *mut Functions {
        // SAFETY: the caller promises that the copy is loaded.
        let copy = unsafe { &*self.copy };
        if copy.abi != THIS.abi || copy.size < THIS.size {
            self.refuse(copy);
        }
        copy.functions.cast_mut()
    }

    fn refuse(&self, copy: &CopyFacts) -> ! {
        // SAFETY: a string.
        let version = unsafe { CStr::from_ptr(copy.version) }.to_string_lossy();
        let name = CStr::from_bytes_until_nul(&self.name).unwrap_or_default().to_string_lossy();
        let place = if name.is_empty() { "the program".into() } else { name };
        // Nothing can be done if that fails, too.
        let _ = writeln!(
            std::io::stderr(),
            "fairlock: two copies of the library in this process that do not fit: version {version} in \
             {place}, and version {} in what was loaded after it. A lock that both use would not \
             exclude. Link both to one shared library (-lfairlock), or both to the newer version.",
            env!("CARGO_PKG_VERSION"),
        );
        std::process::abort();
    }
}

/// Called for everything that is loaded, in the order in which it was; ends with the first copy.
unsafe extern "C" fn look_at(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the dynamic linker's, and what `first` passes.
    let (object, found) = unsafe { (&*object, &mut *found.cast::<Option<Found>>()) };
    // SAFETY: the object's.
    let headers =
        unsafe { core::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
        let start = (object.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        // SAFETY: the segment is in memory; notes are not written to.
        let notes = unsafe {
            core::slice::from_raw_parts(
                ptr::with_exposed_provenance::<u8>(start),
                header.p_memsz as usize,
            )
        };
        let Some(copy) = copy_in(notes, header.p_align as usize) else { continue };
        let mut name = [0; LONGEST_NAME];
        if !object.dlpi_name.is_null() {
            // SAFETY: a string.
            let given = unsafe { CStr::from_ptr(object.dlpi_name) }.to_bytes();
            let length = given.len().min(LONGEST_NAME - 1);
            name[..length].copy_from_slice(&given[..length]);
        }
        *found = Some(Found { copy, name });
        return 1;
    }
    0
}

/// What the note of a copy leads to, if it is among these.
fn copy_in(mut notes: &[u8], alignment: usize) -> Option<*const CopyFacts> {
    const HEADER: usize = 12;
    let word =
        |notes: &[u8], at: usize| notes.get(at..at + 4)?.try_into().map(u32::from_ne_bytes).ok();
    // Notes of 8 bytes' alignment are in segments of their own.
    let aligned = |size: u32| (size as usize).next_multiple_of(if alignment == 8 { 8 } else { 4 });
    loop {
        let (name_size, size, kind) = (word(notes, 0)?, word(notes, 4)?, word(notes, 8)?);
        let text_at = aligned(HEADER as u32 + name_size);
        if kind == KIND && notes.get(HEADER..HEADER + NAME.len()) == Some(NAME) && size >= 4 {
            let at = notes.get(text_at..)?.as_ptr();
            let distance = word(notes, text_at)? as i32 as isize;
            // SAFETY: this is the note of a copy, and there is its pointer.
            return Some(unsafe { at.wrapping_offset(distance).cast::<*const CopyFacts>().read() });
        }
        notes = notes.get(text_at + aligned(size)..)?;
    }
}
