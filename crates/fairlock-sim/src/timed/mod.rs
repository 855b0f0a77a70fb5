//! The machine on which operations take time.

mod cpus;
mod device;
mod engine;
mod events;
mod lines;
mod memory;
mod random;
mod timeline;
mod unpreempted;

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering;

use fairlock::events::Counters;
use fairlock::platform::{Tunable, WAKE_LATENCY_AT_FIRST, smoothed_wake_latency};

use self::engine::Engine;
use self::lines::Access;
pub use self::unpreempted::Unpreempted;
use crate::fiber::{self, Fiber, Progress};
use crate::platform::{Backend, Word, begin_process};
use crate::profile::Profile;
use crate::tuning::{self, Tuning};

/// The scheduler that runs whoever is due next.
#[derive(Debug, Clone, Copy)]
pub struct Timed;

/// How to run.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    /// The machine.
    pub profile: &'a Profile,
    /// Decides everything that is random.
    pub seed: u64,
    /// Whether threads stay on the CPU that they begin on
    /// ([`Placement`](crate::profile::Placement)).
    pub pinned: bool,
    /// Keep the first so many nanoseconds as a [`Timeline`].
    pub timeline_ns: u64,
    /// Other values for some of the locks' constants.
    pub tuning: Option<&'a Tuning>,
}

/// One simulated thread.
pub struct Thread<'a> {
    /// What it does.
    pub body: Box<dyn FnOnce() + 'a>,
    /// A real-time priority (1 to 99, SCHED_FIFO), or 0 for the fair class.
    pub priority: u8,
}

/// What a thread does, for the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Uses its CPU.
    Runs,
    /// Uses its CPU to wait for a word to change.
    Spins,
    /// Sleeps until it is woken or for a time.
    Sleeps,
    /// Would run, and has no CPU.
    Ready,
}

/// Something that happened at a moment or over a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// A thread's activity.
    Activity(Activity),
    /// It was woken by another thread.
    Woken {
        /// By whom.
        by: u32,
    },
    /// What the workload said about itself: `wait write`, `hold read`.
    Mark(&'static str),
}

/// One entry of a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The thread.
    pub thread: u32,
    /// Its CPU.
    pub cpu: u32,
    /// Since when, ns from the start.
    pub from_ns: u64,
    /// Until when; the same for a moment.
    pub to_ns: u64,
    /// What.
    pub what: Happening,
}

/// Who did what when, in the order of their ends.
pub type Timeline = Vec<Span>;

/// One thread's part of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadReport {
    /// It went to sleep or yielded.
    pub voluntary_switches: u64,
    /// It was preempted.
    pub involuntary_switches: u64,
    /// It continued on another CPU.
    pub migrations: u64,
    /// CPU time of its own, ns: its operations, computations and spins. What it touches in memory while
    /// it goes to sleep counts here, too.
    pub user_ns: u64,
    /// CPU time of the kernel for it, ns: switches to it and migrations, its calls to sleep, wake, yield
    /// or interrupt all CPUs, and the interrupts that it suffered.
    pub system_ns: u64,
    /// The part of `user_ns` in which it looked away from a word until that changed.
    pub spinning_ns: u64,
}

/// Exact counts over all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines that moved between CPUs, or came from memory.
    pub transfers: u64,
    /// Writes to a line that was not this CPU's alone.
    pub shared_writes: u64,
    /// Copies that a write invalidated.
    pub invalidations: u64,
    /// Wake-ups of a sleeping thread.
    pub wakeups: u64,
    /// Context switches.
    pub switches: u64,
    /// Steps that the simulator took.
    pub events: u64,
}

macro_rules! since {
    ($name:ident: $($field:ident)*) => {
        impl $name {
            fn since(&self, begin: &$name) -> $name {
                $name { $($field: self.$field.saturating_sub(begin.$field)),* }
            }
        }
    };
}

since!(ThreadReport: voluntary_switches involuntary_switches migrations user_ns system_ns spinning_ns);
since!(Counts: transfers shared_writes invalidations wakeups switches events);

