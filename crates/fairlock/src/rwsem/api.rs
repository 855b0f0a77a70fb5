//! The public face: [`RwSem`] and the names of its guards.

use core::cell::UnsafeCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(not(loom))]
use super::lock::RawRwSem;
use super::queue_pool::HasQueuePool;
use crate::events::Snapshot;
use crate::face::{lock_of_values, lock_with_data, reader_writer_lock};
use crate::guard::{
    Borrowed, Exclusive, Guard, Lock, Owned, Part, Reading, Shared, Upgradable, Writing,
};
use crate::hold::Limit;
#[cfg(loom)]
use crate::modelled::RawRwSem;
use crate::platform::Os;
use crate::policy::{Policy, TimeFair};
use crate::raw::{RawLock, RawReadWriteLock};

/// A fair reader-writer lock that shares its time between readers and writers, or follows another
/// [policy](crate::policy).
///
/// Any number of readers or one writer. Uncontended reads and writes take one atomic operation
/// to lock and one to unlock; 24 bytes and the data; usable in statics.
///
/// # Guarantees
/// While both sides want the lock, each has it for about as long as the other: see [`TimeFair`] for
/// the bounds. Not recursive: see [`crate::rwsem`].
///
/// # Panics
/// When more than four million shared guards exist at once (4,194,303; for recursive reads
/// 4,128,767); in debug builds also when a thread asks for a second shared hold in a blocking way.
///
/// # Examples
/// ```
/// use fairlock::RwSem;
/// use std::time::Duration;
///
/// static TABLE: RwSem<Vec<u32>> = RwSem::new(Vec::new());
///
/// TABLE.write().push(7);
/// assert_eq!(*TABLE.read(), [7]);
///
/// // Timed, upgradable, downgrade:
/// let entry = TABLE.try_upgradable_read_for(Duration::from_millis(10)).unwrap();
/// if !entry.contains(&8) {
///     let mut entry = fairlock::RwSemUpgradableReadGuard::upgrade(entry);
///     entry.push(8);
///     let entry = fairlock::RwSemWriteGuard::downgrade(entry);
///     assert_eq!(entry.len(), 2);
/// }
/// ```
/// With another policy or [platform](crate::platform), write the type out:
/// ```
/// use fairlock::{RwSem, policy::PhaseFair};
/// static LOCK: RwSem<u32, PhaseFair> = RwSem::with_policy(5);
/// assert!(LOCK.try_write().is_some());
/// ```
pub struct RwSem<T: ?Sized, Pol: Policy = TimeFair, P: HasQueuePool = Os> {
    raw: RawRwSem<Pol, P>,
    data: UnsafeCell<T>,
}

/// Shared access to an [`RwSem`]'s data; releases when dropped. Made by [`RwSem::read`] and its
/// like.
///
/// Covariant in `T`; [stays on its thread](crate::guard) without the feature `send_guard`.
pub type RwSemReadGuard<'a, T, Pol = TimeFair, P = Os> =
    Guard<Shared, Borrowed<'a, T, RawRwSem<Pol, P>, Reading<'a, T>>, RawRwSem<Pol, P>>;
/// Exclusive access to an [`RwSem`]'s data; releases when dropped. Made by [`RwSem::write`] and its
/// like.
///
/// [Stays on its thread](crate::guard) without the feature `send_guard`.
pub type RwSemWriteGuard<'a, T, Pol = TimeFair, P = Os> =
    Guard<Exclusive, Borrowed<'a, T, RawRwSem<Pol, P>, Writing<'a, T>>, RawRwSem<Pol, P>>;
/// Shared access that can [become exclusive](Guard::upgrade); one at a time, next to plain readers.
/// Made by [`RwSem::upgradable_read`] and its like.
pub type RwSemUpgradableReadGuard<'a, T, Pol = TimeFair, P = Os> =
    Guard<Upgradable, Borrowed<'a, T, RawRwSem<Pol, P>, Writing<'a, T>>, RawRwSem<Pol, P>>;
/// Shared access to a part of an [`RwSem`]'s data; releases the whole lock when dropped. Made by
/// [`RwSemReadGuard::map`](Guard::map).
pub type MappedRwSemReadGuard<'a, T, Pol = TimeFair, P = Os> =
    Guard<Shared, Borrowed<'a, T, RawRwSem<Pol, P>, Part<&'a T>>, RawRwSem<Pol, P>>;
/// Exclusive access to a part of an [`RwSem`]'s data; releases the whole lock when dropped. Made by
/// [`RwSemWriteGuard::map`](Guard#method.map-2).
pub type MappedRwSemWriteGuard<'a, T, Pol = TimeFair, P = Os> =
    Guard<Exclusive, Borrowed<'a, T, RawRwSem<Pol, P>, Part<&'a mut T>>, RawRwSem<Pol, P>>;
/// As [`RwSemReadGuard`], with an [`Arc`] of the lock instead of a borrow. Made by
/// [`RwSem::read_arc`] and its like.
pub type ArcRwSemReadGuard<T, Pol = TimeFair, P = Os> =
    Guard<Shared, Owned<RwSem<T, Pol, P>>, RawRwSem<Pol, P>>;
/// As [`RwSemWriteGuard`], with an [`Arc`] of the lock instead of a borrow. Made by
/// [`RwSem::write_arc`] and its like.
pub type ArcRwSemWriteGuard<T, Pol = TimeFair, P = Os> =
    Guard<Exclusive, Owned<RwSem<T, Pol, P>>, RawRwSem<Pol, P>>;
