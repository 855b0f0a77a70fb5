//! `TimeFair` and `PhaseFair`: phases of readers and of writers alternate while both wait, and
//! the lock is handed over from one to the next.
//!
//! ```text
//!                 first waiter queues                 budget ends: guard, unlocker
//!                                                     or refused newcomer
//!   no waiters ───────────────────────► careful ─────────────────────────► closed
//!       ▲                               │     ▲                              │
//!       │                 short holds   │                                    │ last holder leaves:
//!       │                               ▼                                    │ hand over
//!       │                               open ───────────────────────────────►│
//!       └──────────── nobody waits any more ◄── next phase, careful ◄────────┘
//! ```
//!
//! * *careful*: a newcomer of the running side enters past the waiters if it is expected to be
//!   out before the phase's budget ends. It reads the clock, and so does the last to leave.
//! * *open*: hold times are short against the budget, so newcomers of the running side look at
//!   the clock only now and then. Only while there is a guard.
//! * *closed*: nobody enters. The last holder to leave hands the lock over: to all waiting
//!   readers, or to the writer that waits longest, and within a phase of writers to the next.
//! * The *guard*, the deadline waiter, is one waiter that sleeps with the end of the phase as its
//!   deadline, so that a phase ends even if nobody of the running side comes back. With a guard, a
//!   free lock may be left to the running side for the moment (*lingering*) if that side is expected
//!   back sooner than a wake-up takes. Without one it is handed over as soon as it is free. A guard
//!   that gives up appoints another waiter.
//! * Once the budget has ended, whoever looks closes the phase: the guard, a newcomer that has to
//!   queue, and one that only tries and is refused.
//! * Where only writers wait, none is worth keeping the lock for: whoever leaves it free calls the
//!   one that has waited longest (`WRITER_WOKEN`), which competes with those that are awake and
//!   keeps its place if it gets nothing. Nobody else is called before it has entered or is back.
//!   Its budget is the phase's: once that is over the phase closes and the lock is handed to it.
//! * Where writers spend about as much time between sections as in them, a phase of writers begins
//!   with a second one awake: it is told to *retry*, that is to compete within the phase, and
//!   keeps its place if it gets nothing.
//!
//! `PhaseFair` is the same with a budget of nothing: closed as soon as somebody waits.
//!
//! Invariants, beside those of `rwsem`. What can be seen of them in the word alone is in its table
//! (`word.rs`), and is checked after every transition in debug builds.
//! 1. `CLOSED` excludes `OPEN`, and `OPEN` implies `HAS_DEADLINE_WAITER`.
//! 2. `HAS_DEADLINE_WAITER` implies a queued node with its `guard` mark set, whose owner sleeps with a
//!    deadline, or has been woken to do so (`APPOINTED`). All of it changes under the queue's lock.
//! 3. A free lock with waiters stays so only while it lingers (`HAS_DEADLINE_WAITER` and not `CLOSED`) or a
//!    called writer is awake (`WRITER_WOKEN` and not `CLOSED`), or until the one who left last has
//!    the queue's lock. After the budget has ended, whoever queues hands it over all the same.
//! 4. `CLOSED`, free and the queue's lock held: the word is this thread's to write.
//! 5. `WRITER_WOKEN` is set by who calls a writer, under the queue's lock, and only if the lock is free
//!    *then* in a phase of writers for which no reader waits: between its release and this moment a
//!    thread may have been stopped for long. The writer that was called clears it when it enters or
//!    is on the queue again, whichever comes first. (In a gap of the other side's phase there is
//!    nothing to clear: the flag went with the phase of writers.)
//!
//! Estimates (hold times, return times) are updated without a lock and may lose an update; they
//! decide how long somebody waits, never who may be in.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::RawRwSem;
use super::compete::SPIN_ON_WRITER;
use super::queue_storage::{OwnQueue, Place, QueueStorage};
use super::wait_queue::{APPOINTED, GRANTED, Kind, Node, WAITING, WOKEN_DEQUEUED, WakeList};
use super::word::*;
use crate::events::{CountEvents, Event};
use crate::platform::{AtomicCell, PlainCell, Platform};
use crate::policy::{Discipline, Phases, Policy};
use crate::spin_budget::SpinBudget;

/// The clock here ticks every 64 ns: in 32 bits that is 274 s, enough to tell before from after
/// within a phase, and small enough for the lock to fit a cache line.
const TICK_SHIFT: u32 = 6;
/// Sections at most this fraction of what is left of a budget need not look at the clock.
const OPEN_FRACTION: u32 = 16;
/// Whoever hands the lock to the only ones that waited spins this many times as long as usual,
/// until they must have woken; so does a writer within a phase of writers. With the other side
/// awake too, two CPUs can share a lock operation by operation, which phases of one side never do.
const SPIN_FOR_A_WAKE_UP: u32 = 3;
/// The shortest budget is divided by this where holds are short and only one waits.
const FIRST_PHASE: u32 = 3;
/// A wake-up that takes more than this many times as long as usual is no reason for a longer phase.
const LATEST_WAKE_UP: u32 = 4;
/// Up to this many readers with long holds are woken by one thread.
const FEW: u32 = 8;
/// Up to this many readers are told to try again at once.
const MOST_CALLED: u32 = 8;
/// A phase whose side stays away for longer than this, in ns, is not in use by it.
const LONGEST_ABSENCE: u32 = 1_000;
/// So many failed attempts to enter pass for a turn of the spin.
const FAILURES_PER_TURN: u32 = 16;
/// How often a writer naps, to leave its CPU to the holder that was running there, before it
/// queues.
const NAPS: u32 = 2;
/// In an open phase one in this many entries looks at the clock (28 ns where an uncontended lock and
/// unlock are 6), so the clock costs an entry 2 ns, and 16 of the longest holds that an open
/// phase allows are one budget.
const ENTRIES_PER_CLOCK: u32 = 16;

/// Whether an entry looks at the clock: as good as by chance, so that a thread that uses several
/// locks by turns looks at the clock of each.
fn looks_at_clock(turn: u32) -> bool {
    // Two rounds of a multiplicative hash, for its upper bits.
    let mixed = turn.wrapping_mul(0x9e37_79b9);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b);
    mixed < u32::MAX / ENTRIES_PER_CLOCK
}

/// Longest spin among writers, ns, on a lock that goes from one to the next. Who sleeps in a convoy
/// holds up all behind it when it is its turn.
const SPIN_ON_WRITERS: u64 = 100_000;

const fn ticks(ns: u64) -> u32 {
    (ns >> TICK_SHIFT) as u32
}

/// What a lock knows about its phases; 20 bytes.
#[repr(C)]
pub struct PhaseClock<P: Platform> {
    /// When the running phase's budget ends.
    ends: P::AtomicU32,
    /// When the youngest holder was admitted, 0 if that is not known.
    admitted: P::AtomicU32,
    /// When the lock was last left free or handed over while somebody waited; the lowest bit is
    /// the side that left. 0 if that was noted already.
    left: P::AtomicU32,
    estimates: Estimates<P>,
}

/// What is remembered about a lock's users when nobody waits; 8 bytes.
#[repr(C)]
pub struct Estimates<P: Platform> {
    /// Expected hold times of readers (low half) and writers, in ticks, at most 4 ms; 0 if nothing
    /// is known.
    holds: P::AtomicU32,
    /// Low half: expected return times of readers and writers, 8 bits each, in ticks, at most
    /// 16 µs. High half: the budget of the last phase, in ticks.
    habits: P::AtomicU32,
}

impl<P: Platform> PhaseClock<P> {
    pub(super) const NEW: Self = PhaseClock {
        ends: P::AtomicU32::ZERO,
        admitted: P::AtomicU32::ZERO,
        left: P::AtomicU32::ZERO,
        estimates: Estimates::NEW,
    };

    fn now() -> u32 {
        ticks(P::now())
    }

    pub(super) fn estimates(&self) -> &Estimates<P> {
        &self.estimates
    }

    /// From now on this is the clock of a lock of which so much is known. What was noted for another
    /// lock is forgotten.
    pub(super) fn start(&self, known: &Estimates<P>) {
        self.estimates.copy_from(known);
        self.admitted.store(0, Relaxed);
        self.left.store(0, Relaxed);
    }

