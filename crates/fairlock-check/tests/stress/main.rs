//! Locks and ready lists on real threads, everything at once.
//!
//! `cargo test -p fairlock-check --test stress rwlock::` runs those of one lock.

use fairlock::platform;

mod barrier;
mod condvar;
mod kernel;
mod mutex;
#[cfg(all(target_os = "linux", target_env = "gnu", not(fairlock_elsewhere), not(miri)))]
mod originals;
mod peers;
#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
mod policies;
mod process_shared;
mod range;
mod ready;
mod reentrant;
mod rwlock;
mod rwsem;
mod slots;
mod spin;
mod unguarded;

// Private in `fairlock`, whose source is compiled here again, as `slots` and `barrier` test parts alone.
#[path = "../../../fairlock/src/chunks.rs"]
#[allow(dead_code)] // what locks need beside slots
mod chunks;
#[path = "../../../fairlock/src/line.rs"]
#[allow(dead_code)] // what is tested with the locks
mod line;
#[path = "../../../fairlock/src/spin_budget.rs"]
mod spin_budget;
