//! Plots as SVG text to stand inside a page. The page's own text colour shows through.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::params::{self, Value};
use crate::registry;
use crate::row::{Estimate, Row};
use crate::study::{Plot, PlotKind, PlotMetric, expand_locks};
use crate::units;
use crate::world::HERE;

/// The locks that stand out: the first of them that is in a plot.
const FLAGSHIPS: [&str; 2] = ["rwlock", "rwsem"];
const FLAGSHIP_COLOR: RGBColor = RGBColor(0x1f, 0x78, 0xd1);

/// Distinguishable with any colour vision (after Okabe and Ito, and Tol), and on light and dark
/// grounds; the flagship's blue is not among them.
pub(crate) const PALETTE: [RGBColor; 8] = [
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x88, 0x88, 0x88),
    RGBColor(0x99, 0x99, 0x33),
    RGBColor(0xaa, 0x44, 0x66),
];
pub(crate) const READER_COLOR: RGBColor = RGBColor(0x56, 0xb4, 0xe9);
pub(crate) const WRITER_COLOR: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
const OTHER_COLOR: RGBColor = RGBColor(0x88, 0x88, 0x88);
/// Becomes the page's text colour.
pub(crate) const TEXT: RGBColor = BLACK;
/// For words on coloured bars, in light and in dark.
pub(crate) const ON_BAR: RGBColor = RGBColor(0x11, 0x11, 0x11);
pub(crate) const FAINT: RGBAColor = RGBAColor(128, 128, 128, 0.3);

/// Beside the line of a logarithmic axis where figures of 0 stand.
const ZERO: &str = "0";
/// Before a figure that is below a logarithmic axis.
const BELOW: &str = "↓";
pub(crate) const WIDTH: u32 = 760;
const HEIGHT: u32 = 380;
/// Room for the names at the ends of lines.
const LABEL_WIDTH: u32 = 130;
/// Least distance of two names, in pixels.
const LABEL_STEP: i32 = 14;
const FONT: (&str, i32) = ("sans-serif", 13);

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A line or a kind of bar: its name and its figures by position on the x axis.
struct Series {
    name: String,
    color: RGBColor,
    is_flagship: bool,
    points: Vec<(usize, Estimate)>,
}

/// The lock that stands out among these.
fn flagship<'a>(locks: impl Iterator<Item = &'a str> + Clone) -> Option<&'static str> {
    FLAGSHIPS.into_iter().find(|flagship| locks.clone().any(|lock| lock == *flagship))
}

/// The plot as an SVG element, or nothing where no row fits it.
pub(super) fn svg(plot: &Plot, rows: &[Row]) -> Option<String> {
    let workloads = plot.workload.list();
    let mut locks: Vec<String> = Vec::new();
    for workload in workloads {
        let more = expand_locks(&plot.locks, workload, plot.machine.is_some());
        locks.extend(more.into_iter().filter(|lock| !locks.contains(lock)).collect::<Vec<_>>());
    }
    let all_rows = rows;
    let rows: Vec<&Row> = rows
        .iter()
        .filter(|row| {
            workloads.contains(&row.workload)
                && row.machine == plot.machine.as_deref().unwrap_or(HERE)
                && locks.contains(&row.lock)
                && registry::has_params(row, &plot.params)
        })
        .collect();
    let mut text = String::new();
    let drawn = match plot.kind {
        PlotKind::Lines | PlotKind::Bars => {
            let shown: Vec<&Row> = rows
                .into_iter()
                .filter(|row| plot.roles.iter().all(|role| row.roles.contains_key(role)))
                .collect();
            let xs = values(&shown, &plot.x);
            let series = series(plot, &shown, &xs, &locks);
            if series.is_empty() {
                return None;
            }
            let root = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
            if plot.kind == PlotKind::Lines {
                lines(&root, plot, &xs, &series)
            } else {
                bars(&root, plot, &xs, &series)
            }
        }
        PlotKind::Histogram => {
            let steps = steps(plot, &rows, &locks);
            if steps.is_empty() {
                return None;
            }
            let root = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
            histogram(&root, &steps)
        }
        PlotKind::Shares | PlotKind::Alone => {
            let bars = if plot.kind == PlotKind::Shares {
                shares(&rows)
            } else {
                of_alone(&rows, all_rows)
            };
            if bars.is_empty() {
                return None;
            }
            let per_lock = if plot.kind == PlotKind::Shares { 24 } else { 38 };
            let height = 70 + per_lock * bars.len() as u32;
            let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
            role_bars(&root, plot.kind, &bars, per_lock as i32)
        }
    };
    drawn.ok()?;
    Some(themed(&text, &plot.title))
}

