//! How far a replayed program scales: under which lock it breaks, with how many threads, and at which of its own locks.
//!
//! The *limit* of a program is what it does if each thread has locks of its own, so that nobody waits. A lock *breaks* at the
//! lowest thread count tried where throughput is under half the limit, or significantly below that of a smaller count.

use std::collections::BTreeMap;

use fairlock_lab::workload::Workload;
use fairlock_lab::workloads::replay::{self, GLIBC, Replay};
use fairlock_report::chart::{Chart, Interval, Lines, Look, Looks, Part, Stack, Stacks};
use fairlock_report::page::{Section, charts};
use fairlock_report::params;
use fairlock_report::printable::printable;
use fairlock_report::program::{Arrivals, Program};
use fairlock_report::quantity::{Figure, Unit};
use fairlock_report::recording::Recording;
use fairlock_report::row::{HERE, LockShare, Row};
use fairlock_report::screen;
use fairlock_report::table::{Cell, Column, Kind, Table, Tone};
use fairlock_report::timeline::Timeline;
use fairlock_report::units::{counted, format_ns};
use maud::{Markup, html};

use super::timeline;
use crate::plan::HERE_SIMULATED;
use crate::registry;

/// Below this part of its limit a program has broken.
const BROKEN: f64 = 0.5;
/// Locks of the program that are shown, at most.
const SHOWN_LOCKS: usize = 8;
/// A sentence has so much of a name: those of C++ have hundreds of characters.
const SHOWN_NAME: usize = 60;
/// A replay that is further from what was recorded, in percent, is not to be believed.
const FAR_OFF: f64 = 20.0;

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
    /// The number of threads tried before, with which it is fine.
    pub fine: Option<u32>,
    /// Whether it has only become slower than with those, and keeps half of the limit.
    is_only_slower: bool,
    row: &'a Row,
}

