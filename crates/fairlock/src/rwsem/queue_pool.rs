//! The queues of all locks of a process: a lock acquires one while a thread waits for it.
//!
//! ```text
//!   lock: [ word | … ] ──number──► pooled queue: [ queue | clock | serves ] ──► the lock
//!
//!   not acquired: one spare for each thread, the others on a free list
//! ```
//!
//! A thread that has to wait acquires a queue for the lock, and the thread that takes the last
//! waiter off it gives it back. So there are at most two for each thread: one that it waits in, and
//! a spare one, which threads keep only while fewer than half of the queues exist. Pooled queues
//! are never freed: a thread that has learned a queue's number may look at it at any time,
//! whichever lock it serves now.
//!
//! Not for: what waiters do there. That is for `slow_path.rs` and `serve.rs`.
//!
//! Invariants
//! 1. `serves` is touched only under the queue's lock. It is null, or a lock's: of one whose word
//!    names the queue, and for which a thread waits; or of one that the holder of the queue's lock
//!    waits for, or has just taken the last waiter off. So that lock is alive, as waiters borrow
//!    it.
//! 2. A pooled queue that is not acquired is empty. It is one thread's spare, on the free list, or
//!    in the hands of one thread, never two of these.
//! 3. No thread waits for another that is acquiring a queue or giving it back, nor for one that
//!    holds the lock of a queue that is not acquired: after a fork that thread may not exist.

use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use super::account::PhaseClock;
use super::free_list::FreeList;
use super::wait_queue::{LockedQueue, Queue};
use super::word::{QUEUE_FLAGS, QUEUES, UPGRADING};
use crate::chunks::Chunks;
use crate::platform::{AtomicCell, AtomicInt, PlainCell, Platform};
use crate::slots::HasRecords;

/// Queues that are allocated together at first: as many as few threads need. Chosen, not measured.
const FIRST_QUEUES: usize = 8;
/// Threads keep no spare queue once more than this many were acquired at once: half of all.
const MOST_SPARES: u32 = QUEUES / 2;
/// This many chunks of them, each as large as all before it together.
const CHUNKS: usize = ((QUEUES as usize + 1) / FIRST_QUEUES).ilog2() as usize + 1;

/// One cache line. Two queues may be on a pair of lines that some processors fetch together: that
/// costs a thread that waits a transfer at most.
#[repr(C, align(64))]
pub struct PooledQueue<P: Platform> {
    pub(super) queue: Queue<P>,
    /// The word of the lock that it serves. For comparisons, and for the child of a `fork`.
    pub(super) serves: P::Cell<*const ()>,
    pub(super) clock: PhaseClock<P>,
    pub(super) number: u32,
    /// While it is not acquired: the next on the list, 0 at its end. While it serves a lock: not 0
    /// if readers do not need to take that lock, a hint.
    pub(super) next_or_biased: P::AtomicU32,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<PooledQueue<crate::platform::Os>>() == 64, "one cache line");

// SAFETY: `serves` and the queue's cells are touched only by the holder of the queue's lock
// (invariant 1, and that of wait_queue.rs); everything else is atomic or constant.
unsafe impl<P: Platform> Sync for PooledQueue<P> {}
// SAFETY: what can be moved is not borrowed, so its queue is empty.
unsafe impl<P: Platform> Send for PooledQueue<P> {}

impl<P: Platform> PooledQueue<P> {
    fn new(index: usize) -> Self {
        PooledQueue {
            queue: Queue::NEW,
            clock: PhaseClock::NEW,
            number: index as u32 + 1,
            serves: P::Cell::ZERO,
            next_or_biased: P::AtomicU32::ZERO,
        }
    }

    /// A thread has queued here.
    pub(super) fn note_queued(&self, is_biased: bool) {
        self.next_or_biased.store(is_biased.into(), Relaxed);
    }

    /// When a thread queued last, readers did not need to take the lock. A hint.
    pub(super) fn is_biased(&self) -> bool {
        self.next_or_biased.load(Relaxed) != 0
    }
}

