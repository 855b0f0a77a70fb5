//! Charts as plain values: what is shown, in which unit, with which interval. `charts.js` draws them; without scripts
//! the table of the same values stands in their place.
//!
//! A chart is data and nothing else, so adding one to a page is filling in one of these structs. A new kind of chart
//! is one struct here, its table in `values.rs`, and one function of `charts.js`.

mod values;

use std::collections::BTreeMap;

use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use crate::quantity::{Figure, Unit, short};
use crate::statistics::FEWEST_FOR_AN_INTERVAL;

/// A chart with its title.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// How to read it, in a sentence; may be empty.
    pub note: String,
    /// What its intervals are.
    pub interval: Interval,
    /// The picture.
    pub picture: Picture,
}

/// What the two ends of a figure are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interval {
    /// Those of its 95 % interval.
    #[default]
    Confidence,
    /// The least and the most of the few repetitions that there are.
    Range,
    /// One for some figures, the other for the rest.
    Either,
}

impl Interval {
    /// What the ends of figures are that come from so many repetitions.
    pub fn of(repetitions: impl IntoIterator<Item = u32>) -> Interval {
        let is_few = |count: u32| (count as usize) < FEWEST_FOR_AN_INTERVAL;
        let (few, many): (Vec<u32>, Vec<u32>) = repetitions.into_iter().partition(|it| is_few(*it));
        match (few.is_empty(), many.is_empty()) {
            (true, _) => Interval::Confidence,
            (false, true) => Interval::Range,
            (false, false) => Interval::Either,
        }
    }

    /// What stands before the two ends.
    pub fn name(self) -> &'static str {
        match self {
            Interval::Confidence => "95 %",
            Interval::Range => "range",
            Interval::Either => "95 % interval, or range",
        }
    }
}

/// What a chart draws.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Picture {
    /// Lines over a few places.
    Lines(Lines),
    /// Bars in groups.
    Bars(Bars),
    /// Bars made of parts.
    Stacks(Stacks),
    /// Histograms as steps over time.
    Steps(Steps),
    /// Figures with an interval and a range.
    Ranges(Ranges),
    /// What threads did.
    Timeline(Timeline),
}

macro_rules! pictures {
    ($($kind:ident)*) => {
        $(impl From<$kind> for Picture {
            fn from(picture: $kind) -> Picture {
                Picture::$kind(picture)
            }
        })*
    };
}

pictures!(Lines Bars Stacks Steps Ranges Timeline);

/// How a series looks. Everything of one name looks alike in all charts of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Look {
    /// Those that read.
    Reader,
    /// Those that write.
    Writer,
    /// Another role.
    Other,
    /// A colour, a dash and a symbol that no other number below 36 has together: see `charts.js`.
    #[serde(untagged)]
    Series(usize),
}

/// The locks that most charts have, in the order of their looks: the first has the colour that stands out, the next
/// ten have whole lines, and each further one has the colour of the one ten places before it, dashed, and its bars are
/// pale. So locks that are often compared do not stand ten places apart.
pub const USUAL: [&str; 16] = [
    "rwlock",
    "std",
    "parking_lot",
    "usync",
    "pthread",
    "mutex",
    "sharded",
    "rwsem",
    "linux-5.11",
    "no-reader-steal",
    "kernel",
    "phase-fair",
    "linux-5.1",
    "linux-5.2",
    "std-mutex",
    "pthread-writer",
];

/// The looks of one page: hands out the next to each new name. Names that are to look the same on every page are
/// given first.
#[derive(Debug, Clone, Default)]
pub struct Looks {
    known: BTreeMap<String, usize>,
}

impl Looks {
    /// Looks for these names, in this order.
    pub fn of(names: &[&str]) -> Looks {
        let mut looks = Looks::default();
        for name in names {
            looks.look(name);
        }
        looks
    }

    /// The look of this name.
    pub fn look(&mut self, name: &str) -> Look {
        let next = self.known.len();
        Look::Series(*self.known.entry(name.to_owned()).or_insert(next))
    }

    /// The look of a role, whatever the names of the locks.
    pub fn role(role: &str) -> Look {
        match role {
            "reader" | "reads" | "read" => Look::Reader,
            "writer" | "writes" | "write" => Look::Writer,
            _ => Look::Other,
        }
    }
}

