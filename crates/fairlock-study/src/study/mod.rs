//! Studies: one question each, as a file that says what to run, what was published and what
//! to conclude. Fairlock's own files are built into the program; a user's are read from where they are, and a
//! recording keeps what they say.

mod check;
pub mod claim;
pub mod deciding;
mod file;
pub mod summary;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fairlock_lab::locks;
use fairlock_lab::workloads;
use fairlock_report::machine::Machine;
use fairlock_report::params::{self, Params, Value};
use fairlock_report::recording::Header;
use fairlock_report::row::HERE;
use fairlock_report::timeline::Timeline;
use fairlock_report::units;
use fairlock_sim::profile::{self, Sheet};
use serde::Deserialize;

use crate::changes;
use crate::metric::{HistogramMetric, Metric};
use crate::plan::{Batch, Cell, Simulated};
use crate::registry;
use crate::study::check::Mistake;
use crate::study::claim::{Claim, Names, Selector, Take};
use crate::study::summary::Summary;

/// The study files, in the order they run.
const FILES: [(&str, &str); 14] = [
    ("s0", include_str!("../../studies/s0.toml")),
    ("s1", include_str!("../../studies/s1.toml")),
    ("s2", include_str!("../../studies/s2.toml")),
    ("s3", include_str!("../../studies/s3.toml")),
    ("s4", include_str!("../../studies/s4.toml")),
    ("shares", include_str!("../../studies/shares.toml")),
    ("uncontended", include_str!("../../studies/uncontended.toml")),
    ("rwlock", include_str!("../../studies/rwlock.toml")),
    ("equal-mix", include_str!("../../studies/equal-mix.toml")),
    ("mutex", include_str!("../../studies/mutex.toml")),
    ("patterns", include_str!("../../studies/patterns.toml")),
    ("logs", include_str!("../../studies/logs.toml")),
    ("convoy", include_str!("../../studies/convoy.toml")),
    ("inversion", include_str!("../../studies/inversion.toml")),
];

/// The first seed of every cell on a simulated machine.
const FIRST_SEED: u64 = 1;

/// A study file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// The name on the command line, which is the file's.
    #[serde(skip)]
    pub name: String,
    /// What stands in its file, if that is not part of the program.
    #[serde(skip)]
    pub file: Option<serde_json::Value>,
    /// What it is about, in a few words.
    pub title: String,
    /// The question it answers.
    pub question: String,
    /// How it answers it.
    pub method: String,
    /// What was published, if the question is not Fairlock's own.
    pub source: Option<Source>,
    /// What the summary says about it; studies without one run by name only.
    pub summary: Option<Summary>,
    /// What to run.
    #[serde(rename = "run")]
    pub runs: Vec<Run>,
    /// What to draw.
    #[serde(default, rename = "plot")]
    pub plots: Vec<Plot>,
    /// What to print as tables over locks and points.
    #[serde(default, rename = "grid")]
    pub grids: Vec<Grid>,
    /// What to say about the values of a parameter.
    #[serde(default, rename = "comparison")]
    pub comparisons: Vec<Comparison>,
    /// What to conclude; nothing where rows and their comparisons say it.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    /// How runs on simulated machines begin.
    #[serde(default, rename = "timeline")]
    pub timelines: Vec<TimelineSpec>,
}

/// A picture of threads side by side for each lock: the beginning of its first seed's run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimelineSpec {
    /// What it shows.
    pub title: String,
    /// The workload.
    pub workload: String,
    /// The simulated machine.
    pub machine: String,
    /// The locks.
    pub locks: Names,
    /// The point.
    #[serde(default, deserialize_with = "registry::read_params")]
    pub params: Params,
    /// How much to show.
    #[serde(rename = "length", deserialize_with = "units::deserialize_time_ns")]
    pub length_ns: u64,
}

impl TimelineSpec {
    /// The locks by name.
    pub fn locks(&self) -> Vec<String> {
        expand_locks(&self.locks, &self.workload, true)
    }

    /// The timeline of one of its locks.
    pub fn find<'a>(&self, lock: &str, timelines: &'a [Timeline]) -> Option<&'a Timeline> {
        let wanted = registry::canonical(&self.workload, &self.params).ok()?;
        timelines.iter().find(|it| {
            it.workload == self.workload
                && it.machine == self.machine
                && it.lock == lock
                && wanted.iter().all(|(name, value)| it.params.get(name) == Some(value))
        })
    }
}

/// What was published, by whom, and the numbers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The message or commit.
    pub citation: String,
    /// The machine of the numbers.
    pub machine: String,
    /// The numbers.
    #[serde(default, rename = "table")]
    pub tables: Vec<Table>,
}

