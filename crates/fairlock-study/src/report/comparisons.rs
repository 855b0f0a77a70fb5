//! What the values of a parameter do to figures: over all situations that differ in nothing else, how its other values
//! compare with the one that stands.
//!
//! A situation is a machine, a workload with its other parameters, and a lock. Each contributes one ratio for each
//! value and each figure: the figure with that value over the figure with the standing one, turned round where less is
//! better, so that a ratio above 1 is always better. A line has their geometric mean, the worst with its situation, and
//! in how many the value is better or worse by more than the margin.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fairlock_report::params::{self, Params, Value};
use fairlock_report::row::Row;
use fairlock_report::screen;
use fairlock_report::table::{Cell, Table};

use crate::registry;
use crate::study::claim::{Names, Take};
use crate::study::{ComparedFigure, Comparison, LOCK, Study};

/// One value of a parameter beside the standing one.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The parameter.
    pub over: String,
    /// Its value.
    pub value: Value,
    /// The value that it is compared with.
    pub standing: Value,
    /// By the comparison's figures, in their order; none where no situation has both values.
    pub figures: Vec<Option<Ratios>>,
}

/// How one figure with a value compares with the figure with the standing one.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratios {
    /// In how many situations both were measured.
    pub situations: usize,
    /// The geometric mean of the ratios.
    pub mean: f64,
    /// The least of them, and where.
    pub worst: (f64, String),
    /// Situations in which the value is better by more than the margin.
    pub better: usize,
    /// Situations in which it is worse by more than the margin.
    pub worse: usize,
}

/// The lines of a comparison: parameter by parameter, each in the order of its values.
pub fn lines(comparison: &Comparison, rows: &[Row]) -> Vec<Line> {
    let is_among = |names: &Option<Names>, name: &String| {
        names.as_ref().is_none_or(|it| it.list().contains(name))
    };
    let shown: Vec<&Row> = rows
        .iter()
        .filter(|row| {
            is_among(&comparison.workload, &row.workload)
                && is_among(&comparison.machine, &row.machine)
                && is_among(&comparison.locks, &row.lock)
        })
        .collect();
    let mut all = Vec::new();
    for over in comparison.over.list() {
        let Some(standing) = comparison.standing(over) else { continue };
        let situations = situations(over, &standing, &shown);
        let mut values: Vec<Value> = Vec::new();
        for (value, _) in situations.values().flatten() {
            if *value != standing && !values.contains(value) {
                values.push(value.clone());
            }
        }
        values.sort_by(params::in_order);
        for value in values {
            let values = [&standing, &value];
            let of = |figure| ratios(comparison.margin, figure, &situations, over, values);
            let figures: Vec<Option<Ratios>> = comparison.figures.iter().map(of).collect();
            if figures.iter().any(Option::is_some) {
                let (over, standing) = (over.clone(), standing.clone());
                all.push(Line { over, value, standing, figures });
            }
        }
    }
    all
}

/// Rows that differ in nothing but one parameter, with their values of it.
type Situations<'a> = BTreeMap<String, Vec<(Value, &'a Row)>>;

fn situations<'a>(over: &str, standing: &Value, rows: &[&'a Row]) -> Situations<'a> {
    let mut situations = Situations::new();
    for &row in rows {
        let mut others: Params = row.params.clone();
        let value = match over {
            LOCK => Value::Text(row.lock.clone()),
            over => others.remove(over).unwrap_or_else(|| standing.clone()),
        };
        let lock = if over == LOCK { "" } else { &row.lock };
        let key = format!("{}\n{}\n{lock}\n{others:?}", row.machine, row.workload);
        situations.entry(key).or_default().push((value, row));
    }
    situations
}

/// A row's situation in words.
fn described(over: &str, row: &Row) -> String {
    let mut others: Params = row.params.clone();
    others.remove(over);
    let lock = if over == LOCK { "" } else { &row.lock };
    let words = registry::describe(&row.workload, &others);
    let words = [row.machine.as_str(), &row.workload, lock, &words];
    words.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
}

fn ratios(
    margin: f64,
    figure: &ComparedFigure,
    situations: &Situations<'_>,
    over: &str,
    [standing, value]: [&Value; 2],
) -> Option<Ratios> {
    let mut ratios: Vec<(f64, &Row)> = Vec::new();
    for values in situations.values() {
        let of = |wanted: &Value| {
            let (_, row) = values.iter().find(|(value, _)| value == wanted)?;
            figure.metric.figure(row).map(|figure| (figure.median, *row))
        };
        let (Some((one, row)), Some((other, _))) = (of(value), of(standing)) else { continue };
        let ratio = match figure.best {
            Take::Max => one / other,
            Take::Min => other / one,
        };
        // Nothing beside something is as bad as can be, or as good; nothing beside nothing says nothing.
        if !ratio.is_nan() {
            ratios.push((ratio, row));
        }
    }
    ratios.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let (worst, place) = *ratios.first()?;
    // One without an end would hide all others.
    let logs = ratios.iter().map(|(ratio, _)| ratio.clamp(1e-3, 1e3).ln()).sum::<f64>();
    Some(Ratios {
        situations: ratios.len(),
        mean: (logs / ratios.len() as f64).exp(),
        worst: (worst, described(over, place)),
        better: ratios.iter().filter(|(ratio, _)| *ratio > margin).count(),
        worse: ratios.iter().filter(|(ratio, _)| *ratio < 1.0 / margin).count(),
    })
}

