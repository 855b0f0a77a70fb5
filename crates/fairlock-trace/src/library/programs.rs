//! For tests: programs in C.

use std::env;
use std::process::Command;

use tempfile::TempDir;

/// A folder for them next to this program: some machines execute nothing in the usual temporary folder.
pub(crate) fn folder() -> TempDir {
    let test = env::current_exe().expect("this program's path");
    TempDir::new_in(test.parent().expect("a folder")).expect("a writable target directory")
}

/// `$CC`, which may name arguments, too, separated by blanks.
pub(crate) fn c_compiler() -> Command {
    let named = env::var("CC").unwrap_or_default();
    let mut words = named.split_whitespace();
    let mut compiler = Command::new(words.next().unwrap_or("cc"));
    compiler.args(words);
    compiler
}
