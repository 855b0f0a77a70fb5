//! What users of range locks see: the lock and its guards, for any [`RawRangeLock`].

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Access, Extent, IntoExtent, Patience, RawRangeLock, Slotted};
use crate::platform::{Os, after, until};

/// A lock over ranges of positions, shared or exclusive. An acquisition waits only for conflicting
/// ranges: those that overlap its own and are not both shared.
///
/// What positions mean is up to you: the guards give access to nothing. A thread may have many
/// guards, and may drop them on another thread.
///
/// # Guarantees
/// Those of the lock under it, by default of [`Slotted`], in short: ranges that are disjoint, and
/// those that are shared, do not wait for each other; running threads may take a range past those
/// that sleep for it, but once a waiter is the first of those that conflict and has waited for 4
/// ms, newcomers queue behind it; an acquisition that gives up at its deadline leaves nothing
/// behind.
///
/// * No poisoning: a panic releases ranges through their guards. A guard that is forgotten keeps
///   its range locked.
/// * Not recursive: see the [module](super).
/// * In the child of a `fork` ranges that other threads held at that moment stay held. If other
///   threads were using the lock or waiting for it, do not use it there: even a free range may be
///   waited for for ever.
///
/// # Example
/// ```
/// use fairlock::range::{Extent, RangeLock};
///
/// static FILE: RangeLock = RangeLock::new();
///
/// let reading = FILE.read(0..4096);
/// let writing = FILE.write(4096..8192); // disjoint: does not wait
/// assert!(FILE.try_write(..4096).is_none());
/// assert!(FILE.try_read(5000..).is_none());
/// drop(writing);
/// assert!(FILE.try_read(..).is_some());
///
/// // A range that is computed, and may be empty:
/// let (offset, length) = (8192, 0);
/// let message = Extent::at(offset, length).unwrap_err().to_string();
/// assert_eq!(message, "the range at 8192 has length 0: give at least 1");
/// ```
///
/// # Panics
/// All methods that take a range panic if it is empty or ends before it begins. Those that are made
/// from an [`Extent`] do not.
pub struct RangeLock<R = Slotted<Os>> {
    raw: R,
}

/// Shared access to a range; releases when dropped, on any thread.
#[must_use = "the range is released at once if the guard is not kept"]
pub struct RangeReadGuard<'a, R: RawRangeLock = Slotted<Os>>(Held<&'a RangeLock<R>, R, false>);

/// Exclusive access to a range; releases when dropped, on any thread.
#[must_use = "the range is released at once if the guard is not kept"]
pub struct RangeWriteGuard<'a, R: RawRangeLock = Slotted<Os>>(Held<&'a RangeLock<R>, R, true>);

/// As [`RangeReadGuard`], keeping the lock alive itself.
#[must_use = "the range is released at once if the guard is not kept"]
pub struct ArcRangeReadGuard<R: RawRangeLock = Slotted<Os>>(Held<Arc<RangeLock<R>>, R, false>);

/// As [`RangeWriteGuard`], keeping the lock alive itself.
#[must_use = "the range is released at once if the guard is not kept"]
pub struct ArcRangeWriteGuard<R: RawRangeLock = Slotted<Os>>(Held<Arc<RangeLock<R>>, R, true>);

impl RangeLock {
    /// A lock over which nothing is held.
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
    /// A lock of any kind over which nothing is held.
    pub const fn new_in() -> Self {
        RangeLock { raw: R::NEW }
    }

    /// The lock under this front.
    pub fn raw(&self) -> &R {
        &self.raw
    }

    #[inline(always)]
    fn acquire<const EXCLUSIVE: bool>(
        &self,
        extent: Extent,
        patience: Patience,
    ) -> Option<Held<&Self, R, EXCLUSIVE>> {
        let hold = self.raw.acquire(extent, access(EXCLUSIVE), patience)?;
        Some(Held { lock: self, extent, hold: ManuallyDrop::new(hold) })
    }

    fn acquire_arc<const EXCLUSIVE: bool>(
        self: &Arc<Self>,
        extent: Extent,
    ) -> Held<Arc<Self>, R, EXCLUSIVE> {
        let hold = self.raw.acquire(extent, access(EXCLUSIVE), Patience::Until(None));
        let hold = ManuallyDrop::new(hold.expect(WITHOUT_DEADLINE));
        Held { lock: Arc::clone(self), extent, hold }
    }

