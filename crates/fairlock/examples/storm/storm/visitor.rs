//! What a thread notes on its way through a lock, and what befalls it there.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::stress::Dice;

use super::bounds::Case;
use super::clock::now;
use super::plan::{Gust, Op, Pause};
use super::seats::{Doing, LONG, Seat, Side, Span, What};
use super::stops;

/// Up to so many instructions, and twice as many up to so often: to ask for a lock may take long,
/// and what is delicate in a release is near its beginning. (Counting takes 10 µs for each, on a
/// virtual machine.)
const DOUBLINGS_OF_ASKING: u64 = 9;
const DOUBLINGS_OF_RELEASING: u64 = 7;
/// Stops take as much, or up to as many times twice as much.
const SHORTEST_STOP: u64 = 100_000;
const STOP_DOUBLINGS: u64 = 7;

/// How long an acquisition may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    Try,
    For(Duration),
    Endless,
}

/// A thread in a gust.
pub struct Visitor {
    pub seat: &'static Seat,
    pub dice: Dice,
    pub gust: Arc<Gust>,
    /// Waits at least this long are looked into; `u64::MAX` for none.
    pub judged_from: u64,
    /// How long it stays inside.
    pub stay: Pause,
    pub cases: Vec<Case>,
    patience: Patience,
    /// When it asked and entered.
    asked: u64,
    entered: u64,
    counts: bool,
    /// It has given up or left since, after a wait.
    waited: Option<Span>,
}

impl Visitor {
    pub fn new(seat: &'static Seat, dice: Dice, gust: Arc<Gust>, judged_from: u64) -> Self {
        let stay = gust.stay;
        Visitor {
            seat,
            dice,
            gust,
            judged_from,
            stay,
            cases: Vec::new(),
            patience: Patience::Try,
            asked: 0,
            entered: 0,
            counts: false,
            waited: None,
        }
    }

    /// One of its operations is beginning.
    #[inline]
    pub fn begin(&mut self, op: Op) {
        self.seat.operation.store(op as u32, Relaxed);
        self.counts = self.gust.counted.is_some_and(|often| self.dice.roll(often) == 0);
    }

    /// A timeout.
    pub fn timeout(&mut self) -> Duration {
        Duration::from_nanos(self.dice.roll(self.gust.patience + 1))
    }

    /// May have this thread stopped somewhere in the call that follows.
    #[inline]
    fn endanger(&mut self, doublings: u64) {
        if self.counts && self.dice.roll(2) == 0 {
            let most = 1 << self.dice.roll(doublings + 1);
            let instructions = 1 + self.dice.roll(most);
            let stop = SHORTEST_STOP << self.dice.roll(STOP_DOUBLINGS + 1);
            stops::after_instructions(self.seat, instructions, stop);
        }
    }

    /// Asks for the lock.
    #[inline]
    pub fn ask(&mut self, what: What, patience: Patience) {
        self.patience = patience;
        let now = now();
        self.asked = now;
        self.seat.set_what(what);
        let deadline = match patience {
            Patience::For(time) => now + time.as_nanos() as u64,
            _ => 0,
        };
        self.seat.deadline.store(deadline, Relaxed);
        let doing = match (patience, what.side) {
            (Patience::Try, _) => Doing::Tries,
            (_, Side::Shared) => Doing::AsksShared,
            (_, Side::Exclusive) => Doing::AsksExclusive,
            (_, Side::Upgradable) => Doing::AsksUpgradable,
        };
        self.seat.set(doing, now);
        self.endanger(DOUBLINGS_OF_ASKING);
    }

    /// It has what it asked for.
    #[inline]
    pub fn enter(&mut self) {
        let now = now();
        stops::stop_counting();
        self.entered = now;
        let span = Span { from: self.asked, to: now, what: self.seat.what() };
        self.seat.entries.push(span);
        self.seat.holds_since.store(now, Relaxed);
        self.seat.set(Doing::Stays, now);
        self.note_wait(span);
    }

    /// It has given up.
    #[inline]
    pub fn give_up(&mut self) {
        stops::stop_counting();
        let now = now();
        self.note_wait(Span { from: self.asked, to: now, what: self.seat.what() });
        self.seat.set(Doing::Thinks, now);
        self.look_into_wait();
    }

    #[inline]
    fn note_wait(&mut self, span: Span) {
        if self.patience == Patience::Try || span.length() < LONG {
            return;
        }
        self.seat.waits.push(span);
        let role = usize::from(span.what.side != Side::Shared);
        self.seat.longest_wait[role].fetch_max(span.length(), Relaxed);
        // What happened after its deadline did not keep it waiting.
        let deadline = self.seat.deadline.load(Relaxed);
        let to = if deadline == 0 { span.to } else { span.to.min(deadline) };
        self.waited = Some(Span { to, ..span });
    }

    /// It holds the lock, and its guard becomes another.
    pub fn upgrade(&mut self) {
        self.seat.set(Doing::Upgrades, now());
        self.endanger(DOUBLINGS_OF_ASKING);
    }

    pub fn upgraded(&mut self) {
        stops::stop_counting();
        self.seat.set(Doing::Stays, now());
    }

    /// Time inside.
    #[inline]
    pub fn stay(&mut self) {
        self.stay.take(&mut self.dice);
    }

    /// It is about to release the lock.
    #[inline]
    pub fn leave(&mut self) {
        self.seat.set(Doing::Releases, now());
        self.endanger(DOUBLINGS_OF_RELEASING);
    }

    /// It has released it.
    #[inline]
    pub fn left(&mut self) {
        stops::stop_counting();
        let now = now();
        let hold = Span { from: self.entered, to: now, what: self.seat.what() };
        if hold.length() >= LONG {
            self.seat.holds.push(hold);
        }
        self.seat.holds_since.store(0, Relaxed);
        self.seat.set(Doing::Thinks, now);
        self.seat.operations.fetch_add(1, Relaxed);
        self.look_into_wait();
    }

    #[inline]
    fn look_into_wait(&mut self) {
        if let Some(wait) = self.waited.take().filter(|wait| wait.length() >= self.judged_from) {
            self.cases.push(Case::new(self.seat, wait));
        }
    }
}
