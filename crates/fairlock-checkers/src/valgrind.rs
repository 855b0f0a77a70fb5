//! Requests to Valgrind: those of `<valgrind/helgrind.h>` and `<valgrind/drd.h>`, whose numbers never change. DRD has
//! the numbers of Helgrind for what both understand; what a tool does not understand, it ignores.

use std::sync::OnceLock;

use crate::Name;

const RUNNING_ON_VALGRIND: usize = 0x1001;

const HELGRIND: usize = 0x4847_0000;
const CLEAN_MEMORY: usize = HELGRIND;
const RWLOCK_DESTROYED: usize = HELGRIND + 0x10f;
const RWLOCK_ACQUIRED: usize = HELGRIND + 0x111;
const RWLOCK_RELEASED: usize = HELGRIND + 0x112;
const HAPPENS_BEFORE: usize = HELGRIND + 0x121;
const HAPPENS_AFTER: usize = HELGRIND + 0x122;
const MAKE_UNTRACKED: usize = HELGRIND + 0x127;

const DRD: usize = 0x4452_0000;
const RECORD_LOADS: usize = DRD + 6;
const RECORD_STORES: usize = DRD + 7;

/// A waiting thread has what others write within so many bytes of its stack, of which some are above what is in use when
/// that is told.
const STACK: usize = 8192;
const STACK_ABOVE: usize = 512;

/// Asks Valgrind; `0` if the process does not run under it.
fn request(number: usize, first: usize, second: usize) -> usize {
    let arguments = [number, first, second, 0, 0, 0];
    #[cfg(target_arch = "x86_64")]
    {
        let mut answer = 0_usize;
        // SAFETY: these instructions change nothing on a CPU: a register is rotated by 128 bits in all.
        unsafe {
            core::arch::asm!(
                "rol rdi, 3",
                "rol rdi, 13",
                "rol rdi, 61",
                "rol rdi, 51",
                "xchg rbx, rbx",
                inout("rdx") answer,
                in("rax") &raw const arguments,
                options(nostack),
            );
        }
        answer
    }
    #[cfg(target_arch = "aarch64")]
    {
        let mut answer = 0_usize;
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "ror x12, x12, #3",
                "ror x12, x12, #13",
                "ror x12, x12, #51",
                "ror x12, x12, #61",
                "orr x10, x10, x10",
                inout("x3") answer,
                in("x4") &raw const arguments,
                options(nostack),
            );
        }
        answer
    }
    // Elsewhere nobody is told.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = arguments;
        0
    }
}

pub(crate) fn is_running() -> bool {
    static RUNNING: OnceLock<bool> = OnceLock::new();
    *RUNNING.get_or_init(|| request(RUNNING_ON_VALGRIND, 0, 0) != 0)
}

/// A name that nothing else has: DRD gives up where a lock lies in the place that another kind of object had on
/// the stack, whose end nobody told.
fn own_name(lock: Name) -> usize {
    lock.addr() + 1
}

pub(crate) fn acquired(lock: Name, writes: bool) {
    request(RWLOCK_ACQUIRED, own_name(lock), writes.into());
}

pub(crate) fn releasing(lock: Name, writes: bool) {
    request(RWLOCK_RELEASED, own_name(lock), writes.into());
}

/// A free lock ends, which may never have been acquired: tools complain of the end of what they do not know.
pub(crate) fn ends(lock: Name) {
    acquired(lock, true);
    releasing(lock, true);
    request(RWLOCK_DESTROYED, own_name(lock), 0);
}

pub(crate) fn sends(name: Name) {
    request(HAPPENS_BEFORE, name.addr(), 0);
}

pub(crate) fn receives(name: Name) {
    request(HAPPENS_AFTER, name.addr(), 0);
}

/// The lock's own memory is none of Helgrind's business.
pub(crate) fn forget(lock: Name, size: usize) {
    if size != 0 {
        request(MAKE_UNTRACKED, lock.addr(), size);
    }
}

/// DRD ignores what this thread does from now on.
pub(crate) fn begin_ignoring() {
    request(RECORD_LOADS, 0, 0);
    request(RECORD_STORES, 0, 0);
}

/// And no longer. What other threads have written to this thread's stack, to wake it, was written by the lock: the
/// next function that uses that stack has nothing to do with it.
pub(crate) fn end_ignoring() {
    let here = 0_u8;
    let end = (&raw const here).addr() + STACK_ABOVE;
    request(CLEAN_MEMORY, end - STACK, STACK);
    request(RECORD_LOADS, 1, 0);
    request(RECORD_STORES, 1, 0);
}
