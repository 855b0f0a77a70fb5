//! The page in a real browser: headless Chromium. Where none is installed (`apt-get install chromium`), the tests say
//! so and pass.
//!
//! Of a page with every kind of chart:
//! * no script throws, and none complains on the console;
//! * every chart is drawn, with axes that have ticks and titles, at 390, 768 and 1400 pixels;
//! * the page is nowhere wider than the window, and no text of a chart smaller than 12 pixels;
//! * pointing at a point shows its value and interval, and so do arrow keys;
//! * 0 stands as `0` on a logarithmic axis;
//! * charts follow the page into the dark without being drawn again;
//! * a link leads to its place before charts are drawn, also inside of something folded, and drawing moves nothing;
//! * a table that is wider than its box fades where it goes on;
//! * a click on a heading sorts a table, and so does Enter; what is not known stands last;
//! * the contents lead to every section, and a link unfolds what it leads to;
//! * without scripts, the values of every chart are there as tables.

mod browser;
mod checks;

use fairlock_report::chart::{
    Bar, Bars, Chart, Doing, Group, Histogram, Lines, Look, Looks, Part, Range, Ranges, Stack,
    Stacks, Steps, ThreadRow, Timeline,
};
use fairlock_report::page::{Page, Section, charts, folded};
use fairlock_report::quantity::{Figure, Unit};
use fairlock_report::table::{Cell, Table};
use serde_json::json;

use browser::Browser;
use checks::opened;

fn figure(median: f64) -> Figure {
    Figure { median, low: median * 0.8, high: median * 1.3 }
}

fn lines(looks: &mut Looks, count: usize) -> Chart {
    let series = (0..count).map(|index| {
        let at = |place: usize| (place, figure(1e5 * (index + 1) as f64 / (place + 1) as f64));
        (format!("lock-{index}"), (0..4).map(at).collect())
    });
    let mut series: Vec<(String, Vec<(usize, Figure)>)> = series.collect();
    series[1].1[2].1 = Figure::exactly(0.0);
    let places = [1, 2, 8, 64].map(|threads| threads.to_string()).to_vec();
    let axis = ("writes", Unit::PerSecond);
    Chart::new(format!("{count} lines"), Lines::new("threads", places, axis, series, looks))
}

fn every_chart() -> Vec<Chart> {
    let mut looks = Looks::of(&["rwlock"]);
    let bar = |name: &str, value| Bar {
        name: name.to_owned(),
        figure: figure(value),
        note: String::new(),
    };
    let group = |name: &str, factor: f64| Group {
        name: name.to_owned(),
        bars: vec![
            bar("rwlock", 40.0 * factor),
            bar("std", 0.0),
            bar("a-lock-of-a-long-name", 3e3),
        ],
    };
    let groups = vec![group("no reader", 1.0), group("1 reader", 2.0)];
    let roles = |name: &str| Group {
        name: name.to_owned(),
        bars: vec![bar("reader", 0.4), bar("writer", 0.7)],
    };
    let mut alone =
        Bars::of_roles("part of its rate alone", Unit::Number, vec![roles("rwlock"), roles("std")]);
    alone.mark = Some((0.5, "½".to_owned()));
    let stack = |name: &str, share: f64| Stack {
        name: name.to_owned(),
        parts: vec![Part::new("reader", share), Part::new("writer", 1.0 - share)],
        note: if share == 1.0 { "writer 0".to_owned() } else { String::new() },
    };
    let histogram = |name: &str, look, at: usize| {
        let share = |bucket: usize| if bucket.abs_diff(at) < 2 { 0.3 } else { 0.0 };
        Histogram { name: name.to_owned(), look, shares: (0..20).map(share).collect() }
    };
    let mut edges = vec![0.0];
    edges.extend((1..=20).map(|exponent| 2f64.powi(exponent)));
    let range = |name: &str, median: f64, interval| Range {
        name: name.to_owned(),
        look: if name == "rwsem" { Look::Series(0) } else { Look::Series(1) },
        seen: figure(median),
        interval,
    };
    let doing = |name: &str, color, from, to| Doing { name: name.to_owned(), color, from, to };
    let thread = |name: &str, at| ThreadRow {
        name: name.to_owned(),
        stretches: vec![[0, 0, at], [1, at, 64 - at]],
    };
    let timeline = Timeline {
        length_ns: 80_000,
        mark: Some((20_000, "measuring begins")),
        slots: 64,
        kinds: vec![doing("runs", "runs", 0.2, 0.8), doing("hold write", "hold-write", 0.0, 1.0)],
        threads: vec![thread("reader 1", 20), thread("writer 1", 50)],
        wake_ups: vec![[0, 1, 30]],
    };
    vec![
        lines(&mut looks, 4),
        lines(&mut looks, 14),
        Chart::new("bars", Bars::new("appends", Unit::PerSecond, groups, &mut looks)),
        Chart::new("alone", alone),
        Chart::new(
            "shares",
            Stacks::new(
                "share of all operations",
                Unit::Share,
                vec![stack("std", 0.7), stack("pthread", 1.0)],
            ),
        ),
        Chart::new(
            "holds",
            Steps {
                title: "share of the holds".to_owned(),
                edges,
                histograms: vec![
                    histogram("reads", Look::Reader, 0),
                    histogram("writes", Look::Writer, 9),
                ],
            },
        ),
        Chart::new(
            "ratios",
            Ranges::new(
                "time over that of glibc",
                Unit::Number,
                (1.0, "1: as glibc".to_owned()),
                vec![range("rwsem", 0.7, Some(figure(0.7))), range("std", 1.1, None)],
            ),
        ),
        Chart::new("threads", timeline).note("Simulated."),
    ]
}