/// Published numbers with the same figures measured here beside them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Whether rates are in thousands without a unit, as in the source; the title says so then.
    #[serde(default)]
    pub in_thousands: bool,
    /// The published columns.
    pub columns: Vec<String>,
    /// The columns measured here, with real threads.
    pub here: Vec<Column>,
    /// The machine of the simulated columns.
    pub machine: Option<String>,
    /// The columns from that machine.
    #[serde(default)]
    pub simulated: Vec<Column>,
    /// The rows.
    pub rows: Vec<TableRow>,
}

impl Table {
    /// The ratio of two published cells of a row.
    pub fn source_ratio(&self, row: &TableRow, over: &SourceRatio) -> Option<f64> {
        let cell = |title: &String| {
            let index = self.columns.iter().position(|column| column == title)?;
            units::leading_number(row.source.get(index)?)
        };
        Some(cell(&over.numerator)? / cell(&over.denominator)?)
    }
}

/// Two published columns, by their titles.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceRatio {
    /// Divided by the other.
    pub numerator: String,
    /// What divides.
    pub denominator: String,
}

/// A column of our figures; what it leaves open, the table's rows fill in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The heading.
    pub title: String,
    /// The figure, or its numerator.
    pub numerator: Selector,
    /// Its denominator, where it is a ratio.
    pub denominator: Option<Selector>,
    /// Print the figure, a ratio, over the published one.
    pub over_source: Option<SourceRatio>,
}

/// A row of a table of published numbers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableRow {
    /// The heading.
    pub name: String,
    /// The published cells, verbatim.
    pub source: Vec<String>,
    /// Parameters of the rows measured here.
    #[serde(default, deserialize_with = "registry::read_params")]
    pub params: Params,
    /// The figure, where the columns leave it open.
    #[serde(default)]
    pub metric: Option<Metric>,
    /// Whether it is measured here, too.
    #[serde(default = "yes")]
    pub here: bool,
}

fn yes() -> bool {
    true
}

/// A grid that runs as one batch. The locks of a point are interleaved, and so are its workloads if they are
/// forms of one that are compared with each other.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// What it measures.
    pub title: String,
    /// The workload, or several.
    pub workload: Names,
    /// A simulated machine to run on, instead of this one, or several: `all` stands for those of the program.
    pub machine: Option<Names>,
    /// The locks, or `all`.
    pub locks: Names,
    /// Parameters of every point; on a simulated machine also what is [changed](crate::changes).
    #[serde(default, deserialize_with = "registry::read_params")]
    pub params: Params,
    /// The points; a list as a value means one point for each entry.
    pub points: Vec<Point>,
    /// Repetitions of each cell; on a simulated machine called `seeds`.
    #[serde(alias = "seeds")]
    pub repetitions: u32,
    /// Measured seconds of one repetition.
    pub seconds: f64,
    /// What `--quick` changes.
    #[serde(default)]
    pub quick: Quick,
}

/// One or several grid points.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Point {
    /// Locks, where not all of the run's take part.
    pub locks: Option<Names>,
    /// Parameters, each a value or a list of values.
    #[serde(flatten)]
    pub params: BTreeMap<String, Values>,
}

/// A value or a list of values.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Values {
    /// One value.
    One(Value),
    /// One point each.
    Many(Vec<Value>),
}

/// What `--quick` changes in a run.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Leave the whole run out.
    #[serde(default)]
    pub skip: bool,
    /// Fewer locks.
    pub locks: Option<Names>,
    /// Fewer points.
    pub points: Option<Vec<Point>>,
    /// Fewer repetitions.
    #[serde(alias = "seeds")]
    pub repetitions: Option<u32>,
    /// Shorter repetitions.
    pub seconds: Option<f64>,
}

/// How a plot draws its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlotKind {
    /// A line per lock over a parameter.
    Lines,
    /// A group of bars per value of a parameter, a bar per lock or second parameter.
    Bars,
    /// A stacked bar per lock: each role's share of all operations.
    Shares,
    /// Two bars per lock: each role's rate over its rate with the other role absent.
    Alone,
    /// Steps per lock over powers of two of a nanosecond: how many of its operations took so long. The metric is
    /// `roles.writer.hold_histogram` or another role's or its `wait_histogram`.
    Histogram,
}

/// A plot.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// How.
    pub kind: PlotKind,
    /// The rows' workload, or several.
    pub workload: Names,
    /// The rows' simulated machine, if they are not from real threads.
    pub machine: Option<String>,
    /// The rows' parameters, as far as they are fixed.
    #[serde(default, deserialize_with = "registry::read_params")]
    pub params: Params,
    /// The locks, or `all`.
    #[serde(default = "all_locks")]
    pub locks: Names,
    /// The parameter along the axis.
    #[serde(default)]
    pub x: String,
    /// The parameter that tells bars of a group apart; empty for the lock, or for the workload where there are
    /// several.
    #[serde(default)]
    pub series: String,
    /// The figure; for a histogram, whose counts.
    #[serde(default)]
    pub metric: Option<PlotMetric>,
    /// Leave rows out whose roles lack one of these, e.g. rows without writers.
    #[serde(default)]
    pub roles: Vec<String>,
}

