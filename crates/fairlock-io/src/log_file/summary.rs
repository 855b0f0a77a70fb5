//! What is known of a log without reading all of it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::control::Control;
use super::disk::Disk;
use super::error::LogError;
use super::format::VERSION;
use super::options::Prewriting;
use super::position::Position;
use super::prewriting;
use super::reader::Reader;
use super::segments::Inventory;

/// Of a device's sectors, in which the system counts.
const SECTOR: u64 = 512;

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
    /// Where the committed part ends. None if that had to be found, as after a restart of the system, and
    /// there is damage: [`LogReader::verify`](crate::LogReader::verify) lists it.
    pub committed: Option<Position>,
    /// All before this is on the device; none if nothing is known.
    pub durable: Option<Position>,
    /// Its last writer closed it.
    pub closed: bool,
    /// How often it was opened for writing.
    pub openings: u32,
    /// The process that has it open for writing.
    pub writer: Option<u32>,
    /// Whether its latest writer writes blocks ahead, or why not; none if it had none yet.
    pub prewriting: Option<Prewriting>,
}

pub(crate) fn of(path: &Path) -> Result<LogSummary, LogError> {
    let disk = Disk::at(path);
    let control = Control::open(&disk, false)?;
    let cannot = |tried: &'static str| move |error: io::Error| LogError::system(tried, path, error);
    let Inventory { segments, spares, .. } = Inventory::of(&disk).map_err(cannot("list"))?;
    let layout = control.layout();
    let writer = match control.is_locked().map_err(cannot("look who has open"))? {
        true => Some(control.process()),
        false => None,
    };
    let first = control.first().or_else(|| segments.first().map(|&it| layout.first_batch(it)));
    let reader = Reader::open(Disk::at(path)).ok();
    Ok(LogSummary {
        path: path.to_owned(),
        version: VERSION,
        identity: layout.identity,
        segment_bytes: layout.segment_bytes,
        segments: segments.len() as u64,
        spares: spares.len() as u64,
        disk_bytes: disk_bytes(path).map_err(cannot("look at the files of"))?,
        first: Position::new(first.unwrap_or(layout.first_batch(0))),
        committed: reader.map(|reader| Position::new(reader.committed())),
        durable: control.durable().map(Position::new),
        closed: control.closed().is_some(),
        openings: control.epoch(),
        writer,
        prewriting: prewriting::of_number(&disk, control.prewriting()),
    })
}

/// What the files of a directory take.
fn disk_bytes(path: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        match entry?.metadata() {
            Ok(file) => bytes += file.blocks() * SECTOR,
            // Given up since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}
