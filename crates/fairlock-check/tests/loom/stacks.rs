//! Loom maps a new stack for each thread of each execution and unmaps it, which takes half of its time: this program's
//! calls for stacks take those that are free already.

use std::cell::RefCell;

use libc::{MAP_FAILED, MAP_STACK, c_int, c_long, c_void, off_t, size_t};

/// Address and length of each.
struct Stacks {
    used: Vec<(usize, usize)>,
    free: Vec<(usize, usize)>,
}

thread_local! {
    static STACKS: RefCell<Stacks> = const { RefCell::new(Stacks { used: Vec::new(), free: Vec::new() }) };
}

/// The C library's, for what is linked into this program; the library itself does not call it.
///
/// # Safety
/// As there. Who asks for a stack may not count on zeros.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let map = || {
        // SAFETY: the caller's.
        let mapped = unsafe {
            libc::syscall(libc::SYS_mmap, address, length, protection, flags, file, offset)
        };
        mapped as *mut c_void
    };
    if flags & MAP_STACK == 0 {
        return map();
    }
    STACKS.with_borrow_mut(|stacks| {
        let free = stacks.free.iter().position(|&(_, free)| free == length);
        let stack = match free {
            Some(at) => stacks.free.swap_remove(at).0 as *mut c_void,
            None => map(),
        };
        if stack != MAP_FAILED {
            stacks.used.push((stack as usize, length));
        }
        stack
    })
}

/// The C library's, as [`mmap`].
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(address: *mut c_void, length: size_t) -> c_int {
    let stack = (address as usize, length);
    let kept = STACKS.try_with(|stacks| {
        let mut stacks = stacks.borrow_mut();
        let used = stacks.used.iter().position(|&used| used == stack);
        used.map(|at| stacks.used.swap_remove(at)).map(|stack| stacks.free.push(stack)).is_some()
    });
    if kept == Ok(true) {
        return 0;
    }
    // SAFETY: the caller's.
    let unmapped: c_long = unsafe { libc::syscall(libc::SYS_munmap, address, length) };
    unmapped as c_int
}