/// A platform whose processes have a pool of queues: what [`RawRwSem`](super::RawRwSem) needs of
/// it. Every [`Host`](crate::process::Host) is one.
///
/// # Safety
/// As `Host`: only its implementations implement this.
pub unsafe trait HasQueuePool: HasRecords {
    /// The pool of this process.
    fn queue_pool() -> &'static QueuePool<Self>;
}

/// The pooled queues of a process.
pub struct QueuePool<P: Platform> {
    queues: Chunks<P, PooledQueue<P>, FIRST_QUEUES, CHUNKS>,
    /// How many were ever acquired.
    used: P::AtomicU32,
    /// Those that are not acquired, by their numbers.
    free: FreeList<P>,
}

impl<P: Platform> QueuePool<P> {
    pub(crate) const NEW: Self =
        QueuePool { queues: Chunks::NEW, used: P::AtomicU32::ZERO, free: FreeList::NEW };

    /// The queue that a lock's word names.
    #[inline]
    pub(super) fn named(&self, number: u32) -> &PooledQueue<P> {
        match self.queues.get(number as usize - 1) {
            Some(pooled) => pooled,
            None => self.named_in_time(number),
        }
    }

    /// This thread saw the word before the queue's memory, which will be visible soon.
    #[cold]
    fn named_in_time(&self, number: u32) -> &PooledQueue<P> {
        let mut attempt = 0;
        loop {
            P::give_way(attempt);
            attempt += 1;
            if let Some(pooled) = self.queues.get(number as usize - 1) {
                return pooled;
            }
        }
    }

    fn take(&self) -> Option<&PooledQueue<P>> {
        self.take_from_list().or_else(|| self.make())
    }

    fn take_from_list(&self) -> Option<&PooledQueue<P>> {
        let next = |number| self.named(number).next_or_biased.load(Relaxed);
        self.free.take(next).map(|number| self.named(number))
    }

    fn put_on_list(&self, pooled: &PooledQueue<P>) {
        self.free.put(pooled.number, |next| pooled.next_or_biased.store(next, Relaxed));
    }

    /// In the child of a `fork`: those who waited are gone, and so are those who had the lock of a
    /// queue. Their locks name no queue any more, and all queues but this thread's spare one are on
    /// the list.
    ///
    /// # Safety
    /// The calling thread is the only one, and came from the `fork` by which this process began. It
    /// was not in a lock's code.
    pub(crate) unsafe fn forked(&self, spare: *const ()) {
        self.free.clear();
        let used = self.used.load(Relaxed) as usize;
        for pooled in (0..used).filter_map(|index| self.queues.get(index)) {
            let serves = pooled.serves.get().cast::<P::AtomicU64>();
            // SAFETY: invariant 1; the threads that waited for that lock never ended their borrow,
            // they only have no more to do in this process.
            if let Some(word) = unsafe { serves.as_ref() } {
                word.fetch_and(!(QUEUE_FLAGS | UPGRADING), Relaxed);
            }
            pooled.serves.set(ptr::null());
            // SAFETY: the calling thread is the only one and was not in a lock's code, as the
            // caller promises.
            unsafe { pooled.queue.forked() };
            if !ptr::addr_eq(pooled, spare) {
                self.put_on_list(pooled);
            }
        }
    }

    #[cold]
    fn make(&self) -> Option<&PooledQueue<P>> {
        let mut used = self.used.load(Relaxed);
        while used < QUEUES {
            let pooled = self.queues.get_or_make(used as usize, PooledQueue::new)?;
            match self.used.compare_exchange(used, used + 1, Relaxed, Relaxed) {
                Ok(_) => return Some(pooled),
                Err(found) => used = found,
            }
        }
        None
    }
}

/// A queue for a lock that the calling thread waits for, locked; none if all are acquired or there
/// is no memory for more.
pub(super) fn acquire<P: HasQueuePool>()
-> Option<(&'static PooledQueue<P>, LockedQueue<'static, P>)> {
    let pooled = spare().or_else(|| P::queue_pool().take())?;
    if let Some(queue) = pooled.queue.try_lock() {
        debug_assert!(queue.is_empty() && pooled.serves.get().is_null(), "invariant 2");
        return Some((pooled, queue));
    }
    // Another thread, which is late, has its lock and is just finding that it serves its lock no
    // more; or was about to when this process was forked off (invariant 3).
    let other = acquire();
    P::queue_pool().put_on_list(pooled);
    other
}

