//! Studies that are a user's own: files anywhere, with the chapter of the book that a user would start from.

use std::fs;
use std::path::Path;
use std::process::Output;

use fairlock_lab::machine;
use fairlock_report::recording::{Header, Writer};

/// The file that "Your own study" shows.
fn of_the_book() -> String {
    let page = include_str!("../../../../docs/src/measure/studies.md");
    let (_, chapter) = page.split_once("## Your own study").expect("the chapter");
    let (_, file) = chapter.split_once("```toml\n").expect("a file");
    file.split_once("```").expect("its end").0.to_owned()
}

fn fairlock(folder: &Path, args: &[&str]) -> Output {
    let mut command = crate::fairlock();
    command.args(args).current_dir(folder).env("COLUMNS", "120").output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the only line on standard error says when the study in this file is refused.
fn refused(file: &str, study: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine.toml"), file).unwrap();
    let output = fairlock(folder.path(), &["study", study]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!folder.path().join("fairlock-report").exists());
    said
}

const BRIEF: [&str; 5] = ["--quick", "--seconds", "0.005", "--repetitions", "2"];

#[test]
fn the_study_of_the_book_runs_and_its_rows_bring_its_claims_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memtable.toml");
    fs::write(&path, of_the_book()).unwrap();
    let output = fairlock(folder.path(), &[&["study", "memtable.toml"], &BRIEF[..]].concat());
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("MEMTABLE") && said.contains("rwlock serves at least as many"), "{said}");
    let report = folder.path().join("fairlock-report");
    let page = fs::read_to_string(report.join("report.html")).unwrap();
    for words in ["Which lock for the memtable?", "No insert waits longer", "Verdicts"] {
        assert!(page.contains(words), "{words}");
    }
    // Elsewhere, later, without the file.
    let other = tempfile::tempdir().unwrap();
    fs::copy(report.join("rows.jsonl"), other.path().join("rows.jsonl")).unwrap();
    drop(folder);
    for out in ["page.html", "page.md"] {
        let output = fairlock(other.path(), &["report", "rows.jsonl", "--out", out]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
        let page = fs::read_to_string(other.path().join(out)).unwrap();
        assert!(page.contains("No insert waits longer"), "{out}: {page}");
    }
}

#[test]
fn a_study_file_is_found_by_its_path_and_by_its_name_in_this_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("mine")).unwrap();
    for name in ["mine/first", "second.toml", "s4"] {
        fs::write(folder.path().join(name), of_the_book()).unwrap();
    }
    let runs = |study: &str, name: &str| {
        let output = fairlock(folder.path(), &[&["study", study], &BRIEF[..]].concat());
        let said = text(&output.stderr);
        assert!(output.status.success() && said.contains(&format!("{name}: 8 cells")), "{said}");
    };
    runs("mine/first", "first");
    runs("second.toml", "second");
    runs("./s4", "s4");
    // A name that Fairlock has means its own study.
    let output = fairlock(folder.path(), &["study", "s4", "--out", "/proc/none"]);
    assert!(text(&output.stderr).contains("/proc/none"));
    let output = fairlock(folder.path(), &["study", "s4", "./s4"]);
    let said = text(&output.stderr);
    assert!(said.contains("two different studies are called s4"), "{said}");
}

