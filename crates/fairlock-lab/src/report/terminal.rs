//! Tables for a terminal of 120 columns.

use comfy_table::{
    Cell, CellAlignment, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle,
    presets,
};

use super::recording::{Header, Recording};
use super::{grids, published};
use crate::measure::{READER, WRITER};
use crate::metric::Metric;
use crate::params;
use crate::registry;
use crate::row::{CpuShares, Estimate, Latency, LockEvents, RoleStats, Row};
use crate::study::claim::{Status, Verdict};
use crate::study::summary::{Figure, Line};
use crate::study::{self, Study};
use crate::units::{
    format_bytes, format_bytes_per_s, format_count, format_kilo, format_ns, format_number,
};
use crate::workload::Workload;
use crate::workloads::forkstorm_kernel::ForkstormKernel;

/// The columns of a results table, and whether they hold numbers.
const COLUMNS: [(&str, bool); 11] = [
    ("lock", false),
    ("total\nkops/s", true),
    ("role", false),
    ("kops/s", true),
    ("per thread\nmin/mean/max", true),
    ("Jain", true),
    ("wait\np50/p99/max", true),
    ("hold\np50", true),
    ("longest\nbypass", true),
    ("switches/s\nCPU u/s/i", true),
    ("MB/s", true),
];

/// A rule below the headings and nothing between the columns but their padding.
pub(crate) const STYLE: TableStyle = presets::NOTHING
    .header_lines(ContentLineStyle::none())
    .content_lines(ContentLineStyle::none())
    .header_separator(LineStyle::none().fill('─'));

/// Rows with one machine, one workload and one set of parameters, in the order they came.
pub(super) fn groups<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<(String, Vec<&'a Row>)> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    let key = |row: &'a Row| (&row.machine, &row.workload, &row.params);
    for row in rows {
        match groups.iter_mut().find(|group| key(group[0]) == key(row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    let title = |row: &Row| {
        let words = registry::describe(&row.workload, &row.params);
        let place = match row.simulated {
            Some(_) => format!(" · simulated on {}", row.machine),
            None => String::new(),
        };
        format!("{} · {words}{place}", row.workload)
    };
    groups.into_iter().map(|rows| (title(rows[0]), rows)).collect()
}

/// An interval in thousands: `[2890, 2940]`.
fn kilo_interval(estimate: Estimate) -> String {
    format!("[{}, {}]", format_kilo(estimate.low), format_kilo(estimate.high))
}

/// Three percentiles: `1.20µs/35.0µs/144ms`.
pub(super) fn percentiles(latency: &Latency) -> String {
    if latency.count == 0 {
        return "–".to_owned();
    }
    [latency.p50, latency.p99, latency.max].map(|ns| format_ns(ns as f64)).join("/")
}

/// User, system and idle in percent: `61/12/27`.
pub(super) fn shares(cpu: &CpuShares) -> String {
    [cpu.user, cpu.system, cpu.idle].map(|share| format!("{:.0}", share * 100.0)).join("/")
}

fn role_cells(name: &str, role: &RoleStats) -> [String; 7] {
    let spread = if role.threads == 1 {
        format_kilo(role.thread_mean)
    } else {
        [role.thread_min, role.thread_mean, role.thread_max].map(format_kilo).join("/")
    };
    [
        format!("{} {name}{}", role.threads, if role.threads == 1 { "" } else { "s" }),
        format_kilo(role.ops_per_s.median),
        spread,
        role.fairness().map_or("–".to_owned(), format_number),
        percentiles(&role.wait),
        if role.hold.count == 0 { "–".to_owned() } else { format_ns(role.hold.p50 as f64) },
        role.longest_bypass.map_or("–".to_owned(), |bypass| format_count(bypass as f64)),
    ]
}

/// The table of one group of rows.
fn group_table(rows: &[&Row]) -> Table {
    let moves_bytes =
        rows.iter().flat_map(|row| row.roles.values()).any(|role| role.bytes_per_s.is_some());
    let columns = if moves_bytes { COLUMNS.len() } else { COLUMNS.len() - 1 };
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled).set_header(
        COLUMNS[..columns].iter().map(|(title, _)| *title).map(|title| match title {
            "lock" => registry::subject(&rows[0].workload),
            title => title,
        }),
    );
    for row in rows {
        for (index, (name, role)) in row.roles.iter().enumerate() {
            let first = index == 0;
            let of_row = |text: String| if first { text } else { String::new() };
            // The interval stands below the total, and the CPUs below the switches: beside the second
            // role, or on a line of their own.
            let two_lines = |upper: String, lower: String| match (index, row.roles.len()) {
                (0, 1) if lower.is_empty() => upper,
                (0, 1) => format!("{upper}\n{lower}"),
                (0, _) => upper,
                (1, _) => lower,
                _ => String::new(),
            };
            let total = two_lines(
                format_kilo(row.total_ops_per_s.median),
                kilo_interval(row.total_ops_per_s),
            );
            let mut cells = vec![of_row(row.lock.clone()), total];
            cells.extend(role_cells(name, role));
            cells.push(two_lines(
                format!(
                    "{}+{}",
                    format_count(row.voluntary_switches_per_s),
                    format_count(row.involuntary_switches_per_s)
                ),
                row.cpu.as_ref().map(shares).unwrap_or_default(),
            ));
            if moves_bytes {
                cells.push(role.bytes_per_s.map_or("–".to_owned(), |bytes| {
                    format_bytes_per_s(bytes.median).trim_end_matches(" MB/s").to_owned()
                }));
            }
            table.add_row(cells.into_iter().zip(COLUMNS).map(|(text, (_, number))| {
                Cell::new(text).set_alignment(if number {
                    CellAlignment::Right
                } else {
                    CellAlignment::Left
                })
            }));
        }
    }
    let last = columns - 1;
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index == last { 0 } else { 2 }));
    }
    table
}