    /// Ticks until the phase ends; negative when it has.
    fn remaining(&self, now: u32) -> i32 {
        self.ends.load(Relaxed).wrapping_sub(now) as i32
    }

    /// Would be out again before the budget ends, as far as the estimate is good: to an eighth, so
    /// that a budget of two holds has room for two that begin a little late.
    fn fits(&self, side: Side, now: u32) -> bool {
        let hold = self.estimates.expected_hold(side);
        self.remaining(now) >= (hold - hold / 8) as i32
    }

    /// Starts a phase: its budget begins now.
    fn begin(&self, now: u32, budget: u32) {
        self.estimates.note_budget(budget);
        self.ends.store(now.wrapping_add(budget), Relaxed);
    }

    /// The phase ends now.
    fn end(&self, now: u32) {
        self.ends.store(now, Relaxed);
    }

    /// Lets the phase end later.
    fn extend(&self, by: u32) {
        self.ends.store(self.ends.load(Relaxed).wrapping_add(by), Relaxed);
    }

    /// Notes that the last holder, of `side`, has left. If it is not known when the youngest was
    /// admitted, it was before the phase closed, so that an estimate can at least turn out to be
    /// too low.
    fn note_hold(&self, side: Side, now: u32, closed: bool) {
        let expected = self.estimates.expected_hold(side);
        let sample = match self.admitted.swap(0, Relaxed) {
            0 if closed => (self.remaining(now).saturating_neg().max(0) as u32).max(expected),
            0 => return,
            admitted => now.wrapping_sub(admitted),
        };
        self.estimates.set_hold(side, step(expected, sample));
    }

    /// When `side` left, if it was the last to leave and that was not noted yet.
    fn left(&self, side: Side) -> Option<u32> {
        let left = self.left.load(Relaxed);
        (left != 0 && left & 1 == side as u32).then_some(left & !1)
    }

    fn note_left(&self, side: Side, now: u32) {
        self.left.store((now & !1 | side as u32).max(2), Relaxed);
    }

    /// Notes that `side` is back, if it was the last to leave.
    fn note_return(&self, side: Side, now: u32) {
        if let Some(left) = self.left(side) {
            self.left.store(0, Relaxed);
            self.estimates.step_return(side, now.wrapping_sub(left));
        }
    }

    fn note_admitted(&self, now: u32) {
        self.admitted.store(now.max(1), Relaxed);
    }

    fn forget_admitted(&self) {
        self.admitted.store(0, Relaxed);
    }
}

impl<P: Platform> Estimates<P> {
    pub(super) const NEW: Self =
        Estimates { holds: P::AtomicU32::ZERO, habits: P::AtomicU32::ZERO };

    pub(super) fn copy_from(&self, other: &Self) {
        self.holds.store(other.holds.load(Relaxed), Relaxed);
        self.habits.store(other.habits.load(Relaxed), Relaxed);
    }

    fn expected_hold(&self, side: Side) -> u32 {
        (self.holds.load(Relaxed) >> (16 * side as u32)) & 0xffff
    }

    fn set_hold(&self, side: Side, expected: u32) {
        let (shift, holds) = (16 * side as u32, self.holds.load(Relaxed));
        let expected = expected.clamp(1, 0xffff);
        self.holds.store(holds & !(0xffff << shift) | expected << shift, Relaxed);
    }

    fn expected_return(&self, side: Side) -> u32 {
        (self.habits.load(Relaxed) >> (8 * side as u32)) & 0xff
    }

    fn step_return(&self, side: Side, sample: u32) {
        let (shift, habits) = (8 * side as u32, self.habits.load(Relaxed));
        let expected = step(habits >> shift & 0xff, sample).min(0xff);
        self.habits.store(habits & !(0xff << shift) | expected << shift, Relaxed);
    }

    fn last_budget(&self) -> u32 {
        self.habits.load(Relaxed) >> 16
    }

    fn note_budget(&self, budget: u32) {
        let habits = self.habits.load(Relaxed);
        self.habits.store(habits & 0xffff | budget.min(0xffff) << 16, Relaxed);
    }

    /// Notes that the lock was free when the guard closed the phase: by chance, or because nobody
    /// came back. In the second case it happens again and again, and nothing speaks against it.
    fn note_absence(&self, side: Side) {
        self.step_return(side, u32::MAX);
    }

    /// This side's holds are known to be shorter than a wake-up.
    fn is_short(&self, side: Side) -> bool {
        let hold = self.expected_hold(side);
        hold != 0 && hold < ticks(P::wake_latency().into())
    }

    /// This side's holds are known to be no shorter than a wake-up.
    fn is_long(&self, side: Side) -> bool {
        self.expected_hold(side) != 0 && !self.is_short(side)
    }

    /// Sooner than a wake-up takes.
    fn comes_right_back(&self, side: Side) -> bool {
        self.expected_return(side) < ticks(P::wake_latency().into()).min(0xff)
    }

    /// Writers that come right back spend about as much time between sections as in them, so two
    /// that are awake keep the lock busier than one.
    fn leaves_room_for_a_second(&self) -> bool {
        let (hold, away) = (self.expected_hold(Side::Write), self.expected_return(Side::Write));
        self.comes_right_back(Side::Write) && away * 4 >= hold.max(1)
    }

    /// How long, in ticks, a phase that begins with `wakeups` wake-ups may admit newcomers.
    fn budget(&self, knobs: Phases, wakeups: u32) -> u32 {
        // Fading, lest the largest need of all times stays.
        let last = self.last_budget();
        self.budget_after(knobs, wakeups, last - last / 8)
    }

    /// The same after a phase of the other side whose budget was the last.
    fn budget_after(&self, knobs: Phases, wakeups: u32, last: u32) -> u32 {
        let latency = ticks(P::wake_latency().into()).max(1);
        let holds = [Side::Read, Side::Write].map(|side| self.expected_hold(side));
        let budget = (latency * knobs.shortest_budget)
            .max(latency.saturating_mul(knobs.budget_per_wakeup * wakeups))
            .max(holds[0])
            .max(holds[1])
            // What the other side needed, so that both get the same.
            .max(last)
            .min(ticks(knobs.longest_budget));
        // Long holds fill a budget only in whole numbers; the other side gets no more than that.
        let filled = |hold: u32| match hold {
            0 => budget,
            hold if hold > budget => budget,
            hold => budget - budget % hold,
        };
        filled(holds[0]).min(filled(holds[1]))
    }
}

/// Moves an estimate to a sample by at most a factor of two, so that one preempted holder does
/// not pass for a habit.
fn step(estimate: u32, sample: u32) -> u32 {
    sample.clamp(estimate / 2, estimate * 2 + 2)
}

/// What a writer that spins sees of a lock that goes from writer to writer: it is worth another spin.
#[derive(Default)]
struct Moves {
    /// The CPU of the last one seen.
    owner: u32,
    /// When it is not any more; 0 before the first.
    ends: u64,
}

impl Moves {
    /// Whether another writer has the lock than before.
    fn has_moved(&mut self, owner: u32) -> bool {
        let before = core::mem::replace(&mut self.owner, owner);
        before != 0 && owner != before
    }

    /// What is left of all spinning, for one holder; none where nothing is.
    fn renewed<P: Platform>(&mut self) -> Option<SpinBudget> {
        let now = P::now();
        if self.ends == 0 {
            self.ends = now + SPIN_ON_WRITERS;
        }
        let left = self.ends.saturating_sub(now);
        Some(SpinBudget::new::<P>(left.min(SPIN_ON_WRITER), None))
    }
}

/// How an attempt to queue ended.
enum Queueing<'a, R> {
    /// In this room; as the deadline waiter, or not.
    Queued(&'a R, bool),
    Entered,
    /// Ended the phase of its own side and handed the lock to the only ones that waited, or woke
    /// one to share it with.
    HandedOver,
    /// Neither: there is no room left to wait in.
    NoRoom,
}

/// How a wait in the queue ended.
enum Outcome {
    WakeList,
    TimedOut,
    Retry,
}

/// What follows when the lock is handed over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Readers,
    /// A new phase for the writer that waits longest.
    Writer,
    /// The same phase, for the next of its writers.
    Turn,
}

