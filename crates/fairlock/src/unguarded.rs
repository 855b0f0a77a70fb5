//! Reader-writer locks for callers that cannot keep a guard: C and C++, and a `pthread_rwlock_t`.
//! An unlock gets nothing but the lock's address, a refusal is a value, and nothing panics.
//!
//! In Rust use [`RwLock`](crate::RwLock) or [`RwSem`](crate::RwSem), whose guards remember what
//! they hold.
//!
//! | lock | a read within a read of the same thread | its unlock |
//! |---|---|---|
//! | [`RawRwSem`](crate::rwsem::RawRwSem), any policy | succeeds at once if asked for with `past_waiters` | is one operation on the word |
//! | [`RawRwLock`](crate::rwlock::RawRwLock) | the same; if the first read uses a slot, also without `past_waiters` | releases a slot of the calling thread, also of one that is ending; if there is none, the semaphore |

use crate::raw::{RawLock, RawReadWriteLock, RawUnguarded, Wait};

pub use crate::raw::Refused;

/// A reader-writer lock that is used without guards.
///
/// Deadlines are moments of [`Platform::now`](crate::platform::Platform::now), in ns. Without a
/// deadline, a wait ends only when the lock is acquired.
///
/// # Guarantees
/// * A writer has the lock to itself. Who waits for whom, and for how long, is what the lock's
///   policy says, except for readers that ask for `past_waiters`.
/// * A thread's reads are interchangeable: it unlocks as often as it has acquired, in any order.
/// * About four million readers can hold the lock at once; further ones get [`Refused::Full`]. The
///   limit is lower by the number of readers that try at the same moment. One thread can read a
///   [`RawRwLock`](crate::rwlock::RawRwLock) 65,537 times at once while it reads by a slot.
/// * In the child of a `fork`, the forking thread still holds what it held.
///
/// # Recursion
/// Suppose that a thread holds a lock for reading and asks for it again, and that a writer has
/// begun to wait in between. The second read waits for the writer, and the writer for the first
/// read: a deadlock. `past_waiters` prevents that: such a reader acquires the lock as soon as no
/// writer holds it, and so at once if its own thread holds it, also past one that waits to upgrade.
/// As that makes writers wait, callers should ask for it only then.
///
/// A thread that holds *another* lock may ask for it too: threads that read two locks in opposite
/// orders could otherwise wait for each other behind writers of both. If a writer holds the lock,
/// such a reader has to wait; it then tries anew every 100 ms, and loses its place in the queue
/// each time. On a [`RawRwLock`](crate::rwlock::RawRwLock), a writer that waits for readers in
/// slots counts as a holder: only a thread that itself reads that lock passes it. So threads that
/// read two such locks in opposite orders can wait for each other for ever.
///
/// # One thread, and no guards
/// A [`RawRwLock`](crate::rwlock::RawRwLock) must be unlocked by the thread that has locked it.
/// That thread may lock and unlock until its very end: in destructors of its thread-local variables
/// and of its keys (`pthread_key_create`), in whichever order they run, and in handlers of
/// `atexit`. What a thread has not unlocked when it ends stays locked. A lock is used either by
/// this trait or through guards, never both.
///
/// # Examples
/// ```
/// use fairlock::platform::Os;
/// use fairlock::policy::TimeFair;
/// use fairlock::rwsem::RawRwSem;
/// use fairlock::unguarded::{Refused, UnguardedRwLock};
///
/// static LOCK: RawRwSem<TimeFair, Os> = RawRwSem::NEW;
///
/// assert_eq!(LOCK.read(None, false), Ok(()));
/// assert_eq!(LOCK.try_write(), Err(Refused::Busy));
/// // SAFETY: held for reading since `read` above.
/// unsafe { LOCK.unlock_read() };
/// ```
/// A read within a read, while a writer waits:
/// ```
/// use fairlock::platform::{Os, Platform};
/// use fairlock::rwlock::RawRwLock;
/// use fairlock::unguarded::{Refused, UnguardedRwLock};
///
/// static LOCK: RawRwLock = RawRwLock::FREE;
///
/// assert_eq!(LOCK.read(None, false), Ok(()));
/// let writer = std::thread::spawn(|| LOCK.write(Some(Os::now() + 1_000_000)));
/// assert_eq!(LOCK.read(None, true), Ok(()));
/// assert_eq!(writer.join().unwrap(), Err(Refused::TimedOut));
/// // SAFETY: this thread has acquired two reads above.
/// unsafe {
///     LOCK.unlock_read();
///     LOCK.unlock_read();
/// }
/// assert_eq!(LOCK.try_write(), Ok(()));
/// ```
///
/// # Safety
/// Users of the trait protect data by it. So an implementation promises that a writer holds the
/// lock alone, and that whoever acquires the lock sees what was done under it before it was
/// released.
///
/// ```compile_fail,E0200
/// use fairlock::unguarded::{Refused, UnguardedRwLock};
/// struct Open;
/// impl UnguardedRwLock for Open {
///     const FREE: Self = Open;
///     fn read(&self, _: Option<u64>, _: bool) -> Result<(), Refused> { Ok(()) }
///     fn try_read(&self, _: bool) -> Result<(), Refused> { Ok(()) }
///     fn write(&self, _: Option<u64>) -> Result<(), Refused> { Ok(()) }
///     fn try_write(&self) -> Result<(), Refused> { Ok(()) }
///     unsafe fn unlock_read(&self) {}
///     unsafe fn unlock_write(&self) {}
///     fn has_writer(&self) -> bool { false }
///     fn is_locked(&self) -> bool { false }
/// }
/// ```
pub unsafe trait UnguardedRwLock: Send + Sync {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    const FREE: Self;

