//! Windows: sleeps by `WaitOnAddress`, as std's locks do.
//!
//! A timeout is in whole milliseconds there, and ends at a tick of the system's timer. So a timed
//! wait may be late by a millisecond and by a tick, which is up to 15.6 ms unless a program asks
//! for shorter ones; it never ends early.

use core::sync::atomic::AtomicU32;

use windows_sys::Win32::System::Threading::{
    INFINITE, WaitOnAddress, WakeByAddressAll, WakeByAddressSingle,
};

#[cfg(not(any(target_arch = "x86_64", target_arch = "x86")))]
pub(super) use super::portable::{barrier_on_all_cpus, is_asymmetric};
pub(super) use super::portable::{cpu, cpus, nap, now};

/// Each new wait has what is left of the time: the caller looks again, whatever ended this one.
pub(super) fn park(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
    let milliseconds = match deadline.map(|deadline| deadline.saturating_sub(now())) {
        None => INFINITE,
        Some(0) => return,
        // Rounded up: callers would spin for the rest. What does not fit ends early, after 49 days.
        Some(ns) => u32::try_from(ns.div_ceil(1_000_000)).unwrap_or(INFINITE).min(INFINITE - 1),
    };
    // SAFETY: both addresses are of live u32s, and as many bytes are compared. If it fails, the
    // caller looks again.
    unsafe {
        WaitOnAddress(word.as_ptr().cast(), (&raw const expected).cast(), 4, milliseconds);
    }
}

pub(super) fn unpark(word: *const AtomicU32) {
    // SAFETY: the function uses the address alone. If the word is gone, that wakes nobody, or a
    // thread that looks again.
    unsafe { WakeByAddressSingle(word.cast()) };
}

/// One or all, and the system does not tell how many slept.
pub(super) fn unpark_many(word: *const AtomicU32, most: u32) -> u32 {
    match most {
        1 => unpark(word),
        // SAFETY: as above.
        _ => unsafe { WakeByAddressAll(word.cast()) },
    }
    0
}

/// `FlushProcessWriteBuffers` interrupts all CPUs that run this process, and promises that what
/// each has written is visible then. On x86 that makes it a full barrier there, as nothing but a
/// store is ever passed by a later access. Other processors reorder more, of which the promise says
/// nothing: locks do without there. Under Wine it does nothing at all, so there is none there,
/// either.
#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
pub(super) fn is_asymmetric() -> bool {
    use core::sync::atomic::AtomicU8;
    use core::sync::atomic::Ordering::Relaxed;
    use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleA, GetProcAddress};
    const NOT_ASKED: u8 = 0;
    const YES: u8 = 1;
    const NO: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(NOT_ASKED);
    match ANSWER.load(Relaxed) {
        NOT_ASKED => {
            // SAFETY: both names end with a zero. Every process has this library, and keeps it.
            let wine = unsafe {
                let library = GetModuleHandleA(c"ntdll.dll".as_ptr().cast());
                GetProcAddress(library, c"wine_get_version".as_ptr().cast())
            };
            // All threads that ask at once get the same answer.
            ANSWER.store(if wine.is_some() { NO } else { YES }, Relaxed);
            wine.is_none()
        }
        answer => answer == YES,
    }
}

/// A full barrier on every CPU that runs a thread of this process.
#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
pub(super) fn barrier_on_all_cpus() {
    // What the caller has written before may not still be in its own CPU's buffer, either.
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    // SAFETY: takes no arguments.
    unsafe { windows_sys::Win32::System::Threading::FlushProcessWriteBuffers() };
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}
