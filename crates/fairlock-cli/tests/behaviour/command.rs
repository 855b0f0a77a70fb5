//! The command from outside: what it refuses and how, its help, and a page from rows.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Command, Output, Stdio};
use std::time::Duration;

use fairlock_lab::machine;
use fairlock_lab::pollers;
use fairlock_lab::world::probe_direct_io;
use fairlock_report::params::Value;
use fairlock_report::recording::{Header, Recording, Writer};
use fairlock_report::row::Row;
use fairlock_report::units;
use fairlock_study::example;
use fairlock_study::study;

fn fairlock(args: &[&str]) -> Command {
    let mut command = crate::fairlock();
    // Wide enough that what is looked for stands in one line; `screen.rs` looks at narrower ones.
    command.args(args).env("COLUMNS", "120");
    command
}

/// Runs, expects the exit code and one line on stderr, which must contain all of `words`.
fn refuses(args: &[&str], code: i32, words: &[&str]) {
    let output = fairlock(args).output().expect("the command starts");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    assert!(said.starts_with("error: "), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{args:?} lacks {word}: {said}");
    }
}

/// Waits until that is so, which it is before the command ends.
fn wait_until(command: &mut process::Child, mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        assert!(command.try_wait().unwrap().is_none(), "ended before it was interrupted");
        std::thread::yield_now();
    }
}

fn signal(command: &process::Child, signal: libc::c_int) {
    // SAFETY: the command is not waited for yet, so its number is still its own.
    assert_eq!(unsafe { libc::kill(command.id() as libc::pid_t, signal) }, 0);
}

