//! What every page has to be like in a browser, whatever it is about.

// As in browser.rs.
#![allow(dead_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::browser::Browser;

/// The widths of a phone, a tablet and a screen.
pub const WIDTHS: [u32; 3] = [390, 768, 1400];

/// Browsers one after the other: a few at once take the machine for themselves.
static TURN: Mutex<()> = Mutex::new(());

/// A page in a browser, while this lives.
pub struct Opened {
    /// The browser.
    pub browser: Browser,
    _turn: MutexGuard<'static, ()>,
    /// The page's folder.
    _folder: tempfile::TempDir,
}

/// The page in a browser of 1400 pixels; nothing, and a message, where there is no browser.
pub fn opened(page: &str) -> Option<Opened> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut browser) = Browser::start() else {
        eprintln!("skipped: no Chromium is installed");
        return None;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("page.html");
    std::fs::write(&path, page).expect("a writable folder");
    browser.show_as(1400, 900, false);
    browser.open(&path);
    browser.wait_for_charts();
    Some(Opened { browser, _turn: turn, _folder: folder })
}

fn strings(value: &Value) -> Vec<String> {
    let all = value.as_array().expect("a list").iter();
    all.map(|it| it.as_str().unwrap_or_default().to_owned()).collect()
}

/// No script complains; every chart is drawn with axes, text of at least 12 pixels, inside of its box; the page is not
/// wider than the window.
pub fn drawn_readable_and_within_the_window(browser: &mut Browser) {
    browser.evaluate("document.querySelectorAll('details.folded').forEach(it => it.open = true)");
    for width in WIDTHS {
        browser.show_as(width, 900, false);
        browser.wait_until(&format!("innerWidth === {width}"));
        browser.wait_for_charts();
        assert_eq!(browser.errors(), [""; 0], "{width}");
        let wide = browser.evaluate("document.documentElement.scrollWidth");
        assert_eq!(wide, json!(width), "the page is wider than the window");
        let moved = browser.evaluate(
            "[...document.querySelectorAll('figure.chart')].filter(figure => {
                const [frame, svg] = [figure.querySelector('.frame'), figure.querySelector('.frame > svg')];
                return Math.abs(frame.getBoundingClientRect().height - svg.getBoundingClientRect().height) > 0.5;
            }).map(figure => figure.querySelector('b').textContent)",
        );
        assert_eq!(strings(&moved), [""; 0], "not as high as their reserved places at {width}");
        let bare = browser.evaluate(
            "[...document.querySelectorAll('figure.chart')].filter(figure => {
                const texts = figure.querySelectorAll('.picture svg [aria-label$=\"axis tick label\"] text');
                const titles = figure.querySelectorAll('.picture svg [aria-label$=\"axis label\"]');
                return texts.length < 2 || titles.length < 1;
            }).map(figure => figure.querySelector('b').textContent)",
        );
        assert_eq!(strings(&bare), [""; 0], "charts without ticks or titles at {width}");
        let small = browser.evaluate(
            "[...document.querySelectorAll('figure.chart .picture text, figure.chart .picture button')]
                .filter(text => text.textContent && parseFloat(getComputedStyle(text).fontSize) < 12)
                .map(text => text.textContent)",
        );
        assert_eq!(strings(&small), [""; 0], "text below 12 pixels at {width}");
        let scaled = browser.evaluate(
            "[...document.querySelectorAll('figure.chart .frame > svg')]
                .filter(svg => Math.abs(svg.getBoundingClientRect().width - svg.getAttribute('width')) > 1)
                .length",
        );
        assert_eq!(
            scaled,
            json!(0),
            "charts that are scaled, and their text with them, at {width}"
        );
        let cut = browser.evaluate(
            "[...document.querySelectorAll('figure.chart .frame > svg text')].filter(text => {
                const box = text.getBoundingClientRect();
                return text.textContent && (box.left < -0.5 || box.right > innerWidth + 0.5);
            }).map(text => text.textContent)",
        );
        assert_eq!(strings(&cut), [""; 0], "text beyond the window at {width}");
    }
}

