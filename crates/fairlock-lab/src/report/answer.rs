//! "Which lock should I use?", answered from rows.
//!
//! A situation is a group of rows of real threads with the same parameters, in which people's locks were measured
//! beside each other. In each, a lock that starved somebody is out; of the others the one with the most operations per
//! second is the fastest, and those whose intervals overlap its own are as fast, as far as anybody can tell. The lock
//! to use starved nobody anywhere, and falls back behind the fastest the least where it falls back the most.

use std::collections::{BTreeMap, BTreeSet};

use fairlock_report::page::Section;
use fairlock_report::quantity::{Figure, Unit};
use fairlock_report::row::{HERE, RoleStats, Row};
use fairlock_report::table::{Cell, Column, Kind, Table, Tone};
use fairlock_report::units::{format_ns, format_number};
use maud::{Markup, html};

use super::terminal::groups;
use crate::locks::{self, Kind as LockKind};
use crate::registry;
use crate::workloads;

/// With fewer locks there is nothing to choose.
const LEAST_LOCKS: usize = 3;
/// Somebody starved who waited for this part of a repetition, ...
const STARVED_PART: f64 = 0.5;
/// ... or whose role got less than this part of what the other role got, per thread.
const STARVED_RATE: f64 = 0.01;
/// Locks whose worst cases differ by less than this factor are recommended alike.
const ALIKE: f64 = 1.05;
/// More situations are folded.
const SHOWN_SITUATIONS: usize = 12;

/// A lock in a situation.
struct Place<'a> {
    lock: &'a str,
    rate: Figure,
    longest_wait_ns: f64,
    /// Who starved, in words.
    starved: Option<String>,
}

/// Locks that were measured beside each other.
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
    /// The fastest one's rate over its own, where that was largest; only where it starved nobody.
    behind: f64,
    longest_wait_ns: f64,
}

fn is_for_users(lock: &str) -> bool {
    locks::find(lock).is_ok_and(|it| matches!(it.kind, LockKind::Ours | LockKind::Peer))
}

/// What a newcomer calls the row's situation, if a lock is chosen in it.
fn kind(row: &Row) -> Option<&'static str> {
    workloads::find(&row.workload)?.situation
}

fn starved(row: &Row) -> Option<String> {
    let named = |(name, role): (&String, &RoleStats)| {
        let half = row.seconds * 1e9 * STARVED_PART;
        let longest = role.longest_wait.median;
        if role.ops_per_s.median <= 0.0 {
            Some(format!("{name}s got nothing"))
        } else if role.thread_min <= 0.0 && role.threads > 1 {
            Some(format!("a {name} got nothing"))
        } else if longest >= half {
            Some(format!("a {name} waited for {}", format_ns(longest)))
        } else {
            None
        }
    };
    let per_thread = |role: &RoleStats| role.ops_per_s.median / f64::from(role.threads.max(1));
    let rates = row.roles.iter().map(|(name, role)| (name, per_thread(role)));
    let least = rates.clone().min_by(|(_, one), (_, other)| one.total_cmp(other));
    let most = rates.map(|(_, rate)| rate).fold(0.0, f64::max);
    let has_own_threads = !row.params.contains_key("read_percent");
    row.roles.iter().find_map(named).or_else(|| match least {
        Some((name, rate)) if has_own_threads && rate < most * STARVED_RATE => {
            let part = Unit::Share.words(rate / most);
            Some(format!("{name}s got {part} of the others' rate"))
        }
        _ => None,
    })
}

fn situations(rows: &[Row]) -> Vec<Situation<'_>> {
    let is_chosen = |row: &&Row| {
        row.machine == HERE
            && kind(row).is_some()
            && (row.roles.len() > 1 || row.params.contains_key("read_percent"))
            && row.roles.values().map(|role| role.threads).sum::<u32>() > 1
            && is_for_users(&row.lock)
    };
    let groups = groups(rows.iter().filter(is_chosen)).into_iter();
    let compared = groups.map(|(_, group)| one_of_each_lock(&group));
    compared.filter(|group| group.len() >= LEAST_LOCKS).map(|group| situation(&group)).collect()
}

/// A file that somebody put together may have a row twice.
fn one_of_each_lock<'a>(group: &[&'a Row]) -> Vec<&'a Row> {
    let mut seen = BTreeSet::new();
    group.iter().copied().filter(|row| seen.insert(row.lock.as_str())).collect()
}

fn situation<'a>(group: &[&'a Row]) -> Situation<'a> {
    let place = |row: &&'a Row| Place {
        lock: &row.lock,
        rate: row.total_ops_per_s.into(),
        longest_wait_ns: row
            .roles
            .values()
            .map(|role| role.longest_wait.median)
            .fold(0.0, f64::max),
        starved: starved(row),
    };
    let (mut unfair, mut fair): (Vec<Place<'_>>, Vec<Place<'_>>) =
        group.iter().map(place).partition(|place| place.starved.is_some());
    for places in [&mut fair, &mut unfair] {
        places.sort_by(|one, other| other.rate.median.total_cmp(&one.rate.median));
    }
    let row = group[0];
    // What machines differ in is no part of a situation.
    let words = registry::describe(&row.workload, &row.params);
    let title = format!("{}: {words}", kind(row).unwrap_or_default());
    Situation { title, row, fair, unfair }
}

