//! "Which lock should I use?", answered from rows.
//!
//! A situation is a group of rows of real threads with the same parameters, in which people's locks were measured
//! alongside each other. In each, a lock that starved somebody is out; of the others the one with the most operations
//! per second is the fastest. Another is slower if the fastest was faster in its repetitions, pair by pair, as claims
//! take ratios; it is as fast if these show that it is at most 5 % slower; in between nobody can tell. The lock to
//! use starved nobody anywhere, and falls back behind the fastest the least where it falls back the most.
//!
//! What counts as starving must not be what a scheduler does to threads that share CPUs: see [`starved`].

use std::collections::{BTreeMap, BTreeSet};

use fairlock_lab::locks::{self, Kind as LockKind};
use fairlock_lab::workloads;
use fairlock_report::page::Section;
use fairlock_report::quantity::{Figure, Unit};
use fairlock_report::recording::Recording;
use fairlock_report::row::{Estimate, HERE, RoleStats, Row};
use fairlock_report::table::{Cell, Column, Kind, Table, Tone};
use fairlock_report::units::{counted, format_ns, format_number};
use maud::{Markup, html};

use super::terminal::groups;
use crate::metric::Metric;
use crate::paired::ratio_of_rows;
use crate::registry;

/// With fewer locks there is nothing to choose.
const LEAST_LOCKS: usize = 3;
/// A role starved that got less than this part of what the other role got, per thread, ...
const STARVED_RATE: f64 = 0.01;
/// ... or less than this, while one of its threads waited long.
const LOW_RATE: f64 = 0.05;
/// A wait is long that takes this part of a repetition, ...
const LONG_PART: f64 = 0.5;
/// ... and this time: what keeps a whole machine busy for a moment is over by then.
const LONG_NS: f64 = 100e6;
/// How long a thread may run while others of its CPU wait: a tick of kernels that have 250 a second, and about a slice
/// of their schedulers.
const SLICE_NS: f64 = 4e6;
/// A waiter may have to wait until the holder runs again, and then until itself runs.
const TURNS: f64 = 2.0;
/// A lock is as fast if the fastest is surely not faster by more than this factor; locks whose worst cases differ by
/// less are recommended alike.
const ALIKE: f64 = 1.05;
/// More situations are folded.
const SHOWN_SITUATIONS: usize = 12;

/// How a lock compares with the fastest of a situation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// The fastest, or hardly slower.
    AsFast,
    /// Repetitions differ too much to say.
    Undecided,
    Slower,
}

/// A lock in a situation.
struct Place<'a> {
    lock: &'a str,
    row: &'a Row,
    rate: Figure,
    longest_wait_ns: f64,
    /// Who starved, in words.
    starved: Option<String>,
    /// The fastest one's rate over its own.
    behind: Estimate,
    pace: Pace,
}

/// Locks that were measured alongside each other.
struct Situation<'a> {
    /// In words.
    title: String,
    row: &'a Row,
    /// The fastest that starved nobody first, then the others that starved nobody by their rates.
    fair: Vec<Place<'a>>,
    unfair: Vec<Place<'a>>,
}

/// A lock over all situations.
struct Standing<'a> {
    lock: &'a str,
    measured: usize,
    starved: usize,
    /// Where it was the fastest, or as fast.
    fastest: usize,
    /// Where nobody can tell whether it was.
    undecided: usize,
    /// The fastest one's rate over its own, where that was largest, and whether it was surely slower there; only where
    /// it starved nobody.
    behind: (f64, Pace),
    /// The same where it was surely slower; 1 if nowhere.
    surely_behind: f64,
    longest_wait_ns: f64,
}

fn is_for_users(lock: &str) -> bool {
    locks::find(lock).is_ok_and(|it| matches!(it.kind, LockKind::Ours | LockKind::Peer))
}

/// What a newcomer calls the row's situation, if a lock is chosen in it.
fn kind(row: &Row) -> Option<&'static str> {
    workloads::find(&row.workload)?.situation
}

/// Whether each thread reads and writes.
pub(super) fn is_mixed(row: &Row) -> bool {
    row.params.contains_key("read_percent")
}

/// How long a scheduler alone may keep a thread of this row from its lock, on so many CPUs.
fn schedulers_wait_ns(row: &Row, cpus: u32) -> f64 {
    let counts = row.roles.values().map(|role| role.threads);
    let threads = if is_mixed(row) { counts.max().unwrap_or(0) } else { counts.sum() };
    TURNS * SLICE_NS * (f64::from(threads) / f64::from(cpus.max(1))).max(1.0)
}

/// The longest wait of a role, if it was at least this long in most repetitions.
fn waited(row: &Row, name: &str, role: &RoleStats, least_ns: f64) -> Option<f64> {
    let longest = role.longest_wait.median;
    let is_most = match row.samples.figures.get(&format!("roles.{name}.longest_wait")) {
        Some(all) => all.iter().filter(|wait| **wait >= least_ns).count() * 2 > all.len(),
        None => longest >= least_ns,
    };
    is_most.then_some(longest)
}

