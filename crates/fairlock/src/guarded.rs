//! What guards need of a lock: the traits [`Exclusive`] and [`Guarded`], and what a guard remembers of its hold.
//!
//! Fairlock's own guards (`guard/`) and lock_api's are made of these. Every acquisition passes through here once, and
//! so do the checks for deadlocks (`held.rs`). Users cannot name these traits.

use core::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::held::{Access, Holding};
use crate::platform::{Platform, after, until};

/// Part of a guard that only the thread may release that acquired the lock: it cannot be sent to another. An
/// [`RwSem`](crate::RwSem)'s guards can.
pub struct GuardStaysOnItsThread(PhantomData<*mut ()>);

// SAFETY: it has neither data nor functions.
unsafe impl Sync for GuardStaysOnItsThread {}

/// Part of a guard that any thread may release.
pub struct GuardMayChangeThreads(());

/// Which of the two a guard has.
pub trait Residence {
    /// One of it.
    const NEW: Self;
}

impl Residence for GuardStaysOnItsThread {
    const NEW: Self = GuardStaysOnItsThread(PhantomData);
}

impl Residence for GuardMayChangeThreads {
    const NEW: Self = GuardMayChangeThreads(());
}

type HoldOf<R> = <<R as Exclusive>::Platform as Platform>::Hold;

/// A lock that one thread can hold exclusively. Deadlines are moments of [`Platform::now`]; without one, an
/// acquisition ends only when the lock is held.
///
/// # Safety
/// An implementation promises:
/// * Whoever holds the lock exclusively holds it alone.
/// * Acquisitions are Acquire, releases Release.
/// * An acquisition that fails or times out leaves nothing held and nobody queued.
/// * Forgetting a hold is harmless. A lock that is moved or dropped while held has no waiters, as they borrow it.
/// * If `Residence` can be sent to another thread, that thread may release the lock.
pub unsafe trait Exclusive {
    type Platform: Platform;
    /// Whether guards may be sent to another thread.
    type Residence: Residence;

    fn write(&self, deadline: Option<u64>) -> bool;
    fn write_without_deadline(&self);
    fn try_write(&self) -> bool;
    /// # Safety
    /// The caller holds the lock exclusively.
    unsafe fn unlock_write(&self);
    /// # Safety
    /// The caller holds the lock exclusively.
    unsafe fn unlock_write_fair(&self);

    fn is_locked(&self) -> bool;

    /// What identifies the lock to the checks for deadlocks: its address, or an odd number that no other lock ever has.
    fn id(&self) -> *const ();
    /// Whether the calling thread may hold the lock. If it certainly does not, nothing is checked: a guard that was
    /// forgotten may have been that of another lock, at the same address.
    fn may_be_held(&self) -> bool;
}

/// A reader-writer lock.
///
/// # Safety
/// What [`Exclusive`] asks for, and:
/// * There is at most one upgradable holder, beside plain readers only.
/// * A downgrade is one atomic step that is a Release. After an upgrade that fails or times out, the lock is still
///   held upgradable.
pub unsafe trait Guarded: Exclusive {
    /// What a release needs to know of a shared hold.
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
    /// What a release needs to know of one of the calling thread's shared holds.
    ///
    /// # Safety
    /// The calling thread holds the lock shared.
    unsafe fn recover_shared(&self) -> Self::Shared;

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

    fn is_locked_exclusive(&self) -> bool;
}

/// A reader-writer lock that a thread may read although it reads it already.
///
/// # Safety
/// As [`Guarded`]. Such a read succeeds at once if the calling thread reads the lock.
pub unsafe trait ReadRecursive: Guarded {
    fn read_recursive(&self, deadline: Option<u64>) -> Option<Self::Shared>;
    fn try_read_recursive(&self) -> Option<Self::Shared>;
}

/// When an acquisition gives up.
#[derive(Clone, Copy)]
pub enum Limit {
    Never,
    For(Duration),
    Until(Instant),
}

impl Limit {
    /// As a moment of the platform's clock; none if it lies beyond that clock's end.
    #[inline(always)]
    pub(crate) fn deadline<P: Platform>(self) -> Option<u64> {
        match self {
            Limit::Never => None,
            Limit::For(timeout) => after::<P>(timeout),
            Limit::Until(instant) => until::<P>(instant),
        }
    }
}

/// A shared hold of a lock.
pub struct SharedHold<R: Guarded> {
    shared: R::Shared,
    hold: HoldOf<R>,
    _residence: R::Residence,
}

/// An exclusive hold of a lock.
pub struct ExclusiveHold<R: Exclusive> {
    hold: HoldOf<R>,
    _residence: R::Residence,
}

/// An upgradable hold of a lock.
pub struct UpgradableHold<R: Guarded> {
    hold: HoldOf<R>,
    _residence: R::Residence,
}