/// Runs a command that writes `rows`, and ends it by a signal when the first is there; what it prints.
fn ended_after_a_row(args: &[&str], rows: &Path, by: libc::c_int) -> String {
    let mut child =
        crate::fairlock().args(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    wait_until(&mut child, || fs::read_to_string(rows).unwrap_or_default().lines().count() >= 2);
    signal(&child, by);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    said
}

#[test]
fn an_unknown_name_is_refused_with_the_valid_ones() {
    refuses(&["bench", "mix", "--lock", "std,foo"], 2, &["`foo`", "rwsem", "pthread-writer"]);
    refuses(&["bench", "dio-sleep", "--lock", "foo"], 2, &["`foo`", "usync"]);
    refuses(&["study", "s9"], 2, &["\"s9\"", &study::names().join(", "), "or all"]);
    refuses(&["bench", "mux"], 2, &["mux", "mix"]);
    refuses(&["bench", "dio-cloud"], 2, &["dio-cloud", "dio-log"]);
    refuses(&["studdy"], 2, &["studdy", "study"]);
    refuses(&["bench", "dio-kernel", "--lock", "std"], 2, &["`std`", "valid: kernel"]);
}

#[test]
fn a_lock_that_a_form_of_readseek_lacks_is_refused_with_those_it_has() {
    let with = |workload: &str, more: &[&str], words: &[&str]| {
        refuses(&[&["bench", workload], more].concat(), 2, words);
    };
    with("readseek", &["--lock", "foo"], &["`foo`", "naive", "rwsem", "pthread-writer"]);
    with("readseek", &["--lock", "fcntl"], &["`fcntl`", "naive"]);
    let processes = "readseek-processes";
    with(processes, &["--lock", "std"], &["`std`", "none, pthread, fcntl, kernel"]);
    with("readseek-kernel", &["--lock", "std"], &["`std`", "valid: kernel"]);
    let on = ["--on", "skylake-sp-2s"];
    let peer_on = [&on[..], &["--lock", "usync"]].concat();
    with("readseek", &peer_on, &["`usync`", "real threads only", "naive"]);
    for workload in ["readseek-kernel", "readseek-kernel-tmpfs", processes] {
        with(workload, &on, &[&format!("`{workload}`"), "there readseek runs"]);
    }
    with("readseek-kernel", &["--dir", "/proc"], &["/proc", "--dir"]);
}

#[test]
fn what_a_log_lacks_is_refused_with_what_there_is() {
    let with = |more: &[&str], words: &[&str]| {
        refuses(&[&["bench", "log"], more].concat(), 2, words);
    };
    with(&["--log", "foo"], &["`foo`", "logfile, prewritten"]);
    with(&["--log", "okaywal", "--sync", "never"], &["never", "every with okaywal"]);
    with(&["--sync", "some"], &["every, interval, never"]);
    with(&["--threads", "0"], &["--threads", "at least 1"]);
    with(&["--record-bytes", "4q"], &["\"4q\"", "64k"]);
    with(&["--dir", "/proc"], &["/proc", "--dir"]);
    with(&["--on", "skylake-sp-2s"], &["`log` measures the real kernel", "there dio-lock runs"]);
}

#[test]
fn how_threads_come_to_a_lock_is_refused_where_it_makes_no_sense() {
    let refused = |more: &[&str], words: &[&str]| {
        refuses(&[&["bench", "mix", "--lock", "rwsem"], more].concat(), 2, words);
    };
    refused(&["--order", "some"], &["some", "apart, interleaved, shuffled"]);
    refused(&["--arrival", "some"], &["some", "together, staggered, queued"]);
    let mixed = ["--read-percent", "50", "--order"];
    for order in ["apart", "interleaved"] {
        refused(&[&mixed[..], &[order]].concat(), &["`order` is ", order, "read_percent"]);
    }
    refused(&["--stagger", "5us"], &["`stagger` is 5000ns", "staggered or queued"]);
    let queued = |more: &[&str], words| refused(&[&["--arrival", "queued"], more].concat(), words);
    queued(&["--stagger", "20ns"], &["`stagger` is 20ns", "1µs to"]);
    queued(&["--stagger", "20ms", "--threads", "100"], &["`stagger` is 20000000ns", "to 10.0ms"]);
}

#[test]
fn what_pollers_lack_is_refused_with_what_there_is() {
    for workload in ["stress-epoll", "epoll-wait"] {
        let with = |more: &[&str], words: &[&str]| {
            refuses(&[&["bench", workload], more].concat(), 2, words);
        };
        with(&["--poller", "std"], &["no poller `std`", "kernel, ready, ", "spin-list-mcs"]);
        with(&["--poller", "kernel", "--on", "x86-12"], &["poller `kernel`", "real threads only"]);
        with(&["--threads", "0"], &["\"0\"", "--threads", "at least 1"]);
        with(&["--threads", "4097"], &["is 4097", "1 to 4096"]);
        with(&["--trigger", "some"], &["some", "level, edge, once"]);
        with(&["--lock", "std"], &["no poller `std`", "kernel, ready, "]);
    }
    refuses(&["bench", "stress-epoll", "--think", "2s"], 2, &["`think`", "at most one second"]);
    refuses(&["bench", "epoll-wait", "--nested", "5"], 2, &["`nested` is 5", "0 to 4"]);
    refuses(&["bench", "epoll-wait", "--sources", "0"], 2, &["--sources", "at least 1"]);
    refuses(&["bench", "epoll-wait", "--sources", "5000"], 2, &["`sources` is 5000", "1 to 4096"]);
}

#[test]
fn impossible_thread_counts_are_refused() {
    refuses(&["bench", "mix", "--threads", "0"], 2, &["--threads", "\"0\"", "at least 1"]);
    refuses(&["bench", "mix", "--threads", "1"], 2, &["`threads` is 1", "read_percent"]);
    for workload in ["mix", "dio-sleep"] {
        let nobody = ["bench", workload, "--readers", "0", "--writers", "0"];
        refuses(&nobody, 2, &["is 0;", "1 to 4096"]);
    }
    refuses(&["study", "--repetitions", "0"], 2, &["--repetitions", "at least 1"]);
}

#[test]
fn bad_quantities_are_refused_with_the_valid_units() {
    refuses(&["bench", "mix", "--section", "10x"], 2, &["\"10x\"", "10p", "200ns"]);
    refuses(&["bench", "mix", "--think", "5"], 2, &["\"5\"", "10p"]);
    refuses(&["bench", "mix", "--seconds", "0"], 2, &["\"0\"", "above 0"]);
    for option in ["--every", "--timeout"] {
        refuses(&["run", option, "1e-10", "true"], 2, &[option, "\"1e-10\"", "at least 0.001"]);
    }
    refuses(&["bench", "mix", "--patience", "1e-10"], 2, &["\"1e-10\"", "at least 0.001"]);
    refuses(&["bench", "mix", "--read-percent", "101"], 2, &["\"101\"", "0 to 100"]);
    refuses(&["bench", "turns", "--read-percent", "99.9.9"], 2, &["\"99.9.9\"", "0 to 100"]);
    refuses(&["bench", "turns", "--time-every", "0"], 2, &["--time-every", "at least 1"]);
    refuses(&["bench", "revocation", "--readers", "0"], 2, &["--readers", "at least 1"]);
    refuses(&["bench", "dio-lock", "--read-bytes", "64q"], 2, &["\"64q\"", "64k"]);
    refuses(&["bench", "dio-lock", "--read-bytes", "1000"], 2, &["\"1000\"", "4 KiB"]);
    refuses(&["bench", "dio-sleep", "--read-hold", "300"], 2, &["\"300\"", "us"]);
    refuses(&["bench", "readseek", "--block", "1000"], 2, &["\"1000\"", "4 KiB"]);
    // Another name of the option.
    refuses(&["bench", "readseek", "--workers", "0"], 2, &["--workers", "at least 1"]);
    refuses(&["bench", "readseek", "--offsets", "some"], 2, &["disjoint, same, random"]);
}

#[test]
fn a_lock_that_never_lets_anybody_in_is_named() {
    let stuck = ["bench", "mix", "--lock", "stuck", "--threads", "2", "--seconds", "0.01"];
    let output = fairlock(&stuck).args(["--patience", "0.2"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error: lock `stuck` under mix (1 reader + 1 writer) hung"), "{said}");
}

/// Its longer sections, four of which are one after another, do not end within the patience, and the others do, if not at once
/// on a busy machine.
pub(crate) fn hung_at_the_second_section(options: &[&str]) -> Output {
    let bench = "bench mix --lock std --threads 8 --section 1us,1s --seconds 0.01 --repetitions 1";
    let bench: Vec<&str> = bench.split(' ').chain(options.iter().copied()).collect();
    let hung = |patience| fairlock(&bench).args(["--patience", patience]).output().unwrap();
    let is_second = |output: &Output| {
        let said = String::from_utf8_lossy(&output.stderr);
        said.contains("what finished before")
    };
    ["0.2", "1"].into_iter().map(hung).find(is_second).unwrap_or_else(|| hung("2.5"))
}

#[test]
fn what_finished_before_a_run_hung_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.jsonl");
    for out in [&[][..], &["--out", rows.to_str().unwrap()]] {
        let output = hung_at_the_second_section(out);
        let of = |bytes| String::from_utf8(bytes).unwrap();
        let (shown, said) = (of(output.stdout), of(output.stderr));
        assert_eq!(output.status.code(), Some(1), "{said}");
        let place = if out.is_empty() { "is above" } else { "fairlock report " };
        assert!(said.contains("lock `std` under mix") && said.contains("ended after "), "{said}");
        assert!(said.contains(place), "{said}");
        assert!(shown.contains("section 1.00µs"), "{shown}");
    }
}

#[test]
fn under_nohup_the_end_of_the_terminal_stops_nothing() {
    let bench = "bench mix --lock std --threads 2 --seconds 0.3 --repetitions 2";
    let bench: Vec<&str> = bench.split(' ').collect();
    let mut command = fairlock(&bench);
    // SAFETY: signal(2) may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            Ok(())
        });
    }
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        // SAFETY: it has not been waited for.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGHUP) };
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(status.success() && !said.contains("stopping"), "{said}");
}

