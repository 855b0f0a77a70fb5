//! A short wait for another thread, before a sleep: a few PAUSEs, as that thread may be done soon;
//! then yields, as it may have no CPU. A sleep and a wake-up take longer than all of these, unless
//! a thread that computes gets the CPU: then the platform says that yields do not pay.

use core::marker::PhantomData;

use crate::platform::Platform;

/// Rounds without a yield: 2, 4 and 8 PAUSEs.
const BUSY_ROUNDS: u32 = 3;

/// How far one wait is.
pub(crate) struct Backoff<P> {
    /// PAUSEs that are left.
    turns: u32,
    /// PAUSEs until the thread looks again. 0 if it looks after each.
    round: u32,
    yields: u32,
    platform: PhantomData<fn() -> P>,
}

impl<P: Platform> Backoff<P> {
    fn new(turns: u32, round: u32) -> Self {
        // On one CPU nothing changes before another thread runs.
        let turns = if P::cpus() == 1 { 0 } else { turns };
        let yields = P::ROUNDS_BEFORE_SLEEP.saturating_sub(BUSY_ROUNDS);
        Backoff { turns, round, yields, platform: PhantomData }
    }

    /// Of a thread that looks at a lock's word, which the owner is about to write: it stays away
    /// from that cache line for twice as long each time, for 14 PAUSEs in all.
    pub(crate) fn from_a_lock() -> Self {
        let rounds = P::ROUNDS_BEFORE_SLEEP.min(BUSY_ROUNDS);
        Backoff::new((2 << rounds) - 2, 2)
    }

    /// Of a thread that looks at a word of its own, for 50 PAUSEs. More: among more threads than
    /// CPUs it keeps one from those that it waits for. Fewer: where there is a CPU for each, more
    /// sleep.
    pub(crate) fn from_its_own_word() -> Self {
        Backoff::new(50, 0)
    }

    /// Passes the time until the thread looks again. False if it should sleep.
    pub(crate) fn goes_on(&mut self) -> bool {
        if self.turns > 0 {
            let end = self.turns.saturating_sub(self.round);
            self.round *= 2;
            loop {
                let most = if end < self.turns { self.turns - end } else { self.turns };
                self.turns -= P::relax_turns(most).min(most);
                if self.turns <= end {
                    return true;
                }
            }
        }
        if self.yields == 0 || !P::yield_briefly() {
            return false;
        }
        self.yields -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;

    #[test]
    fn both_end_after_their_turns_and_the_yields() {
        let looks = |mut backoff: Backoff<Os>| (0..).take_while(|_| backoff.goes_on()).count();
        let busy = |looks| if Os::cpus() == 1 { 0 } else { looks };
        // Fewer yields where other programs compute.
        let all = |looks| busy(looks)..=busy(looks) + 7;
        assert!(all(3).contains(&looks(Backoff::from_a_lock())));
        assert!(all(50).contains(&looks(Backoff::from_its_own_word())));
    }
}
