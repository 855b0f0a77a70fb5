//! What sleeping, waking and switching cost, and what the scheduler does.

use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

use crossbeam_utils::CachePadded;

use crate::error::LabError;
use crate::world::{RealWorld, World, pin_to, set_timer_slack_to_minimum, thread_usage};

/// Sleeps while `word` is `expected`; may return early.
fn futex_wait(word: &AtomicU32, expected: u32) {
    // SAFETY: `word` is a live, aligned u32; a null timeout means none.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            std::ptr::null::<libc::timespec>(),
        );
    }
}

/// Wakes one sleeper and says whether there was one.
fn futex_wake(word: &AtomicU32) -> bool {
    // SAFETY: `word` is a live, aligned u32.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
    woken == 1
}

/// Runs two threads pinned to two CPUs (or one), and returns what they return.
pub(super) fn two_threads<A: Send, B: Send>(
    cpus: (usize, usize),
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B + Send,
) -> Result<(A, B), LabError> {
    // 1: both are there; 2: one is not, and the other would wait for it for ever.
    let verdict = AtomicU32::new(0);
    let start = |cpu| {
        pin_to(cpu);
        set_timer_slack_to_minimum();
        loop {
            match verdict.load(Ordering::Relaxed) {
                0 => thread::yield_now(),
                verdict => return verdict == 1,
            }
        }
    };
    let start = &start;
    thread::scope(|scope| {
        let one = thread::Builder::new()
            .spawn_scoped(scope, move || start(cpus.0).then(first))
            .map_err(|error| LabError::io("start a thread", error))?;
        let other = thread::Builder::new().spawn_scoped(scope, move || start(cpus.1).then(second));
        verdict.store(if other.is_ok() { 1 } else { 2 }, Ordering::Relaxed);
        let other = other.map_err(|error| LabError::io("start a thread", error))?;
        match (one.join(), other.join()) {
            (Ok(Some(one)), Ok(Some(other))) => Ok((one, other)),
            _ => Err(LabError::Panicked("a thread that sleeps and wakes".to_owned())),
        }
    })
}

/// Wake-ups of a thread on another CPU, ns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WakeUps {
    /// From before the call to running.
    pub latency: Vec<f64>,
    /// The call itself.
    pub call: Vec<f64>,
}

/// A word that a thread sleeps on, and when it last came and went.
#[derive(Default)]
struct Bed {
    /// The number of wake-ups so far.
    word: CachePadded<AtomicU32>,
    /// How often the sleeper has gone to sleep.
    asleep: CachePadded<AtomicU32>,
    /// When it last ran again.
    awake_at: CachePadded<AtomicU64>,
    /// How often it has run again.
    awake: CachePadded<AtomicU32>,
}

impl Bed {
    /// The sleeper: sleeps `rounds` times.
    fn sleep(&self, world: &RealWorld, rounds: u32) {
        for round in 0..rounds {
            // Release: pairs with the Acquire load in `wait_until`.
            self.asleep.store(round + 1, Ordering::Release);
            while self.word.load(Ordering::Acquire) == round {
                futex_wait(&self.word, round);
            }
            self.awake_at.store(world.now(), Ordering::Relaxed);
            // Release: publishes the time.
            self.awake.store(round + 1, Ordering::Release);
        }
    }

    /// Wakes the sleeper for the `round`-th time and returns the latency and the call's time; `None`
    /// where it was not asleep yet.
    fn wake(&self, world: &RealWorld, round: u32) -> Option<(f64, f64)> {
        let called = world.now();
        // Release: pairs with the sleeper's Acquire load.
        self.word.store(round + 1, Ordering::Release);
        let slept = futex_wake(&self.word);
        let returned = world.now();
        wait_until(&self.awake, round + 1);
        let awake_at = self.awake_at.load(Ordering::Relaxed);
        slept.then(|| (awake_at.saturating_sub(called) as f64, (returned - called) as f64))
    }
}

fn wait_until(word: &AtomicU32, value: u32) {
    while word.load(Ordering::Acquire) != value {
        std::hint::spin_loop();
    }
}

