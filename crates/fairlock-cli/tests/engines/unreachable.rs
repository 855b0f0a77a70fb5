//! Engines that are not there, and what can be told without them.

use std::fs;

use crate::sweep::{GRID, Sweep, are_here};

/// What the only line of a failed submission says.
fn refused(sweep: &Sweep, engine: &str) -> String {
    let complaint = sweep.fails(&["submit", "grid.toml", "--out", "grid", "--engine", engine]);
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    // It can be submitted when the engine is there.
    let status = sweep.succeeds(&["status", "grid"]);
    assert!(status.contains("208 not submitted"), "{status}");
    complaint
}

#[test]
fn an_engine_that_is_not_installed_is_named_with_its_package() {
    let nothing = tempfile::tempdir().unwrap();
    let nothing = nothing.path().to_str().unwrap();
    for (engine, program, package) in [
        ("slurm", "`sbatch`", "slurm-client"),
        ("hyperqueue", "`hq`", "github.com/It4innovations/hyperqueue"),
        ("parallel", "`parallel`", "package parallel"),
    ] {
        let complaint = refused(&Sweep::new(GRID, &[("PATH", nothing)]), engine);
        assert!(complaint.contains(program) && complaint.contains(package), "{complaint}");
    }
}

#[test]
fn a_cluster_that_is_not_configured_or_does_not_answer_is_told_in_a_line() {
    if !are_here(&["sbatch"], "Slurm (Debian's package slurm-client)") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slurm.conf");
    let lines = "ClusterName=none\nSlurmctldHost=here(127.0.0.1)\nSlurmctldPort=1\nAuthType=auth/none\nMessageTimeout=1\n";
    fs::write(&path, lines).unwrap();
    let sweep = Sweep::new(GRID, &[("SLURM_CONF", path.to_str().unwrap())]);
    let complaint = refused(&sweep, "slurm");
    assert!(complaint.contains("`scontrol ping`"), "{complaint}");
}

#[test]
fn a_server_of_hyperqueue_that_does_not_run_is_told_in_a_line() {
    if !are_here(&["hq"], "HyperQueue from https://github.com/It4innovations/hyperqueue") {
        return;
    }
    let nothing = tempfile::tempdir().unwrap();
    let sweep = Sweep::new(GRID, &[("HQ_SERVER_DIR", nothing.path().to_str().unwrap())]);
    let complaint = refused(&sweep, "hyperqueue");
    assert!(complaint.contains("hq server start"), "{complaint}");
}

#[test]
fn tasks_with_real_threads_ask_for_machines_of_their_own() {
    let study = GRID.replace("machine = [\"riscv-4\", \"x86-12\"]\n", "");
    let sweep = Sweep::new(&study, &[]);
    let submit = ["submit", "grid.toml", "--out", "grid", "--dry-run", "--option=--mine"];
    let scripts = [
        ("slurm", ["#SBATCH --exclusive", "#SBATCH --mem=0", "#SBATCH --mine"]),
        ("hyperqueue", ["#HQ --cpus=all", "#HQ --stderr=none", "#HQ --mine"]),
        ("parallel", ["--jobs 1 ", "--joblog ", " --mine "]),
    ];
    for (engine, parts) in scripts {
        let engine = ["--engine", engine];
        let refused = sweep.output(&[&submit, &engine[..]].concat());
        assert_eq!(refused.status.code(), Some(2));
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("--exclusive") && said.contains("--simulated"), "{said}");
        let script = sweep.succeeds(&[&submit, &engine[..], &["--exclusive"]].concat());
        for part in parts {
            assert!(script.contains(part), "{part} is not in: {script}");
        }
        assert!(script.contains("nothing is submitted"), "{script}");
    }
}