/// A part in percent, without digits that say no more than that it is small.
fn small_part(part: f64) -> String {
    if part < 1e-4 { "less than 0.01 %".to_owned() } else { Unit::Share.words(part) }
}

/// Who starved, if somebody did, in words.
///
/// To starve is to be passed without a bound, which no run can show. What it can show is who got next to nothing,
/// and who waited for the lock longer than for a CPU:
/// * a role got nothing, or had the lock for hardly any of the time for which the other role had it;
/// * it got little, and one of its threads waited long in most repetitions;
/// * one waited long in most repetitions, and longer than the scheduler explains;
/// * a thread got hardly anything of what the others of its role got, in repetitions so long that the scheduler gave
///   each of them several turns.
pub(super) fn starved(row: &Row, cpus: u32) -> Option<String> {
    // How long each thread had the lock: those whose sections are long need fewer.
    let is_timed = row.roles.values().all(|role| role.hold.p50 > 0);
    let per_thread = |role: &RoleStats| {
        let hold = if is_timed { role.hold.p50 as f64 } else { 1.0 };
        role.ops_per_s.median * hold / f64::from(role.threads.max(1))
    };
    let most = row.roles.values().map(per_thread).fold(0.0, f64::max);
    let long_ns = (row.seconds * 1e9 * LONG_PART).max(LONG_NS);
    let schedulers_ns = schedulers_wait_ns(row, cpus);
    let gives_turns = row.seconds * 1e9 >= 2.0 * schedulers_ns.max(LONG_NS);
    let of_role = |(name, role): (&String, &RoleStats)| {
        if role.ops_per_s.median <= 0.0 {
            // Who draws each operation may never have drawn this one.
            let asked = !is_mixed(row) || role.wait.count > 0;
            return asked.then(|| format!("{name}s got nothing"));
        }
        let part = per_thread(role) / most;
        let little = || format!("{name}s got {} of the others' time", small_part(part));
        if !is_mixed(row) && part < STARVED_RATE {
            return Some(little());
        }
        let long = waited(row, name, role, long_ns);
        if let Some(wait) = long.filter(|_| !is_mixed(row) && part < LOW_RATE) {
            return Some(format!("{}, and one waited for {}", little(), format_ns(wait)));
        }
        if let Some(wait) = waited(row, name, role, long_ns.max(schedulers_ns)) {
            return Some(format!("a {name} waited for {}", format_ns(wait)));
        }
        let least = role.thread_min / role.thread_mean;
        (role.threads > 1 && gives_turns && least < STARVED_RATE).then(|| match least {
            0.0 => format!("a {name} got nothing"),
            part => format!("a {name} got {} of the mean {name}'s rate", small_part(part)),
        })
    };
    row.roles.iter().find_map(of_role)
}

fn situations(rows: &[Row], cpus: u32) -> Vec<Situation<'_>> {
    let is_chosen = |row: &&Row| {
        row.machine == HERE
            && kind(row).is_some()
            && (row.roles.len() > 1 || is_mixed(row))
            && row.roles.values().map(|role| role.threads).sum::<u32>() > 1
            && is_for_users(&row.lock)
    };
    let groups = groups(rows.iter().filter(is_chosen)).into_iter();
    let compared = groups.map(|(_, group)| one_of_each_lock(&group));
    let compared = compared.filter(|group| group.len() >= LEAST_LOCKS);
    compared.map(|group| situation(&group, cpus)).collect()
}

/// A file that somebody put together may have a row twice.
fn one_of_each_lock<'a>(group: &[&'a Row]) -> Vec<&'a Row> {
    let mut seen = BTreeSet::new();
    group.iter().copied().filter(|row| seen.insert(row.lock.as_str())).collect()
}

/// The rate of one over that of another, and what it says about the other.
fn compare(fastest: &Row, other: &Row) -> (Estimate, Pace) {
    let exactly = |ratio: f64| Estimate { median: ratio, low: ratio, high: ratio };
    let Ok(ratio) = ratio_of_rows(&Metric::TotalOps, fastest, other) else {
        return (exactly(1.0), Pace::Undecided);
    };
    let pace = match ratio {
        // One repetition of each has no interval.
        _ if fastest.repetitions.min(other.repetitions) < 2 => Pace::Undecided,
        ratio if ratio.high <= ALIKE => Pace::AsFast,
        ratio if ratio.low > 1.0 => Pace::Slower,
        _ => Pace::Undecided,
    };
    (ratio, pace)
}

