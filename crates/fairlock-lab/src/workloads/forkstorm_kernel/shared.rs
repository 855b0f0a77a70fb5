//! What the run, the daemon and all that it forks share: a slot for each client, and the first fault.
//!
//! Invariants
//! 1. All of it is atomics, of which all zeros are valid values.
//! 2. Nothing here allocates, locks or waits, but for what turns it into records: a forked process may use
//!    the rest.
//! 3. What a process stores, its parent reads after having waited for it, which orders the two;
//!    the run reads what the daemon published when it was done.

use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::error::{LabError, Violation};
use crate::measure::Distribution;
use crate::world::processes::{Mapping, SharedMemory, Used};

/// What all of a storm's processes share.
pub type Shared = Mapping<Trouble, Slot>;

// SAFETY: invariant 1.
unsafe impl SharedMemory for Slot {}
// SAFETY: invariant 1.
unsafe impl SharedMemory for Trouble {}

/// What one client's processes did.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Slot {
    /// Messages that were delivered before the storm's end.
    pub ops: AtomicU64,
    /// All messages that were delivered.
    pub executed: AtomicU64,
    /// Processes that were forked.
    pub forks: AtomicU64,
    /// Processes that ended well and were reaped.
    pub reaped: AtomicU64,
    /// What they used.
    pub used: Used,
    /// Calls of fork(), as their callers saw them.
    pub fork: Times,
    /// From the call of fork() for an innermost process until that was reaped.
    pub life: Times,
    /// From the call of fork() for a message until its processes were reaped.
    pub message: Times,
}

/// What went wrong in a process that can tell it only by numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A system call failed, with this error number.
    Fork(i32),
    Wait(i32),
    /// See [`Violation`].
    ForkedProcess {
        status: i32,
    },
    CopyOnWrite {
        expected: u64,
        found: u64,
    },
    ForkCount {
        forks: u64,
        expected: u64,
    },
    /// The process that had to see it was gone before it had.
    Unsaid,
}

/// The first fault of a storm: whoever changes `kind` from nothing describes it.
#[repr(C)]
pub struct Trouble {
    kind: AtomicU32,
    details: [AtomicU64; 2],
}

const NOTHING: u32 = 0;
const IS_DESCRIBED: u32 = 1;
const FORK: u32 = 2;
const WAIT_CALL: u32 = 3;
const FORKED_PROCESS: u32 = 4;
const COPY_ON_WRITE: u32 = 5;
const FORK_COUNT: u32 = 6;

impl Trouble {
    /// Notes what went wrong, if nothing has before.
    pub fn note(&self, fault: Fault) {
        let (kind, details) = match fault {
            Fault::Fork(number) => (FORK, [number as u64, 0]),
            Fault::Wait(number) => (WAIT_CALL, [number as u64, 0]),
            Fault::ForkedProcess { status } => (FORKED_PROCESS, [status as u64, 0]),
            Fault::CopyOnWrite { expected, found } => (COPY_ON_WRITE, [expected, found]),
            Fault::ForkCount { forks, expected } => (FORK_COUNT, [forks, expected]),
            Fault::Unsaid => return,
        };
        if self.kind.compare_exchange(NOTHING, IS_DESCRIBED, AcqRel, Relaxed).is_ok() {
            self.details
                .iter()
                .zip(details)
                .for_each(|(place, detail)| place.store(detail, Relaxed));
            // Release: pairs with the load in `first`.
            self.kind.store(kind, Release);
        }
    }

    /// The first fault, if there was one.
    pub fn first(&self) -> Option<Fault> {
        // Acquire: pairs with the store in `note`.
        let kind = self.kind.load(Acquire);
        let [one, other] = self.details.each_ref().map(|detail| detail.load(Relaxed));
        Some(match kind {
            NOTHING => return None,
            FORK => Fault::Fork(one as i32),
            WAIT_CALL => Fault::Wait(one as i32),
            FORKED_PROCESS => Fault::ForkedProcess { status: one as i32 },
            COPY_ON_WRITE => Fault::CopyOnWrite { expected: one, found: other },
            FORK_COUNT => Fault::ForkCount { forks: one, expected: other },
            _ => Fault::Unsaid,
        })
    }
}

