//! The header, and programs in C and C++ that the system's compilers build against it and that run.
//!
//! The compilers are `cc` and `c++`, or `$CC` and `$CXX`. Where there is no C++ compiler, what is in
//! C++ is left out, and a line says so; the same with C++20 where the compiler has only C++17. With
//! `FAIRLOCK_LONG=1` a million locks are freed.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

#[path = "c_programs/checkers.rs"]
mod checkers;
#[path = "c_programs/header.rs"]
mod header;

/// Those with functions.
const MODULES: [&str; 7] =
    ["rwlock", "mutex", "cond", "process_shared", "range", "ready", "watched"];

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A directory with the libraries under the names that they are installed by.
fn libraries() -> TempDir {
    let test = env::current_exe().expect("this test's path");
    let built = test.parent().expect("a directory");
    let named = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a writable target directory");
    for (name, library) in [
        ("libfairlock.so", "libfairlock_c.so"),
        ("libfairlock.so.0", "libfairlock_c.so"),
        ("libfairlock.a", "libfairlock_c.a"),
    ] {
        let library = built.join(library);
        assert!(library.exists(), "Cargo builds {}", library.display());
        symlink(library, named.path().join(name)).expect("an empty directory");
    }
    named
}

struct Language {
    /// Its name, and arguments, separated by blanks.
    compiler: String,
    flags: &'static [&'static str],
}

fn compiler_of(variable: &str, usual: &str) -> String {
    let named = env::var(variable).ok().filter(|named| !named.trim().is_empty());
    named.unwrap_or_else(|| usual.into())
}

fn command(compiler: &str) -> Command {
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().expect("a compiler has a name"));
    command.args(words);
    command
}

fn c() -> Language {
    let compiler = compiler_of("CC", "cc");
    Language { compiler, flags: &["-std=c11", "-pedantic"] }
}

/// None, and a line, where there is no compiler.
fn cpp() -> Option<Language> {
    let compiler = compiler_of("CXX", "c++");
    if command(&compiler).arg("--version").output().is_err() {
        eprintln!("left out: there is no C++ compiler ({compiler})");
        return None;
    }
    Some(Language { compiler, flags: &["-std=c++17", "-pedantic"] })
}

/// C++17, and C++20, in which the header has more.
fn every_cpp() -> Vec<Language> {
    let Some(old) = cpp() else { return Vec::new() };
    let new = Language { compiler: old.compiler.clone(), flags: &["-std=c++20", "-pedantic"] };
    let mut trial = command(&new.compiler);
    trial.args(new.flags).args(["-x", "c++", "-fsyntax-only", "/dev/null"]);
    if trial.output().is_ok_and(|output| output.status.success()) {
        return vec![old, new];
    }
    eprintln!("left out: {} has no C++20", new.compiler);
    vec![old]
}

