//! A reader-writer lock for memory that several processes map: 24 bytes, without a pointer, all
//! zero when free. What it guarantees is written at [`ProcessSharedRwLock`].
//!
//! How it works: the other locks link nodes on their waiters' stacks, but no process can follow a
//! pointer into another. So this lock only counts. One 64-bit word (`word.rs`) says whether a
//! writer holds the lock, and counts the readers that hold it, the readers that wait, and the
//! writers that wait in two batches.
//! 1. A writer that releases the lock grants it to all waiting readers at once or, if there are
//!    none, hands it to a writer. The last reader that releases it hands it to a writer. So readers
//!    and writers take turns.
//! 2. Waiting writers form two batches: the front, whose turn is next, and the back, which
//!    newcomers join and which moves up once the front is empty. The lock is handed to a batch, and
//!    the first of its writers to notice takes it: mostly the one that has slept longest.
//! 3. A waiter spins for at most `SPIN_ON_OWNER_NS` and then sleeps: readers on `turn`, writers on
//!    the `handed` of their batch. These two change after the word: the word decides, and they make
//!    it known.
//! 4. A reader that gives up is no longer counted, unless it has been granted the lock. The same is
//!    true of a writer, unless no other writer of its batch is left to take what was handed to the
//!    batch.
//! 5. If every writer of the front gives up, the waiting readers no longer have to wait for it.
//!    They are *woken without a grant*: each may acquire the lock itself, past the writers that
//!    move up. Newcomers may not. (Granting them the lock as in 1 is not possible: some readers
//!    might not yet have noticed the previous grant, and two bits could not tell one grant from the
//!    other.)
//!
//! Invariants
//! 1. While a writer holds the lock, no reader does. Only the writer that holds it releases it.
//! 2. While a writer waits, somebody holds the lock: it is not free in between. So a waiting writer
//!    never competes with newcomers.
//! 3. While no writer holds the lock, the back is empty if the front is. The back moves up only
//!    once no writer of the front is still in `write`, not even one that was handed the lock and
//!    has not noticed.
//! 4. The word counts the writers of a batch that are still in `write`; from the moment at which it
//!    hands the lock to the batch until one of them sets `handed` back to 0, there is one more of
//!    them than it counts. So a writer of the front that the word no longer counts must wait for
//!    `handed`.
//! 5. Waiting readers are granted the lock only by a writer that releases it. By then all readers
//!    that were granted it before have released it, so they had noticed their grant, and `turn` was
//!    up to date. So `turn` is at most one grant behind the word, and a waiting reader sees at most
//!    one grant since it began to wait.
//! 6. An unlock accesses the lock's memory for the last time when it changes the word; or, if it
//!    has a successor, when it then changes `turn` or `handed`, before which the successor cannot
//!    return from `read` or `write`. The wake-up that follows uses the address alone.
//! 7. A reader sleeps only while `turn` is what it was before the reader looked at the word in
//!    vain.
//!
//! What it costs: uncontended, each operation is one compare-exchange on the word. As waiters are
//! only counted, a grant to readers wakes all that sleep, and within a batch there is no order.
//!
//! # A process that ends
//! If a process ends while one of its threads holds the lock, waits for it, or is about to wake
//! another, the lock stays as it is, and others may wait for ever. The same is true of glibc's
//! locks, of which only mutexes can be robust.

mod word;

use core::sync::atomic::Ordering;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::platform::{AtomicCell, AtomicInt, Os, Platform};
use crate::policy::SPIN_ON_OWNER_NS;
use crate::spin_budget::SpinBudget;
use crate::unguarded::{Refused, UnguardedRwLock};
use word::{Batch, Successor, Word};

