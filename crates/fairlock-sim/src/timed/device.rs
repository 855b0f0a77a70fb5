//! The disk: so many requests served at once, so many more queued, the others wait for a place.

use std::collections::VecDeque;

use super::random::Random;
use super::{Ps, ps};
use crate::profile::{self, Service};

/// A request of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) thread: u32,
    pub(super) write: bool,
    pub(super) bytes: u64,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Submitted {
    /// It is served, for this long.
    Served(Ps),
    /// It is in the queue.
    Queued,
    /// There is no place: submit again when woken.
    Refused,
}

#[derive(Debug)]
pub(super) struct Device {
    profile: profile::Device,
    busy: u32,
    queue: VecDeque<Request>,
    /// Threads that wait for a place in the queue.
    refused: VecDeque<u32>,
}

impl Device {
    pub(super) fn new(profile: &profile::Device) -> Device {
        Device {
            profile: profile.clone(),
            busy: 0,
            queue: VecDeque::new(),
            refused: VecDeque::new(),
        }
    }

    pub(super) fn submit(&mut self, request: Request, random: &mut Random) -> Submitted {
        if self.busy < self.profile.servers {
            self.busy += 1;
            Submitted::Served(self.service(request, random))
        } else if self.queue.len() < self.profile.queue as usize {
            self.queue.push_back(request);
            Submitted::Queued
        } else {
            self.refused.push_back(request.thread);
            Submitted::Refused
        }
    }

    /// A request has been served: the next one to be served and for how long, and a thread that
    /// has got a place to submit to.
    pub(super) fn finished(&mut self, random: &mut Random) -> (Option<(u32, Ps)>, Option<u32>) {
        self.busy -= 1;
        let next = self.queue.pop_front().map(|request| {
            self.busy += 1;
            (request.thread, self.service(request, random))
        });
        (next, self.refused.pop_front())
    }

    fn service(&self, request: Request, random: &mut Random) -> Ps {
        let Service { base_ns, kib_ns, sigma } =
            if request.write { self.profile.write } else { self.profile.read };
        ps(random.lognormal(base_ns, sigma) + kib_ns * request.bytes as f64 / 1024.0)
    }
}
