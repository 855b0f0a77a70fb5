//! From threads to repetitions to rows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;

use super::{Distribution, READER, RoleRecorder, ThreadRecord, WRITER};
use crate::world::{Run, Usage};
use fairlock_report::params::Params;
use fairlock_report::row::{
    CpuShares, LockEvents, LockShare, RoleStats, Row, Samples, SimulatedCounts,
};
use fairlock_report::statistics::{estimate, jain, median};
use fairlock_sim::timed::Report;
use serde::{Deserialize, Serialize};

/// One repetition of one cell.
#[derive(Debug, Clone, Default)]
pub struct Repetition {
    /// Measured time, ns.
    pub elapsed_ns: u64,
    /// See [`Run::counted_ns`].
    pub counted_ns: u64,
    /// By role name.
    pub roles: BTreeMap<&'static str, RoleRepetition>,
    /// Of all workers together, be they threads or processes.
    pub usage: Usage,
    /// See [`Run::cpus_ns`]; 0 where the workers' CPU time is not known.
    pub cpus_ns: u64,
    /// Lock events; empty for locks that count none.
    pub events: BTreeMap<String, u64>,
    /// What a simulated machine counted and saw; `None` on real threads.
    pub simulated: Option<Report>,
    /// What threads did with each of several locks; empty where there is one.
    pub locks: Vec<LockShare>,
    /// Its place among all repetitions of all cells, in the order of time.
    pub order: u32,
}

/// What one role did in one repetition.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RoleRepetition {
    /// Operations per second, by thread.
    pub thread_rates: Vec<f64>,
    /// Bytes moved per second, all threads.
    pub bytes_per_s: f64,
    /// All operations, the ones under way at the end included.
    pub executed: u64,
    /// Those of them that ended before measuring began.
    pub arriving: u64,
    /// See [`RoleStats::wait`].
    pub wait: Distribution,
    /// See [`RoleStats::hold`].
    pub hold: Distribution,
    /// See [`RoleStats::latency`].
    pub latency: Distribution,
    /// See [`RoleStats::longest_bypass`].
    pub longest_bypass: Option<u64>,
    /// See [`RoleStats::torn`].
    pub torn: Option<u64>,
    /// See [`RoleStats::wait_calls_per_s`].
    pub wait_calls_per_s: Option<f64>,
    /// See [`RoleStats::inverted`].
    pub inverted: Option<u64>,
    /// See [`RoleStats::convoy`].
    pub convoy: Distribution,
    /// See [`RoleStats::inserting`]; workloads that look at it put it here.
    pub inserting: Option<f64>,
}

impl RoleRepetition {
    fn add(&mut self, recorder: &RoleRecorder, seconds: f64) {
        self.thread_rates.push(recorder.ops as f64 / seconds);
        self.bytes_per_s += recorder.bytes as f64 / seconds;
        self.executed += recorder.executed;
        self.arriving += recorder.arriving;
        self.wait.merge(&recorder.wait);
        self.hold.merge(&recorder.hold);
        self.latency.merge(&recorder.latency);
        self.longest_bypass = self.longest_bypass.max(recorder.longest_bypass);
        self.torn = sum([self.torn, recorder.torn]);
        let wait_calls_per_s = recorder.wait_calls.map(|calls| calls as f64 / seconds);
        self.wait_calls_per_s = sum([self.wait_calls_per_s, wait_calls_per_s]);
        self.inverted = sum([self.inverted, recorder.inverted]);
        self.convoy.merge(&recorder.convoy);
    }

    fn ops_per_s(&self) -> f64 {
        self.thread_rates.iter().sum()
    }
}

/// The sum of those that were counted; `None` without any.
fn sum<T: Add<Output = T>>(counts: impl IntoIterator<Item = Option<T>>) -> Option<T> {
    counts.into_iter().flatten().reduce(|sum, count| sum + count)
}

/// Merges the threads of one run.
pub fn merge_threads(run: Run<ThreadRecord>) -> Repetition {
    let Run { elapsed_ns, counted_ns, cpus_ns, .. } = run;
    let mut repetition = Repetition { elapsed_ns, counted_ns, cpus_ns, ..Repetition::default() };
    for worker in run.workers {
        let record = worker.output;
        let active_ns = elapsed_ns.saturating_sub(record.excluded_ns).max(1);
        let seconds = active_ns as f64 / 1e9;
        for (name, recorder) in [(READER, record.reader), (WRITER, record.writer)] {
            if let Some(recorder) = recorder {
                repetition.roles.entry(name).or_default().add(&recorder, seconds);
            }
        }
        repetition.usage += worker.usage;
    }
    repetition.simulated = run.simulated;
    repetition
}

