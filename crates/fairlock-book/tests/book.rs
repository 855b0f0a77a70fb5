//! The book's links and everybody else's links to it lead somewhere, and its examples run. What pages say of
//! the crates is what their manifests say.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fairlock_book::markdown::{self, Site};
use fairlock_book::{pictures, repository};
use fairlock_sim::profile;
use serde_json::Value;

/// The workspace's packages, as Cargo reads their manifests.
fn packages() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(repository());
    let output = cargo.output().expect("Cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    metadata["packages"].as_array().expect("a list").clone()
}

/// All files below a folder, without what Cargo builds.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a readable folder");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let wanted = paths.filter(|path| !path.ends_with("target") && !path.ends_with(".git"));
    wanted.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

#[test]
fn every_link_of_the_book_leads_to_a_page_and_its_heading() {
    let mut followed = 0;
    for page in files(&Site::Book.root()).iter().filter(|page| is_markdown(page)) {
        let links = markdown::follow(page, Site::Book).expect("readable pages");
        assert!(links.broken.is_empty(), "{}: {:?}", page.display(), links.broken);
        followed += links.followed;
    }
    assert!(followed > 300, "only {followed} links seen");
}

#[test]
fn every_link_of_the_files_beside_the_book_leads_to_a_file_and_its_heading() {
    for name in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/ports/README.md"] {
        let links = markdown::follow(&repository().join(name), Site::GitHub);
        let broken = links.expect("readable files").broken;
        assert!(broken.is_empty(), "{name}: {broken:?}");
    }
}

#[test]
fn every_page_is_in_the_summary_and_its_rust_examples_run() {
    let root = repository().join("docs/src");
    let summary = fs::read_to_string(root.join("SUMMARY.md")).expect("a readable page");
    let run = include_str!("../src/lib.rs");
    for page in files(&root) {
        let name = page.strip_prefix(&root).expect("a page below the root").display().to_string();
        if name == "SUMMARY.md" || !name.ends_with(".md") {
            continue;
        }
        assert!(summary.contains(&format!("({name})")), "{name} belongs into SUMMARY.md");
        let text = fs::read_to_string(&page).expect("a readable page");
        let is_run = run.contains(&format!("docs/src/{name}\")"));
        assert!(is_run || !text.contains("```rust\n"), "{name} belongs into `mod pages`");
    }
}

/// Comments and messages name pages by their path in the repository.
#[test]
fn every_page_that_a_source_file_names_exists() {
    let root = repository();
    let mut seen = 0;
    for path in ["crates", "machines", "studies"].iter().flat_map(|name| files(&root.join(name))) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for rest in text.split("docs/src/").skip(1) {
            let page = rest.split(|c: char| !c.is_alphanumeric() && !"/-.".contains(c)).next();
            let page = page.unwrap_or_default().trim_end_matches('.');
            if page.ends_with(".md") {
                seen += 1;
                let is_there = root.join("docs/src").join(page).exists();
                assert!(is_there, "{}: no page docs/src/{page}", path.display());
            }
        }
    }
    assert!(seen > 10, "only {seen} names of pages seen");
}

/// In backquotes, as `crates/fairlock/src/policy.rs`.
#[test]
fn every_source_file_that_a_page_names_exists() {
    let root = repository();
    let beside = ["README.md", "CONTRIBUTING.md"].map(|name| root.join(name));
    let mut seen = 0;
    for page in files(&root.join("docs/src")).into_iter().chain(beside) {
        let Ok(text) = fs::read_to_string(&page) else { continue };
        for name in text.split('`').filter(|part| part.starts_with("crates/")) {
            let is_path = name.chars().all(|c| c.is_alphanumeric() || "/-_.".contains(c));
            if is_path {
                seen += 1;
                assert!(root.join(name).exists(), "{}: no {name}", page.display());
            }
        }
    }
    assert!(seen > 20, "only {seen} names of source files seen");
}

