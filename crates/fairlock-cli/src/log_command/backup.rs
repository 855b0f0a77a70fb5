//! `fairlock log backup`: a copy of a log that is appended to.

use std::io;
use std::path::PathBuf;

use clap::Args;
use fairlock_io::{Checkpoint, LogReader};
use fairlock_report::screen::{self, columns, wrapped};
use fairlock_report::units;
use serde_json::json;

use super::{failure, refuse_files};
use crate::failure::Failure;

/// Copies a log.
#[derive(Debug, Args)]
pub struct Backup {
    /// The log: its directory
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// The copy: a directory that is not there, or is empty
    #[arg(value_name = "COPY_DIR")]
    copy: PathBuf,
    /// Print JSON, an object in a line
    #[arg(long)]
    json: bool,
}

impl Backup {
    pub fn run(&self) -> Result<(), Failure> {
        refuse_files(&self.path)?;
        refuse_files(&self.copy)?;
        let made = LogReader::checkpoint(&self.path, &self.copy);
        let made = made.map_err(|error| failure(&error))?;
        Ok(screen::print(&match self.json {
            true => format!("{}\n", as_json(&made)),
            false => wrapped(&as_text(&made), "  ", columns(&io::stdout())) + "\n",
        })?)
    }
}

fn as_text(made: &Checkpoint) -> String {
    let bytes = |bytes: u64| units::format_bytes(bytes as f64);
    format!(
        "positions {} to {}, {} linked, {} copied",
        made.first,
        made.end,
        bytes(made.linked_bytes),
        bytes(made.copied_bytes)
    )
}

fn as_json(made: &Checkpoint) -> serde_json::Value {
    json!({
        "first": made.first.get(),
        "end": made.end.get(),
        "linked_bytes": made.linked_bytes,
        "copied_bytes": made.copied_bytes,
    })
}
