//! What the file of a fit says.
//!
//! ```toml
//! title = "Lines between sockets, by S4's table"
//! machine = "ivybridge-ex-8s"
//! seeds = 3
//! seconds = 0.02
//!
//! [[parameter]]
//! name = "machine.line.contended"
//! range = [1, 4]
//!
//! [[target]]                       # a published row
//! name = "4 threads, before"
//! workload = "mix"
//! lock = "kernel-5.1"
//! params = { readers = 2, writers = 2 }
//! metric = "total_ops_per_s"
//! value = 1641000
//!
//! [[measured]]                     # rows that `fairlock bench` or `fairlock validate` wrote
//! rows = "validate.jsonl"
//! metric = "total_ops_per_s"
//! hold_back = 4
//! ```

use std::fs;
use std::path::Path;

use fairlock_report::params::{Params, Value};
use fairlock_report::row::{HERE, Row};
use fairlock_sim::profile::{KEYS, Kind, Sheet};
use serde::Deserialize;

use crate::changes;
use crate::metric::Metric;
use crate::plan::Simulated;
use crate::registry;
use crate::report;

/// What is fitted to what.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// What it is about, in a few words.
    pub title: String,
    /// What it is to find out; may be empty.
    #[serde(default)]
    pub question: String,
    /// The simulated machine of targets that name none.
    pub machine: Option<String>,
    /// Seeds of each cell.
    pub seeds: u32,
    /// Measured seconds of each seed.
    pub seconds: f64,
    /// How to search.
    #[serde(default)]
    pub search: Search,
    /// What may be changed.
    #[serde(rename = "parameter")]
    pub parameters: Vec<Parameter>,
    /// What is wanted.
    #[serde(default, rename = "target")]
    targets: Vec<Target>,
    /// Measured rows of which each is a target.
    #[serde(default)]
    measured: Vec<MeasuredRows>,
}

/// How to search.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Search {
    /// Points of each round.
    pub candidates: u32,
    /// Rounds; the sensitivity is one more.
    pub rounds: u32,
    /// The best so many points span the ranges of the next round.
    pub keep: usize,
    /// Where the chances begin.
    pub seed: u64,
}

impl Default for Search {
    fn default() -> Search {
        Search { candidates: 24, rounds: 4, keep: 5, seed: 1 }
    }
}

/// A parameter that may be changed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// As [`changes`] spells it.
    pub name: String,
    /// The least and the most value that is tried.
    pub range: [f64; 2],
    /// Whether equal factors count for as much as equal differences do otherwise.
    #[serde(default)]
    pub scale: Scale,
    /// The value at first; what the machine or the lock has if it is not there.
    pub start: Option<f64>,
}

/// What counts as equally far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Equal differences.
    #[default]
    Linear,
    /// Equal factors.
    Log,
}

/// What a figure should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aim {
    /// This.
    Value(f64),
    /// Not less.
    AtLeast(f64),
    /// Not more.
    AtMost(f64),
}

impl Aim {
    /// The number.
    pub fn value(self) -> f64 {
        let (Aim::Value(value) | Aim::AtLeast(value) | Aim::AtMost(value)) = self;
        value
    }
}

/// A figure that is known.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawTarget")]
pub struct Target {
    /// What it is called.
    pub name: String,
    /// The simulated machine.
    pub machine: String,
    /// The workload.
    pub workload: String,
    /// The lock.
    pub lock: String,
    /// The workload's parameters.
    pub params: Params,
    /// The figure.
    pub metric: Metric,
    /// What it should be.
    pub aim: Aim,
    /// How much it counts, beside 1 of the others.
    pub weight: f64,
    /// Whether nothing is chosen by it.
    pub held_back: bool,
    /// Measured seconds of each seed, if not the fit's.
    pub seconds: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTarget {
    name: String,
    #[serde(default)]
    machine: String,
    workload: String,
    lock: String,
    #[serde(default, deserialize_with = "registry::read_params")]
    params: Params,
    metric: Metric,
    value: Option<f64>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    #[serde(default = "one")]
    weight: f64,
    #[serde(default)]
    held_back: bool,
    seconds: Option<f64>,
}

fn one() -> f64 {
    1.0
}

impl TryFrom<RawTarget> for Target {
    type Error = String;

