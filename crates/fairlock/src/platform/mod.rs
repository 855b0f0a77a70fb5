//! The seam between the locks and what they run on.
//!
//! Every lock is generic over a [`Platform`] with [`Os`] as the one users get. The same
//! source therefore runs on real threads, under a model checker (the test suite
//! implements `Platform` over Loom) and on a simulated machine. Lock code reads like
//! plain Rust with std atomics: the traits below have std's method names and orderings.
//!
//! Not for: policy. A platform says how to sleep and what time it is, never who is next.

mod membarrier;
mod os;

use core::sync::atomic::Ordering;
use std::alloc::{GlobalAlloc, Layout, System};
use std::time::{Duration, Instant};

pub use os::{Counting, Os, Symmetric};

use crate::events::CountEvents;

/// What a lock needs from the world it runs in.
///
/// Implement it to run Fairlock's locks somewhere else, for instance under a checker.
/// Users of the locks never name it.
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
/// Locks rely on a platform for the soundness of what they protect. Whoever implements one promises:
/// * Its atomics, cells and fences are what they say: [`AtomicCell`], [`AtomicInt`], [`PlainCell`];
///   [`fence`](Self::fence), [`fence_after_update`](Self::fence_after_update),
///   [`store_and_fence`](Self::store_and_fence). If [`is_asymmetric`](Self::is_asymmetric) answers yes it
///   always does so, and then the asymmetric barrier is one, too.
/// * [`allocate`](Self::allocate) answers null, or memory for this layout that is nobody else's.
/// * No function unwinds, nor does one of [`Counters`](Self::Counters); but for
///   [`check_recursion`](Self::check_recursion), which is called before anything is done.
/// * A thread that [`park`](Self::park)s goes on with the same stack, if it does.
///
/// Waking up late, or never, and clocks that are wrong cost time, not soundness.
///
/// Safe code cannot make a platform of its own, nor its parts:
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
    /// Per-lock event counters; a zero-sized type where nothing is counted.
    type Counters: CountEvents;

    /// Spins read the clock for the first time after so many turns: most end sooner, and reading it
    /// takes as long as a turn. 0 where the clock costs nothing or [`relax`](Self::relax) has to
    /// know the end.
    const TURNS_BEFORE_CLOCK: u32 = 0;

    /// Sleeps while `word` holds `expected`, until [`unpark`](Self::unpark) on the same word or
    /// until [`now`](Self::now) reaches `deadline`. May return early for no reason, so callers
    /// loop. Comparing and going to sleep are one atomic step against `unpark`.
    fn park(word: &Self::AtomicU32, expected: u32, deadline: Option<u64>);

    /// Wakes one thread parked on `word`. Only the address is used: the word may be gone
    /// already, which costs at most a wake-up that its receiver shrugs off.
    fn unpark(word: *const Self::AtomicU32);

    /// As [`park`](Self::park), for a word in memory that several processes map, at whatever
    /// addresses. A platform whose `park` knows threads of one process only needs its own.
    fn park_shared(word: &Self::AtomicU32, expected: u32, deadline: Option<u64>) {
        Self::park(word, expected, deadline);
    }

    /// Wakes one thread, of any process, parked on `word` by [`park_shared`](Self::park_shared).
    /// As [`unpark`](Self::unpark) otherwise.
    fn unpark_shared(word: *const Self::AtomicU32) {
        Self::unpark(word);
    }

    /// Wakes all of those.
    fn unpark_all_shared(_word: *const Self::AtomicU32) {
        unreachable!("this platform has no memory that processes share");
    }

    /// "Nothing changes until another CPU writes what I just read, or until this moment of the
    /// clock": a PAUSE. True if the platform knows that the moment has passed; where it does not,
    /// the caller looks at the clock now and then (`spin_budget.rs`). A platform that simulates
    /// skips to the next event, so every word that the spin waits for is to be read anew between
    /// two calls.
    fn relax(until: Option<u64>) -> bool;

    /// Gives the CPU away because another thread is in the middle of a few instructions that
    /// this one waits for. `attempt` counts the calls for the same wait; a platform with
    /// priorities must sleep when it grows, or a real-time caller could wait for ever.
    fn give_way(attempt: u32);

    /// Counts this thread's calls: for what should happen at every so many-th time only, without
    /// writing to a shared line.
    fn turn() -> u32;

    /// Monotonic nanoseconds since an arbitrary start.
    fn now() -> u64;

    /// What a wake-up costs here, ns, from the call to the woken thread running: a running
    /// estimate over all locks.
    fn wake_latency() -> u32;

    /// Reports one such time to the estimate.
    fn note_wake_latency(ns: u32);

    /// The CPU this thread runs on, plus one; zero where that is unknown or dear to ask.
    fn cpu() -> u32;

    /// Memory for what the locks of a process share: the records of its threads, waiting rooms. Asked
    /// for by threads that have to wait or that take their first lock, in blocks of a few KiB, when
    /// more records or rooms are in use than ever before, and kept for as long as the process lives:
    /// most waits ask for nothing. Null if there is none; then they do without.
    ///
    /// By default from the system's allocator, so that the program's own may take locks of this crate.
    /// A platform for locks that the system's allocator itself may take, as a library that replaces
    /// the C library's locks has, is to get it elsewhere, for instance by mmap(2).
    ///
    /// # Safety
    /// The layout's size is not 0.
    unsafe fn allocate(layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    /// Takes back what [`allocate`](Self::allocate) gave: what a thread turns out not to need, as
    /// another was faster, and everything at the end of a process if that is a simulated one.
    ///
    /// # Safety
    /// The memory was allocated for this layout by this platform, and nobody uses it any more.
    unsafe fn deallocate(memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(memory, layout) }
    }

    /// Whether [`barrier_on_all_cpus`](Self::barrier_on_all_cpus) works here. Asked once at the
    /// beginning, so the answer does not change while locks are in use.
    fn is_asymmetric() -> bool {
        false
    }

    /// The cheap side of an asymmetric barrier, mostly for the compiler. Between a store and a load
    /// it has the effect of [`fence`](Self::fence) against a thread that calls
    /// [`barrier_on_all_cpus`](Self::barrier_on_all_cpus) between its own store and load: not both
    /// loads can miss the other's store.
    fn asymmetric_light() {}

    /// A full barrier on every CPU that runs a thread of this process, at some moment between call
    /// and return, which need not be the same for all; on the caller's own at both. The expensive side
    /// of an asymmetric barrier: it takes microseconds and interrupts other CPUs, so that
    /// [`asymmetric_light`](Self::asymmetric_light) takes nothing. Not to be called where
    /// [`is_asymmetric`](Self::is_asymmetric) answers no.
    fn barrier_on_all_cpus() {
        unreachable!("this platform said that it has no asymmetric barrier");
    }

    /// Like [`core::sync::atomic::fence`] with `SeqCst`.
    fn fence() {
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    /// A [`fence`](Self::fence) by a thread that has just updated a word, or has read what a thread
    /// wrote that did: nothing where every atomic update is a fence itself.
    fn fence_after_update() {
        Self::fence();
    }

    /// A Release store followed by a [`fence`](Self::fence); one exchange where that is the same and
    /// cheaper.
    fn store_and_fence(word: &Self::AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
        Self::fence();
    }

    /// Whether the three functions below do anything.
    const CHECKS_RECURSION: bool = false;

    /// Called before this thread waits for `lock`: panics with `message` if it holds the lock shared already.
    /// `lock` is an address, or an odd number that is no other lock's. Debug builds only; see
    /// [`crate::rwsem`] on recursion.
    #[cfg_attr(debug_assertions, track_caller)]
    fn check_recursion(_lock: *const (), _message: &'static str) {}

    /// This thread now holds `lock` shared. Debug builds only.
    fn note_shared(_lock: *const ()) {}

    /// This thread no longer holds `lock` shared. Debug builds only.
    fn forget_shared(_lock: *const ()) {}
}

/// What [`Platform::wake_latency`] answers before any wake-up was measured, ns: a value for bare
/// metal. Virtual machines have been measured at 3.4 µs and at 32 µs.
pub const WAKE_LATENCY_AT_FIRST: u32 = 5_000;

/// The estimate of a wake-up after one more sample: moved an eighth of the way to it. A sample
/// counts for at most twice the estimate and 100 µs: a thread that had to wait for a CPU says
/// little about wake-ups.
///
/// ```
/// use fairlock::platform::smoothed_wake_latency;
/// assert_eq!(smoothed_wake_latency(8_000, 16_000), 9_000);
/// ```
pub fn smoothed_wake_latency(estimate: u32, sample: u32) -> u32 {
    const MOST: u32 = 100_000;
    const LEAST: u32 = 1_000;
    let sample = sample.min(estimate.saturating_mul(2)).min(MOST);
    (estimate - estimate / 8 + sample / 8).max(LEAST)
}

/// A timeout as a deadline on the platform's clock; none if it lies beyond the clock's end.
pub(crate) fn after<P: Platform>(timeout: Duration) -> Option<u64> {
    P::now().checked_add(u64::try_from(timeout.as_nanos()).ok()?)
}

/// As [`after`], for a moment.
pub(crate) fn until<P: Platform>(instant: Instant) -> Option<u64> {
    after::<P>(instant.saturating_duration_since(Instant::now()))
}

/// Loads, stores and exchanges with std's names and meaning.
///
/// # Safety
/// It is as std's: every operation is one step on one value, ordered as it says, and none unwinds.
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
    /// The value, where nobody else has access: no operation as far as a checker is concerned. As
    /// std's `get_mut`.
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
/// As [`AtomicCell`]; sums and differences wrap.
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
/// It is as std's: `get` answers what was set last, by whichever thread that ordered it before, and
/// neither unwinds.
pub unsafe trait PlainCell<T: Zeroed> {
    /// Zero or null, usable in statics.
    const ZERO: Self;
    /// As in std.
    fn get(&self) -> T;
    /// As in std.
    fn set(&self, value: T);
}

/// Values that a [`PlainCell`] can start with. Safe to implement: locks keep only values of the types below,
/// and of their own.
pub trait Zeroed: Copy {
    /// Zero, null or none.
    const ZERO: Self;
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
