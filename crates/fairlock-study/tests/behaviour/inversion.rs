//! Who waits for a preempted thread of low priority: exact figures on a simulated machine, and that it
//! runs on this one where real-time threads are permitted.

use std::sync::Arc;

use fairlock_lab::error::LabError;
use fairlock_lab::workload::AnyWorkload;
use fairlock_lab::workloads::inversion::{
    Access, HIGHEST_PRIORITY, InversionList, InversionLock, Times,
};
use fairlock_lab::world::probe_real_time;
use fairlock_report::row::{RoleStats, Row};
use fairlock_sim::profile::Profile;
use fairlock_study::plan::{self, Cell, Plan, Simulated};
use fairlock_study::registry;

const HOG_NS: u64 = 200_000;

/// A hog that comes often, so that short runs show what long ones do.
fn times() -> Times {
    Times { hog_ns: HOG_NS, hog_every_ns: HOG_NS, high_every_ns: HOG_NS / 10, ..Times::default() }
}

/// Where everything runs slowly, a hog that comes as often leaves too little.
fn slow_times() -> Times {
    let times = times();
    Times { hog_every_ns: times.hog_every_ns * 4, ..times }
}

fn of_lock(times: Times) -> InversionLock {
    InversionLock { times, ..InversionLock::default() }
}

fn of_list(times: Times) -> InversionList {
    InversionList { times }
}

fn simulated(workload: impl Into<AnyWorkload>, lock: &str) -> Cell {
    let profile = Arc::new(Profile::example());
    Cell {
        workload: workload.into(),
        lock: lock.to_string(),
        repetitions: 6,
        seconds: 0.004,
        on: Some(Simulated::of(profile, 1)),
        for_limit: false,
    }
}

fn here(workload: impl Into<AnyWorkload>, lock: &str) -> Cell {
    let (workload, lock) = (workload.into(), lock.to_string());
    Cell { workload, lock, repetitions: 1, seconds: 0.03, on: None, for_limit: false }
}

fn run(cell: Cell) -> Result<Row, LabError> {
    let rows = plan::run(&Plan::new(vec![cell]), &mut ())?;
    Ok(rows.into_iter().next().expect("one row for one cell"))
}

/// What the high one did on a simulated machine.
fn high(workload: impl Into<AnyWorkload>, lock: &str) -> RoleStats {
    run(simulated(workload, lock)).unwrap().roles["high"].clone()
}

fn is_permitted() -> bool {
    let probed = probe_real_time(HIGHEST_PRIORITY);
    probed.inspect_err(|error| eprintln!("the part with real threads is left out: {error}")).is_ok()
}

#[test]
fn a_ready_list_never_waits_for_a_producer() {
    let high = high(of_list(times()), "ready");
    assert!(high.wait.count > 500, "{high:?}");
    assert_eq!(high.inverted, Some(0));
    assert!(high.wait.max < 10_000, "{high:?}");
}

#[test]
fn lists_under_a_lock_wait_for_the_hog() {
    for list in ["rwlock-list", "spin-list"] {
        let high = high(of_list(times()), list);
        assert!(high.inverted > Some(0), "{list}: {high:?}");
        assert!((HOG_NS / 2..HOG_NS * 2).contains(&high.wait.max), "{list}: {high:?}");
    }
}

#[test]
fn locks_without_inheritance_wait_for_the_hog() {
    for lock in ["rwlock", "rwsem", "mutex"] {
        let high = high(of_lock(times()), lock);
        assert!(high.inverted > Some(0) && high.wait.max >= HOG_NS / 2, "{lock}: {high:?}");
    }
}

#[test]
fn with_inheritance_there_is_a_section_to_wait_for_and_no_hog() {
    let high = high(of_lock(times()), "pthread-inherit");
    assert_eq!(high.inverted, Some(0));
    let section = times().work_ns;
    // It met sections, and nothing longer than one and being woken.
    assert!((section / 2..section + 10_000).contains(&high.wait.max), "{high:?}");
}

#[test]
fn readers_do_not_wait_for_readers() {
    for lock in ["rwlock", "rwsem"] {
        let both = InversionLock { low: Access::Reads, high: Access::Reads, ..of_lock(times()) };
        let high = high(both, lock);
        assert!(high.wait.max < times().work_ns / 2, "{lock}: {high:?}");
    }
}

#[test]
fn a_reader_and_a_writer_wait_for_each_other() {
    for (low, high) in [(Access::Reads, Access::Writes), (Access::Writes, Access::Reads)] {
        let stats = self::high(InversionLock { low, high, ..of_lock(times()) }, "rwlock");
        assert!(stats.inverted > Some(0), "{low:?} {high:?}: {stats:?}");
    }
}

#[test]
fn the_same_seeds_give_the_same_rows() {
    let row = || run(simulated(of_lock(times()), "rwsem")).unwrap();
    assert_eq!(row(), row());
}

#[test]
fn a_broken_lock_is_caught() {
    let error = run(simulated(of_lock(times()), "broken")).unwrap_err();
    assert!(matches!(error, LabError::Broken { .. }), "{error}");
}

#[test]
fn what_it_cannot_run_is_refused_with_the_reason() {
    let refused = |cell: Cell| run(cell).unwrap_err().to_string();
    for cell in [here(of_lock(slow_times()), "ticket"), simulated(of_lock(times()), "mcs")] {
        let message = refused(cell);
        assert!(message.contains("spins until it is free"), "{message}");
    }
    let message = refused(here(of_list(slow_times()), "mutex"));
    assert!(message.contains("`mutex`") && message.contains("ready, rwlock-list"), "{message}");
    let message = refused(simulated(of_list(times()), "kernel"));
    assert!(message.contains("`kernel` runs on real threads only"), "{message}");
    let busy = Times { hog_every_ns: HOG_NS / 2, ..times() };
    let message = refused(here(of_lock(busy), "mutex"));
    assert!(message.contains("`hog_every_ns`"), "{message}");
}

#[test]
fn it_runs_here_where_that_is_permitted() {
    if !is_permitted() {
        let error = run(here(of_lock(slow_times()), "mutex")).unwrap_err();
        assert!(matches!(error, LabError::NoRealTime { .. }), "{error}");
        return;
    }
    let forms: [AnyWorkload; 2] = [of_list(slow_times()).into(), of_lock(slow_times()).into()];
    for form in forms {
        for lock in registry::all_locks(form.name(), false) {
            match run(here(form.clone(), lock)) {
                Ok(row) => {
                    assert_eq!((row.roles["high"].threads, row.roles["low"].threads), (1, 1));
                }
                // Where everything runs slowly, the little that they sleep is too little.
                Err(LabError::HeldUp { .. }) => {}
                Err(error) => panic!("{lock}: {error}"),
            }
        }
    }
}
