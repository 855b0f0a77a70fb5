//! The asymmetric barrier of real threads: membarrier(2), PRIVATE_EXPEDITED (Linux 4.14), where
//! the kernel has it and permits it.
//!
//! The kernel is asked when the first thread gets its record, and the answer is kept. Where it is
//! no, locks use full fences on both sides. Registering takes some milliseconds, once, if the
//! process already has several threads, and no time otherwise.
//!
//! A child of `fork` is registered if its parent is. A child that shares its parent's memory
//! (`vfork`) is the same process to the kernel.
//!
//! The kernel may refuse a barrier after it has said yes, if a filter of system calls (seccomp) is
//! installed later. By then readers have announced themselves without a fence, so a writer may
//! continue only after a barrier on every CPU on which any of them ran. Without this call no such
//! barrier is certain: a change of page tables interrupts other CPUs on some processors only;
//! running on one CPU after the other misses those on which this thread may not run; and a signal
//! would have to be taken from the program. So the program ends, with a message that says what the
//! filter must allow. That happens at the first write that needs a barrier under the filter.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use std::io::Write;

use libc::{
    MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_QUERY,
    MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
};

use crate::platform::{Os, Platform};

/// What the kernel has said.
struct Answer(AtomicU32);

const NOT_ASKED: u32 = 0;
const YES: u32 = 1;
const NO: u32 = 2;

static ANSWER: Answer = Answer::NEW;

/// Whether the kernel has the barrier; the first call registers this process for it.
pub(in super::super) fn is_asymmetric() -> bool {
    ANSWER.get()
}

impl Answer {
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    const NEW: Answer = Answer(AtomicU32::new(NOT_ASKED));

    fn get(&self) -> bool {
        match self.0.load(Relaxed) {
            NOT_ASKED => self.ask(),
            answer => answer == YES,
        }
    }

    #[cold]
    fn ask(&self) -> bool {
        let answer = if register() { YES } else { NO };
        // Of several threads that ask at once, all keep the first answer.
        let first = self.0.compare_exchange(NOT_ASKED, answer, Relaxed, Relaxed);
        first.map_or_else(|first| first, |_| answer) == YES
    }
}

fn register() -> bool {
    let commands = membarrier(MEMBARRIER_CMD_QUERY).unwrap_or(0);
    commands & i64::from(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0
        && membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED).is_ok()
}

/// A full barrier on every CPU that runs a thread of this process.
pub(in super::super) fn barrier_on_all_cpus() {
    let mut attempt = 0;
    while let Err(error) = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        match error {
            // The kernel lacks a few bytes of memory.
            libc::ENOMEM => Os::give_way(attempt),
            // Not registered: the process was not made by `fork`.
            libc::EPERM if attempt == 0 && register() => {}
            _ => refused(error),
        }
        attempt += 1;
    }
}

#[cold]
fn refused(error: libc::c_int) -> ! {
    let error = std::io::Error::from_raw_os_error(error);
    // If writing fails, nothing more can be done.
    let _ = writeln!(
        std::io::stderr(),
        "fairlock: the kernel refuses membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) ({error}), which \
         it allowed when this process began to use locks, so no writer can know that it is alone. \
         If the process filters system calls (seccomp), allow membarrier, or forbid it before the \
         first lock is used."
    );
    std::process::abort();
}

/// What the kernel answers, or the number of its error.
fn membarrier(command: libc::c_int) -> Result<i64, libc::c_int> {
    // SAFETY: the call takes integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    // SAFETY: a valid pointer to the calling thread's own errno.
    if result >= 0 { Ok(result as i64) } else { Err(unsafe { *libc::__errno_location() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child_process::{Ending, in_child_process};

    /// Whether system calls can be filtered here: not everywhere under emulation. Says so where
    /// they cannot.
    fn can_forbid() -> bool {
        // SAFETY: without a filter, the call fails after it has looked for the filter mode.
        unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, core::ptr::null::<u8>())
        };
        let can = std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT);
        if !can {
            eprintln!("skipped: system calls cannot be filtered here (seccomp)");
        }
        can
    }

    /// From now on the kernel refuses membarrier to this thread, with this error.
    fn forbid(error: libc::c_int) {
        const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        const SKIP_UNLESS_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
        let mut filter = [
            step(LOAD_NUMBER, 0, 0),
            step(SKIP_UNLESS_EQUAL, 1, libc::SYS_membarrier as u32),
            step(ANSWER, 0, libc::SECCOMP_RET_ERRNO | error as u32),
            step(ANSWER, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the filter lives during the calls, which affect this thread only.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
        }
    }

    /// `body` in a process with one thread that writes its messages nowhere.
    fn quietly(body: impl FnOnce() -> i32) -> Ending {
        in_child_process(|| {
            // SAFETY: a file of this process alone.
            unsafe { libc::close(2) };
            body()
        })
    }

    #[test]
    fn where_the_kernel_refuses_there_is_no_asymmetric_barrier() {
        if !can_forbid() {
            return;
        }
        for error in [libc::ENOSYS, libc::EPERM] {
            let ending = quietly(|| {
                forbid(error);
                let answer = Answer::NEW;
                answer.get().into()
            });
            assert_eq!(ending, Ending::Exited(0));
        }
    }

    #[test]
    fn the_answer_is_kept() {
        if !can_forbid() {
            return;
        }
        let answer = Answer::NEW;
        let first = answer.get();
        let ending = quietly(|| {
            forbid(libc::EPERM);
            (answer.get() != first).into()
        });
        assert_eq!(ending, Ending::Exited(0));
    }

    #[test]
    fn a_child_passes_barriers() {
        if !is_asymmetric() {
            return; // Nothing to inherit.
        }
        let ending = in_child_process(|| {
            let inherited = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED).is_err();
            barrier_on_all_cpus();
            inherited.into()
        });
        assert_eq!(ending, Ending::Exited(0));
    }

    #[test]
    fn a_barrier_that_is_refused_after_all_ends_the_process() {
        if !can_forbid() || !is_asymmetric() {
            return;
        }
        for error in [libc::ENOSYS, libc::EPERM] {
            let ending = quietly(|| {
                forbid(error);
                barrier_on_all_cpus();
                0
            });
            assert_eq!(ending, Ending::Killed(libc::SIGABRT));
        }
    }
}
