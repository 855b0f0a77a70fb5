//! Claims and their verdicts.
//!
//! A claim states what a source published, or what Fairlock promises, as a figure computed from rows and an
//! expectation of that figure. The verdict follows from the rows and their intervals alone: if the
//! interval of the figure contains the threshold, the verdict is "inconclusive", on whichever side
//! the median is.

use fairlock::events::Event;
use serde::{Deserialize, Serialize};

use crate::former_names;
use crate::grid::{self, Params};
use crate::measure::{READER, WRITER};
use crate::row::{Convoy, CpuShares, Estimate, Row, SimulatedCounts};
use crate::units;
use crate::workloads::inversion::{HIGH, LOW};
use crate::world::HERE;

/// One name or several. Where a file has a former name of a lock, this is the current one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Names {
    /// A single name.
    One(#[serde(deserialize_with = "former_names::read_lock")] String),
    /// A list of names.
    Many(#[serde(deserialize_with = "former_names::read_locks")] Vec<String>),
}

impl Names {
    /// The names as a list.
    pub fn list(&self) -> &[String] {
        match self {
            Names::One(name) => std::slice::from_ref(name),
            Names::Many(names) => names,
        }
    }
}

/// How several figures become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Take {
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

/// Chooses one figure from the rows.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// The simulated machine; without one, that of the claim or table, and without that this
    /// machine with real threads. Rows of one never stand in for those of the other.
    #[serde(default)]
    pub machine: Option<String>,
    /// The workload; empty where a table or claim gives it.
    #[serde(default)]
    pub workload: String,
    /// One lock, or several with `over_locks`.
    #[serde(default = "no_names")]
    pub lock: Names,
    /// Parameters that the row must have, beside those of the case; these win.
    #[serde(default, deserialize_with = "grid::params_with_units")]
    pub params: Params,
    /// Path into the row: `total_ops_per_s`, `ns_per_op`, `roles.writer.wait.p99`, `roles.*.jain`, `params.readers`.
    #[serde(default)]
    pub metric: String,
    /// Which of several locks' figures counts.
    #[serde(default)]
    pub over_locks: Option<Take>,
    /// Which of several roles' figures counts, for `roles.*`.
    #[serde(default)]
    pub over_roles: Option<Take>,
}

fn no_names() -> Names {
    Names::Many(Vec::new())
}

impl Selector {
    /// The machine as rows spell it.
    pub fn machine(&self) -> &str {
        self.machine.as_deref().unwrap_or(HERE)
    }
}

/// What the figure is expected to be.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// Within this factor of the case's published value.
    WithinFactor(f64),
    /// One of several published behaviours: the figure decides which.
    Decide(Vec<Outcome>),
}

/// One of the behaviours that a claim decides between.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The figure is at least this.
    pub at_least: Option<f64>,
    /// The figure is at most this.
    pub at_most: Option<f64>,
    /// What it then looks like.
    pub looks: String,
}

/// One grid point at which a claim is tested.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What to call it, e.g. `8 threads`.
    pub name: String,
    /// The published value of the figure here.
    pub source: Option<f64>,
    /// Parameters of the rows.
    #[serde(default, deserialize_with = "grid::params_with_units")]
    pub params: Params,
}

/// Whose statement a claim tests; only the wording of the verdict depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The source's: it is reproduced or not.
    Source,
    /// Fairlock's: it holds or not.
    Fairlock,
}

/// A statement and how to test it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Short unique name within the study.
    pub id: String,
    /// Whose statement it is.
    pub origin: Origin,
    /// The statement.
    pub text: String,
    /// What was published, in words.
    #[serde(default)]
    pub published: String,
    /// The simulated machine that its figures are from, if it is not about real threads.
    #[serde(default)]
    pub machine: Option<String>,
    /// What the figure is, in words: `write rate, mixed / alone`.
    pub figure: String,
    /// The figure, or its numerator.
    pub numerator: Selector,
    /// Its denominator, where it is a ratio.
    pub denominator: Option<Selector>,
    /// What it should be.
    pub expect: Expect,
    /// Where to test it.
    pub cases: Vec<Case>,
    /// What it means if so.
    #[serde(default)]
    pub met: String,
    /// What it means if not.
    #[serde(default)]
    pub unmet: String,
}

/// How a claim or one of its cases came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// As expected, and so is the whole interval.
    Met,
    /// Not as expected, and neither is any of the interval.
    NotMet,
    /// The interval contains the threshold.
    Inconclusive,
    /// The rows it needs are missing.
    NotMeasured,
}

impl Status {
    /// The words that start a verdict.
    pub fn words(self, origin: Origin) -> &'static str {
        match (self, origin) {
            (Status::Met, Origin::Source) => "reproduced here",
            (Status::Met, Origin::Fairlock) => "holds here",
            (Status::NotMet, Origin::Source) => "not reproduced here",
            (Status::NotMet, Origin::Fairlock) => "does not hold here",
            (Status::Inconclusive, _) => "inconclusive here",
            (Status::NotMeasured, _) => "not measured here",
        }
    }
}

