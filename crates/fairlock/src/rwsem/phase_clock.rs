//! What a lock knows about its phases: when the running one ends, how long sections of both sides take,
//! and how soon a side is back. Everything that decides how long somebody waits is arithmetic here;
//! nothing here touches the lock word.
//!
//! Not for: who may enter. That is `phases/`, which asks.
//!
//! * A *budget* is how long a phase admits newcomers: the longest of 48 wake-up latencies, 2 more for each
//!   wake-up that the phase begins with ([`Phases`]), the expected sections of both sides, and the budget of
//!   the phase before, fading by an eighth; at most 4 ms, and a whole number of long sections.
//! * *Estimates* of hold times and return times move to each sample by at most a factor of two, so that
//!   one holder that lost its CPU does not pass for a habit.
//! * An *idle window* is how long a lock must stand free in the other side's phase before it may be used.
//!
//! Estimates are updated without a lock and may lose an update; they decide how long somebody waits,
//! never who may hold the lock.
//!
//! A tick is 64 ns: in 32 bits that tells before from after within 137 s, far more than a phase, and is small
//! enough for the lock to fit a cache line.

use core::sync::atomic::Ordering::Relaxed;

use super::account::Account;
use super::word::Side;
use crate::platform::{AtomicCell, Platform, Tunable};
use crate::policy::Phases;

/// The knobs of [`Phases`], which says what each is; the values are the policy's.
const SHORTEST_BUDGET: Tunable =
    Tunable::new("shortest_budget", Phases::TIME_FAIR.shortest_budget, 0..=1_024);
const BUDGET_PER_WAKEUP: Tunable =
    Tunable::new("budget_per_wakeup", Phases::TIME_FAIR.budget_per_wakeup, 0..=1_024);
const LONGEST_BUDGET: Tunable =
    Tunable::new("longest_budget_ns", Phases::TIME_FAIR.longest_budget as u32, 1_000..=50_000_000);
const SPIN: Tunable = Tunable::new("spin", Phases::TIME_FAIR.spin, 0..=1_024);

/// ns to ticks.
pub(super) const TICK_SHIFT: u32 = 6;
/// The shortest budget is divided by this where holds are short and only one waits: 16 wake-up latencies
/// instead of 48. A longer first phase makes the first waiter wait longer; a shorter one ends in wake-ups
/// where a spin would soon have done. Chosen, not measured.
const FIRST_PHASE: Tunable = Tunable::new("first_phase", 3, 1..=64);
/// A phase whose side stays away for longer than this, in ns, is not in use by it. Longer windows leave
/// the lock idle; shorter ones let the other side into a phase that would have gone on. Chosen, not measured:
/// a few transfers of a cache line.
pub(super) const LONGEST_ABSENCE: Tunable =
    Tunable::new("longest_absence_ns", 1_000, 0..=1_000_000);

/// Sections at most this fraction of what is left of a budget need not look at the clock: with one entry
/// in `ENTRIES_PER_CLOCK` that looks (`phases/`), as many sections pass a waiter unseen, on average, as
/// fit into a budget.
pub(super) const OPEN_FRACTION: Tunable = Tunable::new("open_fraction", 16, 1..=1_024);
/// A second writer is kept awake where one is away for at least this fraction of its section. With less, the
/// second would find the lock taken most of the time. 0: none is. Chosen, not measured.
const SECOND_WRITER: Tunable = Tunable::new("second_writer", 4, 0..=1_024);

/// A phase has at most so many turns. Chosen: with 16 and more, each of 240 threads on eight simulated sockets waits about as
/// long, and less is done.
const TURNS: Tunable = Tunable::new("turns", 8, 1..=1_024);
/// A turn lasts at least so many wake-ups, as each costs one. Chosen, not measured: a phase of the shortest budget has eight.
const SHORTEST_TURN: Tunable = Tunable::new("shortest_turn", 6, 0..=48);

/// Holds this many times shorter than a wake-up are over before another thread could be woken for them. Chosen, not
/// measured.
const MUCH_SHORTER: Tunable = Tunable::new("much_shorter", 8, 1..=1_024);

pub(super) const TUNABLES: &[Tunable] = &[
    SHORTEST_BUDGET,
    BUDGET_PER_WAKEUP,
    LONGEST_BUDGET,
    SPIN,
    FIRST_PHASE,
    LONGEST_ABSENCE,
    OPEN_FRACTION,
    SECOND_WRITER,
    TURNS,
    SHORTEST_TURN,
    MUCH_SHORTER,
];

