//! The Linux family: a woken writer competes with newcomers for the lock.
//!
//! Follows `kernel/locking/rwsem.c` as of the versions its presets name, with these differences
//! that user space needs: lock words change by compare-exchange, so a reader never adds and
//! removes itself; spinners sleep behind the first of them (`line.rs`); a spinner
//! has a budget, as it cannot see its owner being preempted.
//!
//! | a node's state | says | leaves that state when |
//! |---|---|---|
//! | `WAITING` | its owner sleeps, or spins in the queue | a release wakes the head; or it is granted the lock |
//! | `WOKEN_QUEUED` | a writer at the head should try, and is still on the queue | it tries; in vain: `WAITING` |
//! | `GRANTED` | the lock is the owner's, the node is off the queue | |
//!
//! Invariants, beside those of the core
//! 1. Readers, upgradable readers and upgraders are granted the lock by whoever serves the queue. Writers
//!    are woken, and take the lock themselves (but for a handoff that is immediate or fair).
//! 2. Only the head of the queue is woken without being granted the lock, and stays on the queue.
//! 3. `CLOSED` is a reservation for the head. It is set under the queue's lock, by the head itself or by
//!    whoever serves the queue, once the head has waited for the handoff's time (`Immediate`: at once). Only
//!    the head takes the lock while it is set. It ends when the head takes the lock, when
//!    readers are granted it, or when a waiter gives up: then whoever heads the queue asks anew.
//! 4. A queued writer takes the lock, and itself off the queue, under the queue's lock. So whoever serves
//!    the queue and finds a free lock with a writer at its head wakes one that has not tried yet.
//! 5. A writer that was woken and finds the lock taken need not be remembered: whoever took it sees the
//!    queue when it releases the lock, and wakes the head again.
//! 6. Without `writer_fast_fail` a writer counts itself before it knows whether the lock is free. Once it has
//!    taken that back it serves those who took it for an owner: when it enters, queues or gives up.
//! 7. A writer that spins in the queue ([`WriterSpin::InQueue`]) is a waiter like any other: it may be
//!    woken and granted, and 4 holds for it.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::core::{RawRwSem, Step};
use super::queue_storage::{OwnQueue, QueueStorage};
use super::wait_queue::{Kind, LockedQueue, Node, WAITING, WOKEN_QUEUED, WakeList};
use super::word::*;
use crate::events::{CountEvents, Event};
use crate::platform::{AtomicCell, Platform};
use crate::policy::{Competition, Handoff, Policy, ReaderWake, SPIN_ON_OWNER_NS, WriterSpin};
use crate::spin_budget::SpinBudget;

/// Spin on readers, ns: this long and `SPIN_FOR_EACH_READER` for each of them, at most
/// `SPIN_ON_READERS_MOST`. Linux's own figures (`rwsem_rspin_threshold`): more readers take longer to
/// leave; the bound is reached with 30.
const SPIN_ON_READERS: u64 = 10_000;
const SPIN_FOR_EACH_READER: u64 = 500;
const SPIN_ON_READERS_MOST: u64 = SPIN_ON_OWNER_NS;

/// The word after a newcomer has entered; `None` if it has to queue.
pub(super) fn admit(knobs: Competition, word: u64, kind: Kind) -> Option<u64> {
    match kind {
        Kind::Read if !admits_reader(word) => None,
        Kind::Read if !has_waiters(word) => Some(plus_reader(word)),
        Kind::Read => is_stealable(knobs, word).then(|| plus_reader(word)),
        Kind::Write => {
            let past_waiters = knobs.writer_steals && word & CLOSED == 0;
            (is_free(word) && (!has_waiters(word) || past_waiters)).then(|| word + WRITER)
        }
        Kind::Upgradable => {
            (admits_upgradable(word) && !has_waiters(word)).then(|| plus_reader(word) | UPGRADABLE)
        }
        Kind::Upgrade => None,
    }
}

