//! Real threads on Linux: std atomics, the futex, the monotonic clock.

use core::cell::Cell;
use core::sync::atomic::Ordering::{self, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, compiler_fence, fence};

use super::membarrier;
use super::{
    AtomicCell, AtomicInt, PlainCell, Platform, WAKE_LATENCY_AT_FIRST, Zeroed,
    smoothed_wake_latency,
};
use crate::events::{Counters, NoCounters};

/// Real threads: what every lock uses unless told otherwise.
#[derive(Debug, Clone, Copy)]
pub struct Os;

/// [`Os`] with [lock events](crate::events) counted per lock.
#[derive(Debug, Clone, Copy)]
pub struct Counting;

/// [`Os`] as it is where the kernel has no asymmetric barrier, to test and to measure that.
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

macro_rules! real_threads {
    ($platform:ident, $counters:ty, $asymmetric:expr) => {
        // SAFETY: atomics, cells and fences are std's. The barrier is the kernel's, and whether there is
        // one does not change (membarrier.rs). Memory comes from the system's allocator. Nothing unwinds,
        // as system calls return errors.
        unsafe impl Platform for $platform {
            type AtomicU32 = AtomicU32;
            type AtomicU64 = AtomicU64;
            type AtomicPtr<T> = AtomicPtr<T>;
            type Cell<T: Zeroed> = Cell<T>;
            type Counters = $counters;
            type Hold = crate::held::Unchecked;
            /// Chosen, not measured: half of the turns between two later looks (`spin_budget.rs`).
            const TURNS_BEFORE_CLOCK: u32 = 8;

            fn park(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
                futex_wait(word, expected, deadline, libc::FUTEX_PRIVATE_FLAG);
            }
            fn unpark(word: *const AtomicU32) {
                futex_wake(word, 1, libc::FUTEX_PRIVATE_FLAG);
            }
            fn park_shared(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
                futex_wait(word, expected, deadline, 0);
            }
            fn unpark_shared(word: *const AtomicU32) {
                futex_wake(word, 1, 0);
            }
            fn unpark_all_shared(word: *const AtomicU32) {
                futex_wake(word, libc::c_int::MAX, 0);
            }
            #[inline(always)]
            fn relax(_until: Option<u64>) -> bool {
                core::hint::spin_loop();
                false
            }
            fn give_way(attempt: u32) {
                give_way(attempt);
            }
            #[inline]
            fn turn() -> u32 {
                next_turn()
            }
            #[inline]
            fn now() -> u64 {
                monotonic_ns()
            }
            fn wake_latency() -> u32 {
                WAKE_LATENCY.load(Ordering::Relaxed)
            }
            fn note_wake_latency(ns: u32) {
                note_wake_latency(ns);
            }
            fn cpus() -> u32 {
                online_cpus()
            }
            #[inline(always)]
            fn cpu() -> u32 {
                current_cpu()
            }
            fn is_asymmetric() -> bool {
                $asymmetric
            }
            #[inline(always)]
            fn asymmetric_light() {
                compiler_fence(SeqCst);
            }
            fn barrier_on_all_cpus() {
                membarrier::on_all_cpus();
            }
            #[inline(always)]
            fn fence() {
                fence(SeqCst);
            }
            #[inline(always)]
            fn fence_after_update() {
                if cfg!(any(target_arch = "x86_64", target_arch = "x86")) {
                    compiler_fence(SeqCst);
                } else {
                    fence(SeqCst);
                }
            }
            #[inline(always)]
            fn store_and_fence(word: &AtomicU64, value: u64) {
                if cfg!(any(target_arch = "x86_64", target_arch = "x86")) {
                    // Every locked instruction is a full fence there.
                    word.swap(value, SeqCst);
                } else {
                    word.store(value, Ordering::Release);
                    fence(SeqCst);
                }
            }
        }
    };
}

real_threads!(Os, NoCounters, membarrier::is_asymmetric());
real_threads!(Counting, Counters, membarrier::is_asymmetric());
real_threads!(Symmetric, NoCounters, false);

/// How many CPUs the machine has; 0 until somebody asked.
static ONLINE_CPUS: AtomicU32 = AtomicU32::new(0);

/// The machine's CPUs when this was first called, which may read a file. Not those that this thread may use: others may
/// use more.
fn online_cpus() -> u32 {
    match ONLINE_CPUS.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: asks for a number.
            let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
            let online = u32::try_from(online).ok().filter(|&it| it > 0).unwrap_or(u32::MAX);
            ONLINE_CPUS.store(online, Ordering::Relaxed);
            online
        }
        known => known,
    }
}

/// What a wake-up costs in this process, ns: a running estimate.
static WAKE_LATENCY: AtomicU32 = AtomicU32::new(WAKE_LATENCY_AT_FIRST);

/// May lose a concurrent sample. A change by less than a thirty-second is not written, which leaves the
/// line shared.
fn note_wake_latency(ns: u32) {
    let old = WAKE_LATENCY.load(Ordering::Relaxed);
    let new = smoothed_wake_latency(old, ns);
    if new.abs_diff(old) > old / 32 {
        WAKE_LATENCY.store(new, Ordering::Relaxed);
    }
}

/// FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC, so a wait that is repeated
/// after a signal does not become longer. `private` is FUTEX_PRIVATE_FLAG, or 0 for memory that other
/// processes map, too.
fn futex_wait(word: &AtomicU32, expected: u32, deadline: Option<u64>, private: libc::c_int) {
    if cfg!(loom) {
        panic!("{}", super::NOT_MODELLED);
    }
    let timeout = deadline.map(|ns| libc::timespec {
        tv_sec: libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    let timeout = timeout.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: `word` is a live, aligned u32, and `timeout` is null or points to a live timespec. The errors
    // (EAGAIN, EINTR, ETIMEDOUT) all mean that the caller has to look again, which callers do.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | private,
            expected,
            timeout,
            core::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        );
    }
}

fn futex_wake(word: *const AtomicU32, most: libc::c_int, private: libc::c_int) {
    // SAFETY: FUTEX_WAKE does not read the word; it uses the address alone, which the kernel looks up if
    // the futex is shared. If the word is gone, that wakes nobody, or a thread that looks again.
    unsafe {
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | private, most);
    }
}

/// Among threads of equal priority, a yield is enough. A real-time thread that yields continues at once, so
/// after a few yields it sleeps, which lets the thread it waits for run, whatever that thread's priority.
/// It sleeps by the bare system call, as the C library's function is a point at which threads are
/// cancelled.
fn give_way(attempt: u32) {
    /// Yields before the first nap. Fewer: a thread naps where a yield would have been enough. More: a
    /// real-time thread keeps its CPU for longer. Chosen, not measured.
    const YIELDS: u32 = 16;
    /// A nap, ns: as long as Linux's default timer slack, by which it may be late anyway.
    const NAP_NS: libc::c_long = 50_000;
    // SAFETY: plain system calls; the timespec lives on this stack.
    unsafe {
        if attempt < YIELDS {
            libc::sched_yield();
        } else {
            let nap = libc::timespec { tv_sec: 0, tv_nsec: NAP_NS };
            let none = core::ptr::null_mut::<libc::timespec>();
            libc::syscall(libc::SYS_nanosleep, &nap, none);
        }
    }
}

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

#[inline]
fn monotonic_ns() -> u64 {
    let mut time = core::mem::MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: CLOCK_MONOTONIC always exists on Linux, so the call fills `time`.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The CPU on which this thread runs, plus one: two loads, no call. The kernel keeps it up to date as
/// `cpu_id` in this thread's rseq area, which glibc (2.35 and later) registers at `__rseq_offset` from the
/// thread pointer. Where the C library has no such symbol, its address is null and the answer is 0:
/// unknown. An area that could not be registered holds -1 or -2, for which the answer is 0 or `u32::MAX`:
/// no CPU either.
#[cfg(any(all(target_arch = "x86_64", target_pointer_width = "64"), target_arch = "aarch64"))]
#[inline(always)]
fn current_cpu() -> u32 {
    let offset: *const isize;
    // SAFETY: reads the symbol's entry in the global offset table; weak, so null if absent.
    unsafe {
        core::arch::asm!(
            ".weak __rseq_offset",
            #[cfg(target_arch = "x86_64")]
            "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            #[cfg(target_arch = "aarch64")]
            "adrp {offset}, :got:__rseq_offset",
            #[cfg(target_arch = "aarch64")]
            "ldr {offset}, [{offset}, :got_lo12:__rseq_offset]",
            offset = out(reg) offset,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    if offset.is_null() {
        return 0;
    }
    let cpu: u32;
    // SAFETY: glibc initialised the offset before `main` and the area lives as long as the thread. The
    // thread pointer is `fs` on x86-64 and `tpidr_el0` on aarch64.
    unsafe {
        core::arch::asm!(
            #[cfg(target_arch = "x86_64")]
            "mov {cpu:e}, dword ptr fs:[{offset} + 4]",
            #[cfg(target_arch = "aarch64")]
            "mrs {pointer}, tpidr_el0",
            #[cfg(target_arch = "aarch64")]
            "add {pointer}, {pointer}, {offset}",
            #[cfg(target_arch = "aarch64")]
            "ldr {cpu:w}, [{pointer}, #4]",
            #[cfg(target_arch = "aarch64")]
            pointer = out(reg) _,
            offset = in(reg) *offset,
            cpu = lateout(reg) cpu,
            options(readonly, nostack, preserves_flags),
        );
    }
    cpu.wrapping_add(1)
}

#[cfg(not(any(
    all(target_arch = "x86_64", target_pointer_width = "64"),
    target_arch = "aarch64"
)))]
#[inline(always)]
fn current_cpu() -> u32 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_of_a_pinned_thread_is_the_one_it_is_pinned_to() {
        if current_cpu() == 0 {
            return; // This C library registers no rseq area: unknown is the right answer.
        }
        // SAFETY: an all-zero cpu_set_t is empty; the calls get live pointers of the right size.
        let cpu = unsafe {
            let mut set: libc::cpu_set_t = core::mem::zeroed();
            libc::sched_getaffinity(0, size_of_val(&set), &mut set);
            let cpu = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &set));
            let cpu = cpu.expect("a thread may run somewhere");
            let mut one: libc::cpu_set_t = core::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
            cpu
        };
        assert_eq!(current_cpu() as usize, cpu + 1);
    }

    #[test]
    fn park_returns_at_its_deadline_and_when_the_word_differs() {
        let word = AtomicU32::new(1);
        Os::park(&word, 2, None);
        let deadline = Os::now() + 100_000;
        while Os::now() < deadline {
            Os::park(&word, 1, Some(deadline));
        }
    }
}
