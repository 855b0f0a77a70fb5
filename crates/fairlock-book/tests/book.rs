//! The book builds, its links and everybody else's links to it lead somewhere, and its examples run.

use std::fs;
use std::path::{Path, PathBuf};

use fairlock_book::{build, markdown, pictures, rendered, repository};

/// All files below a folder, without what Cargo builds.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a readable folder");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let wanted = paths.filter(|path| !path.ends_with("target") && !path.ends_with(".git"));
    wanted.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn every_link_of_the_rendered_book_leads_to_a_page_and_its_heading() {
    let folder = tempfile::tempdir().expect("a folder for the book");
    build(folder.path()).expect("the book builds");
    let links = rendered::check(folder.path()).expect("readable pages");
    assert!(links.broken.is_empty(), "{:#?}", links.broken);
    assert!(links.followed > 1000, "only {} links seen", links.followed);
}

#[test]
fn every_link_of_the_files_beside_the_book_leads_to_a_file_and_its_heading() {
    for name in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/ports/README.md"] {
        let broken = markdown::broken_links(&repository().join(name)).expect("readable files");
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
        let hint = "draw it anew: cargo run -p fairlock-book -- --pictures";
        assert!(committed == picture, "{path} is out of date; {hint}");
    }
}