/// The knobs as the platform has them. Where nobody is ever passed there is nothing to try.
#[inline(always)]
pub(super) fn tuned<P: Platform>(mut knobs: Phases) -> Phases {
    if knobs.longest_budget != 0 {
        knobs.shortest_budget = P::tuned(SHORTEST_BUDGET.with_value(knobs.shortest_budget));
        knobs.budget_per_wakeup = P::tuned(BUDGET_PER_WAKEUP.with_value(knobs.budget_per_wakeup));
        if let Ok(longest) = u32::try_from(knobs.longest_budget) {
            knobs.longest_budget = P::tuned(LONGEST_BUDGET.with_value(longest)).into();
        }
        knobs.spin = P::tuned(SPIN.with_value(knobs.spin));
    }
    knobs
}

pub(super) const fn ticks(ns: u64) -> u32 {
    (ns >> TICK_SHIFT) as u32
}

/// What a lock knows about its phases; 24 bytes.
#[repr(C)]
pub struct PhaseClock<P: Platform> {
    /// When the running phase's budget ends.
    ends: P::AtomicU32,
    /// When the running turn within it ends.
    turn_ends: P::AtomicU32,
    /// When the youngest holder was admitted, 0 if that is not known.
    admitted: P::AtomicU32,
    /// When the lock was last left free or handed over while somebody waited; the lowest bit is
    /// the side that left. 0 if that was noted already.
    left: P::AtomicU32,
    estimates: Estimates<P>,
}

/// What is known about a lock's users; 8 bytes.
#[repr(C)]
pub struct Estimates<P: Platform> {
    /// Expected hold times of readers (low half) and writers, in ticks, at most 4 ms; 0 if nothing
    /// is known.
    holds: P::AtomicU32,
    /// Low half: expected return times of readers and writers, 8 bits each, in ticks, at most
    /// 16 µs. High half: the budget of the last phase, in ticks.
    habits: P::AtomicU32,
}

/// What of it a lock remembers while nobody waits and its queue is another's: how long sections take, to a sixteenth,
/// and how soon each side is back; 4 bytes.
pub(super) struct Remembered<P: Platform>(P::AtomicU32);

impl<P: Platform> Remembered<P> {
    pub(super) const NEW: Self = Remembered(P::AtomicU32::ZERO);

    pub(super) fn keep(&self, known: &Estimates<P>) {
        let holds = Side::BOTH.map(|side| rounded(known.expected_hold(side)) << (8 * side as u32));
        let returns = known.habits.load(Relaxed) << 16;
        self.0.store(holds[0] | holds[1] | returns, Relaxed);
    }

    /// This side's holds are known to be shorter than a wake-up.
    pub(super) fn is_short(&self, side: Side) -> bool {
        is_short::<P>(self.expected_hold(side))
    }

    fn expected_hold(&self, side: Side) -> u32 {
        unrounded(self.0.load(Relaxed) >> (8 * side as u32) & 0xff)
    }
}

/// A hold in 8 bits: below 16 the hold itself, from there on its exponent and the four bits after the first.
fn rounded(hold: u32) -> u32 {
    match hold.checked_ilog2() {
        Some(exponent @ 4..) => (exponent - 3) << 4 | hold >> (exponent - 4) & 0xf,
        _ => hold,
    }
}

fn unrounded(hold: u32) -> u32 {
    match hold >> 4 {
        0 => hold,
        exponent => (0x10 | hold & 0xf) << (exponent - 1),
    }
}

impl<P: Platform> PhaseClock<P> {
    pub(super) const NEW: Self = PhaseClock {
        ends: P::AtomicU32::ZERO,
        turn_ends: P::AtomicU32::ZERO,
        admitted: P::AtomicU32::ZERO,
        left: P::AtomicU32::ZERO,
        estimates: Estimates::NEW,
    };

    pub(super) fn now() -> u32 {
        ticks(P::now())
    }

    pub(super) fn estimates(&self) -> &Estimates<P> {
        &self.estimates
    }

    /// From now on this clock belongs to another lock, which remembers this. What was noted for the
    /// former one is forgotten.
    pub(super) fn start(&self, remembered: &Remembered<P>) {
        self.estimates.recall(remembered);
        self.admitted.store(0, Relaxed);
        self.left.store(0, Relaxed);
    }

