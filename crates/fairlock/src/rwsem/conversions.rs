//! How a holder changes what it holds: fair unlock, downgrade, upgrade.
//!
//! Each is one atomic operation while no thread waits, or none has to be served for it. An upgrader waits at
//! the front of the queue, holding the lock upgradable all the while: only readers that were in before leave before it,
//! and no reader enters.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::admission::{admit, shut_to_all};
use super::lock::RawRwSem;
use super::own_queue::OwnQueue;
use super::queue_pool::HasQueuePool;
use super::reader_bias::ReaderBias;
use super::wait_queue::{Kind, WakeList};
use super::word::*;
use crate::events::{CountEvents, Event};
use crate::policy::Policy;

impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> RawRwSem<Pol, P, B> {
    // ---- fair unlock ----

    /// # Safety
    /// The caller holds the lock shared, and not upgradable.
    #[inline]
    pub(crate) unsafe fn unlock_read_fair(&self) {
        // SAFETY: held shared, as the caller promises.
        unsafe { self.unlock_fair(READER) };
    }

    /// # Safety
    /// The caller holds the lock exclusively.
    #[inline]
    pub(crate) unsafe fn unlock_write_fair(&self) {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { self.unlock_fair(WRITER) };
    }

    /// # Safety
    /// The caller holds the lock upgradable.
    #[inline]
    pub(crate) unsafe fn unlock_upgradable_fair(&self) {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { self.unlock_fair(READER | UPGRADABLE) };
    }

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

    // ---- downgrade ----

    /// # Safety
    /// The caller holds the lock exclusively; afterwards it holds it shared.
    pub(crate) unsafe fn downgrade_to_read(&self) {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { self.downgrade(0) };
    }

    /// # Safety
    /// The caller holds the lock exclusively; afterwards it holds it upgradable.
    pub(crate) unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { self.downgrade(UPGRADABLE) };
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

    /// # Safety
    /// The caller holds the lock upgradable.
    #[inline]
    pub(crate) unsafe fn unlock_upgradable(&self) {
        let word = self.word.fetch_sub(READER | UPGRADABLE, Release) - (READER | UPGRADABLE);
        if has_waiters(word) {
            if is_free(word) {
                self.released(word);
            } else {
                // The next upgradable reader may be able to join those that read.
                self.serve_after_release(word);
            }
        }
    }

    /// # Safety
    /// The caller holds the lock upgradable; afterwards it holds it shared.
    pub(crate) unsafe fn downgrade_upgradable(&self) {
        let word = self.word.fetch_and(!UPGRADABLE, Release);
        if has_waiters(word) {
            self.serve_after_release(word);
        }
    }

    /// Those that may read next to the thread that has just downgraded: all waiting readers, as after any phase of writers.
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

    // ---- upgrade ----

    /// # Safety
    /// The caller holds the lock upgradable; if this returns true it holds it exclusively.
    pub(crate) unsafe fn try_upgrade(&self) -> bool {
        // Acquire pairs with the Release of the readers that left.
        let upgraded = self.word.update(Acquire, |word| admit(word, Kind::Upgrade));
        if upgraded.is_ok() {
            self.note_owner(Kind::Upgrade);
        }
        upgraded.is_ok()
    }

    /// # Safety
    /// The caller holds the lock upgradable. If this returns true it holds it exclusively, else
    /// still upgradable.
    pub(crate) unsafe fn upgrade(&self, deadline: Option<u64>) -> bool {
        // SAFETY: held upgradable, as the caller promises.
        if unsafe { self.try_upgrade() } {
            return true;
        }
        self.events.count(Event::Upgrade);
        self.acquire_slow(Kind::Upgrade, deadline)
    }
}
