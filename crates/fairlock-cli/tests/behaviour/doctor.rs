//! `fairlock doctor` from outside: what is refused, what a file gives, what a recording gives where one is permitted.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use fairlock_trace::doctor::found::{Diagnosis, Found, Kind, Lock, Role};
use fairlock_trace::facts::{Times, Weight};

fn doctor(arguments: &[&str]) -> Command {
    let mut doctor = crate::fairlock();
    doctor.arg("doctor").args(arguments).stdin(Stdio::null()).env("COLUMNS", "100");
    doctor
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Fails with this code and with one line on stderr, which must contain all of `words`.
fn refuses(mut command: Command, code: i32, words: &[&str]) {
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
    assert_eq!((said.lines().count(), output.stdout.len()), (1, 0), "{said}");
    for word in words {
        assert!(said.starts_with("error: ") && said.contains(word), "lacks {word}: {said}");
    }
}

/// What it printed, if it could record; else a line for whoever reads why nothing was tested.
fn recorded(output: &Output) -> Option<String> {
    let said = text(&output.stderr);
    match output.status.code() {
        Some(0) => Some(text(&output.stdout)),
        Some(1) => {
            assert_eq!(said.lines().count(), 1, "{said}");
            eprintln!("skipped: nothing can be recorded here: {}", said.trim());
            None
        }
        _ => panic!("{output:?}"),
    }
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    for (arguments, words) in [
        (&["--record", "a", "--report", "b"][..], ["--record", "--report"]),
        (&["--record", "a", "--timeline", "b"], ["--record", "--timeline"]),
        (&["--record", "a", "--every", "1"], ["--record", "--every"]),
        (&["--record", "a", "--read", "b"], ["--record", "--read"]),
        (&["--read", "a", "--seconds", "1"], ["--read", "--seconds"]),
        (&["--read", "a", "--every", "1"], ["--read", "--every"]),
        (&["--read", "a", "--trace-calls"], ["--read", "--trace-calls"]),
        (&["--read", "a", "--everything"], ["--read", "--everything"]),
        (&["--pid", "1", "--all"], ["--pid", "--all"]),
        (&["--seconds", "0"], ["--seconds", "at least 0.001"]),
        (&["--pid", "first"], ["--pid", "\"first\" is not a whole number"]),
        (&["--pid", "1 first"], ["--pid", "\"first\" is not a whole number"]),
        (&["--pid", ""], ["--pid", "is the program running?"]),
    ] {
        refuses(doctor(arguments), 2, &words);
    }
}

#[test]
fn a_process_that_does_not_exist_and_a_thread_are_no_processes() {
    refuses(doctor(&["--pid", "4194305"]), 2, &["--pid 4194305: there is no such process"]);
    let own = std::process::id();
    let other = std::thread::spawn(|| {
        // SAFETY: a plain call.
        unsafe { libc::gettid() }
    });
    // It may have ended by now, and this thread is one as well.
    let ended = other.join().unwrap();
    refuses(doctor(&["--pid", &ended.to_string()]), 2, &[&format!("--pid {ended}")]);
    // SAFETY: a plain call.
    let this = unsafe { libc::gettid() };
    let words = [format!("--pid {this} is a thread of process {own}")];
    refuses(doctor(&["--pid", &this.to_string()]), 2, &words.each_ref().map(String::as_str));
}

#[test]
fn files_are_looked_at_before_anything_is_recorded() {
    for option in ["--report", "--timeline", "--record"] {
        let words = ["cannot write /proc/none/x.json", "writable directory with", option];
        refuses(doctor(&[option, "/proc/none/x.json"]), 2, &words);
    }
    for (option, name, words) in [
        ("--report", "x.csv", "--report x.csv: give a file that ends in .html for a page"),
        ("--report", "x", "in .jsonl or .json for JSON Lines"),
        ("--timeline", "x.html", "--timeline x.html: give a file that ends in .json"),
    ] {
        refuses(doctor(&[option, name]), 2, &[words]);
    }
    let folder = tempfile::tempdir().unwrap();
    let one = path(folder.path(), "one.json");
    fs::write(&one, "").unwrap();
    let twice = ["--report", &one, "--timeline", &one];
    refuses(doctor(&twice), 2, &["--report and --timeline both name", "give two files"]);
    refuses(doctor(&["--read", &one, "--report", &one]), 2, &["--read and --report both name"]);
    refuses(doctor(&["--read", &path(folder.path(), "missing")]), 1, &["cannot", "missing"]);
}

/// Waits of one reader and one writer for an rwsem, as `perf script` prints them.
const SCRIPT: &str = "\
appender    40/41 [000]  5001.200000000: lock:contention_begin: 0xffff88810a2b3c40 (flags=WRITE)
\tffffffff811a0001 rwsem_down_write_slowpath+0x1 ([kernel.kallsyms])
\tffffffff811a0011 down_write+0x1 ([kernel.kallsyms])
\tffffffff811b0002 ext4_file_write_iter+0x2 ([kernel.kallsyms])
\tffffffff811c0001 vfs_write+0x2 ([kernel.kallsyms])

appender    40/41 [000]  5001.900000000: lock:contention_end: 0xffff88810a2b3c40 (ret=0)

tail-1    40/42 [001]  5002.000000000: lock:contention_begin: 0xffff88810a2b3c40 (flags=READ)
\tffffffff811a0003 rwsem_down_read_slowpath+0x3 ([kernel.kallsyms])
\tffffffff811a0013 down_read+0x1 ([kernel.kallsyms])
\tffffffff811b0004 ext4_file_read_iter+0x4 ([kernel.kallsyms])
\tffffffff811c0002 vfs_read+0x2 ([kernel.kallsyms])

tail-1    40/42 [001]  5002.050000000: lock:contention_end: 0xffff88810a2b3c40 (ret=0)

";

#[test]
fn what_perf_script_printed_gives_a_report_lines_a_page_and_a_timeline() {
    let folder = tempfile::tempdir().unwrap();
    let [script, lines, page, timeline] =
        ["perf.txt", "found.jsonl", "found.html", "worst.json"].map(|it| path(folder.path(), it));
    fs::write(&script, SCRIPT).unwrap();
    let files = ["--report", &lines, "--report", &page, "--timeline", &timeline];
    let output = doctor(&[&["--read", &script][..], &files].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.starts_with("✗ S0  ") && said.contains("appender (41) 700ms"), "{said}");
    assert!(said.contains(&format!("for a page: fairlock report {lines}")), "{said}");
    let found = Found::read(Path::new(&lines)).unwrap().unwrap();
    assert_eq!((found.locks.len(), found.locks[0].kind), (1, Kind::Rwsem));
    assert!(fs::read_to_string(&page).unwrap().contains("Fairlock doctor"));
    let timeline: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&timeline).unwrap()).unwrap();
    assert!(!timeline["traceEvents"].as_array().unwrap().is_empty());
    let both = doctor(&["--read", &script, "--pid", "40 40"]).output().unwrap();
    assert!(text(&both.stdout).contains("Looked at process 40"), "{both:?}");
    let nobody = doctor(&["--read", &script, "--pid", "40 4194304"]);
    refuses(nobody, 2, &["--pid 4194304", "perf.txt has no such process"]);
}

