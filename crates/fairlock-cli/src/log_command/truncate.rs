//! `fairlock log truncate`: records that are no longer wanted are given up.

use std::path::PathBuf;

use clap::Args;
use fairlock_io::LogOptions;
use fairlock_report::screen;
use fairlock_report::units::{self, counted};

use super::tail::{From, from};
use super::{failure, refuse_files};
use crate::failure::Failure;

/// Shortens a log.
#[derive(Debug, Args)]
pub struct Truncate {
    /// The log: its directory
    #[arg(value_name = "DIR")]
    path: PathBuf,
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// Give up the records before this position: of a record, or `end`
    #[arg(long, value_name = "POSITION", value_parser = from)]
    before: Option<From>,
    /// Cut off the records behind this one: its position, or `start` for all
    #[arg(long, value_name = "POSITION", value_parser = from)]
    after: Option<From>,
    /// Give up the oldest segments, so that about SIZE is left
    #[arg(long, value_name = "SIZE", value_parser = units::parse_long_bytes)]
    keep: Option<u64>,
}

impl Truncate {
    pub fn run(&self) -> Result<(), Failure> {
        refuse_files(&self.path)?;
        let Which { before, after, keep } = &self.which;
        let mut options = LogOptions::new().create(false);
        if let Some(bytes) = keep {
            options = options.retain_bytes(*bytes);
        }
        let log = options.open(&self.path).map_err(|error| failure(&error))?;
        let done = match (before, after) {
            (Some(From::At(position)), _) => log.truncate_before(*position),
            (Some(From::End), _) => log.truncate_before(log.committed()),
            (_, Some(From::At(position))) => log.truncate_after(*position),
            // Nothing is behind the end.
            (_, Some(From::End)) => Ok(()),
            (None, None) => log.retain().map(drop),
        };
        let (first, end) = (log.first(), log.committed());
        let given_up = log.metrics().segments.given_up;
        let closed = log.close();
        done.and(closed).map_err(|error| failure(&error))?;
        let given_up = counted(given_up, "segment");
        Ok(screen::print(&format!("positions {first} to {end}, {given_up} given up\n"))?)
    }
}
