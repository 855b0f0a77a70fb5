//! Real threads: std's atomics, and what the operating system has to sleep by, to tell the time by,
//! and to pass barriers by.
//!
//! | file | systems | sleeps by | asymmetric barrier | CPU of a thread |
//! |---|---|---|---|---|
//! | `linux/` | Linux | futex(2) | membarrier(2) | from its rseq area |
//! | `windows.rs` | Windows | `WaitOnAddress` | `FlushProcessWriteBuffers`, on x86 | unknown |
//! | `elsewhere.rs` | macOS, the BSDs and others | `parking_lot_core` | none | unknown |
//!
//! Each offers the same functions. Without an asymmetric barrier locks use full fences on both
//! sides. Without the CPU a thread cannot see that it shares one with the thread for which it
//! spins, so it spins to the end of its budget.
//!
//! Linux runs on what `elsewhere.rs` offers if it is compiled with `--cfg fairlock_elsewhere`, so
//! that its tests run there, too.

#[allow(dead_code)] // each system uses what it has nothing better for
mod portable;
#[cfg(any(fairlock_elsewhere, not(any(target_os = "linux", windows))))]
#[path = "elsewhere.rs"]
mod system;
#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
#[path = "linux/mod.rs"]
mod system;
#[cfg(all(windows, not(fairlock_elsewhere)))]
#[path = "windows.rs"]
mod system;

use core::cell::Cell;
use core::sync::atomic::Ordering::{self, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, compiler_fence, fence};

use super::{
    AtomicCell, AtomicInt, NOT_MODELLED, PlainCell, Platform, WAKE_LATENCY_AT_FIRST, Zeroed,
    smoothed_wake_latency,
};
use crate::events::{Counters, NoCounters};

/// Real threads: what every lock uses unless told otherwise.
#[derive(Debug, Clone, Copy)]
pub struct Os;

/// [`Os`] with [lock events](crate::events) counted per lock.
#[derive(Debug, Clone, Copy)]
pub struct Counting;

/// [`Os`] as it is where the system has no asymmetric barrier, to test and to measure that.
#[derive(Debug, Clone, Copy)]
pub struct Symmetric;

macro_rules! std_cell {
    ([$($generic:tt)*] $atomic:ty, $value:ty, $zero:expr) => {
        // SAFETY: each function is the one of std's atomic that has its name.
        unsafe impl $($generic)* AtomicCell<$value> for $atomic {
            const ZERO: Self = <$atomic>::new($zero);
            #[inline(always)]
            fn new(value: $value) -> Self {
                <$atomic>::new(value)
            }
            #[inline(always)]
            fn value(&mut self) -> $value {
                *self.get_mut()
            }
            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }
            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }
            #[inline(always)]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }
            #[inline(always)]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
            #[inline(always)]
            fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange_weak(current, new, success, failure)
            }
        }
    };
}

macro_rules! std_int {
    ($atomic:ty, $value:ty) => {
        std_cell!([] $atomic, $value, 0);
        // SAFETY: each function is the one of std's atomic that has its name; std's sums wrap.
        unsafe impl AtomicInt<$value> for $atomic {
            #[inline(always)]
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.fetch_add(value, order)
            }
            #[inline(always)]
            fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.fetch_sub(value, order)
            }
            #[inline(always)]
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.fetch_or(value, order)
            }
            #[inline(always)]
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.fetch_and(value, order)
            }
        }
    };
}

std_int!(AtomicU32, u32);
std_int!(AtomicU64, u64);
std_cell!([<T>] AtomicPtr<T>, *mut T, core::ptr::null_mut());

// SAFETY: both functions are those of std's cell.
unsafe impl<T: Zeroed> PlainCell<T> for Cell<T> {
    const ZERO: Self = Cell::new(T::ZERO);
    #[inline(always)]
    fn get(&self) -> T {
        self.get()
    }
    #[inline(always)]
    fn set(&self, value: T) {
        self.set(value);
    }
}

