//! `ProcessSharedRwLock` in every schedule within stated bounds: nobody is let in beside a writer,
//! nobody sleeps for ever, whoever gives up leaves no trace, and nobody is passed more often than
//! promised.

use std::cell::{Cell, UnsafeCell};
use std::mem::ManuallyDrop;

use fairlock::platform::Platform;
use fairlock::process_shared::ProcessSharedRwLock;
use fairlock::unguarded::{Refused, UnguardedRwLock};
use fairlock_check::long;
use fairlock_sim::explore::{
    self, Blind, Deaf, Explore, FailureKind, Flaw, Guarded, Program, Search, Sound, Torn,
};
use fairlock_sim::{Explored, On};

/// The lock with what it protects.
struct Protected<F: Flaw = Sound> {
    lock: ProcessSharedRwLock<On<Explore<F>>>,
    number: Guarded<F>,
}

impl<F: Flaw> Protected<F> {
    fn new() -> Self {
        Protected { lock: ProcessSharedRwLock::NEW, number: Guarded::new_on() }
    }

    /// As a reader: the number.
    fn look(&self) -> u32 {
        let number = self.number.get();
        // SAFETY: callers have acquired it for reading.
        unsafe { self.lock.unlock_read() };
        number
    }

    /// As a writer: adds one.
    fn add(&self) {
        self.number.add();
        // SAFETY: callers have acquired it for writing.
        unsafe { self.lock.unlock_write() };
    }
}

type Step<F = Sound> = fn(&Protected<F>);

fn soon<F: Flaw>() -> Option<u64> {
    Some(On::<Explore<F>>::now() + 100_000)
}

fn read<F: Flaw>(it: &Protected<F>) {
    assert_eq!(it.lock.read(None, false), Ok(()));
    it.look();
}

fn write<F: Flaw>(it: &Protected<F>) {
    assert_eq!(it.lock.write(None), Ok(()));
    it.add();
}

fn write_twice<F: Flaw>(it: &Protected<F>) {
    write(it);
    write(it);
}

fn six_reads(it: &Protected) {
    (0..6).for_each(|_| read(it));
}

fn six_writes(it: &Protected) {
    (0..6).for_each(|_| write(it));
}

fn read_in_time<F: Flaw>(it: &Protected<F>) {
    match it.lock.read(soon::<F>(), false) {
        Ok(()) => _ = it.look(),
        refused => assert_eq!(refused, Err(Refused::TimedOut)),
    }
}

fn write_in_time<F: Flaw>(it: &Protected<F>) {
    match it.lock.write(soon::<F>()) {
        Ok(()) => it.add(),
        refused => assert_eq!(refused, Err(Refused::TimedOut)),
    }
}

fn try_both<F: Flaw>(it: &Protected<F>) {
    if it.lock.try_read(false).is_ok() {
        it.look();
    }
    if it.lock.try_write().is_ok() {
        it.add();
    }
}

/// Deadlocks with a writer in between, but for `past_waiters`.
fn read_recursively<F: Flaw>(it: &Protected<F>) {
    assert_eq!(it.lock.read(None, false), Ok(()));
    assert_eq!(it.lock.read(None, true), Ok(()));
    let number = it.look();
    assert_eq!(it.look(), number, "nobody writes in between");
}

fn try_recursively<F: Flaw>(it: &Protected<F>) {
    assert_eq!(it.lock.read(None, false), Ok(()));
    assert_eq!(it.lock.try_read(true), Ok(()), "while a reader is in, no writer is");
    it.look();
    it.look();
}

/// One thread for each step; afterwards the lock is free, and so many additions were made.
fn program<F: Flaw>(
    name: &str,
    steps: &[Step<F>],
    added: std::ops::RangeInclusive<u32>,
) -> Program<Protected<F>> {
    let program = Program::new(name, Protected::<F>::new);
    let program = steps.iter().fold(program, |program, &step| program.thread(step));
    program.finally(move |it| {
        assert_eq!(it.lock.try_write(), Ok(()), "the lock is free when everybody is done");
        let value = it.number.get();
        // SAFETY: acquired above.
        unsafe { it.lock.unlock_write() };
        assert!(!it.lock.is_locked());
        assert!(added.contains(&value), "{value} additions");
    })
}

type Job = (&'static str, &'static [Step], std::ops::RangeInclusive<u32>);

