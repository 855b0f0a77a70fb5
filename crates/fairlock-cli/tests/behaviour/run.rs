//! `fairlock run` from outside: what stays the program's, what is refused, what is compared.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use object::{Object, ObjectSymbol};
use tempfile::TempDir;

fn command() -> PathBuf {
    PathBuf::from(crate::FAIRLOCK)
}

fn fairlock(arguments: &[&str]) -> Command {
    let mut fairlock = crate::fairlock();
    fairlock.arg("run").args(arguments).stdin(Stdio::null()).env("COLUMNS", "120");
    fairlock
}

/// Runs this under a shell.
fn shell(options: &[&str], script: &str) -> Output {
    fairlock(options).args(["--", "sh", "-c", script]).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Starts it with all its ends in our hands.
fn start(options: &[&str], script: &str) -> (Child, BufReader<ChildStdout>) {
    let mut fairlock = fairlock(options);
    fairlock.args(["--", "sh", "-c", script]);
    let fairlock = fairlock.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A shell cannot trap what was ignored when it came, as under nohup.
    let trappable = || {
        for number in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: a plain call, which is allowed here.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: only that call is made between fork and exec.
    unsafe { fairlock.pre_exec(trappable) };
    let mut child = fairlock.spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

fn line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: the child is not waited for yet, so its number is still its own.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
}

/// Refused before anything runs: one line on stderr, which must contain all of `words`.
fn refuses(arguments: &[&str], words: &[&str]) {
    let output = fairlock(arguments).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert_eq!((said.lines().count(), output.stdout.len()), (1, 0), "{said}");
    for word in words {
        assert!(said.starts_with("error: ") && said.contains(word), "lacks {word}: {said}");
    }
}

/// An executable file.
fn executable(path: &Path, bytes: &[u8]) -> String {
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn input_output_arguments_and_exit_code_are_the_programs() {
    let (mut child, mut output) =
        start(&["--lock", "rwlock"], r#"cat; echo "$0" 'two words' >&2; exit 7"#);
    child.stdin.take().unwrap().write_all(b"from outside\n").unwrap();
    let mut printed = String::new();
    output.read_to_string(&mut printed).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((printed.as_str(), output.status.code()), ("from outside\n", Some(7)));
    let said = text(&output.stderr);
    assert!(said.starts_with("sh two words\n"), "{said}");
    assert!(
        said.contains("No pthread_rwlock was used; pthread mutexes are not replaced"),
        "{said}"
    );
}

#[test]
fn programs_get_the_library_its_lock_and_a_directory_that_is_gone_afterwards() {
    let print = r#"echo "$LD_PRELOAD"; echo "$FAIRLOCK_LOCK"; echo "$FAIRLOCK_COUNTS"; exec env sh -c 'touch "$FAIRLOCK_COUNTS/here"'"#;
    let mut run = fairlock(&["-q", "--lock", "linux-5.11", "--", "sh", "-c", print]);
    let output = run.env("LD_PRELOAD", "/nowhere/other.so").output().unwrap();
    let printed = text(&output.stdout);
    let [preload, lock, counts] = printed.lines().collect::<Vec<_>>()[..] else {
        panic!("{printed}");
    };
    assert!(output.status.success());
    assert!(preload.ends_with("/libfairlock_pthread.so:/nowhere/other.so"), "{preload}");
    assert_eq!(lock, "linux-5.11");
    assert!(!Path::new(counts).exists(), "{counts}");
}

#[test]
fn death_by_a_signal_is_passed_on_after_the_report() {
    for signal in [libc::SIGSEGV, libc::SIGTERM, libc::SIGKILL] {
        let output = shell(&[], &format!("kill -{signal} $$"));
        assert_eq!(output.status.signal(), Some(signal));
        assert!(!output.status.core_dumped(), "a core of fairlock's replaces the program's");
        assert!(text(&output.stderr).contains("pthread_rwlock"));
    }
}

#[test]
fn the_signal_that_ended_the_program_is_named_in_the_report_and_its_file() {
    let directory = crate::folder();
    let path = directory.path().join("report.jsonl");
    for (signal, name) in [(libc::SIGSEGV, "SIGSEGV"), (libc::SIGABRT, "SIGABRT")] {
        let report = ["--report", path.to_str().unwrap()];
        let output = shell(&report, &format!("kill -{signal} $$"));
        let said = text(&output.stderr);
        let words = format!("✗ The program was ended by {name} (signal {signal})");
        assert!(said.starts_with(&words), "{said}");
        let first = fs::read_to_string(&path).unwrap();
        let run: serde_json::Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
        assert_eq!(run["run"]["exit"], serde_json::json!({ "signal": signal }));
        // The same is read from the file, and shells see the number that they give such an end.
        let report = crate::fairlock().args(["report", path.to_str().unwrap()]).output();
        assert!(text(&report.unwrap().stdout).contains(name));
        let script = format!("\"$0\" run -q -- sh -c 'kill -{signal} $$'; echo $?");
        let shell = Command::new("sh").args(["-c", &script, crate::FAIRLOCK]).output().unwrap();
        assert_eq!(text(&shell.stdout), format!("{}\n", 128 + signal));
    }
    let output = shell(&["--report", path.to_str().unwrap()], "exit 3");
    assert!(!text(&output.stderr).contains("ended by"));
    assert!(fs::read_to_string(&path).unwrap().contains("\"exit\":{\"code\":3}"));
}

#[test]
fn signals_are_passed_on_but_for_the_one_that_asks_for_a_report() {
    let script = "trap 'echo hup' HUP; trap 'echo usr1' USR1; trap 'echo int' INT; \
                  trap 'echo usr2' USR2; trap 'echo term; exit 3' TERM; \
                  echo ready; while :; do read line; done";
    let (mut child, mut output) = start(&[], script);
    assert_eq!(line(&mut output), "ready");
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    for (number, said) in [(libc::SIGHUP, "hup"), (libc::SIGUSR1, "usr1"), (libc::SIGINT, "int")] {
        signal(&child, number);
        assert_eq!(line(&mut output), said);
    }
    signal(&child, libc::SIGUSR2);
    assert!(line(&mut errors).contains("counted up to now"));
    signal(&child, libc::SIGTERM);
    assert_eq!(line(&mut output), "term");
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn reports_come_every_so_many_seconds() {
    let (mut child, _output) = start(&["--every", "0.01"], "read line");
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let reports = (0..).map(|_| line(&mut errors)).filter(|line| line.contains("up to now"));
    assert_eq!(reports.take(2).count(), 2);
    drop(child.stdin.take());
    // The rest, so that nobody waits for a reader.
    errors.read_to_end(&mut Vec::new()).unwrap();
    child.wait().unwrap();
}

#[test]
fn signals_are_ignored_and_blocked_as_fairlock_found_them() {
    let look = ["grep", "-E", "SigBlk|SigIgn", "/proc/self/status"];
    let found = |command: &mut Command| {
        let set = || {
            // SAFETY: system calls, on what lives here.
            unsafe {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                libc::signal(libc::SIGHUP, libc::SIG_IGN);
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                let mut blocked = std::mem::zeroed();
                libc::sigaddset(&mut blocked, libc::SIGUSR1);
                libc::sigprocmask(libc::SIG_BLOCK, &blocked, std::ptr::null_mut());
            }
            Ok(())
        };
        // SAFETY: only system calls.
        text(&unsafe { command.pre_exec(set) }.output().unwrap().stdout)
    };
    let changed = found(Command::new(look[0]).args(&look[1..]));
    assert_eq!(found(fairlock(&["-q", "--"]).args(look)), changed);
    let default = |command: &mut Command| text(&command.output().unwrap().stdout);
    let unchanged = default(Command::new(look[0]).args(&look[1..]));
    assert_eq!(default(fairlock(&["-q", "--"]).args(look)), unchanged);
    assert_ne!(changed, unchanged);
}

#[test]
fn the_program_outlives_a_fairlock_that_is_killed_and_the_next_one_cleans_up() {
    let (mut child, mut output) = start(&[], r#"echo "$FAIRLOCK_COUNTS"; read word; echo "$word""#);
    let counts = PathBuf::from(line(&mut output));
    let mut input = child.stdin.take().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    input.write_all(b"alive\n").unwrap();
    assert_eq!(line(&mut output), "alive");
    assert!(shell(&["-q"], "true").status.success());
    assert!(!counts.exists());
}

/// A program in C.
fn compile(directory: &Path, name: &str, code: &str) -> PathBuf {
    crate::compile(directory, name, code, &[])
}

#[test]
fn calls_that_break_the_locks_rules_are_counted_and_told() {
    let directory = crate::folder();
    let code = r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <time.h>
        static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
        int main(int count, char **arguments) {
            struct timespec never = {0, -1};
            for (int times = 0; times < 2000; times++) {
                pthread_rwlock_wrlock(&table_lock);
                pthread_rwlock_wrlock(&table_lock);
                pthread_rwlock_rdlock(&table_lock);
                pthread_rwlock_unlock(&table_lock);
                /* glibc does not look. */
                if (count > 1)
                    pthread_rwlock_unlock(&table_lock);
                pthread_rwlock_timedrdlock(&table_lock, &never);
                pthread_rwlock_rdlock(&table_lock);
                pthread_rwlock_unlock(&table_lock);
            }
            return 0;
        }"#;
    let program = compile(directory.path(), "misuse", code);
    for lock in ["rwsem", "rwlock", "linux-5.11", "glibc"] {
        let mut fairlock = fairlock(&["--lock", lock]);
        fairlock.arg("--").arg(&program);
        if lock != "glibc" {
            fairlock.arg("twice");
        }
        let output = fairlock.output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success(), "{lock}: {said}");
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut told = vec![
            "✗ Misused: ",
            "2.00k calls to read were refused (EDEADLK) at main (misuse.c:",
            "2.00k calls to write were refused (EDEADLK) at main (misuse.c:",
            ": the thread held the lock already",
            "2.00k calls to read were refused (EINVAL) at main (misuse.c:",
        ];
        if lock != "glibc" {
            told.push("2.00k calls to unlock were refused (EPERM) at main (misuse.c:");
        }
        for part in told {
            assert!(words.contains(part), "{lock} lacks {part:?}: {said}");
        }
        assert!(!words.contains("Fine"), "{lock}: {said}");
    }
}

#[test]
fn what_a_killed_program_counted_is_reported() {
    let directory = crate::folder();
    let code = r#"
        #include <pthread.h>
        #include <signal.h>
        static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
        int main(void) {
            for (int times = 0; times < 1234; times++) {
                pthread_rwlock_rdlock(&table_lock);
                pthread_rwlock_unlock(&table_lock);
            }
            return raise(SIGKILL);
        }"#;
    let program = compile(directory.path(), "killed", code);
    let lines = directory.path().join("report.jsonl");
    let mut fairlock = fairlock(&["--lock", "glibc", "--report", lines.to_str().unwrap()]);
    let output = fairlock.arg("--").arg(program).output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGKILL));
    let said = text(&output.stderr);
    assert!(said.contains("table_lock") && said.contains("1.23k"), "{said}");
    assert!(fs::read_to_string(lines).unwrap().contains("\"acquired\":1234"));
}

#[test]
fn scripts_run_by_their_interpreters() {
    let directory = crate::folder();
    let file = |name| directory.path().join(name);
    executable(&file("reader"), b"#!/bin/sh\necho \"read by $0: $*\"");
    // A script cannot name an interpreter whose path has a blank, as the folder's may.
    executable(&file("other"), b"#! ./reader one\n");
    executable(&file("bare"), b"echo by the shell");
    let prints = |script: &str| {
        let mut run = fairlock(&["-q", script, "two"]);
        let output = run.current_dir(&directory).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(prints("./reader"), "read by ./reader: two\n");
    assert_eq!(prints("./other"), "read by ./reader: one ./other two\n");
    assert_eq!(prints("./bare"), "by the shell\n");
}

/// Whether programs in this folder would get their owner's rights, if they ask for them.
fn gives_rights(folder: &TempDir) -> bool {
    let path = CString::new(folder.path().to_str().unwrap()).unwrap();
    // SAFETY: a path, and room for what is found.
    let flags = unsafe {
        let mut found = std::mem::zeroed::<libc::statvfs>();
        assert_eq!(libc::statvfs(path.as_ptr(), &mut found), 0);
        found.f_flag
    };
    // SAFETY: only asks.
    let is_forbidden = unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) } == 1;
    let gives = flags & libc::ST_NOSUID == 0 && !is_forbidden;
    if !gives {
        eprintln!("left out: no program is setuid here");
    }
    gives
}

#[test]
fn what_the_library_cannot_be_put_under_is_refused_with_the_reason() {
    let directory = crate::folder();
    let file = |name: &str| directory.path().join(name);
    refuses(&["--", "no-such-program"], &["`no-such-program`", "PATH"]);
    refuses(&["--", "./no-such-program"], &["./no-such-program", "path"]);
    refuses(&["--", "/dev"], &["directory"]);
    fs::write(file("data"), "").unwrap();
    refuses(&["--", file("data").to_str().unwrap()], &["not executable", "chmod +x"]);
    let lost = executable(&file("lost"), b"#!/no/such/interpreter\n");
    refuses(&["--", &lost], &["lost", "/no/such/interpreter"]);
    let picture = executable(&file("picture"), b"\x89PNG\0\0\0");
    refuses(&["--", &picture], &["neither a program"]);

    // The header of a program that loads nothing, and has nothing to run either.
    let program = fs::read("/bin/true").unwrap();
    let mut header = program[..64].to_vec();
    header[56..58].fill(0);
    header[60..62].fill(0);
    header[40..48].fill(0);
    let fixed = executable(&file("fixed"), &header);
    refuses(&["--", &fixed], &["linked statically", "dynamically"]);
    header[4] = 1;
    let small = executable(&file("small"), &header);
    refuses(&["--", &small], &["32 bits"]);
    (header[4], header[18]) = (2, 243);
    let other = executable(&file("other"), &header);
    refuses(&["--", &other], &["riscv"]);
    let mut musl = program.clone();
    let loader = musl.windows(9).position(|window| window == b"/ld-linux").unwrap();
    musl[loader..loader + 9].copy_from_slice(b"/ld-musl-");
    let musl = executable(&file("musl"), &musl);
    refuses(&["--", &musl], &["another C library", "/ld-musl-"]);

    // Who owns the file alone cannot give it to somebody else.
    let trusted = executable(&file("trusted"), &program);
    if gives_rights(&directory) && chown(&trusted, Some(1), Some(1)).is_ok() {
        fs::set_permissions(&trusted, Permissions::from_mode(0o4755)).unwrap();
        refuses(&["--", &trusted], &["setuid", "plain copy"]);
    }
}

#[test]
fn wrong_options_name_the_valid_ones() {
    refuses(&["--lock", "fast", "--", "true"], &["`fast`", "rwsem", "no-reader-steal"]);
    refuses(&["--compare", "glibc,fast", "--", "true"], &["`fast`", "none", "+counts"]);
    refuses(&["--compare", "glibc,glibc", "--", "true"], &["glibc twice"]);
    refuses(&["--runs", "3", "--", "true"], &["--compare"]);
    refuses(&[], &["<CMD>"]);
    let missing = fairlock(&["--", "true"]).env("FAIRLOCK_PTHREAD_LIBRARY", "/no.so").output();
    let missing = missing.unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("FAIRLOCK_PTHREAD_LIBRARY names /no.so"));
}

#[test]
fn a_comparison_shows_one_run_and_says_what_all_took() {
    let directory = crate::folder();
    let input = directory.path().join("input");
    fs::write(&input, "the same for all\n").unwrap();
    let options = ["--compare", "rwsem,glibc,none,rwlock+counts", "--runs", "2", "--warm-up", "1"];
    let script = r#"echo "$FAIRLOCK_LOCK ${FAIRLOCK_COUNTS:+counted}" >&2; cat; exit 5"#;
    let mut run = fairlock(&options);
    let run = run.args(["--", "sh", "-c", script]).stdin(File::open(&input).unwrap());
    let output = run.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert_eq!(text(&output.stdout), "the same for all\n");
    // Of the errors only those of the first run.
    let first = said
        .lines()
        .filter(|line| ["rwsem counted", "glibc counted", " ", "rwlock counted"].contains(line));
    assert_eq!(first.count(), 1, "{said}");
    for word in ["rwsem  ", "glibc  ", "none  ", "rwlock+counts  ", "ratios to glibc"] {
        assert!(said.contains(word), "lacks {word}: {said}");
    }
    assert!(said.contains("all runs: exit code 5, the same 17 B of output"), "{said}");
    assert!(said.contains("round 2 of 2"), "{said}");
    for lock in ["rwsem", "glibc", "rwlock"] {
        assert_eq!(said.matches(&format!("once more under {lock}+counts")).count(), 1, "{said}");
    }
    assert!(!said.contains("under none+counts"), "{said}");
    // Two runs, and of a program that has no such locks.
    assert!(said.contains("too few runs for an interval") && !said.contains('['), "{said}");
    assert!(said.contains("used no pthread_rwlock when it was counted"), "{said}");
    for conclusion in ["no difference", "no measurable", "% more", "% less"] {
        assert!(!said.contains(conclusion), "{said}");
    }
}

#[test]
fn a_comparison_notices_output_and_ends_that_differ() {
    let options = ["--compare", "none,glibc", "--runs", "1", "--warm-up", "0"];
    let output = shell(&options, r#"echo "$FAIRLOCK_LOCK""#);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("differs from that under glibc: none (1 of 1 run)"), "{said}");
    let output = shell(&options, r#"test -z "$FAIRLOCK_LOCK" && exit; echo so >&2; kill -9 $$"#);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("none: exit code 0 (1 of 1); glibc: death by SIGKILL (1 of 1)"),
        "{said}"
    );
    assert!(said.contains("after:\nso\n") || said.contains("exit code 0 under none"), "{said}");
}

#[test]
fn a_comparison_does_not_wait_for_what_runs_leave_in_the_background() {
    let directory = crate::folder();
    let pids = directory.path().join("pids");
    let options = ["-q", "--compare", "glibc", "--runs", "1", "--warm-up", "0"];
    let script = format!("sleep 1000 & echo $! >> {}; echo done", crate::quoted(&pids));
    let output = shell(&options, &script);
    assert_eq!(text(&output.stdout), "done\n");
    for pid in fs::read_to_string(&pids).unwrap().lines() {
        // SAFETY: it sleeps on, so the number is still its own.
        unsafe { libc::kill(pid.parse().unwrap(), libc::SIGKILL) };
    }
}

#[test]
fn a_comparison_that_is_stopped_keeps_finished_rounds() {
    let directory = crate::folder();
    let runs = directory.path().join("runs");
    let script =
        format!("echo >> {0}; test $(wc -l < {0}) -lt 3 || kill -INT $PPID", crate::quoted(&runs));
    let output = shell(&["--compare", "none,glibc", "--runs", "2", "--warm-up", "0"], &script);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("medians of 1 run each") && !said.contains("once more"), "{said}");
}

/// Two threads that lock two locks in two orders.
const DEADLOCK: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    static pthread_rwlock_t one = PTHREAD_RWLOCK_INITIALIZER, other = PTHREAD_RWLOCK_INITIALIZER;
    static pthread_barrier_t both;
    static void *run(void *is_first) {
        pthread_rwlock_wrlock(is_first ? &one : &other);
        pthread_barrier_wait(&both);
        if (is_first) puts("stuck"), fflush(stdout);
        pthread_rwlock_wrlock(is_first ? &other : &one);
        return 0;
    }
    int main(void) {
        pthread_t thread;
        pthread_barrier_init(&both, 0, 2);
        pthread_create(&thread, 0, run, 0);
        return run(&both) != 0;
    }"#;

#[test]
fn a_run_that_does_not_end_is_ended_and_its_deadlock_told() {
    let directory = crate::folder();
    let program = compile(directory.path(), "deadlock", DEADLOCK);
    for (options, code, signal) in [
        (&["--timeout", "1"][..], None, Some(libc::SIGTERM)),
        (&["--timeout", "1", "--compare", "glibc,rwsem"], Some(1), None),
    ] {
        let output = fairlock(options).arg("--").arg(&program).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), output.status.signal()), (code, signal), "{said}");
        assert!(said.contains("took longer than 1 s (--timeout)"), "{said}");
        assert!(said.contains("✗ Deadlock: 2 threads wait for each other"), "{said}");
    }
}

