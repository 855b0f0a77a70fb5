//! Reader-writer locks for callers that cannot keep a guard: C and C++, and a `pthread_rwlock_t`.
//! Nothing but the lock's address says what is unlocked, refusals are values, and nothing panics.
//!
//! In Rust use [`RwLock`](crate::RwLock) or [`RwSem`](crate::RwSem), whose guards know.
//!
//! | lock | a read within a read of the same thread | its unlock |
//! |---|---|---|
//! | [`RawRwSem`](crate::rwsem::RawRwSem), any policy | enters at once if asked for with `past_waiters` | is one operation on the word |
//! | [`RawRwLock`](crate::rwlock::RawRwLock) | the same; by a slot, it needs not even ask | looks for a slot of its thread, also of one that is ending, else at the semaphore |

/// Why a lock was not acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Somebody holds it, or is to get it first.
    Busy,
    /// The deadline passed.
    TimedOut,
    /// As many readers hold it as can be counted.
    Full,
}

/// A reader-writer lock that is used without guards.
///
/// Deadlines are moments of [`Platform::now`](crate::platform::Platform::now), ns; without one a wait ends with the lock.
///
/// # Guarantees
/// * Writers are alone. Who waits for whom and how long is what the lock's policy says, but for
///   `past_waiters`.
/// * Reads of a thread are alike: as many unlocks as it has acquired end them, in any order.
/// * As many readers as four million, less a few that came in at once, then [`Refused::Full`].
/// * In the child of a `fork` the forking thread has what it held.
///
/// # Recursion
/// A thread that holds a lock for reading and asks for it again waits for a writer that came in between,
/// which waits for the first hold: a deadlock. `past_waiters` is for those: such a reader enters as
/// soon as no writer is in, and so at once if its thread is in. It is on the caller to ask for it only
/// then, as it makes writers wait.
///
/// A thread that holds *another* lock may ask so, too, as threads that read two locks in both orders
/// otherwise wait for each other behind writers of both. Where it has to wait, as a writer is in, it
/// looks again every 100 ms, at the cost of its place in the queue. Of a
/// [`RawRwLock`](crate::rwlock::RawRwLock) a writer that waits for readers in slots is in, as far as
/// others are concerned: only those come past it that are in themselves. So there such threads can
/// wait for each other for ever.
///
/// # One thread, and no guards
/// A [`RawRwLock`](crate::rwlock::RawRwLock) must be unlocked by the thread that has locked it. That may
/// be as late as it likes, and so may what it locks anew: in destructors of the thread's variables and
/// of its keys (`pthread_key_create`), in whichever order they run, and in handlers of `atexit`. What a
/// thread has not unlocked when it is gone stays locked. And a lock is used by this trait or through
/// guards, never both.
///
/// # Examples
/// ```
/// use fairlock::platform::Os;
/// use fairlock::policy::TimeFair;
/// use fairlock::rwsem::{RawRwSem, Pooled};
/// use fairlock::unguarded::{Refused, UnguardedRwLock};
///
/// static LOCK: RawRwSem<TimeFair, Os, Pooled<Os>> = RawRwSem::NEW;
///
/// assert_eq!(LOCK.read(None, false), Ok(()));
/// assert_eq!(LOCK.try_write(), Err(Refused::Busy));
/// // SAFETY: locked above.
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
/// // SAFETY: locked twice above, by this thread.
/// unsafe {
///     LOCK.unlock_read();
///     LOCK.unlock_read();
/// }
/// assert_eq!(LOCK.try_write(), Ok(()));
/// ```
///
/// # Safety
/// Whoever implements it promises that writers are alone, and that what happened under the lock before it was
/// released is seen under the lock afterwards: users of the trait protect data by it.
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

    /// If readers hold it while a writer waits, no newcomer enters beside them any more, also where a
    /// policy with phases would let some in for a while yet. For callers that prefer writers, before they
    /// ask to read. Does nothing to policies without phases, nor to readers that come by slots.
    #[inline]
    fn end_read_phase(&self) {}

    /// Acquires it for writing.
    ///
    /// # Errors
    /// [`Refused::TimedOut`].
    fn write(&self, deadline: Option<u64>) -> Result<(), Refused>;

    /// As `try_read(false)`, in a few instructions; may say no where that would be let in.
    #[inline]
    fn read_at_once(&self) -> bool {
        self.try_read(false).is_ok()
    }

    /// As [`try_write`](Self::try_write), likewise.
    #[inline]
    fn write_at_once(&self) -> bool {
        self.try_write().is_ok()
    }

    /// Acquires it for writing, without waiting.
    ///
    /// # Errors
    /// [`Refused::Busy`].
    fn try_write(&self) -> Result<(), Refused>;

    /// Releases it. The lock may be gone when this returns, as somebody else may have freed it.
    ///
    /// # Safety
    /// The calling thread holds it for reading, by this trait.
    unsafe fn unlock_read(&self);

    /// As [`unlock_read`](Self::unlock_read); false, without a change, if the lock can tell at no cost
    /// that the thread does not hold it.
    ///
    /// # Safety
    /// The calling thread holds it for reading, by this trait, or nobody does.
    #[inline]
    unsafe fn try_unlock_read(&self) -> bool {
        let is_locked = self.is_locked();
        if is_locked {
            // SAFETY: it is locked, and then the calling thread holds it for reading, as the caller promises.
            unsafe { self.unlock_read() };
        }
        is_locked
    }

    /// Releases it, likewise.
    ///
    /// # Safety
    /// The calling thread holds it for writing.
    unsafe fn unlock_write(&self);

    /// A writer holds it, or is about to.
    fn has_writer(&self) -> bool;

    /// Somebody holds it, or is about to.
    fn is_locked(&self) -> bool;
}
