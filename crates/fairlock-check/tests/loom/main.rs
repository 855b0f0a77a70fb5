//! Locks and ready lists under Loom, which knows C11's memory model.
//!
//! `cargo test -p fairlock-check --test loom rwlock::` runs those of one lock.

use fairlock::platform;

mod barrier;
mod condvar;
mod free_list;
mod kernel;
mod lines;
mod mutex;
mod patterns;
mod peers;
#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
mod process_shared;
mod range;
mod range_references;
mod ready;
mod reentrant;
mod rwlock;
mod rwsem;
mod slots;
mod spin;
#[cfg(all(target_os = "linux", target_pointer_width = "64", target_env = "gnu"))]
mod stacks;

// Private in `fairlock`, whose source is compiled here again, as `slots` and `barrier` test parts alone.
#[path = "../../../fairlock/src/chunks.rs"]
#[allow(dead_code)] // what locks need beside slots
mod chunks;
#[path = "../../../fairlock/src/line.rs"]
#[allow(dead_code)] // what is tested with the locks
mod line;
#[path = "../../../fairlock/src/spin_budget.rs"]
mod spin_budget;
