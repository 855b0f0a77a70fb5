//! Every name, parameter and metric in a study file must exist: a typing error must not become "not measured".

use fairlock_lab::measure::{READER, WRITER};
use fairlock_report::params::{Params, Value};

use std::collections::BTreeSet;
use std::path::Path;

use super::{
    Comparison, Effort, LOCK, Plot, PlotKind, PlotMetric, Run, Study, Table, TableRow,
    TimelineSpec, expand_locks, is_at,
};
use crate::metric::Metric;
use crate::plan::Cell;
use crate::registry;
use crate::study::claim::{Claim, Expect, Names, Selector};

/// Pauses of most machines take about so long, ns: enough to tell whether a length makes sense.
const USUAL_PAUSE_NS: f64 = 20.0;

/// What is wrong in a study file, and in which of its tables.
#[derive(Debug)]
pub(super) struct Mistake {
    /// The table's heading: `[[claim]]`.
    heading: &'static str,
    /// Which of those that have this heading.
    place: usize,
    /// What is wrong, with what.
    pub(super) text: String,
}

impl Mistake {
    fn of(heading: &'static str, place: usize, text: String) -> Mistake {
        Mistake { heading, place, text }
    }

    /// The line of the table's heading in the file, if it is written as one.
    pub(super) fn line(&self, text: &str) -> Option<usize> {
        let is_heading = |line: &str| {
            let line = line.split('#').next().unwrap_or_default();
            line.split_whitespace().collect::<String>() == self.heading
        };
        let headings = (1..).zip(text.lines()).filter(|(_, line)| is_heading(line));
        headings.map(|(number, _)| number).nth(self.place)
    }
}

/// Checks a study file that was read.
pub(super) fn check(study: &Study) -> Result<(), Mistake> {
    let mut cells = Vec::new();
    for (place, run) in study.runs.iter().enumerate() {
        let named =
            |error| Mistake::of("[[run]]", place, format!("run \"{}\": {error}", run.title));
        cells.extend(check_run(run).map_err(named)?);
    }
    for (place, claim) in study.claims.iter().enumerate() {
        check_claim(claim, study, &cells).map_err(|error| {
            Mistake::of("[[claim]]", place, format!("claim \"{}\": {error}", claim.id))
        })?;
    }
    if let Some(summary) = &study.summary {
        summary.check(&study.claims).map_err(|error| Mistake::of("[summary]", 0, error))?;
    }
    for (place, table) in study.published_tables().iter().enumerate() {
        for row in &table.rows {
            check_row(table, row, &cells).map_err(|error| {
                let text = format!("table \"{}\", {error}", table.title);
                Mistake::of("[[source.table]]", place, text)
            })?;
        }
    }
    for (place, plot) in study.plots.iter().enumerate() {
        check_plot(study, plot, &cells).map_err(|error| {
            Mistake::of("[[plot]]", place, format!("plot \"{}\": {error}", plot.title))
        })?;
    }
    for (place, grid) in study.grids.iter().enumerate() {
        let workload = Names::One(grid.workload.clone());
        check_rows(study, &workload, &grid.machine, &grid.locks, &grid.params).map_err(
            |error| Mistake::of("[[grid]]", place, format!("grid \"{}\": {error}", grid.title)),
        )?;
    }
    for (place, comparison) in study.comparisons.iter().enumerate() {
        check_comparison(comparison, &cells).map_err(|error| {
            let text = format!("comparison \"{}\": {error}", comparison.title);
            Mistake::of("[[comparison]]", place, text)
        })?;
    }
    for (place, spec) in study.timelines.iter().enumerate() {
        check_timeline(spec, &cells).map_err(|error| {
            Mistake::of("[[timeline]]", place, format!("timeline \"{}\": {error}", spec.title))
        })?;
    }
    Ok(())
}

