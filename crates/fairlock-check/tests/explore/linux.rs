//! Linux's rwsem in the form for user space, in every schedule within stated bounds: no thread is let in next to a writer, none
//! sleeps for ever, each policy keeps its promise about who is passed, and a lock whose waiters are in a table may be freed by
//! its last user.

use std::cell::{Cell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::ptr;

use fairlock::lock_api::RwLock;
use fairlock_check::read_write;
use fairlock_reference::linux::{
    Handoff, HasTable, ImmediateHandoff, InLock, InTable, Knobs, Linux3_10, Linux3_10Spin,
    Linux3_16, Linux5_1, Linux5_2, Linux5_3, Linux5_11, NoReaderSteal, Policy, RawLinuxRwSem,
    Table, Waiters, WriterSpin,
};
use fairlock_sim::explore::{
    self, Blind, Deaf, Explore, FailureKind, Guarded, Program, Search, Torn,
};
use fairlock_sim::{Explored, On};

use crate::kernel::{
    assert_found, assert_sleeps, eight, locks, more, store_buffers, two, with_a_flaw,
};

type Raw<Pol> = RawLinuxRwSem<Pol, Explored>;
type Lock<Pol> = RwLock<Raw<Pol>, Guarded>;

locks! {
    linux_3_10: Raw<Linux3_10>;
    linux_3_10_spin: Raw<Linux3_10Spin>;
    spinning_in_order: Raw<SpinningInOrder>;
    linux_3_16: Raw<Linux3_16>;
    linux_5_1: Raw<Linux5_1>;
    linux_5_2: Raw<Linux5_2>;
    linux_5_3: Raw<Linux5_3>;
    linux_5_11: Raw<Linux5_11>;
    no_reader_steal: Raw<NoReaderSteal>;
    immediate_handoff: Raw<ImmediateHandoff>;
}

/// Spinning in the queue without a bias in vain, where the head alone may take the lock: those behind it spin in vain.
struct SpinningInOrder;

impl Policy for SpinningInOrder {
    const NAME: &'static str = "spinning-in-order";
    const KNOBS: Knobs = Knobs {
        writer_spins: WriterSpin::InQueue,
        writer_steals: false,
        writer_fast_fail: true,
        handoff: Handoff::After(4_000_000),
        ..Knobs::LINUX_3_10
    };
}

// ---- who is passed ----

/// [`Linux5_11`] without a handoff.
struct NoHandoff;

impl Policy for NoHandoff {
    const NAME: &'static str = "no-handoff";
    const KNOBS: Knobs = Knobs { handoff: Handoff::Never, ..Knobs::LINUX_5_11 };
}

/// A reader steals from a writer that has waited for longer than 4 ms. Once the writer has been up
/// since then, and went to sleep again, it has the lock reserved.
fn a_writer_that_is_due_is_passed<Pol: Policy>() -> Program<(Lock<Pol>, Cell<bool>)> {
    let name = format!("{}: a writer that is due is passed", Pol::NAME);
    Program::new(name, || (Lock::new(Guarded::new()), Cell::new(false)))
        .thread(|(lock, done): &(Lock<Pol>, Cell<bool>)| {
            let guard = lock.write();
            done.set(true);
            drop(guard);
        })
        .thread(|(lock, done)| {
            let guard = lock.read();
            let before = explore::sleeps_of(0);
            explore::pass_time(5_000_000);
            drop(guard);
            let mut reserved = false;
            for _ in 0..3 {
                let guard = lock.read();
                assert!(!reserved || done.get(), "passed a writer that is due");
                // The first sleep may have begun before the writer knew what time it is.
                let sleeps = explore::sleeps_of(0);
                reserved |= before.asleep && sleeps.asleep && sleeps.count > before.count;
                drop(guard);
            }
        })
}

#[test]
fn a_writer_that_is_due_is_not_passed_any_more() {
    let search = Search::exhaustive().preemptions(3);
    for report in [
        a_writer_that_is_due_is_passed::<Linux5_11>().assert(&search),
        a_writer_that_is_due_is_passed::<Linux5_3>().assert(&search),
        a_writer_that_is_due_is_passed::<NoReaderSteal>().assert(&search),
    ] {
        assert!(report.complete, "{report}");
    }
    let failure = a_writer_that_is_due_is_passed::<NoHandoff>().check(&search);
    let failure = failure.expect_err("nothing is ever reserved");
    assert!(matches!(failure.kind, FailureKind::Panicked { thread: 2, .. }), "{failure}");
}

// ---- the last user frees the lock ----

/// [`Linux5_11`] without spins, each of which multiplies the executions.
struct Linux5_11Asleep;

impl Policy for Linux5_11Asleep {
    const NAME: &'static str = "linux-5.11-asleep";
    const KNOBS: Knobs = Knobs { writer_spins: WriterSpin::Never, ..Knobs::LINUX_5_11 };
}

thread_local! {
    /// Each execution has a table of its own.
    static TABLE: Cell<*const Table<Explored>> = const { Cell::new(ptr::null()) };
}

struct Waiting;

impl HasTable<Explored> for Waiting {
    fn table() -> &'static Table<Explored> {
        // SAFETY: leaked by `freed_by_the_last`.
        unsafe { TABLE.get().as_ref() }.expect("set when the execution began")
    }
}

