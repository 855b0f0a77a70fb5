//! Locks and ready lists on real threads, everything at once.
//!
//! `cargo test -p fairlock-check --test stress rwlock::` runs those of one lock.

use fairlock::platform;

mod barrier;
mod process_shared;
mod range;
mod ready;
mod rwlock;
mod rwsem;
mod spin;
mod unguarded;

// Private in `fairlock`, whose source is compiled here again, as `barrier` tests a part alone.
#[path = "../../../fairlock/src/spin_budget.rs"]
mod spin_budget;
