//! One result row: what every benchmark and study writes, one JSON object a line.
//!
//! A row is one lock (or one kernel file) under one workload with one set of
//! parameters, merged over its interleaved repetitions. Tables, plots and verdicts
//! are computed from rows and from nothing else.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::former_names;
use crate::params::Params;
use crate::quantity::Figure;

/// The name of the machine that real threads run on, in rows.
pub const HERE: &str = "here";

/// A median over repetitions with a 95 % bootstrap interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median over the repetitions.
    pub median: f64,
    /// Lower end of the 95 % bootstrap interval of the median.
    pub low: f64,
    /// Upper end of the 95 % bootstrap interval of the median.
    pub high: f64,
}

impl Estimate {
    /// Whether it is one of something that is counted or timed.
    fn check(&self) -> Result<(), String> {
        let Estimate { median, low, high } = self;
        match (*low < 0.0, low <= median && median <= high) {
            (true, _) => Err(format!(".low: {low} is below 0")),
            (_, false) => Err(format!(": {median} is not within its interval, {low} to {high}")),
            _ => Ok(()),
        }
    }
}

impl From<Estimate> for Figure {
    fn from(estimate: Estimate) -> Figure {
        let Estimate { median, low, high } = estimate;
        Figure { median, low, high }
    }
}

/// A distribution of durations in nanoseconds, merged over threads and repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many operations were timed.
    pub count: u64,
    /// Arithmetic mean, ns.
    pub mean: f64,
    /// Median, ns.
    pub p50: u64,
    /// 99th percentile, ns.
    pub p99: u64,
    /// Largest, ns.
    pub max: u64,
}

/// How many threads stood at one lock whenever one asked for it, that one included; merged over threads and
/// repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Convoy {
    /// How often that was counted.
    pub count: u64,
    /// Arithmetic mean, threads: 1 is one that was always alone.
    pub mean: f64,
    /// 99th percentile, threads.
    pub p99: u64,
    /// Most, threads.
    pub max: u64,
}

/// What one role (`"reader"`, `"writer"`, …) did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoleStats {
    /// Threads with this role.
    pub threads: u32,
    /// Completed operations per second, all threads of the role together.
    pub ops_per_s: Estimate,
    /// Bytes moved per second; absent where the workload moves none.
    pub bytes_per_s: Option<Estimate>,
    /// Slowest thread's operations per second (median over repetitions).
    pub thread_min: f64,
    /// Mean over threads, operations per second.
    pub thread_mean: f64,
    /// Fastest thread's operations per second.
    pub thread_max: f64,
    /// Jain's fairness index over the role's threads: 1 is perfectly fair, 1/n is one thread takes all,
    /// 0 is nobody getting anything.
    pub jain: Estimate,
    /// From asking for the lock (or starting the I/O, or adding to a source) to having it (or its end, or having
    /// read it), see the workload's page.
    pub wait: Latency,
    /// From having the lock to having released it. Sampled where timing each would distort.
    pub hold: Latency,
    /// The whole operation, wait and hold together; think time excluded. Sampled like `hold`.
    pub latency: Latency,
    /// Most reader acquisitions granted while one operation of this role waited; absent where not measured. Sampled where counting each would distort.
    pub longest_bypass: Option<u64>,
    /// Longest wait of each repetition, ns, as an estimate over repetitions.
    pub longest_wait: Estimate,
    /// Reads that got parts of several writes, over all repetitions; absent where reads are not
    /// looked at for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torn: Option<u64>,
    /// Calls per second that waited for events, whether they brought one or not; absent where nobody waits
    /// for events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_calls_per_s: Option<Estimate>,
    /// Operations that waited for a thread of lower priority that had nothing to do with them, over
    /// all repetitions; absent where that is not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inverted: Option<u64>,
    /// The operations of `wait` by powers of two: at place i how many waited at least 2^i ns and less than 2^(i+1),
    /// those of 0 ns at place 0. Empty without any, and in recordings of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wait_histogram: Vec<u64>,
    /// Those of `hold` alike.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hold_histogram: Vec<u64>,
    /// How long the queue at a lock was; absent where that is not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convoy: Option<Convoy>,
    /// Share (0 to 1) of the time of the CPUs that the threads could use in which they inserted into trees under
    /// their locks (median over repetitions); absent where that is not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inserting: Option<f64>,
}

impl RoleStats {
    /// Jain's index, where there are shares to compare: none of a single thread, and 0 of a role that
    /// starved, whatever its row says.
    pub fn fairness(&self) -> Option<f64> {
        match self.ops_per_s.median <= 0.0 {
            true => Some(0.0),
            false => (self.threads > 1).then_some(self.jain.median),
        }
    }
}

