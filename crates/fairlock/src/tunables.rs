//! The constants of the locks that were chosen or found by trial, in one list.
//!
//! On real threads they are constants. The simulated machine can run the same code with other
//! values (`fairlock_sim::tuning`), to see what each is worth. Each stands, with what it trades and
//! where it comes from, in the file that uses it.

use std::sync::LazyLock;

use crate::platform::Tunable;
use crate::{rwlock, rwsem};

/// The constants that a [platform](crate::platform::Platform::tuned) may replace: first those of
/// [`TimeFair`](crate::policy::TimeFair), then those of [`RwLock`](crate::RwLock)'s bias. Real
/// threads use the values that stand here.
///
/// A knob of a policy stands here with the default policy's value. Replaced, it is another one for
/// every policy that uses it: [`Shares`](crate::policy::Shares) where it is not 0, and
/// [`Bias`](crate::policy::Bias), whose `reads` only where they are counted.
///
/// ```
/// let slack = fairlock::tunables().iter().find(|it| it.name() == "slack").unwrap();
/// assert_eq!(slack.value(), 16); // wake-up latencies
/// assert!(slack.bounds().contains(&48));
/// ```
pub fn tunables() -> &'static [Tunable] {
    static ALL: LazyLock<Vec<Tunable>> =
        LazyLock::new(|| [rwsem::TUNABLES, rwlock::TUNABLES].concat());
    &ALL
}
