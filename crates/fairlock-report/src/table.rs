//! Tables: plain values that a page shows as HTML. A click, or Enter, on a heading sorts the rows.
//!
//! A table says what its cells are, not how they look, so that a terminal can print the same table.

use maud::{Markup, PreEscaped, Render, html};

use crate::quantity::{Figure, Unit};

/// A table with more columns than that has them closer together.
const MOST_ROOMY: usize = 8;

/// A table.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// What it shows; empty where a heading above says so.
    pub caption: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// A cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Debug, Clone)]
pub struct Column {
    /// The heading.
    pub title: String,
    /// What it has.
    pub kind: Kind,
    /// Whose figures they are.
    pub tone: Tone,
}

/// What a column has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The name of the row.
    Heading,
    /// A few words.
    Words,
    /// Sentences, which may take several lines.
    Text,
    /// Numbers, with their units.
    Number,
}

/// What stands out, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// Nothing.
    #[default]
    Plain,
    /// It was measured here.
    Here,
    /// It was simulated.
    Simulated,
    /// It is the best of its row.
    Best,
    /// It is as it should be.
    Good,
    /// It is not.
    Bad,
    /// Nobody knows.
    Unclear,
}

impl Tone {
    /// The class in the page's style sheet.
    pub fn class(self) -> Option<&'static str> {
        match self {
            Tone::Plain => None,
            Tone::Here => Some("here"),
            Tone::Simulated => Some("simulated"),
            Tone::Best => Some("best"),
            Tone::Good => Some("good"),
            Tone::Bad => Some("bad"),
            Tone::Unclear => Some("unclear"),
        }
    }
}

/// A cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cell {
    /// What it says; sorting goes by the number that this begins with.
    pub text: String,
    /// Below that, smaller: an interval, or a place.
    pub detail: String,
    /// Where it leads: `#lock-1`.
    pub link: String,
    /// What stands out about it.
    pub tone: Tone,
}

impl Cell {
    /// A cell that says this.
    pub fn new(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// A figure with its interval below it.
    pub fn figure(unit: Unit, figure: Figure) -> Cell {
        let detail = if figure.has_interval() { unit.interval(figure) } else { String::new() };
        Cell::new(unit.words(figure.median)).detail(detail)
    }

    /// A cell for what is not known.
    pub fn none() -> Cell {
        Cell::new("–")
    }

    /// The same cell with something smaller below.
    pub fn detail(self, detail: impl Into<String>) -> Cell {
        Cell { detail: detail.into(), ..self }
    }

    /// The same cell as a link.
    pub fn link(self, link: impl Into<String>) -> Cell {
        Cell { link: link.into(), ..self }
    }

    /// The same cell, standing out.
    pub fn tone(self, tone: Tone) -> Cell {
        Cell { tone, ..self }
    }
}

impl Column {
    /// A column of this kind.
    pub fn new(title: impl Into<String>, kind: Kind) -> Column {
        Column { title: title.into(), kind, tone: Tone::Plain }
    }

    /// The same column, with its figures' origin.
    pub fn tone(self, tone: Tone) -> Column {
        Column { tone, ..self }
    }

    /// Numbers have no class of their own, since most cells are numbers.
    fn class(&self, cell: Tone) -> String {
        let kind = match self.kind {
            Kind::Heading => Some("heading"),
            Kind::Words => Some("words"),
            Kind::Text => Some("text"),
            Kind::Number => None,
        };
        // What stands out in a cell outdoes its column.
        let tone = if cell == Tone::Plain { self.tone } else { cell };
        [kind, tone.class()].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

impl Table {
    /// A table without rows yet: a heading, then numbers.
    pub fn of_numbers(caption: impl Into<String>, titles: &[&str]) -> Table {
        let kinds = std::iter::once(Kind::Heading).chain(std::iter::repeat(Kind::Number));
        let columns = titles.iter().zip(kinds).map(|(title, kind)| Column::new(*title, kind));
        Table { caption: caption.into(), columns: columns.collect(), rows: Vec::new() }
    }

    /// The table as HTML, in a box of its own that scrolls where the page is too narrow.
    ///
    /// Cells and rows are not closed, since HTML closes them itself: in a page of thousands of cells that is a tenth
    /// of its size.
    pub fn html(&self) -> Markup {
        let mut head = String::from("<tr>");
        for column in &self.columns {
            open("th", &column.class(Tone::Plain), &mut head);
            column.title.render_to(&mut head);
        }
        let mut rows = String::new();
        for row in &self.rows {
            rows.push_str("\n<tr>");
            for (column, cell) in self.columns.iter().zip(row) {
                match column.kind {
                    Kind::Heading => open("th", cell.tone.class().unwrap_or_default(), &mut rows),
                    _ => open("td", &column.class(cell.tone), &mut rows),
                }
                cell.render_to(&mut rows);
            }
        }
        html! {
            div.wide tabindex="0" {
                table.sortable.dense[self.columns.len() > MOST_ROOMY] {
                    @if !self.caption.is_empty() { caption { (self.caption) } }
                    thead { (PreEscaped(head)) }
                    tbody { (PreEscaped(rows)) }
                }
            }
        }
    }
}

fn open(element: &str, class: &str, to: &mut String) {
    match class.is_empty() {
        true => to.push_str(&format!("<{element}>")),
        false => to.push_str(&format!("<{element} class=\"{class}\">")),
    }
}

impl Render for Cell {
    fn render_to(&self, to: &mut String) {
        let text = html! {
            @if self.link.is_empty() { (self.text) } @else { a href=(self.link) { (self.text) } }
            @if !self.detail.is_empty() { small { (self.detail) } }
        };
        to.push_str(&text.into_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_its_headings_numbers_intervals_and_links() {
        let mut table = Table::of_numbers("Rates <1>", &["lock", "per second"]);
        table.columns[1].tone = Tone::Here;
        let figure = Figure { median: 2e6, low: 1e6, high: 3e6 };
        let rate = Cell::figure(Unit::PerSecond, figure).tone(Tone::Best);
        table.rows.push(vec![Cell::new("a & b").link("#a"), rate]);
        table.rows.push(vec![Cell::new("c"), Cell::none()]);
        let html = table.html().into_string();
        assert!(html.contains("<caption>Rates &lt;1&gt;</caption>"), "{html}");
        assert!(
            html.contains("<th class=\"heading\">lock<th class=\"here\">per second</thead>"),
            "{html}"
        );
        assert!(html.contains("<th><a href=\"#a\">a &amp; b</a>"), "{html}");
        assert!(html.contains("<td class=\"best\">2.00M/s<small>[1.00M/s, 3.00M/s]</small>"));
        assert!(html.contains("<td class=\"here\">–"), "{html}");
    }

    #[test]
    fn nothing_in_a_cell_becomes_markup() {
        let mut table = Table::of_numbers("", &["<b>", "\"&"]);
        let evil = "</table><script>";
        table.rows.push(vec![Cell::new(evil).link("\"><script>"), Cell::new(evil).detail(evil)]);
        let html = table.html().into_string();
        assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
        assert_eq!(html.matches("</table>").count(), 1, "{html}");
    }
}
