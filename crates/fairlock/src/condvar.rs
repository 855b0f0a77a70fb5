//! A condition variable in 24 bytes: threads that hold a mutex release it and wait until another
//! thread notifies them. What it guarantees is written at [`Condvar`].
//!
//! How it works
//! 1. A thread that waits holds the mutex. It queues here with a node on its own stack, and the
//!    first also notes which mutex that is. Then it releases the mutex.
//! 2. It waits for a few rounds (`backoff.rs`), as what threads pass each other often comes sooner
//!    than a wake-up, and then sleeps.
//! 3. A notification takes the oldest node, or all nodes, off the ring and wakes their threads.
//! 4. A thread that is notified takes the mutex like any newcomer, and counts as waiting for it
//!    since the notification.
//! 5. A waiter whose deadline passes while its node is on the ring removes the node, acquires the
//!    mutex like any newcomer and reports a timeout. If its node is off the ring by then, it was
//!    notified: it reports that, and its deadline is over.
//!
//! ```text
//!                 wait                   notification          woken
//!  holds the mutex ───► WAITING, on the ring ───► CALLED, off it ───► NOTIFIED ─┐
//!         ▲                    │ deadline                                      │
//!         ├────── newcomer ◄───┘                                               │
//!         └────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Others move those that are notified to the mutex's queue instead (wait morphing: Linux's
//! `FUTEX_CMP_REQUEUE`, parking_lot's `unpark_requeue`), and so did this one. Each of them then
//! needs a wake-up of its own, one after the other, also to find that there is nothing for it to
//! do: a queue of one slot with ten producers and ten consumers passed a fiftieth of the messages.
//!
//! Invariants
//! 1. Under the queue's lock, `mutex` is null exactly while the ring is empty. Otherwise it is the
//!    mutex of all those on the ring.
//! 2. A node is on the ring from before its thread releases the mutex until, under the queue's
//!    lock, a notification takes it off and makes its state `CALLED`, or its own thread removes it.
//!    So under the queue's lock a node that has not been removed by its own thread is on the ring
//!    exactly while it is `WAITING`.
//! 3. A thread whose node is `CALLED` stays until it is `NOTIFIED`. Storing that is the last access
//!    to a node: its stack frame may be gone right after, and the wake-up that follows uses the
//!    address alone.
//!
//! Why no notification is lost: suppose that a thread changes, under the mutex, what another one
//! waits for, and then notifies. If it acquired the mutex first, the other thread sees the change
//! and does not wait. If it acquired the mutex second, it did so after the other's node was on the
//! ring. Then the notification's first load sees that node's `mutex`, or null because another
//! notification or a timeout has removed that node since.
//!
//! What it costs: a notification without waiters is one load. A wait takes one small lock in
//! addition to what releasing and acquiring the mutex cost, and a few µs of spinning or a sleep. A
//! notification takes one small lock, reads the clock, and writes one cache line of each waiter and
//! of its neighbours; a system call wakes each thread.

use core::fmt;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::guard::Borrows;
use crate::mutex::{MutexGuard, RawMutex};
use crate::platform::{AtomicCell, Os, PlainCell, Platform, after, until};
use crate::raw::{RawLock, Refused, Wait};
use crate::recorded::{self, Role};
use crate::wait_queue::{Links, Locked, OnRing, QueueLock, Ring};

/// State of a waiter: on the ring.
const WAITING: u32 = 0;
/// Notified, and another thread is about to wake it.
const CALLED: u32 = 1;
/// It goes on.
const NOTIFIED: u32 = 2;

/// A thread that waits, on its own stack. It starts a cache line, so that the layout of the
/// caller's frame does not decide which of its words share one.
#[repr(align(64))]
struct Waiter<P: Platform> {
    state: P::AtomicU32,
    /// When it was notified, ns.
    since: P::Cell<u64>,
    links: Links<P>,
}

impl<P: Platform> OnRing<P> for Waiter<P> {
    fn links(&self) -> &Links<P> {
        &self.links
    }
}

impl<P: Platform> Waiter<P> {
    fn new() -> Self {
        Waiter { state: P::AtomicU32::ZERO, since: P::Cell::ZERO, links: Links::NEW }
    }

