//! How far a replayed program scales: under which lock it breaks, with how many threads, and at which of its own locks.
//!
//! The *limit* of a program is what it does if each thread has locks of its own, so that nobody waits. A lock *breaks* with
//! the first number of threads with which the program does less than half of its limit, or surely less than with fewer
//! threads.

use std::collections::BTreeMap;

use fairlock_report::chart::{Chart, Interval, Lines, Look, Looks, Part, Stack, Stacks};
use fairlock_report::page::{Section, charts};
use fairlock_report::printable::printable;
use fairlock_report::program::{Arrivals, Program};
use fairlock_report::quantity::{Figure, Unit};
use fairlock_report::recording::Recording;
use fairlock_report::row::{HERE, LockShare, Row};
use fairlock_report::screen;
use fairlock_report::table::{Cell, Column, Kind, Table, Tone};
use fairlock_report::units::{counted, format_ns};
use maud::{Markup, html};

use super::timeline;
use crate::plan::HERE_SIMULATED;
use crate::registry;
use crate::workload::Workload;
use crate::workloads::replay::{self, Replay};

/// Below this part of its limit a program has broken.
const BROKEN: f64 = 0.5;
/// Locks of the program that are shown, at most.
const SHOWN_LOCKS: usize = 8;

/// A replayed program on one machine.
pub struct Scaling<'a> {
    /// The machine, as rows name it.
    pub machine: &'a str,
    /// The program's file.
    pub file: String,
    /// Numbers of threads, ascending, with what the program would do without contention.
    limits: BTreeMap<u32, &'a Row>,
    /// In the order of the rows: a lock, and its rows by threads.
    locks: Vec<(&'a str, BTreeMap<u32, &'a Row>)>,
}

/// Where a lock breaks.
pub struct Break<'a> {
    /// The lock.
    pub lock: &'a str,
    /// With how many threads.
    pub threads: u32,
    row: &'a Row,
}

/// The part of a row that a program's lock takes, if it has several.
fn worst(row: &Row) -> Option<&LockShare> {
    row.locks.iter().max_by(|one, other| one.share.total_cmp(&other.share))
}

