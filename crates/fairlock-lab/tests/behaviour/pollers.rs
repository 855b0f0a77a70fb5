//! Every poller runs the workloads in which threads wait for many sources, on real threads and on simulated
//! machines, and the one that loses events is caught.

use std::sync::Arc;
use std::time::Duration;

use fairlock_lab::error::{LabError, Violation};
use fairlock_lab::locks::Kind;
use fairlock_lab::measure::Repetition;
use fairlock_lab::plan::{self, Cell, KERNEL, Plan, Simulated, Workload};
use fairlock_lab::row::{RoleStats, Row};
use fairlock_lab::units::Length;
use fairlock_lab::workloads::Request;
use fairlock_lab::workloads::epoll::{self, Poller, Trigger};
use fairlock_lab::workloads::epoll_wait::{self, EpollWaitParams};
use fairlock_lab::workloads::stress_epoll::{self, StressEpollParams};
use fairlock_lab::world::RealWorld;
use fairlock_sim::profile::Profile;

fn here(workload: Workload, poller: &str) -> Cell {
    Cell { workload, lock: poller.to_string(), repetitions: 1, seconds: 0.003, on: None }
}

fn on(machine: &str, workload: Workload, poller: &str) -> Cell {
    let profile = match machine {
        "example" => Profile::example(),
        name => Profile::find(name).unwrap(),
    };
    let on = Some(Simulated { profile: Arc::new(profile), seed: 1, timeline_ns: 0 });
    Cell { seconds: 0.0003, on, ..here(workload, poller) }
}

fn simulated(workload: Workload, poller: &str) -> Cell {
    on("example", workload, poller)
}

fn stress(producers: u32, trigger: Trigger) -> Workload {
    Workload::StressEpoll(StressEpollParams { producers, trigger, ..StressEpollParams::default() })
}

fn wait(workers: u32, trigger: Trigger) -> EpollWaitParams {
    EpollWaitParams { workers, trigger, ..EpollWaitParams::default() }
}

/// One switch of `epoll-wait` each, and all together.
fn switched(workers: u32, trigger: Trigger) -> [EpollWaitParams; 5] {
    let plain = || wait(workers, trigger);
    [
        EpollWaitParams { shared: true, ..plain() },
        EpollWaitParams { polling: true, ..plain() },
        EpollWaitParams { nested: 4, ..plain() },
        EpollWaitParams { random: true, ..plain() },
        EpollWaitParams { shared: true, polling: true, nested: 2, random: true, ..plain() },
    ]
}

fn run(cells: Vec<Cell>) -> Result<Vec<Row>, LabError> {
    let names: Vec<String> = cells.iter().map(|cell| cell.lock.clone()).collect();
    let rows = plan::run(&Plan { cells }, &mut ())?;
    assert!(rows.iter().map(|row| &row.lock).eq(&names), "{names:?}");
    Ok(rows)
}

fn refusal(cell: Cell) -> String {
    run(vec![cell]).unwrap_err().to_string()
}

/// Those that wait in spin locks: real threads wait there for who was preempted.
fn that_spin() -> impl Iterator<Item = &'static str> {
    let all = epoll::registry().iter();
    all.filter(|poller| poller.kind == Kind::Reference).map(|poller| poller.name)
}

fn all_simulated() -> impl Iterator<Item = &'static str> {
    epoll::names(true).into_iter().chain(that_spin())
}

/// A reader and a writer with what each of them counts. How much they did on a busy machine is chance.
fn roles(row: &Row) -> (&RoleStats, &RoleStats) {
    let (reader, writer) = (&row.roles["reader"], &row.roles["writer"]);
    assert!(reader.wait_calls_per_s.is_some() && writer.wait_calls_per_s.is_none(), "{row:?}");
    assert_eq!(reader.wait, reader.latency, "{row:?}");
    assert_eq!((writer.wait.count, reader.hold.count, writer.hold.count), (0, 0, 0), "{row:?}");
    (reader, writer)
}

#[test]
fn every_poller_runs_stress_epoll_with_each_trigger() {
    let names = epoll::names(false);
    assert!(names.contains(&KERNEL));
    for trigger in Trigger::ALL {
        let few = names.iter().map(|name| here(stress(3, trigger), name));
        // As many threads as even a small machine has CPUs.
        let one = that_spin().map(|name| here(stress(1, trigger), name));
        for row in run(few.chain(one).collect()).unwrap() {
            let (reader, writer) = roles(&row);
            assert_eq!((reader.threads, f64::from(writer.threads)), (1, row.params["writers"]));
            assert_eq!(row.params["trigger"], f64::from(trigger.number()));
            // The first addition of each producer is timed, and is read whenever that is.
            assert!(reader.wait.count >= writer.threads.into(), "{row:?}");
        }
    }
}

