//! Workloads that show what a lock policy does, and what measures them.
//!
//! * [`world`]: what a workload may do to the machine it runs on.
//! * [`locks`]: the registry of locks under test.
//! * [`workloads`]: the workloads themselves, written once against [`world::World`].
//! * [`measure`]: recorders, statistics, and how repetitions become a [`row::Row`].
//! * [`plan`]: runs many cells interleaved and hands out rows.

pub mod error;
pub mod locks;
pub mod measure;
pub mod plan;
pub mod row;
pub mod workloads;
pub mod world;