#[test]
fn an_interrupt_keeps_finished_repetitions_and_removes_scratch_files() {
    // On the build's disk: /tmp is often one without O_DIRECT.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = dir.path().to_str().unwrap();
    if probe_direct_io(dir.path()).is_err() {
        eprintln!("skipped: {at} takes no direct I/O");
        return;
    }
    let mut child = crate::fairlock()
        .args(["bench", "dio-kernel", "--readers", "1", "--dir", at])
        .args(["--seconds", "0.05", "--repetitions", "1000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let scratch_files = || fs::read_dir(dir.path()).unwrap().count();
    // The probe's file, the warm-up's, then one for each run. A repetition may need three runs, so
    // at the sixth file one has ended.
    let mut seen = BTreeSet::new();
    wait_until(&mut child, || {
        seen.extend(fs::read_dir(dir.path()).unwrap().flatten().map(|file| file.file_name()));
        seen.len() >= 6
    });
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert_eq!(scratch_files(), 0);
    assert!(said.contains("kernel") && said.contains("stopped early"), "{said}");
}

#[test]
fn a_second_interrupt_ends_at_once_and_removes_a_log_that_is_in_use() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = dir.path().to_str().unwrap();
    if probe_direct_io(dir.path()).is_err() {
        eprintln!("skipped: {at} takes no direct I/O");
        return;
    }
    let mut child = crate::fairlock()
        .args(["bench", "log", "--log", "logfile", "--sync", "never", "--dir", at])
        .args(["--readers", "1", "--seconds", "1000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let entries = || fs::read_dir(dir.path()).unwrap().flatten();
    wait_until(&mut child, || entries().any(|entry| entry.path().join("control").exists()));
    while child.try_wait().unwrap().is_none() {
        signal(&child, libc::SIGINT);
        std::thread::yield_now();
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(entries().count(), 0);
}

#[test]
fn unusable_directories_are_refused_with_the_option_to_change() {
    // /proc takes no files and no directories, whoever asks.
    refuses(&["study", "--out", "/proc/none"], 2, &["/proc/none", "--out"]);
    refuses(&["study", "--out", "/proc"], 2, &["/proc", "--out"]);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    refuses(&["study", "s0", "--out", out, "--dir", "/proc"], 2, &["/proc", "--dir"]);
    refuses(&["bench", "mix", "--out", "/proc/rows.jsonl"], 2, &["/proc/rows.jsonl", "--out"]);
    refuses(&["bench", "dio-kernel", "--dir", "/proc"], 2, &["/proc", "--dir"]);
}

#[test]
fn every_command_has_help_with_an_example() {
    for args in [
        &["--help"][..],
        &["study", "--help"],
        &["bench", "--help"],
        &["bench", "mix", "--help"],
        &["bench", "dio-kernel", "--help"],
        &["bench", "dio-sleep", "--help"],
        &["bench", "turns", "--help"],
        &["bench", "uncontended", "--help"],
        &["bench", "revocation", "--help"],
        &["bench", "readseek", "--help"],
        &["bench", "readseek-processes", "--help"],
        &["bench", "inversion-lock", "--help"],
        &["bench", "inversion-list", "--help"],
        &["bench", "log", "--help"],
        &["bench", "stress-epoll", "--help"],
        &["bench", "epoll-wait", "--help"],
        &["bench", "forkstorm-kernel", "--help"],
        &["bench", "mmapstorm", "--help"],
        &["report", "--help"],
        &["calibrate", "--help"],
        &["list", "--help"],
        &["log", "--help"],
        &["log", "append", "--help"],
        &["log", "tail", "--help"],
        &["log", "verify", "--help"],
        &["log", "stat", "--help"],
    ] {
        let output = fairlock(args).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{args:?}");
        assert!(text.contains("Example:\n  fairlock "), "{args:?}: {text}");
    }
}

#[test]
fn the_help_of_run_names_every_lock_for_programs() {
    let output = fairlock(&["run", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let lock = help.split_once("--lock <NAME>").expect("the option is there").1;
    let lock = lock.split_once("--report").expect("the next option").0;
    let words: BTreeSet<&str> = lock.split([',', ' ', '\n']).collect();
    for (name, _) in fairlock_trace::LOCKS {
        assert!(words.contains(name), "{name} is missing in:{lock}");
    }
}

#[test]
fn list_names_locks_workloads_studies_and_machines() {
    let output = fairlock(&["list"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let locks = ["rwsem", "pthread-writer", "Reference locks", "mcs", "naive", "fcntl", "okaywal"];
    let others = ["dio-kernel", "turns", "readseek", "s0", "s2", "s4", "ivybridge-ex-8s", "here"];
    for name in locks.into_iter().chain(others) {
        assert!(text.lines().any(|line| line.trim_start().starts_with(name)), "{name}: {text}");
    }
}

#[test]
fn list_has_a_line_for_each_poller_but_the_wrong_one() {
    let output = fairlock(&["list"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, part) =
        text.split_once("\nPollers (for stress-epoll, epoll-wait and inversion-list)\n").unwrap();
    let (part, _) = part.split_once("\n\n").unwrap();
    let right = || pollers::registry().iter().filter(|poller| poller.name != "deaf");
    assert_eq!(part.lines().count(), right().count(), "{part}");
    for (poller, line) in right().zip(part.lines()) {
        let words = (line.split_whitespace().next(), line.ends_with(poller.about));
        assert_eq!(words, (Some(poller.name), true), "{line}");
    }
}

/// The rows that a command has written.
fn rows_at(path: &Path) -> Vec<Row> {
    Recording::read(path, fairlock_study::registry::current).unwrap().rows
}

/// Runs, and answers what was printed.
fn prints(args: &[&str]) -> String {
    let output = fairlock(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bench_stress_epoll_shows_and_keeps_how_additions_were_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    let at = path.to_str().unwrap();
    let what = ["bench", "stress-epoll", "--on", "x86-12", "--threads", "4", "--trigger", "edge"];
    let how = ["--think", "300ns", "--seeds", "2", "--seconds", "0.0002", "--out", at];
    let said = prints(&[&what[..], &how].concat());
    let words = ["1 reader + 4 writers", "edge-triggered", "simulated on x86-12", "deliveries"];
    for words in words.into_iter().chain(["poller ", "additions per read", "waits, k/s"]) {
        assert!(said.contains(words), "{words}: {said}");
    }
    let rows = rows_at(&path);
    let pollers: Vec<&str> = rows.iter().map(|row| row.lock.as_str()).collect();
    assert_eq!(pollers, pollers::names(true));
    let figures = |line: &str| -> Vec<String> {
        let line = said.lines().find(|it| it.starts_with(line)).unwrap();
        line.split_whitespace()
            .skip(line.split_whitespace().count() - 3)
            .map(str::to_owned)
            .collect()
    };
    for (place, row) in rows.iter().enumerate() {
        let (reader, writer) = (&row.roles["reader"], &row.roles["writer"]);
        let (read, calls) = (reader.ops_per_s.median, reader.wait_calls_per_s.unwrap().median);
        assert_eq!(
            [figures("additions per read"), figures("waits, k/s"), figures("reads per wait")]
                .map(|figures| figures[place].clone()),
            [
                units::format_number(writer.ops_per_s.median / read),
                units::format_kilo(calls),
                units::format_number(read / calls)
            ],
            "{said}"
        );
        let latency = reader.latency;
        assert!(latency.count > 0 && latency.p50 <= latency.p99 && latency.p99 <= latency.max);
        let times = [latency.p50, latency.p99, latency.max].map(|ns| units::format_ns(ns as f64));
        assert!(said.contains(&times.join("/")), "{times:?}: {said}");
    }
    let page = dir.path().join("rows.html");
    assert!(fairlock(&["report", at]).output().unwrap().status.success());
    assert!(fs::read_to_string(page).unwrap().contains("additions per read"));
}

#[test]
fn bench_epoll_wait_takes_every_switch() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    let what = ["bench", "epoll-wait", "--poller", "kernel,ready", "--threads", "2"];
    let switches = ["--shared", "--nonblocking", "--nested", "3", "--random", "--trigger", "once"];
    let how = ["--sources", "8", "--seconds", "0.005", "--repetitions", "1", "--out"];
    let said = prints(&[&what[..], &switches, &how, &[path.to_str().unwrap()]].concat());
    for words in [
        "2 readers + 1 writer",
        "3 nested",
        "polling",
        "in random order",
        "one poller for all",
        "8 sources each",
        "oneshot",
        "deliveries",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let rows = rows_at(&path);
    assert_eq!(rows.len(), 2);
    for row in rows {
        for (name, value) in [
            ("shared", Value::from(true)),
            ("polling", Value::from(true)),
            ("nested", Value::from(3)),
            ("random", Value::from(true)),
            ("trigger", Value::from("once")),
        ] {
            assert_eq!(row.params[name], value, "{name}");
        }
        assert!(row.roles["reader"].wait_calls_per_s.is_some());
    }
}

/// `bench epoll-wait` on the kernel's epoll with 128 sources, in a shell that has done `limits` before.
fn kernel_waits_after(limits: &str) -> process::Output {
    Command::new("sh")
        .args(["-c", &format!("{limits} && exec \"$0\" \"$@\"")])
        .arg(crate::FAIRLOCK)
        .args(["bench", "epoll-wait", "--poller", "kernel", "--threads", "2"])
        .args(["--seconds", "0.005", "--repetitions", "1"])
        .output()
        .unwrap()
}

#[test]
fn the_kernels_epoll_asks_for_the_descriptors_that_it_may_have() {
    let output = kernel_waits_after("ulimit -Sn 64 && ulimit -Hn 256");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let output = kernel_waits_after("ulimit -Sn 64 && ulimit -Hn 64");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot make an eventfd") && said.contains("`ulimit -Hn`"), "{said}");
}

#[test]
fn a_poller_that_loses_events_is_named() {
    let deaf = ["bench", "epoll-wait", "--poller", "deaf", "--threads", "1", "--seconds", "0.005"];
    let output = fairlock(&deaf).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("poller `deaf` broke `epoll-wait`: lost events: "), "{said}");
}

#[test]
fn a_machine_shows_its_figures_and_their_sources() {
    let output = fairlock(&["list", "--machine", "westmere-ex-8s"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["cy = 458", "215ns", "[mctop] MCTOP", "assumed: "] {
        assert!(text.contains(words), "{words}: {text}");
    }
    refuses(&["list", "--machine", "pdp-11"], 2, &["\"pdp-11\"", "ivybridge-ex-8s", "path"]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    fs::write(&path, "title = \"mine\"\n[topology]\nsockets = { count = 0, assumed = \"x\" }\n")
        .unwrap();
    let path = path.to_str().unwrap();
    refuses(&["list", "--machine", path], 2, &[path, "`topology.sockets`", "count = 0", "1 to 64"]);
}

#[test]
fn a_calibration_writes_a_machine_that_can_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let said = fairlock(&["list", "--machine", "here"]).current_dir(&dir).output().unwrap();
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("fairlock-here.toml") && said.contains("fairlock calibrate"), "{said}");
    let output = fairlock(&["calibrate", "--repetitions", "1"]).current_dir(&dir).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("cost.rmw") && said.contains("fairlock-here.toml"), "{said}");
    let output = fairlock(&["list", "--machine", "here"]).current_dir(&dir).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("here: ") && said.contains("cost.rmw"), "{said}");
    refuses(&["calibrate", "--out", "/proc/here.toml"], 2, &["/proc", "--out"]);
    refuses(&["calibrate", "--repetitions", "0"], 2, &["--repetitions", "at least 1"]);
}

#[test]
fn an_interrupted_calibration_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = crate::fairlock()
        .args(["calibrate", "--repetitions", "100000"])
        .current_dir(&dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Until the handler is installed a signal would end the child at once; it catches SIGINT then.
    let caught = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("SigCgt:"))?;
        u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok()
    };
    while caught().is_none_or(|signals| signals & (1 << (libc::SIGINT - 1)) == 0) {
        std::thread::yield_now();
    }
    assert!(child.try_wait().unwrap().is_none(), "ended before it was interrupted");
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("nothing is written"), "{said}");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn report_turns_rows_into_a_page_with_plots_and_verdicts() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.jsonl");
    let header = Header::now(vec!["s4".to_owned()], false, machine::here(None));
    let mut writer = Writer::create(&rows, &header).unwrap();
    for lock in ["rwsem", "linux-5.1", "linux-5.2", "usync"] {
        writer.row(&example::row("mix", lock, &[("readers", 4.0), ("writers", 4.0)])).unwrap();
    }
    let output = fairlock(&["report", rows.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("4 rows") && said.contains("rows.html"), "{said}");
    let page = fs::read_to_string(dir.path().join("rows.html")).unwrap();
    assert!(page.contains("<figure class=\"chart\"") && page.contains("</html>"));
    // 8 threads are recorded, the peer std-mutex is not.
    assert!(page.contains("Published: 1.02, 1.45"));
    assert!(page.contains("not measured here"));
    // What it comes to stands last in the terminal, and first in the page.
    let (verdicts, summary) = said.split_once("\nSummary\n").unwrap();
    assert!(verdicts.contains("Waking all readers gains more") && summary.contains("rwsem's"));
    assert!(page.find("<h2>Summary</h2>").unwrap() < page.find("<h2>Verdicts</h2>").unwrap());
}

#[test]
fn which_lock_to_use_and_where_the_page_is_stand_last() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.jsonl");
    let header = Header::now(vec!["s4".to_owned()], false, machine::here(None));
    let mut writer = Writer::create(&rows, &header).unwrap();
    for (lock, rate) in [("rwlock", 2e6), ("std", 1e6), ("usync", 0.5e6)] {
        let mut row = example::row("mix", lock, &[("readers", 4.0), ("writers", 4.0)]);
        row.total_ops_per_s = example::estimate(rate);
        writer.row(&row).unwrap();
    }
    let said = prints(&["report", rows.to_str().unwrap()]);
    let lines: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
    let [.., answer, page] = &lines[..] else { panic!("{said}") };
    assert!(answer.starts_with("Use rwlock: it starved nobody"), "{said}");
    assert!(page.contains("rows.html"), "{said}");
}

#[test]
fn report_sums_up_the_studies_that_ran_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.jsonl");
    let names = ["s0", "rwlock", "s4"].map(str::to_owned).to_vec();
    let mut writer = Writer::create(&rows, &Header::now(names, true, machine::here(None))).unwrap();
    let threads = [("readers", 32.0), ("writers", 32.0)];
    let rates = [("linux-5.1", 100.0), ("linux-5.2", 490.0), ("rwlock", 980.0), ("rwsem", 980.0)];
    for (lock, rate) in rates {
        let mut row = example::row("mix", lock, &threads);
        row.total_ops_per_s = example::estimate(rate);
        writer.row(&row).unwrap();
    }
    // The run was stopped there.
    writer.cancelled().unwrap();
    let said = prints(&["report", rows.to_str().unwrap()]);
    let (_, summary) = said.split_once("\nSummary\n").unwrap();
    let line = |words: &str| summary.lines().position(|line| line.starts_with(words)).unwrap();
    assert!(line("rwsem under") < line("rwsem's"), "{summary}");
    for words in ["4.90", "✓ reproduced here", "✓ holds here", "– not measured"] {
        assert!(summary.contains(words), "{words}: {summary}");
    }
    assert!(!summary.contains("eventpoll"), "{summary}");
}

#[test]
fn an_interrupted_study_is_summed_up_as_far_as_it_came() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.jsonl");
    let args = ["study", "s4", "--quick", "--seconds", "0.01", "--repetitions", "1", "--out"];
    let args = [&args[..], &[dir.path().to_str().unwrap()]].concat();
    let said = ended_after_a_row(&args, &rows, libc::SIGINT);
    let (_, summary) = said.split_once("\nSummary\n").unwrap();
    for words in ["rwsem's", "not measured", "stopped early"] {
        assert!(summary.contains(words), "{words}: {summary}");
    }
    let last = summary.trim_end().lines().last().unwrap();
    assert!(last.starts_with("page: ") && last.ends_with("report.html"), "{summary}");
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("<h2>Summary</h2>") && page.contains("stopped early"));
}

#[test]
fn report_of_a_study_that_is_about_no_published_system_has_no_summary() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.jsonl");
    let names = vec!["rwlock".to_owned()];
    drop(Writer::create(&rows, &Header::now(names, false, machine::here(None))).unwrap());
    let said = prints(&["report", rows.to_str().unwrap()]);
    assert!(said.contains("RWLOCK") && !said.contains("Summary"), "{said}");
}

#[test]
fn report_refuses_a_file_without_rows_and_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    refuses(&["report", &at("none.jsonl")], 1, &["none.jsonl", "No such file"]);
    fs::write(at("text.jsonl"), "hello\n").unwrap();
    refuses(&["report", &at("text.jsonl")], 1, &["text.jsonl, line 1", "fairlock study"]);
    fs::write(at("binary"), [0x7f, b'E', b'L', b'F', 0xff, 0]).unwrap();
    refuses(&["report", &at("binary")], 1, &["binary is not a report", "fairlock study"]);
}

