//! Every poller runs the workloads in which threads wait for many sources, on real threads and on simulated
//! machines, and the one that loses events is caught.

use std::time::Duration;

use clap::ValueEnum;
use fairlock_lab::error::{LabError, Violation};
use fairlock_lab::locks::{KERNEL, Kind};
use fairlock_lab::measure::Repetition;
use fairlock_lab::pollers::{self, Poller, Trigger};
use fairlock_lab::workload::{AnyWorkload, Request, WithPoller};
use fairlock_lab::workloads::epoll_wait::EpollWait;
use fairlock_lab::workloads::stress_epoll::StressEpoll;
use fairlock_lab::world::{RealWorld, pause_ns, probe_real_time};
use fairlock_report::params::{self, Value};
use fairlock_report::row::{RoleStats, Row};
use fairlock_report::units::Length;
use fairlock_sim::profile::Profile;
use fairlock_study::plan::{self, Cell, Plan, Simulated};

fn here(workload: impl Into<AnyWorkload>, poller: &str) -> Cell {
    let (workload, lock) = (workload.into(), poller.to_string());
    Cell { workload, lock, repetitions: 1, seconds: 0.003, on: None, for_limit: false }
}

fn on(machine: &str, workload: impl Into<AnyWorkload>, poller: &str) -> Cell {
    let profile = match machine {
        "example" => Profile::example(),
        name => Profile::find(name).unwrap(),
    };
    let on = Some(Simulated::of(profile, 1));
    Cell { seconds: 0.0003, on, ..here(workload, poller) }
}

fn simulated(workload: impl Into<AnyWorkload>, poller: &str) -> Cell {
    on("example", workload, poller)
}

fn stress(writers: u32, trigger: Trigger) -> StressEpoll {
    StressEpoll { writers, trigger, ..StressEpoll::default() }
}

fn wait(readers: u32, trigger: Trigger) -> EpollWait {
    EpollWait { readers, trigger, ..EpollWait::default() }
}

/// One switch of `epoll-wait` each, and all together.
fn switched(workers: u32, trigger: Trigger) -> [EpollWait; 5] {
    let plain = || wait(workers, trigger);
    [
        EpollWait { shared: true, ..plain() },
        EpollWait { polling: true, ..plain() },
        EpollWait { nested: 4, ..plain() },
        EpollWait { random: true, ..plain() },
        EpollWait { shared: true, polling: true, nested: 2, random: true, ..plain() },
    ]
}

fn triggers() -> impl Iterator<Item = Trigger> {
    Trigger::value_variants().iter().copied()
}

/// As rows have it.
fn name_of(trigger: Trigger) -> Value {
    let name = trigger.to_possible_value().expect("none is hidden");
    Value::from(name.get_name())
}

fn run(cells: Vec<Cell>) -> Result<Vec<Row>, LabError> {
    let names: Vec<String> = cells.iter().map(|cell| cell.lock.clone()).collect();
    let rows = plan::run(&Plan::new(cells), &mut ())?;
    assert!(rows.iter().map(|row| &row.lock).eq(&names), "{names:?}");
    Ok(rows)
}

fn refusal(cell: Cell) -> String {
    run(vec![cell]).unwrap_err().to_string()
}

/// Those that wait in spin locks: real threads wait there for who was preempted.
fn that_spin() -> impl Iterator<Item = &'static str> {
    let all = pollers::registry().iter();
    all.filter(|poller| poller.kind == Kind::Reference).map(|poller| poller.name)
}

fn all_simulated() -> impl Iterator<Item = &'static str> {
    pollers::names(true).into_iter().chain(that_spin())
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
    let names = pollers::names(false);
    assert!(names.contains(&KERNEL));
    for trigger in triggers() {
        let few = names.iter().map(|name| here(stress(3, trigger), name));
        // As many threads as even a small machine has CPUs.
        let one = that_spin().map(|name| here(stress(1, trigger), name));
        for row in run(few.chain(one).collect()).unwrap() {
            let (reader, writer) = roles(&row);
            let writers = params::number(&row.params, "writers");
            assert_eq!((reader.threads, Some(f64::from(writer.threads))), (1, writers));
            assert_eq!(row.params["trigger"], name_of(trigger));
            // The first addition of each producer is timed, and is read whenever that is.
            assert!(reader.wait.count >= writer.threads.into(), "{row:?}");
        }
    }
}

