//! [`Platform`] over Loom, so that Loom explores the very source that users run.
//!
//! What is modelled: atomics with C11 orderings, plain cells with race detection, and the futex:
//! a table of parked threads keyed by address. What is not: time. `now` counts its calls, and a
//! park with a deadline does not park but jumps to the deadline, which explores "the timeout
//! fires first" everywhere; "the wake-up comes first" is what waits without a deadline explore.
//!
//! Loom runs all threads of a model as coroutines on one OS thread, one model for each test
//! thread, so state that Loom shall not see (the table, the clock) is in thread-locals. It is
//! reset before each execution.
//!
//! Locks start from constants, but Loom's objects exist only within an execution, and Loom wants
//! their creation to happen before every use. So [`explore`] creates a stock of them on the
//! first thread of each execution, and a constant takes its object from there at its first use.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{self, Relaxed, Release};

use fairlock::events::NoCounters;
use fairlock::platform::{AtomicCell, AtomicInt, PlainCell, Platform, Zeroed};
use fairlock::process::{Host, Process};
use fairlock::slots::Record;
use loom::thread::{JoinHandle, Thread, ThreadId};

use crate::long;
use crate::scenario::{Number, Scenario, Step, Subject};

/// What is wrong with a platform: the checker must notice each of these.
pub trait Flaw: Send + Sync + 'static {
    /// Every ordering is `Relaxed`.
    const WEAK: bool = false;
    /// The same on 64 bits and on pointers, so that locks of 32 bits still order what they protect.
    const WEAK_WIDE: bool = false;
    /// `unpark` wakes nobody.
    const DEAF: bool = false;
    /// `compare_exchange` on 64 bits succeeds whatever it finds.
    const GULLIBLE: bool = false;
    /// The same on 32 bits.
    const GULLIBLE_HALVES: bool = false;
    /// No bit is ever set in a word of 64.
    const LOST_BITS: bool = false;
    /// The cheap side of an asymmetric barrier is nothing.
    const NO_LIGHT: bool = false;
    /// The dear side of an asymmetric barrier is nothing.
    const NO_HEAVY: bool = false;
    /// Full fences are nothing.
    const NO_FENCE: bool = false;
    /// No flaw: the time for every spin has passed when it begins, so that sleeps are explored.
    const HASTY: bool = false;
    /// No flaw: spins without an end of their own seldom let others run, so that they end first.
    const STUBBORN: bool = false;
    /// No flaw: there is no asymmetric barrier.
    const SYMMETRIC: bool = false;
    /// No flaw: threads have no records.
    const NO_RECORDS: bool = false;
    /// No flaw: all threads share a CPU, and know it, so nobody spins on an owner.
    const ONE_CPU: bool = false;
    /// No flaw: a store is an exchange. For locks that exchange in vain: if another thread's
    /// exchange reads the value before a store, the store comes after both, but Loom may also let
    /// the store be overwritten by that exchange, and then nobody ever sees it.
    const STORES_EXCHANGE: bool = false;
}