#[test]
fn report_writes_several_recordings_as_one_page_of_markdown() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for name in ["uncontended", "mutex"] {
        let header = Header::now(vec![name.to_owned()], false, machine::here(None));
        let mut writer = Writer::create(Path::new(&at(name)), &header).unwrap();
        writer.row(&example::row("mix", "mutex", &[("readers", 0.0), ("writers", 2.0)])).unwrap();
    }
    let files = [at("mutex"), at("uncontended")];
    let said = prints(&["report", &files[0], &files[1], "--out", &at("page.md")]);
    assert!(said.contains("2 rows, page: ") && said.contains("page.md"), "{said}");
    let page = fs::read_to_string(at("page.md")).unwrap();
    // A section each; others have no name of their own.
    assert_eq!(page.matches(" {#").count(), 2, "{page}");
    assert!(page.starts_with("# Measurements\n") && !page.contains("CONTRIBUTING"), "{page}");
    prints(&["report", &files[0], "--out", &at("page.md"), "--title", "Our mutexes"]);
    assert!(fs::read_to_string(at("page.md")).unwrap().starts_with("# Our mutexes\n"));
    refuses(&["report", &files[0], "--title", "Our mutexes"], 2, &["--title", ".md"]);
    let bench = Header::now(Vec::new(), false, machine::here(None));
    drop(Writer::create(Path::new(&at("bench")), &bench).unwrap());
    refuses(&["report", &at("bench"), "--out", &at("page.md")], 1, &["studies", ".html"]);
    let help = prints(&["report", "--help"]);
    // Where its lines end depends on the terminal.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("each study once") && help.contains("an .html page only"), "{help}");
    refuses(&["report", &files[0], &files[1]], 2, &["2 files", ".md"]);
    refuses(&["report", &files[0], &files[0], "--out", &at("page.md")], 1, &["study mutex"]);
    refuses(&["report", &files[0], "--out", &files[0]], 2, &["which would be lost"]);
}

