//! Locks for unmodified programs, and what is told about them afterwards.
//!
//! * [`symbols`]: names for addresses.
//! * [`diagnosis`]: what the facts mean, and what to try.
//! * [`report`]: the facts, for a terminal, as JSON Lines, and as a page.

pub mod diagnosis;
#[cfg(test)]
mod example;
pub mod report;
pub mod symbols;
