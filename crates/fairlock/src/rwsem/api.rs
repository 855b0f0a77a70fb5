//! The public face: lock_api's types over [`RawRwSem`].

use std::time::{Duration, Instant};

use lock_api::GuardNoSend;

use super::{QueueStorage, RawRwSem};
use super::{READ_WITHIN_READ, WRITE_WITHIN_READ};
use crate::events::Snapshot;
use crate::platform::{Os, Platform, after, until};
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

impl<Pol: Policy, P: Platform, L: QueueStorage<P>> RawRwSem<Pol, P, L> {
    fn id(&self) -> *const () {
        core::ptr::from_ref(self).cast()
    }

    /// A lock that nobody reads is not read by this thread either: a guard that it forgot may have been
    /// that of another lock, in the same place.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn check_recursion(&self, message: &'static str) {
        if P::CHECKS_RECURSION && self.has_readers() {
            P::check_recursion(self.id(), message);
        }
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_read(&self, deadline: Option<u64>) -> Option<GuardNoSend> {
        self.check_recursion(READ_WITHIN_READ);
        self.read(deadline).then(|| self.new_shared())
    }

    #[inline]
    fn new_shared(&self) -> GuardNoSend {
        if P::CHECKS_RECURSION {
            P::note_shared(self.id());
        }
        guard()
    }

    #[inline]
    fn end_shared(&self) {
        if P::CHECKS_RECURSION {
            P::forget_shared(self.id());
        }
    }

    #[inline]
    fn lock_write(&self, deadline: Option<u64>) -> Option<GuardNoSend> {
        self.write(deadline).then(guard)
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_upgrade(&self, deadline: Option<u64>) -> Option<GuardNoSend> {
        self.check_recursion(READ_WITHIN_READ);
        self.upgradable(deadline).then(|| self.new_shared())
    }

    fn upgrade_by(
        &self,
        deadline: Option<u64>,
        held: GuardNoSend,
    ) -> Result<GuardNoSend, GuardNoSend> {
        // SAFETY: `held` is an upgradable acquisition's state.
        if unsafe { self.upgrade(deadline) } {
            self.end_shared();
            Ok(held)
        } else {
            Err(held)
        }
    }
}

#[inline(always)]
fn guard() -> GuardNoSend {
    GuardNoSend::new()
}

// SAFETY: invariant 1 of `rwsem`; acquisitions are Acquire, releases Release. Guard state is
// inert, so forgetting it is safe, and a lock that is moved or dropped while held has an empty
// queue, since waiters borrow it.
unsafe impl<Pol: Policy, P: Platform, L: QueueStorage<P>> lock_api::RawRwLock
    for RawRwSem<Pol, P, L>
{
    const INIT: Self = Self::NEW;
    type SharedGuard = GuardNoSend;
    type ExclusiveGuard = GuardNoSend;

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_shared(&self) -> GuardNoSend {
        self.check_recursion(READ_WITHIN_READ);
        self.read_without_deadline();
        self.new_shared()
    }
    #[inline]
    fn try_lock_shared(&self) -> Option<GuardNoSend> {
        self.try_read().then(|| self.new_shared())
    }
    #[inline]
    unsafe fn unlock_shared(&self, _guard: GuardNoSend) {
        self.end_shared();
        // SAFETY: the caller's.
        unsafe { self.unlock_read() };
    }
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_exclusive(&self) -> GuardNoSend {
        self.check_recursion(WRITE_WITHIN_READ);
        self.write_without_deadline();
        guard()
    }
    #[inline]
    fn try_lock_exclusive(&self) -> Option<GuardNoSend> {
        self.try_write().then(guard)
    }
    #[inline]
    unsafe fn unlock_exclusive(&self, _guard: GuardNoSend) {
        // SAFETY: the caller's.
        unsafe { self.unlock_write() };
    }
    fn is_locked(&self) -> bool {
        self.is_locked()
    }
    fn is_locked_exclusive(&self) -> bool {
        self.is_locked_exclusive()
    }
}

// SAFETY: as above; the next holder is chosen before the lock is free.
unsafe impl<Pol: Policy, P: Platform, L: QueueStorage<P>> lock_api::RawRwLockFair
    for RawRwSem<Pol, P, L>
{
    #[inline]
    unsafe fn unlock_shared_fair(&self, _guard: GuardNoSend) {
        self.end_shared();
        // SAFETY: the caller's.
        unsafe { self.unlock_read_fair() };
    }
    #[inline]
    unsafe fn unlock_exclusive_fair(&self, _guard: GuardNoSend) {
        // SAFETY: the caller's.
        unsafe { self.unlock_write_fair() };
    }
}

// SAFETY: the writer becomes a reader in one atomic step, which is a Release.
unsafe impl<Pol: Policy, P: Platform, L: QueueStorage<P>> lock_api::RawRwLockDowngrade
    for RawRwSem<Pol, P, L>
{
    unsafe fn downgrade(&self, _guard: GuardNoSend) -> GuardNoSend {
        // SAFETY: the caller's.
        unsafe { self.downgrade_to_read() };
        self.new_shared()
    }
}

// SAFETY: as for the untimed forms; failing leaves nothing held and no node queued.
unsafe impl<Pol: Policy, P: Platform, L: QueueStorage<P>> lock_api::RawRwLockTimed
    for RawRwSem<Pol, P, L>
{
    type Duration = Duration;
    type Instant = Instant;

    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_shared_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        self.lock_read(after::<P>(timeout))
    }
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_shared_until(&self, instant: Instant) -> Option<GuardNoSend> {
        self.lock_read(until::<P>(instant))
    }
    fn try_lock_exclusive_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        self.lock_write(after::<P>(timeout))
    }
    fn try_lock_exclusive_until(&self, instant: Instant) -> Option<GuardNoSend> {
        self.lock_write(until::<P>(instant))
    }
}

