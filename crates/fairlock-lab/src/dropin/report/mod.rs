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
            let findings = diagnosis::locks(&found, &process, command);
            found.iter_mut().zip(findings).for_each(|(lock, findings)| lock.findings = findings);
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

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    use fairlock_counts::layout::{self, FIRST_PAGE, LOCKS_AT, MAGIC, PAGE, STACKS_AT, THREADS_AT};
    use fairlock_counts::map::Map;

    use super::*;
    use crate::measure::statistics::XorShift;

    /// Bytes that nobody wrote: mostly small numbers, which lead somewhere, and some of all sizes.
    fn noise(random: &mut XorShift, size: usize) -> Vec<u8> {
        let words = (0..size / 4).map(|_| match random.below(4) {
            0 => random.next_u32(),
            1 => 0,
            _ => random.below(FIRST_PAGE + 64),
        });
        words.flat_map(u32::to_le_bytes).collect()
    }

    #[test]
    fn a_damaged_file_of_counts_is_read_and_reported_without_a_crash() {
        let directory = tempfile::tempdir().expect("a folder");
        for seed in 0..20 {
            let mut random = XorShift::new(seed);
            let map = Map::create(directory.path(), "glibc").expect("a counts file");
            let file = OpenOptions::new().write(true).open(map.path()).expect("it is there");
            let mut damage = |at: usize, size| {
                let noise = noise(&mut random, size);
                file.write_all_at(&noise, at as u64).expect("a file can be written");
            };
            damage(0, PAGE);
            damage(layout::MODULES_AT, 4 * PAGE);
            damage(STACKS_AT, 4 * PAGE);
            damage(LOCKS_AT, 8 * PAGE);
            damage(THREADS_AT, PAGE / 8);
            damage(FIRST_PAGE as usize * PAGE, 64 * PAGE);
            map.header().magic.store(MAGIC, std::sync::atomic::Ordering::Relaxed);
            map.header().locks.store(40, std::sync::atomic::Ordering::Relaxed);
            let snapshot = Snapshot::of(&Map::open(&map.path()).expect("it looks like one"));
            assert!(!snapshot.locks.is_empty());
            let report = Report::new(&[snapshot], None, &["server".to_owned()]);
            assert!(!report.terminal(100).is_empty() && !report.page().is_empty());
        }
    }
}
