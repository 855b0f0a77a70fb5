//! [`TimeFair`](crate::policy::TimeFair): the two sides divide the lock's time, as their account says (`account.rs`).
//! [`PhaseFair`](crate::policy::PhaseFair) is the same with no slack: no thread passes a waiter.
//!
//! ```text
//!                    the first waits                     it is owed enough
//!   no waiters ──────────────────────► its side keeps ─────────────────────► both are shut
//!    (one side may still be shut)           time  ▲                             │ last holder leaves:
//!                                                 │                             │ hand over
//!                                                 └── the next phase: the other is shut ◄┘
//! ```
//!
//! * While the accounts are level, threads spin for as long as a wake-up takes, and take the lock as it comes. One whose side is
//!   owed more than a wake-up says so (`wanted`), and the other side lets it in first.
//! * Those that sleep are passed by newcomers of both sides. The first waiter of the side whose phase it is not keeps time: when
//!   its side is owed the slack, it shuts both sides out. Then the last holder hands the lock over: to readers, or to the
//!   writer that waits longest.
//! * The next phase lasts for what its side is owed and the slack; meanwhile the other side is shut out, if it waits. So a
//!   change of sides, which costs wake-ups, comes seldom, unless one side is far behind.
//! * A side that is shut out uses the lock when the other has left it free for a while: a *gap*, which ends the phase. It watches whether
//!   a thread enters (`WATCHED`). A thread on the CPU that had the lock last need not watch: no other CPU is using the lock.
//!   Once a phase was found left, the next ones are given up by those who leave the lock free. A side that owes the other more than
//!   the slack waits longer before it uses a gap.
//! * A waiter whose side has long been ahead looks once in each slack whether the other side has left.
//! * A reader that was woken to try again, and lost, is granted the lock the next time.
//! * A side without waiters stays shut out for as long as it owes the other, so that a thread that comes right back does
//!   not take a lock that stands free for a moment. A thread that only tries takes it: it passes no waiter.
//! * Writers among themselves: the unlocking thread wakes the writer that has waited longest, which competes. If it gets
//!   nothing, it shuts the lock, and has it next, unless its side's phase is over.
//!
//! Invariants, in addition to those of the core
//! 1. If both sides are shut, `MUST_SERVE` is set. If the lock is free as well, only the holder of the queue's lock writes the word.
//! 2. If both sides are not shut and a thread waits in the other side's phase, the first of its side keeps time, or has been
//!    woken to do so (`APPOINTED`), and the end of that phase is set. One that upgrades keeps no time: it has the lock as soon as
//!    the other readers have left.
//! 3. If one waits in its own side's phase, `MUST_SERVE` is set. In the writers' phase readers then do not join others, so the lock
//!    becomes free. In the readers' phase an upgradable reader that waits keeps other upgradable ones out after the slack.
//! 4. Where no thread waits, at most one side is shut, and `WATCHED` and `WANTED_BY_…` may be set; nothing else is.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::account::{TICK_SHIFT, in_units, ticks};
use super::core::{RawRwSem, Step};
use super::phase_clock::PhaseClock;
use super::queue_storage::{OwnQueue, Place, QueueStorage};
use super::wait_queue::{APPOINTED, GRANTED, Kind, Node, WAITING, WOKEN_DEQUEUED, WakeList};
use super::word::*;
use crate::events::{CountEvents, Event};
use crate::platform::{AtomicCell, NAP, PlainCell, Platform, Tunable};
use crate::policy::{Discipline, LONGEST_IN_LINE_NS, Policy, SPIN_ON_OWNER_NS, Shares};
use crate::spin_budget::SpinBudget;

/// The knobs of [`Shares`], which says what each is.
const SLACK: Tunable = Tunable::new("slack", Shares::TIME_FAIR.slack, 1..=1_024);
const SPIN: Tunable = Tunable::new("spin", Shares::TIME_FAIR.spin, 1..=1_024);
/// A side that leaves the lock free for longer than this, ns, has gone elsewhere. Longer: the lock stands free. Shorter: a
/// side that comes right back loses its phase. Chosen, not measured: a few transfers of a cache line.
const ABSENCE: Tunable = Tunable::new("absence_ns", 500, 0..=1_000_000);
/// How often a thread naps before it queues, to leave its CPU to the holder that was running there. More: a holder that
/// was stopped there is waited for in vain. Chosen, not measured.
const NAPS: Tunable = Tunable::new("naps", 2, 0..=64);
/// One entry in this many looks at the clock. Fewer: entries take longer. More: a side that owes nothing any more stays shut
/// out for longer.
const ENTRIES_PER_CLOCK: Tunable = Tunable::new("entries_per_clock", 16, 1..=4_096);

