//! A piece of a log in memory, read in whole blocks.

use std::io;
use std::sync::Arc;

use super::blocks::Blocks;
use super::error::{LogError, LogErrorKind};
use super::format::{BLOCK, BadSegment, Impossible, Layout, SegmentHeader, VERSION, blocks};
use super::position::Position;
use super::segments;
use super::storage::{Storage, StoredFile};

/// The largest buffer that is kept once a large record has passed. Records larger than the window are
/// read whole; a buffer for each anew would cost more than the window is worth, and one for ever could be
/// as large as a segment.
const KEPT: usize = 4 << 20;

pub(crate) struct Window<S: Storage> {
    storage: Arc<S>,
    layout: Layout,
    /// The segment that was read last.
    file: Option<(u64, S::File)>,
    /// Read at a time, unless more is asked for.
    size: usize,
    buffer: Blocks,
    /// The position of the buffer's first byte.
    start: u64,
    filled: usize,
    /// Where the segment's file ended when it was read last, if that was read.
    file_end: Option<u64>,
    /// A block that was read beside the others.
    aside: Option<(u64, Blocks)>,
    /// Whether segments' headers are not looked at.
    any_header: bool,
    /// Bytes read from files, ever.
    pub(crate) bytes_read: u64,
}

impl<S: Storage> Window<S> {
    /// Reads so many bytes at a time, unless more are asked for.
    pub(crate) fn new(storage: Arc<S>, layout: Layout, size: usize) -> Window<S> {
        let size = Self::useful(&layout, size);
        let buffer = Blocks::zeroed(size);
        Window {
            storage,
            layout,
            file: None,
            size,
            buffer,
            start: 0,
            filled: 0,
            file_end: None,
            aside: None,
            any_header: false,
            bytes_read: 0,
        }
    }

    /// Reads segments whatever their headers are.
    pub(crate) fn with_any_header(self) -> Window<S> {
        Window { any_header: true, ..self }
    }

    /// As [`with_any_header`](Self::with_any_header), from now on.
    pub(crate) fn read_any_header(&mut self) {
        self.forget();
        self.any_header = true;
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// No more than a segment is read at once.
    fn useful(layout: &Layout, size: usize) -> usize {
        blocks(size.min(usize::try_from(layout.segment_bytes).unwrap_or(size)))
    }

    /// Reads so many bytes at a time from now on.
    pub(crate) fn resize(&mut self, size: usize) {
        self.size = Self::useful(&self.layout, size);
        self.buffer = Blocks::zeroed(self.size);
        self.filled = 0;
    }

    /// The bytes that it holds at most.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.buffer.len()
    }

    /// Forgets what was read: the next look reads again.
    pub(crate) fn clear(&mut self) {
        self.filled = 0;
        self.aside = None;
    }

    /// Forgets the file, too.
    pub(crate) fn forget(&mut self) {
        self.clear();
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
        // No bytes are anywhere: `position` may be where the next segment begins.
        if wanted > 0 && !self.holds(position, wanted) && !self.fill(position, wanted, until)? {
            return Ok(None);
        }
        if wanted == 0 {
            return Ok(Some(&[]));
        }
        let from = (position - self.start) as usize;
        Ok(Some(&self.buffer[from..from + wanted]))
    }

    /// As `bytes`, for bytes that begin a block and lie in it, without giving up what was read.
    pub(crate) fn bytes_aside(
        &mut self,
        position: u64,
        wanted: usize,
        until: u64,
    ) -> Result<Option<&[u8]>, LogError> {
        debug_assert!(position % (BLOCK as u64) == 0 && wanted <= BLOCK);
        if self.filled == 0 || self.holds(position, wanted) {
            return self.bytes(position, wanted, until);
        }
        if !self.may_hold(position, BLOCK, until) {
            return Ok(None);
        }
        if self.aside.as_ref().is_none_or(|(at, _)| *at != position) {
            let mut block = match self.aside.take() {
                Some((_, block)) => block,
                None => Blocks::zeroed(BLOCK),
            };
            self.open(self.layout.segment(position))?;
            let file = self.file.as_ref();
            let read = read(&*self.storage, self.layout, file, position, &mut block)?;
            self.bytes_read += read as u64;
            if read < BLOCK {
                return Ok(None);
            }
            self.aside = Some((position, block));
        }
        Ok(self.aside.as_ref().map(|(_, block)| &block[..wanted]))
    }

    /// Whether a look at `position` or before it, the last one, has found that the segment's file ends
    /// there or before.
    pub(crate) fn file_ends_by(&self, position: u64) -> bool {
        self.file_end.is_some_and(|end| {
            end <= position && self.layout.segment_before(end) == self.layout.segment(position)
        })
    }

    fn holds(&self, position: u64, wanted: usize) -> bool {
        let there = self.start..self.start + self.filled as u64;
        there.contains(&position) && wanted as u64 <= there.end - position
    }

    /// Whether so many bytes can be in the segment's file, and may be read.
    fn may_hold(&self, position: u64, wanted: usize, until: u64) -> bool {
        let end = until.min(self.layout.end(self.layout.segment(position)));
        position.checked_add(wanted as u64).is_some_and(|it| it <= end)
    }