macro_rules! flaws {
    ($($(#[$doc:meta])* $platform:ident = $name:ident { $($flaw:ident)* };)*) => {$(
        $(#[$doc])*
        pub type $platform = Model<$name>;
        /// As its platform.
        pub struct $name;
        impl Flaw for $name {
            $(const $flaw: bool = true;)*
        }
    )*};
}

flaws! {
    /// The faithful one.
    Loom = Nothing {};
    /// Atomic, but ordering nothing.
    Weakened = Weak { WEAK };
    /// Loses every wake-up.
    Deaf = Mute { DEAF };
    /// Lets everybody into a lock whose word has 64 bits.
    Gullible = Trusting { GULLIBLE };
    /// Lets everybody into a lock whose word has 32 bits.
    GullibleHalves = TrustingHalves { GULLIBLE_HALVES };
    /// The same, without spins.
    GullibleHalvesHasty = TrustingHalvesInAHurry { HASTY GULLIBLE_HALVES };
    /// Never sets bits in a word of 64 without a comparison.
    LostBits = Forgetful { LOST_BITS };
    /// Faithful, without spins.
    Hasty = InAHurry { HASTY };
    /// Orders nothing but by words of 32 bits, and has no spins.
    WeakWideHasty = InAHurryAndLoose { HASTY WEAK_WIDE };
    /// Its full fences are none, and it has no spins.
    NoFenceHasty = InAHurryWithoutFences { HASTY NO_FENCE };
    /// Faithful; spins end before those they wait for come on.
    StubbornHasty = InAHurryAndStubborn { HASTY STUBBORN };
    /// Loses every wake-up, without spins.
    DeafHasty = InAHurryAndMute { HASTY DEAF };
    /// Without an asymmetric barrier or spins.
    SymmetricHasty = InAHurryWithoutMembarrier { HASTY SYMMETRIC };
    /// Without the cheap side of the asymmetric barrier, and without spins.
    NoLightHasty = InAHurryWithoutLight { HASTY NO_LIGHT };
    /// Without the dear side, and without spins.
    NoHeavyHasty = InAHurryWithoutHeavy { HASTY NO_HEAVY };
    /// Without an asymmetric barrier, full fences or spins.
    SymmetricNoFenceHasty = InAHurryWithoutBarriers { HASTY SYMMETRIC NO_FENCE };
    /// Faithful, without an asymmetric barrier.
    Symmetric = NoMembarrier { SYMMETRIC };
    /// Its asymmetric barrier lacks the cheap side.
    NoLight = NoLightBarrier { NO_LIGHT };
    /// Its asymmetric barrier lacks the dear side.
    NoHeavy = NoHeavyBarrier { NO_HEAVY };
    /// Its full fences are none.
    NoFence = NoFullFence { NO_FENCE };
    /// The same, without an asymmetric barrier.
    SymmetricNoFence = NoBarriers { SYMMETRIC NO_FENCE };
    /// Faithful; its threads share a list of what others keep in their records.
    WithoutRecords = NoRecords { NO_RECORDS };
    /// Faithful, with one CPU.
    OneCpu = Crowded { ONE_CPU };
    /// Loses every wake-up, with one CPU.
    DeafOneCpu = CrowdedMute { DEAF ONE_CPU };
    /// Faithful to locks that exchange in vain.
    LoomOfExchanges = Exchanging { STORES_EXCHANGE };
}

/// A platform over Loom with a flaw.
pub struct Model<F>(PhantomData<F>);

/// Loom's objects that no constant has taken yet, and what Loom does not see.
#[derive(Default)]
struct Execution {
    words: Vec<loom::sync::atomic::AtomicU64>,
    halves: Vec<loom::sync::atomic::AtomicU32>,
    pointers: Vec<loom::sync::atomic::AtomicPtr<()>>,
    cells: Vec<loom::cell::UnsafeCell<()>>,
    parked: Vec<(*const (), Thread)>,
    /// A `Process` of the platform under test, and its threads' records.
    process: Option<Box<dyn Any>>,
    records: Vec<(ThreadId, *const ())>,
    spare: Vec<*const ()>,
    barriers: Option<Rc<Barriers>>,
    now: u64,
    turns: u32,
}

/// The most barriers on all CPUs in one execution.
const MOST_BARRIERS: usize = 6;

/// Who ran barriers on all CPUs when. Its own operations order nothing.
pub struct Barriers {
    begun: loom::sync::atomic::AtomicU32,
    ended: [loom::sync::atomic::AtomicU32; MOST_BARRIERS],
    /// Written by each barrier before it ends: known to whoever it was for.
    passed: [Watched; MOST_BARRIERS],
    runners: RefCell<Vec<ThreadId>>,
}

impl Barriers {
    fn new() -> Self {
        Barriers {
            begun: loom::sync::atomic::AtomicU32::new(0),
            ended: std::array::from_fn(|_| loom::sync::atomic::AtomicU32::new(0)),
            passed: std::array::from_fn(|_| Watched::new()),
            runners: RefCell::default(),
        }
    }

    fn run(&self) {
        let number = self.begun.fetch_add(1, Relaxed) as usize;
        self.runners.borrow_mut().push(loom::thread::current().id());
        loom::sync::atomic::fence(Ordering::SeqCst);
        self.passed[number].add();
        self.ended[number].fetch_add(1, Relaxed);
    }

    /// How many have begun.
    pub fn begun(&self) -> usize {
        self.begun.fetch_add(0, Relaxed) as usize
    }

    /// Whether one has ended that came after the first `before`, and the caller knows it: it ran
    /// that itself, or it comes after the next one's end.
    pub fn has_passed_one_after(&self, before: usize) -> bool {
        let me = loom::thread::current().id();
        if self.runners.borrow()[before..].contains(&me) {
            return true;
        }
        let ended = before < self.begun() && self.ended[before].fetch_add(0, Relaxed) != 0;
        if ended {
            self.passed[before].get();
        }
        ended
    }
}

/// Of this execution.
pub fn barriers() -> Rc<Barriers> {
    execution(|execution| Rc::clone(execution.barriers.as_ref().expect("made by `explore`")))
}

thread_local! {
    static EXECUTION: RefCell<Execution> = RefCell::default();
}

fn execution<R>(f: impl FnOnce(&mut Execution) -> R) -> R {
    EXECUTION.with_borrow_mut(f)
}

/// About two seconds' worth on a machine of 2026. A missing barrier before a sleep in a range lock
/// shows after more than 5,000; most flaws show among the first thousand.
pub const MOST_EXECUTIONS: usize = 15_000;

/// For locks of which there are many models: [`MOST_EXECUTIONS`] with `FAIRLOCK_LONG=1`, else
/// `in_suite`.
pub fn most_executions(in_suite: usize) -> usize {
    long::depth(in_suite, MOST_EXECUTIONS)
}

/// Runs `model` in every interleaving with at most `preemptions` of them, but not in many more
/// than `MOST_EXECUTIONS`, and says how many executions that took.
///
/// # Panics
/// When an execution panics, races on plain data, or deadlocks.
pub fn explore(name: &str, preemptions: usize, model: impl Fn() + Send + Sync + 'static) -> usize {
    explore_most(name, preemptions, MOST_EXECUTIONS, model)
}

/// As [`explore`], but not in many more than `most` interleavings.
///
/// # Panics
/// As `explore`.
pub fn explore_most(
    name: &str,
    preemptions: usize,
    most: usize,
    model: impl Fn() + Send + Sync + 'static,
) -> usize {
    explore_model(name, preemptions, most, Arc::new(model))
}

/// The same for a model of any type: Loom's part of it is compiled once.
fn explore_model(
    name: &str,
    preemptions: usize,
    most: usize,
    model: Arc<dyn Fn() + Send + Sync>,
) -> usize {
    let executions = Arc::new(AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.max_permutations = Some(most);
    builder.checkpoint_interval = most;
    let count = Arc::clone(&executions);
    let _last = Forgetting;
    eprintln!("{name}");
    let _found = Found(Arc::clone(&executions));
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        drop(Forgetting);
        execution(|execution| {
            *execution = Execution {
                words: (0..48).map(|_| loom::sync::atomic::AtomicU64::new(0)).collect(),
                halves: (0..48).map(|_| loom::sync::atomic::AtomicU32::new(0)).collect(),
                pointers: (0..12)
                    .map(|_| loom::sync::atomic::AtomicPtr::new(std::ptr::null_mut()))
                    .collect(),
                cells: (0..64).map(|_| loom::cell::UnsafeCell::new(())).collect(),
                barriers: Some(Rc::new(Barriers::new())),
                ..Execution::default()
            };
        });
        model();
    });
    let executions = executions.load(Relaxed);
    let all = if executions + 1 < most { "all" } else { "the first" };
    eprintln!("{name}: {all} {executions} executions");
    executions
}

/// Says how far the search came when something was found.
struct Found(Arc<AtomicUsize>);

impl Drop for Found {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("found: execution {}", self.0.load(Relaxed));
        }
    }
}

