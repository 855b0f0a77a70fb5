//! What instructions cost on one CPU: batches of them, timed as a whole.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::samples::Samples;
use super::sleeping::two_threads;
use crate::error::LabError;
use crate::world::{RealWorld, World};

/// Operations in one sample: enough that reading the clock does not count, nor the hundred or so
/// operations that are still under way when a CPU reads it ahead of them.
const BATCH: u32 = 4000;
/// Samples in one round.
const SAMPLES: usize = 101;

/// Nanoseconds of one `operation`, by samples of a batch each.
fn time_batches(world: &RealWorld, mut operation: impl FnMut()) -> Vec<f64> {
    (0..SAMPLES)
        .map(|_| {
            let started = world.now();
            for _ in 0..BATCH {
                operation();
            }
            (world.now() - started) as f64 / f64::from(BATCH)
        })
        .collect()
}

/// Loads of which each needs the one before, from the first cache.
pub fn load(world: &RealWorld) -> Vec<f64> {
    const STEPS: usize = 64;
    let ring: Vec<AtomicUsize> =
        (0..STEPS).map(|index| AtomicUsize::new((index + 1) % STEPS)).collect();
    let mut at = 0;
    let samples = time_batches(world, || at = ring[at].load(Ordering::Relaxed));
    black_box(at);
    samples
}

/// Stores to a line of this CPU.
pub fn store(world: &RealWorld) -> Vec<f64> {
    let word = AtomicU64::new(0);
    time_batches(world, || black_box(&word).store(1, Ordering::Release))
}

/// Compare-exchanges of which each needs the one before.
pub fn compare_exchange(world: &RealWorld) -> Vec<f64> {
    let word = AtomicU64::new(0);
    let mut value = 0;
    time_batches(world, || {
        let found = word.compare_exchange(value, value + 1, Ordering::AcqRel, Ordering::Acquire);
        value = found.unwrap_or_else(|found| found) + 1;
    })
}

/// A reader-writer lock's word, and who holds it.
struct Taken {
    count: AtomicU64,
    owner: AtomicU64,
}

/// Loads, stores and locked instructions of one [`fast_paths`].
pub const FAST_PATHS: [u32; 3] = [2, 2, 2];

/// A lock is taken for writing and released, as a lock without competition does it: two functions that
/// are called, with tests of bits between the operations on the lock's words. No lock of this project,
/// so that predictions about those are not fitted to themselves.
pub fn fast_paths(world: &RealWorld) -> Vec<f64> {
    const WRITER: u64 = 1;
    const WAITERS: u64 = 2;
    const READER: u64 = 256;

    #[inline(never)]
    fn lock(taken: &Taken, me: u64) -> bool {
        let count = taken.count.load(Ordering::Relaxed);
        if count & WAITERS != 0 || count >= READER {
            return false;
        }
        let held = count | WRITER;
        let tried = taken.count.compare_exchange(count, held, Ordering::Acquire, Ordering::Relaxed);
        if tried.is_err() {
            return false;
        }
        taken.owner.store(me, Ordering::Relaxed);
        true
    }

    #[inline(never)]
    fn unlock(taken: &Taken, me: u64) -> bool {
        if taken.owner.load(Ordering::Relaxed) != me {
            return false;
        }
        taken.owner.store(0, Ordering::Relaxed);
        taken.count.fetch_sub(WRITER, Ordering::Release) & WAITERS == 0
    }

    let taken = CachePadded::new(Taken { count: AtomicU64::new(0), owner: AtomicU64::new(0) });
    time_batches(world, || {
        let (taken, me) = (black_box(&*taken), black_box(1));
        let (locked, unlocked) = (lock(taken, me), unlock(taken, me));
        debug_assert!(locked && unlocked, "nobody else uses it");
        black_box((locked, unlocked));
    })
}

/// Spin-loop hints.
pub fn pause(world: &RealWorld) -> Vec<f64> {
    time_batches(world, std::hint::spin_loop)
}

