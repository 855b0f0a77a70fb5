//! What a simulated run changes of its machine and of the locks' constants, as parameters beside the workload's:
//! `machine.line.contended` and `tune.slack`.
//!
//! A study's file writes them among the parameters of a point, a row carries them among its own, and so plots, grids
//! and comparisons can name them like any other.

use fairlock_report::params::{Params, Value};

/// Before the key of a machine's file, as [`fairlock_sim::profile::Sheet::changed`] spells it.
pub const MACHINE: &str = "machine.";
/// Before the name of a constant of the locks, one of [`fairlock::tunables`].
pub const TUNE: &str = "tune.";

/// Whether a parameter is a change.
pub fn is_change(name: &str) -> bool {
    name.starts_with(MACHINE) || name.starts_with(TUNE)
}

/// The workload's own parameters, and the changes.
pub fn split(params: &Params) -> (Params, Params) {
    params.clone().into_iter().partition(|(name, _)| !is_change(name))
}

/// One change in words.
pub fn describe_one(name: &str, value: &Value) -> Option<String> {
    let name = name.strip_prefix(MACHINE).or_else(|| name.strip_prefix(TUNE))?;
    Some(format!("{} {value}", name.replace('_', " ")))
}

/// The changes among these parameters in words; empty if there is none.
pub fn describe(params: &Params) -> Vec<String> {
    params.iter().filter_map(|(name, value)| describe_one(name, value)).collect()
}