/// Wakes a thread on `cpus.1` from `cpus.0` after it has slept for `idle_ns`, `rounds` times.
///
/// # Errors
/// No thread could be started.
pub fn wake_ups(
    world: &RealWorld,
    cpus: (usize, usize),
    idle_ns: u64,
    rounds: u32,
) -> Result<WakeUps, LabError> {
    let bed = Bed::default();
    let waker = || {
        let mut found = WakeUps::default();
        for round in 0..rounds {
            wait_until(&bed.asleep, round + 1);
            let end = world.now() + idle_ns;
            while world.now() < end {
                std::hint::spin_loop();
            }
            if let Some((latency, call)) = bed.wake(world, round) {
                found.latency.push(latency);
                found.call.push(call);
            }
        }
        found
    };
    let (found, ()) = two_threads(cpus, waker, || bed.sleep(world, rounds))?;
    Ok(found)
}

/// Exchanges between two threads, or calls, in one sample.
pub(super) const EXCHANGES: u32 = 50;
/// Samples in one round.
pub(super) const SAMPLES: usize = 60;
/// None is begun any more after so long: where others want the CPU, too, each takes their turns on it.
const LONGEST_NS: u64 = 100_000_000;

/// From a waker's call to the woken thread's running on the same CPU, where the waker sleeps at
/// once: half of an exchange by futex, ns.
///
/// # Errors
/// No thread could be started.
pub fn hand_overs(world: &RealWorld, cpu: usize) -> Result<Vec<f64>, LabError> {
    /// In place of a round.
    const OVER: u32 = u32::MAX;
    let words = [AtomicU32::new(0), AtomicU32::new(0)];
    let all = SAMPLES as u32 * EXCHANGES;
    let wait = |word: &AtomicU32, round: u32| {
        while !matches!(word.load(Ordering::Acquire), found if found == round || found == OVER) {
            futex_wait(word, round - 1);
        }
    };
    let call = |word: &AtomicU32, round: u32| {
        // Release: pairs with the Acquire load of `wait`.
        word.store(round, Ordering::Release);
        futex_wake(word);
    };
    let leader = || {
        let mut samples = Vec::with_capacity(SAMPLES);
        let mut started = world.now();
        let end = started + LONGEST_NS;
        for round in 1..=all {
            call(&words[0], round);
            wait(&words[1], round);
            if round % EXCHANGES == 0 {
                let now = world.now();
                samples.push((now - started) as f64 / f64::from(2 * EXCHANGES));
                started = now;
                if now > end {
                    break;
                }
            }
        }
        call(&words[0], OVER);
        samples
    };
    let follower = || {
        for round in 1..=all {
            wait(&words[0], round);
            if words[0].load(Ordering::Relaxed) == OVER {
                break;
            }
            call(&words[1], round);
        }
    };
    Ok(two_threads((cpu, cpu), leader, follower)?.0)
}

/// A wake-up of a thread on the same CPU, as the waker pays for it, ns. What the woken thread does
/// if it takes the CPU at once is not the call: such samples are far above the median.
///
/// # Errors
/// No thread could be started.
pub fn calls_on_same_cpu(world: &RealWorld, cpu: usize) -> Result<Vec<f64>, LabError> {
    let bed = Bed::default();
    let rounds = 200;
    let waker = || {
        let mut calls = Vec::new();
        for round in 0..rounds {
            // The only CPU must go to the sleeper, by sleeping: a yield may not give it away.
            while bed.asleep.load(Ordering::Acquire) != round + 1 {
                world.sleep(20_000);
            }
            let called = world.now();
            bed.word.store(round + 1, Ordering::Release);
            let slept = futex_wake(&bed.word);
            let returned = world.now();
            // Not one of those whose sleeper had not got to sleep, or ran before the call returned.
            if slept && bed.awake.load(Ordering::Acquire) == round {
                calls.push((returned - called) as f64);
            }
        }
        calls
    };
    Ok(two_threads((cpu, cpu), waker, || bed.sleep(world, rounds))?.0)
}

/// Wakes nobody, ns.
pub fn calls_to_nobody(world: &RealWorld) -> Vec<f64> {
    let word = AtomicU32::new(0);
    time_calls(world, || {
        futex_wake(&word);
    })
}

/// Goes to sleep on a word that has changed already: the way into the kernel and back, ns.
pub fn failed_sleeps(world: &RealWorld) -> Vec<f64> {
    let word = AtomicU32::new(0);
    time_calls(world, || futex_wait(&word, 1))
}

