//! [`Shares`](crate::policy::Shares): the two sides divide the lock's time, as their account says (`account.rs`).
//!
//! ```text
//!                        a side queues                       it is owed enough
//!   no waiters ────────────────────────► its side is shut ─────────────────────► both are shut
//!    (one side may still be shut)             ▲                                     │ last holder leaves:
//!                                             │                                     │ hand over
//!                                             └── the next phase: the other is shut ◄┘
//! ```
//!
//! * While the accounts are level, threads spin for as long as a wake-up takes, and take the lock as it comes.
//! * In a *phase* one side is shut out. Those of the other enter without a look at the clock: the first waiter of
//!   the side that is shut out keeps time. It is awake when the phase ends, and shuts the other side out as well. Then
//!   the last holder hands the lock over: to all readers, or to the writer that waits longest.
//! * A phase lasts for what its side is owed, and the slack more by which the other may be behind before it shuts it out. So a
//!   change of sides, which costs a wake-up, comes every sixteen wake-ups at most, unless one side is far behind.
//! * A side that is shut out uses the lock when the other has left it free for a while: a *gap*. It watches whether
//!   a thread enters (`WATCH`). A thread on the CPU that had the lock last need not watch: no other CPU is using the lock.
//!   Once a phase was found left, the next ones are given up by those who leave the lock free.
//! * A side without waiters stays shut out for as long as it owes the other, so that a thread that comes right back does
//!   not take a lock that stands free for a moment. A thread that only tries takes it: it passes no waiter.
//! * Writers among themselves: the unlocking thread wakes the writer that has waited longest, which competes. If it gets
//!   nothing, it sleeps for a turn of two slacks, and then shuts the lock.
//!
//! How the queue's flags are used here:
//!
//! | flag | |
//! |---|---|
//! | `CLOSED`, `OPEN` | readers, writers are shut out |
//! | `WRITE_PHASE` | the phase is the writers' |
//! | `HAS_DEADLINE_WAITER` | the thread that leaves the lock free must serve the queue (`ACT`) |
//! | `READERS_WAIT` | no thread has entered since this was set (`WATCH`) |
//! | `WRITER_WOKEN` | a writer competes, or has its turn soon: no other is woken |
//!
//! Invariants, in addition to those of the core
//! 1. If both sides are shut, `ACT` is set. If the lock is free as well, only the holder of the queue's lock writes the word.
//! 2. If one side is shut and one of it waits, the first of those keeps time, or has been woken to do so (`APPOINTED`).
//! 3. If one waits whose own side is not shut out, `ACT` is set.
//! 4. Where no thread waits, at most one side is shut, and `WATCH` may be set; nothing else is.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::core::{Queueing, RawRwSem, Step};
use super::phase_clock::{PhaseClock, TICK_SHIFT, ticks};
use super::queue_storage::{OwnQueue, Place, QueueStorage};
use super::wait_queue::{APPOINTED, GRANTED, Kind, Node, WAITING, WOKEN_DEQUEUED, WakeList};
use super::word::*;
use crate::events::{CountEvents, Event};
use crate::platform::{AtomicCell, NAP, PlainCell, Platform};
use crate::policy::{LONGEST_IN_LINE_NS, Policy};
use crate::spin_budget::SpinBudget;

/// A side shuts the other out once it is owed this many wake-ups. Fewer: more of the time is spent on changes of
/// sides. More: each side waits longer. Chosen, not measured.
const SLACK: u32 = 8;
/// A side that leaves the lock free for longer than this, ns, has gone elsewhere. Longer: the lock stands free. Shorter: a
/// side that comes right back loses its phase. Chosen, not measured: a few transfers of a cache line.
const ABSENCE: u64 = 500;
/// How often a thread naps before it queues, to leave its CPU to the holder that was running there.
const NAPS: u32 = 2;

/// No reader, or no writer, enters past those that wait.
fn shut(side: Side) -> u64 {
    if side == Side::Read { CLOSED } else { OPEN }
}
const BOTH: u64 = CLOSED | OPEN;

/// Nobody enters.
pub(super) fn shut_to_all(word: u64) -> u64 {
    word | BOTH | ACT
}

/// The thread that leaves the lock free must serve the queue.
const ACT: u64 = HAS_DEADLINE_WAITER;
/// A waiting thread watches for entries; each entry clears it.
const WATCH: u64 = READERS_WAIT;

