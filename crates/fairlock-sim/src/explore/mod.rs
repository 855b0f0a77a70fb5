//! Tries schedules until one breaks a lock.
//!
//! A [`Program`] makes some state, has up to [eight](MOST_THREADS) threads do something with it,
//! and checks what is left. A [`Search`] runs it again and again, each time in another order of
//! the threads' atomic operations, parks, wake-ups and looks at the clock, until one execution
//! fails or it has seen enough. A [`Failure`] prints what happened step by step, and
//! [`Program::replay`] does it again.
//!
//! ```
//! use fairlock::{RwSem, policy::TimeFair};
//! use fairlock_sim::{Explored, explore::{Guarded, Program, Search}};
//!
//! type Lock = RwSem<Guarded, TimeFair, Explored>;
//! let program = Program::new("a reader and a writer", || Lock::with_policy(Guarded::new()))
//!     .thread(|lock| _ = lock.read().get())
//!     .thread(|lock| lock.write().add())
//!     .finally(|lock| assert_eq!(lock.try_read().expect("the lock is free").get(), 1));
//! let report = program.check(&Search::exhaustive()).unwrap_or_else(|failure| panic!("{failure}"));
//! assert!(report.complete);
//! ```
//!
//! # What is wrong
//! * A thread or the final check panics. [`Guarded`] data panics when a lock lets in too many.
//! * Threads remain and none can go on: a deadlock; a *lost wake-up* if one of them sleeps on a
//!   word that has changed.
//! * An execution has too many [steps](Program::most_steps).
//! * A word is used after it was dropped; in a test binary with the [`Quarantine`], also one in a box
//!   that was freed.
//! * Threads wait for one that was [frozen](Program::frozen): the same as a deadlock.
//! * A waiter is passed for longer than it [claimed](Claim), in a program in time.
//!
//! # Time
//! The clock stands still while threads can go on, so waits with an end (a timeout, a spin's
//! budget) would end only when nobody can go on; then the earliest does. In addition each thread
//! may, in the searches that try everything at any point, end a [few](Program::early_timeouts) of
//! its waits early, and find at a [few](Program::clock_jumps) of its looks that the clock has jumped
//! by 5 ms. These figures are part of what a report calls complete.
//!
//! In a program [in time](Program::in_time) every step takes time instead, and threads are stopped for
//! long between any two.
//!
//! # Not for
//! Weak memory: operations take effect in one order that all threads agree on, or, with
//! [`Program::store_buffers`], in those that an x86 allows. Loom does C11 orderings, in
//! `fairlock`'s own tests.

mod backend;
mod depth_first;
mod execution;
mod failure;
mod guarded;
mod passing;
mod pct;
mod quarantine;
mod random;
mod replay;
mod schedule;
mod state;
mod time;
mod trace;

use std::any::Any;
use std::fmt;
use std::hint::black_box;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use backend::{Blind, Deaf, Explore, Flaw, NoBarrier, NoFence, OwnBarrier, Sound};
pub use backend::{Symmetric, SymmetricNoFence, Torn};
pub use failure::{Failure, FailureKind};
pub use guarded::Guarded;
pub use passing::{Claim, hold};
pub use quarantine::Quarantine;
pub use schedule::{MOST_THREADS, Schedule};
pub use time::Time;
pub use trace::{Named, named};

use crate::fiber::{Fiber, panic_message};
use crate::platform::begin_process;
use depth_first::DepthFirst;
use execution::{Ending, Execution, Run, Strategy};
use pct::Pct;
use quarantine::UntilTheEnd;
use random::Random;
use replay::Replay;
use trace::Trace;

/// What [`Platform::cpu`](fairlock::platform::Platform::cpu) says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cpus {
    /// Nobody knows.
    #[default]
    Unknown,
    /// All threads are on one.
    One,
    /// Each thread is on its own.
    OneEach,
}

/// What an execution of a program may do.
#[derive(Debug, Clone, Default)]
struct Limits {
    cpus: Cpus,
    store_buffers: bool,
    early_spins: u32,
    early_timeouts: u32,
    spurious_wakes: u32,
    clock_jumps: u32,
    jump_ns: u64,
    tick_ns: u64,
    most_steps: usize,
    /// Time passes with every step.
    time: Option<Time>,
    /// Threads that stop for good, and after how many of their steps.
    frozen: Vec<(usize, u32)>,
}

