//! The standard library's reader-writer lock: one word with a count, and a second one on which writers sleep.
//!
//! # Guarantees
//! Mutual exclusion, and that somebody gets a free lock. Writers are preferred: no reader enters while a writer waits,
//! and a release wakes a writer before it wakes readers. So readers may starve; and a writer that is woken competes with
//! writers that arrive, so it may, too. A thread that reads within a read may wait for ever.
//!
//! # How it works
//! ```text
//!   state          │ WRITERS_WAIT │ READERS_WAIT │ readers inside, or WRITTEN (all ones) │
//!   notifications  how often writers were woken: what a writer sleeps on
//! ```
//!
//! | count | readers wait | writers wait | the lock is |
//! |---|---|---|---|
//! | 0 | no | no | free |
//! | 0 | yes or no | yes or no | free, and whoever has released it is about to wake somebody |
//! | some | no | no | read; readers may join |
//! | some | yes or no | yes | read; readers that arrive wait behind the writer |
//! | `WRITTEN` | yes or no | yes or no | written |
//!
//! A thread that cannot enter spins while it sees no other waiter, for 100 turns at most: a reader while the lock is written,
//! a writer while it is held at all. Then it sets its flag and sleeps: a reader on `state`, a writer on `notifications`. When it
//! is awake, it spins again.
//!
//! A release that leaves the lock free with a flag set wakes. If writers wait, it clears their flag and wakes one. Only if
//! none slept, or none waits, it clears the readers' flag and wakes all readers. If somebody takes the lock in between, it
//! does nothing, as the next release will do it. A writer that has waited sets `WRITERS_WAIT` when it enters, as it
//! cannot know whether it was the only one.
//!
//! # Why it is right
//! 1. Whoever changes the count from 0 to `WRITTEN` is alone until it takes that back. Whoever adds one to a count below
//!    `WRITTEN - 1` reads until it takes that back.
//! 2. A reader sleeps only while `READERS_WAIT` is set, which only those who wake all readers clear, while the lock is free.
//! 3. A writer reads `notifications` before it looks for the last time whether the lock is held and `WRITERS_WAIT`
//!    is set, and sleeps only if nothing was added since. Whoever clears the flag adds one next. So it cannot miss that.
//! 4. The flag of those left behind stays or is set again by whoever was woken, so the next release wakes one of them.
//!
//! # What it costs
//! Without contention two locked instructions: for a read a compare-exchange and a subtraction, for a write the same.
//!
//! # Source
//! `library/std/src/sys/sync/rwlock/futex.rs` of Rust 1.95, by Mara Bos and others. A reader that has slept may join readers
//! although a writer waits: since the lock has `downgrade`, which is left out
//! here.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::lock_api::GuardNoSend;
use fairlock::platform::{AtomicCell, AtomicInt, Os, Platform};

use super::spin_until;

/// One reader.
const READER: u32 = 1;
/// The bits of the count.
const COUNT: u32 = (1 << 30) - 1;
/// A writer, as the count.
const WRITTEN: u32 = COUNT;
/// As many readers as fit.
const MOST_READERS: u32 = COUNT - 1;
/// Readers sleep on `state`.
const READERS_WAIT: u32 = 1 << 30;
/// Writers sleep on `notifications`.
const WRITERS_WAIT: u32 = 1 << 31;

fn is_free(state: u32) -> bool {
    state & COUNT == 0
}

fn is_written(state: u32) -> bool {
    state & COUNT == WRITTEN
}

fn has_readers_waiting(state: u32) -> bool {
    state & READERS_WAIT != 0
}

fn has_writers_waiting(state: u32) -> bool {
    state & WRITERS_WAIT != 0
}

/// Not even a free lock, if somebody waits: whoever has released it may be about to wake a writer.
fn admits_reader(state: u32) -> bool {
    state & COUNT < MOST_READERS && !has_readers_waiting(state) && !has_writers_waiting(state)
}

/// Beside other readers, whoever else waits.
fn admits_awake_reader(state: u32) -> bool {
    state & COUNT < MOST_READERS && !has_readers_waiting(state) && !is_free(state)
}

/// The standard library's reader-writer lock, for comparison only. See the [module](self) for what it guarantees.
///
/// # Example
/// ```
/// use fairlock_reference::rust_std::rwlock::StdRwLock;
///
/// static ROUTES: StdRwLock<Vec<&str>> = StdRwLock::new(Vec::new());
///
/// ROUTES.write().push("/");
/// let (one, other) = (ROUTES.read(), ROUTES.read());
/// assert_eq!(one.len(), other.len());
/// assert!(ROUTES.try_write().is_none());
/// ```
pub type StdRwLock<T> = fairlock::lock_api::RwLock<RawStdRwLock<Os>, T>;

/// The lock without its data: what [`StdRwLock`] is made of. Use it through `lock_api`.
#[repr(C)]
pub struct RawStdRwLock<P: Platform = Os> {
    state: P::AtomicU32,
    notifications: P::AtomicU32,
}

impl<P: Platform> RawStdRwLock<P> {
    fn spin_until(&self, is_done: impl Fn(u32) -> bool) -> u32 {
        spin_until::<P>(|| self.state.load(Relaxed), is_done)
    }

    // ---- readers ----

    #[inline]
    fn read(&self) {
        let state = self.state.load(Relaxed);
        // Acquire pairs with the Release in `unlock_write`.
        let is_inside = admits_reader(state)
            && self.state.compare_exchange_weak(state, state + READER, Acquire, Relaxed).is_ok();
        if !is_inside {
            self.wait_to_read();
        }
    }