    /// Ticks until the phase ends; negative when it has.
    pub(super) fn remaining(&self, now: u32) -> i32 {
        self.ends.load(Relaxed).wrapping_sub(now) as i32
    }

    /// Whether a section of `side` that begins now is expected to end before the budget does, give or take an
    /// eighth: so a budget of two sections has room for two that begin a little late.
    pub(super) fn fits(&self, side: Side, now: u32) -> bool {
        let hold = self.estimates.expected_hold(side);
        self.remaining(now) >= (hold - hold / 8) as i32
    }

    /// Starts a phase: its budget begins now.
    pub(super) fn begin(&self, now: u32, budget: u32) {
        self.estimates.note_budget(budget);
        self.ends.store(now.wrapping_add(budget), Relaxed);
        self.begin_turn(now);
    }

    /// A turn within the phase begins: it lasts a fraction of the phase, and outweighs the wake-up that it costs.
    pub(super) fn begin_turn(&self, now: u32) {
        let shortest = P::tuned(SHORTEST_TURN) * wake_up::<P>();
        let length = (self.estimates.last_budget() / P::tuned(TURNS)).max(shortest);
        self.turn_ends.store(now.wrapping_add(length), Relaxed);
    }

    pub(super) fn is_turn_over(&self, now: u32) -> bool {
        now.wrapping_sub(self.turn_ends.load(Relaxed)) as i32 >= 0
    }

    /// Starts the phase of those that hold the lock when the first waiter comes. With short holds
    /// the waiter would usually have got the lock by spinning, so this phase need not outweigh much.
    pub(super) fn begin_first(&self, knobs: Phases, now: u64) {
        let (mut knobs, estimates) = (tuned::<P>(knobs), &self.estimates);
        if estimates.is_short(Side::Read) && estimates.is_short(Side::Write) {
            knobs.shortest_budget /= P::tuned(FIRST_PHASE);
            estimates.note_budget(0);
        }
        let budget = estimates.budget_with(knobs, 1, estimates.fading_budget());
        self.begin(ticks(now), budget);
        self.forget_admitted();
    }

    /// The phase ends now.
    pub(super) fn end(&self, now: u32) {
        self.ends.store(now, Relaxed);
    }

    /// The phase closes now, perhaps long after its budget has ended. Those that hold the lock may have been admitted just
    /// before, so their hold is counted from here.
    pub(super) fn note_close(&self, now: u32) {
        if self.remaining(now) < 0 {
            self.end(now);
        }
    }

    /// Under [`Shares`](crate::policy::Shares) two fields are its account, and `left` says how often each side's phase may
    /// be used in its absence.
    pub(super) fn account(&self) -> Account<'_, P> {
        Account { owed: &self.admitted, seen: &self.turn_ends }
    }

    /// This side has left the lock free in its phase.
    pub(super) fn note_sparse(&self, side: Side) {
        let shift = 8 * side as u32;
        self.left.store(self.left.load(Relaxed) & !(0xff << shift) | 16 << shift, Relaxed);
    }

    pub(super) fn is_sparse(&self, side: Side) -> bool {
        self.left.load(Relaxed) >> (8 * side as u32) & 0xff != 0
    }

    pub(super) fn use_sparse(&self, side: Side) {
        self.left.store(self.left.load(Relaxed) - (1 << (8 * side as u32)), Relaxed);
    }

    /// Lets the phase end later.
    pub(super) fn extend(&self, by: u32) {
        self.ends.store(self.ends.load(Relaxed).wrapping_add(by), Relaxed);
    }

    /// Notes that the last holder, of `side`, has left. If it is not known when the youngest was
    /// admitted, it was before the phase closed, so that an estimate can at least turn out to be
    /// too low.
    pub(super) fn note_hold(&self, side: Side, now: u32, closed: bool) {
        let expected = self.estimates.expected_hold(side);
        let sample = match self.admitted.swap(0, Relaxed) {
            0 if closed => (self.remaining(now).saturating_neg().max(0) as u32).max(expected),
            0 => return,
            admitted => now.wrapping_sub(admitted),
        };
        self.estimates.set_hold(side, step(expected, sample));
    }

    /// When `side` left, if it was the last to leave and that was not noted yet.
    pub(super) fn left(&self, side: Side) -> Option<u32> {
        let left = self.left.load(Relaxed);
        (left != 0 && left & 1 == side as u32).then_some(left & !1)
    }

    /// The side that was the last to leave.
    pub(super) fn left_last(&self) -> u32 {
        self.left.load(Relaxed) & 1
    }

    pub(super) fn note_left(&self, side: Side, now: u32) {
        self.left.store((now & !1 | side as u32).max(2), Relaxed);
    }

    /// Notes that `side` is back, if it was the last to leave.
    pub(super) fn note_return(&self, side: Side, now: u32) {
        if let Some(left) = self.left(side) {
            self.left.store(0, Relaxed);
            self.estimates.step_return(side, now.wrapping_sub(left));
        }
    }

    pub(super) fn note_admitted(&self, now: u32) {
        self.admitted.store(now.max(1), Relaxed);
    }

    pub(super) fn forget_admitted(&self) {
        self.admitted.store(0, Relaxed);
    }
}

