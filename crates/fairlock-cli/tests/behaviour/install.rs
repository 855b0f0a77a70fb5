//! `fairlock install`: what it puts where, and that compilers find it there.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use object::{Object, ObjectSection, SectionFlags, elf};
use tempfile::TempDir;

fn scratch() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a writable directory for tests")
}

fn install(command: impl AsRef<OsStr>, prefix: &Path) -> Output {
    let mut command = Command::new(command);
    command.args(["install", "--prefix"]).arg(prefix).output().expect("the command starts")
}

fn must_succeed(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}{complaint}", output.status);
    said
}

/// None, and a line, where the tool is not there.
fn tool(name: &str) -> Option<Command> {
    if Command::new(name).arg("--version").output().is_err() {
        eprintln!("left out: there is no {name}");
        return None;
    }
    Some(Command::new(name))
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fairlock-c/examples-c/rwlock.c")
}

/// Builds an example as its head says.
fn build_by_pkg_config(prefix: &Path, scratch: &Path) {
    let Some(mut pkg_config) = tool("pkg-config") else { return };
    pkg_config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let flags = must_succeed(
        &pkg_config.args(["--cflags", "--libs", "fairlock"]).output().expect("pkg-config starts"),
    );
    let program = scratch.join("program");
    let mut cc = crate::c_compiler();
    cc.arg(example()).args(flags.split_whitespace()).args(["-pthread", "-o"]).arg(&program);
    must_succeed(&cc.output().expect("a C compiler"));
    let mut run = Command::new(program);
    must_succeed(&run.env("LD_LIBRARY_PATH", prefix.join("lib")).output().expect("it starts"));
}

const PROJECT: &str = "\
cmake_minimum_required(VERSION 3.13)
project(program C)
find_package(fairlock 0.1 REQUIRED)
find_package(Threads REQUIRED)
foreach(library fairlock fairlock-static)
  add_executable(with-${library} EXAMPLE)
  target_link_libraries(with-${library} fairlock::${library} Threads::Threads)
endforeach()
";

fn build_by_cmake(prefix: &Path, scratch: &Path) {
    let Some(mut configure) = tool("cmake") else { return };
    let project = scratch.join("project");
    fs::create_dir(&project).expect("a writable directory");
    let text = PROJECT.replace("EXAMPLE", example().to_str().expect("a path in UTF-8"));
    fs::write(project.join("CMakeLists.txt"), text).expect("a writable directory");
    configure.current_dir(&project).args(["-S", ".", "-B", "build"]);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    must_succeed(&configure.output().expect("cmake starts"));
    let mut build = Command::new("cmake");
    build.current_dir(&project).args(["--build", "build"]);
    must_succeed(&build.output().expect("cmake starts"));
    for program in ["with-fairlock", "with-fairlock-static"] {
        must_succeed(&Command::new(project.join("build").join(program)).output().expect("built"));
    }
}

#[test]
fn what_was_installed_and_moved_is_found_by_pkg_config_and_by_cmake() {
    let scratch = scratch();
    let first = scratch.path().join("first");
    let said = must_succeed(&install(crate::FAIRLOCK, &first));
    for name in [
        "bin/fairlock",
        "lib/libfairlock.so",
        "lib/libfairlock.so.0",
        "lib/libfairlock.a",
        "lib/libfairlock_pthread.so",
        "share/fairlock/valgrind.supp",
        "lib/pkgconfig/fairlock.pc",
        "lib/cmake/fairlock/fairlock-config.cmake",
        "lib/cmake/fairlock/fairlock-config-version.cmake",
        "include/fairlock.h",
        "include/fairlock.hpp",
        "share/bash-completion/completions/fairlock",
        "share/zsh/site-functions/_fairlock",
        "share/fish/vendor_completions.d/fairlock.fish",
        "share/man/man1/fairlock.1",
    ] {
        let path = first.join(name);
        assert!(path.exists(), "{name}");
        assert!(said.contains(path.to_str().expect("a path in UTF-8")), "{name}: {said}");
    }
    let moved = scratch.path().join("moved");
    fs::rename(first, &moved).expect("the same directory");
    build_by_pkg_config(&moved, scratch.path());
    build_by_cmake(&moved, scratch.path());

    // An installed command installs, also over itself.
    must_succeed(&install(moved.join("bin/fairlock"), &moved));
    let left_over = fs::read_dir(moved.join("bin")).expect("a directory").count();
    assert_eq!(left_over, 1, "nothing but the command");
}

