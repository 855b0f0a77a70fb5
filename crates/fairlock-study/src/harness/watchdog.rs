//! Ends the program when a run does not end: threads that wait for a lock cannot be told to stop,
//! and a lock under test may never let them in.

use std::io;
use std::path::PathBuf;
use std::process;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use fairlock_lab::machine;
use fairlock_lab::world::remove_scratch_files;
use fairlock_report::row::Row;
use fairlock_report::screen::{columns, complain, print};
use fairlock_report::units::format_ns;

use crate::report::terminal;

/// Where results are as soon as they are there.
#[derive(Debug)]
pub enum Kept {
    /// Nowhere: they are shown if a run hangs.
    Nowhere,
    /// In this file.
    In(PathBuf),
    /// On the standard output, which is for nothing else.
    Printed,
}

/// What is told to the watching thread.
enum Told {
    /// A run begins.
    Begins(Watched),
    /// It has ended.
    Ends,
    /// A result.
    Row(Box<Row>),
}

/// What is watched: the words for it, and how long it may take.
struct Watched {
    what: String,
    limit: Duration,
}

/// Watches one run at a time. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watchdog {
    told: Sender<Told>,
    /// How much longer than it measures a run may take.
    patience: Duration,
}

impl Watchdog {
    /// A watchdog that waits this much longer than a run should take; `kept` is where results are.
    ///
    /// # Panics
    /// If its thread cannot be started.
    pub fn new(patience: Duration, kept: Kept) -> Watchdog {
        let (told, hears) = mpsc::channel();
        let watch = move || {
            let mut rows: Vec<Row> = Vec::new();
            let mut current: Option<Watched> = None;
            loop {
                let next = match &current {
                    None => hears.recv().map_err(|_| RecvTimeoutError::Disconnected),
                    Some(run) => hears.recv_timeout(run.limit),
                };
                match (next, &current) {
                    (Ok(Told::Begins(run)), _) => current = Some(run),
                    (Ok(Told::Ends), _) => current = None,
                    (Ok(Told::Row(row)), _) => rows.push(*row),
                    (Err(RecvTimeoutError::Timeout), Some(run)) => {
                        give_up(run, &rows, &kept);
                    }
                    (Err(_), _) => return,
                }
            }
        };
        let named = thread::Builder::new().name("watchdog".to_owned());
        named.spawn(watch).expect("one more thread than the runs need can be started");
        Watchdog { told, patience }
    }

    /// A run of so many seconds begins.
    pub fn begin(&self, what: String, seconds: f64) {
        let limit = Duration::from_secs_f64(seconds) + self.patience;
        self.tell(Told::Begins(Watched { what, limit }));
    }

    /// It has ended.
    pub fn end(&self) {
        self.tell(Told::Ends);
    }

    /// A result, which is shown if a later run hangs.
    pub fn row(&self, row: &Row) {
        self.tell(Told::Row(Box::new(row.clone())));
    }

    fn tell(&self, told: Told) {
        // The watch ends only with this sender.
        let _ = self.told.send(told);
    }
}

/// What has finished is all that there will be.
fn give_up(run: &Watched, rows: &[Row], kept: &Kept) -> ! {
    remove_scratch_files();
    if !rows.is_empty() && !matches!(kept, Kept::Printed) {
        // Nobody may be there to read it.
        let _ = print(&terminal::tables(rows, machine::cpus(), true, columns(&io::stdout())));
    }
    let kept = match (kept, rows.len()) {
        (_, 0) => "nothing had finished before".to_owned(),
        (Kept::Nowhere, _) => "what finished before is above".to_owned(),
        (Kept::Printed, _) => "what finished before is printed".to_owned(),
        (Kept::In(file), _) => {
            let file = file.display();
            format!("what finished before is in {file}; for a page of it: fairlock report {file}")
        }
    };
    let (what, limit) = (&run.what, format_ns(run.limit.as_nanos() as f64));
    complain(&format!("error: {what} hung: its run has not ended after {limit}; {kept}"));
    process::exit(1)
}
