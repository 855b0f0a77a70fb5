//! The data under a lock, and the invariant that shows whether the lock works.
//!
//! Four words that are equal whenever nobody writes. A writer raises the first half when its
//! section begins and the second half when it ends, with plain loads and stores, so the words
//! differ for the whole section: whoever else is inside sees it. The value counts the writes,
//! so a lost update shows at the end even if nobody met.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::error::Violation;

const WORDS: usize = 4;
const HALF: usize = WORDS / 2;

/// The words, alone on their cache line. All accesses are relaxed: the lock under test has
/// to order them.
pub struct Protected {
    words: CachePadded<[AtomicU64; WORDS]>,
}

impl Default for Protected {
    fn default() -> Protected {
        Protected::new()
    }
}

impl Protected {
    /// Data that counts no writes yet.
    pub fn new() -> Protected {
        Protected {
            words: CachePadded::new(array::from_fn(|_| AtomicU64::new(0))),
        }
    }

    /// The writes counted.
    ///
    /// # Errors
    /// [`Violation::TornRead`] when a write is under way.
    #[inline]
    pub fn value(&self) -> Result<u64, Violation> {
        let first = self.words[0].load(Ordering::Relaxed);
        if self.words[1..]
            .iter()
            .all(|word| word.load(Ordering::Relaxed) == first)
        {
            Ok(first)
        } else {
            Err(self.torn())
        }
    }

    /// A reader's section around `inside`: the value must stay what it was.
    ///
    /// # Errors
    /// [`Violation::TornRead`] when it was half written, or changed.
    #[inline]
    pub fn read_around<R>(&self, inside: impl FnOnce() -> R) -> Result<R, Violation> {
        let before = self.value()?;
        let result = inside();
        if self.value()? == before {
            Ok(result)
        } else {
            Err(self.torn())
        }
    }

    /// A writer's section around `inside`: counts one write.
    ///
    /// # Errors
    /// [`Violation::OverlappingWrites`] when somebody else wrote meanwhile.
    #[inline]
    pub fn write_around<R>(&self, inside: impl FnOnce() -> R) -> Result<R, Violation> {
        let before = self.words[0].load(Ordering::Relaxed);
        let after = before + 1;
        for word in &self.words[..HALF] {
            word.store(after, Ordering::Relaxed);
        }
        let result = inside();
        for (index, word) in self.words.iter().enumerate() {
            let expected = if index < HALF { after } else { before };
            let found = word.load(Ordering::Relaxed);
            if found != expected {
                return Err(Violation::OverlappingWrites { expected, found });
            }
        }
        for word in &self.words[HALF..] {
            word.store(after, Ordering::Relaxed);
        }
        Ok(result)
    }

    #[cold]
    fn torn(&self) -> Violation {
        let words = self
            .words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        Violation::TornRead { words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_one_after_the_other_are_fine() {
        let data = Protected::new();
        for write in 1..=3 {
            data.write_around(|| ()).unwrap();
            assert_eq!(data.read_around(|| data.value()).unwrap(), Ok(write));
        }
    }

    #[test]
    fn a_read_inside_a_write_is_torn() {
        let data = Protected::new();
        let inner = data.write_around(|| data.read_around(|| ())).unwrap();
        assert!(
            matches!(inner, Err(Violation::TornRead { .. })),
            "{inner:?}"
        );
    }

    #[test]
    fn a_write_inside_a_read_is_torn() {
        let data = Protected::new();
        let outer = data.read_around(|| data.write_around(|| ()).unwrap());
        assert!(
            matches!(outer, Err(Violation::TornRead { .. })),
            "{outer:?}"
        );
    }

    #[test]
    fn a_write_inside_a_write_overlaps() {
        let data = Protected::new();
        let outer = data.write_around(|| drop(data.write_around(|| ())));
        assert!(
            matches!(outer, Err(Violation::OverlappingWrites { .. })),
            "{outer:?}"
        );
    }
}
