//! Sweeps on real engines, and what is killed while they run: whoever ran which task, the rows are the same.
//!
//! An engine that is not installed here has its tests skipped with a line on standard error. None of them waits for a
//! time to pass; what is killed is stopped first, so that it is known to be in the middle of a task.

mod hyperqueue;
mod parallel;
mod slurm;
mod sweep;
mod unreachable;
