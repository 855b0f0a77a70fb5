//! `RangeLock` under Loom: no race on what ranges protect, in C11's memory model, and no lost wake-up,
//! in the interleavings of two or three threads with a bound on preemptions; and platforms that lack
//! an ordering, a barrier, wake-ups or filters, which the models must notice.

use std::sync::Arc;

use fairlock::process::Host;
use fairlock::range::{ArcRangeReadGuard, ArcRangeWriteGuard, Slotted};
use fairlock_check::long;
use fairlock_check::loom_platform::{
    DeafHasty, GullibleHalvesHasty, Hasty, Loom, LostBits, NoFence, NoHeavyHasty, NoLightHasty,
    Symmetric, SymmetricHasty, SymmetricNoFence, Watched, Weakened, WithoutRecords, check, explore,
    explore_most, failure, join, model, most_executions, spawn,
};
use fairlock_check::range::scenarios::{self, Positions, extent, read_0, write_0};
use fairlock_check::scenario::{Scenario, Subject};

/// In the suite as many as show a missing barrier before a sleep.
fn most() -> usize {
    most_executions(8_000)
}

/// Each position is a block; with two stripes, 0 and 1 lie in different ones.
type State<P, const STRIPES: usize> = Positions<Slotted<P, STRIPES, 0>, Watched>;

/// Whatever Loom watches exists from now on.
fn touched<P: Host, const STRIPES: usize>() -> State<P, STRIPES> {
    let state = State::new();
    state.write(0, 2);
    state.write(0, 6);
    state
}

/// The scenario, with what that has added.
fn when_touched<P: Host, const STRIPES: usize>(
    scenario: Scenario<State<P, STRIPES>>,
) -> Scenario<State<P, STRIPES>> {
    let added = scenario.added.start() + 2..=scenario.added.end() + 2;
    scenario.beginning_with(touched).adding(added)
}

// ---- steps ----

/// The guard ends on another thread, and then its slot is used again.
fn read_and_pass_on<P: Host, const STRIPES: usize>(state: &State<P, STRIPES>) {
    let guard = state.lock.read_arc(extent(0, 1));
    let data = Arc::clone(&state.data);
    let last = spawn(move || {
        data[0].get();
        assert_eq!(ArcRangeReadGuard::extent(&guard).first(), 0);
        drop(guard);
    });
    state.write(1, 2);
    join([last]);
}

/// The same for a writer.
fn write_and_pass_on<P: Host, const STRIPES: usize>(state: &State<P, STRIPES>) {
    let guard = state.lock.write_arc(extent(0, 1));
    let data = Arc::clone(&state.data);
    let last = spawn(move || {
        data[0].add();
        assert_eq!(ArcRangeWriteGuard::extent(&guard).first(), 0);
        drop(guard);
    });
    state.read(1, 2);
    join([last]);
}

// ---- models ----

macro_rules! models {
    ($($name:ident $platform:ident $stripes:literal $scenario:ident at most $preemptions:literal;)*) => {$(
        #[test]
        fn $name() {
            let scenario = when_touched::<$platform, $stripes>(scenarios::$scenario());
            check(stringify!($name), [scenario], $preemptions, most());
        }
    )*};
}

models! {
    a_reader_and_a_writer Loom 2 a_reader_and_a_writer at most 3;
    a_reader_and_a_writer_that_sleeps Hasty 2 a_reader_and_a_writer at most 3;
    a_reader_and_a_writer_with_fences Symmetric 2 a_reader_and_a_writer at most 3;
    a_reader_and_a_writer_that_sleeps_with_fences SymmetricHasty 2 a_reader_and_a_writer at most 3;
    a_slot_of_one_range_and_then_another Symmetric 2 a_slot_of_one_range_and_then_another at most 2;
    two_writers Loom 2 two_writers at most 2;
    two_writers_that_sleep Hasty 1 a_writer_and_one_of_more at most 2;
    writers_of_one_range_and_then_another Symmetric 2 writers_of_one_range_and_then_another at most 2;
    writers_apart Loom 2 writers_apart at most 3;
    writers_apart_in_one_stripe Loom 1 writers_apart at most 3;
    writers_that_overlap Loom 2 writers_that_overlap at most 2;
    a_reader_of_two_stripes_and_a_writer Loom 2 a_reader_of_two_stripes_and_a_writer at most 3;
    a_wide_reader_and_a_writer Loom 2 a_wide_reader_and_a_writer at most 3;
    a_coarse_reader_and_a_writer Loom 2 a_coarse_reader_and_a_writer at most 3;
    a_coarse_writer_and_a_reader Loom 2 a_coarse_writer_and_a_reader at most 3;
    a_coarse_writer_that_sleeps_and_a_reader Hasty 2 a_coarse_writer_and_two_reads at most 2;
    coarse_writers Loom 2 coarse_writers at most 2;
    a_coarse_writer_and_a_fine_one Loom 2 a_coarse_writer_and_a_fine_one at most 2;
    a_wide_writer_and_a_reader Loom 2 a_wide_writer_and_a_reader at most 3;
    a_wide_writer_and_a_coarse_one Loom 1 a_wide_writer_and_a_coarse_one at most 2;
    a_try_to_read_and_a_writer Loom 2 a_try_to_read_and_a_writer at most 3;
    a_try_to_write_and_a_reader Loom 2 a_try_to_write_and_a_reader at most 3;
    tries_of_writers Loom 2 tries_of_writers at most 2;
    a_reader_in_time_and_a_writer Hasty 2 a_reader_in_time_and_a_writer at most 3;
    a_writer_in_time_and_a_reader Hasty 2 a_writer_in_time_and_a_reader at most 3;
    a_downgrade_and_a_reader Loom 2 a_downgrade_and_a_reader at most 3;
    a_downgrade_and_a_writer_that_sleeps Hasty 2 a_downgrade_and_a_writer at most 2;
    without_slots WithoutRecords 2 a_reader_of_two_stripes_and_a_writer_of_one at most 3;
    two_readers_and_a_writer Hasty 2 two_readers_and_a_writer at most 1;
    a_reader_and_two_writers Hasty 2 a_reader_and_two_writers at most 1;
    a_writer_in_time_between_others Hasty 2 a_writer_in_time_between_two_apart at most 1;
    a_writer_of_both_and_one_of_each Loom 2 a_writer_of_both_and_one_of_each at most 1;
}

