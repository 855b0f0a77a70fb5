//! Fits a simulated machine's or a policy's parameters to figures that are known: published rows or measured ones.
//!
//! A file says which parameters may take which values and which figures of which cells are wanted; some of these can
//! be *held back*: they are reported, and nothing is chosen by them. The search is plain: a first round tries points
//! spread evenly over all ranges (a Latin hypercube), each further round does so within the ranges that the best
//! points so far span. The *error* of a point is the root mean square of the logarithms of what it gives over what is
//! wanted; `exp` of it is the factor by which it is typically off. At the end each parameter is moved alone, up and
//! down from the best point: which rows that moves is the *sensitivity*.
//!
//! * [`mod@file`]: what a fit's file says.
//! * [`search`]: which points to try.
//! * [`report`]: what came out.
//!
//! Everything that is tried is a task of a [sweep](crate::sweep) in the same directory. So results are never made
//! twice, a fit that was stopped goes on, and a sweep's engines run it.
//!
//! Not for: figures of real threads as a function of parameters. Only simulated machines have parameters.

pub mod file;
pub mod report;
pub mod search;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use fairlock_lab::workloads;
use fairlock_report::params::{Params, Value};
use fairlock_report::row::Row;
use fairlock_sim::profile::Sheet;

use crate::changes;
use crate::plan::{Batch, Cell, Simulated};
use crate::sweep::merge::merge;
use crate::sweep::plan::{Header, Plan};
use crate::sweep::results::Results;
use file::{Aim, Fit, Parameter, Target};
use search::Point;

/// A point and what it came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// The point.
    pub point: Point,
    /// The figure of each target.
    pub figures: Vec<f64>,
    /// The error over the targets that are not held back.
    pub error: f64,
    /// The error over those that are; none without any.
    pub held_back: Option<f64>,
}

/// How far a fit has come.
#[derive(Debug)]
pub enum Stage {
    /// These points are to be tried, with all before them.
    Try {
        /// The round, from 1 up.
        round: u32,
        /// Of how many, the one for the sensitivity included.
        of: u32,
        /// The tasks of all points so far.
        plan: Box<Plan>,
    },
    /// All rounds are done.
    Done(Box<Fitted>),
}

/// What a fit came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The point that the parameters start from.
    pub start: Tried,
    /// The best one.
    pub best: Tried,
    /// How many points were tried before the sensitivity.
    pub tried: usize,
    /// For each parameter, the points at both ends of its move and what they came to.
    pub moved: Vec<[Tried; 2]>,
}

impl Fit {
    /// What is to be done next, by the results that are there.
    ///
    /// # Errors
    /// A result that cannot be used; a machine that cannot take a value.
    pub fn next(&self, results: &Results) -> Result<Stage, String> {
        let search = &self.search;
        let of = search.rounds + 1;
        let mut points = vec![self.start()?];
        points.extend(search::spread(
            &self.parameters,
            &search::whole(&self.parameters),
            search,
            0,
        ));
        let mut rounds = vec![points];
        for round in 1..=search.rounds {
            let all: Vec<Point> = rounds.concat();
            let tried = match self.tried(&all, results)? {
                Ok(tried) => tried,
                Err(plan) => return Ok(Stage::Try { round, of, plan: plan.into() }),
            };
            if round < search.rounds {
                let within = search::around(&self.parameters, &tried, search.keep);
                rounds.push(search::spread(&self.parameters, &within, search, u64::from(round)));
                continue;
            }
            let best = search::best(&tried).clone();
            let ends = search::moves(&self.parameters, &best.point);
            let with_ends: Vec<Point> =
                all.iter().cloned().chain(ends.iter().flatten().cloned()).collect();
            let moved = match self.tried(&with_ends, results)? {
                Ok(tried) => tried[all.len()..].to_vec(),
                Err(plan) => return Ok(Stage::Try { round: of, of, plan: plan.into() }),
            };
            let pairs = moved.as_chunks::<2>().0.to_vec();
            let (start, tried) = (tried[0].clone(), tried.len());
            return Ok(Stage::Done(Box::new(Fitted { start, best, tried, moved: pairs })));
        }
        unreachable!("a search has at least one round")
    }

    /// Where the parameters start: what the file says, or what the machine and the locks have.
    ///
    /// # Errors
    /// A parameter that has no value yet.
    fn start(&self) -> Result<Point, String> {
        let of = |parameter: &Parameter| {
            let name = &parameter.name;
            let usual = match parameter.start {
                Some(start) => Some(start),
                None => self.usual(name)?,
            };
            usual.map(|value| parameter.settled(value)).ok_or_else(|| {
                format!("parameter {name} has no value at first; give it one: start = …")
            })
        };
        self.parameters.iter().map(of).collect::<Result<Vec<_>, _>>().map(Point)
    }

    fn usual(&self, name: &str) -> Result<Option<f64>, String> {
        if let Some(key) = name.strip_prefix(changes::MACHINE) {
            let machine = &self.targets()[0].machine;
            let sheet = Sheet::find(machine).map_err(|error| error.to_string())?;
            return Ok(sheet.value(key));
        }
        let constant = name.strip_prefix(changes::TUNE).unwrap_or(name);
        let known = fairlock::tunables().iter().find(|it| it.name() == constant);
        Ok(known.map(|it| f64::from(it.value())))
    }

