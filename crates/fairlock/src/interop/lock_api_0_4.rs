//! The traits of lock_api 0.4, for [`RawMutex`], [`RawRwLock`] and [`RawRwSem`]: for crates that
//! have not moved to 0.5, and for compilers older than it needs.
//!
//! Its guards remember nothing, so each unlock finds out what the thread holds (`unguarded.rs`),
//! which makes a read of [`RawRwLock`] a little slower; and a lock may be used either by this
//! version or by guards that remember, never both. The checks for deadlocks see nothing of what is
//! acquired here; the feature `record` does. There are no fair unlocks of upgradable holds.

use std::time::{Duration, Instant};

use lock_api_04 as lock_api;

use crate::held::{Access, Wanted};
use crate::hold::{Limit, enter, leave, upgrade};
use crate::mutex::RawMutex;
use crate::platform::Platform;
use crate::policy::{BiasPolicy, Policy};
use crate::raw::{RawLock, RawReadWriteLock, RawUnguarded, Refused, Wait};
use crate::recorded::{self, Role};
use crate::rwlock::RawRwLock;
use crate::rwsem::{HasQueuePool, RawRwSem, ReaderBias};

/// These holds are not seen by the checks for deadlocks, so nothing is wanted.
const UNSEEN: Option<Wanted> = None;

#[inline(always)]
fn write<R: RawLock>(lock: &R, wait: Wait) -> bool {
    enter(lock, Access::Exclusive, UNSEEN, wait, |wait| lock.write(wait).then_some(())).is_some()
}

/// # Safety
/// The caller holds the lock exclusively.
#[inline(always)]
unsafe fn unlock_write<R: RawLock>(lock: &R, fair: bool) {
    // SAFETY: held exclusively, as the caller promises.
    leave(lock, Access::Exclusive, || unsafe { lock.unlock_write(fair) });
}

/// A read, if `recursive` past threads that wait.
#[inline(always)]
fn read<R: RawUnguarded>(lock: &R, wait: Wait, recursive: bool) -> bool {
    let read = |wait| match lock.read_unguarded(wait, recursive) {
        Ok(()) => Some(()),
        Err(Refused::Busy | Refused::TimedOut) => None,
        // As guards panic.
        Err(Refused::Full) => {
            panic!("too many readers hold this lock at once: are guards being leaked?")
        }
    };
    enter(lock, Access::Shared, UNSEEN, wait, read).is_some()
}

fn upgradable<R: RawUnguarded>(lock: &R, wait: Wait) -> bool {
    let upgradable = |wait| RawReadWriteLock::upgradable(lock, wait).then_some(());
    enter(lock, Access::Upgradable, UNSEEN, wait, upgradable).is_some()
}

// SAFETY: `RawLock` promises that there is one owner at a time.
unsafe impl<P: Platform> lock_api::RawMutex for RawMutex<P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = Self::NEW;
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        write(self, Wait::ForEver);
    }
    #[inline]
    fn try_lock(&self) -> bool {
        write(self, Wait::Not)
    }
    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the lock is held, as the caller promises.
        unsafe { unlock_write(self, false) };
    }
    fn is_locked(&self) -> bool {
        RawLock::is_locked(self)
    }
}

// SAFETY: `RawLock` promises of a fair unlock, too, that there is one owner at a time.
unsafe impl<P: Platform> lock_api::RawMutexFair for RawMutex<P> {
    #[inline]
    unsafe fn unlock_fair(&self) {
        // SAFETY: the lock is held, as the caller promises.
        unsafe { unlock_write(self, true) };
    }
}

// SAFETY: `RawLock` promises that an acquisition that fails leaves nothing held and no waiter
// queued.
unsafe impl<P: Platform> lock_api::RawMutexTimed for RawMutex<P> {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        write(self, Limit::For(timeout).wait::<P>())
    }
    fn try_lock_until(&self, instant: Instant) -> bool {
        write(self, Limit::Until(instant).wait::<P>())
    }
}