#[test]
fn a_deadlock_is_told_while_a_run_is_recorded() {
    // Both threads have just filled a window, and do not count for a while.
    const PROGRAM: &str = r#"
    #include <pthread.h>
    static pthread_rwlock_t locks[3] = {
        PTHREAD_RWLOCK_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER
    };
    static pthread_barrier_t both;
    static void *run(void *first) {
        for (int i = 0; i < 22000; i++) {
            pthread_rwlock_rdlock(&locks[2]);
            pthread_rwlock_unlock(&locks[2]);
        }
        pthread_rwlock_wrlock(first ? &locks[0] : &locks[1]);
        pthread_barrier_wait(&both);
        pthread_rwlock_wrlock(first ? &locks[1] : &locks[0]);
        return 0;
    }
    int main(void) {
        pthread_t thread;
        pthread_barrier_init(&both, 0, 2);
        pthread_create(&thread, 0, run, 0);
        return run(&both) != 0;
    }"#;
    let directory = crate::folder();
    let program = compile(directory.path(), "deadlock", PROGRAM);
    let file = directory.path().join("program.toml");
    for lock in ["glibc", "rwsem", "rwlock"] {
        let tells = |timeout| {
            let options =
                ["--timeout", timeout, "--lock", lock, "--record", file.to_str().unwrap()];
            let output = fairlock(&options).arg("--").arg(&program).output().unwrap();
            let said = text(&output.stderr);
            let is_told = said.contains("✗ Deadlock: 2 threads wait for each other");
            if !is_told {
                eprintln!("{lock}, {timeout} s: {said}");
            }
            is_told
        };
        // On a busy machine it takes longer until they wait.
        assert!(["1", "10", "100"].into_iter().any(tells), "{lock}");
    }
}