pub(super) const TUNABLES: &[Tunable] = &[SLACK, SPIN, ABSENCE, NAPS, ENTRIES_PER_CLOCK];

/// No reader, or no writer, enters past those that wait.
fn shut(side: Side) -> u64 {
    if side == Side::Read { CLOSED } else { WRITERS_OUT }
}
const BOTH: u64 = CLOSED | WRITERS_OUT;

/// One of this side spins, and is owed time.
fn wanted(side: Side) -> u64 {
    if side == Side::Read { WANTED_BY_READER } else { WANTED_BY_WRITER }
}

/// Nobody enters.
pub(super) fn shut_to_all(word: u64) -> u64 {
    word | BOTH | MUST_SERVE
}

/// The word after a newcomer has entered; none if it may not.
pub(super) fn admit(word: u64, kind: Kind) -> Option<u64> {
    let side = side_of(kind);
    let word = word & !(WATCHED | wanted(side));
    match kind {
        _ if is_out(word, side) => None,
        _ if is_free(word) && word & wanted(side.other()) != 0 => None,
        // Writers that wait in their own phase are served when the lock is free: readers must not overlap.
        Kind::Read | Kind::Upgradable
            if has_waiters(word)
                && word & (WRITE_PHASE | MUST_SERVE) == WRITE_PHASE | MUST_SERVE
                && !is_free(word) =>
        {
            None
        }
        Kind::Read if admits_reader(word) => Some(plus_reader(word)),
        Kind::Write if is_free(word) => Some(word + WRITER),
        Kind::Upgradable if admits_upgradable(word) && word & UPGRADABLE_OUT == 0 => {
            Some(plus_reader(word) | UPGRADABLE)
        }
        _ => None,
    }
}

/// Newcomers of this side do not enter.
fn is_out(word: u64, side: Side) -> bool {
    word & shut(side) != 0
}

/// The word after a thread that only tries has entered: without waiters it passes none.
pub(super) fn admit_at_once(word: u64, kind: Kind) -> Option<u64> {
    let word = word & !(WANTED_BY_READER | WANTED_BY_WRITER);
    admit(if has_waiters(word) { word } else { word & !QUEUE_FLAGS }, kind)
}

/// The word after one has used a moment in which the other side has left its phase's lock free.
fn enter_gap(word: u64, kind: Kind) -> Option<u64> {
    let side = side_of(kind);
    let has_to_wait = is_out(word, side) || word & wanted(side.other()) != 0;
    if !has_to_wait || word & BOTH == BOTH || !is_free(word) {
        return None;
    }
    let word = word & !(WANTED_BY_READER | WANTED_BY_WRITER | WATCHED);
    // Without waiters it is the end of the other side's phase.
    let word = if has_waiters(word) { word } else { 0 };
    match kind {
        Kind::Read => Some(word + READER),
        Kind::Write => Some(word + WRITER),
        Kind::Upgradable => Some((word + READER) | UPGRADABLE),
        Kind::Upgrade => None,
    }
}

/// The word once a thread of this side that was woken to compete has come.
fn came(word: u64, side: Side) -> u64 {
    if side == Side::Write { word & !WRITER_WOKEN } else { word }
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

/// An entry looks at the clock: as good as by chance, so that a thread that uses several locks by turns looks at the
/// clock of each.
fn looks_at_clock<P: Platform>() -> bool {
    // Two rounds of a multiplicative hash, for its upper bits.
    let mixed = P::turn().wrapping_mul(0x9e37_79b9);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b);
    mixed < u32::MAX / P::tuned(ENTRIES_PER_CLOCK)
}

enum Wait {
    Granted,
    TimedOut,
    Woken,
}

