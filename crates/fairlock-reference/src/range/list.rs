//! Every range that is held or waited for, in the order of arrival, under one small lock: [`Naive`](super::Naive)
//! consists of it, and [`SharedWord`](super::SharedWord) falls back to it.
//!
//! Invariants
//! 1. The ring has every range that is held or waited for, in the order of arrival; a holder that
//!    [`SharedWord`](super::SharedWord) moves here while others wait for it comes first.
//! 2. The waiters are at its end.
//! 3. An entry is `GRANTED` only after all conflicting entries before it are off the ring, seen under the
//!    lock; later ones see it there.
//! 4. An entry is on the ring from `push` to `remove`, and alive for that long.

use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::inside::{Links, Locked, OnRing, QueueLock, Ring};
use fairlock::platform::{AtomicCell, PlainCell, Platform};
use fairlock::range::{Access, Extent};

use crate::heap::HeapBox;

/// The ranges of one lock.
pub(super) struct List<P: Platform> {
    lock: QueueLock<P>,
    entries: Ring<P, Entry<P>>,
    /// How many wait, so that nobody searches for them in vain.
    waiting: P::Cell<u32>,
    /// How many entries are exclusive: without one, a reader looks at no other entry. (In FreeBSD those that
    /// write stand before all others, and a reader looks at them alone.)
    exclusive: P::Cell<u32>,
}

// SAFETY: the ring is touched only by the holder of the lock.
unsafe impl<P: Platform> Sync for List<P> {}
// SAFETY: a list that is moved is borrowed by nobody, so its ring is empty or leads to leaked entries.
unsafe impl<P: Platform> Send for List<P> {}

/// One range, on a line of its own. Written by the holder of the list's lock once it is on the ring.
#[repr(align(64))]
pub(super) struct Entry<P: Platform> {
    links: Links<P>,
    extent: Extent,
    /// 1: shared.
    shared: P::Cell<u32>,
    state: P::AtomicU32,
}

/// Its owner waits.
const WAITS: u32 = 0;
/// Its owner holds the range.
const GRANTED: u32 = 1;

impl<P: Platform> OnRing<P> for Entry<P> {
    fn links(&self) -> &Links<P> {
        &self.links
    }
}

impl<P: Platform> Entry<P> {
    /// On the heap, so that its holder can move to other threads.
    pub(super) fn new(extent: Extent, access: Access) -> HeapBox<P, Self> {
        let entry = HeapBox::new(Entry::<P> {
            links: Links::NEW,
            extent,
            shared: P::Cell::ZERO,
            state: P::AtomicU32::ZERO,
        });
        entry.shared.set((access == Access::Shared).into());
        entry
    }

    fn is_shared(&self) -> bool {
        self.shared.get() != 0
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.extent.overlaps(other.extent) && !(self.is_shared() && other.is_shared())
    }

    fn waits(&self) -> bool {
        self.state.load(Relaxed) == WAITS
    }
}

/// An entry on the ring.
pub(super) struct Place<P: Platform>(NonNull<Entry<P>>);

// SAFETY: an entry is not bound to a thread.
unsafe impl<P: Platform> Send for Place<P> {}
// SAFETY: a shared reference to it can only wait for the entry's state, an atomic.
unsafe impl<P: Platform> Sync for Place<P> {}

impl<P: Platform> Place<P> {
    fn entry(&self) -> &Entry<P> {
        // SAFETY: alive until `remove` (invariant 4), which consumes the place.
        unsafe { self.0.as_ref() }
    }

    /// Sleeps until the range is granted; false if the deadline passes first.
    fn wait(&self, deadline: Option<u64>) -> bool {
        let state = &self.entry().state;
        // Acquire pairs with the Release in `admit`.
        while state.load(Acquire) == WAITS {
            if deadline.is_some_and(|deadline| P::now() >= deadline) {
                return false;
            }
            P::park(state, WAITS, deadline);
        }
        true
    }
}

impl<P: Platform> List<P> {
    pub(super) const NEW: Self = List {
        lock: QueueLock::NEW,
        entries: Ring::EMPTY,
        waiting: P::Cell::ZERO,
        exclusive: P::Cell::ZERO,
    };