impl Situation<'_> {
    /// Those that nobody can tell from the fastest.
    fn as_fast(&self) -> impl Iterator<Item = &Place<'_>> {
        let least = self.fair.first().map_or(f64::INFINITY, |fastest| fastest.rate.low);
        self.fair.iter().filter(move |place| place.rate.high >= least)
    }
}

fn standings<'a>(situations: &'a [Situation<'a>]) -> Vec<Standing<'a>> {
    let mut all: BTreeMap<&str, Standing<'_>> = BTreeMap::new();
    for situation in situations {
        let fastest = situation.fair.first().map_or(0.0, |place| place.rate.median);
        for place in situation.fair.iter().chain(&situation.unfair) {
            let standing = all.entry(place.lock).or_insert(Standing {
                lock: place.lock,
                measured: 0,
                starved: 0,
                fastest: 0,
                behind: 1.0,
                longest_wait_ns: 0.0,
            });
            standing.measured += 1;
            standing.longest_wait_ns = standing.longest_wait_ns.max(place.longest_wait_ns);
            match place.starved {
                Some(_) => standing.starved += 1,
                None => standing.behind = standing.behind.max(fastest / place.rate.median),
            }
            standing.fastest +=
                usize::from(situation.as_fast().any(|other| other.lock == place.lock));
        }
    }
    let mut all: Vec<Standing<'_>> = all.into_values().collect();
    all.sort_by(|one, other| {
        let unfair = one.starved.cmp(&other.starved);
        unfair.then(other.measured.cmp(&one.measured)).then(one.behind.total_cmp(&other.behind))
    });
    all
}

/// Those to recommend; `standings` are in their order.
fn recommended<'a>(standings: &'a [Standing<'a>]) -> Vec<&'a Standing<'a>> {
    let most = standings.iter().map(|it| it.measured).max().unwrap_or(0);
    let eligible = standings.iter().filter(|it| it.starved == 0 && it.measured == most);
    let eligible: Vec<&Standing<'_>> = eligible.collect();
    let best = eligible.first().map_or(0.0, |it| it.behind);
    eligible.into_iter().filter(|it| it.behind <= best * ALIKE).collect()
}

/// `1 situation`, `2 situations`.
fn several(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn in_code(locks: &[&Standing<'_>]) -> Markup {
    html! {
        @for (index, standing) in locks.iter().enumerate() {
            @if index > 0 { " or " }
            code { (standing.lock) }
        }
    }
}

/// What a newcomer reads first.
fn lead(situations: &[Situation<'_>], standings: &[Standing<'_>]) -> Markup {
    let best = recommended(standings);
    let count = several(situations.len(), "situation");
    let Some(first) = best.first() else {
        return html! {
            p.lead { "It depends: every lock starved somebody somewhere. Look for your own situation below." }
            p { (standings.len()) " locks, " (count) " measured on this machine." }
        };
    };
    let fair = standings.iter().filter(|it| it.starved == 0).count();
    let behind = best.iter().map(|it| it.behind).fold(1.0, f64::max);
    let about = locks::find(first.lock).map_or("", |it| it.about);
    html! {
        p.lead {
            "Use " b { (in_code(&best)) } ": it starved nobody, and was "
            @if behind <= ALIKE { "never measurably slower" } @else {
                "at most " (format_number(behind)) " times slower"
            }
            " than the fastest lock that starves nobody."
        }
        p {
            (standings.len()) " locks were measured in " (count) " on this machine; "
            (fair) " of them starved nobody anywhere. "
            code { (first.lock) } " is " (about) "."
        }
    }
}

fn by_lock(situations: &[Situation<'_>], standings: &[Standing<'_>]) -> Table {
    let columns = [
        ("lock", Kind::Heading),
        ("starved somebody", Kind::Words),
        ("fastest, or as fast", Kind::Number),
        ("times slower, at worst", Kind::Number),
        ("longest wait", Kind::Number),
    ];
    let best: Vec<&str> = recommended(standings).iter().map(|it| it.lock).collect();
    let rows = standings.iter().map(|it| {
        let tone = if best.contains(&it.lock) { Tone::Best } else { Tone::Plain };
        let starved = match it.starved {
            0 => Cell::new("never").tone(Tone::Good),
            some => Cell::new(format!("in {some} of {}", it.measured)).tone(Tone::Bad),
        };
        let behind = match it.starved == it.measured {
            true => Cell::none(),
            false => Cell::new(format_number(it.behind)),
        };
        let fastest = Cell::new(format!("{} of {}", it.fastest, it.measured));
        // A recording may have a row twice.
        let missing = situations.len().saturating_sub(it.measured);
        let detail = match missing {
            0 => String::new(),
            _ => format!("not measured in {missing}"),
        };
        vec![
            Cell::new(it.lock).detail(detail).tone(tone),
            starved,
            fastest,
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
        let as_fast: Vec<&str> = it.as_fast().map(|place| place.lock).collect();
        let use_them = match &as_fast[..] {
            [] => Cell::new("none of these").tone(Tone::Bad),
            [one] => Cell::new(*one).tone(Tone::Good),
            [one, others @ ..] => Cell::new(*one)
                .detail(format!("undecided: as fast, {}", others.join(", ")))
                .tone(Tone::Unclear),
        };
        let (rate, ratio) = match &it.fair[..] {
            [] => (Cell::none(), Cell::none()),
            [fastest] => (Cell::figure(Unit::PerSecond, fastest.rate), Cell::none()),
            [fastest, next, ..] => {
                let ratio = format_number(fastest.rate.median / next.rate.median);
                let rate = Cell::figure(Unit::PerSecond, fastest.rate);
                (rate, Cell::new(ratio).detail(next.lock))
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

/// The first section of a page; nothing where no locks were measured beside each other. `link` leads to a row.
pub(super) fn section(rows: &[Row], link: impl Fn(&Row) -> String) -> Option<Section> {
    let situations = situations(rows);
    if situations.is_empty() {
        return None;
    }
    let standings = standings(&situations);
    let table = by_situation(&situations, link).html();
    let words = several(situations.len(), "situation");
    let body = html! {
        (lead(&situations, &standings))
        (by_lock(&situations, &standings).html())
        @if situations.len() <= SHOWN_SITUATIONS {
            h3 { "In your situation" } (table)
        } @else {
            details.folded { summary { "In your situation: " (words) } (table) }
        }
        p.soft {
            "Starved: a role or a thread got nothing, one waited for half of a repetition or longer, or a role with \
             threads of its own got less than 1 % of the other's rate. Undecided: 95 % intervals overlap. Totals of \
             operations favour locks that let the cheaper role pass, so look at both roles where they differ."
        }
    };
    let mut section = Section::new("which-lock", "Which lock should I use?", body);
    section.short = "Which lock?".to_owned();
    Some(section)
}

/// The answer in a sentence, names of locks between backticks, and how each lock did; nothing where no locks were
/// measured beside each other.
pub(super) fn in_short(rows: &[Row]) -> Option<(String, Table)> {
    let situations = situations(rows);
    let standings = standings(&situations);
    if situations.is_empty() {
        return None;
    }
    let best = recommended(&standings);
    let names: Vec<String> = best.iter().map(|it| format!("`{}`", it.lock)).collect();
    let behind = best.iter().map(|it| it.behind).fold(1.0, f64::max);
    let slower = match behind <= ALIKE {
        true => "never measurably slower".to_owned(),
        false => format!("at most {} times slower", format_number(behind)),
    };
    let sentence = match names.join(" or ") {
        none if none.is_empty() => "It depends: every lock starved somebody somewhere.".to_owned(),
        names => format!(
            "Use {names}: it starved nobody, and was {slower} than the fastest lock that starves nobody."
        ),
    };
    Some((sentence, by_lock(&situations, &standings)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use fairlock_report::row::Estimate;

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

    fn text(rows: &[Row]) -> String {
        section(rows, |_| "#rows".to_owned()).expect("a section").body.into_string()
    }

    #[test]
    fn the_fastest_lock_that_starves_nobody_is_recommended() {
        let rows =
            [row("rwlock", 2e6, 4.0), row("std", 1e6, 4.0), starving(row("pthread", 9e6, 4.0))];
        let text = text(&rows);
        assert!(text.contains("Use <b><code>rwlock</code></b>: it starved nobody"), "{text}");
        assert!(text.contains("pthread: a writer waited for 700ms"), "{text}");
        assert!(text.contains("<td>2.00<small>std</small>"), "{text}");
        assert!(text.contains("<a href=\"#rows\">Short sections: 4 readers + 4 writers"), "{text}");

        let (sentence, by_lock) = in_short(&rows).expect("an answer");
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
    fn overlapping_intervals_are_undecided_and_said_so() {
        let rows = [row("rwlock", 2e6, 4.0), row("std", 2.01e6, 4.0), row("usync", 1e6, 4.0)];
        let text = text(&rows);
        assert!(text.contains("undecided: as fast, rwlock"), "{text}");
        assert!(text.contains("<code>std</code> or <code>rwlock</code>"), "{text}");
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
        assert_eq!(starved(&row).unwrap(), "readers got 0.10 % of the others' rate");
        row.params.insert("read_percent".to_owned(), 99.9.into());
        assert_eq!(starved(&row), None);
    }

    #[test]
    fn what_people_cannot_choose_and_what_was_simulated_does_not_count() {
        let mut rows = ["rwlock", "std", "linux-5.2"].map(|lock| row(lock, 1e6, 4.0));
        assert!(section(&rows, |_| String::new()).is_none());
        rows[2].lock = "usync".to_owned();
        assert!(section(&rows, |_| String::new()).is_some());
        rows.iter_mut().for_each(|row| row.machine = "eight-sockets".to_owned());
        assert!(section(&rows, |_| String::new()).is_none());
    }
}
