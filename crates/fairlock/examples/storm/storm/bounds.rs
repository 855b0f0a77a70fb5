//! How long somebody may be passed, by each lock's written promise, and whether it was kept.
//!
//! A *pass* of a waiter is an acquisition by a newcomer in its way: one that asked for the lock when
//! the waiter had been on the queue for sure, and had it first. Order on the queue is not seen from
//! outside, and the storm itself holds threads up. So that what is called broken is broken:
//! * A waiter is on the queue when it was seen asleep. Before that it may spin, be stopped, have no
//!   CPU, or wait for the queue's own lock, whose holder was stopped.
//! * Of those that wait at the same place, *somebody* is the first, and it is the one that a
//!   promise is about. So the clock of a waiter's bypass starts again whenever one that asked
//!   before it, or about the same time, gets the lock or gives up.
//! * The clock starts again after every stop of any thread that uses the lock, whoever that is: a
//!   holder, one in the middle of an unlock, the waiter whose timer ends the phase. A thread whose
//!   instructions are counted, or that forks, is stopped. So is everybody while the machine itself
//!   is.
//! * A bypass ends when the newcomer *asked*, not when it got the lock, which it only notices when
//!   it has a CPU.
//! * Too few CPUs are not the lock's fault either. The kernel counts for how long each thread was
//!   ready and had no CPU; the longest such time of anybody who waited is added for each wake-up
//!   that the promise has in it.
//! * So is the longest hold, however long its thread was stopped or had no CPU, as no lock can
//!   throw a holder out.
//!
//! | promise | passed for at most | or so often |
//! |---|---|---|
//! | `TimeFair`, an exclusive waiter | what its side has been ahead and the slack, twice, and both again if it was woken in vain, which cannot be seen from outside: 4 × (16 ms, a hold, 2 waits for a CPU, 2 ms) | |
//! | `TimeFair`, a shared waiter, by writers | half of that, and before that the line, 6 ms | |
//! | `PhaseFair`, an exclusive waiter | | once by each reader, by no writer |
//! | `PhaseFair`, a shared waiter | | by one writer |
//! | `Handoff`, of range locks by those whose ranges overlap its own | 4 ms, 2 holds, 3 waits for a CPU, 2 ms | |
//! | `Turns`, an exclusive waiter | | twice by each other writer |
//! | `Turns`, a shared waiter | | by one writer |
//!
//! The 1 ms is for timer slack, wake-up latency and a barrier on all CPUs, each below 0.1 ms on an
//! idle machine.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use fairlock::policy::{LONGEST_IN_LINE_NS, MOST_OWED_NS};

use super::clock::{MICROSECOND, MILLISECOND, show};
use super::seats::{self, LONG, SEATS, Seat, Side, Span};

/// What a lock promises to somebody who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    Nothing,
    TimeFair,
    PhaseFair,
    /// The lock is reserved for the head of the queue after 4 ms; of a range lock the range.
    Handoff,
    /// Readers and batches of writers take turns.
    Turns,
}

/// The time after which a lock is handed over.
const BUDGET: u64 = 4 * MILLISECOND;
const SLACK: u64 = MILLISECOND;

impl Promise {
    /// Shorter waits cannot break it.
    pub fn judged_from(self) -> u64 {
        match self {
            Promise::Nothing => u64::MAX,
            Promise::TimeFair => MOST_OWED_NS,
            Promise::Handoff => BUDGET,
            Promise::PhaseFair | Promise::Turns => MILLISECOND,
        }
    }

    /// It is about time, not about how often.
    fn is_timed(self) -> bool {
        matches!(self, Promise::TimeFair | Promise::Handoff)
    }
}

/// An acquisition by somebody who came later.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    pub seat: usize,
    /// From when it asked to when it had the lock.
    pub span: Span,
}

/// A long wait, and who passed it. Collected at once, as acquisitions are remembered for a short
/// time only; judged when everything else is known.
#[derive(Debug, Clone)]
pub struct Case {
    pub seat: usize,
    pub operation: u32,
    pub wait: Span,
    /// When it was on the queue for sure.
    pub queued: Option<u64>,
    /// Of each thread and side the last in each half of a millisecond.
    pub passes: Vec<Pass>,
}

const BUCKET: u64 = 500 * MICROSECOND;

