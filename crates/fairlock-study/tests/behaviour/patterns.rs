//! Patterns and shards under every lock that they are for, here and on a simulated machine. A
//! broken lock is caught.

use fairlock_lab::error::LabError;
use fairlock_lab::locks;
use fairlock_lab::workload::AnyWorkload;
use fairlock_lab::workloads::patterns::{Pattern, Patterns};
use fairlock_lab::workloads::shards::Shards;
use fairlock_report::params::Value;
use fairlock_report::row::Row;
use fairlock_report::units::Length;
use fairlock_sim::profile::Profile;
use fairlock_study::plan::{self, Cell, Plan, Simulated};
use fairlock_study::registry;

fn here(workload: impl Into<AnyWorkload>, lock: &str) -> Cell {
    let (workload, lock) = (workload.into(), lock.to_string());
    Cell { workload, lock, repetitions: 1, seconds: 0.005, on: None, for_limit: false }
}

fn simulated(workload: impl Into<AnyWorkload>, lock: &str) -> Cell {
    let on = Some(Simulated::of(Profile::example(), 1));
    Cell { seconds: 0.0003, on, ..here(workload, lock) }
}

fn run(cells: Vec<Cell>) -> Result<Vec<Row>, LabError> {
    plan::run(&Plan::new(cells), &mut ())
}

fn of(pattern: Pattern, threads: u32) -> Patterns {
    Patterns { pattern, threads, ..Patterns::default() }
}

/// Each pattern with few and with several places, and with each way to notify.
fn patterns() -> Vec<Patterns> {
    let queue = |senders, places| Patterns {
        senders: Some(senders),
        places: Some(places),
        ..of(Pattern::Queue, 3)
    };
    let of_places = |pattern, places| Patterns { places: Some(places), ..of(pattern, 3) };
    let plain = [
        queue(1, 1),
        queue(3, 2),
        Patterns { notify_all: true, ..queue(2, 1) },
        of(Pattern::Barrier, 1),
        of(Pattern::Barrier, 4),
        of_places(Pattern::Semaphore, 1),
        of_places(Pattern::Semaphore, 2),
        of_places(Pattern::Pool, 1),
        of_places(Pattern::Pool, 5),
        of(Pattern::Handoff, 2),
        Patterns { notify_all: true, ..of(Pattern::Handoff, 3) },
    ];
    let unlock_first = plain.clone().map(|params| Patterns { unlock_first: true, ..params });
    plain.into_iter().chain(unlock_first).collect()
}

/// The names of the roles that did something, which each of them has to.
fn active(row: &Row) -> Vec<&str> {
    assert!(row.roles.values().all(|role| role.wait.count > 0), "{row:?}");
    row.roles.keys().map(String::as_str).collect()
}

#[test]
fn every_mutex_with_a_condition_variable_runs_every_pattern() {
    for params in patterns() {
        let names = registry::all_locks("patterns", false);
        assert!(names.contains(&"mutex") && names.contains(&"pthread-mutex"));
        let rows = run(names.iter().map(|lock| here(params.clone(), lock)).collect()).unwrap();
        assert!(rows.iter().map(|row| row.lock.as_str()).eq(names));
        for row in rows {
            let expected: &[&str] = match params.pattern {
                Pattern::Queue => &["receiver", "sender"],
                Pattern::Pool => &["worker"],
                _ => &["thread"],
            };
            assert_eq!(row.roles.keys().collect::<Vec<_>>(), expected);
            let threads: Vec<u32> = row.roles.values().map(|role| role.threads).collect();
            assert_eq!(threads[0], params.threads);
            assert_eq!(threads.get(1).copied(), params.senders);
        }
    }
}

