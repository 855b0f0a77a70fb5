//! What went wrong with a log: what, where, and what to do.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

use super::control;
use super::disk::NotAFile;
use super::format::MOST_RECORD;
use super::position::Position;
use super::segments;

/// Why something could not be done with a log.
///
/// It can be cloned: all threads whose records were in one batch get the same one. Turned into an
/// [`io::Error`], it keeps its kind and remains inside it.
#[derive(Clone)]
pub struct LogError(Arc<Report>);

struct Report {
    what: LogErrorKind,
    path: PathBuf,
    segment: Option<u64>,
    offset: Option<u64>,
    source: Option<io::Error>,
    circumstance: Option<Circumstance>,
}

/// What else is known, for the message alone.
#[derive(Debug, Clone, Copy)]
enum Circumstance {
    /// A position is behind this one, where the log ends.
    LogEndsAt(Position),
    /// A log was being copied, to this directory.
    Copying,
    /// A log was being copied, and what there was of the copy is no longer.
    CopyRemoved,
    /// The log's one writer is in this process.
    OwnWriter,
}

/// What a [`LogError`] is about.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogErrorKind {
    /// The system refused something; the text says what was tried.
    System(&'static str),
    /// The disk is full. Nothing that was acknowledged is lost; appends go on when there is room.
    StorageFull,
    /// Bytes that were once acknowledged are not what was written: at this position.
    /// [`LogReader::verify`](crate::LogReader::verify) lists all of them, and
    /// [`LogFile::repair`](crate::LogFile::repair) mends the log.
    Damaged {
        /// Where what is wrong begins: a record, a batch, or a segment.
        position: Position,
        /// What should be there.
        what: &'static str,
    },
    /// The position was given up: by [`truncate_before`](crate::LogFile::truncate_before), or because of
    /// [`retain_bytes`](crate::LogOptions::retain_bytes) or [`retain_for`](crate::LogOptions::retain_for).
    Truncated {
        /// What was asked for.
        position: Position,
        /// The first that is still there.
        first: Position,
    },
    /// No record begins at this position: it is not a record's, or the record was cut off or is lost.
    NoRecord(Position),
    /// There is no log at this path.
    NotALog,
    /// A log was to be created in a directory that holds other things.
    OthersFiles,
    /// The log was to be new, but there is one.
    Exists,
    /// A log was to be copied into its own directory, or a directory in it.
    InsideLog,
    /// Written by a later version of the format.
    NewerVersion {
        /// What it was written with.
        found: u32,
        /// The latest that this library knows.
        supported: u32,
    },
    /// Another process, or another [`LogFile`](crate::LogFile) of this one, appends to it.
    BusyWriter {
        /// Its process, if that is known, and 0 otherwise. While it is still opening the log, or repairs it, this is the process
        /// that had it before.
        process: u32,
    },
    /// A record is larger than this log takes.
    TooLarge {
        /// Of the record.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// Records that are to arrive together are larger than that may be: each counts with 24 bytes more, up to
    /// a multiple of 8.
    TooLargeTogether {
        /// Of all of them.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// An option has a value that makes no sense.
    Option {
        /// Which.
        name: &'static str,
        /// What it is to be.
        valid: &'static str,
    },
    /// A segment is missing. [`LogFile::repair`](crate::LogFile::repair) gives its records up.
    MissingSegment,
    /// A copy, made by other programs while the log was appended to, that lacks records before others that it
    /// has, or records that it knows to have been acknowledged. A copy that is damaged looks alike.
    /// [`RepairOptions::up_to_damage`](crate::RepairOptions::up_to_damage) keeps the part that is whole.
    IncompleteCopy {
        /// All records before are there.
        position: Position,
    },
    /// A checkpoint whose making was cut off.
    UnfinishedCheckpoint,
    /// Records that a reader has given were cut off by [`truncate_after`](crate::LogFile::truncate_after).
    /// Discard what you have from this position on. Said once; the reader goes on there, with what is part of the
    /// log now.
    CutOff {
        /// Where the first of them was, or the batch that it was in; [`Position::START`] if there were more than
        /// ten cuts since the reader looked.
        from: Position,
    },
    /// A record was submitted to another log, or to another opening of this one.
    OtherLog,
    /// A name of the log's is that of something else: a directory, a FIFO, a device, a symbolic link.
    NotAFile,
    /// While it was open for writing, others removed, replaced or shortened the files that keep a second
    /// writer from it. What was acknowledged is in the segments; appends are refused. For a follower: the log
    /// in the directory is another one, or is gone.
    Displaced,
    /// It was opened in another process, of which this is a fork.
    OtherProcess,
    /// The system could not bring records to the device that had been acknowledged before that was
    /// tried: whether they are there is only known when the log is opened again.
    SyncFailed,
}

impl LogError {
    #[cold]
    pub(crate) fn new(what: LogErrorKind, path: &Path) -> LogError {
        let circumstance = match what {
            LogErrorKind::BusyWriter { process } if is_own(process, path) => {
                Some(Circumstance::OwnWriter)
            }
            _ => None,
        };
        let (segment, offset, source, path) = (None, None, None, path.to_owned());
        LogError(Arc::new(Report { what, path, segment, offset, source, circumstance }))
    }

    /// Of a position behind the end of the log.
    #[cold]
    pub(crate) fn behind_end(position: Position, end: Position, path: &Path) -> LogError {
        LogError::new(LogErrorKind::NoRecord(position), path).with(Circumstance::LogEndsAt(end))
    }

    /// Whether a system call failed for want of room.
    pub(crate) fn is_full(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Of a failed system call; a full disk is told from the rest.
    #[cold]
    pub(crate) fn system(tried: &'static str, path: &Path, source: io::Error) -> LogError {
        let full = LogError::is_full(&source);
        let what = match &source {
            _ if full => LogErrorKind::StorageFull,
            _ if source.get_ref().is_some_and(|it| it.is::<NotAFile>()) => LogErrorKind::NotAFile,
            _ => LogErrorKind::System(tried),
        };
        let (segment, offset, path) = (None, None, path.to_owned());
        let (source, circumstance) = (Some(source), None);
        LogError(Arc::new(Report { what, path, segment, offset, source, circumstance }))
    }

    /// The same, with the place.
    #[cold]
    pub(crate) fn at(self, segment: u64, offset: u64) -> LogError {
        LogError(Arc::new(Report { segment: Some(segment), offset: Some(offset), ..self.0.copy() }))
    }

    /// The same, of a log that was being copied.
    #[cold]
    pub(crate) fn while_copying(self, is_removed: bool) -> LogError {
        self.with(match is_removed {
            true => Circumstance::CopyRemoved,
            false => Circumstance::Copying,
        })
    }

    fn with(self, circumstance: Circumstance) -> LogError {
        let circumstance = Some(circumstance);
        LogError(Arc::new(Report { circumstance, ..self.0.copy() }))
    }

    /// What it is about.
    pub fn kind(&self) -> &LogErrorKind {
        &self.0.what
    }

    /// The log's directory, or the file of it that could not be used.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The segment, where it concerns one.
    pub fn segment(&self) -> Option<u64> {
        self.0.segment
    }

    /// The offset in the segment's file, in bytes.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }
}

impl Report {
    /// The file that it is about, or the log's directory. Positions are the log's, and offsets this file's.
    fn file(&self) -> Cow<'_, Path> {
        match self.segment.map(segments::name_of) {
            Some(name) if !self.path.ends_with(&name) => self.path.join(name).into(),
            _ => self.path.as_path().into(),
        }
    }

    /// In which file, at which of its bytes, and what the system said.
    fn write_place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " ({}", self.file().display())?;
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        write!(f, ")")?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }

    fn copy(&self) -> Report {
        Report {
            what: self.what.clone(),
            path: self.path.clone(),
            segment: self.segment,
            offset: self.offset,
            source: self.source.as_ref().map(copy_of),
            circumstance: self.circumstance,
        }
    }
}

