//! Which thread is served next: what a thread does that leaves the lock free, or finds that a phase
//! is over.
//!
//! ```text
//!   unlock ─► released ─► left_free ─┬─► serve_biased    most readers do not take this lock
//!                                    ├─► wake_to_look    no thread of the side whose phase it is waits: does it come back?
//!                                    ├─► wake_passed     the writers' phase: the one that has waited longest competes
//!   keep_time, queue_up, withdraw ───┴─► serve ──┬─► switch           shut: the lock is handed over
//!                                                ├─► wake_competitor  a writer competes with newcomers
//!                                                ├─► begin_reading    readers, as many as there are CPUs
//!                                                └─► grant_one        an upgrade, an upgradable reader
//!   keep_time ─► use_gap        the other side has left its phase's lock free
//!   a try that is refused ─► end_overdue_phase
//! ```
//!
//! An unlock wakes a waiter of the side whose phase it is not only once, as that one has an alarm
//! of its own. It serves only if `MUST_SERVE` is set, or readers need not take the lock.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::account::{PhaseClock, ticks};
use super::admission::{admit, enter_gap, shut, shut_to_all, side_of};
use super::lock::RawRwSem;
use super::own_queue::OwnQueue;
use super::queue_pool::HasQueuePool;
use super::reader_bias::ReaderBias;
use super::wait_queue::{Kind, Node, WakeList};
use super::word::*;
use crate::events::{CountEvents, Event};
use crate::platform::PlainCell;
use crate::policy::Policy;

impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> RawRwSem<Pol, P, B> {
    /// After a release that left `word` behind, with some flag set.
    #[cold]
    pub(super) fn released(&self, word: u64) {
        if !has_waiters(word) {
            return;
        }
        if is_free(word) {
            self.left_free(word);
        } else if word & UPGRADING != 0 && readers(word) == 1 {
            self.serve_after_release(word);
        }
    }

    /// After a release that left `word` behind: takes those off the queue that may hold the lock
    /// now, and wakes them. If the queue is not this lock's any more, all those have been served
    /// that waited then.
    pub(super) fn serve_after_release(&self, word: u64) {
        if let Some(queue) = self.own_queue(word) {
            let woken = self.serve(&queue);
            queue.unlock_and_wake(woken);
        }
    }

    fn left_free(&self, word: u64) {
        if self.is_biased(word) && !is_shut(word) {
            return self.serve_biased(word);
        }
        if word & MUST_SERVE == 0 && word & MAY_LOOK != 0 {
            return self.wake_to_look(word);
        }
        if word & MUST_SERVE == 0 || word & WRITER_WOKEN != 0 && !is_shut(word) {
            return;
        }
        if let Some(queue) = self.own_queue(word) {
            let woken = self.wake_passed(&queue).unwrap_or_else(|| self.serve(&queue));
            queue.unlock_and_wake(woken);
        }
    }

    /// The side whose phase it is has left the lock free. Once per wait, the first of those that
    /// are shut out is woken to see whether it comes back.
    fn wake_to_look(&self, word: u64) {
        let Some(queue) = self.own_queue(word) else { return };
        let word = self.word.fetch_and(!MAY_LOOK, Relaxed);
        let mut woken = WakeList::none();
        if let Some(first) = queue.first_of(phase(word).other()).filter(|_| !is_shut(word)) {
            woken.appoint_once(first);
        }
        queue.unlock_and_wake(woken);
    }

    /// Writers may come and go faster than one of them serves the queue: the one that has waited
    /// longest competes with them.
    fn wake_passed(&self, queue: &OwnQueue<'_, P>) -> Option<WakeList<P>> {
        loop {
            let word = self.word.load(Relaxed);
            let is_passed =
                readers(word) == 0 && word & (WRITE_PHASE | WRITER_WOKEN) == WRITE_PHASE;
            if !is_passed || is_shut(word) || queue.oldest_exclusive().is_none() {
                return None;
            }
            if let Some(woken) = self.wake_competitor(queue, word) {
                return Some(woken);
            }
        }
    }

    /// Most readers do not take this lock. Those that wait are let in at once, unless it is the
    /// writers' phase and they are owed time. Else one writer competes, unless readers are owed
    /// time; one that has done so in vain is handed the lock.
    fn serve_biased(&self, word: u64) {
        let Some(queue) = self.own_queue(word) else { return };
        let word = self.word.load(Relaxed);
        let mut woken = WakeList::none();
        if is_free(word) && !is_shut(word) {
            let writer = queue.oldest_exclusive();
            let side = phase(word);
            let owed = self.owed_to(Side::Write);
            let is_writers = side == Side::Write && writer.is_some() && owed > 0;
            let is_readers = side == Side::Read && owed < 0;
            let has_readers = queue.first_of(Side::Read).is_some();
            // The readers that wait stay out of this phase.
            let stays_out = has_readers
                && side == Side::Write
                && owed > 0
                && queue.clock().remaining(PhaseClock::<P>::now()) > 0;
            if has_readers && !stays_out && !is_writers {
                woken = self.begin_reading(&queue);
            } else if word & WRITER_WOKEN == 0 && writer.is_some() && !is_readers {
                if writer.is_some_and(|writer| writer.has_lost) {
                    self.shut_both();
                    woken = self.serve(&queue);
                } else {
                    woken = self.wake_competitor(&queue, word).unwrap_or(woken);
                }
            }
        }
        queue.unlock_and_wake(woken);
    }

    /// The other side has left its phase's lock free, and is not expected back soon: the first of
    /// those that are shut out enters.
    pub(super) fn use_gap(&self, queue: &OwnQueue<'_, P>) -> WakeList<P> {
        let mut woken = WakeList::none();
        let side = phase(self.word.load(Relaxed)).other();
        let Some(first) = queue.first_of(side) else {
            return woken;
        };
        let now = self.note_phase(queue, side.other());
        if side == Side::Read && !queue.place().is_biased() {
            self.events.count(Event::PhaseIdle);
            return self.begin_reading(queue);
        }
        let enter = |word| admit(word, first.kind).or_else(|| enter_gap(word, first.kind));
        if side == Side::Read {
            if self.word.update(Acquire, |word| Some(enter(word)? & !shut(side))).is_ok() {
                woken.take(queue, first);
                self.events.count(Event::PhaseIdle);
                self.left(queue, side, &mut woken);
            }
            return woken;
        }
        // Its side's phase begins: those that wait behind it do not wait for readers.
        let others_wait = [queue.first_of(Side::Read).is_some(), !queue.is_only_writer(first)];
        let flags = self.flags_of(queue.bits(), side, others_wait);
        if self.word.update(Acquire, |word| Some(enter(word)? & !QUEUE_FLAGS | flags)).is_ok() {
            woken.take(queue, first);
            self.events.count(Event::PhaseIdle);
            self.begin_phase(queue, side, now);
            if let Some(first) = queue.first_of(Side::Read) {
                woken.appoint(first);
            }
        }
        woken
    }

    /// Takes those off the queue that may hold the lock now.
    pub(super) fn serve(&self, queue: &OwnQueue<'_, P>) -> WakeList<P> {
        loop {
            // Pairs with the Release of the last holder, where the word is this thread's.
            let word = self.word.load(Acquire);
            if !has_waiters(word) {
                return WakeList::none();
            }
            if !is_free(word) {
                let writer = queue.oldest_exclusive();
                let upgrader = queue.upgrader().filter(|_| readers(word) == 1);
                let may_join =
                    admits_upgradable(word) && word & (READERS_OUT | UPGRADABLE_OUT) != READERS_OUT;
                let upgradable = queue.oldest_upgradable().filter(|_| may_join);
                if let Some(next) = upgrader.or(upgradable) {
                    return self.grant_one(queue, next);
                }
                let join =
                    writer.is_none() && admits_reader(word) && queue.oldest_reader().is_some();
                return if join { self.begin_reading(queue) } else { WakeList::none() };
            }
            let only_writers = queue.first_of(Side::Read).is_none();
            if is_shut(word) {
                return match queue.oldest_upgradable().filter(|_| word & UPGRADABLE_OUT != 0) {
                    Some(overdue) => self.grant_one(queue, overdue),
                    None => self.switch(queue, word),
                };
            }
            let has_own = phase(word) == Side::Write && queue.oldest_exclusive().is_some();
            if only_writers && word & BOTH_OUT == 0 || has_own {
                if word & WRITER_WOKEN != 0 {
                    return WakeList::none();
                }
                if let Some(woken) = self.wake_competitor(queue, word) {
                    return woken;
                }
                continue;
            }
            if phase(word) == Side::Read && queue.first_of(Side::Read).is_some() {
                return self.begin_reading(queue);
            }
            if word & BOTH_OUT != 0 && queue.clock().remaining(PhaseClock::<P>::now()) > 0 {
                return WakeList::none();
            }
            self.shut_both();
        }
    }

    /// Grants `node`, which wants more than to read, if the holders permit.
    fn grant_one(&self, queue: &OwnQueue<'_, P>, node: &Node<P>) -> WakeList<P> {
        let granted = |word| {
            Some(match node.kind {
                Kind::Upgradable if admits_upgradable(word) => {
                    (plus_reader(word) | UPGRADABLE) & !UPGRADABLE_OUT
                }
                Kind::Upgrade => admit(word, Kind::Upgrade)? & !UPGRADING,
                _ => return None,
            })
        };
        let mut woken = WakeList::none();
        // Acquire pairs with the Release of those that left; `WakeList::wake` passes it on.
        if self.word.update(Acquire, granted).is_ok() {
            woken.take(queue, node);
            self.events.count(Event::WakeWriter);
            self.left(queue, side_of(node.kind), &mut woken);
        }
        woken
    }

    /// After waiters of this side were taken off the queue.
    fn left(&self, queue: &OwnQueue<'_, P>, side: Side, woken: &mut WakeList<P>) {
        if queue.is_empty() {
            self.word.fetch_and(!QUEUE_FLAGS, Relaxed);
        } else if let Some(first) = queue.first_of(side) {
            woken.appoint(first);
        } else if !is_shut(self.word.load(Relaxed)) {
            self.word.fetch_and(!shut(side), Relaxed);
        }
    }

    /// The writer that has waited longest competes with those that are awake. None if the word has
    /// changed.
    fn wake_competitor(&self, queue: &OwnQueue<'_, P>, word: u64) -> Option<WakeList<P>> {
        let oldest = queue.oldest_exclusive().expect("it waits");
        let is_last = queue.is_only_writer(oldest);
        let mut next = word | WRITER_WOKEN;
        if is_last {
            next &= !MUST_SERVE;
            if queue.oldest_reader().is_none() {
                next = word & !QUEUE_FLAGS;
            }
        }
        self.word.compare_exchange(word, next, Relaxed, Relaxed).ok()?;
        let mut woken = WakeList::none();
        if phase(word) == Side::Read {
            self.note_phase(queue, Side::Read);
        }
        woken.take_to_retry(queue, oldest);
        if phase(word) == Side::Read {
            // It kept time.
            if let Some(first) = queue.oldest_exclusive() {
                woken.appoint(first);
            }
        }
        self.events.count(Event::PhaseWoken);
        Some(woken)
    }

    /// The lock is free and shut, the word this thread's: it is handed over.
    fn switch(&self, queue: &OwnQueue<'_, P>, word: u64) -> WakeList<P> {
        let from = phase(word);
        let others_wait = queue.first_of(from.other()).is_some();
        // A writer that was woken in vain has shut it before the time of its side is over.
        let goes_on = Self::slack() != 0
            && others_wait
            && from == Side::Write
            && queue.first_of(from).is_some()
            && queue.clock().remaining(PhaseClock::<P>::now()) > 0;
        let to = if others_wait && !goes_on { from.other() } else { from };
        let now = self.note_phase(queue, from);
        if to == Side::Read {
            return self.begin_reading(queue);
        }
        let mut woken = WakeList::none();
        let writer = queue.oldest_exclusive().expect("a side that waits");
        writer.woken_at.set(P::now());
        woken.take(queue, writer);
        self.events.count(Event::PhaseWrite);
        self.events.count(Event::WakeWriter);
        self.owner.forget();
        if !goes_on {
            self.begin_phase(queue, to, now);
        }
        let flags = self.flags(queue, to);
        self.word.store(WRITER | flags, Relaxed);
        if let Some(first) = queue.first_of(Side::Read) {
            woken.appoint(first);
        }
        woken
    }

    /// Lets the oldest waiting readers in, in addition to readers that hold the lock already: as
    /// many as there are CPUs. Each that has begun to run lets in one more (`let_next_in`), so that
    /// few of those that hold the lock do not run.
    pub(super) fn begin_reading(&self, queue: &OwnQueue<'_, P>) -> WakeList<P> {
        let mut before = self.word.load(Relaxed);
        let waits = queue.oldest_upgradable();
        // No writer must enter meanwhile, nor another one that may upgrade: one more reader keeps
        // the lock, unless it is shut to all.
        let (mut keeper, mut may_upgrade);
        loop {
            if before & UPGRADING != 0 || has_writer(before) {
                return WakeList::none();
            }
            may_upgrade = if waits.is_some() && admits_upgradable(before) { UPGRADABLE } else { 0 };
            keeper = READER | may_upgrade;
            if is_shut(before) && is_free(before) {
                keeper = 0;
                break;
            }
            match self.word.compare_exchange_weak(before, before + keeper, Relaxed, Relaxed) {
                Ok(_) => {
                    before += keeper;
                    break;
                }
                Err(found) => before = found,
            }
        }
        let now = match phase(before) {
            Side::Write => self.note_phase(queue, Side::Write),
            Side::Read => 0,
        };
        let (mut entering, mut woken) = (may_upgrade, WakeList::none());
        if let Some(upgradable) = waits.filter(|_| may_upgrade != 0) {
            woken.take(queue, upgradable);
        }
        let room = (READER_LIMIT - 1).saturating_sub(readers(before)) as u32;
        // Where no thread passes another, none that waits is left for later. An upgradable reader
        // takes no plain one's place.
        let most =
            if Self::slack() == 0 { u32::MAX } else { P::cpus().saturating_add(woken.len()) };
        self.take_readers(queue, &mut woken, most.min(room));
        entering += u64::from(woken.len()) * READER;
        let mut is_overdue = before & UPGRADABLE_OUT;
        if phase(before) == Side::Write {
            self.begin_phase(queue, Side::Read, now);
            self.events.count(Event::PhaseRead);
            // A thread that has just downgraded keeps the right to upgrade. The one that waits for
            // that right belongs to this phase all the same.
            is_overdue = UPGRADABLE_OUT;
        }
        let mut flags = self.flags(queue, Side::Read);
        if waits.is_some() && may_upgrade == 0 {
            flags |= is_overdue;
        }
        let enter = |word| Some(((word & !QUEUE_FLAGS) + entering - keeper) | flags);
        _ = self.word.update(Acquire, enter);
        self.owner.forget();
        if let Some(writer) = queue.oldest_exclusive() {
            woken.appoint(writer);
        }
        woken
    }

    fn take_readers(&self, queue: &OwnQueue<'_, P>, woken: &mut WakeList<P>, most: u32) {
        while woken.len() < most {
            let Some(reader) = queue.oldest_reader() else { break };
            woken.take(queue, reader);
        }
        self.events.add(Event::WakeReader, u64::from(woken.len()));
    }

    /// A reader that was let in has begun to run.
    pub(super) fn let_next_in(&self) {
        let mut word = self.word.load(Relaxed);
        let has_next =
            |word| word & (MUST_SERVE | READERS_OUT | WRITE_PHASE | UPGRADING) == MUST_SERVE;
        if !has_waiters(word) || !has_next(word) {
            return;
        }
        let Some(queue) = self.own_queue(word) else { return };
        word = self.word.load(Relaxed);
        if !has_next(word) || readers(word) >= READER_LIMIT - 1 {
            return;
        }
        let mut woken = WakeList::none();
        self.take_readers(&queue, &mut woken, 1);
        let entering = u64::from(woken.len()) * READER;
        // This thread reads, so no writer enters.
        _ = self.word.update(Relaxed, |word| {
            let flags = match (is_shut(word), queue.first_of(Side::Read)) {
                _ if queue.is_empty() => 0,
                (false, None) => word & QUEUE_FLAGS & !MUST_SERVE,
                _ => word & QUEUE_FLAGS,
            };
            Some(((word & !QUEUE_FLAGS) + entering) | flags)
        });
        queue.unlock_and_wake(woken);
    }

    /// This side has had the lock for as long as the first of the other has waited. The time, in
    /// ticks.
    fn note_phase(&self, queue: &OwnQueue<'_, P>, side: Side) -> u32 {
        let now = PhaseClock::<P>::now();
        if let Some(first) = queue.first_of(side.other()) {
            self.note_held(side, now, now.wrapping_sub(ticks(first.since())));
        }
        now
    }

    fn begin_phase(&self, queue: &OwnQueue<'_, P>, side: Side, now: u32) {
        let owed = self.owed_to(side).max(0);
        queue.clock().end(now.wrapping_add((owed + Self::slack()) as u32));
    }

    /// What the word says of the queue in a phase of this side.
    fn flags(&self, queue: &OwnQueue<'_, P>, side: Side) -> u64 {
        let waits = Side::BOTH.map(|side| queue.first_of(side).is_some());
        self.flags_of(queue.bits(), side, waits)
    }

    /// The same of a queue with these bits in which these sides wait.
    fn flags_of(&self, queue: u64, side: Side, waits: [bool; 2]) -> u64 {
        if waits == [false; 2] {
            // No thread waits, but the other side owes this one time.
            return if self.owed_to(side) > 0 { shut(side.other()) } else { 0 };
        }
        let mut flags = queue;
        if side == Side::Write {
            flags |= WRITE_PHASE;
        }
        if Self::slack() == 0 && (side == Side::Write || waits[Side::Write as usize]) {
            return shut_to_all(flags);
        }
        if waits[side.other() as usize] || self.is_owed(side) {
            flags |= shut(side.other());
        }
        if waits[side as usize] {
            flags |= MUST_SERVE;
        }
        flags
    }

    /// From now on no thread enters. The queue's lock is held. Returns the word before.
    pub(super) fn shut_both(&self) -> u64 {
        let before = self.word.update(Acquire, |word| Some(shut_to_all(word)));
        self.events.count(Event::PhaseClosed);
        before.expect("any word can be shut")
    }

    /// Ends a phase of readers while a thread waits. Does nothing if the lock is free at that
    /// moment: then this thread would have to hand it over.
    pub(super) fn end_reading(&self) {
        let is_reading = |word: u64| {
            has_waiters(word) && readers(word) > 0 && word & WRITE_PHASE == 0 && !is_shut(word)
        };
        // The last of the readers hands the lock over.
        if self.word.update(Relaxed, |word| is_reading(word).then(|| shut_to_all(word))).is_ok() {
            self.events.count(Event::PhaseClosed);
        }
    }

    /// Ends a phase that is over: a try that was refused must do this for the waiters.
    pub(super) fn end_overdue_phase(&self) {
        let word = self.word.load(Relaxed);
        if !has_waiters(word) || is_shut(word) {
            return;
        }
        let is_over = |clock: &PhaseClock<P>| clock.remaining(PhaseClock::<P>::now()) <= 0;
        if !is_over(&Self::place(word).clock) {
            return;
        }
        let Some(queue) = self.try_own_queue(word) else { return };
        let word = self.word.load(Relaxed);
        if !is_over(queue.clock()) || is_shut(word) || queue.first_of(phase(word).other()).is_none()
        {
            return;
        }
        if phase(word) == Side::Read && queue.place().is_biased() {
            return; // The writer that keeps time must get a CPU first; until then readers may go on.
        }
        self.shut_both();
        let woken = self.serve(&queue);
        queue.unlock_and_wake(woken);
    }

    /// Readers have slots, so a word that says "free" does not mean that the lock is unused.
    fn is_biased(&self, word: u64) -> bool {
        has_waiters(word) && Self::place(word).is_biased()
    }
}
