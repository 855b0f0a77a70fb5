//! How long a spin may last: until a moment of the platform's clock, which is read as rarely as
//! possible.

use crate::platform::Platform;

/// Turns of a spin between two looks at the clock. Reading it takes as long as one or two PAUSEs,
/// so more looks slow the spin down; fewer let it last longer than it may, by this many turns.
/// Linux's rwsem uses the same figure.
const TURNS_PER_CLOCK: u32 = 16;

/// The budget of one spin. It reads the clock for the first time after
/// [`Platform::TURNS_BEFORE_CLOCK`] turns.
pub struct SpinBudget {
    ns: u64,
    /// The clock's end if there is none.
    deadline: u64,
    /// When it ends, on the platform's clock; 0 until the clock is first read.
    ends: u64,
    turns: u32,
}

impl SpinBudget {
    /// A spin of `ns` from about now on, but not beyond the `deadline`.
    pub fn new<P: Platform>(ns: u64, deadline: Option<u64>) -> Self {
        let deadline = deadline.unwrap_or(u64::MAX);
        let mut budget = SpinBudget { ns, deadline, ends: 0, turns: 0 };
        if P::TURNS_BEFORE_CLOCK == 0 {
            budget.begin::<P>();
        }
        budget
    }

    fn begin<P: Platform>(&mut self) {
        let ends = P::now().saturating_add(self.ns);
        // At the earliest 1, as 0 says that it has not begun.
        self.ends = ends.min(self.deadline).max(1);
    }

    /// One turn: waits for what was just read to change. False once the budget is spent, which may
    /// be noticed up to [`TURNS_PER_CLOCK`] turns late.
    #[inline]
    #[allow(clippy::manual_is_multiple_of)] // the function needs Rust 1.87, and tests for a later one include this file
    pub fn relax<P: Platform>(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        if self.ends == 0 {
            P::relax(None);
            if self.turns >= P::TURNS_BEFORE_CLOCK {
                self.begin::<P>();
            }
            return true;
        }
        let known = P::relax(Some(self.ends));
        !(known || self.turns % TURNS_PER_CLOCK == 0 && P::now() >= self.ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;

    #[test]
    fn a_spin_ends_soon_after_its_deadline_also_if_that_is_the_start_of_the_clock() {
        for deadline in [0, 1] {
            let mut budget = SpinBudget::new::<Os>(u64::MAX, Some(deadline));
            let turns = (1..).find(|_| !budget.relax::<Os>());
            assert!(turns.is_some_and(|turns| turns <= 2 * TURNS_PER_CLOCK), "{turns:?} turns");
        }
    }
}
