//! Every name, parameter and metric in a study file must exist: a typing error must not become "not measured".

use fairlock_report::params::Params;

use super::{Effort, PlotKind, PlotMetric, Run, Study, Table, TableRow, expand_locks, is_at};
use crate::plan::{Cell, Simulated};
use crate::registry;
use crate::study::claim::{Claim, Expect, Names, Selector};

/// Pauses of most machines take about so long, ns: enough to tell whether a length makes sense.
const USUAL_PAUSE_NS: f64 = 20.0;

/// Checks a study file that was read.
pub(super) fn check(study: &Study) -> Result<(), String> {
    let mut cells = Vec::new();
    for run in &study.runs {
        let of_run = check_run(run).map_err(|error| format!("run \"{}\": {error}", run.title))?;
        cells.extend(of_run);
    }
    for claim in &study.claims {
        check_claim(claim, study, &cells)
            .map_err(|error| format!("claim \"{}\": {error}", claim.id))?;
    }
    if let Some(summary) = &study.summary {
        summary.check(&study.claims)?;
    }
    for table in study.published_tables() {
        for row in &table.rows {
            check_row(table, row, &cells)
                .map_err(|error| format!("table \"{}\", {error}", table.title))?;
        }
    }
    for plot in &study.plots {
        let named = |error| format!("plot \"{}\": {error}", plot.title);
        check_rows(study, &plot.workload, &plot.machine, &plot.locks, &plot.params)
            .map_err(named)?;
        let fits = match plot.kind {
            PlotKind::Lines | PlotKind::Bars => {
                matches!(plot.metric, Some(PlotMetric::Figure(_)))
            }
            PlotKind::Histogram => matches!(plot.metric, Some(PlotMetric::Histogram(_))),
            PlotKind::Shares | PlotKind::Alone => true,
        };
        if !fits {
            return Err(named("its metric does not fit its kind".to_owned()));
        }
    }
    for grid in &study.grids {
        let workload = Names::One(grid.workload.clone());
        check_rows(study, &workload, &grid.machine, &grid.locks, &grid.params)
            .map_err(|error| format!("grid \"{}\": {error}", grid.title))?;
    }
    for spec in &study.timelines {
        let named = |error| format!("timeline \"{}\": {error}", spec.title);
        if !(1..=1_000_000_000).contains(&spec.length_ns) {
            return Err(named("a length of 1 ns to 1 s".to_owned()));
        }
        let params = registry::canonical(&spec.workload, &spec.params).map_err(named)?;
        for lock in spec.locks() {
            check_one_cell(&cells, &spec.machine, &spec.workload, &lock, &params).map_err(named)?;
        }
    }
    Ok(())
}

/// Checks a run, also its quick variant; answers the cells of the full one.
fn check_run(run: &Run) -> Result<Vec<Cell>, String> {
    if let Some(machine) = &run.machine {
        Simulated::find(machine, super::FIRST_SEED)?;
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
                .and_then(|()| cell.workload.validate(USUAL_PAUSE_NS));
            valid.map_err(|error| error.to_string())?;
            if cell.repetitions == 0 || cell.seconds <= 0.0 || cell.seconds.is_nan() {
                return Err("it measures nothing".to_owned());
            }
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
        let fits = |run: &Run| run.has(workload) && run.machine == *machine;
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
        check_one_cell(cells, selector.machine(), &selector.workload, lock, &wanted)?;
    }
    Ok(())
}

/// Exactly one of the cells must fit.
fn check_one_cell(
    cells: &[Cell],
    machine: &str,
    workload: &str,
    lock: &str,
    wanted: &Params,
) -> Result<(), String> {
    let fits = |cell: &&Cell| cell.lock == lock && is_at(cell, machine, workload, wanted);
    match cells.iter().filter(fits).count() {
        1 => Ok(()),
        fitting => Err(format!(
            "{fitting} cells fit {lock} under {workload} on {machine} with {}",
            registry::describe(workload, wanted)
        )),
    }
}
