//! The list of Linux's epoll until July 2025: producers append under a lock taken for *reading*, with
//! an exchange of the tail; a consumer takes all with the lock taken for writing.
//!
//! Producers thus do not wait for each other. But all of them write the lock's word, and a consumer
//! waits for every producer inside: one that is preempted there holds it up for as long as it is.
//!
//! After `ep_poll_callback` and `list_add_tail_lockless` of `fs/eventpoll.c` in Linux 6.15 (commit
//! a218cc491420), with two differences: an item's own state says that it is on the list, where the
//! kernel compares its link; and events that come while a consumer works go to the same list, where the
//! kernel has a second one, because the consumer has moved the items elsewhere. To measure against; not for
//! production.
//!
//! Invariants
//! 1. `tail` is the youngest item, null if there is none; each item's link leads to the next younger
//!    one as soon as that one's producer has left the lock.
//! 2. Links are complete while the lock is held for writing.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use fairlock::inside::{INSIDE, QUEUED, hand_over, is_queued};
use fairlock::lock_api::{RawRwLock, RwLock};
use fairlock::platform::{AtomicCell, AtomicInt, Os, Platform};
use fairlock::ready::{HasNesting, Item, List, Watchers};

use crate::linux::{Linux5_11, RawLinuxRwSem};

/// Epoll's ready list as it was: producers share a reader-writer lock with each other.
///
/// The lock is a semaphore that spins before it sleeps by default, which is what user space can do;
/// [`RawQueuedRwLock`](crate::spin::RawQueuedRwLock) is the kernel's own.
#[repr(align(64))]
pub struct RwLockList<P: Platform = Os, R: RawRwLock = RawLinuxRwSem<Linux5_11, P>> {
    ends: RwLock<R, Ends<P>>,
    /// [`Watchers`], changed under the lock.
    watchers: P::AtomicU32,
}

struct Ends<P: Platform> {
    oldest: P::AtomicPtr<()>,
    tail: P::AtomicPtr<()>,
}

// SAFETY: invariants 1 and 2; `INSIDE` counts every producer in and out.
unsafe impl<P: HasNesting, R: RawRwLock + Send + Sync + 'static> List for RwLockList<P, R> {
    type Platform = P;
    type Entry = ();
    const NEW: Self = RwLockList {
        ends: RwLock::from_raw(
            R::INIT,
            Ends { oldest: P::AtomicPtr::ZERO, tail: P::AtomicPtr::ZERO },
        ),
        watchers: P::AtomicU32::ZERO,
    };

    #[inline]
    fn enter(item: &Item<P>) -> Option<()> {
        item.enter().then_some(())
    }

    fn push(&self, item: &Item<P>, (): ()) -> Watchers {
        let ends = self.ends.read();
        // AcqRel pairs with `Item::release`.
        if is_queued(item.state.load(Relaxed)) || is_queued(item.state.fetch_or(QUEUED, AcqRel)) {
            return 0;
        }
        item.next.store(ptr::null_mut(), Relaxed);
        // Relaxed: the lock orders all this against consumers.
        let older = ends.tail.swap(item.as_link(), AcqRel);
        if older.is_null() {
            ends.oldest.store(item.as_link(), Relaxed);
        } else {
            // SAFETY: on the list, and so alive.
            unsafe { &*older.cast::<Item<P>>() }.next.store(item.as_link(), Relaxed);
        }
        if self.watchers.load(Relaxed) == 0 { 0 } else { self.watchers.swap(0, Relaxed) }
    }

    fn pushed(_item: &Item<P>, (): ()) {}

    fn told(item: &Item<P>, (): ()) {
        item.leave(INSIDE);
    }

    fn take(&self, sink: impl FnMut(*const Item<P>)) -> bool {
        let oldest = {
            let ends = self.ends.write();
            ends.tail.store(ptr::null_mut(), Relaxed);
            ends.oldest.swap(ptr::null_mut(), Relaxed)
        };
        // SAFETY: they were on the list.
        unsafe { hand_over(oldest, sink) };
        false
    }

    fn watch(&self, watchers: Watchers) -> bool {
        let ends = self.ends.write();
        let is_empty = ends.tail.load(Relaxed).is_null();
        if is_empty {
            self.watchers.fetch_or(watchers, Relaxed);
        }
        is_empty
    }

    fn is_empty(&self) -> bool {
        // SAFETY: a lock's data may be looked at if it is atomic.
        unsafe { &*self.ends.data_ptr() }.tail.load(Relaxed).is_null()
    }
}
