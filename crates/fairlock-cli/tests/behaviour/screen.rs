//! What the command prints, on terminals and elsewhere: its width, its words, its colours; and outputs that are
//! closed or full.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::ptr;

use fairlock_lab::machine;
use fairlock_report::recording::{Header, Recording, Writer};
use fairlock_study::example;
use fairlock_study::study;

fn fairlock(args: &[&str]) -> Command {
    let mut command = crate::fairlock();
    command.args(args).stdin(Stdio::null()).env_remove("COLUMNS").env_remove("NO_COLOR");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What it prints where lines may have so many columns.
fn prints(args: &[&str], columns: usize) -> String {
    prints_in(Path::new("."), args, columns)
}

/// The same, started in this directory.
fn prints_in(directory: &Path, args: &[&str], columns: usize) -> String {
    let mut command = fairlock(args);
    command.current_dir(directory).env("COLUMNS", columns.to_string());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split_whitespace().filter(|word| !word.starts_with('─')).collect()
}

/// Lines of at most `width` characters, unless they are one word, such as a path.
fn assert_fits(text: &str, width: usize) {
    for line in text.lines() {
        let fits = line.chars().count() <= width || !line.trim().contains(' ');
        assert!(fits, "{} columns: {line}\nin {text}", line.chars().count());
    }
}

/// `1 runs` and the like, which no text may say.
fn assert_plural(text: &str) {
    const SINGULAR: [&str; 10] =
        ["is", "was", "has", "less", "times", "ns", "ms", "µs", "process", "pass"];
    let all: Vec<&str> = text.split_whitespace().collect();
    for pair in all.windows(2) {
        let (count, thing) = (pair[0], pair[1].trim_end_matches(['.', ',', ';', ':', ')']));
        let is_plural = thing.ends_with('s') && thing.chars().all(char::is_alphabetic);
        let is_one = count.trim_start_matches('(') == "1";
        let is_wrong = is_one && is_plural && !SINGULAR.contains(&thing);
        assert!(!is_wrong, "{count} {thing} in {text}");
    }
}

/// That the words of the narrow text are those of the wide one, so none was broken.
fn assert_whole_words(narrow: &str, wide: &str) {
    let (narrow, wide) = (words(narrow), words(wide));
    let broken: Vec<&&str> = narrow.difference(&wide).collect();
    assert!(broken.is_empty(), "{broken:?}");
}

/// What this prints in 80 columns, where all is well with it.
fn looked_at(args: &[&str]) -> String {
    looked_at_in(Path::new("."), args)
}

fn looked_at_in(directory: &Path, args: &[&str]) -> String {
    let [narrow, wide] = [80, 120].map(|columns| prints_in(directory, args, columns));
    assert_fits(&narrow, 80);
    assert_fits(&wide, 120);
    assert_whole_words(&narrow, &wide);
    assert_plural(&narrow);
    narrow
}

/// The subcommands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    // Between usage and options, under one heading or several; what begins otherwise is an argument.
    let (list, _) = help.split_once("\nOptions:").unwrap_or_default();
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    let names = names.filter(|name| name.starts_with(|it: char| it.is_ascii_lowercase()));
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

fn look_at_help(command: &[String], seen: &mut usize) {
    let args: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
    let help = looked_at(&args);
    *seen += 1;
    for name in subcommands(&help) {
        look_at_help(&[command, &[name]].concat(), seen);
    }
}

#[test]
fn the_help_of_every_command_fits_80_columns_with_whole_words() {
    let mut seen = 0;
    look_at_help(&[], &mut seen);
    assert!(seen > 25, "only {seen} commands have help");
}

#[test]
fn workloads_are_listed_in_groups_with_those_about_locks_first() {
    let help = prints(&["bench", "--help"], 80);
    let places =
        ["Locks:\n  mix ", "\n  turns ", "Files, logs", "Ready lists:", "The kernel's own"];
    let places = places.map(|words| help.find(words).unwrap_or_else(|| panic!("{words}: {help}")));
    assert!(places.is_sorted(), "{help}");
    assert!(help.ends_with('\n'));
}

#[test]
fn directories_are_called_so_in_usages() {
    for command in ["append", "tail", "verify", "repair", "stat", "truncate", "backup"] {
        let help = prints(&["log", command, "--help"], 80);
        let usage = help.split_once("Usage:").unwrap().1.split_once("\n\n").unwrap().0;
        assert!(usage.contains("<DIR>"), "{command}: {usage}");
    }
}

#[test]
fn lists_and_machines_fit_80_columns_with_whole_words() {
    looked_at(&["list"]);
    looked_at(&["list", "--machine", "ivybridge-ex-8s"]);
}

/// Rows of studies, without a measurement.
fn write_rows(path: &Path, studies: &[&str]) {
    let studies = study::choose(studies).unwrap();
    let names = studies.iter().map(|study| study.name.clone()).collect();
    let header = Header::now(names, false, machine::here(None));
    let mut writer = Writer::create(path, &header).unwrap();
    for batch in study::batches(&studies, study::Effort::default()) {
        for cell in &batch.cells {
            writer.row(&example::row_of(cell)).unwrap();
        }
    }
}

#[test]
fn studies_fit_80_columns_with_whole_words() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.jsonl");
    write_rows(&path, &["all"]);
    // Its path would be as wide as it happens to be.
    let said = looked_at_in(directory.path(), &["report", "rows.jsonl"]);
    assert!(said.contains("\nSummary\n") && said.contains("\nS4 · "), "{said}");
}

