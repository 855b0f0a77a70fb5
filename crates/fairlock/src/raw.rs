//! The locks without their data: [`RawLock`] and [`RawReadWriteLock`], of which everything else is
//! made: Fairlock's own guards (`guard/`), lock_api's (`interop/`), and locks without guards
//! (`unguarded.rs`). Users cannot name these traits.

use core::marker::PhantomData;

use crate::held::Wanted;
use crate::platform::Platform;
use crate::recorded::CountedLock;

/// For how long a thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Not,
    /// As long as it takes.
    ForEver,
    /// Until this moment of [`Platform::now`], ns.
    Until(u64),
}

impl Wait {
    #[inline(always)]
    pub(crate) fn until(deadline: Option<u64>) -> Self {
        deadline.map_or(Wait::ForEver, Wait::Until)
    }

    /// Whether this wait has ended with what it was for, which one for ever always has: there the
    /// compiler leaves the answer out.
    #[inline(always)]
    pub(crate) fn has_ended_well(self, acquired: bool) -> bool {
        debug_assert!(acquired || self != Wait::ForEver, "a wait for ever ends with the lock");
        acquired || self == Wait::ForEver
    }

    /// The moment at which a thread that waits gives up.
    #[inline(always)]
    pub(crate) fn deadline(self) -> Option<u64> {
        match self {
            Wait::Not => Some(0),
            Wait::ForEver => None,
            Wait::Until(deadline) => Some(deadline),
        }
    }
}

/// A guard must be dropped by the thread that acquired the lock, so it is not `Send`.
pub struct GuardStaysOnItsThread(PhantomData<*mut ()>);

// SAFETY: it has neither data nor functions.
unsafe impl Sync for GuardStaysOnItsThread {}

/// A guard may be dropped by another thread.
pub struct GuardMayChangeThreads(());

/// Whether a guard may change threads: one of the two types above.
pub trait Residence {
    const IS_THE_THREADS: bool;
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

/// Why a lock was not acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Another thread holds it, or is about to get it first.
    Busy,
    /// The deadline passed.
    TimedOut,
    /// As many readers as can be counted hold it already.
    Full,
}

/// A lock that one thread at a time can hold exclusively.
///
/// # Safety
/// * There is one exclusive holder at a time, and then no other holder; also while a fair unlock
///   passes the lock on.
/// * An acquisition is an Acquire, a release a Release.
/// * An acquisition that fails leaves nothing held, and no waiter queued.
/// * With [`Wait::ForEver`], an acquisition does not fail.
/// * Forgetting a hold is harmless: a lock that is moved or dropped while it is held is not
///   accessed any more.
pub unsafe trait RawLock {
    /// Where the lock lives.
    type Platform: Platform;
    /// Whether guards may be sent to another thread.
    type Residence: Residence;
    /// What a thread wants that wants to hold the lock exclusively.
    const WANTED: Wanted;
    /// Whether this lock is seen by the checks for deadlocks and by what records operations, and
    /// not one within it.
    const IS_CHECKED: bool = true;

    /// Acquires the lock exclusively.
    fn write(&self, wait: Wait) -> bool;
    /// # Safety
    /// The caller holds the lock exclusively.
    unsafe fn unlock_write(&self, fair: bool);

    /// A thread holds it, or is about to.
    fn is_locked(&self) -> bool;

    /// What identifies the lock to the checks for deadlocks: see
    /// [`Lock::new`](crate::held::Lock::new).
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
/// What [`RawLock`] asks for, and:
/// * There is at most one upgradable holder, next to plain readers only.
/// * A downgrade is one atomic step that is a Release. After an upgrade that fails, the lock is
///   still held upgradable.
pub unsafe trait RawReadWriteLock: RawLock {
    /// What a release needs to know of a shared hold.
    type Shared;

    /// Acquires the lock shared.
    fn read(&self, wait: Wait) -> Option<Self::Shared>;
    /// # Safety
    /// The caller holds the lock shared, as `shared` says.
    unsafe fn unlock_read(&self, shared: Self::Shared, fair: bool);
    /// What a release needs to know of one of the calling thread's shared holds.
    ///
    /// # Safety
    /// The calling thread holds the lock shared.
    unsafe fn recover_shared(&self) -> Self::Shared;

    /// Acquires the lock upgradable.
    fn upgradable(&self, wait: Wait) -> bool;
    /// # Safety
    /// The caller holds the lock upgradable.
    unsafe fn unlock_upgradable(&self, fair: bool);

    /// # Safety
    /// The caller holds the lock upgradable. If this returns true it holds it exclusively, else
    /// still upgradable.
    unsafe fn upgrade(&self, wait: Wait) -> bool;
    /// # Safety
    /// The caller holds the lock upgradable; afterwards it holds it shared.
    unsafe fn downgrade_upgradable(&self) -> Self::Shared;
    /// # Safety
    /// The caller holds the lock exclusively; afterwards it holds it shared.
    unsafe fn downgrade_to_read(&self) -> Self::Shared;
    /// # Safety
    /// The caller holds the lock exclusively; afterwards it holds it upgradable.
    unsafe fn downgrade_to_upgradable(&self);

    /// A thread holds it exclusively.
    fn is_locked_exclusive(&self) -> bool;
}

/// A reader-writer lock that a thread may read although it reads it already.
///
/// # Safety
/// As [`RawReadWriteLock`]. Such a read succeeds at once if the calling thread reads the lock.
pub unsafe trait ReadRecursive: RawReadWriteLock {
    /// Acquires the lock shared, past threads that wait.
    fn read_recursive(&self, wait: Wait) -> Option<Self::Shared>;
}

/// A reader-writer lock that is also used without guards: see [`crate::unguarded`].
///
/// # Safety
/// As [`RawReadWriteLock`]. A thread's reads without guards are interchangeable.
pub unsafe trait RawUnguarded: RawReadWriteLock + Send + Sync {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    const FREE: Self;

    /// Acquires the lock shared; if it may, past threads that wait.
    fn read_unguarded(&self, wait: Wait, past_waiters: bool) -> Result<(), Refused>;
    /// Acquires it shared in a few instructions, or not.
    fn read_at_once(&self) -> bool;
    /// Acquires it exclusively in a few instructions, or not.
    fn write_at_once(&self) -> bool;
    /// If a writer waits while readers hold the lock, no reader joins them any more.
    fn end_read_phase(&self) {}

    /// # Safety
    /// The calling thread holds it shared, without a guard.
    unsafe fn unlock_unguarded(&self);
    /// The same; false if the lock can tell that the thread does not hold it.
    ///
    /// # Safety
    /// The calling thread holds it shared, without a guard, or no thread holds it.
    unsafe fn try_unlock_unguarded(&self) -> bool;
}