fn situation<'a>(group: &[&'a Row], cpus: u32) -> Situation<'a> {
    let place = |row: &&'a Row| Place {
        lock: &row.lock,
        row,
        rate: row.total_ops_per_s.into(),
        longest_wait_ns: row
            .roles
            .values()
            .map(|role| role.longest_wait.median)
            .fold(0.0, f64::max),
        starved: starved(row, cpus),
        behind: Estimate { median: 1.0, low: 1.0, high: 1.0 },
        pace: Pace::AsFast,
    };
    let (mut unfair, mut fair): (Vec<Place<'_>>, Vec<Place<'_>>) =
        group.iter().map(place).partition(|place| place.starved.is_some());
    for places in [&mut fair, &mut unfair] {
        places.sort_by(|one, other| other.rate.median.total_cmp(&one.rate.median));
    }
    if let Some((fastest, others)) = fair.split_first_mut() {
        for other in others {
            (other.behind, other.pace) = compare(fastest.row, other.row);
        }
    }
    let row = group[0];
    // What machines differ in is no part of a situation.
    let words = registry::describe(&row.workload, &row.params);
    let title = format!("{}: {words}", kind(row).unwrap_or_default());
    Situation { title, row, fair, unfair }
}

impl Situation<'_> {
    /// The fair ones after the fastest that compare so with it.
    fn others(&self, pace: Pace) -> Vec<&str> {
        let others = self.fair.iter().skip(1).filter(|place| place.pace == pace);
        others.map(|place| place.lock).collect()
    }

    /// The row of a lock that starved nobody here.
    fn fair_row(&self, lock: &str) -> Option<&Row> {
        self.fair.iter().find(|place| place.lock == lock).map(|place| place.row)
    }
}

fn standings<'a>(situations: &'a [Situation<'a>]) -> Vec<Standing<'a>> {
    let mut all: BTreeMap<&str, Standing<'_>> = BTreeMap::new();
    for situation in situations {
        for place in situation.fair.iter().chain(&situation.unfair) {
            let standing = all.entry(place.lock).or_insert(Standing {
                lock: place.lock,
                measured: 0,
                starved: 0,
                fastest: 0,
                undecided: 0,
                behind: (1.0, Pace::AsFast),
                surely_behind: 1.0,
                longest_wait_ns: 0.0,
            });
            standing.measured += 1;
            standing.longest_wait_ns = standing.longest_wait_ns.max(place.longest_wait_ns);
            if place.starved.is_some() {
                standing.starved += 1;
                continue;
            }
            if place.behind.median > standing.behind.0 {
                standing.behind = (place.behind.median, place.pace);
            }
            match place.pace {
                Pace::AsFast => standing.fastest += 1,
                Pace::Undecided => standing.undecided += 1,
                Pace::Slower => {
                    standing.surely_behind = standing.surely_behind.max(place.behind.median);
                }
            }
        }
    }
    let mut all: Vec<Standing<'_>> = all.into_values().collect();
    all.sort_by(|one, other| {
        let unfair = one.starved.cmp(&other.starved);
        let measured = other.measured.cmp(&one.measured);
        unfair.then(measured).then(one.behind.0.total_cmp(&other.behind.0))
    });
    all
}

/// Whether no situation in which both starved nobody tells two locks apart.
fn cannot_be_told_apart(situations: &[Situation<'_>], one: &str, other: &str) -> bool {
    let both = situations.iter().filter_map(|it| it.fair_row(one).zip(it.fair_row(other)));
    let paces =
        both.map(|(one, other)| [compare(one, other), compare(other, one)].map(|(_, pace)| pace));
    let mut paces = paces.peekable();
    paces.peek().is_some() && paces.all(|both| !both.contains(&Pace::Slower))
}

/// What to recommend.
struct Choice<'a> {
    /// The locks to recommend, the best first; none where every one starved somebody.
    best: Vec<&'a Standing<'a>>,
    /// Those that nothing tells from the best, though they may be far from it.
    undecided: Vec<&'a Standing<'a>>,
    /// Whether these two are all that starved nobody.
    is_all: bool,
}

/// `standings` are in their order.
fn choose<'a>(situations: &[Situation<'_>], standings: &'a [Standing<'a>]) -> Choice<'a> {
    let most = standings.iter().map(|it| it.measured).max().unwrap_or(0);
    let eligible = standings.iter().filter(|it| it.starved == 0 && it.measured == most);
    let eligible: Vec<&Standing<'_>> = eligible.collect();
    let Some(first) = eligible.first().copied() else {
        return Choice { best: Vec::new(), undecided: Vec::new(), is_all: true };
    };
    let is_undecided = |it: &&Standing<'_>| {
        it.lock != first.lock
            && it.undecided > 0
            && cannot_be_told_apart(situations, first.lock, it.lock)
    };
    let count = eligible.len();
    let (undecided, rest): (Vec<_>, Vec<_>) = eligible.into_iter().partition(is_undecided);
    let is_alike = |it: &&Standing<'_>| it.behind.0 <= first.behind.0 * ALIKE;
    let best: Vec<_> = rest.into_iter().filter(is_alike).collect();
    let is_all = best.len() + undecided.len() == count;
    Choice { best, undecided, is_all }
}

