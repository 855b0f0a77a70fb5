//! Range locks: many threads work on one thing at once as long as they keep to different parts of it.
//!
//! * [`RangeLock`] says which parts are whose; its guards borrow it and give access to nothing.
//! * [`Extent`] is a part.
//! * [`RangeSlice`] and [`RangeVec`] have elements, and their guards are `&[T]` and `&mut [T]` of parts.
//!
//! The front, `api.rs`, is the same for every lock under it, which is what [`RawRangeLock`] is for. The one
//! that users get is [`Slotted`]: holders say so in a cache line of their own thread, so those of different
//! ranges, and those that share, have nothing in common to write.
//!
//! # Not recursive
//! A thread that waits for a range that one of its own guards keeps from it waits for ever. It may
//! also wait for ever for one that overlaps nothing of its own, behind somebody who waits for both.

mod api;
mod extent;
mod filters;
mod slice;
mod slotted;
mod tree;

pub use api::{ArcRangeReadGuard, ArcRangeWriteGuard, RangeLock, RangeReadGuard, RangeWriteGuard};
pub use extent::{Extent, InvalidExtent};
pub use slice::{InvalidRange, RangeSlice, RangeVec, SliceReadGuard, SliceWriteGuard};
pub use slotted::{Slotted, SlottedHold};

use crate::platform::Platform;

/// What a guard gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Beside others that share.
    Shared,
    /// Alone.
    Exclusive,
}

impl Access {
    /// Whether two holders of overlapping ranges may not be in at once.
    pub const fn conflicts(self, other: Access) -> bool {
        matches!((self, other), (Access::Exclusive, _) | (_, Access::Exclusive))
    }
}

/// How long an acquisition may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Not at all, but for a few instructions of another thread.
    None,
    /// Until this moment of the [platform's clock](Platform::now), or for as long as it takes.
    Until(Option<u64>),
}

/// A range lock under [`RangeLock`]'s front.
///
/// # Safety
/// From an acquisition to its release no conflicting one succeeds, and what the holder did before
/// the release happens before what the next conflicting holder does.
pub unsafe trait RawRangeLock: Send + Sync {
    /// What it runs on.
    type Platform: Platform;

    /// What a guard remembers. Inert: forgetting it keeps the range locked.
    type Hold: Send + Sync;

    /// A free lock.
    const NEW: Self;

    /// Takes a range; none if it may not wait that long. Then nothing of it remains.
    fn acquire(&self, extent: Extent, access: Access, patience: Patience) -> Option<Self::Hold>;

    /// Gives up exclusive access and keeps shared access, letting nobody else in between.
    ///
    /// # Safety
    /// `hold` came from this lock with exclusive access to `extent`.
    unsafe fn downgrade(&self, extent: Extent, hold: &mut Self::Hold);

    /// Gives a range back, on any thread.
    ///
    /// # Safety
    /// `hold` came from this lock for `extent`, with this access or downgraded to it.
    unsafe fn release(&self, extent: Extent, access: Access, hold: Self::Hold);
}