enum Look {
    /// Never: it is off the queue, and its state is about to say why.
    Taken,
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
                    .filter(|_| self.storage.owner().is_here() || self.may_barge(kind))
            };
            admit(word, kind).or_else(|| gap(word))
        };
        while let Some(mut entered) = enter(word) {
            if !has_waiters(word) && looks_at_clock::<P>() {
                self.note_held(side_of(kind), PhaseClock::<P>::now(), 0);
                if self.owed_to(side_of(kind)) <= 0 {
                    entered &= !BOTH;
                }
            }
            match self.word.compare_exchange_weak(word, entered, Acquire, Relaxed) {
                Ok(_) => {
                    if kind == Kind::Read && looks_at_clock::<P>() {
                        self.storage.owner().note();
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
        // It may lose its CPU while it spins, and has waited all the same.
        let (mut woken, since) = (false, P::now());
        loop {
            if Self::spin() != 0 {
                let spin = || self.spin_for_share(kind, woken, deadline);
                let spun = match woken || !has_waiters(self.word.load(Relaxed)) {
                    true => spin(),
                    // One at a time disturbs those least that use the lock.
                    false => {
                        let until = P::now() + Self::spin();
                        let until = deadline.map_or(until, |deadline| deadline.min(until));
                        self.storage.at_front(Some(until), spin).unwrap_or(false)
                    }
                };
                if spun {
                    return true;
                }
            }
            let node = if woken { Node::again(kind, since) } else { Node::new(kind, since) };
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
        let absence = self.absence(side);
        let mut budget = None;
        let (mut blocked_since, mut free_since, mut watches, mut naps) = (0, 0, 0, 0);
        loop {
            let word = self.word.load(Relaxed);
            // One that was a reader and upgraded has the lock in the readers' time.
            let has_upgraded = side == Side::Read && has_waiters(word) && phase(word) == side;
            if blocked_since == 0 && is_held_by(word, other) && !has_upgraded {
                blocked_since = PhaseClock::<P>::now().max(1);
                self.note_held(other, blocked_since, 0);
                if self.owed_to(side) > ticks(latency::<P>()) as i32 {
                    let wanted = word | wanted(side);
                    let _ = self.word.compare_exchange(word, wanted, Relaxed, Relaxed);
                    continue;
                }
            }
            // That the other side leaves it free is the end of its phase.
            let gap = enter_gap(word & !WATCHED, kind).map(|word| word & !shut(side));
            let entered = admit(word, kind).or(gap);
            let must_be_patient = is_free(word) && gap.is_some() && !self.may_barge(kind);
            if !must_be_patient || self.storage.is_read() {
                free_since = 0;
            }
            if let Some(entered) = entered {
                let now = if must_be_patient { P::now() } else { 0 };
                if must_be_patient && (free_since == 0 || word & WATCHED == 0) {
                    free_since = now;
                    watches += 1;
                    let _ = self.word.compare_exchange(word, word | WATCHED, Relaxed, Relaxed);
                }
                if !must_be_patient || now >= free_since + absence {
                    let entered = if woken { came(entered, side) } else { entered };
                    if self.word.compare_exchange_weak(word, entered, Acquire, Relaxed).is_ok() {
                        if blocked_since != 0 {
                            let now = PhaseClock::<P>::now();
                            self.note_held(other, now, now.wrapping_sub(blocked_since));
                        }
                        self.events.count(Event::OptLock);
                        if woken && side == Side::Read {
                            self.let_next_in();
                        }
                        return true;
                    }
                } else if watches * absence <= latency::<P>() {
                    P::relax(Some(free_since + absence));
                    continue;
                }
            } else if self.must_queue(word, side) {
                return false;
            }
            if has_writer(word) && !self.owner_may_run() {
                if naps == P::tuned(NAPS) {
                    return false;
                }
                P::give_way(NAP);
                naps += 1;
                continue;
            }
            let spin = budget.get_or_insert_with(|| {
                let among_writers = side == Side::Write && has_writer(word);
                let ns =
                    if among_writers { Self::spin().max(SPIN_ON_OWNER_NS) } else { Self::spin() };
                SpinBudget::new::<P>(ns, deadline)
            });
            if !spin.relax::<P>() {
                self.events.count(Event::OptFail);
                return false;
            }
        }
    }

    fn knobs() -> Shares {
        match Pol::DISCIPLINE {
            Discipline::Shares(knobs) => knobs,
            Discipline::Compete(_) => unreachable!("it has another slow path"),
        }
    }

    /// By how many ticks one side may be ahead while the other wants the lock.
    fn slack() -> i32 {
        match Self::knobs().slack {
            0 => 0,
            slack => in_units(ticks(latency::<P>()) * P::tuned(SLACK.with_value(slack))) as i32,
        }
    }

    /// For how many ns a thread spins.
    fn spin() -> u64 {
        match Self::knobs().spin {
            0 => 0,
            spin => latency::<P>() * u64::from(P::tuned(SPIN.with_value(spin))),
        }
    }

    /// For how many ns this side lets the lock stand free in the other's phase: longer if it owes the other more than the slack, but
    /// not for longer than a wake-up.
    fn absence(&self, side: Side) -> u64 {
        let owes = (-self.owed_to(side) - Self::slack()).max(0) as u64;
        (u64::from(P::tuned(ABSENCE)) + (owes << TICK_SHIFT) / 16).min(latency::<P>())
    }

    /// There is nothing to spin for: the other side's phase runs, or this side is owed enough to end it.
    fn must_queue(&self, word: u64, side: Side) -> bool {
        let is_others = is_out(word, side) && has_waiters(word) && !is_free(word);
        let is_own = has_waiters(word) && phase(word) == side;
        is_others
            || is_held_by(word, side.other()) && !is_own && self.owed_to(side) >= Self::slack()
    }

    fn owed_to(&self, side: Side) -> i32 {
        self.storage.account().owed_to(side)
    }

    fn note_held(&self, holder: Side, now: u32, known: u32) {
        self.storage.account().note(holder, now, known, Self::slack());
    }

    /// This side has left the lock free in a phase before. Now and then it is found out anew.
    fn has_left_before(&self, side: Side) -> bool {
        let account = self.storage.account();
        let has_left = account.is_sparse(side);
        if has_left && looks_at_clock::<P>() {
            account.note_sparse(side, false);
        }
        has_left
    }

    /// Readers have slots, so a word that says "free" does not mean that the lock is unused.
    fn is_biased(&self, word: u64) -> bool {
        has_waiters(word) && self.storage.place(word).is_biased()
    }

    /// It disturbs no other side's phase.
    fn may_barge(&self, kind: Kind) -> bool {
        self.storage.is_biased() && self.owed_to(side_of(kind)) >= 0
    }

    /// Where it waits, and whether it has the lock soon; none if it has entered.
    fn queue_for_share<'a>(
        &'a self,
        kind: Kind,
        node: &Node<P>,
        woken: bool,
        queue: OwnQueue<'a, P, L>,
    ) -> Option<Option<(&'a L::Place, bool)>> {
        let (side, now) = (side_of(kind), PhaseClock::<P>::now());
        let queued = self.queue_as(queue, node, woken, |queue, word| {
            if let Some(entered) = admit(word, kind) {
                return Step::Enter(if woken { came(entered, side) } else { entered });
            }
            let word = word & !wanted(side);
            let mut next = word | queue.bits();
            if !has_waiters(word) {
                // A phase begins: that of the side which holds the lock, or which it was left to.
                let is_writers = if is_free(word) { side == Side::Read } else { has_writer(word) };
                next = word & !QUEUE_FLAGS | queue.bits();
                if is_writers {
                    next |= WRITE_PHASE;
                }
                queue.clock().set_brief(self.has_left_before(phase(next)));
            }
            if phase(next) != side && self.first(queue, side).is_none() {
                let left = Self::slack() - self.owed_to(side);
                queue.clock().end(now.wrapping_add(left.max(0) as u32));
            }
            if woken {
                next = came(next, side);
            }
            let was_woken_in_vain = woken && side == Side::Write && phase(next) == side;
            if was_woken_in_vain
                || Self::slack() == 0 && (side, phase(next)) != (Side::Read, Side::Read)
            {
                next = shut_to_all(next);
            } else if phase(next) == side {
                next |= MUST_SERVE;
            } else if queue.clock().remaining(now) <= 0 {
                next = shut_to_all(next);
            }
            Step::Queue(next)
        })?;
        let Some(queue) = queued else { return Some(None) };
        let woken = self.serve_shares(&queue);
        let soon = self.word.load(Relaxed) & BOTH == BOTH;
        let place = queue.place();
        drop(queue);
        woken.wake();
        Some(Some((place, soon)))
    }

    fn sleep_until_share(
        &self,
        place: &L::Place,
        node: &Node<P>,
        soon: bool,
        mut deadline: Option<u64>,
    ) -> Wait {
        let side = side_of(node.kind);
        // When it must look at the lock, ns; and what it has watched for.
        let (mut look, mut is_absent, mut sleeps) = (Some(0), None, false);
        if soon {
            self.spin_on(node, P::now() + Self::spin());
        }
        loop {
            let state = node.state.load(Acquire);
            sleeps = sleeps && state == GRANTED;
            let mut asleep = WAITING;
            match state {
                GRANTED => break,
                WOKEN_DEQUEUED => return Wait::Woken,
                APPOINTED => look = Some(0),
                _ => {}
            }
            if deadline.is_some_and(|deadline| P::now() >= deadline) {
                if self.withdraw(place, node) {
                    return Wait::TimedOut;
                }
                deadline = None;
                continue;
            }
            if look.is_some_and(|look| look == 0 || P::now() >= look) {
                look = match self.keep_time(place, node, side, is_absent.take()) {
                    Look::Again => continue,
                    Look::Watch(until) => {
                        is_absent = Some(self.watch(node, until));
                        continue;
                    }
                    // The holder that is left sees to this one.
                    Look::Spin(until) if !self.spin_on(node, until) && self.is_shut() => None,
                    Look::Spin(_) => continue,
                    Look::At(look) => look,
                    Look::Taken => {
                        asleep = state;
                        None
                    }
                };
            }
            let alarm = match (look, deadline) {
                (Some(look), Some(deadline)) => Some(look.min(deadline)),
                (look, deadline) => look.or(deadline),
            };
            self.count_sleep(node.kind);
            P::park(&node.state, asleep, alarm);
            sleeps = true;
        }
        if sleeps && node.woken_at.get() != 0 {
            let latency = P::now().saturating_sub(node.woken_at.get());
            P::note_wake_latency(latency.min(u32::MAX.into()) as u32);
        }
        node.wake_chain();
        if side == Side::Read {
            self.let_next_in();
        }
        self.events.count(match node.kind {
            Kind::Read => Event::Rlock,
            _ => Event::Wlock,
        });
        Wait::Granted
    }

    /// No thread enters.
    fn is_shut(&self) -> bool {
        self.word.load(Relaxed) & BOTH == BOTH
    }

    /// No thread has used the lock until then.
    fn watch(&self, node: &Node<P>, until: u64) -> bool {
        let mut is_read = false;
        while !self.spin_on(node, P::now()) && !is_read && P::now() < until {
            is_read = self.storage.is_read();
            P::relax(Some(until));
        }
        let word = self.word.load(Relaxed);
        word & WATCHED != 0 && is_free(word) && !is_read
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
        let Some(queue) = self.own_queue_in(place) else { return Look::Taken };
        if !node.is_linked(&queue) {
            return Look::Taken;
        }
        // It was appointed, if it was, under the queue's lock.
        node.state.store(WAITING, Relaxed);
        let word = self.word.load(Relaxed);
        let is_first = self.first(&queue, side).is_some_and(|first| core::ptr::eq(first, node));
        let now = P::now();
        if node.kind == Kind::Upgradable && phase(word) == side && word & BOTH != BOTH {
            return self.keep_upgradable_out(node, now);
        }
        if phase(word) == side || word & BOTH == BOTH || !is_first {
            return Look::At(None);
        }
        let remaining = queue.clock().remaining(ticks(now));
        let (is_left, is_biased) = (is_free(word), queue.place().is_biased());
        // Readers in slots do not say in the word that they have entered.
        if is_left && is_absent.is_none() && (remaining > 0 || is_biased) {
            self.word.fetch_or(WATCHED, Relaxed);
            return Look::Watch(now + self.absence(side));
        }
        let has_slept_through = remaining <= 0 && is_left && word & WATCHED != 0 && !is_biased;
        if is_absent == Some(true) || has_slept_through {
            self.storage.account().note_sparse(side.other(), true);
        }
        if remaining <= 0 {
            let before = self.shut_both();
            if !is_free(before) {
                return Look::Spin(now + Self::spin());
            }
            return self.served(queue);
        }
        if is_absent == Some(true) {
            let woken = self.use_gap(&queue);
            drop(queue);
            woken.wake();
            return Look::Again;
        }
        let ends = now + ((remaining as u64) << TICK_SHIFT);
        let slack = (Self::slack() as u64) << TICK_SHIFT;
        match ends.checked_sub(latency::<P>()).map(|look| look.min(now + slack)) {
            Some(look) if look > now => {
                // No entry until then: the other side has left.
                self.word.fetch_or(WATCHED, Relaxed);
                Look::At(Some(look))
            }
            _ => Look::Spin(ends),
        }
    }

    /// An upgradable reader that waits in its side's phase is passed by others for no longer than the slack. Plain readers enter all
    /// the while. The queue's lock is held.
    fn keep_upgradable_out(&self, node: &Node<P>, now: u64) -> Look {
        let slack = (Self::slack() as u64) << TICK_SHIFT;
        if now < node.since() + slack {
            return Look::At(Some(node.since() + slack));
        }
        self.word.fetch_or(UPGRADABLE_OUT, Relaxed);
        // When one that came before it is served, others may enter again.
        Look::At(Some(now + latency::<P>() * u64::from(Shares::TIME_FAIR.slack)))
    }

    fn served(&self, queue: OwnQueue<'_, P, L>) -> Look {
        let woken = self.serve_shares(&queue);
        drop(queue);
        woken.wake();
        Look::Again
    }

    /// The first waiter of this side: the one that keeps time in the other's phase. A thread that upgrades holds the lock already.
    fn first<'q>(&self, queue: &'q OwnQueue<'_, P, L>, side: Side) -> Option<&'q Node<P>> {
        match side {
            Side::Read => queue.oldest_reader().or_else(|| queue.oldest_upgradable()),
            Side::Write => queue.oldest_exclusive(),
        }
    }

    /// Nobody enters any more. The queue's lock is held. The word before.
    fn shut_both(&self) -> u64 {
        let before = self.word.update(Acquire, |word| Some(shut_to_all(word)));
        self.events.count(Event::PhaseClosed);
        before.expect("any word can be shut")
    }

    pub(super) fn released_share(&self, word: u64) {
        if !is_free(word) {
            // An upgrader has become the only reader.
            return self.serve_after_release(word);
        }
        if self.is_biased(word) && word & BOTH != BOTH {
            return self.serve_biased(word);
        }
        if word & MUST_SERVE == 0 {
            if self.storage.place(word).clock().is_brief() {
                if let Some(queue) = self.own_queue(word) {
                    let woken = self.use_gap(&queue);
                    drop(queue);
                    woken.wake();
                }
            }
            return;
        }
        if word & WRITER_WOKEN != 0 && word & BOTH != BOTH {
            return;
        }
        if let Some(queue) = self.own_queue(word) {
            let woken = self.wake_passed(&queue).unwrap_or_else(|| self.serve_shares(&queue));
            drop(queue);
            woken.wake();
        }
    }

    /// Writers may come and go faster than one of them serves the queue: the one that has waited longest competes with them.
    fn wake_passed(&self, queue: &OwnQueue<'_, P, L>) -> Option<WakeList<P>> {
        loop {
            let word = self.word.load(Relaxed);
            let is_passed =
                readers(word) == 0 && word & (WRITE_PHASE | WRITER_WOKEN) == WRITE_PHASE;
            if !is_passed || word & BOTH == BOTH || queue.oldest_exclusive().is_none() {
                return None;
            }
            if let Some(woken) = self.wake_competitor(queue, word) {
                return Some(woken);
            }
        }
    }

    /// Most readers do not take this lock. Those that wait are let in at once, unless writers wait and are owed time, or are owed
    /// the slack and have not left before. Else one writer competes, unless readers are owed time.
    fn serve_biased(&self, word: u64) {
        let Some(queue) = self.own_queue(word) else { return };
        let word = self.word.load(Relaxed);
        let mut woken = WakeList::none();
        if is_free(word) && word & BOTH != BOTH {
            let has_writers = queue.oldest_exclusive().is_some();
            let side = phase(word);
            let owed = self.owed_to(Side::Write);
            let is_writers = side == Side::Write && has_writers && owed > 0;
            let is_readers = side == Side::Read && owed < 0;
            let first = self.first(&queue, Side::Read);
            // The readers that wait stay out of this phase.
            let stays_out = first.filter(|first| {
                side == Side::Write
                    && owed > 0
                    && !first.was_woken
                    && !queue.clock().is_brief()
                    && queue.clock().remaining(PhaseClock::<P>::now()) > 0
            });
            if stays_out.is_none() && !is_writers && first.is_some() {
                woken = self.begin_reading(&queue);
            } else if word & WRITER_WOKEN == 0 && has_writers && !is_readers {
                woken = self.wake_competitor(&queue, word).unwrap_or(woken);
            }
            // Once in each wait one looks whether the writers come back.
            if let Some(first) = stays_out.filter(|first| first.has_looked.get() == 0) {
                first.has_looked.set(1);
                woken.appoint(first);
            }
        }
        drop(queue);
        woken.wake();
    }

    /// The other side has left its phase's lock free, and is not expected back soon: the first of those that are shut out enters.
    fn use_gap(&self, queue: &OwnQueue<'_, P, L>) -> WakeList<P> {
        let mut woken = WakeList::none();
        let side = phase(self.word.load(Relaxed)).other();
        let Some(first) = self.first(queue, side) else {
            return woken;
        };
        self.note_phase(queue, side.other());
        if side == Side::Read && !queue.place().is_biased() {
            self.events.count(Event::PhaseIdle);
            return self.begin_reading(queue);
        }
        let enter = |word| admit(word, first.kind).or_else(|| enter_gap(word, first.kind));
        if self.word.update(Acquire, |word| Some(enter(word)? & !shut(side))).is_ok() {
            woken.take(queue, first);
            self.events.count(Event::PhaseIdle);
            self.left(queue, side, &mut woken);
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
                let writer = queue.oldest_exclusive();
                let upgrader = queue.upgrader().filter(|_| readers(word) == 1);
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
            let has_own = phase(word) == Side::Write && queue.oldest_exclusive().is_some();
            if only_writers && word & BOTH == 0 || has_own {
                let is_readers = phase(word) == Side::Read && self.owed_to(Side::Write) < 0;
                if word & WRITER_WOKEN != 0 || is_readers {
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
        let served = if node.kind == Kind::Upgradable { UPGRADABLE_OUT } else { 0 };
        let mut woken = self.grant_one(queue, node, served);
        if !woken.is_empty() && !queue.is_empty() {
            self.left(queue, side_of(node.kind), &mut woken);
        }
        woken
    }

    /// The writer that has waited longest competes with those that are awake. None if the word has changed.
    fn wake_competitor(&self, queue: &OwnQueue<'_, P, L>, word: u64) -> Option<WakeList<P>> {
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
    fn switch(&self, queue: &OwnQueue<'_, P, L>, word: u64) -> WakeList<P> {
        let from = phase(word);
        let others_wait = self.first(queue, from.other()).is_some();
        // A writer that was woken in vain has shut it before the time of its side is over.
        let goes_on = Self::slack() != 0
            && others_wait
            && from == Side::Write
            && self.first(queue, from).is_some()
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
        self.storage.owner().forget();
        if !goes_on {
            self.begin_phase(queue, to, now);
        }
        let flags = self.flags(queue, to);
        self.word.store(WRITER | flags, Relaxed);
        if let Some(first) = self.first(queue, Side::Read) {
            woken.appoint(first);
        }
        woken
    }

    /// This side has had the lock for as long as the first of the other has waited. The time, in ticks.
    fn note_phase(&self, queue: &OwnQueue<'_, P, L>, side: Side) -> u32 {
        let now = PhaseClock::<P>::now();
        if let Some(first) = self.first(queue, side.other()) {
            self.note_held(side, now, now.wrapping_sub(ticks(first.since())));
        }
        now
    }

    fn begin_phase(&self, queue: &OwnQueue<'_, P, L>, side: Side, now: u32) {
        let owed = self.owed_to(side).max(0);
        queue.clock().end(now.wrapping_add((owed + Self::slack()) as u32));
        queue.clock().set_brief(self.has_left_before(side));
    }

    /// What the word says of the queue in a phase of this side.
    fn flags(&self, queue: &OwnQueue<'_, P, L>, side: Side) -> u64 {
        if queue.is_empty() {
            // The other side is not there, but owes this one some time.
            return if self.owed_to(side) > 0 { shut(side.other()) } else { 0 };
        }
        let waits = Side::BOTH.map(|side| self.first(queue, side).is_some());
        let mut flags = queue.bits();
        if side == Side::Write {
            flags |= WRITE_PHASE;
        }
        if Self::slack() == 0 && (side == Side::Write || waits[Side::Write as usize]) {
            return shut_to_all(flags);
        }
        if waits[side.other() as usize] {
            flags |= shut(side.other());
        }
        if waits[side as usize] {
            flags |= MUST_SERVE;
        }
        flags
    }

    /// Lets the oldest waiting readers in, in addition to readers that hold the lock already: as many as there are CPUs. Each that has
    /// begun to run lets in one more (`let_next_in`), so that few of those that hold the lock do not run.
    pub(super) fn begin_reading(&self, queue: &OwnQueue<'_, P, L>) -> WakeList<P> {
        let mut before = self.word.load(Relaxed);
        let has_lost = self.first(queue, Side::Read).is_some_and(|first| first.was_woken);
        let may_try = queue.place().is_biased() && !has_lost && self.owed_to(Side::Read) <= 0;
        if is_free(before) && may_try {
            return self.wake_readers(queue);
        }
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
        let now = match phase(before) {
            Side::Write => self.note_phase(queue, Side::Write),
            Side::Read => 0,
        };
        let (mut entering, mut woken) = (may_upgrade, WakeList::none());
        if let Some(upgradable) = waits.filter(|_| may_upgrade != 0) {
            woken.take(queue, upgradable);
        }
        let room = (READER_LIMIT - 1).saturating_sub(readers(before)) as u32;
        // Where no thread passes another, none that waits is left for later. An upgradable reader takes no plain one's place.
        let most =
            if Self::slack() == 0 { u32::MAX } else { P::cpus().saturating_add(woken.len()) };
        self.take_readers(queue, &mut woken, most.min(room));
        entering += u64::from(woken.len()) * READER;
        if phase(before) == Side::Write {
            self.begin_phase(queue, Side::Read, now);
            self.events.count(Event::PhaseRead);
        }
        let flags = self.flags(queue, Side::Read);
        let enter = |word| Some(((word & !QUEUE_FLAGS) + entering - keeper) | flags);
        _ = self.word.update(Acquire, enter);
        self.storage.owner().forget();
        if let Some(first) = queue.oldest_exclusive() {
            woken.appoint(first);
        }
        woken
    }

    /// The same where most readers do not take this lock: they need not hold it before they run.
    fn wake_readers(&self, queue: &OwnQueue<'_, P, L>) -> WakeList<P> {
        if phase(self.word.load(Relaxed)) == Side::Write {
            let now = self.note_phase(queue, Side::Write);
            self.begin_phase(queue, Side::Read, now);
            self.events.count(Event::PhaseRead);
        }
        let mut woken = WakeList::none();
        while woken.len() < P::cpus() {
            let Some(first) = self.first(queue, Side::Read) else { break };
            woken.take_to_retry(queue, first);
        }
        self.events.add(Event::WakeReader, u64::from(woken.len()));
        let flags = self.flags(queue, Side::Read);
        _ = self.word.update(Relaxed, |word| Some(word & !QUEUE_FLAGS | flags));
        if let Some(first) = queue.oldest_exclusive() {
            woken.appoint(first);
        }
        woken
    }

    fn take_readers(&self, queue: &OwnQueue<'_, P, L>, woken: &mut WakeList<P>, most: u32) {
        while woken.len() < most {
            let Some(reader) = queue.oldest_reader() else { break };
            woken.take(queue, reader);
        }
        self.events.add(Event::WakeReader, u64::from(woken.len()));
    }

    /// A reader that was let in has begun to run.
    fn let_next_in(&self) {
        let mut word = self.word.load(Relaxed);
        let has_next = |word| word & (MUST_SERVE | CLOSED | WRITE_PHASE | UPGRADING) == MUST_SERVE;
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
            let flags = match (word & BOTH == BOTH, self.first(&queue, Side::Read)) {
                _ if queue.is_empty() => 0,
                (false, None) => word & QUEUE_FLAGS & !MUST_SERVE,
                _ => word & QUEUE_FLAGS,
            };
            Some(((word & !QUEUE_FLAGS) + entering) | flags)
        });
        drop(queue);
        woken.wake();
    }

    /// Readers that hold no share of this lock's word have been waited for since then, ns.
    pub(crate) fn note_reads(&self, since: u64) {
        let now = PhaseClock::<P>::now();
        self.note_held(Side::Read, now, now.wrapping_sub(ticks(since)));
    }

    /// Ends a phase of readers while a thread waits. Not where the lock is free for the moment: then this thread would have
    /// to hand it over.
    pub(super) fn end_reading(&self) {
        let is_reading = |word: u64| {
            has_waiters(word) && readers(word) > 0 && word & WRITE_PHASE == 0 && word & BOTH != BOTH
        };
        // The last of the readers hands the lock over.
        if self.word.update(Relaxed, |word| is_reading(word).then(|| shut_to_all(word))).is_ok() {
            self.events.count(Event::PhaseClosed);
        }
    }

    /// Ends a phase that is over: what one that was refused owes to those that wait.
    pub(super) fn end_overdue_share(&self) {
        let word = self.word.load(Relaxed);
        if !has_waiters(word) || word & BOTH == BOTH {
            return;
        }
        let is_over = |clock: &PhaseClock<P>| clock.remaining(PhaseClock::<P>::now()) <= 0;
        if !is_over(self.storage.place(word).clock()) {
            return;
        }
        let Some(queue) = self.try_own_queue(word) else { return };
        let word = self.word.load(Relaxed);
        if !is_over(queue.clock())
            || word & BOTH == BOTH
            || self.first(&queue, phase(word).other()).is_none()
        {
            return;
        }
        if phase(word) == Side::Read && queue.place().is_biased() {
            return; // The writer that keeps time is to have a CPU first: until then readers need not stop.
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
        match self.first(queue, side) {
            Some(first) => {
                first.state.store(APPOINTED, Relaxed);
                (0, &raw const first.state)
            }
            None if self.word.load(Relaxed) & BOTH == BOTH => (0, core::ptr::null()),
            None => (shut(side), core::ptr::null()),
        }
    }
}