fn spare<P: HasQueuePool>() -> Option<&'static PooledQueue<P>> {
    let spare = P::thread()?.spare_queue();
    let pooled = spare.get();
    if !pooled.is_null() {
        spare.set(ptr::null());
    }
    // SAFETY: null, or set by `release` to a pooled queue of this process, which is never freed.
    unsafe { pooled.cast::<PooledQueue<P>>().as_ref() }
}

/// Gives back a queue that is in this thread's hands.
pub(super) fn release<P: HasQueuePool>(pooled: &PooledQueue<P>) {
    let pool = P::queue_pool();
    match P::thread().map(|record| record.spare_queue()) {
        // While queues are plenty: thousands of threads that wait no more must not keep all of
        // them.
        Some(spare) if spare.get().is_null() && pool.used.load(Relaxed) <= MOST_SPARES => {
            spare.set(ptr::from_ref(pooled).cast());
        }
        _ => pool.put_on_list(pooled),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use lock_api::{RwLock, RwLockUpgradableReadGuard};

    use super::*;
    use crate::platform::{Counting, Os, Symmetric};
    use crate::policy::TimeFair;
    use crate::rwsem::RawRwSem;

    type Lock<P> = RwLock<RawRwSem<TimeFair, P>, u32>;

    fn take_all<P: Platform>(pool: &QueuePool<P>) -> Vec<&PooledQueue<P>> {
        std::iter::from_fn(|| pool.take()).collect()
    }

    #[test]
    fn a_process_has_memory_for_eight_queues_or_twice_as_many_as_were_ever_acquired() {
        let pool = QueuePool::<Os>::NEW;
        assert_eq!(pool.queues.bytes(), 0);
        let mut taken = 0;
        for (acquired, bytes) in [(1, 512), (8, 512), (9, 1024), (16, 1024), (1000, 65_536)] {
            while taken < acquired {
                pool.take().expect("there are more");
                taken += 1;
            }
            assert_eq!(pool.queues.bytes(), bytes, "{acquired} queues");
        }
    }

    #[test]
    fn each_pooled_queue_is_in_one_hand_and_there_are_8191() {
        let pool = QueuePool::<Os>::NEW;
        let all = take_all(&pool);
        let numbers: BTreeSet<_> = all.iter().map(|pooled| pooled.number).collect();
        assert!(numbers.into_iter().eq(1..=8191));
        assert!(all.iter().all(|pooled| ptr::eq(pool.named(pooled.number), *pooled)));
        pool.put_on_list(all[7]);
        pool.put_on_list(all[1000]);
        assert_eq!(pool.take().map(|pooled| pooled.number), Some(1001));
        assert_eq!(pool.take().map(|pooled| pooled.number), Some(8));
        assert!(pool.take().is_none());
    }

    /// Each waiter goes to sleep before the next one comes.
    #[test]
    fn waiting_again_and_again_for_many_locks_needs_two_queues_for_each_thread_at_most() {
        const THREADS: u32 = 4;
        for _ in 0..5 {
            let locks: Vec<Lock<Counting>> = (0..50).map(|_| Lock::default()).collect();
            let work = || {
                for lock in &locks {
                    let mut guard = lock.write();
                    *guard += 1;
                    thread::yield_now();
                }
            };
            thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
                // Until they have ended and left what they had, not only done their work.
                threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            });
            // At least one wait for each lock, whatever the scheduler does.
            for lock in &locks {
                let held = lock.read();
                assert!(lock.try_write_for(Duration::from_nanos(1)).is_none());
                drop(held);
                assert_eq!(lock.try_write().map(|count| *count), Some(THREADS));
            }
        }
        // This thread and that of the other test count, too. What threads that have ended have left
        // is used by later ones.
        let used = Counting::queue_pool().used.load(Relaxed);
        assert!(used <= 2 * (THREADS + 2), "{used} pool");
    }

    #[test]
    fn without_a_pooled_queue_a_thread_gets_the_lock_all_the_same_or_gives_up_in_time() {
        let pool = Os::queue_pool();
        let lock = Lock::<Os>::default();
        let all = take_all(pool);
        let held = lock.write();
        thread::scope(|scope| {
            let timed = || lock.try_read_for(Duration::from_millis(1)).is_none();
            assert!(scope.spawn(timed).join().expect("it does not panic"), "it is held");
            let writer = scope.spawn(|| *lock.write() += 1);
            let reader = scope.spawn(|| _ = *lock.read());
            thread::yield_now();
            drop(held);
            writer.join().expect("it gets the lock");
            reader.join().expect("it gets the lock");

            let guard = lock.upgradable_read();
            let (reads, woken_at) = mpsc::channel();
            let (leave, leaves) = mpsc::channel::<()>();
            let reader = &lock;
            scope.spawn(move || {
                let _guard = reader.read();
                reads.send(()).expect("the test listens");
                leaves.recv().expect_err("it is not woken_at anything");
            });
            woken_at.recv().expect("it reads");
            let short = Duration::from_millis(1);
            let guard = RwLockUpgradableReadGuard::try_upgrade_for(guard, short);
            let guard = guard.expect_err("another thread reads");
            drop(leave);
            *RwLockUpgradableReadGuard::upgrade(guard) += 1;
        });
        assert_eq!(*lock.read(), 2);
        all.into_iter().for_each(|pooled| pool.put_on_list(pooled));
    }

    #[test]
    fn threads_keep_no_spare_queue_once_half_of_all_queues_are_in_use() {
        let pool = Symmetric::queue_pool();
        thread::spawn(|| {
            let keeps_spare = || {
                let (pooled, queue) = acquire::<Symmetric>().expect("there are queues");
                drop(queue);
                release(pooled);
                spare::<Symmetric>().inspect(|spare| pool.put_on_list(spare)).is_some()
            };
            assert!(keeps_spare());
            let most: Vec<_> = (0..=MOST_SPARES).map(|_| pool.take().expect("more")).collect();
            assert!(!keeps_spare());
            most.into_iter().for_each(|pooled| pool.put_on_list(pooled));
        })
        .join()
        .expect("it does not panic");
    }

    /// As after a fork in which that thread was left behind.
    #[test]
    fn a_pooled_queue_that_another_thread_has_locked_is_not_waited_for() {
        thread::spawn(|| {
            let (pooled, queue) = acquire::<Counting>().expect("there are pool");
            drop(queue);
            let late = pooled.queue.lock();
            release(pooled);
            let (other, queue) = acquire::<Counting>().expect("there are others");
            assert_ne!(pooled.number, other.number);
            drop((late, queue));
            release(other);
        })
        .join()
        .expect("it does not panic");
    }
}

