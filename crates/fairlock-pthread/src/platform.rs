//! The locks' platform inside an unmodified program: as [`Os`], with memory that does not come from
//! the program's allocator, and a record of each thread that is given back without a destructor of
//! a thread-local variable.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use fairlock::events::NoCounters;
use fairlock::platform::{Os, Platform, Zeroed};
use fairlock::process::{Host, Process};
use fairlock::slots::{EndedThread, Record};
use fairlock_counts::counting::note_place_of_wait;
use fairlock_counts::process::keeping_errno;
use fairlock_reference::linux::HasTable;

use crate::modes::LinuxWaiters;
use crate::thread::Thread;
use crate::{modes, start};

/// At least.
const PAGE: usize = 4096;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Preloaded;

// SAFETY: std's atomics and cells, the barriers and clocks of `Os`; memory is new pages. Nothing unwinds.
unsafe impl Platform for Preloaded {
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicPtr<T> = AtomicPtr<T>;
    type Cell<T: Zeroed> = Cell<T>;
    type Counters = NoCounters;
    type Hold = fairlock::platform::Unchecked;
    const TURNS_BEFORE_CLOCK: u32 = Os::TURNS_BEFORE_CLOCK;

    fn park(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
        keeping_errno(|| sleep(Os::park, word, expected, deadline));
    }
    fn unpark(word: *const AtomicU32) {
        keeping_errno(|| Os::unpark(word));
    }
    fn park_shared(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
        keeping_errno(|| sleep(Os::park_shared, word, expected, deadline));
    }
    fn unpark_shared(word: *const AtomicU32) {
        keeping_errno(|| Os::unpark_shared(word));
    }
    fn unpark_all_shared(word: *const AtomicU32) {
        keeping_errno(|| Os::unpark_all_shared(word));
    }

    unsafe fn allocate(layout: Layout) -> *mut u8 {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        if layout.align() > PAGE {
            return ptr::null_mut();
        }
        keeping_errno(|| {
            // SAFETY: new memory, which is aligned to a page.
            let memory = unsafe { libc::mmap(ptr::null_mut(), layout.size(), access, kind, -1, 0) };
            if memory == libc::MAP_FAILED { ptr::null_mut() } else { memory.cast() }
        })
    }
    unsafe fn deallocate(memory: *mut u8, layout: Layout) {
        // SAFETY: mapped by `allocate` in this size, and nobody uses it any more.
        keeping_errno(|| unsafe { libc::munmap(memory.cast(), layout.size()) });
    }

    #[inline(always)]
    fn relax(until: Option<u64>) -> bool {
        Os::relax(until)
    }
    fn give_way(attempt: u32) {
        keeping_errno(|| Os::give_way(attempt));
    }
    /// Not by `Os`: its variable is found by a call into the dynamic linker, which may allocate.
    #[inline]
    fn turn() -> u32 {
        Thread::with(|thread| {
            thread.turn.set(thread.turn.get().wrapping_add(1));
            thread.turn.get()
        })
    }
    #[inline]
    fn now() -> u64 {
        Os::now()
    }
    fn wake_latency() -> u32 {
        Os::wake_latency()
    }
    fn note_wake_latency(ns: u32) {
        Os::note_wake_latency(ns);
    }
    fn cpus() -> u32 {
        keeping_errno(Os::cpus)
    }
    #[inline(always)]
    fn cpu() -> u32 {
        Os::cpu()
    }
    fn is_asymmetric() -> bool {
        keeping_errno(Os::is_asymmetric)
    }
    #[inline(always)]
    fn asymmetric_light() {
        Os::asymmetric_light();
    }
    fn barrier_on_all_cpus() {
        keeping_errno(Os::barrier_on_all_cpus);
    }
    #[inline(always)]
    fn fence() {
        Os::fence();
    }
    #[inline(always)]
    fn fence_after_update() {
        Os::fence_after_update();
    }
    #[inline(always)]
    fn store_and_fence(word: &AtomicU64, value: u64) {
        Os::store_and_fence(word, value);
    }
}

// SAFETY: one static process; a thread's record, and what is left of it, are among that thread's own words.
unsafe impl Host for Preloaded {
    fn process() -> &'static Process<Self> {
        static PROCESS: Process<Preloaded> = Process::NEW;
        &PROCESS
    }

    /// Only where the locks need one: others do without, and then nothing is to be given back.
    #[inline(always)]
    fn thread() -> Option<&'static Record<Self>> {
        // SAFETY: null or a record, which live as long as the process.
        Thread::with(|thread| unsafe { thread.record.get().as_ref() }).or_else(new_record)
    }

    #[inline(always)]
    fn known_thread() -> Option<&'static Record<Self>> {
        // SAFETY: as above.
        Thread::with(|thread| unsafe { thread.record.get().as_ref() })
    }

    fn ended_thread() -> EndedThread<Self> {
        Thread::with(|thread| thread.ended.get())
    }
}

/// A sleep that lasts is interrupted once, so that the thread can note where it waits: most are over
/// before, and take nobody's time for that. It keeps its place in the lock's queue.
fn sleep(
    park: impl Fn(&AtomicU32, u32, Option<u64>),
    word: &AtomicU32,
    expected: u32,
    deadline: Option<u64>,
) {
    if let Some(lasts) = Thread::with(|thread| thread.counts.place_wanted_at()) {
        if Os::now() < lasts {
            if deadline.is_some_and(|deadline| deadline <= lasts) {
                return park(word, expected, deadline);
            }
            park(word, expected, Some(lasts));
            // Whoever wakes changes the word, so a wake-up between the two sleeps is not lost.
            if Os::now() < lasts || word.load(Relaxed) != expected {
                return;
            }
        }
        Thread::with(|thread| note_place_of_wait(&thread.counts));
    }
    park(word, expected, deadline);
}

#[cold]
fn new_record() -> Option<&'static Record<Preloaded>> {
    Thread::with(|thread| {
        if !modes::has_records() || !start::will_tell_its_end(&thread.counts) {
            return None;
        }
        let record = Preloaded::process().new_thread()?;
        thread.record.set(record);
        Some(record)
    })
}

/// The thread has come to its end.
pub(crate) fn thread_ends(thread: &Thread) {
    let record = thread.record.replace(ptr::null());
    // SAFETY: as in `Preloaded::thread`.
    if let Some(record) = unsafe { record.as_ref() } {
        // SAFETY: this thread's, which has just forgotten it.
        thread.ended.set(unsafe { Preloaded::process().thread_ended(record) });
    }
}

/// In the child of a `fork`, before anything else.
pub(crate) fn forked(thread: &Thread) {
    // SAFETY: the record as in `Preloaded::thread`; and this is the child of a `fork`.
    unsafe { Preloaded::process().forked(thread.record.get().as_ref()) };
    // SAFETY: in the child of a `fork` this thread is the only one.
    unsafe { LinuxWaiters::table().forked() };
}
