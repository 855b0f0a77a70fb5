//! The simulated machine as the kernel's locks see it.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use fairlock::platform::{AtomicCell, AtomicInt, Platform};
use fairlock_reference::kernel::Kernel;
use fairlock_sim::{Sim, timed};

/// The kernel of a simulated machine.
pub struct SimulatedKernel;

/// How long a spinner may take to notice that the owner has lost its CPU, ns: a look at that takes some ten.
const LOOK_AT_OWNER: u64 = 500;
const HANDOFF_AFTER: u64 = 4_000_000;

/// Where the lines of a thread that its kernel knows lie: no memory of this program.
const TASKS: usize = 1 << 62;
const TASK_BYTES: usize = 1 << 8;
const ON_CPU: usize = 0;
const STATE: usize = 1 << 7;

fn line_of(thread: u64, field: usize) -> usize {
    TASKS + thread as usize * TASK_BYTES + field
}

impl Kernel for SimulatedKernel {
    type Platform = Sim;

    /// A turn ends when a word changes or after half a microsecond, in which a kernel makes some twenty.
    const TURNS_BEFORE_CLOCK: u32 = 1;

    fn forbid_preemption() {
        timed::forbid_preemption();
    }
    fn allow_preemption() {
        timed::allow_preemption();
    }
    fn is_to_yield() -> bool {
        timed::is_to_yield()
    }
    fn current() -> u64 {
        // Outside a run nobody else is there.
        timed::thread().unwrap_or(0) as u64
    }
    fn is_on_cpu(thread: u64) -> bool {
        timed::touch(line_of(thread, ON_CPU), false);
        timed::is_on_cpu(thread as usize)
    }
    fn wake_in_vain(thread: u64) {
        timed::touch(line_of(thread, STATE), true);
    }
    fn has_slept() {
        let me = Self::current();
        timed::touch(line_of(me, ON_CPU), true);
        timed::touch(line_of(me, STATE), true);
    }
    fn ticks() -> u64 {
        timed::ticks()
    }
    fn ticks_until_handoff() -> u64 {
        timed::ticks_in(HANDOFF_AFTER)
    }
    fn relax() {
        timed::relax_for(LOOK_AT_OWNER);
    }

    fn exchange_part(word: &<Sim as Platform>::AtomicU64, mask: u64, bits: u64) -> u64 {
        let before = word.fetch_add(0, AcqRel);
        timed::in_the_same_step(|| word.store(before & !mask | bits, Relaxed));
        before
    }
}
