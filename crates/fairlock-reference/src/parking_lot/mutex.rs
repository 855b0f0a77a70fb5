//! parking_lot's mutex: two bits; a thread that waits spins for a moment, then sleeps in a queue.
//!
//! # Guarantees
//! Mutual exclusion, and that somebody gets a free mutex. A release wakes the thread that has slept for longest, which
//! competes with those that arrive. In version 0.12, a release that wakes somebody more than 1 ms after the last handover
//! hands the mutex over: so nobody waits for ever. In version 0.13 somebody may.
//!
//! # How it works
//! | bits | the mutex is |
//! |---|---|
//! | | free, and nobody sleeps |
//! | `LOCKED` | taken, and nobody sleeps |
//! | `LOCKED` `PARKED` | taken, and somebody sleeps or is about to |
//! | `PARKED` | free; somebody sleeps, or a release is about to wake somebody |
//!
//! A thread that arrives takes a mutex that is not `LOCKED`, whoever sleeps. While it is `LOCKED` and not `PARKED`, the
//! thread spins for ten rounds at most: three of a few turns each, then seven yields. Then it sets `PARKED` and sleeps
//! in the queue if both bits are still set when it has the queue's lock. When it is awake, it starts again.
//!
//! A release without `PARKED` takes `LOCKED` back. With `PARKED` it wakes the head of the queue, under whose lock it
//! clears `PARKED` if nobody is left. Version 0.13 clears `LOCKED` at once, before it goes for the queue. Version 0.12
//! clears it under the queue's lock, so nobody takes the mutex in between; or it leaves `LOCKED` set, and
//! the head of the queue has the mutex.
//!
//! # Why it is right
//! 1. Whoever sets `LOCKED` has the mutex until it clears it or hands it over.
//! 2. A thread goes to sleep under the queue's lock, and while both bits are set. `PARKED` is cleared under that lock alone,
//!    and only if nobody is left in the queue. So a release that comes later sees `PARKED`, and finds the thread in the queue.
//! 3. The head of the queue that was woken takes the mutex or finds it taken. As `PARKED` stays if others are left, the
//!    release of whoever has it wakes the next one.
//!
//! # What it costs
//! Without contention two locked instructions: a compare-exchange, and in version 0.12 another one, in 0.13 a subtraction.
//!
//! # Source
//! `src/raw_mutex.rs` of parking_lot 0.12.5 and 0.13.0, by Amanieu d'Antras and others. The original's word has 8 bits. What
//! else differs is said [above](super).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::lock_api::GuardNoSend;
use fairlock::platform::{AtomicCell, AtomicInt, Os, Platform};

use super::lot::{Queue, Taken, Wants};
use super::{Spin, V0_13, Version};

/// Somebody has the mutex.
const LOCKED: u32 = 0b01;
/// Somebody sleeps in the queue, or is about to.
const PARKED: u32 = 0b10;

fn is_locked(word: u32) -> bool {
    word & LOCKED != 0
}

fn has_sleepers(word: u32) -> bool {
    word & PARKED != 0
}

/// parking_lot's mutex, for comparison only. See the [module](self) for what it guarantees.
///
/// # Example
/// ```
/// use fairlock_reference::parking_lot::mutex::ParkingLotMutex;
///
/// static COUNT: ParkingLotMutex<u32> = ParkingLotMutex::new(0);
///
/// *COUNT.lock() += 1;
/// let count = COUNT.lock();
/// assert!(COUNT.try_lock().is_none());
/// assert_eq!(*count, 1);
/// ```
pub type ParkingLotMutex<T, V = V0_13> = fairlock::lock_api::Mutex<RawParkingLotMutex<V, Os>, T>;

/// The mutex without its data: what [`ParkingLotMutex`] is made of. Use it through `lock_api`.
#[repr(C)]
pub struct RawParkingLotMutex<V: Version, P: Platform = Os> {
    word: P::AtomicU32,
    waiters: Queue<V, P>,
}

