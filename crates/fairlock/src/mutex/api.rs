//! The public face: [`Mutex`] and the names of its guards.

use core::cell::UnsafeCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(not(loom))]
use super::RawMutex;
use crate::events::Snapshot;
use crate::face::{lock_of_values, lock_with_data};
use crate::guard::{Borrowed, Exclusive, Guard, Lock, Owned, Part, Writing};
use crate::hold::Limit;
#[cfg(loom)]
use crate::modelled::RawMutex;
use crate::platform::{Os, Platform};
use crate::raw::RawLock;

/// A mutual exclusion lock: one thread at a time has access to the data.
///
/// Uncontended, it takes one atomic operation to lock and one to unlock. It is 16 bytes in addition
/// to the data, and usable in statics. A thread that finds it held spins for a few µs, and
/// yields where that pays, before it sleeps. A running thread may take the lock past threads that sleep, which keeps the
/// lock busy during wake-ups, but only for a limited time.
///
/// # Guarantees
/// * Waiting threads queue in the order of their arrival. Others can pass the oldest waiter only
///   until it has waited for [`HANDOFF_AFTER_NS`](crate::policy::HANDOFF_AFTER_NS). When it next
///   runs after that and finds the lock taken, it reserves the lock, and the owner's unlock hands
///   it over.
/// * [`MutexGuard::unlock_fair`](crate::guard::ExclusiveGuard::unlock_fair) hands the lock to the
///   oldest waiter right away. A thread that still spins or yields does not count as a waiter.
/// * A timed acquisition that fails leaves no trace. It may end late by the rest of its spin and by
///   the time that the scheduler takes to run it.
/// * No poisoning: a panic releases the lock through its guard.
/// * Not recursive: a thread that locks it twice waits for itself for ever. Debug builds panic
///   instead. See [`ReentrantMutex`](crate::ReentrantMutex).
/// * Guards [cannot be sent to another thread](crate::guard).
/// * In the child of a `fork`, do not release one for which another thread waited: its node is on a
///   stack that the child does not have.
///
/// # Examples
/// ```
/// use fairlock::Mutex;
/// use std::time::Duration;
///
/// static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
///
/// LINES.lock().push("first".into());
/// let lines = LINES.lock();
/// assert_eq!(lines.len(), 1);
/// assert!(LINES.try_lock().is_none());
/// drop(lines);
/// assert!(LINES.try_lock_for(Duration::from_millis(1)).is_some());
/// ```
/// On another [platform](crate::platform), write the type out:
/// ```
/// use fairlock::{Mutex, platform::Counting};
/// let counted: Mutex<u8, Counting> = Mutex::new_in(0);
/// assert!(!counted.is_locked());
/// ```
pub struct Mutex<T: ?Sized, P: Platform = Os> {
    raw: RawMutex<P>,
    data: UnsafeCell<T>,
}

/// Access to a [`Mutex`]'s data; releases when dropped. Made by [`Mutex::lock`] and its like.
///
/// [Stays on its thread](crate::guard).
pub type MutexGuard<'a, T, P = Os> =
    Guard<Exclusive, Borrowed<'a, T, RawMutex<P>, Writing<'a, T>>, RawMutex<P>>;
/// Access to a part of a [`Mutex`]'s data; releases the whole lock when dropped. Made by
/// [`MutexGuard::map`](Guard#method.map-2).
pub type MappedMutexGuard<'a, T, P = Os> =
    Guard<Exclusive, Borrowed<'a, T, RawMutex<P>, Part<&'a mut T>>, RawMutex<P>>;
/// As [`MutexGuard`], with an [`Arc`] of the lock instead of a borrow. Made by [`Mutex::lock_arc`]
/// and its like.
pub type ArcMutexGuard<T, P = Os> = Guard<Exclusive, Owned<Mutex<T, P>>, RawMutex<P>>;

/// The [events](crate::events) of a [`Mutex`] so far; all zero on a platform that does not count.
///
/// ```
/// use fairlock::{Mutex, events::Event, mutex, platform::Counting};
/// let lock: Mutex<u32, Counting> = Mutex::new_in(0);
/// *lock.lock() += 1;
/// assert_eq!(mutex::events(&lock).get(Event::MutexSleep), 0); // no thread waited
/// ```
pub fn events<T: ?Sized, P: Platform>(lock: &Mutex<T, P>) -> Snapshot {
    lock.raw.events()
}

lock_with_data! {
    Mutex [P: Platform] [P], raw: RawMutex<P> = RawMutex::NEW,
    free: new_in, lock: lock, try_lock: try_lock,
}

lock_of_values! {
    Mutex [P: Platform] [P], raw: RawMutex<P>, example: "Mutex",
    lock: lock, lock_mut: lock,
}