/// What a lock's slow paths did, from one run of its counted twin: the same lock, built to count.
/// That run contributes nothing else to its row, so counting slows down no measured figure. Kept
/// apart from the rates it is compared in `counts / operations` or `counts / seconds`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockEvents {
    /// How long was counted, seconds.
    pub seconds: f64,
    /// Operations meanwhile, all roles, the ones under way at the end included.
    pub operations: u64,
    /// By event name, zeros included; `fairlock::events` says what each means. Event `name` per
    /// second is the metric `events.name`.
    #[serde(deserialize_with = "former_names::read_events")]
    pub counts: BTreeMap<String, u64>,
}

/// What a simulated machine counted, over all repetitions of a row: exact, without noise.
/// `simulated.transfers` and so on are the metrics, per operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulatedCounts {
    /// The seed of the first repetition; each further one took the next.
    pub seed: u64,
    /// Operations meanwhile, all roles, the ones before measuring began and the ones under way at the end included.
    pub operations: u64,
    /// Lines that moved between CPUs, or came from memory.
    pub transfers: u64,
    /// Writes to a line that was not the writing CPU's alone.
    pub shared_writes: u64,
    /// Copies that a write invalidated.
    pub invalidations: u64,
    /// Wake-ups of a sleeping thread.
    pub wakeups: u64,
    /// Context switches.
    pub switches: u64,
}

impl SimulatedCounts {
    /// Each count by name, per operation.
    pub fn per_operation(&self) -> [(&'static str, f64); 5] {
        [
            ("transfers", self.transfers),
            ("shared_writes", self.shared_writes),
            ("invalidations", self.invalidations),
            ("wakeups", self.wakeups),
            ("switches", self.switches),
        ]
        .map(|(name, count)| (name, count as f64 / self.operations.max(1) as f64))
    }
}

/// How the CPUs' time was used, as shares (0 to 1) of all of it: of the CPUs that the workers could use, from
/// the start until the last worker had returned, over all repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuShares {
    /// The workers' own code. On real threads the kernel splits their time into this and `system`, most
    /// kernels by what they see at the clock's ticks.
    pub user: f64,
    /// The kernel, for the workers. On a simulated machine: switches and migrations, the calls that
    /// sleep, wake, yield or interrupt, and interrupts.
    pub system: f64,
    /// The rest, not below 0. On real threads what other processes used counts here, too, and so
    /// does a CPU that was not there, as hosts of virtual machines have it.
    pub idle: f64,
    /// The part of `user` in which threads looked away from a word until that changed; absent on real
    /// threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spinning: Option<f64>,
}

impl CpuShares {
    /// Each share by name: the metrics `cpu.user` and so on.
    pub fn named(&self) -> [(&'static str, Option<f64>); 4] {
        [
            ("user", Some(self.user)),
            ("system", Some(self.system)),
            ("idle", Some(self.idle)),
            ("spinning", self.spinning),
        ]
    }
}

impl Row {
    /// Whether both are of one lock under one workload with the same parameters on one machine: then the later
    /// one has the earlier one's repetitions and more.
    pub fn is_of_one_cell_with(&self, other: &Row) -> bool {
        self.lock == other.lock
            && self.workload == other.workload
            && self.machine == other.machine
            && self.params == other.params
    }

    /// Whether a run can have come to these figures.
    fn check_figures(&self) -> Result<(), String> {
        /// Clocks are not read at the same moment.
        const MOST_OF_A_SHARE: f64 = 1.5;
        if self.repetitions == 0 {
            return Err("repetitions: 0, but a row is made of at least one".to_owned());
        }
        if self.seconds <= 0.0 {
            return Err(format!("seconds: {} is no duration", self.seconds));
        }
        self.total_ops_per_s.check().map_err(|error| format!("total_ops_per_s{error}"))?;
        for (name, role) in &self.roles {
            let estimates = [
                ("ops_per_s", &role.ops_per_s),
                ("jain", &role.jain),
                ("longest_wait", &role.longest_wait),
            ];
            for (figure, estimate) in estimates {
                estimate.check().map_err(|error| format!("roles.{name}.{figure}{error}"))?;
            }
            // The last digit is a rounding's.
            if role.jain.high > 1.0 + 1e-9 {
                return Err(format!("roles.{name}.jain.high: {} is above 1", role.jain.high));
            }
        }
        let limit = self.limit.as_ref();
        let estimates = [
            ("of_limit", limit.map(|it| it.of_limit)),
            ("lesser_role", limit.and_then(|it| it.lesser_role)),
        ];
        for (figure, estimate) in estimates {
            let checked = estimate.map_or(Ok(()), |it| it.check());
            checked.map_err(|error| format!("limit.{figure}{error}"))?;
        }
        for (name, share) in self.cpu.iter().flat_map(CpuShares::named) {
            if share.is_some_and(|it| !(0.0..=MOST_OF_A_SHARE).contains(&it)) {
                return Err(format!("cpu.{name}: a share is between 0 and 1"));
            }
        }
        Ok(())
    }