const TWO: &[Job] = &[
    ("two writers", &[write, write], 2..=2),
    ("a reader and a writer", &[read, write], 1..=1),
    ("a writer twice, and a writer", &[write_twice, write], 3..=3),
    ("tries and a writer", &[try_both, write], 1..=2),
    ("a timed writer and a reader", &[write_in_time, read], 0..=1),
    ("a timed writer and a writer", &[write_in_time, write], 1..=2),
    ("a timed reader and a writer", &[read_in_time, write], 1..=1),
    ("two timed writers", &[write_in_time, write_in_time], 1..=2),
    ("a recursive reader and a writer", &[read_recursively, write], 1..=1),
    ("a recursive try and a writer", &[try_recursively, write], 1..=1),
    ("a recursive reader and a timed writer", &[read_recursively, write_in_time], 0..=1),
];

const THREE: &[Job] = &[
    ("three writers", &[write, write, write], 3..=3),
    ("a reader and two writers", &[read, write, write], 2..=2),
    ("two readers and a writer", &[read, read, write], 1..=1),
    ("a time-out before both", &[write_in_time, read, write], 1..=2),
    ("a time-out before two readers", &[write_in_time, read, read], 0..=1),
    ("two time-outs before a reader", &[write_in_time, write_in_time, read], 0..=2),
    ("two time-outs before a writer", &[write_in_time, write_in_time, write], 1..=3),
    ("both in time beside a reader", &[read_in_time, write_in_time, read], 0..=1),
    ("both in time beside a writer", &[read_in_time, write_in_time, write], 1..=2),
    ("recursion among both", &[read_recursively, read, write], 1..=1),
    ("recursion among writers", &[read_recursively, write, write_in_time], 1..=2),
    ("tries among both", &[try_both, read, write], 1..=2),
];

const FOUR: &[Job] = &[
    ("pairs", &[read, read, write, write], 2..=2),
    ("all in time", &[read_in_time, write_in_time, write_in_time, read], 0..=2),
    ("time-outs among all", &[write_in_time, write_in_time, read, write], 1..=3),
    ("recursion among all", &[read_recursively, write_in_time, read, write], 1..=2),
];

#[test]
fn two_threads_in_every_schedule() {
    for (name, steps, added) in TWO {
        let program = program(name, steps, added.clone()).clock_jumps(1).spurious_wakes(1);
        let most = Search::exhaustive().at_most(long::depth(3_000, 200_000));
        if !program.assert(&most).complete {
            assert!(program.assert(&Search::exhaustive().preemptions(3)).complete);
        }
    }
}

#[test]
fn three_threads_with_few_preemptions() {
    for (name, steps, added) in THREE {
        let search = Search::exhaustive().preemptions(long::depth(2, 3));
        let most = long::depth(3_000, 1_000_000);
        program(name, steps, added.clone()).assert(&search.at_most(most));
    }
}

#[test]
fn four_threads_with_fewer() {
    for (name, steps, added) in FOUR {
        let program = program(name, steps, added.clone());
        program.assert(&Search::exhaustive().preemptions(1).at_most(long::depth(3_000, 500_000)));
        program.assert(&Search::pct(1, 3, long::depth(1_000, 50_000)));
    }
}

#[test]
fn eight_threads_by_chance() {
    let steps: [Step; 8] = [
        read,
        write,
        write_in_time,
        read_recursively,
        write_twice,
        read_in_time,
        write_in_time,
        try_both,
    ];
    let program = program("eight", &steps, 3..=6).clock_jumps(1).spurious_wakes(1);
    for seed in 1..=3 {
        program.assert(&Search::pct(seed, 3, long::depth(700, 20_000)));
    }
    program.assert(&Search::random(4, long::depth(700, 20_000)));
}

/// More turns than two bits count.
#[test]
fn readers_and_a_writer_take_many_turns() {
    let program = program("six times each", &[six_reads, six_reads, six_writes], 6..=6);
    for seed in 1..=2 {
        program.assert(&Search::pct(seed, 3, long::depth(500, 20_000)));
    }
    program.assert(&Search::random(3, long::depth(500, 20_000)));
}

#[test]
fn three_threads_with_store_buffers() {
    for (name, steps, added) in THREE {
        let program = program(name, steps, added.clone()).store_buffers();
        program.assert(&Search::random(2, long::depth(300, 20_000)));
    }
}

// ---- who passes whom ----

/// A lock, and whether the first thread has acquired it: set while it has it.
type State = (Protected, Cell<bool>);

