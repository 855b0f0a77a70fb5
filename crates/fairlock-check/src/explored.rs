//! Scenarios under the explorer.

use fairlock_sim::explore::{Flaw, Guarded, Program};

use crate::scenario::{Number, Scenario, Subject};

impl<F: Flaw> Number for Guarded<F> {
    fn zero() -> Self {
        Guarded::new_on()
    }
    fn get(&self) -> u32 {
        Guarded::get(self)
    }
    fn add(&self) {
        Guarded::add(self);
    }
}

/// The scenario as the explorer's program, and whose it is. Each thread calls `begin` first.
pub fn program_after<S: Subject>(of: &str, scenario: &Scenario<S>, begin: fn()) -> Program<S> {
    let program = Program::new(format!("{of}: {}", scenario.name), scenario.new);
    let program = scenario.steps.iter().fold(program, |program, &step| {
        program.thread(move |subject: &S| {
            begin();
            step(subject);
        })
    });
    let scenario = scenario.clone();
    program.finally(move |subject| scenario.assert_end(subject))
}

/// The scenario as the explorer's program, and whose it is.
pub fn program<S: Subject>(of: &str, scenario: &Scenario<S>) -> Program<S> {
    program_after(of, scenario, || ())
}
