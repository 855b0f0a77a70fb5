//! Time that passes with every step, threads that are stopped for long, and how all of that is
//! the same again in a replay.
//!
//! Every thread has a CPU of its own. A step takes its thread some nanoseconds, a wake-up some
//! microseconds; a thread that is stopped goes on up to milliseconds later. So each thread that can
//! go on has a *moment* at which it does. A search may choose whose step comes next among the threads
//! whose moments are at most [`SKEW_NS`] after the earliest: near races go either way, and nobody
//! falls behind for longer unless the search stops it, which is a choice of its own.
//!
//! All durations are drawn from a hash of the choices made so far, so a schedule says everything.

use super::schedule::Choice;

/// How far a thread may get ahead of another one that could go on, in ns: some fifty steps.
pub(super) const SKEW_NS: u64 = 2_000;
/// A step's duration: from a hit in a cache near by to a line from another socket.
const STEP_NS: (u64, u64) = (10, 80);
/// From the wake-up to the first step after it; locks expect 8 µs.
const WAKE_NS: (u64, u64) = (2_000, 30_000);
/// For how long a thread gives way.
const NAP_NS: (u64, u64) = (1_000, 20_000);
/// When a run begins: 0 is no moment for locks.
const BEGIN_NS: u64 = 1_000_000;

/// How time passes in a program that is explored [in time](super::Program::in_time).
#[derive(Debug, Clone)]
pub struct Time {
    stops: u32,
    shortest_stop: u64,
    longest_stop: u64,
}

impl Time {
    /// Each thread may be stopped twice, between any two operations, for 100 µs to 10 ms.
    pub fn new() -> Self {
        Time { stops: 2, shortest_stop: 100_000, longest_stop: 10_000_000 }
    }

    /// Each thread may be stopped so many times.
    #[must_use]
    pub fn stops(mut self, most: u32) -> Self {
        self.stops = most;
        self
    }

    /// Stops are so long, in ns; short ones are as frequent as long ones, on a logarithmic scale.
    #[must_use]
    pub fn stopped_for(mut self, ns: std::ops::RangeInclusive<u64>) -> Self {
        (self.shortest_stop, self.longest_stop) = (*ns.start(), *ns.end());
        self
    }

    pub(super) fn most_stops(&self) -> u32 {
        self.stops
    }
}

impl Default for Time {
    fn default() -> Self {
        Self::new()
    }
}

/// The run's clock, and where its durations come from.
#[derive(Debug, Default)]
pub(super) struct Pace {
    hash: u64,
    pub(super) time: Time,
}

impl Pace {
    pub(super) fn begin(&mut self, time: &Time) -> u64 {
        self.hash = 0;
        self.time = time.clone();
        BEGIN_NS
    }

    /// splitmix64.
    fn mix(&mut self, with: u64) -> u64 {
        self.hash = self.hash.wrapping_add(with).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.hash;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.hash = mixed ^ (mixed >> 31);
        self.hash
    }

    pub(super) fn note(&mut self, choice: Choice) {
        self.mix(u64::from(choice.number()) + 1);
    }

    fn between(&mut self, (least, most): (u64, u64)) -> u64 {
        least + (self.mix(0) >> 16) % (most - least + 1)
    }

    pub(super) fn step(&mut self) -> u64 {
        self.between(STEP_NS)
    }

    pub(super) fn wake_up(&mut self) -> u64 {
        self.between(WAKE_NS)
    }

    pub(super) fn nap(&mut self) -> u64 {
        self.between(NAP_NS)
    }

    pub(super) fn stop(&mut self) -> u64 {
        let (least, most) = (self.time.shortest_stop, self.time.longest_stop);
        // Between neighbouring powers of two evenly.
        let doublings = (most / least.max(1)).max(1).ilog2();
        let from = least << self.between((0, u64::from(doublings)));
        self.between((from, (2 * from).min(most).max(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_within_their_bounds_and_of_all_magnitudes() {
        let mut pace = Pace::default();
        pace.begin(&Time::new());
        let stops: Vec<u64> = (0..1_000).map(|_| pace.stop()).collect();
        assert!(stops.iter().all(|stop| (100_000..=10_000_000).contains(stop)));
        assert!(stops.iter().filter(|&&stop| stop < 1_000_000).count() > 200);
        assert!(stops.iter().filter(|&&stop| stop > 1_000_000).count() > 200);
        pace.begin(&Time::new().stopped_for(5_000..=5_000));
        assert_eq!(pace.stop(), 5_000);
    }
}
