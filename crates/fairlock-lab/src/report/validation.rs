//! What a validation came to, for a terminal.

use comfy_table::{Cell, CellAlignment, Table};

use super::terminal::STYLE;
use crate::units::format_kilo;
use crate::validate::{Prediction, Score};

/// Misses that are listed.
const WORST: usize = 10;

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn finish(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A line for each workload, the worst misses, and the two scores.
pub fn validation(score: &Score) -> String {
    let mut points = Table::new();
    points.load_style(STYLE).set_header(["workload", "locks", "median error", "τ of the order"]);
    for point in &score.points {
        let errors: Vec<f64> = point.predictions.iter().map(Prediction::error).collect();
        points.add_row([
            Cell::new(&point.title),
            right(point.predictions.len().to_string()),
            right(percent(crate::measure::statistics::median(&errors))),
            right(point.tau().map_or("–".to_owned(), |tau| format!("{tau:.2}"))),
        ]);
    }
    let mut worst = Table::new();
    worst.load_style(STYLE).set_header([
        "worst misses",
        "lock",
        "measured kops/s",
        "predicted kops/s",
        "ratio",
    ]);
    for (point, prediction) in score.worst(WORST) {
        worst.add_row([
            Cell::new(&point.title),
            Cell::new(&prediction.lock),
            right(format_kilo(prediction.measured)),
            right(format_kilo(prediction.predicted)),
            right(format!("{:.2}", prediction.ratio())),
        ]);
    }
    let by_threads: Vec<String> = score
        .median_errors_by_threads()
        .iter()
        .map(|(threads, error)| format!("{threads}: {}", percent(*error)))
        .collect();
    format!(
        "{}\n{}\n{} predictions: median relative error {} (by threads {}), \
         median τ of the locks' order {:.2}\n",
        finish(points),
        finish(worst),
        score.points.iter().map(|point| point.predictions.len()).sum::<usize>(),
        percent(score.median_error()),
        by_threads.join(", "),
        score.median_tau()
    )
}
