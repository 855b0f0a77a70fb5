//! The lab: workloads, studies and reports behind the `fairlock` command.
//!
//! [`row::Row`] is the meeting point: running a [`plan`] produces rows, and everything
//! that presents (tables, plots, [`claim`] verdicts, the HTML page) is computed from
//! rows and from nothing else.

pub mod claim;
pub mod error;
pub mod example;
pub mod grid;
pub mod locks;
pub mod machine;
pub mod plan;
pub mod report;
pub mod row;
pub mod study;
pub mod units;
pub mod workloads;
pub mod world;
