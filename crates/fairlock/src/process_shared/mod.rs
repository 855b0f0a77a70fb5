//! A reader-writer lock for memory that several processes map: 24 bytes, without a pointer, all zero
//! when free.
//!
//! What the other locks do with nodes on their waiters' stacks has to be done by counting, as nobody
//! can follow a pointer into another process. One 64-bit word (`word.rs`) counts the readers that are
//! in and those that wait, and the writers that wait in two batches, and says whether a writer is in.
//! Uncontended, each operation is one compare-exchange on it.
//! 1. A writer that leaves lets in all readers that wait, or else hands the lock to a writer. The last
//!    reader that leaves hands it to a writer. So readers and writers take turns.
//! 2. Writers that wait form batches: the front, whose turn is first, and the back, which newcomers
//!    join and which moves up when the front is empty. Within a batch it is whoever takes what was
//!    handed over first, mostly the one that has slept longest.
//! 3. Who waits spins for at most 25 µs and then sleeps: readers on `turn`, writers on the `handed`
//!    of their batch. These change after the word: the word decides, they tell.
//! 4. A reader that gives up is counted out, unless it has been let in. So is a writer, unless it is
//!    the last of its batch that can take what has been handed to the batch.
//! 5. If all of the front give up, the readers that wait need no longer wait for it: they are *called*,
//!    which means that they may let themselves in past the writers that move up. Newcomers may not.
//!    (To count them in at once, as in 1, is not possible: some readers might not yet have noticed the
//!    last time that this was done, and two bits could not tell the one from the other.)
//!
//! Invariants
//! 1. While a writer is in, no reader is. Only the writer that is in leaves.
//! 2. While a writer waits, somebody is in: the lock is not free in between. So nobody who waits has
//!    to compete with newcomers.
//! 3. While no writer is in, the back is empty if the front is. The back moves up only when nobody
//!    of the front is left in `write`, not even one that was handed the lock and has not noticed.
//! 4. The writers of a batch that are still in `write` are as many as the word counts, and one more
//!    from the moment that the word hands the lock to the batch until one of them sets `handed` back
//!    to 0. So one of the front that the word no longer counts must wait for `handed`.
//! 5. Waiting readers are let in only by a writer that leaves. All readers that were let in before have
//!    left by then, so they know of it, and `turn` was up to date. So `turn` is at most one grant
//!    behind the word, and what a reader sees is at most one grant ahead of when it began to wait.
//! 6. In an unlock the change of the word is the last access to the lock's memory; or else the change
//!    of `turn` or `handed` is, on behalf of a thread that cannot return from `read` or `write`
//!    before. The wake-up that follows uses the address alone.
//! 7. A reader sleeps only while `turn` is what it was before it looked at the word in vain.
//!
//! # A process that ends
//! while it holds the lock, waits, or is about to tell another, leaves the lock as it is, and others
//! may wait for ever: as with glibc's locks, of which only mutexes can be robust.

mod word;

use core::sync::atomic::Ordering;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::platform::{AtomicCell, AtomicInt, Os, Platform};
use crate::spin_budget::SpinBudget;
use crate::unguarded::{Refused, UnguardedRwLock};
use word::{Batch, Heir, Word};

/// A fair reader-writer lock that processes share: put it into memory that each of them maps, at
/// whatever address. All-zero memory is a free lock.
///
/// # Guarantees
/// * Readers and writers take turns. A reader that comes while a writer is in is let in when that
///   writer leaves. One that comes while writers wait for readers to leave waits for those readers and
///   for one writer's turn; or until all writers have given up that wait in the first batch.
/// * A writer waits for the readers that are in, and for the writers before it. After the turn of each of
///   those, and after a batch before it has given up as a whole, it also waits for the readers that
///   came until then. No other reader enters before it but those that ask for it
///   ([`past_waiters`](UnguardedRwLock#recursion)).
/// * Writers are served in batches: a writer waits for those that waited before it, and for those that
///   began to wait before its own batch's turn came. So no other thread writes more than twice before it.
///   If more than 2,047 writers wait in a batch, the next ones wait outside, in no order.
/// * A timed acquisition that fails leaves no trace. It may end late by what the scheduler takes and
///   a spin of 25 µs.
/// * At most 262,143 readers hold it or wait, over all processes; the next one is refused as
///   [`Full`](Refused::Full).
/// * The last user may free its memory as soon as it has the lock, or knows that nobody has it: those
///   that are still in an unlock do not touch it any more. A mapping has to stay while others, in
///   whatever process, wait.
/// * Not robust: if a process ends while one of its threads holds the lock or waits for it, it stays held.
/// * Processes that share a lock run the same version of this crate, built for the same architecture.
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
/// // SAFETY: locked above.
/// unsafe { lock.unlock_write() };
/// ```
#[repr(C)]
pub struct ProcessSharedRwLock<P: Platform = Os> {
    word: P::AtomicU64,
    /// Waiting readers sleep here. Two bits: how often waiting readers were told that they have been let
    /// in, modulo 4. The rest: how often they were called.
    turn: P::AtomicU32,
    /// The writers of each batch sleep here: 1 if the lock has been handed to one of them.
    handed: [P::AtomicU32; 2],
}

