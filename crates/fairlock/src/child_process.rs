//! For tests: what happens in the child of a `fork`.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Exited(i32),
    Killed(i32),
    Hung,
}

/// What `body` says in a child of this process. A body that panics or returns ends the child,
/// so that it never gets back into the test harness.
pub(crate) fn in_child_process(body: impl FnOnce() -> i32) -> Ending {
    /// A child does not fork while another is watched: it would be a child of this one, too.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the child does what is safe after a `fork`, see the module, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the process.
        unsafe { libc::_exit(code.unwrap_or(100)) };
    }
    assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
    let began = Instant::now();
    let mut status = 0;
    // SAFETY: waits for a child of this function; `status` lives.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if began.elapsed() > Duration::from_secs(20) {
            // SAFETY: ends that child.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &mut status, 0);
            }
            return Ending::Hung;
        }
        thread::sleep(Duration::from_millis(1));
    }
    match libc::WIFEXITED(status) {
        true => Ending::Exited(libc::WEXITSTATUS(status)),
        false => Ending::Killed(libc::WTERMSIG(status)),
    }
}

/// The first thing that does not hold, counted from 1.
pub(crate) fn first_wrong(what: &[bool]) -> i32 {
    what.iter().position(|&holds| !holds).map_or(0, |at| at as i32 + 1)
}
