//! How long a spin may last.

use crate::platform::Platform;

/// The clock is read every this many turns of a spin: reading it takes as long as a PAUSE or
/// two (Linux's rwsem does the same).
const TURNS_PER_CLOCK: u32 = 16;

/// A spin that ends at a moment of the platform's clock, which it reads for the first time after
/// [`Platform::TURNS_BEFORE_CLOCK`].
pub(crate) struct SpinBudget {
    ns: u64,
    deadline: Option<u64>,
    /// 0 before the clock was read.
    ends: u64,
    turns: u32,
}

impl SpinBudget {
    /// From about now on `ns` long, but not beyond the `deadline`.
    pub(crate) fn new<P: Platform>(ns: u64, deadline: Option<u64>) -> Self {
        let mut budget = SpinBudget { ns, deadline, ends: 0, turns: 0 };
        if P::TURNS_BEFORE_CLOCK == 0 {
            budget.begin::<P>();
        }
        budget
    }

    fn begin<P: Platform>(&mut self) {
        let ends = P::now().saturating_add(self.ns);
        self.ends = self.deadline.map_or(ends, |deadline| deadline.min(ends));
    }

    /// One turn: waits for what was just read to change. False when the budget is spent, noticed up
    /// to 16 turns late.
    #[inline]
    pub(crate) fn relax<P: Platform>(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        if self.ends == 0 {
            P::relax(None);
            if self.turns >= P::TURNS_BEFORE_CLOCK {
                self.begin::<P>();
            }
            return true;
        }
        let known = P::relax(Some(self.ends));
        !(known || self.turns.is_multiple_of(TURNS_PER_CLOCK) && P::now() >= self.ends)
    }
}
