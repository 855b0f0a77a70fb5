//! The range lock of old: a mutex over one list of all ranges that are held or waited for.
//!
//! After `sys/kern/kern_rangelock.c` of FreeBSD until 2023: every acquisition and every release
//! takes the mutex, and a waiter stalls all later acquisitions, also those that overlap nothing.
//!
//! The invariants are the list's (`list.rs`); its order decides who is next.

use fairlock::inside::Locked;
use fairlock::lock_api::{Mutex, RawMutex};
use fairlock::platform::{Os, Platform};
use fairlock::range::{Access, Extent, Patience, RawRangeLock};

use super::list::{Entry, List, Place};

/// The reference: see the [module](super)'s list.
///
/// # Guarantees
/// * First come, first served, over all ranges: nobody is passed. A waiter gets its range with the release of
///   the last range before it that it conflicts with, if nobody waits before it.
/// * A try fails if it conflicts with a range that is held, or if anybody waits for any range.
/// * A timed acquisition that fails leaves no trace; those that it stalled get their ranges.
/// * A thread that holds ranges may wait for another one as long as that conflicts with none of its own, and
///   no waiter before it conflicts with what it holds.
/// * It allocates at each acquisition.
///
/// The list's own small lock spins briefly and then sleeps, as in user space it must. A kernel's mutex spins for
/// as long as its owner runs: that is [`Under`] a spin lock, taken around the small lock.
pub struct Naive<P: Platform = Os, U = ()> {
    under: U,
    list: List<P>,
}

/// What the list's small lock is taken under.
pub trait Outer: Send + Sync + 'static {
    /// Free.
    const NEW: Self;
    /// Runs `section` under it.
    fn with<R>(&self, section: impl FnOnce() -> R) -> R;
}

/// Nothing.
impl Outer for () {
    const NEW: Self = ();

    fn with<R>(&self, section: impl FnOnce() -> R) -> R {
        section()
    }
}

/// A mutex that takes turns before the list's small lock does.
pub struct Under<M>(Mutex<M, ()>);

impl<M: RawMutex + Send + Sync + 'static> Outer for Under<M> {
    const NEW: Self = Under(Mutex::new(()));

    fn with<R>(&self, section: impl FnOnce() -> R) -> R {
        let _turn = self.0.lock();
        section()
    }
}

/// An entry on the list, on the heap.
pub struct NaiveHold<P: Platform>(Place<P>);

impl<P: Platform, U: Outer> Naive<P, U> {
    /// # Safety
    /// The place is on this lock's list.
    unsafe fn remove(&self, locked: Locked<'_, P>, place: Place<P>) {
        // SAFETY: the place is on this lock's list, as the caller promises.
        let entry = unsafe { self.list.remove(&locked, place) };
        let wake_ups = self.list.admit(&locked);
        drop(locked);
        wake_ups.send();
        drop(entry);
    }
}

// SAFETY: an entry is granted under the list's lock, with all conflicting ranges before it off the list (the
// list's invariant 3).
unsafe impl<P: Platform, U: Outer> RawRangeLock for Naive<P, U> {
    type Platform = P;
    type Hold = NaiveHold<P>;
    const NEW: Self = Naive { under: U::NEW, list: List::NEW };

    fn acquire(&self, extent: Extent, access: Access, patience: Patience) -> Option<NaiveHold<P>> {
        let entry = Entry::new(extent, access);
        let queued = self.under.with(|| {
            let locked = self.list.lock();
            let has_to_wait = self.list.has_to_wait(&locked, &entry);
            let deadline = match patience {
                // Nobody has seen the entry.
                Patience::None if has_to_wait => return None,
                Patience::None => None,
                Patience::Until(deadline) => deadline,
            };
            Some((self.list.push(&locked, entry, has_to_wait), deadline))
        });
        let (place, deadline) = queued?;
        match self.list.wait(place, deadline) {
            Ok(place) => Some(NaiveHold(place)),
            Err((locked, place)) => {
                // SAFETY: it was pushed above.
                unsafe { self.remove(locked, place) };
                None
            }
        }
    }

    unsafe fn downgrade(&self, _extent: Extent, hold: &mut NaiveHold<P>) {
        let wake_ups = self.under.with(|| {
            let locked = self.list.lock();
            self.list.share(&locked, &hold.0);
            self.list.admit(&locked)
        });
        wake_ups.send();
    }

    unsafe fn release(&self, _extent: Extent, _access: Access, hold: NaiveHold<P>) {
        let (entry, wake_ups) = self.under.with(|| {
            let locked = self.list.lock();
            // SAFETY: the hold came from this lock.
            let entry = unsafe { self.list.remove(&locked, hold.0) };
            (entry, self.list.admit(&locked))
        });
        wake_ups.send();
        drop(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_try_and_a_failed_wait_leave_nothing_behind() {
        let lock = <Naive>::NEW;
        let extent = Extent::ALL;
        let hold = lock.acquire(extent, Access::Exclusive, Patience::None).unwrap();
        for patience in [Patience::None, Patience::Until(Some(0))] {
            assert!(lock.acquire(extent, Access::Shared, patience).is_none());
        }
        // SAFETY: it was acquired so above.
        unsafe { lock.release(extent, Access::Exclusive, hold) };
        assert!(lock.list.is_empty(&lock.list.lock()));
    }
}
