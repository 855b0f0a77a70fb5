//! Stretches in which a thread that records does not count, to know what its work takes without that: see [`recorder`].
//!
//! What a thread holds must be in the file at any moment, for reports that are made then and for deadlocks. So in a
//! stretch the few locks that it acquired and has not released stand in a list of its place, [`held`](crate::layout::Thread::held).
//!
//! Invariants
//! 1. An acquisition either stands in the list or is counted in its entry. Its release takes it from the list, or is
//!    counted in the same entry. So a stretch may begin and end whatever is held.
//! 2. The list is empty while no stretch is under way: what it has at the end is counted.
//! 3. Waits are announced as always.

use core::cell::Cell;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::layout::{HELD, STRETCH};
use crate::process::{ThisThread, map};
use crate::recorder;

/// A stretch of a thread. All zero at first.
pub struct Uncounted {
    /// The list, in the file; there while the stretch is under way.
    list: Cell<Option<&'static [AtomicU32; HELD]>>,
    /// Places of the list up to the last that is in use.
    used: Cell<usize>,
    /// What was taken from the list last, if nothing else was released since; else 0.
    taken: Cell<u32>,
    /// Acquisitions in it.
    acquired: Cell<u32>,
    /// Those of them that were counted nevertheless.
    counted: Cell<u32>,
    /// The thread's CPU time at its beginning, ns; none if it is not to be known what it takes.
    began: Cell<Option<u64>>,
    /// What was done in stretches that are over: acquisitions, and CPU time, ns.
    pub(crate) sum: Cell<(u64, u64)>,
}

impl Uncounted {
    pub(crate) const fn new() -> Uncounted {
        Uncounted {
            list: Cell::new(None),
            used: Cell::new(0),
            taken: Cell::new(0),
            acquired: Cell::new(0),
            counted: Cell::new(0),
            began: Cell::new(None),
            sum: Cell::new((0, 0)),
        }
    }

    /// Whether what the thread acquires is not counted.
    #[inline(always)]
    pub fn is_under_way(&self) -> bool {
        self.list.get().is_some()
    }

    /// Begins, with this list; the thread has used so much CPU time.
    fn begins(&self, list: &'static [AtomicU32; HELD], cpu_ns: u64) {
        // It may have something of a signal's handler that came in between.
        list.iter().for_each(|place| place.store(0, Relaxed));
        self.used.set(0);
        self.taken.set(0);
        self.acquired.set(0);
        self.counted.set(0);
        self.began.set(Some(cpu_ns));
        self.list.set(Some(list));
    }

    /// What it takes is not to be known: it is disturbed.
    pub(crate) fn is_disturbed(&self) {
        self.began.set(None);
    }

    /// There is a place.
    #[inline(always)]
    fn put(&self, list: &[AtomicU32; HELD], what: u32) {
        let at = self.used.get();
        // First this: a signal's handler takes places behind.
        self.used.set(at + 1);
        list[at].store(what, Relaxed);
    }

    /// Whether it was in the list.
    #[inline(always)]
    fn take(&self, list: &[AtomicU32; HELD], what: u32) -> bool {
        let mut used = self.used.get();
        // Most often it is the last.
        let Some(at) = list[..used].iter().rposition(|place| place.load(Relaxed) == what) else {
            self.taken.set(0);
            return false;
        };
        list[at].store(0, Relaxed);
        while used > 0 && list[used - 1].load(Relaxed) == 0 {
            used -= 1;
        }
        self.used.set(used);
        self.taken.set(what);
        true
    }

    /// Gives what the list has to the entries.
    fn counts_all(&self, list: &[AtomicU32; HELD], mut count: impl FnMut(u32, usize)) {
        for place in &list[..self.used.get()] {
            let what = place.load(Relaxed);
            if what != 0 {
                // First this: it is held all the time.
                count(what >> 1, (what & 1) as usize);
                self.counted.set(self.counted.get() + 1);
                place.store(0, Relaxed);
            }
        }
        self.used.set(0);
    }

    /// The thread is another one now. The list belongs to the one before, which goes on.
    pub(crate) fn forget(&self) {
        self.list.set(None);
        self.sum.set((0, 0));
    }
}