impl Break<'_> {
    /// At how many threads, and what is known of fewer.
    fn place(&self) -> String {
        let at = format!("at {}", counted(self.threads.into(), "thread"));
        match self.fine {
            None => format!("{at} (the fewest tried)"),
            Some(fine) if self.is_only_slower => format!("{at} (slower than at {fine})"),
            Some(fine) => format!("{at} ({fine} is fine)"),
        }
    }
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
    let name = printable(&share.name);
    let name = match name.chars().count() > SHOWN_NAME {
        true => format!("{}…", name.chars().take(SHOWN_NAME - 1).collect::<String>()),
        false => name.into_owned(),
    };
    match share.count {
        1 => format!("its lock \"{name}\""),
        count => format!("its {count} locks \"{name}\""),
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
                    let fine = rows.range(..threads).next_back().map(|(fine, _)| *fine);
                    return Some(Break { lock, threads, fine, is_only_slower: !is_half, row });
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

    /// What a lock is called where people read it: as in `fairlock run`.
    fn name<'b>(&self, lock: &'b str) -> &'b str {
        let is_there = |name: &str| self.locks.iter().any(|(known, _)| *known == name);
        match lock {
            "pthread-writer" if is_there("pthread") => "glibc, writers first",
            "pthread" | "pthread-writer" => GLIBC,
            other => other,
        }
    }

    /// How the replay compares with what was recorded, where both are of as many threads under one lock on one machine.
    fn against_recorded(&self) -> Option<String> {
        let program = replay::program(&self.file).ok()?;
        let recorded = program.recorded.as_ref()?;
        // Which lock of Fairlock a Rust program uses nobody knows.
        let known: &[&str] = match recorded.lock.as_str() {
            GLIBC => &[GLIBC, "pthread", "pthread-writer"],
            "own" => &["rwlock", "rwsem"],
            other => &[other],
        };
        let rows_of = |lock: &&str| self.locks.iter().find(|(known, _)| known == lock);
        let (lock, rows) = known.iter().find_map(rows_of)?;
        let row = rows.get(&program.usual_threads())?;
        if ![HERE, HERE_SIMULATED].contains(&self.machine) || recorded.acquisitions_per_s <= 0.0 {
            return None;
        }
        let rate = row.total_ops_per_s.median;
        let off = (rate / recorded.acquisitions_per_s - 1.0) * 100.0;
        let (under, replayed) = match recorded.lock.as_str() {
            "own" => ("its own locks".to_owned(), format!("replayed under {}", self.name(lock))),
            other => (printable(other).into_owned(), "replayed".to_owned()),
        };
        let judged = match off.abs() > FAR_OFF {
            false => String::new(),
            true => ", so do not believe the replay's figures to better than that; see \"Is my recording good?\" in \
                     the book"
                .to_owned(),
        };
        Some(format!(
            "Recorded under {under} with {}: {}; {replayed}: {} ({off:+.0} %){judged}.",
            counted(program.usual_threads().into(), "thread"),
            Unit::PerSecond.words(recorded.acquisitions_per_s),
            Unit::PerSecond.words(rate)
        ))
    }

    fn machine_words(&self) -> String {
        match self.machine {
            HERE => "Here".to_owned(),
            HERE_SIMULATED => "On this machine (simulated)".to_owned(),
            machine => format!("On {machine}"),
        }
    }

    /// What the program does in this row, and which of its locks takes most time.
    fn told(&self, row: &Row, threads: u32) -> String {
        let kept = self.of_limit(row, threads);
        let kept = kept.map(|part| format!("keeps {} of the limit", share(part)));
        let worst = worst(row).filter(|worst| worst.share > 0.0);
        let time = worst
            .map(|it| format!("{} of its threads' time goes to {}", share(it.share), own_lock(it)));
        match (kept, time) {
            (Some(kept), Some(time)) => format!("the program {kept}, and {time}"),
            (Some(kept), None) => format!("the program {kept}"),
            (None, time) => time.unwrap_or_else(|| {
                let rate = Unit::PerSecond.words(row.total_ops_per_s.median);
                format!("the program acquires {rate}")
            }),
        }
    }

    /// The answer, in sentences.
    pub fn sentences(&self) -> Vec<String> {
        let Some(knee) = self.knee() else { return Vec::new() };
        let place = self.machine_words();
        let breaks = self.breaks();
        let mut sentences = Vec::new();
        match breaks.first() {
            Some(first) => sentences.push(format!(
                "{place}, {} breaks first, {}: {}.",
                self.name(first.lock),
                first.place(),
                self.told(first.row, knee)
            )),
            None => sentences.push(format!(
                "{place}, no lock breaks with up to {}.",
                counted(knee.into(), "thread")
            )),
        }
        let first = breaks.first().map(|it| it.lock);
        let others = self.locks.iter().filter(|(lock, _)| Some(*lock) != first);
        let mut others: Vec<(&str, &Row)> =
            others.filter_map(|(lock, rows)| Some((*lock, *rows.get(&knee)?))).collect();
        others.sort_by(|(_, one), (_, other)| {
            other.total_ops_per_s.median.total_cmp(&one.total_ops_per_s.median)
        });
        let mut with_the_same = match breaks.is_empty() {
            true => String::new(),
            false => format!(" with the same {}", counted(knee.into(), "thread")),
        };
        for (lock, row) in others {
            let (name, told) = (self.name(lock), self.told(row, knee));
            let with_the_same = std::mem::take(&mut with_the_same);
            let under = format!("Under {name}{with_the_same}");
            sentences.push(match breaks.iter().find(|it| it.lock == lock) {
                Some(it) if it.threads == knee => {
                    format!("{under}, which breaks there, too, {told}.")
                }
                Some(it) => format!(
                    "{under}, {told}; it breaks {}, where {}.",
                    it.place(),
                    self.told(it.row, it.threads)
                ),
                None => format!("{under}, {told}."),
            });
        }
        if replay::program(&self.file).is_ok_and(|program| program.scaling_threads() == 0) {
            sentences.push(
                "No kind of thread in the file scales, so there is one number of threads: set `scales = true` for \
                 those of which a larger program has more."
                    .to_owned(),
            );
        }
        sentences
    }

    /// What speaks against believing it.
    fn warnings(&self) -> Vec<String> {
        let program = replay::program(&self.file).ok();
        let recorded = program.and_then(|program| program.recorded.clone()).unwrap_or_default();
        recorded.warnings.iter().map(|it| format!("warning: {}", printable(it))).collect()
    }

    /// Operations per second by threads, lock by lock.
    fn table(&self) -> Table {
        let mut columns = vec![Column::new("threads", Kind::Number)];
        columns.push(Column::new("no contention", Kind::Number));
        columns
            .extend(self.locks.iter().map(|(lock, _)| Column::new(self.name(lock), Kind::Number)));
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
        let caption = "Acquisitions per second, and share of the limit".to_owned();
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
        let mut series: Vec<(String, Vec<(usize, Figure)>)> = self
            .locks
            .iter()
            .map(|(lock, rows)| (self.name(lock).to_owned(), line(rows)))
            .collect();
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
            Some(Stack { name: self.name(lock).to_owned(), parts, note: String::new() })
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
            at_knee
                .iter()
                .map(|row| Column::new(format!("under {}", self.name(&row.lock)), Kind::Number)),
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
            self.name(&first.lock)
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
            let mut cells = vec![Cell::new(self.name(lock))];
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
        let caption = format!("How long threads wait, with {}", counted(threads.into(), "thread"));
        Table { caption, columns, rows: rows.collect() }
    }
}

