//! `fairlock run` of programs whose threads wait for ever: what the report says about them.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn compiled(folder: &Path) -> PathBuf {
    crate::compile(folder, "stuck", CODE, &["-O1"])
}

/// The first argument says what goes wrong, the second how the program ends.
const CODE: &str = r#"
    #include <pthread.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <time.h>
    #include <unistd.h>

    static pthread_rwlock_t first_lock = PTHREAD_RWLOCK_INITIALIZER;
    static pthread_rwlock_t second_lock = PTHREAD_RWLOCK_INITIALIZER;
    static pthread_barrier_t both_hold;
    static _Atomic int asks[2];
    static _Atomic int turn;

    /* It asks for the lock, and the kernel says that it sleeps. */
    static void wait_until_it_sleeps(_Atomic int *asks) {
        char path[64], text[512], *state;
        do {
            int tid = *asks;
            state = NULL;
            if (tid == 0) continue;
            snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
            FILE *file = fopen(path, "r");
            text[fread(text, 1, sizeof text - 1, file)] = 0;
            fclose(file);
            state = strrchr(text, ')') + 2;
        } while (!state || *state != 'S');
    }

    __attribute__((noinline)) static void write_elsewhere(void) {
        asks[0] = gettid();
        pthread_rwlock_wrlock(&first_lock);
        turn = 0;
    }

    static void *write_table(void *unused) {
        pthread_setname_np(pthread_self(), "writer");
        asks[0] = gettid();
        pthread_rwlock_wrlock(&first_lock);
        return unused;
    }

    /* Waits many times here, and then for ever elsewhere. */
    static void *often_then_once(void *unused) {
        pthread_setname_np(pthread_self(), "writer");
        for (int time = 0; time < 40; time++) {
            asks[0] = gettid();
            pthread_rwlock_wrlock(&first_lock);
            asks[0] = 0;
            pthread_rwlock_unlock(&first_lock);
            turn = 2 * time + 1;
            while (turn == 2 * time + 1) sched_yield();
        }
        write_elsewhere();
        return unused;
    }

    static void *upgrade(void *unused) {
        pthread_setname_np(pthread_self(), "upgrader");
        pthread_rwlock_rdlock(&first_lock);
        asks[0] = gettid();
        pthread_rwlock_wrlock(&first_lock);
        return unused;
    }

    static void *first_then_second(void *unused) {
        pthread_setname_np(pthread_self(), "one");
        pthread_rwlock_wrlock(&first_lock);
        pthread_barrier_wait(&both_hold);
        asks[0] = gettid();
        pthread_rwlock_rdlock(&second_lock);
        return unused;
    }

    static void *second_then_first(void *unused) {
        pthread_setname_np(pthread_self(), "two");
        pthread_rwlock_wrlock(&second_lock);
        pthread_barrier_wait(&both_hold);
        asks[1] = gettid();
        pthread_rwlock_rdlock(&first_lock);
        return unused;
    }

    static void *forgets_to_unlock(void *unused) {
        pthread_rwlock_wrlock(&first_lock);
        return unused;
    }

    static void start(void *(*body)(void *), _Atomic int *asks) {
        pthread_t thread;
        pthread_create(&thread, NULL, body, NULL);
        if (asks) wait_until_it_sleeps(asks);
    }

    static double now(void) {
        struct timespec time;
        clock_gettime(CLOCK_MONOTONIC, &time);
        return time.tv_sec + 1e-9 * time.tv_nsec;
    }

    int main(int count, char **arguments) {
        const char *what = arguments[1], *end = arguments[2];
        double least = 0;
        /* The end of a program that hangs. */
        alarm(300);
        if (!strcmp(what, "starve")) {
            /* The reads of a thread that reads already pass a writer under any policy. */
            pthread_rwlock_rdlock(&first_lock);
            start(write_table, &asks[0]);
            double began = now();
            for (int read = 0; read < 2000 || now() < began + 0.02; read++) {
                pthread_rwlock_rdlock(&first_lock);
                pthread_rwlock_unlock(&first_lock);
            }
        } else if (!strcmp(what, "upgrade")) {
            start(upgrade, &asks[0]);
        } else if (!strcmp(what, "cycle")) {
            pthread_barrier_init(&both_hold, NULL, 2);
            start(first_then_second, NULL);
            start(second_then_first, &asks[1]);
            wait_until_it_sleeps(&asks[0]);
        } else if (!strcmp(what, "elsewhere")) {
            pthread_rwlock_rdlock(&first_lock);
            start(often_then_once, NULL);
            for (int time = 0; time < 40; time++) {
                wait_until_it_sleeps(&asks[0]);
                pthread_rwlock_unlock(&first_lock);
                while (turn != 2 * time + 1) sched_yield();
                pthread_rwlock_rdlock(&first_lock);
                turn = 2 * time + 2;
            }
            wait_until_it_sleeps(&asks[0]);
            least = now() + 1.01;
        } else if (!strcmp(what, "left")) {
            pthread_t thread;
            pthread_create(&thread, NULL, forgets_to_unlock, NULL);
            pthread_join(thread, NULL);
            start(write_table, &asks[0]);
            least = now() + 1.01;
        }
        while (now() < least) sched_yield();
        if (!strcmp(end, "kill")) raise(SIGKILL);
        if (!strcmp(end, "_exit")) _exit(0);
        if (!strcmp(end, "wait")) {
            puts("ready");
            fflush(stdout);
            getchar();
        }
        return 0;
    }"#;

