//! Everything at once on real threads: a mix of all operations of a reader-writer lock, with a
//! checker of exclusion, of lost updates and of lost wake-ups.

pub mod platforms;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::lock_api::{
    RawRwLockDowngrade, RawRwLockTimed, RawRwLockUpgradeDowngrade, RawRwLockUpgradeFair,
    RawRwLockUpgradeTimed, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
};

use crate::scenario::{Number, Scenario, Subject};

/// A lock that can do everything.
pub trait Versatile:
    RawRwLockTimed<Duration = Duration, Instant = Instant>
    + RawRwLockDowngrade
    + RawRwLockUpgradeTimed
    + RawRwLockUpgradeFair
    + RawRwLockUpgradeDowngrade
    + Send
    + Sync
{
}

impl<R> Versatile for R where
    R: RawRwLockTimed<Duration = Duration, Instant = Instant>
        + RawRwLockDowngrade
        + RawRwLockUpgradeTimed
        + RawRwLockUpgradeFair
        + RawRwLockUpgradeDowngrade
        + Send
        + Sync
{
}

/// Threads outnumber the CPUs of small machines, so that holders are preempted and queues form.
pub const THREADS: u64 = 6;
/// A lost wake-up leaves a thread asleep for ever; far longer than any run takes.
pub const WATCHDOG: Duration = Duration::from_secs(120);
/// How long a process does nothing whose threads wait for each other.
const STANDSTILL: Duration = Duration::from_secs(20);
/// Longer than any test takes on any machine.
const FOR_EVER: Duration = Duration::from_secs(1800);

/// What a lock protects, able to notice when it does not.
#[derive(Default)]
pub struct Protected {
    /// Incremented in two steps by each writer: overlapping writers lose some.
    pub count: AtomicU64,
    /// The same, a little later.
    copy: AtomicU64,
    /// Holders inside, as they themselves count them: `WRITER` for a writer.
    inside: AtomicU32,
    /// Whether somebody was inside beside a writer.
    pub violated: AtomicBool,
}

const WRITER: u32 = 1 << 16;

impl Protected {
    /// A reader's stay.
    pub fn read(&self) {
        if self.inside.fetch_add(1, Relaxed) >= WRITER {
            self.violated.store(true, Relaxed);
        }
        let before = self.count.load(Relaxed);
        self.dawdle();
        if self.count.load(Relaxed) != before {
            self.violated.store(true, Relaxed);
        }
        self.inside.fetch_sub(1, Relaxed);
    }

    /// A short one, which writes nothing that would order its loads.
    pub fn glance(&self) {
        if self.count.load(Relaxed) != self.copy.load(Relaxed) {
            self.violated.store(true, Relaxed);
        }
    }

    /// A writer's stay.
    pub fn write(&self) {
        if self.inside.fetch_add(WRITER, Relaxed) != 0 {
            self.violated.store(true, Relaxed);
        }
        let before = self.count.load(Relaxed);
        self.dawdle();
        self.count.store(before + 1, Relaxed);
        (0..20).for_each(|_| core::hint::spin_loop());
        self.copy.store(before + 1, Relaxed);
        self.inside.fetch_sub(WRITER, Relaxed);
    }

    /// Now and then gives the CPU away, so that others run into this holder.
    fn dawdle(&self) {
        if self.count.load(Relaxed).is_multiple_of(7) {
            thread::yield_now();
        } else {
            (0..20).for_each(|_| core::hint::spin_loop());
        }
    }
}

/// A number without anything that keeps threads apart: overlapping additions are lost.
#[derive(Default)]
pub struct Unprotected(AtomicU32);

impl Number for Unprotected {
    fn zero() -> Self {
        Unprotected::default()
    }
    fn get(&self) -> u32 {
        let before = self.0.load(Relaxed);
        thread::yield_now();
        assert_eq!(self.0.load(Relaxed), before, "somebody writes beside a reader");
        before
    }
    fn add(&self) {
        let before = self.0.load(Relaxed);
        thread::yield_now();
        assert_eq!(self.0.load(Relaxed), before, "somebody writes beside a writer");
        self.0.store(before + 1, Relaxed);
    }
}

/// Runs scenarios of what `of` says, each so often, and its threads begin together.
pub fn repeat<S: Subject + Sync>(
    of: &str,
    scenarios: impl IntoIterator<Item = Scenario<S>>,
    times: u32,
) {
    for scenario in scenarios {
        eprintln!("{of}: {}", scenario.name);
        watched(|| (0..times).for_each(|_| run(&scenario)));
    }
}

fn run<S: Subject + Sync>(scenario: &Scenario<S>) {
    let subject = (scenario.new)();
    let there = Barrier::new(scenario.steps.len());
    thread::scope(|scope| {
        for &step in &scenario.steps {
            let (subject, there) = (&subject, &there);
            scope.spawn(move || {
                there.wait();
                step(subject);
            });
        }
    });
    scenario.assert_end(&subject);
}

/// A small generator of numbers (xorshift), different for each thread.
pub struct Dice(u64);

