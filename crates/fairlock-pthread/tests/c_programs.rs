//! Programs in C, compiled with the system's compiler, under the library: what glibc answers, what a
//! program may rely on, and torture.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::thread;

use fairlock_counts::regular;
use fairlock_counts::snapshot::Snapshot;
use object::{Object, ObjectSymbol, SymbolKind};
use tempfile::TempDir;

/// Next to what Cargo builds: programs may not be run from every folder for temporary files.
fn scratch() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a writable target directory")
}

/// What `FAIRLOCK_LOCK` may say.
const POLICIES: [&str; 11] = [
    "rwsem",
    "rwlock",
    "phase-fair",
    "linux-3.10",
    "linux-3.16",
    "linux-5.1",
    "linux-5.2",
    "linux-5.3",
    "linux-5.11",
    "no-reader-steal",
    "glibc",
];

/// The library as Cargo leaves it beside this test.
fn library() -> PathBuf {
    let here = std::env::current_exe().expect("this test has a path");
    let library = here.with_file_name("libfairlock_pthread.so");
    assert!(library.exists(), "{} is built with this test", library.display());
    library
}

/// `$CC`, which may name arguments, too, separated by blanks.
fn c_compiler() -> String {
    let named = std::env::var("CC").ok().filter(|named| !named.trim().is_empty());
    named.unwrap_or_else(|| "cc".into())
}

fn command(compiler: &str) -> Command {
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().expect("a compiler has a name"));
    command.args(words);
    command
}

fn compile(name: &str, into: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    let program = into.join(name.trim_end_matches(".c"));
    let compiler = c_compiler();
    let compiled = command(&compiler)
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-rdynamic", "-o"])
        .args([&program, &source])
        .output()
        .unwrap_or_else(|error| panic!("a C compiler is needed; CC={compiler}: {error}"));
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// Compiles `checkers.c` with a sanitizer. None, and a line, if this compiler has not got it, builds for another processor, or
/// if the sanitizer does not work here: under an emulator, say.
fn compile_sanitized(compiler: &str, sanitizer: &str, into: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checkers.c");
    let program = into.join(format!("{}-{sanitizer}", compiler.replace(['/', ' '], "_")));
    let mut compile = command(compiler);
    compile.args(["-O1", "-g", "-pthread", &format!("-fsanitize={sanitizer}"), "-o"]);
    let compiled = compile.args([&program, &source]).output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        eprintln!("left out: there is no {compiler} with -fsanitize={sanitizer}");
        return None;
    }
    if processor(&program) != processor(&library()) {
        eprintln!("left out: {compiler} builds for another processor");
        return None;
    }
    if !runs(|| Command::new(&program)) {
        eprintln!("left out: programs of {compiler} with -fsanitize={sanitizer} do not run here");
        return None;
    }
    Some(program)
}

/// What the header of an ELF file says of it.
fn processor(program: &Path) -> object::Architecture {
    let file = std::fs::read(program).expect("it can be read");
    object::File::parse(&*file).expect("a program or a library").architecture()
}

/// GCC has sanitizers as libraries, Clang links them into the program.
fn compilers() -> [String; 2] {
    [c_compiler(), "clang".into()]
}

