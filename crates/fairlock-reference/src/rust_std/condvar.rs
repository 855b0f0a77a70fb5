//! The standard library's condition variable: a count of notifications.
//!
//! # Guarantees
//! No notification is lost: a thread that waits has read the count with the mutex held, and sleeps
//! only while it is the same. A thread may wake without a notification. There is no order.
//!
//! # How it works
//! A thread that waits reads the count, releases the mutex, sleeps while the count is what it
//! was, and acquires the mutex. A notification adds one to the count and asks the system to wake
//! one thread, or all, whether or not a thread waits.
//!
//! # Source
//! `library/std/src/sys/sync/condvar/futex.rs` of Rust 1.95, by Mara Bos and others.

use core::sync::atomic::Ordering::Relaxed;

use fairlock::lock_api::{GuardNoSend, RawCondvar, RawMutex};
use fairlock::platform::{AtomicCell, AtomicInt, Os, Platform};

use super::mutex::RawStdMutex;

/// The standard library's condition variable, for comparison only. See the [module](self) for
/// what it guarantees. Use it through `lock_api`.
///
/// # Example
/// ```
/// use fairlock::lock_api::Condvar;
/// use fairlock_reference::rust_std::condvar::RawStdCondvar;
///
/// static CHANGED: Condvar<RawStdCondvar> = Condvar::new();
/// assert!(!CHANGED.notify_one()); // it does not know whether a thread waits
/// ```
pub struct RawStdCondvar<P: Platform = Os> {
    notifications: P::AtomicU32,
}

// SAFETY: a wait releases the mutex and acquires it again.
unsafe impl<P: Platform> RawCondvar for RawStdCondvar<P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = RawStdCondvar { notifications: P::AtomicU32::ZERO };
    type RawMutex = RawStdMutex<P>;

    unsafe fn wait(&self, mutex: &RawStdMutex<P>, guard: &mut GuardNoSend) {
        // Relaxed: the mutex orders it, here and below.
        let seen = self.notifications.load(Relaxed);
        // SAFETY: this thread holds it, as the caller promises.
        unsafe { mutex.unlock(GuardNoSend::new()) };
        P::park(&self.notifications, seen, None);
        *guard = mutex.lock();
    }

    fn notify_one(&self) -> bool {
        self.notifications.fetch_add(1, Relaxed);
        P::unpark(&raw const self.notifications);
        false
    }

    fn notify_all(&self) -> usize {
        self.notifications.fetch_add(1, Relaxed);
        P::unpark_many(&raw const self.notifications, u32::MAX);
        0
    }
}
