//! The values of a chart as a table: what a reader without scripts sees, and everybody who wants the numbers.

use super::{Bars, Chart, Lines, Picture, Ranges, Stacks, Steps, Timeline};
use crate::quantity::{Figure, Unit};
use crate::table::{Cell, Column, Kind, Table};
use crate::units::format_ns;

fn table(titles: impl IntoIterator<Item = String>) -> Table {
    let kinds = std::iter::once(Kind::Heading).chain(std::iter::repeat(Kind::Number));
    let columns = titles.into_iter().zip(kinds).map(|(title, kind)| Column::new(title, kind));
    Table { columns: columns.collect(), ..Table::default() }
}

fn row(name: &str, cells: impl IntoIterator<Item = Cell>) -> Vec<Cell> {
    std::iter::once(Cell::new(name)).chain(cells).collect()
}

/// Names in the order in which they come first.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    names.for_each(|name| {
        if !all.contains(&name) {
            all.push(name)
        }
    });
    all
}

fn optional(unit: Unit, figure: Option<Figure>) -> Cell {
    figure.map_or_else(Cell::none, |figure| Cell::figure(unit, figure))
}

impl Chart {
    /// Its values.
    pub fn values(&self) -> Table {
        match &self.picture {
            Picture::Lines(lines) => lines.values(),
            Picture::Bars(bars) => bars.values(),
            Picture::Stacks(stacks) => stacks.values(),
            Picture::Steps(steps) => steps.values(),
            Picture::Ranges(ranges) => ranges.values(),
            Picture::Timeline(timeline) => timeline.values(),
        }
    }
}

impl Lines {
    fn values(&self) -> Table {
        let mut table = table(std::iter::once(self.x.clone()).chain(self.places.iter().cloned()));
        for series in &self.series {
            let at = |place| series.points.iter().find(|(x, _)| *x == place).map(|(_, it)| *it);
            let cells = (0..self.places.len()).map(|place| optional(self.y.unit, at(place)));
            table.rows.push(row(&series.name, cells));
        }
        table
    }
}

impl Bars {
    /// A row for each name, a column for each group.
    fn values(&self) -> Table {
        let heads = self.groups.iter().map(|group| match group.name.as_str() {
            "" => self.axis.title.clone(),
            name => name.to_owned(),
        });
        let bars = self.groups.iter().flat_map(|group| &group.bars);
        let names = distinct(bars.map(|bar| bar.name.as_str()));
        let cell = |group: &super::Group, name: &str| {
            let bar = group.bars.iter().find(|bar| bar.name == name);
            bar.map_or_else(Cell::none, |bar| match bar.note.as_str() {
                "" => Cell::figure(self.axis.unit, bar.figure),
                note => Cell::new(note),
            })
        };
        if self.by_group {
            // Few roles, many groups.
            let heads = std::iter::once(String::new()).chain(names.iter().map(|it| it.to_string()));
            let mut table = table(heads);
            for group in &self.groups {
                table.rows.push(row(&group.name, names.iter().map(|name| cell(group, name))));
            }
            return table;
        }
        let mut table = table(std::iter::once(String::new()).chain(heads));
        for name in &names {
            table.rows.push(row(name, self.groups.iter().map(|group| cell(group, name))));
        }
        table
    }
}

impl Stacks {
    fn values(&self) -> Table {
        let parts = self.stacks.iter().flat_map(|stack| &stack.parts);
        let roles = distinct(parts.map(|part| part.role.as_str()));
        let heads = roles.iter().map(|role| (*role).to_owned());
        let mut table = table(std::iter::once(String::new()).chain(heads));
        for stack in &self.stacks {
            let of = |role: &&str| stack.parts.iter().find(|part| part.role == *role);
            let value = |role| of(role).map(|part| Figure::exactly(part.value));
            let cells = roles.iter().map(|role| optional(self.axis.unit, value(role)));
            table.rows.push(row(&stack.name, cells));
        }
        table
    }
}

impl Steps {
    /// A row for each bucket that is not empty.
    fn values(&self) -> Table {
        let heads = self.histograms.iter().map(|it| it.name.clone());
        let mut table = table(std::iter::once("from".to_owned()).chain(heads));
        for (bucket, edge) in self.edges.iter().enumerate() {
            let share = |at: usize| self.histograms[at].shares.get(bucket).copied();
            let shares = (0..self.histograms.len()).map(|at| share(at).unwrap_or(0.0));
            if shares.clone().all(|share| share == 0.0) {
                continue;
            }
            let cells = shares.map(|share| Cell::new(Unit::Share.words(share)));
            table.rows.push(row(&format_ns(*edge), cells));
        }
        table
    }
}

