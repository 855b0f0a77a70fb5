//! The figures of a row, by name: `total_ops_per_s`, `roles.writer.wait.p99`, `cpu.idle`, `events.phase_woken`.
//!
//! Study files name them, and a name that means nothing is an error when the file is read.

use std::fmt;

use fairlock::events::Event;
use fairlock_lab::measure::{READER, WRITER};
use fairlock_report::former_names;
use fairlock_report::quantity::Unit;
use fairlock_report::row::{CpuShares, Estimate, Latency, RoleStats, Row, SimulatedCounts};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::registry;

/// A figure of a row, or one for each of its roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum Metric {
    /// `total_ops_per_s`: of all roles.
    TotalOps,
    /// `ns_per_op`: of all threads together; with one thread, how long an operation takes.
    NsPerOp,
    /// `coalescing`: additions that one read of a source brought.
    Coalescing,
    /// `voluntary_switches_per_s`, `involuntary_switches_per_operation`: context switches. An operation of a
    /// workload may be a message of several.
    Switches {
        /// Because a thread slept or yielded, else because it was preempted.
        voluntary: bool,
        /// For each operation, else each second.
        per_operation: bool,
    },
    /// `cpu.idle`: a share of the CPUs' time, see [`CpuShares`].
    Cpu(&'static str),
    /// `params.readers`: a parameter.
    Param(String),
    /// `events.NAME`: a lock event, per second.
    Event(&'static str),
    /// `simulated.transfers`: a count of a simulated machine, per operation, see [`SimulatedCounts`].
    Simulated(&'static str),
    /// `roles.writer.jain`, `roles.*.longest_wait`: a figure of one role, or of each.
    Role {
        /// The role; none for each of them.
        role: Option<String>,
        /// The figure.
        figure: RoleFigure,
    },
}

/// A figure of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleFigure {
    /// One that stands in its field.
    Field(&'static str),
    /// `convoy.mean`: how long the queue at a lock was.
    Convoy(&'static str),
    /// `wait.p99`: a time and which part of its distribution.
    Time(&'static str, &'static str),
}

const CPU: [&str; 4] = ["user", "system", "idle", "spinning"];
const FIELDS: [&str; 12] = [
    "ops_per_s",
    "bytes_per_s",
    "thread_min",
    "thread_mean",
    "thread_max",
    "jain",
    "longest_bypass",
    "longest_wait",
    "wait_calls_per_s",
    "inverted",
    "inserting",
    "torn",
];
const TIMES: [&str; 3] = ["wait", "hold", "latency"];
const PARTS: [&str; 5] = ["count", "mean", "p50", "p99", "max"];
const CONVOY_PARTS: [&str; 4] = ["count", "mean", "p99", "max"];

/// All metrics, for somebody who writes a study file: names, or forms of names, and what they mean.
pub fn forms() -> Vec<(String, String)> {
    let of = |name: &str, about: &str| (name.to_owned(), about.to_owned());
    let simulated = SimulatedCounts::default();
    let simulated: Vec<&str> =
        simulated.per_operation().into_iter().map(|(name, _)| name).collect();
    vec![
        of("total_ops_per_s", "operations per second, of all threads together"),
        of("ns_per_op", "time over operations of all threads; with one thread, how long one takes"),
        of("coalescing", "additions that one read of a source brought, on average"),
        of(
            "voluntary_switches_per_s",
            "context switches because a thread slept or yielded; also involuntary_…, and …_per_operation",
        ),
        ("cpu.NAME".to_owned(), format!("share of the CPUs' time: {}", CPU.join(", "))),
        of("params.NAME", "a parameter of the workload, such as params.readers"),
        of(
            "events.NAME",
            "lock events per second, such as events.phase_woken: those that `fairlock bench` prints",
        ),
        (
            "simulated.NAME".to_owned(),
            format!("per operation, on a simulated machine: {}", simulated.join(", ")),
        ),
        (
            "roles.ROLE.NAME".to_owned(),
            format!(
                "a figure of one role (reader, writer, …), or of each (*): {}",
                FIELDS.join(", ")
            ),
        ),
        (
            format!("roles.ROLE.{}.PART", TIMES.join("|")),
            format!("a time in ns of one role, or of each (*): {}", PARTS.join(", ")),
        ),
        (
            "roles.ROLE.convoy.PART".to_owned(),
            format!("threads at the lock whenever one joins them: {}", CONVOY_PARTS.join(", ")),
        ),
        of(
            "roles.ROLE.wait_histogram",
            "for a plot of kind \"histogram\": how many waits took how long; also hold_histogram",
        ),
    ]
}

fn one_of<'a>(names: &[&'a str], name: &str) -> Option<&'a str> {
    names.iter().find(|known| **known == name).copied()
}

