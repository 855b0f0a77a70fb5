//! Claims and their verdicts.
//!
//! A claim states what a source published, or what Fairlock promises, as a figure computed from rows and an
//! expectation of that figure. The verdict follows from the rows and their intervals alone: if the
//! interval of the figure contains the threshold, the verdict is "inconclusive", on whichever side
//! the median is.

use std::fmt;

use fairlock_report::params::Params;
use fairlock_report::recording::Skipped;
use fairlock_report::row::{Estimate, HERE, Row};
use fairlock_report::statistics::{reach, repetitions_for};
use fairlock_report::{former_names, units};
use serde::Deserialize;

use crate::metric::Metric;
use crate::paired::{Measured, divided, interval_on, mean, of_locks};
use crate::plan::MOST_REPETITIONS;
use crate::registry;

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
    #[serde(default, deserialize_with = "registry::read_params")]
    pub params: Params,
    /// The figure: `total_ops_per_s`, `roles.writer.wait.p99`, `roles.*.jain`; none where a table gives it.
    #[serde(default)]
    pub metric: Option<Metric>,
    /// Which of several locks' figures counts.
    #[serde(default)]
    pub over_locks: Option<Take>,
    /// Which of several roles' figures counts, for `roles.*`.
    #[serde(default)]
    pub over_roles: Option<Take>,
    /// Another figure: what counts is the mean of both, such as that of the best rates of each role alone.
    #[serde(default)]
    pub mean_with: Option<Box<Selector>>,
}

fn no_names() -> Names {
    Names::Many(Vec::new())
}

impl Selector {
    /// The machine as rows spell it.
    pub fn machine(&self) -> &str {
        self.machine.as_deref().unwrap_or(HERE)
    }

    /// This one and those whose figures count with it.
    pub fn all(&self) -> impl Iterator<Item = &Selector> {
        std::iter::successors(Some(self), |selector| selector.mean_with.as_deref())
    }

    /// Gives itself and those that count with it this machine, where they leave it open.
    pub fn fill_in_machine(&mut self, machine: &Option<String>) {
        if self.machine.is_none() {
            self.machine.clone_from(machine);
        }
        if let Some(other) = &mut self.mean_with {
            other.fill_in_machine(machine);
        }
    }
}

/// What the figure is expected to be.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Expectation")]
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

/// What a study file says of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    at_least: Option<f64>,
    at_most: Option<f64>,
    within_factor: Option<f64>,
    decide: Option<Vec<Outcome>>,
}

impl TryFrom<Expectation> for Expect {
    type Error = String;

    fn try_from(said: Expectation) -> Result<Expect, String> {
        let all = [
            said.at_least.map(Expect::AtLeast),
            said.at_most.map(Expect::AtMost),
            said.within_factor.map(Expect::WithinFactor),
            said.decide.map(Expect::Decide),
        ];
        let mut said = all.into_iter().flatten();
        let (Some(expect), None) = (said.next(), said.next()) else {
            return Err(
                "`expect` says one of at_least, at_most, within_factor and decide".to_owned()
            );
        };
        let numbers: Vec<f64> = match &expect {
            Expect::AtLeast(it) | Expect::AtMost(it) | Expect::WithinFactor(it) => vec![*it],
            Expect::Decide(outcomes) => {
                outcomes.iter().flat_map(|it| [it.at_least, it.at_most]).flatten().collect()
            }
        };
        match (numbers.iter().find(|it| !it.is_finite()), &expect) {
            (Some(odd), _) => {
                Err(format!("`expect` has {odd}, which nothing can be compared with"))
            }
            (None, Expect::WithinFactor(factor)) if *factor < 1.0 => {
                Err(format!("within_factor = {factor}: a factor is at least 1"))
            }
            (None, _) => Ok(expect),
        }
    }
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
    #[serde(default, deserialize_with = "registry::read_params")]
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
    /// What would decide it, where repetitions could.
    pub to_decide: Option<ToDecide>,
}

/// How much longer a figure has to be measured for its interval to leave the threshold out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ToDecide {
    /// About so many seconds of measuring.
    pub seconds: f64,
    /// What one more repetition takes, seconds.
    pub again_s: f64,
    /// Whether there have been as many repetitions as there may be.
    pub is_at_limit: bool,
}

