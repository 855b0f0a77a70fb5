//! Where a call came from: return addresses, by the module that they lie in.
//!
//! Nothing here takes a lock of the dynamic linker: a thread may be in the middle of loading a
//! library, with that lock, and wait for a lock that the caller holds.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::hash::{BuildHasher, Hasher};
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

use crate::layout::{
    FRAMES, MODULES, MODULES_AT, Module, NO_MODULE, STACKS, STACKS_AT, Stack, frame,
};
use crate::map::{Map, write_text};

/// Return addresses, innermost first. Those come first that lie in what [`look_up`] was told to leave out, and they are
/// left out.
pub struct Frames {
    addresses: [usize; FRAMES],
    length: usize,
}

impl Frames {
    /// Of the caller.
    #[inline(never)]
    pub fn here() -> Frames {
        let mut frames = Frames { addresses: [0; FRAMES], length: 0 };
        // SAFETY: the function keeps to its contract, and `frames` lives.
        unsafe { _Unwind_Backtrace(note, ptr::from_mut(&mut frames).cast()) };
        frames
    }
}

type Context = c_void;

unsafe extern "C" {
    // Of libgcc, as all of Rust's unwinding.
    fn _Unwind_Backtrace(
        each: unsafe extern "C" fn(*mut Context, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
}

unsafe extern "C" fn note(context: *mut Context, frames: *mut c_void) -> c_int {
    const GO_ON: c_int = 0;
    const END: c_int = 5;
    // SAFETY: what `here` passed.
    let frames = unsafe { &mut *frames.cast::<Frames>() };
    if frames.length == frames.addresses.len() {
        return END;
    }
    // SAFETY: a context of the unwinder's.
    let address = unsafe { _Unwind_GetIP(context) };
    if address != 0 && !(frames.length == 0 && is_own(address)) {
        frames.addresses[frames.length] = address;
        frames.length += 1;
    }
    GO_ON
}

/// `struct dl_find_object`, since glibc 2.35.
#[repr(C)]
struct Found {
    flags: u64,
    start: *const c_void,
    end: *const c_void,
    link_map: *const LinkMap,
    /// More than there is today.
    rest: [u64; 12],
}

/// The beginning of `struct link_map`, as a debugger sees it.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
}

/// `_dl_find_object`, which takes no lock; null before glibc 2.35: then addresses have no module.
static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Where the module lies whose calls are left out; empty if there is none, or if it is not known.
static OWN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// For the start of the process: finds what is needed to tell modules apart. `own` is an address in a library whose
/// calls say nothing, as all stacks begin with them.
pub fn look_up(own: Option<*const ()>) {
    // SAFETY: a plain call.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    FIND_OBJECT.store(function, Release);
    if let Some(own) = own.and_then(|own| find(own.addr())) {
        OWN[0].store(own.start.addr(), Relaxed);
        OWN[1].store(own.end.addr(), Relaxed);
    }
}

fn is_own(address: usize) -> bool {
    (OWN[0].load(Relaxed)..OWN[1].load(Relaxed)).contains(&address)
}

fn find(address: usize) -> Option<Found> {
    let function = FIND_OBJECT.load(Acquire);
    if function.is_null() {
        return None;
    }
    let mut found = Found {
        flags: 0,
        start: ptr::null(),
        end: ptr::null(),
        link_map: ptr::null(),
        rest: [0; 12],
    };
    // SAFETY: the function of that name has this type, and `found` is at least as large as what it
    // fills.
    let code = unsafe {
        let function: unsafe extern "C" fn(*const c_void, *mut Found) -> c_int =
            core::mem::transmute(function);
        function(ptr::without_provenance(address), &mut found)
    };
    (code == 0).then_some(found)
}

/// The place of these frames in the table; none if there is no room.
pub fn place(map: &Map, frames: &Frames) -> Option<u32> {
    let mut known = [0; FRAMES];
    for (known, address) in known.iter_mut().zip(&frames.addresses[..frames.length]) {
        *known = match find(*address).and_then(|found| module(map, &found)) {
            Some((module, base)) => frame(module.into(), address.wrapping_sub(base) as u64),
            None => frame(NO_MODULE, *address as u64),
        };
    }
    insert(map, &known)
}

fn insert(map: &Map, frames: &[u64; FRAMES]) -> Option<u32> {
    const TRIES: usize = 32;
    let mut hasher = BuildHasherDefault::<DefaultHasher>::default().build_hasher();
    frames.iter().for_each(|frame| hasher.write_u64(*frame));
    let hash = hasher.finish() | 1;
    for try_at in 0..TRIES {
        let place = (hash as usize / 2 + try_at) % STACKS;
        if !map.has_room_at(STACKS_AT + place * size_of::<Stack>()) {
            return None;
        }
        let stack = &map.stacks()[place];
        match stack.claimed.compare_exchange(0, hash, AcqRel, Acquire) {
            Ok(_) => {
                stack.frames.iter().zip(frames).for_each(|(to, from)| to.store(*from, Relaxed));
                // Release pairs with the Acquire of the snapshot.
                stack.is_complete.store(1, Release);
                return Some(place as u32);
            }
            Err(found) if found == hash => return Some(place as u32),
            Err(_) => {}
        }
    }
    None
}

/// Modules that this process has put in the table, by their places there: base, and hash of the name; 0:
/// none. Not looked up in the file, where somebody else may have changed them.
static KNOWN: [[AtomicU64; 2]; MODULES] = [const { [const { AtomicU64::new(0) }; 2] }; MODULES];
/// Behind the last of them.
static PLACES_KNOWN: AtomicUsize = AtomicUsize::new(0);

/// The module's place in the table, and its base.
fn module(map: &Map, found: &Found) -> Option<(u16, usize)> {
    // SAFETY: a link map that glibc knows; code of the module is on this thread's stack, so it
    // stays loaded.
    let LinkMap { base, name } = unsafe { found.link_map.as_ref()?.copied() };
    // SAFETY: a text that ends with a 0, or null.
    let name = if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } };
    // The program itself has no name there.
    let name = if name.is_empty() { map.program() } else { name };
    let mut hasher = BuildHasherDefault::<DefaultHasher>::default().build_hasher();
    hasher.write(name.to_bytes());
    let hash = hasher.finish() | 1;
    // Acquire pairs with the Release below: the base is there.
    let is_it = |known: &[AtomicU64; 2]| {
        known[1].load(Acquire) == hash && known[0].load(Relaxed) == base as u64
    };
    // Places are handed out from the front.
    let known = &KNOWN[..PLACES_KNOWN.load(Relaxed)];
    if let Some(place) = known.iter().position(is_it) {
        return Some((place as u16, base));
    }
    let place = map.new_place::<Module>(&map.header().modules, MODULES_AT, MODULES)?;
    let module = &map.modules()[place as usize];
    write_text(&module.path, name.to_bytes());
    module.base.store(base as u64, Relaxed);
    KNOWN[place as usize][0].store(base as u64, Relaxed);
    KNOWN[place as usize][1].store(hash, Release);
    PLACES_KNOWN.fetch_max(place as usize + 1, Relaxed);
    Some((place as u16, base))
}

impl LinkMap {
    fn copied(&self) -> LinkMap {
        LinkMap { base: self.base, name: self.name }
    }
}