impl Verdict {
    /// Its words, with the cases that it is for where others came out better.
    pub fn words_and_cases(&self) -> String {
        let of_it = self.cases.iter().filter(|case| case.status == self.status);
        let names: Vec<&str> = of_it.map(|case| case.name.as_str()).collect();
        match self.status {
            Status::NotMet | Status::Inconclusive if names.len() < self.cases.len() => {
                format!("{} ({})", self.words, names.join(", "))
            }
            _ => self.words.clone(),
        }
    }
}

/// One case of a verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseVerdict {
    /// The case's name.
    pub name: String,
    /// How it came out.
    pub status: Status,
    /// The figure, if there was one.
    pub value: Option<Estimate>,
    /// The published value, if any.
    pub source: Option<f64>,
    /// The figure, with what was expected of it where cases differ in that; or why there is none.
    pub text: String,
}

/// What the rows say about a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The claim's name.
    pub id: String,
    /// The claim's statement.
    pub claim: String,
    /// What was published.
    pub published: String,
    /// What the figure is, and what all cases expect of it.
    pub figure: String,
    /// How it came out over all cases.
    pub status: Status,
    /// One or two words for it.
    pub words: String,
    /// The whole sentence.
    pub text: String,
    /// Case by case.
    pub cases: Vec<CaseVerdict>,
}

/// A workload that could not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The workload.
    pub workload: String,
    /// The simulated machine, if it was to run on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Why, in words.
    pub reason: String,
}

impl Skipped {
    fn machine(&self) -> &str {
        self.machine.as_deref().unwrap_or(HERE)
    }
}

/// Rows, and why others are missing.
#[derive(Debug, Clone, Default)]
pub struct Evidence<'a> {
    /// The rows.
    pub rows: &'a [Row],
    /// What could not run.
    pub skipped: &'a [Skipped],
    /// Whether the run was stopped early.
    pub cancelled: bool,
    /// Whether it was a `--quick` run, which leaves grid points out.
    pub quick: bool,
}

impl Evidence<'_> {
    fn why_missing(&self, selector: &Selector, lock: &str, params: &Params) -> String {
        let workload = &selector.workload;
        let skipped = |skipped: &&Skipped| {
            skipped.workload == *workload && skipped.machine() == selector.machine()
        };
        if let Some(Skipped { reason, .. }) = self.skipped.iter().find(skipped) {
            return format!("{workload} could not run: {reason}");
        }
        let place = grid::describe(workload, params);
        let place = if place.is_empty() { String::new() } else { format!(" with {place}") };
        let machine = selector.machine.as_ref().map(|machine| format!(" on {machine}"));
        let place = place + &machine.unwrap_or_default();
        if self.cancelled {
            format!("the run was stopped before {lock} under {workload}{place}")
        } else if self.quick {
            format!("--quick leaves out {lock} under {workload}{place}")
        } else {
            format!("there is no row for {lock} under {workload}{place}")
        }
    }
}

fn exactly(value: f64) -> Estimate {
    Estimate { median: value, low: value, high: value }
}

