//! Mistakes on purpose: each file in `mutations/` changes a few lines of the workspace and names the
//! test that finds it.
//!
//! In the suite every change still has to fit the source. With `FAIRLOCK_LONG=1` each is made, in a
//! copy of the workspace, and its test has to fail in the way that the file says;
//! `FAIRLOCK_MUTATION=name` makes one only. Half a minute each.
//!
//! ```toml
//! what = "who is wronged, and how"
//! package = "fairlock-check"
//! test = "explore"            # the test program, or "lib"
//! filter = "in_time::rwlock"  # the tests in it
//! failure = ["deadlock"]      # one of these is in what it prints
//! long = false                # whether that takes `FAIRLOCK_LONG=1`; false if left out
//! found = "execution 480"     # how far it got when this was written
//!
//! [[change]]
//! file = "crates/fairlock/src/rwlock/mod.rs"
//! before = "there once"
//! after = "what it becomes"
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutation {
    #[serde(skip)]
    name: String,
    what: String,
    package: String,
    test: String,
    filter: String,
    failure: Vec<String>,
    #[serde(default)]
    long: bool,
    found: String,
    change: Vec<Change>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    file: PathBuf,
    before: String,
    after: String,
}

fn workspace() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace is above its crates")
}

fn mutations() -> Vec<Mutation> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutations");
    let files = fs::read_dir(folder).expect("the folder of mutations");
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    let mutations = paths.iter().map(|path| {
        let text = fs::read_to_string(path).expect("a readable file");
        let mutation: Mutation =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        Mutation { name, ..mutation }
    });
    mutations.collect()
}

impl Change {
    /// The file after the change.
    fn applied(&self, root: &Path, mutation: &str) -> String {
        let text = fs::read_to_string(root.join(&self.file))
            .unwrap_or_else(|error| panic!("{mutation}: {}: {error}", self.file.display()));
        let times = text.matches(&self.before).count();
        let (file, before) = (self.file.display(), &self.before);
        assert_eq!(times, 1, "{mutation}: {file} has this {times} times, not once:\n{before}");
        text.replacen(&self.before, &self.after, 1)
    }
}

/// What the test harness and Loom say.
const FROM_ELSEWHERE: [&str; 2] = ["panicked", "Causality violation"];

/// All sources in one text.
fn sources_below(folder: &Path) -> String {
    let entries = fs::read_dir(folder).expect("a folder of the workspace");
    let paths = entries.map(|entry| entry.expect("a file of the workspace").path());
    let read = |path: PathBuf| match path.extension() {
        _ if path.is_dir() => sources_below(&path),
        Some(ending) if ending == "rs" => fs::read_to_string(&path).expect("a readable source"),
        _ => String::new(),
    };
    paths.map(read).collect()
}

#[test]
fn every_mutation_fits_the_source() {
    let (root, mutations) = (workspace(), mutations());
    assert!(!mutations.is_empty());
    let sources = sources_below(&root.join("crates"));
    for mutation in mutations {
        let said = [&mutation.what, &mutation.found].iter().all(|text| !text.is_empty());
        assert!(said && !mutation.failure.is_empty(), "{}: say more", mutation.name);
        for change in &mutation.change {
            let after = change.applied(&root, &mutation.name);
            assert!(after.contains(&change.after) && change.before != change.after);
        }
        for text in &mutation.failure {
            let is_said =
                FROM_ELSEWHERE.contains(&text.as_str()) || sources.contains(text.as_str());
            assert!(is_said, "{}: nothing says {text:?}", mutation.name);
        }
    }
}

/// Everything but what is built and what git keeps; files that are the same stay as they are, so that
/// little is built again.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("room for a copy");
    for entry in fs::read_dir(from).expect("a folder of the workspace") {
        let entry = entry.expect("a file of the workspace");
        let (name, source) = (entry.file_name(), entry.path());
        let target = to.join(&name);
        if name == "target" || name == ".git" {
            continue;
        }
        if source.is_dir() {
            copy_folder(&source, &target);
        } else if source.is_file() {
            let bytes = fs::read(&source).expect("a file of the workspace");
            if fs::read(&target).ok().as_ref() != Some(&bytes) {
                fs::write(&target, bytes).expect("room for a copy");
            }
        }
    }
}

/// What the mutation's test prints, if it fails as it should.
fn find(mutation: &Mutation, copy: &Path, target: &Path) -> Result<String, String> {
    for change in &mutation.change {
        let after = change.applied(copy, &mutation.name);
        fs::write(copy.join(&change.file), after).expect("a file of the copy");
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(copy).args(["test", "--offline", "--package", &mutation.package]);
    match mutation.test.as_str() {
        "lib" => cargo.arg("--lib"),
        test => cargo.args(["--test", test]),
    };
    cargo.args(["--", &mutation.filter]).env("CARGO_TARGET_DIR", target);
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0");
    cargo.env("FAIRLOCK_LONG", if mutation.long { "1" } else { "0" });
    let output = cargo.output().expect("cargo runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let printed = text(&output.stdout) + &text(&output.stderr);
    let is_expected = |line: &&str| mutation.failure.iter().any(|kind| line.contains(kind));
    let built = printed.contains("running ");
    match printed.lines().find(is_expected) {
        Some(line) if !output.status.success() && built => Ok(line.to_string()),
        _ => Err(printed),
    }
}

#[test]
fn every_mutation_is_found() {
    if std::env::var_os("FAIRLOCK_LONG").is_none_or(|value| value != "1") {
        return;
    }
    let only = std::env::var("FAIRLOCK_MUTATION").ok();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutations");
    let (copy, target) = (folder.join("workspace"), folder.join("target"));
    let mut survivors = Vec::new();
    for mutation in mutations() {
        if only.as_ref().is_some_and(|only| *only != mutation.name) {
            continue;
        }
        copy_folder(&workspace(), &copy);
        match find(&mutation, &copy, &target) {
            Ok(line) => eprintln!("{}: {line}", mutation.name),
            Err(printed) => {
                let end = printed.char_indices().rev().nth(2_000).map_or(0, |(at, _)| at);
                eprintln!("{} SURVIVES:\n{}", mutation.name, &printed[end..]);
                survivors.push(mutation.name);
            }
        }
    }
    copy_folder(&workspace(), &copy);
    assert!(survivors.is_empty(), "not found: {}", survivors.join(", "));
}
