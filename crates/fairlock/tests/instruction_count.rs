//! The platform seam costs no instruction on the uncontended paths.

use std::path::Path;
use std::process::Command;

/// Builds the example as users build the library, optimised, whatever this test was built as.
#[test]
fn an_uncontended_lock_and_unlock_execute_no_more_instructions_than_by_hand() {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--release", "--quiet", "--offline", "--example", "instruction_count"])
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo runs, as it runs this test");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{out}");
    assert!(output.status.success(), "more than by hand:\n{out}{err}");
}
