//! Readers that announce themselves in slots, and a writer that looks at them, under Loom: no race
//! on what they protect, and a writer that sleeps until a reader has left is woken. The protocol
//! alone, without a lock around it, in the interleavings of two or three threads with a bound on
//! preemptions. Each barrier that is left out must be noticed.

#[path = "../../../fairlock/src/slots/mod.rs"]
#[allow(dead_code)] // what locks need beside slots
mod slots;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::platform::{AtomicCell, Platform};
use fairlock_check::loom_platform::{
    DeafHasty, Hasty, NoHeavyHasty, NoLightHasty, SymmetricHasty, SymmetricNoFenceHasty, Watched,
    explore,
};
use slots::{Record, Slot, Threads};

const TAG: u64 = 5;

#[inline(never)]
fn all_threads<P: Platform>() -> Box<Threads<P>> {
    Box::new(Threads::NEW)
}

struct State<P: Platform> {
    /// Too large for a coroutine's stack twice.
    threads: Box<Threads<P>>,
    /// Of the readers, in `threads`.
    records: Vec<*const Record<P>>,
    /// In the first of them.
    first_slot: *const Slot<P>,
    /// A writer is there or about to be.
    marked: P::AtomicU32,
    data: Watched,
}

// SAFETY: the records live as long as the state, and are made to be shared.
unsafe impl<P: Platform> Send for State<P> {}
// SAFETY: as above.
unsafe impl<P: Platform> Sync for State<P> {}

impl<P: Platform> State<P> {
    fn new(readers: usize) -> Self {
        let threads = all_threads();
        let claim = |_| ptr::from_ref(threads.claim().expect("a record for each"));
        let records: Vec<_> = (0..readers).map(claim).collect();
        // SAFETY: records live as long as `threads`, at the same place.
        let first_slot = unsafe { &*records[0] }.free_slot().expect("a fresh record");
        let first_slot = ptr::from_ref(first_slot);
        State { threads, records, first_slot, marked: AtomicCell::new(0), data: Watched::new() }
    }

    fn record(&self, reader: usize) -> &Record<P> {
        // SAFETY: records live as long as the state.
        unsafe { &*self.records[reader] }
    }

    fn first_slot(&self) -> &Slot<P> {
        // SAFETY: as above.
        unsafe { &*self.first_slot }
    }

    /// A reader enters and leaves, or finds the lock marked and goes.
    fn read(&self, reader: usize) {
        let slot = self.record(reader).free_slot().expect("only one is used");
        if P::is_asymmetric() {
            slot.announce(TAG)
        } else {
            slot.announce_fenced(TAG)
        }
        if self.marked.load(Acquire) == 0 {
            self.data.get();
        }
        slot.clear();
    }

    fn write(&self) {
        self.marked.store(1, Relaxed);
        if P::is_asymmetric() {
            P::asymmetric_heavy()
        } else {
            P::fence()
        }
        self.wait();
        self.data.add();
        self.marked.store(0, Release);
    }

    fn wait(&self) {
        assert!(self.threads.wait_for_readers(|tag| tag == TAG, None), "there is no deadline");
    }
}

/// Readers, each in its thread so many times, and a writer.
fn readers_and_a_writer<P: Platform>(readers: usize, times: usize) {
    let state = Arc::new(State::<P>::new(readers));
    let threads: Vec<_> = (0..readers)
        .map(|reader| {
            let state = Arc::clone(&state);
            loom::thread::spawn(move || (0..times).for_each(|_| state.read(reader)))
        })
        .collect();
    state.write();
    for thread in threads {
        thread.join().expect("a panic ends the model");
    }
}

/// A reader that is there already leaves, and a writer waits for that.
fn a_reader_leaves<P: Platform>() {
    let state = Arc::new(State::<P>::new(1));
    state.first_slot().announce_fenced(TAG);
    let leaver = {
        let state = Arc::clone(&state);
        loom::thread::spawn(move || state.first_slot().clear())
    };
    state.wait();
    leaver.join().expect("a panic ends the model");
}

fn report(model: impl Fn() + Send + Sync + 'static) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| explore("flawed", 3, model)));
    let panic = panic.expect_err("Loom must notice the flaw");
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default().to_owned()
}

fn is_race(model: impl Fn() + Send + Sync + 'static) {
    let found = report(model);
    assert!(found.contains("Causality violation"), "{found}");
}

fn is_deadlock(model: impl Fn() + Send + Sync + 'static) {
    let found = report(model);
    assert!(found.contains("deadlock"), "{found}");
}

#[test]
fn a_reader_and_a_writer() {
    explore("a reader and a writer", 3, || readers_and_a_writer::<Hasty>(1, 1));
    explore("a reader that comes twice", 2, || readers_and_a_writer::<Hasty>(1, 2));
    explore("a reader leaves", 3, a_reader_leaves::<Hasty>);
}

#[test]
fn two_readers_and_a_writer() {
    explore("two readers", 2, || readers_and_a_writer::<Hasty>(2, 1));
}

#[test]
fn without_an_asymmetric_barrier() {
    explore("symmetric", 3, || readers_and_a_writer::<SymmetricHasty>(1, 1));
    explore("symmetric, twice", 2, || readers_and_a_writer::<SymmetricHasty>(1, 2));
    explore("symmetric, leaves", 3, a_reader_leaves::<SymmetricHasty>);
}

#[test]
fn a_barrier_that_is_missing_lets_a_writer_in_beside_a_reader() {
    is_race(|| readers_and_a_writer::<NoLightHasty>(1, 1));
    is_race(|| readers_and_a_writer::<NoHeavyHasty>(1, 1));
    is_race(|| readers_and_a_writer::<SymmetricNoFenceHasty>(1, 1));
}

#[test]
fn a_barrier_that_is_missing_lets_a_writer_sleep_for_ever() {
    is_deadlock(a_reader_leaves::<NoLightHasty>);
    is_deadlock(a_reader_leaves::<NoHeavyHasty>);
    is_deadlock(a_reader_leaves::<SymmetricNoFenceHasty>);
}

#[test]
fn a_wake_up_that_is_lost_is_noticed() {
    is_deadlock(a_reader_leaves::<DeafHasty>);
}