/// A fair reader-writer lock that processes share: put it into memory that each of them maps, at
/// whatever address. All-zero memory is a free lock.
///
/// # Guarantees
/// * Readers and writers take turns. A reader that begins to wait while a writer holds the lock
///   acquires it when that writer releases it. A reader that begins to wait while readers hold the
///   lock and writers wait, waits for those readers and for one writer's turn; or until every
///   writer of the batch whose turn is next has given up.
/// * A writer waits for the readers that hold the lock, and for the writers before it. It also
///   waits for readers that have begun to wait before a writer ahead of it releases the lock, or
///   before the whole batch ahead of it gives up. No other reader acquires the lock before it,
///   except those that ask for [`past_waiters`](UnguardedRwLock#recursion).
/// * Writers are served in batches: a writer waits for those that waited before it, and for those
///   that began to wait before its own batch's turn came. So no other thread writes more than twice
///   before it. If 2,047 writers wait in a batch, further ones wait outside of it, in no order.
/// * A timed acquisition that fails leaves no trace. It may end late by the rest of its spin
///   ([`SPIN_ON_OWNER_NS`]) and by the time that the scheduler takes to run it.
/// * At most 262,143 readers, over all processes, hold it or wait for it; further ones are refused
///   as [`Full`](Refused::Full).
/// * A thread may free the lock's memory as soon as it has acquired the lock as its last user, or
///   knows that nobody holds it: an unlock that is still running no longer touches the memory. A
///   mapping has to stay while others, in whatever process, wait.
/// * Not robust: if a process ends while one of its threads holds the lock or waits for it, the
///   lock stays as it is, and others may wait for ever.
/// * Processes that share a lock must run the same version of this crate, built for the same
///   architecture.
///
/// # Example
/// ```
/// use fairlock::process_shared::ProcessSharedRwLock;
/// use fairlock::unguarded::{Refused, UnguardedRwLock};
///
/// let size = size_of::<ProcessSharedRwLock>();
/// // SAFETY: new memory, which is all zero.
/// let memory = unsafe {
///     let access = libc::PROT_READ | libc::PROT_WRITE;
///     let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
///     libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0)
/// };
/// assert_ne!(memory, libc::MAP_FAILED);
/// // SAFETY: zero is a free lock, pages are aligned, and the mapping stays. After a `fork` both
/// // processes have it.
/// let lock = unsafe { &*memory.cast::<ProcessSharedRwLock>() };
/// assert_eq!(lock.write(None), Ok(()));
/// assert_eq!(lock.try_read(false), Err(Refused::Busy));
/// // SAFETY: held for writing since `write` above.
/// unsafe { lock.unlock_write() };
/// ```
#[repr(C)]
pub struct ProcessSharedRwLock<P: Platform = Os> {
    word: P::AtomicU64,
    /// Waiting readers sleep here. The lowest two bits: how many grants to waiting readers have
    /// been published, modulo 4. The others: how often they were woken without a grant.
    turn: P::AtomicU32,
    /// The writers of each batch sleep on one of these: 1 while the lock is handed to one of them
    /// that has not noticed.
    handed: [P::AtomicU32; 2],
}

const _: () = assert!(size_of::<ProcessSharedRwLock>() <= 32);

/// What a grant adds to `turn`.
const TURN_GRANT: u32 = 1;
/// What a wake-up without a grant adds to `turn`.
const TURN_WAKE: u32 = 4;
/// `turn` counts grants modulo this.
const TURN_GRANTS: u32 = TURN_WAKE;

/// The reader that began to wait at `queued` has been granted the lock, and the thread that granted
/// it no longer touches the lock's memory (invariants 5 and 6).
fn is_published(turn: u32, queued: Word) -> bool {
    turn % TURN_GRANTS == (queued.grants() + TURN_GRANT) % TURN_GRANTS
}

fn has_passed<P: Platform>(deadline: Option<u64>) -> bool {
    deadline.is_some_and(|deadline| P::now() >= deadline)
}

