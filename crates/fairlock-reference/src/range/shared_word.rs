//! One word for everything until the first conflict: a reader-writer lock that ignores ranges, and becomes a
//! range lock when a thread would have to wait for it.
//!
//! After the "cheat mode" of `sys/kern/kern_rangelock.c` in FreeBSD since 2024, with these
//! differences: exact ranges are kept on the list of [`Naive`](super::Naive), where FreeBSD has a
//! lock-free list; the word is used again as soon as no range is held or waited for, where FreeBSD
//! keeps exact ranges for good.
//!
//! ```text
//!   31                                   2        1        0
//!  ┌──────────────────────────────────────┬────────┬────────┐
//!  │ readers                              │ WRITER │ RANGES │
//!  └──────────────────────────────────────┴────────┴────────┘
//! ```
//!
//! 1. While `RANGES` is clear the word is a reader-writer lock without a queue: acquiring and releasing it
//!    takes one atomic operation each, on a line that all share.
//! 2. A thread that would have to wait sets `RANGES` and queues on the list. Nobody acquires the word any
//!    more, so its holders become fewer; the last of them hands over to those on the list.
//! 3. From then on the list has every range.
//! 4. A thread that leaves the list empty clears `RANGES`.
//!
//! Invariants
//! 1. `RANGES` is set exactly while the list is not empty, seen under the list's lock, and written
//!    only under it.
//! 2. While `RANGES` is set nobody is added to the word's holders.
//! 3. An entry of the list is granted only while the word has no holders, and only while `RANGES` is set. So
//!    all holders are either in the word or on the list, and each side keeps its own holders apart.
//! 4. While the word has no holders and an entry waits without a conflict, a thread is on its way to the list's
//!    lock to grant it: the word's last holder, which found `RANGES` set.
//! 5. All writes to the word are read-modify-writes. So an Acquire of any value pairs with the Release of
//!    all that released it before, not only of the last.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::inside::Locked;
use fairlock::platform::{AtomicCell, AtomicInt, Os, Platform};
use fairlock::range::{Access, Extent, Patience, RawRangeLock};

use super::list::{Entry, List, Place};

/// Ranges are kept: nobody acquires the word.
const RANGES: u32 = 1;
/// The word is held exclusively.
const WRITER: u32 = 1 << 1;
/// One shared holder. When the count is full, which only leaked guards can cause, more have to wait.
const READER: u32 = 1 << 2;
const HOLDERS: u32 = !RANGES;

/// The reference: see the [module](super)'s list.
///
/// # Guarantees
/// * While nobody has to wait, ranges are ignored: shared acquisitions all succeed, and an exclusive one
///   excludes all others. An acquisition that has to wait turns this off; it waits until all that hold the
///   word then have released it, whatever their ranges. Exact ranges are kept afterwards, first come, first
///   served as with [`Naive`](super::Naive), until nothing is held or waited for.
/// * A waiter is passed by nobody: while somebody waits, nobody acquires the word.
/// * A try fails, and changes nothing, if it would have to wait for a holder of the word, although the ranges
///   may be disjoint; else as with [`Naive`](super::Naive).
/// * A timed acquisition that fails leaves no trace; those that it stalled get their ranges.
/// * **Not for threads that wait for a range while they hold one:** through the word they would wait for
///   themselves, even if the ranges are disjoint. In FreeBSD such callers turn the word off beforehand.
/// * It allocates only while ranges are kept.
pub struct SharedWord<P: Platform = Os> {
    word: P::AtomicU32,
    list: List<P>,
}

/// The entry on the list, on the heap; none for a share of the word.
pub struct SharedWordHold<P: Platform>(Option<Place<P>>);

/// The word with one more holder; none if it has to wait.
fn with(word: u32, access: Access) -> Option<u32> {
    match access {
        Access::Shared if word & (RANGES | WRITER) == 0 => word.checked_add(READER),
        Access::Exclusive if word == 0 => Some(WRITER),
        _ => None,
    }
}

/// What became of an acquisition that looked at the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// It holds the word.
    Acquired,
    /// A holder of the word conflicts, ranges being ignored.
    Refused,
    /// Ranges are kept.
    Ranges,
}

impl<P: Platform> SharedWord<P> {
    /// Whether everybody uses the word now. For tests and measurements: it may have changed already.
    pub fn ignores_ranges(&self) -> bool {
        self.word.load(Relaxed) & RANGES == 0
    }

    #[inline]
    fn take_word(&self, access: Access) -> Look {
        let mut word = self.word.load(Relaxed);
        while let Some(taken) = with(word, access) {
            // Acquire pairs with the Release of those that released the word, and of `settle` (invariant
            // 5).
            match self.word.compare_exchange_weak(word, taken, Acquire, Relaxed) {
                Ok(_) => return Look::Acquired,
                Err(found) => word = found,
            }
        }
        if word & RANGES == 0 { Look::Refused } else { Look::Ranges }
    }

