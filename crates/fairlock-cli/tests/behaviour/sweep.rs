//! Sweeps and fits: whoever runs which task when, the rows are the same.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use tempfile::TempDir;

/// Some cells on two machines, in an instant each.
const GRID: &str = r#"
title = "A small grid"
question = "Do rows depend on who made them?"
method = "A mix of readers and writers on simulated machines."

[[run]]
title = "policies"
workload = "mix"
machine = ["riscv-4", "x86-12"]
locks = ["rwsem", "mutex"]
params = { section = "10p", think = "10p" }
points = [{ threads = [2, 4], read_percent = 50 }]
seeds = 4
seconds = 0.0002

[[comparison]]
title = "The locks"
over = "lock"
standing = "rwsem"
figures = [{ title = "rate", metric = "total_ops_per_s", best = "max" }]
conclusions = { lock = "This is what to conclude." }
"#;

/// The folder has the grid as `grid.toml`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("grid.toml"), GRID).unwrap();
    folder
}

fn fairlock(folder: &TempDir, args: &[&str]) -> Output {
    let mut command = crate::fairlock();
    command.args(args).current_dir(folder.path()).env("COLUMNS", "120");
    command.output().expect("it starts")
}

fn does(folder: &TempDir, args: &[&str]) -> String {
    let output = fairlock(folder, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The first line that it complains with, which has these words.
fn refuses(folder: &TempDir, args: &[&str], code: i32, words: &[&str]) {
    let output = fairlock(folder, args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{args:?} lacks {word}: {said}");
    }
}

/// Rows without the header, which says when and where they were written.
fn rows(folder: &TempDir, path: &str) -> String {
    let text = fs::read_to_string(folder.path().join(path)).unwrap();
    text.split_once('\n').unwrap().1.to_owned()
}

fn results(folder: &TempDir, sweep: &str) -> Vec<String> {
    let entries = fs::read_dir(folder.path().join(sweep).join("results")).unwrap();
    let mut names: Vec<String> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn rows_of_a_sweep_are_those_of_its_study_whoever_runs_which_share() {
    let folder = folder();
    does(&folder, &["study", "grid.toml", "--out", "study"]);
    let wanted = rows(&folder, "study/rows.jsonl");
    assert_eq!(wanted.lines().count(), 8);
    let said = does(&folder, &["sweep", "run", "grid.toml", "--out", "whole"]);
    assert!(said.contains("The locks") && said.contains("whole/report.html"), "{said}");
    assert_eq!(rows(&folder, "whole/rows.jsonl"), wanted);
    let page = fs::read_to_string(folder.path().join("whole/report.html")).unwrap();
    assert!(page.contains("This is what to conclude."));
    for (number, share) in ["1/3", "count:2/3", "3/3"].into_iter().enumerate() {
        let out = format!("share-{number}");
        does(&folder, &["sweep", "run", "grid.toml", "--out", &out, "--partition", share]);
    }
    let shares = ["share-0", "share-1", "share-2"];
    does(&folder, &[&["sweep", "merge", "--out", "all.jsonl"], &shares[..]].concat());
    assert_eq!(rows(&folder, "all.jsonl"), wanted);
    refuses(
        &folder,
        &["sweep", "merge", "share-0", "share-2"],
        1,
        &["11 of 32 tasks have no result"],
    );
    does(&folder, &["sweep", "merge", "share-0", "share-2", "--partial", "--out", "some.jsonl"]);
    let said = does(&folder, &["sweep", "report", "share-1"]);
    assert!(said.contains("of 32 tasks have no result"), "{said}");
    // The page says so, too: whoever gets it did not see the terminal.
    let page = fs::read_to_string(folder.path().join("share-1/report.html")).unwrap();
    assert!(page.contains("of 32 tasks have no result"));
    let page = does(&folder, &["sweep", "report", "whole", "--out", "grid.md"]);
    assert!(page.contains("grid.md"));
    let page = fs::read_to_string(folder.path().join("grid.md")).unwrap();
    assert!(page.contains("rate: mean") && page.contains("This is what"), "{page}");
}

#[test]
fn a_sweep_goes_on_where_it_stopped_and_a_cut_result_is_none() {
    let folder = folder();
    does(&folder, &["sweep", "run", "grid.toml", "--out", "sweep"]);
    let wanted = rows(&folder, "sweep/rows.jsonl");
    let all = results(&folder, "sweep");
    assert_eq!(all.len(), 32);
    let path = |name: &str| folder.path().join("sweep/results").join(name);
    fs::remove_file(path(&all[3])).unwrap();
    let text = fs::read_to_string(path(&all[5])).unwrap();
    fs::write(path(&all[5]), &text[..text.len() / 2]).unwrap();
    fs::write(path(&all[9]), "").unwrap();
    let untouched = fs::metadata(path(&all[0])).unwrap().modified().unwrap();
    let plan = does(&folder, &["sweep", "plan", "sweep"]);
    assert!(plan.contains("29 of them done"), "{plan}");
    does(&folder, &["sweep", "run", "sweep"]);
    assert_eq!(rows(&folder, "sweep/rows.jsonl"), wanted);
    assert_eq!(results(&folder, "sweep"), all);
    assert_eq!(fs::metadata(path(&all[0])).unwrap().modified().unwrap(), untouched);
    // Whole, but of something else.
    fs::write(path(&all[1]), fs::read(path(&all[2])).unwrap()).unwrap();
    refuses(&folder, &["sweep", "merge", "sweep"], 1, &[&all[1], "remove the file"]);
}

#[test]
fn a_larger_grid_finds_what_a_smaller_one_has_made() {
    let folder = folder();
    does(&folder, &["sweep", "run", "grid.toml", "--out", "sweep"]);
    let more =
        GRID.replace("threads = [2, 4]", "threads = [2, 3, 4]").replace("seeds = 4", "seeds = 5");
    fs::write(folder.path().join("grid.toml"), more).unwrap();
    let plan = does(&folder, &["sweep", "plan", "grid.toml", "--out", "sweep"]);
    assert!(plan.contains("60 tasks, 32 of them done"), "{plan}");
    let tasks = does(&folder, &["sweep", "plan", "sweep", "--tasks"]);
    assert_eq!(tasks.lines().filter(|line| line.contains(" done ")).count(), 32, "{tasks}");
    // Another machine of the same name is another machine.
    let here = "machine = [\"riscv-4\", \"x86-12\"]";
    let changed = GRID.replace(
        "params = { section = \"10p\", think = \"10p\" }",
        "params = { section = \"10p\", think = \"10p\", \"machine.line.socket\" = 77 }",
    );
    assert!(changed.contains(here) && changed != GRID);
    fs::write(folder.path().join("other.toml"), changed).unwrap();
    let plan = does(&folder, &["sweep", "plan", "other.toml", "--out", "sweep"]);
    assert!(plan.contains("32 tasks, 0 of them done"), "{plan}");
    let said = does(&folder, &["sweep", "run", "sweep"]);
    assert!(said.contains("line.socket 77"), "{said}");
}

#[test]
fn a_killed_run_loses_and_doubles_nothing() {
    let folder = folder();
    let longer =
        GRID.replace("seconds = 0.0002", "seconds = 0.002").replace("seeds = 4", "seeds = 8");
    fs::write(folder.path().join("grid.toml"), longer).unwrap();
    does(&folder, &["sweep", "run", "grid.toml", "--out", "whole"]);
    for _ in 0..3 {
        let mut child = crate::fairlock()
            .args(["sweep", "run", "grid.toml", "--out", "killed"])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let count =
            || fs::read_dir(folder.path().join("killed/results")).map_or(0, Iterator::count);
        let before = count();
        while count() < before + 5 && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        // Nothing is left to do in the last rounds on a fast machine.
        let _ = child.kill();
        child.wait().unwrap();
    }
    does(&folder, &["sweep", "run", "killed"]);
    assert_eq!(rows(&folder, "killed/rows.jsonl"), rows(&folder, "whole/rows.jsonl"));
    let whole = |name: &String| name.ends_with(".json");
    let killed: Vec<String> = results(&folder, "killed").into_iter().filter(whole).collect();
    assert_eq!(killed, results(&folder, "whole"));
}

#[test]
fn two_that_run_the_same_tasks_do_no_harm() {
    let folder = folder();
    does(&folder, &["sweep", "run", "grid.toml", "--out", "whole"]);
    does(&folder, &["sweep", "plan", "grid.toml", "--out", "shared"]);
    let start = || {
        let mut command = crate::fairlock();
        command.args(["sweep", "run", "shared", "--workers", "1"]).current_dir(folder.path());
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let both = [start(), start()];
    for child in both {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(rows(&folder, "shared/rows.jsonl"), rows(&folder, "whole/rows.jsonl"));
}

#[test]
fn what_cannot_be_swept_is_refused_with_what_can() {
    let folder = folder();
    let real =
        GRID.replace("machine = [\"riscv-4\", \"x86-12\"]\n", "").replace("seeds", "repetitions");
    fs::write(folder.path().join("real.toml"), real.replace("0.0002", "0.002")).unwrap();
    let exclusive = ["--exclusive", "--simulated"];
    refuses(&folder, &["sweep", "run", "real.toml", "--out", "real"], 2, &exclusive);
    let parallel = ["sweep", "submit", "real.toml", "--out", "real", "--engine", "parallel"];
    refuses(&folder, &parallel, 2, &exclusive);
    refuses(&folder, &["sweep", "plan", "real.toml", "--simulated"], 2, &["nothing to run"]);
    refuses(&folder, &["sweep", "run", "grid.toml", "--partition", "4/3"], 2, &["4/3", "3/40"]);
    refuses(&folder, &["sweep", "merge", "nowhere"], 2, &["nowhere", "sweep plan"]);
    refuses(&folder, &["sweep", "run", "grid.tom"], 2, &["grid.tom"]);
    does(&folder, &["sweep", "plan", "grid.toml", "--out", "one"]);
    let other = GRID.replace("threads = [2, 4]", "threads = [2, 3]");
    fs::write(folder.path().join("other.toml"), other).unwrap();
    does(&folder, &["sweep", "plan", "other.toml", "--out", "two"]);
    refuses(&folder, &["sweep", "merge", "one", "two"], 2, &["different plans", "one", "two"]);
    refuses(&folder, &["sweep", "run", "one", "--seeds", "3"], 2, &["--seeds", "one"]);
    refuses(&folder, &["sweep", "report", "one"], 1, &["no task", "result yet"]);
    refuses(&folder, &["sweep", "work", "one", "--tasks", "beef"], 2, &["no task beef"]);
    refuses(&folder, &["sweep", "status", "nowhere"], 2, &["nowhere"]);
    let hosts = ["sweep", "submit", "one", "--engine", "slurm", "--hosts", "a,b"];
    refuses(&folder, &hosts, 2, &["--hosts", "parallel"]);
    // Of another version of the locks.
    let path = folder.path().join("one/plan.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("\"version\":\"").unwrap();
    let rest = rest.split_once('"').unwrap().1;
    fs::write(&path, format!("{before}\"version\":\"0.0.9-1\"{rest}")).unwrap();
    refuses(&folder, &["sweep", "run", "one"], 2, &["planned by version 0.0.9-1", "plan anew"]);
}

#[test]
fn real_threads_are_swept_one_task_after_the_other() {
    let folder = folder();
    let real =
        GRID.replace("machine = [\"riscv-4\", \"x86-12\"]\n", "").replace("seeds", "repetitions");
    fs::write(folder.path().join("real.toml"), real.replace("0.0002", "0.002")).unwrap();
    does(&folder, &["sweep", "run", "real.toml", "--out", "real", "--exclusive"]);
    let task = results(&folder, "real")[0].replace(".json", "");
    refuses(&folder, &["sweep", "work", "real", "--tasks", &task], 2, &["--exclusive"]);
    // Locks at one point take turns, so they are one task.
    assert_eq!(results(&folder, "real").len(), 2);
    let text = rows(&folder, "real/rows.jsonl");
    assert_eq!(text.lines().count(), 4);
    assert!(text.lines().all(|row| row.contains("\"repetitions\":4")), "{text}");
}

#[test]
fn a_change_of_a_constant_is_a_parameter_that_rows_carry() {
    let folder = folder();
    let tuned = GRID
        .replace("read_percent = 50 }", "read_percent = 50, \"tune.slack\" = [8, 16] }")
        .replace("locks = [\"rwsem\", \"mutex\"]", "locks = \"rwsem\"")
        .replace("over = \"lock\"\nstanding = \"rwsem\"", "over = \"tune.slack\"")
        .replace("conclusions = { lock", "conclusions = { \"tune.slack\"");
    fs::write(folder.path().join("tuned.toml"), &tuned).unwrap();
    let said = does(&folder, &["sweep", "run", "tuned.toml", "--out", "tuned"]);
    assert!(said.contains("slack 8"), "{said}");
    let text = rows(&folder, "tuned/rows.jsonl");
    assert!(text.contains("\"tune.slack\":8"), "{text}");
    let unknown = tuned.replace("tune.slack", "tune.slacc");
    fs::write(folder.path().join("unknown.toml"), unknown).unwrap();
    refuses(&folder, &["sweep", "plan", "unknown.toml"], 2, &["slacc", "slack"]);
    let other_lock = tuned.replace("locks = \"rwsem\"", "locks = \"mutex\"");
    fs::write(folder.path().join("lock.toml"), other_lock).unwrap();
    refuses(&folder, &["sweep", "plan", "lock.toml"], 2, &["mutex", "rwsem, rwlock"]);
}

#[test]
fn a_plan_or_a_result_that_was_changed_by_hand_is_refused() {
    let folder = folder();
    does(&folder, &["sweep", "run", "grid.toml", "--out", "sweep"]);
    let plan = folder.path().join("sweep/plan.jsonl");
    let text = fs::read_to_string(&plan).unwrap();
    for (from, to, words) in [
        ("\"lock\":\"rwsem\"", "\"lock\":\"linux-5.11\"", "not called what they are"),
        ("\"seconds\":0.0002", "\"seconds\":0.0003", "not called what they are"),
        ("\"seconds\":0.0002", "\"seconds\":-1.0", "seconds"),
        ("\"repetitions\":4", "\"repetitions\":400000000", "repetitions"),
        ("\"threads\":2", "\"threads\":100000000", "threads"),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        fs::write(&plan, text.replace(from, to)).unwrap();
        refuses(&folder, &["sweep", "run", "sweep"], 2, &["plan.jsonl, line", words]);
    }
    fs::write(&plan, &text).unwrap();
    let name = results(&folder, "sweep").remove(0);
    let path = folder.path().join("sweep/results").join(&name);
    let result = fs::read_to_string(&path).unwrap();
    for (from, words) in [("\"roles\":{", "without roles"), ("\"simulated\":{", "without roles")] {
        let from = result.find(from).expect("it is there") + from.len() - 1;
        // Up to the brace that closes it.
        let mut depth = 0;
        let end = result[from..].find(|it| {
            depth += i32::from(it == '{') - i32::from(it == '}');
            depth == 0
        });
        let end = from + end.expect("it ends") + 1;
        let (empty, rest) = (&result[..from], &result[end..]);
        let value = if empty.ends_with("\"roles\":") { "{}" } else { "null" };
        fs::write(&path, format!("{empty}{value}{rest}")).unwrap();
        refuses(&folder, &["sweep", "merge", "sweep"], 1, &[&name, words]);
    }
    fs::write(&path, &result).unwrap();
    does(&folder, &["sweep", "merge", "sweep"]);
    refuses(
        &folder,
        &["sweep", "merge", "sweep", "--out", "sweep/plan.jsonl"],
        2,
        &["a sweep's plan"],
    );
    refuses(&folder, &["sweep", "report", "sweep", "--out", "page.pdf"], 2, &["HTML"]);
}

#[test]
fn machines_of_one_name_are_told_apart_or_refused() {
    let folder = folder();
    let here = folder.path();
    let machine = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/riscv-4.toml"),
    );
    let machine = machine.unwrap();
    for (dir, factor) in [("a", "0.2"), ("b", "0.3")] {
        fs::create_dir(here.join(dir)).unwrap();
        let other =
            machine.replace("spread = { part = 0.2", &format!("spread = {{ part = {factor}"));
        fs::write(here.join(dir).join("m.toml"), other).unwrap();
    }
    let both = GRID.replace("[\"riscv-4\", \"x86-12\"]", "[\"a/m.toml\", \"b/m.toml\"]");
    fs::write(here.join("both.toml"), both).unwrap();
    refuses(
        &folder,
        &["sweep", "plan", "both.toml"],
        2,
        &["two different machines are called \"m\""],
    );
    // A directory that happens to be called as a machine hides none.
    fs::create_dir(here.join("riscv-4")).unwrap();
    does(&folder, &["sweep", "plan", "grid.toml"]);
}

/// Two parameters by two targets, one of them held back.
const FIT: &str = r#"
title = "A small fit"
machine = "riscv-4"
seeds = 2
seconds = 0.0002
search = { candidates = 6, rounds = 2, keep = 3 }

[[parameter]]
name = "machine.line.socket"
range = [10, 300]

[[parameter]]
name = "machine.cost.pause"
range = [1, 100]
scale = "log"

[[target]]
name = "two threads"
workload = "mix"
lock = "rwsem"
params = { threads = 2, read_percent = 50 }
metric = "total_ops_per_s"
value = 3000000

[[target]]
name = "a mutex"
workload = "mix"
lock = "mutex"
params = { threads = 4, read_percent = 50 }
metric = "total_ops_per_s"
value = 1500000
held_back = true
"#;

#[test]
fn a_fit_finds_values_goes_on_and_says_what_moves_what() {
    let folder = folder();
    fs::write(folder.path().join("fit.toml"), FIT).unwrap();
    // Round by round, by whatever runs sweeps.
    for round in 1..=3 {
        let said = does(&folder, &["fit", "fit.toml", "--out", "by-hand", "--plan"]);
        assert!(said.contains(&format!("round {round} of 3")), "{said}");
        does(&folder, &["sweep", "run", "by-hand"]);
    }
    let by_hand = does(&folder, &["fit", "fit.toml", "--out", "by-hand"]);
    let said = does(&folder, &["fit", "fit.toml", "--out", "fit"]);
    assert_eq!(by_hand.replace("by-hand", "fit"), said);
    for words in ["a mutex (held back)", "## Sensitivity", "line.socket, ", "cost.pause, "] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let count = results(&folder, "fit").len();
    assert_eq!(does(&folder, &["fit", "fit.toml", "--out", "fit"]), said);
    assert_eq!(results(&folder, "fit").len(), count);
    // The machine that it found can be run on.
    let bench = [
        "bench",
        "mix",
        "--lock",
        "rwsem",
        "--threads",
        "2",
        "--seeds",
        "2",
        "--seconds",
        "0.0002",
    ];
    does(&folder, &[&bench[..], &["--on", "fit/riscv-4-fitted.toml"]].concat());
}

#[test]
fn targets_of_one_cell_may_be_measured_for_different_times() {
    let folder = folder();
    let longer = "\n[[target]]\nname = \"longer\"\nworkload = \"mix\"\nlock = \"rwsem\"\nparams = { threads = 2, \
                  read_percent = 50 }\nmetric = \"total_ops_per_s\"\nvalue = 3000000\nseconds = 0.001\n";
    for (text, tasks) in [(FIT.to_owned(), "28 tasks"), (format!("{FIT}{longer}"), "42 tasks")] {
        fs::write(folder.path().join("fit.toml"), text).unwrap();
        let said = does(&folder, &["fit", "fit.toml", "--out", "fit", "--plan"]);
        assert!(said.contains(tasks), "{said}");
    }
}

#[test]
fn a_fit_takes_measured_rows_and_refuses_what_it_cannot_use() {
    let folder = folder();
    let bench =
        ["bench", "mix", "--lock", "rwsem,mutex", "--threads", "1,2", "--read-percent", "50"];
    // Long enough that no thread gets nothing where others keep the CPUs busy.
    let brief = ["--seconds", "0.1", "--repetitions", "1", "--out", "here.jsonl"];
    does(&folder, &[&bench[..], &brief[..]].concat());
    let head = FIT.split("[[target]]").next().unwrap();
    let measured =
        "[[measured]]\nrows = \"here.jsonl\"\nmetric = \"total_ops_per_s\"\nhold_back = 2\n";
    fs::write(folder.path().join("fit.toml"), format!("{head}{measured}")).unwrap();
    let said = does(&folder, &["fit", "fit.toml", "--out", "fit"]);
    assert!(said.contains("4 targets, 2 of them held back"), "{said}");
    for (from, to, words) in [
        ("machine.line.socket", "line.socket", "machine.… or tune.…"),
        ("machine.line.socket", "machine.line.sockets", "line.socket"),
        ("range = [10, 300]", "range = [300, 10]", "least value"),
        ("range = [10, 300]", "range = [-5, 300]", "machine.line.socket, at -5"),
        ("range = [10, 300]", "range = [10, 300]\nstart = 9", "start = 9 is not in its range"),
        ("keep = 3", "keep = 30", "keeps 30 of 6"),
        ("value = 3000000", "", "one of value, at_least, at_most"),
        ("value = 3000000", "value = -1", "above 0"),
        ("candidates = 6", "candidates = 0", "2 to 1000"),
        ("seeds = 2", "seeds = \"two\"", "line 4"),
        ("lock = \"rwsem\"", "lock = \"rwsemm\"", "rwsemm"),
    ] {
        assert!(FIT.contains(from), "{from}");
        fs::write(folder.path().join("bad.toml"), FIT.replacen(from, to, 1)).unwrap();
        refuses(&folder, &["fit", "bad.toml"], 2, &[words]);
    }
}

/// The files that come with Fairlock.
#[test]
fn the_sweeps_and_fits_of_the_repository_can_be_planned() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = folder();
    for (dir, command) in [("sweeps", ["sweep", "plan"].as_slice()), ("fits", &["fit", "--plan"])] {
        let mut count = 0;
        for entry in fs::read_dir(root.join(dir)).unwrap() {
            let path = entry.unwrap().path();
            does(&folder, &[command, &[path.to_str().unwrap(), "--out", "it"]].concat());
            count += 1;
        }
        assert!(count > 0, "{dir}");
    }
}
