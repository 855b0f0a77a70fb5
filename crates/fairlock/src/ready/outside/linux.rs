//! A poll's descriptor on Linux. It consists of an eventfd that is raised, a timerfd, and an epoll
//! descriptor that watches both, which is the one that users get. It stays the same for the poll's
//! life, whatever is registered later. A write to the eventfd and an expiration of the timerfd are
//! each an edge for the event loop outside, even while the descriptor is readable.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// See the module.
pub(in super::super) struct Descriptor {
    event: File,
    timer: OwnedFd,
    both: OwnedFd,
}

/// The descriptor that a system call returned, or its error.
fn owned(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        tv_nsec: (ns % 1_000_000_000) as _,
    }
}

impl Descriptor {
    /// Not readable.
    pub(in super::super) fn new() -> io::Result<Descriptor> {
        // SAFETY: system calls without pointers.
        let (event, timer, both) = unsafe {
            (
                owned(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?,
                owned(libc::timerfd_create(
                    libc::CLOCK_MONOTONIC,
                    libc::TFD_CLOEXEC | libc::TFD_NONBLOCK,
                ))?,
                owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
            )
        };
        let descriptor = Descriptor { event: File::from(event), timer, both };
        descriptor.add(descriptor.event.as_raw_fd())?;
        descriptor.add(descriptor.timer.as_raw_fd())?;
        Ok(descriptor)
    }

    fn add(&self, part: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both descriptors are open, and the event lives on this stack.
        let result = unsafe {
            libc::epoll_ctl(self.both.as_raw_fd(), libc::EPOLL_CTL_ADD, part, &raw mut event)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Readable from now on.
    pub(in super::super) fn raise(&self) {
        // It can fail only because the eventfd is full, and so readable.
        let _ = (&self.event).write(&1_u64.to_ne_bytes());
    }

    /// Not readable until it is raised, or because of its timer.
    pub(in super::super) fn lower(&self) {
        // It can fail only because the eventfd is zero.
        let _ = (&self.event).read(&mut [0; 8]);
    }

    /// Readable from this moment on, in ns of the monotonic clock; replaces an earlier moment.
    pub(in super::super) fn raise_at(&self, moment: Option<u64>) {
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let time = libc::itimerspec {
            it_interval: never,
            it_value: moment.map_or(never, |ns| timespec(ns.max(1))),
        };
        // SAFETY: the descriptor is open, and the time lives on this stack. It cannot fail: the
        // time is normalized.
        unsafe {
            libc::timerfd_settime(
                self.timer.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const time,
                std::ptr::null_mut(),
            );
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }
}
