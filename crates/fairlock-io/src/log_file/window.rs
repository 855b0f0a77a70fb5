//! A piece of a log in memory, read in whole blocks.

use std::io;
use std::sync::Arc;

use super::blocks::Blocks;
use super::error::{LogError, LogErrorKind};
use super::format::{BLOCK, BadSegment, Layout, SegmentHeader, VERSION, blocks};
use super::position::Position;
use super::segments;
use super::storage::{Storage, StoredFile};

pub(crate) struct Window<S: Storage> {
    storage: Arc<S>,
    layout: Layout,
    /// The segment that was read last.
    file: Option<(u64, S::File)>,
    buffer: Blocks,
    /// The position of the buffer's first byte.
    start: u64,
    filled: usize,
    /// Bytes read from files, ever.
    pub(crate) bytes_read: u64,
}

impl<S: Storage> Window<S> {
    /// Reads so many bytes at a time, unless more are asked for.
    pub(crate) fn new(storage: Arc<S>, layout: Layout, size: usize) -> Window<S> {
        // No more than a segment is read at once.
        let size = size.min(usize::try_from(layout.segment_bytes).unwrap_or(size));
        let buffer = Blocks::zeroed(size);
        Window { storage, layout, file: None, buffer, start: 0, filled: 0, bytes_read: 0 }
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Reads so many bytes at a time from now on.
    pub(crate) fn resize(&mut self, size: usize) {
        self.buffer = Blocks::zeroed(size);
        self.filled = 0;
    }

    /// Forgets what was read.
    pub(crate) fn forget(&mut self) {
        self.filled = 0;
        self.file = None;
    }

    /// The bytes from `position` on, all in one segment; none if the segment's file, or what may be read
    /// of the log, ends before.
    pub(crate) fn bytes(
        &mut self,
        position: u64,
        wanted: usize,
        until: u64,
    ) -> Result<Option<&[u8]>, LogError> {
        let there = self.start..self.start + self.filled as u64;
        let is_there = there.contains(&position) && position + wanted as u64 <= there.end;
        if !is_there && !self.fill(position, wanted, until)? {
            return Ok(None);
        }
        let from = (position - self.start) as usize;
        Ok(Some(&self.buffer[from..from + wanted]))
    }

    fn fill(&mut self, position: u64, wanted: usize, until: u64) -> Result<bool, LogError> {
        let segment = self.layout.segment(position);
        let begin = position - position % BLOCK as u64;
        let end = until.min(self.layout.end(segment));
        if position + wanted as u64 > end {
            return Ok(false);
        }
        let needed = blocks((position - begin) as usize + wanted);
        self.filled = 0;
        self.buffer.grow(needed);
        let size = self.buffer.len().min(usize::try_from(end - begin).unwrap_or(usize::MAX));
        self.open(segment)?;
        let (_, file) = self.file.as_ref().expect("just opened");
        let offset = self.layout.offset(begin);
        let read = file.read(&mut self.buffer[..size], offset).map_err(|error| {
            let path = self.storage.path().join(segments::name_of(segment));
            LogError::system("read", &path, error).at(segment, offset)
        })?;
        self.start = begin;
        self.filled = read;
        self.bytes_read += read as u64;
        Ok(read >= needed)
    }

    fn open(&mut self, segment: u64) -> Result<(), LogError> {
        if self.file.as_ref().is_some_and(|(open, _)| *open == segment) {
            return Ok(());
        }
        self.file = None;
        let (file, header) = open_segment(&*self.storage, segment, false)?;
        if header.layout != self.layout || header.segment != segment {
            return Err(damaged_header(&*self.storage, self.layout, segment));
        }
        self.file = Some((segment, file));
        Ok(())
    }
}

/// Opens a segment's file and looks at its header; whether that is the expected one is the caller's to
/// know.
pub(crate) fn open_segment<S: Storage>(
    storage: &S,
    segment: u64,
    writable: bool,
) -> Result<(S::File, SegmentHeader), LogError> {
    let name = segments::name_of(segment);
    let path = storage.path().join(&name);
    let file = storage.open(&name, writable).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            LogError::new(LogErrorKind::MissingSegment, &path).at(segment, 0)
        }
        _ => LogError::system("open", &path, error).at(segment, 0),
    })?;
    let mut block = Blocks::zeroed(BLOCK);
    file.read(&mut block, 0)
        .map_err(|error| LogError::system("read", &path, error).at(segment, 0))?;
    match SegmentHeader::decode(&block) {
        Ok(header) => Ok((file, header)),
        Err(BadSegment::Newer(found)) => {
            let newer = LogErrorKind::NewerVersion { found, supported: VERSION };
            Err(LogError::new(newer, &path).at(segment, 0))
        }
        Err(BadSegment::NotALog | BadSegment::Damaged) => {
            let position = Position::START;
            let damaged = LogErrorKind::Damaged { position, what: "the segment's header" };
            Err(LogError::new(damaged, &path).at(segment, 0))
        }
    }
}

/// For a segment whose header is not its own.
pub(crate) fn damaged_header<S: Storage>(storage: &S, layout: Layout, segment: u64) -> LogError {
    damaged(storage, layout, segment * layout.segment_bytes, "the segment's header")
}

/// For bytes that are not what was written.
#[cold]
pub(crate) fn damaged<S: Storage>(
    storage: &S,
    layout: Layout,
    position: u64,
    what: &'static str,
) -> LogError {
    let segment = layout.segment(position);
    let path = storage.path().join(segments::name_of(segment));
    let damaged = LogErrorKind::Damaged { position: Position::new(position), what };
    LogError::new(damaged, &path).at(segment, layout.offset(position))
}
