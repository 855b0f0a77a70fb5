//! A list of numbers, for what no thread holds: last in, first out, without a lock.
//!
//! Not for: what the numbers stand for. That is `queue_pool.rs`, which also keeps each one's
//! successor.
//!
//! Invariants
//! 1. A number is on the list at most once.
//! 2. The head changes with every removal (a counter in its upper half), so that a thread that was
//!    stopped in the middle of one does not take an old successor for the new one.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::platform::{AtomicCell, Platform};

/// One more was taken off.
const TAKEN: u64 = 1 << 32;
/// The first number; 0 if there is none.
const FIRST: u64 = TAKEN - 1;

pub(crate) struct FreeList<P: Platform>(P::AtomicU64);

impl<P: Platform> FreeList<P> {
    pub(crate) const NEW: Self = FreeList(P::AtomicU64::ZERO);

    /// Takes a number off, whose successor may be asked for numbers that are off already.
    pub(crate) fn take(&self, next: impl Fn(u32) -> u32) -> Option<u32> {
        // Acquire pairs with the Release in `put`, here and below.
        let mut head = self.0.load(Acquire);
        while head & FIRST != 0 {
            let first = (head & FIRST) as u32;
            let taken = (head & !FIRST).wrapping_add(TAKEN) | u64::from(next(first));
            match self.0.compare_exchange_weak(head, taken, AcqRel, Acquire) {
                Ok(_) => return Some(first),
                Err(found) => head = found,
            }
        }
        None
    }

    /// Puts a number on that is in the caller's hands, and not 0.
    pub(crate) fn put(&self, number: u32, set_next: impl Fn(u32)) {
        let mut head = self.0.load(Relaxed);
        loop {
            set_next((head & FIRST) as u32);
            let first = head & !FIRST | u64::from(number);
            match self.0.compare_exchange_weak(head, first, Release, Relaxed) {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }

    /// Nothing is on the list any more. No other thread uses it.
    pub(crate) fn clear(&self) {
        self.0.store(0, Relaxed);
    }
}
