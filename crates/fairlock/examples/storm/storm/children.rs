//! Forks in the middle of it all. The child uses locks that no other thread of its parent used at
//! that moment, and ends.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::clock::{MILLISECOND, SECOND, now};
use super::{fail, stops};

/// So many children ended well.
pub static CHILDREN: AtomicU64 = AtomicU64::new(0);

/// A child that takes longer than this waits for ever.
const LONGEST: u64 = 30 * SECOND;

/// Who goes on after a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Parent,
    Child,
}

/// Parent and child both go on with `release`, what the thread holds; the child then with `use_it`,
/// and ends.
pub fn fork(release: impl FnOnce(Ending), use_it: impl FnOnce()) {
    // SAFETY: the child uses nothing that another thread may have held but the allocator, which the
    // C library keeps usable; and it ends without running anything of its parent's.
    match unsafe { libc::fork() } {
        -1 => fail(&format!("fork: {}", std::io::Error::last_os_error())),
        0 => {
            let lives = catch_unwind(AssertUnwindSafe(|| {
                release(Ending::Child);
                use_it();
            }));
            // SAFETY: ends this process.
            unsafe { libc::_exit(lives.is_err().into()) }
        }
        child => {
            release(Ending::Parent);
            wait_for(child);
        }
    }
}

fn wait_for(child: libc::pid_t) {
    let began = now();
    let mut status = 0;
    loop {
        // SAFETY: the status lives on this stack.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } {
            0 if now() - began < LONGEST => stops::sleep(MILLISECOND / 4),
            0 => {
                // SAFETY: a child that has not been waited for, so the number is still its own.
                unsafe { libc::kill(child, libc::SIGKILL) };
                fail("hang: a child waits for ever");
            }
            found if found == child && status == 0 => break,
            found => fail(&format!("a child failed: {found}, status {status:#x}")),
        }
    }
    CHILDREN.fetch_add(1, Relaxed);
}

/// Runs `body` while another thread runs `other`; without the standard library, whose own locks may
/// be held by threads that the child does not have.
pub fn beside(other: &dyn Fn(), body: impl FnOnce()) {
    extern "C" fn run(other: *mut c_void) -> *mut c_void {
        // SAFETY: whoever started this thread waits for it, and keeps this until then.
        let other = unsafe { &*other.cast::<&dyn Fn()>() };
        other();
        ptr::null_mut()
    }
    let mut thread = 0;
    // SAFETY: the thread's number goes to this stack; the rest as above. Only what may be shared
    // is, as the caller is the child's only other thread.
    let error = unsafe {
        let other = ptr::from_ref(&other).cast_mut().cast();
        libc::pthread_create(&mut thread, ptr::null(), run, other)
    };
    assert_eq!(error, 0, "a child can start threads");
    body();
    // SAFETY: started above.
    assert_eq!(unsafe { libc::pthread_join(thread, ptr::null_mut()) }, 0);
}
