//! What guards need of a lock: the traits [`Exclusive`] and [`Guarded`], and what a guard remembers of its hold.
//!
//! Fairlock's own guards (`guard/`) and lock_api's are made of these. Every acquisition passes through here once, and
//! so do the checks for deadlocks (`held/`) and what is recorded of operations (`recorded/`). Users cannot name these traits.

use core::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::held::{Access, Holding, Lock, Wanted};
use crate::platform::{Platform, after, until};
use crate::recorded::{self, Acquisition, CountedLock, Patience, Release, Role};
use core::any::type_name;

/// Marks a guard that has to be dropped by the thread that acquired the lock: it cannot be sent to another. With the
/// feature `send_guard`, guards of an [`RwSem`](crate::RwSem) can.
pub struct GuardStaysOnItsThread(PhantomData<*mut ()>);

// SAFETY: it has neither data nor functions.
unsafe impl Sync for GuardStaysOnItsThread {}

/// Marks a guard that any thread may drop.
pub struct GuardMayChangeThreads(());

/// Which of the two a guard has.
pub trait Residence {
    /// Whether the guard's hold is that of the thread that acquired the lock. If it is not, the checks for deadlocks
    /// know nothing of it.
    const IS_THE_THREADS: bool;
    /// One of it.
    const NEW: Self;
}

impl Residence for GuardStaysOnItsThread {
    const IS_THE_THREADS: bool = true;
    const NEW: Self = GuardStaysOnItsThread(PhantomData);
}

impl Residence for GuardMayChangeThreads {
    const IS_THE_THREADS: bool = false;
    const NEW: Self = GuardMayChangeThreads(());
}

type HoldOf<R> = <<R as Exclusive>::Platform as Platform>::Hold;

/// The field of a lock by which the checks for deadlocks know it. It takes no room where nothing is checked.
pub(crate) type IdentityOf<P> = <<P as Platform>::Hold as Holding>::Identity;

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

    /// What a thread wants that wants to hold the lock exclusively.
    const WANTED: Wanted;
    /// What identifies the lock to the checks for deadlocks: see [`Lock::new`].
    fn id(&self) -> *const ();

    /// What counts the lock's operations; none where they are not counted.
    #[inline(always)]
    fn counted(&self) -> Option<&CountedLock> {
        None
    }

    /// Whether a thread that has to wait now waits for a writer, as far as that can be told.
    #[inline]
    fn has_writer(&self) -> bool {
        true
    }
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
    For(Duration),
    Until(Instant),
}

