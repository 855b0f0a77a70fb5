//! A lock that knows which thread writes, or holds it upgradable, in memory that C code owns.
//!
//! Invariants
//! 1. `owner` is written by the thread that holds the lock for writing or upgradable: its identity, and
//!    [`UPGRADABLE`] in the latter case. It is 0 when that thread releases the lock, or goes on as a reader.
//! 2. A lock that was destroyed is locked for ever, its owner [`DESTROYED`]: so of the readers only those
//!    look at the owner that do not get in at once.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use fairlock::platform::Os;
use fairlock::policy::TimeFair;
use fairlock::rwlock::RawRwLock;
use fairlock::rwsem::RawRwSem;
use fairlock_checkers::Hold;

use fairlock::unguarded::{Refused, UnguardedRwLock, UnguardedUpgrade};

use crate::clock::{Moment, after};
use crate::code::{Trouble, borrowed};

/// The lock under `fairlock_rwlock_t`.
pub(crate) type ReadWrite = RawRwLock;

/// The lock under `fairlock_mutex_t`: its unlock leaves it alone once it is free, which that of
/// [`fairlock::Mutex`] does not.
pub(crate) type Exclusive = RawRwSem<TimeFair, Os>;

/// No thread's identity: those are addresses that are aligned.
const DESTROYED: u64 = u64::MAX;

/// Beside a thread's identity: it holds the lock upgradable.
const UPGRADABLE: u64 = 1;

/// Somebody holds the lock upgradable, or nobody is its owner.
#[inline(always)]
fn admits_readers(owner: u64) -> bool {
    owner == 0 || (owner & UPGRADABLE != 0 && owner != DESTROYED)
}

/// The calling thread, as no other that lives; a child of `fork` has the identity of its parent's
/// thread, and its locks.
fn this_thread() -> u64 {
    // SAFETY: always allowed.
    unsafe { libc::pthread_self() as u64 }
}

/// How long an acquisition may wait.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    Not,
    ForEver,
    For(u64),
    Until(Moment),
}

impl Wait {
    /// Attempts it at once, or with a deadline.
    #[inline(always)]
    pub(crate) fn with<T>(
        self,
        at_once: impl FnOnce() -> Result<T, Refused>,
        with_deadline: impl Fn(Option<u64>) -> Result<T, Refused>,
    ) -> Result<T, Trouble> {
        let with_deadline = |deadline| with_deadline(deadline).map_err(Trouble::from);
        match self {
            Wait::Not => at_once().map_err(Trouble::from),
            Wait::ForEver => with_deadline(None),
            Wait::For(nanoseconds) => with_deadline(after(nanoseconds)),
            Wait::Until(moment) => moment.wait(with_deadline),
        }
    }
}

/// See the module.
#[repr(C)]
pub(crate) struct Owned<L> {
    lock: L,
    owner: AtomicU64,
}

impl<L: UnguardedRwLock> Owned<L> {
    /// The lock that lies in C's memory as `T`.
    ///
    /// # Safety
    /// Null, or memory that was zero, or became one of these locks, and that stays one.
    #[inline(always)]
    pub(crate) unsafe fn at<'a, T>(memory: *mut T) -> Result<&'a Owned<L>, Trouble> {
        const {
            assert!(size_of::<Owned<L>>() <= size_of::<T>(), "the header leaves less room");
            assert!(align_of::<Owned<L>>() <= align_of::<T>());
        }
        // SAFETY: the caller passes null or a lock; memory that is still zero is a free one.
        unsafe { borrowed(memory.cast_const().cast()) }
    }

    /// Makes memory a free lock, whatever it was.
    ///
    /// # Safety
    /// Null, or memory that nobody uses.
    pub(crate) unsafe fn create<T>(memory: *mut T) -> Result<(), Trouble> {
        if memory.is_null() {
            return Err(Trouble::Invalid);
        }
        // SAFETY: not null, so memory that nobody uses; zeros are a free lock, as in static initialisers.
        unsafe { memory.write_bytes(0, 1) };
        Ok(())
    }

    /// Ends its use, if nobody holds it or waits.
    pub(crate) fn destroy(&self) -> Result<(), Trouble> {
        match self.lock.try_write() {
            Ok(()) => {
                self.owner.store(DESTROYED, Relaxed);
                Ok(())
            }
            Err(_) if self.owner.load(Relaxed) == DESTROYED => Err(Trouble::Invalid),
            Err(_) => Err(Trouble::Busy),
        }
    }

    #[inline(always)]
    pub(crate) fn read(&self, wait: Wait, past_waiters: bool) -> Result<(), Trouble> {
        match self.lock.try_read(past_waiters) {
            Ok(()) => Ok(()),
            Err(_) => self.read_slow(wait, past_waiters),
        }
    }

    #[cold]
    fn read_slow(&self, wait: Wait, past_waiters: bool) -> Result<(), Trouble> {
        match self.owner.load(Relaxed) {
            // Readers are let in beside it, also by its own thread.
            owner if admits_readers(owner) => {}
            _ => self.refuse_for_owner(this_thread(), wait)?,
        }
        let read = |deadline| self.lock.read(deadline, past_waiters);
        wait.with(|| self.lock.try_read(past_waiters), read)
    }

    #[inline(always)]
    pub(crate) fn write(&self, wait: Wait) -> Result<(), Trouble> {
        let this = this_thread();
        // The owner is in the line that the lock is about to write anyway.
        self.refuse_for_owner(this, wait)?;
        wait.with(|| self.lock.try_write(), |deadline| self.lock.write(deadline))?;
        self.owner.store(this, Relaxed);
        Ok(())
    }

