//! The guards of slices and vectors. Invariants are quoted by their numbers in the [module](super).

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use super::Part;
use crate::platform::Os;
use crate::range::{RangeReadGuard, RangeWriteGuard, RawRangeLock, Slotted};

/// Shared access to a range of elements; releases when dropped.
///
/// # Example
/// ```
/// use fairlock::{RangeVec, range::SliceReadGuard};
///
/// let numbers = RangeVec::new(vec![1, 2, 3]);
/// let last: SliceReadGuard<u8> = numbers.read(1..)?;
/// assert_eq!(last.iter().sum::<u8>(), 5);
/// # Ok::<(), fairlock::range::InvalidRange>(())
/// ```
#[must_use = "the range is released at once if the guard is not kept"]
pub struct SliceReadGuard<'a, T, R: RawRangeLock = Slotted<Os>> {
    part: Part<T, RangeReadGuard<'a, R>>,
    elements: PhantomData<&'a [T]>,
}

/// Exclusive access to a range of elements; releases when dropped.
///
/// # Example
/// ```
/// use fairlock::{RangeVec, range::SliceWriteGuard};
///
/// let numbers = RangeVec::new(vec![1, 2, 3, 4]);
/// let mut all: SliceWriteGuard<u8> = numbers.write(..)?;
/// let (low, high) = all.split_at_mut(2); // for two threads in a scope, for instance
/// low.swap_with_slice(high);
/// assert_eq!(all[..], [3, 4, 1, 2]);
/// # Ok::<(), fairlock::range::InvalidRange>(())
/// ```
#[must_use = "the range is released at once if the guard is not kept"]
pub struct SliceWriteGuard<'a, T, R: RawRangeLock = Slotted<Os>> {
    part: Part<T, RangeWriteGuard<'a, R>>,
    elements: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a `&[T]` and the guard of its range.
unsafe impl<'a, T, R: RawRangeLock> Send for SliceReadGuard<'a, T, R>
where
    &'a [T]: Send,
    RangeReadGuard<'a, R>: Send,
{
}
// SAFETY: a shared reference to it gives `&[T]`, and nothing of the range's guard.
unsafe impl<'a, T, R: RawRangeLock> Sync for SliceReadGuard<'a, T, R>
where
    &'a [T]: Sync,
    RangeReadGuard<'a, R>: Sync,
{
}
// SAFETY: it is a `&mut [T]` and the guard of its range. Other threads get no more from it, as
// `downgrade` asks for `T: Sync`.
unsafe impl<'a, T, R: RawRangeLock> Send for SliceWriteGuard<'a, T, R>
where
    &'a mut [T]: Send,
    RangeWriteGuard<'a, R>: Send,
{
}
// SAFETY: a shared reference to it gives `&[T]`, and nothing of the range's guard.
unsafe impl<'a, T, R: RawRangeLock> Sync for SliceWriteGuard<'a, T, R>
where
    &'a mut [T]: Sync,
    RangeWriteGuard<'a, R>: Sync,
{
}

impl<'a, T, R: RawRangeLock> SliceReadGuard<'a, T, R> {
    pub(super) fn new(part: Part<T, RangeReadGuard<'a, R>>) -> Self {
        SliceReadGuard { part, elements: PhantomData }
    }
}

impl<'a, T, R: RawRangeLock> SliceWriteGuard<'a, T, R> {
    pub(super) fn new(part: Part<T, RangeWriteGuard<'a, R>>) -> Self {
        SliceWriteGuard { part, elements: PhantomData }
    }

    /// Keeps the elements, shared: waiters that conflict with nobody else now get shared access,
    /// and nobody has exclusive access in between.
    ///
    /// # Example
    /// ```
    /// use fairlock::{RangeVec, range::SliceWriteGuard};
    ///
    /// let numbers = RangeVec::new(vec![0; 4]);
    /// let mut writing = numbers.write(..2)?;
    /// writing.fill(7);
    /// let reading = SliceWriteGuard::downgrade(writing);
    /// assert!(numbers.try_write(1..)?.is_none());
    /// assert_eq!(numbers.read(1..)?[..], [7, 0, 0]);
    /// # drop(reading);
    /// # Ok::<(), fairlock::range::InvalidRange>(())
    /// ```
    pub fn downgrade(guard: Self) -> SliceReadGuard<'a, T, R>
    where
        T: Sync,
    {
        let Part { elements, held } = guard.part;
        SliceReadGuard::new(Part { elements, held: held.map(RangeWriteGuard::downgrade) })
    }
}

impl<T, R: RawRangeLock> Deref for SliceReadGuard<'_, T, R> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the elements are held shared until the guard is dropped (invariant 1), and do not
        // move (invariant 3); or there are none.
        unsafe { self.part.elements.as_ref() }
    }
}

impl<T, R: RawRangeLock> Deref for SliceWriteGuard<'_, T, R> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the elements are held exclusively until the guard is dropped or downgraded
        // (invariant 1), and do not move (invariant 3); or there are none. `&self` excludes what
        // `deref_mut` gives.
        unsafe { self.part.elements.as_ref() }
    }
}

impl<T, R: RawRangeLock> DerefMut for SliceWriteGuard<'_, T, R> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the elements are held exclusively until the guard is dropped or downgraded
        // (invariant 1), and do not move (invariant 3); or there are none. `&mut self`: one such
        // reference at a time.
        unsafe { self.part.elements.as_mut() }
    }
}

impl<T: fmt::Debug, R: RawRangeLock> fmt::Debug for SliceReadGuard<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug, R: RawRangeLock> fmt::Debug for SliceWriteGuard<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