    pub(super) fn lock(&self) -> Locked<'_, P> {
        self.lock.lock()
    }

    pub(super) fn is_empty(&self, locked: &Locked<'_, P>) -> bool {
        self.entries.oldest(locked).is_none()
    }

    /// Whether a newcomer has to wait: for a range that it conflicts with, or behind any waiter (invariant 2).
    pub(super) fn has_to_wait(&self, locked: &Locked<'_, P>, newcomer: &Entry<P>) -> bool {
        let is_alone = newcomer.is_shared() && self.exclusive.get() == 0;
        self.waiting.get() > 0
            || !is_alone && self.entries.iter(locked).any(|before| before.conflicts(newcomer))
    }

    /// Puts an entry last.
    pub(super) fn push(
        &self,
        locked: &Locked<'_, P>,
        entry: HeapBox<P, Entry<P>>,
        has_to_wait: bool,
    ) -> Place<P> {
        let place = Place(entry.into_raw());
        let entry = place.entry();
        // Relaxed: its owner is this thread, and nobody else looks at it yet.
        entry.state.store(if has_to_wait { WAITS } else { GRANTED }, Relaxed);
        self.waiting.set(self.waiting.get() + u32::from(has_to_wait));
        self.exclusive.set(self.exclusive.get() + u32::from(!entry.is_shared()));
        self.entries.push(locked, entry);
        place
    }

    /// Waits until the range is granted. If the deadline passes first, the caller has to
    /// [remove](Self::remove) the place with the lock that it gets.
    pub(super) fn wait(
        &self,
        place: Place<P>,
        deadline: Option<u64>,
    ) -> Result<Place<P>, (Locked<'_, P>, Place<P>)> {
        if place.wait(deadline) {
            return Ok(place);
        }
        let locked = self.lock();
        // It may have been granted just now.
        if place.entry().waits() { Err((locked, place)) } else { Ok(place) }
    }

    /// Puts an entry first whose range its owner holds already: nobody else may hold one.
    pub(super) fn push_held(
        &self,
        locked: &Locked<'_, P>,
        entry: HeapBox<P, Entry<P>>,
    ) -> Place<P> {
        debug_assert!(self.entries.iter(locked).all(Entry::waits), "somebody holds a range");
        let place = Place(entry.into_raw());
        let entry = place.entry();
        entry.state.store(GRANTED, Relaxed);
        self.exclusive.set(self.exclusive.get() + u32::from(!entry.is_shared()));
        self.entries.push_front(locked, entry);
        place
    }

    /// Grants their ranges to all waiters up to the first that still has to wait.
    pub(super) fn admit(&self, locked: &Locked<'_, P>) -> WakeUps<P> {
        let mut wake_ups = WakeUps::NONE;
        if self.waiting.get() == 0 {
            return wake_ups;
        }
        for entry in self.entries.iter(locked).filter(|entry| entry.waits()) {
            let mut older = self.entries.iter(locked).take_while(|&older| !ptr::eq(older, entry));
            if older.any(|older| older.conflicts(entry)) {
                break;
            }
            self.waiting.set(self.waiting.get() - 1);
            // Release pairs with the Acquire in `wait`.
            entry.state.store(GRANTED, Release);
            wake_ups.add(&entry.state);
        }
        wake_ups
    }

    /// Makes an exclusive range shared.
    pub(super) fn share(&self, _locked: &Locked<'_, P>, place: &Place<P>) {
        if !place.entry().is_shared() {
            self.exclusive.set(self.exclusive.get() - 1);
        }
        place.entry().shared.set(1);
    }

    /// Takes an entry off; the caller frees it after it has released the lock.
    ///
    /// # Safety
    /// It was pushed on this list.
    pub(super) unsafe fn remove(
        &self,
        locked: &Locked<'_, P>,
        place: Place<P>,
    ) -> HeapBox<P, Entry<P>> {
        self.waiting.set(self.waiting.get() - u32::from(place.entry().waits()));
        self.exclusive.set(self.exclusive.get() - u32::from(!place.entry().is_shared()));
        self.entries.remove(locked, place.entry());
        // SAFETY: `push` or `push_held` has it from a box, and nobody else refers to an entry that is off the ring (invariant 4): a
        // wake-up on its way uses the address alone.
        unsafe { HeapBox::from_raw(place.0) }
    }
}

/// How many threads are woken without the list's lock; a release that grants more wakes the others under it.
/// A larger number makes every release's frame larger, 8 bytes each. Chosen, not measured: most releases grant
/// a few at most.
const WOKEN_WITHOUT_LOCK: usize = 8;

/// Which threads to wake once the list's lock is released, so that nobody waits for that lock during system
/// calls. Their entries may be gone by then, which [`Platform::unpark`] allows.
#[must_use = "threads whose ranges were granted may sleep"]
pub(super) struct WakeUps<P: Platform> {
    words: [*const P::AtomicU32; WOKEN_WITHOUT_LOCK],
    count: usize,
}

impl<P: Platform> WakeUps<P> {
    const NONE: Self = WakeUps { words: [ptr::null(); WOKEN_WITHOUT_LOCK], count: 0 };

    /// One more; at once if there is no room.
    fn add(&mut self, word: *const P::AtomicU32) {
        match self.words.get_mut(self.count) {
            Some(room) => {
                *room = word;
                self.count += 1;
            }
            None => P::unpark(word),
        }
    }

    pub(super) fn send(self) {
        for &word in &self.words[..self.count] {
            P::unpark(word);
        }
    }
}

/// Step by step: places stand in for sleeping threads.
#[cfg(test)]
mod tests {
    use super::*;
    use fairlock::platform::Os;

    fn entry(positions: core::ops::Range<u64>, access: Access) -> HeapBox<Os, Entry<Os>> {
        Entry::new(Extent::of(positions).unwrap(), access)
    }

