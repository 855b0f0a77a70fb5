//! What range locks used to be: a mutex over one list of all ranges that are held or waited for.
//!
//! After `sys/kern/kern_rangelock.c` of FreeBSD until 2023: every acquisition and every release
//! takes the mutex, and a range that has to wait stalls all that come after it, also those that
//! overlap nothing.
//!
//! Invariants
//! 1. The ring holds every range that is held or waited for, in the order of arrival.
//! 2. Those that wait are at its end, and the first of them conflicts with one before it.
//! 3. An entry belongs to its waiter until it is off the ring; `IN` is the last thing that others
//!    write to it.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{Access, Extent, Patience, RawRangeLock};
use crate::platform::{AtomicCell, Os, PlainCell, Platform};
use crate::wait_queue::{Links, Locked, OnRing, QueueLock, Ring};

/// The reference: see the [module](super)'s list.
///
/// # Guarantees
/// First come, first served, over all ranges. Allocates at each acquisition.
pub struct Naive<P: Platform = Os> {
    lock: QueueLock<P>,
    entries: Ring<P, Entry<P>>,
}

// SAFETY: the ring is touched only by the holder of the lock.
unsafe impl<P: Platform> Sync for Naive<P> {}
// SAFETY: what can be moved is borrowed by nobody, so its ring is empty or leads to leaked entries.
unsafe impl<P: Platform> Send for Naive<P> {}

struct Entry<P: Platform> {
    links: Links<P>,
    extent: Extent,
    /// 1: shared. Written by the holder of the lock.
    shared: P::Cell<u32>,
    state: P::AtomicU32,
}

const WAITS: u32 = 0;
const IN: u32 = 1;

impl<P: Platform> OnRing<P> for Entry<P> {
    fn links(&self) -> &Links<P> {
        &self.links
    }
}

impl<P: Platform> Entry<P> {
    fn conflicts(&self, other: &Self) -> bool {
        self.extent.overlaps(other.extent) && (self.shared.get() == 0 || other.shared.get() == 0)
    }
}

/// An entry on the ring, on the heap.
pub struct NaiveHold<P: Platform>(NonNull<Entry<P>>);

// SAFETY: an entry is not bound to a thread.
unsafe impl<P: Platform> Send for NaiveHold<P> {}
// SAFETY: a shared reference to it gives access to nothing.
unsafe impl<P: Platform> Sync for NaiveHold<P> {}

impl<P: Platform> NaiveHold<P> {
    fn entry(&self) -> &Entry<P> {
        // SAFETY: freed by `remove` only, which consumes the hold.
        unsafe { self.0.as_ref() }
    }
}

impl<P: Platform> Naive<P> {
    /// Lets in everybody up to the first who has to wait (invariant 2).
    fn admit(&self, locked: &Locked<'_, P>) {
        let Some(oldest) = self.entries.oldest(locked) else { return };
        let mut entry = oldest;
        loop {
            if entry.state.load(Relaxed) == WAITS {
                let mut before = oldest;
                while !core::ptr::eq(before, entry) {
                    if before.conflicts(entry) {
                        return;
                    }
                    before = self.entries.next(locked, before);
                }
                // Release pairs with the Acquire in `acquire`.
                entry.state.store(IN, Release);
                P::unpark(&entry.state);
            }
            entry = self.entries.next(locked, entry);
            if core::ptr::eq(entry, oldest) {
                return;
            }
        }
    }

    fn remove(&self, hold: NaiveHold<P>) {
        let locked = self.lock.lock();
        self.entries.remove(&locked, hold.entry());
        self.admit(&locked);
        drop(locked);
        // SAFETY: it came from a box and is off the ring; invariant 3.
        drop(unsafe { Box::from_raw(hold.0.as_ptr()) });
    }
}

// SAFETY: an entry is `IN` only after all conflicting ones before it are off the ring, seen under
// the lock; later ones see it there.
unsafe impl<P: Platform> RawRangeLock for Naive<P> {
    type Platform = P;
    type Hold = NaiveHold<P>;
    const NEW: Self = Naive { lock: QueueLock::NEW, entries: Ring::EMPTY };

    fn acquire(&self, extent: Extent, access: Access, patience: Patience) -> Option<NaiveHold<P>> {
        let entry = Box::new(Entry::<P> {
            links: Links::NEW,
            extent,
            shared: P::Cell::ZERO,
            state: P::AtomicU32::ZERO,
        });
        entry.shared.set((access == Access::Shared).into());
        let hold = NaiveHold(NonNull::from(Box::leak(entry)));
        let locked = self.lock.lock();
        self.entries.push(&locked, hold.entry());
        self.admit(&locked);
        drop(locked);
        let state = &hold.entry().state;
        // Acquire pairs with the Release in `admit`.
        while state.load(Acquire) == WAITS {
            let deadline = match patience {
                Patience::Until(None) => None,
                Patience::Until(Some(deadline)) if P::now() < deadline => Some(deadline),
                Patience::Until(Some(_)) | Patience::None => {
                    self.remove(hold);
                    return None;
                }
            };
            P::park(state, WAITS, deadline);
        }
        Some(hold)
    }

    unsafe fn downgrade(&self, _extent: Extent, hold: &mut NaiveHold<P>) {
        let locked = self.lock.lock();
        hold.entry().shared.set(1);
        self.admit(&locked);
    }

    unsafe fn release(&self, _extent: Extent, _access: Access, hold: NaiveHold<P>) {
        self.remove(hold);
    }
}