const _: () = assert!(size_of::<ProcessSharedRwLock>() <= 32);

/// What a grant and a call add to `turn`.
const TOLD: u32 = 1;
const CALLED: u32 = 4;
const TOLD_MODULO: u32 = CALLED;

/// Longest spin, ns: as long as `Mutex`'s, and for the same reason: it is about what a sleep costs.
const SPIN: u64 = 25_000;

/// The reader that began to wait at `queued` has been let in, and whoever let it in is done with the
/// lock (invariant 5).
fn was_told(turn: u32, queued: Word) -> bool {
    turn % TOLD_MODULO == (queued.grants() + TOLD) % TOLD_MODULO
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

    /// How many readers are in, or about to be.
    pub fn readers(&self) -> u32 {
        self.now().readers() as u32
    }

    #[inline]
    fn now(&self) -> Word {
        Word(self.word.load(Relaxed))
    }

    /// May fail for no reason.
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
        let mut spin = SpinBudget::new::<P>(SPIN, deadline);
        let mut spins = true;
        loop {
            // Acquire pairs with the Releases in `tell` and `call_readers`, and keeps invariant 7.
            let turn = self.turn.load(Acquire);
            if was_told(turn, queued) {
                return Ok(());
            }
            let word = self.now();
            if word.has_granted(queued) {
                // It will be told, and has no choice (invariant 6).
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
                // What it reads is ordered by `handed` later.
                match self.replace(word, next, Relaxed) {
                    // Others are before it, so it would spin in vain.
                    Ok(()) if word.writers_wait() => return self.wait_to_write(batch, 0, deadline),
                    Ok(()) => return self.wait_to_write(batch, SPIN, deadline),
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
            // Acquire pairs with the Release in `tell`.
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
                // Handed to this thread, as no other is left (invariant 4).
                deadline = None;
                continue;
            }
            P::park_shared(handed, 0, deadline);
        }
    }

    /// False if the lock has been handed to this thread.
    fn give_up_writing(&self, batch: Batch) -> bool {
        let mut word = self.now();
        while let Some((next, calls)) = word.without_waiting_writer(batch) {
            match self.replace(word, next, Relaxed) {
                Ok(()) => {
                    if calls {
                        self.call_readers();
                    }
                    return true;
                }
                Err(found) => word = found,
            }
        }
        false
    }

    /// Wakes the readers that may let themselves in now. The lock is in use as long as the caller has
    /// not returned from `write`.
    fn call_readers(&self) {
        // Release pairs with the Acquire in `wait_to_read`: who sees it sees the word, too.
        self.turn.fetch_add(CALLED, Release);
        P::unpark_all_shared(&self.turn);
    }

    // ---- leaving ----

    #[inline]
    fn leave_as_reader(&self) {
        let mut word = self.now();
        loop {
            let (next, heir) = word.after_read();
            // Release pairs with the Acquire of a writer that enters later. One that is handed the lock
            // learns of it in `tell`, and of the readers before this one only if this one has: Acquire
            // pairs with their Releases.
            let order = if heir == Heir::Nobody { Release } else { Acquire };
            match self.replace(word, next, order) {
                Ok(()) if heir == Heir::Nobody => return,
                Ok(()) => return self.tell(word, heir),
                Err(found) => word = found,
            }
        }
    }

    #[inline]
    fn leave_as_writer(&self) {
        let mut word = self.now();
        loop {
            let (next, heir) = word.after_write();
            // Release pairs with the Acquire of whoever enters next.
            match self.replace(word, next, Release) {
                Ok(()) if heir == Heir::Nobody => return,
                Ok(()) => return self.tell(word, heir),
                Err(found) => word = found,
            }
        }
    }

    /// Those that have been made the `heir` at `word` may go. They could not before, which keeps
    /// invariant 6.
    #[cold]
    fn tell(&self, word: Word, heir: Heir) {
        match heir {
            Heir::Nobody => {}
            Heir::Readers => {
                let turn = core::ptr::from_ref(&self.turn);
                // Release pairs with the Acquire in `wait_to_read`. Does not carry into the calls.
                match word.grants() + TOLD {
                    TOLD_MODULO => self.turn.fetch_sub(TOLD_MODULO - TOLD, Release),
                    _ => self.turn.fetch_add(TOLD, Release),
                };
                P::unpark_all_shared(turn);
            }
            Heir::Writer(batch) => {
                let handed = core::ptr::from_ref(&self.handed[batch.0]);
                // Release pairs with the Acquire in `wait_to_write`. It is 0: it was set back before
                // the last writer of this batch had the lock.
                self.handed[batch.0].store(1, Release);
                P::unpark_shared(handed);
            }
        }
    }
}

// SAFETY: the module's invariants: a writer is alone; acquisitions are Acquire, releases Release.
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
        self.leave_as_reader();
    }

    #[inline]
    unsafe fn unlock_write(&self) {
        self.leave_as_writer();
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
        // SAFETY: every test below unlocks what it holds.
        unsafe { lock.unlock_read() }
    }

    fn unlock_write(lock: &ProcessSharedRwLock) {
        // SAFETY: as above.
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
    fn a_reader_past_waiters_enters_while_a_writer_waits() {
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
