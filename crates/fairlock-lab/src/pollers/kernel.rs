//! The kernel's epoll, with an eventfd for each counter.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::{Poller, Trigger};
use crate::error::LabError;

/// An epoll instance.
pub struct KernelEpoll(OwnedFd);

/// The descriptor that a system call makes. Many machines give a program 1024 at first and far more if it
/// asks, as the original does; this asks when the first ones are used up.
fn made(what: &str, make: impl Fn() -> libc::c_int) -> Result<OwnedFd, LabError> {
    let mut descriptor = make();
    if descriptor < 0 && are_used_up(&io::Error::last_os_error()) {
        ask_for_all_descriptors();
        descriptor = make();
    }
    if descriptor < 0 {
        let mut error = io::Error::last_os_error();
        if are_used_up(&error) {
            let advice = format!("{error}; have fewer sources, or raise `ulimit -Hn`");
            error = io::Error::new(error.kind(), advice);
        }
        return Err(LabError::io(format!("make {what}"), error));
    }
    // SAFETY: new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// This program's descriptors, that is.
fn are_used_up(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMFILE)
}

/// Allows this program as many as it may have.
fn ask_for_all_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is valid for both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            // If that is refused, the next descriptor is, too.
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

fn bits(trigger: Trigger) -> u32 {
    let more = match trigger {
        Trigger::Level => 0,
        Trigger::Edge => libc::EPOLLET,
        Trigger::Once => libc::EPOLLONESHOT,
    };
    (libc::EPOLLIN | more) as u32
}

impl KernelEpoll {
    fn control(
        &self,
        operation: libc::c_int,
        source: RawFd,
        events: u32,
        token: u64,
    ) -> Result<(), LabError> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: both descriptors are open, the event is valid for the call.
        let result = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, source, &mut event) };
        match result {
            0 => Ok(()),
            _ => Err(LabError::io("register with epoll", io::Error::last_os_error())),
        }
    }
}

impl Poller for KernelEpoll {
    type Counter = File;
    type Batch = Vec<libc::epoll_event>;

    fn new() -> Result<Self, LabError> {
        // SAFETY: a system call without pointers.
        made("an epoll", || unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(KernelEpoll)
    }

    fn counter() -> Result<File, LabError> {
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        // SAFETY: a system call without pointers.
        made("an eventfd", || unsafe { libc::eventfd(0, flags) }).map(File::from)
    }

    fn register(&self, counter: &File, token: u64, trigger: Trigger) -> Result<(), LabError> {
        self.control(libc::EPOLL_CTL_ADD, counter.as_raw_fd(), bits(trigger), token)
    }

    fn rearm(&self, counter: &File, token: u64) -> Result<(), LabError> {
        self.control(libc::EPOLL_CTL_MOD, counter.as_raw_fd(), bits(Trigger::Once), token)
    }

    fn enclose(&self, inner: &Self) -> Result<(), LabError> {
        let nothing = libc::EPOLLHUP as u32;
        self.control(libc::EPOLL_CTL_ADD, inner.0.as_raw_fd(), nothing, u64::MAX)
    }

    fn batch(most: usize) -> Self::Batch {
        vec![libc::epoll_event { events: 0, u64: 0 }; most]
    }

    fn wait(&self, batch: &mut Self::Batch, timeout: Duration) -> Result<usize, LabError> {
        let most = batch.len() as libc::c_int;
        let timeout_ms = timeout.as_millis() as libc::c_int;
        // SAFETY: the batch is valid for `most` events.
        let count =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), batch.as_mut_ptr(), most, timeout_ms) };
        match usize::try_from(count) {
            Ok(count) => Ok(count),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == ErrorKind::Interrupted => Ok(0),
                error => Err(LabError::io("wait for epoll", error)),
            },
        }
    }

    fn token(batch: &Self::Batch, place: usize) -> u64 {
        batch[place].u64
    }

    fn add(mut counter: &File) -> Result<(), LabError> {
        let written = counter.write_all(&1_u64.to_ne_bytes());
        written.map_err(|error| LabError::io("write to an eventfd", error))
    }

    fn read(mut counter: &File) -> Result<Option<u64>, LabError> {
        let mut count = [0; 8];
        match counter.read_exact(&mut count) {
            Ok(()) => Ok(Some(u64::from_ne_bytes(count))),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(LabError::io("read an eventfd", error)),
        }
    }
}
