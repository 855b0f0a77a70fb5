//! What a group's rows counted beside their rates, in one table with a column for each lock.

use fairlock_lab::measure::{READER, WRITER};
use fairlock_report::params;
use fairlock_report::row::{LockEvents, Row};
use fairlock_report::table::{Cell, Table};
use fairlock_report::units::{format_count, format_kilo, format_ns, format_number};

use crate::metric::Metric;

/// Switches for each operation below this need no digits.
const RARE: f64 = 0.001;

/// A figure by its name, and what each row has of it; nothing where a row has none.
type Line = (String, Vec<Option<String>>);

/// All that these rows counted but for lock events; nothing where none counted anything.
pub(super) fn table(rows: &[&Row]) -> Option<Table> {
    let parts = [
        torn_reads(rows),
        deliveries(rows),
        inversions(rows),
        convoys(rows),
        usage(rows),
        simulated_counts(rows),
    ];
    table_of("per operation", parts.concat(), rows)
}

/// The lock events, which are many and mean something only to who knows the lock; nothing where no lock counted any.
pub(super) fn events(rows: &[&Row]) -> Option<Table> {
    table_of("per 1000 operations", event_lines(rows), rows)
}

/// A column for each lock.
fn table_of(corner: &str, mut lines: Vec<Line>, rows: &[&Row]) -> Option<Table> {
    lines.retain(|(_, figures)| figures.iter().any(Option::is_some));
    if lines.is_empty() {
        return None;
    }
    let locks = rows.iter().map(|row| row.lock.as_str());
    let heads: Vec<&str> = std::iter::once(corner).chain(locks).collect();
    let mut table = Table::of_numbers("", &heads);
    for (name, figures) in lines {
        let figures = figures.into_iter().map(|it| it.map_or_else(Cell::none, Cell::new));
        table.rows.push(std::iter::once(Cell::new(name)).chain(figures).collect());
    }
    Some(table)
}

/// A line for each name.
fn lines<const NAMES: usize>(
    names: [&str; NAMES],
    rows: &[&Row],
    figures: impl Fn(&Row) -> Option<[String; NAMES]>,
) -> Vec<Line> {
    let figures: Vec<Option<[String; NAMES]>> = rows.iter().map(|row| figures(row)).collect();
    let line = |(at, name): (usize, &str)| {
        let of_rows = figures.iter().map(|it| it.as_ref().map(|it| it[at].clone()));
        (name.to_owned(), of_rows.collect())
    };
    names.into_iter().enumerate().map(line).collect()
}

/// How many reads were torn, all and of a million.
fn torn_reads(rows: &[&Row]) -> Vec<Line> {
    lines(["torn reads", "torn of a million reads"], rows, |row| {
        let (torn, role) = row.roles.values().find_map(|role| Some((role.torn? as f64, role)))?;
        let reads = role.ops_per_s.median * row.seconds * f64::from(row.repetitions);
        Some([format_count(torn), format_count(torn * 1e6 / reads.max(1.0))])
    })
}

/// How additions to sources reached those that wait for them.
fn deliveries(rows: &[&Row]) -> Vec<Line> {
    let names = ["additions per read", "waits, k/s", "reads per wait"];
    lines(names, rows, |row| {
        let (reader, writer) = (row.roles.get(READER)?, row.roles.get(WRITER)?);
        let (calls, read) = (reader.wait_calls_per_s?.median, reader.ops_per_s.median);
        // Nothing is said about reads that there were not.
        let per = |count: f64, each: f64| {
            if each > 0.0 { format_number(count / each) } else { "–".to_owned() }
        };
        Some([per(writer.ops_per_s.median, read), format_kilo(calls), per(read, calls)])
    })
}

/// How long the high one waited at most, and for whom.
fn inversions(rows: &[&Row]) -> Vec<Line> {
    let names = [
        "longest wait of the high one",
        "that wait in works of the low one",
        "waits of the high one for the hog",
    ];
    lines(names, rows, |row| {
        let role = row.roles.values().find(|role| role.inverted.is_some())?;
        let longest = role.wait.max as f64;
        let works = longest / params::number(&row.params, "work_ns")?;
        Some([format_ns(longest), format_number(works), format_count(role.inverted? as f64)])
    })
}

