//! Which lock shares the time of a mix best, from how close each comes to the [limit](crate::limit) and from what
//! the lesser role keeps.
//!
//! A lock ranks by the smaller of *of the limit* and twice *lesser role*: sharing the time evenly and without cost
//! makes both 1. A lock that starves somebody has no rank, and neither has one under which a role was not measured
//! alone.

use fairlock_report::row::{Estimate, HERE, Limit, Row};
use fairlock_report::table::{Cell, Column, Kind, Table, Tone};
use fairlock_report::units::format_number;
use fairlock_sim::profile::{self, Profile};

use super::answer::starved;
use super::terminal::groups;
use crate::registry;

/// With more locks, an overview shows only those that can have a rank: no page has room for more columns.
const MOST_LOCKS: usize = 10;

/// A lock under a mix.
struct Place<'a> {
    row: &'a Row,
    limit: Limit,
    /// 1 is the best.
    rank: Option<usize>,
    /// Who starved, in words.
    starved: Option<String>,
}

/// The part that is farthest from sharing the time evenly and without cost.
fn score(limit: &Limit) -> Option<f64> {
    Some(limit.of_limit.median.min(2.0 * limit.lesser_role?.median))
}

/// Those of a group's rows that have a limit: ranked ones first, locks that starve somebody last. `cpus` are those of
/// the machine of real threads.
fn places<'a>(rows: &[&'a Row], cpus: u32) -> Vec<Place<'a>> {
    let place = |row: &&'a Row| {
        let limit = row.limit?;
        let starved = starved(row, cpus_of(row, cpus));
        Some(Place { row, limit, rank: None, starved })
    };
    let mut places: Vec<Place<'_>> = rows.iter().filter_map(place).collect();
    places.sort_by(|one, other| {
        let is_worse = |it: &Place<'_>| (it.starved.is_some(), score(&it.limit).is_none());
        let worth = |it: &Place<'_>| score(&it.limit).unwrap_or(it.limit.of_limit.median);
        is_worse(one).cmp(&is_worse(other)).then(worth(other).total_cmp(&worth(one)))
    });
    let is_ranked = |it: &&mut Place<'_>| it.starved.is_none() && score(&it.limit).is_some();
    for (place, rank) in places.iter_mut().filter(is_ranked).zip(1..) {
        place.rank = Some(rank);
    }
    places
}

/// The CPUs of the row's machine; of one that this version does not have, as many as are here.
fn cpus_of(row: &Row, here: u32) -> u32 {
    let is_known = row.machine != HERE && profile::names().contains(&row.machine.as_str());
    let machine = is_known.then(|| Profile::find(&row.machine).ok()).flatten();
    machine.map_or(here, |machine| machine.topology.cpus())
}

/// The locks of one mix, the best first; nothing where its roles were not measured alone.
pub(super) fn table(rows: &[&Row], cpus: u32) -> Option<Table> {
    let places = places(rows, cpus);
    places.first()?;
    let mut table = Table {
        columns: vec![
            Column::new(registry::subject(&rows[0].workload), Kind::Heading),
            Column::new("rank", Kind::Number),
            Column::new("of the limit", Kind::Number),
            Column::new("lesser role", Kind::Number),
            Column::new("starves", Kind::Text),
        ],
        ..Table::default()
    };
    table.rows.extend(places.iter().map(|place| {
        let tone = if place.rank == Some(1) { Tone::Best } else { Tone::Plain };
        vec![
            Cell::new(&place.row.lock).tone(tone),
            place.rank.map_or_else(Cell::none, |rank| Cell::new(rank.to_string())),
            figure(place.limit.of_limit),
            place.limit.lesser_role.map_or_else(Cell::none, figure),
            match &place.starved {
                None => Cell::new("nobody"),
                Some(words) => Cell::new(words).tone(Tone::Bad),
            },
        ]
    }));
    Some(table)
}