/// The figures at `metric` in a row: one, or one per role for `roles.*`.
fn figures(row: &Row, metric: &str) -> Result<Vec<Estimate>, String> {
    let absent = |what: &str| format!("the row of {} has no {what}", row.lock);
    let mut parts = metric.split('.');
    let first = parts.next().unwrap_or_default();
    match first {
        "total_ops_per_s" => Ok(vec![row.total_ops_per_s]),
        // Of all threads together: with one thread, how long an operation takes.
        "ns_per_op" => Ok(vec![ratio(exactly(1e9), row.total_ops_per_s)?]),
        // Additions that one read of a source brought.
        "coalescing" => {
            let rate = |role: &str| row.roles.get(role).map(|stats| stats.ops_per_s);
            match (rate(WRITER), rate(READER)) {
                (_, Some(read)) if read.median == 0.0 => Err(absent("reads to divide by")),
                (Some(added), Some(read)) => Ok(vec![ratio(added, read)?]),
                _ => Err(absent(metric)),
            }
        }
        "voluntary_switches_per_s" => Ok(vec![exactly(row.voluntary_switches_per_s)]),
        "involuntary_switches_per_s" => Ok(vec![exactly(row.involuntary_switches_per_s)]),
        // An operation of a workload may be a message of several.
        "voluntary_switches_per_operation" => {
            Ok(vec![ratio(exactly(row.voluntary_switches_per_s), row.total_ops_per_s)?])
        }
        "involuntary_switches_per_operation" => {
            Ok(vec![ratio(exactly(row.involuntary_switches_per_s), row.total_ops_per_s)?])
        }
        "cpu" => {
            let name = metric.strip_prefix("cpu.").unwrap_or_default();
            let cpu = row.cpu.as_ref().ok_or_else(|| absent("CPU time"))?;
            let share = cpu.named().into_iter().find(|(known, _)| *known == name);
            Ok(vec![exactly(share.and_then(|(_, share)| share).ok_or_else(|| absent(metric))?)])
        }
        "params" => {
            let name = metric.strip_prefix("params.").unwrap_or_default();
            Ok(vec![exactly(grid::param(row, name).ok_or_else(|| absent(metric))?)])
        }
        "events" => {
            let name = metric.strip_prefix("events.").unwrap_or_default();
            let events = row.events.as_ref().ok_or_else(|| absent("lock events"))?;
            let count = events.counts.get(name);
            let count = count.or_else(|| events.counts.get(former_names::event(name)));
            let count = count.ok_or_else(|| absent(metric))?;
            Ok(vec![exactly(*count as f64 / events.seconds)])
        }
        "simulated" => {
            let name = metric.strip_prefix("simulated.").unwrap_or_default();
            let counts = row.simulated.as_ref().ok_or_else(|| absent("simulated machine"))?;
            let all = counts.per_operation();
            let (_, count) =
                all.iter().find(|(known, _)| *known == name).ok_or_else(|| absent(metric))?;
            Ok(vec![exactly(*count)])
        }
        "roles" => {
            let role = parts.next().unwrap_or_default();
            let rest: Vec<&str> = parts.collect();
            let chosen: Vec<_> =
                row.roles.iter().filter(|(name, _)| role == "*" || *name == role).collect();
            if chosen.is_empty() {
                return Err(absent(&format!("roles.{role}")));
            }
            chosen
                .into_iter()
                .map(|(_, stats)| role_figure(stats, &rest).ok_or_else(|| absent(metric)))
                .collect()
        }
        _ => Err(absent(metric)),
    }
}

fn role_figure(stats: &crate::row::RoleStats, path: &[&str]) -> Option<Estimate> {
    let latency = |latency: &crate::row::Latency, part: &str| {
        Some(exactly(match part {
            "count" => latency.count as f64,
            // The zeros of what never happened are no times.
            _ if latency.count == 0 => return None,
            "mean" => latency.mean,
            "p50" => latency.p50 as f64,
            "p99" => latency.p99 as f64,
            "max" => latency.max as f64,
            _ => return None,
        }))
    };
    match path {
        ["ops_per_s"] => Some(stats.ops_per_s),
        ["bytes_per_s"] => stats.bytes_per_s,
        ["thread_min"] => Some(exactly(stats.thread_min)),
        ["thread_mean"] => Some(exactly(stats.thread_mean)),
        ["thread_max"] => Some(exactly(stats.thread_max)),
        ["jain"] => Some(stats.jain),
        ["longest_bypass"] => stats.longest_bypass.map(|count| exactly(count as f64)),
        ["longest_wait"] if stats.wait.count == 0 => None,
        ["longest_wait"] => Some(stats.longest_wait),
        ["wait_calls_per_s"] => stats.wait_calls_per_s,
        ["inverted"] => stats.inverted.map(|count| exactly(count as f64)),
        ["inserting"] => stats.inserting.map(exactly),
        ["torn"] => stats.torn.map(|count| exactly(count as f64)),
        ["convoy", part] => stats.convoy.and_then(|convoy| match *part {
            "count" => Some(exactly(convoy.count as f64)),
            "mean" => Some(exactly(convoy.mean)),
            "p99" => Some(exactly(convoy.p99 as f64)),
            "max" => Some(exactly(convoy.max as f64)),
            _ => None,
        }),
        ["wait", part] => latency(&stats.wait, part),
        ["hold", part] => latency(&stats.hold, part),
        ["latency", part] => latency(&stats.latency, part),
        _ => None,
    }
}

/// The counts at this path in a row, `roles.writer.hold_histogram`, if it has some: see
/// [`RoleStats::wait_histogram`](crate::row::RoleStats::wait_histogram).
pub fn histogram<'a>(row: &'a Row, metric: &str) -> Option<&'a [u64]> {
    let (role, which) = metric.strip_prefix("roles.")?.split_once('.')?;
    let stats = row.roles.get(role)?;
    let counts = match which {
        "wait_histogram" => &stats.wait_histogram,
        "hold_histogram" => &stats.hold_histogram,
        _ => return None,
    };
    (!counts.is_empty()).then_some(counts)
}

/// Whether a path could lead to the counts of a histogram in some row.
pub fn is_histogram(metric: &str) -> bool {
    histogram(&complete_row(), metric).is_some()
}

/// Whether a path could lead to a figure in some row.
pub fn is_metric(metric: &str) -> bool {
    let row = complete_row();
    let is_event = |name: &str| {
        let names = [name, former_names::event(name)];
        Event::ALL.iter().any(|event| names.contains(&event.name()))
    };
    metric.starts_with("params.")
        || metric.strip_prefix("events.").is_some_and(is_event)
        || figures(&row, metric).is_ok()
}

