//! Who is next: what a release, a deadline or a waiter that gives up makes of the queue.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::events::{CountEvents, Event};
use crate::platform::{PlainCell, Platform, Tunable};
use crate::policy::{LONGEST_BUDGET_NS, Phases, Policy};
use crate::rwsem::core::RawRwSem;
use crate::rwsem::phase_clock::{PhaseClock, ticks};
use crate::rwsem::queue_storage::{OwnQueue, Place, QueueStorage};
use crate::rwsem::wait_queue::{Kind, Node, WakeList};
use crate::rwsem::word::*;

/// Up to this many readers with long holds are woken by one thread, more by a wake chain: a chain reaches many
/// CPUs sooner, and costs each of its links the wake-up of the next before its own section. Chosen, not
/// measured.
const FEW: Tunable = Tunable::new("few_readers", 8, 0..=65_536);
/// Up to this many readers are woken to try again at once. More would collide at the word; fewer leave CPUs
/// idle. Chosen, not measured: as many as a small machine has CPUs.
const MOST_WOKEN: Tunable = Tunable::new("most_woken_readers", 8, 0..=65_536);

/// A phase of very short reads begins with so many readers for each CPU. With fewer a CPU may be idle, as the kernel does
/// not place those that wake evenly; with more they wake each other in turn without running for long. 1, 1.5, 2 and all
/// of 16 were tried on a virtual machine with 2 CPUs: all 16 cost a tenth of a phase, and with 1 readers used
/// a tenth less of the CPUs' time.
pub(super) const READERS_PER_CPU: Tunable = Tunable::new("readers_per_cpu", 2, 1..=65_536);

/// Within a phase there are turns once one of its side has waited for longer than this, in ns: eight of the longest
/// budgets. Turns cost wake-ups: on a virtual machine with 2 CPUs 32 threads that
/// always take turns complete a tenth less.
const LONG_WAIT: Tunable =
    Tunable::new("long_wait_ns", 8 * LONGEST_BUDGET_NS as u32, 0..=1_000_000_000);

