//! The ticket lock: draw a number, wait until it is called.
//!
//! Locking is one fetch-and-add, unlocking a plain store, and the order is that of arrival. All
//! waiters watch the number that is called, so each unlock invalidates a copy in every waiting
//! CPU; and since both numbers share a line, so does each arrival. Waiters do not back off in
//! proportion to their place, which would spare some of that traffic.
//!
//! After Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory
//! multiprocessors" (ACM TOCS 1991); Linux had it from 2.6.25 to 4.1. It wastes a CPU while
//! waiting and stalls while the holder, or the thread whose turn it is, is preempted: not for
//! production.
//!
//! Invariants
//! 1. Nobody else has the number that a thread has drawn, until 2³² more have been drawn.
//! 2. The lock is held by the thread whose number is `serving`, and free if that is `next`.
//! 3. Only the holder writes `serving`.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::lock_api::GuardNoSend;
use fairlock::platform::{AtomicCell, AtomicInt, Os, Platform};

/// A ticket spin lock, for comparison only.
///
/// # Guarantees
/// First come, first served: with n threads, nobody waits for more than n - 1 others' turns. An
/// attempt ([`try_lock`](fairlock::lock_api::Mutex::try_lock)) succeeds only if nobody holds the lock or
/// waits for it.
///
/// # Example
/// ```
/// use fairlock_reference::spin::TicketLock;
///
/// static COUNT: TicketLock<u32> = TicketLock::new(0);
///
/// *COUNT.lock() += 1;
/// let count = COUNT.lock();
/// assert!(COUNT.try_lock().is_none());
/// assert_eq!(*count, 1);
/// ```
pub type TicketLock<T> = fairlock::lock_api::Mutex<RawTicket<Os>, T>;

/// The lock without its data: what [`TicketLock`] is made of. Use it through `lock_api`.
#[repr(C)]
pub struct RawTicket<P: Platform = Os> {
    /// The number that the next thread draws.
    next: P::AtomicU32,
    /// The number whose turn it is.
    serving: P::AtomicU32,
}

impl<P: Platform> RawTicket<P> {
    #[inline]
    fn draw(&self) -> u32 {
        // Relaxed: what the last holder did comes with `serving`.
        self.next.fetch_add(1, Relaxed)
    }

    #[inline]
    fn is_called(&self, number: u32) -> bool {
        // Acquire pairs with the Release in `unlock`.
        self.serving.load(Acquire) == number
    }
}

// SAFETY: invariants 1 and 2; a thread sees its number called with Acquire, unlocking is Release.
// Guards are inert, and nothing refers to the lock but borrows, so it may be moved or dropped
// while held.
unsafe impl<P: Platform> fairlock::lock_api::RawMutex for RawTicket<P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = RawTicket { next: P::AtomicU32::ZERO, serving: P::AtomicU32::ZERO };
    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        let number = self.draw();
        while !self.is_called(number) {
            P::relax(None);
        }
        GuardNoSend::new()
    }
    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        // Acquire pairs with the Release in `unlock`. If nobody has drawn this number, nobody
        // can have been called since.
        let number = self.serving.load(Acquire);
        let drawn =
            self.next.compare_exchange(number, number.wrapping_add(1), Relaxed, Relaxed).is_ok();
        drawn.then(GuardNoSend::new)
    }
    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        // Relaxed, and no atomic addition: invariant 3.
        let number = self.serving.load(Relaxed);
        // Release pairs with the Acquire in `is_called` and `try_lock`.
        self.serving.store(number.wrapping_add(1), Release);
    }
    fn is_locked(&self) -> bool {
        self.serving.load(Relaxed) != self.next.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::unlock;
    use super::*;
    use fairlock::lock_api::RawMutex;

    type Raw = RawTicket<Os>;

    #[test]
    fn numbers_are_called_in_the_order_in_which_they_were_drawn() {
        let lock = Raw::INIT;
        let numbers = [(); 3].map(|()| lock.draw());
        for number in numbers {
            let called = numbers.map(|number| lock.is_called(number));
            assert_eq!(called, numbers.map(|other| other == number));
            assert!(lock.is_locked());
            assert!(lock.try_lock().is_none());
            unlock(&lock);
        }
        assert!(!lock.is_locked());
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn numbers_start_again_after_the_last() {
        let lock = Raw { next: u32::MAX.into(), serving: u32::MAX.into() };
        assert!(lock.try_lock().is_some());
        let number = lock.draw();
        assert!(!lock.is_called(number));
        unlock(&lock);
        assert!(lock.is_called(number));
        unlock(&lock);
        assert!(!lock.is_locked());
    }
}
