//! Slices and vectors whose ranges are locked: threads have `&[T]` and `&mut [T]` of disjoint
//! ranges at the same time, without `unsafe` on their side. `vector.rs` has the vectors,
//! `locking.rs` the ways to lock, `guards.rs` the guards.
//!
//! Not for: elements that are always locked one at a time; an array of locks does that.
//!
//! Invariants
//! 1. The position of an element in the lock is its index. The holder of a range may use the
//!    elements in it, shared or exclusively, and nobody else touches an element, except for an
//!    owner that has the whole by `&mut` or by value.
//! 2. Elements are reached from a raw pointer, and only those of the held range: there is never a
//!    reference to the whole while somebody may have a reference to a part.
//! 3. A vector's place in memory, its capacity and its length change only while the whole lock is
//!    held exclusively, and so not while anybody holds any range.
//! 4. Guards borrow the slice or vector, so while somebody has it by `&mut` or by value no guard is
//!    in use, though a forgotten one may keep its range locked.
//!
//! What may cross threads
//!
//! | | `Send` if | `Sync` if | because |
//! |---|---|---|---|
//! | slice, vector | `T: Send` | `T: Send + Sync` | through `&self` one thread gets `&mut [T]`, or many get `&[T]` |
//! | read guard | `T: Sync` | `T: Sync` | it is a `&[T]` |
//! | write guard | `T: Send` | `T: Sync` | it is a `&mut [T]` |
//!
//! A write guard of elements that are `Send` but not `Sync` may move to another thread. If it could
//! become a read guard there, the first thread could get another read guard of the same elements,
//! and both would share them. So `downgrade` asks for `T: Sync`.

mod guards;
mod invalid;
mod locking;
#[cfg(doctest)]
mod must_not_compile;
mod vector;

use core::fmt;
use core::marker::PhantomData;
use core::ops::RangeBounds;
use core::ptr::NonNull;
use core::slice;
use std::time::{Duration, Instant};

pub use guards::{SliceReadGuard, SliceWriteGuard};
pub use invalid::InvalidRange;
pub use vector::RangeVec;

use super::{Extent, RangeLock, RawRangeLock, Slotted};
use crate::platform::Os;
use invalid::resolve;
use locking::{WITHOUT_DEADLINE, locked_ranges};

/// A borrowed slice whose ranges are locked: threads read and write disjoint ranges at once.
///
/// Ranges count elements. An empty range that indexing would accept gives an empty slice at once,
/// and locks nothing.
///
/// # Guarantees
/// * Who waits for whom, and for how long: as with [`RangeLock`].
/// * No poisoning: a panic releases the ranges through their guards, and the elements are as it
///   left them.
/// * A forgotten guard keeps its range locked. The elements return to their owner all the same.
/// * Not recursive: a thread that waits for a second range while it holds a first one waits for
///   ever if the two conflict, or if a waiter before it conflicts with both. Lock one wider range,
///   or the second one by a `try_` form.
///
/// # Example
/// ```
/// use fairlock::RangeSlice;
///
/// let mut pixels = vec![0u8; 100 * 100];
/// let image = RangeSlice::new(&mut pixels);
/// std::thread::scope(|scope| {
///     for row in 0..100 {
///         let image = &image;
///         scope.spawn(move || image.write(row * 100..(row + 1) * 100).unwrap().fill(row as u8));
///     }
/// });
/// assert_eq!(image.read(199..201)?[..], [1, 2]);
/// assert_eq!(pixels[9_999], 99);
/// # Ok::<(), fairlock::range::InvalidRange>(())
/// ```
pub struct RangeSlice<'a, T, R = Slotted<Os>> {
    lock: RangeLock<R>,
    start: NonNull<T>,
    len: usize,
    elements: PhantomData<&'a mut [T]>,
}

/// Some elements and the guard of their positions; neither for an empty range.
///
/// The elements are behind a pointer: a reference would have to stay valid until a function that
/// drops the guard returns, and not only until the range is released.
struct Part<T, G> {
    elements: NonNull<[T]>,
    held: Option<G>,
}

impl<T, G> Part<T, G> {
    fn empty() -> Self {
        Part { elements: NonNull::slice_from_raw_parts(NonNull::dangling(), 0), held: None }
    }
}

/// What slices and vectors have in common.
trait Elements<T, R: RawRangeLock> {
    fn lock(&self) -> &RangeLock<R>;

    fn count(&self) -> usize;

    /// What [`count`](Self::count) may have become by the time that a range is locked.
    fn greatest_count(&self) -> usize;

    /// Where the elements begin. The holder of an exclusive range may write to its elements through
    /// it.
    ///
    /// # Safety
    /// The caller holds a range of the lock.
    unsafe fn start(&self) -> NonNull<T>;

