//! The lock as guards and all others use it: see [`crate::raw`].

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::admission::admit;
use super::lock::RawRwSem;
use super::queue_pool::HasQueuePool;
use super::reader_bias::ReaderBias;
use super::wait_queue::Kind;
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

// SAFETY: invariant 1 of `lock.rs`; acquisitions are Acquire, releases Release. A waiter that gives up is off the queue.
// The lock does not know which thread holds it, so any thread may release it.
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

    /// As far as one load of the word tells. Acquire: an answer of no pairs with the Release of the last writer's unlock.
    #[inline]
    fn has_writer(&self) -> bool {
        has_writer(self.word.load(Acquire))
    }
}

// SAFETY: as for `RawLock`; `UPGRADABLE` admits one such holder, which becomes the writer once it is the only holder left.
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

// SAFETY: a read past waiters needs only that no thread writes, and none does while the thread reads.
unsafe impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> ReadRecursive for RawRwSem<Pol, P, B> {
    fn read_recursive(&self, wait: Wait) -> Option<()> {
        match self.read_unguarded(wait, true) {
            Ok(()) => Some(()),
            Err(Refused::Busy | Refused::TimedOut) => None,
            Err(Refused::Full) => too_many_readers(),
        }
    }
}
