//! The charts of a report on a run.

use fairlock_counts::layout::{BUCKETS, bucket, bucket_end};
use fairlock_report::chart::{
    Bar, Bars, Chart, Group, Histogram, Looks, Part, Range, Ranges, Stack, Stacks, Steps, USUAL,
};
use fairlock_report::quantity::{Figure, Unit};
use fairlock_report::units::{format_count, format_ns, plural};

use crate::facts::{Compared, Lock, Thread, Times};

/// More threads than that are no picture any more.
const MOST_THREADS: usize = 16;
/// Longer waits and holds than that, some 300 years, are in the last bucket, whose end is no time.
const LAST_EDGE_NS: f64 = 1e19;

/// How long each role took for something; nothing where there are no such times.
pub(crate) fn times(title: &str, what: &str, roles: &[(&str, &Times)]) -> Option<Chart> {
    // The bucket that ends there: the last one's end is no time.
    let index =
        |end: u64| if end == u64::MAX { BUCKETS - 1 } else { bucket(end.saturating_sub(1)) };
    let roles: Vec<_> = roles.iter().filter(|(_, times)| times.count > 0).collect();
    let counted = roles.iter().flat_map(|(_, times)| &times.buckets);
    let used: Vec<usize> =
        counted.filter(|(_, count)| *count > 0).map(|(end, _)| index(*end)).collect();
    let (from, to) = (*used.iter().min()?, *used.iter().max()? + 1);
    let histograms = roles.iter().map(|(name, times)| {
        let all = times.buckets.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
        let mut shares = vec![0.0; to - from];
        for (end, count) in times.buckets.iter().filter(|(_, count)| *count > 0) {
            shares[index(*end) - from] += *count as f64 / all.max(1) as f64;
        }
        Histogram { name: (*name).to_owned(), look: Looks::role(name), shares }
    });
    let start = |at: usize| match at {
        0 => 0.0,
        BUCKETS => LAST_EDGE_NS.max(2.0 * bucket_end(BUCKETS - 2) as f64),
        at => bucket_end(at - 1) as f64,
    };
    let (histograms, edges) = (histograms.collect(), (from..=to).map(start).collect());
    Some(Chart::new(title, Steps { title: format!("share of the {what}"), edges, histograms }))
}

/// Acquisitions of each thread.
pub(super) fn threads(title: &str, threads: &[Thread]) -> Option<Chart> {
    let stacks = threads.iter().take(MOST_THREADS).map(|thread| Stack {
        name: thread.name.clone(),
        parts: vec![
            Part::new("reads", thread.reads as f64),
            Part::new("writes", thread.writes as f64),
        ],
        note: format_count(thread.acquired() as f64),
    });
    let stacks: Vec<Stack> = stacks.collect();
    let any = !stacks.is_empty();
    any.then(|| Chart::new(title, Stacks::new("acquisitions", Unit::Count, stacks)))
}

/// Time waited by who waited and who held the lock.
pub(super) fn waits(title: &str, lock: &Lock) -> Option<Chart> {
    let name = |waits: &crate::facts::WaitedFor| format!("{} for {}", waits.waiter, waits.holder);
    let bars = lock.waits.iter().map(|waits| {
        let (time, count) = (format_ns(waits.wait_ns as f64), format_count(waits.count as f64));
        let times = plural(waits.count, "wait");
        let figure = Figure::exactly(waits.wait_ns as f64);
        Bar { name: name(waits), figure, note: format!("{time} in {count} {times}") }
    });
    let looks = lock.waits.iter().map(|waits| (name(waits), Looks::role(&waits.waiter)));
    let (bars, looks): (Vec<Bar>, _) = (bars.collect(), looks.collect());
    let any = !bars.is_empty();
    let groups = vec![Group { name: String::new(), bars }];
    any.then(|| Chart::new(title, Bars::with_looks("waited together", Unit::Time, groups, looks)))
}

/// The ratios of whole runs, with their ranges and, where there are any, their intervals; nothing
/// where no lock was used that could be the reason.
pub(super) fn ratios(title: &str, compared: &Compared) -> Option<Chart> {
    let mut looks = Looks::of(&USUAL);
    let ranges = compared.policies.iter().filter_map(|it| {
        let (name, seen) = (it.policy.clone(), it.ratio_range.or(it.ratio)?.into());
        // Counted runs of a policy look like the others, and glibc's lock is the pthread one.
        let policy = name.split('+').next().unwrap_or(&name);
        let look = looks.look(if policy == "glibc" { "pthread" } else { policy });
        Some(Range { name, look, seen, interval: it.ratio.map(Figure::from) })
    });
    let ranges: Vec<Range> = ranges.collect();
    if ranges.is_empty() || compared.used_locks == Some(false) {
        return None;
    }
    let mark = (1.0, format!("1: as {}", compared.control));
    let axis = format!("time of a run over that of {}", compared.control);
    let note = "Thin lines are all ratios, thick ones 95 % intervals.";
    Some(Chart::new(title, Ranges::new(axis, Unit::Number, mark, ranges)).note(note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::report::Report;

    fn html(chart: Option<Chart>) -> String {
        chart.expect("there is something to show").html().into_string()
    }

    #[test]
    fn every_chart_names_what_it_shows_and_there_is_none_of_nothing() {
        let mut snapshot = example::snapshot();
        snapshot.locks.push(example::starving_writer());
        let report = Report::new(&[snapshot], None, &[]);
        let lock = &report.locks[0];
        let charts = [
            (
                times("a < b", "waits", &lock.roles().map(|(name, role)| (name, &role.wait))),
                "writes",
            ),
            (threads("a < b", &lock.threads), "reader-2"),
            (waits("a < b", lock), "writes for reads"),
            (ratios("a < b", &example::comparison()), "1: as glibc"),
        ];
        for (chart, words) in charts {
            let html = html(chart);
            assert!(html.contains(words) && html.contains("a &lt; b"), "{html}");
        }
        let nothing = [
            times("", "", &[("reads", &Times::default())]),
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
        assert!(html(threads("", &report.locks[0].threads)).contains("writer"));
    }

    #[test]
    fn the_longest_times_are_drawn_in_the_last_bucket() {
        let longest = Times { count: 1, buckets: vec![(u64::MAX, 1)], ..Times::default() };
        let chart = times("", "waits", &[("reads", &longest)]).expect("one");
        let fairlock_report::chart::Picture::Steps(steps) = chart.picture else { panic!() };
        assert!(steps.edges.is_sorted_by(|one, next| one < next), "{:?}", steps.edges);
        assert_eq!(steps.histograms[0].shares, [1.0]);
    }
}
