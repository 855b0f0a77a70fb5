//! Tells a process from its parent: what the child of a fork inherits still belongs to the parent.
//!
//! A process id does not tell: the child of a fork into a new pid namespace can have its parent's number. So each
//! process of a family has a generation. It stands in a page that the kernel empties in every child, however that is
//! forked (`MADV_WIPEONFORK`); a child that finds it empty takes the next generation, by a counter that it inherits.
//! So no process has the generation of one of its ancestors.
//!
//! Where the kernel does not know such pages (before Linux 4.14), a handler empties the word
//! (pthread_atfork(3)), and children of `_Fork` and of the bare system calls are taken for their parents.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU64};

/// A process, told from all of its ancestors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    generation: u64,
}

/// Where the generation stands; null until somebody asks for it.
static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Where it stands without such a page.
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// The last generation that was taken by this process or by one of its ancestors.
static LAST: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// The one that calls this.
    pub(crate) fn current() -> Process {
        Process::by(word())
    }

    pub(crate) fn is_current(self) -> bool {
        self == Process::current()
    }

    fn by(word: &AtomicU64) -> Process {
        // Relaxed, as all here: the number stands for itself, and a child begins after all that its parent did
        // before the fork.
        let generation = word.load(Relaxed);
        if generation != 0 {
            return Process { generation };
        }
        let next = LAST.fetch_add(1, Relaxed) + 1;
        let generation = match word.compare_exchange(0, next, Relaxed, Relaxed) {
            Ok(_) => next,
            Err(other) => other,
        };
        Process { generation }
    }
}

/// Nobody waits here for another thread, which a fork may leave behind.
fn word() -> &'static AtomicU64 {
    // Acquire pairs with the Release in `make_word`.
    match NonNull::new(WORD.load(Acquire)) {
        // SAFETY: it is never unmapped, and only used as this; kernel and handler change it in processes
        // that have no thread yet.
        Some(word) => unsafe { word.as_ref() },
        None => make_word(),
    }
}

#[cold]
fn make_word() -> &'static AtomicU64 {
    let page = wiped_page().ok();
    let word = page.or_else(handled_word).unwrap_or(NonNull::from(&HANDLED));
    let before = WORD.compare_exchange(ptr::null_mut(), word.as_ptr(), AcqRel, Acquire);
    // Another thread was faster: its word counts, and the page of this one is left as it is, untouched and without
    // memory.
    let word = before.err().and_then(NonNull::new).unwrap_or(word);
    // SAFETY: a static, or a word that is never unmapped; it is only used as this.
    unsafe { word.as_ref() }
}

/// A word of zeros, in a page that is empty again in every child.
fn wiped_page() -> io::Result<NonNull<AtomicU64>> {
    let length = size_of::<AtomicU64>();
    let (access, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
    // SAFETY: new memory, wherever there is room.
    let page = unsafe {
        libc::mmap(ptr::null_mut(), length, access, private | libc::MAP_ANONYMOUS, -1, 0)
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: of this memory only.
    if unsafe { libc::madvise(page, length, libc::MADV_WIPEONFORK) } != 0 {
        let error = io::Error::last_os_error();
        // SAFETY: nobody else knows it.
        unsafe { libc::munmap(page, length) };
        return Err(error);
    }
    NonNull::new(page.cast()).ok_or_else(|| io::Error::other("mmap gave no memory"))
}

/// The word that a handler empties in every child that the C library forks; none without memory for the handler.
fn handled_word() -> Option<NonNull<AtomicU64>> {
    unsafe extern "C" fn in_child() {
        HANDLED.store(0, Relaxed);
    }
    // SAFETY: the handler is a plain function of this library, and the C library forgets it when the library
    // goes. Threads that come here at once each ask for it, and it does no harm twice.
    let is_handled = unsafe { libc::pthread_atfork(None, None, Some(in_child)) } == 0;
    is_handled.then(|| NonNull::from(&HANDLED))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a child that `fork` makes says; it may do no more than a signal handler.
    fn in_child(fork: impl Fn() -> libc::c_long, holds: impl FnOnce() -> bool) -> bool {
        let child = fork();
        if child == 0 {
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!holds())) };
        }
        assert!(child > 0, "{}", io::Error::last_os_error());
        let mut status = 0;
        // SAFETY: fills in the status of a child.
        let ended = unsafe { libc::waitpid(child as libc::pid_t, &mut status, 0) };
        assert_eq!(libc::c_long::from(ended), child);
        status == 0
    }

    /// By the C library, which calls handlers.
    fn forked() -> libc::c_long {
        // SAFETY: see `in_child`.
        unsafe { libc::fork() }.into()
    }

    /// By the system alone.
    fn cloned() -> libc::c_long {
        // SAFETY: see `in_child`. The child has a copy of the stack, and nothing else to be told.
        unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }
    }

    /// A child and its child are others than their ancestors, and know themselves.
    fn assert_told_apart(fork: fn() -> libc::c_long, current: fn() -> Process) {
        let parent = current();
        assert!(in_child(fork, || {
            let child = current();
            let grandchild = || ![parent, child].contains(&current()) && current() == current();
            child != parent && child == current() && in_child(fork, grandchild)
        }));
        assert!(parent == current());
    }

    #[test]
    fn a_child_is_told_from_its_parent_however_it_is_forked() {
        if let Err(error) = wiped_page() {
            return eprintln!("not tested, as the kernel has no such pages: {error}");
        }
        for fork in [forked, cloned] {
            assert_told_apart(fork, Process::current);
        }
    }

    #[test]
    fn without_pages_that_the_kernel_empties_a_handler_does() {
        assert_told_apart(forked, || {
            // SAFETY: a static.
            Process::by(unsafe { handled_word().expect("memory for a handler").as_ref() })
        });
    }
}