fn check_plot(study: &Study, plot: &Plot, cells: &[Cell]) -> Result<(), String> {
    check_rows(study, &plot.workload, &plot.machine, &plot.locks, &plot.params)?;
    for (key, name) in [("x", &plot.x), ("series", &plot.series)] {
        let known = cells.iter().filter(|cell| {
            let workload = cell.workload.name();
            plot.workload.list().iter().any(|it| it == workload)
        });
        let mut known: BTreeSet<String> =
            known.flat_map(|cell| cell.row_params().into_keys()).collect();
        // Of all roles, where the workload has no such parameter.
        known.insert("threads".to_owned());
        if !name.is_empty() && !known.contains(name) {
            let known: Vec<String> = known.into_iter().collect();
            return Err(format!("{key} = \"{name}\" is no parameter; valid: {}", known.join(", ")));
        }
    }
    let fits = match plot.kind {
        PlotKind::Lines | PlotKind::Bars => matches!(plot.metric, Some(PlotMetric::Figure(_))),
        PlotKind::Histogram => matches!(plot.metric, Some(PlotMetric::Histogram(_))),
        PlotKind::Shares | PlotKind::Alone => true,
    };
    if fits { Ok(()) } else { Err("its metric does not fit its kind".to_owned()) }
}

/// Some cells must have the parameter, and one of them another value than the standing one.
fn check_comparison(comparison: &Comparison, cells: &[Cell]) -> Result<(), String> {
    if !(comparison.margin >= 1.0 && comparison.margin.is_finite()) {
        return Err(format!("margin = {}: a factor is at least 1", comparison.margin));
    }
    if comparison.figures.is_empty() {
        return Err("no figure to compare values by; give figures = [{ title = …, metric = …, best = \"max\" }]".to_owned());
    }
    let names = comparison.over.list();
    if let Some(unknown) = comparison.conclusions.keys().find(|name| !names.contains(name)) {
        return Err(format!("conclusions has \"{unknown}\", which is not compared there"));
    }
    for over in names {
        let Some(standing) = comparison.standing(over) else {
            return Err(format!(
                "over = \"{over}\": say which value the others are compared with: standing = …"
            ));
        };
        let value = |cell: &Cell| match over == LOCK {
            true => Some(Value::from(cell.lock.as_str())),
            false => cell.row_params().get(over).cloned(),
        };
        if !cells.iter().filter_map(value).any(|value| value != standing) {
            return Err(format!(
                "over = \"{over}\": no run has another value of it than {standing}"
            ));
        }
        if over == LOCK && !cells.iter().filter_map(value).any(|value| value == standing) {
            return Err(format!("no run has the lock `{standing}`"));
        }
    }
    Ok(())
}

fn check_timeline(spec: &TimelineSpec, cells: &[Cell]) -> Result<(), String> {
    if !(1..=1_000_000_000).contains(&spec.length_ns) {
        return Err("a length of 1 ns to 1 s".to_owned());
    }
    let params = registry::canonical(&spec.workload, &spec.params)?;
    for lock in spec.locks() {
        check_one_cell(cells, &spec.machine, &spec.workload, &lock, &params)?;
    }
    Ok(())
}

/// Checks a run, also its quick variant; answers the cells of the full one.
fn check_run(run: &Run) -> Result<Vec<Cell>, String> {
    for machine in run.machines() {
        let path = Path::new(machine);
        // A study may come from a stranger: a pipe or a device would be read for ever.
        let is_path = machine.contains('/') || machine.ends_with(".toml");
        if is_path && path.exists() && !path.is_file() {
            return Err(format!("machine \"{machine}\": it is not a file"));
        }
    }
    let mut full = Vec::new();
    for quick in [true, false] {
        let Some(batch) = run.batch(Effort { quick, ..Effort::default() })? else {
            continue;
        };
        if batch.cells.is_empty() {
            return Err("no cells".to_owned());
        }
        for cell in &batch.cells {
            let valid = cell
                .workload
                .check_subject(&cell.lock, cell.on.is_some())
                .and_then(|()| cell.workload.validate(USUAL_PAUSE_NS))
                .and_then(|()| cell.validate_amount());
            valid.map_err(|error| error.to_string())?;
        }
        full = batch.cells;
    }
    Ok(full)
}

fn check_claim(claim: &Claim, study: &Study, cells: &[Cell]) -> Result<(), String> {
    if claim.cases.is_empty() {
        return Err("no cases".to_owned());
    }
    if study.claims.iter().filter(|it| it.id == claim.id).count() > 1 {
        return Err("another claim has this id".to_owned());
    }
    for selector in [Some(&claim.numerator), claim.denominator.as_ref()].into_iter().flatten() {
        for (selector, case) in
            selector.all().flat_map(|it| claim.cases.iter().map(move |case| (it, case)))
        {
            check_selector(cells, selector, &case.params)?;
        }
    }
    let has_sources = claim.cases.iter().all(|case| case.source.is_some());
    if matches!(claim.expect, Expect::WithinFactor(_)) && !has_sources {
        return Err("within_factor needs a source value in every case".to_owned());
    }
    Ok(())
}

