//! `fairlock log verify` and `fairlock log stat`.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use fairlock_io::{Damage, Damaged, LogReader, LogSummary, Position, Verified};
use fairlock_report::screen::{self, columns, wrapped, wrapped_lines};
use fairlock_report::units::{self, counted};
use serde_json::json;

use super::tail::hex;
use super::{failure, refuse_files, unless_reader_left};
use crate::failure::Failure;

/// Looks at a log.
#[derive(Debug, Args)]
pub struct Inspect {
    /// The log: its directory
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// Print JSON, an object in a line
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub fn verify(&self) -> Result<(), Failure> {
        refuse_files(&self.path)?;
        let width = columns(&io::stdout());
        let mut output = BufWriter::new(io::stdout().lock());
        let mut written = Ok(());
        let mut missing = Missing::default();
        let found = LogReader::verify(&self.path, |damage| {
            missing.add(&damage);
            if written.is_ok() {
                written = match self.json {
                    true => writeln!(output, "{}", damage_as_json(&damage)),
                    false => writeln!(output, "{}", wrapped(&damage_as_text(&damage), "  ", width)),
                };
            }
        });
        let found = found.map_err(|error| failure(&error))?;
        let written = written.and_then(|()| match self.json {
            true => writeln!(output, "{}", found_as_json(&found)),
            false => writeln!(output, "{}", wrapped_lines(&found_as_text(&found), width)),
        });
        unless_reader_left(written.and_then(|()| output.flush()))?;
        match found.damages {
            0 => Ok(()),
            damages => Err(Failure::Run(format!(
                "{} is damaged in {}, {}",
                self.path.display(),
                counted(damages, "place"),
                lost_as_text(&found, &missing),
            ))),
        }
    }

    pub fn stat(&self) -> Result<(), Failure> {
        refuse_files(&self.path)?;
        let summary = LogReader::summary(&self.path).map_err(|error| failure(&error))?;
        Ok(screen::print(&match self.json {
            true => format!("{}\n", summary_as_json(&summary)),
            false => summary_as_text(&summary, columns(&io::stdout())),
        })?)
    }
}

/// Where it is in the log, and where in which of its files.
pub(super) fn damage_as_text(damage: &Damage) -> String {
    let Damage { position, offset, bytes, what, path, .. } = damage;
    let name = path.file_name().unwrap_or(path.as_os_str()).display();
    let bytes = counted(*bytes, "byte");
    match damage.segment {
        Some(_) => format!("position {position}: {what}, {bytes} ({name}, byte {offset})"),
        None => format!("{what} ({name})"),
    }
}

pub(super) fn damage_as_json(damage: &Damage) -> serde_json::Value {
    json!({
        "type": "damage",
        "damaged": damage.what.to_string(),
        "position": damage.segment.map(|_| damage.position.get()),
        "segment": damage.segment,
        "offset": damage.offset,
        "bytes": damage.bytes,
        "path": damage.path.display().to_string(),
    })
}

/// What is damaged of which nothing says how many records it had.
#[derive(Debug, Default)]
pub(super) struct Missing {
    segment_bytes: u64,
    /// Whether there is other damage of the kind.
    others: bool,
}

impl Missing {
    pub(super) fn of<'a>(damages: impl IntoIterator<Item = &'a Damage>) -> Missing {
        let mut missing = Missing::default();
        damages.into_iter().for_each(|damage| missing.add(damage));
        missing
    }

    fn add(&mut self, damage: &Damage) {
        match damage.what {
            Damaged::Segment => self.segment_bytes += damage.bytes,
            Damaged::Batch | Damaged::RecordHeader => self.others = true,
            _ => {}
        }
    }
}

pub(super) fn lost_as_text(found: &Verified, missing: &Missing) -> String {
    let lost = counted(found.lost_records, "record");
    let bytes = units::format_bytes(missing.segment_bytes as f64);
    let segments = format!("all records in missing segments ({bytes})");
    let at_least = if missing.others { "at least " } else { "" };
    match (found.lost_records, found.lost_more) {
        (_, false) => format!("{lost} lost"),
        (0, true) if missing.segment_bytes > 0 => {
            let others = if missing.others { ", and perhaps others" } else { "" };
            format!("{segments} lost{others}: their number is not known")
        }
        (_, true) if missing.segment_bytes > 0 => {
            format!("{at_least}{lost} lost, and {segments}: their number is not known")
        }
        (0, true) => "records may be lost".to_owned(),
        (_, true) => format!("at least {lost} lost"),
    }
}

