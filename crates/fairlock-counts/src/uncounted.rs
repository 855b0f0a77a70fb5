//! Stretches in which a thread that records does not count, to know what its work takes without that: see [`recorder`].
//! One ends after [`STRETCH`] acquisitions, or when a window is opened, or when the thread locks seldom all of a sudden.
//!
//! What a thread holds must be in the file at any moment, for reports that are made then and for deadlocks. So in a
//! stretch the few locks that it acquired and has not released stand in a list of its place, [`held`](crate::layout::Thread::held).
//!
//! Invariants
//! 1. An acquisition either stands in the list or is counted in its entry. Its release takes it from the list, or is
//!    counted in the same entry. So a stretch may begin and end whatever is held.
//! 2. The list is empty while no stretch is under way: what it has at the end is counted.
//! 3. Waits are announced as always.
//! 4. The file says at any moment how many acquisitions were not counted: [`layout::Thread::uncounted`].
//!
//! A signal's handler may lock and unlock between any two instructions here. It finds places behind that of what it
//! interrupts, and leaves them empty.

use core::cell::Cell;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::layout::{self, HELD, STRETCH};
use crate::process::{ThisThread, map};
use crate::recorder;

/// A stretch of a thread. All zero at first.
pub struct Uncounted {
    /// What it is under way with.
    now: Cell<Option<Stretch>>,
    /// Places of the list up to the last that is in use.
    used: Cell<usize>,
    /// What was taken from the list last, if nothing else was released since; else 0.
    taken: Cell<u32>,
    /// Acquisitions in it that were counted nevertheless.
    counted: Cell<u32>,
    /// The thread's CPU time at its beginning, ns.
    began: Cell<u64>,
    /// When it ends at the latest, ticks.
    until: Cell<u64>,
    /// What was done in stretches that are over: acquisitions, and CPU time, ns.
    pub(crate) sum: Cell<(u64, u64)>,
}

/// What a stretch uses of the file.
#[derive(Clone, Copy)]
struct Stretch {
    list: &'static [AtomicU32; HELD],
    uncounted: &'static AtomicU32,
    /// See [`layout::Recording::window`].
    window: &'static AtomicU32,
}

/// In the list: something was here, and what lies behind is still held. No lock has this word.
const GAP: u32 = 1;
/// With fewer acquisitions the CPU time says little.
const FEWEST: u32 = STRETCH / 8;
/// After so many acquisitions a thread looks how long the stretch has lasted. A power of two.
const LOOKS: u32 = 32;

impl Uncounted {
    pub(crate) const fn new() -> Uncounted {
        Uncounted {
            now: Cell::new(None),
            used: Cell::new(0),
            taken: Cell::new(0),
            counted: Cell::new(0),
            began: Cell::new(0),
            until: Cell::new(0),
            sum: Cell::new((0, 0)),
        }
    }

    /// Whether what the thread acquires is not counted.
    #[inline(always)]
    pub fn is_under_way(&self) -> bool {
        self.now.get().is_some()
    }

    /// Begins; the thread has used so much CPU time.
    fn begins(&self, stretch: Stretch, cpu_ns: u64) {
        stretch.list.iter().for_each(|place| place.store(0, Relaxed));
        stretch.uncounted.store(0, Relaxed);
        self.used.set(0);
        self.taken.set(0);
        self.counted.set(0);
        self.began.set(cpu_ns);
        self.until.set(recorder::is_long_from_now(STRETCH));
        self.now.set(Some(stretch));
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
        if at + 1 == used {
            list[at].store(0, Relaxed);
            used = at;
            // A place with 0 is about to be used.
            while used > 0 && list[used - 1].load(Relaxed) == GAP {
                used -= 1;
                list[used].store(0, Relaxed);
            }
            self.used.set(used);
        } else {
            list[at].store(GAP, Relaxed);
        }
        self.taken.set(what);
        true
    }

    /// Gives what the list has to the entries.
    fn counts_all(&self, stretch: &Stretch, mut count: impl FnMut(u32, usize)) {
        for place in &stretch.list[..self.used.get()] {
            let what = place.load(Relaxed);
            place.store(0, Relaxed);
            if what > GAP {
                count(what >> 1, (what & 1) as usize);
                self.counted.set(self.counted.get() + 1);
                let uncounted = stretch.uncounted.load(Relaxed);
                stretch.uncounted.store(uncounted.wrapping_sub(1), Relaxed);
            }
        }
        self.used.set(0);
    }

    /// The thread is another one now. What is in the file belongs to the one before, which goes on.
    pub(crate) fn forget(&self) {
        self.now.set(None);
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
        let Some(map) = map() else { return };
        if let Some(layout::Thread { held, uncounted, .. }) = map.thread(self.known_page()) {
            let window = &map.header().recording.window;
            self.uncounted.begins(Stretch { list: held, uncounted, window }, recorder::cpu_ns());
        }
    }