/// A row of published numbers, and what is to stand beside them.
fn check_row(table: &Table, row: &TableRow, cells: &[Cell]) -> Result<(), String> {
    let named = |error: String| format!("row \"{}\": {error}", row.name);
    if row.source.len() != table.columns.len() {
        let (found, wanted) = (row.source.len(), table.columns.len());
        return Err(named(format!("{found} cells for {wanted} columns")));
    }
    let here = table.here.iter().filter(|_| row.here);
    for column in here.chain(&table.simulated) {
        if let Some(over) = &column.over_source
            && table.source_ratio(row, over).is_none_or(|ratio| !ratio.is_finite())
        {
            let (numerator, denominator) = (&over.numerator, &over.denominator);
            return Err(named(format!("no number in \"{numerator}\" or \"{denominator}\"")));
        }
        let (numerator, denominator) = Study::selectors(column, row);
        for selector in [Some(&numerator), denominator.as_ref()].into_iter().flatten() {
            check_selector(cells, selector, &row.params).map_err(named)?;
        }
    }
    Ok(())
}

/// What is shown of rows with these workloads on this machine must be something that a run measures.
fn check_rows(
    study: &Study,
    workloads: &Names,
    machine: &Option<String>,
    locks: &Names,
    params: &Params,
) -> Result<(), String> {
    for workload in workloads.list() {
        let fits = |run: &Run| {
            let machines = run.machines();
            run.has(workload)
                && machine
                    .as_ref()
                    .map_or(machines.is_empty(), |it| machines.contains(&it.as_str()))
        };
        if !study.runs.iter().any(fits) {
            return Err(format!("no run there has the workload \"{workload}\""));
        }
        registry::canonical(workload, params)?;
        for lock in expand_locks(locks, workload, machine.is_some()) {
            registry::check_lock(workload, &lock, machine.is_some())?;
        }
    }
    Ok(())
}

/// A selector must choose something that the full run, which has these cells, measures.
fn check_selector(cells: &[Cell], selector: &Selector, at: &Params) -> Result<(), String> {
    if selector.metric.is_none() {
        return Err("a selector without a metric".to_owned());
    }
    if selector.lock.list().is_empty() {
        return Err("a selector without a lock".to_owned());
    }
    let mut wanted = at.clone();
    wanted.extend(selector.params.clone());
    let wanted = registry::canonical(&selector.workload, &wanted)?;
    for lock in selector.lock.list() {
        registry::check_lock(&selector.workload, lock, selector.machine.is_some())?;
        let cell = check_one_cell(cells, selector.machine(), &selector.workload, lock, &wanted)?;
        if let Some(Metric::Role { role: Some(role), .. }) = &selector.metric {
            check_role(cell, role)?;
        }
    }
    Ok(())
}

/// The row of a cell must have the role.
fn check_role(cell: &Cell, role: &str) -> Result<(), String> {
    // Threads that draw each operation are told apart by what they drew.
    let drawn = cell.row_params().contains_key("read_percent");
    let mut known: Vec<&str> = cell.workload.roles().iter().map(|role| role.name).collect();
    if drawn {
        known = vec![READER, WRITER];
    }
    match known.contains(&role) {
        true => Ok(()),
        false => Err(format!(
            "no role \"{role}\" under {} there; valid: {}",
            cell.workload.name(),
            known.join(", ")
        )),
    }
}

/// Exactly one of the cells must fit.
fn check_one_cell<'a>(
    cells: &'a [Cell],
    machine: &str,
    workload: &str,
    lock: &str,
    wanted: &Params,
) -> Result<&'a Cell, String> {
    let fits = |cell: &&Cell| cell.lock == lock && is_at(cell, machine, workload, wanted);
    let fitting: Vec<&Cell> = cells.iter().filter(fits).collect();
    match fitting.as_slice() {
        [cell] => Ok(cell),
        fitting => Err(format!(
            "{} cells fit {lock} under {workload} on {machine} with {}",
            fitting.len(),
            registry::describe(workload, wanted)
        )),
    }
}