#[test]
fn every_picture_shows_the_figures_that_it_is_drawn_from() {
    let docs = repository().join("docs");
    for (path, picture) in pictures::draw(&docs).expect("figures that can be drawn") {
        let committed = fs::read_to_string(docs.join(path)).unwrap_or_default();
        let hint = "draw it anew: cargo run -p fairlock-book";
        assert!(committed == picture, "{path} is out of date; {hint}");
    }
}

#[test]
fn the_page_of_machines_explains_every_key_and_names_every_machine() {
    let page = repository().join("docs/src/simulate/machines.md");
    let page = fs::read_to_string(page).expect("a readable page");
    for key in &profile::KEYS {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", key.name)));
        assert!(row.is_some_and(|row| row.contains(key.meaning)), "{}: {row:?}", key.name);
    }
    for name in profile::names() {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

/// The numbers behind `Rust 1.` in a text, with it.
fn rust_versions(text: &str) -> impl Iterator<Item = String> {
    text.split("Rust 1.").skip(1).map(|rest| {
        let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
        format!("1.{minor}")
    })
}

/// The manifests are the one place that decides.
#[test]
fn the_minimum_rust_versions_that_pages_name_are_those_of_the_manifests() {
    let packages = packages();
    let of = |package: &Value| package["rust_version"].as_str().expect("each has one").to_owned();
    let known: BTreeSet<String> = packages.iter().map(of).collect();
    let command = packages.iter().find(|it| it["name"] == "fairlock-cli").map(of);
    let command = command.expect("the command's crate");
    for name in ["README.md", "docs/src/quick-start.md"] {
        let text = fs::read_to_string(repository().join(name)).expect("a readable file");
        let says = rust_versions(&text).any(|version| version == command);
        assert!(says, "{name} does not say that the command needs Rust {command}");
    }
    let crates = packages.iter().map(|package| {
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        manifest.with_file_name("README.md")
    });
    let beside = ["README.md", "CONTRIBUTING.md"].map(|name| repository().join(name));
    for file in files(&repository().join("docs/src")).into_iter().chain(beside).chain(crates) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for version in rust_versions(&text) {
            assert!(known.contains(&version), "{}: Rust {version}", file.display());
        }
    }
}

#[test]
fn what_is_published_says_what_it_is_and_has_licences_and_a_page_without_links_into_the_repository()
{
    let packages = packages();
    let published: Vec<&Value> = packages.iter().filter(|it| it["publish"].is_null()).collect();
    assert!(published.len() > 1);
    for package in published {
        let name = package["name"].as_str().expect("a name");
        let count = |field: &str| package[field].as_array().map_or(0, Vec::len);
        assert!(package["description"].is_string(), "{name} has no description");
        assert!((1..=5).contains(&count("keywords")), "{name}: crates.io takes five keywords");
        assert!((1..=5).contains(&count("categories")), "{name}: crates.io takes five categories");
        assert_eq!(package["documentation"], format!("https://docs.rs/{name}"), "{name}");
        assert_eq!(package["readme"], "README.md", "{name}");
        assert!(package["metadata"]["docs"]["rs"]["targets"].is_array(), "{name}");
        let folder = Path::new(package["manifest_path"].as_str().expect("a path"));
        let folder = folder.parent().expect("a folder");
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let (own, all) = (folder.join(licence), repository().join(licence));
            assert!(fs::read(&own).ok() == fs::read(all).ok(), "{} differs", own.display());
        }
        // On crates.io nothing is beside it.
        let relative = markdown::relative_links(&folder.join("README.md")).expect("a page");
        assert!(relative.is_empty(), "{name}: {relative:?}");
        let public =
            |name: &Value| packages.iter().all(|it| it["name"] != *name || it["publish"].is_null());
        let dependencies = package["dependencies"].as_array().expect("a list");
        for dependency in dependencies.iter().filter(|it| it["kind"] != "dev") {
            assert!(public(&dependency["name"]), "{name} needs {}", dependency["name"]);
        }
    }
}