/// `` `a`, `b` and `c` ``.
fn listed(locks: &[&Standing<'_>], last: &str) -> String {
    let names: Vec<String> = locks.iter().map(|it| format!("`{}`", it.lock)).collect();
    match names.split_last() {
        Some((one, [])) => one.clone(),
        Some((end, before)) => format!("{} {last} {end}", before.join(", ")),
        None => String::new(),
    }
}

impl<'a> Choice<'a> {
    /// Those to use: where nothing tells any apart, all of them.
    fn named(&self) -> Vec<&'a Standing<'a>> {
        let more: &[&Standing<'_>] = if self.is_all { &self.undecided } else { &[] };
        [&self.best[..], more].concat()
    }
}

/// The answer in a sentence or two, names of locks between backticks.
fn headline(choice: &Choice<'_>) -> String {
    let Choice { best, undecided, is_all } = choice;
    if best.is_empty() {
        return "It depends: every lock starved somebody somewhere. Look for your own situation below."
            .to_owned();
    }
    if *is_all && !undecided.is_empty() {
        let all = choice.named();
        let use_them = match all.len() {
            2 => "use either, both starved nobody",
            _ => "use any of them, all starved nobody",
        };
        return format!(
            "No measurable difference between {}: {use_them}. A longer run may tell them apart.",
            listed(&all, "and")
        );
    }
    let behind = best.iter().map(|it| it.surely_behind).fold(1.0, f64::max);
    let slower = match behind <= ALIKE {
        true => "never measurably slower".to_owned(),
        false => format!("at most {} times slower", format_number(behind)),
    };
    let (they, were) = if best.len() == 1 { ("it", "was") } else { ("they", "were") };
    let mut text = format!(
        "Use {}: {they} starved nobody, and {were} {slower} than the fastest lock that starved nobody.",
        listed(best, "or")
    );
    if !undecided.is_empty() {
        let it = if best.len() == 1 { "it" } else { "these" };
        let others = listed(undecided, "and");
        text.push_str(&format!(" {others} cannot be told apart from {it}; a longer run may."));
    }
    text
}

/// What stands between backticks, in bold type.
fn with_names(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { b { code { (part) } } } @else { (part) }
        }
    }
}

/// What a newcomer reads first.
fn lead(situations: &[Situation<'_>], standings: &[Standing<'_>], choice: &Choice<'_>) -> Markup {
    let count = counted(situations.len() as u64, "situation");
    let fair = standings.iter().filter(|it| it.starved == 0).count();
    let fair = match fair {
        0 => "each starved somebody somewhere".to_owned(),
        all if all == standings.len() => "none of them starved anybody".to_owned(),
        1 => "only 1 of them starved nobody anywhere".to_owned(),
        some => format!("{some} of them starved nobody anywhere"),
    };
    let about = |lock: &str| locks::find(lock).map_or("", |it| it.about);
    html! {
        p.lead { (with_names(&headline(choice))) }
        p {
            (standings.len()) " locks were measured in " (count) " on this machine; " (fair) "."
            @for it in choice.named().iter().filter(|it| !about(it.lock).is_empty()).take(2) {
                " " code { (it.lock) } " is " (about(it.lock)) "."
            }
        }
    }
}

fn by_lock(situations: &[Situation<'_>], standings: &[Standing<'_>], choice: &Choice<'_>) -> Table {
    let columns = [
        ("lock", Kind::Heading),
        ("starved somebody", Kind::Words),
        ("fastest, or as fast", Kind::Number),
        ("times slower, at worst", Kind::Number),
        (LONGEST_WAIT, Kind::Number),
    ];
    let named = choice.named();
    let rows = standings.iter().map(|it| {
        let is_best = named.iter().any(|best| best.lock == it.lock);
        let tone = if is_best { Tone::Best } else { Tone::Plain };
        let starved = match it.starved {
            0 => Cell::new("never").tone(Tone::Good),
            some => Cell::new(format!("in {some} of {}", it.measured)).tone(Tone::Bad),
        };
        let behind = match it.behind {
            _ if it.starved == it.measured => Cell::none(),
            (times, Pace::Undecided) => Cell::new(format_number(times)).detail("undecided"),
            (times, _) => Cell::new(format_number(times)),
        };
        let undecided = match it.undecided {
            0 => String::new(),
            some => format!("undecided in {some}"),
        };
        let fastest = format!("{} of {}", it.fastest, it.measured);
        // A recording may have a row twice.
        let missing = situations.len().saturating_sub(it.measured);
        let detail = match missing {
            0 => String::new(),
            _ => format!("not measured in {missing}"),
        };
        vec![
            Cell::new(it.lock).detail(detail).tone(tone),
            starved,
            Cell::new(fastest).detail(undecided),
            behind,
            Cell::new(format_ns(it.longest_wait_ns)),
        ]
    });
    Table {
        columns: columns.map(|(title, kind)| Column::new(title, kind)).into(),
        rows: rows.collect(),
        ..Table::default()
    }
}