/// What Loom says about a model that some execution of fails.
///
/// # Panics
/// If none does.
pub fn failure(name: &str, preemptions: usize, model: impl Fn() + Send + Sync + 'static) -> String {
    let model = AssertUnwindSafe(|| explore(name, preemptions, model));
    let failure = catch_unwind(model).expect_err("the flaw is noticed");
    match failure.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => (*other.downcast_ref::<&str>().unwrap_or(&"not a message")).to_owned(),
    }
}

/// A thread of the model.
pub fn spawn(body: impl FnOnce() + 'static) -> JoinHandle<()> {
    let body: Box<dyn FnOnce()> = Box::new(body);
    loom::thread::spawn(body)
}

/// Until they have ended.
pub fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("a panic ends the model"));
}

/// Runs one step in each thread, the last in the first thread.
pub fn together<S: 'static>(subject: &Arc<S>, steps: &[Step<S>]) {
    let (mine, others) = steps.split_last().expect("at least one");
    let run = |&step: &Step<S>| {
        let subject = Arc::clone(subject);
        spawn(move || step(&subject))
    };
    let threads: Vec<_> = others.iter().map(run).collect();
    mine(subject);
    join(threads);
}

/// The scenario as a model.
pub fn model<S: Subject>(scenario: Scenario<S>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let subject = Arc::new((scenario.new)());
        together(&subject, &scenario.steps);
        scenario.assert_end(&subject);
    }
}

