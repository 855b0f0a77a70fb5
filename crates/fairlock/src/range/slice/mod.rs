//! Slices and vectors whose parts are locked: guards of disjoint ranges give their holders `&[T]` and
//! `&mut [T]` at once, without `unsafe` on their side.
//!
//! Not for: elements that are locked one at a time and known by name; an array of locks does that.
//!
//! Invariants
//! 1. The position of an element in the lock is its index. Whoever holds a range of the lock has the
//!    elements in it, shared or alone, and nobody touches an element otherwise, but for those that
//!    have the whole by `&mut` or by value.
//! 2. Elements are reached from a raw pointer, and only those of the held range: there is never a
//!    reference to the whole while somebody may have another to a part.
//! 3. Where a vector's elements are, its capacity and its length change only while the whole lock is
//!    held exclusively, and so not while anybody holds any range.
//! 4. Guards borrow what they were taken from, so by the time it can be had by `&mut` or by value no
//!    guard is used any more, though one that was forgotten may keep its range locked.
//!
//! What may cross threads
//!
//! | | `Send` if | `Sync` if | because |
//! |---|---|---|---|
//! | slice, vector | `T: Send` | `T: Send + Sync` | `&self` gives `&mut [T]` to one thread or `&[T]` to many |
//! | read guard | `T: Sync` | `T: Sync` | it is a `&[T]` |
//! | write guard | `T: Send` | `T: Sync` | it is a `&mut [T]` |
//!
//! A write guard of elements that are `Send` and not `Sync` may leave its thread. If it could become
//! a read guard there, the thread that it left could take another of the same elements: so
//! `downgrade` asks for `T: Sync`.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop};
use core::ops::{Bound, Deref, DerefMut, Range, RangeBounds};
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use std::error::Error;
use std::time::{Duration, Instant};

use super::{Extent, RangeLock, RangeReadGuard, RangeWriteGuard, RawRangeLock, Slotted};
use crate::platform::Os;

/// A borrowed slice whose parts are locked: threads read and write disjoint ranges at once.
///
/// Ranges count elements. An empty one that indexing would accept gives an empty slice at once,
/// locking nothing.
///
/// # Guarantees
/// * Who waits for whom, and for how long, is the lock's: see [`RangeLock`].
/// * No poisoning: a panic releases the ranges through their guards, and the elements are as it left
///   them.
/// * A guard that is forgotten keeps its range locked. The elements come back to their owner all the
///   same.
/// * Not recursive: a thread with a guard that waits for a second one waits for ever if the second
///   overlaps the first and either is exclusive, or if it comes behind somebody who waits for both.
///   Take one wider range, or the second by a `try_` form.
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

/// A vector whose parts are locked: threads read and write disjoint ranges at once; who changes its
/// length waits until he is alone.
///
/// Ranges and guarantees are those of [`RangeSlice`]. What lies beyond the end is refused, by the
/// length that it has once the range is locked; an open range ends where the vector then ends.
///
/// Growing moves the elements, so that everybody waits for it. Make the vector as long as it will be,
/// or extend it by many elements at a time.
///
/// # Example
/// ```
/// use fairlock::RangeVec;
///
/// static SAMPLES: RangeVec<u32> = RangeVec::new(Vec::new());
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
    /// Likewise, so that Relaxed is enough: the lock orders it, and who asks without holding anything
    /// learns nothing about the elements.
    len: AtomicUsize,
}

/// Where a vector is: what [`Vec`] knows but for its length. A `Vec` here would not do: it gives a
/// pointer to write through to nobody but those who have it alone.
struct Memory<T> {
    start: NonNull<T>,
    capacity: usize,
}

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

/// Why a range of indices is none of these elements. Slices panic where this is returned.
///
/// # Example
/// ```
/// use fairlock::{RangeVec, range::InvalidRange};
///
/// let numbers = RangeVec::new(vec![1, 2, 3]);
/// let error = numbers.read(2..5).unwrap_err();
/// assert_eq!(error, InvalidRange::BeyondEnd { start: 2, end: Some(5), len: 3 });
/// assert!(error.to_string().contains("2..5"));
/// assert!(numbers.read(3..)?.is_empty(), "an empty range is a valid one");
/// # Ok::<(), fairlock::range::InvalidRange>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidRange {
    /// It begins after it ends.
    Backwards {
        /// Where it begins.
        start: usize,
        /// Where it ends; not part of it.
        end: usize,
    },
    /// It is not all there.
    BeyondEnd {
        /// Where it begins.
        start: usize,
        /// Where it ends, not part of it; none if it is open.
        end: Option<usize>,
        /// How many elements there are.
        len: usize,
    },
}

