//! `RangeLock` under Loom: no race on what ranges protect, in C11's memory model, and no lost wake-up,
//! in the interleavings of two or three threads with a bound on preemptions; and platforms that lack
//! an ordering, a barrier, wake-ups or filters, which the models must notice.

mod loom_platform;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fairlock::process::Host;
use fairlock::range::{
    ArcRangeReadGuard, ArcRangeWriteGuard, Extent, RangeLock, RangeReadGuard, RangeWriteGuard,
    Slotted,
};
use loom_platform::{
    DeafHasty, GullibleHalves, Hasty, Loom, LostSums, NoFence, NoHeavyHasty, NoLightHasty,
    Symmetric, SymmetricHasty, SymmetricNoFence, Watched, Weakened, WithoutRecords, explore,
};

/// Each position is a block; with two stripes, 0 and 1 lie in different ones.
type Raw<P, const STRIPES: usize> = Slotted<P, STRIPES, 0>;

/// Positions that the threads fight over. Ranges of more than four are wide.
const POSITIONS: usize = 6;

struct State<P: Host, const STRIPES: usize> {
    lock: Arc<RangeLock<Raw<P, STRIPES>>>,
    data: Arc<[Watched; POSITIONS]>,
}

type Step<P, const STRIPES: usize> = fn(&State<P, STRIPES>);

impl<P: Host, const STRIPES: usize> State<P, STRIPES> {
    fn new() -> Self {
        State {
            lock: Arc::new(RangeLock::new_in()),
            data: Arc::new([(); POSITIONS].map(|()| Watched::new())),
        }
    }

    fn read(&self, from: u64, to: u64) {
        self.look(&self.lock.read(extent(from, to)));
    }

    fn write(&self, from: u64, to: u64) {
        self.add(&self.lock.write(extent(from, to)));
    }

    fn look(&self, guard: &RangeReadGuard<'_, Raw<P, STRIPES>>) {
        self.at(RangeReadGuard::extent(guard)).for_each(|data| _ = data.get());
    }

    fn add(&self, guard: &RangeWriteGuard<'_, Raw<P, STRIPES>>) {
        self.at(RangeWriteGuard::extent(guard)).for_each(Watched::add);
    }

    fn at(&self, extent: Extent) -> impl Iterator<Item = &Watched> {
        let last = extent.last().min(POSITIONS as u64 - 1);
        self.data[extent.first() as usize..=last as usize].iter()
    }
}

fn extent(from: u64, to: u64) -> Extent {
    Extent::of(from..to).expect("not empty")
}

/// Runs one step in each thread, the last in the first thread, and checks that everything is free
/// afterwards. Returns what the steps have added to the first position.
fn together<P: Host, const STRIPES: usize>(steps: &[Step<P, STRIPES>]) -> u32 {
    let state = Arc::new(State::<P, STRIPES>::new());
    // Whatever Loom watches exists from now on.
    state.write(0, 2);
    state.write(0, 6);
    let (mine, others) = steps.split_last().expect("at least one");
    let threads: Vec<_> = others
        .iter()
        .map(|&step| {
            let state = Arc::clone(&state);
            loom::thread::spawn(move || step(&state))
        })
        .collect();
    mine(&state);
    for thread in threads {
        thread.join().expect("a panic ends the model");
    }
    let all = state.lock.try_write(Extent::ALL).expect("free when everybody is done");
    state.add(&all);
    state.data[0].get() - 3
}

// ---- steps ----

macro_rules! steps {
    ($($name:ident |$state:ident| $body:expr;)*) => {$(
        fn $name<P: Host, const STRIPES: usize>($state: &State<P, STRIPES>) {
            $body
        }
    )*};
}

