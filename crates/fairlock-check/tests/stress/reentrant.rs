//! `ReentrantMutex` on real threads.

use fairlock::platform::Os;
use fairlock_check::reentrant::{self, Nested};
use fairlock_check::scenario::Scenario;
use fairlock_check::threads::{Unprotected, repeat};

#[test]
fn a_few_threads() {
    let mut scenarios: Vec<Scenario<Nested<Os, Unprotected>>> = reentrant::two_threads();
    scenarios.extend(reentrant::three_threads());
    repeat("reentrant", scenarios, 100);
}