#[test]
fn every_poller_runs_epoll_wait_with_each_trigger_and_switch() {
    let names = epoll::names(false);
    for trigger in Trigger::ALL {
        let plain = |workers| [wait(workers, trigger)].into_iter();
        for params in plain(2).chain(switched(2, trigger)) {
            let cells = names.iter().map(|name| here(Workload::EpollWait(params.clone()), name));
            for row in run(cells.collect()).unwrap() {
                let (reader, writer) = roles(&row);
                assert_eq!((reader.threads, writer.threads), (2, 1));
                assert_eq!(row.params, params.row_params());
            }
        }
        let one = that_spin().map(|name| here(Workload::EpollWait(wait(1, trigger)), name));
        for row in run(one.collect()).unwrap() {
            roles(&row);
        }
    }
}

#[test]
fn every_list_runs_stress_epoll_on_a_simulated_machine() {
    for trigger in Trigger::ALL {
        for row in
            run(all_simulated().map(|it| simulated(stress(4, trigger), it)).collect()).unwrap()
        {
            let (reader, writer) = roles(&row);
            assert_eq!((row.machine.as_str(), reader.threads, writer.threads), ("example", 1, 4));
            let (added, read) = (writer.ops_per_s.median, reader.ops_per_s.median);
            assert!(added >= read && read > 0.0 && reader.wait.count > 4, "{row:?}");
            assert!(reader.wait_calls_per_s.unwrap().median > 0.0, "{row:?}");
            assert!(row.simulated.unwrap().transfers > 0, "{row:?}");
        }
    }
}

#[test]
fn every_list_runs_epoll_wait_on_a_simulated_machine_with_each_switch() {
    for trigger in Trigger::ALL {
        for params in [wait(2, trigger)].into_iter().chain(switched(2, trigger)) {
            let cell = |name| simulated(Workload::EpollWait(params.clone()), name);
            for row in run(all_simulated().map(cell).collect()).unwrap() {
                let (reader, writer) = roles(&row);
                let (added, read) = (writer.ops_per_s.median, reader.ops_per_s.median);
                // A lock without a queue may let one in that asks and asks, and the writer never.
                if row.lock != "spin-list-ttas" || !params.polling {
                    assert!(added >= read && read > 0.0 && reader.wait.count > 0, "{row:?}");
                }
                // One event at a time.
                assert!(reader.wait_calls_per_s.unwrap().median >= read, "{row:?}");
            }
        }
    }
}

/// With more threads than CPUs, one that spins in a queue keeps its CPU, or nobody ever has a turn.
#[test]
fn lists_that_only_spin_end_with_more_threads_than_cpus() {
    for workload in [stress(9, Trigger::Level), Workload::EpollWait(wait(9, Trigger::Level))] {
        let cell = |name| Cell { seconds: 0.003, ..on("riscv-4", workload.clone(), name) };
        for row in run(that_spin().map(cell).collect()).unwrap() {
            assert!(row.roles["reader"].ops_per_s.median > 0.0, "{row:?}");
        }
    }
}

#[test]
fn the_same_seeds_give_the_same_rows_of_pollers() {
    let shared = EpollWaitParams { shared: true, random: true, ..wait(3, Trigger::Once) };
    for workload in [stress(4, Trigger::Level), Workload::EpollWait(shared)] {
        let rows = |seed| {
            let cell = |name| {
                let cell = simulated(workload.clone(), name);
                let on = cell.on.map(|on| Simulated { seed, ..on });
                Cell { repetitions: 2, seconds: 0.0002, on, ..cell }
            };
            run(all_simulated().map(cell).collect()).unwrap()
        };
        let first = rows(1);
        for (one, again) in first.iter().zip(rows(1)) {
            assert_eq!(*one, again);
        }
        assert_ne!(first, rows(9));
    }
}

fn assert_deaf_is_caught(cell: Cell) {
    let name = cell.workload.name();
    match run(vec![cell]) {
        Err(LabError::Broken { lock, workload, violation }) => {
            assert_eq!((lock.as_str(), workload), ("deaf", name));
            let Violation::LostEvents { written, read } = violation else {
                panic!("`{name}` saw something else: {violation}");
            };
            assert!(written > read, "{written} {read}");
        }
        other => panic!("`{name}` did not notice: {other:?}"),
    }
}