impl<P: Platform> Estimates<P> {
    pub(super) const NEW: Self =
        Estimates { holds: P::AtomicU32::ZERO, habits: P::AtomicU32::ZERO };

    fn recall(&self, remembered: &Remembered<P>) {
        let holds = Side::BOTH.map(|side| remembered.expected_hold(side) << (16 * side as u32));
        self.holds.store(holds[0] | holds[1], Relaxed);
        self.habits.store(remembered.0.load(Relaxed) >> 16, Relaxed);
    }

    pub(super) fn expected_hold(&self, side: Side) -> u32 {
        (self.holds.load(Relaxed) >> (16 * side as u32)) & 0xffff
    }

    pub(super) fn set_hold(&self, side: Side, expected: u32) {
        let (shift, holds) = (16 * side as u32, self.holds.load(Relaxed));
        let expected = expected.clamp(1, 0xffff);
        self.holds.store(holds & !(0xffff << shift) | expected << shift, Relaxed);
    }

    pub(super) fn expected_return(&self, side: Side) -> u32 {
        (self.habits.load(Relaxed) >> (8 * side as u32)) & 0xff
    }

    pub(super) fn step_return(&self, side: Side, sample: u32) {
        let (shift, habits) = (8 * side as u32, self.habits.load(Relaxed));
        let expected = step(habits >> shift & 0xff, sample).min(0xff);
        self.habits.store(habits & !(0xff << shift) | expected << shift, Relaxed);
    }

    pub(super) fn last_budget(&self) -> u32 {
        self.habits.load(Relaxed) >> 16
    }

    pub(super) fn note_budget(&self, budget: u32) {
        let habits = self.habits.load(Relaxed);
        self.habits.store(habits & 0xffff | budget.min(0xffff) << 16, Relaxed);
    }

    /// Notes that the lock was free when the deadline waiter closed the phase: by chance, or because
    /// nobody came back. In the second case it happens again and again, and no later return corrects the estimate.
    pub(super) fn note_absence(&self, side: Side) {
        self.step_return(side, u32::MAX);
    }

    /// This side's holds are known to be shorter than a wake-up.
    pub(super) fn is_short(&self, side: Side) -> bool {
        is_short::<P>(self.expected_hold(side))
    }

    /// This side's holds are known to be no shorter than a wake-up.
    pub(super) fn is_long(&self, side: Side) -> bool {
        self.expected_hold(side) != 0 && !self.is_short(side)
    }

    /// This side's holds are known to be short against the budget of the running phase.
    pub(super) fn is_short_in_a_budget(&self, side: Side) -> bool {
        let hold = self.expected_hold(side);
        hold != 0 && hold.saturating_mul(P::tuned(OPEN_FRACTION)) <= self.last_budget()
    }

    /// This side's holds are known to be much shorter than a wake-up.
    pub(super) fn is_very_short(&self, side: Side) -> bool {
        let hold = self.expected_hold(side);
        hold != 0 && hold.saturating_mul(P::tuned(MUCH_SHORTER)) < wake_up::<P>()
    }

    /// Sooner than a wake-up takes.
    pub(super) fn comes_right_back(&self, side: Side) -> bool {
        self.expected_return(side) < wake_up::<P>().min(0xff)
    }

    /// Writers that come right back and stay away for at least a quarter of a section: two of them that are
    /// awake keep the lock busier than one.
    pub(super) fn leaves_room_for_a_second(&self) -> bool {
        let (hold, away) = (self.expected_hold(Side::Write), self.expected_return(Side::Write));
        self.comes_right_back(Side::Write) && away * P::tuned(SECOND_WRITER) >= hold.max(1)
    }

