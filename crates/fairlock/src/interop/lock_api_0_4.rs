//! The traits of lock_api 0.4, for [`RawMutex`], [`RawRwLock`] and [`RawRwSem`]: for crates that have not moved to 0.5,
//! and for compilers older than it needs.
//!
//! Its guards remember nothing, so each unlock finds out what the thread holds (`unguarded.rs`), which makes a read of
//! [`RawRwLock`] a little slower; and a lock may be used either by this version or by guards that remember, never both.
//! The checks for deadlocks see nothing of what is acquired here; the feature `record` does. There are no fair unlocks of upgradable holds.

use std::time::{Duration, Instant};

use lock_api_04 as lock_api;

use crate::guarded::{
    Exclusive, Guarded, Limit, acquire_unchecked, attempt, begins_to_upgrade, release,
};
use crate::held::Access;
use crate::mutex::RawMutex;
use crate::platform::Platform;
use crate::policy::{BiasPolicy, Policy};
use crate::recorded::{self, Patience, Role};
use crate::rwlock::RawRwLock;
use crate::rwsem::{HasQueuePool, RawRwSem, ReaderBias};
use crate::unguarded::{Refused, UnguardedRwLock};

/// As guards panic.
fn acquired(result: Result<(), Refused>) -> Option<()> {
    match result {
        Ok(()) => Some(()),
        Err(Refused::Busy | Refused::TimedOut) => None,
        Err(Refused::Full) => {
            panic!("too many readers hold this lock at once: are guards being leaked?")
        }
    }
}

#[inline(always)]
fn write<R: Exclusive>(lock: &R) {
    let at_once = || lock.try_write().then_some(());
    let wait = || {
        lock.write_without_deadline();
        Some(())
    };
    acquire_unchecked(lock, Access::Exclusive, Patience::Waits, at_once, wait);
}

fn write_in_time<R: Exclusive>(lock: &R, limit: Limit) -> bool {
    let deadline = limit.deadline::<R::Platform>();
    let at_once = || lock.try_write().then_some(());
    let wait = || lock.write(deadline).then_some(());
    acquire_unchecked(lock, Access::Exclusive, Patience::Timed, at_once, wait).is_some()
}

// SAFETY: `Exclusive` promises that there is one owner at a time.
unsafe impl<P: Platform> lock_api::RawMutex for RawMutex<P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = Self::NEW;
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        write(self);
    }
    #[inline]
    fn try_lock(&self) -> bool {
        attempt(self, Access::Exclusive, || self.try_write().then_some(())).is_some()
    }
    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the lock is held, as the caller promises.
        release(self, Access::Exclusive, || unsafe { self.unlock_write() });
    }
    fn is_locked(&self) -> bool {
        Exclusive::is_locked(self)
    }
}

// SAFETY: `Exclusive` promises of a fair unlock, too, that there is one owner at a time.
unsafe impl<P: Platform> lock_api::RawMutexFair for RawMutex<P> {
    #[inline]
    unsafe fn unlock_fair(&self) {
        // SAFETY: the lock is held, as the caller promises.
        release(self, Access::Exclusive, || unsafe { self.unlock_write_fair() });
    }
}

// SAFETY: `Exclusive` promises that an acquisition that fails leaves nothing held and nobody queued.
unsafe impl<P: Platform> lock_api::RawMutexTimed for RawMutex<P> {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        write_in_time(self, Limit::For(timeout))
    }
    fn try_lock_until(&self, instant: Instant) -> bool {
        write_in_time(self, Limit::Until(instant))
    }
}

/// A read; `is_recursive` as in [`UnguardedRwLock::read`].
#[inline(always)]
fn read<R: Exclusive + UnguardedRwLock>(lock: &R, is_recursive: bool) {
    let at_once = || acquired(UnguardedRwLock::try_read(lock, is_recursive));
    let wait = || acquired(UnguardedRwLock::read(lock, None, is_recursive));
    acquire_unchecked(lock, Access::Shared, Patience::Waits, at_once, wait);
}

#[inline(always)]
fn try_read<R: Exclusive + UnguardedRwLock>(lock: &R, is_recursive: bool) -> bool {
    let at_once = || acquired(UnguardedRwLock::try_read(lock, is_recursive));
    attempt(lock, Access::Shared, at_once).is_some()
}

fn read_in_time<R: Exclusive + UnguardedRwLock>(
    lock: &R,
    limit: Limit,
    is_recursive: bool,
) -> bool {
    let deadline = limit.deadline::<R::Platform>();
    let at_once = || acquired(UnguardedRwLock::try_read(lock, is_recursive));
    let wait = || acquired(UnguardedRwLock::read(lock, deadline, is_recursive));
    acquire_unchecked(lock, Access::Shared, Patience::Timed, at_once, wait).is_some()
}