/// A table for each group of rows, under a line that says what they share.
///
/// `with_events` puts the lock events of each group below it, and what a simulated machine counted.
pub fn tables(rows: &[Row], with_events: bool) -> String {
    let mut text = String::new();
    for (title, rows) in groups(rows) {
        text.push_str(&format!("\n{title}\n{}\n", group_table(&rows)));
        let counted = [usage(&rows), simulated_counts(&rows), events(&rows)]
            .map(|it| it.filter(|_| with_events));
        let special = [
            torn_reads(&rows),
            deliveries(&rows),
            inversions(&rows),
            convoys(&rows),
            short_processes(&rows),
        ];
        for more in special.into_iter().chain(counted).flatten() {
            text.push_str(&format!("\n{more}\n"));
        }
    }
    if !text.is_empty() {
        text.push_str(
            "\nhold: median. bypass: most reader acquisitions granted while one operation waited.\n\
             switches: voluntary + involuntary. CPU: user/system/idle, %.\n",
        );
    }
    text
}

/// What a simulated machine counted for a group's rows; `None` where it was a real one.
pub fn simulated_counts(rows: &[&Row]) -> Option<String> {
    let counted: Vec<(&Row, [(&str, f64); 5])> = rows
        .iter()
        .filter_map(|row| Some((*row, row.simulated.as_ref()?.per_operation())))
        .collect();
    let (_, names) = counted.first()?;
    let lines = names.iter().enumerate().map(|(index, (name, _))| {
        let cells = counted.iter().map(|(_, counts)| format_number(counts[index].1)).collect();
        (name.replace('_', " "), cells)
    });
    let heads = counted.iter().map(|(row, _)| row.lock.as_str());
    Some(side_by_side("simulated machine, per operation", heads, lines))
}

/// How many reads of a group's rows were torn, all and of a million; `None` where none were looked at
/// for that.
pub fn torn_reads(rows: &[&Row]) -> Option<String> {
    let counted: Vec<(&Row, [String; 2])> = rows
        .iter()
        .filter_map(|row| {
            let torn = row.roles.values().find_map(|role| Some((role.torn? as f64, role)));
            let (torn, role) = torn?;
            let reads = role.ops_per_s.median * row.seconds * f64::from(row.repetitions);
            Some((*row, [format_count(torn), format_count(torn * 1e6 / reads.max(1.0))]))
        })
        .collect();
    counted.first()?;
    let lines = ["torn", "of a million"].into_iter().enumerate().map(|(index, name)| {
        (name.to_owned(), counted.iter().map(|(_, words)| words[index].clone()).collect())
    });
    let heads = counted.iter().map(|(row, _)| row.lock.as_str());
    Some(side_by_side("reads", heads, lines))
}

