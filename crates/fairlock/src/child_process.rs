//! For tests: what happens in the child of a `fork`.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;
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

/// A thread of such a child, joined when it is dropped. Not one of std's: they begin by taking a
/// lock of std's, which another thread of the parent may have held at the `fork`, and then nobody
/// releases it here.
pub(crate) struct ChildThread<'a>(libc::pthread_t, PhantomData<&'a ()>);

impl<'a> ChildThread<'a> {
    pub(crate) fn start(body: impl FnOnce() + Send + 'a) -> ChildThread<'a> {
        type Body<'a> = Box<dyn FnOnce() + Send + 'a>;

        extern "C" fn run(body: *mut c_void) -> *mut c_void {
            // SAFETY: made by `start` for this thread alone.
            let body = unsafe { Box::from_raw(body.cast::<Body<'_>>()) };
            body();
            ptr::null_mut()
        }

        let body: Box<Body<'a>> = Box::new(Box::new(body));
        let body = Box::into_raw(body).cast();
        let mut thread = MaybeUninit::uninit();
        // SAFETY: `run` takes what `body` is. It borrows for 'a, which outlives this value, whose
        // end waits for the thread; tests do not forget it.
        let result = unsafe { libc::pthread_create(thread.as_mut_ptr(), ptr::null(), run, body) };
        assert_eq!(result, 0, "pthread_create");
        // SAFETY: it has been created.
        ChildThread(unsafe { thread.assume_init() }, PhantomData)
    }
}

impl Drop for ChildThread<'_> {
    fn drop(&mut self) {
        // SAFETY: it was created, and is joined once.
        unsafe { libc::pthread_join(self.0, ptr::null_mut()) };
    }
}

/// The first thing that does not hold, counted from 1.
pub(crate) fn first_wrong(what: &[bool]) -> i32 {
    what.iter().position(|&holds| !holds).map_or(0, |at| at as i32 + 1)
}
