//! A table for a terminal.
//!
//! One that is too wide is made to fit: columns of text become narrower, down to their longest word. If that is not
//! enough, the columns are spread over several tables, each of which repeats those that say what a line is about.

use std::iter;

use super::wrapped;

/// Between two columns.
const GAP: usize = 2;

/// Text is not made narrower than this, or than it is.
const NARROW_TEXT: usize = 14;

/// A column's heading, which may have several lines, and how its cells are set.
#[derive(Debug, Clone)]
pub struct Column {
    head: String,
    is_number: bool,
}

impl Column {
    /// Cells begin at the left, and are broken at spaces if there is too little room.
    pub fn text(head: impl Into<String>) -> Column {
        Column { head: head.into(), is_number: false }
    }

    /// Cells end at the right, and stay as they are.
    pub fn number(head: impl Into<String>) -> Column {
        Column { head: head.into(), is_number: true }
    }
}

/// Cells in lines and columns.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<Column>,
    /// Those at the left that say what a line is about.
    keys: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table, whose first `keys` columns say what a line is about.
    pub fn new(keys: usize, columns: impl IntoIterator<Item = Column>) -> Table {
        Table { columns: columns.into_iter().collect(), keys, rows: Vec::new() }
    }

    /// Adds a line. Cells may have several lines; those that are missing are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let empty = iter::repeat_with(String::new);
        self.rows.push(cells.into_iter().chain(empty).take(self.columns.len()).collect());
    }

    /// Whether it has no lines.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table, or several of them with an empty line between, in lines of at most `width` characters where the
    /// longest words allow that. Does not end in a new line.
    pub fn fitted(&self, width: usize) -> String {
        let parts = self.parts(width);
        let parts = parts.iter().map(|columns| self.rendered(columns, width));
        parts.collect::<Vec<_>>().join("\n\n")
    }

    /// Which columns stand together.
    fn parts(&self, width: usize) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let (keys, others) = all.split_at(self.keys.min(all.len()));
        let least = |columns: &[usize]| {
            let each = columns.iter().map(|column| self.least(*column));
            each.sum::<usize>() + GAP * columns.len().saturating_sub(1)
        };
        let mut parts = vec![keys.to_vec()];
        for column in others {
            let part = parts.last_mut().expect("there is one");
            part.push(*column);
            if least(part) > width && part.len() > keys.len() + 1 {
                part.pop();
                parts.push([keys, &[*column]].concat());
            }
        }
        // A table with one column beside a full one reads badly.
        for index in (1..parts.len()).rev() {
            while parts[index - 1].len() > parts[index].len() + 1 {
                let moved = parts[index - 1].pop().expect("it is the longer one");
                parts[index].insert(keys.len(), moved);
                if least(&parts[index]) > width {
                    parts[index].remove(keys.len());
                    parts[index - 1].push(moved);
                    break;
                }
            }
        }
        parts
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().map(move |row| row[column].as_str())
    }

    /// As wide as it is where there is room.
    fn natural(&self, column: usize) -> usize {
        let cells = self.cells(column).chain([self.columns[column].head.as_str()]);
        cells.flat_map(str::lines).map(|line| line.chars().count()).max().unwrap_or(0)
    }

    /// As narrow as it can be.
    fn least(&self, column: usize) -> usize {
        let head = longest_word(&self.columns[column].head);
        let cells = self.cells(column);
        match self.columns[column].is_number {
            true => {
                cells.flat_map(str::lines).map(|line| line.chars().count()).fold(head, usize::max)
            }
            false => {
                let words = cells.map(longest_word).fold(head, usize::max);
                words.max(self.natural(column).min(NARROW_TEXT))
            }
        }
    }

    /// How wide these columns are in a table of this width: what there is goes to all that lack some, in equal parts.
    fn widths(&self, columns: &[usize], width: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = columns.iter().map(|column| self.least(*column)).collect();
        let natural: Vec<usize> = columns.iter().map(|column| self.natural(*column)).collect();
        let least = widths.iter().sum::<usize>() + GAP * columns.len().saturating_sub(1);
        let mut left = width.saturating_sub(least);
        while left > 0 && widths.iter().zip(&natural).any(|(width, natural)| width < natural) {
            for (width, natural) in widths.iter_mut().zip(&natural) {
                if *width < *natural && left > 0 {
                    *width += 1;
                    left -= 1;
                }
            }
        }
        widths
    }

    fn rendered(&self, columns: &[usize], width: usize) -> String {
        let least = self.widths(columns, width);
        let fitted = |text: &str, width: usize| -> Vec<String> {
            let lines = text.lines().map(|line| wrapped(line, "", width));
            lines.flat_map(|text| text.split('\n').map(str::to_owned).collect::<Vec<_>>()).collect()
        };
        // Each cell's lines: of the headings, then of each row.
        let mut all: Vec<Vec<Vec<String>>> = vec![
            iter::zip(columns, &least)
                .map(|(column, width)| fitted(&self.columns[*column].head, *width))
                .collect(),
        ];
        all.extend(self.rows.iter().map(|row| {
            let cells = iter::zip(columns, &least).map(|(column, width)| {
                match self.columns[*column].is_number {
                    true => row[*column].split('\n').map(str::to_owned).collect(),
                    false => fitted(&row[*column], *width),
                }
            });
            cells.collect()
        }));
        let widest = |index: usize| {
            let lines = all.iter().flat_map(|cells| &cells[index]);
            lines.map(|line| line.chars().count()).max().unwrap_or(0).max(1)
        };
        let widths: Vec<usize> = (0..columns.len()).map(widest).collect();
        let rule = widths.iter().sum::<usize>() + GAP * columns.len().saturating_sub(1);
        let mut text = Vec::new();
        for (number, cells) in all.iter().enumerate() {
            for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0).max(1) {
                let cells = cells.iter().enumerate().map(|(index, lines)| {
                    let (cell, width) = (lines.get(line).map_or("", String::as_str), widths[index]);
                    match number > 0 && self.columns[columns[index]].is_number {
                        true => format!("{cell:>width$}"),
                        false => format!("{cell:width$}"),
                    }
                });
                let line = cells.collect::<Vec<_>>().join(&" ".repeat(GAP));
                text.push(line.trim_end().to_owned());
            }
            if number == 0 {
                text.push("─".repeat(rule));
            }
        }
        text.join("\n")
    }
}