    /// Locks a range of elements; `None` if `acquire` gives up.
    fn acquire<'a, G>(
        &'a self,
        range: impl RangeBounds<usize>,
        acquire: impl FnOnce(&'a RangeLock<R>, Extent) -> Option<G>,
    ) -> Result<Option<Part<T, G>>, InvalidRange>
    where
        R: 'a,
    {
        let widest = resolve(&range, self.greatest_count())?;
        let Ok(extent) = Extent::of(widest.start as u64..widest.end as u64) else {
            return resolve(&range, self.count()).map(|_| Some(Part::empty()));
        };
        let Some(held) = acquire(self.lock(), extent) else { return Ok(None) };
        let range = resolve(&range, self.count())?;
        // SAFETY: while `held`, a range of the lock, is held the elements do not move and none are
        // removed (invariant 3), and `range` is within them.
        let start = unsafe { self.start().add(range.start) };
        let elements = NonNull::slice_from_raw_parts(start, range.len());
        Ok(Some(Part { elements, held: Some(held) }))
    }
}

impl<T, R: RawRangeLock> Elements<T, R> for RangeSlice<'_, T, R> {
    fn lock(&self) -> &RangeLock<R> {
        &self.lock
    }

    fn count(&self) -> usize {
        self.len
    }

    fn greatest_count(&self) -> usize {
        self.len
    }

    unsafe fn start(&self) -> NonNull<T> {
        self.start
    }
}

// SAFETY: it is a `&mut [T]` and a lock.
unsafe impl<T: Send, R: Send> Send for RangeSlice<'_, T, R> {}
// SAFETY: a thread that shares it can get elements exclusively, for which they must be `Send`, and
// share elements with other threads, for which they must be `Sync`; the lock keeps the two apart
// (invariant 1).
unsafe impl<T: Send + Sync, R: Sync> Sync for RangeSlice<'_, T, R> {}

impl<'a, T> RangeSlice<'a, T> {
    /// Lets threads share these elements by ranges.
    ///
    /// # Example
    /// ```
    /// let mut bytes = [0u8; 1024];
    /// let shared = fairlock::RangeSlice::new(&mut bytes);
    /// shared.write(512..)?.fill(1);
    /// assert_eq!(bytes.iter().map(|&byte| usize::from(byte)).sum::<usize>(), 512);
    /// # Ok::<(), fairlock::range::InvalidRange>(())
    /// ```
    pub const fn new(elements: &'a mut [T]) -> Self {
        Self::new_in(elements)
    }
}

impl<'a, T, R: RawRangeLock> RangeSlice<'a, T, R> {
    /// As [`new`](RangeSlice::new), with a lock of any kind.
    ///
    /// # Example
    /// ```
    /// use fairlock::{RangeSlice, range::Slotted};
    ///
    /// let mut bytes = [0u8; 1024];
    /// let shared = RangeSlice::<u8, Slotted>::new_in(&mut bytes);
    /// assert_eq!(shared.len(), 1024);
    /// ```
    pub const fn new_in(elements: &'a mut [T]) -> Self {
        let len = elements.len();
        let start = NonNull::new(elements.as_mut_ptr()).expect("a reference is not null");
        RangeSlice { lock: RangeLock::new_in(), start, len, elements: PhantomData }
    }

    locked_ranges!("# let mut all = [0; 10]; let numbers = fairlock::RangeSlice::new(&mut all);");
}

impl<'a, T, R> RangeSlice<'a, T, R> {
    /// How many elements there are.
    ///
    /// # Example
    /// ```
    /// assert_eq!(fairlock::RangeSlice::new(&mut [1, 2]).len(), 2);
    /// ```
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    ///
    /// # Example
    /// ```
    /// assert!(fairlock::RangeSlice::<u8>::new(&mut []).is_empty());
    /// ```
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All elements, locking nothing: nobody else can have a guard.
    ///
    /// # Example
    /// ```
    /// let mut numbers = [1, 2];
    /// let mut shared = fairlock::RangeSlice::new(&mut numbers);
    /// std::mem::forget(shared.write(..)?); // locked for ever
    /// shared.get_mut()[0] = 3;
    /// assert_eq!(numbers, [3, 2]);
    /// # Ok::<(), fairlock::range::InvalidRange>(())
    /// ```
    pub const fn get_mut(&mut self) -> &mut [T] {
        // SAFETY: no guard is in use (invariant 4), and the elements are borrowed for longer than
        // `self`.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// The slice from which it was made.
    ///
    /// # Example
    /// ```
    /// let mut numbers = [1, 2];
    /// let shared = fairlock::RangeSlice::new(&mut numbers);
    /// let slice: &mut [u8] = shared.into_inner();
    /// assert_eq!(slice, [1, 2]);
    /// ```
    pub fn into_inner(self) -> &'a mut [T] {
        // SAFETY: no guard is in use (invariant 4); the elements were borrowed for `'a`, and
        // nothing else leads to them any more.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T, R> fmt::Debug for RangeSlice<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeSlice").field("len", &self.len).finish_non_exhaustive()
    }
}
