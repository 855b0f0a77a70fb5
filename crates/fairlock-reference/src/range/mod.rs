//! Range locks that [`Slotted`](fairlock::range::Slotted), the one under `fairlock::RangeLock`, is measured
//! against. Each goes under the same front: `RangeLock::<Naive>::new_in()`.
//!
//! * [`Naive`]: a mutex over a list of every range, which is what range locks used to be.
//! * [`SharedWord`]: one reader-writer word for everything until the first conflict, which is what range
//!   locks are now where nothing is kept per thread.
//!
//! `list.rs` has the list of both.

mod list;
mod naive;
mod shared_word;

pub use naive::{Naive, NaiveHold, Outer, Under};
pub use shared_word::{SharedWord, SharedWordHold};
