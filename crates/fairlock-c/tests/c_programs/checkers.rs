//! Checkers of races and of memory: correct programs are silent under them, and seeded mistakes show. Each checker is
//! left out, with a line, where it is not there.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{c, command, cpp, libraries, library_path, must_succeed, package};

/// A program of `examples-c`, built in one way.
struct Built {
    program: PathBuf,
    libraries: PathBuf,
}

/// A program that does nothing. None, and a line, if the compiler has not got what the flags need, builds for another
/// processor, or if what it adds does not work here: under an emulator, say.
fn trial(place: &Path, compiler: &str, flags: &[&str]) -> Option<PathBuf> {
    let named = compiler;
    if command(compiler).arg("--version").output().is_err() {
        eprintln!("left out: there is no {named}");
        return None;
    }
    let (source, program) = (place.join("trial.c"), place.join("trial"));
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("a writable directory");
    let mut compile = command(compiler);
    compile.args(["-x", "c"]).args(flags).arg(&source).arg("-o").arg(&program);
    let flags = flags.join(" ");
    let trouble = if !compile.output().is_ok_and(|output| output.status.success()) {
        format!("{named} has no {flags}")
    } else if processor(&program) != processor(&env::current_exe().expect("this test's path")) {
        format!("{named} builds for another processor")
    } else if !runs(|| Command::new(&program)) {
        format!("programs of {named} with {flags} do not run here")
    } else {
        return Some(program);
    };
    eprintln!("left out: {trouble}");
    None
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

/// What the header of an ELF file says of it.
fn processor(program: &Path) -> [u8; 2] {
    let file = std::fs::read(program).expect("a readable file");
    file[18..20].try_into().expect("two bytes")
}

/// Builds it against one of the libraries. None, and a line, where a [`trial`] fails.
fn build(
    place: &Path,
    (compiler, standard): (&str, &str),
    flags: &[&str],
    source: &str,
    is_static: bool,
) -> Option<Built> {
    trial(place, compiler, flags)?;
    let program = place.join(format!("{source}{}", if is_static { "-static" } else { "" }));
    let mut compile = command(compiler);
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
        OPTIONS.iter().for_each(|options| _ = run.env_remove(options));
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
fn compilers() -> Vec<(String, &'static str, &'static str)> {
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
            let compiler = (compiler.as_str(), standard);
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

/// None, and a line, where there is none for such programs.
fn valgrind(tool: &str) -> Option<Vec<OsString>> {
    let place = libraries();
    let trial = trial(place.path(), &c().compiler, &[])?;
    let mut run = Command::new("valgrind");
    run.arg(format!("--tool={tool}")).arg(&trial);
    if !runs_once(run) {
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
    // The static library is the same code whatever the program is written in.
    for ((compiler, standard, source), is_static) in compilers().into_iter().zip([false, true]) {
        let place = libraries();
        let flags = ["-DFAIRLOCK_CHECKERS=1"];
        let compiler = (compiler.as_str(), standard);
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

#[test]
fn under_helgrind_correct_programs_are_silent_and_mistakes_show() {
    under_valgrind("helgrind", "Possible data race");
}

#[test]
fn under_drd_correct_programs_are_silent_and_a_race_shows() {
    under_valgrind("drd", "Conflicting");
}