/// A link to this place leads there before a chart is drawn, and drawing charts moves it no more.
pub fn a_link_leads_to_its_place_from_the_start(browser: &mut Browser, id: &str) {
    let path = browser.evaluate("decodeURIComponent(location.pathname)");
    let path = path.as_str().expect("a path").to_owned();
    browser.call("Page.navigate", json!({"url": "about:blank"}));
    browser.wait_until("location.protocol === 'about:'");
    // Notes where the link led when the scripts of the page had run, and before any chart was drawn.
    let note = format!(
        "addEventListener('DOMContentLoaded', () => {{
            window.drawn = document.querySelectorAll('.frame > svg').length;
            window.first = document.getElementById({id:?}).getBoundingClientRect().top;
        }})"
    );
    let source = json!({"source": note});
    let script = browser.call("Page.addScriptToEvaluateOnNewDocument", source);
    browser.open_at(std::path::Path::new(&path), id);
    browser.wait_for_charts();
    let place = format!(
        "[window.first, document.getElementById({id:?}).getBoundingClientRect().top, window.drawn, scrollY]"
    );
    let places = browser.evaluate(&place);
    browser.call("Page.removeScriptToEvaluateOnNewDocument", script);
    let number = |at: usize| places[at].as_f64().expect("a number");
    assert_eq!(number(2), 0.0, "charts were drawn before the page was there: {places}");
    assert!(number(3) > 1000.0, "nothing to scroll: {places}");
    assert!((0.0..40.0).contains(&number(0)), "{id} is not where its link leads: {places}");
    assert!((number(0) - number(1)).abs() < 2.0, "drawing charts moved {id}: {places}");
}

/// A table that is wider than its box fades where it goes on, and only there.
pub fn tables_fade_where_they_go_on(browser: &mut Browser) {
    for width in WIDTHS {
        browser.show_as(width, 900, false);
        browser.wait_until(&format!("innerWidth === {width}"));
        browser.wait_until(
            "[...document.querySelectorAll('.wide')].filter(box => box.checkVisibility()).every(box => {
                const rest = box.scrollWidth - box.clientWidth - box.scrollLeft;
                return box.classList.contains('more-right') === rest > 1;
            })",
        );
    }
}

/// The first chart says what a point is under the pointer, and by arrow keys.
pub fn values_show_under_the_pointer_and_by_keys(browser: &mut Browser) {
    browser
        .evaluate("document.querySelector('figure.chart').scrollIntoView({behavior: 'instant'})");
    let tip = "(document.querySelector('figure.chart [aria-label=tip]')?.textContent ?? '')";
    assert_eq!(browser.evaluate(tip), "");
    let place = browser.evaluate(
        "(() => {
            const mark = document.querySelector('figure.chart [aria-label=dot] path, figure.chart [aria-label=dot] circle, figure.chart [aria-label=rect] rect');
            const box = mark.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        })()",
    );
    browser.point_at(place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
    browser.wait_until(&format!("/(95 %|range): .*\\d.* to .*\\d/.test({tip})"));
    browser.point_at(1.0, 1.0);
    browser.evaluate("document.querySelector('figure.chart .frame > svg').focus()");
    let said = "document.querySelector('figure.chart .reading').textContent";
    browser.press("ArrowRight");
    let first = browser.evaluate(said);
    browser.press("ArrowRight");
    let second = browser.evaluate(said);
    let said = first.as_str().unwrap();
    assert!(["95 %: ", "range: "].iter().any(|name| said.contains(name)), "{said}");
    assert_ne!(first, second);
    browser.wait_until(&format!("{tip} !== ''"));
    assert_eq!(browser.errors(), [""; 0]);
}

/// The text of charts is light on a dark page, without being drawn again.
pub fn follows_into_the_dark(browser: &mut Browser) {
    let colors = "(() => {
        const text = document.querySelector('figure.chart .picture svg text');
        const mark = document.querySelector('figure.chart [aria-label=line] path');
        return [getComputedStyle(document.body).backgroundColor, getComputedStyle(text).fill, getComputedStyle(mark).stroke];
    })()";
    let brightness = |color: &str| {
        let numbers = color.split(|c: char| !c.is_ascii_digit() && c != '.');
        numbers.filter_map(|part| part.parse::<f64>().ok()).take(3).sum::<f64>() / 3.0
    };
    let light: Vec<f64> =
        strings(&browser.evaluate(colors)).iter().map(|it| brightness(it)).collect();
    browser.evaluate("document.querySelector('figure.chart svg').marked = true");
    browser.show_as(1400, 900, true);
    browser.wait_until("matchMedia('(prefers-color-scheme: dark)').matches");
    let dark: Vec<f64> =
        strings(&browser.evaluate(colors)).iter().map(|it| brightness(it)).collect();
    assert!(light[0] > 200.0 && dark[0] < 60.0, "{light:?} {dark:?}");
    assert!(light[1] < 100.0 && dark[1] > 180.0, "{light:?} {dark:?}");
    assert!(dark[2] > light[2], "{light:?} {dark:?}");
    let same =
        browser.evaluate("document.querySelector('figure.chart .frame > svg').marked === true");
    assert_eq!(same, json!(true), "drawn again");
    assert_eq!(browser.errors(), [""; 0]);
}
