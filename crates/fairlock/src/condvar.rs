//! A condition variable in 24 bytes: threads that hold a mutex release it and sleep until another
//! thread notifies them. What it guarantees is written at [`Condvar`].
//!
//! How it works
//! 1. A thread that waits holds the mutex. It queues here with a node on its own stack, a node of
//!    the mutex (`mutex.rs`), and the first also notes which mutex that is. Then it releases the
//!    mutex and sleeps.
//! 2. A notification moves the oldest node, or all nodes, from the ring here to the ring of the
//!    mutex. Their threads go on sleeping, as the word on which a thread sleeps is in its node.
//!    From then on they wait for the mutex like any other thread, and its unlocks wake them one by
//!    one.
//! 3. If the mutex is free, no unlock will come. So the notification wakes the head of the mutex's
//!    queue, and nobody else.
//! 4. A waiter whose deadline passes while its node is here removes the node, acquires the mutex
//!    like any newcomer and reports a timeout. If its node is on the mutex's ring by then, it was
//!    notified: it reports that, and its deadline is over.
//!
//! ```text
//!                 wait                     notification               the mutex's unlock
//!  holds the mutex ───► UNNOTIFIED, ring here ───► WAITING, the mutex's ring ───► WOKEN or GRANTED ─┐
//!         ▲                    │ deadline                                                           │
//!         ├────── newcomer ◄───┘                                                                    │
//!         └─────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Moving waiters instead of waking them is known as wait morphing. Linux has it in the kernel
//! (`FUTEX_CMP_REQUEUE`, `kernel/futex/requeue.c`), parking_lot in its table of queues
//! (`unpark_requeue`). FreeBSD's libthr (`thr_cond.c`) gets the same effect by another way: a
//! thread that notifies while it holds the mutex wakes the others when it unlocks it. Here the
//! mutex's queue is in user space, so that moving a node takes a few stores and no system call.
//!
//! Invariants
//! 1. Under the queue's lock, `mutex` is null exactly while the ring is empty. Otherwise it is the
//!    mutex of everybody on the ring.
//! 2. A node is on the ring from before its thread releases the mutex until, under the queue's
//!    lock, a notification moves it and makes its state other than `UNNOTIFIED`, or its own thread
//!    removes it. So under the queue's lock a node that has not been removed by its own thread is
//!    on the ring exactly while it is `UNNOTIFIED`.
//! 3. A thread borrows the mutex for as long as its node is on either ring. So a notification may
//!    use the mutex while it holds the queue's lock with a node on the ring, and then until it
//!    releases the lock of the mutex's queue, without which no node leaves that ring. Afterwards
//!    the mutex may be gone.
//! 4. A thread that holds the queue's lock may take the lock of the mutex's queue, never the other
//!    way round.
//!
//! Why no notification is lost: suppose that a thread changes, under the mutex, what another one
//! waits for, and then notifies. If it acquired the mutex first, the other thread sees the change
//! and does not wait. If it acquired the mutex second, it did so after the other's node was on the
//! ring. Then the notification's first load sees that node's `mutex`, or null because another
//! notification or a timeout has removed that node since.
//!
//! What it costs: a notification without waiters is one load. A wait takes one small lock and a
//! sleep beside what releasing and acquiring the mutex cost. A notification takes two small locks,
//! reads the clock, and writes one cache line of each waiter and of its neighbours; a system call
//! wakes one thread if the mutex is free, and there is none otherwise.

use core::fmt;
use core::iter;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::guard::Borrows;
use crate::mutex::{MutexGuard, Node, RawMutex, UNNOTIFIED};
use crate::platform::{AtomicCell, Os, Platform, after, until};
use crate::raw::{RawLock, Wait};
use crate::recorded::{self, Release, Role};
use crate::wait_queue::{Locked, QueueLock, Ring};

/// The protocol of a [`Condvar`], without guards. Use that where you can.
///
/// # Examples
/// ```
/// use fairlock::condvar::RawCondvar;
/// static CHANGED: RawCondvar = RawCondvar::NEW;
/// assert!(!CHANGED.notify_one()); // nobody waits
/// ```
pub struct RawCondvar<P: Platform = Os> {
    /// The mutex of those that wait; null if nobody does.
    mutex: P::AtomicPtr<RawMutex<P>>,
    waiters: Ring<P, Node<P>>,
    queue_lock: QueueLock<P>,
}

const _: () = assert!(size_of::<RawCondvar>() <= 24);

