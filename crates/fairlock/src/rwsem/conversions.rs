//! A fair unlock and a downgrade: one atomic operation while no thread waits, or none has to be served for it.

use core::sync::atomic::Ordering::{Relaxed, Release};

use super::admission::shut_to_all;
use super::lock::RawRwSem;
use super::own_queue::OwnQueue;
use super::queue_pool::HasQueuePool;
use super::reader_bias::ReaderBias;
use super::wait_queue::WakeList;
use super::word::*;
use crate::policy::Policy;

impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> RawRwSem<Pol, P, B> {
    /// # Safety
    /// The caller holds the lock in the mode of `held`: `READER`, `WRITER` or
    /// `READER | UPGRADABLE`.
    #[inline]
    pub(super) unsafe fn unlock_fair(&self, held: u64) {
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
    pub(super) unsafe fn downgrade(&self, keep: u64) {
        // Release pairs with the Acquire of readers that enter now.
        // One step from WRITER to what is kept; `keep` is the larger, so the difference wraps.
        let word = self.word.fetch_add((READER | keep).wrapping_sub(WRITER), Release);
        if has_waiters(word) {
            self.admit_beside_reader(word);
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
}
