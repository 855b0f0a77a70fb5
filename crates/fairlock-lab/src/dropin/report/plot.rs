//! Plots of a report as SVG text to stand inside a page.

use fairlock_counts::layout::{BUCKETS, bucket, bucket_end};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::facts::{Compared, Lock, Thread, Times};
use crate::report::plot::{
    Area, Drawn, FAINT, PALETTE, READER_COLOR, TEXT, WIDTH, WRITER_COLOR, legend, small_text_style,
    text_style, themed,
};
use crate::row::Estimate;
use crate::units::{format_count, format_ns, format_number};

const HEIGHT: u32 = 300;
const LEFT: i32 = 170;
/// For what stands behind a bar.
const RIGHT: i32 = 90;
const TOP: i32 = 32;
const STEP: i32 = 24;
/// More threads than that are no picture any more.
const MOST_THREADS: usize = 16;

/// How long readers and writers took for something; nothing where there are no such times.
pub(super) fn times(title: &str, reads: &Times, writes: &Times) -> Option<String> {
    let roles = [("reads", READER_COLOR, reads), ("writes", WRITER_COLOR, writes)];
    let roles: Vec<_> = roles.into_iter().filter(|(_, _, times)| times.count > 0).collect();
    if roles.is_empty() {
        return None;
    }
    drawn(title, HEIGHT, |root| steps(root, &roles))
}

/// Acquisitions of each thread.
pub(super) fn threads(title: &str, threads: &[Thread]) -> Option<String> {
    let bars = threads.iter().take(MOST_THREADS).map(|thread| Bar {
        name: thread.name.clone(),
        parts: vec![(thread.reads as f64, READER_COLOR), (thread.writes as f64, WRITER_COLOR)],
        words: format_count(thread.acquired() as f64),
    });
    bar_chart(
        title,
        &bars.collect::<Vec<_>>(),
        &[("reads", READER_COLOR), ("writes", WRITER_COLOR)],
    )
}

/// Time waited by who waited and who held the lock.
pub(super) fn waits(title: &str, lock: &Lock) -> Option<String> {
    let bars = lock.waits.iter().map(|waits| Bar {
        name: format!("{} for {}", waits.waiter, waits.holder),
        parts: vec![(waits.wait_ns as f64, role_color(&waits.waiter))],
        words: format!(
            "{}, {} ×",
            format_ns(waits.wait_ns as f64),
            format_count(waits.count as f64)
        ),
    });
    bar_chart(
        title,
        &bars.collect::<Vec<_>>(),
        &[("reads", READER_COLOR), ("writes", WRITER_COLOR)],
    )
}

