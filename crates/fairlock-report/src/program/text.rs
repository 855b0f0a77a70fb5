//! A program as a file has it: TOML.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::steps;
use super::{Arrivals, FORMAT, Invalid, Kind, Locks, Program, Recorded, Step};

/// What a file says first.
const LEGEND: &str = "\
# What the threads of a program do with its locks. `fairlock replay` runs this file.
# Correct anything that does not match your program.
#
#   arrivals   \"closed\": a thread is away for as long as it was. \"open\": it comes back when it did, or at once if late.
#   [[lock]]   shared = \"all\", \"nobody\" (each thread has its own), or \"groups of N\" threads that share one.
#   [[kind]]   Threads that do the same. scales = false: as many as here, however many threads a replay has.
#   steps      One sequence for each recorded thread, which starts again when it is done:
#                r3 w3   acquires lock 3 for reading, for writing; r3? and w3? try to, and go on without it if refused
#                .3      releases lock 3
#                120     computes for 120 ns
#                ~5000   is away for 5000 ns: sleeps, or waits for I/O or another thread
";

/// Columns of a line of steps.
const WIDTH: usize = 110;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Looked at before.
    #[serde(rename = "format")]
    _format: u32,
    #[serde(default)]
    arrivals: Arrivals,
    recorded: Option<Recorded>,
    #[serde(default, rename = "lock")]
    locks: Vec<Locks>,
    #[serde(default, rename = "kind")]
    kinds: Vec<FileKind>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileKind {
    name: String,
    threads: u32,
    #[serde(default = "yes")]
    scales: bool,
    steps: Vec<String>,
}

fn yes() -> bool {
    true
}

impl FromStr for Program {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Program, Invalid> {
        /// So that a file of another version is not called wrong.
        #[derive(Deserialize)]
        struct Version {
            format: Option<u32>,
        }
        let version: Version = toml::from_str(text).map_err(|error| in_one_line(text, &error))?;
        match version.format {
            Some(FORMAT) => {}
            Some(other) => {
                return Err(Invalid(format!(
                    "it has format {other}, and this version of fairlock reads format {FORMAT}: record it anew"
                )));
            }
            None => {
                return Err(Invalid(format!(
                    "`format = {FORMAT}` is missing: give a file that `fairlock run --record` wrote, or one like it"
                )));
            }
        }
        let file: File = toml::from_str(text).map_err(|error| in_one_line(text, &error))?;
        let kind = |kind: FileKind| {
            let FileKind { name, threads, scales, steps } = kind;
            let sequence = |(number, text): (usize, &String)| {
                steps::parse(text).map_err(|Invalid(what)| {
                    Invalid(format!("kind \"{name}\": sequence {}, {what}", number + 1))
                })
            };
            let sequences = steps.iter().enumerate().map(sequence).collect::<Result<_, _>>()?;
            Ok(Kind { name, threads, scales, sequences })
        };
        let program = Program {
            recorded: file.recorded,
            arrivals: file.arrivals,
            locks: file.locks,
            kinds: file.kinds.into_iter().map(kind).collect::<Result<_, _>>()?,
        };
        program.check()?;
        Ok(program)
    }
}

/// An error of the parser, which shows the place in several lines.
fn in_one_line(text: &str, error: &toml::de::Error) -> Invalid {
    let line =
        error.span().map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count());
    let message = error.message().trim().replace('\n', "; ");
    Invalid(match line {
        Some(line) => format!("line {line}: {message}"),
        None => message,
    })
}

/// A table of TOML without its heading.
fn table(of: &impl Serialize) -> String {
    toml::to_string(of).expect("plain values are TOML")
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[derive(Serialize)]
        struct Head {
            format: u32,
            arrivals: Arrivals,
        }
        #[derive(Serialize)]
        struct HeadOfKind<'a> {
            name: &'a str,
            threads: u32,
            scales: bool,
        }
        let head = Head { format: FORMAT, arrivals: self.arrivals };
        writeln!(f, "{LEGEND}\n{}", table(&head))?;
        if let Some(recorded) = &self.recorded {
            writeln!(f, "[recorded]\n{}", table(recorded))?;
        }
        for locks in &self.locks {
            writeln!(f, "[[lock]]\n{}", table(locks))?;
        }
        for Kind { name, threads, scales, sequences } in &self.kinds {
            let head = HeadOfKind { name, threads: *threads, scales: *scales };
            writeln!(f, "[[kind]]\n{}steps = [", table(&head))?;
            for steps in sequences {
                writeln!(f, "\"\"\"")?;
                write_steps(f, steps)?;
                writeln!(f, "\"\"\",")?;
            }
            writeln!(f, "]\n")?;
        }
        Ok(())
    }
}

fn write_steps(f: &mut fmt::Formatter<'_>, steps: &[Step]) -> fmt::Result {
    let mut column = 0;
    let mut word = String::new();
    for step in steps {
        use fmt::Write;
        word.clear();
        write!(word, "{step}")?;
        if column > 0 && column + 1 + word.len() > WIDTH {
            f.write_str("\n")?;
            column = 0;
        } else if column > 0 {
            f.write_str(" ")?;
            column += 1;
        }
        f.write_str(&word)?;
        column += word.len();
    }
    if column > 0 { f.write_str("\n") } else { Ok(()) }
}