impl fmt::Display for InvalidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            InvalidRange::Backwards { start, end } => {
                write!(f, "the range {start}..{end} begins after it ends: swap its ends")
            }
            InvalidRange::BeyondEnd { start, end, len } => {
                write!(f, "the range {start}..")?;
                end.map_or(Ok(()), |end| write!(f, "{end}"))?;
                write!(f, " is not all within the length of {len}: let it begin and end there")
            }
        }
    }
}

impl Error for InvalidRange {}

/// Which of so many elements a range means.
fn resolve(range: &impl RangeBounds<usize>, len: usize) -> Result<Range<usize>, InvalidRange> {
    // An index is less than `usize::MAX`, so what saturates here lies beyond every end.
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => Some(last.saturating_add(1)),
        Bound::Excluded(end) => Some(*end),
        Bound::Unbounded => None,
    };
    match end {
        Some(end) if start > end => Err(InvalidRange::Backwards { start, end }),
        _ if start.max(end.unwrap_or(0)) > len => Err(InvalidRange::BeyondEnd { start, end, len }),
        _ => Ok(start..end.unwrap_or(len)),
    }
}

/// Some elements and the guard of their positions; none of either for an empty range.
///
/// A pointer, as a reference would have to be valid until a function that drops the guard returns,
/// and not only until the range is released.
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

    /// Where they begin. May write to those whose range is held exclusively.
    ///
    /// # Safety
    /// The caller holds a range of the lock.
    unsafe fn start(&self) -> NonNull<T>;

    /// None if the range could not be had in time.
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
        // SAFETY: `held` is a range of the lock, and so the elements stay where and as many as they
        // are (invariant 3), and `range` is within them.
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
        // SAFETY: invariant 3 and the caller's.
        unsafe { (*self.memory.get()).start }
    }
}

const WITHOUT_DEADLINE: &str = "without a deadline a wait ends with the range";