/// What a plot shows.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum PlotMetric {
    /// A figure of each row.
    Figure(Metric),
    /// The counts of a role's times in each row.
    Histogram(HistogramMetric),
}

/// Tables of one figure: a column for each lock.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// What it shows.
    pub title: String,
    /// The rows' workload.
    pub workload: String,
    /// The rows' simulated machine, if they are not from real threads.
    pub machine: Option<String>,
    /// The rows' parameters, as far as they are fixed.
    #[serde(default, deserialize_with = "registry::read_params")]
    pub params: Params,
    /// The locks, or `all`.
    pub locks: Names,
    /// Parameters that have a table for each value.
    #[serde(default)]
    pub tables: Vec<String>,
    /// Parameters that have a line for each value.
    pub lines: Vec<String>,
    /// The figure.
    pub metric: Metric,
    /// Which figure of a line is the best.
    pub best: Take,
    /// Leave rows out whose roles lack one of these, e.g. rows without writers.
    #[serde(default)]
    pub roles: Vec<String>,
}

/// What the values of parameters do to figures, over all rows that differ in nothing else: a line for each value.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// What it shows.
    pub title: String,
    /// The parameters, each by itself, or `lock`.
    pub over: Names,
    /// The value that the others are compared with, which rows without the parameter have, too. Constants of the
    /// locks have one that they usually have.
    pub standing: Option<Value>,
    /// The figures.
    pub figures: Vec<ComparedFigure>,
    /// A difference below this factor counts as none.
    #[serde(default = "usual_margin")]
    pub margin: f64,
    /// The rows' workloads; all if it is not there.
    pub workload: Option<Names>,
    /// The rows' machines; all if it is not there.
    pub machine: Option<Names>,
    /// The rows' locks; all if it is not there.
    pub locks: Option<Names>,
    /// What to conclude, in a sentence or two for each parameter.
    #[serde(default)]
    pub conclusions: BTreeMap<String, String>,
}

/// A figure that values are compared by.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparedFigure {
    /// What it is called in tables.
    pub title: String,
    /// The figure.
    pub metric: Metric,
    /// Whether more of it is better, or less.
    pub best: Take,
}

impl Comparison {
    /// The value of this parameter that the others are compared with.
    pub fn standing(&self, over: &str) -> Option<Value> {
        let usual = || {
            let constant = over.strip_prefix(changes::TUNE)?;
            let known = fairlock::tunables().iter().find(|it| it.name() == constant)?;
            Some(Value::from(known.value()))
        };
        self.standing.clone().or_else(usual)
    }
}

fn usual_margin() -> f64 {
    1.05
}

fn all_locks() -> Names {
    Names::One("all".to_owned())
}

/// Whether a cell is one of this workload on this machine, with these parameters as far as they make a difference
/// to it.
fn is_at(cell: &Cell, machine: &str, workload: &str, wanted: &Params) -> bool {
    let fields = cell.workload.fields();
    let threads = |role: &str| {
        let roles = cell.workload.roles();
        roles.iter().find(|it| it.name == role).map(|role| f64::from(role.threads))
    };
    let param = |name: &str| match changes::is_change(name) {
        true => cell.on.as_ref()?.changes.get(name).cloned(),
        false => params::find(fields, name, threads),
    };
    let number = |name: &str| param(name).and_then(|value| value.number());
    cell.workload.name() == workload
        && cell.on.as_ref().map_or(HERE, Simulated::machine) == machine
        && wanted.iter().all(|(name, value)| {
            params::is_idle(name, number) || param(name).as_ref() == Some(value)
        })
}

/// How a run with real threads departs from its study file, and whether all are quick.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Effort {
    /// Take the quick variant.
    pub quick: bool,
    /// Repetitions of every cell.
    pub repetitions: Option<u32>,
    /// Seconds of every repetition.
    pub seconds: Option<f64>,
}

/// A mistake in a study file or a wrong study name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StudyError(
    /// What is wrong, in one line.
    pub String,
);

impl fmt::Display for StudyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StudyError {}

/// The names of all studies.
pub fn names() -> Vec<&'static str> {
    FILES.iter().map(|(name, _)| *name).collect()
}

/// What stands for the names of all studies.
pub const ALL: &str = "all";

