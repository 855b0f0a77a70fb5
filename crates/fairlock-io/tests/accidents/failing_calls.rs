//! A log on a system whose calls fail now and then: nothing acknowledged is lost, doubled or changed.
//!
//! `FAIRLOCK_LOG_ROUNDS` says how many processes live and end; `examples/log_faults.rs` is the same for longer.

use std::env;
use std::error::Error;

use crate::faulting;
use crate::long::depth;

#[test]
fn what_was_acknowledged_outlives_failing_system_calls() -> Result<(), Box<dyn Error>> {
    if faulting::is_child() {
        return faulting::live();
    }
    let usual = depth(16, 48);
    let rounds = match env::var("FAIRLOCK_LOG_ROUNDS") {
        Ok(rounds) => rounds.parse().map_err(|_| "FAIRLOCK_LOG_ROUNDS must be a number")?,
        Err(_) => usual,
    };
    let arguments = [
        "failing_calls::what_was_acknowledged_outlives_failing_system_calls",
        "--exact",
        "--nocapture",
    ];
    let place = env!("CARGO_TARGET_TMPDIR").as_ref();
    let Some(figures) = faulting::torment(place, rounds, 0, &arguments)? else {
        return Ok(());
    };
    println!("{figures}");
    // In very few rounds there may be none.
    assert!(figures.faults() > 0 || rounds < usual, "no call has failed");
    Ok(())
}