/// All ways to lock a range. `$setup` makes `numbers`, ten zeros, for the examples.
macro_rules! locked_ranges {
    ($setup:literal) => {
        /// Waits for shared access to these elements.
        ///
        /// # Errors
        /// [`InvalidRange`] if they are not all there.
        ///
        /// # Example
        /// ```
        #[doc = $setup]
        /// assert_eq!(numbers.read(3..5)?[..], [0, 0]);
        /// assert!(numbers.read(8..11).is_err());
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn read(
            &self,
            range: impl RangeBounds<usize>,
        ) -> Result<SliceReadGuard<'_, T, R>, InvalidRange> {
            let part = self.acquire(range, |lock, extent| Some(lock.read(extent)))?;
            Ok(SliceReadGuard::new(part.expect(WITHOUT_DEADLINE)))
        }

        /// Waits for exclusive access to these elements.
        ///
        /// # Errors
        /// [`InvalidRange`] if they are not all there.
        ///
        /// # Example
        /// ```
        #[doc = $setup]
        /// let mut low = numbers.write(..5)?;
        /// let mut high = numbers.write(5..)?; // disjoint: does not wait
        /// low[0] = 1;
        /// high[0] = 2;
        /// drop((low, high));
        /// assert_eq!(numbers.read(..=5)?[..], [1, 0, 0, 0, 0, 2]);
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn write(
            &self,
            range: impl RangeBounds<usize>,
        ) -> Result<SliceWriteGuard<'_, T, R>, InvalidRange> {
            let part = self.acquire(range, |lock, extent| Some(lock.write(extent)))?;
            Ok(SliceWriteGuard::new(part.expect(WITHOUT_DEADLINE)))
        }

        /// Shared access to these elements, if nobody who keeps it away is in or waits.
        ///
        /// # Errors
        /// [`InvalidRange`] if they are not all there.
        ///
        /// # Example
        /// ```
        #[doc = $setup]
        /// let writing = numbers.write(3..5)?;
        /// assert!(numbers.try_read(4..6)?.is_none());
        /// assert!(numbers.try_read(5..6)?.is_some());
        /// # drop(writing);
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn try_read(
            &self,
            range: impl RangeBounds<usize>,
        ) -> Result<Option<SliceReadGuard<'_, T, R>>, InvalidRange> {
            let part = self.acquire(range, |lock, extent| lock.try_read(extent))?;
            Ok(part.map(SliceReadGuard::new))
        }

        /// Exclusive access to these elements, if nobody who keeps it away is in or waits.
        ///
        /// # Errors
        /// [`InvalidRange`] if they are not all there.
        ///
        /// # Example
        /// ```
        #[doc = $setup]
        /// let reading = numbers.read(3..5)?;
        /// assert!(numbers.try_write(4..6)?.is_none());
        /// assert!(numbers.try_write(5..6)?.is_some());
        /// # drop(reading);
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn try_write(
            &self,
            range: impl RangeBounds<usize>,
        ) -> Result<Option<SliceWriteGuard<'_, T, R>>, InvalidRange> {
            let part = self.acquire(range, |lock, extent| lock.try_write(extent))?;
            Ok(part.map(SliceWriteGuard::new))
        }

        /// Shared access to these elements, waiting for at most so long.
        ///
        /// # Errors
        /// [`InvalidRange`] if they are not all there.
        ///
        /// # Example
        /// ```
        /// use std::time::Duration;
        ///
        #[doc = $setup]
        /// let writing = numbers.write(3..5)?;
        /// assert!(numbers.try_read_for(4..6, Duration::from_millis(1))?.is_none());
        /// # drop(writing);
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn try_read_for(
            &self,
            range: impl RangeBounds<usize>,
            timeout: Duration,
        ) -> Result<Option<SliceReadGuard<'_, T, R>>, InvalidRange> {
            let part = self.acquire(range, |lock, extent| lock.try_read_for(extent, timeout))?;
            Ok(part.map(SliceReadGuard::new))
        }

        /// Exclusive access to these elements, waiting for at most so long.
        ///
        /// # Errors
        /// [`InvalidRange`] if they are not all there.
        ///
        /// # Example
        /// ```
        /// use std::time::Duration;
        ///
        #[doc = $setup]
        /// let reading = numbers.read(3..5)?;
        /// assert!(numbers.try_write_for(4..6, Duration::from_millis(1))?.is_none());
        /// # drop(reading);
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn try_write_for(
            &self,
            range: impl RangeBounds<usize>,
            timeout: Duration,
        ) -> Result<Option<SliceWriteGuard<'_, T, R>>, InvalidRange> {
            let part = self.acquire(range, |lock, extent| lock.try_write_for(extent, timeout))?;
            Ok(part.map(SliceWriteGuard::new))
        }

        /// Shared access to these elements, waiting until then at most.
        ///
        /// # Errors
        /// [`InvalidRange`] if they are not all there.
        ///
        /// # Example
        /// ```
        /// use std::time::{Duration, Instant};
        ///
        #[doc = $setup]
        /// let soon = Instant::now() + Duration::from_millis(1);
        /// assert!(numbers.try_read_until(4..6, soon)?.is_some());
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn try_read_until(
            &self,
            range: impl RangeBounds<usize>,
            deadline: Instant,
        ) -> Result<Option<SliceReadGuard<'_, T, R>>, InvalidRange> {
            let part = self.acquire(range, |lock, extent| lock.try_read_until(extent, deadline))?;
            Ok(part.map(SliceReadGuard::new))
        }

        /// Exclusive access to these elements, waiting until then at most.
        ///
        /// # Errors
        /// [`InvalidRange`] if they are not all there.
        ///
        /// # Example
        /// ```
        /// use std::time::{Duration, Instant};
        ///
        #[doc = $setup]
        /// let soon = Instant::now() + Duration::from_millis(1);
        /// assert!(numbers.try_write_until(4..6, soon)?.is_some());
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn try_write_until(
            &self,
            range: impl RangeBounds<usize>,
            deadline: Instant,
        ) -> Result<Option<SliceWriteGuard<'_, T, R>>, InvalidRange> {
            let part =
                self.acquire(range, |lock, extent| lock.try_write_until(extent, deadline))?;
            Ok(part.map(SliceWriteGuard::new))
        }
    };
}