fn fairlock(options: &[&str], program: &Path, arguments: [&str; 2]) -> Command {
    let mut fairlock = crate::fairlock();
    fairlock.arg("run").args(options).arg("--").arg(program).args(arguments);
    fairlock
}

/// What the report says, all white space made one.
fn said(output: &Output) -> String {
    words(&String::from_utf8_lossy(&output.stderr))
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn assert_says(text: &str, all: &[&str]) {
    for words in all {
        assert!(text.contains(words), "lacks {words:?}: {text}");
    }
}

#[test]
fn a_writer_that_starves_is_named_however_the_program_ends() {
    let folder = crate::folder();
    let program = compiled(folder.path());
    for (lock, end) in [("glibc", "kill"), ("rwsem", "exit"), ("rwlock", "_exit")] {
        let lines = folder.path().join("report.jsonl");
        let options = ["--lock", lock, "--report", lines.to_str().unwrap()];
        let output = fairlock(&options, &program, ["starve", end]).output().unwrap();
        let said = said(&output);
        assert_says(
            &said,
            &[
                "✗ A writer starves: writer (",
                "to write, and still waits, at write_table (stuck.c:",
                "reads passed it meanwhile.",
                "holds it for reading",
                "1 thread waits for a lock and may never get it",
            ],
        );
        assert!(!said.contains("Fine") && !said.contains("not limited by its locks"), "{said}");
        let lines = fs::read_to_string(lines).unwrap();
        let lock: serde_json::Value = lines
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["lock"].clone())
            .find(|lock| lock["name"] == "first_lock")
            .unwrap();
        assert_eq!(lock["findings"][0]["rule"], "starves", "{lock}");
        let passed = lock["waiting"][0]["passed_by_others"].as_u64().unwrap();
        let all = lock["reads"]["acquired"].as_u64().unwrap();
        assert!((2000..=all).contains(&passed) && passed == lock["writes"]["longest_bypass"]);
        assert_eq!(lock["writes"]["wait"]["count"], 1);
        assert_eq!(
            (&lock["writes"]["acquired"], &lock["writes"]["jain"]),
            (&0.into(), &0.0.into())
        );
    }
}

#[test]
fn a_thread_that_waits_for_its_own_read_lock_is_a_self_deadlock() {
    let folder = crate::folder();
    let program = compiled(folder.path());
    for (lock, end) in [("glibc", "exit"), ("rwsem", "kill"), ("linux-5.11", "exit")] {
        let output = fairlock(&["--lock", lock], &program, ["upgrade", end]).output().unwrap();
        assert_says(
            &said(&output),
            &[
                "✗ Self-deadlock: upgrader (",
                "to write, and still waits, at upgrade (stuck.c:",
                "and itself holds this lock for reading, acquired at upgrade (stuck.c:",
                "a pthread_rwlock cannot be upgraded",
            ],
        );
    }
}

