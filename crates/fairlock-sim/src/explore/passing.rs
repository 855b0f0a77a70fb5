//! Who is passed, by whom, and for how long.
//!
//! A thread acquires, holds and releases a lock within [`hold`], with a [`Claim`] that says what it
//! asks for and for how long others may pass it. The explorer then knows:
//!
//! * *Waiters*: a thread that has gone to sleep within its acquisition, until that ends. What came
//!   before, spinning say, is not counted: a lock does not know of it.
//! * *First in line*: a reader is, as soon as it waits, as locks let in all waiting readers at once. (`TimeFair` lets
//!   in as many as there are CPUs, and each of them one more; a bound has to allow for the others.)
//!   A writer, or an upgradable reader, is when no other one is left whose acquisition began before
//!   this one slept: which of the two queued first only the lock knows.
//! * *Newcomers*: acquisitions that began after the waiter slept. One that ends with the lock while
//!   the waiter waits has *passed* it.
//! * *Time*: a waiter is passed for as long as from when it was first in line until a newcomer last
//!   passed it. Time in which a thread is stopped that acquires, holds or releases the lock, the
//!   waiter included, is not counted: a lock cannot throw a holder out, a waiter that does not run
//!   cannot enter, and one that is stopped within the lock may have what others need, such as the
//!   queue. Stops of others count, and so does the time that holders stay by the program's will.
//!
//! * *Ranges*: of claims to ranges of one lock, only those are before one another, or pass one another, that conflict.
//!
//! * *Without a break*: plain readers that come new and pass a waiter while at every moment some
//!   plain reader holds the lock. Who is in may stay, and until the last one is out the lock is not a
//!   writer's; but a lock can keep those away that come meanwhile. So the time from the first to
//!   the last of these newcomers has a bound of its own, in which no holder's time is.
//!
//! A waiter that is passed for longer than its bound fails the execution
//! ([`FailureKind::Passed`](super::FailureKind::Passed)), at once. When nobody passes, waiting is not
//! a failure here, and if it does not end it is a deadlock.
//!
//! All that is bookkeeping between steps: it gives nobody a turn. It needs the clock of a program
//! that is explored [in time](super::Program::in_time); elsewhere [`hold`] watches nobody.

use super::execution::Run;
use super::failure::FailureKind;
use super::schedule::MOST_THREADS;

/// What an acquisition asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Read,
    /// Shared, and in line with writers.
    Upgradable,
    Write,
}

/// What an acquisition asks for, and for how long others may pass it.
///
/// Without a bound it may be passed for ever; it still passes others.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    side: Side,
    bound: u64,
    unbroken: u64,
    /// The first and the last position; none of a lock without ranges.
    range: Option<(u64, u64)>,
}

impl Claim {
    /// Shared.
    pub const READ: Claim = Claim::of(Side::Read);
    /// Shared, with the right to become exclusive: waits in line with writers.
    pub const UPGRADABLE: Claim = Claim::of(Side::Upgradable);
    /// Exclusive.
    pub const WRITE: Claim = Claim::of(Side::Write);

    const fn of(side: Side) -> Claim {
        Claim { side, bound: u64::MAX, unbroken: u64::MAX, range: None }
    }

    /// Of these positions of a range lock.
    #[must_use]
    pub const fn to_range(self, first: u64, last: u64) -> Claim {
        Claim { range: Some((first, last)), ..self }
    }

    /// Whether one of the two keeps the other waiting. A claim to a whole lock may, whatever it asks for.
    fn conflicts(self, other: Claim) -> bool {
        let (Some((first, last)), Some((others_first, others_last))) = (self.range, other.range)
        else {
            return true;
        };
        let shared = self.side == Side::Read && other.side == Side::Read;
        !shared && first <= others_last && others_first <= last
    }

    /// Once it is first in line, readers pass it without a break, never without one that holds the lock,
    /// for at most so many ns.
    #[must_use]
    pub const fn passed_without_a_break_for_at_most(self, ns: u64) -> Claim {
        Claim { unbroken: ns, ..self }
    }

    /// Once it is first in line, newcomers pass it for at most so many ns.
    #[must_use]
    pub const fn passed_for_at_most(self, ns: u64) -> Claim {
        Claim { bound: ns, ..self }
    }
}

/// Acquires, and if that ends with the lock does what is to be done with it, its release included.
/// False if it did not. See [`Claim`], and [`FailureKind::Passed`] for what is checked.
///
/// ```
/// use fairlock::{RwSem, policy::TimeFair};
/// use fairlock_sim::Explored;
/// use fairlock_sim::explore::{Claim, Program, Search, Time, hold, pass_time};
///
/// type Lock = RwSem<(), TimeFair, Explored>;
/// let write = Claim::WRITE.passed_for_at_most(10_000_000);
/// let program = Program::new("a reader that comes again and a writer", || Lock::with_policy(()))
///     .thread(|lock| {
///         for _ in 0..100 {
///             hold(Claim::READ, || lock.try_read(), |guard| {
///                 pass_time(20_000);
///                 drop(guard);
///             });
///         }
///     })
///     .thread(move |lock| _ = hold(write, || Some(lock.write()), drop))
///     .in_time(Time::new());
/// program.assert(&Search::random(1, 20));
/// ```
///
/// # Panics
/// Outside a run, and within another one: a thread is passed for one lock at a time.
pub fn hold<G>(claim: Claim, acquire: impl FnOnce() -> Option<G>, act: impl FnOnce(G)) -> bool {
    let run = Run::current().expect("only a program's thread can be passed");
    run.claim(claim);
    let guard = acquire();
    run.claimed(guard.is_some());
    guard.is_some_and(|guard| {
        act(guard);
        run.unclaim();
        true
    })
}