#[cfg(all(unix, not(miri)))]
#[cfg(test)]
mod fork_tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Duration;

    use lock_api::RwLock;

    use super::*;
    use crate::child_process::{ChildThread, Ending, first_wrong, in_child_process};
    use crate::platform::Os;
    use crate::policy::{PhaseFair, Policy, TimeFair};
    use crate::raw::Wait;
    use crate::rwsem::RawRwSem;
    use crate::rwsem::wait_queue::Kind;
    use crate::rwsem::word::has_waiters;
    use crate::slots::at_front;

    type Raw<Pol> = RawRwSem<Pol, Os>;
    type Forked<Pol> = RwLock<Raw<Pol>, u32>;

    fn waiting<Pol: Policy>(lock: &Forked<Pol>) -> usize {
        // SAFETY: neither locks nor unlocks.
        let lock = unsafe { lock.raw() };
        let word = lock.word.load(Relaxed);
        if !has_waiters(word) {
            return 0;
        }
        lock.own_queue(word).map_or(0, |queue| queue.len())
    }

    /// In a child, whose thread holds the lock by `guard` as its parent does: unlocks, and goes on.
    fn unlocks_and_goes_on<Pol: Policy, G>(lock: &Forked<Pol>, guard: &G) -> i32 {
        // SAFETY: the other one is the parent's: the child ends without dropping it.
        drop(unsafe { ptr::read(guard) });
        let is_free = lock.try_write().is_some() && lock.try_read().is_some();
        let mut held = lock.write();
        *held = 0;
        let mut threads = Vec::new();
        for _ in 0..3 {
            threads.push(ChildThread::start(|| *lock.write() += 1));
            threads.push(ChildThread::start(|| _ = *lock.read()));
        }
        let in_vain = AtomicBool::new(false);
        drop(ChildThread::start(|| {
            in_vain.store(lock.try_read_for(Duration::from_nanos(1)).is_none(), Relaxed);
        }));
        while waiting(lock) < 6 {
            thread::yield_now();
        }
        drop(held);
        drop(threads);
        let all = *lock.read() == 3;
        first_wrong(&[is_free, all, lock.try_write().is_some(), in_vain.into_inner()])
    }

    /// Forks while others wait for a lock that the forking thread has by `guard`, and they have
    /// queued.
    fn fork_while_others_wait<Pol: Policy, G>(
        lock: &Forked<Pol>,
        guard: impl FnOnce() -> G,
        others: &[fn(&Forked<Pol>)],
    ) {
        thread::scope(|scope| {
            let guard = guard();
            for &other in others {
                scope.spawn(move || other(lock));
            }
            while waiting(lock) < others.len() {
                thread::yield_now();
            }
            for _ in 0..3 {
                let ending = in_child_process(|| unlocks_and_goes_on(lock, &guard));
                assert_eq!(ending, Ending::Exited(0), "{}", Pol::NAME);
            }
            drop(guard);
        });
        assert!(lock.try_write().is_some(), "the parent's waiters got the lock");
    }

    fn write<Pol: Policy>(lock: &Forked<Pol>) {
        *lock.write() += 1;
    }

    fn read<Pol: Policy>(lock: &Forked<Pol>) {
        _ = *lock.read();
    }

    #[test]
    fn a_child_unlocks_a_lock_that_others_waited_for_and_uses_it() {
        fn check<Pol: Policy>() {
            let lock = Forked::<Pol>::default();
            fork_while_others_wait(&lock, || lock.write(), &[write, read, write, read]);
            fork_while_others_wait(&lock, || lock.read(), &[write, write]);
            assert_eq!(*lock.read(), 4);
        }
        check::<TimeFair>();
        check::<PhaseFair>();
    }

    #[test]
    fn a_child_uses_a_lock_whose_first_waiter_was_about_to_queue_and_all_pooled_queues() {
        let lock = Raw::<TimeFair>::NEW;
        let there = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                // Another test may have all queues for a moment.
                let queue = std::iter::repeat_with(|| lock.queue_to_wait_in()).flatten().next();
                let queue = queue.expect("one day there is a queue");
                lock.word.atomic().fetch_or(queue.bits(), Relaxed);
                there.wait();
                there.wait();
                lock.word.fetch_and(!QUEUE_FLAGS, Relaxed);
                drop(queue);
            });
            there.wait();
            let ending = in_child_process(|| {
                let is_free = lock.acquire(Kind::Write, Wait::Not);
                let pool = Os::queue_pool();
                let used = pool.used.load(Relaxed) as usize;
                let free: Vec<_> = std::iter::from_fn(|| pool.take_from_list()).collect();
                let spare = usize::from(spare::<Os>().is_some());
                let unlocked = free.iter().all(|pooled| pooled.queue.try_lock().is_some());
                first_wrong(&[is_free, free.len() + spare == used, unlocked])
            });
            there.wait();
            assert_eq!(ending, Ending::Exited(0));
        });
    }

    #[test]
    fn a_child_stands_in_a_line_that_others_stood_in() {
        let lock = Raw::<TimeFair>::NEW;
        let there = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let wait = || [there.wait(), there.wait()];
                at_front(&lock.line, None, wait).expect("it has a record");
            });
            there.wait();
            let behind = scope.spawn(|| at_front(&lock.line, None, || ()));
            let gone = at_front(&lock.line, Some(Os::now()), || ());
            let ending = in_child_process(|| {
                let front = at_front(&lock.line, Some(Os::now()), || ());
                let again = at_front(&lock.line, None, || ());
                first_wrong(&[front.is_some(), again.is_some()])
            });
            there.wait();
            assert_eq!((gone, ending), (None, Ending::Exited(0)));
            behind.join().expect("the parent's spinners go on").expect("it has a record");
        });
    }
}