/// A function of a program's state.
type Of<T> = Box<dyn Fn(&dyn Any) -> T>;

/// What is run, whatever the state's type: searches are compiled once, not for each type of lock.
struct Untyped {
    name: String,
    make: Box<dyn Fn() -> Box<dyn Any>>,
    /// Frees a state's memory without dropping what is in it.
    forget: fn(Box<dyn Any>),
    threads: Vec<Of<()>>,
    finally: Of<()>,
    names: Of<Vec<Named>>,
    limits: Limits,
}

/// What is run: state, threads, and a check at the end.
pub struct Program<S> {
    untyped: Untyped,
    of: PhantomData<S>,
}

/// The state that [`Untyped::make`] made.
fn typed<S: 'static>(state: &dyn Any) -> &S {
    state.downcast_ref().expect("a program's state is of one type")
}

fn forget<S: 'static>(state: Box<dyn Any>) {
    let state = Box::into_raw(state.downcast::<S>().expect("a program's state is of one type"));
    // SAFETY: the pointer comes from a box; `ManuallyDrop<S>` has the layout of `S`.
    drop(unsafe { Box::from_raw(state.cast::<ManuallyDrop<S>>()) });
}

impl<S: 'static> Program<S> {
    /// A program without threads. `make` makes fresh state for each execution.
    pub fn new(name: impl Into<String>, make: impl Fn() -> S + 'static) -> Self {
        let untyped = Untyped {
            name: name.into(),
            make: Box::new(move || Box::new(make())),
            forget: forget::<S>,
            threads: Vec::new(),
            finally: Box::new(|_| {}),
            names: Box::new(|_| Vec::new()),
            limits: Limits {
                early_spins: 1,
                early_timeouts: 1,
                jump_ns: 5_000_000,
                most_steps: 5_000,
                ..Limits::default()
            },
        };
        Program { untyped, of: PhantomData }
    }

    /// One more thread. Its body must do the same whenever it is given the same values: it may not
    /// use addresses, the real clock, or what earlier executions left behind; nor share plain
    /// memory with other threads beyond what it checks.
    ///
    /// # Panics
    /// If there are [`MOST_THREADS`] already.
    #[must_use]
    pub fn thread(mut self, body: impl Fn(&S) + 'static) -> Self {
        let threads = &mut self.untyped.threads;
        assert!(threads.len() < MOST_THREADS, "a program has at most {MOST_THREADS} threads");
        threads.push(Box::new(move |state| body(typed(state))));
        self
    }

    /// So many threads that do the same.
    ///
    /// # Panics
    /// As [`thread`](Self::thread).
    #[must_use]
    pub fn threads(self, count: usize, body: impl Fn(&S) + Clone + 'static) -> Self {
        (0..count).fold(self, |program, _| program.thread(body.clone()))
    }

    /// What holds when all threads have ended: panics if it does not. It must not wait.
    #[must_use]
    pub fn finally(mut self, check: impl Fn(&S) + 'static) -> Self {
        self.untyped.finally = Box::new(move |state| check(typed(state)));
        self
    }

    /// Names for parts of the state in traces.
    #[must_use]
    pub fn names(mut self, names: impl Fn(&S) -> Vec<Named> + 'static) -> Self {
        self.untyped.names = Box::new(move |state| names(typed(state)));
        self
    }
}

impl<S> Program<S> {
    /// What the threads are told about the CPU they are on; by default nothing.
    #[must_use]
    pub fn cpus(mut self, cpus: Cpus) -> Self {
        self.untyped.limits.cpus = cpus;
        self
    }

    /// Stores other than SeqCst go into a buffer of their thread, and from there to memory some
    /// time later, in their order; loads see the thread's own. Updates, SeqCst stores, fences, parks
    /// and wake-ups wait for the buffer to be empty; a barrier on all CPUs waits for whatever is in
    /// a buffer when it begins.
    #[must_use]
    pub fn store_buffers(mut self) -> Self {
        self.untyped.limits.store_buffers = true;
        self
    }

