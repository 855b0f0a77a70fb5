//! On which CPU a writer acquired the lock last. A hint, which may be wrong.

use core::sync::atomic::Ordering::Relaxed;

use crate::platform::{AtomicCell, Platform};

/// The CPU of the last writer, plus one; 0 if it is unknown or that writer has not run yet. All
/// ones where the kernel does not tell a thread its CPU.
const CPU: u32 = 0xffff;

pub struct Owner<P: Platform>(P::AtomicU32);

impl<P: Platform> Owner<P> {
    pub(super) const NEW: Self = Owner(P::AtomicU32::ZERO);

    /// This thread has acquired the lock.
    #[inline(always)]
    pub(super) fn note(&self) {
        self.0.store(P::cpu(), Relaxed);
    }

    /// A phase begins. If it is a writer's, that writer does not run yet, and its CPU is unknown.
    pub(super) fn forget(&self) {
        self.0.store(0, Relaxed);
    }

    /// False only if the writer surely does not run: it acquired the lock on the CPU that this
    /// thread runs on now. It cannot see a writer that was preempted on another CPU, and is
    /// wrong about one that has moved since.
    pub(super) fn may_run(&self) -> bool {
        let cpu = self.0.load(Relaxed) & CPU;
        !is_cpu(cpu) || cpu != P::cpu() & CPU
    }
}

/// It says which CPU it is.
fn is_cpu(cpu: u32) -> bool {
    !matches!(cpu & CPU, 0 | CPU)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;

    #[test]
    fn an_owner_on_this_cpu_does_not_run_and_one_that_is_unknown_may() {
        let owner = Owner::<Os>::NEW;
        assert!(owner.may_run(), "nothing is known");
        owner.0.store(u32::MAX, Relaxed);
        assert!(owner.may_run(), "the kernel did not tell it");
        let known = (0..1_000).any(|_| {
            owner.note();
            !owner.may_run()
        });
        assert_eq!(known, is_cpu(Os::cpu()));
    }
}