fn figure(estimate: Estimate) -> Cell {
    let [low, median, high] = [estimate.low, estimate.median, estimate.high].map(format_number);
    let detail = if low == high { String::new() } else { format!("[{low}, {high}]") };
    Cell::new(median).detail(detail)
}

/// All mixes of some rows, a line for each and a column for each lock; nothing where no roles were measured alone.
pub(super) fn overview(rows: &[&Row], cpus: u32) -> Option<Table> {
    let mixes: Vec<&Row> = rows.iter().copied().filter(|row| row.limit.is_some()).collect();
    mixes.first()?;
    let mut locks: Vec<&str> = Vec::new();
    for row in &mixes {
        if !locks.contains(&row.lock.as_str()) {
            locks.push(&row.lock);
        }
    }
    if locks.len() > MOST_LOCKS {
        let can_rank = |row: &&&Row| row.limit.as_ref().and_then(score).is_some();
        locks.retain(|lock| mixes.iter().filter(can_rank).any(|row| row.lock == *lock));
    }
    let heads: Vec<&str> = std::iter::once("").chain(locks.iter().copied()).collect();
    let groups = groups(mixes.iter().copied());
    // The first part is the workload.
    let words =
        groups.iter().map(|(title, _)| title.split_once(" · ").map_or("", |(_, words)| words));
    let titles: Vec<&str> = words.collect();
    let (shared, titles) = without_shared(&titles);
    let caption = std::iter::once("Of the limit · lesser role (rank)").chain(shared);
    let mut table = Table::of_numbers(caption.collect::<Vec<_>>().join(", "), &heads);
    for (title, (_, group)) in titles.into_iter().zip(&groups) {
        let places = places(group, cpus);
        let of_lock = |lock: &&str| {
            let place = places.iter().find(|place| place.row.lock == **lock);
            place.map_or_else(Cell::none, in_short)
        };
        table
            .rows
            .push(std::iter::once(Cell::new(title)).chain(locks.iter().map(of_lock)).collect());
    }
    Some(table)
}

/// The parts that all titles have, and what is left of each; the threads, which come first, stay.
fn without_shared<'a>(titles: &[&'a str]) -> (Vec<&'a str>, Vec<String>) {
    const THREADS: usize = 0;
    let parts: Vec<Vec<&str>> = titles.iter().map(|title| title.split(" · ").collect()).collect();
    let is_shared = |part: &&str| parts.iter().all(|of_title| of_title.contains(part));
    let is_left = |(place, part): &(usize, &&str)| *place == THREADS || !is_shared(part);
    let left = parts.iter().map(|of_title| {
        let left = of_title.iter().enumerate().filter(is_left);
        left.map(|(_, part)| *part).collect::<Vec<_>>().join(" · ")
    });
    let first = parts.first().into_iter().flatten().enumerate();
    let shared = first.filter(|it| !is_left(it)).map(|(_, part)| *part);
    (shared.collect(), left.collect())
}

/// `0.93 · 0.46`, and the rank.
fn in_short(place: &Place<'_>) -> Cell {
    let parts = [Some(place.limit.of_limit), place.limit.lesser_role];
    let parts: Vec<String> =
        parts.into_iter().flatten().map(|part| format_number(part.median)).collect();
    let figures = parts.join(" · ");
    match (&place.starved, place.rank) {
        (Some(_), _) => Cell::new("starves").detail(figures).tone(Tone::Bad),
        (None, Some(1)) => Cell::new(figures).detail("1st").tone(Tone::Best),
        (None, Some(rank)) => Cell::new(figures).detail(ordinal(rank)),
        (None, None) => Cell::new(figures),
    }
}