/// Whether the writer of the log in this directory, which has this number, is this process: in another container,
/// another may have the same number.
#[cold]
fn is_own(writer: u32, directory: &Path) -> bool {
    if writer != process::id() {
        return false;
    }
    let file_of = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    let Some(lock) = file_of(&directory.join(control::LOCK)) else { return false };
    let Ok(descriptors) = fs::read_dir("/proc/self/fd") else { return false };
    descriptors.flatten().any(|descriptor| file_of(&descriptor.path()) == Some(lock))
}

/// System errors cannot be cloned, but those are their numbers.
fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { what, offset, source, circumstance, .. } = self;
        match what {
            // The only one that goes on with the path.
            LogErrorKind::System(tried) => {
                write!(f, "cannot {tried} {}", self.file().display())?;
                if let Some(offset) = offset {
                    write!(f, " (byte {offset})")?;
                }
                return match source {
                    Some(source) => write!(f, ": {source}"),
                    None => Ok(()),
                };
            }
            LogErrorKind::StorageFull => f.write_str(match circumstance {
                Some(Circumstance::CopyRemoved) => {
                    "the disk is full: the unfinished copy was removed; make room and try again"
                }
                _ => "the disk is full: nothing acknowledged is lost; make room and try again",
            })?,
            LogErrorKind::Damaged { position, what } => write!(
                f,
                "damaged at position {position}: {what} is not what was written; `fairlock log \
                 verify` lists all damage, and `fairlock log repair` mends the log and keeps what is \
                 whole"
            )?,
            LogErrorKind::Truncated { position, first } => {
                write!(f, "position {position} was given up; the first that is left is {first}")?
            }
            LogErrorKind::NoRecord(position) => {
                write!(f, "no record begins at position {position}: ")?;
                match circumstance {
                    Some(Circumstance::LogEndsAt(end)) => {
                        write!(f, "the log ends at position {end}")?;
                    }
                    _ => write!(f, "it was cut off or lost, or never was a record's position")?,
                }
            }
            LogErrorKind::NotALog => write!(f, "there is no log")?,
            LogErrorKind::OthersFiles => {
                write!(f, "the directory holds other files: a log needs one of its own")?
            }
            LogErrorKind::Exists => {
                let otherwise = match circumstance {
                    Some(Circumstance::Copying | Circumstance::CopyRemoved) => "remove it",
                    _ => "open it",
                };
                write!(
                    f,
                    "there is a log already, or a copy of one that was not finished: choose another \
                     directory, or {otherwise}"
                )?;
            }
            LogErrorKind::InsideLog => write!(
                f,
                "the copy would be in the log's own directory, which holds nothing else: choose \
                 another directory"
            )?,
            LogErrorKind::NewerVersion { found, supported } => write!(
                f,
                "written with version {found} of the format, but this program knows version \
                 {supported}: use a later program"
            )?,
            LogErrorKind::BusyWriter { .. }
                if matches!(circumstance, Some(Circumstance::OwnWriter)) =>
            {
                write!(f, "this process has it open already: a log has one writer at a time")?;
            }
            LogErrorKind::BusyWriter { process: 0 } => {
                write!(f, "another writer has it open: a log has one at a time")?
            }
            LogErrorKind::BusyWriter { process } => write!(
                f,
                "process {process} has it open for writing: a log has one writer at a time"
            )?,
            LogErrorKind::TooLarge { bytes, most } if *most >= MOST_RECORD => write!(
                f,
                "a record of {bytes} bytes, but a log takes at most {most}: split it into several \
                 records"
            )?,
            LogErrorKind::TooLarge { bytes, most } => write!(
                f,
                "a record of {bytes} bytes, but this log takes at most {most}: split it, or create \
                 the log with larger segments"
            )?,
            LogErrorKind::TooLargeTogether { bytes, most } => write!(
                f,
                "records that are to arrive together take {bytes} bytes, but this log takes at most \
                 {most} at once: append fewer"
            )?,
            LogErrorKind::Option { name, valid } => write!(f, "{name} must be {valid}")?,
            LogErrorKind::MissingSegment => write!(
                f,
                "a segment is missing: put its file back, or give its records up with `fairlock log \
                 repair`; `fairlock log verify` lists all damage"
            )?,
            LogErrorKind::IncompleteCopy { position } => write!(
                f,
                "a copy that was made while the log was appended to, or is damaged: it is whole up to \
                 position {position} only; copy the log again with `fairlock log backup`, or cut this copy \
                 off there with `fairlock log repair --up-to-damage`; `fairlock log repair` alone \
                 keeps what is whole behind that, too"
            )?,
            LogErrorKind::UnfinishedCheckpoint => {
                write!(f, "a backup that was not finished: remove it, and make another of the log")?
            }
            LogErrorKind::CutOff { from } => {
                write!(f, "records from position {from} on were cut off")?
            }
            LogErrorKind::OtherLog => {
                write!(f, "the record was submitted to another log, or before this was opened")?
            }
            LogErrorKind::NotAFile => {
                write!(f, "something else has the name of a file of the log: remove it")?
            }
            LogErrorKind::Displaced => write!(
                f,
                "others have removed, replaced or shortened files of the log while it was open: close \
                 it, and open it again to learn what is in it"
            )?,
            LogErrorKind::OtherProcess => write!(
                f,
                "it was opened by the process that this one was forked from, which alone may use it"
            )?,
            LogErrorKind::SyncFailed => write!(
                f,
                "acknowledged records could not be brought to the device: open the log again to \
                 learn which are there"
            )?,
        }
        self.write_place(f)
    }
}

