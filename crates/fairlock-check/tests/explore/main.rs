//! Locks and ready lists under the explorer: every schedule within stated bounds, or as many by chance.
//!
//! `cargo test -p fairlock-check --test explore rwlock::` runs those of one lock.

use fairlock::platform;
use fairlock_sim::explore::Quarantine;

mod barrier;
mod channel;
mod condvar;
mod in_time;
mod kernel;
mod lines;
mod linux;
mod mutex;
mod patterns;
mod peers;
mod pooled;
#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
mod process_shared;
mod range;
mod range_in_time;
mod range_moved;
mod range_references;
mod ready;
mod reentrant;
mod rwlock;
mod rwsem;
mod slots;
mod timer;
mod tries;
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

/// So that nobody touches what is gone, and goes unnoticed.
#[global_allocator]
static ALLOCATOR: Quarantine = Quarantine;