fn found() -> Found {
    let mut found = Found::default();
    found.diagnoses.push(Diagnosis {
        rule: "readers-starve-appender".to_owned(),
        disease: Some(0),
        weight: Weight::Problem,
        text: "Readers of journal/0001 starve its appender.".to_owned(),
        ..Diagnosis::default()
    });
    let wait = Times { count: 3, max_ns: 9_000_000, ..Times::default() };
    found.locks.push(Lock {
        lock: 1,
        name: "inode lock of journal/0001".to_owned(),
        roles: vec![Role { role: "write".to_owned(), wait, ..Role::default() }],
        ..Lock::default()
    });
    found
}

#[test]
fn a_report_is_shown_again_from_its_lines() {
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("found.jsonl");
    let mut text_lines = Vec::new();
    found().write_lines(&mut text_lines).unwrap();
    fs::write(&lines, &text_lines).unwrap();
    let report = |out: &str| {
        let mut report = crate::fairlock();
        report.arg("report").arg(&lines).args(["--out", out]).stdin(Stdio::null());
        report
    };
    let page = path(folder.path(), "page.html");
    let output = report(&page).output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("✗ S0  Readers of journal/0001 starve its appender."), "{said}");
    assert!(said.ends_with(&format!("page: {page}\n")), "{said}");
    assert!(fs::read_to_string(&page).unwrap().contains("<h1>Fairlock doctor</h1>"));
    let words = ["found.jsonl was written by `fairlock doctor`, which has no Markdown page"];
    refuses(report(&path(folder.path(), "page.md")), 2, &words);
    fs::write(&lines, b"Fairlock system recording 1\n").unwrap();
    refuses(report(&page), 2, &["is a recording of `fairlock doctor`", "fairlock doctor --read"]);
    fs::write(&lines, [&text_lines[..], b"{\"lock\": 1}"].concat()).unwrap();
    refuses(report(&page), 1, &["found.jsonl", "line 4"]);
}

