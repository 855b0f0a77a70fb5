//! What a fit came to, as Markdown that a terminal can show, too.

use std::fmt::Write as _;

use fairlock_report::units::{counted, format_count, trimmed};

use super::file::{Aim, Fit};
use super::{Fitted, Tried, off};

/// The whole text: the values found, each target with what is wanted and what came out, and the sensitivity.
pub fn text(fit: &Fit, fitted: &Fitted) -> String {
    let mut text = format!("# {}\n", fit.title);
    if !fit.question.is_empty() {
        let _ = write!(text, "\n{}\n", fit.question.trim());
    }
    let targets = fit.targets();
    let held = targets.iter().filter(|target| target.held_back).count();
    let _ = write!(
        text,
        "\n{} tried, {} of {} s each cell. {}{}.\n",
        counted(fitted.tried as u64, "point"),
        counted(fit.seeds.into(), "seed"),
        fit.seconds,
        counted(targets.len() as u64, "target"),
        match held {
            0 => String::new(),
            held => format!(", {held} of them held back: nothing was chosen by these"),
        }
    );
    let factor = |error: f64| format!("{:.3}", error.exp());
    let held_back = |error: Option<f64>| error.map_or_else(|| "–".to_owned(), factor);
    let mut errors = Table::new(["typically off by a factor of", "at first", "fitted"]);
    errors.row(["targets".to_owned(), factor(fitted.start.error), factor(fitted.best.error)]);
    errors.row([
        "held back".to_owned(),
        held_back(fitted.start.held_back),
        held_back(fitted.best.held_back),
    ]);
    text += &errors.text();

    text += "\n## Parameters\n";
    let undecided = undecided(fit, fitted);
    let mut values = Table::new(["parameter", "tried from", "to", "at first", "fitted"]);
    for (at, parameter) in fit.parameters.iter().enumerate() {
        let [least, most] = parameter.range;
        let [start, best] = [&fitted.start, &fitted.best].map(|it| it.point.0[at]);
        let [least, most, start, mut best] = [least, most, start, best].map(trimmed);
        if undecided[at] {
            best += " (undecided)";
        }
        values.row([parameter.name.clone(), least, most, start, best]);
    }
    text += &values.text();
    for (at, parameter) in fit.parameters.iter().enumerate() {
        let best = fitted.best.point.0[at];
        if !undecided[at]
            && parameter.range.iter().any(|end| (best - end).abs() <= (end * 0.01).abs())
        {
            let _ = write!(
                text,
                "\n{} is at the end of its range: a wider one may fit better, or the targets do not decide it.\n",
                parameter.name
            );
        }
    }

    text += "\n## Targets\n";
    let mut rows = Table::new(["target", "wanted", "at first", "fitted", "fitted / wanted"]);
    for (at, target) in targets.iter().enumerate() {
        let sign = match target.aim {
            Aim::Value(_) => "",
            Aim::AtLeast(_) => "≥ ",
            Aim::AtMost(_) => "≤ ",
        };
        let figure = fitted.best.figures[at];
        rows.row([
            format!("{}{}", target.name, if target.held_back { " (held back)" } else { "" }),
            format!("{sign}{}", format_count(target.aim.value())),
            format_count(fitted.start.figures[at]),
            format_count(figure),
            format!("{:.2}", figure / target.aim.value()),
        ]);
    }
    text += &rows.text();
    text += &sensitivity(fit, fitted);
    text
}

/// Which parameter moves which target: by how much each changes from the lower to the upper end of a move.
fn sensitivity(fit: &Fit, fitted: &Fitted) -> String {
    let mut text = "\n## Sensitivity\n\nWhat a target gains or loses, in percent, when one parameter alone goes from the \
                    lower to the upper value; the most of each line is **bold**.\n"
        .to_owned();
    let mut heads = vec!["target".to_owned()];
    for ((at, parameter), [low, high]) in fit.parameters.iter().enumerate().zip(&fitted.moved) {
        let name = parameter.name.split_once('.').map_or("", |(_, name)| name);
        heads.push(format!(
            "{name}, {} to {}",
            trimmed(low.point.0[at]),
            trimmed(high.point.0[at])
        ));
    }
    let mut table = Table { heads, rows: Vec::new() };
    for (at, target) in fit.targets().iter().enumerate() {
        let moved: Vec<f64> = fitted
            .moved
            .iter()
            .map(|[low, high]| {
                let ratio = high.figures[at] / low.figures[at];
                if ratio.is_finite() { (ratio - 1.0) * 100.0 } else { 0.0 }
            })
            .collect();
        let most = moved.iter().map(|it| it.abs()).fold(0.0, f64::max);
        let cell = |value: &f64| {
            let words = format!("{value:+.1}");
            if value.abs() == most && most >= 0.05 { format!("**{words}**") } else { words }
        };
        table
            .rows
            .push(std::iter::once(target.name.clone()).chain(moved.iter().map(cell)).collect());
    }
    text += &table.text();
    let all = fit.parameters.iter().zip(undecided(fit, fitted));
    for (parameter, _) in all.filter(|(_, undecided)| *undecided) {
        let _ = write!(
            text,
            "\n{} moves no target by a percent: these targets say nothing about it, and the machine's file keeps its value.\n",
            parameter.name
        );
    }
    text
}

/// Which parameters move no target by a percent.
pub(super) fn undecided(fit: &Fit, fitted: &Fitted) -> Vec<bool> {
    let is_idle = |[low, high]: &[Tried; 2]| {
        fit.targets().iter().enumerate().all(|(at, target)| {
            (off(target, high.figures[at]) - off(target, low.figures[at])).abs() < 0.01
        })
    };
    fitted.moved.iter().map(is_idle).collect()
}

/// A table of Markdown whose columns are even, so that a terminal can show it.
struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new<const N: usize>(heads: [&str; N]) -> Table {
        Table { heads: heads.map(str::to_owned).to_vec(), rows: Vec::new() }
    }

    fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    fn text(&self) -> String {
        let wide = |text: &String| text.chars().count();
        let lines = || std::iter::once(&self.heads).chain(&self.rows);
        let width = |at: usize| lines().map(|line| wide(&line[at])).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let line = |cells: &Vec<String>| {
            let cells = cells.iter().zip(&widths).enumerate().map(|(at, (cell, width))| {
                let space = " ".repeat(width - wide(cell));
                if at == 0 { format!("{cell}{space}") } else { format!("{space}{cell}") }
            });
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let rule = widths.iter().enumerate().map(|(at, width)| match at {
            0 => "-".repeat(*width + 2),
            _ => format!("{}:", "-".repeat(*width + 1)),
        });
        let rule = format!("|{}|\n", rule.collect::<Vec<_>>().join("|"));
        let rows: String = self.rows.iter().map(line).collect();
        format!("\n{}{rule}{rows}", line(&self.heads))
    }
}