impl Case {
    /// Of a wait that has ended, or goes on.
    pub fn new(seat: &Seat, wait: Span) -> Self {
        let queued = seat.slept_by(wait.from);
        let mut passes = Vec::new();
        let others = if queued.is_some() { &seats::all()[..] } else { &[] };
        for (number, other) in others.iter().enumerate() {
            if std::ptr::eq(other, seat) {
                continue;
            }
            let mut buckets = [u64::MAX; 3];
            for span in other.entries.newest_first() {
                if span.to <= queued.unwrap_or(0) {
                    break;
                }
                let came_later = span.from > queued.unwrap_or(0) && span.to < wait.to;
                let bucket = &mut buckets[span.what.side as usize];
                if came_later && span.what.overlaps(wait.what) && *bucket != span.from / BUCKET {
                    *bucket = span.from / BUCKET;
                    passes.push(Pass { seat: number, span });
                }
            }
        }
        passes.sort_unstable_by_key(|pass| pass.span.from);
        let operation = seat.operation.load(Relaxed);
        Case { seat: seat.number(), operation, wait, queued, passes }
    }
}

/// A thread was ready and had no CPU, for so long in all, at some time between these moments.
#[derive(Debug, Clone, Copy)]
pub struct Shortage {
    pub seat: usize,
    pub from: u64,
    pub to: u64,
    pub ns: u64,
}

/// What befell the threads from outside.
#[derive(Default)]
pub struct Weather {
    pub shortages: Vec<Shortage>,
    /// The machine stood still.
    pub stalls: Vec<Span>,
}

impl Weather {
    /// The longest time between these moments for which a thread that waited for the lock had no CPU.
    fn shortage(&self, from: u64, to: u64) -> u64 {
        let meeting = self.shortages.iter().filter(|it| it.from <= to && from <= it.to);
        let of_waiters = meeting.filter(|it| {
            let seat = &seats::all()[it.seat];
            let (from, to) = (from.max(it.from), to.min(it.to));
            let waits_now = seat.waits_since().is_some_and(|since| since <= to);
            let mut past = seat.waits.newest_first().take_while(|wait| wait.to >= from);
            waits_now || past.any(|wait| wait.meets(from, to))
        });
        of_waiters.map(|it| it.ns).max().unwrap_or(0)
    }

    pub fn clear(&mut self) {
        self.shortages.clear();
        self.stalls.clear();
    }
}

/// How a wait compares with the promise.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub bypass: Amount,
    pub bound: Amount,
    pub broken: bool,
    pub why: String,
}

impl Verdict {
    /// Of its bound.
    pub fn share(&self) -> f64 {
        share((self.bypass, self.bound))
    }
}

