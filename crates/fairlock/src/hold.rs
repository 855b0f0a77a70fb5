//! What a guard remembers of its hold of a lock: a [`Hold`] in one of its [modes](Mode).
//!
//! The checks for deadlocks (`held/`) and what records operations (`recorded/`) see an acquisition
//! in [`enter_seen`], and a release in [`leave`]. Where there are neither, the compiler leaves both
//! out. Of what is here, users can name the modes only (`guard/`).

use core::any::type_name;
use std::time::{Duration, Instant};

use crate::held::{Access, Holding, Lock, Wanted};
use crate::platform::{Platform, after, until};
use crate::raw::{RawLock, RawReadWriteLock, ReadRecursive, Residence, Wait};
use crate::recorded::{self, Acquisition, Patience, Release, Role};

/// When an acquisition gives up.
#[derive(Clone, Copy)]
pub enum Limit {
    For(Duration),
    Until(Instant),
}

impl Limit {
    /// For ever if it lies beyond the end of the platform's clock.
    #[inline(always)]
    pub(crate) fn wait<P: Platform>(self) -> Wait {
        Wait::until(match self {
            Limit::For(timeout) => after::<P>(timeout),
            Limit::Until(instant) => until::<P>(instant),
        })
    }
}

/// How a lock is held: a type without values.
pub trait Mode<R: RawLock> {
    /// What the checks for deadlocks call it.
    const ACCESS: Access;
    const WANTED: Wanted;
    /// What a release needs to know.
    type Token;

    fn acquire(lock: &R, wait: Wait) -> Option<Self::Token>;
    /// # Safety
    /// The caller holds the lock in this mode, as `token` says.
    unsafe fn release(lock: &R, token: Self::Token, fair: bool);
    /// # Safety
    /// The calling thread holds the lock in this mode.
    unsafe fn recover(lock: &R) -> Self::Token;
}

/// The mode of a guard that reads, next to other readers.
pub enum Shared {}
/// As [`Shared`], acquired past threads that wait.
pub enum Recursive {}
/// The mode of a guard that reads and can become one that writes.
pub enum Upgradable {}
/// The mode of a guard that writes.
pub enum Exclusive {}
/// The mode of a guard of a thread that may have others of the same lock: it reads.
pub enum Reentrant {}

macro_rules! reads {
    ($mode:ident: $lock:ident, $wanted:ident, $acquire:ident) => {
        impl<R: $lock> Mode<R> for $mode {
            const ACCESS: Access = Access::Shared;
            const WANTED: Wanted = Wanted::$wanted;
            type Token = R::Shared;

            #[inline(always)]
            fn acquire(lock: &R, wait: Wait) -> Option<R::Shared> {
                lock.$acquire(wait)
            }
            #[inline(always)]
            unsafe fn release(lock: &R, token: R::Shared, fair: bool) {
                // SAFETY: held shared, as the caller promises.
                unsafe { lock.unlock_read(token, fair) };
            }
            unsafe fn recover(lock: &R) -> R::Shared {
                // SAFETY: held shared by this thread, as the caller promises.
                unsafe { lock.recover_shared() }
            }
        }
    };
}
reads!(Shared: RawReadWriteLock, Read, read);
reads!(Recursive: ReadRecursive, RecursiveRead, read_recursive);

impl<R: RawReadWriteLock> Mode<R> for Upgradable {
    const ACCESS: Access = Access::Upgradable;
    const WANTED: Wanted = Wanted::UpgradableRead;
    type Token = ();

    fn acquire(lock: &R, wait: Wait) -> Option<()> {
        lock.upgradable(wait).then_some(())
    }
    unsafe fn release(lock: &R, (): (), fair: bool) {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { lock.unlock_upgradable(fair) };
    }
    unsafe fn recover(_lock: &R) {}
}

macro_rules! alone {
    ($($mode:ident)*) => {$(
        impl<R: RawLock> Mode<R> for $mode {
            const ACCESS: Access = Access::Exclusive;
            const WANTED: Wanted = R::WANTED;
            type Token = ();

            #[inline(always)]
            #[track_caller]
            fn acquire(lock: &R, wait: Wait) -> Option<()> {
                lock.write(wait).then_some(())
            }
            #[inline(always)]
            unsafe fn release(lock: &R, (): (), fair: bool) {
                // SAFETY: held exclusively, as the caller promises.
                unsafe { lock.unlock_write(fair) };
            }
            unsafe fn recover(_lock: &R) {}
        }
    )*};
}
alone!(Exclusive Reentrant);

/// What the checks for deadlocks note of a hold.
type Noted<R> = <<R as RawLock>::Platform as Platform>::Hold;

/// What identifies a lock of this platform to the checks for deadlocks.
pub(crate) type IdentityOf<P> = <<P as Platform>::Hold as Holding>::Identity;

