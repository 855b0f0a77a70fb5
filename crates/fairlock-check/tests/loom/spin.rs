//! The spin locks under Loom: no race on what they protect and nobody left waiting, in the
//! interleavings of two or three threads with a bound on preemptions. Each lock is also built on a
//! platform whose atomics order nothing, which Loom must notice.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fairlock::lock_api::{Mutex, RawMutex, RawRwLock, RwLock};
use fairlock_check::loom_platform::{
    self, Gullible, Loom, LoomOfExchanges, Watched, Weakened, explore,
};
use fairlock_reference::spin::{RawClh, RawMcs, RawQueuedRwLock, RawTas, RawTicket, RawTtas};

/// Runs one step in each thread, the last in the first thread, and then `finally` there.
fn together<L: Send + Sync + 'static>(lock: L, steps: &[fn(&L)], finally: fn(&L)) {
    let lock = Arc::new(lock);
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
    finally(&lock);
}

fn mutex<R: RawMutex + Send + Sync + 'static>(steps: &[fn(&Mutex<R, Watched>)]) {
    together(Mutex::new(Watched::new()), steps, |lock| {
        lock.try_lock().expect("the lock is free when everybody is done").get();
    });
}

fn rwlock<R: RawRwLock + Send + Sync + 'static>(steps: &[fn(&RwLock<R, Watched>)]) {
    together(RwLock::new(Watched::new()), steps, |lock| {
        lock.try_write().expect("the lock is free when everybody is done").get();
    });
}

fn lock<R: RawMutex>(lock: &Mutex<R, Watched>) {
    lock.lock().add();
}

fn lock_twice<R: RawMutex>(lock: &Mutex<R, Watched>) {
    lock.lock().add();
    lock.lock().add();
}

fn try_lock<R: RawMutex>(lock: &Mutex<R, Watched>) {
    if let Some(guard) = lock.try_lock() {
        guard.add();
    }
}

fn read<R: RawRwLock>(lock: &RwLock<R, Watched>) {
    lock.read().get();
}

fn try_read<R: RawRwLock>(lock: &RwLock<R, Watched>) {
    if let Some(guard) = lock.try_read() {
        guard.get();
    }
}

fn write<R: RawRwLock>(lock: &RwLock<R, Watched>) {
    lock.write().add();
}

fn try_write<R: RawRwLock>(lock: &RwLock<R, Watched>) {
    if let Some(guard) = lock.try_write() {
        guard.add();
    }
}

/// What Loom says about a model with a flaw.
fn report(model: impl Fn() + Send + Sync + 'static) -> String {
    let failure = catch_unwind(AssertUnwindSafe(|| explore("flawed", 2, model)));
    let failure = failure.expect_err("the checker must notice the flaw");
    match failure.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => (*other.downcast_ref::<&str>().unwrap_or(&"not a message")).to_owned(),
    }
}

/// Explores models, each a list of steps, with three preemptions for two threads and two for more.
macro_rules! explore_each {
    ($run:ident $raw:ty: $([$($step:ident),*])*) => {$({
        let preemptions = if [$(stringify!($step)),*].len() == 2 { 3 } else { 2 };
        let name = concat!(stringify!($raw), $(" ", stringify!($step)),*);
        let most = loom_platform::most_executions(5_000);
        loom_platform::explore_most(name, preemptions, most, || $run::<$raw>(&[$($step),*]));
    })*};
}

macro_rules! mutexes {
    ($($name:ident $raw:ident on $platform:ident;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn excludes() {
                explore_each! {
                    mutex $raw<$platform>:
                    [lock, lock]
                    [lock_twice, lock]
                    [try_lock, lock]
                    [try_lock, lock_twice]
                    [lock_twice, lock_twice]
                    [lock, lock, lock]
                    [try_lock, lock, lock]
                    [try_lock, try_lock, lock]
                }
            }

            #[test]
            fn does_not_exclude_with_relaxed_orderings() {
                let message = report(|| mutex::<$raw<Weakened>>(&[lock, lock]));
                assert!(message.contains("Causality violation"), "{message}");
            }
        }
    )*};
}

mutexes! {
    tas RawTas on LoomOfExchanges;
    ttas RawTtas on LoomOfExchanges;
    ticket RawTicket on Loom;
    mcs RawMcs on Loom;
    clh RawClh on Loom;
}

mod queued_rwlock {
    use super::*;

    #[test]
    fn excludes() {
        explore_each! {
            rwlock RawQueuedRwLock<Loom>:
            [write, write]
            [read, write]
            [try_read, write]
            [try_write, read]
            [read, read]
            [write, write, write]
            [read, write, write]
            [read, read, write]
            [try_read, try_write, write]
        }
    }

    #[test]
    fn does_not_exclude_with_relaxed_orderings() {
        for message in [
            report(|| rwlock::<RawQueuedRwLock<Weakened>>(&[write, write])),
            report(|| rwlock::<RawQueuedRwLock<Weakened>>(&[read, write])),
        ] {
            assert!(message.contains("Causality violation"), "{message}");
        }
    }

    #[test]
    fn does_not_exclude_where_an_exchange_always_succeeds() {
        let message = report(|| rwlock::<RawQueuedRwLock<Gullible>>(&[write, write]));
        assert!(message.contains("Causality violation"), "{message}");
    }
}