/// Before a wait for a lock.
#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
fn check<R: Exclusive + ?Sized>(lock: &R, access: Access, recursive: bool) {
    if HoldOf::<R>::CHECKS && lock.may_be_held() {
        HoldOf::<R>::check(lock.id(), access, recursive);
    }
}

/// Acquires a lock by `at_once`; if that fails, by `wait`, which is shown to those that look for deadlocks.
#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
fn acquire<R: Exclusive + ?Sized, H>(
    lock: &R,
    access: Access,
    at_once: impl FnOnce() -> Option<H>,
    wait: impl FnOnce() -> Option<H>,
) -> Option<H> {
    if !HoldOf::<R>::SHOWS_WAITS {
        return wait();
    }
    at_once().or_else(|| {
        let _waiting = HoldOf::<R>::waiting(lock.id(), access);
        wait()
    })
}

#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
fn begin<R: Exclusive + ?Sized>(lock: &R, access: Access) -> HoldOf<R> {
    if HoldOf::<R>::CHECKS { HoldOf::<R>::begin(lock.id(), access) } else { HoldOf::<R>::NONE }
}

impl<R: Exclusive> ExclusiveHold<R> {
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn new(lock: &R) -> Self {
        ExclusiveHold { hold: begin(lock, Access::Exclusive), _residence: R::Residence::NEW }
    }