/// Makes the drawing fit the page: scalable, named for screen readers, in the page's text colour.
pub(crate) fn themed(svg: &str, title: &str) -> String {
    let svg = svg.replace("#000000", "currentColor");
    let Some(end) = svg.find('>') else { return svg };
    format!(
        "{} role=\"img\">\n<title>{}</title>{}",
        &svg[..end],
        super::html::escape(title),
        &svg[end + 1..]
    )
}

/// A place along the axis: a value, or that of rows to which the parameter makes no difference, left of all others.
type X = Option<Value>;

/// The distinct values of a parameter, ascending.
fn values(rows: &[&Row], name: &str) -> Vec<X> {
    let mut values: Vec<X> = rows.iter().filter_map(|row| x_of(row, name)).collect();
    values.sort_by(|a, b| match (a, b) {
        (Some(a), Some(b)) => params::in_order(a, b),
        _ => a.is_some().cmp(&b.is_some()),
    });
    values.dedup();
    values
}

/// A row's value of the parameter along the axis.
fn x_of(row: &Row, name: &str) -> Option<X> {
    match params::is_idle(name, |role| registry::number(row, role)) {
        true => Some(None),
        false => registry::param(row, name).map(Some),
    }
}

/// A parameter with its value, for below a group of bars: `reads of 64 KiB`, `2 readers`.
fn group_words(workload: &str, name: &str, value: &X) -> String {
    let Some(value) = value else { return "alone".to_owned() };
    match (name, value.number()) {
        ("readers", Some(0.0)) => "no reader".to_owned(),
        _ => registry::describe_param(workload, name, value)
            .unwrap_or_else(|| format!("{name} = {}", value_words(name, value))),
    }
}

/// A parameter's value in the words of its unit.
fn value_words(name: &str, value: &Value) -> String {
    match value {
        Value::Number(bytes) if name.ends_with("_bytes") => units::format_bytes(*bytes),
        Value::Number(ns) if name.ends_with("_ns") => units::format_ns(*ns),
        value => value.to_string(),
    }
}

fn series(plot: &Plot, rows: &[&Row], xs: &[X], locks: &[String]) -> Vec<Series> {
    let Some(PlotMetric::Figure(metric)) = &plot.metric else { return Vec::new() };
    let flagship = flagship(rows.iter().map(|row| row.lock.as_str()));
    let workloads = plot.workload.list();
    // (name, value of the series parameter) in the order of the legend.
    let names: Vec<(String, Option<X>)> = if plot.series.is_empty() && workloads.len() > 1 {
        workloads.iter().map(|workload| (workload.clone(), None)).collect()
    } else if plot.series.is_empty() {
        locks.iter().map(|lock| (lock.clone(), None)).collect()
    } else {
        values(rows, &plot.series)
            .into_iter()
            .map(|value| (group_words(&workloads[0], &plot.series, &value), Some(value)))
            .collect()
    };
    let mut colors = PALETTE.iter().cycle();
    let mut all = Vec::new();
    for (name, value) in names {
        let mut points: Vec<(usize, Estimate)> = rows
            .iter()
            .filter(|row| match &value {
                None if workloads.len() > 1 => row.workload == name,
                None => row.lock == name,
                Some(value) => registry::param(row, &plot.series) == *value,
            })
            .filter_map(|row| {
                let x = x_of(row, &plot.x)?;
                Some((xs.iter().position(|known| *known == x)?, metric.figure(row)?))
            })
            .collect();
        if points.is_empty() {
            continue;
        }
        points.sort_by_key(|(x, _)| *x);
        let is_flagship = flagship == Some(name.as_str());
        let color = if is_flagship {
            FLAGSHIP_COLOR
        } else {
            *colors.next().expect("a cycle does not end")
        };
        all.push(Series { name, color, is_flagship, points });
    }
    all
}

/// A logarithmic axis that says so where a figure has no place on it: 0 has a line of its own below
/// the lowest decade, and what is more than nothing but too little is marked at the edge.
struct LogAxis {
    /// Whole decades around the figures above zero.
    decades: std::ops::Range<f64>,
    /// Some figure, or an end of its interval, is 0.
    has_zero: bool,
}

impl LogAxis {
    fn of(series: &[Series]) -> LogAxis {
        let figures = || series.iter().flat_map(|series| &series.points).map(|(_, figure)| figure);
        let positive = |value: &f64| *value > 0.0 && value.is_finite();
        let low = figures().map(|it| it.median).filter(positive).fold(f64::INFINITY, f64::min);
        let high =
            figures().flat_map(|it| [it.median, it.high]).filter(positive).fold(0.0, f64::max);
        let has_zero = figures().any(|it| it.low <= 0.0 || it.median <= 0.0);
        if low > high {
            return LogAxis { decades: 0.1..10.0, has_zero };
        }
        // A lock that all but stops must not flatten the others: six decades are enough.
        let low = low.max(high / 1e6);
        LogAxis { decades: 10f64.powf((low * 0.8).log10().floor())..(high * 1.3), has_zero }
    }

