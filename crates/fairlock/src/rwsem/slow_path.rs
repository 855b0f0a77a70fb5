//! [`TimeFair`](crate::policy::TimeFair): the two sides divide the lock's time, as their account
//! says (`account.rs`). [`PhaseFair`](crate::policy::PhaseFair) is the same with no slack: no
//! thread passes a waiter.
//!
//! ```text
//!                    the first waits                     it is owed enough
//!   no waiters ──────────────────────► its side keeps ─────────────────────► both are shut
//!    (one side may still be shut)           time  ▲                             │ last holder leaves:
//!                                                 │                             │ hand over
//!                                                 └── the next phase: the other is shut ◄┘
//! ```
//!
//! * While the accounts are level, threads spin for as long as a wake-up takes, and take the lock
//!   as it comes.
//! * Those that sleep are passed by newcomers of both sides. The first waiter of the side whose
//!   phase it is not keeps time: when its side is owed the slack, it shuts both sides out. Then the
//!   last holder hands the lock over: to readers, or to the writer that waits longest.
//! * The next phase lasts for what its side is owed and the slack; meanwhile the other side is shut
//!   out, if it waits or owes more than a wake-up. So a change of sides, which costs wake-ups,
//!   comes seldom, unless one side is far behind.
//! * A side that is shut out uses the lock when the other has left it free for a while: a *gap*,
//!   which ends the phase. It watches whether a thread enters (`WATCHED`). Who leaves the lock free
//!   wakes it to do so, once in each of its waits (`MAY_LOOK`). A newcomer that finds it free does
//!   not watch, unless readers use slots. A side that owes the other more than the slack watches
//!   for longer.
//! * A waiter whose side has long been ahead also looks once in each slack whether the other side
//!   has left.
//! * A side without waiters stays shut out for as long as it owes the other, so that a thread that
//!   comes right back does not take a lock that stands free for a moment. A thread that only tries
//!   takes it: it passes no waiter.
//! * Writers among themselves: the unlocking thread wakes the writer that has waited longest, which
//!   competes. If it gets nothing, it shuts the lock, and has it next, unless its side's phase is
//!   over.
//!
//! Invariants, in addition to those in `lock.rs`
//! 1. If both sides are shut, `MUST_SERVE` is set. If the lock is free as well, only the holder of
//!    the queue's lock writes the word.
//! 2. If both sides are not shut and a thread waits in the other side's phase, the first of its
//!    side keeps time, or has been woken to do so (`APPOINTED`), and the end of that phase is set.
//!    One that upgrades keeps no time: it has the lock as soon as the other readers have left.
//! 3. If one waits in its own side's phase, `MUST_SERVE` is set. In the writers' phase readers then
//!    do not join others, so the lock becomes free. In the readers' phase an upgradable reader that
//!    waits keeps other upgradable ones out after the slack.
//! 4. Where no thread waits, at most one side is shut, and `WATCHED` and `WANTED` may be set;
//!    nothing else is.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::account::{PhaseClock, TICK_SHIFT, ticks};
use super::admission::{admit, came, enter_gap, is_out, shut, shut_to_all, side_of};
use super::knobs::{NAPS, latency, looks_at_clock};
use super::lock::RawRwSem;
use super::own_queue::OwnQueue;
use super::queue_pool::{HasQueuePool, PooledQueue};
use super::reader_bias::ReaderBias;
use super::wait_queue::{APPOINTED, GRANTED, Kind, Node, WAITING, WOKEN_DEQUEUED, WakeList};
use super::word::*;
use crate::events::{CountEvents, Event};
use crate::platform::{AtomicCell, NAP, PlainCell, Platform};
use crate::policy::{LONGEST_IN_LINE_NS, Policy, SPIN_ON_OWNER_NS, Shares};
use crate::slots::at_front;
use crate::spin_budget::SpinBudget;

/// What a thread wants that could not enter at once.
struct Request {
    kind: Kind,
    deadline: Option<u64>,
    /// Since when it waits, ns.
    since: u64,
    /// It was woken to try again.
    woken: bool,
}

impl Request {
    fn node<P: Platform>(&self) -> Node<P> {
        Node::new(self.kind, self.since, self.woken)
    }