    /// Waits for as long as it takes.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn acquire(lock: &R) -> Self {
        check(lock, Access::Exclusive, false);
        let at_once = || lock.try_write().then_some(());
        let wait = || {
            lock.write_without_deadline();
            Some(())
        };
        let _ = acquire(lock, Access::Exclusive, at_once, wait);
        Self::new(lock)
    }

    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn try_acquire(lock: &R) -> Option<Self> {
        if lock.try_write() { Some(Self::new(lock)) } else { None }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn acquire_within(lock: &R, limit: Limit) -> Option<Self> {
        let deadline = limit.deadline::<R::Platform>();
        let at_once = || lock.try_write().then_some(());
        acquire(lock, Access::Exclusive, at_once, || lock.write(deadline).then_some(()))?;
        Some(Self::new(lock))
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    #[inline(always)]
    pub(crate) unsafe fn release(self, lock: &R) {
        self.hold.end();
        // SAFETY: held exclusively, as the caller promises.
        unsafe { lock.unlock_write() };
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    #[inline]
    pub(crate) unsafe fn release_fair(self, lock: &R) {
        self.hold.end();
        // SAFETY: held exclusively, as the caller promises.
        unsafe { lock.unlock_write_fair() };
    }

    /// A hold that was forgotten. The checks for deadlocks go on counting the first one.
    ///
    /// # Safety
    /// The caller has forgotten an exclusive hold of a lock, and uses this as that hold. If `Residence` must not
    /// leave its thread, this is that thread.
    pub(crate) unsafe fn recover(lock: &R) -> Self {
        ExclusiveHold { hold: HoldOf::<R>::recover(lock.id()), _residence: R::Residence::NEW }
    }
}

impl<R: Guarded> ExclusiveHold<R> {
    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn downgrade(mut self, lock: &R) -> SharedHold<R> {
        self.hold.change(Access::Shared);
        // SAFETY: held exclusively, as the caller promises.
        let shared = unsafe { lock.downgrade_to_read() };
        SharedHold { shared, hold: self.hold, _residence: R::Residence::NEW }
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn downgrade_to_upgradable(mut self, lock: &R) -> UpgradableHold<R> {
        self.hold.change(Access::Upgradable);
        // SAFETY: held exclusively, as the caller promises.
        unsafe { lock.downgrade_to_upgradable() };
        UpgradableHold { hold: self.hold, _residence: R::Residence::NEW }
    }
}

impl<R: Guarded> SharedHold<R> {
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn new(lock: &R, shared: R::Shared) -> Self {
        SharedHold { shared, hold: begin(lock, Access::Shared), _residence: R::Residence::NEW }
    }

    /// Waits for as long as it takes.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn acquire(lock: &R) -> Self {
        check(lock, Access::Shared, false);
        let shared = if HoldOf::<R>::SHOWS_WAITS {
            let wait = || Some(lock.read_without_deadline());
            acquire(lock, Access::Shared, || lock.try_read(), wait)
                .expect("without a deadline a wait ends with the lock")
        } else {
            lock.read_without_deadline()
        };
        Self::new(lock, shared)
    }

    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn try_acquire(lock: &R) -> Option<Self> {
        let shared = lock.try_read()?;
        Some(Self::new(lock, shared))
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn acquire_within(lock: &R, limit: Limit) -> Option<Self> {
        check(lock, Access::Shared, false);
        let deadline = limit.deadline::<R::Platform>();
        let at_once = || lock.try_read();
        let shared = acquire(lock, Access::Shared, at_once, || lock.read(deadline))?;
        Some(Self::new(lock, shared))
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    #[inline(always)]
    pub(crate) unsafe fn release(self, lock: &R) {
        self.hold.end();
        // SAFETY: held shared, as the caller promises.
        unsafe { lock.unlock_read(self.shared) };
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    #[inline]
    pub(crate) unsafe fn release_fair(self, lock: &R) {
        self.hold.end();
        // SAFETY: held shared, as the caller promises.
        unsafe { lock.unlock_read_fair(self.shared) };
    }

    /// A hold that was forgotten.
    ///
    /// # Safety
    /// The calling thread has forgotten a shared hold of the lock, and uses this as that hold.
    pub(crate) unsafe fn recover(lock: &R) -> Self {
        // SAFETY: held shared by this thread, as the caller promises.
        let shared = unsafe { lock.recover_shared() };
        SharedHold { shared, hold: HoldOf::<R>::recover(lock.id()), _residence: R::Residence::NEW }
    }
}

impl<R: ReadRecursive> SharedHold<R> {
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn acquire_recursively(lock: &R, limit: Limit) -> Option<Self> {
        check(lock, Access::Shared, true);
        let deadline = limit.deadline::<R::Platform>();
        let at_once = || lock.try_read_recursive();
        let shared = acquire(lock, Access::Shared, at_once, || lock.read_recursive(deadline))?;
        Some(Self::new(lock, shared))
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn try_acquire_recursively(lock: &R) -> Option<Self> {
        let shared = lock.try_read_recursive()?;
        Some(Self::new(lock, shared))
    }
}

impl<R: Guarded> UpgradableHold<R> {
    #[cfg_attr(debug_assertions, track_caller)]
    fn new(lock: &R) -> Self {
        UpgradableHold { hold: begin(lock, Access::Upgradable), _residence: R::Residence::NEW }
    }

    /// Waits for as long as it takes.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn acquire(lock: &R) -> Self {
        Self::acquire_within(lock, Limit::Never)
            .expect("without a deadline a wait ends with the lock")
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn try_acquire(lock: &R) -> Option<Self> {
        if lock.try_upgradable() { Some(Self::new(lock)) } else { None }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn acquire_within(lock: &R, limit: Limit) -> Option<Self> {
        check(lock, Access::Upgradable, false);
        let deadline = limit.deadline::<R::Platform>();
        let at_once = || lock.try_upgradable().then_some(());
        acquire(lock, Access::Upgradable, at_once, || lock.upgradable(deadline).then_some(()))?;
        Some(Self::new(lock))
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn release(self, lock: &R) {
        self.hold.end();
        // SAFETY: held upgradable, as the caller promises.
        unsafe { lock.unlock_upgradable() };
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn release_fair(self, lock: &R) {
        self.hold.end();
        // SAFETY: held upgradable, as the caller promises.
        unsafe { lock.unlock_upgradable_fair() };
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn downgrade(mut self, lock: &R) -> SharedHold<R> {
        self.hold.change(Access::Shared);
        // SAFETY: held upgradable, as the caller promises.
        let shared = unsafe { lock.downgrade_upgradable() };
        SharedHold { shared, hold: self.hold, _residence: R::Residence::NEW }
    }

    /// Before an [`upgrade`](Self::upgrade), while the guard still has its hold.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn check_upgrade(lock: &R) {
        check(lock, Access::Exclusive, true);
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn upgrade(self, lock: &R, limit: Limit) -> Result<ExclusiveHold<R>, Self> {
        let deadline = limit.deadline::<R::Platform>();
        // SAFETY: held upgradable, as the caller promises.
        let at_once = || unsafe { lock.try_upgrade() }.then_some(());
        // SAFETY: as above.
        let wait = || unsafe { lock.upgrade(deadline) }.then_some(());
        let upgraded = acquire(lock, Access::Exclusive, at_once, wait).is_some();
        self.upgraded(upgraded)
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn try_upgrade(self, lock: &R) -> Result<ExclusiveHold<R>, Self> {
        // SAFETY: held upgradable, as the caller promises.
        let upgraded = unsafe { lock.try_upgrade() };
        self.upgraded(upgraded)
    }

    fn upgraded(mut self, upgraded: bool) -> Result<ExclusiveHold<R>, Self> {
        if !upgraded {
            return Err(self);
        }
        self.hold.change(Access::Exclusive);
        Ok(ExclusiveHold { hold: self.hold, _residence: R::Residence::NEW })
    }

    /// A hold that was forgotten.
    ///
    /// # Safety
    /// The caller has forgotten an upgradable hold of a lock, and uses this as that hold. If `Residence` must not
    /// leave its thread, this is that thread.
    pub(crate) unsafe fn recover(lock: &R) -> Self {
        UpgradableHold { hold: HoldOf::<R>::recover(lock.id()), _residence: R::Residence::NEW }
    }
}
