//! Where the lock's writer acquired it, and whether those who enter past waiters all come from there. A hint, which may
//! be wrong.
//!
//! ```text
//!    31     28 27              16 15           0
//!   [ noticed | entries in a row | CPU, plus one ]
//!   [ so often| from that CPU    |               ]
//! ```

use core::sync::atomic::Ordering::Relaxed;

use crate::platform::{AtomicCell, Platform, Tunable};

/// The CPU of the last writer or, while readers hold the lock, of one of them; plus one; 0 if it is unknown or has not run
/// since. All ones where the kernel does not tell a thread its CPU.
const CPU: u32 = 0xffff;
const IN_A_ROW_SHIFT: u32 = 16;
const MOST_IN_A_ROW: u32 = 0xfff;
const NOTICED_SHIFT: u32 = 28;

/// So many entries in a row from one CPU mean that nobody runs elsewhere: fewer may be chance, and more leave
/// another CPU idle for longer. Chosen, not measured.
const ALONE: Tunable = Tunable::new("alone_in_a_row", 64, 1..=MOST_IN_A_ROW);
/// It is noticed so often in a phase, each time after four times as many entries: where another CPU has no
/// time for this lock, whoever is woken there is woken in vain. On 2 CPUs 32 threads that read and write by
/// turns complete a tenth less if it takes 16 times as many each time. On eight simulated sockets every wake-up costs: 16
/// threads that only read or only write complete a tenth more if only writes count, and once.
const MOST_NOTICED: Tunable = Tunable::new("alone_most_noticed", 3, 0..=7);

pub(super) const TUNABLES: &[Tunable] = &[ALONE, MOST_NOTICED];

/// In place of all: readers were let in last. It stays when they leave, as the bit for readers in Linux's `owner`
/// does: a writer spins again once another writer has had the lock.
const READERS: u32 = !1;

/// Entries past those that wait, as seen by the last of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    /// It is the first from its CPU.
    Begins,
    GoesOn,
    /// All entries of the running phase seem to come from this CPU: so many in a row. Only now and then.
    IsLong(u32),
}

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

    /// So many `entries` past those that wait, the last of them this thread's.
    pub(super) fn note_past_waiters(&self, entries: u32) -> Row {
        let (before, cpu) = (self.0.load(Relaxed), P::cpu() & CPU);
        let noticed = before >> NOTICED_SHIFT;
        let is_known = before & CPU == cpu && is_cpu(cpu);
        let before = if is_known { before >> IN_A_ROW_SHIFT & MOST_IN_A_ROW } else { 0 };
        let in_a_row = if is_known { before + entries } else { 0 };
        let is_noticed = noticed < P::tuned(MOST_NOTICED);
        let is_alone = is_noticed && in_a_row >= P::tuned(ALONE) << (2 * noticed);
        let (noticed, left) = if is_alone { (noticed + 1, 0) } else { (noticed, in_a_row) };
        let left = left.min(MOST_IN_A_ROW);
        self.0.store(noticed << NOTICED_SHIFT | left << IN_A_ROW_SHIFT | cpu, Relaxed);
        match is_alone {
            true => Row::IsLong(in_a_row),
            false if before == 0 => Row::Begins,
            false => Row::GoesOn,
        }
    }

    /// A phase begins. If it is a writer's, that one does not run yet, and nobody knows on which CPU it will.
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
        !is_cpu(self.cpu()) || !self.is_here()
    }
}

/// Whether this, a [platform's](Platform::cpu) answer or what an [`Owner`] keeps of it, says which CPU it is.
pub(super) fn is_cpu(cpu: u32) -> bool {
    !matches!(cpu & CPU, 0 | CPU)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;

    fn is_long(row: Row) -> bool {
        matches!(row, Row::IsLong(_))
    }

    #[test]
    fn that_all_come_from_one_cpu_is_noticed_now_and_then() {
        if !is_cpu(Os::cpu()) {
            return eprintln!("skipped: the kernel does not tell threads their CPU here");
        }
        let owner = Owner::<Os>::NEW;
        for _ in 0..2 {
            // This thread may be moved between two of these, which begins a row anew.
            let noticed = (0..100_000).filter(|_| is_long(owner.note_past_waiters(1))).count();
            assert_eq!(noticed, MOST_NOTICED.value() as usize);
            owner.forget();
        }
        let few = (0..8).filter(|_| is_long(owner.note_past_waiters(ALONE.value() / 4))).count();
        assert!(few <= 1, "the second time takes longer");
    }

    #[test]
    fn entries_from_several_cpus_are_none_in_a_row() {
        let owner = Owner::<Os>::NEW;
        for _ in 0..2 * ALONE.value() {
            // Another thread, elsewhere.
            owner.0.store(owner.0.load(Relaxed) & !CPU | (CPU - 7), Relaxed);
            assert!(owner.note_past_waiters(1) == Row::Begins);
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
        assert_eq!(known, is_cpu(Os::cpu()));
    }
}