/// Explores scenarios of what `of` says, each in not many more than `most` interleavings.
///
/// # Panics
/// As [`explore`].
pub fn check<S: Subject>(
    of: &str,
    scenarios: impl IntoIterator<Item = Scenario<S>>,
    preemptions: usize,
    most: usize,
) {
    for scenario in scenarios {
        let name = format!("{of}: {}", scenario.name);
        explore_most(&name, preemptions, most, model(scenario));
    }
}

/// Ends the process of an execution when dropped. What it was made of is of no execution any more,
/// so Loom must not hear of that.
struct Forgetting;

thread_local! {
    static IS_FORGETTING: Cell<bool> = const { Cell::new(false) };
}

impl Drop for Forgetting {
    fn drop(&mut self) {
        let process = execution(|execution| execution.process.take());
        IS_FORGETTING.set(true);
        drop(process);
        IS_FORGETTING.set(false);
    }
}

/// A number that Loom watches.
pub struct Watched(loom::cell::UnsafeCell<u32>);

impl Watched {
    /// Zero.
    pub fn new() -> Self {
        Watched(loom::cell::UnsafeCell::new(0))
    }
    /// The number, which nobody may be changing.
    pub fn get(&self) -> u32 {
        // SAFETY: Loom reports the race if somebody writes.
        self.0.with(|value| unsafe { *value })
    }
    /// Adds one; nobody else may be looking.
    pub fn add(&self) {
        // SAFETY: Loom reports the race if somebody else is here.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}

// SAFETY: Loom checks every access.
unsafe impl Sync for Watched {}

impl Default for Watched {
    fn default() -> Self {
        Self::new()
    }
}

impl Number for Watched {
    fn zero() -> Self {
        Watched::new()
    }
    fn get(&self) -> u32 {
        Watched::get(self)
    }
    fn add(&self) {
        Watched::add(self);
    }
}

/// After a panic the guards of the failed execution still release. That is no longer of
/// interest, and calling Loom would panic again: atomics then answer what ends the release
/// soonest, without Loom.
fn inert() -> bool {
    std::thread::panicking()
}

fn ordering<F: Flaw>(order: Ordering, wide: bool) -> Ordering {
    if F::WEAK || F::WEAK_WIDE && wide { Relaxed } else { order }
}

macro_rules! atomic {
    ([$($generic:tt)*] $name:ty, $type:ident, $loom:ty, $value:ty, $zero:expr, $stock:ident,
     $to:expr, $from:expr, $gullible:expr, $wide:expr) => {
        // SAFETY: all threads of a model run on one OS thread, so the cell is never initialised
        // by two at once; Loom's object is made to be shared.
        unsafe impl<$($generic)*> Sync for $name {}
        // SAFETY: all threads of a model run on one OS thread.
        unsafe impl<$($generic)*> Send for $name {}

        impl<$($generic)*> $name {
            fn get(&self) -> &$loom {
                let stock = || {
                    execution(|execution| execution.$stock.pop())
                        .unwrap_or_else(|| <$loom>::new($to($zero)))
                };
                self.object.get_or_init(stock)
            }
        }

        // SAFETY: Loom's, or wrong on purpose where nothing depends on it but what Loom watches.
        unsafe impl<$($generic)*> AtomicCell<$value> for $name {
            const ZERO: Self = $type {
                object: OnceCell::new(),
                newest: Cell::new($zero),
                flaw: PhantomData,
            };
            fn new(value: $value) -> Self {
                $type {
                    object: OnceCell::from(<$loom>::new($to(value))),
                    newest: Cell::new(value),
                    flaw: PhantomData,
                }
            }
            fn value(&mut self) -> $value {
                self.newest.get()
            }
            fn load(&self, order: Ordering) -> $value {
                if IS_FORGETTING.get() {
                    return self.newest.get();
                }
                if inert() {
                    return $zero;
                }
                $from(self.get().load(ordering::<F>(order, $wide)))
            }
            fn store(&self, value: $value, order: Ordering) {
                if inert() {
                    return;
                }
                if F::STORES_EXCHANGE {
                    self.get().swap($to(value), ordering::<F>(order, $wide));
                } else {
                    self.get().store($to(value), ordering::<F>(order, $wide));
                }
                self.newest.set(value);
            }
            fn swap(&self, value: $value, order: Ordering) -> $value {
                if inert() {
                    return $zero;
                }
                let old = self.get().swap($to(value), ordering::<F>(order, $wide));
                self.newest.set(value);
                $from(old)
            }
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if inert() {
                    return Ok(current);
                }
                if $gullible {
                    self.get().swap($to(new), success);
                    return Ok(current);
                }
                let (success, failure) = (ordering::<F>(success, $wide), ordering::<F>(failure, $wide));
                let old =
                    self.get().compare_exchange($to(current), $to(new), success, failure);
                if old.is_ok() {
                    self.newest.set(new);
                }
                old.map($from).map_err($from)
            }
            fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! atomic_int {
    ($type:ident, $loom:ty, $value:ty, $stock:ident, $gullible:expr, $bits_are_lost:expr,
     $wide:expr) => {
        /// Loom's, made at its first use.
        pub struct $type<F> {
            object: OnceCell<$loom>,
            /// The value of the last store in the order of execution.
            newest: Cell<$value>,
            flaw: PhantomData<F>,
        }

        atomic!([F: Flaw] $type<F>, $type, $loom, $value, 0, $stock,
            std::convert::identity, std::convert::identity, $gullible, $wide);

        // SAFETY: Loom's operations.
        unsafe impl<F: Flaw> AtomicInt<$value> for $type<F> {
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                if inert() {
                    return 0;
                }
                let old = self.get().fetch_add(value, ordering::<F>(order, $wide));
                self.newest.set(old.wrapping_add(value));
                old
            }
            fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                if inert() {
                    return value;
                }
                let old = self.get().fetch_sub(value, ordering::<F>(order, $wide));
                self.newest.set(old.wrapping_sub(value));
                old
            }
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                if inert() {
                    return 0;
                }
                let value = if $bits_are_lost { 0 } else { value };
                let old = self.get().fetch_or(value, ordering::<F>(order, $wide));
                self.newest.set(old | value);
                old
            }
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                if inert() {
                    return 0;
                }
                let old = self.get().fetch_and(value, ordering::<F>(order, $wide));
                self.newest.set(old & value);
                old
            }
        }
    };
}

