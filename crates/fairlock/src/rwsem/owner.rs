//! Where the lock's writer acquired it, and whether other writers come from elsewhere. A hint, which may be wrong.
//!
//! ```text
//!    31          16 15           0
//!   [ writes in a  | CPU, plus one ]
//!   [ row from it  |               ]
//! ```

use core::sync::atomic::Ordering::Relaxed;

use crate::platform::{AtomicCell, Platform};

/// The CPU of the last writer, plus one; 0 if it is unknown or has not run since. All ones where the kernel does not tell
/// a thread its CPU.
const CPU: u32 = 0xffff;
/// So many writes in a row from one CPU mean that no writer runs elsewhere: fewer may be chance, and more leave
/// another CPU idle for longer. Chosen, not measured.
const ALONE: u32 = 64;
/// In place of a number of writes: that was noticed already.
const NOTICED: u32 = CPU;
/// In place of all: readers were let in last. It stays when they leave, as the bit for readers in Linux's `owner`
/// does: a writer spins again once another writer has had the lock.
const READERS: u32 = !1;

pub struct Owner<P: Platform>(P::AtomicU32);

impl<P: Platform> Owner<P> {
    pub(super) const NEW: Self = Owner(P::AtomicU32::ZERO);

    /// This thread has acquired the lock for writing while nobody waited.
    #[inline(always)]
    pub(super) fn note(&self) {
        self.0.store(P::cpu(), Relaxed);
    }

    /// The same after a wait; says nothing of writes in a row.
    pub(super) fn note_after_wait(&self) {
        self.0.store(self.0.load(Relaxed) & !CPU | P::cpu() & CPU, Relaxed);
    }

    /// The same past those that wait. True once in a phase of writers, if all seem to come from this CPU.
    pub(super) fn note_past_waiters(&self) -> bool {
        let (before, cpu) = (self.0.load(Relaxed), P::cpu() & CPU);
        let in_a_row = match before >> 16 {
            NOTICED => NOTICED,
            in_a_row if before & CPU == cpu && !matches!(cpu, 0 | CPU) => in_a_row + 1,
            _ => 0,
        };
        let is_alone = in_a_row == ALONE;
        let in_a_row = if is_alone { NOTICED } else { in_a_row };
        self.0.store(in_a_row << 16 | cpu, Relaxed);
        is_alone
    }

    /// The lock is a writer's that does not run yet: nobody knows on which CPU it will.
    pub(super) fn forget(&self) {
        self.0.store(0, Relaxed);
    }

    pub(super) fn note_readers(&self) {
        self.0.store(READERS, Relaxed);
    }

    /// Readers were let in after the last writer.
    pub(super) fn is_readers(&self) -> bool {
        self.0.load(Relaxed) == READERS
    }

    /// The CPU of the last writer, plus one. Other values than those of CPUs are possible.
    pub(super) fn cpu(&self) -> u32 {
        self.0.load(Relaxed) & CPU
    }

    /// The last writer acquired the lock on the CPU on which this thread runs.
    pub(super) fn is_here(&self) -> bool {
        self.cpu() == P::cpu() & CPU
    }

    /// False only if the writer surely does not run: it acquired the lock on the CPU that this
    /// thread runs on now. It cannot see a writer that was preempted on another CPU, and is
    /// wrong about one that has moved since.
    pub(super) fn may_run(&self) -> bool {
        matches!(self.cpu(), 0 | CPU) || !self.is_here()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;

    #[test]
    fn that_all_writes_come_from_one_cpu_is_noticed_once() {
        let owner = Owner::<Os>::NEW;
        // This thread may be moved between two of these, and then begins anew.
        let noticed = (0..100_000).filter(|_| owner.note_past_waiters()).count();
        assert_eq!(noticed, 1);
        owner.forget();
        assert!((0..100_000).any(|_| owner.note_past_waiters()), "another phase");
    }

    #[test]
    fn writes_from_several_cpus_are_no_writes_in_a_row() {
        let owner = Owner::<Os>::NEW;
        for _ in 0..2 * ALONE {
            // Another writer, elsewhere.
            owner.0.store(owner.0.load(Relaxed) & !CPU | (CPU - 7), Relaxed);
            assert!(!owner.note_past_waiters());
        }
    }

    #[test]
    fn an_owner_on_this_cpu_does_not_run_and_one_that_is_unknown_may() {
        let owner = Owner::<Os>::NEW;
        assert!(owner.may_run(), "nothing is known");
        owner.note_readers();
        assert!(owner.is_readers() && owner.may_run());
        owner.0.store(u32::MAX, Relaxed);
        assert!(owner.may_run(), "the kernel did not tell it");
        let known = (0..1_000).any(|_| {
            owner.note();
            !owner.may_run()
        });
        assert!(known || Os::cpu() == 0);
    }
}
