//! The lab: workloads that show what a lock policy does, what measures them, and what presents
//! the results behind the `fairlock` command.
//!
//! * [`world`]: what a workload may do to the machine it runs on.
//! * [`locks`]: the registry of locks under test; [`former_names`]: what earlier versions called some.
//! * [`workloads`]: the workloads themselves, written once against [`world::World`].
//! * [`measure`]: recorders, statistics, and how repetitions become a [`row::Row`].
//! * [`plan`]: runs many cells interleaved and hands out rows.
//! * [`study`], [`grid`], [`claim`]: questions as files: which runs to make, and verdicts.
//! * [`summary`]: what they say about each published system, in a few lines.
//! * [`timeline`]: how a run on a simulated machine began, to be drawn.
//! * [`calibrate`]: measures this machine for the simulator; [`validate`]: how well that predicts.
//! * [`dropin`]: unmodified programs under the locks of this project: who starved, and what to do.
//! * [`report`], [`machine`], [`units`]: tables, JSON Lines and pages.
//!
//! [`row::Row`] is the meeting point: running a plan produces rows, and everything that presents
//! is computed from rows and from nothing else.

pub mod calibrate;
pub mod claim;
pub mod dropin;
pub mod error;
pub mod example;
pub mod former_names;
pub mod grid;
pub mod locks;
pub mod machine;
pub mod measure;
pub mod plan;
pub mod printable;
pub mod report;
pub mod row;
pub mod study;
pub mod summary;
pub mod timeline;
pub mod units;
pub mod validate;
pub mod workloads;
pub mod world;

/// Runs the examples of pages that no `cargo doc` sees.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/src/locks/rwlock.md")]
    struct RwLock;
    #[doc = include_str!("../../../docs/src/locks/rwsem.md")]
    struct RwSem;
    #[doc = include_str!("../../../docs/src/locks/mutex.md")]
    struct Mutex;
    #[doc = include_str!("../../../docs/src/locks/range.md")]
    struct RangeLock;
    #[doc = include_str!("../../../docs/src/locks/ready.md")]
    struct Ready;
    #[doc = include_str!("../../../docs/src/locks/spin.md")]
    struct Spin;
    #[doc = include_str!("../../../docs/src/atomic-file.md")]
    struct AtomicFile;
    #[doc = include_str!("../../../docs/src/log-file.md")]
    struct LogFile;
    #[doc = include_str!("../../../docs/src/moving.md")]
    struct Moving;
    #[doc = include_str!("../../../docs/src/explorer.md")]
    struct Explorer;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    fn pages(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).expect("the documentation is there");
        let paths = entries.map(|entry| entry.expect("a readable entry").path());
        let files = paths.flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] });
        // Beside the pages are their pictures.
        files.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect()
    }

    #[test]
    fn every_page_is_in_the_summary_and_its_rust_examples_run() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src"));
        let summary = fs::read_to_string(root.join("SUMMARY.md")).expect("a readable page");
        for page in pages(root) {
            let text = fs::read_to_string(&page).expect("a readable page");
            let name = page.strip_prefix(root).expect("a page below the root").display();
            let is_run = include_str!("lib.rs").contains(&format!("docs/src/{name}\")"));
            assert!(is_run || !text.contains("```rust\n"), "{name} belongs into `mod pages`");
            let is_listed =
                name.to_string() == "SUMMARY.md" || summary.contains(&format!("({name})"));
            assert!(is_listed, "{name} belongs into SUMMARY.md");
        }
    }

    /// What is outside of blocks of code.
    fn prose(text: &str) -> Vec<&str> {
        let mut is_code = false;
        let lines = text.lines().filter(|line| {
            let is_fence = line.starts_with("```");
            is_code ^= is_fence;
            !is_fence && !is_code
        });
        lines.collect()
    }

    /// As GitHub and mdBook name a heading.
    fn anchor(heading: &str) -> String {
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    }

    fn anchors(text: &str) -> BTreeSet<String> {
        let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
        headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
    }

    #[test]
    fn every_link_of_a_page_leads_to_a_file_and_its_heading() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let mut pages = pages(&root.join("docs/src"));
        pages.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)));
        let mut links = 0;
        for page in pages {
            let text = fs::read_to_string(&page).expect("a readable page");
            for line in prose(&text) {
                for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                    if link.starts_with("http") {
                        continue;
                    }
                    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
                    let to = page.parent().expect("a folder").join(file);
                    let to = if file.is_empty() { page.clone() } else { to };
                    assert!(to.exists(), "{}: no file for {link}", page.display());
                    links += 1;
                    if !heading.is_empty() {
                        let text = fs::read_to_string(&to).expect("a readable page");
                        let is_there = anchors(&text).contains(heading);
                        assert!(is_there, "{}: no heading for {link}", page.display());
                    }
                }
            }
        }
        assert!(links > 100, "only {links} links seen");
    }
}