/// The ratios of whole runs, with their ranges and, where there are any, their intervals; nothing
/// where no lock was used that could be the reason.
pub(super) fn ratios(title: &str, compared: &Compared) -> Option<String> {
    let policies = compared.policies.iter();
    let ratios = policies
        .filter_map(|it| Some((it.policy.as_str(), it.ratio_range.or(it.ratio)?, it.ratio)));
    let ratios: Vec<(&str, Estimate, Option<Estimate>)> = ratios.collect();
    if ratios.is_empty() || compared.used_locks == Some(false) {
        return None;
    }
    let height = (TOP + STEP * ratios.len() as i32 + 40) as u32;
    drawn(title, height, |root| {
        let ends = ratios.iter().flat_map(|(_, range, _)| [range.low, range.high]);
        let (low, high) =
            ends.fold((1.0_f64, 1.0_f64), |(low, high), it| (low.min(it), high.max(it)));
        let room = (high - low).max(0.02) * 0.1;
        let (low, high) = (low - room, high + room);
        let right = WIDTH as i32 - RIGHT;
        let x = |ratio: f64| {
            let share = ((ratio - low) / (high - low)).clamp(0.0, 1.0);
            LEFT + (share * f64::from(right - LEFT)) as i32
        };
        let bottom = TOP + STEP * ratios.len() as i32;
        root.draw(&PathElement::new(
            vec![(x(1.0), TOP - 6), (x(1.0), bottom)],
            TEXT.stroke_width(1),
        ))?;
        let one = format!("1: as {}", compared.control);
        root.draw(&Text::new(
            one,
            (x(1.0), bottom + 6),
            text_style(&TEXT, HPos::Center, VPos::Top),
        ))?;
        for ((name, range, interval), index) in ratios.iter().zip(0..) {
            let y = TOP + STEP * index + STEP / 2;
            let color = PALETTE[index as usize % PALETTE.len()];
            let name = (*name).to_owned();
            root.draw(&Text::new(
                name,
                (LEFT - 10, y),
                text_style(&TEXT, HPos::Right, VPos::Center),
            ))?;
            let line = |ends: &Estimate| vec![(x(ends.low), y), (x(ends.high), y)];
            root.draw(&PathElement::new(line(range), color.stroke_width(1)))?;
            if let Some(interval) = interval {
                root.draw(&PathElement::new(line(interval), color.stroke_width(5)))?;
            }
            // Without an interval the median stands for nothing but these runs.
            let style = if interval.is_some() { color.filled() } else { color.stroke_width(2) };
            root.draw(&Circle::new((x(range.median), y), 6, style))?;
            let words = format_number(range.median);
            let style = small_text_style(&TEXT, HPos::Left, VPos::Center);
            root.draw(&Text::new(words, (right + 8, y), style))?;
        }
        root.present()?;
        Ok(())
    })
}

fn role_color(role: &str) -> RGBColor {
    if role == "reads" { READER_COLOR } else { WRITER_COLOR }
}

/// What `draw` draws, as an element for the page.
fn drawn(title: &str, height: u32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Option<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        draw(&root).ok()?;
    }
    Some(themed(&text, title))
}

/// A line of a bar chart: parts one behind the other.
struct Bar {
    name: String,
    parts: Vec<(f64, RGBColor)>,
    words: String,
}

fn bar_chart(title: &str, bars: &[Bar], names: &[(&str, RGBColor)]) -> Option<String> {
    let length = |bar: &Bar| bar.parts.iter().map(|(value, _)| value).sum::<f64>();
    let longest = bars.iter().map(length).fold(0.0, f64::max);
    if bars.is_empty() {
        return None;
    }
    // Where all are 0 only the words beside the bars say so.
    let longest = if longest > 0.0 { longest } else { 1.0 };
    let height = (TOP + STEP * bars.len() as i32 + 8) as u32;
    drawn(title, height, |root| {
        legend(root, LEFT, 6, names)?;
        let width = f64::from(WIDTH as i32 - LEFT - RIGHT);
        for (bar, index) in bars.iter().zip(0..) {
            let (top, mut x) = (TOP + STEP * index, LEFT);
            let middle = top + STEP / 2 - 3;
            let name: String = bar.name.chars().take(22).collect();
            root.draw(&Text::new(
                name,
                (LEFT - 10, middle),
                text_style(&TEXT, HPos::Right, VPos::Center),
            ))?;
            for (value, color) in &bar.parts {
                let end = x + ((value / longest).clamp(0.0, 1.0) * width) as i32;
                root.draw(&Rectangle::new([(x, top), (end, top + STEP - 6)], color.filled()))?;
                x = end;
            }
            let style = small_text_style(&TEXT, HPos::Left, VPos::Center);
            root.draw(&Text::new(bar.words.clone(), (x + 6, middle), style))?;
        }
        root.present()?;
        Ok(())
    })
}