    /// Lets it go on.
    ///
    /// # Safety
    /// It is `CALLED`, and no other thread wakes it.
    unsafe fn wake(waiter: *const Self) {
        // SAFETY: alive, as it is called and not woken (invariant 3).
        let state = unsafe { &raw const (*waiter).state };
        // Release pairs with the Acquire in `sleep`.
        // SAFETY: the same.
        unsafe { (*state).store(NOTIFIED, Release) };
        P::unpark(state);
    }
}

/// The protocol of a [`Condvar`], without guards. Use that where you can.
///
/// # Examples
/// ```
/// use fairlock::condvar::RawCondvar;
/// static CHANGED: RawCondvar = RawCondvar::NEW;
/// assert!(!CHANGED.notify_one()); // no thread waits
/// ```
pub struct RawCondvar<P: Platform = Os> {
    /// The address of the mutex of those that wait; null if no thread does.
    mutex: P::AtomicPtr<()>,
    waiters: Ring<P, Waiter<P>>,
    queue_lock: QueueLock<P>,
}

const _: () = assert!(size_of::<RawCondvar>() <= 24);

// SAFETY: only the ring has plain cells, and only the holder of the queue's lock touches them
// (`wait_queue.rs`, invariant 1); everything else is atomic.
unsafe impl<P: Platform> Sync for RawCondvar<P> {}
// SAFETY: no thread borrows a condition variable that is moved, so none waits and its pointers are
// null.
unsafe impl<P: Platform> Send for RawCondvar<P> {}

impl<P: Platform> RawCondvar<P> {
    /// Without waiters.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub const NEW: Self =
        RawCondvar { mutex: P::AtomicPtr::ZERO, waiters: Ring::EMPTY, queue_lock: QueueLock::NEW };

    /// Releases the mutex, waits for a notification, and acquires the mutex again. False if the
    /// deadline passed before this thread was notified. `deadline` is a moment of
    /// [`Platform::now`], in ns.
    ///
    /// # Panics
    /// If threads wait here with another mutex. This thread still holds its own then.
    ///
    /// # Safety
    /// The calling thread holds the mutex.
    #[track_caller]
    pub unsafe fn wait(&self, mutex: &RawMutex<P>, deadline: Option<u64>) -> bool {
        let waiter = Waiter::new();
        assert!(
            self.enqueue(ptr::from_ref(mutex).cast(), &waiter),
            "threads wait on this Condvar with another Mutex: give each Mutex a Condvar of its own"
        );
        let release = recorded::Release::begins(mutex.counted(), Role::Write);
        // SAFETY: this thread holds it, as the caller promises.
        unsafe { mutex.unlock_write(false) };
        if let Some(release) = release {
            release.ends();
        }
        let is_notified = self.sleep(&waiter, || deadline);
        if is_notified {
            mutex.lock_notified(waiter.since.get());
        } else {
            mutex.write(Wait::ForEver);
        }
        // Recorded when the thread has it: until then it waits, first for the notification and then
        // for the mutex.
        recorded::acquired(mutex.counted(), Role::Write);
        is_notified
    }