    /// Whether a row of a file can be beside others, an earlier one of which counted these events.
    ///
    /// # Errors
    /// The field, and what is wrong with it.
    pub fn check(&self, before: Option<&LockEvents>) -> Result<(), String> {
        self.check_figures()?;
        let (Some(events), Some(before)) = (&self.events, before) else { return Ok(()) };
        let lacks = |one: &LockEvents, other: &LockEvents| {
            one.counts.keys().find(|name| !other.counts.contains_key(*name)).cloned()
        };
        match (lacks(events, before), lacks(before, events)) {
            (Some(name), _) => Err(format!(
                "events.counts.{name}: rows before have no such event; rows of different versions \
                 cannot be compared"
            )),
            (None, Some(name)) => Err(format!(
                "events.counts.{name}: missing, but rows before have it; rows of different versions \
                 cannot be compared"
            )),
            (None, None) => Ok(()),
        }
    }
}

/// Whether something need not be written.
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Figures of each repetition, so that a ratio of two rows can be taken repetition by repetition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// Where each repetition stands among all those of the run, in the order of time.
    pub order: Vec<u32>,
    /// By the figure's name, `roles.writer.ops_per_s`: one for each repetition.
    pub figures: BTreeMap<String, Vec<f64>>,
}

impl Samples {
    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// How a mix of readers and writers compares with sharing the time of its lock without cost. Each repetition of the
/// mix is compared with those of the roles alone that were closest in time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The total rate over the limit: over half of the best rate that any lock of the run gave the readers alone plus
    /// half of the best that any gave the writers alone. Above 1 where threads think at the same time as others hold
    /// the lock.
    pub of_limit: Estimate,
    /// The smaller of both roles' rates, each over its rate alone under the same lock: 0.5 is an even share of the
    /// time. Absent where a role was not measured alone under this lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lesser_role: Option<Estimate>,
}

/// What threads did with one lock of several, or with several that are alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockShare {
    /// The number of the first, as in the program that was replayed.
    pub id: u32,
    /// How many there are.
    pub count: u32,
    /// What they are called.
    pub name: String,
    /// Acquisitions for reading per second.
    pub reads_per_s: f64,
    /// Acquisitions for writing per second.
    pub writes_per_s: f64,
    /// Share of all threads' time spent in calls of these locks: acquiring them, with all waits, and releasing them.
    pub share: f64,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Workload and form: `mix`, `dio-kernel`, `dio-lock`, `readseek`.
    pub workload: String,
    /// The lock's registry name, or `kernel` where the kernel's own lock is measured.
    #[serde(deserialize_with = "former_names::read_lock")]
    pub lock: String,
    /// Where it ran: `here`, or a simulated machine's name.
    pub machine: String,
    /// Parameters, e.g. `threads`, `readers`, `writers`, `read_bytes`, `section`.
    pub params: Params,
    /// Repetitions merged into this row: interleaved ones, or the seeds of a simulated machine.
    pub repetitions: u32,
    /// Repetitions that were made anew because they took far longer than they were to: the whole
    /// machine stood still meanwhile.
    #[serde(default)]
    pub discarded: u32,
    /// Measured seconds of one repetition.
    pub seconds: f64,
    /// Operations per second over all roles.
    pub total_ops_per_s: Estimate,
    /// By role.
    pub roles: BTreeMap<String, RoleStats>,
    /// Voluntary context switches per second, all workers (median).
    pub voluntary_switches_per_s: f64,
    /// Involuntary context switches per second, all workers (median).
    pub involuntary_switches_per_s: f64,
    /// How the CPUs' time was used; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuShares>,
    /// Lock events; absent for locks that count none, and where the run was stopped before.
    pub events: Option<LockEvents>,
    /// Present if and only if the machine was a simulated one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<SimulatedCounts>,
    /// How a mix compares with its roles alone; absent where these were not measured, and in recordings of older
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Whether it is of a role alone, measured only for the limit of a mix.
    #[serde(default, skip_serializing_if = "is_false")]
    pub for_limit: bool,
    /// What threads did with each of several locks; none where there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockShare>,
    /// The figures of each repetition; none in recordings of older versions.
    #[serde(default, skip_serializing_if = "Samples::is_empty")]
    pub samples: Samples,
}
