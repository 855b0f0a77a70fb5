//! Readers that announce themselves in slots, and a writer that looks at them, in every schedule,
//! on CPUs with store buffers: they exclude each other, and a writer that sleeps until a reader
//! has left is woken. The protocol alone, without a lock around it. Barriers that are missing have
//! to be found.

#[path = "../../fairlock/src/chunks.rs"]
#[allow(dead_code)] // what locks need beside slots
mod chunks;
#[path = "../../fairlock/src/slots/mod.rs"]
#[allow(dead_code)] // the same
mod slots;
#[path = "../../fairlock/src/spin_budget.rs"]
mod spin_budget;

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::platform::{self, AtomicCell, Platform};
use fairlock::process::Host;
use fairlock_sim::On;
use fairlock_sim::explore::{
    Deaf, Explore, FailureKind, Flaw, Guarded, NoBarrier, OwnBarrier, Program, Search, Sound,
    Symmetric, SymmetricNoFence,
};
use slots::range::Claim;
use slots::{EndedThread, HasRecords, RangeSlot, Record, Slot, Threads};

type P<F> = On<Explore<F>>;

const TAG: u64 = 5;

// SAFETY: nobody asks for a record but the programs below, which claim them from their own `threads`.
unsafe impl<F: Flaw> HasRecords for On<Explore<F>> {
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

struct State<F: Flaw> {
    threads: Threads<P<F>>,
    /// Of the readers, in `threads`.
    records: Vec<*const Record<P<F>>>,
    /// In the first of them.
    first_slot: *const Slot<P<F>>,
    /// A writer is there or about to be.
    marked: <P<F> as Platform>::AtomicU32,
    data: Guarded<F>,
}

impl<F: Flaw> State<F> {
    fn new(readers: usize) -> Self {
        let threads = Threads::NEW;
        let claim = |_| ptr::from_ref(threads.claim().expect("a record for each"));
        let records: Vec<_> = (0..readers).map(claim).collect();
        // SAFETY: records live as long as `threads`, at the same place.
        let first_slot = unsafe { &*records[0] }.free_slot().expect("a fresh record");
        let first_slot = ptr::from_ref(first_slot);
        State { threads, records, first_slot, marked: AtomicCell::new(0), data: Guarded::new_on() }
    }

    /// A reader enters and leaves, or finds the lock marked and goes.
    fn read(&self, reader: usize) {
        // SAFETY: records live as long as the state.
        let record = unsafe { &*self.records[reader] };
        let slot = record.free_slot().expect("only one is used");
        if P::<F>::is_asymmetric() {
            slot.announce(TAG)
        } else {
            slot.announce_fenced(TAG)
        }
        if self.marked.load(Acquire) == 0 {
            self.data.get();
        }
        slot.clear();
    }

    fn first_slot(&self) -> &Slot<P<F>> {
        // SAFETY: as in `read`.
        unsafe { &*self.first_slot }
    }

