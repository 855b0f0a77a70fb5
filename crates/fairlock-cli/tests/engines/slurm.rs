//! Slurm: a cluster of two nodes on this machine.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::sweep::{
    GRID, Process, Sweep, an_engine_gives_the_rows_and_names_what_fails, are_here, wait_for,
};

const ENGINE: [&str; 4] = ["--engine", "slurm", "--jobs", "6"];

fn is_here() -> bool {
    let packages = "Slurm and munge (Debian's packages slurm-wlm and munge)";
    are_here(&["slurmctld", "slurmd", "sbatch", "munged"], packages)
}

/// A cluster, which ends with it.
struct Cluster {
    folder: TempDir,
    configuration: PathBuf,
    script: Child,
}

impl Cluster {
    fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let free = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = free.map(|it| it.local_addr().unwrap().port().to_string());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines/slurm.sh");
        let mut command = Command::new("bash");
        command.arg(script).arg(folder.path()).args(ports);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = command.spawn().expect("bash starts");
        let mut lines = BufReader::new(script.stdout.take().unwrap()).lines();
        let first = lines.next().expect("a line").unwrap();
        assert_eq!(first, "ready");
        let configuration = folder.path().join("slurm.conf");
        Cluster { folder, configuration, script }
    }

    fn variable(&self) -> (&str, &str) {
        ("SLURM_CONF", self.configuration.to_str().unwrap())
    }

    /// What a program of Slurm's prints.
    fn ask(&self, program: &str, args: &[&str]) -> String {
        let mut command = Command::new(program);
        let output = command.args(args).env("SLURM_CONF", &self.configuration).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn daemon(&self, name: &str) -> Process {
        let file = self.folder.path().join(format!("{name}.pid"));
        wait_for("a daemon", || Process::of_file(&file))
    }

    /// The number of the job, as Slurm counts all of them, that this process was started for.
    fn job_of(step: Process) -> String {
        let title = step.words().remove(0);
        let job = title.split_once('[').and_then(|(_, rest)| rest.split_once('.'));
        job.unwrap_or_else(|| panic!("{title} is no step")).0.to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

#[test]
fn slurm_gives_the_rows_of_one_run_and_names_what_fails() {
    if is_here() {
        let cluster = Cluster::start();
        an_engine_gives_the_rows_and_names_what_fails(&ENGINE, &[cluster.variable()]);
    }
}

#[test]
fn what_is_killed_under_slurm_is_run_again() {
    if !is_here() {
        return;
    }
    let cluster = Cluster::start();
    let sweep = Sweep::new(GRID, &[cluster.variable()]);
    // Slurm itself would run a job of a node that is lost again, some minutes later.
    let no_requeue = ["--option=--no-requeue"];
    let submit = ["submit", "grid.toml", "--out", "grid"];
    sweep.succeeds(&[&submit, &ENGINE[..], &no_requeue].concat());
    sweep.wait_for_some_results();
    let is_lost = |how: &str| {
        let said = sweep.succeeds(&["status", "grid"]);
        // Of many lost tasks only some are listed, but all of their reasons.
        let is_told =
            ["attempt:", "lost tasks:"].iter().any(|it| said.contains(&format!("{it} {how}")));
        is_told.then_some(())
    };
    sweep.stopped_worker().kill();
    wait_for("Slurm to notice", || is_lost("FAILED, killed by signal 9"));

    // All of a node at once: its daemon, what that has started, and the job.
    let worker = sweep.stopped_worker();
    let step = worker.parent();
    let job = Cluster::job_of(step);
    let node = cluster.ask("squeue", &["--noheader", "-j", &job, "-o", "%N"]);
    for process in [cluster.daemon(&format!("slurmd-{node}")), step, worker] {
        process.kill();
    }
    let state = |state: &str| {
        let node = format!("NodeName={node}");
        cluster.ask("scontrol", &["update", &node, &format!("State={state}"), "Reason=test"])
    };
    state("DOWN");
    wait_for("Slurm to give the node up", || is_lost("NODE_FAIL"));
    state("RESUME");

    let said = sweep.succeeds(&["fetch", "grid"]);
    assert!(said.contains("submitted again as slurm"), "{said}");
    let script = fs::read_to_string(sweep.dir().join("slurm-2/submit.sh")).unwrap();
    assert!(script.contains("#SBATCH --no-requeue\n"), "{script}");

    // The controller ends, and comes back with what it knew. Killed, it would not know of its last seconds, and nodes
    // that run what it does not know of are taken out of service.
    let controller = cluster.daemon("slurmctld");
    controller.signal("TERM");
    wait_for("the controller to be started again", || {
        let answers = || cluster.ask("scontrol", &["ping"]).contains("is UP");
        (cluster.daemon("slurmctld").0 != controller.0 && answers()).then_some(())
    });
    sweep.ends_as_one_run_does();
}