steps! {
    read_0 |state| state.read(0, 1);
    read_1 |state| state.read(1, 2);
    read_01 |state| state.read(0, 2);
    read_wide |state| state.read(0, 6);
    write_0 |state| state.write(0, 1);
    write_1 |state| state.write(1, 2);
    write_01 |state| state.write(0, 2);
    write_12 |state| state.write(1, 3);
    write_wide |state| state.write(0, 5);
    read_0_then_1 |state| { state.read(0, 1); state.read(1, 2) };
    write_0_then_1 |state| { state.write(0, 1); state.write(1, 2) };
    write_1_then_0 |state| { state.write(1, 2); state.write(0, 1) };
    write_all |state| state.add(&state.lock.write(Extent::ALL));
    try_read_0 |state| if let Some(guard) = state.lock.try_read(extent(0, 1)) {
        state.look(&guard);
    };
    try_write_01 |state| if let Some(guard) = state.lock.try_write(extent(0, 2)) {
        state.add(&guard);
    };
    read_in_time |state| {
        if let Some(guard) = state.lock.try_read_for(extent(0, 2), Duration::from_micros(100)) {
            state.look(&guard);
        }
    };
    write_in_time |state| {
        if let Some(guard) = state.lock.try_write_for(extent(0, 2), Duration::from_micros(100)) {
            state.add(&guard);
        }
    };
    downgrade |state| {
        let guard = state.lock.write(extent(0, 2));
        state.add(&guard);
        let before = state.data[0].get();
        let guard = RangeWriteGuard::downgrade(guard);
        state.look(&guard);
        assert_eq!(state.data[0].get(), before, "nobody writes in between");
    };
    // The guard ends on another thread, and then its slot is used again.
    read_and_pass_on |state| {
        let guard = state.lock.read_arc(extent(0, 1));
        let data = Arc::clone(&state.data);
        let last = loom::thread::spawn(move || {
            data[0].get();
            assert_eq!(ArcRangeReadGuard::extent(&guard).first(), 0);
            drop(guard);
        });
        state.write(1, 2);
        last.join().expect("a panic ends the model");
    };
    write_and_pass_on |state| {
        let guard = state.lock.write_arc(extent(0, 1));
        let data = Arc::clone(&state.data);
        let last = loom::thread::spawn(move || {
            data[0].add();
            assert_eq!(ArcRangeWriteGuard::extent(&guard).first(), 0);
            drop(guard);
        });
        state.read(1, 2);
        last.join().expect("a panic ends the model");
    };
}

// ---- models ----

macro_rules! models {
    ($($name:ident $platform:ident $stripes:literal [$($step:ident)*] at most $preemptions:literal adds $from:literal to $to:literal;)*) => {$(
        #[test]
        fn $name() {
            explore(stringify!($name), $preemptions, || {
                let added = together::<$platform, $stripes>(&[$($step),*]);
                assert!(($from..=$to).contains(&added), "{added}");
            });
        }
    )*};
}

models! {
    a_reader_and_a_writer Loom 2 [read_0 write_0] at most 3 adds 1 to 1;
    a_reader_and_a_writer_that_sleeps Hasty 2 [read_0 write_0] at most 3 adds 1 to 1;
    a_reader_and_a_writer_with_fences Symmetric 2 [read_0 write_0] at most 3 adds 1 to 1;
    a_reader_and_a_writer_that_sleeps_with_fences SymmetricHasty 2 [read_0 write_0] at most 3 adds 1 to 1;
    a_slot_of_one_range_and_then_another Symmetric 2 [read_0_then_1 write_0] at most 2 adds 1 to 1;
    two_writers Loom 2 [write_0 write_0] at most 2 adds 2 to 2;
    two_writers_that_sleep Hasty 1 [write_0 write_01] at most 2 adds 2 to 2;
    writers_of_one_range_and_then_another Symmetric 2 [write_0_then_1 write_1_then_0] at most 2 adds 2 to 2;
    writers_apart Loom 2 [write_0 write_1] at most 3 adds 1 to 1;
    writers_apart_in_one_stripe Loom 1 [write_0 write_1] at most 3 adds 1 to 1;
    writers_that_overlap Loom 2 [write_01 write_12] at most 2 adds 1 to 1;
    a_reader_of_two_stripes_and_a_writer Loom 2 [read_01 write_1] at most 3 adds 0 to 0;
    a_wide_reader_and_a_writer Loom 2 [read_wide write_1] at most 3 adds 0 to 0;
    a_wide_writer_and_a_reader Loom 2 [write_wide read_1] at most 3 adds 1 to 1;
    a_wide_writer_that_sleeps_and_a_reader Hasty 2 [write_wide read_0_then_1] at most 2 adds 1 to 1;
    wide_writers Loom 1 [write_wide write_all] at most 2 adds 2 to 2;
    tries_and_a_writer Loom 2 [try_read_0 write_0] at most 3 adds 1 to 1;
    a_reader_and_a_try_of_a_writer Loom 2 [read_0 try_write_01] at most 3 adds 0 to 1;
    tries_of_writers Loom 2 [try_write_01 try_write_01] at most 2 adds 1 to 2;
    a_reader_in_time_and_a_writer Hasty 2 [read_in_time write_0] at most 3 adds 1 to 1;
    a_writer_in_time_and_a_reader Hasty 2 [write_in_time read_0] at most 3 adds 0 to 1;
    a_downgrade_and_a_reader Loom 2 [downgrade read_0] at most 3 adds 1 to 1;
    a_downgrade_and_a_writer_that_sleeps Hasty 2 [downgrade write_0] at most 2 adds 2 to 2;
    a_reader_that_ends_elsewhere_and_a_writer Loom 2 [read_and_pass_on write_0] at most 2 adds 1 to 1;
    a_writer_that_ends_elsewhere_and_a_reader Loom 2 [write_and_pass_on read_0] at most 2 adds 1 to 1;
    without_slots WithoutRecords 2 [read_01 write_0] at most 3 adds 1 to 1;
    two_readers_and_a_writer Hasty 2 [read_0 read_01 write_0] at most 1 adds 1 to 1;
    a_reader_and_two_writers Hasty 2 [read_0 write_0 write_01] at most 1 adds 2 to 2;
    a_writer_in_time_between_others Hasty 2 [write_0 write_in_time read_1] at most 1 adds 1 to 2;
    a_writer_of_both_and_one_of_each Loom 2 [write_0 write_1 write_01] at most 1 adds 2 to 2;
}