    /// Acquires it for reading.
    ///
    /// # Errors
    /// [`Refused::TimedOut`], [`Refused::Full`].
    fn read(&self, deadline: Option<u64>, past_waiters: bool) -> Result<(), Refused>;

    /// Acquires it for reading, without waiting.
    ///
    /// # Errors
    /// [`Refused::Busy`], [`Refused::Full`].
    fn try_read(&self, past_waiters: bool) -> Result<(), Refused>;

    /// If readers hold the lock while a writer waits, no newcomer joins them any more, even if a
    /// policy with phases would still admit some. Callers that prefer writers call it before they
    /// ask to read. It does nothing under policies without phases, or to readers that use slots.
    #[inline]
    fn end_read_phase(&self) {}

    /// Acquires it for writing.
    ///
    /// # Errors
    /// [`Refused::TimedOut`].
    fn write(&self, deadline: Option<u64>) -> Result<(), Refused>;

    /// As `try_read(false)`, in a few instructions; it may fail where that would succeed.
    #[inline]
    fn read_at_once(&self) -> bool {
        self.try_read(false).is_ok()
    }

    /// As [`try_write`](Self::try_write), in a few instructions; it may fail where that would
    /// succeed.
    #[inline]
    fn write_at_once(&self) -> bool {
        self.try_write().is_ok()
    }

    /// Acquires it for writing, without waiting.
    ///
    /// # Errors
    /// [`Refused::Busy`].
    fn try_write(&self) -> Result<(), Refused>;

    /// Releases a read. When this returns the lock may be gone: another thread may have acquired
    /// and freed it.
    ///
    /// # Safety
    /// The calling thread holds it for reading, by this trait.
    unsafe fn unlock_read(&self);

    /// As [`unlock_read`](Self::unlock_read). If the lock can tell at no cost that the thread does
    /// not hold it, this changes nothing and returns false.
    ///
    /// # Safety
    /// The calling thread holds it for reading, by this trait, or nobody does.
    #[inline]
    unsafe fn try_unlock_read(&self) -> bool {
        let is_locked = self.is_locked();
        if is_locked {
            // SAFETY: the caller promises that its thread reads or nobody holds the lock, and
            // somebody does.
            unsafe { self.unlock_read() };
        }
        is_locked
    }

