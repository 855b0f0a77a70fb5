//! On which CPU a thread runs, from its rseq(2) area.

/// The CPU on which this thread runs, plus one: two loads, no call. The kernel keeps it up to date
/// as `cpu_id` in this thread's rseq area, which glibc (2.35 and later) registers at
/// `__rseq_offset` from the thread pointer. Where the C library has no such symbol, its address is
/// null and the answer is 0: unknown. An area that could not be registered holds -1 or -2, for
/// which the answer is 0 or `u32::MAX`: no CPU either.
#[cfg(any(all(target_arch = "x86_64", target_pointer_width = "64"), target_arch = "aarch64"))]
#[inline(always)]
pub(in super::super) fn cpu() -> u32 {
    let offset = area::offset();
    if offset.is_null() {
        return 0;
    }
    // SAFETY: glibc initialised the offset before `main`, and the area lives as long as the thread.
    unsafe { area::cpu_id(*offset) }.wrapping_add(1)
}

#[cfg(not(any(
    all(target_arch = "x86_64", target_pointer_width = "64"),
    target_arch = "aarch64"
)))]
pub(in super::super) use super::super::portable::cpu;

#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
mod area {
    use core::arch::asm;

    /// Where `__rseq_offset` is; null if the C library has none.
    #[inline(always)]
    pub(super) fn offset() -> *const isize {
        let offset;
        // SAFETY: reads the symbol's entry in the global offset table; weak, so null if absent.
        unsafe {
            asm!(
                ".weak __rseq_offset",
                "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
                offset = out(reg) offset,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        offset
    }

    /// The field `cpu_id` of the area.
    ///
    /// # Safety
    /// The area is at this offset from the thread pointer, which is `fs`.
    #[inline(always)]
    pub(super) unsafe fn cpu_id(offset: isize) -> u32 {
        let cpu: u32;
        // SAFETY: the area is there, as the caller promises.
        unsafe {
            asm!(
                "mov {cpu:e}, dword ptr fs:[{offset} + 4]",
                offset = in(reg) offset,
                cpu = lateout(reg) cpu,
                options(readonly, nostack, preserves_flags),
            );
        }
        cpu
    }
}

#[cfg(target_arch = "aarch64")]
mod area {
    use core::arch::asm;

    /// Where `__rseq_offset` is; null if the C library has none.
    #[inline(always)]
    pub(super) fn offset() -> *const isize {
        let offset;
        // SAFETY: reads the symbol's entry in the global offset table; weak, so null if absent.
        unsafe {
            asm!(
                ".weak __rseq_offset",
                "adrp {offset}, :got:__rseq_offset",
                "ldr {offset}, [{offset}, :got_lo12:__rseq_offset]",
                offset = out(reg) offset,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        offset
    }

    /// The field `cpu_id` of the area.
    ///
    /// # Safety
    /// The area is at this offset from the thread pointer, which is `tpidr_el0`.
    #[inline(always)]
    pub(super) unsafe fn cpu_id(offset: isize) -> u32 {
        let cpu: u32;
        // SAFETY: the area is there, as the caller promises.
        unsafe {
            asm!(
                "mrs {pointer}, tpidr_el0",
                "add {pointer}, {pointer}, {offset}",
                "ldr {cpu:w}, [{pointer}, #4]",
                pointer = out(reg) _,
                offset = in(reg) offset,
                cpu = lateout(reg) cpu,
                options(readonly, nostack, preserves_flags),
            );
        }
        cpu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_of_a_pinned_thread_is_the_one_it_is_pinned_to() {
        if matches!(cpu(), 0 | u32::MAX) {
            return eprintln!(
                "skipped: the C library or the kernel has no rseq area, so unknown is right"
            );
        }
        // In a thread of its own, as threads of the test harness run other tests afterwards.
        // SAFETY: an all-zero cpu_set_t is empty; the calls get live pointers of the right size.
        let seen = std::thread::spawn(|| unsafe {
            let mut set: libc::cpu_set_t = core::mem::zeroed();
            libc::sched_getaffinity(0, size_of_val(&set), &mut set);
            let cpu = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &set));
            let cpu = cpu.expect("a thread may run somewhere");
            let mut one: libc::cpu_set_t = core::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
            (self::cpu() as usize, cpu + 1)
        });
        let (seen, expected) = seen.join().expect("it can be pinned");
        assert_eq!(seen, expected);
    }
}