    /// The machine, with the best values of those parameters that the targets say something about; none if there is none.
    ///
    /// # Errors
    /// A value that it cannot have.
    pub fn fitted_machine(&self, fitted: &Fitted) -> Result<Option<Sheet>, String> {
        // What nothing decides stays what it was.
        let undecided = report::undecided(self, fitted);
        let values = self.parameters.iter().zip(&fitted.best.point.0);
        let values = values.zip(undecided).filter(|(_, undecided)| !undecided).map(|(it, _)| it);
        let values = values.filter_map(|(parameter, value)| {
            Some((parameter.name.strip_prefix(changes::MACHINE)?, value))
        });
        let values: Vec<_> = values.collect();
        if values.is_empty() {
            return Ok(None);
        }
        let machine = &self.targets()[0].machine;
        let mut sheet = Sheet::find(machine).map_err(|error| error.to_string())?;
        for (key, value) in values {
            let why = format!("fitted: {}", self.title);
            sheet = sheet.changed(key, *value, &why).map_err(|error| error.to_string())?;
        }
        Ok(Some(sheet))
    }

    /// What these points came to, or the plan of what is missing for that.
    fn tried(
        &self,
        points: &[Point],
        results: &Results,
    ) -> Result<Result<Vec<Tried>, Plan>, String> {
        let mut sheets = BTreeMap::new();
        for target in self.targets() {
            if !sheets.contains_key(&target.machine) {
                let sheet = Sheet::find(&target.machine).map_err(|error| error.to_string())?;
                sheets.insert(target.machine.clone(), sheet);
            }
        }
        let cells: Vec<Vec<Cell>> =
            points.iter().map(|point| self.cells(point, &sheets)).collect::<Result<_, String>>()?;
        let mut known = BTreeSet::new();
        let batches = cells.iter().map(|cells| {
            let new = cells.iter().filter(|cell| known.insert(key_of_cell(cell)));
            Batch { title: self.title.clone(), cells: new.cloned().collect() }
        });
        let batches: Vec<Batch> = batches.filter(|batch| !batch.cells.is_empty()).collect();
        let machines = sheets.values().map(|sheet| (sheet.name.clone(), sheet.write())).collect();
        let plan = Plan::of_batches(&batches, Header::new(&self.title, machines))?;
        let merged = merge(&plan, std::slice::from_ref(results))?;
        if !merged.missing.is_empty() {
            return Ok(Err(plan));
        }
        let rows: HashMap<String, &Row> =
            merged.rows.iter().map(|row| (key_of_row(row), row)).collect();
        let tried = points.iter().zip(&cells).map(|(point, cells)| {
            let figures = self.targets().iter().zip(cells).map(|(target, cell)| {
                let row = rows.get(&key_of_cell(cell));
                let figure = row.and_then(|row| target.metric.figure(row));
                figure.map(|figure| figure.median).ok_or_else(|| {
                    format!("target \"{}\": the row has no {}", target.name, target.metric)
                })
            });
            let figures = figures.collect::<Result<Vec<f64>, String>>()?;
            let error = |held_back: bool| error(self.targets(), &figures, held_back);
            Ok(Tried {
                point: point.clone(),
                error: error(false).unwrap_or(0.0),
                held_back: error(true),
                figures,
            })
        });
        tried.collect::<Result<Vec<_>, String>>().map(Ok)
    }

    /// The cell of each target at a point.
    fn cells(&self, point: &Point, sheets: &BTreeMap<String, Sheet>) -> Result<Vec<Cell>, String> {
        let changed: Params = self
            .parameters
            .iter()
            .zip(&point.0)
            .map(|(parameter, value)| (parameter.name.clone(), Value::Number(*value)))
            .collect();
        let mut places = BTreeMap::new();
        for (name, sheet) in sheets {
            places.insert(name.as_str(), Simulated::changed(sheet, &changed, 1)?);
        }
        let of = |target: &Target| {
            let on = places[target.machine.as_str()].clone();
            let cell = Cell {
                workload: workloads::named(&target.workload)?.parse(&target.params)?,
                lock: target.lock.clone(),
                repetitions: self.seeds,
                seconds: target.seconds.unwrap_or(self.seconds),
                on: Some(on),
                for_limit: false,
            };
            cell.validate().map_err(|error| format!("target \"{}\": {error}", target.name))?;
            Ok(cell)
        };
        self.targets().iter().map(of).collect()
    }
}

fn key_of_row(row: &Row) -> String {
    let Row { machine, lock, workload, seconds, params, .. } = row;
    format!("{machine}\n{lock}\n{workload}\n{seconds}\n{params:?}")
}

fn key_of_cell(cell: &Cell) -> String {
    let machine = cell.on.as_ref().map_or("", Simulated::machine);
    let Cell { lock, seconds, .. } = cell;
    format!("{machine}\n{lock}\n{}\n{seconds}\n{:?}", cell.workload.name(), cell.row_params())
}

/// How far a figure is from what is wanted, as a logarithm; 0 where it is as wanted.
pub fn off(target: &Target, figure: f64) -> f64 {
    // A row without any operation is as wrong as can be, but no infinity.
    let log = (figure.max(f64::MIN_POSITIVE) / target.aim.value()).ln().clamp(-20.0, 20.0);
    match target.aim {
        Aim::Value(_) => log,
        Aim::AtLeast(_) => log.min(0.0),
        Aim::AtMost(_) => log.max(0.0),
    }
}

fn error(targets: &[Target], figures: &[f64], held_back: bool) -> Option<f64> {
    let mut sum = (0.0, 0.0);
    for (target, figure) in targets.iter().zip(figures).filter(|(it, _)| it.held_back == held_back)
    {
        sum.0 += target.weight * off(target, *figure).powi(2);
        sum.1 += target.weight;
    }
    (sum.1 > 0.0).then(|| (sum.0 / sum.1).sqrt())
}

/// Where a fit of this file has its directory where nothing else is said.
pub fn default_directory(path: &Path) -> PathBuf {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("fit");
    Path::new("fairlock-fit").join(stem)
}