    fn try_from(raw: RawTarget) -> Result<Target, String> {
        let aims = [
            raw.value.map(Aim::Value),
            raw.at_least.map(Aim::AtLeast),
            raw.at_most.map(Aim::AtMost),
        ];
        let mut aims = aims.into_iter().flatten();
        let (Some(aim), None) = (aims.next(), aims.next()) else {
            return Err(format!("target \"{}\" says one of value, at_least, at_most", raw.name));
        };
        if !(aim.value() > 0.0 && aim.value().is_finite()) {
            return Err(format!(
                "target \"{}\" wants {}; give a number above 0",
                raw.name,
                aim.value()
            ));
        }
        if !(raw.weight > 0.0 && raw.weight <= MOST_WEIGHT) {
            return Err(format!(
                "target \"{}\" has the weight {}; give one above 0, at most {MOST_WEIGHT}",
                raw.name, raw.weight
            ));
        }
        let RawTarget { name, machine, workload, lock, params, metric, weight, .. } = raw;
        let (held_back, seconds) = (raw.held_back, raw.seconds);
        Ok(Target {
            name,
            machine,
            workload,
            lock,
            params,
            metric,
            aim,
            weight,
            held_back,
            seconds,
        })
    }
}

/// Measured rows.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasuredRows {
    /// Their file, seen from the fit's.
    rows: String,
    /// Only those of this workload.
    workload: Option<String>,
    /// Only those of these locks.
    locks: Option<Vec<String>>,
    /// The figure.
    metric: Metric,
    /// The simulated machine that is to give them.
    machine: Option<String>,
    /// Every so many-th is held back; none with 0.
    #[serde(default)]
    hold_back: usize,
}

/// Beside heavier targets the others do not count.
const MOST_WEIGHT: f64 = 1e6;
/// A longer file is no fit.
const LONGEST: u64 = 1 << 20;

impl Fit {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong in it, with its line where that is known.
    pub fn read(path: &Path) -> Result<Fit, String> {
        let shown = path.display();
        let cannot =
            |error: &dyn std::fmt::Display| format!("cannot read the fit {shown}: {error}");
        let meta = fs::metadata(path).map_err(|error| cannot(&error))?;
        if !meta.is_file() || meta.len() > LONGEST {
            return Err(cannot(&"it is no file of up to 1 MiB"));
        }
        let text = fs::read_to_string(path).map_err(|error| cannot(&error))?;
        let parsed: Result<Fit, toml::de::Error> = toml::from_str(&text);
        let mut fit = parsed.map_err(|error| {
            let line = error
                .span()
                .and_then(|span| Some(text.get(..span.start)?.matches('\n').count() + 1));
            let line = line.map_or_else(String::new, |line| format!(", line {line}"));
            format!("{shown}{line}: {}", error.message())
        })?;
        fit.settle(path.parent().unwrap_or(Path::new(".")))
            .map_err(|error| format!("{shown}: {error}"))?;
        Ok(fit)
    }

    /// What is wanted, in the order of the file, measured rows last.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    fn settle(&mut self, folder: &Path) -> Result<(), String> {
        for measured in std::mem::take(&mut self.measured) {
            let rows = measured.targets(folder)?;
            self.targets.extend(rows);
        }
        for target in &mut self.targets {
            if target.machine.is_empty() {
                let machine = self.machine.as_ref();
                target.machine = machine.cloned().ok_or_else(|| {
                    format!(
                        "target \"{}\" names no machine, and neither does the file",
                        target.name
                    )
                })?;
            }
            target.params = registry::canonical(&target.workload, &target.params)?;
            registry::check_lock(&target.workload, &target.lock, true)?;
        }
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        if self.parameters.is_empty() {
            return Err("no [[parameter]]: nothing may be changed".to_owned());
        }
        if self.targets.iter().all(|target| target.held_back) {
            return Err("no [[target]] to fit to, or all are held back".to_owned());
        }
        for parameter in &self.parameters {
            let Parameter { name, range: [least, most], scale, .. } = parameter;
            if !changes::is_change(name) {
                return Err(format!(
                    "parameter {name}: only what a simulated machine or a lock has can be fitted: machine.… or tune.…"
                ));
            }
            let positive = *scale == Scale::Linear || *least > 0.0;
            if !(least < most && least.is_finite() && most.is_finite() && positive) {
                return Err(format!(
                    "parameter {name}: range = [{least}, {most}]; give the least value, then the most{}",
                    if positive { "" } else { ", above 0 as the scale is \"log\"" }
                ));
            }
        }
        let names: Vec<&String> = self.parameters.iter().map(|it| &it.name).collect();
        if let Some(twice) = names.iter().enumerate().find(|(at, it)| names[..*at].contains(it)) {
            return Err(format!("parameter {} stands there twice", twice.1));
        }
        let Search { candidates, rounds, keep, .. } = self.search;
        if !(2..=1000).contains(&candidates) || !(1..=50).contains(&rounds) || keep < 2 {
            return Err(format!(
                "[search] has candidates = {candidates}, rounds = {rounds}, keep = {keep}; valid: 2 to 1000, 1 to 50, \
                 at least 2"
            ));
        }
        if keep > candidates as usize {
            return Err(format!("[search] keeps {keep} of {candidates} candidates; keep fewer"));
        }
        self.parameters.iter().try_for_each(|parameter| self.check_parameter(parameter))?;
        if self.seeds == 0 {
            return Err("seeds = 0; give at least 1".to_owned());
        }
        Ok(())
    }
}

