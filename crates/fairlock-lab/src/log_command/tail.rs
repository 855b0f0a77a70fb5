//! `fairlock log tail`: records become standard output.

use std::collections::VecDeque;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::str;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fairlock_io::{LogErrorKind, LogReader, Position, Record};
use serde_json::json;

use super::{failure, refuse_files, unless_reader_left};
use crate::cli::Failure;

/// How long it may take until it is noticed that nobody reads the output any more.
const LOOK_AT_OUTPUT: Duration = Duration::from_secs(1);

/// Where the first batch of a segment begins.
const FIRST_BATCH: u64 = 4096;

/// Prints records of a log.
#[derive(Debug, Args)]
pub struct Tail {
    /// The log: its directory
    #[arg(value_name = "FILE")]
    path: PathBuf,
    /// Print so many of the last records
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, conflicts_with = "from")]
    lines: usize,
    /// Print all from a position on: of a record, or `start` or `end`
    #[arg(long, value_name = "POSITION", value_parser = from)]
    from: Option<From>,
    /// Go on with what is appended later, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// What stands around a record
    #[arg(long, value_enum, default_value = "lines")]
    format: Format,
    /// End each record with a zero byte instead of a newline
    #[arg(short = '0', long, conflicts_with = "format")]
    null: bool,
    /// Print its position and a tab before each record
    #[arg(long)]
    positions: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A newline behind each
    Lines,
    /// Nothing: its bytes alone
    Raw,
    /// An object in a line, with "position", and "text" or, if it is no UTF-8, "hex"
    Json,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum From {
    At(Position),
    End,
}

pub(super) fn from(text: &str) -> Result<From, String> {
    match text {
        "start" => Ok(From::At(Position::START)),
        "end" => Ok(From::End),
        _ => text.parse().map(|position| From::At(Position::new(position))).map_err(|_| {
            format!("\"{text}\" is no position; give start, end, or a number from --positions")
        }),
    }
}

impl Tail {
    pub fn run(&self) -> Result<(), Failure> {
        if self.positions && self.format == Format::Raw {
            let reason = "--positions needs to know where records end; use --format lines or json";
            return Err(Failure::Usage(reason.to_owned()));
        }
        refuse_files(&self.path)?;
        let mut reader = LogReader::open(&self.path).map_err(|error| failure(&error))?;
        match self.from {
            Some(From::At(position)) => reader.seek(position).map_err(|error| failure(&error))?,
            Some(From::End) => {
                reader.seek(reader.committed()).map_err(|error| failure(&error))?;
            }
            None => self.seek_to_last(&mut reader)?,
        }
        let mut output = BufWriter::with_capacity(64 << 10, io::stdout().lock());
        loop {
            match reader.next() {
                Ok(Some(record)) => {
                    if let Err(error) = self.print(&mut output, record) {
                        return unless_reader_left(Err(error));
                    }
                }
                Ok(None) => {
                    let flushed = output.flush();
                    if flushed.is_err() || !self.follow {
                        return unless_reader_left(flushed);
                    }
                    while !reader.wait(Some(LOOK_AT_OUTPUT)) {
                        if is_closed(output.get_ref()) {
                            return Ok(());
                        }
                    }
                }
                Err(error) => {
                    unless_reader_left(output.flush())?;
                    return Err(failure(&error));
                }
            }
        }
    }

    /// Goes to the first of the last records.
    fn seek_to_last(&self, reader: &mut LogReader) -> Result<(), Failure> {
        let summary = LogReader::summary(&self.path).map_err(|error| failure(&error))?;
        let end = reader.committed();
        let mut last = VecDeque::new();
        let mut until = end;
        let mut segment = end.get() / summary.segment_bytes;
        while last.len() < self.lines && until > reader.first() {
            let begin = Position::new(segment * summary.segment_bytes + FIRST_BATCH);
            let begin = if begin <= reader.first() { Position::START } else { begin };
            reader.seek(begin).map_err(|error| match error.kind() {
                LogErrorKind::NoRecord(_) => Failure::Run(format!(
                    "segment {segment} of {} does not begin with a record, so the last records are not \
                     found: `fairlock log verify` lists all damage, --from goes to a position",
                    self.path.display()
                )),
                _ => failure(&error),
            })?;
            let mut found = VecDeque::new();
            let most = self.lines - last.len();
            while let Some(record) = reader.next().map_err(|error| failure(&error))? {
                if record.position >= until {
                    break;
                }
                if found.len() == most {
                    found.pop_front();
                }
                found.push_back(record.position);
            }
            found.append(&mut last);
            last = found;
            if begin == Position::START {
                break;
            }
            until = begin;
            segment -= 1;
        }
        reader.seek(last.front().copied().unwrap_or(end)).map_err(|error| failure(&error))
    }

    fn print(&self, output: &mut impl Write, record: Record<'_>) -> io::Result<()> {
        let position = record.position.get();
        if self.format == Format::Json {
            let object = match str::from_utf8(record.bytes) {
                Ok(text) => json!({ "position": position, "text": text }),
                Err(_) => json!({ "position": position, "hex": hex(record.bytes) }),
            };
            return writeln!(output, "{object}");
        }
        if self.positions {
            write!(output, "{position}\t")?;
        }
        output.write_all(record.bytes)?;
        match (self.null, self.format) {
            (true, _) => output.write_all(&[0]),
            (false, Format::Raw) => Ok(()),
            (false, _) => output.write_all(b"\n"),
        }
    }
}

/// Whether nobody reads any more what is written there.
fn is_closed(output: &impl AsRawFd) -> bool {
    let mut asked = libc::pollfd { fd: output.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one question, which does not wait.
    let answers = unsafe { libc::poll(&mut asked, 1, 0) };
    answers == 1 && asked.revents & libc::POLLERR != 0
}

/// Two digits for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
