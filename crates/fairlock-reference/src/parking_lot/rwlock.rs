//! parking_lot's reader-writer lock: one word, a queue of all that wait, and a second one for the writer that waits for
//! readers inside.
//!
//! # Guarantees
//! Mutual exclusion, and that somebody gets a free lock. No reader enters while a writer waits for the readers inside. A
//! writer's release wakes those that have slept for longest: all readers up to the first writer, and that writer.
//! They compete with each other and with those that arrive. In version 0.12, a writer's release that wakes somebody more than
//! 1 ms after the last handover hands the lock over to them: so nobody waits for ever. In version 0.13 somebody may. A
//! thread that reads within a read may wait for ever.
//!
//! # How it works
//! ```text
//!   state  │ readers inside │ WRITER │ 0 │ WRITER_PARKED │ PARKED │
//! ```
//!
//! | readers | `WRITER` | the lock is |
//! |---|---|---|
//! | 0 | no | free |
//! | some | no | read; readers may join |
//! | some | yes | read, and a writer has come that waits until nobody reads; nobody else may enter |
//! | 0 | yes | written |
//!
//! A writer acquires in two steps: it sets `WRITER`, then it waits until nobody reads. A reader adds one unless `WRITER` is
//! set. Either enters a lock that admits it whoever sleeps.
//!
//! A thread that finds `WRITER` set, of another one, spins for ten rounds at most, three of a few turns each, then seven
//! yields; but not while somebody sleeps. Then it sets `PARKED` and sleeps in the first queue, if `PARKED` and
//! `WRITER` are still set when it has that queue's lock. A writer in its second step spins, too, then sets `WRITER_PARKED` and
//! sleeps in the second queue, alone, if somebody still reads.
//!
//! The last reader that leaves wakes the second queue if `WRITER_PARKED` is set, and clears it under that queue's lock. A
//! writer that leaves wakes the first queue if `PARKED` is set: readers up to the first writer, and that one. Under that
//! queue's lock it clears `PARKED` if nobody is left. Version 0.13 clears `WRITER` before it goes for the queue. Version 0.12
//! clears it under the queue's lock, so nobody enters in between; or it makes the state what it is when all whom it wakes
//! are inside, and they have the lock (a writer among them goes on with its second step).
//!
//! # Why it is right
//! 1. Only one thread has set `WRITER`, until it clears it or hands it over. While it is set, no reader is added. So its
//!    owner is alone once it has seen that nobody reads.
//! 2. A thread goes to sleep in the first queue under its lock, and while `PARKED` and `WRITER` are set. `PARKED` is cleared
//!    under that lock alone, and only if nobody is left. So the writer that leaves later sees `PARKED`, and finds the thread.
//! 3. A reader that leaves does not wake the first queue. It need not: who is left there was left by a wake-up that ended
//!    with a writer. That writer sets `WRITER` or finds it set, and whoever leaves as a writer next sees `PARKED`.
//! 4. A writer goes to sleep in the second queue under its lock, and while somebody reads and `WRITER_PARKED` is set, which
//!    only the last reader clears, under that lock. So the last reader sees it, and finds the writer or makes it look again.
//!
//! # What it costs
//! Without contention two locked instructions: for a read a compare-exchange and a subtraction; for a write a
//! compare-exchange, and in version 0.12 another one, in 0.13 a subtraction.
//!
//! # Source
//! `src/raw_rwlock.rs` of parking_lot 0.12.5 and 0.13.0, by Amanieu d'Antras and others, after Boost's `upgrade_mutex` by
//! Howard Hinnant. The count of readers has 60 bits, so nobody checks that it fits, as the original does. What else differs is
//! said [above](super).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::lock_api::GuardNoSend;
use fairlock::platform::{AtomicCell, AtomicInt, Os, Platform};

use super::lot::{Queue, Taken, Wants};
use super::{Spin, V0_13, Version};

/// Somebody sleeps in the first queue, or is about to.
const PARKED: u64 = 1 << 0;
/// The owner of `WRITER` sleeps in the second queue, or is about to.
const WRITER_PARKED: u64 = 1 << 1;
/// A writer is inside, or waits for the readers inside.
const WRITER: u64 = 1 << 3;
/// One reader.
const READER: u64 = 1 << 4;
/// The bits of the count.
const READERS: u64 = !(READER - 1);

fn has_writer(state: u64) -> bool {
    state & WRITER != 0
}