impl Fit {
    /// A parameter must be there, and all of its range possible.
    fn check_parameter(&self, parameter: &Parameter) -> Result<(), String> {
        let Parameter { name, range, start, .. } = parameter;
        if let Some(start) = start.filter(|start| !(range[0]..=range[1]).contains(start)) {
            let [least, most] = range;
            return Err(format!(
                "parameter {name}: start = {start} is not in its range, {least} to {most}"
            ));
        }
        for value in range {
            let changed = [(name.clone(), Value::Number(parameter.settled(*value)))].into();
            for target in &self.targets {
                let sheet = Sheet::find(&target.machine).map_err(|error| error.to_string())?;
                Simulated::changed(&sheet, &changed, 1).map_err(|error| {
                    format!("parameter {name}, at {value} of its range: {error}")
                })?;
            }
        }
        Ok(())
    }
}

impl MeasuredRows {
    fn targets(&self, folder: &Path) -> Result<Vec<Target>, String> {
        let path = folder.join(&self.rows);
        // A pipe or a device would be read for ever.
        if !fs::metadata(&path).is_ok_and(|it| it.is_file()) {
            return Err(format!("rows = \"{}\": there is no such file", path.display()));
        }
        let recording = report::read(&path)?;
        let is_meant = |row: &&Row| {
            row.machine == HERE
                && self.workload.as_ref().is_none_or(|it| *it == row.workload)
                && self.locks.as_ref().is_none_or(|it| it.contains(&row.lock))
                && registry::check_lock(&row.workload, &row.lock, true).is_ok()
        };
        let rows = recording.rows.iter().filter(is_meant);
        let mut targets = Vec::new();
        for (place, row) in (1..).zip(rows) {
            let Some(workload) = registry::workload(row) else { continue };
            let Some(figure) = self.metric.figure(row).filter(|it| it.median > 0.0) else {
                continue;
            };
            targets.push(Target {
                name: format!("{} · {}", row.lock, workload.describe()),
                machine: self.machine.clone().unwrap_or_default(),
                workload: row.workload.clone(),
                lock: row.lock.clone(),
                params: workload.fields().clone(),
                metric: self.metric.clone(),
                aim: Aim::Value(figure.median),
                weight: 1.0,
                held_back: self.hold_back > 0 && place % self.hold_back == 0,
                seconds: None,
            });
        }
        match targets.is_empty() {
            true => Err(format!(
                "{} has no row of real threads that could be simulated and has {}",
                path.display(),
                self.metric
            )),
            false => Ok(targets),
        }
    }
}

impl Parameter {
    /// Whether it has whole values only.
    pub fn counts(&self) -> bool {
        let key = self.name.strip_prefix(changes::MACHINE);
        let is_count = |key: &str| {
            KEYS.iter().any(|known| known.name == key && matches!(known.kind, Kind::Count(..)))
        };
        key.map_or(self.name.starts_with(changes::TUNE), is_count)
    }

    /// A value as it is tried: within the range, whole where the parameter counts something, else with four digits.
    pub fn settled(&self, value: f64) -> f64 {
        let [least, most] = self.range;
        let within = value.clamp(least, most);
        if self.counts() {
            return within.round();
        }
        format!("{within:.3e}").parse::<f64>().unwrap_or(within).clamp(least, most)
    }
}
