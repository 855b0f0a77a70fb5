//! What the users of an `AtomicFile` or a `LogFile` may rely on, from one process and on a real disk.
//!
//! With `FAIRLOCK_LONG=1` there are more rounds.
//!
//! `accidents` is about processes that end, and about systems and disks that fail.

mod files;
mod linearizability;
mod log_file;
mod log_reader;
mod log_replication;
#[path = "../../src/long.rs"]
mod long;
mod order_graph;