impl Limit {
    /// As a moment of the platform's clock; none if it lies beyond that clock's end.
    #[inline(always)]
    pub(crate) fn deadline<P: Platform>(self) -> Option<u64> {
        match self {
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

/// The lock as the checks for deadlocks know it.
#[inline(always)]
fn named<R: Exclusive>(lock: &R) -> Lock {
    Lock::new(lock.id(), type_name::<R>)
}

/// Before an acquisition that may wait for ever. One with a limit ends, so it is neither checked nor shown to those that
/// look for deadlocks.
#[inline(always)]
#[track_caller]
fn check<R: Exclusive>(lock: &R, wanted: Wanted) {
    if HoldOf::<R>::CHECKS && R::Residence::IS_THE_THREADS {
        HoldOf::<R>::check(named(lock), wanted);
    }
}

/// As [`check`], before `hold` is released, after which its thread will acquire the lock again.
#[inline(always)]
#[track_caller]
fn check_return<R: Exclusive>(lock: &R, hold: &HoldOf<R>, wanted: Wanted) {
    if HoldOf::<R>::CHECKS && R::Residence::IS_THE_THREADS {
        hold.check_return(named(lock), wanted);
    }
}

/// Acquires a lock that is worth any wait: by `at_once`, or else by `wait`, which those see that look for deadlocks or
/// record. Where nobody does, `wait` alone does both in fewer steps.
#[inline(always)]
#[track_caller]
fn acquire<R: Exclusive, H>(
    lock: &R,
    wanted: Wanted,
    at_once: impl FnOnce() -> Option<H>,
    wait: impl FnOnce() -> H,
) -> H {
    let acquisition = Acquisition::begins(lock.counted(), role(wanted.access()), Patience::Waits);
    if !HoldOf::<R>::CHECKS && acquisition.is_none() {
        return wait();
    }
    HoldOf::<R>::ask(named(lock), wanted);
    let hold = match (at_once(), &acquisition) {
        (Some(hold), _) => hold,
        (None, acquisition) => {
            let _waiting = HoldOf::<R>::waiting(named(lock), wanted);
            match acquisition {
                None => wait(),
                Some(acquisition) => acquisition
                    .waits(lock.has_writer(), || Some(wait()))
                    .expect("a wait without a limit ends with the lock"),
            }
        }
    };
    if let Some(acquisition) = acquisition {
        acquisition.ends(true);
    }
    hold
}

/// Acquires a lock that the checks for deadlocks need not know of: by `at_once`, or else by `wait`. Where nobody records,
/// `wait` alone does both.
#[inline(always)]
pub(crate) fn acquire_unchecked<R: Exclusive, H>(
    lock: &R,
    access: Access,
    patience: Patience,
    at_once: impl FnOnce() -> Option<H>,
    wait: impl FnOnce() -> Option<H>,
) -> Option<H> {
    let Some(acquisition) = Acquisition::begins(lock.counted(), role(access), patience) else {
        return wait();
    };
    let hold = at_once().or_else(|| acquisition.waits(lock.has_writer(), wait));
    acquisition.ends(hold.is_some());
    hold
}

/// Acquires a lock before a deadline: by `at_once`, or else by `wait`.
#[inline(always)]
fn acquire_in_time<R: Exclusive, H>(
    lock: &R,
    access: Access,
    at_once: impl FnOnce() -> Option<H>,
    wait: impl FnOnce() -> Option<H>,
) -> Option<H> {
    acquire_unchecked(lock, access, Patience::Timed, at_once, wait)
}

/// Acquires a lock by `at_once` or not at all.
#[inline(always)]
pub(crate) fn attempt<R: Exclusive, H>(
    lock: &R,
    access: Access,
    at_once: impl FnOnce() -> Option<H>,
) -> Option<H> {
    let acquisition = Acquisition::begins(lock.counted(), role(access), Patience::Tries);
    let hold = at_once();
    if let Some(acquisition) = acquisition {
        acquisition.ends(hold.is_some());
    }
    hold
}

/// Releases a lock that was held like this.
#[inline(always)]
pub(crate) fn release<R: Exclusive>(lock: &R, access: Access, unlock: impl FnOnce()) {
    let release = Release::begins(lock.counted(), role(access));
    unlock();
    if let Some(release) = release {
        release.ends();
    }
}

/// Before an upgrade. It is recorded as a release of the read, and as a request to write. If that is refused, the read
/// is acquired again.
#[inline(always)]
pub(crate) fn begins_to_upgrade<R: Exclusive>(lock: &R) {
    release(lock, Access::Upgradable, || ());
}

/// How a hold is recorded. An upgradable one is a read: others read beside it.
#[inline(always)]
fn role(access: Access) -> Role {
    match access {
        Access::Shared | Access::Upgradable => Role::Read,
        Access::Exclusive => Role::Write,
    }
}

#[inline(always)]
#[track_caller]
fn begin<R: Exclusive>(lock: &R, access: Access) -> HoldOf<R> {
    // Where nothing is checked, the lock needs no identity.
    if !HoldOf::<R>::CHECKS || !R::Residence::IS_THE_THREADS {
        return HoldOf::<R>::NONE;
    }
    HoldOf::<R>::begin(named(lock), access)
}

/// As [`begin`], for a hold of which the checks know already.
#[inline(always)]
fn recover<R: Exclusive>(lock: &R, access: Access) -> HoldOf<R> {
    if !HoldOf::<R>::CHECKS || !R::Residence::IS_THE_THREADS {
        return HoldOf::<R>::NONE;
    }
    HoldOf::<R>::recover(named(lock), access)
}

impl<R: Exclusive> ExclusiveHold<R> {
    /// Before this hold is released for a while.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_return(&self, lock: &R) {
        check_return(lock, &self.hold, R::WANTED);
    }

    #[inline(always)]
    #[track_caller]
    fn new(lock: &R) -> Self {
        ExclusiveHold { hold: begin(lock, Access::Exclusive), _residence: R::Residence::NEW }
    }

    /// Waits for as long as it takes.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn acquire(lock: &R) -> Self {
        check(lock, R::WANTED);
        let at_once = || lock.try_write().then_some(());
        acquire(lock, R::WANTED, at_once, || lock.write_without_deadline());
        Self::new(lock)
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn try_acquire(lock: &R) -> Option<Self> {
        attempt(lock, Access::Exclusive, || lock.try_write().then_some(()))?;
        Some(Self::new(lock))
    }

    #[track_caller]
    pub(crate) fn acquire_within(lock: &R, limit: Limit) -> Option<Self> {
        Self::acquire_until(lock, limit.deadline::<R::Platform>())
    }

    /// Until this moment of the platform's clock; for as long as it takes if there is none.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn acquire_until(lock: &R, deadline: Option<u64>) -> Option<Self> {
        if deadline.is_none() {
            return Some(Self::acquire(lock));
        }
        let at_once = || lock.try_write().then_some(());
        let wait = || lock.write(deadline).then_some(());
        acquire_in_time(lock, Access::Exclusive, at_once, wait)?;
        Some(Self::new(lock))
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    #[inline(always)]
    pub(crate) unsafe fn release(self, lock: &R) {
        self.hold.end();
        // SAFETY: held exclusively, as the caller promises.
        release(lock, Access::Exclusive, || unsafe { lock.unlock_write() });
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    #[inline]
    pub(crate) unsafe fn release_fair(self, lock: &R) {
        self.hold.end();
        // SAFETY: held exclusively, as the caller promises.
        release(lock, Access::Exclusive, || unsafe { lock.unlock_write_fair() });
    }

    /// A hold that was forgotten. The checks for deadlocks go on counting the first one.
    ///
    /// # Safety
    /// The caller has forgotten an exclusive hold of a lock, and uses this as that hold. If `Residence` must not
    /// leave its thread, this is that thread.
    #[inline(always)]
    pub(crate) unsafe fn recover(lock: &R) -> Self {
        ExclusiveHold { hold: recover(lock, Access::Exclusive), _residence: R::Residence::NEW }
    }
}

impl<R: Guarded> ExclusiveHold<R> {
    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn downgrade(mut self, lock: &R) -> SharedHold<R> {
        self.hold.change(Access::Shared);
        // SAFETY: held exclusively, as the caller promises.
        let shared = unsafe { lock.downgrade_to_read() };
        recorded::changes(lock.counted(), Role::Write, Role::Read);
        SharedHold { shared, hold: self.hold, _residence: R::Residence::NEW }
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn downgrade_to_upgradable(mut self, lock: &R) -> UpgradableHold<R> {
        self.hold.change(Access::Upgradable);
        // SAFETY: held exclusively, as the caller promises.
        unsafe { lock.downgrade_to_upgradable() };
        recorded::changes(lock.counted(), Role::Write, Role::Read);
        UpgradableHold { hold: self.hold, _residence: R::Residence::NEW }
    }
}

impl<R: Guarded> SharedHold<R> {
    /// Before this hold is released for a while.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_return(&self, lock: &R) {
        check_return(lock, &self.hold, Wanted::Read);
    }

    #[inline(always)]
    #[track_caller]
    fn new(lock: &R, shared: R::Shared) -> Self {
        SharedHold { shared, hold: begin(lock, Access::Shared), _residence: R::Residence::NEW }
    }

    /// Waits for as long as it takes.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn acquire(lock: &R) -> Self {
        check(lock, Wanted::Read);
        let at_once = || lock.try_read();
        let shared = acquire(lock, Wanted::Read, at_once, || lock.read_without_deadline());
        Self::new(lock, shared)
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn try_acquire(lock: &R) -> Option<Self> {
        let shared = attempt(lock, Access::Shared, || lock.try_read())?;
        Some(Self::new(lock, shared))
    }

    #[track_caller]
    pub(crate) fn acquire_within(lock: &R, limit: Limit) -> Option<Self> {
        match limit.deadline::<R::Platform>() {
            None => Some(Self::acquire(lock)),
            deadline => {
                let wait = || lock.read(deadline);
                let shared = acquire_in_time(lock, Access::Shared, || lock.try_read(), wait)?;
                Some(Self::new(lock, shared))
            }
        }
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    #[inline(always)]
    pub(crate) unsafe fn release(self, lock: &R) {
        self.hold.end();
        // SAFETY: held shared, as the caller promises.
        release(lock, Access::Shared, || unsafe { lock.unlock_read(self.shared) });
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    #[inline]
    pub(crate) unsafe fn release_fair(self, lock: &R) {
        self.hold.end();
        // SAFETY: held shared, as the caller promises.
        release(lock, Access::Shared, || unsafe { lock.unlock_read_fair(self.shared) });
    }

    /// A hold that was forgotten.
    ///
    /// # Safety
    /// The calling thread has forgotten a shared hold of the lock, and uses this as that hold.
    pub(crate) unsafe fn recover(lock: &R) -> Self {
        // SAFETY: held shared by this thread, as the caller promises.
        let shared = unsafe { lock.recover_shared() };
        SharedHold { shared, hold: recover(lock, Access::Shared), _residence: R::Residence::NEW }
    }
}

impl<R: ReadRecursive> SharedHold<R> {
    #[track_caller]
    pub(crate) fn acquire_recursively(lock: &R) -> Self {
        check(lock, Wanted::RecursiveRead);
        let at_once = || lock.try_read_recursive();
        let shared = acquire(lock, Wanted::RecursiveRead, at_once, || {
            lock.read_recursive(None).expect("without a deadline a wait ends with the lock")
        });
        Self::new(lock, shared)
    }

    #[track_caller]
    pub(crate) fn acquire_recursively_within(lock: &R, limit: Limit) -> Option<Self> {
        match limit.deadline::<R::Platform>() {
            None => Some(Self::acquire_recursively(lock)),
            deadline => {
                let at_once = || lock.try_read_recursive();
                let wait = || lock.read_recursive(deadline);
                let shared = acquire_in_time(lock, Access::Shared, at_once, wait)?;
                Some(Self::new(lock, shared))
            }
        }
    }

    #[track_caller]
    pub(crate) fn try_acquire_recursively(lock: &R) -> Option<Self> {
        let shared = attempt(lock, Access::Shared, || lock.try_read_recursive())?;
        Some(Self::new(lock, shared))
    }
}

impl<R: Guarded> UpgradableHold<R> {
    /// Before this hold is released for a while.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_return(&self, lock: &R) {
        check_return(lock, &self.hold, Wanted::UpgradableRead);
    }

    #[track_caller]
    fn new(lock: &R) -> Self {
        UpgradableHold { hold: begin(lock, Access::Upgradable), _residence: R::Residence::NEW }
    }

    #[track_caller]
    pub(crate) fn try_acquire(lock: &R) -> Option<Self> {
        attempt(lock, Access::Upgradable, || lock.try_upgradable().then_some(()))?;
        Some(Self::new(lock))
    }

    /// Waits for as long as it takes.
    #[track_caller]
    pub(crate) fn acquire(lock: &R) -> Self {
        check(lock, Wanted::UpgradableRead);
        let at_once = || lock.try_upgradable().then_some(());
        acquire(lock, Wanted::UpgradableRead, at_once, || {
            let acquired = lock.upgradable(None);
            assert!(acquired, "without a deadline a wait ends with the lock");
        });
        Self::new(lock)
    }

    #[track_caller]
    pub(crate) fn acquire_within(lock: &R, limit: Limit) -> Option<Self> {
        match limit.deadline::<R::Platform>() {
            None => Some(Self::acquire(lock)),
            deadline => {
                let at_once = || lock.try_upgradable().then_some(());
                let wait = || lock.upgradable(deadline).then_some(());
                acquire_in_time(lock, Access::Upgradable, at_once, wait)?;
                Some(Self::new(lock))
            }
        }
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn release(self, lock: &R) {
        self.hold.end();
        // SAFETY: held upgradable, as the caller promises.
        release(lock, Access::Upgradable, || unsafe { lock.unlock_upgradable() });
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn release_fair(self, lock: &R) {
        self.hold.end();
        // SAFETY: held upgradable, as the caller promises.
        release(lock, Access::Upgradable, || unsafe { lock.unlock_upgradable_fair() });
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn downgrade(mut self, lock: &R) -> SharedHold<R> {
        self.hold.change(Access::Shared);
        // SAFETY: held upgradable, as the caller promises.
        let shared = unsafe { lock.downgrade_upgradable() };
        SharedHold { shared, hold: self.hold, _residence: R::Residence::NEW }
    }

    /// Before an upgrade, while the guard still has its hold.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_upgrade(lock: &R) {
        check(lock, Wanted::Upgrade);
    }

    /// The same before one with a limit, which may be so far away that it is none.
    #[inline]
    #[track_caller]
    pub(crate) fn check_upgrade_within(lock: &R, limit: Limit) {
        if HoldOf::<R>::CHECKS && limit.deadline::<R::Platform>().is_none() {
            check(lock, Wanted::Upgrade);
        }
    }

    /// After [`check_upgrade`](Self::check_upgrade).
    ///
    /// # Safety
    /// The caller has this hold of `lock`.
    #[track_caller]
    pub(crate) unsafe fn upgrade(mut self, lock: &R) -> ExclusiveHold<R> {
        begins_to_upgrade(lock);
        // SAFETY: held upgradable, as the caller promises.
        let at_once = || unsafe { lock.try_upgrade() }.then_some(());
        acquire(lock, Wanted::Upgrade, at_once, || {
            // SAFETY: as above.
            let upgraded = unsafe { lock.upgrade(None) };
            assert!(upgraded, "without a deadline an upgrade ends with the lock");
        });
        self.hold.change(Access::Exclusive);
        ExclusiveHold { hold: self.hold, _residence: R::Residence::NEW }
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    #[track_caller]
    pub(crate) unsafe fn upgrade_within(
        self,
        lock: &R,
        limit: Limit,
    ) -> Result<ExclusiveHold<R>, Self> {
        match limit.deadline::<R::Platform>() {
            // SAFETY: held upgradable, as the caller promises.
            None => Ok(unsafe { self.upgrade(lock) }),
            deadline => {
                begins_to_upgrade(lock);
                // SAFETY: as above.
                let at_once = || unsafe { lock.try_upgrade() }.then_some(());
                // SAFETY: as above.
                let wait = || unsafe { lock.upgrade(deadline) }.then_some(());
                let upgraded = acquire_in_time(lock, Access::Exclusive, at_once, wait);
                self.upgraded(lock, upgraded.is_some())
            }
        }
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn try_upgrade(self, lock: &R) -> Result<ExclusiveHold<R>, Self> {
        begins_to_upgrade(lock);
        // SAFETY: held upgradable, as the caller promises.
        let at_once = || unsafe { lock.try_upgrade() }.then_some(());
        let upgraded = attempt(lock, Access::Exclusive, at_once);
        self.upgraded(lock, upgraded.is_some())
    }

    fn upgraded(mut self, lock: &R, upgraded: bool) -> Result<ExclusiveHold<R>, Self> {
        if !upgraded {
            recorded::acquired(lock.counted(), Role::Read);
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
        UpgradableHold { hold: recover(lock, Access::Upgradable), _residence: R::Residence::NEW }
    }
}
