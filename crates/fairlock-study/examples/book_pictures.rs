//! The book's pictures: the page of recorded studies, and that of a run, at three widths, light and dark. Needs Chromium
//! (`apt-get install chromium`).
//!
//! ```sh
//! cargo run -p fairlock-lab --example book_pictures -- docs/data/measured/systems.jsonl
//! ```

#[path = "../../fairlock-report/tests/browser/browser.rs"]
mod browser;
#[path = "../../fairlock-report/tests/browser/checks.rs"]
mod checks;

use std::path::Path;
use std::{env, fs};

use fairlock_report::recording::Recording;
use fairlock_study::report;
use fairlock_trace::report::Report;

use checks::{WIDTHS, opened};

/// What the tests of pages show, too.
const RUN: &str = include_str!("../tests/page/run.jsonl");

/// How much of a page is shown, by width.
const HEIGHTS: [u32; 3] = [1150, 1100, 1050];

fn main() {
    let rows = env::args_os().nth(1).expect("give the recorded rows of studies");
    let recording =
        Recording::read(Path::new(&rows), fairlock_study::registry::current).expect("rows");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/images");
    fs::create_dir_all(&folder).expect("a folder for pictures");
    let pages = [
        ("studies", report::page(&recording), "section .charts"),
        ("run", Report::read_lines(RUN.as_bytes()).expect("a report").page(), "#lock-1 .charts"),
    ];
    for (name, page, charts) in pages {
        let mut opened = opened(&page).expect("Chromium is installed");
        let browser = &mut opened.browser;
        for (width, height) in WIDTHS.into_iter().zip(HEIGHTS) {
            for is_dark in [false, true] {
                browser.show_as(width, height, is_dark);
                browser.wait_until(&format!("innerWidth === {width}"));
                // A phone's page is opened on the phone: its contents are folded.
                browser.reload();
                let scheme = if is_dark { "dark" } else { "light" };
                let file = folder.join(format!("{name}-{width}-{scheme}.webp"));
                fs::write(file, browser.picture(None)).expect("a writable folder");
            }
        }
        // The charts themselves, at the width of the book.
        browser.show_as(1400, 1000, false);
        browser.wait_until("innerWidth === 1400");
        browser.wait_for_charts();
        let charts = browser.picture(Some(charts));
        fs::write(folder.join(format!("{name}-charts.webp")), charts).expect("a writable folder");
    }
}