impl RoleFigure {
    fn named(path: &[&str]) -> Option<RoleFigure> {
        match *path {
            [field] => one_of(&FIELDS, field).map(RoleFigure::Field),
            ["convoy", part] => one_of(&CONVOY_PARTS, part).map(RoleFigure::Convoy),
            [time, part] => Some(RoleFigure::Time(one_of(&TIMES, time)?, one_of(&PARTS, part)?)),
            _ => None,
        }
    }

    fn of(self, stats: &RoleStats) -> Option<Estimate> {
        match self {
            RoleFigure::Field(field) => field_of(stats, field),
            RoleFigure::Convoy(part) => {
                let convoy = stats.convoy?;
                Some(exactly(match part {
                    "count" => convoy.count as f64,
                    "mean" => convoy.mean,
                    "p99" => convoy.p99 as f64,
                    _ => convoy.max as f64,
                }))
            }
            RoleFigure::Time(time, part) => {
                let latency = match time {
                    "wait" => &stats.wait,
                    "hold" => &stats.hold,
                    _ => &stats.latency,
                };
                part_of(latency, part).map(exactly)
            }
        }
    }
}

fn field_of(stats: &RoleStats, field: &str) -> Option<Estimate> {
    let counted = |count: Option<u64>| count.map(|count| exactly(count as f64));
    match field {
        "ops_per_s" => Some(stats.ops_per_s),
        "bytes_per_s" => stats.bytes_per_s,
        "thread_min" => Some(exactly(stats.thread_min)),
        "thread_mean" => Some(exactly(stats.thread_mean)),
        "thread_max" => Some(exactly(stats.thread_max)),
        "jain" => Some(stats.jain),
        "longest_bypass" => counted(stats.longest_bypass),
        "longest_wait" => (stats.wait.count > 0).then_some(stats.longest_wait),
        "wait_calls_per_s" => stats.wait_calls_per_s,
        "inverted" => counted(stats.inverted),
        "inserting" => stats.inserting.map(exactly),
        "torn" => counted(stats.torn),
        _ => None,
    }
}

fn part_of(latency: &Latency, part: &str) -> Option<f64> {
    match part {
        "count" => Some(latency.count as f64),
        // The zeros of what never happened are no times.
        _ if latency.count == 0 => None,
        "mean" => Some(latency.mean),
        "p50" => Some(latency.p50 as f64),
        "p99" => Some(latency.p99 as f64),
        _ => Some(latency.max as f64),
    }
}

/// An estimate without an interval.
pub fn exactly(value: f64) -> Estimate {
    Estimate { median: value, low: value, high: value }
}

/// A quotient whose interval covers every pair of values from both intervals.
///
/// # Errors
/// If both are 0.
pub fn ratio(numerator: Estimate, denominator: Estimate) -> Result<Estimate, String> {
    if numerator.median == 0.0 && denominator.median == 0.0 {
        return Err("both figures of the ratio are 0".to_owned());
    }
    let divide = |a: f64, b: f64| match (a, b) {
        (0.0, _) => 0.0,
        (_, 0.0) => f64::INFINITY,
        _ => a / b,
    };
    Ok(Estimate {
        median: divide(numerator.median, denominator.median),
        low: divide(numerator.low, denominator.high),
        high: divide(numerator.high, denominator.low),
    })
}

