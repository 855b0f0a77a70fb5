//! Machines for a terminal: the figures of a profile, and what a calibration measured.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use fairlock_sim::profile::{Origin, Sheet};

use super::terminal::STYLE;
use crate::calibrate::Calibration;
use crate::units::format_ns;

/// As wide as a terminal of 120 columns takes.
const WIDTH: u16 = 118;

fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header(heads);
    table
}

fn finish(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<String> =
        table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// Every figure of a machine with its source.
pub fn figures(sheet: &Sheet) -> String {
    let mut table = table(&["figure", "value", "time", "source"]);
    for figure in &sheet.figures {
        let mut source = match &figure.origin {
            Origin::From(key) => format!("[{key}]"),
            Origin::Assumed(why) => format!("assumed: {why}"),
        };
        if !figure.note.is_empty() {
            source += &format!("; {}", figure.note);
        }
        let time = sheet.nanoseconds(figure).map(format_ns).unwrap_or_default();
        table.add_row([
            Cell::new(figure.key.name),
            // A matrix reads better in rows.
            Cell::new(figure.shown().replace("], [", "],\n[")),
            right(time),
            Cell::new(source),
        ]);
    }
    let mut text = format!("{}: {}\n", sheet.name, sheet.title);
    if !sheet.about.is_empty() {
        text += &format!("{}\n", sheet.about.trim());
    }
    text += &format!("\n{}\n\n", finish(table));
    for (key, citation) in &sheet.sources {
        text += &format!("[{key}] {citation}\n");
    }
    text
}

/// What a calibration measured, with the spread of its samples.
pub fn calibration(found: &Calibration) -> String {
    let mut table = table(&["measured", "figure", "p10", "p50", "p90", "note"]);
    for row in &found.measured {
        let times = [row.value, row.p10, row.p50, row.p90].map(|ns| right(format_ns(ns)));
        let cells = std::iter::once(Cell::new(&row.what)).chain(times);
        table.add_row(cells.chain([Cell::new(&row.note)]));
    }
    let assumed: Vec<&str> = found
        .sheet
        .figures
        .iter()
        .filter(|figure| matches!(figure.origin, Origin::Assumed(_)))
        .map(|figure| figure.key.name)
        .collect();
    format!("{}\n\n{}\n\nassumed: {}\n", found.sheet.title, finish(table), assumed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_shows_its_figures_with_sources_in_120_columns() {
        for name in fairlock_sim::profile::names() {
            let sheet = Sheet::find(name).unwrap();
            let text = figures(&sheet);
            for figure in &sheet.figures {
                assert!(text.contains(figure.key.name), "{name}: {}", figure.key.name);
            }
            let (rows, _) = text.split_once("\n\n[").unwrap();
            let (_, rows) = rows.split_once("\n\n").unwrap();
            for line in rows.lines() {
                assert!(line.chars().count() <= 120, "{name}: {line}");
            }
        }
    }

    #[test]
    fn published_cycles_show_as_time_and_with_their_source() {
        let text = figures(&Sheet::find("ivybridge-ex-8s").unwrap());
        let cross = text.lines().find(|line| line.starts_with("line.cross")).unwrap();
        assert!(cross.contains("cy = 341, at_ghz = 2.13"), "{cross}");
        assert!(cross.contains("160ns") && cross.contains("[mctop]; Westmere-EX"), "{cross}");
        assert!(text.contains("\n[mctop] MCTOP machine descriptions"), "{text}");
    }
}
