//! A figure of many locks at many points: a table for each value of one parameter, with a line for
//! each value of another and a column for each lock, the best of each line marked.

use std::cmp::Ordering;

use fairlock_report::params::{self, Params};
use fairlock_report::row::{Estimate, HERE, Row};

use crate::registry;
use crate::study::claim::Take;
use crate::study::{Grid, expand_locks};

/// One table.
pub(super) struct Sheet {
    /// What its lines share.
    pub(super) title: String,
    /// The columns.
    pub(super) locks: Vec<String>,
    /// A heading and a figure for each lock, if it was measured.
    pub(super) lines: Vec<(String, Vec<Option<Figure>>)>,
}

/// A figure in words.
pub(super) struct Figure {
    pub(super) median: String,
    pub(super) low: String,
    pub(super) high: String,
    /// The best of its line.
    pub(super) is_best: bool,
}

/// The tables of a grid, in the order in which their rows were measured, each with its lines in that
/// of their values.
pub(super) fn sheets(grid: &Grid, rows: &[Row]) -> Vec<Sheet> {
    let wanted = expand_locks(&grid.locks, &grid.workload, grid.machine.is_some());
    let machine = grid.machine.as_deref().unwrap_or(HERE);
    let is_shown = |row: &&Row| {
        row.workload == grid.workload
            && row.machine == machine
            && wanted.contains(&row.lock)
            && registry::has_params(row, &grid.params)
            && grid.roles.iter().all(|role| row.roles.contains_key(role))
    };
    let rows: Vec<&Row> = rows.iter().filter(is_shown).collect();
    let is_measured = |lock: &&String| rows.iter().any(|row| row.lock == **lock);
    let locks: Vec<String> = wanted.iter().filter(is_measured).cloned().collect();
    let sheet = |at: Params| {
        let of_sheet: Vec<&Row> =
            rows.iter().copied().filter(|row| chosen(row, &grid.tables) == at).collect();
        let mut points = distinct(&of_sheet, &grid.lines);
        // More precise runs of one point may have come apart from the others.
        points.sort_by(|one, other| {
            let pairs = one.values().zip(other.values());
            pairs
                .map(|(a, b)| params::in_order(a, b))
                .find(|it| it.is_ne())
                .unwrap_or(Ordering::Equal)
        });
        let lines = points.into_iter().map(|at| {
            let of_line = |row: &&&Row| chosen(row, &grid.lines) == at;
            let line: Vec<&Row> = of_sheet.iter().filter(of_line).copied().collect();
            (described(&grid.workload, &at), figures(grid, &line, &locks))
        });
        let title = [grid.title.clone(), registry::describe(&grid.workload, &at)];
        Sheet {
            title: title.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": "),
            locks: locks.clone(),
            lines: lines.collect(),
        }
    };
    distinct(&rows, &grid.tables).into_iter().map(sheet).collect()
}

/// Parameters in words; by their names if pages need no words for them, as for what is the default.
fn described(workload: &str, params: &Params) -> String {
    let words = registry::describe(workload, params);
    if !words.is_empty() {
        return words;
    }
    params.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(" · ")
}

/// These parameters of a row.
fn chosen(row: &Row, names: &[String]) -> Params {
    names.iter().filter_map(|name| Some((name.clone(), registry::param(row, name)?))).collect()
}

/// The points that rows differ in, in the order they came.
fn distinct(rows: &[&Row], names: &[String]) -> Vec<Params> {
    let mut points: Vec<Params> = Vec::new();
    for row in rows {
        let point = chosen(row, names);
        if !points.contains(&point) {
            points.push(point);
        }
    }
    points
}

