//! When the running phase ends, and whether a side leaves its phases' locks free. Kept with the queue.

use core::sync::atomic::Ordering::Relaxed;

use super::account::ticks;
use super::word::Side;
use crate::platform::{AtomicCell, Platform};

/// A phase in which its side left the lock free makes so many later ones be given up as soon as the lock is free. More:
/// a side that is back is noticed later. Chosen, not measured.
const SPARSE: u32 = 16;

/// 8 bytes. Written without a lock, so an update may be lost.
#[repr(C)]
pub struct PhaseClock<P: Platform> {
    /// When the running phase ends, in ticks: in 32 bits they tell before from after within 137 s.
    ends: P::AtomicU32,
    /// For each side, 8 bits: how many phases are given up as soon as it leaves the lock free. Above: of which lock, as far
    /// as 16 bits of its address tell.
    sparse: P::AtomicU32,
}

impl<P: Platform> PhaseClock<P> {
    pub(super) const NEW: Self =
        PhaseClock { ends: P::AtomicU32::ZERO, sparse: P::AtomicU32::ZERO };

    pub(super) fn now() -> u32 {
        ticks(P::now())
    }

    /// From now on this clock belongs to this lock. What it knows of the one before is of no use, unless that is the same.
    pub(super) fn start(&self, lock: *const ()) {
        let lock = (lock as usize >> 4) as u32 & 0xffff;
        if self.sparse.load(Relaxed) >> 16 != lock {
            self.sparse.store(lock << 16, Relaxed);
        }
    }

    /// Ticks until the phase ends; negative when it has.
    pub(super) fn remaining(&self, now: u32) -> i32 {
        self.ends.load(Relaxed).wrapping_sub(now) as i32
    }

    /// The phase ends then.
    pub(super) fn end(&self, then: u32) {
        self.ends.store(then, Relaxed);
    }

    /// This side has left the lock free in its phase.
    pub(super) fn note_sparse(&self, side: Side) {
        let shift = 8 * side as u32;
        let others = self.sparse.load(Relaxed) & !(0xff << shift);
        self.sparse.store(others | SPARSE << shift, Relaxed);
    }

    /// One of its phases is given up.
    pub(super) fn use_sparse(&self, side: Side) {
        self.sparse.store(self.sparse.load(Relaxed) - (1 << (8 * side as u32)), Relaxed);
    }

    pub(super) fn is_sparse(&self, side: Side) -> bool {
        self.sparse.load(Relaxed) >> (8 * side as u32) & 0xff != 0
    }
}