/// As [`RwSemUpgradableReadGuard`], with an [`Arc`] of the lock instead of a borrow. Made by
/// [`RwSem::upgradable_read_arc`] and its like.
pub type ArcRwSemUpgradableReadGuard<T, Pol = TimeFair, P = Os> =
    Guard<Upgradable, Owned<RwSem<T, Pol, P>>, RawRwSem<Pol, P>>;

/// The [events](crate::events) of an [`RwSem`] so far; all zero on a platform that does not count.
///
/// ```
/// use fairlock::{RwSem, events::Event, platform::Counting, policy::TimeFair, rwsem};
/// let lock: RwSem<u32, TimeFair, Counting> = RwSem::with_policy(0);
/// *lock.write() += 1;
/// assert_eq!(rwsem::events(&lock).get(Event::SleepWriter), 0); // no thread waited
/// ```
pub fn events<T: ?Sized, Pol: Policy, P: HasQueuePool>(lock: &RwSem<T, Pol, P>) -> Snapshot {
    lock.raw.events()
}

reader_writer_lock! {
    RwSem [Pol: Policy, P: HasQueuePool] [Pol, P], raw: RawRwSem<Pol, P> = RawRwSem::NEW,
    example: "RwSem",
    guards: RwSemReadGuard, RwSemWriteGuard, RwSemUpgradableReadGuard,
    arc: ArcRwSemReadGuard, ArcRwSemWriteGuard, ArcRwSemUpgradableReadGuard,
}

/// Reads within reads.
impl<T: ?Sized, Pol: Policy, P: HasQueuePool> RwSem<T, Pol, P> {
    /// Acquires the lock for reading, past threads that wait for it: it waits only while a thread
    /// writes. So it succeeds at once if the calling thread already reads the lock, where
    /// [`read`](Self::read) could deadlock. Writers wait for longer, so use it only for such reads.
    ///
    /// # Panics
    /// As [`read`](Self::read), but not because this thread reads the lock already.
    ///
    /// # Examples
    /// ```
    /// let lock = fairlock::RwSem::new(vec![1, 2]);
    /// let outer = lock.read();
    /// let inner = lock.read_recursive();
    /// assert_eq!(outer.len(), inner.len());
    /// ```
    #[track_caller]
    pub fn read_recursive(&self) -> RwSemReadGuard<'_, T, Pol, P> {
        Guard::acquire_recursively(self.borrow())
    }

    /// As [`read_recursive`](Self::read_recursive), if that needs no waiting.
    #[track_caller]
    pub fn try_read_recursive(&self) -> Option<RwSemReadGuard<'_, T, Pol, P>> {
        Guard::try_acquire_recursively(self.borrow())
    }

    /// As [`read_recursive`](Self::read_recursive), but gives up after `timeout`.
    #[track_caller]
    pub fn try_read_recursive_for(
        &self,
        timeout: Duration,
    ) -> Option<RwSemReadGuard<'_, T, Pol, P>> {
        Guard::acquire_recursively_within(self.borrow(), Limit::For(timeout))
    }

    /// As [`read_recursive`](Self::read_recursive), but gives up at `instant`.
    #[track_caller]
    pub fn try_read_recursive_until(
        &self,
        instant: Instant,
    ) -> Option<RwSemReadGuard<'_, T, Pol, P>> {
        Guard::acquire_recursively_within(self.borrow(), Limit::Until(instant))
    }

    /// As [`read_recursive`](Self::read_recursive), with a guard that owns an [`Arc`] of the lock.
    #[track_caller]
    pub fn read_arc_recursive(self: &Arc<Self>) -> ArcRwSemReadGuard<T, Pol, P> {
        Guard::acquire_recursively(self.share())
    }

    /// As [`try_read_recursive`](Self::try_read_recursive), with a guard that owns an [`Arc`] of
    /// the lock.
    #[track_caller]
    pub fn try_read_arc_recursive(self: &Arc<Self>) -> Option<ArcRwSemReadGuard<T, Pol, P>> {
        Guard::try_acquire_recursively(self.share())
    }

    /// As [`try_read_recursive_for`](Self::try_read_recursive_for), with a guard that owns an
    /// [`Arc`] of the lock.
    #[track_caller]
    pub fn try_read_arc_recursive_for(
        self: &Arc<Self>,
        timeout: Duration,
    ) -> Option<ArcRwSemReadGuard<T, Pol, P>> {
        Guard::acquire_recursively_within(self.share(), Limit::For(timeout))
    }

    /// As [`try_read_recursive_until`](Self::try_read_recursive_until), with a guard that owns an
    /// [`Arc`] of the lock.
    #[track_caller]
    pub fn try_read_arc_recursive_until(
        self: &Arc<Self>,
        instant: Instant,
    ) -> Option<ArcRwSemReadGuard<T, Pol, P>> {
        Guard::acquire_recursively_within(self.share(), Limit::Until(instant))
    }
}

impl<T, Pol: Policy, P: HasQueuePool> RwSem<T, Pol, P> {
    /// A free lock whose type says its policy and platform; [`new`](RwSem::new) makes the default
    /// one.
    #[must_use]
    pub const fn with_policy(value: T) -> Self {
        RwSem { raw: RawRwSem::NEW, data: UnsafeCell::new(value) }
    }
}
