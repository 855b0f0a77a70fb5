//! Programs in C that record themselves under the drop-in, and what is read of them.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};

use fairlock_counts::layout::{FIRST_WINDOW, READ, RECORDS};
use tempfile::TempDir;

use super::{How, Recorded, Step, Thread, Unrecorded, Windows};
use crate::counts::Counts;
use crate::library::{self, programs};

/// What all programs have.
const BEGINNING: &str = r#"
    #define _GNU_SOURCE
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <signal.h>
    #include <string.h>
    #include <time.h>
    #include <unistd.h>
    #include <sys/wait.h>
    static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
    static pthread_rwlock_t other = PTHREAD_RWLOCK_INITIALIZER;
    static void pairs(long times) {
        while (times--) {
            pthread_rwlock_rdlock(&table);
            pthread_rwlock_unlock(&table);
        }
    }
    static long ns_of(clockid_t clock) {
        struct timespec time;
        clock_gettime(clock, &time);
        return time.tv_sec * 1000000000L + time.tv_nsec;
    }
"#;

/// A program, and what it is run with.
struct Program {
    folder: TempDir,
    path: PathBuf,
}

/// A run that has ended.
struct Ran {
    status: ExitStatus,
    printed: String,
    counts: Counts,
}

impl Program {
    /// None, and a line, where there is no compiler.
    fn new(code: &str) -> Option<Program> {
        let folder = programs::folder();
        let (source, path) = (folder.path().join("program.c"), folder.path().join("program"));
        std::fs::write(&source, format!("{BEGINNING}{code}")).expect("a writable folder");
        let compiled = programs::c_compiler()
            .args(["-O1", "-g", "-pthread", "-o"])
            .args([&path, &source])
            .output();
        let Ok(output) = compiled else {
            eprintln!("skipped: there is no C compiler");
            return None;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Program { folder, path })
    }

    fn run_under(&self, lock: &str, records: Option<&str>) -> Ran {
        let counts = Counts::create().expect("a folder");
        let mut command = Command::new(&self.path);
        command.current_dir(self.folder.path());
        command.env("LD_PRELOAD", library::find().expect("it is built with this test"));
        command.env("FAIRLOCK_LOCK", lock).env("FAIRLOCK_COUNTS", counts.path());
        command.env_remove("FAIRLOCK_RECORD").envs(records.map(|value| ("FAIRLOCK_RECORD", value)));
        let output = command.output().expect("it starts");
        let printed = String::from_utf8(output.stdout).expect("text");
        Ran { status: output.status, printed, counts }
    }

    /// Starts a run that records.
    fn start_under(&self, lock: &str, counts: &Counts) -> Child {
        Command::new(&self.path)
            .current_dir(self.folder.path())
            .env("LD_PRELOAD", library::find().expect("it is built with this test"))
            .envs([("FAIRLOCK_LOCK", lock), ("FAIRLOCK_RECORD", "1")])
            .env("FAIRLOCK_COUNTS", counts.path())
            .spawn()
            .expect("it starts")
    }

    /// Records one run to its good end.
    fn recorded(&self, lock: &str) -> Recorded {
        let ran = self.run_under(lock, Some("1"));
        assert!(ran.status.success(), "{lock}: {}", ran.status);
        ran.recorded()
    }
}

impl Ran {
    fn recorded(&self) -> Recorded {
        let mut run = Windows::new(&self.counts).read().expect("it can be listed");
        assert_eq!((run.processes.len(), run.left_out), (1, 0));
        run.processes.remove(0)
    }

    fn numbers(&self) -> Vec<u64> {
        self.printed.split_whitespace().map(|word| word.parse().expect("a number")).collect()
    }
}

fn steps(thread: &Thread) -> impl Iterator<Item = &Step> {
    thread.windows.iter().flat_map(|window| &window.steps)
}

fn computed_ns(thread: &Thread) -> u64 {
    steps(thread).map(|step| if let Step::Compute { ns } = step { *ns } else { 0 }).sum()
}

fn away_ns(thread: &Thread) -> u64 {
    steps(thread).map(|step| if let Step::Away { ns } = step { *ns } else { 0 }).sum()
}

