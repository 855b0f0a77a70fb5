//! One execution, as it was.

use super::execution::{Decision, Strategy};
use super::schedule::{Choice, Schedule, first, normal, normal_bit};
use super::state::State;

pub(super) struct Replay {
    schedule: Schedule,
    step: usize,
}

impl Replay {
    pub(super) fn new(schedule: Schedule) -> Self {
        Replay { schedule, step: 0 }
    }
}

impl Strategy for Replay {
    /// Beyond the schedule's end whoever runs goes on.
    fn choose(&mut self, decision: &Decision, _state: &State) -> Option<Choice> {
        let &Decision { enabled, previous } = decision;
        let step = self.step;
        self.step += 1;
        let own = || previous.and_then(|at| first(enabled & normal_bit(at)));
        let given = self.schedule.0.get(step).copied();
        given.or_else(own).or_else(|| first(normal(enabled))).or_else(|| first(enabled))
    }

    fn next_run(&mut self) -> bool {
        self.step = 0;
        true
    }
}
