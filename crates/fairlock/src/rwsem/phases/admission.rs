//! Who enters, and when, without queueing: newcomers of the running phase, spinners, and those that use a
//! lock that stands free in a phase of the other side.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{ENTRIES_PER_CLOCK, SPIN_FOR_A_WAKE_UP};
use crate::events::{CountEvents, Event};
use crate::platform::{NAP, Platform, Tunable};
use crate::policy::{Phases, Policy, SPIN_ON_OWNER_NS};
use crate::rwsem::core::RawRwSem;
use crate::rwsem::owner::Row;
use crate::rwsem::phase_clock::{LONGEST_ABSENCE, OPEN_FRACTION, PhaseClock, ticks};
use crate::rwsem::queue_storage::{OwnQueue, Place, QueueStorage};
use crate::rwsem::wait_queue::Kind;
use crate::rwsem::word::*;
use crate::spin_budget::SpinBudget;

/// So many failed attempts to enter count as one turn of the spin, as an attempt is much shorter than a turn;
/// without such a count, two writers that take turns could keep a third one trying for ever. Chosen, not
/// measured.
const FAILURES_PER_TURN: Tunable = Tunable::new("failures_per_turn", 16, 1..=1_024);
/// How often a thread naps, to leave its CPU to the holder that was running there, before it queues.
/// A nap takes 50 µs or more ([`Platform::give_way`]); more of them delay the thread without
/// a place in the queue, none makes it sleep where its own CPU would soon be free. Chosen, not measured.
const NAPS: Tunable = Tunable::new("naps", 2, 0..=64);
/// Longest spin among writers, ns, on a lock that goes from one to the next. A thread that sleeps in a
/// convoy holds up all behind it when it is its turn; a longer spin burns
/// more of its CPU. Chosen, not measured: four times [`SPIN_ON_OWNER_NS`].
const SPIN_ON_WRITERS: Tunable = Tunable::new("spin_on_writers_ns", 100_000, 0..=10_000_000);
/// Longest spin on one writer, and the shortest among writers.
const SPIN_ON_OWNER: Tunable =
    Tunable::new("spin_on_owner_ns", SPIN_ON_OWNER_NS as u32, 0..=10_000_000);

/// Entries that take less than this many ticks of 64 ns each are left to one CPU. With two, each entry waits for a cache line to
/// come over, which takes longer: 130 ns on a virtual machine with two CPUs. There, empty sections complete 20 to 60 % more that
/// way, and sections of 50 ns with as much time in between complete half as much again with two CPUs.
const TICKS_PER_LONE_ENTRY: Tunable = Tunable::new("ticks_per_lone_entry", 1, 0..=1_024);

/// So many readers share a gap in a phase of writers: as many as use two CPUs. More would keep writers out of their own phase for
/// longer.
const READERS_IN_A_GAP: Tunable = Tunable::new("readers_in_a_gap", 2, 0..=1_024);
/// They do on machines of at most so many CPUs. On two, threads that read and write by turns complete 5 to 30 % more that way; on
/// 12 simulated ones 10 to 25 %. On eight simulated sockets, where a cache line takes longer to come over than a short section
/// lasts, they would complete 10 to 40 % less.
pub(super) const CPUS_THAT_SHARE_A_GAP: Tunable =
    Tunable::new("cpus_that_share_a_gap", 16, 0..=65_536);

pub(super) const TUNABLES: &[Tunable] = &[
    FAILURES_PER_TURN,
    NAPS,
    SPIN_ON_WRITERS,
    SPIN_ON_OWNER,
    TICKS_PER_LONE_ENTRY,
    READERS_IN_A_GAP,
    CPUS_THAT_SHARE_A_GAP,
];

/// What became of a spin before queueing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::rwsem) enum Spin {
    Entered,
    InVain,
    /// The thread may enter, but others changed the word first.
    Collided,
}

/// What became of an attempt to enter an open phase.
pub(in crate::rwsem) enum OpenPhase {
    Entered,
    /// Its budget has ended.
    IsOver,
    /// The phase is not open, or not to this thread just now.
    NotEntered,
}