/// An axis of figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Axis {
    /// What it counts.
    pub title: String,
    /// In which unit.
    pub unit: Unit,
    /// How long a figure is.
    pub scale: Scale,
}

/// How far from the origin a figure stands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "scale", rename_all = "kebab-case")]
pub enum Scale {
    /// From this to that.
    Linear {
        /// Where it begins.
        low: f64,
        /// Where it ends.
        high: f64,
    },
    /// By factors. 0 has no place among them, so it has one of its own, below them all.
    Log {
        /// The lowest figure that is shown in its place; what is less, but not 0, is marked at the edge.
        low: f64,
        /// The highest.
        high: f64,
        /// Where 0 stands, as if it were this figure; only where some figure, or an end of its interval, is 0.
        zero: Option<f64>,
    },
}

/// So many decades are shown at most: a series that all but stops must not flatten the others.
const MOST_DECADES: i32 = 6;
/// Bars that differ by more than this factor have a logarithmic axis.
const LINEAR_FACTOR: f64 = 30.0;

impl Scale {
    /// From 0 to the highest.
    fn linear(figures: impl Iterator<Item = Figure>) -> Scale {
        let high = figures.flat_map(|it| [it.median, it.high]).filter(|it| it.is_finite());
        let high = high.fold(0.0, f64::max);
        Scale::Linear { low: 0.0, high: if high > 0.0 { high } else { 1.0 } }
    }

    /// Whole decades around the figures above 0.
    fn log(figures: impl Iterator<Item = Figure> + Clone) -> Scale {
        let positive = |value: &f64| *value > 0.0 && value.is_finite();
        let ends = figures.clone().flat_map(|it| [it.median, it.high]).filter(positive);
        let high = ends.fold(0.0, f64::max);
        let low =
            figures.clone().map(|it| it.median).filter(positive).fold(f64::INFINITY, f64::min);
        let has_zero = figures.clone().any(|it| it.low <= 0.0 || it.median <= 0.0);
        let (low, high) = if low > high {
            (0.1, 10.0)
        } else {
            let low = low.max(high / 10f64.powi(MOST_DECADES));
            (10f64.powf((low * 0.8).log10().floor()), high * 1.3)
        };
        // Near enough that no decade comes between.
        Scale::Log { low, high, zero: has_zero.then_some(low / 2.0) }
    }

    /// Linear where bars can be compared by their lengths.
    fn of_bars(figures: impl Iterator<Item = Figure> + Clone) -> Scale {
        let medians = || figures.clone().map(|it| it.median).filter(|it| *it > 0.0);
        let high = medians().fold(0.0, f64::max);
        let low = medians().fold(f64::INFINITY, f64::min);
        if high / low > LINEAR_FACTOR { Scale::log(figures) } else { Scale::linear(figures) }
    }
}

/// A line for each series over places that stand side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lines {
    /// What the places are.
    pub x: String,
    /// Their names.
    pub places: Vec<String>,
    /// The axis of the figures, logarithmic.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// How it looks.
    pub look: Look,
    /// The places in [`Lines::places`], ascending, with the figures there.
    pub points: Vec<(usize, Figure)>,
}

impl Lines {
    /// Lines on a logarithmic axis. `series` are names with the places and figures of each.
    pub fn new(
        x: impl Into<String>,
        places: Vec<String>,
        (y, unit): (impl Into<String>, Unit),
        series: Vec<(String, Vec<(usize, Figure)>)>,
        looks: &mut Looks,
    ) -> Lines {
        let figures = series.iter().flat_map(|(_, points)| points).map(|(_, figure)| *figure);
        let y = Axis { title: y.into(), unit, scale: Scale::log(figures) };
        let series = series.into_iter().map(|(name, points)| {
            let look = looks.look(&name);
            Series { name, look, points }
        });
        Lines { x: x.into(), places, y, series: series.collect() }
    }
}

/// Bars in groups, from left to right, with their intervals.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bars {
    /// The axis of the figures; logarithmic where they differ much.
    pub axis: Axis,
    /// The groups.
    pub groups: Vec<Group>,
    /// How the bars look, by their names.
    pub looks: BTreeMap<String, Look>,
    /// A figure to compare with, and what to call it.
    pub mark: Option<(f64, String)>,
    /// Whether groups are the lines of the chart, and their bars are told apart by colour. Otherwise each bar has its
    /// name beside it, and each group a heading.
    pub by_group: bool,
}

