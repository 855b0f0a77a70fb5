//! `Mutex` on real threads, in the scenarios of which Loom and the explorer see every schedule.
//! Everything at once is in `fairlock/tests/behaviour/mutex.rs`.

use fairlock::lock_api;
use fairlock::mutex::RawMutex;
use fairlock::platform::Os;
use fairlock_check::mutex;
use fairlock_check::scenario::Scenario;
use fairlock_check::threads::{Unprotected, repeat};

#[test]
fn a_few_threads() {
    let mut scenarios: Vec<Scenario<lock_api::Mutex<RawMutex<Os>, Unprotected>>> =
        mutex::two_threads();
    scenarios.extend(mutex::three_threads());
    scenarios.extend([mutex::four(), mutex::eight()]);
    repeat("mutex", scenarios, 100);
}
