//! How a phase ends: at its deadline, or by whoever sees that its budget is over.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::events::{CountEvents, Event};
use crate::platform::{PlainCell, Platform};
use crate::policy::{Discipline, Phases, Policy};
use crate::rwsem::core::RawRwSem;
use crate::rwsem::phase_clock::PhaseClock;
use crate::rwsem::queue_storage::{Place, QueueStorage};
use crate::rwsem::wait_queue::{Kind, Node};
use crate::rwsem::word::*;

impl<Pol: Policy, P: Platform, L: QueueStorage<P>> RawRwSem<Pol, P, L> {
    /// Closes the running phase, whose budget has ended, and clears `also`. The caller has the queue's lock.
    ///
    /// # Errors
    /// The word found, if it was not `word`.
    pub(super) fn close(&self, word: u64, also: u64) -> Result<u64, u64> {
        if word & CLOSED == 0 {
            self.storage.place(word).clock().note_close(PhaseClock::<P>::now());
        }
        let closed = (word | CLOSED) & !also;
        let closed = self.word.compare_exchange_weak(word, closed, Acquire, Relaxed)?;
        self.events.count(Event::PhaseClosed);
        Ok(closed)
    }

    /// The deadline has come: ends the phase if its budget has ended. True if this waiter still is the
    /// deadline waiter.
    pub(super) fn close_phase(&self, knobs: Phases, place: &L::Place, node: &Node<P>) -> bool {
        let Some(queue) = self.own_queue_in(place) else {
            return false;
        };
        if !node.is_linked(&queue) {
            return false;
        }
        if queue.clock().remaining(PhaseClock::<P>::now()) > 0 {
            return true; // The next phase has begun meanwhile.
        }
        // Does this waiter wait through the next phase too?
        let word = self.word.load(Relaxed);
        let readers_next = match phase(word) {
            Side::Read => queue.oldest_writer().is_none(),
            Side::Write => queue.oldest_reader().is_some(),
        };
        let is_first = |oldest: Option<&Node<P>>| oldest.is_some_and(|it| core::ptr::eq(it, node));
        let stays = match node.kind {
            Kind::Read => !readers_next,
            _ => readers_next || !is_first(queue.oldest_writer()),
        };
        if !stays {
            node.is_deadline_waiter.set(0);
        }
        let clear = if stays { OPEN } else { OPEN | HAS_DEADLINE_WAITER };
        let mut word = self.word.load(Relaxed);
        while word & CLOSED == 0 || word & clear != 0 {
            match self.close(word, clear) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        if is_free(word) {
            queue.clock().estimates().note_absence(phase(word));
        }
        let woken = self.serve_phases(knobs, &queue);
        drop(queue);
        woken.wake();
        stays
    }

    /// The running phase has not ended; if it has, this ends it. Somebody waits, as the word says.
    pub(crate) fn has_budget(&self, word: u64) -> bool {
        let clock = self.storage.place(word).clock();
        let has_budget = clock.remaining(PhaseClock::<P>::now()) > 0;
        if !has_budget {
            match Pol::DISCIPLINE {
                Discipline::Phases(knobs) => self.end_overdue_phase(knobs),
                Discipline::Shares => self.end_overdue_share(),
                _ => {}
            }
        }
        has_budget
    }

    /// Ends the running phase if its budget has ended: what a newcomer that was refused and does not
    /// queue owes to those that wait. Leaves it to others if somebody is at the queue.
    pub(in crate::rwsem) fn end_overdue_phase(&self, knobs: Phases) {
        let ends = |word: u64| has_waiters(word) && word & CLOSED == 0;
        let word = self.word.load(Relaxed);
        if knobs.longest_budget == 0 || !ends(word) {
            return;
        }
        let is_over = |clock: &PhaseClock<P>| clock.remaining(PhaseClock::<P>::now()) <= 0;
        if !is_over(self.storage.place(word).clock()) {
            return;
        }
        let Some(queue) = self.try_own_queue(word) else { return };
        let mut word = self.word.load(Relaxed);
        if !is_over(queue.clock()) {
            return;
        }
        while ends(word) {
            match self.close(word, OPEN) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        let woken = self.serve_phases(knobs, &queue);
        drop(queue);
        woken.wake();
    }

    /// Closes a phase of readers while somebody waits, before its budget ends. Not where the lock is
    /// free for the moment: then whoever closed it would have to hand it over, and the next reader
    /// is as good a moment.
    pub(in crate::rwsem) fn close_read_phase(&self) {
        let mut word = self.word.load(Relaxed);
        while has_waiters(word) && readers(word) > 0 && word & (CLOSED | WRITE_PHASE) == 0 {
            // The last of the readers sees it, and hands the lock over.
            let closed = (word | CLOSED) & !OPEN;
            match self.word.compare_exchange_weak(word, closed, Relaxed, Relaxed) {
                Ok(_) => return self.count(Event::PhaseClosed),
                Err(found) => word = found,
            }
        }
    }
}