#[test]
fn report_does_not_write_over_what_it_reads() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.jsonl");
    let names = vec!["rwlock".to_owned()];
    drop(Writer::create(&rows, &Header::now(names, false, machine::here(None))).unwrap());
    let before = fs::read(&rows).unwrap();
    let path = rows.to_str().unwrap();
    refuses(&["report", path, "--out", path], 2, &["which would be lost"]);
    refuses(&["report", path, "--out", "page.pdf"], 2, &["page.pdf", "HTML"]);
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::copy(path, at("copy.html")).unwrap();
    refuses(&["report", &at("copy.html")], 2, &["which would be lost", "--out"]);
    assert_eq!(fs::read(at("copy.html")).unwrap(), before);
    // By whatever link.
    std::os::unix::fs::symlink(path, at("rows.html")).unwrap();
    refuses(&["report", path], 2, &["which would be lost"]);
    fs::hard_link(path, at("linked.md")).unwrap();
    refuses(&["report", path, "--out", &at("linked.md")], 2, &["which would be lost"]);
    assert_eq!(fs::read(&rows).unwrap(), before);
}

#[test]
fn what_cannot_be_kept_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let bench = ["bench", "mix", "--on", "x86-12", "--lock", "rwlock", "--seconds", "0.0001"];
    let with = |more: &[&'static str]| [&bench[..], more].concat();
    let (page, both) = (at("p.html"), at("t"));
    refuses(
        &[&bench[..], &["--out", &page]].concat(),
        2,
        &["lines of JSON", ".jsonl", "fairlock report"],
    );
    refuses(&with(&["--out", "/nonexistent/r.jsonl"]), 2, &["/nonexistent", "--out"]);
    refuses(&with(&["--timeline", "/nonexistent/t"]), 2, &["/nonexistent", "--timeline"]);
    let both = [&bench[..], &["--out", &both, "--timeline", &both]].concat();
    refuses(&both, 2, &["--timeline", "would be lost"]);
    refuses(&["run", "--report", "/nonexistent/x.html", "true"], 2, &["/nonexistent", "--report"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn results_stay_until_there_are_others() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let rows = dir.path().join("rows.jsonl");
    let page = dir.path().join("report.html");
    for file in [&rows, &page] {
        fs::write(file, "of an earlier run").unwrap();
    }
    let study = ["study", "mutex", "--quick", "--out", folder];
    let too_often = [&study[..], &["--repetitions", "2000"]].concat();
    refuses(&too_often, 2, &["`repetitions` is 2000", "1 to 1000"]);
    // Interrupted while it waits for others, or before a first result.
    let mut command = crate::fairlock();
    command.args(study).args(["--seconds", "30"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A shell's jobs in the background start with the signal ignored.
    // SAFETY: the function is one of those that may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    std::io::Read::read_exact(child.stderr.as_mut().unwrap(), &mut [0]).unwrap();
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    for file in [&rows, &page] {
        assert_eq!(fs::read_to_string(file).unwrap(), "of an earlier run");
    }
}

#[test]
fn bench_prints_a_table_and_keeps_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("mix.jsonl");
    let output = fairlock(&[
        "bench",
        "mix",
        "--lock",
        "std,rwsem",
        "--threads",
        "2",
        "--seconds",
        "0.02",
        "--repetitions",
        "1",
        "--out",
        rows.to_str().unwrap(),
    ])
    .output()
    .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 reader + 1 writer"), "{said}");
    // The header, and for each lock the mix and both roles alone.
    assert_eq!(fs::read_to_string(&rows).unwrap().lines().count(), 7);
    assert!(Path::new(&rows).exists());
}

#[test]
fn list_shows_the_bytes_of_each_lock() {
    let output = fairlock(&["list"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let bytes = |name: &str| {
        let of_lock = |line: &&str| line.split_whitespace().next() == Some(name);
        let line = text.lines().find(of_lock).unwrap_or_else(|| panic!("{name}: {text}"));
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
    };
    // By which debug builds tell locks apart.
    let number = if cfg!(debug_assertions) { 8 } else { 0 };
    assert_eq!((bytes("rwsem"), bytes("mutex")), (24 + number, 16 + number));
    assert!(bytes("sharded") > 8 * 64);
    assert!(text.contains("for each thread that reads"), "{text}");
}

#[test]
fn bench_turns_takes_fractions_of_a_percent_and_pins_its_threads() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("turns.jsonl");
    let output = fairlock(&["bench", "turns", "--lock", "rwlock,std", "--threads", "2"])
        .args(["--read-percent", "99.99", "--pinned", "--time-every", "1"])
        .args(["--seconds", "0.02", "--repetitions", "1", "--out", rows.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in ["2 threads", "99.99 % reads", "pinned", "every operation timed"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let text = fs::read_to_string(&rows).unwrap();
    assert!(text.contains("\"read_percent\":99.99") && text.contains("\"pinned\":true"), "{text}");
}

#[test]
fn what_a_simulated_machine_cannot_run_is_refused() {
    let on = |more: &[&str], words: &[&str]| {
        refuses(&[&["bench", "mix", "--on", "ivybridge-ex-8s"], more].concat(), 2, words);
    };
    on(&["--lock", "usync"], &["`usync`", "real threads only", "rwsem", "mcs"]);
    on(&["--lock", "foo"], &["no lock `foo`"]);
    on(&["--seeds", "0"], &["--seeds", "at least 1"]);
    on(&["--repetitions", "3"], &["--repetitions", "--on"]);
    on(&["--on", "ivybridge-ex-8s"], &["ivybridge-ex-8s", "twice"]);
    on(&["--timeline", "x.json", "--timeline-length", "2s"], &["\"2s\"", "2ms"]);
    refuses(&["bench", "mix", "--on", "cray-1"], 2, &["\"cray-1\"", "ivybridge-ex-8s"]);
    refuses(&["bench", "mix", "--on", "./none.toml"], 2, &["none.toml"]);
    refuses(&["bench", "mix", "--seeds", "3"], 2, &["--on"]);
    let kernel = ["bench", "dio-kernel", "--on", "ivybridge-ex-8s"];
    refuses(&kernel, 2, &["dio-kernel", "dio-sleep"]);
}

#[test]
fn the_same_seeds_give_the_same_file_of_rows() {
    let dir = tempfile::tempdir().unwrap();
    let rows = |file: &str, seed: &str| -> Vec<String> {
        let path = dir.path().join(file);
        let output = fairlock(&["bench", "mix", "--on", "ivybridge-ex-8s", "--threads", "4"])
            .args(["--seeds", "2", "--seed", seed, "--seconds", "0.0005"])
            .args(["--out", path.to_str().unwrap()])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("simulated on ivybridge-ex-8s"), "{said}");
        assert!(said.contains("transfers"), "{said}");
        // The header has the date.
        fs::read_to_string(path).unwrap().lines().skip(1).map(str::to_owned).collect()
    };
    let first = rows("first.jsonl", "1");
    // Four locks, each with both roles alone.
    assert_eq!(first.len(), 12);
    assert_eq!(first, rows("again.jsonl", "1"));
    assert_ne!(first, rows("other.jsonl", "9"));
}

#[test]
fn a_timeline_is_written_for_viewers_and_kept_with_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let output = fairlock(&["bench", "dio-lock", "--on", "skylake-sp-2s"])
        .args(["--lock", "linux-5.11,rwsem", "--readers", "1", "--seeds", "1"])
        .args(["--seconds", "0.002", "--timeline", &at("dio.json"), "--out", &at("dio.jsonl")])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("dio.json"), "{said}");
    let text = fs::read_to_string(at("dio.json")).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    for name in ["hold read", "hold write", "wait write", "sleeps", "process_name", "wake-up"] {
        assert!(events.iter().any(|event| event["name"] == name), "{name}");
    }
    let lines = fs::read_to_string(at("dio.jsonl")).unwrap();
    assert_eq!(lines.lines().filter(|line| line.starts_with("{\"timeline\"")).count(), 2);
    assert!(fairlock(&["report", &at("dio.jsonl")]).output().unwrap().status.success());
    let page = fs::read_to_string(at("dio.html")).unwrap();
    for lock in ["linux-5.11", "rwsem"] {
        let title = format!("{lock} on skylake-sp-2s</b>");
        assert_eq!(page.matches(&title).count(), 1, "{lock}");
    }
    assert!(page.contains("without a CPU"));
}

#[test]
fn an_interrupt_keeps_the_simulated_rows_that_are_finished() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    // The first point takes no time, the others some seconds.
    let args = ["--threads", "2,240,239,238", "--seeds", "40", "--seconds", "0.001", "--out"];
    let bench = ["bench", "mix", "--on", "ivybridge-ex-8s", "--lock", "rwsem"];
    let args = [&bench[..], &args, &[path.to_str().unwrap()]].concat();
    ended_after_a_row(&args, &path, libc::SIGINT);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.lines().nth(1).unwrap().contains("\"repetitions\":40,"), "{text}");
    assert!(text.contains("\"cancelled\":true"), "{text}");
}

#[test]
fn an_interrupt_ends_simulated_polls_and_keeps_their_finished_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    // The first point takes no time, the others some seconds.
    let args = ["--threads", "1,128,127,126", "--seeds", "8", "--seconds", "0.0002", "--out"];
    let bench = ["bench", "stress-epoll", "--poller", "ready", "--on", "x86-12"];
    let args = [&bench[..], &args, &[path.to_str().unwrap()]].concat();
    ended_after_a_row(&args, &path, libc::SIGTERM);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.lines().nth(1).unwrap().contains("\"repetitions\":8,"), "{text}");
    assert!(text.contains("\"cancelled\":true"), "{text}");
}