pub(super) const TUNABLES: &[Tunable] = &[FEW, MOST_WOKEN, READERS_PER_CPU, LONG_WAIT];

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
    /// The lock was left free with somebody waiting: leaves it to the running side for a moment,
    /// or hands it over.
    pub(in crate::rwsem) fn release_in_phase(&self, knobs: Phases, side: Side, word: u64) {
        if word & (OPEN | HAS_DEADLINE_WAITER) == OPEN | HAS_DEADLINE_WAITER && is_free(word) {
            return; // Lingers; the deadline waiter will close it.
        }
        if word & (WRITER_WOKEN | CLOSED) == WRITER_WOKEN && is_free(word) {
            return; // The writer that was woken is on its way.
        }
        if !is_free(word) {
            // An upgrader has become the only reader.
            return self.serve_after_release(word);
        }
        // The queue's place, not the lock: that may be gone.
        let place = self.storage.place(word);
        let (clock, estimates) = (place.clock(), place.clock().estimates());
        // Readers that enter between two writers keep the second one waiting for as long as they read.
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
        let Some(queue) = self.own_queue_in(place) else {
            return; // Everybody who waited then has been served.
        };
        let mut woken = WakeList::none();
        let mut word = self.word.load(Relaxed);
        // Somebody may have entered or served the queue meanwhile; or opened the phase, and then
        // the deadline waiter sees to it.
        while has_waiters(word)
            && is_free(word)
            && word & (OPEN | HAS_DEADLINE_WAITER) != OPEN | HAS_DEADLINE_WAITER
        {
            // Acquire pairs with the Release of everybody who has left.
            let closed = (word | CLOSED) & !OPEN;
            match self.word.compare_exchange_weak(word, closed, Acquire, Relaxed) {
                Ok(_) => {
                    woken = self.hand_over(knobs, &queue, word);
                    break;
                }
                Err(found) => word = found,
            }
        }
        let stays = queue.stays();
        drop(queue);
        let wakes = !woken.is_empty();
        woken.wake();
        if wakes && stays && clock.left_last() == side as u32 {
            // The time spent waking others does not count as absence.
            clock.note_left(side, PhaseClock::<P>::now());
        }
    }

    /// Only writers wait: wakes the one that has waited longest, which competes with those that
    /// are awake, as in a mutex. So the lock does not stand free for the time of a wake-up, nor
    /// reserved for a side that has gone elsewhere. False if there is nobody to wake.
    pub(super) fn wake_writer(&self, place: &L::Place) -> bool {
        let Some(queue) = self.own_queue_in(place) else {
            return true; // Everybody who waited then has been served.
        };
        let Some(oldest) = queue.oldest_writer().filter(|oldest| oldest.kind == Kind::Write) else {
            return false;
        };
        let mark = if oldest.is_deadline_waiter.get() != 0 { HAS_DEADLINE_WAITER } else { 0 };
        // Only here does the queue become empty: then nobody waits, and nothing is said about it.
        let (clear, set) = match queue.is_only_writer(oldest) {
            true => (QUEUE_FLAGS, 0),
            false => (mark | OPEN, WRITER_WOKEN),
        };
        // What is true of the word now: much may have happened since this thread left.
        let mut word = self.word.load(Relaxed);
        loop {
            if !is_free(word) || word & (WRITER_WOKEN | CLOSED) == WRITER_WOKEN {
                return true; // Whoever holds it, or was woken, sees to the rest.
            }
            if word & CLOSED != 0 || phase(word) == Side::Read || queue.oldest_reader().is_some() {
                return false;
            }
            match self.word.compare_exchange_weak(word, word & !clear | set, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        let mut woken = WakeList::none();
        woken.take_to_retry(&queue, oldest);
        self.events.count(Event::PhaseWoken);
        drop(queue);
        woken.wake();
        true
    }

    /// Where most readers do not take this lock, as they have slots, it stands free most of the time.
    /// Then nobody is worth keeping it for, and reserving it for somebody who has to wake up first
    /// would stop all those readers meanwhile: those that wait are woken to try again, within the budget.
    /// One that comes back in vain is served as usual. False if there is nobody to wake.
    #[cold]
    pub(super) fn wake_waiters(&self, word: u64) -> bool {
        let Some(queue) = self.own_queue(word) else {
            return true; // Everybody who waited then has been served.
        };
        let word = self.word.load(Relaxed);
        if !is_free(word) || word & CLOSED != 0 {
            // Whoever holds it wakes them; whoever closed it serves them.
            return !is_free(word);
        }
        if queue.clock().remaining(PhaseClock::<P>::now()) <= 0 {
            return false; // Readers pass them until they run, and have done so for long enough.
        }
        let mut woken = WakeList::none();
        let mut mark = 0;
        let mut wake = |oldest: Option<&Node<P>>| {
            let node = oldest.filter(|it| {
                it.woken_in_vain.get() == 0 && matches!(it.kind, Kind::Read | Kind::Write)
            });
            if let Some(node) = node {
                mark |= node.is_deadline_waiter.get();
                woken.take_to_retry(&queue, node);
            }
            node.is_some()
        };
        wake(queue.oldest_writer());
        let mut readers = 0;
        while readers < P::tuned(MOST_WOKEN) && wake(queue.oldest_reader()) {
            readers += 1;
        }
        if woken.is_empty() {
            return false;
        }
        let clear = match (queue.is_empty(), mark) {
            (true, _) => QUEUE_FLAGS,
            (false, 0) => 0,
            (false, _) => HAS_DEADLINE_WAITER | OPEN,
        };
        if clear != 0 {
            self.word.fetch_and(!clear, Relaxed);
        }
        self.events.add(Event::PhaseWoken, woken.len().into());
        drop(queue);
        woken.wake();
        true
    }

    /// Takes those off the queue that may hold the lock now.
    pub(in crate::rwsem) fn serve_phases(
        &self,
        knobs: Phases,
        queue: &OwnQueue<'_, P, L>,
    ) -> WakeList<P> {
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
        let writer = queue.oldest_writer().expect("chosen because there is one");
        if writer.kind == Kind::Upgradable {
            // Shared as far as others are concerned: it enters at the front of the readers.
            return self.begin_read_phase(knobs, queue);
        }
        debug_assert_eq!(writer.kind, Kind::Write, "an upgrader holds the lock, which is free");
        let mut woken = WakeList::none();
        woken.take(queue, writer);
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
        self.storage.owner().forget();
        let mut took_deadline_waiter = writer.is_deadline_waiter.get() != 0;
        if let Some(second) = queue.oldest_writer() {
            if second.kind == Kind::Write
                && next == Next::Writer
                && knobs.longest_budget != 0
                && queue.clock().estimates().leaves_room_for_a_second()
            {
                took_deadline_waiter |= second.is_deadline_waiter.get() != 0;
                writer.take_second(queue, second);
                self.events.count(Event::PhaseSecond);
            }
        }
        let flags = self.flags_after(knobs, queue, before, took_deadline_waiter);
        let phase = if flags == 0 { 0 } else { WRITE_PHASE };
        self.word.store(WRITER | flags | phase, Relaxed);
        woken
    }

    /// All entries of the phase come from this CPU, while somebody waits: wakes one who competes within the phase, if possible
    /// one of its side. One of the other side uses the moments in which nobody holds the lock.
    #[cold]
    pub(super) fn wake_another(&self, word: u64) {
        let Some(queue) = self.own_queue(word) else {
            return; // Everybody who waited then has been served.
        };
        let word = self.word.load(Relaxed);
        if word & CLOSED != 0 {
            return;
        }
        let has_room = queue.clock().estimates().leaves_room_for_a_second();
        let writer = queue.writer_from_elsewhere(P::cpu()).filter(|_| has_room);
        let reader = queue.oldest_reader();
        let another = match phase(word) {
            Side::Read => reader.or(writer),
            Side::Write => writer.or(reader),
        };
        let Some(another) = another else {
            return;
        };
        let had_timer = another.is_deadline_waiter.get() != 0;
        let mut woken = WakeList::none();
        woken.take_to_retry(&queue, another);
        let appointed = if had_timer { self.appoint(&queue) } else { None };
        let clear = match (queue.is_empty(), appointed) {
            (true, _) => QUEUE_FLAGS,
            (false, None) if had_timer => HAS_DEADLINE_WAITER | OPEN,
            (false, _) => 0,
        };
        let clear = clear | if queue.oldest_reader().is_none() { READERS_WAIT } else { 0 };
        if clear != 0 {
            self.word.fetch_and(!clear, Relaxed);
        }
        self.events.count(Event::PhaseSecond);
        drop(queue);
        woken.wake();
        if let Some(appointed) = appointed {
            P::unpark(appointed);
        }
    }

    /// For whom a thread of this side makes room when its turn is over: the one of its side that waits longest, if that is long.
    pub(super) fn next_in_turn<'q>(
        &self,
        queue: &'q OwnQueue<'_, P, L>,
        side: Side,
        now: u32,
    ) -> Option<&'q Node<P>> {
        let next = match side {
            Side::Read => queue.oldest_reader(),
            Side::Write => queue.oldest_writer().filter(|it| it.kind == Kind::Write),
        };
        let long = ticks(P::tuned(LONG_WAIT).into());
        next.filter(|next| now.wrapping_sub(ticks(next.since())) > long)
    }

    /// The queue's number and the flags that go with it after waiters were taken off.
    fn flags_after(
        &self,
        knobs: Phases,
        queue: &OwnQueue<'_, P, L>,
        before: u64,
        took_deadline_waiter: bool,
    ) -> u64 {
        if queue.is_empty() {
            return 0;
        }
        let closed = if knobs.longest_budget == 0 { CLOSED } else { 0 };
        let readers_wait = if queue.oldest_reader().is_some() { READERS_WAIT } else { 0 };
        queue.bits()
            | closed
            | readers_wait
            | if took_deadline_waiter { 0 } else { before & HAS_DEADLINE_WAITER }
    }

    /// Grants the lock to every waiting reader, and to an upgradable reader that heads the writers, beside
    /// any readers that hold it already. Where readers hold it very briefly and writers wait too, only to as many
    /// readers as can run, and to the others in later phases: each of them would have to run once more before the
    /// writers can.
    pub(in crate::rwsem) fn begin_read_phase(
        &self,
        knobs: Phases,
        queue: &OwnQueue<'_, P, L>,
    ) -> WakeList<P> {
        let mut before = self.word.load(Relaxed);
        // No writer must enter meanwhile, and an upgradable holder not become one: one more reader
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
        let mut took_deadline_waiter = false;
        let mut entering = 0;
        let mut woken = WakeList::none();
        if let Some(front) = queue.oldest_writer() {
            if front.kind == Kind::Upgradable && admits_upgradable(before) {
                took_deadline_waiter |= front.is_deadline_waiter.get() != 0;
                entering |= UPGRADABLE;
                woken.take(queue, front);
            }
        }
        // The count cannot overflow: it is checked before it would.
        let mut most = (READER_LIMIT - 1).saturating_sub(readers(before)) as u32;
        if queue.oldest_writer().is_some() && queue.clock().estimates().is_very_short(Side::Read) {
            // Plain ones: the upgradable reader that has come in already stays for longer.
            let plain = P::tuned(READERS_PER_CPU).saturating_mul(P::cpus());
            most = most.min(plain.saturating_add(woken.len()));
        }
        while woken.len() < most {
            let Some(reader) = queue.oldest_reader() else {
                break;
            };
            took_deadline_waiter |= reader.is_deadline_waiter.get() != 0;
            woken.take(queue, reader);
        }
        entering += u64::from(woken.len()) * READER;
        if knobs.longest_budget != 0 {
            let clock = queue.clock();
            clock.begin(PhaseClock::<P>::now(), clock.estimates().budget(knobs, woken.len()));
        }
        let mut word = before;
        loop {
            let flags = self.flags_after(knobs, queue, word, took_deadline_waiter);
            let next = ((word & !QUEUE_FLAGS) + entering - keeper) | flags;
            // Acquire pairs with the Release of a writer that left or became a reader.
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        if woken.len() <= P::tuned(FEW) && !queue.clock().estimates().is_short(Side::Read) {
            // Such readers sleep while they hold the lock, and leave the CPUs to those that wake.
            woken.one_by_one();
        }
        self.storage.owner().forget();
        self.events.count(Event::PhaseRead);
        self.events.add(Event::WakeReader, u64::from(woken.len()));
        woken
    }
}
