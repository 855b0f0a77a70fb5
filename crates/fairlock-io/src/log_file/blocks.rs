//! Memory that O_DIRECT takes: whole blocks, at addresses that are multiples of a block.

use std::alloc::{self, Layout};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use super::format::BLOCK;

/// Bytes in whole blocks, zero at first.
pub(crate) struct Blocks {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the memory belongs to this value alone, as a vector's does.
unsafe impl Send for Blocks {}
// SAFETY: the memory belongs to this value alone, and shared access only reads it.
unsafe impl Sync for Blocks {}

impl Blocks {
    /// At least `size` bytes.
    ///
    /// # Panics
    /// If that is nothing, or more than half of the address space.
    pub(crate) fn zeroed(size: usize) -> Blocks {
        let layout = Self::layout(size);
        // SAFETY: the size is not zero, as `layout` checks.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { alloc::handle_alloc_error(layout) };
        Blocks { start, size: layout.size() }
    }

    fn layout(size: usize) -> Layout {
        assert!(size > 0, "a buffer of no bytes");
        let layout = Layout::from_size_align(size, BLOCK).expect("a size that memory can have");
        Layout::from_size_align(layout.size().next_multiple_of(BLOCK), BLOCK)
            .expect("a size that memory can have")
    }

    /// Makes it at least as large; what it holds stays.
    pub(crate) fn grow(&mut self, size: usize) {
        if size > self.size {
            let mut larger = Blocks::zeroed(size);
            larger[..self.size].copy_from_slice(self);
            *self = larger;
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layout, and nobody borrows it any more.
        unsafe { alloc::dealloc(self.start.as_ptr(), Self::layout(self.size)) };
    }
}

impl Deref for Blocks {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are allocated and were zeroed; they live as long as `self`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.size) }
    }
}

impl DerefMut for Blocks {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes are allocated and were zeroed; `self` is borrowed exclusively for as long.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_aligned_and_grow_with_what_they_hold() {
        let mut bytes = Blocks::zeroed(1);
        assert_eq!((bytes.len(), bytes.as_ptr() as usize % BLOCK), (BLOCK, 0));
        bytes[17] = 3;
        bytes.grow(BLOCK + 1);
        assert_eq!((bytes.len(), bytes.as_ptr() as usize % BLOCK), (2 * BLOCK, 0));
        assert_eq!((bytes[17], bytes[BLOCK]), (3, 0));
    }
}