/// What a row is called.
#[derive(Debug, Clone)]
pub struct RowLabel {
    /// See [`Row::workload`].
    pub workload: String,
    /// See [`Row::lock`].
    pub lock: String,
    /// See [`Row::machine`].
    pub machine: String,
    /// See [`Row::params`].
    pub params: Params,
    /// See [`Row::seconds`].
    pub seconds: f64,
}

impl Repetition {
    /// All operations but those before measuring began; those under way at the end included.
    fn measured(&self) -> u64 {
        self.roles.values().map(|role| role.executed - role.arriving).sum()
    }
}

/// Makes room: moves the distributions of all repetitions to the first one. What rows say stays the same.
pub fn compact(repetitions: &mut [Repetition]) {
    let [first, others @ ..] = repetitions else { return };
    for (name, role) in others.iter_mut().flat_map(|other| &mut other.roles) {
        let all = first.roles.entry(name).or_default();
        all.wait.take(&mut role.wait);
        all.hold.take(&mut role.hold);
        all.latency.take(&mut role.latency);
        all.convoy.take(&mut role.convoy);
    }
}

/// The lock events of these runs together; `None` if the lock counts none.
pub fn lock_events(runs: &[Repetition]) -> Option<LockEvents> {
    let mut counts = BTreeMap::new();
    for (name, count) in runs.iter().flat_map(|run| &run.events) {
        *counts.entry(name.clone()).or_default() += count;
    }
    (!counts.is_empty()).then(|| LockEvents {
        seconds: runs.iter().map(|run| run.elapsed_ns as f64 / 1e9).sum(),
        operations: runs.iter().map(Repetition::measured).sum(),
        counts,
    })
}

/// What a simulated machine counted in these repetitions together, the first of which had `seed`.
pub fn simulated_counts(seed: u64, repetitions: &[Repetition]) -> SimulatedCounts {
    let operations = repetitions.iter().map(Repetition::measured).sum();
    let mut sum = SimulatedCounts { seed, operations, ..SimulatedCounts::default() };
    for Report { counts, .. } in repetitions.iter().filter_map(|run| run.simulated.as_ref()) {
        sum.transfers += counts.transfers;
        sum.shared_writes += counts.shared_writes;
        sum.invalidations += counts.invalidations;
        sum.wakeups += counts.wakeups;
        sum.switches += counts.switches;
    }
    sum
}

/// Merges the repetitions of one cell. `None` without any repetition.
pub fn row(label: RowLabel, repetitions: &[Repetition], events: Option<LockEvents>) -> Option<Row> {
    let first = repetitions.first()?;
    let roles = first.roles.keys().map(|&role| {
        let parts: Vec<&RoleRepetition> =
            repetitions.iter().filter_map(|repetition| repetition.roles.get(role)).collect();
        (role.to_string(), role_stats(&parts))
    });
    let roles = roles.collect();
    let totals = per_repetition(repetitions, |repetition| {
        repetition.roles.values().map(RoleRepetition::ops_per_s).sum()
    });
    let per_second = |count: u64, repetition: &Repetition| {
        count as f64 * 1e9 / repetition.counted_ns.max(1) as f64
    };
    let voluntary = per_repetition(repetitions, |repetition| {
        per_second(repetition.usage.voluntary_switches, repetition)
    });
    let involuntary = per_repetition(repetitions, |repetition| {
        per_second(repetition.usage.involuntary_switches, repetition)
    });
    let samples = samples(repetitions, &totals);
    Some(Row {
        workload: label.workload,
        lock: label.lock,
        machine: label.machine,
        params: label.params,
        repetitions: repetitions.len() as u32,
        discarded: 0,
        seconds: label.seconds,
        total_ops_per_s: estimate(&totals),
        roles,
        voluntary_switches_per_s: median(&voluntary),
        involuntary_switches_per_s: median(&involuntary),
        cpu: cpu_shares(repetitions),
        events,
        simulated: None,
        limit: None,
        for_limit: false,
        locks: lock_shares(repetitions),
        samples,
    })
}

