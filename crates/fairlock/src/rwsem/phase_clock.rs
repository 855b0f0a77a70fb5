//! When the running phase ends. Kept with the queue.

use core::sync::atomic::Ordering::Relaxed;

use super::account::ticks;
use crate::platform::{AtomicCell, Platform};

/// A quarter of a second, in ticks.
const LONGEST: i32 = 1 << 22;

/// Written under the queue's lock. It is not in the lock, so a thread that has just left the lock may look.
pub struct PhaseClock<P: Platform> {
    /// When the running phase ends, in ticks: 32 bits of them tell before from after within 137 s.
    ends: P::AtomicU32,
}

impl<P: Platform> PhaseClock<P> {
    pub(super) const NEW: Self = PhaseClock { ends: P::AtomicU32::ZERO };

    pub(super) fn now() -> u32 {
        ticks(P::now())
    }

    /// Ticks until the phase ends; negative when it has. No phase is longer than [`LONGEST`]: such an end lies far in the past.
    pub(super) fn remaining(&self, now: u32) -> i32 {
        let left = self.ends.load(Relaxed).wrapping_sub(now) as i32;
        if left > LONGEST { 0 } else { left }
    }

    /// The phase ends then.
    pub(super) fn end(&self, then: u32) {
        self.ends.store(then, Relaxed);
    }
}
