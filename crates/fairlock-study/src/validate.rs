//! How far to trust the simulator: the same runs predicted for this machine and made on it.
//!
//! The profile comes from `fairlock calibrate`, which runs no lock, so every run here is one that
//! nothing was fitted to. Two scores: the relative error of the throughput, `|predicted /
//! measured - 1|`, and how well the locks' order is predicted, Kendall's τ-b over the locks of a
//! workload: 1 if all pairs are in the right order, -1 if all are in the wrong one.

use std::collections::BTreeMap;

use fairlock_lab::workload::{AnyWorkload, Workload};
use fairlock_lab::workloads::mix::Mix;
use fairlock_report::row::{HERE, Row};
use fairlock_report::statistics::{kendall_tau, median};
use fairlock_report::units::Length;

use crate::plan::{Batch, Cell, Simulated};
use crate::registry;

/// The workload that is predicted.
/// Locks that sleep, for any number of threads.
const LOCKS: [&str; 6] =
    ["rwsem", "phase-fair", "linux-5.2", "linux-5.11", "no-reader-steal", "mutex"];
/// Locks that only spin: not for more threads than CPUs.
const SPIN_LOCKS: [&str; 6] = ["tas", "ttas", "ticket", "mcs", "clh", "queued-rwlock"];
/// Differences below this do not make an order: two runs here differ by as much.
const TIE: f64 = 0.05;

/// How much to run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Fewer points.
    pub quick: bool,
    /// Repetitions of each real run.
    pub repetitions: u32,
    /// Seconds of each.
    pub seconds: f64,
    /// Seeds of each prediction.
    pub seeds: u32,
}

impl Effort {
    /// About two minutes and a half on two CPUs.
    pub const FULL: Effort = Effort { quick: false, repetitions: 3, seconds: 0.1, seeds: 5 };
    /// Some seconds.
    pub const QUICK: Effort = Effort { quick: true, repetitions: 3, seconds: 0.05, seeds: 2 };
}

/// Simulated seconds of one seed.
const SIMULATED_SECONDS: f64 = 0.02;

fn points(quick: bool) -> Vec<AnyWorkload> {
    let (threads, shares, lengths): (&[u32], &[f64], &[u32]) = match quick {
        true => (&[1, 2, 8], &[50.0], &[10]),
        false => (&[1, 2, 4, 8], &[0.0, 50.0, 90.0, 100.0], &[10, 200]),
    };
    let mut points = Vec::new();
    for &length in lengths {
        for &share in shares {
            for &count in threads {
                let (section, think) = (Length::Pauses(length), Length::Pauses(length));
                points.push(Mix { section, think, ..Mix::mixed(count, share) }.into());
            }
        }
    }
    points
}

/// All runs: of each point first the real ones, then the predictions.
pub fn batches(effort: Effort, on: &Simulated) -> Vec<Batch> {
    let cpus = f64::from(on.profile.topology.cpus());
    let batch = |workload: &AnyWorkload, machine: Option<&Simulated>| {
        let threads = workload.threads() as f64;
        let spinning = if threads <= cpus { &SPIN_LOCKS[..] } else { &[] };
        let cell = |lock: &&str| Cell {
            workload: workload.clone(),
            lock: (*lock).to_owned(),
            repetitions: if machine.is_some() { effort.seeds } else { effort.repetitions },
            seconds: if machine.is_some() { SIMULATED_SECONDS } else { effort.seconds },
            on: machine.cloned(),
            for_limit: false,
        };
        Batch {
            title: workload.describe(),
            cells: LOCKS.iter().chain(spinning).map(cell).collect(),
        }
    };
    let pair = |point: &AnyWorkload| [batch(point, None), batch(point, Some(on))];
    points(effort.quick).iter().flat_map(pair).collect()
}

/// One lock under one workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The lock.
    pub lock: String,
    /// Operations per second, by real threads.
    pub measured: f64,
    /// Operations per second, in simulation.
    pub predicted: f64,
}

impl Prediction {
    /// `|predicted / measured - 1|`.
    pub fn error(&self) -> f64 {
        (self.ratio() - 1.0).abs()
    }

    /// Predicted over measured.
    pub fn ratio(&self) -> f64 {
        self.predicted / self.measured
    }
}

/// The locks under one workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The workload in words.
    pub title: String,
    /// Its threads.
    pub threads: u32,
    /// The locks.
    pub predictions: Vec<Prediction>,
}