atomic_int!(
    AtomicU32,
    loom::sync::atomic::AtomicU32,
    u32,
    halves,
    F::GULLIBLE_HALVES,
    false,
    false
);
atomic_int!(AtomicU64, loom::sync::atomic::AtomicU64, u64, words, F::GULLIBLE, F::LOST_BITS, true);

/// Loom's, made at its first use.
pub struct AtomicPtr<F, T> {
    object: OnceCell<loom::sync::atomic::AtomicPtr<()>>,
    newest: Cell<*mut T>,
    flaw: PhantomData<(F, *mut T)>,
}

atomic!([F: Flaw, T] AtomicPtr<F, T>, AtomicPtr, loom::sync::atomic::AtomicPtr<()>, *mut T,
    std::ptr::null_mut(), pointers, <*mut T>::cast, <*mut ()>::cast, false, true);

/// The value lives outside Loom; Loom watches who touches it.
pub struct Plain<T> {
    value: Cell<T>,
    watch: OnceCell<loom::cell::UnsafeCell<()>>,
}

impl<T> Plain<T> {
    fn watch(&self) -> &loom::cell::UnsafeCell<()> {
        let stock = || {
            execution(|execution| execution.cells.pop())
                .unwrap_or_else(|| loom::cell::UnsafeCell::new(()))
        };
        self.watch.get_or_init(stock)
    }
}