/// The figures of each repetition.
fn samples(repetitions: &[Repetition], totals: &[f64]) -> Samples {
    let mut figures = BTreeMap::from([("total_ops_per_s".to_owned(), totals.to_vec())]);
    let names: BTreeSet<&str> =
        repetitions.iter().flat_map(|it| it.roles.keys().copied()).collect();
    for role in names {
        let parts: Option<Vec<&RoleRepetition>> =
            repetitions.iter().map(|repetition| repetition.roles.get(role)).collect();
        // A role that only some repetitions have cannot be told apart by place.
        let Some(parts) = parts else { continue };
        let mut keep = |figure: &str, values: Vec<f64>| {
            figures.insert(format!("roles.{role}.{figure}"), values);
        };
        let over = |value: &dyn Fn(&RoleRepetition) -> f64| -> Vec<f64> {
            parts.iter().map(|part| value(part)).collect()
        };
        keep("ops_per_s", over(&RoleRepetition::ops_per_s));
        keep("jain", over(&|part| jain(&part.thread_rates)));
        keep("longest_wait", over(&|part| part.wait.max() as f64));
        if parts.iter().any(|part| part.bytes_per_s > 0.0) {
            keep("bytes_per_s", over(&|part| part.bytes_per_s));
        }
        let wait_calls: Option<Vec<f64>> = parts.iter().map(|part| part.wait_calls_per_s).collect();
        if let Some(calls) = wait_calls {
            keep("wait_calls_per_s", calls);
        }
    }
    Samples { order: repetitions.iter().map(|it| it.order).collect(), figures }
}

/// What threads did with each of several locks: the means of all repetitions.
fn lock_shares(repetitions: &[Repetition]) -> Vec<LockShare> {
    let mut shares = repetitions.first().map(|first| first.locks.clone()).unwrap_or_default();
    for (at, share) in shares.iter_mut().enumerate() {
        let all: Vec<&LockShare> = repetitions.iter().filter_map(|it| it.locks.get(at)).collect();
        let mean = |of: &dyn Fn(&LockShare) -> f64| {
            all.iter().map(|share| of(share)).sum::<f64>() / all.len() as f64
        };
        share.reads_per_s = mean(&|it| it.reads_per_s);
        share.writes_per_s = mean(&|it| it.writes_per_s);
        share.share = mean(&|it| it.share);
    }
    shares
}

/// How the CPUs' time of all repetitions was used; `None` where that is not known.
fn cpu_shares(repetitions: &[Repetition]) -> Option<CpuShares> {
    let sum = |of: &dyn Fn(&Repetition) -> u64| repetitions.iter().map(of).sum::<u64>();
    let all = sum(&|it| it.cpus_ns);
    let (user, system) = (sum(&|it| it.usage.user_ns), sum(&|it| it.usage.system_ns));
    let spinning = |report: &Report| report.threads.iter().map(|it| it.spinning_ns).sum();
    let is_simulated = repetitions.iter().any(|repetition| repetition.simulated.is_some());
    let spinning = is_simulated.then(|| sum(&|it| it.simulated.as_ref().map_or(0, spinning)));
    let share = |ns: u64| ns as f64 / all as f64;
    (all > 0).then(|| CpuShares {
        user: share(user),
        system: share(system),
        idle: share(all.saturating_sub(user + system)),
        spinning: spinning.map(share),
    })
}

fn per_repetition<T>(repetitions: &[T], value: impl Fn(&T) -> f64) -> Vec<f64> {
    repetitions.iter().map(value).collect()
}