    /// It has acquired the lock of this number. Whether that belongs to a stretch, and is not to be counted. Never if the
    /// number is 0: to be called again when it is known.
    #[inline(always)]
    pub fn acquired_uncounted(&self, number: u32, role: usize) -> bool {
        let Some(stretch) = self.uncounted.now.get() else { return false };
        let is_usual = number != 0
            && self.uncounted.used.get() < HELD
            && stretch.uncounted.load(Relaxed) % LOOKS != 0
            && !recorder::is_open(stretch.window.load(Relaxed));
        if !is_usual && !self.goes_on_uncounted(&stretch, number) {
            return false;
        }
        let uncounted = stretch.uncounted.load(Relaxed);
        stretch.uncounted.store(uncounted.wrapping_add(1), Relaxed);
        self.uncounted.put(stretch.list, word(number, role));
        true
    }

    /// Whether the stretch goes on, with room in the list, for the lock of this number.
    #[cold]
    #[inline(never)]
    fn goes_on_uncounted(&self, stretch: &Stretch, number: u32) -> bool {
        if number == 0 {
            return false;
        }
        let is_open = recorder::is_open(stretch.window.load(Relaxed));
        let is_late = recorder::ticks() >= self.uncounted.until.get();
        if is_open || is_late || self.acquired(stretch) >= STRETCH {
            self.counts_again();
            recorder::looks_for_window();
            return false;
        }
        self.makes_room(stretch);
        true
    }

    /// Acquisitions in the stretch.
    fn acquired(&self, stretch: &Stretch) -> u32 {
        stretch.uncounted.load(Relaxed).saturating_add(self.uncounted.counted.get())
    }

    fn makes_room(&self, stretch: &Stretch) {
        if self.uncounted.used.get() == HELD {
            self.uncounted.counts_all(stretch, |number, role| self.count(number, role));
        }
    }

    /// It is about to release this lock. Whether it acquired it in a stretch, so that this is not to be counted.
    #[inline(always)]
    pub fn releases_uncounted(&self, number: u32, role: usize) -> bool {
        match self.uncounted.now.get() {
            Some(stretch) => self.uncounted.take(stretch.list, word(number, role)),
            None => false,
        }
    }

    /// The release that was announced last, of this lock, was made, or refused. Whether it was not counted.
    #[inline(always)]
    pub(crate) fn released_uncounted(&self, number: u32, role: usize, is_released: bool) -> bool {
        let Some(stretch) = self.uncounted.now.get() else { return false };
        let what = word(number, role);
        if self.uncounted.taken.replace(0) != what {
            return false;
        }
        if !is_released {
            self.makes_room(&stretch);
            self.uncounted.put(stretch.list, what);
        }
        true
    }