    /// As [`wait`](Self::wait), with a lock of any kind: calls `release` once this thread can be
    /// notified, and waits. The caller acquires its lock again, whether or not it was notified.
    ///
    /// `deadline` is asked again before each sleep, and before the wait ends for it. So it may come
    /// from a clock that can be set.
    ///
    /// # Errors
    /// [`Refused::TimedOut`]. [`Refused::Busy`] if threads wait here with another lock: `release`
    /// is not called then.
    ///
    /// # Safety
    /// `release` does not panic: this thread is in a queue by its stack.
    ///
    /// # Examples
    /// ```
    /// use fairlock::condvar::RawCondvar;
    /// use fairlock::platform::{Os, Platform};
    /// use fairlock::policy::TimeFair;
    /// use fairlock::rwsem::RawRwSem;
    /// use fairlock::unguarded::{Refused, UnguardedRwLock};
    ///
    /// static LOCK: RawRwSem<TimeFair, Os> = RawRwSem::NEW;
    /// static CHANGED: RawCondvar = RawCondvar::NEW;
    ///
    /// assert_eq!(LOCK.write(None), Ok(()));
    /// let soon = Os::now() + 1_000_000;
    /// // SAFETY: held since `write` above.
    /// let release = || unsafe { LOCK.unlock_write() };
    /// // SAFETY: an unlock does not panic.
    /// let outcome = unsafe { CHANGED.wait_with(&LOCK, release, || Some(soon)) };
    /// assert_eq!(outcome, Err(Refused::TimedOut));
    /// assert_eq!(LOCK.write(None), Ok(()));
    /// ```
    pub unsafe fn wait_with<L>(
        &self,
        lock: &L,
        release: impl FnOnce(),
        deadline: impl Fn() -> Option<u64>,
    ) -> Result<(), Refused> {
        let waiter = Waiter::new();
        if !self.enqueue(ptr::from_ref(lock).cast(), &waiter) {
            return Err(Refused::Busy);
        }
        release();
        if self.sleep(&waiter, deadline) { Ok(()) } else { Err(Refused::TimedOut) }
    }

    /// Waits for a notification. False if the deadline passed before.
    fn sleep(&self, waiter: &Waiter<P>, deadline: impl Fn() -> Option<u64>) -> bool {
        let mut backoff = Backoff::<P>::from_its_own_word();
        loop {
            let deadline = deadline();
            // Acquire pairs with the Release in `Waiter::wake`.
            match waiter.state.load(Acquire) {
                NOTIFIED => return true,
                WAITING if deadline.is_some_and(|deadline| P::now() >= deadline) => {
                    if self.withdraw(waiter) {
                        return false;
                    }
                }
                _ if backoff.goes_on() => {}
                CALLED => P::park(&waiter.state, CALLED, None),
                _ => P::park(&waiter.state, WAITING, deadline),
            }
        }
    }

    /// False if threads wait with another mutex.
    fn enqueue(&self, mutex: *const (), waiter: &Waiter<P>) -> bool {
        let locked = self.queue_lock.lock();
        let of_others = self.mutex.load(Relaxed);
        if !of_others.is_null() && !ptr::eq(of_others, mutex) {
            return false;
        }
        // Relaxed: a thread that must see it acquires the mutex after this one has released it.
        self.mutex.store(mutex.cast_mut(), Relaxed);
        self.waiters.push(&locked, waiter);
        true
    }

    /// Removes a waiter that gives up. False if it was notified before.
    fn withdraw(&self, waiter: &Waiter<P>) -> bool {
        let locked = self.queue_lock.lock();
        // Relaxed: a notification changes it under the queue's lock.
        let is_here = waiter.state.load(Relaxed) == WAITING;
        if is_here {
            self.waiters.remove(&locked, waiter);
            self.note_if_empty(&locked);
        }
        is_here
    }

    /// Notifies the thread that has waited longest. False if no thread waits.
    #[inline]
    pub fn notify_one(&self) -> bool {
        self.has_waiters() && self.notify(1) == 1
    }

    /// Notifies all threads that wait. Returns how many.
    #[inline]
    pub fn notify_all(&self) -> usize {
        if self.has_waiters() { self.notify(usize::MAX) } else { 0 }
    }

    /// Whether threads wait at this moment.
    #[inline(always)]
    pub fn has_waiters(&self) -> bool {
        // Relaxed: the thread that must be notified has released the mutex before the caller
        // acquired it, which orders this load.
        !self.mutex.load(Relaxed).is_null()
    }

    /// Notifies the oldest waiters, at most this many. Returns how many there were.
    #[cold]
    fn notify(&self, most: usize) -> usize {
        let now = P::now();
        let (mut first, mut last, mut count): (*const Waiter<P>, *const Waiter<P>, usize) =
            (ptr::null(), ptr::null(), 0);
        let locked = self.queue_lock.lock();
        while count < most {
            let Some(waiter) = self.waiters.oldest(&locked) else { break };
            self.waiters.remove(&locked, waiter);
            waiter.since.set(now);
            // Relaxed: its owner looks at everything else once it is woken.
            waiter.state.store(CALLED, Relaxed);
            // SAFETY: one that is called stays until it is woken (invariant 3), and only this
            // thread touches its links.
            match unsafe { last.as_ref() } {
                Some(last) => last.links.chain(waiter),
                None => first = waiter,
            }
            last = waiter;
            count += 1;
        }
        self.note_if_empty(&locked);
        drop(locked);
        let mut waiter = first;
        for _ in 0..count {
            // SAFETY: called, and not woken before this.
            unsafe {
                let next = (*waiter).links.chained();
                Waiter::wake(waiter);
                waiter = next;
            }
        }
        count
    }