/// The studies called `wanted`, each once, in the order of their first mention. `all` means every
/// study of the program; no name at all means those that have a summary, which are about published systems. A path
/// means the study file that is there.
///
/// # Errors
/// As of [`find`]; two studies of one name.
///
/// ```
/// let named = |names: &[&str]| -> Vec<String> {
///     let found = fairlock_study::study::choose(names).unwrap();
///     found.into_iter().map(|study| study.name).collect()
/// };
/// assert_eq!(named(&["s4", "s0", "s4"]), ["s4", "s0"]);
/// assert!(named(&["all"]).len() > named(&[]).len());
/// ```
pub fn choose(wanted: &[&str]) -> Result<Vec<Study>, StudyError> {
    let mut chosen: Vec<Study> = Vec::new();
    for name in wanted {
        let meant = if *name == ALL { names() } else { vec![*name] };
        for name in meant {
            let study = file::find(name)?;
            match chosen.iter().find(|known| known.name == study.name) {
                None => chosen.push(study),
                Some(known) if *known == study => {}
                Some(_) => {
                    let name = &study.name;
                    return Err(StudyError(format!(
                        "two different studies are called {name}; run one, or give the file another name"
                    )));
                }
            }
        }
    }
    if wanted.is_empty() {
        chosen = choose(&[ALL])?;
        chosen.retain(|study| study.summary.is_some());
    }
    Ok(chosen)
}

/// The batches of several studies. What two of them measure, the first one measures for both: two rows of one cell
/// would leave open which of them a claim is about.
pub fn batches(studies: &[Study], effort: Effort) -> Vec<Batch> {
    let mut known = BTreeSet::new();
    let mut kept: Vec<Batch> = Vec::new();
    for mut batch in studies.iter().flat_map(|study| study.batches(effort)) {
        batch.cells.retain(|cell| known.insert(cell.identity()));
        if !batch.cells.is_empty() {
            kept.push(batch);
        }
    }
    kept
}

/// The study of the program that is called `name`.
///
/// # Errors
/// An unknown name, with the valid ones; a mistake in the file.
pub fn find(name: &str) -> Result<Study, StudyError> {
    let Some((_, text)) = FILES.iter().find(|(known, _)| *known == name) else {
        return Err(StudyError(format!(
            "unknown study \"{name}\"; the studies are: {}; or {ALL}; or give the path of a study file, such as \
             ./{name}.toml",
            names().join(", ")
        )));
    };
    Study::parse(name, text)
}

/// The studies of a recording, and why some of them cannot be judged: their rows are still there.
pub fn recorded(header: &Header) -> (Vec<Study>, Vec<String>) {
    let (mut studies, mut missing): (Vec<Study>, Vec<String>) = Default::default();
    for name in &header.studies {
        let study = match header.study_files.get(name) {
            Some(file) => Study::from_recording(name, file),
            None if names().contains(&name.as_str()) => find(name),
            None => Err(StudyError(format!(
                "study {name}: it is not part of this version, and the recording does not have its file"
            ))),
        };
        match study {
            Ok(study) if studies.iter().any(|known| known.name == study.name) => {}
            Ok(study) => studies.push(study),
            Err(error) => missing.push(format!("{error}; its rows are shown without its claims")),
        }
    }
    (studies, missing)
}

/// The header of a recording of these studies, from a run that starts now.
pub fn header(studies: &[Study], quick: bool, machine: Machine) -> Header {
    let names = studies.iter().map(|study| study.name.clone()).collect();
    let file = |study: &Study| Some((study.name.clone(), study.file.clone()?));
    let study_files = studies.iter().filter_map(file).collect();
    Header { study_files, ..Header::now(names, quick, machine) }
}

/// What stands for [`locks::CORE`] in a list of locks.
const CORE: &str = "core";

/// The locks of a list under a workload: `all` is replaced by [`registry::all_locks`], and `core` by those of
/// [`locks::CORE`] that the workload can run.
pub fn expand_locks(locks: &Names, workload: &str, simulated: bool) -> Vec<String> {
    let expand = |name: &String| {
        match name.as_str() {
            "all" => registry::all_locks(workload, simulated),
            CORE => {
                let runs = |lock: &&str| registry::check_lock(workload, lock, simulated).is_ok();
                locks::CORE.into_iter().filter(runs).collect()
            }
            name => vec![name],
        }
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>()
    };
    locks.list().iter().flat_map(expand).collect()
}

/// What stands for the lock where parameters are named.
pub(crate) const LOCK: &str = "lock";

/// More combinations of the values of a point are a slip of the finger.
const MOST_COMBINATIONS: usize = 10_000;

/// Every combination of the values of a point.
fn combinations(fixed: &Params, point: &Point) -> Result<Vec<Params>, String> {
    let mut all = vec![fixed.clone()];
    for (name, values) in &point.params {
        let values: &[Value] = match values {
            Values::One(value) => std::slice::from_ref(value),
            Values::Many(values) => values,
        };
        if all.len().saturating_mul(values.len()) > MOST_COMBINATIONS {
            return Err(format!(
                "a point has more than {MOST_COMBINATIONS} combinations of values; give shorter lists"
            ));
        }
        all = all
            .into_iter()
            .flat_map(|params| {
                values.iter().map(move |value| {
                    let mut params = params.clone();
                    params.insert(name.clone(), value.clone());
                    params
                })
            })
            .collect();
    }
    Ok(all)
}