impl<Pol: Policy, P: Platform, L: QueueStorage<P>> RawRwSem<Pol, P, L> {
    /// Limits the time of those that hold the lock when the first waiter comes. With short holds a
    /// spin would have done but for some accident, so this phase need not outweigh much.
    pub(super) fn begin_first_phase(&self, mut knobs: Phases, clock: &PhaseClock<P>, now: u64) {
        let estimates = clock.estimates();
        if estimates.is_short(Side::Read) && estimates.is_short(Side::Write) {
            knobs.shortest_budget /= FIRST_PHASE;
            estimates.note_budget(0);
        }
        clock.begin(ticks(now), estimates.budget(knobs, 1));
        clock.forget_admitted();
    }

    pub(super) fn admit_in_phase(&self, knobs: Phases, word: u64, kind: Kind) -> Option<u64> {
        let (entered, side) = match kind {
            Kind::Read if admits_reader(word) => (plus_reader(word), Side::Read),
            Kind::Write if is_free(word) => (word + WRITER, Side::Write),
            Kind::Upgradable if admits_upgradable(word) && !has_waiters(word) => {
                return Some(plus_reader(word) | UPGRADABLE);
            }
            _ => return None,
        };
        if !has_waiters(word) {
            return Some(entered);
        }
        if knobs.longest_budget == 0 || word & CLOSED != 0 || phase(word) != side {
            return None;
        }
        let place = || self.storage.place(word);
        if word & (OPEN | WRITER_WOKEN) != 0 {
            let looks = looks_at_clock(P::turn());
            let fits = || place().clock().fits(side, PhaseClock::<P>::now());
            return (!looks || fits()).then_some(entered);
        }
        let (clock, is_biased) = (place().clock(), place().is_biased());
        let now = PhaseClock::<P>::now();
        if !clock.fits(side, now) {
            return None;
        }
        let estimates = clock.estimates();
        if is_free(word) {
            clock.note_return(side, now);
        }
        let hold = estimates.expected_hold(side);
        let short = hold * OPEN_FRACTION <= clock.remaining(now).max(0) as u32;
        let outweighs = side == Side::Read || word & READERS_WAIT != 0;
        let opens =
            hold != 0 && short && outweighs && word & HAS_DEADLINE_WAITER != 0 && !is_biased;
        if opens && estimates.comes_right_back(side) {
            self.events.count(Event::PhaseOpened);
            clock.forget_admitted();
            return Some(entered | OPEN);
        }
        self.events.count(match side {
            Side::Read => Event::BypassRead,
            Side::Write => Event::BypassWrite,
        });
        clock.note_admitted(now);
        Some(entered)
    }

    /// As [`Self::admit_in_phase`]. One that was called has waited longer than all other writers: if
    /// only they wait, it enters whatever the clock says.
    fn admit_again(&self, knobs: Phases, word: u64, kind: Kind, called: bool) -> Option<u64> {
        if !called {
            return self.admit_in_phase(knobs, word, kind);
        }
        let among_writers = word & (CLOSED | READERS_WAIT) == 0
            && has_waiters(word)
            && phase(word) == Side::Write
            && kind == Kind::Write
            && is_free(word);
        let entered = match among_writers {
            true => Some(word + WRITER),
            false => self.admit_in_phase(knobs, word, kind),
        };
        entered.map(|entered| entered & !WRITER_WOKEN)
    }

    /// One that was called has entered, and the word was this then: whoever waits longest now has a
    /// budget of its own.
    fn begin_next_turn(&self, knobs: Phases, word: u64) {
        // Those that waited may have given up meanwhile, and another lock may have the room.
        if has_waiters(word)
            && let Some(queue) = self.attend(word)
        {
            self.begin_turn_of_next(knobs, &queue);
        }
    }

    fn begin_turn_of_next(&self, knobs: Phases, queue: &OwnQueue<'_, P, L>) {
        let word = self.word.load(Relaxed);
        if has_waiters(word) && word & READERS_WAIT == 0 && phase(word) == Side::Write {
            let clock = queue.clock();
            clock.begin(PhaseClock::<P>::now(), clock.estimates().budget(knobs, 1));
        }
    }

    /// The running phase has not ended; if it has, this ends it. Somebody waits, as the word says.
    pub(crate) fn has_budget(&self, word: u64) -> bool {
        let clock = self.storage.place(word).clock();
        let has_budget = clock.remaining(PhaseClock::<P>::now()) > 0;
        if !has_budget {
            self.end_overdue_phase();
        }
        has_budget
    }

    /// Ends the running phase if its budget has ended: what a newcomer that was refused and does not
    /// queue owes to those that wait. Leaves it to others if somebody is at the queue.
    pub(crate) fn end_overdue_phase(&self) {
        let Discipline::Phases(knobs) = Pol::DISCIPLINE else { return };
        let ends = |word: u64| has_waiters(word) && word & CLOSED == 0;
        let word = self.word.load(Relaxed);
        if knobs.longest_budget == 0 || !ends(word) {
            return;
        }
        let is_over = |clock: &PhaseClock<P>| clock.remaining(PhaseClock::<P>::now()) <= 0;
        if !is_over(self.storage.place(word).clock()) {
            return;
        }
        let Some(queue) = self.try_attend(word) else { return };
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
        let granted = self.serve_phases(knobs, &queue);
        drop(queue);
        granted.grant();
    }

    /// The deadline waiter has given up: another waiter takes its place, with a timer of its own, and
    /// is to be woken for that. None if nobody needs to.
    pub(super) fn appoint(&self, queue: &OwnQueue<'_, P, L>) -> Option<*const P::AtomicU32> {
        let word = self.word.load(Relaxed);
        let (reader, writer) = (queue.oldest_reader(), queue.oldest_writer());
        let next = match phase(word) {
            _ if word & CLOSED != 0 => None,
            Side::Read => writer.or(reader),
            Side::Write => reader.or(writer),
        };
        // Nobody passes one that upgrades.
        let next = next.filter(|next| next.kind != Kind::Upgrade)?;
        next.is_deadline_waiter.set(1);
        // Relaxed: the owner looks at everything else under the queue's lock. Still linked, so it was
        // told nothing yet, and what it is told later overwrites this.
        next.state.store(APPOINTED, Relaxed);
        Some(&next.state)
    }

    pub(super) fn wait_for_phase(&self, knobs: Phases, kind: Kind, deadline: Option<u64>) -> bool {
        let side = if kind == Kind::Read { Side::Read } else { Side::Write };
        if knobs.longest_budget != 0
            && let Some(clock) = self.storage.clock(self.word.load(Relaxed))
            && clock.left(side).is_some()
        {
            clock.note_return(side, PhaseClock::<P>::now());
        }
        let (mut spin, mut front, mut attempt) = (knobs.spin, false, 0);
        loop {
            if self.spin_for_entry(knobs, kind, side, spin, front) {
                return true;
            }
            let node = Node::new(kind, P::now());
            let (place, guarding) = match self.queue_for_phase(knobs, side, &node, front) {
                Queueing::Queued(place, guarding) => (place, guarding),
                Queueing::Entered => return true,
                Queueing::HandedOver => {
                    spin = knobs.spin * SPIN_FOR_A_WAKE_UP;
                    continue;
                }
                Queueing::NoRoom => {
                    if deadline.is_some_and(|deadline| P::now() >= deadline) {
                        return false;
                    }
                    P::give_way(attempt);
                    attempt += 1;
                    continue;
                }
            };
            match self.sleep_until_phase(knobs, place, &node, guarding, deadline) {
                Outcome::WakeList => return true,
                Outcome::TimedOut => return false,
                Outcome::Retry => (spin, front) = (knobs.spin, true),
            }
        }
    }