/// Where users set what checkers do. Tests say that themselves.
const OPTIONS: [&str; 4] = ["ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "VALGRIND_OPTS"];

/// Whether a program under a sanitizer runs here: several times, as where the kernel puts its memory is chance, and some
/// sanitizers do not work with every place.
fn runs(command: impl Fn() -> Command) -> bool {
    (0..5).all(|_| runs_once(command()))
}

fn runs_once(mut trial: Command) -> bool {
    OPTIONS.iter().for_each(|options| _ = trial.env_remove(options));
    trial.output().is_ok_and(|output| output.status.success())
}

/// What a program says of a mistake that it is told to make.
fn said_of(command: &mut Command, mistake: &str) -> String {
    let output = command.arg(mistake).output().expect("it starts");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn under_thread_sanitizer_a_correct_program_is_silent_and_mistakes_show() {
    let folder = scratch();
    for compiler in compilers() {
        let Some(program) = compile_sanitized(&compiler, "thread", folder.path()) else { continue };
        for policy in ["rwsem", "rwlock", "linux-5.11", "glibc"] {
            assert_eq!(said_of(&mut under(policy, &program), ""), "", "{compiler} {policy}");
            let mut counted = under(policy, &program);
            counted.env("FAIRLOCK_COUNTS", folder.path());
            assert_eq!(said_of(&mut counted, ""), "", "{compiler} {policy}, counted");
            counted.env("FAIRLOCK_RECORD", "1");
            assert_eq!(said_of(&mut counted, ""), "", "{compiler} {policy}, recorded");
            for (mistake, shown, place) in [
                ("race", "data race", "in race"),
                ("order", "lock-order-inversion", "acquire_both"),
            ] {
                let said = said_of(&mut under(policy, &program), mistake);
                assert!(
                    said.contains(shown) && said.contains(place),
                    "{compiler} {policy}: {said}"
                );
            }
        }
    }
}

#[test]
fn under_address_sanitizer_only_what_the_program_lost_is_a_leak() {
    let folder = scratch();
    for compiler in compilers() {
        let Some(program) = compile_sanitized(&compiler, "address", folder.path()) else {
            continue;
        };
        for policy in ["rwsem", "rwlock", "glibc"] {
            let run = || {
                let mut command = under(policy, &program);
                // As `fairlock run` sets it.
                command.env("ASAN_OPTIONS", "verify_asan_link_order=0");
                command.env("FAIRLOCK_COUNTS", folder.path());
                command
            };
            assert_eq!(said_of(&mut run(), ""), "", "{compiler} {policy}");
            let said = said_of(&mut run(), "leak");
            let one = "1000 byte(s) leaked in 1 allocation(s)";
            assert!(said.contains(one), "{compiler} {policy}: {said}");
        }
    }
}

#[test]
fn under_helgrind_and_drd_a_correct_program_is_silent_and_a_race_shows() {
    let folder = scratch();
    let program = compile("checkers.c", folder.path());
    let suppressions =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../fairlock-c/valgrind.supp").canonicalize();
    let suppressions = suppressions.expect("suppressions").display().to_string();
    for (tool, shown) in [("helgrind", "Possible data race"), ("drd", "Conflicting")] {
        let mut trial = Command::new("valgrind");
        trial.arg(format!("--tool={tool}")).arg(&program);
        if !runs_once(trial) {
            eprintln!("left out: there is no valgrind with {tool} that runs here");
            continue;
        }
        for policy in ["rwsem", "rwlock"] {
            let run = |mistake| {
                let mut command = under(policy, Path::new("valgrind"));
                command.args([&format!("--tool={tool}"), "--quiet", "--fair-sched=yes"]);
                command.args(["--num-callers=40", &format!("--suppressions={suppressions}")]);
                command.env("FAIRLOCK_COUNTS", folder.path()).arg(&program);
                said_of(&mut command, mistake)
            };
            assert_eq!(run(""), "", "{tool} {policy}");
            assert!(run("race").contains(shown), "{tool} {policy}");
        }
    }
}

fn under(policy: &str, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("FAIRLOCK_LOCK", policy);
    command.env_remove("FAIRLOCK_COUNTS").env_remove("FAIRLOCK_RECORD");
    OPTIONS.iter().for_each(|options| _ = command.env_remove(options));
    command
}

/// What is noted of it in this folder.
fn noted<'a>(command: &'a mut Command, folder: &TempDir, records: bool) -> &'a mut Command {
    command
        .env("FAIRLOCK_COUNTS", folder.path())
        .env("FAIRLOCK_RECORD", if records { "1" } else { "" })
}

