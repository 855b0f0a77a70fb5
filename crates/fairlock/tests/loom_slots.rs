//! Readers that announce themselves in slots, and a writer that looks at them, under Loom: no race
//! on what they protect, and a writer that sleeps until a reader has left is woken. The protocol
//! alone, without a lock around it, in the interleavings of two or three threads with a bound on
//! preemptions. Each barrier that is left out must be noticed.

#[path = "../src/chunks.rs"]
#[allow(dead_code)] // what locks need beside slots
mod chunks;
mod loom_platform;
#[path = "../src/slots/mod.rs"]
#[allow(dead_code)] // the same
mod slots;
#[path = "../src/spin_budget.rs"]
mod spin_budget;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::platform::{self, AtomicCell};
use fairlock::process::Host;
use loom_platform::{
    DeafHasty, Flaw, Hasty, Model, NoHeavyHasty, NoLightHasty, SymmetricHasty,
    SymmetricNoFenceHasty, Watched, explore,
};
use slots::{EndedThread, HasRecords, Record, Slot, Threads};

const TAG: u64 = 5;

// SAFETY: nobody asks for a record but the programs below, which claim them from their own `threads`.
unsafe impl<F: Flaw> HasRecords for Model<F> {
    fn threads() -> &'static Threads<Self> {
        unreachable!("these programs have records of their own")
    }
    fn thread() -> Option<&'static Record<Self>> {
        unreachable!("these programs have records of their own")
    }
    fn ended_thread() -> EndedThread<Self> {
        unreachable!("threads of these programs do not end before they are done")
    }
    fn asymmetric_heavy() {
        <Self as Host>::asymmetric_heavy();
    }
}

#[inline(never)]
fn all_threads<P: HasRecords>() -> Box<Threads<P>> {
    Box::new(Threads::NEW)
}

struct State<P: HasRecords> {
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
unsafe impl<P: HasRecords> Send for State<P> {}
// SAFETY: as above.
unsafe impl<P: HasRecords> Sync for State<P> {}

impl<P: HasRecords> State<P> {
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
fn readers_and_a_writer<P: HasRecords>(readers: usize, times: usize) {
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
fn a_reader_leaves<P: HasRecords>() {
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