/// What the sentences mean.
const DEFINED: &str = "The limit, \"no contention\", is the same program with locks of its own for each thread. A lock breaks \
                       at the lowest thread count tried where throughput is under half the limit, or significantly below \
                       that of a smaller count.";

/// The recording with the names of locks that a page shows; its rows in a file keep those of the lab.
pub fn as_shown(recording: &Recording) -> Recording {
    let mut shown = recording.clone();
    for scaling in Scaling::of(&recording.rows) {
        let is_its =
            |workload: &str, machine: &str| workload == Replay::NAME && machine == scaling.machine;
        for row in shown.rows.iter_mut().filter(|row| is_its(&row.workload, &row.machine)) {
            row.lock = scaling.name(&row.lock).to_owned();
        }
        for timeline in &mut shown.timelines {
            if is_its(&timeline.workload, &timeline.machine) {
                timeline.lock = scaling.name(&timeline.lock).to_owned();
            }
        }
    }
    shown
}

/// What a terminal says.
pub fn text(recording: &Recording, columns: usize) -> String {
    let mut told = String::new();
    let all = Scaling::of(&recording.rows);
    for (number, scaling) in all.iter().enumerate() {
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
        let mut paragraphs = vec![scaling.sentences().join(" ")];
        paragraphs.extend(scaling.against_recorded());
        // Once, with the last machine.
        if all[number + 1..].iter().all(|other| other.file != scaling.file) {
            paragraphs.extend(scaling.warnings());
        }
        for paragraph in paragraphs {
            told += &screen::wrapped_lines(&paragraph, columns);
            told += "\n\n";
        }
    }
    told
}

/// What a page says; nothing where nothing was replayed.
pub(super) fn sections(recording: &Recording, looks: &mut Looks) -> Vec<Section> {
    let all = Scaling::of(&recording.rows);
    if all.is_empty() {
        return Vec::new();
    }
    let mut files: Vec<&str> = all.iter().map(|scaling| scaling.file.as_str()).collect();
    files.dedup();
    let warnings = |file: &&str| all.iter().find(|it| it.file == *file).map(Scaling::warnings);
    let answer = html! {
        @for scaling in &all {
            p.question { (scaling.sentences().join(" ")) }
            @if let Some(compared) = scaling.against_recorded() { p { (compared) } }
        }
        @for warning in files.iter().filter_map(warnings).flatten() { p { (warning) } }
        p.soft { (DEFINED) }
    };
    let mut sections = vec![Section::new("scaling", "How far it scales", answer)];
    for scaling in &all {
        sections.push(machine_section(scaling, recording, looks));
    }
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
            (Chart::new(timeline_title(scaling, timeline), timeline::picture(timeline)).html())
        }
    };
    Section::new(format!("on-{}", scaling.machine), scaling.machine_words(), body)
}