impl Dice {
    /// The thread with this number has these.
    pub fn new(seed: u64) -> Self {
        Dice((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// CPU time of this process, all threads together.
#[cfg(unix)]
fn computed() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is as the kernel fills it.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(unix))]
fn computed() -> Duration {
    Duration::ZERO
}

/// Runs `body`; ends the process when its threads wait for each other: when that takes longer than [`WATCHDOG`], and
/// then nothing is computed in the process for `STANDSTILL`, however little CPU time the machine has for it; or when it
/// takes longer than `FOR_EVER`.
pub fn watched<T>(body: impl FnOnce() -> T) -> T {
    let (done, watch) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let began = Instant::now();
            let (mut before, mut patience) = (Duration::ZERO, WATCHDOG);
            while watch.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
                let now = computed();
                let stands_still = patience == STANDSTILL && now - before < STANDSTILL / 1000;
                if stands_still || began.elapsed() > FOR_EVER {
                    eprintln!("threads still wait after {:?}: a wake-up was lost", began.elapsed());
                    std::process::abort();
                }
                (before, patience) = (now, STANDSTILL);
            }
        });
        let result = body();
        drop(done);
        result
    })
}

/// Runs `body` in `THREADS` threads and adds up what they answer.
pub fn crowd(body: impl Fn(&mut Dice) -> u64 + Sync) -> u64 {
    let body = &body;
    watched(|| {
        thread::scope(|scope| {
            let threads: Vec<_> =
                (1..=THREADS).map(|seed| scope.spawn(move || body(&mut Dice::new(seed)))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        })
    })
}

/// One random operation; how many writes it has made.
pub fn operate<R: Versatile>(lock: &Arc<RwLock<R, Protected>>, dice: &mut Dice) -> u64 {
    let short = Duration::from_micros(dice.roll(200));
    let wrote = |guard: &RwLockWriteGuard<'_, R, Protected>| {
        guard.write();
        1
    };
    match dice.roll(17) {
        0..3 => lock.read().read(),
        3..5 => return wrote(&lock.write()),
        5 => {
            lock.try_read().inspect(|guard| guard.read());
        }
        6 => return lock.try_write().map_or(0, |guard| wrote(&guard)),
        7 => {
            lock.try_read_for(short).inspect(|guard| guard.read());
        }
        8 => return lock.try_write_for(short).map_or(0, |guard| wrote(&guard)),
        9 => {
            let guard = lock.write();
            guard.write();
            RwLockWriteGuard::downgrade(guard).read();
            return 1;
        }
        10 => {
            let guard = lock.upgradable_read();
            guard.read();
            return wrote(&RwLockUpgradableReadGuard::upgrade(guard));
        }
        11 => {
            let Some(guard) = lock.try_upgradable_read_for(short) else { return 0 };
            return match RwLockUpgradableReadGuard::try_upgrade(guard) {
                Ok(guard) => {
                    guard.write();
                    RwLockWriteGuard::downgrade_to_upgradable(guard).read();
                    1
                }
                Err(guard) => {
                    RwLockUpgradableReadGuard::downgrade(guard).read();
                    0
                }
            };
        }
        12 => {
            let guard = lock.upgradable_read();
            return match RwLockUpgradableReadGuard::try_upgrade_for(guard, short) {
                Ok(guard) => wrote(&guard),
                Err(guard) => {
                    guard.read();
                    RwLockUpgradableReadGuard::unlock_fair(guard);
                    0
                }
            };
        }
        13 => {
            let guard = lock.read();
            guard.read();
            RwLockReadGuard::unlock_fair(guard);
        }
        14 => {
            let guard = lock.write();
            guard.write();
            RwLockWriteGuard::unlock_fair(guard);
            return 1;
        }
        15 => {
            lock.read_arc().read();
            lock.write_arc().write();
            return 1;
        }
        _ => {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let guard = lock.write();
                guard.write();
                // Unlike `panic!` this calls no hook, which would print.
                std::panic::resume_unwind(Box::new("while holding"));
            }));
            assert!(panicked.is_err());
            return 1;
        }
    }
    0
}

/// Each thread takes so many steps: an operation of any kind after so many short reads. The lock has
/// let in whom it should, and is free afterwards. Returns it.
pub fn withstands_a_mix_of_everything<R: Versatile>(
    steps: u64,
    reads: u64,
) -> Arc<RwLock<R, Protected>> {
    let lock = Arc::new(RwLock::<R, _>::new(Protected::default()));
    let writes = crowd(|dice| {
        let step = |_| {
            (0..reads).for_each(|_| lock.read().glance());
            operate(&lock, dice)
        };
        (0..steps).map(step).sum()
    });
    assert_intact(&lock, writes);
    lock
}

/// Nobody uses the lock any more, and so many writes were made.
pub fn assert_intact<R: Versatile>(lock: &RwLock<R, Protected>, writes: u64) {
    assert_eq!(is_intact(lock), writes, "an update was lost");
}

/// Nobody uses the lock any more. How many writes it has seen.
pub fn is_intact<R: Versatile>(lock: &RwLock<R, Protected>) -> u64 {
    let guard = lock.try_write().expect("the lock is free when everybody is done");
    assert!(!guard.violated.load(Relaxed), "somebody was let in beside a writer");
    guard.count.load(Relaxed)
}