    /// The word once it has entered; none if it may not.
    fn enters(&self, word: u64) -> Option<u64> {
        let entered = admit(word, self.kind)?;
        Some(if self.woken { came(entered, side_of(self.kind)) } else { entered })
    }
}

/// What came of an attempt to enter.
enum Entry {
    Entered,
    Refused,
    /// Other readers changed the word meanwhile.
    Collided,
}

/// What came of an attempt to queue.
enum Queued<P: HasQueuePool> {
    /// In the queue there; `soon` if the lock is about to be handed over.
    Waits {
        place: &'static PooledQueue<P>,
        soon: bool,
    },
    Entered,
    TimedOut,
}

/// How a wait in the queue ended.
enum Ended {
    Granted,
    TimedOut,
    /// It must try again.
    Woken,
}

/// What a waiter that has looked at the clock does next.
enum Look {
    /// Nothing: it is off the queue, and its state is about to say why.
    Taken,
    /// Its state has changed, or is about to.
    Again,
    /// It sleeps until then, ns, or until it is appointed or granted the lock.
    At(Option<u64>),
    /// Until then something is about to happen.
    Spin(u64),
    /// It watches for this many ns whether the lock is used.
    Watch(u64),
}

/// The moment, or the deadline if that comes first; ns.
fn earlier(moment: u64, deadline: Option<u64>) -> u64 {
    deadline.map_or(moment, |deadline| deadline.min(moment))
}

fn is_over<P: Platform>(deadline: Option<u64>) -> bool {
    deadline.is_some_and(|deadline| P::now() >= deadline)
}

impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> RawRwSem<Pol, P, B> {
    /// False if the deadline passed.
    #[cold]
    pub(super) fn acquire_slow(&self, kind: Kind, deadline: Option<u64>) -> bool {
        let wait = || self.wait(kind, deadline);
        let acquired = match self.enter(kind) {
            Entry::Entered => true,
            Entry::Refused => wait(),
            // Readers whose entries collide enter faster one after the other. The front also waits
            // there, and queues without a spin: the others meanwhile wait on cache lines of their
            // own, not on the word.
            Entry::Collided => {
                let until = earlier(P::now() + LONGEST_IN_LINE_NS, deadline);
                at_front(&self.line, Some(until), wait).unwrap_or_else(wait)
            }
        };
        if acquired {
            self.note_owner(kind);
        }
        acquired
    }

    /// A newcomer's attempt, past those that wait if it may.
    fn enter(&self, kind: Kind) -> Entry {
        if kind == Kind::Upgrade {
            return Entry::Refused; // It has just tried.
        }
        // Where most readers do not take this lock, it is free most of the time.
        let may_use_gap = |_: &u64| !self.bias.is_biased();
        let mut word = self.word.load(Relaxed);
        while let Some(mut entered) =
            admit(word, kind).or_else(|| enter_gap(word, kind).filter(may_use_gap))
        {
            if !has_waiters(word) && looks_at_clock::<P>() {
                self.note_held(side_of(kind), PhaseClock::<P>::now(), 0);
                if self.owed_to(side_of(kind)) <= 0 {
                    entered &= !BOTH_OUT;
                }
            }
            match self.word.compare_exchange_weak(word, entered, Acquire, Relaxed) {
                Ok(_) => return Entry::Entered,
                Err(_) if kind == Kind::Read => return Entry::Collided,
                Err(found) => word = found,
            }
        }
        Entry::Refused
    }

    /// Spins, queues and sleeps until the lock is this thread's. False if the deadline passed.
    fn wait(&self, kind: Kind, deadline: Option<u64>) -> bool {
        // The wait begins here: a thread that loses its CPU while it spins has waited, too.
        let mut request = Request { kind, deadline, since: P::now(), woken: false };
        loop {
            let spins = Self::spin_ns() != 0 && kind != Kind::Upgrade;
            if spins && self.spin_in_line(&request) {
                return true;
            }
            let node = request.node();
            let ended = match self.queue_up(&request, &node) {
                Queued::Waits { place, soon } => self.sleep(&request, place, &node, soon),
                Queued::Entered => Ended::Granted,
                Queued::TimedOut => Ended::TimedOut,
            };
            match ended {
                Ended::Granted => return true,
                Ended::TimedOut => return false,
                Ended::Woken => request.woken = true,
            }
        }
    }

    /// Spins, one thread at a time: that disturbs the holders least.
    fn spin_in_line(&self, request: &Request) -> bool {
        if request.woken || !has_waiters(self.word.load(Relaxed)) {
            return self.spin(request);
        }
        let until = earlier(P::now() + Self::spin_ns(), request.deadline);
        at_front(&self.line, Some(until), || self.spin(request)).unwrap_or(false)
    }

    /// For about as long as a wake-up takes.
    fn spin(&self, request: &Request) -> bool {
        let Request { kind, woken, deadline, .. } = *request;
        if kind == Kind::Upgrade {
            return self.word.update(Acquire, |word| admit(word, kind)).is_ok();
        }
        let side = side_of(kind);
        let other = side.other();
        let absence = self.absence(side);
        let mut budget = None;
        let (mut blocked_since, mut free_since, mut watches, mut naps) = (0, 0, 0, 0);
        loop {
            let word = self.word.load(Relaxed);
            // A reader that has upgraded holds the lock in the readers' time.
            let has_upgraded = side == Side::Read && has_waiters(word) && phase(word) == side;
            if blocked_since == 0 && is_held_by(word, other) && !has_upgraded {
                blocked_since = PhaseClock::<P>::now().max(1);
                self.note_held(other, blocked_since, 0);
            }
            // That the other side leaves it free is the end of its phase.
            let gap = enter_gap(word & !WATCHED, kind).map(|word| word & !shut(side));
            let entered = admit(word, kind).or(gap);
            let must_be_patient = gap.is_some();
            if !must_be_patient || self.bias.is_read() {
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
                let ns = if among_writers {
                    Self::spin_ns().max(SPIN_ON_OWNER_NS)
                } else {
                    Self::spin_ns()
                };
                SpinBudget::new::<P>(ns, deadline)
            });
            if !spin.relax::<P>() {
                self.events.count(Event::OptFail);
                return false;
            }
        }
    }

    /// There is nothing to spin for: the other side's phase runs, or this side is owed enough to
    /// end it.
    fn must_queue(&self, word: u64, side: Side) -> bool {
        let is_others = is_out(word, side) && has_waiters(word) && !is_free(word);
        let is_own = has_waiters(word) && phase(word) == side;
        is_others
            || is_held_by(word, side.other()) && !is_own && self.owed_to(side) >= Self::slack()
    }

    /// Queues, or enters if it may by now. While the pool has no queue left, gives way and spins.
    fn queue_up(&self, request: &Request, node: &Node<P>) -> Queued<P> {
        let mut attempt = 0;
        loop {
            let Some(queue) = self.queue_to_wait_in() else {
                if is_over::<P>(request.deadline) {
                    return Queued::TimedOut;
                }
                P::give_way(attempt);
                attempt += 1;
                if self.spin(request) {
                    return Queued::Entered;
                }
                continue;
            };
            if let Some(ended) = self.queue_in(queue, request, node) {
                return ended;
            }
        }
    }

    /// None if the lock has another queue by now.
    fn queue_in(
        &self,
        queue: OwnQueue<'_, P>,
        request: &Request,
        node: &Node<P>,
    ) -> Option<Queued<P>> {
        // Fewer: it stops a thread that was about to leave the lock. More: it waits for longer.
        // Chosen, not measured.
        const MOST_FAILURES: u32 = 16;
        let (mut word, mut failures) = (self.word.load(Relaxed), 0);
        loop {
            if !queue.is_for(word) {
                return None;
            }
            let unwanted = word & !WANTED;
            let entered = request.enters(unwanted);
            let next = entered.unwrap_or_else(|| self.with_waiter(&queue, request, unwanted));
            // Acquire, for those that enter, pairs with the Release of those that have left.
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) if entered.is_some() => return Some(Queued::Entered),
                Ok(_) => break,
                // A thread that takes the lock again and again may always be faster, but not once a
                // flag is set.
                Err(_) if failures == MOST_FAILURES && request.kind != Kind::Upgrade => {
                    word = self.word.fetch_or(WANTED, Relaxed) | WANTED;
                    failures = 0;
                }
                Err(found) => (word, failures) = (found, failures + 1),
            }
        }
        queue.note_named();
        if request.woken || request.kind == Kind::Upgrade {
            queue.push_front(node)
        } else {
            queue.push(node)
        }
        queue.place().note_queued(self.bias.note_waiter());
        // The last holder may have left just before that.
        let woken = self.serve(&queue);
        let soon = is_shut(self.word.load(Relaxed));
        let place = queue.place();
        queue.unlock_and_wake(woken);
        Some(Queued::Waits { place, soon })
    }

    /// The word once this thread waits.
    fn with_waiter(&self, queue: &OwnQueue<'_, P>, request: &Request, word: u64) -> u64 {
        let Request { kind, woken, .. } = *request;
        if kind == Kind::Upgrade {
            return word | queue.bits() | UPGRADING;
        }
        let (side, now) = (side_of(kind), PhaseClock::<P>::now());
        let mut next = word | queue.bits();
        if !has_waiters(word) {
            // A phase begins: that of the side which holds the lock, or which it was left to.
            let is_writers = if is_free(word) { side == Side::Read } else { has_writer(word) };
            next = word & !QUEUE_FLAGS | queue.bits();
            if is_writers {
                next |= WRITE_PHASE;
            }
            // The side that was shut out while none waited stays so.
            if self.is_owed(phase(next)) {
                next |= word & shut(phase(next).other());
            }
        }
        if phase(next) != side && queue.first_of(side).is_none() {
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
        next
    }

    fn sleep(
        &self,
        request: &Request,
        place: &'static PooledQueue<P>,
        node: &Node<P>,
        soon: bool,
    ) -> Ended {
        let (side, mut deadline) = (side_of(node.kind), request.deadline);
        // When it must look at the lock, ns; and what it has watched for.
        let mut look = (node.kind != Kind::Upgrade).then_some(0);
        let (mut is_absent, mut sleeps) = (None, false);
        if soon {
            self.spin_on(node, P::now() + Self::spin_ns());
        }
        loop {
            let state = node.state.load(Acquire);
            sleeps = sleeps && state == GRANTED;
            let mut asleep = WAITING;
            match state {
                GRANTED => break,
                WOKEN_DEQUEUED => return Ended::Woken,
                APPOINTED => look = Some(0),
                _ => {}
            }
            if is_over::<P>(deadline) {
                if self.withdraw(place, node) {
                    return Ended::TimedOut;
                }
                deadline = None;
                continue;
            }
            if look.is_some_and(|look| look == 0 || P::now() >= look) {
                look = match self.keep_time(place, node, side, is_absent.take()) {
                    Look::Again => continue,
                    Look::Watch(absence) => {
                        is_absent = Some(self.watch(node, absence));
                        continue;
                    }
                    // The last holder will hand the lock to this thread.
                    Look::Spin(until) if !self.spin_on(node, until) && self.is_shut() => None,
                    Look::Spin(_) => continue,
                    Look::At(look) => look,
                    Look::Taken => {
                        asleep = state;
                        None
                    }
                };
            }
            let alarm = look.map_or(deadline, |look| Some(earlier(look, deadline)));
            self.events.count(match node.kind {
                Kind::Read => Event::SleepReader,
                _ => Event::SleepWriter,
            });
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
        Ended::Granted
    }

    /// No thread enters.
    fn is_shut(&self) -> bool {
        is_shut(self.word.load(Relaxed))
    }

    /// No thread uses the lock for `absence` ns, once a reader in a slot has left, if that is soon.
    fn watch(&self, node: &Node<P>, absence: u64) -> bool {
        let (begin, mut free_since) = (P::now(), 0);
        loop {
            let now = P::now();
            match self.bias.is_read() {
                true => free_since = 0,
                false if free_since == 0 => free_since = now,
                false => {}
            }
            let is_absent = free_since != 0 && now >= free_since + absence;
            if is_absent || now >= begin + 2 * absence || self.spin_on(node, now) {
                let word = self.word.load(Relaxed);
                return is_absent && word & WATCHED != 0 && is_free(word);
            }
            let until = if free_since == 0 { begin + 2 * absence } else { free_since + absence };
            P::relax(Some(until));
        }
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
        place: &'static PooledQueue<P>,
        node: &Node<P>,
        side: Side,
        is_absent: Option<bool>,
    ) -> Look {
        let Some(queue) = self.own_queue_in(place) else { return Look::Taken };
        if !node.is_linked(&queue) {
            return Look::Taken;
        }
        // If it was appointed, that happened under this lock.
        node.state.store(WAITING, Relaxed);
        let word = self.word.load(Relaxed);
        let is_first = queue.first_of(side).is_some_and(|first| core::ptr::eq(first, node));
        let now = P::now();
        if node.kind == Kind::Upgradable && phase(word) == side && !is_shut(word) {
            return self.keep_upgradable_out(node, now);
        }
        if phase(word) == side || is_shut(word) || !is_first {
            return Look::At(None);
        }
        let remaining = queue.clock().remaining(ticks(now));
        let (is_left, is_biased) = (is_free(word), queue.place().is_biased());
        // Readers in slots do not say in the word that they have entered.
        if is_left && is_absent.is_none() && (remaining > 0 || is_biased) {
            self.word.fetch_or(WATCHED, Relaxed);
            return Look::Watch(self.absence(side));
        }
        if remaining <= 0 {
            let before = self.shut_both();
            if !is_free(before) {
                return Look::Spin(now + Self::spin_ns());
            }
            return self.served(queue);
        }
        if is_absent == Some(true) {
            let woken = self.use_gap(&queue);
            queue.unlock_and_wake(woken);
            return Look::Again;
        }
        let ends = now + ((remaining as u64) << TICK_SHIFT);
        let slack = (Self::slack() as u64) << TICK_SHIFT;
        match ends.checked_sub(latency::<P>()).map(|look| look.min(now + slack)) {
            Some(look) if look > now => {
                if node.has_looked.get() == 0 {
                    self.word.fetch_or(MAY_LOOK, Relaxed);
                }
                Look::At(Some(look))
            }
            _ => Look::Spin(ends),
        }
    }

    /// An upgradable reader that waits in its side's phase is passed by others for no longer than
    /// the slack. Plain readers enter all the while. The queue's lock is held.
    fn keep_upgradable_out(&self, node: &Node<P>, now: u64) -> Look {
        let slack = (Self::slack() as u64) << TICK_SHIFT;
        if now < node.since() + slack {
            return Look::At(Some(node.since() + slack));
        }
        self.word.fetch_or(UPGRADABLE_OUT, Relaxed);
        // Serving an earlier one lets others enter again, so this must be set again after that
        // time.
        Look::At(Some(now + latency::<P>() * u64::from(Shares::TIME_FAIR.slack)))
    }

    fn served(&self, queue: OwnQueue<'_, P>) -> Look {
        let woken = self.serve(&queue);
        queue.unlock_and_wake(woken);
        Look::Again
    }

    /// Takes a waiter that gives up off the queue, and serves those that waited behind it.
    /// False if it is off already: then its state is about to say why.
    fn withdraw(&self, place: &'static PooledQueue<P>, node: &Node<P>) -> bool {
        let Some(queue) = self.own_queue_in(place) else {
            return false;
        };
        if !node.is_linked(&queue) {
            return false;
        }
        queue.remove(node);
        // The next of its side keeps time in its place.
        let (side, word) = (side_of(node.kind), self.word.load(Relaxed));
        let next = queue.first_of(side).map(|next| {
            next.state.store(APPOINTED, Relaxed);
            &raw const next.state
        });
        let mut clear = match queue.is_empty() {
            true => QUEUE_FLAGS,
            false if next.is_none() && !is_shut(word) => shut(side),
            false => 0,
        };
        clear |= match node.kind {
            Kind::Upgrade => UPGRADING,
            Kind::Upgradable if queue.oldest_upgradable().is_none() => UPGRADABLE_OUT,
            _ => 0,
        };
        self.word.fetch_and(!clear, Relaxed);
        let woken = if queue.is_empty() { WakeList::none() } else { self.serve(&queue) };
        queue.unlock_and_wake(woken);
        if let Some(next) = next {
            P::unpark(next);
        }
        self.events.count(match node.kind {
            Kind::Read => Event::RlockFail,
            _ => Event::WlockFail,
        });
        true
    }
}