macro_rules! reader_writer {
    ([$($generics:tt)*] $lock:ty, $residence:ty) => {
        // SAFETY: `RawLock` promises that a writer holds the lock alone.
        unsafe impl<$($generics)*> lock_api::RawRwLock for $lock {
            #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
            const INIT: Self = Self::NEW;
            type GuardMarker = $residence;

            #[inline]
            fn lock_shared(&self) {
                read(self, Wait::ForEver, false);
            }
            #[inline]
            fn try_lock_shared(&self) -> bool {
                read(self, Wait::Not, false)
            }
            #[inline]
            unsafe fn unlock_shared(&self) {
                // SAFETY: held shared, as the caller promises.
                leave(self, Access::Shared, || unsafe { self.unlock_unguarded() });
            }
            #[inline]
            fn lock_exclusive(&self) {
                write(self, Wait::ForEver);
            }
            #[inline]
            fn try_lock_exclusive(&self) -> bool {
                write(self, Wait::Not)
            }
            #[inline]
            unsafe fn unlock_exclusive(&self) {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { unlock_write(self, false) };
            }
            fn is_locked(&self) -> bool {
                RawLock::is_locked(self)
            }
            fn is_locked_exclusive(&self) -> bool {
                RawReadWriteLock::is_locked_exclusive(self)
            }
        }

        // SAFETY: a fair unlock only releases what the caller holds. Readers are not handed over:
        // the next to be served gets the lock with the last of them in any case.
        unsafe impl<$($generics)*> lock_api::RawRwLockFair for $lock {
            #[inline]
            unsafe fn unlock_shared_fair(&self) {
                // SAFETY: held shared, as the caller promises.
                leave(self, Access::Shared, || unsafe { self.unlock_unguarded() });
            }
            #[inline]
            unsafe fn unlock_exclusive_fair(&self) {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { unlock_write(self, true) };
            }
        }

        // SAFETY: `RawReadWriteLock` promises that a downgrade is one atomic step. The reader holds
        // the semaphore's word, which is what an unlock without a guard releases if the thread
        // reads by no slot.
        unsafe impl<$($generics)*> lock_api::RawRwLockDowngrade for $lock {
            unsafe fn downgrade(&self) {
                // SAFETY: held exclusively, as the caller promises.
                let _ = unsafe { self.downgrade_to_read() };
                recorded::changes(self.counted(), Role::Write, Role::Read);
            }
        }

        // SAFETY: `RawLock` promises that an acquisition that fails leaves nothing held.
        unsafe impl<$($generics)*> lock_api::RawRwLockTimed for $lock {
            type Duration = Duration;
            type Instant = Instant;

            fn try_lock_shared_for(&self, timeout: Duration) -> bool {
                read(self, Limit::For(timeout).wait::<P>(), false)
            }
            fn try_lock_shared_until(&self, instant: Instant) -> bool {
                read(self, Limit::Until(instant).wait::<P>(), false)
            }
            fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
                write(self, Limit::For(timeout).wait::<P>())
            }
            fn try_lock_exclusive_until(&self, instant: Instant) -> bool {
                write(self, Limit::Until(instant).wait::<P>())
            }
        }

        // SAFETY: a read within a read of the same thread succeeds at once.
        unsafe impl<$($generics)*> lock_api::RawRwLockRecursive for $lock {
            fn lock_shared_recursive(&self) {
                read(self, Wait::ForEver, true);
            }
            fn try_lock_shared_recursive(&self) -> bool {
                read(self, Wait::Not, true)
            }
        }

        // SAFETY: as above.
        unsafe impl<$($generics)*> lock_api::RawRwLockRecursiveTimed for $lock {
            fn try_lock_shared_recursive_for(&self, timeout: Duration) -> bool {
                read(self, Limit::For(timeout).wait::<P>(), true)
            }
            fn try_lock_shared_recursive_until(&self, instant: Instant) -> bool {
                read(self, Limit::Until(instant).wait::<P>(), true)
            }
        }

        // SAFETY: `RawReadWriteLock` promises that there is at most one upgradable holder, next to
        // plain readers only.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgrade for $lock {
            fn lock_upgradable(&self) {
                upgradable(self, Wait::ForEver);
            }
            fn try_lock_upgradable(&self) -> bool {
                upgradable(self, Wait::Not)
            }
            unsafe fn unlock_upgradable(&self) {
                // SAFETY: held upgradable, as the caller promises.
                leave(self, Access::Upgradable, || unsafe { RawReadWriteLock::unlock_upgradable(self, false) });
            }
            unsafe fn upgrade(&self) {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { upgrade(self, UNSEEN, Wait::ForEver) };
            }
            unsafe fn try_upgrade(&self) -> bool {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { upgrade(self, UNSEEN, Wait::Not) }
            }
        }

        // SAFETY: `RawReadWriteLock` promises that each downgrade is one atomic step.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgradeDowngrade for $lock {
            unsafe fn downgrade_upgradable(&self) {
                // SAFETY: held upgradable, as the caller promises.
                let _ = unsafe { RawReadWriteLock::downgrade_upgradable(self) };
            }
            unsafe fn downgrade_to_upgradable(&self) {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { RawReadWriteLock::downgrade_to_upgradable(self) };
                recorded::changes(self.counted(), Role::Write, Role::Read);
            }
        }

        // SAFETY: `RawReadWriteLock` promises that the lock is still held upgradable after an
        // upgrade that failed.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgradeTimed for $lock {
            fn try_lock_upgradable_for(&self, timeout: Duration) -> bool {
                upgradable(self, Limit::For(timeout).wait::<P>())
            }
            fn try_lock_upgradable_until(&self, instant: Instant) -> bool {
                upgradable(self, Limit::Until(instant).wait::<P>())
            }
            unsafe fn try_upgrade_for(&self, timeout: Duration) -> bool {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { upgrade(self, UNSEEN, Limit::For(timeout).wait::<P>()) }
            }
            unsafe fn try_upgrade_until(&self, instant: Instant) -> bool {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { upgrade(self, UNSEEN, Limit::Until(instant).wait::<P>()) }
            }
        }
    };
}

reader_writer!([P: HasQueuePool, B: BiasPolicy] RawRwLock<P, B>, lock_api::GuardNoSend);
reader_writer!([Pol: Policy, P: HasQueuePool, B: ReaderBias] RawRwSem<Pol, P, B>, lock_api::GuardSend);