#[test]
fn a_poller_that_loses_events_is_caught() {
    for trigger in Trigger::ALL {
        let shared = EpollWaitParams { shared: true, ..wait(2, trigger) };
        for workload in
            [stress(2, trigger), Workload::EpollWait(wait(2, trigger)), Workload::EpollWait(shared)]
        {
            assert_deaf_is_caught(here(workload.clone(), "deaf"));
            assert_deaf_is_caught(simulated(workload, "deaf"));
        }
    }
}

/// Panics where it is called by writers, or by readers.
struct Panics<const IN_WAIT: bool>;

impl<const IN_WAIT: bool> Poller for Panics<IN_WAIT> {
    type Counter = ();
    type Batch = ();

    fn new() -> Result<Self, LabError> {
        Ok(Panics)
    }

    fn counter() -> Result<(), LabError> {
        Ok(())
    }

    fn register(&self, _: &(), _: u64, _: Trigger) -> Result<(), LabError> {
        Ok(())
    }

    fn rearm(&self, _: &(), _: u64) -> Result<(), LabError> {
        Ok(())
    }

    fn enclose(&self, _: &Self) -> Result<(), LabError> {
        Ok(())
    }

    fn batch(_: usize) {}

    fn wait(&self, _: &mut (), _: Duration) -> Result<usize, LabError> {
        assert!(!IN_WAIT, "a reader panics");
        Ok(0)
    }

    fn token(_: &(), _: usize) -> u64 {
        0
    }

    fn add(_: &()) -> Result<(), LabError> {
        assert!(IN_WAIT, "a writer panics");
        Ok(())
    }

    fn read(_: &()) -> Result<Option<u64>, LabError> {
        Ok(None)
    }
}

#[test]
fn a_poller_that_panics_ends_the_run() {
    let world = &RealWorld::new(false);
    let request = Request { world, lock: "panics", duration_ns: 1_000_000, cancelled: &|| false };
    let said = |result: Result<Repetition, LabError>| match result {
        Err(LabError::Panicked(message)) => message,
        other => panic!("{other:?}"),
    };
    let (few, fine) = (StressEpollParams::default(), wait(2, Trigger::Level));
    for message in [
        said(stress_epoll::run::<_, Panics<false>>(&request, &few)),
        said(epoll_wait::run::<_, Panics<false>>(&request, &fine)),
    ] {
        assert_eq!(message, "a writer panics");
    }
    for message in [
        said(stress_epoll::run::<_, Panics<true>>(&request, &few)),
        said(epoll_wait::run::<_, Panics<true>>(&request, &fine)),
    ] {
        assert_eq!(message, "a reader panics");
    }
}

#[test]
fn what_pollers_cannot_run_is_refused_with_what_they_can() {
    let stress = |params| here(Workload::StressEpoll(params), "ready");
    let wait = |params| here(Workload::EpollWait(params), "ready");
    let (few, fine) = (StressEpollParams::default, EpollWaitParams::default);
    let long = Length::Nanoseconds(2_000_000_000);
    for (cell, words) in [
        (stress(StressEpollParams { producers: 0, ..few() }), ["`writers` is 0;", "1 to 4096"]),
        (stress(StressEpollParams { producers: 4097, ..few() }), ["`writers` is 4097", "to 4096"]),
        (stress(StressEpollParams { think: long, ..few() }), ["`think` is 2", "one second"]),
        (wait(EpollWaitParams { workers: 0, ..fine() }), ["`readers` is 0;", "1 to 4096"]),
        (wait(EpollWaitParams { sources: 0, ..fine() }), ["`sources` is 0;", "1 to 4096"]),
        (wait(EpollWaitParams { sources: 4097, ..fine() }), ["`sources` is 4097;", "1 to 4096"]),
        (wait(EpollWaitParams { nested: 5, ..fine() }), ["`nested` is 5;", "0 to 4"]),
        (here(Workload::EpollWait(fine()), "std"), ["no poller `std`", "kernel, ready, "]),
        (simulated(Workload::EpollWait(fine()), "foo"), ["no poller `foo`", "valid: ready, "]),
        (
            simulated(Workload::StressEpoll(few()), KERNEL),
            ["poller `kernel` runs on real threads only", "on a simulated machine: ready, "],
        ),
    ] {
        let said = refusal(cell);
        for word in words {
            assert!(said.contains(word), "`{said}` lacks `{word}`");
        }
        assert!(!said.contains("deaf"), "{said}");
    }
}