// ---- slices ----

// SAFETY: it is a `&mut [T]` and a lock.
unsafe impl<T: Send, R: Send> Send for RangeSlice<'_, T, R> {}
// SAFETY: a thread that shares it can have elements alone, for which they must be `Send`, and others
// at the same time as another thread, for which they must be `Sync`; who has which is the lock's to
// say (invariant 1).
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
        let start = NonNull::from_mut(elements).cast();
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
        // SAFETY: invariant 4; they are borrowed for longer than `self`.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// The slice that it was made of.
    ///
    /// # Example
    /// ```
    /// let mut numbers = [1, 2];
    /// let shared = fairlock::RangeSlice::new(&mut numbers);
    /// let slice: &mut [u8] = shared.into_inner();
    /// assert_eq!(slice, [1, 2]);
    /// ```
    pub fn into_inner(self) -> &'a mut [T] {
        // SAFETY: invariant 4; it was borrowed for `'a`, and nothing else leads to it any more.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T, R> fmt::Debug for RangeSlice<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeSlice").field("len", &self.len).finish_non_exhaustive()
    }
}

// ---- vectors ----

// SAFETY: it is a `Vec<T>` and a lock.
unsafe impl<T: Send, R: Send> Send for RangeVec<T, R> {}
// SAFETY: as for slices; changing its length is to have all elements alone.
unsafe impl<T: Send + Sync, R: Sync> Sync for RangeVec<T, R> {}

impl<T> RangeVec<T> {
    /// Lets threads share these elements by ranges.
    ///
    /// # Example
    /// ```
    /// use fairlock::RangeVec;
    ///
    /// static TABLE: RangeVec<u64> = RangeVec::new(Vec::new());
    /// assert!(TABLE.is_empty());
    /// let squares = RangeVec::new((0..10).map(|number| number * number).collect());
    /// assert_eq!(squares.read(9..)?[..], [81]);
    /// # Ok::<(), fairlock::range::InvalidRange>(())
    /// ```
    pub const fn new(elements: Vec<T>) -> Self {
        Self::new_in(elements)
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
    pub const fn new_in(mut elements: Vec<T>) -> Self {
        let memory = UnsafeCell::new(Memory::of(&mut elements));
        let len = AtomicUsize::new(elements.len());
        mem::forget(elements); // They are the new vector's.
        RangeVec { lock: RangeLock::new_in(), memory, len }
    }

    locked_ranges!("# let numbers = fairlock::RangeVec::new(vec![0; 10]);");

    /// Waits for the whole vector.
    fn alone(&self) -> Alone<'_, T, R> {
        let held = self.lock.write(Extent::ALL);
        // SAFETY: invariant 3, the whole lock is held; `Alone` gives the elements back.
        let elements = unsafe { (*self.memory.get()).elements(self.count()) };
        Alone { elements: ManuallyDrop::new(elements), vector: self, _held: held }
    }

    /// Appends an element, and says where. Waits for the whole vector.
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

    /// Appends elements, side by side, and says where. Waits for the whole vector, but not before
    /// they are all there: `elements` itself may lock ranges.
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

    /// Drops all elements from this one on. Waits for the whole vector and keeps it while it drops
    /// them, so their destructors must not wait for it.
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
    /// How many elements there are at the moment. Waits for nobody; another thread may change it
    /// before the caller looks at the answer, unless a guard is held.
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
        // SAFETY: invariant 4; they are the vector's own.
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
        // SAFETY: invariant 4; the vector forgets them here.
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
    const fn of(elements: &mut Vec<T>) -> Self {
        let capacity = elements.capacity();
        let start = NonNull::new(elements.as_mut_ptr()).expect("not even an empty one is at null");
        Memory { start, capacity }
    }

    /// # Safety
    /// It is the memory of a `Vec` of that length that was forgotten, and the caller has it alone.
    /// Only one of all these results may be dropped.
    unsafe fn elements(&self, len: usize) -> Vec<T> {
        // SAFETY: the caller's.
        unsafe { Vec::from_raw_parts(self.start.as_ptr(), len, self.capacity) }
    }
}

