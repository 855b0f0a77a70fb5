//! Those that have to wait: how a thread queues and sleeps.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::SPIN_FOR_A_WAKE_UP;
use super::admission::Spin;
use crate::events::{CountEvents, Event};
use crate::platform::{AtomicCell, PlainCell, Platform, Tunable};
use crate::policy::{LONGEST_IN_LINE_NS, Phases, Policy};
use crate::rwsem::core::{Queueing, RawRwSem, Step};
use crate::rwsem::phase_clock::{PhaseClock, TICK_SHIFT, ticks, tuned};
use crate::rwsem::queue_storage::{OwnQueue, Place, QueueStorage};
use crate::rwsem::wait_queue::{APPOINTED, GRANTED, Kind, Node, WAITING, WOKEN_DEQUEUED, WakeList};
use crate::rwsem::word::*;

/// A wake-up that takes more than this many times as long as usual is no reason for a longer phase: who
/// was to wake the thread may have lost its CPU, and others wait meanwhile. Chosen, not measured.
const LATEST_WAKE_UP: Tunable = Tunable::new("latest_wake_up", 4, 0..=48);

/// How long a reader stands in line at most.
const LONGEST_IN_LINE: Tunable =
    Tunable::new("longest_in_line_ns", LONGEST_IN_LINE_NS as u32, 0..=100_000_000);

pub(super) const TUNABLES: &[Tunable] = &[LATEST_WAKE_UP, LONGEST_IN_LINE];

/// How an attempt to queue ended.
pub(super) enum Queued<'a, R> {
    /// In this place; as the deadline waiter, or not.
    Waits(&'a R, bool),
    Entered,
    /// Ended the phase of its own side and handed the lock to the only ones that waited, or woke
    /// one to share it with.
    HandedOver,
}

/// What becomes of a thread that has ended the phase of its own side.
enum AfterOwnPhase {
    /// It enters or queues, as the word says.
    GoesOn,
    /// It queues: another writer has its turn.
    Queues,
    /// It leaves the lock to those that waited, and spins.
    LeavesIt,
}

/// How a wait in the queue ended.
pub(super) enum Outcome {
    Granted,
    TimedOut,
    /// [`WOKEN_DEQUEUED`]: starts over.
    Woken,
}

impl<Pol: Policy, P: Platform, L: QueueStorage<P>> RawRwSem<Pol, P, L> {
    pub(in crate::rwsem) fn wait_for_phase(
        &self,
        knobs: Phases,
        kind: Kind,
        deadline: Option<u64>,
        is_over: bool,
    ) -> bool {
        let side = if kind == Kind::Read { Side::Read } else { Side::Write };
        if knobs.longest_budget != 0 {
            let clock = self.storage.clock(self.word.load(Relaxed));
            if let Some(clock) = clock.filter(|clock| clock.left(side).is_some()) {
                clock.note_return(side, PhaseClock::<P>::now());
            }
        }
        // In a phase that is over there is nothing to spin for: queueing ends it.
        if is_over {
            return self.spin_or_wait(knobs, kind, deadline, false);
        }
        // Without a budget nobody is ever passed, not even by those in a line.
        let may_collide = kind != Kind::Read || knobs.longest_budget == 0;
        match self.spin_for_entry(knobs, kind, tuned::<P>(knobs).spin, false, may_collide) {
            Spin::Entered => true,
            Spin::InVain => self.spin_or_wait(knobs, kind, deadline, false),
            Spin::Collided => self.stand_in_line(knobs, kind, deadline),
        }
    }

    /// For readers whose entries collide: one after the other they enter faster.
    fn stand_in_line(&self, knobs: Phases, kind: Kind, deadline: Option<u64>) -> bool {
        let until = P::now() + u64::from(P::tuned(LONGEST_IN_LINE));
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        // It stays the front until it has the lock, and so wakes nobody who would only have to queue.
        let wait = || self.spin_or_wait(knobs, kind, deadline, true);
        self.storage.at_front(Some(until), wait).unwrap_or_else(wait)
    }