#[test]
fn a_comparison_that_is_stopped_in_its_warm_up_tells_what_the_run_was_waiting_for() {
    let directory = crate::folder();
    let program = compile(directory.path(), "deadlock", DEADLOCK);
    let script = format!("exec {}", crate::quoted(&program));
    let (child, mut output) = start(&["--compare", "glibc,rwsem"], &script);
    assert_eq!(line(&mut output), "stuck");
    signal(&child, libc::SIGINT);
    let ended = child.wait_with_output().unwrap();
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains("the run that was stopped had counted"), "{said}");
    assert!(said.contains("2 locks, 2 threads"), "{said}");
}

#[test]
fn the_command_itself_has_glibcs_locks() {
    let binary = fs::read(command()).unwrap();
    let file = object::File::parse(&*binary).unwrap();
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let defined = symbols.filter(|symbol| symbol.is_definition());
    let ours = defined
        .filter_map(|symbol| symbol.name().ok())
        .find(|name| name.starts_with("pthread_rwlock_"));
    assert_eq!(ours, None);
}

#[test]
fn the_library_knows_every_lock_that_the_command_offers() {
    let library = fairlock_trace::library::find().expect("it is built with this test");
    for (name, _) in fairlock_trace::LOCKS {
        let mut program = std::process::Command::new("true");
        let output = program.env("LD_PRELOAD", &library).env("FAIRLOCK_LOCK", name).output();
        let output = output.expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{name}: {said}");
    }
}