    /// Says why, if it will not succeed because of the thread itself, or never again.
    #[inline(always)]
    fn refuse_for_owner(&self, this: u64, wait: Wait) -> Result<(), Trouble> {
        match self.owner.load(Relaxed) {
            DESTROYED => Err(Trouble::Invalid),
            // Only this thread writes this value, and takes it away: it is not out of date.
            owner if owner & !UPGRADABLE == this => match wait {
                // As with pthreads: a try says that the lock is taken, whoever has it.
                Wait::Not => Err(Trouble::Busy),
                _ => Err(Trouble::Deadlock),
            },
            _ => Ok(()),
        }
    }

    /// Releases it if the calling thread writes.
    #[inline(always)]
    pub(crate) fn unlock_write(&self) -> Result<(), Trouble> {
        match self.owner.load(Relaxed) {
            owner if owner == this_thread() => {
                self.owner.store(0, Relaxed);
                // SAFETY: by invariant 1 this thread holds it.
                unsafe { self.lock.unlock_write() };
                Ok(())
            }
            DESTROYED => Err(Trouble::Invalid),
            _ => Err(Trouble::NotHeld),
        }
    }

    /// Releases it if somebody reads; an upgradable holder does not.
    ///
    /// # Safety
    /// The calling thread reads; or nobody does, and nobody has just begun to write.
    #[inline(always)]
    pub(crate) unsafe fn unlock_read(&self) -> Result<(), Trouble> {
        match self.owner.load(Relaxed) {
            // SAFETY: nobody writes, as `owner` says (invariant 1), and the caller promises that nobody has
            // just begun to.
            owner if admits_readers(owner) && unsafe { self.lock.try_unlock_read() } => Ok(()),
            DESTROYED => Err(Trouble::Invalid),
            _ => Err(Trouble::NotHeld),
        }
    }
}

impl<L> Owned<L> {
    /// How the calling thread holds it, if it does; it may read, too, if that is upgradable.
    pub(crate) fn held_by_caller(&self) -> Hold {
        match self.owner.load(Relaxed) {
            owner if owner == this_thread() => Hold::Write,
            owner if owner == this_thread() | UPGRADABLE => Hold::Upgradable,
            _ => Hold::Read,
        }
    }

    /// Says why, if the calling thread does not write.
    pub(crate) fn must_be_written(&self) -> Result<(), Trouble> {
        self.must_hold(0)
    }

    /// Says why, if the calling thread does not hold it in this way: `UPGRADABLE`, or 0 for writing.
    fn must_hold(&self, how: u64) -> Result<(), Trouble> {
        match self.owner.load(Relaxed) {
            owner if owner == this_thread() | how => Ok(()),
            DESTROYED => Err(Trouble::Invalid),
            _ => Err(Trouble::NotHeld),
        }
    }
}

impl<L: UnguardedUpgrade> Owned<L> {
    pub(crate) fn upgradable(&self, wait: Wait) -> Result<(), Trouble> {
        let this = this_thread();
        self.refuse_for_owner(this, wait)?;
        wait.with(|| self.lock.try_upgradable(), |deadline| self.lock.upgradable(deadline))?;
        self.owner.store(this | UPGRADABLE, Relaxed);
        Ok(())
    }

    pub(crate) fn unlock_upgradable(&self) -> Result<(), Trouble> {
        self.must_hold(UPGRADABLE)?;
        self.owner.store(0, Relaxed);
        // SAFETY: by invariant 1 this thread holds it upgradable.
        unsafe { self.lock.unlock_upgradable() };
        Ok(())
    }

    pub(crate) fn upgrade(&self, wait: Wait) -> Result<(), Trouble> {
        self.must_hold(UPGRADABLE)?;
        wait.with(
            // SAFETY: by invariant 1 this thread holds it upgradable, here and below; also after an attempt
            // that failed.
            || unsafe { self.lock.try_upgrade() },
            // SAFETY: as above.
            |deadline| unsafe { self.lock.upgrade(deadline) },
        )?;
        self.owner.store(this_thread(), Relaxed);
        Ok(())
    }

    /// To reading, from either.
    pub(crate) fn downgrade(&self) -> Result<(), Trouble> {
        let is_upgradable = self.must_hold(UPGRADABLE).is_ok();
        if !is_upgradable {
            self.must_hold(0)?;
        }
        self.owner.store(0, Relaxed);
        // SAFETY: by invariant 1 this thread holds it so.
        unsafe {
            match is_upgradable {
                true => self.lock.downgrade_upgradable(),
                false => self.lock.downgrade_to_read(),
            }
        }
        Ok(())
    }

    pub(crate) fn downgrade_to_upgradable(&self) -> Result<(), Trouble> {
        self.must_hold(0)?;
        self.owner.store(this_thread() | UPGRADABLE, Relaxed);
        // SAFETY: by invariant 1 this thread holds it for writing.
        unsafe { self.lock.downgrade_to_upgradable() };
        Ok(())
    }

    /// Releases it, in whichever way the thread holds it.
    ///
    /// # Safety
    /// As [`unlock_read`](Self::unlock_read).
    #[inline(always)]
    pub(crate) unsafe fn unlock(&self) -> Result<(), Trouble> {
        match self.owner.load(Relaxed) {
            // SAFETY: the caller promises that this thread reads, or nobody does and nobody has just begun to
            // write.
            0 => unsafe { self.unlock_read() },
            owner if owner == this_thread() => self.unlock_write(),
            owner if owner == this_thread() | UPGRADABLE => self.unlock_upgradable(),
            // SAFETY: as above.
            _ => unsafe { self.unlock_read() },
        }
    }
}
