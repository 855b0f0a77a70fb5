//! The lab: workloads that show what a lock policy does, what measures them, and what presents
//! the results behind the `fairlock` command.
//!
//! * [`world`]: what a workload may do to the machine it runs on.
//! * [`locks`]: the registry of locks under test; [`former_names`]: what earlier versions called some.
//! * [`workloads`]: the workloads themselves, written once against [`world::World`].
//! * [`measure`]: recorders, statistics, and how repetitions become a [`row::Row`].
//! * [`plan`]: runs many cells interleaved and hands out rows.
//! * [`study`], [`grid`], [`claim`]: questions as files: which runs to make, and verdicts.
//! * [`summary`]: what they say about each published system, in a few lines.
//! * [`timeline`]: how a run on a simulated machine began, to be drawn.
//! * [`calibrate`]: measures this machine for the simulator; [`validate`]: how well that predicts.
//! * [`busy`]: whether other programs disturb what is measured.
//! * [`dropin`]: unmodified programs under the locks of this project: who starved, and what to do.
//! * [`report`], [`machine`], [`units`]: tables, JSON Lines and pages; [`screen`]: what fits a terminal.
//!
//! [`row::Row`] is the meeting point: running a plan produces rows, and everything that presents
//! is computed from rows and from nothing else.

pub mod busy;
pub mod calibrate;
pub mod dropin;
pub mod error;
pub mod example;
pub mod former_names;
pub mod harness;
pub mod locks;
pub mod machine;
pub mod measure;
pub mod metric;
pub mod own;
pub mod params;
pub mod plan;
pub mod pollers;
pub mod printable;
pub mod random;
pub mod registry;
pub mod report;
pub mod row;
pub mod screen;
pub mod study;
pub mod timeline;
pub mod units;
pub mod validate;
pub mod workload;
pub mod workloads;
pub mod world;

/// Runs the example of the book's page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/measure/own.md")]
struct OwnPage;
