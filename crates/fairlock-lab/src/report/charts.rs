//! The charts of studies and benches, from rows.

use fairlock_report::chart::{
    Bar, Bars, Chart, Group, Histogram, Lines, Looks, Part, Picture, Stack, Stacks, Steps,
};
use fairlock_report::quantity::{Figure, Unit};

use super::grids::figure;
use crate::claim;
use crate::grid;
use crate::row::{Estimate, Row};
use crate::study::{Plot, PlotKind, expand_locks};
use crate::units;
use crate::world::HERE;

/// The locks that most charts have, in the order of their looks: the first has the colour that stands out, the next
/// seven have whole lines, and each further one has the colour of the one seven places before it, dashed. So locks
/// that are often compared stand not seven places apart.
pub(crate) const USUAL: [&str; 15] = [
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
    "phase-fair",
    "linux-5.1",
    "linux-5.2",
    "std-mutex",
    "pthread-writer",
];

/// The looks of a page about locks.
pub(super) fn looks() -> Looks {
    Looks::of(&USUAL)
}

/// The looks of bars or lines that are no locks: nothing has the colour that stands out.
fn looks_of_points() -> Looks {
    Looks::of(&USUAL[..1])
}

impl From<Estimate> for Figure {
    fn from(estimate: Estimate) -> Figure {
        let Estimate { median, low, high } = estimate;
        Figure { median, low, high }
    }
}

/// The chart, or nothing where no row fits it.
pub(super) fn chart(plot: &Plot, rows: &[Row], looks: &mut Looks) -> Option<Chart> {
    let workloads = plot.workload.list();
    let mut locks: Vec<String> = Vec::new();
    for workload in workloads {
        let more = expand_locks(&plot.locks, workload, plot.machine.is_some());
        locks.extend(more.into_iter().filter(|lock| !locks.contains(lock)).collect::<Vec<_>>());
    }
    let is_shown = |row: &&Row| {
        workloads.contains(&row.workload)
            && row.machine == plot.machine.as_deref().unwrap_or(HERE)
            && locks.contains(&row.lock)
            && grid::has_params(row, &plot.params)
    };
    let shown: Vec<&Row> = rows.iter().filter(is_shown).collect();
    let picture = match plot.kind {
        PlotKind::Lines => lines(plot, &with_roles(plot, &shown), &locks, looks)?,
        PlotKind::Bars => bars(plot, &with_roles(plot, &shown), &locks, looks)?,
        PlotKind::Histogram => histogram(plot, &shown, &locks, looks)?,
        PlotKind::Shares => shares(&shown)?,
        PlotKind::Alone => alone(&shown, rows)?,
    };
    Some(Chart::new(&plot.title, picture))
}

fn with_roles<'a>(plot: &Plot, rows: &[&'a Row]) -> Vec<&'a Row> {
    let has_all = |row: &&&Row| plot.roles.iter().all(|role| row.roles.contains_key(role));
    rows.iter().filter(has_all).copied().collect()
}

