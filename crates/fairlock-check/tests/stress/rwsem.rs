//! The rwsem on real threads under everything at once: for each policy a mix of all operations,
//! with a checker of exclusion and of lost updates; and a broken lock that the checker catches.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};
use std::thread;

use fairlock::lock_api::{self, GuardSend, RawRwLock, RawRwLockUpgrade, RwLock, RwLockWriteGuard};
use fairlock::platform::Os;
use fairlock::policy::{PhaseFair, Policy, TimeFair};
use fairlock::rwsem::RawRwSem;
use fairlock_check::read_write;
use fairlock_check::scenario::Scenario;
use fairlock_check::threads::{
    Dice, Protected, THREADS, Unprotected, crowd, is_intact, operate, repeat,
    withstands_a_mix_of_everything,
};

const STEPS: u64 = 1_500;

macro_rules! policies_withstand {
    ($($name:ident $policy:ty;)*) => {$(
        #[test]
        fn $name() {
            withstands_a_mix_of_everything::<RawRwSem<$policy, Os>>(STEPS, 0);
        }
    )*};
}

policies_withstand! {
    time_fair_withstands_a_mix_of_everything TimeFair;
    phase_fair_withstands_a_mix_of_everything PhaseFair;
}

/// What Loom and the explorer see every schedule of.
fn a_few_threads<Pol: Policy>() {
    type Scenarios<Pol> = Vec<Scenario<RwLock<RawRwSem<Pol, Os>, Unprotected>>>;
    let scenarios: [Scenarios<Pol>; 4] = [
        read_write::two_threads(),
        read_write::three_threads(),
        read_write::several_writers(),
        read_write::four_threads(),
    ];
    repeat(Pol::NAME, scenarios.into_iter().flatten(), 10);
}

#[test]
fn a_few_threads_under_each_policy() {
    a_few_threads::<TimeFair>();
    a_few_threads::<PhaseFair>();
}

/// Threads go from lock to lock, and pooled queues with them.
#[test]
fn locks_with_queues_from_one_pool_withstand_a_mix_of_everything() {
    type Lock<Pol> = Arc<RwLock<RawRwSem<Pol, Os>, Protected>>;
    let phases: [Lock<TimeFair>; 2] = Default::default();
    let in_turn: [Lock<PhaseFair>; 2] = Default::default();
    let step = |dice: &mut Dice| match dice.roll(4) as usize {
        which @ 0..2 => operate(&phases[which], dice),
        which => operate(&in_turn[which - 2], dice),
    };
    let writes = crowd(|dice| (0..STEPS).map(|_| step(dice)).sum());
    let in_phases = phases.iter().map(|lock| is_intact(lock)).sum::<u64>();
    let in_turn = in_turn.iter().map(|lock| is_intact(lock)).sum::<u64>();
    assert_eq!(in_phases + in_turn, writes, "an update was lost");
}

/// Each lock goes while the thread that has released it before may still be on its way out.
fn last_users_free_their_locks<Pol: Policy>() {
    const LOCKS: usize = 1_000;
    // What it protects is how many users have been there.
    let new = || RwLock::<RawRwSem<Pol, Os>, u64>::new(0);
    let lock = || AtomicPtr::new(Box::into_raw(Box::new(new())));
    let locks: Vec<_> = (0..LOCKS).map(|_| lock()).collect();
    crowd(|dice| {
        for lock in &locks {
            let pointer = lock.load(Relaxed);
            // SAFETY: freed by the last of `THREADS` users only, each of whom is here once.
            let mut users = unsafe { (*pointer).write() };
            *users += 1;
            let last = *users == THREADS;
            (0..dice.roll(200)).for_each(|_| core::hint::spin_loop());
            if dice.roll(4) == 0 {
                RwLockWriteGuard::unlock_fair(users);
            } else {
                drop(users);
            }
            if last {
                // SAFETY: all others have released it, and it is freed once.
                drop(unsafe { Box::from_raw(pointer) });
            }
        }
        0
    });
}

#[test]
fn a_lock_with_a_pooled_queue_can_be_freed_by_its_last_user() {
    last_users_free_their_locks::<TimeFair>();
    last_users_free_their_locks::<PhaseFair>();
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