fn has_readers(state: u64) -> bool {
    state & READERS != 0
}

fn has_sleepers(state: u64) -> bool {
    state & PARKED != 0
}

fn has_sleeping_writer(state: u64) -> bool {
    state & WRITER_PARKED != 0
}

/// parking_lot's reader-writer lock, for comparison only. See the [module](self) for what it guarantees.
///
/// # Example
/// ```
/// use fairlock_reference::parking_lot::rwlock::ParkingLotRwLock;
///
/// static ROUTES: ParkingLotRwLock<Vec<&str>> = ParkingLotRwLock::new(Vec::new());
///
/// ROUTES.write().push("/");
/// let (one, other) = (ROUTES.read(), ROUTES.read());
/// assert_eq!(one.len(), other.len());
/// assert!(ROUTES.try_write().is_none());
/// ```
pub type ParkingLotRwLock<T, V = V0_13> = fairlock::lock_api::RwLock<RawParkingLotRwLock<V, Os>, T>;

/// The lock without its data: what [`ParkingLotRwLock`] is made of. Use it through `lock_api`.
#[repr(C)]
pub struct RawParkingLotRwLock<V: Version, P: Platform = Os> {
    state: P::AtomicU64,
    /// The first queue: all that wait for `WRITER` to be cleared.
    waiters: Queue<V, P>,
    /// The second one: the owner of `WRITER`, until nobody reads.
    writer: Queue<V, P>,
}

impl<V: Version, P: Platform> RawParkingLotRwLock<V, P> {
    /// Acquires by `take`, which tries to, from the state that it is given, and leaves there what it found if it
    /// cannot because of a writer.
    fn wait(&self, wants: Wants, take: impl Fn(&mut u64) -> bool) {
        let mut spin = Spin::<V, P>::new();
        let mut state = self.state.load(Relaxed);
        loop {
            if take(&mut state) {
                return;
            }
            let is_to_spin = !has_sleepers(state) && !has_sleeping_writer(state);
            if is_to_spin && spin.goes_on() {
                state = self.state.load(Relaxed);
                continue;
            }
            if !has_sleepers(state)
                && let Err(found) =
                    self.state.compare_exchange_weak(state, state | PARKED, Relaxed, Relaxed)
            {
                state = found;
                continue;
            }
            let has_to = || {
                let state = self.state.load(Relaxed);
                has_sleepers(state) && has_writer(state)
            };
            if self.waiters.park(wants, has_to) {
                return;
            }
            spin = Spin::new();
            state = self.state.load(Relaxed);
        }
    }

    // ---- readers ----

    #[inline]
    fn read(&self) {
        let state = self.state.load(Relaxed);
        // Acquire pairs with the Releases of writers, in `unlock_write` and `release`.
        let is_inside = !has_writer(state)
            && self.state.compare_exchange_weak(state, state + READER, Acquire, Relaxed).is_ok();
        if !is_inside {
            self.wait_to_read();
        }
    }

    #[cold]
    fn wait_to_read(&self) {
        self.wait(Wants::Shared, |state| {
            let mut spin = Spin::<V, P>::new();
            while !has_writer(*state) {
                // Acquire as in `read`.
                let taken =
                    self.state.compare_exchange_weak(*state, *state + READER, Acquire, Relaxed);
                if taken.is_ok() {
                    return true;
                }
                spin.backs_off();
                *state = self.state.load(Relaxed);
            }
            false
        });
    }

    #[inline]
    fn try_read(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        while !has_writer(state) {
            // Acquire as in `read`.
            match self.state.compare_exchange_weak(state, state + READER, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(found) => state = found,
            }
        }
        false
    }

    #[inline]
    fn unlock_read(&self) {
        // Release pairs with the Acquire in `write` and `wait_for_readers`.
        let state = self.state.fetch_sub(READER, Release);
        if state & (READERS | WRITER_PARKED) == READER | WRITER_PARKED {
            self.wake_writer();
        }
    }

    #[cold]
    fn wake_writer(&self) {
        self.writer.unpark(|_| {
            self.state.fetch_and(!WRITER_PARKED, Relaxed);
            false
        });
    }

    // ---- writers ----

    #[inline]
    fn write(&self) {
        // Acquire pairs with all Releases.
        if self.state.compare_exchange_weak(0, WRITER, Acquire, Relaxed).is_err() {
            self.wait_to_write();
        }
    }