impl Ranges {
    fn values(&self) -> Table {
        let heads = ["", "median", "95 % interval", "all"].map(str::to_owned);
        let mut table = table(heads);
        let unit = self.axis.unit;
        for range in &self.ranges {
            let interval = range.interval.map(|it| Cell::new(unit.interval(it)));
            let cells = [
                Cell::new(unit.words(range.seen.median)),
                interval.unwrap_or_else(Cell::none),
                Cell::new(unit.interval(range.seen)),
            ];
            table.rows.push(row(&range.name, cells));
        }
        table
    }
}

impl Timeline {
    /// For which part of the time each thread did what.
    fn values(&self) -> Table {
        let kinds = self.kinds.iter().map(|kind| kind.name.clone());
        let mut table = table(std::iter::once("part of the time".to_owned()).chain(kinds));
        for thread in &self.threads {
            let slots = |kind: usize| {
                let of_kind = thread.stretches.iter().filter(|it| it[0] == kind);
                of_kind.map(|[_, _, length]| length).sum::<usize>()
            };
            let cells = (0..self.kinds.len()).map(|kind| {
                Cell::new(Unit::Share.words(slots(kind) as f64 / self.slots.max(1) as f64))
            });
            table.rows.push(row(&thread.name, cells));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;

    fn texts(table: &Table) -> Vec<Vec<String>> {
        let text = |cell: &Cell| format!("{}{}", cell.text, cell.detail);
        table.rows.iter().map(|row| row.iter().map(text).collect()).collect()
    }

    #[test]
    fn a_place_without_a_figure_has_a_dash() {
        let figure = Figure { median: 2e3, low: 1e3, high: 3e3 };
        let series = vec![("std".to_owned(), vec![(1, figure)])];
        let places = vec!["1".to_owned(), "8".to_owned()];
        let axis = ("operations", Unit::PerSecond);
        let lines = Lines::new("threads", places, axis, series, &mut Looks::default());
        let values = Chart::new("", lines).values();
        assert_eq!(values.columns[0].title, "threads");
        assert_eq!(texts(&values), [["std", "–", "2.00k/s[1.00k/s, 3.00k/s]"]]);
    }

    #[test]
    fn bars_of_roles_have_a_row_for_each_group() {
        let bar = |name: &str, value, note: &str| Bar {
            name: name.to_owned(),
            figure: Figure::exactly(value),
            note: note.to_owned(),
        };
        let bars = vec![bar("reader", 0.5, ""), bar("writer", 0.0, "0 alone")];
        let groups = vec![Group { name: "std".to_owned(), bars }];
        let by_group = Chart::new("", Bars::of_roles("part", Unit::Number, groups.clone()));
        assert_eq!(texts(&by_group.values()), [["std", "0.50", "0 alone"]]);
        let bars = Bars::new("part", Unit::Number, groups, &mut Looks::default());
        let by_name = Chart::new("", bars);
        assert_eq!(texts(&by_name.values()), [["reader", "0.50"], ["writer", "0 alone"]]);
    }

    #[test]
    fn empty_buckets_have_no_row() {
        let shares = vec![0.0, 0.25, 0.0, 0.75];
        let histogram = Histogram { name: "writes".to_owned(), look: Look::Writer, shares };
        let edges = vec![0.0, 2.0, 4.0, 8.0, 16.0];
        let steps = Steps { title: String::new(), edges, histograms: vec![histogram] };
        let values = Chart::new("", steps).values();
        assert_eq!(texts(&values), [["2.00ns", "25.0 %"], ["8.00ns", "75.0 %"]]);
    }

    #[test]
    fn a_timeline_says_how_long_each_thread_did_what() {
        let doing = Doing { name: "runs".to_owned(), color: "runs", from: 0.0, to: 1.0 };
        let stretches = vec![[0, 0, 10], [0, 30, 6]];
        let thread = ThreadRow { name: "reader 1".to_owned(), stretches };
        let timeline = Timeline {
            length_ns: 1000,
            mark: None,
            slots: 64,
            kinds: vec![doing],
            threads: vec![thread],
            wake_ups: Vec::new(),
        };
        assert_eq!(texts(&Chart::new("", timeline).values()), [["reader 1", "25.0 %"]]);
    }
}
