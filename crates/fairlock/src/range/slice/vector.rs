//! Vectors whose ranges are locked. Invariants are quoted by their numbers in the [module](super).

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::{self, ManuallyDrop};
use core::ops::{Range, RangeBounds};
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::locking::{WITHOUT_DEADLINE, locked_ranges};
use super::{Elements, InvalidRange, SliceReadGuard, SliceWriteGuard};
use crate::platform::Os;
use crate::range::{Extent, RangeLock, RangeWriteGuard, RawRangeLock, Slotted};

/// A vector whose ranges are locked: threads read and write disjoint ranges at once; a thread that
/// changes its length waits for all guards.
///
/// Ranges and guarantees are those of [`RangeSlice`](super::RangeSlice). A range beyond the end is
/// refused, by the length that the vector has once the range is locked; an open range ends where
/// the vector then ends.
///
/// Growing moves the elements, so every other access waits for it. Make the vector as long as it
/// will be, or extend it by many elements at a time.
///
/// # Example
/// ```
/// use fairlock::RangeVec;
///
/// static SAMPLES: RangeVec<u32> = RangeVec::empty();
///
/// SAMPLES.extend([1, 2, 3, 4]);
/// let mut first = SAMPLES.write(..2)?;
/// let last = SAMPLES.read(2..)?; // disjoint: does not wait
/// first.swap_with_slice(&mut last.to_vec());
/// drop((first, last));
///
/// assert_eq!(SAMPLES.push(5), 4);
/// assert_eq!(SAMPLES.read(..)?[..], [3, 4, 3, 4, 5]);
/// # Ok::<(), fairlock::range::InvalidRange>(())
/// ```
pub struct RangeVec<T, R = Slotted<Os>> {
    lock: RangeLock<R>,
    /// Written as invariant 3 says.
    memory: UnsafeCell<Memory<T>>,
    /// Likewise. Relaxed is enough: the lock orders it for holders, and a thread that asks without
    /// holding a range learns nothing about the elements.
    len: AtomicUsize,
}

/// Where a vector is: all that [`Vec`] knows, except for its length. A `Vec` here would not do: it
/// gives a pointer for writing only to those that have the `Vec` by `&mut`.
struct Memory<T> {
    start: NonNull<T>,
    capacity: usize,
}

// SAFETY: it is a `Vec<T>` and a lock.
unsafe impl<T: Send, R: Send> Send for RangeVec<T, R> {}
// SAFETY: a thread that shares it can get elements exclusively, for which they must be `Send`, and
// share elements with other threads, for which they must be `Sync`; the lock keeps the two apart
// (invariant 1). A thread that changes the length holds all elements exclusively.
unsafe impl<T: Send + Sync, R: Sync> Sync for RangeVec<T, R> {}

impl<T, R: RawRangeLock> Elements<T, R> for RangeVec<T, R> {
    fn lock(&self) -> &RangeLock<R> {
        &self.lock
    }

    fn count(&self) -> usize {
        self.len.load(Relaxed)
    }

    fn greatest_count(&self) -> usize {
        usize::MAX
    }

    unsafe fn start(&self) -> NonNull<T> {
        // SAFETY: the caller holds a range, so nobody writes `memory` (invariant 3).
        unsafe { (*self.memory.get()).start }
    }
}

impl<T> RangeVec<T> {
    /// Lets threads share these elements by ranges.
    ///
    /// # Example
    /// ```
    /// use fairlock::RangeVec;
    ///
    /// let squares = RangeVec::new((0..10).map(|number| number * number).collect());
    /// assert_eq!(squares.read(9..)?[..], [81]);
    /// # Ok::<(), fairlock::range::InvalidRange>(())
    /// ```
    pub fn new(elements: Vec<T>) -> Self {
        Self::new_in(elements)
    }

    /// Without elements yet; usable in statics.
    ///
    /// # Example
    /// ```
    /// use fairlock::RangeVec;
    ///
    /// static TABLE: RangeVec<u64> = RangeVec::empty();
    /// assert!(TABLE.is_empty());
    /// ```
    pub const fn empty() -> Self {
        RangeVec {
            lock: RangeLock::new_in(),
            memory: UnsafeCell::new(Memory { start: NonNull::dangling(), capacity: 0 }),
            len: AtomicUsize::new(0),
        }
    }
}

impl<T, R: RawRangeLock> RangeVec<T, R> {
    /// As [`new`](RangeVec::new), with a lock of any kind.
    ///
    /// # Example
    /// ```
    /// use fairlock::{RangeVec, range::Slotted};
    ///
    /// let numbers = RangeVec::<u8, Slotted>::new_in(vec![1, 2]);
    /// assert_eq!(numbers.len(), 2);
    /// ```
    pub fn new_in(mut elements: Vec<T>) -> Self {
        let memory = UnsafeCell::new(Memory::of(&mut elements));
        let len = AtomicUsize::new(elements.len());
        mem::forget(elements); // The new vector owns them.
        RangeVec { lock: RangeLock::new_in(), memory, len }
    }

    locked_ranges!("# let numbers = fairlock::RangeVec::new(vec![0; 10]);");