    /// Each thread may end so many spins (and naps that give way) although nothing it has read has
    /// changed and others could go on; by default 1.
    #[must_use]
    pub fn early_spins(mut self, most: u32) -> Self {
        self.untyped.limits.early_spins = most;
        self
    }

    /// Each thread may end so many sleeps at their deadline although others could go on; by
    /// default 1.
    #[must_use]
    pub fn early_timeouts(mut self, most: u32) -> Self {
        self.untyped.limits.early_timeouts = most;
        self
    }

    /// Each thread may end so many sleeps without a deadline for no reason; by default 0.
    #[must_use]
    pub fn spurious_wakes(mut self, most: u32) -> Self {
        self.untyped.limits.spurious_wakes = most;
        self
    }

    /// The clock may jump by 5 ms, longer than any lock waits before it changes its mind, at so
    /// many of each thread's looks; by default 0.
    #[must_use]
    pub fn clock_jumps(mut self, most: u32) -> Self {
        self.untyped.limits.clock_jumps = most;
        self
    }

    /// The clock advances by this at each look; by default 0. Makes every look depend on every
    /// other, which is dear.
    #[must_use]
    pub fn tick(mut self, ns: u64) -> Self {
        self.untyped.limits.tick_ns = ns;
        self
    }

    /// Time passes with every step, and threads may be stopped for long between any two of them while
    /// the others go on. Every thread has a CPU of its own; whose step comes next is the search's
    /// choice among those that are due within 2 µs. Waits end when their time has come, so there are
    /// no [early ends](Self::early_timeouts) and no [jumps](Self::clock_jumps) of the clock.
    /// [`pass_time`] keeps its own thread busy for so long. Who is [passed](Claim) for too long fails.
    ///
    /// An exhaustive search leaves nothing out here, as every step depends on the clock: bound its
    /// preemptions, and the stops.
    ///
    /// # Panics
    /// Together with [`store_buffers`](Self::store_buffers), when it is run: stores would arrive
    /// without taking time.
    #[must_use]
    pub fn in_time(mut self, time: Time) -> Self {
        self.untyped.limits.time = Some(time);
        self
    }

    /// An execution with more steps than this is a livelock; by default 5000. An exhaustive search
    /// that leaves executions out panics in one with more than 65,535.
    #[must_use]
    pub fn most_steps(mut self, most: usize) -> Self {
        self.untyped.limits.most_steps = most;
        self
    }

    /// A thread, counted from 0, that stops for good after so many of its steps, as one that is
    /// preempted and never runs again; one that sleeps then, at its first step after that. Stores
    /// that are in its buffer still arrive. An execution ends when all *others* have ended: those
    /// that wait for the frozen one are reported as a deadlock. To have it stop at every step in
    /// turn, see [`check_frozen_anywhere`](Self::check_frozen_anywhere).
    ///
    /// The final check runs with the thread frozen where it is. What the execution left behind is
    /// not dropped.
    ///
    /// ```
    /// use fairlock_sim::explore::{Guarded, Program, Search};
    /// let program = Program::new("the second addition is missing", Guarded::new)
    ///     .thread(|number| (0..2).for_each(|_| number.add()))
    ///     .frozen(0, 3) // of the three steps of each addition
    ///     .finally(|number| assert_eq!(number.get(), 1));
    /// assert_eq!(program.assert(&Search::exhaustive()).frozen, 1);
    /// ```
    ///
    /// # Panics
    /// If there is no such thread.
    #[must_use]
    pub fn frozen(mut self, thread: usize, steps: u32) -> Self {
        assert!(thread < self.untyped.threads.len(), "there is no thread {thread} to freeze");
        self.untyped.limits.frozen.retain(|&(other, _)| other != thread);
        self.untyped.limits.frozen.push((thread, steps));
        self
    }