/// A parameter without what stands before its name.
fn short(over: &str) -> String {
    let name = over.strip_prefix(crate::changes::TUNE).unwrap_or(over);
    name.strip_prefix(crate::changes::MACHINE).unwrap_or(name).to_owned()
}

/// The heads of the figures' columns.
fn heads(comparison: &Comparison) -> Vec<String> {
    let of = |figure: &ComparedFigure| {
        ["mean", "worst", "+/-"].map(|head| format!("{}: {head}", figure.title))
    };
    comparison.figures.iter().flat_map(of).collect()
}

/// The cells of a line's figures.
fn cells(line: &Line) -> Vec<String> {
    let of = |ratios: &Option<Ratios>| match ratios {
        None => std::array::from_fn(|_| "–".to_owned()),
        Some(it) => [
            format!("{:.3}", it.mean),
            format!("{:.2}", it.worst.0),
            format!("{}/{}", it.better, it.worse),
        ],
    };
    line.figures.iter().flat_map(of).collect()
}

/// What the numbers are.
fn about(comparison: &Comparison, lines: &[Line]) -> String {
    let counts =
        || lines.iter().flat_map(|line| line.figures.iter().flatten()).map(|it| it.situations);
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let counts = if least == most { most.to_string() } else { format!("{least} to {most}") };
    format!(
        "Each value over the standing one, in {counts} situations that differ in nothing else: geometric mean and \
         worst ratio (from 0.001 to 1000), above 1 is better; +/-: in how many it is better and in how many worse by more than {:.0} %",
        (comparison.margin - 1.0) * 100.0
    )
}

/// The comparisons of these studies for a terminal; empty without any.
pub fn text(studies: &[Study], rows: &[Row], width: usize) -> String {
    let mut text = String::new();
    for comparison in studies.iter().flat_map(|study| &study.comparisons) {
        let lines = lines(comparison, rows);
        if lines.is_empty() {
            continue;
        }
        let keys = ["", "value", "standing"].map(screen::Column::text);
        let heads = heads(comparison).into_iter();
        let heads = heads.map(|head| screen::Column::number(head.replace(": ", "\n")));
        let mut table = screen::Table::new(3, keys.into_iter().chain(heads));
        for line in &lines {
            let keys = [short(&line.over), line.value.to_string(), line.standing.to_string()];
            table.row(keys.into_iter().chain(cells(line)));
        }
        let _ = writeln!(text, "{}", comparison.title);
        text += table.fitted(width).trim_end();
        let _ = writeln!(
            text,
            "\n{}",
            screen::wrapped_lines(&(about(comparison, &lines) + "."), width)
        );
        for (at, figure) in comparison.figures.iter().enumerate() {
            if let Some((line, ratios)) = worst(&lines, at) {
                let place = &ratios.worst.1;
                let (over, value) = (short(&line.over), &line.value);
                let said = format!("{}, worst: {over} {value} at {place}", figure.title);
                let _ = writeln!(text, "{}", screen::wrapped(&said, "  ", width).trim_end());
            }
        }
        text.push('\n');
    }
    text
}

/// The line that is worst by this figure.
fn worst(lines: &[Line], figure: usize) -> Option<(&Line, &Ratios)> {
    let of = |line: &'_ Line| line.figures[figure].as_ref().map(|it| it.worst.0);
    let known = lines.iter().filter(|line| line.figures[figure].is_some());
    let line = known.min_by(|one, other| {
        of(one).unwrap_or(f64::INFINITY).total_cmp(&of(other).unwrap_or(f64::INFINITY))
    })?;
    Some((line, line.figures[figure].as_ref()?))
}

/// One comparison as a table of a page; none without rows.
pub(super) fn table(comparison: &Comparison, rows: &[Row]) -> Option<Table> {
    let lines = lines(comparison, rows);
    if lines.is_empty() {
        return None;
    }
    let heads = heads(comparison);
    let titles = ["parameter", "value", "standing"].into_iter();
    let titles: Vec<&str> = titles.chain(heads.iter().map(String::as_str)).collect();
    let caption = format!("{}. {}.", comparison.title, about(comparison, &lines));
    let mut table = Table::of_numbers(caption, &titles);
    let row = |line: &Line| {
        let keys = [short(&line.over), line.value.to_string(), line.standing.to_string()];
        let mut row: Vec<Cell> = keys.into_iter().chain(cells(line)).map(Cell::new).collect();
        for (at, ratios) in line.figures.iter().enumerate() {
            if let Some(ratios) = ratios {
                let cell = &mut row[3 + 3 * at + 1];
                *cell = std::mem::take(cell).detail(ratios.worst.1.clone());
            }
        }
        row
    };
    table.rows = lines.iter().map(row).collect();
    Some(table)
}