// SAFETY: a cell that Loom watches.
unsafe impl<T: Zeroed> PlainCell<T> for Plain<T> {
    const ZERO: Self = Plain { value: Cell::new(T::ZERO), watch: OnceCell::new() };
    fn get(&self) -> T {
        if inert() {
            return self.value.get();
        }
        self.watch().with(|_| self.value.get())
    }
    fn set(&self, value: T) {
        if !inert() {
            self.watch().with_mut(|_| self.value.set(value));
        }
    }
}

/// Threads of a model that read under locks with slots.
const MOST_THREADS: usize = 3;

/// More than any lock or list spins without looking at the clock.
const TURNS_OF_THE_STUBBORN: u32 = 40;

/// Far longer than a tick of any lock's clock.
const NS_PER_LOOK: u64 = 1_000;

// SAFETY: Loom's atomics and fences; one process for each execution, and a record for each of its threads. With
// a flaw it is wrong on purpose, where nothing depends on it but what Loom watches.
unsafe impl<F: Flaw> Platform for Model<F> {
    type AtomicU32 = AtomicU32<F>;
    type AtomicU64 = AtomicU64<F>;
    type AtomicPtr<T> = AtomicPtr<F, T>;
    type Cell<T: Zeroed> = Plain<T>;
    type Counters = NoCounters;
    type Hold = fairlock::platform::Unchecked;
    const ROUNDS_BEFORE_SLEEP: u32 = 0;
    /// The kernel compares with the newest value, which a load in Loom need not see; so that
    /// value is kept aside. The load tells Loom that this step depends on what others do to the
    /// word. Comparing and queueing are one step: Loom switches threads only at its own
    /// operations. (A read-modify-write would see the newest value too, but Loom orders it
    /// against a plain store of another thread less strictly than C11 does.)
    ///
    /// Loom's own `unpark` orders memory, which a futex does not. It hides nothing: the same
    /// waiter also runs in the executions in which it finds the word changed and does not park.
    fn park(word: &Self::AtomicU32, expected: u32, deadline: Option<u64>) {
        if inert() {
            return;
        }
        if let Some(deadline) = deadline {
            execution(|execution| execution.now = execution.now.max(deadline));
            // Time passes for the others too.
            return loom::thread::yield_now();
        }
        word.get().load(Relaxed);
        if word.newest.get() == expected {
            let key = std::ptr::from_ref(word).cast();
            execution(|execution| execution.parked.push((key, loom::thread::current())));
            loom::thread::park();
        } else {
            // Makes the caller's next load see it.
            loom::thread::yield_now();
        }
    }

    fn unpark(word: *const Self::AtomicU32) {
        if F::DEAF || inert() {
            return;
        }
        let woken = execution(|execution| {
            let at = execution.parked.iter().position(|&(key, _)| key == word.cast())?;
            Some(execution.parked.remove(at).1)
        });
        if let Some(thread) = woken {
            thread.unpark();
        }
    }

