//! Probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi and Nagarakatte, 2010):
//! threads with random priorities, of which the highest that can go on runs; at a few random
//! steps the running one falls below all others. A bug that needs *d* orderings is found with
//! probability at least 1 / (n k^(d-1)) in each execution of n threads and k steps.

use super::execution::{Decision, Strategy};
use super::random::{EARLY_CHANCES, Generator};
use super::schedule::{ACTORS, Choice, each, normal, stops};
use super::state::State;

/// So many threads are stopped in a run, where time passes.
const MOST_STOPS: usize = 4;

pub(super) struct Pct {
    generator: Generator,
    /// Steps at which the running thread falls, one fewer than the depth of the bugs looked for.
    changes: Vec<usize>,
    /// Steps before which the thread that would run is stopped, where that can be.
    stops: Vec<usize>,
    priorities: [u64; ACTORS],
    lowest: u64,
    step: usize,
    /// The longest run so far.
    longest: usize,
}

impl Pct {
    pub(super) fn new(seed: u64, depth: u32, in_time: bool) -> Self {
        Pct {
            generator: Generator::new(seed),
            changes: vec![0; depth.saturating_sub(1) as usize],
            stops: vec![0; if in_time { MOST_STOPS } else { 0 }],
            priorities: [0; ACTORS],
            lowest: 0,
            step: 0,
            longest: 1,
        }
    }
}

impl Strategy for Pct {
    fn choose(&mut self, decision: &Decision, _state: &State) -> Option<Choice> {
        self.step += 1;
        let usual = normal(decision.enabled);
        let stops = stops(decision.enabled);
        let early = decision.enabled & !usual & !stops;
        if usual == 0 || (early != 0 && self.generator.one_in(EARLY_CHANCES)) {
            return self.generator.among(early);
        }
        let choice = each(usual).max_by_key(|choice| self.priorities[choice.actor()])?;
        if self.stops.contains(&self.step) && stops & Choice::stop(choice.actor()).bit() != 0 {
            return Some(Choice::stop(choice.actor()));
        }
        if self.changes.contains(&self.step) {
            self.lowest -= 1;
            self.priorities[choice.actor()] = self.lowest;
        }
        Some(choice)
    }

    fn next_run(&mut self) -> bool {
        self.longest = self.longest.max(self.step);
        self.step = 0;
        self.lowest = 1 << 32;
        for priority in &mut self.priorities {
            *priority = (1 << 33) + self.generator.below(1 << 32);
        }
        for change in &mut self.changes {
            *change = 1 + self.generator.below(self.longest as u64) as usize;
        }
        for stop in &mut self.stops {
            *stop = 1 + self.generator.below(self.longest as u64) as usize;
        }
        true
    }
}