/// How many threads stood at the locks when one asked.
fn convoys(rows: &[&Row]) -> Vec<Line> {
    let names =
        ["threads at the lock, mean", "threads at the lock, p99", "threads at the lock, max"];
    lines(names, rows, |row| {
        let convoy = row.roles.values().find_map(|role| role.convoy)?;
        let [p99, max] = [convoy.p99, convoy.max].map(|length| format_count(length as f64));
        Some([format_number(convoy.mean), p99, max])
    })
}

/// A figure of [`usage`] in words: where switches are rare it does not matter how rare.
pub(super) fn usage_words(metric: &Metric, value: f64) -> String {
    let is_rare = matches!(metric, Metric::Switches { .. }) && value > 0.0 && value < RARE;
    if is_rare { format!("< {RARE}") } else { metric.format(value) }
}

/// How often operations made a CPU switch, and how much of the CPUs' time a simulated machine spent spinning.
fn usage(rows: &[&Row]) -> Vec<Line> {
    let metrics = [
        Metric::Switches { voluntary: true, per_operation: true },
        Metric::Switches { voluntary: false, per_operation: true },
        Metric::Cpu("spinning"),
    ];
    let names = ["voluntary switches", "involuntary switches", "CPUs spinning"];
    let figure =
        |row: &&Row, metric: &Metric| Some(usage_words(metric, metric.figure(row)?.median));
    let of = |(name, metric): (&str, Metric)| {
        (name.to_owned(), rows.iter().map(|row| figure(row, &metric)).collect())
    };
    names.into_iter().zip(metrics).map(of).collect()
}

/// What a simulated machine counted.
fn simulated_counts(rows: &[&Row]) -> Vec<Line> {
    let names = ["transfers", "shared writes", "invalidations", "wake-ups", "switches"]
        .map(|name| format!("{name}, simulated"));
    let names = names.each_ref().map(String::as_str);
    lines(names, rows, |row| {
        let counts = row.simulated.as_ref()?.per_operation();
        Some(counts.map(|(_, count)| format_number(count)))
    })
}

/// The lock events: a row for each event that happened.
fn event_lines(rows: &[&Row]) -> Vec<Line> {
    let counted = rows.iter().filter_map(|row| Some((*row, row.events.as_ref()?)));
    let counted: Vec<(&Row, &LockEvents)> = counted.collect();
    let mut names: Vec<&String> =
        counted.iter().flat_map(|(_, events)| events.counts.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let count = |events: &LockEvents, name: &String| events.counts.get(name).copied().unwrap_or(0);
    names.retain(|name| counted.iter().any(|(_, events)| count(events, name) > 0));
    let per_thousand = |row: &&Row, name: &String| {
        let events = row.events.as_ref()?;
        let count = count(events, name) as f64;
        Some(format_number(count * 1e3 / events.operations.max(1) as f64))
    };
    let of = |name: &String| {
        let figures = rows.iter().map(|row| per_thousand(row, name));
        (name.clone(), figures.collect())
    };
    names.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn texts(table: &Table) -> Vec<Vec<&str>> {
        table.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect()).collect()
    }

    #[test]
    fn lock_events_have_a_table_of_their_own() {
        let row = example::row("mix", "linux-5.11", &[("readers", 1.0), ("writers", 1.0)]);
        let (table, events) = (table(&[&row]).unwrap(), events(&[&row]).unwrap());
        assert!(texts(&table).iter().all(|line| !line[0].contains("rwsem_")), "{table:?}");
        assert_eq!(texts(&events).len(), 1);
        assert_eq!(texts(&events)[0][0], "rwsem_sleep_writer");
    }

    #[test]
    fn switches_that_hardly_ever_happen_have_no_digits() {
        let mut row = example::row("mix", "std", &[("readers", 1.0), ("writers", 1.0)]);
        row.voluntary_switches_per_s = row.total_ops_per_s.median * 4.4e-5;
        row.involuntary_switches_per_s = 0.0;
        let table = table(&[&row]).unwrap();
        assert!(texts(&table).contains(&vec!["voluntary switches", "< 0.001"]), "{table:?}");
        assert!(texts(&table).contains(&vec!["involuntary switches", "0"]), "{table:?}");
    }
}