impl Metric {
    fn named(name: &str) -> Option<Metric> {
        let switches = |voluntary, per_operation| Metric::Switches { voluntary, per_operation };
        match name {
            "total_ops_per_s" => return Some(Metric::TotalOps),
            "ns_per_op" => return Some(Metric::NsPerOp),
            "coalescing" => return Some(Metric::Coalescing),
            "voluntary_switches_per_s" => return Some(switches(true, false)),
            "involuntary_switches_per_s" => return Some(switches(false, false)),
            "voluntary_switches_per_operation" => return Some(switches(true, true)),
            "involuntary_switches_per_operation" => return Some(switches(false, true)),
            _ => {}
        }
        let (kind, rest) = name.split_once('.')?;
        match kind {
            "cpu" => one_of(&CPU, rest).map(Metric::Cpu),
            "params" => Some(Metric::Param(former_names::param(rest).to_owned())),
            "events" => {
                let current = former_names::event(rest);
                let event = Event::ALL.iter().find(|event| event.name() == current)?;
                Some(Metric::Event(event.name()))
            }
            "simulated" => {
                let counts = SimulatedCounts::default().per_operation();
                let known = counts.iter().find(|(known, _)| *known == rest)?;
                Some(Metric::Simulated(known.0))
            }
            "roles" => {
                let (role, figure) = rest.split_once('.')?;
                let path: Vec<&str> = figure.split('.').collect();
                let role = (role != "*").then(|| role.to_owned());
                Some(Metric::Role { role, figure: RoleFigure::named(&path)? })
            }
            _ => None,
        }
    }

    /// The figures of a row: one, or one for each role.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn figures(&self, row: &Row) -> Result<Vec<Estimate>, String> {
        let absent = |what: &str| format!("the row of {} has no {what}", row.lock);
        let one = |figure: Option<Estimate>| {
            figure.map(|figure| vec![figure]).ok_or_else(|| absent(&self.to_string()))
        };
        match self {
            Metric::TotalOps => Ok(vec![row.total_ops_per_s]),
            Metric::NsPerOp => Ok(vec![ratio(exactly(1e9), row.total_ops_per_s)?]),
            Metric::Coalescing => {
                let rate = |role: &str| row.roles.get(role).map(|stats| stats.ops_per_s);
                match (rate(WRITER), rate(READER)) {
                    (_, Some(read)) if read.median == 0.0 => Err(absent("reads to divide by")),
                    (Some(added), Some(read)) => Ok(vec![ratio(added, read)?]),
                    _ => Err(absent("coalescing")),
                }
            }
            Metric::Switches { voluntary, per_operation } => {
                let per_s = match voluntary {
                    true => exactly(row.voluntary_switches_per_s),
                    false => exactly(row.involuntary_switches_per_s),
                };
                Ok(vec![if *per_operation { ratio(per_s, row.total_ops_per_s)? } else { per_s }])
            }
            Metric::Cpu(share) => {
                let cpu = row.cpu.as_ref().ok_or_else(|| absent("CPU time"))?;
                one(share_of(cpu, share).map(exactly))
            }
            Metric::Param(name) => one(registry::number(row, name).map(exactly)),
            Metric::Event(name) => {
                let events = row.events.as_ref().ok_or_else(|| absent("lock events"))?;
                one(events.counts.get(*name).map(|count| exactly(*count as f64 / events.seconds)))
            }
            Metric::Simulated(name) => {
                let counts = row.simulated.as_ref().ok_or_else(|| absent("simulated machine"))?;
                let all = counts.per_operation();
                one(all.iter().find(|(known, _)| known == name).map(|(_, count)| exactly(*count)))
            }
            Metric::Role { role, figure } => {
                let is_meant = |name: &&String| role.as_ref().is_none_or(|role| role == *name);
                let meant: Vec<_> = row.roles.iter().filter(|(name, _)| is_meant(name)).collect();
                if meant.is_empty() {
                    return Err(absent(&format!("roles.{}", role.as_deref().unwrap_or("*"))));
                }
                let figures = meant.into_iter().map(|(_, stats)| figure.of(stats));
                figures.collect::<Option<_>>().ok_or_else(|| absent(&self.to_string()))
            }
        }
    }

    /// For each of the [`figures`](Metric::figures), what each repetition came to, with its place among all of them;
    /// empty where only all of them together are known.
    pub fn samples(&self, row: &Row) -> Vec<Vec<(u32, f64)>> {
        let of = |name: &str| -> Vec<(u32, f64)> {
            let values = row.samples.figures.get(name).into_iter().flatten();
            row.samples.order.iter().copied().zip(values.copied()).collect()
        };
        match self {
            Metric::TotalOps => vec![of("total_ops_per_s")],
            Metric::NsPerOp => {
                let totals = of("total_ops_per_s").into_iter();
                vec![totals.map(|(place, rate)| (place, 1e9 / rate)).collect()]
            }
            Metric::Role { role, figure: RoleFigure::Field(field) } => {
                let is_meant = |name: &&String| role.as_ref().is_none_or(|role| role == *name);
                let meant = row.roles.keys().filter(is_meant);
                meant.map(|name| of(&format!("roles.{name}.{field}"))).collect()
            }
            _ => self.figures(row).map_or_else(|_| Vec::new(), |all| vec![Vec::new(); all.len()]),
        }
    }

    /// The figure of a row; none if there is none, or one for each of several roles.
    pub fn figure(&self, row: &Row) -> Option<Estimate> {
        match self.figures(row).ok()?.as_slice() {
            [figure] => Some(*figure),
            _ => None,
        }
    }

    /// A value of it with its unit.
    pub fn format(&self, value: f64) -> String {
        self.unit().words(value)
    }
}