/// How additions to sources reached those that wait for them; `None` where nobody does.
pub fn deliveries(rows: &[&Row]) -> Option<String> {
    let counted: Vec<(&Row, [String; 3])> = rows
        .iter()
        .filter_map(|row| {
            let (reader, writer) = (row.roles.get(READER)?, row.roles.get(WRITER)?);
            let calls = reader.wait_calls_per_s?.median;
            let read = reader.ops_per_s.median;
            // Nothing is said about reads that there were not.
            let per = |count: f64, each: f64| {
                if each > 0.0 { format_number(count / each) } else { "–".to_owned() }
            };
            let added = writer.ops_per_s.median;
            let words = [per(added, read), format_kilo(calls), per(read, calls)];
            Some((*row, words))
        })
        .collect();
    counted.first()?;
    let names = ["additions a read", "waits k/s", "reads a wait"];
    let lines = names.into_iter().enumerate().map(|(index, name)| {
        (name.to_owned(), counted.iter().map(|(_, words)| words[index].clone()).collect())
    });
    let heads = counted.iter().map(|(row, _)| row.lock.as_str());
    Some(side_by_side("deliveries", heads, lines))
}

/// How long the high one of a group's rows waited at most, and for whom; `None` where there is none.
pub fn inversions(rows: &[&Row]) -> Option<String> {
    let counted: Vec<(&Row, [String; 3])> = rows
        .iter()
        .filter_map(|row| {
            let role = row.roles.values().find(|role| role.inverted.is_some())?;
            let longest = role.wait.max as f64;
            let works = longest / params::number(&row.params, "work_ns")?;
            let inverted = role.inverted? as f64;
            Some((*row, [format_ns(longest), format_number(works), format_count(inverted)]))
        })
        .collect();
    counted.first()?;
    let names = ["longest", "in works of the low one", "waited for the hog"];
    let lines = names.into_iter().enumerate().map(|(index, name)| {
        (name.to_owned(), counted.iter().map(|(_, words)| words[index].clone()).collect())
    });
    let heads = counted.iter().map(|(row, _)| row.lock.as_str());
    Some(side_by_side("waits of the high one", heads, lines))
}

/// How many threads stood at the locks of a group's rows when one asked; `None` where that is not
/// looked at.
pub fn convoys(rows: &[&Row]) -> Option<String> {
    let counted: Vec<(&Row, [String; 3])> = rows
        .iter()
        .filter_map(|row| {
            let convoy = row.roles.values().find_map(|role| role.convoy)?;
            let most = [convoy.p99, convoy.max].map(|length| format_count(length as f64));
            let [p99, max] = most;
            Some((*row, [format_number(convoy.mean), p99, max]))
        })
        .collect();
    counted.first()?;
    let lines = ["mean", "p99", "max"].into_iter().enumerate().map(|(index, name)| {
        (name.to_owned(), counted.iter().map(|(_, words)| words[index].clone()).collect())
    });
    let heads = counted.iter().map(|(row, _)| row.lock.as_str());
    Some(side_by_side("threads at the lock", heads, lines))
}

/// What a group's CPU shares are worth where processes end before the kernel has looked at them; `None`
/// where none do.
pub fn short_processes(rows: &[&Row]) -> Option<String> {
    let is_theirs = |row: &&Row| row.workload == ForkstormKernel::NAME && row.cpu.is_some();
    rows.iter().any(is_theirs).then(|| {
        "CPU: a kernel that tells user from system at its clock's ticks takes processes that end before\n\
         their first one for user, forks and exits too: believe idle, and the sum of the two."
            .to_owned()
    })
}

/// How often operations of a group's rows made a CPU switch, and how much of the CPUs' time a simulated
/// machine span; `None` where nothing ran.
pub fn usage(rows: &[&Row]) -> Option<String> {
    let metrics = [
        (
            "voluntary switches an operation",
            Metric::Switches { voluntary: true, per_operation: true },
        ),
        (
            "involuntary switches an operation",
            Metric::Switches { voluntary: false, per_operation: true },
        ),
        ("CPUs spinning", Metric::Cpu("spinning")),
    ];
    let words = |row: &Row, metric: &Metric| Some(metric.format(metric.figure(row)?.median));
    let lines: Vec<(String, Vec<Option<String>>)> = metrics
        .into_iter()
        .map(|(name, metric)| {
            (name.to_owned(), rows.iter().map(|row| words(row, &metric)).collect())
        })
        .filter(|(_, words): &(_, Vec<Option<String>>)| words.iter().any(Option::is_some))
        .collect();
    lines.first()?;
    let lines = lines.into_iter().map(|(name, words)| {
        (name, words.into_iter().map(|it| it.unwrap_or_else(|| "–".to_owned())).collect())
    });
    Some(side_by_side("switches", rows.iter().map(|row| row.lock.as_str()), lines))
}

