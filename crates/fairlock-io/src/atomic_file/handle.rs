//! Places in a file: what reads and writes from some position on.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::ops::Deref;

use fairlock::RangeLock;
use fairlock::range::RawRangeLock;

use super::error::AtomicFileError;
use super::raw_file::LAST_OFFSET;
use super::{AtomicFile, size_of_all};

/// A place in an [`AtomicFile`] that moves with what is read and written there, as a
/// [`File`](std::fs::File) has one; any number of them share the file.
///
/// `F` is what keeps the file: `&AtomicFile`, or `Arc<AtomicFile>` for handles that go their own ways.
///
/// # Guarantees
/// Each call of [`read`](Read::read), [`read_exact`](Read::read_exact), [`write`](Write::write) or one
/// of their vectored forms is one operation of the file, as atomic as all of them. A `read` is short only
/// at the end. A `write` is short only if it failed half way; the next one then says why.
/// `read_to_end` and `read_to_string` are several reads. To read or write no bytes leaves the place.
///
/// [`flush`](Write::flush) does nothing, as on a `File`: see [`AtomicFile::sync_data`].
///
/// # Errors
/// Each is an [`AtomicFileError`] inside of an [`io::Error`].
///
/// # Example
/// ```
/// use fairlock_io::{AtomicFile, Handle};
/// use std::io::{BufRead, BufReader, Write};
/// use std::sync::Arc;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("log");
/// let log = Arc::new(AtomicFile::create(path)?);
/// let mut writer = Handle::appending(Arc::clone(&log));
/// let reader = BufReader::new(log.handle());
///
/// writer.write_all(b"one line\nanother\n")?;
/// assert_eq!(reader.lines().collect::<Result<Vec<_>, _>>()?, ["one line", "another"]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Handle<F> {
    file: F,
    position: u64,
    appends: bool,
}

impl<F> Handle<F> {
    /// At the beginning.
    pub fn new(file: F) -> Self {
        Handle { file, position: 0, appends: false }
    }

    /// At the beginning, for reads. Each write goes to the end, wherever that is by then, and takes
    /// the place with it.
    pub fn appending(file: F) -> Self {
        Handle { file, position: 0, appends: true }
    }

    /// Where the next read begins, and the next write unless it appends.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What keeps the file.
    pub fn into_inner(self) -> F {
        self.file
    }
}

impl<F> Handle<F> {
    fn moved(&mut self, by: usize) -> usize {
        self.position += by as u64;
        by
    }

    /// Goes to the end of what was written, also by an operation that failed half way.
    fn wrote(
        &mut self,
        outcome: Result<u64, AtomicFileError>,
        size: usize,
    ) -> Result<(), AtomicFileError> {
        let (offset, done) = match &outcome {
            Ok(offset) => (*offset, size),
            Err(error) => (error.offset(), error.bytes_done()),
        };
        if done > 0 {
            self.position = offset + done as u64;
        }
        outcome.map(|_| ())
    }

    /// `Write` has no way to say both how much was written and why not more, and an error of its means
    /// that nothing was.
    fn written(&mut self, outcome: Result<u64, AtomicFileError>, size: usize) -> io::Result<usize> {
        match self.wrote(outcome, size) {
            Ok(()) => Ok(size),
            Err(error) if error.bytes_done() > 0 => Ok(error.bytes_done()),
            Err(error) => Err(error.into()),
        }
    }
}

impl<F, R> Handle<F>
where
    F: Deref<Target = AtomicFile<RangeLock<R>>>,
    R: RawRangeLock,
{
    /// As [`read_exact`](Read::read_exact), filling one buffer after the other by one read; any number of
    /// them. After an error the place is as it was, and nothing is promised of what is in the buffers.
    ///
    /// # Errors
    /// As [`AtomicFile::read_exact_vectored_at`].
    pub fn read_exact_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.file.read_exact_vectored_at(buffers, self.position)?;
        self.moved(size_of_all(buffers));
        Ok(())
    }

    /// Writes all bytes, one slice after the other, as one write or append; any number of slices. After
    /// an error the place is behind what was written nevertheless.
    ///
    /// # Errors
    /// As [`AtomicFile::write_all_vectored_at`] or [`AtomicFile::append_vectored`].
    pub fn write_all_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let outcome = self.write_slices(slices);
        Ok(self.wrote(outcome, size_of_all(slices))?)
    }

    /// Where it wrote them.
    fn write_slices(&self, slices: &[IoSlice<'_>]) -> Result<u64, AtomicFileError> {
        if self.appends {
            return self.file.append_vectored(slices);
        }
        self.file.write_all_vectored_at(slices, self.position).map(|()| self.position)
    }
}

impl<F, R> Read for Handle<F>
where
    F: Deref<Target = AtomicFile<RangeLock<R>>>,
    R: RawRangeLock,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.position)?;
        Ok(self.moved(read))
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let read = self.file.read_vectored_at(buffers, self.position)?;
        Ok(self.moved(read))
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, self.position)?;
        self.moved(buffer.len());
        Ok(())
    }
}

impl<F, R> Write for Handle<F>
where
    F: Deref<Target = AtomicFile<RangeLock<R>>>,
    R: RawRangeLock,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let outcome = if self.appends {
            self.file.append(bytes)
        } else {
            self.file.write_all_at(bytes, self.position).map(|()| self.position)
        };
        self.written(outcome, bytes.len())
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let outcome = self.write_slices(slices);
        self.written(outcome, size_of_all(slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F, R> Seek for Handle<F>
where
    F: Deref<Target = AtomicFile<RangeLock<R>>>,
    R: RawRangeLock,
{
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(by) => self.file.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        // As in a `File`: no file has offsets beyond.
        let Some(position) = position.filter(|position| *position <= LAST_OFFSET) else {
            let message =
                format!("there is no position {to:?} in a file of {} bytes", self.file.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        };
        self.position = position;
        Ok(position)
    }
}

impl<F: Clone> Clone for Handle<F> {
    /// Another one in the same place, which moves on its own.
    fn clone(&self) -> Self {
        Handle { file: self.file.clone(), position: self.position, appends: self.appends }
    }
}

impl<F> fmt::Debug for Handle<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("position", &self.position)
            .field("appends", &self.appends)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::{Failure, Operation};
    use super::*;

    fn cannot_append(offset: u64, done: usize) -> AtomicFileError {
        let source = io::Error::from_raw_os_error(libc::EIO);
        AtomicFileError::new(Operation::Append, None, Failure { offset, done, source }, 8)
    }

    #[test]
    fn an_append_that_failed_half_way_and_stays_is_a_short_write() {
        // The file is not looked at.
        let mut handle = Handle::appending(());
        let written = handle.written(Err(cannot_append(10, 3)), 8);
        assert_eq!((written.expect("it is written"), handle.position()), (3, 13));
        let written = handle.written(Err(cannot_append(13, 0)), 5);
        assert_eq!(written.unwrap_err().raw_os_error(), None, "the system's error is inside");
        assert_eq!(handle.position(), 13);
        assert_eq!(handle.wrote(Err(cannot_append(20, 2)), 5).unwrap_err().bytes_done(), 2);
        assert_eq!(handle.position(), 22);
    }
}