    /// Releases a write. As after [`unlock_read`](Self::unlock_read), the lock may be gone.
    ///
    /// # Safety
    /// The calling thread holds it for writing.
    unsafe fn unlock_write(&self);

    /// Whether a writer holds it, or is about to.
    fn has_writer(&self) -> bool;

    /// Whether somebody holds it, or is about to.
    fn is_locked(&self) -> bool;
}

/// A lock that is used without guards and that one thread at a time may hold *upgradable*: beside
/// readers, and with the right to become the writer. And a writer may become a reader again.
///
/// # Guarantees
/// * There is at most one upgradable holder. Readers may come and go beside it. The second one
///   waits as a writer would, but not for readers.
/// * From the moment at which an upgrade begins to wait, no reader enters. Nobody writes between an
///   acquisition for upgrading and the upgrade.
/// * A downgrade is one atomic step: nobody writes in between.
/// * An upgradable hold is no read of its thread: each is released by its own function.
///
/// # Examples
/// ```
/// use fairlock::rwlock::RawRwLock;
/// use fairlock::unguarded::{Refused, UnguardedRwLock, UnguardedUpgrade};
///
/// static LOCK: RawRwLock = RawRwLock::FREE;
///
/// assert_eq!(LOCK.upgradable(None), Ok(()));
/// assert_eq!(LOCK.try_upgradable(), Err(Refused::Busy));
/// // SAFETY: each call is given what the one before it has acquired.
/// unsafe {
///     assert_eq!(LOCK.try_upgrade(), Ok(()));
///     assert_eq!(LOCK.try_read(false), Err(Refused::Busy));
///     LOCK.downgrade_to_read();
///     LOCK.unlock_read();
/// }
/// assert!(!LOCK.is_locked());
/// ```
///
/// # Safety
/// As [`UnguardedRwLock`], of which an upgradable holder is a reader, and a writer once it is
/// upgraded.
pub unsafe trait UnguardedUpgrade: UnguardedRwLock {
    /// Acquires it upgradable.
    ///
    /// # Errors
    /// [`Refused::TimedOut`].
    fn upgradable(&self, deadline: Option<u64>) -> Result<(), Refused>;

    /// Acquires it upgradable, without waiting.
    ///
    /// # Errors
    /// [`Refused::Busy`].
    fn try_upgradable(&self) -> Result<(), Refused>;

    /// Releases an upgradable hold. When this returns the lock may be gone.
    ///
    /// # Safety
    /// The calling thread holds it upgradable.
    unsafe fn unlock_upgradable(&self);

    /// Makes the upgradable holder the writer, once the readers have left. After an error it still
    /// holds the lock upgradable.
    ///
    /// # Errors
    /// [`Refused::TimedOut`].
    ///
    /// # Safety
    /// The calling thread holds it upgradable.
    unsafe fn upgrade(&self, deadline: Option<u64>) -> Result<(), Refused>;

    /// The same without waiting.
    ///
    /// # Errors
    /// [`Refused::Busy`].
    ///
    /// # Safety
    /// The calling thread holds it upgradable.
    unsafe fn try_upgrade(&self) -> Result<(), Refused>;

    /// Makes the upgradable holder a reader.
    ///
    /// # Safety
    /// The calling thread holds it upgradable.
    unsafe fn downgrade_upgradable(&self);

    /// Makes the writer a reader; waiting readers join it.
    ///
    /// # Safety
    /// The calling thread holds it for writing.
    unsafe fn downgrade_to_read(&self);

    /// Makes the writer the upgradable holder; waiting readers join it.
    ///
    /// # Safety
    /// The calling thread holds it for writing.
    unsafe fn downgrade_to_upgradable(&self);
}

