//! `fairlock run --record` and `fairlock replay` from outside: what is recorded, what a replay says, what is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use fairlock_report::program::{Access, Program, Sharing, Step};

fn fairlock(folder: &Path, arguments: &[&str]) -> Output {
    let mut fairlock = crate::fairlock();
    fairlock.args(arguments).current_dir(folder).stdin(Stdio::null()).env("COLUMNS", "120");
    fairlock.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Two threads that read and write a table, each beside an entry of its own; one in a hundred reads is followed by a sleep. The
/// main thread makes all locks and waits.
const TWO_WORKERS: &str = r#"
#include <pthread.h>
#include <unistd.h>

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t both;

static void *work(void *own) {
    pthread_barrier_wait(&both);
    for (int turn = 0; turn < 2000; turn++) {
        pthread_rwlock_rdlock(&table);
        pthread_rwlock_wrlock(own);
        pthread_rwlock_unlock(own);
        pthread_rwlock_unlock(&table);
        if (turn % 10 == 0) {
            pthread_rwlock_wrlock(&table);
            pthread_rwlock_unlock(&table);
        }
        if (turn % 100 == 0) usleep(100);
    }
    return 0;
}

int main(void) {
    pthread_rwlock_t own[2];
    pthread_t threads[2];
    pthread_barrier_init(&both, 0, 2);
    for (int i = 0; i < 2; i++) pthread_rwlock_init(&own[i], 0);
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, &own[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
"#;

fn compiled(folder: &Path, source: &str) -> PathBuf {
    crate::compile(folder, "program", source, &["-O1"])
}

#[test]
fn a_program_is_recorded_replayed_and_shown() {
    let folder = crate::folder();
    let folder = folder.path();
    let program = compiled(folder, TWO_WORKERS);
    let done = fairlock(
        folder,
        &["run", "--lock", "glibc", "--record", "two.toml", "--", program.to_str().unwrap()],
    );
    let said = text(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(
        said.contains("fairlock: recorded") && said.contains("fairlock replay two.toml"),
        "{said}"
    );

    let recorded: Program = fs::read_to_string(folder.join("two.toml")).unwrap().parse().unwrap();
    let about = recorded.recorded.as_ref().unwrap();
    assert_eq!(about.lock, "glibc");
    assert!(about.acquisitions >= 8400, "{about:?}");
    let [workers] = &recorded.kinds[..] else { panic!("{:?}", recorded.kinds.len()) };
    assert!(workers.scales);
    let table = recorded.locks.iter().find(|locks| locks.name.contains("table")).unwrap();
    assert_eq!(table.shared, Sharing::All);
    let count = |wanted: Access| {
        let steps = workers.sequences.iter().flatten();
        let is_it = |step: &&Step| matches!(step, Step::Acquire { lock, access, .. } if *lock == table.id && *access == wanted);
        steps.filter(is_it).count()
    };
    let (reads, writes) = (count(Access::Read), count(Access::Write));
    assert!(reads > 1000, "{reads}");
    assert!((7..=13).contains(&(reads / writes.max(1))), "{reads} reads, {writes} writes");
    let is_away = |step: &&Step| matches!(step, Step::Away(ns) if *ns >= 50_000);
    assert!(workers.sequences.iter().flatten().filter(is_away).count() >= 10);

    let done = fairlock(
        folder,
        &[
            "replay",
            "two.toml",
            "--on",
            "graviton3",
            "--threads",
            "1,16",
            "--repetitions",
            "2",
            "--seconds",
            "0.002",
        ],
    );
    let (said, complaint) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{complaint}");
    for part in ["no contention", "glibc", "rwsem", "rwlock", "graviton3", "report.html"] {
        assert!(said.contains(part), "`{said}` lacks `{part}`");
    }
    assert!(
        !said.contains("pthread "),
        "glibc's lock has the name that `fairlock run` gives it: {said}"
    );
    let page = fs::read_to_string(folder.join("fairlock-replay/report.html")).unwrap();
    for part in ["How far it scales", "What was replayed", "table", "How threads begin"] {
        assert!(page.contains(part), "the page lacks `{part}`");
    }
    assert!(page.contains("glibc") && !page.contains(">pthread<"));
    let rows = fs::read_to_string(folder.join("fairlock-replay/rows.jsonl")).unwrap();
    assert_eq!(
        rows.lines()
            .filter(
                |line| line.contains("\"workload\":\"replay\"") && line.contains("total_ops_per_s")
            )
            .count(),
        8
    );
    // The page that is made of the rows has the same names.
    let done = fairlock(folder, &["report", "fairlock-replay/rows.jsonl"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let page = fs::read_to_string(folder.join("fairlock-replay/rows.html")).unwrap();
    assert!(page.contains("glibc") && !page.contains(">pthread<"));
}

#[test]
fn a_quiet_recording_still_says_what_speaks_against_it() {
    let folder = crate::folder();
    let program = compiled(
        folder.path(),
        r#"
        #include <pthread.h>
        static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
        static void *releases(void *lock) { return (void *)(long)pthread_rwlock_unlock(lock); }
        int main(void) {
            for (int turn = 0; turn < 1000; turn++) {
                pthread_t thread;
                pthread_rwlock_rdlock(&table);
                pthread_create(&thread, 0, releases, &table);
                pthread_join(thread, 0);
            }
            return 0;
        }"#,
    );
    let command = ["run", "--quiet", "--record", "program.toml", "--", program.to_str().unwrap()];
    let said = text(&fairlock(folder.path(), &command).stderr);
    assert!(said.starts_with("warning: ") && !said.contains("fairlock: recorded"), "{said}");
}

#[test]
fn the_same_replay_gives_the_same_rows() {
    let folder = crate::folder();
    let rates = |out: &str| {
        let done = fairlock(
            folder.path(),
            &[
                "replay",
                "example",
                "--on",
                "graviton3",
                "--threads",
                "3",
                "--lock",
                "rwsem,glibc",
                "--seconds",
                "0.001",
                "--out",
                out,
            ],
        );
        assert!(done.status.success(), "{}", text(&done.stderr));
        let rows = fs::read_to_string(folder.path().join(out).join("rows.jsonl")).unwrap();
        let rows = rows.lines().filter(|line| line.contains("total_ops_per_s"));
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    let (one, other) = (rates("one"), rates("other"));
    assert_eq!(one.len(), 3);
    assert_eq!(one, other);
}

#[test]
fn a_replay_on_real_threads_is_of_the_recorded_number_of_threads() {
    let folder = crate::folder();
    let done = fairlock(
        folder.path(),
        &["replay", "example", "--lock", "rwlock", "--seconds", "0.01", "--repetitions", "1"],
    );
    let said = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(said.contains("Here, acquisitions per second") && said.contains("2 threads"), "{said}");
}

#[test]
fn what_cannot_be_replayed_is_refused_in_one_line_that_says_what_to_do() {
    let folder = crate::folder();
    fs::write(folder.path().join("empty.toml"), "format = 1\n").unwrap();
    fs::write(folder.path().join("rows.jsonl"), "{\"header\":{}}\n").unwrap();
    fs::write(
        folder.path().join("idle.toml"),
        "format = 1\n[[kind]]\nname = \"w\"\nthreads = 1\nsteps = [\"5\"]\n",
    )
    .unwrap();
    let cases: [(&[&str], &[&str]); 9] = [
        (&["no-such.toml"], &["no-such.toml", "--record"]),
        (&["empty.toml"], &["empty.toml", "[[kind]]"]),
        (&["idle.toml"], &["idle.toml", "no thread acquires a lock"]),
        (&["/dev/zero"], &["/dev/zero", "no regular file"]),
        (&["rows.jsonl"], &["rows.jsonl", "line 1"]),
        (&["example", "--on", "no-such-machine"], &["no-such-machine", "graviton3"]),
        (&["example", "--lock", "no-such-lock"], &["no-such-lock", "rwsem"]),
        (&["example", "--on", "graviton3", "--lock", "usync"], &["usync", "real threads"]),
        (&["example", "--threads", "0"], &["--threads", "at least 1"]),
    ];
    for (arguments, words) in cases {
        let done = fairlock(folder.path(), &[&["replay"], arguments].concat());
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {said}");
        assert_eq!((said.lines().count(), done.stdout.len()), (1, 0), "{said}");
        for word in words {
            assert!(said.starts_with("error: ") && said.contains(word), "lacks {word}: {said}");
        }
    }
}

#[test]
fn a_program_without_locks_leaves_no_file_and_says_so() {
    let folder = crate::folder();
    let done = fairlock(folder.path(), &["run", "--record", "true.toml", "--", "true"]);
    assert!(done.status.success());
    let said = text(&done.stderr);
    assert!(
        said.contains("nothing to replay") && !folder.path().join("true.toml").exists(),
        "{said}"
    );
    let refused = fairlock(folder.path(), &["run", "--record", "/no/such/x.toml", "--", "true"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--record"));
}

/// Three threads of a kind that does not scale, and one that never acquires a lock.
const FIXED: &str = r#"
format = 1
[recorded]
warnings = ["a tenth of the recording was lost"]
[[lock]]
id = 1
name = "it"
[[kind]]
name = "worker"
threads = 3
scales = false
steps = ["w1 1000 .1 500"]
[[kind]]
name = "hog"
threads = 1
scales = false
steps = ["500"]
"#;

#[test]
fn where_nothing_scales_there_is_one_row_and_warnings_are_repeated() {
    let folder = crate::folder();
    fs::write(folder.path().join("fixed.toml"), FIXED).unwrap();
    let arguments =
        ["replay", "fixed.toml", "--on", "graviton3", "--repetitions", "1", "--seconds", "0.001"];
    let done = fairlock(folder.path(), &arguments);
    let said = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let rows = fs::read_to_string(folder.path().join("fairlock-replay/rows.jsonl")).unwrap();
    assert_eq!(rows.lines().filter(|line| line.contains("total_ops_per_s")).count(), 4);
    for part in
        ["4 threads", "set `scales = true`", "\nwarning: a tenth of the recording was lost\n"]
    {
        assert!(said.contains(part), "`{said}` lacks `{part}`");
    }
    let page = fs::read_to_string(folder.path().join("fairlock-replay/report.html")).unwrap();
    assert!(page.contains("warning: a tenth of the recording was lost"));
}
