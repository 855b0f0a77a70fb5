//! `--json`: what programs read of `fairlock bench`, `list` and `run`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use fairlock_report::recording::Recording;
use fairlock_trace::report::Report;
use serde_json::Value;

fn fairlock(args: &[&str]) -> Output {
    crate::fairlock().args(args).output().expect("the command starts")
}

/// What it prints, if it ends well.
fn printed(args: &[&str]) -> String {
    let output = fairlock(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// All values of JSON in a text, which has nothing else.
fn values(text: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(text)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// A bench that takes no time.
const BENCH: [&str; 9] =
    ["bench", "mix", "--lock", "rwsem,rwlock", "--threads", "2", "--on", "riscv-4", "--seeds=2"];

#[test]
fn a_bench_prints_what_its_file_of_rows_would_have() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rows.jsonl");
    let options = ["--seconds", "0.001"];
    let text = printed(&[&BENCH[..], &options, &["--json"]].concat());
    printed(&[&BENCH[..], &options, &["--out", file.to_str().expect("UTF-8")]].concat());

    let recording = Recording::read_lines(text.as_bytes(), "stdout", |_, params| params);
    let recording = recording.expect("a recording");
    let kept = Recording::read(&file, |_, params| params).expect("a recording");
    assert!(!recording.rows.is_empty());
    assert_eq!(recording.rows, kept.rows, "the same seeds give the same rows");

    // As jq sees it, by the names that the book gives.
    let lines = values(&text);
    assert!(lines[0]["header"]["machine"]["cpus"].is_u64(), "{}", lines[0]);
    let rows: Vec<&Value> = lines.iter().filter(|line| !line["lock"].is_null()).collect();
    assert_eq!(rows.len(), lines.len() - 1);
    for row in rows {
        assert_eq!((&row["workload"], &row["machine"]), (&"mix".into(), &"riscv-4".into()));
        assert!(row["total_ops_per_s"]["median"].as_f64().is_some_and(|it| it > 0.0), "{row}");
        assert!(row["repetitions"] == 2 && row["params"].is_object(), "{row}");
        let role = row["roles"].as_object().and_then(|roles| roles.values().next());
        assert!(role.is_some_and(|role| role["wait"]["p99"].is_u64()), "{row}");
    }
}

#[test]
fn a_bench_whose_rows_nobody_reads_on_ends_well() {
    let mut child = crate::fairlock()
        .args(BENCH)
        .args(["--seconds", "0.001", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    let mut reader = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut header = String::new();
    reader.read_line(&mut header).expect("a line");
    drop(reader);
    assert!(header.starts_with("{\"header\":"), "{header}");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn rows_are_printed_or_written_and_not_both() {
    let output = fairlock(&[&BENCH[..], &["--json", "--out", "rows.jsonl"]].concat());
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--json") && said.contains("--out"), "{said}");
}

#[test]
fn a_bench_that_hangs_leaves_only_rows_on_the_standard_output() {
    let output = crate::command::hung_at_the_second_section(&["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let lines = values(&String::from_utf8(output.stdout).expect("UTF-8"));
    assert!(lines.len() > 1 && !lines[1]["lock"].is_null(), "{lines:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("what finished before is printed"));
}

#[test]
fn a_list_is_one_object_with_everything_that_the_text_names() {
    let [list] = &values(&printed(&["list", "--json"]))[..] else { panic!("one object") };
    let text = printed(&["list"]);
    let kinds = [
        ("locks", &["name", "kind", "bytes", "simulated", "about"][..]),
        ("range_locks", &["name", "bytes", "about"]),
        ("process_locks", &["name", "about"]),
        ("run_locks", &["name", "about"]),
        ("logs", &["name", "about"]),
        ("pollers", &["name", "about"]),
        ("workloads", &["name", "about"]),
        ("studies", &["name", "title", "published"]),
        ("metrics", &["name", "about"]),
        ("machines", &["name", "cpus", "title"]),
        ("constants", &["name", "value", "least", "most"]),
    ];
    assert_eq!(list.as_object().expect("an object").len(), kinds.len());
    for (kind, fields) in kinds {
        let entries = list[kind].as_array().unwrap_or_else(|| panic!("{kind} in {list}"));
        assert!(!entries.is_empty(), "{kind}");
        for entry in entries {
            for field in fields {
                assert!(!entry[field].is_null(), "{kind}: {field} of {entry}");
            }
            assert_eq!(entry.as_object().expect("an object").len(), fields.len(), "{entry}");
            let name = entry["name"].as_str().expect("a text");
            assert!(text.contains(name), "{name}");
        }
    }
    let of = |kind: &str, name: &str| {
        let entries = list[kind].as_array().expect("a list").iter();
        entries.filter(|it| it["name"] == name).cloned().collect::<Vec<_>>()
    };
    assert_eq!(of("locks", "rwlock")[0]["kind"], "fairlock");
    assert_eq!(of("locks", "std")[0]["kind"], "peer");
    assert!(of("locks", "stuck").is_empty(), "wrong on purpose");
    assert_eq!(of("studies", "s0")[0]["published"], true);
}

#[test]
fn a_machine_is_an_object_whose_figures_have_sources_that_are_there() {
    let args = ["list", "--machine", "ivybridge-ex-8s", "--json"];
    let [machine] = &values(&printed(&args))[..] else { panic!("one object") };
    assert_eq!(machine["name"], "ivybridge-ex-8s");
    let figures = machine["figures"].as_array().expect("a list");
    assert!(figures.len() > 20);
    for figure in figures {
        assert!(figure["value"].is_object(), "{figure}");
        match figure["from"].as_str() {
            Some(key) => assert!(machine["sources"][key].is_string(), "{figure}"),
            None => assert!(figure["assumed"].is_string(), "{figure}"),
        }
    }
    let cross = figures.iter().find(|it| it["key"] == "line.cross").expect("it has one");
    assert!(cross["value"]["cy"] == 341 && cross["ns"].as_f64().is_some_and(|it| it > 100.0));
}

#[test]
fn a_run_writes_its_report_as_lines_and_leaves_the_standard_output_to_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    // Lines whatever it is called.
    let file = folder.path().join("report.html");
    let path = file.to_str().expect("UTF-8");
    let out = printed(&["run", "--json", path, "--", "echo", "only this"]);
    assert_eq!(out, "only this\n");
    let text = fs::read_to_string(&file).expect("a report");
    let lines = values(&text);
    assert_eq!(lines[0]["run"]["command"][0], "echo");
    assert_eq!(lines[0]["run"]["exit"]["code"], 0);
    assert!(lines[1..].iter().any(|line| line["process"]["pid"].is_u64()), "{text}");
    Report::read_lines(text.as_bytes()).expect("what `fairlock report` reads");
}

#[test]
fn a_descriptor_that_the_shell_opened_takes_the_report_to_another_program() {
    let script = "\"$0\" run --json /dev/fd/3 -- echo only this 3>&1 >/dev/null";
    let output = Command::new("sh").args(["-c", script, crate::FAIRLOCK]).output().expect("sh");
    let lines = values(&String::from_utf8(output.stdout).expect("UTF-8"));
    assert_eq!(lines[0]["run"]["command"][0], "echo");
    let refused = fairlock(&["run", "--json", "-", "--", "true"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("/dev/fd/3"));
}
