//! Figures with intervals and units, written in the same words in every table and chart. The page's script writes
//! the values of charts alike (`words` in `charts.js`).

use serde::{Serialize, Serializer};

use crate::units::{format_bytes_per_s, format_count, format_ns, format_number};

/// A figure with its interval, if it has one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// What stands for all measurements.
    pub median: f64,
    /// Where the interval begins; the median where there is none.
    pub low: f64,
    /// Where it ends; likewise.
    pub high: f64,
}

impl Figure {
    /// A figure without an interval.
    pub fn exactly(value: f64) -> Figure {
        Figure { median: value, low: value, high: value }
    }

    /// Whether it has an interval to show.
    pub fn has_interval(&self) -> bool {
        self.low != self.high
    }
}

/// So many digits are more than a chart shows, and keep a page of thousands of figures small.
const DIGITS: usize = 5;

/// The number with [`DIGITS`] digits; nothing for what is no number, since JSON has no word for it.
pub(crate) fn short(value: f64) -> Option<f64> {
    value.is_finite().then(|| format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(value))
}

impl Serialize for Figure {
    /// The median alone, or with both ends.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all = [self.median, self.low, self.high].map(short);
        all[..if self.has_interval() { 3 } else { 1 }].serialize(serializer)
    }
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Nanoseconds, written in the unit that suits them.
    Time,
    /// Per second.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// How many.
    Count,
    /// A part of 1, written in percent.
    Share,
    /// A plain number: a ratio, or something per operation.
    Number,
}

impl Unit {
    /// A value with its unit.
    pub fn words(self, value: f64) -> String {
        match self {
            Unit::Time => format_ns(value),
            Unit::PerSecond => format!("{}/s", format_count(value)),
            Unit::BytesPerSecond => format_bytes_per_s(value),
            Unit::Count => format_count(value),
            Unit::Share => format!("{} %", format_number(value * 100.0)),
            Unit::Number => format_number(value),
        }
    }

    /// A figure with its interval, where it has one: `12.3µs [11.0µs, 13.1µs]`.
    pub fn figure(self, figure: Figure) -> String {
        let median = self.words(figure.median);
        match figure.has_interval() {
            false => median,
            true => format!("{median} {}", self.interval(figure)),
        }
    }

    /// The interval: `[11.0µs, 13.1µs]`.
    pub fn interval(self, figure: Figure) -> String {
        format!("[{}, {}]", self.words(figure.low), self.words(figure.high))
    }

    /// What stands beside an axis, after what the axis is about.
    pub fn axis(self) -> &'static str {
        match self {
            Unit::Time => "time",
            Unit::PerSecond => "per second",
            Unit::BytesPerSecond => "MB/s",
            Unit::Count => "number",
            Unit::Share => "%",
            Unit::Number => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_interval_in_words_and_in_json_only_if_there_is_one() {
        let figure = Figure { median: 12_340.0, low: 11_000.0, high: 13_123_456.0 };
        assert_eq!(Unit::Time.figure(figure), "12.3µs [11.0µs, 13.1ms]");
        assert_eq!(serde_json::to_string(&figure).unwrap(), "[12340.0,11000.0,13123000.0]");
        let exact = Figure::exactly(0.25);
        assert_eq!(Unit::Share.figure(exact), "25.0 %");
        assert_eq!(serde_json::to_string(&exact).unwrap(), "[0.25]");
        let infinite = serde_json::to_string(&Figure::exactly(f64::INFINITY)).unwrap();
        assert_eq!(infinite, "[null]");
    }
}