/// All of them, by the names in rows.
fn row_params(wait: &EpollWait) -> params::Params {
    let numbers = [
        ("readers", wait.readers),
        ("writers", wait.writers),
        ("sources", wait.sources),
        ("nested", wait.nested),
    ];
    let flags = [("shared", wait.shared), ("polling", wait.polling), ("random", wait.random)];
    let numbers = numbers.map(|(name, number)| (name, Value::from(number)));
    let flags = flags.map(|(name, flag)| (name, Value::from(flag)));
    let others = [("trigger", name_of(wait.trigger)), ("pause_ns", pause_ns().into())];
    let all = numbers.into_iter().chain(flags).chain(others);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

#[test]
fn every_poller_runs_epoll_wait_with_each_trigger_and_switch() {
    let names = pollers::names(false);
    for trigger in triggers() {
        let plain = |workers| [wait(workers, trigger)].into_iter();
        for params in plain(2).chain(switched(2, trigger)) {
            let cells = names.iter().map(|name| here(params.clone(), name));
            for row in run(cells.collect()).unwrap() {
                let (reader, writer) = roles(&row);
                assert_eq!((reader.threads, writer.threads), (2, 1));
                assert_eq!(row.params, row_params(&params));
            }
        }
        let one = that_spin().map(|name| here(wait(1, trigger), name));
        for row in run(one.collect()).unwrap() {
            roles(&row);
        }
    }
}

#[test]
fn every_list_runs_stress_epoll_on_a_simulated_machine() {
    for trigger in triggers() {
        // A mutex that lets threads pass may keep the reader out for as long as this runs, unless
        // the writers think.
        let stress = || StressEpoll { think: Length::Pauses(20), ..stress(4, trigger) };
        for row in run(all_simulated().map(|it| simulated(stress(), it)).collect()).unwrap() {
            let (reader, writer) = roles(&row);
            assert_eq!((row.machine.as_str(), reader.threads, writer.threads), ("example", 1, 4));
            let (added, read) = (writer.ops_per_s.median, reader.ops_per_s.median);
            // Rates of equal counts may differ in their last digit.
            assert!(added >= read - 1.0 && read > 0.0 && reader.wait.count > 4, "{row:?}");
            assert!(reader.wait_calls_per_s.unwrap().median > 0.0, "{row:?}");
            assert!(row.simulated.unwrap().transfers > 0, "{row:?}");
        }
    }
}

#[test]
fn every_list_runs_epoll_wait_on_a_simulated_machine_with_each_switch() {
    for trigger in triggers() {
        for params in [wait(2, trigger)].into_iter().chain(switched(2, trigger)) {
            let cell = |name| simulated(params.clone(), name);
            for row in run(all_simulated().map(cell).collect()).unwrap() {
                let (reader, writer) = roles(&row);
                let (added, read) = (writer.ops_per_s.median, reader.ops_per_s.median);
                // A lock without a queue may let one in that asks and asks, and the writer never.
                if row.lock != "spin-list-ttas" || !params.polling {
                    assert!(added >= read - 1.0 && read > 0.0 && reader.wait.count > 0, "{row:?}");
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
    let workloads: [AnyWorkload; 2] =
        [stress(9, Trigger::Level).into(), wait(9, Trigger::Level).into()];
    for workload in workloads {
        let cell = |name| Cell { seconds: 0.003, ..on("riscv-4", workload.clone(), name) };
        for row in run(that_spin().map(cell).collect()).unwrap() {
            assert!(row.roles["reader"].ops_per_s.median > 0.0, "{row:?}");
        }
    }
}

#[test]
fn the_same_seeds_give_the_same_rows_of_pollers() {
    let shared = EpollWait { shared: true, random: true, ..wait(3, Trigger::Once) };
    let workloads: [AnyWorkload; 2] = [stress(4, Trigger::Level).into(), shared.into()];
    for workload in workloads {
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
        Err(LabError::Broken { subject, lock, workload, violation }) => {
            assert_eq!((subject, lock.as_str(), workload), ("poller", "deaf", name));
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
    for trigger in triggers() {
        let shared = EpollWait { shared: true, ..wait(2, trigger) };
        let workloads: [AnyWorkload; 3] =
            [stress(2, trigger).into(), wait(2, trigger).into(), shared.into()];
        for workload in workloads {
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
    let request = Request::new(world, "panics", 1_000_000);
    let said = |result: Result<Repetition, LabError>| match result {
        Err(LabError::Panicked(message)) => message,
        other => panic!("{other:?}"),
    };
    let (few, fine) = (StressEpoll::default(), wait(2, Trigger::Level));
    for message in [
        said(few.run_with::<_, Panics<false>>(&request)),
        said(fine.run_with::<_, Panics<false>>(&request)),
    ] {
        assert_eq!(message, "a writer panics");
    }
    for message in [
        said(few.run_with::<_, Panics<true>>(&request)),
        said(fine.run_with::<_, Panics<true>>(&request)),
    ] {
        assert_eq!(message, "a reader panics");
    }
}

#[test]
fn the_consumer_may_be_a_real_time_thread_where_that_is_permitted() {
    let think = Length::Nanoseconds(100_000);
    let params = StressEpoll { consumer_priority: 1, think, ..stress(2, Trigger::Level) };
    let cells = vec![Cell { seconds: 0.05, ..here(params, KERNEL) }];
    match (probe_real_time(2), plan::run(&Plan::new(cells), &mut ())) {
        (Ok(()), Ok(rows)) => assert!(rows[0].roles["reader"].ops_per_s.median > 0.0, "{rows:?}"),
        // Where everything runs slowly, it takes nearly all of its CPU.
        (Ok(()), Err(LabError::HeldUp { .. })) => {}
        (Err(_), Err(LabError::NoRealTime { .. })) => {}
        (_, other) => panic!("{other:?}"),
    }
}

#[test]
fn what_pollers_cannot_run_is_refused_with_what_they_can() {
    let stress = |params: StressEpoll| here(params, "ready");
    let wait = |params: EpollWait| here(params, "ready");
    let (few, fine) = (StressEpoll::default, EpollWait::default);
    let long = Length::Nanoseconds(2_000_000_000);
    for (cell, words) in [
        (stress(StressEpoll { writers: 0, ..few() }), ["`writers` is 0;", "1 to 4096"]),
        (stress(StressEpoll { writers: 4097, ..few() }), ["`writers` is 4097", "to 4096"]),
        (stress(StressEpoll { readers: 2, ..few() }), ["`readers` is 2;", "one thread waits"]),
        (stress(StressEpoll { think: long, ..few() }), ["`think` is 2", "one second"]),
        (
            stress(StressEpoll { consumer_priority: 99, ..few() }),
            ["`consumer_priority` is 99", "0 to 98"],
        ),
        (
            simulated(StressEpoll { consumer_priority: 1, ..few() }, "ready"),
            ["`consumer_priority` is 1", "on a simulated machine"],
        ),
        (wait(EpollWait { readers: 0, ..fine() }), ["`readers` is 0;", "1 to 4096"]),
        (wait(EpollWait { writers: 0, ..fine() }), ["`writers` is 0;", "one thread adds"]),
        (wait(EpollWait { sources: 0, ..fine() }), ["`sources` is 0;", "1 to 4096"]),
        (wait(EpollWait { sources: 4097, ..fine() }), ["`sources` is 4097;", "1 to 4096"]),
        (wait(EpollWait { nested: 5, ..fine() }), ["`nested` is 5;", "0 to 4"]),
        (here(fine(), "std"), ["no poller `std`", "kernel, ready, "]),
        (simulated(fine(), "foo"), ["no poller `foo`", "valid: ready, "]),
        (
            simulated(few(), KERNEL),
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
