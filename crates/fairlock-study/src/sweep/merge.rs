//! Makes rows of results: those that one run of all cells would have made, whoever ran which task where and when.

use std::collections::BTreeSet;
use std::path::Path;

use fairlock_lab::measure;
use fairlock_report::machine::Machine;
use fairlock_report::row::Row;
use fairlock_report::timeline::Timeline;

use super::plan::{Group, Plan, Task, Work};
use super::results::{Restored, Results};
use crate::limit;
use crate::plan::Made;

/// What results came to.
#[derive(Debug, Default)]
pub struct Merged {
    /// In the order of the plan. A row of a cell of which some seeds are missing is made of the others.
    pub rows: Vec<Row>,
    /// How runs began, where that was asked for.
    pub timelines: Vec<Timeline>,
    /// The names of tasks without a result.
    pub missing: Vec<String>,
    /// The machines that real threads ran on, each once.
    pub machines: Vec<Machine>,
}

impl Merged {
    /// Keeps a machine that is not known yet. How long a pause took differs from run to run.
    fn remember(&mut self, machine: &Machine) {
        let what = |it: &Machine| (it.cpu.clone(), it.cpus, it.kernel.clone(), it.memory_bytes);
        if !self.machines.iter().any(|known| what(known) == what(machine)) {
            self.machines.push(machine.clone());
        }
    }
}

/// The rows of a plan, from results in these directories.
///
/// # Errors
/// A result that cannot be used, with its file.
pub fn merge(plan: &Plan, results: &[Results]) -> Result<Merged, String> {
    let mut merged = Merged::default();
    for group in &plan.groups {
        add(group, results, &mut merged)?;
    }
    Ok(merged)
}

/// The rows of one group.
///
/// # Errors
/// As [`merge`].
pub(crate) fn rows_of(group: &Group, results: &[Results]) -> Result<Vec<Row>, String> {
    let mut merged = Merged::default();
    add(group, results, &mut merged)?;
    Ok(merged.rows)
}

fn add(group: &Group, results: &[Results], merged: &mut Merged) -> Result<(), String> {
    let mut rows = Vec::new();
    // The seeds of one cell stand together.
    let mut current: Option<Cell> = None;
    for task in group.tasks() {
        let Some(outcome) = find(&task, results)? else {
            merged.missing.push(task.name.to_owned());
            continue;
        };
        let pause_ns = outcome.machine.as_ref().map(|machine| machine.pause_ns);
        outcome.machine.iter().for_each(|machine| merged.remember(machine));
        let first = match task.work {
            Work::Seed { repetition, .. } => group.order() + repetition,
            Work::Threads(_) => group.order(),
        };
        for (mut made, timeline) in outcome.cells {
            merged.timelines.extend(timeline);
            if matches!(task.work, Work::Seed { .. }) {
                // Nothing happens there in an order: seeds of the same number belong together.
                made.repetitions.iter_mut().for_each(|it| it.order = first);
            } else {
                made.repetitions.iter_mut().for_each(|it| it.order += first);
            }
            match &mut current {
                Some(known) if known.made.cell == made.cell => {
                    known.made.repetitions.append(&mut made.repetitions);
                }
                _ => {
                    let current = current.replace(Cell { made, pause_ns });
                    rows.extend(current.and_then(Cell::row));
                }
            }
        }
    }
    rows.extend(current.and_then(Cell::row));
    limit::fill(&mut rows);
    merged.rows.append(&mut rows);
    Ok(())
}

/// What a cell has come to.
struct Cell {
    made: Made,
    /// How long a pause took where it ran, if that is not the simulated machine's.
    pause_ns: Option<f64>,
}

impl Cell {
    fn row(self) -> Option<Row> {
        let Cell { mut made, pause_ns } = self;
        if made.cell.on.is_some() {
            made.events = measure::lock_events(&made.repetitions);
        }
        let mut row = made.row()?;
        row.params.extend(pause_ns.map(|ns| ("pause_ns".to_owned(), ns.into())));
        Some(row)
    }
}

fn find(task: &Task<'_>, results: &[Results]) -> Result<Option<Restored>, String> {
    for some in results {
        let outcome = some.get(task)?;
        if outcome.is_some() {
            return Ok(outcome);
        }
    }
    Ok(None)
}

/// The plan that all these directories have.
///
/// # Errors
/// Two directories with different plans, or a plan of another version.
pub fn common_plan(dirs: &[impl AsRef<Path>]) -> Result<Plan, String> {
    let Some((first, others)) = dirs.split_first() else {
        return Err("no directory to merge".to_owned());
    };
    let first = first.as_ref();
    let plan = Plan::read(first)?;
    plan.header.check_version(first)?;
    for other in others.iter().map(AsRef::as_ref) {
        let theirs = Plan::read(other)?;
        theirs.header.check_version(other)?;
        if theirs.header.id != plan.header.id {
            let (own, its): (BTreeSet<&str>, BTreeSet<&str>) = (
                plan.tasks().map(|it| it.name).collect(),
                theirs.tasks().map(|it| it.name).collect(),
            );
            return Err(format!(
                "{} and {} are of different plans, \"{}\" with {} tasks and \"{}\" with {}, {} of them in both; merge \
                 directories of one plan",
                first.display(),
                other.display(),
                plan.header.title,
                own.len(),
                theirs.header.title,
                its.len(),
                own.intersection(&its).count()
            ));
        }
    }
    Ok(plan)
}