// SAFETY: `UPGRADABLE` admits one such holder, and becoming the writer requires to be the only
// one left, with Acquire on the word that those who left have released.
unsafe impl<Pol: Policy, P: Platform, L: QueueStorage<P>> lock_api::RawRwLockUpgrade
    for RawRwSem<Pol, P, L>
{
    type UpgradableGuard = GuardNoSend;

    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_upgradable(&self) -> GuardNoSend {
        self.lock_upgrade(None).expect("without a deadline a wait ends with the lock")
    }
    fn try_lock_upgradable(&self) -> Option<GuardNoSend> {
        self.try_upgradable().then(|| self.new_shared())
    }
    unsafe fn unlock_upgradable(&self, _guard: GuardNoSend) {
        self.end_shared();
        // SAFETY: the caller's.
        unsafe { self.unlock_upgradable() };
    }
    unsafe fn upgrade(&self, guard: GuardNoSend) -> GuardNoSend {
        self.upgrade_by(None, guard).unwrap_or_else(|guard| guard)
    }
    unsafe fn try_upgrade(&self, guard: GuardNoSend) -> Result<GuardNoSend, GuardNoSend> {
        // SAFETY: the caller's.
        if unsafe { self.try_upgrade() } {
            self.end_shared();
            Ok(guard)
        } else {
            Err(guard)
        }
    }
}

// SAFETY: as for the plain fair unlock.
unsafe impl<Pol: Policy, P: Platform, L: QueueStorage<P>> lock_api::RawRwLockUpgradeFair
    for RawRwSem<Pol, P, L>
{
    unsafe fn unlock_upgradable_fair(&self, _guard: GuardNoSend) {
        self.end_shared();
        // SAFETY: the caller's.
        unsafe { self.unlock_upgradable_fair() };
    }
}

// SAFETY: one atomic step each, a Release.
unsafe impl<Pol: Policy, P: Platform, L: QueueStorage<P>> lock_api::RawRwLockUpgradeDowngrade
    for RawRwSem<Pol, P, L>
{
    unsafe fn downgrade_upgradable(&self, guard: GuardNoSend) -> GuardNoSend {
        // SAFETY: the caller's.
        unsafe { self.downgrade_upgradable() };
        guard
    }
    unsafe fn downgrade_to_upgradable(&self, _guard: GuardNoSend) -> GuardNoSend {
        // SAFETY: the caller's.
        unsafe { self.downgrade_to_upgradable() };
        self.new_shared()
    }
}

// SAFETY: as for the untimed forms; a failed upgrade still holds the upgradable acquisition.
unsafe impl<Pol: Policy, P: Platform, L: QueueStorage<P>> lock_api::RawRwLockUpgradeTimed
    for RawRwSem<Pol, P, L>
{
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_upgradable_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        self.lock_upgrade(after::<P>(timeout))
    }
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_upgradable_until(&self, instant: Instant) -> Option<GuardNoSend> {
        self.lock_upgrade(until::<P>(instant))
    }
    unsafe fn try_upgrade_for(
        &self,
        guard: GuardNoSend,
        timeout: Duration,
    ) -> Result<GuardNoSend, GuardNoSend> {
        self.upgrade_by(after::<P>(timeout), guard)
    }
    unsafe fn try_upgrade_until(
        &self,
        guard: GuardNoSend,
        instant: Instant,
    ) -> Result<GuardNoSend, GuardNoSend> {
        self.upgrade_by(until::<P>(instant), guard)
    }
}