    /// Waits until the thread has the lock, or, returning false, until the deadline.
    fn spin_or_wait(
        &self,
        knobs: Phases,
        kind: Kind,
        deadline: Option<u64>,
        mut spins: bool,
    ) -> bool {
        let side = if kind == Kind::Read { Side::Read } else { Side::Write };
        // `woken`: it was woken to compete and got nothing, so it queues at the front.
        let usual = tuned::<P>(knobs).spin;
        let (mut spin, mut woken) = (usual, false);
        loop {
            let enter = || self.spin_for_entry(knobs, kind, spin, woken, true) == Spin::Entered;
            if core::mem::replace(&mut spins, true) && enter() {
                return true;
            }
            let node = Node::new(kind, P::now());
            let without_queue = || {
                let entered = enter();
                node.came(P::now());
                entered.then_some(Queued::Entered)
            };
            let with_queue = |queue| self.queue_for_phase(knobs, side, &node, woken, queue);
            let (place, has_deadline) =
                match self.enter_or_queue(deadline, without_queue, with_queue) {
                    Some(Queued::Waits(place, has_deadline)) => (place, has_deadline),
                    Some(Queued::Entered) => return true,
                    Some(Queued::HandedOver) => {
                        spin = usual.saturating_mul(P::tuned(SPIN_FOR_A_WAKE_UP));
                        continue;
                    }
                    None => return false,
                };
            match self.sleep_until_phase(knobs, place, &node, has_deadline, deadline) {
                Outcome::Granted => return true,
                Outcome::TimedOut => return false,
                Outcome::Woken => (spin, woken) = (usual, true),
            }
        }
    }

