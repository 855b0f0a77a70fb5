//! Workloads that show what a lock policy does, and what measures them.
//!
//! * [`world`]: what a workload may do to the machine it runs on.
//! * [`measure`]: recorders, statistics, and how repetitions become a [`row::Row`].

pub mod error;
pub mod measure;
pub mod row;
pub mod world;
