//! The queued reader-writer lock: one word, and one waiter at a time that watches it.
//!
//! Readers count themselves in the word and writers set its writer byte, with one operation if
//! nobody is in the way. Everybody else queues for the `wait_lock`, an MCS lock; its holder alone
//! spins on the word, so the others cost no traffic. A reader at the front counts itself and waits
//! for the writer to leave. A writer there sets `WRITER_WAITS`, which sends new readers to the
//! queue, and waits for all to leave.
//!
//! ```text
//!   63        9     8     7        0
//!   │ readers │ WRITER_WAITS │ WRITER │
//! ```
//!
//! After `kernel/locking/qrwlock.c` of Linux with two differences: 64 bits, so that forgotten
//! guards cannot overflow the count, and an atomic subtraction where a writer's unlock stores one
//! byte. It wastes a CPU while waiting and stalls while a holder, or the thread at the front, is
//! preempted: not for production.
//!
//! Invariants
//! 1. A writer holds the lock from the change of the word from zero readers and no `WRITER` to
//!    `WRITER` until it subtracts that. Meanwhile nobody else sets `WRITER`.
//! 2. A reader holds the lock from when it has counted itself and then seen, in the same operation
//!    or later, that `WRITER` is not set, until it subtracts itself. Until it has seen that, it
//!    either takes its count back or waits.
//! 3. `WRITER_WAITS` is set and cleared by the holder of `wait_lock` alone.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::lock_api::{GuardNoSend, RawMutex};
use fairlock::platform::{AtomicCell, AtomicInt, Os, Platform};

use super::mcs::RawMcs;

/// A queued reader-writer spin lock, for comparison only.
///
/// # Guarantees
/// Those that find the lock taken wait in the order of their arrival in the queue. A reader at its
/// front waits for one writer, a writer there for the readers and writers that are inside.
/// Readers that arrive while no writer holds the lock or waits at the front enter past the queue,
/// and so may a writer that finds the lock free.
///
/// # Example
/// ```
/// use fairlock_reference::spin::QueuedRwLock;
///
/// static ROUTES: QueuedRwLock<Vec<&str>> = QueuedRwLock::new(Vec::new());
///
/// ROUTES.write().push("/");
/// let (one, other) = (ROUTES.read(), ROUTES.read());
/// assert_eq!(one.len(), other.len());
/// assert!(ROUTES.try_write().is_none());
/// ```
pub type QueuedRwLock<T> = fairlock::lock_api::RwLock<RawQueuedRwLock<Os>, T>;

/// A writer holds the lock: the writer byte.
const WRITER: u64 = 0xff;
/// A writer waits at the front of the queue.
const WRITER_WAITS: u64 = 0x100;
/// One reader.
const READER: u64 = 0x200;

fn admits_newcomer_reader(word: u64) -> bool {
    word & (WRITER | WRITER_WAITS) == 0
}

fn admits_front_reader(word: u64) -> bool {
    word & WRITER == 0
}

/// The lock without its data: what [`QueuedRwLock`] is made of. Use it through `lock_api`.
#[repr(C)]
pub struct RawQueuedRwLock<P: Platform = Os> {
    word: P::AtomicU64,
    wait_lock: RawMcs<P>,
}

impl<P: Platform> RawQueuedRwLock<P> {
    /// Runs `wait` at the front of the queue.
    fn at_front(&self, wait: impl FnOnce()) {
        let guard = self.wait_lock.lock();
        wait();
        // SAFETY: held since above.
        unsafe { self.wait_lock.unlock(guard) };
    }

    /// Counts a reader in if it need not wait.
    #[inline]
    fn enter_shared(&self) -> bool {
        // Acquire pairs with the Release in `unlock_exclusive`.
        if admits_newcomer_reader(self.word.fetch_add(READER, Acquire)) {
            return true;
        }
        // Relaxed: it has not been inside.
        self.word.fetch_sub(READER, Relaxed);
        false
    }

    #[cold]
    fn wait_shared(&self) {
        self.at_front(|| {
            self.word.fetch_add(READER, Relaxed);
            // Acquire pairs with the Release in `unlock_exclusive`.
            while !admits_front_reader(self.word.load(Acquire)) {
                P::relax(None);
            }
        });
    }

    /// Makes a free lock a writer's: the word must be `from`.
    #[inline]
    fn enter_exclusive(&self, from: u64) -> bool {
        // Acquire pairs with the Release in `unlock_shared`, of all readers, since there are only
        // read-modify-writes in between; and with that in `unlock_exclusive`.
        self.word.compare_exchange(from, WRITER, Acquire, Relaxed).is_ok()
    }