#[test]
fn who_may_not_record_is_told_what_is_missing() {
    // SAFETY: only asks.
    let is_root = unsafe { libc::geteuid() == 0 };
    let mut nobody = doctor(&["--seconds", "0.1"]);
    if is_root {
        nobody.uid(65534).gid(65534);
    }
    let Ok(output) = nobody.output() else {
        eprintln!("skipped: nobody else may run the command where it was built");
        return;
    };
    if output.status.success() {
        eprintln!("skipped: everybody may record here");
        return;
    }
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.starts_with("error: ") && output.stdout.is_empty(), "{said}");
}

#[test]
fn a_recording_is_kept_in_a_file_and_read_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "now.doctor");
    let output = doctor(&["--seconds", "0.2", "--record", &file]).output().unwrap();
    let Some(said) = recorded(&output) else { return };
    assert_eq!(said.lines().count(), 1, "{said}");
    let advice = format!("{file}; for the report: fairlock doctor --read {file}\n");
    assert!(said.starts_with("recorded ") && said.ends_with(&advice), "{said}");
    assert!(text(&output.stderr).starts_with("recording for 0.2"), "{output:?}");
    let output = doctor(&["--read", &file]).output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("Looked at all processes for "), "{said}");
}

#[test]
fn ctrl_c_ends_with_the_report() {
    let mut command = doctor(&["--seconds", "600", "--pid", &std::process::id().to_string()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    errors.read_line(&mut first).unwrap();
    if first.starts_with("error: ") {
        eprintln!("skipped: nothing can be recorded here: {}", first.trim());
        assert_eq!(child.wait().unwrap().code(), Some(1));
        return;
    }
    assert_eq!(first, "recording for 600 s (Ctrl-C ends early) …\n");
    // SAFETY: the child is not waited for yet, so its number is still its own.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) }, 0);
    let output = child.wait_with_output().unwrap();
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{rest}");
    assert!(said.contains(&format!("Looked at process {}", std::process::id())), "{said}");
}

#[test]
fn a_report_comes_every_so_many_seconds_and_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let lines = path(folder.path(), "found.jsonl");
    let times = ["--seconds", "2.5", "--every", "1", "--report", &lines];
    let output = doctor(&times).output().unwrap();
    let Some(said) = recorded(&output) else { return };
    assert!(said.matches("Looked at all processes").count() > 1, "{said}");
    assert!(said.starts_with("── ") && said.contains("\n\n── "), "{said}");
    assert!(said.contains(" UTC, report 2, the last "), "{said}");
    let said = text(&output.stderr);
    assert!(said.starts_with("recording for 2.50 s, with a report every 1 s"), "{said}");
    assert!(Found::read(Path::new(&lines)).unwrap().is_some());
}
