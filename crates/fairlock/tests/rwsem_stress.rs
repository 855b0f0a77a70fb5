//! The rwsem on real threads under everything at once: for each policy a mix of all operations,
//! with a checker of exclusion and of lost updates; and a broken lock that the checker catches.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fairlock::lock_api::{
    self, GuardSend, RawRwLock, RawRwLockUpgrade, RwLock, RwLockReadGuard,
    RwLockUpgradableReadGuard, RwLockWriteGuard,
};
use fairlock::platform::Os;
use fairlock::policy::{
    Linux3_10, Linux5_1, Linux5_2, Linux5_3, Linux5_11, NoReaderSteal, PhaseFair, Policy, TimeFair,
};
use fairlock::rwsem::{Inline, Lodging, RawRwSem, Rented};

/// Threads outnumber the CPUs of small machines, so that holders are preempted and queues form.
const THREADS: u64 = 6;
const STEPS: u64 = 1_500;
/// A lost wake-up leaves a thread asleep for ever; far longer than any run takes.
const WATCHDOG: Duration = Duration::from_secs(120);

/// What a lock protects, able to notice when it does not.
#[derive(Default)]
struct Protected {
    /// Incremented in two steps by each writer: overlapping writers lose some.
    count: AtomicU64,
    /// Holders inside, as they themselves count them: `WRITER` for a writer.
    inside: AtomicU32,
    violated: AtomicBool,
}

const WRITER: u32 = 1 << 16;

impl Protected {
    fn read(&self) {
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

    fn write(&self) {
        if self.inside.fetch_add(WRITER, Relaxed) != 0 {
            self.violated.store(true, Relaxed);
        }
        let before = self.count.load(Relaxed);
        self.dawdle();
        self.count.store(before + 1, Relaxed);
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

/// A small generator of numbers (xorshift), different for each thread.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Runs `body` in `THREADS` threads; ends the process when they do not finish.
fn crowd(body: impl Fn(&mut Dice) -> u64 + Sync) -> u64 {
    let (done, watch) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if watch.recv_timeout(WATCHDOG) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("threads still wait after {WATCHDOG:?}: a wake-up was lost");
                std::process::abort();
            }
        });
        let body = &body;
        let threads: Vec<_> = (1..=THREADS)
            .map(|seed| {
                scope.spawn(move || body(&mut Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
            })
            .collect();
        let writes = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        drop(done);
        writes
    })
}

