//! The public face: [`RwLock`] and the names of its guards.

use core::cell::UnsafeCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(not(loom))]
use super::RawRwLock;
use crate::events::Snapshot;
use crate::face::{lock_of_values, lock_with_data, reader_writer_lock};
use crate::guard::{
    Borrowed, Exclusive, Guard, Lock, Owned, Part, Reading, Shared, Upgradable, Writing,
};
use crate::hold::Limit;
#[cfg(loom)]
use crate::modelled::RawRwLock;
use crate::platform::Os;
use crate::policy::{BiasPolicy, ReadMostly};
use crate::raw::{RawLock, RawReadWriteLock};
use crate::rwsem::HasQueuePool;

/// A reader-writer lock for data that is mostly read: the lock to use unless another fits better.
///
/// Any number of readers or one writer. While nobody writes, a read locks and unlocks with two
/// plain stores and a few loads, on cache lines that no other thread writes: about a nanosecond, on
/// any number of CPUs at once. Each lock adds 32 bytes to its data, and 64 while a thread waits.
/// Each thread that reads has 128 bytes, however many locks it reads. Usable in statics.
///
/// # Guarantees
/// * No thread starves, however many readers there are. From the moment at which a thread waits,
///   readers and writers divide the lock's time under [`TimeFair`](crate::policy::TimeFair): other
///   threads may pass a waiter until its side is owed 16 wake-ups; if its side has had more than
///   its share, that is paid back first, which takes at most
///   [`MOST_OWED_NS`](crate::policy::MOST_OWED_NS). After that no thread enters until all holders
///   have left. A writer that was woken but did not get the lock may be passed for twice as long.
/// * A writer whose turn it is waits for the readers that hold the lock then. Readers that arrive
///   later wait for that writer.
/// * A try fails only if another thread holds the lock, waits for it or tries to acquire it at that
///   moment. Readers that try at the same moment do not make each other fail, and of writers that
///   try at the same moment one succeeds; but of a reader and a writer that try at the same moment,
///   both may fail.
/// * A lock may be freed once its last user's unlock has returned, even if other threads have not
///   yet returned from unlocks that released it earlier.
/// * No poisoning: a panic releases the lock through its guard.
/// * Not recursive: see [`crate::rwsem`]. A guard that is forgotten keeps the lock locked.
/// * Guards [cannot be sent to another thread](crate::guard).
///
/// # Costs
/// * A write that finds readers using slots looks at one cache line for each thread that has read
///   lately; after a time without writes, for each thread that has a record.
/// * The first write after a time without writes also raises a barrier on all CPUs that run the
///   process, which takes microseconds. By then that time has been [twenty
///   times](crate::policy::Bias::patience) as long.
/// * While writes are frequent, the lock behaves and costs like an [`RwSem`](crate::RwSem).
/// * A thread has four slots. While it reads four locks, it reads further ones by their semaphores.
///   So does a thread that is about to end, in destructors of thread-local variables, and each
///   thread beyond the first 32,768.
///
/// # Panics
/// As [`RwSem`](crate::RwSem).
///
/// # Examples
/// ```
/// use fairlock::RwLock;
/// use std::time::Duration;
///
/// static TABLE: RwLock<Vec<u32>> = RwLock::new(Vec::new());
///
/// TABLE.write().push(7);
/// assert_eq!(*TABLE.read(), [7]);
///
/// // Timed, upgradable, downgrade:
/// let entry = TABLE.try_upgradable_read_for(Duration::from_millis(10)).unwrap();
/// if !entry.contains(&8) {
///     let mut entry = fairlock::RwLockUpgradableReadGuard::upgrade(entry);
///     entry.push(8);
///     let entry = fairlock::RwLockWriteGuard::downgrade(entry);
///     assert_eq!(entry.len(), 2);
/// }
/// ```
/// With another [bias](crate::policy::Bias), or on another [platform](crate::platform), write the
/// type out:
/// ```
/// use fairlock::{RwLock, platform::Counting, policy::ReadMostly, rwlock};
/// let counted: RwLock<u8, ReadMostly, Counting> = RwLock::with_policy(0);
/// assert!(!counted.is_locked());
/// ```
pub struct RwLock<T: ?Sized, B: BiasPolicy = ReadMostly, P: HasQueuePool = Os> {
    raw: RawRwLock<P, B>,
    data: UnsafeCell<T>,
}

