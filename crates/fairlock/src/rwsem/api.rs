//! The public face: lock_api's types over [`RawRwSem`].

use lock_api::GuardNoSend;

use super::core::RawRwSem;
use super::queue_storage::QueueStorage;
use crate::events::Snapshot;
use crate::guarded::{Guarded, guarded_by_lock_api, held};
use crate::platform::{Os, Platform};
use crate::policy::{Policy, TimeFair};

/// A fair reader-writer lock: [`PolicyRwSem`] with the default policy, [`TimeFair`].
///
/// Any number of readers or one writer. Uncontended reads and writes take one atomic operation
/// to lock and one to unlock; 64 bytes beside the data; usable in statics.
///
/// # Guarantees
/// While both sides want the lock, phases of readers and of writers alternate and share its
/// *time*: see [`TimeFair`] for the bounds. Not recursive: see [`crate::rwsem`].
///
/// # Panics
/// When more than 4,194,303 shared guards exist at once; in debug builds also when a thread asks
/// for a second shared hold in a blocking way.
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
/// Guards that own their lock:
/// ```
/// use std::sync::Arc;
/// let lock = Arc::new(fairlock::RwSem::new(String::new()));
/// let mut guard = lock.write_arc();
/// guard.push('x');
/// ```
pub type RwSem<T> = PolicyRwSem<T, TimeFair, Os>;

/// A reader-writer lock with a chosen [policy](crate::policy); [`RwSem`] is the one with the
/// default. (Two names, because a default type parameter would not be inferred in
/// `RwSem::new(…)`.)
///
/// ```
/// use fairlock::{PolicyRwSem, policy::NoReaderSteal};
/// let lock: PolicyRwSem<_, NoReaderSteal> = PolicyRwSem::new(5);
/// assert!(lock.try_write().is_some());
/// ```
pub type PolicyRwSem<T, Pol, P = Os> = lock_api::RwLock<RawRwSem<Pol, P>, T>;

/// Shared access to an [`RwSem`]'s data; releases when dropped.
pub type RwSemReadGuard<'a, T, Pol = TimeFair, P = Os> =
    lock_api::RwLockReadGuard<'a, RawRwSem<Pol, P>, T>;
/// Exclusive access to an [`RwSem`]'s data; releases when dropped.
pub type RwSemWriteGuard<'a, T, Pol = TimeFair, P = Os> =
    lock_api::RwLockWriteGuard<'a, RawRwSem<Pol, P>, T>;
/// Shared access that can become exclusive; one at a time, beside plain readers.
pub type RwSemUpgradableReadGuard<'a, T, Pol = TimeFair, P = Os> =
    lock_api::RwLockUpgradableReadGuard<'a, RawRwSem<Pol, P>, T>;

/// The [events](crate::events) of a [`PolicyRwSem`] so far; all zero on a platform that does not
/// count.
///
/// ```
/// use fairlock::{PolicyRwSem, events::Event, platform::Counting, policy::TimeFair, rwsem};
/// let lock: PolicyRwSem<u32, TimeFair, Counting> = PolicyRwSem::new(0);
/// *lock.write() += 1;
/// assert_eq!(rwsem::events(&lock).get(Event::SleepWriter), 0); // nobody waited
/// ```
pub fn events<T: ?Sized, Pol: Policy, P: Platform, L: QueueStorage<P>>(
    lock: &lock_api::RwLock<RawRwSem<Pol, P, L>, T>,
) -> Snapshot {
    // SAFETY: reading the counters touches neither the lock's state nor its data.
    unsafe { lock.raw() }.events()
}

// SAFETY: the core's invariant 1; acquisitions are Acquire, releases Release; `UPGRADABLE` admits one such
// holder, which becomes the writer once it is the only holder left. A waiter that gives up is off the queue.
unsafe impl<Pol: Policy, P: Platform, L: QueueStorage<P>> Guarded for RawRwSem<Pol, P, L> {
    type Platform = P;
    type Shared = GuardNoSend;

    #[inline]
    fn read(&self, deadline: Option<u64>) -> Option<GuardNoSend> {
        RawRwSem::read(self, deadline).then(held)
    }
    #[inline]
    fn read_without_deadline(&self) -> GuardNoSend {
        RawRwSem::read_without_deadline(self);
        held()
    }
    #[inline]
    fn try_read(&self) -> Option<GuardNoSend> {
        RawRwSem::try_read(self).then(held)
    }
    #[inline]
    unsafe fn unlock_read(&self, _shared: GuardNoSend) {
        // SAFETY: held shared, as the caller promises.
        unsafe { RawRwSem::unlock_read(self) };
    }
    #[inline]
    unsafe fn unlock_read_fair(&self, _shared: GuardNoSend) {
        // SAFETY: held shared, as the caller promises.
        unsafe { RawRwSem::unlock_read_fair(self) };
    }

    #[inline]
    fn write(&self, deadline: Option<u64>) -> bool {
        RawRwSem::write(self, deadline)
    }
    #[inline]
    fn write_without_deadline(&self) {
        RawRwSem::write_without_deadline(self);
    }
    #[inline]
    fn try_write(&self) -> bool {
        RawRwSem::try_write(self)
    }
    #[inline]
    unsafe fn unlock_write(&self) {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { RawRwSem::unlock_write(self) };
    }
    #[inline]
    unsafe fn unlock_write_fair(&self) {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { RawRwSem::unlock_write_fair(self) };
    }
    unsafe fn downgrade_to_read(&self) -> GuardNoSend {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { RawRwSem::downgrade_to_read(self) };
        held()
    }
    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { RawRwSem::downgrade_to_upgradable(self) };
    }

    fn upgradable(&self, deadline: Option<u64>) -> bool {
        RawRwSem::upgradable(self, deadline)
    }
    fn try_upgradable(&self) -> bool {
        RawRwSem::try_upgradable(self)
    }
    unsafe fn unlock_upgradable(&self) {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { RawRwSem::unlock_upgradable(self) };
    }
    unsafe fn unlock_upgradable_fair(&self) {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { RawRwSem::unlock_upgradable_fair(self) };
    }
    unsafe fn downgrade_upgradable(&self) -> GuardNoSend {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { RawRwSem::downgrade_upgradable(self) };
        held()
    }
    unsafe fn upgrade(&self, deadline: Option<u64>) -> bool {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { RawRwSem::upgrade(self, deadline) }
    }
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { RawRwSem::try_upgrade(self) }
    }

    fn is_locked(&self) -> bool {
        RawRwSem::is_locked(self)
    }
    fn is_locked_exclusive(&self) -> bool {
        RawRwSem::is_locked_exclusive(self)
    }

    fn id(&self) -> *const () {
        core::ptr::from_ref(self).cast()
    }
    #[inline(always)]
    fn may_be_read(&self) -> bool {
        self.has_readers()
    }
}

guarded_by_lock_api!([Pol: Policy, P: Platform, L: QueueStorage<P>] RawRwSem<Pol, P, L>, GuardNoSend);