impl Metric {
    /// What its values are, for an axis.
    pub fn unit(&self) -> Unit {
        match self {
            Metric::NsPerOp => Unit::Time,
            Metric::TotalOps | Metric::Event(_) => Unit::PerSecond,
            Metric::Switches { per_operation: false, .. } => Unit::PerSecond,
            Metric::Cpu(_) => Unit::Share,
            Metric::Role { figure, .. } => match figure {
                RoleFigure::Time(_, "count") | RoleFigure::Convoy("count") => Unit::Count,
                RoleFigure::Time(..) | RoleFigure::Field("longest_wait") => Unit::Time,
                RoleFigure::Field("longest_bypass" | "torn" | "inverted") => Unit::Count,
                RoleFigure::Field("bytes_per_s") => Unit::BytesPerSecond,
                RoleFigure::Field("jain" | "inserting") | RoleFigure::Convoy(_) => Unit::Number,
                RoleFigure::Field(_) => Unit::PerSecond,
            },
            _ => Unit::Number,
        }
    }

    /// What it counts, for beside an axis.
    pub fn title(&self) -> String {
        let part_words = |part: &str| match part {
            "p50" => "median".to_owned(),
            "p99" => "99th percentile".to_owned(),
            "max" => "longest".to_owned(),
            part => part.to_owned(),
        };
        match self {
            Metric::TotalOps => "operations".to_owned(),
            Metric::NsPerOp => "time of an operation".to_owned(),
            Metric::Switches { voluntary, per_operation } => {
                let kind = if *voluntary { "voluntary" } else { "involuntary" };
                let per = if *per_operation { " per operation" } else { "" };
                format!("{kind} context switches{per}")
            }
            Metric::Role { role, figure } => {
                let role = role.as_deref().unwrap_or("role");
                match figure {
                    RoleFigure::Field("ops_per_s") => format!("operations of {role}s"),
                    RoleFigure::Field("bytes_per_s") => format!("bytes of {role}s"),
                    RoleFigure::Field(field) => format!("{} of a {role}", field.replace('_', " ")),
                    RoleFigure::Convoy(part) => {
                        format!("threads at the lock, {}", part_words(part))
                    }
                    RoleFigure::Time(what, part) => {
                        format!("{what} of a {role}, {}", part_words(part))
                    }
                }
            }
            other => other.to_string().replace(['_', '.'], " "),
        }
    }
}