/// The word after a newcomer has entered; none if it may not.
pub(super) fn admit(word: u64, kind: Kind) -> Option<u64> {
    let word = word & !WATCH;
    match kind {
        _ if is_out(word, side_of(kind)) => None,
        Kind::Read if admits_reader(word) => Some(plus_reader(word)),
        Kind::Write if is_free(word) => Some(word + WRITER),
        Kind::Upgradable if admits_upgradable(word) => Some(plus_reader(word) | UPGRADABLE),
        _ => None,
    }
}

/// Newcomers of this side do not enter: it is shut out, or threads wait in a phase of the other side.
fn is_out(word: u64, side: Side) -> bool {
    word & shut(side) != 0 || has_waiters(word) && phase(word) != side
}

/// The word after a thread that only tries has entered: without waiters it passes none.
pub(super) fn admit_at_once(word: u64, kind: Kind) -> Option<u64> {
    admit(if has_waiters(word) { word } else { word & !QUEUE_FLAGS }, kind)
}

/// The word after one has used a moment in which the other side has left its phase's lock free.
fn enter_gap(word: u64, kind: Kind) -> Option<u64> {
    let side = side_of(kind);
    if !is_out(word, side) || word & BOTH == BOTH || !is_free(word) {
        return None;
    }
    // Without waiters it is the end of the other side's phase.
    let word = if has_waiters(word) { word & !WATCH } else { 0 };
    match kind {
        Kind::Read => Some(word + READER),
        Kind::Write => Some(word + WRITER),
        Kind::Upgradable => Some((word + READER) | UPGRADABLE),
        Kind::Upgrade => None,
    }
}

fn side_of(kind: Kind) -> Side {
    match kind {
        Kind::Read | Kind::Upgradable => Side::Read,
        Kind::Write | Kind::Upgrade => Side::Write,
    }
}

fn latency<P: Platform>() -> u64 {
    P::wake_latency().into()
}

fn slack<P: Platform>() -> i32 {
    (ticks(latency::<P>()) * SLACK) as i32
}

enum Wait {
    Granted,
    TimedOut,
    Woken,
}

enum Look {
    /// Its state has changed, or is about to.
    Again,
    /// When it must look next, ns.
    At(Option<u64>),
    /// Until then something is about to happen.
    Spin(u64),
    /// Until then it watches for entries.
    Watch(u64),
}

impl<Pol: Policy, P: Platform, L: QueueStorage<P>> RawRwSem<Pol, P, L> {
    pub(super) fn acquire_share(&self, kind: Kind, deadline: Option<u64>) -> bool {
        let mut word = self.word.load(Relaxed);
        // A thread on the CPU that had the lock last disturbs no other CPU. Where most readers do not take this
        // lock, it is free most of the time.
        let enter = |word| {
            let gap = |word| {
                enter_gap(word, kind)
                    .filter(|_| self.storage.owner().is_here() || self.is_biased(word))
            };
            admit(word, kind).or_else(|| gap(word))
        };
        while let Some(mut entered) = enter(word) {
            if !has_waiters(word) && super::phases::looks_at_clock::<P>(P::turn()) {
                self.note_held(word, side_of(kind), PhaseClock::<P>::now(), 0);
                if self.owed_to(word, side_of(kind)) <= 0 {
                    entered &= !BOTH;
                }
            }
            match self.word.compare_exchange_weak(word, entered, Acquire, Relaxed) {
                Ok(_) => {
                    if kind == Kind::Read && super::phases::looks_at_clock::<P>(P::turn()) {
                        self.storage.owner().note_after_wait();
                    }
                    return true;
                }
                Err(_) if kind == Kind::Read => {
                    // Readers whose entries collide enter faster one after the other.
                    let until = P::now() + LONGEST_IN_LINE_NS;
                    let until = deadline.map_or(until, |deadline| deadline.min(until));
                    let wait = || self.wait_for_share(kind, deadline);
                    return self.storage.at_front(Some(until), wait).unwrap_or_else(wait);
                }
                Err(found) => word = found,
            }
        }
        self.wait_for_share(kind, deadline)
    }

