//! What each thread records for itself while a workload runs.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::Distribution;

/// One thread's records in one role.
#[derive(Debug, Clone, Default)]
pub struct RoleRecorder {
    /// Operations that ended before the run did: what rates are made of.
    pub ops: u64,
    /// All operations, the one that was under way at the end included.
    pub executed: u64,
    /// Those of them that ended before measuring began; nothing else knows them.
    pub arriving: u64,
    /// Bytes moved by `ops`.
    pub bytes: u64,
    /// Every operation's wait, the one under way at the end included.
    pub wait: Distribution,
    /// Holds; sampled where timing each would distort.
    pub hold: Distribution,
    /// Whole operations, sampled like `hold`; its maximum also knows every long wait.
    pub latency: Distribution,
    /// Most reader acquisitions seen during one wait.
    pub longest_bypass: Option<u64>,
    /// Reads that got parts of several writes, where reads are looked at for that.
    pub torn: Option<u64>,
    /// Calls that waited and ended before the run did, where waiting is what is measured.
    pub wait_calls: Option<u64>,
    /// Operations that waited for a thread of lower priority that had nothing to do with them, where
    /// that is looked at.
    pub inverted: Option<u64>,
    /// How many threads stood at a lock whenever this one asked for it, itself included, where that is
    /// looked at.
    pub convoy: Distribution,
}

impl RoleRecorder {
    /// Adds the times of one operation, whose clock readings may come from two CPUs and differ by a
    /// few ticks.
    pub fn time(&mut self, asked: u64, got: u64, released: u64) {
        self.wait.record(got.saturating_sub(asked));
        self.hold.record(released.saturating_sub(got));
        self.latency.record(released.saturating_sub(asked));
    }

    /// Notes that `readers` acquisitions were granted during one wait.
    pub fn bypassed_by(&mut self, readers: u64) {
        self.longest_bypass = self.longest_bypass.max(Some(readers));
    }
}

/// What one thread brings home. It may have acted in both roles.
#[derive(Debug, Clone, Default)]
pub struct ThreadRecord {
    /// Its reads; `None` if the thread has no such role.
    pub reader: Option<RoleRecorder>,
    /// Its writes; `None` if the thread has no such role.
    pub writer: Option<RoleRecorder>,
    /// Time spent on housekeeping that the workload's rates leave out, ns.
    pub excluded_ns: u64,
}

/// Reader acquisitions, one counter and one cache line per thread: counting costs a reader a
/// store to its own line, and only a writer that wants the sum pays for fetching them.
pub struct Acquisitions(Vec<CachePadded<AtomicU64>>);

impl Acquisitions {
    /// Counters for threads `0..threads`.
    pub fn new(threads: usize) -> Acquisitions {
        Acquisitions((0..threads).map(|_| CachePadded::new(AtomicU64::new(0))).collect())
    }

    /// Counts one acquisition of `thread`. Only that thread may count there.
    #[inline]
    pub fn count(&self, thread: usize) {
        let counter = &self.0[thread];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// All acquisitions so far.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }
}
