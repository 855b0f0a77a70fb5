//! A recording: one JSON object a line, written as results appear, so that an interrupted run
//! keeps what it finished.
//!
//! The first line is `{"header": …}`. Every result is a bare [`Row`]. Two more kinds of line say
//! why rows are missing: `{"skipped": …}` and `{"cancelled": true}`. A `{"timeline": …}` is how a
//! run on a simulated machine began; earlier versions called it a strip.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::Machine;
use crate::printable::make_printable;
use crate::registry;
use crate::row::Row;
pub use crate::study::claim::Skipped;
use crate::timeline::Timeline;

/// The version of the format; readers refuse others.
const FORMAT: u32 = 1;

/// What to do about a file of another kind.
const WRITES_REPORTS: &str = "give a file that `fairlock study`, `fairlock bench --out` or `fairlock run \
                              --report` wrote";

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format.
    pub format: u32,
    /// When the run started.
    pub date: String,
    /// The studies that ran; empty for a bench.
    pub studies: Vec<String>,
    /// Whether it was a `--quick` run.
    pub quick: bool,
    /// The machine it ran on.
    pub machine: Machine,
    /// CPUs that other programs kept busy when the run began; none: nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_busy_cpus: Option<f64>,
}

impl Header {
    /// A header for a run that starts now.
    pub fn now(studies: Vec<String>, quick: bool, machine: Machine) -> Header {
        let date = crate::machine::date();
        Header { format: FORMAT, date, studies, quick, machine, others_busy_cpus: None }
    }
}

/// Everything a run left.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// The first line.
    pub header: Header,
    /// The results in the order they were finished.
    pub rows: Vec<Row>,
    /// What could not run.
    pub skipped: Vec<Skipped>,
    /// Whether the run was stopped early.
    pub cancelled: bool,
    /// How runs on simulated machines began, where that was asked for.
    pub timelines: Vec<Timeline>,
}

/// What a line can be, but for a [`Row`].
const NOTES: [&str; 5] = ["header", "skipped", "cancelled", "timeline", "strip"];

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Note {
    Header(Header),
    Skipped(Skipped),
    Cancelled(bool),
    #[serde(alias = "strip")]
    Timeline(Timeline),
}

impl Recording {
    /// Adds a row, or puts it in the place of one with fewer repetitions of the same cell.
    fn add(&mut self, row: Row) {
        match self.rows.iter_mut().find(|known| known.is_of_one_cell_with(&row)) {
            Some(known) if known.repetitions < row.repetitions => *known = row,
            _ => self.rows.push(row),
        }
    }

    /// A recording without results yet.
    pub fn new(header: Header) -> Recording {
        Recording {
            header,
            rows: Vec::new(),
            skipped: Vec::new(),
            cancelled: false,
            timelines: Vec::new(),
        }
    }

    /// Reads a file that [`Writer`] wrote. A last line cut short by a crash is ignored.
    ///
    /// # Errors
    /// The file, the line, the field and what is wrong with it.
    pub fn read(path: &Path) -> Result<Recording, String> {
        let named = |error: &dyn fmt::Display| format!("cannot read {}: {error}", path.display());
        let file = File::open(path).map_err(|error| named(&error))?;
        Recording::read_lines(BufReader::new(file), &path.display().to_string())
    }

    /// The recording that wrote these lines, which come from a file that is called so.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_lines(from: impl BufRead, name: &str) -> Result<Recording, String> {
        let lines: Vec<String> =
            from.lines().collect::<Result<_, _>>().map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => format!("{name} is not a report; {WRITES_REPORTS}"),
                _ => format!("cannot read {name}: {error}"),
            })?;
        let mut recording: Option<Recording> = None;
        let last = lines.len();
        for (number, line) in (1..).zip(&lines) {
            if line.trim().is_empty() {
                continue;
            }
            let wrong =
                |error: &dyn fmt::Display| of_line(&format!("{name}, line {number}"), error);
            let Some(recording) = &mut recording else {
                recording = match parsed(line) {
                    Ok(Note::Header(header)) if header.format == FORMAT => {
                        Some(Recording::new(header))
                    }
                    Ok(Note::Header(header)) => {
                        return Err(format!(
                            "{name} has format {}; this version reads format {FORMAT}",
                            header.format
                        ));
                    }
                    _ => {
                        return Err(wrong(&format!("no header; {WRITES_REPORTS}")));
                    }
                };
                continue;
            };
            let value: Value = match serde_json::from_str(line) {
                Err(error) if number == last && error.is_eof() => continue,
                parsed => parsed.map_err(|error| wrong(&syntax_error(&error)))?,
            };
            check_figures(&value, "").map_err(|error| wrong(&error))?;
            let is_note =
                value.as_object().is_some_and(|it| NOTES.iter().any(|note| it.contains_key(*note)));
            if is_note {
                match from_value(value).map_err(|error| wrong(&error))? {
                    Note::Skipped(skipped) => recording.skipped.push(skipped),
                    Note::Cancelled(cancelled) => recording.cancelled = cancelled,
                    Note::Timeline(timeline) => {
                        timeline.check().map_err(|error| wrong(&format!("timeline.{error}")))?;
                        let params = registry::current(&timeline.workload, timeline.params);
                        recording.timelines.push(Timeline { params, ..timeline });
                    }
                    Note::Header(_) => return Err(wrong(&"header: there is one already")),
                }
                continue;
            }
            let row: Row = from_value(value).map_err(|error| wrong(&error))?;
            let before = recording.rows.iter().find_map(|before| before.events.as_ref());
            row.check(before).map_err(|error| wrong(&error))?;
            let params = registry::current(&row.workload, row.params);
            recording.add(Row { params, ..row });
        }
        recording.ok_or_else(|| format!("{name} is empty"))
    }
}

