//! A recording: one JSON object a line, written as results appear, so that an interrupted run
//! keeps what it finished.
//!
//! The first line is `{"header": …}`. Every result is a bare [`Row`]. Two more kinds of line say
//! why rows are missing: `{"skipped": …}` and `{"cancelled": true}`. A `{"timeline": …}` is how a
//! run on a simulated machine began; earlier versions called it a strip.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::Machine;
use crate::params::Params;
use crate::printable::make_printable;
use crate::row::{HERE, Row};
use crate::timeline::Timeline;

/// The version of the format; readers refuse others.
const FORMAT: u32 = 1;

/// What to do about a file of another kind.
const WRITES_REPORTS: &str = "give a file that `fairlock study`, `replay`, `bench --out`, `run --report` or \
                              `doctor --report` wrote";

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format.
    pub format: u32,
    /// When the run started.
    pub date: String,
    /// The studies that ran; empty for a bench.
    pub studies: Vec<String>,
    /// What stands in the files of those that are not part of the program, by their names: with it the rows can be
    /// judged wherever the recording is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub study_files: BTreeMap<String, Value>,
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
        Header {
            format: FORMAT,
            date,
            studies,
            study_files: BTreeMap::new(),
            quick,
            machine,
            others_busy_cpus: None,
        }
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
    /// What is odd about the file that was read, in sentences.
    pub remarks: Vec<String>,
}

/// A workload that could not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The workload.
    pub workload: String,
    /// The simulated machine, if it was to run on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Why, in words.
    pub reason: String,
}

impl Skipped {
    /// The machine it was to run on, as rows name it.
    pub fn machine(&self) -> &str {
        self.machine.as_deref().unwrap_or(HERE)
    }
}

/// Whether both names are of one file, by whatever links. Of files that do not exist, whether the names are the same.
pub fn is_one_file(one: &Path, other: &Path) -> bool {
    match (std::fs::metadata(one), std::fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => one == other,
        _ => false,
    }
}

/// Whether a file can be written, which is left as it is.
///
/// # Errors
/// The operating system's.
pub fn probe_file(path: &Path) -> io::Result<()> {
    let existed = path.symlink_metadata().is_ok();
    OpenOptions::new().append(true).create(true).open(path)?;
    match existed {
        true => Ok(()),
        false => std::fs::remove_file(path),
    }
}

