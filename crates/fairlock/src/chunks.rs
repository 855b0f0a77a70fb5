//! An array whose elements are never moved or freed, so that every thread may look at them at any time.
//! It grows by chunks, without a lock.
//!
//! Chunks come from the platform ([`Platform::allocate`]), never from the program's own allocator, as
//! that may itself take a lock of this crate.
//!
//! Invariant
//! 1. A chunk is initialised before it is published, and from then on neither moves nor changes its
//!    elements' places until the whole array is dropped.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use std::alloc::Layout;

use crate::platform::{AtomicCell, Platform};

/// At most `CHUNKS` times `LENGTH` elements.
pub(crate) struct Chunks<P: Platform, T, const LENGTH: usize, const CHUNKS: usize> {
    chunks: [P::AtomicPtr<[T; LENGTH]>; CHUNKS],
}

impl<P: Platform, T: Send + Sync, const LENGTH: usize, const CHUNKS: usize>
    Chunks<P, T, LENGTH, CHUNKS>
{
    /// Empty.
    pub(crate) const NEW: Self = Chunks { chunks: [const { P::AtomicPtr::ZERO }; CHUNKS] };

    /// The element at this index, if its chunk has been made and this thread can see it yet.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        // Acquire pairs with the Release in `publish`.
        let chunk = self.chunks[index / LENGTH].load(Acquire);
        // SAFETY: null, or a chunk that is initialised and lives as long as `self` (invariant 1).
        unsafe { chunk.as_ref() }.map(|chunk| &chunk[index % LENGTH])
    }

    /// The element at this index, made now with its whole chunk if there is none yet; none if there is
    /// no memory.
    pub(crate) fn get_or_make(&self, index: usize, make: impl Fn(usize) -> T) -> Option<&T> {
        self.get(index).or_else(|| self.publish(index, make))
    }

    #[cold]
    fn publish(&self, index: usize, make: impl Fn(usize) -> T) -> Option<&T> {
        let at = index / LENGTH;
        // SAFETY: the layout's size is not zero. The chunk is initialised before it is published (invariant
        // 1), element by element as it is too large for some stacks. If another thread published one
        // first, this one is freed by its only owner.
        unsafe {
            let new = P::allocate(Layout::new::<[T; LENGTH]>()).cast::<[T; LENGTH]>();
            if new.is_null() {
                return None;
            }
            for place in 0..LENGTH {
                (&raw mut (*new)[place]).write(make(at * LENGTH + place));
            }
            let others = self.chunks[at].compare_exchange(ptr::null_mut(), new, AcqRel, Acquire);
            if others.is_err() {
                free::<P, T, LENGTH>(new);
            }
        }
        self.get(index)
    }

    /// Whether `ask` is true of each of the first `count` elements; stops at the first of which it is not.
    /// The caller has learned of `count` from the threads that made these elements.
    ///
    /// # Panics
    /// If they have not been made.
    #[inline(always)]
    pub(crate) fn all_of_first<'a>(
        &'a self,
        count: usize,
        mut ask: impl FnMut(&'a T) -> bool,
    ) -> bool {
        let mut left = count;
        for chunk in &self.chunks[..count.div_ceil(LENGTH)] {
            let chunk: *const [T; LENGTH] = chunk.load(Acquire);
            // SAFETY: null, or a chunk that is initialised and lives as long as `self` (invariant 1).
            let chunk = unsafe { chunk.as_ref() }.expect("made before it is counted");
            if !chunk.iter().take(left).all(&mut ask) {
                return false;
            }
            left = left.saturating_sub(LENGTH);
        }
        true
    }
}

impl<P: Platform, T, const LENGTH: usize, const CHUNKS: usize> Drop
    for Chunks<P, T, LENGTH, CHUNKS>
{
    /// Happens to simulated processes only: any other process ends with the program.
    fn drop(&mut self) {
        for chunk in &mut self.chunks {
            let chunk = chunk.value();
            if !chunk.is_null() {
                // SAFETY: `publish` made it, and as `self` is dropped nobody else refers to it.
                unsafe { free::<P, T, LENGTH>(chunk) };
            }
        }
    }
}

/// # Safety
/// The chunk was allocated and initialised by [`Chunks::publish`] and nobody else refers to it.
unsafe fn free<P: Platform, T, const LENGTH: usize>(chunk: *mut [T; LENGTH]) {
    // SAFETY: initialised, allocated with this layout, and referred to by nobody else, as the caller
    // promises.
    unsafe {
        ptr::drop_in_place(chunk);
        P::deallocate(chunk.cast(), Layout::new::<[T; LENGTH]>());
    }
}