    /// Queues, unless the lock can be entered after all. Ends this side's phase if its budget
    /// has ended.
    fn queue_for_phase(
        &self,
        knobs: Phases,
        side: Side,
        node: &Node<P>,
        front: bool,
    ) -> Queueing<'_, L::Place> {
        loop {
            let Some(queue) = self.lock_to_wait() else {
                return Queueing::NoRoom;
            };
            if let Some(queued) = self.queue_in_room(knobs, side, node, front, queue) {
                return queued;
            }
        }
    }

    /// The same in a given room; `None` if another one turns out to be the right one.
    fn queue_in_room<'a>(
        &'a self,
        knobs: Phases,
        side: Side,
        node: &Node<P>,
        front: bool,
        queue: OwnQueue<'a, P, L>,
    ) -> Option<Queueing<'a, L::Place>> {
        let (kind, now) = (node.kind, ticks(node.since));
        let mut granted = WakeList::none();
        let mut turn_over = false;
        let mut word = self.word.load(Relaxed);
        loop {
            if !queue.is_for(word) {
                return None;
            }
            // Once only: those taken off then are told at the end.
            if granted.is_empty()
                && has_waiters(word)
                && word & CLOSED == 0
                && phase(word) == side
                && !queue.clock().fits(side, now)
                && knobs.longest_budget != 0
            {
                if self.passes_turn_on(&queue, side, front) {
                    granted = self.begin_turn(knobs, &queue, now);
                    // The lock was last taken on another CPU: a second writer is awake there.
                    turn_over = self.storage.owner_cpu().load(Relaxed) != P::cpu();
                    if !turn_over {
                        if queue.is_empty() {
                            self.word.fetch_and(!QUEUE_FLAGS, Relaxed);
                        }
                        drop(queue);
                        granted.grant();
                        return Some(Queueing::HandedOver);
                    }
                } else if let Err(found) = self.close(word, OPEN) {
                    word = found;
                    continue;
                } else {
                    granted = self.serve_phases(knobs, &queue);
                    if queue.is_empty() {
                        drop(queue);
                        granted.grant();
                        return Some(Queueing::HandedOver);
                    }
                }
                word = self.word.load(Relaxed);
            }
            let entered = if turn_over { None } else { self.admit_again(knobs, word, kind, front) };
            let next = entered.unwrap_or_else(|| {
                let next = self.with_waiter(knobs, &queue, word, side, node, front);
                if front { next & !WRITER_WOKEN } else { next }
            });
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) if entered.is_some() => {
                    if front {
                        self.begin_turn_of_next(knobs, &queue);
                    }
                    drop(queue);
                    granted.grant();
                    return Some(Queueing::Entered);
                }
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        queue.note_named();
        if front {
            node.woken_in_vain.set(1);
            queue.push_front(node);
        } else {
            queue.push(node);
        }
        queue.note_queued();
        if granted.is_empty() {
            granted = self.serve_phases(knobs, &queue);
        }
        let (place, guarding) = (queue.place(), node.is_deadline_waiter.get() != 0);
        drop(queue);
        granted.grant();
        Some(Queueing::Queued(place, guarding))
    }

    /// Only writers wait, and the one that waits longest can simply join those that are awake.
    fn passes_turn_on(&self, queue: &OwnQueue<'_, P, L>, side: Side, front: bool) -> bool {
        side == Side::Write
            && !front
            && queue.oldest_reader().is_none()
            && queue.clock().estimates().leaves_room_for_a_second()
            && queue
                .oldest_writer()
                .is_some_and(|oldest| oldest.kind == Kind::Write && oldest.woken_in_vain.get() == 0)
    }

    /// Among writers alone: instead of closing the phase, wakes the one that has waited longest. If
    /// two were awake, this one queues in its place, else the two go on together; either way the
    /// lock is not idle for the time of a wake-up. If the woken one gets nothing, it will be
    /// granted the lock next time.
    fn begin_turn(&self, knobs: Phases, queue: &OwnQueue<'_, P, L>, now: u32) -> WakeList<P> {
        let mut granted = WakeList::none();
        if let Some(oldest) = queue.oldest_writer() {
            if oldest.is_deadline_waiter.get() != 0 {
                self.word.fetch_and(!(HAS_DEADLINE_WAITER | OPEN), Relaxed);
            }
            let oldest: *const Node<P> = oldest;
            // SAFETY: linked, so alive, and it stays so until it is told.
            granted.retry(queue, unsafe { &*oldest });
            self.events.count(Event::PhaseTurn);
        }
        let clock = queue.clock();
        clock.begin(now, clock.estimates().budget(knobs, 1));
        granted
    }

    /// Closes the running phase, and clears `also`.
    ///
    /// # Errors
    /// The word found, if it was not `word`.
    fn close(&self, word: u64, also: u64) -> Result<u64, u64> {
        let closed = (word | CLOSED) & !also;
        let closed = self.word.compare_exchange_weak(word, closed, Acquire, Relaxed)?;
        self.events.count(Event::PhaseClosed);
        Ok(closed)
    }

    /// The word with one more waiter of `side`, which may be `back` from an attempt in vain; marks the
    /// node if it becomes the guard.
    fn with_waiter(
        &self,
        knobs: Phases,
        queue: &OwnQueue<'_, P, L>,
        word: u64,
        side: Side,
        node: &Node<P>,
        back: bool,
    ) -> u64 {
        let mut next = word | queue.bits();
        if node.kind == Kind::Read {
            next |= READERS_WAIT;
        }
        if !has_waiters(word) {
            // The holders' time is limited from now on.
            if has_writer(word) {
                next |= WRITE_PHASE;
            }
            self.begin_first_phase(knobs, queue.clock(), node.since);
            if back {
                // It was passed for a budget already, and called when the queue became empty.
                queue.clock().end(ticks(node.since));
            }
        }
        if knobs.longest_budget == 0 {
            next |= CLOSED;
        }
        // While the door is closed only the side that is being closed out needs a guard: it will
        // wait through the next phase, the other side will be in it.
        let wanted = next & CLOSED == 0 || phase(next) == side;
        let guards = knobs.longest_budget != 0 && next & HAS_DEADLINE_WAITER == 0 && wanted;
        node.is_deadline_waiter.set(guards.into());
        if guards { next | HAS_DEADLINE_WAITER } else { next }
    }

    /// Spins for at most `eighths` of a wake-up latency, as long as nobody is queued or an open
    /// phase is this side's. Looks at the lock at every turn: a longer look away would miss the
    /// moments in which a busy lock is free.
    fn spin_for_entry(
        &self,
        knobs: Phases,
        kind: Kind,
        side: Side,
        eighths: u32,
        called: bool,
    ) -> bool {
        let mut budget: Option<SpinBudget> = None;
        let (mut naps, mut failures) = (0, 0u32);
        let mut moves = Moves::default();
        loop {
            let word = self.word.load(Relaxed);
            let admitted = self.admit_again(knobs, word, kind, called);
            if let Some(entered) = admitted {
                if self.word.compare_exchange_weak(word, entered, Acquire, Relaxed).is_ok() {
                    if called {
                        self.begin_next_turn(knobs, entered);
                    }
                    let spun = budget.is_some();
                    self.events.count(if spun { Event::OptLock } else { Event::RlockFast });
                    return true;
                }
                // Against two writers that take turns, a load and a compare-exchange can come too
                // late every time, so failures count for the budget.
                failures += 1;
                if failures % FAILURES_PER_TURN != 0 {
                    continue;
                }
            }
            if eighths == 0 {
                return false;
            }
            if admitted.is_none() && has_waiters(word) && !self.soon_mine(word, side) {
                // A phase of the other side: queues, unless there is room between its sections.
                return self.enter_gap(kind, side);
            }
            if has_writer(word) && !self.owner_may_run() {
                if naps == NAPS || !self.storage.estimates(word).is_short(Side::Write) {
                    self.events.count(Event::OptNospin);
                    return false;
                }
                // Two threads on one CPU. A thread that wakes is put on an idle CPU if there is
                // one; a thread that yields is not.
                P::give_way(u32::MAX);
                naps += 1;
                continue;
            }
            let among_writers = side == Side::Write && has_writer(word) && word & READERS_WAIT == 0;
            if among_writers && moves.has_moved(self.storage.owner_cpu().load(Relaxed)) {
                budget = moves.renewed::<P>();
            }
            let budget = budget.get_or_insert_with(|| {
                // In a phase of one's own it is worth waiting for a holder that was interrupted.
                let patience = if has_waiters(word) { SPIN_FOR_A_WAKE_UP } else { 1 };
                let ns = u64::from(P::wake_latency() / 8 * eighths * patience);
                let least = if among_writers { SPIN_ON_WRITER } else { 0 };
                SpinBudget::new::<P>(ns.max(least), None)
            });
            if !budget.relax::<P>() {
                self.events.count(Event::OptFail);
                return false;
            }
        }
    }

    /// The phase is the writers', as this one is, and its holder is expected to be out sooner than
    /// a sleep takes. (Readers are kept out of their own phase by nothing but its end.)
    fn soon_mine(&self, word: u64, side: Side) -> bool {
        let mine = side == Side::Write && phase(word) == side && word & CLOSED == 0;
        mine && has_writer(word) && self.storage.estimates(word).is_short(side)
    }

    /// Takes the lock in a phase of the other side, between two of its sections; the phase and its
    /// end stay as they are. So threads that read and write by turns do not sleep for each
    /// other's phases. In an open phase, where sections are short, at once when the lock is
    /// free; in a careful one after that side has been away for twice as long as it is expected to.
    fn enter_gap(&self, kind: Kind, side: Side) -> bool {
        let (mut ends, mut free_since) = (0, 0);
        loop {
            let word = self.word.load(Relaxed);
            if !has_waiters(word) || word & CLOSED != 0 || phase(word) == side {
                return false;
            }
            let now = P::now();
            if ends == 0 {
                ends = now + u64::from(LONGEST_ABSENCE);
            }
            if is_free(word) {
                if free_since == 0 {
                    free_since = now;
                }
                let clock = self.storage.place(word).clock();
                let away = clock.estimates().expected_return(phase(word)).max(1);
                let away = u64::from(away) << TICK_SHIFT;
                if (word & OPEN != 0 || now >= free_since + (2 * away).min(LONGEST_ABSENCE.into()))
                    && clock.fits(side, ticks(now))
                {
                    let entered = match kind {
                        Kind::Read => plus_reader(word),
                        Kind::Write => word + WRITER,
                        _ => return false,
                    };
                    if self.word.compare_exchange(word, entered, Acquire, Relaxed).is_ok() {
                        self.events.count(Event::PhaseIdle);
                        return true;
                    }
                    continue;
                }
            } else {
                free_since = 0;
                if word & OPEN == 0 {
                    return false;
                }
            }
            if now >= ends {
                return false;
            }
            P::relax(Some(ends));
        }
    }

    fn sleep_until_phase(
        &self,
        knobs: Phases,
        place: &L::Place,
        node: &Node<P>,
        mut guarding: bool,
        mut deadline: Option<u64>,
    ) -> Outcome {
        let clock = place.clock();
        // When the guard looks next, if not at the end of the running phase.
        let mut next_look = 0;
        loop {
            match node.state.load(Acquire) {
                GRANTED => break,
                WOKEN_DEQUEUED => return Outcome::Retry,
                APPOINTED => {
                    // Unless it is told what came of it just now.
                    let unchanged =
                        node.state.compare_exchange(APPOINTED, WAITING, Relaxed, Relaxed);
                    guarding |= unchanged.is_ok();
                    continue;
                }
                _ => {}
            }
            let now = P::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                if self.withdraw(place, node) {
                    return Outcome::TimedOut;
                }
                (deadline, guarding) = (None, false);
                continue;
            }
            let mut alarm = deadline;
            if guarding {
                let remaining = clock.remaining(ticks(now)).max(0) as u64;
                let ends = now + (remaining << TICK_SHIFT);
                // Those that run the phase look at the clock too; the guard is for when they do
                // not come.
                let grace = if remaining > 0 { u64::from(P::wake_latency()) } else { 0 };
                let look = next_look.max(ends + grace);
                if look <= now {
                    guarding = self.close_phase(knobs, place, node);
                    // If it still is the guard it is one of the phase to come.
                    let budget = clock.estimates().budget(knobs, 1);
                    next_look = now + (u64::from(budget) << TICK_SHIFT);
                    continue;
                }
                alarm = Some(alarm.map_or(look, |alarm| alarm.min(look)));
            }
            self.count_sleep(node.kind);
            P::park(&node.state, WAITING, alarm);
        }
        // First of all: those that it tells may preempt this thread, and should see that they did.
        self.note_owner(node.kind);
        node.wake_chain();
        if knobs.longest_budget != 0 {
            let (now, woken_at) = (PhaseClock::<P>::now(), node.woken_at.get());
            let late = now.wrapping_sub(woken_at);
            if woken_at != 0 {
                P::note_wake_latency(late.min(1 << 20) << TICK_SHIFT);
            }
            if self.is_still_in(place) {
                clock.note_admitted(now);
                if woken_at != 0 {
                    // The first of its phase: the budget runs from here, not from the wake-up. If that
                    // took far too long, whoever woke it may have been stopped; others wait meanwhile.
                    clock.extend(late.min(LATEST_WAKE_UP * ticks(P::wake_latency().into())));
                }
            }
        }
        self.events.count(match node.kind {
            Kind::Read => Event::Rlock,
            _ => Event::Wlock,
        });
        Outcome::WakeList
    }

    /// The phase that this thread is granted the lock in is the one that the clock in `place` times:
    /// somebody waits for it. (Where nobody does, the clock is another lock's, or nobody's.)
    fn is_still_in(&self, place: &L::Place) -> bool {
        L::IS_INLINE || self.word.load(Relaxed) & QUEUE == place.bits()
    }

    /// The guard's alarm: ends the phase if its budget has ended. True if this waiter still is
    /// the guard.
    fn close_phase(&self, knobs: Phases, place: &L::Place, node: &Node<P>) -> bool {
        let Some(queue) = self.lock_own(place) else {
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
        let granted = self.serve_phases(knobs, &queue);
        drop(queue);
        granted.grant();
        stays
    }

    /// The lock was left free with somebody waiting: leaves it to the running side for a moment,
    /// or hands it over.
    pub(super) fn left_in_phase(&self, knobs: Phases, side: Side, word: u64) {
        if word & (OPEN | HAS_DEADLINE_WAITER) == OPEN | HAS_DEADLINE_WAITER && is_free(word) {
            return; // Lingers; the guard will close it.
        }
        if word & (WRITER_WOKEN | CLOSED) == WRITER_WOKEN && is_free(word) {
            return; // The one that was called is on its way.
        }
        if !is_free(word) {
            // An upgrader has become the only reader.
            return self.serve_left(word);
        }
        // The room, not the lock: that may be gone.
        let place = self.storage.place(word);
        let (clock, estimates) = (place.clock(), place.clock().estimates());
        // Readers that come in between two writers keep the second one waiting for as long as they stay.
        let are_worth_it = side == Side::Read || !estimates.is_long(Side::Read);
        if place.is_biased() && are_worth_it && word & CLOSED == 0 && self.wake_waiters(word) {
            return;
        }
        if knobs.longest_budget != 0 && word & OPEN == 0 {
            let now = PhaseClock::<P>::now();
            clock.note_hold(side, now, word & CLOSED != 0);
            clock.note_left(side, now);
            let running = phase(word);
            let among_writers = running == Side::Write && word & (READERS_WAIT | CLOSED) == 0;
            if among_writers && clock.fits(running, now) && self.wake_writer(place) {
                return;
            }
            let may_linger = word & HAS_DEADLINE_WAITER != 0 && word & CLOSED == 0;
            if may_linger && estimates.comes_right_back(running) && clock.fits(running, now) {
                return;
            }
        }
        let Some(queue) = self.lock_own(place) else {
            return; // Everybody who waited then has been served.
        };
        let mut granted = WakeList::none();
        let mut word = self.word.load(Relaxed);
        // Somebody may have entered or served the queue meanwhile; or opened the phase, and then
        // the guard sees to it.
        while has_waiters(word)
            && is_free(word)
            && word & (OPEN | HAS_DEADLINE_WAITER) != OPEN | HAS_DEADLINE_WAITER
        {
            // Acquire pairs with the Release of everybody who has left.
            let closed = (word | CLOSED) & !OPEN;
            match self.word.compare_exchange_weak(word, closed, Acquire, Relaxed) {
                Ok(_) => {
                    granted = self.hand_over(knobs, &queue, word);
                    break;
                }
                Err(found) => word = found,
            }
        }
        let stays = queue.stays();
        drop(queue);
        let woken_at = !granted.is_empty();
        granted.grant();
        if woken_at && stays && clock.left.load(Relaxed) & 1 == side as u32 {
            // Waking others is not what keeps this side away.
            clock.note_left(side, PhaseClock::<P>::now());
        }
    }

    /// Only writers wait: wakes the one that has waited longest, which competes with those that
    /// are awake, as in a mutex. So the lock does not stand free for the time of a wake-up, nor
    /// reserved for a side that has gone elsewhere. False if there is nobody to call.
    fn wake_writer(&self, place: &L::Place) -> bool {
        let Some(queue) = self.lock_own(place) else {
            return true; // Everybody who waited then has been served.
        };
        let Some(oldest) = queue.oldest_writer().filter(|oldest| oldest.kind == Kind::Write) else {
            return false;
        };
        let guard = if oldest.is_deadline_waiter.get() != 0 { HAS_DEADLINE_WAITER } else { 0 };
        // Only here does the queue become empty: then nobody waits, and nothing is said about it.
        let (clear, set) = match queue.is_only_writer(oldest) {
            true => (QUEUE_FLAGS, 0),
            false => (guard | OPEN, WRITER_WOKEN),
        };
        // What is true of the word now: much may have happened since this thread left.
        let mut word = self.word.load(Relaxed);
        loop {
            if !is_free(word) || word & (WRITER_WOKEN | CLOSED) == WRITER_WOKEN {
                return true; // Whoever has it, or was called, sees to the rest.
            }
            if word & CLOSED != 0 || phase(word) == Side::Read || queue.oldest_reader().is_some() {
                return false;
            }
            match self.word.compare_exchange_weak(word, word & !clear | set, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        let oldest: *const Node<P> = oldest;
        let mut granted = WakeList::none();
        // SAFETY: linked, so alive, and it stays so until it is told.
        granted.retry(&queue, unsafe { &*oldest });
        self.events.count(Event::PhaseWoken);
        drop(queue);
        granted.grant();
        true
    }

    /// Where most readers do not take this lock, as they have slots, it stands free most of the time.
    /// Then nobody is worth keeping it for, and reserving it for somebody who has to wake up first
    /// would stop all those readers meanwhile: those that wait are told to try again, within the budget.
    /// One that comes back in vain is served as usual. False if there is nobody to tell.
    #[cold]
    fn wake_waiters(&self, word: u64) -> bool {
        let Some(queue) = self.attend(word) else {
            return true; // Everybody who waited then has been served.
        };
        let word = self.word.load(Relaxed);
        if !is_free(word) || word & CLOSED != 0 {
            // Whoever has it calls them; whoever closed it serves them.
            return !is_free(word);
        }
        if queue.clock().remaining(PhaseClock::<P>::now()) <= 0 {
            return false; // Readers pass them until they are up, and have done so for long enough.
        }
        let mut granted = WakeList::none();
        let mut guard = 0;
        let mut call = |oldest: Option<&Node<P>>| {
            let called = oldest.filter(|it| {
                it.woken_in_vain.get() == 0 && matches!(it.kind, Kind::Read | Kind::Write)
            });
            if let Some(node) = called {
                guard |= node.is_deadline_waiter.get();
                let node: *const Node<P> = node;
                // SAFETY: linked, so alive, and it stays so until it is told.
                granted.retry(&queue, unsafe { &*node });
            }
            called.is_some()
        };
        call(queue.oldest_writer());
        let mut called = 0;
        while called < MOST_CALLED && call(queue.oldest_reader()) {
            called += 1;
        }
        if granted.is_empty() {
            return false;
        }
        let clear = match (queue.is_empty(), guard) {
            (true, _) => QUEUE_FLAGS,
            (false, 0) => 0,
            (false, _) => HAS_DEADLINE_WAITER | OPEN,
        };
        if clear != 0 {
            self.word.fetch_and(!clear, Relaxed);
        }
        self.events.add(Event::PhaseWoken, granted.len().into());
        drop(queue);
        granted.grant();
        true
    }

    /// Lets in whoever may come in now.
    pub(super) fn serve_phases(&self, knobs: Phases, queue: &OwnQueue<'_, P, L>) -> WakeList<P> {
        let mut word = self.word.load(Relaxed);
        loop {
            if let Some(front) = queue.oldest_writer() {
                let may_join = match front.kind {
                    Kind::Upgrade => readers(word) == 1,
                    Kind::Upgradable => !is_free(word) && admits_upgradable(word),
                    _ => false,
                };
                let readers_too = front.kind == Kind::Upgradable
                    && queue.is_only_writer(front)
                    && queue.oldest_reader().is_some();
                if may_join && readers_too {
                    // Then nobody but readers would wait, for readers.
                    return self.begin_read_phase(knobs, queue);
                }
                if may_join {
                    if front.is_deadline_waiter.get() != 0 {
                        self.word.fetch_and(!(HAS_DEADLINE_WAITER | OPEN), Relaxed);
                    }
                    return self.grant_one(queue, front);
                }
            }
            if !has_waiters(word) {
                return WakeList::none();
            }
            if !is_free(word) {
                // Only readers wait and only readers hold it: nothing to wait for.
                let join = queue.oldest_writer().is_none() && admits_reader(word);
                return if join { self.begin_read_phase(knobs, queue) } else { WakeList::none() };
            }
            let lingers = word & (HAS_DEADLINE_WAITER | WRITER_WOKEN) != 0 && word & CLOSED == 0;
            if lingers && queue.clock().remaining(PhaseClock::<P>::now()) > 0 {
                return WakeList::none();
            }
            // Acquire pairs with the Release of everybody who has left.
            let closed = (word | CLOSED) & !OPEN;
            match self.word.compare_exchange_weak(word, closed, Acquire, Relaxed) {
                Ok(_) => return self.hand_over(knobs, queue, word),
                Err(found) => word = found,
            }
        }
    }

    /// Chooses the next holders. The lock is free and closed, the word this thread's.
    fn hand_over(&self, knobs: Phases, queue: &OwnQueue<'_, P, L>, before: u64) -> WakeList<P> {
        let now = PhaseClock::<P>::now();
        let readers_wait = queue.oldest_reader().is_some();
        let next = match (queue.oldest_writer(), phase(before)) {
            (None, _) => Next::Readers,
            (Some(_), Side::Read) => Next::Writer,
            (Some(_), Side::Write) if !readers_wait => Next::Writer,
            (Some(_), Side::Write)
                if before & CLOSED == 0 && queue.clock().fits(Side::Write, now) =>
            {
                Next::Turn
            }
            (Some(_), Side::Write) => Next::Readers,
        };
        if next == Next::Readers {
            return self.begin_read_phase(knobs, queue);
        }
        let writer: *const Node<P> = queue.oldest_writer().expect("chosen because there is one");
        // SAFETY: linked, so alive, and it stays so until it is granted.
        let writer = unsafe { &*writer };
        if writer.kind == Kind::Upgradable {
            // Shared as far as others are concerned: it comes in at the front of the readers.
            return self.begin_read_phase(knobs, queue);
        }
        debug_assert_eq!(writer.kind, Kind::Write, "an upgrader holds the lock, which is free");
        let mut granted = WakeList::none();
        granted.take(queue, writer);
        if next == Next::Writer {
            let (clock, estimates) = (queue.clock(), queue.clock().estimates());
            let budget = match phase(before) {
                Side::Read => estimates.budget_after(knobs, 1, estimates.last_budget()),
                Side::Write => estimates.budget(knobs, 1),
            };
            clock.begin(now, budget);
        }
        self.events.count(if next == Next::Turn { Event::PhaseTurn } else { Event::PhaseWrite });
        self.events.count(Event::WakeWriter);
        writer.woken_at.set(if next == Next::Writer { now.max(1) } else { 0 });
        // It does not run yet, and the CPU it acquires the lock on is not known.
        self.storage.owner_cpu().store(0, Relaxed);
        let mut took_guard = writer.is_deadline_waiter.get() != 0;
        if let Some(second) = queue.oldest_writer()
            && second.kind == Kind::Write
            && next == Next::Writer
            && knobs.longest_budget != 0
            && queue.clock().estimates().leaves_room_for_a_second()
        {
            took_guard |= second.is_deadline_waiter.get() != 0;
            let second: *const Node<P> = second;
            // SAFETY: linked, so alive, and it stays so until it is told.
            writer.take_second(queue, unsafe { &*second });
            self.events.count(Event::PhaseSecond);
        }
        let flags = self.flags_after(knobs, queue, before, took_guard);
        let phase = if flags == 0 { 0 } else { WRITE_PHASE };
        self.word.store(WRITER | flags | phase, Relaxed);
        granted
    }

    /// The queue's room and the flags that go with it after waiters were taken off.
    fn flags_after(
        &self,
        knobs: Phases,
        queue: &OwnQueue<'_, P, L>,
        before: u64,
        took_guard: bool,
    ) -> u64 {
        if queue.is_empty() {
            return 0;
        }
        let closed = if knobs.longest_budget == 0 { CLOSED } else { 0 };
        let readers_wait = if queue.oldest_reader().is_some() { READERS_WAIT } else { 0 };
        queue.bits()
            | closed
            | readers_wait
            | if took_guard { 0 } else { before & HAS_DEADLINE_WAITER }
    }

    /// Lets in every waiting reader, and an upgradable reader that heads the writers, beside any
    /// readers that hold the lock already.
    pub(super) fn begin_read_phase(
        &self,
        knobs: Phases,
        queue: &OwnQueue<'_, P, L>,
    ) -> WakeList<P> {
        let mut before = self.word.load(Relaxed);
        // No writer must come in meanwhile, and an upgradable holder not become one: one more reader
        // keeps the lock, unless it is closed to all.
        let mut keeper = 0;
        loop {
            if before & UPGRADING != 0 || has_writer(before) {
                return WakeList::none();
            }
            if before & (UPGRADABLE | CLOSED) == CLOSED {
                break;
            }
            match self.word.compare_exchange_weak(before, before + READER, Relaxed, Relaxed) {
                Ok(_) => {
                    keeper = READER;
                    before += READER;
                    break;
                }
                Err(found) => before = found,
            }
        }
        let mut took_guard = false;
        let mut entering = 0;
        let mut granted = WakeList::none();
        if let Some(front) = queue.oldest_writer()
            && front.kind == Kind::Upgradable
            && admits_upgradable(before)
        {
            took_guard |= front.is_deadline_waiter.get() != 0;
            entering |= UPGRADABLE;
            let front: *const Node<P> = front;
            // SAFETY: linked, so alive, and it stays so until it is granted.
            granted.take(queue, unsafe { &*front });
        }
        // The count cannot overflow: it is checked before it would.
        let most = (READER_LIMIT - 1).saturating_sub(readers(before)) as u32;
        while granted.len() < most {
            let Some(reader) = queue.oldest_reader() else {
                break;
            };
            took_guard |= reader.is_deadline_waiter.get() != 0;
            let reader: *const Node<P> = reader;
            // SAFETY: as above.
            granted.take(queue, unsafe { &*reader });
        }
        entering += u64::from(granted.len()) * READER;
        if knobs.longest_budget != 0 {
            let clock = queue.clock();
            clock.begin(PhaseClock::<P>::now(), clock.estimates().budget(knobs, granted.len()));
        }
        let mut word = before;
        loop {
            let flags = self.flags_after(knobs, queue, word, took_guard);
            let next = ((word & !QUEUE_FLAGS) + entering - keeper) | flags;
            // Acquire pairs with the Release of a writer that left or became a reader.
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        if granted.len() <= FEW && !queue.clock().estimates().is_short(Side::Read) {
            // Such readers sleep while they hold the lock, and leave the CPUs to those that wake.
            granted.one_by_one();
        }
        self.events.count(Event::PhaseRead);
        self.events.add(Event::WakeReader, u64::from(granted.len()));
        granted
    }
}

/// The protocol step by step: the nodes stand in for sleeping threads.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;
    use crate::policy::TimeFair;
    use crate::rwsem::queue_storage::{Inline, NoSpinners, Pooled, QueueStorageOf, ReaderBias};

    type Raw = RawRwSem<TimeFair, Os>;

    /// Readers need not take the lock while nobody waits.
    struct Biased;

    impl ReaderBias for Biased {
        const NEW: Self = Biased;
        fn somebody_queued(&self) -> bool {
            true
        }
    }

    fn waiters<const N: usize>(kinds: [Kind; N]) -> [Node<Os>; N] {
        kinds.map(|kind| Node::new(kind, Os::now()))
    }

    /// A lock that is held as `word` says, behind which these wait, the first as the deadline waiter,
    /// until the phase ends in so many ticks.
    fn lock_with(word: u64, nodes: &[Node<Os>], ends_in: i32) -> Raw {
        let lock = Raw::NEW;
        let queue = lock.lock_to_wait().expect("it is in the lock");
        nodes.iter().for_each(|node| queue.push(node));
        nodes[0].is_deadline_waiter.set(1);
        queue.clock().begin(PhaseClock::<Os>::now().wrapping_add_signed(ends_in), 0);
        lock.word.store(word | HAS_DEADLINE_WAITER | queue.bits(), Relaxed);
        drop(queue);
        lock
    }

    fn place(lock: &Raw) -> &Inline<Os> {
        lock.storage.place(lock.word.load(Relaxed))
    }

    fn clock(lock: &Raw) -> &PhaseClock<Os> {
        QueueStorageOf::clock(&lock.storage, lock.word.load(Relaxed)).expect("it is in the lock")
    }

    fn states(nodes: &[Node<Os>]) -> Vec<u32> {
        nodes.iter().map(|node| node.state.load(Relaxed)).collect()
    }

    const SOON: i32 = 1 << 20;

    #[test]
    fn only_a_lock_that_is_free_in_a_phase_of_writers_has_a_writer_called() {
        for (word, is_seen_to) in [
            // Readers have their phase by now, and whoever leaves last hands the lock over.
            (READER, true),
            (WRITER | WRITE_PHASE, true),
            (0, false),
            (WRITE_PHASE | CLOSED, false),
        ] {
            let nodes = waiters([Kind::Write, Kind::Write]);
            let lock = lock_with(word, &nodes, SOON);
            let before = lock.word.load(Relaxed);
            assert_eq!(lock.wake_writer(place(&lock)), is_seen_to, "{word:#x}");
            assert_eq!((lock.word.load(Relaxed), states(&nodes)), (before, vec![WAITING; 2]));
        }
        let nodes = waiters([Kind::Write, Kind::Write]);
        let lock = lock_with(WRITE_PHASE, &nodes, SOON);
        assert!(lock.wake_writer(place(&lock)));
        assert_eq!(states(&nodes), [WOKEN_DEQUEUED, WAITING]);
        assert_eq!(lock.word.load(Relaxed) & (WRITER_WOKEN | HAS_DEADLINE_WAITER), WRITER_WOKEN);
    }

    #[test]
    fn the_last_that_waits_is_called_without_a_trace() {
        let nodes = waiters([Kind::Write]);
        let lock = lock_with(WRITE_PHASE, &nodes, SOON);
        assert!(lock.wake_writer(place(&lock)));
        assert_eq!((lock.word.load(Relaxed), states(&nodes)), (0, vec![WOKEN_DEQUEUED]));
    }

    #[test]
    fn one_that_was_called_in_vain_is_called_again() {
        let Discipline::Phases(knobs) = TimeFair::DISCIPLINE else { panic!("it has phases") };
        let nodes = waiters([Kind::Write]);
        let lock = lock_with(WRITER | WRITE_PHASE | WRITER_WOKEN, &nodes, SOON);
        let called = Node::new(Kind::Write, Os::now());
        let queueing = lock.queue_for_phase(knobs, Side::Write, &called, true);
        assert!(matches!(queueing, Queueing::Queued(..)));
        assert_eq!(lock.word.load(Relaxed) & WRITER_WOKEN, 0, "it is back on the queue");
        // SAFETY: the word says that there is a writer, and nobody else is.
        unsafe { lock.unlock_write() };
        assert_eq!((called.state.load(Relaxed), states(&nodes)), (WOKEN_DEQUEUED, vec![WAITING]));
    }

    #[test]
    fn a_deadline_waiter_that_gives_up_appoints_another() {
        let nodes = waiters([Kind::Write, Kind::Read, Kind::Write]);
        let lock = lock_with(READER | OPEN | READERS_WAIT, &nodes, SOON);
        assert!(lock.withdraw(place(&lock), &nodes[0]));
        assert_eq!(states(&nodes), [WAITING, WAITING, APPOINTED], "the side that is passed");
        assert_eq!(nodes[2].is_deadline_waiter.get(), 1);
        assert!(lock.withdraw(place(&lock), &nodes[2]));
        // Nobody but readers waits, and readers hold the lock: nothing to wait for.
        assert_eq!(nodes[1].state.load(Relaxed), GRANTED);
        assert_eq!(lock.word.load(Relaxed), 2 * READER);
    }

    #[test]
    fn a_phase_without_a_deadline_waiter_is_not_open() {
        let nodes = waiters([Kind::Write, Kind::Upgrade]);
        let lock = lock_with(2 * READER, &nodes[..1], SOON);
        let queue = lock.attend(lock.word.load(Relaxed)).expect("somebody waits");
        queue.push_front(&nodes[1]);
        drop(queue);
        let upgrading = lock.word.load(Relaxed) | UPGRADABLE | UPGRADING | OPEN;
        lock.word.store(upgrading, Relaxed);
        assert!(lock.withdraw(place(&lock), &nodes[0]), "nobody else is passed");
        assert_eq!(lock.word.load(Relaxed) & (OPEN | HAS_DEADLINE_WAITER), 0);
    }

    #[test]
    fn whoever_only_tries_ends_a_phase_that_is_over() {
        for _ in 0..100 {
            let nodes = waiters([Kind::Write]);
            let lock = lock_with(READER | OPEN, &nodes, -1);
            // In an open phase not everybody looks.
            let entries = (0..1_000).take_while(|_| lock.try_read()).count();
            assert!(entries < 300, "{entries} entries without a look at the clock");
            assert_eq!(lock.word.load(Relaxed) & (CLOSED | OPEN), CLOSED);
        }
    }

    #[test]
    fn a_thread_that_uses_several_locks_by_turns_looks_at_the_clock_of_each() {
        for locks in 1..50u32 {
            let turns: Vec<_> = (0..10_000).map(|at| at * locks).collect();
            let longest = turns.split(|&turn| looks_at_clock(turn)).map(<[u32]>::len).max();
            assert!(longest < Some(300), "{locks} locks: {longest:?}");
        }
    }

    #[test]
    fn readers_do_not_wait_for_readers_when_the_last_other_waiter_joins_those() {
        let nodes = waiters([Kind::Upgradable, Kind::Read]);
        let lock = lock_with(READER | CLOSED | READERS_WAIT, &nodes, -1);
        let Discipline::Phases(knobs) = TimeFair::DISCIPLINE else { unreachable!() };
        let queue = lock.attend(lock.word.load(Relaxed)).expect("somebody waits");
        let granted = lock.serve_phases(knobs, &queue);
        drop(queue);
        granted.grant();
        assert_eq!(states(&nodes), [GRANTED; 2]);
        assert_eq!(lock.word.load(Relaxed), (3 * READER) | UPGRADABLE);
    }

    #[test]
    fn a_downgrade_beside_waiting_writers_is_no_phase_of_its_own() {
        let nodes = waiters([Kind::Write]);
        let lock = lock_with(WRITER | WRITE_PHASE, &nodes, SOON);
        let ends = clock(&lock).ends.load(Relaxed);
        // SAFETY: held, as the word says.
        unsafe { lock.downgrade_to_read() };
        assert_eq!(clock(&lock).ends.load(Relaxed), ends);
        assert!(!lock.try_read(), "the phase is the writers' still");
        assert_eq!(states(&nodes), [WAITING]);
    }

    #[test]
    fn an_upgrade_that_fails_is_no_turn_after_which_it_is_the_readers() {
        let nodes = waiters([Kind::Write, Kind::Read]);
        let lock = lock_with(WRITER | READERS_WAIT, &nodes, SOON);
        // SAFETY: held, as the word says.
        unsafe { lock.take_back_upgrade() };
        assert_eq!(states(&nodes), [WAITING; 2]);
        assert_eq!(lock.word.load(Relaxed) & (READERS | UPGRADABLE), READER | UPGRADABLE);

        let nodes = waiters([Kind::Read]);
        let lock = lock_with(WRITER | READERS_WAIT, &nodes, SOON);
        // SAFETY: as above.
        unsafe { lock.take_back_upgrade() };
        assert_eq!(states(&nodes), [GRANTED], "nobody but readers is left");
    }

    #[test]
    fn a_wake_up_that_took_long_does_not_make_the_phase_longer_by_as_much() {
        let nodes = waiters([Kind::Write, Kind::Write]);
        let lock = lock_with(WRITER | WRITE_PHASE, &nodes[1..], SOON);
        let Discipline::Phases(knobs) = TimeFair::DISCIPLINE else { unreachable!() };
        let before = clock(&lock).ends.load(Relaxed);
        let a_second_ago = PhaseClock::<Os>::now().wrapping_sub(ticks(1_000_000_000));
        nodes[0].woken_at.set(a_second_ago.max(1));
        nodes[0].state.store(GRANTED, Relaxed);
        let outcome = lock.sleep_until_phase(knobs, place(&lock), &nodes[0], false, None);
        assert!(matches!(outcome, Outcome::WakeList));
        let longer = clock(&lock).ends.load(Relaxed).wrapping_sub(before);
        assert!(longer <= ticks(10_000_000), "{longer} ticks");
    }

    #[test]
    fn those_that_readers_have_passed_for_a_budget_are_not_told_to_try_again() {
        for (ends_in, called) in [(SOON, true), (-1, false)] {
            let lock = RawRwSem::<TimeFair, Os, Pooled<Os, NoSpinners, Biased>>::NEW;
            let node = Node::new(Kind::Write, Os::now());
            let queue = lock.lock_to_wait().expect("there are enough");
            queue.clock().begin(PhaseClock::<Os>::now().wrapping_add_signed(ends_in), 0);
            lock.word.store(queue.bits(), Relaxed);
            queue.note_named();
            queue.push(&node);
            drop(queue);
            assert_eq!(lock.wake_waiters(lock.word.load(Relaxed)), called);
            assert_eq!(node.state.load(Relaxed), if called { WOKEN_DEQUEUED } else { WAITING });
            if !called {
                let queue = lock.attend(lock.word.load(Relaxed)).expect("it waits");
                queue.remove(&node);
                lock.word.store(0, Relaxed);
            }
        }
    }

    #[test]
    fn one_that_was_called_in_vain_finds_its_budget_used_up() {
        let lock = Raw::NEW;
        lock.word.store(WRITER, Relaxed);
        let Discipline::Phases(knobs) = TimeFair::DISCIPLINE else { unreachable!() };
        let (first, again) = (Node::new(Kind::Write, Os::now()), Node::new(Kind::Write, Os::now()));
        for (node, back) in [(&first, false), (&again, true)] {
            let queued = lock.queue_for_phase(knobs, Side::Write, node, back);
            assert!(matches!(queued, Queueing::Queued(_, true)), "as the deadline waiter");
            let left = clock(&lock).remaining(ticks(node.since));
            assert_eq!(left > 0, !back);
            assert!(lock.withdraw(place(&lock), node));
        }
    }

    #[test]
    fn a_free_lock_whose_phase_is_over_is_not_kept_for_its_side() {
        let nodes = waiters([Kind::Write, Kind::Write]);
        let lock = lock_with(0, &nodes, -1);
        let Discipline::Phases(knobs) = TimeFair::DISCIPLINE else { unreachable!() };
        let queue = lock.attend(lock.word.load(Relaxed)).expect("somebody waits");
        let granted = lock.serve_phases(knobs, &queue);
        drop(queue);
        assert_eq!(granted.len(), 1);
        granted.grant();
        assert_eq!(states(&nodes), [GRANTED, WAITING]);
    }
}