impl Point {
    /// How well the locks' order is predicted; `None` if no two of them differ.
    pub fn tau(&self) -> Option<f64> {
        let pair = |it: &Prediction| (it.measured, it.predicted);
        kendall_tau(&self.predictions.iter().map(pair).collect::<Vec<_>>(), TIE)
    }
}

/// What a validation came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Score {
    /// In the order of the runs.
    pub points: Vec<Point>,
}

impl Score {
    /// From all rows, real ones and those of `machine`. Rows without a partner are left out.
    pub fn of(rows: &[Row], machine: &str) -> Score {
        let key = |row: &Row| {
            let mut params = row.params.clone();
            // Each machine has a PAUSE of its own.
            params.remove("pause_ns");
            params.into_iter().map(|(name, value)| (name, value.to_string())).collect::<Vec<_>>()
        };
        let mut order = Vec::new();
        let mut points: BTreeMap<_, Point> = BTreeMap::new();
        for real in rows.iter().filter(|row| row.machine == HERE) {
            let simulated = rows.iter().find(|row| {
                row.machine == machine && row.lock == real.lock && key(row) == key(real)
            });
            let Some(simulated) = simulated else { continue };
            let point = points.entry(key(real)).or_insert_with(|| {
                order.push(key(real));
                Point {
                    title: registry::describe(Mix::NAME, &real.params),
                    threads: registry::number(real, "threads").map_or(0, |threads| threads as u32),
                    predictions: Vec::new(),
                }
            });
            point.predictions.push(Prediction {
                lock: real.lock.clone(),
                measured: real.total_ops_per_s.median,
                predicted: simulated.total_ops_per_s.median,
            });
        }
        Score { points: order.iter().filter_map(|key| points.remove(key)).collect() }
    }

    /// The median relative error over all predictions.
    pub fn median_error(&self) -> f64 {
        let errors = self.points.iter().flat_map(|it| &it.predictions).map(Prediction::error);
        median(&errors.collect::<Vec<_>>())
    }

    /// The same by number of threads.
    pub fn median_errors_by_threads(&self) -> BTreeMap<u32, f64> {
        let mut errors: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for point in &self.points {
            let of_point = point.predictions.iter().map(Prediction::error);
            errors.entry(point.threads).or_default().extend(of_point);
        }
        errors.into_iter().map(|(threads, errors)| (threads, median(&errors))).collect()
    }

    /// The median over workloads of τ.
    pub fn median_tau(&self) -> f64 {
        median(&self.points.iter().filter_map(Point::tau).collect::<Vec<_>>())
    }

    /// The predictions that are furthest off, by the factor, worst first.
    pub fn worst(&self, most: usize) -> Vec<(&Point, &Prediction)> {
        let mut all: Vec<_> = self
            .points
            .iter()
            .flat_map(|point| point.predictions.iter().map(move |it| (point, it)))
            .collect();
        let factor = |it: &Prediction| it.ratio().max(1.0 / it.ratio());
        all.sort_by(|(_, a), (_, b)| factor(b).total_cmp(&factor(a)));
        all.truncate(most);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn row(machine: &str, lock: &str, threads: f64, rate: f64) -> Row {
        let params = [("threads", threads), ("read_percent", 50.0), ("pause_ns", rate)];
        let mut row = example::row(Mix::NAME, lock, &params);
        row.machine = machine.to_owned();
        row.total_ops_per_s = example::estimate(rate);
        row
    }

    #[test]
    fn predictions_meet_their_measurements() {
        let rows = [
            row(HERE, "a", 1.0, 100.0),
            row(HERE, "b", 1.0, 200.0),
            row(HERE, "c", 1.0, 400.0),
            row(HERE, "a", 8.0, 10.0),
            row("sim", "a", 1.0, 110.0),
            row("sim", "c", 1.0, 300.0),
            row("sim", "b", 1.0, 200.0),
        ];
        let score = Score::of(&rows, "sim");
        assert_eq!(score.points.len(), 1);
        assert!((score.median_error() - 0.1).abs() < 1e-9);
        assert_eq!(score.median_tau(), 1.0);
        assert_eq!(score.median_errors_by_threads().keys().collect::<Vec<_>>(), [&1]);
        let (_, worst) = score.worst(1)[0];
        assert_eq!((worst.lock.as_str(), worst.predicted), ("c", 300.0));
    }

    #[test]
    fn spin_locks_are_run_where_everybody_has_a_cpu() {
        let on = Simulated::find("riscv-4", 1).unwrap();
        for batch in batches(Effort::QUICK, &on) {
            let spins = batch.cells.iter().any(|cell| cell.lock == "ticket");
            assert_eq!(spins, batch.cells[0].workload.threads() <= 4);
        }
    }
}