/// Whether system calls can be filtered here: not everywhere under emulation.
fn can_filter_calls() -> bool {
    // SAFETY: without a filter, the call fails after it has looked whether there are any.
    unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, std::ptr::null::<u8>());
    }
    std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

fn assert_succeeds(command: &mut Command) -> Output {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{command:?}: {}\n{said}", output.status);
    output
}

/// Runs them a few at a time: of many more than there are CPUs each would wait for long between two steps.
fn all_succeed(commands: impl IntoIterator<Item = Command, IntoIter: Send>) {
    const AT_ONCE: usize = 4;
    let commands = Mutex::new(commands.into_iter());
    let next = || commands.lock().expect("no panic").next();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(mut command) = next() {
                    assert_succeeds(&mut command);
                }
            });
        }
    });
}

#[test]
fn everything_is_answered_as_by_glibc() {
    let folder = scratch();
    let program = compile("conformance.c", folder.path());
    // glibc itself, so that the questions are right.
    let mut commands = vec![Command::new(&program)];
    commands.extend(POLICIES.map(|policy| under(policy, &program)));
    for policy in ["rwsem", "rwlock", "linux-5.11", "glibc"] {
        for records in [false, true] {
            let mut command = under(policy, &program);
            noted(&mut command, &folder, records);
            commands.push(command);
        }
    }
    all_succeed(commands);
}

#[test]
fn a_thread_that_ends_unlocks_what_it_reads_however_late() {
    let folder = scratch();
    let program = compile("late_unlock.c", folder.path());
    let mut commands = vec![Command::new(&program)];
    commands.extend(POLICIES.map(|policy| under(policy, &program)));
    all_succeed(commands);
}

#[test]
fn a_read_beside_readers_is_granted_in_time_although_a_writer_waits() {
    let folder = scratch();
    let program = compile("reader_preference.c", folder.path());
    let counted = ["rwsem", "rwlock"].map(|policy| {
        let mut counted = under(policy, &program);
        counted.env("FAIRLOCK_COUNTS", folder.path());
        counted
    });
    all_succeed(POLICIES.map(|policy| under(policy, &program)).into_iter().chain(counted));
}

#[test]
fn reads_that_are_unlocked_by_another_thread_do_not_keep_a_writer_out() {
    let folder = scratch();
    let program = compile("reader_preference.c", folder.path());
    thread::scope(|scope| {
        for policy in ["rwsem", "phase-fair"] {
            scope.spawn(|| assert_succeeds(under(policy, &program).arg("handed_over")));
        }
    });
}

#[test]
fn a_lock_of_the_kind_that_prefers_writers_lets_no_reader_past_one_that_waits() {
    let folder = scratch();
    let program = compile("writer_preference.c", folder.path());
    all_succeed(POLICIES.map(|policy| under(policy, &program)));
}

#[test]
fn a_lock_call_allocates_nothing_and_leaves_errno_alone() {
    let folder = scratch();
    let program = compile("in_a_lock_call.c", folder.path());
    /// What is noted of it, and what is done to its system calls.
    #[derive(Clone, Copy, PartialEq)]
    enum Noted {
        Nothing,
        Counts,
        Records,
    }
    let mut ways = vec![
        (Noted::Nothing, "allowed"),
        (Noted::Nothing, "refused"),
        (Noted::Counts, "refused"),
        (Noted::Records, "refused"),
    ];
    if !can_filter_calls() {
        eprintln!("skipped in part: system calls cannot be filtered here (seccomp)");
        ways.retain(|&(_, argument)| argument == "allowed");
    }
    let mut commands = Vec::new();
    for policy in POLICIES {
        for &(what, argument) in &ways {
            let mut command = under(policy, &program);
            if what != Noted::Nothing {
                noted(&mut command, &folder, what == Noted::Records);
            }
            command.arg(argument);
            commands.push(command);
        }
    }
    all_succeed(commands);
}

