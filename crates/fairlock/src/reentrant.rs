//! A mutex that the thread that holds it may lock again. What it guarantees is written at [`ReentrantMutex`].
//!
//! How it works: a [`RawMutex`], the number of the thread that holds it, and how often that thread does. A thread that
//! finds its own number counts; everybody else waits for the mutex. The last release clears the number and releases the
//! mutex.
//!
//! Why it is right: the invariants below. What it costs: a thread's first acquisition is that of the mutex and a store,
//! and each further one a load and a plain addition. The number is that of a thread-local variable without a
//! destructor, so there is always one, also in destructors of other such variables.
//!
//! Not for: condition variables. A wait would release the mutex once, however often its thread holds it.
//!
//! Invariants
//! 1. `owner` is a thread's number only while that thread holds the mutex, and only that thread writes it then. So a
//!    thread that finds its own number holds the mutex, and one that does not hold it never finds its own.
//! 2. `count` is how often the owner holds the lock. Only the holder of the mutex touches it.
//! 3. No two threads of a process have the same number, also if one has ended, and also after a `fork`: the only thread
//!    of the child keeps its number, and new ones get numbers that were not given to anybody before.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, forget};
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::guard::WithoutHold;
use crate::guarded::{Exclusive, ExclusiveHold};
#[cfg(loom)]
use crate::modelled::{RawMutex, this_thread};
#[cfg(not(loom))]
use crate::mutex::RawMutex;
use crate::platform::{AtomicCell, Os, PlainCell, Platform, after, until};

/// The protocol of a [`ReentrantMutex`], without guards: threads are told apart by numbers of their callers' choice,
/// other than 0. Use a [`ReentrantMutex`] where you can.
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
    assert!(size_of::<RawReentrantMutex>() <= 40 + size_of::<crate::guarded::IdentityOf<Os>>());

// SAFETY: only the holder of the mutex touches the plain cell (invariant 2); everything else is atomic.
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
        self.enter_again(me) || self.enter(me, ExclusiveHold::acquire_until(&self.mutex, deadline))
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
        self.enter_again(me) || self.enter(me, ExclusiveHold::try_acquire(&self.mutex))
    }

    /// False if this thread does not hold the lock yet.
    #[inline]
    #[track_caller]
    fn enter_again(&self, me: u64) -> bool {
        let is_inside = self.is_owned_by(me);
        if is_inside {
            let Some(count) = self.count.get().checked_add(1) else {
                too_often();
            };
            self.count.set(count);
        }
        is_inside
    }

    /// False if this thread has not got the mutex. Its hold is forgotten here; the last release makes it again.
    #[inline]
    fn enter(&self, me: u64, hold: Option<ExclusiveHold<RawMutex<P>>>) -> bool {
        let is_inside = hold.is_some();
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
        if self.leave(me) {
            // SAFETY: this thread holds it, as the caller promises, and its hold was forgotten by `enter`.
            unsafe { ExclusiveHold::recover(&self.mutex).release(&self.mutex) };
        }
    }

    /// As [`release`](Self::release); the last one hands the mutex to the oldest waiter.
    ///
    /// # Safety
    /// As [`release`](Self::release).
    #[inline]
    pub unsafe fn release_fair(&self, me: u64) {
        if self.leave(me) {
            // SAFETY: this thread holds it, as the caller promises, and its hold was forgotten by `enter`.
            unsafe { ExclusiveHold::recover(&self.mutex).release_fair(&self.mutex) };
        }
    }

    /// True if that was the last time.
    #[inline]
    fn leave(&self, me: u64) -> bool {
        // After a panic nobody can say under Loom whose guards are dropped.
        let may_be_unknown = cfg!(loom) && std::thread::panicking();
        debug_assert!(may_be_unknown || self.is_owned_by(me), "only the owner releases");
        let count = self.count.get() - 1;
        self.count.set(count);
        let is_last = count == 0;
        if is_last {
            self.owner.store(0, Relaxed);
        }
        is_last
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
/// [`RefCell`](core::cell::RefCell) around what is to be changed. It is 40 bytes beside the data, and usable in
/// statics. The methods are those of parking_lot's.
///
/// A function that locks what its caller may have locked is easier to understand if it takes the data as a
/// parameter instead; a plain [`Mutex`](crate::Mutex) does then.
///
/// # Guarantees
/// * One thread at a time has access to the data, from its first acquisition until all its guards are gone, in
///   whichever order they are dropped.
/// * A thread that holds the lock acquires it again at once, also past waiters.
/// * Among threads the [guarantees of `Mutex`](crate::Mutex#guarantees) hold.
/// * It works until the end of a thread, also in destructors of thread-local variables. What a thread has not released
///   when it ends stays locked: no later thread counts as the same one.
/// * In the child of a `fork`, the forking thread still holds what it held. What other threads held stays locked. The child
///   must not release one for which another thread waited: its node is on a stack that the child does not have.
///
/// # Panics
/// Functions that acquire the lock panic if their thread holds it 4,294,967,295 times already. Nothing has changed
/// then.
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

// SAFETY: `&T` is given to one thread at a time, which comes after the others (the mutex). That is like sending the
// data from thread to thread.
unsafe impl<T: ?Sized + Send> Sync for ReentrantMutex<T> {}

/// Why a guard cannot be sent: the mutex counts how often its own thread has locked it.
struct GuardStaysOnItsThread(#[allow(dead_code)] PhantomData<*mut ()>);

const STAYS: GuardStaysOnItsThread = GuardStaysOnItsThread(PhantomData);

/// Access to a [`ReentrantMutex`]'s data; undoes one acquisition when dropped.
#[must_use = "the mutex is released at once if the guard is not kept"]
pub struct ReentrantMutexGuard<'a, T: ?Sized> {
    mutex: &'a ReentrantMutex<T>,
    _stays: GuardStaysOnItsThread,
}

/// As [`ReentrantMutexGuard`], to a part of the data: what [`map`](ReentrantMutexGuard::map) returns.
#[must_use = "the mutex is released at once if the guard is not kept"]
pub struct MappedReentrantMutexGuard<'a, T: ?Sized> {
    raw: &'a RawReentrantMutex,
    data: &'a T,
    _stays: GuardStaysOnItsThread,
}

