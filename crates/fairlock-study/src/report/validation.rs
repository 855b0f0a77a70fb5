//! What a validation came to, for a terminal.

use fairlock_report::screen::{Column, Table, wrapped};
use fairlock_report::units::{counted, format_kilo};

use crate::validate::{Prediction, Score};

/// Misses that are listed.
const WORST: usize = 10;

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// A line for each workload, the worst misses, and the two scores, in lines of this width.
pub fn validation(score: &Score, width: usize) -> String {
    let figures = ["locks", "median\nerror", "τ of the\norder"].map(Column::number);
    let mut points = Table::new(1, [Column::text("workload")].into_iter().chain(figures));
    for point in &score.points {
        let errors: Vec<f64> = point.predictions.iter().map(Prediction::error).collect();
        points.row([
            point.title.clone(),
            point.predictions.len().to_string(),
            percent(fairlock_report::statistics::median(&errors)),
            point.tau().map_or("–".to_owned(), |tau| format!("{tau:.2}")),
        ]);
    }
    let names = ["worst misses", "lock"].map(Column::text);
    let figures = ["measured\nkops/s", "predicted\nkops/s", "ratio"].map(Column::number);
    let mut worst = Table::new(2, names.into_iter().chain(figures));
    for (point, prediction) in score.worst(WORST) {
        worst.row([
            point.title.clone(),
            prediction.lock.clone(),
            format_kilo(prediction.measured),
            format_kilo(prediction.predicted),
            format!("{:.2}", prediction.ratio()),
        ]);
    }
    let by_threads: Vec<String> = score
        .median_errors_by_threads()
        .iter()
        .map(|(threads, error)| format!("{threads}: {}", percent(*error)))
        .collect();
    let predictions = score.points.iter().map(|point| point.predictions.len() as u64).sum();
    let summary = format!(
        "{}: median relative error {} (by threads {}), median τ of the locks' order {:.2}",
        counted(predictions, "prediction"),
        percent(score.median_error()),
        by_threads.join(", "),
        score.median_tau()
    );
    let tables = [points, worst].map(|table| table.fitted(width));
    format!("{}\n\n{}\n\n{}\n", tables[0], tables[1], wrapped(&summary, "  ", width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::Point;

    #[test]
    fn a_score_fits_80_columns_with_its_words_whole() {
        let prediction = |lock: &str| Prediction {
            lock: lock.to_owned(),
            measured: 12_345_678.0,
            predicted: 1_234.5,
        };
        let point = |threads| Point {
            title: format!(
                "{threads} threads · 99.9 % reads · section 1000 pauses · think 10 pauses"
            ),
            threads,
            predictions: ["linux-5.11", "no-reader-steal"].map(prediction).to_vec(),
        };
        let score = Score { points: vec![point(2), point(64)] };
        let [narrow, wide] = [80, 120].map(|width| validation(&score, width));
        for (text, width) in [(&narrow, 80), (&wide, 120)] {
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert!(text.contains("4 predictions: "), "{text}");
        }
        for word in narrow.split_whitespace().filter(|word| !word.starts_with('─')) {
            assert!(wide.contains(word), "{word} in {narrow}");
        }
    }
}