/// The names of the sections of what was compiled, and whether each is loaded when it runs.
fn sections(path: &Path) -> Vec<(String, bool)> {
    let bytes = fs::read(path).expect("a readable file");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let is_loaded = |flags| match flags {
        SectionFlags::Elf { sh_flags, .. } => sh_flags.0 & elf::SHF_ALLOC.0 != 0,
        _ => false,
    };
    let of = |it: object::Section| (it.name().expect("UTF-8").to_owned(), is_loaded(it.flags()));
    file.sections().map(of).collect()
}

#[test]
fn what_was_compiled_is_stripped_of_debug_information_and_keeps_its_symbols() {
    if tool("strip").is_none() {
        return;
    }
    let scratch = scratch();
    let (stripped, whole) = (scratch.path().join("stripped"), scratch.path().join("whole"));
    must_succeed(&install(crate::FAIRLOCK, &stripped));
    let mut command = crate::fairlock();
    command.args(["install", "--unstripped", "--prefix"]).arg(&whole);
    must_succeed(&command.output().expect("the command starts"));
    for name in ["bin/fairlock", "lib/libfairlock.so", "lib/libfairlock_pthread.so"] {
        let sections = sections(&stripped.join(name));
        // What is loaded belongs to the program, whatever it is called: rustc tells gdb in `.debug_gdb_scripts` where
        // its scripts are.
        let is_left = |(it, loaded): &(String, bool)| it.starts_with(".debug_") && !loaded;
        assert!(!sections.iter().any(is_left), "{name}: {sections:?}");
        for kept in [".symtab", ".dynsym", ".eh_frame"] {
            assert!(sections.iter().any(|(it, _)| it == kept), "{name} lacks {kept}: {sections:?}");
        }
    }
    // As it was built, with whatever debug information its profile gives it.
    let read = |path: &Path| fs::read(path).expect("a readable file");
    assert!(read(&whole.join("bin/fairlock")) == read(Path::new(crate::FAIRLOCK)));
    // The standard library's part of an archive always has some.
    let bytes = |at: &Path| fs::metadata(at.join("lib/libfairlock.a")).expect("an archive").len();
    assert!(bytes(&stripped) < bytes(&whole));
}

#[test]
fn each_subcommand_has_a_man_page_and_bash_completes_its_name() {
    let scratch = scratch();
    let prefix = scratch.path().join("prefix");
    must_succeed(&install(crate::FAIRLOCK, &prefix));
    for name in ["", "-bench", "-bench-mix", "-run", "-log-append", "-sweep-run", "-completions"] {
        let path = prefix.join(format!("share/man/man1/fairlock{name}.1"));
        let page = fs::read_to_string(&path).expect("a page");
        assert!(page.contains(".SH SYNOPSIS") && page.contains("fairlock"), "{name}: {page}");
        if let Some(mut man) = tool("man") {
            man.arg("--local-file").arg(&path).env("MANWIDTH", "80").env("LC_ALL", "C");
            let text = must_succeed(&man.output().expect("man starts"));
            // In systems without documentation it only says that it is not there.
            let is_real = text.contains("SYNOPSIS") || text.contains("minimized");
            assert!(is_real, "{text}");
        }
    }
    let page = fs::read_to_string(prefix.join("share/man/man1/fairlock.1")).expect("a page");
    assert!(page.contains("fairlock\\-bench(1)") && !page.contains("worker"), "{page}");
    let Some(mut bash) = tool("bash") else { return };
    let script = prefix.join("share/bash-completion/completions/fairlock");
    let complete = "source \"$0\"; COMP_WORDS=(fairlock ben); COMP_CWORD=1; \
                    _fairlock fairlock ben fairlock; echo \"${COMPREPLY[@]}\"";
    let output = bash.args(["-c", complete]).arg(&script).output().expect("bash starts");
    assert_eq!(must_succeed(&output).trim(), "bench");
    let printed = crate::fairlock().args(["completions", "bash"]).output();
    let printed = must_succeed(&printed.expect("the command starts"));
    assert_eq!(printed, fs::read_to_string(script).expect("a script"));
}

#[test]
fn a_command_without_its_libraries_says_what_to_build_and_writes_nothing() {
    let scratch = scratch();
    let alone = scratch.path().join("fairlock");
    fs::hard_link(crate::FAIRLOCK, &alone).expect("the same file system");
    let prefix = scratch.path().join("prefix");
    let output = install(&alone, &prefix);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    for word in ["libfairlock_c.so", "deps", "cargo build --release"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!prefix.exists());
}

#[test]
fn a_prefix_that_cannot_be_written_is_named_with_what_to_do() {
    let output = install(crate::FAIRLOCK, Path::new("/proc/fairlock"));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/proc/fairlock/bin/fairlock") && said.contains("--prefix"), "{said}");
}