/// As [`ReentrantMutexGuard`], keeping the mutex alive itself.
#[must_use = "the mutex is released at once if the guard is not kept"]
pub struct ArcReentrantMutexGuard<T: ?Sized> {
    mutex: Arc<ReentrantMutex<T>>,
    _stays: GuardStaysOnItsThread,
}

// SAFETY: another thread gets `&T` from it, and a mutex that gives it no more.
unsafe impl<T: ?Sized + Sync> Sync for ReentrantMutexGuard<'_, T> {}
// SAFETY: another thread gets `&T` from it.
unsafe impl<T: ?Sized + Sync> Sync for MappedReentrantMutexGuard<'_, T> {}
// SAFETY: another thread gets `&T` from it, and the `Arc`, whose last clone drops the data.
unsafe impl<T: ?Sized + Send + Sync> Sync for ArcReentrantMutexGuard<T> {}

impl<T> ReentrantMutex<T> {
    /// A free lock over `data`.
    ///
    /// ```
    /// use fairlock::ReentrantMutex;
    /// static NAME: ReentrantMutex<&str> = ReentrantMutex::new("x");
    /// assert_eq!(*NAME.lock(), "x");
    /// ```
    pub const fn new(data: T) -> Self {
        ReentrantMutex { raw: RawReentrantMutex::NEW, data: UnsafeCell::new(data) }
    }

