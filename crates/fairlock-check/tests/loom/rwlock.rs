//! `RwLock` under Loom: the pairs of barriers between readers in slots and writers in C11's memory
//! model, the sleep of a writer that waits for a slot, and the change between the ways in which
//! readers come in; and platforms that lack one barrier each, which the models must notice.

use fairlock::lock_api;
use fairlock::policy::{Bias, BiasPolicy};
use fairlock::process::Host;
use fairlock::rwlock::RawRwLock;
use fairlock_check::loom_platform::{
    self, DeafHasty, Hasty, Loom, NoFence, NoHeavy, NoLight, Symmetric, SymmetricHasty,
    SymmetricNoFence, Watched, Weakened, check, model, most_executions,
};
use fairlock_check::read_write;
use fairlock_check::scenario::Scenario;

/// Slots from the first read on, for good.
struct AtOnce;

impl BiasPolicy for AtOnce {
    const BIAS: Bias = Bias { reads: 0, reads_per_look: 1, patience: 0, ..Bias::READ_MOSTLY };
}

/// The same until the first write.
struct ForAMoment;

impl BiasPolicy for ForAMoment {
    const BIAS: Bias = Bias { writes: 0, ..AtOnce::BIAS };
}

/// The same, with fences.
struct Cautious;

impl BiasPolicy for Cautious {
    const BIAS: Bias = Bias { patience: u32::MAX, ..AtOnce::BIAS };
}

type Lock<P, B> = lock_api::RwLock<RawRwLock<P, B>, Watched>;

/// Readers use slots from now on.
fn with_slots<P: Host, B: BiasPolicy>() -> Lock<P, B> {
    let lock = Lock::new(Watched::new());
    // The first says that slots are to be used, the second that fences are not.
    read_write::read_twice(&lock);
    lock
}

macro_rules! models {
    ($($name:ident $platform:ident $bias:ident $scenario:ident at most $preemptions:literal;)*) => {$(
        #[test]
        fn $name() {
            let scenario = read_write::$scenario().beginning_with(with_slots::<$platform, $bias>);
            check(stringify!($name), [scenario], $preemptions, most_executions(5_000));
        }
    )*};
}

models! {
    a_reader_and_a_writer Loom AtOnce a_reader_and_a_writer at most 3;
    a_reader_and_a_writer_with_fences Symmetric AtOnce a_reader_and_a_writer at most 3;
    a_reader_and_a_writer_that_sleeps Hasty AtOnce a_reader_and_a_writer at most 3;
    a_reader_and_a_writer_that_sleeps_with_fences SymmetricHasty AtOnce a_reader_and_a_writer at most 3;
    two_reads_and_a_writer_with_fences Loom Cautious two_reads_and_a_writer at most 3;
    two_reads_and_a_writer_that_ends_slots Loom ForAMoment two_reads_and_a_writer at most 3;
    two_writers Loom AtOnce two_writers at most 3;
    a_try_to_read_and_a_writer Loom AtOnce a_try_to_read_and_a_writer at most 3;
    a_try_to_write_and_a_reader Loom AtOnce a_try_to_write_and_a_reader at most 3;
    a_timed_writer_and_a_reader Loom AtOnce a_timed_writer_and_a_reader at most 3;
    a_downgrade_and_a_reader Loom AtOnce a_downgrade_and_a_reader at most 3;
    an_upgrade_and_a_reader Loom AtOnce an_upgrade_and_a_reader at most 3;
    a_try_to_upgrade_and_a_reader Loom AtOnce a_try_to_upgrade_and_a_reader at most 3;
    two_readers_and_a_writer Loom AtOnce two_readers_and_a_writer at most 2;
    two_readers_and_a_writer_with_fences Symmetric AtOnce two_readers_and_a_writer at most 2;
    a_reader_and_two_writers Loom ForAMoment a_reader_and_two_writers at most 2;
    an_upgrade_a_reader_and_a_writer Loom AtOnce an_upgrade_a_reader_and_a_writer at most 1;
}

/// The message with which some execution of the scenario fails.
fn failure<P: Host, B: BiasPolicy>(name: &str, scenario: Scenario<Lock<P, B>>) -> String {
    loom_platform::failure(name, 3, model(scenario.beginning_with(with_slots)))
}

#[test]
fn a_missing_light_barrier_is_noticed() {
    failure::<NoLight, AtOnce>("no light barrier", read_write::a_reader_and_a_writer());
}

#[test]
fn a_missing_heavy_barrier_is_noticed() {
    failure::<NoHeavy, AtOnce>("no heavy barrier", read_write::a_reader_and_a_writer());
}

#[test]
fn a_missing_fence_is_noticed_where_a_barrier_could_be() {
    failure::<NoFence, Cautious>("no fence", read_write::two_reads_and_two_writes());
}

#[test]
fn a_missing_fence_is_noticed() {
    failure::<SymmetricNoFence, AtOnce>(
        "no fence, no barrier",
        read_write::a_reader_and_a_writer(),
    );
}

#[test]
fn weakened_orderings_are_noticed() {
    failure::<Weakened, AtOnce>("weakened", read_write::a_reader_and_a_writer());
}

#[test]
fn a_lost_wake_up_is_noticed() {
    failure::<DeafHasty, AtOnce>("deaf", read_write::a_reader_and_a_writer());
}