    /// Where 0 stands, as if it were this figure: near enough that no decade comes between.
    fn zero(&self) -> f64 {
        self.decades.start / 2.0
    }

    /// What the axis shows.
    fn shown(&self) -> std::ops::Range<f64> {
        let start = if self.has_zero { self.zero() / 1.2 } else { self.decades.start };
        start..self.decades.end
    }

    /// Where a figure stands.
    fn place(&self, value: f64) -> f64 {
        match value {
            // Of 0, and of no number at all.
            none if none.is_nan() || none <= 0.0 => self.zero(),
            value => value.clamp(self.decades.start, self.decades.end),
        }
    }

    /// More than nothing, and below all that is shown.
    fn is_below(&self, value: f64) -> bool {
        value > 0.0 && value < self.decades.start
    }
}

pub(crate) fn text_style<'a>(
    color: &'a RGBColor,
    horizontal: HPos,
    vertical: VPos,
) -> TextStyle<'a> {
    TextStyle::from(FONT.into_font()).color(color).pos(Pos::new(horizontal, vertical))
}

pub(crate) fn small_text_style<'a>(
    color: &'a RGBColor,
    horizontal: HPos,
    vertical: VPos,
) -> TextStyle<'a> {
    TextStyle::from(("sans-serif", 11).into_font()).color(color).pos(Pos::new(horizontal, vertical))
}

fn lines(root: &Area<'_>, plot: &Plot, xs: &[X], series: &[Series]) -> Drawn {
    let axis = LogAxis::of(series);
    let bottom_edge = axis.shown().start;
    let last = xs.len().saturating_sub(1) as f64;
    let mut chart = ChartBuilder::on(root)
        .margin_top(12)
        .margin_right(LABEL_WIDTH)
        .x_label_area_size(42)
        .y_label_area_size(72)
        .build_cartesian_2d(-0.15..last + 0.1, axis.shown().log_scale())?;
    let label = |x: &f64| {
        let index = x.round();
        if (x - index).abs() < 1e-6 && index >= 0.0 {
            xs.get(index as usize)
                .map(|x| x.as_ref().map_or("alone".to_owned(), |x| value_words(&plot.x, x)))
                .unwrap_or_default()
        } else {
            String::new()
        }
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(FAINT)
        .x_labels(0)
        .y_label_formatter(&|value| match *value < axis.decades.start {
            true => String::new(),
            false => formatted(plot, *value),
        })
        .y_labels(8)
        .label_style(text_style(&TEXT, HPos::Center, VPos::Center))
        .draw()?;
    let clamp = |value: f64| axis.place(value);
    if axis.has_zero {
        let ends = [(-0.15, axis.zero()), (last + 0.1, axis.zero())];
        let [left, right] = ends.map(|end| chart.backend_coord(&end));
        let line = DashedPathElement::new(vec![left, right], 3, 3, TEXT.mix(0.6));
        root.draw(&line)?;
        let style = text_style(&TEXT, HPos::Right, VPos::Center);
        root.draw(&Text::new(ZERO, (left.0 - 8, left.1), style))?;
    }
    for (index, _) in xs.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(index as f64, bottom_edge));
        root.draw(&Text::new(
            label(&(index as f64)),
            (x, y + 8),
            text_style(&TEXT, HPos::Center, VPos::Top),
        ))?;
    }
    let (middle, bottom) = chart.backend_coord(&(last / 2.0, bottom_edge));
    root.draw(&Text::new(
        plot.x.clone(),
        (middle, bottom + 26),
        text_style(&TEXT, HPos::Center, VPos::Top),
    ))?;

    // The flagship last, on top of the others.
    let mut ordered: Vec<&Series> = series.iter().collect();
    ordered.sort_by_key(|series| series.is_flagship);
    for series in &ordered {
        let flagship = series.is_flagship;
        let width = if flagship { 4 } else { 2 };
        let style = series.color.stroke_width(width);
        let points = series.points.iter().map(|(x, figure)| (*x as f64, clamp(figure.median)));
        chart.draw_series(LineSeries::new(points.clone(), style))?;
        let size = if flagship { 5 } else { 3 };
        for (point, (_, figure)) in points.zip(&series.points) {
            // A figure that is not where it belongs is no full circle.
            let is_there = figure.median >= axis.decades.start;
            let style = if is_there { series.color.filled() } else { series.color.stroke_width(2) };
            chart.draw_series([Circle::new(point, size, style)])?;
            if axis.is_below(figure.median) {
                let (x, y) = chart.backend_coord(&point);
                let words = formatted(plot, figure.median);
                let style = small_text_style(&TEXT, HPos::Center, VPos::Bottom);
                root.draw(&Text::new(format!("{BELOW} {words}"), (x, y - 6), style))?;
            }
        }
        chart.draw_series(series.points.iter().map(|(x, figure)| {
            let x = *x as f64;
            PathElement::new(
                vec![(x, clamp(figure.low)), (x, clamp(figure.high))],
                series.color.stroke_width(1),
            )
        }))?;
    }

    // Each name at the end of its line, moved apart where they would overlap.
    let mut labels: Vec<(i32, i32, &Series)> = ordered
        .iter()
        .filter_map(|series| {
            let (x, figure) = series.points.last()?;
            let (x, y) = chart.backend_coord(&(*x as f64, clamp(figure.median)));
            Some((x, y, *series))
        })
        .collect();
    labels.sort_by_key(|(_, y, _)| *y);
    let mut heights: Vec<i32> = labels.iter().map(|(_, y, _)| *y).collect();
    spread(&mut heights, 12, bottom);
    let right = (WIDTH - LABEL_WIDTH) as i32 + 16;
    for ((x, y, series), height) in labels.iter().zip(heights) {
        root.draw(&PathElement::new(
            vec![(x + 6, *y), (right - 4, height)],
            series.color.mix(0.5).stroke_width(1),
        ))?;
        let mut style = text_style(&series.color, HPos::Left, VPos::Center);
        if series.is_flagship {
            style = TextStyle::from(FONT.into_font().style(FontStyle::Bold))
                .color(&series.color)
                .pos(Pos::new(HPos::Left, VPos::Center));
        }
        root.draw(&Text::new(series.name.clone(), (right, height), style))?;
    }
    root.present()?;
    Ok(())
}