    /// The data. No lock is needed, as nobody else has access.
    ///
    /// ```
    /// assert_eq!(fairlock::ReentrantMutex::new(7).into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> ReentrantMutex<T> {
    fn guard(&self) -> ReentrantMutexGuard<'_, T> {
        ReentrantMutexGuard { mutex: self, _stays: STAYS }
    }

    /// By the platform's deadline, if any.
    #[inline]
    #[track_caller]
    fn acquire(&self, deadline: Option<u64>) -> bool {
        // SAFETY: the number is that of the calling thread alone.
        unsafe { self.raw.acquire(this_thread(), deadline) }
    }

    #[inline]
    #[track_caller]
    fn try_acquire(&self) -> bool {
        // SAFETY: the number is that of the calling thread alone.
        unsafe { self.raw.try_acquire(this_thread()) }
    }

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
        let acquired = self.acquire(None);
        debug_assert!(acquired, "without a deadline a wait ends with the lock");
        self.guard()
    }

    /// Acquires the lock unless another thread holds it.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<ReentrantMutexGuard<'_, T>> {
        self.try_acquire().then(|| self.guard())
    }

    /// As [`lock`](Self::lock), unless that takes longer. A duration that is too long for the clock means for ever.
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
        self.acquire(after::<Os>(timeout)).then(|| self.guard())
    }

    /// As [`try_lock_for`](Self::try_lock_for), until this moment at most.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<ReentrantMutexGuard<'_, T>> {
        self.acquire(until::<Os>(deadline)).then(|| self.guard())
    }

    fn guard_arc(self: &Arc<Self>) -> ArcReentrantMutexGuard<T> {
        ArcReentrantMutexGuard { mutex: Arc::clone(self), _stays: STAYS }
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
        let acquired = self.acquire(None);
        debug_assert!(acquired, "without a deadline a wait ends with the lock");
        self.guard_arc()
    }

    /// As [`try_lock`](Self::try_lock), with a guard that keeps the mutex alive.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[inline]
    #[track_caller]
    pub fn try_lock_arc(self: &Arc<Self>) -> Option<ArcReentrantMutexGuard<T>> {
        self.try_acquire().then(|| self.guard_arc())
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
        self.acquire(after::<Os>(timeout)).then(|| self.guard_arc())
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
        self.acquire(until::<Os>(deadline)).then(|| self.guard_arc())
    }

    /// Whether a thread holds the lock.
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
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
        self.guard()
    }

    /// As [`make_guard_unchecked`](Self::make_guard_unchecked), with an [`Arc`] of the mutex.
    ///
    /// # Safety
    /// As for that function.
    pub unsafe fn make_arc_guard_unchecked(self: &Arc<Self>) -> ArcReentrantMutexGuard<T> {
        self.guard_arc()
    }

    /// Undoes one acquisition, whose guard was forgotten.
    ///
    /// # Safety
    /// As [`make_guard_unchecked`](Self::make_guard_unchecked).
    pub unsafe fn force_unlock(&self) {
        drop(self.guard());
    }

    /// As [`force_unlock`](Self::force_unlock), by a [fair unlock](ReentrantMutexGuard::unlock_fair).
    ///
    /// # Safety
    /// As [`make_guard_unchecked`](Self::make_guard_unchecked).
    pub unsafe fn force_unlock_fair(&self) {
        ReentrantMutexGuard::unlock_fair(self.guard());
    }

    /// Undoes one acquisition by `release`, and makes it again once `act` has run or panicked.
    ///
    /// # Safety
    /// `release` undoes an acquisition of this thread whose guard nobody uses until this returns.
    #[track_caller]
    unsafe fn release_during<U>(
        &self,
        release: unsafe fn(&RawReentrantMutex, u64),
        act: impl FnOnce() -> U,
    ) -> U {
        // SAFETY: as the caller promises; the number is that of the calling thread.
        unsafe { release(&self.raw, this_thread()) };
        let result = std::panic::catch_unwind(core::panic::AssertUnwindSafe(act));
        let without_hold = WithoutHold;
        let acquired = self.acquire(None);
        debug_assert!(acquired, "without a deadline a wait ends with the lock");
        forget(without_hold);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The data. No lock is needed, as nobody else has access.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// Where the data are. Reading them is safe while this thread holds the lock.
    pub fn data_ptr(&self) -> *mut T {
        self.data.get()
    }
}

impl<T: Default> Default for ReentrantMutex<T> {
    fn default() -> Self {
        ReentrantMutex::new(T::default())
    }
}

impl<T> From<T> for ReentrantMutex<T> {
    fn from(data: T) -> Self {
        ReentrantMutex::new(data)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for ReentrantMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ReentrantMutex");
        match self.try_lock() {
            Some(guard) => shown.field("data", &&*guard),
            None => shown.field("data", &format_args!("<locked>")),
        };
        shown.finish()
    }
}

/// Serializes the data, while the lock is held.
#[cfg(feature = "serde")]
impl<T: ?Sized + serde::Serialize> serde::Serialize for ReentrantMutex<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.lock().serialize(serializer)
    }
}

#[cfg(feature = "serde")]
impl<'de, T: serde::Deserialize<'de>> serde::Deserialize<'de> for ReentrantMutex<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::new)
    }
}