fn share(part: f64) -> String {
    match part * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.1 => "below 0.1 %".to_owned(),
        percent if percent < 1.0 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// A program's own lock in a sentence.
fn own_lock(share: &LockShare) -> String {
    match share.count {
        1 => format!("its lock \"{}\"", printable(&share.name)),
        count => format!("its {count} locks \"{}\"", printable(&share.name)),
    }
}

impl<'a> Scaling<'a> {
    /// Of each program on each machine, in the order of the rows.
    pub fn of(rows: &'a [Row]) -> Vec<Scaling<'a>> {
        let mut all: Vec<Scaling<'a>> = Vec::new();
        for row in rows.iter().filter(|row| row.workload == Replay::NAME) {
            let text = |name: &str| registry::param(row, name).map(|value| value.to_string());
            let (Some(file), Some(threads)) = (text("file"), registry::number(row, "threads"))
            else {
                continue;
            };
            let known = all.iter().position(|it| it.machine == row.machine && it.file == file);
            let at = known.unwrap_or_else(|| {
                let (limits, locks) = Default::default();
                all.push(Scaling { machine: &row.machine, file, limits, locks });
                all.len() - 1
            });
            let scaling = &mut all[at];
            let threads = threads as u32;
            if text("shared").as_deref() == Some("nobody") {
                let rate = |row: &Row| row.total_ops_per_s.median;
                let best = scaling.limits.entry(threads).or_insert(row);
                if rate(row) > rate(best) {
                    *best = row;
                }
                continue;
            }
            let known = scaling.locks.iter().position(|(lock, _)| *lock == row.lock);
            let at = known.unwrap_or_else(|| {
                scaling.locks.push((&row.lock, BTreeMap::new()));
                scaling.locks.len() - 1
            });
            scaling.locks[at].1.insert(threads, row);
        }
        all
    }

    /// What part of the limit the program does under this lock.
    fn of_limit(&self, row: &Row, threads: u32) -> Option<f64> {
        let limit = self.limits.get(&threads)?.total_ops_per_s.median;
        (limit > 0.0).then(|| row.total_ops_per_s.median / limit)
    }

    /// Where each lock that breaks does so, those that break first before others.
    pub fn breaks(&self) -> Vec<Break<'a>> {
        let of_lock = |(lock, rows): &(&'a str, BTreeMap<u32, &'a Row>)| {
            let mut before: Option<&Row> = None;
            for (&threads, &row) in rows {
                let is_half = self.of_limit(row, threads).is_some_and(|part| part < BROKEN);
                let is_less = before
                    .is_some_and(|it| row.total_ops_per_s.high < it.total_ops_per_s.low * 0.95);
                if is_half || is_less {
                    return Some(Break { lock, threads, row });
                }
                before = Some(row);
            }
            None
        };
        let mut breaks: Vec<Break<'a>> = self.locks.iter().filter_map(of_lock).collect();
        breaks.sort_by_key(|it| it.threads);
        breaks
    }

    /// With how many threads the machine's locks are compared at length: where the first one breaks, or with the most.
    pub fn knee(&self) -> Option<u32> {
        let most = self.locks.iter().filter_map(|(_, rows)| rows.keys().next_back()).max();
        self.breaks().first().map(|it| it.threads).or(most.copied())
    }

    /// The locks, in the order of the rows.
    pub fn lock_names(&self) -> impl Iterator<Item = &'a str> {
        self.locks.iter().map(|(lock, _)| *lock)
    }

    /// How the replay compares with what was recorded, where both are of as many threads under one lock on one machine.
    fn against_recorded(&self) -> Option<String> {
        let program = replay::program(&self.file).ok()?;
        let recorded = program.recorded.as_ref()?;
        let lock = match recorded.lock.as_str() {
            "glibc" => "pthread",
            other => other,
        };
        let (_, rows) = self.locks.iter().find(|(known, _)| known.starts_with(lock))?;
        let row = rows.get(&program.scaling_threads())?;
        if ![HERE, HERE_SIMULATED].contains(&self.machine) || recorded.acquisitions_per_s <= 0.0 {
            return None;
        }
        let rate = row.total_ops_per_s.median;
        let off = (rate / recorded.acquisitions_per_s - 1.0) * 100.0;
        Some(format!(
            "Recorded under {} with {}: {}; replayed: {} ({off:+.0} %).",
            recorded.lock,
            counted(program.scaling_threads().into(), "thread"),
            Unit::PerSecond.words(recorded.acquisitions_per_s),
            Unit::PerSecond.words(rate)
        ))
    }

    fn machine_words(&self) -> String {
        match self.machine {
            HERE => "Here".to_owned(),
            HERE_SIMULATED => "On this machine, simulated".to_owned(),
            machine => format!("On {machine}"),
        }
    }

    /// The answer, in sentences.
    pub fn sentences(&self) -> Vec<String> {
        let Some(knee) = self.knee() else { return Vec::new() };
        let at_knee = |lock: &str| {
            let (_, rows) = self.locks.iter().find(|(known, _)| *known == lock)?;
            rows.get(&knee).copied()
        };
        let of_limit = |row: &Row| {
            let part = self.of_limit(row, knee);
            part.map(|part| format!("{} of what it could without contention", share(part)))
        };
        let time = |row: &Row| {
            let worst = worst(row).filter(|worst| worst.share > 0.0);
            worst.map(|it| {
                format!("{} of its threads' time goes to {}", share(it.share), own_lock(it))
            })
        };
        let told = |row: &Row| {
            let parts = [of_limit(row).map(|part| format!("the program does {part}")), time(row)];
            parts.into_iter().flatten().collect::<Vec<_>>().join(", and ")
        };
        let place = self.machine_words();
        let breaks = self.breaks();
        let mut sentences = Vec::new();
        match breaks.first() {
            Some(first) => {
                sentences.push(format!(
                    "{place} {} breaks first, with {}: {}.",
                    first.lock,
                    counted(knee.into(), "thread"),
                    told(first.row)
                ));
                for other in &breaks[1..] {
                    if other.threads > knee {
                        sentences.push(format!(
                            "{} breaks with {}.",
                            other.lock,
                            counted(other.threads.into(), "thread")
                        ));
                    }
                }
            }
            None => sentences.push(format!(
                "{place} no lock breaks with up to {}.",
                counted(knee.into(), "thread")
            )),
        }
        let first = breaks.first().map(|it| it.lock);
        let mut others: Vec<&Row> =
            self.locks.iter().filter_map(|(lock, _)| at_knee(lock)).collect();
        others.retain(|row| Some(row.lock.as_str()) != first);
        others.sort_by(|one, other| {
            other.total_ops_per_s.median.total_cmp(&one.total_ops_per_s.median)
        });
        let with_as_many = if breaks.is_empty() { "" } else { " with as many threads" };
        for (number, row) in others.iter().enumerate() {
            let with_as_many = if number == 0 { with_as_many } else { "" };
            sentences.push(format!("Under {}{with_as_many} {}.", row.lock, told(row)));
        }
        sentences
    }

    /// Operations per second by threads, lock by lock.
    fn table(&self) -> Table {
        let mut columns = vec![Column::new("threads", Kind::Number)];
        columns.push(Column::new("no contention", Kind::Number));
        columns.extend(self.locks.iter().map(|(lock, _)| Column::new(*lock, Kind::Number)));
        let counts: std::collections::BTreeSet<u32> = self
            .locks
            .iter()
            .flat_map(|(_, rows)| rows.keys().copied())
            .chain(self.limits.keys().copied())
            .collect();
        let rows = counts.into_iter().map(|threads| {
            let rate = |row: &Row| Unit::PerSecond.words(row.total_ops_per_s.median);
            let limit = self.limits.get(&threads);
            let best = self
                .locks
                .iter()
                .filter_map(|(_, rows)| Some(rows.get(&threads)?.total_ops_per_s.median))
                .fold(0.0, f64::max);
            let of_lock = |(_, rows): &(&str, BTreeMap<u32, &Row>)| {
                let Some(row) = rows.get(&threads) else { return Cell::none() };
                let part = self.of_limit(row, threads).map(share).unwrap_or_default();
                let is_best = row.total_ops_per_s.median >= best && self.locks.len() > 1;
                let tone = if is_best { Tone::Best } else { Tone::Plain };
                Cell::new(rate(row)).detail(part).tone(tone)
            };
            let first = Cell::new(threads.to_string());
            let limit = limit.map_or_else(Cell::none, |row| Cell::new(rate(row)));
            [first, limit].into_iter().chain(self.locks.iter().map(of_lock)).collect()
        });
        let caption = "Acquisitions per second, and the part of the limit".to_owned();
        Table { caption, columns, rows: rows.collect() }
    }

    /// The same as lines.
    fn chart(&self, looks: &mut Looks) -> Chart {
        let counts: Vec<u32> = self.limits.keys().copied().collect();
        let counts = match counts.is_empty() {
            true => self.locks.iter().flat_map(|(_, rows)| rows.keys().copied()).collect(),
            false => counts,
        };
        let place = |threads: u32| counts.iter().position(|known| *known == threads);
        let line = |rows: &BTreeMap<u32, &Row>| -> Vec<(usize, Figure)> {
            let points = rows.iter();
            let points = points.filter_map(|(threads, row)| {
                Some((place(*threads)?, Figure::from(row.total_ops_per_s)))
            });
            points.collect()
        };
        let mut series: Vec<(String, Vec<(usize, Figure)>)> =
            self.locks.iter().map(|(lock, rows)| ((*lock).to_owned(), line(rows))).collect();
        if !self.limits.is_empty() {
            series.push(("no contention".to_owned(), line(&self.limits)));
        }
        let places = counts.iter().map(u32::to_string).collect();
        let lines = Lines::new("threads", places, ("acquisitions", Unit::PerSecond), series, looks);
        let repetitions = self.locks.iter().flat_map(|(_, rows)| rows.values());
        Chart::new(format!("{}: acquisitions per second", self.machine), lines)
            .interval(Interval::of(repetitions.map(|row| row.repetitions)))
    }

    /// Where the threads' time goes under each lock, with so many threads.
    fn time_chart(&self, threads: u32) -> Option<Chart> {
        let stack = |(lock, rows): &(&str, BTreeMap<u32, &Row>)| {
            let row = rows.get(&threads)?;
            let in_locks: f64 = row.locks.iter().map(|it| it.share).sum();
            let part = |role: &str, look, value| Part { role: role.to_owned(), look, value };
            let parts = vec![
                part("in calls of its locks", Look::Writer, in_locks.min(1.0)),
                part("computing or away", Look::Reader, (1.0 - in_locks).max(0.0)),
            ];
            Some(Stack { name: (*lock).to_owned(), parts, note: String::new() })
        };
        let stacks: Vec<Stack> = self.locks.iter().filter_map(stack).collect();
        let is_any = stacks.iter().any(|stack| stack.parts[0].value > 0.0);
        is_any.then(|| {
            let title =
                format!("{}: the time of {}", self.machine, counted(threads.into(), "thread"));
            Chart::new(title, Stacks::new("share of the threads' time", Unit::Share, stacks))
        })
    }

    /// The program's own locks that take most time, under each lock, with so many threads.
    fn own_locks(&self, threads: u32) -> Option<Table> {
        let at_knee: Vec<&Row> =
            self.locks.iter().filter_map(|(_, rows)| rows.get(&threads).copied()).collect();
        let first = at_knee.first()?;
        let most = |at: usize| {
            let shares = at_knee.iter().filter_map(|row| Some(row.locks.get(at)?.share));
            shares.fold(0.0, f64::max)
        };
        let mut order: Vec<usize> = (0..first.locks.len()).collect();
        order.sort_by(|one, other| most(*other).total_cmp(&most(*one)));
        order.truncate(SHOWN_LOCKS);
        let mut columns = vec![Column::new("lock of the program", Kind::Heading)];
        columns.push(Column::new("reads", Kind::Number));
        columns.push(Column::new("writes", Kind::Number));
        columns.extend(
            at_knee.iter().map(|row| Column::new(format!("under {}", row.lock), Kind::Number)),
        );
        let rows = order.into_iter().map(|at| {
            let lock = &first.locks[at];
            let count =
                if lock.count > 1 { format!("{} locks", lock.count) } else { String::new() };
            let name = Cell::new(&lock.name).detail(count);
            let rates = [lock.reads_per_s, lock.writes_per_s];
            let rates = rates.map(|rate| Cell::new(Unit::PerSecond.words(rate)));
            let shares = at_knee.iter().map(|row| {
                row.locks.get(at).map_or_else(Cell::none, |it| Cell::new(share(it.share)))
            });
            std::iter::once(name).chain(rates).chain(shares).collect()
        });
        let rows: Vec<Vec<Cell>> = rows.collect();
        let caption = format!(
            "Share of the threads' time in calls of each lock, with {}; rates under {}",
            counted(threads.into(), "thread"),
            first.lock
        );
        (!rows.is_empty()).then_some(Table { caption, columns, rows })
    }

    /// What waits are like under each lock, with so many threads.
    fn waits(&self, threads: u32) -> Table {
        let titles = [
            "mean wait to read",
            "99 %",
            "longest",
            "mean wait to write",
            "99 %",
            "longest",
            "CPUs run",
            "of it spinning",
            "idle",
        ];
        let mut columns = vec![Column::new("", Kind::Heading)];
        columns.extend(titles.map(|title| Column::new(title, Kind::Number)));
        let rows = self.locks.iter().filter_map(|(lock, rows)| {
            let row = rows.get(&threads)?;
            let mut cells = vec![Cell::new(*lock)];
            for role in ["reader", "writer"] {
                let Some(stats) = row.roles.get(role).filter(|stats| stats.wait.count > 0) else {
                    cells.extend([Cell::none(), Cell::none(), Cell::none()]);
                    continue;
                };
                let waits = [stats.wait.mean, stats.wait.p99 as f64, stats.longest_wait.median];
                cells.extend(waits.map(|ns| Cell::new(format_ns(ns))));
            }
            cells.extend(match &row.cpu {
                None => [Cell::none(), Cell::none(), Cell::none()],
                Some(cpu) => [
                    Cell::new(share(cpu.user + cpu.system)),
                    cpu.spinning.map_or_else(Cell::none, |it| Cell::new(share(it))),
                    Cell::new(share(cpu.idle)),
                ],
            });
            Some(cells)
        });
        let caption = format!("What threads wait for, with {}", counted(threads.into(), "thread"));
        Table { caption, columns, rows: rows.collect() }
    }
}