    /// How long, in ticks, a phase that begins with `wakeups` wake-ups may admit newcomers.
    pub(super) fn budget(&self, knobs: Phases, wakeups: u32) -> u32 {
        self.budget_after(knobs, wakeups, self.fading_budget())
    }

    /// The last budget less an eighth, lest the largest need of all times stays.
    fn fading_budget(&self) -> u32 {
        let last = self.last_budget();
        last - last / 8
    }

    /// The same after a phase of the other side whose budget was the last.
    pub(super) fn budget_after(&self, knobs: Phases, wakeups: u32, last: u32) -> u32 {
        self.budget_with(tuned::<P>(knobs), wakeups, last)
    }

    /// The same with these very knobs.
    fn budget_with(&self, knobs: Phases, wakeups: u32, last: u32) -> u32 {
        let holds = Side::BOTH.map(|side| self.expected_hold(side));
        budget(knobs, wakeups, holds, last, wake_up::<P>().max(1))
    }

    /// For how long, in ns, a lock must have stood free in a careful phase of `side` before the other side
    /// uses the gap: twice as long as this side is expected to stay away.
    pub(super) fn idle_window(&self, side: Side) -> u64 {
        idle_window::<P>(self.expected_return(side))
    }
}

/// Known, and shorter than a wake-up.
fn is_short<P: Platform>(hold: u32) -> bool {
    hold != 0 && hold < wake_up::<P>()
}

/// What a wake-up takes here, in ticks.
fn wake_up<P: Platform>() -> u32 {
    ticks(P::wake_latency().into())
}