#[test]
fn a_benchmark_fits_80_columns_with_whole_words_and_one_of_a_kind_is_singular() {
    let locks = "rwlock,rwsem,phase-fair,linux-5.11,no-reader-steal,mutex";
    let what = ["bench", "mix", "--on", "x86-12", "--lock", locks];
    let how = ["--readers", "1", "--writers", "1", "--seeds", "1", "--seconds", "0.0002"];
    let said = looked_at(&[&what[..], &how].concat());
    assert!(said.contains("1 reader + 1 writer") && said.contains("1 writer "), "{said}");
}

#[test]
fn a_report_on_a_program_fits_80_columns_and_one_of_a_kind_is_singular() {
    let script = ["run", "--compare", "glibc,rwsem", "--runs", "1", "--warm-up", "0", "true"];
    let output = fairlock(&script).output().unwrap();
    // Warnings are one line.
    let said = text(&output.stderr);
    let said: Vec<&str> = said.lines().filter(|line| !line.starts_with("warning: ")).collect();
    assert_fits(&said.join("\n"), 80);
    assert_plural(&said.join(" "));
    assert!(said.join(" ").contains("medians of 1 run each"), "{said:?}");
}

/// Both ends of a terminal of so many columns: what is typed and shown, and the program's.
fn terminal(columns: u16) -> (File, OwnedFd) {
    let size = libc::winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut near, mut far) = (-1, -1);
    // SAFETY: the numbers and the size live; the rest is left to the system.
    let opened = unsafe {
        libc::openpty(&raw mut near, &raw mut far, ptr::null_mut(), ptr::null(), &raw const size)
    };
    assert_eq!(opened, 0);
    use std::os::fd::FromRawFd;
    // SAFETY: both were just opened.
    unsafe { (File::from_raw_fd(near), OwnedFd::from_raw_fd(far)) }
}

/// What a terminal of so many columns shows of it.
fn shown(command: &mut Command, columns: u16) -> String {
    let (mut near, far) = terminal(columns);
    command.stdout(far.try_clone().unwrap()).stderr(far);
    let mut child = command.spawn().unwrap();
    // It keeps the program's end open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut bytes = Vec::new();
    // The end of a terminal is an error.
    let _ = near.read_to_end(&mut bytes);
    child.wait().unwrap();
    text(&bytes).replace("\r\n", "\n")
}