/// Bars that belong together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// What they share; may be empty for a single group.
    pub name: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// How long it is.
    pub figure: Figure,
    /// What stands behind it instead of the figure, if not empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Bars {
    /// Bars with their names beside them.
    pub fn new(
        title: impl Into<String>,
        unit: Unit,
        groups: Vec<Group>,
        looks: &mut Looks,
    ) -> Bars {
        let names = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.name.clone());
        let looks = names.map(|name| (name.clone(), looks.look(&name))).collect();
        Bars::with_looks(title, unit, groups, looks)
    }

    /// A line for each group, with a bar for each role.
    pub fn of_roles(title: impl Into<String>, unit: Unit, groups: Vec<Group>) -> Bars {
        let names = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.name.clone());
        let looks = names.map(|name| (name.clone(), Looks::role(&name))).collect();
        Bars { by_group: true, ..Bars::with_looks(title, unit, groups, looks) }
    }

    /// Bars that look as they are told to.
    pub fn with_looks(
        title: impl Into<String>,
        unit: Unit,
        groups: Vec<Group>,
        looks: BTreeMap<String, Look>,
    ) -> Bars {
        let figures = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.figure);
        let scale = Scale::of_bars(figures);
        let axis = Axis { title: title.into(), unit, scale };
        Bars { axis, groups, looks, mark: None, by_group: false }
    }
}

/// Bars made of parts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stacks {
    /// The axis, linear.
    pub axis: Axis,
    /// The bars.
    pub stacks: Vec<Stack>,
    /// A figure to compare with, and what to call it.
    pub mark: Option<(f64, String)>,
}

/// A bar made of parts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stack {
    /// Its name.
    pub name: String,
    /// Its parts: a role, and how long it is.
    pub parts: Vec<Part>,
    /// What stands behind it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A part of a bar.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Whose it is.
    pub role: String,
    /// How it looks.
    pub look: Look,
    /// How long it is.
    pub value: f64,
}

impl Part {
    /// A part of a role.
    pub fn new(role: impl Into<String>, value: f64) -> Part {
        let role = role.into();
        Part { look: Looks::role(&role), role, value }
    }
}

impl Stacks {
    /// Bars on a linear axis from 0.
    pub fn new(title: impl Into<String>, unit: Unit, stacks: Vec<Stack>) -> Stacks {
        let length = |stack: &Stack| stack.parts.iter().map(|part| part.value).sum();
        let scale = Scale::linear(stacks.iter().map(length).map(Figure::exactly));
        Stacks { axis: Axis { title: title.into(), unit, scale }, stacks, mark: None }
    }
}

/// Histograms over times, on a logarithmic axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Steps {
    /// What is counted: `share of the holds`.
    pub title: String,
    /// Where buckets end, ascending, in ns; the first begins at `edges[0]`, which may be 0.
    pub edges: Vec<f64>,
    /// The histograms.
    pub histograms: Vec<Histogram>,
}

/// A histogram.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Histogram {
    /// Its name.
    pub name: String,
    /// How it looks.
    pub look: Look,
    /// The share (0 to 1) of each bucket.
    #[serde(serialize_with = "all_short")]
    pub shares: Vec<f64>,
}

fn all_short<S: serde::Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().copied().map(short))
}

/// Figures with all that was seen and an interval, beside a figure to compare with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranges {
    /// The axis, linear.
    pub axis: Axis,
    /// A figure to compare with, and what to call it.
    pub mark: (f64, String),
    /// The figures.
    pub ranges: Vec<Range>,
}

/// A figure with all that was seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Range {
    /// Its name.
    pub name: String,
    /// How it looks.
    pub look: Look,
    /// The least, the median and the most of all.
    pub seen: Figure,
    /// The interval, if there is one.
    pub interval: Option<Figure>,
}