impl<'a, T: ?Sized> ReentrantMutexGuard<'a, T> {
    /// The mutex that it holds.
    pub fn remutex(guard: &Self) -> &'a ReentrantMutex<T> {
        guard.mutex
    }

    /// A guard for a part of the data. An associated function, so that it hides no method of the data.
    ///
    /// ```
    /// use fairlock::{ReentrantMutex, ReentrantMutexGuard};
    /// let lock = ReentrantMutex::new((1, "x"));
    /// let name = ReentrantMutexGuard::map(lock.lock(), |(_, name)| *name);
    /// assert_eq!(&*name, "x");
    /// ```
    pub fn map<U: ?Sized, F>(guard: Self, part: F) -> MappedReentrantMutexGuard<'a, U>
    where
        F: FnOnce(&T) -> &U,
    {
        MappedReentrantMutexGuard::map(guard.whole(), part)
    }

    /// As [`map`](Self::map), if there is such a part.
    ///
    /// # Errors
    /// The guard, if there is none.
    pub fn try_map<U: ?Sized, F>(
        guard: Self,
        part: F,
    ) -> Result<MappedReentrantMutexGuard<'a, U>, Self>
    where
        F: FnOnce(&T) -> Option<&U>,
    {
        Self::try_map_or_err(guard, |data| part(data).ok_or(())).map_err(|(guard, ())| guard)
    }

    /// As [`try_map`](Self::try_map), and says why there is no such part.
    ///
    /// # Errors
    /// The guard, and what `part` says.
    pub fn try_map_or_err<U: ?Sized, F, E>(
        guard: Self,
        part: F,
    ) -> Result<MappedReentrantMutexGuard<'a, U>, (Self, E)>
    where
        F: FnOnce(&T) -> Result<&U, E>,
    {
        let mutex = guard.mutex;
        MappedReentrantMutexGuard::try_map_or_err(guard.whole(), part).map_err(|(whole, error)| {
            // It lives on in the guard.
            let _held = ManuallyDrop::new(whole);
            (mutex.guard(), error)
        })
    }

    /// A mapped guard for everything.
    fn whole(self) -> MappedReentrantMutexGuard<'a, T> {
        let mutex = ManuallyDrop::new(self).mutex;
        // SAFETY: this thread holds the mutex, and releases it with the new guard. Nobody has `&mut T` meanwhile.
        let data = unsafe { &*mutex.data.get() };
        MappedReentrantMutexGuard { raw: &mutex.raw, data, _stays: STAYS }
    }

    /// Undoes one acquisition. If it was this thread's last, the lock goes to the thread that has waited longest, and
    /// nobody can take it in between.
    pub fn unlock_fair(guard: Self) {
        let mutex = ManuallyDrop::new(guard).mutex;
        // SAFETY: held by the guard, whose own drop does not run.
        unsafe { mutex.raw.release_fair(this_thread()) };
    }
}

impl<T: ?Sized> Deref for ReentrantMutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this thread holds the mutex, and so may its other guards; none gives `&mut T`.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T: ?Sized> Drop for ReentrantMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: held since the guard was made, on this thread.
        unsafe { self.mutex.raw.release(this_thread()) };
    }
}

impl<'a, T: ?Sized> MappedReentrantMutexGuard<'a, T> {
    /// A guard for a part of this part.
    pub fn map<U: ?Sized, F>(guard: Self, part: F) -> MappedReentrantMutexGuard<'a, U>
    where
        F: FnOnce(&T) -> &U,
    {
        let data = part(guard.data);
        let raw = ManuallyDrop::new(guard).raw;
        MappedReentrantMutexGuard { raw, data, _stays: STAYS }
    }

    /// As [`map`](Self::map), if there is such a part.
    ///
    /// # Errors
    /// The guard, if there is none.
    pub fn try_map<U: ?Sized, F>(
        guard: Self,
        part: F,
    ) -> Result<MappedReentrantMutexGuard<'a, U>, Self>
    where
        F: FnOnce(&T) -> Option<&U>,
    {
        Self::try_map_or_err(guard, |data| part(data).ok_or(())).map_err(|(guard, ())| guard)
    }

    /// As [`try_map`](Self::try_map), and says why there is no such part.
    ///
    /// # Errors
    /// The guard, and what `part` says.
    pub fn try_map_or_err<U: ?Sized, F, E>(
        guard: Self,
        part: F,
    ) -> Result<MappedReentrantMutexGuard<'a, U>, (Self, E)>
    where
        F: FnOnce(&T) -> Result<&U, E>,
    {
        match part(guard.data) {
            Ok(data) => {
                let raw = ManuallyDrop::new(guard).raw;
                Ok(MappedReentrantMutexGuard { raw, data, _stays: STAYS })
            }
            Err(error) => Err((guard, error)),
        }
    }

