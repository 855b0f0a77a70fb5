//! With the kernel's epoll between the threads, on eventfds.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::InversionParams;
use super::lists::{SOURCES, Sources, run_sources};
use crate::error::LabError;
use crate::measure::Repetition;
use crate::workloads::{Failure, Request};
use crate::world::World;

/// Eventfds in an epoll, by their edges.
struct Kernel {
    events: Vec<File>,
    epoll: OwnedFd,
}

fn check(result: libc::c_int, action: &str) -> Result<libc::c_int, LabError> {
    if result >= 0 { Ok(result) } else { Err(LabError::io(action, io::Error::last_os_error())) }
}

impl Kernel {
    fn new() -> Result<Kernel, LabError> {
        // SAFETY: a system call without pointers.
        let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }, "make an epoll")?;
        // SAFETY: new, and nobody else's.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let events = (0..SOURCES).map(|token| {
            let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
            // SAFETY: a system call without pointers.
            let event = check(unsafe { libc::eventfd(0, flags) }, "make an eventfd")?;
            // SAFETY: new, and nobody else's.
            let file = File::from(unsafe { OwnedFd::from_raw_fd(event) });
            let events = (libc::EPOLLIN | libc::EPOLLET) as u32;
            let mut interest = libc::epoll_event { events, u64: token as u64 };
            // SAFETY: two descriptors that are open and an event that is valid for the call.
            let added = unsafe {
                libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, event, &raw mut interest)
            };
            check(added, "add an eventfd to an epoll")?;
            Ok(file)
        });
        Ok(Kernel { events: events.collect::<Result<_, LabError>>()?, epoll })
    }
}

impl Sources for Kernel {
    type State = Vec<libc::epoll_event>;

    fn new_state(&self) -> Self::State {
        Vec::with_capacity(SOURCES)
    }

    fn signal(&self, source: usize) -> Result<(), Failure> {
        let written = (&self.events[source]).write(&1_u64.to_ne_bytes());
        written.map_err(|error| LabError::io("signal an eventfd", error))?;
        Ok(())
    }

    fn read(
        &self,
        ready: &mut Self::State,
        answered: &mut dyn FnMut(),
    ) -> Result<Option<u64>, Failure> {
        ready.clear();
        let (room, most) = (ready.as_mut_ptr(), ready.capacity() as libc::c_int);
        // SAFETY: there is room for `most` events.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), room, most, 0) };
        answered();
        let count = check(count, "wait for an epoll")?;
        // SAFETY: the kernel has filled in so many.
        unsafe { ready.set_len(count as usize) };
        let mut sum = None;
        for event in &*ready {
            let mut bytes = [0; 8];
            let read = (&self.events[event.u64 as usize]).read(&mut bytes);
            match read {
                Ok(_) => sum = Some(sum.unwrap_or(0) + u64::from_ne_bytes(bytes)),
                // Read already, with the signal before.
                Err(error) if error.kind() == ErrorKind::WouldBlock => sum = sum.or(Some(0)),
                Err(error) => return Err(LabError::io("read an eventfd", error).into()),
            }
        }
        Ok(sum)
    }
}

/// Runs `inversion-list` once on the kernel's epoll.
///
/// # Errors
/// When a signal is lost, a system call fails, or real-time threads cannot be started.
pub(super) fn run<W: World>(
    request: &Request<'_, W>,
    params: &InversionParams,
) -> Result<Repetition, LabError> {
    run_sources(request, params, &Kernel::new()?)
}