/// Whether every locked instruction is a full fence, as on x86. Miri runs the language's model of
/// memory, whatever the target: there an update orders only what threads see of its own word.
const UPDATES_ARE_FENCES: bool =
    cfg!(all(any(target_arch = "x86_64", target_arch = "x86"), not(miri)));

macro_rules! real_threads {
    ($platform:ident, $counters:ty, $asymmetric:expr) => {
        // SAFETY: atomics, cells and fences are std's. The barrier is the system's, and whether
        // there is one does not change. Memory comes from the system's allocator. Nothing unwinds,
        // as system calls return errors.
        unsafe impl Platform for $platform {
            type AtomicU32 = AtomicU32;
            type AtomicU64 = AtomicU64;
            type AtomicPtr<T> = AtomicPtr<T>;
            type Cell<T: Zeroed> = Cell<T>;
            type Counters = $counters;
            type Hold = crate::held::OfOs;
            /// Chosen, not measured: half of the turns between two later looks (`spin_budget.rs`).
            const TURNS_BEFORE_CLOCK: u32 = 8;

            fn park(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
                assert!(!cfg!(loom), "{NOT_MODELLED}");
                system::park(word, expected, deadline);
            }
            fn unpark(word: *const AtomicU32) {
                system::unpark(word);
            }
            fn unpark_many(word: *const AtomicU32, most: u32) -> u32 {
                system::unpark_many(word, most)
            }
            #[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
            fn park_shared(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
                assert!(!cfg!(loom), "{NOT_MODELLED}");
                system::park_shared(word, expected, deadline);
            }
            #[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
            fn unpark_shared(word: *const AtomicU32) {
                system::unpark_shared(word, 1);
            }
            #[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
            fn unpark_all_shared(word: *const AtomicU32) {
                system::unpark_shared(word, libc::c_int::MAX);
            }
            #[inline(always)]
            fn relax(_until: Option<u64>) -> bool {
                core::hint::spin_loop();
                false
            }
            fn give_way(attempt: u32) {
                give_way(attempt);
            }
            fn yield_briefly() -> bool {
                yield_briefly()
            }
            #[inline]
            fn turn() -> u32 {
                next_turn()
            }
            #[inline]
            fn now() -> u64 {
                system::now()
            }
            fn wake_latency() -> u32 {
                WAKE_LATENCY.load(Ordering::Relaxed)
            }
            fn note_wake_latency(ns: u32) {
                note_wake_latency(ns);
            }
            fn cpus() -> u32 {
                cpus()
            }
            #[inline(always)]
            fn cpu() -> u32 {
                system::cpu()
            }
            fn is_asymmetric() -> bool {
                $asymmetric
            }
            #[inline(always)]
            fn asymmetric_light() {
                compiler_fence(SeqCst);
            }
            fn barrier_on_all_cpus() {
                system::barrier_on_all_cpus();
            }
            #[inline(always)]
            fn fence() {
                fence(SeqCst);
            }
            #[inline(always)]
            fn fence_after_update() {
                if UPDATES_ARE_FENCES {
                    compiler_fence(SeqCst);
                } else {
                    fence(SeqCst);
                }
            }
            #[inline(always)]
            fn store_and_fence(word: &AtomicU64, value: u64) {
                if UPDATES_ARE_FENCES {
                    word.swap(value, SeqCst);
                } else {
                    word.store(value, Ordering::Release);
                    fence(SeqCst);
                }
            }
        }
    };
}

real_threads!(Os, NoCounters, system::is_asymmetric());
real_threads!(Counting, Counters, system::is_asymmetric());
real_threads!(Symmetric, NoCounters, false);

/// How many CPUs the machine has; 0 until somebody asked.
static CPUS: AtomicU32 = AtomicU32::new(0);

/// The machine's CPUs when this was first called, which may read a file. Where the system tells,
/// not only those that this thread may use: others may use more.
fn cpus() -> u32 {
    match CPUS.load(Ordering::Relaxed) {
        0 => {
            let cpus = system::cpus().filter(|&cpus| cpus > 0).unwrap_or(u32::MAX);
            CPUS.store(cpus, Ordering::Relaxed);
            cpus
        }
        known => known,
    }
}

