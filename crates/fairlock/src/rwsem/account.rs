//! How time is divided: what the two sides owe each other, and when the running phase ends.
//!
//! The account says for how much longer one has had the lock than the other, as far as those that
//! had to wait have seen. Arithmetic only; `serve.rs` and `slow_path.rs` act on it.
//!
//! ns here are ticks of 64 ns while threads measure, and units of 2,048 ns in the account. Threads
//! that wait note time, and so does one in sixteen of those that enter by the slow path while none
//! waits. What a side did before any thread waited makes it owe a little, but never much: a side
//! that comes seldom saves up no claim. A thread that loses its CPU before it has queued notes what
//! it has waited for when it runs again.

use core::sync::atomic::Ordering::Relaxed;

use super::word::Side;
use crate::platform::{AtomicCell, Platform};
use crate::policy::MOST_OWED_NS;

/// ns to ticks of 64 ns, in which waiting threads measure.
pub(super) const TICK_SHIFT: u32 = 6;
/// Those to the account's unit, 2,048 ns: 16 bits count up to the most that a side is owed.
const UNIT_SHIFT: u32 = 5;
/// The most that a side can be owed, in the account's units.
const MOST: i32 = (MOST_OWED_NS >> (TICK_SHIFT + UNIT_SHIFT)) as i32;
/// The account's clock wraps after 134 ms.
const CLOCK: u32 = 0xffff;
/// A moment this many units before the account's is one that another thread was faster to note.
const PAST: u32 = 1_024;
const OWED_SHIFT: u32 = 16;

pub(super) const fn ticks(ns: u64) -> u32 {
    (ns >> TICK_SHIFT) as u32
}

/// As many of these ticks as the account can count: a whole number of its units.
pub(super) fn in_units(ticks: u32) -> u32 {
    ticks >> UNIT_SHIFT << UNIT_SHIFT
}

/// Part of a lock. Updated without a lock, so an update may be lost.
///
/// 16 bits: how much longer readers than writers have had the lock; signed. 16 bits: all time
/// before this is accounted for. Times in units of 2,048 ns.
pub struct Account<P: Platform>(P::AtomicU32);

impl<P: Platform> Account<P> {
    pub(super) const NEW: Self = Account(P::AtomicU32::ZERO);

    /// `holder` has the lock now. The other side has waited for `known` ticks; time before that
    /// makes it owed `enough` ticks at most.
    pub(super) fn note(&self, holder: Side, now: u32, known: u32, enough: i32) {
        let account = self.0.load(Relaxed);
        let (now, known) = (now >> UNIT_SHIFT & CLOCK, (known >> UNIT_SHIFT).min(MOST as u32));
        let elapsed = if account == 0 { known } else { now.wrapping_sub(account) & CLOCK };
        if elapsed > CLOCK - PAST {
            return; // Another thread was faster.
        }
        let known = known.min(elapsed) as i32;
        let unseen = elapsed as i32 - known;
        let sign = if holder == Side::Read { 1 } else { -1 };
        let before = sign * owed(account);
        let enough = enough >> UNIT_SHIFT;
        if known == 0 && before >= enough {
            // Nothing is added, so the moment stays: one that waits without a CPU has yet to say
            // for how long.
            return;
        }
        let after = before.max((before + unseen).min(enough)) + known;
        let owed = (sign * after.min(MOST)) as u32;
        self.0.store(owed << OWED_SHIFT | now, Relaxed);
    }

    /// For how many ticks this side may have the lock before the two are level; negative if it is
    /// ahead.
    pub(super) fn owed_to(&self, side: Side) -> i32 {
        let owed = owed(self.0.load(Relaxed)) << UNIT_SHIFT;
        if side == Side::Write { owed } else { -owed }
    }
}

/// A quarter of a second, in ticks.
const LONGEST: i32 = 1 << 22;

/// Written under the queue's lock. It is not in the lock, so a thread that has just left the lock
/// may look.
pub struct PhaseClock<P: Platform> {
    /// When the running phase ends, in ticks: 32 bits of them tell before from after within 137 s.
    ends: P::AtomicU32,
}

impl<P: Platform> PhaseClock<P> {
    pub(super) const NEW: Self = PhaseClock { ends: P::AtomicU32::ZERO };

    pub(super) fn now() -> u32 {
        ticks(P::now())
    }

    /// Ticks until the phase ends; negative when it has. No phase is longer than [`LONGEST`]: such
    /// an end lies far in the past.
    pub(super) fn remaining(&self, now: u32) -> i32 {
        let left = self.ends.load(Relaxed).wrapping_sub(now) as i32;
        if left > LONGEST { 0 } else { left }
    }

    /// The phase ends then.
    pub(super) fn end(&self, then: u32) {
        self.ends.store(then, Relaxed);
    }
}

fn owed(account: u32) -> i32 {
    account as i32 >> OWED_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;

    /// In units, as all figures here.
    const ENOUGH: i32 = 100;

    /// What writers are owed after these holders, each seen at this time by one that had waited for
    /// so long.
    fn owed_after(noted: &[(Side, u32, u32)]) -> i32 {
        let account = Account::<Os>::NEW;
        for &(holder, now, known) in noted {
            account.note(holder, now << UNIT_SHIFT, known << UNIT_SHIFT, ENOUGH << UNIT_SHIFT);
        }
        assert_eq!(account.owed_to(Side::Read), -account.owed_to(Side::Write));
        account.owed_to(Side::Write) >> UNIT_SHIFT
    }

    #[test]
    fn a_side_is_owed_what_it_has_waited_for() {
        assert_eq!(owed_after(&[(Side::Read, 1_000, 700)]), 700);
        assert_eq!(owed_after(&[(Side::Write, 1_000, 700)]), -700);
        assert_eq!(owed_after(&[(Side::Read, 1_000, 700), (Side::Write, 1_900, 900)]), -200);
    }

    #[test]
    fn the_same_time_is_noted_once() {
        assert_eq!(owed_after(&[(Side::Read, 1_000, 700), (Side::Read, 1_010, 700)]), 710);
        assert_eq!(owed_after(&[(Side::Read, 1_000, 700), (Side::Read, 990, 700)]), 700);
    }

    #[test]
    fn time_that_no_waiting_thread_saw_makes_a_side_owed_little() {
        let begun = (Side::Read, 1_000, 0);
        assert_eq!(owed_after(&[begun, (Side::Read, 50_000, 0)]), ENOUGH);
        assert_eq!(owed_after(&[begun, (Side::Read, 50_000, 300)]), ENOUGH + 300);
        let owed = (Side::Read, 2_000, 1_000);
        assert_eq!(owed_after(&[begun, owed, (Side::Read, 50_000, 0)]), 1_000, "nor less");
    }

    #[test]
    fn one_that_had_no_cpu_says_afterwards_that_it_has_waited() {
        let noted = [(Side::Read, 1_000, 0), (Side::Read, 2_000, 0), (Side::Read, 9_000, 0)];
        assert_eq!(owed_after(&noted), ENOUGH);
        let waited = [&noted[..], &[(Side::Read, 9_010, 6_000)]].concat();
        assert_eq!(owed_after(&waited), ENOUGH + 6_000);
    }

    #[test]
    fn what_is_owed_has_an_end_and_the_clock_may_wrap() {
        let most = MOST as u32;
        assert_eq!(owed_after(&[(Side::Read, most, most), (Side::Read, 2 * most, most)]), MOST);
        assert_eq!(owed_after(&[(Side::Write, CLOCK, 5), (Side::Write, CLOCK + 10, 10)]), -15);
    }
}