impl<P: Platform> ProcessSharedRwLock<P> {
    /// A free lock: all zero.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub const NEW: Self = ProcessSharedRwLock {
        word: P::AtomicU64::ZERO,
        turn: P::AtomicU32::ZERO,
        handed: [P::AtomicU32::ZERO; 2],
    };

    /// How many readers hold the lock, or have been granted it.
    pub fn readers(&self) -> u32 {
        self.now().readers() as u32
    }

    #[inline]
    fn now(&self) -> Word {
        Word(self.word.load(Relaxed))
    }

    /// May fail spuriously.
    #[inline]
    fn replace(&self, old: Word, new: Word, order: Ordering) -> Result<(), Word> {
        debug_assert!(new.is_consistent(), "{old:?} becomes {new:?}");
        let replaced = self.word.compare_exchange_weak(old.0, new.0, order, Relaxed);
        replaced.map(|_| ()).map_err(Word)
    }

    // ---- reading ----

    #[cold]
    fn read_slow(&self, deadline: Option<u64>, past_waiters: bool) -> Result<(), Refused> {
        let mut word = self.now();
        loop {
            if word.is_full() {
                return Err(Refused::Full);
            }
            let enters = word.admits_reader(past_waiters);
            let next = if enters { word.with_reader() } else { word.with_waiting_reader() };
            // Acquire pairs with the Release of every unlock.
            match self.replace(word, next, Acquire) {
                Ok(()) if enters => return Ok(()),
                Ok(()) => return self.wait_to_read(next, deadline, past_waiters),
                Err(found) => word = found,
            }
        }
    }

    fn wait_to_read(
        &self,
        queued: Word,
        mut deadline: Option<u64>,
        past_waiters: bool,
    ) -> Result<(), Refused> {
        let mut spin = SpinBudget::new::<P>(SPIN_ON_OWNER_NS, deadline);
        let mut spins = true;
        loop {
            // Acquire pairs with the Releases in `wake` and `wake_readers`, and keeps invariant 7.
            let turn = self.turn.load(Acquire);
            if is_published(turn, queued) {
                return Ok(());
            }
            let word = self.now();
            if word.has_granted(queued) {
                // The thread that granted it is about to publish that; until then this one must not
                // return (invariant 6).
                deadline = None;
            } else if word.admits_waiting(queued, past_waiters) {
                let next = word.without_waiting_reader().with_reader();
                // Acquire pairs with the Release of every unlock.
                match self.replace(word, next, Acquire) {
                    Ok(()) => return Ok(()),
                    Err(_) => continue,
                }
            }
            spins = spins && spin.relax::<P>();
            if spins {
                continue;
            }
            if has_passed::<P>(deadline) {
                match self.replace(word, word.without_waiting_reader(), Relaxed) {
                    Ok(()) => return Err(Refused::TimedOut),
                    Err(_) => continue,
                }
            }
            P::park_shared(&self.turn, turn, deadline);
        }
    }

    // ---- writing ----

    #[cold]
    fn write_slow(&self, deadline: Option<u64>) -> Result<(), Refused> {
        let mut word = self.now();
        let mut attempts = 0;
        loop {
            if word.is_free() {
                // Acquire pairs with the Release of every unlock.
                match self.replace(word, word.with_writer(), Acquire) {
                    Ok(()) => return Ok(()),
                    Err(found) => word = found,
                }
            } else if let Some((next, batch)) = word.with_waiting_writer() {
                // Relaxed: `handed` will order what it reads.
                match self.replace(word, next, Relaxed) {
                    // Other writers are before it, so it would spin in vain.
                    Ok(()) if word.writers_wait() => return self.wait_to_write(batch, 0, deadline),
                    Ok(()) => return self.wait_to_write(batch, SPIN_ON_OWNER_NS, deadline),
                    Err(found) => word = found,
                }
            } else if has_passed::<P>(deadline) {
                return Err(Refused::TimedOut);
            } else {
                P::give_way(attempts);
                attempts += 1;
                word = self.now();
            }
        }
    }

    fn wait_to_write(
        &self,
        batch: Batch,
        spin: u64,
        mut deadline: Option<u64>,
    ) -> Result<(), Refused> {
        let handed = &self.handed[batch.0];
        let mut spin = SpinBudget::new::<P>(spin, deadline);
        let mut spins = true;
        loop {
            // Acquire pairs with the Release in `wake`.
            if handed.load(Relaxed) == 1 && handed.compare_exchange(1, 0, Acquire, Relaxed).is_ok()
            {
                return Ok(());
            }
            spins = spins && spin.relax::<P>();
            if spins {
                continue;
            }
            if has_passed::<P>(deadline) {
                if self.give_up_writing(batch) {
                    return Err(Refused::TimedOut);
                }
                // The lock has been handed to this thread, as no other is left (invariant 4).
                deadline = None;
                continue;
            }
            P::park_shared(handed, 0, deadline);
        }
    }

    /// False if the lock has been handed to this thread.
    fn give_up_writing(&self, batch: Batch) -> bool {
        let mut word = self.now();
        while let Some((next, wakes)) = word.without_waiting_writer(batch) {
            match self.replace(word, next, Relaxed) {
                Ok(()) => {
                    if wakes {
                        self.wake_readers();
                    }
                    return true;
                }
                Err(found) => word = found,
            }
        }
        false
    }

    /// Wakes the waiting readers, which may now acquire the lock themselves. The lock's memory is
    /// still in use, as the caller has not returned from `write`.
    fn wake_readers(&self) {
        // Release pairs with the Acquire in `wait_to_read`: a reader that sees this sees the word,
        // too.
        self.turn.fetch_add(TURN_WAKE, Release);
        P::unpark_all_shared(&self.turn);
    }

    // ---- releasing ----

    #[inline]
    fn release_read(&self) {
        let mut word = self.now();
        loop {
            let (next, successor) = word.after_read();
            // Release pairs with the Acquire of a writer that acquires the lock later. A writer
            // that is handed the lock comes after this thread by the Release in `wake`, and after
            // the readers before this one only if this thread does: so Acquire, which pairs with
            // their Releases.
            let order = if successor == Successor::Nobody { Release } else { Acquire };
            match self.replace(word, next, order) {
                Ok(()) if successor == Successor::Nobody => return,
                Ok(()) => return self.wake(word, successor),
                Err(found) => word = found,
            }
        }
    }

    #[inline]
    fn release_write(&self) {
        let mut word = self.now();
        loop {
            let (next, successor) = word.after_write();
            // Release pairs with the Acquire of the next holder.
            match self.replace(word, next, Release) {
                Ok(()) if successor == Successor::Nobody => return,
                Ok(()) => return self.wake(word, successor),
                Err(found) => word = found,
            }
        }
    }

    /// Publishes that the lock was granted to `successor` when the word was `word`, and wakes it.
    /// Before this the successor could not return, which keeps invariant 6.
    #[cold]
    fn wake(&self, word: Word, successor: Successor) {
        match successor {
            Successor::Nobody => {}
            Successor::Readers => {
                let turn = core::ptr::from_ref(&self.turn);
                // Release pairs with the Acquire in `wait_to_read`. The count must not carry into
                // the bits above.
                match word.grants() + TURN_GRANT {
                    TURN_GRANTS => self.turn.fetch_sub(TURN_GRANTS - TURN_GRANT, Release),
                    _ => self.turn.fetch_add(TURN_GRANT, Release),
                };
                P::unpark_all_shared(turn);
            }
            Successor::Writer(batch) => {
                let handed = core::ptr::from_ref(&self.handed[batch.0]);
                // Release pairs with the Acquire in `wait_to_write`. It is 0 now: the last writer
                // of this batch that got the lock set it back first.
                self.handed[batch.0].store(1, Release);
                P::unpark_shared(handed);
            }
        }
    }
}