impl Ranges {
    /// Figures on a linear axis around the one to compare with.
    pub fn new(
        title: impl Into<String>,
        unit: Unit,
        mark: (f64, String),
        ranges: Vec<Range>,
    ) -> Ranges {
        let ends = ranges.iter().flat_map(|it| [it.seen.low, it.seen.high]);
        let ends = ends.filter(|it| it.is_finite());
        let (low, high) =
            ends.fold((mark.0, mark.0), |(low, high), it| (low.min(it), high.max(it)));
        let room = (high - low).max(0.02) * 0.1;
        let scale = Scale::Linear { low: low - room, high: high + room };
        Ranges { axis: Axis { title: title.into(), unit, scale }, mark, ranges }
    }
}

/// What threads did over time, a row for each.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timeline {
    /// How long it is, ns.
    pub length_ns: u64,
    /// A moment, ns, and what it is.
    pub mark: Option<(u64, &'static str)>,
    /// Into so many equal slots it is cut.
    pub slots: usize,
    /// What a thread may do.
    pub kinds: Vec<Doing>,
    /// The threads.
    pub threads: Vec<ThreadRow>,
    /// Who woke whom: the places in `threads` of the waker and of the woken thread, and the slot.
    pub wake_ups: Vec<[usize; 3]>,
}

/// Something a thread may do, and how its row shows that.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Doing {
    /// In words.
    pub name: String,
    /// Its colour: a custom property of the style sheet.
    pub color: &'static str,
    /// Which part of the row it fills, from the top (0) to the foot (1).
    pub from: f64,
    /// Where that part ends.
    pub to: f64,
}

/// A thread's row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadRow {
    /// Its name.
    pub name: String,
    /// What it did: the place in [`Timeline::kinds`], the first slot, and how many.
    pub stretches: Vec<[usize; 3]>,
}

impl Chart {
    /// A chart.
    pub fn new(title: impl Into<String>, picture: impl Into<Picture>) -> Chart {
        Chart {
            title: title.into(),
            note: String::new(),
            interval: Interval::default(),
            picture: picture.into(),
        }
    }

    /// The same chart with a sentence on how to read it.
    pub fn note(self, note: impl Into<String>) -> Chart {
        Chart { note: note.into(), ..self }
    }

    /// The same chart, its intervals named for what they are.
    pub fn interval(self, interval: Interval) -> Chart {
        Chart { interval, ..self }
    }

    /// The chart for a page: what the script draws, and the table of its values.
    pub fn html(&self) -> Markup {
        html! {
            figure.chart data-interval=[self.own_interval()] {
                figcaption {
                    b { (self.title) }
                    @if !self.note.is_empty() { " " span.note { (self.note) } }
                }
                div.picture {}
                script type="application/json" { (for_script(&self.picture)) }
                details.values {
                    summary { "Values" }
                    (self.values().html())
                }
            }
        }
    }
}

impl Chart {
    /// What the script is to call intervals, if not what it calls them by itself.
    fn own_interval(&self) -> Option<&'static str> {
        (self.interval != Interval::Confidence).then(|| self.interval.name())
    }
}

