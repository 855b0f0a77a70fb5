//! What is told about a run: which locks are hot, who waits for whom, who starves, and what to do.
//!
//! * [`facts`]: plain values with names for all addresses.
//! * [`lines`]: those as JSON Lines, and back.
//! * Text for a terminal, and a page with plots.

pub mod facts;
pub mod lines;
mod naming;
mod page;
mod plot;
mod terminal;

use std::cmp::Reverse;

use fairlock_counts::snapshot::Snapshot;

use super::diagnosis;
use super::symbols::Symbols;
use facts::{Compared, Lock, Process, Run};

/// So many locks a terminal shows if nothing else is said: with what is said about each they fit
/// a screen.
pub const SHOWN_LOCKS: usize = 5;

/// What one acquisition costs more when it is counted: the figure, and where it comes from.
pub const COST_OF_COUNTING: &str = "docs/src/measured.md says what counting costs";

/// Everything there is to tell about a run.
///
/// ```
/// use fairlock_counts::map::Map;
/// use fairlock_counts::snapshot::Snapshot;
/// use fairlock_lab::dropin::report::Report;
///
/// let directory = tempfile::tempdir()?;
/// let map = Map::create(directory.path(), "timefair")?;
/// let report = Report::new(&[Snapshot::of(&map)], None, &["server".to_owned()]);
/// assert!(report.terminal(100).contains("No pthread_rwlock was used"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What ran.
    pub run: Run,
    /// Its processes, in the order of their beginning.
    pub processes: Vec<Process>,
    /// Their locks, those with the longest waits first.
    pub locks: Vec<Lock>,
    /// What other policies made of it.
    pub comparison: Option<Compared>,
}

impl Report {
    /// Names what was counted in these processes, and judges it. Reads the files of their modules.
    pub fn new(
        snapshots: &[Snapshot],
        comparison: Option<&Compared>,
        command: &[String],
    ) -> Report {
        let mut symbols = Symbols::new();
        let mut snapshots: Vec<&Snapshot> = snapshots.iter().collect();
        snapshots.sort_by_key(|snapshot| (snapshot.began, snapshot.pid));
        let (mut processes, mut locks) = (Vec::new(), Vec::new());
        for snapshot in snapshots {
            let (process, mut found) = naming::facts(snapshot, &mut symbols);
            for lock in &mut found {
                lock.findings = diagnosis::lock(lock, &process, command);
            }
            locks.append(&mut found);
            processes.push(process);
        }
        locks.sort_by_key(|lock| Reverse((lock.wait_ns(), lock.acquired(), lock.locks)));
        locks.iter_mut().zip(1..).for_each(|(lock, number)| lock.lock = number);
        for process in &mut processes {
            process.findings = diagnosis::process(process, &locks);
        }
        let run =
            Run { format: lines::FORMAT, date: crate::machine::date(), command: command.to_vec() };
        Report { run, processes, locks, comparison: comparison.cloned() }
    }

    /// The processes that used locks, and those that did not, of which nothing is to be told.
    fn by_use(&self) -> (Vec<&Process>, Vec<&Process>) {
        self.processes.iter().partition(|process| process.locks > 0)
    }

    /// A screen of text of at most this many columns, with the [`SHOWN_LOCKS`] hottest locks.
    pub fn terminal(&self, width: usize) -> String {
        self.terminal_with(width, SHOWN_LOCKS)
    }

    /// As [`terminal`](Self::terminal), with so many locks.
    pub fn terminal_with(&self, width: usize, locks: usize) -> String {
        terminal::text(self, width, locks)
    }

    /// One HTML file without anything to load.
    pub fn page(&self) -> String {
        page::page(self)
    }
}