/// A variable of threads that is found by a call into the dynamic linker may be allocated by that call.
/// Those of the standard library are for panics alone, after which the process ends.
#[test]
fn the_library_has_no_variables_of_threads_but_those_in_their_fixed_place() {
    let library = std::fs::read(library()).expect("it can be read");
    let file = object::File::parse(&*library).expect("a shared library");
    let ours: Vec<&str> = file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Tls)
        .map(|symbol| symbol.name().expect("a name"))
        .filter(|name| name.contains("fairlock"))
        .collect();
    assert_eq!(ours, ["fairlock_thread"]);
}

#[test]
fn an_unknown_lock_is_said_and_the_program_runs() {
    let folder = scratch();
    let program = compile("nothing.c", folder.path());
    let output = under("fastest", &program).output().expect("it starts");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("FAIRLOCK_LOCK=fastest names no lock"), "{said}");
}

#[test]
fn threads_and_processes_are_tortured_in_vain() {
    let folder = scratch();
    let program = compile("torture.c", folder.path());
    thread::scope(|scope| {
        for (policy, is_noted) in [("rwsem", false), ("phase-fair", true), ("linux-5.11", false)] {
            let mut command = under(policy, &program);
            if is_noted {
                noted(&mut command, &folder, true);
            }
            // Longer: see the program.
            scope.spawn(move || assert_succeeds(command.arg("1.5")));
        }
    });
}

#[test]
fn counts_that_another_process_writes_to_do_not_harm_the_program() {
    let folder = scratch();
    let program = compile("scribbled.c", folder.path());
    let mut commands = Vec::new();
    for policy in ["rwsem", "rwlock", "linux-5.11", "glibc"] {
        for records in [false, true] {
            let mut command = under(policy, &program);
            noted(&mut command, &folder, records);
            commands.push(command);
        }
    }
    all_succeed(commands);
}

/// What the only process counted there.
fn counts_in(folder: &Path) -> Snapshot {
    let mut files =
        std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("a name").path());
    let path = files.find(|path| path.extension().is_some_and(|it| it == "counts"));
    let file = regular::open(&path.expect("it counted")).expect("it is there");
    Snapshot::read(&file).expect("a counts file")
}

#[test]
fn what_a_forked_child_does_to_a_new_lock_is_counted_as_that_locks() {
    for policy in ["rwsem", "rwlock", "glibc"] {
        let folder = scratch();
        let program = compile("new_lock_in_child.c", folder.path());
        let mut counted = under(policy, &program);
        assert_succeeds(counted.env("FAIRLOCK_COUNTS", folder.path()));
        let locks = counts_in(folder.path()).locks;
        let mut acquired: Vec<u64> = locks.iter().map(|lock| lock.acquired()).collect();
        assert_eq!(acquired.pop(), Some(5), "{policy}");
        assert_eq!(acquired, [1; 40], "{policy}");
    }
}

#[test]
fn a_program_that_outlives_its_run_says_nothing_about_counts() {
    let folder = scratch();
    let program = compile("nothing.c", folder.path());
    let counted_in = |directory: &str| {
        let mut command = under("rwsem", &program);
        command.env("FAIRLOCK_COUNTS", folder.path().join(directory));
        let output = command.output().expect("it starts");
        assert!(output.status.success());
        String::from_utf8(output.stderr).expect("text")
    };
    assert_eq!(counted_in("fairlock-counts-x1y2z3/0123456789abcdef"), "");
    // Who named a directory that is not there gets to know.
    assert!(counted_in("missing").contains("no counts of this process"));
}

#[test]
fn a_former_name_of_a_lock_is_accepted_with_a_note_that_says_the_current_one() {
    let folder = scratch();
    let program = compile("nothing.c", folder.path());
    for (former, now) in [("timefair", "rwsem"), ("biased", "rwlock")] {
        let output = under(former, &program).output().expect("it starts");
        assert!(output.status.success());
        let said = String::from_utf8(output.stderr).expect("text");
        let note = format!("fairlock: note: FAIRLOCK_LOCK={former} is now called {now}\n");
        assert_eq!(said, note);
    }
}