    fn fill(&mut self, position: u64, wanted: usize, until: u64) -> Result<bool, LogError> {
        let begin = position - position % BLOCK as u64;
        self.file_end = None;
        if !self.may_hold(position, wanted, until) {
            return Ok(false);
        }
        let end = until.min(self.layout.end(self.layout.segment(position)));
        let needed = blocks((position - begin) as usize + wanted);
        let size = needed.max(self.size).min(usize::try_from(end - begin).unwrap_or(usize::MAX));
        let kept = self.move_to(begin, needed);
        let rest = begin + kept as u64;
        self.open(self.layout.segment(rest))?;
        let Window { storage, layout, file, buffer, .. } = self;
        let read = read(&**storage, *layout, file.as_ref(), rest, &mut buffer[kept..size])?;
        self.bytes_read += read as u64;
        self.filled = kept + read;
        if self.filled < size {
            self.file_end = Some(begin + self.filled as u64);
        }
        // Of a file that was cut, the last block may be there in part.
        Ok(self.holds(position, wanted))
    }

    /// Lets the buffer begin at `begin`, with room for so many bytes at least; how many of them it holds
    /// already.
    fn move_to(&mut self, begin: u64, needed: usize) -> usize {
        let there = self.start..self.start + self.filled as u64;
        let from = if there.contains(&begin) { (begin - self.start) as usize } else { self.filled };
        let kept = self.filled - from;
        let kept = kept - kept % BLOCK;
        let room = needed.max(self.size);
        if self.buffer.len() < room || self.buffer.len() > room.max(KEPT) {
            let mut other = Blocks::zeroed(room);
            other[..kept].copy_from_slice(&self.buffer[from..from + kept]);
            self.buffer = other;
        } else {
            self.buffer.copy_within(from..from + kept, 0);
        }
        self.start = begin;
        self.filled = kept;
        kept
    }

    fn open(&mut self, segment: u64) -> Result<(), LogError> {
        if self.file.as_ref().is_some_and(|(open, _)| *open == segment) {
            return Ok(());
        }
        self.file = None;
        if self.any_header {
            self.file = Some((segment, open_file(&*self.storage, segment, false)?));
            return Ok(());
        }
        let (file, _) = open_segment(&*self.storage, self.layout, segment, false)?;
        self.file = Some((segment, file));
        Ok(())
    }
}

/// Reads from a segment's file, which is open; fewer bytes only at its end.
fn read<S: Storage>(
    storage: &S,
    layout: Layout,
    file: Option<&(u64, S::File)>,
    position: u64,
    bytes: &mut [u8],
) -> Result<usize, LogError> {
    let (segment, file) = file.expect("opened before it is read");
    let offset = layout.offset(position);
    debug_assert_eq!(*segment, layout.segment(position));
    file.read(bytes, offset).map_err(|error| {
        let path = storage.path().join(segments::name_of(*segment));
        LogError::system("read", &path, error).at(*segment, offset)
    })
}

/// Opens a segment's file, whose header must be this segment's; the epoch that it was made in, too.
pub(crate) fn open_segment<S: Storage>(
    storage: &S,
    layout: Layout,
    segment: u64,
    writable: bool,
) -> Result<(S::File, u32), LogError> {
    let file = open_file(storage, segment, writable)?;
    match read_header(storage, &file, segment)? {
        Ok(header) if header.layout == layout && header.segment == segment => {
            Ok((file, header.epoch))
        }
        Ok(_) => Err(damaged(storage, layout, layout.start(segment), "the segment's header")),
        Err(bad) => Err(bad_header(storage, segment, layout.start(segment), bad)),
    }
}

/// What a segment's header says of the log, for who knows nothing of it yet.
pub(crate) fn layout_by_segment<S: Storage>(storage: &S, segment: u64) -> Result<Layout, LogError> {
    let file = open_file(storage, segment, false)?;
    let header = read_header(storage, &file, segment)?;
    header.map(|it| it.layout).map_err(|bad| bad_header(storage, segment, 0, bad))
}

#[cold]
fn bad_header<S: Storage>(storage: &S, segment: u64, begin: u64, bad: BadSegment) -> LogError {
    let position = Position::new(begin);
    let kind = match bad {
        BadSegment::Newer(found) => LogErrorKind::NewerVersion { found, supported: VERSION },
        BadSegment::Impossible(Impossible(what)) => LogErrorKind::Damaged { position, what },
        BadSegment::NotALog | BadSegment::Damaged => {
            LogErrorKind::Damaged { position, what: "the segment's header" }
        }
    };
    let path = storage.path().join(segments::name_of(segment));
    LogError::new(kind, &path).at(segment, 0)
}

fn read_header<S: Storage>(
    storage: &S,
    file: &S::File,
    segment: u64,
) -> Result<Result<SegmentHeader, BadSegment>, LogError> {
    let mut block = Blocks::zeroed(BLOCK);
    file.read(&mut block, 0).map_err(|error| {
        let path = storage.path().join(segments::name_of(segment));
        LogError::system("read", &path, error).at(segment, 0)
    })?;
    Ok(SegmentHeader::decode(&block))
}

fn open_file<S: Storage>(storage: &S, segment: u64, writable: bool) -> Result<S::File, LogError> {
    let name = segments::name_of(segment);
    storage.open(&name, writable).map_err(|error| {
        let path = storage.path().join(&name);
        match error.kind() {
            io::ErrorKind::NotFound => LogError::new(LogErrorKind::MissingSegment, &path),
            _ => LogError::system("open", &path, error),
        }
        .at(segment, 0)
    })
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
