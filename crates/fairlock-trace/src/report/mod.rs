//! The report on a run: which locks are hot, who waits for whom, who starves, and what to do.
//!
//! * [`lines`]: the facts as JSON Lines, and back.
//! * Text for a terminal, and a page with plots.

pub(crate) mod charts;
pub mod lines;
mod naming;
pub(crate) mod page;
pub(crate) mod terminal;

use std::cmp::Reverse;
use std::collections::HashMap;

use fairlock_counts::layout::OWN_LOCKS;
use fairlock_counts::snapshot::Snapshot;

use super::comparison::COUNTED;
use super::diagnosis;
use super::facts::{ALL_LOCKS, Compared, ComparedLock, ComparedRole, Lock, Process, Run};
use super::symbols::Symbols;

/// So many locks a terminal shows if nothing else is said: with what is said about each they fit
/// a screen.
pub const SHOWN_LOCKS: usize = 5;

/// Where it is said what one acquisition costs more when it is counted.
pub const COST_OF_COUNTING: &str =
    "what counting costs is in the book's chapter on unmodified programs";

/// What each lock of a process is called, by its number; locks that come from the same place are called alike. Reads the
/// files of the process's modules.
pub fn titles(snapshot: &Snapshot) -> HashMap<u32, String> {
    naming::titles(snapshot, &mut Symbols::new())
}

/// Everything there is to tell about a run.
///
/// ```
/// use fairlock_counts::map::Map;
/// use fairlock_counts::regular;
/// use fairlock_counts::snapshot::Snapshot;
/// use fairlock_trace::report::Report;
///
/// let directory = tempfile::tempdir()?;
/// let map = Map::create(directory.path(), "rwsem")?;
/// let snapshot = Snapshot::read(&regular::open(&map.path())?)?;
/// let report = Report::new(&[snapshot], None, &["server".to_owned()]);
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
        let of_interest = |it: &&Snapshot| !is_second_file(it, snapshots);
        let mut snapshots: Vec<&Snapshot> = snapshots.iter().filter(of_interest).collect();
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
        if let Some(compared) = comparison {
            let findings = locks.iter_mut().flat_map(|lock| &mut lock.findings);
            findings.for_each(|finding| diagnosis::without_what_was_tried(finding, compared));
        }
        let run = Run {
            format: lines::FORMAT,
            date: fairlock_report::machine::date(),
            command: command.to_vec(),
            ..Run::default()
        };
        Report { run, processes, locks, comparison: comparison.cloned() }
    }

    /// Adds to the comparison what the locks did in a counted run under each policy, by the policy's
    /// name: all together, and those that this report puts first.
    pub fn add_counted(&mut self, runs: &[(String, Vec<Snapshot>)]) {
        /// More are no comparison that anybody reads.
        const SHOWN_APART: usize = 3;
        let Some(compared) = &mut self.comparison else { return };
        let was_counted = runs.iter().any(|(_, snapshots)| !snapshots.is_empty());
        let mut apart: Vec<&Lock> = self.locks.iter().filter(|lock| lock.was_used()).collect();
        let is_one = apart.len() < 2;
        apart.truncate(if is_one { 0 } else { SHOWN_APART });
        let mut used_locks = false;
        for (policy, snapshots) in runs {
            let counted = Report::new(snapshots, None, &self.run.command);
            let elapsed = counted.processes.iter().filter(|it| it.locks > 0);
            let elapsed = elapsed.map(|it| it.elapsed_ns).max().unwrap_or(0);
            let told = |title: &str, lock: &Lock| ComparedLock {
                lock: title.to_owned(),
                reads: ComparedRole::of(&lock.reads, elapsed),
                writes: ComparedRole::of(&lock.writes, elapsed),
            };
            let all = Lock::of(&naming::all_locks(snapshots), 0);
            if !all.was_used() {
                continue;
            }
            used_locks = true;
            let mut locks = vec![told(if is_one { "" } else { ALL_LOCKS }, &all)];
            if let (true, Some(only)) = (is_one, self.locks.first()) {
                locks[0].lock = only.title();
            }
            for lock in &apart {
                let title = lock.title();
                let same = counted.locks.iter().find(|it| it.title() == title);
                locks.extend(same.map(|same| told(&title, same)));
            }
            // Timed runs may have been counted, too; the locks did the same.
            let plain = |name: &str| name.strip_suffix(COUNTED).unwrap_or(name) == policy;
            for side in compared.policies.iter_mut().filter(|side| plain(&side.policy)) {
                side.locks.clone_from(&locks);
            }
        }
        compared.used_locks = was_counted.then_some(used_locks);
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
        terminal::text(self, width, locks, true)
    }

    /// What came of the comparison, a sentence for each lock, in lines of this width; empty if there was none.
    pub fn answers(&self, width: usize) -> String {
        terminal::answers(self, width)
    }

    /// As [`terminal`](Self::terminal), for somebody who has just read the [`answers`](Self::answers) and the
    /// [`Comparison`](super::comparison::Comparison) itself: without these.
    pub fn terminal_after_runs(&self, width: usize) -> String {
        terminal::text(self, width, SHOWN_LOCKS, false)
    }

    /// One HTML file without anything to load.
    pub fn page(&self) -> String {
        page::page(self)
    }
}

/// A program that links Fairlock has a file of its own beside the drop-in's. One of them without a lock says nothing.
fn is_second_file(snapshot: &Snapshot, all: &[Snapshot]) -> bool {
    let is_own = |it: &Snapshot| it.policy == OWN_LOCKS;
    let mut others = all.iter().filter(|it| {
        (it.pid, &it.program) == (snapshot.pid, &snapshot.program) && is_own(it) != is_own(snapshot)
    });
    snapshot.locks.is_empty() && others.any(|it| !it.locks.is_empty() || is_own(snapshot))
}

