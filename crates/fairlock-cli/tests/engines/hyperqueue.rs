//! HyperQueue: a server and its workers on this machine.

use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::sweep::{
    GRID, Process, Sweep, an_engine_gives_the_rows_and_names_what_fails, are_here, wait_for,
};

const ENGINE: [&str; 4] = ["--engine", "hyperqueue", "--jobs", "20"];

fn is_here() -> bool {
    are_here(
        &["hq"],
        "HyperQueue from https://github.com/It4innovations/hyperqueue (not in Debian)",
    )
}

/// A server and its workers, which end with it.
struct Cluster {
    folder: TempDir,
    server: Daemon,
    workers: Vec<Daemon>,
}

/// A process that is killed at the end.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Cluster {
    fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let server = Cluster::started(&folder, &["server", "start"]);
        let mut cluster = Cluster { folder, server, workers: Vec::new() };
        cluster.wait_for_server();
        cluster.add_worker();
        cluster.add_worker();
        cluster
    }

    fn hq(folder: &TempDir, args: &[&str]) -> Command {
        let mut hq = Command::new("hq");
        hq.args(args).env("HQ_SERVER_DIR", folder.path()).stdin(Stdio::null());
        hq.stdout(Stdio::null()).stderr(Stdio::null());
        hq
    }

    fn started(folder: &TempDir, args: &[&str]) -> Daemon {
        Daemon(Cluster::hq(folder, args).spawn().expect("hq starts"))
    }

    fn wait_for_server(&self) {
        let answers = || Cluster::hq(&self.folder, &["server", "info"]).status().unwrap().success();
        wait_for("the server", || answers().then_some(()));
    }

    fn add_worker(&mut self) {
        self.workers.push(Cluster::started(&self.folder, &["worker", "start", "--cpus=1"]));
    }

    /// Kills the server, and waits until its workers have ended.
    fn kill_server(&mut self) {
        Process(self.server.0.id()).kill();
        self.workers.clear();
    }

    fn start_server_again(&mut self) {
        self.server = Cluster::started(&self.folder, &["server", "start"]);
        self.wait_for_server();
        self.add_worker();
    }

    fn variable(&self) -> (&str, &str) {
        ("HQ_SERVER_DIR", self.folder.path().to_str().unwrap())
    }
}

#[test]
fn hyperqueue_gives_the_rows_of_one_run_and_names_what_fails() {
    if is_here() {
        let cluster = Cluster::start();
        an_engine_gives_the_rows_and_names_what_fails(&ENGINE, &[cluster.variable()]);
    }
}

#[test]
fn what_is_killed_under_hyperqueue_is_run_again() {
    if !is_here() {
        return;
    }
    let mut cluster = Cluster::start();
    let variable = cluster.variable();
    let sweep = Sweep::new(GRID, &[variable]);
    sweep.succeeds(&[&["submit", "grid.toml", "--out", "grid"], &ENGINE[..]].concat());
    sweep.wait_for_some_results();
    sweep.stopped_worker().kill();
    wait_for("HyperQueue to notice", || {
        sweep.succeeds(&["status", "grid"]).contains("signal 9").then_some(())
    });
    // HyperQueue itself gives what a worker was at to another one.
    let worker = sweep.stopped_worker().parent();
    let place = cluster.workers.iter().position(|it| it.0.id() == worker.0);
    drop(cluster.workers.remove(place.expect("a worker of HyperQueue started it")));
    // A new server knows nothing of the jobs of the one before.
    sweep.stopped_worker();
    cluster.kill_server();
    let complaint = sweep.fails(&["status", "grid"]);
    assert!(complaint.contains("hq server start"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    cluster.start_server_again();
    let said = sweep.succeeds(&["status", "grid"]);
    assert!(said.contains("hyperqueue knows nothing of it any more"), "{said}");
    sweep.ends_as_one_run_does();
}
