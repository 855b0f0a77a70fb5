//! The shell of every page: one HTML file that loads nothing, with its contents beside it, in light and in dark.

use std::io::Write;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use maud::{DOCTYPE, Markup, PreEscaped, Render, html};

use crate::table::Tone;

const STYLE: &str = include_str!("../assets/page.css");
const SCRIPTS: [&str; 2] = [include_str!("../assets/charts.js"), include_str!("../assets/page.js")];
/// Observable Plot and what it needs, see `assets/plot/README.md`. Compressed, since it would be a quarter of what a
/// page may have: `charts.js` unpacks it.
static PLOT: LazyLock<String> = LazyLock::new(|| {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let packed = packed
        .write_all(include_bytes!("../assets/plot/plot.js"))
        .and_then(|()| packed.finish())
        .expect("memory can be written");
    STANDARD.encode(packed)
});

/// A page.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// What it is about.
    pub title: String,
    /// Below the title: when, where.
    pub about: Vec<String>,
    /// What a reader has to know before anything else, if anything: that rows are missing.
    pub notes: Vec<String>,
    /// The sections. The first one is the answer; the others say how it came about.
    pub sections: Vec<Section>,
    /// Below all of them.
    pub footer: String,
}

/// A section.
#[derive(Debug, Clone)]
pub struct Section {
    /// Its name in links.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// What the contents say, if not the heading.
    pub short: String,
    /// How it came out, shown in the contents: signs and their tones.
    pub signs: Vec<(String, Tone)>,
    /// What it says.
    pub body: Markup,
}

impl Section {
    /// A section.
    pub fn new(id: impl Into<String>, title: impl Into<String>, body: Markup) -> Section {
        let (id, title) = (id.into(), title.into());
        Section { id, title, short: String::new(), signs: Vec::new(), body }
    }

    /// What the contents call it.
    fn name(&self) -> &str {
        if self.short.is_empty() { &self.title } else { &self.short }
    }
}

impl Page {
    /// An empty page.
    pub fn new(title: impl Into<String>) -> Page {
        Page { title: title.into(), ..Page::default() }
    }

    fn contents(&self) -> Markup {
        html! {
            nav.contents aria-label="Contents" {
                details open {
                    summary { "Contents" }
                    ul {
                        @for section in &self.sections {
                            li { a href={ "#" (section.id) } {
                                (section.name())
                                @if !section.signs.is_empty() {
                                    span.signs {
                                        @for (sign, tone) in &section.signs {
                                            span class=[tone.class()] { (sign) }
                                        }
                                    }
                                }
                            } }
                        }
                    }
                }
            }
        }
    }

    /// The whole page.
    pub fn html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    // Else a browser asks for one.
                    link rel="icon" href="data:,";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                    noscript { style { (PreEscaped(".picture{display:none}")) } }
                }
                body {
                    header {
                        h1 { (self.title) }
                        @for line in &self.about { p.about { (line) } }
                        @for note in &self.notes { p.note { (note) } }
                    }
                    div.columns {
                        (self.contents())
                        main {
                            @for (index, section) in self.sections.iter().enumerate() {
                                section id=(section.id) class=[(index == 0).then_some("answer")] {
                                    h2 { (section.title) }
                                    (section.body)
                                }
                            }
                        }
                    }
                    footer { (self.footer) }
                    script id="plot" type="application/gzip" { (PreEscaped(PLOT.as_str())) }
                    @for script in SCRIPTS { script { (PreEscaped(script)) } }
                }
            }
        };
        page.into_string()
    }
}

/// A few words that stand out: how something came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Badge {
    /// A sign for those who do not see the colour.
    pub sign: String,
    /// The words.
    pub words: String,
    /// How it came out.
    pub tone: Tone,
}

impl Render for Badge {
    fn render(&self) -> Markup {
        let class = self.tone.class().unwrap_or("plain");
        html! { span class={ "badge " (class) } { (self.sign) " " (self.words) } }
    }
}

/// Something that came out somehow, in a box.
pub fn card(tone: Tone, id: Option<&str>, body: &Markup) -> Markup {
    html! { article class=[tone.class()] id=[id] { (body) } }
}

/// Boxes side by side where there is room.
pub fn cards(cards: &[Markup]) -> Markup {
    html! { div.cards { @for card in cards { (card) } } }
}

/// Charts side by side where there is room.
pub fn charts(charts: &[Markup]) -> Markup {
    html! { @if !charts.is_empty() { div.charts { @for chart in charts { (chart) } } } }
}

/// Something that most readers pass over, behind a line to click.
pub fn folded(id: Option<&str>, summary: &str, is_open: bool, body: &Markup) -> Markup {
    html! { details.folded id=[id] open[is_open] { summary { (summary) } (body) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let mut page = Page::new("Locks of <b>");
        page.about.push("today & here".to_owned());
        page.notes.push("rows are missing".to_owned());
        let body = html! { p { "yes" } };
        let mut section = Section::new("answer", "Which lock?", body.clone());
        section.signs.push(("✓".to_owned(), Tone::Good));
        page.sections.push(section);
        page.sections.push(Section { short: "rest".to_owned(), ..Section::new("b", "B", body) });
        page
    }

    #[test]
    fn a_page_has_its_title_contents_and_sections_and_loads_nothing() {
        let html = page().html();
        for words in [
            "<title>Locks of &lt;b&gt;</title>",
            "<p class=\"about\">today &amp; here</p>",
            "<a href=\"#answer\">Which lock?<span class=\"signs\"><span class=\"good\">✓</span>",
            "<a href=\"#b\">rest</a>",
            "<section id=\"answer\" class=\"answer\"><h2>Which lock?</h2>",
        ] {
            assert!(html.contains(words), "{words}");
        }
        for outside in ["src=", "@import", "url(", "http:", "https:"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn no_script_of_the_page_ends_early() {
        for script in SCRIPTS {
            let script = script.to_lowercase();
            assert!(!script.contains("</script") && !script.contains("<!--"));
        }
        assert!(!STYLE.contains('<'));
    }

    #[test]
    fn the_style_and_the_scripts_leave_room_for_results() {
        assert!(page().html().len() < 180_000);
    }
}