/// How much of the bound a bypass is.
pub fn share((bypass, bound): (Amount, Amount)) -> f64 {
    bypass.value() / bound.value().max(0.5)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Amount {
    Times(u64),
    Time(u64),
}

impl Amount {
    fn value(self) -> f64 {
        match self {
            Amount::Times(value) | Amount::Time(value) => value as f64,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Amount::Times(1) => f.write_str("once"),
            Amount::Times(times) => write!(f, "{times} times"),
            Amount::Time(ns) => f.write_str(&show(ns)),
        }
    }
}

/// The longest bypass in a wait, and the bound that holds for it. None if nobody passed, or nothing
/// is promised.
pub fn judge(promise: Promise, case: &Case, weather: &Weather) -> Option<Verdict> {
    let exclusive = match case.wait.what.side {
        Side::Exclusive => true,
        Side::Shared => false,
        // Once it is in, readers pass it by right, before it can say so.
        Side::Upgradable => return None,
    };
    if promise == Promise::Nothing {
        return None;
    }
    let queued = case.queued?;
    // Others that read do not keep a reader waiting.
    let in_the_way = |pass: &&Pass| {
        pass.span.from > queued && (exclusive || pass.span.what.side == Side::Exclusive)
    };
    let passes: Vec<Pass> = case.passes.iter().filter(in_the_way).copied().collect();
    if promise.is_timed() {
        judge_time(promise, case, weather, queued, exclusive, &passes)
    } else {
        judge_count(promise, case, queued, exclusive, &passes)
    }
}

/// When those ahead of the waiter, or beside it, got the lock or gave up, in order.
fn progress(promise: Promise, case: &Case, queued: u64) -> Vec<u64> {
    let waits_to_share = case.wait.what.side == Side::Shared;
    let mut moments = Vec::new();
    for seat in seats::all() {
        for span in seat.waits.newest_first() {
            if span.to <= queued {
                break;
            }
            let ahead = match promise {
                Promise::TimeFair | Promise::PhaseFair => {
                    (span.what.side == Side::Shared) == waits_to_share
                }
                _ => true,
            };
            if span.from <= queued && span.to <= case.wait.to && ahead {
                moments.push(span.to);
            }
        }
    }
    moments.sort_unstable();
    moments
}

/// The last of these moments that is not after this one.
fn last_before(moments: &[u64], moment: u64) -> u64 {
    let after = moments.partition_point(|&it| it <= moment);
    after.checked_sub(1).map_or(0, |at| moments[at])
}

fn judge_time(
    promise: Promise,
    case: &Case,
    weather: &Weather,
    queued: u64,
    exclusive: bool,
    passes: &[Pass],
) -> Option<Verdict> {
    let by_stalls = weather.stalls.iter().copied();
    let by_stops = seats::all()
        .iter()
        .flat_map(|seat| seat.stops.newest_first().take_while(|stop| stop.to >= case.wait.from));
    let mut stops: Vec<_> =
        by_stops.chain(by_stalls).filter(|stop| stop.meets(case.wait.from, case.wait.to)).collect();
    stops.sort_unstable_by_key(|stop| stop.from);
    let progress = progress(promise, case, queued);
    let (mut calm_from, mut stop) = (0, stops.iter().peekable());
    let mut longest: Option<(u64, u64, Pass)> = None;
    for pass in passes {
        while let Some(next) = stop.next_if(|next| next.from <= pass.span.to) {
            calm_from = calm_from.max(next.to);
        }
        let from = queued.max(calm_from).max(last_before(&progress, pass.span.to));
        let bypass = pass.span.from.saturating_sub(from);
        if longest.is_none_or(|(longest, ..)| bypass > longest) {
            longest = Some((bypass, from, *pass));
        }
    }
    let (bypass, from, pass) = longest?;
    let hold = longest_hold(from, pass.span.to);
    let shortage = weather.shortage(from, pass.span.to);
    let bound = match promise {
        Promise::TimeFair => {
            let phases = if exclusive { 4 } else { 2 };
            let in_line = if exclusive { 0 } else { LONGEST_IN_LINE_NS };
            in_line + phases * (MOST_OWED_NS + hold + 2 * shortage + 2 * SLACK)
        }
        _ => BUDGET + 2 * hold + 3 * shortage + 2 * SLACK,
    };
    let side = case.wait.what.side;
    let why = format!(
        "asked for {side:?} access, waited for {}, and after {} was passed by thread {}, which had asked for \
         {:?} access then; that is {} after the last stop and the last progress of those that had waited \
         as long. The bound takes holds of up to {}, and waits for a CPU of up to {}. {} passes were noted",
        show(case.wait.length()),
        show(pass.span.from - case.wait.from),
        pass.seat,
        pass.span.what.side,
        show(bypass),
        show(hold),
        show(shortage),
        passes.len(),
    );
    let broken = bypass > bound;
    Some(Verdict { bypass: Amount::Time(bypass), bound: Amount::Time(bound), broken, why })
}

/// The longest hold of anybody that meets this time.
fn longest_hold(from: u64, to: u64) -> u64 {
    let of = |seat: &Seat| {
        let since = seat.holds_since.load(Relaxed);
        let now = if since == 0 { 0 } else { to.saturating_sub(since) };
        let past = seat.holds.newest_first().take_while(|hold| hold.to >= from);
        past.filter(|hold| hold.meets(from, to)).map(Span::length).max().unwrap_or(0).max(now)
    };
    seats::all().iter().map(of).max().unwrap_or(0).max(LONG)
}

fn judge_count(
    promise: Promise,
    case: &Case,
    queued: u64,
    exclusive: bool,
    passes: &[Pass],
) -> Option<Verdict> {
    let writers = passes.iter().filter(|pass| pass.span.what.side == Side::Exclusive);
    let mut by_each = [0_u64; SEATS];
    let (times, bound, whom) = match (promise, exclusive) {
        (Promise::PhaseFair, true) => {
            let by_writers = writers.count() as u64;
            if by_writers > 0 {
                (by_writers, 0, "by writers")
            } else {
                // Each reader once between two turns of those that were there before.
                let progress = progress(promise, case, queued);
                let mut most = 0;
                let mut since = [0; SEATS];
                for pass in passes.iter().filter(|pass| pass.span.what.side == Side::Shared) {
                    let turn = last_before(&progress, pass.span.to);
                    if pass.span.from < turn {
                        continue;
                    }
                    if since[pass.seat] != turn {
                        (since[pass.seat], by_each[pass.seat]) = (turn, 0);
                    }
                    by_each[pass.seat] += 1;
                    most = most.max(by_each[pass.seat]);
                }
                (most, 1, "by one reader in one turn")
            }
        }
        (Promise::Turns, true) => {
            writers.for_each(|pass| by_each[pass.seat] += 1);
            (by_each.into_iter().max().unwrap_or(0), 2, "by one writer")
        }
        _ => (writers.count() as u64, 1, "by writers"),
    };
    let last = passes.last()?;
    let why = format!(
        "asked for {:?}, waited for {}, and was passed {times} times {whom}, last by thread {}, which \
         had asked {} after it",
        case.wait.what,
        show(case.wait.length()),
        last.seat,
        show(last.span.from - case.wait.from),
    );
    let broken = times > bound;
    Some(Verdict { bypass: Amount::Times(times), bound: Amount::Times(bound), broken, why })
}
