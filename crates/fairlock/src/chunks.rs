//! An array whose elements are never moved or freed, so that every thread may look at them at any
//! time. It grows by chunks, without a lock. Each chunk has as many elements as all before it, so a
//! process with a few threads has little memory, and no process has room for more than twice as
//! many as it ever needed.
//!
//! ```text
//!   chunks: [ • | • | • | null | … ]      FIRST = 8
//!             │   │   └─► 16 … 31
//!             │   └─────► 8 … 15
//!             └─────────► 0 … 7
//! ```
//!
//! Chunks come from the platform ([`Platform::allocate`]), never from the program's own allocator,
//! as that may itself take a lock of this crate.
//!
//! Invariant
//! 1. A chunk is initialised before it is published, and from then on neither moves nor changes its
//!    elements' places until the whole array is dropped.

use core::sync::atomic::Ordering::{AcqRel, Acquire};
use core::{ptr, slice};
use std::alloc::Layout;

use crate::platform::{AtomicCell, Platform};

/// An array of `T`, at first of `FIRST`, a power of two. `CHUNKS` are enough if it is to have room
/// for `FIRST` × 2^(`CHUNKS` − 1).
pub(crate) struct Chunks<P: Platform, T, const FIRST: usize, const CHUNKS: usize> {
    chunks: [P::AtomicPtr<T>; CHUNKS],
}

impl<P: Platform, T, const FIRST: usize, const CHUNKS: usize> Chunks<P, T, FIRST, CHUNKS> {
    /// How many elements there can be.
    pub(crate) const MOST: usize = FIRST << (CHUNKS - 1);

    /// The chunk that an index is in.
    #[inline(always)]
    fn chunk_of(index: usize) -> usize {
        const { assert!(FIRST.is_power_of_two()) };
        (usize::BITS - (index / FIRST).leading_zeros()) as usize
    }

    /// The index of a chunk's first element: how many are in the chunks before it.
    #[inline(always)]
    fn start(chunk: usize) -> usize {
        // Twice as many for each, but none before the first.
        ((FIRST << chunk) / 2) & !(FIRST - 1)
    }

    /// How many elements a chunk has.
    #[inline(always)]
    fn len(chunk: usize) -> usize {
        Self::start(chunk + 1) - Self::start(chunk)
    }

    /// What its chunks take.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let made = |&chunk: &usize| !self.chunks[chunk].load(Acquire).is_null();
        (0..CHUNKS).filter(made).map(|chunk| Self::layout(chunk).size()).sum()
    }

    fn layout(chunk: usize) -> Layout {
        Layout::array::<T>(Self::len(chunk)).expect("far smaller than the address space")
    }
}

