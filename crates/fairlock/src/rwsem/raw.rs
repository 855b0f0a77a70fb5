//! The lock as guards and all others use it: see [`crate::raw`].

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::admission::{admit, shut_to_all};
use super::lock::RawRwSem;
use super::own_queue::OwnQueue;
use super::queue_pool::HasQueuePool;
use super::reader_bias::ReaderBias;
use super::wait_queue::{Kind, WakeList};
use super::word::*;
use crate::events::{CountEvents, Event};
use crate::held::{Identity, Wanted};
use crate::policy::Policy;
#[cfg(feature = "send_guard")]
use crate::raw::GuardMayChangeThreads;
#[cfg(not(feature = "send_guard"))]
use crate::raw::GuardStaysOnItsThread;
use crate::raw::{RawLock, RawReadWriteLock, RawUnguarded, ReadRecursive, Refused, Wait};
use crate::recorded::CountedLock;

// SAFETY: invariant 1 of `lock.rs`; acquisitions are Acquire, releases Release. A waiter that gives
// up is off the queue. The lock does not know which thread holds it, so any thread may release it.
unsafe impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> RawLock for RawRwSem<Pol, P, B> {
    type Platform = P;
    #[cfg(feature = "send_guard")]
    type Residence = GuardMayChangeThreads;
    #[cfg(not(feature = "send_guard"))]
    type Residence = GuardStaysOnItsThread;
    const WANTED: Wanted = Wanted::Write;

    #[inline]
    fn write(&self, wait: Wait) -> bool {
        wait != Wait::Not && self.write_at_once() || self.acquire(Kind::Write, wait)
    }

    #[inline]
    unsafe fn unlock_write(&self, fair: bool) {
        if fair {
            // SAFETY: held exclusively, as the caller promises.
            return unsafe { self.unlock_fair(WRITER) };
        }
        // Release pairs with the Acquire of the next holder.
        let word = self.word.fetch_sub(WRITER, Release);
        if word != WRITER {
            self.released(word - WRITER);
        }
    }

    fn is_locked(&self) -> bool {
        !is_free(self.word.load(Relaxed))
    }

    fn id(&self) -> *const () {
        self.identity.of(core::ptr::from_ref(self).cast())
    }

    #[inline(always)]
    fn counted(&self) -> Option<&CountedLock> {
        self.identity.counted()
    }

    /// As far as one load of the word tells. Acquire: an answer of no pairs with the Release of the
    /// last writer's unlock.
    #[inline]
    fn has_writer(&self) -> bool {
        has_writer(self.word.load(Acquire))
    }
}

// SAFETY: as for `RawLock`; `UPGRADABLE` admits one such holder, which becomes the writer once it
// is the only holder left.
unsafe impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> RawReadWriteLock for RawRwSem<Pol, P, B> {
    type Shared = ();

    #[inline]
    fn read(&self, wait: Wait) -> Option<()> {
        (self.try_read_once() || self.acquire(Kind::Read, wait)).then_some(())
    }

    #[inline]
    unsafe fn unlock_read(&self, (): (), fair: bool) {
        if fair {
            // SAFETY: held shared, as the caller promises.
            return unsafe { self.unlock_fair(READER) };
        }
        // Release pairs with the Acquire of the next writer.
        let word = self.word.fetch_sub(READER, Release);
        if word >= READER_LIMIT {
            self.released(word - READER);
        }
    }

    unsafe fn recover_shared(&self) {}

    fn upgradable(&self, wait: Wait) -> bool {
        self.try_enter(Kind::Upgradable)
            || wait != Wait::Not && self.acquire(Kind::Upgradable, wait)
    }

    #[inline]
    unsafe fn unlock_upgradable(&self, fair: bool) {
        const HELD: u64 = READER | UPGRADABLE;
        if fair {
            // SAFETY: held upgradable, as the caller promises.
            return unsafe { self.unlock_fair(HELD) };
        }
        let word = self.word.fetch_sub(HELD, Release) - HELD;
        if has_waiters(word) {
            if is_free(word) {
                self.released(word);
            } else {
                // The next upgradable reader may be able to join those that read.
                self.serve_after_release(word);
            }
        }
    }

    unsafe fn upgrade(&self, wait: Wait) -> bool {
        // Acquire pairs with the Release of the readers that left.
        if self.word.update(Acquire, |word| admit(word, Kind::Upgrade)).is_ok() {
            self.note_owner(Kind::Upgrade);
            return true;
        }
        if wait == Wait::Not {
            return false;
        }
        self.events.count(Event::Upgrade);
        self.acquire(Kind::Upgrade, wait)
    }

    unsafe fn downgrade_upgradable(&self) {
        let word = self.word.fetch_and(!UPGRADABLE, Release);
        if has_waiters(word) {
            self.serve_after_release(word);
        }
    }

    unsafe fn downgrade_to_read(&self) {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { self.downgrade(0) };
    }

    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { self.downgrade(UPGRADABLE) };
    }

    fn is_locked_exclusive(&self) -> bool {
        has_writer(self.word.load(Relaxed))
    }
}