impl Run {
    /// The cells to run, interleaved; none if this run is left out.
    ///
    /// # Errors
    /// A workload, or a parameter of it, that there is not.
    pub fn batch(&self, effort: Effort) -> Result<Option<Batch>, String> {
        if effort.quick && self.quick.skip {
            return Ok(None);
        }
        let chosen = effort.quick.then_some(&self.quick);
        let locks = chosen.and_then(|quick| quick.locks.as_ref()).unwrap_or(&self.locks);
        let points = chosen.and_then(|quick| quick.points.as_ref()).unwrap_or(&self.points);
        // Simulated seconds are other seconds, and seeds other repetitions.
        let effort = if self.machine.is_some() { Effort::default() } else { effort };
        let repetitions = effort.repetitions.or(chosen.and_then(|quick| quick.repetitions));
        let seconds = effort.seconds.or(chosen.and_then(|quick| quick.seconds));
        let mut places = self.places()?;
        let mut cells = Vec::new();
        for place in &mut places {
            for point in points {
                let locks = point.locks.as_ref().unwrap_or(locks);
                for params in combinations(&self.params, point)? {
                    let on = place.with(&params)?;
                    let (own, _) = changes::split(&params);
                    for name in self.workload.list() {
                        let workload = workloads::named(name)?.parse(&own)?;
                        for lock in expand_locks(locks, name, on.is_some()) {
                            cells.push(Cell {
                                workload: workload.clone(),
                                lock,
                                repetitions: repetitions.unwrap_or(self.repetitions),
                                seconds: seconds.unwrap_or(self.seconds),
                                on: on.clone(),
                                for_limit: false,
                            });
                        }
                    }
                }
            }
        }
        Ok(Some(Batch { title: self.title.clone(), cells }))
    }

    fn has(&self, workload: &str) -> bool {
        self.workload.list().iter().any(|it| it == workload)
    }

    /// The names of its simulated machines; empty for this one.
    pub fn machines(&self) -> Vec<&str> {
        let named = self.machine.iter().flat_map(|names| names.list());
        let meant = |name: &'_ String| match name.as_str() {
            ALL => profile::names(),
            _ => Vec::new(),
        };
        named
            .flat_map(|name| match meant(name) {
                all if all.is_empty() => vec![name.as_str()],
                all => all,
            })
            .collect()
    }

    /// Where it runs: on this machine or on simulated ones.
    fn places(&self) -> Result<Vec<Place>, String> {
        if self.machine.is_none() {
            return Ok(vec![Place::Here]);
        }
        let place = |name: &str| {
            let sheet = Sheet::find(name).map_err(|error| error.to_string())?;
            Ok(Place::Simulated { sheet, known: Vec::new() })
        };
        let places = self.machines().into_iter().map(place).collect::<Result<Vec<_>, String>>()?;
        match places.is_empty() {
            true => Err("`machine` is an empty list; name one, or leave it out".to_owned()),
            false => Ok(places),
        }
    }
}

/// Where a run's cells run.
enum Place {
    /// On this machine.
    Here,
    /// On this simulated one; with each set of changes that was asked for, as most points ask for the same.
    Simulated { sheet: Sheet, known: Vec<Simulated> },
}

impl Place {
    /// The place with the changes that are among these parameters.
    fn with(&mut self, params: &Params) -> Result<Option<Simulated>, String> {
        let (_, changed) = changes::split(params);
        match self {
            Place::Here => match changed.keys().next() {
                None => Ok(None),
                Some(name) => Err(format!(
                    "{name}: only on a simulated machine, which `machine` names, can this be changed"
                )),
            },
            Place::Simulated { sheet, known } => {
                if let Some(on) = known.iter().find(|on| on.changes == changed) {
                    return Ok(Some(on.clone()));
                }
                let on = Simulated::changed(sheet, &changed, FIRST_SEED)?;
                known.push(on.clone());
                Ok(Some(on))
            }
        }
    }
}

impl Study {
    /// Reads and checks a study file.
    ///
    /// # Errors
    /// What is wrong in the file.
    pub fn parse(name: &str, text: &str) -> Result<Study, StudyError> {
        let study = file::parsed(text).and_then(|study| {
            study.settled(name).map_err(|mistake| (mistake.line(text), mistake.text))
        });
        study.map_err(|(line, text)| match line {
            Some(line) => StudyError(format!("study {name}, line {line}: {text}")),
            None => StudyError(format!("study {name}: {text}")),
        })
    }

