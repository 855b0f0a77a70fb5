//! Executions at random, by seed: fast, and complete about nothing.

use super::execution::{Decision, Strategy};
use super::schedule::{Choice, each, normal, stops};
use super::state::State;

/// xorshift64*, see Vigna (2016): small and good enough to pick steps.
#[derive(Debug, Clone)]
pub(super) struct Generator(u64);

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        // splitmix64 of the seed, so that neighbours differ and none is zero.
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Generator((mixed ^ (mixed >> 31)).max(1))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }

    pub(super) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    /// One of the choices; at least one is given.
    pub(super) fn among(&mut self, choices: u64) -> Option<Choice> {
        let nth = self.below(u64::from(choices.count_ones()));
        each(choices).nth(nth as usize)
    }
}

/// A wait ends early, or the clock jumps, in one of so many steps in which it could.
pub(super) const EARLY_CHANCES: u64 = 8;

/// In one run threads are stopped in one of so many steps: few runs are alike in length, and what
/// goes wrong may need one stop or many.
const STOP_CHANCES: [u64; 5] = [16, 64, 256, 1024, u64::MAX];

pub(super) struct Random {
    generator: Generator,
    in_time: bool,
    stop_chances: u64,
}

impl Random {
    pub(super) fn new(seed: u64, in_time: bool) -> Self {
        Random { generator: Generator::new(seed), in_time, stop_chances: u64::MAX }
    }
}

impl Strategy for Random {
    fn choose(&mut self, decision: &Decision, _state: &State) -> Option<Choice> {
        let usual = normal(decision.enabled);
        let stops = stops(decision.enabled);
        if stops != 0 && self.generator.one_in(self.stop_chances) {
            return self.generator.among(stops);
        }
        let early = decision.enabled & !usual & !stops;
        let odd = usual == 0 || (early != 0 && self.generator.one_in(EARLY_CHANCES));
        self.generator.among(if odd { early } else { usual })
    }

    fn next_run(&mut self) -> bool {
        if self.in_time {
            let nth = self.generator.below(STOP_CHANCES.len() as u64);
            self.stop_chances = STOP_CHANCES[nth as usize];
        }
        true
    }
}
