//! Ends the program when a run does not end: threads that wait for a lock cannot be told to stop,
//! and a lock under test may never let them in.

use std::process;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use fairlock_report::screen::complain;

use crate::world::remove_scratch_files;

/// What is watched: the words for it, and how long it may take.
struct Watched {
    what: String,
    limit: Duration,
}

/// Watches one run at a time. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watchdog {
    runs: Sender<Option<Watched>>,
    /// How much longer than it measures a run may take.
    patience: Duration,
}

impl Watchdog {
    /// A watchdog that waits this much longer than a run should take.
    ///
    /// # Panics
    /// If its thread cannot be started.
    pub fn new(patience: Duration) -> Watchdog {
        let (runs, watched) = mpsc::channel();
        let watch = move || {
            let mut current: Option<Watched> = None;
            loop {
                current = match &current {
                    None => match watched.recv() {
                        Ok(next) => next,
                        Err(_) => return,
                    },
                    Some(run) => match watched.recv_timeout(run.limit) {
                        Ok(next) => next,
                        Err(RecvTimeoutError::Disconnected) => return,
                        Err(RecvTimeoutError::Timeout) => give_up(&run.what, run.limit),
                    },
                };
            }
        };
        let named = thread::Builder::new().name("watchdog".to_owned());
        named.spawn(watch).expect("one more thread than the runs need can be started");
        Watchdog { runs, patience }
    }

    /// A run of so many seconds begins.
    pub fn begin(&self, what: String, seconds: f64) {
        let limit = Duration::from_secs_f64(seconds) + self.patience;
        // The watch ends only with this sender.
        let _ = self.runs.send(Some(Watched { what, limit }));
    }

    /// It has ended.
    pub fn end(&self) {
        let _ = self.runs.send(None);
    }
}

fn give_up(what: &str, limit: Duration) -> ! {
    remove_scratch_files();
    complain(&format!(
        "error: {what} hung: its run has not ended after {:.0} s; rows finished before stay in \
         the file that --out names",
        limit.as_secs_f64()
    ));
    process::exit(1)
}