    fn unpark_many(word: *const Self::AtomicU32, most: u32) -> u32 {
        if F::DEAF || inert() {
            return 0;
        }
        let parked = execution(|execution| {
            execution.parked.iter().filter(|&&(key, _)| key == word.cast()).count() as u32
        });
        let woken = parked.min(most);
        (0..woken).for_each(|_| Self::unpark(word));
        woken
    }

    fn unpark_all_shared(word: *const Self::AtomicU32) {
        Self::unpark_many(word, u32::MAX);
    }

    fn relax(until: Option<u64>) -> bool {
        if F::HASTY && until.is_some() {
            return true;
        }
        if !inert() && (!F::STUBBORN || Self::turn().is_multiple_of(TURNS_OF_THE_STUBBORN)) {
            loom::thread::yield_now();
        }
        false
    }

    /// All of them, at once: a spin that ends early costs time only. If it gave way to other threads, what comes after it
    /// would hardly ever be tried.
    fn relax_turns(turns: u32) -> u32 {
        turns
    }

    fn give_way(_attempt: u32) {
        if !inert() {
            loom::thread::yield_now();
        }
    }

    fn turn() -> u32 {
        execution(|execution| {
            execution.turns = execution.turns.wrapping_add(1);
            execution.turns
        })
    }

    fn now() -> u64 {
        execution(|execution| {
            execution.now += NS_PER_LOOK;
            execution.now
        })
    }

    /// Eight looks at the clock: spins end, and budgets do too.
    fn wake_latency() -> u32 {
        8 * NS_PER_LOOK as u32
    }

    fn note_wake_latency(_ns: u32) {}

    fn cpu() -> u32 {
        F::ONE_CPU.into()
    }

    fn is_asymmetric() -> bool {
        !F::SYMMETRIC
    }

    /// In terms of C11 each side of an asymmetric barrier is a full fence.
    fn asymmetric_light() {
        if !F::NO_LIGHT && !F::SYMMETRIC && !inert() {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    fn barrier_on_all_cpus() {
        if !inert() {
            barriers().run();
        }
    }

    fn fence() {
        if !F::NO_FENCE && !inert() {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    fn store_and_fence(word: &Self::AtomicU64, value: u64) {
        word.store(value, Release);
        Self::fence();
    }
}

// SAFETY: one process for each execution, and a record for each of its threads, which nobody gives back.
unsafe impl<F: Flaw> Host for Model<F> {
    fn process() -> &'static Process<Self> {
        let process: *const Process<Self> = execution(|execution| {
            let process = execution.process.get_or_insert_with(|| Box::new(Process::<Self>::NEW));
            std::ptr::from_ref(process.downcast_ref().expect("one platform for each model"))
        });
        // SAFETY: boxed, and dropped when the next execution begins, with no thread of this left.
        unsafe { &*process }
    }

    /// Nobody gives a record back: threads of a model end together.
    fn thread() -> Option<&'static Record<Self>> {
        if F::NO_RECORDS || inert() {
            return None;
        }
        let me = loom::thread::current().id();
        let known = execution(|execution| {
            execution.records.iter().find(|(thread, _)| *thread == me).map(|&(_, record)| record)
        });
        let record = known.unwrap_or_else(|| {
            // The first thread claims them for all: that a thread is new is of no interest.
            if execution(|execution| execution.records.is_empty()) {
                for _ in 0..MOST_THREADS {
                    let record = Self::process().new_thread().expect("a record for each thread");
                    let record = std::ptr::from_ref(record).cast();
                    execution(|execution| execution.spare.push(record));
                }
            }
            execution(|execution| {
                let record = execution.spare.pop().expect("as many as threads");
                execution.records.push((me, record));
                record
            })
        });
        // SAFETY: a record of this execution's process, of this platform.
        Some(unsafe { &*record.cast() })
    }

    /// In terms of C11 each side of an asymmetric barrier is a full fence.
    fn asymmetric_heavy() {
        assert!(!F::SYMMETRIC, "there is none");
        if !F::NO_HEAVY && !inert() {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }
}