fn ordinal(rank: usize) -> String {
    let ending = match (rank % 10, rank % 100) {
        (1, end) if end != 11 => "st",
        (2, end) if end != 12 => "nd",
        (3, end) if end != 13 => "rd",
        _ => "th",
    };
    format!("{rank}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    /// A lock with these figures.
    fn row(lock: &str, of_limit: f64, lesser_role: Option<f64>) -> Row {
        let mut row = example::row("mix", lock, &[("readers", 4.0), ("writers", 4.0)]);
        row.seconds = 1.0;
        row.roles.values_mut().for_each(|role| role.longest_wait = example::estimate(1e6));
        let lesser_role = lesser_role.map(example::estimate);
        row.limit = Some(Limit { of_limit: example::estimate(of_limit), lesser_role });
        row
    }

    fn starving(mut row: Row) -> Row {
        row.roles.get_mut("writer").unwrap().ops_per_s = example::estimate(0.0);
        row
    }

    fn lines(table: &Table) -> Vec<String> {
        let line = |cells: &Vec<Cell>| {
            cells.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>().join(" | ")
        };
        table.rows.iter().map(line).collect()
    }

    #[test]
    fn a_lock_ranks_by_its_worse_side_and_one_that_starves_somebody_does_not() {
        let rows = [
            starving(row("pthread", 1.2, Some(0.3))),
            row("std", 0.7, None),
            row("parking_lot", 1.1, Some(0.2)),
            row("rwlock", 0.9, Some(0.48)),
            row("usync", 0.95, Some(0.44)),
        ];
        let table = table(&rows.iter().collect::<Vec<_>>(), 2).unwrap();
        let expected = [
            "rwlock | 1 | 0.90 | 0.48 | nobody",
            "usync | 2 | 0.95 | 0.44 | nobody",
            "parking_lot | 3 | 1.10 | 0.20 | nobody",
            "std | – | 0.70 | – | nobody",
            "pthread | – | 1.20 | 0.30 | writers got nothing",
        ];
        assert_eq!(lines(&table), expected);
        assert_eq!(table.rows[0][2].detail, "[0.87, 0.93]");
    }

    #[test]
    fn all_mixes_of_a_study_stand_in_one_table() {
        let mut few = row("rwlock", 0.9, Some(0.48));
        few.params = example::row("mix", "rwlock", &[("readers", 1.0), ("writers", 1.0)]).params;
        let mut alone = row("std", 1.0, None);
        alone.limit = None;
        let rows =
            [few, row("std", 0.7, Some(0.3)), starving(row("rwlock", 0.5, Some(0.0))), alone];
        let table = overview(&rows.iter().collect::<Vec<_>>(), 2).unwrap();
        let expected = [
            "1 reader + 1 writer | 0.90 · 0.48 | –",
            "4 readers + 4 writers | starves | 0.70 · 0.30",
        ];
        assert_eq!(lines(&table), expected);
        let shared = "section 10 pauses, think 10 pauses";
        assert_eq!(table.caption, format!("Of the limit · lesser role (rank), {shared}"));
        assert_eq!([&table.rows[1][1].detail, &table.rows[1][2].detail], ["0.50 · 0", "1st"]);
        assert!(overview(&[&rows[3]], 2).is_none());
    }

    #[test]
    fn of_many_locks_those_stand_there_that_can_have_a_rank() {
        let mut rows: Vec<Row> =
            (0..MOST_LOCKS).map(|lock| row(&format!("lock-{lock}"), 0.5, None)).collect();
        rows[3].limit = row("any", 0.5, Some(0.2)).limit;
        let columns = |rows: &[Row]| overview(&rows.iter().collect::<Vec<_>>(), 2).unwrap().columns;
        assert_eq!(columns(&rows).len(), 1 + MOST_LOCKS);
        rows.push(row("one-more", 0.5, None));
        let titles: Vec<String> = columns(&rows).into_iter().map(|it| it.title).collect();
        assert_eq!(titles, ["", "lock-3"]);
    }

    #[test]
    fn ranks_have_their_endings() {
        let found = [1, 2, 3, 4, 11, 12, 13, 21, 22, 112].map(ordinal).join(" ");
        assert_eq!(found, "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 112th");
    }
}
