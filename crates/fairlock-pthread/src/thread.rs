//! What a thread knows about itself: plain words without a destructor, so that locks can be used
//! until the very end of a thread.
//!
//! They are at a fixed distance from the thread pointer (the TLS model "initial exec"), because a call into
//! the dynamic linker for each access would cost as much as the rest of a lock's fast path. So the library has
//! to be loaded with the program, or its words have to fit into the little room that glibc reserves for
//! libraries that are loaded later.

use core::arch::{asm, global_asm};
use core::cell::Cell;

use fairlock::slots::{EndedThread, Record};
use fairlock_counts::process::ThisThread;

use crate::platform::Preloaded;

/// The calling thread's. All zero at first.
pub(crate) struct Thread {
    /// Where it counts and records.
    pub(crate) counts: ThisThread,
    /// Locks it holds for reading.
    pub(crate) reads: Cell<u32>,
    /// See [`Platform::turn`](fairlock::platform::Platform::turn).
    pub(crate) turn: Cell<u32>,
    /// Its slots.
    pub(crate) record: Cell<*const Record<Preloaded>>,
    /// By what it ends the reads that it had not ended before its end.
    pub(crate) ended: Cell<EndedThread<Preloaded>>,
}

global_asm!(
    ".pushsection .tbss.fairlock_thread, \"awT\", @nobits",
    ".globl fairlock_thread",
    ".hidden fairlock_thread",
    ".type fairlock_thread, @object",
    ".size fairlock_thread, {size}",
    ".p2align 4",
    "fairlock_thread:",
    ".zero {size}",
    ".popsection",
    size = const size_of::<Thread>(),
);

const _: () = assert!(align_of::<Thread>() <= 16, "as the assembler is told");

impl Thread {
    #[inline(always)]
    pub(crate) fn with<R>(body: impl FnOnce(&Thread) -> R) -> R {
        // SAFETY: this thread's own words, which are there as long as it runs; zero is a value of
        // each, and they are only changed through cells.
        body(unsafe { &*Self::address() })
    }

    #[inline(always)]
    fn address() -> *const Thread {
        let address: *const Thread;
        // SAFETY: adds the distance, which the dynamic linker has filled in, to the thread pointer.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            asm!(
                "mov {address}, qword ptr fs:[0]",
                "add {address}, qword ptr [rip + fairlock_thread@GOTTPOFF]",
                address = out(reg) address,
                options(pure, readonly, nostack),
            );
        }
        // SAFETY: likewise.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            asm!(
                "mrs {pointer}, tpidr_el0",
                "adrp {address}, :gottprel:fairlock_thread",
                "ldr {address}, [{address}, :gottprel_lo12:fairlock_thread]",
                "add {address}, {address}, {pointer}",
                pointer = out(reg) _,
                address = out(reg) address,
                options(pure, readonly, nostack),
            );
        }
        address
    }

    /// The kernel's number of it, never 0.
    #[inline(always)]
    pub(crate) fn tid(&self) -> u32 {
        self.counts.tid()
    }

    #[inline(always)]
    pub(crate) fn now_reads(&self) {
        self.reads.set(self.reads.get().wrapping_add(1));
    }

    /// Not below 0: a lock may have been locked by another thread, which POSIX does not allow and
    /// glibc does.
    #[inline(always)]
    pub(crate) fn no_longer_reads(&self) {
        self.reads.set(self.reads.get().saturating_sub(1));
    }
}