#[test]
fn threads_that_wait_for_each_other_are_a_deadlock_with_both_locks_and_places() {
    let folder = crate::folder();
    let program = compiled(folder.path());
    for (lock, end) in [("glibc", "kill"), ("rwsem", "exit"), ("phase-fair", "exit")] {
        let output = fairlock(&["--lock", lock], &program, ["cycle", end]).output().unwrap();
        let said = said(&output);
        assert_says(
            &said,
            &[
                "✗ Deadlock: 2 threads wait for each other in a cycle",
                "holds this lock for writing, acquired at first_then_second (stuck.c:",
                "for second_lock, stuck to read at first_then_second (stuck.c:",
                "holds second_lock, stuck for writing, acquired at second_then_first (stuck.c:",
                "acquiring these locks in the same order everywhere",
            ],
        );
        // Of both locks.
        assert_eq!(said.matches("✗ Deadlock").count(), 2, "{said}");
    }
}

#[test]
fn a_wait_that_lasts_is_told_at_its_own_place_not_where_its_thread_waited_before() {
    let folder = crate::folder();
    let program = compiled(folder.path());
    for lock in ["glibc", "rwsem"] {
        let lines = folder.path().join("report.jsonl");
        let options = ["--lock", lock, "--report", lines.to_str().unwrap()];
        let output = fairlock(&options, &program, ["elsewhere", "kill"]).output().unwrap();
        let said = said(&output);
        let words = "to write, and still waits, at write_elsewhere (stuck.c:";
        assert!(said.contains(words), "{lock}: {said}");
        let lines = fs::read_to_string(lines).unwrap();
        assert!(lines.contains("\"is_exact\":true"), "{lines}");
    }
}

#[test]
fn a_lock_that_an_ended_thread_still_holds_is_said_to_be() {
    let folder = crate::folder();
    let program = compiled(folder.path());
    for lock in ["glibc", "rwsem"] {
        let output = fairlock(&["--lock", lock], &program, ["left", "exit"]).output().unwrap();
        assert_says(
            &said(&output),
            &[
                "✗ A wait does not end: writer (",
                "holds it for writing and has ended, acquired at forgets_to_unlock (stuck.c:",
                "unlocking on every way out",
            ],
        );
    }
}

/// The next report of a running program, up to its last line.
fn next_report(errors: &mut impl BufRead) -> String {
    let mut text = String::new();
    while !words(&text).contains("what counting costs") {
        assert_ne!(errors.read_line(&mut text).unwrap(), 0, "{text}");
    }
    words(&text)
}

#[test]
fn waits_under_way_are_in_reports_on_demand_and_in_those_at_intervals() {
    let folder = crate::folder();
    let program = compiled(folder.path());
    let start = |options: &[&str]| {
        let mut fairlock = fairlock(options, &program, ["upgrade", "wait"]);
        let fairlock = fairlock.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = fairlock.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let errors = BufReader::new(child.stderr.take().unwrap());
        (child, errors)
    };
    let end = |mut child: Child, mut errors: BufReader<_>| {
        drop(child.stdin.take());
        // The rest, so that nobody waits for a reader.
        errors.read_to_end(&mut Vec::new()).unwrap();
        child.wait().unwrap();
    };
    let says = "✗ Self-deadlock: upgrader (";

    let (child, mut errors) = start(&[]);
    // SAFETY: the child is not waited for yet, so its number is still its own.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), libc::SIGUSR2) }, 0);
    let report = next_report(&mut errors);
    assert_says(&report, &["counted up to now", says]);
    end(child, errors);

    let (child, mut errors) = start(&["--every", "0.05"]);
    // The first may be from before the thread waits.
    let says_so = (0..200).any(|_| next_report(&mut errors).contains(says));
    assert!(says_so);
    end(child, errors);
}

#[test]
fn a_comparison_tells_who_waits_under_each_policy() {
    let folder = crate::folder();
    let program = compiled(folder.path());
    let options = ["--compare", "glibc,phase-fair", "--runs", "1", "--warm-up", "0"];
    let output = fairlock(&options, &program, ["starve", "exit"]).output().unwrap();
    let said = said(&output);
    assert_says(
        &said,
        &[
            "Waits under each policy, in one counted run: first_lock, stuck",
            "policy role acquired/s waited waiting wait bypass at end p99/max count/wait",
            // Beside how often they read, if that differs by much.
            "no difference that 1 run can tell",
            "use --runs 6 or more",
        ],
    );
    for policy in ["glibc", "phase-fair"] {
        assert_says(&said, &[&format!("{policy} reads "), &format!("{policy} writes 0 100 % 1 ")]);
    }
}
