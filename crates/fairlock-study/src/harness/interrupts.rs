//! Ctrl-C, and the other signals that ask a program to end: SIGTERM and SIGHUP.
//!
//! The signal handler only posts a semaphore. A thread that waits for it does what the program wants,
//! so that may take locks, allocate and print.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, ptr, thread};

/// Counts signals. Unlike a pipe, a process does not share it with its children after a fork.
struct Semaphore(UnsafeCell<MaybeUninit<libc::sem_t>>);

// SAFETY: any thread may call the functions on a semaphore at any time.
unsafe impl Sync for Semaphore {}

impl Semaphore {
    fn get(&self) -> *mut libc::sem_t {
        self.0.get().cast()
    }
}

static SIGNALS: Semaphore = Semaphore(UnsafeCell::new(MaybeUninit::zeroed()));

extern "C" fn note(_signal: c_int) {
    // SAFETY: initialised before this became a handler; handlers may post semaphores.
    unsafe { libc::sem_post(SIGNALS.get()) };
}

/// Whether this process was started so that it ignores the signal.
fn is_ignored(signal: c_int) -> io::Result<bool> {
    // SAFETY: all zero is a value.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: it only tells what is done now.
    if unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

/// Calls `act` in a thread of its own each time that this process is asked to end.
///
/// # Errors
/// It was called before, or the system refuses a thread or a handler.
pub fn handle(mut act: impl FnMut() + Send + 'static) -> io::Result<()> {
    static IS_HANDLED: AtomicBool = AtomicBool::new(false);
    if IS_HANDLED.swap(true, Ordering::Relaxed) {
        return Err(io::Error::other("this program has a handler already"));
    }
    // SAFETY: the one initialisation of this semaphore, which nothing uses yet.
    unsafe { libc::sem_init(SIGNALS.get(), 0, 0) };
    thread::Builder::new().name("interrupts".into()).spawn(move || {
        loop {
            // SAFETY: initialised above. It fails only if another signal interrupts it.
            if unsafe { libc::sem_wait(SIGNALS.get()) } == 0 {
                act();
            }
        }
    })?;
    // SAFETY: all zero is a value: no flags, and no signals blocked while the handler runs.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = note as extern "C" fn(c_int) as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        if signal == libc::SIGHUP && is_ignored(signal)? {
            // Under nohup(1) the program outlives its terminal.
            continue;
        }
        // SAFETY: the handler does only what handlers may do.
        if unsafe { libc::sigaction(signal, &action, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
