//! The doctor: what a running system waits for, kernel and programs, and which disease that is.
//! `fairlock doctor` is made of this.
//!
//! | | |
//! |---|---|
//! | [`recorded`] | what is recorded of a system, as plain values |
//! | [`found`] | what is said about it: locks, waits, diagnoses |
//! | [`report`] | all that, for a terminal, as JSON Lines, as a page, and as a timeline |
//!
//! A recording comes from this machine's kernel, from a file, or from what `perf script` printed. Everything that is said
//! is computed from a recording and from nothing else, so a production machine only needs to record.
//!
//! Not for: programs under the drop-in, which counts more than a kernel can see; that is the rest of this crate.

pub mod found;
pub mod recorded;
pub mod report;
mod stub;

pub use stub::{capture, examine, file};
