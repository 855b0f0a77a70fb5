//! Lets a reader be waited for in an event loop: a descriptor that is readable while something is
//! committed behind the reader.
//!
//! Readers learn of commits by a word on which they sleep, which no event loop can do. So a thread sleeps
//! there for the reader, and makes an eventfd readable. An eventfd belongs to one process, so the writer
//! cannot do that itself, and it would pay for it at each commit.
//!
//! ```text
//!                 the reader comes to the end: it empties the eventfd
//!   readable ───────────────────────────────────────────────────────▶ armed
//!      ▲                                                                │
//!      └────────────────────────────────────────────────────────────────┘
//!          the thread sees that more is committed, or the reader turns back
//! ```
//!
//! Invariants:
//!
//! 1. Under the lock, either the eventfd is readable, or it is armed with the place behind which nothing
//!    was committed when the reader looked. Both change together.
//! 2. While it is armed, the thread looks whether more is committed after each commit that it has not
//!    looked after: a look at the control page says how much, and the count; it sleeps only while the
//!    count is what it saw (see `control.rs`). A reader that arms it with a later place while the thread sleeps loses
//!    nothing: what the thread sleeps for comes before what is to come behind that place.
//! 3. While it is not armed the thread sleeps on a word of its own, and no commit wakes it: a reader that
//!    is behind costs the writer nothing, one at the end is woken for at most once until it comes there
//!    again.

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::process::Process;
use super::progress::{Idle, Progress};
use super::storage::SharedPage;

/// How long it takes at most until a thread is told again that it is to end, which was about to sleep when
/// it was told.
const AGAIN: Duration = Duration::from_millis(1);

pub(crate) struct Readiness<M: SharedPage> {
    shared: Arc<Shared<M>>,
    thread: Option<JoinHandle<()>>,
    /// The process that it is of.
    process: Process,
}

struct Shared<M> {
    progress: Progress<M>,
    /// An eventfd; as a file, it is read and written.
    event: File,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Where the reader is at the end; none while the eventfd is readable.
    armed: Option<u64>,
    ending: bool,
    ended: bool,
}

impl<M: SharedPage> Readiness<M> {
    /// Readable at first.
    pub(crate) fn new(progress: Progress<M>) -> io::Result<Readiness<M>> {
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        // SAFETY: a system call without pointers.
        let event = unsafe { libc::eventfd(1, flags) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: new, and nobody else's.
        let event = File::from(unsafe { OwnedFd::from_raw_fd(event) });
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { progress, event, state, changed });
        let thread = {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .name("fairlock-event".to_owned())
                .spawn(move || shared.follow())?
        };
        Ok(Readiness { shared, thread: Some(thread), process: Process::current() })
    }

    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    /// The reader has come to `end`, behind which nothing was committed when it looked. Who waits for the
    /// descriptor to become readable, not for it to be, is told of what is committed since, too: it
    /// becomes unreadable first.
    pub(crate) fn at_end(&self, end: u64) {
        let mut state = self.shared.lock();
        if state.armed.is_none() {
            // It cannot fail but for being empty, which is what is wanted.
            let _ = (&self.shared.event).read(&mut [0; 8]);
        }
        state.armed = Some(end);
        self.shared.changed.notify_all();
    }

    /// The reader is elsewhere.
    pub(crate) fn behind(&self) {
        self.shared.set_readable(&mut self.shared.lock());
    }
}

impl<M: SharedPage> Drop for Readiness<M> {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // In the child of a fork there is no thread to be ended.
            mem::forget(self.thread.take());
            return;
        }
        let shared = &*self.shared;
        let mut state = shared.lock();
        state.ending = true;
        shared.changed.notify_all();
        while !state.ended {
            // The page may be mapped read-only, so there is no word to change on which the thread is
            // about to sleep: it is woken until it was seen awake.
            shared.progress.control().wake();
            let waited = shared.changed.wait_timeout(state, AGAIN);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, there would be nothing to add.
            let _ = thread.join();
        }
    }
}

impl<M: SharedPage> Shared<M> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_readable(&self, state: &mut State) {
        if state.armed.take().is_some() {
            // It cannot fail: the count is 0 before.
            let _ = (&self.event).write(&1_u64.to_ne_bytes());
        }
    }

    fn follow(&self) {
        let mut progress = self.progress.clone();
        let mut idle = Idle::default();
        let mut state = self.lock();
        while !state.ending {
            let Some(end) = state.armed else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            // Who reads is told of what is wrong.
            if progress.refresh().is_err() || end < progress.committed() {
                self.set_readable(&mut state);
                continue;
            }
            drop(state);
            idle.wait(&progress, None);
            state = self.lock();
        }
        state.ended = true;
        self.changed.notify_all();
    }
}
