//! How many records the kernel may write of one event before it has to be told that it may go on.
//!
//! The reader may be kept from running while programs make millions of records. So the kernel gets an allowance for each
//! event of each CPU, and stops at its end by itself. The reader adds to it long before. Where it was too late, it finds
//! that out from how many records there are, and what happened meanwhile counts as not recorded.

use std::collections::VecDeque;
use std::ops::Range;

/// The allowance of one event of one CPU.
#[derive(Debug, Clone)]
pub struct Allowance {
    most: u64,
    /// Records that were allowed until now,
    allowed: u64,
    /// and those that were read.
    read: u64,
    /// What was allowed before it was added to, and when that was.
    additions: VecDeque<(u64, u64)>,
    /// The last record that was allowed is of then.
    spent_ns: Option<u64>,
}

impl Allowance {
    /// At most so many records at once; none until something is added.
    pub fn new(most: u64) -> Allowance {
        Allowance { most, allowed: 0, read: 0, additions: VecDeque::new(), spent_ns: None }
    }

    /// Whether it is time to add to it: half of it is used.
    pub fn is_low(&self) -> bool {
        self.left() <= self.most / 2
    }

    fn left(&self) -> u64 {
        self.allowed.saturating_sub(self.read)
    }

    /// What the kernel is to be told to add. When it was told, [`added`](Self::added) has to be called.
    pub fn missing(&self) -> u64 {
        self.most - self.left().min(self.most)
    }

    /// The kernel was told, at the latest then; returns in what time nothing was written, if the reader knows it by now.
    pub fn added(&mut self, count: u64, at_ns: u64) -> Option<Range<u64>> {
        let gap = self.spent_ns.take().map(|spent_ns| spent_ns..at_ns);
        if gap.is_none() && self.allowed > 0 {
            self.additions.push_back((self.allowed, at_ns));
        }
        // Where the kernel wrote on for a moment, more than was allowed was read.
        self.allowed = self.allowed.max(self.read) + count;
        gap
    }

    /// A record of this time was read; returns in what time nothing was written before the kernel was told to go on.
    pub fn read(&mut self, at_ns: u64) -> Option<Range<u64>> {
        self.read += 1;
        let mut gap = None;
        while let Some(&(before, added_ns)) = self.additions.front()
            && self.read >= before
        {
            self.additions.pop_front();
            if self.read == before && at_ns < added_ns {
                gap = Some(at_ns..added_ns);
            }
        }
        if self.read == self.allowed {
            self.spent_ns = Some(at_ns);
        }
        gap
    }

    /// Since when nothing was written, as far as was read.
    pub fn spent_ns(&self) -> Option<u64> {
        self.spent_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_in_time_leaves_no_gap() {
        let mut allowance = Allowance::new(100);
        assert!(allowance.is_low());
        assert_eq!(allowance.added(allowance.missing(), 0), None);
        for at_ns in 1..10_000 {
            assert_eq!(allowance.read(at_ns), None);
            if allowance.is_low() {
                assert_eq!(allowance.missing(), 50);
                assert_eq!(allowance.added(50, at_ns), None);
            }
        }
        assert_eq!(allowance.spent_ns(), None);
    }

    #[test]
    fn what_follows_the_last_allowed_record_is_a_gap() {
        let mut allowance = Allowance::new(10);
        allowance.added(10, 0);
        assert!((1..=10).all(|at_ns| allowance.read(at_ns).is_none()));
        assert_eq!(allowance.spent_ns(), Some(10));
        // The kernel may write some more before it stops.
        assert_eq!(allowance.read(11), None);
        assert_eq!(allowance.added(allowance.missing(), 50), Some(10..50));
        assert!((51..60).all(|at_ns| allowance.read(at_ns).is_none()));
        assert_eq!(allowance.spent_ns(), None);
        allowance.read(60);
        assert_eq!(allowance.spent_ns(), Some(60));
    }

    #[test]
    fn an_addition_that_came_too_late_is_found_out_by_counting() {
        let mut allowance = Allowance::new(10);
        allowance.added(10, 0);
        assert!((1..=6).all(|at_ns| allowance.read(at_ns).is_none()));
        // Four more were written, the last one at 10; then nothing until it was added to.
        assert_eq!(allowance.added(6, 50), None);
        assert!((7..=9).all(|at_ns| allowance.read(at_ns).is_none()));
        assert_eq!(allowance.read(10), Some(10..50));
        assert_eq!(allowance.read(51), None);
        // This time it was not too late.
        let mut allowance = Allowance::new(10);
        allowance.added(10, 0);
        assert!((1..=6).all(|at_ns| allowance.read(at_ns).is_none()));
        allowance.added(6, 50);
        assert!([7, 8, 9, 51, 52].into_iter().all(|at_ns| allowance.read(at_ns).is_none()));
    }
}
