//! A mutex that the thread that holds it may lock again. What it guarantees is written at
//! [`ReentrantMutex`].
//!
//! How it works: a [`RawMutex`], the number of the thread that holds it, and how often that thread
//! does. A thread that finds its own number counts; everybody else waits for the mutex. The last
//! release clears the number and releases the mutex.
//!
//! Why it is right: the invariants below. What it costs: a thread's first acquisition is that of
//! the mutex and a store, and each further one a load and a plain addition. The number is that of a
//! thread-local variable without a destructor, so there is always one, also in destructors of other
//! such variables.
//!
//! Not for: condition variables. A wait would release the mutex once, however often its thread
//! holds it.
//!
//! Invariants
//! 1. `owner` is a thread's number only while that thread holds the mutex, and only that thread
//!    writes it then. So a thread that finds its own number holds the mutex, and one that does not
//!    hold it never finds its own.
//! 2. `count` is how often the owner holds the lock. Only the holder of the mutex touches it.
//! 3. No two threads of a process have the same number, also if one has ended, and also after a
//!    `fork`: the only thread of the child keeps its number, and new ones get numbers that were not
//!    given to anybody before.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::face::lock_with_data;
use crate::guard::{Borrowed, Guard, Lock, Owned, Part, Through};
use crate::held::Wanted;
use crate::hold::{ExclusiveHold, Limit, Reentrant};
#[cfg(loom)]
use crate::modelled::{RawMutex, this_thread};
#[cfg(not(loom))]
use crate::mutex::RawMutex;
use crate::platform::{AtomicCell, Os, PlainCell, Platform};
use crate::raw::GuardStaysOnItsThread;
use crate::raw::{RawLock, Wait};

/// The protocol of a [`ReentrantMutex`], without guards: threads are told apart by numbers of their
/// callers' choice, other than 0. Use a [`ReentrantMutex`] where you can.
///
/// # Examples
/// ```
/// use fairlock::reentrant::RawReentrantMutex;
/// static LOCK: RawReentrantMutex = RawReentrantMutex::NEW;
/// // SAFETY: only this thread calls itself 1, and it releases as often as it has acquired.
/// unsafe {
///     assert!(LOCK.acquire(1, None));
///     assert!(LOCK.try_acquire(1));
///     LOCK.release(1);
///     LOCK.release(1);
/// }
/// assert!(!LOCK.is_locked());
/// ```
pub struct RawReentrantMutex<P: Platform = Os> {
    mutex: RawMutex<P>,
    /// The number of the thread that holds the mutex, 0 if nobody does.
    owner: P::AtomicU64,
    count: P::Cell<u32>,
}

#[cfg(not(loom))]
const _: () =
    assert!(size_of::<RawReentrantMutex>() <= 32 + size_of::<crate::hold::IdentityOf<Os>>());

// SAFETY: only the holder of the mutex touches the plain cell (invariant 2); everything else is
// atomic.
unsafe impl<P: Platform> Sync for RawReentrantMutex<P> {}
// SAFETY: as `RawMutex`; a count and a number belong to no thread's memory.
unsafe impl<P: Platform> Send for RawReentrantMutex<P> {}

impl<P: Platform> RawReentrantMutex<P> {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub const NEW: Self =
        RawReentrantMutex { mutex: RawMutex::NEW, owner: P::AtomicU64::ZERO, count: P::Cell::ZERO };

    /// Acquires the lock. False if the `deadline` passed, a moment of [`Platform::now`], in ns.
    ///
    /// # Panics
    /// If the thread holds the lock 4,294,967,295 times already. Nothing has changed then.
    ///
    /// # Safety
    /// `me` is not 0, and is the number of no other thread that uses this lock.
    #[inline]
    #[track_caller]
    pub unsafe fn acquire(&self, me: u64, deadline: Option<u64>) -> bool {
        self.enter(me, Wait::until(deadline))
    }

    /// As [`acquire`](Self::acquire), without waiting.
    ///
    /// # Panics
    /// As [`acquire`](Self::acquire).
    ///
    /// # Safety
    /// As [`acquire`](Self::acquire).
    #[inline]
    #[track_caller]
    pub unsafe fn try_acquire(&self, me: u64) -> bool {
        self.enter(me, Wait::Not)
    }