// SAFETY: a read past waiters needs only that no thread writes, and none does while the thread
// reads.
unsafe impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> ReadRecursive for RawRwSem<Pol, P, B> {
    fn read_recursive(&self, wait: Wait) -> Option<()> {
        match self.read_unguarded(wait, true) {
            Ok(()) => Some(()),
            Err(Refused::Busy | Refused::TimedOut) => None,
            Err(Refused::Full) => too_many_readers(),
        }
    }
}

// A fair unlock and a downgrade are one atomic operation while no thread waits, or none has to be
// served for it.
impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> RawRwSem<Pol, P, B> {
    /// # Safety
    /// The caller holds the lock in the mode of `held`: `READER`, `WRITER` or
    /// `READER | UPGRADABLE`.
    #[inline]
    unsafe fn unlock_fair(&self, held: u64) {
        // Release pairs with the Acquire of the next holder.
        if self.word.compare_exchange(held, 0, Release, Relaxed).is_err() {
            self.unlock_fair_slow(held);
        }
    }

    #[cold]
    fn unlock_fair_slow(&self, held: u64) {
        let mut word = self.word.load(Relaxed);
        loop {
            if has_waiters(word) {
                if let Some(queue) = self.own_queue(word) {
                    return self.unlock_to_waiters(held, queue);
                }
                word = self.word.load(Relaxed);
                continue;
            }
            match self.word.compare_exchange_weak(word, word - held, Release, Relaxed) {
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
    }

    fn unlock_to_waiters(&self, held: u64, queue: OwnQueue<'_, P>) {
        let mut word = self.word.load(Relaxed);
        loop {
            let mut after = word - held;
            if has_waiters(word) {
                // Shut, so that no thread enters between the release and the handing over.
                after = shut_to_all(after);
            }
            match self.word.compare_exchange_weak(word, after, Release, Relaxed) {
                Ok(_) if has_waiters(after) => break,
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
        let woken = self.serve(&queue);
        queue.unlock_and_wake(woken);
    }

    /// # Safety
    /// The caller holds the lock exclusively; afterwards it holds it shared, with the right to
    /// upgrade if `keep` is `UPGRADABLE`, without if it is 0.
    unsafe fn downgrade(&self, keep: u64) {
        // Release pairs with the Acquire of readers that enter now.
        // One step from WRITER to what is kept; `keep` is the larger, so the difference wraps.
        let word = self.word.fetch_add((READER | keep).wrapping_sub(WRITER), Release);
        if has_waiters(word) {
            self.admit_beside_reader(word);
        }
    }

    /// Those that may read next to the thread that has just downgraded: all waiting readers, as
    /// after any phase of writers.
    #[cold]
    fn admit_beside_reader(&self, word: u64) {
        let Some(queue) = self.own_queue(word) else {
            return;
        };
        let woken = match queue.may_read_be_joined() {
            true => self.begin_reading(&queue),
            false => WakeList::none(),
        };
        queue.unlock_and_wake(woken);
    }
}
