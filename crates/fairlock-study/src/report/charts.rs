//! The charts of studies and benches, from rows.

use fairlock_report::chart::{
    Bar, Bars, Chart, Group, Histogram, Interval, Lines, Looks, Part, Picture, Stack, Stacks,
    Steps, USUAL,
};
use fairlock_report::params::{self, Value};
use fairlock_report::quantity::{Figure, Unit};
use fairlock_report::row::{HERE, Row};
use fairlock_report::units;

use crate::metric::Metric;
use crate::registry;
use crate::study::{Plot, PlotKind, PlotMetric, expand_locks};

/// The looks of a page about locks.
pub(super) fn looks() -> Looks {
    Looks::of(&USUAL)
}

/// The looks of bars or lines that are no locks: nothing has the colour that stands out.
fn looks_of_points() -> Looks {
    Looks::of(&USUAL[..1])
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
            && registry::has_params(row, &plot.params)
    };
    let shown: Vec<&Row> = rows.iter().filter(is_shown).collect();
    let picture = match plot.kind {
        PlotKind::Lines => lines(plot, &with_roles(plot, &shown), &locks, looks)?,
        PlotKind::Bars => bars(plot, &with_roles(plot, &shown), &locks, looks)?,
        PlotKind::Histogram => histogram(plot, &shown, &locks, looks)?,
        PlotKind::Shares => shares(&shown)?,
        PlotKind::Alone => alone(&shown, rows)?,
    };
    let interval = Interval::of(shown.iter().map(|row| row.repetitions));
    Some(Chart::new(&plot.title, picture).interval(interval))
}

fn with_roles<'a>(plot: &Plot, rows: &[&'a Row]) -> Vec<&'a Row> {
    let has_all = |row: &&&Row| plot.roles.iter().all(|role| row.roles.contains_key(role));
    rows.iter().filter(has_all).copied().collect()
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

/// A row's place along the axis.
fn x_of(row: &Row, name: &str) -> Option<X> {
    match params::is_idle(name, |role| registry::number(row, role)) {
        true => Some(None),
        false => registry::param(row, name).map(Some),
    }
}

/// A parameter with its value, above a group of bars: `reads of 64 KiB`, `2 readers`.
fn group_words(workload: &str, name: &str, x: &X) -> String {
    let Some(value) = x else { return "alone".to_owned() };
    match (name, value.number()) {
        ("readers", Some(0.0)) => "no reader".to_owned(),
        _ => registry::describe_param(workload, name, value)
            .unwrap_or_else(|| format!("{name} = {}", value_words(name, x))),
    }
}