/// How far a thread is with its claim.
#[derive(Debug, Clone, Copy, Default)]
enum Stage {
    #[default]
    Outside,
    Acquires(Attempt),
    Holds(Side),
}

#[derive(Debug, Clone, Copy)]
struct Attempt {
    claim: Claim,
    /// Counts events, to tell what began before what.
    began: u64,
    slept: Option<u64>,
    first_in_line: Option<FirstInLine>,
}

#[derive(Debug, Clone, Copy)]
struct FirstInLine {
    /// How much of the clock's time had counted.
    since: u64,
    /// By whom it was passed, and how often.
    passed: [u32; MOST_THREADS],
    /// Since when without a break.
    unbroken_since: Option<u64>,
}

/// All claims of a run.
#[derive(Debug, Default)]
pub(super) struct Passing {
    stages: [Stage; MOST_THREADS],
    events: u64,
    /// How much of the clock's time counts: it stands still while somebody within the lock is stopped.
    counted: u64,
}

impl Passing {
    /// So much time has passed that counts.
    pub(super) fn pass(&mut self, ns: u64) {
        self.counted += ns;
    }

    pub(super) fn is_within(&self, thread: usize) -> bool {
        !matches!(self.stages[thread], Stage::Outside)
    }

    pub(super) fn claim(&mut self, thread: usize, claim: Claim) {
        assert!(!self.is_within(thread), "a claim within another one");
        self.events += 1;
        let (began, slept, first_in_line) = (self.events, None, None);
        self.stages[thread] = Stage::Acquires(Attempt { claim, began, slept, first_in_line });
    }

    /// The thread goes to sleep.
    pub(super) fn sleeps(&mut self, thread: usize) {
        if let Stage::Acquires(attempt) = &mut self.stages[thread]
            && attempt.slept.is_none()
        {
            self.events += 1;
            attempt.slept = Some(self.events);
            self.line_up();
        }
    }

    /// Who is first in line now.
    fn line_up(&mut self) {
        for at in 0..MOST_THREADS {
            let Stage::Acquires(attempt) = self.stages[at] else { continue };
            let (Some(slept), None) = (attempt.slept, attempt.first_in_line) else { continue };
            let is_before = |other: &Stage| {
                let Stage::Acquires(other) = other else { return false };
                other.claim.side != Side::Read
                    && other.began < slept
                    && other.claim.conflicts(attempt.claim)
            };
            let mut others = self.stages.iter().enumerate().filter(|&(other, _)| other != at);
            if attempt.claim.side == Side::Read || !others.any(|(_, other)| is_before(other)) {
                let (since, passed) = (self.counted, [0; MOST_THREADS]);
                let first = FirstInLine { since, passed, unbroken_since: None };
                if let Stage::Acquires(attempt) = &mut self.stages[at] {
                    attempt.first_in_line = Some(first);
                }
            }
        }
    }

    /// The acquisition has ended: whether somebody was passed by it for too long.
    pub(super) fn claimed(&mut self, thread: usize, entered: bool) -> Option<FailureKind> {
        let Stage::Acquires(newcomer) = self.stages[thread] else {
            unreachable!("it has acquired")
        };
        self.events += 1;
        self.stages[thread] =
            if entered { Stage::Holds(newcomer.claim.side) } else { Stage::Outside };
        self.line_up();
        if !entered {
            return None;
        }
        let (counted, side) = (self.counted, newcomer.claim.side);
        for (at, stage) in self.stages.iter_mut().enumerate() {
            let Stage::Acquires(waiter) = stage else { continue };
            let (Some(slept), Some(first)) = (waiter.slept, &mut waiter.first_in_line) else {
                continue;
            };
            if side == Side::Write {
                first.unbroken_since = None;
            }
            if newcomer.began < slept || !newcomer.claim.conflicts(waiter.claim) {
                continue;
            }
            first.passed[thread] += 1;
            let mut unbroken = 0;
            if side == Side::Read {
                unbroken = counted - *first.unbroken_since.get_or_insert(counted);
            }
            let ns = counted - first.since;
            let (ns, bound, without_a_break) = if ns > waiter.claim.bound {
                (ns, waiter.claim.bound, false)
            } else if unbroken > waiter.claim.unbroken {
                (unbroken, waiter.claim.unbroken, true)
            } else {
                continue;
            };
            let by = first.passed.iter().enumerate().filter(|&(_, &times)| times > 0);
            let by = by.map(|(at, &times)| (at + 1, times)).collect();
            return Some(FailureKind::Passed { thread: at + 1, by, ns, bound, without_a_break });
        }
        None
    }

    pub(super) fn unclaim(&mut self, thread: usize) {
        self.stages[thread] = Stage::Outside;
        if self.stages.iter().any(|stage| matches!(stage, Stage::Holds(Side::Read))) {
            return;
        }
        for stage in &mut self.stages {
            if let Stage::Acquires(Attempt { first_in_line: Some(first), .. }) = stage {
                first.unbroken_since = None;
            }
        }
    }

    pub(super) fn reset(&mut self) {
        *self = Passing::default();
    }
}
