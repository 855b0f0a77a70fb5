//! The platform seam costs no instruction on the uncontended paths.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs it to its end, which has to be a good one.
fn run(command: &mut Command, failed: &str) -> Output {
    let output = command.output().expect("it can be started");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{failed}:\n{out}{err}");
    output
}

/// Where cargo says that it has put a library.
fn library<'a>(messages: &'a str, name: &str) -> &'a str {
    // The package itself is in a file without a hash.
    let starts = [format!("/lib{name}."), format!("/lib{name}-")];
    let mut files = messages.split('"').filter(|text| text.ends_with(".rlib"));
    files
        .find(|file| starts.iter().any(|start| file.contains(start)))
        .unwrap_or_else(|| panic!("cargo names no library {name}:\n{messages}"))
}

/// Builds the example as users build the library, optimised, whatever this test was built as. Cargo
/// would build what the other tests and examples need, too, which takes far longer; so it builds the
/// library alone, and the compiler does the rest.
fn optimised_example() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--release", "--lib", "--quiet", "--offline", "--message-format=json"])
        .arg("--manifest-path")
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .env_remove("RUSTFLAGS")
        // What is compiled in many pieces is not inlined across them.
        .env_remove("CARGO_INCREMENTAL");
    let messages = run(&mut cargo, "the library cannot be built").stdout;
    let messages = String::from_utf8_lossy(&messages);

    let program = target.join("instruction_count");
    let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    compiler.args(["--edition=2024", "-Copt-level=3", "--crate-name=instruction_count"]);
    for name in ["fairlock", "libc"] {
        compiler.arg(format!("--extern={name}={}", library(&messages, name)));
    }
    compiler
        .arg("-Ldependency=".to_owned() + &target.join("release/deps").to_string_lossy())
        .arg(package.join("examples/instruction_count.rs"))
        .arg("-o")
        .arg(&program);
    run(&mut compiler, "the example cannot be built");
    program
}

#[test]
fn an_uncontended_lock_and_unlock_execute_no_more_instructions_than_by_hand() {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return eprintln!("skipped: instructions are counted on x86-64 Linux only");
    }
    let counted = run(&mut Command::new(optimised_example()), "more than by hand");
    println!("{}", String::from_utf8_lossy(&counted.stdout));
}
