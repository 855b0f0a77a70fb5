//! Some moments of the storm under every lock, so that the storm itself keeps working: nothing is torn or lost, and
//! nobody waits for ever. How long somebody is passed is left to the long run (CONTRIBUTING.md).

#[path = "../examples/storm/storm/mod.rs"]
#[allow(dead_code)]
mod storm;
mod stress;

use std::process::ExitCode;
use std::time::Duration;

use storm::{Settings, subjects};

#[test]
fn every_lock_withstands_a_short_storm() {
    let settings = Settings {
        duration: Duration::ZERO, // One visit of each.
        visit: Duration::from_millis(60),
        longest_gust: Duration::from_millis(40),
        subjects: subjects::ALL.iter().collect(),
        seed: 1,
        judges: false,
        keeps_going: false,
        hang_after: Duration::from_secs(10),
    };
    assert_eq!(storm::run(&settings), ExitCode::SUCCESS);
}
