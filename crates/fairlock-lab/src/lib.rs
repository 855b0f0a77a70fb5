//!
//! * [`world`]: what a workload may do to the machine it runs on.

pub mod error;
pub mod row;
pub mod world;
