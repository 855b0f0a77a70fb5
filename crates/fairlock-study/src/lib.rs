//! Benches, studies and sweeps: what is run, what is claimed about it, and what presents it. What runs is
//! `fairlock-lab`'s, the `fairlock` command is `fairlock-cli`'s.
//!
//! * [`plan`]: runs many cells interleaved and hands out rows.
//! * [`study`]: questions as files: which runs to make, and verdicts ([`study::claim`]).
//! * [`study::summary`]: what they say about each published system, in a few lines.
//! * [`sweep`]: a grid that outgrows one machine; [`fit`]: parameters that fit what was measured.
//! * [`timeline`]: how a run on a simulated machine began, to be drawn.
//! * [`validate`]: how well a simulated machine predicts the one that it describes.
//! * [`harness`]: from options to a finished run; [`own`]: the same for locks and sections of a program of your own.
//! * [`report`]: tables and pages.
//!
//! [`Row`] is the meeting point: running a plan produces rows, and everything that presents is computed from rows and
//! from nothing else. Rows and recordings, and the parts of pages, are `fairlock-report`'s.
//!
//! [`Row`]: fairlock_report::row::Row

pub mod changes;
pub mod example;
pub mod fit;
pub mod harness;
pub mod limit;
pub mod metric;
pub mod own;
pub mod paired;
pub mod plan;
pub mod registry;
pub mod report;
pub mod study;
pub mod sweep;
pub mod timeline;
pub mod validate;

/// Runs the example of the book's page.
#[cfg(doctest)]
#[doc = include_str!("../own.md")]
struct OwnPage;

/// Runs the example of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