    /// Waits for shared access.
    #[inline]
    #[track_caller]
    pub fn read(&self, range: impl IntoExtent) -> RangeReadGuard<'_, R> {
        RangeReadGuard(
            self.acquire(range.into_extent(), Patience::Until(None)).expect(WITHOUT_DEADLINE),
        )
    }

    /// Waits for exclusive access.
    #[inline]
    #[track_caller]
    pub fn write(&self, range: impl IntoExtent) -> RangeWriteGuard<'_, R> {
        RangeWriteGuard(
            self.acquire(range.into_extent(), Patience::Until(None)).expect(WITHOUT_DEADLINE),
        )
    }

    /// Shared access, if no conflicting range is held, nor reserved for a waiter.
    #[inline]
    #[track_caller]
    pub fn try_read(&self, range: impl IntoExtent) -> Option<RangeReadGuard<'_, R>> {
        self.acquire(range.into_extent(), Patience::None).map(RangeReadGuard)
    }

    /// Exclusive access, if no conflicting range is held, nor reserved for a waiter.
    #[inline]
    #[track_caller]
    pub fn try_write(&self, range: impl IntoExtent) -> Option<RangeWriteGuard<'_, R>> {
        self.acquire(range.into_extent(), Patience::None).map(RangeWriteGuard)
    }

    /// Shared access, waiting at most for `timeout`.
    #[track_caller]
    pub fn try_read_for(
        &self,
        range: impl IntoExtent,
        timeout: Duration,
    ) -> Option<RangeReadGuard<'_, R>> {
        let patience = Patience::Until(after::<R::Platform>(timeout));
        self.acquire(range.into_extent(), patience).map(RangeReadGuard)
    }

    /// Exclusive access, waiting at most for `timeout`.
    #[track_caller]
    pub fn try_write_for(
        &self,
        range: impl IntoExtent,
        timeout: Duration,
    ) -> Option<RangeWriteGuard<'_, R>> {
        let patience = Patience::Until(after::<R::Platform>(timeout));
        self.acquire(range.into_extent(), patience).map(RangeWriteGuard)
    }

    /// Shared access, waiting until `deadline` at most.
    #[track_caller]
    pub fn try_read_until(
        &self,
        range: impl IntoExtent,
        deadline: Instant,
    ) -> Option<RangeReadGuard<'_, R>> {
        let patience = Patience::Until(until::<R::Platform>(deadline));
        self.acquire(range.into_extent(), patience).map(RangeReadGuard)
    }

    /// Exclusive access, waiting until `deadline` at most.
    #[track_caller]
    pub fn try_write_until(
        &self,
        range: impl IntoExtent,
        deadline: Instant,
    ) -> Option<RangeWriteGuard<'_, R>> {
        let patience = Patience::Until(until::<R::Platform>(deadline));
        self.acquire(range.into_extent(), patience).map(RangeWriteGuard)
    }

    /// As [`read`](Self::read), with a guard that owns its lock: for tasks and threads that outlive
    /// the caller.
    #[track_caller]
    pub fn read_arc(self: &Arc<Self>, range: impl IntoExtent) -> ArcRangeReadGuard<R> {
        ArcRangeReadGuard(self.acquire_arc(range.into_extent()))
    }

    /// As [`write`](Self::write), with a guard that owns its lock.
    #[track_caller]
    pub fn write_arc(self: &Arc<Self>, range: impl IntoExtent) -> ArcRangeWriteGuard<R> {
        ArcRangeWriteGuard(self.acquire_arc(range.into_extent()))
    }
}

const WITHOUT_DEADLINE: &str = "without a deadline an acquisition succeeds";

impl<R: RawRangeLock> fmt::Debug for RangeLock<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeLock").finish_non_exhaustive()
    }
}

const fn access(exclusive: bool) -> Access {
    if exclusive { Access::Exclusive } else { Access::Shared }
}

/// A held range, of which all guards consist.
struct Held<L: Deref<Target = RangeLock<R>>, R: RawRangeLock, const EXCLUSIVE: bool> {
    lock: L,
    extent: Extent,
    /// Taken out by the drop.
    hold: ManuallyDrop<R::Hold>,
}

impl<L: Deref<Target = RangeLock<R>>, R: RawRangeLock> Held<L, R, true> {
    fn downgraded(self) -> Held<L, R, false> {
        let held = ManuallyDrop::new(self);
        // SAFETY: `held` is not used again, not even by its destructor.
        let (lock, hold) = unsafe { (ptr::read(&held.lock), ptr::read(&held.hold)) };
        let mut shared = Held { lock, extent: held.extent, hold };
        // SAFETY: this hold came from this lock, for this extent and with exclusive access.
        unsafe { shared.lock.raw.downgrade(shared.extent, &mut shared.hold) };
        shared
    }
}

impl<L: Deref<Target = RangeLock<R>>, R: RawRangeLock, const EXCLUSIVE: bool> Drop
    for Held<L, R, EXCLUSIVE>
{
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `hold` is not used again, as `self` ends here; it came from this lock, for this
        // extent and with this access.
        unsafe {
            let hold = ManuallyDrop::take(&mut self.hold);
            self.lock.raw.release(self.extent, access(EXCLUSIVE), hold);
        }
    }
}

macro_rules! guard {
    ($guard:ident $(, $lifetime:lifetime)?) => {
        impl<$($lifetime,)? R: RawRangeLock> $guard<$($lifetime,)? R> {
            /// The range that it holds.
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
    /// Keeps the range, shared: waiters that conflict with nobody else now get shared access, and
    /// nobody has exclusive access in between.
    pub fn downgrade(guard: Self) -> RangeReadGuard<'a, R> {
        RangeReadGuard(guard.0.downgraded())
    }
}

impl<R: RawRangeLock> ArcRangeWriteGuard<R> {
    /// Keeps the range, shared: waiters that conflict with nobody else now get shared access, and
    /// nobody has exclusive access in between.
    pub fn downgrade(guard: Self) -> ArcRangeReadGuard<R> {
        ArcRangeReadGuard(guard.0.downgraded())
    }
}