    /// The hold of the mutex is forgotten here; the last release makes it again.
    #[inline]
    #[track_caller]
    fn enter(&self, me: u64, wait: Wait) -> bool {
        if self.is_owned_by(me) {
            let Some(count) = self.count.get().checked_add(1) else {
                too_often();
            };
            self.count.set(count);
            return true;
        }
        let is_inside = ExclusiveHold::acquire_within(&self.mutex, wait).is_some();
        if is_inside {
            // Relaxed: to other threads it is but a number that is not theirs (invariant 1).
            self.owner.store(me, Relaxed);
            self.count.set(1);
        }
        is_inside
    }

    /// Undoes one acquisition. The last one releases the mutex.
    ///
    /// # Safety
    /// The thread with the number `me` is the calling one, and holds the lock.
    #[inline]
    pub unsafe fn release(&self, me: u64) {
        // SAFETY: as the caller promises.
        unsafe { self.leave(me, false) };
    }

    /// As [`release`](Self::release); the last one hands the mutex to the oldest waiter.
    ///
    /// # Safety
    /// As [`release`](Self::release).
    #[inline]
    pub unsafe fn release_fair(&self, me: u64) {
        // SAFETY: as the caller promises.
        unsafe { self.leave(me, true) };
    }

    /// # Safety
    /// As [`release`](Self::release).
    #[inline]
    unsafe fn leave(&self, me: u64, fair: bool) {
        // After a panic it is unknown under Loom whose guards are dropped.
        let may_be_unknown = cfg!(loom) && std::thread::panicking();
        debug_assert!(may_be_unknown || self.is_owned_by(me), "only the owner releases");
        let count = self.count.get() - 1;
        self.count.set(count);
        if count == 0 {
            self.owner.store(0, Relaxed);
            // SAFETY: this thread holds it, as the caller promises, and its hold was forgotten by
            // `enter`.
            unsafe { ExclusiveHold::recover(&self.mutex).release(&self.mutex, fair) };
        }
    }

    /// Whether some thread holds the lock.
    pub fn is_locked(&self) -> bool {
        self.mutex.is_locked()
    }

    /// Whether the thread with this number holds the lock, if it is the calling one.
    #[inline]
    pub fn is_owned_by(&self, me: u64) -> bool {
        // Relaxed: nobody else writes this thread's number or overwrites it (invariant 1).
        self.owner.load(Relaxed) == me
    }
}

// SAFETY: one thread at a time holds the mutex, until it has released it as often as it has
// acquired it. Its guards are in the mode `Reentrant`, which gives shared access only. The mutex
// promises everything else.
unsafe impl RawLock for RawReentrantMutex {
    type Platform = Os;
    type Residence = GuardStaysOnItsThread;
    const WANTED: Wanted = Wanted::Lock;
    /// The mutex is.
    const IS_CHECKED: bool = false;

    #[inline]
    #[track_caller]
    fn write(&self, wait: Wait) -> bool {
        // The number is that of the calling thread alone.
        self.enter(this_thread(), wait)
    }
    #[inline]
    unsafe fn unlock_write(&self, fair: bool) {
        // SAFETY: as the caller promises; the number is that of the calling thread.
        unsafe { self.leave(this_thread(), fair) };
    }
    fn is_locked(&self) -> bool {
        self.mutex.is_locked()
    }
    fn id(&self) -> *const () {
        self.mutex.id()
    }
}

#[cold]
#[track_caller]
fn too_often() -> ! {
    panic!(
        "this thread holds the ReentrantMutex {} times already, the most that is counted: drop guards that are not needed",
        u32::MAX
    )
}

/// The calling thread's number (invariant 3).
#[cfg(not(loom))]
#[inline]
fn this_thread() -> u64 {
    use core::cell::Cell;
    use core::sync::atomic::AtomicU64;

    thread_local! {
        // Without a destructor: it can be used until the very end of the thread.
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    #[cold]
    fn next() -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Does not wrap: a thread that starts each nanosecond would take 584 years.
        LAST.fetch_add(1, Relaxed) + 1
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(next());
        }
        number.get()
    })
}