    /// The study as it is used, if everything that it names is there.
    fn settled(mut self, name: &str) -> Result<Study, Mistake> {
        name.clone_into(&mut self.name);
        self.fill_in_machines();
        check::check(&self)?;
        Ok(self)
    }

    /// The batches to run.
    pub fn batches(&self, effort: Effort) -> Vec<Batch> {
        let batch = |run: &Run| run.batch(effort).expect("`check` has made each of them");
        let mut batches: Vec<Batch> = self.runs.iter().filter_map(batch).collect();
        for spec in &self.timelines {
            let wanted = registry::canonical(&spec.workload, &spec.params);
            let wanted = wanted.expect("`check` has read them");
            for cell in batches.iter_mut().flat_map(|batch| &mut batch.cells) {
                let shown = spec.locks().contains(&cell.lock)
                    && is_at(cell, &spec.machine, &spec.workload, &wanted);
                if let (true, Some(on)) = (shown, &mut cell.on) {
                    on.timeline_ns = spec.length_ns;
                }
            }
        }
        batches
    }

    /// The tables of what was published.
    pub fn published_tables(&self) -> &[Table] {
        self.source.as_ref().map_or(&[], |source| &source.tables)
    }

    /// Whether a row with this workload belongs to the study.
    pub fn uses(&self, workload: &str) -> bool {
        self.runs.iter().any(|run| run.has(workload))
    }

    /// What a selector leaves open, its claim or table says.
    fn fill_in_machines(&mut self) {
        let fill = Selector::fill_in_machine;
        for claim in &mut self.claims {
            fill(&mut claim.numerator, &claim.machine);
            claim.denominator.iter_mut().for_each(|selector| fill(selector, &claim.machine));
        }
        for table in self.source.iter_mut().flat_map(|source| &mut source.tables) {
            for column in &mut table.simulated {
                fill(&mut column.numerator, &table.machine);
                column.denominator.iter_mut().for_each(|it| fill(it, &table.machine));
            }
        }
    }

