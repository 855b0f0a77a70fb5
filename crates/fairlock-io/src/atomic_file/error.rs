//! What went wrong: where in which file, and how much of it was done before.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What an [`AtomicFile`](crate::AtomicFile) was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// To open a file, or to make an atomic file of an open one.
    Open,
    /// To read.
    Read,
    /// To write at an offset.
    Write,
    /// To write at the end.
    Append,
    /// To cut the file or to let it grow.
    SetLen,
    /// To bring what was written to the device.
    Sync,
}

/// Why an operation failed, or failed half way.
///
/// Turned into an [`io::Error`], it keeps its kind and remains inside it.
pub struct AtomicFileError(Box<Report>);

/// In a box: results are as small as if nothing ever failed.
struct Report {
    operation: Operation,
    path: Option<PathBuf>,
    failure: Failure,
    length: u64,
}

/// An operation that ended early, as those see it who know no path.
pub(crate) struct Failure {
    /// Where the operation began.
    pub(crate) offset: u64,
    /// How many bytes of it were done.
    pub(crate) done: usize,
    pub(crate) source: io::Error,
}

impl AtomicFileError {
    #[cold]
    pub(crate) fn new(
        operation: Operation,
        path: Option<&Path>,
        failure: Failure,
        length: u64,
    ) -> Self {
        let path = path.map(Path::to_owned);
        AtomicFileError(Box::new(Report { operation, path, failure, length }))
    }

    /// What was asked for.
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// The file, where its path is known.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Where the operation began, in bytes; the new length of [`Operation::SetLen`]; 0 where there
    /// is no such place.
    pub fn offset(&self) -> u64 {
        self.0.failure.offset
    }

    /// How many bytes were to be read or written.
    pub fn length(&self) -> u64 {
        self.0.length
    }

    /// How many of them were: the file, or the buffer, is as after an operation of so many bytes
    /// that succeeded.
    pub fn bytes_done(&self) -> usize {
        self.0.failure.done
    }

    /// The kind of the error below.
    pub fn kind(&self) -> io::ErrorKind {
        self.0.failure.source.kind()
    }

    /// The system's number of the error below, if it came from the system.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.0.failure.source.raw_os_error()
    }
}

impl fmt::Display for AtomicFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { operation, path, failure, length } = &*self.0;
        let offset = failure.offset;
        match operation {
            Operation::Open => write!(f, "cannot use")?,
            Operation::Read => write!(f, "cannot read {length} bytes at {offset} of")?,
            Operation::Write => write!(f, "cannot write {length} bytes at {offset} of")?,
            Operation::Append => {
                write!(f, "cannot append {length} bytes at {offset}, the end, of")?
            }
            Operation::SetLen => write!(f, "cannot set the length to {offset} of")?,
            Operation::Sync => write!(f, "cannot sync")?,
        }
        match path {
            Some(path) => write!(f, " {}", path.display())?,
            None => write!(f, " a file without a path")?,
        }
        write!(f, ": {}", failure.source)?;
        match failure.done {
            0 => Ok(()),
            done => write!(f, " (after {done} bytes)"),
        }
    }
}

impl fmt::Debug for AtomicFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicFileError")
            .field("operation", &self.operation())
            .field("path", &self.path())
            .field("offset", &self.offset())
            .field("length", &self.length())
            .field("bytes_done", &self.bytes_done())
            .field("source", &self.0.failure.source)
            .finish()
    }
}

impl Error for AtomicFileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0.failure.source)
    }
}

impl From<AtomicFileError> for io::Error {
    fn from(error: AtomicFileError) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}
