//! Quantities with units, as people type them and as tables print them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// How long a thread keeps the CPU. Written `10p` (PAUSE iterations), `300ns`, `20us`, `1ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenLength", into = "String")]
pub enum Length {
    /// PAUSE iterations.
    Pauses(u32),
    /// Nanoseconds, rounded to whole PAUSE iterations.
    Nanoseconds(u64),
}

impl Length {
    /// As PAUSE iterations on a machine where one takes `pause_ns`.
    pub fn pauses(self, pause_ns: f64) -> u32 {
        match self {
            Length::Pauses(pauses) => pauses,
            Length::Nanoseconds(ns) => (ns as f64 / pause_ns).round() as u32,
        }
    }

    /// In words, for titles: `10 pauses`, `200ns`.
    pub fn words(self) -> String {
        match self {
            Length::Pauses(pauses) => several(pauses.into(), "pause"),
            Length::Nanoseconds(ns) => format_ns(ns as f64),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Length::Pauses(pauses) => write!(f, "{pauses}p"),
            Length::Nanoseconds(ns) => write!(f, "{ns}ns"),
        }
    }
}

impl From<Length> for String {
    fn from(length: Length) -> String {
        length.to_string()
    }
}

/// A length in a file: text with its unit, or a number of PAUSE iterations.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenLength {
    Pauses(u32),
    Text(String),
}

impl TryFrom<WrittenLength> for Length {
    type Error = String;

    fn try_from(written: WrittenLength) -> Result<Length, String> {
        match written {
            WrittenLength::Pauses(pauses) => Ok(Length::Pauses(pauses)),
            WrittenLength::Text(text) => text.parse(),
        }
    }
}

/// ```
/// use fairlock_report::units::Length;
/// assert_eq!("10p".parse(), Ok(Length::Pauses(10)));
/// assert_eq!("1.5us".parse(), Ok(Length::Nanoseconds(1500)));
/// assert!("10x".parse::<Length>().is_err());
/// ```
impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Length, String> {
        let length = match number_and_unit(text) {
            Some((number, "p")) if number.fract() == 0.0 && number <= f64::from(u32::MAX) => {
                Some(Length::Pauses(number as u32))
            }
            Some((number, unit)) => nanoseconds(number, unit).map(Length::Nanoseconds),
            None => None,
        };
        length.ok_or_else(|| {
            format!("\"{text}\" is not a length; give pauses (10p) or a time (200ns, 5us, 1ms)")
        })
    }
}

/// Splits `text` into a non-negative number and its unit.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim()))
}

/// 285 years: beyond it nanoseconds do not fit 63 bits.
const LONGEST_NS: f64 = 9e18;

/// Whole nanoseconds; `None` for an unknown unit or more than fits.
fn nanoseconds(number: f64, unit: &str) -> Option<u64> {
    let scale = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let ns = (number * scale).round();
    (ns <= LONGEST_NS).then_some(ns as u64)
}

/// Reads a time with its unit, in nanoseconds: `300us`, `4ms`.
pub fn parse_time_ns(text: &str) -> Result<u64, String> {
    number_and_unit(text).and_then(|(number, unit)| nanoseconds(number, unit)).ok_or_else(|| {
        format!("\"{text}\" is not a time; give a number and one of ns, us, ms, s (300us)")
    })
}

/// A number in a file, or text with a unit.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f64),
    Text(String),
}

/// Reads a time of a file, in nanoseconds: a number of them, or text with its unit.
///
/// # Errors
/// Anything else.
pub fn deserialize_time_ns<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let read = match Written::deserialize(from)? {
        Written::Number(ns) if ns.fract() == 0.0 && (0.0..=LONGEST_NS).contains(&ns) => {
            Ok(ns as u64)
        }
        Written::Number(ns) => Err(format!("{ns} is not a whole number of nanoseconds from 0 up")),
        Written::Text(text) => parse_time_ns(&text),
    };
    read.map_err(D::Error::custom)
}

/// Reads a size of a file: a number of bytes, or text with its unit.
///
/// # Errors
/// Anything else.
pub fn deserialize_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let read = match Written::deserialize(from)? {
        Written::Number(bytes) if bytes.fract() == 0.0 && (0.0..=4294967295.0).contains(&bytes) => {
            Ok(bytes as u32)
        }
        Written::Number(bytes) => Err(format!("{bytes} is not a whole number of bytes from 0 up")),
        Written::Text(text) => parse_bytes(&text),
    };
    read.map_err(D::Error::custom)
}

