//! Makes rows of results: those that one run of all cells would have made, whoever ran which task where and when.

use std::collections::BTreeSet;
use std::path::Path;

use fairlock_report::row::Row;
use fairlock_report::timeline::Timeline;

use super::plan::{Group, Plan, Task, Work};
use super::results::{Restored, Results};
use crate::limit;
use crate::measure;
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
    let mut current: Option<Made> = None;
    for task in group.tasks() {
        let Some(outcome) = find(&task, results)? else {
            merged.missing.push(task.name.to_owned());
            continue;
        };
        let first = match task.work {
            Work::Seed { repetition, .. } => group.order() + repetition,
            Work::Threads(_) => group.order(),
        };
        for (mut made, timeline) in outcome {
            merged.timelines.extend(timeline);
            if matches!(task.work, Work::Seed { .. }) {
                // Nothing happens there in an order: seeds of the same number belong together.
                made.repetitions.iter_mut().for_each(|it| it.order = first);
            } else {
                made.repetitions.iter_mut().for_each(|it| it.order += first);
            }
            match &mut current {
                Some(known) if known.cell == made.cell => {
                    known.repetitions.append(&mut made.repetitions);
                }
                _ => rows.extend(current.replace(made).and_then(finished)),
            }
        }
    }
    rows.extend(current.and_then(finished));
    limit::fill(&mut rows);
    merged.rows.append(&mut rows);
    Ok(())
}

fn finished(mut made: Made) -> Option<Row> {
    if made.cell.on.is_some() {
        made.events = measure::lock_events(&made.repetitions);
    }
    made.row()
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