    fn spin_to_read(&self) -> u32 {
        self.spin_until(|state| {
            !is_written(state) || has_readers_waiting(state) || has_writers_waiting(state)
        })
    }

    #[cold]
    fn wait_to_read(&self) {
        let mut has_slept = false;
        let mut state = self.spin_to_read();
        loop {
            if admits_reader(state) || has_slept && admits_awake_reader(state) {
                // Acquire as in `read`.
                match self.state.compare_exchange_weak(state, state + READER, Acquire, Relaxed) {
                    Ok(_) => return,
                    Err(found) => state = found,
                }
                continue;
            }
            assert!(
                state & COUNT != MOST_READERS,
                "too many readers: forgotten guards are never released"
            );
            let waits = state | READERS_WAIT;
            if state != waits
                && let Err(found) = self.state.compare_exchange(state, waits, Relaxed, Relaxed)
            {
                state = found;
                continue;
            }
            P::park(&self.state, waits, None);
            has_slept = true;
            state = self.spin_to_read();
        }
    }

    #[inline]
    fn try_read(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        while admits_reader(state) {
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
        // Release pairs with the Acquire in `write`.
        let state = self.state.fetch_sub(READER, Release) - READER;
        // Readers wait on a lock that is read only if a writer does.
        if is_free(state) && has_writers_waiting(state) {
            self.wake(state);
        }
    }

    // ---- writers ----

    #[inline]
    fn write(&self) {
        // Acquire pairs with the Releases in `unlock_write` and `unlock_read`.
        if self.state.compare_exchange_weak(0, WRITTEN, Acquire, Relaxed).is_err() {
            self.wait_to_write();
        }
    }

    fn spin_to_write(&self) -> u32 {
        self.spin_until(|state| is_free(state) || has_writers_waiting(state))
    }

    #[cold]
    fn wait_to_write(&self) {
        let mut state = self.spin_to_write();
        let mut others_wait = 0;
        loop {
            if is_free(state) {
                let written = state | WRITTEN | others_wait;
                // Acquire as in `write`.
                match self.state.compare_exchange_weak(state, written, Acquire, Relaxed) {
                    Ok(_) => return,
                    Err(found) => state = found,
                }
                continue;
            }
            let waits = state | WRITERS_WAIT;
            if state != waits
                && let Err(found) = self.state.compare_exchange(state, waits, Relaxed, Relaxed)
            {
                state = found;
                continue;
            }
            others_wait = WRITERS_WAIT;
            // Acquire pairs with the Release in `wake_writer`: what comes after a notification sees the flag cleared.
            let notification = self.notifications.load(Acquire);
            state = self.state.load(Relaxed);
            if is_free(state) || !has_writers_waiting(state) {
                continue;
            }
            P::park(&self.notifications, notification, None);
            state = self.spin_to_write();
        }
    }

    #[inline]
    fn try_write(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        while is_free(state) {
            // Acquire as in `write`.
            match self.state.compare_exchange_weak(state, state + WRITTEN, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(found) => state = found,
            }
        }
        false
    }

    #[inline]
    fn unlock_write(&self) {
        // Release pairs with the Acquires in `read` and `write`.
        let state = self.state.fetch_sub(WRITTEN, Release) - WRITTEN;
        if has_readers_waiting(state) || has_writers_waiting(state) {
            self.wake(state);
        }
    }

    // ---- wake-ups ----

    /// The caller has left the lock free, and somebody waits.
    #[cold]
    fn wake(&self, mut state: u32) {
        // Readers may set their flag at any time, and anybody may take the lock. Nobody else clears a flag while it is free.
        if state == WRITERS_WAIT {
            match self.state.compare_exchange(state, 0, Relaxed, Relaxed) {
                Ok(_) => {
                    self.wake_writer();
                    return;
                }
                Err(found) => state = found,
            }
        }
        if state == READERS_WAIT | WRITERS_WAIT {
            let has_cleared =
                self.state.compare_exchange(state, READERS_WAIT, Relaxed, Relaxed).is_ok();
            // If it was taken, its next release wakes.
            if !has_cleared || self.wake_writer() {
                return;
            }
            // Perhaps no writer has noticed.
            state = READERS_WAIT;
        }
        if state == READERS_WAIT && self.state.compare_exchange(state, 0, Relaxed, Relaxed).is_ok()
        {
            P::unpark_many(&raw const self.state, u32::MAX);
        }
    }

    /// False if no writer slept; one that was about to will notice.
    fn wake_writer(&self) -> bool {
        // Release pairs with the Acquire in `wait_to_write`.
        self.notifications.fetch_add(1, Release);
        P::unpark_many(&raw const self.notifications, 1) > 0
    }
}

// SAFETY: invariant 1. Every way to acquire is Acquire, both ways to release are Release. Guards are inert, and nothing
// refers to the lock but borrows, so it may be moved or dropped while held.
unsafe impl<P: Platform> fairlock::lock_api::RawRwLock for RawStdRwLock<P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self =
        RawStdRwLock { state: P::AtomicU32::ZERO, notifications: P::AtomicU32::ZERO };
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
        !is_free(self.state.load(Relaxed))
    }
    fn is_locked_exclusive(&self) -> bool {
        is_written(self.state.load(Relaxed))
    }
}
