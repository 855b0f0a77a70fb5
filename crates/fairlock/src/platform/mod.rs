//! The seam between the locks and what they run on.
//!
//! Every lock is generic over a [`Platform`]; users get [`Os`]. So the same source runs on real
//! threads, under a model checker (the test suite implements `Platform` over Loom) and on a
//! simulated machine. Lock code reads like plain Rust with std's atomics: the traits below have
//! std's method names and orderings.
//!
//! Not for: policy. A platform says how to sleep and what time it is, never who is next.

mod os;
mod tunable;

use core::sync::atomic::Ordering;
use std::alloc::{GlobalAlloc, Layout, System};
use std::time::{Duration, Instant};

pub use crate::held::{Access, Holding, Identity, Lock, Unchecked, Wanted};
#[cfg(test)]
pub(crate) use os::ago;
pub use os::{Counting, Os, Symmetric};
pub use tunable::Tunable;

use crate::events::CountEvents;

/// What a lock needs from the world it runs in.
///
/// Implement it, and [`Host`](crate::process::Host), to run Fairlock's locks somewhere else, for
/// instance under a checker. Users of the locks never name it.
///
/// # Example
///
/// ```
/// use fairlock::platform::{Os, Platform};
/// let before = Os::now();
/// Os::relax(None);
/// assert!(Os::now() >= before);
/// ```
///
/// # Safety
/// What locks protect is sound only if their platform is. An implementation promises:
/// * Its atomics, cells and fences do what they say: [`AtomicCell`], [`AtomicInt`], [`PlainCell`];
///   [`fence`](Self::fence), [`fence_after_update`](Self::fence_after_update),
///   [`store_and_fence`](Self::store_and_fence). If [`is_asymmetric`](Self::is_asymmetric) ever
///   answers yes, it always does, and [`asymmetric_light`](Self::asymmetric_light) and
///   [`barrier_on_all_cpus`](Self::barrier_on_all_cpus) do what they say, too.
/// * [`tuned`](Self::tuned) answers the constant's value or one within its bounds.
/// * [`allocate`](Self::allocate) returns null, or memory for this layout that nobody else uses.
/// * No function unwinds, nor does any of [`Counters`](Self::Counters) or [`Hold`](Self::Hold). The
///   only exception is [`Holding::check`], which is called before a lock is changed.
/// * A thread that [`park`](Self::park)s either never continues, or continues on the same stack.
///
/// A wake-up that is late or never comes, or a clock that is wrong, costs time but not soundness.
///
/// Safe code cannot implement a platform, nor any of its parts:
/// ```compile_fail,E0200
/// use fairlock::platform::PlainCell;
/// struct Liar;
/// impl PlainCell<u32> for Liar {
///     const ZERO: Self = Liar;
///     fn get(&self) -> u32 { 7 }
///     fn set(&self, _value: u32) {}
/// }
/// ```
pub unsafe trait Platform: Sized + Send + Sync + 'static {
    /// Like [`core::sync::atomic::AtomicU32`].
    type AtomicU32: AtomicInt<u32>;
    /// Like [`core::sync::atomic::AtomicU64`].
    type AtomicU64: AtomicInt<u64>;
    /// Like [`core::sync::atomic::AtomicPtr`].
    type AtomicPtr<T>: AtomicCell<*mut T>;
    /// Like [`core::cell::Cell`]: data that only the holder of some lock touches. A checker
    /// implements it with race detection.
    type Cell<T: Zeroed>: PlainCell<T>;
    /// The event counters of one lock; a zero-sized type where nothing is counted.
    type Counters: CountEvents;
    /// What a guard remembers for the checks for deadlocks; a zero-sized type where nothing is
    /// checked.
    type Hold: Holding;

    /// Turns after which a spin reads the clock for the first time. Most spins end sooner, and
    /// reading the clock takes as long as a turn; but a spin may last longer than its budget by as
    /// many turns. 0 where the clock costs nothing, or where [`relax`](Self::relax) has to know
    /// when the spin ends.
    const TURNS_BEFORE_CLOCK: u32 = 0;

    /// How often a thread that waits for another looks again before it sleeps: three times after a
    /// few PAUSEs, then after yields. More: among more threads than CPUs it is switched to in vain.
    /// Fewer: it sleeps, and must be woken. A checker, to which one is as good as ten, may have
    /// fewer.
    const ROUNDS_BEFORE_SLEEP: u32 = 10;

    /// Sleeps while `word` holds `expected`, until [`unpark`](Self::unpark) is called on the same
    /// word or [`now`](Self::now) reaches `deadline`. May wake up spuriously, so callers loop.
    /// Comparing the word and going to sleep are one atomic step with respect to `unpark`.
    fn park(word: &Self::AtomicU32, expected: u32, deadline: Option<u64>);

    /// Wakes one thread that is parked on `word`. Only the address is used: the word may be gone
    /// already, which costs at most a spurious wake-up of another thread.
    fn unpark(word: *const Self::AtomicU32);

    /// As [`unpark`](Self::unpark), but wakes up to `most` of these threads in one call. How many
    /// it woke; 0 where the system does not tell. The locks of this crate do without; those of
    /// other libraries, which are written again to be compared with them, need it. Where the system
    /// cannot wake a number of threads, all of them wake up.
    fn unpark_many(_word: *const Self::AtomicU32, _most: u32) -> u32 {
        unreachable!("this platform wakes threads one by one");
    }

    /// As [`park`](Self::park), for a word in memory that several processes map, at whatever
    /// addresses. A platform whose `park` sees only the threads of one process has to implement it.
    fn park_shared(word: &Self::AtomicU32, expected: u32, deadline: Option<u64>) {
        Self::park(word, expected, deadline);
    }

    /// Wakes one thread, of any process, that is parked on `word` by
    /// [`park_shared`](Self::park_shared). Otherwise as [`unpark`](Self::unpark).
    fn unpark_shared(word: *const Self::AtomicU32) {
        Self::unpark(word);
    }

    /// As [`unpark_shared`](Self::unpark_shared), but wakes all of these threads.
    fn unpark_all_shared(_word: *const Self::AtomicU32) {
        unreachable!("this platform has no memory that processes share");
    }

    /// One turn of a spin, a PAUSE: the caller has nothing to do until another CPU writes what it
    /// has just read, or until the moment `until`. True if the platform knows that this moment has
    /// passed; a caller that gets false looks at the clock now and then (`spin_budget.rs`). A
    /// simulated platform skips to the next event, so the caller must read every word that it waits
    /// for anew between two calls.
    fn relax(until: Option<u64>) -> bool;

    /// As [`relax`](Self::relax), for a spin that ends after a number of turns instead of at a
    /// moment, and has `turns` of them left. How many have passed: at least one.
    fn relax_turns(_turns: u32) -> u32 {
        Self::relax(None);
        1
    }

    /// Gives up the CPU, because another thread is in the middle of a few instructions for which
    /// this one waits. `attempt` counts the calls during one wait. Where threads have priorities,
    /// the platform must sleep once `attempt` grows; otherwise a real-time caller could wait for
    /// ever. `u32::MAX` sleeps at once, also where no instructions are waited for: a thread that
    /// yields may come straight back.
    fn give_way(attempt: u32);

    /// Lets another thread run for a moment, if one is ready. False if this thread should sleep
    /// instead: lately, a thread that computes has kept the CPU.
    fn yield_briefly() -> bool {
        Self::give_way(0);
        true
    }

    /// Counts this thread's calls, without writing to a shared cache line: for what should happen
    /// only once in a number of calls.
    fn turn() -> u32;

    /// The monotonic clock: ns since an arbitrary start.
    fn now() -> u64;

    /// What a wake-up costs here, in ns, from the call until the woken thread runs: a running
    /// estimate over all locks. Before the first measurement, [`WAKE_LATENCY_AT_FIRST`].
    fn wake_latency() -> u32;

    /// Adds one measured wake-up, in ns, to the estimate.
    fn note_wake_latency(ns: u32);

    /// How many threads can run at once, at most; `u32::MAX` where that is unknown.
    fn cpus() -> u32 {
        u32::MAX
    }

    /// What a constant of the locks that was found by trial is here: its value, but on a simulated
    /// platform that tries others. The answer stays the same while threads use locks.
    #[inline(always)]
    fn tuned(constant: Tunable) -> u32 {
        constant.value()
    }

    /// The CPU on which this thread runs, plus one; 0 where that is unknown or expensive to ask.
    fn cpu() -> u32;

    /// Memory for what the locks of a process share: the records of its threads, and pooled queues.
    /// A thread asks for it, in blocks of a few KiB, when it waits or takes its first lock while
    /// more records or queues are in use than ever before. The memory is kept until the process
    /// ends, so most waits ask for nothing. Null if there is none; locks then do without.
    ///
    /// By default it comes from the system's allocator, so that the program's own may take locks of
    /// this crate. Where the system's allocator itself may take these locks, as in a library that
    /// replaces the C library's, the platform has to get memory elsewhere, for instance by mmap(2).
    ///
    /// # Safety
    /// The layout's size is not 0.
    unsafe fn allocate(layout: Layout) -> *mut u8 {
        // SAFETY: the layout's size is not 0, as the caller promises.
        unsafe { System.alloc(layout) }
    }

    /// Frees what [`allocate`](Self::allocate) returned: memory that a thread does not need after
    /// all because another thread was faster, and all of it when a simulated process ends.
    ///
    /// # Safety
    /// The memory was allocated for this layout by this platform, and nobody uses it any more.
    unsafe fn deallocate(memory: *mut u8, layout: Layout) {
        // SAFETY: allocated by `System` for this layout and no longer used, as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    /// Whether [`barrier_on_all_cpus`](Self::barrier_on_all_cpus) works here. The answer never
    /// changes while locks are in use.
    fn is_asymmetric() -> bool {
        false
    }

    /// The cheap side of an asymmetric barrier; it mostly restrains the compiler. Suppose that one
    /// thread calls it between a store and a load, and another calls
    /// [`barrier_on_all_cpus`](Self::barrier_on_all_cpus) between a store and a load of its own.
    /// Then it acts like a [`fence`](Self::fence): at least one of the two loads sees the other
    /// thread's store.
    fn asymmetric_light() {}

    /// The expensive side of an asymmetric barrier: a full barrier on every CPU that runs a thread
    /// of this process, at some moment between call and return that may differ from CPU to CPU, and
    /// on the caller's own CPU at both the call and the return. It takes microseconds and
    /// interrupts other CPUs, so that [`asymmetric_light`](Self::asymmetric_light) costs nothing.
    /// It must not be called where [`is_asymmetric`](Self::is_asymmetric) answers no.
    fn barrier_on_all_cpus() {
        unreachable!("this platform said that it has no asymmetric barrier");
    }

    /// Like [`core::sync::atomic::fence`] with `SeqCst`.
    fn fence() {
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    /// A [`fence`](Self::fence) for a thread that has just updated a word, or has read what such a
    /// thread wrote afterwards. Costs nothing where every atomic update is itself a fence.
    fn fence_after_update() {
        Self::fence();
    }

    /// A Release store followed by a [`fence`](Self::fence); a single exchange where that does the
    /// same and is cheaper.
    fn store_and_fence(word: &Self::AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
        Self::fence();
    }
}

/// Why nothing sleeps where locks are models: it would do so for ever, as all threads of a model
/// are one.
const NOT_MODELLED: &str = "a lock that is no model has to wait: with `--cfg loom` use only RwLock, RwSem, Mutex, Condvar and \
     ReentrantMutex";

/// Tells the compiler that the branch which calls it is hardly ever taken. An older compiler may not
/// understand; `core::hint::cold_path` needs Rust 1.95.
#[doc(hidden)]
#[cold]
#[inline]
pub fn cold_path() {}

/// As the attempt of a [`Platform::give_way`]: sleeps at once, so that another thread on this CPU
/// runs.
pub(crate) const NAP: u32 = u32::MAX;

/// What [`Platform::wake_latency`] answers before any wake-up was measured: 5 µs, in ns. A guess
/// for bare metal, not a measurement; virtual machines have been measured at 3.4 µs and at 32 µs. A
/// wrong guess makes the first spins too short or too long, until some wake-ups have been measured.
pub const WAKE_LATENCY_AT_FIRST: u32 = 5_000;

/// The estimate of a wake-up, in ns, after one more sample: it moves an eighth of the way towards
/// the sample. A sample counts for at most twice the estimate, and for at most 100 µs, because a
/// thread that had to wait for a CPU says little about wake-ups.
///
/// ```
/// use fairlock::platform::smoothed_wake_latency;
/// assert_eq!(smoothed_wake_latency(8_000, 16_000), 9_000);
/// ```
pub fn smoothed_wake_latency(estimate: u32, sample: u32) -> u32 {
    /// Caps a sample, ns. A lower cap underestimates slow machines; a higher one lets preempted
    /// threads count. Chosen, not measured: above the longest wake-up that was measured.
    const MOST: u32 = 100_000;
    /// The estimate never falls below this, ns, so that spins do not vanish. Chosen, not
    /// measured: below the shortest wake-up that was measured.
    const LEAST: u32 = 1_000;
    let sample = sample.min(estimate.saturating_mul(2)).min(MOST);
    (estimate - estimate / 8 + sample / 8).max(LEAST)
}

/// A timeout as a deadline on the platform's clock; none if it lies beyond the clock's end.
pub(crate) fn after<P: Platform>(timeout: Duration) -> Option<u64> {
    P::now().checked_add(u64::try_from(timeout.as_nanos()).ok()?)
}

/// As [`after`], for a moment of std's clock.
pub(crate) fn until<P: Platform>(instant: Instant) -> Option<u64> {
    after::<P>(instant.saturating_duration_since(Instant::now()))
}

/// Loads, stores and exchanges with std's names and meaning.
///
/// # Safety
/// An implementation promises what std's atomics do: every operation is one step on one value,
/// ordered as its `Ordering` says, and none unwinds.
///
/// ```compile_fail,E0200
/// use fairlock::platform::AtomicCell;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// struct Liar(AtomicU64);
/// impl AtomicCell<u64> for Liar {
///     const ZERO: Self = Liar(AtomicU64::new(0));
///     fn new(value: u64) -> Self { Liar(AtomicU64::new(value)) }
///     fn value(&mut self) -> u64 { 0 }
///     fn load(&self, _: Ordering) -> u64 { 0 }
///     fn store(&self, _: u64, _: Ordering) {}
///     fn swap(&self, _: u64, _: Ordering) -> u64 { 0 }
///     fn compare_exchange(&self, old: u64, _: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
///         Ok(old)
///     }
///     fn compare_exchange_weak(
///         &self, old: u64, _: u64, _: Ordering, _: Ordering,
///     ) -> Result<u64, u64> {
///         Ok(old)
///     }
/// }
/// ```
pub unsafe trait AtomicCell<V: Copy>: Send + Sync {
    /// Zero or null: the state of every fresh lock, usable in statics.
    const ZERO: Self;
    /// As in std.
    fn new(value: V) -> Self;
    /// The value, where nobody else has access. To a checker it is no operation. As std's
    /// `get_mut`.
    fn value(&mut self) -> V;
    /// As in std.
    fn load(&self, order: Ordering) -> V;
    /// As in std.
    fn store(&self, value: V, order: Ordering);
    /// As in std.
    fn swap(&self, value: V, order: Ordering) -> V;
    /// As in std.
    ///
    /// # Errors
    /// The value found, if it was not `current`.
    fn compare_exchange(
        &self,
        current: V,
        new: V,
        success: Ordering,
        failure: Ordering,
    ) -> Result<V, V>;
    /// As in std: may fail although the value is `current`.
    ///
    /// # Errors
    /// The value found.
    fn compare_exchange_weak(
        &self,
        current: V,
        new: V,
        success: Ordering,
        failure: Ordering,
    ) -> Result<V, V>;
}

/// [`AtomicCell`] with arithmetic.
///
/// # Safety
/// What [`AtomicCell`] asks for, and that sums and differences wrap.
pub unsafe trait AtomicInt<V: Copy>: AtomicCell<V> {
    /// As in std.
    fn fetch_add(&self, value: V, order: Ordering) -> V;
    /// As in std.
    fn fetch_sub(&self, value: V, order: Ordering) -> V;
    /// As in std.
    fn fetch_or(&self, value: V, order: Ordering) -> V;
    /// As in std.
    fn fetch_and(&self, value: V, order: Ordering) -> V;
}

/// Get and set with [`core::cell::Cell`]'s names and meaning.
///
/// # Safety
/// An implementation promises what std's cells do, also across threads whose accesses a lock
/// orders: `get` returns what was set last, and neither function unwinds.
pub unsafe trait PlainCell<T: Zeroed> {
    /// Zero or null, usable in statics.
    const ZERO: Self;
    /// As in std.
    fn get(&self) -> T;
    /// As in std.
    fn set(&self, value: T);
}

/// Values that a [`PlainCell`] can start with. It is safe to implement, as locks keep only values
/// of the types below and of their own types.
pub trait Zeroed: Copy {
    /// Zero, null or none.
    const ZERO: Self;
}

impl Zeroed for u8 {
    const ZERO: Self = 0;
}

impl Zeroed for u16 {
    const ZERO: Self = 0;
}

impl Zeroed for u32 {
    const ZERO: Self = 0;
}

impl Zeroed for u64 {
    const ZERO: Self = 0;
}

impl Zeroed for *const () {
    const ZERO: Self = core::ptr::null();
}

impl<T: Copy> Zeroed for Option<T> {
    const ZERO: Self = None;
}
