//! Tells who does not want to wait what became of a record: by a call, or as a future.
//!
//! One thread waits for all of them, one after the other in the order in which they were handed over. The
//! first that it waits for writes the whole open batch, so those after it are there at once.

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::process;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};

use super::error::LogError;
use super::log::Submitted;
use super::position::Position;

type Outcome = Result<Position, LogError>;
type Done = Box<dyn FnOnce(Outcome) + Send>;

/// The thread, once somebody wants it.
#[derive(Default)]
pub(crate) struct Completer {
    running: Mutex<Option<Running>>,
}

struct Running {
    sender: Sender<(Submitted, Done)>,
    thread: JoinHandle<()>,
    process: u32,
}

impl Completer {
    /// Calls `done` with what `wait` says of the record. `wait` is that of the log, always.
    pub(crate) fn hand_over(
        &self,
        submitted: Submitted,
        done: Done,
        wait: impl Fn(Submitted) -> Outcome + Send + 'static,
    ) -> io::Result<()> {
        let mut running = self.lock();
        let running = match &mut *running {
            Some(running) => running,
            none => none.insert(start(wait)?),
        };
        // It listens for as long as the sender is there.
        let _ = running.sender.send((submitted, done));
        Ok(())
    }

    /// Waits until all that was handed over is done.
    pub(crate) fn end(&self) {
        let Some(Running { sender, thread, process }) = self.lock().take() else { return };
        drop(sender);
        // A call may drop the log: then the thread ends after it. In the child of a fork there is none.
        if thread.thread().id() != thread::current().id() && process == process::id() {
            // It does not panic; if it did, there would be nothing to add.
            let _ = thread.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(wait: impl Fn(Submitted) -> Outcome + Send + 'static) -> io::Result<Running> {
    let (sender, receiver): (_, Receiver<(Submitted, Done)>) = mpsc::channel();
    let thread = thread::Builder::new().name("fairlock-done".to_owned()).spawn(move || {
        for (submitted, done) in receiver {
            let outcome = wait(submitted);
            // Others wait for their calls, whatever this one does.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| done(outcome)));
        }
    })?;
    Ok(Running { sender, thread, process: process::id() })
}

/// What will become of a record: [`LogFile::completion`](crate::LogFile::completion).
///
/// A future for any executor. Dropped, it is forgotten, and the record is written all the same.
#[must_use = "what became of the record is known when this is awaited"]
pub struct Completion {
    shared: Arc<Mutex<State>>,
}

enum State {
    Waiting(Option<Waker>),
    Done(Outcome),
}

impl Completion {
    /// With what it is to be told by.
    pub(crate) fn new() -> (Completion, Done) {
        let shared = Arc::new(Mutex::new(State::Waiting(None)));
        let told = Arc::clone(&shared);
        let done = move |outcome| {
            let mut state = told.lock().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *state, State::Done(outcome));
            drop(state);
            if let State::Waiting(Some(waker)) = before {
                waker.wake();
            }
        };
        (Completion { shared }, Box::new(done))
    }
}

impl Future for Completion {
    type Output = Result<Position, LogError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            State::Done(outcome) => Poll::Ready(outcome.clone()),
            State::Waiting(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion").finish_non_exhaustive()
    }
}
