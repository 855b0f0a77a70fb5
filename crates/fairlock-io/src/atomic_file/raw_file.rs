//! What an atomic file asks of the system: one call each, which may do less than it was asked to.
//!
//! A trait, so that tests can put a file under it that fails where they want it to.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// The most slices that the kernel takes in one call (`UIO_MAXIOV`).
pub(crate) const SLICES_PER_CALL: usize = 1024;

/// The highest offset that a file can have: offsets are signed, in the kernel.
pub(crate) const LAST_OFFSET: u64 = i64::MAX as u64;

/// Files that are read and written at offsets. No range ends beyond [`LAST_OFFSET`].
pub(crate) trait RawFile {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// At most [`SLICES_PER_CALL`] of them.
    fn read_slices(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize>;
    /// At most [`SLICES_PER_CALL`] of them.
    fn write_slices(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;

    fn set_len(&self, length: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
}

impl RawFile for File {
    #[inline]
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    #[inline]
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn read_slices(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let count = buffers.len() as libc::c_int;
        let buffers = buffers.as_mut_ptr().cast::<libc::iovec>();
        // SAFETY: `IoSliceMut` has the layout of an iovec, which the standard library promises, and
        // each of these may be written to.
        let read = unsafe { libc::preadv64(self.as_raw_fd(), buffers, count, offset as i64) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }

    fn write_slices(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let count = slices.len() as libc::c_int;
        let slices = slices.as_ptr().cast::<libc::iovec>();
        // SAFETY: `IoSlice` has the layout of an iovec, which the standard library promises, and the
        // kernel only reads what these lead to.
        let written = unsafe { libc::pwritev64(self.as_raw_fd(), slices, count, offset as i64) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        File::set_len(self, length)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}
