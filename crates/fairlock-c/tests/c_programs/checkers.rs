//! Checkers of races and of memory: correct programs are silent under them, and seeded mistakes show. Each checker is
//! left out, with a line, where it is not there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{c, cpp, libraries, library_path, must_succeed, package};

/// A program of `examples-c`, built in one way.
struct Built {
    program: PathBuf,
    libraries: PathBuf,
}

/// Builds it against one of the libraries. None, and a line, if the compiler has not got what the flags need.
fn build(
    place: &Path,
    (compiler, standard): (&OsString, &str),
    flags: &[&str],
    source: &str,
    is_static: bool,
) -> Option<Built> {
    if Command::new(compiler).arg("--version").output().is_err() {
        eprintln!("left out: there is no {}", Path::new(compiler).display());
        return None;
    }
    let trial = place.join("trial.c");
    std::fs::write(&trial, "int main(void) { return 0; }\n").expect("a writable directory");
    let mut try_flags = Command::new(compiler);
    try_flags.args(["-x", "c"]).args(flags).arg(&trial).arg("-o").arg(place.join("trial"));
    if !try_flags.output().is_ok_and(|output| output.status.success()) {
        eprintln!("left out: {} has no {}", Path::new(compiler).display(), flags.join(" "));
        return None;
    }
    let program = place.join(format!("{source}{}", if is_static { "-static" } else { "" }));
    let mut compile = Command::new(compiler);
    compile.args([standard, "-g", "-O1", "-pthread"]).args(flags);
    compile.arg("-I").arg(package().join("include"));
    compile.arg(package().join("examples-c").join(source)).arg("-o").arg(&program);
    match is_static {
        true => compile.arg(place.join("libfairlock.a")).args(["-lm", "-ldl", "-lrt"]),
        false => compile.arg(library_path("-L", place)).arg("-lfairlock"),
    };
    must_succeed(&mut compile, source);
    Some(Built { program, libraries: place.to_owned() })
}

impl Built {
    /// Runs it, if need be under another program.
    fn run(&self, under: &[OsString], argument: &str) -> Output {
        let mut run = match under {
            [] => Command::new(&self.program),
            [first, others @ ..] => {
                let mut run = Command::new(first);
                run.args(others).arg(&self.program);
                run
            }
        };
        run.arg(argument).env("LD_LIBRARY_PATH", &self.libraries);
        // What is asked for here is nothing that somebody set.
        for options in ["TSAN_OPTIONS", "ASAN_OPTIONS", "LSAN_OPTIONS", "VALGRIND_OPTS"] {
            run.env_remove(options);
        }
        run.output().expect("it starts")
    }

    fn must_be_silent(&self, under: &[OsString]) {
        let output = self.run(under, "");
        let said = said(&output);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", self.program.display());
    }

    fn must_show(&self, under: &[OsString], mistake: &str, shown: &[&str]) {
        let said = said(&self.run(under, mistake));
        for expected in shown {
            assert!(said.contains(expected), "{mistake}: no {expected:?} in: {said}");
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// C and C++ by the usual compilers, and by Clang, whose sanitizers are in the program and not in a library.
fn compilers() -> Vec<(OsString, &'static str, &'static str)> {
    let mut all = vec![(c().compiler, "-std=c11", "checkers.c")];
    all.extend(cpp().map(|cpp| (cpp.compiler, "-std=c++17", "checkers.cpp")));
    all.push(("clang".into(), "-std=c11", "checkers.c"));
    all.push(("clang++".into(), "-std=c++17", "checkers.cpp"));
    all
}

#[test]
fn under_thread_sanitizer_correct_programs_are_silent_and_mistakes_show() {
    for (compiler, standard, source) in compilers() {
        for is_static in [false, true] {
            let place = libraries();
            let flags = ["-fsanitize=thread"];
            let compiler = (&compiler, standard);
            let Some(built) = build(place.path(), compiler, &flags, source, is_static) else {
                continue;
            };
            built.must_be_silent(&[]);
            built.must_show(&[], "race", &["data race", source]);
            if source == "checkers.c" {
                // It names the program's lines.
                built.must_show(&[], "order", &["lock-order-inversion", "acquire_both", source]);
            }
        }
    }
}

#[test]
fn under_address_sanitizer_nothing_of_the_library_leaks() {
    for (compiler, standard, source) in compilers() {
        let place = libraries();
        let flags = ["-fsanitize=address"];
        let Some(built) = build(place.path(), (&compiler, standard), &flags, source, false) else {
            continue;
        };
        built.must_be_silent(&[]);
    }
}

/// None, and a line, where it is not there.
fn valgrind(tool: &str) -> Option<Vec<OsString>> {
    let trial = Command::new("valgrind").args([&format!("--tool={tool}"), "true"]).output();
    if !trial.is_ok_and(|output| output.status.success()) {
        eprintln!("left out: there is no valgrind with {tool} that runs here");
        return None;
    }
    let mut suppressions = OsString::from("--suppressions=");
    suppressions.push(package().join("valgrind.supp"));
    let mut command: Vec<OsString> = vec!["valgrind".into(), format!("--tool={tool}").into()];
    command.extend(["--quiet", "--fair-sched=yes", "--num-callers=40"].map(OsString::from));
    command.push(suppressions);
    Some(command)
}

fn under_valgrind(tool: &str, race: &str) {
    let Some(valgrind) = valgrind(tool) else { return };
    for (compiler, standard, source) in compilers().into_iter().take(2) {
        for is_static in [false, true] {
            let place = libraries();
            let flags = ["-DFAIRLOCK_CHECKERS=1"];
            let compiler = (&compiler, standard);
            let Some(built) = build(place.path(), compiler, &flags, source, is_static) else {
                continue;
            };
            built.must_be_silent(&valgrind);
            built.must_show(&valgrind, "race", &[race, source]);
            if tool == "helgrind" && source == "checkers.c" {
                let shown = ["lock order", "violated", "acquire_both (checkers.c"];
                built.must_show(&valgrind, "order", &shown);
            }
        }
    }
}

#[test]
fn under_helgrind_correct_programs_are_silent_and_mistakes_show() {
    under_valgrind("helgrind", "Possible data race");
}

#[test]
fn under_drd_correct_programs_are_silent_and_a_race_shows() {
    under_valgrind("drd", "Conflicting");
}