/// Of many threads a timeline has the first and the last only, and says so.
fn timeline_title(scaling: &Scaling<'_>, timeline: &Timeline) -> String {
    let title = format!("How threads begin under {}", scaling.name(&timeline.lock));
    let program = replay::program(&scaling.file).ok();
    let threads = params::number(&timeline.params, "threads");
    let all = program.zip(threads).map(|(program, threads)| program.staff(threads as u32));
    let (all, shown) = (all.iter().flatten().sum::<u32>(), timeline.threads.len() as u32);
    match all > shown {
        true => format!("{title}: {shown} of {all} threads, the first and the last"),
        false => title,
    }
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
        let more = if kind.scales { "scales" } else { "fixed" };
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
        p { "The file " code { (file) } " contains everything that determines this replay; change it there." }
        @if let Some(recorded) = &program.recorded {
            p {
                "Recorded: " code { (recorded.command) } ", under "
                @if recorded.lock == "own" { "its own locks" } @else { (recorded.lock) }
                " on "
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
    use fairlock_report::recording::Header;
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
            "On forty, glibc breaks first, at 8 threads (1 is fine): the program keeps 38 % of the limit, and",
            "71 % of its threads' time goes to its lock \"the table\"",
            "Under rwlock with the same 8 threads, the program keeps 94 % of the limit, and 4 %",
            "; it breaks at 64 threads (8 is fine), where the program keeps 11 % of the limit, and 4 %",
        ] {
            assert!(said.contains(part), "`{said}` lacks `{part}`");
        }
    }

    #[test]
    fn a_lock_that_only_became_slower_and_one_that_breaks_at_once_say_so() {
        let rows: Vec<Row> = [(2, 190.0), (4, 150.0)]
            .map(|(threads, rate)| row("std", threads, rate, "recorded", 0.2))
            .to_vec();
        let said = Scaling::of(&rows)[0].sentences().join(" ");
        assert!(said.contains("std breaks first, at 4 threads (slower than at 2):"), "{said}");
        let mut rows =
            vec![row("std", 2, 10.0, "recorded", 0.2), row("std", 2, 100.0, "nobody", 0.0)];
        rows[0].machine = HERE_SIMULATED.to_owned();
        rows[1].machine = HERE_SIMULATED.to_owned();
        let said = Scaling::of(&rows)[0].sentences().join(" ");
        let expected =
            "On this machine (simulated), std breaks first, at 2 threads (the fewest tried):";
        assert!(said.starts_with(expected), "{said}");
    }

    #[test]
    fn both_of_glibcs_locks_have_names_that_tell_them_apart() {
        let of = |locks: &[&str]| -> Vec<Row> {
            locks.iter().map(|lock| row(lock, 2, 10.0, "recorded", 0.2)).collect()
        };
        let (one, both) = (of(&["pthread-writer"]), of(&["pthread", "pthread-writer"]));
        assert_eq!(Scaling::of(&one)[0].name("pthread-writer"), "glibc");
        assert_eq!(Scaling::of(&both)[0].name("pthread"), "glibc");
        assert_eq!(Scaling::of(&both)[0].name("pthread-writer"), "glibc, writers first");
    }

    #[test]
    fn a_long_name_of_a_lock_is_cut_in_a_sentence() {
        let mut row = row("std", 2, 10.0, "recorded", 0.2);
        row.locks[0].name = "made by std::map<".to_owned() + &"std::pair<int, int>, ".repeat(20);
        let said = Scaling::of(std::slice::from_ref(&row))[0].sentences().join(" ");
        let cut: String = row.locks[0].name.chars().take(SHOWN_NAME - 1).collect();
        assert!(worst(&row).is_some_and(|it| own_lock(it) == format!("its lock \"{cut}…\"")));
        assert!(!said.contains(&row.locks[0].name), "{said}");
    }

    /// Rows of a recording of two threads.
    fn recorded(lock: &str, rate: f64, machine: &str) -> (tempfile::NamedTempFile, Vec<Row>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!(
            "format = 1\n[recorded]\nlock = \"{lock}\"\nacquisitions_per_s = 100.0\nwarnings = [\"half of it was \\\\u001blost\"]\n\
             [[lock]]\nid = 1\nname = \"it\"\n[[kind]]\nname = \"w\"\nthreads = 2\nscales = false\nsteps = [\"r1 5 .1\"]"
        )
        .replace("\\\\", "\\");
        std::fs::write(&file, text).unwrap();
        let rows = ["pthread-writer", "rwsem", "rwlock"].map(|lock| {
            let mut row = row(lock, 2, rate, "recorded", 0.2);
            row.params.insert("file".to_owned(), Value::from(file.path().to_str().unwrap()));
            row.machine = machine.to_owned();
            row
        });
        (file, rows.to_vec())
    }

    #[test]
    fn a_replay_that_is_far_from_what_was_recorded_is_not_to_be_believed() {
        let (_file, rows) = recorded("glibc", 130.0, HERE);
        let said = Scaling::of(&rows)[0].against_recorded().unwrap();
        assert!(said.starts_with("Recorded under glibc with 2 threads: 100/s; replayed: 130/s (+30 %), so do not believe"), "{said}");
        let (_file, rows) = recorded("own", 85.0, HERE);
        let said = Scaling::of(&rows)[0].against_recorded().unwrap();
        assert_eq!(
            said,
            "Recorded under its own locks with 2 threads: 100/s; replayed under rwlock: 85/s (-15 %)."
        );
        let (_file, rows) = recorded("glibc", 130.0, "forty");
        assert_eq!(Scaling::of(&rows)[0].against_recorded(), None);
    }

    #[test]
    fn warnings_and_that_nothing_scales_are_said_once_on_a_terminal_and_on_a_page() {
        let (_file, mut rows) = recorded("glibc", 100.0, HERE);
        let elsewhere =
            rows.clone().into_iter().map(|row| Row { machine: "forty".to_owned(), ..row });
        rows.extend(elsewhere.collect::<Vec<_>>());
        let header = Header::now(Vec::new(), false, fairlock_lab::machine::here(None));
        let mut recording = Recording::new(header);
        recording.rows = rows;
        let said = text(&recording, 200);
        assert_eq!(said.matches("\n\nwarning: half of it was \\x1blost\n\n").count(), 1, "{said}");
        assert_eq!(said.matches("set `scales = true`").count(), 2, "{said}");
        assert!(said.contains("\n\nRecorded under glibc"), "{said}");
        assert!(said.contains("glibc") && !said.contains("pthread"), "{said}");
        let page = crate::report::page(&as_shown(&recording));
        assert!(page.contains("glibc") && !page.contains("pthread"));
        let sections = sections(&recording, &mut Looks::default());
        let page: String = sections.iter().map(|it| it.body.clone().into_string()).collect();
        assert_eq!(page.matches("warning: half of it").count(), 1);
        assert!(page.contains("contains everything") && page.contains("fixed"));
        assert!(!page.contains("pthread"));
    }

    #[test]
    fn a_timeline_that_shows_some_of_the_threads_says_so() {
        let rows = rows();
        let scaling = &Scaling::of(&rows)[0];
        let mut timeline = example::timeline("mix", "rwsem", "eight-sockets");
        timeline.lock = "pthread".to_owned();
        timeline.params = rows[0].params.clone();
        timeline.params.insert("threads".to_owned(), Value::from(40.0));
        timeline.threads.truncate(2);
        let title = timeline_title(scaling, &timeline);
        assert_eq!(title, "How threads begin under glibc: 2 of 41 threads, the first and the last");
        timeline.params.insert("threads".to_owned(), Value::from(1.0));
        assert_eq!(timeline_title(scaling, &timeline), "How threads begin under glibc");
    }
}
