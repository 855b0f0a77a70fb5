//! [`RwSem`]: a reader-writer lock that divides its time between readers and writers.
//!
//! One 64-bit word says who holds the lock and how its queue is served. Uncontended acquisitions
//! and releases are one atomic operation on that word. All other threads wait in one queue of nodes
//! on the waiters' stacks. The queue is one of a pool, and the lock's while a thread waits; a
//! thread that waits has a record of its own. Records and queues come in blocks from the platform,
//! never from the program's allocator. Where the accesses of many threads collide, or one spins
//! already, the others stand in a line (`../line.rs`).
//!
//! From the ground up; each file imports only those before it:
//!
//! | file | what |
//! |---|---|
//! | `word.rs` | the lock word: layout, a name for every condition on it, the table of combinations that never occur |
//! | `wait_queue.rs` | the queue: nodes, two rings, and the list of those to be woken |
//! | `account.rs`, `owner.rs` | what the two sides owe each other, and when the running phase ends; where the last writer ran |
//! | `free_list.rs`, `queue_pool.rs`, `own_queue.rs` | the queues of a process, and how a lock has one while a thread waits |
//! | `reader_bias.rs` | what a lock on top of this one may say of its readers |
//! | `admission.rs` | which thread may enter, and the word after it has |
//! | `lock.rs` | the lock, and everything that is one operation on its word; start here |
//! | `knobs.rs` | the policy's constants in time, and what the account says by them |
//! | `serve.rs` | which thread is served next |
//! | `slow_path.rs` | how a thread waits; what the policies promise, and how |
//! | `raw.rs`, `api.rs`, `unguarded.rs` | the lock with guards, and without; fair unlock, downgrade |
//!
//! # Recursion
//! A thread that holds the lock shared and asks for it shared again deadlocks if a writer queued in
//! between: the writer waits for the first hold, the second for the writer. One that asks for it
//! exclusively waits for itself. Debug builds panic at the second blocking acquisition, for which
//! they name the caller's line and what to do. `try_read` and `try_write` are safe.
//!
//! # Panics while holding
//! Guards release in their destructors, so a panic releases; there is no poisoning.

mod account;
mod admission;
mod api;
mod free_list;
mod knobs;
mod lock;
mod own_queue;
mod owner;
mod queue_pool;
mod raw;
mod reader_bias;
mod serve;
mod slow_path;
mod unguarded;
mod wait_queue;
mod word;

pub use api::{
    ArcRwSemReadGuard, ArcRwSemUpgradableReadGuard, ArcRwSemWriteGuard, MappedRwSemReadGuard,
    MappedRwSemWriteGuard, RwSem, RwSemReadGuard, RwSemUpgradableReadGuard, RwSemWriteGuard,
    events,
};
pub use lock::RawRwSem;
pub use queue_pool::{HasQueuePool, QueuePool};
pub use reader_bias::{ReaderBias, Unbiased};

use crate::platform::Tunable;

/// The constants of this folder that were chosen or found by trial.
pub(crate) const TUNABLES: &[Tunable] = knobs::TUNABLES;
