//! The `fairlock` command from outside, and the workloads that start it.

mod bench;
mod command;
mod doctor;
mod forkstorm_kernel;
mod former_names;
mod install;
mod inversion;
mod json;
mod log_command;
mod readseek_processes;
mod replay;
mod run;
mod rust_programs;
mod screen;
mod study_file;
mod sweep;
mod waits;

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The command as Cargo has built it.
const FAIRLOCK: &str = env!("CARGO_BIN_EXE_fairlock");

/// To start it where nothing is said about the terminal.
fn fairlock() -> Command {
    let mut fairlock = Command::new(FAIRLOCK);
    for name in ["COLUMNS", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        fairlock.env_remove(name);
    }
    fairlock
}

/// A folder for programs; what is in the usual one must not be executed on some machines.
fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a writable target directory")
}

/// `$CC`, which may name arguments, too, separated by blanks.
fn c_compiler() -> Command {
    let named = std::env::var("CC").unwrap_or_default();
    let mut words = named.split_whitespace();
    let mut compiler = Command::new(words.next().unwrap_or("cc"));
    compiler.args(words);
    compiler
}

/// A program in C, compiled with the names and lines that reports show.
fn compile(folder: &Path, name: &str, code: &str, options: &[&str]) -> PathBuf {
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, code).unwrap();
    let mut compiler = c_compiler();
    compiler.args(["-D_GNU_SOURCE", "-g", "-pthread"]).args(options);
    let done = compiler.arg("-o").args([&program, &source]).output().expect("a C compiler");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

/// A path as a word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_str().expect("UTF-8").replace('\'', r"'\''"))
}
