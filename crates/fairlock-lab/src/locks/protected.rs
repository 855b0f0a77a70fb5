//! The data under a lock, and the invariant that shows whether the lock works.
//!
//! Two counters are equal whenever nobody writes. A writer raises the first when its section begins and
//! the second when it ends, with plain loads and stores. So they differ during the whole section, and
//! any other thread inside sees that. They count the writes, so a lost update shows at the end even if
//! no two threads were inside at once. A reader's check costs four loads, which is little enough for the
//! tiny sections that locks are compared on.
//!
//! On the same line are a few words for what a workload keeps under the lock.

use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use fairlock::platform::{AtomicCell, Os, Platform};

use crate::error::Violation;

/// The counters, alone on their cache line, on the machine that the lock is on: a simulated one
/// charges for moving the data as for moving the lock. All accesses are relaxed: the lock under
/// test has to order them.
pub struct Protected<P: Platform = Os> {
    counters: CachePadded<Counters<P>>,
}

struct Counters<P: Platform> {
    begun: P::AtomicU64,
    ended: P::AtomicU64,
    words: [P::AtomicU64; WORDS],
}

/// With the counters they fill a cache line of 64 bytes.
const WORDS: usize = 6;

impl<P: Platform> Default for Protected<P> {
    fn default() -> Self {
        Protected::new()
    }
}

impl<P: Platform> Protected<P> {
    /// Data that counts no writes yet.
    pub fn new() -> Self {
        let counters = Counters {
            begun: AtomicCell::ZERO,
            ended: AtomicCell::ZERO,
            words: [const { AtomicCell::ZERO }; WORDS],
        };
        Protected { counters: CachePadded::new(counters) }
    }

    /// The writes counted.
    ///
    /// # Errors
    /// [`Violation::TornRead`] when a write is under way.
    #[inline]
    pub fn value(&self) -> Result<u64, Violation> {
        let begun = self.counters.begun.load(Ordering::Relaxed);
        let ended = self.counters.ended.load(Ordering::Relaxed);
        if begun == ended { Ok(ended) } else { Err(Violation::TornRead { begun, ended }) }
    }

    /// A word that the workload keeps under the lock.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.counters.words[index].load(Ordering::Relaxed)
    }

    /// Sets a word that the workload keeps under the lock.
    #[inline]
    pub fn set_word(&self, index: usize, value: u64) {
        self.counters.words[index].store(value, Ordering::Relaxed);
    }

    /// A reader's section around `inside`: the value must stay what it was.
    ///
    /// # Errors
    /// [`Violation::TornRead`] when a write was under way at either end,
    /// [`Violation::ChangedRead`] when one happened between.
    #[inline]
    pub fn read_around<R>(&self, inside: impl FnOnce() -> R) -> Result<R, Violation> {
        let before = self.value()?;
        let result = inside();
        let after = self.value()?;
        if after == before { Ok(result) } else { Err(Violation::ChangedRead { before, after }) }
    }

    /// A writer's section around `inside`: counts one write.
    ///
    /// # Errors
    /// [`Violation::OverlappingWrites`] when somebody else wrote meanwhile.
    #[inline]
    pub fn write_around<R>(&self, inside: impl FnOnce() -> R) -> Result<R, Violation> {
        let Counters { begun, ended, .. } = &*self.counters;
        let before = ended.load(Ordering::Relaxed);
        let after = before + 1;
        begun.store(after, Ordering::Relaxed);
        let result = inside();
        for (counter, expected) in [(begun, after), (ended, before)] {
            let found = counter.load(Ordering::Relaxed);
            if found != expected {
                return Err(Violation::OverlappingWrites { expected, found });
            }
        }
        ended.store(after, Ordering::Relaxed);
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_one_after_the_other_are_fine() {
        let data = Protected::<Os>::new();
        for write in 1..=3 {
            data.write_around(|| ()).unwrap();
            assert_eq!(data.read_around(|| data.value()).unwrap(), Ok(write));
        }
    }

    #[test]
    fn a_read_inside_a_write_is_torn() {
        let data = Protected::<Os>::new();
        let inner = data.write_around(|| data.read_around(|| ())).unwrap();
        assert!(matches!(inner, Err(Violation::TornRead { .. })), "{inner:?}");
    }

    #[test]
    fn a_write_inside_a_read_is_seen() {
        let data = Protected::<Os>::new();
        let outer = data.read_around(|| data.write_around(|| ()).unwrap());
        assert!(matches!(outer, Err(Violation::ChangedRead { .. })), "{outer:?}");
    }

    #[test]
    fn a_write_inside_a_write_overlaps() {
        let data = Protected::<Os>::new();
        let outer = data.write_around(|| drop(data.write_around(|| ())));
        assert!(matches!(outer, Err(Violation::OverlappingWrites { .. })), "{outer:?}");
    }
}
