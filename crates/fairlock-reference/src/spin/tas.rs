//! Test-and-set: swap "held" into the word until "free" comes out.
//!
//! Every attempt writes the word, in vain or not. So all waiters keep pulling the lock's line to
//! themselves, from each other and from the holder, whose unlock has to wait for it as well: the
//! worst case that other spin locks are measured against.
//!
//! After Rudolph and Segall, "Dynamic decentralized cache schemes for MIMD parallel processors"
//! (ISCA 1984). It wastes a CPU while waiting and stalls while the holder is preempted: not for
//! production.
//!
//! Invariant
//! 1. Whoever changes the word from `FREE` to `HELD` is the only holder until it stores `FREE`.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::lock_api::GuardNoSend;

use fairlock::platform::{AtomicCell, Os, Platform};

/// A test-and-set spin lock, for comparison only.
///
/// # Guarantees
/// Mutual exclusion, and that somebody gets a free lock. There is no order: a thread may wait
/// for ever while others take the lock again and again.
///
/// # Example
/// ```
/// use fairlock_reference::spin::TasLock;
///
/// static COUNT: TasLock<u32> = TasLock::new(0);
///
/// *COUNT.lock() += 1;
/// let count = COUNT.lock();
/// assert!(COUNT.try_lock().is_none());
/// assert_eq!(*count, 1);
/// ```
pub type TasLock<T> = fairlock::lock_api::Mutex<RawTas<Os>, T>;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// The lock without its data: what [`TasLock`] is made of. Use it through `lock_api`.
pub struct RawTas<P: Platform = Os> {
    /// `FREE` or `HELD`.
    word: P::AtomicU32,
}

impl<P: Platform> RawTas<P> {
    #[inline]
    fn take(&self) -> bool {
        // Acquire pairs with the Release in `unlock`.
        self.word.swap(HELD, Acquire) == FREE
    }
}

// SAFETY: invariant 1; taking is Acquire, unlocking Release. Guards are inert, and nothing refers
// to the lock but borrows, so it may be moved or dropped while held.
unsafe impl<P: Platform> fairlock::lock_api::RawMutex for RawTas<P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = RawTas { word: P::AtomicU32::ZERO };
    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        while !self.take() {
            P::relax(None);
        }
        GuardNoSend::new()
    }
    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        self.take().then(GuardNoSend::new)
    }
    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        // Release pairs with the Acquire in `take`.
        self.word.store(FREE, Release);
    }
    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) == HELD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_attempt_leaves_the_lock_to_its_holder() {
        let lock = TasLock::new(());
        let guard = lock.lock();
        assert!(lock.is_locked());
        assert!(lock.try_lock().is_none());
        assert!(lock.is_locked());
        drop(guard);
        assert!(!lock.is_locked());
        assert!(lock.try_lock().is_some());
    }
}
