//! `ProcessSharedRwLock` under Loom: no race on what it protects and no lost wake-up in the
//! interleavings of two or three threads, with a bound on preemptions and on how many are tried.
//! Models without spins see the sleeps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fairlock::platform::Platform;
use fairlock::process_shared::ProcessSharedRwLock;
use fairlock::unguarded::{Refused, UnguardedRwLock};
use fairlock_check::loom_platform::{
    DeafHasty, Gullible, Hasty, Loom, Watched, Weakened, explore_most, most_executions,
};

struct Protected<P: Platform> {
    lock: ProcessSharedRwLock<P>,
    number: Watched,
}

impl<P: Platform> Protected<P> {
    /// As a reader.
    fn look(&self) {
        self.number.get();
        // SAFETY: callers have acquired it for reading.
        unsafe { self.lock.unlock_read() };
    }

    /// As a writer.
    fn add(&self) {
        self.number.add();
        // SAFETY: callers have acquired it for writing.
        unsafe { self.lock.unlock_write() };
    }
}

type Step<P> = fn(&Protected<P>);

impl<P: Platform> Protected<P> {
    fn new() -> Arc<Self> {
        Arc::new(Protected { lock: ProcessSharedRwLock::NEW, number: Watched::new() })
    }

    fn spawn(self: &Arc<Self>, step: Step<P>) -> loom::thread::JoinHandle<()> {
        let it = Arc::clone(self);
        loom::thread::spawn(move || step(&it))
    }

    fn assert_free(&self) {
        assert_eq!(self.lock.try_write(), Ok(()), "the lock is free when everybody is done");
        self.add();
    }
}

fn join(threads: impl IntoIterator<Item = loom::thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("a panic ends the model"));
}

/// Runs one step in each thread, the last in the first thread, and checks that the lock is free
/// afterwards.
fn together<P: Platform>(steps: &[Step<P>]) {
    let it = Protected::<P>::new();
    let (mine, others) = steps.split_last().expect("at least one");
    let threads: Vec<_> = others.iter().map(|&step| it.spawn(step)).collect();
    mine(&it);
    join(threads);
    it.assert_free();
}

fn read<P: Platform>(it: &Protected<P>) {
    assert_eq!(it.lock.read(None, false), Ok(()));
    it.look();
}

fn write<P: Platform>(it: &Protected<P>) {
    assert_eq!(it.lock.write(None), Ok(()));
    it.add();
}

fn read_recursively<P: Platform>(it: &Protected<P>) {
    assert_eq!(it.lock.read(None, false), Ok(()));
    assert_eq!(it.lock.read(None, true), Ok(()));
    it.look();
    it.look();
}

fn read_in_time<P: Platform>(it: &Protected<P>) {
    match it.lock.read(Some(P::now() + 100_000), false) {
        Ok(()) => it.look(),
        refused => assert_eq!(refused, Err(Refused::TimedOut)),
    }
}

fn write_in_time<P: Platform>(it: &Protected<P>) {
    match it.lock.write(Some(P::now() + 100_000)) {
        Ok(()) => it.add(),
        refused => assert_eq!(refused, Err(Refused::TimedOut)),
    }
}

fn try_write<P: Platform>(it: &Protected<P>) {
    if it.lock.try_write().is_ok() {
        it.add();
    }
}

/// A flaw shows among the first hundred.
fn most() -> usize {
    most_executions(600)
}

macro_rules! models {
    ($($name:ident: $preemptions:literal, [$($step:ident),*];)*) => {$(
        #[test]
        fn $name() {
            let most = most();
            explore_most("spinning", $preemptions, most, || together::<Loom>(&[$($step),*]));
            explore_most("sleeping", $preemptions, most, || together::<Hasty>(&[$($step),*]));
        }
    )*};
}

models! {
    two_writers_exclude_each_other: 3, [write, write];
    a_reader_and_a_writer_exclude_each_other: 3, [read, write];
    a_writer_that_gives_up_races_with_an_unlock: 3, [write_in_time, write];
    a_writer_that_gives_up_races_with_readers: 2, [read, write_in_time, read];
    a_reader_that_gives_up_races_with_an_unlock: 3, [read_in_time, write];
    a_recursive_reader_passes_a_writer: 3, [read_recursively, write];
    three_writers_exclude_each_other: 1, [write, write, write];
    a_try_excludes: 3, [try_write, write];
    two_readers_let_a_writer_in: 2, [read, read, write];
    two_writers_let_a_reader_in: 2, [write, read, write];
    those_that_give_up_stand_in_nobodys_way: 1, [write_in_time, read_in_time, write];
}

/// Two readers are in, and leave in either order while a writer comes. Whoever hands the lock over
/// does so for both.
fn readers_leave<P: Platform>() {
    let it = Protected::<P>::new();
    assert_eq!((it.lock.read(None, false), it.lock.read(None, false)), (Ok(()), Ok(())));
    let threads = [it.spawn(Protected::look), it.spawn(write)];
    it.look();
    join(threads);
    it.assert_free();
}

#[test]
fn a_writer_knows_of_all_readers_before_it() {
    explore_most("spinning", 3, most(), readers_leave::<Loom>);
    explore_most("sleeping", 3, most(), readers_leave::<Hasty>);
}

/// A reader stays in until another one has been in, too.
fn reader_comes<P: Platform>() {
    let it = Protected::<P>::new();
    assert_eq!(it.lock.read(None, false), Ok(()));
    let writer = it.spawn(write_in_time);
    join([it.spawn(read)]);
    it.look();
    join([writer]);
    it.assert_free();
}

#[test]
fn a_writer_that_gives_up_lets_in_whoever_waits_for_it() {
    explore_most("spinning", 3, most(), reader_comes::<Loom>);
    explore_most("sleeping", 3, most(), reader_comes::<Hasty>);
}

fn report<P: Platform>(steps: &'static [Step<P>]) -> String {
    let failure = catch_unwind(AssertUnwindSafe(|| {
        explore_most("flawed", 2, most(), || together(steps));
    }));
    let failure = failure.expect_err("the checker must notice the flaw");
    match failure.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => (*other.downcast_ref::<&str>().unwrap_or(&"not a message")).to_owned(),
    }
}

#[test]
fn the_checker_notices_relaxed_orderings() {
    let message = report::<Weakened>(&[write, write]);
    assert!(message.contains("Causality violation"), "{message}");
}

#[test]
fn the_checker_notices_lost_wake_ups() {
    let models: [&[Step<DeafHasty>]; 2] = [&[write, read], &[write, write]];
    for steps in models {
        let message = report(steps);
        assert!(message.contains("deadlock"), "{message}");
    }
}

#[test]
fn the_checker_notices_two_owners() {
    let message = report::<Gullible>(&[try_write, try_write]);
    assert!(message.contains("Causality violation"), "{message}");
}
