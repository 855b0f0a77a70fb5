//! The dear side of the asymmetric barrier, shared: writers of different locks that want one at
//! the same time let one of them ask the kernel.
//!
//! ```text
//!   sequence     4 ──────► 5 ═══════════► 6 ──────► 7 ═══════════► 8
//!                          a barrier runs            another runs
//!   A calls at         ▲                 waits for 6: it begins after the call
//!   B calls at                   ▲       waits for 8: the one that runs may have passed B's
//!                                        readers already. A, B or C runs the next one
//!   C calls at                       ▲   waits for 8
//! ```
//!
//! The same numbering tells RCU's callers when a grace period has passed (Linux, `rcu_seq_snap`).
//!
//! Invariants
//! 1. `sequence` grows by 1 when a barrier begins, by the exchange that makes it odd, and when it
//!    ends, by the thread that began it. So there is at most one at a time.
//! 2. A caller returns after a barrier that began after its call has ended: one that it ran
//!    itself, or the one whose end makes `sequence` what [`SharedBarrier::next`] said.
//! 3. What a caller stored before its call is in everybody's sight before the barrier begins that
//!    it waits for: a full fence precedes its look at `sequence`. Without it the barrier could
//!    come to a reader first, and to the caller's own store only after that reader had looked.
//! 4. Nobody waits for long for another thread: whoever has waited for as long as two barriers take
//!    runs one of its own and leaves `sequence` alone. So it does not matter whether the one that
//!    began has lost its CPU, has a lower priority or, in the child of a `fork`, does not exist;
//!    and nobody sleeps, so no wake-up can be lost.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::platform::{AtomicCell, Platform, smoothed_wake_latency};
use crate::spin_budget::SpinBudget;

/// One for each process, see the module.
pub(crate) struct SharedBarrier<P: Platform> {
    /// Twice the number of barriers that have ended, and 1 more while one runs.
    sequence: P::AtomicU32,
    /// A running estimate of what a barrier takes, ns; 0 before the first.
    takes: P::AtomicU32,
}

fn runs(sequence: u32) -> bool {
    sequence & 1 != 0
}

/// The numbers wrap around. A caller that sleeps through half of them may take one that has been
/// for one to come, and then runs its own; never the other way round.
fn has_been(number: u32, sequence: u32) -> bool {
    sequence.wrapping_sub(number) <= u32::MAX / 2
}

impl<P: Platform> SharedBarrier<P> {
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub(crate) const NEW: Self =
        SharedBarrier { sequence: P::AtomicU32::ZERO, takes: P::AtomicU32::ZERO };

    /// Returns when a barrier on all CPUs has ended that began after the call.
    pub(crate) fn pass(&self) {
        self.wait_for(self.next());
    }

    /// What `sequence` is when the first barrier has ended that begins from now on.
    pub(crate) fn next(&self) -> u32 {
        P::fence(); // Invariant 3.
        let sequence = self.sequence.load(Relaxed);
        sequence.wrapping_add(if runs(sequence) { 3 } else { 2 })
    }

    /// Returns when `sequence` has come to `number`, or a barrier of the caller's own has ended.
    pub(crate) fn wait_for(&self, number: u32) {
        let mut budget = None;
        loop {
            // Acquire pairs with the Release in `run`: after what its barrier has made visible.
            let sequence = self.sequence.load(Acquire);
            if has_been(number, sequence) {
                return;
            }
            if !runs(sequence) {
                if self.run(sequence) {
                    return;
                }
                continue;
            }
            let budget =
                budget.get_or_insert_with(|| SpinBudget::new::<P>(P::wake_latency().into(), None));
            if !budget.relax::<P>() {
                return P::barrier_on_all_cpus(); // Invariant 4.
            }
        }
    }

    /// Runs a barrier for everybody, if no other thread is faster. It is the one that the caller
    /// waits for, or a later one.
    fn run(&self, sequence: u32) -> bool {
        let running = sequence.wrapping_add(1);
        // AcqRel: the barrier comes after the one before, and after what led here.
        if self.sequence.compare_exchange(sequence, running, AcqRel, Relaxed).is_err() {
            return false;
        }
        let began = P::now();
        P::barrier_on_all_cpus();
        let took = u32::try_from(P::now().saturating_sub(began)).unwrap_or(u32::MAX);
        self.takes.store(smoothed_wake_latency(self.takes(), took), Relaxed);
        // Release pairs with the Acquire in `wait_for`.
        self.sequence.store(running.wrapping_add(1), Release);
        true
    }

    /// Interrupting CPUs is most of a wake-up, too, so that is the first guess; and thought of the
    /// same way, so that one that lost its CPU meanwhile says little.
    fn takes(&self) -> u32 {
        match self.takes.load(Relaxed) {
            0 => P::wake_latency(),
            takes => takes,
        }
    }

    /// In the child of a `fork`: who ran a barrier is gone. Without this nothing would go wrong,
    /// but everybody would wait for it first.
    pub(crate) fn forked(&self) {
        let sequence = self.sequence.load(Relaxed);
        if runs(sequence) {
            self.sequence.store(sequence.wrapping_add(1), Relaxed);
        }
    }
}