fn must_succeed(command: &mut Command, what: &str) {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{what}: {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{what}: {command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Language {
    /// Builds a program, with both libraries, and runs it.
    fn run(&self, source: &str) {
        self.run_with(source, &[]);
    }

    fn run_with(&self, source: &str, arguments: &[&str]) {
        let libraries = libraries();
        let place = libraries.path();
        let object = place.join("program.o");
        let mut compile = command(&self.compiler);
        compile.args(self.flags).args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-c"]);
        compile.arg("-I").arg(package().join("include"));
        compile.arg(package().join(source)).arg("-o").arg(&object);
        must_succeed(&mut compile, source);

        let shared: [OsString; 2] = [library_path("-L", place), "-lfairlock".into()];
        let archive: [OsString; 4] =
            [place.join("libfairlock.a").into(), "-lm".into(), "-ldl".into(), "-lrt".into()];
        for (name, link) in [("shared", &shared[..]), ("static", &archive[..])] {
            let program = place.join(name);
            let mut linker = command(&self.compiler);
            linker.args(["-pthread", "-o"]).arg(&program).arg(&object).args(link);
            must_succeed(&mut linker, source);
            let mut run = Command::new(&program);
            must_succeed(run.args(arguments).env("LD_LIBRARY_PATH", place), source);
        }
    }
}

fn library_path(flag: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(flag);
    argument.push(path);
    argument
}

fn programs(folder: &str, language: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(package().join(folder)).expect("a folder of this package");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == language)).collect()
}

#[test]
fn every_example_in_c_runs() {
    for program in programs("examples-c", "c") {
        c().run(program.to_str().expect("a path in UTF-8"));
    }
}

#[test]
fn every_example_in_cpp_runs() {
    for cpp in every_cpp() {
        for program in programs("examples-c", "cpp") {
            cpp.run(program.to_str().expect("a path in UTF-8"));
        }
    }
}

#[test]
fn a_deadline_on_no_clock_is_refused_by_the_compiler_with_the_way_out() {
    let Some(cpp) = cpp() else { return };
    let mut compile = command(&cpp.compiler);
    compile.args(cpp.flags).arg("-fsyntax-only").arg("-I").arg(package().join("include"));
    let program = package().join("tests/programs/no_clock.cpp");
    // Without what is wrong it compiles.
    let program_of = |compile: &Command| {
        let mut same = Command::new(compile.get_program());
        same.args(compile.get_args());
        same
    };
    must_succeed(program_of(&compile).arg(&program), "no_clock.cpp");
    let output = compile.arg("-DNO_CLOCK").arg(&program).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    for expected in ["this deadline is on something that is no clock", "steady_clock"] {
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn misuse_is_a_code_and_changes_nothing() {
    c().run("tests/programs/misuse.c");
}

#[test]
fn threads_that_wait_for_a_change_are_notified_in_order_and_no_notification_is_lost() {
    c().run("tests/programs/cond.c");
    every_cpp().iter().for_each(|cpp| cpp.run("tests/programs/cond.cpp"));
}

#[test]
fn a_thread_that_ends_unlocks_what_it_reads_however_late() {
    c().run("tests/programs/late_unlock.c");
    if let Some(cpp) = cpp() {
        cpp.run("tests/programs/late_unlock.cpp");
    }
}

/// Libraries and programs that each contain the static library.
struct Copies {
    place: TempDir,
}

impl Copies {
    fn new() -> Self {
        Copies { place: libraries() }
    }

    /// Builds sources of `tests/programs/copies` into one file.
    fn build(&self, name: &str, sources: &[&str], flags: &[&str]) -> PathBuf {
        let built = self.place.path().join(name);
        let folder = package().join("tests/programs/copies");
        let mut compile = command(&c().compiler);
        compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-pthread"]);
        compile.arg("-I").arg(package().join("include")).arg("-o").arg(&built);
        compile.args(sources.iter().map(|source| folder.join(source)));
        compile.args(flags).arg("-Wl,--as-needed").arg(self.place.path().join("libfairlock.a"));
        compile.args(["-lm", "-ldl", "-lrt"]);
        must_succeed(&mut compile, name);
        built
    }

    fn library(&self, name: &str) -> PathBuf {
        self.build(name, &["copy.c"], &["-shared", "-Wl,--gc-sections"])
    }
}

#[test]
fn a_program_and_what_it_loads_exclude_each_other_with_a_copy_of_the_library_each() {
    let copies = Copies::new();
    let library = copies.library("first.so");
    for (name, flags) in
        [("hidden", &["-DOWN"][..]), ("visible", &["-DOWN", "-DVISIBLE", "-rdynamic"])]
    {
        let program = copies.build(name, &["main.c", "copy.c"], flags);
        must_succeed(Command::new(program).arg(&library), name);
    }
}

#[test]
fn two_loaded_libraries_exclude_each_other_with_a_copy_each_also_after_the_first_was_closed() {
    let copies = Copies::new();
    let (first, second) = (copies.library("first.so"), copies.library("second.so"));
    let program = copies.build("neither", &["main.c"], &[]);
    must_succeed(Command::new(&program).args([&first, &second]), "two libraries");
    // By a name that is not where it is later.
    let mut relative = Command::new(program);
    relative.args(["./first.so", "./second.so"]).current_dir(copies.place.path());
    must_succeed(&mut relative, "two libraries by relative names");
}

#[test]
fn a_copy_that_does_not_fit_is_refused_with_a_message() {
    let copies = Copies::new();
    let stranger = copies.build("stranger.so", &["stranger.c"], &["-shared"]);
    let library = copies.library("second.so");
    let program = copies.build("neither", &["main.c"], &[]);
    let mut run = Command::new(&program);
    run.env("LD_PRELOAD", &stranger).args([&library, &library]);
    let output = run.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    let expected = format!("version 1000.0.1 in {}", stranger.display());
    // An emulator says something of the signal, too.
    let lines = said.lines().filter(|line| !line.starts_with("qemu: ")).count();
    assert!(said.contains(&expected) && lines == 1, "{said}");
}

#[test]
fn every_function_is_served_by_the_first_copy() {
    let mut functions = 0;
    for module in MODULES {
        let source = fs::read_to_string(package().join(format!("src/{module}.rs")));
        let source = source.expect("a readable source");
        for function in source.split("extern \"C\" fn ").skip(1) {
            let name = function.split('(').next().expect("a name");
            let body = function.split_once("{\n").expect("a body").1.trim_start();
            let begins = format!("served_by_first!({name}(");
            let spaced = format!("served_by_first!(\n        {name}(");
            assert!(body.starts_with(&begins) || body.starts_with(&spaced), "{name}");
            functions += 1;
        }
    }
    assert!(functions > 70, "{functions} were found");
}

#[test]
fn memory_of_a_lock_may_be_freed_after_its_last_unlock() {
    let is_long = env::var_os("FAIRLOCK_LONG").is_some_and(|value| value == "1");
    let objects = if is_long { "1000000" } else { "1500" };
    c().run_with("tests/programs/destroy.c", &[objects]);
}