#[test]
fn operations_are_recorded_in_order_with_locks_roles_and_results() {
    let Some(program) = Program::new(
        r#"int main(void) {
            struct timespec past = {0, 0};
            pthread_rwlock_rdlock(&table);
            pthread_rwlock_wrlock(&other);
            pthread_rwlock_tryrdlock(&table);
            pthread_rwlock_trywrlock(&table);
            pthread_rwlock_timedwrlock(&table, &past);
            pthread_rwlock_wrlock(&other); /* EDEADLK under some locks, and never recorded. */
            pthread_rwlock_unlock(&other);
            pthread_rwlock_unlock(&table);
            pthread_rwlock_unlock(&table);
            return 0;
        }"#,
    ) else {
        return;
    };
    for lock in ["rwsem", "rwlock", "linux-5.11", "glibc"] {
        let recorded = program.recorded(lock);
        let [thread] = &recorded.threads[..] else { panic!("{lock}: {recorded:?}") };
        let numbers: Vec<u32> = recorded.locks.iter().skip(1).map(|lock| lock.number).collect();
        let [table, other] = numbers[..] else { panic!("{lock}: {numbers:?}") };
        let done: Vec<String> = steps(thread)
            .filter_map(|step| match *step {
                Step::Acquire { lock, write, how, granted, waited, .. } => {
                    let role = if write { "write" } else { "read" };
                    let name = if lock == table { "table" } else { "other" };
                    assert_eq!(waited, how == How::Timed && !granted);
                    Some(format!("{how:?} {role} {name} {granted}"))
                }
                Step::Release { lock, .. } if lock == other => Some("release other".to_owned()),
                Step::Release { .. } => Some("release table".to_owned()),
                _ => None,
            })
            .collect();
        let expected = [
            "Waits read table true",
            "Waits write other true",
            "Tries read table true",
            "Tries write table false",
            "Timed write table false",
            "release other",
            "release table",
            "release table",
        ];
        assert_eq!(done, expected, "{lock}");
        let made_by = recorded.locks[1..].iter().map(|lock| lock.made_by);
        assert!(made_by.eq([Some((thread.pid, thread.tid)); 2]), "{lock}");
        assert_eq!((recorded.lock_policy.as_str(), recorded.pid), (lock, thread.pid));
        assert_eq!((&*thread.name, recorded.windows), ("program", 1));
    }
}

#[test]
fn sleeping_is_away_and_computing_is_not() {
    let Some(program) = Program::new(
        r#"
        enum { ROUNDS = 40, NS = 1000000 };
        static void *sleeper(void *began) {
            for (int round = 0; round < ROUNDS; round++) {
                pairs(1);
                usleep(NS / 1000);
            }
            pairs(1);
            *(long *)began = ns_of(CLOCK_THREAD_CPUTIME_ID);
            return 0;
        }
        static void *computer(void *began) {
            for (int round = 0; round < ROUNDS; round++) {
                pthread_rwlock_wrlock(&other);
                long until = ns_of(CLOCK_THREAD_CPUTIME_ID) + NS;
                while (ns_of(CLOCK_THREAD_CPUTIME_ID) < until)
                    ;
                pthread_rwlock_unlock(&other);
            }
            *(long *)began = ns_of(CLOCK_THREAD_CPUTIME_ID);
            return 0;
        }
        int main(void) {
            pthread_t threads[2];
            long spent[2];
            pthread_create(&threads[0], 0, sleeper, &spent[0]);
            pthread_setname_np(threads[0], "main");
            pthread_create(&threads[1], 0, computer, &spent[1]);
            for (int thread = 0; thread < 2; thread++)
                pthread_join(threads[thread], 0);
            printf("%ld %ld\n", spent[0], spent[1]);
            return 0;
        }"#,
    ) else {
        return;
    };
    for lock in ["rwsem", "glibc"] {
        let ran = program.run_under(lock, Some("1"));
        let (recorded, spent) = (ran.recorded(), ran.numbers());
        let of = |is_writer: bool| {
            let is_it = |thread: &&Thread| {
                steps(thread)
                    .any(|step| matches!(step, Step::Acquire { write, .. } if *write == is_writer))
            };
            recorded.threads.iter().find(is_it).expect("it recorded something")
        };
        let (sleeper, computer) = (of(false), of(true));
        // The kernel does not wake it earlier.
        let slept = 40 * 1_000_000;
        assert!(away_ns(sleeper) > slept / 2, "{lock}: {sleeper:?}");
        assert!(
            computed_ns(sleeper) < spent[0],
            "{lock}: {} of {}",
            computed_ns(sleeper),
            spent[0]
        );
        let computed = computed_ns(computer);
        assert!(
            computed > spent[1] / 2 && computed < spent[1] + spent[1] / 4,
            "{lock}: {computed} {}",
            spent[1]
        );
        // Its own clock calls do not send it to sleep.
        assert!(away_ns(computer) < computed / 4, "{lock}: {}", away_ns(computer));
    }
}