/// What would take longer than this is too close, seconds.
const HOUR: f64 = 3600.0;

impl ToDecide {
    /// Whether no run decides it: nobody would wait that long, or it was repeated as often as may be.
    pub fn is_too_close(&self) -> bool {
        self.seconds > HOUR || self.is_at_limit
    }
}

impl fmt::Display for ToDecide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seconds {
            _ if self.is_at_limit => {
                write!(f, "too close for {MOST_REPETITIONS} repetitions to decide it")
            }
            seconds if seconds <= HOUR => {
                write!(f, "about {} more would decide it", units::format_minutes(seconds))
            }
            _ => write!(f, "too close for an hour to decide it"),
        }
    }
}

/// About how long it takes until the interval leaves out the nearest of the thresholds. None where repetitions do not
/// shrink it.
fn to_decide(measured: &Measured, thresholds: &[f64]) -> Option<ToDecide> {
    let Measured { estimate, samples, again_s } = measured;
    let made = samples.len();
    let inside = thresholds.iter().filter(|it| (estimate.low..=estimate.high).contains(*it));
    let of = |threshold: &f64| {
        let distance = (estimate.median - threshold).abs();
        let reached = match *threshold < estimate.median {
            true => estimate.median - estimate.low,
            false => estimate.high - estimate.median,
        };
        distance / reached
    };
    let seconds = match made {
        0 => return None,
        1 => *again_s,
        _ => {
            let shrunk = inside.map(of).reduce(f64::min)? * reach(made);
            (repetitions_for(shrunk) - made as f64).max(1.0) * again_s
        }
    };
    let is_at_limit = made >= MOST_REPETITIONS as usize;
    Some(ToDecide { seconds, again_s: *again_s, is_at_limit })
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
        let place = registry::describe(workload, params);
        let place = if place.is_empty() { String::new() } else { format!(" with {place}") };
        let machine = selector.machine.as_ref().map(|machine| format!(" on {machine}"));
        let place = place + &machine.unwrap_or_default();
        if self.cancelled {
            format!("the run was stopped before {lock} under {workload}{place}")
        } else if self.quick {
            format!(
                "there is no row for {lock} under {workload}{place}: --quick leaves some out, and so does a run \
                 that was killed"
            )
        } else {
            format!("there is no row for {lock} under {workload}{place}")
        }
    }
}

fn pick(take: Option<Take>, figures: usize, what: &str) -> Result<fn(f64, f64) -> f64, String> {
    match take {
        Some(Take::Max) => Ok(f64::max),
        Some(Take::Min) => Ok(f64::min),
        None if figures == 1 => Ok(f64::min),
        None => Err(format!("{figures} {what}s, and nothing says which counts")),
    }
}

/// The least or most of several roles' figures, repetition by repetition: in each another may be the one.
fn of_roles(figures: Vec<Measured>, take: Option<Take>) -> Result<Measured, String> {
    let pick = pick(take, figures.len(), "role")?;
    let both = |a: Measured, b: Measured| Measured {
        estimate: Estimate {
            median: pick(a.estimate.median, b.estimate.median),
            low: pick(a.estimate.low, b.estimate.low),
            high: pick(a.estimate.high, b.estimate.high),
        },
        samples: match a.samples.len() == b.samples.len() {
            true => {
                let pairs = a.samples.iter().zip(&b.samples);
                pairs.map(|((place, a), (_, b))| (*place, pick(*a, *b))).collect()
            }
            false => Vec::new(),
        },
        again_s: a.again_s + b.again_s,
    };
    figures.into_iter().reduce(both).ok_or_else(|| "no role".to_owned())
}

/// The rows that a selector chooses from at a grid point: one for each lock.
///
/// # Errors
/// Why one is missing, in words.
fn chosen<'a>(
    evidence: &Evidence<'a>,
    selector: &Selector,
    at: &Params,
) -> Result<Vec<&'a Row>, String> {
    let mut params = at.clone();
    params.extend(selector.params.clone());
    let params = registry::canonical(&selector.workload, &params)?;
    let one = |lock: &String| {
        let mut rows = evidence
            .rows
            .iter()
            .filter(|row| row.machine == selector.machine())
            .filter(|row| registry::matches(row, &selector.workload, lock, &params));
        match (rows.next(), rows.next()) {
            (None, _) => Err(evidence.why_missing(selector, lock, &params)),
            (Some(row), None) => Ok(row),
            (Some(_), Some(_)) => Err(format!(
                "several rows fit {lock} under {} with {}",
                selector.workload,
                registry::describe(&selector.workload, &params)
            )),
        }
    };
    selector.lock.list().iter().map(one).collect()
}

