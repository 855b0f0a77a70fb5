//! `fairlock run` on a program in Rust that links Fairlock with the feature `record`.

use std::path::{Path, PathBuf};
use std::process::Command;

use fairlock_report::program::{Program, Sharing, Step};
use tempfile::TempDir;

/// Where cargo says that it has put Fairlock.
fn library(messages: &str) -> &str {
    let mut files = messages.split('"').filter(|text| text.ends_with(".rlib"));
    let is_it = |file: &&str| file.contains("/libfairlock.") || file.contains("/libfairlock-");
    files.find(is_it).unwrap_or_else(|| panic!("cargo names no library:\n{messages}"))
}

/// Builds as Cargo does by itself, whatever options this test was built with.
fn without_options(cargo: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let is_option = name.starts_with("CARGO_PROFILE_") || name.ends_with("RUSTFLAGS");
        let others = ["CARGO_BUILD_TARGET", "CARGO_INCREMENTAL", "CARGO_BUILD_INCREMENTAL"];
        if is_option || others.contains(&&*name) {
            cargo.env_remove(&*name);
        }
    }
    cargo
}

/// An example of the crate, optimised as users build their programs. Cargo would build what other examples need, too, which
/// takes far longer; so it builds the library alone, and the compiler does the rest.
fn example(name: &str) -> (TempDir, PathBuf) {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fairlock");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--release", "--lib", "--quiet", "--offline", "--message-format=json"])
        .args(["--features", "record", "--manifest-path"])
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target);
    let built = without_options(&mut cargo).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let messages = String::from_utf8(built.stdout).unwrap();
    let folder = TempDir::new_in(target).unwrap();
    let program = folder.path().join(name);
    let compiled = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition=2024", "-Copt-level=3", &format!("--crate-name={name}")])
        .arg(format!("--extern=fairlock={}", library(&messages)))
        .arg(format!("-Ldependency={}", target.join("release/deps").display()))
        .arg(package.join(format!("examples/{name}.rs")))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    (folder, program)
}

#[test]
fn a_program_that_links_fairlock_with_the_feature_record_is_counted_and_recorded() {
    let (_folder, program) = example("recorded");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recorded.toml");
    let output = crate::fairlock()
        .args(["run", "--record"])
        .arg(&file)
        .arg("--")
        .arg(&program)
        .env("COLUMNS", "120")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    // The report is about the program's own locks, and the drop-in beside them is not mentioned.
    for words in ["2 locks, 7 threads", "locks of its own", "recorded::PRICES", "20.0k", "500"] {
        assert!(said.contains(words), "lacks {words}: {said}");
    }
    // On a busy machine a finding may ask whether the policy is at fault; the title names none.
    for words in ["used no lock", "left out", ", policy"] {
        assert!(!said.contains(words), "{words}: {said}");
    }

    let recorded = Program::read(&file).unwrap();
    let mut names: Vec<&str> = recorded.locks.iter().map(|lock| lock.name.as_str()).collect();
    names.sort_unstable();
    let [prices, queue] = &names[..] else { panic!("{names:?}") };
    assert!(queue.contains("Queue") && prices.contains("recorded::PRICES"), "{names:?}");
    assert!(recorded.locks.iter().all(|lock| lock.shared == Sharing::All), "{names:?}");
    let threads: u32 = recorded.kinds.iter().map(|kind| kind.threads).sum();
    assert_eq!(threads, 7);
    let acquired = |kind: &str| -> usize {
        let kinds = recorded.kinds.iter().filter(|it| it.name.starts_with(kind));
        let steps = kinds.flat_map(|kind| &kind.sequences).flatten();
        steps.filter(|step| matches!(step, Step::Acquire { .. })).count()
    };
    // All of it is in the first window.
    assert_eq!((acquired("reader"), acquired("writer")), (20_000, 500));
}