// SAFETY: only the ring has plain cells, and only the holder of the queue's lock touches them
// (`wait_queue.rs`, invariant 1); everything else is atomic.
unsafe impl<P: Platform> Sync for RawCondvar<P> {}
// SAFETY: nobody borrows a condition variable that is moved, so nobody waits and its pointers are
// null.
unsafe impl<P: Platform> Send for RawCondvar<P> {}

impl<P: Platform> RawCondvar<P> {
    /// Without waiters.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub const NEW: Self =
        RawCondvar { mutex: P::AtomicPtr::ZERO, waiters: Ring::EMPTY, queue_lock: QueueLock::NEW };

    /// Releases the mutex, waits for a notification, and acquires the mutex again. False if the
    /// deadline passed before somebody notified this thread. `deadline` is a moment of
    /// [`Platform::now`], in ns.
    ///
    /// # Panics
    /// If threads wait here with another mutex. This thread still holds its own then.
    ///
    /// # Safety
    /// The calling thread holds the mutex.
    #[track_caller]
    pub unsafe fn wait(&self, mutex: &RawMutex<P>, deadline: Option<u64>) -> bool {
        let node = Node::unnotified();
        self.enqueue(mutex, &node);
        let release = Release::begins(mutex.counted(), Role::Write);
        // SAFETY: this thread holds it, as the caller promises.
        unsafe { mutex.unlock_write(false) };
        if let Some(release) = release {
            release.ends();
        }
        let is_notified = self.sleep(mutex, &node, deadline);
        // Recorded when the thread has it: until then it sleeps, first for the notification and
        // then for the mutex.
        recorded::acquired(mutex.counted(), Role::Write);
        is_notified
    }

    /// Waits on the queue for a notification, and acquires the mutex. False if the deadline passed
    /// before.
    fn sleep(&self, mutex: &RawMutex<P>, node: &Node<P>, deadline: Option<u64>) -> bool {
        // Relaxed: a notification says nothing but that this thread waits for the mutex.
        while node.state().load(Relaxed) == UNNOTIFIED {
            if deadline.is_none_or(|deadline| P::now() < deadline) {
                P::park(node.state(), UNNOTIFIED, deadline);
            } else if self.withdraw(node) {
                mutex.write(Wait::ForEver);
                return false;
            }
        }
        mutex.wait(node, None)
    }

    #[track_caller]
    fn enqueue(&self, mutex: &RawMutex<P>, node: &Node<P>) {
        let locked = self.queue_lock.lock();
        let of_others = self.mutex.load(Relaxed);
        assert!(
            of_others.is_null() || ptr::eq(of_others, mutex),
            "threads wait on this Condvar with another Mutex: give each Mutex a Condvar of its own"
        );
        // Relaxed: whoever has to see it acquires the mutex after this thread has released it.
        self.mutex.store(ptr::from_ref(mutex).cast_mut(), Relaxed);
        self.waiters.push(&locked, node);
    }

    /// Removes a waiter that gives up. False if it was notified before.
    fn withdraw(&self, node: &Node<P>) -> bool {
        let locked = self.queue_lock.lock();
        // Relaxed: a notification changes it under the queue's lock.
        let is_here = node.state().load(Relaxed) == UNNOTIFIED;
        if is_here {
            self.waiters.remove(&locked, node);
            self.note_if_empty(&locked);
        }
        is_here
    }

    /// Notifies the thread that has waited longest. False if nobody waits.
    #[inline]
    pub fn notify_one(&self) -> bool {
        self.has_waiters() && self.notify(1) == 1
    }

    /// Notifies all threads that wait. Returns how many.
    #[inline]
    pub fn notify_all(&self) -> usize {
        if self.has_waiters() { self.notify(usize::MAX) } else { 0 }
    }

    /// Relaxed: who is to be notified has released the mutex before the caller acquired it, which
    /// orders this load.
    #[inline(always)]
    fn has_waiters(&self) -> bool {
        !self.mutex.load(Relaxed).is_null()
    }

