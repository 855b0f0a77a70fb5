//! The sharing of barriers by real threads: nobody returns before a barrier that began after its
//! call has ended, whoever ran it, and nobody waits for one that never ends.

#[path = "../../../fairlock/src/barrier.rs"]
mod shared_barrier;

use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::thread;

use fairlock::events::NoCounters;
use fairlock::platform::{Os, Platform, Zeroed};
use shared_barrier::SharedBarrier;

/// [`Os`] with barriers that are counted, and that do not end while they are `STUCK`. Each number
/// is a platform of its own.
struct Counted<const TEST: usize>;

static BEGUN: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
static STUCK: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
/// The highest number of a barrier that has ended; they count from 1.
static ENDED: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

// SAFETY: as `Os`, whose barriers are counted.
unsafe impl<const TEST: usize> Platform for Counted<TEST> {
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicPtr<T> = AtomicPtr<T>;
    type Cell<T: Zeroed> = Cell<T>;
    type Counters = NoCounters;
    type Hold = fairlock::platform::Unchecked;
    fn park(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
        Os::park(word, expected, deadline);
    }
    fn unpark(word: *const AtomicU32) {
        Os::unpark(word);
    }
    fn relax(until: Option<u64>) -> bool {
        Os::relax(until)
    }
    fn give_way(attempt: u32) {
        Os::give_way(attempt);
    }
    fn turn() -> u32 {
        Os::turn()
    }
    fn now() -> u64 {
        Os::now()
    }
    fn wake_latency() -> u32 {
        Os::wake_latency()
    }
    fn note_wake_latency(ns: u32) {
        Os::note_wake_latency(ns);
    }
    fn cpu() -> u32 {
        Os::cpu()
    }
    fn barrier_on_all_cpus() {
        let number = BEGUN[TEST].fetch_add(1, SeqCst) + 1;
        if Os::is_asymmetric() {
            Os::barrier_on_all_cpus();
        }
        // The first only.
        while number == 1 && STUCK[TEST].load(SeqCst) {
            thread::yield_now();
        }
        ENDED[TEST].fetch_max(number, SeqCst);
    }
}

/// The barriers of these tests end in the order of their beginnings but for those that a caller
/// ran because it had waited, which only make the highest number come sooner.
fn call<const TEST: usize>(shared: &SharedBarrier<Counted<TEST>>) {
    let before = BEGUN[TEST].load(SeqCst);
    shared.pass();
    assert!(ENDED[TEST].load(SeqCst) > before, "too early");
}

#[test]
fn whoever_returns_comes_after_a_barrier_that_began_after_its_call() {
    static SHARED: SharedBarrier<Counted<0>> = SharedBarrier::NEW;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..3_000).for_each(|_| call(&SHARED)));
        }
    });
}

#[test]
fn nobody_waits_for_one_whose_barrier_does_not_end() {
    static SHARED: SharedBarrier<Counted<1>> = SharedBarrier::NEW;
    STUCK[1].store(true, SeqCst);
    thread::scope(|scope| {
        let first = scope.spawn(|| SHARED.pass());
        while BEGUN[1].load(SeqCst) == 0 {
            thread::yield_now();
        }
        for _ in 0..10 {
            call(&SHARED);
        }
        assert!(!first.is_finished());
        // As in the child of a `fork`, if that thread did not exist any more.
        SHARED.forked();
        call(&SHARED);
        STUCK[1].store(false, SeqCst);
    });
}