type Freed<Pol, W> = RwLock<RawLinuxRwSem<Pol, Explored, W>, Guarded>;

/// A lock and its users, who count themselves out while they hold it. Users exclude each other, so
/// the last one knows that all others have released the lock.
struct Object<Pol: Policy, W: Waiters<Explored>> {
    lock: UnsafeCell<ManuallyDrop<Freed<Pol, W>>>,
    users: Cell<u32>,
}

fn freed_by_the_last<Pol: Policy, W: Waiters<Explored>>(writers: u32) -> Program<Object<Pol, W>> {
    let name = format!("{}: {writers} writers, or a reader and a writer", Pol::NAME);
    let mut program = Program::new(name, move || {
        TABLE.set(Box::leak(Box::new(Table::NEW)));
        Object {
            lock: UnsafeCell::new(ManuallyDrop::new(RwLock::new(Guarded::new()))),
            users: Cell::new(writers.max(2)),
        }
    });
    for thread in 0..writers.max(2) {
        program = program.thread(move |object: &Object<Pol, W>| {
            let leave = || {
                object.users.set(object.users.get() - 1);
                object.users.get() == 0
            };
            // SAFETY: alive until the last user has released it.
            let lock = unsafe { &*object.lock.get() };
            let is_last = if thread < writers {
                let guard = lock.write();
                guard.add();
                leave()
            } else {
                let guard = lock.read();
                guard.get();
                leave()
            };
            if is_last {
                // SAFETY: no thread uses it any more, and none drops it twice. The memory stays, and
                // the explorer reports a thread that touches it.
                unsafe { ManuallyDrop::drop(&mut *object.lock.get()) };
            }
        });
    }
    program.clock_jumps(1)
}

#[test]
fn a_lock_whose_waiters_are_in_a_table_can_go_once_its_last_user_has_released_it() {
    fn can_go<Pol: Policy>() {
        for (writers, preemptions) in [(1, 2), (2, 2), (3, 1)] {
            let program = freed_by_the_last::<Pol, InTable<Waiting>>(writers);
            assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
            program.assert(&Search::pct(1, 3, 2_000));
            program.store_buffers().assert(&Search::random(1, 1_000));
        }
    }
    can_go::<Linux5_11Asleep>();
    can_go::<Linux3_10>();
    can_go::<NoReaderSteal>();
}

#[test]
fn the_explorer_notices_an_unlock_that_touches_the_lock_after_its_release() {
    fn is_noticed<Pol: Policy>() {
        for writers in [1, 2] {
            let search = Search::exhaustive().preemptions(2);
            let found = freed_by_the_last::<Pol, InLock<Explored>>(writers).check(&search);
            let failure = found.expect_err("a lock with its own list looks at it after all");
            assert!(matches!(failure.kind, FailureKind::Gone { .. }), "{failure}");
        }
    }
    is_noticed::<Linux5_11Asleep>();
    is_noticed::<Linux3_10>();
}

// ---- flaws ----

type Flawed<Pol, F> = RwLock<RawLinuxRwSem<Pol, On<Explore<F>>>, Guarded<F>>;

/// `park` that does not look is a writer that goes to sleep although it was woken while it spun.
#[test]
fn the_explorer_notices_a_wake_up_that_a_spinning_writer_misses() {
    let name = Linux3_10Spin::NAME;
    let two = read_write::two_writers();
    assert_sleeps(name, &with_a_flaw::<Flawed<Linux3_10Spin, Blind>>(name, two));
}

#[test]
fn the_explorer_notices_lost_wake_ups_and_torn_updates() {
    fn are_noticed<Pol: Policy>() {
        let three = read_write::three_writers();
        assert_sleeps(Pol::NAME, &with_a_flaw::<Flawed<Pol, Deaf>>(Pol::NAME, three));
        let two = read_write::two_writers();
        assert_found(Pol::NAME, &with_a_flaw::<Flawed<Pol, Torn>>(Pol::NAME, two));
    }
    are_noticed::<Linux3_10>();
    are_noticed::<Linux3_10Spin>();
    are_noticed::<Linux5_3>();
    are_noticed::<Linux5_11>();
}
