//! The mutex under Loom: no race on what it protects and no lost wake-up in the interleavings of two
//! or three threads, with a bound on preemptions and on how many are tried. Each model runs twice:
//! where nobody knows a CPU, so waiters spin, and where all share one, so they sleep at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fairlock::lock_api;
use fairlock::mutex::RawMutex;
use fairlock::platform::Platform;
use fairlock_check::loom_platform::{
    DeafOneCpu, GullibleHalves, Loom, OneCpu, Watched, Weakened, explore,
};

type Lock<P> = lock_api::Mutex<RawMutex<P>, Watched>;
type Step<P> = fn(&Lock<P>);

/// Runs one step in each thread, the last in the first thread, and checks that the lock is free
/// afterwards.
fn together<P: Platform>(steps: &[Step<P>]) {
    let lock = Arc::new(Lock::<P>::new(Watched::new()));
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
    lock.try_lock().expect("the lock is free when everybody is done").get();
}

fn plain<P: Platform>(lock: &Lock<P>) {
    lock.lock().add();
}

fn fair<P: Platform>(lock: &Lock<P>) {
    let guard = lock.lock();
    guard.add();
    lock_api::MutexGuard::unlock_fair(guard);
}

fn without_waiting<P: Platform>(lock: &Lock<P>) {
    if let Some(guard) = lock.try_lock() {
        guard.add();
    }
}

fn in_time<P: Platform>(lock: &Lock<P>) {
    if let Some(guard) = lock.try_lock_for(Duration::from_micros(100)) {
        guard.add();
    }
}

macro_rules! models {
    ($($name:ident: $preemptions:literal, [$($step:ident),*];)*) => {$(
        #[test]
        fn $name() {
            explore("spinning", $preemptions, || together::<Loom>(&[$($step),*]));
            explore("sleeping", $preemptions, || together::<OneCpu>(&[$($step),*]));
        }
    )*};
}

models! {
    two_threads_exclude_each_other: 3, [plain, plain];
    a_fair_unlock_loses_nobody: 3, [fair, plain];
    a_try_excludes: 3, [without_waiting, plain];
    a_time_out_races_with_an_unlock: 3, [in_time, plain];
    a_time_out_races_with_a_fair_unlock: 3, [in_time, fair];
    three_threads_exclude_each_other: 1, [plain, plain, plain];
    a_time_out_stands_in_nobodys_way: 1, [in_time, plain, plain];
    fair_and_plain_unlocks_mix: 1, [fair, plain, fair];
}

fn report<P: Platform>(steps: &'static [Step<P>]) -> String {
    let failure = catch_unwind(AssertUnwindSafe(|| {
        explore("flawed", 2, || together(steps));
    }));
    let failure = failure.expect_err("the checker must notice the flaw");
    match failure.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => (*other.downcast_ref::<&str>().unwrap_or(&"not a message")).to_owned(),
    }
}

#[test]
fn the_checker_notices_relaxed_orderings() {
    let message = report::<Weakened>(&[plain, plain]);
    assert!(message.contains("Causality violation"), "{message}");
}

#[test]
fn the_checker_notices_lost_wake_ups() {
    let message = report::<DeafOneCpu>(&[plain, plain]);
    assert!(message.contains("deadlock"), "{message}");
}

#[test]
fn the_checker_notices_two_owners() {
    let message = report::<GullibleHalves>(&[plain, plain]);
    assert!(message.contains("Causality violation"), "{message}");
}
