//! An array of things that are never freed, so that anybody may look at them at any time: it grows
//! by chunks, which never move, and takes no lock to do so.
//!
//! Chunks come from where the platform says ([`Platform::allocate`]), never from the program's own
//! allocator, as that may be what takes a lock of this crate.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use std::alloc::Layout;

use crate::platform::{AtomicCell, Platform};

/// At most `CHUNKS` times `LENGTH` things.
pub(crate) struct Chunks<P: Platform, T, const LENGTH: usize, const CHUNKS: usize> {
    chunks: [P::AtomicPtr<[T; LENGTH]>; CHUNKS],
}

impl<P: Platform, T: Send + Sync, const LENGTH: usize, const CHUNKS: usize>
    Chunks<P, T, LENGTH, CHUNKS>
{
    /// Empty.
    pub(crate) const NEW: Self = Chunks { chunks: [const { P::AtomicPtr::ZERO }; CHUNKS] };

    /// The thing at this place, if this thread can see it yet.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        // Acquire pairs with the Release in `publish`.
        let chunk = self.chunks[index / LENGTH].load(Acquire);
        // SAFETY: chunks are initialised before they are published, and live as long as `self`.
        unsafe { chunk.as_ref() }.map(|chunk| &chunk[index % LENGTH])
    }

    /// The thing at this place, made now with its whole chunk if there is none; nothing if there
    /// is no memory.
    pub(crate) fn get_or_make(&self, index: usize, make: impl Fn(usize) -> T) -> Option<&T> {
        self.get(index).or_else(|| self.publish(index, make))
    }

    #[cold]
    fn publish(&self, index: usize, make: impl Fn(usize) -> T) -> Option<&T> {
        let at = index / LENGTH;
        // SAFETY: the layout's size is not zero; what was allocated is initialised, thing by thing
        // as it is too large for some stacks, before anybody else sees it; and it is freed here by
        // its only owner if another thread came first.
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

    /// Asks the first `count` things until one says no; true if none does. For a thread that knows
    /// from those who made them that they are there.
    ///
    /// # Panics
    /// If they are not.
    #[inline(always)]
    pub(crate) fn all_of_first<'a>(
        &'a self,
        count: usize,
        mut ask: impl FnMut(&'a T) -> bool,
    ) -> bool {
        let mut left = count;
        for chunk in &self.chunks[..count.div_ceil(LENGTH)] {
            let chunk: *const [T; LENGTH] = chunk.load(Acquire);
            // SAFETY: as in `get`.
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
    /// Only simulated processes end before the program does.
    fn drop(&mut self) {
        for chunk in &mut self.chunks {
            let chunk = chunk.value();
            if !chunk.is_null() {
                // SAFETY: made by `publish`, and nobody refers to a process that is gone.
                unsafe { free::<P, T, LENGTH>(chunk) };
            }
        }
    }
}

/// # Safety
/// The chunk was allocated and initialised by [`Chunks::publish`] and nobody else refers to it.
unsafe fn free<P: Platform, T, const LENGTH: usize>(chunk: *mut [T; LENGTH]) {
    // SAFETY: the caller's.
    unsafe {
        ptr::drop_in_place(chunk);
        P::deallocate(chunk.cast(), Layout::new::<[T; LENGTH]>());
    }
}
