//! What is recorded while a workload runs, and how repetitions become a row.

mod distribution;
mod kept;
mod recorder;
mod rows;

pub use distribution::Distribution;
pub use kept::Kept;
pub use recorder::{Acquisitions, RoleRecorder, ThreadRecord};
pub use rows::{
    Repetition, RoleRepetition, RowLabel, compact, lock_events, merge_threads, row,
    simulated_counts,
};

/// The role name of threads (or operations) that take the lock shared.
pub const READER: &str = "reader";
/// The role name of threads (or operations) that take the lock exclusively.
pub const WRITER: &str = "writer";