/// Acquires the lock so often by `acquire`, and how often past the first thread, which was asleep
/// when it began to.
fn passes((it, done): &State, times: u32, acquire: fn(&Protected) -> bool, leave: Step) -> u32 {
    let mut passes = 0;
    for _ in 0..times {
        let waits = explore::sleeps_of(0).asleep;
        if acquire(it) {
            passes += u32::from(waits && !done.get());
            leave(it);
        }
    }
    passes
}

fn to_read(it: &Protected) -> bool {
    it.lock.read(None, false).is_ok()
}

fn to_write(it: &Protected) -> bool {
    it.lock.write(None).is_ok()
}

fn to_write_in_time(it: &Protected) -> bool {
    it.lock.write(soon::<Sound>()).is_ok()
}

fn look(it: &Protected) {
    it.look();
}

/// With a first thread that acquires by `acquire`.
fn sleeper(name: &str, acquire: fn(&Protected) -> bool, leave: Step) -> Program<State> {
    Program::new(name, || (Protected::new(), Cell::new(false))).thread(move |(it, done)| {
        assert!(acquire(it));
        done.set(true);
        leave(it);
    })
}

fn assert_passes(program: Program<State>) {
    let search = Search::exhaustive().preemptions(long::depth(1, 2));
    assert!(program.assert(&search).complete);
}

#[test]
fn no_reader_that_comes_later_passes_a_sleeping_writer() {
    let reader = |state: &State| assert_eq!(passes(state, 3, to_read, look), 0);
    let program = sleeper("readers and a sleeping writer", to_write, Protected::add);
    assert_passes(program.threads(2, reader));
}

#[test]
fn no_writer_that_comes_later_passes_a_sleeping_reader() {
    let writer = |state: &State| assert_eq!(passes(state, 3, to_write, Protected::add), 0);
    let program = sleeper("writers and a sleeping reader", to_read, look);
    assert_passes(program.threads(2, writer));
}

/// The front is empty for a moment, so a newcomer is in front before the reader is awake.
#[test]
fn each_writer_passes_a_sleeping_reader_once_at_most_if_others_give_up() {
    let writer = |state: &State| assert!(passes(state, 2, to_write, Protected::add) <= 1);
    let hasty = |state: &State| assert!(passes(state, 2, to_write_in_time, Protected::add) <= 1);
    let program = sleeper("time-outs and a sleeping reader", to_read, look);
    let program = program.thread(writer).thread(hasty).thread(|(it, _)| read(it));
    program.assert(&Search::exhaustive().preemptions(1).at_most(long::depth(10_000, 1_000_000)));
    program.assert(&Search::pct(1, 3, long::depth(1_000, 100_000)));
}

#[test]
fn each_writer_passes_a_sleeping_writer_once_at_most() {
    let writer = |state: &State| assert!(passes(state, 3, to_write, Protected::add) <= 1);
    let program = sleeper("writers and a sleeping writer", to_write, Protected::add);
    assert_passes(program.threads(2, writer));
}

/// A reader stays in until another one has come in, which waits behind a writer. When that writer
/// gives up, another one is in front; but the reader was there before.
#[test]
fn a_reader_need_not_wait_for_a_second_writer_if_the_first_gives_up() {
    type State = (Protected, <Explored as Platform>::AtomicU32);
    use fairlock::platform::AtomicCell;
    use std::sync::atomic::Ordering::Relaxed;
    let program = Program::new("a reader behind a writer that gives up", || -> State {
        (Protected::new(), AtomicCell::new(0))
    });
    let program = program
        .thread(|(it, came)| {
            assert_eq!(it.lock.read(None, false), Ok(()));
            while came.load(Relaxed) == 0 {
                Explored::relax(None);
            }
            it.look();
        })
        .thread(|(it, _)| write_in_time(it))
        .thread(|(it, came)| {
            if explore::sleeps_of(1).asleep {
                assert_eq!(it.lock.read(None, false), Ok(()));
                came.store(1, Relaxed);
                it.look();
            } else {
                came.store(1, Relaxed);
            }
        })
        .thread(|(it, _)| {
            if explore::sleeps_of(1).asleep && explore::sleeps_of(2).asleep {
                write(it);
            }
        })
        .early_time_outs(0);
    assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
}

// ---- the last user frees the lock ----

