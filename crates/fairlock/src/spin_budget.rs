//! How long a spin may last.

use crate::platform::Platform;

/// The clock is read every this many turns of a spin: reading it takes as long as a PAUSE or
/// two (Linux's rwsem does the same).
const TURNS_PER_CLOCK: u32 = 16;

/// A spin that ends at a moment of the platform's clock.
pub(crate) struct SpinBudget {
    ends: u64,
    turns: u32,
}

impl SpinBudget {
    /// From now on `ns` long, but not beyond the `deadline`.
    pub(crate) fn new<P: Platform>(ns: u64, deadline: Option<u64>) -> Self {
        let ends = P::now().saturating_add(ns);
        SpinBudget { ends: deadline.map_or(ends, |deadline| deadline.min(ends)), turns: 0 }
    }

    /// One turn: waits for what was just read to change. False when the budget is spent, noticed up
    /// to 16 turns late.
    #[inline]
    pub(crate) fn relax<P: Platform>(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        let known = P::relax(Some(self.ends));
        !(known || self.turns.is_multiple_of(TURNS_PER_CLOCK) && P::now() >= self.ends)
    }
}
