//! The lab: workloads that show what a lock policy does, what measures them, and what presents
//! the results behind the `fairlock` command.
//!
//! * [`world`]: what a workload may do to the machine it runs on.
//! * [`locks`]: the registry of locks under test.
//! * [`workloads`]: the workloads themselves, written once against [`world::World`].
//! * [`measure`]: recorders, statistics, and how repetitions become a [`row::Row`].
//! * [`plan`]: runs many cells interleaved and hands out rows.
//! * [`study`], [`grid`], [`claim`]: questions as files: which runs to make, and verdicts.
//! * [`strip`]: what a run on a simulated machine looked like, to be drawn.
//! * [`calibrate`]: measures this machine for the simulator; [`validate`]: how well that predicts.
//! * [`report`], [`machine`], [`units`]: tables, JSON Lines and pages.
//!
//! [`row::Row`] is the meeting point: running a plan produces rows, and everything that presents
//! is computed from rows and from nothing else.

pub mod calibrate;
pub mod claim;
pub mod error;
pub mod example;
pub mod grid;
pub mod locks;
pub mod machine;
pub mod measure;
pub mod plan;
pub mod report;
pub mod row;
pub mod strip;
pub mod study;
pub mod units;
pub mod validate;
pub mod workloads;
pub mod world;

/// Runs the examples of pages that no `cargo doc` sees.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/src/locks/rwsem.md")]
    struct RwSem;
    #[doc = include_str!("../../../docs/src/locks/mutex.md")]
    struct Mutex;
}