/// The whole vector, while nobody else is in. Given back when dropped, on unwinding too.
struct Alone<'a, T, R: RawRangeLock> {
    elements: ManuallyDrop<Vec<T>>,
    vector: &'a RangeVec<T, R>,
    /// Released last.
    _held: RangeWriteGuard<'a, R>,
}

impl<T, R: RawRangeLock> Drop for Alone<'_, T, R> {
    fn drop(&mut self) {
        self.vector.len.store(self.elements.len(), Relaxed);
        // SAFETY: invariant 3, the whole lock is held until after this; `elements` is not dropped.
        unsafe { *self.vector.memory.get() = Memory::of(&mut self.elements) };
    }
}

// ---- guards ----

// SAFETY: it is a `&[T]` and the guard of its range.
unsafe impl<'a, T, R: RawRangeLock> Send for SliceReadGuard<'a, T, R>
where
    &'a [T]: Send,
    RangeReadGuard<'a, R>: Send,
{
}
// SAFETY: as above; a shared reference to it gives `&[T]`.
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
// SAFETY: as above; a shared reference to it gives `&[T]`.
unsafe impl<'a, T, R: RawRangeLock> Sync for SliceWriteGuard<'a, T, R>
where
    &'a mut [T]: Sync,
    RangeWriteGuard<'a, R>: Sync,
{
}

impl<'a, T, R: RawRangeLock> SliceReadGuard<'a, T, R> {
    fn new(part: Part<T, RangeReadGuard<'a, R>>) -> Self {
        SliceReadGuard { part, elements: PhantomData }
    }
}

impl<'a, T, R: RawRangeLock> SliceWriteGuard<'a, T, R> {
    fn new(part: Part<T, RangeWriteGuard<'a, R>>) -> Self {
        SliceWriteGuard { part, elements: PhantomData }
    }

    /// Keeps the elements, shared: others that wait to share them are let in, and nobody in between.
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
        // SAFETY: invariant 1, shared until the guard is dropped, by invariant 3 in the same place;
        // or there are none.
        unsafe { self.part.elements.as_ref() }
    }
}

impl<T, R: RawRangeLock> Deref for SliceWriteGuard<'_, T, R> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: as in `deref_mut`; `&self` excludes its result.
        unsafe { self.part.elements.as_ref() }
    }
}

impl<T, R: RawRangeLock> DerefMut for SliceWriteGuard<'_, T, R> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: invariant 1, alone until the guard is dropped or downgraded, by invariant 3 in the
        // same place; or there are none. `&mut self`: one such reference at a time.
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