fn try_upgradable<R: Guarded>(lock: &R) -> bool {
    attempt(lock, Access::Upgradable, || lock.try_upgradable().then_some(())).is_some()
}

fn upgradable<R: Guarded>(lock: &R) {
    let acquired = upgradable_by(lock, Patience::Waits, None);
    assert!(acquired, "without a deadline a wait ends with the lock");
}

fn upgradable_in_time<R: Guarded>(lock: &R, limit: Limit) -> bool {
    upgradable_by(lock, Patience::Timed, limit.deadline::<R::Platform>())
}

fn upgradable_by<R: Guarded>(lock: &R, patience: Patience, deadline: Option<u64>) -> bool {
    let at_once = || lock.try_upgradable().then_some(());
    let wait = || lock.upgradable(deadline).then_some(());
    acquire_unchecked(lock, Access::Upgradable, patience, at_once, wait).is_some()
}

/// # Safety
/// The caller holds the lock upgradable.
unsafe fn upgrade<R: Guarded>(lock: &R) {
    // SAFETY: as the caller promises.
    let upgraded = unsafe { upgrade_by(lock, Patience::Waits, None) };
    assert!(upgraded, "without a deadline an upgrade ends with the lock");
}

/// # Safety
/// The caller holds the lock upgradable.
unsafe fn upgrade_in_time<R: Guarded>(lock: &R, limit: Limit) -> bool {
    // SAFETY: as the caller promises.
    unsafe { upgrade_by(lock, Patience::Timed, limit.deadline::<R::Platform>()) }
}

/// # Safety
/// The caller holds the lock upgradable.
unsafe fn upgrade_by<R: Guarded>(lock: &R, patience: Patience, deadline: Option<u64>) -> bool {
    begins_to_upgrade(lock);
    // SAFETY: as the caller promises.
    let at_once = || unsafe { lock.try_upgrade() }.then_some(());
    // SAFETY: as the caller promises.
    let wait = || unsafe { lock.upgrade(deadline) }.then_some(());
    let upgraded = acquire_unchecked(lock, Access::Exclusive, patience, at_once, wait);
    if upgraded.is_none() {
        recorded::acquired(lock.counted(), Role::Read);
    }
    upgraded.is_some()
}

/// # Safety
/// The caller holds the lock upgradable.
unsafe fn try_upgrade<R: Guarded>(lock: &R) -> bool {
    begins_to_upgrade(lock);
    // SAFETY: as the caller promises.
    let upgraded = attempt(lock, Access::Exclusive, || unsafe { lock.try_upgrade() }.then_some(()));
    if upgraded.is_none() {
        recorded::acquired(lock.counted(), Role::Read);
    }
    upgraded.is_some()
}

