//! The policy's constants in time, and what follows from the account.

use super::account::{PhaseClock, TICK_SHIFT, in_units, ticks};
use super::lock::RawRwSem;
use super::queue_pool::HasQueuePool;
use super::reader_bias::ReaderBias;
use super::word::Side;
use crate::platform::{Platform, Tunable};
use crate::policy::{Policy, Shares};

/// The knobs of [`Shares`], which says what each is.
const SLACK: Tunable = Tunable::new("slack", Shares::TIME_FAIR.slack, 1..=1_024);
const SPIN: Tunable = Tunable::new("spin", Shares::TIME_FAIR.spin, 1..=1_024);
/// A side that leaves the lock free for longer than this, ns, has gone elsewhere. Longer: the lock
/// stands free. Shorter: a side that comes right back loses its phase. Chosen, not measured: a few
/// transfers of a cache line.
const ABSENCE: Tunable = Tunable::new("absence_ns", 500, 0..=1_000_000);
/// How often a thread naps before it queues, to leave its CPU to the writer that was running there.
/// It also naps if it was the last writer itself, and the next one has not yet noted its CPU: that
/// one then runs undisturbed for a while. Without naps, two threads with empty sections (2 CPUs)
/// complete .4 as much. More: a writer that was stopped is waited for in vain.
pub(super) const NAPS: Tunable = Tunable::new("naps", 2, 0..=64);
/// One entry in this many looks at the clock. Fewer: entries take longer. More: a side that owes
/// nothing any more stays shut out for longer.
const ENTRIES_PER_CLOCK: Tunable = Tunable::new("entries_per_clock", 16, 1..=4_096);

pub(super) const TUNABLES: &[Tunable] = &[SLACK, SPIN, ABSENCE, NAPS, ENTRIES_PER_CLOCK];

/// What a wake-up costs, ns.
pub(super) fn latency<P: Platform>() -> u64 {
    P::wake_latency().into()
}

/// An entry looks at the clock: in effect at random, so that a thread that uses several locks by
/// turns looks at the clock of each.
pub(super) fn looks_at_clock<P: Platform>() -> bool {
    // Two rounds of a multiplicative hash, for its upper bits.
    let mixed = P::turn().wrapping_mul(0x9e37_79b9);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b);
    mixed < u32::MAX / P::tuned(ENTRIES_PER_CLOCK)
}

impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> RawRwSem<Pol, P, B> {
    /// By how many ticks one side may be ahead while the other wants the lock.
    pub(super) fn slack() -> i32 {
        match Pol::SHARES.slack {
            0 => 0,
            slack => {
                let slack = SLACK.with_value(slack.min(*SLACK.bounds().end()));
                in_units(ticks(latency::<P>()) * P::tuned(slack)) as i32
            }
        }
    }

    /// For how many ns a thread spins.
    pub(super) fn spin_ns() -> u64 {
        match Pol::SHARES.spin {
            0 => 0,
            spin => latency::<P>() * u64::from(P::tuned(SPIN.with_value(spin))),
        }
    }

    /// For how many ns this side lets the lock stand free in the other's phase: longer if it owes
    /// the other more than the slack, but not for longer than four wake-ups.
    pub(super) fn absence(&self, side: Side) -> u64 {
        let owes = (-self.owed_to(side) - Self::slack()).max(0) as u64;
        (u64::from(P::tuned(ABSENCE)) + (owes << TICK_SHIFT) / 16).min(4 * latency::<P>())
    }

    pub(super) fn owed_to(&self, side: Side) -> i32 {
        self.account.owed_to(side)
    }

    /// This side is owed more than a wake-up.
    pub(super) fn is_owed(&self, side: Side) -> bool {
        Self::slack() != 0 && self.owed_to(side) > ticks(latency::<P>()) as i32
    }

    pub(super) fn note_held(&self, holder: Side, now: u32, known: u32) {
        self.account.note(holder, now, known, Self::slack());
    }

    /// Readers that hold no share of this lock's word have been waited for since then, ns.
    pub(crate) fn note_reads(&self, since: u64) {
        let now = PhaseClock::<P>::now();
        self.note_held(Side::Read, now, now.wrapping_sub(ticks(since)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;

    struct Patient<const SLACK: u32>;

    impl<const SLACK: u32> Policy for Patient<SLACK> {
        const NAME: &'static str = "patient";
        const SHARES: Shares = Shares { slack: SLACK, ..Shares::TIME_FAIR };
    }

    #[test]
    fn more_slack_than_counts_is_the_most() {
        fn slack<const SLACK: u32>() -> i32 {
            RawRwSem::<Patient<SLACK>, Os>::slack()
        }
        // What a wake-up costs may change at any time.
        let most = in_units(ticks(100_000) * 1_024) as i32;
        assert!((1..=most).contains(&slack::<1_024>()));
        assert!((1..=most).contains(&slack::<{ u32::MAX }>()));
    }
}