/// What must not compile.
///
/// A guard that outlives its slice, or its vector:
/// ```compile_fail,E0597
/// let mut numbers = [1, 2];
/// let guard;
/// {
///     let shared = fairlock::RangeSlice::new(&mut numbers);
///     guard = shared.read(..).unwrap();
/// }
/// assert_eq!(guard[0], 1);
/// ```
/// ```compile_fail,E0505
/// let shared = fairlock::RangeVec::new(vec![1, 2]);
/// let guard = shared.read(..).unwrap();
/// shared.into_inner();
/// assert_eq!(guard[0], 1);
/// ```
/// A reference that outlives its guard:
/// ```compile_fail,E0505
/// let shared = fairlock::RangeVec::new(vec![1, 2]);
/// let mut guard = shared.write(..).unwrap();
/// let first = &mut guard[0];
/// drop(guard);
/// *first = 3;
/// ```
/// The slice itself, while it is shared:
/// ```compile_fail,E0506
/// let mut numbers = [1, 2];
/// let shared = fairlock::RangeSlice::new(&mut numbers);
/// numbers[0] = 3;
/// shared.read(..).unwrap();
/// ```
/// All elements, beside a guard:
/// ```compile_fail,E0502
/// let mut shared = fairlock::RangeVec::new(vec![1, 2]);
/// let guard = shared.read(..).unwrap();
/// shared.get_mut()[0] = 3;
/// assert_eq!(guard[0], 1);
/// ```
/// Two `&mut` from one guard:
/// ```compile_fail,E0499
/// let shared = fairlock::RangeVec::new(vec![1, 2]);
/// let mut guard = shared.write(..).unwrap();
/// let (one, other) = (&mut guard[..], &mut guard[..]);
/// one[0] = other[0];
/// ```
/// Writing through a read guard:
/// ```compile_fail,E0594
/// let shared = fairlock::RangeVec::new(vec![1, 2]);
/// let mut guard = shared.read(..).unwrap();
/// guard[0] = 3;
/// ```
/// Elements that are not `Sync`, shared between threads:
/// ```compile_fail,E0277
/// let shared = fairlock::RangeVec::new(vec![std::cell::Cell::new(1)]);
/// std::thread::scope(|scope| {
///     scope.spawn(|| shared.read(..).unwrap()[0].set(2));
/// });
/// ```
/// ```compile_fail,E0277
/// let mut cells = [std::cell::Cell::new(1)];
/// let shared = fairlock::RangeSlice::new(&mut cells);
/// std::thread::scope(|scope| {
///     scope.spawn(|| shared.read(..).unwrap()[0].set(2));
/// });
/// ```
/// Elements that are not `Send`, shared between threads or moved to another:
/// ```compile_fail,E0277
/// let shared = fairlock::RangeVec::new(vec![std::rc::Rc::new(1)]);
/// std::thread::scope(|scope| {
///     scope.spawn(|| shared.read(..).unwrap()[0].clone());
/// });
/// ```
/// ```compile_fail,E0277
/// let shared = fairlock::RangeVec::new(vec![std::rc::Rc::new(1)]);
/// std::thread::spawn(move || drop(shared));
/// ```
/// ```compile_fail,E0277
/// // A mutex guard is `Sync`, and must be dropped where it was made.
/// let mutex = std::sync::Mutex::new(1);
/// let shared = fairlock::RangeVec::new(vec![mutex.lock().unwrap()]);
/// std::thread::scope(|scope| {
///     scope.spawn(|| shared.truncate(0));
/// });
/// ```
/// ```compile_fail,E0277
/// let mutex = std::sync::Mutex::new(1);
/// let shared = fairlock::RangeVec::new(vec![mutex.lock().unwrap()]);
/// let guard = shared.write(..).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(guard));
/// });
/// ```
/// A read guard of elements that are not `Sync`, moved to another thread:
/// ```compile_fail,E0277
/// let shared = fairlock::RangeVec::new(vec![std::cell::Cell::new(1)]);
/// let guard = shared.read(..).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(move || guard[0].set(2));
/// });
/// ```
/// The same by way of a write guard, which may be moved:
/// ```compile_fail,E0277
/// use fairlock::range::SliceWriteGuard;
///
/// let shared = fairlock::RangeVec::new(vec![std::cell::Cell::new(1)]);
/// let guard = shared.write(..).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(move || SliceWriteGuard::downgrade(guard)[0].set(2));
/// });
/// ```
/// A write guard of elements that are not `Sync`, shared between threads:
/// ```compile_fail,E0277
/// let shared = fairlock::RangeVec::new(vec![std::cell::Cell::new(1)]);
/// let guard = shared.write(..).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| guard[0].set(2));
/// });
/// ```
/// Elements that do not live as long as they are said to:
/// ```compile_fail,E0597
/// fn put<'a>(words: &fairlock::RangeVec<&'a str>, word: &'a str) {
///     words.write(..1).unwrap()[0] = word;
/// }
/// let words: fairlock::RangeVec<&'static str> = fairlock::RangeVec::new(vec![""]);
/// let word = String::from("short-lived");
/// put(&words, &word);
/// ```
/// ```compile_fail,E0597
/// fn put<'a>(words: &fairlock::RangeSlice<'_, &'a str>, word: &'a str) {
///     words.write(..1).unwrap()[0] = word;
/// }
/// let mut words: [&'static str; 1] = [""];
/// let shared: fairlock::RangeSlice<'_, &'static str> = fairlock::RangeSlice::new(&mut words);
/// let word = String::from("short-lived");
/// put(&shared, &word);
/// ```
#[cfg(doctest)]
struct MustNotCompile;