    #[cold]
    fn wait_to_write(&self) {
        self.wait(Wants::Alone, |state| {
            while !has_writer(*state) {
                // Acquire pairs with the Releases of writers; those of readers are `wait_for_readers`'s.
                match self.state.compare_exchange_weak(*state, *state | WRITER, Acquire, Relaxed) {
                    Ok(_) => return true,
                    Err(found) => *state = found,
                }
            }
            false
        });
        self.wait_for_readers();
    }

    /// The second step of the owner of `WRITER`.
    fn wait_for_readers(&self) {
        let mut spin = Spin::<V, P>::new();
        // Acquire pairs with the Release in `unlock_read`, here and below.
        let mut state = self.state.load(Acquire);
        while has_readers(state) {
            if spin.goes_on() {
                state = self.state.load(Acquire);
                continue;
            }
            if !has_sleeping_writer(state) {
                let waits = state | WRITER_PARKED;
                if let Err(found) = self.state.compare_exchange_weak(state, waits, Acquire, Acquire)
                {
                    state = found;
                    continue;
                }
            }
            self.writer.park(Wants::Alone, || {
                let state = self.state.load(Relaxed);
                has_readers(state) && has_sleeping_writer(state)
            });
            state = self.state.load(Acquire);
        }
    }

    #[inline]
    fn try_write(&self) -> bool {
        // Acquire pairs with all Releases.
        self.state.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok()
    }

    #[inline]
    fn unlock_write(&self) {
        // Release pairs with the Acquires of all that enter.
        if V::HANDS_OVER {
            if self.state.compare_exchange(WRITER, 0, Release, Relaxed).is_err() {
                self.release();
            }
        } else if has_sleepers(self.state.fetch_sub(WRITER, Release)) {
            self.wake();
        }
    }

    /// Version 0.12: the lock is still the caller's, until this makes it free or that of those whom it wakes.
    #[cold]
    fn release(&self) {
        self.waiters.unpark(|taken| {
            let parked = if taken.leaves_others { PARKED } else { 0 };
            let inside = if taken.is_due { entered(taken) } else { 0 };
            // Release pairs with the Acquires of all that enter. Who sets `PARKED` meanwhile is not in the queue, and looks
            // at the state again once it has the queue's lock.
            self.state.store(inside | parked, Release);
            taken.is_due
        });
    }

    /// Version 0.13: the writer has left.
    #[cold]
    fn wake(&self) {
        self.waiters.unpark(|taken| {
            if !taken.leaves_others {
                self.state.fetch_and(!PARKED, Relaxed);
            }
            false
        });
    }
}

/// The state of a lock with these inside.
fn entered(taken: Taken) -> u64 {
    taken.shared * READER + if taken.alone { WRITER } else { 0 }
}

// SAFETY: invariant 1. Every way to acquire is Acquire, both ways to release are Release, and so is a sleep and the wake-up
// that hands the lock over. Guards are inert, and nothing refers to the lock but borrows, so it may be moved or dropped
// while held: those in its queues borrow it, too.
unsafe impl<V: Version, P: Platform> fairlock::lock_api::RawRwLock for RawParkingLotRwLock<V, P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self =
        RawParkingLotRwLock { state: P::AtomicU64::ZERO, waiters: Queue::NEW, writer: Queue::NEW };
    type SharedGuard = GuardNoSend;
    type ExclusiveGuard = GuardNoSend;

    #[inline]
    fn lock_shared(&self) -> GuardNoSend {
        self.read();
        GuardNoSend::new()
    }
    #[inline]
    fn try_lock_shared(&self) -> Option<GuardNoSend> {
        self.try_read().then(GuardNoSend::new)
    }
    #[inline]
    unsafe fn unlock_shared(&self, _guard: GuardNoSend) {
        self.unlock_read();
    }
    #[inline]
    fn lock_exclusive(&self) -> GuardNoSend {
        self.write();
        GuardNoSend::new()
    }
    #[inline]
    fn try_lock_exclusive(&self) -> Option<GuardNoSend> {
        self.try_write().then(GuardNoSend::new)
    }
    #[inline]
    unsafe fn unlock_exclusive(&self, _guard: GuardNoSend) {
        self.unlock_write();
    }
    fn is_locked(&self) -> bool {
        let state = self.state.load(Relaxed);
        has_writer(state) || has_readers(state)
    }
    fn is_locked_exclusive(&self) -> bool {
        let state = self.state.load(Relaxed);
        has_writer(state) && !has_readers(state)
    }
}