/// A run in which there was a stretch that was not counted: the first, unless the machine is so busy that threads seldom lock.
fn run_with_a_stretch(program: &Program, lock: &str) -> Ran {
    let has_one = |ran: &Ran| {
        let counted = ran.counts.read().expect("it can be listed");
        counted.snapshots.iter().any(|snapshot| snapshot.uncounted_acquisitions > 0)
    };
    let mut runs = (0..200).map(|_| program.run_under(lock, Some("1")));
    runs.find(has_one).expect("one of 200 runs has a stretch")
}

#[test]
fn the_first_window_ends_when_its_pages_are_used_up_and_counting_goes_on() {
    let Some(program) = Program::new("int main(void) { pairs(200000); return 0; }") else { return };
    let ran = run_with_a_stretch(&program, "rwsem");
    let recorded = ran.recorded();
    let [thread] = &recorded.threads[..] else { panic!("{recorded:?}") };
    let asked = steps(thread).filter(|step| matches!(step, Step::Acquire { .. })).count();
    let most = FIRST_WINDOW as usize * RECORDS / 2;
    assert!(asked <= most && asked > most * 9 / 10, "{asked} of {most}");
    assert_eq!((recorded.windows, thread.windows.len()), (1, 1));
    let counted = ran.counts.read().expect("it can be listed");
    // What was measured at the beginning is not counted, nor are stretches after the window: one, unless the machine is busy.
    let [lock] = &counted.snapshots[0].locks[..] else { panic!("{:?}", counted.snapshots) };
    let uncounted = counted.snapshots[0].uncounted_acquisitions;
    assert!(uncounted > 0, "{lock:?}");
    assert_eq!((lock.acquired() + uncounted, lock.number), (200_000, 2));
    assert_eq!(counted.snapshots[0].threads.len(), 1);
    let cost = recorded.cost;
    let parts = [cost.hold, cost.gap, cost.acquire, cost.release, cost.pair, cost.recorded_pair];
    assert!(parts.as_flattened().iter().all(|ns| *ns > 0.0), "{cost:?}");
}

#[test]
fn windows_that_are_opened_from_outside_record_a_program_that_goes_on() {
    let Some(program) = Program::new(
        r#"int main(void) {
            /* Until somebody removes the file. */
            while (access("go-on", F_OK) == 0)
                pairs(1000);
            return 0;
        }"#,
    ) else {
        return;
    };
    let go_on = program.folder.path().join("go-on");
    for lock in ["rwsem", "rwlock", "glibc"] {
        std::fs::write(&go_on, "").expect("a writable folder");
        let counts = Counts::create().expect("a folder");
        let mut windows = Windows::new(&counts);
        let mut child = program.start_under(lock, &counts);
        // Three windows, and a stretch that was not counted: at once, unless the machine is so busy that threads seldom lock.
        let are_seen = |windows: &Windows<'_>| {
            let run = windows.read().expect("it can be listed");
            run.processes.first().is_some_and(|process| {
                let mut opened = process.threads.iter().flat_map(|thread| &thread.windows);
                process.windows >= 3 && opened.any(|window| window.before.is_some())
            })
        };
        while !are_seen(&windows) {
            assert!(child.try_wait().expect("a child").is_none(), "it goes on");
            windows.tick();
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        std::fs::remove_file(&go_on).expect("it is there");
        assert!(child.wait().expect("a child").success());
        let run = windows.read().expect("it can be listed");
        let recorded = &run.processes[0];
        let numbers: Vec<u32> =
            recorded.threads[0].windows.iter().map(|window| window.number).collect();
        assert!(numbers.starts_with(&[1, 3, 5]), "{lock}: {numbers:?}");
        assert!(recorded.windows_ns < recorded.elapsed_ns && recorded.wake_up_ns.is_some());
        let began: Vec<u64> =
            recorded.threads[0].windows.iter().map(|window| window.began_ns).collect();
        assert!(began.is_sorted() && began[0] >= recorded.began_ns, "{lock}: {began:?}");
        // The process opened the first one itself, and clocks are off by a microsecond or so.
        let opened = recorded.opened.iter().zip(&recorded.threads[0].windows[1..]);
        for ((number, at), window) in opened {
            assert_eq!(*number, window.number, "{lock}");
            assert!(*at < window.began_ns + 1_000_000, "{lock}: {at} {window:?}");
        }
        assert!(recorded.opened.is_sorted() && recorded.opened.len() >= 2, "{lock}");
        // In between there were stretches that were not counted.
        let uncounted = recorded.threads[0].windows.iter().filter_map(|window| window.before);
        let uncounted: Vec<Unrecorded> = uncounted.collect();
        // The next window ends one, and so does a thread that does not run for long.
        let is_stretch = |it: &Unrecorded| it.cpu_ns > 0 && it.acquired > 0;
        assert!(!uncounted.is_empty() && uncounted.iter().all(is_stretch), "{lock}: {uncounted:?}");
    }
}