    /// Moves the oldest waiters to the queue of the mutex, at most so many. Returns how many there
    /// were.
    #[cold]
    fn notify(&self, most: usize) -> usize {
        let locked = self.queue_lock.lock();
        // SAFETY: null or, as the ring is not empty (invariant 1), a mutex that a waiter borrows
        // (invariant 3).
        let Some(mutex) = (unsafe { self.mutex.load(Relaxed).as_ref() }) else {
            return 0;
        };
        let oldest = iter::from_fn(|| {
            let node = self.waiters.oldest(&locked)?;
            self.waiters.remove(&locked, node);
            Some(node)
        });
        let (notified, woken) = mutex.queue_notified(oldest.take(most));
        self.note_if_empty(&locked);
        drop(locked);
        // Not under the queue's lock, and by the address alone: the mutex and the node may be gone
        // (invariant 3).
        if let Some(state) = woken {
            P::unpark(state);
        }
        notified
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
/// while the thread sleeps. Whoever changes the data calls [`notify_one`](Self::notify_one) or
/// [`notify_all`](Self::notify_all), with the mutex held or after its release. The methods are
/// those of parking_lot's.
///
/// It is 24 bytes and usable in statics. Waiting allocates nothing.
///
/// # Guarantees
/// * A notification when nobody waits is one load, and writes nothing.
/// * No notification is lost: if the data was changed under the mutex and then somebody is
///   notified, everybody who found the data as they were before either waits already and can be
///   notified, or was notified before.
/// * First come, first served: threads are notified in the order in which they began to wait.
/// * A notification wakes no crowd. Notified threads move to the queue of the mutex, in their order
///   and behind the threads that wait for the mutex already. They sleep on until it is their turn;
///   only if the mutex is free, the head of that queue is woken. From then on the [guarantees of
///   `Mutex`](crate::Mutex#guarantees) hold for them: others can pass them for
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

/// The protocol step by step: the nodes stand in for sleeping threads.
#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    use super::*;
    use crate::mutex::{GRANTED, WAITING, WOKEN};

    type Raw = RawMutex<Os>;

    fn held() -> Raw {
        let mutex = Raw::NEW;
        assert!(mutex.write(Wait::Not));
        mutex
    }

    fn release(mutex: &Raw) {
        // SAFETY: every test below releases what it holds.
        unsafe { mutex.unlock_write(false) };
    }

    fn states<const N: usize>(nodes: &[Node<Os>; N]) -> [u32; N] {
        nodes.each_ref().map(|node| node.state().load(Relaxed))
    }

    /// Not in a `Box`: one that is moved says that nobody else has pointers into it, and the ring
    /// does.
    fn waiting<const N: usize>(condvar: &RawCondvar, mutex: &Raw) -> Rc<[Node<Os>; N]> {
        let nodes = Rc::new([(); N].map(|()| Node::unnotified()));
        nodes.iter().for_each(|node| condvar.enqueue(mutex, node));
        nodes
    }

    /// Each in turn takes the mutex, which is free and for which only these wait.
    fn all_go_on(mutex: &Raw, nodes: &[Node<Os>]) {
        for node in nodes {
            assert_eq!(node.state().load(Relaxed), WOKEN);
            assert!(mutex.wait(node, None));
            release(mutex);
        }
        assert!(!mutex.is_locked());
    }

    #[test]
    fn without_waiters_there_is_nobody_to_notify() {
        let condvar = RawCondvar::<Os>::NEW;
        assert!(!condvar.has_waiters());
        assert!(!condvar.notify_one());
        assert_eq!(condvar.notify_all(), 0);
        assert_eq!(condvar.notify(1), 0, "the last waiter may have left after the first look");
    }

    #[test]
    fn while_the_mutex_is_held_a_notification_moves_the_oldest_and_wakes_nobody() {
        let (condvar, mutex) = (RawCondvar::NEW, held());
        let nodes = waiting::<3>(&condvar, &mutex);
        assert_eq!(states(&nodes), [UNNOTIFIED; 3]);
        assert!(condvar.notify_one());
        assert_eq!(states(&nodes), [WAITING, UNNOTIFIED, UNNOTIFIED]);
        assert_eq!(condvar.notify_all(), 2);
        assert_eq!(states(&nodes), [WAITING; 3]);
        assert!(!condvar.has_waiters());
        release(&mutex);
        assert_eq!(states(&nodes), [WOKEN, WAITING, WAITING]);
        all_go_on(&mutex, &*nodes);
    }

    #[test]
    fn while_the_mutex_is_free_a_notification_of_all_wakes_the_first() {
        let (condvar, mutex) = (RawCondvar::NEW, held());
        let nodes = waiting::<3>(&condvar, &mutex);
        release(&mutex);
        assert_eq!(condvar.notify_all(), 3);
        assert_eq!(states(&nodes), [WOKEN, WAITING, WAITING]);
        assert!(!mutex.is_locked());
        all_go_on(&mutex, &*nodes);
    }

    #[test]
    fn a_second_notification_of_a_free_mutex_wakes_nobody_else() {
        let (condvar, mutex) = (RawCondvar::NEW, held());
        let nodes = waiting::<2>(&condvar, &mutex);
        release(&mutex);
        assert!(condvar.notify_one());
        assert_eq!(states(&nodes), [WOKEN, UNNOTIFIED]);
        assert!(condvar.notify_one());
        assert_eq!(states(&nodes), [WOKEN, WAITING], "the head is awake already");
        all_go_on(&mutex, &*nodes);
    }

    #[test]
    fn who_is_notified_stands_behind_those_that_wait_for_the_mutex() {
        let (early, late, mutex) = (RawCondvar::NEW, RawCondvar::NEW, held());
        let before = waiting::<1>(&early, &mutex);
        let nodes = waiting::<1>(&late, &mutex);
        assert!(early.notify_one());
        assert!(late.notify_one());
        release(&mutex);
        assert_eq!((states(&before), states(&nodes)), ([WOKEN], [WAITING]));
        all_go_on(&mutex, &*before);
        all_go_on(&mutex, &*nodes);
    }

    #[test]
    fn a_fair_unlock_hands_the_mutex_to_who_was_notified() {
        let (condvar, mutex) = (RawCondvar::NEW, held());
        let nodes = waiting::<1>(&condvar, &mutex);
        assert!(condvar.notify_one());
        // SAFETY: held since the beginning.
        unsafe { mutex.unlock_write(true) };
        assert_eq!(states(&nodes), [GRANTED]);
        assert!(!mutex.write(Wait::Not));
        assert!(mutex.wait(&nodes[0], None));
        release(&mutex);
    }

    #[test]
    fn a_waiter_that_gives_up_leaves_the_others_in_order() {
        let (condvar, mutex) = (RawCondvar::NEW, held());
        let nodes = waiting::<3>(&condvar, &mutex);
        assert!(condvar.withdraw(&nodes[1]));
        assert!(condvar.notify_one());
        assert_eq!(states(&nodes), [WAITING, UNNOTIFIED, UNNOTIFIED]);
        assert!(condvar.notify_one());
        assert_eq!(states(&nodes), [WAITING, UNNOTIFIED, WAITING]);
        assert!(!condvar.notify_one());
        release(&mutex);
        all_go_on(&mutex, &nodes[..1]);
        all_go_on(&mutex, &nodes[2..]);
    }

    #[test]
    fn the_last_waiter_that_gives_up_leaves_nothing() {
        let (condvar, mutex) = (RawCondvar::NEW, held());
        let nodes = waiting::<1>(&condvar, &mutex);
        assert!(condvar.has_waiters());
        assert!(condvar.withdraw(&nodes[0]));
        assert!(!condvar.has_waiters());
        release(&mutex);
    }

    #[test]
    fn a_waiter_that_was_notified_cannot_give_up() {
        let (condvar, mutex) = (RawCondvar::NEW, held());
        let nodes = waiting::<2>(&condvar, &mutex);
        assert!(condvar.notify_one());
        assert!(!condvar.withdraw(&nodes[0]));
        assert!(condvar.notify_one());
        release(&mutex);
        assert!(!condvar.withdraw(&nodes[0]), "it is woken by now");
        all_go_on(&mutex, &*nodes);
    }

    #[test]
    fn a_deadline_that_has_passed_ends_the_wait_with_the_mutex_held() {
        let (condvar, mutex) = (RawCondvar::NEW, held());
        // SAFETY: held.
        assert!(!unsafe { condvar.wait(&mutex, Some(0)) });
        assert!(mutex.is_locked());
        assert!(!condvar.has_waiters());
        release(&mutex);
    }

    #[test]
    fn a_second_mutex_is_refused_while_threads_wait_with_the_first() {
        let (condvar, first, second) = (RawCondvar::NEW, held(), held());
        let nodes = waiting::<1>(&condvar, &first);
        let wait = || {
            // SAFETY: held.
            unsafe { condvar.wait(&second, None) }
        };
        let refused = catch_unwind(AssertUnwindSafe(wait)).expect_err("it is refused");
        let message = refused.downcast_ref::<&str>().expect("a message");
        assert!(message.contains("give each Mutex a Condvar of its own"), "{message}");
        assert!(second.is_locked());
        assert!(condvar.notify_one(), "the first is as it was");
        assert!(!condvar.notify_one(), "the second left nothing");
        // SAFETY: held. Nobody waits with the first any more.
        assert!(!unsafe { condvar.wait(&second, Some(0)) });
        release(&first);
        all_go_on(&first, &*nodes);
    }
}