/// JSON that can stand in a `<script>`: no text in it ends the element or begins a comment.
fn for_script(value: &impl Serialize) -> PreEscaped<String> {
    let text = serde_json::to_string(value).expect("plain values are JSON");
    PreEscaped(text.replace('<', "\\u003c"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(medians: &[f64]) -> Vec<Figure> {
        medians.iter().copied().map(Figure::exactly).collect()
    }

    fn log(medians: &[f64]) -> (f64, f64, Option<f64>) {
        match Scale::log(figures(medians).into_iter()) {
            Scale::Log { low, high, zero } => (low, high, zero),
            linear => panic!("{linear:?}"),
        }
    }

    #[test]
    fn zero_has_a_place_of_its_own_below_a_logarithmic_axis() {
        let (low, high, zero) = log(&[0.0, 3.0, 400.0]);
        assert_eq!((low, zero), (1.0, Some(0.5)));
        assert!(high > 400.0);
        assert_eq!(log(&[3.0]).2, None);
        assert_eq!(log(&[0.0]), (0.1, 10.0, Some(0.05)));
        // Six decades are enough.
        assert_eq!(log(&[1e-3, 1e6]).0, 0.1);
    }

    #[test]
    fn bars_are_linear_where_their_lengths_can_be_compared() {
        let of = |medians: &[f64]| Scale::of_bars(figures(medians).into_iter());
        assert_eq!(of(&[1.0, 20.0]), Scale::Linear { low: 0.0, high: 20.0 });
        assert!(matches!(of(&[1.0, 200.0]), Scale::Log { zero: None, .. }));
        assert_eq!(of(&[0.0]), Scale::Linear { low: 0.0, high: 1.0 });
    }

    #[test]
    fn a_name_looks_the_same_in_every_chart_of_a_page() {
        let mut looks = Looks::of(&["rwlock"]);
        assert_eq!(looks.look("std"), Look::Series(1));
        assert_eq!(looks.look("rwlock"), Look::Series(0));
        assert_eq!(looks.look("std"), Look::Series(1));
        let json = serde_json::to_string(&[Look::Series(1), Looks::role("reads")]).unwrap();
        assert_eq!(json, "[1,\"reader\"]");
    }

    #[test]
    fn the_interval_of_few_repetitions_is_called_their_range() {
        assert_eq!(Interval::of([2, 5]), Interval::Range);
        assert_eq!(Interval::of([6, 20]), Interval::Confidence);
        assert_eq!(Interval::of([2, 20]), Interval::Either);
        let stack = Stack { name: "std".to_owned(), parts: Vec::new(), note: String::new() };
        let chart = Chart::new("", Stacks::new("", Unit::Count, vec![stack]));
        assert!(!chart.html().into_string().contains("data-interval"));
        let html = chart.interval(Interval::Range).html().into_string();
        assert!(html.contains("data-interval=\"range\""), "{html}");
    }

    /// The custom properties of the style sheet for light, and those for dark.
    fn colors(name: &str) -> [[f64; 3]; 2] {
        let style = include_str!("../../assets/page.css");
        let (light, dark) = style.split_once("prefers-color-scheme: dark").unwrap();
        [light, dark].map(|style| {
            let (_, rest) =
                style.split_once(&format!("--{name}: #")).unwrap_or_else(|| panic!("{name}"));
            let part =
                |at: usize| f64::from(u8::from_str_radix(&rest[at..at + 2], 16).unwrap()) / 255.0;
            perceived([part(0), part(2), part(4)])
        })
    }

    /// OKLab: equal distances look about equally far apart.
    fn perceived(rgb: [f64; 3]) -> [f64; 3] {
        let [r, g, b] =
            rgb.map(|it| if it <= 0.04045 { it / 12.92 } else { ((it + 0.055) / 1.055).powf(2.4) });
        let l = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b).cbrt();
        let m = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b).cbrt();
        let s = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b).cbrt();
        [
            0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
            1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
            0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
        ]
    }

    #[test]
    fn colours_that_stand_side_by_side_can_be_told_apart_in_light_and_in_dark() {
        let series: Vec<String> = (0..=10).map(|number| format!("c{number}")).collect();
        let doings = ["hold-read", "hold-write", "wait-read", "wait-write"].map(str::to_owned);
        for names in [&series[..], &doings] {
            for (at, one) in names.iter().enumerate() {
                for other in &names[..at] {
                    for (one_color, other_color) in colors(one).into_iter().zip(colors(other)) {
                        let pairs = one_color.iter().zip(other_color);
                        let distance = pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                        assert!(distance >= 0.1, "{one} and {other}: {distance:.3}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_text_of_a_chart_ends_its_script_or_becomes_markup() {
        let evil = "</script><!--<script>\"'&";
        let part = Part::new(evil, 1.0);
        let stack = Stack { name: evil.to_owned(), parts: vec![part], note: evil.to_owned() };
        let stacks = Stacks::new(evil, Unit::Count, vec![stack]);
        let html = Chart::new(evil, stacks).note(evil).html().into_string();
        assert_eq!(html.matches("<script").count(), 1, "{html}");
        assert_eq!(html.matches("</script>").count(), 1, "{html}");
        let (_, rest) = html.split_once("application/json\">").unwrap();
        let (json, _) = rest.split_once("</script>").unwrap();
        let read: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(read["stacks"][0]["name"], evil);
        assert_eq!(read["kind"], "stacks");
        assert!(!html.contains("<!--"), "{html}");
    }
}