/// What a run left behind.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// When the last thread ended, ns.
    pub elapsed_ns: u64,
    /// For how long threads' reports and counts count, ns: all of it, unless somebody said otherwise by
    /// [`begin_counting`] or [`end_counting`].
    pub counted_ns: u64,
    /// How many CPUs the machine has. What of their time is neither `user_ns` nor `system_ns` of a thread
    /// was idle; so is a CPU that wakes up from that.
    pub cpus: u32,
    /// In the order of the threads.
    pub threads: Vec<ThreadReport>,
    /// Over all threads.
    pub counts: Counts,
    /// Empty unless asked for.
    pub timeline: Timeline,
}

/// Why a run has no report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Threads remain and nothing will ever happen: what each waits for.
    Deadlock(Vec<String>),
    /// A thread panicked with this message.
    Panicked(String),
}

/// Picoseconds: a cached load takes 0.3 ns on some machines.
type Ps = u64;

fn ps(ns: f64) -> Ps {
    (ns * 1e3).round() as Ps
}

/// Runs begin at this moment of the locks' clock: zero means "never" to some of them.
const ORIGIN: Ps = 1_000_000_000_000;

thread_local! {
    /// Of the run under way on this real thread; null outside.
    static ENGINE: Cell<*mut Engine> = const { Cell::new(ptr::null_mut()) };
    /// The locks' clock outside a run. Only spins let it go on, so that each of them ends.
    static OUTSIDE: Cell<Ps> = const { Cell::new(ORIGIN) };
}

/// Whether a simulated thread is running.
#[inline(always)]
fn is_running() -> bool {
    !ENGINE.get().is_null()
}

/// The engine of the run under way.
#[inline(always)]
fn with<R>(act: impl FnOnce(&mut Engine) -> R) -> R {
    // SAFETY: not null, which callers have checked, means that `run` is below on this real thread's
    // stack and keeps the engine alive. Nobody else refers to it meanwhile: `act` neither
    // suspends nor calls back here.
    act(unsafe { &mut *ENGINE.get() })
}

/// Lets a simulated thread act, and suspends it if the engine says so.
#[inline(always)]
fn act(act: impl FnOnce(&mut Engine) -> bool) {
    if with(act) {
        fiber::suspend();
    }
}

/// How many steps are taken between two looks at `interrupted`.
const STEPS_PER_LOOK: u32 = 4096;

/// Runs threads on a simulated machine until all have ended. `interrupted` is asked now and then,
/// in real time; if it says true, `stop` is called once and the threads are to end by themselves.
///
/// # Errors
/// A deadlock, or a thread that panicked.
///
/// # Panics
/// If called by a simulated thread.
///
/// # Example
/// ```
/// use fairlock_sim::profile::Profile;
/// use fairlock_sim::timed::{self, Setup, Thread};
/// let profile = Profile::example();
/// let setup = Setup { profile: &profile, seed: 1, pinned: false, timeline_ns: 0, tuning: None };
/// let thread = || Thread { body: Box::new(|| timed::sleep(5_000)), priority: 0 };
/// let report = timed::run(&setup, vec![thread(), thread()], &|| false, &|| ()).unwrap();
/// assert!(report.elapsed_ns >= 5_000);
/// ```
pub fn run(
    setup: &Setup<'_>,
    threads: Vec<Thread<'_>>,
    interrupted: &dyn Fn() -> bool,
    stop: &dyn Fn(),
) -> Result<Report, Failure> {
    assert!(!is_running(), "a simulated thread cannot simulate");
    begin_process();
    let _freed_memory = memory::UntilTheEnd;
    let _tuning = tuning::begin(setup.tuning);
    let priorities: Vec<u8> = threads.iter().map(|thread| thread.priority).collect();
    let mut engine = Engine::new(setup, &priorities);
    let mut fibers: Vec<Fiber> = threads
        .into_iter()
        // SAFETY: the fibers are dropped when this function returns, and what the bodies borrow
        // outlives its arguments.
        .map(|thread| unsafe { Fiber::new(thread.body) })
        .collect();
    engine.set_stacks(fibers.iter().map(Fiber::stack));
    OUTSIDE.set(ORIGIN);
    let engine_pointer = &raw mut engine;
    /// Also when a panic passes.
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            ENGINE.set(ptr::null_mut());
        }
    }
    let leave = Leave;
    let mut steps = 0;
    let mut was_interrupted = false;
    let result = loop {
        // SAFETY: no fiber runs, so nobody else refers to the engine.
        let engine = unsafe { &mut *engine_pointer };
        if engine.alive == 0 {
            break Ok(());
        }
        steps += 1;
        if steps % STEPS_PER_LOOK == 0 && !was_interrupted && interrupted() {
            was_interrupted = true;
            stop();
        }
        let thread = match engine.next() {
            None => break Err(Failure::Deadlock(engine.waits())),
            Some(None) => continue,
            Some(Some(thread)) => thread,
        };
        ENGINE.set(engine_pointer);
        let progress = fibers[thread as usize].resume();
        ENGINE.set(ptr::null_mut());
        match progress {
            Progress::Suspended => {}
            // SAFETY: the engine outlives its fibers, none of which runs now.
            Progress::Done => unsafe { (*engine_pointer).ended(thread) },
            Progress::Panicked(payload) => {
                break Err(Failure::Panicked(fiber::panic_message(&*payload)));
            }
        }
    };
    drop(leave);
    drop(fibers);
    result.map(|()| engine.report())
}