/// Whether this is a gap in a phase of the other side. Two readers may share one in an open phase of writers: most such phases
/// are used by few writers, and one reader at a time would leave the other CPU idle.
fn is_gap<P: Platform>(word: u64, kind: Kind) -> bool {
    is_free(word)
        || kind == Kind::Read
            && word & OPEN != 0
            && admits_reader(word)
            && readers(word) < u64::from(P::tuned(READERS_IN_A_GAP))
            && P::cpus() <= P::tuned(CPUS_THAT_SHARE_A_GAP)
}

/// Whether an entry looks at the clock: as good as by chance, so that a thread that uses several
/// locks by turns looks at the clock of each.
pub(in crate::rwsem) fn looks_at_clock<P: Platform>(turn: u32) -> bool {
    // Two rounds of a multiplicative hash, for its upper bits.
    let mixed = turn.wrapping_mul(0x9e37_79b9);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b);
    mixed < u32::MAX / P::tuned(ENTRIES_PER_CLOCK)
}

/// What a writer that spins sees of a lock that goes from writer to writer: it is worth another spin.
#[derive(Default)]
struct Moves {
    /// The CPU of the last one seen.
    owner: u32,
    /// When renewing ends, ns; 0 until the first move.
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
            self.ends = now + u64::from(P::tuned(SPIN_ON_WRITERS));
        }
        let left = self.ends.saturating_sub(now);
        Some(SpinBudget::new::<P>(left.min(P::tuned(SPIN_ON_OWNER).into()), None))
    }
}

impl<Pol: Policy, P: Platform, L: QueueStorage<P>> RawRwSem<Pol, P, L> {
    /// One attempt to enter an open phase of this thread's side, or of the other while nobody holds the lock: the short way for
    /// those who come right back, as most entries past waiters are theirs. In the other side's phase all look at the clock whose
    /// sections are not short against the budget: that the phase is open says nothing about them.
    #[inline(always)]
    pub(in crate::rwsem) fn enter_open_phase(&self, kind: Kind) -> OpenPhase {
        let word = self.word.load(Relaxed);
        let (entered, side) = match kind {
            Kind::Read if word & (OPEN | WRITE_PHASE) == OPEN && admits_reader(word) => {
                (plus_reader(word), Side::Read)
            }
            Kind::Read if word & OPEN != 0 && is_gap::<P>(word, kind) => {
                (plus_reader(word), Side::Read)
            }
            Kind::Write if word & OPEN != 0 && is_free(word) => (word + WRITER, Side::Write),
            _ => return OpenPhase::NotEntered,
        };
        let is_mine = phase(word) == side;
        // Only where it is needed: to find a pooled queue takes as long as to enter.
        let clock = || self.storage.place(word).clock();
        let by_chance = looks_at_clock::<P>(P::turn());
        let looks = by_chance || !is_mine && !clock().estimates().is_short_in_a_budget(side);
        if looks {
            let (clock, now) = (clock(), PhaseClock::<P>::now());
            if !clock.fits(side, now) {
                return if is_mine { OpenPhase::IsOver } else { OpenPhase::NotEntered };
            }
            if is_mine && clock.is_turn_over(now) && self.ends_turn(word, side, now) {
                return OpenPhase::IsOver;
            }
        }
        if self.word.compare_exchange(word, entered, Acquire, Relaxed).is_err() {
            return OpenPhase::NotEntered;
        }
        self.events.count(if is_mine { Event::RlockFast } else { Event::PhaseIdle });
        // Reads write nothing but the word most of the time.
        let entries = match kind {
            Kind::Write => 1,
            _ if by_chance => P::tuned(ENTRIES_PER_CLOCK),
            _ => 0,
        };
        if entries != 0 {
            self.note_row(entered, entries);
        }
        OpenPhase::Entered
    }

