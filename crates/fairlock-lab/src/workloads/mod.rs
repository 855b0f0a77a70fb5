//! Stand-in for the engine's workloads.
#![allow(missing_docs)]

pub mod dio;
pub mod mix;