/// A lock and how many will still use it. They count themselves out while they hold it, and exclude
/// each other, so the last one knows that nobody else has it or will.
struct Object {
    protected: UnsafeCell<ManuallyDrop<Protected>>,
    users: Cell<u32>,
}

/// Acquires the lock, has the number of users reduced, and leaves: true for the last.
type Use = fn(&Protected, &Cell<u32>) -> bool;

fn count_out(users: &Cell<u32>) -> bool {
    users.set(users.get() - 1);
    users.get() == 0
}

fn last_write(it: &Protected, users: &Cell<u32>) -> bool {
    assert_eq!(it.lock.write(None), Ok(()));
    let last = count_out(users);
    it.add();
    last
}

fn last_read(it: &Protected, users: &Cell<u32>) -> bool {
    assert_eq!(it.lock.read(None, false), Ok(()));
    let last = count_out(users);
    it.look();
    last
}

fn last_write_in_time(it: &Protected, users: &Cell<u32>) -> bool {
    if it.lock.write(soon::<Sound>()).is_err() {
        return last_write(it, users);
    }
    let last = count_out(users);
    it.add();
    last
}

fn last_read_in_time(it: &Protected, users: &Cell<u32>) -> bool {
    if it.lock.read(soon::<Sound>(), false).is_err() {
        return last_read(it, users);
    }
    let last = count_out(users);
    it.look();
    last
}

/// Beside other readers: they do not exclude each other, so it leaves the freeing to others.
fn read_along(it: &Protected, users: &Cell<u32>) -> bool {
    last_read(it, users);
    false
}

fn freed_by_the_last(name: &str, uses: &[Use]) -> Program<Object> {
    let count = uses.len() as u32;
    let program = Program::new(name, move || Object {
        protected: UnsafeCell::new(ManuallyDrop::new(Protected::new())),
        users: Cell::new(count),
    });
    uses.iter().fold(program, |program, &step| {
        program.thread(move |object: &Object| {
            // SAFETY: alive until the last user has released it.
            if step(unsafe { &*object.protected.get() }, &object.users) {
                // SAFETY: nobody uses it any more, and nobody drops it twice. The memory stays, and
                // the explorer reports whoever touches it.
                unsafe { ManuallyDrop::drop(&mut *object.protected.get()) };
            }
        })
    })
}

#[test]
fn the_lock_can_go_once_its_last_user_has_released_it() {
    let jobs: [(&str, &[Use], u32); 8] = [
        ("two writers free it", &[last_write, last_write], 3),
        ("a reader and a writer free it", &[last_read, last_write], 3),
        ("two timed writers free it", &[last_write_in_time, last_write_in_time], 3),
        ("a timed reader and a writer free it", &[last_read_in_time, last_write], 3),
        ("three writers free it", &[last_write, last_write, last_write_in_time], 2),
        ("readers and a writer free it", &[read_along, read_along, last_write], 2),
        ("readers and a timed writer free it", &[read_along, read_along, last_write_in_time], 2),
        ("a time-out beside both frees it", &[read_along, last_write, last_write_in_time], 2),
    ];
    for (name, uses, preemptions) in jobs {
        let program = freed_by_the_last(name, uses);
        assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
    }
}

// ---- flaws ----

fn with_a_flaw<F: Flaw>(steps: &[Step<F>]) -> FailureKind {
    let program = program("with a flaw", steps, 0..=steps.len() as u32);
    let found = program.check(&Search::exhaustive().preemptions(2).at_most(100_000));
    let failure = found.expect_err("the explorer must notice the flaw");
    let again = program.replay(&failure.schedule).expect_err("and again");
    assert_eq!((&again.kind, &again.trace), (&failure.kind, &failure.trace));
    failure.kind
}

#[test]
fn the_explorer_notices_flaws() {
    let sleeps = |kind: &FailureKind| {
        matches!(kind, FailureKind::LostWakeUp { .. } | FailureKind::Deadlock { .. })
    };
    for steps in [[write as Step<Deaf>, read], [read, write]] {
        let kind = with_a_flaw(&steps);
        assert!(sleeps(&kind), "{kind}");
    }
    for steps in [[write as Step<Blind>, read], [read, write]] {
        let kind = with_a_flaw(&steps);
        assert!(sleeps(&kind), "{kind}");
    }
    let kind = with_a_flaw::<Torn>(&[write, write]);
    assert!(!matches!(kind, FailureKind::NotDeterministic), "{kind}");
}