impl fmt::Debug for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogError")
            .field("kind", &self.0.what)
            .field("path", &self.0.path)
            .field("segment", &self.0.segment)
            .field("offset", &self.0.offset)
            .field("source", &self.0.source)
            .finish()
    }
}

impl Error for LogError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}

impl From<LogError> for io::Error {
    fn from(error: LogError) -> io::Error {
        let kind = match (error.kind(), &error.0.source) {
            (_, Some(source)) => source.kind(),
            (LogErrorKind::StorageFull, _) => io::ErrorKind::StorageFull,
            (
                LogErrorKind::Damaged { .. }
                | LogErrorKind::MissingSegment
                | LogErrorKind::IncompleteCopy { .. }
                | LogErrorKind::UnfinishedCheckpoint,
                _,
            ) => io::ErrorKind::InvalidData,
            (LogErrorKind::Truncated { .. } | LogErrorKind::NoRecord(_), _) => {
                io::ErrorKind::InvalidInput
            }
            (LogErrorKind::NotALog, _) => io::ErrorKind::NotFound,
            (LogErrorKind::Exists | LogErrorKind::OthersFiles, _) => io::ErrorKind::AlreadyExists,
            (LogErrorKind::InsideLog, _) => io::ErrorKind::InvalidInput,
            (LogErrorKind::NewerVersion { .. }, _) => io::ErrorKind::Unsupported,
            (LogErrorKind::BusyWriter { .. }, _) => io::ErrorKind::ResourceBusy,
            (LogErrorKind::TooLargeTogether { .. }, _) => io::ErrorKind::InvalidInput,
            (LogErrorKind::TooLarge { .. } | LogErrorKind::Option { .. }, _) => {
                io::ErrorKind::InvalidInput
            }
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
