//! The machine we are on: OS threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use fairlock_report::row::HERE;

use super::clock::Clock;
use super::real_time::{self, Workers};
use super::{FAIR, Finished, Priority, Run, Usage, Window, Worker, World};

use crate::error::LabError;

/// How often a run looks whether it was cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(20);
/// For [`RealWorld::measured_since`]: measuring has not begun.
const NOT_YET: u64 = u64::MAX;

/// OS threads on this machine.
///
/// The clock is the processor's counter where it runs at one rate (12 ns a read against 21 ns for
/// `clock_gettime` where this was measured) and the monotonic clock elsewhere.
pub struct RealWorld {
    clock: Clock,
    pinned_to: Option<Vec<usize>>,
    running: CachePadded<AtomicBool>,
    measured_since: AtomicU64,
    /// Waits for the end of the run, which is not known before measuring begins.
    waiting: Mutex<Option<Thread>>,
}

impl RealWorld {
    /// This machine; with `pinned`, worker *i* stays on the *i*-th CPU this process may use,
    /// round robin.
    pub fn new(pinned: bool) -> RealWorld {
        RealWorld {
            clock: Clock::new(),
            pinned_to: pinned.then(allowed_cpus),
            running: CachePadded::new(AtomicBool::new(false)),
            measured_since: AtomicU64::new(NOT_YET),
            waiting: Mutex::new(None),
        }
    }

    fn enter_worker(&self, index: usize) {
        set_timer_slack_to_minimum();
        if let Some(cpus) = &self.pinned_to
            && !cpus.is_empty()
        {
            pin_to(cpus[index % cpus.len()]);
        }
    }