#[test]
fn what_is_held_and_waited_for_is_seen_after_and_during_stretches_that_are_not_counted() {
    // Reads under reads, and a wait in the middle of what would be the stretch: another thread has the lock for writing.
    let Some(program) = Program::new(
        r#"
        static int has_it, asks;
        /* The kernel says so. */
        static int sleeps(int tid) {
            char path[64], text[512];
            snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
            FILE *file = fopen(path, "r");
            text[fread(text, 1, sizeof text - 1, file)] = 0;
            fclose(file);
            return strrchr(text, ')')[2] == 'S';
        }
        static void *writer(void *nothing) {
            pthread_rwlock_wrlock(&other);
            __atomic_store_n(&has_it, 1, __ATOMIC_SEQ_CST);
            while (!__atomic_load_n(&asks, __ATOMIC_SEQ_CST))
                usleep(100);
            while (!sleeps(getpid()))
                usleep(100);
            pthread_rwlock_unlock(&other);
            return nothing;
        }
        int main(void) {
            pthread_t thread;
            pthread_rwlock_rdlock(&table);
            pairs(35000);
            pthread_rwlock_unlock(&table);
            pairs(2000);
            pthread_create(&thread, NULL, writer, NULL);
            while (!__atomic_load_n(&has_it, __ATOMIC_SEQ_CST))
                usleep(100);
            __atomic_store_n(&asks, 1, __ATOMIC_SEQ_CST);
            pthread_rwlock_rdlock(&other);
            pthread_rwlock_unlock(&other);
            pthread_join(thread, NULL);
            pairs(60000);
            return 0;
        }"#,
    ) else {
        return;
    };
    for lock in ["rwsem", "rwlock", "glibc"] {
        let ran = run_with_a_stretch(&program, lock);
        assert!(ran.status.success(), "{lock}: {}", ran.status);
        let counted = ran.counts.read().expect("it can be listed");
        let locks = &counted.snapshots[0].locks;
        assert_eq!(locks.len(), 2, "{lock}");
        assert!(locks.iter().all(|it| it.holding.is_empty()), "{lock}: {locks:?}");
        let acquired: u64 = locks.iter().map(|it| it.acquired()).sum();
        let uncounted = counted.snapshots[0].uncounted_acquisitions;
        assert!(uncounted > 0, "{lock}");
        assert_eq!(acquired + uncounted, 97_003, "{lock}");
        assert_eq!(locks.iter().map(|it| it.waited()).sum::<u64>(), 1, "{lock}");
    }
}

#[test]
fn what_a_thread_holds_in_a_stretch_that_is_not_counted_is_seen_when_it_is_killed() {
    let Some(program) = Program::new(
        r#"
        static pthread_rwlock_t third = PTHREAD_RWLOCK_INITIALIZER;
        int main(void) {
            pthread_rwlock_wrlock(&third);
            pthread_rwlock_rdlock(&other);
            /* The first window is full after 32,768, and a stretch begins at the next hold that is measured. */
            pairs(37000);
            pthread_rwlock_rdlock(&other);
            pthread_rwlock_rdlock(&table);
            pthread_rwlock_unlock(&third);
            pthread_rwlock_wrlock(&third);
            pthread_rwlock_unlock(&third);
            raise(SIGKILL);
            return 0;
        }"#,
    ) else {
        return;
    };
    for lock in ["rwsem", "rwlock", "glibc"] {
        let ran = run_with_a_stretch(&program, lock);
        assert!(!ran.status.success(), "{lock}");
        let counted = ran.counts.read().expect("it can be listed");
        let snapshot = &counted.snapshots[0];
        let acquired: u64 = snapshot.locks.iter().map(|it| it.acquired()).sum();
        let uncounted = snapshot.uncounted_acquisitions;
        assert!(uncounted > 0, "{lock}: the stretch goes on: {acquired}");
        assert_eq!(acquired + uncounted, 37_005, "{lock}");
        let held = snapshot.locks.iter().map(|lock| {
            lock.holding.iter().map(|it| (it.role, it.times)).collect::<Vec<(usize, u32)>>()
        });
        let held: Vec<_> = held.collect();
        assert_eq!(held, [vec![], vec![(READ, 2)], vec![(READ, 1)]], "{lock}");
    }
}

