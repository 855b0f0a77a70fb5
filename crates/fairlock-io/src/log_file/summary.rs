//! What is known of a log without reading all of it.

use std::io;
use std::path::{Path, PathBuf};

use super::control::Control;
use super::error::LogError;
use super::options::Prewriting;
use super::position::Position;
use super::prewriting;
use super::reader::Reader;
use super::segments::Inventory;

/// What [`LogReader::summary`](crate::LogReader::summary) says of a log.
///
/// While a writer has it open, the figures may be of slightly different times.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogSummary {
    /// Its directory.
    pub path: PathBuf,
    /// Of the format.
    pub version: u32,
    /// Drawn at random when it was created.
    pub identity: [u8; 16],
    /// The size of its segments.
    pub segment_bytes: u64,
    /// Segments that are there, those made ahead included.
    pub segments: u64,
    /// Files that were segments, and are kept to be used again.
    pub spares: u64,
    /// What all its files take on the device.
    pub disk_bytes: u64,
    /// The first position that was not given up.
    pub first: Position,
    /// Where the committed part ends: what readers may see. None if that had to be found, as after a restart of the system, and
    /// there is damage: [`LogReader::verify`](crate::LogReader::verify) lists it.
    ///
    /// If the writer died, a write that was under way may still become part of the log when it is next opened:
    /// records that you have not seen may appear before the next writer's.
    pub committed: Option<Position>,
    /// All before this is on the device; none if nothing is known.
    pub durable: Option<Position>,
    /// Its last writer closed it.
    pub closed: bool,
    /// How often it was opened for writing.
    pub openings: u32,
    /// Which of the logs that began alike this is: [`LogFile::lineage`](crate::LogFile::lineage).
    pub lineage: u64,
    /// The process that has it open for writing.
    pub writer: Option<u32>,
    /// Whether its latest writer writes blocks ahead, or why not; none if it had none yet.
    pub prewriting: Option<Prewriting>,
}

pub(crate) fn of(path: &Path) -> Result<LogSummary, LogError> {
    let disk = super::open_directory(path)?;
    let control = Control::open(&disk, false)?;
    let cannot = |tried: &'static str| move |error: io::Error| LogError::system(tried, path, error);
    let Inventory { segments, spares, .. } = Inventory::of(&disk).map_err(cannot("list"))?;
    let layout = control.layout();
    let page = control.look()?;
    let writer = match control.has_writer(&disk)? {
        true => Some(page.process.unwrap_or(0)),
        false => None,
    };
    let first = page.first.or_else(|| segments.first().map(|&it| layout.first_batch(it)));
    let bytes = disk.bytes().map_err(cannot("look at the files of"))?;
    let prewriting = prewriting::of_number(&disk, page.prewriting);
    let reader = Reader::open(disk).ok();
    Ok(LogSummary {
        path: path.to_owned(),
        version: control.version(),
        identity: layout.identity,
        segment_bytes: layout.segment_bytes,
        segments: segments.len() as u64,
        spares: spares.len() as u64,
        disk_bytes: bytes,
        first: Position::new(first.unwrap_or(layout.first_batch(0))),
        committed: reader.map(|reader| Position::new(reader.committed_now())),
        durable: page.durable.map(Position::new),
        closed: page.closed.is_some(),
        openings: page.epoch.unwrap_or(0),
        lineage: page.lineage,
        writer,
        prewriting,
    })
}
