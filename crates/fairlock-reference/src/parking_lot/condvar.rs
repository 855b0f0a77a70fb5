//! parking_lot's condition variable: a notification moves waiting threads to the mutex's queue.
//!
//! # Guarantees
//! No notification is lost: a thread is in the queue before it releases the mutex. No thread wakes
//! without one. Threads are notified in the order in which they began to wait.
//!
//! # How it works
//! The word is the mutex of those that wait, null if no thread does. A notification looks whether
//! the mutex is taken, with both queues' locks held:
//!
//! | mutex | `notify_one` | `notify_all` |
//! |---|---|---|
//! | free | wakes the first thread | wakes the first, moves the others to the mutex's queue |
//! | taken | moves the first thread to the mutex's queue | moves all of them there |
//!
//! A thread that was moved wakes when the mutex is released to it. It then takes the mutex like any
//! other, or was handed it (version 0.12).
//!
//! # Why it is right
//! 1. The word is changed with the queue's lock held, and is null exactly while the queue is empty.
//! 2. While threads wait with a mutex, it is alive: they borrow it. A notification uses the mutex
//!    only with the queue's lock held and after it has found it in the word again.
//! 3. `PARKED` is set, under the lock of the mutex's queue, before threads are seen there. So the
//!    release that comes later finds them.
//!
//! # Source
//! `src/raw_condvar.rs` of parking_lot 0.13.0, which does what `src/condvar.rs` of 0.12.5 does, by
//! Amanieu d'Antras and others. The original locks both queues before it looks at the word. It may,
//! because its queues are not in the locks.

use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use fairlock::lock_api::{GuardNoSend, RawCondvar, RawMutex};
use fairlock::platform::{AtomicCell, Os, Platform};

use super::Version;
use super::lot::{Queue, Wants};
use super::mutex::RawParkingLotMutex;

/// parking_lot's condition variable, for comparison only. See the [module](self) for what it
/// guarantees. Use it through `lock_api`.
///
/// # Example
/// ```
/// use fairlock::lock_api::Condvar;
/// use fairlock_reference::parking_lot::V0_13;
/// use fairlock_reference::parking_lot::condvar::RawParkingLotCondvar;
///
/// static CHANGED: Condvar<RawParkingLotCondvar<V0_13>> = Condvar::new();
/// assert_eq!(CHANGED.notify_all(), 0); // no thread waits
/// ```
#[repr(C)]
pub struct RawParkingLotCondvar<V: Version, P: Platform = Os> {
    mutex: P::AtomicPtr<RawParkingLotMutex<V, P>>,
    waiters: Queue<V, P>,
}

// SAFETY: its queue may be sent and shared, and the pointer is used as invariant 2 says.
unsafe impl<V: Version, P: Platform> Send for RawParkingLotCondvar<V, P> {}
// SAFETY: the same.
unsafe impl<V: Version, P: Platform> Sync for RawParkingLotCondvar<V, P> {}

impl<V: Version, P: Platform> RawParkingLotCondvar<V, P> {
    /// Notifies the first thread, or all, if they wait with the mutex in this place. Returns how
    /// many.
    #[cold]
    fn notify(&self, place: *mut RawParkingLotMutex<V, P>, all: bool) -> usize {
        // SAFETY: invariant 2: it is called after the word was found to be `place`, with the
        // queue's lock held.
        let mutex = || unsafe { &*place };
        self.waiters.requeue(
            all,
            || {
                if self.mutex.load(Relaxed) != place {
                    return None;
                }
                if all {
                    self.mutex.store(ptr::null_mut(), Relaxed);
                }
                Some(mutex().waiters())
            },
            || !mutex().mark_parked_if_locked(),
            |requeued| {
                if !all && !requeued.leaves_others {
                    self.mutex.store(ptr::null_mut(), Relaxed);
                }
                if requeued.wakes_and_moves {
                    mutex().mark_parked();
                }
            },
        )
    }
}

// SAFETY: a wait releases the mutex and acquires it again, or was handed it. It does not wake
// without a notification, and panics before it queues if threads wait with another mutex.
unsafe impl<V: Version, P: Platform> RawCondvar for RawParkingLotCondvar<V, P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = RawParkingLotCondvar { mutex: P::AtomicPtr::ZERO, waiters: Queue::NEW };
    type RawMutex = RawParkingLotMutex<V, P>;

    unsafe fn wait(&self, mutex: &RawParkingLotMutex<V, P>, guard: &mut GuardNoSend) {
        let place = ptr::from_ref(mutex).cast_mut();
        let has_to = || {
            let of_others = self.mutex.load(Relaxed);
            if of_others.is_null() {
                self.mutex.store(place, Relaxed);
            } else {
                assert_eq!(of_others, place, "threads wait with another mutex");
            }
            true
        };
        // SAFETY: this thread holds it, as the caller promises.
        let release = || unsafe { mutex.unlock(GuardNoSend::new()) };
        if !self.waiters.park_after(Wants::Alone, has_to, release) {
            *guard = mutex.lock();
        }
    }

    #[inline]
    fn notify_one(&self) -> bool {
        let place = self.mutex.load(Relaxed);
        !place.is_null() && self.notify(place, false) == 1
    }

    #[inline]
    fn notify_all(&self) -> usize {
        let place = self.mutex.load(Relaxed);
        if place.is_null() { 0 } else { self.notify(place, true) }
    }
}