/// Nanoseconds since the start of the run; free of cost. 0 outside a run.
#[inline]
pub fn now() -> u64 {
    if is_running() { with(|engine| engine.now - ORIGIN) / 1000 } else { 0 }
}

/// As [`now`], at the cost of a look at the clock by the lab
/// ([`observe_ns`](crate::profile::Costs::observe_ns)).
#[inline]
pub fn observe() -> u64 {
    if is_running() {
        act(Engine::spend_observe);
    }
    now()
}

/// Keeps this thread's CPU for so many PAUSEs. Nothing outside a run, as all that follow.
pub fn compute(pauses: u32) {
    if is_running() {
        act(|engine| engine.compute(pauses));
    }
}

/// As [`compute`], for what is known in nanoseconds of a CPU whose sibling is idle.
pub fn work(ns: u64) {
    if is_running() {
        act(|engine| engine.work(ns.saturating_mul(1000)));
    }
}

/// Gives the CPU away for `ns`.
pub fn sleep(ns: u64) {
    if is_running() {
        act(Engine::spend_sleep);
        act(|engine| {
            engine.sleep_until(engine.now.saturating_add(ns.saturating_mul(1000)));
            true
        });
    }
}

/// The number of the calling thread within its run; none outside.
pub fn thread() -> Option<usize> {
    is_running().then(|| with(|engine| engine.running()))
}

/// A thread's real-time priority, 0 in the fair class and outside a run.
pub fn priority(thread: usize) -> u8 {
    if is_running() { with(|engine| engine.priority(thread)) } else { 0 }
}

/// Gives a thread of this run another priority, as a lock that knows of priorities does for its
/// holder. Costs nothing by itself; who calls it is in the kernel already.
///
/// # Panics
/// If there is no such thread.
pub fn set_priority(thread: usize, priority: u8) {
    if is_running() {
        act(|engine| {
            engine.set_priority(thread, priority);
            // A moment, at whose end the caller gives the CPU away if that is due.
            engine.spend(1)
        });
    }
}

/// Sleeps for as long as the disk takes.
pub fn transfer(write: bool, bytes: u64) {
    if is_running() {
        act(Engine::spend_sleep);
        loop {
            let accepted = with(|engine| engine.transfer(write, bytes));
            fiber::suspend();
            if accepted {
                break;
            }
        }
    }
}

/// Says what this thread does from now on, for the timeline; an empty text ends it.
#[inline]
pub fn mark(what: &'static str) {
    if is_running() {
        with(|engine| engine.mark(what));
    }
}