/// Whether this process may start another as nobody. In some containers root is the only user.
fn can_be_nobody() -> bool {
    // SAFETY: only asks.
    let is_root = unsafe { libc::geteuid() == 0 };
    let can_be =
        is_root && Command::new("true").uid(65534).gid(65534).status().is_ok_and(|it| it.success());
    if !can_be {
        eprintln!("left out: nothing can be run as another user here");
    }
    can_be
}

#[test]
fn nobody_else_can_put_counts_where_roots_run_looks() {
    if !can_be_nobody() {
        return;
    }
    let (mut child, mut output) = start(&[], r#"echo "$FAIRLOCK_COUNTS"; read line; exit 7"#);
    let counts = PathBuf::from(line(&mut output));
    let outer = counts.parent().unwrap();
    assert!(outer.file_name().unwrap().to_str().unwrap().starts_with("fairlock-counts-"));
    for attempt in ["ls", "touch x", "mkfifo x", "ln -s /dev/zero x"] {
        let script = format!("cd {} && {attempt}", crate::quoted(outer));
        let attempt_by_nobody =
            Command::new("sh").args(["-c", &script]).uid(65534).gid(65534).output().unwrap();
        assert!(!attempt_by_nobody.status.success(), "{script}: {attempt_by_nobody:?}");
    }
    drop(child.stdin.take());
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(7));
}

