//! Libraries that stand between a program and the C library: compiled here, preloaded by `LD_PRELOAD`.
//!
//! They need a C compiler: `cc`, or what `CC` says.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles one of the sources beside this file; the library's path.
pub fn build(source: &str, into: &Path) -> PathBuf {
    let library = into.join(source).with_extension("so");
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/accidents/preloaded").join(source);
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .output()
        .unwrap_or_else(|error| panic!("a C compiler is needed; CC={compiler:?}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library.canonicalize().expect("it was made")
}
