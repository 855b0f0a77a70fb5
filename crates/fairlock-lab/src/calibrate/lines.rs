//! How long a cache line takes from one CPU to another.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crossbeam_utils::CachePadded;

use crate::error::LabError;
use crate::world::{RealWorld, World, pin_to};

/// Exchanges in one sample: short, so that an interruption spoils few samples.
const EXCHANGES: u64 = 100;
/// Samples of one pair and round.
const SAMPLES: usize = 100;
/// A pair takes no longer, whatever happens to its CPUs.
const LONGEST_NS: u64 = 100_000_000;
/// Tries between two looks at whether the partner is still there.
const TRIES: u32 = 1000;

/// One-way transfers between the CPUs of `pair`, ns: half of what it takes two threads to change a
/// word by turns, each by trying to compare-exchange until it is its turn.
///
/// # Errors
/// No thread could be started.
pub fn transfers(world: &RealWorld, pair: (usize, usize)) -> Result<Vec<f64>, LabError> {
    let word = CachePadded::new(AtomicU64::new(0));
    let over = CachePadded::new(AtomicBool::new(false));
    // Changes the word from `from`, or says that the other side is gone.
    let step = |from: u64| -> bool {
        loop {
            for _ in 0..TRIES {
                // Relaxed: nothing is published with the word.
                let tried =
                    word.compare_exchange(from, from + 1, Ordering::Relaxed, Ordering::Relaxed);
                if tried.is_ok() {
                    return true;
                }
            }
            if over.load(Ordering::Relaxed) {
                return false;
            }
        }
    };
    thread::scope(|scope| {
        let partner = thread::Builder::new().spawn_scoped(scope, || {
            pin_to(pair.1);
            let mut turn = 1;
            while step(turn) {
                turn += 2;
            }
        });
        let partner = partner.map_err(|error| LabError::io("start a thread", error))?;
        let leader = thread::Builder::new().spawn_scoped(scope, || {
            pin_to(pair.0);
            let end = world.now() + LONGEST_NS;
            let mut turn = 0;
            // The first exchange waits for the partner to start.
            step_until(&step, &mut turn);
            let mut samples = Vec::with_capacity(SAMPLES);
            while samples.len() < SAMPLES && world.now() < end {
                let started = world.now();
                for _ in 0..EXCHANGES {
                    step_until(&step, &mut turn);
                }
                samples.push((world.now() - started) as f64 / (2 * EXCHANGES) as f64);
            }
            over.store(true, Ordering::Relaxed);
            samples
        });
        let samples = match leader {
            Ok(leader) => leader.join().map_err(|_| LabError::Panicked("ping-pong".to_owned())),
            Err(error) => Err(LabError::io("start a thread", error)),
        };
        over.store(true, Ordering::Relaxed);
        // Its panic, if any, is the scope's.
        let _ = partner.join();
        samples
    })
}

/// One exchange of the leader.
fn step_until(step: &impl Fn(u64) -> bool, turn: &mut u64) {
    if step(*turn) {
        *turn += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::cpus::Cpus;

    #[test]
    fn a_line_goes_to_and_fro() {
        let Some(pair) = Cpus::here().two_cores() else { return };
        let samples = transfers(&RealWorld::new(false), pair).unwrap();
        assert!(!samples.is_empty());
        assert!(samples.iter().all(|&ns| ns > 0.0));
    }

    #[test]
    fn two_threads_on_one_cpu_come_to_an_end() {
        let cpu = Cpus::here().list[0].number;
        transfers(&RealWorld::new(false), (cpu, cpu)).unwrap();
    }
}