/// Nanoseconds of one `call`, by samples of some each.
pub(super) fn time_calls(world: &RealWorld, call: impl Fn()) -> Vec<f64> {
    let end = world.now() + LONGEST_NS;
    let first = time_some_calls(world, &call);
    let others = (1..SAMPLES).take_while(|_| world.now() < end);
    iter::once(first).chain(others.map(|_| time_some_calls(world, &call))).collect()
}

/// One such sample.
pub(super) fn time_some_calls(world: &RealWorld, call: impl Fn()) -> f64 {
    let started = world.now();
    for _ in 0..EXCHANGES {
        call();
    }
    (world.now() - started) as f64 / f64::from(EXCHANGES)
}

/// Context switches between two threads that yield to each other on one CPU, without the call
/// itself, ns.
///
/// # Errors
/// No thread could be started.
pub fn switches(world: &RealWorld, cpu: usize) -> Result<Vec<f64>, LabError> {
    let over = AtomicBool::new(false);
    let alone = time_calls(world, thread::yield_now);
    let alone = alone.into_iter().reduce(f64::min).unwrap_or(0.0);
    let leader = || {
        let mut samples = Vec::with_capacity(SAMPLES);
        let count = || {
            let usage = thread_usage();
            usage.voluntary_switches + usage.involuntary_switches
        };
        let end = world.now() + LONGEST_NS;
        for _ in (0..SAMPLES).take_while(|_| world.now() < end) {
            let (before, started) = (count(), world.now());
            for _ in 0..EXCHANGES {
                thread::yield_now();
            }
            let (elapsed, away) = ((world.now() - started) as f64, count() - before);
            if away > 0 {
                // Each time away is two switches, and the other thread's call.
                let calls = f64::from(EXCHANGES) + away as f64;
                samples.push((elapsed - calls * alone) / (2 * away) as f64);
            }
        }
        over.store(true, Ordering::Relaxed);
        samples.retain(|&sample| sample > 0.0);
        samples
    };
    let follower = || {
        while !over.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    };
    Ok(two_threads((cpu, cpu), leader, follower)?.0)
}

/// How long one of two threads that both want `cpu` runs while the other waits, ns. Takes `ns`.
///
/// # Errors
/// No thread could be started.
pub fn slices(world: &RealWorld, cpu: usize, ns: u64) -> Result<Vec<f64>, LabError> {
    /// Shorter gaps are interrupts.
    const LEAST_SLICE_NS: u64 = 300_000;
    let end = world.now() + ns;
    let watch = || {
        let mut gaps = Vec::new();
        let mut last = world.now();
        while last < end {
            let now = world.now();
            if now - last > LEAST_SLICE_NS {
                gaps.push((now - last) as f64);
            }
            last = now;
        }
        gaps
    };
    let (first, second) = two_threads((cpu, cpu), watch, watch)?;
    Ok([first, second].concat())
}

/// The kernel's HZ: its coarse clock advances once a tick, and the kernel tells by how much.
pub fn ticks_per_second() -> Option<f64> {
    let mut step = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `step` is a valid place for the one timespec that the call fills in.
    let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut step) };
    let hz = (1e9 / step.tv_nsec as f64).round();
    (result == 0 && step.tv_sec == 0 && (10.0..=10_000.0).contains(&hz)).then_some(hz)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::cpus::Cpus;

    #[test]
    fn the_kernel_has_a_tick() {
        assert!(ticks_per_second().is_some_and(|hz| hz >= 100.0));
    }

    #[test]
    fn threads_on_one_cpu_sleep_wake_and_switch() {
        let world = RealWorld::new(false);
        let cpu = Cpus::here().list[0].number;
        // On a busy machine there are fewer.
        assert!((1..=SAMPLES).contains(&hand_overs(&world, cpu).unwrap().len()));
        calls_on_same_cpu(&world, cpu).unwrap();
        switches(&world, cpu).unwrap();
        slices(&world, cpu, 1_000_000).unwrap();
        assert!(failed_sleeps(&world).iter().chain(&calls_to_nobody(&world)).all(|&ns| ns > 0.0));
    }

    #[test]
    fn threads_on_two_cpus_wake_each_other() {
        let Some(cpus) = Cpus::here().two_cores() else { return };
        let found = wake_ups(&RealWorld::new(false), cpus, 10_000, 20).unwrap();
        assert_eq!(found.latency.len(), found.call.len());
    }
}