/// What a terminal says.
pub fn text(recording: &Recording, columns: usize) -> String {
    let mut told = String::new();
    for scaling in Scaling::of(&recording.rows) {
        let table = scaling.table();
        let heads = table.columns.iter().map(|it| screen::Column::number(&it.title));
        let mut shown = screen::Table::new(1, heads);
        for cells in table.rows {
            let words = |cell: Cell| match cell.detail.is_empty() {
                true => cell.text,
                false => format!("{} ({})", cell.text, cell.detail),
            };
            shown.row(cells.into_iter().map(words));
        }
        let caption = format!("{}, {}", scaling.machine_words(), table.caption.to_lowercase());
        told += &screen::wrapped_lines(&caption, columns);
        told += &format!("\n\n{}\n\n", shown.fitted(columns));
        let mut sentences = scaling.sentences();
        sentences.extend(scaling.against_recorded());
        told += &screen::wrapped_lines(&sentences.join(" "), columns);
        told += "\n\n";
    }
    told
}

/// What a page says; nothing where nothing was replayed.
pub(super) fn sections(recording: &Recording, looks: &mut Looks) -> Vec<Section> {
    let all = Scaling::of(&recording.rows);
    if all.is_empty() {
        return Vec::new();
    }
    let answer = html! {
        @for scaling in &all {
            p.question { (scaling.sentences().join(" ")) }
            @if let Some(compared) = scaling.against_recorded() { p { (compared) } }
        }
        p.soft {
            "The limit, \"no contention\", is the same program with locks of its own for each thread. A lock breaks with the \
             first number of threads with which the program does less than half of that, or surely less than with fewer \
             threads."
        }
    };
    let mut sections = vec![Section::new("scaling", "How far it scales", answer)];
    for scaling in &all {
        sections.push(machine_section(scaling, recording, looks));
    }
    let mut files: Vec<&str> = all.iter().map(|scaling| scaling.file.as_str()).collect();
    files.dedup();
    for file in files {
        if let Ok(program) = replay::program(file) {
            sections.push(Section::new("program", "What was replayed", about(file, &program)));
        }
    }
    sections
}