/// The children of a process.
fn children(of: u32) -> Vec<libc::pid_t> {
    let list = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    list.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// `bench readseek-processes` with three workers, for half a minute.
fn readseek_in_processes(lock: &str) -> process::Child {
    crate::fairlock()
        .args(["bench", "readseek-processes", "--lock", lock, "--workers", "2"])
        .args(["--writers", "1", "--offsets", "same", "--seconds", "30", "--repetitions", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until all three workers have caught up with their parent: they ignore interrupts then.
fn wait_for_workers(of: &mut process::Child) -> Vec<libc::pid_t> {
    let ignores = |child: &libc::pid_t| {
        let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let signals = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
        signals.is_some_and(|signals| signals & (1 << (libc::SIGINT - 1)) != 0)
    };
    loop {
        assert!(of.try_wait().unwrap().is_none(), "ended before it was interrupted");
        let workers = children(of.id());
        if workers.len() == 3 && workers.iter().all(ignores) {
            return workers;
        }
        std::thread::yield_now();
    }
}

fn is_alive(process: libc::pid_t) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { libc::kill(process, 0) == 0 }
}

#[test]
fn a_worker_process_that_dies_ends_the_run_and_is_named() {
    for lock in ["none", "pthread", "fcntl", "kernel"] {
        let mut command = readseek_in_processes(lock);
        let workers = wait_for_workers(&mut command);
        // SAFETY: a child of a child that has not ended, so its number is still its own.
        assert_eq!(unsafe { libc::kill(workers[1], libc::SIGKILL) }, 0);
        let output = command.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{lock}: {said}");
        assert!(said.contains("worker process 2 of 3 ended before its time"), "{lock}: {said}");
        assert!(!workers.into_iter().any(is_alive), "{lock}");
    }
}

#[test]
fn an_interrupt_ends_worker_processes_too() {
    let mut command = readseek_in_processes("pthread");
    let workers = wait_for_workers(&mut command);
    // As a terminal does: to all of them.
    for process in workers.iter().copied().chain([command.id() as libc::pid_t]) {
        // SAFETY: none of them has ended, so the numbers are still their own.
        assert_eq!(unsafe { libc::kill(process, libc::SIGINT) }, 0);
    }
    let output = command.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(!workers.into_iter().any(is_alive), "{said}");
}

#[test]
fn workers_end_with_a_command_that_is_killed() {
    let mut command = readseek_in_processes("fcntl");
    let workers = wait_for_workers(&mut command);
    command.kill().unwrap();
    command.wait().unwrap();
    // They are nobody's children then; whoever takes them in may take its time.
    for worker in workers {
        while is_alive(worker) {
            let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap_or_default();
            if status.contains("State:\tZ") {
                break;
            }
            std::thread::yield_now();
        }
    }
}

#[test]
fn bench_readseek_shows_torn_reads() {
    let output = fairlock(&["bench", "readseek", "--lock", "none,naive", "--workers", "1"])
        .args(["--writers", "1", "--offsets", "same", "--block", "64k", "--write-blocks", "2"])
        .args(["--seconds", "0.02", "--repetitions", "1"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in ["1 reader + 1 writer", "blocks of 64 KiB", "one offset", "writes of 2 blocks"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let torn = said.lines().find(|line| line.starts_with("torn")).unwrap();
    assert!(torn.trim_end().ends_with(" 0"), "{torn}");
}

#[test]
fn a_report_on_a_programs_locks_is_shown_again_from_its_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = folder.path().join("report.jsonl");
    let report = fairlock_trace::report::Report::new(&[], None, &["server".to_owned()]);
    let mut text = Vec::new();
    report.write_lines(&mut text).expect("memory can be written");
    fs::write(&lines, &text).expect("a writable folder");
    let output = fairlock(&["report"]).arg(&lines).output().expect("the command starts");
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success() && said.contains("No process was counted"), "{said}");
    assert!(said.ends_with("only its header line: it may have been cut off\n"), "{said}");
    let page = fs::read_to_string(lines.with_extension("html")).expect("it wrote a page");
    assert!(page.contains("<h1>Locks of server</h1>"), "{page}");
    fs::write(&lines, [&text[..], b"{\"lock\": 1}"].concat()).expect("a writable folder");
    refuses(&["report", lines.to_str().expect("UTF-8")], 1, &["report.jsonl", "line 2"]);
}