fn figures(grid: &Grid, line: &[&Row], locks: &[String]) -> Vec<Option<Figure>> {
    let estimates: Vec<Option<Estimate>> = locks
        .iter()
        .map(|lock| grid.metric.figure(line.iter().copied().find(|row| row.lock == *lock)?))
        .collect();
    let pick = match grid.best {
        Take::Min => f64::min,
        Take::Max => f64::max,
    };
    let best = estimates.iter().flatten().map(|figure| figure.median).reduce(pick);
    let words = |value: f64| grid.metric.format(value).replace("/s", "");
    let of = |figure: Estimate| Figure {
        median: words(figure.median),
        low: words(figure.low),
        high: words(figure.high),
        is_best: best == Some(figure.median),
    };
    estimates.into_iter().map(|figure| figure.map(of)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn grid(more: &str) -> Grid {
        let text = format!(
            "title = \"rates\"\nworkload = \"turns\"\nlocks = [\"std\", \"usync\"]\n\
             tables = [\"read_percent\"]\nlines = [\"threads\"]\n{more}"
        );
        toml::from_str(&text).unwrap()
    }

    fn rows() -> Vec<Row> {
        let mut rows = Vec::new();
        for percent in [99.9, 50.0] {
            for threads in [2.0, 8.0] {
                for lock in ["std", "usync"] {
                    let params = [("threads", threads), ("read_percent", percent)];
                    let mut row = example::row("turns", lock, &params);
                    let rate = threads * if lock == "std" { 1e6 } else { 2e6 };
                    row.total_ops_per_s = example::estimate(rate);
                    rows.push(row);
                }
            }
        }
        rows
    }

    #[test]
    fn there_is_a_table_for_each_share_with_a_line_for_each_thread_count() {
        let sheets = sheets(&grid("metric = \"total_ops_per_s\"\nbest = \"max\""), &rows());
        let titles: Vec<&str> = sheets.iter().map(|sheet| sheet.title.as_str()).collect();
        assert_eq!(titles, ["rates: 99.9 % reads", "rates: 50 % reads"]);
        assert_eq!(sheets[0].locks, ["std", "usync"]);
        let (heading, figures) = &sheets[1].lines[1];
        assert_eq!(heading, "8 threads");
        let marked = |figure: &Option<Figure>| {
            let figure = figure.as_ref().unwrap();
            (figure.median.clone(), figure.is_best)
        };
        let marked: Vec<(String, bool)> = figures.iter().map(marked).collect();
        assert_eq!(marked, [("8.00M".to_owned(), false), ("16.0M".to_owned(), true)]);
    }

    #[test]
    fn the_least_time_is_the_best() {
        let sheets = sheets(&grid("metric = \"ns_per_op\"\nbest = \"min\""), &rows());
        let figures = &sheets[0].lines[0].1;
        let best = figures.iter().flatten().find(|figure| figure.is_best).unwrap();
        assert_eq!((best.median.as_str(), best.low.as_str()), ("250ns", "243ns"));
    }

    #[test]
    fn lines_are_in_the_order_of_their_values_whatever_was_measured_first() {
        let mut measured = rows();
        measured.rotate_left(2);
        let headings = |rows: &[Row]| -> Vec<String> {
            let sheets = sheets(&grid("metric = \"ns_per_op\"\nbest = \"min\""), rows);
            sheets[0].lines.iter().map(|(heading, _)| heading.clone()).collect()
        };
        assert_eq!(headings(&measured), headings(&rows()));
    }

    #[test]
    fn rows_without_the_roles_that_are_asked_for_are_left_out() {
        let grid = grid("metric = \"ns_per_op\"\nbest = \"min\"\nroles = [\"reader\", \"writer\"]");
        let mut rows = rows();
        assert_eq!(sheets(&grid, &rows).len(), 2);
        rows.iter_mut().for_each(|row| drop(row.roles.remove("writer")));
        assert!(sheets(&grid, &rows).is_empty());
    }

    #[test]
    fn a_lock_without_a_row_leaves_its_place_empty_or_is_left_out() {
        let mut rows = rows();
        let grid = grid("metric = \"total_ops_per_s\"\nbest = \"max\"");
        rows.remove(1);
        assert!(sheets(&grid, &rows)[0].lines[0].1[1].is_none());
        rows.retain(|row| row.lock == "std");
        assert_eq!(sheets(&grid, &rows)[0].locks, ["std"]);
        assert!(sheets(&grid, &[]).is_empty());
    }
}