/// One random operation; how many writes it has made.
fn operate<Pol: Policy, L: Lodging<Os>>(
    lock: &Arc<RwLock<RawRwSem<Pol, Os, L>, Protected>>,
    dice: &mut Dice,
) -> u64 {
    let short = Duration::from_micros(dice.roll(200));
    let wrote = |guard: &RwLockWriteGuard<'_, _, Protected>| {
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

type Lock<Pol, L> = Arc<RwLock<RawRwSem<Pol, Os, L>, Protected>>;

/// Returns how many writes the lock has seen.
fn check<Pol: Policy, L: Lodging<Os>>(lock: &Lock<Pol, L>) -> u64 {
    let guard = lock.try_write().expect("the lock is free when everybody is done");
    assert!(!guard.violated.load(Relaxed), "somebody was let in beside a writer");
    guard.count.load(Relaxed)
}

fn withstands_a_mix_of_everything<Pol: Policy, L: Lodging<Os>>() {
    let lock: Lock<Pol, L> = Arc::new(RwLock::new(Protected::default()));
    let writes = crowd(|dice| (0..STEPS).map(|_| operate(&lock, dice)).sum());
    assert_eq!(check(&lock), writes, "an update was lost");
}

/// Threads go from lock to lock, and rooms with them.
#[test]
fn locks_that_rent_rooms_from_one_pool_withstand_a_mix_of_everything() {
    let lock = |_| Arc::new(RwLock::new(Protected::default()));
    let locks: [Lock<TimeFair, Rented<Os>>; 3] = std::array::from_fn(lock);
    let step = |dice: &mut Dice| operate(&locks[dice.roll(3) as usize], dice);
    let writes = crowd(|dice| (0..STEPS).map(|_| step(dice)).sum());
    assert_eq!(locks.iter().map(check).sum::<u64>(), writes, "an update was lost");
}

/// Each lock goes while the thread that has released it before may still be on its way out.
#[test]
fn a_lock_with_a_rented_room_can_be_freed_by_its_last_user() {
    const LOCKS: usize = 2_000;
    /// What it protects is how many users have been there.
    type Lock = RwLock<RawRwSem<TimeFair, Os, Rented<Os>>, u64>;
    let lock = || AtomicPtr::new(Box::into_raw(Box::new(Lock::new(0))));
    let locks: Vec<_> = (0..LOCKS).map(|_| lock()).collect();
    crowd(|dice| {
        for lock in &locks {
            let pointer = lock.load(Relaxed);
            // SAFETY: freed by the last of `THREADS` users only, each of whom is here once.
            let mut users = unsafe { (*pointer).write() };
            *users += 1;
            let last = *users == THREADS;
            (0..dice.roll(200)).for_each(|_| core::hint::spin_loop());
            drop(users);
            if last {
                // SAFETY: all others have released it, and it is freed once.
                drop(unsafe { Box::from_raw(pointer) });
            }
        }
        0
    });
}

macro_rules! policies_withstand {
    ($($name:ident $policy:ty, $lodging:ty;)*) => {$(
        #[test]
        fn $name() {
            withstands_a_mix_of_everything::<$policy, $lodging>();
        }
    )*};
}

policies_withstand! {
    time_fair_withstands_a_mix_of_everything TimeFair, Inline<Os>;
    phase_fair_withstands_a_mix_of_everything PhaseFair, Inline<Os>;
    time_fair_in_rented_rooms_withstands_a_mix_of_everything TimeFair, Rented<Os>;
    phase_fair_in_rented_rooms_withstands_a_mix_of_everything PhaseFair, Rented<Os>;
    linux_3_10_withstands_a_mix_of_everything Linux3_10, Inline<Os>;
    linux_5_1_withstands_a_mix_of_everything Linux5_1, Inline<Os>;
    linux_5_2_withstands_a_mix_of_everything Linux5_2, Inline<Os>;
    linux_5_3_withstands_a_mix_of_everything Linux5_3, Inline<Os>;
    linux_5_11_withstands_a_mix_of_everything Linux5_11, Inline<Os>;
    no_reader_steal_withstands_a_mix_of_everything NoReaderSteal, Inline<Os>;
}

/// Lets in two writers at once, but not three, and readers always.
struct TwoWriters(AtomicU32);

// SAFETY: none; that is the point. What it protects here is made of atomics.
unsafe impl RawRwLock for TwoWriters {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = TwoWriters(AtomicU32::new(0));
    type SharedGuard = GuardSend;
    type ExclusiveGuard = GuardSend;

    fn lock_shared(&self) -> GuardSend {
        GuardSend::new()
    }
    fn try_lock_shared(&self) -> Option<GuardSend> {
        Some(GuardSend::new())
    }
    unsafe fn unlock_shared(&self, _guard: GuardSend) {}
    fn lock_exclusive(&self) -> GuardSend {
        loop {
            match self.try_lock_exclusive() {
                Some(guard) => return guard,
                None => thread::yield_now(),
            }
        }
    }
    fn try_lock_exclusive(&self) -> Option<GuardSend> {
        let enter = |inside| (inside < 2).then_some(inside + 1);
        self.0.try_update(Relaxed, Relaxed, enter).ok().map(|_| GuardSend::new())
    }
    unsafe fn unlock_exclusive(&self, _guard: GuardSend) {
        self.0.fetch_sub(1, Relaxed);
    }
    fn is_locked(&self) -> bool {
        self.is_locked_exclusive()
    }
    fn is_locked_exclusive(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
}

#[test]
fn the_checker_notices_a_lock_that_lets_two_writers_in() {
    let lock = lock_api::RwLock::<TwoWriters, _>::new(Protected::default());
    let writes = crowd(|dice| {
        let step = |_| match dice.roll(2) {
            0 => {
                lock.read().read();
                0
            }
            _ => {
                lock.write().write();
                1
            }
        };
        (0..STEPS).map(step).sum()
    });
    let protected = lock.into_inner();
    assert!(protected.violated.load(Relaxed), "the checker counts who is inside");
    assert!(protected.count.load(Relaxed) < writes, "the checker counts updates");
}

/// The raw lock is usable without its data, for other crates' wrappers.
#[test]
fn a_raw_lock_upgrades_without_data() {
    let raw = <RawRwSem<TimeFair, Os> as RawRwLock>::INIT;
    let guard = raw.lock_upgradable();
    // SAFETY: held upgradable.
    let guard = unsafe { raw.try_upgrade(guard) }.ok().expect("nobody else reads");
    assert!(raw.is_locked_exclusive());
    // SAFETY: held exclusively.
    unsafe { raw.unlock_exclusive(guard) };
    assert!(!raw.is_locked());
}