impl Fault {
    /// Whether it breaks the workload's invariant; else the system refused something.
    pub fn violation(self) -> Result<Violation, LabError> {
        let refused =
            |action: &str, number| Err(LabError::io(action, io::Error::from_raw_os_error(number)));
        match self {
            Fault::Fork(libc::EAGAIN) => refused(
                "fork one more process; run fewer clients, or allow more processes (`ulimit -u`, \
                 pids.max of the control group)",
                libc::EAGAIN,
            ),
            Fault::Fork(libc::ENOMEM) => refused(
                "fork one more process; run fewer clients, mappings or pages, or free some memory",
                libc::ENOMEM,
            ),
            Fault::Fork(number) => refused("fork one more process", number),
            Fault::Wait(number) => refused("wait for a forked process", number),
            Fault::ForkedProcess { status } => Ok(Violation::ForkedProcess { status }),
            Fault::CopyOnWrite { expected, found } => {
                Ok(Violation::CopyOnWrite { expected, found })
            }
            Fault::ForkCount { forks, expected } => Ok(Violation::ForkCount { forks, expected }),
            Fault::Unsaid => {
                let gone = io::Error::other("it was killed before it could say what went wrong");
                Err(LabError::io("hear of a forked process", gone))
            }
        }
    }
}

/// Each power of two is cut into so many lengths, so that one is known to 0.8 %.
const LENGTHS: usize = 64;
/// Lengths up to 2³⁶ ns, 69 s; longer ones are in the last.
const POWERS: usize = 31;

/// Durations, counted by their length.
#[repr(C)]
pub struct Times {
    lengths: [AtomicU32; LENGTHS * POWERS],
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for Times {
    fn default() -> Times {
        let lengths = [const { AtomicU32::new(0) }; LENGTHS * POWERS];
        Times { lengths, sum: AtomicU64::new(0), max: AtomicU64::new(0) }
    }
}

impl Times {
    /// Which length a duration has: up to 128 ns its own, then that of its leading seven bits.
    fn index(ns: u64) -> usize {
        let shift = (ns | LENGTHS as u64).ilog2() - LENGTHS.ilog2();
        let index = shift as usize * LENGTHS + (ns >> shift) as usize;
        index.min(LENGTHS * POWERS - 1)
    }

    /// The middle of a length, ns.
    fn middle(index: usize) -> u64 {
        let shift = (index / LENGTHS).saturating_sub(1);
        (((index - shift * LENGTHS) as u64) << shift) + (1 << shift) / 2
    }

    /// Adds one duration. Several processes may.
    pub fn record(&self, ns: u64) {
        self.lengths[Times::index(ns)].fetch_add(1, Relaxed);
        self.sum.fetch_add(ns, Relaxed);
        self.max.fetch_max(ns, Relaxed);
    }

    /// What was recorded so far.
    pub fn distribution(&self) -> Distribution {
        let lengths = self.lengths.iter().enumerate().filter_map(|(index, count)| {
            let count = u64::from(count.load(Relaxed));
            (count > 0).then(|| (Times::middle(index), count))
        });
        let (sum, max) = (self.sum.load(Relaxed), self.max.load(Relaxed));
        Distribution::counted(lengths, sum.into(), max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_known_to_one_percent() {
        for ns in (0..4096).chain((12..40).map(|power| (1 << power) + 12_345)) {
            let middle = Times::middle(Times::index(ns));
            assert!(ns >= 1 << 36 || middle.abs_diff(ns) * 100 <= ns, "{ns} is not {middle}");
        }
        assert_eq!(Times::index(u64::MAX), LENGTHS * POWERS - 1);
    }

    #[test]
    fn the_first_fault_is_kept() {
        let trouble = Trouble { kind: AtomicU32::new(NOTHING), details: Default::default() };
        assert_eq!(trouble.first(), None);
        let first = Fault::CopyOnWrite { expected: 1, found: 2 };
        trouble.note(first);
        trouble.note(Fault::Fork(libc::EAGAIN));
        assert_eq!(trouble.first(), Some(first));
    }

    #[test]
    fn a_refused_fork_says_what_to_do() {
        for (number, word) in [(libc::EAGAIN, "ulimit -u"), (libc::ENOMEM, "fewer clients")] {
            let said = Fault::Fork(number).violation().unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
    }
}