fn share_of(cpu: &CpuShares, name: &str) -> Option<f64> {
    cpu.named().into_iter().find(|(known, _)| *known == name).and_then(|(_, share)| share)
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Metric::TotalOps => f.write_str("total_ops_per_s"),
            Metric::NsPerOp => f.write_str("ns_per_op"),
            Metric::Coalescing => f.write_str("coalescing"),
            Metric::Switches { voluntary, per_operation } => {
                let kind = if *voluntary { "voluntary" } else { "involuntary" };
                write!(f, "{kind}_switches_per_{}", if *per_operation { "operation" } else { "s" })
            }
            Metric::Cpu(share) => write!(f, "cpu.{share}"),
            Metric::Param(name) => write!(f, "params.{name}"),
            Metric::Event(name) => write!(f, "events.{name}"),
            Metric::Simulated(name) => write!(f, "simulated.{name}"),
            Metric::Role { role, figure } => {
                write!(f, "roles.{}.", role.as_deref().unwrap_or("*"))?;
                match figure {
                    RoleFigure::Field(field) => f.write_str(field),
                    RoleFigure::Convoy(part) => write!(f, "convoy.{part}"),
                    RoleFigure::Time(time, part) => write!(f, "{time}.{part}"),
                }
            }
        }
    }
}

impl TryFrom<String> for Metric {
    type Error = String;

    fn try_from(name: String) -> Result<Metric, String> {
        Metric::named(&name).ok_or_else(|| {
            format!(
                "unknown metric \"{name}\"; metrics are total_ops_per_s, ns_per_op, coalescing, \
                 voluntary_switches_per_s and the like, cpu.NAME, params.NAME, events.NAME, \
                 simulated.NAME, and roles.ROLE.NAME with one of {}, convoy.PART, {}; \
                 `fairlock list` says what they mean",
                FIELDS.join(", "),
                TIMES.map(|time| format!("{time}.PART")).join(", ")
            )
        })
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Metric, D::Error> {
        Metric::try_from(String::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl From<Metric> for String {
    fn from(metric: Metric) -> String {
        metric.to_string()
    }
}

/// The times of a role, as counts by powers of two: `roles.writer.hold_histogram`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HistogramMetric {
    /// The role.
    pub role: String,
    /// How long it held, else how long it waited.
    pub of_holds: bool,
}

impl HistogramMetric {
    /// The counts of a row, if it has some: see [`RoleStats::wait_histogram`].
    pub fn of<'a>(&self, row: &'a Row) -> Option<&'a [u64]> {
        let stats = row.roles.get(&self.role)?;
        let counts = if self.of_holds { &stats.hold_histogram } else { &stats.wait_histogram };
        (!counts.is_empty()).then_some(counts)
    }
}

impl TryFrom<String> for HistogramMetric {
    type Error = String;

