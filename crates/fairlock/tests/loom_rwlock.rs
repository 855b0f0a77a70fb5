//! `RwLock` under Loom: the pairs of barriers between readers in slots and writers in C11's memory
//! model, the sleep of a writer that waits for a slot, and the change between the ways in which
//! readers come in; and platforms that lack one barrier each, which the models must notice.

mod loom_platform;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fairlock::lock_api::{self, RwLockUpgradableReadGuard, RwLockWriteGuard};
use fairlock::policy::{Bias, BiasPolicy};
use fairlock::process::Host;
use fairlock::rwlock::RawRwLock;
use loom_platform::{
    DeafHasty, Hasty, Loom, NoFence, NoHeavy, NoLight, Symmetric, SymmetricHasty, SymmetricNoFence,
    Watched, Weakened, explore,
};

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
type Step<P, B> = fn(&Lock<P, B>);

/// Once readers use slots, runs one step in each thread, the last in the first thread, and checks
/// that the lock is free afterwards. Returns what the steps have added.
fn together<P: Host, B: BiasPolicy>(steps: &[Step<P, B>]) -> u32 {
    let lock = Arc::new(Lock::<P, B>::new(Watched::new()));
    // The first says that slots are to be used, the second that fences are not.
    lock.read().get();
    lock.read().get();
    let (mine, others) = steps.split_last().expect("at least one");
    let threads: Vec<_> = others
        .iter()
        .map(|&step| {
            let lock = Arc::clone(&lock);
            loom::thread::spawn(move || step(&lock))
        })
        .collect();
    mine(&lock);
    for thread in threads {
        thread.join().expect("a panic ends the model");
    }
    lock.try_write().expect("the lock is free when everybody is done").get()
}

fn write<P: Host, B: BiasPolicy>(lock: &Lock<P, B>) {
    lock.write().add();
}

fn read<P: Host, B: BiasPolicy>(lock: &Lock<P, B>) {
    lock.read().get();
}

fn read_twice<P: Host, B: BiasPolicy>(lock: &Lock<P, B>) {
    lock.read().get();
    lock.read().get();
}

fn try_read<P: Host, B: BiasPolicy>(lock: &Lock<P, B>) {
    if let Some(guard) = lock.try_read() {
        guard.get();
    }
}

fn try_write<P: Host, B: BiasPolicy>(lock: &Lock<P, B>) {
    if let Some(guard) = lock.try_write() {
        guard.add();
    }
}

fn write_in_time<P: Host, B: BiasPolicy>(lock: &Lock<P, B>) {
    if let Some(guard) = lock.try_write_for(Duration::from_micros(100)) {
        guard.add();
    }
}

fn downgrade<P: Host, B: BiasPolicy>(lock: &Lock<P, B>) {
    let guard = lock.write();
    guard.add();
    let before = guard.get();
    let guard = RwLockWriteGuard::downgrade(guard);
    assert_eq!(guard.get(), before, "nobody writes in between");
}

fn upgrade<P: Host, B: BiasPolicy>(lock: &Lock<P, B>) {
    let guard = lock.upgradable_read();
    let before = guard.get();
    let guard = RwLockUpgradableReadGuard::upgrade(guard);
    assert_eq!(guard.get(), before, "nobody writes in between");
    guard.add();
}

fn try_upgrade<P: Host, B: BiasPolicy>(lock: &Lock<P, B>) {
    let guard = lock.upgradable_read();
    match RwLockUpgradableReadGuard::try_upgrade(guard) {
        Ok(guard) => guard.add(),
        Err(guard) => _ = guard.get(),
    }
}

macro_rules! models {
    ($($name:ident $platform:ident $bias:ident [$($step:ident)*] at most $preemptions:literal adds $from:literal to $to:literal;)*) => {$(
        #[test]
        fn $name() {
            explore(stringify!($name), $preemptions, || {
                let added = together::<$platform, $bias>(&[$($step),*]);
                assert!(($from..=$to).contains(&added), "{added}");
            });
        }
    )*};
}

models! {
    a_reader_and_a_writer Loom AtOnce [read write] at most 3 adds 1 to 1;
    a_reader_and_a_writer_with_fences Symmetric AtOnce [read write] at most 3 adds 1 to 1;
    a_reader_and_a_writer_that_sleeps Hasty AtOnce [read write] at most 3 adds 1 to 1;
    a_reader_and_a_writer_that_sleeps_with_fences SymmetricHasty AtOnce [read write] at most 3 adds 1 to 1;
    two_reads_and_a_writer_with_fences Loom Cautious [read_twice write] at most 3 adds 1 to 1;
    two_reads_and_a_writer_that_ends_slots Loom ForAMoment [read_twice write] at most 3 adds 1 to 1;
    two_writers Loom AtOnce [write write] at most 3 adds 2 to 2;
    tries_and_a_writer Loom AtOnce [try_read write] at most 3 adds 1 to 1;
    a_reader_and_a_try_of_a_writer Loom AtOnce [read try_write] at most 3 adds 0 to 1;
    a_reader_and_a_writer_in_time Loom AtOnce [read write_in_time] at most 3 adds 0 to 1;
    a_reader_and_a_downgrade Loom AtOnce [read downgrade] at most 3 adds 1 to 1;
    a_reader_and_an_upgrade Loom AtOnce [read upgrade] at most 3 adds 1 to 1;
    a_reader_and_a_try_of_an_upgrade Loom AtOnce [read try_upgrade] at most 3 adds 0 to 1;
    two_readers_and_a_writer Loom AtOnce [read read write] at most 2 adds 1 to 1;
    two_readers_and_a_writer_with_fences Symmetric AtOnce [read read write] at most 2 adds 1 to 1;
    a_reader_and_two_writers Loom ForAMoment [read write write] at most 2 adds 2 to 2;
    a_reader_a_writer_and_an_upgrade Loom AtOnce [read write upgrade] at most 1 adds 2 to 2;
}

/// The message with which some execution of the steps fails.
fn failure<P: Host, B: BiasPolicy>(name: &str, steps: &'static [Step<P, B>]) -> String {
    let model = || explore(name, 3, move || _ = together::<P, B>(steps));
    let failure = catch_unwind(AssertUnwindSafe(model)).expect_err("the flaw is noticed");
    let text = failure.downcast_ref::<String>().cloned();
    text.or_else(|| failure.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

#[test]
fn a_missing_light_barrier_is_noticed() {
    failure::<NoLight, AtOnce>("no light barrier", &[read, write]);
}

#[test]
fn a_missing_heavy_barrier_is_noticed() {
    failure::<NoHeavy, AtOnce>("no heavy barrier", &[read, write]);
}

#[test]
fn a_missing_fence_is_noticed_where_a_barrier_could_be() {
    failure::<NoFence, Cautious>("no fence", &[read_twice, write_twice]);
}

#[test]
fn a_missing_fence_is_noticed() {
    failure::<SymmetricNoFence, AtOnce>("no fence, no barrier", &[read, write]);
}

#[test]
fn weakened_orderings_are_noticed() {
    failure::<Weakened, AtOnce>("weakened", &[read, write]);
}

#[test]
fn a_lost_wake_up_is_noticed() {
    failure::<DeafHasty, AtOnce>("deaf", &[read, write]);
}

fn write_twice<P: Host, B: BiasPolicy>(lock: &Lock<P, B>) {
    lock.write().add();
    lock.write().add();
}
