//! The book's page of figures is what its recordings give.

use std::fs;
use std::path::{Path, PathBuf};

use fairlock_report::recording::Recording;
use fairlock_study::report::{self, markdown};

/// Skipped while there are no recordings: then the page is written by hand.
#[test]
fn the_page_of_figures_is_what_the_recordings_give() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let folder = docs.join("data/measured");
    let entries = fs::read_dir(&folder).expect("the folder of recordings is kept");
    let files = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|it| it == "jsonl")).collect();
    files.sort();
    if files.is_empty() {
        eprintln!("skipped: no recordings in {}", folder.display());
        return;
    }
    let recordings = files.iter().map(|file| report::read(file));
    let recordings: Vec<Recording> =
        recordings.collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{error}"));
    let expected =
        markdown::page(&recordings, "Measured").unwrap_or_else(|error| panic!("{error}"));
    let page = fs::read_to_string(docs.join("src/measure/measured.md")).expect("the page is there");
    assert!(
        page == expected,
        "docs/src/measure/measured.md is not what its recordings give; write it anew:\n\
         cargo run --release -- report docs/data/measured/*.jsonl --title Measured \
         --out docs/src/measure/measured.md"
    );
}