fn acquired(is_acquired: bool, wait: Wait) -> Result<(), Refused> {
    match wait {
        _ if is_acquired => Ok(()),
        Wait::Not => Err(Refused::Busy),
        _ => Err(Refused::TimedOut),
    }
}

// SAFETY: `RawLock` promises that a writer holds the lock alone, that acquisitions are Acquire and
// releases Release.
unsafe impl<L: RawUnguarded> UnguardedRwLock for L {
    const FREE: Self = <L as RawUnguarded>::FREE;

    #[inline]
    fn read(&self, deadline: Option<u64>, past_waiters: bool) -> Result<(), Refused> {
        self.read_unguarded(Wait::until(deadline), past_waiters)
    }
    #[inline]
    fn try_read(&self, past_waiters: bool) -> Result<(), Refused> {
        self.read_unguarded(Wait::Not, past_waiters)
    }
    #[inline]
    fn end_read_phase(&self) {
        RawUnguarded::end_read_phase(self);
    }
    #[inline]
    fn write(&self, deadline: Option<u64>) -> Result<(), Refused> {
        let wait = Wait::until(deadline);
        acquired(RawLock::write(self, wait), wait)
    }
    #[inline]
    fn read_at_once(&self) -> bool {
        RawUnguarded::read_at_once(self)
    }
    #[inline]
    fn write_at_once(&self) -> bool {
        RawUnguarded::write_at_once(self)
    }
    #[inline]
    fn try_write(&self) -> Result<(), Refused> {
        acquired(RawLock::write(self, Wait::Not), Wait::Not)
    }
    #[inline]
    unsafe fn unlock_read(&self) {
        // SAFETY: as the caller promises.
        unsafe { self.unlock_unguarded() };
    }
    #[inline]
    unsafe fn try_unlock_read(&self) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.try_unlock_unguarded() }
    }
    #[inline]
    unsafe fn unlock_write(&self) {
        // SAFETY: as the caller promises.
        unsafe { RawLock::unlock_write(self, false) };
    }
    fn has_writer(&self) -> bool {
        RawLock::has_writer(self)
    }
    fn is_locked(&self) -> bool {
        RawLock::is_locked(self)
    }
}

// SAFETY: `RawReadWriteLock` promises that there is one upgradable holder at most, which an upgrade
// makes the writer, and that downgrades are Release.
unsafe impl<L: RawUnguarded> UnguardedUpgrade for L {
    fn upgradable(&self, deadline: Option<u64>) -> Result<(), Refused> {
        let wait = Wait::until(deadline);
        acquired(RawReadWriteLock::upgradable(self, wait), wait)
    }
    fn try_upgradable(&self) -> Result<(), Refused> {
        acquired(RawReadWriteLock::upgradable(self, Wait::Not), Wait::Not)
    }
    unsafe fn unlock_upgradable(&self) {
        // SAFETY: as the caller promises.
        unsafe { RawReadWriteLock::unlock_upgradable(self, false) };
    }
    unsafe fn upgrade(&self, deadline: Option<u64>) -> Result<(), Refused> {
        let wait = Wait::until(deadline);
        // SAFETY: as the caller promises.
        acquired(unsafe { RawReadWriteLock::upgrade(self, wait) }, wait)
    }
    unsafe fn try_upgrade(&self) -> Result<(), Refused> {
        // SAFETY: as the caller promises.
        acquired(unsafe { RawReadWriteLock::upgrade(self, Wait::Not) }, Wait::Not)
    }
    unsafe fn downgrade_upgradable(&self) {
        // SAFETY: as the caller promises.
        unsafe { RawReadWriteLock::downgrade_upgradable(self) };
    }
    unsafe fn downgrade_to_read(&self) {
        // SAFETY: as the caller promises.
        unsafe { RawReadWriteLock::downgrade_to_read(self) };
    }
    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: as the caller promises.
        unsafe { RawReadWriteLock::downgrade_to_upgradable(self) };
    }
}
