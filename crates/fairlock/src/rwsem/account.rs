//! What the two sides owe each other: for how much longer one has had the lock than the other, as far as those that
//! had to wait have seen. Arithmetic only; who acts on it is for `shares.rs` to say.
//!
//! Only waiting threads read the clock, so only they note time. What a side did before any thread waited makes it owe a
//! little, but never much: a side that comes seldom saves up no claim.

use core::sync::atomic::Ordering::Relaxed;

use super::word::Side;
use crate::platform::{AtomicCell, Platform};

/// The most that a side can be owed, in ticks of 64 ns: 32 ms. Sections that are longer than this are not made up for.
const MOST: u32 = 500_000;

/// Part of a lock's clock. Updated without a lock, so an update may be lost.
pub(super) struct Account<'a, P: Platform> {
    /// How much longer readers than writers have had the lock, in ticks; signed.
    pub(super) owed: &'a P::AtomicU32,
    /// All time before this is accounted for; 0 at first.
    pub(super) seen: &'a P::AtomicU32,
}

impl<P: Platform> Account<'_, P> {
    /// `holder` has the lock now. The other side has waited for `known` ticks; time before that makes it owed
    /// `enough` at most.
    pub(super) fn note(&self, holder: Side, now: u32, known: u32, enough: i32) {
        let seen = self.seen.load(Relaxed);
        let elapsed = if seen == 0 { known } else { now.wrapping_sub(seen) };
        if (elapsed as i32) < 0 {
            return; // Another thread was faster.
        }
        self.seen.store(now.max(1), Relaxed);
        let known = known.min(elapsed).min(MOST) as i32;
        let unseen = elapsed.min(MOST) as i32 - known;
        let sign = if holder == Side::Read { 1 } else { -1 };
        let before = sign * self.owed.load(Relaxed) as i32;
        let after = before.max((before + unseen).min(enough)) + known;
        self.owed.store((sign * after.min(MOST as i32)) as u32, Relaxed);
    }

    /// For how many ticks this side may have the lock before the two are level; negative if it is ahead.
    pub(super) fn owed_to(&self, side: Side) -> i32 {
        let owed = self.owed.load(Relaxed) as i32;
        if side == Side::Write { owed } else { -owed }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU32;

    use super::*;
    use crate::platform::Os;

    const ENOUGH: i32 = 100;

    /// What writers are owed after these holders, each seen at this time by one that had waited for so long.
    fn owed_after(noted: &[(Side, u32, u32)]) -> i32 {
        let (owed, seen) = (AtomicU32::new(0), AtomicU32::new(0));
        let account = Account::<Os> { owed: &owed, seen: &seen };
        for &(holder, now, known) in noted {
            account.note(holder, now, known, ENOUGH);
        }
        assert_eq!(account.owed_to(Side::Read), -account.owed_to(Side::Write));
        account.owed_to(Side::Write)
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
    fn time_that_nobody_saw_makes_a_side_owed_little() {
        let begun = (Side::Read, 1_000, 0);
        assert_eq!(owed_after(&[begun, (Side::Read, 50_000, 0)]), ENOUGH);
        assert_eq!(owed_after(&[begun, (Side::Read, 50_000, 300)]), ENOUGH + 300);
        let owed = (Side::Read, 2_000, 1_000);
        assert_eq!(owed_after(&[begun, owed, (Side::Read, 50_000, 0)]), 1_000, "nor less");
    }

    #[test]
    fn what_is_owed_has_an_end_and_the_clock_may_wrap() {
        let twice = [(Side::Read, MOST, MOST), (Side::Read, 2 * MOST, MOST)];
        assert_eq!(owed_after(&twice), MOST as i32);
        assert_eq!(owed_after(&[(Side::Write, u32::MAX, 5), (Side::Write, 9, 10)]), -15);
    }
}
