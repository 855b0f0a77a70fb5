//! Range locks: many threads work on one file, table or slice at once, as long as their ranges do
//! not conflict.
//!
//! * [`RangeLock`] locks ranges of positions; its guards give access to nothing.
//! * [`Extent`] is a range of positions.
//! * [`RangeSlice`] and [`RangeVec`] own or borrow elements, and their guards are `&[T]` and `&mut
//!   [T]` of ranges.
//!
//! The front, `api.rs`, is the same for every lock under it, which is what [`RawRangeLock`] is for.
//! The one that users get is [`Slotted`]: holders say so in a cache line of their own thread, so
//! those of different ranges, and those that share, have nothing in common to write.
//!
//! # Not recursive
//! A thread that waits for a range that conflicts with one of its own guards waits for ever. It may
//! also wait for ever for a range that overlaps none of its own, behind a waiter that conflicts
//! with both.

mod api;
mod extent;
mod filters;
mod slice;
mod slotted;
mod tree;

pub use api::{ArcRangeReadGuard, ArcRangeWriteGuard, RangeLock, RangeReadGuard, RangeWriteGuard};
pub use extent::{Extent, IntoExtent, InvalidExtent};
pub use slice::{InvalidRange, RangeSlice, RangeVec, SliceReadGuard, SliceWriteGuard};
pub use slotted::{Slotted, SlottedHold};

use crate::platform::Platform;

/// In which mode a range is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Other shared holders may overlap.
    Shared,
    /// No other holder overlaps.
    Exclusive,
}

impl Access {
    /// Whether overlapping ranges cannot be held in these two modes at once.
    pub const fn conflicts(self, other: Access) -> bool {
        matches!((self, other), (Access::Exclusive, _) | (_, Access::Exclusive))
    }
}

/// How long an acquisition may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Not at all, except for a few instructions of another thread.
    None,
    /// Until this moment of the [platform's clock](Platform::now), or for as long as it takes.
    Until(Option<u64>),
}

/// A range lock under [`RangeLock`]'s front.
///
/// # Safety
/// Between an acquisition and its release no conflicting acquisition succeeds, and what the holder
/// did before the release happens before what the next conflicting holder does.
pub unsafe trait RawRangeLock: Send + Sync {
    /// What it runs on.
    type Platform: Platform;

    /// What a guard remembers. Inert: forgetting it keeps the range locked.
    type Hold: Send + Sync;

    /// A free lock.
    const NEW: Self;

    /// Acquires a range; `None` if that would take longer than `patience` allows. Then nothing of
    /// it remains.
    fn acquire(&self, extent: Extent, access: Access, patience: Patience) -> Option<Self::Hold>;

    /// Turns exclusive access into shared access. No other exclusive holder gets in between.
    ///
    /// # Safety
    /// `hold` came from this lock with exclusive access to `extent`.
    unsafe fn downgrade(&self, extent: Extent, hold: &mut Self::Hold);

    /// Releases a range, on any thread.
    ///
    /// # Safety
    /// `hold` came from this lock for `extent`, with this access or downgraded to it.
    unsafe fn release(&self, extent: Extent, access: Access, hold: Self::Hold);
}
