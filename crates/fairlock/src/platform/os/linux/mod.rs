//! Linux: sleeps by futex(2), tells the time by CLOCK_MONOTONIC, passes barriers by membarrier(2).
//!
//! Under Miri, which has neither membarrier nor assembly, it does without a barrier and does not
//! know its CPU.

#[cfg(not(miri))]
mod membarrier;
#[cfg(not(miri))]
mod rseq;

use core::sync::atomic::AtomicU32;

#[cfg(miri)]
pub(super) use super::portable::{barrier_on_all_cpus, cpu, is_asymmetric, nap};
#[cfg(not(miri))]
pub(super) use membarrier::{barrier_on_all_cpus, is_asymmetric};
#[cfg(not(miri))]
pub(super) use rseq::cpu;

pub(super) fn park(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
    wait(word, expected, deadline, libc::FUTEX_PRIVATE_FLAG);
}

pub(super) fn unpark(word: *const AtomicU32) {
    wake(word, 1, libc::FUTEX_PRIVATE_FLAG);
}

/// Wakes `most` threads, and says how many slept.
pub(super) fn unpark_many(word: *const AtomicU32, most: u32) -> u32 {
    let most = libc::c_int::try_from(most).unwrap_or(libc::c_int::MAX);
    wake(word, most, libc::FUTEX_PRIVATE_FLAG)
}

/// As [`park`], also for memory that other processes map.
pub(super) fn park_shared(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
    wait(word, expected, deadline, 0);
}

/// Wakes threads of any process, `most` of them.
pub(super) fn unpark_shared(word: *const AtomicU32, most: libc::c_int) {
    wake(word, most, 0);
}

/// FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC, so a wait that is repeated after a
/// signal does not become longer. `private` is FUTEX_PRIVATE_FLAG, or 0 for memory that other
/// processes map, too.
fn wait(word: &AtomicU32, expected: u32, deadline: Option<u64>, private: libc::c_int) {
    let timeout = deadline.map(|ns| libc::timespec {
        tv_sec: libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    let timeout = timeout.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: `word` is a live, aligned u32, and `timeout` is null or points to a live timespec.
    // The errors (EAGAIN, EINTR, ETIMEDOUT) all mean that the caller has to look again, which
    // callers do.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | private,
            expected,
            timeout,
            core::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY as u32,
        );
    }
}

fn wake(word: *const AtomicU32, most: libc::c_int, private: libc::c_int) -> u32 {
    // SAFETY: FUTEX_WAKE does not read the word; it uses the address alone, which the kernel looks
    // up if the futex is shared. If the word is gone, that wakes nobody, or a thread that looks
    // again.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.cast::<u32>().cast_mut(),
            libc::FUTEX_WAKE | private,
            most,
        )
    };
    // Negative where the address is no longer mapped.
    u32::try_from(woken).unwrap_or(0)
}

/// Sleeps by the bare system call, as the C library's function is a point at which threads are
/// cancelled.
#[cfg(not(miri))]
pub(super) fn nap(ns: u32) {
    let nap = libc::timespec { tv_sec: 0, tv_nsec: ns as _ };
    // SAFETY: a plain system call; the timespec lives on this stack.
    unsafe { libc::syscall(libc::SYS_nanosleep, &nap, core::ptr::null_mut::<libc::timespec>()) };
}

#[inline]
pub(super) fn now() -> u64 {
    let mut time = core::mem::MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: CLOCK_MONOTONIC always exists on Linux, so the call fills `time`.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The CPUs that are online.
pub(super) fn cpus() -> Option<u32> {
    // SAFETY: asks for a number.
    u32::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).ok()
}