/// A row with all that a row can have, but for lock events.
fn complete_row() -> Row {
    let mut row = crate::example::row("mix", "std", &[("readers", 1.0), ("writers", 1.0)]);
    for stats in row.roles.values_mut() {
        stats.bytes_per_s = Some(exactly(1.0));
        stats.torn = Some(0);
        stats.wait_calls_per_s = Some(exactly(1.0));
        stats.inverted = Some(0);
        stats.convoy = Some(Convoy { count: 1, mean: 1.0, p99: 1, max: 1 });
        stats.inserting = Some(0.0);
    }
    row.cpu = row.cpu.map(|cpu| CpuShares { spinning: Some(0.0), ..cpu });
    for role in [LOW, HIGH] {
        row.roles.insert(role.to_owned(), row.roles["reader"].clone());
    }
    row.simulated = Some(SimulatedCounts::default());
    row
}

fn combine(figures: &[Estimate], take: Option<Take>, what: &str) -> Result<Estimate, String> {
    let fold = |pick: fn(f64, f64) -> f64| {
        figures.iter().copied().reduce(|a, b| Estimate {
            median: pick(a.median, b.median),
            low: pick(a.low, b.low),
            high: pick(a.high, b.high),
        })
    };
    match take {
        _ if figures.len() == 1 => Ok(figures[0]),
        Some(Take::Min) => fold(f64::min).ok_or_else(|| format!("no {what}")),
        Some(Take::Max) => fold(f64::max).ok_or_else(|| format!("no {what}")),
        None => Err(format!("{} {what}s, and nothing says which counts", figures.len())),
    }
}

/// The figure a selector chooses at a grid point.
///
/// # Errors
/// Why there is none, in words.
pub fn select(
    evidence: &Evidence<'_>,
    selector: &Selector,
    at: &Params,
) -> Result<Estimate, String> {
    let mut params = at.clone();
    params.extend(selector.params.clone());
    let mut by_lock = Vec::new();
    for lock in selector.lock.list() {
        let mut rows = evidence
            .rows
            .iter()
            .filter(|row| row.machine == selector.machine())
            .filter(|row| grid::matches(row, &selector.workload, lock, &params));
        let Some(row) = rows.next() else {
            return Err(evidence.why_missing(selector, lock, &params));
        };
        if rows.next().is_some() {
            return Err(format!(
                "several rows fit {lock} under {} with {}",
                selector.workload,
                grid::describe(&selector.workload, &params)
            ));
        }
        by_lock.push(combine(&figures(row, &selector.metric)?, selector.over_roles, "role")?);
    }
    combine(&by_lock, selector.over_locks, "lock")
}