    /// Waits for exclusive access to the whole vector.
    fn alone(&self) -> Alone<'_, T, R> {
        let held = self.lock.write(Extent::ALL);
        // SAFETY: the whole lock is held exclusively (invariant 3), and `Alone` gives the elements
        // back.
        let elements = unsafe { (*self.memory.get()).elements(self.count()) };
        Alone { elements: ManuallyDrop::new(elements), vector: self, _held: held }
    }

    /// Appends an element and returns its index. Waits for exclusive access to the whole vector.
    ///
    /// # Example
    /// ```
    /// let numbers = fairlock::RangeVec::new(vec![1, 2]);
    /// assert_eq!(numbers.push(3), 2);
    /// assert_eq!(numbers.read(2..)?[..], [3]);
    /// # Ok::<(), fairlock::range::InvalidRange>(())
    /// ```
    pub fn push(&self, element: T) -> usize {
        let mut alone = self.alone();
        alone.elements.push(element);
        alone.elements.len() - 1
    }

    /// Appends elements, side by side, and returns their indices. It collects them before it waits
    /// for exclusive access to the whole vector, so the iterator itself may lock ranges.
    ///
    /// # Example
    /// ```
    /// let numbers = fairlock::RangeVec::new(vec![1]);
    /// assert_eq!(numbers.extend([2, 3]), 1..3);
    /// assert_eq!(numbers.into_inner(), [1, 2, 3]);
    /// ```
    pub fn extend(&self, elements: impl IntoIterator<Item = T>) -> Range<usize> {
        let mut elements: Vec<T> = elements.into_iter().collect();
        let mut alone = self.alone();
        let before = alone.elements.len();
        alone.elements.append(&mut elements);
        before..alone.elements.len()
    }

    /// Keeps the first `len` elements and drops the others. Waits for exclusive access to the whole
    /// vector and holds it while it drops them, so their destructors must not lock ranges of it.
    ///
    /// # Example
    /// ```
    /// let numbers = fairlock::RangeVec::new(vec![1, 2, 3]);
    /// numbers.truncate(1);
    /// assert!(numbers.read(1..2).is_err());
    /// numbers.truncate(7); // as with `Vec`, nothing to do
    /// assert_eq!(numbers.into_inner(), [1]);
    /// ```
    pub fn truncate(&self, len: usize) {
        self.alone().elements.truncate(len);
    }
}

impl<T, R> RangeVec<T, R> {
    /// How many elements there are at the moment. Waits for nobody. Unless the caller has a guard,
    /// another thread may change the length before the caller looks at it.
    ///
    /// # Example
    /// ```
    /// assert_eq!(fairlock::RangeVec::new(vec![1, 2]).len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Whether there are none at the moment, as [`len`](Self::len) says.
    ///
    /// # Example
    /// ```
    /// assert!(fairlock::RangeVec::<u8>::new(Vec::new()).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All elements, locking nothing: nobody else can have a guard.
    ///
    /// # Example
    /// ```
    /// let mut numbers = fairlock::RangeVec::new(vec![1, 2]);
    /// std::mem::forget(numbers.write(..)?); // locked for ever
    /// numbers.get_mut()[0] = 3;
    /// assert_eq!(numbers.into_inner(), [3, 2]);
    /// # Ok::<(), fairlock::range::InvalidRange>(())
    /// ```
    pub fn get_mut(&mut self) -> &mut [T] {
        let len = *self.len.get_mut();
        // SAFETY: no guard is in use (invariant 4), and the vector owns the elements.
        unsafe { slice::from_raw_parts_mut(self.memory.get_mut().start.as_ptr(), len) }
    }

    /// The elements.
    ///
    /// # Example
    /// ```
    /// assert_eq!(fairlock::RangeVec::new(vec![1, 2]).into_inner(), [1, 2]);
    /// ```
    pub fn into_inner(mut self) -> Vec<T> {
        self.take()
    }

    fn take(&mut self) -> Vec<T> {
        let len = mem::take(self.len.get_mut());
        let memory = mem::replace(self.memory.get_mut(), Memory::of(&mut Vec::new()));
        // SAFETY: no guard is in use (invariant 4), and the vector has just given the elements up.
        unsafe { memory.elements(len) }
    }
}

impl<T, R> Drop for RangeVec<T, R> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> Default for RangeVec<T> {
    fn default() -> Self {
        RangeVec::new(Vec::new())
    }
}

impl<T> From<Vec<T>> for RangeVec<T> {
    fn from(elements: Vec<T>) -> Self {
        RangeVec::new(elements)
    }
}

impl<T, R> fmt::Debug for RangeVec<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeVec").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T> Memory<T> {
    fn of(elements: &mut Vec<T>) -> Self {
        let capacity = elements.capacity();
        let start = NonNull::new(elements.as_mut_ptr()).expect("not even an empty one is at null");
        Memory { start, capacity }
    }

    /// # Safety
    /// The memory is that of a forgotten `Vec` of this length, and nobody else uses it. Of all
    /// results for the same memory only one may be dropped.
    unsafe fn elements(&self, len: usize) -> Vec<T> {
        // SAFETY: the parts of a forgotten `Vec`, of which the caller drops one result only.
        unsafe { Vec::from_raw_parts(self.start.as_ptr(), len, self.capacity) }
    }
}

/// The whole vector, held exclusively. Its drop gives the elements back, on unwinding too.
struct Alone<'a, T, R: RawRangeLock> {
    elements: ManuallyDrop<Vec<T>>,
    vector: &'a RangeVec<T, R>,
    /// Released last.
    _held: RangeWriteGuard<'a, R>,
}

impl<T, R: RawRangeLock> Drop for Alone<'_, T, R> {
    fn drop(&mut self) {
        self.vector.len.store(self.elements.len(), Relaxed);
        // SAFETY: the whole lock is held until after this (invariant 3), and `elements` is not
        // dropped.
        unsafe { *self.vector.memory.get() = Memory::of(&mut self.elements) };
    }
}
