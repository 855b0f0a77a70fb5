//! Lets a poll be waited for in another event loop: a descriptor that is readable while something may be
//! ready.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// An eventfd.
pub(super) struct Descriptor {
    event: File,
}

impl Descriptor {
    /// Not readable.
    pub(super) fn new() -> io::Result<Descriptor> {
        // SAFETY: a system call without pointers.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: new, and nobody else's.
        Ok(Descriptor { event: File::from(unsafe { OwnedFd::from_raw_fd(event) }) })
    }

    /// Readable from now on.
    pub(super) fn raise(&self) {
        // It can fail only because it is full, and so readable.
        let _ = (&self.event).write(&1_u64.to_ne_bytes());
    }

    /// Not readable until it is raised.
    pub(super) fn lower(&self) {
        // It can fail only because it is empty.
        let _ = (&self.event).read(&mut [0; 8]);
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