    fn wait_for_share(&self, kind: Kind, deadline: Option<u64>) -> bool {
        let mut woken = false;
        loop {
            if self.spin_for_share(kind, woken, deadline) {
                return true;
            }
            let node = Node::new(kind, P::now());
            let alone = || self.spin_for_share(kind, woken, deadline).then_some(None);
            let queued = |queue| self.queue_for_share(kind, &node, woken, queue);
            match self.enter_or_queue(deadline, alone, queued) {
                None => return false,
                Some(None) => return true,
                Some(Some((place, soon))) => {
                    match self.sleep_until_share(place, &node, soon, deadline) {
                        Wait::Granted => return true,
                        Wait::TimedOut => return false,
                        Wait::Woken => woken = true,
                    }
                }
            }
        }
    }

    /// For about as long as a wake-up takes.
    fn spin_for_share(&self, kind: Kind, woken: bool, deadline: Option<u64>) -> bool {
        let side = side_of(kind);
        let other = side.other();
        let mut budget = None;
        let (mut blocked_since, mut free_since, mut watches, mut naps) = (0, 0, 0, 0);
        loop {
            let word = self.word.load(Relaxed);
            if blocked_since == 0 && is_held_by(word, other) {
                blocked_since = PhaseClock::<P>::now().max(1);
                self.note_held(word, other, blocked_since, 0);
            }
            let is_ahead =
                blocked_since != 0 && self.owed_to(word, side) < -(ticks(latency::<P>()) as i32);
            let gap = enter_gap(word, kind);
            let entered = admit(word, kind).or(gap);
            let must_be_patient =
                is_free(word) && (is_ahead || gap.is_some()) && !self.is_biased(word);
            if !must_be_patient {
                free_since = 0;
            }
            if let Some(entered) = entered {
                let now = if must_be_patient { P::now() } else { 0 };
                if must_be_patient && (free_since == 0 || word & WATCH == 0) {
                    free_since = now;
                    watches += 1;
                    let _ = self.word.compare_exchange(word, word | WATCH, Relaxed, Relaxed);
                }
                if !must_be_patient || now >= free_since + ABSENCE {
                    let entered = if woken { entered & !WRITER_WOKEN } else { entered };
                    if self.word.compare_exchange_weak(word, entered, Acquire, Relaxed).is_ok() {
                        if blocked_since != 0 {
                            let now = PhaseClock::<P>::now();
                            self.note_held(entered, other, now, now.wrapping_sub(blocked_since));
                        }
                        self.events.count(Event::OptLock);
                        return true;
                    }
                } else if watches * ABSENCE <= latency::<P>() {
                    P::relax(Some(free_since + ABSENCE));
                    continue;
                }
            } else if self.must_queue(word, side) {
                return false;
            }
            if has_writer(word) && !self.owner_may_run() {
                if naps == NAPS {
                    return false;
                }
                P::give_way(NAP);
                naps += 1;
                continue;
            }
            let spin = budget.get_or_insert_with(|| SpinBudget::new::<P>(latency::<P>(), deadline));
            if !spin.relax::<P>() {
                self.events.count(Event::OptFail);
                return false;
            }
        }
    }

    /// There is nothing to spin for: the other side's phase runs, or this side is owed enough to end it.
    fn must_queue(&self, word: u64, side: Side) -> bool {
        let is_others = is_out(word, side) && has_waiters(word) && !is_free(word);
        is_others || is_held_by(word, side.other()) && self.owed_to(word, side) >= slack::<P>()
    }

    /// What this side is owed, as the clock of the queue that `word` names knows; nothing where there is none.
    fn owed_to(&self, word: u64, side: Side) -> i32 {
        self.storage.clock(word).map_or(0, |clock| clock.account().owed_to(side))
    }

    fn note_held(&self, word: u64, holder: Side, now: u32, known: u32) {
        if let Some(clock) = self.storage.clock(word) {
            clock.account().note(holder, now, known, slack::<P>());
        }
    }

    /// Readers have slots, so a word that says "free" does not mean that the lock is unused.
    fn is_biased(&self, word: u64) -> bool {
        has_waiters(word) && self.storage.place(word).is_biased()
    }