    /// As [`ReentrantMutexGuard::unlock_fair`].
    pub fn unlock_fair(guard: Self) {
        let raw = ManuallyDrop::new(guard).raw;
        // SAFETY: held by the guard, whose own drop does not run.
        unsafe { raw.release_fair(this_thread()) };
    }
}

impl<T: ?Sized> Deref for MappedReentrantMutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.data
    }
}

impl<T: ?Sized> Drop for MappedReentrantMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: held since the guard was made, on this thread.
        unsafe { self.raw.release(this_thread()) };
    }
}

impl<T: ?Sized> ArcReentrantMutexGuard<T> {
    /// The mutex that it holds.
    pub fn remutex(guard: &Self) -> &Arc<ReentrantMutex<T>> {
        &guard.mutex
    }

    /// Undoes one acquisition, and returns the mutex.
    pub fn into_arc(guard: Self) -> Arc<ReentrantMutex<T>> {
        let mutex = Self::forget(guard);
        // SAFETY: held by the guard, whose own drop does not run.
        unsafe { mutex.raw.release(this_thread()) };
        mutex
    }

    /// As [`into_arc`](Self::into_arc), by a [fair unlock](ReentrantMutexGuard::unlock_fair).
    pub fn into_arc_fair(guard: Self) -> Arc<ReentrantMutex<T>> {
        let mutex = Self::forget(guard);
        // SAFETY: held by the guard, whose own drop does not run.
        unsafe { mutex.raw.release_fair(this_thread()) };
        mutex
    }

    /// As [`ReentrantMutexGuard::unlock_fair`].
    pub fn unlock_fair(guard: Self) {
        let mutex = Self::forget(guard);
        // SAFETY: held by the guard, whose own drop does not run.
        unsafe { mutex.raw.release_fair(this_thread()) };
    }

    /// The mutex, which stays acquired.
    fn forget(guard: Self) -> Arc<ReentrantMutex<T>> {
        let guard = ManuallyDrop::new(guard);
        // SAFETY: moved out of a guard that is not used any more, nor dropped.
        unsafe { ptr::read(&guard.mutex) }
    }
}

impl<T: ?Sized> Deref for ArcReentrantMutexGuard<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this thread holds the mutex, and so may its other guards; none gives `&mut T`.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T: ?Sized> Drop for ArcReentrantMutexGuard<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: held since the guard was made, on this thread.
        unsafe { self.mutex.raw.release(this_thread()) };
    }
}

macro_rules! released_for_a_while {
    ([$($generics:tt)*] $guard:ty) => {
        impl<$($generics)*> $guard {
            /// Undoes one acquisition while `act` runs, and makes it again afterwards, also if `act` panics. Other threads
            /// can have the lock meanwhile only if this was the thread's last guard.
            ///
            /// # Panics
            /// If `act` does. If the lock cannot be acquired again because that would be a deadlock, which debug builds
            /// find, the process ends after the message.
            #[track_caller]
            pub fn unlocked<F, U>(guard: &mut Self, act: F) -> U
            where
                F: FnOnce() -> U,
            {
                // SAFETY: the guard's acquisition, and the guard is borrowed meanwhile.
                unsafe { guard.mutex.release_during(RawReentrantMutex::release, act) }
            }

            /// As [`unlocked`](Self::unlocked), after a [fair unlock](Self::unlock_fair).
            #[track_caller]
            pub fn unlocked_fair<F, U>(guard: &mut Self, act: F) -> U
            where
                F: FnOnce() -> U,
            {
                // SAFETY: the guard's acquisition, and the guard is borrowed meanwhile.
                unsafe { guard.mutex.release_during(RawReentrantMutex::release_fair, act) }
            }

            /// Lets those that wait have their turn, if this is the thread's only guard: undoes its acquisition by a fair
            /// unlock, and makes it again.
            #[track_caller]
            pub fn bump(guard: &mut Self) {
                Self::unlocked_fair(guard, || ());
            }
        }
    };
}

released_for_a_while!(['a, T: ?Sized] ReentrantMutexGuard<'a, T>);
released_for_a_while!([T: ?Sized] ArcReentrantMutexGuard<T>);

macro_rules! shown_as_the_data {
    ($($guard:ty),*) => {$(
        impl<T: ?Sized + fmt::Debug> fmt::Debug for $guard {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: ?Sized + fmt::Display> fmt::Display for $guard {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    )*};
}

shown_as_the_data!(
    ReentrantMutexGuard<'_, T>,
    MappedReentrantMutexGuard<'_, T>,
    ArcReentrantMutexGuard<T>
);

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