// SAFETY: a writer holds the lock alone (invariant 1); acquisitions are Acquire, releases Release.
unsafe impl<P: Platform> UnguardedRwLock for ProcessSharedRwLock<P> {
    const FREE: Self = Self::NEW;

    #[inline]
    fn read(&self, deadline: Option<u64>, past_waiters: bool) -> Result<(), Refused> {
        match self.try_read(past_waiters) {
            Err(Refused::Busy) => self.read_slow(deadline, past_waiters),
            done => done,
        }
    }

    #[inline]
    fn try_read(&self, past_waiters: bool) -> Result<(), Refused> {
        let mut word = self.now();
        while word.admits_reader(past_waiters) {
            if word.is_full() {
                return Err(Refused::Full);
            }
            // Acquire pairs with the Release of every unlock.
            match self.replace(word, word.with_reader(), Acquire) {
                Ok(()) => return Ok(()),
                Err(found) => word = found,
            }
        }
        Err(Refused::Busy)
    }

    #[inline]
    fn write(&self, deadline: Option<u64>) -> Result<(), Refused> {
        self.try_write().or_else(|_| self.write_slow(deadline))
    }

    #[inline]
    fn try_write(&self) -> Result<(), Refused> {
        let mut word = self.now();
        while word.is_free() {
            // Acquire pairs with the Release of every unlock.
            match self.replace(word, word.with_writer(), Acquire) {
                Ok(()) => return Ok(()),
                Err(found) => word = found,
            }
        }
        Err(Refused::Busy)
    }