/// The thread stays on the CPU where it is from now on, as [`Setup::pinned`] does for all.
pub fn stay() {
    if is_running() {
        with(Engine::stay);
    }
}

// ---- what a kernel knows and may do; free of cost ----

/// The calling thread keeps its CPU until it has called [`allow_preemption`] as often.
pub fn forbid_preemption() {
    if is_running() {
        with(Engine::forbid_preemption);
    }
}

/// Takes one [`forbid_preemption`] back.
pub fn allow_preemption() {
    if is_running() {
        with(Engine::allow_preemption);
    }
}

/// Whether another thread should have the calling thread's CPU.
pub fn is_to_yield() -> bool {
    is_running() && with(|engine| engine.is_to_yield())
}

/// Whether a thread has a CPU and is past the switch to it.
pub fn is_on_cpu(thread: usize) -> bool {
    is_running() && with(|engine| engine.is_on_cpu(thread))
}

/// Timer ticks since the start of the run.
pub fn ticks() -> u64 {
    if is_running() { with(|engine| engine.ticks(engine.now - ORIGIN)) } else { 0 }
}

/// How many ticks begin within `ns`, at least one.
pub fn ticks_in(ns: u64) -> u64 {
    if is_running() { with(|engine| engine.ticks(ns.saturating_mul(1000))).max(1) } else { 1 }
}

/// What has happened until now is left out of the run's [counts](Report::counts) and of what is reported of its
/// threads; outside a run nothing.
pub fn begin_counting() {
    if is_running() {
        with(Engine::begin_counting);
    }
}

/// What happens from now on is left out; the first call counts. Outside a run nothing.
pub fn end_counting() {
    if is_running() {
        with(Engine::end_counting);
    }
}

/// An access to the line of data that has no place in this program's memory: anything that a kernel keeps.
pub fn touch(address: usize, write: bool) {
    Timed::touch(address, write);
}

/// Does something more in the step of the operation just done: nobody acts in between, and it costs nothing. For
/// what a CPU does in one operation and a [`Platform`](fairlock::platform::Platform) in two.
pub fn in_the_same_step<R>(act: impl FnOnce() -> R) -> R {
    Timed::quietly(act)
}

/// One turn of a spin that looks at more than words: it also ends after `ns`.
pub fn relax_for(ns: u64) {
    if is_running() {
        let until = with(|engine| engine.now).saturating_add(ns.saturating_mul(1000));
        act(|engine| engine.relax(Some(until)));
        with(Engine::unwatch);
    }
}

/// A moment of the locks' clock.
fn moment(ns: u64) -> Ps {
    ns.saturating_mul(1000)
}

// SAFETY: one simulated thread runs at a time, and an operation is one step of the engine, in one order for all.
unsafe impl Backend for Timed {
    type Counters = Counters;
    #[inline]
    fn load<W: Word>(word: &W, _order: Ordering) -> u64 {
        if is_running() {
            act(|engine| engine.access(word.address(), Access::Load));
            with(|engine| engine.note_read(word.address()));
        }
        word.get()
    }

    #[inline]
    fn store<W: Word>(word: &W, bits: u64, _order: Ordering) {
        if is_running() {
            act(|engine| engine.access(word.address(), Access::Store));
            with(|engine| engine.note_write(word.address()));
        }
        word.set(bits);
    }

    #[inline]
    fn update<W: Word>(word: &W, change: impl Fn(u64) -> Option<u64>) -> u64 {
        if is_running() {
            act(|engine| engine.access(word.address(), Access::Update));
            // A compare-exchange that fails has taken the line, too.
            with(|engine| {
                engine.note_write(word.address());
                engine.note_read(word.address());
            });
        }
        let old = word.get();
        if let Some(new) = change(old) {
            word.set(new);
        }
        old
    }

    #[inline]
    fn gone<W: Word>(word: &W) {
        if is_running() {
            with(|engine| engine.gone(word.address()));
        }
    }

    fn touch(address: usize, write: bool) {
        if is_running() {
            let access = if write { Access::Store } else { Access::Load };
            act(|engine| engine.access(address, access));
            if write {
                with(|engine| engine.note_write(address));
            }
        }
    }