#[test]
fn every_pattern_runs_on_a_simulated_machine_and_repeats_itself() {
    for params in patterns() {
        let names = registry::all_locks("patterns", true);
        assert!(names.contains(&"std-mutex") && names.contains(&"parking_lot-mutex-0.12"));
        let rows = |seed| {
            let cells = names.iter().map(|lock| {
                let cell = simulated(params.clone(), lock);
                let on = cell.on.map(|on| Simulated { seed, ..on });
                Cell { on, ..cell }
            });
            run(cells.collect()).unwrap()
        };
        let first = rows(1);
        for (row, again) in first.iter().zip(rows(1)) {
            assert_eq!(*row, again);
            assert!(!active(row).is_empty() && row.total_ops_per_s.median > 0.0, "{row:?}");
        }
        assert_ne!(first, rows(9));
    }
}

#[test]
fn every_lock_runs_shards_here_and_simulated() {
    for read_percent in [0.0, 90.0, 100.0] {
        let params = Shards { threads: 3, shards: 4, read_percent, ..Shards::default() };
        let names = locks::all();
        let rows = run(names.iter().map(|lock| here(params.clone(), lock)).collect()).unwrap();
        assert_eq!(rows.len(), names.len());
        let names = locks::simulated_names();
        let rows = || run(names.iter().map(|lock| simulated(params.clone(), lock)).collect());
        for (row, again) in rows().unwrap().iter().zip(rows().unwrap()) {
            assert_eq!(*row, again);
            let expected: &[&str] = match read_percent {
                0.0 => &["writer"],
                100.0 => &["reader"],
                _ => &["reader", "writer"],
            };
            assert_eq!(active(row), expected);
            assert_eq!(row.params["shards"], Value::from(4));
        }
    }
}

#[test]
fn a_broken_lock_is_caught() {
    let shards = |read_percent| Shards { read_percent, shards: 1, ..Shards::default() };
    let of_shards = [shards(0.0), shards(50.0)].map(AnyWorkload::from);
    // A barrier of one and a handoff of two leave nothing to be excluded from.
    let of_patterns = patterns().into_iter().filter(|params| params.threads > 2);
    for workload in of_shards.into_iter().chain(of_patterns.map(AnyWorkload::from)) {
        for cell in [here(workload.clone(), "broken"), simulated(workload.clone(), "broken")] {
            // The first violation ends the run; the length only bounds a check that does not work.
            match run(vec![Cell { seconds: if cell.on.is_some() { 0.1 } else { 10.0 }, ..cell }]) {
                Err(LabError::Broken { lock, .. }) => assert_eq!(lock, "broken"),
                other => panic!("{workload:?} did not notice: {other:?}"),
            }
        }
    }
}

#[test]
fn what_patterns_cannot_run_is_refused_with_what_they_can() {
    let barrier = || of(Pattern::Barrier, 2);
    let semaphore = || of(Pattern::Semaphore, 2);
    let long = Length::Nanoseconds(2_000_000_000);
    for (cell, words) in [
        (here(of(Pattern::Queue, 0), "mutex"), ["`threads` is 0;", "1 to 4096"]),
        (
            here(Patterns { senders: Some(2), ..barrier() }, "mutex"),
            ["`senders` is 2;", "none but for a queue"],
        ),
        (
            here(Patterns { places: Some(2), ..barrier() }, "mutex"),
            ["`places` is 2;", "a semaphore or a pool"],
        ),
        (here(Patterns { places: Some(0), ..semaphore() }, "mutex"), ["`places` is 0;", "1 to"]),
        (
            here(Patterns { notify_all: true, ..semaphore() }, "mutex"),
            ["`notify_all` is true;", "only for a queue or a handoff"],
        ),
        (here(Patterns { work: long, ..barrier() }, "mutex"), ["`work` is 2", "one second"]),
        (here(barrier(), "rwsem"), ["lock `rwsem` has no condition variable;", "pthread-mutex"]),
        (
            simulated(barrier(), "pthread-mutex"),
            ["`pthread-mutex` has no condition variable on a simulated machine", "std-mutex"],
        ),
        (here(Shards { shards: 0, ..Shards::default() }, "std"), ["`shards` is 0;", "1 to 65536"]),
    ] {
        let said = run(vec![cell]).unwrap_err().to_string();
        for word in words {
            assert!(said.contains(word), "`{said}` lacks `{word}`");
        }
        assert!(!said.contains("broken"), "{said}");
    }
}