#[test]
fn a_thread_that_locks_seldom_all_of_a_sudden_is_recorded_and_counted_again() {
    let Some(program) = Program::new(
        r#"int main(void) {
            /* The first window is full, and a stretch has begun. */
            pairs(37000);
            while (access("go-on", F_OK) == 0) {
                pthread_rwlock_wrlock(&other);
                usleep(1000);
                pthread_rwlock_unlock(&other);
            }
            return 0;
        }"#,
    ) else {
        return;
    };
    let go_on = program.folder.path().join("go-on");
    for lock in ["rwsem", "rwlock", "glibc"] {
        std::fs::write(&go_on, "").expect("a writable folder");
        let counts = Counts::create().expect("a folder");
        let mut windows = Windows::new(&counts);
        let mut child = program.start_under(lock, &counts);
        let is_seen = |windows: &Windows<'_>| {
            let run = windows.read().expect("it can be listed");
            let steps = run.processes.iter().flat_map(|it| &it.threads).flat_map(steps);
            steps.filter(|step| matches!(step, Step::Acquire { write: true, .. })).count() >= 20
        };
        while !is_seen(&windows) {
            assert!(child.try_wait().expect("a child").is_none(), "it goes on");
            windows.tick();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::fs::remove_file(&go_on).expect("it is there");
        assert!(child.wait().expect("a child").success());
        let counted = counts.read().expect("it can be listed");
        let written: u64 = counted.snapshots[0].locks.iter().map(|it| it.roles[1].acquired).sum();
        assert!(written >= 20, "{lock}: {written}");
    }
}

#[test]
fn threads_of_children_that_were_forked_off_are_told_apart() {
    let Some(program) = Program::new(
        r#"int main(void) {
            pairs(3);
            pthread_rwlock_wrlock(&other);
            pid_t child = fork();
            if (child == 0) {
                pthread_rwlock_unlock(&other);
                pairs(7);
                exit(0);
            }
            waitpid(child, 0, 0);
            pthread_rwlock_unlock(&other);
            printf("%d %d\n", getpid(), child);
            return 0;
        }"#,
    ) else {
        return;
    };
    for lock in ["rwsem", "glibc"] {
        let ran = program.run_under(lock, Some("1"));
        let (recorded, pids) = (ran.recorded(), ran.numbers());
        let of = |pid: u64| {
            let mut threads = recorded.threads.iter().filter(|it| u64::from(it.pid) == pid);
            let (first, second) = (threads.next().expect("it recorded"), threads.next());
            assert!(second.is_none(), "{lock}: {recorded:?}");
            let asked = steps(first).filter(|step| matches!(step, Step::Acquire { .. })).count();
            let released = steps(first).filter(|step| matches!(step, Step::Release { .. })).count();
            (asked, released)
        };
        // What the child did not acquire it does not release.
        assert_eq!((of(pids[0]), of(pids[1])), ((4, 4), (7, 7)), "{lock}");
        assert_eq!(u64::from(recorded.pid), pids[0]);
    }
}

#[test]
fn what_a_program_recorded_until_it_was_killed_is_read() {
    let Some(program) = Program::new("int main(void) { pairs(5); raise(SIGKILL); return 0; }")
    else {
        return;
    };
    let ran = program.run_under("rwsem", Some("1"));
    assert!(!ran.status.success());
    let recorded = ran.recorded();
    let asked = steps(&recorded.threads[0]).filter(|it| matches!(it, Step::Acquire { .. })).count();
    assert_eq!(asked, 5);
}

#[test]
fn a_program_that_is_not_asked_to_records_nothing() {
    let Some(program) = Program::new("int main(void) { pairs(5); return 0; }") else { return };
    for records in [None, Some("0"), Some("")] {
        let ran = program.run_under("rwsem", records);
        let mut windows = Windows::new(&ran.counts);
        windows.tick();
        assert!(windows.read().expect("it can be listed").processes.is_empty());
        assert_eq!(
            ran.counts.read().expect("it can be listed").snapshots[0].locks[0].acquired(),
            5
        );
    }
}
