//! lock_api's traits for Fairlock's reader-writer locks, written once.
//!
//! A lock says what it does in terms of [`Guarded`]; [`guarded_by_lock_api`] gives it guards: plain, timed,
//! fair, downgraded, upgradable, and the check for recursion of debug builds.

use lock_api::GuardNoSend;

use crate::platform::Platform;

/// Why a debug build panics at a read.
pub(crate) const READ_WITHIN_READ: &str = "this thread holds this lock for reading already: a second \
    blocking read deadlocks as soon as a writer waits in between. Keep the first guard, or use try_read \
    (this check is in debug builds only)";
/// Why a debug build panics at a write.
pub(crate) const WRITE_WITHIN_READ: &str = "this thread holds this lock for reading: a write would wait for \
    that read, and so for itself, for ever. End the read first, or begin with upgradable_read (this check \
    is in debug builds only)";

/// The inert state of an exclusive or upgradable guard.
#[inline(always)]
pub(crate) fn held() -> GuardNoSend {
    GuardNoSend::new()
}

/// A reader-writer lock as its guards use it. Deadlines are moments of [`Platform::now`]; without one an
/// acquisition ends with the lock.
///
/// # Safety
/// A writer is alone; an upgradable holder is the only one and beside plain readers only; acquisitions are
/// Acquire, releases Release, and a downgrade is one atomic step that is a Release. What fails or times
/// out leaves nothing held and nobody queued; an upgrade that does still holds the lock upgradable. The
/// state of a guard is inert, so forgetting it is safe; a lock that is moved or dropped while held has no
/// waiters, as they borrow it.
pub(crate) unsafe trait Guarded {
    type Platform: Platform;
    /// What a read guard remembers.
    type Shared;

    fn read(&self, deadline: Option<u64>) -> Option<Self::Shared>;
    fn read_without_deadline(&self) -> Self::Shared;
    fn try_read(&self) -> Option<Self::Shared>;
    /// # Safety
    /// The caller holds the lock shared, as `shared` says.
    unsafe fn unlock_read(&self, shared: Self::Shared);
    /// # Safety
    /// As [`unlock_read`](Self::unlock_read).
    unsafe fn unlock_read_fair(&self, shared: Self::Shared);

    fn write(&self, deadline: Option<u64>) -> bool;
    fn write_without_deadline(&self);
    fn try_write(&self) -> bool;
    /// # Safety
    /// The caller holds the lock exclusively.
    unsafe fn unlock_write(&self);
    /// # Safety
    /// The caller holds the lock exclusively.
    unsafe fn unlock_write_fair(&self);
    /// # Safety
    /// The caller holds the lock exclusively; afterwards it holds it shared.
    unsafe fn downgrade_to_read(&self) -> Self::Shared;
    /// # Safety
    /// The caller holds the lock exclusively; afterwards it holds it upgradable.
    unsafe fn downgrade_to_upgradable(&self);

    fn upgradable(&self, deadline: Option<u64>) -> bool;
    fn try_upgradable(&self) -> bool;
    /// # Safety
    /// The caller holds the lock upgradable.
    unsafe fn unlock_upgradable(&self);
    /// # Safety
    /// The caller holds the lock upgradable.
    unsafe fn unlock_upgradable_fair(&self);
    /// # Safety
    /// The caller holds the lock upgradable; afterwards it holds it shared.
    unsafe fn downgrade_upgradable(&self) -> Self::Shared;
    /// # Safety
    /// The caller holds the lock upgradable. If this returns true it holds it exclusively, else still
    /// upgradable.
    unsafe fn upgrade(&self, deadline: Option<u64>) -> bool;
    /// # Safety
    /// As [`upgrade`](Self::upgrade).
    unsafe fn try_upgrade(&self) -> bool;

    fn is_locked(&self) -> bool;
    fn is_locked_exclusive(&self) -> bool;

    /// By what the lock is known where recursion is looked for: see [`Platform::check_recursion`].
    fn id(&self) -> *const ();
    /// The calling thread may hold it shared. If it surely does not, recursion is not looked for: a guard
    /// that was forgotten may have been that of another lock, in the same place.
    #[inline(always)]
    fn may_be_read(&self) -> bool {
        true
    }

    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn check_recursion(&self, message: &'static str) {
        if Self::Platform::CHECKS_RECURSION && self.may_be_read() {
            Self::Platform::check_recursion(self.id(), message);
        }
    }
    /// The calling thread now holds the lock shared.
    #[inline(always)]
    fn begin_shared(&self) {
        if Self::Platform::CHECKS_RECURSION {
            Self::Platform::note_shared(self.id());
        }
    }
    /// The calling thread no longer does.
    #[inline(always)]
    fn end_shared(&self) {
        if Self::Platform::CHECKS_RECURSION {
            Self::Platform::forget_shared(self.id());
        }
    }
    #[cfg_attr(debug_assertions, track_caller)]
    fn read_checked(&self, deadline: Option<u64>) -> Option<Self::Shared> {
        self.check_recursion(READ_WITHIN_READ);
        self.read(deadline).inspect(|_| self.begin_shared())
    }
    #[cfg_attr(debug_assertions, track_caller)]
    fn upgradable_checked(&self, deadline: Option<u64>) -> Option<GuardNoSend> {
        self.check_recursion(READ_WITHIN_READ);
        self.upgradable(deadline).then(|| self.begin_upgradable())
    }
    fn begin_upgradable(&self) -> GuardNoSend {
        self.begin_shared();
        held()
    }
    /// The guard's state after an upgrade that succeeded, or did not.
    fn upgraded(&self, upgraded: bool, guard: GuardNoSend) -> Result<GuardNoSend, GuardNoSend> {
        if !upgraded {
            return Err(guard);
        }
        self.end_shared();
        Ok(guard)
    }
}

