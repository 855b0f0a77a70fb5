//! Results for a terminal: tables, verdicts, the summary.

use std::collections::HashMap;

use fairlock_lab::measure::{READER, WRITER};
use fairlock_lab::workload::Workload;
use fairlock_lab::workloads::forkstorm_kernel::ForkstormKernel;
use fairlock_report::params;
use fairlock_report::recording::{Header, Recording};
use fairlock_report::row::{CpuShares, Estimate, Latency, LockEvents, RoleStats, Row};
use fairlock_report::screen::{Column, Table, WIDEST, wrapped};
use fairlock_report::table::{self, Kind};
use fairlock_report::units::{
    counted, format_bytes, format_bytes_per_s, format_count, format_kilo, format_ns, format_number,
};

use super::{answer, counts, grids, published, ranking, without_reasons};
use crate::metric::Metric;
use crate::registry;
use crate::study::claim::{Status, Verdict};
use crate::study::summary::{Figure, Line};
use crate::study::{self, Study};

/// The columns of a results table beside the lock and the role.
const FIGURES: [&str; 9] = [
    "total\nkops/s",
    "kops/s",
    "per thread\nmin/mean/max",
    "Jain",
    "wait\np50/p99/max",
    "hold\np50",
    "longest\nbypass",
    "switches/s\nCPU u/s/i",
    MEGABYTES,
];

/// Where bytes are moved.
const MEGABYTES: &str = "MB/s";