/// A reader may take the lock past waiters: nobody writes, nothing is reserved, and no other
/// reader holds it (so that a stream of overlapping readers does not keep writers out).
fn is_stealable(knobs: Competition, word: u64) -> bool {
    knobs.reader_steals && word & (WRITERS | UPGRADING | CLOSED) == 0 && readers(word) == 0
}

impl<Pol: Policy, P: Platform, L: QueueStorage<P>> RawRwSem<Pol, P, L> {
    pub(super) fn compete(&self, knobs: Competition, kind: Kind, deadline: Option<u64>) -> bool {
        if kind == Kind::Write && Self::COUNTS_WRITER_FIRST {
            // The fast path counted this writer in vain. Meanwhile others may have taken it for
            // an owner and gone to sleep; from here on this thread serves them when it enters,
            // queues or gives up.
            self.word.fetch_sub(WRITER, Relaxed);
        }
        if self.enter_unqueued(knobs, kind, deadline) {
            return true;
        }
        let node = Node::new(kind, P::now());
        let without_queue = || self.try_enter(kind).then_some(None);
        let with_queue = |queue| self.queue_to_compete(knobs, &node, queue);
        let queue = match self.enter_or_queue(deadline, without_queue, with_queue) {
            Some(Some(queue)) => queue,
            Some(None) => return true,
            None => return false,
        };
        if kind == Kind::Write {
            return self.compete_as_writer(knobs, queue, &node, deadline);
        }
        let woken = self.serve_competitors(knobs, &queue);
        let place = queue.place();
        drop(queue);
        woken.wake();
        let acquired = self.sleep_until_granted(place, &node, deadline);
        if acquired {
            self.events.count(Event::Rlock);
        }
        acquired
    }

