//! A timeline as a chart: a row for each thread, coloured by what it does.

use fairlock_report::chart::{self, Doing, ThreadRow};
use fairlock_report::timeline::{ACTIVITIES, MEASURING_BEGINS, SECTIONS, SLOTS, Timeline};

/// The colour of each letter of [`ACTIVITIES`] and of [`SECTIONS`], and the part of a row that it fills: an activity
/// fills the row, a hold lies over it, and a wait runs along its foot.
const LOOKS: [(&str, f64, f64); 8] = [
    ("runs", 0.2, 0.8),
    ("spins", 0.2, 0.8),
    ("sleeps", 0.45, 0.55),
    ("ready", 0.3, 0.7),
    ("hold-read", 0.0, 0.82),
    ("hold-write", 0.0, 0.82),
    ("wait-read", 0.88, 1.0),
    ("wait-write", 0.88, 1.0),
];

/// The chart.
pub(super) fn picture(timeline: &Timeline) -> chart::Timeline {
    let letters = ACTIVITIES.iter().chain(&SECTIONS);
    let kinds = letters.clone().zip(LOOKS).map(|((_, words), (color, from, to))| Doing {
        name: (*words).to_owned(),
        color,
        from,
        to,
    });
    let threads = timeline.threads.iter().map(|row| {
        let places = [&row.activity, &row.section];
        let found = letters.clone().enumerate().flat_map(|(kind, (letter, _))| {
            let found = places.iter().flat_map(|letters| stretches(letters, *letter));
            found.map(move |(from, length)| [kind, from, length])
        });
        ThreadRow { name: row.thread.clone(), stretches: found.collect() }
    });
    chart::Timeline {
        length_ns: timeline.length_ns,
        mark: timeline.measured_from_ns.map(|ns| (ns, MEASURING_BEGINS)),
        slots: SLOTS,
        kinds: kinds.collect(),
        threads: threads.collect(),
        wake_ups: timeline.wake_ups.clone(),
    }
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
    fn a_chart_names_its_threads_and_what_the_colours_mean() {
        let timeline = example::timeline("mix", "rwsem", "eight-sockets");
        let picture = picture(&timeline);
        let names: Vec<&str> = picture.threads.iter().map(|row| row.name.as_str()).collect();
        assert!(names.contains(&"reader 1") && names.contains(&"writer 1"), "{names:?}");
        let kinds: Vec<&str> = picture.kinds.iter().map(|kind| kind.name.as_str()).collect();
        assert!(kinds.contains(&"hold write") && kinds.contains(&"woken or without a CPU"));
        assert_eq!(picture.wake_ups, timeline.wake_ups);
        let hold = kinds.iter().position(|kind| *kind == "hold write").unwrap();
        let writes = |row: &ThreadRow| row.stretches.iter().any(|it| it[0] == hold);
        assert!(picture.threads.iter().any(writes));
    }
}