/// The distinct values of a parameter, ascending.
fn values(rows: &[&Row], name: &str) -> Vec<f64> {
    let mut values: Vec<f64> = rows.iter().filter_map(|row| x_of(row, name)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// The x position of rows to which the x parameter makes no difference, left of all others.
const ALONE: f64 = -1.0;

/// A row's value of the parameter along the axis.
fn x_of(row: &Row, name: &str) -> Option<f64> {
    if grid::is_idle(name, |role| grid::param(row, role)) {
        Some(ALONE)
    } else {
        grid::param(row, name)
    }
}

/// A parameter with its value, above a group of bars: `reads of 64 KiB`, `2 readers`.
fn group_words(name: &str, value: f64) -> String {
    match (name, value) {
        (_, ALONE) => "alone".to_owned(),
        ("readers", 0.0) => "no reader".to_owned(),
        ("readers" | "writers" | "threads", 1.0) => format!("1 {}", name.trim_end_matches('s')),
        ("readers" | "writers" | "threads", _) => format!("{} {name}", units::trimmed(value)),
        _ => grid::describe_param(name, value)
            .unwrap_or_else(|| format!("{name} = {}", value_words(name, value))),
    }
}

/// A parameter's value in the words of its unit.
fn value_words(name: &str, value: f64) -> String {
    if value == ALONE {
        "alone".to_owned()
    } else if name.ends_with("_bytes") {
        units::format_bytes(value)
    } else if name.ends_with("_ns") {
        units::format_ns(value)
    } else {
        units::trimmed(value)
    }
}

/// What stands below an axis of this parameter.
fn axis_words(name: &str) -> String {
    match name {
        "read_percent" => "reads, %".to_owned(),
        "read_bytes" => "size of a read".to_owned(),
        name => name.trim_end_matches("_ns").trim_end_matches("_bytes").replace('_', " "),
    }
}

/// The unit of a metric, as [`claim::format_figure`] writes it.
fn unit(metric: &str) -> Unit {
    let last = metric.rsplit('.').next().unwrap_or_default();
    let is_time = ["wait.", "hold.", "latency."].iter().any(|kind| metric.contains(kind));
    match last {
        "longest_bypass" | "count" | "torn" | "inverted" => Unit::Count,
        "longest_wait" | "ns_per_op" => Unit::Time,
        _ if is_time => Unit::Time,
        _ if metric.starts_with("cpu.") => Unit::Share,
        "bytes_per_s" => Unit::BytesPerSecond,
        _ if metric.starts_with("events.") => Unit::PerSecond,
        _ if last.ends_with("_per_s") || last.starts_with("thread_") => Unit::PerSecond,
        _ => Unit::Number,
    }
}

/// What a metric counts, for beside an axis.
fn title(metric: &str) -> String {
    let path = metric.strip_prefix("roles.").and_then(|rest| rest.split_once('.'));
    let percentile = |part: &str| match part {
        "p50" => "median".to_owned(),
        "p99" => "99th percentile".to_owned(),
        "max" => "longest".to_owned(),
        part => part.to_owned(),
    };
    match path {
        Some((role, "ops_per_s")) => format!("operations of {role}s"),
        Some((role, "bytes_per_s")) => format!("bytes of {role}s"),
        Some((role, "longest_wait")) => format!("longest wait of a {role}"),
        Some((_, rest)) if rest.starts_with("convoy.") => {
            format!("threads at the lock, {}", percentile(&rest["convoy.".len()..]))
        }
        Some((role, rest)) => match rest.split_once('.') {
            Some((what, part)) => format!("{what} of a {role}, {}", percentile(part)),
            None => format!("{} of a {role}", rest.replace('_', " ")),
        },
        None => match metric {
            "total_ops_per_s" => "operations".to_owned(),
            "voluntary_switches_per_operation" => {
                "voluntary context switches per operation".to_owned()
            }
            "ns_per_op" => "time of an operation".to_owned(),
            metric => metric.replace(['_', '.'], " "),
        },
    }
}

/// A figure for each series at each place on the x axis.
type Named = (String, Vec<(usize, Figure)>);

/// Lines or kinds of bars: by lock, by workload where there are several, or by a second parameter. Says whether
/// they are locks.
fn series(plot: &Plot, rows: &[&Row], xs: &[f64], locks: &[String]) -> (Vec<Named>, bool) {
    let workloads = plot.workload.list();
    // (name, value of the series parameter) in the order of the legend.
    let names: Vec<(String, Option<f64>)> = if plot.series.is_empty() && workloads.len() > 1 {
        workloads.iter().map(|workload| (workload.clone(), None)).collect()
    } else if plot.series.is_empty() {
        locks.iter().map(|lock| (lock.clone(), None)).collect()
    } else {
        let values = values(rows, &plot.series).into_iter();
        values.map(|value| (group_words(&plot.series, value), Some(value))).collect()
    };
    let of = |(name, value): (String, Option<f64>)| {
        let is_its = |row: &&&Row| match value {
            None if workloads.len() > 1 => row.workload == name,
            None => row.lock == name,
            Some(value) => grid::param(row, &plot.series) == Some(value),
        };
        let point = |row: &&Row| {
            let x = x_of(row, &plot.x)?;
            let place = xs.iter().position(|known| *known == x)?;
            Some((place, Figure::from(figure(row, &plot.metric)?)))
        };
        let mut points: Vec<_> = rows.iter().filter(is_its).filter_map(point).collect();
        points.sort_by_key(|(x, _)| *x);
        (!points.is_empty()).then_some((name, points))
    };
    let are_locks = plot.series.is_empty() && workloads.len() == 1;
    (names.into_iter().filter_map(of).collect(), are_locks)
}

fn lines(plot: &Plot, rows: &[&Row], locks: &[String], looks: &mut Looks) -> Option<Picture> {
    let xs = values(rows, &plot.x);
    let (series, are_locks) = series(plot, rows, &xs, locks);
    if series.is_empty() {
        return None;
    }
    let places = xs.iter().map(|value| value_words(&plot.x, *value)).collect();
    let y = (title(&plot.metric), unit(&plot.metric));
    let mut others = looks_of_points();
    let looks = if are_locks { looks } else { &mut others };
    Some(Lines::new(axis_words(&plot.x), places, y, series, looks).into())
}

/// Groups hold only their own bars: "no reader" stands alone, not beside empty places.
fn bars(plot: &Plot, rows: &[&Row], locks: &[String], looks: &mut Looks) -> Option<Picture> {
    let xs = values(rows, &plot.x);
    let (series, are_locks) = series(plot, rows, &xs, locks);
    if series.is_empty() {
        return None;
    }
    let groups = xs.iter().enumerate().map(|(place, value)| {
        let bars = series.iter().filter_map(|(name, points)| {
            let (_, figure) = points.iter().find(|(x, _)| *x == place)?;
            Some(Bar { name: name.clone(), figure: *figure, note: String::new() })
        });
        Group { name: group_words(&plot.x, *value), bars: bars.collect() }
    });
    let mut others = looks_of_points();
    let looks = if are_locks { looks } else { &mut others };
    Some(Bars::new(title(&plot.metric), unit(&plot.metric), groups.collect(), looks).into())
}

/// Steps over powers of two of a nanosecond: the counts of each lock's first row that has some.
fn histogram(plot: &Plot, rows: &[&Row], locks: &[String], looks: &mut Looks) -> Option<Picture> {
    let counted = locks.iter().filter_map(|lock| {
        let mut of_lock = rows.iter().filter(|row| row.lock == *lock);
        Some((lock, of_lock.find_map(|row| claim::histogram(row, &plot.metric))?))
    });
    let counted: Vec<(&String, &[u64])> = counted.collect();
    let first = |counts: &[u64]| counts.iter().position(|count| *count > 0).unwrap_or(0);
    let from = counted.iter().map(|(_, counts)| first(counts)).min()?;
    let to = counted.iter().map(|(_, counts)| counts.len()).max()?;
    let histograms = counted.into_iter().map(|(lock, counts)| {
        let all = counts.iter().sum::<u64>().max(1) as f64;
        let count = |bucket: usize| counts.get(bucket).copied().unwrap_or(0);
        let shares = (from..to).map(|bucket| count(bucket) as f64 / all).collect();
        Histogram { name: lock.clone(), look: looks.look(lock), shares }
    });
    // The first bucket has all below 2 ns, 0 among them.
    let edge = |exponent: usize| if exponent == 0 { 0.0 } else { 2f64.powi(exponent as i32) };
    let what = if plot.metric.ends_with("hold_histogram") { "holds" } else { "waits" };
    Some(Picture::Steps(Steps {
        title: format!("share of the {what}"),
        edges: (from..=to).map(edge).collect(),
        histograms: histograms.collect(),
    }))
}

/// Each role's part of all operations, by lock.
fn shares(rows: &[&Row]) -> Option<Picture> {
    let stack = |row: &&Row| {
        let total: f64 = row.roles.values().map(|role| role.ops_per_s.median).sum();
        // Where nobody did anything all have none of it.
        let share = |rate: f64| if total > 0.0 { rate / total } else { 0.0 };
        let parts: Vec<Part> = row
            .roles
            .iter()
            .map(|(name, role)| Part::new(name, share(role.ops_per_s.median)))
            .collect();
        // Roles without any share have no bar, but a name.
        let starved = parts.iter().filter(|part| part.value <= 0.0);
        let note = starved.map(|part| format!("{} 0", part.role)).collect::<Vec<_>>().join(", ");
        (parts.len() > 1).then(|| Stack { name: row.lock.clone(), parts, note })
    };
    let stacks: Vec<Stack> = rows.iter().filter_map(stack).collect();
    if stacks.is_empty() {
        return None;
    }
    let mut stacks = Stacks::new("share of all operations", Unit::Share, stacks);
    stacks.mark = Some((0.5, "½".to_owned()));
    Some(stacks.into())
}

/// Each role's rate over its rate with the other role absent, by lock.
fn alone(rows: &[&Row], all_rows: &[Row]) -> Option<Picture> {
    let mut groups = Vec::new();
    for row in rows.iter().filter(|row| row.roles.len() > 1) {
        let bar = |(name, role): (&String, &crate::row::RoleStats)| {
            let is_alone = |other: &&Row| {
                other.workload == row.workload
                    && other.machine == row.machine
                    && other.lock == row.lock
                    && other.roles.len() == 1
                    && other.roles.get(name).is_some_and(|other| other.threads == role.threads)
            };
            let alone = all_rows.iter().find(is_alone)?.roles.get(name)?;
            let (figure, note) = if alone.ops_per_s.median > 0.0 {
                (role.ops_per_s.median / alone.ops_per_s.median, String::new())
            } else {
                (0.0, "0 alone".to_owned())
            };
            Some(Bar { name: name.clone(), figure: Figure::exactly(figure), note })
        };
        let bars: Vec<Bar> = row.roles.iter().filter_map(bar).collect();
        if !bars.is_empty() {
            groups.push(Group { name: row.lock.clone(), bars });
        }
    }
    if groups.is_empty() {
        return None;
    }
    let mut bars = Bars::of_roles("rate over the same role's rate alone", Unit::Number, groups);
    bars.mark = Some((0.5, "½".to_owned()));
    Some(bars.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Names;
    use crate::example;
    use crate::study;

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

    fn drawn(plot: &Plot, rows: &[Row]) -> Option<Chart> {
        chart(plot, rows, &mut looks())
    }

    #[test]
    fn every_kind_of_chart_names_its_locks() {
        for kind in ["lines", "bars", "shares", "alone"] {
            let html = drawn(&plot(kind), &rows()).unwrap().html().into_string();
            for lock in ["rwsem", "std", "usync"] {
                assert!(html.contains(lock), "{kind} lacks {lock}");
            }
            assert!(html.contains("a &lt; b"), "{html}");
        }
        assert!(drawn(&plot("bars"), &rows()).unwrap().html().0.contains("64 threads"));
    }

    #[test]
    fn a_histogram_has_steps_for_each_lock_over_powers_of_two() {
        let of = |metric: &str| Plot { metric: metric.to_owned(), ..plot("histogram") };
        let chart = drawn(&of("roles.writer.hold_histogram"), &rows()).unwrap();
        let Picture::Steps(steps) = chart.picture else { panic!("{chart:?}") };
        let names: Vec<&str> = steps.histograms.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["rwsem", "std", "usync"]);
        // 400 ns are between 2^8 and 2^9.
        let at = steps.edges.iter().position(|edge| *edge == 256.0).unwrap();
        assert_eq!(steps.histograms[0].shares[at - 1..=at], [0.1, 0.6]);
        for nothing in ["roles.writer.hold", "roles.low.wait_histogram", "total_ops_per_s"] {
            assert!(drawn(&of(nothing), &rows()).is_none(), "{nothing}");
        }
    }

    #[test]
    fn a_chart_of_several_workloads_names_them_instead_of_the_lock() {
        let params = [("readers", 1.0), ("writers", 1.0), ("read_bytes", 4096.0)];
        let rows = ["dio-kernel", "dio-log"].map(|it| example::row(it, "kernel", &params));
        let plot = Plot {
            workload: Names::Many(rows.iter().map(|row| row.workload.clone()).collect()),
            locks: Names::One("kernel".to_owned()),
            x: "read_bytes".to_owned(),
            ..plot("bars")
        };
        let html = drawn(&plot, &rows).unwrap().html().into_string();
        assert!(html.contains("dio-kernel") && html.contains("dio-log"), "{html}");
        assert!(html.contains("reads of 4 KiB"), "{html}");
    }

    #[test]
    fn rates_of_zero_and_single_points_are_drawn() {
        let mut rows = rows();
        for row in &mut rows {
            row.total_ops_per_s = example::estimate(0.0);
        }
        assert!(drawn(&plot("lines"), &rows).is_some());
        assert!(drawn(&plot("bars"), &rows).is_some());
        assert!(drawn(&plot("lines"), &rows[..1]).is_some());
        assert!(drawn(&plot("lines"), &[]).is_none());
    }

    #[test]
    fn a_role_without_any_share_is_named() {
        let mut rows = rows();
        for row in &mut rows {
            if let Some(writer) = row.roles.get_mut("writer") {
                writer.ops_per_s = example::estimate(0.0);
            }
        }
        let html =
            |rows: &[Row], kind: &str| drawn(&plot(kind), rows).unwrap().html().into_string();
        assert!(html(&rows, "shares").contains("writer 0"));
        assert!(html(&rows, "alone").contains("0 alone"));
        for row in &mut rows {
            row.roles.values_mut().for_each(|role| role.ops_per_s = example::estimate(0.0));
        }
        assert!(html(&rows, "shares").contains("reader 0, writer 0"));
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
                assert!(drawn(plot, &rows).is_some(), "{}", plot.title);
            }
        }
    }

    #[test]
    fn a_metric_has_the_unit_that_its_figures_are_written_in() {
        let metrics = [
            "total_ops_per_s",
            "ns_per_op",
            "roles.writer.ops_per_s",
            "roles.writer.bytes_per_s",
            "roles.reader.wait.p99",
            "roles.reader.wait.count",
            "roles.writer.longest_wait",
            "roles.writer.longest_bypass",
            "roles.writer.convoy.mean",
            "roles.writer.jain",
            "cpu.idle",
            "voluntary_switches_per_operation",
        ];
        for metric in metrics {
            assert!(claim::is_metric(metric), "{metric}");
            for value in [0.125, 12_345.0] {
                let words = claim::format_figure(metric, false, value);
                assert_eq!(unit(metric).words(value), words, "{metric}");
            }
            assert!(!title(metric).contains(['_', '.']), "{metric}: {}", title(metric));
        }
    }
}