impl<T: ?Sized, P: Platform> Mutex<T, P> {
    /// Acquires the lock. Waits for as long as it takes.
    ///
    /// # Panics
    /// In debug builds, if this thread holds the lock already: it would wait for itself for ever.
    ///
    /// # Examples
    /// ```
    /// let lock = fairlock::Mutex::new(1);
    /// *lock.lock() += 1;
    /// assert_eq!(*lock.lock(), 2);
    /// ```
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T, P> {
        Guard::acquire(self.borrow())
    }

    /// As [`lock`](Self::lock), if that needs no waiting.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, P>> {
        Guard::try_acquire(self.borrow())
    }

    /// As [`lock`](Self::lock), but gives up after `timeout`.
    #[track_caller]
    pub fn try_lock_for(&self, timeout: Duration) -> Option<MutexGuard<'_, T, P>> {
        Guard::acquire_within(self.borrow(), Limit::For(timeout))
    }

    /// As [`lock`](Self::lock), but gives up at `instant`.
    #[track_caller]
    pub fn try_lock_until(&self, instant: Instant) -> Option<MutexGuard<'_, T, P>> {
        Guard::acquire_within(self.borrow(), Limit::Until(instant))
    }
}

impl<T, P: Platform> Mutex<T, P> {
    /// A free lock whose type says its platform; [`new`](Mutex::new) makes the default one.
    #[must_use]
    pub const fn new_in(value: T) -> Self {
        Mutex { raw: RawMutex::NEW, data: UnsafeCell::new(value) }
    }
}

/// With guards that own an [`Arc`] of the lock.
impl<T: ?Sized, P: Platform> Mutex<T, P> {
    /// As [`lock`](Self::lock).
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// let lock = Arc::new(fairlock::Mutex::new(1));
    /// let mut guard = lock.lock_arc();
    /// drop(lock);
    /// *guard += 1;
    /// ```
    #[track_caller]
    pub fn lock_arc(self: &Arc<Self>) -> ArcMutexGuard<T, P> {
        Guard::acquire(self.share())
    }

    /// As [`try_lock`](Self::try_lock).
    #[track_caller]
    pub fn try_lock_arc(self: &Arc<Self>) -> Option<ArcMutexGuard<T, P>> {
        Guard::try_acquire(self.share())
    }

    /// As [`try_lock_for`](Self::try_lock_for).
    #[track_caller]
    pub fn try_lock_arc_for(self: &Arc<Self>, timeout: Duration) -> Option<ArcMutexGuard<T, P>> {
        Guard::acquire_within(self.share(), Limit::For(timeout))
    }

    /// As [`try_lock_until`](Self::try_lock_until).
    #[track_caller]
    pub fn try_lock_arc_until(self: &Arc<Self>, instant: Instant) -> Option<ArcMutexGuard<T, P>> {
        Guard::acquire_within(self.share(), Limit::Until(instant))
    }
}

/// Without guards, and after guards were forgotten.
impl<T: ?Sized, P: Platform> Mutex<T, P> {
    /// A guard in place of one that was forgotten.
    ///
    /// # Safety
    /// The calling thread has forgotten the guard, and no other guard was made of it since.
    ///
    /// # Examples
    /// ```
    /// let lock = fairlock::Mutex::new(1);
    /// std::mem::forget(lock.lock());
    /// // SAFETY: the guard was forgotten above.
    /// drop(unsafe { lock.make_guard_unchecked() });
    /// assert!(lock.try_lock().is_some());
    /// ```
    pub unsafe fn make_guard_unchecked(&self) -> MutexGuard<'_, T, P> {
        // SAFETY: as the caller promises.
        unsafe { Guard::recover(self.borrow()) }
    }

    /// As [`make_guard_unchecked`](Self::make_guard_unchecked), with an [`Arc`] of the lock.
    ///
    /// # Safety
    /// As for that function.
    pub unsafe fn make_arc_guard_unchecked(self: &Arc<Self>) -> ArcMutexGuard<T, P> {
        // SAFETY: as the caller promises.
        unsafe { Guard::recover(self.share()) }
    }

    /// Releases the lock after its guard was forgotten.
    ///
    /// # Safety
    /// As [`make_guard_unchecked`](Self::make_guard_unchecked).
    pub unsafe fn force_unlock(&self) {
        // SAFETY: as the caller promises.
        drop(unsafe { self.make_guard_unchecked() });
    }

    /// As [`force_unlock`](Self::force_unlock), by a [fair unlock](Guard::unlock_fair).
    ///
    /// # Safety
    /// As [`make_guard_unchecked`](Self::make_guard_unchecked).
    pub unsafe fn force_unlock_fair(&self) {
        // SAFETY: as the caller promises.
        Guard::unlock_fair(unsafe { self.make_guard_unchecked() });
    }
}

// SAFETY: the lock gives access to the data to one thread at a time.
unsafe impl<T: ?Sized + Send, P: Platform> Send for Mutex<T, P> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send, P: Platform> Sync for Mutex<T, P> {}