    /// Ends the stretch, if one is under way: what the thread holds is counted, and reports say how much was not.
    pub(crate) fn counts_again(&self) {
        let Some(stretch) = self.uncounted.now.take() else { return };
        let acquired = self.acquired(&stretch);
        self.uncounted.counts_all(&stretch, |number, role| self.count(number, role));
        // First this: a report may have some twice for a moment, and never too few.
        let uncounted = stretch.uncounted.load(Relaxed);
        if let Some(map) = map() {
            map.header().uncounted_acquisitions.fetch_add(uncounted.into(), Relaxed);
        }
        stretch.uncounted.store(0, Relaxed);
        if acquired >= FEWEST {
            let began = self.uncounted.began.get();
            let (sum, cpu_ns) = self.uncounted.sum.get();
            let took = recorder::cpu_ns().saturating_sub(began);
            self.uncounted.sum.set((sum + u64::from(acquired), cpu_ns + took));
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

    /// A thread in a stretch that is outside any file.
    fn in_stretch() -> (ThisThread, Stretch) {
        let stretch = Stretch {
            list: Box::leak(Box::default()),
            uncounted: Box::leak(Box::default()),
            window: Box::leak(Box::default()),
        };
        let thread = ThisThread::new();
        thread.uncounted.begins(stretch, 0);
        (thread, stretch)
    }

    fn held(stretch: Stretch) -> Vec<u32> {
        let words = stretch.list.iter().map(|place| place.load(Relaxed));
        words.filter(|what| *what > GAP).collect()
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
        let (thread, stretch) = in_stretch();
        for times in 1..4 {
            thread.uncounted.begins(stretch, 0);
            assert_eq!(pairs(&thread, 2 * STRETCH), STRETCH);
            assert!(!thread.uncounted.is_under_way());
            let (acquired, cpu_ns) = thread.uncounted.sum.get();
            assert_eq!(acquired, u64::from(times * STRETCH));
            assert!(cpu_ns > 0);
        }
    }

    #[test]
    fn a_stretch_ends_when_a_window_is_opened_and_tells_what_it_took_if_it_was_long_enough() {
        for (acquired, is_told) in [(2 * FEWEST, true), (FEWEST / 2, false)] {
            let (thread, stretch) = in_stretch();
            assert_eq!(pairs(&thread, acquired), acquired);
            assert_eq!(stretch.uncounted.load(Relaxed), acquired);
            assert!(thread.acquired_uncounted(5, WRITE));
            stretch.window.store(1, Relaxed);
            assert!(!thread.acquired_uncounted(6, WRITE) && !thread.uncounted.is_under_way());
            assert_eq!(thread.uncounted.sum.get().0 > 0, is_told);
            assert_eq!((stretch.uncounted.load(Relaxed), held(stretch)), (0, vec![]));
        }
    }

    #[test]
    fn a_stretch_ends_when_it_has_lasted_for_long() {
        let (thread, _) = in_stretch();
        assert_eq!(pairs(&thread, LOOKS), LOOKS);
        thread.uncounted.until.set(0);
        assert_eq!(pairs(&thread, 1), 0);
        assert!(!thread.uncounted.is_under_way());
    }

    #[test]
    fn a_handler_that_locks_while_a_place_is_being_used_leaves_that_place() {
        let (thread, stretch) = in_stretch();
        assert!(thread.acquired_uncounted(4, READ));
        // Interrupted before it stores what it holds.
        thread.uncounted.used.set(2);
        assert!(thread.acquired_uncounted(9, READ) && thread.releases_uncounted(9, READ));
        assert_eq!(thread.uncounted.used.get(), 2);
        stretch.list[1].store(word(5, WRITE), Relaxed);
        assert!(thread.releases_uncounted(5, WRITE) && thread.releases_uncounted(4, READ));
        assert_eq!(thread.uncounted.used.get(), 0);
    }

    #[test]
    fn what_is_held_stands_in_the_list_whatever_the_order_of_releases() {
        let (thread, stretch) = in_stretch();
        for (number, role) in [(5, READ), (6, WRITE), (5, READ), (9, READ)] {
            assert!(thread.acquired_uncounted(number, role));
        }
        assert_eq!(held(stretch), [10, 13, 10, 18]);
        // Acquired before the stretch, or in another role.
        assert!(!thread.releases_uncounted(3, WRITE) && !thread.releases_uncounted(5, WRITE));
        assert!(thread.releases_uncounted(6, WRITE) && thread.releases_uncounted(5, READ));
        assert_eq!(held(stretch), [10, 18]);
        assert!(thread.releases_uncounted(9, READ));
        assert_eq!(thread.uncounted.used.get(), 1, "places are used again");
        assert!(thread.releases_uncounted(5, READ) && !thread.releases_uncounted(5, READ));
        assert!(held(stretch).is_empty());
    }

    #[test]
    fn a_release_that_was_refused_leaves_the_lock_in_the_list() {
        let (thread, stretch) = in_stretch();
        assert!(thread.acquired_uncounted(5, READ) && thread.releases_uncounted(5, READ));
        assert!(thread.released_uncounted(5, READ, false));
        assert_eq!(held(stretch), [10]);
        assert!(thread.releases_uncounted(5, READ) && thread.released_uncounted(5, READ, true));
        assert!(held(stretch).is_empty());
        // One that the thread does not hold is counted as ever.
        assert!(!thread.releases_uncounted(5, READ) && !thread.released_uncounted(5, READ, false));
        assert!(held(stretch).is_empty());
    }

    #[test]
    fn more_locks_than_the_list_has_places_are_counted() {
        let (thread, stretch) = in_stretch();
        assert!((2..100).all(|number| thread.acquired_uncounted(number, WRITE)));
        assert_eq!(held(stretch).len(), 98 % HELD);
        assert_eq!(thread.uncounted.counted.get(), 98 - 98 % HELD as u32);
        let uncounted = |number: &u32| thread.releases_uncounted(*number, WRITE);
        assert_eq!((2..100).filter(uncounted).count(), 98 % HELD);
    }

    #[test]
    fn a_lock_without_a_number_does_not_belong_to_a_stretch() {
        let (thread, stretch) = in_stretch();
        assert!(!thread.acquired_uncounted(0, READ) && held(stretch).is_empty());
        assert!(thread.acquired_uncounted(2, READ));
        assert_eq!(stretch.uncounted.load(Relaxed), 1);
    }
}