/// Reads a share: `99`, `99.9%`.
///
/// # Errors
/// What is none.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
        _ => Err(format!("\"{text}\" is not a percentage; give a number from 0 to 100")),
    }
}

/// Reads a count of at least one.
///
/// # Errors
/// Anything else.
pub fn at_least_one(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(number) if number >= 1 => Ok(number),
        _ => {
            Err(format!("\"{text}\" is not a whole number of at least 1 and at most {}", u32::MAX))
        }
    }
}

/// Reads a count.
///
/// # Errors
/// Anything else.
pub fn count(text: &str) -> Result<u32, String> {
    text.parse::<u32>()
        .map_err(|_| format!("\"{text}\" is not a whole number from 0 to {}", u32::MAX))
}

/// Whole blocks of direct I/O, and whole pages of page caches.
///
/// # Errors
/// Anything else.
pub fn parse_blocks(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text)?;
    if bytes.is_multiple_of(4096) {
        return Ok(bytes);
    }
    Err(format!("\"{text}\" is not a multiple of 4 KiB, which reads here have (4k, 64k, 1m)"))
}

/// So many of a kind: `1 page`, `4 pages`.
pub fn several(count: f64, kind: &str) -> String {
    let plural = if count == 1.0 { "" } else { "s" };
    format!("{} {kind}{plural}", trimmed(count))
}

/// Reads a size in bytes below 4 GiB: `4096`, `4k`, `1m` (binary multiples).
pub fn parse_bytes(text: &str) -> Result<u32, String> {
    let bytes = parse_long_bytes(text)?;
    bytes.try_into().map_err(|_| format!("\"{text}\" is too large; give less than 4g"))
}

/// Reads a size in bytes: `4096`, `4k`, `1m`, `2g` (binary multiples).
pub fn parse_long_bytes(text: &str) -> Result<u64, String> {
    let scaled = number_and_unit(text).and_then(|(number, unit)| {
        let scale = match unit {
            "" | "b" | "B" => 1.0,
            "k" | "K" | "KiB" => 1024.0,
            "m" | "M" | "MiB" => 1024.0 * 1024.0,
            "g" | "G" | "GiB" => 1024.0 * 1024.0 * 1024.0,
            _ => return None,
        };
        let bytes = number * scale;
        // Up to there all whole numbers are exact.
        (bytes.fract() == 0.0 && (1.0..=2f64.powi(53)).contains(&bytes)).then_some(bytes as u64)
    });
    scaled.ok_or_else(|| {
        format!("\"{text}\" is not a size; give bytes, or a number with k, m or g (4k, 64k, 1m)")
    })
}

/// Reads a positive number of seconds that something is to be measured: `0.5`, `2`.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.trim().trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err(format!(
            "\"{text}\" is not a time here: give seconds above 0 and at most 3600 (0.5)"
        )),
    }
}

/// Reads after how many seconds something is to happen: `0.5`, `2`. Not in less than a millisecond: to do something
/// that often leaves no time for anything else.
pub fn parse_wait(text: &str) -> Result<Duration, String> {
    match text.trim().trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!(
            "\"{text}\" is not a time here: give seconds, at least 0.001 and at most 3600 (0.5)"
        )),
    }
}

/// Reads a plain number, a size, a time (in ns) or pauses: the values that study files use.
pub fn parse_quantity(text: &str) -> Result<f64, String> {
    if let Ok(number) = text.trim().parse::<f64>() {
        return Ok(number);
    }
    if let Ok(bytes) = parse_bytes(text) {
        return Ok(f64::from(bytes));
    }
    match text.parse() {
        Ok(Length::Pauses(pauses)) => Ok(f64::from(pauses)),
        Ok(Length::Nanoseconds(ns)) => Ok(ns as f64),
        Err(_) => Err(format!(
            "\"{text}\" is not a quantity; give a number, a size (64k), a time (300us) or pauses (10p)"
        )),
    }
}