impl<P: Platform, T: Send + Sync, const FIRST: usize, const CHUNKS: usize>
    Chunks<P, T, FIRST, CHUNKS>
{
    /// Empty.
    pub(crate) const NEW: Self = Chunks { chunks: [const { P::AtomicPtr::ZERO }; CHUNKS] };

    /// The elements of a chunk, if it has been made and this thread can see it yet.
    #[inline]
    fn chunk(&self, chunk: usize) -> Option<&[T]> {
        // Acquire pairs with the Release in `publish`.
        let elements: *const T = self.chunks[chunk].load(Acquire);
        if elements.is_null() {
            return None;
        }
        // SAFETY: a chunk of this length that is initialised and lives as long as `self` (invariant
        // 1).
        Some(unsafe { slice::from_raw_parts(elements, Self::len(chunk)) })
    }

    /// The element at this index, if its chunk has been made and this thread can see it yet.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        let chunk = Self::chunk_of(index);
        self.chunk(chunk).map(|elements| &elements[index - Self::start(chunk)])
    }

    /// The element at this index, made now with its whole chunk if there is none yet; none if there
    /// is no memory.
    pub(crate) fn get_or_make(&self, index: usize, make: impl Fn(usize) -> T) -> Option<&T> {
        self.get(index).or_else(|| self.publish(index, make))
    }

    #[cold]
    fn publish(&self, index: usize, make: impl Fn(usize) -> T) -> Option<&T> {
        let chunk = Self::chunk_of(index);
        // SAFETY: the layout's size is not zero. The chunk is initialised before it is published
        // (invariant 1). If another thread published one first, this one is freed by its only
        // owner.
        unsafe {
            let new = P::allocate(Self::layout(chunk)).cast::<T>();
            if new.is_null() {
                return None;
            }
            for place in 0..Self::len(chunk) {
                new.add(place).write(make(Self::start(chunk) + place));
            }
            let others = self.chunks[chunk].compare_exchange(ptr::null_mut(), new, AcqRel, Acquire);
            if others.is_err() {
                Self::free(chunk, new);
            }
        }
        self.get(index)
    }

    /// Whether `ask` is true of each of the first `count` elements; stops at the first of which it
    /// is not. The caller has learned of `count` from the threads that made these elements.
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
        for chunk in 0.. {
            if left == 0 {
                break;
            }
            let elements = self.chunk(chunk).expect("made before it is counted");
            // Cut off here: with `take`, two conditions in the loop, a look at the records of 65
            // threads took a fifth longer.
            let elements = &elements[..left.min(elements.len())];
            if !elements.iter().all(&mut ask) {
                return false;
            }
            left -= elements.len();
        }
        true
    }
}

impl<P: Platform, T, const FIRST: usize, const CHUNKS: usize> Chunks<P, T, FIRST, CHUNKS> {
    /// # Safety
    /// The elements were allocated and initialised by [`publish`](Self::publish) for this chunk,
    /// and nobody else refers to them.
    unsafe fn free(chunk: usize, elements: *mut T) {
        // SAFETY: initialised, allocated with this layout, and referred to by nobody else, as the
        // caller promises.
        unsafe {
            ptr::slice_from_raw_parts_mut(elements, Self::len(chunk)).drop_in_place();
            P::deallocate(elements.cast(), Self::layout(chunk));
        }
    }
}

impl<P: Platform, T, const FIRST: usize, const CHUNKS: usize> Drop for Chunks<P, T, FIRST, CHUNKS> {
    /// Happens to simulated processes only: any other process ends with the program.
    fn drop(&mut self) {
        for (chunk, elements) in self.chunks.iter_mut().enumerate() {
            let elements = elements.value();
            if !elements.is_null() {
                // SAFETY: `publish` made it, and as `self` is dropped nobody else refers to it.
                unsafe { Self::free(chunk, elements) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;

    type Eight = Chunks<Os, usize, 8, 4>;

    #[test]
    fn each_index_is_in_one_chunk_and_a_chunk_has_as_many_as_all_before_it() {
        assert_eq!([0, 1, 2, 3].map(Eight::start), [0, 8, 16, 32]);
        assert_eq!([0, 1, 2, 3].map(Eight::len), [8, 8, 16, 32]);
        assert_eq!(Eight::MOST, 64);
        for index in 0..Eight::MOST {
            let chunk = Eight::chunk_of(index);
            let elements = Eight::start(chunk)..Eight::start(chunk) + Eight::len(chunk);
            assert!(chunk < 4 && elements.contains(&index), "{index}");
        }
    }

    #[test]
    fn an_element_is_made_with_its_chunk_and_found_at_its_index() {
        let all = Eight::NEW;
        for (index, made) in [(0, 8), (7, 8), (8, 16), (17, 32), (63, 64)] {
            assert_eq!(all.get_or_make(index, |index| index * 10), Some(&(index * 10)));
            assert_eq!((0..Eight::MOST).filter(|&index| all.get(index).is_some()).count(), made);
        }
        let mut seen = Vec::new();
        assert!(all.all_of_first(20, |&element| {
            seen.push(element);
            true
        }));
        assert!(seen.into_iter().eq((0..20).map(|index| index * 10)));
        assert!(!all.all_of_first(20, |&element| element < 150));
    }
}