#[test]
fn a_terminal_has_its_own_width_and_errors_are_broken_between_words_there() {
    let mut list = fairlock(&["list"]);
    let narrow = shown(list.env("TERM", "dumb"), 60);
    assert_fits(&narrow, 60);
    assert_whole_words(&narrow, &prints(&["list"], 120));
    let wide = shown(fairlock(&["list"]).env("TERM", "dumb"), 300);
    assert_fits(&wide, 120);
    assert!(wide.lines().any(|line| line.chars().count() > 80));

    let args = ["study", "nothing-of-this-name"];
    let one_line = text(&fairlock(&args).output().unwrap().stderr);
    assert_eq!(one_line.lines().count(), 1, "{one_line}");
    let said = shown(fairlock(&args).env("TERM", "dumb"), 50);
    assert!(said.lines().count() > 1, "{said}");
    assert_fits(&said, 50);
    assert_eq!(said.split_whitespace().collect::<Vec<_>>().join(" "), one_line.trim_end());
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let help = |change: fn(&mut Command) -> &mut Command| {
        let mut command = fairlock(&["study", "--help"]);
        shown(change(command.env("TERM", "xterm")), 80)
    };
    assert!(help(|command| command).contains('\u{1b}'));
    assert!(!help(|command| command.env("NO_COLOR", "1")).contains('\u{1b}'));
    assert!(!help(|command| command.env("TERM", "dumb")).contains('\u{1b}'));
    // Nor are lines drawn anew where that is not possible.
    let bench = ["bench", "mix", "--on", "x86-12", "--lock", "rwsem", "--seeds", "1"];
    let how = ["--threads", "2", "--seconds", "0.0002"];
    let mut bench = fairlock(&[&bench[..], &how].concat());
    let said = shown(bench.env("TERM", "dumb"), 80);
    assert!(said.contains("rwsem") && !said.contains('\u{1b}'), "{said}");
}

/// Where nobody reads any more.
fn closed() -> Stdio {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

#[test]
fn a_closed_output_ends_a_command_quietly_and_a_full_one_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.jsonl");
    write_rows(&path, &["inversion"]);
    let rows = path.to_str().unwrap();
    let page = directory.path().join("rows.html");
    let commands = [
        &["list"][..],
        &["list", "--machine", "x86-12"],
        &["--help"],
        &["--version"],
        &["study", "--help"],
        &["report", rows],
    ];
    for command in commands {
        let run = |output: Stdio| -> Output {
            fairlock(command).stdout(output).stderr(Stdio::piped()).output().unwrap()
        };
        let output = run(closed());
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{command:?}");
        let output = run(full());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(said.starts_with("error: cannot write the output: No space left"), "{said}");
        assert_eq!(said.lines().count(), 1, "{command:?}: {said}");
    }
    // What else there was to do is done.
    assert!(fs::read_to_string(page).unwrap().contains("</html>"));
}

#[test]
fn what_nobody_can_hear_is_lost_and_the_exit_code_stays() {
    for output in [closed, full] {
        let status = fairlock(&["study", "s9"]).stderr(output()).status().unwrap();
        assert_eq!(status.code(), Some(2));
    }
}

#[test]
fn a_negative_number_is_refused_by_its_option_in_one_line() {
    for (args, words) in [
        (&["study", "--seconds", "-1"][..], ["--seconds <SECONDS>", "above 0"]),
        (&["study", "--repetitions", "-1"], ["--repetitions <N>", "at least 1"]),
        (&["bench", "mix", "--threads", "-1"], ["--threads <N>", "at least 1"]),
        (&["bench", "mix", "--section", "-5us"], ["--section <LENGTH>", "pauses (10p)"]),
        (&["bench", "mix", "--readers", "-1"], ["--readers <N>", "from 0 to"]),
        (&["validate", "--seeds", "-1"], ["--seeds <N>", "at least 1"]),
        (&["calibrate", "--repetitions", "-1"], ["--repetitions <N>", "at least 1"]),
        (&["run", "--runs", "-1", "--compare", "glibc", "true"], ["--runs <N>", "at least 1"]),
        (&["run", "--every", "-1", "true"], ["--every <SECONDS>", "at least 0.001"]),
        (&["log", "tail", "-n", "-1", "log"], ["--lines <N>", "not below 0"]),
        (&["log", "append", "--segment", "-1", "log"], ["--segment <SIZE>", "4k"]),
    ] {
        let output = fairlock(args).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.starts_with("error: ") && said.lines().count() == 1, "{args:?}: {said}");
        let value = args.iter().find(|arg| arg.starts_with("-1") || arg.starts_with("-5")).unwrap();
        for word in words.into_iter().chain([*value]) {
            assert!(said.contains(word), "{args:?} lacks {word}: {said}");
        }
    }
}

