//! A lock's queue: acquired from the pool (`queue_pool.rs`) for as long as a thread waits.
//!
//! Invariants
//! 1. The word names a queue exactly while a thread is on it, seen under the lock of that queue. It
//!    changes under that lock only.
//! 2. A thread that holds the queue's lock and knows that the queue is this lock's (by what the
//!    queue says it serves, or because the thread's own node is on it) may touch the lock: there is
//!    a waiter, which keeps the lock alive, until the lock of the queue is released *and* those
//!    taken off are woken. So what has to be noted in the lock when the queue is empty is noted
//!    before that.
//! 3. Any other thread that has released the lock may only read the queue's place that the word
//!    named then, without the queue in it; it may be another lock's by now.
//! 4. A queue knows its lock from before the word names it until after: a thread that finds the
//!    word naming it finds the lock in it, also in the child of a `fork` that came in between.
//! 5. If another lock now is where the first one was, and has acquired the same queue, then it is
//!    served instead. That is no harm: any thread may serve any queue at any time. If the two have
//!    different policies or readers, one decision is taken by the other's policy; all that is
//!    touched lies at the same offset in every lock of a platform.

use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::Ordering::Release;
use core::sync::atomic::compiler_fence;

use super::account::PhaseClock;
use super::queue_pool::{self, HasQueuePool, PooledQueue};
use super::wait_queue::{LockedQueue, WakeList};
use super::word::{queue_bits, queue_number};
use crate::platform::PlainCell;

/// A lock's own queue, locked by a thread that may touch the lock (invariant 2). If it is empty
/// when this is dropped, it goes back to the pool.
pub(super) struct OwnQueue<'a, P: HasQueuePool> {
    place: &'static PooledQueue<P>,
    queue: ManuallyDrop<LockedQueue<'static, P>>,
    /// The word names the queue, or did so until it became empty.
    is_named: Cell<bool>,
    lock: PhantomData<&'a P::AtomicU64>,
}

fn identity<P: HasQueuePool>(word: &P::AtomicU64) -> *const () {
    ptr::from_ref(word).cast()
}

impl<'a, P: HasQueuePool> OwnQueue<'a, P> {
    /// The queue in this place, if it is still that of the lock with this word.
    pub(super) fn lock(word: &'a P::AtomicU64, place: &'static PooledQueue<P>) -> Option<Self> {
        Self::if_own(word, place, place.queue.lock())
    }

    /// The same if no thread has the queue's lock.
    pub(super) fn try_lock(word: &'a P::AtomicU64, place: &'static PooledQueue<P>) -> Option<Self> {
        Self::if_own(word, place, place.queue.try_lock()?)
    }

    fn if_own(
        word: &'a P::AtomicU64,
        place: &'static PooledQueue<P>,
        queue: LockedQueue<'static, P>,
    ) -> Option<Self> {
        (place.serves.get() == identity::<P>(word)).then(|| Self::new(place, queue, true))
    }

    /// A queue for a lock whose word names none, or may do so; none if the pool has none left.
    ///
    /// # Safety
    /// What it returns is dropped, not forgotten.
    pub(super) unsafe fn acquire(word: &'a P::AtomicU64) -> Option<Self> {
        let (place, queue) = queue_pool::acquire::<P>()?;
        place.serves.set(identity::<P>(word));
        compiler_fence(Release); // Invariant 4: before the word.
        Some(Self::new(place, queue, false))
    }

    fn new(place: &'static PooledQueue<P>, queue: LockedQueue<'static, P>, is_named: bool) -> Self {
        let (queue, is_named) = (ManuallyDrop::new(queue), Cell::new(is_named));
        OwnQueue { place, queue, is_named, lock: PhantomData }
    }

    /// Releases the queue's lock, and then wakes those that were taken off.
    pub(super) fn unlock_and_wake(self, woken: WakeList<P>) {
        drop(self);
        woken.wake();
    }

    pub(super) fn place(&self) -> &'static PooledQueue<P> {
        self.place
    }

    pub(super) fn clock(&self) -> &'static PhaseClock<P> {
        &self.place.clock
    }

    /// Its number as it stands in the word.
    pub(super) fn bits(&self) -> u64 {
        queue_bits(self.place.number)
    }

    /// The threads that wait according to this word do so here, or none waits.
    pub(super) fn is_for(&self, word: u64) -> bool {
        self.is_named.get() || queue_number(word) == 0
    }

    /// The word now names this queue.
    pub(super) fn note_named(&self) {
        self.is_named.set(true);
    }
}

impl<P: HasQueuePool> Deref for OwnQueue<'_, P> {
    type Target = LockedQueue<'static, P>;
    fn deref(&self) -> &LockedQueue<'static, P> {
        &self.queue
    }
}

impl<P: HasQueuePool> Drop for OwnQueue<'_, P> {
    fn drop(&mut self) {
        let leaves = self.queue.is_empty();
        if leaves {
            compiler_fence(Release); // Invariant 4: after the word.
            self.place.serves.set(ptr::null());
        }
        // SAFETY: not used after this.
        unsafe { ManuallyDrop::drop(&mut self.queue) };
        if leaves {
            queue_pool::release(self.place);
        }
    }
}
