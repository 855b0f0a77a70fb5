//! What was found as JSON Lines: `{"doctor": …}` first, which says what was looked at, then one line for each diagnosis
//! and lock.
//!
//! Names end in their unit: `wait_ns`. A reader skips lines and fields that it does not know, since later versions may
//! add some. [`FORMAT`] changes when the meaning of something changes.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use fairlock_report::recording::{of_line, parsed};
use serde::{Deserialize, Serialize};

use crate::doctor::found::{Diagnosis, FORMAT, Found, Lock, Looked};

/// How the first line of such a file begins.
const BEGINNING: &[u8] = b"{\"doctor\":";

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Written<'a> {
    Doctor(&'a Looked),
    Diagnosis(&'a Diagnosis),
    Lock(&'a Lock),
}

/// One of these, or none in a line of an unknown kind.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    doctor: Option<Looked>,
    diagnosis: Option<Diagnosis>,
    lock: Option<Lock>,
}

impl Found {
    /// Writes it, one object a line.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_lines(&self, to: &mut impl Write) -> io::Result<()> {
        let looked = Looked { format: FORMAT, ..self.looked.clone() };
        let lines = [Written::Doctor(&looked)].into_iter();
        let lines = lines
            .chain(self.diagnoses.iter().map(Written::Diagnosis))
            .chain(self.locks.iter().map(Written::Lock));
        for line in lines {
            serde_json::to_writer(&mut *to, &line)?;
            to.write_all(b"\n")?;
        }
        Ok(())
    }

    /// What is in this file; none if its first line is not one of the doctor's.
    ///
    /// # Errors
    /// The file, the line, and what is wrong with it.
    pub fn read(path: &Path) -> Result<Option<Found>, String> {
        let named = |error: &dyn fmt::Display| format!("cannot read {}: {error}", path.display());
        let mut file = BufReader::new(File::open(path).map_err(|error| named(&error))?);
        let start = file.fill_buf().map_err(|error| named(&error))?;
        if !start.starts_with(BEGINNING) {
            return Ok(None);
        }
        Found::read_lines(file).map(Some).map_err(|error| named(&error))
    }

    /// What wrote these lines.
    ///
    /// # Errors
    /// The line, and what is wrong with it.
    pub fn read_lines(from: impl BufRead) -> Result<Found, String> {
        let mut found: Option<Found> = None;
        for (number, line) in (1..).zip(from.lines()) {
            let wrong = |error: &dyn fmt::Display| of_line(&format!("line {number}"), error);
            let line = line.map_err(|error| wrong(&error))?;
            let line: Line = parsed(&line).map_err(|error| wrong(&error))?;
            match (&mut found, line.doctor) {
                (None, Some(looked)) if looked.format == FORMAT => {
                    found = Some(Found { looked, ..Found::default() });
                }
                (None, Some(looked)) => {
                    let format = looked.format;
                    return Err(wrong(&format!(
                        "format {format}; this version reads format {FORMAT}"
                    )));
                }
                (None, None) | (Some(_), Some(_)) => {
                    return Err(wrong(&"the first line, and no other, says what was looked at"));
                }
                (Some(found), None) => {
                    found.diagnoses.extend(line.diagnosis);
                    found.locks.extend(line.lock);
                }
            }
        }
        found.ok_or_else(|| "there is no line".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    fn lines(found: &Found) -> String {
        let mut text = Vec::new();
        found.write_lines(&mut text).expect("memory can be written");
        String::from_utf8(text).expect("JSON is text")
    }

    #[test]
    fn it_is_the_same_after_it_was_written_and_read() {
        let found = example::found();
        let text = lines(&found);
        let kinds: Vec<&str> = text.lines().filter_map(|line| line.split('"').nth(1)).collect();
        assert_eq!(kinds, ["doctor", "diagnosis", "diagnosis", "lock", "lock"]);
        assert_eq!(Found::read_lines(text.as_bytes()), Ok(found.clone()));
        assert!(text.as_bytes().starts_with(BEGINNING));
        // Where nobody said which format it is, it is this one.
        let mut unsaid = found.clone();
        unsaid.looked.format = 0;
        assert_eq!(Found::read_lines(lines(&unsaid).as_bytes()), Ok(found));
    }

    #[test]
    fn a_file_of_something_else_is_none_and_a_broken_one_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("found.jsonl");
        let read = |text: &str| {
            std::fs::write(&path, text).expect("a writable folder");
            Found::read(&path)
        };
        let found = example::found();
        let text = lines(&found);
        assert_eq!(read(&text), Ok(Some(found)));
        assert_eq!(read("{\"run\": {}}\n"), Ok(None));
        assert_eq!(read(""), Ok(None));
        let cut = read(&format!("{text}{{\"lock\":")).unwrap_err();
        assert!(cut.ends_with("found.jsonl: line 6 ends too early"), "{cut}");
        assert!(Found::read(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn lines_of_an_unknown_kind_are_skipped_and_wrong_ones_are_named() {
        let found = example::found();
        let text = lines(&found);
        let with = |line: &str| Found::read_lines(format!("{text}{line}\n").as_bytes());
        assert_eq!(with("{\"later\": 1}"), Ok(found.clone()));
        assert!(with("{\"lock\": 1}").unwrap_err().starts_with("line 6: lock: "));
        assert!(with(text.lines().next().expect("a line")).unwrap_err().starts_with("line 6: "));
        let newer = text.replace("\"format\":1", "\"format\":2");
        assert!(Found::read_lines(newer.as_bytes()).unwrap_err().contains("format 2; this"));
        assert!(Found::read_lines(&b""[..]).is_err());
        let headless: Vec<&str> = text.lines().skip(1).collect();
        assert!(Found::read_lines(headless.join("\n").as_bytes()).is_err());
    }
}