/// Rows with one machine, one workload and one set of parameters, in the order they came.
pub(super) fn groups<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<(String, Vec<&'a Row>)> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    let mut places = HashMap::new();
    for row in rows {
        let key = format!("{}\n{}\n{:?}", row.machine, row.workload, row.params);
        let place = *places.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[place].push(row);
    }
    let title = |row: &Row| {
        let words = registry::describe(&row.workload, &row.params);
        let place = match row.simulated {
            Some(_) => format!(
                " · simulated on {}, {} of {}",
                row.machine,
                counted(row.repetitions.into(), "seed"),
                format_ns(row.seconds * 1e9)
            ),
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

fn role_cells(role: &RoleStats) -> [String; 6] {
    let spread = if role.threads == 1 {
        format_kilo(role.thread_mean)
    } else {
        [role.thread_min, role.thread_mean, role.thread_max].map(format_kilo).join("/")
    };
    [
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
    let figures = FIGURES.into_iter().filter(|title| moves_bytes || *title != MEGABYTES);
    let keys = [registry::subject(&rows[0].workload), "role"].map(Column::text);
    let mut table = Table::new(2, keys.into_iter().chain(figures.map(Column::number)));
    for row in rows {
        for (index, (name, role)) in row.roles.iter().enumerate() {
            // The interval stands below the total, and the CPUs below the switches: beside the second
            // role, or on a line of their own.
            let two_lines = |upper: String, lower: String| match (index, row.roles.len()) {
                (0, 1) if lower.is_empty() => upper,
                (0, 1) => format!("{upper}\n{lower}"),
                (0, _) => upper,
                (1, _) => lower,
                _ => String::new(),
            };
            let lock = if index == 0 { row.lock.clone() } else { String::new() };
            let total = two_lines(
                format_kilo(row.total_ops_per_s.median),
                kilo_interval(row.total_ops_per_s),
            );
            let mut cells = vec![lock, counted(role.threads.into(), name), total];
            cells.extend(role_cells(role));
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
            table.row(cells);
        }
    }
    table
}

/// A table for each group of rows, under a line that says what they share, in lines of this width.
///
/// `cpus` are those that real threads had. `with_events` puts the lock events of each group below it, and what a
/// simulated machine counted. Below a mix stands how its locks share the time; the roles alone that were measured only
/// for that are left out.
pub fn tables(rows: &[Row], cpus: u32, with_events: bool, width: usize) -> String {
    let mut text = String::new();
    let mut has_ranking = false;
    for (title, rows) in groups(rows.iter().filter(|row| !row.for_limit)) {
        let table = group_table(&rows).fitted(width);
        text.push_str(&format!("\n{}\n{table}\n", wrapped(&title, "  ", width)));
        let counted = [usage_table(&rows), simulated_table(&rows), events_table(&rows)]
            .map(|it| it.filter(|_| with_events));
        let ranking = ranking::table(&rows, cpus).map(|table| printed(&table));
        has_ranking |= ranking.is_some();
        let special = [
            ranking,
            torn_table(&rows),
            delivery_table(&rows),
            inversion_table(&rows),
            convoy_table(&rows),
        ];
        for more in special.into_iter().chain(counted).flatten() {
            text.push_str(&format!("\n{}\n", more.fitted(width)));
        }
        for words in notes(&rows) {
            text.push_str(&format!("\n{}\n", wrapped(&words, "", width)));
        }
    }
    if !text.is_empty() {
        let of_ranking = if has_ranking { &LEGEND_OF_RANKING[..] } else { &[] };
        for words in LEGEND.iter().chain(of_ranking) {
            text.push_str(&format!("\n{}", wrapped(words, "  ", width)));
        }
        text.push('\n');
    }
    text
}

/// What is said once below all tables.
const LEGEND: [&str; 2] = [
    "hold: median. bypass: most reader acquisitions granted while one operation waited.",
    "switches: voluntary + involuntary. CPU: user/system/idle, %.",
];
const LEGEND_OF_RANKING: [&str; 3] = [
    "of the limit: total, divided by half the best rate that a lock gives the readers alone plus half the best of the writers alone.",
    "lesser role: what the role that loses more keeps of its rate alone; 0.50 is an even share.",
    "rank: by the smaller of “of the limit” and twice “lesser role”; who starves somebody has none. More: book, “The limit of a mix”.",
];

/// A table of the page, for a terminal.
fn printed(table: &table::Table) -> Table {
    let columns = table.columns.iter().map(|column| match column.kind {
        Kind::Number => Column::number(&column.title),
        Kind::Heading | Kind::Words | Kind::Text => Column::text(&column.title),
    });
    let mut printed = Table::new(1, columns);
    for cells in &table.rows {
        printed.row(cells.iter().map(|cell| match cell.detail.as_str() {
            "" => cell.text.clone(),
            interval if interval.starts_with('[') => format!("{} {interval}", cell.text),
            words => format!("{} ({words})", cell.text),
        }));
    }
    printed
}

/// What a simulated machine counted for a group's rows; `None` where it was a real one.
pub fn simulated_counts(rows: &[&Row]) -> Option<String> {
    simulated_table(rows).map(|table| table.fitted(WIDEST))
}

fn simulated_table(rows: &[&Row]) -> Option<Table> {
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
    torn_table(rows).map(|table| table.fitted(WIDEST))
}

fn torn_table(rows: &[&Row]) -> Option<Table> {
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
    delivery_table(rows).map(|table| table.fitted(WIDEST))
}

fn delivery_table(rows: &[&Row]) -> Option<Table> {
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
    let names = ["additions per read", "waits, k/s", "reads per wait"];
    let lines = names.into_iter().enumerate().map(|(index, name)| {
        (name.to_owned(), counted.iter().map(|(_, words)| words[index].clone()).collect())
    });
    let heads = counted.iter().map(|(row, _)| row.lock.as_str());
    Some(side_by_side("deliveries", heads, lines))
}

/// How long the high one of a group's rows waited at most, and for whom; `None` where there is none.
pub fn inversions(rows: &[&Row]) -> Option<String> {
    inversion_table(rows).map(|table| table.fitted(WIDEST))
}

fn inversion_table(rows: &[&Row]) -> Option<Table> {
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
    convoy_table(rows).map(|table| table.fitted(WIDEST))
}

fn convoy_table(rows: &[&Row]) -> Option<Table> {
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

/// What a group's figures do not say of themselves.
pub fn notes(rows: &[&Row]) -> Vec<String> {
    [short_processes(rows), short_simulation(rows)].into_iter().flatten().collect()
}

/// A simulated run may be over before each thread has had a CPU; `None` where all of them had one.
fn short_simulation(rows: &[&Row]) -> Option<String> {
    let left_out = |row: &&Row| {
        let got_nothing = |role: &RoleStats| role.threads > 1 && role.thread_min == 0.0;
        row.simulated.is_some() && !answer::is_mixed(row) && row.roles.values().any(got_nothing)
    };
    let locks: Vec<&str> =
        rows.iter().filter(|row| left_out(row)).map(|row| row.lock.as_str()).collect();
    let time = format_ns(rows.first()?.seconds * 1e9);
    (!locks.is_empty()).then(|| {
        format!(
            "In {time} some threads completed nothing under {}: a longer run (--seconds) shows whether they\n\
             starve or have not had their turn.",
            locks.join(", ")
        )
    })
}

/// What a group's CPU shares are worth where processes end before the kernel has looked at them; `None`
/// where none do.
fn short_processes(rows: &[&Row]) -> Option<String> {
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
    usage_table(rows).map(|table| table.fitted(WIDEST))
}

fn usage_table(rows: &[&Row]) -> Option<Table> {
    let metrics = [
        (
            "voluntary switches per operation",
            Metric::Switches { voluntary: true, per_operation: true },
        ),
        (
            "involuntary switches per operation",
            Metric::Switches { voluntary: false, per_operation: true },
        ),
        ("CPUs spinning", Metric::Cpu("spinning")),
    ];
    let words =
        |row: &Row, metric: &Metric| Some(counts::usage_words(metric, metric.figure(row)?.median));
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
) -> Table {
    let mut table =
        Table::new(1, [Column::text(corner)].into_iter().chain(heads.map(Column::number)));
    for (name, numbers) in lines {
        table.row([name].into_iter().chain(numbers));
    }
    table
}

/// The lock events of a group's rows, a table with a row for each event that happened; `None`
/// without any.
pub fn events(rows: &[&Row]) -> Option<String> {
    events_table(rows).map(|table| table.fitted(WIDEST))
}

fn events_table(rows: &[&Row]) -> Option<Table> {
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
        "{} · {} · {} · {} memory · pause {} · {} · fairlock {}",
        machine.cpu,
        counted(machine.cpus.into(), "CPU"),
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

/// Published figures, and beside them ours from one machine, which is called `place`.
fn source_table(source: &study::Table, ours: &[study::Column], place: &str, rows: &[Row]) -> Table {
    let ours_heads = ours.iter().map(|it| format!("{place},\n{}", it.title.replace(" (", "\n(")));
    let heads = source.columns.iter().map(|column| column.replace(", ", ",\n")).chain(ours_heads);
    let mut table = Table::new(1, [Column::text("")].into_iter().chain(heads.map(Column::number)));
    for row in &source.rows {
        let figures = ours.iter().map(|column| {
            published::figure(source, column, row, rows).map_or("–".to_owned(), |it| it.median)
        });
        table.row([row.name.clone()].into_iter().chain(row.source.iter().cloned()).chain(figures));
    }
    table
}

/// A table over locks and points.
fn grid_table(sheet: &grids::Sheet) -> Table {
    let words = |figure: &Option<grids::Figure>| match figure {
        // The others leave the mark's place empty, so that all numbers end in one column.
        Some(figure) => format!("{}{}", figure.median, if figure.is_best { "*" } else { " " }),
        None => "– ".to_owned(),
    };
    let lines = sheet.lines.iter();
    let lines = lines.map(|(name, figures)| (name.clone(), figures.iter().map(words).collect()));
    side_by_side("* the best", sheet.locks.iter().map(String::as_str), lines)
}

/// A study's question, published figures beside ours, and the verdict on each of its claims, in lines of this
/// width. Why something did not run is not told with each claim: [`missing`] says it once.
pub fn study(study: &Study, verdicts: &[Verdict], recording: &Recording, width: usize) -> String {
    let rows = &recording.rows;
    let title = format!("{} · {}", study.name.to_uppercase(), study.title);
    let mut text =
        format!("\n{}\n{}\n", wrapped(&title, "  ", width), wrapped(&study.question, "", width));
    for table in study.published_tables() {
        text.push_str(&format!("\n{}\n", wrapped(&table.title, "  ", width)));
        for (ours, place) in [(&table.here, "here"), (&table.simulated, "simulated")] {
            if !ours.is_empty() {
                let table = source_table(table, ours, place, rows).fitted(width);
                text.push_str(&format!("{table}\n"));
            }
        }
    }
    for sheet in study.grids.iter().flat_map(|grid| grids::sheets(grid, rows)) {
        let table = grid_table(&sheet).fitted(width);
        text.push_str(&format!("\n{}\n{table}\n", wrapped(&sheet.title, "  ", width)));
    }
    let shown: Vec<&Row> = rows.iter().filter(|row| study.uses(&row.workload)).collect();
    if let Some(table) = ranking::overview(&shown, recording.header.machine.cpus) {
        let sheet = printed(&table).fitted(width);
        text.push_str(&format!("\n{}\n{sheet}\n", wrapped(&table.caption, "  ", width)));
    }
    for verdict in verdicts {
        let claim = format!("{} {}", sign(verdict.status), verdict.claim);
        let words = without_reasons(&verdict.text, recording);
        text.push_str(&format!(
            "\n{}\n    {}\n",
            wrapped(&claim, "  ", width),
            wrapped(&words, "", width - 4).replace('\n', "\n    "),
        ));
    }
    text
}

/// The columns of the summary.
const SUMMARY: [&str; 6] = ["system", "claim", "source", "here", "simulated", "verdict"];

/// Where there is less room, a system has a line of its own above its claims.
const WIDE_SUMMARY: usize = 100;

/// What the studies say about each system, in one table of this width; nothing without lines.
pub fn summary(lines: &[Line<'_>], width: usize) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let is_wide = width >= WIDE_SUMMARY;
    let heads = SUMMARY.into_iter().skip(usize::from(!is_wide));
    let mut table = Table::new(heads.len(), heads.map(Column::text));
    let mut last = None;
    for line in lines {
        let is_first = last.replace(line.study) != Some(line.study);
        if is_first && !table.is_empty() {
            table.row([]);
        }
        if is_first && !is_wide {
            table.row([line.system.to_owned()]);
        }
        let verdicts = line.verdicts.iter();
        let verdicts = verdicts.map(|it| {
            // The cases stand with the claim itself, too.
            let words = if is_wide { it.words_and_cases() } else { it.words.clone() };
            format!("{} {words}", sign(it.status))
        });
        let cells = [
            if is_first { line.system.to_owned() } else { String::new() },
            line.text.to_owned(),
            line.source.unwrap_or("–").to_owned(),
            shown(line.here.as_ref()),
            shown(line.simulated.as_ref()),
            verdicts.collect::<Vec<_>>().join("\n"),
        ];
        table.row(cells.into_iter().skip(usize::from(!is_wide)));
    }
    format!("\nSummary\n{}\n", table.fitted(width))
}

/// A figure, and below it where it was measured.
fn shown(figure: Option<&Figure>) -> String {
    match figure {
        None => "–".to_owned(),
        Some(Figure { median, case, .. }) if case.is_empty() => median.clone(),
        Some(Figure { median, case, .. }) => format!("{median}\n{case}"),
    }
}

/// Which lock to use, in one sentence or two, in lines of this width; nothing where no locks were measured alongside
/// each other.
pub fn answer(recording: &Recording, width: usize) -> String {
    match answer::line(recording) {
        Some(words) => format!("\n{}\n", wrapped(&words, "", width)),
        None => String::new(),
    }
}

/// What is missing from a recording, if anything: each reason once, and after it what did not run for it.
pub fn missing(recording: &Recording) -> String {
    missing_but_for(recording, &[])
}

/// As [`missing`], but for what did not run for these reasons, which are told elsewhere.
pub fn missing_but_for(recording: &Recording, told: &[String]) -> String {
    let mut text: String = by_reason(recording)
        .into_iter()
        .filter(|(reason, _)| !told.iter().any(|it| it == reason))
        .map(|(reason, workloads)| format!("{}\n", not_run(reason, &workloads)))
        .collect();
    if recording.cancelled {
        text.push_str("stopped early; the finished rows are kept\n");
    }
    text
}

/// A reason, and what did not run for it.
pub fn not_run(reason: &str, workloads: &[String]) -> String {
    format!("{reason}; did not run: {}", workloads.join(", "))
}

/// The reasons for which something did not run, in the order in which they came up, and what that was.
pub fn by_reason(recording: &Recording) -> Vec<(&str, Vec<String>)> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for skipped in &recording.skipped {
        let workload = match &skipped.machine {
            Some(machine) => format!("{} on {machine}", skipped.workload),
            None => skipped.workload.clone(),
        };
        match reasons.iter_mut().find(|(reason, _)| *reason == skipped.reason) {
            Some((_, workloads)) if workloads.contains(&workload) => {}
            Some((_, workloads)) => workloads.push(workload),
            None => reasons.push((&skipped.reason, vec![workload])),
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use fairlock_lab::machine;
    use fairlock_report::recording::Skipped;
    use fairlock_report::row::{Convoy, SimulatedCounts};

    /// A recording with a row for each cell of these studies.
    fn recording(studies: &[Study]) -> Recording {
        let mut recording = Recording::new(Header::now(Vec::new(), false, machine::here(None)));
        for batch in studies.iter().flat_map(|study| study.batches(study::Effort::default())) {
            recording.rows.extend(batch.cells.iter().map(example::row_of));
        }
        recording
    }

    fn assert_fits(text: &str, width: usize) {
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{} in: {line}", line.chars().count());
        }
    }

    #[test]
    fn a_study_shows_published_figures_beside_ours_in_the_width_that_there_is() {
        for name in study::names() {
            let studies = [study::find(name).unwrap()];
            let recording = recording(&studies);
            let [study] = studies;
            assert_fits(&super::study(&study, &[], &recording, 80), 80);
            let text = super::study(&study, &[], &recording, 120);
            assert_fits(&text, 120);
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
    fn the_summary_names_each_system_once_in_the_width_that_there_is() {
        let studies = study::choose(&[]).unwrap();
        let recording = recording(&studies);
        let judged = crate::report::judge(studies, &recording);
        for width in [80, 120] {
            let text = summary(&crate::report::summary(&judged), width);
            assert!(text.starts_with("\nSummary\n"), "{text}");
            assert_fits(&text, width);
            let (_, table) = text.split_once("─\n").unwrap();
            let groups: Vec<&str> = table.split("\n\n").collect();
            assert_eq!(groups.len(), judged.len(), "{text}");
            for ((study, _), group) in judged.iter().zip(groups) {
                let system = &study.summary.as_ref().unwrap().system;
                let first = system.split(' ').next().unwrap();
                assert!(group.starts_with(first), "{system}: {text}");
            }
            assert!(text.contains("simulation") && text.contains("here"), "{text}");
        }
        assert_eq!(summary(&[], 80), "");
    }

    #[test]
    fn a_reason_is_told_once_with_all_that_did_not_run_for_it() {
        let study = study::find("s0").unwrap();
        let mut recording = recording(&[]);
        let reason = "cannot write to a file in `tm`: No space left on device (os error 28)";
        for workload in ["dio-kernel", "dio-log", "dio-kernel", "dio-lock"] {
            let (workload, reason) = (workload.to_owned(), reason.to_owned());
            recording.skipped.push(Skipped { workload, machine: None, reason });
        }
        let text = missing(&recording);
        assert_eq!(text, format!("{reason}; did not run: dio-kernel, dio-log, dio-lock\n"));
        assert_eq!(missing_but_for(&recording, &[reason.to_owned()]), "");
        let verdicts = crate::report::verdicts(&study, &recording);
        let text = super::study(&study, &verdicts, &recording, 80);
        assert!(text.contains("could not run") && !text.contains("No space"), "{text}");
    }

    #[test]
    fn a_study_prints_its_grids_with_the_best_marked() {
        let study = study::find("rwlock").unwrap();
        let recording = recording(std::slice::from_ref(&study));
        let text = super::study(&study, &[], &recording, 120);
        for share in ["100", "99.9", "99", "90", "50"] {
            assert!(text.contains(&format!("here: {share} % reads\n")), "{share}: {text}");
        }
        let line = text.lines().find(|line| line.starts_with("32 threads")).unwrap();
        assert_eq!(line.matches('*').count(), 1, "{line}");
        assert!(!line.contains('–'), "{line}");
    }

    #[test]
    fn tables_fit_with_the_longest_lock_name_and_extreme_values() {
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
        for width in [80, 120] {
            let text = tables(&rows, 2, true, width);
            assert!(text.contains("32 readers + 32 writers"), "{text}");
            assert!(text.contains("123µs/12.3ms/123ms"), "{text}");
            assert!(text.contains("rwsem_sleep_writer"), "{text}");
            assert_fits(&text, width);
        }
    }

    #[test]
    fn simulated_rows_stand_apart_with_what_was_counted() {
        let mut simulated = example::row("mix", "rwsem", &[("readers", 1.0), ("writers", 1.0)]);
        let real = simulated.clone();
        simulated.machine = "eight-sockets".to_owned();
        simulated.simulated =
            Some(SimulatedCounts { operations: 100, transfers: 250, ..SimulatedCounts::default() });
        let text = tables(&[real, simulated], 2, true, 120);
        let title = "1 reader + 1 writer · section 10 pauses · think 10 pauses · simulated on eight-sockets, ";
        assert!(text.contains(title), "{text}");
        let transfers = text.lines().find(|line| line.starts_with("transfers")).unwrap();
        assert!(transfers.trim_end().ends_with("2.50"), "{transfers}");
    }

    #[test]
    fn switches_stand_with_the_cpus_shares_and_convoys_where_they_were_counted() {
        let mut row = example::row("mix", "rwsem", &[("readers", 0.0), ("writers", 2.0)]);
        let text = tables(std::slice::from_ref(&row), 2, true, 120);
        assert!(text.contains("70/10/20\n"), "{text}");
        let line = |text: &str, start: &str| {
            let line = text.lines().find(|line| line.starts_with(start)).map(str::to_owned);
            line.unwrap_or_default().trim_end().to_owned()
        };
        assert!(line(&text, "voluntary switches per operation").ends_with(" 0.05"), "{text}");
        assert!(!text.contains("spinning") && !text.contains("threads at the lock"), "{text}");

        row.cpu = row.cpu.map(|cpu| CpuShares { spinning: Some(0.25), ..cpu });
        let convoy = Convoy { count: 9, mean: 12.5, p99: 38, max: 40 };
        row.roles.get_mut(WRITER).unwrap().convoy = Some(convoy);
        let text = tables(std::slice::from_ref(&row), 2, true, 120);
        assert!(line(&text, "CPUs spinning").ends_with(" 25.0 %"), "{text}");
        assert!(line(&text, "mean").ends_with(" 12.5") && line(&text, "p99").ends_with(" 38"));

        row.cpu = None;
        assert!(!tables(&[row], 2, false, 120).contains("70/10/20"));
    }

    #[test]
    fn a_mix_is_ranked_and_its_roles_alone_are_not_shown() {
        let row = |lock: &str, readers: f64, writers: f64| {
            let row = example::row("mix", lock, &[("readers", readers), ("writers", writers)]);
            Row { for_limit: readers * writers == 0.0, ..row }
        };
        let of = |lock| [row(lock, 2.0, 2.0), row(lock, 2.0, 0.0), row(lock, 0.0, 2.0)];
        let mut rows = [of("std"), of("rwsem")].concat();
        let unranked = tables(&rows, 2, false, 120);
        assert!(!unranked.contains("of the limit"), "{unranked}");
        crate::limit::fill(&mut rows);
        let text = tables(&rows, 2, false, 120);
        assert!(text.contains("lock   rank  of the limit"), "{text}");
        assert!(text.contains("lesser role: what the role"), "{text}");
        assert_eq!(text.matches("mix · ").count(), 1, "{text}");
    }

    #[test]
    fn shares_of_processes_shorter_than_a_tick_are_not_to_be_believed() {
        let said = |workload| {
            let row = example::row(workload, "kernel", &[("threads", 2.0)]);
            tables(&[row], 2, false, 120).contains("believe idle")
        };
        assert!(said("forkstorm-kernel"));
        assert!(!said("forkstorm"));
    }

    #[test]
    fn a_simulated_run_in_which_some_had_no_turn_says_so() {
        let mut row = example::row("mix", "std", &[("readers", 2.0), ("writers", 2.0)]);
        let says_so = |row: &Row| {
            tables(std::slice::from_ref(row), 2, false, 120)
                .contains("completed nothing under std:")
        };
        row.simulated = Some(SimulatedCounts::default());
        assert!(!says_so(&row));
        row.roles.get_mut(WRITER).unwrap().thread_min = 0.0;
        assert!(says_so(&row));
        row.simulated = None;
        assert!(!says_so(&row));
    }

    #[test]
    fn a_role_that_starves_is_not_called_fair() {
        let mut row = example::row("mix", "std", &[("readers", 2.0), ("writers", 2.0)]);
        let role = row.roles.get_mut("writer").unwrap();
        assert_eq!(role.fairness(), Some(role.jain.median));
        // As rows said it once.
        (role.ops_per_s, role.jain) = (example::estimate(0.0), example::estimate(1.0));
        assert_eq!(role.fairness(), Some(0.0));
        assert_eq!(role_cells(role)[2], "0");
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
        ends_with("additions per read", ["3.00", "–"]);
        ends_with("waits, k/s", ["500", "0"]);
        ends_with("reads per wait", ["2.00", "–"]);
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
}