    #[cold]
    fn wait_exclusive(&self) {
        self.at_front(|| {
            if self.word.load(Relaxed) == 0 && self.enter_exclusive(0) {
                return;
            }
            self.word.fetch_or(WRITER_WAITS, Relaxed);
            while !(self.word.load(Relaxed) == WRITER_WAITS && self.enter_exclusive(WRITER_WAITS)) {
                P::relax(None);
            }
        });
    }
}

// SAFETY: invariants 1 and 2; every way to acquire is Acquire, both ways to release are Release.
// Guards are inert, and a lock that is moved or dropped while held has no waiters, since they
// borrow it.
unsafe impl<P: Platform> fairlock::lock_api::RawRwLock for RawQueuedRwLock<P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = RawQueuedRwLock { word: P::AtomicU64::ZERO, wait_lock: RawMcs::NEW };
    type SharedGuard = GuardNoSend;
    type ExclusiveGuard = GuardNoSend;

    #[inline]
    fn lock_shared(&self) -> GuardNoSend {
        if !self.enter_shared() {
            self.wait_shared();
        }
        GuardNoSend::new()
    }
    #[inline]
    fn try_lock_shared(&self) -> Option<GuardNoSend> {
        let may_enter = admits_newcomer_reader(self.word.load(Relaxed));
        (may_enter && self.enter_shared()).then(GuardNoSend::new)
    }
    #[inline]
    unsafe fn unlock_shared(&self, _guard: GuardNoSend) {
        // Release pairs with the Acquire in `enter_exclusive`.
        self.word.fetch_sub(READER, Release);
    }
    #[inline]
    fn lock_exclusive(&self) -> GuardNoSend {
        if !self.enter_exclusive(0) {
            self.wait_exclusive();
        }
        GuardNoSend::new()
    }
    #[inline]
    fn try_lock_exclusive(&self) -> Option<GuardNoSend> {
        (self.word.load(Relaxed) == 0 && self.enter_exclusive(0)).then(GuardNoSend::new)
    }
    #[inline]
    unsafe fn unlock_exclusive(&self, _guard: GuardNoSend) {
        // Release pairs with the Acquire in `enter_shared`, `wait_shared` and `enter_exclusive`.
        self.word.fetch_sub(WRITER, Release);
    }
    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & !WRITER_WAITS != 0
    }
    fn is_locked_exclusive(&self) -> bool {
        self.word.load(Relaxed) & WRITER != 0
    }
}

/// The word step by step. Who waits where is tested with threads.
#[cfg(test)]
mod tests {
    use super::*;
    use fairlock::lock_api::RawRwLock;

    type Raw = RawQueuedRwLock<Os>;

    fn word(lock: &Raw) -> u64 {
        lock.word.load(Relaxed)
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let lock = QueuedRwLock::new(());
        let readers = [lock.read(), lock.read()];
        assert!(lock.is_locked() && !lock.is_locked_exclusive());
        assert!(lock.try_read().is_some());
        assert!(lock.try_write().is_none());
        drop(readers);
        let writer = lock.write();
        assert!(lock.is_locked_exclusive());
        assert!(lock.try_read().is_none());
        assert!(lock.try_write().is_none());
        drop(writer);
        assert!(!lock.is_locked());
    }

    #[test]
    fn a_waiting_writer_turns_newcomers_away_but_not_a_reader_at_the_front() {
        let lock = Raw::INIT;
        assert!(lock.enter_shared());
        lock.word.fetch_or(WRITER_WAITS, Relaxed);
        assert!(!lock.enter_shared());
        assert!(lock.try_lock_shared().is_none());
        assert!(lock.try_lock_exclusive().is_none());
        assert_eq!(word(&lock), READER | WRITER_WAITS);
        assert!(admits_front_reader(word(&lock)));
        assert!(!lock.enter_exclusive(WRITER_WAITS));
        // SAFETY: held since the beginning.
        unsafe { lock.unlock_shared(GuardNoSend::new()) };
        assert!(!lock.is_locked());
        assert!(lock.enter_exclusive(WRITER_WAITS));
        assert_eq!(word(&lock), WRITER);
    }

    #[test]
    fn those_that_find_a_free_lock_at_the_front_enter_at_once() {
        let lock = Raw::INIT;
        lock.wait_exclusive();
        assert_eq!(word(&lock), WRITER);
        // SAFETY: held since the line above.
        unsafe { lock.unlock_exclusive(GuardNoSend::new()) };
        lock.wait_shared();
        lock.wait_shared();
        assert_eq!(word(&lock), 2 * READER);
        assert!(!lock.wait_lock.is_locked());
    }
}
