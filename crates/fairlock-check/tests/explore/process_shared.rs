//! `ProcessSharedRwLock` in every schedule within stated bounds: nobody is let in beside a writer,
//! nobody sleeps for ever, whoever gives up leaves no trace, and nobody is passed more often than
//! promised.

use std::cell::{Cell, UnsafeCell};
use std::mem::ManuallyDrop;

use fairlock::platform::Platform;
use fairlock::unguarded::UnguardedRwLock;
use fairlock_check::explored::program;
use fairlock_check::long;
use fairlock_check::process_shared::{self, read, write, write_in_time};
use fairlock_check::scenario::{Scenario, Step, Subject};
use fairlock_sim::explore::{
    self, Blind, Deaf, Explore, FailureKind, Flaw, Guarded, Program, Search, Sound, Torn,
};
use fairlock_sim::{Explored, On};

type Protected<F = Sound> = process_shared::Protected<On<Explore<F>>, Guarded<F>>;

fn of_it(scenario: &Scenario<Protected>) -> Program<Protected> {
    program("process-shared", scenario)
}

fn soon() -> Option<u64> {
    process_shared::soon::<Explored>()
}

#[test]
fn two_threads_in_every_schedule() {
    for scenario in process_shared::two_threads() {
        let program = of_it(&scenario).clock_jumps(1).spurious_wakes(1);
        let most = Search::exhaustive().at_most(long::depth(3_000, 200_000));
        if !program.assert(&most).complete {
            assert!(program.assert(&Search::exhaustive().preemptions(3)).complete);
        }
    }
}

#[test]
fn three_threads_with_few_preemptions() {
    for scenario in process_shared::three_threads() {
        let search = Search::exhaustive().preemptions(long::depth(2, 3));
        let most = long::depth(3_000, 1_000_000);
        of_it(&scenario).assert(&search.at_most(most));
    }
}

#[test]
fn four_threads_with_fewer() {
    for scenario in process_shared::four_threads() {
        let program = of_it(&scenario);
        program.assert(&Search::exhaustive().preemptions(1).at_most(long::depth(3_000, 500_000)));
        program.assert(&Search::pct(1, 3, long::depth(1_000, 50_000)));
    }
}

#[test]
fn eight_threads_by_chance() {
    let program = of_it(&process_shared::eight()).clock_jumps(1).spurious_wakes(1);
    for seed in 1..=3 {
        program.assert(&Search::pct(seed, 3, long::depth(700, 20_000)));
    }
    program.assert(&Search::random(4, long::depth(700, 20_000)));
}

/// More turns than two bits count.
#[test]
fn readers_and_a_writer_take_many_turns() {
    let program = of_it(&process_shared::six_times_each());
    for seed in 1..=2 {
        program.assert(&Search::pct(seed, 3, long::depth(500, 20_000)));
    }
    program.assert(&Search::random(3, long::depth(500, 20_000)));
}

#[test]
fn three_threads_with_store_buffers() {
    for scenario in process_shared::three_threads() {
        let program = of_it(&scenario).store_buffers();
        program.assert(&Search::random(2, long::depth(300, 20_000)));
    }
}

// ---- who passes whom ----

/// A lock, and whether the first thread has acquired it: set while it has it.
type State = (Protected, Cell<bool>);

/// Acquires the lock so often by `acquire`, and how often past the first thread, which was asleep
/// when it began to.
fn passes(
    (it, done): &State,
    times: u32,
    acquire: fn(&Protected) -> bool,
    leave: Step<Protected>,
) -> u32 {
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
    it.lock.write(soon()).is_ok()
}

fn look(it: &Protected) {
    it.look();
}

/// With a first thread that acquires by `acquire`.
fn sleeper(name: &str, acquire: fn(&Protected) -> bool, leave: Step<Protected>) -> Program<State> {
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
    let program = sleeper("timeouts and a sleeping reader", to_read, look);
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
        .early_timeouts(0);
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
    if it.lock.write(soon()).is_err() {
        return last_write(it, users);
    }
    let last = count_out(users);
    it.add();
    last
}

fn last_read_in_time(it: &Protected, users: &Cell<u32>) -> bool {
    if it.lock.read(soon(), false).is_err() {
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
        ("a timeout beside both frees it", &[read_along, last_write, last_write_in_time], 2),
    ];
    for (name, uses, preemptions) in jobs {
        let program = freed_by_the_last(name, uses);
        assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
    }
}

// ---- flaws ----

fn with_a_flaw<F: Flaw>(steps: [Step<Protected<F>>; 2]) -> FailureKind {
    let program = program("process-shared", &Scenario::new("with a flaw", steps, 0..=2));
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
    for steps in [[write as Step<Protected<Deaf>>, read], [read, write]] {
        let kind = with_a_flaw(steps);
        assert!(sleeps(&kind), "{kind}");
    }
    for steps in [[write as Step<Protected<Blind>>, read], [read, write]] {
        let kind = with_a_flaw(steps);
        assert!(sleeps(&kind), "{kind}");
    }
    let kind = with_a_flaw::<Torn>([write, write]);
    assert!(!matches!(kind, FailureKind::NotDeterministic), "{kind}");
}