    /// As [`take_word`](Self::take_word), but turns the word off if the acquisition has to wait and `waits`.
    fn take_word_or_close(&self, _locked: &Locked<'_, P>, access: Access, waits: bool) -> Look {
        let mut word = self.word.load(Relaxed);
        while word & RANGES == 0 {
            let taken = with(word, access);
            if taken.is_none() && !waits {
                return Look::Refused;
            }
            // Acquire as in `take_word`.
            let next = taken.unwrap_or(word | RANGES);
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) if taken.is_some() => return Look::Acquired,
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        Look::Ranges
    }

    /// The word has no holders, and nobody acquires it.
    fn is_drained(&self) -> bool {
        // Acquire pairs with the Release of all that released the word (invariant 5).
        self.word.load(Acquire) == RANGES
    }

    #[cold]
    fn acquire_range(
        &self,
        extent: Extent,
        access: Access,
        patience: Patience,
    ) -> Option<SharedWordHold<P>> {
        let entry = Entry::new(extent, access);
        let locked = self.list.lock();
        match self.take_word_or_close(&locked, access, patience != Patience::None) {
            Look::Acquired => return Some(SharedWordHold(None)),
            Look::Refused => return None,
            Look::Ranges => {}
        }
        let has_to_wait = !self.is_drained() || self.list.has_to_wait(&locked, &entry);
        let deadline = match patience {
            // Nobody has seen it, and the list was not empty before (invariant 1).
            Patience::None if has_to_wait => return None,
            Patience::None => None,
            Patience::Until(deadline) => deadline,
        };
        let place = self.list.push(&locked, entry, has_to_wait);
        drop(locked);
        match self.list.wait(place, deadline) {
            Ok(place) => Some(SharedWordHold(Some(place))),
            Err((locked, place)) => {
                // SAFETY: it was pushed above.
                unsafe { self.remove(locked, place) };
                None
            }
        }
    }

    /// # Safety
    /// The place is on this lock's list.
    unsafe fn remove(&self, locked: Locked<'_, P>, place: Place<P>) {
        // SAFETY: the place is on this lock's list, as the caller promises.
        let entry = unsafe { self.list.remove(&locked, place) };
        self.settle(locked);
        drop(entry);
    }

    /// After a release: hands over to those that conflict with nobody any more, or turns the word on again.
    fn settle(&self, locked: Locked<'_, P>) {
        if self.list.is_empty(&locked) {
            // Invariant 1. Release pairs with the Acquire in `take_word`: every holder on the list released
            // its range under the list's lock.
            self.word.fetch_and(!RANGES, Release);
        } else if self.is_drained() {
            let wake_ups = self.list.admit(&locked);
            drop(locked);
            wake_ups.send();
        }
    }

    /// Moves a downgraded holder from the word to the list, before those that wait there for the word.
    #[cold]
    fn downgrade_to_list(&self, extent: Extent) -> Place<P> {
        let entry = Entry::new(extent, Access::Shared);
        let locked = self.list.lock();
        let place = self.list.push_held(&locked, entry);
        // The waiters may have given up: then ranges are kept for this one alone. Release pairs with the
        // Acquire in `is_drained`.
        let word = self.word.swap(RANGES, Release);
        debug_assert_eq!(word & HOLDERS, WRITER, "an exclusive holder changes nobody else's share");
        self.settle(locked);
        place
    }
}

// SAFETY: in the word, `with` keeps conflicting holders apart. On the list, an entry is granted only while the
// word has no holders, which stays so until the list is empty (invariants 1 to 3), and with all conflicting
// ranges before it off the list.
unsafe impl<P: Platform> RawRangeLock for SharedWord<P> {
    type Platform = P;
    type Hold = SharedWordHold<P>;
    const NEW: Self = SharedWord { word: P::AtomicU32::ZERO, list: List::NEW };

    #[inline]
    fn acquire(
        &self,
        extent: Extent,
        access: Access,
        patience: Patience,
    ) -> Option<SharedWordHold<P>> {
        match self.take_word(access) {
            Look::Acquired => Some(SharedWordHold(None)),
            Look::Refused if patience == Patience::None => None,
            Look::Refused | Look::Ranges => self.acquire_range(extent, access, patience),
        }
    }

    unsafe fn downgrade(&self, extent: Extent, hold: &mut SharedWordHold<P>) {
        if let Some(place) = &hold.0 {
            let locked = self.list.lock();
            self.list.share(&locked, place);
            self.settle(locked);
            return;
        }
        // Release pairs with the Acquire in `take_word`.
        if self.word.compare_exchange(WRITER, READER, Release, Relaxed).is_err() {
            hold.0 = Some(self.downgrade_to_list(extent));
        }
    }