    /// Pushes an entry as a newcomer does.
    fn arrive(list: &List<Os>, entry: HeapBox<Os, Entry<Os>>) -> Place<Os> {
        let locked = list.lock();
        let has_to_wait = list.has_to_wait(&locked, &entry);
        list.push(&locked, entry, has_to_wait)
    }

    #[test]
    fn what_is_exclusive_is_counted_until_it_is_shared_or_gone() {
        let list = List::<Os>::NEW;
        let held = |access| arrive(&list, entry(0..10, access));
        let counted = || list.exclusive.get();
        let writer = held(Access::Exclusive);
        let waiting = held(Access::Exclusive);
        assert_eq!(counted(), 2);
        let locked = list.lock();
        list.share(&locked, &writer);
        list.share(&locked, &writer);
        assert_eq!(counted(), 1);
        drop(locked);
        leave(&list, waiting);
        assert_eq!(counted(), 0);
        let reader = held(Access::Shared);
        assert!(!reader.entry().waits(), "two readers of one range");
        leave(&list, writer);
        leave(&list, reader);
        assert_eq!(counted(), 0);
    }

    fn leave(list: &List<Os>, place: Place<Os>) {
        let locked = list.lock();
        // SAFETY: every test below pushed it.
        drop(unsafe { list.remove(&locked, place) });
        list.admit(&locked).send();
    }

    fn are_granted<const PLACES: usize>(places: [&Place<Os>; PLACES]) -> [bool; PLACES] {
        places.map(|place| !place.entry().waits())
    }

    use Access::{Exclusive, Shared};

    #[test]
    fn those_that_share_and_those_that_are_disjoint_get_in() {
        let list = List::NEW;
        let places = [(0..4, Shared), (2..6, Shared), (6..8, Exclusive), (8..9, Shared)]
            .map(|(positions, access)| arrive(&list, entry(positions, access)));
        assert!(places.iter().all(|place| !place.entry().waits()));
        places.into_iter().for_each(|place| leave(&list, place));
        assert!(list.is_empty(&list.lock()));
    }

    #[test]
    fn who_waits_stalls_all_that_come_later() {
        let list = List::NEW;
        let holder = arrive(&list, entry(0..4, Exclusive));
        let waiter = arrive(&list, entry(3..4, Shared));
        let disjoint = arrive(&list, entry(9..10, Shared));
        assert_eq!(are_granted([&holder, &waiter, &disjoint]), [true, false, false]);
        leave(&list, waiter);
        assert_eq!(are_granted([&holder, &disjoint]), [true, true]);
        [holder, disjoint].into_iter().for_each(|place| leave(&list, place));
    }

    #[test]
    fn a_release_lets_in_those_up_to_the_first_that_still_has_to_wait() {
        let list = List::NEW;
        let [first, second] = [0..4, 4..8].map(|at| arrive(&list, entry(at, Exclusive)));
        let [a, b] = [0..1, 1..4].map(|at| arrive(&list, entry(at, Shared)));
        let across = arrive(&list, entry(3..5, Shared));
        let free = arrive(&list, entry(2..3, Shared));
        leave(&list, first);
        assert_eq!(
            are_granted([&second, &a, &b, &across, &free]),
            [true, true, true, false, false]
        );
        leave(&list, second);
        assert_eq!(are_granted([&across, &free]), [true, true]);
        [a, b, across, free].into_iter().for_each(|place| leave(&list, place));
    }

    #[test]
    fn shared_access_is_all_that_conflicts_after_a_downgrade() {
        let list = List::NEW;
        let holder = arrive(&list, entry(0..4, Exclusive));
        let [reader, writer] = [Shared, Exclusive].map(|access| arrive(&list, entry(1..2, access)));
        {
            let locked = list.lock();
            list.share(&locked, &holder);
            list.admit(&locked).send();
        }
        assert_eq!(are_granted([&holder, &reader, &writer]), [true, true, false]);
        [holder, reader].into_iter().for_each(|place| leave(&list, place));
        assert_eq!(are_granted([&writer]), [true]);
        leave(&list, writer);
    }

    #[test]
    fn who_is_brought_along_is_before_those_that_wait() {
        let list = List::NEW;
        let waiter = list.push(&list.lock(), entry(0..4, Shared), true);
        let holder = list.push_held(&list.lock(), entry(3..4, Exclusive));
        assert!(list.admit(&list.lock()).count == 0);
        leave(&list, holder);
        assert_eq!(are_granted([&waiter]), [true]);
        leave(&list, waiter);
    }

    #[test]
    fn more_are_let_in_at_once_than_are_woken_without_the_lock() {
        let list = List::NEW;
        let holder = arrive(&list, entry(0..4, Exclusive));
        let waiters = [(); WOKEN_WITHOUT_LOCK + 2].map(|()| arrive(&list, entry(0..4, Shared)));
        leave(&list, holder);
        assert!(waiters.iter().all(|place| !place.entry().waits()));
        waiters.into_iter().for_each(|place| leave(&list, place));
        assert!(list.is_empty(&list.lock()));
    }
}