/// `guarded_by_lock_api!([generics] type, shared)`: lock_api's traits for a type that is [`Guarded`] and whose
/// read guards remember a `shared`.
macro_rules! guarded_by_lock_api {
    ([$($generics:tt)*] $lock:ty, $shared:ty) => {
        // SAFETY: `Guarded`'s promises.
        unsafe impl<$($generics)*> lock_api::RawRwLock for $lock {
            const INIT: Self = Self::NEW;
            type SharedGuard = $shared;
            type ExclusiveGuard = lock_api::GuardNoSend;

            #[inline(always)]
            #[cfg_attr(debug_assertions, track_caller)]
            fn lock_shared(&self) -> Self::SharedGuard {
                self.check_recursion($crate::guarded::READ_WITHIN_READ);
                let shared = Guarded::read_without_deadline(self);
                self.begin_shared();
                shared
            }
            #[inline]
            fn try_lock_shared(&self) -> Option<Self::SharedGuard> {
                Guarded::try_read(self).inspect(|_| self.begin_shared())
            }
            #[inline]
            unsafe fn unlock_shared(&self, shared: Self::SharedGuard) {
                self.end_shared();
                // SAFETY: held shared, as the caller promises.
                unsafe { Guarded::unlock_read(self, shared) };
            }
            #[inline]
            #[cfg_attr(debug_assertions, track_caller)]
            fn lock_exclusive(&self) -> lock_api::GuardNoSend {
                self.check_recursion($crate::guarded::WRITE_WITHIN_READ);
                Guarded::write_without_deadline(self);
                $crate::guarded::held()
            }
            #[inline]
            fn try_lock_exclusive(&self) -> Option<lock_api::GuardNoSend> {
                Guarded::try_write(self).then($crate::guarded::held)
            }
            #[inline]
            unsafe fn unlock_exclusive(&self, _guard: lock_api::GuardNoSend) {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { Guarded::unlock_write(self) };
            }
            fn is_locked(&self) -> bool {
                Guarded::is_locked(self)
            }
            fn is_locked_exclusive(&self) -> bool {
                Guarded::is_locked_exclusive(self)
            }
        }

        // SAFETY: `Guarded`'s promises; the next holder is chosen before the lock is free.
        unsafe impl<$($generics)*> lock_api::RawRwLockFair for $lock {
            #[inline]
            unsafe fn unlock_shared_fair(&self, shared: Self::SharedGuard) {
                self.end_shared();
                // SAFETY: held shared, as the caller promises.
                unsafe { Guarded::unlock_read_fair(self, shared) };
            }
            #[inline]
            unsafe fn unlock_exclusive_fair(&self, _guard: lock_api::GuardNoSend) {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { Guarded::unlock_write_fair(self) };
            }
        }

        // SAFETY: `Guarded`'s promises: one atomic step, a Release.
        unsafe impl<$($generics)*> lock_api::RawRwLockDowngrade for $lock {
            unsafe fn downgrade(&self, _guard: lock_api::GuardNoSend) -> Self::SharedGuard {
                // SAFETY: held exclusively, as the caller promises.
                let shared = unsafe { Guarded::downgrade_to_read(self) };
                self.begin_shared();
                shared
            }
        }

        // SAFETY: `Guarded`'s promises: failing leaves nothing held and nobody queued.
        unsafe impl<$($generics)*> lock_api::RawRwLockTimed for $lock {
            type Duration = std::time::Duration;
            type Instant = std::time::Instant;

            #[cfg_attr(debug_assertions, track_caller)]
            fn try_lock_shared_for(&self, timeout: Self::Duration) -> Option<Self::SharedGuard> {
                self.read_checked($crate::platform::after::<<Self as Guarded>::Platform>(timeout))
            }
            #[cfg_attr(debug_assertions, track_caller)]
            fn try_lock_shared_until(&self, instant: Self::Instant) -> Option<Self::SharedGuard> {
                self.read_checked($crate::platform::until::<<Self as Guarded>::Platform>(instant))
            }
            fn try_lock_exclusive_for(
                &self,
                timeout: Self::Duration,
            ) -> Option<lock_api::GuardNoSend> {
                let deadline = $crate::platform::after::<<Self as Guarded>::Platform>(timeout);
                Guarded::write(self, deadline).then($crate::guarded::held)
            }
            fn try_lock_exclusive_until(
                &self,
                instant: Self::Instant,
            ) -> Option<lock_api::GuardNoSend> {
                let deadline = $crate::platform::until::<<Self as Guarded>::Platform>(instant);
                Guarded::write(self, deadline).then($crate::guarded::held)
            }
        }

        // SAFETY: `Guarded`'s promises on upgradable holders.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgrade for $lock {
            type UpgradableGuard = lock_api::GuardNoSend;

            #[cfg_attr(debug_assertions, track_caller)]
            fn lock_upgradable(&self) -> lock_api::GuardNoSend {
                self.upgradable_checked(None).expect("without a deadline a wait ends with the lock")
            }
            fn try_lock_upgradable(&self) -> Option<lock_api::GuardNoSend> {
                Guarded::try_upgradable(self).then(|| self.begin_upgradable())
            }
            unsafe fn unlock_upgradable(&self, _guard: lock_api::GuardNoSend) {
                self.end_shared();
                // SAFETY: held upgradable, as the caller promises.
                unsafe { Guarded::unlock_upgradable(self) };
            }
            unsafe fn upgrade(&self, guard: lock_api::GuardNoSend) -> lock_api::GuardNoSend {
                // SAFETY: held upgradable, as the caller promises.
                let upgraded = unsafe { Guarded::upgrade(self, None) };
                self.upgraded(upgraded, guard).unwrap_or_else(|guard| guard)
            }
            unsafe fn try_upgrade(
                &self,
                guard: lock_api::GuardNoSend,
            ) -> Result<lock_api::GuardNoSend, lock_api::GuardNoSend> {
                // SAFETY: held upgradable, as the caller promises.
                let upgraded = unsafe { Guarded::try_upgrade(self) };
                self.upgraded(upgraded, guard)
            }
        }

        // SAFETY: as for the plain fair unlock.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgradeFair for $lock {
            unsafe fn unlock_upgradable_fair(&self, _guard: lock_api::GuardNoSend) {
                self.end_shared();
                // SAFETY: held upgradable, as the caller promises.
                unsafe { Guarded::unlock_upgradable_fair(self) };
            }
        }

        // SAFETY: `Guarded`'s promises: one atomic step each, a Release.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgradeDowngrade for $lock {
            unsafe fn downgrade_upgradable(
                &self,
                _guard: lock_api::GuardNoSend,
            ) -> Self::SharedGuard {
                // SAFETY: held upgradable, as the caller promises.
                unsafe { Guarded::downgrade_upgradable(self) }
            }
            unsafe fn downgrade_to_upgradable(
                &self,
                _guard: lock_api::GuardNoSend,
            ) -> lock_api::GuardNoSend {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { Guarded::downgrade_to_upgradable(self) };
                self.begin_upgradable()
            }
        }

        // SAFETY: `Guarded`'s promises: a failed upgrade still holds the lock upgradable.
        unsafe impl<$($generics)*> lock_api::RawRwLockUpgradeTimed for $lock {
            #[cfg_attr(debug_assertions, track_caller)]
            fn try_lock_upgradable_for(
                &self,
                timeout: Self::Duration,
            ) -> Option<lock_api::GuardNoSend> {
                let deadline = $crate::platform::after::<<Self as Guarded>::Platform>(timeout);
                self.upgradable_checked(deadline)
            }
            #[cfg_attr(debug_assertions, track_caller)]
            fn try_lock_upgradable_until(
                &self,
                instant: Self::Instant,
            ) -> Option<lock_api::GuardNoSend> {
                let deadline = $crate::platform::until::<<Self as Guarded>::Platform>(instant);
                self.upgradable_checked(deadline)
            }
            unsafe fn try_upgrade_for(
                &self,
                guard: lock_api::GuardNoSend,
                timeout: Self::Duration,
            ) -> Result<lock_api::GuardNoSend, lock_api::GuardNoSend> {
                let deadline = $crate::platform::after::<<Self as Guarded>::Platform>(timeout);
                // SAFETY: held upgradable, as the caller promises.
                let upgraded = unsafe { Guarded::upgrade(self, deadline) };
                self.upgraded(upgraded, guard)
            }
            unsafe fn try_upgrade_until(
                &self,
                guard: lock_api::GuardNoSend,
                instant: Self::Instant,
            ) -> Result<lock_api::GuardNoSend, lock_api::GuardNoSend> {
                let deadline = $crate::platform::until::<<Self as Guarded>::Platform>(instant);
                // SAFETY: held upgradable, as the caller promises.
                let upgraded = unsafe { Guarded::upgrade(self, deadline) };
                self.upgraded(upgraded, guard)
            }
        }
    };
}

pub(crate) use guarded_by_lock_api;