/// One in which nobody, too, may run programs.
fn folder_for_everybody() -> Option<TempDir> {
    [tempfile::tempdir().unwrap(), crate::folder()].into_iter().find(|folder| {
        // `LD_PRELOAD` ends a name there.
        if folder.path().to_string_lossy().contains([' ', ':']) {
            return false;
        }
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let script = executable(&folder.path().join("script"), b"#!/bin/sh\n");
        let run = Command::new(script).uid(65534).gid(65534).status();
        run.is_ok_and(|status| status.success())
    })
}

#[test]
fn a_program_that_gives_up_its_rights_and_closes_its_files_is_counted_and_so_is_what_it_starts() {
    if !can_be_nobody() {
        return;
    }
    let Some(directory) = folder_for_everybody() else {
        return eprintln!("left out: there is no folder whose programs everybody may run");
    };
    // Where everybody may read it.
    let library = directory.path().join("libfairlock_pthread.so");
    fs::copy(fairlock_trace::library::find().unwrap(), &library).unwrap();
    fs::set_permissions(&library, Permissions::from_mode(0o755)).unwrap();
    let code = r#"
        #include <pthread.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
        static void use(int times) {
            while (times--) {
                pthread_rwlock_rdlock(&table_lock);
                pthread_rwlock_unlock(&table_lock);
            }
        }
        int main(int count, char **arguments) {
            if (count > 1)
                return use(1234), 0;
            if (fork() == 0) {
                for (int file = 0; file < 1000; file++)
                    close(file);
                if (setgid(65534) || setuid(65534))
                    return 1;
                use(2345);
                execl("/proc/self/exe", "program", "again", (char *)0);
            }
            int status;
            wait(&status);
            return status;
        }"#;
    let program = compile(directory.path(), "daemon", code);
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let lines = directory.path().join("report.jsonl");
    let mut fairlock = fairlock(&["--report", lines.to_str().unwrap(), "--"]);
    fairlock.arg(&program).env("FAIRLOCK_PTHREAD_LIBRARY", &library);
    let output = fairlock.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = fs::read_to_string(lines).unwrap();
    for count in [1234, 2345] {
        assert!(lines.contains(&format!("\"acquired\":{count},")), "{count}: {lines}");
    }
}

