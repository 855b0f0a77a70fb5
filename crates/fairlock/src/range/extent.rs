//! A range of positions: never empty, up to and including [`u64::MAX`].

use core::fmt;
use core::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};
use std::error::Error;

/// A range of one position or more: bytes of a file, elements of a slice, whatever you count.
///
/// Every extent is valid, so locking one cannot fail.
///
/// # Example
/// ```
/// use fairlock::range::Extent;
///
/// let page = Extent::of(4096..8192)?;
/// assert_eq!(page, Extent::at(4096, 4096)?);
/// assert_eq!((page.first(), page.last()), (4096, 8191));
/// assert!(page.overlaps(Extent::of(8191..)?));
/// assert!(!page.overlaps(Extent::of(..4096)?));
/// assert_eq!(Extent::of(..)?, Extent::ALL);
///
/// assert!(Extent::of(7..7).is_err(), "empty");
/// assert!(Extent::at(u64::MAX, 2).is_err(), "ends beyond the last position");
/// # Ok::<(), fairlock::range::InvalidExtent>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    first: u64,
    last: u64,
}

/// Why a range cannot be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidExtent {
    /// It covers no position.
    Empty {
        /// Where it begins.
        start: u64,
        /// Where it ends; not part of it.
        end: u64,
    },
    /// Its length is zero.
    NoLength {
        /// Where it begins.
        offset: u64,
    },
    /// It ends beyond [`u64::MAX`].
    Overflow {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        length: u64,
    },
}

impl Extent {
    /// Everything.
    pub const ALL: Extent = Extent { first: 0, last: u64::MAX };

    /// The positions of any of Rust's ranges: `0..10`, `4096..`, `..=7`, `..`.
    ///
    /// # Errors
    /// [`InvalidExtent::Empty`] if there are none.
    pub fn of(range: impl RangeBounds<u64>) -> Result<Extent, InvalidExtent> {
        let start = match range.start_bound() {
            Bound::Included(start) => Some(*start),
            Bound::Excluded(before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let last = match range.end_bound() {
            Bound::Included(last) => Some(*last),
            Bound::Excluded(end) => end.checked_sub(1),
            Bound::Unbounded => Some(u64::MAX),
        };
        match (start, last) {
            (Some(first), Some(last)) if first <= last => Ok(Extent { first, last }),
            _ => Err(InvalidExtent::Empty {
                start: start.unwrap_or(u64::MAX),
                end: last.map_or(0, |last| last.saturating_add(1)),
            }),
        }
    }

    /// `length` positions from `offset` on.
    ///
    /// # Errors
    /// [`InvalidExtent::NoLength`] or [`InvalidExtent::Overflow`].
    pub const fn at(offset: u64, length: u64) -> Result<Extent, InvalidExtent> {
        let Some(beyond_first) = length.checked_sub(1) else {
            return Err(InvalidExtent::NoLength { offset });
        };
        match offset.checked_add(beyond_first) {
            Some(last) => Ok(Extent { first: offset, last }),
            None => Err(InvalidExtent::Overflow { offset, length }),
        }
    }

    /// The lowest position in it.
    pub const fn first(self) -> u64 {
        self.first
    }

    /// The highest position in it.
    pub const fn last(self) -> u64 {
        self.last
    }

    /// Whether some position is in both.
    pub const fn overlaps(self, other: Extent) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether every position of the other is in this one.
    pub const fn contains(self, other: Extent) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

/// What a [`RangeLock`](super::RangeLock) locks: an [`Extent`], or any of Rust's ranges of `u64`.
pub trait IntoExtent {
    /// The positions.
    ///
    /// # Panics
    /// If there are none. [`Extent::of`] and [`Extent::at`] return an error instead: use them where
    /// a range is computed.
    #[track_caller]
    fn into_extent(self) -> Extent;
}

impl IntoExtent for Extent {
    #[inline(always)]
    fn into_extent(self) -> Extent {
        self
    }
}

macro_rules! into_extent {
    ($($range:ty),*) => {$(
        impl IntoExtent for $range {
            #[inline(always)]
            #[track_caller]
            fn into_extent(self) -> Extent {
                match Extent::of(self) {
                    Ok(extent) => extent,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    )*};
}

into_extent!(
    Range<u64>,
    RangeInclusive<u64>,
    RangeFrom<u64>,
    RangeTo<u64>,
    RangeToInclusive<u64>,
    RangeFull,
    (Bound<u64>, Bound<u64>)
);

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.first, self.last)
    }
}

impl fmt::Display for InvalidExtent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidExtent::Empty { start, end } => {
                write!(f, "the range {start}..{end} is empty: give one that begins before it ends")
            }
            InvalidExtent::NoLength { offset } => {
                write!(f, "the range at {offset} has length 0: give at least 1")
            }
            InvalidExtent::Overflow { offset, length } => write!(
                f,
                "the range of {length} at {offset} ends beyond {}: make it shorter, or open at its end",
                u64::MAX
            ),
        }
    }
}

impl Error for InvalidExtent {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_of_ranges() {
        let extent = |range: Result<Extent, _>| range.map(|extent| (extent.first, extent.last));
        assert_eq!(extent(Extent::of(3..5)), Ok((3, 4)));
        assert_eq!(extent(Extent::of(3..=5)), Ok((3, 5)));
        assert_eq!(extent(Extent::of(..5)), Ok((0, 4)));
        assert_eq!(extent(Extent::of(3..)), Ok((3, u64::MAX)));
        assert_eq!(extent(Extent::of(u64::MAX..=u64::MAX)), Ok((u64::MAX, u64::MAX)));
        assert_eq!(extent(Extent::of((Bound::Excluded(3), Bound::Included(4)))), Ok((4, 4)));
        assert_eq!(extent(Extent::at(u64::MAX, 1)), Ok((u64::MAX, u64::MAX)));
        assert_eq!(extent(Extent::at(0, u64::MAX)), Ok((0, u64::MAX - 1)));
    }

    #[test]
    fn ranges_are_taken_as_they_are() {
        assert_eq!((3..5).into_extent(), Extent { first: 3, last: 4 });
        assert_eq!((..=5).into_extent(), Extent { first: 0, last: 5 });
        assert_eq!((..).into_extent(), Extent::ALL);
    }

    #[test]
    #[should_panic(expected = "the range 9..4 is empty: give one that begins before it ends")]
    #[allow(clippy::reversed_empty_ranges)]
    fn a_bad_range_that_is_taken_as_it_is_panics() {
        (9..4).into_extent();
    }

    #[test]
    fn a_bad_range_is_named_in_the_error() {
        let message = |range: Result<Extent, InvalidExtent>| range.unwrap_err().to_string();
        #[allow(clippy::reversed_empty_ranges)]
        let backwards = message(Extent::of(9..4));
        assert!(backwards.contains("9..4 is empty"), "{backwards}");
        assert!(message(Extent::of(0..0)).contains("0..0 is empty"));
        assert!(
            message(Extent::of((Bound::Excluded(u64::MAX), Bound::Unbounded))).contains("empty")
        );
        assert!(message(Extent::at(7, 0)).contains("at 7 has length 0"));
        assert!(message(Extent::at(u64::MAX - 1, 3)).contains("3 at 18446744073709551614"));
    }
}