    /// Queues, unless the lock can be entered after all. Ends this side's phase if its budget has ended.
    /// None if another queue turns out to be the right one.
    pub(super) fn queue_for_phase<'a>(
        &'a self,
        knobs: Phases,
        side: Side,
        node: &Node<P>,
        woken: bool,
        queue: OwnQueue<'a, P, L>,
    ) -> Option<Queued<'a, L::Place>> {
        let (kind, now) = (node.kind, ticks(node.since()));
        // Those taken off before this one queues.
        let mut others = WakeList::none();
        let (mut turn_over, mut just_looked, mut has_begun) = (false, false, false);
        let ended = self.queue_as(queue, node, woken, |queue, word| {
            // Not twice in a row, and not once somebody was taken off: those are woken at the end.
            if !core::mem::take(&mut just_looked)
                && others.is_empty()
                && has_waiters(word)
                && word & CLOSED == 0
                && phase(word) == side
                && !queue.clock().fits(side, now)
                && knobs.longest_budget != 0
            {
                let after;
                (others, after) = match self.end_own_phase(knobs, queue, word, woken, now) {
                    Ok(ended) => ended,
                    Err(found) => return Step::Again(found),
                };
                match after {
                    AfterOwnPhase::GoesOn => {}
                    AfterOwnPhase::Queues => turn_over = true,
                    AfterOwnPhase::LeavesIt => return Step::Stop,
                }
                just_looked = true;
                return Step::Again(self.word.load(Relaxed));
            }
            if others.is_empty()
                && !woken
                && word & (OPEN | CLOSED) == OPEN
                && phase(word) == side
                && queue.clock().is_turn_over(now)
            {
                others = self.begin_turn_within(queue, side, now);
                turn_over = !others.is_empty();
                return Step::Again(self.word.load(Relaxed));
            }
            let entered = if turn_over { None } else { self.admit_again(knobs, word, kind, woken) };
            entered.map_or_else(
                || {
                    // Once: others change the word all the time, and what this writes is on the same cache line.
                    if !has_waiters(word) && !core::mem::replace(&mut has_begun, true) {
                        queue.clock().begin_first(knobs, node.since());
                        if woken {
                            // It was passed for a budget already, and woken when the queue became empty.
                            queue.clock().end(now);
                        }
                    }
                    let next = self.with_waiter(knobs, queue, word, side, node);
                    let is_back = woken && side == Side::Write;
                    Step::Queue(if is_back { next & !WRITER_WOKEN } else { next })
                },
                Step::Enter,
            )
        });
        match ended? {
            Queueing::Stopped(queue) => {
                drop(queue);
                others.wake();
                Some(Queued::HandedOver)
            }
            Queueing::Entered(queue) => {
                if woken {
                    self.begin_turn_of_next(knobs, &queue);
                }
                drop(queue);
                others.wake();
                Some(Queued::Entered)
            }
            Queueing::Queued(queue) => {
                if woken {
                    node.woken_in_vain.set(1);
                }
                if others.is_empty() {
                    others = self.serve_phases(knobs, &queue);
                }
                let has_deadline = node.is_deadline_waiter.get() != 0;
                let place = queue.place();
                drop(queue);
                others.wake();
                Some(Queued::Waits(place, has_deadline))
            }
        }
    }

    /// Ends the phase of this thread's own side, whose budget is over: those that get the lock, or a turn, by
    /// that.
    ///
    /// # Errors
    /// The word found, if it was not `word`.
    fn end_own_phase(
        &self,
        knobs: Phases,
        queue: &OwnQueue<'_, P, L>,
        word: u64,
        woken: bool,
        now: u32,
    ) -> Result<(WakeList<P>, AfterOwnPhase), u64> {
        if !self.passes_turn_on(queue, phase(word), woken) {
            self.close(word, OPEN)?;
            let others = self.serve_phases(knobs, queue);
            let is_last = queue.is_empty();
            let after = if is_last { AfterOwnPhase::LeavesIt } else { AfterOwnPhase::GoesOn };
            return Ok((others, after));
        }
        let next = self.begin_turn(knobs, queue, now);
        // The lock was last taken on another CPU: a second writer is awake there.
        if !self.storage.owner().is_here() {
            return Ok((next, AfterOwnPhase::Queues));
        }
        if queue.is_empty() {
            self.word.fetch_and(!QUEUE_FLAGS, Relaxed);
        }
        Ok((next, AfterOwnPhase::LeavesIt))
    }

    /// Only writers wait, and the one that waits longest can simply join those that are awake.
    fn passes_turn_on(&self, queue: &OwnQueue<'_, P, L>, side: Side, woken: bool) -> bool {
        side == Side::Write
            && !woken
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
        let mut woken = WakeList::none();
        if let Some(oldest) = queue.oldest_writer() {
            if oldest.is_deadline_waiter.get() != 0 {
                self.word.fetch_and(!(HAS_DEADLINE_WAITER | OPEN), Relaxed);
            }
            woken.take_to_retry(queue, oldest);
            self.events.count(Event::PhaseTurn);
        }
        let clock = queue.clock();
        clock.begin(now, clock.estimates().budget(knobs, 1));
        woken
    }

    /// A turn is over within an open phase: wakes the one of this side that has waited longest, which the caller makes room for.
    /// Nobody if none of this side waits.
    fn begin_turn_within(&self, queue: &OwnQueue<'_, P, L>, side: Side, now: u32) -> WakeList<P> {
        queue.clock().begin_turn(now);
        let mut woken = WakeList::none();
        if let Some(next) = self.next_in_turn(queue, side, now) {
            if next.is_deadline_waiter.get() != 0 {
                self.word.fetch_and(!(HAS_DEADLINE_WAITER | OPEN), Relaxed);
            }
            woken.take_to_retry(queue, next);
            self.events.count(Event::PhaseTurn);
        }
        woken
    }

    /// The word with one more waiter of `side`; marks the node if it becomes the deadline waiter.
    fn with_waiter(
        &self,
        knobs: Phases,
        queue: &OwnQueue<'_, P, L>,
        word: u64,
        side: Side,
        node: &Node<P>,
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
        }
        if knobs.longest_budget == 0 {
            next |= CLOSED;
        }
        // While the phase is closed only its own side needs a deadline waiter: that side will wait through
        // the next phase, which is the other side's.
        let wanted = next & CLOSED == 0 || phase(next) == side;
        let has_deadline = knobs.longest_budget != 0 && next & HAS_DEADLINE_WAITER == 0 && wanted;
        node.is_deadline_waiter.set(has_deadline.into());
        if has_deadline { next | HAS_DEADLINE_WAITER } else { next }
    }

    pub(super) fn sleep_until_phase(
        &self,
        knobs: Phases,
        place: &L::Place,
        node: &Node<P>,
        mut has_deadline: bool,
        mut deadline: Option<u64>,
    ) -> Outcome {
        let clock = place.clock();
        // When the deadline waiter looks next, if not at the end of the running phase.
        let mut next_look = 0;
        loop {
            match node.state.load(Acquire) {
                GRANTED => break,
                WOKEN_DEQUEUED => return Outcome::Woken,
                APPOINTED => {
                    // Unless it is granted or woken just now.
                    let unchanged =
                        node.state.compare_exchange(APPOINTED, WAITING, Relaxed, Relaxed);
                    has_deadline |= unchanged.is_ok();
                    continue;
                }
                _ => {}
            }
            let now = P::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                if self.withdraw(place, node) {
                    return Outcome::TimedOut;
                }
                (deadline, has_deadline) = (None, false);
                continue;
            }
            let mut alarm = deadline;
            if has_deadline {
                let remaining = clock.remaining(ticks(now)).max(0) as u64;
                let ends = now + (remaining << TICK_SHIFT);
                // Those that run the phase look at the clock too; the deadline waiter is for when they
                // do not come.
                let grace = if remaining > 0 { u64::from(P::wake_latency()) } else { 0 };
                let look = next_look.max(ends + grace);
                if look <= now {
                    has_deadline = self.close_phase(knobs, place, node);
                    // If it still is the deadline waiter it is that of the phase to come.
                    let budget = clock.estimates().budget(knobs, 1);
                    next_look = now + (u64::from(budget) << TICK_SHIFT);
                    continue;
                }
                alarm = Some(alarm.map_or(look, |alarm| alarm.min(look)));
            }
            self.count_sleep(node.kind);
            P::park(&node.state, WAITING, alarm);
        }
        // Before the wake chain: a thread woken here may preempt this one, and must then see that the owner
        // is not running.
        self.note_owner(node.kind);
        node.wake_chain();
        if knobs.longest_budget != 0 {
            let (now, woken_at) = (PhaseClock::<P>::now(), node.woken_at.get());
            let late = now.wrapping_sub(woken_at);
            if woken_at != 0 {
                P::note_wake_latency(late.min(1 << 20) << TICK_SHIFT);
            }
            if self.is_still_in(place) {
                // An open phase goes on long after this holder has left.
                if self.word.load(Relaxed) & OPEN == 0 {
                    clock.note_admitted(now);
                }
                if woken_at != 0 {
                    // The first of its phase: the budget runs from here, not from the wake-up.
                    let most = P::tuned(LATEST_WAKE_UP) * ticks(P::wake_latency().into());
                    clock.extend(late.min(most));
                }
            }
        }
        self.events.count(match node.kind {
            Kind::Read => Event::Rlock,
            _ => Event::Wlock,
        });
        Outcome::Granted
    }

    /// The phase that this thread is granted the lock in is the one that the clock in `place` times:
    /// somebody waits for it. (Where nobody does, the clock is another lock's, or nobody's.)
    fn is_still_in(&self, place: &L::Place) -> bool {
        L::IS_INLINE || self.word.load(Relaxed) & QUEUE == place.bits()
    }

    /// `node` has given up and is off the queue: if it was the deadline waiter, another waiter takes its
    /// place. The flags that go with it, and the state of the one that is to be woken for that, or null.
    pub(in crate::rwsem) fn gave_up_in_phase(
        &self,
        queue: &OwnQueue<'_, P, L>,
        node: &Node<P>,
    ) -> (u64, *const P::AtomicU32) {
        let (mut clear, mut appointed) = (0, core::ptr::null());
        if node.is_deadline_waiter.get() != 0 {
            match self.appoint(queue) {
                Some(state) => appointed = state,
                None => clear |= HAS_DEADLINE_WAITER | OPEN,
            }
        }
        if queue.oldest_reader().is_none() {
            clear |= READERS_WAIT;
        }
        (clear, appointed)
    }

    /// Makes another waiter the deadline waiter, which is to be woken for that. None if nobody needs to.
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
        // not woken yet, and a wake-up overwrites this.
        next.state.store(APPOINTED, Relaxed);
        Some(&next.state)
    }
}
