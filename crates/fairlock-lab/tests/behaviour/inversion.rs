//! Who waits for a preempted thread of low priority: exact figures on a simulated machine, and that it
//! runs on this one where real-time threads are permitted.

use std::process::Command;
use std::sync::Arc;

use fairlock_lab::error::LabError;
use fairlock_lab::plan::{self, Cell, Plan, Simulated, Workload};
use fairlock_lab::row::{RoleStats, Row};
use fairlock_lab::workloads::inversion::{HIGHEST_PRIORITY, InversionForm, InversionParams};
use fairlock_lab::world::probe_real_time;
use fairlock_sim::profile::Profile;

const HOG_NS: u64 = 200_000;

/// A hog that comes often, so that short runs show what long ones do.
fn params(form: InversionForm) -> InversionParams {
    InversionParams {
        form,
        hog_ns: HOG_NS,
        hog_every_ns: HOG_NS,
        high_every_ns: HOG_NS / 10,
        ..InversionParams::default()
    }
}

fn simulated(params: &InversionParams, lock: &str) -> Cell {
    let profile = Arc::new(Profile::example());
    Cell {
        workload: Workload::Inversion(params.clone()),
        lock: lock.to_string(),
        repetitions: 6,
        seconds: 0.004,
        on: Some(Simulated { profile, seed: 1, timeline_ns: 0 }),
    }
}

fn here(params: &InversionParams, lock: &str) -> Cell {
    // Where everything runs slowly, a hog that comes as often leaves too little.
    let hog_every_ns = params.hog_every_ns.saturating_mul(4);
    let workload = Workload::Inversion(InversionParams { hog_every_ns, ..params.clone() });
    Cell { workload, lock: lock.to_string(), repetitions: 1, seconds: 0.03, on: None }
}

fn run(cell: Cell) -> Result<Row, LabError> {
    let rows = plan::run(&Plan { cells: vec![cell] }, &mut ())?;
    Ok(rows.into_iter().next().expect("one row for one cell"))
}

/// What the high one did on a simulated machine.
fn high(params: &InversionParams, lock: &str) -> RoleStats {
    run(simulated(params, lock)).unwrap().roles["high"].clone()
}

fn is_permitted() -> bool {
    let probed = probe_real_time(HIGHEST_PRIORITY);
    probed.inspect_err(|error| eprintln!("the part with real threads is left out: {error}")).is_ok()
}

#[test]
fn a_ready_list_never_waits_for_a_producer() {
    let high = high(&params(InversionForm::List), "ready");
    assert!(high.wait.count > 500, "{high:?}");
    assert_eq!(high.inverted, Some(0));
    assert!(high.wait.max < 10_000, "{high:?}");
}

#[test]
fn lists_under_a_lock_wait_for_the_hog() {
    for list in ["rwlock-list", "spin-list"] {
        let high = high(&params(InversionForm::List), list);
        assert!(high.inverted > Some(0), "{list}: {high:?}");
        assert!((HOG_NS / 2..HOG_NS * 2).contains(&high.wait.max), "{list}: {high:?}");
    }
}

#[test]
fn locks_without_inheritance_wait_for_the_hog() {
    for lock in ["rwlock", "rwsem", "mutex"] {
        let high = high(&params(InversionForm::Lock), lock);
        assert!(high.inverted > Some(0) && high.wait.max >= HOG_NS / 2, "{lock}: {high:?}");
    }
}

#[test]
fn with_inheritance_there_is_a_section_to_wait_for_and_no_hog() {
    let params = params(InversionForm::Lock);
    let high = high(&params, "pthread-inherit");
    assert_eq!(high.inverted, Some(0));
    let section = params.work_ns;
    // It met sections, and nothing longer than one and being woken.
    assert!((section / 2..section + 10_000).contains(&high.wait.max), "{high:?}");
}

#[test]
fn readers_do_not_wait_for_readers() {
    let params =
        InversionParams { low_reads: true, high_reads: true, ..params(InversionForm::Lock) };
    for lock in ["rwlock", "rwsem"] {
        let high = high(&params, lock);
        assert!(high.wait.max < params.work_ns / 2, "{lock}: {high:?}");
    }
}

#[test]
fn a_reader_and_a_writer_wait_for_each_other() {
    for (low_reads, high_reads) in [(true, false), (false, true)] {
        let params = InversionParams { low_reads, high_reads, ..params(InversionForm::Lock) };
        let high = high(&params, "rwlock");
        assert!(high.inverted > Some(0), "{low_reads} {high_reads}: {high:?}");
    }
}

#[test]
fn the_same_seeds_give_the_same_rows() {
    let row = || run(simulated(&params(InversionForm::Lock), "rwsem")).unwrap();
    assert_eq!(row(), row());
}

#[test]
fn a_broken_lock_is_caught() {
    let error = run(simulated(&params(InversionForm::Lock), "broken")).unwrap_err();
    assert!(matches!(error, LabError::Broken { .. }), "{error}");
}

#[test]
fn what_it_cannot_run_is_refused_with_the_reason() {
    let refused = |cell: Cell| run(cell).unwrap_err().to_string();
    let (lock, list) = (params(InversionForm::Lock), params(InversionForm::List));
    for cell in [here(&lock, "ticket"), simulated(&lock, "mcs")] {
        let message = refused(cell);
        assert!(message.contains("spins until it is free"), "{message}");
    }
    let message = refused(here(&list, "mutex"));
    assert!(message.contains("`mutex`") && message.contains("ready, rwlock-list"), "{message}");
    let message = refused(simulated(&list, "kernel"));
    assert!(message.contains("a simulated machine has none"), "{message}");
    let busy = InversionParams { hog_every_ns: HOG_NS / 8, ..lock };
    let message = refused(here(&busy, "mutex"));
    assert!(message.contains("`hog_every_ns`"), "{message}");
}

#[test]
fn it_runs_here_where_that_is_permitted() {
    if !is_permitted() {
        let error = run(here(&params(InversionForm::Lock), "mutex")).unwrap_err();
        assert!(matches!(error, LabError::NoRealTime { .. }), "{error}");
        return;
    }
    for form in InversionForm::ALL {
        for lock in form.all_locks(false) {
            match run(here(&params(form), lock)) {
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

#[test]
fn the_command_shows_whom_the_high_one_waited_for() {
    let mut command = Command::new(crate::FAIRLOCK);
    let arguments =
        ["--on", "x86-12", "--seconds", "0.01", "--seeds", "1", "--lock", "ready,pthread-inherit"];
    let output = command.args(["bench", "inversion"]).args(arguments).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in ["inversion-list", "inversion-lock", "waited for the hog"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn the_command_names_what_it_does_not_know() {
    let mut command = Command::new(crate::FAIRLOCK);
    let output = command.args(["bench", "inversion", "--lock", "foo"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(said.contains("\"foo\"") && said.contains("spin-list, kernel, rwlock"), "{said}");
}