/// A quotient whose interval covers every pair of values from both intervals.
fn ratio(numerator: Estimate, denominator: Estimate) -> Result<Estimate, String> {
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

/// The figure `numerator / denominator` at a grid point, or the numerator alone.
///
/// # Errors
/// Why there is none, in words.
pub fn measure(
    evidence: &Evidence<'_>,
    numerator: &Selector,
    denominator: Option<&Selector>,
    at: &Params,
) -> Result<Estimate, String> {
    let figure = select(evidence, numerator, at)?;
    match denominator {
        None => Ok(figure),
        Some(denominator) => ratio(figure, select(evidence, denominator, at)?),
    }
}

/// How a figure with this metric is written; `ratio` figures have no unit.
pub fn format_figure(metric: &str, ratio: bool, value: f64) -> String {
    let last = metric.rsplit('.').next().unwrap_or_default();
    let is_time = matches!(last, "longest_wait" | "ns_per_op")
        || (["wait.", "hold.", "latency."].iter().any(|kind| metric.contains(kind))
            && last != "count");
    if ratio {
        units::format_number(value)
    } else if is_time {
        units::format_ns(value)
    } else if matches!(last, "longest_bypass" | "count" | "torn" | "inverted") {
        units::format_count(value)
    } else if metric.starts_with("cpu.") {
        format!("{} %", units::format_number(value * 100.0))
    } else if last == "bytes_per_s" {
        units::format_bytes_per_s(value)
    } else if metric.starts_with("events.")
        || last.ends_with("_per_s")
        || last.starts_with("thread_")
    {
        format!("{}/s", units::format_count(value))
    } else {
        units::format_number(value)
    }
}

/// Compares an interval with the range `[least, most]`.
fn judge(value: Estimate, least: f64, most: f64) -> Status {
    if value.low >= least && value.high <= most {
        Status::Met
    } else if value.high < least || value.low > most {
        Status::NotMet
    } else {
        Status::Inconclusive
    }
}

impl Claim {
    /// A value of the figure in its unit.
    pub fn format(&self, value: f64) -> String {
        format_figure(&self.numerator.metric, self.denominator.is_some(), value)
    }

    /// A limit as its author wrote it, where it has no unit.
    fn threshold(&self, value: f64) -> String {
        if self.denominator.is_some() { units::trimmed(value) } else { self.format(value) }
    }

    /// The figure with its interval, where it has one.
    pub fn format_interval(&self, value: Estimate) -> String {
        if value.low == value.high {
            return self.format(value.median);
        }
        format!(
            "{} [{}, {}]",
            self.format(value.median),
            self.format(value.low),
            self.format(value.high)
        )
    }

    fn case(&self, case: &Case, evidence: &Evidence<'_>) -> CaseVerdict {
        let measured = measure(evidence, &self.numerator, self.denominator.as_ref(), &case.params);
        let (status, value, text) = match measured {
            Err(reason) => (Status::NotMeasured, None, reason),
            Ok(value) => {
                let (status, expected) = match &self.expect {
                    Expect::AtLeast(least) => (judge(value, *least, f64::INFINITY), String::new()),
                    Expect::AtMost(most) => (judge(value, f64::NEG_INFINITY, *most), String::new()),
                    Expect::WithinFactor(factor) => {
                        let source = case.source.unwrap_or(f64::NAN);
                        let (least, most) = (source / factor, source * factor);
                        (
                            judge(value, least, most),
                            format!(
                                "against {} to {} around the source's {}",
                                self.format(least),
                                self.format(most),
                                self.format(source)
                            ),
                        )
                    }
                    Expect::Decide(outcomes) => {
                        let statuses = outcomes.iter().map(|outcome| {
                            let status = judge(
                                value,
                                outcome.at_least.unwrap_or(f64::NEG_INFINITY),
                                outcome.at_most.unwrap_or(f64::INFINITY),
                            );
                            (status, outcome)
                        });
                        let statuses: Vec<_> = statuses.collect();
                        if let Some((_, met)) = statuses.iter().find(|(s, _)| *s == Status::Met) {
                            (Status::Met, format!("looks like {}", met.looks))
                        } else if statuses.iter().all(|(s, _)| *s == Status::NotMet) {
                            (Status::NotMet, "looks like none of the published ones".to_owned())
                        } else {
                            (
                                Status::Inconclusive,
                                "the interval reaches into two answers".to_owned(),
                            )
                        }
                    }
                };
                let interval = self.format_interval(value);
                let text =
                    if expected.is_empty() { interval } else { format!("{interval}, {expected}") };
                (status, Some(value), text)
            }
        };
        CaseVerdict { name: case.name.clone(), status, value, source: case.source, text }
    }

    /// What the rows say.
    pub fn verdict(&self, evidence: &Evidence<'_>) -> Verdict {
        let cases: Vec<CaseVerdict> =
            self.cases.iter().map(|case| self.case(case, evidence)).collect();
        let any = |status| cases.iter().any(|case| case.status == status);
        // One miss is a miss; a case without rows says nothing about the others.
        let status = [Status::NotMet, Status::Inconclusive, Status::Met]
            .into_iter()
            .find(|status| any(*status))
            .unwrap_or(Status::NotMeasured);
        let decides = matches!(self.expect, Expect::Decide(_));
        let words = match (decides, status) {
            (true, Status::Met) => "decided here",
            (true, Status::NotMet) => "looks like neither here",
            _ => status.words(self.origin),
        };
        let words = match &self.machine {
            None => words.to_owned(),
            Some(_) => words.replace("here", "in simulation"),
        };
        let text = self.sentence(status, &words, &cases);
        Verdict {
            id: self.id.clone(),
            claim: self.text.clone(),
            published: self.published.clone(),
            figure: self.expected_figure(),
            status,
            words,
            text,
            cases,
        }
    }

    /// The figure in words, with what all cases expect of it.
    fn expected_figure(&self) -> String {
        let figure = &self.figure;
        match &self.expect {
            Expect::AtLeast(least) => format!("{figure}, expected ≥ {}", self.threshold(*least)),
            Expect::AtMost(most) => format!("{figure}, expected ≤ {}", self.threshold(*most)),
            Expect::WithinFactor(_) | Expect::Decide(_) => figure.clone(),
        }
    }

    fn sentence(&self, status: Status, words: &str, cases: &[CaseVerdict]) -> String {
        let list = |status: Status| -> String {
            let mut parts: Vec<String> = Vec::new();
            let mut last_text = "";
            for case in cases.iter().filter(|case| case.status == status) {
                // Several cases are often missing for one reason: say it once.
                if case.value.is_none() && case.text == last_text {
                    continue;
                }
                last_text = &case.text;
                let alone = cases.len() == 1
                    || (status == Status::NotMeasured && case.text.contains("could not run"));
                parts.push(match case.value {
                    _ if alone => case.text.clone(),
                    Some(_) => format!("{} ({})", case.text, case.name),
                    None => format!("{}: {}", case.name, case.text),
                });
            }
            parts.join("; ")
        };
        let figure = match self.expect {
            Expect::AtLeast(_) | Expect::AtMost(_) => format!("{}, is", self.expected_figure()),
            Expect::WithinFactor(_) | Expect::Decide(_) => format!("{} is", self.figure),
        };
        let mut text = match status {
            Status::Met => format!("{words}: {figure} {}.", list(Status::Met)),
            Status::NotMet => format!("{words}, because {figure} {}.", list(Status::NotMet)),
            Status::Inconclusive => format!("{words}: {figure} {}.", list(Status::Inconclusive)),
            Status::NotMeasured => {
                return format!("{words}, because {}.", list(Status::NotMeasured));
            }
        };
        let meaning = match status {
            Status::Met => self.met.as_str(),
            Status::NotMet => self.unmet.as_str(),
            _ => "",
        };
        if !meaning.is_empty() {
            text.push_str(&format!(" {meaning}"));
        }
        if status != Status::Met && cases.iter().any(|case| case.status == Status::Met) {
            text.push_str(&format!(" As expected: {}.", list(Status::Met)));
        }
        if status == Status::NotMet && cases.iter().any(|case| case.status == Status::Inconclusive)
        {
            text.push_str(&format!(" Inconclusive: {}.", list(Status::Inconclusive)));
        }
        if cases.iter().any(|case| case.status == Status::NotMeasured) {
            let missing: Vec<&str> = cases
                .iter()
                .filter(|case| case.status == Status::NotMeasured)
                .map(|case| case.name.as_str())
                .collect();
            text.push_str(&format!(" Not measured: {}.", missing.join(", ")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn claim(expect: &str) -> Claim {
        toml::from_str(&format!(
            r#"
            id = "steal"
            origin = "source"
            text = "stealing starves the writer"
            figure = "write rate, after / before"
            numerator = {{ workload = "mix", lock = "no-reader-steal", metric = "roles.writer.ops_per_s" }}
            denominator = {{ workload = "mix", lock = "linux-5.11", metric = "roles.writer.ops_per_s" }}
            expect = {expect}
            cases = [{{ name = "R = 1", source = 30, params = {{ readers = 1 }} }}]
            met = "The steal is the cause."
            unmet = "The steal is not the cause."
            "#
        ))
        .unwrap()
    }

    fn row(lock: &str, writes: f64, readers: f64) -> Row {
        let mut row = example::row("mix", lock, &[("readers", readers), ("writers", 1.0)]);
        row.roles.insert("writer".to_owned(), example::role(1, writes));
        row
    }

    fn verdict(expect: &str, rows: &[Row]) -> Verdict {
        claim(expect).verdict(&Evidence { rows, ..Evidence::default() })
    }

    #[test]
    fn switches_of_an_operation_shares_of_the_cpus_and_convoys_are_figures() {
        let mut row = row("rwsem", 100.0, 1.0);
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
            assert_eq!(figures(&row, metric).unwrap(), [exactly(value)], "{metric}");
            assert_eq!(format_figure(metric, false, value), words);
        }
        assert!(is_metric("cpu.spinning") && !is_metric("cpu.stolen") && !is_metric("cpu"));
        assert!(figures(&row, "cpu.spinning").is_err());
        assert!(figures(&row, "roles.reader.convoy.mean").is_err());
    }

    #[test]
    fn the_verdict_changes_when_the_rows_change() {
        let before = row("linux-5.11", 100.0, 1.0);
        for (writes, status, words) in [
            (3000.0, Status::Met, "reproduced here: "),
            (200.0, Status::NotMet, "not reproduced here, because "),
            // ±3 % each: 10.1 [9.5, 10.7] contains the threshold.
            (1010.0, Status::Inconclusive, "inconclusive here: "),
        ] {
            let rows = [before.clone(), row("no-reader-steal", writes, 1.0)];
            let verdict = verdict("{ at_least = 10 }", &rows);
            assert_eq!(verdict.status, status, "{}", verdict.text);
            assert!(verdict.text.starts_with(words), "{}", verdict.text);
            assert!(verdict.text.contains("expected ≥ 10"), "{}", verdict.text);
        }
    }

    #[test]
    fn a_miss_names_the_ratio_its_interval_and_its_meaning() {
        let rows = [row("linux-5.11", 100.0, 1.0), row("no-reader-steal", 200.0, 1.0)];
        let verdict = verdict("{ at_least = 10 }", &rows);
        assert_eq!(
            verdict.text,
            "not reproduced here, because write rate, after / before, expected ≥ 10, is \
             2.00 [1.88, 2.12]. The steal is not the cause."
        );
    }

    #[test]
    fn at_most_and_within_factor_judge_the_whole_interval() {
        let rows = [row("linux-5.11", 100.0, 1.0), row("no-reader-steal", 3000.0, 1.0)];
        assert_eq!(verdict("{ at_most = 40 }", &rows).status, Status::Met);
        assert_eq!(verdict("{ at_most = 20 }", &rows).status, Status::NotMet);
        assert_eq!(verdict("{ at_most = 30 }", &rows).status, Status::Inconclusive);
        assert_eq!(verdict("{ within_factor = 2 }", &rows).status, Status::Met);
        assert_eq!(verdict("{ within_factor = 1.001 }", &rows).status, Status::Inconclusive);
        let far = [row("linux-5.11", 100.0, 1.0), row("no-reader-steal", 100.0, 1.0)];
        assert_eq!(verdict("{ within_factor = 2 }", &far).status, Status::NotMet);
    }

    #[test]
    fn a_decision_names_what_the_figure_looks_like() {
        let expect = "{ decide = [{ at_most = 3, looks = \"before\" }, { at_least = 6, looks = \"after\" }] }";
        for (writes, words, looks) in [
            (100.0, "decided here", "looks like before"),
            (1000.0, "decided here", "looks like after"),
            (450.0, "looks like neither here", "none"),
            (300.0, "inconclusive here", "two answers"),
        ] {
            let rows = [row("linux-5.11", 100.0, 1.0), row("no-reader-steal", writes, 1.0)];
            let verdict = verdict(expect, &rows);
            assert_eq!(verdict.words, words);
            assert!(verdict.text.contains(looks), "{}", verdict.text);
        }
    }

    #[test]
    fn simulated_rows_and_real_ones_never_stand_in_for_each_other() {
        let real = [row("linux-5.11", 100.0, 1.0), row("no-reader-steal", 3000.0, 1.0)];
        let simulated = real.clone().map(|mut row| {
            row.machine = "eight-sockets".to_owned();
            row.roles.insert("writer".to_owned(), example::role(1, 100.0));
            row
        });
        let here = claim("{ at_least = 10 }");
        let mut there = here.clone();
        there.machine = Some("eight-sockets".to_owned());
        for selector in [Some(&mut there.numerator), there.denominator.as_mut()] {
            selector.unwrap().machine.clone_from(&there.machine);
        }
        let status = |claim: &Claim, rows: &[Row]| {
            claim.verdict(&Evidence { rows, ..Evidence::default() }).status
        };
        let both = [&real[..], &simulated[..]].concat();
        assert_eq!(status(&here, &both), Status::Met);
        assert_eq!(status(&there, &both), Status::NotMet);
        assert_eq!(status(&here, &simulated), Status::NotMeasured);
        assert_eq!(status(&there, &real), Status::NotMeasured);
        let verdict = there.verdict(&Evidence::default());
        assert!(verdict.text.starts_with("not measured in simulation"), "{}", verdict.text);
        assert!(verdict.text.contains("on eight-sockets"), "{}", verdict.text);
    }

    #[test]
    fn missing_rows_are_explained_by_what_happened() {
        let claim = claim("{ at_least = 10 }");
        let mut evidence = Evidence::default();
        let text = |evidence: &Evidence<'_>| claim.verdict(evidence).text;
        assert_eq!(
            text(&evidence),
            "not measured here, because there is no row for no-reader-steal under mix with 1 reader."
        );
        evidence.quick = true;
        assert!(text(&evidence).contains("--quick leaves out no-reader-steal"));
        evidence.cancelled = true;
        assert!(text(&evidence).contains("was stopped before no-reader-steal"));
        let skipped = |machine| Skipped {
            workload: "mix".to_owned(),
            machine,
            reason: "no O_DIRECT".to_owned(),
        };
        let elsewhere = [skipped(Some("eight-sockets".to_owned()))];
        evidence.skipped = &elsewhere;
        assert!(text(&evidence).contains("was stopped before"));
        let here = [skipped(None)];
        evidence.skipped = &here;
        assert_eq!(text(&evidence), "not measured here, because mix could not run: no O_DIRECT.");
    }

    #[test]
    fn a_missed_case_decides_over_met_and_missing_ones() {
        let mut claim = claim("{ at_least = 10 }");
        for readers in [2.0, 4.0] {
            let mut case = claim.cases[0].clone();
            case.name = format!("R = {readers}");
            case.params.insert("readers".to_owned(), readers);
            claim.cases.push(case);
        }
        let rows = [
            row("linux-5.11", 100.0, 1.0),
            row("no-reader-steal", 3000.0, 1.0),
            row("linux-5.11", 100.0, 2.0),
            row("no-reader-steal", 100.0, 2.0),
        ];
        let verdict = claim.verdict(&Evidence { rows: &rows, ..Evidence::default() });
        assert_eq!(verdict.status, Status::NotMet);
        assert!(verdict.text.contains("is 1.00 [0.94, 1.06] (R = 2)."), "{}", verdict.text);
        assert!(
            verdict.text.contains("As expected: 30.0 [28.3, 31.9] (R = 1)."),
            "{}",
            verdict.text
        );
        assert!(verdict.text.ends_with("Not measured: R = 4."), "{}", verdict.text);
    }

    fn pick(text: &str, rows: &[Row]) -> Result<Estimate, String> {
        let selector: Selector = toml::from_str(text).unwrap();
        select(&Evidence { rows, ..Evidence::default() }, &selector, &Params::new())
    }

    #[test]
    fn selectors_take_the_worst_role_and_the_best_lock() {
        let mut a = row("usync", 300.0, 1.0);
        let mut b = row("std-mutex", 500.0, 1.0);
        for (row, reader, writer) in [(&mut a, 7.0, 5.0), (&mut b, 2.0, 3.0)] {
            row.roles.get_mut("reader").unwrap().longest_wait = example::estimate(reader);
            row.roles.get_mut("writer").unwrap().longest_wait = example::estimate(writer);
        }
        let rows = [a, b];
        let both = r#"workload = "mix"
            lock = ["usync", "std-mutex"]
            metric = "roles.*.longest_wait"
            over_roles = "max"
            over_locks = "min""#;
        assert_eq!(pick(both, &rows).unwrap().median, 3.0);
        let unclear = r#"workload = "mix"
            lock = "usync"
            metric = "roles.*.longest_wait""#;
        assert!(pick(unclear, &rows).unwrap_err().contains("nothing says which"));
    }

    #[test]
    fn paths_reach_params_percentiles_and_optional_figures() {
        let mut rows = [row("std", 500.0, 3.0)];
        let at = |metric: &str, rows: &[Row]| {
            pick(&format!("workload = \"mix\"\nlock = \"std\"\nmetric = \"{metric}\""), rows)
                .map(|figure| figure.median)
        };
        assert_eq!(at("params.readers", &rows), Ok(3.0));
        assert_eq!(at("roles.writer.hold.p50", &rows), Ok(400.0));
        assert_eq!(at("roles.writer.longest_bypass", &rows), Ok(3.0));
        rows[0].roles.get_mut("writer").unwrap().longest_bypass = None;
        let error = at("roles.writer.longest_bypass", &rows).unwrap_err();
        assert!(error.contains("no roles.writer.longest_bypass"), "{error}");
        assert!(at("roles.writer.hold.p51", &rows).is_err());
        assert!(at("roles.driver.ops_per_s", &rows).is_err());
    }

    #[test]
    fn several_fitting_rows_are_no_answer() {
        let rows = [row("std", 500.0, 1.0), row("std", 500.0, 2.0)];
        let error = pick("workload = \"mix\"\nlock = \"std\"\nmetric = \"total_ops_per_s\"", &rows)
            .unwrap_err();
        assert!(error.contains("several rows"), "{error}");
    }

    #[test]
    fn a_ratio_to_zero_is_infinite_and_of_zeros_is_none() {
        let zero = exactly(0.0);
        assert_eq!(ratio(exactly(5.0), zero).unwrap().low, f64::INFINITY);
        assert!(ratio(zero, zero).is_err());
        assert_eq!(ratio(zero, exactly(5.0)).unwrap().high, 0.0);
    }

    #[test]
    fn what_never_happened_is_not_measured() {
        let mut silent = row("std", 0.0, 1.0);
        let reader = silent.roles.get_mut("reader").unwrap();
        reader.ops_per_s = exactly(0.0);
        let nothing = crate::row::Latency { count: 0, mean: 0.0, p50: 0, p99: 0, max: 0 };
        (reader.wait, reader.latency, reader.longest_wait) = (nothing, nothing, exactly(0.0));
        let rows = [silent];
        for metric in [
            "coalescing",
            "roles.reader.wait.p99",
            "roles.reader.latency.max",
            "roles.reader.longest_wait",
        ] {
            let selector = format!("workload = \"mix\"\nlock = \"std\"\nmetric = \"{metric}\"");
            let error = pick(&selector, &rows).unwrap_err();
            assert!(error.starts_with("the row of std has no "), "{metric}: {error}");
        }
        let count = "workload = \"mix\"\nlock = \"std\"\nmetric = \"roles.reader.wait.count\"";
        assert_eq!(pick(count, &rows).unwrap().median, 0.0);
    }

    #[test]
    fn figures_are_written_in_the_unit_of_their_metric() {
        assert_eq!(format_figure("roles.writer.bytes_per_s", false, 397e6), "397 MB/s");
        assert_eq!(format_figure("roles.writer.latency.mean", false, 23e3), "23.0µs");
        assert_eq!(format_figure("roles.writer.ops_per_s", false, 57_800.0), "57.8k/s");
        assert_eq!(format_figure("roles.writer.ops_per_s", true, 0.5), "0.50");
    }
}
