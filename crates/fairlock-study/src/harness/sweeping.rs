//! Follows a sweep: a bar on the terminal, and a line for each row as it comes.

use std::time::{Duration, Instant};

use fairlock_report::row::{HERE, Row};
use fairlock_report::screen::{self, complain};
use fairlock_report::units::{counted, format_count, format_minutes, format_ns};

use super::bar::Bar;
use super::progress::cancelled;
use crate::registry;
use crate::sweep::plan::Task;
use crate::sweep::run::Watch;

/// Failures that are told of when they happen; the others at the end.
const MOST_FAILURES: usize = 5;

/// Watches a sweep run.
pub struct Sweeping {
    bar: Option<Bar>,
    /// Whether rows are printed as they come.
    tells_rows: bool,
    tasks: usize,
    done: usize,
    failed: usize,
    /// The first failure to print, if any.
    pub print_error: Option<std::io::Error>,
    /// Tasks that run: since when, what they are, and after how long that is too long.
    running: Vec<Running>,
}

/// A task that runs.
struct Running {
    name: String,
    what: String,
    since: Instant,
    limit: Duration,
}

/// A task that takes so many times as long as it should, and so much longer, may never end: simulated threads that wait
/// for a lock cannot be told to stop.
const TOO_LONG: f64 = 20.0;
const PATIENCE: Duration = Duration::from_secs(60);

impl Sweeping {
    /// One that prints rows, or not.
    pub fn new(tells_rows: bool) -> Sweeping {
        Sweeping {
            bar: None,
            tells_rows,
            tasks: 0,
            done: 0,
            failed: 0,
            print_error: None,
            running: Vec::new(),
        }
    }

    /// Removes the bar.
    pub fn finish(&mut self) {
        self.bar = None;
    }

    fn step(&mut self, task: &Task<'_>) {
        self.running.retain(|it| it.name != task.name);
        self.done += 1;
        if let Some(bar) = &mut self.bar {
            bar.advance((task.estimate_s() * 1e3) as u64);
            bar.say(&format!("{} of {} tasks", self.done, self.tasks));
        }
    }

    /// Prints without disturbing the bar.
    fn aside(&mut self, print: impl FnOnce()) {
        match &mut self.bar {
            Some(bar) => bar.aside(print),
            None => print(),
        }
    }
}

impl Watch for Sweeping {
    fn begins(&mut self, tasks: usize, estimate_s: f64) {
        self.tasks = tasks;
        if tasks == 0 {
            return;
        }
        let mut bar = Bar::new((estimate_s * 1e3) as u64, true);
        bar.say(&counted(tasks as u64, "task"));
        self.bar = Some(bar);
    }

    fn started(&mut self, task: &Task<'_>) {
        self.running.push(Running {
            name: task.name.to_owned(),
            what: task.describe(),
            since: Instant::now(),
            limit: PATIENCE + Duration::from_secs_f64(task.estimate_s() * TOO_LONG),
        });
    }

    fn waits(&mut self) {
        // The time left has changed.
        if let Some(bar) = &mut self.bar {
            bar.tick();
        }
        let is_late = |it: &mut Running| it.since.elapsed() > it.limit;
        for late in self.running.extract_if(.., is_late).collect::<Vec<_>>() {
            let Running { name, what, since, .. } = late;
            let minutes = format_minutes(since.elapsed().as_secs_f64());
            self.aside(|| {
                complain(&format!(
                    "warning: task {name} has run for {minutes} ({what}): its lock may hang; Ctrl-C twice ends the run"
                ));
            });
        }
    }

    fn finished(&mut self, task: &Task<'_>) {
        self.step(task);
    }

    fn failed(&mut self, task: &Task<'_>, reason: &str) {
        self.step(task);
        self.failed += 1;
        if self.failed <= MOST_FAILURES {
            let what = task.describe();
            self.aside(|| {
                complain(&format!("warning: task {} failed ({what}): {reason}", task.name))
            });
        }
    }

    fn rows(&mut self, rows: &[Row]) {
        if !self.tells_rows {
            return;
        }
        let text: String = rows.iter().map(line).collect();
        let mut printed = Ok(());
        self.aside(|| printed = screen::print(&text));
        if let Err(error) = printed {
            self.print_error.get_or_insert(error);
        }
    }

    fn cancelled(&self) -> bool {
        cancelled() || self.print_error.is_some()
    }
}

/// A row in a line.
fn line(row: &Row) -> String {
    let words = registry::describe(&row.workload, &row.params);
    let waits = row.roles.values().map(|role| role.longest_wait.median).fold(0.0, f64::max);
    format!(
        "{:>9}/s, waits up to {:>6}  {} · {} · {} · {words}\n",
        format_count(row.total_ops_per_s.median),
        format_ns(waits),
        row.lock,
        row.workload,
        if row.machine == HERE { "real threads" } else { &row.machine },
    )
}
