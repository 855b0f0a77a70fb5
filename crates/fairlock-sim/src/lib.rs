//! A simulated machine for Fairlock's locks: the very code that users link, on CPUs that need not
//! exist.
//!
//! * [`timed`]: a machine described by a [`profile`]: sockets, cores, cache lines that take time to
//!   move, run queues, wake-ups. Operations cost time; the same seed gives the same run.
//! * [`explore`]: every atomic operation is a point at which the schedule may turn. Finds the
//!   schedule that breaks a lock, prints it and replays it.
//! * [`tuning`]: other values for the constants of the locks, on the timed machine.
//!
//! Both run simulated threads as coroutines on one real thread and implement
//! [`Platform`](fairlock::platform::Platform) for the locks: [`Sim`] and [`Explored`].

pub mod explore;
mod fiber;
mod platform;
pub mod profile;
pub mod timed;
pub mod tuning;

pub use platform::{Explored, On, Sim};

/// Runs the example of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
