//! Workloads by name: what study files, rows and pages know of them.
//!
//! A row may be of a workload that this version does not have: then its parameters are shown as they are.

use std::collections::BTreeMap;

use fairlock_lab::workload::{self, AnyWorkload};
use fairlock_lab::workloads;
use fairlock_report::params::{self, Params, Value};
use fairlock_report::row::Row;
use serde::{Deserialize, Deserializer};

use crate::changes;

/// Parameters in words, threads first: the title of a group of rows.
pub fn describe(workload: &str, params: &Params) -> String {
    let (own, changed) = changes::split(params);
    let parts = [workload::describe(workloads::find(workload), &own)].into_iter();
    let parts = parts.chain(changes::describe(&changed));
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
}

/// One parameter in words: `reads of 64 KiB`. None for one that needs none.
pub fn describe_param(workload: &str, name: &str, value: &Value) -> Option<String> {
    match (name, value.number()) {
        ("threads" | "readers" | "writers", Some(_)) => {
            Some(workload::describe_threads(&[(name.to_owned(), value.clone())].into()))
        }
        _ if changes::is_change(name) => changes::describe_one(name, value),
        _ => workload::describe_one(workloads::find(workload), name, value),
    }
}

/// What is compared under the workload: the word for its row's `lock`.
pub fn subject(workload: &str) -> &'static str {
    workloads::find(workload).map_or("lock", |entry| entry.subjects.word)
}

/// What `all` means as the locks of a workload.
pub fn all_locks(workload: &str, simulated: bool) -> Vec<&'static str> {
    workloads::find(workload).map_or_else(Vec::new, |entry| (entry.subjects.all)(simulated))
}

/// Whether a workload runs under a lock of this name.
///
/// # Errors
/// What is wrong, with the valid choices.
pub fn check_lock(workload: &str, lock: &str, simulated: bool) -> Result<(), String> {
    let entry = workloads::named(workload)?;
    (entry.subjects.check)(lock, simulated).map_err(|error| error.to_string())
}

/// Some parameters of a workload as its rows have them.
///
/// # Errors
/// An unknown workload or parameter, with the valid ones; a value that it cannot have.
pub fn canonical(workload: &str, some: &Params) -> Result<Params, String> {
    let (own, mut changed) = changes::split(some);
    changed.extend(workloads::named(workload)?.canonical(&own)?);
    Ok(changed)
}

/// A parameter of a row. Thread counts follow from the roles where the row does not list them.
pub fn param(row: &Row, name: &str) -> Option<Value> {
    params::find(&row.params, name, |role| Some(row.roles.get(role)?.threads.into()))
}

/// A parameter of a row, as a number.
pub fn number(row: &Row, name: &str) -> Option<f64> {
    param(row, name).and_then(|value| value.number())
}

/// Whether the row is of this workload and lock and has all these parameters, which are [`canonical`].
pub fn matches(row: &Row, workload: &str, lock: &str, params: &Params) -> bool {
    row.workload == workload && row.lock == lock && has_canonical(row, params)
}

/// Whether the row has all these parameters, as far as they make a difference to it.
pub fn has_params(row: &Row, params: &Params) -> bool {
    match canonical(&row.workload, params) {
        Ok(params) => has_canonical(row, &params),
        // A workload that this version does not know.
        Err(_) => has_canonical(row, params),
    }
}

fn has_canonical(row: &Row, params: &Params) -> bool {
    params.iter().all(|(name, value)| {
        params::is_idle(name, |role| number(row, role)) || param(row, name).as_ref() == Some(value)
    })
}

/// A row's parameters from a file of any version, as this version would write them.
pub fn current(workload: &str, mut params: Params) -> Params {
    let Some((known, workload)) = parsed(workload, &params) else { return params };
    params.retain(|name, _| !known.contains_key(name));
    params.extend(workload.fields().clone());
    params
}

/// What a row was measured with; none of a workload that this version does not know.
pub fn workload(row: &Row) -> Option<AnyWorkload> {
    parsed(&row.workload, &row.params).map(|(_, workload)| workload)
}

/// The workload of these parameters, and those of them that it has.
fn parsed(workload: &str, params: &Params) -> Option<(Params, AnyWorkload)> {
    let entry = workloads::find(workload)?;
    let known = workload::known(entry, params);
    let workload = entry.parse(&known).ok()?;
    Some((known, workload))
}

/// Reads a table of parameters.
pub(crate) fn read_params<'de, D: Deserializer<'de>>(from: D) -> Result<Params, D::Error> {
    BTreeMap::<String, Value>::deserialize(from)
}