    /// Looks for an execution that fails because a thread, counted from 0, has stopped for good
    /// after *any* of its steps: one search for each number of steps, until the thread ends before
    /// that in every execution seen. The reports are added up.
    ///
    /// # Errors
    /// The first failure found; its program says where the thread was frozen.
    ///
    /// # Panics
    /// As [`frozen`](Self::frozen).
    pub fn check_frozen_anywhere(
        mut self,
        thread: usize,
        search: &Search,
    ) -> Result<Report, Box<Failure>> {
        let name = std::mem::take(&mut self.untyped.name);
        let mut sum = Report {
            program: format!("{name}, thread {} frozen anywhere", thread + 1),
            search: search.to_string(),
            complete: true,
            ..Report::default()
        };
        for steps in 0.. {
            self.untyped.name = format!("{name}, thread {} frozen after {steps} steps", thread + 1);
            self = self.frozen(thread, steps);
            let report = self.check(search)?;
            sum.executions += report.executions;
            sum.cut_short += report.cut_short;
            sum.longest = sum.longest.max(report.longest);
            sum.frozen += report.frozen;
            sum.complete &= report.complete;
            if report.frozen == 0 {
                break;
            }
        }
        Ok(sum)
    }

    /// As [`check_frozen_anywhere`](Self::check_frozen_anywhere) for tests.
    ///
    /// # Panics
    /// If an execution fails, with everything that is known about it.
    pub fn assert_frozen_anywhere(self, thread: usize, search: &Search) -> Report {
        let report = self
            .check_frozen_anywhere(thread, search)
            .unwrap_or_else(|failure| panic!("{failure}"));
        eprintln!("{report}");
        report
    }

    /// Looks for an execution that fails.
    ///
    /// # Errors
    /// The first one found.
    pub fn check(&self, search: &Search) -> Result<Report, Box<Failure>> {
        self.untyped.check(search)
    }

    /// As [`check`](Self::check) for tests.
    ///
    /// # Panics
    /// If an execution fails, with everything that is known about it.
    pub fn assert(&self, search: &Search) -> Report {
        let report = self.check(search).unwrap_or_else(|failure| panic!("{failure}"));
        eprintln!("{report}");
        report
    }

    /// Runs the execution that a failure printed, and beyond its end goes on somehow.
    ///
    /// # Errors
    /// If it fails, as it should; [`FailureKind::NotDeterministic`] if the schedule does not fit.
    ///
    /// # Examples
    /// ```
    /// use fairlock_sim::explore::{FailureKind, Guarded, Program, Search};
    /// let program = Program::new("no lock", Guarded::new).threads(2, |number| number.add());
    /// let found = program.check(&Search::exhaustive()).expect_err("they meet");
    /// let text = found.schedule.to_string();
    /// let again = program.replay(&text.parse().unwrap()).expect_err("they meet again");
    /// assert_eq!((again.kind, again.trace), (found.kind, found.trace));
    /// ```
    pub fn replay(&self, schedule: &Schedule) -> Result<Report, Box<Failure>> {
        self.untyped.replay(schedule)
    }
}

impl Untyped {
    /// [`Program::check`].
    fn check(&self, search: &Search) -> Result<Report, Box<Failure>> {
        let in_time = self.limits.time.is_some();
        assert!(!(in_time && self.limits.store_buffers), "stores in buffers take no time");
        let mut strategy = search.strategy(in_time);
        let mut run = Execution::new(&mut *strategy);
        let mut report =
            Report { program: self.name.clone(), search: search.to_string(), ..Report::default() };
        while report.executions + report.cut_short < search.most && strategy.next_run() {
            let ending = self.execute(&mut run);
            report.longest = report.longest.max(run.schedule.len());
            match ending {
                Ending::Finished => {
                    report.executions += 1;
                    report.frozen += u64::from(run.state.any_frozen());
                }
                Ending::Left => report.cut_short += 1,
                Ending::Strayed | Ending::Failed(_) => {
                    let schedule = run.schedule.clone();
                    let kind = match ending {
                        Ending::Failed(kind) => kind,
                        _ => FailureKind::NotDeterministic,
                    };
                    let execution = report.executions + report.cut_short + 1;
                    return Err(self.explain(search.to_string(), execution, kind, schedule));
                }
            }
        }
        // The last run may have been the last of all.
        report.complete = search.is_exhaustive() && !strategy.next_run() && strategy.is_complete();
        Ok(report)
    }

