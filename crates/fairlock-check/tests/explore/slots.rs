//! Readers that announce themselves in slots, and a writer that looks at them, in every schedule,
//! on CPUs with store buffers: they exclude each other, and a writer that sleeps until a reader
//! has left is woken. The protocol alone, without a lock around it. Barriers that are missing have
//! to be found.

#[path = "../parts/slots.rs"]
mod parts;

use std::cell::Cell;
use std::ptr;

use fairlock_sim::On;
use fairlock_sim::explore::{
    Deaf, Explore, FailureKind, Flaw, Guarded, NoBarrier, OwnBarrier, Program, Search, Sound,
    Symmetric, SymmetricNoFence,
};
use parts::{Claim, EndedThread, RangeSlot, Readers, Record, TAG, Threads, own_records};

type P<F> = On<Explore<F>>;

type State<F> = parts::State<P<F>, Guarded<F>>;

own_records!(On<Explore<F>> where F: Flaw);

fn program<F: Flaw>(readers: usize, times: usize) -> Program<State<F>> {
    let program = Program::new("slots", move || State::<F>::new(readers));
    let reader = |program: Program<State<F>>, reader| {
        program.thread(move |state: &State<F>| (0..times).for_each(|_| state.read(reader)))
    };
    (0..readers)
        .fold(program, reader)
        .thread(State::write)
        .finally(|state| {
            assert!(!state.threads.any_reader(Readers::Any, |tag| tag != 0), "everybody has left");
            assert_eq!(state.data.get(), 1);
        })
        .store_buffers()
}

/// A reader whose record is taken off the list when it has not read for long, and a writer that looks at listed records.
fn listed<F: Flaw>(times: usize, unlisted: usize) -> Program<State<F>> {
    Program::new("listed records", || State::<F>::new(1))
        .thread(move |state: &State<F>| (0..times).for_each(|_| state.read_listed(0)))
        .thread(move |state: &State<F>| (0..unlisted).for_each(|_| state.threads.unlist_idle()))
        .thread(State::write_looking_at_listed)
        .finally(|state| assert_eq!(state.data.get(), 1))
        .store_buffers()
}

/// A reader that is there already leaves, and a writer waits for that.
fn leaving<F: Flaw>() -> Program<State<F>> {
    Program::new("a reader leaves", State::<F>::with_a_reader_inside)
        .thread(State::leave)
        .thread(State::wait)
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
            let range = record.free_range_in(|| &threads).expect("a fresh record");
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
            assert!(state.threads.any_reader(Readers::Any, |tag| tag == TAG), "its read was ended");
            // SAFETY: this thread's; nothing is set.
            let left =
                unsafe { ended.with_record(&state.threads, |it| it.leave(|tag| tag == TAG)) };
            assert_eq!(left, Some(true), "its read was ended");
        })
        .finally(|state| {
            assert!(!state.threads.any_reader(Readers::Any, |tag| tag != 0), "everybody has left");
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
fn so_they_do_while_records_are_taken_off_the_list() {
    let complete = listed::<Sound>(1, 1).assert(&Search::exhaustive()).complete;
    assert!(complete);
    for search in [Search::random(1, 20_000), Search::pct(1, 4, 20_000)] {
        listed::<Sound>(3, 2).assert(&search);
    }
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