/// The monotonic clock, as locks read it.
pub fn clock(world: &RealWorld) -> Vec<f64> {
    time_batches(world, || {
        black_box(Instant::now());
    })
}

/// The clock of the lab.
pub fn observe(world: &RealWorld) -> Vec<f64> {
    time_batches(world, || {
        black_box(world.now());
    })
}

/// Loads of which each needs the one before, from memory; `None` where lines cannot be flushed.
#[cfg(target_arch = "x86_64")]
pub fn memory(world: &RealWorld) -> Option<Vec<f64>> {
    use std::arch::x86_64::{_mm_clflush, _mm_lfence, _mm_mfence};

    /// One to a page, and no more pages than a TLB holds.
    const LINES: usize = 64;
    /// Words between entries: a page, which no prefetcher leaves.
    const APART: usize = 512;
    // 13 × line + 29 modulo a power of two visits every line, in steps of changing length.
    let ring: Vec<AtomicUsize> = (0..LINES * APART)
        .map(|index| AtomicUsize::new((13 * (index / APART) + 29) % LINES * APART))
        .collect();
    let sample = || {
        for line in ring.iter().step_by(APART) {
            // SAFETY: every x86-64 CPU has CLFLUSH, and `line` is valid memory.
            unsafe { _mm_clflush(line.as_ptr().cast()) };
        }
        // SAFETY: every x86-64 CPU has MFENCE.
        unsafe { _mm_mfence() };
        let mut at = 0;
        let started = world.now();
        for _ in 0..LINES {
            at = ring[at].load(Ordering::Relaxed);
        }
        black_box(at);
        // Most of the loads are still under way, and a CPU reads its clock ahead of them.
        // SAFETY: every x86-64 CPU has LFENCE.
        unsafe { _mm_lfence() };
        (world.now() - started) as f64 / LINES as f64
    };
    Some((0..SAMPLES).map(|_| sample()).collect())
}

/// Loads from memory; `None` where lines cannot be flushed.
#[cfg(not(target_arch = "x86_64"))]
pub fn memory(_world: &RealWorld) -> Option<Vec<f64>> {
    None
}

/// Something to do for a CPU, from registers and the first cache.
pub fn compute() {
    let numbers = [1_u64; 256];
    black_box(black_box(&numbers).iter().fold(0, |sum: u64, n| sum.wrapping_mul(3) ^ n));
}

/// How much slower a thread computes on the first of two siblings while the second does something
/// `beside` it, over and over.
///
/// # Errors
/// No thread could be started.
pub fn slowdown(
    world: &RealWorld,
    siblings: (usize, usize),
    beside: fn(),
) -> Result<f64, LabError> {
    let busy = AtomicBool::new(false);
    let over = AtomicBool::new(false);
    let first = || {
        let median = || {
            let mut samples = Samples::default();
            samples.push(time_batches(world, compute));
            samples.least_median()
        };
        let alone = median();
        busy.store(true, Ordering::Relaxed);
        let together = median();
        over.store(true, Ordering::Relaxed);
        together / alone
    };
    let second = || {
        while !busy.load(Ordering::Relaxed) {
            world.sleep(100_000);
        }
        while !over.load(Ordering::Relaxed) {
            beside();
        }
    };
    Ok(two_threads(siblings, first, second)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::cpus::Cpus;

    #[test]
    fn taking_and_releasing_a_lock_is_timed() {
        let samples = fast_paths(&RealWorld::new(false));
        assert_eq!(samples.len(), SAMPLES);
        assert!(samples.iter().all(|&ns| ns > 0.0));
    }

    #[test]
    fn a_thread_computes_beside_one_that_spins() {
        // Two cores will do for siblings.
        let Some(cpus) = Cpus::here().two_cores() else { return };
        let factor = slowdown(&RealWorld::new(false), cpus, std::hint::spin_loop).unwrap();
        assert!(factor > 0.0);
    }
}