#[inline(always)]
fn named<R: RawLock>(lock: &R) -> Lock {
    Lock::new(lock.id(), type_name::<R>)
}

/// Holds of this lock are noted: they belong to a thread.
const fn is_noted<R: RawLock>() -> bool {
    Noted::<R>::CHECKS && R::IS_CHECKED && R::Residence::IS_THE_THREADS
}

/// Before an acquisition that may wait for ever.
#[inline(always)]
#[track_caller]
fn check<R: RawLock>(lock: &R, wanted: Wanted, wait: Wait) {
    if is_noted::<R>() && wait == Wait::ForEver {
        Noted::<R>::check(named(lock), wanted);
    }
}

/// An acquisition is seen by those who look for deadlocks, or recorded. Where there are neither,
/// the compiler knows that.
#[inline(always)]
fn is_seen<R: RawLock>(lock: &R, wanted: Option<Wanted>, wait: Wait) -> bool {
    wanted.is_some() && is_asked::<R>(wait) || recorded::is_counted(lock.counted())
}

/// Those who look for deadlocks ask what a thread that waits for this lock wants.
const fn is_asked<R: RawLock>(wait: Wait) -> bool {
    Noted::<R>::CHECKS && R::IS_CHECKED && matches!(wait, Wait::ForEver)
}

/// Acquires a lock by `acquire`, and says what happens to those who record it and, if there is
/// something that a thread `wanted`, to those who look for deadlocks.
#[inline(always)]
#[track_caller]
pub(crate) fn enter<R: RawLock, H>(
    lock: &R,
    access: Access,
    wanted: Option<Wanted>,
    wait: Wait,
    acquire: impl Fn(Wait) -> Option<H>,
) -> Option<H> {
    match is_seen(lock, wanted, wait) {
        true => enter_seen(lock, access, wanted, wait, acquire),
        false => acquire(wait),
    }
}

#[track_caller]
fn enter_seen<R: RawLock, H>(
    lock: &R,
    access: Access,
    wanted: Option<Wanted>,
    wait: Wait,
    acquire: impl Fn(Wait) -> Option<H>,
) -> Option<H> {
    let patience = match wait {
        Wait::Not => Patience::Tries,
        Wait::ForEver => Patience::Waits,
        Wait::Until(_) => Patience::Timed,
    };
    let acquisition = Acquisition::begins(lock.counted(), role(access), patience);
    let wanted = wanted.filter(|_| is_asked::<R>(wait));
    if let Some(wanted) = wanted {
        Noted::<R>::ask(named(lock), wanted);
    }
    let mut hold = acquire(Wait::Not);
    if hold.is_none() && wait != Wait::Not {
        let _waiting = wanted.map(|wanted| Noted::<R>::waiting(named(lock), wanted));
        hold = match &acquisition {
            None => acquire(wait),
            Some(acquisition) => acquisition.waits(lock.has_writer(), || acquire(wait)),
        };
    }
    if let Some(acquisition) = acquisition {
        acquisition.ends(hold.is_some());
    }
    hold
}

/// Releases a lock by `unlock`.
#[inline(always)]
pub(crate) fn leave<R: RawLock>(lock: &R, access: Access, unlock: impl FnOnce()) {
    let release = Release::begins(lock.counted(), role(access));
    unlock();
    if let Some(release) = release {
        release.ends();
    }
}

/// Makes the upgradable holder of `lock` its writer, or leaves it what it is.
///
/// # Safety
/// The caller holds the lock upgradable.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn upgrade<R: RawReadWriteLock>(
    lock: &R,
    wanted: Option<Wanted>,
    wait: Wait,
) -> bool {
    // To those who record it an upgrade is a release and a request to write.
    leave(lock, Access::Upgradable, || ());
    // SAFETY: held upgradable, as the caller promises.
    let upgrade = |wait| unsafe { lock.upgrade(wait) }.then_some(());
    let upgraded = enter(lock, Access::Exclusive, wanted, wait, upgrade).is_some();
    if !upgraded {
        recorded::acquired(lock.counted(), Role::Read);
    }
    upgraded
}

#[inline(always)]
fn role(access: Access) -> Role {
    match access {
        Access::Shared | Access::Upgradable => Role::Read,
        Access::Exclusive => Role::Write,
    }
}

/// A hold of a lock in the mode `M`.
pub struct Hold<R: RawLock, M: Mode<R>> {
    token: M::Token,
    noted: Noted<R>,
    _residence: R::Residence,
}

pub type SharedHold<R> = Hold<R, Shared>;
pub type UpgradableHold<R> = Hold<R, Upgradable>;
pub type ExclusiveHold<R> = Hold<R, Exclusive>;

impl<R: RawLock, M: Mode<R>> Hold<R, M> {
    #[inline(always)]
    fn new(token: M::Token, noted: Noted<R>) -> Self {
        Hold { token, noted, _residence: R::Residence::NEW }
    }

