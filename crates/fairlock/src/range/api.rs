//! What users of range locks see: the lock and its guards, for any [`RawRangeLock`].

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Access, Extent, Naive, Patience, RawRangeLock};
use crate::platform::{Os, after, until};

/// A lock over ranges of positions.
///
/// # Example
/// ```
/// use fairlock::range::{Extent, RangeLock};
///
/// static FILE: RangeLock = RangeLock::new();
///
/// let [first, second] = [Extent::of(0..4096)?, Extent::of(4096..8192)?];
/// let reading = FILE.read(first);
/// let writing = FILE.write(second); // disjoint: does not wait
/// assert!(FILE.try_write(first).is_none());
/// assert!(FILE.try_read(second).is_none());
/// drop(writing);
/// assert!(FILE.try_read(Extent::ALL).is_some());
/// # Ok::<(), fairlock::range::InvalidExtent>(())
/// ```
pub struct RangeLock<R = Naive<Os>> {
    raw: R,
}

/// Shared access to a range; releases when dropped, on any thread.
#[must_use = "the range is released at once if the guard is not kept"]
pub struct RangeReadGuard<'a, R: RawRangeLock = Naive<Os>>(Held<&'a RangeLock<R>, R>);

/// Exclusive access to a range; releases when dropped, on any thread.
#[must_use = "the range is released at once if the guard is not kept"]
pub struct RangeWriteGuard<'a, R: RawRangeLock = Naive<Os>>(Held<&'a RangeLock<R>, R>);

/// As [`RangeReadGuard`], keeping the lock alive itself.
#[must_use = "the range is released at once if the guard is not kept"]
pub struct ArcRangeReadGuard<R: RawRangeLock = Naive<Os>>(Held<Arc<RangeLock<R>>, R>);

/// As [`RangeWriteGuard`], keeping the lock alive itself.
#[must_use = "the range is released at once if the guard is not kept"]
pub struct ArcRangeWriteGuard<R: RawRangeLock = Naive<Os>>(Held<Arc<RangeLock<R>>, R>);

impl RangeLock {
    /// A lock of which nothing is taken.
    pub const fn new() -> Self {
        Self::new_in()
    }
}

impl Default for RangeLock {
    fn default() -> Self {
        RangeLock::new()
    }
}

impl<R: RawRangeLock> RangeLock<R> {
    /// A lock of which nothing is taken, of any kind.
    pub const fn new_in() -> Self {
        RangeLock { raw: R::NEW }
    }

    /// The lock under this front.
    pub fn raw(&self) -> &R {
        &self.raw
    }

    fn acquire(
        &self,
        extent: Extent,
        access: Access,
        patience: Patience,
    ) -> Option<Held<&Self, R>> {
        let hold = self.raw.acquire(extent, access, patience)?;
        Some(Held { lock: self, extent, access, hold: ManuallyDrop::new(hold) })
    }

    fn acquire_arc(
        self: &Arc<Self>,
        extent: Extent,
        access: Access,
        patience: Patience,
    ) -> Option<Held<Arc<Self>, R>> {
        let hold = self.raw.acquire(extent, access, patience)?;
        Some(Held { lock: Arc::clone(self), extent, access, hold: ManuallyDrop::new(hold) })
    }