/// A lock's share of operations in each power of two of a nanosecond.
struct Steps {
    name: String,
    color: RGBColor,
    is_flagship: bool,
    /// By the exponent.
    shares: Vec<f64>,
}

/// A value of the plot's figure, in words.
fn formatted(plot: &Plot, value: f64) -> String {
    match &plot.metric {
        Some(PlotMetric::Figure(metric)) => metric.format(value),
        _ => units::format_number(value),
    }
}

/// The counts that a histogram shows.
fn counts<'a>(plot: &Plot, row: &'a Row) -> Option<&'a [u64]> {
    match &plot.metric {
        Some(PlotMetric::Histogram(metric)) => metric.of(row),
        _ => None,
    }
}

/// The counts of each lock's first row that has some.
fn steps(plot: &Plot, rows: &[&Row], locks: &[String]) -> Vec<Steps> {
    let counted = locks.iter().filter_map(|lock| {
        let mut of_lock = rows.iter().filter(|row| row.lock == *lock);
        Some((lock, of_lock.find_map(|row| counts(plot, row))?))
    });
    let counted: Vec<(&String, &[u64])> = counted.collect();
    let flagship = flagship(counted.iter().map(|(lock, _)| lock.as_str()));
    let mut colors = PALETTE.iter().cycle();
    let of = |(lock, counts): (&String, &[u64])| {
        let all = counts.iter().sum::<u64>().max(1) as f64;
        let is_flagship = flagship == Some(lock.as_str());
        let color = if is_flagship {
            FLAGSHIP_COLOR
        } else {
            *colors.next().expect("a cycle does not end")
        };
        let shares = counts.iter().map(|count| *count as f64 / all).collect();
        Steps { name: lock.clone(), color, is_flagship, shares }
    };
    counted.into_iter().map(of).collect()
}