/// What the longest waits of rows are.
pub(super) const LONGEST_WAIT: &str = "longest wait, median of repetitions";

fn by_situation(situations: &[Situation<'_>], link: impl Fn(&Row) -> String) -> Table {
    let columns = [
        ("situation", Kind::Text),
        ("use", Kind::Words),
        ("operations", Kind::Number),
        ("over the next", Kind::Number),
        ("starved somebody", Kind::Text),
    ];
    let rows = situations.iter().map(|it| {
        let title = Cell::new(&it.title).link(link(it.row));
        let (alike, undecided) = (it.others(Pace::AsFast), it.others(Pace::Undecided));
        let mut more = Vec::new();
        if !alike.is_empty() {
            more.push(format!("as fast: {}", alike.join(", ")));
        }
        if !undecided.is_empty() {
            more.push(format!("cannot be told apart: {}; run longer", undecided.join(", ")));
        }
        let use_them = match it.fair.first() {
            None => Cell::new("none of these").tone(Tone::Bad),
            Some(first) => {
                let tone = if undecided.is_empty() { Tone::Good } else { Tone::Unclear };
                Cell::new(first.lock).detail(more.join("; ")).tone(tone)
            }
        };
        let (rate, ratio) = match &it.fair[..] {
            [] => (Cell::none(), Cell::none()),
            [fastest] => (Cell::figure(Unit::PerSecond, fastest.rate), Cell::none()),
            [fastest, next, ..] => {
                let figure = Figure::from(next.behind);
                let interval = match figure.has_interval() {
                    true => format!(" {}", Unit::Number.interval(figure)),
                    false => String::new(),
                };
                let ratio = Cell::new(format_number(figure.median));
                let rate = Cell::figure(Unit::PerSecond, fastest.rate);
                (rate, ratio.detail(format!("{}{interval}", next.lock)))
            }
        };
        let starved = it.unfair.iter().map(|place| {
            format!("{}: {}", place.lock, place.starved.as_deref().unwrap_or_default())
        });
        let starved: Vec<String> = starved.collect();
        let starved = if starved.is_empty() { "nobody".to_owned() } else { starved.join("; ") };
        vec![title, use_them, rate, ratio, Cell::new(starved)]
    });
    Table {
        columns: columns.map(|(title, kind)| Column::new(title, kind)).into(),
        rows: rows.collect(),
        ..Table::default()
    }
}

/// What the words of the section mean.
fn footnotes() -> Markup {
    html! {
        p.soft {
            b { "Starved" } ": a role got nothing, or less than 1 % of the other role's rate for each thread; it got less \
            than 5 %, and one of its threads waited for half of a repetition; somebody waited for half of a repetition, and \
            longer than a scheduler makes threads wait that share a CPU; or a thread got less than 1 % of what the mean of \
            its role got. Waits count from 100 ms on, and only if most repetitions had one."
        }
        p.soft {
            b { "Longest wait" } ": the longest of each repetition, and of these the median; the longest of all is the \
            “wait max” of the rows. " b { "Slower" } " is what was slower in repetitions compared pair by pair; "
            b { "as fast" } " is at most 5 % slower; in between nobody can tell, and more or longer repetitions would. \
            Totals of operations favour locks that let the cheaper role pass, so look at both roles where they differ. \
            Where the roles of a mix were also measured alone, “Sharing the time” ranks the locks by how evenly they divide it \
            and by what that costs: another lock may be first there."
        }
    }
}

/// The first section of a page; nothing where no locks were measured alongside each other. `link` leads to a row.
pub(super) fn section(recording: &Recording, link: impl Fn(&Row) -> String) -> Option<Section> {
    let situations = situations(&recording.rows, recording.header.machine.cpus);
    if situations.is_empty() {
        return None;
    }
    let standings = standings(&situations);
    let choice = choose(&situations, &standings);
    let table = by_situation(&situations, link).html();
    let words = counted(situations.len() as u64, "situation");
    let body = html! {
        (lead(&situations, &standings, &choice))
        (by_lock(&situations, &standings, &choice).html())
        @if situations.len() <= SHOWN_SITUATIONS {
            h3 { "In your situation" } (table)
        } @else {
            details.folded { summary { "In your situation: " (words) } (table) }
        }
        (footnotes())
    };
    let mut section = Section::new("which-lock", "Which lock should I use?", body);
    section.short = "Which lock?".to_owned();
    Some(section)
}

/// The answer in a sentence, names of locks between backticks, and how each lock did; nothing where no locks were
/// measured alongside each other.
pub(super) fn in_short(rows: &[Row], cpus: u32) -> Option<(String, Table)> {
    let situations = situations(rows, cpus);
    if situations.is_empty() {
        return None;
    }
    let standings = standings(&situations);
    let choice = choose(&situations, &standings);
    Some((headline(&choice), by_lock(&situations, &standings, &choice)))
}

/// The answer for a terminal, in a line; nothing where no locks were measured alongside each other.
pub(super) fn line(recording: &Recording) -> Option<String> {
    let situations = situations(&recording.rows, recording.header.machine.cpus);
    if situations.is_empty() {
        return None;
    }
    let standings = standings(&situations);
    let answer = headline(&choose(&situations, &standings)).replace('`', "");
    Some(answer.replace("Look for your own situation below", "The page says which did where"))
}

#[cfg(test)]
mod tests {
    use fairlock_lab::machine;
    use fairlock_report::recording::Header;

    use super::*;
    use crate::example;

    fn row(lock: &str, rate: f64, readers: f64) -> Row {
        let mut row = example::row("mix", lock, &[("readers", readers), ("writers", readers)]);
        row.seconds = 1.0;
        row.total_ops_per_s = Estimate { median: rate, low: rate * 0.98, high: rate * 1.02 };
        for role in row.roles.values_mut() {
            (role.ops_per_s.median, role.thread_min) = (rate / 2.0, rate / 2.0 / readers);
            role.longest_wait = example::estimate(1e6);
        }
        row
    }

    fn starving(mut row: Row) -> Row {
        row.roles.get_mut("writer").unwrap().longest_wait = example::estimate(7e8);
        row
    }

    /// On two CPUs.
    fn recording(rows: &[Row]) -> Recording {
        let mut recording = Recording::new(Header::now(Vec::new(), false, machine::here(None)));
        recording.header.machine.cpus = 2;
        recording.rows = rows.to_vec();
        recording
    }

    fn section(rows: &[Row]) -> Option<Section> {
        super::section(&recording(rows), |_| "#rows".to_owned())
    }

    fn text(rows: &[Row]) -> String {
        section(rows).expect("a section").body.into_string()
    }

    fn starved(row: &Row) -> Option<String> {
        super::starved(row, 2)
    }

    /// Rates of the repetitions.
    fn repeated(mut row: Row, totals: &[f64]) -> Row {
        row.total_ops_per_s = fairlock_report::statistics::estimate(totals);
        row.repetitions = totals.len() as u32;
        row.samples.order = (0..row.repetitions).collect();
        row.samples.figures.insert("total_ops_per_s".to_owned(), totals.to_vec());
        row
    }

    /// What a role did: threads, operations per second, those of its slowest thread, and the longest wait of each
    /// repetition in ms.
    fn did(row: &mut Row, role: &str, figures: (u32, f64, f64), waits_ms: &[f64]) {
        let (threads, rate, slowest) = figures;
        let waits: Vec<f64> = waits_ms.iter().map(|wait| wait * 1e6).collect();
        let mut stats = example::role(threads, rate);
        stats.thread_min = slowest;
        stats.longest_wait = fairlock_report::statistics::estimate(&waits);
        row.roles.insert(role.to_owned(), stats);
        row.repetitions = waits.len() as u32;
        row.samples.order = (0..row.repetitions).collect();
        row.samples.figures.insert(format!("roles.{role}.longest_wait"), waits);
    }

    #[test]
    fn the_fastest_lock_that_starves_nobody_is_recommended() {
        let rows =
            [row("rwlock", 2e6, 4.0), row("std", 1e6, 4.0), starving(row("pthread", 9e6, 4.0))];
        let text = text(&rows);
        assert!(
            text.contains(
                "Use <b><code>rwlock</code></b>: it starved nobody, and was never measurably slower"
            ),
            "{text}"
        );
        assert!(text.contains("pthread: a writer waited for 700ms"), "{text}");
        assert!(text.contains("<td>2.00<small>std [1.92, 2.08]</small>"), "{text}");
        assert!(text.contains("<a href=\"#rows\">Short sections: 4 readers + 4 writers"), "{text}");

        let (sentence, by_lock) = in_short(&rows, 2).expect("an answer");
        assert!(
            sentence.starts_with("Use `rwlock`: it starved nobody, and was never"),
            "{sentence}"
        );
        assert_eq!(by_lock.rows.len(), 3);
    }

    #[test]
    fn a_row_that_a_file_has_twice_counts_once() {
        let rows = [row("rwlock", 2e6, 4.0), row("std", 1e6, 4.0), row("pthread", 5e5, 4.0)];
        let twice: Vec<Row> = rows.iter().flat_map(|row| [row.clone(), row.clone()]).collect();
        assert_eq!(text(&twice), text(&rows));
    }

    #[test]
    fn of_locks_that_are_fastest_in_turn_the_one_that_falls_back_least_is_recommended() {
        let rows = [
            row("std", 10e6, 4.0),
            row("rwlock", 8e6, 4.0),
            row("usync", 5e6, 4.0),
            row("std", 1e6, 8.0),
            row("rwlock", 2e6, 8.0),
            row("usync", 1e6, 8.0),
        ];
        let text = text(&rows);
        assert!(text.contains("Use <b><code>rwlock</code></b>"), "{text}");
        assert!(text.contains("at most 1.25 times slower"), "{text}");
    }

    #[test]
    fn locks_that_hardly_differ_are_as_fast_and_recommended_alike() {
        let rows = [row("rwlock", 2e6, 4.0), row("std", 2.01e6, 4.0), row("usync", 1e6, 4.0)];
        let text = text(&rows);
        assert!(text.contains("<small>as fast: rwlock</small>"), "{text}");
        assert!(
            text.contains(
                "Use <b><code>std</code></b> or <b><code>rwlock</code></b>: they starved"
            ),
            "{text}"
        );
    }

    #[test]
    fn noise_is_not_rewarded_as_speed() {
        // One repetition in the dark, and a steady one that is slower in each.
        let rows = [
            repeated(row("parking_lot", 1e6, 4.0), &[2.1e6, 2.04e6, 2.07e6]),
            repeated(row("rwsem", 1e6, 4.0), &[1.09e6, 0.5e6, 2.2e6]),
            repeated(row("std", 1e6, 4.0), &[1.36e6, 1.35e6, 1.37e6]),
        ];
        let text = text(&rows);
        assert!(text.contains("cannot be told apart: rwsem; run longer"), "{text}");
        assert!(text.contains("Use <b><code>parking_lot</code></b>: it starved nobody"), "{text}");
        assert!(text.contains("<b><code>rwsem</code></b> cannot be told apart from it"), "{text}");
        let of = |lock: &str| {
            let (_, rest) = text.split_once(&format!("{lock}<td")).expect(lock);
            rest.split_once("\n").map_or(rest, |(line, _)| line).to_owned()
        };
        assert!(of("rwsem").contains("<td>0 of 1<small>undecided in 1</small>"), "{text}");
        assert!(of("rwsem").contains("<td>1.93<small>undecided</small>"), "{text}");
        assert!(of("std").contains("<td>0 of 1<td>1.51<td>"), "{text}");
    }

    #[test]
    fn locks_are_compared_pair_by_pair_not_by_their_intervals() {
        // The machine was twice as fast in every other repetition.
        let rows = [
            repeated(row("rwlock", 1e6, 4.0), &[1e6, 2e6, 1e6, 2e6]),
            repeated(row("std", 1e6, 4.0), &[0.8e6, 1.6e6, 0.8e6, 1.6e6]),
            repeated(row("usync", 1e6, 4.0), &[0.98e6, 1.96e6, 0.98e6, 1.96e6]),
        ];
        let text = text(&rows);
        assert!(text.contains("<small>as fast: usync</small>"), "{text}");
        assert!(!text.contains("told apart: std"), "{text}");
    }

    #[test]
    fn where_nothing_is_decided_the_answer_says_so() {
        let wide = |lock: &str, low: f64, high: f64| repeated(row(lock, 1e6, 4.0), &[low, high]);
        let rows = [
            wide("std", 1e6, 2e6),
            wide("rwsem", 1.6e6, 0.9e6),
            starving(wide("pthread", 5e6, 6e6)),
        ];
        let text = text(&rows);
        let answer = "No measurable difference between <b><code>std</code></b> and \
                      <b><code>rwsem</code></b>: use either, both starved nobody. A longer run may";
        assert!(text.contains(answer), "{text}");
        assert!(text.contains("2 of them starved nobody anywhere."), "{text}");
        assert_eq!(
            line(&recording(&rows)).unwrap(),
            "No measurable difference between std and rwsem: use either, both starved nobody. A longer run \
             may tell them apart."
        );
    }

    #[test]
    fn one_repetition_decides_nothing() {
        let one = |lock: &str, rate: f64| repeated(row(lock, 1e6, 4.0), &[rate]);
        let text = text(&[one("std", 1e6), one("rwlock", 2e6), one("usync", 3e6)]);
        assert!(text.contains("No measurable difference between"), "{text}");
        assert!(text.contains("none of them starved anybody."), "{text}");
    }

    #[test]
    fn where_every_lock_starves_somebody_none_is_recommended() {
        let rows = ["rwlock", "std", "usync"].map(|lock| starving(row(lock, 1e6, 4.0)));
        let text = text(&rows);
        assert!(text.contains("It depends") && text.contains("none of these"), "{text}");
    }

    #[test]
    fn a_role_with_hardly_any_operations_starves_but_not_where_threads_do_both() {
        let mut row = row("rwlock", 2e6, 4.0);
        row.roles.get_mut("reader").unwrap().ops_per_s = example::estimate(1e3);
        assert_eq!(starved(&row).unwrap(), "readers got 0.10 % of the others' time");
        row.params.insert("read_percent".to_owned(), 99.9.into());
        assert_eq!(starved(&row), None);
    }

    /// `mix` with as many readers as writers, made with `--quick`.
    fn quick(lock: &str, threads: f64) -> Row {
        let mut row = row(lock, 2e6, threads);
        row.seconds = 0.12;
        row
    }

    #[test]
    fn waiting_for_a_cpu_in_a_short_repetition_is_not_starving() {
        let mut row = quick("rwlock", 32.0);
        did(&mut row, "reader", (32, 1.69e6, 7229.0), &[3.1, 3.4]);
        did(&mut row, "writer", (32, 1.11e6, 2673.0), &[53.0, 69.7]);
        assert_eq!(starved(&row), None);
        // Nor where a thread had no CPU at all.
        did(&mut row, "reader", (32, 1.74e6, 0.0), &[2.9, 3.0]);
        assert_eq!(starved(&row), None);
        // Half of a longer one is still what 32 threads of each CPU wait for each other.
        row.seconds = 0.3;
        did(&mut row, "writer", (32, 1.11e6, 2673.0), &[180.0, 170.0]);
        assert_eq!(starved(&row), None);
    }

    #[test]
    fn one_long_wait_of_many_repetitions_is_not_starving_and_most_of_them_are() {
        let mut row = row("rwlock", 2e6, 1.0);
        did(&mut row, "writer", (1, 1e6, 1e6), &[2.0, 700.0, 3.0]);
        assert_eq!(starved(&row), None);
        did(&mut row, "writer", (1, 1e6, 1e6), &[700.0, 2.0, 650.0]);
        assert_eq!(starved(&row).unwrap(), "a writer waited for 650ms");
    }

    #[test]
    fn starving_is_seen_in_short_repetitions_too() {
        // glibc's lock prefers readers: two that never both leave keep the writer out.
        let mut row = quick("pthread", 2.0);
        did(&mut row, "reader", (2, 24e6, 11e6), &[0.2, 0.1]);
        did(&mut row, "writer", (1, 83.0, 83.0), &[121.0, 120.4]);
        assert_eq!(starved(&row).unwrap(), "writers got less than 0.01 % of the others' time");
        did(&mut row, "writer", (1, 0.0, 0.0), &[120.2, 120.3]);
        assert_eq!(starved(&row).unwrap(), "writers got nothing");
        // Readers that sleep while they hold it are slow, too: what the writer waited decides.
        let mut row = quick("linux-5.11", 4.0);
        did(&mut row, "reader", (4, 3200.0, 790.0), &[0.4, 0.4]);
        did(&mut row, "writer", (1, 25.0, 25.0), &[110.0, 118.0]);
        let words = starved(&row).unwrap();
        assert_eq!(words, "writers got 3.12 % of the others' time, and one waited for 114ms");
        // All writers of 32 a CPU.
        let mut row = quick("std", 32.0);
        did(&mut row, "reader", (32, 3.76e6, 4000.0), &[67.9, 52.0, 90.0]);
        did(&mut row, "writer", (32, 41_297.0, 0.0), &[121.2, 108.9, 120.0]);
        let words = starved(&row).unwrap();
        assert_eq!(words, "writers got 1.10 % of the others' time, and one waited for 120ms");
    }

    #[test]
    fn who_never_asked_for_the_lock_did_not_starve() {
        let mut row = row("rwlock", 2e6, 2.0);
        row.params = [("threads", 2.0), ("read_percent", 99.999)]
            .map(|(name, value)| (name.to_owned(), value.into()))
            .into();
        did(&mut row, "writer", (2, 0.0, 0.0), &[0.0, 0.0]);
        let role = row.roles.get_mut("writer").unwrap();
        role.wait.count = 0;
        assert_eq!(starved(&row), None);
        row.roles.get_mut("writer").unwrap().wait.count = 1;
        assert_eq!(starved(&row).unwrap(), "writers got nothing");
    }

    #[test]
    fn a_thread_that_gets_next_to_nothing_starves_where_it_had_its_turns() {
        let mut row = row("tas", 2e6, 4.0);
        did(&mut row, "writer", (4, 1e6, 900.0), &[40.0, 40.0]);
        let words = starved(&row).unwrap();
        assert_eq!(words, "a writer got 0.36 % of the mean writer's rate");
        did(&mut row, "writer", (4, 1e6, 0.0), &[40.0, 40.0]);
        assert_eq!(starved(&row).unwrap(), "a writer got nothing");
    }

    #[test]
    fn the_longest_wait_is_named_for_what_it_is() {
        let rows = [row("rwlock", 2e6, 4.0), row("std", 1e6, 4.0), row("usync", 5e5, 4.0)];
        assert!(text(&rows).contains("longest wait, median of repetitions"));
    }

    #[test]
    fn what_people_cannot_choose_and_what_was_simulated_does_not_count() {
        let mut rows = ["rwlock", "std", "linux-5.2"].map(|lock| row(lock, 1e6, 4.0));
        assert!(section(&rows).is_none());
        rows[2].lock = "usync".to_owned();
        assert!(section(&rows).is_some());
        rows.iter_mut().for_each(|row| row.machine = "eight-sockets".to_owned());
        assert!(section(&rows).is_none());
    }
}