    /// The column's selectors with what a row of the table adds.
    pub fn selectors(column: &Column, row: &TableRow) -> (Selector, Option<Selector>) {
        let filled = |selector: &Selector| {
            let mut selector = selector.clone();
            if selector.metric.is_none() {
                selector.metric.clone_from(&row.metric);
            }
            selector
        };
        (filled(&column.numerator), column.denominator.as_ref().map(filled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_lab::workload::Need;

    #[test]
    fn core_stands_for_the_locks_of_every_study_that_the_workload_can_run() {
        let names = |workload, names: &[&str]| {
            let names = Names::Many(names.iter().map(|&name| name.to_owned()).collect());
            expand_locks(&names, workload, false)
        };
        let beside = [&["std"], &locks::CORE[..], &["mutex"]].concat();
        assert_eq!(names("mix", &["std", "core", "mutex"]), beside);
        assert_eq!(names("stress-epoll", &["kernel", "core"]), ["kernel"]);
    }

    #[test]
    fn what_compares_kernels_locks_with_std_s_runs_the_core_beside_them() {
        for name in names() {
            let study = find(name).unwrap_or_else(|error| panic!("{error}"));
            for batch in study.batches(Effort::default()) {
                let is_run = |lock: &str| batch.cells.iter().any(|cell| cell.lock == lock);
                if is_run("linux-5.11") && is_run("std") {
                    assert!(locks::CORE.into_iter().all(is_run), "{name}: {}", batch.title);
                }
            }
        }
    }

    #[test]
    fn a_study_file_may_have_former_names_of_locks() {
        let (_, text) = FILES.iter().find(|(name, _)| *name == "s4").expect("it is there");
        // What columns are called is not a lock.
        let former = text
            .replace("\"rwsem\"", "\"timefair\"")
            .replace("title = \"timefair\"", "title = \"rwsem\"")
            .replace("\"rwlock\"", "\"biased\"")
            .replace("title = \"biased\"", "title = \"rwlock\"");
        assert_ne!(*text, former);
        assert!(Study::parse("s4", &former) == find("s4"));
    }

    #[test]
    fn two_claims_of_one_id_are_refused() {
        let (_, text) = FILES.iter().find(|(name, _)| *name == "s4").expect("it is there");
        let first = text.find("\nid = ").expect("a claim") + 1;
        let id = text[first..].lines().next().expect("a line");
        let second =
            first + id.len() + text[first + id.len()..].find("\nid = ").expect("a claim") + 1;
        let other = text[second..].lines().next().expect("a line");
        let error = Study::parse("s4", &text.replacen(other, id, 1)).unwrap_err();
        assert!(error.0.contains("another claim has this id"), "{error}");
    }

    #[test]
    fn what_a_claim_or_a_plot_cannot_mean_is_refused() {
        let (_, text) = FILES.iter().find(|(name, _)| *name == "uncontended").expect("it is there");
        let expect = text.lines().find(|line| line.starts_with("expect = ")).expect("a claim");
        let metric = "lock = \"rwlock\", metric = \"ns_per_op\"";
        let x = text.lines().find(|line| line.starts_with("x = ")).expect("a plot");
        for (from, to, words) in [
            (expect, "expect = {}", "says one of at_least, at_most"),
            (expect, "expect = { at_least = 1, at_most = 2 }", "says one of at_least, at_most"),
            (expect, "expect = { at_most = nan }", "`expect` has NaN"),
            (expect, "expect = { within_factor = 0.5 }", "a factor is at least 1"),
            (
                metric,
                "lock = \"rwlock\", metric = \"roles.nobody.jain\"",
                "no role \"nobody\" under uncontended",
            ),
            (x, "x = \"nosuch\"", "x = \"nosuch\" is no parameter; valid: "),
        ] {
            assert!(text.contains(from), "{from}");
            let said = Study::parse("uncontended", &text.replacen(from, to, 1)).unwrap_err().0;
            assert!(said.contains(words), "{to}: {said}");
        }
    }

    #[test]
    fn every_study_file_is_sound() {
        for name in names() {
            let study = find(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(study.name, name);
            assert!(!study.claims.is_empty() && !study.plots.is_empty());
        }
    }

    /// Claims about two locks stand between each other in a report.
    #[test]
    fn a_claim_says_what_it_is_about_without_the_one_before_it() {
        const REFERENCES: [&str; 7] =
            ["And ", "Nor ", "So it", "It ", "They ", "The same", "With no "];
        for name in names() {
            for claim in find(name).unwrap_or_else(|error| panic!("{error}")).claims {
                for text in [&claim.text, &claim.met, &claim.unmet] {
                    let refers = REFERENCES.iter().find(|words| text.starts_with(**words));
                    assert_eq!(refers, None, "{name}, {}: \"{text}\"", claim.id);
                }
            }
        }
    }

    #[test]
    fn what_two_studies_measure_is_measured_once() {
        let studies = choose(&["rwlock", "uncontended", "s4", "equal-mix"]).unwrap();
        let each: Vec<Batch> =
            studies.iter().flat_map(|study| study.batches(Effort::default())).collect();
        let count = |batches: &[Batch]| batches.iter().map(|it| it.cells.len()).sum::<usize>();
        let together = batches(&studies, Effort::default());
        assert!(count(&together) < count(&each));
        let rows: Vec<_> =
            together.iter().flat_map(|it| &it.cells).map(crate::example::row_of).collect();
        for (place, row) in rows.iter().enumerate() {
            let double = rows[..place].iter().find(|other| other.is_of_one_cell_with(row));
            assert!(double.is_none(), "{double:?}");
        }
        let evidence = claim::Evidence { rows: &rows, ..claim::Evidence::default() };
        for claim in studies.iter().flat_map(|study| &study.claims) {
            let verdict = claim.verdict(&evidence);
            assert_ne!(verdict.status, claim::Status::NotMeasured, "{}", verdict.text);
        }
    }

    #[test]
    fn all_studies_fit_their_time() {
        let studies = choose(&[]).unwrap();
        let seconds = |quick, counts: &dyn Fn(&Study) -> bool| -> f64 {
            let effort = Effort { quick, ..Effort::default() };
            let counting = studies.iter().filter(|study| counts(study));
            let batches = counting.flat_map(|study| study.batches(effort));
            let cells = batches.flat_map(|batch| batch.cells);
            cells.map(|cell| cell.estimate_with(2)).sum()
        };
        // On two CPUs. Of nine minutes, or 75 seconds, what is undecided gets the rest.
        for (quick, limit, of_s3) in [(false, 525.0, 105.0), (true, 68.0, 8.0)] {
            let all = seconds(quick, &|_| true);
            let each =
                studies.iter().map(|it| (&it.name, seconds(quick, &|study| study.name == it.name)));
            let each: Vec<_> = each.collect();
            assert!(all < limit, "{all} s of {limit} s: {each:?}; shorten the repetitions of one");
            // What the fork storm may take of it.
            let others = seconds(quick, &|study| study.name != "s3");
            assert!(others < limit - of_s3, "{others} s without s3 of {} s", limit - of_s3);
        }
    }

    #[test]
    fn an_unknown_study_is_refused_with_the_valid_ones() {
        assert_eq!(
            find("s9").unwrap_err().to_string(),
            format!(
                "unknown study \"s9\"; the studies are: {}; or all; or give the path of a study file, such as \
                 ./s9.toml",
                names().join(", ")
            )
        );
        assert_eq!(choose(&["s0", "s9"]).unwrap_err(), find("s9").unwrap_err());
    }

    #[test]
    fn those_about_published_systems_run_if_none_is_named_and_then_the_one_of_shares() {
        let systems = choose(&[]).unwrap();
        let names: Vec<&str> = systems.iter().map(|study| study.name.as_str()).collect();
        assert_eq!(names, ["s0", "s1", "s2", "s3", "s4", "shares"]);
        assert!(systems[..5].iter().all(|study| study.source.is_some()));
    }

    #[test]
    fn studies_run_once_in_the_order_of_their_names_on_the_command_line() {
        let named = |wanted: &[&str]| -> Vec<String> {
            choose(wanted).unwrap().into_iter().map(|study| study.name).collect()
        };
        assert_eq!(named(&["s4", "s0", "s4"]), ["s4", "s0"]);
        let all = named(&["s4", "all"]);
        assert_eq!(all[..2], ["s4", "s0"]);
        assert_eq!(all.len(), names().len());
    }

    fn broken(from: &str, to: &str) -> String {
        let (_, text) = FILES.iter().find(|(name, _)| *name == "s4").unwrap();
        assert!(text.contains(from), "{from}");
        Study::parse("s4", &text.replace(from, to)).unwrap_err().to_string()
    }

    #[test]
    fn mistakes_in_a_study_file_are_named() {
        assert!(broken("\"usync\"", "\"usink\"").contains("no lock `usink`"));
        assert!(broken("total_ops_per_s", "total_ops").contains("unknown metric \"total_ops\""));
        assert!(broken("think = ", "thinking = ").contains("unknown parameter \"thinking\""));
        assert!(broken("workload = \"mix\"", "workload = \"mux\"").contains("\"mux\""));
        assert!(broken("question =", "questions =").contains("line"));
        assert!(broken("ivybridge-ex-8s", "cray-1").contains("\"cray-1\""));
        let peer = broken("\"kernel-5.2\", \"core\"]", "\"usync\"]");
        assert!(peer.contains("real threads only"), "{peer}");
        assert!(broken("before\" } },\n", "afore\" } },\n").contains("\"source, afore\""));
    }

    #[test]
    fn simulated_runs_take_their_own_repetitions_and_seconds() {
        let effort = Effort { quick: false, repetitions: Some(1), seconds: Some(3.0) };
        for batch in find("s4").unwrap().batches(effort) {
            let expected = match batch.machine() {
                None => (1, 3.0),
                Some(_) => (20, 0.1),
            };
            for cell in &batch.cells {
                assert_eq!((cell.repetitions, cell.seconds), expected, "{}", batch.title);
                assert_eq!(cell.on.is_some(), batch.machine().is_some());
            }
        }
        let batches = find("s0").unwrap().batches(Effort::default());
        let simulated = batches.iter().find(|batch| batch.machine().is_some()).unwrap();
        assert!(simulated.workloads() == ["dio-lock"] && !simulated.needs(Need::DirectIo));
    }

    #[test]
    fn published_ratios_come_from_the_cells_of_a_row() {
        let study = find("s0").unwrap();
        let table = &study.published_tables()[0];
        let over = table.simulated.iter().find_map(|it| it.over_source.as_ref()).unwrap();
        let ratios: Vec<f64> =
            table.rows.iter().map(|row| table.source_ratio(row, over).unwrap()).collect();
        assert_eq!(ratios, [1.0, 350.0 / 11.0, 23.0 / 880.0, 1.0]);
    }

    #[test]
    fn lists_in_a_point_become_every_combination() {
        let run: Run = toml::from_str(
            r#"
            title = "grid"
            workload = "dio-sleep"
            locks = ["std", "usync"]
            params = { writers = 1, read_hold_ns = "300us" }
            points = [{ readers = [1, 2], write_hold_ns = ["20us", "1ms"] }, { readers = 0, locks = "std" }]
            repetitions = 3
            seconds = 0.5
            quick = { repetitions = 1 }
            "#,
        )
        .unwrap();
        let batch = run.batch(Effort::default()).unwrap().unwrap();
        assert_eq!(batch.cells.len(), 2 * 2 * 2 + 1);
        let holds = |cell: &Cell| cell.workload.fields()["read_hold_ns"].number();
        assert!(batch.cells.iter().all(|cell| holds(cell) == Some(300_000.0)));
        // Nine cells: three repetitions and a warm-up, four starts of a run, and of its threads.
        let expected = 9.0 * (3.0 * 0.5 + 0.05) + 4.0 * (9.0 * 0.005 + 21.0 * 0.001);
        assert!((batch.estimate_s() - expected).abs() < 1e-9, "{}", batch.estimate_s());
        let effort = Effort { quick: true, repetitions: None, seconds: Some(0.1) };
        let quick = run.batch(effort).unwrap().unwrap();
        assert_eq!(quick.cells[0].repetitions, 1);
        assert_eq!(quick.cells[0].seconds, 0.1);
    }
}