    /// [`Program::replay`].
    fn replay(&self, schedule: &Schedule) -> Result<Report, Box<Failure>> {
        let mut strategy = Replay::new(schedule.clone());
        let mut run = Execution::new(&mut strategy);
        run.trace = Some(Trace::default());
        let ending = self.execute(&mut run);
        let search = "replay".to_string();
        let kind = match ending {
            Ending::Finished | Ending::Left => {
                return Ok(Report {
                    program: self.name.clone(),
                    search,
                    executions: 1,
                    longest: run.schedule.len(),
                    ..Report::default()
                });
            }
            Ending::Strayed => FailureKind::NotDeterministic,
            Ending::Failed(kind) => kind,
        };
        let trace = run.trace.take().unwrap_or_default().text();
        let (program, schedule) = (self.name.clone(), run.schedule.clone());
        Err(Box::new(Failure { program, search, execution: 1, kind, schedule, trace }))
    }

    /// A failure with its trace.
    fn explain(
        &self,
        search: String,
        execution: u64,
        kind: FailureKind,
        schedule: Schedule,
    ) -> Box<Failure> {
        let program = self.name.clone();
        match self.replay(&schedule) {
            // Words have names now.
            Err(again) if again.kind.is_like(&kind) => {
                Box::new(Failure { program, search, execution, ..*again })
            }
            again => {
                let trace = match again {
                    Ok(_) => format!("it was: {kind}\n"),
                    Err(again) => format!("it was: {kind}\nnow: {}\n{}", again.kind, again.trace),
                };
                let kind = FailureKind::NotDeterministic;
                Box::new(Failure { program, search, execution, kind, schedule, trace })
            }
        }
    }

    /// One execution.
    fn execute(&self, run: &mut Execution) -> Ending {
        let _kept = UntilTheEnd;
        begin_process();
        let state = (self.make)();
        let ending = self.execute_on(&*state, run);
        // Dropped only if nobody is left in the middle of something.
        if ending == Ending::Finished && !run.state.any_frozen() {
            drop(state);
        } else {
            (self.forget)(state);
        }
        ending
    }

    fn execute_on(&self, state: &dyn Any, run: &mut Execution) -> Ending {
        run.reset(self.threads.len(), &self.limits);
        if let Some(trace) = &mut run.trace {
            trace.names = (self.names)(state);
        }
        let fiber = |body: &Of<()>| {
            let body = &**body;
            let body = move || apart(|| body(state));
            // SAFETY: the fibers are dropped below, before the state and the program.
            unsafe { Fiber::new(Box::new(body)) }
        };
        let mut fibers: Vec<Fiber> = self.threads.iter().map(fiber).collect();
        // SAFETY: a unique reference, not used meanwhile.
        unsafe { Execution::run(run, &mut fibers) };
        let ending = run.ending.take().expect("a run that returned has ended");
        if ending != Ending::Finished {
            return ending;
        }
        // Before the fibers go: locks may point to what is on the stack of a frozen one.
        let checked = catch_unwind(AssertUnwindSafe(|| (self.finally)(state)));
        drop(fibers);
        match checked {
            Ok(()) => Ending::Finished,
            Err(payload) => {
                let message = panic_message(&*payload);
                Ending::Failed(FailureKind::FinalCheck { message })
            }
        }
    }
}

/// Runs a thread's body some way down its stack: what is called after it has ended, as to free its closure, does not
/// overwrite what it has left there, which says that its words are gone.
#[inline(never)]
fn apart(body: impl FnOnce()) {
    let mut room = MaybeUninit::<[u8; 2048]>::uninit();
    black_box(&mut room);
    body();
    black_box(&mut room);
}

/// How executions are chosen.
#[derive(Debug, Clone)]
pub struct Search {
    kind: SearchKind,
    most: u64,
}

#[derive(Debug, Clone)]
enum SearchKind {
    Exhaustive { preemptions: Option<u32>, reduces: bool },
    Random { seed: u64 },
    Pct { seed: u64, depth: u32 },
}

impl Search {
    /// Every execution that differs from the others in more than the order of independent steps.
    pub fn exhaustive() -> Self {
        let kind = SearchKind::Exhaustive { preemptions: None, reduces: true };
        Search { kind, most: u64::MAX }
    }

    /// Executions at random, so many.
    pub fn random(seed: u64, executions: u64) -> Self {
        Search { kind: SearchKind::Random { seed }, most: executions }
    }