    /// In the way of `A`, which leads to the same hold.
    #[inline(always)]
    #[track_caller]
    fn acquire_as<A: Mode<R, Token = M::Token>>(lock: &R, wait: Wait) -> Option<Self> {
        check(lock, A::WANTED, wait);
        let wanted = Some(A::WANTED);
        let token = match is_seen(lock, wanted, wait) {
            true => enter_seen(lock, A::ACCESS, wanted, wait, |wait| A::acquire(lock, wait))?,
            // Not by a closure, so that the caller's line is known, and no call is left.
            false => A::acquire(lock, wait)?,
        };
        // Where nothing is noted, the lock needs no identity.
        let noted = match is_noted::<R>() {
            true => Noted::<R>::begin(named(lock), M::ACCESS),
            false => Noted::<R>::NONE,
        };
        Some(Self::new(token, noted))
    }

    /// Waits for as long as it takes.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn acquire(lock: &R) -> Self {
        Self::acquire_as::<M>(lock, Wait::ForEver).expect("a wait for ever ends with the lock")
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn acquire_within(lock: &R, wait: Wait) -> Option<Self> {
        Self::acquire_as::<M>(lock, wait)
    }

    /// Before this hold is released for a while.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_return(&self, lock: &R) {
        if is_noted::<R>() {
            self.noted.check_return(named(lock), M::WANTED);
        }
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    #[inline(always)]
    pub(crate) unsafe fn release(self, lock: &R, fair: bool) {
        self.noted.end();
        // SAFETY: held in this mode, as the caller promises.
        leave(lock, M::ACCESS, || unsafe { M::release(lock, self.token, fair) });
    }

    /// A hold that was forgotten.
    ///
    /// # Safety
    /// The caller has forgotten such a hold of a lock, and uses this as that hold. If `Residence`
    /// must not leave its thread, this is that thread.
    #[inline(always)]
    pub(crate) unsafe fn recover(lock: &R) -> Self {
        // SAFETY: held in this mode by this thread, as the caller promises.
        let token = unsafe { M::recover(lock) };
        let noted = match is_noted::<R>() {
            true => Noted::<R>::recover(named(lock), M::ACCESS),
            false => Noted::<R>::NONE,
        };
        Self::new(token, noted)
    }

    /// What is noted of it once it is one in the mode `N`. Before a downgrade, after an upgrade.
    fn noted_as<N: Mode<R>>(mut self) -> Noted<R> {
        self.noted.change(N::ACCESS);
        self.noted
    }
}

impl<R: ReadRecursive> Hold<R, Shared> {
    #[track_caller]
    pub(crate) fn acquire_recursively(lock: &R, wait: Wait) -> Option<Self> {
        Self::acquire_as::<Recursive>(lock, wait)
    }
}

impl<R: RawReadWriteLock> Hold<R, Exclusive> {
    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn downgrade(self, lock: &R) -> SharedHold<R> {
        let noted = self.noted_as::<Shared>();
        // SAFETY: held exclusively, as the caller promises.
        let shared = unsafe { lock.downgrade_to_read() };
        recorded::changes(lock.counted(), Role::Write, Role::Read);
        Hold::new(shared, noted)
    }

    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn downgrade_to_upgradable(self, lock: &R) -> UpgradableHold<R> {
        let noted = self.noted_as::<Upgradable>();
        // SAFETY: held exclusively, as the caller promises.
        unsafe { lock.downgrade_to_upgradable() };
        recorded::changes(lock.counted(), Role::Write, Role::Read);
        Hold::new((), noted)
    }
}

impl<R: RawReadWriteLock> Hold<R, Upgradable> {
    /// # Safety
    /// The caller has this hold of `lock`.
    pub(crate) unsafe fn downgrade(self, lock: &R) -> SharedHold<R> {
        let noted = self.noted_as::<Shared>();
        // SAFETY: held upgradable, as the caller promises.
        let shared = unsafe { lock.downgrade_upgradable() };
        Hold::new(shared, noted)
    }

    /// Before an upgrade, while the guard still has its hold.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_upgrade(lock: &R, wait: Wait) {
        check(lock, Wanted::Upgrade, wait);
    }

    /// After [`check_upgrade`](Self::check_upgrade). The same hold if the time is over.
    ///
    /// # Safety
    /// The caller has this hold of `lock`.
    #[track_caller]
    pub(crate) unsafe fn upgrade(self, lock: &R, wait: Wait) -> Result<ExclusiveHold<R>, Self> {
        // SAFETY: held upgradable, as the caller promises.
        match unsafe { upgrade(lock, Some(Wanted::Upgrade), wait) } {
            true => Ok(Hold::new((), self.noted_as::<Exclusive>())),
            false => Err(self),
        }
    }
}