fn found_as_text(found: &Verified) -> String {
    let mut text = format!(
        "{}, {} in {}, {}, positions {} to {}\n",
        counted(found.records, "record"),
        units::format_bytes(found.payload_bytes as f64),
        counted(found.batches, "batch"),
        counted(found.segments, "segment"),
        found.first,
        found.end,
    );
    if let Some(torn) = found.torn {
        text += &format!(
            "torn: what was being written at position {torn} had not been committed; that is no damage\n"
        );
    }
    if found.lost_bytes > 0 {
        let bytes = units::format_bytes(found.lost_bytes as f64);
        text +=
            &format!("{bytes} behind the end had not come to the device before it lost power\n");
    }
    if found.given_up_bytes > 0 {
        text += &format!("{}; that is no damage\n", given_up_as_text(found));
    }
    if found.open_for_writing {
        text += "open for writing: looked at up to what was committed when this began\n";
    }
    text + if found.damages == 0 { "no damage\n" } else { "" }
}

/// What earlier repairs and cuts have left.
pub(super) fn given_up_as_text(found: &Verified) -> String {
    let parts = [(found.holes, "hole"), (found.gaps, "gap")];
    let parts = parts.into_iter().filter(|&(count, _)| count > 0);
    let parts: Vec<_> = parts.map(|(count, what)| counted(count, what)).collect();
    format!(
        "{}, {}: records that an earlier repair or cut gave up",
        parts.join(" and "),
        units::format_bytes(found.given_up_bytes as f64)
    )
}

fn found_as_json(found: &Verified) -> serde_json::Value {
    json!({
        "type": "summary",
        "damages": found.damages,
        "lost_records": found.lost_records,
        "lost_more": found.lost_more,
        "records": found.records,
        "payload_bytes": found.payload_bytes,
        "batches": found.batches,
        "segments": found.segments,
        "read_bytes": found.read_bytes,
        "first": found.first.get(),
        "end": found.end.get(),
        "torn": found.torn.map(Position::get),
        "lost_bytes": found.lost_bytes,
        "holes": found.holes,
        "gaps": found.gaps,
        "given_up_bytes": found.given_up_bytes,
        "open_for_writing": found.open_for_writing,
    })
}

fn summary_as_text(summary: &LogSummary, width: usize) -> String {
    let bytes = |bytes: u64| units::format_bytes(bytes as f64);
    let position = |position: Option<Position>, otherwise: &str| {
        position.map_or_else(|| otherwise.to_owned(), |position| position.to_string())
    };
    let spares = match summary.spares {
        0 => String::new(),
        spares => format!(", and {} to be used again", counted(spares, "file")),
    };
    let writer = match summary.writer {
        Some(0) => "another process".to_owned(),
        Some(process) => format!("process {process}"),
        None if summary.closed => "none; it was closed".to_owned(),
        None => "none; it was not closed".to_owned(),
    };
    let lineage = match summary.lineage {
        0 => "0: not a copy".to_owned(),
        lineage => format!("{lineage:016x}"),
    };
    let rows = [
        ("log", summary.path.display().to_string()),
        ("format", format!("version {}", summary.version)),
        ("identity", hex(&summary.identity)),
        ("segments", format!("{} of {}", summary.segments, bytes(summary.segment_bytes)) + &spares),
        ("on disk", bytes(summary.disk_bytes)),
        ("first", format!("position {}", summary.first)),
        ("committed", format!("position {}", position(summary.committed, DAMAGED))),
        ("durable", format!("position {}", position(summary.durable, "not known"))),
        ("opened", counted(summary.openings.into(), "time")),
        ("lineage", lineage),
        ("writer", writer),
        ("prewriting", prewriting(summary).unwrap_or_else(|| "not decided yet".to_string())),
    ];
    /// Where what is said begins.
    const COLUMN: usize = 12;
    let indent = format!("\n{:COLUMN$}", "");
    let value = |value: &str| wrapped(value, "", width - COLUMN).replace('\n', &indent);
    rows.iter().map(|(name, words)| format!("{name:<COLUMN$}{}\n", value(words))).collect()
}

fn prewriting(summary: &LogSummary) -> Option<String> {
    summary.prewriting.as_ref().map(ToString::to_string)
}

/// In place of the end.
const DAMAGED: &str = "not known, as there is damage: `fairlock log verify` lists it";

fn summary_as_json(summary: &LogSummary) -> serde_json::Value {
    json!({
        "path": summary.path.display().to_string(),
        "version": summary.version,
        "identity": hex(&summary.identity),
        "segment_bytes": summary.segment_bytes,
        "segments": summary.segments,
        "spares": summary.spares,
        "disk_bytes": summary.disk_bytes,
        "first": summary.first.get(),
        "committed": summary.committed.map(Position::get),
        "durable": summary.durable.map(Position::get),
        "closed": summary.closed,
        "openings": summary.openings,
        "lineage": format!("{:016x}", summary.lineage),
        "writer": summary.writer,
        "prewriting": prewriting(summary),
    })
}