#[cfg(test)]
mod tests {
    use fairlock_counts::layout::{READ, WRITE};

    use super::super::example;
    use super::*;

    #[test]
    fn a_comparison_tells_waits_bypass_and_rates_of_each_role_under_each_policy() {
        let starving = || {
            let mut snapshot = example::snapshot();
            snapshot.locks = vec![example::starving_writer(), example::lock(3, 2000, 4)];
            snapshot
        };
        let mut fair = example::snapshot();
        fair.locks.push(example::lock(2, 900_000, 44));
        example::waits(&mut fair.locks[0], WRITE, READ, 40, 90_000);
        let runs = [("glibc", vec![starving()]), ("rwsem", vec![fair])];
        let runs = runs.map(|(policy, snapshots)| (policy.to_owned(), snapshots));
        let compared = example::comparison();
        let mut report = Report::new(&[starving()], Some(&compared), &["server".to_owned()]);
        report.add_counted(&runs);
        let compared = report.comparison.as_ref().expect("there is one");
        assert_eq!(compared.used_locks, Some(true));
        let [glibc, rwsem, phase_fair] = &compared.policies[..] else { panic!("three") };
        let titles: Vec<&str> = glibc.locks.iter().map(|lock| lock.lock.as_str()).collect();
        assert_eq!(titles[0], "all locks");
        assert_eq!((titles.len(), rwsem.locks.len(), phase_fair.locks.len()), (3, 1, 0));
        let all = &glibc.locks[0];
        assert_eq!((all.reads.acquired, all.writes.acquired), (902_000, 44));
        // In two seconds.
        assert_eq!((all.reads.acquired_per_s, all.writes.acquired_per_s), (451_000.0, 22.0));
        assert_eq!((all.writes.longest_bypass, all.writes.wait_max_ns), (812, 1_200_000_000));

        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = words(&report.terminal(120));
        for row in [
            "in one counted run: all locks",
            "policy role acquired/s waited waiting wait bypass at end p50/p99/max count/wait",
            "glibc reads 451k 0.10 % – 40.0µs/40.0µs/40.0µs 0",
            "glibc writes 22 90.9 % – 3.15ms/1.20s/1.20s 812/1.20s",
            "rwsem reads 450k – – – –",
            "rwsem writes 22 90.9 % – 90.0µs/90.0µs/90.0µs 0",
        ] {
            assert!(text.contains(row), "lacks {row:?}: {text}");
        }
        let page = report.page();
        assert!(page.contains("<td>3.15ms/1.20s/1.20s<td>812/1.20s"), "{page}");
        assert!(page.contains("counted run under each: all locks"), "{page}");
    }

    #[test]
    fn of_a_program_without_rwlocks_nothing_is_concluded() {
        let compared = example::comparison();
        let command = ["server".to_owned()];
        let mut report = Report::new(&[example::snapshot()], Some(&compared), &command);
        report.add_counted(&[("glibc".to_owned(), vec![example::snapshot()])]);
        for text in [report.terminal(200), report.answers(200), report.page()] {
            assert!(
                text.contains("The program used no pthread_rwlock when it was counted"),
                "{text}"
            );
            assert!(!text.contains("% less") && !text.contains("difference ("), "{text}");
        }
        // Nothing was counted: nobody knows.
        let mut report = Report::new(&[], Some(&compared), &command);
        report.add_counted(&[("glibc".to_owned(), Vec::new())]);
        assert!(report.terminal(200).contains("% less"), "{}", report.terminal(200));
    }

    #[test]
    fn a_second_file_of_a_program_that_links_fairlock_is_left_out_if_no_lock_is_in_it() {
        let used = |policy: &str, locks: u32| {
            let mut snapshot = example::snapshot();
            snapshot.policy = policy.to_owned();
            snapshot.locks = (0..locks).map(|number| example::lock(number + 2, 5, 5)).collect();
            snapshot
        };
        let policies = |snapshots: &[Snapshot]| {
            let report = Report::new(snapshots, None, &[]);
            report.processes.into_iter().map(|it| it.policy).collect::<Vec<_>>()
        };
        assert_eq!(policies(&[used("rwsem", 0), used(OWN_LOCKS, 1)]), ["own"]);
        assert_eq!(policies(&[used("rwsem", 1), used(OWN_LOCKS, 0)]), ["rwsem"]);
        assert_eq!(policies(&[used("rwsem", 0), used(OWN_LOCKS, 0)]), ["rwsem"]);
        assert_eq!(policies(&[used("rwsem", 1), used(OWN_LOCKS, 1)]).len(), 2);
        assert_eq!(policies(&[used(OWN_LOCKS, 0)]), ["own"]);
        let report = Report::new(&[used("rwsem", 0), used(OWN_LOCKS, 1)], None, &[]);
        let text = report.terminal(100);
        assert!(text.contains("locks of its own") && !text.contains("used no lock"), "{text}");
    }

    #[test]
    fn locks_that_a_program_has_chosen_itself_are_to_be_tried_in_a_replay() {
        let mut snapshot = example::snapshot();
        snapshot.policy = OWN_LOCKS.to_owned();
        snapshot.locks = vec![example::starving_writer()];
        let report = Report::new(&[snapshot], None, &["server".to_owned()]);
        let advice =
            report.locks[0].findings.iter().filter_map(|finding| finding.to_try.as_deref());
        let advice: Vec<&str> = advice.collect();
        assert!(!advice.is_empty());
        let replays =
            "fairlock run --record program.toml -- server, and fairlock replay program.toml";
        assert!(
            advice.iter().all(|it| !it.starts_with("fairlock ") || *it == replays),
            "{advice:?}"
        );
    }
}