    /// Executions by random priorities that change `depth` − 1 times, so many: probabilistic
    /// concurrency testing, which finds a bug that needs `depth` orderings with a known
    /// probability.
    pub fn pct(seed: u64, depth: u32, executions: u64) -> Self {
        Search { kind: SearchKind::Pct { seed, depth }, most: executions }
    }

    /// Only executions in which at most so many times a thread loses its turn that could have
    /// gone on. Turns that end with a wait are free, and so are stores that leave a buffer.
    #[must_use]
    pub fn preemptions(mut self, most: u32) -> Self {
        if let SearchKind::Exhaustive { preemptions, .. } = &mut self.kind {
            *preemptions = Some(most);
        }
        self
    }

    /// Leaves nothing out, not even executions that differ in nothing. To check the reduction.
    #[must_use]
    pub fn unreduced(mut self) -> Self {
        if let SearchKind::Exhaustive { reduces, .. } = &mut self.kind {
            *reduces = false;
        }
        self
    }

    /// Stops after so many executions; a search that does is not complete.
    #[must_use]
    pub fn at_most(mut self, executions: u64) -> Self {
        self.most = executions;
        self
    }

    fn is_exhaustive(&self) -> bool {
        matches!(self.kind, SearchKind::Exhaustive { .. })
    }

    fn strategy(&self, in_time: bool) -> Box<dyn Strategy> {
        match self.kind {
            SearchKind::Exhaustive { preemptions, reduces } => {
                Box::new(DepthFirst::new(preemptions, reduces && !in_time))
            }
            SearchKind::Random { seed } => Box::new(Random::new(seed, in_time)),
            SearchKind::Pct { seed, depth } => Box::new(Pct::new(seed, depth, in_time)),
        }
    }
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            SearchKind::Exhaustive { preemptions, reduces } => {
                f.write_str("exhaustive")?;
                if let Some(most) = preemptions {
                    write!(f, ", at most {most} preemptions")?;
                }
                f.write_str(if reduces { "" } else { ", unreduced" })
            }
            SearchKind::Random { seed } => write!(f, "random, seed {seed}"),
            SearchKind::Pct { seed, depth } => write!(f, "pct, seed {seed}, depth {depth}"),
        }
    }
}

/// What a search has seen without finding a failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The program.
    pub program: String,
    /// The search.
    pub search: String,
    /// Executions that ended.
    pub executions: u64,
    /// Executions that were left because how they go on had been seen.
    pub cut_short: u64,
    /// Of those that ended, how many with a [frozen](Program::frozen) thread.
    pub frozen: u64,
    /// Steps of the longest.
    pub longest: usize,
    /// Every execution within the search's and the program's bounds has been seen, or one that
    /// differs only in the order of independent steps.
    pub complete: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { program, search, executions, cut_short, frozen, longest, complete } = self;
        let all = if *complete { "all" } else { "not complete:" };
        write!(f, "{program} ({search}): {all} {executions} executions")?;
        write!(f, " and {cut_short} cut short, at most {longest} steps")?;
        if *frozen > 0 { write!(f, ", {frozen} with a frozen thread") } else { Ok(()) }
    }
}

/// What a thread's sleeps look like from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sleeps {
    /// It sleeps now and nobody has woken it.
    pub asleep: bool,
    /// How often it went to sleep.
    pub count: u32,
}

/// The sleeps of a thread of the program, counted from 0. For checks of who passes whom: a step
/// of its own, so that nothing is left out that it could see.
///
/// ```
/// use fairlock_sim::explore::{self, Program, Search};
/// let program = Program::new("nobody sleeps", || ())
///     .thread(|()| {})
///     .thread(|()| assert_eq!(explore::sleeps_of(0).count, 0));
/// assert!(program.assert(&Search::exhaustive()).complete);
/// ```
///
/// # Panics
/// Outside a run, or if there is no such thread.
pub fn sleeps_of(thread: usize) -> Sleeps {
    Run::current().expect("only a program's thread can ask").sleeps_of(thread)
}

/// The calling thread lets the clock advance; where time passes [anyway](Program::in_time), it is
/// busy for so long while the others go on.
///
/// # Panics
/// Outside a run.
pub fn pass_time(ns: u64) {
    Run::current().expect("only a program's thread has time").pass_time(ns);
}
