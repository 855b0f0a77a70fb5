//! A report as JSON Lines: `{"run": …}` first, then one line for each process, lock and comparison.
//!
//! Names end in their unit: `wait_ns`, `wall_s`. A reader skips lines and fields that it does not know,
//! since later versions may add some. [`FORMAT`] changes when the meaning of something changes.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use fairlock_report::recording::{of_line, parsed};
use serde::{Deserialize, Serialize};

use super::Report;
use crate::facts::{Compared, Lock, Process, Run};

/// The version of the format; readers refuse others.
pub const FORMAT: u32 = 1;

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Written<'a> {
    Run(&'a Run),
    Process(&'a Process),
    Lock(&'a Lock),
    Comparison(&'a Compared),
}

/// One of these, or none in a line of an unknown kind.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    run: Option<Run>,
    process: Option<Process>,
    lock: Option<Lock>,
    comparison: Option<Compared>,
}

impl Report {
    /// Writes it, one object a line.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_lines(&self, to: &mut impl Write) -> io::Result<()> {
        let run = [Written::Run(&self.run)].into_iter();
        let lines = run
            .chain(self.processes.iter().map(Written::Process))
            .chain(self.locks.iter().map(Written::Lock))
            .chain(self.comparison.iter().map(Written::Comparison));
        for line in lines {
            serde_json::to_writer(&mut *to, &line)?;
            to.write_all(b"\n")?;
        }
        Ok(())
    }

    /// The report in this file; none if its first line is not one of a report on a run.
    ///
    /// # Errors
    /// The file, the line, and what is wrong with it.
    pub fn read(path: &Path) -> Result<Option<Report>, String> {
        let named = |error: &dyn fmt::Display| format!("cannot read {}: {error}", path.display());
        let mut file = BufReader::new(File::open(path).map_err(|error| named(&error))?);
        let start = file.fill_buf().map_err(|error| named(&error))?;
        if !start.starts_with(b"{\"run\":") {
            return Ok(None);
        }
        Report::read_lines(file).map(Some).map_err(|error| named(&error))
    }

    /// The report that wrote these lines.
    ///
    /// # Errors
    /// The line, and what is wrong with it.
    pub fn read_lines(from: impl BufRead) -> Result<Report, String> {
        let mut report: Option<Report> = None;
        for (number, line) in (1..).zip(from.lines()) {
            let wrong = |error: &dyn fmt::Display| of_line(&format!("line {number}"), error);
            let line = line.map_err(|error| wrong(&error))?;
            let line: Line = parsed(&line).map_err(|error| wrong(&error))?;
            match (&mut report, line.run) {
                (None, Some(run)) if run.format == FORMAT => {
                    let (processes, locks) = (Vec::new(), Vec::new());
                    report = Some(Report { run, processes, locks, comparison: None });
                }
                (None, Some(run)) => {
                    let format = run.format;
                    return Err(wrong(&format!(
                        "format {format}; this version reads format {FORMAT}"
                    )));
                }
                (None, None) | (Some(_), Some(_)) => {
                    return Err(wrong(&"the first line, and no other, says what ran"));
                }
                (Some(report), None) => {
                    report.processes.extend(line.process);
                    report.locks.extend(line.lock);
                    report.comparison = line.comparison.or(report.comparison.take());
                }
            }
        }
        report.ok_or_else(|| "there is no line".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn report() -> Report {
        let mut snapshot = example::snapshot();
        snapshot.locks = vec![example::starving_writer(), example::lock(3, 5, 5)];
        let compared = example::comparison();
        Report::new(&[snapshot], Some(&compared), &["server".to_owned()])
    }

    fn lines(report: &Report) -> String {
        let mut text = Vec::new();
        report.write_lines(&mut text).expect("memory can be written");
        String::from_utf8(text).expect("JSON is text")
    }

    #[test]
    fn a_report_is_the_same_after_it_was_written_and_read() {
        let report = report();
        let text = lines(&report);
        let kinds: Vec<&str> = text.lines().filter_map(|line| line.split('"').nth(1)).collect();
        assert_eq!(kinds, ["run", "process", "lock", "lock", "comparison"]);
        assert_eq!(Report::read_lines(text.as_bytes()), Ok(report));
    }

    #[test]
    fn a_file_of_something_else_is_no_report_and_a_broken_one_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("report.jsonl");
        let read = |text: &str| {
            std::fs::write(&path, text).expect("a writable folder");
            Report::read(&path)
        };
        let report = report();
        let text = lines(&report);
        assert_eq!(read(&text), Ok(Some(report)));
        assert_eq!(read("{\"header\": {}}\n"), Ok(None));
        let cut = read(&format!("{text}{{\"lock\":")).unwrap_err();
        assert!(cut.ends_with("report.jsonl: line 6 ends too early"), "{cut}");
        let wrong = read(&format!("{text}[1 2]")).unwrap_err();
        assert!(
            wrong.contains("report.jsonl: line 6: ") && wrong.ends_with(" at column 4"),
            "{wrong}"
        );
        assert!(Report::read(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn lines_of_an_unknown_kind_are_skipped_and_wrong_ones_are_named() {
        let report = report();
        let text = lines(&report);
        let with = |line: &str| Report::read_lines(format!("{text}{line}\n").as_bytes());
        assert_eq!(with("{\"later\": 1}"), Ok(report.clone()));
        assert!(with("{\"lock\": 1}").unwrap_err().starts_with("line 6: "));
        let error = with(&lines(&report).lines().nth(2).expect("a lock").replacen(
            "\"sum_ns\":",
            "\"sum_ns\":-",
            1,
        ));
        assert!(error.unwrap_err().starts_with("line 6: lock.reads.wait.sum_ns: "));
        assert!(Report::read_lines(&b""[..]).is_err());
        let newer = text.replace("\"format\":1", "\"format\":2");
        assert!(Report::read_lines(newer.as_bytes()).unwrap_err().contains("format 2"));
        let headless: Vec<&str> = text.lines().skip(1).collect();
        assert!(Report::read_lines(headless.join("\n").as_bytes()).is_err());
    }
}
