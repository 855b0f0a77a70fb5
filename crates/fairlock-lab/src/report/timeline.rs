//! A timeline as a picture: a row for each thread, coloured by what it does.

use std::fmt::Write as _;

use super::html::escape;
use crate::timeline::{ACTIVITIES, SECTIONS, SLOTS, Timeline};
use crate::units::format_ns;

const LEFT: usize = 84;
const TOP: usize = 30;
const ROW: usize = 16;
const STEP: usize = 22;
const RIGHT: usize = 36;
const BOTTOM: usize = 24;

/// How a letter looks: its colour, and which part of a row it fills, from the top.
struct Look {
    letter: char,
    words: &'static str,
    color: &'static str,
    from: usize,
    height: usize,
}

/// What a thread does fills its row, a hold lies over it, and a wait runs along its foot.
fn looks() -> Vec<Look> {
    let [runs, spins, sleeps, ready] = ACTIVITIES;
    let activity =
        |(letter, words), color, from, height| Look { letter, words, color, from, height };
    let section = |index: usize, color, from, height| {
        let (letter, words) = SECTIONS[index];
        Look { letter, words, color, from, height }
    };
    vec![
        activity(runs, "#b4bec8", 3, 10),
        activity(spins, "#e6c35c", 3, 10),
        activity(sleeps, "#7f8b9680", 7, 2),
        activity(ready, "#999933", 5, 6),
        section(0, "#3d9ad9", 0, 13),
        section(1, "#d55e00", 0, 13),
        section(2, "#3d9ad9", 14, 2),
        section(3, "#d55e00", 14, 2),
    ]
}

/// The picture as an SVG element.
pub(super) fn svg(timeline: &Timeline, title: &str) -> String {
    let (width, height) = (LEFT + SLOTS + RIGHT, TOP + STEP * timeline.threads.len() + BOTTOM);
    let mut svg = format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" font-family=\"sans-serif\" \
         font-size=\"11\" fill=\"currentColor\">\n<title>{}</title>\n",
        escape(title)
    );
    let mut x = LEFT;
    for look in looks() {
        let legend_top = TOP - ROW - 8;
        let (top, height) = (legend_top + 8 - look.height / 2, look.height);
        let _ = writeln!(
            svg,
            "<path fill=\"{}\" d=\"M{x} {top}h12v{height}h-12z\"/><text x=\"{}\" y=\"{}\">{}</text>",
            look.color,
            x + 16,
            legend_top + 12,
            look.words
        );
        x += 26 + 6 * look.words.len();
    }
    for (index, row) in timeline.threads.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT - 8,
            TOP + STEP * index + 12,
            escape(&row.thread)
        );
    }
    for look in looks() {
        let mut path = String::new();
        for (index, row) in timeline.threads.iter().enumerate() {
            let top = TOP + STEP * index + look.from;
            for letters in [&row.activity, &row.section] {
                for (from, length) in stretches(letters, look.letter) {
                    let (x, height) = (LEFT + from, look.height);
                    let _ = write!(path, "M{x} {top}h{length}v{height}h-{length}z");
                }
            }
        }
        if !path.is_empty() {
            let _ = writeln!(svg, "<path fill=\"{}\" d=\"{path}\"/>", look.color);
        }
    }
    let mut arrows = String::new();
    for &[by, woken, slot] in &timeline.wake_ups {
        let y = |index: usize| TOP + STEP * index + ROW / 2;
        let _ = write!(arrows, "M{} {}V{}", LEFT + slot.min(SLOTS), y(by), y(woken));
    }
    if !arrows.is_empty() {
        let _ = writeln!(
            svg,
            "<path fill=\"none\" stroke=\"currentColor\" stroke-opacity=\".45\" d=\"{arrows}\"/>"
        );
    }
    for quarter in 0..=4 {
        let x = LEFT + SLOTS * quarter / 4;
        let ns = timeline.length_ns as f64 * quarter as f64 / 4.0;
        let words = if quarter == 0 { "0".to_owned() } else { format_ns(ns) };
        let foot = height - BOTTOM;
        let _ = writeln!(
            svg,
            "<path stroke=\"currentColor\" stroke-opacity=\".3\" d=\"M{x} {foot}v5\"/>\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{words}</text>",
            foot + 17
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Where a letter stands: the first slot of each stretch, and its length.
fn stretches(letters: &str, wanted: char) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (slot, letter) in letters.chars().enumerate().take(SLOTS) {
        match found.last_mut() {
            _ if letter != wanted => {}
            Some((from, length)) if *from + *length == slot => *length += 1,
            _ => found.push((slot, 1)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn stretches_are_whole() {
        assert_eq!(stretches("hh.hHh", 'h'), [(0, 2), (3, 1), (5, 1)]);
        assert_eq!(stretches("", 'h'), []);
    }

    #[test]
    fn a_picture_names_its_threads_and_what_the_colours_mean() {
        let timeline = example::timeline("mix", "rwsem", "eight-sockets");
        let svg = svg(&timeline, "before & after");
        for words in ["reader 1", "writer 1", "hold write", "without a CPU", "before &amp; after"] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
        // Wake-ups are lines between two threads.
        assert!(svg.contains("M404 60V38"), "{svg}");
    }
}