/// Steps over a logarithmic axis of time, four to a doubling.
fn steps(root: &Area<'_>, roles: &[(&str, RGBColor, &Times)]) -> Drawn {
    // About so many labels of a time fit below the axis.
    const MOST_LABELS: usize = 12;
    // The bucket that ends there: the last one's end is no time.
    let index =
        |end: u64| if end == u64::MAX { BUCKETS - 1 } else { bucket(end.saturating_sub(1)) };
    let shares = roles.iter().map(|(name, color, times)| {
        let all = times.buckets.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
        let mut shares = vec![0.0; BUCKETS];
        for (end, count) in &times.buckets {
            shares[index(*end)] += *count as f64 / all.max(1) as f64;
        }
        (*name, *color, shares)
    });
    let shares: Vec<(&str, RGBColor, Vec<f64>)> = shares.collect();
    let used = |at: usize| shares.iter().any(|(_, _, shares)| shares[at] > 0.0);
    let from = (0..BUCKETS).find(|at| used(*at)).unwrap_or(0);
    let to = (0..BUCKETS).rfind(|at| used(*at)).unwrap_or(0) + 1;
    let highest = shares.iter().flat_map(|(_, _, shares)| shares).copied().fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(root)
        .margin_top(28)
        .margin_right(24)
        .x_label_area_size(34)
        .y_label_area_size(60)
        .build_cartesian_2d(from as f64..to as f64, 0.0..highest.max(0.01) * 1.05)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(FAINT)
        .x_labels(0)
        .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
        .y_labels(5)
        .label_style(text_style(&TEXT, HPos::Center, VPos::Center))
        .draw()?;
    let start = |at: usize| if at == 0 { 0 } else { bucket_end(at - 1) };
    for at in (from..=to).step_by((to - from).div_ceil(MOST_LABELS).max(1)) {
        let (x, y) = chart.backend_coord(&(at as f64, 0.0));
        let words = format_ns(start(at) as f64);
        root.draw(&Text::new(words, (x, y + 8), text_style(&TEXT, HPos::Center, VPos::Top)))?;
    }
    for (_, color, shares) in &shares {
        let inner =
            (from..to).flat_map(|at| [(at as f64, shares[at]), ((at + 1) as f64, shares[at])]);
        let corners = [(from as f64, 0.0)].into_iter().chain(inner).chain([(to as f64, 0.0)]);
        chart.draw_series(LineSeries::new(corners, color.stroke_width(2)))?;
    }
    let names: Vec<(&str, RGBColor)> =
        shares.iter().map(|(name, color, _)| (*name, *color)).collect();
    legend(root, 60, 6, &names)?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropin::example;
    use crate::dropin::report::Report;

    #[test]
    fn every_plot_names_what_it_shows_and_there_is_none_of_nothing() {
        let mut snapshot = example::snapshot();
        snapshot.locks.push(example::starving_writer());
        let report = Report::new(&[snapshot], None, &[]);
        let lock = &report.locks[0];
        let plots = [
            (times("a < b", &lock.reads.wait, &lock.writes.wait), "writes"),
            (threads("a < b", &lock.threads), "reader-2"),
            (waits("a < b", lock), "writes for reads"),
            (ratios("a < b", &example::comparison()), "1: as glibc"),
        ];
        for (plot, words) in plots {
            let svg = plot.expect("there is something to show");
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{words}");
            assert!(svg.contains(words) && svg.contains("<title>a &lt; b</title>"), "{svg}");
        }
        let nothing = [
            times("", &Times::default(), &Times::default()),
            threads("", &[]),
            waits("", &Lock::default()),
            ratios("", &Compared::default()),
        ];
        assert_eq!(nothing, [const { None }; 4]);
    }

    #[test]
    fn threads_that_got_nothing_are_named_too() {
        let mut lock = example::lock(2, 0, 0);
        example::still_waits(&mut lock, 3, fairlock_counts::layout::WRITE, 5, 0);
        let mut snapshot = example::snapshot();
        snapshot.locks.push(lock);
        let report = Report::new(&[snapshot], None, &[]);
        let svg = threads("", &report.locks[0].threads).expect("there are threads");
        assert!(svg.contains("writer"), "{svg}");
    }

    #[test]
    fn the_longest_times_are_drawn_in_the_last_bucket() {
        let longest = Times { count: 1, buckets: vec![(u64::MAX, 1)], ..Times::default() };
        assert!(times("", &longest, &Times::default()).is_some());
    }
}