    /// Until so much was measured, or until somebody stops the run or cancels it.
    fn wait_for_the_end(&self, duration_ns: u64, cancelled: &dyn Fn() -> bool) {
        while self.running() && !cancelled() {
            let left = self.measured_since().map_or(u64::MAX, |since| {
                since.saturating_add(duration_ns).saturating_sub(self.now())
            });
            if left == 0 {
                break;
            }
            // `begin_measuring` cuts it short.
            thread::park_timeout(CANCEL_POLL.min(Duration::from_nanos(left)));
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Thread>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a worker's thread does; None if it was sent home.
fn work<T>(
    priority: Priority,
    worker: Worker<'_, T>,
    gate: &StartGate,
    real_time: &Workers,
) -> Option<Finished<T>> {
    if priority != FAIR {
        real_time.enter(priority);
    }
    if !gate.wait() {
        return None;
    }
    let before = thread_usage();
    let output = worker();
    let usage = thread_usage() - before;
    if priority != FAIR {
        real_time.leave();
    }
    Some(Finished { output, usage })
}

/// Waits for all of them, also after one has panicked.
fn join<T>(
    handles: Vec<thread::ScopedJoinHandle<'_, Option<Finished<T>>>>,
) -> Result<Vec<Finished<T>>, LabError> {
    let mut workers = Vec::with_capacity(handles.len());
    let mut panicked = None;
    for handle in handles {
        match handle.join() {
            Ok(finished) => workers.extend(finished),
            Err(payload) => panicked = Some(panic_message(payload.as_ref())),
        }
    }
    match panicked {
        Some(message) => Err(LabError::Panicked(message)),
        None => Ok(workers),
    }
}

/// Holds the workers back until all of them exist, or sends them home if one could not start.
#[derive(Default)]
struct StartGate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    ready: usize,
    /// `Some(true)`: go; `Some(false)`: go home.
    verdict: Option<bool>,
}

impl StartGate {
    /// Called by a worker: waits for the verdict.
    fn wait(&self) -> bool {
        let mut state = self.state.lock().expect("nobody panics at the gate");
        state.ready += 1;
        self.changed.notify_all();
        loop {
            if let Some(go) = state.verdict {
                return go;
            }
            state = self.changed.wait(state).expect("nobody panics at the gate");
        }
    }

    fn wait_until_ready(&self, workers: usize) {
        let mut state = self.state.lock().expect("nobody panics at the gate");
        while state.ready < workers {
            state = self.changed.wait(state).expect("nobody panics at the gate");
        }
    }

    fn open(&self, go: bool) {
        self.state.lock().expect("nobody panics at the gate").verdict = Some(go);
        self.changed.notify_all();
    }
}

impl World for RealWorld {
    fn name(&self) -> &str {
        HERE
    }

    fn run_by_priority<T: Send>(
        &self,
        window: Window,
        cancelled: &dyn Fn() -> bool,
        workers: Vec<(Priority, Worker<'_, T>)>,
    ) -> Result<Run<T>, LabError> {
        let gate = StartGate::default();
        let count = workers.len();
        let highest = workers.iter().map(|(priority, _)| *priority).max().unwrap_or(FAIR);
        let shares_a_cpu = workers.iter().all(|(priority, _)| *priority != FAIR);
        let real_time = Workers::default();
        self.running.store(true, Ordering::Relaxed);
        thread::scope(|scope| {
            let mut handles = Vec::with_capacity(count);
            for (index, (priority, worker)) in workers.into_iter().enumerate() {
                let (gate, real_time) = (&gate, &real_time);
                let spawned = thread::Builder::new()
                    .name(format!("worker-{index}"))
                    .stack_size(256 * 1024)
                    .spawn_scoped(scope, move || {
                        self.enter_worker(index);
                        work(priority, worker, gate, real_time)
                    });
                match spawned {
                    Ok(handle) => handles.push(handle),
                    Err(source) => {
                        gate.open(false);
                        return Err(LabError::io(
                            format!("start thread {} of {count}", index + 1),
                            source,
                        ));
                    }
                }
            }
            gate.wait_until_ready(count);
            if let Err(error) = real_time.are_permitted() {
                gate.open(false);
                return Err(error);
            }
            // Above all workers, so that they are told to stop whatever they do.
            let above = match highest {
                FAIR => None,
                highest => match real_time::Above::new(highest + 1) {
                    Ok(above) => Some(above),
                    Err(error) => {
                        gate.open(false);
                        return Err(error);
                    }
                },
            };

            *self.waiting() = Some(thread::current());
            let started = self.now();
            let since = match window {
                Window::FromTheStart(_) => started,
                Window::OnceArrived(_) => NOT_YET,
            };
            self.measured_since.store(since, Ordering::Relaxed);
            gate.open(true);
            self.wait_for_the_end(window.duration_ns(), cancelled);
            self.stop();
            let stopped = self.now();
            // A run that was stopped before has measured nothing.
            let since = self.measured_since().unwrap_or(stopped);
            // Two CPUs' time stamp counters may differ by a few ticks.
            let elapsed_ns = stopped.saturating_sub(since).max(1);
            let held_up = real_time.release(elapsed_ns);
            drop(above);

            let workers = join(handles);
            let ended_ns = (self.now() - started).max(1);
            let cpus_ns = if shares_a_cpu { ended_ns } else { of_all_cpus(ended_ns) };
            let workers = workers?;
            held_up?;
            Ok(Run { elapsed_ns, counted_ns: ended_ns, cpus_ns, workers, simulated: None })
        })
    }

    fn begin_measuring(&self) {
        // Relaxed, also where it is read: the moment publishes nothing.
        self.measured_since.store(self.now(), Ordering::Relaxed);
        if let Some(waiting) = &*self.waiting() {
            waiting.unpark();
        }
    }

    fn measured_since(&self) -> Option<u64> {
        Some(self.measured_since.load(Ordering::Relaxed)).filter(|&since| since != NOT_YET)
    }

    #[inline]
    fn running(&self) -> bool {
        // Relaxed: the flag publishes nothing, joining the threads does.
        self.running.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.running.store(false, Ordering::Relaxed);
    }

    #[inline]
    fn now(&self) -> u64 {
        self.clock.now()
    }

    #[inline]
    fn compute(&self, pauses: u32) {
        for _ in 0..pauses {
            std::hint::spin_loop();
        }
    }

    #[inline]
    fn work(&self, ns: u64) -> u64 {
        let pause_ns = self.pause_ns();
        let pauses = (ns as f64 / pause_ns) as u32;
        self.compute(pauses);
        ns.saturating_sub((f64::from(pauses) * pause_ns) as u64)
    }

    fn sleep(&self, ns: u64) {
        thread::sleep(Duration::from_nanos(ns));
    }

    fn stay(&self, index: usize) {
        let cpus = allowed_cpus();
        if !cpus.is_empty() {
            pin_to(cpus[index % cpus.len()]);
        }
    }

    fn cpus(&self) -> usize {
        allowed_cpus().len().max(1)
    }

    fn pause_ns(&self) -> f64 {
        pause_ns()
    }
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| payload.downcast_ref::<&str>().map(|text| text.to_string()))
        .unwrap_or_else(|| "no message".to_string())
}

/// How long one PAUSE takes on this machine, ns; measured once per process (about 15 ms).
///
/// A busy neighbour can only make a PAUSE look longer, within a round its median shrugs off
/// single preemptions and over the rounds the smallest median is the least disturbed one.
pub fn pause_ns() -> f64 {
    const ROUNDS: usize = 7;
    const SAMPLES: usize = 101;
    const PAUSES: u32 = 1000;
    static PAUSE_NS: OnceLock<f64> = OnceLock::new();
    *PAUSE_NS.get_or_init(|| {
        let world = RealWorld::new(false);
        let median_of_round = |_| {
            let mut samples: Vec<u64> = (0..SAMPLES)
                .map(|_| {
                    let started = world.now();
                    world.compute(PAUSES);
                    world.now() - started
                })
                .collect();
            samples.sort_unstable();
            samples[SAMPLES / 2]
        };
        let best = (0..ROUNDS).map(median_of_round).min().unwrap_or(1);
        best.max(1) as f64 / f64::from(PAUSES)
    })
}

/// Without this a 20 µs sleep takes 70 µs: the kernel may round a timer up by its slack.
pub(crate) fn set_timer_slack_to_minimum() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches only the calling thread's slack.
    // It cannot fail for a positive value.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// What the calling thread used since it began.
pub(crate) fn thread_usage() -> Usage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a valid place for the one rusage that the call fills in.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    assert_eq!(result, 0, "getrusage(RUSAGE_THREAD) only fails on a bad pointer");
    // SAFETY: zeroed above (all-zero is a valid rusage) and filled by the call.
    let usage = unsafe { usage.assume_init() };
    Usage::of(&usage)
}

impl Usage {
    /// As the kernel counts for a thread or a process.
    pub(crate) fn of(usage: &libc::rusage) -> Usage {
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        Usage {
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
            user_ns: ns(usage.ru_utime),
            system_ns: ns(usage.ru_stime),
        }
    }
}

/// Time of all CPUs together that this process may run on, ns, over a time of `ns`.
pub(crate) fn of_all_cpus(ns: u64) -> u64 {
    ns * allowed_cpus().len().max(1) as u64
}

/// The CPUs this process may run on, ascending.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    // SAFETY: all-zero is the empty CPU set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = std::mem::size_of::<libc::cpu_set_t>();
    // SAFETY: `set` is valid for writes of `size` bytes.
    if unsafe { libc::sched_getaffinity(0, size, &mut set) } != 0 {
        return Vec::new();
    }
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below CPU_SETSIZE, so inside the set.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
}

