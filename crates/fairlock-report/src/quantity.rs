//! Figures with intervals and units, written in the same words in every table and chart. The page's script writes
//! the values of charts alike (`words` in `charts.js`).

use serde::{Serialize, Serializer};

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

/// Three significant digits, without an exponent.
pub fn format_number(value: f64) -> String {
    if !value.is_finite() {
        return if value > 0.0 { "∞" } else { "–" }.to_owned();
    }
    let magnitude = value.abs();
    match magnitude {
        0.0 => "0".to_owned(),
        m if m >= 99.95 => format!("{value:.0}"),
        m if m >= 9.995 => format!("{value:.1}"),
        m if m >= 0.095 => format!("{value:.2}"),
        m if m >= 0.0005 => {
            format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => format!("{value:.1e}"),
    }
}

fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    // 999.6 of a unit is 1.00 of the next: compare what will be printed, not the value.
    let (scale, unit) = steps
        .iter()
        .find(|(scale, _)| value.abs() >= scale * 0.9995)
        .or(steps.last())
        .copied()
        .unwrap_or((1.0, ""));
    format!("{}{unit}", format_number(value / scale))
}

/// A time in the unit that suits it: `890ns`, `12.3µs`, `1.20ms`.
pub fn format_ns(ns: f64) -> String {
    scaled(ns, &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")])
}

/// A rate or a count in the unit that suits it: `57.8k`, `2.91M`.
pub fn format_count(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1000.0 {
        return format!("{value:.0}");
    }
    scaled(value, &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")])
}

/// Bytes per second in decimal megabytes, the unit storage people use.
pub fn format_bytes_per_s(value: f64) -> String {
    format!("{} MB/s", format_number(value / 1e6))
}

/// A size in binary units: `64 KiB`.
pub fn format_bytes(bytes: f64) -> String {
    if bytes >= 1_048_576.0 {
        format!("{} MiB", trimmed(bytes / 1_048_576.0))
    } else if bytes >= 1024.0 {
        format!("{} KiB", trimmed(bytes / 1024.0))
    } else {
        format!("{} B", trimmed(bytes))
    }
}

/// Thousands of operations per second, without the unit (it stands in the header).
pub fn format_kilo(ops_per_s: f64) -> String {
    format_number(ops_per_s / 1e3)
}

/// A whole number without a fraction, anything else with three digits.
pub fn trimmed(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else {
        format_number(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_scaled_to_the_unit_a_reader_expects() {
        assert_eq!(format_ns(890.0), "890ns");
        assert_eq!(format_ns(12_340.0), "12.3µs");
        assert_eq!(format_ns(999_960.0), "1.00ms");
        assert_eq!(format_ns(0.0), "0ns");
        assert_eq!(format_count(57_800.0), "57.8k");
        assert_eq!(format_count(24.0), "24");
        assert_eq!(format_bytes(65536.0), "64 KiB");
        assert_eq!(format_bytes_per_s(397e6), "397 MB/s");
        assert_eq!(format_number(f64::INFINITY), "∞");
        assert_eq!(format_number(0.0123), "0.0123");
    }

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
