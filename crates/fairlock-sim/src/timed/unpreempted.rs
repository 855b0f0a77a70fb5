//! Spin locks as a kernel has them: nobody is preempted who holds one or waits for one.

use lock_api::{RawMutex, RawRwLock};

use super::{allow_preemption, forbid_preemption};

/// A spin lock around which preemption is forbidden, on the [timed](super) machine.
///
/// In a kernel nobody who holds a spin lock, or spins for it, is preempted; so a queue of spinning
/// threads stays short of the number of CPUs, and a turn takes no longer than the section. Real threads
/// have no such thing, and with more of them than CPUs a queue of spinning threads waits for one that
/// does not run. This is how a kernel's lock is simulated.
///
/// For locks that spin: a thread that sleeps for its turn would give its CPU away all the same.
///
/// # Example
/// ```
/// use fairlock::lock_api::Mutex;
/// use fairlock_reference::spin::RawTicket;
/// use fairlock_sim::Sim;
/// use fairlock_sim::profile::Profile;
/// use fairlock_sim::timed::{self, Setup, Thread, Unpreempted};
///
/// let count = &Mutex::<Unpreempted<RawTicket<Sim>>, u32>::new(0);
/// let thread = || Thread { body: Box::new(|| *count.lock() += 1), priority: 0 };
/// let profile = Profile::example();
/// let setup = Setup { profile: &profile, seed: 1, pinned: false, timeline_ns: 0, tuning: None };
/// timed::run(&setup, vec![thread(), thread()], &|| false, &|| ()).unwrap();
/// assert_eq!(*count.lock(), 2);
/// ```
#[repr(transparent)]
pub struct Unpreempted<R>(R);

/// Forbids preemption for an attempt; it stays so if that succeeds.
fn attempt<G>(attempt: impl FnOnce() -> Option<G>) -> Option<G> {
    forbid_preemption();
    let guard = attempt();
    if guard.is_none() {
        allow_preemption();
    }
    guard
}

// SAFETY: it locks and unlocks exactly as `R` does.
unsafe impl<R: RawMutex> RawMutex for Unpreempted<R> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = Unpreempted(R::INIT);
    type Guard = R::Guard;

    fn lock(&self) -> R::Guard {
        forbid_preemption();
        self.0.lock()
    }

    fn try_lock(&self) -> Option<R::Guard> {
        attempt(|| self.0.try_lock())
    }

    unsafe fn unlock(&self, guard: R::Guard) {
        // SAFETY: held by this guard, as the caller promises.
        unsafe { self.0.unlock(guard) };
        allow_preemption();
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: the lock inside is one; what preemption does changes nothing about who holds it.
unsafe impl<R: RawRwLock> RawRwLock for Unpreempted<R> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = Unpreempted(R::INIT);
    type SharedGuard = R::SharedGuard;
    type ExclusiveGuard = R::ExclusiveGuard;

    fn lock_shared(&self) -> R::SharedGuard {
        forbid_preemption();
        self.0.lock_shared()
    }

    fn try_lock_shared(&self) -> Option<R::SharedGuard> {
        attempt(|| self.0.try_lock_shared())
    }

    unsafe fn unlock_shared(&self, guard: R::SharedGuard) {
        // SAFETY: held by this guard, as the caller promises.
        unsafe { self.0.unlock_shared(guard) };
        allow_preemption();
    }

    fn lock_exclusive(&self) -> R::ExclusiveGuard {
        forbid_preemption();
        self.0.lock_exclusive()
    }

    fn try_lock_exclusive(&self) -> Option<R::ExclusiveGuard> {
        attempt(|| self.0.try_lock_exclusive())
    }

    unsafe fn unlock_exclusive(&self, guard: R::ExclusiveGuard) {
        // SAFETY: held by this guard, as the caller promises.
        unsafe { self.0.unlock_exclusive(guard) };
        allow_preemption();
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn is_locked_exclusive(&self) -> bool {
        self.0.is_locked_exclusive()
    }
}