/// Best effort: a CPU that went away leaves the thread unpinned.
pub(crate) fn pin_to(cpu: usize) {
    // SAFETY: all-zero is the empty CPU set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` comes from `allowed_cpus`, so it is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is valid for reads of its size; 0 is the calling thread.
    unsafe { libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn workers_start_together_and_come_back_in_order() {
        let world = RealWorld::new(true);
        let present = AtomicU32::new(0);
        let workers: Vec<Worker<'_, usize>> = (0..3_usize)
            .map(|index| {
                let (world, present) = (&world, &present);
                Box::new(move || {
                    present.fetch_add(1, Ordering::Relaxed);
                    while present.load(Ordering::Relaxed) < 3 {
                        world.sleep(10_000);
                    }
                    world.stop();
                    index
                }) as Worker<'_, usize>
            })
            .collect();
        let run = world.run(u64::MAX / 4, &|| false, workers).unwrap();
        let outputs: Vec<usize> = run.workers.iter().map(|worker| worker.output).collect();
        assert_eq!(outputs, [0, 1, 2]);
        assert!(!world.running());
    }

    #[test]
    fn a_workers_cpu_time_is_part_of_that_of_the_cpus() {
        let world = RealWorld::new(false);
        let of = |usage: Usage| usage.user_ns + usage.system_ns;
        let worker: Worker<'_, u64> = Box::new(|| {
            let before = thread_usage();
            // The kernel may count in its clock's ticks.
            while of(thread_usage() - before) == 0 {
                world.compute(1000);
            }
            world.stop();
            of(thread_usage() - before)
        });
        let run = world.run(u64::MAX / 4, &|| false, vec![worker]).unwrap();
        let worker = &run.workers[0];
        assert!(of(worker.usage) >= worker.output && run.cpus_ns >= run.elapsed_ns);
    }

    #[test]
    fn cancelling_ends_a_run() {
        let world = RealWorld::new(false);
        let worker: Worker<'_, ()> = Box::new(|| {
            while world.running() {
                world.sleep(100_000);
            }
        });
        world.run(u64::MAX / 4, &|| true, vec![worker]).unwrap();
    }

    #[test]
    fn what_comes_before_measuring_begins_is_not_measured() {
        let world = RealWorld::new(false);
        let worker: Worker<'_, ()> = Box::new(|| {
            assert_eq!(world.measured_since(), None);
            world.sleep(1_000_000);
            world.begin_measuring();
            assert!(world.measured_since().is_some());
            while world.running() {
                world.sleep(100_000);
            }
        });
        let window = Window::OnceArrived(2_000_000);
        let run = world.run_by_priority(window, &|| false, vec![(FAIR, worker)]).unwrap();
        assert!(
            run.counted_ns >= run.elapsed_ns + 1_000_000 && run.elapsed_ns >= 2_000_000,
            "{run:?}"
        );
    }

    #[test]
    fn a_run_that_is_cancelled_before_measuring_begins_ends() {
        let world = RealWorld::new(false);
        let worker: Worker<'_, ()> = Box::new(|| {
            while world.running() {
                world.sleep(100_000);
            }
        });
        let window = Window::OnceArrived(u64::MAX / 4);
        let run = world.run_by_priority(window, &|| true, vec![(FAIR, worker)]).unwrap();
        assert_eq!(run.elapsed_ns, 1);
    }

    #[test]
    fn a_panicking_worker_is_an_error() {
        let world = RealWorld::new(false);
        let worker: Worker<'_, ()> = Box::new(|| panic!("torn"));
        let error = world.run(1_000_000, &|| false, vec![worker]).unwrap_err();
        assert!(error.to_string().contains("torn"), "{error}");
    }

    #[test]
    fn a_pause_takes_time() {
        assert!(pause_ns() > 0.0);
    }
}