#[test]
fn files_that_are_no_counts_change_nothing() {
    let script = r#"cd "$FAIRLOCK_COUNTS"; mkfifo 1-0.counts; ln -s /dev/zero 2-0.counts
        echo garbage > 3-0.counts; truncate -s 256M 4-0.counts; mkdir 5-0.counts; exit 7"#;
    let output = shell(&[], script);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("No pthread_rwlock was used"), "{said}");
}

#[test]
fn what_a_program_is_called_does_not_act_on_the_terminal() {
    let directory = crate::folder();
    let code = r#"
        #include <pthread.h>
        #include <sys/prctl.h>
        static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
        int main(void) {
            prctl(PR_SET_NAME, "\033[5m\n<x-y>\a");
            for (int times = 0; times < 2000; times++) {
                pthread_rwlock_wrlock(&table_lock);
                pthread_rwlock_wrlock(&table_lock);
                pthread_rwlock_unlock(&table_lock);
            }
            return 0;
        }"#;
    let plain = compile(directory.path(), "plain", code);
    let program = directory.path().join("\u{1b}]0;title\u{7}<x-y>");
    fs::rename(plain, &program).unwrap();
    let [page, lines] = ["report.html", "report.jsonl"].map(|name| directory.path().join(name));
    let mut fairlock = fairlock(&["--report", page.to_str().unwrap()]);
    fairlock.args(["--report", lines.to_str().unwrap(), "--"]).arg(&program).arg("\u{1b}[31m");
    let output = fairlock.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("Misused"), "{said}");
    let lines = fs::read_to_string(lines).unwrap();
    for line in lines.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    assert!(lines.contains("[5m\\\\x0a"), "{lines}");
    let page = fs::read_to_string(page).unwrap();
    assert!(!page.contains("<x-y>"), "{page}");
    for told in [said, page, lines] {
        assert!(!told.contains(|it: char| it.is_control() && it != '\n'), "{told:?}");
    }
}

#[test]
fn what_a_run_leaves_in_the_background_is_silent_and_not_waited_for() {
    let directory = crate::folder();
    let [errors, done] = ["errors", "done"].map(|name| directory.path().join(name));
    // The loop ends with the run; what is started then has nowhere to leave its counts.
    let script = format!(
        "(while test -d \"$FAIRLOCK_COUNTS\"; do :; done; /bin/true; echo > {}) > /dev/null 2> {} < /dev/null &",
        crate::quoted(&done),
        crate::quoted(&errors)
    );
    let output = shell(&["-q"], &script);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let end = std::time::Instant::now() + std::time::Duration::from_secs(300);
    while !done.exists() {
        assert!(std::time::Instant::now() < end, "it hangs");
        std::thread::yield_now();
    }
    assert_eq!(fs::read_to_string(errors).unwrap(), "");
}
