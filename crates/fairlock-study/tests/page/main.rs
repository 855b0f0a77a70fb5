//! The pages of studies and of a run in a real browser: headless Chromium. Where none is installed
//! (`apt-get install chromium`), the tests say so and pass.
//!
//! Of the page of the studies that run if none is named, at every point of theirs, and of a run that was recorded:
//! * no script throws, and none complains on the console;
//! * every chart is drawn, with axes that have ticks and titles, at 390, 768 and 1400 pixels;
//! * the page is nowhere wider than the window, and no text of a chart smaller than 12 pixels;
//! * the first chart shows values under the pointer and by arrow keys, and follows the page into the dark;
//! * the first section is the answer, and can be seen without scrolling;
//! * the summary fits a screen, its verdicts with it;
//! * a link to a study leads there before charts are drawn, and drawing them moves nothing.
//!
//! How tables sort and links unfold is tested with the page's own crate, `fairlock-report`. The example `book_pictures` makes
//! the book's pictures of these pages.

#[path = "../../../fairlock-report/tests/browser/browser.rs"]
mod browser;
#[path = "../../../fairlock-report/tests/browser/checks.rs"]
mod checks;

use std::sync::LazyLock;

use fairlock_lab::machine;
use fairlock_report::recording::{Header, Recording};
use fairlock_study::study::{self, Effort};
use fairlock_study::{example, report};
use fairlock_trace::report::Report;

use browser::Browser;
use checks::{WIDTHS, opened};

/// A program whose readers starve its writers under glibc's locks: what `fairlock run --compare glibc,rwsem,rwlock
/// --report run.jsonl` wrote about it.
const RUN: &str = include_str!("run.jsonl");

static PAGE_OF_STUDIES: LazyLock<String> = LazyLock::new(|| {
    let studies = study::choose(&[]).expect("those of published systems");
    let names = studies.iter().map(|study| study.name.clone()).collect();
    let mut recording = Recording::new(Header::now(names, false, machine::here(None)));
    for study in studies {
        for batch in study.batches(Effort::default()) {
            recording.rows.extend(batch.cells.iter().map(example::row_of));
        }
        for spec in &study.timelines {
            let timelines = spec.locks().into_iter().map(|lock| {
                let mut timeline = example::timeline(&spec.workload, &lock, &spec.machine);
                timeline.params.extend(spec.params.clone());
                timeline
            });
            recording.timelines.extend(timelines);
        }
    }
    report::page(&recording)
});

fn page_of_a_run() -> String {
    Report::read_lines(RUN.as_bytes()).expect("a report").page()
}

fn the_answer_can_be_seen(browser: &mut Browser) {
    for width in WIDTHS {
        browser.show_as(width, 900, false);
        browser.wait_until(&format!("innerWidth === {width}"));
        let top = browser
            .evaluate("document.querySelector('.answer .lead').getBoundingClientRect().bottom");
        assert!(top.as_f64().expect("a number") < 900.0, "{width}: {top}");
    }
}

#[test]
fn the_page_of_studies_is_drawn_and_readable_at_every_width() {
    let Some(mut page) = opened(&PAGE_OF_STUDIES) else { return };
    let browser = &mut page.browser;
    checks::values_show_under_the_pointer_and_by_keys(browser);
    checks::follows_into_the_dark(browser);
    the_answer_can_be_seen(browser);
    checks::drawn_readable_and_within_the_window(browser);
}

#[test]
fn the_summary_fits_a_screen_and_wider_tables_show_that_they_go_on() {
    let Some(mut page) = opened(&PAGE_OF_STUDIES) else { return };
    let browser = &mut page.browser;
    let fits = "(() => { const box = document.querySelector('#summary .wide'); return box.scrollWidth <= box.clientWidth; })()";
    assert_eq!(browser.evaluate(fits), true);
    browser.evaluate("document.querySelectorAll('details.folded').forEach(it => it.open = true)");
    checks::tables_fade_where_they_go_on(browser);
}

#[test]
fn a_link_to_a_study_leads_to_it_at_once() {
    let Some(mut page) = opened(&PAGE_OF_STUDIES) else { return };
    for id in ["s4", "s3", "rows-12"] {
        checks::a_link_leads_to_its_place_from_the_start(&mut page.browser, id);
    }
}

#[test]
fn the_page_of_a_run_is_drawn_and_readable_at_every_width() {
    let Some(mut page) = opened(&page_of_a_run()) else { return };
    let browser = &mut page.browser;
    the_answer_can_be_seen(browser);
    checks::drawn_readable_and_within_the_window(browser);
}