impl<V: Version, P: Platform> RawParkingLotMutex<V, P> {
    #[cold]
    fn wait(&self) {
        let mut spin = Spin::<V, P>::new();
        let mut word = self.word.load(Relaxed);
        loop {
            if !is_locked(word) {
                // Acquire pairs with the Releases in `unlock` and `release`.
                match self.word.compare_exchange_weak(word, word | LOCKED, Acquire, Relaxed) {
                    Ok(_) => return,
                    Err(found) => word = found,
                }
                continue;
            }
            if !has_sleepers(word) && spin.goes_on() {
                word = self.word.load(Relaxed);
                continue;
            }
            if !has_sleepers(word)
                && let Err(found) =
                    self.word.compare_exchange_weak(word, word | PARKED, Relaxed, Relaxed)
            {
                word = found;
                continue;
            }
            let has_to = || self.word.load(Relaxed) == LOCKED | PARKED;
            if self.waiters.park(Wants::Alone, has_to) {
                return;
            }
            spin = Spin::new();
            word = self.word.load(Relaxed);
        }
    }

    /// The queue of those that wait for the mutex.
    pub(super) fn waiters(&self) -> &Queue<V, P> {
        &self.waiters
    }

    /// Says that others sleep in the queue, if the mutex is taken; whether it is. The caller has the
    /// queue's lock.
    pub(super) fn mark_parked_if_locked(&self) -> bool {
        let mut word = self.word.load(Relaxed);
        while is_locked(word) {
            match self.word.compare_exchange_weak(word, word | PARKED, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(found) => word = found,
            }
        }
        false
    }

    /// Says that others sleep in the queue, whose lock the caller has.
    pub(super) fn mark_parked(&self) {
        self.word.fetch_or(PARKED, Relaxed);
    }

    /// Version 0.12: the mutex is still the caller's, until this makes it free or the sleeper's.
    #[cold]
    fn release(&self) {
        self.waiters.unpark(|taken| {
            let parked = if taken.leaves_others { PARKED } else { 0 };
            let locked = if taken.is_due { LOCKED } else { 0 };
            // Release pairs with the Acquire in `wait` and `try_lock`. Who sets `PARKED` meanwhile is not in the queue, and
            // looks at the word again once it has the queue's lock.
            self.word.store(locked | parked, Release);
            taken.is_due
        });
    }

    /// Version 0.13: the mutex was made free.
    #[cold]
    fn wake(&self) {
        self.waiters.unpark(|taken: Taken| {
            if !taken.leaves_others {
                self.word.fetch_and(!PARKED, Relaxed);
            }
            false
        });
    }
}

// SAFETY: invariant 1; taking is Acquire, unlocking Release, and so is a sleep and the wake-up that hands the mutex over.
// Guards are inert, and nothing refers to the lock but borrows, so it may be moved or dropped while held: those in its queue
// borrow it, too.
unsafe impl<V: Version, P: Platform> fairlock::lock_api::RawMutex for RawParkingLotMutex<V, P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = RawParkingLotMutex { word: P::AtomicU32::ZERO, waiters: Queue::NEW };
    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        // Acquire as in `wait`.
        if self.word.compare_exchange_weak(0, LOCKED, Acquire, Relaxed).is_err() {
            self.wait();
        }
        GuardNoSend::new()
    }
    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        let mut word = self.word.load(Relaxed);
        while !is_locked(word) {
            // Acquire as in `wait`.
            match self.word.compare_exchange_weak(word, word | LOCKED, Acquire, Relaxed) {
                Ok(_) => return Some(GuardNoSend::new()),
                Err(found) => word = found,
            }
        }
        None
    }
    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        // Release pairs with the Acquire in `wait` and `try_lock`.
        if V::HANDS_OVER {
            if self.word.compare_exchange(LOCKED, 0, Release, Relaxed).is_err() {
                self.release();
            }
        } else if has_sleepers(self.word.fetch_sub(LOCKED, Release)) {
            self.wake();
        }
    }
    fn is_locked(&self) -> bool {
        is_locked(self.word.load(Relaxed))
    }
}
