//! The lock as its users see it: acquisitions and releases that are one operation on the word, and where they
//! go when that is not enough.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::core::{Family, RawRwSem};
use super::queue_storage::QueueStorage;
use super::wait_queue::Kind;
use super::word::*;
use crate::platform::Platform;
use crate::policy::Policy;

impl<Pol: Policy, P: Platform, L: QueueStorage<P>> RawRwSem<Pol, P, L> {
    // ---- shared ----

    #[inline]
    pub(crate) fn read(&self, deadline: Option<u64>) -> bool {
        self.try_read_once() || self.acquire_slow(Kind::Read, deadline)
    }

    /// A slow path that has nothing to report lets the fast path do without a stack frame.
    #[inline]
    pub(super) fn read_without_deadline(&self) {
        if !self.try_read_once() {
            self.acquire_slow_without_deadline(Kind::Read);
        }
    }

    #[inline]
    pub(crate) fn try_read_once(&self) -> bool {
        let word = self.word.load(Relaxed);
        // Acquire pairs with the Release of `unlock_write`.
        word < READER_LIMIT - 1
            && self.word.compare_exchange_weak(word, word + READER, Acquire, Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn try_read(&self) -> bool {
        self.try_read_once() || self.try_enter(Kind::Read)
    }

    /// # Safety
    /// The caller holds the lock shared, and not upgradable.
    #[inline]
    pub(crate) unsafe fn unlock_read(&self) {
        // Release pairs with the Acquire of the next writer.
        let word = self.word.fetch_sub(READER, Release);
        if word >= READER_LIMIT {
            self.released(word - READER);
        }
    }

    // ---- exclusive ----

    pub(crate) const COUNTS_WRITER_FIRST: bool = LockWord::<Pol, P>::COUNTS_WRITER_FIRST;

    /// Takes the lock if it is free and nobody waits.
    #[inline]
    pub(crate) fn write_at_once(&self) -> bool {
        let taken = self.try_write_once();
        if taken {
            self.storage.owner().note();
        }
        taken
    }

    /// After [`write_at_once`](Self::write_at_once) has failed. False if the deadline passed.
    pub(crate) fn write_slow(&self, deadline: Option<u64>) -> bool {
        self.acquire_slow(Kind::Write, deadline)
    }

    #[inline]
    pub(super) fn write(&self, deadline: Option<u64>) -> bool {
        self.write_at_once() || self.write_slow(deadline)
    }

    #[inline]
    pub(super) fn write_without_deadline(&self) {
        if !self.write_at_once() {
            self.acquire_slow_without_deadline(Kind::Write);
        }
    }

    #[inline]
    pub(super) fn try_write_once(&self) -> bool {
        if const { Self::COUNTS_WRITER_FIRST } {
            // `acquire_slow` takes this back.
            return self.word.fetch_add(WRITER, Acquire) == 0;
        }
        // Acquire pairs with the Release of every unlock.
        self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn try_write(&self) -> bool {
        self.try_enter(Kind::Write)
    }

    /// # Safety
    /// The caller holds the lock exclusively.
    #[inline]
    pub(crate) unsafe fn unlock_write(&self) {
        // Release pairs with the Acquire of the next holder.
        let word = self.word.fetch_sub(WRITER, Release);
        if word != WRITER {
            self.released(word - WRITER);
        }
    }

    // ---- upgradable ----

    pub(crate) fn try_upgradable(&self) -> bool {
        self.try_enter(Kind::Upgradable)
    }

    pub(crate) fn upgradable(&self, deadline: Option<u64>) -> bool {
        self.try_upgradable() || self.acquire_slow(Kind::Upgradable, deadline)
    }

    // ---- when one operation is not enough ----

    #[cold]
    pub(super) fn acquire_slow(&self, kind: Kind, deadline: Option<u64>) -> bool {
        Pol::acquire(self, kind, deadline)
    }

    #[cold]
    fn acquire_slow_without_deadline(&self, kind: Kind) {
        let acquired = self.acquire_slow(kind, None);
        assert!(acquired, "without a deadline a wait ends with the lock");
    }

    /// After a release that left `word` behind, with some flag set.
    #[cold]
    pub(super) fn released(&self, word: u64) {
        let upgrader_alone = word & UPGRADING != 0 && readers(word) == 1;
        if !has_waiters(word) || !(is_free(word) || upgrader_alone) {
            return;
        }
        Pol::released(self, word);
    }

    // ---- queries ----

    pub(crate) fn is_locked(&self) -> bool {
        !is_free(self.word.load(Relaxed))
    }

    /// A writer holds the lock, as far as one load of the word tells. Acquire: an answer of no pairs
    /// with the Release of the last writer's unlock.
    #[inline]
    pub(crate) fn has_writer(&self) -> bool {
        has_writer(self.word.load(Acquire))
    }

    /// For readers that have another way to enter. Acquire as in [`has_writer`](Self::has_writer).
    #[inline(always)]
    pub(crate) fn is_open_to_readers(&self) -> bool {
        is_open_to_readers(self.word.load(Acquire))
    }

    /// Somebody waits for this lock.
    pub(crate) fn has_waiters(&self) -> bool {
        has_waiters(self.word.load(Relaxed))
    }

    pub(crate) fn is_locked_exclusive(&self) -> bool {
        has_writer(self.word.load(Relaxed))
    }
}