    /// Waits for shared access.
    pub fn read(&self, extent: Extent) -> RangeReadGuard<'_, R> {
        let held = self.acquire(extent, Access::Shared, Patience::Until(None));
        RangeReadGuard(held.expect(WITHOUT_DEADLINE))
    }

    /// Waits for exclusive access.
    pub fn write(&self, extent: Extent) -> RangeWriteGuard<'_, R> {
        let held = self.acquire(extent, Access::Exclusive, Patience::Until(None));
        RangeWriteGuard(held.expect(WITHOUT_DEADLINE))
    }

    /// Shared access, if nobody who keeps it away is in or waits.
    pub fn try_read(&self, extent: Extent) -> Option<RangeReadGuard<'_, R>> {
        self.acquire(extent, Access::Shared, Patience::None).map(RangeReadGuard)
    }

    /// Exclusive access, if nobody who keeps it away is in or waits.
    pub fn try_write(&self, extent: Extent) -> Option<RangeWriteGuard<'_, R>> {
        self.acquire(extent, Access::Exclusive, Patience::None).map(RangeWriteGuard)
    }

    /// Shared access, waiting for at most so long.
    pub fn try_read_for(&self, extent: Extent, timeout: Duration) -> Option<RangeReadGuard<'_, R>> {
        let patience = Patience::Until(after::<R::Platform>(timeout));
        self.acquire(extent, Access::Shared, patience).map(RangeReadGuard)
    }

    /// Exclusive access, waiting for at most so long.
    pub fn try_write_for(
        &self,
        extent: Extent,
        timeout: Duration,
    ) -> Option<RangeWriteGuard<'_, R>> {
        let patience = Patience::Until(after::<R::Platform>(timeout));
        self.acquire(extent, Access::Exclusive, patience).map(RangeWriteGuard)
    }

    /// Shared access, waiting until then at most.
    pub fn try_read_until(
        &self,
        extent: Extent,
        deadline: Instant,
    ) -> Option<RangeReadGuard<'_, R>> {
        let patience = Patience::Until(until::<R::Platform>(deadline));
        self.acquire(extent, Access::Shared, patience).map(RangeReadGuard)
    }

    /// Exclusive access, waiting until then at most.
    pub fn try_write_until(
        &self,
        extent: Extent,
        deadline: Instant,
    ) -> Option<RangeWriteGuard<'_, R>> {
        let patience = Patience::Until(until::<R::Platform>(deadline));
        self.acquire(extent, Access::Exclusive, patience).map(RangeWriteGuard)
    }

    /// As [`read`](Self::read), with a guard that owns its lock: for tasks and threads that outlive
    /// the caller.
    pub fn read_arc(self: &Arc<Self>, extent: Extent) -> ArcRangeReadGuard<R> {
        let held = self.acquire_arc(extent, Access::Shared, Patience::Until(None));
        ArcRangeReadGuard(held.expect(WITHOUT_DEADLINE))
    }

    /// As [`write`](Self::write), with a guard that owns its lock.
    pub fn write_arc(self: &Arc<Self>, extent: Extent) -> ArcRangeWriteGuard<R> {
        let held = self.acquire_arc(extent, Access::Exclusive, Patience::Until(None));
        ArcRangeWriteGuard(held.expect(WITHOUT_DEADLINE))
    }
}

const WITHOUT_DEADLINE: &str = "without a deadline a wait ends with the range";

impl<R: RawRangeLock> fmt::Debug for RangeLock<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeLock").finish_non_exhaustive()
    }
}

/// A range that is held: what all guards consist of.
struct Held<L: Deref<Target = RangeLock<R>>, R: RawRangeLock> {
    lock: L,
    extent: Extent,
    access: Access,
    /// Taken out when it is dropped.
    hold: ManuallyDrop<R::Hold>,
}

impl<L: Deref<Target = RangeLock<R>>, R: RawRangeLock> Held<L, R> {
    fn downgraded(mut self) -> Self {
        // SAFETY: this hold came from this lock, for this extent and with exclusive access.
        unsafe { self.lock.raw.downgrade(self.extent, &mut self.hold) };
        self.access = Access::Shared;
        self
    }
}

impl<L: Deref<Target = RangeLock<R>>, R: RawRangeLock> Drop for Held<L, R> {
    fn drop(&mut self) {
        // SAFETY: `hold` is not used again, as this is the end of it; it came from this lock with
        // this extent and access.
        unsafe {
            let hold = ManuallyDrop::take(&mut self.hold);
            self.lock.raw.release(self.extent, self.access, hold);
        }
    }
}

macro_rules! guard {
    ($guard:ident $(, $lifetime:lifetime)?) => {
        impl<$($lifetime,)? R: RawRangeLock> $guard<$($lifetime,)? R> {
            /// Which range it is.
            pub fn extent(guard: &Self) -> Extent {
                guard.0.extent
            }
        }

        impl<$($lifetime,)? R: RawRangeLock> fmt::Debug for $guard<$($lifetime,)? R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($guard)).field(&self.0.extent).finish()
            }
        }
    };
}

guard!(RangeReadGuard, 'a);
guard!(RangeWriteGuard, 'a);
guard!(ArcRangeReadGuard);
guard!(ArcRangeWriteGuard);

impl<'a, R: RawRangeLock> RangeWriteGuard<'a, R> {
    /// Keeps the range, shared: others that wait to share it are let in, and nobody in between.
    pub fn downgrade(guard: Self) -> RangeReadGuard<'a, R> {
        RangeReadGuard(guard.0.downgraded())
    }
}

impl<R: RawRangeLock> ArcRangeWriteGuard<R> {
    /// Keeps the range, shared: others that wait to share it are let in, and nobody in between.
    pub fn downgrade(guard: Self) -> ArcRangeReadGuard<R> {
        ArcRangeReadGuard(guard.0.downgraded())
    }
}