    #[inline]
    unsafe fn release(&self, _extent: Extent, access: Access, hold: SharedWordHold<P>) {
        if let Some(place) = hold.0 {
            // SAFETY: the hold came from this lock.
            return unsafe { self.remove(self.list.lock(), place) };
        }
        let share = if access == Access::Shared { READER } else { WRITER };
        // Release pairs with the Acquire in `take_word` and in `is_drained`.
        if self.word.fetch_sub(share, Release) == RANGES | share {
            self.settle(self.list.lock());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::Access::{Exclusive, Shared};
    use super::*;

    type Lock = SharedWord<Os>;

    fn extent(positions: core::ops::Range<u64>) -> Extent {
        Extent::of(positions).unwrap()
    }

    fn try_take(lock: &Lock, at: Extent, access: Access) -> Option<SharedWordHold<Os>> {
        lock.acquire(at, access, Patience::None)
    }

    /// Waits on another thread, and returns once the word is off.
    fn wait_for<'scope>(
        scope: &'scope thread::Scope<'scope, '_>,
        lock: &'scope Lock,
        at: Extent,
        access: Access,
    ) -> thread::ScopedJoinHandle<'scope, SharedWordHold<Os>> {
        let waiter = scope.spawn(move || lock.acquire(at, access, Patience::Until(None)).unwrap());
        while lock.ignores_ranges() {
            thread::yield_now();
        }
        waiter
    }

    fn leave(lock: &Lock, access: Access, hold: SharedWordHold<Os>) {
        // SAFETY: every test below holds it with this access; the extent is not used.
        unsafe { lock.release(Extent::ALL, access, hold) };
    }

    fn word(lock: &Lock) -> u32 {
        lock.word.load(Relaxed)
    }

    #[test]
    fn in_the_word_ranges_are_ignored_and_a_failed_try_changes_nothing() {
        let lock = Lock::NEW;
        let [a, b] = [0..1, 5..6].map(|at| try_take(&lock, extent(at), Shared).unwrap());
        assert_eq!(word(&lock), 2 * READER);
        assert!(try_take(&lock, extent(8..9), Exclusive).is_none());
        [a, b].into_iter().for_each(|hold| leave(&lock, Shared, hold));
        let hold = try_take(&lock, extent(0..1), Exclusive).unwrap();
        assert!(try_take(&lock, extent(8..9), Shared).is_none());
        assert_eq!(word(&lock), WRITER);
        leave(&lock, Exclusive, hold);
        assert_eq!(word(&lock), 0);
    }

    #[test]
    fn who_gives_up_waiting_turns_the_word_on_again() {
        let lock = Lock::NEW;
        let hold = try_take(&lock, extent(0..1), Exclusive).unwrap();
        assert!(lock.acquire(extent(0..1), Shared, Patience::Until(Some(0))).is_none());
        assert_eq!(word(&lock), WRITER);
        leave(&lock, Exclusive, hold);
        assert_eq!(word(&lock), 0);
    }

    #[test]
    fn ranges_are_kept_from_the_first_wait_until_nothing_is_held() {
        let lock = Lock::NEW;
        thread::scope(|scope| {
            let hold = try_take(&lock, extent(0..1), Shared).unwrap();
            let waiter = wait_for(scope, &lock, extent(4..6), Exclusive);
            assert_eq!(word(&lock), READER | RANGES);
            assert!(try_take(&lock, extent(0..1), Shared).is_none(), "the word is closed");
            leave(&lock, Shared, hold);
            let waited = waiter.join().unwrap();
            assert_eq!(word(&lock), RANGES);
            let disjoint = try_take(&lock, extent(6..9), Exclusive).unwrap();
            assert!(try_take(&lock, extent(5..6), Shared).is_none());
            leave(&lock, Exclusive, waited);
            assert_eq!(word(&lock), RANGES);
            leave(&lock, Exclusive, disjoint);
            assert_eq!(word(&lock), 0);
        });
    }

    #[test]
    fn a_downgrade_in_the_word_lets_in_readers_who_wait_for_it() {
        let lock = Lock::NEW;
        thread::scope(|scope| {
            let mut hold = try_take(&lock, extent(0..4), Exclusive).unwrap();
            let waiter = wait_for(scope, &lock, extent(1..2), Shared);
            // SAFETY: it was acquired so above.
            unsafe { lock.downgrade(extent(0..4), &mut hold) };
            let waited = waiter.join().unwrap();
            assert!(try_take(&lock, extent(3..4), Exclusive).is_none());
            assert!(hold.0.is_some(), "it has moved to the list");
            leave(&lock, Shared, waited);
            leave(&lock, Shared, hold);
            assert_eq!(word(&lock), 0);
            let mut alone = try_take(&lock, extent(0..4), Exclusive).unwrap();
            // SAFETY: acquired exclusively above.
            unsafe { lock.downgrade(extent(0..4), &mut alone) };
            assert_eq!(word(&lock), READER, "nobody waits");
            leave(&lock, Shared, alone);
        });
    }

    #[test]
    fn a_downgrade_whose_waiters_have_given_up_keeps_its_range() {
        let lock = Lock::NEW;
        let hold = try_take(&lock, extent(0..4), Exclusive).unwrap();
        assert!(hold.0.is_none());
        let place = lock.downgrade_to_list(extent(0..4));
        assert_eq!(word(&lock), RANGES);
        assert!(try_take(&lock, extent(3..4), Exclusive).is_none());
        let beside = try_take(&lock, extent(4..5), Exclusive).unwrap();
        leave(&lock, Exclusive, beside);
        leave(&lock, Shared, SharedWordHold(Some(place)));
        assert_eq!(word(&lock), 0);
    }
}
