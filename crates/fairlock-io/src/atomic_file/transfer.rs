//! Brings all bytes across, however little each call does: goes on after short calls and after
//! interrupted ones, and splits lists that are longer than the kernel takes.
//!
//! It locks nothing: the caller holds what keeps others out from the first call to the last.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

use super::raw_file::{LAST_OFFSET, RawFile, SLICES_PER_CALL};

/// Where bytes go that are read.
pub(crate) trait Target {
    /// How many fit; none if that is no number.
    fn size(&self) -> Option<usize>;

    /// One call, for what follows the first `done` bytes, up to `most` altogether.
    fn read<F: RawFile>(
        &mut self,
        file: &F,
        offset: u64,
        done: usize,
        most: usize,
    ) -> io::Result<usize>;
}

/// Bytes to be written.
pub(crate) trait Source {
    /// How many there are; none if that is no number.
    fn size(&self) -> Option<usize>;

    /// One call, for what follows the first `done` bytes.
    fn write<F: RawFile>(&self, file: &F, offset: u64, done: usize) -> io::Result<usize>;
}

/// An early end.
pub(crate) struct Cut {
    pub(crate) done: usize,
    pub(crate) source: io::Error,
}

/// Fills a target with at least `wanted` bytes, of which there are as many in the file.
///
/// What follows them in the target may be written to, too: calls ask for all that fits, because
/// files that are opened for direct I/O refuse odd lengths. They do not ask for what no file can have:
/// the kernel refuses a read whose end is no offset.
#[inline]
pub(crate) fn read<F: RawFile, T: Target + ?Sized>(
    file: &F,
    target: &mut T,
    offset: u64,
    wanted: usize,
) -> Result<(), Cut> {
    let most = usize::try_from(LAST_OFFSET - offset).unwrap_or(usize::MAX);
    across(
        wanted,
        |done| target.read(file, offset, done, most),
        || {
            let message = "the file is shorter than its AtomicFile left it: somebody else cut it";
            io::Error::new(ErrorKind::UnexpectedEof, message)
        },
    )
}

/// Writes all of a source of `size` bytes.
#[inline]
pub(crate) fn write<F: RawFile, S: Source + ?Sized>(
    file: &F,
    source: &S,
    offset: u64,
    size: usize,
) -> Result<(), Cut> {
    across(
        size,
        |done| source.write(file, offset, done),
        || io::Error::new(ErrorKind::WriteZero, "the system took no more bytes and gave no reason"),
    )
}

/// Calls until `wanted` bytes are done; `stuck` explains why a call does nothing.
#[inline]
fn across(
    wanted: usize,
    mut call: impl FnMut(usize) -> io::Result<usize>,
    stuck: impl FnOnce() -> io::Error,
) -> Result<(), Cut> {
    let mut done = 0;
    while done < wanted {
        match call(done) {
            Ok(0) => return Err(Cut { done, source: stuck() }),
            Ok(more) => done += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(source) => return Err(Cut { done, source }),
        }
    }
    Ok(())
}

impl Target for [u8] {
    #[inline]
    fn size(&self) -> Option<usize> {
        Some(self.len())
    }

    #[inline]
    fn read<F: RawFile>(
        &mut self,
        file: &F,
        offset: u64,
        done: usize,
        most: usize,
    ) -> io::Result<usize> {
        let end = self.len().min(most);
        file.read(&mut self[done..end], offset + done as u64)
    }
}

impl Source for [u8] {
    #[inline]
    fn size(&self) -> Option<usize> {
        Some(self.len())
    }

    #[inline]
    fn write<F: RawFile>(&self, file: &F, offset: u64, done: usize) -> io::Result<usize> {
        file.write(&self[done..], offset + done as u64)
    }
}

impl Target for [IoSliceMut<'_>] {
    fn size(&self) -> Option<usize> {
        self.iter().try_fold(0, |size: usize, slice| size.checked_add(slice.len()))
    }

    fn read<F: RawFile>(
        &mut self,
        file: &F,
        offset: u64,
        done: usize,
        most: usize,
    ) -> io::Result<usize> {
        if is_one_call(self.len(), done) && self.size().is_some_and(|size| size <= most) {
            return file.read_slices(self, offset);
        }
        let (mut skip, mut left) = (done, most - done);
        let rest = self.iter_mut().filter_map(|slice| {
            let skipped = skip.min(slice.len());
            skip -= skipped;
            let taken = left.min(slice.len() - skipped);
            left -= taken;
            let rest = &mut slice[skipped..skipped + taken];
            (!rest.is_empty()).then(|| IoSliceMut::new(rest))
        });
        let mut rest: Vec<_> = rest.take(SLICES_PER_CALL).collect();
        file.read_slices(&mut rest, offset + done as u64)
    }
}

impl Source for [IoSlice<'_>] {
    fn size(&self) -> Option<usize> {
        self.iter().try_fold(0, |size: usize, slice| size.checked_add(slice.len()))
    }

    fn write<F: RawFile>(&self, file: &F, offset: u64, done: usize) -> io::Result<usize> {
        if is_one_call(self.len(), done) {
            return file.write_slices(self, offset);
        }
        let mut skip = done;
        let rest = self.iter().filter_map(|slice| {
            let skipped = skip.min(slice.len());
            skip -= skipped;
            let rest = &slice[skipped..];
            (!rest.is_empty()).then(|| IoSlice::new(rest))
        });
        let rest: Vec<_> = rest.take(SLICES_PER_CALL).collect();
        file.write_slices(&rest, offset + done as u64)
    }
}

/// Whether the user's list can be handed on as it is. Otherwise the rest of it is copied, without
/// its empty slices: the kernel would do nothing for a call with nothing else.
fn is_one_call(slices: usize, done: usize) -> bool {
    done == 0 && slices <= SLICES_PER_CALL
}