    /// So many entries past those that wait, the last of them this thread's. If all come from this CPU, wakes somebody to use
    /// another, unless they follow each other so closely that two CPUs would only take the lock's cache line from each other.
    pub(super) fn note_row(&self, word: u64, entries: u32) {
        match self.storage.owner().note_past_waiters(entries) {
            Row::Begins => L::begin_row(PhaseClock::<P>::now()),
            Row::GoesOn => {}
            Row::IsLong(entries) => {
                let lasts = L::row_lasts(PhaseClock::<P>::now());
                if lasts.is_none_or(|ticks| ticks >= entries * P::tuned(TICKS_PER_LONE_ENTRY)) {
                    self.wake_another(word);
                }
            }
        }
    }

    /// The running turn is over: whether this thread makes room for one of its side. If nobody has waited for long, the next
    /// turn begins.
    #[cold]
    fn ends_turn(&self, word: u64, side: Side, now: u32) -> bool {
        let Some(queue) = self.try_own_queue(word) else {
            return false; // Somebody is at the queue: later.
        };
        let somebody_waits = self.next_in_turn(&queue, side, now).is_some();
        if !somebody_waits {
            queue.clock().begin_turn(now);
        }
        somebody_waits
    }

    pub(in crate::rwsem) fn admit_in_phase(
        &self,
        knobs: Phases,
        word: u64,
        kind: Kind,
    ) -> Option<u64> {
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
            let looks = looks_at_clock::<P>(P::turn());
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
        let short = hold * P::tuned(OPEN_FRACTION) <= clock.remaining(now).max(0) as u32;
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

    /// As [`Self::admit_in_phase`]. A writer that was woken has waited longer than all others: if only
    /// writers wait, it enters whatever the clock says.
    pub(super) fn admit_again(
        &self,
        knobs: Phases,
        word: u64,
        kind: Kind,
        woken: bool,
    ) -> Option<u64> {
        if !woken {
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

    /// A writer that was woken has entered, and the word was this then: whoever waits longest now has a
    /// budget of its own.
    fn begin_next_turn(&self, knobs: Phases, word: u64) {
        // Those that waited may have given up meanwhile, and another lock may have the queue.
        if has_waiters(word) {
            if let Some(queue) = self.own_queue(word) {
                self.begin_turn_of_next(knobs, &queue);
            }
        }
    }

    pub(super) fn begin_turn_of_next(&self, knobs: Phases, queue: &OwnQueue<'_, P, L>) {
        let word = self.word.load(Relaxed);
        if has_waiters(word) && word & READERS_WAIT == 0 && phase(word) == Side::Write {
            let clock = queue.clock();
            clock.begin(PhaseClock::<P>::now(), clock.estimates().budget(knobs, 1));
        }
    }

    /// Spins for about `eighths` of a wake-up latency: three times that while somebody waits; and among
    /// writers for at least [`SPIN_ON_OWNER_NS`], and up to [`SPIN_ON_WRITERS`] while the lock changes hands.
    /// Ends at once where a phase of the other side runs, but for [gaps](Self::enter_gap), and soon where that side uses the gaps
    /// of this one's: on many CPUs there is always one more that does. Looks at the lock
    /// at every turn: a longer look away would miss the moments in which a busy lock is free. Goes on after collisions
    /// with others only where it `may_collide`.
    pub(super) fn spin_for_entry(
        &self,
        knobs: Phases,
        kind: Kind,
        eighths: u32,
        woken: bool,
        may_collide: bool,
    ) -> Spin {
        let side = if kind == Kind::Read { Side::Read } else { Side::Write };
        let mut budget: Option<SpinBudget> = None;
        let (mut naps, mut failures) = (0, 0u32);
        let mut moves = Moves::default();
        let mut others_until = None;
        loop {
            let word = self.word.load(Relaxed);
            let admitted = self.admit_again(knobs, word, kind, woken);
            if let Some(entered) = admitted {
                if self.word.compare_exchange_weak(word, entered, Acquire, Relaxed).is_ok() {
                    if woken {
                        self.begin_next_turn(knobs, entered);
                    }
                    let spun = budget.is_some();
                    self.events.count(if spun { Event::OptLock } else { Event::RlockFast });
                    return Spin::Entered;
                }
                if !may_collide {
                    return Spin::Collided;
                }
                // Against two writers that take turns, a load and a compare-exchange can come too
                // late every time, so failures count for the budget.
                failures += 1;
                if failures % P::tuned(FAILURES_PER_TURN) != 0 {
                    continue;
                }
            }
            if eighths == 0 {
                return Spin::InVain;
            }
            if admitted.is_none() && has_waiters(word) && !self.soon_mine(word, side) {
                // A phase of the other side: queues, unless there is room between its sections.
                let is_in = self.enter_gap(kind, side);
                return if is_in { Spin::Entered } else { Spin::InVain };
            }
            let is_others = has_waiters(word) && has_writer(word) != (side == Side::Write);
            if is_others {
                let now = P::now();
                if now >= *others_until.get_or_insert(now + u64::from(P::tuned(LONGEST_ABSENCE))) {
                    return Spin::InVain;
                }
            }
            if has_writer(word) && !self.owner_may_run() {
                if naps == P::tuned(NAPS) || !self.storage.is_short(word, Side::Write) {
                    self.events.count(Event::OptNospin);
                    return Spin::InVain;
                }
                // Two threads on one CPU. A thread that wakes is put on an idle CPU if there is
                // one; a thread that yields is not.
                P::give_way(NAP);
                naps += 1;
                continue;
            }
            let among_writers = side == Side::Write && has_writer(word) && word & READERS_WAIT == 0;
            if among_writers && moves.has_moved(self.storage.owner().cpu()) {
                budget = moves.renewed::<P>();
            }
            let budget = budget.get_or_insert_with(|| {
                // In a phase of one's own it is worth waiting for a holder that was interrupted.
                let patience = if has_waiters(word) { P::tuned(SPIN_FOR_A_WAKE_UP) } else { 1 };
                let ns =
                    u64::from(P::wake_latency() / 8) * u64::from(eighths) * u64::from(patience);
                let least = if among_writers { P::tuned(SPIN_ON_OWNER) } else { 0 };
                SpinBudget::new::<P>(ns.max(least.into()), None)
            });
            if !budget.relax::<P>() {
                self.events.count(Event::OptFail);
                return Spin::InVain;
            }
        }
    }

    /// The phase is this thread's own, and whoever holds the lock, perhaps one of the other side that uses a gap, is expected to
    /// release it sooner than a sleep takes.
    pub(super) fn soon_mine(&self, word: u64, side: Side) -> bool {
        let holder = if has_writer(word) { Side::Write } else { Side::Read };
        let is_mine = phase(word) == side && word & CLOSED == 0;
        is_mine && !is_free(word) && self.storage.is_short(word, holder)
    }

    /// Takes the lock in a phase of the other side, between two of its sections; the phase and its
    /// end stay as they are. So threads that read and write by turns do not sleep for each
    /// other's phases. In an open phase, where sections are short, at once when the lock is
    /// free; in a careful one after that side has been away for twice as long as it is expected to.
    fn enter_gap(&self, kind: Kind, side: Side) -> bool {
        let (mut ends, mut free_since) = (0, 0);
        loop {
            // The clock before the word: a word that was read some time ago has changed meanwhile.
            let now = P::now();
            if ends == 0 {
                ends = now + u64::from(P::tuned(LONGEST_ABSENCE));
            }
            let word = self.word.load(Relaxed);
            if !has_waiters(word) || word & CLOSED != 0 || phase(word) == side {
                return false;
            }
            if is_gap::<P>(word, kind) {
                if free_since == 0 {
                    free_since = now;
                }
                let clock = self.storage.place(word).clock();
                let window = clock.estimates().idle_window(phase(word));
                if (word & OPEN != 0 || now >= free_since + window) && clock.fits(side, ticks(now))
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
                    // Others use gaps, too. It goes on while the phase does: where 32 threads gave up after a
                    // microsecond of this, most of them slept, and completed 15 % less with 99 % reads on 2 CPUs.
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
}
