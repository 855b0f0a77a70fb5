//! What the locks of one process share: the records of its threads, and waiting rooms.
//!
//! One such object exists for each [`Platform`]; where the process is a simulated one it begins
//! and ends with a run. Several copies of this crate in one program each have their own, and
//! share nothing.

use core::sync::atomic::Ordering::Relaxed;

use crate::platform::{AtomicCell, AtomicInt, Platform};
use crate::rwsem::Rooms;
use crate::slots::{Record, Threads};

/// What the locks of one process share.
pub struct Process<P: Platform> {
    pub(crate) threads: Threads<P>,
    /// Locks that got a number so far.
    locks: P::AtomicU64,
    /// What a barrier on all CPUs takes here, ns: a running estimate; 0 before the first.
    barrier_ns: P::AtomicU32,
    pub(crate) rooms: Rooms<P>,
}

/// Before one was measured, ns: a value for machines whose interrupts between CPUs are dear.
const BARRIER_AT_FIRST: u32 = 10_000;
/// A sample counts for at most this, as its thread may have been preempted.
const LONGEST_BARRIER: u64 = 1_000_000;

impl<P: Platform> Process<P> {
    /// A process whose threads have not used a lock yet.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub const NEW: Self = Process {
        threads: Threads::NEW,
        rooms: Rooms::NEW,
        locks: P::AtomicU64::ZERO,
        barrier_ns: P::AtomicU32::ZERO,
    };

    /// A number for a lock; no two get the same.
    pub(crate) fn new_lock(&self) -> u64 {
        self.locks.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn barrier_ns(&self) -> u64 {
        match self.barrier_ns.load(Relaxed) {
            0 => BARRIER_AT_FIRST.into(),
            ns => ns.into(),
        }
    }

    /// May lose a concurrent sample.
    pub(crate) fn note_barrier(&self, ns: u64) {
        let estimate = (3 * self.barrier_ns() + ns.min(LONGEST_BARRIER)) / 4;
        self.barrier_ns.store(estimate.max(1) as u32, Relaxed);
    }

    /// A record for a thread of this process that has none yet, to be
    /// [released](Record::release) when it ends; none if there are too many, and then it does
    /// without. For those that implement a [`Platform`].
    pub fn new_thread(&self) -> Option<&Record<P>> {
        self.threads.claim()
    }
}