/// Whether all numbers are such as a run can have, so that sums and drawings of them can be made.
fn check_figures(value: &Value, path: &str) -> Result<(), String> {
    /// Three years in ns, and more bytes a second than memory has.
    const MOST: f64 = 1e17;
    /// Powers of two of a nanosecond, of which histograms have one each, and no list of figures is longer.
    const LONGEST: usize = 64;
    /// One for each repetition.
    const MOST_SAMPLES: usize = 10_000;
    let longest = if path.starts_with("samples.") { MOST_SAMPLES } else { LONGEST };
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match value {
        Value::Number(number) if number.as_f64().is_none_or(|it| it.abs() > MOST) => {
            Err(format!("{path}: {number} is not a figure of a run, which are {MOST:e} at most"))
        }
        Value::Array(values) if values.len() > longest && values.iter().all(Value::is_number) => {
            Err(format!("{path}: {} figures, but there are {longest} at most", values.len()))
        }
        Value::Array(values) => {
            let mut values = values.iter().enumerate();
            values.try_for_each(|(at, it)| check_figures(it, &format!("{path}[{at}]")))
        }
        // Any number is one.
        Value::Object(fields) => {
            let mut fields = fields.iter().filter(|(name, _)| *name != "seed");
            fields.try_for_each(|(name, it)| check_figures(it, &below(name)))
        }
        _ => Ok(()),
    }
}

/// What a line says, all texts of it printable.
///
/// # Errors
/// What is wrong with it, and with which field.
pub(crate) fn parsed<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    from_value(serde_json::from_str(line).map_err(|error| syntax_error(&error))?)
}

/// What is wrong with a line that is no JSON. Which line of the file that is, the caller knows.
fn syntax_error(error: &serde_json::Error) -> String {
    if error.is_eof() {
        return ENDS_TOO_EARLY.to_owned();
    }
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match message.strip_suffix(&place) {
        Some(message) => format!("{message} at column {}", error.column()),
        None => message,
    }
}

/// What is wrong with a line, which is called so.
pub(crate) fn of_line(line: &str, error: &dyn fmt::Display) -> String {
    match error.to_string() {
        error if error == ENDS_TOO_EARLY => format!("{line} {error}"),
        error => format!("{line}: {error}"),
    }
}

/// What is wrong with a line that was cut.
const ENDS_TOO_EARLY: &str = "ends too early";

fn from_value<T: DeserializeOwned>(mut value: Value) -> Result<T, String> {
    make_printable(&mut value);
    serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string() {
        path if path == "." => error.inner().to_string(),
        path => format!("{path}: {}", error.inner()),
    })
}

/// Writes a recording line by line; every line reaches the file before the next result is measured.
#[derive(Debug)]
pub struct Writer {
    file: File,
}

impl Writer {
    /// Creates the file and writes the header.
    ///
    /// # Errors
    /// The operating system's.
    pub fn create(path: &Path, header: &Header) -> io::Result<Writer> {
        let mut writer = Writer { file: File::create(path)? };
        writer.line(&Note::Header(header.clone()))?;
        Ok(writer)
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }

