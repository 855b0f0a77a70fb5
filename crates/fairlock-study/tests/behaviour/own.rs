//! A lock and sections that the lab does not know, by the example that a user would start from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Built with the tests, in the folder beside theirs.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let folder = test.parent().and_then(Path::parent).expect("`deps` is in a folder");
    let example = folder.join("examples/own_locks");
    assert!(example.exists(), "`cargo test` builds it; so does `cargo build --example own_locks`");
    example
}

fn run(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(example());
    command.args(args).current_dir(folder).env("COLUMNS", "120");
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_program_of_the_book_is_the_example() {
    let page = include_str!("../../../../docs/src/measure/own.md");
    let (_, program) = page.split_once("```rust,no_run\n").expect("a program");
    let (program, _) = program.split_once("```").expect("its end");
    let example = include_str!("../../examples/own_locks.rs");
    let (_, example) = example.split_once("\n\n").expect("a comment at the top");
    assert_eq!(program, example);
}

const BRIEF: [&str; 4] = ["--seconds", "0.005", "--repetitions", "2"];

#[test]
fn own_sections_run_under_own_locks_and_those_of_the_lab() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--bench", "cache", "--threads", "2", "--read-percent", "50,90"];
    let output =
        run(folder.path(), &[&args[..], &["--lock", "sketch,rwlock,std"], &BRIEF].concat());
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("cache · 2 threads · 90 % reads"), "{said}");
    let rows = fs::read_to_string(folder.path().join("target/fairlock/rows.jsonl")).unwrap();
    let of_lock = |lock: &str| {
        let name = format!("\"workload\":\"cache\",\"lock\":\"{lock}\"");
        rows.lines().filter(|line| line.contains(&name)).count()
    };
    assert_eq!(["sketch", "rwlock", "std"].map(of_lock), [2; 3], "{rows}");
    let page = fs::read_to_string(folder.path().join("target/fairlock/rows.html")).unwrap();
    assert!(page.contains("sketch") && page.contains("cache"));
    assert!(page.contains("Which lock should I use?") && page.contains("cache: 2 threads"));
}

#[test]
fn own_locks_run_under_workloads_of_the_lab() {
    let folder = tempfile::tempdir().unwrap();
    for workload in ["mix", "turns", "uncontended", "readseek"] {
        let output = run(folder.path(), &[&[workload, "--lock", "sketch"], &BRIEF[..]].concat());
        assert!(output.status.success(), "{workload}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains("sketch"), "{workload}");
    }
    let output = run(folder.path(), &["log", "--log", "sketch"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no log `sketch`"), "{}", text(&output.stderr));
}

#[test]
fn rows_have_a_name_that_leaves_room_for_their_page_and_a_timeline_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let simulated =
        ["mix", "--on", "x86-12", "--lock", "rwlock", "--seeds", "1", "--seconds", "0.0001"];
    let output = run(folder.path(), &[&simulated[..], &["--out", "o.html"]].concat());
    assert!(!output.status.success() && text(&output.stderr).contains(".jsonl"));
    let output = run(folder.path(), &[&simulated[..], &["--timeline", "t.json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read_to_string(folder.path().join("t.json")).unwrap().contains("traceEvents"));
}

#[test]
fn own_locks_run_where_no_lock_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for workload in ["cache", "mix"] {
        let output = run(folder.path(), &[&[workload, "--threads", "2"], &BRIEF[..]].concat());
        let said = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(said.contains("sketch") && said.contains("rwlock"), "{workload}: {said}");
    }
    // As words: lines end wherever the terminal does.
    let help = |workload: &str| {
        let help = text(&run(folder.path(), &[workload, "--help"]).stdout);
        help.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let of_mix = help("mix");
    assert!(of_mix.contains("[default: sketch,rwlock,rwsem,std,"), "{of_mix}");
    // Where a lock that yields would keep the CPU for ever, it has to be asked for.
    let of_inversion = help("inversion-lock");
    assert!(of_inversion.contains("[default: rwlock,"), "{of_inversion}");
}

#[test]
fn help_is_that_of_the_program_and_names_it_as_it_is_called() {
    let folder = tempfile::tempdir().unwrap();
    for (is_bench, called) in [(false, "own_locks"), (true, "cargo bench --bench own_locks --")] {
        let bench = if is_bench { &["--bench"][..] } else { &[] };
        let help = text(&run(folder.path(), &[bench, &["--help"]].concat()).stdout);
        assert!(help.starts_with("Your locks and sections beside the lab's"), "{help}");
        assert!(help.contains(&format!("Usage: {called} [OPTIONS] <COMMAND>")), "{help}");
        let help = text(&run(folder.path(), &[bench, &["cache", "--help"]].concat()).stdout);
        assert!(help.contains(&format!("Usage: {called} cache [OPTIONS]")), "{help}");
        assert!(help.contains(&format!("  {called} cache --threads 2,8")), "{help}");
        assert!(!help.contains("fairlock bench cache"), "{help}");
    }
}

#[test]
fn what_is_ones_own_is_listed_and_not_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let help = text(&run(folder.path(), &["--help"]).stdout);
    assert!(help.contains("cache") && help.contains("lookups and updates"), "{help}");
    let help = text(&run(folder.path(), &["cache", "--help"]).stdout);
    assert!(help.contains("sketch") && help.contains("--read-percent"), "{help}");
    for (args, words) in [
        (["cache", "--on", "x86-12", "--lock", "rwlock"], "runs on real threads only"),
        (["mix", "--on", "x86-12", "--lock", "sketch"], "`sketch` runs on real threads only"),
        (["cache", "--threads", "2", "--lock", "broken"], "there is no lock `broken`"),
        (["cache", "--threads", "2", "--lock", "foo"], "there is no lock `foo`"),
    ] {
        let output = run(folder.path(), &args);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{args:?}: {said}");
    }
}
