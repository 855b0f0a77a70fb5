//! Follows a run: a bar on the terminal, rows into the file, and Ctrl-C.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairlock_lab::calibrate::Watch;
use fairlock_lab::world::remove_scratch_files;

use crate::plan::{Cell, Observer, Step};
use crate::registry;
use crate::report::timeline_file::NamedTimeline;
use crate::timeline;
use fairlock_report::recording::{Skipped, Writer};
use fairlock_report::row::Row;
use fairlock_report::screen::{complain, say};
use fairlock_report::timeline::Timeline;
use fairlock_sim::timed;

use super::bar::Bar;
use super::interrupts;
use super::watchdog::{Kept, Watchdog};

/// Set by the first Ctrl-C.
static CANCELLED: AtomicBool = AtomicBool::new(false);

/// Whether Ctrl-C was pressed.
pub fn cancelled() -> bool {
    // Relaxed: nothing else is published with the flag.
    CANCELLED.load(Ordering::Relaxed)
}

/// Installs the Ctrl-C handler: the first press ends the repetition under way, which then does not
/// count, and the run; the second ends the program at once. Both remove scratch files. `outcome`
/// tells a user what becomes of the results.
///
/// A program that waits for several things has the words of the first.
pub fn handle_interrupts(outcome: &'static str) {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.swap(true, Ordering::Relaxed) {
        return;
    }
    let installed = interrupts::handle(move || {
        if CANCELLED.swap(true, Ordering::Relaxed) {
            remove_scratch_files();
            std::process::exit(130);
        }
        say(&format!("\nstopping; {outcome} (again to stop at once)"));
    });
    if let Err(error) = installed {
        complain(&format!("warning: Ctrl-C will end the program at once: {error}"));
    }
}

/// Watches a calibration.
pub struct Parts {
    bar: Bar,
}

impl Default for Parts {
    /// A bar that has yet to learn its length.
    fn default() -> Parts {
        Parts { bar: Bar::new(1, false) }
    }
}

impl Parts {
    /// Removes the bar.
    pub fn finish(&mut self) {
        self.bar.clear();
    }
}

impl Watch for Parts {
    fn begins(&mut self, what: &str, part: u64, parts: u64) {
        self.bar.set(part, parts, what);
    }

    fn cancelled(&self) -> bool {
        cancelled()
    }
}

/// Watches a run of known length.
pub struct Progress<'a> {
    bar: Bar,
    watchdog: Watchdog,
    writer: Option<&'a mut Writer>,
    /// The rows so far.
    pub rows: Vec<Row>,
    /// How runs began, where that was asked for.
    pub timelines: Vec<Timeline>,
    /// The same in full.
    pub full_timelines: Vec<NamedTimeline>,
    /// The first failure to write a row, if any.
    pub write_error: Option<String>,
}

impl<'a> Progress<'a> {
    /// A bar over `measured_s` seconds of measuring, hidden where stderr is no terminal.
    ///
    /// A run that takes longer than its time and `patience` ends the program.
    pub fn new(measured_s: f64, patience: Duration, writer: Option<&'a mut Writer>) -> Self {
        // The length is milliseconds to measure, so that long cells count for more.
        let length = (measured_s * 1e3) as u64;
        let kept = match writer.as_ref().map(|writer| writer.path()) {
            None => Kept::Nowhere,
            Some(None) => Kept::Printed,
            Some(Some(path)) => Kept::In(path.to_owned()),
        };
        let watchdog = Watchdog::new(patience, kept);
        Progress {
            bar: Bar::new(length, true),
            watchdog,
            writer,
            rows: Vec::new(),
            timelines: Vec::new(),
            full_timelines: Vec::new(),
            write_error: None,
        }
    }

    /// What rows were written to.
    pub fn into_writer(self) -> Option<&'a mut Writer> {
        self.writer
    }

    /// Some cells run more often, for so many seconds at most.
    pub fn goes_on(&mut self, seconds: f64) {
        self.bar.lengthen((seconds * 1e3) as u64);
    }

    /// Writes down a row that has more repetitions now.
    pub fn rewrite(&mut self, row: &Row) {
        let written = self.writer.as_deref_mut().map(|writer| writer.row(row));
        self.remember(written.unwrap_or(Ok(())));
    }

    /// Writes down what could not run, and why.
    pub fn skipped(&mut self, skipped: &Skipped) {
        let written = self.writer.as_deref_mut().map(|writer| writer.skipped(skipped));
        self.remember(written.unwrap_or(Ok(())));
    }

    /// Writes down that the run was stopped.
    pub fn was_cancelled(&mut self) {
        let written = self.writer.as_deref_mut().map(Writer::cancelled);
        self.remember(written.unwrap_or(Ok(())));
    }

    /// Removes the bar.
    pub fn finish(&mut self) {
        self.bar.clear();
    }

    fn remember(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.write_error.get_or_insert_with(|| error.to_string());
        }
    }
}

impl Observer for Progress<'_> {
    fn started(&mut self, step: &Step<'_>) {
        let cell = step.cell;
        let what = format!(
            "{} · {} · {} of {} · {}",
            cell.workload.name(),
            cell.lock,
            step.repetition + 1,
            cell.repetitions,
            cell.workload.describe_threads()
        );
        self.bar.say(&what);
    }

    fn finished(&mut self, step: &Step<'_>) {
        self.bar.advance((step.cell.seconds * 1e3) as u64);
    }

    fn run_begins(&mut self, cell: &Cell, seconds: f64) {
        let threads = cell.workload.describe_threads();
        let workload = cell.workload.name();
        let what =
            format!("{} `{}` under {workload} ({threads})", registry::subject(workload), cell.lock);
        self.watchdog.begin(what, seconds);
    }

    fn run_ended(&mut self) {
        self.watchdog.end();
    }

    fn row(&mut self, row: &Row) {
        self.rows.push(row.clone());
        self.watchdog.row(row);
        if let Some(writer) = self.writer.as_deref_mut() {
            let result = writer.row(row);
            self.remember(result);
        }
    }

    fn timeline(&mut self, cell: &Cell, recorded: &timed::Timeline) {
        let timeline = timeline::beginning(cell, recorded);
        if let Some(writer) = self.writer.as_deref_mut() {
            let result = writer.timeline(&timeline);
            self.remember(result);
        }
        let threads = cell.workload.describe_threads();
        self.full_timelines.push(NamedTimeline {
            title: format!(
                "{} · {} · {threads} on {}",
                cell.workload.name(),
                cell.lock,
                timeline.machine
            ),
            threads: cell.thread_names(),
            timeline: recorded.clone(),
        });
        self.timelines.push(timeline);
    }

    fn cancelled(&self) -> bool {
        cancelled()
    }
}
