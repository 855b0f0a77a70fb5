//! Names of earlier versions: accepted wherever a user can write one, and in what was recorded, with
//! one note that says the current name.

use std::fs;
use std::path::Path;
use std::process::Output;

use fairlock_lab::machine;
use fairlock_report::recording::{Header, Recording};
use fairlock_study::example;

fn fairlock(args: &[&str]) -> Output {
    crate::fairlock().args(args).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The notes among what a command said, which must have succeeded.
fn notes(output: &Output) -> Vec<String> {
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    said.lines().filter(|line| line.starts_with("note: ")).map(str::to_owned).collect()
}

#[test]
fn a_bench_under_a_former_name_measures_the_lock_once_and_says_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("mix.jsonl");
    let output = fairlock(&[
        "bench",
        "mix",
        "--on",
        "skylake-sp-2s",
        "--lock",
        "timefair,rwsem,biased",
        "--threads",
        "2",
        "--no-limit",
        "--seeds",
        "1",
        "--seconds",
        "0.0002",
        "--out",
        rows.to_str().unwrap(),
    ]);
    let note = "note: `biased` is now called `rwlock`, `timefair` is now called `rwsem`";
    assert_eq!(notes(&output), [note]);
    let recording = Recording::read(&rows, fairlock_study::registry::current).unwrap();
    let locks: Vec<&str> = recording.rows.iter().map(|row| row.lock.as_str()).collect();
    assert_eq!(locks, ["rwsem", "rwlock"]);
}

#[test]
fn a_run_under_a_former_name_is_reported_under_the_current_one() {
    let output = fairlock(&["run", "--lock", "biased", "--", "sh", "-c", "echo $FAIRLOCK_LOCK"]);
    assert_eq!(notes(&output), ["note: `biased` is now called `rwlock`"]);
    assert_eq!(text(&output.stdout), "rwlock\n");
    let compare = ["run", "--compare", "none,timefair+counts", "--runs", "1", "--warm-up", "0"];
    let output = fairlock(&[&compare[..], &["--", "sh", "-c", "exit 0"]].concat());
    assert_eq!(notes(&output), ["note: `timefair` is now called `rwsem`"]);
    let said = text(&output.stderr);
    assert!(said.contains("rwsem+counts") && said.matches("timefair").count() == 1, "{said}");
}

#[test]
fn a_quiet_run_says_no_note() {
    let output = fairlock(&["run", "--quiet", "--lock", "timefair", "--", "sh", "-c", "exit 0"]);
    assert_eq!((text(&output.stderr), output.status.code()), (String::new(), Some(0)));
}

#[test]
fn two_names_of_one_lock_are_not_compared() {
    let output = fairlock(&["run", "--compare", "timefair,rwsem", "--", "sh", "-c", "exit 0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--compare names rwsem twice"));
}

/// Lines as an earlier version wrote them: the current ones, with the former names.
fn write_earlier(path: &Path) {
    let header = Header::now(Vec::new(), false, machine::here(None));
    let row = |lock: &str| {
        let row = example::row("mix", lock, &[("readers", 1.0), ("writers", 1.0)]);
        let mut row = serde_json::to_value(row).unwrap();
        let counts = serde_json::json!({"slots_light": 7, "rwsem_rlock": 1});
        row["events"] = serde_json::json!({"seconds": 1.0, "operations": 1, "counts": counts});
        row
    };
    let timeline = example::timeline("mix", "timefair", "ivybridge-ex-8s");
    let mut strip = serde_json::to_value(timeline).unwrap();
    let threads = strip.as_object_mut().unwrap().remove("threads").unwrap();
    strip["lanes"] = threads;
    let lines = [
        serde_json::json!({"header": header}),
        row("timefair"),
        row("std"),
        serde_json::json!({"strip": strip}),
    ];
    fs::write(path, lines.map(|line| format!("{line}\n")).concat()).unwrap();
}

#[test]
fn a_recording_of_an_earlier_version_is_read_with_the_current_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    write_earlier(&path);
    let recording = Recording::read(&path, fairlock_study::registry::current).unwrap();
    let row = &recording.rows[0];
    assert_eq!(row.lock, "rwsem");
    let counts: Vec<&str> =
        row.events.as_ref().unwrap().counts.keys().map(String::as_str).collect();
    assert_eq!(counts, ["bias_unfenced", "rwsem_rlock"]);
    let timeline = example::timeline("mix", "rwsem", "ivybridge-ex-8s");
    assert_eq!(recording.timelines, [timeline]);
}

#[test]
fn a_page_of_an_earlier_version_s_rows_has_the_current_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    write_earlier(&path);
    let output = fairlock(&["report", path.to_str().unwrap()]);
    let note =
        "note: `slots_light` is now called `bias_unfenced`, `timefair` is now called `rwsem`";
    assert_eq!(notes(&output), [note]);
    let page = fs::read_to_string(dir.path().join("rows.html")).unwrap();
    assert!(page.contains("rwsem") && !page.contains("timefair"));
}

#[test]
fn a_report_on_a_program_by_an_earlier_version_is_shown_with_the_current_names() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let compare = ["run", "-q", "--compare", "glibc,rwsem,rwlock+counts", "--runs", "1"];
    let report = ["--warm-up", "0", "--lock", "rwsem", "--report", &at("new.jsonl")];
    let program = ["--", "sh", "-c", "exit 0"];
    assert!(fairlock(&[&compare[..], &report, &program].concat()).status.success());
    let lines = fs::read_to_string(at("new.jsonl")).unwrap();
    let earlier = lines.replace("\"rwsem\"", "\"timefair\"").replace("\"rwlock+", "\"biased+");
    assert_ne!(lines, earlier);
    fs::write(at("old.jsonl"), earlier).unwrap();
    let [new, old] = ["new.jsonl", "old.jsonl"].map(|name| fairlock(&["report", &at(name)]));
    assert_eq!(notes(&new), [""; 0]);
    let note = "note: `biased` is now called `rwlock`, `timefair` is now called `rwsem`";
    assert_eq!(notes(&old), [note]);
    assert_eq!(text(&old.stdout).replace("old.html", "new.html"), text(&new.stdout));
}