/// A program that keeps a CPU busy while it lives.
struct Spinner(std::process::Child);

impl Spinner {
    fn start() -> Spinner {
        let spin = ["-c", "while :; do :; done"];
        Spinner(Command::new("sh").args(spin).spawn().expect("there is a shell"))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_busy_machine_is_told_waited_for_if_that_is_wanted_and_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.jsonl");
    let bench = ["bench", "mix", "--lock", "std", "--threads", "2", "--seconds", "0.01"];
    let how = ["--repetitions", "1", "--out", path.to_str().unwrap()];
    let args = [&bench[..], &how].concat();
    let said = |args: &[&str]| text(&fairlock(args).output().unwrap().stderr);

    let spinner = Spinner::start();
    let warning = said(&args);
    let lines: Vec<&str> = warning.lines().filter(|line| line.starts_with("warning: ")).collect();
    assert_eq!(lines.len(), 1, "{warning}");
    assert!(lines[0].contains(" CPU") && lines[0].contains("--wait"), "{warning}");
    let busy =
        Recording::read(&path, fairlock_study::registry::current).unwrap().header.others_busy_cpus;
    assert!(busy.is_some_and(|busy| busy > 0.2), "{busy:?}");
    assert!(prints(&["report", path.to_str().unwrap()], 80).contains("Other programs kept "));

    let waited = said(&[&args[..], &["--wait", "0.01"]].concat());
    assert!(waited.contains("waiting up to") && waited.contains("still keep"), "{waited}");
    // A simulated machine is not disturbed.
    let simulated = ["bench", "mix", "--on", "x86-12", "--lock", "rwsem", "--threads", "2"];
    let how = ["--seeds", "1", "--seconds", "0.0001"];
    assert!(!said(&[&simulated[..], &how].concat()).contains("busy"));
    drop(spinner);
}

/// A small file system, while it lives; none where nobody may mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<SmallDisk> {
        let directory = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(directory.path())
            .stderr(Stdio::null())
            .status();
        mount.is_ok_and(|status| status.success()).then_some(SmallDisk(directory))
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_told_once_with_all_that_did_not_run_for_it() {
    let Some(disk) = SmallDisk::mount("300k") else {
        eprintln!("skipped: nothing may be mounted here");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let study = ["study", "s0", "--quick", "--seconds", "0.001", "--repetitions", "1"];
    let how = ["--dir", disk.path(), "--out", directory.path().to_str().unwrap()];
    let output = fairlock(&[&study[..], &how].concat()).output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    if said.contains("refuses O_DIRECT") {
        eprintln!("skipped: tmpfs takes no direct I/O");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("(os error 28)").count(), 1, "{said}");
    let (_, left_out) = said.split_once("; did not run: ").expect("the list of what did not");
    let left_out = left_out.lines().next().unwrap();
    for workload in ["dio-kernel", "dio-kernel-apart", "dio-log", "dio-log-apart", "dio-lock"] {
        assert_eq!(left_out.split(", ").filter(|it| *it == workload).count(), 1, "{left_out}");
    }
}

#[test]
fn files_that_cannot_be_written_are_named_together_with_the_one_reason() {
    let Some(disk) = SmallDisk::mount("8k") else {
        eprintln!("skipped: nothing may be mounted here");
        return;
    };
    let study = ["study", "inversion", "--quick", "--seconds", "0.001", "--repetitions", "1"];
    let output = fairlock(&[&study[..], &["--out", disk.path()]].concat()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("No space left").count(), 1, "{said}");
    assert!(said.contains("rows.jsonl and ") && said.contains("report.html ("), "{said}");
    assert!(!text(&output.stdout).contains("page: "), "{said}");
}