    /// Keeps invariant 1 after a node has left the ring.
    fn note_if_empty(&self, locked: &Locked<'_, P>) {
        if self.waiters.oldest(locked).is_none() {
            self.mutex.store(ptr::null_mut(), Relaxed);
        }
    }
}

/// Whether a wait with a deadline ended because of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// True if the deadline passed: before a notification came, or before the condition ceased to
    /// hold. Each function says which.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// A condition variable: threads wait for something that other threads change under a
/// [`Mutex`](crate::Mutex).
///
/// A thread that holds the mutex and finds that it has to wait calls
/// [`wait_while`](Self::wait_while), or [`wait`](Self::wait) in a loop. That releases the mutex
/// while the thread waits. A thread that changes the data calls [`notify_one`](Self::notify_one) or
/// [`notify_all`](Self::notify_all), with the mutex held or after its release. The methods are
/// those of parking_lot's.
///
/// It is 24 bytes and usable in statics. Waiting allocates nothing.
///
/// # Guarantees
/// * A notification when no thread waits is one load, and writes nothing.
/// * No notification is lost: if a thread changes the data under the mutex and then notifies, each
///   thread that found the data as they were before either waits already and can be notified, or
///   was notified before.
/// * First come, first served: threads are notified in the order in which they began to wait.
/// * A thread that is notified wakes up and takes the mutex like any other. The [guarantees of
///   `Mutex`](crate::Mutex#guarantees) hold for it: others can pass it for
///   [`HANDOFF_AFTER_NS`](crate::policy::HANDOFF_AFTER_NS), counted from the notification.
/// * No spurious wake-ups: `wait` returns because of a notification for this thread, and for
///   nothing else. Still, another thread may have changed the data between the notification and the
///   moment at which this thread has acquired the mutex. So look again, or call `wait_while`, which
///   does.
/// * A notification goes to a thread that says so: `notify_one` returns true, and `notify_all`
///   counts a thread, only if that thread's wait returns, and does not report a timeout. If a
///   deadline and a notification meet, one of them comes first, and that alone counts.
/// * A deadline limits the time until the notification. Then the thread waits for the mutex, for as
///   long as that takes.
///
/// # What it costs
/// A thread that waits spins for one to three µs, and yields, before it sleeps: what threads pass
/// each other often comes sooner than a wake-up. `notify_all` makes a system call for each thread
/// that sleeps.
///
/// # Panics
/// All functions that wait panic if other threads wait at that moment with another mutex. The
/// caller's mutex is still held then.
///
/// # Examples
/// ```
/// use fairlock::{Condvar, Mutex};
/// use std::thread;
///
/// static JOBS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// static ADDED: Condvar = Condvar::new();
///
/// let worker = thread::spawn(|| {
///     let mut jobs = JOBS.lock();
///     ADDED.wait_while(&mut jobs, |jobs| jobs.is_empty());
///     jobs.pop()
/// });
/// JOBS.lock().push(7);
/// ADDED.notify_one();
/// assert_eq!(worker.join().unwrap(), Some(7));
/// ```
/// With a deadline:
/// ```
/// use fairlock::{Condvar, Mutex};
/// use std::time::Duration;
///
/// let (ready, changed) = (Mutex::new(false), Condvar::new());
/// let mut guard = ready.lock();
/// assert!(changed.wait_for(&mut guard, Duration::from_millis(1)).timed_out());
/// assert!(!*guard); // held again
/// ```
pub struct Condvar<P: Platform = Os> {
    raw: Protocol<P>,
}

#[cfg(not(loom))]
type Protocol<P> = RawCondvar<P>;
#[cfg(loom)]
type Protocol<P> = crate::modelled::RawCondvar<P>;