/// A table with a column of numbers for each lock.
fn side_by_side<'a>(
    corner: &'a str,
    heads: impl Iterator<Item = &'a str>,
    lines: impl Iterator<Item = (String, Vec<String>)>,
) -> String {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(std::iter::once(corner).chain(heads));
    for (name, numbers) in lines {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.add_row(std::iter::once(Cell::new(name)).chain(numbers.into_iter().map(right)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.to_string()
}

/// The lock events of a group's rows, a table with a row for each event that happened; `None`
/// without any.
pub fn events(rows: &[&Row]) -> Option<String> {
    let counted: Vec<(&Row, &LockEvents)> =
        rows.iter().filter_map(|row| Some((*row, row.events.as_ref()?))).collect();
    let mut names: Vec<&String> =
        counted.iter().flat_map(|(_, events)| events.counts.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let count = |events: &LockEvents, name: &String| events.counts.get(name).copied().unwrap_or(0);
    let happened = |name: &&String| counted.iter().any(|(_, events)| count(events, name) > 0);
    names.retain(happened);
    if names.is_empty() {
        return None;
    }
    let lines = names.into_iter().map(|name| {
        let per_thousand = counted.iter().map(|(_, events)| {
            let count = count(events, name) as f64;
            format_number(count * 1e3 / events.operations.max(1) as f64)
        });
        (name.clone(), per_thousand.collect())
    });
    let heads = counted.iter().map(|(row, _)| row.lock.as_str());
    Some(side_by_side("events per 1000 operations", heads, lines))
}

/// The machine in one line.
pub fn machine(header: &Header) -> String {
    let machine = &header.machine;
    let mut text = format!(
        "{} · {} CPUs · {} · {} memory · pause {} · {} · fairlock {}",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        format_bytes(machine.memory_bytes as f64),
        format_ns(machine.pause_ns),
        machine.rustc,
        machine.fairlock,
    );
    if !machine.filesystem.is_empty() {
        text.push_str(&format!(" · files on {}", machine.filesystem));
    }
    text
}

/// The sign of a verdict in a list.
pub(super) fn sign(status: Status) -> &'static str {
    match status {
        Status::Met => "✓",
        Status::NotMet => "✗",
        Status::Inconclusive => "?",
        Status::NotMeasured => "–",
    }
}

/// Breaks text into lines of at most `width` characters, indented from the second on.
pub(crate) fn wrapped(text: &str, indent: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("starts with a line");
        if line.chars().count() + word.chars().count() + 1 > width && !line.trim().is_empty() {
            lines.push(format!("{indent}{word}"));
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// Published figures, and beside them ours from one machine, which is called `place`.
fn source_table(
    source: &study::Table,
    ours: &[study::Column],
    place: &str,
    rows: &[Row],
) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    let ours_heads = ours.iter().map(|it| format!("{place},\n{}", it.title.replace(" (", "\n(")));
    let heads = source.columns.iter().map(|column| column.replace(", ", ",\n")).chain(ours_heads);
    table.set_header(std::iter::once(String::new()).chain(heads));
    for row in &source.rows {
        let figures = ours.iter().map(|column| {
            published::figure(source, column, row, rows).map_or("–".to_owned(), |it| it.median)
        });
        let cells = row.source.iter().cloned().chain(figures);
        let cells = cells.map(|text| Cell::new(text).set_alignment(CellAlignment::Right));
        table.add_row(std::iter::once(Cell::new(&row.name)).chain(cells));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A table over locks and points.
fn grid_table(sheet: &grids::Sheet) -> String {
    let words = |figure: &Option<grids::Figure>| match figure {
        // The others leave the mark's place empty, so that all numbers end in one column.
        Some(figure) => format!("{}{}", figure.median, if figure.is_best { "*" } else { " " }),
        None => "– ".to_owned(),
    };
    let lines = sheet.lines.iter();
    let lines = lines.map(|(name, figures)| (name.clone(), figures.iter().map(words).collect()));
    let table = side_by_side("* the best", sheet.locks.iter().map(String::as_str), lines);
    let table: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    format!("\n{}\n{table}", sheet.title)
}

/// A study's question, published figures beside ours, and the verdict on each of its claims.
pub fn study(study: &Study, verdicts: &[Verdict], rows: &[Row]) -> String {
    let mut text = format!("\n{} · {}\n", study.name.to_uppercase(), study.title);
    text.push_str(&wrapped(&study.question, "", 118));
    text.push('\n');
    for table in study.published_tables() {
        text.push_str(&format!("\n{}\n", table.title));
        for (ours, place) in [(&table.here, "here"), (&table.simulated, "simulated")] {
            if !ours.is_empty() {
                text.push_str(&source_table(table, ours, place, rows));
            }
        }
    }
    for sheet in study.grids.iter().flat_map(|grid| grids::sheets(grid, rows)) {
        text.push_str(&grid_table(&sheet));
    }
    for verdict in verdicts {
        text.push_str(&format!(
            "\n{}\n{}\n",
            wrapped(&format!("{} {}", sign(verdict.status), verdict.claim), "  ", 118),
            wrapped(&format!("    {}", verdict.text), "    ", 118).replacen("", "    ", 1),
        ));
    }
    text
}

/// The columns of the summary, and how many characters of a line are theirs.
const SUMMARY: [(&str, usize); 6] = [
    ("system", 14),
    ("claim", 34),
    ("source", 16),
    ("here", 12),
    ("simulated", 12),
    ("verdict", 22),
];

/// What the studies say about each system, in one table; nothing without lines.
pub fn summary(lines: &[Line<'_>]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(SUMMARY.map(|(title, _)| title));
    let mut last = None;
    for line in lines {
        let is_first = last.replace(line.study) != Some(line.study);
        let verdicts = line.verdicts.iter().map(|verdict| {
            let words = format!("{} {}", sign(verdict.status), verdict.words_and_cases());
            wrapped(&words, "  ", SUMMARY[5].1)
        });
        let system = if is_first { line.system } else { "" };
        let source = line.source.unwrap_or("–");
        let texts = [system, line.text, source].map(str::to_owned);
        let figures = [&line.here, &line.simulated].map(|figure| shown(figure.as_ref()));
        let cells = texts.into_iter().chain(figures).zip(SUMMARY);
        let cells = cells.map(|(text, (_, width))| {
            text.lines().map(|line| wrapped(line, "", width)).collect::<Vec<_>>().join("\n")
        });
        if is_first && table.row_count() > 0 {
            table.add_row([""]);
        }
        table.add_row(cells.chain([verdicts.collect::<Vec<_>>().join("\n")]));
    }
    let last = SUMMARY.len() - 1;
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index == last { 0 } else { 2 }));
    }
    let table = table.to_string();
    let table: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    format!("\nSummary\n{table}")
}

/// A figure, and below it where it was measured.
fn shown(figure: Option<&Figure>) -> String {
    match figure {
        None => "–".to_owned(),
        Some(Figure { median, case, .. }) if case.is_empty() => median.clone(),
        Some(Figure { median, case, .. }) => format!("{median}\n{case}"),
    }
}

/// What is missing from a recording, if anything.
pub fn missing(recording: &Recording) -> String {
    let mut text = String::new();
    for skipped in &recording.skipped {
        let machine = skipped.machine.as_ref().map(|machine| format!(" on {machine}"));
        text.push_str(&format!(
            "{}{} did not run: {}\n",
            skipped.workload,
            machine.unwrap_or_default(),
            skipped.reason
        ));
    }
    if recording.cancelled {
        text.push_str("stopped early; the finished rows are kept\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::machine::Machine;
    use crate::row::{Convoy, SimulatedCounts};

    #[test]
    fn a_study_shows_published_figures_beside_ours_within_120_columns() {
        for name in study::names() {
            let study = study::find(name).unwrap();
            let batches = study.batches(study::Effort::default());
            let cells = batches.iter().flat_map(|batch| &batch.cells);
            let rows: Vec<Row> = cells.map(example::row_of).collect();
            let text = super::study(&study, &[], &rows);
            assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
            let Some(table) = study.published_tables().first() else { continue };
            let row = &table.rows[0];
            let lines: Vec<&str> =
                text.lines().filter(|line| line.starts_with(&row.name)).collect();
            // Once beside this machine, once beside the simulated one.
            assert_eq!(lines.len(), 2, "{text}");
            assert!(lines.iter().all(|line| line.contains(&row.source[0])), "{text}");
            assert!(text.contains("simulated,"), "{text}");
            // The example's rows move no bytes, which S0's tables are about.
            assert!(name == "s0" || lines.iter().all(|line| !line.contains('–')), "{text}");
        }
    }

    #[test]
    fn the_summary_names_each_system_once_within_120_columns() {
        let mut recording = Recording::new(Header::now(Vec::new(), false, Machine::here(None)));
        let studies = study::choose(&[]).unwrap();
        for batch in studies.iter().flat_map(|study| study.batches(study::Effort::default())) {
            recording.rows.extend(batch.cells.iter().map(example::row_of));
        }
        let judged = crate::report::judge(studies, &recording);
        let text = summary(&crate::report::summary(&judged));
        assert!(text.starts_with("\nSummary\nsystem "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        for (study, _) in &judged {
            let system = &study.summary.as_ref().unwrap().system;
            let first: String = system.chars().take(SUMMARY[0].1).collect();
            let first = first.rsplit_once(' ').map_or(first.as_str(), |(words, _)| words);
            let lines = text.lines().filter(|line| line.starts_with(first));
            assert_eq!(lines.count(), 1, "{first}: {text}");
        }
        assert!(text.contains("in simulation") && text.contains("here"), "{text}");
        assert_eq!(summary(&[]), "");
    }

    #[test]
    fn a_study_prints_its_grids_with_the_best_marked() {
        let study = study::find("rwlock").unwrap();
        let batches = study.batches(study::Effort::default());
        let cells = batches.iter().flat_map(|batch| &batch.cells);
        let rows: Vec<Row> = cells.map(example::row_of).collect();
        let text = super::study(&study, &[], &rows);
        for share in ["100", "99.9", "99", "90", "50"] {
            assert!(text.contains(&format!("here: {share} % reads\n")), "{share}: {text}");
        }
        let line = text.lines().find(|line| line.starts_with("32 threads")).unwrap();
        assert_eq!(line.matches('*').count(), 1, "{line}");
        assert!(!line.contains('–'), "{line}");
    }

    #[test]
    fn tables_fit_120_columns_with_the_longest_lock_name_and_extreme_values() {
        let mut rows = Vec::new();
        for lock in ["no-reader-steal", "rwsem", "std"] {
            let mut row = example::row("mix", lock, &[("readers", 32.0), ("writers", 32.0)]);
            for role in row.roles.values_mut() {
                (role.thread_min, role.thread_mean, role.thread_max) =
                    (123_456.0, 234_567.0, 345_678.0);
                role.wait = Latency {
                    count: 1,
                    mean: 1.0,
                    p50: 123_456,
                    p99: 12_345_678,
                    max: 123_456_789,
                };
                role.longest_bypass = Some(123_456);
            }
            rows.push(row);
        }
        let text = tables(&rows, true);
        assert!(text.contains("32 readers + 32 writers"), "{text}");
        assert!(text.contains("123µs/12.3ms/123ms"), "{text}");
        assert!(text.contains("rwsem_sleep_writer"), "{text}");
        for line in text.lines() {
            assert!(line.trim_end().chars().count() <= 120, "{} in: {line}", line.chars().count());
        }
    }

    #[test]
    fn simulated_rows_stand_apart_with_what_was_counted() {
        let mut simulated = example::row("mix", "rwsem", &[("readers", 1.0), ("writers", 1.0)]);
        let real = simulated.clone();
        simulated.machine = "eight-sockets".to_owned();
        simulated.simulated =
            Some(SimulatedCounts { operations: 100, transfers: 250, ..SimulatedCounts::default() });
        let text = tables(&[real, simulated], true);
        let title = "1 reader + 1 writer · section 10 pauses · think 10 pauses · simulated on eight-sockets\n";
        assert!(text.contains(title), "{text}");
        let transfers = text.lines().find(|line| line.starts_with("transfers")).unwrap();
        assert!(transfers.trim_end().ends_with("2.50"), "{transfers}");
    }

    #[test]
    fn switches_stand_with_the_cpus_shares_and_convoys_where_they_were_counted() {
        let mut row = example::row("mix", "rwsem", &[("readers", 0.0), ("writers", 2.0)]);
        let text = tables(std::slice::from_ref(&row), true);
        assert!(text.contains("70/10/20\n"), "{text}");
        let line = |text: &str, start: &str| {
            let line = text.lines().find(|line| line.starts_with(start)).map(str::to_owned);
            line.unwrap_or_default().trim_end().to_owned()
        };
        assert!(line(&text, "voluntary switches an operation").ends_with(" 0.05"), "{text}");
        assert!(!text.contains("spinning") && !text.contains("threads at the lock"), "{text}");

        row.cpu = row.cpu.map(|cpu| CpuShares { spinning: Some(0.25), ..cpu });
        let convoy = Convoy { count: 9, mean: 12.5, p99: 38, max: 40 };
        row.roles.get_mut(WRITER).unwrap().convoy = Some(convoy);
        let text = tables(std::slice::from_ref(&row), true);
        assert!(line(&text, "CPUs spinning").ends_with(" 25.0 %"), "{text}");
        assert!(line(&text, "mean").ends_with(" 12.5") && line(&text, "p99").ends_with(" 38"));

        row.cpu = None;
        assert!(!tables(&[row], false).contains("70/10/20"));
    }

    #[test]
    fn shares_of_processes_shorter_than_a_tick_are_not_to_be_believed() {
        let said = |workload| {
            let row = example::row(workload, "kernel", &[("threads", 2.0)]);
            tables(&[row], false).contains("believe idle")
        };
        assert!(said("forkstorm-kernel"));
        assert!(!said("forkstorm"));
    }

    #[test]
    fn a_role_that_starves_is_not_called_fair() {
        let mut row = example::row("mix", "std", &[("readers", 2.0), ("writers", 2.0)]);
        let role = row.roles.get_mut("writer").unwrap();
        assert_eq!(role.fairness(), Some(role.jain.median));
        // As rows said it once.
        (role.ops_per_s, role.jain) = (example::estimate(0.0), example::estimate(1.0));
        assert_eq!(role.fairness(), Some(0.0));
        assert_eq!(role_cells("writer", role)[3], "0");
        role.threads = 1;
        assert_eq!(role.fairness(), Some(0.0));
        role.ops_per_s = example::estimate(1.0);
        assert_eq!(role.fairness(), None);
    }

    #[test]
    fn nothing_is_said_of_reads_that_there_were_not() {
        let row = |read: f64| {
            let mut row =
                example::row("stress-epoll", "ready", &[("readers", 1.0), ("writers", 8.0)]);
            let reader = row.roles.get_mut(READER).unwrap();
            reader.ops_per_s = example::estimate(read);
            reader.wait_calls_per_s = Some(example::estimate(read / 2.0));
            row.roles.get_mut(WRITER).unwrap().ops_per_s = example::estimate(3e6);
            row
        };
        let text = deliveries(&[&row(1e6), &row(0.0)]).unwrap();
        let ends_with = |name: &str, figures: [&str; 2]| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            assert!(line.split_whitespace().rev().take(2).eq(figures.into_iter().rev()), "{text}");
        };
        ends_with("additions a read", ["3.00", "–"]);
        ends_with("waits k/s", ["500", "0"]);
        ends_with("reads a wait", ["2.00", "–"]);
    }

    #[test]
    fn rows_are_grouped_by_what_they_share() {
        let rows = [
            example::row("mix", "std", &[("readers", 1.0), ("writers", 1.0)]),
            example::row("mix", "std", &[("readers", 2.0), ("writers", 2.0)]),
            example::row("mix", "usync", &[("readers", 1.0), ("writers", 1.0)]),
        ];
        let groups = groups(&rows);
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].1.len(), 2);
    }

    #[test]
    fn long_verdicts_are_wrapped() {
        let text = wrapped(&"word ".repeat(60), "    ", 40);
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
    }
}
