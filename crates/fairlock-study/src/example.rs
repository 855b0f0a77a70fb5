//! Made-up rows: what documentation and tests render when nothing is to be measured.
//!
//! The numbers are a smooth function of the lock's name and the parameters, so a page made of
//! them looks like a page, and nothing more.

use std::collections::BTreeMap;

use fairlock_lab::workload::Workload;
use fairlock_lab::workloads::forkstorm::Forkstorm;
use fairlock_lab::workloads::forkstorm_kernel::ForkstormKernel;
use fairlock_lab::workloads::inversion::{HIGH, LOW};
use fairlock_lab::workloads::rmapstorm::Rmapstorm;
use fairlock_report::params::{self, Params};
use fairlock_report::row::{
    Convoy, CpuShares, Estimate, Latency, LockEvents, RoleStats, Row, Samples, SimulatedCounts,
};
use fairlock_report::timeline::{SLOTS, ThreadTimeline, Timeline};

use crate::plan::Cell;
use crate::registry;

/// An estimate with an interval of ±3 %.
pub fn estimate(median: f64) -> Estimate {
    Estimate { median, low: median * 0.97, high: median * 1.03 }
}

/// A distribution around `p50` ns.
pub fn latency(p50: u64) -> Latency {
    Latency { count: 10_000, mean: p50 as f64 * 1.2, p50, p99: p50 * 8, max: p50 * 60 }
}

/// How many of 10 000 took how long, most of them around `p50` ns.
pub fn histogram(p50: u64) -> Vec<u64> {
    let middle = p50.max(2).ilog2() as usize;
    let mut counts = vec![0; middle - 1];
    counts.extend([1_000, 6_000, 2_000, 900, 90, 10]);
    counts
}

/// What `threads` threads of one role did at `ops_per_s` altogether.
pub fn role(threads: u32, ops_per_s: f64) -> RoleStats {
    let each = ops_per_s / f64::from(threads.max(1));
    let wait = (2e8 / each.max(1.0)) as u64;
    RoleStats {
        threads,
        ops_per_s: estimate(ops_per_s),
        bytes_per_s: None,
        thread_min: each * 0.9,
        thread_mean: each,
        thread_max: each * 1.1,
        jain: Estimate { median: 0.98, low: 0.97, high: 0.99 },
        wait: latency(wait),
        hold: latency(400),
        latency: latency(wait + 400),
        longest_bypass: Some(3),
        longest_wait: estimate(wait as f64 * 60.0),
        torn: None,
        wait_calls_per_s: None,
        inverted: None,
        wait_histogram: histogram(wait),
        hold_histogram: histogram(400),
        convoy: None,
        inserting: None,
    }
}

/// A reader that is woken by a writer.
pub fn timeline(workload: &str, lock: &str, machine: &str) -> Timeline {
    let thread = |thread: &str, activity: [&str; 2], section: [&str; 2]| ThreadTimeline {
        thread: thread.to_owned(),
        activity: activity.map(|letter| letter.repeat(SLOTS / 2)).concat(),
        section: section.map(|letter| letter.repeat(SLOTS / 2)).concat(),
    };
    Timeline {
        workload: workload.to_owned(),
        lock: lock.to_owned(),
        machine: machine.to_owned(),
        params: registry::current(workload, params::of(&[("readers", 1.0), ("writers", 1.0)])),
        length_ns: 1_000_000,
        measured_from_ns: None,
        threads: vec![
            thread("reader 1", ["z", "r"], ["w", "h"]),
            thread("writer 1", ["r", "s"], ["H", "."]),
        ],
        wake_ups: vec![[1, 0, SLOTS / 2]],
    }
}

/// A row for a cell of a study.
pub fn row_of(cell: &Cell) -> Row {
    let params = cell.workload.params(20.0);
    let mut row = row_with(cell.workload.name(), &cell.lock, params);
    if let Some(on) = &cell.on {
        row.machine = on.machine().to_owned();
        row.cpu = row.cpu.map(|cpu| CpuShares { spinning: Some(0.3), ..cpu });
        row.simulated = Some(SimulatedCounts { seed: on.seed, ..SimulatedCounts::default() });
    }
    row
}

/// A row with the roles that `params` names: `readers` and `writers`, or `threads` of which each does both.
pub fn row(workload: &str, lock: &str, list: &[(&str, f64)]) -> Row {
    row_with(workload, lock, params::of(list))
}

fn row_with(workload: &str, lock: &str, params: Params) -> Row {
    let params = registry::current(workload, params);
    let of = |name: &str| params::number(&params, name).unwrap_or(0.0);
    let mixed = params.contains_key("read_percent");
    let (readers, writers) = match workload {
        _ if mixed => (of("threads"), of("threads")),
        Forkstorm::NAME | ForkstormKernel::NAME => (0.0, of("threads")),
        _ => (of("readers"), of("writers")),
    };
    let threads = if mixed { of("threads") } else { readers + writers };
    let character = f64::from(lock.bytes().map(u32::from).sum::<u32>() % 17) + 4.0;
    let total = 4e5 * character / (1.0 + threads.max(1.0).log2());
    let mut roles = BTreeMap::new();
    for (role_name, count) in [("reader", readers), ("writer", writers)] {
        if count > 0.0 {
            let mut stats = role(count as u32, total * count / threads);
            let bytes = match role_name {
                "reader" => params::number(&params, "read_bytes"),
                _ => params::number(&params, "write_bytes"),
            };
            if workload.starts_with("dio") && workload != "dio-sleep" {
                stats.bytes_per_s =
                    bytes.map(|bytes| estimate(stats.ops_per_s.median * bytes / 100.0));
            }
            if workload.starts_with("readseek") && role_name == "reader" && writers > 0.0 {
                stats.torn = Some(0);
            }
            if [Forkstorm::NAME, Rmapstorm::NAME].contains(&workload) {
                stats.convoy = Some(Convoy { count: 1_000, mean: 1.3, p99: 4, max: 7 });
            }
            roles.insert(role_name.to_owned(), stats);
        }
    }
    if workload.starts_with("inversion") {
        roles.insert(LOW.to_owned(), role(1, total * 0.9));
        let inverted = Some(u64::from(lock.contains("list")));
        roles.insert(HIGH.to_owned(), RoleStats { inverted, ..role(1, total * 0.1) });
    }
    Row {
        workload: workload.to_owned(),
        lock: lock.to_owned(),
        machine: "here".to_owned(),
        params,
        repetitions: 3,
        discarded: 0,
        seconds: 0.3,
        total_ops_per_s: estimate(total),
        roles,
        voluntary_switches_per_s: total / 20.0,
        involuntary_switches_per_s: total / 900.0,
        cpu: Some(CpuShares { user: 0.7, system: 0.1, idle: 0.2, spinning: None }),
        events: lock.contains('-').then(|| LockEvents {
            seconds: 0.1,
            operations: (total / 10.0) as u64,
            counts: BTreeMap::from([("rwsem_sleep_writer".to_owned(), 300)]),
        }),
        simulated: None,
        limit: None,
        for_limit: false,
        locks: Vec::new(),
        samples: Samples::default(),
    }
}
