//! The rwsem on real threads under everything at once: for each policy a mix of all operations,
//! with a checker of exclusion and of lost updates; and a broken lock that the checker catches.

mod stress;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use fairlock::lock_api::{self, GuardSend, RawRwLock, RawRwLockUpgrade};
use fairlock::platform::Os;
use fairlock::policy::{
    Linux3_10, Linux5_1, Linux5_2, Linux5_3, Linux5_11, NoReaderSteal, PhaseFair, TimeFair,
};
use fairlock::rwsem::RawRwSem;
use stress::{Protected, crowd, withstands_a_mix_of_everything};

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
    linux_3_10_withstands_a_mix_of_everything Linux3_10;
    linux_5_1_withstands_a_mix_of_everything Linux5_1;
    linux_5_2_withstands_a_mix_of_everything Linux5_2;
    linux_5_3_withstands_a_mix_of_everything Linux5_3;
    linux_5_11_withstands_a_mix_of_everything Linux5_11;
    no_reader_steal_withstands_a_mix_of_everything NoReaderSteal;
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