/// The data behind a guard.
fn data_of<'g, T: ?Sized, P: Platform>(guard: &'g mut MutexGuard<'_, T, P>) -> &'g mut T {
    guard
}

impl Condvar {
    /// Without waiters.
    ///
    /// ```
    /// static CHANGED: fairlock::Condvar = fairlock::Condvar::new();
    /// assert_eq!(CHANGED.notify_all(), 0);
    /// ```
    pub const fn new() -> Self {
        Self::new_in()
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Condvar::new()
    }
}

impl<P: Platform> Condvar<P> {
    /// Without waiters, on any [platform](crate::platform).
    pub const fn new_in() -> Self {
        Condvar { raw: Protocol::NEW }
    }

    /// Notifies the thread that has waited longest. False if nobody waits.
    ///
    /// ```
    /// assert!(!fairlock::Condvar::new().notify_one());
    /// ```
    #[inline]
    pub fn notify_one(&self) -> bool {
        self.raw.notify_one()
    }

    /// Notifies all threads that wait at this moment. Returns how many.
    ///
    /// ```
    /// assert_eq!(fairlock::Condvar::new().notify_all(), 0);
    /// ```
    #[inline]
    pub fn notify_all(&self) -> usize {
        self.raw.notify_all()
    }

    /// The platform's deadline, if any. False if it passed before a notification.
    #[track_caller]
    fn wait_by<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T, P>, deadline: Option<u64>) -> bool {
        // SAFETY: the guard holds the mutex, and is borrowed until it holds it again.
        unsafe { self.raw.wait(guard.place().borrowed(), deadline) }
    }

    /// True once the condition does not hold, false if it still holds after the deadline.
    #[track_caller]
    fn wait_while_by<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, P>,
        mut condition: impl FnMut(&mut T) -> bool,
        deadline: Option<u64>,
    ) -> bool {
        let mut in_time = true;
        while condition(data_of(guard)) {
            if !in_time {
                return false;
            }
            in_time = self.wait_by(guard, deadline);
        }
        true
    }

    /// Releases the mutex, waits for a notification, and acquires the mutex again.
    ///
    /// ```
    /// use fairlock::{Condvar, Mutex};
    /// let (answer, changed) = (Mutex::new(None), Condvar::new());
    /// std::thread::scope(|scope| {
    ///     let mut guard = answer.lock();
    ///     scope.spawn(|| {
    ///         *answer.lock() = Some(42);
    ///         changed.notify_one();
    ///     });
    ///     changed.wait(&mut guard); // Nobody else notifies, so there is no need to look again.
    ///     assert_eq!(*guard, Some(42));
    /// });
    /// ```
    ///
    /// # Panics
    /// If other threads wait at this moment with another mutex.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T, P>) {
        self.wait_by(guard, None);
    }

    /// As [`wait`](Self::wait), for so long at most. `timed_out()` if no notification came.
    ///
    /// A duration that is too long for the clock means for ever. The wait may end late, by the time
    /// that the scheduler takes to run the thread and that others hold the mutex.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, P>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        WaitTimeoutResult(!self.wait_by(guard, after::<P>(timeout)))
    }

    /// As [`wait_for`](Self::wait_for), until this moment at most.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, P>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        WaitTimeoutResult(!self.wait_by(guard, until::<P>(deadline)))
    }

    /// Waits until the condition does not hold. It is looked at before the first wait and after
    /// each notification, with the mutex held.
    ///
    /// ```
    /// use fairlock::{Condvar, Mutex};
    /// let (count, changed) = (Mutex::new(3), Condvar::new());
    /// std::thread::scope(|scope| {
    ///     for _ in 0..3 {
    ///         scope.spawn(|| {
    ///             *count.lock() -= 1;
    ///             changed.notify_one();
    ///         });
    ///     }
    ///     changed.wait_while(&mut count.lock(), |count| *count > 0);
    /// });
    /// assert_eq!(*count.lock(), 0);
    /// ```
    ///
    /// # Panics
    /// As [`wait`](Self::wait), and if the condition does. The mutex is held then.
    #[track_caller]
    pub fn wait_while<T: ?Sized, F: FnMut(&mut T) -> bool>(
        &self,
        guard: &mut MutexGuard<'_, T, P>,
        condition: F,
    ) {
        self.wait_while_by(guard, condition, None);
    }

    /// As [`wait_while`](Self::wait_while), for so long at most. `timed_out()` if the condition
    /// still holds then: it is looked at once more after the deadline.
    ///
    /// ```
    /// use fairlock::{Condvar, Mutex};
    /// use std::time::Duration;
    /// let (full, changed) = (Mutex::new(true), Condvar::new());
    /// let mut guard = full.lock();
    /// let wait = changed.wait_while_for(&mut guard, |full| *full, Duration::from_millis(1));
    /// assert!(wait.timed_out());
    /// ```
    ///
    /// # Panics
    /// As [`wait_while`](Self::wait_while).
    #[track_caller]
    pub fn wait_while_for<T: ?Sized, F: FnMut(&mut T) -> bool>(
        &self,
        guard: &mut MutexGuard<'_, T, P>,
        condition: F,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        WaitTimeoutResult(!self.wait_while_by(guard, condition, after::<P>(timeout)))
    }

    /// As [`wait_while_for`](Self::wait_while_for), until this moment at most.
    ///
    /// # Panics
    /// As [`wait_while`](Self::wait_while).
    #[track_caller]
    pub fn wait_while_until<T: ?Sized, F: FnMut(&mut T) -> bool>(
        &self,
        guard: &mut MutexGuard<'_, T, P>,
        condition: F,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        WaitTimeoutResult(!self.wait_while_by(guard, condition, until::<P>(deadline)))
    }
}