/// The budget of a phase that begins with `wakeups` wake-ups, each of which takes `latency`, where sections
/// of the two sides are expected to take `holds` and the other side's phase had the budget `last`; all in
/// ticks.
fn budget(knobs: Phases, wakeups: u32, holds: [u32; 2], last: u32, latency: u32) -> u32 {
    let budget = (latency.saturating_mul(knobs.shortest_budget))
        .max(latency.saturating_mul(knobs.budget_per_wakeup.saturating_mul(wakeups)))
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

fn idle_window<P: Platform>(expected_return: u32) -> u64 {
    let away = u64::from(expected_return.max(1)) << TICK_SHIFT;
    (2 * away).min(P::tuned(LONGEST_ABSENCE).into())
}

/// Moves an estimate to a sample by at most a factor of two, so that one preempted holder does
/// not pass for a habit.
fn step(estimate: u32, sample: u32) -> u32 {
    sample.clamp(estimate / 2, estimate * 2 + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;

    const LATENCY: u32 = 100;
    const KNOBS: Phases = Phases::TIME_FAIR;

    #[test]
    fn a_budget_outweighs_the_wake_ups_that_a_phase_causes() {
        assert_eq!(budget(KNOBS, 1, [0, 0], 0, LATENCY), 48 * LATENCY);
        assert_eq!(budget(KNOBS, 100, [0, 0], 0, LATENCY), 200 * LATENCY);
    }

    #[test]
    fn a_budget_is_as_long_as_the_longest_section_and_as_the_other_sides_phase_but_no_longer_than_4_ms()
     {
        assert_eq!(budget(KNOBS, 1, [9_000, 7_000], 0, LATENCY), 7_000);
        assert_eq!(budget(KNOBS, 1, [9_000, 0], 0, LATENCY), 9_000);
        assert_eq!(budget(KNOBS, 1, [0, 0], 8_000, LATENCY), 8_000);
        assert_eq!(budget(KNOBS, 1, [0, 0], u32::MAX, LATENCY), ticks(4_000_000));
        assert_eq!(budget(KNOBS, u32::MAX / 2, [0, 0], 0, LATENCY), ticks(4_000_000));
    }

    #[test]
    fn a_budget_holds_a_whole_number_of_sections() {
        assert_eq!(budget(KNOBS, 1, [0, 1_000], 0, LATENCY), 4_000);
        assert_eq!(budget(KNOBS, 1, [1_500, 1_000], 0, LATENCY), 4_000);
    }

    #[test]
    fn without_a_budget_nobody_is_passed() {
        assert_eq!(budget(Phases::PHASE_FAIR, 7, [500, 500], 500, LATENCY), 0);
    }

    #[test]
    fn one_sample_moves_an_estimate_by_a_factor_of_two_at_most() {
        assert_eq!(step(0, 1_000_000), 2);
        assert_eq!(step(100, 1_000_000), 202);
        assert_eq!(step(100, 120), 120);
        assert_eq!(step(100, 0), 50);
    }

    #[test]
    fn a_gap_is_used_after_twice_the_expected_absence_and_within_a_microsecond() {
        assert_eq!(idle_window::<Os>(0), 128);
        assert_eq!(idle_window::<Os>(3), 384);
        assert_eq!(idle_window::<Os>(200), 1_000);
    }

    #[test]
    fn a_section_fits_if_it_is_expected_to_end_before_the_phase_to_an_eighth() {
        let clock = PhaseClock::<Os>::NEW;
        clock.begin(1_000, 800);
        clock.estimates.set_hold(Side::Read, 800);
        assert!(clock.fits(Side::Read, 1_100) && !clock.fits(Side::Read, 1_101));
        assert!(clock.fits(Side::Write, 1_800) && !clock.fits(Side::Write, 1_801));
        clock.end(1_100);
        assert_eq!(clock.remaining(1_200), -100);
    }

    #[test]
    fn a_hold_is_measured_from_the_youngest_admission_or_from_the_end_of_the_phase() {
        let clock = PhaseClock::<Os>::NEW;
        clock.begin(1_000, 100);
        clock.estimates.set_hold(Side::Read, 100);
        clock.note_admitted(1_050);
        clock.note_hold(Side::Read, 1_170, false);
        assert_eq!(clock.estimates.expected_hold(Side::Read), 120);
        // Admitted before the phase closed, nobody knows when: the estimate can only turn out too low.
        clock.note_hold(Side::Read, 1_300, true);
        assert_eq!(clock.estimates.expected_hold(Side::Read), 200);
        clock.note_hold(Side::Read, 1_301, false);
        assert_eq!(clock.estimates.expected_hold(Side::Read), 200, "nothing is known");
        assert_eq!(clock.estimates.expected_hold(Side::Write), 0, "the other side's is its own");
    }

    #[test]
    fn how_long_a_side_stays_away_is_counted_once_and_for_the_side_that_left() {
        let clock = PhaseClock::<Os>::NEW;
        clock.note_left(Side::Write, 1_000);
        clock.note_return(Side::Read, 1_010);
        assert_eq!(clock.estimates.expected_return(Side::Read), 0);
        clock.note_return(Side::Write, 1_001);
        assert_eq!(clock.estimates.expected_return(Side::Write), 1);
        clock.note_return(Side::Write, 9_000);
        assert_eq!(clock.estimates.expected_return(Side::Write), 1);
    }

    #[test]
    fn estimates_of_both_sides_and_the_budget_share_their_words() {
        let estimates = Estimates::<Os>::NEW;
        estimates.set_hold(Side::Read, 0xffff);
        estimates.set_hold(Side::Write, 7);
        estimates.note_budget(0x1234);
        estimates.step_return(Side::Write, u32::MAX);
        estimates.set_hold(Side::Read, 5);
        assert_eq!(estimates.expected_hold(Side::Read), 5);
        assert_eq!(estimates.expected_hold(Side::Write), 7);
        assert_eq!((estimates.last_budget(), estimates.expected_return(Side::Write)), (0x1234, 2));
    }

    #[test]
    fn a_lock_remembers_holds_to_a_sixteenth_and_returns() {
        for (read, write) in [(0, 0xffff), (1, 15), (16, 31), (33, 1_000), (0xffff, 0)] {
            let estimates = Estimates::<Os>::NEW;
            let known = [(Side::Read, read), (Side::Write, write)];
            known
                .iter()
                .filter(|it| it.1 != 0)
                .for_each(|&(side, hold)| estimates.set_hold(side, hold));
            estimates.step_return(Side::Write, 2);
            let remembered = Remembered::NEW;
            remembered.keep(&estimates);
            let recalled = Estimates::NEW;
            recalled.note_budget(9);
            recalled.recall(&remembered);
            for (side, hold) in known {
                let lost = hold - recalled.expected_hold(side);
                assert!(lost * 16 <= hold, "{hold}: {lost} less");
            }
            let others = [Side::Read, Side::Write].map(|side| recalled.expected_return(side));
            assert_eq!((others, recalled.last_budget()), ([0, 2], 0));
        }
    }
}