macro_rules! reader_writer {
    ([$($generics:tt)*] $lock:ty, $residence:ty) => {
        // SAFETY: `UnguardedRwLock` promises that a writer holds the lock alone.
        unsafe impl<$($generics)*> lock_api::RawRwLock for $lock {
            #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
            const INIT: Self = Self::NEW;
            type GuardMarker = $residence;

            #[inline]
            fn lock_shared(&self) {
                read(self, false);
            }
            #[inline]
            fn try_lock_shared(&self) -> bool {
                try_read(self, false)
            }
            #[inline]
            unsafe fn unlock_shared(&self) {
                // SAFETY: held shared, as the caller promises.
                release(self, Access::Shared, || unsafe { UnguardedRwLock::unlock_read(self) });
            }
            #[inline]
            fn lock_exclusive(&self) {
                write(self);
            }
            #[inline]
            fn try_lock_exclusive(&self) -> bool {
                let at_once = || acquired(UnguardedRwLock::try_write(self));
                attempt(self, Access::Exclusive, at_once).is_some()
            }
            #[inline]
            unsafe fn unlock_exclusive(&self) {
                // SAFETY: held exclusively, as the caller promises.
                release(self, Access::Exclusive, || unsafe { UnguardedRwLock::unlock_write(self) });
            }
            fn is_locked(&self) -> bool {
                UnguardedRwLock::is_locked(self)
            }
            fn is_locked_exclusive(&self) -> bool {
                Guarded::is_locked_exclusive(self)
            }
        }

        // SAFETY: a fair unlock only releases what the caller holds. Readers are not handed over: the next to be served
        // gets the lock with the last of them in any case.
        unsafe impl<$($generics)*> lock_api::RawRwLockFair for $lock {
            #[inline]
            unsafe fn unlock_shared_fair(&self) {
                // SAFETY: held shared, as the caller promises.
                release(self, Access::Shared, || unsafe { UnguardedRwLock::unlock_read(self) });
            }
            #[inline]
            unsafe fn unlock_exclusive_fair(&self) {
                // SAFETY: held exclusively, as the caller promises.
                release(self, Access::Exclusive, || unsafe { self.unlock_write_fair() });
            }
        }

        // SAFETY: `Guarded` promises that a downgrade is one atomic step. The reader holds the semaphore's word, which is
        // what an unlock without a guard releases if the thread reads by no slot.
        unsafe impl<$($generics)*> lock_api::RawRwLockDowngrade for $lock {
            unsafe fn downgrade(&self) {
                // SAFETY: held exclusively, as the caller promises.
                let _ = unsafe { self.downgrade_to_read() };
                recorded::changes(self.counted(), Role::Write, Role::Read);
            }
        }

        // SAFETY: `UnguardedRwLock` promises that an acquisition that fails leaves nothing held.
        unsafe impl<$($generics)*> lock_api::RawRwLockTimed for $lock {
            type Duration = Duration;
            type Instant = Instant;

            fn try_lock_shared_for(&self, timeout: Duration) -> bool {
                read_in_time(self, Limit::For(timeout), false)
            }
            fn try_lock_shared_until(&self, instant: Instant) -> bool {
                read_in_time(self, Limit::Until(instant), false)
            }
            fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
                write_in_time(self, Limit::For(timeout))
            }
            fn try_lock_exclusive_until(&self, instant: Instant) -> bool {
                write_in_time(self, Limit::Until(instant))
            }
        }

        // SAFETY: a read within a read of the same thread succeeds at once.
        unsafe impl<$($generics)*> lock_api::RawRwLockRecursive for $lock {
            fn lock_shared_recursive(&self) {
                read(self, true);
            }
            fn try_lock_shared_recursive(&self) -> bool {
                try_read(self, true)
            }
        }

        // SAFETY: as above.
        unsafe impl<$($generics)*> lock_api::RawRwLockRecursiveTimed for $lock {
            fn try_lock_shared_recursive_for(&self, timeout: Duration) -> bool {
                read_in_time(self, Limit::For(timeout), true)
            }
            fn try_lock_shared_recursive_until(&self, instant: Instant) -> bool {
                read_in_time(self, Limit::Until(instant), true)
            }
        }

        // SAFETY: `Guarded` promises that there is at most one upgradable holder, beside plain readers only.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgrade for $lock {
            fn lock_upgradable(&self) {
                upgradable(self);
            }
            fn try_lock_upgradable(&self) -> bool {
                try_upgradable(self)
            }
            unsafe fn unlock_upgradable(&self) {
                // SAFETY: held upgradable, as the caller promises.
                release(self, Access::Upgradable, || unsafe { Guarded::unlock_upgradable(self) });
            }
            unsafe fn upgrade(&self) {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { upgrade(self) };
            }
            unsafe fn try_upgrade(&self) -> bool {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { try_upgrade(self) }
            }
        }

        // SAFETY: `Guarded` promises that each downgrade is one atomic step.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgradeDowngrade for $lock {
            unsafe fn downgrade_upgradable(&self) {
                // SAFETY: held upgradable, as the caller promises.
                let _ = unsafe { Guarded::downgrade_upgradable(self) };
            }
            unsafe fn downgrade_to_upgradable(&self) {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { Guarded::downgrade_to_upgradable(self) };
                recorded::changes(self.counted(), Role::Write, Role::Read);
            }
        }

        // SAFETY: `Guarded` promises that the lock is still held upgradable after an upgrade that failed.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgradeTimed for $lock {
            fn try_lock_upgradable_for(&self, timeout: Duration) -> bool {
                upgradable_in_time(self, Limit::For(timeout))
            }
            fn try_lock_upgradable_until(&self, instant: Instant) -> bool {
                upgradable_in_time(self, Limit::Until(instant))
            }
            unsafe fn try_upgrade_for(&self, timeout: Duration) -> bool {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { upgrade_in_time(self, Limit::For(timeout)) }
            }
            unsafe fn try_upgrade_until(&self, instant: Instant) -> bool {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { upgrade_in_time(self, Limit::Until(instant)) }
            }
        }
    };
}

reader_writer!([P: HasQueuePool, B: BiasPolicy] RawRwLock<P, B>, lock_api::GuardNoSend);
reader_writer!([Pol: Policy, P: HasQueuePool, B: ReaderBias] RawRwSem<Pol, P, B>, lock_api::GuardSend);