    #[inline]
    unsafe fn unlock_read(&self) {
        self.release_read();
    }

    #[inline]
    unsafe fn unlock_write(&self) {
        self.release_write();
    }

    fn has_writer(&self) -> bool {
        self.now().has_writer()
    }

    fn is_locked(&self) -> bool {
        let word = self.now();
        word.has_writer() || word.readers() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: u64 = 1_000;

    fn soon() -> Option<u64> {
        Some(Os::now() + SOON)
    }

    fn unlock_read(lock: &ProcessSharedRwLock) {
        // SAFETY: held for reading, as every test below unlocks what it holds.
        unsafe { lock.unlock_read() }
    }

    fn unlock_write(lock: &ProcessSharedRwLock) {
        // SAFETY: held for writing, as every test below unlocks what it holds.
        unsafe { lock.unlock_write() }
    }

    #[test]
    fn readers_share_and_writers_exclude() {
        let lock: ProcessSharedRwLock = ProcessSharedRwLock::NEW;
        assert_eq!((lock.read(None, false), lock.try_read(false)), (Ok(()), Ok(())));
        assert_eq!((lock.readers(), lock.is_locked(), lock.has_writer()), (2, true, false));
        assert_eq!(
            (lock.try_write(), lock.write(soon())),
            (Err(Refused::Busy), Err(Refused::TimedOut))
        );
        unlock_read(&lock);
        unlock_read(&lock);
        assert_eq!(lock.write(None), Ok(()));
        assert_eq!((lock.readers(), lock.is_locked(), lock.has_writer()), (0, true, true));
        for past_waiters in [false, true] {
            assert_eq!(lock.try_read(past_waiters), Err(Refused::Busy));
            assert_eq!(lock.read(soon(), past_waiters), Err(Refused::TimedOut));
        }
        assert_eq!(
            (lock.try_write(), lock.write(soon())),
            (Err(Refused::Busy), Err(Refused::TimedOut))
        );
        unlock_write(&lock);
        assert!(!lock.is_locked());
        assert_eq!((lock.word.load(Relaxed), lock.turn.load(Relaxed)), (0, 0));
    }

    #[test]
    fn a_reader_past_waiters_acquires_the_lock_while_a_writer_waits() {
        let lock: ProcessSharedRwLock = ProcessSharedRwLock::NEW;
        assert_eq!(lock.read(None, false), Ok(()));
        let (waits, batch) = lock.now().with_waiting_writer().expect("it is the first");
        lock.word.store(waits.0, Relaxed);
        assert_eq!(lock.try_read(false), Err(Refused::Busy));
        assert_eq!(lock.read(soon(), false), Err(Refused::TimedOut));
        assert_eq!((lock.try_read(true), lock.read(None, true)), (Ok(()), Ok(())));
        for _ in 0..3 {
            unlock_read(&lock);
        }
        assert_eq!(lock.wait_to_write(batch, 0, None), Ok(()));
        unlock_write(&lock);
        assert_eq!(lock.word.load(Relaxed), 0);
    }

    #[test]
    fn more_readers_than_can_be_counted_are_refused() {
        let lock: ProcessSharedRwLock = ProcessSharedRwLock::NEW;
        lock.word.store(word::MOST_READERS - 1, Relaxed);
        assert_eq!(lock.read(None, false), Ok(()));
        for past_waiters in [false, true] {
            assert_eq!(lock.read(None, past_waiters), Err(Refused::Full));
            assert_eq!(lock.try_read(past_waiters), Err(Refused::Full));
        }
        unlock_read(&lock);
        assert_eq!(lock.try_read(false), Ok(()));
    }

    #[test]
    fn a_writer_for_whom_its_batch_has_no_room_waits_outside() {
        let lock: ProcessSharedRwLock = ProcessSharedRwLock::NEW;
        assert_eq!(lock.write(None), Ok(()));
        while let Some((next, _)) = lock.now().with_waiting_writer() {
            lock.word.store(next.0, Relaxed);
        }
        let full = lock.now();
        assert_eq!(lock.write(soon()), Err(Refused::TimedOut));
        assert_eq!(lock.now(), full);
    }
}