fn longest_word(text: &str) -> usize {
    text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let figures = ["rate", "wait\np50/p99/max", "hold"].map(Column::number);
        let mut table =
            Table::new(2, [Column::text("lock"), Column::text("role")].into_iter().chain(figures));
        for (lock, role) in [("no-reader-steal", "readers"), ("", "writers"), ("std", "readers")] {
            let cells = [lock, role, "12.5", "1.20µs/35.0µs/144ms", "90ns"];
            table.row(cells.map(str::to_owned));
        }
        table
    }

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn a_table_that_fits_is_one() {
        let text = table().fitted(80);
        assert_eq!(text.matches("lock").count(), 1, "{text}");
        assert!(widest(&text) <= 80, "{text}");
        assert!(
            text.contains("no-reader-steal  readers  12.5  1.20µs/35.0µs/144ms  90ns"),
            "{text}"
        );
    }

    #[test]
    fn a_rule_is_below_the_headings_and_numbers_end_at_the_right() {
        let mut table = Table::new(1, [Column::text("a lock"), Column::number("wait\np50/max")]);
        table.row(["rwlock", "1/2"].map(str::to_owned));
        table.row(["two lines\nof it", "10/20"].map(str::to_owned));
        let lines = [
            "a lock     wait",
            "           p50/max",
            "──────────────────",
            "rwlock         1/2",
            "two lines    10/20",
            "of it",
        ];
        assert_eq!(table.fitted(80), lines.join("\n"));
    }

    #[test]
    fn one_that_does_not_is_split_and_says_again_what_a_line_is_about() {
        let text = table().fitted(52);
        assert!(widest(&text) <= 52, "{text}");
        assert_eq!(text.matches("lock").count(), 2, "{text}");
        assert_eq!(text.matches("no-reader-steal").count(), 2, "{text}");
        assert_eq!(text.matches("144ms").count(), 3, "{text}");
    }

    #[test]
    fn texts_are_broken_between_words_before_a_table_is_split() {
        let mut table = Table::new(1, ["claim", "verdict"].map(Column::text));
        let words = "readers and writers share the time of the lock in equal parts";
        table.row([words, words].map(str::to_owned));
        let text = table.fitted(50);
        assert!(widest(&text) <= 50 && text.matches("claim").count() == 1, "{text}");
        let mut all: Vec<&str> = text.lines().skip(2).flat_map(str::split_whitespace).collect();
        let mut expected: Vec<&str> = [words, words].iter().flat_map(|it| it.split(' ')).collect();
        all.sort_unstable();
        expected.sort_unstable();
        assert_eq!(all, expected, "{text}");
    }

    #[test]
    fn words_longer_than_the_line_stay_whole() {
        let mut table = Table::new(1, [Column::text("file"), Column::number("bytes")]);
        let path = "/a/path/".repeat(10);
        table.row([path.clone(), "5".to_owned()]);
        assert!(table.fitted(40).contains(&path));
    }
}