#[test]
fn mistakes_in_a_study_file_are_told_with_its_path_and_line_and_what_is_allowed() {
    let file = of_the_book();
    let line_of = |words: &str| 1 + file.lines().position(|line| line.contains(words)).unwrap();
    let heading = |words: &str, heading: &str| {
        let before = file.lines().take(line_of(words)).enumerate();
        1 + before.filter(|(_, line)| *line == heading).last().unwrap().0
    };
    let broken = |from: &str, to: &str, line: usize, words: &[&str]| {
        assert!(file.contains(from), "{from}");
        let said = refused(&file.replacen(from, to, 1), "mine.toml");
        assert!(said.contains(&format!("mine.toml, line {line}: ")), "{line}: {said}");
        words.iter().for_each(|words| assert!(said.contains(words), "{words}: {said}"));
    };
    broken("longest_wait", "longest", line_of("longest_wait"), &["roles.ROLE.NAME", "jain"]);
    broken("expect =", "expects =", line_of("expect ="), &["`expects`", "`expect`"]);
    broken("title = \"Which", "title = Which", 1, &[]);
    let run = heading("lookups and inserts", "[[run]]");
    broken("\"parking_lot\"]", "\"parkinglot\"]", run, &["no lock `parkinglot`", "parking_lot"]);
    broken("repetitions = 5", "repetitions = 5000", run, &["repetitions", "1 to 1000"]);
    broken("workload = \"mix\"", "workload = \"max\"", run, &["\"max\"", "mix, turns"]);
    let case = "read_percent = 99 } }]";
    let claim = heading("\"inserts\"", "[[claim]]");
    broken(case, "read_percent = 98 } }]", claim, &["claim \"inserts\"", "0 cells fit rwlock"]);
}

#[test]
fn what_is_no_study_file_is_refused_with_advice() {
    let unknown = refused("", "memtable");
    assert!(unknown.contains("path of a study file, such as ./memtable.toml"), "{unknown}");
    assert!(refused("", "none.toml").contains("cannot read the study none.toml: No such file"));
    assert!(refused("", "./").contains("it is not a file"));
    assert!(refused("", "/dev/zero").contains("it is not a file"));
    let device = of_the_book().replacen("[[run]]", "[[run]]\nmachine = \"/dev/zero\"", 1);
    assert!(refused(&device, "mine.toml").contains("\"/dev/zero\": it is not a file"));
    let points = "points = [{ read_percent = [50, 99]";
    let list = |name: &str| format!(", {name} = [{}]", vec!["\"1p\""; 100].join(", "));
    let many = format!("{points}{}{}", list("read_section"), list("write_section"));
    let many = of_the_book().replacen(points, &many, 1);
    assert!(refused(&many, "mine.toml").contains("more than 10000 combinations"));
}

#[test]
fn rows_of_a_study_that_nobody_has_are_shown_without_its_claims() {
    let folder = tempfile::tempdir().unwrap();
    let mut header = Header::now(vec!["gone".to_owned()], false, machine::here(None));
    let path = folder.path().join("rows.jsonl");
    let write = |header: &Header| {
        let mut writer = Writer::create(&path, header).unwrap();
        writer.row(&fairlock_study::example::row("mix", "std", &[("threads", 2.0)])).unwrap();
        let output = fairlock(folder.path(), &["report", "rows.jsonl"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let page = fs::read_to_string(folder.path().join("rows.html")).unwrap();
        assert!(page.contains("its rows are shown without its claims"), "{page}");
        text(&output.stderr)
    };
    let said = write(&header);
    assert!(said.starts_with("warning: study gone: it is not part of this version"), "{said}");
    // One that this version cannot judge.
    header.study_files = [("gone".to_owned(), serde_json::json!({ "title": "t" }))].into();
    let said = write(&header);
    assert!(said.starts_with("warning: study gone: missing field"), "{said}");
}

#[test]
fn nothing_in_a_study_file_reaches_the_terminal_but_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let file = of_the_book().replace("Which lock", "\\u001b[31mWhich\\nlock");
    fs::write(folder.path().join("red.toml"), file).unwrap();
    let output = fairlock(folder.path(), &[&["study", "red.toml"], &BRIEF[..]].concat());
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains(r"\x1b[31mWhich lock"), "{said}");
    assert!(!said.contains('\u{1b}'));
}

#[test]
fn the_names_that_a_study_file_needs_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let listed = text(&fairlock(folder.path(), &["list"]).stdout);
    for words in ["Metrics (for", "total_ops_per_s", "roles.ROLE.NAME", "longest_bypass"] {
        assert!(listed.contains(words), "{words}: {listed}");
    }
    let help = text(&fairlock(folder.path(), &["study", "--help"]).stdout);
    assert!(help.contains("paths of study files") && help.contains("memtable.toml"), "{help}");
}
