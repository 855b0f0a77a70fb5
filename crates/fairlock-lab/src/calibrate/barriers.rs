//! What a barrier on all CPUs costs: membarrier(2), as `fairlock` calls it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::sleeping::{EXCHANGES, SAMPLES, time_calls, time_some_calls, two_threads};
use crate::error::LabError;
use crate::world::{RealWorld, World};

/// Has the kernel run a full barrier on every CPU that runs a thread of this process. False if it
/// does not.
fn barrier() -> bool {
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) >= 0 }
}

/// Whether the kernel has such barriers, for this process from now on.
pub fn exist() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && barrier()
}

/// Barriers while no other CPU runs a thread of this process, ns.
pub fn alone(world: &RealWorld) -> Vec<f64> {
    time_calls(world, || _ = barrier())
}

/// Barriers that interrupt one other CPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interrupting {
    /// The call, ns.
    pub call: Vec<f64>,
    /// What the other CPU did not get to do because of it, ns.
    pub lost: Vec<f64>,
}

/// Barriers by `cpus.0` while `cpus.1` does nothing but look at the clock.
///
/// # Errors
/// No thread could be started.
pub fn interrupting(world: &RealWorld, cpus: (usize, usize)) -> Result<Interrupting, LabError> {
    /// Longer gaps than so many looks may be interrupts.
    const LOOKS: u64 = 4;
    /// Longer gaps than this are not ours, ns.
    const MOST_NS: u64 = 100_000;
    let (looks, over) = (CachePadded::new(AtomicU64::new(0)), AtomicBool::new(false));
    let caller = || {
        while looks.load(Ordering::Relaxed) == 0 {
            std::hint::spin_loop();
        }
        let sample = || {
            let before = looks.load(Ordering::Relaxed);
            let sample = time_some_calls(world, || _ = barrier());
            // Another program may have had that CPU, and was not interrupted.
            let was_there = looks.load(Ordering::Relaxed) - before >= u64::from(EXCHANGES);
            was_there.then_some(sample)
        };
        let call: Vec<f64> = (0..SAMPLES).filter_map(|_| sample()).collect();
        over.store(true, Ordering::Relaxed);
        call
    };
    let interrupted = || {
        let look = {
            let samples = time_calls(world, || _ = world.now());
            samples.into_iter().reduce(f64::min).unwrap_or(0.0) as u64
        };
        let mut lost = Vec::new();
        let mut last = world.now();
        for look_number in 1.. {
            looks.store(look_number, Ordering::Relaxed);
            if over.load(Ordering::Relaxed) {
                break;
            }
            let now = world.now();
            let gap = now - last;
            if gap > LOOKS * look.max(1) && gap < MOST_NS {
                lost.push((gap - look) as f64);
            }
            last = now;
        }
        lost
    };
    let (call, mut lost) = two_threads(cpus, caller, interrupted)?;
    // One gap for each barrier: shorter ones are something else.
    lost.sort_by(|a, b| b.total_cmp(a));
    lost.truncate(call.len() * EXCHANGES as usize);
    Ok(Interrupting { call, lost })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::cpus::Cpus;

    #[test]
    fn barriers_are_timed_with_and_without_another_cpu() {
        if !exist() {
            return; // This kernel has none.
        }
        let world = RealWorld::new(false);
        assert!(alone(&world).iter().all(|&ns| ns > 0.0));
        if let Some(cpus) = Cpus::here().two_cores() {
            assert!(interrupting(&world, cpus).unwrap().call.iter().all(|&ns| ns > 0.0));
        }
    }
}