fn machine_section(scaling: &Scaling<'_>, recording: &Recording, looks: &mut Looks) -> Section {
    let mut drawn = vec![scaling.chart(looks).html()];
    let knee = scaling.knee();
    drawn.extend(knee.and_then(|threads| scaling.time_chart(threads)).map(|chart| chart.html()));
    let begun = recording
        .timelines
        .iter()
        .filter(|it| it.workload == Replay::NAME && it.machine == scaling.machine);
    let body = html! {
        (charts(&drawn))
        (scaling.table().html())
        @if let Some(threads) = knee {
            @if let Some(table) = scaling.own_locks(threads) { (table.html()) }
            (scaling.waits(threads).html())
        }
        @for timeline in begun {
            @let title = format!("How threads begin under {}", timeline.lock);
            (Chart::new(title, timeline::picture(timeline)).html())
        }
    };
    Section::new(format!("on-{}", scaling.machine), scaling.machine_words(), body)
}

/// What a program is.
fn about(file: &str, program: &Program) -> Markup {
    let mut kinds = Table {
        caption: "Threads".to_owned(),
        columns: ["kind", "recorded", "with more threads"]
            .map(|title| Column::new(title, Kind::Words))
            .to_vec(),
        rows: Vec::new(),
    };
    for kind in &program.kinds {
        let more = if kind.scales { "more of them" } else { "as many" };
        let cells = [kind.name.clone(), kind.threads.to_string(), more.to_owned()];
        kinds.rows.push(cells.map(Cell::new).to_vec());
    }
    let mut locks = Table {
        caption: "Locks".to_owned(),
        columns: ["lock", "how many", "shared by"]
            .map(|title| Column::new(title, Kind::Words))
            .to_vec(),
        rows: Vec::new(),
    };
    for lock in &program.locks {
        let cells = [lock.name.clone(), lock.count.to_string(), lock.shared.to_string()];
        locks.rows.push(cells.map(Cell::new).to_vec());
    }
    html! {
        p { "The file " code { (file) } " says all that decides this replay; change it there." }
        @if let Some(recorded) = &program.recorded {
            p {
                "Recorded: " code { (recorded.command) } ", under " (recorded.lock) " on "
                (counted(recorded.cpus.into(), "CPU")) " (" (recorded.cpu) "), for "
                (format_ns(recorded.recorded_seconds * 1e9)) " of "
                (format_ns(recorded.seconds * 1e9)) ". "
                (Unit::PerSecond.words(recorded.acquisitions_per_s)) " acquisitions; "
                (share(recorded.in_lock)) " of the threads' time in calls of locks, "
                (share(recorded.computing)) " computing, " (share(recorded.away)) " away, "
                (share(recorded.without_cpu)) " without a CPU."
            }
        }
        @if program.arrivals == Arrivals::Open {
            p { "Work arrives when it did in the recording, whether threads are ready for it or not." }
        }
        (kinds.html()) (locks.html())
        p.soft {
            "Not in a replay: what the program's own data cost on another machine (a computation takes as long as it was \
             recorded), memory bandwidth, other kinds of locks, and what threads wait for while they are away."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use fairlock_report::params::Value;
    use fairlock_report::row::Estimate;

    fn row(lock: &str, threads: u32, rate: f64, shared: &str, share: f64) -> Row {
        let mut row = example::row("mix", lock, &[("readers", 2.0), ("writers", 2.0)]);
        (row.workload, row.machine) = ("replay".to_owned(), "forty".to_owned());
        row.params = [
            ("file".to_owned(), Value::from("example")),
            ("threads".to_owned(), Value::from(f64::from(threads))),
            ("shared".to_owned(), Value::from(shared)),
        ]
        .into();
        row.total_ops_per_s = Estimate { median: rate, low: rate, high: rate };
        row.locks = vec![LockShare {
            id: 1,
            count: 1,
            name: "the table".to_owned(),
            reads_per_s: rate,
            writes_per_s: 0.0,
            share,
        }];
        row
    }

    fn rows() -> Vec<Row> {
        let mut rows = Vec::new();
        for (threads, limit, first, second) in
            [(1, 100.0, 99.0, 98.0), (8, 800.0, 300.0, 750.0), (64, 6400.0, 200.0, 700.0)]
        {
            rows.push(row("rwlock", threads, limit, "nobody", 0.0));
            rows.push(row("pthread", threads, first, "recorded", 0.71));
            rows.push(row("rwlock", threads, second, "recorded", 0.04));
        }
        rows
    }

    #[test]
    fn a_lock_breaks_where_half_of_the_limit_is_lost() {
        let rows = rows();
        let scaling = Scaling::of(&rows);
        assert_eq!(scaling.len(), 1);
        let breaks: Vec<(&str, u32)> =
            scaling[0].breaks().iter().map(|it| (it.lock, it.threads)).collect();
        assert_eq!(breaks, [("pthread", 8), ("rwlock", 64)]);
        assert_eq!(scaling[0].knee(), Some(8));
    }

    #[test]
    fn a_lock_under_which_more_threads_do_less_breaks_too() {
        let rows: Vec<Row> = [(1, 100.0), (2, 190.0), (4, 150.0)]
            .map(|(threads, rate)| row("std", threads, rate, "recorded", 0.2))
            .to_vec();
        let scaling = Scaling::of(&rows);
        assert_eq!(scaling[0].knee(), Some(4));
        assert_eq!(scaling[0].breaks().len(), 1);
    }

    #[test]
    fn the_answer_names_the_lock_the_threads_and_the_share() {
        let rows = rows();
        let said = Scaling::of(&rows)[0].sentences().join(" ");
        for part in [
            "On forty pthread breaks first, with 8 threads",
            "38 % of what it could without contention",
            "71 % of its threads' time goes to its lock \"the table\"",
            "rwlock breaks with 64 threads",
            "Under rwlock with as many threads the program does 94 %",
            "4 %",
        ] {
            assert!(said.contains(part), "`{said}` lacks `{part}`");
        }
    }
}
