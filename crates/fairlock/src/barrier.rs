//! The expensive side of the asymmetric barrier, shared: when writers of different locks want one
//! at the same time, one of them asks the kernel for all.
//!
//! A caller returns after a barrier on all CPUs that began after its call. It waits for another
//! thread's barrier for at most as long as a wake-up takes, and then runs one of its own. A
//! counter, `sequence`, is odd while a barrier runs:
//!
//! ```text
//!   sequence     4 ──────► 5 ═══════════► 6 ──────► 7 ═══════════► 8
//!                          a barrier runs            another runs
//!   A calls at         ▲                 waits for 6: it begins after the call
//!   B calls at                   ▲       waits for 8: the running barrier may have reached
//!                                        B's readers already. A, B or C runs the next one
//!   C calls at                       ▲   waits for 8
//! ```
//!
//! Linux numbers RCU's grace periods in the same way (`rcu_seq_snap`).
//!
//! Invariants
//! 1. `sequence` grows by 1 when a barrier begins, by the exchange that makes it odd, and when it
//!    ends, by the thread that began it. So at most one counted barrier runs at a time.
//! 2. A caller returns once a barrier that began after its call has ended: either one that it ran
//!    itself, or the one whose end makes `sequence` what [`SharedBarrier::next`] said.
//! 3. What a caller stored before its call is visible to everybody before the barrier begins that
//!    it waits for: a full fence precedes its look at `sequence`. Without that fence, the barrier
//!    could run on a reader's CPU first, that reader could look, and only then would the caller's
//!    store appear.
//! 4. Nobody waits for long for another thread: a caller that has waited for as long as a wake-up
//!    takes runs a barrier of its own and leaves `sequence` alone. So it does not matter whether
//!    the thread that runs the counted barrier has lost its CPU, has a lower priority or, in the
//!    child of a `fork`, does not exist. Nobody sleeps, so no wake-up can be lost.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::platform::{AtomicCell, Platform};
use crate::spin_budget::SpinBudget;

/// One for each process; see the module.
pub(crate) struct SharedBarrier<P: Platform> {
    /// Twice the number of barriers that have ended, and 1 more while one runs.
    sequence: P::AtomicU32,
}

fn runs(sequence: u32) -> bool {
    sequence & 1 != 0
}

/// The numbers wrap around. A caller that is stopped while half of them go by may mistake a barrier
/// that has ended for one that is to come, and then runs its own; never the other way round.
fn has_been(number: u32, sequence: u32) -> bool {
    sequence.wrapping_sub(number) <= u32::MAX / 2
}

impl<P: Platform> SharedBarrier<P> {
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub(crate) const NEW: Self = SharedBarrier { sequence: P::AtomicU32::ZERO };

    /// Returns once a barrier on all CPUs that began after the call has ended.
    pub(crate) fn pass(&self) {
        self.wait_for(self.next());
    }

    /// What `sequence` will be once the next barrier that begins has ended.
    pub(crate) fn next(&self) -> u32 {
        P::fence(); // Invariant 3.
        let sequence = self.sequence.load(Relaxed);
        sequence.wrapping_add(if runs(sequence) { 3 } else { 2 })
    }

    /// Returns once `sequence` has reached `number`, or a barrier of the caller's own has ended.
    pub(crate) fn wait_for(&self, number: u32) {
        let mut budget = None;
        loop {
            // Acquire pairs with the Release in `run`: the caller comes after the barrier.
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

    /// Runs a barrier for everybody, which is the one that the caller waits for, or a later one.
    /// False if another thread began one first.
    fn run(&self, sequence: u32) -> bool {
        let running = sequence.wrapping_add(1);
        // AcqRel: this barrier comes after the one before it, and after everything that its caller
        // did.
        if self.sequence.compare_exchange(sequence, running, AcqRel, Relaxed).is_err() {
            return false;
        }
        P::barrier_on_all_cpus();
        // Release pairs with the Acquire in `wait_for`.
        self.sequence.store(running.wrapping_add(1), Release);
        true
    }

    /// In the child of a `fork`, the thread that ran a barrier does not exist. Nothing would go
    /// wrong without this, but everybody would first wait for that barrier.
    pub(crate) fn forked(&self) {
        let sequence = self.sequence.load(Relaxed);
        if runs(sequence) {
            self.sequence.store(sequence.wrapping_add(1), Relaxed);
        }
    }
}
