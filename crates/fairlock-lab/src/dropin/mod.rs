//! Locks for unmodified programs, and what is told about them afterwards.
//!
//! * [`symbols`]: names for addresses.

pub mod symbols;
