//! The platform seam costs no instruction on the uncontended paths.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

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

/// Builds as Cargo does by itself, whatever options this test was built with.
fn without_options(cargo: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let is_option = name.starts_with("CARGO_PROFILE_") || name.ends_with("RUSTFLAGS");
        // What is compiled in many pieces is not inlined across them.
        let others = ["CARGO_BUILD_TARGET", "CARGO_INCREMENTAL", "CARGO_BUILD_INCREMENTAL"];
        if is_option || others.contains(&&*name) {
            cargo.env_remove(&*name);
        }
    }
    cargo
}

/// Builds the example as users build the library, optimised, whatever this test was built as. Cargo
/// would build what the other tests and examples need, too, which takes far longer; so it builds the
/// library alone, and the compiler does the rest.
fn optimised_example() -> (TempDir, PathBuf) {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--release", "--lib", "--quiet", "--offline", "--message-format=json"])
        .arg("--manifest-path")
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target);
    let messages = run(without_options(&mut cargo), "the library cannot be built").stdout;
    let messages = String::from_utf8_lossy(&messages);

    let folder = TempDir::new_in(target).expect("a writable target");
    let program = folder.path().join("instruction_count");
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
    (folder, program)
}

#[test]
fn an_uncontended_lock_and_unlock_execute_no_more_instructions_than_by_hand() {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return eprintln!("skipped: instructions are counted on x86-64 Linux only");
    }
    let (_folder, program) = optimised_example();
    let counted = run(&mut Command::new(program), "more than by hand");
    println!("{}", String::from_utf8_lossy(&counted.stdout));
}