/// A mutual exclusion lock that the thread that holds it may lock again.
///
/// As several guards of one thread can exist at once, they give `&T` only. Put a `Cell` or a
/// [`RefCell`](core::cell::RefCell) around what changes. It is 32 bytes in addition to the data, and
/// usable in statics. The methods are those of parking_lot's.
///
/// A function that locks what its caller may have locked is easier to understand if it takes the
/// data as a parameter instead; a plain [`Mutex`](crate::Mutex) does then.
///
/// # Guarantees
/// * One thread at a time has access to the data, from its first acquisition until all its guards
///   are gone, in whichever order they are dropped.
/// * A thread that holds the lock acquires it again at once, also past waiters.
/// * Among threads the [guarantees of `Mutex`](crate::Mutex#guarantees) hold.
/// * It works until the end of a thread, also in destructors of thread-local variables. What a
///   thread has not released when it ends stays locked: no later thread counts as the same one.
/// * In the child of a `fork`, the forking thread still holds what it held. What other threads held
///   stays locked. The child must not release one for which another thread waited: its node is on a
///   stack that the child does not have.
///
/// # Panics
/// Functions that acquire the lock panic if their thread holds it 4,294,967,295 times already.
/// Nothing has changed then.
///
/// # Examples
/// ```
/// use fairlock::ReentrantMutex;
/// use std::cell::RefCell;
///
/// static LOG: ReentrantMutex<RefCell<Vec<&str>>> = ReentrantMutex::new(RefCell::new(Vec::new()));
///
/// fn note(line: &'static str) {
///     LOG.lock().borrow_mut().push(line);
/// }
///
/// let log = LOG.lock(); // No other thread's lines come in between.
/// note("first");
/// note("second");
/// assert_eq!(*log.borrow(), ["first", "second"]);
/// ```
/// The data need not be `Sync`, but `Send`:
/// ```compile_fail,E0277
/// use fairlock::ReentrantMutex;
/// use std::rc::Rc;
/// static COUNTED: ReentrantMutex<Option<Rc<u8>>> = ReentrantMutex::new(None);
/// ```
/// A guard stays on its thread:
/// ```compile_fail,E0277
/// let lock = fairlock::ReentrantMutex::new(1);
/// std::thread::scope(|scope| {
///     let guard = lock.lock();
///     scope.spawn(move || drop(guard)); // GuardStaysOnItsThread cannot be sent between threads
/// });
/// ```
/// and gives no `&mut`:
/// ```compile_fail,E0594
/// let lock = fairlock::ReentrantMutex::new(1);
/// *lock.lock() = 2;
/// ```
pub struct ReentrantMutex<T: ?Sized> {
    raw: RawReentrantMutex,
    data: UnsafeCell<T>,
}

// SAFETY: `&T` is given to one thread at a time, which comes after the others (the mutex). That is
// like sending the data from thread to thread.
unsafe impl<T: ?Sized + Send> Sync for ReentrantMutex<T> {}

/// Access to a [`ReentrantMutex`]'s data; undoes one acquisition when dropped.
pub type ReentrantMutexGuard<'a, T> =
    Guard<Reentrant, Through<&'a ReentrantMutex<T>, T>, RawReentrantMutex>;

/// As [`ReentrantMutexGuard`], to a part of the data: what [`map`](Guard#method.map-1) returns.
///
/// ```
/// use fairlock::{ReentrantMutex, ReentrantMutexGuard};
/// let lock = ReentrantMutex::new((1, "x"));
/// let name = ReentrantMutexGuard::map(lock.lock(), |(_, name)| *name);
/// assert_eq!(&*name, "x");
/// ```
pub type MappedReentrantMutexGuard<'a, T> =
    Guard<Reentrant, Borrowed<'a, T, RawReentrantMutex, Part<&'a T>>, RawReentrantMutex>;

/// As [`ReentrantMutexGuard`], keeping the mutex alive itself.
pub type ArcReentrantMutexGuard<T> = Guard<Reentrant, Owned<ReentrantMutex<T>>, RawReentrantMutex>;

lock_with_data! {
    ReentrantMutex [] [], raw: RawReentrantMutex = RawReentrantMutex::NEW,
    free: new, lock: lock, try_lock: try_lock,
}

