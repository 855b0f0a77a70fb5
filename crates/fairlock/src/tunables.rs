//! The constants of the locks that were chosen or found by trial, in one list.
//!
//! On real threads they are constants. The simulated machine can run the same code with other values
//! (`fairlock_sim::tuning`), to see what each is worth. Each stands, with what it trades and where it comes from, in the file
//! that uses it.

use std::sync::LazyLock;

use crate::platform::Tunable;
use crate::{rwlock, rwsem};

/// The constants that a [platform](crate::platform::Platform::tuned) may replace: first those of phases, as
/// [`TimeFair`](crate::policy::TimeFair) has them, then those of [`RwLock`](crate::RwLock)'s bias. Real threads use the values
/// that stand here.
///
/// A knob of a policy stands here with the default policy's value. Replaced, it is another one for every policy that
/// uses it: [`Phases`](crate::policy::Phases) unless nobody is ever passed, and [`Bias`](crate::policy::Bias), whose `reads`
/// only where they are counted.
///
/// ```
/// let shortest = fairlock::tunables().iter().find(|it| it.name() == "shortest_budget").unwrap();
/// assert_eq!(shortest.value(), 48); // wake-up latencies
/// assert!(shortest.bounds().contains(&16));
/// ```
pub fn tunables() -> &'static [Tunable] {
    static ALL: LazyLock<Vec<Tunable>> =
        LazyLock::new(|| [&rwsem::tunables(), rwlock::TUNABLES].concat());
    &ALL
}
