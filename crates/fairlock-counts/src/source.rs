//! Copying a counts file piece by piece, whatever it contains, and even while somebody changes it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU8, AtomicU64, fence};

use crate::layout::{self, FIRST_PAGE, MAGIC, PAGE, PAGES, Plain, SIZE};

/// A counts file that is copied from, piece by piece.
pub(crate) struct Source<'a> {
    file: &'a File,
    /// Pages that were copied already. Each is handed out once, so one that is named again is damage;
    /// and following that would take for ever.
    seen: Vec<bool>,
}

impl Source<'_> {
    pub(crate) fn of(file: &File) -> Source<'_> {
        Source { file, seen: vec![false; (PAGES - FIRST_PAGE) as usize] }
    }

    /// So many of them from this offset on.
    pub(crate) fn read<T: Plain>(&self, offset: usize, length: usize) -> io::Result<Vec<T>> {
        // SAFETY: zeros are a value of it, as any bytes are.
        let mut found: Vec<T> = (0..length).map(|_| unsafe { std::mem::zeroed() }).collect();
        let (start, size) = (found.as_mut_ptr().cast::<u8>(), size_of_val(found.as_slice()));
        // SAFETY: the vector's own memory, of that size; any bytes are values of its elements.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, size) };
        self.file.read_exact_at(bytes, offset as u64).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => wrong("a counts file that became shorter"),
            _ => error,
        })?;
        // Whatever is copied later is not older.
        fence(Acquire);
        Ok(found)
    }

    pub(crate) fn one<T: Plain>(&self, offset: usize) -> io::Result<T> {
        Ok(self.read(offset, 1)?.remove(0))
    }

    /// Where the page of this number is, for the first who asks; none if it cannot have been handed out.
    pub(crate) fn page(&mut self, page: u32) -> Option<usize> {
        let seen = self.seen.get_mut(page.checked_sub(FIRST_PAGE)? as usize)?;
        (!std::mem::replace(seen, true)).then_some(page as usize * PAGE)
    }
}

/// The first page, if this is a counts file.
pub(crate) fn header(source: &Source<'_>) -> io::Result<layout::Header> {
    let no_counts = || wrong("not a counts file of this version");
    let about = source.file.metadata()?;
    if !about.is_file() || about.len() != SIZE as u64 {
        return Err(no_counts());
    }
    let header: layout::Header = source.one(0)?;
    match header.magic.load(Relaxed) {
        MAGIC => Ok(header),
        _ => Err(no_counts()),
    }
}

pub(crate) fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// What stands before the first 0.
pub(crate) fn text(bytes: &[AtomicU8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte.load(Relaxed)).take_while(|byte| *byte != 0).collect()
}

/// Likewise.
pub(crate) fn path(bytes: &[AtomicU8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(text(bytes)))
}

/// The name of a thread.
pub(crate) fn thread_name(name: &[AtomicU64; 2]) -> String {
    let name: Vec<u8> = name.iter().flat_map(|part| part.load(Relaxed).to_ne_bytes()).collect();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}