/// Who wants everything from 1 on always goes to the queue, as somebody is listed for a stripe of that
/// without being in the way; and is let in by it while a newcomer looks at another stripe.
#[test]
fn a_wide_writer_that_the_queue_lets_in_and_a_reader() {
    explore("a wide writer that the queue lets in", 2, || {
        let state = Arc::new(State::<Hasty, 2>::new());
        let slots = [7, 8, 9, 10].map(|at| state.lock.read(extent(at, at + 1)));
        let without_slot = state.lock.read(extent(0, 1));
        drop(slots);
        let reader = {
            let state = Arc::clone(&state);
            loom::thread::spawn(move || state.read(1, 2))
        };
        state.write(1, 6);
        reader.join().expect("a panic ends the model");
        drop(without_slot);
    });
}

// ---- flaws ----

/// The message with which some execution of the steps fails.
fn failure<P: Host>(name: &str, steps: &'static [Step<P, 2>]) -> String {
    let model = || explore(name, 3, move || _ = together::<P, 2>(steps));
    let failure = catch_unwind(AssertUnwindSafe(model)).expect_err("the flaw is noticed");
    let text = failure.downcast_ref::<String>().cloned();
    text.or_else(|| failure.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

fn is_race<P: Host>(name: &str, steps: &'static [Step<P, 2>]) {
    let found = failure(name, steps);
    assert!(found.contains("Causality violation"), "{found}");
}

fn is_deadlock<P: Host>(name: &str, steps: &'static [Step<P, 2>]) {
    let found = failure(name, steps);
    assert!(found.contains("deadlock"), "{found}");
}

#[test]
fn weakened_orderings_are_noticed() {
    is_race::<Weakened>("weakened", &[read_0, write_0]);
}

#[test]
fn a_missing_fence_is_noticed() {
    is_race::<NoFence>("no fence", &[read_0, write_0]);
    is_race::<SymmetricNoFence>("no fence, no barrier", &[read_0, write_0]);
}

#[test]
fn a_missing_barrier_before_a_sleep_is_noticed() {
    is_deadlock::<NoLightHasty>("no light barrier", &[read_0, write_0]);
    is_deadlock::<NoHeavyHasty>("no heavy barrier", &[read_0, write_0]);
}

#[test]
fn a_lost_wake_up_is_noticed() {
    is_deadlock::<DeafHasty>("deaf", &[read_0, write_0]);
}

#[test]
fn filters_that_are_not_raised_are_noticed() {
    is_race::<LostSums>("lost sums", &[read_0, write_0]);
}

#[test]
fn a_queue_that_several_work_on_is_noticed() {
    is_race::<GullibleHalves>("gullible", &[write_0, write_0]);
}