impl<P: Platform> fmt::Debug for Condvar<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

/// The protocol step by step: the waiters stand in for sleeping threads.
#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    use super::*;

    type Raw = RawMutex<Os>;

    fn held() -> Raw {
        let mutex = Raw::NEW;
        assert!(mutex.write(Wait::Not));
        mutex
    }

    fn address<T>(lock: &T) -> *const () {
        ptr::from_ref(lock).cast()
    }

    fn states<const N: usize>(waiters: &[Waiter<Os>; N]) -> [u32; N] {
        waiters.each_ref().map(|waiter| waiter.state.load(Relaxed))
    }

    /// Not in a `Box`: one that is moved says that no other pointers lead into it, and the ring's
    /// do.
    fn waiting<const N: usize>(condvar: &RawCondvar, mutex: &Raw) -> Rc<[Waiter<Os>; N]> {
        let waiters = Rc::new([(); N].map(|()| Waiter::new()));
        waiters.iter().for_each(|waiter| assert!(condvar.enqueue(address(mutex), waiter)));
        waiters
    }

    #[test]
    fn without_waiters_there_is_no_thread_to_notify() {
        let condvar = RawCondvar::<Os>::NEW;
        assert!(!condvar.has_waiters());
        assert!(!condvar.notify_one());
        assert_eq!(condvar.notify_all(), 0);
        assert_eq!(condvar.notify(1), 0, "the last waiter may have left after the first look");
    }

    #[test]
    fn a_notification_wakes_the_oldest_or_all() {
        let (condvar, mutex) = (RawCondvar::NEW, held());
        let waiters = waiting::<3>(&condvar, &mutex);
        assert_eq!(states(&waiters), [WAITING; 3]);
        assert!(condvar.notify_one());
        assert_eq!(states(&waiters), [NOTIFIED, WAITING, WAITING]);
        assert_eq!(condvar.notify_all(), 2);
        assert_eq!(states(&waiters), [NOTIFIED; 3]);
        assert!(!condvar.has_waiters());
    }

    #[test]
    fn one_that_is_notified_waits_for_the_mutex_since_then() {
        let (condvar, mutex) = (RawCondvar::NEW, held());
        let waiters = waiting::<1>(&condvar, &mutex);
        let before = Os::now();
        assert!(condvar.notify_one());
        assert!((before..=Os::now()).contains(&waiters[0].since.get()));
    }

    #[test]
    fn a_waiter_that_gives_up_leaves_the_others_in_order() {
        let (condvar, mutex) = (RawCondvar::NEW, held());
        let waiters = waiting::<3>(&condvar, &mutex);
        assert!(condvar.withdraw(&waiters[1]));
        assert!(condvar.notify_one());
        assert_eq!(states(&waiters), [NOTIFIED, WAITING, WAITING]);
        assert!(condvar.notify_one());
        assert_eq!(states(&waiters), [NOTIFIED, WAITING, NOTIFIED]);
        assert!(!condvar.notify_one());
    }

    #[test]
    fn the_last_waiter_that_gives_up_leaves_nothing() {
        let (condvar, mutex) = (RawCondvar::NEW, held());
        let waiters = waiting::<1>(&condvar, &mutex);
        assert!(condvar.has_waiters());
        assert!(condvar.withdraw(&waiters[0]));
        assert!(!condvar.has_waiters());
    }

    #[test]
    fn a_waiter_that_was_notified_cannot_give_up() {
        let (condvar, mutex) = (RawCondvar::NEW, held());
        let waiters = waiting::<2>(&condvar, &mutex);
        assert!(condvar.notify_one());
        assert!(!condvar.withdraw(&waiters[0]));
        assert!(condvar.withdraw(&waiters[1]));
    }

    #[test]
    fn a_deadline_that_has_passed_ends_the_wait_with_the_mutex_held() {
        let (condvar, mutex) = (RawCondvar::NEW, held());
        // SAFETY: held.
        assert!(!unsafe { condvar.wait(&mutex, Some(0)) });
        assert!(mutex.is_locked());
        assert!(!condvar.has_waiters());
    }

    #[test]
    fn a_second_mutex_is_refused_while_threads_wait_with_the_first() {
        let (condvar, first, second) = (RawCondvar::NEW, held(), held());
        let waiters = waiting::<1>(&condvar, &first);
        let wait = || {
            // SAFETY: held.
            unsafe { condvar.wait(&second, None) }
        };
        let refused = catch_unwind(AssertUnwindSafe(wait)).expect_err("it is refused");
        let message = refused.downcast_ref::<&str>().expect("a message");
        assert!(message.contains("give each Mutex a Condvar of its own"), "{message}");
        assert!(second.is_locked());
        assert!(condvar.notify_one(), "the first is as it was");
        assert_eq!(states(&waiters), [NOTIFIED]);
        assert!(!condvar.notify_one(), "the second left nothing");
        // SAFETY: held. No thread waits with the first any more.
        assert!(!unsafe { condvar.wait(&second, Some(0)) });
    }

    #[test]
    fn a_lock_of_any_kind_is_released_once_its_thread_can_be_notified() {
        let (condvar, lock) = (RawCondvar::<Os>::NEW, Cell::new(true));
        let release = || {
            assert!(lock.replace(false));
            assert!(condvar.notify_one());
        };
        // SAFETY: the assertions hold.
        assert_eq!(unsafe { condvar.wait_with(&lock, release, || None) }, Ok(()));
        assert!(!lock.get());
    }

    #[test]
    fn a_second_lock_of_any_kind_stays_held_while_threads_wait_with_the_first() {
        let (condvar, first, second) = (RawCondvar::NEW, held(), ());
        let waiters = waiting::<1>(&condvar, &first);
        let release = || unreachable!("threads wait with the first");
        // SAFETY: it is not called.
        let outcome = unsafe { condvar.wait_with(&second, release, || None) };
        assert_eq!(outcome, Err(Refused::Busy));
        assert!(condvar.notify_one());
        assert_eq!(states(&waiters), [NOTIFIED]);
    }

    #[test]
    fn a_deadline_may_change_during_the_wait() {
        let (condvar, lock) = (RawCondvar::<Os>::NEW, ());
        let asked = Cell::new(0);
        // Fewer times than a thread looks before it sleeps.
        let deadline = || {
            asked.set(asked.get() + 1);
            (asked.get() == 3).then_some(0)
        };
        // SAFETY: nothing panics.
        let outcome = unsafe { condvar.wait_with(&lock, || (), deadline) };
        assert_eq!((outcome, asked.get()), (Err(Refused::TimedOut), 3));
        assert!(!condvar.has_waiters());
    }
}
