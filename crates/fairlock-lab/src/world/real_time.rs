//! Real-time threads on this machine: SCHED_FIFO, all on one CPU, and never for longer than a run.
//!
//! A real-time thread that does not sleep keeps everybody of lower priority from its CPU, who tells it
//! to stop included. So
//! 1. the thread that ends a run has a priority above its workers' ([`Above`]);
//! 2. when it has told them to stop it makes all of them fair ([`Workers::release`]): whatever they
//!    still do or wait for, they share the CPU with each other and everybody else;
//! 3. nobody starts a thread while it is a real-time one, as threads inherit that.

use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::real::{allowed_cpus, pin_to};
use super::{FAIR, Priority};
use crate::error::LabError;

/// The kernel keeps this much of each second for others where nothing can be read.
const DEFAULT_SHARE: f64 = 0.95;
/// So near to the kernel's limit it may have held workers up: it looks at each period by itself.
const NEARLY: f64 = 0.98;

/// The real-time workers of a run.
#[derive(Default)]
pub(super) struct Workers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those that are real-time threads now.
    threads: Vec<libc::pid_t>,
    /// CPU time of those that are not any more, ns.
    used_ns: u64,
    refused: Option<io::Error>,
}

impl Workers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calling thread becomes one of them.
    pub(super) fn enter(&self, priority: Priority) {
        // The last CPU: the first one has most of the interrupts.
        if let Some(&cpu) = allowed_cpus().last() {
            pin_to(cpu);
        }
        let mut state = self.state();
        // SAFETY: a system call without arguments.
        let thread = unsafe { libc::gettid() };
        match set_priority(thread, priority) {
            Ok(()) => state.threads.push(thread),
            Err(error) => state.refused = Some(error),
        }
    }

    /// The calling thread has done its work.
    pub(super) fn leave(&self) {
        // SAFETY: a system call without arguments.
        let thread = unsafe { libc::gettid() };
        let mut state = self.state();
        let threads = state.threads.len();
        state.threads.retain(|&other| other != thread);
        if state.threads.len() < threads {
            state.used_ns += cpu_time_ns();
            make_fair(thread);
        }
    }

    /// # Errors
    /// If a worker could not become a real-time thread.
    pub(super) fn are_permitted(&self) -> Result<(), LabError> {
        self.state().refused.take().map_or(Ok(()), |source| Err(LabError::NoRealTime { source }))
    }

    /// Makes fair threads of all of them.
    ///
    /// # Errors
    /// If they used so much of the CPU that the kernel may have stopped them for that.
    pub(super) fn release(&self, elapsed_ns: u64) -> Result<(), LabError> {
        let mut state = self.state();
        let threads = std::mem::take(&mut state.threads);
        let running_ns: u64 = threads.iter().map(|&thread| cpu_time_of_ns(thread)).sum();
        for thread in threads {
            make_fair(thread);
        }
        let used = (state.used_ns + running_ns) as f64 / elapsed_ns.max(1) as f64;
        let limit = real_time_share();
        if used < limit * NEARLY { Ok(()) } else { Err(LabError::HeldUp { used, limit }) }
    }
}

/// Makes the calling thread a real-time one until it is dropped.
pub(super) struct Above(());

impl Above {
    /// # Errors
    /// If that is not permitted.
    pub(super) fn new(priority: Priority) -> Result<Above, LabError> {
        match set_priority(0, priority) {
            Ok(()) => Ok(Above(())),
            Err(source) => Err(LabError::NoRealTime { source }),
        }
    }
}

impl Drop for Above {
    fn drop(&mut self) {
        make_fair(0);
    }
}

/// Whether threads here may have real-time priorities up to this one; tries it on a thread.
///
/// # Errors
/// [`LabError::NoRealTime`], which says what to do.
pub fn probe_real_time(priority: Priority) -> Result<(), LabError> {
    let tried = thread::spawn(move || Above::new(priority).map(drop)).join();
    tried.unwrap_or_else(|_| Err(LabError::Panicked("a thread that tried a priority".to_string())))
}

/// The part of a CPU that the kernel leaves to real-time threads.
fn real_time_share() -> f64 {
    let read = |name: &str| -> Option<f64> {
        fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
    };
    match (read("sched_rt_runtime_us"), read("sched_rt_period_us")) {
        (Some(runtime), _) if runtime < 0.0 => f64::INFINITY,
        (Some(runtime), Some(period)) => runtime / period,
        _ => DEFAULT_SHARE,
    }
}

/// `thread` 0 is the calling one.
fn set_priority(thread: libc::pid_t, priority: Priority) -> io::Result<()> {
    let policy = if priority == FAIR { libc::SCHED_OTHER } else { libc::SCHED_FIFO };
    let parameter = libc::sched_param { sched_priority: priority.into() };
    // SAFETY: `parameter` is valid for the call, which keeps no pointer to it.
    match unsafe { libc::sched_setscheduler(thread, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Always permitted; fails only if there is no such thread any more.
fn make_fair(thread: libc::pid_t) {
    let _ = set_priority(thread, FAIR);
}

/// CPU time of the calling thread, ns.
fn cpu_time_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of a thread of this process, ns; 0 if it has ended.
fn cpu_time_of_ns(thread: libc::pid_t) -> u64 {
    // As the kernel numbers the CPU clocks of threads: `(!thread << 3) | CPUCLOCK_PERTHREAD |
    // CPUCLOCK_SCHED`, what `pthread_getcpuclockid` answers.
    clock_ns((!thread << 3) | 6)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RealWorld, Window, Worker, World};
    use super::*;

    fn policy() -> libc::c_int {
        // SAFETY: asks for the calling thread's.
        unsafe { libc::sched_getscheduler(0) }
    }

    /// Where it is not permitted, this says so and there is nothing to test.
    fn is_permitted() -> bool {
        probe_real_time(3).inspect_err(|error| eprintln!("left out: {error}")).is_ok()
    }

    #[test]
    fn workers_are_what_they_were_to_be_and_the_caller_is_fair_again() {
        let world = RealWorld::new(false);
        let worker = |_| Box::new(policy) as Worker<'_, libc::c_int>;
        let workers = [2, FAIR, 1].map(|priority| (priority, worker(priority)));
        if !is_permitted() {
            let error = world
                .run_by_priority(Window::FromTheStart(1_000_000), &|| false, workers.into())
                .unwrap_err();
            assert!(error.to_string().contains("ulimit -r"), "{error}");
            return;
        }
        let run = world
            .run_by_priority(Window::FromTheStart(1_000_000), &|| false, workers.into())
            .unwrap();
        let policies: Vec<_> = run.workers.iter().map(|worker| worker.output).collect();
        assert_eq!(policies, [libc::SCHED_FIFO, libc::SCHED_OTHER, libc::SCHED_FIFO]);
        assert_eq!(policy(), libc::SCHED_OTHER);
    }

    #[test]
    fn a_worker_that_never_sleeps_is_told_to_stop_and_reported() {
        if !is_permitted() {
            return;
        }
        let spins = || {
            let world = RealWorld::new(false);
            let spin: Worker<'_, ()> = Box::new(|| {
                while world.running() {
                    std::hint::spin_loop();
                }
            });
            world.run_by_priority(Window::FromTheStart(50_000_000), &|| false, vec![(1, spin)])
        };
        // Others may have had the CPU: a real-time thread of another process, or another machine on the same one.
        let error = (0..20).find_map(|_| spins().err()).expect("it has the CPU for itself");
        assert!(matches!(error, LabError::HeldUp { .. }), "{error}");
    }
}