impl<T: ?Sized> ReentrantMutex<T> {
    /// Waits until no other thread holds the lock, and acquires it.
    ///
    /// ```
    /// let lock = fairlock::ReentrantMutex::new(1);
    /// let first = lock.lock();
    /// let second = lock.lock();
    /// drop(first);
    /// assert_eq!(*second, 1);
    /// ```
    ///
    /// # Panics
    /// If the thread holds it 4,294,967,295 times already.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> ReentrantMutexGuard<'_, T> {
        Guard::acquire(Through::new(self))
    }

    /// Acquires the lock unless another thread holds it.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<ReentrantMutexGuard<'_, T>> {
        Guard::try_acquire(Through::new(self))
    }

    /// As [`lock`](Self::lock), unless that takes longer. A duration that is too long for the clock
    /// means for ever.
    ///
    /// ```
    /// use std::time::Duration;
    /// let lock = fairlock::ReentrantMutex::new(());
    /// let held = lock.lock();
    /// assert!(lock.try_lock_for(Duration::ZERO).is_some());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| assert!(lock.try_lock_for(Duration::from_millis(1)).is_none()));
    /// });
    /// # drop(held);
    /// ```
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn try_lock_for(&self, timeout: Duration) -> Option<ReentrantMutexGuard<'_, T>> {
        Guard::acquire_within(Through::new(self), Limit::For(timeout))
    }

    /// As [`try_lock_for`](Self::try_lock_for), until this moment at most.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<ReentrantMutexGuard<'_, T>> {
        Guard::acquire_within(Through::new(self), Limit::Until(deadline))
    }

    /// As [`lock`](Self::lock), with a guard that keeps the mutex alive.
    ///
    /// ```
    /// use fairlock::ReentrantMutex;
    /// use std::sync::Arc;
    /// let guard = Arc::new(ReentrantMutex::new(1)).lock_arc();
    /// assert_eq!(*guard, 1);
    /// ```
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[inline]
    #[track_caller]
    pub fn lock_arc(self: &Arc<Self>) -> ArcReentrantMutexGuard<T> {
        Guard::acquire(self.share())
    }

    /// As [`try_lock`](Self::try_lock), with a guard that keeps the mutex alive.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[inline]
    #[track_caller]
    pub fn try_lock_arc(self: &Arc<Self>) -> Option<ArcReentrantMutexGuard<T>> {
        Guard::try_acquire(self.share())
    }

    /// As [`try_lock_for`](Self::try_lock_for), with a guard that keeps the mutex alive.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn try_lock_arc_for(
        self: &Arc<Self>,
        timeout: Duration,
    ) -> Option<ArcReentrantMutexGuard<T>> {
        Guard::acquire_within(self.share(), Limit::For(timeout))
    }

    /// As [`try_lock_until`](Self::try_lock_until), with a guard that keeps the mutex alive.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn try_lock_arc_until(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Option<ArcReentrantMutexGuard<T>> {
        Guard::acquire_within(self.share(), Limit::Until(deadline))
    }

    /// Whether the calling thread holds the lock.
    ///
    /// ```
    /// let lock = fairlock::ReentrantMutex::new(());
    /// assert!(!lock.is_owned_by_current_thread());
    /// let _guard = lock.lock();
    /// assert!(lock.is_owned_by_current_thread());
    /// ```
    pub fn is_owned_by_current_thread(&self) -> bool {
        self.raw.is_owned_by(this_thread())
    }

    /// A guard in place of one that was forgotten.
    ///
    /// # Safety
    /// The calling thread has forgotten a guard, and no other guard was made of that since.
    ///
    /// # Examples
    /// ```
    /// let lock = fairlock::ReentrantMutex::new(1);
    /// std::mem::forget(lock.lock());
    /// // SAFETY: the guard was forgotten above.
    /// drop(unsafe { lock.make_guard_unchecked() });
    /// assert!(!lock.is_locked());
    /// ```
    pub unsafe fn make_guard_unchecked(&self) -> ReentrantMutexGuard<'_, T> {
        // SAFETY: as the caller promises.
        unsafe { Guard::recover(Through::new(self)) }
    }

    /// As [`make_guard_unchecked`](Self::make_guard_unchecked), with an [`Arc`] of the mutex.
    ///
    /// # Safety
    /// As for that function.
    pub unsafe fn make_arc_guard_unchecked(self: &Arc<Self>) -> ArcReentrantMutexGuard<T> {
        // SAFETY: as the caller promises.
        unsafe { Guard::recover(self.share()) }
    }

    /// Undoes one acquisition, whose guard was forgotten.
    ///
    /// # Safety
    /// As [`make_guard_unchecked`](Self::make_guard_unchecked).
    pub unsafe fn force_unlock(&self) {
        // SAFETY: as the caller promises.
        drop(unsafe { self.make_guard_unchecked() });
    }

    /// As [`force_unlock`](Self::force_unlock), by a [fair
    /// unlock](ReentrantMutexGuard::unlock_fair).
    ///
    /// # Safety
    /// As [`make_guard_unchecked`](Self::make_guard_unchecked).
    pub unsafe fn force_unlock_fair(&self) {
        // SAFETY: as the caller promises.
        Guard::unlock_fair(unsafe { self.make_guard_unchecked() });
    }
}

