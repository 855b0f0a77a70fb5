//! `ReentrantMutex` in every schedule within stated bounds: one thread at a time is inside, however often.

use fairlock_check::{explored, reentrant};
use fairlock_sim::Explored;
use fairlock_sim::explore::{Cpus, Guarded, Search};

type Nested = reentrant::Nested<Explored, Guarded>;

#[test]
fn two_and_three_threads() {
    for cpus in [Cpus::OneEach, Cpus::One] {
        let two = reentrant::two_threads().into_iter().map(|scenario| (scenario, 3));
        let three = reentrant::three_threads().into_iter().map(|scenario| (scenario, 2));
        for (scenario, preemptions) in two.chain(three) {
            let program = explored::program::<Nested>(&format!("CPUs: {cpus:?}"), &scenario);
            let search = Search::exhaustive().preemptions(preemptions);
            assert!(program.cpus(cpus).assert(&search).complete);
        }
    }
}