#[test]
fn a_reader_that_ends_elsewhere_and_a_writer() {
    let scenario =
        Scenario::new("a reader that ends elsewhere", [read_and_pass_on, write_0], 1..=1);
    check("slotted", [when_touched::<Loom, 2>(scenario)], 2, most());
}

#[test]
fn a_writer_that_ends_elsewhere_and_a_reader() {
    let scenario =
        Scenario::new("a writer that ends elsewhere", [write_and_pass_on, read_0], 1..=1);
    check("slotted", [when_touched::<Loom, 2>(scenario)], 2, most());
}

/// A writer of everything from 1 on always goes to the queue, as somebody is listed for one of its stripes
/// without a conflict; the queue grants its range while a newcomer looks at another stripe.
#[test]
fn a_wide_writer_that_the_queue_lets_in_and_a_reader() {
    explore("a wide writer that is granted its range by the queue", 2, || {
        let state = Arc::new(State::<Hasty, 2>::new());
        let slots = [7, 8, 9, 10].map(|at| state.lock.read(extent(at, at + 1)));
        let without_slot = state.lock.read(extent(0, 1));
        drop(slots);
        let reader = {
            let state = Arc::clone(&state);
            spawn(move || state.read(1, 2))
        };
        state.write(1, 6);
        join([reader]);
        drop(without_slot);
    });
}

/// One thread has said that ranges are shared and not yet raised its fence. Another sees that, and a writer may not: which
/// processors on which a store is seen by some before others allow, and C11.
#[test]
fn a_reader_that_finds_ranges_shared_and_a_writer() {
    let most = long::depth(5_000, 300_000);
    explore_most("a reader that finds ranges shared", 2, most, || {
        let state = Arc::new(touched::<Loom, 2>());
        let threads = [scenarios::try_read_1, scenarios::try_read_0];
        let threads = threads.map(|step: fn(&State<Loom, 2>)| {
            let state = Arc::clone(&state);
            spawn(move || step(&state))
        });
        // To after the other threads have begun, so that two preemptions are enough.
        loom::thread::yield_now();
        scenarios::try_write_0(&state);
        join(threads);
    });
}

// ---- flaws ----

/// The message with which some execution of the scenario fails.
fn found<P: Host>(name: &str, scenario: Scenario<State<P, 2>>) -> String {
    failure(name, 3, model(when_touched(scenario)))
}

fn is_race<P: Host>(name: &str, scenario: Scenario<State<P, 2>>) {
    let found = found(name, scenario);
    assert!(found.contains("Causality violation"), "{found}");
}

fn is_deadlock<P: Host>(name: &str, scenario: Scenario<State<P, 2>>) {
    let found = found(name, scenario);
    assert!(found.contains("deadlock"), "{found}");
}

#[test]
fn weakened_orderings_are_noticed() {
    is_race::<Weakened>("weakened", scenarios::a_reader_and_a_writer());
}

#[test]
fn a_missing_fence_is_noticed() {
    is_race::<NoFence>("no fence", scenarios::a_reader_and_a_writer());
    is_race::<SymmetricNoFence>("no fence, no barrier", scenarios::a_reader_and_a_writer());
}

#[test]
fn a_missing_barrier_before_a_sleep_is_noticed() {
    is_deadlock::<NoLightHasty>("no light barrier", scenarios::a_reader_and_a_writer());
    is_deadlock::<NoHeavyHasty>("no heavy barrier", scenarios::a_reader_and_a_writer());
}

#[test]
fn a_lost_wake_up_is_noticed() {
    is_deadlock::<DeafHasty>("deaf", scenarios::a_reader_and_a_writer());
}

#[test]
fn filters_that_are_not_raised_are_noticed() {
    is_race::<LostBits>("lost bits", scenarios::a_reader_and_a_writer());
}

#[test]
fn a_queue_that_several_work_on_is_noticed() {
    is_race::<GullibleHalvesHasty>("gullible", scenarios::two_writers());
}
