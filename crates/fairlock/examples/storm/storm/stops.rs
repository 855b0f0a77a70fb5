//! Threads are stopped: a signal finds them at a random moment, or the processor counts a random
//! number of their instructions, so that instructions of an unlock that are over in nanoseconds are
//! as likely to be hit as those at which threads spend their time.
//!
//! Both end in a signal handler that sleeps. Handlers use system calls and this thread's seat only.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use super::clock::{SECOND, now};
use super::seats::Seat;

thread_local! {
    // Without destructors, so that a handler may ask at any time.
    static SEAT: Cell<Option<&'static Seat>> = const { Cell::new(None) };
    static STEPS_LEFT: Cell<u64> = const { Cell::new(0) };
    static COUNTED_SINCE: Cell<u64> = const { Cell::new(0) };
}

/// This thread's stops are noted here from now on.
pub fn take_seat(seat: &'static Seat) {
    SEAT.set(Some(seat));
}

pub fn install() {
    handle(libc::SIGUSR1, stop_now as *const () as usize, 0);
    #[cfg(target_arch = "x86_64")]
    handle(libc::SIGTRAP, stepping::count as *const () as usize, libc::SA_SIGINFO);
    handle(libc::SIGUSR2, show_backtrace as *const () as usize, 0);
}

fn handle(signal: c_int, handler: usize, flags: c_int) {
    // SAFETY: zero is a valid `sigaction`, which is then filled in; the handlers below have the
    // signature that their flags ask for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART | flags;
        for other in [libc::SIGUSR1, libc::SIGTRAP] {
            libc::sigaddset(&mut action.sa_mask, other);
        }
        assert_eq!(libc::sigaction(signal, &action, ptr::null_mut()), 0);
    }
}

/// Stops another thread of this process for so long, if it has not ended.
pub fn send(seat: &Seat, ns: u64) {
    seat.next_stop.store(ns, Relaxed);
    // SAFETY: a number that is no thread of this process is an error and nothing else.
    unsafe {
        libc::syscall(libc::SYS_tgkill, libc::getpid(), seat.thread.load(Relaxed), libc::SIGUSR1);
    }
}

extern "C" fn stop_now(_signal: c_int) {
    if let Some(seat) = SEAT.get() {
        stop(seat, now());
    }
}

fn stop(seat: &Seat, began: u64) {
    // SAFETY: this thread's, and the C library's to give out.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: this thread's own.
    let before = unsafe { *errno };
    seat.stopped_since.store(began, Relaxed);
    sleep(seat.next_stop.load(Relaxed));
    seat.note_stop(began);
    seat.stopped_since.store(0, Relaxed);
    // SAFETY: this thread's own.
    unsafe { *errno = before };
}

/// By the bare system call: a handler may have interrupted anything.
pub fn sleep(ns: u64) {
    let time = libc::timespec { tv_sec: (ns / SECOND) as _, tv_nsec: (ns % SECOND) as _ };
    let none = ptr::null_mut::<libc::timespec>();
    // SAFETY: the time lives on this stack.
    unsafe { libc::syscall(libc::SYS_nanosleep, &time, none) };
}

/// From here on, after so many instructions of this thread, stops it for so long; unless
/// [`stop_counting`] comes first.
#[inline]
pub fn after_instructions(seat: &Seat, instructions: u64, ns: u64) {
    seat.next_stop.store(ns, Relaxed);
    let now = now();
    COUNTED_SINCE.set(now);
    seat.stopped_since.store(now, Relaxed);
    STEPS_LEFT.set(instructions.max(1));
    #[cfg(target_arch = "x86_64")]
    stepping::begin();
    #[cfg(not(target_arch = "x86_64"))]
    stop_counting();
}

#[inline]
pub fn stop_counting() {
    if COUNTED_SINCE.get() == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    stepping::end();
    // A thread whose instructions are counted is a thousand times as slow as usual: it counts as
    // stopped all the time.
    let (began, left) = (COUNTED_SINCE.replace(0), STEPS_LEFT.replace(0));
    if let Some(seat) = SEAT.get().filter(|_| left != 0) {
        seat.note_stop(began);
        seat.stopped_since.store(0, Relaxed);
    }
}

/// The processor's trap flag raises SIGTRAP after each instruction.
#[cfg(target_arch = "x86_64")]
mod stepping {
    use super::*;
    use std::arch::asm;
    use std::ffi::c_void;

    const TRAP: libc::greg_t = 0x100;

    #[inline(always)]
    pub fn begin() {
        // SAFETY: changes a flag for which a handler is installed; not `nostack`, so that there is no
        // red zone to overwrite.
        unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    }

    #[inline(always)]
    pub fn end() {
        // SAFETY: changes one flag of this thread and puts the stack back.
        unsafe { asm!("pushfq", "and qword ptr [rsp], -257", "popfq") };
    }

    pub extern "C" fn count(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
        let left = STEPS_LEFT.get();
        if left > 1 {
            STEPS_LEFT.set(left - 1);
            return;
        }
        // SAFETY: the kernel hands a `ucontext_t` to a handler with SA_SIGINFO.
        let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP;
        STEPS_LEFT.set(0);
        if let Some(seat) = SEAT.get().filter(|_| left == 1) {
            stop(seat, COUNTED_SINCE.get());
        }
    }
}

/// Of a thread that hangs, when all is lost anyway: it allocates.
extern "C" fn show_backtrace(_signal: c_int) {
    let seat = SEAT.get().map_or(usize::MAX, Seat::number);
    eprintln!("thread {seat}:\n{}", std::backtrace::Backtrace::force_capture());
}

/// Has another thread print its backtrace.
pub fn ask_for_backtrace(seat: &Seat) {
    // SAFETY: as in `send`.
    unsafe {
        libc::syscall(libc::SYS_tgkill, libc::getpid(), seat.thread.load(Relaxed), libc::SIGUSR2);
    }
}
