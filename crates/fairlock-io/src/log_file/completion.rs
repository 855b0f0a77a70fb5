//! Reports what became of a record without blocking the thread that submitted it: by a call, or as a future.
//!
//! One thread waits for all of them, one after the other in the order in which they were handed over. The
//! first wait writes the whole open batch, so the records after it are written by then, too.

use std::fmt;
use std::future::Future;
use std::io;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};

use super::error::LogError;
use super::log::Submitted;
use super::position::Position;
use super::process::Process;

type Outcome = Result<Position, LogError>;
type Done = Box<dyn FnOnce(Outcome) + Send>;

/// The thread, once somebody wants it.
#[derive(Default)]
pub(crate) struct Completer {
    running: Mutex<Option<Running>>,
}

struct Running {
    sender: Sender<Handed>,
    waiting: Arc<Waiting>,
    thread: JoinHandle<()>,
    process: Process,
}

type Handed = (Submitted, Done);

/// What the thread works on; a call of its that ends the log does the rest of it first.
struct Waiting {
    handed: Mutex<Receiver<Handed>>,
    wait: Box<dyn Fn(Submitted) -> Outcome + Send + Sync>,
}

impl Completer {
    /// Calls `done` with what `wait` says of the record. `wait` is that of the log, always.
    pub(crate) fn hand_over(
        &self,
        submitted: Submitted,
        done: Done,
        wait: impl Fn(Submitted) -> Outcome + Send + Sync + 'static,
    ) -> io::Result<()> {
        let mut running = self.lock();
        let running = match &mut *running {
            Some(running) => running,
            none => none.insert(start(Box::new(wait))?),
        };
        // It listens for as long as the sender is there.
        let _ = running.sender.send((submitted, done));
        Ok(())
    }

    /// Waits until all that was handed over is done.
    pub(crate) fn end(&self) {
        let Some(Running { sender, waiting, thread, process }) = self.lock().take() else { return };
        drop(sender);
        if !process.is_current() {
            // In the child of a fork there is no thread.
            return;
        }
        if thread.thread().id() == thread::current().id() {
            // In a call: the thread ends after it, and the log before.
            waiting.work();
            return;
        }
        // It does not panic; if it did, there would be nothing to add.
        let _ = thread.join();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Until nobody hands over any more.
    fn work(&self) {
        loop {
            let next = self.handed.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((submitted, done)) = next else { return };
            // Others wait for their calls, whatever becomes of this one.
            let called = panic::catch_unwind(AssertUnwindSafe(|| done((self.wait)(submitted))));
            // To drop what it panicked with may panic, too.
            mem::forget(called);
        }
    }
}

fn start(wait: Box<dyn Fn(Submitted) -> Outcome + Send + Sync>) -> io::Result<Running> {
    let (sender, handed) = mpsc::channel();
    let waiting = Arc::new(Waiting { handed: Mutex::new(handed), wait });
    let thread = {
        let waiting = Arc::clone(&waiting);
        thread::Builder::new().name("fairlock-done".to_owned()).spawn(move || waiting.work())?
    };
    Ok(Running { sender, waiting, thread, process: Process::current() })
}

/// What will become of a record: [`LogFile::completion`](crate::LogFile::completion).
///
/// A future for any executor. Dropped, it is forgotten: the record is written all the same, and a
/// failure counts as told.
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