fn role_stats(parts: &[&RoleRepetition]) -> RoleStats {
    let merged = |of: &dyn Fn(&RoleRepetition) -> &Distribution| {
        let mut all = Distribution::new();
        parts.iter().for_each(|part| all.merge(of(part)));
        all
    };
    let (wait, hold) = (merged(&|part| &part.wait), merged(&|part| &part.hold));
    let over = |value: &dyn Fn(&RoleRepetition) -> f64| per_repetition(parts, |part| value(part));
    let thread_count = |part: &RoleRepetition| part.thread_rates.len().max(1) as f64;
    let slowest = |part: &RoleRepetition| part.thread_rates.iter().copied().reduce(f64::min);
    let fastest = |part: &RoleRepetition| part.thread_rates.iter().copied().reduce(f64::max);
    let moves_bytes = parts.iter().any(|part| part.bytes_per_s > 0.0);
    let wait_calls: Vec<f64> = parts.iter().filter_map(|part| part.wait_calls_per_s).collect();
    let inserting: Vec<f64> = parts.iter().filter_map(|part| part.inserting).collect();
    RoleStats {
        threads: parts.first().map_or(0, |part| part.thread_rates.len() as u32),
        ops_per_s: estimate(&over(&RoleRepetition::ops_per_s)),
        bytes_per_s: moves_bytes.then(|| estimate(&over(&|part| part.bytes_per_s))),
        thread_min: median(&over(&|part| slowest(part).unwrap_or(0.0))),
        thread_mean: median(&over(&|part| part.ops_per_s() / thread_count(part))),
        thread_max: median(&over(&|part| fastest(part).unwrap_or(0.0))),
        jain: estimate(&over(&|part| jain(&part.thread_rates))),
        wait: wait.latency(),
        hold: hold.latency(),
        latency: merged(&|part| &part.latency).latency(),
        wait_histogram: wait.by_powers_of_two(),
        hold_histogram: hold.by_powers_of_two(),
        longest_bypass: parts.iter().filter_map(|part| part.longest_bypass).max(),
        longest_wait: estimate(&over(&|part| part.wait.max() as f64)),
        torn: sum(parts.iter().map(|part| part.torn)),
        wait_calls_per_s: (!wait_calls.is_empty()).then(|| estimate(&wait_calls)),
        inverted: sum(parts.iter().map(|part| part.inverted)),
        convoy: merged(&|part| &part.convoy).convoy(),
        inserting: (!inserting.is_empty()).then(|| median(&inserting)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Finished;
    use fairlock_report::row::Convoy;

    fn thread(role: &str, ops: u64, wait: u64) -> Finished<ThreadRecord> {
        let mut recorder = RoleRecorder { ops, ..RoleRecorder::default() };
        recorder.wait.record(wait);
        (1..=ops.min(2)).for_each(|length| recorder.convoy.record(length));
        let mut output = ThreadRecord::default();
        match role {
            READER => output.reader = Some(recorder),
            _ => output.writer = Some(recorder),
        }
        let usage = Usage {
            voluntary_switches: 3,
            involuntary_switches: 1,
            user_ns: 900_000_000,
            system_ns: 100_000_000,
        };
        Finished { output, usage }
    }

    fn label() -> RowLabel {
        RowLabel {
            workload: "mix".into(),
            lock: "std".into(),
            machine: "here".into(),
            params: BTreeMap::new(),
            seconds: 2.0,
        }
    }

    #[test]
    fn operations_before_measuring_began_are_none_of_the_lock_events() {
        let mut worker = thread(WRITER, 5, 10);
        let writer = worker.output.writer.as_mut().unwrap();
        (writer.executed, writer.arriving) = (10, 4);
        let (elapsed_ns, counted_ns) = (1_000_000_000, 1_500_000_000);
        let run =
            Run { elapsed_ns, counted_ns, cpus_ns: 0, workers: vec![worker], simulated: None };
        let mut repetition = merge_threads(run);
        repetition.events.insert("rwsem_sleep_writer".to_owned(), 3);
        let events = lock_events(std::slice::from_ref(&repetition)).unwrap();
        assert_eq!((events.operations, events.seconds), (6, 1.0));
        let row = row(label(), &[repetition], None).unwrap();
        assert_eq!(row.total_ops_per_s.median, 5.0);
        // Three switches in a second and a half.
        assert_eq!(row.voluntary_switches_per_s, 2.0);
    }

    #[test]
    fn a_row_keeps_the_starved_thread_visible() {
        let repetition = || {
            let workers = vec![
                thread(READER, 100, 10),
                thread(READER, 300, 20),
                thread(WRITER, 0, 2_000_000_000),
            ];
            let (elapsed_ns, cpus_ns) = (2_000_000_000, 4_000_000_000);
            merge_threads(Run {
                elapsed_ns,
                counted_ns: elapsed_ns,
                cpus_ns,
                workers,
                simulated: None,
            })
        };
        let row = row(label(), &[repetition(), repetition()], None).unwrap();
        assert_eq!(row.events, None);
        assert_eq!(row.repetitions, 2);
        assert_eq!(row.total_ops_per_s.median, 200.0);
        assert_eq!(row.voluntary_switches_per_s, 4.5);
        // Three threads of a second each, on two CPUs for two seconds.
        let cpu = CpuShares { user: 0.675, system: 0.075, idle: 0.25, spinning: None };
        assert_eq!(row.cpu, Some(cpu));
        let reader = &row.roles[READER];
        assert_eq!((reader.threads, reader.thread_min, reader.thread_max), (2, 50.0, 150.0));
        assert_eq!(reader.jain.median, 0.8);
        let writer = &row.roles[WRITER];
        assert_eq!(writer.ops_per_s.median, 0.0);
        assert_eq!(writer.wait.max, 2_000_000_000);
        assert_eq!((writer.wait_histogram.len(), writer.wait_histogram[30]), (31, 2));
        assert_eq!((reader.wait_histogram.as_slice(), writer.convoy), (&[0, 0, 0, 2, 2][..], None));
        assert_eq!(reader.convoy, Some(Convoy { count: 8, mean: 1.5, p99: 2, max: 2 }));
        assert_eq!(writer.longest_wait.median, 2e9);
        assert_eq!(writer.bytes_per_s, None);
    }

    #[test]
    fn room_is_made_without_a_change_of_the_row() {
        let repetition = |wait| {
            merge_threads(Run {
                elapsed_ns: 1_000_000_000,
                counted_ns: 1_000_000_000,
                cpus_ns: 0,
                workers: vec![thread(READER, 100, wait), thread(WRITER, 10, 2 * wait)],
                simulated: None,
            })
        };
        let repetitions = [1_000, 5_000, 3_000].map(repetition);
        let mut compacted = repetitions.clone();
        compact(&mut compacted);
        compact(&mut compacted);
        let of = |repetitions: &[Repetition]| row(label(), repetitions, None).unwrap();
        assert_eq!(of(&compacted), of(&repetitions));
        assert_eq!(of(&compacted).roles[READER].longest_wait.median, 3_000.0);
    }

    #[test]
    fn excluded_time_does_not_lower_a_rate() {
        let mut worker = thread(WRITER, 100, 1);
        worker.output.excluded_ns = 1_000_000_000;
        let merged = merge_threads(Run {
            elapsed_ns: 2_000_000_000,
            counted_ns: 2_000_000_000,
            cpus_ns: 0,
            workers: vec![worker],
            simulated: None,
        });
        assert_eq!(merged.roles[WRITER].thread_rates, [100.0]);
    }

    #[test]
    fn a_counted_run_gives_its_events_and_nothing_else() {
        let workers = vec![thread(WRITER, 100, 1)];
        let run = |elapsed_ns, workers| Run {
            elapsed_ns,
            counted_ns: elapsed_ns,
            cpus_ns: 0,
            workers,
            simulated: None,
        };
        let measured = merge_threads(run(1_000_000_000, workers));
        let mut counted = merge_threads(run(500_000_000, Vec::new()));
        counted.events.insert("slept".to_string(), 7);
        let row = row(label(), &[measured], lock_events(&[counted])).unwrap();
        assert_eq!((row.repetitions, row.total_ops_per_s.median), (1, 100.0));
        let events = row.events.unwrap();
        assert_eq!((events.seconds, events.counts["slept"]), (0.5, 7));
    }

    #[test]
    fn the_share_of_inserts_is_that_of_the_repetition_in_the_middle() {
        let repetition = |inserting| {
            let workers = vec![thread(WRITER, 1, 1)];
            let run = Run {
                elapsed_ns: 1_000_000_000,
                counted_ns: 1_000_000_000,
                workers,
                cpus_ns: 2_000_000_000,
                simulated: None,
            };
            let mut merged = merge_threads(run);
            merged.roles.get_mut(WRITER).unwrap().inserting = inserting;
            merged
        };
        let inserting = |repetitions: &[Repetition]| {
            row(label(), repetitions, None).unwrap().roles[WRITER].inserting
        };
        let shares = [0.03, 0.05, 0.04].map(|share| repetition(Some(share)));
        assert_eq!(inserting(&shares), Some(0.04));
        assert_eq!(inserting(&[repetition(None)]), None);
    }

    #[test]
    fn no_repetition_gives_no_row() {
        assert_eq!(row(label(), &[], None), None);
    }
}