/// A parameter's value in the words of its unit.
fn value_words(name: &str, x: &X) -> String {
    match x {
        None => "alone".to_owned(),
        Some(Value::Number(bytes)) if name.ends_with("_bytes") => units::format_bytes(*bytes),
        Some(Value::Number(ns)) if name.ends_with("_ns") => units::format_ns(*ns),
        Some(value) => value.to_string(),
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

/// The figure that a plot of figures shows.
fn metric_of(plot: &Plot) -> Option<&Metric> {
    match &plot.metric {
        Some(PlotMetric::Figure(metric)) => Some(metric),
        _ => None,
    }
}

/// A figure for each series at each place on the x axis.
type Named = (String, Vec<(usize, Figure)>);

/// Lines or kinds of bars: by lock, by workload where there are several, or by a second parameter. Says whether
/// they are locks.
fn series(
    plot: &Plot,
    metric: &Metric,
    rows: &[&Row],
    xs: &[X],
    locks: &[String],
) -> (Vec<Named>, bool) {
    let workloads = plot.workload.list();
    // (name, value of the series parameter) in the order of the legend.
    let names: Vec<(String, Option<X>)> = if plot.series.is_empty() && workloads.len() > 1 {
        workloads.iter().map(|workload| (workload.clone(), None)).collect()
    } else if plot.series.is_empty() {
        locks.iter().map(|lock| (lock.clone(), None)).collect()
    } else {
        let values = values(rows, &plot.series).into_iter();
        let words = |value: &X| group_words(&workloads[0], &plot.series, value);
        values.map(|value| (words(&value), Some(value))).collect()
    };
    let of = |(name, value): (String, Option<X>)| {
        let is_its = |row: &&&Row| match &value {
            None if workloads.len() > 1 => row.workload == name,
            None => row.lock == name,
            Some(value) => registry::param(row, &plot.series) == *value,
        };
        let point = |row: &&Row| {
            let x = x_of(row, &plot.x)?;
            let place = xs.iter().position(|known| *known == x)?;
            Some((place, Figure::from(metric.figure(row)?)))
        };
        let mut points: Vec<_> = rows.iter().filter(is_its).filter_map(point).collect();
        points.sort_by_key(|(x, _)| *x);
        (!points.is_empty()).then_some((name, points))
    };
    let are_locks = plot.series.is_empty() && workloads.len() == 1;
    (names.into_iter().filter_map(of).collect(), are_locks)
}

fn lines(plot: &Plot, rows: &[&Row], locks: &[String], looks: &mut Looks) -> Option<Picture> {
    let metric = metric_of(plot)?;
    let xs = values(rows, &plot.x);
    // A line needs two places.
    if xs.len() < 2 {
        return bars(plot, rows, locks, looks);
    }
    let (series, are_locks) = series(plot, metric, rows, &xs, locks);
    if series.is_empty() {
        return None;
    }
    let places = xs.iter().map(|value| value_words(&plot.x, value)).collect();
    let y = (metric.title(), metric.unit());
    let mut others = looks_of_points();
    let looks = if are_locks { looks } else { &mut others };
    Some(Lines::new(axis_words(&plot.x), places, y, series, looks).into())
}

/// Groups hold only their own bars: "no reader" stands alone, not beside empty places.
fn bars(plot: &Plot, rows: &[&Row], locks: &[String], looks: &mut Looks) -> Option<Picture> {
    let metric = metric_of(plot)?;
    let xs = values(rows, &plot.x);
    let (series, are_locks) = series(plot, metric, rows, &xs, locks);
    if series.is_empty() {
        return None;
    }
    let groups = xs.iter().enumerate().map(|(place, value)| {
        let bars = series.iter().filter_map(|(name, points)| {
            let (_, figure) = points.iter().find(|(x, _)| *x == place)?;
            Some(Bar { name: name.clone(), figure: *figure, note: String::new() })
        });
        Group { name: group_words(&plot.workload.list()[0], &plot.x, value), bars: bars.collect() }
    });
    let mut others = looks_of_points();
    let looks = if are_locks { looks } else { &mut others };
    Some(Bars::new(metric.title(), metric.unit(), groups.collect(), looks).into())
}

/// Steps over powers of two of a nanosecond: the counts of each lock's first row that has some.
fn histogram(plot: &Plot, rows: &[&Row], locks: &[String], looks: &mut Looks) -> Option<Picture> {
    let Some(PlotMetric::Histogram(metric)) = &plot.metric else { return None };
    let counted = locks.iter().filter_map(|lock| {
        let mut of_lock = rows.iter().filter(|row| row.lock == *lock);
        Some((lock, of_lock.find_map(|row| metric.of(row))?))
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
    let what = if metric.of_holds { "holds" } else { "waits" };
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
        // A role alone has no order among roles.
        let of_both = ["readers", "writers", "threads", "order", "pause_ns"];
        let mut params = row.params.clone();
        params.retain(|name, _| !of_both.contains(&name.as_str()));
        let bar = |(name, role): (&String, &fairlock_report::row::RoleStats)| {
            let is_alone = |other: &&Row| {
                other.workload == row.workload
                    && other.machine == row.machine
                    && other.lock == row.lock
                    && other.roles.len() == 1
                    && other.roles.get(name).is_some_and(|other| other.threads == role.threads)
                    && registry::has_params(other, &params)
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
        let histogram = |name: &str| HistogramMetric::try_from(name.to_owned()).unwrap();
        let of = |name: &str| Plot {
            metric: Some(PlotMetric::Histogram(histogram(name))),
            ..plot("histogram")
        };
        let chart = drawn(&of("roles.writer.hold_histogram"), &rows()).unwrap();
        let Picture::Steps(steps) = chart.picture else { panic!("{chart:?}") };
        let names: Vec<&str> = steps.histograms.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["rwsem", "std", "usync"]);
        // 400 ns are between 2^8 and 2^9.
        let at = steps.edges.iter().position(|edge| *edge == 256.0).unwrap();
        assert_eq!(steps.histograms[0].shares[at - 1..=at], [0.1, 0.6]);
        assert!(drawn(&of("roles.low.wait_histogram"), &rows()).is_none());
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
    fn lines_over_a_single_place_are_bars() {
        let picture = |rows: &[Row]| drawn(&plot("lines"), rows).unwrap().picture;
        assert!(matches!(picture(&rows()), Picture::Lines(_)));
        let single: Vec<Row> = rows()
            .into_iter()
            .filter(|row| row.roles.len() > 1 && row.params["threads"].number() == Some(8.0))
            .collect();
        let Picture::Bars(bars) = picture(&single) else { panic!("lines") };
        assert_eq!(bars.groups.len(), 1);
        assert_eq!(bars.groups[0].name, "8 threads");
        assert_eq!(bars.groups[0].bars.len(), 3);
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
}