    fn write(&self) {
        self.marked.store(1, Relaxed);
        if P::<F>::is_asymmetric() {
            <P<F> as Host>::asymmetric_heavy()
        } else {
            P::<F>::fence()
        }
        assert!(self.threads.wait_for_readers(|tag| tag == TAG, None), "there is no deadline");
        self.data.add();
        self.marked.store(0, Release);
    }
}

fn program<F: Flaw>(readers: usize, times: usize) -> Program<State<F>> {
    let program = Program::new("slots", move || State::<F>::new(readers));
    let reader = |program: Program<State<F>>, reader| {
        program.thread(move |state: &State<F>| (0..times).for_each(|_| state.read(reader)))
    };
    (0..readers)
        .fold(program, reader)
        .thread(State::write)
        .finally(|state| {
            assert!(!state.threads.any_reader(|tag| tag != 0), "everybody has left");
            assert_eq!(state.data.get(), 1);
        })
        .store_buffers()
}

/// A reader that is there already leaves, and a writer waits for that.
fn leaving<F: Flaw>() -> Program<State<F>> {
    let inside = || {
        let state = State::<F>::new(1);
        state.first_slot().announce_fenced(TAG);
        state
    };
    Program::new("a reader leaves", inside)
        .thread(|state| state.first_slot().clear())
        .thread(|state: &State<F>| {
            assert!(state.threads.wait_for_readers(|tag| tag == TAG, None), "there is no deadline");
        })
        .store_buffers()
}

/// What is found on a flawed platform, by each search.
fn mistakes<F: Flaw>(program: Program<State<F>>) -> Vec<FailureKind> {
    [Search::exhaustive(), Search::random(1, 100_000), Search::pct(1, 4, 100_000)]
        .map(|search| program.check(&search).expect_err("a mistake is found").kind)
        .into()
}

fn nobody_wakes_the_writer(found: Vec<FailureKind>) {
    for kind in found {
        let sleeps = matches!(kind, FailureKind::Deadlock { .. } | FailureKind::LostWakeUp { .. });
        assert!(sleeps, "{kind}");
    }
}

/// A record whose thread ends while it reads, and what it remembers of that.
struct Ending<F: Flaw> {
    threads: Threads<P<F>>,
    ended: Cell<EndedThread<P<F>>>,
    /// The range that it holds.
    range: *const RangeSlot<P<F>>,
}

/// A thread has ended that reads, by a slot and by a range that another thread gives back. It ends its
/// read, and then looks whether it has another one to end, while a new thread reads under the same
/// lock, perhaps by the same record.
fn ended<F: Flaw>() -> Program<Ending<F>> {
    let leave = |state: &Ending<F>| {
        // SAFETY: the first thread alone remembers this; nothing is set.
        let left = unsafe {
            state.ended.get().with_record(&state.threads, |it| it.leave(|tag| tag == TAG))
        };
        left.unwrap_or(false)
    };
    let state = || {
        let threads = Threads::NEW;
        let (ended, range) = {
            let record: &Record<P<F>> = threads.claim().expect("the first");
            record.free_slot().expect("a fresh record").announce_fenced(TAG);
            let range = record.free_range().expect("a fresh record");
            range.announce_fenced(Claim::new(1, true), 0, 0);
            (threads.release(record), ptr::from_ref(range))
        };
        Ending { threads, ended: Cell::new(ended), range }
    };
    Program::new("a thread has ended", state)
        .thread(move |state| {
            assert!(leave(state), "its own read");
            assert!(!leave(state), "another's read");
        })
        .thread(|state: &Ending<F>| {
            // SAFETY: records live as long as the state.
            unsafe { &*state.range }.clear_unseen();
        })
        .thread(|state: &Ending<F>| {
            let record = state.threads.claim().expect("there are enough");
            let slot = record.free_slot().expect("it is empty");
            slot.announce_fenced(TAG);
            // It ends while it reads, too.
            let ended = state.threads.release(record);
            assert!(state.threads.any_reader(|tag| tag == TAG), "its read was ended");
            // SAFETY: this thread's; nothing is set.
            let left =
                unsafe { ended.with_record(&state.threads, |it| it.leave(|tag| tag == TAG)) };
            assert_eq!(left, Some(true), "its read was ended");
        })
        .finally(|state| {
            assert!(!state.threads.any_reader(|tag| tag != 0), "everybody has left");
            let first = state.threads.claim().expect("there are enough");
            let second = state.threads.claim().expect("there are enough");
            assert!(!ptr::eq(first, second));
        })
        .store_buffers()
}

#[test]
fn a_thread_that_has_ended_ends_its_own_reads_and_no_other_s() {
    for search in [Search::random(1, 10_000), Search::pct(1, 4, 10_000)] {
        ended::<Sound>().assert(&search);
        ended::<Symmetric>().assert(&search);
    }
}

fn explore<F: Flaw>() {
    assert!(leaving::<F>().assert(&Search::exhaustive()).complete);
    assert!(program::<F>(1, 1).assert(&Search::exhaustive()).complete);
    assert!(program::<F>(1, 2).assert(&Search::exhaustive()).complete);
    assert!(program::<F>(2, 1).assert(&Search::exhaustive()).complete);
    program::<F>(2, 2).assert(&Search::pct(3, 4, 20_000));
}

#[test]
fn a_reader_and_a_writer_exclude_each_other_and_nobody_sleeps_for_ever() {
    explore::<Sound>();
}

#[test]
fn so_they_do_without_an_asymmetric_barrier() {
    explore::<Symmetric>();
}

#[test]
fn a_writer_without_a_barrier_enters_beside_a_reader() {
    mistakes(program::<NoBarrier>(1, 2));
    mistakes(program::<OwnBarrier>(1, 2));
    mistakes(program::<SymmetricNoFence>(1, 2));
}

#[test]
fn a_writer_that_sleeps_without_a_barrier_is_not_woken() {
    nobody_wakes_the_writer(mistakes(leaving::<NoBarrier>()));
    nobody_wakes_the_writer(mistakes(leaving::<OwnBarrier>()));
    nobody_wakes_the_writer(mistakes(leaving::<SymmetricNoFence>()));
}

#[test]
fn a_wake_up_that_is_lost_is_noticed() {
    nobody_wakes_the_writer(mistakes(leaving::<Deaf>()));
    nobody_wakes_the_writer(mistakes(program::<Deaf>(1, 2)));
}