/// Steps over a logarithmic axis of time; each ends at 0 on both sides.
fn histogram(root: &Area<'_>, steps: &[Steps]) -> Drawn {
    // About so many labels of a time fit below the axis.
    const MOST_LABELS: usize = 14;
    // A name of a lock takes so much of the legend at most, on average.
    const NAMES_PER_LINE: u32 = 6;
    let shares = || steps.iter().flat_map(|it| it.shares.iter().copied());
    let highest = shares().fold(0.0, f64::max);
    let first = |it: &Steps| it.shares.iter().position(|share| *share > 0.0).unwrap_or(0);
    let from = steps.iter().map(first).min().unwrap_or(0);
    let to = steps.iter().map(|it| it.shares.len()).max().unwrap_or(1);
    let names: Vec<(&str, RGBColor)> =
        steps.iter().map(|it| (it.name.as_str(), it.color)).collect();
    let legend_height = 17 * (names.len() as u32).div_ceil(NAMES_PER_LINE);
    let mut chart = ChartBuilder::on(root)
        .margin_top(12 + legend_height)
        .margin_right(24)
        .x_label_area_size(42)
        .y_label_area_size(60)
        .build_cartesian_2d(from as f64..to as f64, 0.0..highest * 1.05)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(FAINT)
        .x_labels(0)
        .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
        .y_labels(6)
        .label_style(text_style(&TEXT, HPos::Center, VPos::Center))
        .draw()?;
    for exponent in (from..=to).step_by((to - from).div_ceil(MOST_LABELS).max(1)) {
        let (x, y) = chart.backend_coord(&(exponent as f64, 0.0));
        // The first step has all below 2 ns, 0 among them.
        let start = if exponent == 0 { 0.0 } else { 2f64.powi(exponent as i32) };
        let words = units::format_ns(start);
        root.draw(&Text::new(words, (x, y + 8), text_style(&TEXT, HPos::Center, VPos::Top)))?;
    }
    // The flagship last, on top of the others.
    let mut ordered: Vec<&Steps> = steps.iter().collect();
    ordered.sort_by_key(|it| it.is_flagship);
    for it in ordered {
        let corners = it.shares.iter().enumerate().skip(from).flat_map(|(exponent, share)| {
            [(exponent as f64, *share), ((exponent + 1) as f64, *share)]
        });
        let ends = [(from as f64, 0.0), (it.shares.len() as f64, 0.0)];
        let corners = ends[..1].iter().copied().chain(corners).chain(ends[1..].iter().copied());
        let width = if it.is_flagship { 4 } else { 2 };
        chart.draw_series(LineSeries::new(corners, it.color.stroke_width(width)))?;
    }
    legend(root, 16, 6, &names)?;
    root.present()?;
    Ok(())
}

/// Moves sorted heights at least a step apart within the given bounds.
fn spread(heights: &mut [i32], top: i32, bottom: i32) {
    let mut next = top;
    for height in heights.iter_mut() {
        *height = (*height).max(next);
        next = *height + LABEL_STEP;
    }
    let mut next = bottom;
    for height in heights.iter_mut().rev() {
        *height = (*height).min(next);
        next = *height - LABEL_STEP;
    }
}

fn bars(root: &Area<'_>, plot: &Plot, xs: &[X], series: &[Series]) -> Drawn {
    const LEFT: i32 = 16;
    const TOP: i32 = 52;
    let bottom = HEIGHT as i32 - 48;
    let width = WIDTH as i32 - 2 * LEFT;
    let medians =
        || series.iter().flat_map(|series| &series.points).map(|(_, figure)| figure.median);
    let high = medians().fold(0.0, f64::max);
    let low = medians().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
    let logarithmic = high / low > 30.0;
    let axis = LogAxis::of(series);
    let range = &axis.decades;
    let height_of = |value: f64| -> i32 {
        let part = if high <= 0.0 || value <= 0.0 {
            0.0
        } else if logarithmic {
            (value / range.start).ln() / (range.end / range.start).ln()
        } else {
            value / high
        };
        (part.clamp(0.0, 1.0) * f64::from(bottom - TOP - 20)) as i32
    };

    // Groups hold only their own bars: "no reader" stands alone, not beside empty places.
    let mut x = LEFT;
    let group_bars: Vec<Vec<(&Series, Estimate)>> = (0..xs.len())
        .map(|index| {
            series
                .iter()
                .filter_map(|series| {
                    let (_, figure) = series.points.iter().find(|(x, _)| *x == index)?;
                    Some((series, *figure))
                })
                .collect()
        })
        .collect();
    let slots: usize = group_bars.iter().map(|bars| bars.len() + 1).sum();
    let slot = width / slots.max(1) as i32;
    let bar = (slot - 4).clamp(6, 56);
    for (bars, value) in group_bars.iter().zip(xs) {
        let start = x;
        for (series, figure) in bars {
            let top = bottom - height_of(figure.median);
            root.draw(&Rectangle::new([(x, top), (x + bar, bottom)], series.color.filled()))?;
            let (low, high) = (bottom - height_of(figure.low), bottom - height_of(figure.high));
            let middle = x + bar / 2;
            root.draw(&PathElement::new(
                vec![(middle, low), (middle, high)],
                TEXT.stroke_width(1),
            ))?;
            let mut words = formatted(plot, figure.median);
            if logarithmic && axis.is_below(figure.median) {
                words = format!("{BELOW} {words}");
            }
            let small = small_text_style(&TEXT, HPos::Center, VPos::Bottom);
            root.draw(&Text::new(words.replace("/s", ""), (middle, high.min(top) - 4), small))?;
            x += slot;
        }
        let middle = (start + x) / 2 - (slot - bar) / 2;
        let words = group_words(&plot.workload.list()[0], &plot.x, value);
        root.draw(&Text::new(
            words,
            (middle, bottom + 8),
            text_style(&TEXT, HPos::Center, VPos::Top),
        ))?;
        x += slot;
    }
    root.draw(&PathElement::new(
        vec![(LEFT, bottom), (LEFT + width, bottom)],
        FAINT.stroke_width(1),
    ))?;
    if logarithmic {
        let has_zero = medians().any(|value| value <= 0.0);
        let note =
            if has_zero { "logarithmic heights; no height: 0" } else { "logarithmic heights" };
        let position = (WIDTH as i32 - LEFT, bottom + 28);
        root.draw(&Text::new(note, position, text_style(&TEXT, HPos::Right, VPos::Top)))?;
    }
    let names: Vec<(&str, RGBColor)> =
        series.iter().map(|series| (series.name.as_str(), series.color)).collect();
    legend(root, LEFT, 6, &names)?;
    root.present()?;
    Ok(())
}

