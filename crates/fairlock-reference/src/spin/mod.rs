//! Spin locks as textbooks have them: what other locks are measured against.
//!
//! | lock | order | idea |
//! |---|---|---|
//! | [`TasLock`] | none | swap until it was free |
//! | [`TtasLock`] | none | look until it is free, then swap |
//! | [`TicketLock`] | first come, first served | draw a number, wait until it is called |
//! | [`McsLock`] | first come, first served | a queue; each waits on a line of its own |
//! | [`ClhLock`] | first come, first served | a queue; each waits on its predecessor's line |
//! | [`QueuedRwLock`] | first come, first served | readers and writers, one of whom waits at the lock |
//!
//! **Not for production.** Waiters burn their CPUs, and nobody notices that the holder, or in a
//! queue the next waiter, does not run: with more threads than CPUs everybody waits for the
//! scheduler, for milliseconds at a time. [`fairlock::Mutex`] and [`fairlock::RwSem`]
//! sleep instead. None of these is recursive, none is poisoned by a panic, and none has timeouts.

mod clh;
mod mcs;
mod queued_rwlock;
mod tas;
mod ticket;

pub use clh::{ClhLock, ClhTurn, RawClh};
pub use mcs::{McsLock, RawMcs};
pub use queued_rwlock::{QueuedRwLock, RawQueuedRwLock};
pub use tas::{RawTas, RawTestAndSet, RawTtas, TasLock, TtasLock};
pub use ticket::{RawTicket, TicketLock};

#[cfg(test)]
mod tests {
    use fairlock::lock_api::{GuardNoSend, Mutex, RawMutex};
    use fairlock::platform::Os;

    use super::*;

    /// Unlocks what the calling test holds.
    pub(super) fn unlock(lock: &impl RawMutex<Guard = GuardNoSend>) {
        // SAFETY: a test calls this for a lock that it holds.
        unsafe { lock.unlock(GuardNoSend::new()) };
    }

    fn keeps_a_failed_attempt_out<R: RawMutex>() {
        let lock = Mutex::<R, ()>::new(());
        let guard = lock.lock();
        assert!(lock.is_locked());
        assert!(lock.try_lock().is_none());
        assert!(lock.is_locked());
        drop(guard);
        assert!(!lock.is_locked());
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_failed_attempt_leaves_the_lock_to_its_holder() {
        keeps_a_failed_attempt_out::<RawTas<Os>>();
        keeps_a_failed_attempt_out::<RawTtas<Os>>();
        keeps_a_failed_attempt_out::<RawTicket<Os>>();
        keeps_a_failed_attempt_out::<RawMcs<Os>>();
        keeps_a_failed_attempt_out::<RawClh<Os>>();
    }
}