/// Refuses a name for rows that promises something else, so that the page of them does not come into their place.
///
/// # Errors
/// What to name it.
pub fn check_rows_name(path: &Path) -> Result<(), String> {
    const OTHERS: [&str; 5] = ["html", "htm", "md", "pdf", "csv"];
    let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
    match OTHERS.contains(&extension.to_ascii_lowercase().as_str()) {
        false => Ok(()),
        true => Err(format!(
            "{}: rows are lines of JSON; give a file whose name ends in .jsonl (`fairlock report` makes a page of it)",
            path.display()
        )),
    }
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
    /// Adds a row, or puts it in the place of one with fewer repetitions of the same cell; `places` says where the first
    /// row of each cell is.
    fn add(&mut self, row: Row, places: &mut HashMap<String, usize>) {
        let key = format!("{}\n{}\n{}\n{:?}", row.machine, row.workload, row.lock, row.params);
        match places.entry(key) {
            Entry::Occupied(place) if self.rows[*place.get()].repetitions < row.repetitions => {
                self.rows[*place.get()] = row;
            }
            Entry::Occupied(_) => {
                self.remarks.push(format!(
                    "several rows of `{}` under {} with the same parameters: claims take none of them",
                    row.lock, row.workload
                ));
                self.rows.push(row);
            }
            Entry::Vacant(place) => {
                place.insert(self.rows.len());
                self.rows.push(row);
            }
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
            remarks: Vec::new(),
        }
    }

    /// Reads a file that [`Writer`] wrote. A last line cut short by a crash is ignored.
    ///
    /// `current` gives the parameters of a workload, which a former version may have written, as they are spelled
    /// now.
    ///
    /// # Errors
    /// The file, the line, the field and what is wrong with it.
    pub fn read(
        path: &Path,
        current: impl Fn(&str, Params) -> Params,
    ) -> Result<Recording, String> {
        let named = |error: &dyn fmt::Display| format!("cannot read {}: {error}", path.display());
        let file = File::open(path).map_err(|error| named(&error))?;
        Recording::read_lines(BufReader::new(file), &path.display().to_string(), current)
    }

    /// The recording that wrote these lines, which come from a file that is called so.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_lines(
        from: impl BufRead,
        name: &str,
        current: impl Fn(&str, Params) -> Params,
    ) -> Result<Recording, String> {
        let lines: Vec<String> =
            from.lines().collect::<Result<_, _>>().map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => format!("{name} is not a report; {WRITES_REPORTS}"),
                _ => format!("cannot read {name}: {error}"),
            })?;
        let mut recording: Option<Recording> = None;
        let mut places = HashMap::new();
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
                Err(error) if number == last && error.is_eof() => {
                    recording
                        .remarks
                        .push(format!("{name}, line {number} is cut off and left out"));
                    continue;
                }
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
                        let params = current(&timeline.workload, timeline.params);
                        recording.timelines.push(Timeline { params, ..timeline });
                    }
                    Note::Header(_) => return Err(wrong(&"header: there is one already")),
                }
                continue;
            }
            let row: Row = from_value(value).map_err(|error| wrong(&error))?;
            let before = recording.rows.iter().find_map(|before| before.events.as_ref());
            row.check(before).map_err(|error| wrong(&error))?;
            let params = current(&row.workload, row.params);
            recording.add(Row { params, ..row }, &mut places);
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
pub fn parsed<T: DeserializeOwned>(line: &str) -> Result<T, String> {
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
pub fn of_line(line: &str, error: &dyn fmt::Display) -> String {
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
///
/// An older recording in its place stays whole until there is a result.
#[derive(Debug)]
pub struct Writer {
    /// None: the standard output.
    path: Option<PathBuf>,
    /// None as long as the older one is there.
    file: Option<File>,
    /// What comes before the first result.
    pending: Vec<u8>,
}

impl Writer {
    /// Creates the file, if there is none, and writes the header.
    ///
    /// # Errors
    /// The operating system's.
    pub fn create(path: &Path, header: &Header) -> io::Result<Writer> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let replaces_another = file.metadata()?.len() > 0;
        let mut writer = Writer {
            path: Some(path.to_owned()),
            file: (!replaces_another).then_some(file),
            pending: Vec::new(),
        };
        writer.line(&Note::Header(header.clone()))?;
        Ok(writer)
    }

    /// Writes the header to the standard output, where the results will follow. That nobody reads on is no failure.
    ///
    /// # Errors
    /// The operating system's.
    pub fn to_stdout(header: &Header) -> io::Result<Writer> {
        let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut writer = Writer { path: None, file: Some(stdout), pending: Vec::new() };
        writer.line(&Note::Header(header.clone()))?;
        Ok(writer)
    }

    /// Its file; none: the standard output.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether an older recording is in the file still.
    pub fn left_the_older(&self) -> bool {
        self.file.is_none()
    }

    /// Writes the file anew, without the rows that later ones replace. Whatever goes wrong, a whole recording
    /// is in it. What was printed stays as it is.
    ///
    /// # Errors
    /// The operating system's.
    pub fn compact(&mut self, recording: &Recording) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        // Not in the place of a link to it.
        let path = path.canonicalize()?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = path.with_file_name(name);
        let mut writer = Writer {
            path: Some(new.clone()),
            file: Some(File::create(&new)?),
            pending: Vec::new(),
        };
        let written = writer.all(recording).and_then(|()| std::fs::rename(&new, &path));
        match written {
            Ok(()) => self.file = writer.file,
            Err(_) => _ = std::fs::remove_file(&new),
        }
        written
    }

    fn all(&mut self, recording: &Recording) -> io::Result<()> {
        self.line(&Note::Header(recording.header.clone()))?;
        recording.rows.iter().try_for_each(|row| self.row(row))?;
        recording.skipped.iter().try_for_each(|skipped| self.skipped(skipped))?;
        recording.timelines.iter().try_for_each(|timeline| self.timeline(timeline))?;
        match recording.cancelled {
            true => self.cancelled(),
            false => Ok(()),
        }
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        match &mut self.file {
            Some(file) => match file.write_all(&line) {
                Err(error) if self.path.is_none() && error.kind() == io::ErrorKind::BrokenPipe => {
                    Ok(())
                }
                written => written,
            },
            None => {
                self.pending.append(&mut line);
                Ok(())
            }
        }
    }

    /// Gives the older recording up.
    fn begin(&mut self) -> io::Result<()> {
        if let (None, Some(path)) = (&self.file, &self.path) {
            let file = self.file.insert(File::create(path)?);
            file.write_all(&self.pending)?;
        }
        Ok(())
    }

    /// Writes a result.
    ///
    /// # Errors
    /// The operating system's.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        self.begin()?;
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