    fn try_from(name: String) -> Result<HistogramMetric, String> {
        let parts: Vec<&str> = name.split('.').collect();
        let of_holds = match parts.as_slice() {
            ["roles", _, "hold_histogram"] => true,
            ["roles", _, "wait_histogram"] => false,
            _ => {
                return Err(format!(
                    "unknown histogram \"{name}\"; give roles.ROLE.wait_histogram or \
                     roles.ROLE.hold_histogram"
                ));
            }
        };
        Ok(HistogramMetric { role: parts[1].to_owned(), of_holds })
    }
}

impl From<HistogramMetric> for String {
    fn from(metric: HistogramMetric) -> String {
        let what = if metric.of_holds { "hold" } else { "wait" };
        format!("roles.{}.{what}_histogram", metric.role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use fairlock_report::row::Convoy;

    fn is_metric(name: &str) -> bool {
        Metric::try_from(name.to_owned()).is_ok()
    }

    fn metric_named(name: &str) -> Metric {
        Metric::try_from(name.to_owned()).unwrap()
    }

    #[test]
    fn names_are_read_and_written_alike() {
        for name in [
            "total_ops_per_s",
            "ns_per_op",
            "coalescing",
            "voluntary_switches_per_s",
            "involuntary_switches_per_operation",
            "cpu.idle",
            "params.readers",
            "events.rwsem_sleep_writer",
            "simulated.transfers",
            "roles.*.longest_wait",
            "roles.writer.wait.p99",
            "roles.writer.convoy.max",
        ] {
            let metric = metric_named(name);
            assert_eq!(metric.to_string(), name);
            assert!(!metric.title().contains(['_', '.']), "{name}: {}", metric.title());
        }
        for name in ["", "total", "cpu", "events.nothing", "roles.writer", "roles.writer.wait.p51"]
        {
            assert!(!is_metric(name), "{name}");
        }
    }

    #[test]
    fn switches_of_an_operation_shares_of_the_cpus_and_convoys_are_figures() {
        let mut row = example::row("mix", "rwsem", &[("readers", 1.0), ("writers", 1.0)]);
        row.total_ops_per_s = exactly(200.0);
        (row.voluntary_switches_per_s, row.involuntary_switches_per_s) = (290.0, 20.0);
        row.cpu = Some(CpuShares { user: 0.5, system: 0.125, idle: 0.375, spinning: None });
        let convoy = Convoy { count: 7, mean: 2.5, p99: 4, max: 5 };
        row.roles.get_mut(WRITER).unwrap().convoy = Some(convoy);
        for (metric, value, words) in [
            ("voluntary_switches_per_operation", 1.45, "1.45"),
            ("involuntary_switches_per_operation", 0.1, "0.10"),
            ("cpu.system", 0.125, "12.5 %"),
            ("cpu.idle", 0.375, "37.5 %"),
            ("roles.writer.convoy.mean", 2.5, "2.50"),
            ("roles.writer.convoy.max", 5.0, "5.00"),
        ] {
            assert!(is_metric(metric), "{metric}");
            assert_eq!(metric_named(metric).figures(&row).unwrap(), [exactly(value)], "{metric}");
            assert_eq!(metric_named(metric).format(value), words);
        }
        assert!(is_metric("cpu.spinning") && !is_metric("cpu.stolen") && !is_metric("cpu"));
        assert!(metric_named("cpu.spinning").figures(&row).is_err());
        assert!(metric_named("roles.reader.convoy.mean").figures(&row).is_err());
    }

    #[test]
    fn a_ratio_to_zero_is_infinite_and_of_zeros_is_none() {
        let zero = exactly(0.0);
        assert_eq!(ratio(exactly(5.0), zero).unwrap().low, f64::INFINITY);
        assert!(ratio(zero, zero).is_err());
        assert_eq!(ratio(zero, exactly(5.0)).unwrap().high, 0.0);
    }

    #[test]
    fn figures_are_written_in_the_unit_of_their_metric() {
        assert_eq!(metric_named("roles.writer.bytes_per_s").format(397e6), "397 MB/s");
        assert_eq!(metric_named("roles.writer.latency.mean").format(23e3), "23.0µs");
        assert_eq!(metric_named("roles.writer.ops_per_s").format(57_800.0), "57.8k/s");
    }

    #[test]
    fn the_forms_that_are_listed_are_those_of_metrics() {
        for (form, about) in forms() {
            let first = about.split(": ").last().unwrap().split(", ").next().unwrap();
            let form = form.replace("ROLE", "writer").replace("wait|hold|latency", "hold");
            let name = match form.as_str() {
                "params.NAME" => "params.readers".to_owned(),
                "events.NAME" => "events.phase_woken".to_owned(),
                form => form.replace("NAME", first).replace("PART", first),
            };
            let is_histogram = HistogramMetric::try_from(name.clone()).is_ok();
            assert!(is_metric(&name) || is_histogram, "{name}");
        }
    }
}