/// Coloured squares with names, wrapped to the drawing's width.
pub(crate) fn legend(root: &Area<'_>, left: i32, top: i32, names: &[(&str, RGBColor)]) -> Drawn {
    let (mut x, mut y) = (left, top);
    for (name, color) in names {
        let width = 26 + 8 * name.chars().count() as i32;
        if x + width > WIDTH as i32 {
            (x, y) = (left, y + 17);
        }
        root.draw(&Rectangle::new([(x, y), (x + 11, y + 11)], color.filled()))?;
        root.draw(&Text::new(
            (*name).to_owned(),
            (x + 16, y + 6),
            text_style(&TEXT, HPos::Left, VPos::Center),
        ))?;
        x += width;
    }
    Ok(())
}

/// A lock's bars: the role, its length between 0 and 1, and what to write beside it.
type RoleBars = (String, Vec<(String, f64, String)>);

fn role_color(role: &str) -> RGBColor {
    match role {
        "reader" => READER_COLOR,
        "writer" => WRITER_COLOR,
        _ => OTHER_COLOR,
    }
}

/// Each role's part of all operations, by lock.
fn shares(rows: &[&Row]) -> Vec<RoleBars> {
    rows.iter()
        .filter_map(|row| {
            let total: f64 = row.roles.values().map(|role| role.ops_per_s.median).sum();
            (row.roles.len() > 1).then(|| {
                let bars = row.roles.iter().map(|(name, role)| {
                    // Where nobody did anything all have none of it.
                    let share = if total > 0.0 { role.ops_per_s.median / total } else { 0.0 };
                    (name.clone(), share, format!("{:.0} %", share * 100.0))
                });
                (row.lock.clone(), bars.collect())
            })
        })
        .collect()
}

/// Each role's rate over its rate with the other role absent, by lock.
fn of_alone(rows: &[&Row], all_rows: &[Row]) -> Vec<RoleBars> {
    let mut locks = Vec::new();
    for row in rows.iter().filter(|row| row.roles.len() > 1) {
        let mut bars = Vec::new();
        for (name, role) in &row.roles {
            let alone = all_rows.iter().find(|other| {
                other.workload == row.workload
                    && other.machine == row.machine
                    && other.lock == row.lock
                    && other.roles.len() == 1
                    && other.roles.get(name).is_some_and(|other| other.threads == role.threads)
            });
            let Some(alone) = alone.and_then(|row| row.roles.get(name)) else { continue };
            if alone.ops_per_s.median > 0.0 {
                let part = role.ops_per_s.median / alone.ops_per_s.median;
                bars.push((name.clone(), part, units::format_number(part)));
            } else {
                bars.push((name.clone(), 0.0, "0 alone".to_owned()));
            }
        }
        if !bars.is_empty() {
            locks.push((row.lock.clone(), bars));
        }
    }
    locks
}

