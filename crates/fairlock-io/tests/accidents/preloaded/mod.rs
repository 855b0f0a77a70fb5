//! Libraries that stand between a program and the C library: compiled here, preloaded by `LD_PRELOAD`.
//!
//! They need a C compiler: `cc`, or what `CC` says. A test that finds none says so and is skipped.

use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles one of the sources next to this file; the library's path, or none without a compiler.
pub fn build(source: &str, into: &Path) -> Option<PathBuf> {
    let library = into.join(source).with_extension("so");
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/accidents/preloaded").join(source);
    // As make(1) takes it: a program and perhaps its first arguments.
    let compiler = env::var("CC").unwrap_or_default();
    let mut words = compiler.split_whitespace();
    let output = Command::new(words.next().unwrap_or("cc"))
        .args(words)
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("skipped: no C compiler (CC={compiler:?}): {error}");
            return None;
        }
        Err(error) => panic!("the C compiler does not start (CC={compiler:?}): {error}"),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(library.canonicalize().expect("it was made"))
}
