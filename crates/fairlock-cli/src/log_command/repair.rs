//! `fairlock log repair`: a damaged log opens again.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use fairlock_io::{LogFile, Position, RepairOptions, RepairReport};
use fairlock_report::screen::{columns, wrapped, wrapped_lines};
use fairlock_report::units::counted;
use serde_json::json;

use super::inspect::{Missing, damage_as_json, damage_as_text, given_up_as_text, lost_as_text};
use super::{failure, refuse_files, unless_reader_left};
use crate::failure::Failure;

/// Mends a log.
#[derive(Debug, Args)]
pub struct Repair {
    /// The log: its directory
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// Change nothing, and say what would be done; exit code 1 if anything would
    #[arg(long)]
    dry_run: bool,
    /// Let the log end before the first damage, and give up everything behind it
    #[arg(long)]
    up_to_damage: bool,
    /// Print JSON, an object in a line
    #[arg(long)]
    json: bool,
}

impl Repair {
    pub fn run(&self) -> Result<(), Failure> {
        refuse_files(&self.path)?;
        let options = RepairOptions::new().dry_run(self.dry_run).up_to_damage(self.up_to_damage);
        let report = LogFile::repair(&self.path, &options);
        let report = report.map_err(|error| failure(&error))?;
        let width = columns(&io::stdout());
        let mut output = BufWriter::new(io::stdout().lock());
        let damages = report.damages.iter().try_for_each(|damage| match self.json {
            true => writeln!(output, "{}", damage_as_json(damage)),
            false => writeln!(output, "{}", wrapped(&damage_as_text(damage), "  ", width)),
        });
        let written = damages.and_then(|()| match self.json {
            true => writeln!(output, "{}", self.as_json(&report)),
            false => writeln!(output, "{}", wrapped_lines(&self.as_text(&report), width)),
        });
        unless_reader_left(written.and_then(|()| output.flush()))?;
        match self.dry_run && report.is_needed {
            true => Err(Failure::Run(format!(
                "{} needs to be repaired, {}: nothing was changed; repair it with `fairlock log repair{}`, \
                 without --dry-run",
                self.path.display(),
                self.loses(&report),
                if self.up_to_damage { " --up-to-damage" } else { "" },
            ))),
            false => Ok(()),
        }
    }

    /// What is lost, and what would be given up although it is whole.
    fn loses(&self, report: &RepairReport) -> String {
        let lost = lost_as_text(&report.found, &Missing::of(&report.damages));
        match report.cut_at {
            Some(position) => format!(
                "{lost}, {} behind position {position} given up",
                counted_whole(report.given_up_records)
            ),
            None => lost,
        }
    }

    fn as_text(&self, report: &RepairReport) -> String {
        let RepairReport { found, cut_at, given_up_records, saved, .. } = report;
        let would = if self.dry_run { "would be " } else { "" };
        if !report.is_needed {
            let mut text =
                format!("{}, no damage: nothing to do\n", counted(found.records, "record"));
            if found.given_up_bytes > 0 {
                text += &format!("{}\n", given_up_as_text(found));
            }
            return text;
        }
        let mut text = match cut_at {
            Some(position) => format!(
                "{would}cut off at position {position}: {} {would}given up\n",
                counted_whole(*given_up_records),
            ),
            None => String::new(),
        };
        let kept = found.records - given_up_records;
        text += &format!(
            "{} {would}kept, {}\n",
            counted(kept, "record"),
            lost_as_text(found, &Missing::of(&report.damages))
        );
        for path in saved {
            text += &format!("saved {}\n", path.display());
        }
        if !self.dry_run {
            text += "repaired: the log opens again\n";
        }
        text
    }

    fn as_json(&self, report: &RepairReport) -> serde_json::Value {
        let saved: Vec<_> = report.saved.iter().map(|path| path.display().to_string()).collect();
        json!({
            "type": "summary",
            "is_needed": report.is_needed,
            "repaired": report.is_needed && !self.dry_run,
            "damages": report.found.damages,
            "lost_records": report.found.lost_records,
            "lost_more": report.found.lost_more,
            "kept_records": report.found.records - report.given_up_records,
            "given_up_records": report.given_up_records,
            "holes": report.found.holes,
            "gaps": report.found.gaps,
            "given_up_bytes": report.found.given_up_bytes,
            "cut_at": report.cut_at.map(Position::get),
            "saved": saved,
        })
    }
}

fn counted_whole(records: u64) -> String {
    let are = if records == 1 { "is" } else { "are" };
    format!("{} that {are} whole", counted(records, "record"))
}