    /// Where it waits, and whether it has the lock soon; none if it has entered.
    fn queue_for_share<'a>(
        &'a self,
        kind: Kind,
        node: &Node<P>,
        woken: bool,
        queue: OwnQueue<'a, P, L>,
    ) -> Option<Option<(&'a L::Place, bool)>> {
        let (side, now) = (side_of(kind), ticks(node.since()));
        let ended = self.queue_as(queue, node, woken, |queue, word| {
            if let Some(entered) = admit(word, kind) {
                return Step::Enter(if woken { entered & !WRITER_WOKEN } else { entered });
            }
            let mut next = word | queue.bits();
            if !has_waiters(word) {
                // A phase begins: that of the side which holds the lock, or which it was left to.
                let is_writers = if is_free(word) { side == Side::Read } else { has_writer(word) };
                next = word & !QUEUE_FLAGS | queue.bits();
                if is_writers {
                    next |= WRITE_PHASE;
                }
            }
            if woken {
                next &= !WRITER_WOKEN;
                if phase(next) == side {
                    // No other is woken before this one has had its turn.
                    next |= WRITER_WOKEN;
                    node.woken_in_vain.set(1);
                }
            }
            if phase(next) == side {
                next |= ACT;
            } else if next & BOTH != BOTH {
                if word & shut(side) == 0 || !has_waiters(word) {
                    let left = slack::<P>() - queue.clock().account().owed_to(side);
                    queue.clock().end(now.wrapping_add(left.max(0) as u32));
                }
                next |= shut(side);
                if queue.clock().remaining(now) <= 0 {
                    next |= BOTH | ACT;
                }
            }
            Step::Queue(next)
        })?;
        match ended {
            Queueing::Queued(queue) => {
                let woken = self.serve_shares(&queue);
                let soon = self.word.load(Relaxed) & BOTH == BOTH;
                let place = queue.place();
                drop(queue);
                woken.wake();
                Some(Some((place, soon)))
            }
            _ => Some(None),
        }
    }

    fn sleep_until_share(
        &self,
        place: &L::Place,
        node: &Node<P>,
        soon: bool,
        mut deadline: Option<u64>,
    ) -> Wait {
        let side = side_of(node.kind);
        let mut is_absent = None;
        if soon {
            self.spin_on(node, P::now() + latency::<P>());
        }
        loop {
            match node.state.load(Acquire) {
                GRANTED => break,
                WOKEN_DEQUEUED => return Wait::Woken,
                APPOINTED => {
                    let _ = node.state.compare_exchange(APPOINTED, WAITING, Relaxed, Relaxed);
                    continue;
                }
                _ => {}
            }
            if deadline.is_some_and(|deadline| P::now() >= deadline) {
                if self.withdraw(place, node) {
                    return Wait::TimedOut;
                }
                deadline = None;
                continue;
            }
            let look = match self.keep_time(place, node, side, is_absent.take()) {
                Look::Again => continue,
                Look::Watch(until) => {
                    if !self.spin_on(node, until) {
                        let word = self.word.load(Relaxed);
                        is_absent = Some(word & WATCH != 0 && is_free(word));
                    }
                    continue;
                }
                Look::At(look) => look,
                Look::Spin(until) => {
                    if self.spin_on(node, until) {
                        continue;
                    }
                    // The holder that is left sees to this one.
                    if self.word.load(Relaxed) & BOTH != BOTH {
                        continue;
                    }
                    None
                }
            };
            let alarm = match (look, deadline) {
                (Some(look), Some(deadline)) => Some(look.min(deadline)),
                (look, deadline) => look.or(deadline),
            };
            self.count_sleep(node.kind);
            P::park(&node.state, WAITING, alarm);
        }
        self.note_owner(node.kind);
        node.wake_chain();
        self.events.count(match node.kind {
            Kind::Read => Event::Rlock,
            _ => Event::Wlock,
        });
        Wait::Granted
    }

    /// True if it is no longer waiting.
    fn spin_on(&self, node: &Node<P>, until: u64) -> bool {
        loop {
            if node.state.load(Relaxed) != WAITING {
                return true;
            }
            if P::now() >= until {
                return false;
            }
            P::relax(Some(until));
        }
    }

    /// The first of those that are shut out ends the phase of the others.
    fn keep_time(
        &self,
        place: &L::Place,
        node: &Node<P>,
        side: Side,
        is_absent: Option<bool>,
    ) -> Look {
        let Some(queue) = self.own_queue_in(place) else { return Look::At(None) };
        if !node.is_linked(&queue) {
            // Its state is about to say why.
            return Look::At(None);
        }
        let word = self.word.load(Relaxed);
        let is_first = self.first(&queue, side).is_some_and(|first| core::ptr::eq(first, node));
        let now = P::now();
        if phase(word) == side && word & BOTH != BOTH && is_first && node.woken_in_vain.get() != 0 {
            let turn = node.since() + 2 * ((slack::<P>() as u64) << TICK_SHIFT);
            if now < turn {
                return Look::At(Some(turn));
            }
            if !is_free(self.shut_both()) {
                return Look::Spin(now + latency::<P>());
            }
            return self.served(queue);
        }
        if word & BOTH != shut(side) || !is_first {
            return Look::At(None);
        }
        let remaining = queue.clock().remaining(ticks(now));
        if remaining <= 0 {
            let before = self.shut_both();
            if !is_free(before) {
                return Look::Spin(now + latency::<P>());
            }
            return self.served(queue);
        }
        if is_free(word) && !place.is_biased() && is_absent.is_none() {
            self.word.fetch_or(WATCH, Relaxed);
            return Look::Watch(now + ABSENCE);
        }
        if is_absent == Some(true) {
            queue.clock().note_sparse(side.other());
            let woken = self.use_gap(&queue);
            drop(queue);
            woken.wake();
            return Look::Again;
        }
        let ends = now + ((remaining as u64) << TICK_SHIFT);
        match ends.checked_sub(latency::<P>()) {
            Some(look) if look > now => Look::At(Some(look)),
            _ => Look::Spin(ends),
        }
    }

    fn served(&self, queue: OwnQueue<'_, P, L>) -> Look {
        let woken = self.serve_shares(&queue);
        drop(queue);
        woken.wake();
        Look::Again
    }

    /// The first waiter of this side.
    fn first<'q>(&self, queue: &'q OwnQueue<'_, P, L>, side: Side) -> Option<&'q Node<P>> {
        match side {
            Side::Read => queue.oldest_reader().or_else(|| queue.oldest_upgradable()),
            Side::Write => queue.oldest_that_writes(),
        }
    }

    /// Nobody enters any more. The queue's lock is held. The word before.
    fn shut_both(&self) -> u64 {
        let mut word = self.word.load(Relaxed);
        loop {
            match self.word.compare_exchange_weak(word, shut_to_all(word), Acquire, Relaxed) {
                Ok(_) => return word,
                Err(found) => word = found,
            }
        }
    }

    pub(super) fn released_share(&self, word: u64) {
        if !is_free(word) {
            // An upgrader has become the only reader.
            return self.serve_after_release(word);
        }
        if self.is_biased(word) && word & BOTH != BOTH {
            return self.serve_biased(word);
        }
        if word & ACT == 0 {
            if word & BOTH != 0 && self.storage.place(word).clock().is_sparse(phase(word)) {
                if let Some(queue) = self.own_queue(word) {
                    let woken = self.use_gap(&queue);
                    if queue.clock().is_sparse(phase(word)) {
                        queue.clock().use_sparse(phase(word));
                    }
                    drop(queue);
                    woken.wake();
                }
            }
            return;
        }
        if word & WRITER_WOKEN != 0 && word & BOTH != BOTH {
            return;
        }
        self.serve_after_release(word);
    }

    /// Most readers do not take this lock: those that wait are let in at once, and else one writer competes.
    fn serve_biased(&self, word: u64) {
        let Some(queue) = self.own_queue(word) else { return };
        let word = self.word.load(Relaxed);
        let mut woken = WakeList::none();
        if is_free(word) && word & BOTH != BOTH {
            if self.first(&queue, Side::Read).is_some() {
                woken = self.begin_reading(&queue);
            } else if word & WRITER_WOKEN == 0 && queue.oldest_that_writes().is_some() {
                woken = self.wake_competitor(&queue, word).unwrap_or(woken);
            }
        }
        drop(queue);
        woken.wake();
    }

    /// The other side has left its phase's lock free, and is not expected back soon: the first of those that are shut out enters.
    fn use_gap(&self, queue: &OwnQueue<'_, P, L>) -> WakeList<P> {
        let mut woken = WakeList::none();
        let mut word = self.word.load(Relaxed);
        let side = if word & CLOSED != 0 { Side::Read } else { Side::Write };
        let Some(first) = self.first(queue, side) else {
            return woken;
        };
        while let Some(mut entered) = enter_gap(word, first.kind) {
            if first.woken_in_vain.get() != 0 {
                entered &= !WRITER_WOKEN;
            }
            match self.word.compare_exchange_weak(word, entered, Acquire, Relaxed) {
                Ok(_) => {
                    woken.take(queue, first);
                    self.events.count(Event::PhaseIdle);
                    self.left(queue, side, &mut woken);
                    break;
                }
                Err(found) => word = found,
            }
        }
        woken
    }

    /// Some of this side are off the queue.
    fn left(&self, queue: &OwnQueue<'_, P, L>, side: Side, woken: &mut WakeList<P>) {
        if queue.is_empty() {
            self.word.fetch_and(!QUEUE_FLAGS, Relaxed);
        } else if let Some(first) = self.first(queue, side) {
            woken.appoint(first);
        } else if self.word.load(Relaxed) & BOTH != BOTH {
            self.word.fetch_and(!shut(side), Relaxed);
        }
    }

    /// Takes those off the queue that may hold the lock now.
    pub(super) fn serve_shares(&self, queue: &OwnQueue<'_, P, L>) -> WakeList<P> {
        loop {
            // Pairs with the Release of the last holder, where the word is this thread's.
            let word = self.word.load(Acquire);
            if !has_waiters(word) {
                return WakeList::none();
            }
            if !is_free(word) {
                let writer = queue.oldest_that_writes();
                let upgrader = writer.filter(|it| it.kind == Kind::Upgrade && readers(word) == 1);
                let may_join = admits_upgradable(word) && word & CLOSED == 0;
                let upgradable = queue.oldest_upgradable().filter(|_| may_join);
                if let Some(next) = upgrader.or(upgradable) {
                    return self.grant_one_share(queue, next);
                }
                let join =
                    writer.is_none() && admits_reader(word) && queue.oldest_reader().is_some();
                return if join { self.begin_reading(queue) } else { WakeList::none() };
            }
            let only_writers = self.first(queue, Side::Read).is_none();
            if word & BOTH == BOTH {
                return self.switch(queue, word);
            }
            let has_own = phase(word) == Side::Write && queue.oldest_that_writes().is_some();
            if only_writers && word & BOTH == 0 || has_own {
                if word & WRITER_WOKEN != 0 {
                    return WakeList::none();
                }
                if let Some(woken) = self.wake_competitor(queue, word) {
                    return woken;
                }
                continue;
            }
            if phase(word) == Side::Read && self.first(queue, Side::Read).is_some() {
                return self.begin_reading(queue);
            }
            if word & BOTH != 0 && queue.clock().remaining(PhaseClock::<P>::now()) > 0 {
                return WakeList::none();
            }
            self.shut_both();
        }
    }

    fn grant_one_share(&self, queue: &OwnQueue<'_, P, L>, node: &Node<P>) -> WakeList<P> {
        let mut woken = self.grant_one(queue, node);
        if !woken.is_empty() && !queue.is_empty() {
            self.left(queue, side_of(node.kind), &mut woken);
        }
        woken
    }

    /// The writer that has waited longest competes with those that are awake. None if the word has changed.
    fn wake_competitor(&self, queue: &OwnQueue<'_, P, L>, word: u64) -> Option<WakeList<P>> {
        let oldest = queue.oldest_that_writes().expect("it waits");
        let is_last = queue.is_only_writer(oldest);
        let mut next = word | WRITER_WOKEN;
        if is_last {
            next &= !ACT;
            if queue.oldest_reader().is_none() {
                next = word & !QUEUE_FLAGS;
            }
        }
        self.word.compare_exchange(word, next, Relaxed, Relaxed).ok()?;
        let mut woken = WakeList::none();
        woken.take_to_retry(queue, oldest);
        if phase(word) == Side::Read {
            // It kept time.
            if let Some(first) = queue.oldest_that_writes() {
                woken.appoint(first);
            }
        }
        self.events.count(Event::PhaseWoken);
        Some(woken)
    }

    /// The lock is free and shut, the word this thread's: it is handed over.
    fn switch(&self, queue: &OwnQueue<'_, P, L>, word: u64) -> WakeList<P> {
        let from = phase(word);
        let to = if self.first(queue, from.other()).is_some() { from.other() } else { from };
        let now = PhaseClock::<P>::now();
        if let Some(first) = self.first(queue, from.other()) {
            let known = now.wrapping_sub(ticks(first.since()));
            queue.clock().account().note(from, now, known, slack::<P>());
        }
        if to == Side::Read {
            return self.begin_reading(queue);
        }
        let mut woken = WakeList::none();
        woken.take(queue, queue.oldest_that_writes().expect("a side that waits"));
        self.events.count(Event::PhaseWrite);
        self.events.count(Event::WakeWriter);
        self.storage.owner().forget();
        self.begin_phase(queue, to, now);
        let flags = self.flags(queue, to);
        self.word.store(WRITER | flags, Relaxed);
        if let Some(first) = self.first(queue, Side::Read) {
            woken.appoint(first);
        }
        woken
    }

    fn begin_phase(&self, queue: &OwnQueue<'_, P, L>, side: Side, now: u32) {
        let owed = queue.clock().account().owed_to(side).max(0);
        queue.clock().end(now.wrapping_add((owed + slack::<P>()) as u32));
    }

    /// What the word says of the queue in a phase of this side.
    fn flags(&self, queue: &OwnQueue<'_, P, L>, side: Side) -> u64 {
        if queue.is_empty() {
            // The other side is not there, but owes this one some time.
            return if queue.clock().account().owed_to(side) > 0 { shut(side.other()) } else { 0 };
        }
        let waits = Side::BOTH.map(|side| self.first(queue, side).is_some());
        let mut flags = queue.bits();
        if side == Side::Write {
            flags |= WRITE_PHASE;
        }
        if waits[side.other() as usize] {
            flags |= shut(side.other());
        }
        if waits[side as usize] {
            flags |= ACT;
        }
        flags
    }

    /// Grants the lock to every waiting reader, in addition to readers that hold it already.
    pub(super) fn begin_reading(&self, queue: &OwnQueue<'_, P, L>) -> WakeList<P> {
        let mut before = self.word.load(Relaxed);
        let waits = queue.oldest_upgradable();
        // No writer must enter meanwhile, nor another one that may upgrade: one more reader keeps the lock, unless it is
        // shut to all.
        let (mut keeper, mut may_upgrade);
        loop {
            if before & UPGRADING != 0 || has_writer(before) {
                return WakeList::none();
            }
            may_upgrade = if waits.is_some() && admits_upgradable(before) { UPGRADABLE } else { 0 };
            keeper = READER | may_upgrade;
            if before & BOTH == BOTH && is_free(before) {
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
        let (mut entering, mut woken) = (may_upgrade, WakeList::none());
        if let Some(upgradable) = waits.filter(|_| may_upgrade != 0) {
            woken.take(queue, upgradable);
        }
        let most = (READER_LIMIT - 1).saturating_sub(readers(before)) as u32;
        while woken.len() < most {
            let Some(reader) = queue.oldest_reader() else { break };
            woken.take(queue, reader);
        }
        entering += u64::from(woken.len()) * READER;
        self.begin_phase(queue, Side::Read, PhaseClock::<P>::now());
        let flags = self.flags(queue, Side::Read);
        let mut word = before;
        loop {
            let next = ((word & !QUEUE_FLAGS) + entering - keeper) | flags;
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        self.storage.owner().forget();
        self.events.count(Event::PhaseRead);
        self.events.add(Event::WakeReader, u64::from(woken.len()));
        if let Some(first) = queue.oldest_that_writes() {
            woken.appoint(first);
        }
        woken
    }

    /// Ends a phase that is over: what one that was refused owes to those that wait.
    pub(super) fn end_overdue_share(&self) {
        let word = self.word.load(Relaxed);
        if !has_waiters(word) || matches!(word & BOTH, 0 | BOTH) {
            return;
        }
        let is_over = |clock: &PhaseClock<P>| clock.remaining(PhaseClock::<P>::now()) <= 0;
        if !is_over(self.storage.place(word).clock()) {
            return;
        }
        let Some(queue) = self.try_own_queue(word) else { return };
        if !is_over(queue.clock()) || matches!(self.word.load(Relaxed) & BOTH, 0 | BOTH) {
            return;
        }
        self.shut_both();
        let woken = self.serve_shares(&queue);
        drop(queue);
        woken.wake();
    }

    /// `node` has given up and is off the queue.
    pub(super) fn gave_up_share(
        &self,
        queue: &OwnQueue<'_, P, L>,
        node: &Node<P>,
    ) -> (u64, *const P::AtomicU32) {
        let side = side_of(node.kind);
        let woken = if node.woken_in_vain.get() != 0 { WRITER_WOKEN } else { 0 };
        match self.first(queue, side) {
            Some(first) if first.kind == Kind::Upgrade => (woken, core::ptr::null()),
            Some(first) => {
                first.state.store(APPOINTED, Relaxed);
                (woken, &raw const first.state)
            }
            None if self.word.load(Relaxed) & BOTH == BOTH => (woken, core::ptr::null()),
            None => (woken | shut(side), core::ptr::null()),
        }
    }
}