/// One comparison in Markdown; empty without rows.
pub(super) fn markdown(comparison: &Comparison, rows: &[Row]) -> String {
    let lines = lines(comparison, rows);
    if lines.is_empty() {
        return String::new();
    }
    let mut text = format!("\n### {}\n\n{}.\n", comparison.title, about(comparison, &lines));
    let heads = heads(comparison);
    let rule = "--:|".repeat(heads.len() + 2);
    let _ = write!(text, "\n| | value | standing | {} |\n|---|{rule}\n", heads.join(" | "));
    let mut before = None;
    for line in &lines {
        let over = if before == Some(&line.over) {
            String::new()
        } else {
            format!("`{}`", short(&line.over))
        };
        before = Some(&line.over);
        let (value, standing) = (&line.value, &line.standing);
        let _ = writeln!(text, "| {over} | {value} | {standing} | {} |", cells(line).join(" | "));
    }
    let concluded = comparison.over.list().iter();
    let concluded: Vec<(&String, &String)> =
        concluded.filter_map(|over| Some((over, comparison.conclusions.get(over)?))).collect();
    if !concluded.is_empty() {
        text.push('\n');
    }
    for (over, conclusion) in concluded {
        let _ = writeln!(text, "* `{}`: {}", short(over), conclusion.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn comparison(text: &str) -> Comparison {
        toml::from_str(text).unwrap()
    }

    fn row(threads: f64, slack: Option<f64>, rate: f64) -> Row {
        let mut row = example::row("mix", "rwsem", &[("threads", threads), ("read_percent", 50.0)]);
        row.machine = "sim".to_owned();
        row.params.extend(slack.map(|slack| ("tune.slack".to_owned(), slack.into())));
        row.total_ops_per_s = example::estimate(rate);
        row
    }

    const RATES: &str =
        "figures = [{ title = \"rate\", metric = \"total_ops_per_s\", best = \"max\" }]";

    #[test]
    fn values_are_compared_with_the_standing_one_where_nothing_else_differs() {
        let comparison = comparison(&format!("title = \"slack\"\nover = \"tune.slack\"\n{RATES}"));
        let rows = [
            row(2.0, None, 100.0),
            row(8.0, Some(16.0), 100.0),
            row(2.0, Some(8.0), 200.0),
            row(8.0, Some(8.0), 50.0),
            row(2.0, Some(4.0), 101.0),
            // Nothing to compare it with.
            row(32.0, Some(4.0), 1.0),
        ];
        let lines = lines(&comparison, &rows);
        let values: Vec<String> = lines.iter().map(|line| line.value.to_string()).collect();
        assert_eq!(values, ["4", "8"]);
        let ratios = |at: usize| lines[at].figures[0].clone().unwrap();
        assert_eq!((ratios(0).situations, ratios(0).better, ratios(0).worse), (1, 0, 0));
        assert!((ratios(1).mean - 1.0).abs() < 1e-9);
        assert_eq!(ratios(1).worst.0, 0.5);
        assert!(ratios(1).worst.1.contains("8 threads"), "{}", ratios(1).worst.1);
        assert_eq!((ratios(1).better, ratios(1).worse), (1, 1));
        let text = markdown(&comparison, &rows);
        assert!(text.contains("| `slack` | 4 | 16 | 1.010 | 1.01 | 0/0 |"), "{text}");
    }

    #[test]
    fn a_role_that_starves_is_the_worst_there_is() {
        let comparison = comparison(&format!("title = \"slack\"\nover = \"tune.slack\"\n{RATES}"));
        let rows = [
            row(2.0, None, 100.0),
            row(2.0, Some(4.0), 0.0),
            row(8.0, None, 100.0),
            row(8.0, Some(4.0), 100.0),
        ];
        let ratios = lines(&comparison, &rows)[0].figures[0].clone().unwrap();
        assert_eq!((ratios.situations, ratios.worst.0, ratios.worse), (2, 0.0, 1));
        assert!(ratios.mean < 0.05, "{ratios:?}");
    }

    #[test]
    fn of_waits_less_is_better_and_locks_compare_alike() {
        let figures = RATES.replace("total_ops_per_s", "ns_per_op").replace("max", "min");
        let comparison = comparison(&format!(
            "title = \"waits\"\nover = \"lock\"\nstanding = \"rwsem\"\n{figures}"
        ));
        let mut slower = row(2.0, None, 50.0);
        slower.lock = "std".to_owned();
        let lines = lines(&comparison, &[row(2.0, None, 100.0), slower]);
        assert_eq!(lines.len(), 1);
        let mean = lines[0].figures[0].as_ref().unwrap().mean;
        assert!((mean - 0.5).abs() < 1e-9, "{lines:?}");
    }
}