fn example() -> Page {
    let mut page = Page::new("Every kind of chart");
    page.about.push("an example".to_owned());
    let mut table = Table::of_numbers(
        "Waits",
        &["lock", "p50", "a long heading of a column", "count", "more", "and more", "the last"],
    );
    for (name, wait, count) in
        [("b", "2.00ms", "57.8k"), ("a", "–", "900"), ("c", "35.0µs", "1.10M")]
    {
        let mut row = vec![
            Cell::new(name),
            Cell::new(wait).detail("[1, 2]"),
            Cell::new(wait),
            Cell::new(count),
        ];
        row.resize(7, Cell::new("12345 of 67890"));
        table.rows.push(row);
    }
    let drawn: Vec<_> = every_chart().iter().map(Chart::html).collect();
    page.sections.push(Section::new("table", "A table", table.html()));
    page.sections.push(Section::new("charts", "Charts", charts(&drawn)));
    let inside = folded(Some("inside"), "A folded chart", false, &drawn[0]);
    page.sections.push(Section::new("folded", "Something folded", inside));
    page
}

#[test]
fn every_chart_is_drawn_readable_and_within_the_window_at_every_width() {
    let Some(mut page) = opened(&example().html()) else { return };
    let browser = &mut page.browser;
    checks::drawn_readable_and_within_the_window(browser);
    let zeros = "[...document.querySelector('figure.chart').querySelectorAll('[aria-label=\"y-axis tick label\"] text')].map(it => it.textContent)";
    let ticks = browser.evaluate(zeros);
    assert!(ticks.as_array().unwrap().contains(&json!("0")), "{ticks}");
    assert!(ticks.as_array().unwrap().contains(&json!("100k/s")), "{ticks}");
}

#[test]
fn values_and_intervals_show_under_the_pointer_and_by_keys() {
    let Some(mut page) = opened(&example().html()) else { return };
    let browser = &mut page.browser;
    checks::values_show_under_the_pointer_and_by_keys(browser);
}

#[test]
fn charts_follow_the_page_into_the_dark() {
    let Some(mut page) = opened(&example().html()) else { return };
    let browser = &mut page.browser;
    checks::follows_into_the_dark(browser);
}

#[test]
fn tables_sort_by_click_and_by_key_and_what_is_not_known_stands_last() {
    let Some(mut page) = opened(&example().html()) else { return };
    let browser = &mut page.browser;
    let order = |browser: &mut Browser| {
        let rows = "[...document.querySelectorAll('#table tbody tr')].map(row => row.cells[0].textContent).join('')";
        browser.evaluate(rows).as_str().unwrap().to_owned()
    };
    let heading = |at: usize| format!("document.querySelectorAll('#table thead button')[{at}]");
    assert_eq!(order(browser), "bac");
    browser.evaluate(&format!("{}.click()", heading(1)));
    assert_eq!(order(browser), "bca");
    browser.evaluate(&format!("{}.focus()", heading(1)));
    browser.press("Enter");
    assert_eq!(order(browser), "cba");
    browser.evaluate(&format!("{}.click()", heading(3)));
    assert_eq!(order(browser), "cba");
    browser.evaluate(&format!("{}.click()", heading(0)));
    assert_eq!(order(browser), "abc");
    let sorted = browser.evaluate("document.querySelector('#table th').getAttribute('aria-sort')");
    assert_eq!(sorted, "ascending");
}

#[test]
fn the_contents_lead_to_sections_and_links_unfold() {
    let Some(mut page) = opened(&example().html()) else { return };
    let browser = &mut page.browser;
    let links = browser
        .evaluate("[...document.querySelectorAll('.contents a')].map(it => it.hash).join(' ')");
    assert_eq!(links, "#table #charts #folded");
    browser.evaluate("location.hash = '#inside'");
    browser.wait_until("document.querySelector('#inside').open");
    browser.wait_until("document.querySelector('#inside .picture svg') !== null");
}

#[test]
fn a_link_leads_to_its_place_before_charts_are_drawn_and_they_do_not_move_it() {
    let mut long = example();
    let rows: String = "x ".repeat(4_000);
    long.sections.push(Section::new("end", "The end", maud::html! { p { (rows) } }));
    let Some(mut page) = opened(&long.html()) else { return };
    for id in ["end", "inside"] {
        checks::a_link_leads_to_its_place_from_the_start(&mut page.browser, id);
    }
}

#[test]
fn a_table_that_is_too_wide_fades_where_it_goes_on() {
    let Some(mut page) = opened(&example().html()) else { return };
    let browser = &mut page.browser;
    checks::tables_fade_where_they_go_on(browser);
    browser.show_as(390, 900, false);
    browser
        .wait_until("document.querySelector('#table .wide.more-right:not(.more-left)') !== null");
    browser.evaluate("document.querySelector('#table .wide').scrollLeft = 1e6");
    browser
        .wait_until("document.querySelector('#table .wide.more-left:not(.more-right)') !== null");
}

#[test]
fn without_scripts_the_values_are_tables() {
    let page = example().html();
    let (head, _) = page.split_once("</head>").unwrap();
    assert!(head.contains("<noscript>"));
    // One below each chart, and the page's own.
    assert_eq!(page.matches("<table").count(), every_chart().len() + 2);
    assert_eq!(page.matches("<details class=\"values\">").count(), every_chart().len() + 1);
}