/// The figure a selector chooses at a grid point.
///
/// # Errors
/// Why there is none, in words.
pub fn select(
    evidence: &Evidence<'_>,
    selector: &Selector,
    at: &Params,
) -> Result<Measured, String> {
    let metric = selector.metric.as_ref().ok_or("nothing says which figure")?;
    let of_row = |row: &Row| {
        let pairs = metric.figures(row)?.into_iter().zip(metric.samples(row));
        let figures = pairs.map(|(estimate, samples)| Measured {
            estimate,
            samples,
            // Of one row, however many of its roles count.
            again_s: 0.0,
        });
        let measured = of_roles(figures.collect(), selector.over_roles)?;
        Ok(Measured { again_s: row.seconds, ..measured })
    };
    let rows = chosen(evidence, selector, at)?;
    let by_lock: Result<Vec<Measured>, String> = rows.into_iter().map(of_row).collect();
    let by_lock = by_lock?;
    let pick = pick(selector.over_locks, by_lock.len(), "lock")?;
    let one = of_locks(by_lock, pick).ok_or("no lock")?;
    match &selector.mean_with {
        None => Ok(one),
        Some(other) => Ok(mean(&one, &select(evidence, other, at)?)),
    }
}

/// The figure `numerator / denominator` at a grid point, or the numerator alone.
///
/// A ratio is taken repetition by repetition, each with the one of the other that was closest in time: what
/// changed on the machine meanwhile changed both. Where the repetitions are not known, its interval covers every
/// pair of values of both.
///
/// # Errors
/// Why there is none, in words.
pub fn measure(
    evidence: &Evidence<'_>,
    numerator: &Selector,
    denominator: Option<&Selector>,
    at: &Params,
) -> Result<Measured, String> {
    let interval = interval_on(numerator.machine());
    let above = select(evidence, numerator, at)?;
    let Some(denominator) = denominator else {
        let values: Vec<f64> = above.samples.iter().map(|(_, value)| *value).collect();
        let estimate = if values.len() < 2 { above.estimate } else { interval(&values) };
        return Ok(Measured { estimate, ..above });
    };
    divided(&above, &select(evidence, denominator, at)?, interval)
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
        match &self.numerator.metric {
            Some(metric) if self.denominator.is_none() => metric.format(value),
            _ => units::format_number(value),
        }
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

    /// The values at which a case's verdict changes.
    fn thresholds(&self, case: &Case) -> Vec<f64> {
        match &self.expect {
            Expect::AtLeast(limit) | Expect::AtMost(limit) => vec![*limit],
            Expect::WithinFactor(factor) => {
                case.source.map_or_else(Vec::new, |source| vec![source / factor, source * factor])
            }
            Expect::Decide(outcomes) => {
                let limits = outcomes.iter().flat_map(|it| [it.at_least, it.at_most]);
                limits.flatten().collect()
            }
        }
    }

    /// How the figure of a case came out, with what was expected of it where cases differ in that.
    fn judged(&self, case: &Case, value: Estimate) -> (Status, String) {
        match &self.expect {
            Expect::AtLeast(least) => (judge(value, *least, f64::INFINITY), String::new()),
            Expect::AtMost(most) => (judge(value, f64::NEG_INFINITY, *most), String::new()),
            Expect::WithinFactor(factor) => {
                let source = case.source.unwrap_or(f64::NAN);
                let (least, most) = (source / factor, source * factor);
                let expected = format!(
                    "against {} to {} around the source's {}",
                    self.format(least),
                    self.format(most),
                    self.format(source)
                );
                (judge(value, least, most), expected)
            }
            Expect::Decide(outcomes) => {
                let of = |outcome: &Outcome| {
                    let least = outcome.at_least.unwrap_or(f64::NEG_INFINITY);
                    judge(value, least, outcome.at_most.unwrap_or(f64::INFINITY))
                };
                let met = outcomes.iter().find(|outcome| of(outcome) == Status::Met);
                match met {
                    Some(met) => (Status::Met, format!("looks like {}", met.looks)),
                    None if outcomes.iter().all(|outcome| of(outcome) == Status::NotMet) => {
                        let words = "looks like none of the published ones";
                        (Status::NotMet, words.to_owned())
                    }
                    None => {
                        let words = "the interval reaches into two answers";
                        (Status::Inconclusive, words.to_owned())
                    }
                }
            }
        }
    }

    fn case(&self, case: &Case, evidence: &Evidence<'_>) -> CaseVerdict {
        let (name, source) = (case.name.clone(), case.source);
        let measured = measure(evidence, &self.numerator, self.denominator.as_ref(), &case.params);
        let measured = match measured {
            Ok(measured) => measured,
            Err(text) => {
                let status = Status::NotMeasured;
                return CaseVerdict { name, status, value: None, source, text, to_decide: None };
            }
        };
        let (mut status, expected) = self.judged(case, measured.estimate);
        let mut text = self.format_interval(measured.estimate);
        if self.machine.is_none() && measured.samples.len() == 1 {
            status = Status::Inconclusive;
            text = format!("{text}, once");
        }
        if !expected.is_empty() {
            text = format!("{text}, {expected}");
        }
        let to_decide = match status {
            Status::Inconclusive if self.machine.is_none() => {
                to_decide(&measured, &self.thresholds(case))
            }
            _ => None,
        };
        if let Some(to_decide) = &to_decide {
            text = format!("{text}, {to_decide}");
        }
        CaseVerdict { name, status, value: Some(measured.estimate), source, text, to_decide }
    }

    /// The rows that a case's figure is made of.
    ///
    /// # Errors
    /// Why one is missing, in words.
    pub fn rows_of<'a>(
        &self,
        case: usize,
        evidence: &Evidence<'a>,
    ) -> Result<Vec<&'a Row>, String> {
        let params = &self.cases[case].params;
        let mut rows = Vec::new();
        for selector in [Some(&self.numerator), self.denominator.as_ref()].into_iter().flatten() {
            for selector in selector.all() {
                rows.extend(chosen(evidence, selector, params)?);
            }
        }
        Ok(rows)
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
    use crate::metric::exactly;

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
    fn the_limit_that_a_claim_computes_is_that_of_the_rows() {
        let study = crate::study::find("equal-mix").unwrap();
        let batches = study.batches(crate::study::Effort::default());
        let cells = batches.iter().flat_map(|batch| &batch.cells);
        let mut rows: Vec<Row> = cells.map(example::row_of).collect();
        crate::limit::fill(&mut rows);
        let evidence = Evidence { rows: &rows, ..Evidence::default() };
        let claim = study.claims.iter().find(|claim| claim.id == "rwsem-limit").unwrap();
        let verdict = claim.verdict(&evidence);
        for (case, found) in claim.cases.iter().zip(verdict.cases) {
            let row = chosen(&evidence, &claim.numerator, &case.params).unwrap()[0];
            assert_eq!(found.value, row.limit.map(|it| it.of_limit), "{}", case.name);
        }
    }

    #[test]
    fn what_was_repeated_as_often_as_may_be_is_too_close_and_says_so() {
        let told = |repetitions: u32| {
            let estimate = Estimate { median: 1.01, low: 0.98, high: 1.04 };
            let samples = (0..repetitions).map(|place| (place, 1.01)).collect();
            let measured = Measured { estimate, samples, again_s: 0.0099 };
            let found = to_decide(&measured, &[1.0]).expect("repetitions shrink it");
            (found.is_too_close(), found.to_string())
        };
        assert_eq!(told(100), (false, "about 8 s more would decide it".to_owned()));
        let limit = "too close for 1000 repetitions to decide it".to_owned();
        assert_eq!(told(MOST_REPETITIONS), (true, limit));
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
        assert!(text(&evidence).contains("--quick leaves some out"));
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
            case.params.insert("readers".to_owned(), readers.into());
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
        let evidence = Evidence { rows, ..Evidence::default() };
        select(&evidence, &selector, &Params::new()).map(|measured| measured.estimate)
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

    /// Repetitions of the writer's rate that took turns with those of other rows.
    fn repeated(lock: &str, rates: &[f64]) -> Row {
        let mut row = row(lock, 1.0, 1.0);
        row.roles.get_mut("writer").unwrap().ops_per_s =
            fairlock_report::statistics::estimate(rates);
        row.samples.order = (0..rates.len() as u32).collect();
        row.samples.figures.insert("roles.writer.ops_per_s".to_owned(), rates.to_vec());
        row
    }

    #[test]
    fn the_better_of_equal_locks_is_not_better_than_each_of_them() {
        let mut random = fairlock_report::random::XorShift::new(7);
        let mut rates =
            || -> Vec<f64> { (0..30).map(|_| 1e6 + 1e3 * f64::from(random.below(100))).collect() };
        let rows = ["mutex", "std-mutex", "parking_lot-mutex"].map(|lock| repeated(lock, &rates()));
        let mut claim = claim("{ at_least = 1 }");
        claim.numerator.lock = toml::Value::from("mutex").try_into().unwrap();
        let denominator = claim.denominator.as_mut().unwrap();
        denominator.lock =
            toml::Value::from(vec!["std-mutex", "parking_lot-mutex"]).try_into().unwrap();
        denominator.over_locks = Some(Take::Max);
        let verdict = claim.verdict(&Evidence { rows: &rows, ..Evidence::default() });
        assert_eq!(verdict.status, Status::Inconclusive, "{}", verdict.text);
    }

    #[test]
    fn few_repetitions_decide_what_is_far_and_not_what_is_near_and_one_decides_nothing() {
        let of = |before: &[f64], after: &[f64]| {
            let rows = [repeated("linux-5.11", before), repeated("no-reader-steal", after)];
            verdict("{ at_least = 10 }", &rows)
        };
        assert_eq!(of(&[100.0, 104.0], &[3000.0, 3100.0]).status, Status::Met);
        assert_eq!(of(&[100.0, 104.0], &[100.0, 110.0]).status, Status::NotMet);
        // Both above, and that means little.
        let near = of(&[100.0, 104.0], &[1050.0, 1400.0]);
        assert_eq!(near.status, Status::Inconclusive, "{}", near.text);
        let once = of(&[100.0], &[3000.0]);
        assert_eq!(once.status, Status::Inconclusive);
        assert!(once.text.contains("30.0, once"), "{}", once.text);
        assert!(once.cases[0].to_decide.is_some());
    }

    #[test]
    fn the_mean_of_two_figures_is_that_of_each_repetition() {
        let (mut a, mut b) = (row("usync", 300.0, 1.0), row("std", 100.0, 1.0));
        let text = r#"workload = "mix"
            lock = "usync"
            metric = "roles.writer.ops_per_s"
            mean_with = { workload = "mix", lock = "std", metric = "roles.writer.ops_per_s" }"#;
        assert_eq!(pick(text, &[a.clone(), b.clone()]).unwrap().median, 200.0);
        for (row, values) in [(&mut a, [300.0, 500.0]), (&mut b, [100.0, 200.0])] {
            row.samples.order = vec![0, 1];
            row.samples.figures.insert("roles.writer.ops_per_s".to_owned(), values.to_vec());
        }
        let selector: Selector = toml::from_str(text).unwrap();
        let rows = [a, b];
        let evidence = Evidence { rows: &rows, ..Evidence::default() };
        let both = select(&evidence, &selector, &Params::new()).unwrap();
        assert_eq!(both.samples, [(0, 200.0), (1, 350.0)]);
        let error = pick(text, &rows[..1]).unwrap_err();
        assert!(error.contains("no row for std"), "{error}");
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
    fn what_never_happened_is_not_measured() {
        let mut silent = row("std", 0.0, 1.0);
        let reader = silent.roles.get_mut("reader").unwrap();
        reader.ops_per_s = exactly(0.0);
        let nothing = fairlock_report::row::Latency { count: 0, mean: 0.0, p50: 0, p99: 0, max: 0 };
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
}
