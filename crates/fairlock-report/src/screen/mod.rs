//! What fits a terminal: how wide it is, paragraphs and tables of that width, and what may be sent there.
//!
//! | | |
//! |---|---|
//! | `output.rs` | standard output and standard error, which may be closed or full |
//! | `table.rs` | a table that is narrowed, or split, until it fits |
//!
//! Not for: what the texts say. Nothing here knows a lock or a row.

mod output;
mod table;

use std::env;
use std::io::IsTerminal;
use std::os::fd::AsFd;

pub use output::{complain, print, say};
pub use table::{Column, Table};

/// Where there is no terminal: in pipes, files and logs.
const WITHOUT_TERMINAL: usize = 80;
/// Longer lines are hard to read, however wide the terminal is.
pub const WIDEST: usize = 120;
/// Below that nothing is laid out well, and the terminal may break lines.
const NARROWEST: usize = 40;

/// The columns that text on this output may take: the terminal's, at most [`WIDEST`]. Where there is no
/// terminal, those that `COLUMNS` in the environment says, or 80.
pub fn columns(output: &impl AsFd) -> usize {
    let terminal = terminal_size::terminal_size_of(output).map(|(width, _)| usize::from(width.0));
    let said = || env::var("COLUMNS").ok()?.trim().parse().ok();
    // A terminal that does not know its size says 0.
    let columns = terminal.filter(|columns| *columns > 0).or_else(said);
    columns.unwrap_or(WITHOUT_TERMINAL).clamp(NARROWEST, WIDEST)
}

/// Whether letters on this output may have colours, and lines may be drawn anew: on a terminal that can, unless
/// `NO_COLOR` is set to something or `TERM` is `dumb`.
pub fn is_rich(output: &impl IsTerminal) -> bool {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    output.is_terminal() && !is_set("NO_COLOR") && !is_dumb()
}

/// Whether the terminal says that it only prints what it gets.
pub fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Breaks text at spaces into lines of at most `width` characters, indented from the second on. A word that is
/// longer has a line of its own.
///
/// ```
/// use fairlock_report::screen::wrapped;
/// assert_eq!(wrapped("one two three", "  ", 8), "one two\n  three");
/// ```
pub fn wrapped(text: &str, indent: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("starts with a line");
        if line.chars().count() + word.chars().count() + 1 > width && !line.trim().is_empty() {
            lines.push(format!("{indent}{word}"));
        } else {
            if !line.trim().is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// Each line of a text broken at spaces where it is longer than `width`. It goes on two spaces further in than it
/// began.
pub fn wrapped_lines(text: &str, width: usize) -> String {
    let lines = text.lines().map(|line| match line.chars().count() > width {
        false => line.to_owned(),
        true => {
            let words = line.trim_start();
            let indent = &line[..line.len() - words.len()];
            let words = wrapped(words, "  ", width.saturating_sub(indent.len()));
            format!("{indent}{}", words.replace('\n', &format!("\n{indent}")))
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The words at the beginning of a text that fit into `width` characters, and a mark where others are left out.
///
/// ```
/// use fairlock_report::screen::shortened;
/// assert_eq!(shortened("one two three", 13), "one two three");
/// assert_eq!(shortened("one two three", 12), "one two …");
/// ```
pub fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let line = wrapped(text, "", width.saturating_sub(2));
    format!("{} …", line.lines().next().unwrap_or_default())
}

/// A name, and from a column on what is said about it: `  name      about`. A long text goes on in its column; a
/// long name has a line of its own.
///
/// ```
/// use fairlock_report::screen::entry;
/// assert_eq!(entry("std", 8, "a lock of others", 20), "  std   a lock of\n        others\n");
/// ```
pub fn entry(name: &str, column: usize, about: &str, width: usize) -> String {
    let indent = " ".repeat(column);
    let about =
        wrapped(about, "", width.saturating_sub(column)).replace('\n', &format!("\n{indent}"));
    let name = format!("  {name}");
    match name.chars().count() < column {
        true => format!("{name:<column$}{about}\n"),
        false => format!("{name}\n{indent}{about}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_at_spaces_and_words_stay_whole() {
        let text = wrapped(&"word ".repeat(60), "    ", 40);
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("    word")), "{text}");
        let path = "/a/path/that/is/longer/than/the/line";
        assert_eq!(wrapped(&format!("in {path} there"), "", 12), format!("in\n{path}\nthere"));
    }

    #[test]
    fn lines_keep_their_indentation_and_short_ones_stay_as_they_are() {
        let text = "short   line\n  one two three four\na line too long";
        let expected = "short   line\n  one two\n    three\n    four\na line too\n  long";
        assert_eq!(wrapped_lines(text, 12), expected);
    }

    #[test]
    fn a_name_too_long_for_its_column_stands_alone() {
        let text = entry("linux-3.10-fast-fail", 12, "a lock", 40);
        assert_eq!(text, format!("  linux-3.10-fast-fail\n{}a lock\n", " ".repeat(12)));
    }
}