/// What a wake-up costs in this process, ns: a running estimate.
static WAKE_LATENCY: AtomicU32 = AtomicU32::new(WAKE_LATENCY_AT_FIRST);

/// May lose a concurrent sample. A change by less than a thirty-second is not written, which leaves
/// the line shared.
fn note_wake_latency(ns: u32) {
    let old = WAKE_LATENCY.load(Ordering::Relaxed);
    let new = smoothed_wake_latency(old, ns);
    if new.abs_diff(old) > old / 32 {
        WAKE_LATENCY.store(new, Ordering::Relaxed);
    }
}

/// Among threads of equal priority, a yield is enough. A real-time thread that yields continues at
/// once, so after a few yields it sleeps, which lets the thread it waits for run, whatever that
/// thread's priority.
fn give_way(attempt: u32) {
    /// Yields before the first nap. Fewer: a thread naps where a yield would have been enough.
    /// More: a real-time thread keeps its CPU for longer. Chosen, not measured.
    const YIELDS: u32 = 16;
    if attempt < YIELDS {
        std::thread::yield_now();
    } else {
        system::nap(NAP_NS);
    }
}

/// A yield that takes longer, ns, has given the CPU to a thread that computes. Less: threads that
/// use up their time slice among those that pass work to each other end the yields of all, and with
/// 0.5 ms a barrier of 16 threads had half its rate. More: waits next to such a thread take longer.
const DEAR_YIELD_NS: u64 = 5_000_000;

/// After a dear yield the process does without for this many times as long, so that a hundredth of
/// a thread's time is lost to them. Chosen, not measured.
const WITHOUT_YIELDS: u64 = 100;

/// When threads may yield again.
static NEXT_YIELD: AtomicU64 = AtomicU64::new(0);

/// Linux gives up the whole time slice at a yield: next to a thread that computes, seven of them
/// took 70 to 90 ms.
fn yield_briefly() -> bool {
    let before = Os::now();
    if before < NEXT_YIELD.load(Ordering::Relaxed) {
        return false;
    }
    std::thread::yield_now();
    let after = Os::now();
    let took = after.saturating_sub(before);
    if took > DEAR_YIELD_NS {
        NEXT_YIELD.store(after.saturating_add(WITHOUT_YIELDS * took), Ordering::Relaxed);
    }
    true
}

/// A nap, ns: as long as Linux's default timer slack, by which it may be late anyway.
const NAP_NS: u32 = 50_000;

#[inline]
fn next_turn() -> u32 {
    std::thread_local! {
        static TURN: Cell<u32> = const { Cell::new(0) };
    }
    TURN.with(|turn| {
        turn.set(turn.get().wrapping_add(1));
        turn.get()
    })
}

/// For tests: so long ago. Waits until the clock, which may have just begun, shows that much.
#[cfg(test)]
pub(crate) fn ago(ns: u64) -> u64 {
    loop {
        match Os::now().checked_sub(ns) {
            Some(then) => return then,
            None => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn park_returns_at_its_deadline_and_when_the_word_differs() {
        let word = AtomicU32::new(1);
        Os::park(&word, 2, None);
        let deadline = Os::now() + 100_000;
        while Os::now() < deadline {
            Os::park(&word, 1, Some(deadline));
        }
    }

    #[test]
    fn one_call_wakes_all_who_sleep_on_a_word() {
        const SLEEPERS: u32 = 3;
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..SLEEPERS {
                scope.spawn(|| {
                    while word.load(Ordering::Relaxed) == 0 {
                        Os::park(&word, 0, None);
                    }
                });
            }
            word.store(1, Ordering::Relaxed);
            // Fewer if somebody was not asleep yet, who then sees the change.
            assert!(Os::unpark_many(&word, u32::MAX) <= SLEEPERS);
        });
    }
}