/// A lock and a role, as in [`held`](crate::layout::Thread::held).
#[inline(always)]
fn word(number: u32, role: usize) -> u32 {
    number << 1 | role as u32
}

impl ThisThread {
    /// Begins a stretch. The thread counts, so it has a place.
    pub(crate) fn stops_counting(&self) {
        if let Some(counts) = map().and_then(|map| map.thread(self.known_page())) {
            self.uncounted.begins(&counts.held, recorder::cpu_ns());
        }
    }

    /// It has acquired the lock of this number. Whether that belongs to a stretch, and is not to be counted. Never if the
    /// number is 0: to be called again when it is known.
    #[inline(always)]
    pub fn acquired_uncounted(&self, number: u32, role: usize) -> bool {
        let stretch = &self.uncounted;
        let Some(list) = stretch.list.get() else { return false };
        if stretch.acquired.get() >= STRETCH || number == 0 || stretch.used.get() == HELD {
            return self.acquired_otherwise(list, number, role);
        }
        stretch.acquired.set(stretch.acquired.get() + 1);
        stretch.put(list, word(number, role));
        true
    }

    #[cold]
    #[inline(never)]
    fn acquired_otherwise(&self, list: &[AtomicU32; HELD], number: u32, role: usize) -> bool {
        let stretch = &self.uncounted;
        if number == 0 {
            return false;
        }
        if stretch.acquired.get() >= STRETCH {
            self.counts_again();
            return false;
        }
        stretch.acquired.set(stretch.acquired.get() + 1);
        self.put(list, word(number, role));
        true
    }

    /// Makes room for it if there is none.
    fn put(&self, list: &[AtomicU32; HELD], what: u32) {
        if self.uncounted.used.get() == HELD {
            self.uncounted.counts_all(list, |number, role| self.count(number, role));
        }
        self.uncounted.put(list, what);
    }

    /// It is about to release this lock. Whether it acquired it in a stretch, so that this is not to be counted.
    #[inline(always)]
    pub fn releases_uncounted(&self, number: u32, role: usize) -> bool {
        match self.uncounted.list.get() {
            Some(list) => self.uncounted.take(list, word(number, role)),
            None => false,
        }
    }

    /// The release that was announced last, of this lock, was made, or refused. Whether it was not counted.
    #[inline(always)]
    pub(crate) fn released_uncounted(&self, number: u32, role: usize, is_released: bool) -> bool {
        let stretch = &self.uncounted;
        let Some(list) = stretch.list.get() else { return false };
        let what = word(number, role);
        if stretch.taken.replace(0) != what {
            return false;
        }
        if !is_released {
            self.put(list, what);
        }
        true
    }

    /// Ends the stretch, if one is under way: what the thread holds is counted, and reports say how much was not.
    pub(crate) fn counts_again(&self) {
        let stretch = &self.uncounted;
        let Some(list) = stretch.list.get() else { return };
        stretch.counts_all(list, |number, role| self.count(number, role));
        stretch.list.set(None);
        let acquired = stretch.acquired.get();
        if let Some(map) = map() {
            let uncounted = u64::from(acquired.saturating_sub(stretch.counted.get()));
            map.header().uncounted_acquisitions.fetch_add(uncounted, Relaxed);
        }
        if let Some(began) = stretch.began.get().filter(|_| acquired >= STRETCH) {
            let (sum, cpu_ns) = stretch.sum.get();
            let took = recorder::cpu_ns().saturating_sub(began);
            stretch.sum.set((sum + u64::from(acquired), cpu_ns + took));
        }
    }

