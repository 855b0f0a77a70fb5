//! GNU parallel: here, and over something that is as good as ssh.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::sweep::{
    BROKEN, FAILURE, GRID, Process, Sweep, an_engine_gives_the_rows_and_names_what_fails, are_here,
    rows, wait_for,
};

const ENGINE: [&str; 4] = ["--engine", "parallel", "--jobs", "20"];

fn is_here() -> bool {
    are_here(&["parallel"], "GNU parallel (Debian's package parallel)")
}

/// The process that runs a sweep's first submission.
fn parallel_of(sweep: &Sweep) -> Process {
    let text = fs::read_to_string(sweep.dir().join("parallel-1/submission.json")).unwrap();
    let text: serde_json::Value = serde_json::from_str(&text).unwrap();
    let (_, process) = text["id"].as_str().unwrap().split_once('/').unwrap();
    Process(process.split_once('-').unwrap().0.parse().unwrap())
}

#[test]
fn parallel_gives_the_rows_of_one_run_and_names_what_fails() {
    if is_here() {
        an_engine_gives_the_rows_and_names_what_fails(&ENGINE, &[]);
    }
}

#[test]
fn what_is_killed_under_parallel_is_run_again() {
    if !is_here() {
        return;
    }
    let sweep = Sweep::new(GRID, &[]);
    sweep.succeeds(&[&["submit", "grid.toml", "--out", "grid"], &ENGINE[..]].concat());
    sweep.wait_for_some_results();
    sweep.stopped_worker().kill();
    wait_for("parallel to notice", || {
        let said = sweep.succeeds(&["status", "grid"]);
        said.contains("1 attempt: killed by signal 9").then_some(())
    });
    // Its other jobs go on without it, and what was not begun is lost.
    let worker = sweep.stopped_worker();
    parallel_of(&sweep).kill();
    worker.kill();
    let said = sweep.succeeds(&["status", "grid"]);
    assert!(said.contains("GNU parallel ended before it"), "{said}");
    sweep.ends_as_one_run_does();
}

/// A program that takes the place of ssh: the hosts `alpha` and `beta` are directories, and no other host answers.
fn ssh(folder: &Path) -> String {
    let path = folder.join("ssh");
    let script = format!(
        "#!/bin/bash\n\
         while [[ $1 == -* ]]; do [[ $1 == -- ]] || shift; shift; done\n\
         home='{}'/$1 && shift && cd \"$home\" 2>/dev/null || exit 255\n\
         [[ $1 == -- ]] && shift\n\
         HOME=$home exec bash -c \"$*\"\n",
        folder.display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    ["alpha", "beta"].iter().for_each(|host| fs::create_dir(folder.join(host)).unwrap());
    path.display().to_string()
}

#[test]
fn hosts_that_share_nothing_get_the_program_and_give_their_results() {
    let packages = "GNU parallel and rsync (Debian's packages parallel and rsync)";
    if !are_here(&["parallel", "rsync"], packages) {
        return;
    }
    let study = format!("{GRID}{BROKEN}").replace("seeds = 13", "seeds = 1");
    let one_run = Sweep::new(&study, &[]);
    one_run.fails(&["run", "grid.toml", "--out", "grid"]);
    let folder = tempfile::tempdir().unwrap();
    let ssh = ssh(folder.path());
    for (hosts, reached) in [("alpha,beta,gamma", &["alpha", "beta"][..]), (":", &[":"])] {
        let sweep = Sweep::new(&study, &[("PARALLEL_SSH", &ssh)]);
        let engine = ["--engine", "parallel", "--hosts", hosts, "--attempts", "1"];
        sweep.succeeds(&[&["submit", "grid.toml", "--out", "grid"], &engine[..]].concat());
        let complaint = sweep.fails(&["fetch", "grid", "--wait"]);
        assert!(rows(&sweep.dir()) == rows(&one_run.dir()), "other rows of {hosts}: {complaint}");
        let log = complaint.trim_end().rsplit_once("; log: ").expect("a log").1;
        let log = fs::read_to_string(sweep.folder.join(log)).unwrap();
        assert!(log.contains(FAILURE), "{log}");
        let jobs = fs::read_to_string(sweep.dir().join("parallel-1/joblog")).unwrap();
        for host in jobs.lines().skip(1).map(|line| line.split('\t').nth(1).unwrap()) {
            assert!(reached.contains(&host), "a job of {hosts} on {host}");
        }
    }
    // The program and the plan are gone from the hosts.
    for host in ["alpha", "beta"] {
        for place in fs::read_dir(folder.path().join(host).join(".cache/fairlock")).unwrap() {
            let place = place.unwrap().path();
            assert!(!place.join("fairlock").exists() && !place.join("plan.jsonl").exists());
        }
    }
}