impl<'a, T: ?Sized> ReentrantMutexGuard<'a, T> {
    /// The mutex.
    pub fn remutex(guard: &Self) -> &'a ReentrantMutex<T> {
        guard.place().lock()
    }
}

impl<T: ?Sized> ArcReentrantMutexGuard<T> {
    /// The mutex.
    pub fn remutex(guard: &Self) -> &Arc<ReentrantMutex<T>> {
        guard.place().lock()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    #[cfg(unix)]
    use std::sync::{Barrier, atomic::AtomicBool};
    use std::thread;

    use super::*;
    #[cfg(unix)]
    use crate::child_process::{ChildThread, Ending, first_wrong, in_child_process};

    type Raw = RawReentrantMutex<Os>;

    const ME: u64 = 1;
    const OTHER: u64 = 2;

    fn acquired(lock: &Raw, me: u64) -> bool {
        // SAFETY: the tests' one thread plays both parts, and only one of them acquires the lock.
        unsafe { lock.try_acquire(me) }
    }

    #[test]
    fn the_lock_is_free_after_as_many_releases_as_acquisitions() {
        let lock = Raw::NEW;
        for _ in 0..3 {
            assert!(acquired(&lock, ME));
            assert!(!acquired(&lock, OTHER));
        }
        for _ in 0..3 {
            assert!(lock.is_owned_by(ME));
            assert!(!lock.is_owned_by(OTHER));
            // SAFETY: acquired three times.
            unsafe { lock.release(ME) };
        }
        assert!(!lock.is_locked() && !lock.is_owned_by(ME));
        assert!(acquired(&lock, OTHER));
        // SAFETY: just acquired.
        unsafe { lock.release_fair(OTHER) };
        assert!(!lock.is_locked());
    }

    #[test]
    fn one_acquisition_too_many_panics_and_changes_nothing() {
        let lock = Raw::NEW;
        assert!(acquired(&lock, ME));
        lock.count.set(u32::MAX);
        let refused = catch_unwind(AssertUnwindSafe(|| acquired(&lock, ME)));
        let refused = refused.expect_err("it is refused");
        let message = refused.downcast_ref::<String>().expect("a message");
        assert!(message.contains("4294967295 times"), "{message}");
        assert_eq!(lock.count.get(), u32::MAX);
        lock.count.set(1);
        // SAFETY: acquired once.
        unsafe { lock.release(ME) };
        assert!(!lock.is_locked());
    }

    #[test]
    fn a_failed_attempt_leaves_no_trace() {
        let lock = Raw::NEW;
        assert!(acquired(&lock, ME));
        // SAFETY: as in `acquired`.
        assert!(!unsafe { lock.acquire(OTHER, Some(0)) });
        assert!(lock.is_owned_by(ME));
        assert_eq!(lock.count.get(), 1);
        // SAFETY: acquired once.
        unsafe { lock.release(ME) };
    }

    #[test]
    fn threads_have_numbers_of_their_own_for_good() {
        let mine = this_thread();
        let ended = thread::spawn(this_thread).join().unwrap();
        let next = thread::spawn(this_thread).join().unwrap();
        assert_eq!(this_thread(), mine);
        assert!(mine != ended && ended != next && next != mine && mine != 0);
    }

    #[cfg(unix)]
    #[cfg_attr(miri, ignore = "Miri has no fork")]
    #[test]
    fn the_child_of_a_fork_holds_what_the_forking_thread_held() {
        let (mine, others) = (ReentrantMutex::new(()), ReentrantMutex::new(()));
        let guard = mine.lock();
        let forked = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _guard = others.lock();
                forked.wait();
                forked.wait();
            });
            forked.wait();
            let ending = in_child_process(|| {
                let again = mine.try_lock();
                let holds_again = again.is_some();
                drop((again, guard));
                // Its thread gets a number that nobody had before the fork.
                let is_refused = || others.try_lock().is_none();
                let by_another = AtomicBool::new(false);
                drop(ChildThread::start(|| by_another.store(is_refused(), Relaxed)));
                first_wrong(&[
                    holds_again,
                    !mine.is_locked(),
                    is_refused(),
                    !others.is_owned_by_current_thread(),
                    by_another.into_inner(),
                ])
            });
            forked.wait();
            assert_eq!(ending, Ending::Exited(0));
        });
    }
}