/// Shared access to an [`RwLock`]'s data; releases when dropped. Made by [`RwLock::read`] and its
/// like.
///
/// Covariant in `T`; [stays on its thread](crate::guard).
pub type RwLockReadGuard<'a, T, B = ReadMostly, P = Os> =
    Guard<Shared, Borrowed<'a, T, RawRwLock<P, B>, Reading<'a, T>>, RawRwLock<P, B>>;
/// Exclusive access to an [`RwLock`]'s data; releases when dropped. Made by [`RwLock::write`] and
/// its like.
pub type RwLockWriteGuard<'a, T, B = ReadMostly, P = Os> =
    Guard<Exclusive, Borrowed<'a, T, RawRwLock<P, B>, Writing<'a, T>>, RawRwLock<P, B>>;
/// Shared access that can [become exclusive](Guard::upgrade); one at a time, next to plain readers.
/// Made by [`RwLock::upgradable_read`] and its like.
pub type RwLockUpgradableReadGuard<'a, T, B = ReadMostly, P = Os> =
    Guard<Upgradable, Borrowed<'a, T, RawRwLock<P, B>, Writing<'a, T>>, RawRwLock<P, B>>;
/// Shared access to a part of an [`RwLock`]'s data; releases the whole lock when dropped. Made by
/// [`RwLockReadGuard::map`](Guard::map).
pub type MappedRwLockReadGuard<'a, T, B = ReadMostly, P = Os> =
    Guard<Shared, Borrowed<'a, T, RawRwLock<P, B>, Part<&'a T>>, RawRwLock<P, B>>;
/// Exclusive access to a part of an [`RwLock`]'s data; releases the whole lock when dropped. Made
/// by [`RwLockWriteGuard::map`](Guard#method.map-2).
pub type MappedRwLockWriteGuard<'a, T, B = ReadMostly, P = Os> =
    Guard<Exclusive, Borrowed<'a, T, RawRwLock<P, B>, Part<&'a mut T>>, RawRwLock<P, B>>;
/// As [`RwLockReadGuard`], with an [`Arc`] of the lock instead of a borrow. Made by
/// [`RwLock::read_arc`] and its like.
pub type ArcRwLockReadGuard<T, B = ReadMostly, P = Os> =
    Guard<Shared, Owned<RwLock<T, B, P>>, RawRwLock<P, B>>;
/// As [`RwLockWriteGuard`], with an [`Arc`] of the lock instead of a borrow. Made by
/// [`RwLock::write_arc`] and its like.
pub type ArcRwLockWriteGuard<T, B = ReadMostly, P = Os> =
    Guard<Exclusive, Owned<RwLock<T, B, P>>, RawRwLock<P, B>>;
/// As [`RwLockUpgradableReadGuard`], with an [`Arc`] of the lock instead of a borrow. Made by
/// [`RwLock::upgradable_read_arc`] and its like.
pub type ArcRwLockUpgradableReadGuard<T, B = ReadMostly, P = Os> =
    Guard<Upgradable, Owned<RwLock<T, B, P>>, RawRwLock<P, B>>;

/// The [events](crate::events) of an [`RwLock`] so far, those of its semaphore among them; all zero
/// on a platform that does not count.
///
/// ```
/// use fairlock::{RwLock, events::Event, platform::Counting, policy::ReadMostly, rwlock};
/// let lock: RwLock<u32, ReadMostly, Counting> = RwLock::with_policy(0);
/// *lock.write() += 1;
/// assert_eq!(rwlock::events(&lock).get(Event::SleepWriter), 0); // nobody waited
/// ```
pub fn events<T: ?Sized, B: BiasPolicy, P: HasQueuePool>(lock: &RwLock<T, B, P>) -> Snapshot {
    lock.raw.events()
}

reader_writer_lock! {
    RwLock [B: BiasPolicy, P: HasQueuePool] [B, P], raw: RawRwLock<P, B> = RawRwLock::NEW,
    example: "RwLock",
    guards: RwLockReadGuard, RwLockWriteGuard, RwLockUpgradableReadGuard,
    arc: ArcRwLockReadGuard, ArcRwLockWriteGuard, ArcRwLockUpgradableReadGuard,
}

impl<T, B: BiasPolicy, P: HasQueuePool> RwLock<T, B, P> {
    /// A free lock whose type says its bias and its platform; [`new`](RwLock::new) makes the
    /// default one.
    #[must_use]
    pub const fn with_policy(value: T) -> Self {
        RwLock { raw: RawRwLock::NEW, data: UnsafeCell::new(value) }
    }
}