/// The number that a published figure begins with: 11 of `11 MB/s`.
pub fn leading_number(text: &str) -> Option<f64> {
    number_and_unit(text).map(|(number, _)| number)
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

/// Minutes and seconds: `4 min 50 s`, `7 s`.
pub fn format_minutes(seconds: f64) -> String {
    let seconds = seconds.ceil().max(1.0) as u64;
    match (seconds / 60, seconds % 60) {
        (0, rest) => format!("{rest} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, rest) => format!("{minutes} min {rest} s"),
    }
}

/// A thing in its singular or plural: `batch`, `batches`.
///
/// ```
/// use fairlock_report::units::plural;
/// assert_eq!([plural(1, "run"), plural(0, "run"), plural(2, "batch")], ["run", "runs", "batches"]);
/// ```
pub fn plural(count: u64, thing: &str) -> String {
    let hisses = ["ch", "ss"].iter().any(|end| thing.ends_with(end));
    match (count, hisses) {
        (1, _) => thing.to_owned(),
        (_, true) => format!("{thing}es"),
        (_, false) => format!("{thing}s"),
    }
}

/// So many of a thing: `1 reader`, `2 readers`, `0 batches`.
pub fn counted(count: u64, thing: &str) -> String {
    format!("{count} {}", plural(count, thing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_times_and_pauses_are_read_with_their_units() {
        assert_eq!(parse_bytes("64k"), Ok(65536));
        assert_eq!(parse_bytes("1m"), Ok(1 << 20));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_time_ns("300us"), Ok(300_000));
        assert_eq!(parse_time_ns("4 ms"), Ok(4_000_000));
        assert_eq!(parse_quantity("64k"), Ok(65536.0));
        assert_eq!(parse_quantity("300us"), Ok(300_000.0));
        assert_eq!(parse_quantity("10p"), Ok(10.0));
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        assert_eq!(parse_wait("0.001"), Ok(Duration::from_millis(1)));
        assert_eq!(parse_wait("3600s"), Ok(Duration::from_secs(3600)));
    }

    fn length(text: &str) -> Result<Length, String> {
        text.parse()
    }

    #[test]
    fn lengths_are_read_and_written_alike() {
        for (text, expected) in [
            ("7p", Length::Pauses(7)),
            ("300ns", Length::Nanoseconds(300)),
            ("1.5us", Length::Nanoseconds(1500)),
            ("20 µs", Length::Nanoseconds(20_000)),
            ("1ms", Length::Nanoseconds(1_000_000)),
        ] {
            assert_eq!(length(text), Ok(expected));
            assert_eq!(length(&expected.to_string()), Ok(expected));
        }
    }

    #[test]
    fn a_bad_unit_is_named_together_with_the_valid_ones() {
        for (error, value, choice) in [
            (parse_bytes("64q").unwrap_err(), "64q", "64k"),
            (parse_bytes("0").unwrap_err(), "0", "4k"),
            (parse_time_ns("300").unwrap_err(), "300", "us"),
            (length("10x").unwrap_err(), "10x", "10p"),
            (length("").unwrap_err(), "", "10p"),
            (length("10").unwrap_err(), "10", "10p"),
            (length("-3us").unwrap_err(), "-3us", "10p"),
            (length("1.5p").unwrap_err(), "1.5p", "10p"),
            (length("99999999999999999999ns").unwrap_err(), "99999999999999999999ns", "10p"),
            (parse_seconds("0").unwrap_err(), "0", "above 0"),
            (parse_seconds("nan").unwrap_err(), "nan", "above 0"),
            (parse_seconds("-1").unwrap_err(), "-1", "above 0"),
            (parse_wait("1e-10").unwrap_err(), "1e-10", "at least 0.001"),
            (parse_wait("0.00099").unwrap_err(), "0.00099", "at least 0.001"),
            (parse_wait("nan").unwrap_err(), "nan", "at least 0.001"),
            (parse_wait("3601").unwrap_err(), "3601", "at most 3600"),
        ] {
            assert!(error.contains(&format!("\"{value}\"")), "{error}");
            assert!(error.contains(choice), "{error}");
        }
    }

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
    fn long_times_are_in_minutes_and_seconds() {
        assert_eq!(format_minutes(290.0), "4 min 50 s");
    }

    #[test]
    fn lengths_given_as_time_become_pauses() {
        assert_eq!(Length::Nanoseconds(200).pauses(20.0), 10);
        assert_eq!(Length::Pauses(7).pauses(20.0), 7);
    }
}