fn role_bars(root: &Area<'_>, kind: PlotKind, locks: &[RoleBars], step: i32) -> Drawn {
    const LEFT: i32 = 140;
    const TOP: i32 = 34;
    let right = WIDTH as i32 - 70;
    let width = f64::from(right - LEFT);
    let mut roles: Vec<&str> = Vec::new();
    for (_, bars) in locks {
        for (role, _, _) in bars {
            if !roles.contains(&role.as_str()) {
                roles.push(role);
            }
        }
    }
    let flagship = flagship(locks.iter().map(|(lock, _)| lock.as_str()));
    let names: Vec<(&str, RGBColor)> = roles.iter().map(|role| (*role, role_color(role))).collect();
    legend(root, LEFT, 6, &names)?;
    for (index, (lock, bars)) in locks.iter().enumerate() {
        let top = TOP + step * index as i32;
        let mut style = text_style(&TEXT, HPos::Right, VPos::Center);
        if flagship == Some(lock.as_str()) {
            style = TextStyle::from(FONT.into_font().style(FontStyle::Bold))
                .color(&FLAGSHIP_COLOR)
                .pos(Pos::new(HPos::Right, VPos::Center));
        }
        let inner = if kind == PlotKind::Shares { step - 6 } else { (step - 8) / 2 };
        let height = if kind == PlotKind::Shares { inner } else { 2 * inner };
        root.draw(&Text::new(lock.clone(), (LEFT - 10, top + height / 2), style))?;
        let (mut x, mut y) = (LEFT, top);
        // Roles that have no share, and so no bar.
        let mut starved = Vec::new();
        for (role, part, words) in bars {
            let length = (part.clamp(0.0, 1.0) * width) as i32;
            let color = role_color(role);
            root.draw(&Rectangle::new([(x, y), (x + length, y + inner)], color.filled()))?;
            if kind == PlotKind::Shares {
                if *part <= 0.0 {
                    starved.push(format!("{role} 0"));
                }
                if length > 36 {
                    let middle = (x + length / 2, y + inner / 2);
                    root.draw(&Text::new(
                        words.clone(),
                        middle,
                        small_text_style(&ON_BAR, HPos::Center, VPos::Center),
                    ))?;
                }
                x += length;
            } else {
                root.draw(&Text::new(
                    words.clone(),
                    (x + length + 6, y + inner / 2),
                    small_text_style(&TEXT, HPos::Left, VPos::Center),
                ))?;
                y += inner;
            }
        }
        let style = small_text_style(&TEXT, HPos::Left, VPos::Center);
        root.draw(&Text::new(starved.join(", "), (x + 6, top + inner / 2), style))?;
    }
    let bottom = TOP + step * locks.len() as i32;
    let half = LEFT + (width / 2.0) as i32;
    root.draw(&DashedPathElement::new(vec![(half, TOP - 4), (half, bottom)], 4, 4, TEXT.mix(0.6)))?;
    root.draw(&Text::new("½", (half, bottom + 4), text_style(&TEXT, HPos::Center, VPos::Top)))?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::metric::HistogramMetric;
    use crate::study;
    use crate::study::claim::Names;

    fn rows() -> Vec<Row> {
        let mut rows = Vec::new();
        for lock in ["rwsem", "std", "usync"] {
            for (readers, writers) in [(1.0, 1.0), (4.0, 4.0), (32.0, 32.0), (4.0, 0.0), (0.0, 4.0)]
            {
                rows.push(example::row("mix", lock, &[("readers", readers), ("writers", writers)]));
            }
        }
        rows
    }

    fn plot(kind: &str) -> Plot {
        toml::from_str(&format!(
            "title = \"a < b\"\nkind = \"{kind}\"\nworkload = \"mix\"\nx = \"threads\"\n\
             metric = \"total_ops_per_s\"\nroles = [\"reader\", \"writer\"]"
        ))
        .unwrap()
    }

    #[test]
    fn every_kind_of_plot_names_its_locks_and_takes_the_pages_colour() {
        for kind in ["lines", "shares", "alone"] {
            let svg = svg(&plot(kind), &rows()).unwrap();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{kind}");
            for lock in ["rwsem", "std", "usync"] {
                assert!(svg.contains(lock), "{kind} lacks {lock}");
            }
            assert!(svg.contains("<title>a &lt; b</title>"));
            assert!(svg.contains("currentColor") && !svg.contains("#000000"));
        }
        assert!(svg(&plot("bars"), &rows()).unwrap().contains("64 threads"));
    }

    #[test]
    fn a_histogram_has_steps_for_each_lock_over_powers_of_two() {
        let histogram = |name: &str| HistogramMetric::try_from(name.to_owned()).unwrap();
        let of = |name: &str| Plot {
            metric: Some(PlotMetric::Histogram(histogram(name))),
            ..plot("histogram")
        };
        let svg = svg(&of("roles.writer.hold_histogram"), &rows()).unwrap();
        for words in ["rwsem", "std", "usync", "512ns", "%"] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
        let row = &rows()[0];
        let steps =
            steps(&of("roles.writer.hold_histogram"), &[row], std::slice::from_ref(&row.lock));
        // 400 ns are between 2^8 and 2^9.
        assert_eq!(steps[0].shares[7..9], [0.1, 0.6]);
        assert!(super::svg(&of("roles.low.wait_histogram"), &rows()).is_none());
    }

    #[test]
    fn a_plot_of_several_workloads_names_them_instead_of_the_lock() {
        let params = [("readers", 1.0), ("writers", 1.0), ("read_bytes", 4096.0)];
        let rows = ["dio-kernel", "dio-log"].map(|it| example::row(it, "kernel", &params));
        let plot = Plot {
            workload: Names::Many(rows.iter().map(|row| row.workload.clone()).collect()),
            locks: Names::One("kernel".to_owned()),
            x: "read_bytes".to_owned(),
            ..plot("bars")
        };
        let svg = svg(&plot, &rows).unwrap();
        assert!(svg.contains("dio-kernel") && svg.contains("dio-log"), "{svg}");
        assert!(svg.contains("reads of 4 KiB"), "{svg}");
    }

    #[test]
    fn rates_of_zero_and_single_points_are_drawn() {
        let mut rows = rows();
        for row in &mut rows {
            row.total_ops_per_s = example::estimate(0.0);
        }
        assert!(svg(&plot("lines"), &rows).is_some());
        assert!(svg(&plot("bars"), &rows).is_some());
        assert!(svg(&plot("lines"), &rows[..1]).is_some());
        assert!(svg(&plot("lines"), &[]).is_none());
    }

    #[test]
    fn zero_has_a_place_of_its_own_on_a_logarithmic_axis() {
        let mut rows = rows();
        let rate = |row: &mut Row, rate| row.total_ops_per_s = example::estimate(rate);
        rows.iter_mut().for_each(|row| rate(row, 1e6));
        let plain = svg(&plot("lines"), &rows).unwrap();
        let marks =
            |svg: &str, words: &str| svg.lines().filter(|line| line.trim() == words).count();
        assert_eq!(marks(&plain, ZERO), 0);
        let index = rows.iter().position(|row| row.lock == "std" && row.params.len() > 1).unwrap();
        rate(&mut rows[index], 0.0);
        let starved = svg(&plot("lines"), &rows).unwrap();
        assert_eq!(marks(&starved, ZERO), 1, "{starved}");
        // More than nothing, and less than six decades below the others.
        rate(&mut rows[index], 0.01);
        let slow = svg(&plot("lines"), &rows).unwrap();
        assert_eq!(marks(&slow, ZERO), 0);
        assert!(slow.lines().any(|line| line.trim().starts_with(BELOW)), "{slow}");

        let point = |median| (0, Estimate { median, low: median, high: median });
        let series = |medians: &[f64]| {
            let points = medians.iter().map(|median| point(*median)).collect();
            vec![Series { name: String::new(), color: TEXT, is_flagship: false, points }]
        };
        let axis = LogAxis::of(&series(&[0.0, 3.0, 400.0]));
        assert_eq!((axis.decades.start, axis.has_zero), (1.0, true));
        let places = [0.0, 3.0, 400.0].map(|value| axis.place(value));
        assert!(axis.shown().start < places[0] && places[0] < 1.0 && places.is_sorted());
        assert!(!LogAxis::of(&series(&[3.0])).has_zero);
        assert!(LogAxis::of(&series(&[0.0])).has_zero);
    }

    #[test]
    fn a_role_without_any_share_is_named() {
        let mut rows = rows();
        for row in &mut rows {
            if let Some(writer) = row.roles.get_mut("writer") {
                writer.ops_per_s = example::estimate(0.0);
            }
        }
        assert!(svg(&plot("shares"), &rows).unwrap().contains("writer 0"));
        assert!(svg(&plot("alone"), &rows).unwrap().contains("0 alone"));
        for row in &mut rows {
            row.roles.values_mut().for_each(|role| role.ops_per_s = example::estimate(0.0));
        }
        assert!(svg(&plot("shares"), &rows).unwrap().contains("reader 0, writer 0"));
    }

    #[test]
    fn every_plot_of_every_study_draws_the_rows_of_its_grid() {
        for name in study::names() {
            let study = study::find(name).unwrap();
            let mut rows = Vec::new();
            for batch in study.batches(study::Effort::default()) {
                rows.extend(batch.cells.iter().map(example::row_of));
            }
            for plot in &study.plots {
                assert!(svg(plot, &rows).is_some(), "{}", plot.title);
            }
        }
    }

    #[test]
    fn names_at_the_ends_of_lines_do_not_overlap() {
        let mut heights = [100, 101, 102, 390, 391];
        spread(&mut heights, 10, 380);
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= LABEL_STEP), "{heights:?}");
        assert!(heights[4] <= 380);
    }
}