    /// Writes a result.
    ///
    /// # Errors
    /// The operating system's.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        self.line(row)
    }

    /// Writes how a run began.
    ///
    /// # Errors
    /// The operating system's.
    pub fn timeline(&mut self, timeline: &Timeline) -> io::Result<()> {
        self.line(&Note::Timeline(timeline.clone()))
    }

    /// Notes that a workload could not run.
    ///
    /// # Errors
    /// The operating system's.
    pub fn skipped(&mut self, skipped: &Skipped) -> io::Result<()> {
        self.line(&Note::Skipped(skipped.clone()))
    }

    /// Notes that the run was stopped early.
    ///
    /// # Errors
    /// The operating system's.
    pub fn cancelled(&mut self) -> io::Result<()> {
        self.line(&Note::Cancelled(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn recording() -> Recording {
        let mut recording =
            Recording::new(Header::now(vec!["s4".to_owned()], true, Machine::here(None)));
        recording.rows.push(example::row("mix", "std", &[("readers", 2.0), ("writers", 2.0)]));
        recording.skipped.push(Skipped {
            workload: "dio-kernel".to_owned(),
            machine: None,
            reason: "no O_DIRECT".to_owned(),
        });
        recording.cancelled = true;
        recording.timelines.push(example::timeline("mix", "rwsem", "eight-sockets"));
        recording
    }

    fn write(path: &Path, recording: &Recording) {
        let mut writer = Writer::create(path, &recording.header).unwrap();
        for row in &recording.rows {
            writer.row(row).unwrap();
        }
        for skipped in &recording.skipped {
            writer.skipped(skipped).unwrap();
        }
        for timeline in &recording.timelines {
            writer.timeline(timeline).unwrap();
        }
        writer.cancelled().unwrap();
    }

    #[test]
    fn what_is_written_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.jsonl");
        let recording = recording();
        write(&path, &recording);
        assert_eq!(Recording::read(&path).unwrap(), recording);
    }

    #[test]
    fn rows_of_older_versions_lack_what_was_added_since() {
        let row = &recording().rows[0];
        let mut old = serde_json::to_value(row).unwrap();
        assert!(old.as_object_mut().unwrap().remove("cpu").is_some());
        for role in old["roles"].as_object_mut().unwrap().values_mut() {
            for added in ["wait_histogram", "hold_histogram"] {
                assert!(role.as_object_mut().unwrap().remove(added).is_some(), "{added}");
            }
            assert!(role.get("convoy").is_none());
        }
        let read: Row = serde_json::from_value(old.clone()).unwrap();
        assert_eq!(read.cpu, None);
        assert!(read.roles.values().all(|role| role.hold_histogram.is_empty()));
        // What is not there is not written either.
        assert_eq!(serde_json::to_value(&read).unwrap(), old);
    }

    #[test]
    fn a_last_line_cut_short_loses_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.jsonl");
        let recording = recording();
        write(&path, &recording);
        let mut text = std::fs::read_to_string(&path).unwrap();
        let row = serde_json::to_string(&recording.rows[0]).unwrap();
        text.push_str(&row[..row.len() / 2]);
        std::fs::write(&path, &text).unwrap();
        assert_eq!(Recording::read(&path).unwrap().rows.len(), 1);
        text.push_str("\n{}\n");
        std::fs::write(&path, &text).unwrap();
        let error = Recording::read(&path).unwrap_err();
        assert!(error.contains("line 6"), "{error}");
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named_with_its_field() {
        let recording = recording();
        let header = serde_json::json!({"header": recording.header}).to_string();
        let row = serde_json::to_value(&recording.rows[0]).unwrap();
        let timeline = serde_json::json!({"timeline": recording.timelines[0]});
        let error = |values: &[&serde_json::Value]| {
            let values = values.iter().map(|value| format!("{value}\n"));
            let text = format!("{header}\n{}", values.collect::<String>());
            Recording::read_lines(text.as_bytes(), "rows.jsonl").unwrap_err()
        };
        let with = |value: &serde_json::Value, at: &str, new: serde_json::Value| {
            let mut value = value.clone();
            *value.pointer_mut(at).expect(at) = new;
            value
        };
        let counted = |counts: serde_json::Value| {
            let events = serde_json::json!({"seconds": 1.0, "operations": 1, "counts": counts});
            with(&row, "/events", events)
        };
        let (one, two) =
            (counted(serde_json::json!({"a": 1})), counted(serde_json::json!({"a": 1, "b": 2})));
        for (values, words) in [
            (&[&one, &two][..], "rows.jsonl, line 3: events.counts.b: "),
            (&[&two, &row, &one], "rows.jsonl, line 4: events.counts.b: missing"),
            (
                &[&with(&row, "/roles/reader/wait/p50", "x\u{1b}".into()), &row],
                "rows.jsonl, line 2: roles.reader.wait.p50: invalid type: string \"x\\\\x1b\"",
            ),
            (
                &[&with(&timeline, "/timeline/wake_ups/0/1", 7.into())],
                "rows.jsonl, line 2: timeline.wake_ups[0]: from thread 1 to thread 7",
            ),
            (
                &[&serde_json::json!({"header": recording.header})],
                "rows.jsonl, line 2: header: there is one already",
            ),
            (
                &[&with(&row, "/roles/reader/wait_histogram/1", u64::MAX.into())],
                "rows.jsonl, line 2: roles.reader.wait_histogram[1]: 18446744073709551615 is no",
            ),
            (&[&serde_json::json!({"skipped": 1})], "rows.jsonl, line 2: skipped"),
        ] {
            let said = error(values);
            assert!(said.starts_with(words), "{said}");
        }
    }

    #[test]
    fn a_file_that_is_no_recording_is_refused_with_what_would_be_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.jsonl");
        std::fs::write(&path, "hello\n").unwrap();
        let error = Recording::read(&path).unwrap_err();
        assert!(
            error.contains("rows.jsonl, line 1") && error.contains("fairlock study"),
            "{error}"
        );
        std::fs::write(&path, "").unwrap();
        assert!(Recording::read(&path).unwrap_err().contains("empty"));
        assert!(
            Recording::read(dir.path().join("none").as_path()).unwrap_err().contains("cannot read")
        );
    }
}
