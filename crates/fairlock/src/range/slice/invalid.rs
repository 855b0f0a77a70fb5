//! Which elements a range of indices means, and why it may mean none.

use core::fmt;
use core::ops::{Bound, Range, RangeBounds};
use std::error::Error;

/// Why a range of indices cannot be locked. Where `&slice[range]` would panic, locking returns
/// this.
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
    /// It goes beyond the last element.
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

/// The indices that a range means among `len` elements.
pub(super) fn resolve(
    range: &impl RangeBounds<usize>,
    len: usize,
) -> Result<Range<usize>, InvalidRange> {
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