    /// Counts what the thread acquired earlier, and holds.
    fn count(&self, number: u32, role: usize) {
        let entry = map().and_then(|map| self.entry(map, number));
        let Some(entry) = entry else { return };
        let acquired = entry.acquired[role].load(Relaxed);
        entry.acquired[role].store(acquired.wrapping_add(1), Relaxed);
        if entry.since.load(Relaxed) != 0 {
            // It will be released once more during the hold that is measured.
            entry.held.store(entry.held.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{READ, WRITE};

    /// A thread in a stretch with a list of its own, outside any file.
    fn in_stretch() -> (ThisThread, &'static [AtomicU32; HELD]) {
        let list: &[AtomicU32; HELD] = Box::leak(Box::default());
        let thread = ThisThread::new();
        thread.uncounted.begins(list, 0);
        (thread, list)
    }

    fn held(list: &[AtomicU32; HELD]) -> Vec<u32> {
        list.iter().map(|place| place.load(Relaxed)).filter(|what| *what != 0).collect()
    }

    /// So many acquisitions, each released. How many were not counted.
    fn pairs(thread: &ThisThread, times: u32) -> u32 {
        let pair = |_: &u32| {
            let is_uncounted = thread.acquired_uncounted(7, READ);
            assert_eq!(thread.releases_uncounted(7, READ), is_uncounted);
            is_uncounted
        };
        (0..times).filter(pair).count() as u32
    }

    #[test]
    fn a_stretch_has_so_many_acquisitions_and_tells_what_they_took() {
        let (thread, list) = in_stretch();
        for times in 1..4 {
            thread.uncounted.begins(list, 0);
            assert_eq!(pairs(&thread, 2 * STRETCH), STRETCH);
            assert!(!thread.uncounted.is_under_way());
            let (acquired, cpu_ns) = thread.uncounted.sum.get();
            assert_eq!(acquired, u64::from(times * STRETCH));
            assert!(cpu_ns > 0);
        }
    }

    #[test]
    fn what_a_disturbed_stretch_took_is_not_told() {
        let (thread, _) = in_stretch();
        thread.uncounted.is_disturbed();
        assert_eq!(pairs(&thread, 2 * STRETCH), STRETCH);
        assert_eq!(thread.uncounted.sum.get(), (0, 0));
    }

    #[test]
    fn what_is_held_stands_in_the_list_whatever_the_order_of_releases() {
        let (thread, list) = in_stretch();
        for (number, role) in [(5, READ), (6, WRITE), (5, READ), (9, READ)] {
            assert!(thread.acquired_uncounted(number, role));
        }
        assert_eq!(held(list), [10, 13, 10, 18]);
        // Acquired before the stretch, or in another role.
        assert!(!thread.releases_uncounted(3, WRITE) && !thread.releases_uncounted(5, WRITE));
        assert!(thread.releases_uncounted(6, WRITE) && thread.releases_uncounted(5, READ));
        assert_eq!(held(list), [10, 18]);
        assert!(thread.releases_uncounted(9, READ));
        assert_eq!(thread.uncounted.used.get(), 1, "places are used again");
        assert!(thread.releases_uncounted(5, READ) && !thread.releases_uncounted(5, READ));
        assert!(held(list).is_empty());
    }

    #[test]
    fn a_release_that_was_refused_leaves_the_lock_in_the_list() {
        let (thread, list) = in_stretch();
        assert!(thread.acquired_uncounted(5, READ) && thread.releases_uncounted(5, READ));
        assert!(thread.released_uncounted(5, READ, false));
        assert_eq!(held(list), [10]);
        assert!(thread.releases_uncounted(5, READ) && thread.released_uncounted(5, READ, true));
        assert!(held(list).is_empty());
        // One that the thread does not hold is counted as ever.
        assert!(!thread.releases_uncounted(5, READ) && !thread.released_uncounted(5, READ, false));
        assert!(held(list).is_empty());
    }

    #[test]
    fn more_locks_than_the_list_has_places_are_counted() {
        let (thread, list) = in_stretch();
        assert!((2..100).all(|number| thread.acquired_uncounted(number, WRITE)));
        assert_eq!(held(list).len(), 98 % HELD);
        assert_eq!(thread.uncounted.counted.get(), 98 - 98 % HELD as u32);
        let uncounted = |number: &u32| thread.releases_uncounted(*number, WRITE);
        assert_eq!((2..100).filter(uncounted).count(), 98 % HELD);
    }

    #[test]
    fn a_lock_without_a_number_does_not_belong_to_a_stretch() {
        let (thread, list) = in_stretch();
        assert!(!thread.acquired_uncounted(0, READ) && held(list).is_empty());
        assert!(thread.acquired_uncounted(2, READ));
        assert_eq!(thread.uncounted.acquired.get(), 1);
    }
}