    /// The queue that the node is on, still locked, or `Some(None)` if it has entered; `None` if another
    /// queue turns out to be the right one.
    fn queue_to_compete<'a>(
        &self,
        knobs: Competition,
        node: &Node<P>,
        queue: OwnQueue<'a, P, L>,
    ) -> Option<Option<OwnQueue<'a, P, L>>> {
        let kind = node.kind;
        let queued = self.queue_as(queue, node, false, |queue, word| {
            // Under the queue's lock only the queue's emptiness lets a reader enter, as in Linux;
            // writers try again in `compete_as_writer`.
            let entered = if kind == Kind::Write { None } else { admit(knobs, word, kind) };
            entered.map_or(Step::Queue(word | queue.bits()), Step::Enter)
        });
        let queued = queued?;
        if queued.is_none() {
            self.events.count(Event::RlockFast);
        }
        Some(queued)
    }

    /// Everything that Linux tries before it queues.
    fn enter_unqueued(&self, knobs: Competition, kind: Kind, deadline: Option<u64>) -> bool {
        let mut word = self.word.load(Relaxed);
        if kind != Kind::Write {
            match self.word.update(Acquire, |word| admit(knobs, word, kind)) {
                Ok(before) => {
                    self.after_reader_entry(knobs, before);
                    return true;
                }
                Err(found) => word = found,
            }
        }
        let spins = match kind {
            Kind::Write => knobs.writer_spins == WriterSpin::BeforeQueueing,
            Kind::Read => knobs.reader_spins,
            _ => false,
        };
        if !spins {
            return self.try_enter(kind);
        }
        let hopeless = self.is_readers_own(knobs) || (has_writer(word) && !self.owner_may_run());
        if word & CLOSED != 0 || hopeless {
            self.events.count(Event::OptNospin);
            return false;
        }
        let spin = || self.spin_on_owner(knobs, kind);
        let entered = self.storage.at_front(deadline, spin).unwrap_or(false);
        self.events.count(if entered { Event::OptLock } else { Event::OptFail });
        entered
    }

    /// Readers were let in last, and writers do not spin on readers.
    fn is_readers_own(&self, knobs: Competition) -> bool {
        !knobs.writer_spins_on_readers && self.storage.owner().is_readers()
    }

    /// A reader that stole from a queue headed by readers grants it to them too.
    fn after_reader_entry(&self, knobs: Competition, before: u64) {
        if !has_waiters(before) {
            self.events.count(Event::RlockFast);
            return;
        }
        self.events.count(Event::RlockSteal);
        let Some(queue) = self.own_queue(before) else {
            return; // Everybody who waited then has been served.
        };
        let woken = match queue.head() {
            Some(head) if head.kind == Kind::Read => self.serve_competitors(knobs, &queue),
            _ => WakeList::none(),
        };
        drop(queue);
        woken.wake();
    }

    fn spin_on_owner(&self, knobs: Competition, kind: Kind) -> bool {
        let mut budget: Option<SpinBudget> = None;
        let mut on_readers = false;
        loop {
            let word = self.word.load(Relaxed);
            if word & CLOSED != 0 || self.is_readers_own(knobs) {
                return false;
            }
            if let Some(entered) = spinner_admit(word, kind) {
                if self.word.compare_exchange_weak(word, entered, Acquire, Relaxed).is_ok() {
                    // While the next one still stands behind this one: it would take the owner
                    // before for this one, and that may well have run where it runs itself.
                    self.note_owner(kind);
                    return true;
                }
                continue;
            }
            if has_writer(word) {
                if !self.owner_may_run() {
                    return false;
                }
                if on_readers {
                    (on_readers, budget) = (false, None);
                }
            } else {
                if !knobs.writer_spins_on_readers {
                    return false;
                }
                if !on_readers {
                    (on_readers, budget) = (true, None);
                }
            }
            let budget = budget.get_or_insert_with(|| {
                let ns = match on_readers {
                    true => (SPIN_ON_READERS + SPIN_FOR_EACH_READER * readers(word))
                        .min(SPIN_ON_READERS_MOST),
                    false => SPIN_ON_OWNER_NS,
                };
                SpinBudget::new::<P>(ns, None)
            });
            if !budget.relax::<P>() {
                return false;
            }
        }
    }

    /// Waits in the queue; called with its lock held and the node on it.
    fn compete_as_writer(
        &self,
        knobs: Competition,
        queue: OwnQueue<'_, P, L>,
        node: &Node<P>,
        mut deadline: Option<u64>,
    ) -> bool {
        let place = queue.place();
        let mut queue = queue;
        let mut just_queued = true;
        // The budget of the spin since it queued or woke up.
        let mut budget = None;
        loop {
            if !node.is_linked(&queue) {
                forget_wake_up(node);
                drop(queue);
                return self.sleep_until_granted(place, node, None);
            }
            if self.take_as_writer(knobs, &queue, node) {
                self.events.count(Event::Wlock);
                if budget.is_some() {
                    self.events.count(Event::OptLock);
                }
                return true;
            }
            // A holder may have left between this writer's last look and its queueing: then
            // nobody else would serve those that queued before it.
            let woken =
                if just_queued { self.serve_competitors(knobs, &queue) } else { WakeList::none() };
            just_queued = false;
            if node.state.load(Relaxed) == WOKEN_QUEUED {
                // Woken, possibly just now by this very thread: a woken writer that finds the
                // lock taken is woken again by the next release.
                node.state.store(WAITING, Relaxed);
                if is_free(self.word.load(Relaxed)) {
                    continue;
                }
            }
            drop(queue);
            woken.wake();
            if knobs.writer_spins != WriterSpin::InQueue
                || !self.spin_in_queue(knobs, node, &mut budget, deadline)
            {
                budget = None;
                if !self.sleep_until_woken(place, node, &mut deadline) {
                    return false;
                }
            }
            let Some(again) = self.own_queue_in(place) else {
                // This was the last waiter in that queue.
                forget_wake_up(node);
                return self.sleep_until_granted(place, node, None);
            };
            queue = again;
        }
    }

    /// Watches the lock word while the lock is another writer's that may run. True if the queued
    /// writer should look at its place in the queue, as the lock is free or its state has changed;
    /// false if it should sleep.
    fn spin_in_queue(
        &self,
        knobs: Competition,
        node: &Node<P>,
        budget: &mut Option<SpinBudget>,
        deadline: Option<u64>,
    ) -> bool {
        let fresh = || SpinBudget::new::<P>(SPIN_ON_OWNER_NS, deadline);
        let mut spun = Event::OptNospin;
        loop {
            if node.state.load(Relaxed) != WAITING {
                return true;
            }
            let word = self.word.load(Relaxed);
            if is_free(word) {
                // Reserved, or without stealing, it is for the head alone, which is woken. So an
                // attempt fails only when somebody else has come first, never without an end.
                return knobs.writer_steals && word & CLOSED == 0;
            }
            let is_worth_it = has_writer(word) && self.owner_may_run();
            if !(is_worth_it && budget.get_or_insert_with(fresh).relax::<P>()) {
                self.events.count(spun);
                return false;
            }
            spun = Event::OptFail;
        }
    }

    /// False if the deadline has passed, and the writer is off the queue.
    fn sleep_until_woken(
        &self,
        place: &L::Place,
        node: &Node<P>,
        deadline: &mut Option<u64>,
    ) -> bool {
        while node.state.load(Relaxed) == WAITING {
            if deadline.is_some_and(|deadline| P::now() >= deadline) {
                if self.withdraw(place, node) {
                    return false;
                }
                *deadline = None;
                continue;
            }
            self.events.count(Event::SleepWriter);
            P::park(&node.state, WAITING, *deadline);
        }
        true
    }

    /// A queued writer's attempt (`rwsem_try_write_lock` in Linux).
    fn take_as_writer(
        &self,
        knobs: Competition,
        queue: &LockedQueue<'_, P>,
        node: &Node<P>,
    ) -> bool {
        let is_head = queue.head().is_some_and(|head| core::ptr::eq(head, node));
        let mut word = self.word.load(Relaxed);
        loop {
            if word & CLOSED != 0 && !is_head {
                return false;
            }
            let free = is_free(word);
            let next = if free {
                if !is_head && !knobs.writer_steals {
                    return false;
                }
                // `CLOSED` is this head's own reservation, or not set.
                (word + WRITER) & !CLOSED
            } else {
                if word & CLOSED != 0 || !is_head || !is_due(knobs, P::now() - node.since()) {
                    return false;
                }
                word | CLOSED
            };
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) if free => {
                    queue.remove(node);
                    if queue.is_empty() {
                        self.word.fetch_and(!QUEUE_FLAGS, Relaxed);
                    }
                    return true;
                }
                Ok(_) => {
                    self.events.count(Event::WlockHandoff);
                    // The holder may have left before it could see the reservation.
                    word = next;
                }
                Err(found) => word = found,
            }
        }
    }

    /// Grants the head of the queue the lock, or wakes it, as far as the holders permit (`rwsem_mark_wake`).
    pub(super) fn serve_competitors(
        &self,
        knobs: Competition,
        queue: &LockedQueue<'_, P>,
    ) -> WakeList<P> {
        let Some(head) = self.upgrader_or_head(queue) else {
            return WakeList::none();
        };
        match head.kind {
            Kind::Read => self.grant_readers(knobs, queue, head),
            Kind::Write => {
                if knobs.handoff == Handoff::Immediate {
                    return self.hand_over_or_reserve(knobs, queue, head);
                }
                if !is_free(self.word.load(Relaxed)) {
                    return WakeList::none();
                }
                self.events.count(Event::WakeWriter);
                WakeList::of_queued(queue, head)
            }
            Kind::Upgradable => self.hand_over_or_reserve(knobs, queue, head),
            // Nobody passes one that upgrades.
            Kind::Upgrade => self.grant_one(queue, head, CLOSED),
        }
    }

    fn upgrader_or_head<'q>(&self, queue: &'q LockedQueue<'_, P>) -> Option<&'q Node<P>> {
        match queue.oldest_writer() {
            Some(upgrader) if upgrader.kind == Kind::Upgrade => Some(upgrader),
            _ => queue.head(),
        }
    }

    fn grant_readers(
        &self,
        knobs: Competition,
        queue: &LockedQueue<'_, P>,
        head: &Node<P>,
    ) -> WakeList<P> {
        // One reader first: if a writer got in before, there is nothing to count.
        let mut word = self.word.load(Relaxed);
        loop {
            let next = if admits_reader(word) {
                plus_reader(word)
            } else if has_writer(word)
                && word & CLOSED == 0
                && is_due(knobs, P::now() - head.since())
            {
                word | CLOSED
            } else {
                return WakeList::none();
            };
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) if admits_reader(word) => break,
                Ok(_) => {
                    self.events.count(Event::RlockHandoff);
                    word = next;
                }
                Err(found) => word = found,
            }
        }
        let woken = match knobs.wake {
            ReaderWake::FrontRun => queue.take_readers(u32::MAX, queue.oldest_writer()),
            ReaderWake::Batch(most) => queue.take_readers(most.max(1), None),
        };
        debug_assert!(!woken.is_empty(), "the head is a reader");
        self.word.fetch_add(u64::from(woken.len() - 1) * READER, Relaxed);
        self.storage.owner().note_readers();
        // Readers are in, so nothing is reserved any more.
        let clear = if queue.is_empty() { QUEUE_FLAGS } else { CLOSED };
        self.word.fetch_and(!clear, Relaxed);
        self.events.add(Event::WakeReader, u64::from(woken.len()));
        woken
    }

    /// Makes the head the owner, whatever it wants, if the holders permit; for fair unlock.
    pub(super) fn hand_to_head(
        &self,
        knobs: Competition,
        queue: &LockedQueue<'_, P>,
    ) -> WakeList<P> {
        match self.upgrader_or_head(queue) {
            None => WakeList::none(),
            Some(head) if head.kind == Kind::Read => self.grant_readers(knobs, queue, head),
            Some(head) => self.grant_one(queue, head, CLOSED),
        }
    }

    /// Grants the lock to the head of the queue, which wants more than to read; or, if it has waited for the
    /// handoff's time, reserves the lock for it where somebody took the lock just before this.
    fn hand_over_or_reserve(
        &self,
        knobs: Competition,
        queue: &LockedQueue<'_, P>,
        head: &Node<P>,
    ) -> WakeList<P> {
        loop {
            let woken = self.grant_one(queue, head, CLOSED);
            let word = self.word.load(Relaxed);
            let is_settled = !woken.is_empty() || word & CLOSED != 0;
            if is_settled || !is_due(knobs, P::now() - head.since()) {
                return woken;
            }
            let is_taken = match head.kind {
                Kind::Write => !is_free(word),
                _ => !admits_upgradable(word),
            };
            let reserved = word | CLOSED;
            if is_taken && self.word.compare_exchange(word, reserved, Relaxed, Relaxed).is_ok() {
                self.events.count(Event::WlockHandoff);
                return woken;
            }
        }
    }
}

/// For a writer that was handed the lock and is about to be woken. A wake-up from before is void, and
/// with its state the writer would not sleep until then. Nobody wakes a node that is off the list,
/// so the state can only have become `GRANTED` meanwhile, which stays.
fn forget_wake_up<P: Platform>(node: &Node<P>) {
    let _ = node.state.compare_exchange(WOKEN_QUEUED, WAITING, Relaxed, Relaxed);
}

/// A spinner takes what is free, past any queue: that is what Linux calls optimistic.
fn spinner_admit(word: u64, kind: Kind) -> Option<u64> {
    match kind {
        Kind::Write if is_free(word) => Some(word + WRITER),
        Kind::Read if admits_reader(word) => Some(plus_reader(word)),
        _ => None,
    }
}

fn is_due(knobs: Competition, waited: u64) -> bool {
    match knobs.handoff {
        Handoff::Never => false,
        Handoff::After(limit) => waited > limit,
        Handoff::Immediate => true,
    }
}

/// What goes with a waiter that has given up: the lock may have been reserved for it; whoever heads the
/// queue now asks anew.
pub(super) const GAVE_UP: u64 = CLOSED;
