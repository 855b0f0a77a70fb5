//! The lab: workloads that show what a lock policy does, what measures them, and what presents
//! the results. The `fairlock` command is `fairlock-cli`'s.
//!
//! * [`world`]: what a workload may do to the machine it runs on.
//! * [`locks`]: the registry of locks under test.
//! * [`workloads`]: the workloads themselves, written once against [`world::World`].
//! * [`measure`]: recorders, and how repetitions become a [`Row`].
//! * [`plan`]: runs many cells interleaved and hands out rows.
//! * [`study`]: questions as files: which runs to make, and verdicts ([`study::claim`]).
//! * [`study::summary`]: what they say about each published system, in a few lines.
//! * [`timeline`]: how a run on a simulated machine began, to be drawn.
//! * [`calibrate`]: measures this machine for the simulator; [`validate`]: how well that predicts.
//! * [`harness`]: from options to a finished run.
//! * [`report`]: tables and pages; [`machine`]: the one that this runs on.
//!
//! [`Row`] is the meeting point: running a plan produces rows, and everything that presents is computed from rows and
//! from nothing else. Rows and recordings, and the parts of pages, are `fairlock-report`'s.
//!
//! [`Row`]: fairlock_report::row::Row

pub mod calibrate;
pub mod changes;
pub mod error;
pub mod example;
pub mod fit;
pub mod harness;
pub mod limit;
pub mod locks;
pub mod machine;
pub mod measure;
pub mod metric;
pub mod own;
pub mod paired;
pub mod plan;
pub mod pollers;
pub mod registry;
pub mod report;
pub mod study;
pub mod sweep;
pub mod timeline;
pub mod validate;
pub mod workload;
pub mod workloads;
pub mod world;

/// Runs the example of the book's page.
#[cfg(doctest)]
#[doc = include_str!("../own.md")]
struct OwnPage;

/// Runs the example of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