    fn park<W: Word>(word: &W, expected: u64, deadline: Option<u64>) {
        assert!(is_running(), "nobody would wake a thread outside a run");
        act(Engine::spend_way_in);
        let deadline = deadline.map(moment);
        let changed = Self::load(word, Ordering::Relaxed) != expected;
        if changed || deadline.is_some_and(|deadline| deadline <= with(|engine| engine.now)) {
            return act(Engine::spend_way_back);
        }
        with(|engine| engine.park(word.address()));
        act(Engine::spend_rest_of_sleep);
        act(|engine| engine.sleep_if_parked(deadline));
    }

    fn unpark(address: usize, most: u32) -> u32 {
        if !is_running() {
            return 0;
        }
        act(Engine::spend_wake_nobody);
        // One call wakes those that are there now, one after the other, and nobody who comes back meanwhile.
        let woken = with(|engine| engine.parked_at(address)).min(most);
        for _ in 0..woken {
            if let Some(cpus) = with(|engine| engine.unpark(address)) {
                act(|engine| engine.spend_wake(cpus));
            }
        }
        woken
    }

    fn relax(until: Option<u64>) -> bool {
        let until = until.map(moment);
        if !is_running() {
            OUTSIDE.set(until.unwrap_or(0).max(OUTSIDE.get() + 1000));
            return until.is_some();
        }
        act(|engine| engine.relax(until));
        with(|engine| {
            engine.unwatch();
            until.is_some_and(|until| until <= engine.now)
        })
    }

    fn relax_turns(turns: u32) -> u32 {
        if !is_running() {
            return 1;
        }
        let (begins, turn) = with(|engine| (engine.now, engine.pause()));
        act(|engine| engine.relax(Some(begins + turn * u64::from(turns))));
        with(|engine| {
            engine.unwatch();
            let passed = (engine.now - begins) / turn;
            u32::try_from(passed).unwrap_or(turns).clamp(1, turns.max(1))
        })
    }

    fn give_way(attempt: u32) {
        if is_running() {
            act(|engine| engine.give_way(attempt));
        }
    }

    fn turn() -> u32 {
        if is_running() { with(Engine::turn) } else { 1 }
    }

    fn now() -> u64 {
        if !is_running() {
            return OUTSIDE.get() / 1000;
        }
        act(Engine::spend_clock);
        with(|engine| engine.now) / 1000
    }

    fn wake_latency() -> u32 {
        if is_running() { with(|engine| engine.wake_latency) } else { WAKE_LATENCY_AT_FIRST }
    }

    fn note_wake_latency(ns: u32) {
        if is_running() {
            with(|engine| engine.wake_latency = smoothed_wake_latency(engine.wake_latency, ns));
        }
    }

    #[inline(always)]
    fn tuned(constant: Tunable) -> u32 {
        tuning::value(constant)
    }

    fn cpu() -> u32 {
        if is_running() { with(|engine| engine.cpu()) } else { 0 }
    }

    fn cpus() -> u32 {
        if is_running() { with(|engine| engine.cpus()) } else { u32::MAX }
    }

    fn thread() -> Option<usize> {
        is_running().then(|| with(|engine| engine.running()))
    }

    fn quietly<R>(act: impl FnOnce() -> R) -> R {
        let engine = ENGINE.replace(ptr::null_mut());
        let result = act();
        ENGINE.set(engine);
        result
    }

    const SHARES_BARRIERS: bool = true;
    const IS_ASYMMETRIC: bool = true;
    const FENCES: bool = true;
    const ROUNDS_BEFORE_SLEEP: u32 =
        <fairlock::platform::Os as fairlock::platform::Platform>::ROUNDS_BEFORE_SLEEP;
    fn barrier_on_all_cpus() {
        if is_running() {
            act(Engine::spend_barrier);
        }
    }

    fn fence() {}

    unsafe fn allocate(layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { memory::allocate(layout) }
    }

    unsafe fn deallocate(memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { memory::deallocate(memory, layout) }
    }
}
