//! The list of Linux's epoll since July 2025: one lock around a plain FIFO.
//!
//! The lock is held for a few instructions, but all producers queue for it; who is preempted while he
//! holds it holds up everybody, unless the lock knows of priorities.
//!
//! After Nam Cao's "eventpoll: Replace rwlock with spinlock" (July 2025). To measure against; not for
//! production.
//!
//! Invariants
//! 1. The ends, the links of items on the list, and who watches are touched under the lock alone.
//! 2. Whoever sets `QUEUED` under the lock puts the item on the list before the lock is free again, so
//!    with the lock held an item is on the list or with the consumers if it is queued.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use fairlock::inside::{INSIDE, QUEUED, hand_over, is_queued};
use fairlock::lock_api::{Mutex, RawMutex};
use fairlock::mutex;
use fairlock::platform::{AtomicCell, AtomicInt, Os, Platform};
use fairlock::ready::{HasNesting, Item, List, Watchers};

/// Epoll's ready list as it is: everybody takes one lock.
///
/// The lock is a mutex that spins before it sleeps by default, which is what user space can do;
/// [`RawTtas`](crate::spin::RawTtas) only spins.
#[repr(align(64))]
pub struct SpinList<P: Platform = Os, M: RawMutex = mutex::RawMutex<P>> {
    ends: Mutex<M, Ends<P>>,
}

struct Ends<P: Platform> {
    oldest: P::AtomicPtr<()>,
    youngest: P::AtomicPtr<()>,
    watchers: P::AtomicU32,
}

// SAFETY: invariants 1 and 2; `INSIDE` counts every producer in and out.
unsafe impl<P: HasNesting, M: RawMutex + Send + Sync + 'static> List for SpinList<P, M> {
    type Platform = P;
    type Entry = ();
    const NEW: Self = SpinList {
        ends: Mutex::from_raw(
            M::INIT,
            Ends {
                oldest: P::AtomicPtr::ZERO,
                youngest: P::AtomicPtr::ZERO,
                watchers: P::AtomicU32::ZERO,
            },
        ),
    };

    #[inline]
    fn enter(item: &Item<P>) -> Option<()> {
        item.enter().then_some(())
    }

    fn push(&self, item: &Item<P>, (): ()) -> Watchers {
        let ends = self.ends.lock();
        // AcqRel pairs with `Item::release`, which takes no lock.
        if is_queued(item.state.load(Relaxed)) || is_queued(item.state.fetch_or(QUEUED, AcqRel)) {
            return 0;
        }
        // Relaxed: the lock orders all this.
        item.next.store(ptr::null_mut(), Relaxed);
        let older = ends.youngest.load(Relaxed);
        ends.youngest.store(item.as_link(), Relaxed);
        if older.is_null() {
            ends.oldest.store(item.as_link(), Relaxed);
        } else {
            // SAFETY: on the list, and so alive.
            unsafe { &*older.cast::<Item<P>>() }.next.store(item.as_link(), Relaxed);
        }
        let watchers = ends.watchers.load(Relaxed);
        if watchers != 0 {
            ends.watchers.store(0, Relaxed);
        }
        watchers
    }

    fn pushed(_item: &Item<P>, (): ()) {}

    fn told(item: &Item<P>, (): ()) {
        item.leave(INSIDE);
    }

    fn take(&self, sink: impl FnMut(*const Item<P>)) -> bool {
        let oldest = {
            let ends = self.ends.lock();
            let oldest = ends.oldest.load(Relaxed);
            ends.oldest.store(ptr::null_mut(), Relaxed);
            ends.youngest.store(ptr::null_mut(), Relaxed);
            oldest
        };
        // SAFETY: they were on the list.
        unsafe { hand_over(oldest, sink) };
        false
    }

    fn watch(&self, watchers: Watchers) -> bool {
        let ends = self.ends.lock();
        let is_empty = ends.youngest.load(Relaxed).is_null();
        if is_empty {
            ends.watchers.store(ends.watchers.load(Relaxed) | watchers, Relaxed);
        }
        is_empty
    }

    fn is_empty(&self) -> bool {
        // SAFETY: a lock's data may be looked at if it is atomic.
        unsafe { &*self.ends.data_ptr() }.youngest.load(Relaxed).is_null()
    }
}
